"""`ripml tag`: a table in, a table out, each row once and in order, also after a kill at any moment."""

from __future__ import annotations

import csv
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from broken_files import docx, xlsx

from ripml import RIPML
from ripml.base import platform
from ripml.base.errors import DataError, ParameterError
from ripml.cli import main
from ripml.datasets import documents_given
from ripml.tagging import batch
from ripml.tagging.batch import Tagged, tag_file
from ripml.tagging.documents import DocumentModel
from ripml.tagging.rules import Rules

WORDS = {"billing": "invoice charged paid card", "mobile": "phone app battery screen", "network": "router cable line"}


def documents(n: int, seed: int = 0) -> list[tuple[str, str]]:
    rng = random.Random(seed)
    labels = [rng.choice(list(WORDS)) for _ in range(n)]
    return [(" ".join(rng.choices(WORDS[label].split(), k=6)), label) for label in labels]


@pytest.fixture(scope="module")
def model() -> DocumentModel:
    texts, labels = zip(*documents(60), strict=True)
    estimator = RIPML.paper(n_dims=8, n_neighbors=3, ridge=1.0, random_state=0)
    return DocumentModel.fit(documents_given(list(texts), [[label] for label in labels]), None, estimator)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "rows.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter=";")
        writer.writerow(["nr", "text", "note"])
        writer.writerows([number, text, 'a; "b"\nc'] for number, (text, _) in enumerate(documents(100, 1)))
    return path


def rows_of(path: Path, delimiter: str = ",") -> list[list[str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file, delimiter=delimiter))


def test_columns_are_kept_and_tags_and_scores_are_those_of_suggest(model: DocumentModel, table: Path) -> None:
    rules = Rules(n=2)
    assert tag_file(model, table, table.with_name("out.csv"), rules=rules) == Tagged(100, 0, 0)
    before, after = rows_of(table, ";"), rows_of(table.with_name("out.csv"))
    assert after[0] == ["nr", "text", "note", "tags", "scores"]
    assert [row[:3] for row in after] == before
    for row, labels in zip(after[1:], model.suggest([row[1] for row in before[1:]], rules), strict=True):
        assert row[3] == "|".join(label for label, _ in labels)
        assert row[4] == "|".join(str(round(score, 4)) for _, score in labels)
    assert {path.name for path in table.parent.iterdir()} == {"rows.csv", "out.csv"}


def test_every_kind_of_table_and_a_folder_give_the_same_tags(model: DocumentModel, tmp_path: Path) -> None:
    import pandas as pd

    frame = pd.DataFrame({"a": [1, 2], "text": ["invoice paid", "phone battery"]})
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_parquet(tmp_path / "a.parquet")
    frame.to_json(tmp_path / "a.jsonl", orient="records", lines=True)
    (tmp_path / "a.xlsx").write_bytes(xlsx([list(frame), *frame.values.tolist()]))
    (tmp_path / "folder").mkdir()
    for number, text in zip(frame["a"], frame["text"], strict=True):
        (tmp_path / "folder" / f"{number}.docx").write_bytes(docx(text))
    found = []
    for name in ("a.csv", "a.parquet", "a.jsonl", "a.xlsx", "folder"):
        tag_file(model, tmp_path / name, tmp_path / f"{name}.out.jsonl")
        records = [json.loads(line) for line in (tmp_path / f"{name}.out.jsonl").read_text().splitlines()]
        assert list(records[0]) == (["id"] if name == "folder" else ["a", "text"]) + ["tags", "scores"]
        found.append([(record["tags"], record["scores"]) for record in records])
    assert found == [found[0]] * 5
    assert found[0][0][0][0] == "billing"


class Killed(Exception):
    """Stands for a kill."""


