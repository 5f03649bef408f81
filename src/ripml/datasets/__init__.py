"""Data sets: files of seven formats, the sets of the folder RIPML_DATA, and one built from NumPy's documentation.

`read`, `iter_blocks` and `write` are for files; `documents_given` for texts in memory, in lists and tables of any kind;
`load` and `available` for named sets; `fetch.get` for originals.
"""

from ripml.datasets import fetch
from ripml.datasets.dataset import Dataset
from ripml.datasets.folder import available, load
from ripml.datasets.formats import iter_blocks, read, write
from ripml.datasets.in_memory import documents_given

__all__ = ["Dataset", "available", "documents_given", "fetch", "iter_blocks", "load", "read", "write"]
