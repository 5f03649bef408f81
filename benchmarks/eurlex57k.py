"""EURLEX57K, the official split: ripml and its rivals on the same texts, beside published neural networks.

    RIPML_DATA=folder python benchmarks/eurlex57k.py [--quick] [--json PATH [--resume]] [--plot PATH] [--seeds N]
        [--methods a,b] [--limit SECONDS]

45,000 texts to train on and 6,000 to test, 4,271 labels. ripml reads the raw texts with `Tagger()` as it is. Rivals get
what their users would make of the texts, scikit-learn's tf-idf of words (logarithmic counts, words of two documents or
more), and train with their defaults (`rivals.py`); making tf-idf counts as training, as it does for ripml. Every method
runs alone on all cores. Published on this split: Chalkidis et al. 2019, without the time
of training. --quick trains on 2,000 texts.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import numpy as np
from harness import has_data
from rivals import HERE, METHODS, Figures, Problem, outcome, run_method
from scipy.sparse import csr_array, csr_matrix, save_npz
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import MultiLabelBinarizer

from ripml import RIPML, Tagger, metrics

OURS: Final[Mapping[str, Callable[..., RIPML]]] = {"ripml": RIPML, "ripml linear": RIPML.linear}
RIVALS: Final = ("omikuji", "omikuji Bonsai", "PECOS XR-Linear", "napkinXC PLT")
PUBLISHED: Final = {"fine-tuned BERT-base": 79.6}  # RP@5
SHOWN: Final = ("P@1", "P@3", "P@5", "RP@5", "nDCG@5", "train s")

Part = tuple[list[str], list[list[str]]]  # texts, and the labels of each


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true", help="2,000 training texts")
    parser.add_argument("--json", type=Path, help="write the figures here, after every run")
    parser.add_argument("--resume", action="store_true", help="keep the runs that are already in --json")
    parser.add_argument("--plot", type=Path, help="write RP@5 against seconds of training here, as SVG")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds over which ripml is averaged")
    parser.add_argument("--methods", default=",".join((*OURS, *RIVALS)), help="some of the methods")
    parser.add_argument("--limit", type=float, default=1800, help="time limit of a rival in seconds")
    parser.add_argument("--environments", type=Path, default=HERE.parent / ".rivals", help="where rivals are installed")
    return parser.parse_args()


def split(n_train: int | None) -> tuple[Part, Part]:
    """The training and the test part."""
    parts: dict[str, Part] = {"train": ([], []), "dev": ([], []), "test": ([], [])}
    with gzip.open(Path(os.environ["RIPML_DATA"]) / "eurlex57k" / "docs.jsonl.gz", "rt", encoding="utf-8") as file:
        for document in map(json.loads, file):
            texts, labels = parts[document["split"]]
            texts.append(document["text"])
            labels.append(document["labels"])
    return (parts["train"][0][:n_train], parts["train"][1][:n_train]), parts["test"]


def indicators(train: Part, test: Part) -> tuple[list[str], csr_array, csr_array]:
    """The labels of both parts, and which text has which."""
    names = sorted({label for _, labels in (train, test) for row in labels for label in row})
    binarizer = MultiLabelBinarizer(classes=names, sparse_output=True)
    return names, *(csr_array(binarizer.fit_transform(labels), dtype=np.float32) for _, labels in (train, test))


def our_figures(preset: str, train: Part, test: Part, seeds: int) -> Figures:
    """Means over seeds of `Tagger` on the raw texts."""
    names, _, Y = indicators(train, test)
    columns = {name: column for column, name in enumerate(names)}
    runs = []
    for seed in range(seeds):
        start, cpu = time.perf_counter(), time.process_time()
        tagger = Tagger(model=OURS[preset](random_state=seed)).fit(*train)
        seconds, of_processors = time.perf_counter() - start, time.process_time() - cpu
        start = time.perf_counter()
        suggested = tagger.suggest_many(test[0], n=10, threshold=None)
        cells = [(row, columns[label], score) for row, best in enumerate(suggested) for label, score in best]
        rows, labels, scores = map(np.array, zip(*cells, strict=True))
        found = csr_array((scores, (rows.astype(int), labels.astype(int))), shape=Y.shape)
        per_text = 1000 * (time.perf_counter() - start) / len(test[0])
        quality = {name: 100 * value for name, value in quality_of(Y, found).items()}
        runs.append({**quality, "train s": seconds, "train CPU s": of_processors, "ms / text": per_text})
    return {key: float(np.mean([run[key] for run in runs])) for key in runs[0]}


def quality_of(Y: csr_array, scores: csr_array) -> Figures:
    figures = metrics.report(Y, scores)
    return {"RP@5": metrics.r_precision_at_k(Y, scores, 5)} | {name: figures[name] for name in SHOWN if name in figures}


def written(train: Part, test: Part, folder: Path) -> tuple[Problem, float]:
    """The files of the rivals' runners, and the seconds that tf-idf of the training texts takes."""
    _, Y, truth = indicators(train, test)
    start = time.perf_counter()
    vectorizer = TfidfVectorizer(sublinear_tf=True, min_df=2, dtype=np.float32)
    X = vectorizer.fit_transform(train[0])
    seconds = time.perf_counter() - start
    folder.mkdir()
    for part, matrix in (("train_X", X), ("train_Y", Y), ("test_X", vectorizer.transform(test[0]))):
        save_npz(folder / f"{part}.npz", csr_matrix(matrix), compressed=False)
    return Problem(folder, truth, metrics.propensities(Y)), seconds


