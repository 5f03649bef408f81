"""Experiments 2 to 5: P@1/3/5 against the dimensions m and the neighbours k.

Experiments 2 (m) and 3 (k) use Bibtex, Delicious and EUR-Lex; 4 (m) and 5 (k) use Chinese finance news as doc2vec
vectors of d dimensions, over random splits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ripml import RIPML
from ripml.lab.reproduce import data
from ripml.lab.reproduce.data import LABELS, SETS
from ripml.lab.reproduce.experiment import CUTS, Claim, Experiment, Extent, Measurement, Row, Rows, Table
from ripml.lab.reproduce.figures import line, panels
from ripml.lab.reproduce.methods import COMPARED, Chosen, Split, measure, measure_method, ridge_by_rule

_KS = (1, 2, 3, 5, 10, 15, 20, 30, 50)
_TICKERS = 230  # labels of the Chinese news


def against_dims(rows: Rows, column: str, methods: Sequence[str]) -> Any:
    """A figure of P@1/3/5 against m: a column of panels for each value of `column`, a line for each method."""
    lines: dict[tuple[str, str], dict[str, Any]] = {}
    for k in CUTS:
        for value in rows.values(column):
            points = {method: rows.where(**{column: value, "method": method}) for method in methods}
            lines[f"P@{k}", str(value)] = {name: line(some, "m", f"P@{k}") for name, some in points.items() if some}
    return panels(lines, "m")


def against_neighbors(rows: Rows, column: str) -> Any:
    """A figure of P@1/3/5 against k: a panel for each value of `column`."""
    lines = {
        ("precision (%)", str(value)): {
            f"P@{cut}": line(rows.where(**{column: value}), "k", f"P@{cut}", with_spread=False) for cut in CUTS
        }
        for value in rows.values(column)
    }
    return panels(lines, "k")


def best(rows: Rows, method: str, name: str = "P@1") -> float:
    """The best mean of a method over the grid of m."""
    points = rows.where(method=method)
    return max(points.where(m=m).mean(name) for m in {row["m"] for row in points})


def _dims_table(rows: Rows, title: str) -> Table:
    lines = [
        [m, *(rows.where(m=m, method=method).precisions() for method in COMPARED)]
        for m in sorted({row["m"] for row in rows})
    ]
    return Table(title, ["m", *COMPARED], lines)


def _neighbors_table(rows: Rows, column: str, title: str) -> Table:
    values = rows.values(column)
    lines = [[k, *(rows.where(**{column: value, "k": k}).precisions() for value in values)] for k in _KS]
    return Table(title, ["k", *map(str, values)], lines)


def _measure_neighbors(rows: Split, seed: int, **facts: Any) -> list[Row]:
    """RIPML at m = 100 with every k: one fit is enough, as k only matters when votes are counted."""
    model = RIPML.paper(n_dims=100, n_neighbors=5, random_state=seed)
    ridge = ridge_by_rule(model, rows, seed)
    model.set_params(ridge=ridge).fit(rows.X, rows.Y)
    return [{**facts, "k": k, "ridge": ridge, **measure(model.set_params(n_neighbors=k), rows, fit=False)} for k in _KS]


# ------------------------------------------------------------------------------------------- 2: against m, named sets


def _plan_dims(extent: Extent) -> list[Measurement]:
    chosen: Chosen = {}
    return [
        Measurement(f"{name}-{method}-{m}", partial(_measure_dims, extent, shown, method, m, chosen))
        for shown, name in SETS.items()
        for m in data.dims_grid(LABELS[shown], extent.quick)
        for method in COMPARED
    ]


def _measure_dims(extent: Extent, shown: str, method: str, m: int, chosen: Chosen) -> list[Row]:
    split = data.named(extent, SETS[shown])
    return [measure_method(method, m, split, extent.seed, chosen, min(m, 100), set=shown)]


def _dims_tables(rows: Rows) -> list[Table]:
    tables = [_dims_table(rows.where(set=shown), f"{shown}: P@1 / 3 / 5 by m") for shown in SETS]
    ridges = [
        [shown, m, *(f"{rows.where(set=shown, m=m, method=method).mean('ridge'):g}" for method in COMPARED)]
        for shown in SETS
        for m in sorted({row["m"] for row in rows.where(set=shown)})
    ]
    return [*tables, Table("Regularisation chosen on training rows", ["set", "m", *COMPARED], ridges)]


def _dims_claims(rows: Rows) -> list[Claim]:
    sets = {shown: rows.where(set=shown) for shown in SETS}
    rivals = [method for method in COMPARED if method != "RIPML"]

    def at(shown: str, m: int | None) -> Rows:
        return sets[shown] if m is None else sets[shown].where(m=m)

    def figures(shown: str, m: int | None = None) -> str:
        cells = (
            f"{name} " + " / ".join(f"{best(at(shown, m), name, f'P@{k}'):.1f}" for k in CUTS) for name in COMPARED
        )
        return f"{shown}: " + ", ".join(cells)

    def leads(shown: str, m: int | None = None) -> bool:
        points = at(shown, m)
        return all(best(points, "RIPML", f"P@{k}") > best(points, other, f"P@{k}") for other in rivals for k in CUTS)

    def gain(shown: str, method: str) -> float:
        """P@1 from the smallest m to the best."""
        points = sets[shown].where(method=method)
        return best(points, method) - points.where(m=min(row["m"] for row in points)).mean("P@1")

    above_100 = {s: best(rows, "RIPML") - rows.where(method="RIPML", m=100).mean("P@1") for s, rows in sets.items()}
    return [
        *(
            Claim(
                f"RIPML outperforms the baselines on {shown} (criterion: best m, all of P@1/3/5).",
                leads(shown),
                f"P@1 / 3 / 5 at the best m: {figures(shown)}",
            )
            for shown in ("Bibtex", "EUR-Lex")
        ),
        Claim(
            "On Delicious RIPML performs worse than CPLST (criterion: P@1 at the best m).",
            best(sets["Delicious"], "RIPML") < best(sets["Delicious"], "CPLST"),
            f"P@1 / 3 / 5 at the best m: {figures('Delicious')}",
        ),
        *(
            Claim(
                f"RIPML remains stable with varying m, while the others start lower and improve with m: on {shown} "
                "(criterion: RIPML's P@1 gains less from the smallest to the best m than that of any other method).",
                gain(shown, "RIPML") < min(gain(shown, other) for other in rivals),
                "gain in P@1: " + ", ".join(f"{method} {gain(shown, method):.1f}" for method in COMPARED),
            )
            for shown in SETS
        ),
        *(
            Claim(
                f"For small m RIPML performs better than the others: on {shown} (criterion: m = 50 and 100, all of "
                "P@1/3/5).",
                leads(shown, 50) and leads(shown, 100),
                "P@1 / 3 / 5: " + "; ".join(f"m = {m}, {figures(shown, m)}" for m in (50, 100)),
            )
            for shown in ("Bibtex", "EUR-Lex")
        ),
        Claim(
            "Increasing m above a threshold brings RIPML only marginal improvement (criterion: from m = 100 to the "
            "best m less than 2 points of P@1 on every set).",
            all(points < 2 for points in above_100.values()),
            ", ".join(f"{shown} {points:+.1f}" for shown, points in above_100.items()),
        ),
    ]


DIMENSIONS = Experiment(
    number=2,
    word="dimensions",
    title="Precision against the dimensions of the embedding",
    protocol="m is 50, 100, 20 %, 40 % and 80 % of L (quick: 50, 100 and 40 %; for EUR-Lex 4,000 training rows and the "
    "1,000 most frequent labels); k = 5 and F = 5 for RIPML. All methods get the same feature rows, scaled to length "
    "1. Each method's regularisation is chosen on a fifth of the training rows (at most 2,000), by the same search "
    "over half powers of ten; above m = 100 the value chosen at m = 100 is used. One seed. EUR-Lex is the stand-in of "
    "experiment 1. The paper's figure is a picture whose numbers are not in the source, so its claims in words are "
    "compared.",
    plan=_plan_dims,
    draw=lambda rows: {"P@1, P@3 and P@5 against m, k = 5": against_dims(rows, "set", COMPARED)},
    tables=_dims_tables,
    claims=_dims_claims,
    sets=tuple(SETS.values()),
)


# ------------------------------------------------------------------------------------------- 3: against k, named sets


def _plan_neighbors(extent: Extent) -> list[Measurement]:
    def make(shown: str) -> list[Row]:
        return _measure_neighbors(data.named(extent, SETS[shown]), extent.seed, set=shown)

    return [Measurement(name, partial(make, shown)) for shown, name in SETS.items()]


def _neighbors_claims(rows: Rows) -> list[Claim]:
    def first(shown: str, k: int) -> float:
        return rows.where(set=shown, k=k).mean("P@1")

    ranges = {}
    for shown in SETS:
        values = [first(shown, k) for k in _KS if k >= 3]
        ranges[shown] = max(values) - min(values)
    peak = max(_KS, key=lambda k: first("EUR-Lex", k))
    at_5, at_50 = first("EUR-Lex", 5), first("EUR-Lex", 50)
    return [
        Claim(
            "Bibtex and Delicious are quite stable with the choice of k (criterion: P@1 moves by less than 4 points "
            "from k = 3 to 50).",
            ranges["Bibtex"] < 4 and ranges["Delicious"] < 4,
            ", ".join(f"{shown} {value:.1f} points" for shown, value in ranges.items()),
        ),
        Claim(
            "EURLex performs better with a smaller number of neighbours (criterion: P@1 is best at k ≤ 10 and lower at "
            "k = 50 than at 5).",
            peak <= 10 and at_50 < at_5,
            f"best at k = {peak}; P@1 {at_5:.1f} at k = 5, {at_50:.1f} at k = 50",
        ),
    ]


NEIGHBORS = Experiment(
    number=3,
    word="neighbors",
    title="Precision against the number of neighbours",
    protocol="RIPML with m = 100 and F = 5, predicting with k from 1 to 50; regularisation as in experiment 2, k = 5.",
    plan=_plan_neighbors,
    draw=lambda rows: {"P@1, P@3 and P@5 of RIPML against k, m = 100": against_neighbors(rows, "set")},
    tables=lambda rows: [_neighbors_table(rows, "set", "P@1 / 3 / 5 by k")],
    claims=_neighbors_claims,
    sets=tuple(SETS.values()),
)


# ------------------------------------------------------------------------------------------ 4: against m, Chinese news


def _chinese_grid(extent: Extent) -> tuple[list[int], int]:
    """The dimensions d of document vectors, and the number of splits."""
    return ([200], 2) if extent.quick else ([200, 300, 400], 5)


def _plan_chinese_dims(extent: Extent) -> list[Measurement]:
    widths, n_splits = _chinese_grid(extent)
    chosen: Chosen = {}

    def make(d: int, split: int, method: str, m: int) -> list[Row]:
        rows = data.chinese(extent, d, "jieba", split)
        return [measure_method(method, m, rows, extent.seed, chosen, 100, d=f"d = {d}", split=split)]

    plan = [
        Measurement(f"{d}-{split}-{method}-{m}", partial(make, d, split, method, m))
        for d in widths
        for split in range(n_splits)
        for m in data.dims_grid(_TICKERS, extent.quick)
        for method in COMPARED
    ]
    return [*plan, Measurement("chars", partial(_measure_characters, extent, n_splits))]


def _measure_characters(extent: Extent, n_splits: int) -> list[Row]:
    """RIPML at m = 100 on vectors of single characters and pairs of characters, d = 200."""
    rows = []
    for split in range(n_splits):
        part = data.chinese(extent, 200, "chars", split)
        model = RIPML.paper(n_dims=100, random_state=extent.seed)
        ridge = ridge_by_rule(model, part, extent.seed)
        found = measure(model.set_params(ridge=ridge), part)
        rows.append({"tokens": "chars", "d": "d = 200", "split": split, "m": 100, "ridge": ridge, **found})
    return rows


def _with_method(rows: Rows) -> Rows:
    return Rows(row for row in rows if "method" in row)


def _by_tokens(rows: Rows) -> dict[str, Rows]:
    """RIPML at d = 200 and m = 100 by the words of jieba and by characters."""
    return {"jieba": rows.where(method="RIPML", d="d = 200", m=100), "chars": rows.where(tokens="chars")}


def _chinese_dims_tables(rows: Rows) -> list[Table]:
    by_method = _with_method(rows)
    tables = [
        _dims_table(by_method.where(d=d), f"Chinese relevance, {d}: mean P@1 / 3 / 5 over splits")
        for d in by_method.values("d")
    ]
    names = [f"P@{k}" for k in CUTS]
    lines = [
        [tokens, *(f"{some.mean(name):.1f} ± {some.spread(name):.1f}" for name in names)]
        for tokens, some in _by_tokens(rows).items()
    ]
    return [*tables, Table("With and without word segmentation: RIPML, d = 200, m = 100", ["tokens", *names], lines)]


def _draw_chinese_dims(rows: Rows) -> Mapping[str, Any]:
    figure = against_dims(_with_method(rows), "d", COMPARED)
    return {"P@1, P@3 and P@5 against m, mean and spread over splits, k = 5": figure}


def _chinese_dims_claims(rows: Rows) -> list[Claim]:
    by_method = _with_method(rows)
    grid = [(d, m) for d in by_method.values("d") for m in sorted({row["m"] for row in by_method})]

    def at(method: str, d: str, m: int, name: str = "P@1") -> float:
        return by_method.where(method=method, d=d, m=m).mean(name)

    not_better = [(d, m) for d, m in grid if at("RIPML", d, m) <= max(at("CPLST", d, m), at("CSSP", d, m))]
    worse = [(d, m) for d, m in grid if at("RIPML", d, m) < at("LEML", d, m)]
    top = {name: max(grid, key=lambda place: at(name, *place)) for name in COMPARED}
    first, fifth = ({name: at(name, *top[name], cut) for name in COMPARED} for cut in ("P@1", "P@5"))
    tokens = {name: some.mean("P@1") for name, some in _by_tokens(rows).items()}
    return [
        Claim(
            "RIPML performs better than CPLST and CSSP always (criterion: mean P@1 at every d and m).",
            not not_better,
            f"not better at {len(not_better)} of {len(grid)} places; P@1 at the best place: "
            + ", ".join(f"{name} {value:.1f}" for name, value in first.items()),
        ),
        Claim(
            "RIPML performs worse than LEML in certain cases (criterion: mean P@1 at some d and m).",
            bool(worse),
            f"worse at {len(worse)} of {len(grid)} places",
        ),
        Claim(
            "P@1 is good, but P@5 drops significantly for all methods, as a document has about one ticker (criterion: "
            "P@5 is less than half of P@1).",
            all(fifth[name] < first[name] / 2 for name in COMPARED),
            "P@1 and P@5 at the best place: "
            + ", ".join(f"{name} {first[name]:.1f} and {fifth[name]:.1f}" for name in COMPARED),
        ),
        Claim(
            "No linguistic preprocessing is required (criterion: P@1 by characters at most 2 points below that by the "
            "words that jieba finds).",
            tokens["chars"] >= tokens["jieba"] - 2,
            f"P@1 by jieba {tokens['jieba']:.1f}, by characters {tokens['chars']:.1f}",
        ),
    ]


CHINESE_DIMENSIONS = Experiment(
    number=4,
    word="chinese-dimensions",
    title="Chinese relevance against the dimensions of the embedding",
    protocol="5,545 Chinese finance documents with 230 tickers stand in for the paper's 5,011 with 391. Documents "
    "become vectors of d dimensions by doc2vec (distributed memory, skip-gram words, hierarchical softmax, window 10, "
    "10 epochs), learnt from all texts without labels; 500 documents are drawn for the test, 5 times (quick: d = 200, "
    "twice). m and methods are as in experiment 2; regularisation is chosen at m = 100 for each method, d and split. "
    "Texts are split into words by jieba; RIPML is also run on characters and pairs of characters.",
    plan=_plan_chinese_dims,
    draw=_draw_chinese_dims,
    tables=_chinese_dims_tables,
    claims=_chinese_dims_claims,
    sets=("zh_stock_news",),
    needs_texts=True,
)


# ------------------------------------------------------------------------------------------ 5: against k, Chinese news


def _plan_chinese_neighbors(extent: Extent) -> list[Measurement]:
    widths, n_splits = _chinese_grid(extent)

    def make(d: int, split: int) -> list[Row]:
        return _measure_neighbors(data.chinese(extent, d, "jieba", split), extent.seed, d=f"d = {d}", split=split)

    return [Measurement(f"{d}-{split}", partial(make, d, split)) for d in widths for split in range(n_splits)]


def _chinese_neighbors_claims(rows: Rows) -> list[Claim]:
    widths = rows.values("d")
    peak = {d: max(_KS, key=lambda k: rows.where(d=d, k=k).mean("P@1")) for d in widths}
    loss = {d: rows.where(d=d, k=peak[d]).mean("P@1") - rows.where(d=d, k=50).mean("P@1") for d in widths}
    return [
        Claim(
            "A small number of neighbours gives better precision (criterion: P@1 is best at k ≤ 10 and at least a "
            "point lower at k = 50, for every d).",
            all(peak[d] <= 10 and loss[d] >= 1 for d in widths),
            "; ".join(f"{d}: best at k = {peak[d]}, {loss[d]:.1f} points lower at k = 50" for d in widths),
        )
    ]


CHINESE_NEIGHBORS = Experiment(
    number=5,
    word="chinese-neighbors",
    title="Chinese relevance against the number of neighbours",
    protocol="RIPML with m = 100 and F = 5 on the splits of experiment 4, predicting with k from 1 to 50.",
    plan=_plan_chinese_neighbors,
    draw=lambda rows: {"P@1, P@3 and P@5 of RIPML against k, m = 100, means over splits": against_neighbors(rows, "d")},
    tables=lambda rows: [_neighbors_table(rows, "d", "Mean P@1 / 3 / 5 over splits by k")],
    claims=_chinese_neighbors_claims,
    sets=("zh_stock_news",),
    needs_texts=True,
)
