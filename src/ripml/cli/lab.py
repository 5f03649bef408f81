"""`ripml demo` and `ripml reproduce`: an example on data that everybody has, and the experiments of the paper."""

from __future__ import annotations

import time
from json import loads
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option, Typer

from ripml.cli import options, output

if TYPE_CHECKING:
    from ripml.datasets import Dataset

__all__ = ["app"]

app = Typer(rich_markup_mode=None)

_CUTS = (1, 3, 5)
_NEIGHBORS = 5  # of the nearest-neighbour baseline
_N_EXAMPLES = 6
# Well-known functions, which are shown if they are in the test rows; other test rows fill the list up.
_KNOWN = ("argmax", "nanstd", "eigh_tridiagonal", "elliprj", "lars_path", "irfftn", "fligner", "append", "yeojohnson")


@app.command(short_help="Train on docstrings and recommend functions.")
def demo(json: options.Json = False) -> None:
    """Learn which functions the documentation of NumPy, SciPy and scikit-learn links to, and recommend some.

    This is the paper's entity recommendation in miniature: a document is the docstring of a function without its "See
    Also" section, and its labels are the functions that this section links to. The data are built from the installed
    packages, without a download. Takes about half a minute.

    Example: ripml demo
    """
    from ripml import RIPML, datasets, metrics
    from ripml.cli.summaries import chosen_settings

    with output.working("reading docstrings"):
        train, test = datasets.load("numpydoc")
    start = time.perf_counter()
    with output.working("training"):
        model = RIPML(random_state=0).fit(train.X, train.Y, label_names=train.label_names)
    seconds = time.perf_counter() - start
    scores = {"RIPML": model.decision_function(test.X), **_baseline_scores(train, test)}
    # A function is a label, too, and is never linked from itself; no method may recommend it to itself.
    scores = {method: _without_own_label(matrix, test) for method, matrix in scores.items()}
    precision = {
        method: {f"P@{k}": metrics.precision_at_k(test.Y, matrix, k=k) for k in _CUTS}
        for method, matrix in scores.items()
    }
    examples, chosen = _examples(test, scores["RIPML"]), chosen_settings(model)
    if json:
        size = {"train": len(train), "test": len(test), "labels": train.Y.shape[1]}
        details = {"seconds": seconds, "chosen": chosen, "precision": precision, "examples": examples}
        output.print_json({**size, **details})
        return
    data = f"{len(train):,} functions, {train.X.shape[1]:,} words, {train.Y.shape[1]:,} labels"
    print(f"Trained on {data} in {seconds:.1f} s; {len(test):,} functions held out.")
    print(
        f"Chosen on held-out training rows: word weights relevance^{chosen['relevance']:.3g}, {model.kernel_}, "
        f"ridge {chosen['ridge'][0]:.3g}, {chosen['n_neighbors']} neighbours by label sets and {chosen['n_similar']} "
        "by words.\n"
    )
    rows = [[method, *(f"{100 * value:.1f}" for value in found.values())] for method, found in precision.items()]
    title = "Which functions does the documentation link to? (percent)"
    output.print_table(title, ["method", *(f"P@{k}" for k in _CUTS)], rows)
    print("Recommended for held-out functions, with probabilities (✓: the documentation links to it)\n")
    for example in examples:
        print(f"  {example['function']}")
        for name, score, linked in example["recommended"]:
            print(f"    {'✓' if linked else ' '} {score:4.2f}  {name}")


def _baseline_scores(train: Dataset, test: Dataset) -> dict[str, Any]:
    """Votes of the nearest training rows by cosine (tf-idf rows have length 1), and the frequency of each label."""
    import numpy as np
    from scipy.sparse import csr_array

    similarity = (test.X @ train.X.T).toarray()
    nearest = np.argsort(-similarity, axis=1, kind="stable")[:, :_NEIGHBORS]
    weights = np.zeros(similarity.shape)
    np.put_along_axis(weights, nearest, 1 / _NEIGHBORS, axis=1)
    frequency = np.tile(np.asarray(train.Y.mean(axis=0)).ravel(), (len(test), 1))
    return {"feature kNN (cosine)": csr_array(weights) @ train.Y, "popularity": csr_array(frequency)}


def _without_own_label(scores: Any, test: Dataset) -> Any:
    import numpy as np

    from ripml.decoding.scores import only

    column = {name: j for j, name in enumerate(test.label_names)}
    own = np.array([column.get(name, -1) for name in test.ids or []])
    return only(scores, scores.indices != np.repeat(own, np.diff(scores.indptr)))


def _examples(test: Dataset, scores: Any) -> list[dict[str, Any]]:
    from ripml import metrics

    ids = test.ids or []
    known = [i for word in _KNOWN for i, name in enumerate(ids) if name.rpartition(".")[2] == word]
    shown = list(dict.fromkeys([*known, *range(len(ids))]))[:_N_EXAMPLES]
    examples = []
    for i, labels in zip(shown, metrics.ranking(scores[shown], 5), strict=True):
        linked = set(test.Y[[i]].indices.tolist())
        row = scores[[i]].toarray().ravel()
        found = [(test.label_names[j], round(float(row[j]), 4), j in linked) for j in labels.tolist() if j >= 0]
        examples.append({"function": ids[i], "recommended": found})
    return examples


@app.command(short_help="Reproduce the experiments of the paper.")
def reproduce(
    experiment: Annotated[str, Argument(metavar="EXPERIMENT", help="A number or a name, all, or list.")],
    folder: Annotated[
        Path | None,
        Option(help="The folder of the results; a run in it continues. Default: reproduction or reproduction-quick."),
    ] = None,
    quick: Annotated[bool, Option("--quick", help="Run small versions, in minutes instead of hours.")] = False,
    seed: Annotated[int, Option(min=0, max=2**31 - 1, help="The seed for Phi, splits and generated rows.")] = 0,
    json: options.Json = False,
) -> None:
    """Reproduce the tables and figures of the paper, with our numbers beside the paper's, and judge its claims.

    Writes JSON, CSV, PNG and SVG for each experiment, and one report, report.html. An interrupted run continues where
    it stopped. Requires the data sets (RIPML_DATA) and the extras plot and text.

    Example: ripml reproduce all --quick
    """
    from ripml.lab.reproduce.experiment import Extent
    from ripml.lab.reproduce.laboratory import EXPERIMENTS, experiment_of, run
    from ripml.lab.reproduce.report import VERDICTS

    if experiment == "list":
        for one in EXPERIMENTS if json else ():
            output.print_json({"number": one.number, "word": one.word, "title": one.title})
        if not json:
            titles = {f"{one.number} {one.word}": one.title for one in EXPERIMENTS}
            output.print_facts("Experiments, by number or name:", titles)
        return
    folder = folder or Path("reproduction-quick" if quick else "reproduction")
    experiments = EXPERIMENTS if experiment == "all" else (experiment_of(experiment),)
    with output.step_bars() as progress:
        report = run(experiments, Extent(folder, quick, seed), progress)
    claims = []
    for one in experiments:
        result = loads((folder / f"{one.number}-{one.word}" / "result.json").read_text("utf-8"))
        claims += [{"experiment": one.word, **claim} for claim in result["claims"]]
    if json:
        output.print_json({"report": str(report), "claims": claims})
        return
    for claim in claims:
        print(f"{claim['experiment']}: {claim['text']}\n    {VERDICTS[claim['holds']]}: {claim['evidence']}")
    print(f"\nReport: {report}")
