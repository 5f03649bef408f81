"""What train, predict, evaluate and datasets do."""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ripml import baselines, blending, datasets, decoding, metrics
from ripml.baselines import BASELINES
from ripml.cli.opening import asked, is_file, is_store, opened
from ripml.cli.output import bar, facts, print_json, table, working
from ripml.datasets import Dataset
from ripml.decoders import Blend, Votes, resolve_decoder
from ripml.documents import DocumentModel
from ripml.ensembles import resolve_ensemble
from ripml.errors import DataError, ParameterError
from ripml.estimator import RIPML
from ripml.kernels import RBF, Local
from ripml.multilabel import Multilabel
from ripml.store import Store

__all__ = [
    "chosen",
    "megabytes",
    "model_summary",
    "printable",
    "readable",
    "run_datasets_get",
    "run_datasets_info",
    "run_datasets_list",
    "run_evaluate",
    "run_predict",
    "run_train",
    "statistics",
]

_ROWS_AT_A_TIME = 2048
_PRESETS: dict[str, Callable[..., RIPML]] = {"default": RIPML, "linear": RIPML.linear, "paper": RIPML.paper}


def run_train(
    data: str,
    folder: Path,
    format: str | None,
    method: str,
    settings: dict[str, Any],
    memory: str | None,
    dask: str | None,
    store: bool,
    as_json: bool,
) -> None:
    """Fit a model on a file or the training part of a named set, save it, and say what was chosen."""
    if store and not (method in _PRESETS and memory is None and dask is None):
        option = "--memory" if memory is not None else "--dask" if dask is not None else f"--method {method}"
        raise ParameterError(f"--store is for RIPML that learns in memory, to go on learning; leave out {option}.")
    model = _untrained(method, {name: _number_or_word(value) for name, value in settings.items()})
    model.check_settings()  # before the file is read
    if folder.exists() and not folder.is_dir():
        raise ParameterError(f"{folder}: the model goes into a folder, but this is a file.")
    if not store and is_store(folder):
        raise ParameterError(f"{folder}: this is a store with its documents; choose another folder for the model.")
    if memory is None and dask is None:
        with working("reading"):
            rows = DocumentModel.read_training(data, format) if is_file(data) else (datasets.load(data)[0], None)
        start = time.perf_counter()
        with working("training"):
            if store:
                with Store.create(folder, rows[0], model, first_feature=rows[1]) as created:
                    trained = created.model
            else:
                trained = DocumentModel.fit(*rows, model)
                trained.save(folder)
        name = rows[0].name or data
    else:
        start, name = time.perf_counter(), data
        with working("training"):
            trained = _trained_outside_memory(data, folder, format, model, memory, dask)
    summary = model_summary(trained)
    summary["seconds"] = round(time.perf_counter() - start, 2)
    summary["megabytes"] = megabytes(folder)
    if as_json:
        print_json(summary)
    else:
        where = "kept with its documents in" if store else "saved to"
        facts(f"Trained on {name}, {where} {folder}", readable(summary))


def _trained_outside_memory(
    data: str, folder: Path, format: str | None, model: Multilabel, memory: str | None, dask: str | None
) -> DocumentModel:
    """Fit from blocks of a file or on a Dask scheduler, in a folder beside the model's that is removed in the end."""
    option = "--memory" if dask is None else "--dask"
    if not isinstance(model, RIPML):
        raise ParameterError(f"{option} is for RIPML; leave it out for a method of the related work.")
    if memory is not None and dask is not None:
        raise ParameterError("--memory and --dask are two ways to train; give one of them.")
    if not is_file(data) or data == "-":
        raise ParameterError(f"{option} reads a file; got {data!r}.")
    folder = folder.resolve()
    work = folder.with_name(f"{folder.name}.work")
    ours = any((work / file).exists() for file in ("rows/journal.json", "work.npz", "Z.bin"))
    if work.exists() and not ours and any(work.iterdir()):
        raise ParameterError(f"{work}: the work is done in this folder, but it holds other files; move them.")
    if dask is not None:
        from ripml import distributed

        trained = distributed.train_files(model, data, format, dask, work)
    else:
        trained = DocumentModel.fit_blocks(data, format, model, work, _bytes(memory or ""))
    trained.save(folder)
    shutil.rmtree(work)
    return trained


