"""Why a label was suggested: the training rows and label sets that spoke for it, and the features that pulled to it.

A score is made of signals, and most signals are sums over examples: with w the weights of label sets near in the
embedding ("votes"), of rows of similar features ("similar") or of rows that are solved nearby ("local"), and y the
labels that each carries,

    signal_l = Σ_i w_i y_il,    and of kernel regression    value_l = Σ_i K(x, xᵢ)·⟨C_i, g_l⟩    ("kernel").

The score is shared out among the signals in proportion to what is positive of each, and within a signal in proportion
to the positive terms of its sum; with decoder="votes" the shares are the weights of the votes themselves. The terms of
kernel regression are the representer values of Yeh et al. (2018).

The regression reads a label as a linear functional of the embedding, value_l = ⟨g_l, ẑ⟩ with g_l a unit vector
(identity), Φ_l/F (sketch) or a row of (Φ_SᵀΦ_S + εI)⁻¹Φ_Sᵀ (least squares on the candidates S). So of a linear one each
feature's part is known, x_j·⟨Psi_j, g_l⟩. The kernel K = K₀·exp(2γ⟨x, xᵢ⟩), K₀ = exp(−γ(‖x‖² + ‖xᵢ‖²)), is K₀ for rows
that share nothing with x, which is an intercept; the rest comes from shared features, in proportion to x_j·xᵢ_j:

    pull_j = x_j Σ_i xᵢ_j·K₀·(exp(2γ⟨x, xᵢ⟩) − 1)/⟨x, xᵢ⟩·⟨C_i, g_l⟩.

These are the integrated gradients of Sundararajan et al. (2017) at lengths held fixed, in closed form; for small γ they
are the pulls of a linear regression.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.base.errors import check_count
from ripml.base.parallel import blocks
from ripml.decoding import scores as decoding
from ripml.decoding.decoders import Blend, Votes, resolve_decoder
from ripml.model.part import Decode, Part
from ripml.model.probing import probed_votes
from ripml.regression.kernels import RBF, Linear, Local, squared_lengths

__all__ = ["Example", "Explanation", "explain", "explained"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_ROW_BLOCK = 4096  # training rows whose features are compared at a time


@dataclass(frozen=True)
class Example:
    """A training row, or a label set that stands for all rows of a cluster that carry it, and its part of a score."""

    labels: tuple[Any, ...]  # names that it carries
    share: float  # its part of the score
    n_rows: int  # training rows that it stands for
    row: int | None  # the number of the training row among all learnt from; None for a label set
    cluster: int
    how: str  # "votes", "similar", "kernel" and "local", joined by "+" where it speaks in several ways


@dataclass(frozen=True)
class Explanation:
    """Why a label has its score: Σ shares of `examples` + `others` + `regression` = `score`, and none is negative."""

    label: Any
    score: float
    examples: list[Example]  # those of the largest shares
    others: float  # the share of all further examples together
    regression: float  # the share of a linear regression, which keeps no examples: its features say why
    features: list[tuple[Any, float]]  # by name or number, how far each pulled towards the label; < 0 is away from it
    value: float  # what the regression says of the label: the sum of the pulls of all features and the intercept
    intercept: float  # with a kernel, what it would say of a row of that length that has none of the known features

    def to_json(self) -> dict[str, Any]:
        """As JSON values.

        >>> Explanation("tea", 0.5, [Example(("tea",), 0.3, 2, None, 0, "votes")], 0.2, 0.0, [], 0.4, 0.4).to_json()
        {'label': 'tea', 'score': 0.5, 'examples': [{'labels': ['tea'], 'share': 0.3, 'n_rows': 2, 'row': None,
         'cluster': 0, 'how': 'votes'}], 'others': 0.2, 'regression': 0.0, 'features': [], 'value': 0.4,
         'intercept': 0.4}
        """
        examples = [asdict(example) | {"labels": list(example.labels)} for example in self.examples]
        return asdict(self) | {"examples": examples, "features": [list(pair) for pair in self.features]}


def explain(model: Any, X: Any, n: int = 5, n_examples: int = 5, n_features: int = 10) -> list[list[Explanation]]:
    """For each row of X, why each of its n best labels has its score: those that `model.recommend(X, n)` has.

    `n_examples` and `n_features` are listed of each label, the largest first. If no signal says yes to a label (which
    trees may still give some chance), its score goes to the rows of a kernel by the size of their terms, whatever the
    sign, and to `regression` where there is no kernel.

    >>> from ripml import RIPML
    >>> X, Y = [[1, 0], [0.9, 0.1], [0, 1], [0.1, 0.9]], [["tea"], ["tea", "hot"], ["ice"], ["ice", "cold"]]
    >>> model = RIPML.paper(n_dims=8, n_neighbors=2, random_state=0).fit(X, Y)
    >>> [why] = explain(model, [[1, 0.05]], n=1)[0]
    >>> why.label, [(example.labels, round(example.share, 2)) for example in why.examples]
    ('tea', [(('hot', 'tea'), 0.5), (('tea',), 0.5)])
    >>> [feature for feature, pull in why.features if pull > 0]
    [0]
    """
    check_count("n", n)
    return explained(model, X, decoding.top(model.decision_function(X), n), n_examples, n_features)


def explained(model: Any, X: Any, best: Any, n_examples: int, n_features: int) -> list[list[Explanation]]:
    """The same of these scores, CSR (n, L), each row in the order in which its labels are explained."""
    for name, value in {"n_examples": n_examples, "n_features": n_features}.items():
        check_count(name, value)
    found: list[list[Explanation]] = [[] for _ in range(best.shape[0])]
    if not best.nnz:
        return found
    X, near, how = _prepared(model, X)
    listener = _Listener(model, how)
    for row, heard in listener.heard(X, near, np.flatnonzero(np.diff(best.indptr))):
        own = slice(best.indptr[row], best.indptr[row + 1])
        labels, scores = best.indices[own].astype(np.int64), best.data[own].tolist()
        found[row] = listener.explained(heard, X[row : row + 1], labels, scores, n_examples, n_features)
    return found


def _prepared(model: Any, X: Any) -> tuple[Any, Ints, Decode]:
    """Rows as the regression sees them, the clusters near to each, nearest first, and how their embeddings are read."""
    X = model._seen(model._validated(X, reset=False))
    return X, model._nearest_clusters(X), model._how()


# ------------------------------------------------------------------------------------------------- who speaks for what


class _Heard(NamedTuple):
    """What there is to be heard about one row.

    A speaker is a row of the row's own cluster, by its place there, or a label set, by −1 − its number over all
    clusters.
    """

    cluster: int
    voices: dict[str, tuple[Ints, Floats]]  # of each signal, who speaks, and with what weight for the labels it carries
    likeness: NDArray[Any] | None  # the kernel with all rows of the cluster, where regression is by kernel
    candidates: Ints | None  # the labels that least squares sees


class _Listener:
    """A model, arranged so that it says who speaks instead of what is said.

    Every signal is a product W·sets. With the identity in place of `sets` the model's own code gives W: the weight of
    each label set, or of each row if each has a set of its own. The model was asked for scores before, so the searchers
    that are needed are there.
    """

    def __init__(self, model: Any, how: Decode) -> None:
        self.parts: list[Part] = model.parts_
        self.how, self.decoder = how, resolve_decoder(model.decoder)
        self.names, self.feature_names = model.classes_, getattr(model, "feature_names_in_", None)
        self.starts = np.cumsum([0, *(part.sets.shape[0] for part in self.parts)])
        self.by_set = [
            replace(part, sets=_one_each(start, part.sets.shape[0], self.starts[-1])).with_searchers_of(part)
            for part, start in zip(self.parts, self.starts[:-1].tolist(), strict=True)
        ]

    def speaks(self, signal: str) -> bool:
        """Whether a signal has a part in the scores."""
        return isinstance(self.decoder, Blend) or self.decoder.signal == signal

    def heard(self, X: Any, near: Ints, rows: Ints) -> Iterator[tuple[int, _Heard]]:
        """For each of these rows of X, and the clusters `near` to it, what there is to be heard."""
        if isinstance(self.decoder, Votes):
            weights = probed_votes(self.by_set, X[rows], near[rows], self.how.n_neighbors, self.how.n_jobs)
            for i, row in enumerate(rows.tolist()):
                yield row, _Heard(int(near[row, 0]), {"votes": _entries(weights, i, sets=True)}, None, None)
            return
        for c, part in enumerate(self.parts):
            own = rows[near[rows, 0] == c]
            for block in blocks(len(own), part.rows_at_a_time):
                yield from zip(own[block].tolist(), self._heard_in(c, X[own[block]]), strict=True)

    def _heard_in(self, c: int, X: Any) -> Iterator[_Heard]:
        part, how = self.parts[c], self.how
        likeness = part.likeness(X, how.n_jobs) if part.rows is not None else None
        Z = part.embed(X, how.n_jobs, likeness).astype(np.float32, copy=False)
        local = part.kernel if isinstance(part.kernel, Local) else None
        said = {}
        if how.n_neighbors and self.speaks("votes"):
            by_set = self.by_set[c]
            said["votes"] = by_set.vote(by_set.nearest(Z, how), part.n_sets, how.temperature)
        if likeness is not None and (how.n_similar or local):
            n = likeness.shape[1]
            by_row = replace(part, sets=_one_each(0, n, n), set_of_row=np.arange(n))
            ids, similarity = part.alike(likeness, max(how.n_similar, local.n_rows if local else 0))
            if how.n_similar:
                near = by_row.near_rows(*part.first_alike(ids, similarity, how.n_similar))
                said["similar"] = by_row.vote(near, how.n_similar, how.similar_temperature)
            if local:
                nearest = part.first_alike(ids, similarity, local.n_rows)
                (said["local"],) = by_row.solved_nearby(*nearest, squared_lengths(X), [local])
        labels = part.candidates(X, how).labels if how.epsilon is not None else None
        for i in range(X.shape[0]):
            yield _Heard(
                cluster=c,
                voices={name: _entries(weights, i, sets=name == "votes") for name, weights in said.items()},
                likeness=None if isinstance(part.kernel, Linear) or likeness is None else likeness[i],
                candidates=None if labels is None else labels[i][labels[i] >= 0],
            )

    def explained(
        self, heard: _Heard, x: Any, labels: Ints, scores: list[float], n_examples: int, n_features: int
    ) -> list[Explanation]:
        """Why these labels have these scores, x (1, d)."""
        part = self.parts[heard.cluster]
        g = self._functionals(part, labels, heard.candidates)
        terms = {}
        for name, (speakers, weights) in heard.voices.items():
            terms[name] = (speakers, weights[:, None] * self._carried(heard.cluster, speakers, labels))
        if heard.likeness is None:
            features, pulls, intercept = _linear_pulls(part, x, labels, g)
        else:
            coefficients = _read(part.Psi, labels, g)
            features, pulls, intercept = _kernel_pulls(part, x, coefficients)
            if self.speaks("value"):
                likeness = np.where(np.isfinite(heard.likeness), heard.likeness, 0)  # −∞ for rows that were forgotten
                terms["kernel"] = (np.arange(len(likeness)), likeness[:, None] * coefficients)
        found = []
        for i, (label, score) in enumerate(zip(self.names[labels].tolist(), scores, strict=True)):
            value = float(pulls[:, i].sum() + intercept[i])
            said = value if heard.likeness is None and self.speaks("value") else 0.0
            shares, regression = _shared(score, {name: term[:, i] for name, (_, term) in terms.items()}, said)
            said_by = {name: (terms[name][0], share) for name, share in shares.items()}
            examples, others = self._examples(heard.cluster, said_by, n_examples)
            pulled = self._features(features, pulls[:, i], n_features)
            found.append(Explanation(label, score, examples, others, regression, pulled, value, float(intercept[i])))
        return found

    def _functionals(self, part: Part, labels: Ints, candidates: Ints | None) -> NDArray[Any] | None:
        """g (len(labels), M) with value = ⟨g_l, ẑ⟩; None where it is the label's own dimension of ẑ."""
        if candidates is None or self.how.epsilon is None:
            own_dimension = self.how.exact and not isinstance(self.decoder, Votes)
            return None if own_dimension else np.asarray(self.how.columns(labels) / np.float32(part.n_learners))
        S = np.union1d(candidates, labels)
        Phi: NDArray[Any] = self.how.columns(S).astype(np.float64)
        solved = np.linalg.solve(Phi @ Phi.T + self.how.epsilon * np.eye(len(S)), Phi)
        return np.asarray(solved[np.searchsorted(S, labels)], np.float32)

    def _places(self, cluster: int, speakers: Ints) -> tuple[Ints, Ints]:
        """The cluster and the label set there of each speaker."""
        numbers = -1 - speakers
        clusters = np.where(numbers >= 0, np.searchsorted(self.starts, numbers, side="right") - 1, cluster)
        sets = numbers - self.starts[clusters]
        rows = speakers >= 0
        sets[rows] = self.parts[cluster].set_of_row[speakers[rows]]
        return clusters, sets

    def _carried(self, cluster: int, speakers: Ints, labels: Ints) -> NDArray[np.bool_]:
        """Whether each speaker carries each label, (speakers, labels)."""
        carried = np.zeros((len(speakers), len(labels)), bool)
        clusters, sets = self._places(cluster, speakers)
        for c in np.unique(clusters):
            own = clusters == c
            asked = np.broadcast_to(labels, (int(own.sum()), len(labels)))
            carried[own] = decoding.carried(self.parts[c].sets[sets[own]], asked)
        return carried

    def _examples(
        self, cluster: int, said_by: Mapping[str, tuple[Ints, Floats]], n: int
    ) -> tuple[list[Example], float]:
        """The n speakers of the largest shares in all that they say, and the share of the others.

        `said_by` has, of each signal, who speaks and the share of each.
        """
        if not said_by:
            return [], 0.0
        speakers, shares = (np.concatenate(both) for both in zip(*said_by.values(), strict=True))
        everybody, which = np.unique(speakers, return_inverse=True)
        share = np.bincount(which, shares, len(everybody))
        order = np.argsort(-share, kind="stable")
        first = order[:n][share[order[:n]] > 0]
        found = []
        for speaker, of_score, c, number in zip(
            everybody[first].tolist(), share[first].tolist(), *self._places(cluster, everybody[first]), strict=True
        ):
            part, row = self.parts[c], speaker >= 0
            found.append(
                Example(
                    labels=tuple(self.names[part.sets.indices[slice(*part.sets.indptr[number : number + 2])]].tolist()),
                    share=of_score,
                    n_rows=1 if row else int(part.counts[number]),
                    row=int(part.row_numbers[speaker]) if row else None,
                    cluster=int(c),
                    how="+".join(name for name, (who, said) in said_by.items() if said[who == speaker].any()),
                )
            )
        return found, float(share[order[n:]].sum())

    def _features(self, features: Ints, pulls: Floats, n: int) -> list[tuple[Any, float]]:
        order = np.argsort(-np.abs(pulls), kind="stable")[:n]
        order = order[pulls[order] != 0]
        numbers = features[order]
        names = numbers if self.feature_names is None else self.feature_names[numbers]
        return list(zip(names.tolist(), pulls[order].tolist(), strict=True))


