"""Every way to the same change gives the same model: the writer's, a reader's, and a store's that was killed."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from store_writer import LABELS, WORDS, example, settings
from test_store import assert_is_that_of_its_documents, crash_image

from ripml.base.errors import DataError, ParameterError
from ripml.datasets import Dataset
from ripml.model.estimator import RIPML
from ripml.store import Store
from ripml.store import store as store_module
from ripml.store.journal import all_documents
from ripml.store.recipe import fit_documents
from ripml.tagging.documents import DocumentModel
from ripml.tagging.tagger import Tagger
from ripml.text import Doc2Vec, TfIdf

QUERIES = 8


class HashedWords:
    """An encoder whose vectors depend a little on chance, as those of a GPU do on the batch; in 12 dimensions."""

    def __init__(self, noise: float = 0.0) -> None:
        self.noise, self.rng = noise, np.random.default_rng(0)

    def encode(self, texts: list[str]) -> Any:
        rows = np.zeros((len(texts), 12), np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word in text.split():
                row[int(word.removeprefix("word")) % 12] += 1
        return rows + self.noise * self.rng.standard_normal(rows.shape)


MODELS = {
    "default": RIPML(n_jobs=1, random_state=0),
    "linear": RIPML.linear(n_jobs=1, random_state=0),
    "paper": settings(),
    "clusters": settings().set_params(n_clusters=2),
    "deterministic": settings().set_params(ensemble="deterministic", n_dims=31),
    "identity": RIPML.linear(n_jobs=1, random_state=0, ensemble="identity"),
}
# Pairwise: every kind of features meets a model that keeps rows and one that keeps sums.
PAIRS = [
    ("default", "tfidf"), ("default", "doc2vec"), ("default", "encoder"),
    ("linear", "doc2vec"), ("linear", "encoder"), ("linear", "features"),
    ("paper", "tfidf"), ("paper", "doc2vec"),
    ("clusters", "encoder"), ("clusters", "features"),
    ("deterministic", "tfidf"), ("deterministic", "features"),
    ("identity", "doc2vec"), ("identity", "tfidf"),
]  # fmt: skip


def maker(features: str) -> Any:
    """What turns the texts of a store into features."""
    if features == "doc2vec":
        pytest.importorskip("gensim", reason="doc2vec needs gensim")
        return Doc2Vec(n_dims=8, min_count=1, epochs=3)
    return HashedWords(noise=0.05) if features == "encoder" else TfIdf(letters=0)


def row(features: str, text: str) -> dict[str, Any]:
    """A document's body in JSON."""
    if features != "features":
        return {"text": text}
    return {"features": HashedWords().encode([text])[0].tolist()}


def created(folder: Path, model: str, features: str) -> Store:
    data = example(24)
    if features == "features":
        data = Dataset(
            X=csr_array(HashedWords().encode(data.texts or [])), Y=data.Y, label_names=data.label_names, name="rows"
        )
    return Store.create(folder, data, MODELS[model], features=maker(features))


def answers(store: Store, X: Any) -> dict[str, Any]:
    """Names, columns of Phi and scores of a store's model."""
    model = store.model.model
    assert isinstance(model, RIPML)
    keys = model.vocabulary_.slots if model.model_.has_fixed_columns else model.vocabulary_.keys
    order = np.argsort(model.classes_.astype(str))
    return {
        "names": model.classes_[order].tolist(),
        "keys": keys[order].tolist(),
        "retired": model.vocabulary_.retired[order].tolist(),
        "scores": model.decision_function(X).toarray()[:, order],
    }


def assert_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    for part in ("names", "keys", "retired"):
        assert found[part] == expected[part]
    np.testing.assert_allclose(found["scores"], expected["scores"], atol=1e-4)


