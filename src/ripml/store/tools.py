"""`Tools`: what agents may do with a store: each tool has a name, a schema of its arguments, and an answer.

Arguments and answers are JSON objects. What is wrong with arguments is told in one sentence, so that an agent can mend
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ripml.base.errors import ParameterError
from ripml.store.store import Store
from ripml.tagging.rules import Suggestion

__all__ = ["Tool", "Tools"]

_TYPES: dict[str, type] = {
    "string": str,
    "integer": int,
    "number": float,
    "array": list,
    "object": dict,
    "boolean": bool,
}
_TEXT = {"type": "string", "description": "The text of a document."}
_ID = {"type": "string", "description": "The id of a document."}
_LABELS = {"type": "array", "items": {"type": "string"}, "description": "All labels of the document."}


def _count(default: int, what: str) -> dict[str, Any]:
    return {"type": "integer", "minimum": 1, "maximum": 1000, "default": default, "description": what}


def _schema(required: Sequence[str], **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


@dataclass(frozen=True)
class Tool:
    """What a tool does, the JSON schema of its arguments, and whether it changes the store."""

    name: str
    title: str
    description: str
    schema: dict[str, Any]
    answer: Callable[..., dict[str, Any]]
    writes: bool = False


class Tools:
    """The tools of a store, those that change it only if it is open for writing.

    >>> import tempfile
    >>> from ripml import RIPML, datasets
    >>> texts, labels = ["red apple", "green pear", "grey rain", "blue sky"], [["fruit"]] * 2 + [["air"]] * 2
    >>> data = datasets.documents_given(texts, labels)
    >>> with Store.create(tempfile.mkdtemp(), data, RIPML.linear(random_state=0)) as store:
    ...     tools = Tools(store)
    ...     tools.call("suggest", {"text": "an apple", "n": 1})["labels"][0]["label"]
    'fruit'
    >>> sorted(name for name, tool in tools.by_name.items() if not tool.writes)
    ['explain', 'read_document', 'search_documents', 'search_labels', 'suggest']
    """

    def __init__(self, store: Store, readonly: bool = False, actor: str | None = None) -> None:
        self._store, self._readonly, self._actor = store, readonly, actor
        listed = [tool for tool in self._all() if not (readonly and tool.writes)]
        self.by_name = {tool.name: tool for tool in listed}

    def _all(self) -> list[Tool]:
        n = _count(5, "The most labels.")
        document = _schema(["text", "labels"], id=_ID, text=_TEXT, labels=_LABELS)
        found_labels = {"type": "array", "items": {"type": "string"}, "default": [], "description": "Labels to have."}
        many = {"type": "array", "items": document, "minItems": 1, "maxItems": 1000}
        labelled = {"type": "boolean", "default": False, "description": "Whether those with labels."}
        minutes = {"type": "number", "minimum": 1, "maximum": 10_080, "default": 30, "description": "How long."}
        ids = {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 1000}
        return [
            Tool(
                "suggest", "Suggest labels", "Suggest labels for a text, best first, with scores from 0 to 1.",
                _schema(["text"], text=_TEXT, n=n), self._suggest,
            ),
            Tool(
                "explain", "Explain suggestions",
                "Say why a text gets its labels: stored documents with their shares of the score, and words with how "
                "strongly they speak for the label (below 0: against it).",
                _schema(["text"], text=_TEXT, n=_count(3, "The most labels.")), self._explain,
            ),
            Tool(
                "search_labels", "Search labels",
                "Find labels by the beginning of a name or of a word in it; one typing mistake is forgiven. Use it "
                "before learn or relabel, so that no second label with nearly the same name comes into being.",
                _schema(["prefix"], prefix={"type": "string"}, n=_count(20, "The most labels.")), self._search,
            ),
            Tool(
                "search_documents", "Search documents",
                "Find stored documents by words, \"phrases in quotes\", beginnings (auto*) and words that must not "
                "occur (-draft), and by labels that they have; the most relevant first. Empty: the newest.",
                _schema(["query"], query={"type": "string"}, labels=found_labels, n=_count(10, "The most documents.")),
                self._search_documents,
            ),
            Tool(
                "read_document", "Read a document", "Show a stored document and its labels.",
                _schema(["id"], id=_ID), self._read,
            ),
            Tool(
                "learn", "Learn documents",
                "Store documents with their labels, all or none; the model has learnt them when the answer comes. A "
                "document with a known id replaces that document.",
                _schema(["documents"], documents=many), self._learn, writes=True,
            ),
            Tool(
                "relabel", "Relabel a document",
                "Replace all labels of a stored document; the model has learnt it when the answer comes. This is how a "
                "document of review is decided.",
                _schema(["id", "labels"], id=_ID, labels=_LABELS), self._relabel, writes=True,
            ),
            Tool(
                "review", "Documents to label next",
                "Lease the documents without labels from which the model would learn most, or those with labels that "
                "are most probably wrong. Decide each with relabel, also where its labels are right; give those back "
                "with release that you do not decide.",
                _schema([], n=_count(5, "The most documents."), minutes=minutes, labelled=labelled),
                self._review, writes=True,
            ),
            Tool(
                "release", "Give documents back", "Give documents of review back undecided, so that others get them.",
                _schema(["ids"], ids=ids), self._release, writes=True,
            ),
        ]  # fmt: skip

    def call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The answer of a tool that is among `by_name`; raises `RipmlError` with a sentence that says what is wrong."""
        tool = self.by_name[name]
        _check("arguments", arguments, tool.schema)
        if self._readonly:
            self._store.refresh()
        given = {key: one["default"] for key, one in tool.schema["properties"].items() if "default" in one}
        return tool.answer(**{**given, **arguments})

    # --------------------------------------------------------------------------------------------------------- answers

    def _labels(self, labels: Sequence[Suggestion]) -> list[dict[str, Any]]:
        names = self._store.model.names(label for label, _ in labels)
        return [
            {"label": label, "score": round(score, 4)} | ({"name": names[label]} if label in names else {})
            for label, score in labels
        ]

    def _suggest(self, text: str, n: int) -> dict[str, Any]:
        model = self._store.model
        return {"labels": self._labels(model.suggest([text], model.rules.but(n=n))[0])}

    def _explain(self, text: str, n: int) -> dict[str, Any]:
        model = self._store.model
        (found,) = model.explain([text], model.rules.but(n=n), 3, 8)
        return {
            "labels": [
                {
                    "label": why.label,
                    "score": round(why.score, 4),
                    "examples": [
                        {
                            "documents": self._store.example_documents(example, model, 3),
                            "labels": [str(label) for label in example.labels],
                            "share": round(example.share, 4),
                        }
                        for example in why.examples
                    ],
                    "words": [{"word": str(word), "pull": round(pull, 4)} for word, pull in why.features],
                }
                for why in found
            ]
        }

    def _search(self, prefix: str, n: int) -> dict[str, Any]:
        found = self._store.labels(prefix, n)
        names = self._store.model.names(label.name for label in found)
        return {
            "labels": [
                {"label": label.name, "documents": label.count, "retired": label.retired}
                | ({"name": names[label.name]} if label.name in names else {})
                for label in found
            ]
        }

    def _search_documents(self, query: str, labels: list[str], n: int) -> dict[str, Any]:
        found = self._store.search(query, labels=labels, n=n)
        return {
            "total": found.total,
            "documents": [
                {"id": one.id, "excerpt": one.excerpt, "labels": [*one.labels, *one.accepted]}
                | ({"rejected": one.rejected} if one.rejected else {})
                for one in found
            ],
        }

    def _read(self, id: str) -> dict[str, Any]:
        return self._store.document(id)

    def _learn(self, documents: list[dict[str, Any]]) -> dict[str, Any]:
        ids = self._store.learn(documents, actor=self._actor)
        return {"ids": ids, "version": self._store.version}

    def _relabel(self, id: str, labels: list[str]) -> dict[str, Any]:
        before = self._store.document(id)["labels"]
        self._store.relabel(id, labels, actor=self._actor)
        return {"id": id, "labels": labels, "before": before, "version": self._store.version}

    def _review(self, n: int, minutes: float, labelled: bool) -> dict[str, Any]:
        found = self._store.review(n, labelled=labelled, caller=self._actor, minutes=minutes)
        return {
            "documents": [
                {
                    "id": one.id,
                    "text": one.text,
                    "suggestions": self._labels(one.labels),
                    "probability": round(one.probability, 4),
                    "until": one.until,
                    "labels": one.carried,
                    "doubts": [
                        {"label": finding.label, "kind": finding.kind, "doubt": round(finding.doubt, 4)}
                        for finding in one.findings
                    ],
                }
                for one in found
            ]
        }

    def _release(self, ids: list[str]) -> dict[str, Any]:
        self._store.release(ids)
        return {"ids": ids}


