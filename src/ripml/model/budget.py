"""What a fit from blocks of rows needs: memory, disk and time, estimated from the sizes of the data before it starts.

The memory of a fit in a workspace on disk has two parts. One follows the budget: blocks of rows, blocks of targets,
columns of Phi. The other is `Needs.memory`: some bytes for each row, label and word, and the least that a solver
works with. A budget below it cannot be kept.

The constants are those of `benchmarks/streaming.py`; the time is of two cores, and no better than by a factor of two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ripml.base.parallel import thread_count
from ripml.labels.projection import kept_as
from ripml.model.fitting import Settings, choose_embedding, kernel_for
from ripml.regression import resolve_solver

__all__ = ["PROGRAM_BYTES", "WORD_BYTES", "Needs", "Sizes", "format_bytes", "held_bytes", "needs", "working_bytes"]

PROGRAM_BYTES = 250_000_000  # of Python and the libraries
WORD_BYTES = 300  # of the dictionary of features of texts
_ROW, _LABEL = 120, 250  # bytes held for each, all through a fit
_STEPS = 13  # products with X and its transpose in a solution by conjugate gradients
_SPARSE, _DENSE, _CHARACTER = 5e-10, 5e-11, 3e-7  # seconds of an operation, and of a character of texts, on one core
_NARROW = 6 * 8 * 4  # bytes for each feature and thread of the narrowest block of targets
_SMALL_BYTES = 16_000_000
_LIKENESS = 64_000_000  # of rows left out with all rows, for each thread


@dataclass(frozen=True)
class Sizes:
    """Those of the data."""

    n_rows: int
    n_features: int
    n_labels: int
    row_length: float = 0.0  # features of a row that are not 0
    characters: float = 0.0  # of all texts


@dataclass(frozen=True)
class Needs:
    """The least memory beside the program, the disk, and the processor time, in bytes and seconds."""

    memory: float
    disk: float
    seconds: float

    def __str__(self) -> str:
        """Disk and time.

        >>> print(Needs(1e9, 2.1e10, 5000.0))
        21 GB of disk, 42 minutes on two cores
        """
        minutes = self.seconds / 120
        time = f"{minutes:.0f} minutes" if minutes >= 2 else f"{max(self.seconds / 2, 1):.0f} seconds"
        return f"{format_bytes(self.disk)} of disk, {time} on two cores"


def needs(settings: Settings, sizes: Sizes) -> Needs:
    """What a fit of these sizes needs.

    >>> from ripml import RIPML
    >>> sizes = Sizes(1_000_000, 300_000, 100_000, 200.0, 1e9)
    >>> found = needs(RIPML().stages(), sizes)
    >>> round(found.memory / 1e9, 1), found.disk > 8 * 200e6
    (4.1, True)
    """
    n, d, L = sizes.n_rows, sizes.n_features, sizes.n_labels
    kernel = kernel_for(settings, n)
    entries = min(float(d), sizes.row_length) * n
    ensemble, m = choose_embedding(settings, kernel, (n, d), L)
    m *= settings.n_learners
    solver = resolve_solver(settings.solver, -(-n // settings.n_clusters), d)[0]
    disk = 8 * entries + 4 * m * n
    threads = thread_count(settings.n_jobs)
    if not kernel.linear:
        solving = 7.0 * n**2 + 12.0 * n * m
        seconds = _DENSE * (n**3 / 3 + 4.0 * n**2 * m)
    elif solver.exact:
        side = min(n, d)
        solving = 24.0 * side * (side + m)
        seconds = _DENSE * (2.0 * n * side * (side + m) + side**3)
    else:
        solving = (_NARROW * threads + 4.0 * m) * d
        disk += 12.0 * d * m + 24 * entries
        seconds = _SPARSE * 4 * entries * m * _STEPS
    # Where similar rows vote, left-out rows are compared with all rows: these and their lists are read in no order.
    choices = settings.decoder.start(kernel, ensemble.exact, L, 1.0, settings.n_neighbors)
    searching = 16.0 * entries + min(_LIKENESS, 1024.0 * n) * threads if choices.n_similar else 0.0
    memory = held_bytes(settings, sizes) + max(solving, searching) + (WORD_BYTES * d if sizes.characters else 0)
    return Needs(1.1 * memory, 1.2 * disk, 1.2 * (seconds + _CHARACTER * sizes.characters))


def held_bytes(settings: Settings, sizes: Sizes) -> float:
    """What is held for rows and labels all through a fit: with a table of the columns of Phi, where that is small."""
    n, d, L = sizes.n_rows, sizes.n_features, sizes.n_labels
    _, m = choose_embedding(settings, kernel_for(settings, n), (n, d), L)
    kept = kept_as(L, m * settings.n_learners) if settings.decoder.tunes_ridge else None
    return _ROW * n + _LABEL * L + (0 if kept is None else kept().itemsize * L * m * settings.n_learners)


def working_bytes(budget: int, held: float = PROGRAM_BYTES) -> int:
    """What a budget leaves to work with beside what is held; a budget of up to 16 MB is one for small data.

    >>> working_bytes(4 * 10**9), working_bytes(2 * 10**6)
    (3750000000, 2000000)
    """
    return max(int(budget - held), min(budget, _SMALL_BYTES))


def format_bytes(size: float) -> str:
    """A size as it is said: rounded up to two digits.

    >>> format_bytes(1.91e9), format_bytes(52_300_000), format_bytes(1200)
    ('2 GB', '53 MB', '1 MB')
    """
    unit, name = (1e9, "GB") if size > 995e6 else (1e6, "MB")
    value = max(size / unit, 1.0)
    step = 10 ** (math.floor(math.log10(value)) - 1)
    rounded = math.ceil(round(value / step, 6)) * step
    return f"{rounded:.3g} {name}"
