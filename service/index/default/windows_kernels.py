"""Kernels of the window list; ``windows`` has the idea and the words.

``lo``, ``hi``: ``float64[n]``, ``lo`` rising. ``cells``: ``int32[m + 1]``, the lower ends of the boxes
``cells[c] .. cells[c + 1]`` lie in cell c. ``windows``: ``int32[w + 1, 2]``, by window the first of its own
boxes and the first of its entries. ``window_of``: ``int32``, the window of each BLOCK boxes. Entries, by
rising upper end within a window: that end, ``ends: float64[e]``, the slot, ``names: int32[e]``, and the box,
``filed: int32[e]``. ``grid``: ``float64[3]``, origin and scale of the cells, and the attribute.

Not for: the choice of the cells.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from service.index.kernel import kernel, reads, writes

BLOCK = 16
"""Windows begin at multiples of this, so the window of a box is found without a search."""

SLACK = 16
"""Boxes that a window may have beyond those around its values: what a scan does in the time of a look-up."""

_ROWS = 64
"""Points that are looked up before the first of them is answered: what they miss in the cache overlaps."""

FAR = 2.0**900
MOST_SCALE = 2.0**120
"""Values beyond FAR share a cell, and no more cells than this go into a unit of value: nothing overflows."""

_ARRAYS = 11


class Lists(NamedTuple):
    """What ``search`` reads, in the order of the arena; see the module."""

    lo: NDArray[np.float64]
    hi: NDArray[np.float64]
    slots: NDArray[np.int32]
    removed_at: NDArray[np.int32]
    cells: NDArray[np.int32]
    window_of: NDArray[np.int32]
    windows: NDArray[np.int32]
    ends: NDArray[np.float64]
    names: NDArray[np.int32]
    filed: NDArray[np.int32]
    grid: NDArray[np.float64]


_FLOATS = reads(types.float64, 1)
_INTS = reads(types.int32, 1)


@kernel(types.int64(types.float64, types.float64, types.float64, types.int64))
def cell_of(x, origin, scale, cells):  # type: ignore[no-untyped-def]
    """The cell of a value among equal ones from ``origin`` on, ``scale`` of them a unit of value; values
    beyond share the first and the last, NaN is in the first. Monotone, which is all that matters for
    exactness: ``x <= y`` implies ``cell_of(x) <= cell_of(y)``."""
    place = (min(max(x, -FAR), FAR) - origin) * scale
    if not place > 0.0:
        return 0
    if place >= cells - 1:
        return cells - 1
    return np.int64(place)


@kernel(types.void(_FLOATS, types.float64, types.float64, writes(types.int32, 1)))
def write_cells(lo, origin, scale, cells):  # type: ignore[no-untyped-def]
    """Writes ``cells`` for rising ``lo``. O(n + m)."""
    c = 0
    for box in range(len(lo)):
        own = cell_of(lo[box], origin, scale, len(cells) - 1)
        while c <= own:
            cells[c] = box
            c += 1
    while c < len(cells):
        cells[c] = len(lo)
        c += 1


@kernel(types.int64(reads(types.int64, 1), writes(types.int32, 1)))
def cut(around, window_of):  # type: ignore[no-untyped-def]
    """Writes ``window_of``, returns how many windows there are. ``around[b]`` boxes before box ``b * BLOCK``
    hold its lower end: a window ends as soon as it has more boxes of its own than that. O(n / BLOCK)."""
    count, first = min(len(around), 1), 0
    for block in range(len(around)):
        if block * BLOCK - first > around[block] + SLACK:
            count += 1
            first = block * BLOCK
        window_of[block] = count - 1
    return count


@kernel(
    types.void(
        reads(types.int64, 1), reads(types.int64, 1), _INTS, writes(types.int64, 1), writes(types.int32, 1)
    )
)
def file_boxes(by_hi, last, window_of, starts, entries):  # type: ignore[no-untyped-def]
    """Files boxes, in the order ``by_hi`` of their upper ends, in every window behind their own up to
    ``last[box]``. With ``entries`` empty, counts: adds one to ``starts[window]`` for each filing. Else
    ``starts[window]`` is where the next box of the window is written, and moves on. O(n + entries)."""
    filing = len(entries) > 0
    for box in by_hi:
        for window in range(window_of[box // BLOCK] + 1, last[box] + 1):
            if filing:
                entries[starts[window]] = box
            starts[window] += 1


@kernel(
    types.int64(
        reads(types.uint8, 1),
        reads(types.float64, 2),
        types.int64,
        types.boolean,
        writes(types.int64, 1),
    )
)
def search(arena, points, version, whole, out):  # type: ignore[no-untyped-def]
    """Writes the key ``row << 32 | slot`` of every living box around a point, by its value in the attribute;
    at most ``len(out)``, returns how many there are. ``arena``: the arrays of ``Lists``, in this order;
    ``whole``: whether every box lives. O(log n + hits) a point."""
    header = arena[: 2 * 8 * _ARRAYS].view(np.int64)
    lo, hi = arena[header[0] : header[1]].view(np.float64), arena[header[2] : header[3]].view(np.float64)
    slots = arena[header[4] : header[5]].view(np.int32)
    removed_at = arena[header[6] : header[7]].view(np.int32)
    cells = arena[header[8] : header[9]].view(np.int32)
    window_of = arena[header[10] : header[11]].view(np.int32)
    windows = arena[header[12] : header[13]].view(np.int32)
    ends = arena[header[14] : header[15]].view(np.float64)
    names = arena[header[16] : header[17]].view(np.int32)
    filed = arena[header[18] : header[19]].view(np.int32)
    grid = arena[header[20] : header[21]].view(np.float64)
    attribute = np.int64(grid[2])
    # Behind the last box whose lower end is at most the value, the first of its window, its entries.
    stop = np.empty(_ROWS, np.int64)
    first = np.empty(_ROWS, np.int64)
    last = np.empty(_ROWS, np.int64)
    begin = np.empty(_ROWS, np.int64)
    touched = np.empty(_ROWS, np.int64)
    needed = np.int64(0)
    if len(lo) == 0:
        return needed
    for base in range(0, points.shape[0], _ROWS):
        count = min(_ROWS, points.shape[0] - base)
        for i in range(count):
            cell = cell_of(points[base + i, attribute], grid[0], grid[1], len(cells) - 1)
            first[i], stop[i] = cells[cell], cells[cell + 1]
        for i in range(count):
            x = points[base + i, attribute]
            low, high = first[i], stop[i]
            while low < high:
                middle = (low + high) >> 1
                if lo[middle] <= x:
                    low = middle + 1
                else:
                    high = middle
            stop[i] = low
        for i in range(count):
            window = np.int64(window_of[(max(stop[i], 1) - 1) // BLOCK])
            first[i], begin[i] = windows[2 * window], windows[2 * window + 1]
            last[i] = windows[2 * window + 3]
        # Of no use but to have all that is looked at on its way before the first is.
        for i in range(count if count > 1 else 0):
            touch = np.int64(0)
            for near in range(first[i], stop[i], 8):
                touch ^= np.int64(hi[near])
            for near in range(first[i], stop[i], 16):
                touch ^= slots[near]
            for at in range(begin[i], last[i], 8):
                touch ^= np.int64(ends[at])
            for at in range(begin[i], last[i], 16):
                touch ^= names[at]
            touched[i] = touch
        for i in range(count):
            x = points[base + i, attribute]
            key = np.int64(base + i) << 32
            # No value is below the lower end of its window's first box, but one that is below all.
            if stop[i] == 0:
                continue
            # Entries around the value are those from ``around`` on. Unsigned, because an index that may be
            # negative costs the vector code.
            around = np.int64(0)
            for at in range(np.uint64(begin[i]), np.uint64(last[i])):
                around += x < ends[at]
            around = last[i] - around
            if stop[i] - first[i] + last[i] - around <= len(out) - needed:
                # Room for all that may come: keys are written without a branch.
                seen = np.int32(version)
                written = np.uint64(needed)
                if whole:
                    for near in range(np.uint64(first[i]), np.uint64(stop[i])):
                        out[written] = key | slots[near]
                        written += np.uint64(x < hi[near])
                    ahead = written - np.uint64(around)
                    for at in range(np.uint64(around), np.uint64(last[i])):
                        out[ahead + at] = key | names[at]
                    written += np.uint64(last[i] - around)
                else:
                    for near in range(np.uint64(first[i]), np.uint64(stop[i])):
                        out[written] = key | slots[near]
                        written += np.uint64((x < hi[near]) & (removed_at[near] > seen))
                    for at in range(np.uint64(around), np.uint64(last[i])):
                        out[written] = key | names[at]
                        written += np.uint64(removed_at[np.uint32(filed[at])] > seen)
                needed = np.int64(written)
            else:
                for box in range(first[i], stop[i]):
                    if x < hi[box] and (whole or removed_at[box] > version):
                        if needed < len(out):
                            out[needed] = key | slots[box]
                        needed += 1
                for at in range(around, last[i]):
                    if whole or removed_at[filed[at]] > version:
                        if needed < len(out):
                            out[needed] = key | names[at]
                        needed += 1
    return needed
