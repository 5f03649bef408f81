"""ripml's presets against omikuji, napkinXC, PECOS, scikit-learn and fastText: same files, same cores, one run.

    RIPML_DATA=folder python benchmarks/rivals.py [--quick] [--json PATH [--resume]] [--markdown PATH] [--plot PATH]
        [--sets a,b] [--methods a,b] [--seeds N] [--limit SECONDS] [--environments PATH]

Every method runs alone, in a separate process, on all cores; rivals run in virtual environments that are created when
missing. All get the same training rows (those with a label) and the same features, every row scaled to length 1, as
most of them do or advise themselves; only fastText reads words (see `rivals/run_fasttext.py`). Settings are each
rival's defaults; `rivals/run_NAME.py` has the details, and `rivals/protocol.py` explains what is timed.

Figures: P, nDCG and PSP in percent (propensities of Jain et al. from the training labels, A = 0.55, B = 1.5); seconds
of training; µs per row over all test rows; ms for a single row (median of 50); the peak of resident memory, including
data and interpreter; the size of the saved model on disk. A run that exceeds the limit or is not possible is a row with
the reason. The complete benchmark takes hours.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from harness import Row, finish, has_data
from scipy.sparse import csr_array, csr_matrix, diags_array, load_npz, save_npz

from ripml import datasets, metrics

HERE = Path(__file__).resolve().parent
SETS = ("bibtex", "delicious", "eurlex", "wikispeedia", "zh_stock_news", "acl_authors")
NOT_POSSIBLE = 3  # a runner's exit code, as in rivals/protocol.py


@dataclass(frozen=True)
class Method:
    """Where a method runs: the script of its runner, and its environment (None: this one)."""

    runner: str
    environment: str | None = None
    quick: bool = True


OURS = ("default", "linear", "paper")
METHODS = {
    **{name: Method("ripml") for name in OURS},
    "omikuji": Method("omikuji", "omikuji"),
    "omikuji Bonsai": Method("omikuji", "omikuji"),
    "PECOS XR-Linear": Method("pecos", "pecos"),
    "napkinXC PLT": Method("napkinxc", "napkinxc"),
    "napkinXC BR": Method("napkinxc", "napkinxc", quick=False),
    "ridge": Method("sklearn"),
    "cosine kNN": Method("sklearn"),
    "fastText": Method("fasttext", "fasttext", quick=False),
    "fastText softmax": Method("fasttext", "fasttext", quick=False),
}
# Installed without dependencies: libpecos would fetch six gigabytes that XR-Linear does not use.
OLD, NEW = ("numpy==1.26.4", "scipy==1.13.1"), ("numpy==2.2.6", "scipy==1.15.3")
ENVIRONMENTS = {
    "omikuji": ("omikuji==0.5.2", "cffi==1.17.1", "pycparser==2.22", *NEW),
    "pecos": ("libpecos==1.2.8", "scikit-learn==1.6.1", "joblib==1.4.2", "threadpoolctl==3.5.0", *OLD),
    "napkinxc": ("napkinxc==0.7.2", *NEW),
    "fasttext": ("fasttext-wheel==0.9.2", *OLD),
}
QUALITY = ("P@1", "P@3", "P@5", "RP@5", "nDCG@5", "PSP@1", "PSP@3", "PSP@5")
COSTS = ("train s", "µs / row", "ms single row", "peak MB", "model MB")
OUTCOME = "outcome: "  # prefix of the name where a run has no figures, so that the JSON remains flat numbers

Figures = dict[str, float]


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true", help="Bibtex and the fast methods only")
    parser.add_argument("--json", type=Path, help="write the figures here, after every run")
    parser.add_argument("--resume", action="store_true", help="keep the runs that are already in --json")
    parser.add_argument("--markdown", type=Path, help="write the tables here")
    parser.add_argument("--plot", type=Path, help="write P@1 against seconds of training here, as PNG")
    parser.add_argument("--sets", help=f"some of {','.join(SETS)}")
    parser.add_argument("--methods", help=f"some of {','.join(METHODS)}")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds over which our presets are averaged")
    parser.add_argument("--limit", type=float, default=1800, help="time limit of a run in seconds")
    parser.add_argument("--environments", type=Path, default=HERE.parent / ".rivals", help="where rivals are installed")
    arguments = parser.parse_args()
    arguments.sets = chosen(parser, arguments.sets, SETS, SETS[:1] if arguments.quick else SETS)
    fast = [name for name, method in METHODS.items() if method.quick or not arguments.quick]
    arguments.methods = chosen(parser, arguments.methods, tuple(METHODS), fast)
    if arguments.resume and arguments.json is None:
        parser.error("--resume needs --json, the file to continue")
    return arguments


def chosen(
    parser: argparse.ArgumentParser, words: str | None, known: Sequence[str], otherwise: Sequence[str]
) -> Sequence[str]:
    if words is None:
        return otherwise
    names = [word.strip() for word in words.split(",")]
    for name in names:
        if name not in known:
            parser.error(f"{name!r} is not one of {', '.join(known)}")
    return names


# ------------------------------------------------------------------------------------------------------ environments


def interpreter(folder: Path, name: str) -> Path:
    """The Python of a rival's environment, which is created if it is missing or has other versions."""
    packages = ENVIRONMENTS[name]
    home = folder.resolve() / name
    python = home / ("Scripts" if os.name == "nt" else "bin") / "python"
    installed = home / "installed"
    if installed.exists() and installed.read_text().split() == list(packages):
        return python
    print(f"installing {', '.join(packages)}", flush=True)
    shutil.rmtree(home, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True, capture_output=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", *packages]
    subprocess.run(pip, check=True, capture_output=True, text=True)
    installed.write_text("\n".join(packages) + "\n")
    return python


# --------------------------------------------------------------------------------------------------------- one run


@dataclass(frozen=True)
class Problem:
    """A data set as files for the runners, and the truth that scores are compared with."""

    folder: Path
    truth: Any  # (n, L) CSR
    propensities: Any  # (L,)


def unit_rows(X: Any) -> Any:
    lengths = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
    scaled = csr_matrix(diags_array(1 / np.where(lengths > 0, lengths, 1)) @ X).astype(np.float32)
    scaled.sort_indices()
    return scaled


def written(name: str, folder: Path) -> Problem:
    """Write a data set for the runners: as csr_matrix, which every version of SciPy reads."""
    train, test = datasets.load(name)
    labelled = np.flatnonzero(np.diff(train.Y.indptr))
    Y = csr_matrix(train.Y[labelled])
    folder.mkdir()
    for part, matrix in (("train_X", unit_rows(train.X[labelled])), ("train_Y", Y), ("test_X", unit_rows(test.X))):
        save_npz(folder / f"{part}.npz", matrix, compressed=False)
    if train.texts is not None and test.texts is not None:
        texts = {"train": [train.texts[i] for i in labelled], "test": test.texts}
        (folder / "texts.json").write_text(json.dumps(texts))
    return Problem(folder, test.Y, metrics.propensities(csr_array(Y)))


def measured(name: str, problem: Problem, python: Path, limit: float, seed: int) -> Figures:
    """The figures of one run of a method, or its outcome."""
    with tempfile.TemporaryDirectory() as place:
        results = Path(place)
        script = HERE / "rivals" / f"run_{METHODS[name].runner}.py"
        command = [str(python), str(script), name, str(problem.folder), str(results), str(seed)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
        except subprocess.TimeoutExpired:
            return {f"{OUTCOME}did not finish in {limit:g} s": 1}
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
            return {f"{OUTCOME}{'' if done.returncode == NOT_POSSIBLE else 'failed, '}{reason}": 1}
        figures: Figures = json.loads((results / "figures.json").read_text())
        scores = csr_array(load_npz(results / "scores.npz"))
        quality = metrics.report(problem.truth, scores, propensities=problem.propensities)
        quality["RP@5"] = metrics.r_precision_at_k(problem.truth, scores, 5)
    return {**{key: 100 * quality[key] for key in QUALITY}, **figures}


def mean(runs: Sequence[Figures]) -> Figures:
    """The mean figures of several seeds, or the first outcome without figures."""
    for run in runs:
        if outcome(run):
            return run
    return {key: float(np.mean([run[key] for run in runs])) for key in runs[0]}


def outcome(figures: Mapping[str, float]) -> str:
    """Why a run has no figures; empty if it has."""
    return next((key.removeprefix(OUTCOME) for key in figures if key.startswith(OUTCOME)), "")


def run_method(name: str, problem: Problem, arguments: argparse.Namespace) -> Figures:
    environment = METHODS[name].environment
    try:
        python = Path(sys.executable) if environment is None else interpreter(arguments.environments, environment)
    except (subprocess.CalledProcessError, OSError) as reason:
        lines = str(getattr(reason, "stderr", None) or reason).strip().splitlines()
        print(f"{environment}: {lines[-1]}")
        return {f"{OUTCOME}could not be installed": 1}
    seeds = range(arguments.seeds if name in OURS else 1)
    return mean([measured(name, problem, python, arguments.limit, seed) for seed in seeds])


# ---------------------------------------------------------------------------------------------------------- report


def is_settled(figures: Mapping[str, float], limit: float) -> bool:
    """Whether a run need not be repeated: it has figures, or ran into at least this limit."""
    reason = outcome(figures)
    if reason.startswith("did not finish in "):
        return float(reason.split()[4]) >= limit
    return bool(figures) and not reason


def flat(runs: Mapping[tuple[str, str], Figures]) -> Figures:
    return {f"{data}, {name}, {key}": value for (data, name), run in runs.items() for key, value in run.items()}


def unflat(figures: Mapping[str, float]) -> dict[tuple[str, str], Figures]:
    """The runs in a file that `flat` wrote; the other rows of the file are ratios."""
    runs: dict[tuple[str, str], Figures] = {}
    for key, value in figures.items():
        data, name, figure = [*key.split(", ", maxsplit=2), "", ""][:3]
        if data in SETS and name in METHODS:
            runs.setdefault((data, name), {})[figure] = value
    return runs


def ratios(runs: Mapping[tuple[str, str], Figures]) -> list[Row]:
    """The project's targets, where both sides were measured."""
    rows: list[Row] = []

    def times(data: str, figure: str, what: str, rival: str, preset: str, bound: int) -> None:
        theirs, ours = runs.get((data, rival), {}).get(figure), runs.get((data, preset), {}).get(figure)
        if theirs is not None and ours is not None:
            rows.append((f"{data}, {what}: {rival} / {preset}", theirs / ours, f"≥ {bound}"))

    for data in ("eurlex", "delicious"):
        times(data, "train s", "training", "omikuji", "linear", 5)
        times(data, "train s", "training", "PECOS XR-Linear", "linear", 2)
        ours = runs.get((data, "linear"), {}).get("P@1")
        rivals = [runs.get((data, rival), {}).get("P@1") for rival in ("omikuji", "PECOS XR-Linear")]
        known = [value for value in rivals if value is not None]
        if ours is not None and len(known) == len(rivals):
            rows.append((f"{data}, P@1: linear − the better of omikuji and PECOS", ours - max(known), "≥ -0.3"))
        times(data, "train s", "training", "omikuji Bonsai", "default", 1)
    times("bibtex", "train s", "training", "PECOS XR-Linear", "linear", 1)
    times("eurlex", "µs / row", "batch prediction", "omikuji", "linear", 3)
    times("eurlex", "µs / row", "batch prediction", "omikuji", "default", 1)
    return rows


def shown(value: float) -> str:
    """A cost with about three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def cells(name: str, figures: Mapping[str, float]) -> list[str]:
    """A method's row: percent with one decimal, several cuts in one cell."""
    reason = outcome(figures)
    if reason:
        return [name, reason, *[""] * (2 + len(COSTS))]
    groups = (("P@1", "P@3", "P@5"), ("nDCG@5",), ("PSP@1", "PSP@3", "PSP@5"))
    quality = [" / ".join(f"{figures[key]:.1f}" for key in keys) for keys in groups]
    return [name, *quality, *(shown(figures[key]) for key in COSTS)]


def tables(runs: Mapping[tuple[str, str], Figures]) -> str:
    """A Markdown table for each data set, aligned so that it can be read as text."""
    head = ["method", "P@1 / 3 / 5", "nDCG@5", "PSP@1 / 3 / 5", *COSTS]
    parts = []
    for data in SETS:
        rows = [cells(name, runs[data, name]) for name in METHODS if (data, name) in runs]
        if rows:
            widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
            lines = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in [head, *rows]]
            lines.insert(1, ["-" * width for width in widths])
            parts.append("\n".join([f"### {data}", "", *(f"| {' | '.join(line)} |" for line in lines)]))
    return "\n\n".join(parts) + "\n"


def spread(heights: Sequence[float]) -> list[float]:
    """Falling heights in [0, 1], moved apart so that names fit: first down, then up from the lower edge."""
    gap = min(0.075, 1 / len(heights))
    places = list(heights)
    for i in range(1, len(places)):
        places[i] = min(places[i], places[i - 1] - gap)
    floor = 0.0
    for i in reversed(range(len(places))):
        places[i] = max(places[i], floor)
        floor = places[i] + gap
    return places


def plot(runs: Mapping[tuple[str, str], Figures], path: Path) -> None:
    """P@1 against seconds of training, one panel per data set; names are listed on the right in the order of P@1."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    found = {data: {n: run for (d, n), run in runs.items() if d == data and not outcome(run)} for data in SETS}
    found = {data: methods for data, methods in found.items() if methods}
    if not found:
        print("no plot: no run has figures")
        return
    wide = min(2, len(found))
    tall = -(-len(found) // wide)
    figure, axes = plt.subplots(tall, wide, figsize=(7.5 * wide, 4.2 * tall), squeeze=False, layout="constrained")
    for axis in axes.flat[len(found) :]:
        axis.set_visible(False)
    for axis, (data, methods) in zip(axes.flat, found.items(), strict=False):
        top = max(run["P@1"] for run in methods.values())
        low = max(min(run["P@1"] for run in methods.values()), top - 15)  # worse methods are drawn on the lower edge
        margin = max(0.07 * (top - low), 0.2)
        axis.set(title=data, xscale="log", xlabel="training, s", ylabel="P@1, %", ylim=(low - margin, top + margin))
        axis.grid(alpha=0.3)
        ordered = sorted(methods.items(), key=lambda item: -item[1]["P@1"])
        heights = spread([(max(run["P@1"], low) - low + margin) / (top - low + 2 * margin) for _, run in ordered])
        for (name, run), height in zip(ordered, heights, strict=True):
            place = (run["train s"], max(run["P@1"], low))
            colour = "tab:red" if name in OURS else "tab:blue"
            axis.plot(*place, "v" if run["P@1"] < low else "o", color=colour)
            axis.annotate(
                f"{name}  {run['P@1']:.1f}",
                place,
                (1.06, height),
                textcoords="axes fraction",
                color=colour,
                va="center",
                fontsize=9,
                arrowprops={"arrowstyle": "-", "color": colour, "alpha": 0.35, "lw": 0.7, "relpos": (0, 0.5)},
                annotation_clip=False,
            )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)


def write_json(runs: Mapping[tuple[str, str], Figures], path: Path | None) -> None:
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        figures = {**flat(runs), **{name: value for name, value, _ in ratios(runs)}}
        path.write_text(json.dumps(figures, indent=2, ensure_ascii=False) + "\n")


def main() -> None:
    arguments = options()
    if not has_data():
        print(f"skipped: set RIPML_DATA to the folder with {', '.join(SETS)}")
        return
    runs: dict[tuple[str, str], Figures] = {}
    if arguments.resume and arguments.json.exists():
        runs = unflat(json.loads(arguments.json.read_text()))
    for data in arguments.sets:
        waiting = [name for name in arguments.methods if not is_settled(runs.get((data, name), {}), arguments.limit)]
        with tempfile.TemporaryDirectory() as place:
            if not waiting or (problem := written(data, Path(place) / data)) is None:
                continue
            for name in waiting:
                runs[data, name] = run_method(name, problem, arguments)
                print(f"{data}, " + "  ".join(cell for cell in cells(name, runs[data, name]) if cell), flush=True)
                write_json(runs, arguments.json)
    print(f"\n{tables(runs)}")
    rows = ratios(runs)
    if rows:
        finish(rows, None)
    if arguments.markdown is not None:
        arguments.markdown.parent.mkdir(parents=True, exist_ok=True)
        arguments.markdown.write_text(tables(runs))
    if arguments.plot is not None:
        plot(runs, arguments.plot)


if __name__ == "__main__":
    main()
