"""Printing: results on standard output; progress on standard error, moving on a terminal and in plain lines elsewhere.

Rich is imported by the functions that use it, so that `ripml --help` does not wait for it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ripml.base import progress

NO_LABELS = "the model knows none of the words, or no score reaches the threshold"

_LINE_SECONDS = 30  # between two progress lines where there is no terminal
_RATE_SECONDS = 3600  # the rate of a bar is averaged over this time, because a single step can take minutes
_BAR_WIDTH = 24  # characters that show a score of 1


class Interrupted(Exception):
    """Ctrl+C, with a message about the work that is kept."""


def count(n: int, noun: str) -> str:
    """A number with its noun.

    >>> count(1, "row"), count(1200, "row")
    ('1 row', '1,200 rows')
    """
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def printable(text: str) -> str:
    """Text with escapes in place of characters that would break a line or control the terminal.

    >>> print(printable("a" + chr(27) + "[31m"))
    a\\x1b[31m
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def join_printable(names: Sequence[Any]) -> str:
    """Names, separated by commas, that are safe to print."""
    return ", ".join(printable(str(name)) for name in names)


# -------------------------------------------------------------------------------------------------------------- results


def print_json(value: Any) -> None:
    """Print one line of JSON."""
    print(json.dumps(value, ensure_ascii=False))


def print_result(values: Mapping[str, Any], text: str, as_json: bool) -> None:
    """Print values as JSON, or the text that says the same to people."""
    print_json(values) if as_json else print(text)


def print_facts(title: str, values: Mapping[str, Any]) -> None:
    """Print a title, and names and values, one per line."""
    width = max(len(name) for name in values)
    print(title)
    for name, value in values.items():
        print(f"  {name:<{width}}  {value}")


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], n_left: int = 1) -> None:
    """Print a table; the first `n_left` columns are aligned to the left, the others to the right."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", pad_edge=False)
    for position, column in enumerate(columns):
        table.add_column(column, justify="left" if position < n_left else "right", overflow="fold")
    for row in rows:
        table.add_row(*(str(cell) for cell in row))
    Console(soft_wrap=not sys.stdout.isatty(), highlight=False, markup=False).print(table)


def print_tree(title: str, branches: Sequence[tuple[str, Sequence[str]]]) -> None:
    """Print a title, its branches and their leaves, wrapped to the width of a terminal but not in a file or pipe."""
    from rich.console import Console
    from rich.text import Text
    from rich.tree import Tree

    root = Tree(Text(title, "bold"), guide_style="dim")
    for name, leaves in branches:
        branch = root.add(Text(name))
        for leaf in leaves:
            branch.add(Text(leaf))
    longest = max(map(len, [title, *(line for name, leaves in branches for line in (name, *leaves))]))
    unwrapped = None if sys.stdout.isatty() else 2 * longest + 16  # a character can be two cells wide
    console = Console(width=unwrapped, highlight=False, markup=False)
    with console.capture() as captured:
        console.print(root)
    print(captured.get(), end="")  # `print` goes above a progress bar on the same terminal


def print_scores(pairs: Sequence[tuple[str, float]]) -> None:
    """Print labels with their scores from 0 to 1, as numbers and as bars, in columns."""
    from rich.cells import cell_len

    if not pairs:
        print(f"  no labels: {NO_LABELS}")
        return
    width = max(cell_len(name) for name, _ in pairs)
    for name, score in pairs:
        eighths = round(8 * _BAR_WIDTH * min(max(score, 0.0), 1.0))
        bar = "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()
        print(f"  {name}{' ' * (width - cell_len(name))}  {score:.4f}  {bar}")


# ------------------------------------------------------------------------------------------------------------- progress


@contextlib.contextmanager
def reading_notes() -> Iterator[None]:
    """Print how files are read, as far as it had to be found: their separators and encodings, and what is left out."""

    from ripml.cli.options import use_option_names

    def show(record: logging.LogRecord) -> None:
        word = "warning: " if record.levelno >= logging.WARNING else ""
        print(f"ripml: {word}{printable(use_option_names(record.getMessage()))}", file=sys.stderr)

    with progress.listening("ripml.reading", show):
        yield


@contextlib.contextmanager
def working(task: str) -> Iterator[None]:
    """Show that a task is running, and the steps that the library logs meanwhile, with the time that is left."""
    with reading_notes(), progress.shown(task):
        yield


@contextlib.contextmanager
def progress_bar(task: str, total: int | None, unit: str = "rows", done: int = 0) -> Iterator[Callable[[int], None]]:
    """Show progress with its rate: a bar on a terminal; elsewhere a line at the start, every 30 seconds and at the end.

    Yields `advance(n)`. `done` units were done before and do not count for the rate.
    """
    if sys.stderr.isatty():
        with _rich_progress(unit) as bars:
            bar = bars.add_task(task, total=total, completed=done)
            yield lambda n: bars.advance(bar, n)
        return
    start = printed = time.monotonic()
    new = 0

    def print_line() -> None:
        print_rate(task, done + new, new / max(time.monotonic() - start, 1e-9), unit)

    def advance(n: int) -> None:
        nonlocal new, printed
        new += n
        if time.monotonic() - printed > _LINE_SECONDS:
            printed = time.monotonic()
            print_line()

    print(f"{task} …", file=sys.stderr)
    yield advance
    print_line()


@contextlib.contextmanager
def step_bars() -> Iterator[Callable[[str, int, int], None]]:
    """Yield `show(step, done, total)`: one bar per step on a terminal, and elsewhere one line per call."""
    if not sys.stderr.isatty():
        yield lambda step, done, total: print(f"{step}: {done:,} of {total:,}", file=sys.stderr, flush=True)
        return
    from rich.progress import TimeElapsedColumn

    with _rich_progress("steps", TimeElapsedColumn()) as shown:
        bars: dict[str, Any] = {}

        def show(step: str, done: int, total: int) -> None:
            if step not in bars:
                bars[step] = shown.add_task(step, total=total)
            shown.update(bars[step], completed=done)

        yield show


def print_rate(task: str, done: int, rate: float, unit: str = "rows") -> None:
    """Print how much of a task is done, and how fast, on standard error."""
    size = f"{done / 1e6:,.1f} MB" if unit == "bytes" else count(done, unit.removesuffix("s"))
    print(f"{task}: {size}, {format_rate(rate, unit)}", file=sys.stderr)


def format_rate(rate: float, unit: str) -> str:
    """A rate per second, in the shortest time in which at least one unit is done.

    >>> format_rate(1234.6, "rows"), format_rate(0.05, "trials"), format_rate(2.5e6, "bytes")
    ('1,235 rows/s', '3.0 trials/min', '2.5 MB/s')
    """
    if unit == "bytes":
        rate, unit = rate / 1e6, "MB"
    factor, time_unit = next((pair for pair in ((1, "s"), (60, "min")) if rate * pair[0] >= 1), (3600, "h"))
    value = rate * factor
    return f"{value:,.{0 if value >= 10 else 1}f} {unit}/{time_unit}"


def _rich_progress(unit: str, *columns: Any) -> Any:
    """Rich's progress display with counts, rate and remaining time, which disappears when it is done."""
    from rich import progress
    from rich.console import Console
    from rich.text import Text

    class RateColumn(progress.ProgressColumn):
        def render(self, task: progress.Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text("" if speed is None else format_rate(speed, unit), style="progress.data.speed")

    return progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.DownloadColumn() if unit == "bytes" else progress.MofNCompleteColumn(),
        RateColumn(),
        *columns,
        progress.TimeRemainingColumn(),
        speed_estimate_period=_RATE_SECONDS,
        console=Console(stderr=True),
        transient=True,
        # On the same terminal, results are printed above the bar; a file or pipe must get them untouched.
        redirect_stdout=sys.stdout.isatty(),
    )


@contextlib.contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Print warnings as errors are printed: one sentence, without the line of the program."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for warning in caught:
        print(f"ripml: {printable(str(warning.message))}", file=sys.stderr)