def _bytes(size: str) -> int:
    """The bytes of a size like 500MB."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) *([KMGT]?)B?", size.strip().upper())
    if not match:
        raise ParameterError(f"--memory must be a size like 500MB or 4GB; got {size!r}.")
    return int(float(match[1]) * 10 ** {"": 0, "K": 3, "M": 6, "G": 9, "T": 12}[match[2]])


def _untrained(method: str, settings: dict[str, Any]) -> Multilabel:
    """A preset of RIPML or a baseline with these settings; one that it does not have is an error."""
    if method in _PRESETS:
        return _PRESETS[method](**settings)
    kind: type[Multilabel] = getattr(baselines, next(n for n, (_, word) in BASELINES.items() if word == method))
    known = kind().get_params()
    if unknown := [name for name in settings if name not in known]:
        there = [_option(name) for name in _OPTIONS if name in known]
        raise ParameterError(
            f"--method {method} has no {', '.join(map(_option, unknown))}; of the options for methods it has "
            f"{', '.join(there)}."
        )
    return kind(**settings)


_OPTIONS = ("n_dims", "n_neighbors", "n_learners", "n_clusters", "n_probe", "ridge", "random_state", "n_jobs")


def _option(setting: str) -> str:
    """The shell's word for a setting."""
    return {"random_state": "--seed"}.get(setting, f"--{setting.removeprefix('n_')}")


def _number_or_word(value: Any) -> Any:
    """The number that a word of the command line is, if it is one: `check_settings` knows which of them are right."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(value)
    return value


def model_summary(trained: DocumentModel) -> dict[str, Any]:
    """What a model is and what its training chose, as plain values."""
    model = trained.model
    facts = {
        "method": type(model).__name__,
        "rows": model.n_rows_,
        "rows_without_labels": model.n_unlabelled_,
        "words" if trained.tfidf is not None else "features": int(model.n_features_in_),
        "labels": len(model.classes_),
    }
    left_out = {name: round(value, 4) for name, value in model.left_out_precision_.items()}
    if isinstance(model, RIPML):
        return {**facts, **chosen(model), "left_out": left_out, "calibration_error": round(model.calibration_error_, 6)}
    settings = {name: value for name, value in model.get_params().items() if name not in ("n_jobs", "random_state")}
    return {**facts, **settings, **model.chosen_, "threshold": model.threshold_, "left_out": left_out}


def chosen(model: RIPML) -> dict[str, Any]:
    """The settings in use, given or chosen, as plain values; what the model's decoder does not read is left out."""
    first = model.solutions_[0]
    decoder = resolve_decoder(model.decoder)
    words = ("gaussian", "bernoulli", "sparse", "structured", "deterministic", "identity")
    facts: dict[str, Any] = {"kernel": model.kernel_.word}
    if isinstance(model.kernel_, (RBF, Local)):
        facts["gamma"] = model.kernel_.gamma
    if isinstance(model.kernel_, Local):
        facts |= {"nearby_ridge": model.kernel_.ridge, "nearby_rows": model.kernel_.n_rows}
    facts |= {
        "relevance": model.chosen_["relevance"],
        "ridge": [float(ridge) for ridge in model.ridge_],
        "ensemble": next((word for word in words if resolve_ensemble(word) == model.ensemble_), str(model.ensemble_)),
        "n_dims": model.n_dims_,
        "n_learners": model.n_learners,
        "clusters": len(model.parts_),
        "solver": first["solver"],
        "solver_reason": first["reason"],
        "converged": all(solution["converged"] for solution in model.solutions_),
        "decoder": decoder.word,
        "n_neighbors": model.chosen_["n_neighbors"],
    }
    if not isinstance(decoder, Votes):
        if facts["n_neighbors"]:
            facts["temperature"] = model.chosen_["temperature"]
        facts["n_similar"] = model.chosen_["n_similar"]
        if facts["n_similar"]:
            facts["similar_temperature"] = model.chosen_["similar_temperature"]
        if model.chosen_["epsilon"] is not None:
            facts["epsilon"] = model.chosen_["epsilon"]
        facts["n_candidates"] = model.chosen_["n_candidates"]
    if isinstance(decoder, Blend):
        facts["trees"] = 0 if model.trees_ is None else len(model.trees_.value)
    return {**facts, "threshold": float(model.threshold_)}


