"""The corner transform: boxes of d attributes as points of 2 d, and the order that files them.

Idea (Spatial Join paper, Sect. 5.2, 5.4): the box ``[lo, hi)`` becomes the point ``(lo_1, hi_1, .. lo_d,
hi_d)``. A point has no extent, so large boxes, and an attribute without a constraint, which is ``[-inf,
inf)``, do no harm: they are far out on their axes, beside others of their kind. Points are then filed by
halving: each cut is across one of the 2 d axes, at a value, until a *run* of boxes is left. Runs are what a
search looks at, whole.

The paper takes the multilevel grid file (MLGF) and allows any multi-dimensional point structure. Here the
partition is that of a kd-tree made in one go: like the MLGF it cuts the space of corners into disjoint
regions, one a run, under a directory over those that hold something; unlike it, it cuts between two boxes and
not at a binary fraction of a bounded domain. So it needs no bounds and no rounding, every run is full, and
float64 ends are compared as they are.

Which axis to cut: the one that most shrinks what the two sides span in the original space together, found on
a sample; a run is met by the points inside of that span. A cut falls at the sample's median, or at the edge
of the values equal to it: free attributes part from constrained ones.

Invariants: the order is a permutation; every cut falls on a multiple of the run.

Not for: finding boxes (``spatial_join_kernels``), or boxes that come one by one (``filed``).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from service.index.kernel import kernel, reads, writes
from service.index.protocol import Bounds

_SAMPLE = 32
_QUANTILES = 1024


def corner_order(lo: Bounds, hi: Bounds, run: int) -> NDArray[np.int64]:
    """The order that files n boxes ``float64[n, d]`` in runs of ``run``: a permutation ``int64[n]``.

    O(n log n) for cuts, and O(d n / run) samples for the choice of their axes.
    """
    order = np.arange(len(lo), dtype=np.int64)
    if len(lo) > run:
        step = -(-len(lo) // _QUANTILES)
        ends = np.sort(np.concatenate([lo[::step], hi[::step]]).T, axis=1)
        halve(lo, hi, np.ascontiguousarray(ends), run, order)
    return order


@kernel(types.int64(reads(types.float64, 1), types.float64))
def rank_of(values, x):  # type: ignore[no-untyped-def]
    """How many of some sorted values are below x. O(log n), without a branch to predict."""
    base = 0
    count = len(values)
    if count == 0:
        return 0
    while count > 1:
        half = count >> 1
        base = base + half if values[base + half - 1] < x else base
        count -= half
    return base + (1 if values[base] < x else 0)


@kernel(types.void(writes(types.float64, 1), writes(types.int64, 1), types.int64, types.int64, types.int64))
def select(keys, order, first, stop, middle):  # type: ignore[no-untyped-def]
    """Permutes ``keys`` and ``order`` within ``first .. stop`` so that no key before ``middle`` exceeds one
    from there on. Hoare's quickselect, O(stop - first) on average, also where all keys are equal."""
    stop -= 1
    while first < stop:
        a, b, c = keys[first], keys[(first + stop) // 2], keys[stop]
        pivot = max(min(a, b), min(max(a, b), c))
        i, j = first, stop
        while i <= j:
            while keys[i] < pivot:
                i += 1
            while keys[j] > pivot:
                j -= 1
            if i <= j:
                keys[i], keys[j] = keys[j], keys[i]
                order[i], order[j] = order[j], order[i]
                i += 1
                j -= 1
        if middle <= j:
            stop = j
        elif middle >= i:
            first = i
        else:
            return


@kernel(types.float64(reads(types.int64, 2), reads(types.int64, 1), types.int64))
def shrinkage(ranks, by_key, split):  # type: ignore[no-untyped-def]
    """What share of its span in one attribute a sample keeps if cut before ``by_key[split]``, on average.

    ``ranks``: ``int64[s, 2]``, lower and upper ends; ``by_key``: the sample in the order of the cut axis.
    """
    spans = np.zeros(3, np.int64)
    for side in range(3):
        low, high = np.int64(1) << 60, np.int64(-1)
        for i in range(split if side == 2 else 0, split if side == 1 else len(by_key)):
            low = min(low, ranks[by_key[i], 0])
            high = max(high, ranks[by_key[i], 1])
        spans[side] = high - low + 1
    return (split * spans[1] + (len(by_key) - split) * spans[2]) / (len(by_key) * spans[0])


@kernel(types.int64(reads(types.int64, 2), writes(types.int64, 1), types.int64))
def sort_and_split(ranks, by_key, side):  # type: ignore[no-untyped-def]
    """Sorts a sample by one end, and returns the place nearest to its middle where that end changes; 0 if it
    is the same in all."""
    count = len(by_key)
    for i in range(count):
        moved = i
        j = i - 1
        while j >= 0 and ranks[by_key[j], side] > ranks[moved, side]:
            by_key[j + 1] = by_key[j]
            j -= 1
        by_key[j + 1] = moved
    for away in range(count // 2 + 1):
        for place in (count // 2 - away, count // 2 + away):
            if 0 < place < count and ranks[by_key[place - 1], side] < ranks[by_key[place], side]:
                return place
    return 0


_BOUNDS = reads(types.float64, 2)
_CUT: Any = types.UniTuple(types.int64, 3)  # type: ignore[no-untyped-call]


@kernel(_CUT(_BOUNDS, _BOUNDS, _BOUNDS, reads(types.int64, 1)))
def chosen_cut(lo, hi, ends, boxes):  # type: ignore[no-untyped-def]
    """Across which axis to cut some boxes: (attribute, side, box), side 0 for lower and 1 for upper ends.

    The box with that end is the first of the second half; -1 if the sample does not tell the axes apart.
    """
    count = min(len(boxes), _SAMPLE)
    sampled = np.empty(count, np.int64)
    for i in range(count):
        sampled[i] = boxes[i * len(boxes) // count]
    ranks = np.empty((count, 2), np.int64)
    by_key = np.empty(count, np.int64)
    least = 1.0
    attribute, end, box = 0, 0, np.int64(-1)
    for j in range(lo.shape[1]):
        for i in range(count):
            ranks[i, 0] = rank_of(ends[j], lo[sampled[i], j])
            ranks[i, 1] = rank_of(ends[j], hi[sampled[i], j])
        for side in range(2):
            split = sort_and_split(ranks, by_key, side)
            if split == 0:
                continue
            kept = shrinkage(ranks, by_key, split)
            if kept < least or box < 0:
                least, attribute, end, box = kept, j, side, np.int64(sampled[by_key[split]])
    return attribute, end, box


@kernel(types.void(_BOUNDS, _BOUNDS, _BOUNDS, types.int64, writes(types.int64, 1)))
def halve(lo, hi, ends, run, order):  # type: ignore[no-untyped-def]
    """Arranges ``order``, box numbers, so that each ``run`` of them is one region of the corner space.

    ``ends``: ``float64[d, q]``, sorted ends of each attribute, in whose ranks spans are measured.
    """
    keys = np.empty(len(order), np.float64)
    # The smaller side is kept for later, so these never grow beyond log2 n.
    firsts = np.empty(64, np.int64)
    stops = np.empty(64, np.int64)
    depth = 0
    first, stop = np.int64(0), np.int64(len(order))
    while True:
        if stop - first <= run:
            if depth == 0:
                return
            depth -= 1
            first, stop = firsts[depth], stops[depth]
            continue
        j, side, box = chosen_cut(lo, hi, ends, order[first:stop])
        below = np.int64(0)
        threshold = (lo[box, j] if side == 0 else hi[box, j]) if box >= 0 else 0.0
        for i in range(first, stop):
            keys[i] = lo[order[i], j] if side == 0 else hi[order[i], j]
            below += keys[i] < threshold
        if box < 0:
            below = (stop - first) // 2
        runs = (stop - first + run - 1) // run
        middle = first + run * min(max((below + run // 2) // run, 1), runs - 1)
        select(keys, order, first, stop, middle)
        if middle - first < stop - middle:
            firsts[depth], stops[depth] = first, middle
            first = middle
        else:
            firsts[depth], stops[depth] = middle, stop
            stop = middle
        depth += 1
