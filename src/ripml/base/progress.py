"""Progress in plain words: what the library does now, and how long it may still take.

`step` names what begins, as a record of the log "ripml" at level INFO; whoever wants to know listens to that log:
`shown`, for `verbose=1`, and the command line. A record says how many seconds its step and all later ones take on the
machine that the estimates were made on. The steps that are done say how much slower or faster this machine is:

    time left = (estimate of this step and of later ones) · (seconds of the steps done) / (their estimates).
"""

from __future__ import annotations

import contextlib
import html
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Clock", "format_time", "listening", "shown", "step"]

_log = logging.getLogger("ripml")

_LEAST = 1.0  # estimated seconds of steps that are done, from which on they say how fast the machine is
_LEAST_LEFT = 2.0  # less is not worth a word
_showing = threading.local()


def step(message: str, seconds: float = 0.0, later: float = 0.0) -> None:
    """Say that a step begins, with the estimated seconds of it and of all later ones; 0 where they are not known."""
    _log.info("%s", message, extra={"seconds": seconds, "later": later})


class _Handler(logging.Handler):
    """Hands the records of one thread to a function."""

    def __init__(self, show: Callable[[logging.LogRecord], object]) -> None:
        super().__init__()
        self._show, self._thread = show, threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread:  # and not what another thread fits meanwhile
            self._show(record)


@contextlib.contextmanager
def listening(name: str, show: Callable[[logging.LogRecord], object]) -> Iterator[None]:
    """Hand what this thread logs under a name to a function."""
    log = logging.getLogger(name)
    level, handler = log.level, _Handler(show)
    log.setLevel(logging.INFO if level == logging.NOTSET else min(level, logging.INFO))
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


@dataclass
class Clock:
    """How far a task is, by the records of its steps.

    >>> now = iter([0.0, 0.0, 20.0]).__next__
    >>> clock = Clock(now)
    >>> clock.begin(seconds=10, later=30)
    >>> clock.left
    40.0
    >>> clock.begin(seconds=10, later=20)  # the first step took twice as long as was estimated
    >>> clock.left, round(clock.done, 2)
    (60.0, 0.25)
    """

    now: Callable[[], float] = time.monotonic
    start: float = field(init=False)
    _begun: float = field(init=False)  # when the present step began
    _step: float = 0.0  # estimates of the present step, of later ones, and of those that are done, with their seconds
    _later: float = 0.0
    _estimated: float = 0.0
    _took: float = 0.0

    def __post_init__(self) -> None:
        self.start = self._begun = self.now()

    def begin(self, seconds: float, later: float) -> None:
        """A step of these estimates begins; without any, the present one has other words."""
        if not (seconds or later):
            return
        now = self.now()
        if self._step:
            self._estimated, self._took = self._estimated + self._step, self._took + now - self._begun
        self._begun, self._step, self._later = now, seconds, later

    @property
    def pace(self) -> float:
        """How many times as long as estimated the steps take that are done."""
        return self._took / self._estimated if self._estimated >= _LEAST else 1.0

    @property
    def step_seconds(self) -> float:
        """What the present step takes."""
        return self.pace * self._step

    @property
    def left(self) -> float:
        """Seconds that are left from the beginning of the present step on."""
        return self.pace * (self._step + self._later)

    @property
    def done(self) -> float:
        """The share of the time that had passed when the present step began."""
        passed = self._begun - self.start
        return passed / max(passed + self.left, 1e-9)

    def left_now(self) -> float:
        """Seconds that are left now; a step that takes longer than estimated leaves those after it."""
        return max(self.pace * self._step - (self.now() - self._begun), 0.0) + self.pace * self._later

    @property
    def passed(self) -> float:
        """Seconds since the beginning."""
        return self.now() - self.start


def format_time(seconds: float) -> str:
    """A time that is left, as roughly as it is known; "" where it is not worth a word.

    >>> [format_time(seconds) for seconds in (1, 7, 44, 100, 4000)]
    ['', 'about 10 s left', 'about 50 s left', 'about 2 min left', 'about 1.1 h left']
    """
    if seconds < _LEAST_LEFT:
        return ""
    if seconds <= 55:
        return f"about {10 * max(1, -int(-seconds // 10))} s left"
    return f"about {seconds / 60:.0f} min left" if seconds < 3570 else f"about {seconds / 3600:.1f} h left"


