"""Arenas: all arrays of a structure in one buffer, so that a kernel takes them as one argument.

Idea: to hand an array to a kernel costs as much as to look up a point, so a structure of a dozen arrays
spends most of a single question on its arguments. In an arena they lie behind one another, each from a line
of the cache on, behind a header of int64: for each array the byte where it begins and the byte where it ends.
Being one large allocation, it also gets large pages where the system has them to give.

Not for: arrays that grow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_LINE = 64

Arena = NDArray[np.uint8]


def arena_of(arrays: Sequence[NDArray[Any]]) -> tuple[Arena, list[NDArray[Any]]]:
    """An arena of copies of the arrays, and these, views of it in the shapes that they had. O(bytes)."""
    header = np.zeros(2 * len(arrays), np.int64)
    end = _lines(header.nbytes)
    for number, array in enumerate(arrays):
        header[2 * number : 2 * number + 2] = end, end + array.nbytes
        end = _lines(end + array.nbytes)
    room = np.zeros(end + _LINE, np.uint8)
    first = -room.ctypes.data % _LINE
    arena = room[first : first + end]
    arena[: header.nbytes].view(np.int64)[:] = header
    views = []
    for array, begin, stop in zip(arrays, header[::2].tolist(), header[1::2].tolist(), strict=True):
        view = arena[begin:stop].view(array.dtype).reshape(array.shape)
        view[...] = array
        views.append(view)
    return arena, views


def _lines(size: int) -> int:
    return -(-size // _LINE) * _LINE
