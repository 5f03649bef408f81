"""Documents of a store: checked before anything is written, kept as bytes, and given back as rows or as JSON."""

from __future__ import annotations

import io
import json
import reprlib
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripml.base.errors import DataError, ParameterError
from ripml.datasets import Dataset
from ripml.datasets.dataset import SparseRows, csr
from ripml.datasets.formats import read_source
from ripml.datasets.formats.rows import shortest
from ripml.datasets.source import Source
from ripml.labels.encoding import check_names
from ripml.store.journal import Label, State
from ripml.tagging.documents import DocumentModel

_brief = reprlib.Repr()
_brief.maxstring = 80
_VECTOR = b"\xff"  # begins the body of a text with a vector


def parse_documents(documents: Iterable[Mapping[str, Any]] | Dataset) -> Dataset:
    """Documents by the rules of a JSONL file, or the rows of a data set; those without an id get a new one.

    Their labels are lists: a string would be taken apart in a file.

    >>> data = parse_documents([{"id": "a", "text": "red apple", "labels": ["fruit"]}])
    >>> data.ids, data.texts, data.label_names
    (['a'], ['red apple'], ['fruit'])
    """
    if isinstance(documents, Dataset):
        if not len(documents):
            raise DataError("there are no documents.")
        ids = [uuid.uuid4().hex for _ in range(len(documents))] if documents.ids is None else documents.ids
        return check_data(replace(documents, ids=ids))
    lines = []
    for number, document in enumerate(documents, 1):
        if not isinstance(document, Mapping):
            raise DataError(f"document {number} must be a mapping with 'labels' and 'text' or 'features'.")
        record = {key: document[key] for key in ("id", "labels", "text", "features") if key in document}
        record["id"] = uuid.uuid4().hex if record.get("id") is None else record["id"]
        if isinstance(record.setdefault("labels", []), str):  # a separator is guessed of many documents, not of one
            raise DataError(f"document:{number}: 'labels' must be a list; got {_brief.repr(record['labels'])}.")
        try:
            lines.append(json.dumps(record, default=_to_python))
        except (TypeError, ValueError) as error:
            raise DataError(f"document {number} cannot be written as JSON: {error}.") from None
    if not lines:
        raise DataError("there are no documents.")
    stream: Any = io.BytesIO("\n".join(lines).encode())
    data = read_source(Source("document", stream), "jsonl")
    check_ids(data.ids or [])
    return data


