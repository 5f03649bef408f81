"""Labels that are probably wrong or missing: rows that are left out exactly, with their copies, and what is found."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from numpy.typing import NDArray
from worlds import blocks, planted

from ripml import RIPML, Store, Tagger
from ripml.base.errors import DataError, ParameterError
from ripml.cli import main
from ripml.datasets import documents_given
from ripml.labels.concepts import Concept, Concepts
from ripml.model.audit import Audit
from ripml.model.left_out import ENOUGH_ROWS, leave_out_rows
from ripml.regression.kernels import RBF

KINDS: dict[str, dict[str, Any]] = {
    "rbf": {"kernel": "rbf"},
    "rbf, sketch": {"kernel": "rbf", "ensemble": "gaussian", "n_dims": 64},
    "local, primal": {"kernel": "local"},
    "local, dual": {"kernel": "local", "solver": "dual"},
    "clusters": {"kernel": "rbf", "n_clusters": 2},
}
WORDS = {
    "fruit": ["apple", "pear", "plum", "cherry", "grape", "peach", "melon", "quince"],
    "weather": ["rain", "snow", "wind", "storm", "cloud", "sleet", "thunder", "drizzle"],
    "music": ["violin", "piano", "sonata", "opera", "choir", "drum", "melody", "flute"],
}


@pytest.fixture(params=KINDS)
def model(request: pytest.FixtureRequest) -> tuple[RIPML, NDArray[Any], Any]:
    """A model without trees, whose scores are exact, with its rows: the last four are copies of the first two."""
    world = blocks(rows=12)
    X = np.concatenate([world.X, world.X[[0, 1, 0, 0]]])
    Y = scipy.sparse.vstack([world.Y, world.Y[[1, 1, 20, 0]]], format="csr")
    return RIPML(random_state=0, relevance=0, normalize=True, **KINDS[request.param]).fit(X, Y), X, Y


def documents(n: int = 40, seed: int = 0) -> tuple[list[str], list[list[str]]]:
    """Texts of one topic each, of which the first of each two topics has the label of the other one instead."""
    rng = np.random.default_rng(seed)
    texts, tags = [], []
    for topic, words in WORDS.items():
        for _ in range(n):
            texts.append(
                " ".join(rng.choice([word + end for word in words for end in ("", "ly", "ish")], 9, replace=False))
            )
            tags.append([topic])
    tags[0], tags[n] = ["weather"], ["fruit"]
    return texts, tags


def named(found: Audit) -> dict[str, set[tuple[Any, Any]]]:
    """The documents and labels of findings of each kind."""
    return {kind: {(one.document, one.label) for one in getattr(found, kind)} for kind in ("wrong", "missing")}


def test_a_row_left_out_gets_the_scores_of_a_model_that_forgot_it_and_its_copies(model: Any) -> None:
    fitted, X, Y = model
    left_out = leave_out_rows(fitted.model_)
    n = len(X)
    assert left_out.numbers.tolist() == list(range(n))
    assert (left_out.Y != Y).nnz == 0
    for row in (0, 1, 2, 17, n - 1):
        copies = np.flatnonzero((X[row] == X).all(axis=1))
        assert len(np.unique(left_out.group[copies])) == 1
        other = RIPML().set_params(**fitted.get_params())
        other.__dict__.update(fitted.__copy__().__dict__)
        other.forget(X[copies], Y[copies])
        expected = other.decision_function(X[row : row + 1]).toarray()[0]
        np.testing.assert_allclose(left_out.scores[[row]].toarray()[0], expected, atol=2e-3)


def test_quick_scores_name_the_rows_that_all_signals_then_score(monkeypatch: pytest.MonkeyPatch) -> None:
    world = planted(n=400)
    Y = world.Y.toarray()
    removed = [(row, int(np.flatnonzero(Y[row])[0])) for row in range(0, 400, 40) if Y[row].sum() > 1]
    for row, label in removed:
        Y[row, label] = 0
    X = np.concatenate([world.X, world.X[:2]])
    added = [(row, int(np.flatnonzero(Y[row] == 0)[0])) for row in range(20, 400, 40)]
    for row, label in added:
        Y[row, label] = 1
    fitted = RIPML(random_state=0, kernel="local").fit(X, np.concatenate([Y, Y[[1, 0]]]))
    whole, found = leave_out_rows(fitted.model_), fitted.audit(limit=8)
    rows = np.array([401, 7, 0, 401, 30])
    expected = whole.scores[rows].toarray()
    np.testing.assert_allclose(whole.scored(fitted.model_, rows, None).toarray(), expected, atol=1e-5)
    monkeypatch.setattr("ripml.model.left_out._FEW", 0)
    quick = leave_out_rows(fitted.model_, quick=True)
    assert quick.quick
    np.testing.assert_array_equal(quick.embeddings, whole.embeddings)
    assert (abs(quick.scores - whole.scores) > 0.01).nnz
    again = fitted.audit(limit=8)
    assert named(again)["missing"] == named(found)["missing"]
    assert named(again)["missing"] & set(removed)
    assert len(named(again)["wrong"] & set(added)) >= 6


def test_the_labels_of_a_row_do_not_change_its_own_scores(model: Any) -> None:
    fitted, X, Y = model
    for row, other in ((0, 40), (30, 3)):
        before = leave_out_rows(fitted.model_).scores[[row]].toarray()
        fitted.relabel(X[[row]], Y[[row]], Y[[other]], rows=[row])
        np.testing.assert_allclose(leave_out_rows(fitted.model_).scores[[row]].toarray(), before, atol=2e-3)


def test_labels_that_were_changed_are_found() -> None:
    world = planted(n=400)
    Y = world.Y.toarray()
    rng = np.random.default_rng(1)
    rows = rng.choice(400, 16, replace=False)
    removed, wrong = set(), set()
    for row in rows[:8]:
        label = int(rng.choice(np.flatnonzero(Y[row])))
        if Y[row].sum() > 1:
            Y[row, label] = 0
            removed.add((int(row), label))
    for row in rows[8:]:
        label = int(rng.choice(np.flatnonzero(Y[row] == 0)))
        Y[row, label] = 1
        wrong.add((int(row), label))
    found = RIPML(random_state=0).fit(world.X, Y).audit(limit=8)
    assert named(found)["wrong"] == wrong
    assert removed <= named(found)["missing"]
    assert (found.n_rows, found.n_labels, found.n_copies) == (400, Y.sum(), 0)
    first = found.missing[0]
    assert first.probability > 0.9
    assert all(Y[row, first.label] for row, _ in first.carriers)
    assert not any(Y[row, first.label] for row, _ in first.others)


def test_copies_do_not_speak_for_each_other() -> None:
    world = blocks(rows=30)
    Y = world.Y.toarray()
    X = np.concatenate([world.X, world.X[:1]])
    Y = np.concatenate([Y, Y[:1]])
    Y[[0, -1]] = 0
    Y[[0, -1], 6] = 1  # a label of the last block, for two equal rows of the first
    found = RIPML(random_state=0, kernel="rbf").fit(X, Y).audit(limit=2)
    assert found.n_copies == 2
    assert named(found)["wrong"] == {(0, 6), (120, 6)}


def test_forgotten_rows_are_not_audited() -> None:
    world = blocks(rows=30)
    fitted = RIPML(random_state=0).fit(world.X, world.Y).forget(world.X[:5], world.Y[:5])
    found = fitted.audit(limit=500)
    assert found.n_rows == 115
    assert min(one.document for one in (*found.wrong, *found.missing)) == 5


def test_models_that_keep_no_rows_say_so() -> None:
    world = blocks()
    with pytest.raises(ParameterError, match="keeps no training rows"):
        RIPML.linear(random_state=0).fit(world.X, world.Y).audit()
    with pytest.raises(ParameterError, match="keeps no training rows"):
        RIPML.paper(n_dims=8, n_neighbors=1).fit(world.X, world.Y).audit()


def test_a_tagger_names_the_places_of_texts_as_they_are_given() -> None:
    texts, tags = documents()
    tagger = Tagger().fit(texts[::-1], tags[::-1])
    found = tagger.audit(texts, limit=2)
    assert named(found)["wrong"] == {(0, "weather"), (40, "fruit")}
    assert {(0, "fruit"), (40, "weather")} == named(found)["missing"]
    tagger.forget(texts[:1])
    assert (40, "fruit") in named(tagger.audit(texts, limit=1))["wrong"]
    with pytest.raises(DataError, match="2 of 119 texts that were learnt are not among the documents"):
        tagger.audit(texts[:-2])


def test_stores_and_models_are_audited_by_the_shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts, tags = documents()
    data, ids = tmp_path / "data.jsonl", [f"d{i}" for i in range(len(texts))]
    rows = [{"id": id, "text": text, "labels": some} for id, text, some in zip(ids, texts, tags, strict=True)]
    data.write_text("\n".join(map(json.dumps, rows)))
    run(["train", str(data), str(tmp_path / "store"), "--store"])
    run(["train", str(data), str(tmp_path / "model")])
    capsys.readouterr()

    run(["audit", str(tmp_path / "store"), "--limit", "2", "--json"])
    of_store = json.loads(capsys.readouterr().out)
    assert [(one["document"], one["label"]) for one in of_store["wrong"]] in (
        [("d0", "weather"), ("d40", "fruit")],
        [("d40", "fruit"), ("d0", "weather")],
    )
    with Store.open(tmp_path / "store", readonly=True) as store:
        assert store.audit(2).to_json() == json.loads(json.dumps(of_store), parse_float=float)
    run(["audit", str(tmp_path / "model"), str(data), "--limit", "2", "--json"])
    of_model = json.loads(capsys.readouterr().out)
    assert {one["document"] for one in of_model["wrong"]} == {"d0", "d40"}

    run(["audit", str(tmp_path / "store"), "--limit", "2", "--csv", "-"])
    table = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [line["kind"] for line in table] == ["wrong", "wrong", "missing", "missing"]
    run(["audit", str(tmp_path / "store"), "--limit", "1"])
    assert "Probably missing" in capsys.readouterr().out

    rows[3]["labels"] = ["music"]
    data.write_text("\n".join(map(json.dumps, rows)))
    run(["audit", str(tmp_path / "model"), str(data)], 2)
    assert "other rows or labels than the model was trained on" in capsys.readouterr().err
    run(["audit", str(tmp_path / "model")], 2)
    assert "give DATA, the data that it was trained on" in capsys.readouterr().err


def run(arguments: list[str], code: int = 0) -> None:
    """Run a command line that ends with this code."""
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == code


def test_quality_counts_what_left_out_rows_show() -> None:
    world = blocks(rows=30)
    fitted = RIPML(random_state=0, kernel="rbf").fit(world.X, world.names)
    found = fitted.quality(limit=4, n_examples=2)
    left_out, Y = leave_out_rows(fitted.model_), world.Y.toarray() > 0
    predicted = left_out.scores.toarray() >= fitted.threshold_
    assert found.micro_precision == round((predicted & Y).sum() / predicted.sum(), 4)
    assert found.micro_recall == round((predicted & Y).sum() / Y.sum(), 4)
    assert [label.rows for label in found.labels] == sorted(Y.sum(axis=0), reverse=True)[:4]
    assert sum(band.pairs for band in found.bands) == Y.sum()
    assert found.micro_recall is not None
    assert found.recall_with_twice is not None
    assert found.micro_recall <= found.recall_with_twice <= 1
    for label in found.labels:
        column = fitted.classes_.tolist().index(label.label)
        true, said, scores = Y[:, column], predicted[:, column], left_out.scores.toarray()[:, column]
        assert (label.predicted, label.recall) == (said.sum(), round((true & said).sum() / true.sum(), 4))
        assert scores[label.missed[0]] == scores[true].min()
        assert scores[label.mistaken[0]] == scores[~true].max()


def test_labels_that_belong_together_are_named() -> None:
    world = blocks(rows=30)
    Y = world.Y.toarray()
    both = Y[:, 0] + Y[:, 1] > 0
    Y = np.column_stack([Y, both, Y[:, 2]])  # a broader label, and one that is another one again
    pairs = {(pair.kind, pair.label, pair.other) for pair in RIPML(random_state=0).fit(world.X, Y).quality().pairs}
    assert {("subsumed", 0, 8), ("subsumed", 1, 8), ("same", 2, 9)} <= pairs
    assert not any(kind == "same" and label != 2 for kind, label, _ in pairs)


def test_stores_and_models_are_reported_by_the_shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts, tags = documents(40)
    rows = [
        {"id": f"d{i}", "text": text, "labels": some} for i, (text, some) in enumerate(zip(texts, tags, strict=True))
    ]
    (tmp_path / "data.jsonl").write_text("\n".join(map(json.dumps, rows)))
    run(["train", str(tmp_path / "data.jsonl"), str(tmp_path / "store"), "--store"])
    capsys.readouterr()
    run(["report", str(tmp_path / "store"), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["rows"] == 120
    assert {"d0", "d40"} <= {id for label in found["labels"] for id in label["missed"]}
    run(["report", str(tmp_path / "store")])
    printed = capsys.readouterr().out
    assert "By label frequency" in printed
    weather = next(label for label in found["labels"] if label["label"] == "weather")
    assert f"missed in: {', '.join(weather['missed'])}" in printed


def test_too_few_rows_to_measure_are_said_to_be_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts, tags = documents(40)
    for n, measured in ((7, False), (ENOUGH_ROWS - 1, False), (ENOUGH_ROWS, True)):
        folder = tmp_path / str(n)
        some = np.random.default_rng(0).permutation(120)[:n]
        data = documents_given([texts[i] for i in some], [tags[i] for i in some])
        with Store.create(folder, replace(data, ids=[f"d{i}" for i in range(n)]), RIPML(random_state=0)) as store:
            found = store.quality()
            assert bool(store.model.left_out_precision) == measured
        assert found.rows == n
        assert (found.precision is not None, found.micro_f1 is not None) == (measured, measured)
        assert (bool(found.bands), bool(found.labels)) == (measured, measured)
        run(["report", str(folder)])
        printed = capsys.readouterr().out
        run(["inspect", str(folder)])
        sentence = "too few rows to measure"
        assert (sentence not in printed, sentence not in capsys.readouterr().out) == (measured, measured)
        assert ("P@1" in printed) == measured
        run(["report", str(folder), "--json"])
        assert (json.loads(capsys.readouterr().out)["precision"] is not None) == measured


def test_of_too_few_rows_no_label_is_doubted_but_copies_are_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts, tags = documents(40)
    some = [0, 40, *range(1, 40), *range(41, 120)]
    for n, enough in ((7, False), (ENOUGH_ROWS - 2, False), (ENOUGH_ROWS - 1, True)):
        folder = tmp_path / str(n)
        data = documents_given([*(texts[i] for i in some[:n]), texts[2]], [*(tags[i] for i in some[:n]), ["music"]])
        data = replace(data, ids=[f"d{i}" for i in range(n + 1)])
        with Store.create(folder, data, RIPML(random_state=0)) as store:
            assert store.audit().enough == enough
            offered = [one.id for one in store.review(100, labelled=True)]
        run(["audit", str(folder)])
        printed = capsys.readouterr().out
        assert ("too few to audit: fewer than 100 show mostly chance" in printed) != enough
        assert ("Probably" in printed, "doubt" in printed) == (enough, enough)
        assert "└── d3, d" in printed
        run(["audit", str(folder), "--json"])
        found = json.loads(capsys.readouterr().out)
        assert (found["wrong_share"] is None, found["missing_share"] is None) == (not enough, not enough)
        listed = {one["document"] for kind in ("wrong", "missing") for one in found[kind]}
        assert bool(listed) == enough
        assert set(offered) == listed
        assert found["conflicts"] == [{"documents": ["d3", f"d{n}"], "labels": ["fruit", "music"]}]


def test_findings_that_say_nothing_are_not_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts, tags = documents()
    tags[0], tags[40] = ["fruit"], ["weather"]
    data = replace(documents_given(texts, tags), ids=[f"d{i}" for i in range(len(texts))])
    with Store.create(tmp_path / "store", data, RIPML(random_state=0)) as store:
        assert store.audit().wrong  # the library ranks all labels
        assert store.review(100, labelled=True) == []
    run(["audit", str(tmp_path / "store")])
    assert "Probably wrong: none\nProbably missing: none\n" in capsys.readouterr().out
    run(["audit", str(tmp_path / "store"), "--csv", "-"])
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_equal_documents_with_different_labels_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts, tags = documents(20)
    data = replace(documents_given([*texts, texts[5]], [*tags, ["music"]]), ids=[f"d{i}" for i in range(61)])
    Store.create(tmp_path / "store", data, RIPML(random_state=0)).close()
    run(["audit", str(tmp_path / "store"), "--limit", "1"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == ["└── d5, d60", "    └── of some: fruit, music"]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store of documents of three topics, two of which have a wrong label."""
    texts, tags = documents()
    data = replace(documents_given(texts, tags), ids=[f"d{i}" for i in range(len(texts))])
    with Store.create(tmp_path / "store", data, RIPML(random_state=0)) as store:
        yield store