def steps(rng: random.Random, features: str) -> Iterator[Any]:
    """Changes of a store, endlessly: one of each kind in random order, and then again."""

    def text() -> str:
        return " ".join(rng.choices(WORDS, k=6))

    def two(store: Store) -> list[str]:
        return rng.sample([label.name for label in store.labels(n=100)], 2)

    def learn(store: Store) -> None:
        labels = [*rng.sample(LABELS, 1), *(f"new {number}" for number in rng.sample(range(5), 2))]
        store.learn([{**row(features, text()), "labels": labels}, {**row(features, text()), "labels": labels[1:]}])

    def change_text(store: Store) -> None:
        store.learn([{"id": rng.choice(store.ids()), **row(features, text()), "labels": [f"new {rng.randrange(5)}"]}])

    def forget(store: Store) -> None:
        store.forget(rng.sample(store.ids(), 2))

    def relabel(store: Store) -> None:
        store.relabel({id: [f"new {rng.randrange(5)}"] for id in rng.sample(store.ids(), 2)})

    def rename(store: Store) -> None:
        store.rename_label(two(store)[0], f"renamed {rng.random()}")

    def swap(store: Store) -> None:
        one, other = two(store)
        for old, new in ((one, "\ue000 1"), (other, one), ("\ue000 1", other)):
            store.rename_label(old, new)

    def merge(store: Store) -> None:
        one, other = two(store)
        store.merge_labels([one], other)

    def merge_new(store: Store) -> None:
        store.add_labels(["first", "second", "third"])
        store.relabel({id: ["first", "second"] for id in rng.sample(store.ids(), 2)})
        store.merge_labels(["first"], "second")
        store.merge_labels(["second"], "third")
        store.rename_label("third", f"merged {rng.random()}")

    def retire(store: Store) -> None:
        store.retire_label(two(store)[0])

    def reuse(store: Store) -> None:
        one, other = two(store)
        store.merge_labels([one], other)
        store.learn([{**row(features, text()), "labels": [one, other]}])

    def undo_merge(store: Store) -> None:
        one, other = two(store)
        store.merge_labels([one], other)
        merged = store.version
        if rng.random() < 0.5:
            learn(store)
        if rng.random() < 0.5:
            store.snapshot()
        with suppress(DataError):  # `learn` can have brought a label of that name
            store.undo_labels(merged)

    def undo_others(store: Store) -> None:
        store.rename_label(two(store)[0], f"renamed {rng.random()}")
        store.undo_labels(store.version)
        store.add_labels([f"added {rng.random()}"])
        store.undo_labels(store.version)

    kinds = [learn, change_text, forget, relabel, rename, swap, merge, merge_new, retire, reuse]
    kinds += [undo_merge, undo_others]
    while True:
        yield from rng.sample(kinds, len(kinds))


@pytest.mark.parametrize(("model", "features"), PAIRS)
def test_writer_reader_and_a_store_that_was_killed_agree_after_every_change(
    tmp_path: Path, model: str, features: str
) -> None:
    folder, rng = tmp_path / "store", random.Random(f"{model} {features}")
    encoder = HashedWords(noise=0.05) if features == "encoder" else None
    with created(folder, model, features) as store:
        X = store.model.features(store._bodies.to_dataset(store._database.read(_states)[:QUERIES]))
        with Store.open(folder, readonly=True, encoder=encoder) as reader:
            late = Store.open(folder, readonly=True, encoder=encoder)  # follows once, at the end
            for number, step in zip(range(12), steps(rng, features), strict=False):
                step(store)
                expected = answers(store, X)
                if number % 3 < 2:  # sometimes two changes at once
                    reader.refresh()
                    assert_same(answers(reader, X), expected)
                if number % 4 == 3:
                    image = crash_image(folder)
                    with Store.open(image, encoder=encoder) as again:
                        assert_same(answers(again, X), expected)
                        assert_is_that_of_its_documents(again, 1e-4)
                    shutil.rmtree(image)
                if number == 5:
                    store.snapshot()
            late.refresh()
            assert_same(answers(late, X), answers(store, X))
            late.close()
        assert_is_that_of_its_documents(store, 1e-4)


def _states(connection: Any) -> Any:
    return [state for _, state in all_documents(connection)]


