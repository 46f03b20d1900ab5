"""Kernels of the window list; ``windows`` has the idea and the words.

``lo``, ``hi``: ``float64[n]``, ``lo`` rising. ``cells``: ``int32[m + 1]``, the lower ends of the boxes
``cells[c] .. cells[c + 1]`` lie in cell c. ``windows``: ``int32[w + 1, 2]``, by window the first of its own
boxes and the first of its entries. ``window_of``: ``int32``, the window of each BLOCK boxes. ``entries``:
``float64[e, 2]``, by rising upper end within a window: that end and, as two int32, the box and its slot.

Not for: the choice of the cells.
"""

from __future__ import annotations

import numpy as np
from numba import types

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
        _FLOATS,
        _FLOATS,
        _INTS,
        _INTS,
        _INTS,
        _INTS,
        reads(types.int32, 2),
        reads(types.float64, 2),
        types.float64,
        types.float64,
        reads(types.float64, 2),
        types.int64,
        types.int64,
        writes(types.int64, 1),
    )
)
def search(  # type: ignore[no-untyped-def]
    lo, hi, slots, removed_at, cells, window_of, windows, entries, origin, scale, points, attribute, version,
    out,
):  # fmt: skip
    """Writes the key ``row << 32 | slot`` of every living box around a point, by its value in ``attribute``;
    at most ``len(out)``, returns how many there are. ``removed_at`` is empty if every box lives.
    O(log n + hits) a point."""
    whole = len(removed_at) == 0
    names = entries.view(np.int32)
    # Behind the last box whose lower end is at most the value, the first of its window, its window.
    stop = np.empty(_ROWS, np.int64)
    first = np.empty(_ROWS, np.int64)
    place = np.empty(_ROWS, np.int64)
    begin = np.empty(_ROWS, np.int64)
    needed = np.int64(0)
    if len(lo) == 0:
        return needed
    for base in range(0, points.shape[0], _ROWS):
        count = min(_ROWS, points.shape[0] - base)
        for i in range(count):
            cell = cell_of(points[base + i, attribute], origin, scale, len(cells) - 1)
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
            window = window_of[(max(stop[i], 1) - 1) // BLOCK]
            first[i], begin[i] = windows[window, 0], windows[window, 1]
            place[i] = windows[window + 1, 1]
        for i in range(count):
            x = points[base + i, attribute]
            key = np.int64(base + i) << 32
            # No value is below the lower end of its window's first box, but one that is below all.
            if stop[i] == 0:
                continue
            own = stop[i] - first[i]
            if own + place[i] - begin[i] <= len(out) - needed:
                # Room for all that may come: keys are written without a branch. Unsigned, because an index
                # that may be negative costs a test.
                seen = np.int32(version)
                written = np.uint64(needed)
                offset = np.uint64(first[i])
                last, least, one = np.uint64(place[i]), np.uint64(begin[i]), np.uint64(1)
                if whole:
                    for ahead in range(np.uint64(own)):
                        near = offset + ahead
                        out[written] = key | slots[near]
                        written += np.uint64(x < hi[near])
                    while last > least and x < entries[last - one, 0]:
                        last -= one
                        out[written] = key | names[last, 3]
                        written += one
                else:
                    for ahead in range(np.uint64(own)):
                        near = offset + ahead
                        out[written] = key | slots[near]
                        written += np.uint64((x < hi[near]) & (removed_at[near] > seen))
                    while last > least and x < entries[last - one, 0]:
                        last -= one
                        out[written] = key | names[last, 3]
                        written += np.uint64(removed_at[np.uint32(names[last, 2])] > seen)
                needed = np.int64(written)
            else:
                for box in range(first[i], stop[i]):
                    if x < hi[box] and (whole or removed_at[box] > version):
                        if needed < len(out):
                            out[needed] = key | slots[box]
                        needed += 1
                at = place[i] - 1
                while at >= begin[i] and x < entries[at, 0]:
                    if whole or removed_at[names[at, 2]] > version:
                        if needed < len(out):
                            out[needed] = key | names[at, 3]
                        needed += 1
                    at -= 1
    return needed
