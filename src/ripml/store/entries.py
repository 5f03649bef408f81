"""What comes into a store, checked before anything is touched: documents as lines of JSONL, ids and label names."""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ripml.datasets import Dataset, jsonl
from ripml.datasets.source import Source
from ripml.errors import DataError

__all__ = ["checked_ids", "label_names", "parsed"]


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
        return replace(documents, ids=checked_ids(ids))
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
    data = jsonl.read(Source("document", stream))
    checked_ids(data.ids or [])
    return data


def _plain(value: Any) -> Any:
    """NumPy's arrays and numbers as Python's."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is no JSON value")


def label_names(names: Iterable[str]) -> list[str]:
    """Label names, each once.

    >>> label_names(("b", "a", "b"))
    ['b', 'a']
    """
    if isinstance(names, str):
        raise DataError(f"a list of label names is needed; got the string {names!r}.")
    found = list(dict.fromkeys(names))
    for name in found:
        if not isinstance(name, str) or name.encode("utf-8", "ignore").decode() != name:
            raise DataError(f"a label must be a string that UTF-8 can hold; got {name!r}.")
    return found


def checked_ids(ids: Iterable[str]) -> list[str]:
    """Ids, each given once.

    >>> checked_ids(["a", "b", "a"])
    Traceback (most recent call last):
    ripml.errors.DataError: document 'a' is given twice.
    """
    seen: dict[str, None] = {}
    for id in [ids] if isinstance(ids, str) else ids:
        if not isinstance(id, str) or not id or id.encode("utf-8", "ignore").decode() != id:
            raise DataError(f"an id must be a string with something in it; got {id!r}.")
        if id in seen:
            raise DataError(f"document {id!r} is given twice.")
        seen[id] = None
    return list(seen)
