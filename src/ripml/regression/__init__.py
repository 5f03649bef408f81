"""Psi: ridge regression from features to label embeddings (the paper's training step 2).

    Psi = argmin ‖Z − X Psi‖² + alpha ‖Psi‖²,        X (n, d), Z (n, M), Psi (d, M), M = F·m targets at once

The paper minimises ½ Σ‖z − Ψx‖² + λ‖Ψ‖² with Ψ = Psiᵀ, so alpha = 2λ; alpha is scikit-learn's parameter. Four solvers
find the same Psi:

    primal   (XᵀX + alpha I) Psi = XᵀZ, one d × d factorisation; XᵀX and XᵀZ are sums over rows, see `Sums`
    dual     (XXᵀ + alpha I) C = Z, Psi = XᵀC, one n × n factorisation, for n < d
    cg       conjugate gradients on the primal equations with X kept sparse: all targets at once, Jacobi-preconditioned
    gd       gradient descent with a fixed step, the paper's alternative to the closed form

A solver is a value with its options. `prepare(X, Z)` does the work that does not depend on alpha and returns a function
alpha ↦ `Solution`, so that several values of alpha share it. A solution also gives leave-one-out predictions without
another fit (see `predicted_without`).
"""

from __future__ import annotations

from ripml.base import registry
from ripml.regression.closed_form import Dual, Primal
from ripml.regression.iterative import ConjugateGradient, GradientDescent
from ripml.regression.kernels import RBF, Kernel, Linear, Local
from ripml.regression.solver import CLOSED_FORM_LIMIT, RidgeSolver, Solution, Solve
from ripml.regression.sums import PackedSums, Sums

__all__ = [
    "RBF",
    "ConjugateGradient",
    "Dual",
    "GradientDescent",
    "Kernel",
    "Linear",
    "Local",
    "PackedSums",
    "Primal",
    "RidgeSolver",
    "Solution",
    "Solve",
    "Sums",
    "choose_solver",
    "resolve_solver",
]


def choose_solver(n: int, d: int) -> tuple[RidgeSolver, str]:
    """The solver that "auto" stands for, and the reason. It depends on sizes only, so it is the same on every machine.

    >>> choose_solver(n=17_383, d=5_000)
    (Primal(precision='float64'), 'd = 5,000 ≤ n = 17,383 and ≤ 12,000: factorise XᵀX')
    >>> choose_solver(n=3_668, d=20_000)[1]
    'n = 3,668 < d = 20,000 and ≤ 12,000: factorise XXᵀ'
    >>> choose_solver(n=91_818, d=32_956)[1]
    'n = 91,818 and d = 32,956 are both above 12,000: conjugate gradients'
    """
    limit = CLOSED_FORM_LIMIT
    if d <= min(n, limit):
        return Primal(), f"d = {d:,} ≤ n = {n:,} and ≤ {limit:,}: factorise XᵀX"
    if n <= limit:
        return Dual(), f"n = {n:,} < d = {d:,} and ≤ {limit:,}: factorise XXᵀ"
    return ConjugateGradient(), f"n = {n:,} and d = {d:,} are both above {limit:,}: conjugate gradients"


def resolve_solver(solver: str | RidgeSolver, n: int, d: int) -> tuple[RidgeSolver, str]:
    """The solver for a word or a solver, and the reason for the choice."""
    if isinstance(solver, str) and solver == "auto":
        return choose_solver(n, d)
    return registry.resolve("solver", solver, ("auto",)), "given"
