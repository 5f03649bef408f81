"""JSONL: one JSON object per line, with label names and a text, or features, or both.

::

    {"id": "a1", "labels": ["news", "sport"], "text": "The match was …"}
    {"labels": ["news"], "features": {"height": 1.5, "weight": 3}}
    {"labels": [], "features": [0, 0.25, 1]}

"labels" may also be one string, such as "news|sport", as in a table (`ripml.datasets.documents`). The keys "labels",
"text", "features" and "id" must be on every line or on none, and "features" must be all objects or all lists; other
keys and blank lines are ignored. Names get columns in the order in which they appear, unless
`label_names` and `feature_names` fix the columns: then any other name is an error.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any, Final, NoReturn

from ripml.datasets.dataset import Dataset, SparseRows
from ripml.datasets.documents import Columns, joined, parse_labels, say_separators, separators_in
from ripml.datasets.formats.rows import FLOAT32_BOUND, shortest
from ripml.datasets.source import BOM, Source, Where, check_no_other_kind, decode, encode, fault

SUFFIXES: Final = (".jsonl", ".ndjson")
CONTENT: Final = "any"

# What each key may hold, by the Python type of the decoded value.
_FORMS: Final[dict[str, dict[type, str]]] = {
    "labels": {list: "a list", str: "a list"},
    "text": {str: "a string"},
    "features": {dict: "an object", list: "a list"},
    "id": {str: "a string", int: "a string"},
}
_ONE_OBJECT_PER_LINE: Final = (
    'JSONL has one object per line, such as {"labels": ["a"], "text": "…"}, and no array around them.'
)


def recognises(source: Source) -> bool:
    """Whether the first line begins an object, or an array, for which `iter_blocks` has a better message."""
    return source.first_line()[:1] in (b"{", b"[")


def iter_blocks(
    source: Source,
    *,
    text: str | Sequence[str] = "text",
    labels: str = "labels",
    id: str = "id",
    tag_separator: str | None = None,
    label_names: Iterable[str] | None = None,
    feature_names: Iterable[str] | None = None,
) -> Iterator[Dataset]:
    """Yield blocks of rows; a block has a column for every name so far.

    Parameters
    ----------
    text, labels, id : str
        The keys of text, labels and id; the texts of several keys are joined with line breaks, so put a title first.
    tag_separator : str, optional
        What separates labels in a string. Default: found in the strings, see `ripml.datasets.documents`.
    label_names, feature_names : iterable of str, optional
        The columns of Y and X, to match those of another data set.
    """
    check_no_other_kind(source)
    first_text, *more_texts = [text] if isinstance(text, str) else text
    keys = {"labels": labels, "text": first_text, "features": "features", "id": id}
    separators: Sequence[str] | None = None if tag_separator is None else [tag_separator]
    label_columns, feature_columns = Columns("label", label_names), Columns("feature", feature_names)
    forms: dict[str, str] | None = None  # of the first record: the keys it has, and what they hold
    width: int | None = None  # of features given as lists
    for first, chunk in source.chunks():
        Y, X = SparseRows(), SparseRows()
        texts: list[str] = []
        ids: list[str] = []
        carried: list[tuple[Where, Any]] = []
        for number, line in enumerate(chunk.removesuffix(b"\n").split(b"\n"), first):
            where = (source.name, number)
            if not (line.removeprefix(BOM) if number == 1 else line).strip():
                continue
            # All records must have the keys and forms of the first one.
            line_object = _parse_object(line, where)
            if forms is None:
                _check_keys(line_object, keys, more_texts, where)
            record = {key: line_object[name] for key, name in keys.items() if name in line_object}
            record_forms = {key: _form(key, keys[key], value, where) for key, value in record.items()}
            forms = record_forms if forms is None else forms
            if record_forms != forms:
                _raise_difference(record_forms, forms, keys, where)
            carried.append((where, record.get("labels", [])))
            values = record.get("features")
            if isinstance(values, dict):
                X.add({feature_columns.at(name, where): _number(v, name, where) for name, v in values.items()})
            elif isinstance(values, list):
                width = len(values) if width is None else width
                if len(values) != width:
                    raise fault(*where, f"there are {len(values)} features, but {width} on the lines before.")
                numbers = [_number(v, j, where) for j, v in enumerate(values)]
                X.add({j: value for j, value in enumerate(numbers) if value})
            texts.append(joined([record.get("text", ""), *(_text(line_object, key, where) for key in more_texts)]))
            ids.append(str(record.get("id", "")))
        if forms is None or not texts:
            continue
        strings = [found for _, found in carried if isinstance(found, str)]
        if separators is None and strings:
            separators = separators_in(strings)
            say_separators(source.name, separators)
        for place, found in carried:
            names = _split(found, separators, place) if isinstance(found, str) else _checked_labels(found, place)
            if tag_separator is not None:
                names = [one for name in names for one in parse_labels(name, [tag_separator])]
            Y.add(label_columns.row(names, place))
        yield Dataset(
            X=X.csr(len(feature_columns) if width is None else width) if "features" in forms else None,
            Y=Y.csr(len(label_columns)),
            label_names=label_columns.names(),
            feature_names=feature_columns.names() if forms.get("features") == "an object" else None,
            texts=texts if "text" in forms else None,
            ids=ids if "id" in forms else None,
            name=source.name,
        )
    if forms is None:
        raise fault(source.name, None, "the file is empty.")


def iter_records(source: Source) -> Iterator[tuple[Where, dict[str, Any]]]:
    """Yield where each object is, and the object with all its keys."""
    for number, line in source.lines():
        where = (source.name, number)
        if (line.removeprefix(BOM) if number == 1 else line).strip():
            yield where, _parse_object(line, where)


def write_blocks(blocks: Iterable[Dataset], file: IO[bytes]) -> None:
    """Write all rows: features by name if they have names, else as full lists of d numbers."""
    for dataset, row in ((block, row) for block in blocks for row in range(len(block))):
        record: dict[str, Any] = {}
        if dataset.ids is not None:
            record["id"] = dataset.ids[row]
        record["labels"] = dataset.row_labels(row)
        if dataset.texts is not None:
            record["text"] = dataset.texts[row]
        if dataset.X is not None:
            cells = slice(dataset.X.indptr[row], dataset.X.indptr[row + 1])
            values = map(json.loads, shortest(dataset.X.data[cells]))
            features = dict(zip(dataset.X.indices[cells].tolist(), values, strict=True))
            if dataset.feature_names is not None:
                record["features"] = {dataset.feature_names[j]: value for j, value in features.items()}
            else:
                record["features"] = [features.get(j, 0) for j in range(dataset.X.shape[1])]
        file.write(encode(json.dumps(record, ensure_ascii=False), row) + b"\n")


def _parse_object(line: bytes, where: Where) -> dict[str, Any]:
    text = decode(line, where)
    try:
        record = json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_refuse_constant)
        if "\\u" in text:
            json.dumps(record, ensure_ascii=False).encode()  # raises for half of a surrogate pair
    except json.JSONDecodeError as error:
        if where[1] == 1 and (text.startswith("[") or text.strip() == "{"):
            raise fault(*where, _ONE_OBJECT_PER_LINE) from None
        raise fault(*where, f"this is not JSON ({error.msg} at column {error.colno}).") from None
    except UnicodeEncodeError:
        raise fault(*where, "a \\u escape is half of a surrogate pair.") from None
    except RecursionError:
        raise fault(*where, "the JSON is nested too deeply.") from None
    except ValueError as error:
        raise fault(*where, str(error)) from None
    if isinstance(record, list) and where[1] == 1:
        raise fault(*where, _ONE_OBJECT_PER_LINE)
    if not isinstance(record, dict):
        raise fault(*where, 'the line must be a JSON object such as {"labels": ["a"], "text": "…"}.')
    return record


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        (twice, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"'{twice}' is given twice in one object.")
    return record


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a finite number.")


def _split(labels: str, separators: Sequence[str] | None, where: Where) -> list[str]:
    try:
        return parse_labels(labels, separators)
    except ValueError as error:
        raise fault(*where, str(error)) from None


def _text(record: dict[str, Any], key: str, where: Where) -> str:
    """A further text of a line, which may be missing."""
    value = record.get(key) or ""
    if not isinstance(value, str):
        raise fault(*where, f"'{key}' must be a string; got {json.dumps(value)[:40]}.")
    return value


def _check_keys(record: dict[str, Any], keys: dict[str, str], more_texts: Sequence[str], where: Where) -> None:
    """Raise if the first line lacks a key that an option names, or has neither text nor features but other keys."""
    present = ", ".join(map(repr, record))[:200]
    named = [(key, keys[key]) for key in ("text", "labels", "id") if keys[key] != key]
    for key, name in [*named, *(("text", name) for name in more_texts)]:
        if name not in record:
            raise fault(*where, f"there is no '{name}' among the keys {present}; name the right one with {key}=….")
    if not any(keys[key] in record for key in ("text", "features")) and record.keys() - keys.values():
        raise fault(
            *where,
            f"there is neither 'text' nor 'features' among the keys {present}; name the key of the text with text=….",
        )


def _form(key: str, name: str, value: Any, where: Where) -> str:
    forms = _FORMS[key]
    if type(value) not in forms:
        expected = " or ".join(dict.fromkeys(forms.values()))
        raise fault(*where, f"'{name}' must be {expected}; got {json.dumps(value)[:40]}.")
    return forms[type(value)]


def _raise_difference(forms: dict[str, str], before: dict[str, str], keys: dict[str, str], where: Where) -> NoReturn:
    for key, name in keys.items():
        if key in before and key not in forms:
            raise fault(*where, f"'{name}' is missing, but the lines before have it.")
        if key in forms and key not in before:
            raise fault(*where, f"there is '{name}', but the lines before do not have it.")
    raise fault(*where, f"'features' is {forms['features']}, but {before['features']} on the lines before.")


def _checked_labels(labels: list[Any], where: Where) -> list[str]:
    for name in labels:
        if not isinstance(name, str):
            raise fault(*where, f"a label must be a string; got {json.dumps(name)[:40]}.")
    return labels


def _number(value: Any, feature: str | int, where: Where) -> float:
    if type(value) not in (int, float):
        raise fault(*where, f"feature '{feature}' must be a number; got {json.dumps(value)[:40]}.")
    if not abs(value) < FLOAT32_BOUND:
        raise fault(*where, f"feature '{feature}' is not a finite float32 number; got {str(value)[:40]}.")
    return float(value)
