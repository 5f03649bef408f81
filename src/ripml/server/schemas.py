"""The JSON bodies of requests and responses, from which the OpenAPI description is made.

Requests are strict: no unknown fields, no strings for numbers or the reverse, nothing infinite. The limits that are
settings (the lengths of texts and lists) are checked elsewhere and answered 413. A list is validated up to its first
error, and an object only if it has no more fields than its schema, so that a large wrong body costs little.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import unquote

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    FiniteFloat,
    StringConstraints,
    model_validator,
)
from pydantic_core import PydanticCustomError

from ripml.store.completion import LabelInfo

# -------------------------------------------------------------------------------------------------------- value types

_NO_NUL = r"^[^\x00]*$"
_NOT_BLANK = r"^[^\x00]*[^\x00\x1c-\x1f\x85\s][^\x00]*$"  # JSON Schema for "`str.strip` leaves something"
T = TypeVar("T")


def _check_not_blank(name: str) -> str:
    if not name.strip():
        raise PydanticCustomError("blank", "A label should be more than white space")
    return name


def _unquote(value: object) -> object:
    """Decode a path segment; paths are matched before they are decoded, so that an id may contain a slash."""
    try:
        return unquote(value, errors="strict") if isinstance(value, str) else value
    except UnicodeDecodeError:
        raise PydanticCustomError("not_utf8", "Input should be UTF-8, percent-encoded") from None


def _to_integer(value: object) -> object:
    """JSON has one type of number: 5.0 is an integer."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Name = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=1000, pattern=_NO_NUL)]
LabelName = Annotated[Name, AfterValidator(_check_not_blank), Field(json_schema_extra={"pattern": _NOT_BLANK})]
Items = Annotated[list[T], FailFast()]
NonEmptyItems = Annotated[list[T], Field(min_length=1), FailFast()]
StoreName = Annotated[str, BeforeValidator(_unquote), StringConstraints(min_length=1, max_length=100)]
DocumentId = Annotated[
    str, BeforeValidator(_unquote), StringConstraints(min_length=1, max_length=1000, pattern=_NO_NUL)
]
_INTEGER = BeforeValidator(_to_integer)  # must be last in an annotation, or the description loses the bounds
_COUNT = "The most labels to return; default: the model's rules."
_LARGEST = 2**53  # the largest integer that every program reads as it is written
MinCount = Annotated[
    int, Field(ge=0, le=_LARGEST, description="The fewest documents of a label; default: the model's rules."), _INTEGER
]
MaxCount = Annotated[
    Annotated[int, Field(ge=0, le=_LARGEST)] | None,
    Field(description="The most documents of a label, 0: labels without any; null: no limit; default: the rules."),
    _INTEGER,
]
_COVERAGE = "Sets that hold this share of the right labels on average; `n` and `threshold` do not apply."
_FAMILIARITY = "The share of training texts that are no more familiar; up to 0.01, the text is unlike anything known."
_PER_LABEL = "Whether `coverage` holds for each label with enough documents."
_THRESHOLD = "The lowest score to return; auto: the learnt threshold; null: none; default: the model's rules."


# ----------------------------------------------------------------------------------------------------------- requests


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _check_number_of_fields(cls, value: Any) -> Any:
        if isinstance(value, dict) and len(value) > len(cls.model_fields):
            known = ", ".join(cls.model_fields)
            raise PydanticCustomError("too_many_fields", "Input should have only the fields {known}", {"known": known})
        return value

    def given(self, *names: str) -> dict[str, Any]:
        """Those of the fields that the request has; the model's rules hold for the others."""
        return {name: getattr(self, name) for name in names if name in self.model_fields_set}


class _SuggestOptions(_Request):
    n: Annotated[int, Field(ge=1, le=1000, description=_COUNT), _INTEGER] = 5
    threshold: Annotated[FiniteFloat | Literal["auto"] | None, Field(description=_THRESHOLD)] = None
    min_count: MinCount = 0
    max_count: MaxCount = None
    coverage: Annotated[Annotated[FiniteFloat, Field(gt=0, lt=1)] | None, Field(description=_COVERAGE)] = None
    per_label: Annotated[bool, Field(description=_PER_LABEL)] = False


class SuggestRequest(_SuggestOptions):
    """A text to suggest labels for."""

    text: str


class BatchSuggestRequest(_SuggestOptions):
    """Texts to suggest labels for."""

    texts: NonEmptyItems[str]


