"""`check`: what looks wrong in documents with labels, before a model learns from them.

Nothing is changed. Each finding says how many rows or labels it is about, shows some, and names the remedy. Similar
texts are found by the Jaccard similarity of their sets S of pairs of neighbouring words,

    J(a, b) = |S_a ∩ S_b| / |S_a ∪ S_b|,    P(min h(S_a) = min h(S_b)) = J(a, b)    for a random order h of all pairs

so that only texts are compared that agree in four minima of one of five groups (Broder 1997; Indyk and Motwani 1998):
at J = 0.9 that misses one pair in two hundred.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ripml.base.errors import MissingExtraError
from ripml.datasets.dataset import Dataset
from ripml.datasets.documents import are_lists
from ripml.text.languages import detect_language, detectable

__all__ = ["Finding", "Report", "alike_names", "check", "near_duplicates"]

_EXAMPLES: Final = 3
_LENGTH: Final = 60  # characters of an example
_MOST_ROWS: Final = 100_000  # that are searched for similar texts and leaks
_MOST_WORDS: Final = 200  # of a text that are compared
_LEAST_WORDS: Final = 5  # shorter texts are alike by chance
_ALIKE: Final = 0.8  # the Jaccard similarity of near-duplicates
_BANDS, _BAND_ROWS = 5, 4
_TEXTS_AT_A_TIME: Final = 256
_LANGUAGE_ROWS: Final = 1000
_LANGUAGE_SHARE: Final = 0.05
_MOST_CHARACTERS: Final = 20_000  # of a text that are searched for leaks
_LEAST_LEAKS: Final = 5  # rows in which a token must give a label away
_LEAK_SHARE: Final = 0.9

_MISSING: Final = {"nan", "none", "null", "nil", "n/a", "#n/a", "<na>", "nat", "undefined", "[]", "{}", "-", "?"}
_TAG_LINE: Final = re.compile(
    r"^\W*(?:tags?|labels?|keywords?|categor(?:y|ies)|subjects?|topics?)\W*[:=](.*)$", re.IGNORECASE | re.MULTILINE
)
_ID: Final = re.compile(r"[\d_]")  # in tokens such as ABC-17, dept_billing and #4711
_PUNCTUATION: Final = ".,;:!?()[]{}\"'"
_SEPARATORS: Final = {",": "a comma", ";": "a semicolon", "|": "a |", "\n": "a line break", "\t": "a tab", "/": "a /"}


@dataclass(frozen=True)
class Finding:
    """One thing that looks wrong."""

    name: str
    #: How many rows or labels it is about.
    count: int
    #: What was found, as a sentence.
    message: str
    #: Some of the rows or labels.
    examples: list[str]
    #: What to do about it.
    remedy: str
    #: Whether a model would suffer; otherwise it is only worth knowing.
    is_warning: bool = True


@dataclass(frozen=True)
class Report:
    """What `check` found."""

    name: str
    rows: int
    labels: int
    labels_per_row: float
    findings: list[Finding]

    @property
    def warnings(self) -> list[Finding]:
        """The findings from which a model would suffer."""
        return [finding for finding in self.findings if finding.is_warning]

    def to_json(self) -> dict[str, Any]:
        """All values, for JSON."""
        return asdict(self)


def check(data: Dataset, known: Collection[str] = (), quick: bool = False) -> Report:
    """Return what looks wrong in documents with labels.

    Parameters
    ----------
    data : Dataset
    known : collection of str
        The labels of a model that is to learn the rows.
    quick : bool
        Leave out similar texts, languages and most kinds of leaks, which take longer.

    Examples
    --------
    >>> from ripml.datasets import documents_given
    >>> tags = [["tea/red", "nan"], ["red/tea"], ["green/tea", "Login"], ["tea/green", "log-in"]]
    >>> report = check(documents_given(["a cup", "one more", "a leaf", ""], tags))
    >>> [(finding.name, finding.count) for finding in report.warnings]
    [('separator', 4), ('missing', 1), ('alike', 2), ('empty', 1)]
    >>> report.findings[0].remedy
    "tag_separator='/'"
    """
    findings = [*_check_labels(data, known), *_check_texts(data, quick)]
    per_row = round(data.Y.nnz / max(len(data), 1), 2)
    return Report(data.name, len(data), data.Y.shape[1], per_row, findings)


# --------------------------------------------------------------------------------------------------------------- labels


def _check_labels(data: Dataset, known: Collection[str]) -> Iterator[Finding]:
    frequency = np.bincount(data.Y.indices, minlength=data.Y.shape[1])
    names = [name for name, n in zip(data.label_names, frequency, strict=True) if n]
    yield from _separator(names, known)
    missing = [name for name in names if not name.strip() or name.strip().casefold() in _MISSING]
    if missing:
        n = int(sum(frequency[column] for column, name in enumerate(data.label_names) if name in missing))
        message = f"{_count(n, 'row')} {_has(n)} a label that stands for a missing one"
        yield Finding("missing", n, message, _shown(missing), "leave the cells of labels empty")
    groups = alike_names(names)
    if groups:
        n = sum(map(len, groups))
        message = f"{_count(n, 'label')} differ only in case, marks, accents or a plural"
        examples = [" = ".join(group) for group in groups[:_EXAMPLES]]
        yield Finding("alike", n, message, examples, "write them alike, or join them with ripml labels merge")
    once = [name for name, n in zip(data.label_names, frequency, strict=True) if n == 1]
    if once and len(data) > 1:
        message = f"{_count(len(once), 'label')} of {len(names):,} {_has(len(once))} one row only"
        remedy = "they are rarely suggested: give them more rows, or leave them out with min_count=…"
        yield Finding("one row", len(once), message, _shown(once), remedy, is_warning=False)
    unlabelled = np.flatnonzero(np.diff(data.Y.indptr) == 0)
    if len(unlabelled):
        message = f"{_count(len(unlabelled), 'row')} {_has(len(unlabelled))} no label"
        examples = [_row(data, row) for row in unlabelled[:_EXAMPLES]]
        remedy = "they teach nothing; the option labels=… names the column of labels"
        yield Finding("no label", len(unlabelled), message, examples, remedy, is_warning=False)


def _separator(names: Sequence[str], known: Collection[str]) -> Iterator[Finding]:
    """What may divide the names: pieces stand in different places of them, or are known labels."""
    for separator, noun in _SEPARATORS.items():
        lists = {name: [piece.strip() for piece in name.split(separator)] for name in names}
        lists = {name: pieces for name, pieces in lists.items() if all(pieces)}
        divided = [name for name, pieces in lists.items() if len(pieces) > 1]
        is_known = [name for name in divided if name not in known and all(piece in known for piece in lists[name])]
        if len(is_known) > len(divided) / 2 or (len(divided) > 2 and are_lists(lists.values())):
            left = len({piece for pieces in lists.values() for piece in pieces} | (set(names) - set(lists)))
            contain = f"{_count(len(divided), 'label')} {'contain' if len(divided) > 1 else 'contains'} {noun}"
            message = f"{contain}; divided there, {left:,} labels would be left instead of {len(names):,}"
            yield Finding("separator", len(divided), message, _shown(divided), f"tag_separator={separator!r}")
            return


def alike_names(names: Iterable[str]) -> list[list[str]]:
    """Groups of names that are the same without case, accents, marks and endings of the plural.

    >>> alike_names(["Login", "log-in", "Café", "cafe", "Queries", "query", "tea", "C++", "C"])
    [['Login', 'log-in'], ['Café', 'cafe'], ['Queries', 'query']]
    """
    groups: dict[str, list[str]] = defaultdict(list)
    for name in names:
        plain = unicodedata.normalize("NFKD", name).casefold()
        plain = "".join(char for char in plain if not unicodedata.combining(char))
        words = [_singular(word) for word in re.findall(r"[^\W_]+|[+#]+", plain)]
        groups["".join(words) or name].append(name)
    return [group for group in groups.values() if len(group) > 1]


def _singular(word: str) -> str:
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")) else word


# ---------------------------------------------------------------------------------------------------------------- texts


def _check_texts(data: Dataset, quick: bool) -> Iterator[Finding]:
    if data.texts is None:
        yield from _copies(data, _row_keys(data.X), "{s} the features of another row")
        return
    normal = [" ".join(text.split()) for text in data.texts]
    empty = [row for row, text in enumerate(normal) if not text]
    if empty:
        message = f"{_count(len(empty), 'text')} {_is(len(empty))} empty"
        remedy = "fill or delete the rows; the option text=… names the column of texts"
        yield Finding("empty", len(empty), message, [_row(data, row) for row in empty[:_EXAMPLES]], remedy)
    yield from _copies(data, normal, "{s} the text of another row")
    yield from _tag_lines(data)
    if quick:
        return
    first = {text: row for row, text in reversed(list(enumerate(normal))) if text}
    rows = sorted(first.values())[:_MOST_ROWS]
    if near := near_duplicates([normal[row] for row in rows]):
        pairs = [(rows[a], rows[b]) for a, b, _ in near]
        left = "" if len(first) <= _MOST_ROWS else f" among the first {_MOST_ROWS:,}"
        yield _pairs_found("near copies", data, pairs, "nearly repeat{s} the text of another row", left)
    yield from _leaks(data, rows)
    yield from _languages([normal[row] for row in rows])


def _copies(data: Dataset, keys: Iterable[Any], what: str) -> Iterator[Finding]:
    """Rows with the key of an earlier row; rows with an empty key are not compared."""
    first: dict[Any, int] = {}
    copies = [(first[key], row) for row, key in enumerate(keys) if key and first.setdefault(key, row) != row]
    if copies:
        yield _pairs_found("copies", data, copies, f"repeat{what}", "")


def _row_keys(X: Any) -> Iterator[bytes]:
    """What is the same for rows with the same features; empty for rows without any."""
    for start, end in pairwise(X.indptr.tolist()):
        yield X.indices[start:end].tobytes() + X.data[start:end].tobytes()


def _pairs_found(name: str, data: Dataset, pairs: Sequence[tuple[int, int]], what: str, where: str) -> Finding:
    """Pairs of rows with the same or nearly the same text, those with different labels first."""
    different = [pair for pair in pairs if data.label_columns(pair[0]) != data.label_columns(pair[1])]
    what = what.format(s="s" if len(pairs) == 1 else "")
    message = f"{_count(len(pairs), 'row')} {what}{where}, {len(different):,} of them with other labels"
    shown = list(dict.fromkeys([*different, *pairs]))[:_EXAMPLES]
    examples = [f"{_row(data, a)} = {_row(data, b)}" for a, b in shown]
    remedy = "delete the copies, or the precision on held-out rows may be too high; where labels differ, find the right"
    return Finding(name, len(pairs), message, examples, remedy, is_warning=name == "copies" or bool(different))


def near_duplicates(texts: Sequence[str], alike: float = _ALIKE) -> list[tuple[int, int, float]]:
    """Pairs (a, b) of texts that are at least so `alike`, a < b, and their similarity: each with the first one like it.

    >>> text = "the invoice of march was charged twice to the same card"
    >>> near_duplicates([text, "another text that has nothing at all of this", text.replace("to the same", "to my")])
    []
    >>> near_duplicates([20 * "tea " + text, "a b c d e f", 20 * "tea " + text + " again"])
    [(0, 2, 0.923...)]
    """
    numbers: dict[str, int] = {}
    pairs: list[NDArray[np.uint64]] = []
    kept: list[int] = []
    for row, text in enumerate(texts):
        words = text.casefold().split(None, _MOST_WORDS)[:_MOST_WORDS]
        if len(words) < _LEAST_WORDS:
            continue
        hashes = np.array([numbers.get(word) or numbers.setdefault(word, _hash(word)) for word in words], np.uint64)
        pairs.append(np.unique(hashes[:-1] * np.uint64(0x9E3779B97F4A7C15) + hashes[1:]))
        kept.append(row)
    random = np.random.default_rng(0)
    orders = [
        (factor | np.uint64(1), shift)
        for factor, shift in (random.integers(1, 2**63, 2, np.uint64) for _ in range(_BANDS * _BAND_ROWS))
    ]
    bands = np.zeros((_BANDS, len(kept)), np.uint64)
    for some in range(0, len(kept), _TEXTS_AT_A_TIME):  # few enough to stay in the cache
        mine = slice(some, some + _TEXTS_AT_A_TIME)
        every, starts = np.concatenate(pairs[mine]), np.cumsum([0, *map(len, pairs[mine])])[:-1]
        for i, (factor, shift) in enumerate(orders):
            order = every * factor + shift
            order ^= order >> np.uint64(29)
            order *= np.uint64(0xBF58476D1CE4E5B9)
            band = bands[i // _BAND_ROWS, mine]
            band[:] = band * np.uint64(0x94D049BB133111EB) + np.minimum.reduceat(order, starts)
    found: dict[int, tuple[int, float]] = {}
    for band in bands:
        first: dict[int, int] = {}
        for place, key in enumerate(band.tolist()):
            other = first.setdefault(key, place)
            if other != place and place not in found:
                similarity = _jaccard(pairs[other], pairs[place])
                if similarity >= alike:
                    found[place] = other, similarity
    return [(kept[found[place][0]], kept[place], found[place][1]) for place in sorted(found)]


def _hash(word: str) -> int:
    return zlib.crc32(word.encode("utf-8", "surrogatepass")) + 1


def _jaccard(a: NDArray[np.uint64], b: NDArray[np.uint64]) -> float:
    both = len(np.intersect1d(a, b, assume_unique=True))
    return both / (len(a) + len(b) - both)


def _languages(texts: Sequence[str]) -> Iterator[Finding]:
    step = max(len(texts) // _LANGUAGE_ROWS, 1)
    try:
        every = detectable()
        found = Counter(detect_language(text.split(None, 40), every) for text in texts[::step])
    except MissingExtraError:  # then nothing is said about languages
        return
    del found[None]
    n = found.total()
    often = [(code, count) for code, count in found.most_common() if code and count >= _LANGUAGE_SHARE * n]
    if len(often) > 1:
        shares = ", ".join(f"{language} {100 * count / n:.0f} %" for language, count in often)
        message = f"the texts are in several languages: {shares}"
        remedy = "each label needs rows in each language, as words of one say nothing about those of another"
        count = n - often[0][1]
        yield Finding("languages", count, message, [language for language, _ in often], remedy, is_warning=False)


# ---------------------------------------------------------------------------------------------------------------- leaks


def _tag_lines(data: Dataset) -> Iterator[Finding]:
    """Texts with a line such as "Tags: billing, urgent" that has a label of the row."""
    found: list[tuple[int, str]] = []
    for row, text in enumerate(data.texts or ()):
        lines = _TAG_LINE.findall(text)
        if lines and (label := _label_in(lines, data.row_labels(row))) is not None:
            found.append((row, label))
    if found:
        message = f"{_count(len(found), 'text')} {_has(len(found))} a line with its own labels"
        examples = [f"{_row(data, row)}: {_cut(label)}" for row, label in found[:_EXAMPLES]]
        remedy = "delete these lines: new texts will not have them, and the measured precision would be too high"
        yield Finding("labels in texts", len(found), message, examples, remedy)


def _label_in(lines: Sequence[str], labels: Sequence[str]) -> str | None:
    words = [f" {_words(line)} " for line in lines]
    for label in labels:
        wanted = _words(label)
        if wanted and any(f" {wanted} " in line for line in words):
            return label
    return None


def _words(text: str) -> str:
    return " ".join(re.findall(r"[\w+#]+", text.casefold()))


def _leaks(data: Dataset, rows: Sequence[int]) -> Iterator[Finding]:
    """Ids of rows in their texts; and tokens such as ids, and whole lines, that only texts of one label have."""
    texts = data.texts or []
    if data.ids is not None:
        pasted = [row for row in rows if len(data.ids[row]) > 3 and data.ids[row] in texts[row]]
        if len(pasted) > len(rows) / 2:
            message = f"{_count(len(pasted), 'text')} {_has(len(pasted))} the id of the row"
            examples = [_row(data, row) for row in pasted[:_EXAMPLES]]
            yield Finding("ids in texts", len(pasted), message, examples, "leave the ids out of the texts", False)
    carriers: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        text = texts[row][:_MOST_CHARACTERS]
        tokens = {token.strip(_PUNCTUATION) for token in text.split() if not token.isalpha() and _ID.search(token)}
        units = {token for token in tokens if len(token) > 3}
        lines = text.splitlines()
        if len(lines) > 1:
            units |= {line.strip() for line in lines if 2 < len(line.strip()) <= _LENGTH}
        for unit in units:
            carriers[unit].append(row)
    among = np.zeros(len(data), bool)
    among[list(rows)] = True
    frequency = np.bincount(data.Y[np.flatnonzero(among)].indices, minlength=data.Y.shape[1])
    leaks: list[tuple[int, str, str]] = []
    for unit, carrying in carriers.items():
        if len(carrying) < _LEAST_LEAKS or len(carrying) > len(rows) / 2:
            continue
        labels = Counter(column for row in carrying for column in data.label_columns(row))
        column, n = max(labels.items(), key=lambda pair: pair[1], default=(0, 0))
        if n == len(carrying) and n >= _LEAK_SHARE * frequency[column]:
            leaks.append((n, unit, data.label_names[column]))
    if leaks:
        leaks.sort(reverse=True)
        message = f"{_count(len(leaks), 'token')} or lines stand in the texts of one label and in no others"
        examples = [f"{_cut(unit)} → {_cut(label)}" for _, unit, label in leaks[:_EXAMPLES]]
        remedy = "delete them, unless new texts have them as well"
        yield Finding("giveaways", len(leaks), message, examples, remedy)


# ------------------------------------------------------------------------------------------------------------- messages


def _row(data: Dataset, row: int) -> str:
    return f"row {row}" if data.ids is None else _cut(data.ids[row])


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LENGTH else f"{text[:_LENGTH]}…"


def _shown(names: Iterable[str]) -> list[str]:
    return [_cut(name) for name, _ in zip(names, range(_EXAMPLES), strict=False)]


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def _has(n: int) -> str:
    return "has" if n == 1 else "have"


def _is(n: int) -> str:
    return "is" if n == 1 else "are"
