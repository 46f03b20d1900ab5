"""``brute``: what a loop over all boxes costs, compiled. The yardstick where no library can take a workload.

Idea: two layouts, and the faster of them on a workload counts. By *columns*, 512 boxes at a time: each
attribute is compared for the whole block, and a block is left when none of its boxes is left. By *rows*: box
by box, left at the first attribute that excludes it. In both, all points of the batch pass over a block while
it is in the cache.

Not for: the service (``service.index.brute`` scans in float32 first, removes, and lets others read).
"""

from __future__ import annotations

import numpy as np
from numba import types

from service.index.answers import Collector, as_points
from service.index.kernel import kernel, reads, writes
from service.index.protocol import Bounds, Hits, Points

BLOCK = 512

_MATRIX = reads(types.float64, 2)


class ColumnScan:
    """Slot i is box i. ``stab`` is O(m n d), less by early exit."""

    name = "brute (columns)"

    def __init__(self, lo: Bounds, hi: Bounds) -> None:
        self.nbytes = lo.nbytes + hi.nbytes
        self._lo, self._hi = np.ascontiguousarray(lo.T), np.ascontiguousarray(hi.T)
        self._collector = Collector()

    def stab(self, points: Points) -> Hits:
        points = as_points(points, len(self._lo))
        return self._collector.hits(lambda out: scan_columns(self._lo, self._hi, points, out), len(points))


class RowScan:
    """Slot i is box i. ``stab`` is O(m n d), less by early exit."""

    name = "brute (rows)"

    def __init__(self, lo: Bounds, hi: Bounds) -> None:
        self.nbytes = lo.nbytes + hi.nbytes
        self._ends = np.ascontiguousarray(np.stack([lo, hi], axis=2).reshape(len(lo), -1))
        self._collector = Collector()

    def stab(self, points: Points) -> Hits:
        points = as_points(points, self._ends.shape[1] // 2)
        return self._collector.hits(lambda out: scan_rows(self._ends, points, out), len(points))


@kernel(types.int64(_MATRIX, _MATRIX, _MATRIX, writes(types.int64, 1)))
def scan_columns(lo, hi, points, out):  # type: ignore[no-untyped-def]
    """``lo``, ``hi``: ``float64[d, n]``. Writes keys ``row << 32 | box``; returns how many there are."""
    dims, count = lo.shape
    left = np.empty(BLOCK, np.uint8)
    eights = left.view(np.uint64)
    needed = 0
    for first in range(0, count, BLOCK):
        size = min(BLOCK, count - first)
        for row in range(points.shape[0]):
            left[:size] = 1
            left[size:] = 0
            some = True
            for j in range(dims):
                if not some:
                    break
                x = points[row, j]
                begin, end = lo[j, first : first + size], hi[j, first : first + size]
                # Unsigned: an index that may be negative is wrapped, and that costs the vector code.
                for i in range(np.uint64(size)):
                    left[i] &= np.uint8((begin[i] <= x) & (x < end[i]))
                some = False
                for eight in eights:
                    some |= eight != 0
            if not some:
                continue
            for i in range(size):
                if left[i]:
                    if needed < len(out):
                        out[needed] = np.int64(row) << 32 | (first + i)
                    needed += 1
    return needed


@kernel(types.int64(_MATRIX, _MATRIX, writes(types.int64, 1)))
def scan_rows(ends, points, out):  # type: ignore[no-untyped-def]
    """``ends``: ``float64[n, 2 d]``, lower and upper end by turns. As ``scan_columns``."""
    count, dims = ends.shape[0], points.shape[1]
    needed = 0
    for first in range(0, count, BLOCK):
        for row in range(points.shape[0]):
            for box in range(first, min(first + BLOCK, count)):
                j = 0
                while (
                    j < dims and ends[box, 2 * j] <= points[row, j] and points[row, j] < ends[box, 2 * j + 1]
                ):
                    j += 1
                if j == dims:
                    if needed < len(out):
                        out[needed] = np.int64(row) << 32 | box
                    needed += 1
    return needed