class ExplainRequest(_Request):
    """A text whose labels are explained."""

    text: str
    n: Annotated[int, Field(ge=1, le=100, description=_COUNT), _INTEGER] = 5
    examples: Annotated[int, Field(ge=1, le=50, description="The most examples per label."), _INTEGER] = 5
    features: Annotated[int, Field(ge=1, le=200, description="The most words per label."), _INTEGER] = 10
    min_count: MinCount = 0
    max_count: MaxCount = None


class NewDocument(_Request):
    """A document to learn; it replaces a document with the same id."""

    id: Name | None = None
    text: str
    labels: Items[LabelName]


class LearnRequest(_Request):
    """Documents to learn, all or none."""

    documents: NonEmptyItems[NewDocument]


class ForgetRequest(_Request):
    """Documents to forget, all or none."""

    ids: NonEmptyItems[Name]
    certify: Annotated[bool, Field(description="Whether to return a certificate for each document.")] = False


class NewConcept(_Request):
    """What is known about a label: names and synonyms by language ("" if not known), and the ids of other concepts."""

    id: LabelName
    names: dict[Name | Literal[""], Name] = {}
    synonyms: dict[Name | Literal[""], Items[Name]] = {}
    broader: Items[Name] = []
    related: Items[Name] = []
    notation: Name | None = None
    types: Items[Name] = []
    schemes: Items[Name] = []


class VocabularyRequest(_Request):
    """Concepts of a vocabulary."""

    concepts: Items[NewConcept]


class NewLabel(_Request):
    """A label that no document carries yet, and what it is called: its name and other words for it."""

    name: LabelName
    words: Annotated[Items[LabelName], Field(description="What texts call it; the first is shown to people.")] = []
    language: Annotated[str, StringConstraints(strict=True, max_length=100, pattern=_NO_NUL)] = ""


class RenameRequest(_Request):
    """The new name of a label."""

    to: LabelName


class MergeRequest(_Request):
    """The label that documents get in place of another one."""

    into: LabelName


class UndoLabelsRequest(_Request):
    """The number of a change of labels."""

    change: Annotated[int, Field(ge=1, lt=2**62), _INTEGER]


class RelabelRequest(_Request):
    """The new labels of a document, in place of all that it has."""

    labels: Items[LabelName]


class ReviewRequest(_Request):
    """How many documents to review, and for how long nobody else gets them."""

    n: Annotated[int, Field(ge=1, le=1000, description="The most documents."), _INTEGER] = 10
    minutes: Annotated[FiniteFloat, Field(gt=0, le=10_080, description="How long nobody else gets them.")] = 30.0
    caller: Annotated[Name | None, Field(description="Who asks, where several people share a key.")] = None
    labelled: Annotated[bool, Field(description="Those with labels that the last audit found most doubtful.")] = False


class ReleaseRequest(_Request):
    """Documents to give back undecided."""

    ids: NonEmptyItems[Name]


class DecisionRequest(_Request):
    """Labels that are right and wrong for the document of an id, or for a text, which gets a new id if it has none."""

    id: Name | None = None
    text: str | None = None
    accepted: Items[LabelName] = []
    rejected: Items[LabelName] = []
    complete: Annotated[bool, Field(description="Whether the accepted labels are all that the document has.")] = False


class Doubt(_Request):
    """A label of a document that is wrong, or one that is missing."""

    kind: Literal["wrong", "missing"]
    document: DocumentId
    label: LabelName


class FindingsRequest(_Request):
    """Findings of an audit that are accepted, dismissed or taken back together."""

    findings: NonEmptyItems[Doubt]


# ---------------------------------------------------------------------------------------------------------- responses


class _Named(BaseModel):
    names: Annotated[
        dict[str, str] | None,
        Field(description="What people call the labels, by Accept-Language; only with a vocabulary."),
    ] = None


class ScoredLabel(BaseModel):
    """A label and its score."""

    label: str
    score: float


class LabelScores(BaseModel):
    """The labels of a text, best first."""

    labels: list[ScoredLabel]
    familiarity: Annotated[float | None, Field(description=_FAMILIARITY)] = None


class NearDocument(BaseModel):
    """A document that is similar to another one."""

    document: str
    similarity: float