def test_a_new_label_merged_into_another_new_one_leaves_columns_that_do_not_depend_on_the_path(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    with created(folder, "deterministic", "tfidf") as store, Store.open(folder, readonly=True) as reader:
        store.learn([{"text": "word1 word2", "labels": ["one"]}, {"text": "word3", "labels": ["two", LABELS[0]]}])
        store.merge_labels(["one"], "two")
        slots = dict(zip(store.model.model.classes_, store.model.model.vocabulary_.slots.tolist(), strict=True))
        reader.refresh()
        image = crash_image(folder)
        with Store.open(image) as again:
            for other in (reader, again):
                model = other.model.model
                assert dict(zip(model.classes_, model.vocabulary_.slots.tolist(), strict=True)) == slots


@pytest.mark.parametrize("name", ["\ue000 1", "\ue000 2", ""])
def test_any_name_survives_an_exchange_of_names_and_a_kill(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "store"
    with Store.create(folder, example(), settings()) as store:
        store.rename_label(LABELS[5], name)
        store.snapshot()
        for old, new in ((LABELS[0], "aside"), (LABELS[1], LABELS[0]), ("aside", LABELS[1])):
            store.rename_label(old, new)
        store.merge_labels([LABELS[2]], LABELS[3])
        store.learn([{"text": "word1 word2", "labels": [LABELS[2], name]}])
        expected = answers(store, store.model.features(example(QUERIES, seed=1)))
        image = crash_image(folder)
        with Store.open(image) as again:
            assert_same(answers(again, again.model.features(example(QUERIES, seed=1))), expected)


# ----------------------------------------------------------------------------------- features that are not of the text


@pytest.mark.parametrize("model", ["default", "linear", "paper"])
def test_documents_that_doc2vec_was_fitted_on_can_be_forgotten_relabelled_and_replaced(
    tmp_path: Path, model: str
) -> None:
    folder = tmp_path / "store"
    with created(folder, model, "doc2vec") as store:
        for number in range(0, 12, 3):
            store.forget([str(number)])
            store.relabel(str(number + 1), [LABELS[0]])
            store.learn([{"id": str(number + 2), "text": "word1 word2 word3", "labels": [LABELS[1]]}])
        assert_is_that_of_its_documents(store, 1e-4)
        with Store.open(crash_image(folder)) as again:
            assert_is_that_of_its_documents(again, 1e-4)


def early_doc2vec(folder: Path, model: str, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store as an early version made it, which learnt the vectors that doc2vec had trained."""

    def fit_early(*arguments: Any) -> Any:
        fitted, vectors = fit_documents(*arguments)
        return replace(fitted, repeatable=False), vectors

    with monkeypatch.context() as early:
        early.setattr(Doc2Vec, "learn", lambda text, texts, vectors=None: text.fit_transform(texts))
        early.setattr(store_module, "fit_documents", fit_early)
        early.setattr(Store, "_is_outdated", lambda *_: False)
        return created(folder, model, "doc2vec")


@pytest.mark.parametrize("changed", [False, True])
def test_an_early_store_with_doc2vec_is_fitted_again_when_it_is_opened_for_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: bool
) -> None:
    folder = tmp_path / "store"
    store = early_doc2vec(folder, "linear", monkeypatch)
    before = store.model.suggest(["word1 word2 word3"])
    if changed:
        store.learn([{"text": "word1", "labels": ["new"]}])
        with monkeypatch.context() as early:  # where sums were kept, a forgotten document was acknowledged
            early.setattr(Store, "_is_outdated", lambda *_: False)
            early.setattr(store._version.__class__, "advanced", lambda self, delta: replace(self, change=delta.change))
            store.forget(["0", "1"])
            store.rename_label(LABELS[0], "renamed")
    image = crash_image(folder)
    store.close()
    with Store.open(image, readonly=True) as reader:
        assert len(reader) == (23 if changed else 24)
        if changed:
            assert_is_that_of_its_documents(reader, 1e-4)
        else:
            assert reader.model.suggest(["word1 word2 word3"]) == before
        with pytest.warns(RuntimeWarning, match="earlier version of ripml; the model was fitted again on 2"):
            again = Store.open(image)
        with again:
            assert again.history(1)[0]["kind"] == "refit"
            again.forget(["2"])
            assert_is_that_of_its_documents(again, 1e-4)
            reader.refresh()
            assert len(reader) == reader.model.model.n_rows_ == len(again)
    with Store.open(image) as settled:
        assert_is_that_of_its_documents(settled, 1e-4)


def test_an_early_tagger_with_doc2vec_says_that_it_cannot_forget(tmp_path: Path) -> None:
    data = example(24)
    tags = [[data.label_names[column] for column in data.label_columns(i)] for i in range(24)]
    tagger = Tagger(maker("doc2vec"), MODELS["linear"]).fit(data.texts, tags)
    tagger.learn(["word1 word2"], [["new"]]).forget(["word1 word2", (data.texts or [])[0]])
    assert tagger.n_documents_ == 23
    tagger.documents_ = replace(tagger.documents_, repeatable=False)
    tagger.save(tmp_path / "early")
    early = Tagger.load(tmp_path / "early")
    early.learn(["word3 word4"], [["new"]])
    with pytest.raises(ParameterError, match=r"vectors that cannot be computed again, .* fit it again"):
        early.forget([(data.texts or [])[1]])
    with pytest.raises(ParameterError, match=r"vectors that cannot be computed again, .* fit it again"):
        early.learn((data.texts or [])[1:2], [["z"]])


def test_a_document_keeps_the_vector_that_it_was_learnt_with(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    with created(folder, "linear", "encoder") as store:
        text = store.document("3")["text"]
        assert text == (example(24).texts or [])[3]
        version = store.version
        store.learn([{"id": "3", "text": text, "labels": store.document("3")["labels"]}])
        assert store.version == version  # the encoder gave another vector, but the document is the same
        store.learn([{"id": "3", "text": text, "labels": ["new"]}])
        assert store.history(1)[0]["kind"] == "relabel"
        assert_is_that_of_its_documents(store)
    with Store.open(folder) as unencoded:  # without the encoder, all that needs no new vector works
        unencoded.forget(["1"])
        unencoded.relabel("2", ["new"])
        assert_is_that_of_its_documents(unencoded)
        with pytest.raises(ParameterError, match="pass it again as `encoder`"):
            unencoded.learn([{"text": "word1", "labels": ["new"]}])


def test_an_encoder_that_is_not_that_of_the_store_is_noticed(tmp_path: Path) -> None:
    with created(tmp_path / "store", "linear", "encoder"):
        pass
    with pytest.warns(RuntimeWarning, match="gives document '0' another vector .* or refit"):
        other = Store.open(tmp_path / "store", encoder=HashedWords(noise=5.0))
    other.close()


def test_an_early_store_with_an_encoder_gets_the_vectors_of_its_documents(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    with created(folder, "linear", "encoder") as store:
        text = store.document("0")["text"]
    connection = sqlite3.connect(folder / "store.db")
    connection.execute("UPDATE documents SET body = substr(body, 50)")  # a byte and 12 numbers of 4
    connection.commit()
    connection.close()
    with Store.open(folder) as unencoded:
        assert unencoded.document("0")["text"] == text
    with Store.open(folder, readonly=True, encoder=HashedWords()) as reader:
        assert reader.document("0")["text"] == text
    with pytest.warns(RuntimeWarning, match="the model was fitted again on 24 documents"):
        store = Store.open(folder, encoder=HashedWords(noise=0.05))
    with store:
        assert store.document("0")["text"] == text
        store.forget(["0"])
        assert_is_that_of_its_documents(store)


def test_a_refit_gives_documents_the_new_vectors_of_an_encoder_also_those_changed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with created(tmp_path / "store", "linear", "encoder") as store:
        fit, during = DocumentModel.fit, list[str]()

        def fit_while_others_write(*arguments: Any, **named: Any) -> DocumentModel:
            fitted = fit(*arguments, **named)
            if not during:
                during.extend(store.learn([{"id": "meanwhile", "text": "word1 word2", "labels": ["new"]}]))
                store.learn([{"id": "3", "text": "word3 word4", "labels": ["new"]}])
                store.relabel("1", ["new", LABELS[0]])
                store.forget(["0"])
            return fitted

        monkeypatch.setattr(DocumentModel, "fit", fit_while_others_write)
        store.refit()
        assert store.model.model.warm_["learnt"] == 2
        assert_is_that_of_its_documents(store)
        store.forget(["meanwhile", "3", "1", "5"])
        assert_is_that_of_its_documents(store)
        with Store.open(crash_image(tmp_path / "store")) as again:
            assert_is_that_of_its_documents(again)


def test_rows_that_are_equally_similar_vote_in_the_order_in_which_they_were_learnt_by_any_path(tmp_path: Path) -> None:
    """More rows than may vote share nothing with a query; of them the earliest vote."""
    rng, folder, n = random.Random(0), tmp_path / "store", 90

    def word(number: int) -> dict[str, Any]:
        return {"features": [float(j == number % 10) for j in range(10)]}

    X = csr_array([word(number)["features"] for number in range(n)])
    Y = csr_array([[float(rng.random() < 0.3 or j == number % 6) for j in range(6)] for number in range(n)])
    data = Dataset(X=X, Y=Y, label_names=LABELS, name="words")
    changes: list[Any] = [
        lambda store: store.relabel("3", ["label 1"]),
        lambda store: store.learn([{"id": "first", **word(4), "labels": ["label 2"]}]),
        lambda store: store.learn([{"id": "3", **word(5), "labels": ["label 1"]}]),  # learnt after "first"
        lambda store: store.learn([{"id": "8", **word(7), "labels": ["label 4"]}]),
        lambda store: store.learn([{"id": "8", **word(8), "labels": store.document("20")["labels"]}]),
        lambda store: store.learn([{"id": "20", **word(1), "labels": ["label 5"]}]),
        lambda store: store.relabel("7", []),
        lambda store: store.learn([{"id": "second", **word(2), "labels": ["label 3"]}]),
        lambda store: store.relabel("7", ["label 0"]),
        lambda store: store.forget(["first", "11"]),
    ]
    with Store.create(folder, data, RIPML(n_jobs=1, random_state=0)) as store:
        late = Store.open(folder, readonly=True)
        for change in changes:
            change(store)
        # The same body and labels as at first, but learnt last.
        before = store.document("0")
        store.learn([{**before, **word(6)}])
        store.learn([before])
        expected = answers(store, X)
        late.refresh()
        np.testing.assert_allclose(answers(late, X)["scores"], expected["scores"], atol=1e-5)
        with Store.open(crash_image(folder)) as again:
            np.testing.assert_allclose(answers(again, X)["scores"], expected["scores"], atol=1e-5)
            assert again.check(full=True).ok
        assert_is_that_of_its_documents(store, 1e-5)
        assert store.check(full=True).ok
