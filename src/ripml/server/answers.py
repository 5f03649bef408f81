"""What answers look like, for the OpenAPI description; they are written as they are, and not checked once more."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict
from pydantic_core import to_json

__all__ = [
    "BatchSuggestions",
    "Card",
    "Explanations",
    "Forgotten",
    "History",
    "LabelList",
    "Learnt",
    "Refit",
    "Relabelled",
    "Removed",
    "StoreList",
    "StoredDocument",
    "Suggestions",
    "written",
]


def written(content: Any) -> bytes:
    """An answer in JSON.

    >>> written({"score": 0.5, "pull": float("inf")})
    b'{"score":0.5,"pull":null}'
    """
    return to_json(content, fallback=_plain, inf_nan_mode="null")


def _plain(value: Any) -> Any:
    """NumPy's values as Python's, and settings that are objects by their text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


class ScoredLabel(BaseModel):
    """A label and its score."""

    label: str
    score: float


class LabelScores(BaseModel):
    """The labels of a text, best first."""

    labels: list[ScoredLabel]


class Suggestions(LabelScores):
    """The labels of a text, by the model after change `version`."""

    version: int


class BatchSuggestions(BaseModel):
    """The labels of several texts, by one version of the model."""

    version: int
    results: list[LabelScores]


class Evidence(BaseModel):
    """A document that an example is, or that carries its labels, and how its text begins."""

    id: str
    text: str | None


class ExampleShare(BaseModel):
    """What a row or a label set adds to a score."""

    labels: list[str]
    share: float
    n_rows: int
    row: int | None
    how: str
    documents: list[Evidence]


class Span(BaseModel):
    """How far a piece of the text, in characters, pulls towards the label."""

    start: int
    end: int
    pull: float


class LabelExplanation(ScoredLabel):
    """Why a label has its score."""

    regression: float
    others: float
    value: float
    intercept: float
    examples: list[ExampleShare]
    features: list[tuple[str | int, float]]
    spans: list[Span]


class Explanations(BaseModel):
    """Why a text has its labels."""

    version: int
    labels: list[LabelExplanation]


class Learnt(BaseModel):
    """The ids of documents that are learnt, and on the disk."""

    version: int
    ids: list[str]


class Forgotten(Learnt):
    """The ids of documents that are forgotten."""


class Removed(BaseModel):
    """The document that is forgotten."""

    version: int
    id: str


class Relabelled(BaseModel):
    """The labels of a document, and those it had."""

    version: int
    id: str
    labels: list[str]
    before: list[str]


class StoredDocument(BaseModel):
    """A document of a store."""

    id: str
    text: str
    labels: list[str]


class LabelEntry(BaseModel):
    """A label, how many documents carry it, and whether it is suggested no more."""

    name: str
    count: int
    retired: bool


class LabelList(BaseModel):
    """Labels of a store."""

    labels: list[LabelEntry]


class StoreEntry(BaseModel):
    """A store in short."""

    name: str
    documents: int
    labels: int


class StoreList(BaseModel):
    """The stores, and what the caller may do with them."""

    stores: list[StoreEntry]
    role: Literal["read", "write"]


class Features(BaseModel):
    """What the model reads of a text."""

    kind: str
    count: int


class Limits(BaseModel):
    """What a request may hold."""

    text: int
    batch: int
    body: int


class Card(BaseModel):
    """A store and its model."""

    name: str
    version: int
    documents: int
    labels: int
    features: Features
    settings: dict[str, Any]
    chosen: dict[str, Any]
    left_out_precision: dict[str, float] | None
    warm: dict[str, Any]
    rules: dict[str, Any]
    limits: Limits


class Change(BaseModel):
    """An entry of a store's history, with what is still known of it."""

    model_config = ConfigDict(extra="allow")
    number: int
    time: str
    kind: str


class History(BaseModel):
    """The last changes of a store, newest first."""

    changes: list[Change]


class Refit(BaseModel):
    """How the last refit went."""

    status: Literal["idle", "running", "failed"]
    detail: str | None = None
    last: str | None = None
