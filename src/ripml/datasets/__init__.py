"""Data sets: files of seven formats, the sets of the folder RIPML_DATA, and one built from NumPy's documentation.

`read`, `iter_blocks` and `write` are for files; `documents_given` is for texts in memory, in lists and tables;
`load` and `available` are for named sets; `fetch.get` downloads originals.
"""

from ripml.datasets import fetch
from ripml.datasets.catalogue import available, load
from ripml.datasets.dataset import Dataset
from ripml.datasets.documents import documents_given
from ripml.datasets.formats import iter_blocks, read, write

__all__ = ["Dataset", "available", "documents_given", "fetch", "iter_blocks", "load", "read", "write"]
