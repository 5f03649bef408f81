"""Explanations: shares add up to the score, and worlds with a known answer have the right examples and features."""

from __future__ import annotations

import functools
import json
from typing import Any

import numpy as np
import pandas
import pytest
import scipy.sparse
import worlds
from numpy.typing import NDArray

from ripml import RIPML
from ripml.base.errors import ParameterError
from ripml.decoding.decoders import Blend, LeastSquares, WeightedVotes
from ripml.decoding.label_set_index import PointIndex
from ripml.decoding.signals import FittedBlend, FittedSignals
from ripml.decoding.votes import vote_weights
from ripml.model.explain import Explanation, explain
from ripml.regression.kernels import RBF, Linear, Local
from ripml.regression.regression import KernelRegression

ZIPF = worlds.zipf()

SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "rbf, gaussian": {"kernel": RBF(0.5), "ridge": 0.1, "ensemble": "gaussian", "n_dims": 64},
    "linear": {"kernel": "linear", "decoder": Blend(n_similar=0)},
    "linear, gaussian": {"kernel": "linear", "ensemble": "gaussian", "n_dims": 64, "n_learners": 2},
    "local": {"kernel": Local(n_rows=40)},
    "clusters": {"n_clusters": 3},
    "not normalised": {"normalize": False},
    "normalised by columns": {"normalize": "auto", "kernel": RBF(0.5)},
    "tail": {"tail": 0.5},
    "weighted": {"decoder": "weighted"},
    "weighted, linear": {"decoder": WeightedVotes(0.2), "kernel": "linear", "n_dims": 40, "ensemble": "bernoulli"},
    "sketch": {"decoder": "sketch", "n_dims": 100, "n_learners": 2, "ensemble": "gaussian", "relevance": 0.25},
    "sketch, linear": {"decoder": "sketch", "n_dims": 100, "ensemble": "gaussian", "kernel": "linear"},
    "least squares": {"decoder": "least-squares", "n_dims": 40, "ensemble": "gaussian"},
    "least squares, linear": {"decoder": LeastSquares(0.5), "n_dims": 40, "n_learners": 2, "kernel": "linear"},
    "least squares, identity": {"decoder": LeastSquares(0.5), "ensemble": "identity"},
    "paper": {"paper": True, "n_dims": 32, "n_learners": 3},
    "paper, identity": {"paper": True, "n_dims": 40, "n_learners": 1, "ensemble": "identity"},
    "paper, clusters": {"paper": True, "n_dims": 32, "n_clusters": 4, "n_probe": 2},
    "paper, tail": {"paper": True, "n_dims": 32, "tail": 0.5},
}
SPARSE = {"default", "linear, gaussian", "local", "paper", "clusters"}


@functools.cache
def fitted(name: str) -> RIPML:
    settings = {"normalize": True, **SETTINGS[name], "random_state": 0}
    model = RIPML.paper(**settings) if settings.pop("paper", False) else RIPML(**settings)
    return model.fit(queries(name, ZIPF.X), ZIPF.names)


def queries(name: str, X: NDArray[Any]) -> Any:
    return scipy.sparse.csr_array(X) if name in SPARSE else X


@functools.cache
def explained(name: str, n: int = 4) -> list[list[Explanation]]:
    return explain(fitted(name), queries(name, ZIPF.X_new[:20]), n=n)


def all_of(found: list[list[Explanation]]) -> list[Explanation]:
    return [one for row in found for one in row]


def check_shares(found: list[list[Explanation]]) -> None:
    for one in all_of(found):
        shares = [example.share for example in one.examples]
        assert min([*shares, one.others, one.regression]) >= 0
        assert sum(shares) + one.others + one.regression == pytest.approx(one.score, rel=1e-9, abs=1e-15)
        assert shares == sorted(shares, reverse=True)


# ------------------------------------------------------------------------------------------------------------- laws


@pytest.mark.parametrize("name", SETTINGS)
def test_labels_scores_and_order_are_those_of_recommend(name: str) -> None:
    found = [[(one.label, one.score) for one in row] for row in explained(name)]
    assert found == fitted(name).recommend(queries(name, ZIPF.X_new[:20]), 4)