def readable(summary: dict[str, Any]) -> dict[str, str]:
    """A summary for people."""
    titles = {
        "gamma": "kernel's width (γ)",
        "relevance": "power of relevance",
        "n_dims": "dimensions (m)",
        "n_learners": "learners (F)",
        "n_neighbors": "neighbours (k)",
        "n_similar": "similar rows",
        "similar_temperature": "their temperature",
        "epsilon": "least squares (ε)",
        "n_candidates": "candidates a row",
        "left_out": "on rows left out",
    }
    return {titles.get(name, name.replace("_", " ")): _in_words(value) for name, value in summary.items()}


def _in_words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {100 * share:.1f} %" for key, share in value.items())
    if isinstance(value, list):
        return ", ".join(f"{number:.3g}" for number in value[:8]) + (" …" if len(value) > 8 else "")
    if isinstance(value, float):
        return f"{value:.3g}"
    return f"{value:,}" if type(value) is int else str(value)


def _score_blocks(trained: DocumentModel, data: Dataset) -> Iterator[Any]:
    X = trained.features(data)
    with bar("asking the model", X.shape[0]) as advance:
        for start in range(0, X.shape[0], _ROWS_AT_A_TIME):
            scores = trained.model.decision_function(X[start : start + _ROWS_AT_A_TIME])
            yield scores
            advance(scores.shape[0])


def run_predict(
    folder: Path,
    data: str,
    format: str | None,
    n: int,
    sets: bool,
    probabilities: bool,
    jobs: int | None,
    as_json: bool,
) -> None:
    """Print labels and scores, or calibrated probabilities, of each row; in the order of scores, which tie less."""
    if n < 1:
        raise ParameterError(f"--top must be an integer ≥ 1; got {n}.")
    trained, _ = opened(folder)
    model = trained.model
    if probabilities and not isinstance(model, RIPML):
        raise ParameterError(f"--probabilities are learnt by RIPML only; {folder} holds {type(model).__name__}.")
    model.set_params(n_jobs=jobs)
    rows = asked(trained, data, format)
    names = [str(name) for name in trained.model.classes_]
    number = silent = 0
    what = "probability" if probabilities else "score"
    for scores in _score_blocks(trained, rows):
        if sets:
            above = scores.multiply(decoding.keep_above(scores, trained.model.threshold_)).tocsr()
            best = decoding.top(above, above.shape[1])
        else:
            best = decoding.top(scores, n)
        if probabilities and isinstance(model, RIPML):
            best.data = blending.in_steps(best.data, model.steps_)
        silent += int((np.diff(scores.indptr) == 0).sum())
        for start, end in zip(best.indptr[:-1], best.indptr[1:], strict=True):
            pairs = [(names[j], float(v)) for j, v in zip(best.indices[start:end], best.data[start:end], strict=True)]
            if as_json:
                record = {"id": rows.ids[number]} if rows.ids else {}
                print_json({**record, "labels": [{"label": name, what: round(value, 6)} for name, value in pairs]})
            else:
                first = [rows.ids[number]] if rows.ids else []
                print("\t".join(map(printable, [*first, *(f for name, v in pairs for f in (name, f"{v:.4f}"))])))
            number += 1
    if silent:
        print(f"{silent:,} rows have no feature or word that the model knows, and so no labels", file=sys.stderr)


