"""The recipe of a store's model: everything but the documents that is needed to fit the model again.

It is kept in the database, beside the documents, so that a lost model folder loses no setting. The model folder has the
same values, but no other command reads them from there.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Container, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from ripml.base import registry
from ripml.base.errors import ParameterError, RipmlError, StoreError
from ripml.datasets import Dataset
from ripml.labels.concepts import Concepts
from ripml.model.estimator import RIPML
from ripml.model.fitting import most_features
from ripml.regression.solver import CLOSED_FORM_LIMIT
from ripml.store.documents import Bodies
from ripml.store.journal import Delta, Label, State, pack_key
from ripml.store.versions import Version, with_decisions
from ripml.tagging.documents import DocumentModel, reads_names, text_features
from ripml.tagging.rules import Rules
from ripml.text.views import TEXT_KINDS

__all__ = ["Recipe", "Refit", "fit_documents", "suggestable"]

_log = logging.getLogger("ripml")

_WORDS = 6000  # features of many texts: a change of one takes a twentieth of a second

Documents = Sequence[tuple[int, State]]


@dataclass(frozen=True)
class Recipe:
    """The settings of a model, the features that it is made from, and the rules for its suggestions.

    >>> recipe = Recipe(Bodies("text"), RIPML.paper(n_dims=8), text_features(), None, Rules())
    >>> Recipe.from_json(recipe.to_json()).settings.n_dims
    8
    """

    bodies: Bodies
    settings: RIPML
    features: Any  # what makes features of texts, or None; an encoder without the object that encodes
    first_feature: int | None
    rules: Rules
    concepts: Concepts | None = None  # the vocabulary

    @classmethod
    def of(cls, model: DocumentModel) -> Recipe:
        """The recipe that a model was fitted by."""
        assert isinstance(model.model, RIPML)
        features = model.text, model.first_feature
        return cls(Bodies.of(model), model.model.cloned(), *features, model.rules, model.concepts)

    def to_json(self) -> str:
        """As a JSON text, without the vocabulary, which has a place of its own in the database."""
        text = None
        if self.features is not None:
            text = {**self.features.recipe(), "kind": self.features.kind}
        values = {
            "bodies": asdict(self.bodies),
            "settings": self.settings.settings_to_json(),
            "text": text,
            "first_feature": self.first_feature,
            "rules": self.rules.to_json(),
        }
        return json.dumps(values, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Recipe:
        """The inverse of `to_json`."""
        try:
            values = json.loads(text)
            settings = RIPML(**{name: registry.from_json(value) for name, value in values["settings"].items()})
            settings.check_settings()
            features = values["text"]
            if features is not None:
                features = TEXT_KINDS[features.pop("kind")].from_recipe(features)
            rules = Rules.from_json(values["rules"])
            return cls(Bodies(**values["bodies"]), settings, features, values["first_feature"], rules)
        except (KeyError, TypeError, ValueError, AttributeError, RipmlError) as error:
            raise StoreError(f"the recipe of the model in the database is damaged ({error}).") from error

    @classmethod
    def read(cls, connection: sqlite3.Connection) -> Recipe | None:
        """The recipe in a database; None if it has none because an early ripml wrote it."""
        row = connection.execute("SELECT value FROM meta WHERE key = 'recipe'").fetchone()
        return None if row is None else cls.from_json(row[0])

    def write(self, connection: sqlite3.Connection) -> None:
        """Make this the recipe in a database."""
        connection.execute("INSERT OR REPLACE INTO meta (key, value) VALUES ('recipe', ?)", (self.to_json(),))

    @classmethod
    def guess(cls, connection: sqlite3.Connection) -> Recipe:
        """The default recipe for the documents in a database that has none."""
        bodies = [bytes(body) for (body,) in connection.execute("SELECT body FROM documents LIMIT 1000")]
        if all(map(_is_object, bodies)):
            form = Bodies("objects")
        elif all(map(_is_text, bodies)):
            form = Bodies("text")
        else:
            form = Bodies("lists", 1 + max(_last_column(bytes(b)) for (b,) in connection.execute(_ALL_BODIES)))
        return cls(form, RIPML(), text_features("tfidf") if form.form == "text" else None, None, Rules())

    def refit(self, change: int, documents: Documents, labels: Sequence[Label], encoder: Any = None) -> Refit:
        """The model that a new fit makes of all documents and labels as of a change."""
        features, settings = self.features, self.settings.cloned()
        if features is not None and encoder is not None:
            features = features.with_encoder(encoder)
        # Concepts that no document carries become labels behind the others.
        numbers = {str(label.name): label.number for label in labels}
        states = [state for _, state in documents]
        carried = {label for state in states for label in (*state.labels, *state.accepted, *state.rejected)}
        waiting = {
            name for name in suggestable(self.concepts, settings, self.bodies) if numbers.get(name) not in carried
        }
        fitted_labels = [label for label in labels if label.name not in waiting]
        data, known = self.bodies.to_dataset(states, fitted_labels), self.bodies.vectors(states)
        if known is not None and not _encodes(features, data.texts or [], known):
            known = None
        fitted, vectors = fit_documents(
            data, self.first_feature, settings, features, self.rules, self.concepts, known, numbers
        )
        for label in labels:
            if label.retired:
                settings.retire_label(label.name)
        rows = [number for number, state in documents if state.labels]
        version = Version.of(change, fitted, rows, [numbers[str(name)] for name in settings.classes_])
        new = {} if vectors is None or vectors is known else Bodies.of(fitted).pack(data, vectors)
        packed = [replace(state, body=body) for state, body in zip(states, new, strict=True)] if new else states
        version = with_decisions(version, packed, {label.number: label.name for label in labels})
        return Refit(version, dict(zip((number for number, _ in documents), new, strict=False)))


@dataclass(frozen=True)
class Refit:
    """A version that a new fit made, and the new bodies of documents, number ↦ body, if they have the fit's vectors."""

    version: Version
    bodies: dict[int, bytes]

    def advanced(self, delta: Delta) -> Refit:
        """After a delta, in which texts still have the vectors from before the fit."""
        if not self.bodies:
            return Refit(self.version.advanced(delta), {})
        form, text = Bodies.of(self.version.model), self.version.model.text
        assert text is not None
        edits, bodies = [], dict(self.bodies)
        for edit in delta.edits:
            before, after = edit.before, edit.after
            if after is not None and (before is None or after.body != before.body):
                states = [after]
                data = form.to_dataset(states)
                (bodies[edit.document],) = form.pack(data, text.encoded(data.texts or []))
            old = before and replace(before, body=self.bodies[edit.document])
            new = after and replace(after, body=bodies[edit.document])
            edits.append(replace(edit, before=old, after=new))
        return Refit(self.version.advanced(replace(delta, edits=edits)), bodies)

    def write(self, connection: sqlite3.Connection) -> None:
        """Update the keys of labels and the bodies of documents."""
        keys = zip(
            map(pack_key, self.version.estimator.vocabulary_.keys), self.version.labels.view.tolist(), strict=True
        )
        connection.executemany("UPDATE labels SET key = ? WHERE number = ?", keys)
        bodies = ((body, number) for number, body in self.bodies.items())
        connection.executemany("UPDATE documents SET body = ? WHERE number = ?", bodies)


