"""Kernels of the grid of fresh boxes; ``fresh`` has words.

``planes``: ``float64[p, 4]``, the two attributes of a plane and, behind each, how many of its cells are in a
unit of value; the second attribute is -1 where there is but one. ``heads``: ``int32[2 ** b]``, by bucket its
first block, 0 if it has none. ``blocks``: ``float32[k, WORDS]``; block 0 is none. A block is LANES lower and
LANES upper ends in the first attribute, as many in the second, rounded to float32, then as int32 LANES slots,
LANES *names* of boxes, and the next block of the bucket, 0 if it is the last. A name is one more than the
number of the box, 0 if the lane is empty. ``tails``:
``int32[2 ** b, 2]``, by bucket its last block and how many entries it has; for the writer alone.

Not for: which boxes are kept here.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numpy.typing import NDArray

from service.index.kernel import instruction, kernel, reads, writes

LANES = 5
WORDS = 32
"""Four bytes each; a block is two lines of the cache."""
MOST_PLANES = 16
"""Each is looked at for every point."""
MOST_ENTRIES = 64
"""A bucket takes no more: who would look at so many for a point had better be asked a tree."""

_ROWS = 128
"""Points that are looked up before the first of them is answered: what they miss in the cache overlaps."""
_FAR = 2.0**62
_TOGETHER = 8
"""Lanes that are compared at a time: all of a block, and some of what lies behind them."""
_ONE = np.uint64(1)
_SURE = _ONE << np.uint64(LANES)
"""Of the flags of a block, the first that says that an entry is sure."""
_WIDEST = 0.125
"""Of the domain of an attribute: wider boxes are not told apart by it."""

_FLOATS = reads(types.float64, 1)
_INTS = reads(types.int32, 1)
_MATRIX = reads(types.float64, 2)
_SPARSE = reads(types.int64, 1), reads(types.uint8, 1), _FLOATS, _FLOATS


class Columns(NamedTuple):
    """What the grid consists of, in the order of its arena: its boxes as in ``Sparse``, the plane of each,
    and the module's."""

    slots: NDArray[np.int32]
    removed_at: NDArray[np.int32]
    plane_of: NDArray[np.int32]
    starts: NDArray[np.int64]
    attributes: NDArray[np.uint8]
    lo: NDArray[np.float64]
    hi: NDArray[np.float64]
    planes: NDArray[np.float64]
    heads: NDArray[np.int32]
    blocks: NDArray[np.float32]


@kernel(types.int64(types.float64, types.float64))
def cell_of(x, scale):  # type: ignore[no-untyped-def]
    """The cell of a value. Monotone, which is all that matters; NaN is in the first."""
    place = x * scale
    if not place > -_FAR:
        return -np.int64(_FAR)
    return np.int64(math.floor(min(place, _FAR)))


@kernel(types.int64(types.int64, types.int64, types.int64, types.int64))
def bucket_of(plane, i, j, mask):  # type: ignore[no-untyped-def]
    """The bucket of the cell (i, j) of a plane, among those of all planes. Cells of a plane may share one:
    what is found there is compared. Those of two may not: it would be compared in other attributes."""
    # Halves, so that no product leaves 64 bits.
    i = (i ^ i >> 32) & 0xFFFFFFFF
    j = (j ^ j >> 32) & 0xFFFFFFFF
    mixed = i * 0x5E3779B1 ^ j * 0x45EBCA77
    mixed = ((mixed ^ mixed >> 29) & 0xFFFFFFFF) * 0x165667B1
    return plane * (mask + 1) + ((mixed ^ mixed >> 32) & mask)


@kernel(types.float64(types.float64, types.float64))
def scale_of(width, least):  # type: ignore[no-untyped-def]
    """Of cells at least as wide as both, at most four times as wide as the larger: powers of four, so that
    boxes of like width are in one plane."""
    exponent = math.frexp(max(width, least))[1]
    return math.ldexp(1.0, -min(max(exponent + (exponent & 1), -1000), 1022))


