"""JSONL: one JSON object a line, with label names and a text, or features, or both.

::

    {"id": "a1", "labels": ["news", "sport"], "text": "The match was …"}
    {"labels": ["news"], "features": {"height": 1.5, "weight": 3}}
    {"labels": [], "features": [0, 0.25, 1]}

The keys "labels", "text", "features" and "id" must be on every line or on none, and "features" in the same form on
every line; other keys are left alone. Names get columns in the order in which they appear, unless `label_names` and
`feature_names` fix the columns: then any other name is an error.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import IO, Any, Final, NoReturn, TypeAlias

from ripml.datasets.dataset import Dataset, SparseRows, join
from ripml.datasets.rows import FLOAT32_BOUND, shortest
from ripml.datasets.source import Source, fault
from ripml.errors import DataError, ParameterError

__all__ = ["iter_blocks", "read", "write"]


def read(
    source: Source, *, label_names: Iterable[str] | None = None, feature_names: Iterable[str] | None = None
) -> Dataset:
    """Read all lines.

    Parameters
    ----------
    label_names, feature_names : iterable of str, optional
        The columns of Y and X, when they are to be those of another data set.
    """
    return join(iter_blocks(source, label_names=label_names, feature_names=feature_names))


def iter_blocks(
    source: Source, *, label_names: Iterable[str] | None = None, feature_names: Iterable[str] | None = None
) -> Iterator[Dataset]:
    """Yield blocks of rows; a block has a column for every name so far, or those of the given names."""
    labels, features = _Columns("label", label_names), _Columns("feature", feature_names)
    form: dict[str, str] | None = None
    width: int | None = None  # of features given as lists
    at = 0
    for at, chunk in source.chunks():
        label_rows, feature_rows = SparseRows(), SparseRows()
        texts: list[str] = []
        ids: list[str] = []
        for number, line in enumerate(chunk.removesuffix(b"\n").split(b"\n"), at):
            where = (source.name, number)
            record = _decoded(line, where)
            its_form = {key: _form(key, record[key], where) for key in _FORMS if key in record}
            if form is None:
                form = its_form
            elif its_form != form:
                _explain_difference(its_form, form, where)
            _add_labels(label_rows, record.get("labels", []), labels, where)
            given = record.get("features")
            if isinstance(given, dict):
                feature_rows.add({features.at(name, where): _number(v, name, where) for name, v in given.items()})
            elif isinstance(given, list):
                width = len(given) if width is None else width
                if len(given) != width:
                    raise fault(*where, f"there are {len(given)} features, but {width} on the lines before.")
                numbers = [_number(v, j, where) for j, v in enumerate(given)]
                feature_rows.add({j: value for j, value in enumerate(numbers) if value})
            texts.append(record.get("text", ""))
            ids.append(str(record.get("id", "")))
        assert form is not None  # a chunk has at least one line
        yield Dataset(
            X=feature_rows.csr(len(features) if width is None else width) if "features" in form else None,
            Y=label_rows.csr(len(labels)),
            label_names=labels.names(),
            feature_names=features.names() if form.get("features") == "an object" else None,
            texts=texts if "text" in form else None,
            ids=ids if "id" in form else None,
            name=source.name,
        )
    if at == 0:
        raise fault(source.name, None, "the file is empty.")


def write(dataset: Dataset, file: IO[bytes]) -> None:
    """Write all rows: features by name if they have names, else as full lists of d numbers."""
    for row in range(len(dataset)):
        record: dict[str, Any] = {}
        if dataset.ids is not None:
            record["id"] = dataset.ids[row]
        record["labels"] = [dataset.label_names[j] for j, _ in _entries(dataset.Y, row)]
        if dataset.texts is not None:
            record["text"] = dataset.texts[row]
        if dataset.feature_names is not None and dataset.X is not None:
            record["features"] = {dataset.feature_names[j]: value for j, value in _entries(dataset.X, row)}
        elif dataset.X is not None:
            record["features"] = [0] * dataset.X.shape[1]
            for j, value in _entries(dataset.X, row):
                record["features"][j] = value
        try:
            file.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")
        except UnicodeEncodeError:
            raise DataError(f"row {row} has half of a surrogate pair in it, which UTF-8 cannot hold.") from None


def _entries(matrix: Any, row: int) -> Iterator[tuple[int, float]]:
    """Yield (column, value) of a CSR row, values as the shortest numbers that JSON can hold."""
    entries = slice(matrix.indptr[row], matrix.indptr[row + 1])
    yield from zip(matrix.indices[entries].tolist(), map(json.loads, shortest(matrix.data[entries])), strict=True)


_Where: TypeAlias = tuple[str, int]

# What each key may hold, by Python type of the decoded value.
_FORMS: Final[dict[str, dict[type, str]]] = {
    "labels": {list: "a list"},
    "text": {str: "a string"},
    "features": {dict: "an object", list: "a list"},
    "id": {str: "a string", int: "a string"},
}


class _Columns:
    """Names and their columns: given beforehand and closed, or growing as names appear."""

    def __init__(self, what: str, names: Iterable[str] | None) -> None:
        self._what = what
        self._closed = names is not None
        self._names = list(names or ())
        self._at = {name: column for column, name in enumerate(self._names)}
        if len(self._at) < len(self._names):
            raise ParameterError(f"`{what}_names` must have no name twice.")

    def __len__(self) -> int:
        return len(self._at)

    def names(self) -> list[str]:
        """Return the names in order of their columns; a list that later growth does not change."""
        if len(self._names) < len(self._at):
            self._names = list(self._at)
        return self._names

    def at(self, name: str, where: _Where) -> int:
        column = self._at.get(name)
        if column is None:
            if self._closed:
                raise fault(*where, f"{self._what} '{name}' is not among the {len(self._at)} names given.")
            column = self._at[name] = len(self._at)
        return column


def _decoded(line: bytes, where: _Where) -> dict[str, Any]:
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise fault(*where, f"byte {error.start + 1} of the line is not UTF-8; save the file as UTF-8.") from None
    try:
        record = json.loads(text, object_pairs_hook=_without_repetition, parse_constant=_no_constant)
        if "\\u" in text:
            json.dumps(record, ensure_ascii=False).encode()  # half of a surrogate pair is not text
    except json.JSONDecodeError as error:
        raise fault(*where, f"this is not JSON ({error.msg} at column {error.colno}).") from None
    except UnicodeEncodeError:
        raise fault(*where, "a \\u escape is half of a surrogate pair.") from None
    except RecursionError:
        raise fault(*where, "the JSON is nested too deeply.") from None
    except ValueError as error:
        raise fault(*where, str(error)) from None
    if not isinstance(record, dict):
        raise fault(*where, 'the line must be a JSON object such as {"labels": ["a"], "text": "…"}.')
    return record


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        (twice, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"'{twice}' is given twice in one object.")
    return record


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a finite number.")


def _form(key: str, value: Any, where: _Where) -> str:
    forms = _FORMS[key]
    if type(value) not in forms:
        raise fault(
            *where, f"'{key}' must be {' or '.join(dict.fromkeys(forms.values()))}; got {json.dumps(value)[:40]}."
        )
    return forms[type(value)]


def _explain_difference(form: dict[str, str], before: dict[str, str], where: _Where) -> NoReturn:
    for key in _FORMS:
        if key in before and key not in form:
            raise fault(*where, f"'{key}' is missing, but the lines before have it.")
        if key in form and key not in before:
            raise fault(*where, f"there is '{key}', but the lines before do not have it.")
    raise fault(*where, f"'features' is {form['features']}, but {before['features']} on the lines before.")


def _add_labels(rows: SparseRows, given: list[Any], labels: _Columns, where: _Where) -> None:
    row: dict[int, float] = {}
    for name in given:
        if not isinstance(name, str):
            raise fault(*where, f"a label must be a string; got {json.dumps(name)[:40]}.")
        column = labels.at(name, where)
        if column in row:
            raise fault(*where, f"label '{name}' is given twice.")
        row[column] = 1.0
    rows.add(row)


def _number(value: Any, feature: str | int, where: _Where) -> float:
    if type(value) not in (int, float):
        raise fault(*where, f"feature '{feature}' must be a number; got {json.dumps(value)[:40]}.")
    if not abs(value) < FLOAT32_BOUND:
        raise fault(*where, f"feature '{feature}' is not a finite float32 number; got {str(value)[:40]}.")
    return float(value)
