"""Phi: a rule for columns that is the same everywhere, its statistics, its guarantees, and the isometry measured."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from itertools import pairwise
from typing import Any

import laws
import numpy as np
import pytest
import scipy.sparse
import scipy.stats
import worlds
from hypothesis import given, settings
from hypothesis import strategies as st

from ripml.base.errors import DataError, ParameterError
from ripml.base.products import column_counts
from ripml.base.registry import resolve
from ripml.labels import ensembles, isometry
from ripml.labels.encoding import label_keys
from ripml.labels.ensembles import Bernoulli, Ensemble, Gaussian, Identity, PolynomialPhase, SparseSign, Structured, mix
from ripml.labels.isometry import Isometry, measure_isometry, smallest_dims
from ripml.labels.projection import Embedder, Projection

# One of each family, and the sha256 of the columns of keys 0 … 19 in 37 dimensions with seed 123456789.
GOLDEN = {
    Gaussian(): "9c23750cfac4c692e713f678822b22a043585e881646a0831d6e4e3eb163f9d2",
    Bernoulli(): "372777d62340b7cf3bfa97040cf7355ad08b3c477d16dfb384af6e3df2dfbbb5",
    SparseSign(): "1fb4d79036f3bb817e752a8b3aaf43fddb30aeb3141303dad647c5b3a3faa88e",
    SparseSign(n_nonzeros=3): "34259c0aa0d007d57ce4e7457ab63b3fa751c453467956e800ffe2f3651fcdf5",
    Structured(): "3b84e5d87e8bc35fd0c5715786a577aef4f4572209cd24068847ea2884aadf43",
    PolynomialPhase(): "8ed12f65f763fcb2dc725337e31f8e543404c8e099685c152cb76308a4d867e1",
    PolynomialPhase(degree=2): "c506612f3f84a8f44c6f202f6b8ca1678a58a713f55d9ad980b3b7f850c8a4d3",
}
FAMILIES = list(GOLDEN)
KEYS = np.arange(2500, dtype=np.uint64)  # more than two blocks of columns
HASHED = label_keys(np.array([*(f"name {number}" for number in range(2500)), None], object)[:-1])
DIGEST = """
import hashlib, numpy as np
from ripml.labels.ensembles import *
print(hashlib.sha256({}.columns(np.arange(20, dtype=np.uint64), 37, seed=123456789).tobytes()).hexdigest())
"""


def keys_for(ensemble: Ensemble, n: int = 2500) -> Any:
    """Keys like those of named labels, or label numbers for a family with a capacity."""
    return KEYS[:n] if ensemble.capacity(64) is not None else HASHED[:n]


@pytest.mark.parametrize("ensemble", FAMILIES, ids=repr)
class TestEveryFamily:
    @pytest.mark.parametrize("n_dims", [60, 101])
    def test_a_column_depends_on_seed_and_key_alone(self, ensemble: Ensemble, n_dims: int) -> None:
        laws.a_column_depends_on_seed_and_key_alone(ensemble, n_dims, keys_for(ensemble, 800))

    def test_columns_do_not_depend_on_threads(self, ensemble: Ensemble) -> None:
        laws.columns_do_not_depend_on_threads(ensemble, 101, keys_for(ensemble, 2200))

    @pytest.mark.parametrize("n_dims", [60, 101])
    def test_columns_have_length_one_on_average(self, ensemble: Ensemble, n_dims: int) -> None:
        laws.columns_have_length_one_on_average(ensemble, n_dims, keys_for(ensemble, 800))

    def test_fewer_learners_are_the_first_of_more(self, ensemble: Ensemble) -> None:
        laws.fewer_learners_are_the_first_of_more(ensemble, 60, keys_for(ensemble, 50))

    def test_learners_and_seeds_differ(self, ensemble: Ensemble) -> None:
        laws.learners_and_seeds_differ(ensemble, 60, keys_for(ensemble, 500))

    def test_an_embedding_is_the_dense_formula(self, ensemble: Ensemble) -> None:
        Y = worlds.zipf_labels(2100, 80).tolil()
        Y[[0, 7, 2099]] = 0  # rows without labels, first and last among them
        Y = scipy.sparse.csr_array(Y.tocsr())
        Y.eliminate_zeros()
        laws.an_embedding_is_the_dense_formula(ensemble, 60, Y, keys_for(ensemble, 80))

    def test_an_embedding_in_bounded_memory_is_the_same(self, ensemble: Ensemble) -> None:
        Y, keys = worlds.zipf_labels(300, 80), keys_for(ensemble, 80)
        Y = scipy.sparse.vstack([Y] * 8, format="csr")  # past the 2048 rows of a block
        projection = Projection(ensemble, 60, 1, seed=3)
        expected = np.tile(projection.embed(Y[:300], keys), (8, 1))
        np.testing.assert_array_equal(projection.embed(Y, keys), expected)
        Z = np.empty_like(expected)
        Embedder(projection, keys, column_counts(Y), table_bytes=1).fill(Z, Y)  # sums in another order
        np.testing.assert_allclose(Z, expected, atol=1e-6)

    def test_no_labels_at_all_embed_to_zero(self, ensemble: Ensemble) -> None:
        Y = scipy.sparse.csr_array((3, 5), dtype=np.float32)
        np.testing.assert_array_equal(Projection(ensemble, 60, 2, 0).embed(Y, KEYS[:5]), np.zeros((3, 120)))

    def test_columns_are_those_of_every_other_machine_and_version(self, ensemble: Ensemble) -> None:
        columns = ensemble.columns(KEYS[:20], 37, seed=123456789)
        assert hashlib.sha256(columns.astype("<f4").tobytes()).hexdigest() == GOLDEN[ensemble]

    def test_another_process_makes_the_same_columns(self, ensemble: Ensemble) -> None:
        code = DIGEST.format(ensemble)
        environment = {"PYTHONHASHSEED": "4242", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        run = subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, check=True
        )
        assert run.stdout.strip() == GOLDEN[ensemble]

    def test_a_seed_of_any_size_is_accepted(self, ensemble: Ensemble) -> None:
        for seed in (0, 2**62, 2**64 - 1):
            assert np.isfinite(Projection(ensemble, 60, 2, seed).columns(KEYS[:3])).all()


# --------------------------------------------------------------------------------------------- one family at a time


def test_gaussian_entries_pass_for_normal_at_a_million_samples() -> None:
    m = 400
    sample = Gaussian().columns(HASHED, m, seed=1).astype(np.float64).ravel() * np.sqrt(m)
    assert len(sample) == 1_000_000
    assert scipy.stats.kstest(sample, "norm").pvalue > 1e-3
    assert abs(sample.mean()) < 5e-3
    assert abs(sample.var() - 1) < 7e-3
    assert abs(scipy.stats.kurtosis(sample, fisher=False) - 3) < 0.025
    assert 4 < np.abs(sample).max() < 4.4


def test_gaussian_entries_of_a_column_and_of_neighbouring_keys_are_uncorrelated() -> None:
    columns = Gaussian().columns(KEYS, 400, seed=1).astype(np.float64) * 20
    for one, other in (
        (columns[:, :-1], columns[:, 1:]),
        (columns[:, :-4], columns[:, 4:]),
        (columns[:-1], columns[1:]),
    ):
        assert abs(np.mean(one * other)) < 5 / np.sqrt(one.size)


def test_gaussian_quantiles_have_variance_one_and_the_stated_kurtosis() -> None:
    quantiles = ensembles._normal_quantiles().astype(np.float64)
    assert quantiles.var() == pytest.approx(1, abs=1e-6)
    assert np.mean(quantiles**4) == pytest.approx(2.999, abs=5e-4)


def test_bernoulli_entries_are_plus_and_minus_one_over_root_m_in_equal_numbers() -> None:
    columns = Bernoulli().columns(HASHED, 100, seed=1)
    values, counts = np.unique(columns, return_counts=True)
    np.testing.assert_array_equal(values, np.array([-0.1, 0.1], np.float32))
    assert abs(counts[0] - counts[1]) < 5 * np.sqrt(columns.size)


@pytest.mark.parametrize(("s", "m"), [(1, 10), (3, 10), (8, 100), (8, 8), (8, 5)])
def test_sparse_columns_have_one_entry_a_stripe(s: int, m: int) -> None:
    columns = SparseSign(s).columns(HASHED[:500], m, seed=1)
    stripes = min(s, m)
    edges = [stripe * m // stripes for stripe in range(stripes + 1)]
    for start, end in pairwise(edges):
        np.testing.assert_array_equal(np.count_nonzero(columns[:, start:end], axis=1), 1)
    np.testing.assert_allclose(np.abs(columns[columns != 0]), stripes**-0.5, rtol=1e-6)
    where = np.count_nonzero(columns, axis=0)
    assert where.min() > 0  # every place of a stripe is taken by some of 500 labels
    assert abs(int((columns > 0).sum()) - int((columns < 0).sum())) < 5 * np.sqrt(500 * stripes)


@pytest.mark.parametrize("m", [1, 2, 16, 64, 256])
def test_structured_columns_of_a_power_of_two_are_orthogonal(m: int) -> None:
    for seed in range(5):
        columns = Structured().columns(KEYS[:m], m, seed).astype(np.float64)
        np.testing.assert_allclose(columns @ columns.T, np.eye(m), atol=1e-6)


def test_structured_columns_are_orthogonal_up_to_the_rows_left_over() -> None:
    columns = Structured().columns(KEYS[:64], 80, seed=1).astype(np.float64)
    overlap = np.abs(columns @ columns.T - np.eye(64))
    assert overlap.max() <= 16 / 80 + 1e-6


def test_structured_columns_use_every_bit_of_a_key() -> None:
    keys = np.uint64(1) << np.arange(64, dtype=np.uint64)
    columns = Structured().columns(keys, 256, seed=1).astype(np.float64)
    assert np.abs(columns @ columns.T - np.eye(64)).max() < 0.4


@pytest.mark.parametrize(("degree", "m"), [(1, 26), (2, 22), (2, 27), (3, 14)])
def test_deterministic_columns_are_all_different_and_keep_weils_bound(degree: int, m: int) -> None:
    ensemble = PolynomialPhase(degree)
    capacity = ensemble.capacity(m)
    assert capacity is not None
    for seed in (0, 1, 2**64 - 1):
        columns = ensemble.columns(np.arange(capacity, dtype=np.uint64), m, seed).astype(np.float64)
        products = columns @ columns.T
        np.testing.assert_allclose(products.diagonal(), 1, atol=1e-6)
        np.fill_diagonal(products, 0)
        assert np.abs(products).max() <= ensemble.coherence(m) + 1e-6
        assert len(np.unique(columns.round(5), axis=0)) == capacity


@pytest.mark.parametrize(("m", "prime"), [(6, 0), (10, 5), (14, 7), (100, 47), (101, 47), (106, 53)])
def test_the_capacity_of_the_deterministic_family_is_a_power_of_the_largest_prime_up_to_half_m(
    m: int, prime: int
) -> None:
    assert PolynomialPhase(degree=3).capacity(m) == prime**3


def test_a_capacity_too_small_is_refused_with_the_remedy() -> None:
    sentence = (
        r"^PolynomialPhase\(degree=2\) holds 121 labels at n_dims = 22; got 122: raise `n_dims`, or use "
        r"ensemble='gaussian', which has no limit\.$"
    )
    Projection(PolynomialPhase(2), 22, 1, 0).check_capacity(121)
    with pytest.raises(ParameterError, match=sentence):
        Projection(PolynomialPhase(2), 22, 1, 0).check_capacity(122)
    with pytest.raises(ParameterError, match=sentence):
        PolynomialPhase(2).columns(np.array([3, 121], np.uint64), 22, seed=0)
    with pytest.raises(ParameterError, match="holds 0 labels at n_dims = 3; got 1: raise `n_dims`"):
        PolynomialPhase(2).columns(np.array([0], np.uint64), 3, seed=0)


def test_the_identity_gives_each_label_a_dimension_of_its_own() -> None:
    for seed in (0, 2**64 - 1):
        np.testing.assert_array_equal(Identity().columns(KEYS[:7], 7, seed), np.eye(7))
        columns = Identity().columns(np.array([4, 0, 4], np.uint64), 9, seed)
        assert columns.dtype == np.float32
        np.testing.assert_array_equal(columns, np.eye(9)[[4, 0, 4]])
    assert resolve("ensemble", "identity") == Identity()


def test_the_identity_embeds_label_sets_as_they_are() -> None:
    Y = worlds.zipf_labels(2100, 80).tolil()
    Y[[0, 2099]] = 0
    Y = scipy.sparse.csr_array(Y.tocsr())
    Y.eliminate_zeros()
    laws.an_embedding_is_the_dense_formula(Identity(), 80, Y, KEYS[:80])
    length = np.sqrt(Y.toarray().sum(axis=1, keepdims=True))
    expected = Y.toarray() / np.where(length, length, 1)
    np.testing.assert_allclose(Projection(Identity(), 80, 1, 0).embed(Y, KEYS[:80]), expected, rtol=1e-6)


def test_the_identity_obeys_the_laws_that_are_not_about_chance() -> None:
    laws.a_column_depends_on_seed_and_key_alone(Identity(), 101, KEYS[:101])
    laws.columns_do_not_depend_on_threads(Identity(), 2500, KEYS[:2200])
    laws.columns_have_length_one_on_average(Identity(), 101, KEYS[:101])
    laws.fewer_learners_are_the_first_of_more(Identity(), 60, KEYS[:50])


def test_the_identity_keeps_all_distances_in_as_many_dimensions_as_labels() -> None:
    Y = worlds.zipf_labels(n_labels=100)
    np.testing.assert_allclose(measure_isometry(Identity(), 100, Y, KEYS[:100]).ratios, 1, atol=1e-5)
    assert smallest_dims(Identity(), 0.1, Y, KEYS[:100], n_pairs=200) == 100


def test_the_identity_holds_one_label_a_dimension() -> None:
    for n_dims in (1, 7, 4096):
        assert Identity().capacity(n_dims) == n_dims
    Projection(Identity(), 7, 1, 0).check_capacity(7)
    sentence = (
        r"^Identity\(\) holds 7 labels at n_dims = 7; got 8: raise `n_dims`, or use ensemble='gaussian', which has"
    )
    with pytest.raises(ParameterError, match=sentence):
        Projection(Identity(), 7, 1, 0).check_capacity(8)
    with pytest.raises(ParameterError, match=sentence):
        Identity().columns(KEYS[:8], 7, seed=0)


def test_random_families_have_no_capacity() -> None:
    for word in ("gaussian", "bernoulli", "sparse", "structured"):
        assert resolve("ensemble", word).capacity(1) is None


def test_words_name_families_and_others_are_refused() -> None:
    assert resolve("ensemble", "deterministic") == PolynomialPhase()
    assert resolve("ensemble", SparseSign(2)) == SparseSign(2)
    for wrong in ("normal", None, 3, Gaussian):
        with pytest.raises(ParameterError, match="`ensemble` must be one of gaussian, bernoulli, sparse, structured"):
            resolve("ensemble", wrong)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "8", True, None])
def test_options_of_families_are_checked(wrong: Any) -> None:
    with pytest.raises(ParameterError, match="`n_nonzeros` must be an integer ≥ 1; got"):
        SparseSign(wrong)
    with pytest.raises(ParameterError, match="`degree` must be an integer ≥ 1; got"):
        PolynomialPhase(wrong)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 2**64 - 1), min_size=2, max_size=50, unique=True))
def test_mixing_is_one_to_one(numbers: list[int]) -> None:
    assert len(set(mix(np.array(numbers, np.uint64)).tolist())) == len(numbers)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 70), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_every_size_seed_and_key_gives_a_column_of_length_about_one(n_dims: int, seed: int, key: int) -> None:
    for ensemble in (Bernoulli(), SparseSign(), Structured()):
        column = ensemble.columns(np.array([key], np.uint64), n_dims, seed)
        assert np.square(column).sum() == pytest.approx(1, rel=1e-5)
    assert np.isfinite(Gaussian().columns(np.array([key], np.uint64), n_dims, seed)).all()


# ----------------------------------------------------------------------------------------------------- the isometry


@pytest.mark.parametrize("ensemble", FAMILIES, ids=repr)
def test_distances_survive_better_the_more_dimensions_there_are(ensemble: Ensemble) -> None:
    Y, keys = worlds.zipf_labels(), keys_for(ensemble, 100)
    deltas = []
    for m in (32, 128, 512):
        isometry = measure_isometry(ensemble, m, Y, keys)
        assert isometry.n_dims == m
        assert abs(np.median(isometry.ratios) - 1) < 2 / np.sqrt(m)
        deltas.append(isometry.delta())
    assert deltas[0] > 1.4 * deltas[1] > 1.4**2 * deltas[2]
    assert deltas[1] < 4 / np.sqrt(128)


def test_isometry_ratios_are_those_of_the_definition() -> None:
    Y = scipy.sparse.csr_array(np.array([[1, 1, 0], [0, 0, 1]], np.float32))
    isometry = measure_isometry(Gaussian(), 9, Y, KEYS[:3], n_pairs=10)
    Phi = Projection(Gaussian(), 9, 1, seed=0).columns(KEYS[:3]).astype(np.float64).T
    difference = np.array([1, 1, 0]) / np.sqrt(2) - np.array([0, 0, 1])
    np.testing.assert_allclose(isometry.ratios, np.square(Phi @ difference).sum() / 2, rtol=1e-5)
    assert 0 < len(isometry.ratios) <= 10  # pairs of a row with itself say nothing


def test_delta_is_the_quantile_of_the_distance_from_one() -> None:
    isometry = Isometry(1, np.array([0.9, 1.0, 1.3, 1.1, 0.8]))
    assert isometry.delta(1.0) == pytest.approx(0.3)
    assert isometry.delta(0.5) == pytest.approx(0.1)


@pytest.mark.parametrize("ensemble", [Gaussian(), Bernoulli(), SparseSign(), PolynomialPhase()], ids=repr)
@pytest.mark.parametrize("delta", [0.25, 0.6])
def test_the_smallest_dims_reach_the_delta_they_promise_and_hardly_any_fewer_do(
    ensemble: Ensemble, delta: float
) -> None:
    Y, keys = worlds.zipf_labels(), keys_for(ensemble, 100)
    m = smallest_dims(ensemble, delta, Y, keys, n_pairs=500)
    assert measure_isometry(ensemble, m, Y, keys, n_pairs=500).delta() <= delta
    for fewer in np.linspace(0.5 * m, 0.9 * m, 9).astype(int):
        capacity = ensemble.capacity(int(fewer))
        if capacity is None or capacity >= 100:
            assert measure_isometry(ensemble, int(fewer), Y, keys, n_pairs=500).delta() > 0.97 * delta


def test_the_smallest_dims_of_a_very_loose_delta_are_very_few() -> None:
    Y = scipy.sparse.csr_array(np.eye(4, dtype=np.float32))
    m = smallest_dims(Bernoulli(), 0.99, Y, KEYS[:4], quantile=0.5)
    assert m <= 8
    assert measure_isometry(Bernoulli(), m, Y, KEYS[:4]).delta(0.5) <= 0.99


def test_the_smallest_dims_of_a_deterministic_family_hold_all_labels() -> None:
    Y, keys = worlds.zipf_labels(n_labels=100), KEYS[:100]
    m = smallest_dims(PolynomialPhase(2), 0.9, Y, keys, n_pairs=200)
    capacity = PolynomialPhase(2).capacity(m)
    assert capacity is not None
    assert capacity >= 100


def test_what_the_isometry_cannot_do_is_said_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    Y = worlds.zipf_labels(50, 20)
    for delta in (0, 1, -0.5, float("nan")):
        with pytest.raises(ParameterError, match="`delta` must be between 0 and 1; got"):
            smallest_dims(Gaussian(), delta, Y, KEYS[:20])
    monkeypatch.setattr(isometry, "_MOST_DIMS", 64)
    with pytest.raises(ParameterError, match=r"δ = 0.01 is not reached with 64 dimensions; choose a larger δ\."):
        smallest_dims(Gaussian(), 0.01, Y, KEYS[:20])
    with pytest.raises(DataError, match=r"the isometry needs two rows with labels; got 1\."):
        measure_isometry(Gaussian(), 5, scipy.sparse.csr_array(np.array([[1.0, 0], [0, 0]])), KEYS[:2])
    with pytest.raises(DataError, match="the isometry needs rows with different labels; all rows drawn carry the same"):
        measure_isometry(Gaussian(), 5, scipy.sparse.csr_array(np.ones((4, 2))), KEYS[:2])