class DoubtfulLabel(BaseModel):
    """A label of a document that is probably wrong or missing, and the similar documents with and without it."""

    kind: Literal["wrong", "missing"]
    document: str
    label: str
    doubt: float
    probability: float
    expected: float
    carriers: list[NearDocument]
    others: list[NearDocument]


class ReviewedDocument(LabelScores):
    """A document to review, with suggestions, and why it is worth labelling."""

    id: str
    text: str
    probability: Annotated[float, Field(description="That the first label is right, or that all it has are.")]
    gain: Annotated[float, Field(description="What is expected to be gained by its labels, or the mistakes in them.")]
    n_like: Annotated[int, Field(description="Documents without labels to which it would be the nearest with labels.")]
    until: Annotated[str, Field(description="When others may get it, in UTC.")]
    carried: Annotated[list[str], Field(description="The labels that the document has.")]
    findings: Annotated[list[DoubtfulLabel], Field(description="What is doubtful about them.")]


class ReviewBatch(_Named):
    """Documents to look at next, the most useful first."""

    documents: list[ReviewedDocument]


class Suggestions(_Named):
    """The labels of a text, best first, by the model after change `version`."""

    version: int
    labels: list[ScoredLabel]
    familiarity: Annotated[float | None, Field(description=_FAMILIARITY)] = None


class BatchSuggestions(_Named):
    """The labels of several texts, by one version of the model."""

    version: int
    results: list[LabelScores]


class ExampleDocument(BaseModel):
    """A document behind an example, and the beginning of its text."""

    id: str
    text: str | None


class ExampleShare(BaseModel):
    """The part of a score that comes from a training row or a label set."""

    labels: list[str]
    share: float
    n_rows: int
    row: int | None
    how: str
    documents: list[ExampleDocument]


class Span(BaseModel):
    """A piece of the text, in characters, and its pull towards the label."""

    start: int
    end: int
    pull: float


class LabelExplanation(ScoredLabel):
    """The parts of a label's score."""

    regression: float
    others: float
    value: float
    intercept: float
    named: float
    examples: list[ExampleShare]
    features: list[tuple[str | int, float]]
    spans: list[Span]


class Explanations(_Named):
    """The explained labels of a text."""

    version: int
    labels: list[LabelExplanation]


class ChangedDocuments(BaseModel):
    """The ids of the documents that were learnt or forgotten; the change is on the disk."""

    version: int
    ids: list[str]


class ForgettingCertificate(BaseModel):
    """That a store forgot a document; `ripml verify` reads it. The server does not keep it."""

    store: str
    change: int
    time: str
    key: str
    content: str
    digest: str
    chain: str


class ForgottenDocuments(ChangedDocuments):
    """The ids of the documents that were forgotten, and their certificates in the same order, if requested."""

    certificates: list[ForgettingCertificate]


class RemovedDocument(BaseModel):
    """The id of the document that was forgotten."""

    version: int
    id: str


class RelabelledDocument(BaseModel):
    """The labels of a document, and those that it had before."""

    version: int
    id: str
    labels: list[str]
    before: list[str]


class DecidedDocument(BaseModel):
    """The labels of a document if all are known, else those that were decided."""

    version: int
    id: str
    labels: list[str]
    accepted: list[str] = []
    rejected: list[str] = []


class StoredDocument(_Named):
    """A document of a store; `accepted` and `rejected` only where not all labels are known."""

    id: str
    text: str
    labels: list[str]
    accepted: list[str] = []
    rejected: list[str] = []


class LabelList(_Named):
    """Labels of a store; of an order, also how many there are in all and the place of the first one listed."""

    labels: list[LabelInfo]
    version: int = 0
    total: int = 0
    start: int = 0


class MergePreview(BaseModel):
    """What a merge would change: documents that carry the label, those of them that have the other one already, and
    documents with decisions on it."""

    label: str
    into: str
    documents: int
    both: int
    decided: int


class ChangedLabel(BaseModel):
    """A label after a change, and the number of that change, which `undo` takes."""

    version: int
    label: str
    change: int


class UndoneLabels(BaseModel):
    """How many documents have the labels again that they had before a change, and how many were changed since."""

    version: int
    documents: int
    changed_since: int


class Excerpt(BaseModel):
    """The beginning of a document."""

    id: str
    text: str


class VocabularySummary(BaseModel):
    """The size of a vocabulary, and the languages of its names, the most frequent first."""

    version: int
    concepts: int
    languages: list[str]


