"""Full-text search over the documents of a store: the index of words, what people type, and what is found.

The index is a table of SQLite's FTS5 without content. It is written in the transactions that change documents, so a
crash, a backup or a reader never sees one without the other. It has the tokens of `ripml.text.tokens`, which know every
script: FTS5's own tokenizers find no word in Chinese ("unicode61") or none of two letters ("trigram"). A query is cut
by the same rule, so each of its words is a sequence of tokens that must follow one another in the text.

A query has words, "phrases in quotes", beginnings of words (`auto*`), and words or phrases that must not occur
(`-draft`). Nothing in it is an error: characters that no token has are passed over.

Documents come by relevance (BM25) or the newest first. To rank takes time for each match, so of a query that very many
documents match, the newest `RANKED` are ranked, and the others follow them, newest first. A page ends with the place
after which the next one begins, so documents that come or go do not shift pages.

FTS5 keeps the words of deleted documents until it merges its parts; `erase`, which `compact` calls, merges all of them.
"""

from __future__ import annotations

import math
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any, Literal

from ripml.base.errors import DataError, ParameterError, check_count
from ripml.store import journal
from ripml.store.documents import Bodies, check_labels, check_text
from ripml.text.tokens import Piece, has_spaces, pieces, tokens

__all__ = [
    "RANKED",
    "Filters",
    "Found",
    "Match",
    "Query",
    "WordIndex",
    "erase",
    "fill",
    "is_ready",
    "search",
    "words_of",
]

RANKED = 10_000  # matches that are ranked and counted
_RULE = 1  # of cutting texts into words; another one is filled in anew
_PREFIX = 2  # the least letters of the beginning of a word
_EXCERPT = 240  # characters
_BEFORE = 60  # characters of an excerpt before the first match
_LAST_WORD = 40  # characters in which an excerpt ends at a blank
_SPACE = re.compile(r"\s")
_LOOKED_AT = 600  # characters around a match that are cut into words
_TRIED = 20  # places of a text that are looked at for a match
_STATES = ("labelled", "partly", "unlabelled")

# Without content: the texts are in `documents`.
TABLE = "CREATE VIRTUAL TABLE words USING fts5(text, content='', tokenize=\"ascii tokenchars '_'\", prefix='2 3')"
SHADOWS = frozenset(f"words_{part}" for part in ("data", "idx", "docsize", "config"))  # the tables that FTS5 makes

Sort = Literal["relevance", "newest"]


# ------------------------------------------------------------------------------------------------------------ the index


class WordIndex:
    """The index of a database, for whoever changes its documents; `text` gives the text of a body."""

    def __init__(self, connection: sqlite3.Connection, text: Callable[[bytes], str]) -> None:
        self._connection, self._text = connection, text

    def add(self, number: int, body: bytes) -> None:
        """Add a document."""
        self._connection.execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (number, _words(self._text(body))))

    def remove(self, number: int, body: bytes) -> None:
        """Remove a document, which has this body."""
        command = "INSERT INTO words (words, rowid, text) VALUES ('delete', ?, ?)"
        self._connection.execute(command, (number, _words(self._text(body))))

    def replace(self, number: int, before: bytes, after: bytes) -> None:
        """Replace the text of a document."""
        if self._text(before) != self._text(after):
            self.remove(number, before)
            self.add(number, after)


def _words(text: str) -> str:
    return " ".join(tokens(text))


def words_of(bodies: Bodies, some: Iterable[bytes]) -> str:
    """The words that the index has of these bodies."""
    return " ".join({word for body in some for word in tokens(bodies.text(body))}) if bodies.has_text else ""


def is_ready(connection: sqlite3.Connection) -> bool:
    """Whether the index has all documents, cut by the present rule."""
    (format,) = connection.execute("PRAGMA user_version").fetchone()
    row = connection.execute("SELECT value FROM meta WHERE key = 'words'").fetchone()
    return format >= 4 and row is not None and row[0] == _RULE


def fill(connection: sqlite3.Connection, bodies: Bodies) -> None:
    """Make the index of all documents anew; a store of features has no words."""
    connection.execute("INSERT INTO words (words) VALUES ('delete-all')")
    _add_all(connection, bodies)
    connection.execute("INSERT OR REPLACE INTO meta (key, value) VALUES ('words', ?)", (_RULE,))