def plot(runs: dict[str, Figures], path: Path) -> None:
    """RP@5 against seconds of training; published figures are lines, as their training time is not known."""
    import matplotlib as mpl

    mpl.use("Agg")
    grey = "#7d8388"  # can be read on white and on black
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "ripml", "font.family": "sans-serif"})
    mpl.rcParams.update(
        dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color", "axes.edgecolor"), grey)
    )
    from matplotlib import pyplot as plt

    figure, axis = plt.subplots(figsize=(8, 4.2), layout="constrained")
    for name, quality in PUBLISHED.items():
        axis.axhline(quality, color=grey, lw=1, ls=(0, (4, 3)))
        axis.annotate(
            f"{name}, published: {quality:.1f}",
            (0.995, quality),
            xycoords=("axes fraction", "data"),
            xytext=(0, 3),
            textcoords="offset points",
            ha="right",
            color=grey,
            fontsize=9,
        )
    for name, run in runs.items():
        if outcome(run):
            continue
        colour = "#0d9488" if name in OURS else grey
        axis.plot(run["train s"], run["RP@5"], "o", color=colour, ms=9 if name in OURS else 6)
        on_line = any(0 <= quality - run["RP@5"] < 0.2 for quality in PUBLISHED.values())
        axis.annotate(
            f"{name}  {run['RP@5']:.1f}",
            (run["train s"], run["RP@5"]),
            (8, -8 if on_line else 0),
            textcoords="offset points",
            va="center",
            color=colour,
            fontsize=10,
            weight="bold" if name in OURS else "normal",
        )
    axis.set(xscale="log", xlabel="seconds of training on two cores, without a GPU", ylabel="RP@5, %", xlim=(20, 300))
    axis.set_xticks([20, 50, 100, 200], ["20", "50", "100", "200"])
    axis.minorticks_off()
    axis.grid(alpha=0.2)
    axis.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, transparent=True, metadata={"Date": None})


def measure(waiting: list[str], runs: dict[str, Figures], arguments: argparse.Namespace) -> None:
    """Run these methods, one after the other, and keep the figures of each."""
    train, test = split(2000 if arguments.quick else None)
    with tempfile.TemporaryDirectory() as place:
        problem, seconds = written(train, test, Path(place) / "files")
        for name in waiting:
            load = os.getloadavg()[0]
            if name in OURS:
                runs[name] = our_figures(name, train, test, arguments.seeds)
            elif name in METHODS:
                runs[name] = run_method(name, problem, arguments)
                if not outcome(runs[name]):
                    runs[name]["train s"] += seconds
            runs[name]["load before"] = load
            print(
                name,
                *(f"{key} {runs[name][key]:.1f}" for key in SHOWN if key in runs[name]),
                outcome(runs[name]),
                flush=True,
            )
            if arguments.json is not None:
                arguments.json.parent.mkdir(parents=True, exist_ok=True)
                rows = {f"{method}, {key}": value for method, run in runs.items() for key, value in run.items()}
                arguments.json.write_text(json.dumps(rows, indent=2, ensure_ascii=False) + "\n")


def main() -> None:
    arguments = options()
    if not has_data():
        print("skipped: set RIPML_DATA to the folder with eurlex57k")
        return
    flat = json.loads(arguments.json.read_text()) if arguments.resume and arguments.json.exists() else {}
    runs: dict[str, Figures] = {}
    for key, value in flat.items():
        name, _, figure = key.partition(", ")
        runs.setdefault(name, {})[figure] = value
    waiting = [name for name in arguments.methods.split(",") if name not in runs]
    if waiting:
        measure(waiting, runs, arguments)
    if arguments.plot is not None:
        plot(runs, arguments.plot)


if __name__ == "__main__":
    main()