def _check(what: str, value: Any, schema: Mapping[str, Any]) -> None:
    """Raise unless a value fits a schema, as far as the schemas of tools go.

    >>> _check("arguments", {"text": 5}, _schema(["text"], text=_TEXT))
    Traceback (most recent call last):
    ripml.base.errors.ParameterError: `text` must be a string; got 5.
    """
    kind = schema["type"]
    is_number = kind == "number" and isinstance(value, int)
    is_mistaken = isinstance(value, bool) and kind != "boolean"  # else True is a number
    if is_mistaken or not (isinstance(value, _TYPES[kind]) or is_number):
        article = "an" if kind[0] in "aio" else "a"
        raise ParameterError(f"`{what}` must be {article} {kind}; got {str(value)[:80]!r}.".replace("'", ""))
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and not low <= value <= high:
        raise ParameterError(f"`{what}` must be from {low} to {high}; got {value}.")
    if kind == "array":
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            raise ParameterError(f"`{what}` must have 1 to {schema['maxItems']} items; got {len(value)}.")
        for number, item in enumerate(value):
            _check(f"{what}[{number}]", item, schema["items"])
    if kind == "object":
        known = schema["properties"]
        for name in schema["required"]:
            if name not in value:
                raise ParameterError(f"`{name}` is missing in `{what}`.")
        for name, one in value.items():
            if name not in known:
                raise ParameterError(f"`{name}` is not one of {', '.join(known)}.")
            _check(name if what == "arguments" else f"{what}.{name}", one, known[name])