def run_evaluate(folder: Path, data: str, format: str | None, jobs: int | None, as_json: bool) -> None:
    """Print the metrics of the model on labelled rows."""
    from scipy.sparse import vstack

    trained, _ = opened(folder)
    model = trained.model
    model.set_params(n_jobs=jobs)
    rows = asked(trained, data, format)
    truth = trained.labels(rows)
    if not truth.nnz:
        raise DataError(f"{rows.name or data} has no labels to compare with.")
    scores = vstack(list(_score_blocks(trained, rows)), format="csr")
    sets = decoding.keep_above(scores, model.threshold_)
    for matrix in (scores, sets):
        matrix.resize(truth.shape)  # labels the model never saw can only be missed
    report = metrics.report(truth, scores, propensities=_propensities(model, truth.shape[1]))
    report["micro F1"] = metrics.micro_f1(truth, sets)
    report["macro F1"] = metrics.macro_f1(truth, sets)
    counted = int((np.diff(truth.indptr) > 0).sum())
    if as_json:
        print_json({"rows": counted, "rows_without_labels": len(rows) - counted, **report})
        return
    ranked = [name.removesuffix("@1") for name in report if name.endswith("@1")]
    lines = [[name, *(f"{100 * report[f'{name}@{k}']:.2f}" for k in (1, 3, 5))] for name in ranked]
    table(f"{rows.name or data}: {counted:,} rows with labels, in percent", ["metric", "@1", "@3", "@5"], lines)
    print(f"label sets above the threshold: micro F1 {100 * report['micro F1']:.2f}, "
          f"macro F1 {100 * report['macro F1']:.2f}")  # fmt: skip


def _propensities(model: Multilabel, n_labels: int) -> Any:
    """Of the labels learnt, and 1 for labels never seen; None where there are too few rows to tell."""
    known = model.propensities()
    return None if known is None else np.concatenate([known, np.ones(n_labels - len(known))])


def megabytes(folder: Path) -> float:
    """The size of a folder's files."""
    return round(sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6, 2)


def printable(text: str) -> str:
    """Text without what would break a line or a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def statistics(data: Dataset) -> dict[str, Any]:
    """Sizes and means of a data set, as in the paper's table."""
    n = max(len(data), 1)
    facts = {"rows": len(data), "labels": data.Y.shape[1], "labels_per_row": round(data.Y.nnz / n, 2)}
    facts["rows_without_labels"] = int((np.diff(data.Y.indptr) == 0).sum())
    if data.X is not None:
        facts |= {"features": data.X.shape[1], "features_per_row": round(data.X.nnz / n, 2)}
    if data.texts is not None:
        facts["characters_per_text"] = round(sum(map(len, data.texts)) / n, 1)
    return facts


def run_datasets_list(as_json: bool) -> None:
    """Print the names of the sets that are here and of the originals."""
    here, originals = datasets.available(), datasets.fetch.ORIGINALS
    if as_json:
        print_json({"here": here, "originals": {name: original.url for name, original in originals.items()}})
        return
    print(f"Here (ripml train NAME …): {', '.join(here)}\n")
    facts("Originals (ripml datasets get NAME):", {name: original.url for name, original in originals.items()})


def run_datasets_info(name: str, as_json: bool) -> None:
    """Print the statistics of the parts of a named set."""
    train, test = (statistics(part) for part in datasets.load(name))
    if as_json:
        print_json({"train": train, "test": test})
    else:
        lines = [[key.replace("_", " "), f"{train[key]:,}", f"{test[key]:,}"] for key in train]
        table(name, ["", "train", "test"], lines)


def run_datasets_get(name: str, folder: Path | None, sha256: str | None, url: str | None) -> None:
    """Fetch an original and print where it is."""
    with bar(f"fetching {name}", None, unit="bytes") as advance:
        seen = 0

        def progress(done: int, total: int | None) -> None:
            nonlocal seen
            advance(done - seen)
            seen = done

        path = datasets.fetch.get(name, folder, sha256=sha256, url=url, progress=progress)
    print(path)
