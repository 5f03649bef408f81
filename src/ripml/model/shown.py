"""What notebooks show of explanations, suggestions and fitted models: HTML made of `ripml.base.notebook`."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ripml.base import notebook
from ripml.base.notebook import text
from ripml.model.left_out import ENOUGH_ROWS

if TYPE_CHECKING:
    from ripml.model.estimator import RIPML
    from ripml.model.explain import Example, Explanation

__all__ = ["Explained", "explanation_html", "fitted_html", "marked"]

T = TypeVar("T")

_LEAST_TONE = 0.04  # of the strongest place in a text: weaker ones are not marked
_MOST_CHARACTERS = 20_000  # of a text that are shown
_MOST_LABELS = 12  # of an example
_MOST_ROWS = 50
_ALWAYS = ("documents", "rows", "labels", "tags")  # counts that are shown even where they are 0

_brief = reprlib.Repr()
_brief.maxstring = _brief.maxother = 120
_HOW = {
    "votes": "its labels are near",
    "similar": "similar",
    "kernel": "by the regression",
    "local": "by the regression nearby",
}


class Explained(list[T]):
    """A list of explanations, or of such lists, that a notebook shows with its words highlighted."""

    def _repr_html_(self) -> str:
        if any(isinstance(one, Explained) for one in self):
            rows = (
                f"<section><h3>row {row}</h3>{_answers(labels)}</section>"
                for row, labels in enumerate(self[:_MOST_ROWS])
                if isinstance(labels, Explained)
            )
            more = len(self) - _MOST_ROWS
            return notebook.card("", *rows, notebook.note(f"and {more:,} more rows") if more > 0 else "")
        return notebook.card("", _answers(self))


def _answers(explanations: Sequence[Any]) -> str:
    """The explanations of one row, the first of them open."""
    if not explanations:
        return notebook.note("No label is suggested: nothing in this row is known, or no score reaches the threshold.")
    parts = []
    for i, why in enumerate(explanations):
        heading = f"<strong>{text(why.label)}</strong> {notebook.share_bar(why.score)}"
        parts.append(
            f'<details class="answer"{" open" if not i else ""}><summary>{heading}</summary>{_body(why)}</details>'
        )
    return "".join(parts)


def explanation_html(why: Explanation) -> str:
    """One explanation: the text with its words for and against, the examples with their shares, and the rest."""
    return notebook.card(str(why.label), f"<p>score {notebook.share_bar(why.score)}</p>", _body(why))


def _body(why: Explanation) -> str:
    spans, source = getattr(why, "spans", []), getattr(why, "text", "")
    parts = []
    if source:
        parts += [_LEGEND if spans else "", f'<div class="source" dir="auto">{marked(source, spans)}</div>']
    if why.features and not spans:
        pulls = ((text(name), f'<span class="n">{pull:+.3f}</span>') for name, pull in why.features)
        parts.append(notebook.table(["feature", "for (+) or against (−)"], pulls))
    rows = [*map(_example, why.examples)]
    names = ", ".join(f"“{found.name}”" for found in getattr(why, "matched", []))
    rest = (
        (why.others, "all other examples"),
        (why.regression, "the regression, by its features"),
        (why.named, f"its name in the text: {names}" if names else "its name in the text"),
    )
    rows += [(notebook.share_bar(share), text(what), "—") for share, what in rest if share > 0]
    parts.append(notebook.table(["share of the score", "example", "where it is from"], rows))
    return "".join(parts)


_LEGEND = '<p><mark class="for">speaks for it</mark> · <mark class="against">speaks against it</mark></p>'


def _example(example: Example) -> tuple[str, str, str]:
    labels = "".join(f'<bdi class="label">{text(label)}</bdi>' for label in example.labels[:_MOST_LABELS])
    if len(example.labels) > _MOST_LABELS:
        labels += f"and {len(example.labels) - _MOST_LABELS} more"
    who = f"row {example.row:,}" if example.row is not None else f"{example.n_rows:,} rows with exactly these labels"
    if example.n_rows == 1 and example.row is None:
        who = "1 row with exactly these labels"
    how = ", ".join(_HOW.get(word, word) for word in example.how.split("+"))
    return notebook.share_bar(example.share), labels, f'<span class="soft">{text(who)}: {text(how)}</span>'


def marked(source: str, spans: Iterable[tuple[int, int, float]]) -> str:
    """A text with the places that speak for a label tinted, and those against it underlined with a wave.

    Places may overlap, as title and text or neighbouring characters do: their strengths add up.

    >>> marked("<b>tea", [(3, 6, 0.5)])
    '&lt;b&gt;<mark class="for" style="--tone:.38" title="+0.500">tea</mark>'
    """
    strength = np.zeros(len(source))
    for start, end, pull in spans:
        strength[start:end] += pull
    strongest = float(np.abs(strength).max(initial=0)) or 1.0
    strength[np.abs(strength) < _LEAST_TONE * strongest] = 0
    shown = strength[:_MOST_CHARACTERS].tolist()
    parts, place = [], 0
    for pull, run in groupby(shown):
        start, place = place, place + sum(1 for _ in run)
        words = text(source[start:place])
        if not pull:
            parts.append(words)
        elif pull > 0:
            tone = f"{0.1 + 0.28 * pull / strongest:.2f}".lstrip("0")
            parts.append(f'<mark class="for" style="--tone:{tone}" title="{pull:+.3f}">{words}</mark>')
        else:
            parts.append(f'<mark class="against" title="{pull:+.3f}">{words}</mark>')
    return "".join(parts) + ("…" if len(source) > _MOST_CHARACTERS else "")


# ------------------------------------------------------------------------------------------------------ fitted models


def fitted_html(title: str, estimator: RIPML, counts: Mapping[str, int], parameters: Mapping[str, Any] | None) -> str:
    """What a fit found: counts, how well left-out rows are predicted, what was chosen; folded, the parameters."""
    model = estimator.model_
    calibration = model.calibration
    precision = calibration.precision
    plots = []
    if precision:
        caption = "Precision of the best labels, on left-out rows"
        plots.append(notebook.rank_bars(caption, list(precision.items())))
    if calibration.guarantees is not None and len(calibration.guarantees.tags.share) > 1:
        plots.append(_automation(calibration.guarantees.tags))
    elif len(calibration.steps[0]) > 1:
        plots.append(_line("What a score means", "score", calibration.steps))
    figures = [(name, f"{count:,}") for name, count in counts.items() if count or name in _ALWAYS]
    figures += [("calibration error", f"{calibration.error:.3f}"), ("threshold", f"{calibration.threshold:.3f}")]
    few = model.n_rows < ENOUGH_ROWS
    return notebook.card(
        title,
        notebook.figures(figures),
        f'<div class="plots">{"".join(plots)}</div>',
        notebook.note(f"With {model.n_rows:,} rows, what left-out rows say is mostly chance.") if few else "",
        notebook.note(f"Chosen on training rows that were left out: {', '.join(_chosen(estimator))}."),
        "" if parameters is None else _parameters(parameters),
    )


def _chosen(estimator: RIPML) -> Iterator[str]:
    """What was chosen, in words."""
    model, chosen = estimator.model_, estimator.chosen_
    yield f"kernel {model.kernel}"
    yield f"ridge {estimator.ridge_[0]:.3g}"
    if chosen["relevance"]:
        yield f"features weighted by their relevance to the power of {chosen['relevance']:.3g}"
    if "views" in chosen:
        yield f"kinds of features weighted {' : '.join(f'{share:.2f}' for share in chosen['views'])}"
    if chosen["n_neighbors"]:
        yield f"{chosen['n_neighbors']} neighbours"
    kind = "one for each label" if estimator.ensemble_.exact else f"random, {type(estimator.ensemble_).__name__}"
    yield f"{estimator.n_dims_:,} dimensions ({kind})"


def _parameters(parameters: Mapping[str, Any]) -> str:
    rows = (
        (f"<code>{text(name)}</code>", f"<code>{text(_brief.repr(value))}</code>") for name, value in parameters.items()
    )
    return f"<details><summary>Parameters</summary>{notebook.table(['name', 'value'], rows)}</details>"


def _automation(tags: Any) -> str:
    share, precision = _few(tags.share), _few(tags.precision)
    low = min(0.5, float(np.floor(10 * precision.min()) / 10))
    said = f"{100 * precision[0]:.0f} % for the surest labels, {100 * precision[-1]:.0f} % for all"
    caption, x_name = "Precision of labels applied unseen", "share of all right labels that are found"
    return notebook.curve(caption, x_name, said, share.tolist(), precision.tolist(), low)


def _line(caption: str, x_name: str, corners: tuple[NDArray[Any], NDArray[Any]]) -> str:
    x, y = (np.clip(values, 0, 1) for values in corners)
    said = f"from {100 * y[0]:.0f} % to {100 * y[-1]:.0f} %"
    return notebook.curve(f"{caption}: the probability to be right", x_name, said, x.tolist(), y.tolist())


def _few(values: NDArray[Any], most: int = 80) -> NDArray[Any]:
    """Some of the values from the first to the last."""
    places = np.unique(np.linspace(0, len(values) - 1, most).round().astype(int))
    return np.asarray(values[places])
