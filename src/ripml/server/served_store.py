"""A store behind the server: its methods for the routes, and the threads that they run in.

    suggest          one thread, which scores together the texts that wait (`ripml.server.batching`)
    changes          one thread; a change is answered when it is on the disk
    snapshots        one thread, beside changes, some time after them
    jobs             one thread each for refit, compact, check and backup, which run in the background
    look-ups         four threads that all stores share: documents, labels, model cards
    long work        two threads that all stores share: long texts, batches, explanations, histories

In the shared threads callers take turns (`ripml.server.pools`), and long work never delays a look-up: each caller gets
one thread and one core for it, at a lower priority, and none for a client that is gone. A model value never changes, so
a request takes the current one and uses it to its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import heapq
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from pydantic_core import to_json, to_jsonable_python

from ripml import datasets
from ripml.base.errors import DataError, ParameterError, RipmlError
from ripml.base.parallel import blocks
from ripml.base.platform import trim_memory
from ripml.datasets.document_files import document_text
from ripml.datasets.documents import joined
from ripml.datasets.formats import format_of
from ripml.datasets.source import open_source
from ripml.datasets.tables import columns_in
from ripml.labels.concepts import Concepts
from ripml.model.explain import Example
from ripml.model.left_out import ENOUGH_ROWS
from ripml.server.access import Caller
from ripml.server.batching import Batcher
from ripml.server.exports import ExportResponse, export_file
from ripml.server.jobs import Job
from ripml.server.limits import Shares
from ripml.server.metrics import Metrics
from ripml.server.pools import FairPool
from ripml.server.problems import Problem, problem_of, unavailable, unexpected
from ripml.server.results import Now, audit_renamed, audit_without, report_renamed, report_without
from ripml.server.schemas import (
    AuditStatus,
    BackupInfo,
    BackupStatus,
    ChangedLabel,
    CheckStatus,
    ConceptDetail,
    DocumentList,
    DocumentText,
    Finding,
    JobStatus,
    LabelDetail,
    LabelList,
    LearningCurveStatus,
    Limits,
    MapCarriers,
    MapDocument,
    MapDocuments,
    MapInfo,
    MapLabel,
    MapRegion,
    MergePreview,
    ModelCard,
    NumberedDocument,
    QualityOverview,
    ReportStatus,
    ReviewRequest,
    ScoredLabel,
    StoreSummary,
    TableColumn,
    TableColumnsFound,
    TableReport,
    TaggedRow,
    TaggedRows,
    UndoneLabels,
    VocabularySummary,
)
from ripml.server.tables import Review, TagJobs
from ripml.store import Certificate, Store
from ripml.store.completion import LabelOrder
from ripml.store.fulltext import Match
from ripml.store.label_list import Undone
from ripml.tagging.documents import DocumentModel, Why
from ripml.tagging.map import DocumentMap
from ripml.tagging.rules import Suggestion

__all__ = ["ServedStore", "encode_json"]

Overrides = Mapping[str, Any]  # those of the rules that the request has
Languages = Sequence[str]  # of the reader, the preferred one first
IsGone = Callable[[], Awaitable[bool]]  # whether the client of a request has closed its connection
T = TypeVar("T")

_LONG_TEXT = 50_000  # characters; longer texts would delay a whole batch
_SCORED_TOGETHER = 1000  # texts, as in `DocumentModel.suggest`: other blocks would round differently
_CHOSEN_TOGETHER = 16  # texts whose labels are chosen at once, which other threads wait for
_ROWS_AT_A_TIME = 1000  # of a table that were decided
_LABEL_EXAMPLES = 5  # documents shown of those that carry a label
_MAX_CARRIERS = 3  # documents shown of those with the labels of an example
_EXCERPT = 300  # characters
_MAX_SPANS = 20_000  # of all labels of an explanation: the strongest of each
_MAX_EXAMPLE_LABELS = 10_000  # of all examples of an explanation: the first of each
_MAX_HISTORY_LABELS = 100_000  # of all changes of a history
_FINDINGS = 1000  # of an audit, of each kind
_REPORTED = 1000  # labels of a report
_MAX_EXPORTS = 4  # of a store at the same time
_FIRST_WORDS = 8  # of the text that is suggested for at the start
_SNAPSHOT_SECONDS = 10.0  # from a change to the next snapshot, …
_SNAPSHOT_REST = 5  # … or this many times as long as the last one took, which runs beside changes
_BACKUP_TIME = "%Y%m%dT%H%M%S.%fZ"  # in the name of a backup
_log = logging.getLogger("ripml.server")


class _Query(NamedTuple):
    text: str
    overrides: Overrides
    languages: Languages = ()


def _plain(value: Any) -> Any:
    """NumPy's values as Python's; a setting that is an object as its text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


def encode_json(content: Any) -> bytes:
    """JSON, with null for what JSON has no number for.

    >>> encode_json({"score": 0.5, "pull": float("inf")})
    b'{"score":0.5,"pull":null}'
    """
    return to_json(content, fallback=_plain, inf_nan_mode="null")


def _encode_items(name: str, items: Iterable[Any], names: dict[str, str] | None = None, **numbers: int) -> bytes:
    """JSON of an object with numbers and a list; item by item, so that other threads run in between.

    `names` of labels, which may still grow with the items, come last.

    >>> _encode_items("results", iter([[0.5], []]), version=3) == encode_json({"version": 3, "results": [[0.5], []]})
    True
    """
    head = "".join(f'"{key}":{number},' for key, number in numbers.items())
    body = b",".join(map(encode_json, items))
    tail = b"" if names is None else b',"names":' + encode_json(names)
    return b'{%b"%b":[%b]%b}' % (head.encode(), name.encode(), body, tail)