def _one_each(start: int, n: int, width: int) -> Any:
    """The identity (n, n) from column `start` of `width`, CSR."""
    return scipy.sparse.csr_array((np.ones(n), np.arange(start, start + n), np.arange(n + 1)), shape=(n, width))


def _entries(weights: Any, row: int, sets: bool) -> tuple[Ints, Floats]:
    """Who speaks about a row of W (n, speakers), CSR, and with what weight."""
    own = slice(weights.indptr[row], weights.indptr[row + 1])
    numbers = weights.indices[own].astype(np.int64)
    return -1 - numbers if sets else numbers, weights.data[own]


def _shared(score: float, terms: Mapping[str, Floats], value: float) -> tuple[dict[str, Floats], float]:
    """A score shared out to the terms of each signal, and to the `value` of a linear regression."""
    said = {name: max(float(term.sum()), 0.0) for name, term in terms.items()}
    total = sum(said.values()) + max(value, 0.0)
    if total <= 0:
        size = {name: np.abs(term) * (name == "kernel") for name, term in terms.items()}
        whole = sum(float(term.sum()) for term in size.values())
        shares = {name: score * term / (whole or 1.0) for name, term in size.items()}
        return shares, 0.0 if whole else score
    shares = {}
    for name, term in terms.items():
        yes = np.maximum(term, 0)
        shares[name] = score * (said[name] / total) * (yes / (yes.sum() or 1.0))
    return shares, score * (max(value, 0.0) / total)