def _add_all(connection: sqlite3.Connection, bodies: Bodies) -> None:
    if bodies.has_text:
        rows = connection.execute("SELECT number, body FROM documents ORDER BY number")
        words = ((number, _words(bodies.text(bytes(body)))) for number, body in rows)
        connection.executemany("INSERT INTO words (rowid, text) VALUES (?, ?)", words)


def erase(connection: sqlite3.Connection) -> None:
    """Remove what is left in the index of documents that are gone."""
    connection.execute("INSERT INTO words (words) VALUES ('optimize')")


# ------------------------------------------------------------------------------------------------------------ the query


@dataclass(frozen=True)
class _Phrase:
    """Tokens that follow one another; the last one may be the beginning of a token."""

    tokens: tuple[str, ...]
    is_open: bool = False

    def __str__(self) -> str:
        quoted = " ".join(self.tokens).replace('"', '""')
        return f'"{quoted}"{" *" if self.is_open else ""}'

    def places(self, found: Sequence[Piece]) -> Iterator[tuple[int, int]]:
        """Where it begins and ends in a text that was cut into tokens."""
        n = len(self.tokens)
        first, last = self.tokens[0], self.tokens[-1]
        for i in range(len(found) - n + 1):
            end = found[i + n - 1].token
            if (end.startswith(last) if self.is_open else end == last) and (
                n == 1
                or (found[i].token == first and tuple(one.token for one in found[i : i + n - 1]) == self.tokens[:-1])
            ):
                yield found[i].start, max(one.end for one in found[i : i + n])


_PART = re.compile(r'(-?)(?:["“„]([^"”“]*)(?:["”“]|$)|(\S+))')