def _scored(labels: Sequence[Suggestion]) -> list[dict[str, Any]]:
    return [{"label": label, "score": score} for label, score in labels]


def _suggestions(
    version: int, model: DocumentModel, labels: Sequence[Suggestion], familiarity: float | None, languages: Languages
) -> bytes:
    """The JSON of `Suggestions`."""
    content = {"version": version, "labels": _scored(labels)}
    if familiarity is not None:
        content["familiarity"] = familiarity
    if model.concepts is not None:
        content["names"] = model.names((label for label, _ in labels), *languages)
    return encode_json(content)


def _per_item(sizes: Sequence[int], limit: int) -> int:
    """The number that each of several lists may show, at least 1, so that together they stay within a limit.

    >>> _per_item([3, 9], 12), _per_item([3, 9], 11)
    (12, 5)
    """
    return limit if sum(sizes) <= limit else max(1, limit // len(sizes))


class ServedStore:
    """A store under a name, for an event loop."""

    def __init__(
        self,
        name: str,
        store: Store,
        metrics: Metrics,
        look_ups: FairPool,
        work: FairPool,
        max_batch: int,
        backups: Path | None = None,
        tables: Path | None = None,
        warm: bool = False,
    ) -> None:
        self.name, self.store, self._metrics = name, store, metrics
        self._look_ups, self._work = look_ups, work
        features = store.model.text
        if features is None:
            raise ParameterError(f"{name}: this store was made from feature rows; the server needs a store of texts.")
        if features.lacks_encoder:
            remedy = "open it with its encoder in Python, and serve it with `ripml.server.create_app`"
            raise ParameterError(
                f"{name}: this store encodes texts with {features.encoders[0].name}, which is not saved; {remedy}."
            )
        self._batcher = Batcher(self._suggest_together, max_batch)
        self._writer = ThreadPoolExecutor(1, f"ripml write {name}")
        self._saver = ThreadPoolExecutor(1, f"ripml save {name}")
        self._backups, self._exports = backups, Shares(_MAX_EXPORTS)
        self._warm, self._snapshot_waits, self._snapshot_pause = warm, False, _SNAPSHOT_SECONDS
        self.refit = Job(f"refit {name}", lambda actor: self.store.refit(actor=actor), self._end_refit)
        self.compact = Job(f"compact {name}", lambda actor: self.store.compact(actor=actor), self._count_job("compact"))
        self.check = Job(f"check {name}", self._run_check, self._count_job("check"))
        self._tables = None if tables is None else TagJobs(tables, name, self._current_on_one_core)
        self.audit = Job(f"audit {name}", self._run_audit, self._count_job("audit"))
        self.report = Job(f"report {name}", self._run_report, self._count_job("report"))
        self.curve = Job(f"learning curve {name}", self._run_curve, self._count_job("learning curve"))
        self.map = Job(f"map {name}", self._run_map, self._count_job("map"))
        self._map_share = 0.0
        self.backup = Job(f"backup {name}", self._run_backup, self._count_job("backup"))
        self._follow_failed = False
        self._decided, self._decided_turn = (0, 0, 0), threading.Lock()  # up to a change: accepted, rejected

    # ----------------------------------------------------------------------------------------------------- life cycle

    async def start(self) -> None:
        """Load what a first request loads; then, if it should be warm, prepare for changes in the background."""
        await asyncio.to_thread(self.answer_once)
        if self._tables is not None:
            await asyncio.to_thread(self._tables.start)
        if self._warm:
            self._writer.submit(self._warm_up)

    def answer_once(self) -> None:
        """Load what a first request loads, and return to the system the memory that only loading needed."""
        self.store.prepare_answers()
        version, model = self._current()
        text = " ".join((model.columns or ["text"])[:_FIRST_WORDS])
        (labels,), familiarity = model.suggest([text]), model.familiarity([text])  # not counted: nobody asked
        _suggestions(version, model, labels, familiarity[0] if familiarity else None, ())
        trim_memory()

    def _warm_up(self) -> None:
        try:
            self.store.warm_up()
        except Exception as error:  # logged; the first change fails with it
            unexpected(error)

    async def follow(self) -> None:
        """Take over the changes of a writer in another process; a failure is logged once, and so is its end."""
        try:
            await asyncio.to_thread(self.store.refresh)
        except Exception as error:
            if not self._follow_failed:
                problem_of(error)
            self._follow_failed = True
        else:
            if self._follow_failed:
                _log.info("%s: following the store works again.", self.name)
            self._follow_failed = False

    def close(self) -> None:
        """Finish the requests in progress and close the store."""
        if self._tables is not None:
            self._tables.close()
        self._batcher.close()
        self._writer.shutdown()
        self._saver.shutdown()
        self.store.close()

    def _current(self) -> tuple[int, DocumentModel]:
        """The model and the number of the change that made it."""
        while True:
            version, model = self.store.version, self.store.model
            if version == self.store.version:
                return version, model

    def _current_on_one_core(self) -> tuple[int, DocumentModel]:
        """The same for long work: it leaves the other cores to the texts that many callers wait for."""
        version, model = self._current()
        estimator = copy.copy(model.model)
        estimator.n_jobs = 1
        return version, replace(model, model=estimator)

    async def look_up(self, caller: Caller, method: Callable[..., T], *arguments: Any) -> T:
        """Run a method in the shared threads for look-ups."""
        return await self._look_ups.run(caller.name, method, *arguments)

    async def work(self, caller: Caller, is_gone: IsGone, method: Callable[..., T], *arguments: Any) -> T:
        """Run a method in the shared threads for long work, unless its client is gone when its turn comes."""
        return await self._work.run(caller.name, method, *arguments, is_gone=is_gone)

    # ---------------------------------------------------------------------------------------------------- suggestions

    async def suggest(
        self, caller: Caller, is_gone: IsGone, text: str, overrides: Overrides, languages: Languages = ()
    ) -> bytes:
        """The labels of a text, as the JSON of `Suggestions`."""
        query = _Query(text, overrides, languages)
        if len(text) <= _LONG_TEXT:
            return await self._batcher.submit(query)
        return await self.work(caller, is_gone, self._suggest_long, query)

    def _suggest_long(self, query: _Query) -> bytes:
        """The labels of a long text."""
        version, model = self._current_on_one_core()
        self._metrics.batch_sizes.labels(self.name).observe(1)
        (labels,) = model.suggest([query.text], model.rules.but(**query.overrides))
        (familiarity,) = self._familiarity(model, [query.text], [labels])
        return _suggestions(version, model, labels, familiarity, query.languages)

    def _familiarity(
        self, model: DocumentModel, texts: Sequence[str], labels: Sequence[Sequence[Suggestion]]
    ) -> Sequence[float | None]:
        """How familiar texts are, None where that is not known; counted with the best scores, for drift."""
        found = model.familiarity(texts)
        self._metrics.asked(self.name, found or (), [row[0][1] if row else 0.0 for row in labels])
        return found or [None] * len(texts)

    def _suggest_together(self, queries: Sequence[_Query]) -> list[bytes]:
        """The labels of the texts of several callers: scored together, then chosen by the rules of each caller."""
        version, model = self._current()
        self._metrics.batch_sizes.labels(self.name).observe(len(queries))
        texts = [query.text for query in queries]
        groups: dict[tuple[Any, ...], list[int]] = {}
        for row, query in enumerate(queries):
            groups.setdefault(tuple(query.overrides.items()), []).append(row)
        if len(groups) == 1:
            labels = model.suggest(texts, model.rules.but(**queries[0].overrides))
        else:
            X = model.features_of(texts)
            scores = model.model.decision_function(X)
            by_row: dict[int, list[Suggestion]] = {}
            for overrides, rows in groups.items():
                rules = model.resolved(model.rules.but(**dict(overrides)))
                chosen = rules.suggestions(model.model, scores[rows], X[rows])
                by_row.update(zip(rows, chosen, strict=True))
            labels = [by_row[row] for row in range(len(queries))]
        answers = zip(labels, self._familiarity(model, texts, labels), queries, strict=True)
        return [_suggestions(version, model, row, known, query.languages) for row, known, query in answers]

    def suggest_batch(self, texts: Sequence[str], overrides: Overrides, languages: Languages = ()) -> bytes:
        """The labels of texts, all by one version of the model, as the JSON of `BatchSuggestions`."""
        version, model = self._current_on_one_core()
        self._metrics.batch_sizes.labels(self.name).observe(len(texts))
        rules = model.resolved(model.rules.but(**overrides))
        names: dict[str, str] | None = None if model.concepts is None else {}

        def results() -> Iterator[dict[str, Any]]:
            for block in blocks(len(texts), _SCORED_TOGETHER):
                X = model.features_of(texts[block])
                scores = model.model.decision_function(X)
                for few in blocks(scores.shape[0], _CHOSEN_TOGETHER):
                    rows = rules.suggestions(model.model, scores[few], X[few])
                    for row, known in zip(rows, self._familiarity(model, texts[block][few], rows), strict=True):
                        if names is not None:
                            names.update(model.names((label for label, _ in row), *languages))
                        yield {"labels": _scored(row), **({} if known is None else {"familiarity": known})}

        return _encode_items("results", results(), names, version=version)

    # --------------------------------------------------------------------------------------------------- explanations

    def explain(
        self, text: str, overrides: Overrides, n_examples: int, n_features: int, languages: Languages = ()
    ) -> bytes:
        """The explained labels of a text, as the JSON of `Explanations`."""
        version, model = self._current_on_one_core()
        (found,) = model.explain([text], model.rules.but(**overrides), n_examples, n_features)
        n_spans = _per_item([len(label.spans) for label in found], _MAX_SPANS)
        sizes = [len(example.labels) for label in found for example in label.examples]
        n_labels = _per_item(sizes, _MAX_EXAMPLE_LABELS)
        labels = (self._explanation(label, model, n_spans, n_labels) for label in found)
        carried = [name for label in found for example in label.examples for name in example.labels[:n_labels]]
        names = self._names(model, [*(label.label for label in found), *carried], languages)
        return _encode_items("labels", labels, names, version=version)

    def _explanation(self, label: Why, model: DocumentModel, n_spans: int, n_labels: int) -> dict[str, Any]:
        """An explained label, with the documents behind its examples."""
        spans = label.spans
        if len(spans) > n_spans:
            spans = sorted(heapq.nlargest(n_spans, spans, key=lambda span: abs(span[2])))
        names = ("label", "score", "regression", "others", "value", "intercept", "named", "features")
        return {
            **{name: getattr(label, name) for name in names},
            "examples": [self._example(example, model, n_labels) for example in label.examples],
            "spans": [{"start": start, "end": end, "pull": pull} for start, end, pull in spans],
        }

    def _example(self, example: Example, model: DocumentModel, n_labels: int) -> dict[str, Any]:
        """An example, with its document, or the first documents that have its labels."""
        ids = self.store.example_documents(example, model, _MAX_CARRIERS)
        return {
            "labels": [str(label) for label in example.labels[:n_labels]],
            "share": example.share,
            "n_rows": example.n_rows,
            "row": example.row,
            "how": example.how,
            "documents": list(self._excerpts(ids)),
        }

    def _excerpts(self, ids: Sequence[str]) -> Iterator[dict[str, str]]:
        for id in ids:
            with contextlib.suppress(DataError):  # forgotten in the meantime
                yield {"id": id, "text": self.store.document(id)["text"][:_EXCERPT]}

    # ------------------------------------------------------------------------------------------------------- look-ups

    @staticmethod
    def _names(model: DocumentModel, labels: Iterable[Any], languages: Languages) -> dict[str, str] | None:
        """What people call labels; None without a vocabulary."""
        return None if model.concepts is None else model.names(map(str, labels), *languages)

    def document(self, id: str, languages: Languages = ()) -> dict[str, Any]:
        """A document, with the names of its labels if there is a vocabulary."""
        try:
            found = self.store.document(id)
        except DataError as error:
            raise Problem(404, str(error)) from None
        labels = [label for state in ("labels", "accepted", "rejected") for label in found.get(state) or ()]
        names = self._names(self.store.model, labels, languages)
        return found if names is None else {**found, "names": names}

    def labels(self, prefix: str, limit: int, languages: Languages = ()) -> LabelList:
        """The labels whose names begin with a prefix."""
        return self._with_names(LabelList(labels=self.store.labels(prefix, limit, *languages)), languages)

    def browse_labels(self, order: LabelOrder, start: int, limit: int, languages: Languages = ()) -> LabelList:
        """The labels of an order from a place on."""
        return self._with_names(LabelList(**vars(self.store.browse_labels(order, limit, start, *languages))), languages)

    def _with_names(self, found: LabelList, languages: Languages) -> LabelList:
        names = self._names(self.store.model, (label.name for label in found.labels), languages)
        return found if names is None else found.model_copy(update={"names": names})

    def label(self, name: str, languages: Languages = ()) -> LabelDetail:
        """What is known about a label, with the documents behind it and what the vocabulary says of it."""
        try:
            found = self.store.label(name, _LABEL_EXAMPLES)
        except DataError as error:
            raise Problem(404, str(error)) from None
        model, quality = self.store.model, found.quality
        concept = self.concept(name, languages) if name in (model.concepts or ()) else None
        confused = [] if quality is None else [str(other) for other, _ in quality.confused_with]
        return LabelDetail.model_validate(
            {
                **vars(found),
                "quality": None if quality is None else vars(quality),
                "examples": list(self._excerpts(found.examples)),
                "concept": concept,
                "names": self._names(model, [name, *confused], languages) or {},
            },
        )

    def merging(self, name: str, into: str) -> MergePreview:
        """What it would change to merge a label into another one."""
        self._require_label(name)
        return MergePreview(label=name, into=into, **vars(self.store.merging([name], into)))

    def vocabulary(self) -> VocabularySummary:
        """The size and the languages of the vocabulary."""
        version, model = self._current()
        concepts = model.concepts
        return VocabularySummary(
            version=version, concepts=len(concepts or ()), languages=[] if concepts is None else concepts.languages
        )

    def concept(self, id: str, languages: Languages = ()) -> ConceptDetail:
        """What the vocabulary says of a label."""
        concepts = self.store.model.concepts
        if concepts is None or id not in concepts:
            raise Problem(404, f"the vocabulary has no concept {id!r}.")
        concept, narrower, path = concepts[id], concepts.narrower(id), concepts.path(id)
        return ConceptDetail(
            id=id,
            name=concept.name(*languages),
            names_by_language=dict(concept.names),
            synonyms={language: list(texts) for language, texts in concept.synonyms.items()},
            broader=list(concept.broader),
            narrower=list(narrower),
            related=list(concept.related),
            notation=concept.notation,
            types=list(concept.types),
            schemes=list(concept.schemes),
            path=list(path),
            names=concepts.named([*path, *concept.broader, *narrower, *concept.related], *languages),
        )

    def documents(self, after: int, limit: int) -> DocumentList:
        """The ids of the documents after a number."""
        found = self.store.numbered_ids(limit, after).items()
        return DocumentList(documents=[NumberedDocument(number=number, id=id) for number, id in found])

    def search(self, query: str, filters: Mapping[str, Any], languages: Languages = ()) -> bytes:
        """Documents that are found, as the JSON of `FoundDocuments`."""
        version, model = self._current()
        try:
            found = self.store.search(query, **filters)
        except (DataError, ParameterError) as error:
            raise Problem(422, str(error)) from None
        shown = (label for one in found for label in (*one.labels, *one.accepted, *one.rejected))
        names = self._names(model, shown, languages)
        more = {} if names is None else {"names": names}
        documents = [vars(one) for one in found]
        return encode_json(
            {"version": version, "documents": documents, "total": found.total, "next": found.next, **more}
        )

    def history(self, limit: int, before: int | None = None, languages: Languages = ()) -> bytes:
        """The last changes, or those before one, newest first, as the JSON of `History`."""
        changes, n_labels = list[dict[str, Any]](), 0
        states = ("before", "after", "rejected_before", "rejected_after")
        for change in self.store.history(limit, before):
            n_labels += sum(len(change.get(state) or ()) for state in states)
            if changes and n_labels > _MAX_HISTORY_LABELS:
                break
            changes.append(change)
        labels = (label for change in changes for state in states for label in change.get(state) or ())
        names = self._names(self.store.model, labels, languages)
        return _encode_items("changes", changes, names)

    def sizes(self) -> dict[str, int]:
        """The numbers of documents, labels and changes; may wait for the disk."""
        version, model = self._current()
        return {"documents": len(self.store), "labels": len(model.model.classes_), "version": version}

    def decided_labels(self) -> dict[str, int]:
        """How many labels were accepted and rejected, as the history has it; reads what was added to it."""
        with self._decided_turn:
            last, accepted, rejected = self._decided
            for change, _, yes, no in self.store.decided_labels(last):
                last, accepted, rejected = change, accepted + yes, rejected + no
            self._decided = last, accepted, rejected
        return {"accepted": accepted, "rejected": rejected}

    def summary(self) -> StoreSummary:
        """The name and size of the store."""
        sizes = self.sizes()
        return StoreSummary(name=self.name, documents=sizes["documents"], labels=sizes["labels"])

    def card(self, limits: Limits) -> ModelCard:
        """The store and its model."""
        model = self.store.model
        estimator = model.model
        kinds = [] if model.text is None else [type(part).__name__ for part in model.text.parts]
        facts = {
            "name": self.name,
            **self.sizes(),
            "features": {"kind": ", ".join(kinds) or "given", "count": int(estimator.n_features_in_)},
            "settings": estimator.get_params(deep=False),
            "chosen": estimator.chosen_,
            "left_out_precision": model.left_out_precision or None,
            "calibration_errors": estimator.calibration_errors_ or None,
            "automation": estimator.automation() if estimator.model_.calibration.guarantees else None,
            "warm": estimator.warm_,
            "rules": model.rules.to_json(),
        }
        if model.concepts is not None:
            facts["vocabulary"] = {"concepts": len(model.concepts), "languages": model.concepts.languages}
        return ModelCard(**to_jsonable_python(facts, fallback=_plain), limits=limits)

    # -------------------------------------------------------------------------------------------------------- changes

    async def _change(self, kind: str, work: Callable[[], T]) -> tuple[int, T]:
        """Make a change when it is its turn; the version that has it, and the result of `work`.

        A change that has begun ends, even if the client closes the connection.
        """

        def make() -> tuple[int, T]:
            result = work()
            self._metrics.writes.labels(self.name, kind).inc()
            return self.store.version, result

        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(self._writer, make)
        future.add_done_callback(lambda _: self._plan_snapshot(loop))
        return await asyncio.shield(future)

    def _plan_snapshot(self, loop: asyncio.AbstractEventLoop) -> None:
        """Take a snapshot some time after a change: light readers wait for it, and so would a start after a crash."""
        if not self._snapshot_waits:
            self._snapshot_waits = True
            loop.call_later(self._snapshot_pause, self._submit, self._take_snapshot, self._saver)

    def save(self) -> None:
        """Take a snapshot when the changes that wait are made, because the server stops."""
        self._submit(self._take_snapshot)

    def _take_snapshot(self) -> None:
        self._snapshot_waits = False
        start = time.perf_counter()
        try:
            self.store.snapshot()
        except Exception as error:  # logged; the changes are on the disk, and the next one plans another snapshot
            problem_of(error)
        self._snapshot_pause = max(_SNAPSHOT_SECONDS, _SNAPSHOT_REST * (time.perf_counter() - start))

    def _submit(self, work: Callable[[], None], thread: ThreadPoolExecutor | None = None) -> None:
        """Do some work between changes or in another thread, unless the server is stopping."""
        with contextlib.suppress(RuntimeError):
            (thread or self._writer).submit(work)

    async def learn(self, caller: Caller, documents: Sequence[Mapping[str, Any]]) -> tuple[int, list[str]]:
        """Learn documents; the version and their ids."""
        return await self._change("learn", lambda: self.store.learn(documents, actor=caller.key))

    async def forget(self, caller: Caller, ids: Sequence[str], certify: bool = False) -> tuple[int, list[Certificate]]:
        """Forget documents; the version and, if requested, their certificates."""

        def work() -> list[Certificate]:
            try:
                certificates = self.store.forget(ids, certify=certify, actor=caller.key)
            except DataError as error:  # ids are distinct strings, so the only error is an unknown one
                raise Problem(404, str(error)) from None
            gone = frozenset(ids)
            self._update_found(
                lambda audit: audit_without(audit, gone=gone), lambda report: report_without(report, gone)
            )
            return certificates

        return await self._change("forget", work)

    async def relabel(self, caller: Caller, id: str, labels: Sequence[str]) -> tuple[int, list[str]]:
        """Replace the labels of a document; the version and the labels before."""

        def work() -> list[str]:
            before: list[str] = self.document(id)["labels"]
            self.store.relabel(id, labels, actor=caller.key)
            return before

        return await self._change("relabel", work)

    async def decide(
        self,
        caller: Caller,
        document: str | Mapping[str, Any],
        accepted: Sequence[str],
        rejected: Sequence[str],
        complete: bool,
    ) -> tuple[int, dict[str, Any]]:
        """Accept and reject labels of a document; the version and the document."""

        def work() -> dict[str, Any]:
            if isinstance(document, str):
                self.document(document)  # else there is none
            id = self.store.decide(document, accepted, rejected, complete=complete, actor=caller.key)
            return self.store.document(id)

        return await self._change("decide", work)

    async def withdraw(self, caller: Caller, id: str) -> tuple[int, dict[str, Any]]:
        """Take back the decisions on a document; the version and the document."""

        def work() -> dict[str, Any]:
            self.document(id)
            self.store.withdraw(id, actor=caller.key)
            return self.store.document(id)

        return await self._change("withdraw", work)

    async def decide_findings(self, caller: Caller, decision: str, findings: Sequence[Mapping[str, Any]]) -> int:
        """Accept, dismiss or undo findings of an audit, which are not shown any more; the version."""

        def work() -> None:
            if decision == "dismiss":
                self.store.dismiss(findings)
            elif decision == "accept":
                self.store.accept(findings, actor=caller.key)
            else:
                self.store.undo(findings, actor=caller.key)
            decided = {(one["kind"], one["document"], one["label"]) for one in findings}
            self._update_found(lambda audit: audit_without(audit, decided))

        version, _ = await self._change("audit", work)
        return version

    def _update_found(
        self, audit: Callable[[AuditStatus], AuditStatus], report: Callable[[ReportStatus], ReportStatus] | None = None
    ) -> None:
        """Change what the last audit and the last report found, if there were any."""
        if self.audit.result is not None:
            self.audit.result = audit(self.audit.result)
        if report is not None and self.report.result is not None:
            self.report.result = report(self.report.result)

    async def add_label(self, caller: Caller, name: str, words: Sequence[str], language: str) -> ChangedLabel:
        """Declare a label by its name and other words."""

        def work(store: Store) -> None:
            if name in store.model.model.vocabulary_:
                raise Problem(409, f"there is a label {name!r} already.")
            store.add_label(name, {language: words} if words else None, actor=caller.key)

        return await self._change_label("add label", name, work)

    async def rename_label(self, caller: Caller, name: str, to: str) -> ChangedLabel:
        """Rename a label."""

        def work(store: Store) -> None:
            self._require_label(name)
            store.rename_label(name, to, actor=caller.key)
            self._rename_found(lambda label: to if label == name else label)

        return await self._change_label("rename label", to, work)

    async def merge_label(self, caller: Caller, name: str, into: str) -> ChangedLabel:
        """Give the documents that carry a label another one."""

        def work(store: Store) -> None:
            self._require_label(name)
            store.merge_labels([name], into, actor=caller.key)
            self._rename_found(lambda label: None if label == name else label)

        return await self._change_label("merge labels", into, work)

    async def retire_label(self, caller: Caller, name: str, retired: bool) -> ChangedLabel:
        """Stop suggesting a label, or suggest it again."""

        def work(store: Store) -> None:
            self._require_label(name)
            (store.retire_label if retired else store.reinstate_label)(name, actor=caller.key)

        return await self._change_label("retire label" if retired else "reinstate label", name, work)

    async def undo_labels(self, caller: Caller, change: int) -> UndoneLabels:
        """Take back a change of labels."""

        def work() -> Undone:
            try:
                done = self.store.undo_labels(change, actor=caller.key)
            except DataError as error:
                raise Problem(409, str(error)) from None
            known = self.store.model.model.vocabulary_
            self._rename_found(lambda label: label if label in known else None)
            return done

        version, found = await self._change("undo labels", work)
        return UndoneLabels(version=version, **vars(found))

    def _require_label(self, name: str) -> None:
        if name not in self.store.model.model.vocabulary_:
            raise Problem(404, f"there is no label {name!r}.")

    async def _change_label(self, kind: str, name: str, work: Callable[[Store], None]) -> ChangedLabel:
        """Make a change of labels, which is the last one when it is made."""

        def make() -> int:
            work(self.store)
            return self.store.version

        version, change = await self._change(kind, make)
        return ChangedLabel(version=version, label=name, change=change)

    def _rename_found(self, now: Now) -> None:
        """Let the last audit and the last report follow labels that have other names or are gone."""
        self._update_found(lambda audit: audit_renamed(audit, now), lambda report: report_renamed(report, now))

    async def set_vocabulary(self, caller: Caller, concepts: Callable[[], Concepts], add: bool) -> int:
        """Replace the vocabulary by these concepts, or add them to it; the version."""

        def work() -> None:
            given = concepts()
            known = self.store.model.concepts if add else None
            self.store.set_vocabulary(given if known is None else known.updated(given), actor=caller.key)

        version, _ = await self._change("vocabulary", work)
        return version

    def tag_jobs(self) -> TagJobs:
        """The tables that are tagged in the background."""
        if self._tables is None:
            raise Problem(403, "this server has no folder for tables; start it with --tables FOLDER.")
        return self._tables

    def check_table(self, path: Path, name: str, options: Mapping[str, Any]) -> TableReport:
        """What looks wrong in a table."""
        known = set(map(str, self.store.model.model.classes_.tolist()))
        try:
            report = datasets.check(datasets.read(path, **options), known)
        except RipmlError as error:
            raise Problem(422, str(error).replace(str(path), name)) from None
        return TableReport(**{**report.to_json(), "name": name})

    def columns_in(self, path: Path, name: str, options: Mapping[str, Any]) -> TableColumnsFound:
        """The columns of a table."""
        try:
            with open_source(path) as source:
                found = columns_in(source, format_of(source, None), **options)
        except RipmlError as error:
            raise Problem(422, str(error).replace(str(path), name)) from None
        columns = [TableColumn(**column._asdict()) for column in found.columns]
        return TableColumnsFound(name=name, columns=columns, text=found.text, rows=found.rows)

    def read_document(self, path: Path, name: str) -> DocumentText:
        """The text of a document."""
        try:
            with open_source(path) as source:
                return DocumentText(name=name, text=document_text(source))
        except RipmlError as error:
            raise Problem(422, str(error).replace(str(path), name)) from None

    def table_answers(self, id: str, to: str) -> Path:
        """The complete table of a job as `to`, with what was decided on its rows."""
        return self.tag_jobs().converted(id, to, self._review_of(id))

    def _review_of(self, id: str) -> Review | None:
        """What was decided on rows of a table, which are the documents `id-1`, `id-2` and so on; None if nothing was.

        The tags that are right come first, then those that are suggested and not decided, unless all are known.
        """
        known: dict[int, Match] = {}
        page = self.store.search(prefix=f"{id}-", n=_ROWS_AT_A_TIME)
        while True:
            known |= {int(number) - 1: one for one in page if (number := one.id.rpartition("-")[2]).isdecimal()}
            if page.next is None:
                break
            page = self.store.search(prefix=f"{id}-", n=_ROWS_AT_A_TIME, after=page.next)
        model = self.store.model

        def review(number: int, row: dict[str, Any]) -> dict[str, Any]:
            if (one := known.get(number)) is None:
                return row
            prefix = "suggested " if "suggested tags" in row else ""
            right, scores = (
                one.labels or one.accepted,
                dict(zip(row[f"{prefix}tags"], row[f"{prefix}scores"], strict=True)),
            )
            open_tags = [] if one.labels else [tag for tag in scores if tag not in {*right, *one.rejected}]
            tags = [*right, *open_tags]
            names = model.names(tags)
            found = {"tags": tags, "scores": [1.0] * len(right) + [scores[tag] for tag in open_tags]}
            found |= {"names": [names.get(tag, tag) for tag in tags]} if f"{prefix}names" in row else {}
            return row | {f"{prefix}{name}": values for name, values in found.items()}

        return review if known else None

    def table_rows(self, id: str, after: int, limit: int, languages: Languages = ()) -> TaggedRows:
        """Rows of a table that are tagged already."""
        jobs, model = self.tag_jobs(), self.store.model
        records, done = jobs.rows(id, after, limit)
        if review := self._review_of(id):
            records = [review(number, record) for number, record in enumerate(records, after)]
        columns = jobs.job(id).options.get("text") or ["text"]
        rows: list[TaggedRow] = []
        for number, record in enumerate(records, after):
            prefix = "suggested " if "suggested tags" in record else ""
            pairs = zip(record.pop(f"{prefix}tags"), record.pop(f"{prefix}scores"), strict=True)
            record.pop(f"{prefix}names", None)
            labels = [ScoredLabel(label=tag, score=score) for tag, score in pairs]
            text = joined(["" if (cell := record.get(name)) is None else str(cell) for name in columns])
            rows.append(TaggedRow(number=number, text=text, cells=record, labels=labels))
        tags = [one.label for row in rows for one in row.labels]
        return TaggedRows(rows=rows, done=done, names=None if model.concepts is None else model.names(tags, *languages))

    def review(self, caller: Caller, query: ReviewRequest, languages: Languages = ()) -> bytes:
        """Documents to review, leased to a caller, as the JSON of `ReviewBatch`."""
        if query.labelled and self.audit.result is None:
            raise Problem(409, f"the labels were not audited; POST /v1/stores/{self.name}/audit, and wait for its end.")
        holder = " ".join(filter(None, (caller.key, query.caller))) or None
        found = self.store.review(query.n, labelled=query.labelled, caller=holder, minutes=query.minutes)
        shown = (label for one in found for label in (*(label for label, _ in one.labels), *one.carried))
        names = self._names(self.store.model, shown, languages)
        documents = ({**one.to_json(), "text": one.text or ""} for one in found)
        return _encode_items("documents", documents, names)

    def release(self, ids: Sequence[str]) -> None:
        """Give documents back undecided."""
        try:
            self.store.release(ids)
        except DataError as error:
            raise Problem(404, str(error)) from None

    # ----------------------------------------------------------------------------------------------------------- jobs

    def _count_job(self, kind: str) -> Callable[[str], None]:
        return lambda outcome: self._metrics.jobs.labels(self.name, kind, outcome).inc()

    def _end_refit(self, outcome: str) -> None:
        self._metrics.refits.labels(self.name, outcome).inc()
        if outcome == "done" and self._warm:
            self._submit(self._warm_up)

    def begin_backup(self, caller: Caller) -> JobStatus:
        """Start a backup into the folder of the settings."""
        if self._backups is None:
            raise Problem(403, "this server has no folder for backups; start it with --backups FOLDER.")
        return self.backup.begin(caller.key)

    def _run_backup(self, actor: str | None) -> None:
        assert self._backups is not None
        now = datetime.now(timezone.utc)
        self.store.backup(self._backups / f"{self.name}-{now:{_BACKUP_TIME}}")

    def backup_status(self) -> BackupStatus:
        """The status of the backup, and the backups of this store."""
        found = []
        with contextlib.suppress(FileNotFoundError):  # no folder, or none yet
            for folder in sorted(self._backups.iterdir() if self._backups is not None else (), reverse=True):
                name, _, moment = folder.name.rpartition("-")
                with contextlib.suppress(ValueError):  # another file
                    made = datetime.strptime(moment, _BACKUP_TIME).replace(tzinfo=timezone.utc)
                    if name == self.name:
                        found.append(BackupInfo(name=folder.name, time=made.isoformat(timespec="seconds")))
        return BackupStatus(**dict(self.backup.status), backups=found)

    def _run_check(self, actor: str | None) -> CheckStatus:
        """Check the store; what is wrong is logged, because it can name files."""
        report, findings = self.store.check(), []
        for finding in report.findings:
            if not finding.ok:
                _log.error("%s: the check of the %s failed: %s.", self.name, finding.name, finding.message)
            message = finding.message if finding.ok else "failed; the server's log has the details"
            findings.append(Finding(name=finding.name, ok=finding.ok, message=message))
        return CheckStatus(status="idle", ok=report.ok, findings=findings)

    def _run_audit(self, actor: str | None) -> AuditStatus:
        """Find labels that are probably wrong or missing."""
        version, found = self.store.version, self.store.audit(_FINDINGS).worth_reading().to_json()
        return AuditStatus.model_validate({**found, "status": "idle", "version": version})

    def audit_status(self, limit: int, languages: Languages = ()) -> AuditStatus:
        """The status of the audit, and the first findings of each kind of the last one."""
        result = self.audit.result or AuditStatus(status="idle")
        first = {kind: getattr(result, kind)[:limit] for kind in ("wrong", "missing", "conflicts", "near_copies")}
        shown = [one.label for one in (*first["wrong"], *first["missing"])]
        shown += [name for one in first["conflicts"] for name in one.labels]
        shown += [name for one in first["near_copies"] for only in one.only for name in only]
        names = self._names(self.store.model, set(shown), languages)
        return result.model_copy(update={**first, "names": names, **dict(self.audit.status)})

    def _run_report(self, actor: str | None) -> ReportStatus:
        """Measure how well labels are predicted."""
        version, found = self.store.version, self.store.quality(_REPORTED).to_json()
        return ReportStatus.model_validate({**found, "status": "idle", "version": version})

    def report_status(self, limit: int, languages: Languages = ()) -> ReportStatus:
        """The status of the report, and the most frequent labels of the last one."""
        result = self.report.result or ReportStatus(status="idle")
        first = {name: getattr(result, name)[:limit] for name in ("labels", "pairs", "splits")}
        shown = [name for one in first["labels"] for name in (one.label, *(other for other, _ in one.confused_with))]
        shown += [name for one in first["pairs"] for name in (one.label, one.other)]
        shown += [name for one in first["splits"] for group in one.groups for name in (one.label, *dict(group.labels))]
        names = self._names(self.store.model, set(shown), languages)
        return result.model_copy(update={**first, "names": names, **dict(self.report.status)})

    def quality(self) -> QualityOverview:
        """What is known of the quality of the model without measuring it."""
        version, model = self._current()
        estimator = model.model
        facts = {
            "version": version,
            "rows": estimator.n_rows_,
            "enough": estimator.n_rows_ >= ENOUGH_ROWS,
            "automation": estimator.automation_curves() if estimator.model_.calibration.guarantees else None,
            "fits": self.store.fits(),
            "drift": self.store.drift(),
        }
        return QualityOverview.model_validate(facts)

    def _run_curve(self, actor: str | None) -> LearningCurveStatus:
        """Measure what more documents would bring."""
        version, found = self.store.version, self.store.learning_curve().to_json()
        return LearningCurveStatus.model_validate({**found, "status": "idle", "version": version})

    def curve_status(self) -> LearningCurveStatus:
        """The status of the learning curve, and the last one."""
        result = self.curve.result or LearningCurveStatus(status="idle")
        return result.model_copy(update=dict(self.curve.status))

    def _run_map(self, actor: str | None) -> None:
        """Compute the map."""

        def progress(share: float) -> None:
            self._map_share = share

        self._map_share = 0.0
        self.store.map(progress)

    def map_info(self, languages: Languages = ()) -> MapInfo:
        """The map as far as it is known, and the status of its computation."""
        found, job = self.store.known_map(), self.map.status
        status: dict[str, Any] = {**dict(job), "progress": self._map_share if job.status == "running" else 0.0}
        if found is None:
            return MapInfo(**status)
        shown = [*(label for label, _ in found.top), *(region.label for region in found.regions)]
        return MapInfo(
            **status,
            map=found.tag,
            version=found.version,
            points=len(found),
            stale=found.stale,
            waiting=found.n_waiting,
            labels=[MapLabel(label=label, documents=count) for label, count in found.top],
            regions=[
                MapRegion(label=one.label, x=one.x, y=one.y, documents=one.n_documents, cells=one.cells)
                for one in found.regions
            ],
            names=self._names(self.store.model, shown, languages),
        )

    def _known_map(self, tag: str | None = None) -> DocumentMap:
        """The map, which must be the one of this tag if one is given."""
        found = self.store.known_map()
        if found is None:
            raise Problem(404, f"there is no map yet; GET /v1/stores/{self.name}/map says when.")
        if tag is not None and found.tag != tag:
            raise Problem(409, f"the map has changed since {tag!r}; get its points again.")
        return found

    def map_points(self) -> tuple[str, bytes]:
        """What identifies the map, and its points; see `DocumentMap.packed`."""
        found = self._known_map()
        return found.tag, found.packed()

    def map_documents(self, tag: str, points: Sequence[int], languages: Languages = ()) -> MapDocuments:
        """Some points of the map with this tag."""
        found, documents = self._known_map(tag), list[MapDocument]()
        if outside := [point for point in points if point >= len(found)]:
            raise Problem(422, f"the points of the map are from 0 to {len(found) - 1}; got {outside[0]}.")
        for point in points:
            labels, doubt = found.labels(point), found.doubt[point]
            for text in self._excerpts([found.ids[point]]):
                documents.append(
                    MapDocument(point=point, **text, labels=labels, doubt=None if np.isnan(doubt) else float(doubt))
                )
        names = self._names(self.store.model, (label for one in documents for label in one.labels), languages)
        return MapDocuments(documents=documents, names=names)

    def map_carriers(self, tag: str, label: str) -> MapCarriers:
        """The points of the map with this tag whose documents carry a label."""
        return MapCarriers(label=label, points=self._known_map(tag).carriers(label).tolist())

    def check_status(self) -> CheckStatus:
        """The status of the check, and the results of the last one."""
        result = self.check.result or CheckStatus(status="idle")
        return result.model_copy(update=dict(self.check.status))

    async def export(self, caller: Caller, is_gone: IsGone) -> ExportResponse:
        """All documents as a download. Few at a time, because each takes room on the disk."""
        if not self._exports.take(caller.name, 1):
            raise unavailable("too many exports of this caller or in all are in progress; try again later.", 60)

        def ended() -> None:
            self._exports.give_back(caller.name, 1)

        try:
            file = await self.work(caller, is_gone, export_file, self.store)
        except BaseException:
            ended()
            raise
        return ExportResponse(file, self.name, functools.partial(self.look_up, caller), ended)
