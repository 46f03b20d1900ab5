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
"""Half of this is what a window may have of own boxes besides half of those around its values: as many as are
compared in the time of a look-up."""

_NEAR = 8
"""Lower ends of a cell that are counted without a branch."""

_ROWS = 64
"""Points that are looked up before the first of them is answered: what they miss in the cache overlaps."""

FAR = 2.0**900
MOST_SCALE = 2.0**120
"""Values beyond FAR share a cell, and no more cells than this go into a unit of value: nothing overflows."""


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
    hold its lower end: a window ends as soon as it has more boxes of its own than half of that.
    O(n / BLOCK)."""
    count, first = min(len(around), 1), 0
    for block in range(len(around)):
        if 2 * (block * BLOCK - first) > around[block] + SLACK:
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
    header, floats, numbers = arena.view(np.int64), arena.view(np.float64), arena.view(np.int32)
    lo, lo_end, hi = header[0] >> 3, header[1] >> 3, header[2] >> 3
    slots, removed_at = header[4] >> 2, header[6] >> 2
    cells, cells_end = header[8] >> 2, header[9] >> 2
    window_of, windows = header[10] >> 2, header[12] >> 2
    ends, names, filed = header[14] >> 3, header[16] >> 2, header[18] >> 2
    origin, scale = floats[header[20] >> 3], floats[(header[20] >> 3) + 1]
    attribute = np.int64(floats[(header[20] >> 3) + 2])
    # By point: behind the last box whose lower end is at most the value, the first of its window, the first
    # of its entries, behind the last of them.
    places = np.empty((4, min(points.shape[0], _ROWS)), np.int64)
    needed = np.int64(0)
    if lo == lo_end:
        return needed
    for base in range(0, points.shape[0], _ROWS):
        count = min(_ROWS, points.shape[0] - base)
        for i in range(count):
            cell = cells + cell_of(points[base + i, attribute], origin, scale, cells_end - cells - 1)
            places[0, i], places[1, i] = numbers[cell], numbers[cell + 1]
        for i in range(count):
            x = points[base + i, attribute]
            low, high = places[0, i] + lo, places[1, i] + lo
            if low + _NEAR <= lo_end:
                # Lower ends of later cells are above the value, so it does no harm to look at them.
                near, below = np.uint64(low), np.int64(0)
                for ahead in range(np.uint64(_NEAR)):
                    below += floats[near + ahead] <= x
                low += below
                if below < _NEAR:
                    high = low
            while low < high:
                middle = (low + high) >> 1
                if floats[middle] <= x:
                    low = middle + 1
                else:
                    high = middle
            places[0, i] = low - lo
        for i in range(count):
            window = windows + 2 * np.int64(numbers[window_of + (max(places[0, i], 1) - 1) // BLOCK])
            places[1, i], places[2, i], places[3, i] = (
                numbers[window],
                numbers[window + 1],
                numbers[window + 3],
            )
        for i in range(count):
            x = points[base + i, attribute]
            key = np.int64(base + i) << 32
            stop, first, begin, last = places[0, i], places[1, i], places[2, i], places[3, i]
            # No value is below the lower end of its window's first box, but one that is below all.
            if stop == 0:
                continue
            # Entries around the value are those from ``around`` on. Unsigned, because an index that may be
            # negative costs the vector code.
            more = np.int64(0)
            for at in range(np.uint64(ends + begin), np.uint64(ends + last)):
                more += x < floats[at]
            around = last - more
            if stop - first + more > len(out) - needed:
                for box in range(first, stop):
                    if x < floats[hi + box] and (whole or numbers[removed_at + box] > version):
                        if needed < len(out):
                            out[needed] = key | numbers[slots + box]
                        needed += 1
                for entry in range(around, last):
                    if whole or numbers[removed_at + numbers[filed + entry]] > version:
                        if needed < len(out):
                            out[needed] = key | numbers[names + entry]
                        needed += 1
                continue
            # Room for all that may come: keys are written without a branch.
            seen, written = np.int32(version), np.uint64(needed)
            end, slot, mark = np.uint64(hi + first), np.uint64(slots + first), np.uint64(removed_at + first)
            name, listed = np.uint64(names + around), np.uint64(filed + around)
            if whole:
                for ahead in range(np.uint64(stop - first)):
                    out[written] = key | numbers[slot + ahead]
                    written += np.uint64(x < floats[end + ahead])
                for ahead in range(np.uint64(more)):
                    out[written + ahead] = key | numbers[name + ahead]
                written += np.uint64(more)
            else:
                for ahead in range(np.uint64(stop - first)):
                    out[written] = key | numbers[slot + ahead]
                    written += np.uint64((x < floats[end + ahead]) & (numbers[mark + ahead] > seen))
                for ahead in range(np.uint64(more)):
                    its_mark = removed_at + np.int64(numbers[listed + ahead])
                    out[written] = key | numbers[name + ahead]
                    written += np.uint64(numbers[its_mark] > seen)
            needed = np.int64(written)
    return needed
