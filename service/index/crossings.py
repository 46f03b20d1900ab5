"""From the keys that moves are reported by to borders, in order.

Idea: a move that enters or leaves a slot is the key ``row << 32 | slot << 1 | entered``. Keys come row by
row, mostly, so only the few of one row have to be sorted, by their lower halves: to sort all together takes
several times as long as to find them. Few are ranked, by counting, sixteen at a time, how many are less: no
branch depends on which are. More are dealt out, by one digit after another (radix sort).

Not for: finding what is entered or left, or points (``answers``).
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types

from service.index.answers import Keys
from service.index.kernel import instruction, kernel, reads, writes
from service.index.protocol import Borders

_ONE, _TWO = np.uint64(1), np.uint64(2)
_LANES = 16
"""Keys that are compared at a time."""
_STEP = np.uint64(_LANES)
_FEW = np.uint64(48)
"""So many keys are ranked, which takes their square; more are dealt out."""
_MANY = np.uint64(512)
"""From so many keys on, fewer and larger digits cost less."""
_NARROW, _WIDE = np.uint32(6), np.uint32(8)
"""Bits of a digit."""


def borders_of(keys: Keys, rows: int) -> Borders:
    """The answer about ``rows`` moves, from keys in any order; one that repeats counts once. O(k), and as
    much again for each digit of a slot, where a row has many."""
    count = len(keys)
    borders = Borders(np.empty(count, np.int32), np.empty(count, np.int32), np.empty(count, np.bool_))
    kept = _in_order(keys, rows, *borders)
    if kept == count:
        return borders
    return Borders(borders.rows[:kept], borders.slots[:kept], borders.entered[:kept])


def _less(_context, values, at, x):  # type: ignore[no-untyped-def]
    def build(context, builder, signature, args):  # type: ignore[no-untyped-def]
        number, some = ir.IntType(32), ir.VectorType(ir.IntType(32), _LANES)
        values = context.make_array(signature.args[0])(context, builder, args[0])
        place = builder.bitcast(builder.gep(values.data, [args[1]]), some.as_pointer())
        nothing = ir.Constant(some, ir.Undefined)
        x = builder.insert_element(nothing, args[2], number(0))
        everywhere = builder.shuffle_vector(x, nothing, ir.Constant(some, [0] * _LANES))
        less = builder.icmp_unsigned("<", builder.load(place, align=4), everywhere)
        return builder.ctpop(builder.zext(builder.bitcast(less, ir.IntType(_LANES)), ir.IntType(64)))

    return types.uint64(values, types.uint64, types.uint32), build


@instruction(_less)
def less(values, at, x):  # type: ignore[no-untyped-def]
    """How many of the sixteen numbers ``uint32`` from ``values[at]`` on are less than x."""
    count = np.uint64(0)
    for i in range(_STEP):
        count += np.uint64(values[at + i] < x)
    return count


@kernel(
    types.int64(
        reads(types.int64, 1),
        types.int64,
        writes(types.int32, 1),
        writes(types.int32, 1),
        writes(types.boolean, 1),
    )
)
def _in_order(keys, batch, rows, slots, entered):  # type: ignore[no-untyped-def]
    """Writes the columns, as long as the keys, by (row, slot), each key once; returns how many. Rows are
    below ``batch``."""
    total, half = np.uint64(len(keys)), np.uint64(32)
    falls = False
    for i in range(_ONE, total):
        falls |= keys[i] >> 32 < keys[i - _ONE] >> 32
    if falls:
        place = np.zeros(batch + 1, np.uint64)
        for i in range(total):
            place[(np.uint64(keys[i]) >> half) + _ONE] += _ONE
        for i in range(np.uint64(batch)):
            place[i + _ONE] += place[i]
        dealt = np.empty(total, np.int64)
        for i in range(total):
            row = np.uint64(keys[i]) >> half
            dealt[place[row]] = keys[i]
            place[row] += _ONE
        keys = dealt
    own, ordered = np.empty(_FEW + _STEP, np.uint32), np.empty(_FEW + _STEP, np.uint32)
    ends = np.empty(_ONE << np.uint64(_WIDE), np.uint64)
    kept = first = np.uint64(0)
    while first < total:
        row = keys[first] >> 32
        stop = min(first + _FEW, total)
        count = np.uint64(0)
        while first + count < stop and keys[first + count] >> 32 == row:
            own[count] = keys[first + count]
            count += _ONE
        if count < _FEW:
            for i in range(count, count + _STEP):
                own[i] = 0xFFFFFFFF
            ranks = np.uint64(0)
            if count <= _STEP:
                for i in range(count):
                    key = np.int64(own[i])
                    rank = less(own, np.uint64(0), own[i])
                    ranks += rank
                    place = kept + rank
                    rows[place], slots[place], entered[place] = row, key >> 1, key & 1 != 0
            else:
                for i in range(count):
                    key = np.int64(own[i])
                    rank = np.uint64(0)
                    for at in range(np.uint64(0), count, _STEP):
                        rank += less(own, at, own[i])
                    ranks += rank
                    place = kept + rank
                    rows[place], slots[place], entered[place] = row, key >> 1, key & 1 != 0
            if _TWO * ranks == count * (count - _ONE):
                kept += count
                first += count
                continue
        stop = first + count
        while stop < total and keys[stop] >> 32 == row:
            stop += _ONE
        count = stop - first
        if count + _STEP > np.uint64(len(own)):
            own, ordered = np.empty(count + _STEP, np.uint32), np.empty(count + _STEP, np.uint32)
        bits = np.uint32(0)
        for i in range(count):
            own[i] = keys[first + i]
            bits |= own[i]
        # Many, or some are equal.
        shift = np.uint32(0)
        width = _NARROW if count < _MANY else _WIDE
        digits = _ONE << np.uint64(width)
        last_digit = np.uint32(digits - _ONE)
        ordered, own = own, ordered
        while shift < 32 and bits >> shift != 0:
            for digit in range(digits):
                ends[digit] = 0
            for i in range(count):
                ends[ordered[i] >> shift & last_digit] += _ONE
            before = np.uint64(0)
            for digit in range(digits):
                before, ends[digit] = before + ends[digit], before
            for i in range(count):
                digit = ordered[i] >> shift & last_digit
                own[ends[digit]] = ordered[i]
                ends[digit] += _ONE
            ordered, own = own, ordered
            shift += width
        last = np.int64(-1)
        for i in range(count):
            key = np.int64(ordered[i])
            rows[kept], slots[kept], entered[kept] = row, key >> 1, key & 1 != 0
            kept += np.uint64(key > last)
            last = max(last, key)
        first = stop
    return np.int64(kept)
