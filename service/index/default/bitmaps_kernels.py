"""Kernels of the signature bitmaps: sweep them, verify what is left.

Layout. A *tile* is 512 boxes of a group, so a set of its boxes is eight words of 64 bits: a line of the
cache. A *block* is up to 64 tiles, so a set of its tiles is one word; ``blocks`` has a line for each, with
the columns below. Row j, from FIRST_ROW to below STOP_ROW, is about ``attribute[j]``, whose 65,536 steps are
taken together ``1 << shift[j]`` at a time. In a tile the *lines* of a row, one for each of these wider
windows, begin at ``line[j]``: bit i of ``lines[at]`` says that box i of the tile may hold a value there.
``hulls`` says, for each shared row of a block and each of 64 windows, which tiles have such a box.

What a point looks at lies all over the memory, so nearly all of its time would be spent on waiting for it.
Where it is, is known long before it is needed: the tiles of some blocks are found first, and while one is
looked at, the lines of the next are fetched; and so it goes with the boxes that they leave. Of many points,
all that look at a tile do so one after another, and fetch the next as a whole: its lines come in order, once.
What a set holds, nobody can foretell, and a branch on it would cost as much as many boxes: sets are written
down as they are found, and some of them taken apart together.

A few machine instructions that no loop is compiled to are written down as such, each with its slow twin.
Numbers of lines are unsigned, because a signed index is tested for being negative. A kernel called by another
is a call, which costs as much as meeting many lines, so these are in few pieces.

A *key* is ``row << 32 | box``. Not for: choosing groups, rows or windows (``bitmaps_groups``,
``bitmaps_rows``, ``bitmaps_windows``), making the bitmaps (``bitmaps_build``).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numpy.typing import NDArray

from service.index.kernel import instruction, kernel, prefetching, reads, writes

FIRST_BOX, TILES, SHARED, FIRST_ROW, STOP_ROW, FIRST_HULL, FIRST_LINE, TILE_LINES = range(8)
"""Columns of a block: its first box and how many tiles; how many of its rows are shared, and which rows are
its own; where its hulls and its lines begin; how many lines a tile has."""

BLOCK_COLUMNS = 8
WORDS = 8
TILE = 64 * WORDS
BLOCK = 64 * TILE
HULLS = 64
CHUNK = 256
"""Boxes that have one number to count their constraints from."""
NEAR = 5
"""Bytes of an entry that are looked at first, if its steps are kept."""
LANES = 4
"""Entries that are compared at a time, where every box has one for each attribute."""
SETS = 32
"""Sets of boxes that wait to be written as keys."""

WORD, FIRST, LEFT, PLACE = range(4)
"""Rows of what waits, ``uint64[4, 8 SETS]``: the words of the sets, one set behind the other; the key of the
first box that each might have. To take them apart: words with boxes left, and the keys where these begin."""

BLOCKS, STOP_BLOCK, NEXT, QUEUED = range(4)
"""Of a cursor: the first of the blocks whose tiles are in the queue, and the first behind them; the next tile
in the queue, and how many are there."""

_ROWS = 1024
"""Points that pass together: their numbers fit in two bytes."""
_TOGETHER = 16
"""Blocks whose tiles are queued together, of a single point; of more, fewer."""
_ROOM = 2048
"""Keys after which it is time to verify."""

_NONE, _ONE, _TWO, _THREE, _FOUR = (np.uint64(i) for i in range(5))
_HALF, _BY_HULL, _BY_TILE = np.uint64(32), np.uint64(10), np.uint64(6)
_HULLS, _TILE, _CHUNK, _WORDS, _NEAR, _SETS = (np.uint64(i) for i in (HULLS, TILE, CHUNK, WORDS, NEAR, SETS))
_BOXES, _IN_BLOCK = np.uint64(64), np.uint64(63)
_BOX = np.uint64(2**31 - 1)
_SURE = np.uint64(1 << 31)
"""Of a key: no comparison can change it."""
_ALL = ~_NONE
_AHEAD = np.uint64(8)
"""Tiles by which what a few points look at is fetched before it is needed."""
_SOME = np.uint64(5)
"""Entries that a box may have, as far as is known without a look at the next one."""
_FEW = np.uint64(6)
"""Entries of a box that are compared before it is worth a branch."""
_SOON = np.uint64(48)
"""Keys by which what is known of a box is fetched before it is needed."""


class Bits(NamedTuple):
    """The bitmaps of b blocks with r rows, see the module: ``int64[b, 8]``, ``uint8[r]``, ``uint8[r]``,
    ``uint16[r]``, ``uint64[HULLS * shared rows]``, ``uint64[all lines, 8]``."""

    blocks: NDArray[np.int64]
    attribute: NDArray[np.uint8]
    shift: NDArray[np.uint8]
    line: NDArray[np.uint16]
    hulls: NDArray[np.uint64]
    lines: NDArray[np.uint64]


class Exact(NamedTuple):
    """n boxes with c constraints as they are, as in ``Sparse``, but box i has its entries from
    ``chunks[i // CHUNK] + offsets[i]`` on: ``int64[n // CHUNK + 1]``, ``uint16[n + 1]``; both are empty where
    every box has as many.

    ``near``: what is looked at first, box by box. Where boxes have few entries, their attributes, and behind
    each the steps of its first and its last value: ``uint8[5 c]``; but where every box has one for each of d
    attributes, no attributes: the steps of all first values, as ``uint16[d]``, those of the last, the slot as
    int32, and behind the last box 8 bytes more. Else the attributes alone: as a set of b bytes, bit a for
    attribute a, ``uint8[b n]``, if that is less, or as they are, ``uint8[c]``."""

    chunks: NDArray[np.int64]
    offsets: NDArray[np.uint16]
    near: NDArray[np.uint8]
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
_WAITING = writes(types.uint64, 2)


# Into the second cache: it waits for twice as many lines at a time as the first.
@instruction(prefetching(2))
def prefetch(array, at):  # type: ignore[no-untyped-def]
    """Has the element ``at`` of an array, in the order of the memory, brought into the cache meanwhile."""


def _lowest(_context, _bits):  # type: ignore[no-untyped-def]
    def build(_context, builder, _signature, args):  # type: ignore[no-untyped-def]
        return builder.cttz(args[0], ir.IntType(1)(1))

    return types.uint64(types.uint64), build


@instruction(_lowest)
def lowest(bits):  # type: ignore[no-untyped-def]
    """The place of the lowest bit that is set, of 64, at least one of them set."""
    place = _NONE
    while bits >> place & _ONE == _NONE:
        place += _ONE
    return place


def _meet(_context, lines, base, table, row, rows, waiting, at):  # type: ignore[no-untyped-def]
    def build(context, builder, signature, args):  # type: ignore[no-untyped-def]
        lines, table, waiting = (
            context.make_array(signature.args[i])(context, builder, args[i]) for i in (0, 2, 5)
        )
        word, whole = ir.IntType(64), ir.IntType(64 * WORDS)
        line = ir.VectorType(word, WORDS)
        every = ir.Constant(line, [-1] * WORDS)
        left = cgutils.alloca_once_value(builder, every)  # type: ignore[no-untyped-call]
        width = builder.extract_value(table.shape, 1)
        places = builder.gep(table.data, [builder.mul(args[3], width)])
        with cgutils.for_range(builder, args[4], intp=word) as loop:
            place = builder.zext(builder.load(builder.gep(places, [loop.index])), word)
            first = builder.mul(builder.add(args[1], place), word(WORDS))
            address = builder.bitcast(builder.gep(lines.data, [first]), line.as_pointer())
            builder.store(builder.and_(builder.load(left), builder.load(address, align=8)), left)
        boxes = builder.load(left)
        place = builder.gep(waiting.data, [builder.mul(args[6], word(WORDS))])
        builder.store(boxes, builder.bitcast(place, line.as_pointer()), align=8)
        return builder.icmp_unsigned("!=", builder.bitcast(boxes, whole), whole(0))

    return types.boolean(lines, types.uint64, table, types.uint64, types.uint64, waiting, types.uint64), build


@instruction(_meet)
def meet(lines, base, table, row, rows, waiting, at):  # type: ignore[no-untyped-def]
    """Writes the boxes that are in all of the lines ``base + table[row, j]`` for j below ``rows`` as
    the set ``at`` of those that wait. Returns whether there are any."""
    some = _NONE
    for word in range(_WORDS):
        boxes = _ALL
        for j in range(rows):
            boxes &= lines[base + np.uint64(table[row, j]), word]
        waiting[WORD, at * _WORDS + word] = boxes
        some |= boxes
    return some != _NONE


def _depth(_context, near, at, width, steps, row):  # type: ignore[no-untyped-def]
    def build(context, builder, signature, args):  # type: ignore[no-untyped-def]
        near, steps = (context.make_array(signature.args[i])(context, builder, args[i]) for i in (0, 3))
        half, number, word = ir.IntType(16), ir.IntType(32), ir.IntType(64)
        halves, numbers = ir.VectorType(half, LANES), ir.VectorType(number, LANES)
        none, one = (ir.Constant(numbers, [value] * LANES) for value in (0, 1))
        lanes, undefined = ir.Constant(numbers, list(range(LANES))), ir.Constant(numbers, ir.Undefined)
        spans = builder.bitcast(builder.gep(near.data, [args[1]]), half.as_pointer())
        own = builder.gep(steps.data, [builder.mul(args[4], builder.extract_value(steps.shape, 1))])

        def lanes_from(place: Any, at: Any) -> Any:
            address = builder.bitcast(builder.gep(place, [at]), halves.as_pointer())
            return builder.zext(builder.load(address, align=1), numbers)

        def lesser(a: Any, b: Any) -> Any:
            return builder.select(builder.icmp_signed("<", a, b), a, b)

        least = cgutils.alloca_once_value(builder, one)  # type: ignore[no-untyped-call]
        turns = builder.udiv(builder.add(args[2], word(LANES - 1)), word(LANES))
        with cgutils.for_range(builder, turns, intp=word) as loop:
            first = builder.mul(loop.index, word(LANES))
            step = lanes_from(own, first)
            above = builder.sub(step, lanes_from(spans, first))
            below = builder.sub(lanes_from(spans, builder.add(args[2], first)), step)
            # What lies behind the last entry says nothing.
            left = builder.trunc(builder.sub(args[2], first), number)
            left = builder.insert_element(undefined, left, number(0))
            there = builder.icmp_signed("<", lanes, builder.shuffle_vector(left, undefined, none))
            depths = builder.select(there, lesser(above, below), one)
            builder.store(lesser(builder.load(least), depths), least)

        def is_none(flags: Any) -> Any:
            bits = ir.IntType(LANES)
            return builder.zext(builder.icmp_unsigned("==", builder.bitcast(flags, bits), bits(0)), word)

        depths = builder.load(least)
        outside, doubtful = (builder.icmp_signed(order, depths, none) for order in ("<", "<="))
        return builder.add(is_none(outside), is_none(doubtful))

    return types.uint64(near, types.uint64, types.uint64, steps, types.uint64), build


@instruction(_depth)
def depth(near, at, width, steps, row):  # type: ignore[no-untyped-def]
    """How deep a point with the steps ``steps[row]``, ``uint16[m, d]``, is in a box with ``width`` entries,
    one for each attribute, from byte ``at`` of ``near`` on: 0 not inside, 1 perhaps, for its ends to say, 2
    strictly inside of all steps, so certainly. Both arrays have room for LANES steps more."""
    least = np.int64(1)
    for attribute in range(width):
        low, high = at + _TWO * attribute, at + _TWO * (width + attribute)
        step = np.int64(steps[row, attribute])
        above = step - (np.int64(near[low]) | np.int64(near[low + _ONE]) << 8)
        below = (np.int64(near[high]) | np.int64(near[high + _ONE]) << 8) - step
        least = min(least, above, below)
    return np.uint64(least >= 0) + np.uint64(least > 0)


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


_CURSOR = writes(types.int64, 1)
_QUEUE = writes(types.uint16, 1)
_TABLE = writes(types.uint16, 2)


@kernel(types.void(_BITS, _STEPS, _CURSOR, _QUEUE, _TABLE, _TABLE, _QUEUE))
def look(bits, steps, cursor, queue, table, looks, counts):  # type: ignore[no-untyped-def]
    """Queues the tiles that points look at in the next blocks, as many as there is room for.

    ``steps``: ``uint16[m, dims]``. The tiles of b blocks are numbered from 0. ``queue``: ``uint16[64 b]``,
    room for those that are looked at; ``looks``: ``uint16[64 b, m]``, for who looks at each; ``counts``:
    ``uint16[64 b]``, how many these are, zeros at first; ``table``: ``uint16[b m, r]``, for the lines of each
    point in a tile of each block, which has at most r rows. The queue has to be empty. O(m b), and the
    tiles."""
    blocks, attribute, shift, line, hulls, _ = bits
    first, queued = np.uint64(cursor[STOP_BLOCK]), _NONE
    stop = min(first + (np.uint64(len(counts)) >> _BY_TILE), np.uint64(blocks.shape[0]))
    for number in range(first, stop):
        first_row, stop_row = np.uint64(blocks[number, FIRST_ROW]), np.uint64(blocks[number, STOP_ROW])
        shared = first_row + np.uint64(blocks[number, SHARED])
        first_tile, waiting = number - first << _BY_TILE, _NONE
        row = (number - first) * np.uint64(looks.shape[1])
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
                    table[row + point, r - first_row] = line[r] + (steps[point, attribute[r]] >> shift[r])
            while tiles != _NONE:
                tile = first_tile + lowest(tiles)
                tiles &= tiles - _ONE
                looks[tile, np.uint64(counts[tile])] = point
                counts[tile] += 1
        while waiting != _NONE:
            queue[queued] = first_tile + lowest(waiting)
            waiting &= waiting - _ONE
            queued += _ONE
    cursor[BLOCKS], cursor[STOP_BLOCK], cursor[NEXT], cursor[QUEUED] = first, stop, 0, queued


@kernel(types.int64(_WAITING, types.uint64, types.int64, _KEYS))
def spread(waiting, count, used, found):  # type: ignore[no-untyped-def]
    """Writes the keys of the boxes in the first ``count`` sets behind the first ``used``. Returns the number
    of keys. O(count + keys), without a branch that depends on them."""
    left, some = np.uint64(used), _NONE
    for one in range(count):
        for word in range(_WORDS):
            boxes = waiting[WORD, one * _WORDS + word]
            waiting[LEFT, some] = boxes
            waiting[PLACE, some] = waiting[FIRST, one] + word * _BOXES
            some += np.uint64(boxes != _NONE)
    while some != _NONE:
        again = _NONE
        for one in range(some):
            boxes, place = waiting[LEFT, one], waiting[PLACE, one]
            found[left] = place + lowest(boxes)
            left += _ONE
            boxes &= boxes - _ONE
            waiting[LEFT, again], waiting[PLACE, again] = boxes, place
            again += np.uint64(boxes != _NONE)
        some = again
    return left


@kernel(types.int64(_BITS, _CURSOR, _QUEUE, _TABLE, _TABLE, _QUEUE, _WAITING, types.int64, _KEYS))
def sweep(bits, cursor, queue, table, looks, counts, waiting, used, found):  # type: ignore[no-untyped-def]
    """Writes keys of points and boxes that may hold them, none missing, behind the first ``used``, tile by
    tile from the queue, as long as there is room. What ``look`` has written is used up, and the cursor moved.
    ``found``: room for _ROOM + TILE * (m + SETS) keys. Returns the number of keys. O(looks)."""
    blocks, _, _, _, _, lines = bits
    left, filled = np.uint64(used), _NONE
    first, points = np.uint64(cursor[BLOCKS]), np.uint64(looks.shape[1])
    at, queued = np.uint64(cursor[NEXT]), np.uint64(cursor[QUEUED])
    soon = at
    while at < queued and left <= _ROOM:
        while soon <= at + _AHEAD and soon < queued:
            tile = np.uint64(queue[soon])
            soon += _ONE
            number = first + (tile >> _BY_TILE)
            rows = np.uint64(blocks[number, STOP_ROW] - blocks[number, FIRST_ROW])
            tile_lines = np.uint64(blocks[number, TILE_LINES])
            if np.uint64(counts[tile]) * rows < tile_lines:
                base = np.uint64(blocks[number, FIRST_LINE]) + (tile & _IN_BLOCK) * tile_lines
                for one in range(np.uint64(counts[tile])):
                    row = (tile >> _BY_TILE) * points + np.uint64(looks[tile, one])
                    for j in range(rows):
                        prefetch(lines, (base + np.uint64(table[row, j])) * _WORDS)
        tile = np.uint64(queue[at])
        at += _ONE
        # The next tile is fetched as a whole, some lines for each point, if many points look at it.
        line, stop_line, step = _NONE, _NONE, _NONE
        if at < queued:
            following = np.uint64(queue[at])
            number = first + (following >> _BY_TILE)
            rows = np.uint64(blocks[number, STOP_ROW] - blocks[number, FIRST_ROW])
            tile_lines = np.uint64(blocks[number, TILE_LINES])
            if np.uint64(counts[following]) * rows >= tile_lines:
                line = np.uint64(blocks[number, FIRST_LINE]) + (following & _IN_BLOCK) * tile_lines
                stop_line, step = line + tile_lines, tile_lines // np.uint64(counts[tile]) + _ONE
        number = first + (tile >> _BY_TILE)
        rows = np.uint64(blocks[number, STOP_ROW] - blocks[number, FIRST_ROW])
        base = np.uint64(blocks[number, FIRST_LINE])
        base += (tile & _IN_BLOCK) * np.uint64(blocks[number, TILE_LINES])
        first_box = np.uint64(blocks[number, FIRST_BOX]) + (tile & _IN_BLOCK) * _TILE
        for one in range(np.uint64(counts[tile])):
            for fetched in range(line, min(line + step, stop_line)):
                prefetch(lines, fetched * _WORDS)
            line += step
            point = np.uint64(looks[tile, one])
            waiting[FIRST, filled] = (point << _HALF) + first_box
            # A set without a box is written over by the next. How many are empty, nothing can foretell.
            some = meet(lines, base, table, (tile >> _BY_TILE) * points + point, rows, waiting, filled)
            filled += np.uint64(some)
            if filled == _SETS:
                left = np.uint64(spread(waiting, filled, left, found))
                filled = _NONE
        counts[tile] = 0
    cursor[NEXT] = at
    return spread(waiting, filled, left, found)


@kernel(types.int64(_EXACT, types.uint64, _STEPS, types.int64, _KEYS))
def narrow(exact, width, steps, used, found):  # type: ignore[no-untyped-def]
    """Keeps, of the first ``used`` keys, those whose steps are in the spans of the box, and marks as sure
    those that are strictly inside of all of them: no value there is outside. ``width``: how many entries
    every box has, 0 if that differs. Returns how many it keeps."""
    chunks, offsets, near, _, _, _ = exact
    left, stop = _NONE, np.uint64(used)
    if width == _NONE:
        for f in range(stop):
            prefetch(offsets, np.uint64(found[f]) & _BOX)
    for f in range(stop + _SOON):
        if f < stop:
            box = np.uint64(found[f]) & _BOX
            e, count = box * width, width
            if width == _NONE:
                e, count = np.uint64(chunks[box // _CHUNK]) + np.uint64(offsets[box]), _SOME
            prefetch(near, e * _NEAR)
            prefetch(near, (e + count) * _NEAR - _ONE)
        if f < _SOON:
            continue
        key = np.uint64(found[f - _SOON])
        row, box = key >> _HALF, key & _BOX
        e, count = box * width, width
        if width == _NONE:
            behind = box + _ONE
            e = np.uint64(chunks[box // _CHUNK]) + np.uint64(offsets[box])
            count = np.uint64(chunks[behind // _CHUNK]) + np.uint64(offsets[behind]) - e
        at, depth = e * _NEAR, np.int64(1)
        for _ in range(count):
            step = np.int64(steps[row, near[at]])
            # Byte by byte, as they may lie anywhere.
            lowest_step = np.int64(near[at + _ONE]) | np.int64(near[at + _TWO]) << 8
            highest_step = np.int64(near[at + _THREE]) | np.int64(near[at + _FOUR]) << 8
            depth = min(depth, step - lowest_step, highest_step - step)
            at += _NEAR
        found[left] = key | (np.uint64(depth > 0) * _SURE)
        left += np.uint64(depth >= 0)
    return left


@kernel(types.int64(reads(types.uint8, 1), types.uint64, _STEPS, types.boolean, types.int64, _KEYS))
def narrow_full(near, width, steps, whole, used, found):  # type: ignore[no-untyped-def]
    """As ``narrow``, of boxes with an entry for each attribute. If all boxes live, ``whole``, the keys that
    are sure have the slot for the box."""
    slots, size, stop = near.view(np.int32), _FOUR * (width + _ONE), np.uint64(used)
    left = _NONE
    for f in range(stop + _SOON):
        if f < stop:
            at = (np.uint64(found[f]) & _BOX) * size
            prefetch(near, at)
            prefetch(near, at + size - _ONE)
        if f < _SOON:
            continue
        key = np.uint64(found[f - _SOON])
        row, box = key >> _HALF, key & _BOX
        inside = np.uint64(depth(near, box * size, width, steps, row))
        sure = inside == _TWO
        # Read in any case: a branch on what nobody can foretell costs more.
        slot = np.uint64(slots[(box + _ONE) * (width + _ONE) - _ONE])
        name = slot if sure & whole else box
        found[left] = row << _HALF | np.uint64(sure) * _SURE | name
        left += np.uint64(inside != _NONE)
    return left


@kernel(types.int64(_EXACT, types.uint64, _POINTS, types.int64, types.int64, _KEYS))
def screen(exact, width, points, base, used, found):  # type: ignore[no-untyped-def]
    """Keeps, of the first ``used`` keys, those whose points, from ``base`` on, are between the first few ends
    of the box; returns how many. Without a branch that depends on them, so that cache misses overlap.
    ``width``: as in ``narrow``."""
    chunks, offsets, near, lo, hi, slots = exact
    sets, size = near.shape[0] < lo.shape[0], np.uint64(near.shape[0] // max(slots.shape[0], 1))
    left, stop = _NONE, np.uint64(used)
    if width == _NONE:
        for f in range(stop):
            prefetch(offsets, np.uint64(found[f]) & _BOX)
    for f in range(stop + _SOON):
        if f < stop:
            box = np.uint64(found[f]) & _BOX
            e = box * width
            if width == _NONE:
                e = np.uint64(chunks[box // _CHUNK]) + np.uint64(offsets[box])
            prefetch(near, box * size if sets else e)
            prefetch(lo, e)
            prefetch(hi, e)
            prefetch(lo, e + _FEW - _ONE)
            prefetch(hi, e + _FEW - _ONE)
        if f < _SOON:
            continue
        key = np.uint64(found[f - _SOON])
        row, box = np.uint64(base) + (key >> _HALF), key & _BOX
        e, count = box * width, width
        if width == _NONE:
            behind = box + _ONE
            e = np.uint64(chunks[box // _CHUNK]) + np.uint64(offsets[box])
            count = np.uint64(chunks[behind // _CHUNK]) + np.uint64(offsets[behind]) - e
        attributes, inside = _NONE, True
        if sets:
            for byte in range(size):
                attributes |= np.uint64(near[box * size + byte]) << (byte << _THREE)
        for _ in range(min(count, _FEW)):
            if sets:
                attribute = lowest(attributes)
                attributes &= attributes - _ONE
            else:
                attribute = np.uint64(near[e])
            x = points[row, attribute]
            inside &= (lo[e] <= x) & (x < hi[e])
            e += _ONE
        found[left] = key
        left += np.uint64(inside)
    return left


@kernel(
    types.int64(
        _EXACT,
        types.uint64,
        types.boolean,
        types.boolean,
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
def verify(exact, width, full, whole, removed_at, version, points, base, used, found, needed, out):  # type: ignore[no-untyped-def]
    """Tests the first ``used`` keys, of rows from ``base`` on, exactly unless they are sure, and writes
    those that hold, with the slot for the box, behind the ``needed`` that are in ``out``. ``width``: as in
    ``narrow``; ``full``: whether every box has an entry for each attribute; ``whole``: whether all live.
    Returns how many there are then."""
    chunks, offsets, near, lo, hi, slots = exact
    sets, size = near.shape[0] < lo.shape[0], np.uint64(near.shape[0] // max(slots.shape[0], 1))
    step = _NEAR if near.shape[0] > lo.shape[0] else _ONE
    named = full and whole
    for f in range(np.uint64(0 if named else used)):
        box = np.uint64(found[f]) & _BOX
        prefetch(removed_at, box)
        prefetch(slots, box)
    for f in range(np.uint64(used)):
        key = np.uint64(found[f])
        row, box = np.uint64(base) + (key >> _HALF), key & _BOX
        if key & _SURE != _NONE and named:
            if needed < len(out):
                out[needed] = row << _HALF | box
            needed += 1
            continue
        if key & _SURE == _NONE:
            behind = box + _ONE
            e, stop = box * width, behind * width
            if width == _NONE:
                e = np.uint64(chunks[box // _CHUNK]) + np.uint64(offsets[box])
                stop = np.uint64(chunks[behind // _CHUNK]) + np.uint64(offsets[behind])
            at, attributes, inside = e * step, _NONE, True
            if sets:
                for byte in range(size):
                    attributes |= np.uint64(near[box * size + byte]) << (byte << _THREE)
            while inside and e < stop:
                if full:
                    attribute = e - box * width
                elif sets:
                    attribute = lowest(attributes)
                    attributes &= attributes - _ONE
                else:
                    attribute = np.uint64(near[at])
                x = points[row, attribute]
                inside = (lo[e] <= x) & (x < hi[e])
                at += step
                e += _ONE
            if not inside:
                continue
        if removed_at[box] > version:
            if needed < len(out):
                out[needed] = (row << _HALF) | np.uint64(slots[box])
            needed += 1
    return needed


@kernel(types.int64(reads(types.uint8, 1), types.int64, types.boolean, _POINTS, _KEYS))
def search(arena, version, whole, points, out):  # type: ignore[no-untyped-def]
    """Writes ``row << 32 | slot`` for every box around a point that lived at ``version``, at most
    ``len(out)``; returns how many there are. ``whole``: whether all did. ``points``: ``float64[m, dims]``.
    ``arena``: the arrays of ``Bits``, those of ``Exact``, the cuts ``float64[dims, 255]``, their scales
    ``float64[dims, 256]``, and ``removed_at int32[n]``."""
    dims = points.shape[1]
    header, longs, floats = arena.view(np.int64), arena.view(np.uint64), arena.view(np.float64)
    numbers, shorts = arena.view(np.int32), arena.view(np.uint16)
    bits = Bits(
        header[header[0] >> 3 : header[1] >> 3].reshape((-1, BLOCK_COLUMNS)),
        arena[header[2] : header[3]],
        arena[header[4] : header[5]],
        shorts[header[6] >> 1 : header[7] >> 1],
        longs[header[8] >> 3 : header[9] >> 3],
        longs[header[10] >> 3 : header[11] >> 3].reshape((-1, WORDS)),
    )
    exact = Exact(
        header[header[12] >> 3 : header[13] >> 3],
        shorts[header[14] >> 1 : header[15] >> 1],
        arena[header[16] : header[17]],
        floats[header[18] >> 3 : header[19] >> 3],
        floats[header[20] >> 3 : header[21] >> 3],
        numbers[header[22] >> 2 : header[23] >> 2],
    )
    cuts = floats[header[24] >> 3 : header[25] >> 3].reshape((dims, -1))
    scales = floats[header[26] >> 3 : header[27] >> 3].reshape((dims, -1))
    removed_at = numbers[header[28] >> 2 : header[29] >> 2]
    boxes, entries = exact.slots.shape[0], exact.lo.shape[0]
    width = np.uint64(entries // max(boxes, 1) if exact.offsets.shape[0] == 0 else 0)
    kept = exact.near.shape[0] > entries
    full = kept and np.int64(width) == dims
    most = min(points.shape[0], _ROWS)
    widest = np.int64(0)
    for number in range(bits.blocks.shape[0]):
        widest = max(widest, bits.blocks[number, STOP_ROW] - bits.blocks[number, FIRST_ROW])
    together = min(max(_ROWS // max(most, 1), 1), _TOGETHER)
    table = np.empty((together * most, widest), np.uint16)
    queue, counts = np.empty(64 * together, np.uint16), np.zeros(64 * together, np.uint16)
    looks = np.empty((64 * together, most), np.uint16)
    waiting = np.empty((4, SETS * WORDS), np.uint64)
    found = np.empty(_ROOM + TILE * (most + SETS), np.int64)
    steps = np.empty((most + LANES, dims), np.uint16)
    cursor = np.empty(4, np.int64)
    needed = 0
    for base in range(0, points.shape[0], max(most, 1)):
        count = min(most, points.shape[0] - base)
        locate(cuts, scales, points[base : base + count], steps[:count])
        cursor[:] = 0
        used, more = 0, True
        while more:
            if cursor[NEXT] == cursor[QUEUED]:
                look(bits, steps[:count], cursor, queue, table, looks, counts)
            used = sweep(bits, cursor, queue, table, looks, counts, waiting, used, found)
            more = cursor[NEXT] < cursor[QUEUED] or cursor[STOP_BLOCK] < bits.blocks.shape[0]
            if used > _ROOM or not more:
                if full:
                    used = narrow_full(exact.near, width, steps, whole, used, found)
                elif kept:
                    used = narrow(exact, width, steps, used, found)
                else:
                    used = screen(exact, width, points, base, used, found)
                needed = verify(
                    exact, width, full, whole, removed_at, version, points, base, used, found, needed, out
                )
                used = 0
    return needed