def test_accepted_findings_change_the_store_and_can_be_taken_back(store: Store) -> None:
    found = store.audit(limit=2)
    assert named(found)["wrong"] == {("d0", "weather"), ("d40", "fruit")}
    assert named(found)["missing"] == {("d0", "fruit"), ("d40", "weather")}
    text, version = store.document("d0")["text"], store.version
    before = store.model.model.decision_function(store.model.features_of([text])).toarray()
    store.accept([*found.wrong, *found.missing], actor="ana")
    assert (store.document("d0")["labels"], store.document("d40")["labels"]) == (["fruit"], ["weather"])
    assert store.version == version + 2
    assert [(change["kind"], change["actor"]) for change in store.history(2)] == 2 * [("relabel", "ana")]
    assert ("d0", "fruit") not in named(store.audit(limit=2))["missing"]
    store.undo([*found.wrong, *found.missing])
    assert (store.document("d0")["labels"], store.document("d40")["labels"]) == (["weather"], ["fruit"])
    after = store.model.model.decision_function(store.model.features_of([text])).toarray()
    np.testing.assert_allclose(after, before, atol=1e-3)


def test_dismissed_findings_return_when_their_document_changes(store: Store) -> None:
    found = store.audit(limit=1)
    store.dismiss(found.wrong)
    shown = store.audit(limit=1)
    assert named(shown)["wrong"].isdisjoint(named(found)["wrong"])
    assert len(shown.wrong) == 1
    store.dismiss(shown.wrong)
    assert named(store.audit(limit=2))["wrong"].isdisjoint(named(found)["wrong"] | named(shown)["wrong"])
    store.undo(shown.wrong)
    assert shown.wrong[0].document in {one.document for one in store.audit(limit=1).wrong}
    id = str(found.wrong[0].document)
    store.relabel(id, [*store.document(id)["labels"], "music"])
    again = store.audit(limit=5)
    assert named(found)["wrong"] <= named(again)["wrong"]
    assert store.check().ok


