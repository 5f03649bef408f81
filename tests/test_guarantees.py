"""Sets with a guarantee and the share that can be applied unseen: promised by left-out rows, kept on new ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from realdata import data_folder, needs_data

from ripml import RIPML, Tagger, datasets, load
from ripml.base.errors import ModelFolderError, ParameterError
from ripml.baselines.popularity import Popularity
from ripml.cli import main
from ripml.decoding.beyond import N_WEIGHTS, logistic
from ripml.decoding.guarantees import Curve, Guarantees, sets_above
from ripml.lab.generated import generate

SPARSE = scipy.sparse.csr_array


def found_share(truth: Any, sets: Any) -> float:
    """The mean share of the labels of a row that are in its set."""
    lengths = np.diff(truth.indptr)
    hits = np.asarray(SPARSE(truth.multiply(indicator(sets))).sum(axis=1)).ravel()
    return float(np.mean(hits / lengths))


def indicator(sets: Any) -> Any:
    """Ones for all stored labels, also those whose score is 0."""
    return SPARSE((np.ones(len(sets.data)), sets.indices, sets.indptr), shape=sets.shape)


def shell(*words: Any) -> None:
    with pytest.raises(SystemExit, match="0"):
        main([str(word) for word in words])


@pytest.fixture(scope="module")
def world() -> tuple[RIPML, Any, Any]:
    """A model, and new rows with their labels."""
    rng = np.random.default_rng(0)
    Y = rng.random((2400, 60)) < 0.05
    Y[~Y.any(axis=1), 0] = True
    X, Y = Y @ rng.standard_normal((60, 40)) + rng.standard_normal((2400, 40)), SPARSE(Y.astype(np.float32))
    return RIPML.linear(random_state=0).fit(X[:1200], Y[:1200]), X[1200:], Y[1200:]


def invented(seed: int, n: int = 4000, n_labels: int = 12) -> tuple[Any, Any, Any]:
    """Scores of rows, which are the probabilities that labels are right, their labels, and the frequency of these."""
    rng = np.random.default_rng(seed)
    p = rng.beta(0.5, 1.5, (n, n_labels))
    p[:, 0] = 0.9
    Y = rng.random((n, n_labels)) < p
    Y[~Y.any(axis=1), 0] = True
    Y = SPARSE(Y.astype(np.float32))
    scores = SPARSE(np.where(rng.random((n, n_labels)) < 0.9, p, 0))  # a tenth of the labels are no candidates
    return scores, Y, np.asarray(Y.sum(axis=0)).ravel().astype(np.int64)


def fitted(scores: Any, Y: Any, frequency: Any) -> Guarantees:
    return Guarantees.fit(Y, scores, frequency, 0.5, scores.data.astype(np.float64))


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9, 0.95])
def test_the_expected_share_found_is_at_least_the_coverage_and_hardly_more(coverage: float) -> None:
    shares = []
    for seed in range(20):  # the guarantee is one of the mean over calibration rows and new rows
        scores, Y, frequency = invented(seed, 2000)
        level, _ = fitted(scores[:300], Y[:300], frequency).level_for(coverage)
        shares.append(found_share(Y[300:], sets_above(scores[300:], level, frequency)))
    assert coverage - 0.01 < np.mean(shares) < coverage + 0.02


@pytest.mark.parametrize("coverage", [0.8, 0.9])
def test_a_label_with_enough_rows_is_found_with_the_probability_that_is_promised(coverage: float) -> None:
    scores, Y, frequency = invented(0)
    levels, kind = fitted(scores[:2000], Y[:2000], frequency).label_levels(coverage, frequency)
    sets = indicator(sets_above(scores[2000:], levels, frequency))
    found = np.asarray(SPARSE(Y[2000:].multiply(sets)).sum(axis=0)).ravel() / np.asarray(Y[2000:].sum(axis=0)).ravel()
    assert (kind == (2 if coverage < 0.9 else kind)).all()
    assert (found[kind == 2] > coverage - 0.06).all()


def test_labels_of_few_rows_share_a_threshold_with_those_of_similar_frequency() -> None:
    scores, Y, _ = invented(1, 400, 40)
    frequency = np.full(40, 5)
    rare = SPARSE(Y.multiply(np.random.default_rng(0).random(Y.shape) < 0.01))
    rare.eliminate_zeros()
    levels, kind = fitted(scores, rare, frequency).label_levels(0.7, frequency)
    assert (kind == 1).any()
    assert len(np.unique(levels[kind == 1])) == 1


def test_a_set_contains_that_of_any_smaller_coverage(world: tuple[RIPML, Any, Any]) -> None:
    model, X, _ = world
    small, large = model.predict(X, coverage=0.7), model.predict(X, coverage=0.95)
    assert (large - small).data.min() >= 0
    assert large.nnz > small.nnz


@pytest.mark.parametrize("coverage", [0.7, 0.8, 0.9])
def test_new_rows_are_covered_as_promised(world: tuple[RIPML, Any, Any], coverage: float) -> None:
    model, X, Y = world
    assert abs(found_share(Y, model.predict(X, coverage=coverage)) - coverage) < 0.04
    size = model.predict(X, coverage=coverage).nnz / len(Y.indptr[1:])
    assert size == pytest.approx(model.guarantee(coverage)["labels_per_set"], rel=0.15)


def test_what_is_applied_unseen_is_as_precise_as_promised(world: tuple[RIPML, Any, Any]) -> None:
    model, X, Y = world
    scores = model.decision_function(X)
    curve = model.automation([0.8, 0.9])["labels"]
    assert curve
    for one in curve:
        kept = scores > one["threshold"] - 1e-9
        right = SPARSE(Y.multiply(kept)).sum()
        assert right / kept.sum() > one["precision"] - 0.05
        assert right / Y.nnz == pytest.approx(one["share"], abs=0.05)


def test_a_curve_gives_the_largest_share_with_a_precision() -> None:
    level, ones = np.linspace(1, 0.01, 2000), np.ones(2000)
    right = (np.arange(2000) < 1000).astype(float)
    curve = Curve.of(level, right, ones, ones, 2000)
    assert curve.at(1.0) is None  # a thousand labels that are right do not show that all are
    sure = curve.at(0.99)
    assert sure is not None
    assert sure["precision"] >= sure["least"] >= 0.99
    assert sure["share"] == pytest.approx(0.5, abs=2e-3)
    most = curve.at(0.48)
    assert most is not None
    assert most["share"] == 1
    assert Curve.of(level, 0 * right, ones, ones, 2000).at(0.5) is None


@pytest.mark.parametrize("together", [1, 5])
def test_a_promised_precision_is_reached_in_nineteen_of_twenty_draws(together: int) -> None:
    """Labels of one row may be right or wrong `together`, so that a row says no more than one label."""
    rng, kept = np.random.default_rng(0), []
    for _ in range(300):
        level = rng.random(3000)  # the probability that a label is right
        row = np.arange(3000)
        right = (rng.random(3000) < level).astype(float)
        level, right, row = np.repeat(level, together), np.repeat(right, together), np.repeat(row, together)
        one = Curve.of(level, right, np.ones(len(level)), right, right.sum(), row=row).at(0.8)
        assert one is not None
        kept.append((1 + one["threshold"]) / 2 >= 0.8)  # the mean of all probabilities above the threshold
    assert np.mean(kept) > 0.92


def topics(seed: int, n: int) -> tuple[Any, Any]:
    """Rows of twenty topics of a hundred labels each, of which a row has two: more than there are candidates."""
    rng = np.random.default_rng(seed)
    topic = rng.integers(0, 20, n)
    labels = 100 * topic[:, None] + rng.permuted(np.tile(np.arange(100), (n, 1)), axis=1)[:, :2]
    Y = SPARSE((np.ones(2 * n, np.float32), labels.ravel(), np.arange(0, 2 * n + 1, 2)), shape=(n, 2000))
    return np.random.default_rng(0).standard_normal((20, 30))[topic] + 0.7 * rng.standard_normal((n, 30)), Y


@pytest.mark.parametrize("preset", [RIPML, RIPML.linear])
def test_labels_beyond_the_candidates_are_taken_by_what_is_near_before_what_is_frequent(
    preset: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, Y = topics(1, 2500)
    model = preset(random_state=0).fit(X[:1500], Y[:1500])
    known = SPARSE(Y[1500:].multiply(model.frequency_ > 0))
    known.eliminate_zeros()
    some = np.flatnonzero(np.diff(known.indptr))
    sets = model.predict(X[1500:], coverage=0.8)
    assert found_share(known[some], sets[some]) == pytest.approx(0.8, abs=0.04)
    assert sets.nnz / 1000 == pytest.approx(model.guarantee(0.8)["labels_per_set"], rel=0.15)
    assert (model.predict(X[1500:1503], coverage=0.8) != sets[:3]).nnz == 0
    scored = model.covered(model.decision_function(X[1500:]), X[1500:], 0.8)
    assert 0 <= scored.data.min() <= scored.data.max() <= 1
    monkeypatch.setattr("ripml.model.fitting.fit_others", lambda *_: None)
    by_frequency = preset(random_state=0).fit(X[:1500], Y[:1500]).predict(X[1500:], coverage=0.8)
    assert found_share(known[some], by_frequency[some]) == pytest.approx(0.8, abs=0.04)
    assert sets.nnz < 0.2 * by_frequency.nnz


def test_the_levels_of_a_row_are_by_weights_that_were_learnt_without_it() -> None:
    rng = np.random.default_rng(0)
    n, table = 400, np.hstack([np.ones((8000, 1)), rng.standard_normal((8000, N_WEIGHTS - 1))])
    row, right = rng.integers(0, n, 8000), rng.random(8000) < 1 / (1 + np.exp(1 - table[:, 1] + table[:, 2] / 2))
    weight = np.where(right, 1.0, 30.0)
    weights, without = logistic(table, right, weight, row, n)
    for i in (0, 17, 399):
        rest = row != i
        refitted, _ = logistic(table[rest], right[rest], weight[rest], row[rest], n)
        assert np.abs(without[i] - refitted).max() < 0.1 * np.abs(weights - refitted).max()


def test_labels_without_a_near_row_have_weights_of_their_own() -> None:
    X, Y = topics(1, 2500)
    model = RIPML(random_state=0).fit(X, Y)
    weights = np.zeros(N_WEIGHTS)
    weights[8:10] = -3, 2
    levels = model.model_.levels(X[:20], weights)
    features = model.model_.features(SPARSE(X[:20]))
    shares = model.model_.decoder.surroundings(model.model_.clusters[0], features).wider.toarray()
    far = (shares <= 0) & (model.frequency_ > 0)
    assert far.any()
    frequency = np.broadcast_to(model.frequency_, far.shape)[far]
    assert np.exp(levels[far]) == pytest.approx(1 / (1 + np.exp(3) / frequency**2), abs=1e-5)
    assert np.exp(levels[shares > 0]) == pytest.approx(0.5)


def test_a_folder_of_an_earlier_version_orders_other_labels_by_frequency() -> None:
    X, Y = topics(1, 1500)
    model = RIPML.linear(random_state=0).fit(X, Y)
    parameters, arrays = model.to_state()
    curves = {name: arrays[name][:3] for name in ("guarantee_tags", "guarantee_documents")}
    arrays = {name: array for name, array in (arrays | curves).items() if name != "guarantee_beyond"}
    early = RIPML.from_state(parameters, arrays)
    guarantees = early.model_.calibration.guarantees
    assert guarantees is not None
    assert not len(guarantees.beyond)
    assert np.array_equal(guarantees.tags.least, guarantees.tags.precision)
    scores = early.decision_function(X[:20])
    by_frequency = sets_above(scores, guarantees.level_for(0.9)[0], early.frequency_)
    assert (early.predict(X[:20], coverage=0.9) != indicator(by_frequency)).nnz == 0
    with pytest.raises(ModelFolderError, match="5 weights of labels beyond the candidates"):
        RIPML.from_state(parameters, {**arrays, "guarantee_beyond": np.zeros(5)})


def test_a_coverage_that_left_out_rows_do_not_allow_is_refused_with_the_most_that_they_do() -> None:
    X, Y = generate(60, n_features=10, n_labels=8, labels_per_row=2.0, n_topics=3)
    model = RIPML.linear(random_state=0).fit(X, Y)
    with pytest.raises(ParameterError, match=r"0.99 cannot be guaranteed with 60 left-out rows; the most is 0\.983"):
        model.predict(X, coverage=0.99)


@pytest.mark.parametrize("coverage", [0, 1, 1.5, "0.9", float("nan")])
def test_a_coverage_is_a_number_between_0_and_1(world: tuple[RIPML, Any, Any], coverage: Any) -> None:
    with pytest.raises(ParameterError, match="`coverage` must be a number between 0 and 1; got"):
        world[0].predict(world[1], coverage=coverage)


def test_who_cannot_promise_says_so(world: tuple[RIPML, Any, Any]) -> None:
    model, X, Y = world
    with pytest.raises(ParameterError, match=r"scores with tail=0; got tail=0\.5"):
        RIPML.linear(tail=0.5, random_state=0).fit(X[:200], Y[:200]).predict(X, coverage=0.8)
    with pytest.raises(ParameterError, match="`coverage` needs a RIPML model; Popularity keeps no scores"):
        Popularity().fit(X[:200], Y[:200]).covered(model.decision_function(X), X, 0.8)


def test_saved_and_loaded_it_promises_the_same(world: tuple[RIPML, Any, Any], tmp_path: Path) -> None:
    model, X, _ = world
    for compact in (False, True):
        model.save(tmp_path / str(compact), compact=compact)
        loaded = load(tmp_path / str(compact))
        assert loaded.guarantee(0.8) == model.guarantee(0.8)
        assert loaded.automation() == model.automation()
    assert (loaded.predict(X[:50], coverage=0.8) != model.predict(X[:50], coverage=0.8)).nnz < 10  # rounded


def test_a_folder_of_an_earlier_version_says_that_it_must_be_fitted_again(
    world: tuple[RIPML, Any, Any], tmp_path: Path
) -> None:
    model, X, _ = world
    parameters, arrays = model.to_state()
    early = RIPML.from_state(parameters, {k: a for k, a in arrays.items() if not k.startswith("guarantee")})
    assert early.predict(X[:5]).shape == (5, 60)
    with pytest.raises(ParameterError, match="fitted by a version that kept no scores of left-out rows"):
        early.predict(X[:5], coverage=0.8)
    with pytest.raises(ModelFolderError):
        RIPML.from_state(parameters, {**arrays, "guarantee_ends": arrays["guarantee_ends"][:-3]})


def test_labels_that_come_and_go_keep_the_promises_of_the_others(world: tuple[RIPML, Any, Any]) -> None:
    _, X, Y = world
    names = [[f"label {label}" for label in row] for row in np.split(Y.indices, Y.indptr[1:-1])]
    named = RIPML.linear(random_state=0).fit(X[:600], names[:600])
    before = named.guarantee(0.8)
    named.add_labels(["other", "another"])
    assert named.guarantee(0.8)["labels_alone"] == before["labels_alone"]
    levels = named.model_.calibration.guarantees
    named.partial_fit(X[600:601], [["other"]]).drop_labels(["another"])
    after = named.model_.calibration.guarantees
    assert levels is not None
    assert after is not None
    assert np.array_equal(after.carried_levels, levels.carried_levels)
    assert named.predict(X[:5], coverage=0.8).shape == (5, len(named.classes_))


def test_a_tagger_gives_sets_of_tags() -> None:
    rng = np.random.default_rng(0)
    topics = {f"topic{t}": [f"word{t}x{i}" for i in range(12)] for t in range(6)}
    texts, tags = [], []
    for _ in range(500):
        some = sorted(rng.choice(list(topics), rng.integers(1, 3), replace=False))
        texts.append(" ".join(rng.choice([w for t in some for w in topics[t]], 8)))
        tags.append(some)
    tagger = Tagger().fit(texts[:300], tags[:300])
    found = tagger.predict(texts[300:], coverage=0.9)
    pairs = zip(found, tags[300:], strict=True)
    assert np.mean([len({tag for tag, _ in row} & set(right)) / len(right) for row, right in pairs]) > 0.84
    assert tagger.suggest(texts[300], coverage=0.9) == found[0]
    assert sorted(tagger.automation([0.9])) == ["labels", "rows"]


@needs_data
def test_bibtex_and_the_shell(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    train, test = (datasets.read(data_folder() / "bibtex" / f"{part}.txt.gz") for part in ("train", "test"))
    model = RIPML.linear(random_state=0).fit(train.X, train.Y)
    for coverage in (0.8, 0.9):
        assert abs(found_share(test.Y, model.predict(test.X, coverage=coverage)) - coverage) < 0.025
    model.save(tmp_path / "model")
    shell("automation", tmp_path / "model", "--precision", "0.9", "--json")
    assert json.loads(capfd.readouterr().out) == model.automation([0.9])
    shell("automation", tmp_path / "model")
    assert "rows that can be applied unseen" in capfd.readouterr().out
    few = tmp_path / "few.jsonl"
    few.write_text(json.dumps({"features": test.X[:1].toarray().ravel().tolist(), "labels": []}) + "\n")
    shell("predict", tmp_path / "model", few, "--coverage", "0.8", "--json")
    labels = [pair["label"] for pair in json.loads(capfd.readouterr().out)["labels"]]
    assert sorted(map(int, labels)) == model.predict(test.X[:1], coverage=0.8).indices.tolist()


def test_a_model_of_few_rows_promises_nothing_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    RIPML(random_state=0).fit(np.eye(4), [["a"], ["b"], ["a"], ["b"]]).save(tmp_path / "model")
    shell("automation", tmp_path / "model")
    assert "labels that can be applied unseen: too few left-out rows" in capsys.readouterr().out
