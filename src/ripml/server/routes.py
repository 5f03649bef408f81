"""What there is over HTTP: each route parses, makes one call of a served store, and prints."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import Depends, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel

from ripml.server import answers, schemas
from ripml.server.limits import reads, writes
from ripml.server.problems import Problem
from ripml.server.service import ServedStore, scored
from ripml.server.settings import Settings

__all__ = ["ROUTES", "UNDESCRIBED"]


def _json(content: Any, status: int = 200) -> Response:
    """An answer; what may be large is written by then, beside the event loop."""
    body = content if isinstance(content, bytes) else answers.written(content)
    return Response(body, status, {"Cache-Control": "no-store"}, "application/json")


def _served(request: Request, store: schemas.StoreName) -> ServedStore:
    """The store that a path names."""
    found: ServedStore | None = request.app.state.stores.get(store)
    if found is None:
        raise Problem(404, f"there is no store {store!r}; GET /v1/stores lists them.")
    return found


def _fit(request: Request, *texts: str) -> None:
    """Raise if a text is too long."""
    settings: Settings = request.app.state.settings
    if (longest := max(map(len, texts), default=0)) > settings.max_text:
        raise Problem(413, f"a text has {longest:,} characters; {settings.max_text:,} are the most.")


def _each_once(ids: list[str]) -> None:
    if len(set(ids)) < len(ids):
        twice = next(id for id in ids if ids.count(id) > 1)
        raise Problem(409, f"document {twice!r} is given twice.")


Served = Annotated[ServedStore, Depends(_served)]
Limit = Annotated[int, Query(ge=1, le=1000)]


# --------------------------------------------------------------------------------------------------------------- routes


async def health() -> Response:
    """Whether the process runs."""
    return _json({"status": "ok"})


async def ready(request: Request) -> Response:
    """Whether requests should be sent here."""
    status = request.app.state.status
    return _json({"status": status}, 200 if status == "ready" else 503)


@reads
async def metrics(request: Request) -> Response:
    """Numbers for Prometheus."""
    text = await asyncio.to_thread(request.app.state.metrics.text)
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


@reads
async def stores(request: Request) -> Response:
    """The stores, and the role of the caller."""
    served: Mapping[str, ServedStore] = request.app.state.stores
    role = "read" if request.app.state.settings.read_only else request.state.key.role
    return _json({"stores": [await store.in_short() for store in served.values()], "role": role})


@reads
async def card(request: Request, store: Served) -> Response:
    """A store and its model: documents, labels, settings, quality on rows left out."""
    settings: Settings = request.app.state.settings
    limits = {"text": settings.max_text, "batch": settings.max_texts, "body": settings.max_body}
    return _json({**await store.card(), "limits": limits})


@reads
async def suggest(request: Request, store: Served, question: schemas.Question) -> Response:
    """Suggest labels for a text."""
    _fit(request, question.text)
    version, labels = await store.suggest(question.text, question.limits)
    return _json({"version": version, "labels": scored(labels)})


@reads
async def suggest_batch(request: Request, store: Served, question: schemas.BatchQuestion) -> Response:
    """Suggest labels for several texts."""
    _fit(request, *question.texts)
    return _json(await store.suggest_many(question.texts, question.limits))


@reads
async def explain(request: Request, store: Served, question: schemas.Why) -> Response:
    """Say why a text gets its labels: the examples and the words that speak for each."""
    _fit(request, question.text)
    n = {"n": question.n} if "n" in question.model_fields_set else {}
    return _json(await store.explain(question.text, n, question.examples, question.features))


@writes
async def learn(request: Request, store: Served, documents: schemas.NewDocuments) -> Response:
    """Learn documents, all or none; they are on the disk when this is answered."""
    new = [document.model_dump(exclude_none=True) for document in documents.documents]
    for document in new:
        document["labels"] = list(dict.fromkeys(document["labels"]))
    _fit(request, *(document["text"] for document in new))
    _each_once([document["id"] for document in new if "id" in document])
    version, ids = await store.learn(new)
    return _json({"version": version, "ids": ids}, 201)


@reads
async def document(store: Served, id: schemas.DocumentId) -> Response:
    """Show a document."""
    return _json(await store.document(id))


@writes
async def relabel(store: Served, id: schemas.DocumentId, labels: schemas.Labels) -> Response:
    """Give a document other labels."""
    new = list(dict.fromkeys(labels.labels))
    version, before = await store.relabel(id, new)
    return _json({"version": version, "id": id, "labels": new, "before": before})


@writes
async def remove(store: Served, id: schemas.DocumentId) -> Response:
    """Forget a document."""
    return _json({"version": await store.forget([id]), "id": id})


@writes
async def forget(store: Served, ids: schemas.Ids) -> Response:
    """Forget documents, all or none."""
    _each_once(ids.ids)
    return _json({"version": await store.forget(ids.ids), "ids": ids.ids})


@reads
async def labels(store: Served, prefix: Annotated[str, Query(max_length=1000)] = "", limit: Limit = 20) -> Response:
    """List labels that begin so."""
    return _json({"labels": await store.labels(prefix, limit)})


@reads
async def history(store: Served, limit: Limit = 20) -> Response:
    """List the last changes, newest first."""
    return _json({"changes": await store.history(limit)})


@writes
async def begin_refit(store: Served) -> Response:
    """Begin to fit the model anew on all documents; the one before serves meanwhile."""
    store.refit()
    return _json({"status": "running"}, 202)


@reads
async def refit(store: Served) -> Response:
    """How the last refit went."""
    return _json(store.refit_status)


@reads
async def openapi(request: Request) -> Response:
    """The description of all this."""
    return _json(request.app.openapi())


_STORE = "/v1/stores/{store}"
_DOCUMENT = _STORE + "/documents/{id}"
ROUTES: list[tuple[str, str, Any, type[BaseModel] | None, int]] = [
    ("GET", "/v1/stores", stores, answers.StoreList, 200),
    ("GET", _STORE, card, answers.Card, 200),
    ("POST", _STORE + "/suggest", suggest, answers.Suggestions, 200),
    ("POST", _STORE + "/suggest/batch", suggest_batch, answers.BatchSuggestions, 200),
    ("POST", _STORE + "/explain", explain, answers.Explanations, 200),
    ("POST", _STORE + "/documents", learn, answers.Learnt, 201),
    ("GET", _DOCUMENT, document, answers.StoredDocument, 200),
    ("PUT", _DOCUMENT + "/labels", relabel, answers.Relabelled, 200),
    ("DELETE", _DOCUMENT, remove, answers.Removed, 200),
    ("POST", _STORE + "/forget", forget, answers.Forgotten, 200),
    ("GET", _STORE + "/labels", labels, answers.LabelList, 200),
    ("GET", _STORE + "/history", history, answers.History, 200),
    ("POST", _STORE + "/refit", begin_refit, answers.Refit, 202),
    ("GET", _STORE + "/refit", refit, answers.Refit, 200),
]
UNDESCRIBED = {
    "/health": (health, ["GET", "HEAD"]),
    "/ready": (ready, ["GET", "HEAD"]),
    "/metrics": (metrics, ["GET"]),
    "/openapi.json": (openapi, ["GET"]),
}