@kernel(
    types.int64(
        *_SPARSE,
        _MATRIX,
        types.float64,
        types.int64,
        writes(types.float64, 2),
        types.int64,
        writes(types.int32, 1),
    )
)
def assign(starts, attributes, lo, hi, domains, limit, least, planes, count, number):  # type: ignore[no-untyped-def]
    """Writes the plane of every box, -1 for none; returns how many planes there are then. ``domains``:
    ``float64[d, 2]``, between which values most boxes are; ``limit``: boxes that may come; a new plane is for
    ``least`` of these boxes. O(c)."""
    wanted, boxes_of = np.empty((MOST_PLANES, 4)), np.zeros(MOST_PLANES, np.int64)
    opened = np.full(MOST_PLANES, -1, np.int32)
    row, several = np.empty(4), 0
    for box in range(len(number)):
        number[box] = -1
        constrained = starts[box + 1] - starts[box]
        fits = constrained == 1 or constrained == 2
        row[2], row[3] = -1.0, 0.0
        for place in range(constrained if fits else 0):
            entry = starts[box] + place
            spread = domains[attributes[entry], 1] - domains[attributes[entry], 0]
            width = hi[entry] - lo[entry]
            fits &= spread > 0.0 and spread < np.inf and width < _WIDEST * spread
            row[2 * place] = attributes[entry]
            row[2 * place + 1] = scale_of(width, spread * limit ** (-1.0 / constrained)) if fits else 0.0
        if not fits:
            continue
        plane = 0
        while plane < count and (planes[plane] != row).any():
            plane += 1
        if plane < count:
            number[box] = plane
            continue
        plane = 0
        while plane < several and (wanted[plane] != row).any():
            plane += 1
        if plane < MOST_PLANES:
            wanted[plane] = row
            several = max(several, plane + 1)
            boxes_of[plane] += 1
            number[box] = -2 - plane
    for plane in range(several):
        if boxes_of[plane] >= least and count < MOST_PLANES:
            planes[count] = wanted[plane]
            opened[plane] = count
            count += 1
    for box in range(len(number)):
        if number[box] < -1:
            number[box] = opened[-2 - number[box]]
    return count


@kernel(types.void(_FLOATS, _FLOATS, _FLOATS, writes(types.float64, 1), writes(types.int64, 1)))
def sides_of(plane, lo, hi, ends, cells):  # type: ignore[no-untyped-def]
    """Of a box, by its constraints, in its plane: both ``ends`` in both attributes, and the first and the
    last of its ``cells``."""
    ends[2], ends[3] = -np.inf, np.inf
    cells[2] = cells[3] = 0
    for place in range(len(lo)):
        ends[2 * place], ends[2 * place + 1] = lo[place], hi[place]
        cells[2 * place] = cell_of(lo[place], plane[2 * place + 1])
        cells[2 * place + 1] = cell_of(np.nextafter(hi[place], -np.inf), plane[2 * place + 1])


