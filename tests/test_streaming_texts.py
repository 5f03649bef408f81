"""Texts of a file larger than memory: words counted in one pass, and the model of a fit in memory."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from ripml import RIPML
from ripml.base.errors import DataError, ParameterError
from ripml.base.workspace import DiskWorkspace
from ripml.cli import main
from ripml.datasets import Dataset, documents_given, read, source
from ripml.datasets.dataset import join
from ripml.lab.generated_texts import generate_texts
from ripml.labels.concepts import Concept, Concepts
from ripml.model import budget
from ripml.model.streaming import RowFiles
from ripml.regression import ConjugateGradient, Local
from ripml.tagging import streaming
from ripml.tagging.documents import DocumentModel, distinct
from ripml.text import TfIdf
from ripml.text.counts import Frequencies

WORDS = [f"w{chr(97 + i)}{chr(97 + j)}" for i in range(12) for j in range(12)]


def documents(n: int = 300) -> list[dict[str, Any]]:
    """Texts of which some are blank or copies of others with other labels."""
    rng = np.random.default_rng(0)
    rows = list[dict[str, Any]]()
    for number in range(n):
        topic = int(rng.integers(8))
        words = [*rng.choice(WORDS[12 * topic : 12 * topic + 40], 9), *rng.choice(WORDS, 4)]
        rows.append({"text": f"{' '.join(words[:2])}\n{' '.join(words)}", "labels": [f"l{topic}", f"m{number % 5}"]})
    rows[20] = {"text": "  ", "labels": ["l1"]}
    rows[-1] = {"text": rows[3]["text"].replace(" ", "  "), "labels": ["only in a copy"]}
    rows[150] = {"text": rows[3]["text"], "labels": ["l0", "l7"]}
    return rows


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(source, "CHUNK_BYTES", 2000)
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in documents()))
    return path


def whole(file: Path, model: RIPML) -> DocumentModel:
    return DocumentModel.fit(distinct(read(file)), None, model)


def streamed(file: Path, model: RIPML, folder: Path, memory: int = 1 << 24) -> DocumentModel:
    return DocumentModel.fit_blocks(file, None, model, folder, memory)


SETTINGS: dict[str, Any] = {
    "default": RIPML(random_state=0),
    "local": RIPML(kernel=Local(0.5, 0.3, 20), random_state=0),
    "linear": RIPML.linear(random_state=0),
    "paper": RIPML.paper(n_dims=20, random_state=0),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_texts_in_blocks_give_the_model_of_one_fit(file: Path, tmp_path: Path, name: str) -> None:
    one = streamed(file, clone(SETTINGS[name]), tmp_path / "work")
    other = whole(file, clone(SETTINGS[name]))
    assert one.columns == other.columns
    assert one.model.classes_.tolist() == other.model.classes_.tolist()
    assert one.model.n_rows_ == other.model.n_rows_ == 297
    rows = distinct(read(file)).take(list(range(60)))
    np.testing.assert_allclose(one.scores(rows).toarray(), other.scores(rows).toarray(), atol=1e-4)


@pytest.mark.parametrize("memory", [1 << 22, 1 << 30])
def test_words_do_not_depend_on_how_many_are_held(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: int
) -> None:
    monkeypatch.setattr(streaming, "TOKEN_BYTES", 1 << 14)
    text = TfIdf(letters=3, max_features=120)
    blocks = _blocks(file)
    streaming.count_texts(lambda: blocks, text, tmp_path / "texts", memory, "")
    expected = TfIdf(letters=3, max_features=120).fit(distinct(join(blocks)).texts or [])
    assert text.feature_names == expected.feature_names
    np.testing.assert_array_equal(text.to_state()[1]["idf"], expected.to_state()[1]["idf"])
    assert len(list((tmp_path / "texts").glob("words-0-*.txt"))) > (1 if memory == 1 << 22 else 0)


def _blocks(file: Path) -> list[Dataset]:
    from ripml.datasets import iter_blocks

    return list(iter_blocks(file))


class Interrupted(Exception):
    pass


def test_counting_goes_on_after_the_last_part(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "_PART", 6000)
    blocks, counted = _blocks(file), list[int]()
    original = TfIdf.add_texts

    def add_texts(self: TfIdf, texts: Any, counts: Any) -> None:
        counted.append(len(texts))
        if len(counted) == stop:
            raise Interrupted
        original(self, texts, counts)

    monkeypatch.setattr(TfIdf, "add_texts", add_texts)
    stop = 9
    with pytest.raises(Interrupted):
        streaming.count_texts(lambda: blocks, TfIdf(), tmp_path / "texts", 1 << 30, "a file")
    stop, before = -1, len(counted)
    again = TfIdf()
    found = streaming.count_texts(lambda: blocks, again, tmp_path / "texts", 1 << 30, "a file")
    assert before - 1 < before < len(counted) < before + len(blocks)
    assert again.feature_names == TfIdf().fit_blocks([distinct(join(blocks)).texts or []]).feature_names
    counted.clear()
    assert streaming.count_texts(lambda: [], TfIdf(), tmp_path / "texts", 1 << 30, "a file").n_rows == found.n_rows
    assert not counted


def test_counts_of_another_file_are_not_used(file: Path, tmp_path: Path) -> None:
    blocks = _blocks(file)
    streaming.count_texts(lambda: blocks, TfIdf(), tmp_path / "texts", 1 << 30, "a file")
    other = streaming.count_texts(lambda: blocks[:2], TfIdf(), tmp_path / "texts", 1 << 30, "another file")
    assert other.n_rows == sum(map(len, blocks[:2]))


def test_other_texts_than_those_of_the_run_before_are_refused(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "_PART", 1)
    blocks = _blocks(file)

    def some() -> Any:
        yield from blocks[:2]
        raise Interrupted

    with pytest.raises(Interrupted):
        streaming.count_texts(some, TfIdf(), tmp_path / "texts", 1 << 30, "")
    with pytest.raises(DataError, match="the texts here are not those given now; remove the folder"):
        streaming.count_texts(lambda: blocks[2:], TfIdf(), tmp_path / "texts", 1 << 30, "")


def test_features_that_need_all_texts_are_refused(file: Path, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="features of kind 'doc2vec' need all texts in memory; use 'tfidf'"):
        DocumentModel.fit_blocks(file, None, RIPML.linear(), tmp_path, 1 << 30, features="doc2vec")


def test_counts_of_runs_are_those_of_one_table(tmp_path: Path) -> None:
    one, other = Frequencies(), Frequencies()
    rng = np.random.default_rng(1)
    for number in range(4):
        tokens = rng.choice([*WORDS, "\udc80", "é"], 60, replace=False).tolist()
        df, totals = rng.integers(1, 9, (2, 60))
        one.add(tokens, df, totals)
        other.add(tokens, df, totals)
        other.write_run(tmp_path / f"{number}.txt")
        assert not len(other)
    assert list(one) == list(other)
    for n in (None, 10):
        assert one.most_frequent(n, 3, 20) == other.most_frequent(n, 3, 20)


def test_generated_texts_have_the_labels_of_their_source_and_repeat_no_more_than_they_may() -> None:
    texts = documents_given([row["text"] for row in documents()], [row["labels"] for row in documents()])
    n_labels = 2 * len(texts.label_names)
    found = list(generate_texts(texts, 900, n_labels, kept=0.5))
    assert found[:50] == list(generate_texts(texts, 50, n_labels, kept=0.5))
    assert found[:50] != list(generate_texts(texts, 50, n_labels, kept=0.5, random_state=1))
    names = {name for _, labels in found for name in labels}
    assert {name.partition("~")[0] for name in names} <= set(texts.label_names)
    assert len(texts.label_names) < len(names) <= n_labels
    real = [text.split() for text in texts.texts or []]
    for text, labels in found[:100]:
        words = [word.rstrip("b") for word in text.split()]
        assert labels
        assert max(len(set(words) & set(other)) / max(len(other), 1) for other in real) < 1


def test_a_source_without_texts_or_with_too_many_labels_is_refused() -> None:
    texts = documents_given(["Red tea"], [["tea"]])
    with pytest.raises(ParameterError, match="`n_labels` at least the 1 labels of the source"):
        next(generate_texts(texts, 3, 0))
    with pytest.raises(DataError, match="the documents has no labels"):
        next(generate_texts(documents_given(["Red tea"], [[]]), 3))


STAGES = ["work", "relevance", "X-changed", "searched", "moment", "ordered", "solution", "lists"]


@pytest.mark.parametrize("stage", ["words", "rows", *STAGES])
def test_a_run_that_was_killed_in_any_stage_gives_the_same_model(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    cg = ConjugateGradient(tol=0.01)
    model = RIPML(kernel=Local(0.5, 0.3, 20), solver=cg, ensemble="gaussian", n_dims=64, random_state=0)
    expected = streamed(file, clone(model), tmp_path / "whole").scores(read(file)).toarray()
    monkeypatch.setattr(streaming, "_PART", 6000)
    reached: list[str] = []

    def fails_after(owner: Any, name: str, step: Any) -> None:
        original = getattr(owner, name)

        def failing(self: Any, *args: Any) -> Any:
            result = original(self, *args)
            reached.append(step(*args))
            if reached[-1].startswith(stage) and len(reached) > 1:
                raise Interrupted
            return result

        monkeypatch.setattr(owner, name, failing)

    fails_after(DiskWorkspace, "save_checkpoint", lambda at, arrays: at[0])
    fails_after(RowFiles, "_commit", lambda journal: "rows")
    fails_after(streaming._Counting, "_write_part", lambda n_blocks, checksum: "words")
    with pytest.raises(Interrupted):
        streamed(file, clone(model), tmp_path / "work")
    before, stage = set(reached) - {"rows", "words"}, "none"
    reached.clear()
    again = streamed(file, clone(model), tmp_path / "work").scores(read(file)).toarray()
    np.testing.assert_array_equal(again, expected)
    assert not before & set(reached)


def run(capfd: pytest.CaptureFixture[str], *words: Any, code: int = 0) -> tuple[str, str]:
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    out, err = capfd.readouterr()
    assert stop.value.code == code, err
    return out, err


def test_what_a_fit_needs_is_said_before_it_starts(
    file: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _, err = run(capfd, "train", file, tmp_path / "model", "--memory", "1G")
    first = err.splitlines()[0]
    assert re.fullmatch(
        r"about [0-9]+ rows with up to [0-9,]+ features: up to 1 GB of memory, [0-9.]+ MB of disk, [0-9]+ seconds "
        r"on two cores",
        first,
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "texts.jsonl"]


def test_a_budget_that_is_too_small_is_refused_with_one_that_is_enough(
    file: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "_ROW", 1_000_000)
    _, err = run(capfd, "train", file, tmp_path / "model", "--memory", "50MB", code=2)
    assert re.search(r"--memory 50MB is too small for about 305 rows .* features; --memory 5[0-9]0MB would be", err)
    assert not (tmp_path / "model.work").exists()


@pytest.mark.parametrize("preset", [RIPML(), RIPML.linear(), RIPML.paper()])
def test_what_a_fit_needs_grows_with_its_sizes(preset: RIPML) -> None:
    sizes = budget.Sizes(100_000, 50_000, 20_000, 100.0, 1e8)
    least = budget.needs(preset.stages(), sizes)
    for name in ("n_rows", "n_labels", "row_length"):
        more = budget.needs(preset.stages(), replace(sizes, **{name: 3 * getattr(sizes, name)}))
        assert more.memory >= least.memory
        assert more.disk >= least.disk
        assert more.seconds >= least.seconds


def test_a_file_is_estimated_by_its_first_block(file: Path) -> None:
    data = distinct(read(file))
    found = DocumentModel.sizes_of_blocks(file, None, RIPML())
    assert 200 <= found.n_rows <= 400
    assert len(data.label_names) / 2 <= found.n_labels
    assert found.n_features >= 100


def test_names_of_a_vocabulary_are_evidence_as_in_memory(file: Path, tmp_path: Path) -> None:
    concepts = Concepts.of(
        [
            *(Concept(f"l{topic}", {"en": WORDS[12 * topic + 5]}, broader=("l0",)) for topic in range(8)),
            Concept("unseen", {"en": f"{WORDS[30]} {WORDS[31]}"}),
        ]
    )
    texts = distinct(read(file))
    whole = DocumentModel.fit(texts, None, RIPML(random_state=0), concepts=concepts)
    one = DocumentModel.fit_blocks(file, None, RIPML(random_state=0), tmp_path / "work", 1 << 24, concepts)
    assert one.model.classes_.tolist() == whole.model.classes_.tolist()
    assert "unseen" in one.model.classes_.tolist()
    rows = texts.take(list(range(80)))
    np.testing.assert_allclose(one.scores(rows).toarray(), whole.scores(rows).toarray(), atol=1e-4)
    names, other = one.model.model_.decoder.names, whole.model.model_.decoder.names
    for count in ("hits", "right"):
        np.testing.assert_array_equal(getattr(names, count), getattr(other, count))
    one.save(tmp_path / "model")
    again = DocumentModel.load(tmp_path / "model").scores(rows).toarray()
    np.testing.assert_array_equal(again, one.scores(rows).toarray())
