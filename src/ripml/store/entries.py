"""What comes into a store, checked before anything is touched: documents as lines of JSONL, ids and label names."""

from __future__ import annotations

import io
import json
import reprlib
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ripml.base.errors import DataError
from ripml.datasets import Dataset
from ripml.datasets.formats import read_source
from ripml.datasets.source import Source
from ripml.labels.encoding import check_names

__all__ = ["checked_data", "checked_id", "checked_ids", "checked_name", "label_names", "parsed"]

_brief = reprlib.Repr()
_brief.maxstring = 80


def parsed(documents: Iterable[Mapping[str, Any]] | Dataset) -> Dataset:
    """Documents by the rules of a JSONL file, or the rows of a data set; those without an id get a new one.

    >>> data = parsed([{"id": "a", "text": "red apple", "labels": ["fruit"]}])
    >>> data.ids, data.texts, data.label_names
    (['a'], ['red apple'], ['fruit'])
    """
    if isinstance(documents, Dataset):
        if not len(documents):
            raise DataError("there are no documents.")
        ids = [uuid.uuid4().hex for _ in range(len(documents))] if documents.ids is None else documents.ids
        return checked_data(replace(documents, ids=ids))
    lines = []
    for number, document in enumerate(documents, 1):
        if not isinstance(document, Mapping):
            raise DataError(f"document {number} must be a mapping with 'labels' and 'text' or 'features'.")
        record = {key: document[key] for key in ("id", "labels", "text", "features") if key in document}
        record["id"] = uuid.uuid4().hex if record.get("id") is None else record["id"]
        record.setdefault("labels", [])
        try:
            lines.append(json.dumps(record, default=_plain))
        except (TypeError, ValueError) as error:
            raise DataError(f"document {number} is not as in JSON: {error}.") from None
    if not lines:
        raise DataError("there are no documents.")
    stream: Any = io.BytesIO("\n".join(lines).encode())
    data = read_source(Source("document", stream), "jsonl")
    checked_ids(data.ids or [])
    return data


def _plain(value: Any) -> Any:
    """NumPy's arrays and numbers as Python's."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is no JSON value")


def checked_data(data: Dataset) -> Dataset:
    """A data set, if all that a store keeps of it as strings can be kept.

    >>> from scipy.sparse import csr_array
    >>> checked_data(Dataset(X=None, Y=csr_array((1, 0)), label_names=[], texts=["half a \\ud83d"]))
    Traceback (most recent call last):
    ripml.base.errors.DataError: a text must be a string that UTF-8 can hold; got 'half a \\ud83d'.
    """
    checked_ids(data.ids or [])
    check_names([checked_name(name) for name in data.label_names], len(data.label_names))
    for what, strings in (("text", data.texts), ("feature's name", data.feature_names)):
        for string in strings or []:
            if not _is_text(string):
                raise DataError(f"a {what} must be a string that UTF-8 can hold; got {_brief.repr(string)}.")
    return data


def label_names(names: Iterable[str]) -> list[str]:
    """Label names, each once.

    >>> label_names(("b", "a", "b"))
    ['b', 'a']
    """
    if isinstance(names, str) or not isinstance(names, Iterable):
        what = "the string " if isinstance(names, str) else ""
        raise DataError(f"a list of label names is needed; got {what}{names!r}.")
    return list(dict.fromkeys(map(checked_name, names)))


def checked_name(name: str) -> str:
    """The name of a label, if it can be one.

    >>> checked_name(5)
    Traceback (most recent call last):
    ripml.base.errors.DataError: a label must be a string that UTF-8 can hold; got 5.
    """
    if not _is_text(name):
        raise DataError(f"a label must be a string that UTF-8 can hold; got {name!r}.")
    return name


def checked_id(id: str) -> str:
    """The id of a document, if it can be one.

    >>> checked_id("")
    Traceback (most recent call last):
    ripml.base.errors.DataError: an id must be a string that UTF-8 can hold, with something in it; got ''.
    """
    if not _is_text(id) or not id:
        raise DataError(f"an id must be a string that UTF-8 can hold, with something in it; got {id!r}.")
    return id


def _is_text(value: object) -> bool:
    """Whether a value is a string without halves of surrogate pairs."""
    return isinstance(value, str) and value.encode("utf-8", "ignore").decode() == value


def checked_ids(ids: Iterable[str]) -> list[str]:
    """Ids, each given once.

    >>> checked_ids(["a", "b", "a"])
    Traceback (most recent call last):
    ripml.base.errors.DataError: document 'a' is given twice.
    """
    seen: dict[str, None] = {}
    for id in map(checked_id, ids if isinstance(ids, Iterable) and not isinstance(ids, str) else [ids]):
        if id in seen:
            raise DataError(f"document {id!r} is given twice.")
        seen[id] = None
    return list(seen)
