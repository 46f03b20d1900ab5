"""The Hilbert curve in any number of dimensions: an order of points in which neighbours are near each other.

Idea: a curve visits every cell of a grid of ``2**bits`` cells an axis once, and each step goes to a cell that
shares a side with the last. Points sorted by their place on it fall into short runs with small bounding
boxes, which is all that is asked of the order. The place of a cell is found bit by bit, from the coarsest:
each bit says which part of the current cube the cell is in, and the axes are reflected and exchanged so that
the rest is the same question one size smaller (Skilling, Programming the Hilbert curve, 2004).

Invariants: places are a bijection of the cells onto ``0 .. 2**(axes * bits)``, and cells of successive places
differ by one in one coordinate. The order is a hint: no answer depends on it.

Not for: exactness. Values are rounded to cells, and whatever lies beyond the frame shares the outermost.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from service.index.kernel import kernel, reads, writes
from service.index.protocol import Points, Rows

PLACE_BITS = 32
"""Bits of a place. The number of the row takes the other half of a key, so that one sort orders rows."""
_MOST_AXES = 16


class Frame(NamedTuple):
    """Where the grid lies: ``float64[axes]`` each. A value x is in cell ``(x - origin) * scale``, clipped."""

    origin: NDArray[np.float64]
    scale: NDArray[np.float64]


def bits_of(axes: int, points: int) -> int:
    """How finely each of so many axes is cut: some hundred cells a point, as far as a place has the room."""
    wanted = -(-(points.bit_length() + 8) // max(axes, 1))
    return max(1, min(wanted, PLACE_BITS // max(axes, 1)))


def frame_of(sample: NDArray[np.float64], bits: int) -> Frame:
    """The frame of a sample ``float64[axes, q]``, sorted along each axis, NaN last.

    It spans all finite values but the outermost 1/64 on either side: one stray value must not put the rest
    into one cell. An axis without two finite values has the scale 0. O(axes q).
    """
    axes = len(sample)
    origin, scale = np.zeros(axes), np.zeros(axes)
    for axis, values in enumerate(sample):
        finite = values[np.isfinite(values)]
        if len(finite) > 1:
            trimmed = len(finite) // 64
            low, high = float(finite[trimmed]), float(finite[-1 - trimmed])
            cell = high / (1 << bits) - low / (1 << bits)  # divided first: the difference may be infinite
            if cell > 1e-300:
                origin[axis], scale[axis] = low, 1.0 / cell
    return Frame(origin, scale)


def hilbert_order(points: Points, sample: NDArray[np.float64], axes: NDArray[np.int64]) -> Rows:
    """The rows without a NaN, in the order of the curve through some attributes; those of a cell as they are.

    ``points``: ``float64[m, d]``; ``sample``: ``float64[d, q]``, sorted values of each attribute; ``axes``:
    the attributes to go by, the most important first (those past the sixteenth are ignored). Returns
    ``int32``, at most m. O(m (d + log m)).
    """
    axes = axes[:_MOST_AXES]
    bits = bits_of(len(axes), len(points))
    frame = frame_of(sample[axes], bits)
    keys = np.empty(len(points), np.uint64)
    # Only without the JIT do numbers that overflow, or an infinite one times 0, warn.
    with np.errstate(over="ignore", invalid="ignore"):
        keys = keys[: row_keys(points, axes, *frame, bits, keys)]
    keys.sort()
    return (keys & np.uint64((1 << PLACE_BITS) - 1)).astype(np.int32)


@kernel(types.uint64(writes(types.int64, 1), types.int64))
def place_of(cell, bits):  # type: ignore[no-untyped-def]
    """The place on the curve of a cell ``int64[axes]`` with coordinates below ``2**bits``.

    Overwrites ``cell``. ``axes * bits`` is at most 64. O(axes * bits).
    """
    axes = len(cell)
    if axes == 0:
        return np.uint64(0)
    for bit in range(bits - 1, 0, -1):
        below = (np.int64(1) << bit) - 1
        for axis in range(axes):
            # The upper half is passed in the reverse sense, the lower one has its axes exchanged. Masks
            # instead of branches: which half it is cannot be predicted.
            upper = -(cell[axis] >> bit & 1)
            swapped = (cell[0] ^ cell[axis]) & below & ~upper
            cell[0] ^= swapped | (below & upper)
            cell[axis] ^= swapped
    # What is left are Gray codes, across the axes.
    for axis in range(1, axes):
        cell[axis] ^= cell[axis - 1]
    flipped = np.int64(0)
    for bit in range(bits - 1, 0, -1):
        flipped ^= ((np.int64(1) << bit) - 1) & -(cell[axes - 1] >> bit & 1)
    place = np.uint64(0)
    for bit in range(bits - 1, -1, -1):
        for axis in range(axes):
            one = np.uint64((cell[axis] ^ flipped) >> bit & 1)
            place = place << np.uint64(1) | one
    return place


@kernel(types.void(reads(types.int64, 2), types.int64, writes(types.uint64, 1)))
def places_of(cells, bits, places):  # type: ignore[no-untyped-def]
    """Writes the place of every cell of ``int64[m, axes]``."""
    cell = np.empty(cells.shape[1], np.int64)
    for i in range(len(cells)):
        for axis in range(cells.shape[1]):
            cell[axis] = cells[i, axis]
        places[i] = place_of(cell, bits)


@kernel(
    types.int64(
        reads(types.float64, 2),
        reads(types.int64, 1),
        reads(types.float64, 1),
        reads(types.float64, 1),
        types.int64,
        writes(types.uint64, 1),
    )
)
def row_keys(points, axes, origin, scale, bits, keys):  # type: ignore[no-untyped-def]
    """Writes ``place << 32 | row`` for every row without a NaN, and returns how many there are."""
    cell = np.empty(len(axes), np.int64)
    last = (np.int64(1) << bits) - 1
    count = 0
    for row in range(len(points)):
        whole = True
        for j in range(points.shape[1]):
            whole &= points[row, j] == points[row, j]
        if not whole:
            continue
        for axis in range(len(axes)):
            place = (points[row, axes[axis]] - origin[axis]) * scale[axis]
            if not place >= 1.0:  # infinity times a scale of 0 is NaN
                cell[axis] = 0
            elif place >= last:
                cell[axis] = last
            else:
                cell[axis] = np.int64(place)
        keys[count] = place_of(cell, bits) << np.uint64(32) | np.uint64(row)
        count += 1
    return count
