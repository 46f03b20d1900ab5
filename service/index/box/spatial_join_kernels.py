"""Kernels of Spatial Join: the spatial join window of a cluster, and what is done with the boxes in it.

Words of the paper: a *data cluster* is the MBR ``[a, b]`` of some points near each other; its *spatial join
window* (SJW) holds the boxes with ``lo <= b`` and ``hi > a`` in every attribute, seen as points of the corner
space. ``met_runs`` finds the runs of boxes whose region meets the window, ``candidates`` the boxes of these.

Both filters never miss: regions are closed and exact, and candidates are compared in float32, whose rounding
is monotone (``scan``). Refinement is exact. Of a box and a cluster it asks attribute by attribute

* whether the box covers the cluster there: nothing to do, which is the rule for free attributes;
* else which points it holds. The cluster's values are ranked once, and a bitmap is kept for each rank of the
  points below it. Two ranks, found by a search, and two bitmaps say which points are inside, all at once.

So a pair of a box and a point costs a bit, not a comparison, and large clusters are worth their candidates.

Each step is a kernel over all that the step before has found: a call that passes arrays costs as much as a
candidate (measured, 70 ns), so none is made for one of them.

Not for: how boxes and points come to lie in runs (``corner``, ``hilbert``), the size of a cluster
(``spatial_join_cost``).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from service.index.box.spatial_join_types import FILED
from service.index.kernel import kernel, reads, writes

RUN = 64
"""Boxes a run, and points a cluster of the dual: a block of the scan, a word of a bitmap."""
FANOUT_BITS = 3
"""The logarithm of the number of rectangles under one."""
_WORD = 64


_TWO: Any = types.UniTuple(types.int64, 2)  # type: ignore[no-untyped-call]
_ROW = reads(types.float64, 1)
_TABLE = reads(types.float64, 2)
_NUMBERS = writes(types.int32, 1)
_KEYS = writes(types.int64, 1)
# A de Bruijn sequence: multiplied by a power of two, its top six bits tell which power it was.
_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
_BIT = np.zeros(64, np.int64)
_BIT[[(0x03F79D71B4CB0A89 << i & 0xFFFFFFFFFFFFFFFF) >> 58 for i in range(64)]] = np.arange(64)


@kernel(types.int64(_TABLE, reads(types.int64, 1), _ROW, _ROW, _NUMBERS))
def met_runs(ends, levels, low, high, runs):  # type: ignore[no-untyped-def]
    """Writes which runs have a rectangle that meets the closed ``[low, high]``, and returns how many have.

    ``runs`` has room for all. O(rectangles looked at), d each with early exit.
    """
    dims = len(low)
    top = len(levels) - 2
    last = (1 << FANOUT_BITS) - 1
    count = 0
    run = np.int64(0)
    while run < levels[1]:
        # The largest subtree that begins here; the rectangles above it were met on the way to the last run.
        level = 0
        while level < top and run >> (FANOUT_BITS * level) & last == 0:
            level += 1
        while level >= 0:
            node = levels[level] + (run >> (FANOUT_BITS * level))
            j = 0
            while j < dims and ends[node, j] <= high[j] and low[j] <= ends[node, dims + j]:
                j += 1
            if j < dims:
                break
            level -= 1
        if level < 0:
            runs[count] = run
            count += 1
            run += 1
        else:
            run += 1 << (FANOUT_BITS * level)
    return count


@kernel(types.int64(FILED, _ROW, _ROW, _NUMBERS, _NUMBERS))
def candidates(filed, low, high, runs, boxes):  # type: ignore[no-untyped-def]
    """Writes which filed boxes may meet the closed ``[low, high]`` (Fig. 11, line 9), returns how many may.

    ``runs`` and ``boxes`` have room for all. The boxes of a run are compared attribute by attribute, without
    a branch a box, and left as soon as there is none. O(rectangles + 64 d runs).
    """
    passed = np.empty(RUN, np.uint8)
    eights = passed.view(np.uint64)
    count = 0
    for met in range(met_runs(filed.ends, filed.levels, low, high, runs)):
        run = np.int64(runs[met])
        ends = filed.near[run]
        for i in range(RUN):
            passed[i] = 1
        some = True
        for j in range(len(low)):
            if not some:
                break
            a = np.float32(low[j])
            b = np.float32(high[j])
            some = False
            # Unsigned: an index that may be negative is wrapped, and that costs the vector code.
            lower = np.uint64(2 * j * RUN)
            upper = np.uint64((2 * j + 1) * RUN)
            for i in range(np.uint64(RUN)):
                meets = (ends[lower + i] <= b) & (a <= ends[upper + i]) & (passed[i] != 0)
                passed[i] = meets
                some |= meets
        if not some:
            continue
        for eight in range(RUN // 8):
            if eights[eight] == 0:
                continue
            for i in range(8 * eight, 8 * eight + 8):
                if passed[i] != 0 and run * RUN + i < filed.stop:
                    boxes[count] = run * RUN + i
                    count += 1
    return count


@kernel(types.int64(FILED, _TABLE, _KEYS))
def join_immediate(filed, points, out):  # type: ignore[no-untyped-def]
    """SJ-Immediate: each point is a cluster of its own (Sect. 5.1), so what is in its window holds it.

    ``points``: ``float64[m, d]``, any; ``out``: keys ``row << 32 | slot``. Returns the number of keys, of
    which the first ``len(out)`` are written. O(m (rectangles + 64 d runs) + candidates).
    """
    dims = points.shape[1]
    runs = np.empty(filed.levels[1], np.int32)
    boxes = np.empty(RUN * len(runs), np.int32)
    needed = 0
    for row in range(len(points)):
        j = 0
        while j < dims and points[row, j] < np.inf:
            j += 1
        if j < dims:
            continue  # NaN or infinity, which no box holds
        for candidate in range(candidates(filed, points[row], points[row], runs, boxes)):
            box = boxes[candidate]
            j = 0
            while j < dims and filed.lo[box, j] <= points[row, j] and points[row, j] < filed.hi[box, j]:
                j += 1
            if j == dims and filed.slots[box] >= 0:
                if needed < len(out):
                    out[needed] = (np.int64(row) << 32) | filed.slots[box]
                needed += 1
    return needed


@kernel(types.int64(types.int64))
def room_for(count):  # type: ignore[no-untyped-def]
    """The least power of four that is not below ``count``."""
    room = 1
    while room < count:
        room *= 4
    return room


@kernel(types.void(_TABLE, types.int64, writes(types.float64, 2), writes(types.uint64, 3)))
def rank_cluster(columns, first, ranked, below):  # type: ignore[no-untyped-def]
    """Ranks the values of the cluster ``columns[:, first : first + c]``, attribute by attribute.

    ``ranked``: ``float64[d, room]``, sorted values, and infinity behind the c of them; ``below``: ``uint64[d,
    c + 1, words]``, for each rank r the set of the r points with the least values. O(d c (log c + words)).
    """
    count = below.shape[1] - 1
    words = below.shape[2]
    for j in range(len(ranked)):
        order = np.argsort(columns[j, first : first + count])
        for word in range(words):
            below[j, 0, word] = 0
        for rank in range(count):
            point = order[rank]
            ranked[j, rank] = columns[j, first + point]
            for word in range(words):
                below[j, rank + 1, word] = below[j, rank, word]
            below[j, rank + 1, point // _WORD] |= np.uint64(1) << np.uint64(point % _WORD)
        for rank in range(count, ranked.shape[1]):
            ranked[j, rank] = np.inf


@kernel(_TWO(_TABLE, types.int64, types.float64, types.float64))
def ranks_in(values, j, x, y):  # type: ignore[no-untyped-def]
    """How many of the sorted ``values[j]`` are below x, and below y. Their number is a power of four.

    Each step leaves a quarter, and both searches go side by side: no branch to predict, and half the steps of
    a binary search to wait for. O(log n).
    """
    below_x = np.int64(0)
    below_y = np.int64(0)
    quarter = values.shape[1] >> 2
    while quarter > 0:
        a, b = below_x + quarter - 1, below_y + quarter - 1
        quarters_x = np.int64(values[j, a] < x) + np.int64(values[j, a + quarter] < x)
        quarters_y = np.int64(values[j, b] < y) + np.int64(values[j, b + quarter] < y)
        below_x += quarter * (quarters_x + np.int64(values[j, a + 2 * quarter] < x))
        below_y += quarter * (quarters_y + np.int64(values[j, b + 2 * quarter] < y))
        quarter >>= 2
    return below_x + np.int64(values[j, below_x] < x), below_y + np.int64(values[j, below_y] < y)


@kernel(
    types.int64(
        FILED,
        reads(types.int32, 1),
        _TABLE,
        reads(types.uint64, 3),
        reads(types.int32, 1),
        _KEYS,
        types.int64,
    )
)
def refine(filed, boxes, ranked, below, rows, out, needed):  # type: ignore[no-untyped-def]
    """Tests candidates against a ranked cluster (Fig. 11, lines 10 and 11).

    ``boxes``: their numbers; ``rows``: ``int32[c]``, which row each point was. Appends keys behind the first
    ``needed`` and returns how many there are now. O(candidates d (log c + words) + hits).
    """
    dims = len(ranked)
    count = below.shape[1] - 1
    words = below.shape[2]
    held = np.empty(words, np.uint64)
    for box in boxes:
        slot = filed.slots[box]
        if slot < 0:
            continue
        for word in range(words):
            held[word] = below[0, count, word]
        some = np.uint64(1)
        for j in range(dims):
            x, y = filed.lo[box, j], filed.hi[box, j]
            if x <= ranked[j, 0] and ranked[j, count - 1] < y:
                continue
            start, stop = ranks_in(ranked, j, x, y)
            some = np.uint64(0)
            if start < stop:
                for word in range(words):
                    held[word] &= below[j, stop, word] & ~below[j, start, word]
                    some |= held[word]
            if some == 0:
                break
        if some == 0:
            continue
        for word in range(words):
            rest = held[word]
            while rest != 0:
                least = rest & (~rest + np.uint64(1))
                rest ^= least
                if needed < len(out):
                    point = word * _WORD + _BIT[(least * _BRUIJN) >> np.uint64(58)]
                    out[needed] = (np.int64(rows[point]) << 32) | slot
                needed += 1
    return needed


@kernel(types.int64(FILED, _TABLE, reads(types.int32, 1), types.int64, _KEYS))
def join_batch(filed, columns, rows, size, out):  # type: ignore[no-untyped-def]
    """SJ-Batch (Fig. 11): cuts points into clusters of ``size``, the paper's N_dc, and joins each.

    ``columns``: ``float64[d, m]``, points without NaN in the order of the curve, d at least 1; ``rows``:
    ``int32[m]``, which row each was. Returns the number of keys ``row << 32 | slot``, of which the first
    ``len(out)`` are written. O(clusters (rectangles + 64 d runs) + candidates d (log size + size / 64)).
    """
    dims, batch = columns.shape
    low = np.empty(dims, np.float64)
    high = np.empty(dims, np.float64)
    runs = np.empty(filed.levels[1], np.int32)
    boxes = np.empty(RUN * len(runs), np.int32)
    count = 0
    needed = 0
    for first in range(0, batch, size):
        if min(size, batch - first) != count:
            count = min(size, batch - first)
            ranked = np.empty((dims, room_for(count)), np.float64)
            below = np.empty((dims, count + 1, (count + _WORD - 1) // _WORD), np.uint64)
        rank_cluster(columns, first, ranked, below)
        for j in range(dims):
            low[j], high[j] = ranked[j, 0], ranked[j, count - 1]
        found = candidates(filed, low, high, runs, boxes)
        needed = refine(filed, boxes[:found], ranked, below, rows[first : first + count], out, needed)
    return needed


@kernel(
    types.int64(
        _TABLE,
        reads(types.int32, 1),
        _TABLE,
        reads(types.int64, 1),
        _TABLE,
        _TABLE,
        _TABLE,
        _KEYS,
    )
)
def join_boxes(columns, rows, ends, levels, lo, hi, largest, out):  # type: ignore[no-untyped-def]
    """The dual: boxes probe a directory of data clusters of 64 points.

    ``columns``, ``rows``: as for ``join_batch``; ``ends``, ``levels``: the directory of the clusters; boxes
    ``float64[k, d]``, with the largest values inside. Writes keys ``box << 32 | row``, at most ``len(out)``,
    and returns how many there are. O(k rectangles + d points of clusters met in part + hits).
    """
    dims, batch = columns.shape
    passed = np.empty(RUN, np.uint8)
    runs = np.empty(levels[1], np.int32)
    needed = 0
    for box in range(len(lo)):
        for met in range(met_runs(ends, levels, lo[box], largest[box], runs)):
            run = np.int64(runs[met])
            first = run * RUN
            count = min(RUN, batch - first)
            for i in range(count):
                passed[i] = 1
            for j in range(dims):
                low, high = lo[box, j], hi[box, j]
                if low <= ends[run, j] and ends[run, dims + j] < high:
                    continue
                for i in range(count):
                    x = columns[j, first + i]
                    passed[i] &= (low <= x) & (x < high)
            for i in range(count):
                if passed[i] != 0:
                    if needed < len(out):
                        out[needed] = (np.int64(box) << 32) | rows[first + i]
                    needed += 1
    return needed
