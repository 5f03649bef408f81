"""Nearest neighbours among label embeddings: one contract, one file an index.

An index is a word or an object. `build(Z)` takes the embeddings (n, m) and returns something that answers
`query(Q, k)`: for each row of Q the k nearest rows of Z and their squared distances, nearest first, ties by the lower
row number.
"""

from __future__ import annotations

from ripml.errors import ParameterError
from ripml.neighbors.base import Index, Searcher
from ripml.neighbors.exact import Exact

__all__ = ["Exact", "Index", "Searcher", "resolve_index"]

_WORDS: dict[str, type[Index]] = {"exact": Exact}


def resolve_index(index: str | Index) -> Index:
    """An index from its word, or itself.

    >>> resolve_index("exact")
    Exact()
    """
    if isinstance(index, Index):
        return index
    if isinstance(index, str) and index in _WORDS:
        return _WORDS[index]()
    raise ParameterError(f"`index` must be one of {', '.join(_WORDS)} or an Index; got {index!r}.")
