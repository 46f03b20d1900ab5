"""Kernels of the signature bitmaps: fill them, sweep them, verify what is left.

Layout. A *tile* is 256 boxes of a group, so a set of its boxes is four words of 64 bits. A *block* is up to
64 tiles, so a set of its tiles is one word; ``blocks`` has a line for each, with the columns below. Row j,
from FIRST_ROW to below STOP_ROW, is about ``attribute[j]``, whose 65,536 steps are taken together ``1 <<
shift[j]`` at a time. In a tile the *lines* of a row, one for each of these wider windows, begin at
``line[j]``: bit i of ``lines[at]`` says that box i of the tile may hold a value there. ``hulls`` says, for
each shared row of a block and each of 64 windows, which tiles have such a box.

All points of a batch that look at a tile do so one after another, tile by tile: its lines are read in order
once, and after that from the nearest cache. The boxes that they leave are tested some tiles later, in the
order of the boxes, so these too are read once.

Rows come in fours; the last one is repeated where there are fewer. So four lines are met at a time: a plain
loop over the rows is turned into gathers by the compiler, which takes three times as long. Numbers of lines
are unsigned, because a signed index is tested for being negative. A kernel called by another is a call, which
costs as much as meeting four lines, so these are in one piece.

A *key* is ``row << 32 | box``. Not for: choosing groups, rows or windows (``bitmaps_groups``,
``bitmaps_rows``, ``bitmaps_windows``).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from service.index.kernel import kernel, reads, writes

FIRST_BOX, TILES, SHARED, FIRST_ROW, STOP_ROW, FIRST_HULL, FIRST_LINE, TILE_LINES = range(8)
"""Columns of a block: its first box and how many tiles; how many of its rows are shared, and which rows are
its own; where its hulls and its lines begin; how many lines a tile has."""

BLOCK_COLUMNS = 8
TILE = 256
BLOCK = 64 * TILE
HULLS = 64
CHUNK = 256
"""Boxes that have one number to count their constraints from."""

_ROWS = 1024
"""Points that pass together: their numbers fit in two bytes."""
_MANY = 8
"""Points for which it pays to read a tile in order before it is read at random."""
_ROOM = 2048
"""Keys after which it is time to verify."""
_DENSE = 10
"""Boxes, first to last, a key up to which it pays to read their spans in order."""

_NONE, _ONE, _TWO, _THREE, _FOUR = (np.uint64(i) for i in range(5))
_HALF, _BY_HULL = np.uint64(32), np.uint64(10)
_HULLS, _TILE, _CHUNK = np.uint64(HULLS), np.uint64(TILE), np.uint64(CHUNK)
_BOX = np.uint64(2**31 - 1)
_SURE = np.uint64(1 << 31)
"""Of a key: no comparison can change it."""
_ALL = ~_NONE

# The powers 1 << i all differ modulo 67, which tells the place of the lowest bit set.
_PRIME = np.uint64(67)
_PLACE = np.zeros(67, np.uint64)
for _place in range(64):
    _PLACE[(1 << _place) % 67] = _place


class Bits(NamedTuple):
    """The bitmaps of b blocks with r rows, see the module: ``int64[b, 8]``, ``uint8[r]``, ``uint8[r]``,
    ``uint16[r]``, ``uint64[HULLS * shared rows]``, ``uint64[all lines, 4]``."""

    blocks: NDArray[np.int64]
    attribute: NDArray[np.uint8]
    shift: NDArray[np.uint8]
    line: NDArray[np.uint16]
    hulls: NDArray[np.uint64]
    lines: NDArray[np.uint64]


class Exact(NamedTuple):
    """n boxes with c constraints as they are, as in ``Sparse``, but box i has its entries from
    ``chunks[i // CHUNK] + offsets[i]`` on: ``int64[n // CHUNK + 1]``, ``uint16[n + 1]``.

    ``spans``: ``uint16[c, 2]``, the steps of the first and the last value of each constraint; or ``[0, 2]``,
    not kept."""

    chunks: NDArray[np.int64]
    offsets: NDArray[np.uint16]
    attributes: NDArray[np.uint8]
    spans: NDArray[np.uint16]
    lo: NDArray[np.float64]
    hi: NDArray[np.float64]
    slots: NDArray[np.int32]


_BITS_COLUMNS = (
    reads(types.int64, 2),
    reads(types.uint8, 1),
    reads(types.uint8, 1),
    reads(types.uint16, 1),
    reads(types.uint64, 1),
    reads(types.uint64, 2),
)
_EXACT_COLUMNS = (
    reads(types.int64, 1),
    reads(types.uint16, 1),
    reads(types.uint8, 1),
    reads(types.uint16, 2),
    reads(types.float64, 1),
    reads(types.float64, 1),
    reads(types.int32, 1),
)
_BITS: Any = types.NamedTuple(_BITS_COLUMNS, Bits)  # type: ignore[no-untyped-call]
_EXACT: Any = types.NamedTuple(_EXACT_COLUMNS, Exact)  # type: ignore[no-untyped-call]
_STEPS = reads(types.uint16, 2)
_POINTS = reads(types.float64, 2)
_CUTS = reads(types.float64, 2)
_KEYS = writes(types.int64, 1)


@kernel(
    types.void(
        reads(types.uint8, 3),
        reads(types.uint8, 1),
        types.int64,
        writes(types.uint64, 1),
        writes(types.uint64, 2),
    )
)
def fill(spans, shift, shared, hulls, lines):  # type: ignore[no-untyped-def]
    """Sets the bits of one block of n boxes. ``spans``: ``uint8[n, rows, 2]``, the first and the last window
    of each box in the attribute of each row. O(n rows windows)."""
    boxes, rows, _ = spans.shape
    line = np.int64(0)
    for tile in range((boxes + TILE - 1) // TILE):
        for j in range(rows):
            by = np.int64(shift[j]) - 8
            low, high = np.int64(255), np.int64(0)
            for box in range(TILE * tile, min(TILE * tile + TILE, boxes)):
                first, last = np.int64(spans[box, j, 0]), np.int64(spans[box, j, 1])
                low, high = min(low, first), max(high, last)
                bit = _ONE << np.uint64(box & 63)
                for window in range(first >> by, (last >> by) + 1):
                    lines[line + window, (box & (TILE - 1)) >> 6] |= bit
            line += 256 >> by
            if j < shared:
                for window in range(low >> 2, (high >> 2) + 1):
                    hulls[j * HULLS + window] |= _ONE << np.uint64(tile)


@kernel(types.uint16(_CUTS, _CUTS, types.uint64, types.float64))
def step_of(cuts, scales, a, x):  # type: ignore[no-untyped-def]
    """The step of a value of attribute a; see ``bitmaps_windows``. O(1)."""
    window = _NONE
    # A binary search over 255 cuts, without a branch; so is what follows.
    for bit in range(7, -1, -1):
        half = np.uint64(1 << bit)
        window += half if cuts[a, window + half - _ONE] <= x else _NONE
    place = (x * 0.5 - cuts[a, max(window, _ONE) - _ONE] * 0.5) * scales[a, window]
    place = place if place > 0.0 else 0.0
    return window << np.uint64(8) | np.uint64(np.int64(place if place < 255.0 else 255.0))


@kernel(types.void(_CUTS, _CUTS, _POINTS, writes(types.uint16, 2)))
def locate(cuts, scales, points, steps):  # type: ignore[no-untyped-def]
    """Writes the steps of points: ``uint16[m, dims]``; a NaN has the step 0. O(m dims)."""
    for a in range(np.uint64(points.shape[1])):
        for row in range(np.uint64(points.shape[0])):
            steps[row, a] = step_of(cuts, scales, a, points[row, a])


@kernel(
    types.void(
        reads(types.uint8, 1),
        reads(types.float64, 1),
        reads(types.float64, 1),
        _CUTS,
        _CUTS,
        writes(types.uint16, 2),
    )
)
def write_spans(attributes, lo, hi, cuts, scales, spans):  # type: ignore[no-untyped-def]
    """Writes the steps of the first and of the last value of each interval. O(c)."""
    for entry in range(len(attributes)):
        a = np.uint64(attributes[entry])
        spans[entry, 0] = step_of(cuts, scales, a, lo[entry])
        spans[entry, 1] = step_of(cuts, scales, a, np.nextafter(hi[entry], -np.inf))


@kernel(
    types.int64(
        _BITS,
        _STEPS,
        writes(types.int64, 1),
        writes(types.uint16, 2),
        writes(types.uint16, 2),
        writes(types.int64, 1),
        _KEYS,
    )
)
def sweep(bits, steps, cursor, table, looks, counts, found):  # type: ignore[no-untyped-def]
    """Writes keys of points and boxes that may hold them, none missing. ``steps``: ``uint16[m, dims]``;
    ``table``: ``uint16[m, r]``, room for the lines of each point in a tile of a block, which has at most r
    rows; ``looks``: ``uint16[64, m]``, room for the points that look at each tile of a block; ``counts``:
    ``int64[64]``, how many these are, zeros at first and at last; ``found``: room for _ROOM + TILE * m keys
    and one more.

    Goes on with the tiles ``cursor[1]`` (a bit each) of the block ``cursor[0]``, or begins with it if there
    is none, and moves the cursor to where there was no more room, or behind the last block. Returns the
    number of keys. O(m blocks), and the tiles looked at."""
    blocks, attribute, shift, line, hulls, lines = bits
    met = np.empty(4, np.uint64)
    used = _NONE
    number, waiting = cursor[0], np.uint64(cursor[1])
    while number < blocks.shape[0] and used <= _ROOM:
        first_row, stop_row = np.uint64(blocks[number, FIRST_ROW]), np.uint64(blocks[number, STOP_ROW])
        first_line, tile_lines = np.uint64(blocks[number, FIRST_LINE]), np.uint64(blocks[number, TILE_LINES])
        if waiting == _NONE:
            shared = first_row + np.uint64(blocks[number, SHARED])
            for point in range(np.uint64(steps.shape[0])):
                hull, tiles = np.uint64(blocks[number, FIRST_HULL]), _ALL
                for r in range(first_row, shared):
                    tiles &= hulls[hull + (steps[point, attribute[r]] >> _BY_HULL)]
                    hull += _HULLS
                    if tiles == _NONE:
                        break
                waiting |= tiles
                if tiles != _NONE:
                    for r in range(first_row, stop_row):
                        at = line[r] + (steps[point, attribute[r]] >> shift[r])
                        table[point, r - first_row] = at
                while tiles != _NONE:
                    tile = _PLACE[(tiles & (~tiles + _ONE)) % _PRIME]
                    tiles &= tiles - _ONE
                    looks[tile, np.uint64(counts[tile])] = point
                    counts[tile] += 1
        while waiting != _NONE and used <= _ROOM:
            tile = _PLACE[(waiting & (~waiting + _ONE)) % _PRIME]
            waiting &= waiting - _ONE
            base = first_line + tile * tile_lines
            first_box = np.uint64(blocks[number, FIRST_BOX]) + tile * _TILE
            if counts[tile] >= _MANY:
                read = _NONE
                for at in range(base, base + tile_lines, _TWO):
                    read |= lines[at, _NONE]
                found[used] = np.int64(read & _ONE)  # or it would not be read at all
            for look in range(np.uint64(counts[tile])):
                row = np.uint64(looks[tile, look])
                a = b = c = d = _ALL
                for j in range(_NONE, stop_row - first_row, _FOUR):
                    k, m = base + np.uint64(table[row, j]), base + np.uint64(table[row, j + _ONE])
                    n, o = base + np.uint64(table[row, j + _TWO]), base + np.uint64(table[row, j + _THREE])
                    a &= lines[k, _NONE] & lines[m, _NONE] & lines[n, _NONE] & lines[o, _NONE]
                    b &= lines[k, _ONE] & lines[m, _ONE] & lines[n, _ONE] & lines[o, _ONE]
                    c &= lines[k, _TWO] & lines[m, _TWO] & lines[n, _TWO] & lines[o, _TWO]
                    d &= lines[k, _THREE] & lines[m, _THREE] & lines[n, _THREE] & lines[o, _THREE]
                if a | b | c | d == _NONE:
                    continue
                met[_NONE], met[_ONE], met[_TWO], met[_THREE] = a, b, c, d
                key = (row << _HALF) + first_box
                for word in range(_FOUR):
                    boxes = met[word]
                    while boxes != _NONE:
                        found[used] = key + _PLACE[(boxes & (~boxes + _ONE)) % _PRIME]
                        boxes &= boxes - _ONE
                        used += _ONE
                    key += np.uint64(64)
            counts[tile] = 0
        if waiting == _NONE:
            number += 1
    cursor[0], cursor[1] = number, np.int64(waiting)
    return used


@kernel(types.int64(_EXACT, _STEPS, types.int64, _KEYS))
def narrow(exact, steps, used, found):  # type: ignore[no-untyped-def]
    """Keeps, of the first ``used`` keys, those whose steps are in the spans of the box, and marks as sure
    those that are strictly inside of all of them: no value there is outside. Returns how many it keeps.
    There is room for one key more than ``used``."""
    chunks, offsets, attributes, spans, _, _, _ = exact
    first, last = found[0] & 0xFFFFFFFF, found[max(used, 1) - 1] & 0xFFFFFFFF
    if used > 0 and last - first < _DENSE * used:
        # Boxes that lie close: read in order, they are there before they are looked at.
        read = np.int64(0)
        first = chunks[first // CHUNK] + np.int64(offsets[first])
        last = chunks[last // CHUNK] + np.int64(offsets[last])
        for at in range(np.uint64(first), np.uint64(last), np.uint64(16)):
            read ^= np.int64(spans[at, _NONE])
        for at in range(np.uint64(first), np.uint64(last), np.uint64(64)):
            read ^= np.int64(attributes[at])
        found[used] = read  # or they would not be read at all
    left = _NONE
    for f in range(np.uint64(used)):
        key = np.uint64(found[f])
        row, box = key >> _HALF, key & _BOX
        behind = box + _ONE
        e = np.uint64(chunks[box // _CHUNK]) + np.uint64(offsets[box])
        stop = np.uint64(chunks[behind // _CHUNK]) + np.uint64(offsets[behind])
        depth = np.int64(1)
        for g in range(e, stop):
            step = np.int64(steps[row, attributes[g]])
            depth = min(depth, step - np.int64(spans[g, _NONE]), np.int64(spans[g, _ONE]) - step)
        found[left] = key | (np.uint64(depth > 0) * _SURE)
        left += np.uint64(depth >= 0)
    return left


@kernel(types.int64(_EXACT, _POINTS, types.int64, types.int64, _KEYS))
def screen(exact, points, base, used, found):  # type: ignore[no-untyped-def]
    """Keeps, of the first ``used`` keys, those whose points, from ``base`` on, are between the first and the
    last ends of the box; returns how many. Without a branch, so that cache misses overlap."""
    chunks, offsets, attributes, _, lo, hi, _ = exact
    left = _NONE
    for f in range(np.uint64(used)):
        key = np.uint64(found[f])
        row, box = np.uint64(base) + (key >> _HALF), key & _BOX
        behind = box + _ONE
        e = np.uint64(chunks[box // _CHUNK]) + np.uint64(offsets[box])
        g = np.uint64(chunks[behind // _CHUNK]) + np.uint64(offsets[behind]) - _ONE
        x, y = points[row, attributes[e]], points[row, attributes[g]]
        found[left] = key
        left += np.uint64((lo[e] <= x) & (x < hi[e]) & (lo[g] <= y) & (y < hi[g]))
    return left


@kernel(
    types.int64(
        _EXACT,
        reads(types.int32, 1),
        types.int64,
        _POINTS,
        types.int64,
        types.int64,
        _KEYS,
        types.int64,
        _KEYS,
    )
)
def verify(exact, removed_at, version, points, base, used, found, needed, out):  # type: ignore[no-untyped-def]
    """Tests the first ``used`` keys, of rows from ``base`` on, exactly unless they are sure, and writes
    those that hold, with the slot for the box, behind the ``needed`` that are in ``out``. Returns how many
    there are then."""
    chunks, offsets, attributes, _, lo, hi, slots = exact
    for f in range(np.uint64(used)):
        key = np.uint64(found[f])
        row, box = np.uint64(base) + (key >> _HALF), key & _BOX
        if key & _SURE == _NONE:
            behind = box + _ONE
            e = np.uint64(chunks[box // _CHUNK]) + np.uint64(offsets[box])
            stop = np.uint64(chunks[behind // _CHUNK]) + np.uint64(offsets[behind])
            x = points[row, attributes[e]]
            inside = (lo[e] <= x) & (x < hi[e])
            while inside and e + _ONE < stop:
                e += _ONE
                x = points[row, attributes[e]]
                inside = (lo[e] <= x) & (x < hi[e])
            if not inside:
                continue
        if removed_at[box] > version:
            if needed < len(out):
                out[needed] = (row << _HALF) | np.uint64(slots[box])
            needed += 1
    return needed


@kernel(types.int64(reads(types.uint8, 1), types.int64, _POINTS, _KEYS))
def search(arena, version, points, out):  # type: ignore[no-untyped-def]
    """Writes ``row << 32 | slot`` for every box around a point that lived at ``version``, at most
    ``len(out)``; returns how many there are. ``points``: ``float64[m, dims]``. ``arena``: the arrays of
    ``Bits``, those of ``Exact``, the cuts ``float64[dims, 255]``, their scales ``float64[dims, 256]``, and
    ``removed_at int32[n]``."""
    dims = points.shape[1]
    header, longs, floats = arena.view(np.int64), arena.view(np.uint64), arena.view(np.float64)
    numbers, shorts = arena.view(np.int32), arena.view(np.uint16)
    bits = Bits(
        header[header[0] >> 3 : header[1] >> 3].reshape((-1, BLOCK_COLUMNS)),
        arena[header[2] : header[3]],
        arena[header[4] : header[5]],
        shorts[header[6] >> 1 : header[7] >> 1],
        longs[header[8] >> 3 : header[9] >> 3],
        longs[header[10] >> 3 : header[11] >> 3].reshape((-1, 4)),
    )
    exact = Exact(
        header[header[12] >> 3 : header[13] >> 3],
        shorts[header[14] >> 1 : header[15] >> 1],
        arena[header[16] : header[17]],
        shorts[header[18] >> 1 : header[19] >> 1].reshape((-1, 2)),
        floats[header[20] >> 3 : header[21] >> 3],
        floats[header[22] >> 3 : header[23] >> 3],
        numbers[header[24] >> 2 : header[25] >> 2],
    )
    cuts = floats[header[26] >> 3 : header[27] >> 3].reshape((dims, -1))
    scales = floats[header[28] >> 3 : header[29] >> 3].reshape((dims, -1))
    removed_at = numbers[header[30] >> 2 : header[31] >> 2]
    most = min(points.shape[0], _ROWS)
    widest = np.int64(0)
    for number in range(bits.blocks.shape[0]):
        widest = max(widest, bits.blocks[number, STOP_ROW] - bits.blocks[number, FIRST_ROW])
    table = np.empty((most, widest), np.uint16)
    looks, counts = np.empty((64, most), np.uint16), np.zeros(64, np.int64)
    found = np.empty(_ROOM + TILE * most + 1, np.int64)
    steps = np.empty((most, dims), np.uint16)
    cursor = np.empty(2, np.int64)
    needed = 0
    for base in range(0, points.shape[0], max(most, 1)):
        count = min(most, points.shape[0] - base)
        locate(cuts, scales, points[base : base + count], steps[:count])
        cursor[:] = 0
        while cursor[0] < bits.blocks.shape[0]:
            used = sweep(bits, steps[:count], cursor, table, looks, counts, found)
            if exact.spans.shape[0] > 0:
                used = narrow(exact, steps, used, found)
            else:
                used = screen(exact, points, base, used, found)
            needed = verify(exact, removed_at, version, points, base, used, found, needed, out)
    return needed