def _to_python(value: Any) -> Any:
    """NumPy arrays and numbers as Python's."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not a JSON value")


def check_text(what: str, value: Any) -> str:
    """A string that can be encoded as UTF-8, which unpaired surrogates cannot.

    >>> check_text("a label", "half a \\ud83d")
    Traceback (most recent call last):
    ripml.base.errors.DataError: a label must be a string that can be encoded as UTF-8; got 'half a \\ud83d'.
    """
    if not isinstance(value, str) or not _is_utf8(value):
        raise DataError(f"{what} must be a string that can be encoded as UTF-8; got {_brief.repr(value)}.")
    return value


def _is_utf8(text: str) -> bool:
    return text.encode("utf-8", "ignore").decode() == text


def check_data(data: Dataset) -> Dataset:
    """A data set whose ids, label names, texts and feature names can all be stored."""
    check_ids(data.ids or [])
    check_names([check_text("a label", name) for name in data.label_names], len(data.label_names))
    for text in data.texts or ():
        check_text("a text", text)
    for name in data.feature_names or ():
        check_text("a feature name", name)
    return data


def check_labels(names: Iterable[str]) -> list[str]:
    """Label names without repetitions.

    >>> check_labels(("b", "a", "b"))
    ['b', 'a']
    """
    if isinstance(names, str) or not isinstance(names, Iterable):
        what = "the string " if isinstance(names, str) else ""
        raise DataError(f"a list of label names is needed; got {what}{names!r}.")
    return list(dict.fromkeys(check_text("a label", name) for name in names))


def check_id(id: str) -> str:
    """The id of a document."""
    if id == "":
        raise DataError("the id of a document must not be empty; got ''.")
    return check_text("an id", id)


def check_actor(actor: str | None) -> str | None:
    """The name of whoever makes a change; None if it is unknown.

    >>> check_actor("")
    Traceback (most recent call last):
    ripml.base.errors.ParameterError: `actor` must be a name or None; got ''.
    """
    if actor is not None and (not isinstance(actor, str) or not actor or not _is_utf8(actor)):
        raise ParameterError(f"`actor` must be a name or None; got {_brief.repr(actor)}.")
    return actor


def check_ids(ids: Iterable[str]) -> list[str]:
    """The ids of documents, each of them once."""
    seen: dict[str, None] = {}
    for id in map(check_id, ids if isinstance(ids, Iterable) and not isinstance(ids, str) else [ids]):
        if id in seen:
            raise DataError(f"document {id!r} is given twice.")
        seen[id] = None
    return list(seen)


def encoder_vectors(model: DocumentModel, data: Dataset) -> Any:
    """The vectors of texts that come from an encoder, which are kept; None for other features."""
    return None if model.text is None else model.text.encoded(data.texts or [])


@dataclass(frozen=True)
class Bodies:
    """How the documents of a store are kept as bytes.

    A text is kept as UTF-8, after the vector that it was learnt with where that is from an encoder ("encoded"): an
    encoder may give another one when it is asked again. Such a body begins with a byte that UTF-8 does not have; those
    of early versions have no vector. Named features ("objects") are kept as JSON, and numbered features ("lists" of
    length `width`) as the columns (int32) and values (float32) that are not 0.

    >>> from scipy.sparse import csr_array
    >>> data = Dataset(X=csr_array([[0, 0.5, 0]]), Y=csr_array((1, 0)), label_names=[])
    >>> bodies = Bodies("lists", 3)
    >>> bodies.to_json(bodies.pack(data)[0])
    {'features': [0, 0.5, 0]}
    """

    form: str
    width: int = 0

    @classmethod
    def of(cls, model: DocumentModel) -> Bodies:
        """The form of the documents that a model learns from."""
        if model.text is not None:
            return cls("encoded", model.text.n_encoded) if model.text.n_encoded else cls("text")
        return cls("lists", model.model.n_features_in_) if model.feature_names is None else cls("objects")

    def pack(self, data: Dataset, vectors: Any = None) -> list[bytes]:
        """The body of each row; equal features give equal bytes. `vectors` (n, d) are those of an encoder."""
        if self.form == "encoded":
            rows = np.asarray(vectors, "<f4")
            texts = data.texts or ()
            return [_VECTOR + row.tobytes() + text.encode() for row, text in zip(rows, texts, strict=True)]
        if self.form == "text":
            return [text.encode() for text in data.texts or ()]
        X = data.X
        bodies = []
        for start, end in zip(X.indptr[:-1], X.indptr[1:], strict=True):
            columns, values = X.indices[start:end], np.asarray(X.data[start:end], np.float32)
            columns, values = columns[values != 0], values[values != 0]
            if data.feature_names is None:
                bodies.append(columns.astype("<i4").tobytes() + values.astype("<f4").tobytes())
            else:
                names = (data.feature_names[column] for column in columns)
                row = dict(sorted(zip(names, map(json.loads, shortest(values)), strict=True)))
                bodies.append(json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode())
        return bodies

    def to_dataset(self, states: Sequence[State], labels: Sequence[Label] = ()) -> Dataset:
        """Documents as a data set; the columns of Y are `labels`, which must be in the order of their numbers."""
        numbers = np.array([label.number for label in labels], np.int64)
        carried = np.array([label for state in states for label in state.labels] if labels else [], np.int64)
        ends = np.cumsum([0, *(len(state.labels) if labels else 0 for state in states)], dtype=np.int64)
        common: dict[str, Any] = {
            "Y": csr(np.ones(len(carried)), np.searchsorted(numbers, carried), ends, len(labels)),
            "label_names": [str(label.name) for label in labels],
            "name": "the store",
        }
        if self.form in ("text", "encoded"):
            return Dataset(X=None, texts=[self.text(state.body) for state in states], **common)
        rows, columns = SparseRows(), dict[str, int]()
        for state in states:
            if self.form == "lists":
                rows.add({column: float(value) for column, value in self._unpack(state.body)})
            else:
                features = json.loads(state.body)
                rows.add({columns.setdefault(name, len(columns)): value for name, value in features.items()})
        if self.form == "lists":
            return Dataset(X=rows.csr(self.width), **common)
        return Dataset(X=rows.csr(len(columns)), feature_names=list(columns), **common)

    def to_json(self, body: bytes) -> dict[str, Any]:
        """A body as in JSONL: {"text": …} or {"features": …}."""
        if self.form in ("text", "encoded"):
            return {"text": self.text(body)}
        if self.form == "objects":
            return {"features": json.loads(body)}
        features: list[Any] = [0] * self.width
        for column, value in self._unpack(body):
            features[column] = json.loads(value)
        return {"features": features}

    @property
    def has_text(self) -> bool:
        """Whether documents are texts."""
        return self.form in ("text", "encoded")

    def text(self, body: bytes) -> str:
        """The text of a body."""
        return self.content(body).decode()

    def content(self, body: bytes) -> bytes:
        """A body without the vector of its text: the part that comes from the document itself."""
        return body[1 + 4 * self.width :] if self.has_vector(body) else body

    def has_vector(self, body: bytes) -> bool:
        """Whether a body has the vector that its text was learnt with."""
        return self.form == "encoded" and body.startswith(_VECTOR)

    def vectors(self, states: Sequence[State]) -> NDArray[np.float32] | None:
        """The vectors that texts were learnt with, (n, d); None where they are not kept."""
        if self.form != "encoded" or not all(self.has_vector(state.body) for state in states):
            return None
        rows = b"".join(state.body[1 : 1 + 4 * self.width] for state in states)
        return np.frombuffer(rows, "<f4").reshape(len(states), self.width).astype(np.float32)

    def unchanged(self, before: bytes | None, after: bytes) -> bytes:
        """The body before, if it has the same text as the one after: its vector is the one that was learnt."""
        same = before is not None and self.has_vector(before) and self.text(before) == self.text(after)
        return before if same and before is not None else after

    def _unpack(self, body: bytes) -> Iterable[tuple[int, str]]:
        """The columns of a list and their values as decimal numbers."""
        n = len(body) // 8
        columns = np.frombuffer(body, "<i4", n)
        if len(body) != 8 * n or (n and not 0 <= columns.min() <= columns.max() < self.width):
            raise ValueError("a document has features that its model cannot have")
        return zip(columns.tolist(), shortest(np.frombuffer(body, "<f4", n, 4 * n)), strict=True)
