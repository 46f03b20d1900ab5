"""Arenas: all arrays of a structure in one buffer, so that a kernel takes them as one argument.

Idea: to hand an array to a kernel costs as much as to look up a point, so a structure of a dozen arrays
spends most of a single question on its arguments. In an arena they lie behind one another, each from a line
of the cache on, behind a header of int64: for each array the byte where it begins and the byte where it ends.
Being one large allocation, it also gets large pages where the system has them to give.

Not for: arrays that grow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_LINE = 64

Arena = NDArray[np.uint8]


def arena_of(arrays: Sequence[NDArray[Any]]) -> tuple[Arena, list[NDArray[Any]]]:
    """An arena of copies of the arrays, and these, views of it in the shapes that they had. O(bytes)."""
    arena, views = empty_arena([(array.dtype, array.shape) for array in arrays])
    for array, view in zip(arrays, views, strict=True):
        view[...] = array
    return arena, views


def empty_arena(
    kinds: Sequence[tuple[np.dtype[Any], tuple[int, ...]]],
) -> tuple[Arena, list[NDArray[Any]]]:
    """An arena of zeros for arrays of these types and shapes, and these. O(arrays): the system gives the
    memory as it is written."""
    header = np.zeros(2 * len(kinds), np.int64)
    end = _lines(header.nbytes)
    for number, (dtype, shape) in enumerate(kinds):
        nbytes = math.prod(shape) * dtype.itemsize
        header[2 * number : 2 * number + 2] = end, end + nbytes
        end = _lines(end + nbytes)
    room = np.zeros(end + _LINE, np.uint8)
    first = -room.ctypes.data % _LINE
    arena = room[first : first + end]
    arena[: header.nbytes].view(np.int64)[:] = header
    views = [
        arena[begin:stop].view(dtype).reshape(shape)
        for (dtype, shape), begin, stop in zip(
            kinds, header[::2].tolist(), header[1::2].tolist(), strict=True
        )
    ]
    return arena, views


def _lines(size: int) -> int:
    return -(-size // _LINE) * _LINE
