"""`Client`: a store on a server, for Python programs; it needs no extra.

Each method is one request. A refusal is a `ServerError` with the status and the sentence of the server. Nothing is
sent a second time by itself: whoever repeats a change after a broken connection should give documents ids, so that
they are replaced and not doubled.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import ssl
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, fields
from pathlib import Path
from typing import IO, Any, Literal
from urllib.parse import quote, urlencode, urlsplit

from ripml.base.errors import ParameterError, RipmlError

__all__ = ["Changed", "Client", "Document", "Found", "Label", "Match", "Review", "ServerError", "Suggestion", "TagJob"]

_JSON = "application/json"


class ServerError(RipmlError):
    """The server refused a request, or cannot be reached: then `status` is 0."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail


@dataclass(frozen=True)
class Suggestion:
    """A label with its score, from 0 to 1, and what people call it if there is a vocabulary."""

    label: str
    score: float
    name: str | None = None


@dataclass(frozen=True)
class Label:
    """A label, how many documents have it, and whether it is retired, that is, no longer suggested."""

    name: str
    count: int
    retired: bool


@dataclass(frozen=True)
class Document:
    """A stored document."""

    id: str
    text: str
    labels: list[str]


@dataclass(frozen=True)
class Match:
    """A document that was found: a part of its text, and where matches begin and end in it."""

    id: str
    excerpt: str
    marks: list[tuple[int, int]]
    labels: list[str]
    accepted: list[str]  # where not all labels are known
    rejected: list[str]
    changed: str | None  # the time of its last change


@dataclass(frozen=True)
class Found:
    """A page of documents that were found; `next` is the `after` of the next one."""

    documents: list[Match]
    total: int
    next: str | None


@dataclass(frozen=True)
class Changed:
    """The documents that were changed, and the number of the change."""

    version: int
    ids: list[str]


@dataclass(frozen=True)
class Review:
    """A document that is worth looking at, and until when nobody else gets it."""

    id: str
    text: str
    labels: list[Suggestion]
    probability: float  # that the first label is right
    gain: float
    n_like: int
    until: str
    carried: list[str]  # the labels that the document has
    findings: list[dict[str, Any]]  # what is doubtful about them, as in the API


@dataclass(frozen=True)
class Column:
    """A column of a table: the share of cells that are not empty, their mean length, and the first of them."""

    name: str
    filled: float
    characters: float
    example: str
    has_text: bool  # whether it was chosen as (a part of) the text


@dataclass(frozen=True)
class Row:
    """A row of a table that was tagged; `number` counts from 0."""

    number: int
    text: str
    cells: dict[str, Any]
    labels: list[Suggestion]


@dataclass(frozen=True)
class TagJob:
    """A table that the server tags in the background."""

    id: str
    status: Literal["waiting", "running", "done", "failed"]
    rows: int | None
    detail: str | None


