"""`load` and `available`: named data sets, from the folder in the environment variable RIPML_DATA or built in.

A set is a sub-folder with `train.txt` and `test.txt` in XMC-repository text, and where there are any `labels.txt` (one
name a line, or key, tab, name), `features.txt` (one name a line) and `docs.jsonl` (one JSON a line: the texts). All but
the names may be gzipped.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Final

from ripml.base.errors import DataError
from ripml.datasets import xmc
from ripml.datasets.dataset import Dataset
from ripml.datasets.source import fault, open_source

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
        name their `split`: they stand in the order of the matrices, and it is checked that every document has the
        labels of its row. Documents without a split belong to no row, so there `texts` is None.
    """
    if name == _BUILT_IN:
        from ripml.datasets.numpydoc import build_numpydoc  # imports scikit-learn, which the readers do without

        return build_numpydoc()
    folder = data_folder()
    if name not in available():
        if folder is None:
            raise DataError(
                f"data set '{name}' needs RIPML_DATA, the folder to look in; without it there is {_BUILT_IN}."
            )
        raise DataError(f"there is no data set '{name}' in {folder}; available are {', '.join(available())}.")
    assert folder is not None
    return _load_folder(folder / name)


def available() -> list[str]:
    """Return the names that `load` knows here, in alphabetical order.

    Examples
    --------
    >>> "numpydoc" in available()
    True
    """
    folder = data_folder()
    found = [path.name for path in folder.iterdir() if _is_set(path)] if folder is not None else []
    return sorted({*found, _BUILT_IN})


def data_folder() -> Path | None:
    """Return the folder of RIPML_DATA, or None where it is not set."""
    name = os.environ.get("RIPML_DATA")
    if not name:
        return None
    if not Path(name).is_dir():
        raise DataError(f"RIPML_DATA names '{name}', which is not a folder.")
    return Path(name)


def _is_set(path: Path) -> bool:
    return _file(path, "train.txt") is not None and _file(path, "test.txt") is not None


def _file(folder: Path, name: str) -> Path | None:
    """Return the path of a file or of its gzipped form."""
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def _load_folder(folder: Path) -> tuple[Dataset, Dataset]:
    parts: dict[str, Dataset] = {}
    for split in ("train", "test"):
        path = _file(folder, f"{split}.txt")
        assert path is not None
        with open_source(path) as source:
            parts[split] = replace(xmc.read(source), name=f"{folder.name} {split}")
    train, test = parts.values()
    if train.X.shape[1] != test.X.shape[1] or train.Y.shape[1] != test.Y.shape[1]:
        raise DataError(f"{folder}: train.txt and test.txt differ in d or L.")

    keys = train.label_names
    names = _names(folder / "labels.txt", train.Y.shape[1])
    if names is not None:
        keys = [name.partition("\t")[0] for name in names]
        shown = [name.rpartition("\t")[2] for name in names]
        names = shown if len(set(shown)) == len(shown) else keys
        parts = {split: replace(part, label_names=names) for split, part in parts.items()}
    feature_names = _names(folder / "features.txt", train.X.shape[1])
    docs = _file(folder, "docs.jsonl")
    ids, texts = ({}, {}) if docs is None else _texts(docs, parts, keys)
    train, test = (
        replace(part, feature_names=feature_names, ids=ids.get(split), texts=texts.get(split))
        for split, part in parts.items()
    )
    return train, test


def _names(path: Path, n: int) -> list[str] | None:
    if not path.is_file():
        return None
    with open_source(path) as source:
        try:
            names = [line.decode().rstrip("\r") for _, line in source.lines()]
        except UnicodeDecodeError:
            raise fault(source.name, None, "this is not UTF-8.") from None
    if len(names) != n:
        raise DataError(f"{path}: there are {len(names)} names, but the matrices have {n} columns.")
    return names


def _texts(path: Path, parts: dict[str, Dataset], keys: list[str]) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Return the ids and the texts of each split, or nothing where the documents do not say their split."""
    column = {key: j for j, key in enumerate(keys)}
    ids: dict[str, list[str]] = {split: [] for split in parts}
    texts: dict[str, list[str]] = {split: [] for split in parts}
    with open_source(path) as source:
        for at, line in source.lines():
            try:
                doc = json.loads(line)
                split, text, labels = doc.get("split"), doc["text"], doc["labels"]
                name = str(doc.get("id", at))
            except (ValueError, KeyError, TypeError, AttributeError):
                raise fault(source.name, at, "the line must be a JSON object with 'labels' and 'text'.") from None
            if split is None:
                return {}, {}
            if split not in parts:
                continue
            row = len(texts[split])
            # A rare label may have no column: then a document has more labels than its row.
            if row == len(parts[split]) or {column[key] for key in labels if key in column} != _labels(
                parts[split], row
            ):
                raise fault(source.name, at, f"this document does not fit row {row} of {split}.txt.")
            ids[split].append(name)
            texts[split].append(text)
        for split, part in parts.items():
            if len(texts[split]) != len(part):
                raise fault(
                    source.name, None, f"there are {len(texts[split])} texts for {len(part)} rows of {split}.txt."
                )
    return ids, texts


def _labels(part: Dataset, row: int) -> set[int]:
    return set(part.Y.indices[part.Y.indptr[row] : part.Y.indptr[row + 1]].tolist())
