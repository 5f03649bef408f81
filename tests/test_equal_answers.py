"""HTTP = shell = Python: the same texts get the same labels and scores, to the last digit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from test_tagger import corpus

from ripml import RIPML, Store, Tagger
from ripml.cli import main
from ripml.server import create_app


def shell(*words: str, given: bytes | None = None) -> str:
    """What a command prints."""
    command = [sys.executable, "-m", "ripml", *words]
    return subprocess.run(command, input=given, capture_output=True, check=True).stdout.decode()


def test_python_shell_and_http_give_equal_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts, tags = corpus(60)
    lines = [json.dumps({"text": text, "labels": its}) for text, its in zip(texts, tags, strict=True)]
    (tmp_path / "train.jsonl").write_text("\n".join(lines))
    train = str(tmp_path / "train.jsonl")
    for place in (["store", "--store"], ["model"]):
        with pytest.raises(SystemExit, match="0"):
            main(["train", train, str(tmp_path / place[0]), *place[1:]])
    capsys.readouterr()
    asked = [*corpus(6, 7)[0], "", "nothing of this is known ???", "größe 苹果 rain & <b>wind</b>"]
    tagger = Tagger().fit(train)
    with Store.open(tmp_path / "store", readonly=True) as store:
        wanted = [store.model.suggest([text])[0] for text in asked]
        many = store.model.suggest(asked)
    assert [tagger.suggest(text) for text in asked] == wanted
    assert [Tagger.load(tmp_path / "model").suggest(text) for text in asked] == wanted

    with TestClient(create_app({"s": Store.open(tmp_path / "store")}), base_url="http://localhost") as client:
        for text, labels in zip(asked, wanted, strict=True):
            answer = client.post("/v1/stores/s/suggest", json={"text": text}).json()
            assert [(label["label"], label["score"]) for label in answer["labels"]] == labels
        answer = client.post("/v1/stores/s/suggest/batch", json={"texts": asked}).json()
        found = [[(label["label"], label["score"]) for label in result["labels"]] for result in answer["results"]]
        assert found == many

    (tmp_path / "text").write_text(asked[0])
    ways = [
        shell("suggest", str(tmp_path / "store"), asked[0], "--json"),
        shell("suggest", str(tmp_path / "store"), "--file", str(tmp_path / "text"), "--json"),
        shell("suggest", str(tmp_path / "model"), "-", "--json", given=asked[0].encode()),
    ]
    assert len(set(ways)) == 1
    pairs = json.loads(ways[0])["labels"]
    assert [(pair["label"], pair["score"]) for pair in pairs] == wanted[0]


def test_the_shell_learns_repeated_texts_once_as_the_tagger_does(tmp_path: Path) -> None:
    texts, tags = corpus(30)
    lines = [json.dumps({"text": text, "labels": its}) for text, its in zip(texts, tags, strict=True)]
    (tmp_path / "train.jsonl").write_text("\n".join([*lines, *lines[:10], json.dumps({"text": " ", "labels": ["x"]})]))
    train = str(tmp_path / "train.jsonl")
    with pytest.raises(SystemExit, match="0"):
        main(["train", train, str(tmp_path / "model"), "--preset", "linear"])
    tagger = Tagger(model=RIPML.linear(random_state=0)).fit(texts, tags)
    assert Tagger.load(tmp_path / "model").suggest(texts[0]) == tagger.suggest(texts[0])
