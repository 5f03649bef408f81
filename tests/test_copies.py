"""Rows with equal features: none is left out while a copy of it is learnt, and all of them are learnt."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import worlds

from ripml import RIPML, Store, Tagger, load
from ripml.datasets import documents_given
from ripml.model.copies import Copies

SPARSE = scipy.sparse.csr_array


def guesses(n: int = 300, d: int = 30, n_labels: int = 10, seed: int = 0) -> tuple[Any, Any]:
    """Rows whose labels have nothing to do with their features: nobody can be right more often than by chance."""
    rng = np.random.default_rng(seed)
    return rng.random((n, d)), SPARSE(np.eye(n_labels)[rng.integers(n_labels, size=n)])


def doubled(X: Any, Y: Any, seed: int = 0) -> tuple[Any, Any]:
    """Every row twice, in any order."""
    order = np.random.default_rng(seed).permutation(2 * len(X)) % len(X)
    return X[order], Y[order]


@pytest.mark.parametrize("kind", ["dense", "csr", "float32"])
def test_rows_are_equal_where_all_their_features_are(kind: str) -> None:
    X = np.array([[1.0, 2, 0], [0, 1, 2], [1, 2, 0], [0, 0, 0], [-0.0, 1, 2], [0, 0, 0], [2, 1, 0], [1, 2, 0]])
    rows: Any = SPARSE(X) if kind == "csr" else X.astype(np.float32) if kind == "float32" else X
    copies = Copies.of(rows)
    assert copies.first.tolist() == [0, 1, 3, 5, 6]
    assert copies.repeated.tolist() == [2, 4, 7]
    assert copies.single.tolist() == [False, False, False, True, False, True, True, False]


PRESETS: dict[str, Callable[..., RIPML]] = {
    "default": RIPML,
    "linear": RIPML.linear,
    "paper": RIPML.paper,
    "local": lambda **settings: RIPML(kernel="local", **settings),
    "clusters": lambda **settings: RIPML(n_clusters=2, **settings),
}


@pytest.mark.parametrize("preset", PRESETS)
def test_a_doubled_file_is_estimated_as_the_file_itself(preset: str) -> None:
    X, Y = guesses()
    once = PRESETS[preset](random_state=0).fit(X, Y)
    twice = PRESETS[preset](random_state=0).fit(*doubled(X, Y))
    assert twice.n_rows_ == 600
    assert twice.n_repeated_ == 300
    assert once.n_repeated_ == 0
    assert twice.left_out_precision_["P@1"] < 0.25  # a tenth by chance, all of them if copies were seen
    assert twice.frequency_.tolist() == (2 * once.frequency_).tolist()


def test_a_few_repeated_rows_are_learnt_with_the_others_and_not_left_out() -> None:
    world = worlds.planted(240)
    X, Y = np.concatenate([world.X, world.X[:20]]), scipy.sparse.vstack([world.Y, world.Y[:20]], format="csr")
    model = RIPML(random_state=0).fit(X, Y)
    assert (model.n_rows_, model.n_repeated_) == (260, 20)


@pytest.mark.parametrize("preset", PRESETS)
def test_repeated_rows_are_learnt_as_by_partial_fit(preset: str) -> None:
    X, Y = guesses()
    rows = np.concatenate([np.repeat(np.arange(0, 300, 2), 2), np.arange(1, 300, 2), np.arange(1, 300, 2)])
    copies = Copies.of(X[rows])
    together, apart = PRESETS[preset](random_state=0), PRESETS[preset](random_state=0)
    together.fit(X[rows], Y[rows])
    apart.fit(X[rows[copies.first]], Y[rows[copies.first]])
    apart.partial_fit(X[rows[copies.repeated]], Y[rows[copies.repeated]])
    expected, found = (model.decision_function(X[:50] + 0.01).toarray() for model in (apart, together))
    np.testing.assert_allclose(found, expected, atol=2e-4)


def test_equal_rows_may_have_different_labels() -> None:
    X, Y = guesses()
    other = SPARSE(np.roll(Y.toarray(), 1, axis=1))
    model = RIPML(random_state=0).fit(np.concatenate([X, X]), scipy.sparse.vstack([Y, other], format="csr"))
    assert model.frequency_.tolist() == (Y.sum(axis=0) + other.sum(axis=0)).tolist()
    model.forget(X[:1], other[:1], rows=[300]).forget(X[:1], Y[:1], rows=[0])
    assert model.n_rows_ == 598


def test_labels_that_only_repeated_rows_carry_are_learnt() -> None:
    X, Y = guesses()
    names = [f"kind {label}" for label in Y.indices]
    model = RIPML(random_state=0).fit(np.concatenate([X, X]), [[name] for name in [*names, *(["late"] * 300)]])
    assert model.frequency_[model.classes_.tolist().index("late")] == 300
    assert "late" in dict(model.recommend(X[:1], n=11)[0])


def test_a_solver_that_cannot_learn_afterwards_says_that_it_does_not_learn_copies(
    caplog: pytest.LogCaptureFixture,
) -> None:
    X, Y = guesses()
    model = RIPML.linear(solver="cg", random_state=0).fit(*doubled(X, Y))
    assert (model.n_rows_, model.n_repeated_) == (300, 300)
    assert "300 rows repeat others, and are not learnt: the solver 'cg' cannot learn rows after the fit." in caplog.text


def test_a_fit_from_blocks_says_that_its_estimate_is_too_good(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    X, Y = doubled(*guesses())
    model = RIPML.linear(random_state=0).fit_blocks([(X[:200], Y[:200]), (X[200:], Y[200:])], tmp_path)
    assert model.n_repeated_ == 300
    assert "what this fit says about new rows is too good" in caplog.text


def test_a_file_that_holds_few_kinds_of_rows_is_fitted_as_it_is() -> None:
    rng = np.random.default_rng(0)
    X = rng.integers(1, 3, size=(400, 3)).astype(float)
    names = [[f"kind {int(a)}"] for a in X[:, 0]]
    model = RIPML(random_state=0).fit(X, names)
    assert (model.n_rows_, model.n_repeated_) == (400, 392)
    assert model.score(X[:50], names[:50]) == 1


def test_saved_and_loaded_it_knows_how_many_rows_were_repeated(tmp_path: Path) -> None:
    X, Y = guesses()
    model = RIPML(random_state=0).fit(*doubled(X, Y))
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert loaded.n_repeated_ == 300
    np.testing.assert_allclose(loaded.predict_proba(X[:20]).toarray(), model.predict_proba(X[:20]).toarray(), atol=1e-5)


def test_documents_of_a_store_with_equal_texts_are_learnt_and_forgotten_one_by_one(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    words = [f"word{i}" for i in range(60)]
    texts = [" ".join(rng.choice(words, 8)) for _ in range(120)]
    tags = [[text.split()[0]] for text in texts]
    data = [{"text": text, "labels": labels} for text, labels in zip(texts * 2, tags * 2, strict=True)]
    tagger = Tagger().fit(data)
    assert tagger.n_repeated_ == 120
    with Store.create(tmp_path / "store", documents_given(data)) as store:
        assert store.model.model.n_repeated_ == 120
        ids = store.ids()
        store.forget([ids[0]])
        store.forget([ids[-1]])
        assert store.model.model.n_rows_ == 238
