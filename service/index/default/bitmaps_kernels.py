"""Kernels of the signature bitmaps: fill them, sweep them, verify what is left.

Layout. A *tile* is 256 boxes of a group, so a set of its boxes is four words of 64 bits. A *block* is up to
64 tiles, so a set of its tiles is one word; ``blocks`` has a line for each, with the columns below. Row j,
from FIRST_ROW to below STOP_ROW, is about ``attribute[j]``, whose 256 windows are taken together ``1 <<
shift[j]`` at a time. In a tile the *lines* of a row, one for each of these wider windows, begin at
``line[j]``: bit i of ``lines[at]`` says that box i of the tile may hold a value there. ``hulls`` says, for
each shared row of a block and each of 64 windows, which tiles have such a box.

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

_MANY = 256
"""Points for which it pays to read a block in order before it is read at random."""
_ROOM = 8192
"""Keys after which it is time to verify."""

_NONE, _ONE, _TWO, _THREE, _FOUR = (np.uint64(i) for i in range(5))
_ALL = ~_NONE

# The powers 1 << i all differ modulo 67, which tells the place of the lowest bit set.
_PRIME = np.uint64(67)
_PLACE = np.zeros(67, np.int64)
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

    ``spans``: ``uint8[c, 2]``, the first and the last window of each constraint; or ``[0, 2]``, not kept."""

    chunks: NDArray[np.int64]
    offsets: NDArray[np.uint16]
    attributes: NDArray[np.uint8]
    spans: NDArray[np.uint8]
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
    reads(types.uint8, 2),
    reads(types.float64, 1),
    reads(types.float64, 1),
    reads(types.int32, 1),
)
_BITS: Any = types.NamedTuple(_BITS_COLUMNS, Bits)  # type: ignore[no-untyped-call]
_EXACT: Any = types.NamedTuple(_EXACT_COLUMNS, Exact)  # type: ignore[no-untyped-call]
_WINDOWS = reads(types.uint8, 2)
_POINTS = reads(types.float64, 2)
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
            by = np.int64(shift[j])
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


@kernel(types.void(reads(types.float64, 2), _POINTS, writes(types.uint8, 2)))
def locate(cuts, points, windows):  # type: ignore[no-untyped-def]
    """Writes the windows of points: ``uint8[m, dims]``; a NaN is in window 0. O(m dims)."""
    for a in range(points.shape[1]):
        for row in range(points.shape[0]):
            x = points[row, a]
            window = 0
            # A binary search over 255 cuts, without a branch.
            for bit in range(7, -1, -1):
                step = 1 << bit
                window += step if cuts[a, window + step - 1] <= x else 0
            windows[row, a] = window


@kernel(types.int64(_BITS, _WINDOWS, writes(types.int64, 1), writes(types.uint16, 1), _KEYS))
def sweep(bits, windows, cursor, table, found):  # type: ignore[no-untyped-def]
    """Writes keys of points and boxes that may hold them, none missing. ``windows``: ``uint8[m, dims]``;
    ``table``: room for the rows of a block; ``found``: room for _ROOM + BLOCK keys.

    Begins with the point ``cursor[1]`` at the block ``cursor[0]``, and moves the cursor to where there was no
    more room, or behind the last block. Returns the number of keys. O(m blocks), and the tiles looked at."""
    blocks, attribute, shift, line, hulls, lines = bits
    used = 0
    number, row = cursor[0], cursor[1]
    while number < blocks.shape[0] and used <= _ROOM:
        first_row, stop_row = blocks[number, FIRST_ROW], blocks[number, STOP_ROW]
        first_line, tile_lines = blocks[number, FIRST_LINE], blocks[number, TILE_LINES]
        if row == 0 and windows.shape[0] >= _MANY:
            read = _NONE
            for at in range(first_line, first_line + blocks[number, TILES] * tile_lines, 2):
                read |= lines[at, 0]
            found[used] = np.int64(read & _ONE)  # or it would not be read at all
        tiles = _ALL
        for r in range(blocks[number, SHARED]):
            hull = blocks[number, FIRST_HULL] + r * HULLS
            tiles &= hulls[hull + (windows[row, attribute[first_row + r]] >> 2)]
            if tiles == _NONE:
                break
        if tiles != _NONE:
            for r in range(first_row, stop_row):
                table[r - first_row] = line[r] + (windows[row, attribute[r]] >> shift[r])
        while tiles != _NONE:
            tile = _PLACE[(tiles & (~tiles + _ONE)) % _PRIME]
            tiles &= tiles - _ONE
            base = np.uint64(first_line + tile * tile_lines)
            a = b = c = d = _ALL
            for j in range(_NONE, np.uint64(stop_row - first_row), _FOUR):
                k, m = base + np.uint64(table[j]), base + np.uint64(table[j + _ONE])
                n, o = base + np.uint64(table[j + _TWO]), base + np.uint64(table[j + _THREE])
                a &= lines[k, _NONE] & lines[m, _NONE] & lines[n, _NONE] & lines[o, _NONE]
                b &= lines[k, _ONE] & lines[m, _ONE] & lines[n, _ONE] & lines[o, _ONE]
                c &= lines[k, _TWO] & lines[m, _TWO] & lines[n, _TWO] & lines[o, _TWO]
                d &= lines[k, _THREE] & lines[m, _THREE] & lines[n, _THREE] & lines[o, _THREE]
            if a | b | c | d == _NONE:
                continue
            key = (row << 32) + blocks[number, FIRST_BOX] + TILE * tile
            for word in (a, b, c, d):
                boxes = word
                while boxes != _NONE:
                    found[used] = key + _PLACE[(boxes & (~boxes + _ONE)) % _PRIME]
                    boxes &= boxes - _ONE
                    used += 1
                key += 64
        row += 1
        if row == windows.shape[0]:
            row = 0
            number += 1
    cursor[0], cursor[1] = number, row
    return used


