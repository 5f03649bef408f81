"""Nearest neighbours among label embeddings: one contract, one file per index.

An index is a word or an object. `build(Z)` takes the embeddings (n, m) and returns a searcher with `query(Q, k)`: for
each row of Q the k nearest rows of Z and their squared distances, nearest first, ties by the lower row number. All but
`Exact` are approximate: the distances of the rows they return are exact, but a nearer row may be missed.
"""

from __future__ import annotations

from ripml.neighbors.auto import Auto, choose_index
from ripml.neighbors.base import Index, Searcher
from ripml.neighbors.bits import Bits
from ripml.neighbors.exact import Exact
from ripml.neighbors.hnsw import HNSW
from ripml.neighbors.ivf import IVF
from ripml.neighbors.lsh import LSH

__all__ = ["HNSW", "IVF", "LSH", "Auto", "Bits", "Exact", "Index", "Searcher", "choose_index"]
