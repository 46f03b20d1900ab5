"""Tiles: the boxes of a group in an order in which every so many of them lie close together.

Idea: a kd-tree that is not kept. The boxes are cut in two at a whole number of tiles, by the lower or the
upper end in one attribute, whichever leaves the two hulls smallest, and the halves again, until a tile is
left. Wide boxes overlap however they are ordered, but a cut by lower ends bounds one half from below.

Invariant: the order depends on the spans and the order given alone.

Not for: finding tiles; a group has bitmaps for that (``bitmaps_kernels``).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from service.index.default.bitmaps_windows import Windows
from service.index.kernel import kernel, reads, writes


def tiled(spans: Windows, shared: int, tile: int) -> NDArray[np.int32]:
    """An order of n boxes with the spans ``uint8[n, rows, 2]``, by the first ``shared`` rows, of which every
    ``tile`` boxes are a tile; only the last one may have fewer. O(n shared log n)."""
    order = np.arange(len(spans), dtype=np.int32)
    _tile(spans, shared, tile, order, np.empty_like(order))
    return order


_SPANS = reads(types.uint8, 3)
_ORDER = writes(types.int32, 1)
_TALLY = writes(types.int32, 3)
_FOUR: Any = types.UniTuple(types.int64, 4)  # type: ignore[no-untyped-call]


@kernel(types.void(_SPANS, types.int64, _ORDER, types.int64, types.int64, _TALLY, _TALLY))
def _tally(spans, shared, order, first, stop, counts, reach):  # type: ignore[no-untyped-def]
    """Of the boxes ``order[first:stop]``: how many have their lower (side 0) or upper end (side 1) in each
    window, and how far those reach to the other side."""
    for k in range(shared):
        for window in range(256):
            counts[k, 0, window] = counts[k, 1, window] = 0
            reach[k, 0, window], reach[k, 1, window] = -1, 256
    for i in range(first, stop):
        box = order[i]
        for k in range(shared):
            low, high = np.int32(spans[box, k, 0]), np.int32(spans[box, k, 1])
            counts[k, 0, low] += 1
            counts[k, 1, high] += 1
            reach[k, 0, low] = max(reach[k, 0, low], high)
            reach[k, 1, high] = min(reach[k, 1, high], low)


@kernel(_FOUR(types.int64, types.int64, _TALLY, _TALLY))
def _best_cut(shared, rank, counts, reach):  # type: ignore[no-untyped-def]
    """Where to cut so that ``rank`` boxes go to the left: row, side, the window of the box of that rank, and
    how many boxes are in the windows below it."""
    best, best_side, best_pivot, best_below = 0, 0, 0, 0
    least = np.inf
    for k in range(shared):
        lowest, highest = 0, 255
        while counts[k, 0, lowest] == 0:
            lowest += 1
        while counts[k, 1, highest] == 0:
            highest -= 1
        for side in range(2):
            pivot, below = 0, 0
            while below + counts[k, side, pivot] < rank:
                below += counts[k, side, pivot]
                pivot += 1
            # The hulls of both halves; a box in the window of the pivot may go to either.
            if side == 0:
                high = np.int64(0)
                for window in range(lowest, pivot + 1):
                    high = max(high, np.int64(reach[k, 0, window]))
                hulls = (high - lowest + 1) + (highest - pivot + 1)
            else:
                low = np.int64(255)
                for window in range(pivot, highest + 1):
                    low = min(low, np.int64(reach[k, 1, window]))
                hulls = (pivot - lowest + 1) + (highest - low + 1)
            ratio = hulls / (highest - lowest + 1.0)
            if ratio < least:
                least = ratio
                best, best_side, best_pivot, best_below = k, side, pivot, below
    return best, best_side, best_pivot, best_below


@kernel(types.void(_SPANS, types.int64, types.int64, _ORDER, _ORDER))
def _tile(spans, shared, tile, order, spare):  # type: ignore[no-untyped-def]
    """See ``tiled``; ``spare`` is room as long as ``order``."""
    counts, reach = np.empty((shared, 2, 256), np.int32), np.empty((shared, 2, 256), np.int32)
    todo = np.empty((64, 2), np.int64)
    todo[0, 0], todo[0, 1] = 0, len(order)
    depth = 1
    while depth:
        depth -= 1
        first, stop = todo[depth, 0], todo[depth, 1]
        tiles = (stop - first + tile - 1) // tile
        if tiles <= 1:
            continue
        rank = (tiles // 2) * tile
        _tally(spans, shared, order, first, stop, counts, reach)
        row, side, pivot, below = _best_cut(shared, rank, counts, reach)
        # Boxes in the window of the pivot go left until the left is full.
        ties = rank - below
        left, right = first, first + rank
        for i in range(first, stop):
            end = spans[order[i], row, side]
            if end < pivot or (end == pivot and ties > 0):
                ties -= np.int64(end == pivot)
                spare[left] = order[i]
                left += 1
            else:
                spare[right] = order[i]
                right += 1
        order[first:stop] = spare[first:stop]
        todo[depth, 0], todo[depth, 1] = first, first + rank
        todo[depth + 1, 0], todo[depth + 1, 1] = first + rank, stop
        depth += 2
