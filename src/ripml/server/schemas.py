"""What requests look like, from which the OpenAPI description is made.

They are strict: no field that is not known, no number for a string or the reverse, nothing infinite. Sizes that a
setting bounds (texts and how many of them) are checked where the settings are, and answered 413. What is wrong many
times is said once: a list is read up to its first mistake, and an object only if it has no more fields than there are.
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

__all__ = [
    "BatchQuestion",
    "DocumentId",
    "Ids",
    "Labels",
    "NewDocuments",
    "Question",
    "StoreName",
    "Why",
]

_NO_NUL = r"^[^\x00]*$"
Name = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=1000, pattern=_NO_NUL)]
T = TypeVar("T")
Listed = Annotated[list[T], FailFast()]
Some = Annotated[list[T], Field(min_length=1), FailFast()]


def _not_blank(name: str) -> str:
    if not name.strip():
        raise PydanticCustomError("blank", "A label should be more than white space")
    return name


# What `str.strip` takes for white space, as JSON Schema says it.
_NOT_BLANK = r"^[^\x00]*[^\x00\x1c-\x1f\x85\s][^\x00]*$"
LabelName = Annotated[Name, AfterValidator(_not_blank), Field(json_schema_extra={"pattern": _NOT_BLANK})]
Threshold = Annotated[
    FiniteFloat | Literal["auto"] | None,
    Field(
        description="Only labels of at least this score; auto: the one learnt; null: all. The model's own if absent."
    ),
]


def _unquoted(value: object) -> object:
    """A segment of a path, which is matched before it is decoded, so that an id may hold a slash."""
    try:
        return unquote(value, errors="strict") if isinstance(value, str) else value
    except UnicodeDecodeError:
        raise PydanticCustomError("not_utf8", "Input should be UTF-8, percent-encoded") from None


StoreName = Annotated[str, BeforeValidator(_unquoted), StringConstraints(min_length=1, max_length=100)]
DocumentId = Annotated[
    str, BeforeValidator(_unquoted), StringConstraints(min_length=1, max_length=1000, pattern=_NO_NUL)
]


def _whole(value: object) -> object:
    """JSON has one kind of number: 5.0 is an integer."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


_WHOLE = BeforeValidator(_whole)  # last in an annotation, or the description loses the bounds before it


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _few_fields(cls, value: Any) -> Any:
        if isinstance(value, dict) and len(value) > len(cls.model_fields):
            known = ", ".join(cls.model_fields)
            raise PydanticCustomError("too_many_fields", "Input should have no fields but {known}", {"known": known})
        return value


class _Asked(_Request):
    n: Annotated[
        int, Field(ge=1, le=1000, description="At most so many labels; the model's own if absent."), _WHOLE
    ] = 5
    threshold: Threshold = None

    @property
    def limits(self) -> dict[str, Any]:
        """What was said of `n` and `threshold`; the model's own rules hold for the rest."""
        return {name: getattr(self, name) for name in ("n", "threshold") if name in self.model_fields_set}


class Question(_Asked):
    """A text to be labelled."""

    text: str


class BatchQuestion(_Asked):
    """Texts to be labelled."""

    texts: Some[str]


class Why(_Request):
    """A text whose labels are to be explained."""

    text: str
    n: Annotated[int, Field(ge=1, le=100, description="At most so many labels; the model's own if absent."), _WHOLE] = 5
    examples: Annotated[int, Field(ge=1, le=50, description="Documents that speak for a label."), _WHOLE] = 5
    features: Annotated[int, Field(ge=1, le=200, description="Words that pull towards it, or away."), _WHOLE] = 10


class NewDocument(_Request):
    """A document to be learnt; one with the same id is replaced."""

    id: Name | None = None
    text: str
    labels: Listed[LabelName]


class NewDocuments(_Request):
    """Documents to be learnt, all or none."""

    documents: Some[NewDocument]


class Ids(_Request):
    """Documents to be forgotten, all or none."""

    ids: Some[Name]


class Labels(_Request):
    """All labels of a document from now on."""

    labels: Listed[LabelName]
