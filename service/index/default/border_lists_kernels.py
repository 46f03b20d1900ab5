"""Kernels of border lists; ``border_lists`` has the idea and the words.

What a move looks at lies all over the memory, so most of its time would be spent on waiting for it. Moves are
taken some at a time, and in stages: where a stage will read is known, and being fetched, before it begins.
Among the borders of a cell no branch depends on where a value lies: the first few are compared at once, and
counted.

A few machine instructions that no loop is compiled to are written down as such, each with its slow twin.
Indexes that may be negative cost a test each, so those in inner loops are unsigned.

Not for: making the lists.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numpy.typing import NDArray

from service.index.kernel import instruction, kernel, prefetching, reads, writes

ATTRIBUTE, FIRST, STOP, IN_VALUES, IN_STEPS, FIRST_CELL, BASE, TOP, FACTOR = range(9)
"""Columns of an axis: its attribute, the places of its borders, how much further on their values are, if they
are kept, or their steps, otherwise; its first cell, the steps that the cells are between, and how many cells
there are a step, times ``1 << 32``. NOT_KEPT in IN_VALUES says that there are no values."""
AXIS_COLUMNS = 9
NOT_KEPT = -(2**62)

HALF_ORIGIN, STEPS, LEAST, MOST = range(4)
"""Columns of a scale: half of the value from which steps are counted, how many there are for half of a unit,
and between which halves of what a value is beyond the origin it matters."""
SCALE_COLUMNS = 4

LANES = 8
"""Steps or values that are compared at a time; so many lie behind the last of an axis."""
LAST_STEP = 2**32 - 2
BEHIND = 2**32 - 1
"""The step of what lies behind the last border of an axis: no value has it."""

_ZERO, _ONE, _TWO, _LANES = (np.uint64(i) for i in (0, 1, 2, LANES))
_ROWS = 64
_ENDS = 2 * _ROWS
"""Moves that are taken together, and their ends."""

_FLOATS = reads(types.float64, 1)
_INT32 = reads(types.int32, 1)
_STEPS = reads(types.uint32, 1)
_AXES = reads(types.int64, 2)
_SCALES = reads(types.float64, 2)


class Lists(NamedTuple):
    """The sorted borders of n boxes, as ``BorderLists`` explains them, behind the boxes themselves, as in
    ``Sparse``. If ``width`` is not zero, all boxes have the same attributes, so many: then these are there
    once, and ``starts`` is not looked at."""

    starts: NDArray[np.int64]
    attributes: NDArray[np.uint8]
    width: int
    lo: NDArray[np.float64]
    hi: NDArray[np.float64]
    values: NDArray[np.float64]
    steps: NDArray[np.uint32]
    owners: NDArray[np.int32]
    scales: NDArray[np.float64]
    axes: NDArray[np.int64]
    cells: NDArray[np.int32]


_COLUMNS = (
    reads(types.int64, 1),
    reads(types.uint8, 1),
    types.int64,
    _FLOATS,
    _FLOATS,
    _FLOATS,
    _STEPS,
    _INT32,
    _SCALES,
    _AXES,
    _INT32,
)
_LISTS: Any = types.NamedTuple(_COLUMNS, Lists)  # type: ignore[no-untyped-call]
_POINTS = reads(types.float64, 2)


@instruction(prefetching(3))
def prefetch(array, at):  # type: ignore[no-untyped-def]
    """Has the element ``at`` of an array brought into the cache meanwhile."""


def _count(builder: Any, array: Any, at: Any, x: Any, kind: Any, compared: Any) -> Any:
    """Of how many elements from a place on ``compared(element, x)`` is true, as uint64."""
    some, number = ir.VectorType(kind, LANES), ir.IntType(32)
    place = builder.bitcast(builder.gep(array.data, [at]), some.as_pointer())
    nothing = ir.Constant(some, ir.Undefined)
    x = builder.insert_element(nothing, x, number(0))
    everywhere = builder.shuffle_vector(x, nothing, ir.Constant(ir.VectorType(number, LANES), [0] * LANES))
    true = compared(builder.load(place, align=4), everywhere)
    return builder.ctpop(builder.zext(builder.bitcast(true, ir.IntType(LANES)), ir.IntType(64)))


def _less(_context, steps, at, step):  # type: ignore[no-untyped-def]
    def build(context, builder, signature, args):  # type: ignore[no-untyped-def]
        array = context.make_array(signature.args[0])(context, builder, args[0])
        compared = partial(builder.icmp_unsigned, "<")
        return _count(builder, array, args[1], args[2], ir.IntType(32), compared)

    return types.uint64(steps, types.uint64, types.uint32), build


@instruction(_less)
def less(steps, at, step):  # type: ignore[no-untyped-def]
    """How many of the LANES steps from ``steps[at]`` on are below a step."""
    count = np.uint64(0)
    for i in range(_LANES):
        count += np.uint64(steps[at + i] < step)
    return count


def _at_most(_context, values, at, x):  # type: ignore[no-untyped-def]
    def build(context, builder, signature, args):  # type: ignore[no-untyped-def]
        array = context.make_array(signature.args[0])(context, builder, args[0])
        compared = partial(builder.fcmp_ordered, "<=")
        return _count(builder, array, args[1], args[2], ir.DoubleType(), compared)

    return types.uint64(values, types.uint64, types.float64), build


@instruction(_at_most)
def at_most(values, at, x):  # type: ignore[no-untyped-def]
    """How many of the LANES values from ``values[at]`` on are at most x."""
    count = np.uint64(0)
    for i in range(_LANES):
        count += np.uint64(values[at + i] <= x)
    return count


@kernel(types.uint32(types.float64, _FLOATS))
def step_of(x, scale):  # type: ignore[no-untyped-def]
    """The step of x: monotone in x, whatever is rounded. Halves are subtracted, so that finite ones do not
    overflow. NaN has the first step."""
    beyond = x * 0.5 - scale[HALF_ORIGIN]
    beyond = beyond if beyond > scale[LEAST] else scale[LEAST]
    beyond = beyond if beyond < scale[MOST] else scale[MOST]
    return np.uint32(np.int64(beyond * scale[STEPS] + 1.0))


@kernel(types.int64(types.uint32, reads(types.int64, 1)))
def cell_of(step, axis):  # type: ignore[no-untyped-def]
    """The cell of a step: monotone. Beyond the cells, the first or the last."""
    at = min(max(np.int64(step), axis[BASE]), axis[TOP]) - axis[BASE]
    return axis[FIRST_CELL] + (at * axis[FACTOR] >> 32)


@kernel(types.void(_FLOATS, _FLOATS, writes(types.uint32, 1)))
def steps_of(values, scale, out):  # type: ignore[no-untyped-def]
    """Writes the step of each value."""
    for i in range(len(values)):
        out[i] = step_of(values[i], scale)


@kernel(types.void(_STEPS, reads(types.int64, 1), writes(types.int32, 1)))
def cells_of(steps, axis, out):  # type: ignore[no-untyped-def]
    """Writes the cell of each step."""
    for i in range(len(steps)):
        out[i] = cell_of(steps[i], axis)


@kernel(types.float64(_LISTS, types.int64, types.int64))
def value_of(lists, k, place):  # type: ignore[no-untyped-def]
    """The value of the border at a place of axis k; if it is not kept, it is an end of its box."""
    starts, attributes, width, lo, hi, values, _, owners, _, axes, _ = lists
    if axes[k, IN_VALUES] != NOT_KEPT:
        return values[place + axes[k, IN_VALUES]]
    box = np.int64(owners[place] >> 1)
    entry = box * width + k if width else starts[box]
    while width == 0 and attributes[entry] != axes[k, ATTRIBUTE]:
        entry += 1
    return hi[entry] if owners[place] & 1 else lo[entry]


@kernel(types.int64(_FLOATS, types.int64, types.int64, types.float64))
def _above(values, low, high, x):  # type: ignore[no-untyped-def]
    """The place of the first of ``values[low:high]`` above x, or high. O(log(high - low))."""
    while low < high:
        middle = (low + high) >> 1
        if values[middle] <= x:
            low = middle + 1
        else:
            high = middle
    return low


@kernel(types.int64(_FLOATS, types.int64, types.int64, types.float64))
def _gallop(values, low, stop, x):  # type: ignore[no-untyped-def]
    """The place of the first of ``values[low:stop]`` above x, for one that is likely to be near."""
    step = 1
    high = low
    while high < stop and values[high] <= x:
        low = high + 1
        high += step
        step *= 2
    return _above(values, low, min(high, stop), x)


@kernel(types.int64(_STEPS, types.int64, types.int64, types.uint32))
def _not_below(steps, low, high, step):  # type: ignore[no-untyped-def]
    """The place of the first of ``steps[low:high]`` that is not below a step, or high."""
    while low < high:
        middle = (low + high) >> 1
        if steps[middle] < step:
            low = middle + 1
        else:
            high = middle
    return low


@kernel(types.int64(_LISTS, types.int64, types.int64, types.int64, types.float64, types.uint32))
def above(lists, k, low, high, x, step):  # type: ignore[no-untyped-def]
    """The first place from low on, or else high, of a border of axis k above x, which has this step.
    O(log(high - low))."""
    axes, steps = lists.axes, lists.steps
    shift = axes[k, IN_VALUES]
    if shift != NOT_KEPT:
        return _above(lists.values, low + shift, high + shift, x) - shift
    shift = axes[k, IN_STEPS]
    low = _not_below(steps, low + shift, high + shift, step) - shift
    high = _not_below(steps, low + shift, high + shift, np.uint32(step + 1)) - shift
    while low < high:
        middle = (low + high) >> 1
        if x < value_of(lists, k, middle):
            high = middle
        else:
            low = middle + 1
    return low


@kernel(types.int64(_LISTS, types.int64, types.float64))
def rank_of(lists, k, x):  # type: ignore[no-untyped-def]
    """The place of the first border of axis k above x."""
    step = step_of(x, lists.scales[k])
    cell = cell_of(step, lists.axes[k])
    return above(lists, k, lists.cells[cell], lists.cells[cell + 1], x, step)


@kernel(
    types.int64(
        _POINTS,
        _POINTS,
        _INT32,
        _INT32,
        *_COLUMNS,
        _INT32,
        types.int64,
        types.int64,
        writes(types.boolean, 1),
        writes(types.int64, 1),
    )
)
def search(  # type: ignore[no-untyped-def]
    before, after, slots, partners, starts, attributes, width, lo, hi, values, steps, owners, scales, axes,
    cells, removed_at, version, most, far, out,
):  # fmt: skip
    """See ``BorderLists.search``. The lists come one by one: as a tuple they take longer to hand over."""
    lists = Lists(starts, attributes, width, lo, hi, values, steps, owners, scales, axes, cells)
    count_axes = len(axes)
    # By axis, of both ends of each move: the value, its step and cell, and how many borders are at most it.
    xs, wanted = np.empty((count_axes, _ENDS)), np.empty((count_axes, _ENDS), np.uint32)
    its_cells, ranks = np.empty(_ENDS, np.uint64), np.empty((count_axes, _ENDS), np.uint64)
    crossed = np.empty(_ROWS, np.int64)
    paired = len(partners) > 0
    whole = len(removed_at) == 0
    found = np.int64(0)
    for first in range(0, before.shape[0], _ROWS):
        stop = min(first + _ROWS, before.shape[0])
        crossed[:] = 0
        for k in range(count_axes):
            a, origin, a_half = axes[k, ATTRIBUTE], scales[k, HALF_ORIGIN], scales[k, STEPS]
            least, last = scales[k, LEAST], scales[k, MOST]
            first_cell, base, top, factor = axes[k, FIRST_CELL], axes[k, BASE], axes[k, TOP], axes[k, FACTOR]
            kept = axes[k, IN_VALUES] != NOT_KEPT
            shift = axes[k, IN_VALUES] if kept else axes[k, IN_STEPS]
            at = _ZERO
            for row in range(first, stop):
                b, c = before[row, a], after[row, a]
                for larger in range(2):
                    x = max(b, c) if larger else min(b, c)
                    beyond = x * 0.5 - origin
                    beyond = beyond if beyond > least else least
                    beyond = beyond if beyond < last else last
                    step = np.int64(beyond * a_half + 1.0)
                    cell = np.uint64(first_cell + ((min(max(step, base), top) - base) * factor >> 32))
                    prefetch(cells, cell)
                    xs[k, at], wanted[k, at], its_cells[at] = x, step, cell
                    at += _ONE
            for i in range(at):
                place = np.uint64(cells[its_cells[i]] + shift)
                if kept:
                    prefetch(values, place)
                else:
                    prefetch(steps, place)
                ranks[k, i] = place
            if kept:
                for i in range(at):
                    place = ranks[k, i]
                    passed = at_most(values, place, xs[k, i])
                    if passed == _LANES:
                        stop_at = cells[its_cells[i] + _ONE] + shift
                        near = np.int64(place + _LANES)
                        if i & 1 == 0:
                            rank = _above(values, near, stop_at, xs[k, i])
                        else:
                            near = max(near, np.int64(ranks[k, i - _ONE]) + shift)
                            rank = _gallop(values, near, stop_at, xs[k, i])
                        passed = np.uint64(rank) - place
                    ranks[k, i] = np.int64(place + passed) - shift
            else:
                for i in range(at):
                    place = ranks[k, i]
                    passed = less(steps, place, wanted[k, i])
                    place += passed
                    rank = np.int64(place) - shift
                    # The few of the cell that were looked at decide, unless there is one with the same step.
                    if passed == _LANES or steps[place] == wanted[k, i]:
                        stop_at = np.int64(cells[its_cells[i] + _ONE])
                        rank = above(lists, k, rank, stop_at, xs[k, i], wanted[k, i])
                    ranks[k, i] = rank
            for i in range(np.uint64(stop - first)):
                low = ranks[k, _TWO * i]
                crossed[i] += np.int64(ranks[k, _TWO * i + _ONE] - low)
                if paired:
                    prefetch(partners, low)
                    prefetch(slots, low)
                else:
                    prefetch(owners, low)
        for row in range(first, stop):
            at = _TWO * np.uint64(row - first)
            if far[row]:
                continue
            if crossed[row - first] > most:
                far[row] = True
                continue
            if paired:
                for k in range(count_axes):
                    low, high = np.int64(ranks[k, at]), np.int64(ranks[k, at + _ONE])
                    apart = np.uint32(high - low)
                    base = np.int64(row) << 32
                    up = np.int64(before[row, axes[k, ATTRIBUTE]] < after[row, axes[k, ATTRIBUTE]])
                    # Where there is room for all, keys are written without a branch.
                    roomy = high - low <= out.size - found
                    written = np.uint64(found)
                    for border in range(np.uint64(low), np.uint64(high)):
                        partner = np.int64(partners[border])
                        # With the other border of the box crossed too, it holds neither end.
                        held = np.uint32(partner - low) >= apart
                        if not whole:
                            held &= removed_at[np.uint64(owners[border] >> 1)] > version
                        if roomy or (held and written < np.uint64(out.size)):
                            entered = np.int64(partner < low) ^ up
                            out[written] = base | np.int64(slots[border]) << 1 | entered
                        written += np.uint64(held)
                    found = np.int64(written)
                continue
            for k in range(count_axes):
                a = axes[k, ATTRIBUTE]
                low, high = ranks[k, at], ranks[k, at + _ONE]
                for border in range(low, high):
                    box = np.int64(owners[border] >> 1)
                    entry = box * width if width else starts[box]
                    count = width if width else starts[box + 1] - entry
                    was = now = True
                    for n in range(count):
                        i = entry + n
                        j = attributes[n] if width else attributes[i]
                        was &= (lo[i] <= before[row, j]) & (before[row, j] < hi[i])
                        now &= (lo[i] <= after[row, j]) & (after[row, j] < hi[i])
                        if not (was or now):
                            break
                    if was == now or not (whole or removed_at[box] > version):
                        continue
                    taken = False  # whether a border of the box that comes before this one was crossed
                    for n in range(count):
                        i = entry + n
                        j = attributes[n] if width else attributes[i]
                        if j > a:
                            break
                        crossed_lo = (lo[i] <= before[row, j]) != (lo[i] <= after[row, j])
                        crossed_hi = (before[row, j] < hi[i]) != (after[row, j] < hi[i])
                        if j < a:
                            taken |= crossed_lo | crossed_hi
                        else:
                            taken |= (owners[border] & 1 != 0) & crossed_lo
                    if not taken:
                        if found < out.size:
                            out[found] = np.int64(row) << 32 | np.int64(slots[box]) << 1 | np.int64(now)
                        found += 1
    return found


@kernel(
    types.int64(
        _POINTS, _POINTS, _LISTS, _INT32, types.int64, writes(types.int64, 1), writes(types.boolean, 1)
    )
)
def met(  # type: ignore[no-untyped-def]
    before, after, lists, removed_at, version, out, doubtful
):  # fmt: skip
    """See ``BorderLists.met``. In an attribute the segment is in the box for a range of its parameter t; the
    box is met where all ranges and [0, 1] have a t in common.

    Which boxes are candidates is decided as in ``search``, in the loop and not by a kernel that both call:
    a call for each border made small moves four times as long."""
    starts, attributes, width, lo, hi, _, _, owners, _, axes, _ = lists
    found = 0
    for row in range(before.shape[0]):
        for axis in range(len(axes)):
            a = axes[axis, ATTRIBUTE]
            b, c = before[row, a], after[row, a]
            if not (np.isfinite(b) and np.isfinite(c)) or b == c:
                continue
            begin = rank_of(lists, axis, min(b, c))
            end = rank_of(lists, axis, max(b, c))
            for place in range(begin, end):
                box = np.int64(owners[place] >> 1)
                if removed_at[box] <= version:
                    continue
                was = now = met = True
                taken = False
                unsure = False
                enters, leaves = 0.0, 1.0
                entry = box * width if width else starts[box]
                count = width if width else starts[box + 1] - entry
                for k in range(count):
                    i = entry + k
                    j = attributes[k] if width else attributes[i]
                    b, c = before[row, j], after[row, j]
                    above_b, above_c = lo[i] <= b, lo[i] <= c
                    below_b, below_c = b < hi[i], c < hi[i]
                    was &= above_b & below_b
                    now &= above_c & below_c
                    if j < a:
                        taken |= (above_b != above_c) | (below_b != below_c)
                    elif j == a:
                        taken |= (owners[place] & 1 != 0) & (above_b != above_c)
                    met &= np.isfinite(b) & np.isfinite(c)
                    # Both ends on one outer side: certain, whatever rounding does below.
                    met &= (above_b | above_c) & (below_b | below_c)
                    if met and b != c:
                        # Halved: the difference of two finite numbers may be infinite.
                        step = c / 2 - b / 2
                        if abs(step) < 1e-290:  # halves of the least numbers are rounded, to zero even
                            unsure = True
                            continue
                        if above_b != above_c:
                            t = (lo[i] / 2 - b / 2) / step
                            if above_c:
                                enters = max(enters, t)
                            else:
                                leaves = min(leaves, t)
                        if below_b != below_c:
                            t = (hi[i] / 2 - b / 2) / step
                            if below_b:
                                leaves = min(leaves, t)
                            else:
                                enters = max(enters, t)
                if was or now or taken or not met:
                    continue
                # Each t is off by a few units in the last place, relative to 1.
                unsure |= abs(leaves - enters) <= 1e-12
                if leaves < enters and not unsure:
                    continue
                if found < out.size:
                    out[found] = np.int64(row) << 32 | box
                    doubtful[found] = unsure
                found += 1
    return found