class ConceptDetail(_Named):
    """What the vocabulary says of a label; `names` has those of the other concepts in one language."""

    id: str
    name: str
    names_by_language: dict[str, str]
    synonyms: dict[str, list[str]]
    broader: list[str]
    narrower: list[str]
    related: list[str]
    notation: str | None
    types: list[str]
    schemes: list[str]
    path: Annotated[list[str], Field(description="The concepts above it, the broadest first.")]


class StoreSummary(BaseModel):
    """The name and size of a store."""

    name: str
    documents: int
    labels: int


class StoreList(BaseModel):
    """The stores, and the role of the caller."""

    stores: list[StoreSummary]
    role: Literal["read", "write"]


class Features(BaseModel):
    """The features that the model computes from a text."""

    kind: str
    count: int


class Limits(BaseModel):
    """The limits of a request: characters of a text, texts of a batch, bytes of a body."""

    text: int
    batch: int
    body: int


class ModelCard(BaseModel):
    """A store and its model."""

    name: str
    version: int
    documents: int
    labels: int
    features: Features
    settings: dict[str, Any]
    chosen: dict[str, Any]
    left_out_precision: dict[str, float] | None
    calibration_errors: dict[str, float] | None = None
    automation: dict[str, list[dict[str, float]]] | None = None
    warm: dict[str, Any]
    rules: dict[str, Any]
    vocabulary: dict[str, Any] | None = None
    limits: Limits


class Change(BaseModel):
    """An entry of a store's history; the other fields depend on its kind."""

    model_config = ConfigDict(extra="allow")
    number: int
    time: str
    kind: str


class NumberedDocument(BaseModel):
    """The id of a document, and the number that it got when it was added."""

    number: int
    id: str


class FoundDocument(NumberedDocument):
    """A document that was found, with a part of its text and where matches begin and end in it."""

    start: int = Field(description="Where the excerpt begins in the text.")
    excerpt: str
    marks: list[tuple[int, int]] = Field(description="Begin and end of each match in the excerpt, in code points.")
    characters: int = Field(description="Of the whole text.")
    labels: list[str]
    accepted: list[str] = Field(description="Where not all labels are known.")
    rejected: list[str]
    changed: str | None = Field(description="The time of its last change; null if it never changed.")
    relevance: float | None = Field(description="By BM25; null where documents come newest first.")


class FoundDocuments(_Named):
    """A page of documents that were found."""

    version: int
    documents: list[FoundDocument]
    total: int = Field(description="How many there are on all pages; at 10,000, there may be more.")
    next: str | None = Field(description="The `after` of the next page; null at the end.")


class DocumentList(BaseModel):
    """Documents of a store, in the order in which they were added."""

    documents: list[NumberedDocument]


class History(_Named):
    """The last changes of a store, newest first."""

    changes: list[Change]


class JobStatus(BaseModel):
    """Whether a job is running, why the last one failed, and when the last one succeeded."""

    status: Literal["idle", "running", "failed"]
    detail: str | None = None
    last: str | None = None


class TableJob(BaseModel):
    """A table that is tagged in the background, and how far that is."""

    id: str
    name: Annotated[str, Field(description="The name of the table.")]
    status: Literal["waiting", "running", "done", "failed"]
    rows: Annotated[int | None, Field(description="The rows that are done.")] = None
    without_labels: Annotated[int | None, Field(description="The rows without any label.")] = None
    version: Annotated[int | None, Field(description="The change whose model answered last.")] = None
    detail: Annotated[str | None, Field(description="Why it failed, or what else there is to know.")] = None
    created: str
    ended: str | None = None
    options: dict[str, Any]
    to: str
    actor: str | None = None


class TableJobs(BaseModel):
    """The jobs of a store, the newest first."""

    jobs: list[TableJob]


class TaggedRow(BaseModel):
    """A row of a table that is or was tagged; `number` counts from 0, and `text` is what was tagged."""

    number: int
    text: str
    cells: dict[str, Any]
    labels: list[ScoredLabel]


class TaggedRows(_Named):
    """Rows of a table that are tagged already, in their order, and how many of them there are."""

    rows: list[TaggedRow]
    done: int


class TableColumn(BaseModel):
    """A column of a table: the share of cells that are not empty, their mean length, and the first of them."""

    name: str
    filled: float
    characters: float
    example: str