def test_findings_that_cannot_be_accepted_change_nothing(store: Store) -> None:
    good = {"kind": "missing", "document": "d0", "label": "fruit"}
    with pytest.raises(DataError, match="there is no document 'x'"):
        store.accept([good, {"kind": "wrong", "document": "x", "label": "fruit"}])
    with pytest.raises(DataError, match="'wrong' or 'missing'; got 'odd'"):
        store.dismiss([{**good, "kind": "odd"}])
    with pytest.raises(DataError, match="'label' is missing"):
        store.undo([{"kind": "wrong", "document": "d0"}])
    with pytest.raises(DataError, match="there is no label 'soup'"):
        store.accept([good, {"kind": "wrong", "document": "d0", "label": "soup"}])
    assert store.document("d0")["labels"] == ["weather"]


def test_the_shell_accepts_dismisses_and_takes_back_a_table(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, table = str(tmp_path / "store"), str(tmp_path / "doubts.csv")
    store.close()
    run(["audit", folder, "--limit", "2", "--csv", table])
    run(["audit", folder, "--accept", table, "--json"])
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == {"accepted": 4}
    with Store.open(folder, readonly=True) as opened:
        assert opened.document("d40")["labels"] == ["weather"]
    run(["audit", folder, "--undo", table])
    run(["audit", folder, "--dismiss", table])
    capsys.readouterr()
    run(["audit", folder, "--limit", "1", "--json"])
    assert json.loads(capsys.readouterr().out)["wrong"] == []  # the next one says nothing
    run(["audit", folder, "--accept", table, "--dismiss", table], 2)
    assert "one of --accept, --dismiss and --undo" in capsys.readouterr().err


def test_similar_documents_are_as_similar_as_the_kernel_says() -> None:
    X = np.random.default_rng(0).random((60, 5))
    Y = [["a"] if row[0] > 0.5 else ["b"] for row in X]
    model = RIPML(random_state=0, kernel=RBF(0.5), normalize=False).fit(X, Y)
    finding = model.audit(limit=1).missing[0]
    for document, similarity in finding.carriers + finding.others:
        apart = X[int(document)] - X[int(finding.document)]
        assert similarity == pytest.approx(np.exp(-0.5 * (apart**2).sum()), abs=1e-3)


def dated_documents() -> tuple[list[str], list[list[str]]]:
    """Texts of which two are those of others but for a date or a heading, one of them with another label."""
    texts, tags = documents()
    long = " ".join(texts[5:13])  # words that one text alone has are not among its features
    copies = [f"rain in May {long}", f"snow in June {long}", f"{long} melody", " ".join(texts[85:93])]
    return [*texts, *copies], [*tags, ["fruit"], ["music", "fruit"], ["fruit"], ["music"]]


def test_nearly_equal_texts_with_different_labels_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts, tags = dated_documents()
    (near,) = Tagger().fit(texts, tags).audit(texts, limit=5).near_copies
    assert (near.documents, near.only) == ((120, 121), ((), ("music",)))
    words = [text.split() for text in (texts[120], texts[121])]
    a, b = (set(pairwise(some)) for some in words)
    assert near.similarity == round(len(a & b) / len(a | b), 4)

    data = replace(documents_given(texts, tags), ids=[f"d{i}" for i in range(len(texts))])
    with Store.create(tmp_path / "store", data, RIPML(random_state=0)) as store:
        (found,) = store.audit(limit=5).near_copies
        assert (found.documents, found.only) == (("d120", "d121"), near.only)
        store.relabel("d121", ["fruit"])
        assert store.audit(limit=5).near_copies == []
        store.relabel("d121", ["music"])
    run(["audit", str(tmp_path / "store"), "--json"])
    shown = json.loads(capsys.readouterr().out)["near_copies"]
    assert shown == [{"documents": ["d120", "d121"], "similarity": near.similarity, "only": [["fruit"], ["music"]]}]
    run(["audit", str(tmp_path / "store"), "--limit", "1"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == ["    ├── only of d120: fruit", "    └── only of d121: music"]


def test_copies_are_conflicts_and_not_near_copies(tmp_path: Path) -> None:
    texts, tags = documents()
    texts, tags = [*texts, " ".join(texts[:8]), " ".join(texts[:8])], [*tags, ["fruit"], ["music"]]
    data = replace(documents_given(texts, tags), ids=[f"d{i}" for i in range(len(texts))])
    with Store.create(tmp_path / "store", data, RIPML(random_state=0)) as store:
        found = store.audit(limit=5)
    assert found.near_copies == []
    assert [one.documents for one in found.conflicts] == [("d120", "d121")]


def test_equal_documents_with_different_labels_are_named(model: Any) -> None:
    fitted, _, Y = model
    n = Y.shape[0]
    labels = fitted.classes_[np.flatnonzero((Y[[0, n - 4, n - 2, n - 1]].toarray() > 0).sum(axis=0) % 4 > 0)]
    (conflict,) = [one for one in fitted.audit(limit=1000).conflicts if 0 in one.documents]
    assert conflict.documents == (0, n - 4, n - 2, n - 1)
    assert set(conflict.labels) == set(labels.tolist())


def test_labels_whose_names_are_alike_are_named() -> None:
    world = blocks(rows=30)
    names = [["Queries" if name.endswith("0") else name for name in names] for names in world.names]
    names[0], names[1] = [*names[0], "query"], ["query"]
    (pair,) = [one for one in RIPML(random_state=0).fit(world.X, names).quality().pairs if one.kind == "alike"]
    assert (pair.label, pair.other, pair.rows) == ("query", "Queries", 2)
    assert pair.together == ("Queries" in names[0])


def test_models_that_read_names_of_labels_are_audited_with_their_texts(tmp_path: Path) -> None:
    texts, tags = documents(110)
    for row in range(1, len(texts), 3):
        texts[row] += f" about {tags[row][0]}"
    vocabulary = Concepts.of([Concept(name, {"en": name}) for name in WORDS])
    tagger = Tagger(model=RIPML(random_state=0), vocabulary=vocabulary).fit(texts, tags)
    assert tagger.documents_.model.model_.decoder.names is not None
    assert {(0, "weather"), (110, "fruit")} <= named(tagger.audit(texts, limit=4))["wrong"]
    with pytest.raises(ParameterError, match="reads the names of labels in texts"):
        tagger.documents_.model.audit()
    data = replace(documents_given([*texts, texts[5]], [*tags, tags[5]]), ids=[f"d{i}" for i in range(331)])
    with Store.create(tmp_path / "store", data, RIPML(random_state=0), vocabulary=vocabulary) as store:
        found = store.audit(limit=4)
        assert {("d0", "weather"), ("d110", "fruit")} <= named(found)["wrong"]
        assert found.n_copies == 2
        assert store.quality().rows == 331