# ------------------------------------------------------------------------------------------------------------ features


def _read(coefficients: Any, labels: Ints, g: Any) -> Floats:
    """What lines of coefficients (r, M) say of labels, (r, len(labels)): ⟨C_i, g_l⟩."""
    return np.asarray(coefficients[:, labels] if g is None else coefficients @ g.T, np.float64)


def _entries_of(x: Any) -> tuple[Ints, Floats]:
    """The features that a row (1, d) has, and their values."""
    if scipy.sparse.issparse(x):
        there = x.data != 0
        return x.indices[there].astype(np.int64), x.data[there].astype(np.float64)
    features = np.flatnonzero(x[0])
    return features, np.asarray(x[0, features], np.float64)


def _linear_pulls(part: Part, x: Any, labels: Ints, g: Any) -> tuple[Ints, Floats, Floats]:
    """The features of x, the pull x_j·⟨Psi_j, g_l⟩ of each towards each label, and the intercepts."""
    features, values = _entries_of(x)
    return features, values[:, None] * _read(part.Psi[features], labels, g), _read(part.intercept[None], labels, g)[0]


def _kernel_pulls(part: Part, x: Any, coefficients: Floats) -> tuple[Ints, Floats, Floats]:
    """The same of a kernel with the coefficients ⟨C_i, g_l⟩, (rows, labels)."""
    assert part.rows is not None
    assert isinstance(part.kernel, RBF)
    features, values = _entries_of(x)
    rows, gamma = part.rows.all(), float(part.kernel.gamma)
    pulls, intercepts = np.zeros((len(features), coefficients.shape[1])), np.zeros(coefficients.shape[1])
    for block in blocks(len(coefficients), _ROW_BLOCK):
        shared = rows[block][:, features]
        products = np.asarray(shared @ values)
        slope = np.divide(
            np.expm1(2 * gamma * products), products, np.full(len(products), 2 * gamma), where=products != 0
        )
        apart = np.exp(-gamma * (values @ values + part.rows.squares[block]))[:, None] * coefficients[block]
        pulls += values[:, None] * (shared.T @ (slope[:, None] * apart))
        intercepts += apart.sum(axis=0)
    return features, pulls, intercepts
