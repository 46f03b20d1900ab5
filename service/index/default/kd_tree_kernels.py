"""Kernels that grow the kd tree of ``kd_tree``, level by level; the words are there.

``lo``, ``hi``: ``float64[n, k]``. ``cells``: ``float64[w, 2, k]``, the lower and upper ends of the cells of a
level's nodes. ``starts``: ``int64[w + 1]``, ``entries``: ``int32[e]``, the boxes that cut each cell.

Not for: finding the leaf of a point (``kd_kernels``).
"""

from __future__ import annotations

import numpy as np
from numba import types

from service.index.kernel import kernel, reads, writes

_LOOKED_AT = 12
"""Boxes whose ends decide where a node is split."""
_COUNTED = 1024
"""Boxes that decide in which attribute a node is split."""
_WORTH = 0.8
"""A split may add as many entries as this, times the tests that it saves at a point of either side."""

_BOXES = reads(types.float64, 2)
_CELLS = reads(types.float64, 3)
_STARTS = reads(types.int64, 1)
_ENTRIES = reads(types.int32, 1)


@kernel(
    types.float64(
        _BOXES, _BOXES, _ENTRIES, types.int64, types.float64, types.float64, writes(types.float64, 1)
    )
)
def middle_end(lo, hi, entries, attribute, low, high, ends):  # type: ignore[no-untyped-def]
    """About the median of the ends of some boxes strictly between low and high in an attribute; NaN if none
    of those looked at is. ``ends`` is scratch of ``2 * _LOOKED_AT``."""
    count = 0
    stride = max(1, len(entries) // _LOOKED_AT)
    for i in range(0, min(len(entries), stride * _LOOKED_AT), stride):
        box = entries[i]
        for side in range(2):
            end = hi[box, attribute] if side else lo[box, attribute]
            if not (low < end and end < high):
                continue
            place = count
            while place > 0 and ends[place - 1] > end:
                ends[place] = ends[place - 1]
                place -= 1
            ends[place] = end
            count += 1
    return ends[count // 2] if count else np.nan


@kernel(types.boolean(_BOXES, _BOXES, types.int64, reads(types.float64, 2), types.int64))
def covers_others(lo, hi, box, cell, attribute):  # type: ignore[no-untyped-def]
    """Whether a box covers the cell in all attributes but one."""
    for j in range(lo.shape[1]):
        if j != attribute and not (lo[box, j] <= cell[0, j] and cell[1, j] <= hi[box, j]):
            return False
    return True


@kernel(
    types.void(
        _BOXES,
        _BOXES,
        _CELLS,
        _STARTS,
        _ENTRIES,
        types.int64,
        writes(types.int8, 1),
        writes(types.float64, 1),
        writes(types.int64, 3),
    )
)
def choose(lo, hi, cells, starts, entries, leaf, attributes, values, counts):  # type: ignore[no-untyped-def]
    """Where each node of a level is to be split: writes the attribute (-1 for a leaf), the value, and
    ``counts[node, side]``: how many boxes will cut the cell on each side, and how many cover it.

    For every attribute the median end is tried; the one that leaves the fewest entries is taken, if they are
    worth it. A node of at most ``leaf`` boxes stays a leaf. O(k entries)."""
    ends = np.empty(2 * _LOOKED_AT, np.float64)
    for node in range(len(starts) - 1):
        start, stop = starts[node], starts[node + 1]
        attributes[node] = -1
        size = stop - start
        if size <= leaf:
            continue
        stride = max(1, size // _COUNTED)
        least = 2 * size + 1
        best = -1
        for j in range(lo.shape[1]):
            at = middle_end(lo, hi, entries[start:stop], j, cells[node, 0, j], cells[node, 1, j], ends)
            if np.isnan(at):
                continue
            both = 0
            for i in range(start, stop, stride):
                both += (lo[entries[i], j] < at) + (hi[entries[i], j] > at)
            if both < least:
                least, best = both, j
                values[node] = at
        if best < 0:
            continue
        at = values[node]
        low, high = cells[node, 0, best], cells[node, 1, best]
        below, above, covered_below, covered_above = 0, 0, 0, 0
        for i in range(start, stop):
            box = entries[i]
            begin, end = lo[box, best], hi[box, best]
            below += begin < at
            above += end > at
            # Rarely either, so the branch is cheap.
            spans_below = (begin <= low) & (at <= end)
            spans_above = (begin <= at) & (high <= end)
            if (spans_below or spans_above) and covers_others(lo, hi, box, cells[node], best):
                covered_below += spans_below
                covered_above += spans_above
        counts[node, 0, 0], counts[node, 0, 1] = below - covered_below, covered_below
        counts[node, 1, 0], counts[node, 1, 1] = above - covered_above, covered_above
        added = counts[node].sum() - size
        if added <= _WORTH * (2 * size - counts[node, 0, 0] - counts[node, 1, 0]):
            attributes[node] = best


@kernel(
    types.void(
        _BOXES,
        _BOXES,
        _CELLS,
        _STARTS,
        _ENTRIES,
        reads(types.int8, 1),
        reads(types.float64, 1),
        writes(types.int32, 1),
        writes(types.int32, 1),
        writes(types.int32, 1),
    )
)
def part(lo, hi, cells, starts, entries, attributes, values, cutting, covering, kept):  # type: ignore[no-untyped-def]
    """Writes the entries of the next level's nodes, below and above by turns: those that cut their cells
    (``cutting``, with room for one more) and those that cover them; and ``kept``, the entries of the leaves
    of this level. O(k entries)."""
    cut, cover, keep = 0, 0, 0
    for node in range(len(starts) - 1):
        j, at = attributes[node], values[node]
        if j < 0:
            for i in range(starts[node], starts[node + 1]):
                kept[keep] = entries[i]
                keep += 1
            continue
        for side in range(2):
            low = at if side else cells[node, 0, j]
            high = cells[node, 1, j] if side else at
            for i in range(starts[node], starts[node + 1]):
                box = entries[i]
                begin, end = lo[box, j], hi[box, j]
                # Written in any case and kept if it belongs there: a branch would be a guess.
                cutting[cut] = box
                meets = (begin < high) & (low < end)
                if begin <= low and high <= end and covers_others(lo, hi, box, cells[node], j):
                    covering[cover] = box
                    cover += 1
                    meets = False
                cut += meets


@kernel(types.void(reads(types.int8, 1), _ENTRIES, _STARTS, writes(types.int32, 1), writes(types.int32, 2)))
def descend(attributes, children, covering_starts, above, depths):  # type: ignore[no-untyped-def]
    """Writes ``above``, and how often each attribute is split above each node; both are -1 and 0 at first.
    Parents come before their children. O(k nodes)."""
    for node in range(len(attributes)):
        j = attributes[node]
        if j < 0:
            continue
        nearest = node if covering_starts[node] < covering_starts[node + 1] else above[node]
        for child in range(children[node], children[node] + 2):
            above[child] = nearest
            depths[child] = depths[node]
            depths[child, j] += 1


@kernel(
    types.void(
        _BOXES,
        _BOXES,
        _STARTS,
        _ENTRIES,
        _CELLS,
        writes(types.float64, 3),
    )
)
def write_ranges(lo, hi, starts, entries, cells, ranges):  # type: ignore[no-untyped-def]
    """Writes for each leaf and attribute the least and the largest end strictly inside the cell, of the boxes
    ``entries[starts[leaf]:starts[leaf + 1]]``; zeros if there is none. O(k entries)."""
    for leaf in range(len(starts) - 1):
        for j in range(lo.shape[1]):
            low, high = cells[leaf, 0, j], cells[leaf, 1, j]
            least, most = high, low
            for i in range(starts[leaf], starts[leaf + 1]):
                begin, end = lo[entries[i], j], hi[entries[i], j]
                if low < begin:
                    least, most = min(least, begin), max(most, begin)
                if end < high:
                    least, most = min(least, end), max(most, end)
            if least > most:
                least, most = 0.0, 0.0
            ranges[leaf, 0, j], ranges[leaf, 1, j] = least, most
