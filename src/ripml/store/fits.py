"""The figures of each fit of a store's model: how its quality went over versions.

They come from the rows that the fit left out, and stay with the model as long as it is in use, so that those of the
current fit are always known. Those of earlier ones are kept in the table `meta`, a few hundred bytes each, without
anything about a document. A store of an earlier version has the current fit alone: what was before is not known.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

from ripml.model.estimator import RIPML
from ripml.model.left_out import ENOUGH_ROWS

__all__ = ["read", "stored", "with_fit", "write"]

_KEY = "fits"
_MOST = 500  # that are kept; of more, the latest
_PRECISION = 0.95  # of what is applied unseen


def read(connection: sqlite3.Connection, model: RIPML) -> list[dict[str, Any]]:
    """The figures of each fit that is known, oldest first; `model` is the current one."""
    known = stored(connection)
    query = "SELECT number, time FROM changes WHERE kind IN ('refit', 'rebuild') ORDER BY number DESC LIMIT 1"
    change, time = connection.execute(query).fetchone() or (0, None)
    if not any(fit["change"] == change for fit in known):
        known.append(_figures(model, change, time))
    return known


def with_fit(known: Sequence[dict[str, Any]], model: RIPML, change: int) -> list[dict[str, Any]]:
    """With the figures of a model that was fitted just now, for the change of this number."""
    time = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return [*(fit for fit in known if fit["change"] != change), _figures(model, change, time)]


def write(connection: sqlite3.Connection, known: Sequence[dict[str, Any]]) -> None:
    """Keep these."""
    command = "INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)"
    connection.execute(command, (_KEY, json.dumps(known[-_MOST:])))


def stored(connection: sqlite3.Connection) -> list[dict[str, Any]]:
    """Those that were written: all that is known where the model is lost."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (_KEY,)).fetchone()
    return [] if row is None else list(json.loads(row[0]))


def _figures(model: RIPML, change: int, time: str | None) -> dict[str, Any]:
    """What the left-out rows of a fit showed, unless they were too few, and how large it was."""
    calibration, warm = model.model_.calibration, model.warm_
    enough = warm["rows_at_fit"] >= ENOUGH_ROWS
    curves = {} if calibration.guarantees is None else model.automation([_PRECISION])
    return {
        "change": change,
        "time": time,
        "documents": int(warm["rows_at_fit"]),
        "labels": int(warm["labels_at_fit"]),
        "precision": {name: round(float(value), 4) for name, value in calibration.precision.items() if enough},
        "calibration_error": round(float(calibration.error), 4) if enough else None,
        "automation": {name: round(found[0]["share"], 4) for name, found in curves.items() if found},
    }
