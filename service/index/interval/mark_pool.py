"""Where the marks of edges lie: slices of one array, with room to grow, for trees and lists whose edges are
marked with boxes.

An edge whose slice is full moves it behind all others; what it leaves is lost until all are laid out anew.

Not for: adding a mark, which the kernels of each structure do.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SLACK = 4
"""Marks to one of room to spare, where edges have filled theirs once."""
_SPARE = 8
_LEAST_SPARE = 1024
_MOST_MARKS = 2**31 - 1

Column = NDArray[np.int32]


def laid_out(first: Column, count: Column, room: Column, *, slack: int) -> tuple[int, NDArray[np.int32]]:
    """Lays out slices for ``count[edge]`` marks an edge, each with 1 / ``slack`` of room to spare (0: none).

    Writes ``first`` and ``room`` of every edge and empties ``count``. Returns how much of the pool the slices
    take, and the pool, ``int32``, which has more. MemoryError past 2**31 marks. O(edges + marks).
    """
    counts = count.astype(np.int64)
    rooms = counts + counts // slack + 1 if slack else counts
    used = int(rooms.sum())
    length = used + used // _SPARE + _LEAST_SPARE
    if length > _MOST_MARKS:
        raise MemoryError(f"there is room for {_MOST_MARKS} marks, not {length}")
    first[:] = np.cumsum(rooms) - rooms
    room[:] = rooms
    count[:] = 0
    return used, np.empty(length, np.int32)
