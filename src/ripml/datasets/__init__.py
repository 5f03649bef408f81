"""Data sets: files of four formats, the sets of the folder RIPML_DATA, and one built from NumPy's documentation.

`read`, `iter_blocks` and `write` are for files; `load` and `available` for named sets; `fetch.get` for originals.
"""

from ripml.datasets import fetch
from ripml.datasets.dataset import Dataset
from ripml.datasets.folder import available, load
from ripml.datasets.formats import iter_blocks, read, write

__all__ = ["Dataset", "available", "fetch", "iter_blocks", "load", "read", "write"]
