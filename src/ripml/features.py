"""X: feature rows of length 1, which help every method here; the paper leaves their scaling open."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

__all__ = ["unit_rows"]


def unit_rows(X: Any) -> Any:
    """X (n, d), dense or CSR, with its rows scaled to length 1; rows of zeros stay.

    First by the largest entry, so that the squares of very large or small numbers neither overflow nor vanish.

    >>> unit_rows(np.array([[3e200, 4e200], [0, 0]])).round(3).tolist()
    [[0.6, 0.8], [0.0, 0.0]]
    """
    X = _divided(X, abs(X).max(axis=1))
    return _divided(X, np.sqrt((X * X).sum(axis=1)))


def _divided(X: Any, scale: Any) -> Any:
    """Rows of X divided by these numbers, where they are not zero."""
    scale = scale.toarray().ravel() if scipy.sparse.issparse(scale) else np.array(scale)
    scale[scale == 0] = 1
    if not scipy.sparse.issparse(X):
        return X / scale[:, None]
    return type(X)((X.data / np.repeat(scale, np.diff(X.indptr)), X.indices, X.indptr), shape=X.shape)
