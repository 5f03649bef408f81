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

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripml.base.errors import check_count
from ripml.decoding import scores as scoring
from ripml.decoding.evidence import apart
from ripml.decoding.fitted import Contributions
from ripml.model.model import Model
from ripml.model.shown import Explained, explanation_html

__all__ = ["Example", "Explanation", "explain", "explained"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


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
    """Why a label has its score: shares of `examples` + `others` + `regression` + `named` = `score`, none negative."""

    label: Any
    score: float
    examples: list[Example]  # those of the largest shares
    others: float  # the share of all further examples together
    regression: float  # the share of a linear regression, which keeps no examples: its features say why
    features: list[tuple[Any, float]]  # by name or number, how far each pulled towards the label; < 0 is away from it
    value: float  # what the regression says of the label: the sum of the pulls of all features and the intercept
    intercept: float  # with a kernel, what it would say of a row of that length that has none of the known features
    named: float  # the share of the names of the label that stand in the text

    def _repr_html_(self) -> str:
        return explanation_html(self)

    def to_json(self) -> dict[str, Any]:
        """As JSON values.

        >>> example = Example(("tea",), 0.3, 2, None, 0, "votes")
        >>> Explanation("tea", 0.5, [example], 0.2, 0.0, [], 0.4, 0.4, 0.0).to_json()
        {'label': 'tea', 'score': 0.5, 'examples': [{'labels': ['tea'], 'share': 0.3, 'n_rows': 2, 'row': None,
         'cluster': 0, 'how': 'votes'}], 'others': 0.2, 'regression': 0.0, 'features': [], 'value': 0.4,
         'intercept': 0.4, 'named': 0.0}
        """
        examples = [asdict(example) | {"labels": list(example.labels)} for example in self.examples]
        return asdict(self) | {"examples": examples, "features": [list(pair) for pair in self.features]}


def explain(estimator: Any, X: Any, n: int = 5, n_examples: int = 5, n_features: int = 10) -> list[list[Explanation]]:
    """For each row of X, why each of its n best labels has its score: those that `estimator.recommend(X, n)` gives.

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
    return explained(estimator, X, scoring.top(estimator.decision_function(X), n), n_examples, n_features)


def explained(estimator: Any, X: Any, best: Any, n_examples: int, n_features: int) -> list[list[Explanation]]:
    """The same for these scores, CSR (n, L), each row in the order in which its labels are explained."""
    for name, value in {"n_examples": n_examples, "n_features": n_features}.items():
        check_count(name, value)
    found = Explained[list[Explanation]](Explained[Explanation]() for _ in range(best.shape[0]))
    if not best.nnz:
        return found
    model, n_jobs = estimator._answering(), estimator.n_jobs
    X = model.features(estimator._validated(X, reset=False))
    features, _ = apart(X)
    near = model.nearest_clusters(features, estimator.n_probe, n_jobs)
    explainer = _Explainer(model, getattr(estimator, "feature_names_in_", None), n_examples, n_features)
    rows = np.flatnonzero(np.diff(best.indptr))
    for row, contributions in model.decoder.contributions(model.clusters, X, near, rows, n_jobs):
        stored = slice(best.indptr[row], best.indptr[row + 1])
        labels, scores = best.indices[stored].astype(np.int64), best.data[stored].tolist()
        found[row] = Explained(explainer.explain(contributions, features[row : row + 1], labels, scores))
    return found


class _Explainer:
    """Turns what contributed to the scores of a row into explanations of its labels."""

    def __init__(self, model: Model, feature_names: Any, n_examples: int, n_features: int) -> None:
        self.model, self.decoder, self.clusters = model, model.decoder, model.clusters
        self.feature_names, self.n_examples, self.n_features = feature_names, n_examples, n_features
        self.starts = np.cumsum([0, *(cluster.index.sets.shape[0] for cluster in self.clusters)])

    def explain(self, contributions: Contributions, x: Any, labels: Ints, scores: list[float]) -> list[Explanation]:
        """Why these labels of the row x (1, d) have these scores."""
        cluster = self.clusters[contributions.cluster]
        seen = self.decoder.frequency[labels] > 0  # of other labels the regression says nothing
        known = labels[seen]
        g = self.decoder.functionals(known, contributions.candidates)

        def read(coefficients: Any) -> Floats:
            """What lines of coefficients (r, M) say of the labels, (r, len(labels)): ⟨C_i, g_l⟩."""
            said = np.zeros((len(coefficients), len(labels)))
            said[:, seen] = coefficients[:, known] if g is None else coefficients @ g.T
            return said

        # The terms of each signal's sum over examples: (examples, (examples, labels)).
        terms = {}
        for name, (examples, weights) in contributions.examples.items():
            terms[name] = (examples, weights[:, None] * self._carried(contributions.cluster, examples, labels))
        rows = None if cluster.rows is None else cluster.rows.X
        features, pulls, intercept, by_examples = cluster.regression.contributions(
            x, read, rows, contributions.likeness
        )
        if by_examples is not None and self.decoder.reads("value"):
            terms["kernel"] = by_examples
        found = []
        for i, (label, score) in enumerate(zip(self.model.vocabulary.names[labels].tolist(), scores, strict=True)):
            value = float(pulls[:, i].sum() + intercept[i])
            linear_value = value if by_examples is None and self.decoder.reads("value") else 0.0
            signals = {name: term[:, i] for name, (_, term) in terms.items()}
            by_names = contributions.named.get(int(labels[i]), 0.0)
            shares, regression, named = _shared(score, signals, linear_value, by_names)
            of_examples = {name: (terms[name][0], share) for name, share in shares.items()}
            shown, others = self._examples(contributions.cluster, of_examples)
            pulled = self._features(features, pulls[:, i])
            found.append(
                Explanation(label, score, shown, others, regression, pulled, value, float(intercept[i]), named)
            )
        return found

    def _places(self, cluster: int, examples: Ints) -> tuple[Ints, Ints]:
        """The cluster and the label set there of each example."""
        numbers = -1 - examples
        clusters = np.where(numbers >= 0, np.searchsorted(self.starts, numbers, side="right") - 1, cluster)
        sets = numbers - self.starts[clusters]
        are_rows = examples >= 0
        rows = self.clusters[cluster].rows
        if are_rows.any() and rows is not None:
            sets[are_rows] = rows.set_of_row[examples[are_rows]]
        return clusters, sets

    def _carried(self, cluster: int, examples: Ints, labels: Ints) -> NDArray[np.bool_]:
        """Whether each example carries each label, (examples, labels)."""
        carried = np.zeros((len(examples), len(labels)), bool)
        clusters, sets = self._places(cluster, examples)
        for c in np.unique(clusters):
            mine = clusters == c
            asked = np.broadcast_to(labels, (int(mine.sum()), len(labels)))
            carried[mine] = scoring.carried(self.clusters[c].index.sets[sets[mine]], asked)
        return carried

    def _examples(self, cluster: int, shares_of: Mapping[str, tuple[Ints, Floats]]) -> tuple[list[Example], float]:
        """The examples of the largest shares over all signals, and the share of the others.

        `shares_of` has, for each signal, the examples and the share of each.
        """
        if not shares_of:
            return [], 0.0
        examples, shares = (np.concatenate(both) for both in zip(*shares_of.values(), strict=True))
        distinct, which = np.unique(examples, return_inverse=True)
        share = np.bincount(which, shares, len(distinct))
        order = np.argsort(-share, kind="stable")
        first = order[: self.n_examples][share[order[: self.n_examples]] > 0]
        found = []
        for example, of_score, c, number in zip(
            distinct[first].tolist(), share[first].tolist(), *self._places(cluster, distinct[first]), strict=True
        ):
            index, rows, is_row = self.clusters[c].index, self.clusters[c].rows, example >= 0
            labels = index.sets.indices[slice(*index.sets.indptr[number : number + 2])]
            found.append(
                Example(
                    labels=tuple(self.model.vocabulary.names[labels].tolist()),
                    share=of_score,
                    n_rows=1 if is_row else int(index.counts[number]),
                    row=int(rows.numbers[example]) if is_row and rows is not None else None,
                    cluster=int(c),
                    how="+".join(name for name, (who, some) in shares_of.items() if some[who == example].any()),
                )
            )
        return found, float(share[order[self.n_examples :]].sum())

    def _features(self, features: Ints, pulls: Floats) -> list[tuple[Any, float]]:
        order = np.argsort(-np.abs(pulls), kind="stable")[: self.n_features]
        order = order[pulls[order] != 0]
        numbers = features[order]
        names = numbers if self.feature_names is None else self.feature_names[numbers]
        return list(zip(names.tolist(), pulls[order].tolist(), strict=True))


def _shared(
    score: float, terms: Mapping[str, Floats], value: float, named: float
) -> tuple[dict[str, Floats], float, float]:
    """A score shared out to the terms of each signal, to the `value` of a linear regression, and to names."""
    said = {name: max(float(term.sum()), 0.0) for name, term in terms.items()}
    total = sum(said.values()) + max(value, 0.0) + named
    if total <= 0:
        size = {name: np.abs(term) * (name == "kernel") for name, term in terms.items()}
        whole = sum(float(term.sum()) for term in size.values())
        shares = {name: score * term / (whole or 1.0) for name, term in size.items()}
        return shares, 0.0 if whole else score, 0.0
    shares = {}
    for name, term in terms.items():
        yes = np.maximum(term, 0)
        shares[name] = score * (said[name] / total) * (yes / (yes.sum() or 1.0))
    return shares, score * (max(value, 0.0) / total), score * (named / total)
