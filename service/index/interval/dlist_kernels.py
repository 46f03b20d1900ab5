"""Kernels of direct listing: every cell lists the boxes that meet it.

``entries[lists[c]:lists[c + 1]]`` are the boxes that meet cell c, by their numbers; a box with an end inside
the cell is written as the complement of its number, and compared. For the cells of a box that the list should
have, see ``cei_grid.spans_of``.

Each kernel has a slow twin in the tests of the index. Not for: which cells there are.
"""

from __future__ import annotations

import numpy as np
from numba import types

from service.index.kernel import kernel, reads, writes


@kernel(types.void(reads(types.int64, 2), writes(types.int64, 1), writes(types.int32, 1)))
def list_boxes(spans, lists, entries):  # type: ignore[no-untyped-def]
    """Lists boxes under the cells that they meet, in two passes.

    ``spans``: ``int64[n, 4]``, a box a row: the cells ``[start, stop)`` that it covers whole, and those that
    its lower and its upper end cut (-1: none). With ``entries`` empty, counts: adds one to ``lists[cell]``
    for every entry. Else ``lists[cell]`` holds where the list ends and is moved down to where it begins,
    while the boxes are written, in rising order. O(n + entries).
    """
    listing = len(entries) > 0
    for box in range(spans.shape[0] - 1, -1, -1):
        for cell in range(spans[box, 0], spans[box, 1]):
            if listing:
                lists[cell] -= 1
                entries[lists[cell]] = box
            else:
                lists[cell] += 1
        for end in range(2, 4):
            cell = spans[box, end]
            if cell >= 0:
                if listing:
                    lists[cell] -= 1
                    entries[lists[cell]] = ~box
                else:
                    lists[cell] += 1


@kernel(
    types.int64(
        reads(types.float64, 2),
        reads(types.float64, 2),
        reads(types.int32, 1),
        reads(types.int64, 1),
        reads(types.int32, 1),
        reads(types.int64, 1),
        reads(types.float64, 2),
        writes(types.int64, 1),
    )
)
def search(lo, hi, slots, lists, entries, cells, points, out):  # type: ignore[no-untyped-def]
    """Writes the key ``row << 32 | slot`` of every listed box around a point.

    ``lo``, ``hi``: ``float64[n, 1]``; ``points``: ``float64[m, 1]``; ``cells[row]`` is the cell of a point,
    negative where it is nowhere. Returns the number of keys, of which the first ``len(out)`` are written.
    O(m + entries met).
    """
    needed = 0
    for row in range(len(cells)):
        cell = cells[row]
        if cell < 0:
            continue
        x = points[row, 0]
        for i in range(lists[cell], lists[cell + 1]):
            box = entries[i]
            if box < 0:
                box = ~box
                if not (lo[box, 0] <= x and x < hi[box, 0]):
                    continue
            slot = slots[box]
            if slot >= 0:
                if needed < len(out):
                    out[needed] = (np.int64(row) << 32) | slot
                needed += 1
    return needed
