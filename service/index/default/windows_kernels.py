"""Kernels of the window list; ``windows`` has the idea and the words.

``lo``, ``hi``: ``float64[n]``, ``lo`` rising. ``windows``: ``float64[w + 1, 4]``, by window its least value,
origin and scale of its steps and, as two int32, the first of its own boxes and the first of its entries, both
multiples of BLOCK. ``cells``: ``int32[m + 1]``, the least values of the windows ``cells[c] .. cells[c + 1]``
lie in cell c. ``grid``: ``float64[3]``, origin and scale of the cells, and the attribute.

Window by window, in whole blocks: ``steps``: ``uint16``, the edges of the lower ends of its own boxes, those
of their upper ends, and those of the upper ends of its entries, rising; ``names`` and ``filed``: ``int32``,
the slots and the boxes of its entries, -1 for none. What is behind the last box or before the first entry
holds nothing.

Within a window a value is in one of 65,534 *steps*, and an end is an *edge* of two bytes: a value whose step
is above it is not below the end, one whose step is below it is. What lies on it is compared with the end, one
for all, because ends on one edge are equal; ``doubtful``: ``uint8[w]``, the windows in which they are not.

Not for: the choice of cells and steps.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numpy.typing import NDArray

from service.index.kernel import instruction, kernel, prefetching, reads, writes

BLOCK = 16
"""Windows begin at multiples of this, so what is read of one is in whole blocks."""

SLACK = 16
"""Half of this is what a window may have of own boxes besides half of those around its values: as many as are
compared in the time of a look-up."""

_ROWS = 16
"""Points that are looked up before the first of them is answered. What is read next, of all of them, is
fetched while the others are looked at; of more it would not stay in the nearest cache."""

FAR = 2.0**900
MOST_SCALE = 2.0**120
"""Values beyond FAR share a cell and a step, and no more cells than this go into a unit of value: nothing
overflows."""

NO_EDGE = 65535
"""Above the step of every value."""


class Lists(NamedTuple):
    """What ``search`` reads, in the order of the arena; see the module. ``slots``, ``removed_at``: by box."""

    lo: NDArray[np.float64]
    hi: NDArray[np.float64]
    slots: NDArray[np.int32]
    removed_at: NDArray[np.int32]
    cells: NDArray[np.int32]
    windows: NDArray[np.float64]
    steps: NDArray[np.uint16]
    names: NDArray[np.int32]
    filed: NDArray[np.int32]
    doubtful: NDArray[np.uint8]
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
def write_cells(least, origin, scale, cells):  # type: ignore[no-untyped-def]
    """Writes ``cells`` for rising ``least``. O(w + m)."""
    c = 0
    for window in range(len(least)):
        own = cell_of(least[window], origin, scale, len(cells) - 1)
        while c <= own:
            cells[c] = window
            c += 1
    while c < len(cells):
        cells[c] = len(least)
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


@kernel(types.int64(types.float64, types.float64, types.float64))
def step_of(x, origin, scale):  # type: ignore[no-untyped-def]
    """The step of a value that is not NaN, 1 .. 65534. Monotone; the origin is finite, the scale positive."""
    place = (min(max(x, -FAR), FAR) - origin) * scale
    if place < 0.0:
        return 1
    if place >= 65532.0:
        return 65534
    return np.int64(place) + 2


@kernel(types.int64(types.float64, types.float64, types.float64))
def edge_of(end, origin, scale):  # type: ignore[no-untyped-def]
    """The edge of an end, 1 .. 65534: its step, or one less if no smaller value has that."""
    step = step_of(end, origin, scale)
    return step - (step_of(np.nextafter(end, -np.inf), origin, scale) < step)


_WINDOWS = reads(types.float64, 2)


@kernel(types.void(_FLOATS, _FLOATS, _INTS, _WINDOWS, writes(types.float64, 1)))
def write_spans(lo, hi, filed, windows, most):  # type: ignore[no-untyped-def]
    """Writes for each window the largest end that it has among its values. O(n + entries)."""
    numbers = windows.view(np.int32)
    count = len(most)
    for window in range(count):
        behind = windows[window + 1, 0] if window + 1 < count else np.inf
        largest = windows[window, 0]
        for box in range(numbers[window, 6], min(numbers[window + 1, 6], len(lo))):
            for end in (lo[box], hi[box]):
                if end < behind:
                    largest = max(largest, end)
        for entry in range(numbers[window, 7], numbers[window + 1, 7]):
            if filed[entry] >= 0 and hi[filed[entry]] < behind:
                largest = max(largest, hi[filed[entry]])
        most[window] = largest


@kernel(types.void(_FLOATS, _FLOATS, _INTS, _WINDOWS, writes(types.uint16, 1), writes(types.uint8, 1)))
def encode(lo, hi, filed, windows, steps, doubtful):  # type: ignore[no-untyped-def]
    """Writes ``steps`` and ``doubtful``, zeros at first. O(n + entries)."""
    numbers = windows.view(np.int32)
    count = windows.shape[0] - 1
    # By edge, the window that had it last, and the end.
    window_at, end_at = np.full(NO_EDGE + 1, -1, np.int32), np.empty(NO_EDGE + 1)
    for window in range(count):
        origin, scale = windows[window, 1], windows[window, 2]
        behind = windows[window + 1, 0] if window + 1 < count else np.inf
        first, begin = np.int64(numbers[window, 6]), np.int64(numbers[window, 7])
        own, listed = numbers[window + 1, 6] - first, numbers[window + 1, 7] - begin
        lower = 2 * first + begin
        for i in range(2 * own + listed):
            box = np.int64(filed[begin + i - 2 * own]) if i >= 2 * own else first + i % own
            if box < 0 or box >= len(lo):
                steps[lower + i] = NO_EDGE if i < own else 0
                continue
            end = lo[box] if i < own else hi[box]
            if i >= own and end >= behind:
                steps[lower + i] = NO_EDGE
                continue
            edge = edge_of(end, origin, scale)
            steps[lower + i] = edge
            doubtful[window] |= window_at[edge] == window and end_at[edge] != end
            window_at[edge], end_at[edge] = window, end


@instruction(prefetching(3))
def prefetch(array, at):  # type: ignore[no-untyped-def]
    """Has the element ``at`` of an array brought into the cache meanwhile; it need not be there."""


@kernel(types.void(_INTS, types.int64, types.int64))
def fetch(numbers, first, count):  # type: ignore[no-untyped-def]
    """Has so many numbers from ``first`` on brought into the cache meanwhile: three of their lines, since
    those beside them come by themselves, and a number of lines that varied would be guessed wrong."""
    prefetch(numbers, np.uint64(first))
    prefetch(numbers, np.uint64(first + count // 2))
    prefetch(numbers, np.uint64(first + max(count, 1) - 1))


def _tally(_context, array, at, step):  # type: ignore[no-untyped-def]
    def build(context, builder, signature, args):  # type: ignore[no-untyped-def]
        place = builder.gep(context.make_array(signature.args[0])(context, builder, args[0]).data, [args[1]])
        word, number, block = ir.IntType(64), ir.IntType(32), ir.VectorType(ir.IntType(16), BLOCK)
        edges = builder.load(builder.bitcast(place, block.as_pointer()), align=2)
        first = builder.insert_element(ir.Constant(block, ir.Undefined), args[2], number(0))
        lanes = ir.Constant(ir.VectorType(number, BLOCK), [0] * BLOCK)
        steps = builder.shuffle_vector(first, first, lanes)

        def count(relation):  # type: ignore[no-untyped-def]
            bits = builder.bitcast(builder.icmp_unsigned(relation, edges, steps), ir.IntType(BLOCK))
            return builder.zext(builder.ctpop(bits), word)

        below, at_it = count("<"), count("==")  # type: ignore[no-untyped-call]
        return builder.or_(below, builder.shl(at_it, word(32)))

    return types.uint64(array, types.uint64, types.uint16), build


@instruction(_tally)
def tally(edges, at, step):  # type: ignore[no-untyped-def]
    """How many of BLOCK edges from ``at`` on are below a step, and in the upper half how many are at it."""
    count = np.uint64(0)
    for lane in range(np.uint64(BLOCK)):
        count += np.uint64(edges[at + lane] < step)
        count += np.uint64(edges[at + lane] == step) << np.uint64(32)
    return count


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
    steps = arena.view(np.uint16)
    lo, lo_end, hi = header[0] >> 3, header[1] >> 3, header[2] >> 3
    slots, removed_at = header[4] >> 2, header[6] >> 2
    cells, cells_end, windows = header[8] >> 2, header[9] >> 2, header[10] >> 3
    lists, names, filed, grid = header[12] >> 2, header[14] >> 2, header[16] >> 2, header[20] >> 3
    doubtful = header[18]
    origin, scale, attribute = floats[grid], floats[grid + 1], np.int64(floats[grid + 2])
    # By point: the windows of its cell, then its own; its step, 0 where all ends have to be compared; how
    # many of the own boxes, from the first on, and of the entries, up to the last, may be around it; where
    # the end is that lies on its step, if any, and how many lower ends and how many entries have that end.
    places = np.empty((7, min(points.shape[0], _ROWS)), np.int64)
    width, half, upper_half = np.uint64(BLOCK), np.uint64(0xFFFFFFFF), np.uint64(32)
    seen, needed = np.int32(version), np.int64(0)
    if lo == lo_end:
        return needed
    for base in range(0, points.shape[0], _ROWS):
        count = min(_ROWS, points.shape[0] - base)
        for i in range(count):
            cell = cells + cell_of(points[base + i, attribute], origin, scale, cells_end - cells - 1)
            places[0, i], places[1, i] = numbers[cell], numbers[cell + 1]
            prefetch(floats, np.uint64(windows + 4 * max(places[0, i] - 1, 0)))
        for i in range(count):
            x = points[base + i, attribute]
            low, high = places[0, i], places[1, i]
            while low < high:
                middle = (low + high) >> 1
                if floats[windows + 4 * middle] <= x:
                    low = middle + 1
                else:
                    high = middle
            # What is below all windows is compared with the boxes of the first.
            window = windows + 4 * max(low - 1, 0)
            place = 2 * window + 6
            places[0, i] = place
            places[1, i] = step_of(x, floats[window + 1], floats[window + 2]) if x < np.inf else 0
            first = np.int64(numbers[place]) + numbers[place + 1] // 2
            last = np.int64(numbers[place + 8]) + numbers[place + 9] // 2
            fetch(numbers, lists + first, last - first)
        for i in range(count):
            place, s = places[0, i], places[1, i]
            first, begin = np.int64(numbers[place]), np.int64(numbers[place + 1])
            own, listed = numbers[place + 8] - first, numbers[place + 9] - begin
            at, step = np.uint64(2 * (lists + first) + begin), np.uint16(s)
            lower, upper, ends = np.uint64(0), np.uint64(0), np.uint64(0)
            for block in range(at, at + np.uint64(own), width):
                lower += tally(steps, block, step)
                upper += tally(steps, block + np.uint64(own), step)
            at += np.uint64(2 * own)
            for block in range(at, at + np.uint64(listed), width):
                ends += tally(steps, block, step)
            stop, more = np.int64(lower & half), listed - np.int64((ends & half) + (ends >> upper_half))
            places[4, i] = -1
            if (lower | upper | ends) > half and s > 0:
                # Ends on the step are equal: one of them will be compared.
                if arena[doubtful + (place - 2 * windows) // 8]:
                    s = 0
                elif lower > half:
                    places[4, i] = lo + first + stop
                elif ends > half:
                    places[4, i] = hi + np.int64(numbers[filed + begin + np.int64(ends & half)])
                else:
                    box, at = first, at - np.uint64(own)
                    while steps[at] != step:
                        box, at = box + 1, at + np.uint64(1)
                    places[4, i] = hi + box
                prefetch(floats, np.uint64(max(places[4, i], lo)))
                places[5, i], places[6, i] = np.int64(lower >> upper_half), np.int64(ends >> upper_half)
            if s == 0:
                stop, more = own, listed
            places[1, i], places[2, i], places[3, i] = s, stop, more
            fetch(numbers, slots + first, stop)
            fetch(numbers, names + begin + listed - more, more)
            if not whole:
                # The boxes of most entries are not far before the window's own.
                before = min(2 * more, first)
                fetch(numbers, removed_at + first - before, before)
                fetch(numbers, removed_at + first, stop)
                fetch(numbers, filed + begin + listed - more, more)
        for i in range(count):
            x = points[base + i, attribute]
            key = np.int64(base + i) << 32
            place, step, stop, more = places[0, i], places[1, i], places[2, i], places[3, i]
            first, begin, last = np.int64(numbers[place]), np.int64(numbers[place + 1]), numbers[place + 9]
            own = numbers[place + 8] - first
            if places[4, i] >= 0:
                if x < floats[places[4, i]]:
                    step -= 1
                    more += places[6, i]
                else:
                    stop += places[5, i]
            s = np.uint16(step)
            if s == 0 or stop + more > len(out) - needed:
                for own_box in range(first, min(first + stop, lo_end - lo)):
                    around = floats[lo + own_box] <= x and x < floats[hi + own_box]
                    if around and (whole or numbers[removed_at + own_box] > seen):
                        if needed < len(out):
                            out[needed] = key | numbers[slots + own_box]
                        needed += 1
                for entry in range(last - more, last):
                    box = np.int64(numbers[filed + entry])
                    if box >= 0 and x < floats[hi + box] and (whole or numbers[removed_at + box] > seen):
                        if needed < len(out):
                            out[needed] = key | numbers[names + entry]
                        needed += 1
                continue
            # Room for all that may come: keys are written without a branch.
            written, slot = np.uint64(needed), np.uint64(slots + first)
            upper, mark = np.uint64(2 * (lists + first) + begin + own), np.uint64(removed_at + first)
            name, listed = np.uint64(names + last - more), np.uint64(filed + last - more)
            if whole:
                for ahead in range(np.uint64(stop)):
                    out[written] = key | numbers[slot + ahead]
                    written += np.uint64(s < steps[upper + ahead])
                for ahead in range(np.uint64(more)):
                    out[written + ahead] = key | numbers[name + ahead]
                written += np.uint64(more)
            else:
                for ahead in range(np.uint64(stop)):
                    out[written] = key | numbers[slot + ahead]
                    written += np.uint64((s < steps[upper + ahead]) & (numbers[mark + ahead] > seen))
                for ahead in range(np.uint64(more)):
                    its_mark = removed_at + np.int64(numbers[listed + ahead])
                    out[written] = key | numbers[name + ahead]
                    written += np.uint64(numbers[its_mark] > seen)
            needed = np.int64(written)
    return needed