@pytest.mark.parametrize("name", SETTINGS)
def test_shares_are_not_negative_and_sum_to_the_score(name: str) -> None:
    check_shares(explained(name))
    assert all(len(one.examples) <= 5 and len(one.features) <= 10 for one in all_of(explained(name)))


@pytest.mark.parametrize("name", SETTINGS)
def test_pulls_of_all_features_and_the_intercept_sum_to_the_value(name: str) -> None:
    X = queries(name, ZIPF.X_new[:5])
    for one in all_of(explain(fitted(name), X, n_features=ZIPF.X.shape[1])):
        assert sum(pull for _, pull in one.features) + one.intercept == pytest.approx(one.value, rel=1e-9, abs=1e-12)
        sizes = [abs(pull) for _, pull in one.features]
        assert sizes == sorted(sizes, reverse=True)


@functools.cache
def signals(name: str) -> list[dict[str, dict[str, float]]]:
    """The signals of each candidate label of each row, by the label's name, of a model with one cluster."""
    model = fitted(name).model_
    assert isinstance(model.decoder, FittedSignals)
    X = model.features(fitted(name)._validated(queries(name, ZIPF.X_new[:20]), reset=False))
    (cluster,) = model.clusters
    found = model.decoder.candidates(cluster, X, 1)
    return [
        {
            model.vocabulary.names[label]: {
                signal: float(values[row, place]) for signal, values in found.signals.items()
            }
            for place, label in enumerate(labels)
            if label >= 0
        }
        for row, labels in enumerate(found.labels)
    ]


OF_ONE_CLUSTER = [name for name in SETTINGS if "clusters" not in name and "paper" not in name]