@kernel(
    types.void(
        _INTS,
        reads(types.int64, 1),
        _FLOATS,
        _FLOATS,
        _INTS,
        _MATRIX,
        writes(types.int32, 1),
        writes(types.float32, 2),
        writes(types.int32, 2),
        writes(types.int64, 1),
        writes(types.boolean, 1),
    )
)
def put(slots, starts, lo, hi, number, planes, heads, blocks, tails, sizes, placed):  # type: ignore[no-untyped-def]
    """Writes entries of boxes, which lie together by slot, into the buckets of their cells, those of a slot
    all or none: ``placed``. ``sizes``: the number of the next box, and of the next block. O(cells)."""
    names, mask = blocks.view(np.int32), np.int64(len(heads) // MOST_PLANES - 1)
    ends, cells = np.empty(4), np.empty(4, np.int64)
    first = 0
    while first < len(slots):
        last = first
        fits, needed = True, 0
        while last < len(slots) and slots[last] == slots[first]:
            own = slice(starts[last], starts[last + 1])
            fits &= number[last] >= 0
            if fits:
                sides_of(planes[number[last]], lo[own], hi[own], ends, cells)
                for i in range(cells[0], cells[1] + 1):
                    for j in range(cells[2], cells[3] + 1):
                        fits &= tails[bucket_of(number[last], i, j, mask), 1] < MOST_ENTRIES
                        needed += 1
            last += 1
        fits &= sizes[1] + needed <= len(blocks)
        for box in range(first, last):
            placed[box] = fits
            if not fits:
                continue
            sizes[0] += 1
            own = slice(starts[box], starts[box + 1])
            sides_of(planes[number[box]], lo[own], hi[own], ends, cells)
            for i in range(cells[0], cells[1] + 1):
                for j in range(cells[2], cells[3] + 1):
                    bucket = bucket_of(number[box], i, j, mask)
                    block, lane = np.int64(tails[bucket, 0]), np.int64(tails[bucket, 1]) % LANES
                    if block and names[block, 5 * LANES + (lane - 1) % LANES] == sizes[0]:
                        continue  # two of its cells share a bucket
                    if lane == 0:
                        fresh = sizes[1]
                        sizes[1] += 1
                        # Behind the others: who reads meanwhile finds all that was there.
                        if block:
                            names[block, WORDS - 2] = fresh
                        else:
                            heads[bucket] = fresh
                        tails[bucket, 0] = block = fresh
                    for place in range(4):
                        blocks[block, place * LANES + lane] = np.float32(ends[place])
                    names[block, 4 * LANES + lane] = slots[box]
                    names[block, 5 * LANES + lane] = sizes[0]
                    tails[bucket, 1] += 1
        first = last


@kernel(types.void(_INTS, types.int64, writes(types.int32, 1), writes(types.int32, 1)))
def chain(slots, first, newest, previous):  # type: ignore[no-untyped-def]
    """Notes that the boxes from number ``first`` on are those of the slots: ``newest`` is by slot one more
    than the number of its last box, 0 for none, ``previous`` by box the same of the one before."""
    for i in range(len(slots)):
        previous[first + i] = newest[slots[i]]
        newest[slots[i]] = first + i + 1


@kernel(types.int64(_INTS, types.int64, _INTS, _INTS, writes(types.int32, 1)))
def mark(slots, version, newest, previous, removed_at):  # type: ignore[no-untyped-def]
    """Marks the living boxes of the slots as removed at a version; returns how many there are. They are its
    newest ones."""
    count = 0
    for slot in slots:
        box = newest[slot] if 0 <= slot < len(newest) else np.int32(0)
        while box and removed_at[box - 1] == 2147483647:
            removed_at[box - 1] = version
            count += 1
            box = previous[box - 1]
    return count


def _around(_context, halves, at, x, y):  # type: ignore[no-untyped-def]
    def build(context, builder, signature, args):  # type: ignore[no-untyped-def]
        ends = context.make_array(signature.args[0])(context, builder, args[0]).data
        word, number = ir.IntType(64), ir.IntType(32)
        lanes = ir.VectorType(ir.FloatType(), _TOGETHER)
        first, undefined = (
            ir.Constant(ir.VectorType(number, _TOGETHER), None),
            ir.Constant(lanes, ir.Undefined),
        )

        def everywhere(value: Any) -> Any:
            return builder.shuffle_vector(
                builder.insert_element(undefined, value, number(0)), undefined, first
            )

        def column(place: int) -> Any:
            address = builder.gep(ends, [builder.add(args[1], word(place * LANES))])
            return builder.load(builder.bitcast(address, lanes.as_pointer()), align=4)

        x, y = everywhere(args[2]), everywhere(args[3])
        low, high, below, above = (column(place) for place in range(4))

        def between(order: str) -> Any:
            pairs = [(low, x), (x, high), (below, y), (y, above)]
            one, two, three, four = (builder.fcmp_ordered(order, a, b) for a, b in pairs)
            held = builder.and_(builder.and_(one, two), builder.and_(three, four))
            flags = builder.trunc(builder.bitcast(held, ir.IntType(_TOGETHER)), ir.IntType(LANES))
            return builder.zext(flags, word)

        return builder.or_(between("<="), builder.shl(between("<"), word(LANES)))

    return types.uint64(halves, types.uint64, types.float32, types.float32), build


@instruction(_around)
def around(halves, at, x, y):  # type: ignore[no-untyped-def]
    """Which of the LANES entries of the block that begins at ``halves[at]`` may hold the point (x, y), a bit
    each, and above these which are sure to, as the point is strictly between their rounded ends."""
    flags = np.uint64(0)
    for lane in range(LANES):
        ends = at + np.uint64(lane)
        low, high = halves[ends], halves[ends + np.uint64(LANES)]
        below, above = halves[ends + np.uint64(2 * LANES)], halves[ends + np.uint64(3 * LANES)]
        if low <= x <= high and below <= y <= above:
            flags |= _ONE << np.uint64(lane)
        if low < x < high and below < y < above:
            flags |= _ONE << np.uint64(LANES + lane)
    return flags


def _lowest(_context, _flags):  # type: ignore[no-untyped-def]
    def build(_context, builder, _signature, args):  # type: ignore[no-untyped-def]
        return builder.cttz(args[0], ir.IntType(1)(1))

    return types.uint64(types.uint64), build


@instruction(_lowest)
def lowest(flags):  # type: ignore[no-untyped-def]
    """The place of the lowest bit that is set, at least one of them set."""
    place = np.uint64(0)
    while flags >> place & _ONE == 0:
        place += _ONE
    return place


_REMOVED_AT, _STARTS, _ATTRIBUTES, _LO, _HI, _PLANES, _HEADS, _BLOCKS = 1, *range(3, 10)


@kernel(
    types.int64(
        reads(types.uint8, 1),
        _MATRIX,
        types.int64,
        types.int64,
        types.int64,
        types.boolean,
        writes(types.int64, 1),
    )
)
def search(arena, points, version, size, planes, whole, out):  # type: ignore[no-untyped-def]
    """Writes the key ``row << 32 | slot`` of every living box below the number ``size`` around a point; at
    most ``len(out)``, returns how many there are. ``arena``: ``Columns``; ``whole``: whether every box lives.
    O(planes + entries of a bucket + hits) a point."""
    header, floats, halves = arena.view(np.int64), arena.view(np.float64), arena.view(np.float32)
    numbers = arena.view(np.int32)
    removed_at, starts = header[2 * _REMOVED_AT] >> 2, header[2 * _STARTS] >> 3
    attributes, lo, hi = header[2 * _ATTRIBUTES], header[2 * _LO] >> 3, header[2 * _HI] >> 3
    heads, blocks = header[2 * _HEADS] >> 2, header[2 * _BLOCKS] >> 2
    mask = (header[2 * _HEADS + 1] - header[2 * _HEADS] >> 2) // MOST_PLANES - 1
    most = min(points.shape[0], _ROWS)
    found, near = np.empty((3, most), np.int64), np.empty((most, 2), np.float32)
    needed, touch = 0, np.int32(0)
    for base in range(0, points.shape[0], max(most, 1)):
        rows = min(most, points.shape[0] - base)
        for plane in range(planes):
            at = (header[2 * _PLANES] >> 3) + 4 * plane
            a, b = np.int64(floats[at]), np.int64(floats[at + 2])
            for i in range(rows):
                x = points[base + i, a]
                y = points[base + i, b] if b >= 0 else 0.0
                near[i, 0], near[i, 1] = np.float32(x), np.float32(y)
                bucket = bucket_of(plane, cell_of(x, floats[at + 1]), cell_of(y, floats[at + 3]), mask)
                found[0, i] = numbers[heads + bucket]
            # All points look at a block before any looks at its next, so that they wait for these together;
            # ``touch`` is of no use but to have them on their way.
            going = 0
            for i in range(rows):
                block = found[0, i]
                found[1, going] = i
                going += block != 0
                touch ^= numbers[blocks + block * WORDS] ^ numbers[blocks + block * WORDS + WORDS // 2]
            while going:
                left = 0
                for k in range(going):
                    i = found[1, k]
                    x32, y32 = near[i, 0], near[i, 1]
                    line = blocks + found[0, i] * WORDS
                    block = np.int64(numbers[line + WORDS - 2])
                    found[0, i], found[1, left] = block, i
                    left += block != 0
                    touch ^= numbers[blocks + block * WORDS] ^ numbers[blocks + block * WORDS + WORDS // 2]
                    flags = np.uint64(around(halves, np.uint64(line), x32, y32))
                    may = flags & (_SURE - _ONE)
                    while may != 0:
                        place = lowest(may)
                        may &= may - _ONE
                        lane = line + np.int64(place)
                        box = np.int64(numbers[lane + 5 * LANES]) - 1
                        if box < 0 or box >= size:
                            continue
                        held = True
                        if flags & _SURE << place == 0:
                            for entry in range(header[starts + box], header[starts + box + 1]):
                                x = points[base + i, arena[attributes + entry]]
                                held &= floats[lo + entry] <= x and x < floats[hi + entry]
                        if held and (whole or numbers[removed_at + box] > version):
                            if needed < len(out):
                                out[needed] = (base + i) << 32 | numbers[lane + 4 * LANES]
                            needed += 1
                found[2, going - 1] = touch
                going = left
    return needed
