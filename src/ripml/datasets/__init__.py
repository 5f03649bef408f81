"""Data sets: files of nine formats, the sets of the folder RIPML_DATA, and one built from NumPy's documentation.

`read`, `iter_blocks` and `write` are for files; `documents_given` is for texts in memory, in lists and tables; `check`
says what looks wrong in documents;
`read_vocabulary` and `write_vocabulary` are for files that give labels names, such as SKOS; `load` and `available` are
for named sets; `fetch.get` downloads originals.
"""

from ripml.datasets import fetch
from ripml.datasets.catalogue import available, load
from ripml.datasets.checks import check
from ripml.datasets.dataset import Dataset
from ripml.datasets.documents import documents_given
from ripml.datasets.formats import iter_blocks, read, write
from ripml.datasets.vocabularies import read_vocabulary, write_vocabulary

__all__ = [
    "Dataset", "available", "check", "documents_given", "fetch", "iter_blocks", "load", "read", "read_vocabulary",
    "write", "write_vocabulary",
]  # fmt: skip
