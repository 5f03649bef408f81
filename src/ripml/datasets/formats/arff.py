"""Mulan's pair of files: an ARFF file of attributes and rows, and an XML file that names the labels among them.

::

    @relation tiny                           <labels xmlns="http://mulan.sourceforge.net/labels">
    @attribute height numeric                  <label name="tall"></label>
    @attribute 'is red' {0,1}                  <label name="warm"></label>
    @attribute tall {0,1}                    </labels>
    @attribute warm {0,1}
    @data
    1.5,0,1,0
    {1 1, 3 1}

A row is dense, or sparse between braces: `{attribute value, …}`, with attributes counted from 0 and 0 for those left
out. An attribute is numeric (also `real`, `integer`) or nominal with numbers as values. Labels get columns in the order
of the XML, features in the order of the ARFF. A line that begins with % is a comment. A missing value `?` is an
error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches
from itertools import islice, pairwise
from pathlib import Path
from typing import IO, Any, Final, NamedTuple
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

from ripml.base.errors import DataError, ParameterError
from ripml.datasets.dataset import Dataset, SparseRows
from ripml.datasets.formats.rows import FLOAT32_BOUND, shortest
from ripml.datasets.source import Place, Source, Where, decode, fault, open_source, open_target

SUFFIXES: Final = (".arff",)
CONTENT: Final = "features"

_QUOTED: Final = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_ATTRIBUTE: Final = re.compile(rf"@attribute\s+({_QUOTED}|[^\s'\"{{][^\s{{]*)\s*(.+)", re.IGNORECASE)
_ITEM: Final = re.compile(rf"\s*({_QUOTED}|[^,'\"]*)\s*(?:,|$)")
_ESCAPED: Final = re.compile(r"\\(.)")
_PLAIN_NAME: Final = re.compile(r"[^\s'\"%{},\\@]+")
_UNWRITABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ufffe\uffff]")  # XML cannot hold most of these
_ROWS_PER_BLOCK: Final = 4096


def recognises(source: Source) -> bool:
    """Whether the file begins with a declaration or a comment."""
    return source.head().lstrip()[:1] in (b"@", b"%")


def iter_blocks(source: Source, *, xml: Place | None = None) -> Iterator[Dataset]:
    """Yield blocks of rows, each with X of shape (rows, d) and Y of shape (rows, L); the last may have no rows.

    Parameters
    ----------
    xml : path or binary file, optional
        The label file; by default `NAME.xml` beside `NAME.arff`, `NAME-train.arff` or `NAME-test.arff`.
    """
    label_names = _read_xml(_find_xml(source.name) if xml is None else xml)
    lines = _lines(source)
    attributes = _parse_header(source.name, lines)
    names = [attribute.name for attribute in attributes]
    if missing := set(label_names).difference(names):
        name = next(name for name in label_names if name in missing)
        guess = "".join(f" (the closest is '{close}')" for close in get_close_matches(name, names, n=1))
        raise fault(source.name, None, f"label '{name}' of the XML is not an attribute{guess}; correct the XML.")
    # Each attribute is a column of X or of Y.
    label_column = {name: j for j, name in enumerate(label_names)}
    feature_names = [name for name in names if name not in label_column]
    feature_column = {name: j for j, name in enumerate(feature_names)}
    parser = _RowParser(attributes, [name in label_column for name in names])
    is_full = True
    while is_full:
        X, Y = SparseRows(), SparseRows()
        for where, line in islice(lines, _ROWS_PER_BLOCK):
            row = {names[a]: value for a, value in parser.parse(line, where).items()}
            X.add({feature_column[name]: value for name, value in row.items() if name in feature_column})
            Y.add({label_column[name]: value for name, value in row.items() if name in label_column})
        is_full = len(X) == _ROWS_PER_BLOCK
        yield Dataset(
            X=X.csr(len(feature_names)),
            Y=Y.csr(len(label_names)),
            label_names=label_names,
            feature_names=feature_names,
            name=source.name,
        )


def write_options(name: str) -> dict[str, Any]:
    """Return the label file of an ARFF file of this name: the same name with .xml."""
    return {"xml": _xml_path(name)}


def write(dataset: Dataset, file: IO[bytes], *, xml: Place | None = None) -> None:
    """Write sparse rows, features first, and the label file to `xml`; features without names are called f0, f1, …"""
    if xml is None:
        raise ParameterError("ARFF has its labels in a second file; pass where to write it with xml=….")
    d, names = dataset.X.shape[1], check(dataset)
    with open_target(xml) as xml_file:
        labels = "".join(f"<label name={quoteattr(name)}></label>\n" for name in dataset.label_names)
        head = '<?xml version="1.0" encoding="utf-8"?>\n<labels xmlns="http://mulan.sourceforge.net/labels">\n'
        xml_file.write(f"{head}{labels}</labels>\n".encode())
    kinds = ["numeric"] * d + ["{0,1}"] * len(dataset.label_names)
    file.write(f"@relation {_quoted(_UNWRITABLE.sub(' ', dataset.name) or 'data')}\n\n".encode())
    file.writelines(f"@attribute {_quoted(name)} {kind}\n".encode() for name, kind in zip(names, kinds, strict=True))
    file.write(b"\n@data\n")
    cells = [f"{j} {v}" for j, v in zip(dataset.X.indices.tolist(), shortest(dataset.X.data), strict=True)]
    ones = [f"{d + j} 1" for j in dataset.Y.indices.tolist()]
    for (a, b), (p, q) in zip(pairwise(dataset.X.indptr.tolist()), pairwise(dataset.Y.indptr.tolist()), strict=True):
        file.write(("{" + ",".join(cells[a:b] + ones[p:q]) + "}\n").encode())


def check(dataset: Dataset) -> list[str]:
    """Return the attribute names to write, features first; raise if they cannot be written."""
    features = dataset.feature_names
    names = [*([f"f{j}" for j in range(dataset.X.shape[1])] if features is None else features), *dataset.label_names]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"'{twice}' names two attributes; ARFF needs different names for all features and labels.")
    for name in names:
        if not name or _UNWRITABLE.search(name):
            raise DataError(f"{name!r} cannot be a name in ARFF; it is empty or contains a control character.")
    return names


class _Attribute(NamedTuple):
    name: str
    values: tuple[float, ...] | None  # of a nominal attribute; None if numeric


def _lines(source: Source) -> Iterator[tuple[Where, str]]:
    """Yield the lines and their places, without comments and blank lines."""
    number = 0
    for number, line in source.lines():
        where = (source.name, number)
        text = decode(line, where).strip()
        if text and not text.startswith("%"):
            yield where, text
    if number == 0:
        raise fault(source.name, None, "the file is empty.")


def _parse_header(name: str, lines: Iterator[tuple[Where, str]]) -> list[_Attribute]:
    """Consume the lines up to @data."""
    attributes: dict[str, _Attribute] = {}
    for where, line in lines:
        word = line.split(maxsplit=1)[0].lower()
        if word == "@data":
            if not attributes:
                raise fault(*where, "there is no @attribute before @data.")
            return list(attributes.values())
        if word == "@attribute":
            attribute = _parse_attribute(line, where)
            if attribute.name in attributes:
                raise fault(*where, f"attribute '{attribute.name}' is declared twice.")
            attributes[attribute.name] = attribute
        elif word != "@relation":
            raise fault(*where, f"'{line[:40]}' is not @relation, @attribute or @data.")
    raise fault(name, None, "there is no @data line.")


def _parse_attribute(line: str, where: Where) -> _Attribute:
    match = _ATTRIBUTE.fullmatch(line)
    if match is None:
        raise fault(*where, f"'{line[:40]}' is not '@attribute name type'.")
    name, kind = _unquoted(match[1]), match[2].strip()
    if kind.lower() in ("numeric", "real", "integer"):
        return _Attribute(name, None)
    if not (kind.startswith("{") and kind.endswith("}")):
        raise fault(*where, f"attribute '{name}' is of type '{kind[:40]}'; only numbers and {{0,1}} can be read.")
    try:
        return _Attribute(name, tuple(float(item) for item in _items(kind[1:-1])))
    except ValueError:
        problem = f"attribute '{name}' has values {kind[:40]} that are not numbers; encode them as numbers."
        raise fault(*where, problem) from None


class _RowParser:
    """Turns a line of @data into {attribute: value}."""

    def __init__(self, attributes: list[_Attribute], is_label: list[bool]) -> None:
        self._attributes = attributes
        self._is_label = is_label
        # The trap of sparse ARFF: a nominal attribute left out of a row has its first value, which may not be 0.
        self._required = {a for a, attribute in enumerate(attributes) if (attribute.values or (0,))[0] != 0}

    def parse(self, line: str, where: Where) -> dict[int, float]:
        return self._parse_sparse(line, where) if line.startswith("{") else self._parse_dense(line, where)

    def _parse_dense(self, line: str, where: Where) -> dict[int, float]:
        try:
            items = _items(line)
        except ValueError as error:
            raise fault(*where, f"{error}.") from None
        if len(items) != len(self._attributes):
            raise fault(*where, f"there are {len(items)} values, but {len(self._attributes)} attributes.")
        values = (self._parse_value(a, item, where) for a, item in enumerate(items))
        return {a: value for a, value in enumerate(values) if value}

    def _parse_sparse(self, line: str, where: Where) -> dict[int, float]:
        if not line.endswith("}"):
            raise fault(*where, "a sparse row must end with '}'.")
        entries: dict[int, float] = {}
        body = line[1:-1].strip()
        n = len(self._attributes)
        for cell in body.split(",") if body else ():
            index, *rest = cell.split(maxsplit=1)[:2] or [""]
            if not (rest and index.isascii() and index.isdigit()):
                raise fault(*where, f"'{cell.strip()[:40]}' is not 'attribute value', attributes counted from 0.")
            a = int(index[:18])
            if a >= n:
                raise fault(*where, f"attribute {a} is not below {n}, the number of attributes.")
            if a in entries:
                raise fault(*where, f"attribute {a} is given twice.")
            entries[a] = self._parse_value(a, _unquoted(rest[0].strip()), where)
        for a in self._required - entries.keys():
            name = self._attributes[a].name
            raise fault(*where, f"'{name}' is left out of a sparse row, but its first value is not 0.")
        return {a: value for a, value in entries.items() if value or not self._is_label[a]}

    def _parse_value(self, a: int, item: str, where: Where) -> float:
        name, values = self._attributes[a]
        if item == "?":
            raise fault(*where, f"the value of '{name}' is missing ('?'); fill it in first.")
        try:
            value = float(item)
        except ValueError:
            raise fault(*where, f"value '{item[:40]}' of '{name}' is not a number.") from None
        if not abs(value) < FLOAT32_BOUND:
            raise fault(*where, f"value {item[:40]} of '{name}' is not a finite float32 number.")
        if self._is_label[a] and value not in (0, 1):
            raise fault(*where, f"label '{name}' must be 0 or 1; got {item[:40]}.")
        if values is not None and value not in values:
            raise fault(*where, f"value {item[:40]} of '{name}' is not one of its declared values.")
        return value


def _items(text: str) -> list[str]:
    """Split at commas outside quotes; raise ValueError if quotes do not match."""
    if "'" not in text and '"' not in text:
        return [item.strip() for item in text.split(",")]
    items, end = [], -1
    while end < len(text):
        match = _ITEM.match(text, max(end, 0))
        if match is None:
            raise ValueError(f"quotes do not match in {text[:40]}")
        items.append(_unquoted(match[1].strip()))
        end = match.end() if match[0].endswith(",") else len(text)
    return items


def _unquoted(text: str) -> str:
    return _ESCAPED.sub(r"\1", text[1:-1]) if text[:1] in ("'", '"') and len(text) > 1 else text


def _quoted(name: str) -> str:
    if _PLAIN_NAME.fullmatch(name):
        return name
    return "'" + name.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _read_xml(place: Place) -> list[str]:
    with open_source(place) as source:
        text = source.read()
        if b"<!DOCTYPE" in text or b"<!ENTITY" in text:
            raise fault(source.name, None, "a label file must not contain DOCTYPE or ENTITY; remove them.")
        try:
            root = ElementTree.fromstring(text)
        except (ElementTree.ParseError, ValueError, LookupError) as error:  # LookupError: an unknown encoding
            raise fault(source.name, None, f"this is not XML ({error}).") from None
        # Labels may be nested in a hierarchy; each one counts as a label.
        names = [label.get("name") for label in root.iter() if label.tag.rpartition("}")[2] == "label"]
        if not names or None in names:
            raise fault(source.name, None, 'there must be labels, each as <label name="…">.')
        if len(set(names)) < len(names):
            raise fault(source.name, None, "a label is named twice.")
        return [str(name) for name in names]


def _find_xml(name: str) -> Path:
    first = _xml_path(name)
    stem = re.sub(r"[-_](train|test)$", "", first.stem)
    for path in (first, first.with_name(f"{stem}.xml")):
        if path.exists():
            return path
    raise DataError(f"{name}: the label file {first.name} is not beside it; pass its path with xml=….")


def _xml_path(name: str) -> Path:
    return Path(re.sub(r"(\.arff)?(\.gz)?$", "", name) + ".xml")
