"""The map of a store's documents: computed once for a fit of the model, and kept in a file beside it.

The file is a cache. It has numbers and positions of documents and the coordinates of their features, but no text, id or
label. Documents that came since stand among those most similar to them, those that went are left out, and no other one
moves. When the model was fitted again, or too many documents came, the map is stale: it is shown until there is a new
one. `compact` removes the file, since words of forgotten documents have a part in it.
"""

from __future__ import annotations

import os
import sqlite3
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ripml.model.layout import Layout, Reduction
from ripml.store import journal
from ripml.store.database import PART, file_mode
from ripml.store.documents import Bodies
from ripml.store.journal import State
from ripml.tagging.documents import DocumentModel
from ripml.tagging.map import DocumentMap, doubt, map_features, regions

__all__ = ["FILE", "KeptMap", "StoredDocuments"]

Ints = NDArray[np.int64]

FILE = "map.npz"
_FORMAT = 1
_SHARE = 0.2  # of the documents that may come or go before the map is stale


@dataclass(frozen=True)
class StoredDocuments:
    """The documents of a store at one moment, by number, without their texts."""

    change: int
    fit: int  # the change that the model was last fitted after
    numbers: Ints
    ids: list[str]
    digests: NDArray[np.uint32]  # CRC-32 of what is stored: whether a text is still the same
    carried: Any  # CSR (n, L)
    label_names: list[str]
    came: dict[int, State]  # the rows of those that are not on the map yet, with their texts

    @classmethod
    def read(cls, connection: sqlite3.Connection, known: KeptMap | None = None) -> StoredDocuments:
        """All documents, in one transaction; the texts of those that a map does not have."""
        on_map = {} if known is None else dict(zip(known.numbers.tolist(), known.digests.tolist(), strict=True))
        numbers, ids, digests, came = list[int](), list[str](), list[int](), dict[int, State]()
        for number, id, body in connection.execute("SELECT number, id, body FROM documents ORDER BY number"):
            digest = zlib.crc32(body)
            if on_map.get(number) != digest:
                came[len(ids)] = State(bytes(body), ())
            numbers.append(number)
            ids.append(id)
            digests.append(digest)
        labels = journal.all_labels(connection)
        places = np.array(numbers, np.int64)
        pairs = np.array(
            connection.execute("SELECT document, label FROM document_labels").fetchall(), np.int64
        ).reshape(-1, 2)
        row = np.searchsorted(places, pairs[:, 0])
        column = np.searchsorted(np.array([label.number for label in labels], np.int64), pairs[:, 1])
        carried = csr_array((np.ones(len(pairs), np.float32), (row, column)), shape=(len(places), len(labels)))
        carried.sort_indices()
        names = [str(label.name) for label in labels]
        fit, change = journal.last_fit(connection), journal.last_change(connection)
        return cls(change, fit, places, ids, np.array(digests, np.uint32), carried, names, came)


@dataclass(frozen=True)
class KeptMap:
    """The layout of the documents that there were when it was made."""

    fit: int
    numbers: Ints
    digests: NDArray[np.uint32]
    layout: Layout

    @classmethod
    def make(
        cls,
        documents: StoredDocuments,
        model: DocumentModel,
        progress: Callable[[float], None] = lambda share: None,
    ) -> KeptMap:
        """Lay out all documents, which have their texts, by the features of a model."""
        X = _features(model, [*documents.came.values()])
        progress(0.1)
        layout = Layout.of(X, 0, model.model.n_jobs, lambda share: progress(0.1 + 0.9 * share))
        return cls(documents.fit, documents.numbers, documents.digests, layout)

    def current(self, documents: StoredDocuments, model: DocumentModel) -> DocumentMap:
        """The map of the documents as they are now; those that this map does not have come with their texts."""
        came = np.array([*documents.came], np.int64)
        shown = np.setdiff1d(np.arange(len(documents.ids)), came)
        layout = self.layout.kept(np.searchsorted(self.numbers, documents.numbers[shown]))
        fits, n_known, grid, near = documents.fit == self.fit, len(shown), layout.positions, layout.near
        if len(came) and fits:
            added, near_added = layout.place(_features(model, [*documents.came.values()]), model.model.n_jobs)
            width = max(near.shape[1], near_added.shape[1])
            near = np.concatenate([_padded(near, width), _padded(near_added, width)])
            shown, grid = np.concatenate([shown, came]), np.concatenate([grid, added])
        carried = documents.carried[shown]
        stale = not fits or len(came) + len(self.numbers) - n_known > _SHARE * len(self.numbers)
        return DocumentMap(
            documents.change,
            [documents.ids[row] for row in shown.tolist()],
            grid,
            carried,
            documents.label_names,
            doubt(near, carried),
            regions(grid, carried, documents.label_names),
            stale,
            len(documents.ids) - len(shown),
        )

    # ------------------------------------------------------------------------------------------------------- the file

    def save(self, folder: Path) -> None:
        """Write the file, which appears when it is complete; other programs than the writer only read it."""
        part = folder / f"{PART}map"
        with open(part, "wb") as file:
            np.savez(
                file, format=_FORMAT, fit=self.fit, numbers=self.numbers, digests=self.digests,
                basis=self.layout.reduction.basis,
                **{one.name: getattr(self.layout, one.name) for one in fields(Layout) if one.name != "reduction"},
            )  # fmt: skip
        part.chmod(file_mode(folder))
        os.replace(part, folder / FILE)

    @classmethod
    def load(cls, folder: Path) -> KeptMap | None:
        """The map in the file; None where there is none that can be read."""
        with suppress(OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error):
            with open(folder / FILE, "rb") as file, np.load(file, allow_pickle=False) as arrays:
                if int(arrays["format"]) != _FORMAT:
                    return None
                layout = Layout(Reduction(arrays["basis"]), arrays["embedded"], arrays["near"], arrays["positions"])
                found = cls(int(arrays["fit"]), arrays["numbers"], arrays["digests"], layout)
            n = len(found.numbers)
            if all(len(array) == n for array in (found.digests, layout.embedded, layout.near, layout.positions)):
                return found
        return None

    @staticmethod
    def remove(folder: Path) -> None:
        """Remove the file."""
        (folder / FILE).unlink(missing_ok=True)


def _features(model: DocumentModel, states: list[State]) -> Any:
    form = Bodies.of(model)
    return map_features(model, form.to_dataset(states), form.vectors(states))


def _padded(near: NDArray[np.int32], width: int) -> NDArray[np.int32]:
    return np.pad(near, ((0, 0), (0, width - near.shape[1])), constant_values=-1)