@contextlib.contextmanager
def shown(task: str, verbose: Any = 1) -> Iterator[None]:
    """Show the steps of a task: moving in a notebook and on a terminal, which it leaves clean, else in plain lines.

    Nothing is shown if `verbose` is 0, or inside of another task that is shown.
    """
    if not verbose or getattr(_showing, "task", None) is not None:
        yield
        return
    _showing.task = task
    try:
        with contextlib.ExitStack() as stack:
            display = _notebook_display()
            if display is not None:
                show = stack.enter_context(_in_notebook(task, display))
            elif sys.stderr.isatty():
                show = stack.enter_context(on_terminal(task))
            else:
                show = in_lines(task)
            stack.enter_context(listening("ripml", lambda record: record.name == "ripml" and show(record)))
            yield
    finally:
        _showing.task = None


def estimates(record: logging.LogRecord) -> tuple[float, float]:
    """The estimated seconds of a step and of later ones."""
    return getattr(record, "seconds", 0.0), getattr(record, "later", 0.0)


def in_lines(task: str) -> Callable[[logging.LogRecord], object]:
    """One line for each step, with the time that is left."""
    clock = Clock()
    print(f"{task} …", file=sys.stderr)

    def show(record: logging.LogRecord) -> None:
        clock.begin(*estimates(record))
        left = format_time(clock.left)
        print(f"{task}: {record.getMessage()}{f' ({left})' if left else ''}", file=sys.stderr, flush=True)

    return show


@contextlib.contextmanager
def on_terminal(task: str) -> Iterator[Callable[[logging.LogRecord], object]]:
    """A line that says the step, with a bar and the time that is left, which goes on while a step lasts."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn
    from rich.text import Text

    clock = Clock()

    class Left(ProgressColumn):
        def render(self, task: Task) -> Text:
            left = clock.left_now()
            if left:
                progress.update(bar, total=1.0, completed=clock.passed / max(clock.passed + left, 1e-9))
            return Text(format_time(left), style="progress.remaining")

    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(20), Left()
    with Progress(
        *columns, console=Console(stderr=True), transient=True, redirect_stdout=sys.stdout.isatty()
    ) as progress:
        bar = progress.add_task(f"{task} …", total=None)

        def show(record: logging.LogRecord) -> None:
            clock.begin(*estimates(record))
            progress.update(bar, description=f"{task}: {record.getMessage()}")

        yield show


def _notebook_display() -> Callable[..., Any] | None:
    """What shows HTML in the notebook that this code runs in; None elsewhere."""
    module = sys.modules.get("IPython")
    shell = None if module is None else module.get_ipython()
    if shell is None or not hasattr(shell, "kernel"):  # IPython in a terminal has no kernel
        return None
    from IPython.display import display

    found: Callable[..., Any] = display
    return found


class _Html:
    def __init__(self, source: str) -> None:
        self.source = source

    def _repr_html_(self) -> str:
        return self.source

    def __repr__(self) -> str:
        return ""


@contextlib.contextmanager
def _in_notebook(task: str, display: Callable[..., Any]) -> Iterator[Callable[[logging.LogRecord], object]]:
    """A bar in the output of the cell, which is empty when all is done.

    Nothing updates it within a step, as nothing runs then: it moves by a CSS animation of the estimated length.
    """
    clock = Clock()
    handle = display(_Html(progress_html(f"{task} …", "", 0.0, 0.0, 0.0)), display_id=True)

    def show(record: logging.LogRecord) -> None:
        clock.begin(*estimates(record))
        end = clock.done + (1 - clock.done) * clock.step_seconds / max(clock.left, 1e-9)
        words, left = f"{task}: {record.getMessage()}", format_time(clock.left)
        handle.update(_Html(progress_html(words, left, clock.done, end, clock.step_seconds)))

    try:
        yield show
    finally:
        handle.update(_Html(""))


def progress_html(words: str, left: str, start: float, end: float, seconds: float) -> str:
    """A bar that goes from one share to another within some seconds."""
    frames = f"@keyframes ripml-{round(1e4 * start)}{{from{{width:{100 * start:.1f}%}}to{{width:{100 * end:.1f}%}}}}"
    moving = f"animation:ripml-{round(1e4 * start)} {max(seconds, 0.1):.1f}s linear forwards"
    return (
        f'<style>{frames}</style><div style="font:14px/1.5 system-ui,sans-serif;max-width:40rem">'
        f'<div role="progressbar" aria-label="{html.escape(words)}" aria-valuenow="{100 * start:.0f}" '
        'style="height:.5rem;border-radius:.25rem;background:#8883;overflow:hidden">'
        f'<div style="height:100%;width:{100 * start:.1f}%;background:#2f9e8f;{moving}"></div></div>'
        f"<div>{html.escape(words)}{f' · {left}' if left else ''}</div></div>"
    )