@pytest.mark.parametrize("name", OF_ONE_CLUSTER)
def test_the_value_is_that_of_the_regression(name: str) -> None:
    for found_signals, row in zip(signals(name), explained(name), strict=True):
        for one in row:
            assert one.value == pytest.approx(found_signals[one.label]["value"], rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("name", ["default", "rbf, gaussian", "linear", "linear, gaussian", "local"])
def test_signals_have_shares_in_proportion_to_their_values(name: str) -> None:
    found = explain(fitted(name), queries(name, ZIPF.X_new[:20]), n=4, n_examples=1000)
    for found_signals, row in zip(signals(name), found, strict=True):
        for one in row:
            positive = {s: max(found_signals[one.label].get(s, 0), 0) for s in ("value", "votes", "similar", "local")}
            total = sum(positive.values())
            votes = sum(example.share for example in one.examples if example.row is None)
            assert votes == pytest.approx(one.score * positive["votes"] / total, rel=1e-3, abs=1e-5)
            if isinstance(fitted(name).kernel_, Linear):
                assert one.regression == pytest.approx(one.score * positive["value"] / total, rel=1e-3)


def test_pulls_of_a_kernel_are_the_integral_of_its_gradient() -> None:
    model = RIPML(kernel=RBF(0.7), ridge=0.1, relevance=0, random_state=0).fit(ZIPF.X, ZIPF.names)
    (cluster,) = model.clusters_
    assert cluster.rows is not None
    assert isinstance(cluster.regression, KernelRegression)
    x, rows = model.model_.features(ZIPF.X_new[:1])[0], cluster.rows.X.all().astype(np.float64)
    steps = (np.arange(1000) + 0.5) / 1000
    gradient = np.exp(1.4 * (steps[:, None] * (rows @ x) - 1)).mean(axis=0)  # of ⟨x, xᵢ⟩ from 0 to what it is
    for one in explain(model, ZIPF.X_new[:1], n_features=3)[0]:
        label = model.classes_.tolist().index(one.label)
        for feature, pull in one.features:
            expected = x[feature] * np.sum(
                1.4 * gradient * rows[:, feature] * cluster.regression.coefficients[:, label]
            )
            assert pull == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_rows_of_a_kernel_have_shares_in_proportion_to_their_positive_terms() -> None:
    model = fitted("sketch")
    (cluster,) = model.clusters_
    regression, rows, columns = cluster.regression, cluster.rows, model.model_.decoder.embedding.columns
    assert isinstance(regression, KernelRegression)
    assert isinstance(regression.kernel, RBF)
    assert rows is not None
    assert model.scaling_.weights is not None
    x = ZIPF.X_new[0] * model.scaling_.weights
    x /= np.linalg.norm(x)
    kernel = np.exp(-float(regression.kernel.gamma) * ((x - rows.X.all()) ** 2).sum(axis=1))
    for one in explain(model, ZIPF.X_new[:1], n_examples=1000)[0]:
        label = model.classes_.tolist().index(one.label)
        terms = kernel * (regression.coefficients @ columns(np.array([label]))[0]) / 2
        assert one.value == pytest.approx(terms.sum(), rel=1e-4)
        yes = np.maximum(terms, 0)
        expected = dict(zip(rows.numbers.tolist(), one.score * yes / yes.sum(), strict=True))
        for example in one.examples:
            assert example.row is not None
            assert example.share == pytest.approx(expected[example.row], rel=1e-3, abs=1e-7)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_batch_is_explained_as_its_rows_one_by_one(name: str) -> None:
    alone = [explain(fitted(name), queries(name, ZIPF.X_new[i : i + 1]), n=4)[0] for i in range(5)]
    for one, other in zip(all_of(alone), all_of(explained(name)[:5]), strict=True):
        assert one.label == other.label
        # The last bits of a float32 product depend on how many rows are asked about.
        assert one.score == pytest.approx(other.score, abs=1e-5)
        assert one.value == pytest.approx(other.value, rel=1e-4, abs=1e-5)
        shares = [[example.share for example in each.examples] for each in (one, other)]
        np.testing.assert_allclose(shares[0], shares[1], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", SETTINGS)
def test_explanations_are_json(name: str) -> None:
    for one in explained(name)[0]:
        assert json.loads(json.dumps(one.to_json())) == one.to_json()
        assert set(one.to_json()) == set(Explanation.__dataclass_fields__)


def test_a_row_of_zeros_has_no_explanations() -> None:
    X = ZIPF.X_new[:3].copy()
    X[1] = 0
    for name in ("linear", "paper", "paper, clusters", "sketch"):
        assert [len(row) for row in explain(fitted(name), X, n=2)] == [2, 0, 2]
        assert explain(fitted(name), X[1:2]) == [[]]


@pytest.mark.parametrize("name", ["n", "n_examples", "n_features"])
def test_counts_below_one_are_refused(name: str) -> None:
    with pytest.raises(ParameterError, match=f"`{name}` must be an integer ≥ 1; got 0"):
        explain(fitted("paper"), ZIPF.X_new[:1], **{name: 0})


def test_examples_beyond_the_limit_are_summed_in_others() -> None:
    few = explain(fitted("default"), ZIPF.X_new[:5], n_examples=1)
    many = explain(fitted("default"), ZIPF.X_new[:5], n_examples=1000)
    for one, other in zip(all_of(few), all_of(many), strict=True):
        assert one.examples == other.examples[:1]
        assert other.others == 0
        assert one.others == pytest.approx(sum(example.share for example in other.examples[1:]))


# --------------------------------------------------------------------------------------------------------- the shares


def test_a_vote_has_the_weight_of_its_set_in_each_learner() -> None:
    model, k = fitted("paper"), 5
    (cluster,) = model.clusters_
    index = cluster.index
    assert isinstance(index, PointIndex)
    x = model.model_.features(queries("paper", ZIPF.X_new[:1]))
    weights: dict[int, float] = {}
    for ids, _ in index.nearest(cluster.regression.predict(x, None, None, 1), k, 1):
        for number, weight in zip(ids[0].tolist(), vote_weights(ids, index.counts, k, 3)[0].tolist(), strict=True):
            weights[number] = weights.get(number, 0) + weight / 3
    for one in explain(model, queries("paper", ZIPF.X_new[:1]), n_examples=50)[0]:
        label = model.classes_.tolist().index(one.label)
        expected = [weight for number, weight in weights.items() if weight and label in index.sets[[number]].indices]
        shares = [example.share for example in one.examples]
        np.testing.assert_allclose(shares, sorted(expected, reverse=True), rtol=1e-9)
        assert one.regression == one.others == 0


def test_votes_come_from_all_clusters_that_are_probed() -> None:
    found = explained("paper, clusters")
    model = fitted("paper, clusters")
    assert any(len({e.cluster for one in row for e in one.examples}) == 2 for row in found)
    for one in all_of(found):
        for example in one.examples:
            assert one.label in example.labels
            assert (example.row, example.how) == (None, "votes")
            sets = model.clusters_[example.cluster].index.sets.toarray()
            carries = np.isin(model.classes_, np.array(example.labels, object))
            (number,) = np.flatnonzero((sets == carries).all(axis=1))
            assert example.n_rows == model.clusters_[example.cluster].index.counts[number]


def test_rare_labels_that_are_put_forward_have_the_same_shares_of_a_larger_score() -> None:
    plain = RIPML.paper(n_dims=32, random_state=0).fit(ZIPF.X, ZIPF.names)
    before = {one.label: one for one in explain(plain, ZIPF.X_new[:1], n=40)[0]}
    for one in explain(fitted("paper, tail"), ZIPF.X_new[:1], n=40)[0]:
        factor = one.score / before[one.label].score
        for example, other in zip(one.examples, before[one.label].examples, strict=True):
            assert example.share == pytest.approx(factor * other.share, rel=1e-9)


def test_only_signals_that_the_decoder_reads_have_shares() -> None:
    ways = {name: {how for one in all_of(explained(name)) for e in one.examples for how in e.how.split("+")}
            for name in SETTINGS}  # fmt: skip
    assert ways["default"] == ways["clusters"] == ways["rbf, gaussian"] == {"votes", "similar", "kernel"}
    assert ways["local"] == {"votes", "similar", "local"}
    assert ways["linear"] == ways["weighted"] == ways["weighted, linear"] == ways["paper"] == {"votes"}
    assert ways["sketch"] == ways["least squares"] == {"kernel"}
    assert ways["sketch, linear"] == ways["least squares, linear"] == set()


def test_a_row_that_counts_in_several_signals_is_one_example() -> None:
    ways = {example.how for one in all_of(explained("default")) for example in one.examples}
    assert "similar+kernel" in ways
    for one in all_of(explained("local")):
        rows = [example.row for example in one.examples if example.row is not None]
        assert len(set(rows)) == len(rows)


@pytest.mark.parametrize("name", ["default", "rbf, gaussian", "linear", "local", "weighted, linear", "sketch, linear"])
def test_a_linear_regression_has_a_share_where_its_value_counts(name: str) -> None:
    linear = isinstance(fitted(name).kernel_, Linear)
    for one in all_of(explained(name)):
        assert (one.regression > 0) == (linear and name != "weighted, linear" and one.value > 0 and one.score > 0)


def test_a_score_without_a_positive_signal_is_shared_by_the_size_of_kernel_terms() -> None:
    world = worlds.zipf(n=500, n_labels=60)
    model = RIPML(kernel=RBF(0.5), ridge=0.1, relevance=0, random_state=0).fit(world.X, world.names)
    assert isinstance(model.model_.decoder, FittedBlend)
    assert model.model_.decoder.trees is not None
    found = explain(model, world.X_new[:3], n=60, n_examples=50)
    check_shares(found)
    silent = [one for one in all_of(found) if one.score and all(e.how == "kernel" for e in one.examples)]
    silent = [one for one in silent if one.value <= 0]
    assert silent
    assert all(one.regression == 0 and one.examples for one in silent)
    linear = RIPML.linear(ridge=0.1, relevance=0, random_state=0).fit(world.X, world.names)
    found = explain(linear, world.X_new[:5], n=60)
    silent = [one for one in all_of(found) if one.score and one.value <= 0 and not one.examples]
    assert silent
    assert all(one.regression == one.score for one in silent)


@pytest.mark.parametrize("name", ["default", "local", "clusters", "sketch"])
def test_an_example_names_its_training_row_by_number(name: str) -> None:
    for one in all_of(explained(name)):
        for example in one.examples:
            if example.row is not None:
                assert example.n_rows == 1
                assert list(example.labels) == ZIPF.names[example.row]


@pytest.mark.parametrize(
    "name", ["default", "linear", "local", "clusters", "least squares", "paper", "paper, clusters"]
)
def test_rows_that_were_learnt_later_are_examples_and_those_forgotten_are_not(name: str) -> None:
    settings, X, Y = {**SETTINGS[name], "random_state": 0}, queries(name, ZIPF.X), ZIPF.names
    model = RIPML.paper(**settings) if settings.pop("paper", False) else RIPML(**settings)
    model.fit(X[:100], Y[:100]).partial_fit(X[100:], Y[100:]).forget(X[:50], Y[:50])
    X_new = queries(name, ZIPF.X_new[:10])
    found = explain(model, X_new, n_examples=200)
    check_shares(found)
    assert [[(one.label, one.score) for one in row] for row in found] == model.recommend(X_new)
    rows = [example for one in all_of(found) for example in one.examples if example.row is not None]
    assert {example.row for example in rows} <= set(range(50, 150))
    assert bool(rows) == any(cluster.searched_rows is not None for cluster in model.clusters_)
    assert all(sorted(example.labels) == Y[example.row or 0] for example in rows)
    assert all(example.n_rows > 0 for one in all_of(found) for example in one.examples)


# ------------------------------------------------------------------------------------------------ worlds that are known


@functools.cache
def marked() -> worlds.World:
    """Label j for rows that have feature j, of the first six; the other features say nothing."""
    rng = np.random.default_rng(3)
    X = np.hstack([np.zeros((320, 6)), (rng.random((320, 10)) < 0.3).astype(float)])
    X[np.arange(320), rng.integers(6, size=320)] = 1
    X[np.arange(320), rng.integers(6, size=320)] = 1
    Y = scipy.sparse.csr_array(X[:, :6])
    return worlds.World(X[:160], Y[:160], X[160:], Y[160:])


@pytest.mark.parametrize("name", [name for name in SETTINGS if name != "not normalised"])
def test_the_feature_that_makes_a_label_comes_first_and_examples_carry_it(name: str) -> None:
    settings = {"normalize": True, **SETTINGS[name], "random_state": 0}
    if "n_dims" in settings:
        settings["n_dims"] = 256
    world = marked()
    model = RIPML.paper(**settings) if settings.pop("paper", False) else RIPML(**settings)
    model.fit(world.X, world.Y)
    found = zip(world.X_new[:30], explain(model, world.X_new[:30], n=1), strict=True)
    right = [one for row, (one,) in found if row[one.label] == 1]
    assert len(right) >= (29 if "paper, clusters" in name else 30)
    for one in right:
        assert one.features[0][0] == one.label
        assert one.features[0][1] > 0
        assert all(one.label in example.labels for example in one.examples[:3])
        assert one.examples or one.regression == pytest.approx(one.score)


def test_features_of_a_frame_have_names() -> None:
    world = marked()
    frame = pandas.DataFrame(world.X, columns=[f"word {j}" for j in range(16)])
    model = RIPML.linear(random_state=0).fit(frame, world.Y)
    [one] = explain(model, frame[:1], n=1)[0]
    assert one.features[0][0] == f"word {one.label}"
    json.dumps(one.to_json())


def test_training_rows_without_features_keep_their_part_in_the_regression() -> None:
    random = np.random.default_rng(0)
    X = random.random((200, 12)) * (random.random((200, 12)) < 0.4)
    X[::10] = 0
    Y = np.eye(4)[random.integers(0, 4, 200)]
    model = RIPML(kernel="rbf", normalize=True, random_state=0).fit(X, Y).model_
    asked = model.scaling(X[1:4], np.float32)
    near = np.zeros((3, 1), np.int64)
    for _, found in model.decoder.contributions(model.clusters, asked, near, np.arange(3), 1):
        assert found.likeness is not None
        assert np.isfinite(found.likeness).all()
