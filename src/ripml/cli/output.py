"""What people see: results on stdout; on stderr progress, moving on a terminal and in plain lines elsewhere."""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

__all__ = [
    "NOTHING_SUGGESTED",
    "Stopped",
    "bar",
    "count",
    "facts",
    "in_words",
    "print_json",
    "printable",
    "score_bars",
    "steps",
    "table",
    "told_rate",
    "tree",
    "working",
]

NOTHING_SUGGESTED = "no word that the model knows, or no score that reaches the threshold"

_SECONDS_A_LINE = 30
_RATE_OVER = 3600  # seconds that a rate is the mean of: a step may take minutes
_BAR = 24  # the width of a score of 1


class Stopped(Exception):
    """Ctrl+C, with a sentence on what is kept."""


def count(n: int, what: str) -> str:
    """So many of something.

    >>> count(1, "row"), count(1200, "row")
    ('1 row', '1,200 rows')
    """
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def printable(text: str) -> str:
    """Text without what would break a line or a terminal.

    >>> print(printable("a" + chr(27) + "[31m"))
    a\\x1b[31m
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def print_json(value: Any) -> None:
    """One line of JSON."""
    print(json.dumps(value, ensure_ascii=False))


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], n_words: int = 1) -> None:
    """A table: the first columns, `n_words` of them, are words, the others numbers to the right."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    sheet = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", pad_edge=False)
    for position, column in enumerate(columns):
        sheet.add_column(column, justify="left" if position < n_words else "right", overflow="fold")
    for row in rows:
        sheet.add_row(*(str(cell) for cell in row))
    Console(soft_wrap=not sys.stdout.isatty(), highlight=False, markup=False).print(sheet)


def tree(title: str, branches: Sequence[tuple[str, Sequence[str]]]) -> None:
    """A title, its branches, and the leaves of each; folded to the width of a terminal, and whole elsewhere."""
    from rich.console import Console
    from rich.text import Text
    from rich.tree import Tree

    root = Tree(Text(title, "bold"), guide_style="dim")
    for name, leaves in branches:
        branch = root.add(Text(name))
        for leaf in leaves:
            branch.add(Text(leaf))
    longest = max(map(len, [title, *(line for name, leaves in branches for line in (name, *leaves))]))
    whole = None if sys.stdout.isatty() else 2 * longest + 16  # a letter may take two places
    console = Console(width=whole, highlight=False, markup=False)
    with console.capture() as captured:
        console.print(root)
    print(captured.get(), end="")  # by `print`, which a bar on the same terminal makes room for


def facts(title: str, values: Mapping[str, Any]) -> None:
    """Names and values, one a line."""
    width = max(len(name) for name in values)
    print(title)
    for name, value in values.items():
        print(f"  {name:<{width}}  {value}")


def score_bars(pairs: Sequence[tuple[str, float]]) -> None:
    """Names with scores from 0 to 1, as numbers and as bars, in columns."""
    from rich.cells import cell_len

    if not pairs:
        print(f"  no labels: {NOTHING_SUGGESTED}")
        return
    width = max(cell_len(name) for name, _ in pairs)
    for name, score in pairs:
        eighths = round(8 * _BAR * min(max(score, 0.0), 1.0))
        drawn = "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()
        print(f"  {name}{' ' * (width - cell_len(name))}  {score:.4f}  {drawn}")


@contextlib.contextmanager
def working(what: str) -> Iterator[None]:
    """Say what is going on: a moving line on a terminal, plain lines elsewhere; the library's own steps show there."""
    log = logging.getLogger("ripml")
    level = log.level
    log.setLevel(logging.INFO)
    with contextlib.ExitStack() as stack:
        if sys.stderr.isatty():
            from rich.console import Console

            status = stack.enter_context(Console(stderr=True).status(f"{what} …"))
            handler: logging.Handler = _Listener(lambda step: status.update(f"{what}: {step}"))
        else:
            print(f"{what} …", file=sys.stderr)
            handler = _Listener(lambda step: print(f"{what}: {step}", file=sys.stderr))
        log.addHandler(handler)
        try:
            yield
        finally:
            log.removeHandler(handler)
            log.setLevel(level)


