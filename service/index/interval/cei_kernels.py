"""Kernels of CEI: containment-encoded intervals, their labels, decomposition and search.

Words of the paper: the axis is cut into *cells* of unit length, numbered from 0, and into *segments* of ``L =
2**k`` cells, whose boundaries are the *guiding posts*. A segment has one CEI of length L, two of L/2, and so
on down to L of unit length: a perfect binary tree. Its nodes have the *local ids* 1 .. 2L - 1 from the top,
left to right, so the parent of l is ``l >> 1`` and the leaf of cell c is ``c % L + L``. The *global id* is
``l + 2 i L`` in segment i. Ids 2 i L (local id 0) are not used.

``lists[g] .. lists[g + 1]`` are the entries of the CEI with global id g, for g below twice the number of
cells. Behind them, ``lists[2 * cells + c]`` and on, come the *cut lists*: the boxes with an end inside cell
c.

Each kernel has a slow twin in the tests of the index. Not for: the choice of the grid (``cei_grid``).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types

from service.index.kernel import kernel, reads, writes


class Grid(NamedTuple):
    """Which cell a value lies in: ``cells`` cells in segments of ``2**k``, ``scale`` cells a unit of value.

    Cell 0 holds -inf (a missing value) alone, cell 1 all finite values below ``origin``; equal cells follow;
    the last one holds whatever lies above. Only the order of cells matters for exactness.
    """

    origin: float
    scale: float
    cells: int
    k: int


_GRID: Any = types.NamedTuple(  # type: ignore[no-untyped-call]
    (types.float64, types.float64, types.int64, types.int64), Grid
)
_LOWEST = -1.7976931348623157e308


@kernel(types.int64(types.float64, _GRID))
def cell_of(x, grid):  # type: ignore[no-untyped-def]
    """The cell of a value that is not NaN. Monotone: ``x <= y`` implies ``cell_of(x) <= cell_of(y)``."""
    if x < _LOWEST:
        return 0
    place = (x - grid.origin) * grid.scale
    if place < 0.0:
        return 1
    if place >= grid.cells - 3:
        return grid.cells - 1
    return np.int64(place) + 2


@kernel(types.void(reads(types.float64, 1), _GRID, writes(types.int64, 1)))
def cells_of(values, grid, out):  # type: ignore[no-untyped-def]
    """Writes the cell of every value."""
    for i in range(len(values)):
        out[i] = cell_of(values[i], grid)


@kernel(types.int64(types.int64, types.int64, types.int64, writes(types.int64, 1), types.int64))
def best_partition(start, stop, base, ids, count):  # type: ignore[no-untyped-def]
    """The minimal decomposition of ``[start, stop)`` within a segment (Sect. 3.2, BestPartition).

    ``start`` and ``stop`` are local ids of unit CEIs, ``stop`` exclusive. Appends ``base`` + local id to
    ``ids`` behind the first ``count``, left to right, and returns the new count: at most 2 k more. O(k).
    """
    while start < stop:
        local = start
        length = 1
        # The parent begins where its left child does; it is too long if it ends behind the remnant.
        while local % 2 == 0 and start + 2 * length <= stop:
            local >>= 1
            length *= 2
        ids[count] = base + local
        count += 1
        start += length
    return count


@kernel(types.int64(types.int64, types.int64, types.int64, writes(types.int64, 1)))
def decompose(start, stop, k, ids):  # type: ignore[no-untyped-def]
    """The global ids of the CEIs that make up the cells ``[start, stop)``, left to right (Sect. 3.2).

    The guiding posts inside cut off a left and a right remnant; whole segments lie between. ``ids`` must hold
    ``(stop - start) / L + 2 k + 2``. Returns the number written. O(k + segments).
    """
    if start >= stop:
        return 0
    length = 1 << k
    left_post = (start + length - 1) >> k
    right_post = stop >> k
    if left_post > right_post:
        offset = length - (right_post << k)
        return best_partition(start + offset, stop + offset, 2 * length * right_post, ids, 0)
    count = 0
    if start < left_post << k:
        segment = left_post - 1
        offset = length - (segment << k)
        count = best_partition(start + offset, 2 * length, 2 * length * segment, ids, count)
    for segment in range(left_post, right_post):
        ids[count] = 2 * length * segment + 1
        count += 1
    if right_post << k < stop:
        offset = length - (right_post << k)
        count = best_partition(length, stop + offset, 2 * length * right_post, ids, count)
    return count


@kernel(types.void(reads(types.int64, 2), _GRID, writes(types.int64, 1), writes(types.int32, 1)))
def file_boxes(spans, grid, lists, entries):  # type: ignore[no-untyped-def]
    """Files boxes under their CEIs and cut cells, in two passes.

    ``spans``: ``int64[n, 4]``, a box a row: the cells ``[start, stop)`` that it covers whole, the cell that
    its lower end cuts and the one that its upper end cuts (-1: none). With ``entries`` empty, counts: adds
    one to ``lists[id]`` for every filing. Else ``lists[id]`` holds where the list ends and is moved down to
    where it begins, while the numbers of its boxes are written, in rising order. O(n (k + segments)).
    """
    filing = len(entries) > 0
    ids = np.empty(2 * grid.k + 4 + (grid.cells >> grid.k), np.int64)
    for box in range(spans.shape[0] - 1, -1, -1):
        count = decompose(spans[box, 0], spans[box, 1], grid.k, ids)
        for end in range(2, 4):
            if spans[box, end] >= 0:
                ids[count] = 2 * grid.cells + spans[box, end]
                count += 1
        for i in range(count):
            if filing:
                lists[ids[i]] -= 1
                entries[lists[ids[i]]] = box
            else:
                lists[ids[i]] += 1


@kernel(
    types.int64(
        reads(types.float64, 2),
        reads(types.float64, 2),
        reads(types.int32, 1),
        reads(types.int64, 1),
        reads(types.int32, 1),
        _GRID,
        reads(types.float64, 2),
        writes(types.int64, 1),
    )
)
def search(lo, hi, slots, lists, entries, grid, points, out):  # type: ignore[no-untyped-def]
    """Writes the key ``row << 32 | slot`` of every point in every filed box (Sect. 3.3).

    From the unit CEI of a point, shifts lead to the k + 1 CEIs that contain it. What is listed there holds
    the point without a look at its ends; only what is cut by the point's cell is compared. ``lo``, ``hi``:
    ``float64[n, 1]``; ``points``: ``float64[m, 1]``. Returns the number of keys, of which the first
    ``len(out)`` are written. O(m k + entries met).
    """
    length = 1 << grid.k
    needed = 0
    for row in range(points.shape[0]):
        x = points[row, 0]
        if not x < np.inf:
            continue
        cell = cell_of(x, grid)
        local = (cell & (length - 1)) + length
        base = (cell >> grid.k) * 2 * length
        while local > 0:
            for i in range(lists[base + local], lists[base + local + 1]):
                slot = slots[entries[i]]
                if slot >= 0:
                    if needed < len(out):
                        out[needed] = (np.int64(row) << 32) | slot
                    needed += 1
            local >>= 1
        cut = 2 * grid.cells + cell
        for i in range(lists[cut], lists[cut + 1]):
            box = entries[i]
            if slots[box] >= 0 and lo[box, 0] <= x and x < hi[box, 0]:
                if needed < len(out):
                    out[needed] = (np.int64(row) << 32) | slots[box]
                needed += 1
    return needed