@pytest.mark.parametrize("name", ["out.csv", "out.jsonl"])
@pytest.mark.parametrize("place", range(6))
def test_a_call_that_was_killed_goes_on_where_it_stopped(
    name: str, place: int, model: DocumentModel, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "_BLOCK", 15)
    whole = table.with_name(f"whole-{name}")
    tag_file(model, table, whole)
    out, moments = table.with_name(name), ["fsync", "sync_file", "replace"]
    owner: Any = {"fsync": os, "sync_file": platform, "replace": os}[moments[place % 3]]
    original, left = getattr(owner, moments[place % 3]), [2 + place // 3]

    def killed(*arguments: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise Killed
        return original(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(owner, moments[place % 3], killed)
        with pytest.raises(Killed):
            tag_file(model, table, out)
    with out.with_name(f"{name}.part").open("ab") as file:
        file.write(b"half of a bl")
    done = tag_file(model, table, out)
    assert 0 < done.resumed < done.rows == 100
    assert out.read_bytes() == whole.read_bytes()
    assert not list(table.parent.glob("*.part*"))


def test_another_table_other_options_and_another_model_are_noticed(
    model: DocumentModel, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "_BLOCK", 15)
    out = table.with_name("out.csv")

    def stop(n: int) -> None:
        if n:
            raise Killed

    with pytest.raises(Killed):
        tag_file(model, table, out, version="1", progress=stop)
    with pytest.raises(DataError, match=r"out\.csv\.part was begun with another table or other options; delete it"):
        tag_file(model, table, out, version="1", rules=Rules(n=1))
    with pytest.warns(RuntimeWarning, match=r"^the model has changed since the first 15 rows were tagged\.$"):
        assert tag_file(model, table, out, version="2").resumed == 15
    with pytest.raises(DataError, match=r"out\.csv already exists; delete it, or choose another name\.$"):
        tag_file(model, table, out)


def test_names_that_are_taken_and_rows_that_do_not_fit(model: DocumentModel, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,tags\ninvoice,old\n")
    tag_file(model, tmp_path / "a.csv", tmp_path / "out.csv")
    assert rows_of(tmp_path / "out.csv")[0] == ["text", "tags", "suggested tags", "suggested scores"]
    (tmp_path / "b.jsonl").write_text('{"text": "invoice"}\n{"text": "phone", "more": 1}\n')
    with pytest.raises(DataError, match=r"b\.jsonl:2: 'more' is not in the first row; write a file with \.jsonl\.$"):
        tag_file(model, tmp_path / "b.jsonl", tmp_path / "b.csv")
    with pytest.raises(
        ParameterError, match=r"tags are written to a file with one of the suffixes \.csv, \.tsv, \.jsonl"
    ):
        tag_file(model, tmp_path / "a.csv", tmp_path / "out.xlsx")
    (tmp_path / "rows.xmc").write_text("1 2 2\n0 0:1\n")
    with pytest.raises(DataError, match=r"rows of features have no texts; ripml predict answers them\.$"):
        tag_file(model, tmp_path / "rows.xmc", tmp_path / "c.csv")
    (tmp_path / "d.csv").write_text("text\n")
    with pytest.raises(DataError, match=r"d\.csv has no rows\.$"):
        tag_file(model, tmp_path / "d.csv", tmp_path / "d.out.csv")
    with pytest.raises(DataError, match=r"a\.csv:1: there is no column 'body' among text, tags; name the right one"):
        tag_file(model, tmp_path / "a.csv", tmp_path / "e.csv", text="body")


def test_the_shell_tags_a_table_and_resumes_after_sigkill(
    model: DocumentModel, table: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder, out = table.with_name("model"), table.with_name("out.csv")
    model.save(folder)
    script = (
        "import os, signal, sys; from ripml.tagging import batch; from ripml.cli import main; batch._BLOCK = 15\n"
        "replace = os.replace\n"
        "def stop(old, new):\n    replace(old, new)\n"  # Numba writes files in this way, too
        "    'out.csv' in str(new) and os.kill(os.getpid(), signal.SIGKILL)\n"
        "os.replace = stop; main(sys.argv[1:])"
    )
    command = ["tag", str(folder), str(table), str(out), "-n", "1"]
    killed = subprocess.run([sys.executable, "-c", script, *command], capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL
    with pytest.raises(SystemExit) as stop:
        main(command)
    assert (stop.value.code, capfd.readouterr().out) == (
        0,
        f"100 rows written to {out}, 15 of them by an earlier run\n",
    )
    assert [row[:3] for row in rows_of(out)] == rows_of(table, ";")
