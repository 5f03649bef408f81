"""Model folders and stores as they were written when the record was made, and what they must still answer."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.cases import Arrays, feature_data, scores, stage, suggested, text_data, told
from golden.worlds import QUESTIONS, documents, world
from ripml import RIPML, Store, Tagger, baselines, load

__all__ = ["EXPECTED", "FOLDERS", "PLACE", "answers_of", "expected", "record_answers", "write_folders"]

PLACE = Path(__file__).with_name("folders")
EXPECTED = PLACE / "expected.npz"

_PAPER: dict[str, Any] = {"n_dims": 12, "n_neighbors": 3, "n_learners": 2}
_TEXT_PAPER: dict[str, Any] = {"n_dims": 8, "n_neighbors": 3, "n_learners": 1, "ridge": 1.0}

# The settings of each model, and the world that it was fitted on.
_MODELS: dict[str, tuple[Callable[..., Any], str, dict[str, Any]]] = {
    "paper": (RIPML.paper, "small-sparse", _PAPER),
    "default-rbf": (RIPML, "blended", {"relevance": 0.0}),
    "default-local": (RIPML, "blended", {"kernel": stage("Local", n_rows=40), "relevance": 0.0}),
    "linear-sums": (RIPML.linear, "blended", {"ensemble": "gaussian", "n_dims": 10, "relevance": 0.0}),
    "dual": (RIPML.linear, "wide-small", {}),
    "clusters": (RIPML.paper, "small", {**_PAPER, "n_clusters": 4, "n_probe": 3}),
    "ivf": (
        RIPML.paper,
        "many",
        {"n_dims": 4, "n_neighbors": 5, "n_learners": 1, "ridge": 1.0, "index": stage("IVF", storage="int8")},
    ),
    "int8": (RIPML, "small", {"kernel": "rbf", "index": stage("Exact", storage="int8")}),
    "baseline": (baselines.PLST, "small-sparse", {"n_dims": 6}),
}


def _write_model(name: str, path: Path) -> None:
    make, place, settings = _MODELS[name]
    data = world(place)
    make(**{"random_state": 0, "n_jobs": 1, **settings}).fit(data.X, data.names()).save(path)


def _ask_model(name: str, path: Path) -> Arrays:
    """Scores of a loaded model, and after it learnt a few rows."""
    data, model = world(_MODELS[name][1]), load(path)
    found = scores("scores", model.decision_function(data.queries))
    if not isinstance(model, RIPML):
        return found
    found |= scores("proba", model.predict_proba(data.queries)) | {"threshold": np.array(model.threshold_)}
    model.partial_fit(data.X_more[:7], data.names(data.Y_more[:7]))
    found |= scores("learnt", model.decision_function(data.queries))
    return found | scores("forgotten", model.forget(data.X[:2], data.names()[:2]).decision_function(data.queries))


def _write_tagger(path: Path) -> None:
    texts, tags = map(list, zip(*documents(30), strict=True))
    Tagger(model=RIPML.paper(random_state=0, n_jobs=1, **_TEXT_PAPER)).fit(texts, tags).save(path)


def _ask_tagger(path: Path) -> Arrays:
    tagger = load(path)
    found = suggested("suggested", tagger.suggest_many(QUESTIONS))
    texts, tags = map(list, zip(*documents(4, 70), strict=True))
    return found | suggested("learnt", tagger.learn(texts, tags).suggest_many(QUESTIONS))


def _write_store(path: Path) -> None:
    """A store of features that was closed well."""
    data = world("small")
    with Store.create(path, feature_data("small"), RIPML.paper(random_state=0, n_jobs=1, **_PAPER)) as store:
        labels = data.names(data.Y_more)
        store.learn([{"id": f"n{i}", "features": data.X_more[i].tolist(), "labels": labels[i]} for i in range(4)])
        store.forget(["d0", "d1"])
        store.relabel({"d4": ["late"], "d5": []})


def _write_store_with_journal(path: Path) -> None:
    """A store of texts that was not closed, as after a crash: its journal is ahead of its model."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "store"
        with Store.create(made, text_data(24), RIPML.paper(random_state=0, n_jobs=1, **_TEXT_PAPER)) as store:
            new = [{"id": f"n{i}", "text": text, "labels": tags} for i, (text, tags) in enumerate(documents(4, 70))]
            store.learn(new)
            store.forget(["d0", "d1"])
            store.relabel({"d4": ["late"], "d5": []})
            store.rename_label("money", "finance")
            store.merge_labels(["sport", "music"], "leisure")
            store.retire_label("weather")
            # Not by Python, whose closing of a file drops the locks of SQLite.
            subprocess.run(["cp", "-r", made, path], check=True)
    with closing(sqlite3.connect(path / "store.db")) as connection:  # one small file in place of three
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _ask_store(path: Path, asked: Any, form: str, body: Any) -> Arrays:
    """What a copy of the store says, and after one more document."""
    with tempfile.TemporaryDirectory() as folder:
        copied = Path(folder) / "store"
        shutil.copytree(path, copied)
        with Store.open(copied, readonly=True) as store:
            found = told("read", store, asked)
        with Store.open(copied) as store:
            found |= told("opened", store, asked)
            store.learn([{"id": "z", form: body, "labels": ["late", "last"]}])
            found |= told("learnt", store, asked)
        with Store.open(copied) as store:
            return found | told("again", store, asked)


FOLDERS: dict[str, tuple[Callable[[Path], None], Callable[[Path], Arrays]]] = {
    **{name: (partial(_write_model, name), partial(_ask_model, name)) for name in _MODELS},
    "tagger": (_write_tagger, _ask_tagger),
    "store": (
        _write_store,
        partial(_ask_store, asked=feature_data("small"), form="features", body=[0.25, 0.5, 1.0] * 4),
    ),
    "store-with-journal": (
        _write_store_with_journal,
        partial(_ask_store, asked=QUESTIONS, form="text", body="storm and frost in the harbour"),
    ),
}


def answers_of(name: str) -> Arrays:
    """What the folder of this name answers now."""
    return FOLDERS[name][1](PLACE / name)


def expected(name: str) -> dict[str, NDArray[Any]]:
    """What it answered when that was last recorded."""
    with np.load(EXPECTED) as file:
        return {key.partition("/")[2]: file[key] for key in file.files if key.partition("/")[0] == name}


def write_folders() -> None:
    """Write all folders anew, and what they answer."""
    if PLACE.exists():
        shutil.rmtree(PLACE)
    PLACE.mkdir()
    for name, (write, _) in FOLDERS.items():
        write(PLACE / name)
    record_answers()


def record_answers() -> None:
    """Record what the folders answer now; the folders themselves stay as they were written."""
    found = {f"{name}/{key}": array for name in FOLDERS for key, array in answers_of(name).items()}
    np.savez_compressed(EXPECTED, **found)  # type: ignore[arg-type]