@kernel(types.int64(_EXACT, _WINDOWS, types.int64, _KEYS))
def narrow(exact, windows, used, found):  # type: ignore[no-untyped-def]
    """Keeps, of the first ``used`` keys, those whose windows are in the spans of the first, a middle and the
    last constraint of the box; returns how many. A few bytes that are near tell what else takes several
    numbers that are far."""
    chunks, offsets, attributes, spans, _, _, _ = exact
    left = np.int64(0)
    for f in range(used):
        key = found[f]
        row, box = key >> 32, key & 0xFFFFFFFF
        e = chunks[box // CHUNK] + np.int64(offsets[box])
        g = chunks[(box + 1) // CHUNK] + np.int64(offsets[box + 1]) - 1
        m = (e + g) >> 1
        x, y, z = windows[row, attributes[e]], windows[row, attributes[m]], windows[row, attributes[g]]
        holds = (spans[e, 0] <= x) & (x <= spans[e, 1]) & (spans[m, 0] <= y) & (y <= spans[m, 1])
        found[left] = key
        left += np.int64(holds & (spans[g, 0] <= z) & (z <= spans[g, 1]))
    return left


@kernel(
    types.int64(_EXACT, reads(types.int32, 1), types.int64, _POINTS, types.int64, _KEYS, types.int64, _KEYS)
)
def verify(exact, removed_at, version, points, used, found, needed, out):  # type: ignore[no-untyped-def]
    """Tests the first ``used`` keys exactly and writes those that hold, with the slot for the box, behind the
    ``needed`` that are in ``out``. Returns how many there are then; the keys are lost."""
    chunks, offsets, attributes, _, lo, hi, slots = exact
    # The first and the last constraint of all, without a branch, so that their cache misses overlap.
    left = np.int64(0)
    for f in range(used):
        key = found[f]
        row, box = key >> 32, key & 0xFFFFFFFF
        e = chunks[box // CHUNK] + np.int64(offsets[box])
        g = chunks[(box + 1) // CHUNK] + np.int64(offsets[box + 1]) - 1
        x, y = points[row, attributes[e]], points[row, attributes[g]]
        found[left] = key
        left += np.int64((lo[e] <= x) & (x < hi[e]) & (lo[g] <= y) & (y < hi[g]))
    for f in range(left):
        row, box = found[f] >> 32, found[f] & 0xFFFFFFFF
        e = chunks[box // CHUNK] + np.int64(offsets[box]) + 1
        g = chunks[(box + 1) // CHUNK] + np.int64(offsets[box + 1]) - 1
        while e < g and lo[e] <= points[row, attributes[e]] and points[row, attributes[e]] < hi[e]:
            e += 1
        if e >= g and removed_at[box] > version:
            if needed < len(out):
                out[needed] = (row << 32) | slots[box]
            needed += 1
    return needed


@kernel(types.int64(reads(types.uint8, 1), types.int64, _POINTS, _KEYS))
def search(arena, version, points, out):  # type: ignore[no-untyped-def]
    """Writes ``row << 32 | slot`` for every box around a point that lived at ``version``, at most
    ``len(out)``; returns how many there are. ``points``: ``float64[m, dims]``. ``arena``: the arrays of
    ``Bits``, those of ``Exact``, the cuts ``float64[dims, 255]`` and ``removed_at int32[n]``."""
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
        arena[header[18] : header[19]].reshape((-1, 2)),
        floats[header[20] >> 3 : header[21] >> 3],
        floats[header[22] >> 3 : header[23] >> 3],
        numbers[header[24] >> 2 : header[25] >> 2],
    )
    cuts = floats[header[26] >> 3 : header[27] >> 3].reshape((dims, -1))
    removed_at = numbers[header[28] >> 2 : header[29] >> 2]
    windows = np.empty(points.shape, np.uint8)
    locate(cuts, points, windows)
    blocks = bits.blocks
    most = np.int64(0)
    for number in range(blocks.shape[0]):
        most = max(most, blocks[number, STOP_ROW] - blocks[number, FIRST_ROW])
    table = np.empty(most, np.uint16)
    found = np.empty(_ROOM + BLOCK + 1, np.int64)
    cursor = np.zeros(2, np.int64)
    needed = 0
    while cursor[0] < blocks.shape[0] and points.shape[0] > 0:
        used = sweep(bits, windows, cursor, table, found)
        if exact.spans.shape[0] > 0:
            used = narrow(exact, windows, used, found)
        needed = verify(exact, removed_at, version, points, used, found, needed, out)
    return needed
