"""Arrays that grow at their end, for a model that learns while others read it.

What was handed out never changes: rows are written behind the last one of any view, into room that is kept free, and a
new view is made of the old rows and the new ones. Workspace is taken anew, with an eighth to spare, when it runs out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["GrowingArray"]

_SPARE, _LEAST = 8, 64


class GrowingArray:
    """An array that grows along one axis; one writer holds it, and any number of readers the views that it gave.

    >>> growing = GrowingArray(np.array([1, 2]))
    >>> before = growing.view
    >>> growing.append(np.array([3])).tolist(), before.tolist()
    ([1, 2, 3], [1, 2])
    """

    def __init__(self, array: NDArray[Any], axis: int = 0) -> None:
        """Start with this array, which is not copied before it has to grow."""
        self._room, self._axis, self.size = array, axis, array.shape[axis]

    @property
    def view(self) -> NDArray[Any]:
        """All there is."""
        return self._room[self._part(0, self.size)]

    def append(self, more: NDArray[Any]) -> NDArray[Any]:
        """Write these behind the last and return the view of all."""
        size = self.size + more.shape[self._axis]
        if size > self._room.shape[self._axis]:
            shape = list(self._room.shape)
            shape[self._axis] = size + max(size // _SPARE, _LEAST)
            room = np.empty(shape, self._room.dtype)
            room[self._part(0, self.size)] = self.view
            self._room = room
        if size > self.size:  # what was given at the start may be read-only, and stays so while nothing comes
            self._room[self._part(self.size, size)] = more
        self.size = size
        return self.view

    def truncate(self, size: int) -> None:
        """Have this size again. What came behind it must not have been handed to a reader."""
        self.size = size

    def _part(self, start: int, stop: int) -> tuple[slice, ...]:
        return (*(slice(None),) * self._axis, slice(start, stop))
