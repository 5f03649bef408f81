"""The recipe of a store's model: everything but the documents that is needed to fit the model again.

It is kept in the database, beside the documents, so that a lost model folder loses no setting. The model folder has the
same values, but no other command reads them from there.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Container, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from ripml.base import registry
from ripml.base.errors import RipmlError, StoreError
from ripml.datasets import Dataset
from ripml.labels.concepts import Concepts
from ripml.model.estimator import RIPML
from ripml.store.documents import Bodies
from ripml.store.journal import Delta, Label, State, pack_key
from ripml.store.versions import Version
from ripml.tagging.documents import TEXT_KINDS, DocumentModel, reads_names, text_features
from ripml.tagging.rules import Rules
from ripml.text import Encoder

__all__ = ["Recipe", "Refit", "fit_documents", "suggestable"]

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
        settings = self.settings.get_params(deep=False).items()
        text = None
        if self.features is not None:
            is_encoder = isinstance(self.features, Encoder)
            text = self.features.to_state()[0] if is_encoder else asdict(self.features)
            text["kind"] = self.features.kind
            text.pop("n_jobs", None)  # belongs to the machine, not to the model
        values = {
            "bodies": asdict(self.bodies),
            "settings": {name: registry.to_json(name, value) for name, value in settings},
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
                kind = features.pop("kind")
                features = Encoder.from_state(features, {}) if kind == "encoder" else TEXT_KINDS[kind](**features)
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
        return cls(form, RIPML(), text_features() if form.form == "text" else None, None, Rules())

    def refit(self, change: int, documents: Documents, labels: Sequence[Label], encoder: Any = None) -> Refit:
        """The model that a new fit makes of all documents and labels as of a change."""
        features, settings = "tfidf" if self.features is None else self.features, self.settings.cloned()
        if isinstance(features, Encoder):
            features = Encoder(features.encoder if encoder is None else encoder, features.n_dims, features.name)
        # Concepts that no document carries become labels behind the others.
        numbers = {str(label.name): label.number for label in labels}
        carried = {label for _, state in documents for label in state.labels}
        waiting = {
            name for name in suggestable(self.concepts, settings, self.bodies) if numbers.get(name) not in carried
        }
        fitted_labels = [label for label in labels if label.name not in waiting]
        data = self.bodies.to_dataset([state for _, state in documents], fitted_labels)
        fitted, vectors = fit_documents(
            data, self.first_feature, settings, features, self.rules, self.concepts, numbers
        )
        for label in labels:
            if label.retired:
                settings.retire_label(label.name)
        rows = [number for number, state in documents if state.labels]
        version = Version.of(change, fitted, rows, [numbers[str(name)] for name in settings.classes_])
        new = {} if vectors is None else Bodies.of(fitted).pack(data, vectors)
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
                (bodies[edit.document],) = form.pack(data, text.transform(data.texts or []))
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
    unseen: Container[str] | None = None,
) -> tuple[DocumentModel, Any]:
    """The model of documents, which must be able to learn and forget exactly, and the vectors of an encoder, if any.

    Those vectors must be kept: they may depend on the other texts of a batch, or on chance. `unseen` is as for
    `DocumentModel.fit`.
    """
    text = text_features(features) if data.X is None else None
    vectors = None
    if isinstance(text, Encoder) and data.texts is not None:
        vectors = text.fit_transform(data.texts)
        data = replace(data, X=vectors)
    fitted = DocumentModel.fit(
        data, first_feature, model, features=features, rules=rules, always_named=True, concepts=concepts, unseen=unseen
    )
    model.model_.check_exact()
    return fitted if vectors is None else replace(fitted, text=text, feature_names=None), vectors


def suggestable(concepts: Concepts | None, model: RIPML, bodies: Bodies) -> list[str]:
    """The concepts that are suggested by their names, even if no document carries them."""
    if not concepts or bodies.form != "text" or not reads_names(model):
        return []
    return [id for id, concept in concepts.items() if concept.texts()]


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