class Client:
    """A store on a server.

    >>> Client("http://127.0.0.1:8000", "tickets")
    Client('http://127.0.0.1:8000', 'tickets')
    """

    def __init__(self, address: str, store: str, key: str | None = None, timeout: float = 60.0) -> None:
        """`address` is that of the server, `key` an API key, and `timeout` the seconds until an answer must begin."""
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ParameterError(f"`address` must be like http://127.0.0.1:8000; got {address!r}.")
        self._address, self._store, self._key, self._timeout = address, store, key, timeout
        self._host, self._port, self._is_safe = parts.hostname, parts.port, parts.scheme == "https"
        self._base = f"{parts.path.rstrip('/')}/v1/stores/{quote(store, safe='')}"

    def __repr__(self) -> str:
        return f"Client({self._address!r}, {self._store!r})"

    # --------------------------------------------------------------------------------------------------------- answers

    def suggest(self, text: str, n: int | None = None, threshold: float | str | None = None) -> list[Suggestion]:
        """The labels of a text, best first; without `n` and `threshold` by the rules of the model."""
        given = {"n": n, "threshold": threshold}
        answer = self._ask("POST", "/suggest", {"text": text, **_given(given)})
        return _suggestions(answer, answer.get("names"))

    def suggest_batch(
        self, texts: Iterable[str], n: int | None = None, threshold: float | str | None = None
    ) -> list[list[Suggestion]]:
        """The labels of several texts, all by one version of the model."""
        given = {"n": n, "threshold": threshold}
        answer = self._ask("POST", "/suggest/batch", {"texts": list(texts), **_given(given)})
        return [_suggestions(row, answer.get("names")) for row in answer["results"]]

    def explain(self, text: str, n: int = 5) -> list[dict[str, Any]]:
        """Why each label is suggested: "label", "score", "examples", "features", "spans" and more, as in the API."""
        labels: list[dict[str, Any]] = self._ask("POST", "/explain", {"text": text, "n": n})["labels"]
        return labels

    def labels(self, prefix: str = "", n: int = 20) -> list[Label]:
        """The labels with a name, or a word in it, that begins so."""
        found = self._ask("GET", f"/labels?{urlencode({'prefix': prefix, 'limit': n})}")["labels"]
        return [Label(one["name"], one["count"], one["retired"]) for one in found]

    def document(self, id: str) -> Document:
        """A stored document."""
        found = self._ask("GET", f"/documents/{quote(id, safe='')}")
        return Document(found["id"], found["text"], found["labels"])

    def search(self, query: str = "", n: int = 20, after: str | None = None, **filters: Any) -> Found:
        """Documents with all words of a query; filters are label=[…], rejected=[…], undecided=[…], state, since, until,
        prefix and sort, as in the API."""
        given = _given({"q": query, "limit": n, "after": after, **filters})
        answer = self._ask("GET", f"/search?{urlencode(given, doseq=True)}")
        names = [field.name for field in fields(Match)]
        documents = [Match(**{name: one[name] for name in names}) for one in answer["documents"]]
        for one in documents:
            one.marks[:] = [(begin, end) for begin, end in one.marks]
        return Found(documents, answer["total"], answer["next"])

    # --------------------------------------------------------------------------------------------------------- changes

    def learn(self, documents: Iterable[Mapping[str, Any]]) -> Changed:
        """Learn documents with "text", "labels" and perhaps an "id", all or none; they are on the disk afterwards."""
        answer = self._ask("POST", "/documents", {"documents": [dict(document) for document in documents]})
        return Changed(answer["version"], answer["ids"])

    def relabel(self, id: str, labels: Iterable[str]) -> Changed:
        """Replace the labels of a document."""
        answer = self._ask("PUT", f"/documents/{quote(id, safe='')}/labels", {"labels": list(labels)})
        return Changed(answer["version"], [answer["id"]])

    def forget(self, ids: Iterable[str]) -> Changed:
        """Forget documents, all or none."""
        answer = self._ask("POST", "/forget", {"ids": list(ids)})
        return Changed(answer["version"], answer["ids"])

    def review(
        self, n: int = 10, minutes: float = 30, caller: str | None = None, *, labelled: bool = False
    ) -> list[Review]:
        """Lease the documents without labels that the model would learn most from; `relabel` decides one.

        With `labelled`, those with labels that are most probably wrong, by the last audit of the server.
        """
        body = {"n": n, "minutes": float(minutes), "labelled": labelled, **_given({"caller": caller})}
        answer = self._ask("POST", "/review", body)
        return [
            Review(**{**one, "labels": _suggestions(one, answer.get("names"))}) for one in answer["documents"]
        ]  # fmt: skip

    def release(self, ids: Iterable[str]) -> None:
        """Give documents of `review` back undecided."""
        self._ask("POST", "/review/release", {"ids": list(ids)})

    # ---------------------------------------------------------------------------------------------------------- tables

    def tag(self, table: str | os.PathLike[str], **options: Any) -> TagJob:
        """Send a table to be tagged in the background; options are text=[…], encoding, sheet, n, threshold and to."""
        return _job(self._send("/tag", table, options))

    def columns(self, table: str | os.PathLike[str], **options: Any) -> list[Column]:
        """The columns of a table, and which have the texts; options are encoding and sheet. Nothing is kept."""
        found = self._send("/table-columns", table, options)
        return [Column(**one, has_text=one["name"] in found["text"]) for one in found["columns"]]

    def rows(self, id: str, after: int = 0, n: int = 20) -> list[Row]:
        """Rows that are tagged already, also while the others are not; of a job with to="jsonl"."""
        answer = self._ask("GET", f"/tag/{quote(id, safe='')}/rows?{urlencode({'after': after, 'limit': n})}")
        return [
            Row(one["number"], one["text"], one["cells"], _suggestions(one, answer.get("names")))
            for one in answer["rows"]
        ]

    def tag_job(self, id: str) -> TagJob:
        """How far the tagging of a table is."""
        return _job(self._ask("GET", f"/tag/{quote(id, safe='')}"))

    def answers(self, id: str, target: str | os.PathLike[str], to: str | None = None) -> None:
        """Write the tagged table to a file; a job with to="jsonl" can be had as "csv", "tsv" and "xlsx" too."""

        def write(response: http.client.HTTPResponse) -> None:
            with Path(target).open("wb") as file:
                shutil.copyfileobj(response, file)

        query = f"?{urlencode({'to': to})}" if to else ""
        self._request("GET", f"/tag/{quote(id, safe='')}/answers{query}", None, {}, write)

    # -------------------------------------------------------------------------------------------------------- requests

    def _send(self, path: str, table: str | os.PathLike[str], options: Mapping[str, Any]) -> Any:
        """Send a file."""
        given = Path(table)
        query = urlencode({"name": given.name, **options}, doseq=True)
        with given.open("rb") as file:
            headers = {"Content-Type": "application/octet-stream", "Content-Length": str(given.stat().st_size)}
            return self._request("POST", f"{path}?{query}", file, headers, _read_json)

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        raw = None if body is None else json.dumps(body).encode()
        return self._request(method, path, raw, {} if raw is None else {"Content-Type": _JSON}, _read_json)

    def _request(
        self, method: str, path: str, body: bytes | IO[bytes] | None, headers: Mapping[str, str], read: Any
    ) -> Any:
        """What `read` makes of the response."""
        own = {"Accept": _JSON} if self._key is None else {"Accept": _JSON, "Authorization": f"Bearer {self._key}"}
        try:
            with closing(self._connect()) as connection:
                connection.request(method, self._base + path, body, {**own, **headers})
                response = connection.getresponse()
                if response.status < 300:
                    return read(response)
                raise _refusal(response.status, response.read())
        except (OSError, http.client.HTTPException) as error:
            reason = str(error) or type(error).__name__
            raise ServerError(0, f"{self._address} did not answer ({reason}).") from error

    def _connect(self) -> http.client.HTTPConnection:
        if not self._is_safe:
            return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout, context=context)


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _suggestions(answer: Mapping[str, Any], names: Mapping[str, str] | None) -> list[Suggestion]:
    return [Suggestion(one["label"], one["score"], (names or {}).get(one["label"])) for one in answer["labels"]]


def _job(answer: Mapping[str, Any]) -> TagJob:
    return TagJob(answer["id"], answer["status"], answer.get("rows"), answer.get("detail"))


def _read_json(response: http.client.HTTPResponse) -> Any:
    raw = response.read()
    return json.loads(raw) if raw else None


def _refusal(status: int, raw: bytes) -> ServerError:
    try:
        detail = str(json.loads(raw)["detail"])
    except (ValueError, KeyError, TypeError):
        detail = f"the server answered {status}."
    return ServerError(status, detail)
