"""Labels: their encoding, vocabulary and distinct sets, and Phi, which projects them (the paper's step 1)."""

from ripml.labels.ensembles import (
    Bernoulli,
    Ensemble,
    Gaussian,
    Identity,
    PolynomialPhase,
    SparseSign,
    Structured,
)

__all__ = ["Bernoulli", "Ensemble", "Gaussian", "Identity", "PolynomialPhase", "SparseSign", "Structured"]
