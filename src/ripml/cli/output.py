"""What people see: results on stdout; on stderr progress, moving on a terminal and in plain lines elsewhere."""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

__all__ = ["bar", "facts", "print_json", "steps", "table", "tree", "working"]


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
def bar(what: str, total: int | None, unit: str = "rows") -> Iterator[Any]:
    """A progress bar with its rate on a terminal; elsewhere nothing but the start and the end. Yields `advance(n)`."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True, **_beside_results()) as progress:
            task = progress.add_task(what, total=total)
            yield lambda n: progress.advance(task, n)
        return
    done = 0

    def advance(n: int) -> None:
        nonlocal done
        done += n

    print(f"{what} …", file=sys.stderr)
    yield advance
    print(f"{what}: {done:,} {unit}", file=sys.stderr)


@contextlib.contextmanager
def steps() -> Iterator[Callable[[str, int, int], None]]:
    """Yields `show(step, done, total)`: a bar for each step on a terminal, and elsewhere a line each time."""
    if not sys.stderr.isatty():
        yield lambda step, done, total: print(f"{step}: {done:,} of {total:,}", file=sys.stderr, flush=True)
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), **_beside_results()) as bars:
        tasks: dict[str, Any] = {}

        def show(step: str, done: int, total: int) -> None:
            if step not in tasks:
                tasks[step] = bars.add_task(step, total=total)
            bars.update(tasks[step], completed=done)

        yield show