class TableColumnsFound(BaseModel):
    """The columns of a table, those that hold the texts, and the number of rows that were looked at."""

    name: str
    columns: list[TableColumn]
    text: list[str]
    rows: int


class DocumentText(BaseModel):
    """The text of a document."""

    name: str
    text: str


class TableFinding(BaseModel):
    """One thing that looks wrong in a table."""

    name: str
    count: int
    message: str
    examples: list[str]
    remedy: str
    is_warning: bool


class TableReport(BaseModel):
    """What looks wrong in a table."""

    name: str
    rows: int
    labels: int
    labels_per_row: float
    findings: list[TableFinding]


class Finding(BaseModel):
    """The result of one check."""

    name: str
    ok: bool
    message: str


class CheckStatus(JobStatus):
    """The status of the check, and the results of the last one; `ok` is null if there is none."""

    ok: bool | None = None
    findings: list[Finding] = []


class Conflict(BaseModel):
    """Equal documents that carry different labels."""

    documents: list[str]
    labels: list[str]


class NearCopy(BaseModel):
    """Two documents of nearly the same text, and the labels that only the first carries, and only the second."""

    documents: tuple[str, str]
    similarity: float
    only: tuple[list[str], list[str]]


class AuditStatus(_Named, JobStatus):
    """The status of the audit, and what the last one found, the most doubtful first; `version` is null if none did.

    Where there were not `enough` documents to doubt labels by, the shares are null, and no label is doubted.
    """

    version: int | None = None
    enough: bool | None = None
    wrong_share: float | None = None
    missing_share: float | None = None
    wrong: list[DoubtfulLabel] = []
    missing: list[DoubtfulLabel] = []
    conflicts: list[Conflict] = []
    near_copies: list[NearCopy] = []


class QualityOfLabel(BaseModel):
    """How well one label is predicted, what it is confused with, and the documents with its worst scores."""

    label: str
    rows: int
    predicted: int
    precision: float | None
    recall: float
    expected: float
    confused_with: list[tuple[str, int]]
    missed: list[str]
    mistaken: list[str]


class LabelDetail(_Named):
    """What is known about one label; its quality is that of the last report, null where that does not have it."""

    name: str
    is_label: Annotated[bool, Field(description="False for a concept that is not a label of the model yet.")]
    count: int
    accepted: int
    rejected: int
    retired: bool
    declared: bool
    quality: QualityOfLabel | None
    examples: list[Excerpt]
    concept: ConceptDetail | None


class FrequencyBand(BaseModel):
    """All labels of about the same frequency together."""

    least: int
    most: int | None
    labels: int
    pairs: int
    precision: float | None
    recall: float
    calibration_error: float
    recall_with_twice: float


class RelatedLabels(BaseModel):
    """Two labels that may be one, or of which one says the other."""

    kind: Literal["same", "subsumed", "alike"]
    label: str
    other: str
    rows: int
    other_rows: int
    together: int


class LabelGroup(BaseModel):
    """One of two groups of documents of a label: its share, the words, labels and documents that are typical of it."""

    share: float
    words: list[str | int]
    labels: list[tuple[str, float]]
    examples: list[str]


class SplitLabel(BaseModel):
    """A label that may be two: how far two groups of its documents are apart, and that one group would show as much."""

    label: str
    rows: int
    separation: float
    agreement: float
    p: float
    groups: tuple[LabelGroup, LabelGroup]


class ReliabilityBin(BaseModel):
    """Candidates of about the same probability, and the share of them that is right."""

    probability: float
    right: float
    pairs: int


class AutomationCurve(BaseModel):
    """What is applied unseen at each threshold, falling: how much of it is right, and how much of all that is."""

    threshold: list[float]
    precision: list[float]
    least: Annotated[list[float], Field(description="What the precision is at least, with a confidence of 95 %.")]
    share: list[float]


class AutomationCurves(BaseModel):
    """Labels that are applied one by one, by their score, and all labels of documents, by their mean probability."""

    labels: AutomationCurve
    rows: AutomationCurve


class FitFigures(BaseModel):
    """What the rows that a fit left out showed, if they were enough; `automation` has shares at a precision of 0.95."""

    change: int
    time: str | None
    documents: int
    labels: int
    precision: dict[str, float]
    calibration_error: float | None
    automation: dict[str, float]