class _Listener(logging.Handler):
    def __init__(self, tell: Any) -> None:
        super().__init__()
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        self._tell(record.getMessage())


def _beside_results() -> dict[str, Any]:
    """What keeps a bar and results apart: on one terminal these go above it; a file or pipe must get them untouched."""
    return {"redirect_stdout": sys.stdout.isatty()}


@contextlib.contextmanager
def bar(what: str, total: int | None, unit: str = "rows", done: int = 0) -> Iterator[Callable[[int], None]]:
    """A progress bar with its rate on a terminal; elsewhere a line in the beginning, now and then, and in the end.

    Yields `advance(n)`. `done` were done before.
    """
    if sys.stderr.isatty():
        with _bars(*_counts(unit), _rate(unit)) as progress:
            task = progress.add_task(what, total=total, completed=done)
            yield lambda n: progress.advance(task, n)
        return
    start = told = time.monotonic()
    new = 0

    def tell() -> None:
        size = f"{(done + new) / 1e6:,.1f} MB" if unit == "bytes" else count(done + new, unit.removesuffix("s"))
        print(f"{what}: {size}, {in_words(new / max(time.monotonic() - start, 1e-9), unit)}", file=sys.stderr)

    def advance(n: int) -> None:
        nonlocal new, told
        new += n
        if time.monotonic() - told > _SECONDS_A_LINE:
            told = time.monotonic()
            tell()

    print(f"{what} …", file=sys.stderr)
    yield advance
    tell()


def told_rate(what: str, n: int, seconds: float, unit: str = "rows") -> None:
    """Say how much was done, and how fast, where no bar could."""
    print(f"{what}: {count(n, unit.removesuffix('s'))}, {in_words(n / max(seconds, 1e-9), unit)}", file=sys.stderr)


def in_words(rate: float, unit: str) -> str:
    """So many a second, a minute or an hour.

    >>> in_words(1234.6, "rows"), in_words(0.05, "trials"), in_words(0.005, "trials"), in_words(2.5e6, "bytes")
    ('1,235 rows/s', '3.0 trials/min', '18 trials/h', '2.5 MB/s')
    """
    if unit == "bytes":
        rate, unit = rate / 1e6, "MB"
    for factor, time_word in ((1, "s"), (60, "min"), (3600, "h")):
        if rate * factor >= 1 or time_word == "h":
            break
    value = rate * factor
    return f"{value:,.{0 if value >= 10 else 1}f} {unit}/{time_word}"


def _rate(unit: str) -> Any:
    from rich.progress import ProgressColumn, Task
    from rich.text import Text

    class Rate(ProgressColumn):
        """What is done a second."""

        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text("" if speed is None else in_words(speed, unit), style="progress.data.speed")

    return Rate()


def _counts(unit: str) -> tuple[Any, ...]:
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn

    return BarColumn(), DownloadColumn() if unit == "bytes" else MofNCompleteColumn()


def _bars(*columns: Any) -> Any:
    """Bars with these columns between what they are about and the time that is left, gone when all is done."""
    from rich.console import Console
    from rich.progress import Progress, TextColumn, TimeRemainingColumn

    shown = (TextColumn("{task.description}"), *columns, TimeRemainingColumn())
    usual: dict[str, Any] = {"console": Console(stderr=True), "transient": True, **_beside_results()}
    return Progress(*shown, speed_estimate_period=_RATE_OVER, **usual)


@contextlib.contextmanager
def steps() -> Iterator[Callable[[str, int, int], None]]:
    """Yields `show(step, done, total)`: a bar for each step on a terminal, and elsewhere a line each time."""
    if not sys.stderr.isatty():
        yield lambda step, done, total: print(f"{step}: {done:,} of {total:,}", file=sys.stderr, flush=True)
        return
    from rich.progress import TimeElapsedColumn

    with _bars(*_counts("steps"), _rate("steps"), TimeElapsedColumn()) as bars:
        tasks: dict[str, Any] = {}

        def show(step: str, done: int, total: int) -> None:
            if step not in tasks:
                tasks[step] = bars.add_task(step, total=total)
            bars.update(tasks[step], completed=done)

        yield show
