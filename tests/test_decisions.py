"""Decisions on some labels of a row: what was decided is learnt, and nothing is learnt of all other labels."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import worlds
from numpy.typing import NDArray

import ripml
from ripml import RIPML
from ripml.base.errors import DataError, ModelFolderError, ParameterError
from ripml.regression import ConjugateGradient
from ripml.regression.kernels import RBF, Local

Array = NDArray[Any]
Decision = tuple[int, list[str], list[str]]  # a new row, and the labels that are accepted and rejected

PRESETS: dict[str, RIPML] = {
    "default": RIPML(random_state=0),
    "linear": RIPML.linear(random_state=0),
    "paper": RIPML.paper(n_dims=24, n_neighbors=3, n_learners=2, random_state=0),
    "paper, clusters": RIPML.paper(n_dims=24, n_neighbors=3, n_learners=2, n_clusters=2, n_probe=2, random_state=0),
    "clusters": RIPML(n_clusters=2, random_state=0),
    "local": RIPML(kernel=Local(n_rows=20), random_state=0),
    "gaussian, dual": RIPML(kernel="linear", ensemble="gaussian", n_dims=64, solver="dual", random_state=0),
}

DECISIONS: list[Decision] = [
    (0, ["label 0"], ["label 1"]),
    (5, [], ["label 2"]),
    (9, ["label 0", "label 2"], []),
    (33, ["label 2"], ["label 0"]),
]
UNDECIDED = [1, *range(3, 8)]  # columns that no decision but the first names
WORLD = worlds.blocks()


def fitted(name: str, world: worlds.World = WORLD) -> RIPML:
    return PRESETS[name].cloned().fit(world.X, world.names)


def decide(model: RIPML, decisions: list[Decision], world: worlds.World = WORLD) -> RIPML:
    for row, accepted, rejected in decisions:
        model.decide(world.X_new[[row]], [accepted], [rejected])
    return model


def withdraw(model: RIPML, decisions: list[Decision], world: worlds.World = WORLD) -> RIPML:
    for row, accepted, rejected in decisions:
        model.withdraw(world.X_new[[row]], [accepted], [rejected])
    return model


def scores(model: RIPML, X: Any = None) -> Array:
    return np.asarray(model.decision_function(WORLD.X_new if X is None else X).toarray())


def ridge_with_missing_values(
    kernel: RBF | None, X: Array, Y: Array, P: Array, T: Array, alpha: float, queries: Array
) -> Array:
    """Label by label, ridge regression on the rows X and on those of P whose target in T is not missing (nan)."""
    values = np.empty((len(queries), Y.shape[1]))
    for label in range(Y.shape[1]):
        known = ~np.isnan(T[:, label])
        rows, y = np.vstack([X, P[known]]), np.concatenate([Y[:, label], T[known, label]])
        if kernel is None:
            rows, asked = (np.hstack([part, np.ones((len(part), 1))]) for part in (rows, queries))
            K, k = rows @ rows.T, asked @ rows.T
        else:
            between = [((part[:, None] - rows[None]) ** 2).sum(axis=2) for part in (rows, queries)]
            K, k = (np.exp(-float(kernel.gamma) * distance) for distance in between)
        values[:, label] = k @ np.linalg.solve(K + alpha * np.eye(len(rows)), y)
    return values


@pytest.mark.parametrize("kernel", [None, RBF(0.1)])
@pytest.mark.parametrize("solver", ["primal", "dual"])
def test_decisions_give_the_ridge_regression_with_missing_values(kernel: RBF | None, solver: str) -> None:
    world, alpha = worlds.blocks(seed=3), 0.7
    model = RIPML(
        kernel=kernel or "linear", solver=solver if kernel is None else "auto", decoder="sketch", ensemble="identity",
        relevance=0, normalize=False, ridge=alpha, random_state=0,
    ).fit(world.X, world.Y)  # fmt: skip
    P, queries, Y = world.X_new[:20], world.X_new[20:], world.Y.toarray()
    nothing = np.full((len(P), Y.shape[1]), np.nan)
    # A score is a value cut to [0, 1]: only what is not cut can be equal.
    before = ridge_with_missing_values(kernel, world.X, Y, P, nothing, alpha, P)
    rng = np.random.default_rng(0)
    decided = (before > 0.02) & (before < 0.98) & (rng.random(before.shape) < 0.5)
    accepted = rng.random(before.shape) < 0.5
    rows = decided.any(axis=1)
    assert decided.sum() > 15
    model.decide(P[rows], (decided & accepted)[rows].astype(float), (decided & ~accepted)[rows].astype(float))
    expected = ridge_with_missing_values(kernel, world.X, Y, P, np.where(decided, accepted, np.nan), alpha, queries)
    plain = ridge_with_missing_values(kernel, world.X, Y, P, nothing, alpha, queries)
    inside = (expected > 0.01) & (expected < 0.99) & (plain > 0.01) & (plain < 0.99)
    assert inside.sum() > 30
    assert np.abs(expected - plain)[inside].max() > 0.05
    np.testing.assert_allclose(scores(model, queries)[inside], expected[inside], atol=2e-5)


@pytest.mark.parametrize("name", PRESETS)
def test_scores_of_labels_that_no_decision_names_do_not_change_by_a_bit(name: str) -> None:
    model = fitted(name)
    before = model.decision_function(WORLD.X_new)
    after = decide(copy.copy(model), DECISIONS[1:]).decision_function(WORLD.X_new)
    for column in UNDECIDED:
        assert (before[:, [column]] != after[:, [column]]).nnz == 0
    assert (before != after).nnz


@pytest.mark.parametrize("name", PRESETS)
def test_an_accepted_label_rises_and_a_rejected_one_falls_on_the_row_and_on_rows_like_it(name: str) -> None:
    model = fitted(name)
    before = scores(model)
    row, like = WORLD.X_new[:1], 0.95 * WORLD.X_new[:1]
    low, high = np.argsort(before[0, :2], kind="stable").tolist()
    model.decide(row, [[f"label {low}"]], [[f"label {high}"]])
    for x in (row, like):
        old = scores(fitted(name), x)
        new = scores(model, x)
        assert new[0, low] > old[0, low] or old[0, low] == 1
        assert new[0, high] < old[0, high] or old[0, high] == 0


@pytest.mark.parametrize("name", PRESETS)
def test_the_order_of_decisions_has_no_influence(name: str) -> None:
    forwards, backwards = decide(fitted(name), DECISIONS), decide(fitted(name), DECISIONS[::-1])
    together = fitted(name)
    rows, accepted, rejected = (list(part) for part in zip(*DECISIONS, strict=True))
    together.decide(WORLD.X_new[rows], accepted, rejected)
    np.testing.assert_allclose(scores(forwards), scores(backwards), atol=2e-6)
    np.testing.assert_allclose(scores(forwards), scores(together), atol=2e-6)


@pytest.mark.parametrize("name", PRESETS)
def test_a_decision_that_is_withdrawn_was_never_made(name: str) -> None:
    plain = fitted(name)
    model, never = decide(fitted(name), DECISIONS), decide(fitted(name), DECISIONS[:1] + DECISIONS[2:])
    np.testing.assert_allclose(scores(withdraw(model, DECISIONS[1:2])), scores(never), atol=2e-6)
    withdraw(model, DECISIONS[:1] + DECISIONS[2:])
    assert model.n_decided_ == 0
    np.testing.assert_array_equal(scores(model), scores(plain))


@pytest.mark.parametrize("name", PRESETS)
def test_rows_learnt_and_forgotten_after_decisions_give_the_model_of_the_final_rows_and_decisions(name: str) -> None:
    """Also where the rows are known first, and where labels are new, so that columns move."""
    more, names = WORLD.X_new[40:46], [*WORLD.names[:5], ["label 1", "new"]]
    first, last = fitted(name), fitted(name)
    decide(first, DECISIONS)
    first.partial_fit(more, names).forget(WORLD.X[:3], WORLD.names[:3]).relabel(more[:1], names[:1], [["label 3"]])
    last.partial_fit(more, names).forget(WORLD.X[:3], WORLD.names[:3]).relabel(more[:1], names[:1], [["label 3"]])
    without = scores(last)
    decide(last, DECISIONS)
    np.testing.assert_allclose(scores(first), scores(last), atol=1e-4)
    assert np.abs(scores(first) - without).max() > 0.02
    first.partial_fit(WORLD.X_new[46:47], [["label 7"]]).forget(WORLD.X_new[46:47], [["label 7"]])
    np.testing.assert_allclose(scores(first), scores(last), atol=1e-4)


@pytest.mark.parametrize("name", PRESETS)
def test_decisions_are_saved_with_the_model(name: str, tmp_path: Path) -> None:
    model = decide(fitted(name), DECISIONS).partial_fit(WORLD.X_new[40:42], WORLD.names[:2])
    model.forget(WORLD.X[:2], WORLD.names[:2])
    model.save(tmp_path / "model")
    loaded, pickled = ripml.load(tmp_path / "model"), pickle.loads(pickle.dumps(model))
    for other in (loaded, pickled):
        np.testing.assert_allclose(scores(other), scores(model), atol=2e-6)
        assert other.n_decided_ == len(DECISIONS)
    withdraw(loaded, DECISIONS[:1])
    decide(loaded, DECISIONS[:1])
    np.testing.assert_allclose(scores(loaded), scores(model), atol=2e-5)
    model.save(tmp_path / "compact", compact=True)
    np.testing.assert_allclose(scores(ripml.load(tmp_path / "compact")), scores(model), atol=2e-2)


@pytest.mark.parametrize("name", PRESETS)
def test_sparse_rows_are_decided_like_dense_ones(name: str) -> None:
    sparse = worlds.World(*(scipy.sparse.csr_array(part) for part in (WORLD.X, WORLD.Y, WORLD.X_new, WORLD.Y_new)))
    model = PRESETS[name].cloned().fit(sparse.X, WORLD.names)
    before = scores(model, sparse.X_new)
    decide(model, DECISIONS, sparse)
    after = scores(model, sparse.X_new)
    assert np.abs(after - before).max() > 0.02
    one_by_one = np.vstack([scores(model, sparse.X_new[[i]]) for i in range(8)])
    np.testing.assert_allclose(one_by_one, after[:8], atol=2e-6)
    np.testing.assert_allclose(scores(model, WORLD.X_new), after, atol=2e-5)


@pytest.mark.parametrize("name", PRESETS)
def test_an_accepted_label_may_be_new(name: str) -> None:
    model = fitted(name).decide(WORLD.X_new[:1], [["brand new"]])
    assert dict(model.recommend(WORLD.X_new[:1], n=9)[0])["brand new"] > 0
    assert model.frequency_[-1] == 0
    with pytest.raises(DataError, match="a decision names the label 'brand new'; withdraw it first"):
        model.drop_labels(["brand new"])
    model.withdraw(WORLD.X_new[:1], [["brand new"]]).drop_labels(["brand new"])
    np.testing.assert_allclose(scores(model), scores(fitted(name)), atol=2e-5)


def test_labels_dropped_and_retired_leave_decisions_on_others_as_they_are() -> None:
    model = decide(fitted("default").add_labels(["empty", "last"]), [*DECISIONS, (12, ["last"], [])])
    before = scores(model)
    model.drop_labels(["empty"])
    np.testing.assert_allclose(scores(model), np.delete(before, 8, axis=1), atol=2e-5)
    model.retire_label("last")
    assert not scores(model)[:, -1].any()


def test_rare_labels_that_only_decisions_name_are_put_forward_within_bounds() -> None:
    model = RIPML(tail=1.0, random_state=0).fit(WORLD.X, WORLD.names).decide(WORLD.X_new[:1], [["brand new"]])
    found = scores(model)
    assert 0 < found[0, -1] <= 1
    assert found.max() <= 1


def test_a_copy_keeps_its_decisions_while_another_decides_on() -> None:
    model = decide(fitted("default"), DECISIONS[:2])
    reader = copy.copy(model)
    before = scores(reader)
    decide(model, DECISIONS[2:])
    model.partial_fit(WORLD.X_new[40:42], WORLD.names[:2])
    np.testing.assert_array_equal(scores(reader), before)


@pytest.mark.parametrize("name", ["default", "linear", "paper, clusters"])
def test_without_rows_there_are_no_decisions_and_forgetting_all_rows_keeps_them_for_later(
    name: str, tmp_path: Path
) -> None:
    model = decide(fitted(name), DECISIONS).partial_fit(WORLD.X_new[40:42], WORLD.names[:2])
    model.forget(WORLD.X_new[40:42], WORLD.names[:2])
    expected = scores(model)
    assert model.without_rows().n_decided_ == 0
    model.forget(WORLD.X, WORLD.names)
    model.save(tmp_path / "model")
    model = ripml.load(tmp_path / "model")
    assert not scores(model).any()
    model.partial_fit(WORLD.X, WORLD.names)
    np.testing.assert_allclose(scores(model), expected, atol=1e-4)


def test_decisions_that_cannot_be_learnt_say_why() -> None:
    model, x = fitted("default"), WORLD.X_new[:1]
    with pytest.raises(DataError, match="'label 1' is both accepted and rejected"):
        model.decide(x, [["label 1"]], [["label 1", "label 2"]])
    with pytest.raises(DataError, match="row 0 has no decision: name a label"):
        model.decide(x, [[]], [[]])
    with pytest.raises(DataError, match="the label 'unknown' cannot be rejected: the model does not know it"):
        model.decide(x, [["label 1"]], [["unknown"]])
    with pytest.raises(DataError, match="X has 1 rows and `accepted` has 2; they must have the same number"):
        model.decide(x, [["label 1"], []])
    with pytest.raises(DataError, match="there is no decision that could be withdrawn"):
        model.withdraw(x, [["label 1"]])
    decide(model, DECISIONS)
    with pytest.raises(DataError, match="decision 0 cannot be withdrawn: no such decision"):
        model.withdraw(x, [["label 3"]])
    with pytest.raises(DataError, match="there is no decision on the label 'unknown'"):
        model.withdraw(x, [["unknown"]])
    assert model.n_decided_ == len(DECISIONS)


@pytest.mark.parametrize("name", ["default", "linear"])
def test_a_row_without_features_teaches_nothing(name: str) -> None:
    model, x = fitted(name), WORLD.X_new[:2] * [[1], [0]]
    before = scores(model)
    model.decide(x[1:], [["label 1"]])
    np.testing.assert_array_equal(scores(model), before)
    model.decide(x[:1], [["label 1"]])
    np.testing.assert_allclose(scores(model), scores(fitted(name).decide(x[:1], [["label 1"]])), atol=2e-6)
    np.testing.assert_array_equal(scores(model.withdraw(x, [["label 1"]] * 2)), before)


def test_a_model_that_cannot_learn_exactly_cannot_decide(tmp_path: Path) -> None:
    x = WORLD.X_new[:1]
    inexact = RIPML.linear(solver=ConjugateGradient(), random_state=0).fit(WORLD.X, WORLD.names)
    with pytest.raises(ParameterError, match="solver='cg' stops short of the exact solution"):
        inexact.decide(x, [["label 1"]])
    certain = RIPML.paper(ridge=0.0, random_state=0).fit(WORLD.X, WORLD.names)
    with pytest.raises(ParameterError, match="`ridge` must be above 0 for decisions on some labels"):
        certain.decide(x, [["label 1"]])
    fitted("linear").save(tmp_path / "compact", compact=True)
    with pytest.raises(ParameterError, match="this model was saved compact"):
        ripml.load(tmp_path / "compact").decide(x, [["label 1"]])


# ------------------------------------------------------------------------------------------------------------- texts

TEXTS = [f"{colour} {fruit} number {i}" for i in range(3) for colour in ("red", "green") for fruit in ("apple", "plum")]
TAGS = [text.split()[:2] for text in TEXTS]


def tagger() -> ripml.Tagger:
    return ripml.Tagger(model=RIPML(random_state=0)).fit(TEXTS, TAGS)


def suggested(one: ripml.Tagger, text: str) -> dict[str, float]:
    return dict(one.suggest(text, n=None))


def test_tags_of_a_text_are_decided_one_after_the_other_and_withdrawn_together() -> None:
    text, never = "a red and green fruit", tagger()
    one = tagger().decide(text, accepted=["red"]).decide(text, rejected=["plum"]).decide(text, ["berry"], ["red"])
    together = tagger().decide(text, ["berry"], ["plum", "red"])
    assert one.n_decided_ == together.n_decided_ == 1
    assert one.n_documents_ == len(TEXTS)
    assert suggested(one, text) == pytest.approx(suggested(together, text), abs=2e-6)
    assert suggested(one, text)["red"] < suggested(never, text)["red"]
    assert suggested(one, text)["green"] == suggested(never, text)["green"]
    assert suggested(one, text)["berry"] > 0
    one.withdraw(text)
    assert one.n_decided_ == 0
    assert suggested(one, text) == suggested(never, text)


def test_once_all_tags_of_a_text_are_learnt_its_decisions_are_over() -> None:
    text = "a red and green fruit"
    one = tagger().decide(text, ["apple"], ["red"]).learn([text], [["green", "plum"]])
    assert one.n_decided_ == 0
    never = tagger().learn([text], [["green", "plum"]])
    assert suggested(one, text) == pytest.approx(suggested(never, text), abs=1e-4)
    one.decide(text, ["red"], ["plum"])  # of a text that was learnt all tags are known
    assert suggested(one, text) == pytest.approx(suggested(never.learn([text], [["green", "red"]]), text), abs=1e-4)
    with pytest.raises(DataError, match="without the rejected tags the text has none left; use `forget`"):
        one.decide(text, rejected=["green", "red"])


def test_a_text_with_decisions_is_forgotten_like_any_other(tmp_path: Path) -> None:
    text = "a red and green fruit"
    expected = suggested(tagger().forget(TEXTS[:1]), text)
    one = tagger().decide(text, ["apple"], ["red"]).decide("green berry", ["green"])
    one.save(tmp_path / "model")
    for other in (one, ripml.Tagger.load(tmp_path / "model")):
        assert other.n_decided_ == 2
        other.forget([text, "green berry", TEXTS[0]])
        assert other.n_decided_ == 0
        assert other.n_documents_ == len(TEXTS) - 1
        assert suggested(other, text) == pytest.approx(expected, abs=1e-4)
    with pytest.raises(DataError, match="was never learnt, or was forgotten already"):
        one.forget([text])
    with pytest.raises(DataError, match="no tag of the text 'a red and green fruit' is decided"):
        one.withdraw(text)
    with pytest.raises(DataError, match="the tag 'red' is both accepted and rejected"):
        one.decide(text, ["red"], ["red"])
    with pytest.raises(DataError, match="`accepted` and `rejected` must be lists of tags"):
        one.decide(text, "red")
    with pytest.raises(DataError, match="the text is blank"):
        one.decide(" ", ["red"])


def test_names_of_labels_in_a_text_stay_evidence_where_some_tags_are_decided(tmp_path: Path) -> None:
    concepts = ripml.labels.concepts.Concepts.of(
        ripml.labels.concepts.Concept(tag, names={"en": tag}) for tag in ("red", "green", "apple", "plum", "melon")
    )
    one = ripml.Tagger(model=RIPML(random_state=0), vocabulary=concepts).fit(TEXTS, TAGS)
    text = "a ripe melon that is red"
    before = suggested(one, text)
    assert before["melon"] > 0
    one.decide(text, rejected=["melon"])
    assert suggested(one, text).get("melon", 0) < before["melon"]
    assert suggested(one, text)["red"] == before["red"]
    after = suggested(one, text)
    one.save(tmp_path / "model")
    loaded = ripml.Tagger.load(tmp_path / "model")
    assert suggested(loaded, text) == pytest.approx(after, abs=2e-6)
    assert suggested(loaded.withdraw(text), text) == pytest.approx(before, abs=2e-6)


def test_columns_that_change_places_take_the_names_in_decided_texts_along() -> None:
    """A concept that gets its first document takes the column of one that has none."""
    tags = ("green", "red", "apple", "plum", "melon", "quince")
    concepts = ripml.labels.concepts.Concepts.of(ripml.labels.concepts.Concept(tag, names={"en": tag}) for tag in tags)
    one, other = (ripml.Tagger(model=RIPML(random_state=0), vocabulary=concepts).fit(TEXTS, TAGS) for _ in range(2))
    text, learnt = "a ripe melon and a quince that is red", ("a yellow quince", ["quince"])
    one.decide(text, ["quince"], ["melon"]).learn([learnt[0]], [learnt[1]])
    other.learn([learnt[0]], [learnt[1]]).decide(text, ["quince"], ["melon"])
    for asked in (text, "a quince", "a melon"):
        assert suggested(one, asked) == pytest.approx(suggested(other, asked), abs=1e-4)


def test_what_the_caller_does_to_rows_later_is_not_seen() -> None:
    model = RIPML.linear(normalize=False, relevance=0, random_state=0).fit(WORLD.X, WORLD.names)
    X = WORLD.X_new[:1].astype(np.float32)
    expected = scores(model.decide(X.copy(), [["label 0"]]).partial_fit(WORLD.X_new[40:42], WORLD.names[:2]))
    other = RIPML.linear(normalize=False, relevance=0, random_state=0).fit(WORLD.X, WORLD.names)
    other.decide(X, [["label 0"]])
    X[:] = 7
    other.partial_fit(WORLD.X_new[40:42], WORLD.names[:2])
    np.testing.assert_array_equal(scores(other), expected)


# ---------------------------------------------------------------------------------------------------- around decisions


@pytest.mark.parametrize("name", ["default", "linear", "paper"])
def test_explanations_of_labels_that_decisions_suggest_add_up(name: str) -> None:
    model = decide(fitted(name), DECISIONS).decide(WORLD.X_new[:1], [["brand new"]])
    [found] = model.explain(WORLD.X_new[:1], n=9)
    assert [why.label for why in found] == [label for label, _ in model.recommend(WORLD.X_new[:1], n=9)[0]]
    assert "brand new" in {why.label for why in found}
    for why in found:
        shares = sum(example.share for example in why.examples)
        assert shares + why.others + why.regression + why.named == pytest.approx(why.score)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", ["default", "clusters"])
def test_a_folder_whose_decisions_contradict_each_other_is_refused(name: str, sparse: bool) -> None:
    kind = scipy.sparse.csr_array if sparse else np.asarray
    world = worlds.World(kind(WORLD.X), WORLD.Y, kind(WORLD.X_new), WORLD.Y_new)
    parameters, arrays = decide(fitted(name, world), DECISIONS, world).to_state()
    decided = [key for key in arrays if key.startswith("decided")]
    assert len(decided) > 7
    for key in decided:
        array, others = arrays[key], {other: array for other, array in arrays.items() if other != key}
        values = np.full(array.shape, np.nan, array.dtype) if array.dtype.kind == "f" else array.astype(np.int64) - 99
        for changed in (others, {**others, key: array[:-1]}, {**others, key: values}):
            with pytest.raises(ModelFolderError, match="do not fit together"):
                RIPML.from_state(parameters, changed)
