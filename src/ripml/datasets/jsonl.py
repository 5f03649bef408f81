"""JSONL: one JSON object a line, with label names and a text, or features, or both.

::

    {"id": "a1", "labels": ["news", "sport"], "text": "The match was …"}
    {"labels": ["news"], "features": {"height": 1.5, "weight": 3}}
    {"labels": [], "features": [0, 0.25, 1]}

The keys "labels", "text", "features" and "id" must be on every line or on none, and "features" in the same form on
every line; other keys and blank lines are left alone. Names get columns in the order in which they appear, unless
`label_names` and `feature_names` fix the columns: then any other name is an error.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import IO, Any, Final, NoReturn

from ripml.datasets.dataset import Dataset, SparseRows, join
from ripml.datasets.records import BOM, Columns, Where, decoded, encoded, names_of_row
from ripml.datasets.rows import FLOAT32_BOUND, shortest
from ripml.datasets.source import Source, fault

__all__ = ["iter_blocks", "read", "write"]


def read(
    source: Source,
    *,
    text: str = "text",
    labels: str = "labels",
    id: str = "id",
    label_names: Iterable[str] | None = None,
    feature_names: Iterable[str] | None = None,
) -> Dataset:
    """Read all lines.

    Parameters
    ----------
    text, labels, id : str
        The keys of these, where they have others.
    label_names, feature_names : iterable of str, optional
        The columns of Y and X, when they are to be those of another data set.
    """
    return join(
        iter_blocks(source, text=text, labels=labels, id=id, label_names=label_names, feature_names=feature_names)
    )


def iter_blocks(
    source: Source,
    *,
    text: str = "text",
    labels: str = "labels",
    id: str = "id",
    label_names: Iterable[str] | None = None,
    feature_names: Iterable[str] | None = None,
) -> Iterator[Dataset]:
    """Yield blocks of rows; a block has a column for every name so far, or those of the given names."""
    keys = {"labels": labels, "text": text, "features": "features", "id": id}
    known, features = Columns("label", label_names), Columns("feature", feature_names)
    form: dict[str, str] | None = None
    width: int | None = None  # of features given as lists
    for at, chunk in source.chunks():
        label_rows, feature_rows = SparseRows(), SparseRows()
        texts: list[str] = []
        ids: list[str] = []
        for number, line in enumerate(chunk.removesuffix(b"\n").split(b"\n"), at):
            where = (source.name, number)
            if not (written := line.removeprefix(BOM) if number == 1 else line).strip():
                continue
            given = _record(written, where)
            if form is None:
                _check_keys(given, keys, where)
            record = {key: given[name] for key, name in keys.items() if name in given}
            its_form = {key: _form(key, keys[key], value, where) for key, value in record.items()}
            if form is None:
                form = its_form
            elif its_form != form:
                _explain_difference(its_form, form, keys, where)
            label_rows.add(known.row(_strings(record.get("labels", []), where), where))
            values = record.get("features")
            if isinstance(values, dict):
                feature_rows.add({features.at(name, where): _number(v, name, where) for name, v in values.items()})
            elif isinstance(values, list):
                width = len(values) if width is None else width
                if len(values) != width:
                    raise fault(*where, f"there are {len(values)} features, but {width} on the lines before.")
                numbers = [_number(v, j, where) for j, v in enumerate(values)]
                feature_rows.add({j: value for j, value in enumerate(numbers) if value})
            texts.append(record.get("text", ""))
            ids.append(str(record.get("id", "")))
        if form is None or not texts:
            continue
        yield Dataset(
            X=feature_rows.csr(len(features) if width is None else width) if "features" in form else None,
            Y=label_rows.csr(len(known)),
            label_names=known.names(),
            feature_names=features.names() if form.get("features") == "an object" else None,
            texts=texts if "text" in form else None,
            ids=ids if "id" in form else None,
            name=source.name,
        )
    if form is None:
        raise fault(source.name, None, "the file is empty.")


def write(dataset: Dataset, file: IO[bytes]) -> None:
    """Write all rows: features by name if they have names, else as full lists of d numbers."""
    for row in range(len(dataset)):
        record: dict[str, Any] = {}
        if dataset.ids is not None:
            record["id"] = dataset.ids[row]
        record["labels"] = names_of_row(dataset, row)
        if dataset.texts is not None:
            record["text"] = dataset.texts[row]
        if dataset.feature_names is not None and dataset.X is not None:
            record["features"] = {dataset.feature_names[j]: value for j, value in _entries(dataset.X, row)}
        elif dataset.X is not None:
            record["features"] = [0] * dataset.X.shape[1]
            for j, value in _entries(dataset.X, row):
                record["features"][j] = value
        file.write(encoded(json.dumps(record, ensure_ascii=False), row) + b"\n")


def _entries(matrix: Any, row: int) -> Iterator[tuple[int, float]]:
    """Yield (column, value) of a CSR row, values as the shortest numbers that JSON can hold."""
    entries = slice(matrix.indptr[row], matrix.indptr[row + 1])
    yield from zip(matrix.indices[entries].tolist(), map(json.loads, shortest(matrix.data[entries])), strict=True)


# What each key may hold, by Python type of the decoded value.
_FORMS: Final[dict[str, dict[type, str]]] = {
    "labels": {list: "a list"},
    "text": {str: "a string"},
    "features": {dict: "an object", list: "a list"},
    "id": {str: "a string", int: "a string"},
}


_ONE_A_LINE: Final = 'JSONL has one object a line, such as {"labels": ["a"], "text": "…"}, and no array around them.'


def _check_keys(record: dict[str, Any], keys: dict[str, str], where: Where) -> None:
    """Raise unless the first line has a key of a text or of features, if it has others, and those that were named."""
    there = ", ".join(map(repr, record))[:200]
    for key in ("text", "labels", "id"):
        if keys[key] != key and keys[key] not in record:
            raise fault(*where, f"there is no '{keys[key]}' among the keys {there}; name the right one with {key}=….")
    if not any(keys[key] in record for key in ("text", "features")) and record.keys() - keys.values():
        wanted = "neither 'text' nor 'features'"
        raise fault(*where, f"there is {wanted} among the keys {there}; name the key of the text with text=….")


def _record(line: bytes, where: Where) -> dict[str, Any]:
    text = decoded(line, where)
    try:
        record = json.loads(text, object_pairs_hook=_without_repetition, parse_constant=_no_constant)
        if "\\u" in text:
            json.dumps(record, ensure_ascii=False).encode()  # half of a surrogate pair is not text
    except json.JSONDecodeError as error:
        if "\0" in text[:4]:
            raise fault(*where, "this is UTF-16; save the file as UTF-8.") from None
        if where[1] == 1 and (text.startswith("[") or text.strip() == "{"):
            raise fault(*where, _ONE_A_LINE) from None
        raise fault(*where, f"this is not JSON ({error.msg} at column {error.colno}).") from None
    except UnicodeEncodeError:
        raise fault(*where, "a \\u escape is half of a surrogate pair.") from None
    except RecursionError:
        raise fault(*where, "the JSON is nested too deeply.") from None
    except ValueError as error:
        raise fault(*where, str(error)) from None
    if isinstance(record, list) and where[1] == 1:
        raise fault(*where, _ONE_A_LINE)
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


def _form(key: str, name: str, value: Any, where: Where) -> str:
    forms = _FORMS[key]
    if type(value) not in forms:
        raise fault(
            *where, f"'{name}' must be {' or '.join(dict.fromkeys(forms.values()))}; got {json.dumps(value)[:40]}."
        )
    return forms[type(value)]


def _explain_difference(form: dict[str, str], before: dict[str, str], keys: dict[str, str], where: Where) -> NoReturn:
    for key, name in keys.items():
        if key in before and key not in form:
            raise fault(*where, f"'{name}' is missing, but the lines before have it.")
        if key in form and key not in before:
            raise fault(*where, f"there is '{name}', but the lines before do not have it.")
    raise fault(*where, f"'features' is {form['features']}, but {before['features']} on the lines before.")


def _strings(given: list[Any], where: Where) -> list[str]:
    for name in given:
        if not isinstance(name, str):
            raise fault(*where, f"a label must be a string; got {json.dumps(name)[:40]}.")
    return given


def _number(value: Any, feature: str | int, where: Where) -> float:
    if type(value) not in (int, float):
        raise fault(*where, f"feature '{feature}' must be a number; got {json.dumps(value)[:40]}.")
    if not abs(value) < FLOAT32_BOUND:
        raise fault(*where, f"feature '{feature}' is not a finite float32 number; got {str(value)[:40]}.")
    return float(value)
