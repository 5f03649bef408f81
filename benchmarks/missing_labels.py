"""Hidden training labels: how much precision on complete test labels weighting and completion recover.

    RIPML_DATA=folder python benchmarks/missing_labels.py [--quick] [--json PATH]

20, 40 and 60 % of the training labels are hidden, at random or rare labels more often (`hide_labels`). The method knows
the share and the kind of hiding but not the hidden labels; propensities are estimated from the remaining labels.

    plain         the remaining labels
    weighting     the same model, its scores divided by the propensities
    completion    weights from leave-one-out scores of one-vs-all ridge where a label is probably missing
    rounded       the same rounded to 0s and 1s, for models that take no weights
    both          completion, and then scores divided by the propensities

Figures are percent, means over 2 random draws on Bibtex, one on Wikispeedia; the bound of each is the plain figure at
the same share. "RIPML" is the paper's algorithm written here for weighted labels; "RIPML.paper" is the library's, for
labels without weights; for "LEML" a weight below 1 is an unknown cell. Then the share or the kind of hiding is assumed
wrongly. The last rows raise rare labels on complete data: scores times p^−power, p by Jain et al. (--quick: Bibtex,
40 %, one draw). Without LEML it takes about 20 minutes on two cores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse
from harness import Row, finish, has_data, options
from numpy.typing import NDArray

from ripml import RIPML, datasets, metrics
from ripml.baselines import LEML
from ripml.lab import missing_labels as missing
from ripml.model.features import unit_rows

CUTS = (1, 3, 5)
SHARES = (0.2, 0.4, 0.6)
KINDS = ("random", "popularity")
SEEDS = {"bibtex": 2, "wikispeedia": 1}
Fit = Callable[[Any, Any], Any]  # (X, Y with weights in [0, 1]) ↦ a model with `decision_function`
Figures = dict[str, float]


class Ridge:
    """One-vs-all ridge; Y may hold weights."""

    def __init__(self, alpha: float) -> None:
        self.alpha = alpha

    def fit(self, X: Any, Y: Any) -> Ridge:
        n, d = X.shape
        gram = (X @ X.T if n <= d else X.T @ X).toarray().astype(np.float64)
        gram.flat[:: len(gram) + 1] += self.alpha
        targets = Y if n <= d else X.T @ Y
        targets = targets.toarray() if scipy.sparse.issparse(targets) else targets
        solved = scipy.linalg.solve(gram, targets, assume_a="pos")
        self.Psi: NDArray[np.float64] = X.T @ solved if n <= d else solved
        return self

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        scores: NDArray[np.float64] = X @ self.Psi
        return scores


class Votes:
    """The paper's algorithm, m = 100, k = 5, F = 5, for weighted labels: z = Φy/‖y‖, and votes are sums of y."""

    def __init__(self, alpha: float) -> None:
        self.alpha = alpha

    def fit(self, X: Any, Y: Any) -> Votes:
        labelled = np.diff(Y.indptr) > 0
        X, self.Y = X[labelled], Y[labelled]
        length = np.sqrt((self.Y * self.Y).sum(axis=1))
        Phi = np.random.default_rng(0).standard_normal((Y.shape[1], 500)) / 10
        self.Z = (self.Y @ Phi) / length[:, None]
        self.ridge = Ridge(self.alpha).fit(X, self.Z)
        return self

    def decision_function(self, X: Any) -> Any:
        votes = 0
        for learner in np.split(np.arange(500), 5):
            Z, Z_new = self.Z[:, learner], self.ridge.decision_function(X)[:, learner]
            distance = (Z * Z).sum(axis=1) - 2 * Z_new @ Z.T
            nearest = np.argpartition(distance, 5, axis=1)[:, :5]
            W = scipy.sparse.csr_array(
                (np.full(nearest.size, 1 / 25), nearest.ravel(), np.arange(len(nearest) + 1) * 5)
            )
            W.resize(len(nearest), self.Y.shape[0])
            votes = votes + W @ self.Y
        votes = scipy.sparse.csr_array(votes)
        votes.data = np.round(votes.data, 12)  # the same votes added in another order are the same score
        return votes


def fit_leml(X: Any, Y: Any) -> LEML:
    """LEML, for which a label with a weight below 1 is an unknown cell."""
    certain = scipy.sparse.csr_array(Y >= 1, dtype=np.float32)
    unknown = Y.toarray() - certain.toarray() > 0
    return LEML(ridge=1.0, random_state=0).fit(X, certain, observed=~unknown if unknown.any() else None)


def learners(alpha: float) -> Mapping[str, Fit]:
    """The methods that are compared."""
    return {
        "RIPML": lambda X, Y: Votes(alpha).fit(X, Y),
        "one-vs-all": lambda X, Y: Ridge(1.0).fit(X, Y),
        "LEML": fit_leml,
    }


