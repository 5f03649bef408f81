"""`load` and `available`: named data sets, built in or from the folder in the environment variable RIPML_DATA.

A set is a sub-folder with `train.txt` and `test.txt` in XMC-repository text, and perhaps `labels.txt` (one name per
line, or key, tab, name), `features.txt` (one name per line) and `docs.jsonl` (one JSON object per line: the texts). All
except the names may be gzipped.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Final

from ripml.base.errors import DataError
from ripml.datasets.dataset import Dataset
from ripml.datasets.formats import read
from ripml.datasets.source import decode, fault, open_source

__all__ = ["available", "data_folder", "load"]

_BUILT_IN: Final = "numpydoc"


def load(name: str) -> tuple[Dataset, Dataset]:
    """Return the training and the test part of a named data set.

    Parameters
    ----------
    name : str
        One of `available()`.

    Returns
    -------
    train, test : Dataset
        `label_names` come from labels.txt, or are "0", "1", …. `texts` and `ids` come from docs.jsonl if its documents
        have a `split`: then they are in the order of the rows, and every document is checked to have the labels of its
        row. Documents without a split cannot be matched to rows, so `texts` is None.
    """
    if name == _BUILT_IN:
        from ripml.datasets.numpydoc import build_numpydoc  # imports scikit-learn, which the readers do not need

        return build_numpydoc()
    folder = data_folder()
    if folder is None:
        raise DataError(
            f"data set '{name}' needs RIPML_DATA, the folder of data sets; without it there is {_BUILT_IN}."
        )
    if name not in available():
        raise DataError(f"there is no data set '{name}' in {folder}; available are {', '.join(available())}.")
    return _load_folder(folder / name)


def available() -> list[str]:
    """Return the names that `load` accepts, in alphabetical order.

    Examples
    --------
    >>> "numpydoc" in available()
    True
    """
    folder = data_folder()
    paths = [] if folder is None else list(folder.iterdir())
    found = (path.name for path in paths if _find(path, "train.txt") and _find(path, "test.txt"))
    return sorted({*found, _BUILT_IN})


def data_folder() -> Path | None:
    """Return the folder in RIPML_DATA, or None if it is not set."""
    name = os.environ.get("RIPML_DATA")
    if not name:
        return None
    if not Path(name).is_dir():
        raise DataError(f"RIPML_DATA is '{name}', which is not a folder.")
    return Path(name)


def _find(folder: Path, name: str) -> Path | None:
    """Return the path of a file, plain or gzipped."""
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def _load_folder(folder: Path) -> tuple[Dataset, Dataset]:
    parts: dict[str, Dataset] = {}
    for split in ("train", "test"):
        path = _find(folder, f"{split}.txt")
        assert path is not None  # `available` checked it
        parts[split] = replace(read(path, "xmc"), name=f"{folder.name} {split}")
    train, test = parts.values()
    if train.X.shape[1] != test.X.shape[1] or train.Y.shape[1] != test.Y.shape[1]:
        raise DataError(f"{folder}: train.txt and test.txt differ in d or L.")

    # Documents refer to labels by key; labels are shown by name, unless two keys have the same name.
    keys = train.label_names
    lines = _read_names(folder / "labels.txt", train.Y.shape[1])
    if lines is not None:
        keys = [line.partition("\t")[0] for line in lines]
        names = [line.rpartition("\t")[2] for line in lines]
        label_names = names if len(set(names)) == len(names) else keys
        parts = {split: replace(part, label_names=label_names) for split, part in parts.items()}
    feature_names = _read_names(folder / "features.txt", train.X.shape[1])
    docs = _find(folder, "docs.jsonl")
    ids, texts = ({}, {}) if docs is None else _read_texts(docs, parts, keys)
    train, test = (
        replace(part, feature_names=feature_names, ids=ids.get(split), texts=texts.get(split))
        for split, part in parts.items()
    )
    return train, test


def _read_names(path: Path, n: int) -> list[str] | None:
    if not path.is_file():
        return None
    with open_source(path) as source:
        names = [decode(line, (source.name, number)).rstrip("\r") for number, line in source.lines()]
    if len(names) != n:
        raise DataError(f"{path}: there are {len(names)} names, but the matrices have {n} columns.")
    return names


def _read_texts(
    path: Path, parts: dict[str, Dataset], keys: list[str]
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Return the ids and the texts of each split; empty dictionaries if the documents have no split."""
    column = {key: j for j, key in enumerate(keys)}
    ids: dict[str, list[str]] = {split: [] for split in parts}
    texts: dict[str, list[str]] = {split: [] for split in parts}
    with open_source(path) as source:
        for number, line in source.lines():
            try:
                document = json.loads(line)
                split, text, labels = document.get("split"), document["text"], document["labels"]
                id = str(document.get("id", number))
            except (ValueError, KeyError, TypeError, AttributeError):
                raise fault(source.name, number, "the line must be a JSON object with 'labels' and 'text'.") from None
            if split is None:
                return {}, {}
            if split not in parts:
                continue
            row = len(texts[split])
            # A rare label may have no column: then a document has more labels than its row.
            columns = {column[key] for key in labels if key in column}
            if row == len(parts[split]) or columns != set(parts[split].label_columns(row)):
                raise fault(source.name, number, f"this document does not match row {row} of {split}.txt.")
            ids[split].append(id)
            texts[split].append(text)
        for split, part in parts.items():
            n_texts = len(texts[split])
            if n_texts != len(part):
                raise fault(source.name, None, f"there are {n_texts} texts for {len(part)} rows of {split}.txt.")
    return ids, texts