def fit_documents(
    data: Dataset,
    first_feature: int | None,
    model: RIPML,
    features: Any,
    rules: Rules | None,
    concepts: Concepts | None = None,
    known: Any = None,
    unseen: Container[str] | None = None,
) -> tuple[DocumentModel, Any]:
    """The model of documents, which must be able to learn and forget exactly, and the vectors of an encoder, if any.

    Those vectors must be kept: they may depend on the other texts of a batch, or on chance. `known` are those that
    texts have already. `unseen` is as for `DocumentModel.fit`. Of many texts, the most frequent words are the features,
    as many as can be learnt and forgotten exactly.
    """
    text = text_features(features, model) if data.X is None and data.texts is not None else None
    most = most_features(model.stages(), int(np.count_nonzero(np.diff(data.Y.indptr))))
    if most is not None and text is not None and text.narrowed(most).recipe() != text.recipe():
        most = min(most, _WORDS)
        _log.info("the features are at most %s, so that texts are learnt and forgotten exactly", f"{most:,}")
        text = text.narrowed(most)
    if most is not None and data.X is not None and data.X.shape[1] > most:
        raise ParameterError(
            f"rows cannot be learnt or forgotten exactly where more than {CLOSED_FORM_LIMIT:,} of them have as many "
            f"features; got {len(data):,} rows with {data.X.shape[1]:,} features. Use n_clusters, or fewer features."
        )
    vectors = None if text is None else text.fit_encoders(data.texts or [], known)
    fitted = DocumentModel.fit(
        data, first_feature, model, features=text or "auto", rules=rules, always_named=True, concepts=concepts,
        unseen=unseen, vectors=vectors
    )  # fmt: skip
    model.model_.check_exact()
    return fitted, vectors


def suggestable(concepts: Concepts | None, model: RIPML, bodies: Bodies) -> list[str]:
    """The concepts that are suggested by their names, even if no document carries them."""
    if not concepts or bodies.form not in ("text", "encoded") or not reads_names(model):
        return []
    return [id for id, concept in concepts.items() if concept.texts()]


def _encodes(features: Any, texts: Sequence[str], vectors: Any) -> bool:
    """Whether the encoder gives the first text the vector that it has, so that all vectors can be used again."""
    if features.lacks_encoder or not len(texts):
        return True
    (found,) = features.encoded([texts[0]])
    return bool(np.linalg.norm(found - vectors[0]) <= _SAME_VECTOR * max(float(np.linalg.norm(vectors[0])), 1e-30))


_SAME_VECTOR = 1e-3  # relative difference of vectors up to which they are from the same encoder
_ALL_BODIES = "SELECT body FROM documents"


def _is_object(body: bytes) -> bool:
    try:
        value = json.loads(body)
    except ValueError:
        return False
    return isinstance(value, dict) and all(isinstance(x, (int, float)) for x in value.values())


def _is_text(body: bytes) -> bool:
    try:
        return "\0" not in body.decode()
    except UnicodeDecodeError:
        return False


def _last_column(body: bytes) -> int:
    n = len(body) // 8
    return int(np.frombuffer(body, "<i4", n).max(initial=-1))
