"""The HTTP routes: each one validates, makes one call of a served store, and returns a response model."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import unquote

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import FileResponse, JSONResponse, Response
from fastapi.routing import APIRoute
from pydantic import ValidationError
from starlette.types import ASGIApp, Receive, Scope, Send

from ripml.base.errors import RipmlError
from ripml.labels.concepts import Concepts
from ripml.server import exports, schemas, tables
from ripml.server.access import (
    AccessControl,
    Caller,
    ParsedRequest,
    ReadRoute,
    WriteRoute,
    content_type,
    read_body,
)
from ripml.server.languages import accepted_languages
from ripml.server.problems import MEDIA_TYPE, Problem, problem_of
from ripml.server.served_store import ServedStore
from ripml.server.settings import Settings
from ripml.server.vocabularies import concepts_of, concepts_of_lines
from ripml.store.completion import LabelOrder

__all__ = ["SuggestShortcut", "public", "read", "write"]

_STATUSES = (400, 401, 403, 404, 408, 409, 413, 415, 421, 422, 429, 500, 503, 507)
_CONTENT = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
_PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"description": "The problem, in one sentence.", "content": _CONTENT} for status in _STATUSES
}
_RULES = ("n", "threshold", "min_count", "max_count", "coverage", "per_label")  # that a request may change
_POINTS: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}},
    304: {"description": "The map is still the one of If-None-Match."},
}
_STORE = "/v1/stores/{store}"
_DOCUMENT = _STORE + "/documents/{id}"
_LABEL = _STORE + "/labels/{label}"

public = APIRouter()
read = APIRouter(route_class=ReadRoute, responses=_PROBLEMS)
write = APIRouter(route_class=WriteRoute, responses=_PROBLEMS)


# Dependencies are coroutines because FastAPI would run functions in threads of its own.


async def _find_store(request: Request, store: schemas.StoreName) -> ServedStore:
    stores: Mapping[str, ServedStore] = request.app.state.stores
    if store not in stores:
        raise Problem(404, f"no store is named {store!r}; GET /v1/stores lists the stores.")
    return stores[store]


async def _caller(request: Request) -> Caller:
    caller: Caller = request.state.caller
    return caller


async def _languages(request: Request) -> tuple[str, ...]:
    return accepted_languages(request.headers.get("accept-language", ""))


LanguagesParameter = Annotated[tuple[str, ...], Depends(_languages)]
ServedStoreParameter = Annotated[ServedStore, Depends(_find_store)]
CallerParameter = Annotated[Caller, Depends(_caller)]
LimitParameter = Annotated[int, Query(ge=1, le=1000)]
NumberParameter = Annotated[int, Query(ge=0, lt=2**62)]
BeforeParameter = Annotated[int | None, Query(ge=1, lt=2**62)]
PrefixParameter = Annotated[str, Query(max_length=1000)]


def _check_lengths(request: Request, *texts: str) -> None:
    limit = request.app.state.settings.max_text
    if (longest := max(map(len, texts), default=0)) > limit:
        raise Problem(413, f"a text has {longest:,} characters; the limit is {limit:,}.")


def _check_distinct(ids: list[str]) -> None:
    if len(set(ids)) < len(ids):
        repeated = next(id for id in ids if ids.count(id) > 1)
        raise Problem(409, f"document {repeated!r} is given twice.")


async def _is_gone(request: Request) -> bool:
    """Whether the client has closed the connection; the end of an empty body, if nobody read it, comes before that."""
    return await request.is_disconnected() or await request.is_disconnected()


def _json(content: bytes) -> Response:
    return Response(content, media_type="application/json")


# ------------------------------------------------------------------------------------------------------------- server


@public.api_route("/health", methods=["GET", "HEAD"], include_in_schema=False)
async def health() -> dict[str, str]:
    """200 as long as the process runs."""
    return {"status": "ok"}


@public.api_route("/ready", methods=["GET", "HEAD"], include_in_schema=False)
async def ready(request: Request) -> Response:
    """200 if requests should be sent here, else 503; and the version of each store, in the order of the command line.

    Without their names: callers need no key for this.
    """
    status, stores = request.app.state.status, request.app.state.stores.values()
    versions = [store.store.version for store in stores]
    return JSONResponse({"status": status, "versions": versions}, 200 if status == "ready" else 503)


@read.get("/metrics", include_in_schema=False)
async def metrics(request: Request) -> Response:
    """Metrics for Prometheus."""
    text = await asyncio.to_thread(request.app.state.metrics.text)
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


@read.get("/openapi.json", include_in_schema=False)
async def openapi(request: Request) -> Response:
    """The OpenAPI description."""
    return JSONResponse(request.app.openapi())


# ------------------------------------------------------------------------------------------------------------- stores


@read.get("/v1/stores")
async def stores(request: Request, caller: CallerParameter) -> schemas.StoreList:
    """List the stores, and the role of the caller."""
    served: Mapping[str, ServedStore] = request.app.state.stores
    return schemas.StoreList(
        stores=[await store.look_up(caller, store.summary) for store in served.values()], role=request.state.role
    )


@read.get(_STORE)
async def card(request: Request, store: ServedStoreParameter, caller: CallerParameter) -> schemas.ModelCard:
    """Describe a store and its model: documents, labels, settings, leave-one-out precision."""
    settings: Settings = request.app.state.settings
    limits = schemas.Limits(text=settings.max_text, batch=settings.max_texts, body=settings.max_body)
    return await store.look_up(caller, store.card, limits)


# These return JSON that is written by the thread that computes it. Response models would be validated and written
# by the event loop, which takes three times as long for a suggestion and blocks other requests while a large one is
# written.


async def suggest(
    request: Request, store: ServedStoreParameter, caller: CallerParameter, query: schemas.SuggestRequest
) -> Response:
    """Suggest labels for a text."""
    _check_lengths(request, query.text)
    arguments = (query.text, query.given(*_RULES), await _languages(request))
    return _json(await store.suggest(caller, partial(_is_gone, request), *arguments))


read.add_api_route(_STORE + "/suggest", suggest, methods=["POST"], response_model=schemas.Suggestions)


class SuggestShortcut:
    """Middleware that passes valid requests for suggestions, which most are, to `suggest` directly.

    FastAPI's routing, dependencies and handlers take longer than all else that the event loop does for a suggestion.
    They get the requests that are not valid, and explain what is wrong with them.
    """

    def __init__(self, app: ASGIApp, stores: Mapping[str, ServedStore], access: AccessControl) -> None:
        self.app, self._access = app, access
        self._stores = {f"{_STORE.format(store=name)}/suggest": store for name, store in stores.items()}
        self._route = next(route for route in read.routes if isinstance(route, APIRoute) and route.endpoint is suggest)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        store = self._stores.get(scope.get("path", ""))
        if store is None or scope["type"] != "http" or scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        request = Request(scope, receive)
        caller: Caller = request.state.caller
        scope["route"], scope["path_params"] = self._route, {"store": store.name}  # for metrics and the access log
        try:
            self._access.authorize(caller, ReadRoute.role)
            parsed = await ParsedRequest.read(request, request.app.state.settings)
            try:
                query = schemas.SuggestRequest.model_validate(await parsed.json())
            except ValidationError:
                await self.app(scope, parsed.replay, send)
                return
            response = await suggest(parsed, store, caller, query)
        except Problem as problem:
            response = problem.response()
        except RipmlError as error:
            response = problem_of(error).response()
        await response(scope, receive, send)


@read.post(_STORE + "/suggest/batch", response_model=schemas.BatchSuggestions)
async def suggest_batch(
    request: Request, store: ServedStoreParameter, caller: CallerParameter, query: schemas.BatchSuggestRequest
) -> Response:
    """Suggest labels for several texts."""
    _check_lengths(request, *query.texts)
    arguments = (query.texts, query.given(*_RULES), await _languages(request))
    return _json(await store.work(caller, partial(_is_gone, request), store.suggest_batch, *arguments))


@read.post(_STORE + "/explain", response_model=schemas.Explanations)
async def explain(
    request: Request, store: ServedStoreParameter, caller: CallerParameter, query: schemas.ExplainRequest
) -> Response:
    """Explain the labels of a text by the examples and the words behind each."""
    _check_lengths(request, query.text)
    rules = query.given("n", "min_count", "max_count")
    arguments = (query.text, rules, query.examples, query.features, await _languages(request))
    return _json(await store.work(caller, partial(_is_gone, request), store.explain, *arguments))


@read.get(_STORE + "/labels", response_model_exclude_unset=True)
async def labels(
    store: ServedStoreParameter,
    caller: CallerParameter,
    languages: LanguagesParameter,
    prefix: PrefixParameter = "",
    limit: LimitParameter = 20,
    order: LabelOrder | None = None,
    start: NumberParameter = 0,
) -> schemas.LabelList:
    """List the labels whose names begin with a prefix, or, with an order, all labels from a place on."""
    if order is None:
        return await store.look_up(caller, store.labels, prefix, limit, languages)
    if prefix:
        raise Problem(422, "an order is one of all labels; leave out either the prefix or the order.")
    return await store.look_up(caller, store.browse_labels, order, start, limit, languages)


@write.post(_STORE + "/labels", status_code=201)
async def add_label(
    store: ServedStoreParameter, caller: CallerParameter, query: schemas.NewLabel
) -> schemas.ChangedLabel:
    """Add a label that no document carries yet, by its name and other words, which are looked for in texts."""
    return await store.add_label(caller, query.name, list(dict.fromkeys(query.words)), query.language)


@write.post(_STORE + "/labels/undo")
async def undo_labels(
    store: ServedStoreParameter, caller: CallerParameter, query: schemas.UndoLabelsRequest
) -> schemas.UndoneLabels:
    """Take back that a label was added, renamed, merged, retired or reinstated."""
    return await store.undo_labels(caller, query.change)


@read.get(_LABEL)
async def label(
    store: ServedStoreParameter, caller: CallerParameter, languages: LanguagesParameter, label: schemas.DocumentId
) -> schemas.LabelDetail:
    """Show what is known about a label."""
    return await store.look_up(caller, store.label, label, languages)


@write.post(_LABEL + "/rename")
async def rename_label(
    store: ServedStoreParameter, caller: CallerParameter, label: schemas.DocumentId, query: schemas.RenameRequest
) -> schemas.ChangedLabel:
    """Rename a label; scores stay as they are."""
    return await store.rename_label(caller, label, query.to)


@read.get(_LABEL + "/merge")
async def merging(
    store: ServedStoreParameter,
    caller: CallerParameter,
    label: schemas.DocumentId,
    into: Annotated[str, Query(min_length=1, max_length=1000)],
) -> schemas.MergePreview:
    """Show what it would change to merge a label into another one."""
    return await store.look_up(caller, store.merging, label, into)


@write.post(_LABEL + "/merge")
async def merge_label(
    store: ServedStoreParameter, caller: CallerParameter, label: schemas.DocumentId, query: schemas.MergeRequest
) -> schemas.ChangedLabel:
    """Merge a label into another one: documents that carry it carry the other one instead, and it is removed."""
    return await store.merge_label(caller, label, query.into)


@write.post(_LABEL + "/retire")
async def retire_label(
    store: ServedStoreParameter, caller: CallerParameter, label: schemas.DocumentId
) -> schemas.ChangedLabel:
    """Stop suggesting a label; documents keep it, and people may still choose it."""
    return await store.retire_label(caller, label, True)


@write.post(_LABEL + "/reinstate")
async def reinstate_label(
    store: ServedStoreParameter, caller: CallerParameter, label: schemas.DocumentId
) -> schemas.ChangedLabel:
    """Suggest a retired label again."""
    return await store.retire_label(caller, label, False)


@read.get(_STORE + "/history", response_model=schemas.History)
async def history(
    request: Request,
    store: ServedStoreParameter,
    caller: CallerParameter,
    limit: LimitParameter = 20,
    before: BeforeParameter = None,
) -> Response:
    """List the last changes, or the last ones before a change, newest first."""
    arguments = limit, before, await _languages(request)
    return _json(await store.work(caller, partial(_is_gone, request), store.history, *arguments))


# --------------------------------------------------------------------------------------------------------- vocabulary


@read.get(_STORE + "/vocabulary")
async def vocabulary(store: ServedStoreParameter, caller: CallerParameter) -> schemas.VocabularySummary:
    """Describe the vocabulary of the labels."""
    return await store.look_up(caller, store.vocabulary)


@read.get(_STORE + "/vocabulary/{id}")
async def concept(
    store: ServedStoreParameter, caller: CallerParameter, languages: LanguagesParameter, id: schemas.DocumentId
) -> schemas.ConceptDetail:
    """Show what the vocabulary says of a label."""
    return await store.look_up(caller, store.concept, id, languages)


async def _set_vocabulary(
    store: ServedStore, caller: Caller, concepts: Callable[[], Concepts], add: bool
) -> schemas.VocabularySummary:
    await store.set_vocabulary(caller, concepts, add)
    return await store.look_up(caller, store.vocabulary)


class VocabularyRoute(WriteRoute):
    """A route that takes a few concepts as JSON, or a whole vocabulary as JSON lines.

    The lines are parsed by the thread that makes the change: to validate so many concepts would block the event loop.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler for JSON, and the one for lines."""
        handle, add = super().get_route_handler(), "PATCH" in (self.methods or ())

        async def checked(request: Request) -> Response:
            if content_type(request) != exports.MEDIA_TYPE:
                return await handle(request)
            state = request.app.state
            request.state.role = state.access.authorize(request.state.caller, self.role)
            store = await _find_store(request, unquote(request.path_params["store"]))
            raw = await read_body(request, state.settings.max_vocabulary, state.settings.body_seconds)
            summary = await _set_vocabulary(store, request.state.caller, lambda: concepts_of_lines(raw), add)
            return _json(summary.model_dump_json().encode())

        return checked


async def replace_vocabulary(
    store: ServedStoreParameter, caller: CallerParameter, query: schemas.VocabularyRequest
) -> schemas.VocabularySummary:
    """Replace the vocabulary; nothing is fitted again. A whole vocabulary is sent as JSON lines, one concept each."""
    return await _set_vocabulary(store, caller, lambda: concepts_of(query.concepts), add=False)


async def extend_vocabulary(
    store: ServedStoreParameter, caller: CallerParameter, query: schemas.VocabularyRequest
) -> schemas.VocabularySummary:
    """Add concepts to the vocabulary; they replace those with the same ids."""
    return await _set_vocabulary(store, caller, lambda: concepts_of(query.concepts), add=True)


for endpoint, method in ((replace_vocabulary, "PUT"), (extend_vocabulary, "PATCH")):
    lines: dict[str, Any] = {"schema": {"type": "string"}}
    write.add_api_route(
        _STORE + "/vocabulary", endpoint, methods=[method], route_class_override=VocabularyRoute,
        openapi_extra={"requestBody": {"content": {exports.MEDIA_TYPE: lines}}},
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------------------- documents


@write.post(_STORE + "/documents", status_code=201)
async def learn(
    request: Request, store: ServedStoreParameter, caller: CallerParameter, query: schemas.LearnRequest
) -> schemas.ChangedDocuments:
    """Learn documents, all or none; they are on the disk when the response is sent."""
    documents = [document.model_dump(exclude_none=True) for document in query.documents]
    for document in documents:
        document["labels"] = list(dict.fromkeys(document["labels"]))
    _check_lengths(request, *(document["text"] for document in documents))
    _check_distinct([document["id"] for document in documents if "id" in document])
    version, ids = await store.learn(caller, documents)
    return schemas.ChangedDocuments(version=version, ids=ids)


@read.get(_STORE + "/documents")
async def documents(
    store: ServedStoreParameter, caller: CallerParameter, after: NumberParameter = 0, limit: LimitParameter = 20
) -> schemas.DocumentList:
    """List the ids of documents in the order in which they were added: those after a number."""
    return await store.look_up(caller, store.documents, after, limit)


@read.get(_STORE + "/search", response_model=schemas.FoundDocuments)
async def search(
    request: Request,
    store: ServedStoreParameter,
    caller: CallerParameter,
    languages: LanguagesParameter,
    q: Annotated[str, Query(max_length=1000, description='Words, "phrases", beginnings* and words -not wanted.')] = "",
    label: Annotated[list[str] | None, Query(max_length=20, description="Carried or accepted.")] = None,
    rejected: Annotated[list[str] | None, Query(max_length=20, description="Rejected.")] = None,
    undecided: Annotated[list[str] | None, Query(max_length=20, description="Nothing is known of them.")] = None,
    state: Annotated[
        Literal["labelled", "partly", "unlabelled"] | None, Query(description="Which of its labels are known.")
    ] = None,
    since: Annotated[str | None, Query(max_length=50, description="The last change is not before this time.")] = None,
    until: Annotated[str | None, Query(max_length=50, description="The last change is before this time.")] = None,
    prefix: Annotated[str, Query(max_length=1000, description="The beginning of the id.")] = "",
    sort: Literal["relevance", "newest"] = "relevance",
    after: Annotated[str | None, Query(max_length=100, description="The `next` of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> Response:
    """Find documents by words and filters, a page at a time."""
    filters = {
        "labels": label or (), "rejected": rejected or (), "undecided": undecided or (),
        "state": state, "since": since, "until": until, "prefix": prefix, "sort": sort, "n": limit, "after": after,
    }  # fmt: skip
    return _json(await store.look_up(caller, store.search, q, filters, languages))


@read.get(_DOCUMENT, response_model_exclude_unset=True)
async def document(
    store: ServedStoreParameter, caller: CallerParameter, languages: LanguagesParameter, id: schemas.DocumentId
) -> schemas.StoredDocument:
    """Show a document."""
    return schemas.StoredDocument.model_validate(await store.look_up(caller, store.document, id, languages))


@write.put(_DOCUMENT + "/labels")
async def relabel(
    store: ServedStoreParameter, caller: CallerParameter, id: schemas.DocumentId, query: schemas.RelabelRequest
) -> schemas.RelabelledDocument:
    """Replace the labels of a document."""
    labels = list(dict.fromkeys(query.labels))
    version, before = await store.relabel(caller, id, labels)
    return schemas.RelabelledDocument(version=version, id=id, labels=labels, before=before)


@write.post(_STORE + "/decisions")
async def decide(
    request: Request, store: ServedStoreParameter, caller: CallerParameter, query: schemas.DecisionRequest
) -> schemas.DecidedDocument:
    """Accept and reject some labels of a document; nothing is learnt of its other labels."""
    if query.text is None and query.id is None:
        raise Problem(422, "a decision needs the id of a document or a text.")
    given = {name: value for name, value in {"id": query.id, "text": query.text}.items() if value is not None}
    _check_lengths(request, query.text or "")
    document = given if query.text is not None else str(query.id)
    version, found = await store.decide(caller, document, query.accepted, query.rejected, query.complete)
    return schemas.DecidedDocument.model_validate({"version": version, **found})


@write.delete(_DOCUMENT + "/decisions")
async def withdraw(
    store: ServedStoreParameter, caller: CallerParameter, id: schemas.DocumentId
) -> schemas.DecidedDocument:
    """Take back all decisions on the labels of a document, which stays without labels."""
    version, found = await store.withdraw(caller, id)
    return schemas.DecidedDocument.model_validate({"version": version, **found})


@write.delete(_DOCUMENT)
async def remove(
    store: ServedStoreParameter, caller: CallerParameter, id: schemas.DocumentId
) -> schemas.RemovedDocument:
    """Forget a document."""
    version, _ = await store.forget(caller, [id])
    return schemas.RemovedDocument(version=version, id=id)


@write.post(_STORE + "/forget")
async def forget(
    store: ServedStoreParameter, caller: CallerParameter, query: schemas.ForgetRequest
) -> schemas.ForgottenDocuments:
    """Forget documents, all or none."""
    _check_distinct(query.ids)
    version, certificates = await store.forget(caller, query.ids, query.certify)
    return schemas.ForgottenDocuments.model_validate(
        {"version": version, "ids": query.ids, "certificates": [one.to_json() for one in certificates]}
    )


# -------------------------------------------------------------------------------------------------------------- tables

TableNameParameter = Annotated[str, Query(min_length=1, max_length=200, description="The name, such as tickets.csv.")]
ColumnParameter = Annotated[str | None, Query(min_length=1, max_length=1000)]
_TABLE: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}
_ANSWERS: dict[int | str, dict[str, Any]] = {200: {"content": {"text/csv": {}, exports.MEDIA_TYPE: {}}}}


@write.post(_STORE + "/tag", status_code=202, openapi_extra=_TABLE, response_model_exclude_none=True)
async def begin_tag(
    request: Request,
    store: ServedStoreParameter,
    caller: CallerParameter,
    name: TableNameParameter,
    text: Annotated[list[str] | None, Query(description="The columns of the texts. Default: text.")] = None,
    encoding: ColumnParameter = None,
    sheet: ColumnParameter = None,
    n: Annotated[int | None, Query(ge=1, le=1000, description="The most labels of a row.")] = None,
    threshold: Annotated[float | Literal["auto"] | None, Query(description="The lowest score of a label.")] = None,
    to: Annotated[Literal["csv", "tsv", "jsonl"], Query(description="The format of the answers.")] = "csv",
) -> schemas.TableJob:
    """Start to tag a table, which is the body; the answers have its columns and tags and scores."""
    jobs, settings = store.tag_jobs(), request.app.state.settings
    suffix, folder = tables.table_suffix(name), jobs.new_folder()
    try:
        await tables.save_table(request, folder / f"input{suffix}", settings.max_table, settings.body_seconds)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    given = {"text": text, "encoding": encoding, "sheet": sheet, "n": n, "threshold": threshold}
    options = {option: value for option, value in given.items() if value is not None}
    return await store.look_up(caller, jobs.add, folder, name, options, to, caller.key)


@read.get(_STORE + "/tag", response_model_exclude_none=True)
async def tag_jobs(store: ServedStoreParameter, caller: CallerParameter) -> schemas.TableJobs:
    """List the tables that are or were tagged."""
    return schemas.TableJobs(jobs=await store.look_up(caller, store.tag_jobs().jobs))


@read.get(_STORE + "/tag/{id}", response_model_exclude_none=True)
async def tag_job(store: ServedStoreParameter, caller: CallerParameter, id: schemas.DocumentId) -> schemas.TableJob:
    """Show how far the tagging of a table is."""
    return await store.look_up(caller, store.tag_jobs().job, id)


@read.get(_STORE + "/tag/{id}/rows", response_model_exclude_none=True)
async def tagged_rows(
    store: ServedStoreParameter,
    caller: CallerParameter,
    languages: LanguagesParameter,
    id: schemas.DocumentId,
    after: NumberParameter = 0,
    limit: LimitParameter = 20,
) -> schemas.TaggedRows:
    """Show the rows that are tagged already, also while the others are not; of a job with `to=jsonl`."""
    return await store.look_up(caller, store.table_rows, id, after, limit, languages)


@read.get(_STORE + "/tag/{id}/answers", response_class=FileResponse, responses=_ANSWERS)
async def answers(
    request: Request,
    store: ServedStoreParameter,
    caller: CallerParameter,
    id: schemas.DocumentId,
    to: Annotated[
        Literal["csv", "tsv", "jsonl", "xlsx"] | None,
        Query(description="The format; default: that of the job. A job with `to=jsonl` can be had in all of them."),
    ] = None,
) -> FileResponse:
    """Download the tagged table. In a format that is asked for, it has what was decided on its rows, which are the
    documents `{id}-1`, `{id}-2` and so on.
    """
    if to is None:
        path = await store.look_up(caller, store.tag_jobs().answers, id)
    else:
        path = await store.work(caller, partial(_is_gone, request), store.table_answers, id, to)
    return FileResponse(path, filename=f"{id}{path.suffix}")


@write.delete(_STORE + "/tag/{id}", status_code=204, response_class=Response)
async def remove_tag_job(store: ServedStoreParameter, caller: CallerParameter, id: schemas.DocumentId) -> None:
    """Delete a table and its answers, and end its tagging."""
    await store.look_up(caller, store.tag_jobs().remove, id)


@write.post(_STORE + "/check-table", openapi_extra=_TABLE)
async def check_table(
    request: Request,
    store: ServedStoreParameter,
    caller: CallerParameter,
    name: TableNameParameter,
    text: Annotated[list[str] | None, Query(description="The columns of the texts. Default: text.")] = None,
    labels: ColumnParameter = None,
    tag_separator: ColumnParameter = None,
    encoding: ColumnParameter = None,
    sheet: ColumnParameter = None,
) -> schemas.TableReport:
    """Say what looks wrong in a table, which is the body, before a model learns from it; nothing is kept."""
    settings = request.app.state.settings
    given = {"text": text, "labels": labels, "tag_separator": tag_separator, "encoding": encoding, "sheet": sheet}
    options = {option: value for option, value in given.items() if value is not None}
    suffix = tables.table_suffix(name)
    with tempfile.TemporaryDirectory(prefix="ripml-table-") as folder:
        path = Path(folder) / f"table{suffix}"
        await tables.save_table(request, path, settings.max_table, settings.body_seconds)
        return await store.work(caller, partial(_is_gone, request), store.check_table, path, name, options)


@write.post(_STORE + "/table-columns", openapi_extra=_TABLE)
async def table_columns(
    request: Request,
    store: ServedStoreParameter,
    caller: CallerParameter,
    name: TableNameParameter,
    encoding: ColumnParameter = None,
    sheet: ColumnParameter = None,
) -> schemas.TableColumnsFound:
    """Say which columns a table has, which is the body, and which one holds the texts; nothing is kept."""
    settings = request.app.state.settings
    options = {option: value for option, value in {"encoding": encoding, "sheet": sheet}.items() if value is not None}
    suffix = tables.table_suffix(name)
    with tempfile.TemporaryDirectory(prefix="ripml-table-") as folder:
        path = Path(folder) / f"table{suffix}"
        await tables.save_table(request, path, settings.max_table, settings.body_seconds)
        return await store.work(caller, partial(_is_gone, request), store.columns_in, path, name, options)


@write.post(_STORE + "/read", openapi_extra=_TABLE)
async def read_document(
    request: Request, store: ServedStoreParameter, caller: CallerParameter, name: TableNameParameter
) -> schemas.DocumentText:
    """Return the text of a document, which is the body: PDF, DOCX, HTML, e-mail, Markdown or plain text."""
    settings = request.app.state.settings
    suffix = tables.document_suffix(name)
    with tempfile.TemporaryDirectory(prefix="ripml-document-") as folder:
        path = Path(folder) / f"document{suffix}"
        await tables.save_table(request, path, settings.max_table, settings.body_seconds)
        found = await store.work(caller, partial(_is_gone, request), store.read_document, path, name)
    _check_lengths(request, found.text)
    return found


# -------------------------------------------------------------------------------------------------------------- review


@write.post(_STORE + "/review", response_model=schemas.ReviewBatch)
async def review(
    request: Request, store: ServedStoreParameter, caller: CallerParameter, query: schemas.ReviewRequest
) -> Response:
    """Lease the documents to look at next: those without labels that the model is expected to learn most from, or, with
    `labelled`, those whose labels the last audit found most doubtful. Relabelling ends a lease.
    """
    arguments = (query, await _languages(request))
    return _json(await store.work(caller, partial(_is_gone, request), store.review, caller, *arguments))


@write.post(_STORE + "/review/release", status_code=204, response_class=Response)
async def release(store: ServedStoreParameter, caller: CallerParameter, query: schemas.ReleaseRequest) -> None:
    """Give documents back undecided, so that others get them."""
    await store.look_up(caller, store.release, query.ids)


# ---------------------------------------------------------------------------------------------------------------- jobs


@write.post(_STORE + "/refit", status_code=202, response_model_exclude_unset=True)
async def begin_refit(store: ServedStoreParameter, caller: CallerParameter) -> schemas.JobStatus:
    """Start to refit the model on all documents; the present model serves until it is done."""
    return store.refit.begin(caller.key)


@read.get(_STORE + "/refit")
async def refit(store: ServedStoreParameter) -> schemas.JobStatus:
    """Show the status of the refit."""
    return store.refit.status


@write.post(_STORE + "/compact", status_code=202, response_model_exclude_unset=True)
async def begin_compact(store: ServedStoreParameter, caller: CallerParameter) -> schemas.JobStatus:
    """Start to remove every trace of what was forgotten from the store; changes wait meanwhile, suggestions do not."""
    return store.compact.begin(caller.key)


@read.get(_STORE + "/compact")
async def compact(store: ServedStoreParameter) -> schemas.JobStatus:
    """Show the status of the compaction."""
    return store.compact.status


@write.post(_STORE + "/check", status_code=202, response_model_exclude_unset=True)
async def begin_check(store: ServedStoreParameter, caller: CallerParameter) -> schemas.JobStatus:
    """Start to check the tables, the history, the files and the model of the store."""
    return store.check.begin(caller.key)


@read.get(_STORE + "/check")
async def check(store: ServedStoreParameter) -> schemas.CheckStatus:
    """Show the status of the check, and what the last one found."""
    return store.check_status()


@write.post(_STORE + "/audit", status_code=202, response_model_exclude_unset=True)
async def begin_audit(store: ServedStoreParameter, caller: CallerParameter) -> schemas.JobStatus:
    """Start to look for labels of documents that are probably wrong or missing."""
    return store.audit.begin(caller.key)


@read.get(_STORE + "/audit")
async def audit(
    store: ServedStoreParameter, caller: CallerParameter, languages: LanguagesParameter, limit: LimitParameter = 20
) -> schemas.AuditStatus:
    """Show the status of the audit, and the most doubtful labels that the last one found, so many of each kind."""
    return await store.look_up(caller, store.audit_status, limit, languages)


@write.post(_STORE + "/audit/accept")
async def accept(
    store: ServedStoreParameter, caller: CallerParameter, query: schemas.FindingsRequest
) -> schemas.Decided:
    """Take wrong labels from their documents, and give them the missing ones, all or none."""
    return await _decide(store, caller, "accept", query)


@write.post(_STORE + "/audit/dismiss")
async def dismiss(
    store: ServedStoreParameter, caller: CallerParameter, query: schemas.FindingsRequest
) -> schemas.Decided:
    """Do not show findings again until their documents change."""
    return await _decide(store, caller, "dismiss", query)


@write.post(_STORE + "/audit/undo")
async def undo(store: ServedStoreParameter, caller: CallerParameter, query: schemas.FindingsRequest) -> schemas.Decided:
    """Take back that findings were accepted or dismissed."""
    return await _decide(store, caller, "undo", query)


async def _decide(store: ServedStore, caller: Caller, decision: str, query: schemas.FindingsRequest) -> schemas.Decided:
    findings = [finding.model_dump() for finding in query.findings]
    return schemas.Decided(version=await store.decide_findings(caller, decision, findings))


@write.post(_STORE + "/report", status_code=202, response_model_exclude_unset=True)
async def begin_report(store: ServedStoreParameter, caller: CallerParameter) -> schemas.JobStatus:
    """Start to measure how well labels are predicted, on documents that are left out of the model."""
    return store.report.begin(caller.key)


@read.get(_STORE + "/report")
async def report(
    store: ServedStoreParameter, caller: CallerParameter, languages: LanguagesParameter, limit: LimitParameter = 20
) -> schemas.ReportStatus:
    """Show the status of the report, and the last one with so many labels, the most frequent first."""
    return await store.look_up(caller, store.report_status, limit, languages)


@read.get(_STORE + "/quality")
async def quality(store: ServedStoreParameter, caller: CallerParameter) -> schemas.QualityOverview:
    """Show what fits found: how much can be applied unseen at every threshold, quality over versions, and drift."""
    return await store.look_up(caller, store.quality)


@write.post(_STORE + "/learning-curve", status_code=202, response_model_exclude_unset=True)
async def begin_learning_curve(store: ServedStoreParameter, caller: CallerParameter) -> schemas.JobStatus:
    """Start to measure what more documents would bring, by models of parts of them: about two fits."""
    return store.curve.begin(caller.key)


@read.get(_STORE + "/learning-curve")
async def learning_curve(store: ServedStoreParameter) -> schemas.LearningCurveStatus:
    """Show the status of the learning curve, and the last one."""
    return store.curve_status()


@read.get(_STORE + "/map", response_model_exclude_none=True)
async def map_info(
    store: ServedStoreParameter, caller: CallerParameter, languages: LanguagesParameter
) -> schemas.MapInfo:
    """Describe the map of the documents. If there is none, or only an old one, this starts to compute it."""
    found = await store.look_up(caller, store.map_info, languages)
    if (found.map is None or found.stale) and found.status == "idle":
        return found.model_copy(update=dict(store.map.begin(caller.key)))
    return found


@write.post(_STORE + "/map", status_code=202, response_model_exclude_unset=True)
async def begin_map(store: ServedStoreParameter, caller: CallerParameter) -> schemas.JobStatus:
    """Start to compute the map where there is none or only an old one, such as after that has failed."""
    return store.map.begin(caller.key)


MapParameter = Annotated[str, Query(max_length=100, description="What identifies the map, as GET /map gives it.")]


@read.get(_STORE + "/map/points", response_class=Response, responses=_POINTS)
async def map_points(request: Request, store: ServedStoreParameter, caller: CallerParameter) -> Response:
    """All points in six bytes each: of all x, then of all y, a little-endian uint16; of all the code of the label, 255
    for none; of all the doubt in steps of 1/254, 255 for unknown.
    """
    tag, points = await store.look_up(caller, store.map_points)
    headers = {"ETag": f'"{tag}"', "Cache-Control": "private, no-cache"}
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    return Response(points, media_type="application/octet-stream", headers=headers)


@read.get(_STORE + "/map/documents", response_model_exclude_none=True)
async def map_documents(
    store: ServedStoreParameter,
    caller: CallerParameter,
    languages: LanguagesParameter,
    map: MapParameter,
    point: Annotated[list[NumberParameter], Query(min_length=1, max_length=100)],
) -> schemas.MapDocuments:
    """Show the documents of some points; 409 if the map is another one by now."""
    return await store.look_up(caller, store.map_documents, map, point, languages)


@read.get(_STORE + "/map/carriers")
async def map_carriers(
    store: ServedStoreParameter, caller: CallerParameter, map: MapParameter, label: PrefixParameter
) -> schemas.MapCarriers:
    """List the points whose documents carry a label."""
    return await store.look_up(caller, store.map_carriers, map, label)


@write.post(_STORE + "/backup", status_code=202, response_model_exclude_unset=True)
async def begin_backup(store: ServedStoreParameter, caller: CallerParameter) -> schemas.JobStatus:
    """Start to copy the store, as it is at one moment, to a new folder in the server's folder of backups."""
    return store.begin_backup(caller)


@read.get(_STORE + "/backup")
async def backup(store: ServedStoreParameter, caller: CallerParameter) -> schemas.BackupStatus:
    """Show the status of the backup, and list the backups of this store."""
    return await store.look_up(caller, store.backup_status)


@read.get(_STORE + "/export", response_class=Response, responses={200: {"content": {exports.MEDIA_TYPE: {}}}})
async def export(request: Request, store: ServedStoreParameter, caller: CallerParameter) -> Response:
    """Download all documents with their ids and labels, as they are at one moment: one JSON object per line."""
    return await store.export(caller, partial(_is_gone, request))