class FamiliarityOf(BaseModel):
    """The mean familiarity of documents, 0.5 without drift, and the share that is unlike anything known."""

    documents: int
    familiarity: float
    unfamiliar: float


class NewestFamiliarity(FamiliarityOf):
    """That of the newest documents since the fit, in all and by the month in which they came."""

    months: dict[str, FamiliarityOf]


class AcceptanceOf(BaseModel):
    """How many labels were decided, and the share of them that was accepted."""

    labels: int
    accepted: int
    rejected: int
    acceptance: float


class DecidedLabels(AcceptanceOf):
    """Decided labels in all, the newest ones, and by month."""

    newest: AcceptanceOf
    months: dict[str, AcceptanceOf]


class Drift(BaseModel):
    """Whether what arrives is like what the model was fitted on, and whether people agree; null where not known."""

    newest: NewestFamiliarity | None = None
    decided: DecidedLabels | None = None


class QualityOverview(BaseModel):
    """What is known of a model's quality without measuring it again; `enough`: whether it has rows enough for that."""

    version: int
    rows: int
    enough: bool
    automation: AutomationCurves | None
    fits: list[FitFigures]
    drift: Drift


class ReportStatus(_Named, JobStatus):
    """The status of the report, and the last one; `version` is null if there is none.

    The figures are null where there are too few documents to measure.
    """

    version: int | None = None
    rows: int | None = None
    copies: int | None = None
    precision: dict[str, float] | None = {}
    micro_precision: float | None = None
    micro_recall: float | None = None
    micro_f1: float | None = None
    macro_f1: float | None = None
    calibration_error: float | None = None
    recall_with_twice: float | None = None
    enough: bool | None = None
    bands: list[FrequencyBand] = []
    labels: list[QualityOfLabel] = []
    pairs: list[RelatedLabels] = []
    splits: list[SplitLabel] = []
    reliability: list[ReliabilityBin] = []
    automation: AutomationCurves | None = None
    fits: list[FitFigures] = []
    drift: Drift | None = None


class CurvePoint(BaseModel):
    """Figures of a model of so many documents on held-out ones, and their standard errors."""

    rows: int
    figures: dict[str, float]
    errors: dict[str, float]


class LearningCurveStatus(JobStatus):
    """The status of the learning curve, and the last one; `version` is null if there is none."""

    version: int | None = None
    held_out: int | None = None
    points: list[CurvePoint] = []
    twice: CurvePoint | None = None
    missed: dict[str, float] = {}


class Decided(BaseModel):
    """The version of the store after findings were accepted, dismissed or taken back."""

    version: int


class BackupInfo(BaseModel):
    """A backup in the server's folder of backups, and when it was made."""

    name: str
    time: str


class BackupStatus(JobStatus):
    """The status of the backup, and the backups of this store, newest first."""

    backups: list[BackupInfo]


class MapLabel(BaseModel):
    """A label that has a colour on the map."""

    label: str
    documents: int


class MapRegion(BaseModel):
    """The name of a part of the map."""

    label: str = Field(description="A label that many documents there carry, and few elsewhere.")
    x: float = Field(description="The middle of these documents, from 0 to 1.")
    y: float
    documents: int = Field(description="That carry it there.")
    cells: int = Field(description="The side of the map has so many parts of this size.")


class MapInfo(JobStatus, _Named):
    """The map of the documents, without its points."""

    progress: float = Field(0.0, description="The share of the computation that is done, while it is running.")
    map: str | None = Field(None, description="What identifies the map that `points` gives; null if there is none yet.")
    version: int | None = Field(None, description="The last change that the map has.")
    points: int = 0
    stale: bool = Field(False, description="Whether the map is being, or should be, computed again.")
    waiting: int = Field(0, description="Documents that are not on the map before it is computed again.")
    labels: list[MapLabel] = Field([], description="The most frequent labels, by the code of their points.")
    regions: list[MapRegion] = Field([], description="Large ones first.")


class MapDocument(BaseModel):
    """A point of the map."""

    point: int
    id: str
    text: str = Field(description="Its beginning.")
    labels: list[str]
    doubt: float | None = Field(
        None, description="From 0 to 1, how little the most similar documents speak for its labels; null if unknown."
    )


class MapDocuments(_Named):
    """Some points of the map."""

    documents: list[MapDocument]


class MapCarriers(BaseModel):
    """The points of the documents that carry a label."""

    label: str
    points: list[int]