def figures(Y: Any, scores: Any, p: NDArray[np.float64]) -> Figures:
    report = metrics.report(Y, scores, propensities=p, ks=CUTS)
    return {name: 100 * report[name] for name in (*(f"P@{k}" for k in CUTS), *(f"PSP@{k}" for k in CUTS))}


def compare(
    train: Any, test: Any, share: float, by: str, seed: int, assumed: tuple[float, str] | None = None
) -> dict[str, Figures]:
    """Every method with every remedy after one random draw; PSP uses the propensities of the complete labels."""
    assumed = assumed or (share, by)
    true_p = metrics.propensities(train.Y)
    X, X_test = unit_rows(train.X), unit_rows(test.X)
    Y = missing.hide_labels(train.Y, share, by, seed)
    p = missing.assumed_propensities(Y, *assumed)
    library = RIPML.paper(random_state=seed).fit(X, Y)
    scores = library.decision_function(X_test)
    found = {
        "RIPML.paper, plain": figures(test.Y, scores, true_p),
        "RIPML.paper, weighting": figures(test.Y, missing.weigh(scores, p), true_p),
    }
    completed = missing.complete(Y, missing.left_out_scores(X, Y), p)
    targets = {"plain": Y, "completion": completed, "rounded": missing.to_indicator(completed, p)}
    for name, fit in learners(float(np.mean(library.ridge_))).items():
        for way, labels in targets.items():
            scores = scipy.sparse.csr_array(fit(X, labels).decision_function(X_test))
            found[f"{name}, {way}"] = figures(test.Y, scores, true_p)
            if way != "rounded":
                weighed = {"plain": "weighting", "completion": "both"}[way]
                found[f"{name}, {weighed}"] = figures(test.Y, missing.weigh(scores, p), true_p)
    return found


def raise_rare(train: Any, test: Any) -> dict[str, Figures]:
    """RIPML's scores on complete labels, times p^−power."""
    p = metrics.propensities(train.Y)
    X, X_test = unit_rows(train.X), unit_rows(test.X)
    scores = {
        "RIPML.paper": RIPML.paper(random_state=0).fit(X, train.Y).decision_function(X_test),
        "one-vs-all": scipy.sparse.csr_array(Ridge(1.0).fit(X, train.Y).decision_function(X_test)),
    }
    return {
        f"{name}, power {power}": figures(test.Y, missing.weigh(found, p, power), p)
        for name, found in scores.items()
        for power in (0, 0.25, 0.5, 1)
    }


def mean(found: list[dict[str, Figures]]) -> dict[str, Figures]:
    return {
        name: {k: float(np.mean([one[name][k] for one in found])) for k in figures}
        for name, figures in found[0].items()
    }


def to_rows(place: str, found: dict[str, Figures], baseline: str) -> list[Row]:
    rows = []
    for name, values in found.items():
        plain = found.get(f"{name.split(', ')[0]}, {baseline}", values)
        bounds = [f"≥ {plain[k]:.1f} ({baseline})" if plain is not values else "" for k in values]
        rows += [
            (f"{place}, {name}, {k}", value, bound) for (k, value), bound in zip(values.items(), bounds, strict=True)
        ]
    return rows


def main() -> None:
    arguments = options(__doc__ or "")
    if not has_data():
        print("skipped: set RIPML_DATA to the folder with bibtex, wikispeedia and eurlex")
        return
    cases = [(by, share) for by in KINDS for share in ((0.4,) if arguments.quick else SHARES)]
    rows: list[Row] = []
    for name in ("bibtex",) if arguments.quick else ("bibtex", "wikispeedia"):
        train, test = datasets.load(name)
        complete = compare(train, test, 0, "random", 0)
        rows += to_rows(f"{name}, 0 %", {key: complete[key] for key in complete if key.endswith("plain")}, "plain")
        for by, share in cases:
            found = mean(
                [compare(train, test, share, by, seed) for seed in range(1 if arguments.quick else SEEDS[name])]
            )
            rows += to_rows(f"{name}, {by} {share:.0%}", found, "plain")
    if not arguments.quick:
        train, test = datasets.load("bibtex")
        for by in KINDS:
            for assumed in ((0.2, by), (0.6, by), (0.4, KINDS[1 - KINDS.index(by)])):
                found = compare(train, test, 0.4, by, 0, assumed)
                found = {key: found[key] for key in found if key.startswith("RIPML,")}
                rows += to_rows(f"bibtex, {by} 40%, assumed {assumed[1]} {assumed[0]:.0%}", found, "plain")
    for name in ("bibtex",) if arguments.quick else ("bibtex", "eurlex"):
        rows += to_rows(f"{name}, rare labels", raise_rare(*datasets.load(name)), "power 0")
    finish(rows, arguments.json)


if __name__ == "__main__":
    main()