@dataclass(frozen=True)
class Query:
    """What somebody typed: phrases of which all must occur in a text, and phrases of which none may.

    >>> Query.parse('red "green tea" auto* -draft').wanted[1]
    _Phrase(tokens=('green', 'tea'), is_open=False)
    >>> Query.parse('"unfinished -quote'), Query.parse("AND ( * -")
    (Query(wanted=(_Phrase(tokens=('unfinished', 'quote'), is_open=False),), unwanted=()), Query(wanted=(_Phrase(\
tokens=('and',), is_open=False),), unwanted=()))
    """

    wanted: tuple[_Phrase, ...] = ()
    unwanted: tuple[_Phrase, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Query:
        """The query that a text means; every text means one."""
        parts: dict[bool, list[_Phrase]] = {False: [], True: []}
        for sign, quoted, word in _PART.findall(text):
            found = tuple(tokens(quoted or word))
            is_open = word.endswith("*") and bool(found) and len(found[-1]) >= _PREFIX
            if found:
                parts[bool(sign)].append(_Phrase(found, is_open))
        return cls(*(tuple(dict.fromkeys(parts[sign])) for sign in (False, True)))

    def matches(self, found: Sequence[Piece]) -> bool:
        """Whether a text that was cut into tokens is what is wanted."""
        return all(any(True for _ in one.places(found)) for one in self.wanted) and not any(
            any(True for _ in one.places(found)) for one in self.unwanted
        )

    def expression(self) -> str:
        """The same in the language of FTS5; "" if nothing is wanted."""
        wanted = " AND ".join(map(str, self.wanted))
        return f"({wanted}) NOT ({self.without()})" if wanted and self.unwanted else wanted

    def without(self) -> str:
        """What must not occur, in the language of FTS5."""
        return " OR ".join(map(str, self.unwanted))


@dataclass(frozen=True)
class Filters:
    """Which documents are looked at; by default all.

    `labels` are carried or accepted, all of them. `rejected` are rejected. Of `undecided` nothing is known: nobody said
    of the document which labels are all, and nobody decided on these. `state` is "labelled" (all its labels are known),
    "partly" (some are decided) or "unlabelled". `since` and `until` are the times, until without that one, of the last
    change of the document; those that the store was created with and that never changed come before all times. Times
    without a zone are UTC. `prefix` is the beginning of the id.
    """

    labels: Sequence[str] = ()
    rejected: Sequence[str] = ()
    undecided: Sequence[str] = ()
    state: str | None = None
    since: datetime | str | None = None
    until: datetime | str | None = None
    prefix: str = ""

    def checked(self) -> Filters:
        """The same with times as the journal has them; raise `ParameterError` or `DataError` if one is wrong."""
        if self.state is not None and self.state not in _STATES:
            raise ParameterError(f"`state` must be one of {', '.join(_STATES)}; got {self.state!r}.")
        names: dict[str, Any] = {
            name: tuple(check_labels(getattr(self, name))) for name in ("labels", "rejected", "undecided")
        }
        times: dict[str, Any] = {name: _moment(name, getattr(self, name)) for name in ("since", "until")}
        return replace(self, prefix=check_text("`prefix`", self.prefix), **names, **times)

    def conditions(self, connection: sqlite3.Connection, n: str) -> tuple[list[str], list[Any]]:
        """Conditions in SQL on the number of a document, which is called `n`, and their values."""
        carried, decided = "SELECT document FROM document_labels", "SELECT document FROM document_decisions"
        if connection.execute("PRAGMA user_version").fetchone()[0] < 3:
            decided = "SELECT 0 AS document, 0 AS label, 0 AS accepted WHERE 0"
            decided = f"SELECT document FROM ({decided})"
        # Those without labels have the same label set, which has an index.
        unlabelled, nothing = "SELECT number FROM documents WHERE labelset = ?", journal.hash_label_set(())
        found: list[tuple[str, list[Any]]] = []
        for number in (journal.require_label(connection, name) for name in self.labels):
            some = f"{carried} WHERE label = ? UNION ALL {decided} WHERE label = ? AND accepted"
            found.append((f"{n} IN ({some})", [number, number]))
        found += [
            (f"{n} IN ({decided} WHERE label = ? AND NOT accepted)", [journal.require_label(connection, name)])
            for name in self.rejected
        ]
        for number in (journal.require_label(connection, name) for name in self.undecided):
            found.append((f"{n} IN ({unlabelled})", [nothing]))
            found.append((f"{n} NOT IN ({decided} WHERE label = ?)", [number]))
        states = {"labelled": f"{n} NOT IN ({unlabelled})", "partly": f"{n} IN ({decided})"}
        states["unlabelled"] = f"{n} IN ({unlabelled}) AND {n} NOT IN ({decided})"
        if self.state is not None:
            found.append((states[self.state], [] if self.state == "partly" else [nothing]))
        changed = "SELECT document FROM changes WHERE document NOT NULL AND time >= ?"
        found += [
            (f"{n} {test} ({changed})", [time]) for test, time in (("IN", self.since), ("NOT IN", self.until)) if time
        ]
        if self.prefix:
            ids = "SELECT number FROM documents WHERE id >= ? AND id < ?"
            found.append((f"{n} IN ({ids})", [self.prefix, self.prefix + chr(0x10FFFF)]))
        return [condition for condition, _ in found], [value for _, values in found for value in values]


def _moment(name: str, time: datetime | str | None) -> str | None:
    """A time as the journal has it."""
    if time is None:
        return None
    try:
        moment = datetime.fromisoformat(time.replace("Z", "+00:00")) if isinstance(time, str) else time
        zoned = moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
        return zoned.astimezone(timezone.utc).isoformat(timespec="milliseconds")
    except (AttributeError, OverflowError, ValueError):
        raise ParameterError(f"`{name}` must be a date or time such as 2026-01-31; got {time!r}.") from None


# ------------------------------------------------------------------------------------------------------------ searching


@dataclass(frozen=True)
class Match:
    """A document that was found."""

    number: int  # that it got when it was added
    id: str
    start: int  # where the excerpt begins in its text
    excerpt: str  # a part of its text with a match
    marks: list[tuple[int, int]]  # where matches begin and end in the excerpt
    characters: int  # of the whole text
    labels: list[str]
    accepted: list[str]  # where not all labels are known
    rejected: list[str]
    changed: str | None  # the time of its last change; None if it never changed since the store was created
    relevance: float | None = None  # by BM25; None where documents come newest first


@dataclass(frozen=True)
class Found:
    """A page of documents that were found."""

    documents: list[Match]
    total: int  # how many there are on all pages; at `RANKED`, there may be more
    next: str | None  # the place of the next page; None at the end

    def __iter__(self) -> Iterator[Match]:
        return iter(self.documents)


@dataclass(frozen=True)
class _Place:
    """After which document a page begins: of those that are ranked by its score and number, else by its number."""

    number: int
    score: float | None = None

    def __str__(self) -> str:
        return f"{self.number}" if self.score is None else f"{self.number}:{self.score!r}"

    @classmethod
    def parse(cls, text: str) -> _Place:
        number, _, score = text.partition(":")
        try:
            place = cls(int(number), float(score) if score else None)
        except ValueError:
            place = cls(-1)
        if not (0 <= place.number < 1 << 62 and math.isfinite(place.score or 0)):
            raise ParameterError(f"`after` must be the `next` of a page; got {text[:80]!r}.")
        return place


def search(
    connection: sqlite3.Connection,
    bodies: Bodies,
    text: str,
    filters: Filters,
    sort: Sort,
    n: int,
    after: str | None,
) -> Found:
    """The next page of documents; see `Store.search`."""
    query = Query.parse(check_text("a query", text))
    filters, place = filters.checked(), None if after is None else _Place.parse(after)
    check_count("n", n)
    if sort not in ("relevance", "newest"):
        raise ParameterError(f"`sort` must be 'relevance' or 'newest'; got {sort!r}.")
    if query != Query() and not bodies.has_text:
        raise DataError("this store has features, which no words are in; search it without words, by filters alone.")
    if query != Query() and not is_ready(connection):  # made for this search, beside the store: it is not written to
        connection.execute(TABLE.replace(" words ", " temp.words "))
        _add_all(connection, bodies)
    matches = _Matches(connection, query, filters)
    if sort == "newest" or not query.wanted:
        total, rows, following = matches.by_number(n, place)
    else:
        total, rows, following = matches.by_relevance(n, place)
    documents = [_match(connection, bodies, query, number, score) for number, score in rows]
    return Found(documents, total, None if following is None else str(following))


class _Matches:
    """The numbers of the documents that are wanted."""

    def __init__(self, connection: sqlite3.Connection, query: Query, filters: Filters) -> None:
        self._connection = connection
        self._ranked = bool(query.wanted)
        if self._ranked:  # "+": else FTS5 would look the words up again for each number
            self._from, self._number = "words WHERE words MATCH ?", "rowid"
            conditions, values = filters.conditions(connection, "+words.rowid")
            values = [query.expression(), *values]
        else:
            self._from, self._number = "documents WHERE 1", "number"
            conditions, values = filters.conditions(connection, "documents.number")
            if query.unwanted:
                conditions.append("number NOT IN (SELECT rowid FROM words WHERE words MATCH ?)")
                values = [*values, query.without()]
        self._from = " AND ".join([self._from, *conditions])
        self._values: list[Any] = values

    def by_number(self, n: int, place: _Place | None) -> tuple[int, list[tuple[int, float | None]], _Place | None]:
        """How many there are, the next page, the newest first, and the place of the one after it."""
        numbers = self._newest(n + 1, None if place is None else place.number)
        following = _Place(numbers[n - 1]) if len(numbers) > n else None
        return self._count(), [(number, None) for number in numbers[:n]], following

    def by_relevance(self, n: int, place: _Place | None) -> tuple[int, list[tuple[int, float | None]], _Place | None]:
        """The same, the most relevant first."""
        command = f"SELECT rowid, bm25(words) FROM {self._from} ORDER BY rowid DESC LIMIT {RANKED}"
        ranked = sorted(self._connection.execute(command, self._values), key=lambda row: (row[1], -row[0]))
        rows: list[tuple[int, float | None]] = []
        last = None  # the number after which documents are no longer ranked
        if len(ranked) == RANKED:
            last = min(number for number, _ in ranked)
        if place is None or place.score is not None:
            key = None if place is None or place.score is None else (place.score, -place.number)
            left = [row for row in ranked if key is None or (row[1], -row[0]) > key]
            rows = [(number, -score) for number, score in left[:n]]
            if len(left) > n or (last is None and len(left) == n):
                return len(ranked), rows, _Place(left[n - 1][0], left[n - 1][1]) if len(left) > n else None
        else:
            last = place.number
        if last is None:
            return len(ranked), rows, None
        numbers = self._newest(n - len(rows) + 1, last)
        following = (
            _Place(numbers[n - len(rows) - 1] if n > len(rows) else last) if len(numbers) > n - len(rows) else None
        )
        return len(ranked), [*rows, *((number, None) for number in numbers[: n - len(rows)])], following

    def _newest(self, n: int, before: int | None) -> list[int]:
        place, values = ("", self._values) if before is None else (f" AND {self._number} < ?", [*self._values, before])
        command = f"SELECT {self._number} FROM {self._from}{place} ORDER BY {self._number} DESC LIMIT ?"
        return [number for (number,) in self._connection.execute(command, [*values, n])]

    def _count(self) -> int:
        command = f"SELECT count(*) FROM (SELECT 1 FROM {self._from} LIMIT {RANKED})"
        return int(self._connection.execute(command, self._values).fetchone()[0])


def _match(connection: sqlite3.Connection, bodies: Bodies, query: Query, number: int, relevance: float | None) -> Match:
    """What is shown of a document."""
    id, body = journal.document_of(connection, number)
    labels = journal.labels_of(connection, number)
    decided = journal.decisions(connection, number).get(number, ((), ()))
    carried, accepted, rejected = (journal.label_names(connection, some) or [] for some in (labels, *decided))
    times = "SELECT time FROM changes WHERE document = ? ORDER BY number DESC LIMIT 1"
    time = connection.execute(times, (number,)).fetchone()
    text = bodies.text(body) if bodies.has_text else ""
    start, excerpt, marks = _excerpt(text, query)
    changed = None if time is None else time[0]
    return Match(number, id, start, excerpt, marks, len(text), carried, accepted, rejected, changed, relevance)


def _excerpt(text: str, query: Query) -> tuple[int, str, list[tuple[int, int]]]:
    """A part of a text with the first match: where it begins, the part, and where the matches are in it.

    >>> _excerpt("A red apple", Query.parse("red"))
    (0, 'A red apple', [(2, 5)])
    """
    marks, start = list[tuple[int, int]](), 0
    for start in _looked_at(text, query.wanted):
        some = list(pieces(text[start : start + _LOOKED_AT]))
        marks = [(start + a, start + b) for phrase in query.wanted for a, b in phrase.places(some)]
        if marks:
            break
    first = max(0, min((a for a, _ in marks), default=0) - _BEFORE) if len(text) > _EXCERPT else 0
    if first and (space := _SPACE.search(text, first, first + _BEFORE)):
        first = space.end()
    last = min(first + _EXCERPT, len(text))
    if last < len(text) and (spaces := [*_SPACE.finditer(text, last - _LAST_WORD, last)]):
        last = spaces[-1].start()
    return first, text[first:last], [(a - first, min(b, last) - first) for a, b in _joined(marks) if a < last]


def _looked_at(text: str, wanted: Iterable[_Phrase]) -> Iterator[int]:
    """Places of a text where a match may be near, so that a long text need not be cut into words as a whole."""
    words = dict.fromkeys(phrase.tokens[0] for phrase in wanted)
    if not words:
        return
    yield 0
    if len(text) > _LOOKED_AT:
        parts = (rf"(?<!\w){re.escape(word)}" if has_spaces(word) else re.escape(word) for word in words)
        last = 0
        for tried, found in enumerate(re.finditer("|".join(parts), text, re.IGNORECASE)):
            if tried == _TRIED:
                return
            if found.start() > last + _LOOKED_AT // 2:
                last = max(0, found.start() - _BEFORE)
                yield last


def _joined(marks: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Marks without those that overlap."""
    joined: list[tuple[int, int]] = []
    for a, b in sorted(marks):
        if joined and a <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(b, joined[-1][1])
        else:
            joined.append((a, b))
    return joined
