"""Kernels of the signature bitmaps: filling them, sweeping them, verifying what is left.

Layout. A *tile* is 256 boxes of a group, so four words of 64 bits. A *block* is up to 64 tiles, so a set of
its tiles is one word; it has ``shared`` rows and some more, each for one attribute. ``blocks[b]`` has the
columns below. Row j, from ``FIRST_ROW`` to below ``STOP_ROW``, is about ``attribute[j]``, whose 256 windows
are taken together by ``1 << shift[j]``. In a tile the *lines* of a row, one for each such coarse window,
begin at ``line[j]``: bit i of ``lines[at]`` says that box i of the tile may hold a value of the window.
``hulls`` has, for each shared row of a block and each of 64 coarse windows, the tiles that have such a box.

Rows come in fours; where there are fewer, the last one is repeated. Then four lines are met at a time,
without a loop around few of them. (A loop over them that cannot be left early is turned into gathers by the
compiler and takes three times as long; a signed number as an index costs a test.)

What is found is the *key* ``row << 32 | box``. Not for: choosing groups, rows or windows (``signatures``,
``bitmaps_rows``).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from service.index.kernel import kernel, reads, writes

FIRST_BOX, TILES, SHARED, FIRST_ROW, STOP_ROW, FIRST_HULL, FIRST_LINE, TILE_LINES = range(8)
"""Columns of a block: its first box; how many tiles; how many shared rows; its rows; where its hulls and its
lines begin; lines a tile."""

TILE = 256
BLOCK = 64 * TILE
HULLS = 64
"""Coarse windows of the hulls."""

_PASS = 1024
"""Points that pass over a block together."""
_FEW = 12
"""Points for which putting them in the order of tiles does not pay."""
_ROOM = 8192
"""Keys that wait to be verified."""

_ONE, _TWO, _THREE = np.uint64(1), np.uint64(2), np.uint64(3)
_NONE, _FOUR = np.uint64(0), np.uint64(4)
_ALL = ~_NONE

# Multiplied with 1 << i, the number has in its six highest bits what it has there shifted by i: all differ.
_DE_BRUIJN, _HIGH = np.uint64(0x03F79D71B4CB0A89), np.uint64(58)
_PLACE = np.empty(64, np.int64)
for _place in range(64):
    _PLACE[((0x03F79D71B4CB0A89 << _place) & (2**64 - 1)) >> 58] = _place


class Bits(NamedTuple):
    """The bitmaps of all blocks, see the module: ``int64[b, 8]``, then ``[rows]`` three times, then
    ``uint64`` in one column and in four."""

    blocks: NDArray[np.int64]
    attribute: NDArray[np.uint8]
    shift: NDArray[np.uint8]
    line: NDArray[np.uint16]
    hulls: NDArray[np.uint64]
    lines: NDArray[np.uint64]


_BITS: Any = types.NamedTuple(  # type: ignore[no-untyped-call]
    (
        reads(types.int64, 2),
        reads(types.uint8, 1),
        reads(types.uint8, 1),
        reads(types.uint16, 1),
        reads(types.uint64, 1),
        reads(types.uint64, 2),
    ),
    Bits,
)
_WINDOWS = reads(types.uint8, 2)
_POINTS = reads(types.float64, 2)
_FLOATS = reads(types.float64, 1)
_INTS = reads(types.int32, 1)
_KEYS = writes(types.int64, 1)
_BOXES = (reads(types.uint32, 1), reads(types.uint8, 1), _FLOATS, _FLOATS, _INTS, _INTS)


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
    """Sets the bits of one block. ``spans``: ``uint8[n, rows, 2]``, the first and last window of each box in
    the attribute of each row. O(n rows windows)."""
    boxes, rows, _ = spans.shape
    line = 0
    for tile in range((boxes + TILE - 1) // TILE):
        for j in range(rows):
            low, high = 255, 0
            for box in range(TILE * tile, min(TILE * tile + TILE, boxes)):
                first, last = spans[box, j, 0], spans[box, j, 1]
                low, high = min(low, first), max(high, last)
                bit = _ONE << np.uint64(box & 63)
                for window in range(first >> shift[j], (last >> shift[j]) + 1):
                    lines[line + window, (box & (TILE - 1)) >> 6] |= bit
            line += 256 >> shift[j]
            if j < shared:
                for window in range(low >> 2, (high >> 2) + 1):
                    hulls[j * HULLS + window] |= _ONE << np.uint64(tile)


@kernel(types.int64(_BITS, _WINDOWS, writes(types.int64, 1), writes(types.uint16, 2), _KEYS))
def sweep_points(bits, windows, cursor, table, found):  # type: ignore[no-untyped-def]
    """Fills ``found`` from the point ``cursor[1]`` at the block ``cursor[0]`` on, and moves the cursor to
    where there was no more room, or behind the last block. Returns the number of keys."""
    blocks, attribute, shift, line, hulls, lines = bits
    used = 0
    number, row = cursor[0], cursor[1]
    while number < blocks.shape[0] and used <= _ROOM:
        first_row, stop_row = blocks[number, FIRST_ROW], blocks[number, STOP_ROW]
        hull = blocks[number, FIRST_HULL]
        some = _ALL
        for r in range(blocks[number, SHARED]):
            some &= hulls[hull + r * HULLS + (windows[attribute[first_row + r], row] >> 2)]
            if some == _NONE:
                break
        if some:
            for r in range(first_row, stop_row):
                table[0, r - first_row] = line[r] + (windows[attribute[r], row] >> shift[r])
        while some:
            tile = _PLACE[((some & (~some + _ONE)) * _DE_BRUIJN) >> _HIGH]
            some &= some - _ONE
            base = np.uint64(blocks[number, FIRST_LINE] + tile * blocks[number, TILE_LINES])
            rows = np.uint64(stop_row - first_row)
            a = b = c = d = _ALL
            for j in range(_NONE, rows, _FOUR):
                k, m = base + np.uint64(table[_NONE, j]), base + np.uint64(table[_NONE, j + _ONE])
                n, o = base + np.uint64(table[_NONE, j + _TWO]), base + np.uint64(table[_NONE, j + _THREE])
                a &= lines[k, _NONE] & lines[m, _NONE] & lines[n, _NONE] & lines[o, _NONE]
                b &= lines[k, _ONE] & lines[m, _ONE] & lines[n, _ONE] & lines[o, _ONE]
                c &= lines[k, _TWO] & lines[m, _TWO] & lines[n, _TWO] & lines[o, _TWO]
                d &= lines[k, _THREE] & lines[m, _THREE] & lines[n, _THREE] & lines[o, _THREE]
                if a | b | c | d == _NONE:
                    break
            if a | b | c | d != _NONE:
                key = (row << 32) + blocks[number, FIRST_BOX] + TILE * tile
                for bits_of in (a, b, c, d):
                    left = bits_of
                    while left:
                        found[used] = key + _PLACE[((left & (~left + _ONE)) * _DE_BRUIJN) >> _HIGH]
                        left &= left - _ONE
                        used += 1
                    key += 64
        row += 1
        if row == windows.shape[1]:
            row = 0
            number += 1
    cursor[0], cursor[1] = number, row
    return used


@kernel(types.int64(*_BOXES, types.int64, _POINTS, types.int64, _KEYS, types.int64, _KEYS))
def verify(starts, attributes, lo, hi, slots, removed_at, version, points, used, found, needed, out):  # type: ignore[no-untyped-def]
    """Tests keys exactly and writes those that hold, with slots for boxes, behind ``needed`` others. Returns
    how many there are now."""
    # Most fail at the first or the last constraint: without a branch, the cache misses of many overlap.
    left = 0
    for f in range(used):
        key = found[f]
        row, box = key >> 32, key & 0xFFFFFFFF
        e, g = np.int64(starts[box]), np.int64(starts[box + 1]) - 1
        x, y = points[row, attributes[e]], points[row, attributes[g]]
        found[left] = key
        left += (lo[e] <= x) & (x < hi[e]) & (lo[g] <= y) & (y < hi[g])
    for f in range(left):
        key = found[f]
        row, box = key >> 32, key & 0xFFFFFFFF
        e, g = np.int64(starts[box]) + 1, np.int64(starts[box + 1]) - 1
        while e < g and lo[e] <= points[row, attributes[e]] and points[row, attributes[e]] < hi[e]:
            e += 1
        if e >= g and removed_at[box] > version:
            if needed < len(out):
                out[needed] = (row << 32) | slots[box]
            needed += 1
    return needed


@kernel(types.int64(_BITS, *_BOXES, types.int64, _POINTS, _WINDOWS, _KEYS))
def search(bits, starts, attributes, lo, hi, slots, removed_at, version, points, windows, out):  # type: ignore[no-untyped-def]
    """Writes the key ``row << 32 | slot`` of every box around a point that lived at ``version``, at most
    ``len(out)``; returns how many there are. ``starts``: ``uint32[n + 1]``; ``windows``: ``uint8[dims, m]``.
    """
    blocks = bits.blocks
    found = np.empty(_ROOM + BLOCK + 1, np.int64)
    most = np.int64(4)
    for number in range(blocks.shape[0]):
        most = max(most, blocks[number, STOP_ROW] - blocks[number, FIRST_ROW])
    needed = 0
    cursor = np.zeros(2, np.int64)
    table = np.empty((1, most), np.uint16)
    while cursor[0] < blocks.shape[0] and points.shape[0] > 0:
        used = sweep_points(bits, windows, cursor, table, found)
        needed = verify(
            starts, attributes, lo, hi, slots, removed_at, version, points, used, found, needed, out
        )
    return needed
