"""Tiles: the boxes of a group in an order in which those of a tile lie close together.

Idea: a kd-tree that is not kept. The boxes are cut in two at a multiple of the size of a tile, by the lower
or upper end in one of their attributes, whichever leaves the two hulls smallest, and the halves again, until
one tile is left. Wide boxes overlap however they are ordered, but a cut by lower ends bounds the hull of one
half from below.

Invariant: the order depends on the spans and the order given alone.

Not for: keeping the tree. The tiles of a group are found by bitmaps (``bitmaps``).
"""

from __future__ import annotations

import numpy as np
from numba import types
from numpy.typing import NDArray

from service.index.kernel import kernel, reads, writes

Bytes = NDArray[np.uint8]


def tiled(spans: Bytes, tile: int) -> NDArray[np.int32]:
    """An order of n boxes with the spans ``uint8[n, t, 2]``. O(n t log n)."""
    order = np.arange(len(spans), dtype=np.int32)
    _tile(spans, tile, order, np.empty_like(order))
    return order


@kernel(types.void(reads(types.uint8, 3), types.int64, writes(types.int32, 1), writes(types.int32, 1)))
def _tile(spans, tile, order, spare):  # type: ignore[no-untyped-def]
    """See ``tiled``; ``spare`` is as long as ``order``."""
    boxes, shared, _ = spans.shape
    counts = np.empty((shared, 2, 256), np.int32)
    # Beyond each end, in the order of that end: how far up boxes reach, and how far down.
    reach = np.empty((shared, 2, 256), np.int32)
    todo = np.empty((64, 2), np.int64)
    todo[0, 0], todo[0, 1] = 0, boxes
    depth = 1
    while depth:
        depth -= 1
        first, stop = todo[depth, 0], todo[depth, 1]
        tiles = (stop - first + tile - 1) // tile
        if tiles <= 1:
            continue
        rank = (tiles // 2) * tile
        counts[:] = 0
        reach[:, 0, :] = -1
        reach[:, 1, :] = 256
        for i in range(first, stop):
            box = order[i]
            for k in range(shared):
                low, high = spans[box, k, 0], spans[box, k, 1]
                counts[k, 0, low] += 1
                counts[k, 1, high] += 1
                reach[k, 0, low] = max(reach[k, 0, low], high)
                reach[k, 1, high] = min(reach[k, 1, high], low)
        best, best_side, best_pivot, best_below = 0, 0, 0, 0
        least = np.inf
        for k in range(shared):
            for side in range(2):
                pivot, below = 0, 0
                while below + counts[k, side, pivot] < rank:
                    below += counts[k, side, pivot]
                    pivot += 1
                lowest, highest = 0, 255
                while counts[k, 0, lowest] == 0:
                    lowest += 1
                while counts[k, 1, highest] == 0:
                    highest -= 1
                if side == 0:
                    high = 0
                    for window in range(lowest, pivot + 1):
                        high = max(high, reach[k, 0, window])
                    hulls = (high - lowest + 1) + (highest - pivot + 1)
                else:
                    low = 255
                    for window in range(pivot, highest + 1):
                        low = min(low, reach[k, 1, window])
                    hulls = (pivot - lowest + 1) + (highest - low + 1)
                ratio = hulls / (highest - lowest + 1.0)
                if ratio < least:
                    least = ratio
                    best, best_side, best_pivot, best_below = k, side, pivot, below
        # Boxes at the pivot go left until the left is full.
        ties = rank - best_below
        left, right = first, first + rank
        for i in range(first, stop):
            box = order[i]
            end = spans[box, best, best_side]
            if end < best_pivot or (end == best_pivot and ties > 0):
                if end == best_pivot:
                    ties -= 1
                spare[left] = box
                left += 1
            else:
                spare[right] = box
                right += 1
        order[first:stop] = spare[first:stop]
        todo[depth, 0], todo[depth, 1] = first, first + rank
        todo[depth + 1, 0], todo[depth + 1, 1] = first + rank, stop
        depth += 2
