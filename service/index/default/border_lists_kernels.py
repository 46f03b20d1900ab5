"""Kernels of border lists; ``border_lists`` has the idea and the words.

Not for: making the lists.
"""

from __future__ import annotations

import numpy as np
from numba import types

from service.index.kernel import kernel, reads, writes

_FLOATS = reads(types.float64, 1)
_RANKS = (
    reads(types.int64, 1),
    reads(types.float64, 2),
    reads(types.int64, 1),
    reads(types.int32, 1),
)
_LISTS = (
    reads(types.int64, 1),
    reads(types.uint8, 1),
    types.int64,
    _FLOATS,
    _FLOATS,
    _FLOATS,
    reads(types.int32, 1),
    *_RANKS,
    reads(types.int32, 1),
    types.int64,
)
_POINTS = reads(types.float64, 2)


@kernel(types.int64(types.float64, _FLOATS, types.int64))
def _cell(x, grid, cells):  # type: ignore[no-untyped-def]
    """The cell of x, 0 to ``cells - 1``: monotone in x, whatever is rounded. Beyond the grid, the first or
    the last. Nothing overflows: x is brought between the ends of the grid, and halves are subtracted."""
    place = (min(max(x, grid[0]), grid[2]) / 2 - grid[0] / 2) * grid[1]
    return np.int64(min(place, cells - 1))


@kernel(types.void(_FLOATS, _FLOATS, types.int64, writes(types.int32, 1)))
def cells_of(values, grid, cells, out):  # type: ignore[no-untyped-def]
    """Writes the cell of each value."""
    for i in range(len(values)):
        out[i] = _cell(values[i], grid, cells)


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


@kernel(types.int64(_FLOATS, *_RANKS, types.int64, types.float64))
def rank_of(values, first, grid, first_cell, cells, a, x):  # type: ignore[no-untyped-def]
    """The place of the first border of attribute a above x: all values in earlier cells are at most x."""
    begin = first_cell[a]
    cell = begin + _cell(x, grid[a], first_cell[a + 1] - begin - 1)
    return _above(values, first[a] + cells[cell], first[a] + cells[cell + 1], x)


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


@kernel(
    types.int64(
        _POINTS,
        _POINTS,
        reads(types.int32, 1),
        reads(types.int32, 1),
        *_LISTS,
        types.int64,
        writes(types.boolean, 1),
        writes(types.int64, 1),
    )
)
def search(  # type: ignore[no-untyped-def]
    before, after, slots, partners, starts, attributes, width, lo, hi, values, owners, first, grid,
    first_cell, cells, removed_at, version, most, far, out,
):  # fmt: skip
    """See ``BorderLists.search``. Far rows are told from the grid alone where that suffices."""
    dims = before.shape[1]
    begin = np.zeros(dims, np.int64)
    end = np.zeros(dims, np.int64)
    one_by_one = len(partners) > 0
    whole = len(removed_at) == 0
    found = np.int64(0)
    for row in range(before.shape[0]):
        if far[row]:
            continue
        crossed = 0
        for a in range(dims):
            b, c = before[row, a], after[row, a]
            begin[a] = end[a] = 0
            if b != c and first[a] < first[a + 1]:
                count = first_cell[a + 1] - first_cell[a] - 1
                begin[a] = first_cell[a] + _cell(min(b, c), grid[a], count)
                end[a] = first_cell[a] + _cell(max(b, c), grid[a], count)
                # Those of the cells between; most often there is none.
                crossed += max(0, cells[end[a]] - cells[min(begin[a] + 1, end[a])])
        if crossed > most:
            far[row] = True
            continue
        crossed = 0
        for a in range(dims):
            b, c = before[row, a], after[row, a]
            if b != c and first[a] < first[a + 1]:
                low, high = first[a] + cells[begin[a]], first[a] + cells[begin[a] + 1]
                begin[a] = _above(values, low, high, min(b, c))
                end[a] = _gallop(values, begin[a], first[a + 1], max(b, c))
                crossed += end[a] - begin[a]
        if crossed > most:
            far[row] = True
            continue
        if one_by_one:
            for a in range(dims):
                up = before[row, a] < after[row, a]
                low, high = np.int32(begin[a]), np.int32(end[a])
                # Where there is room for all, keys are written without a branch. Unsigned, because an index
                # that may be negative costs a test.
                roomy = high - low <= out.size - found
                written = np.uint64(found)
                for place in range(np.uint64(low), np.uint64(high)):
                    owner = owners[place]
                    owning = np.uint64(owner >> 1)
                    # With the other border of the box crossed too, it holds neither end.
                    held = (partners[place] < low) | (partners[place] >= high)
                    if not whole:
                        held &= removed_at[owning] > version
                    if roomy or (held and written < np.uint64(out.size)):
                        entered = np.int64((owner & 1 == 0) == up)
                        out[written] = np.int64(row) << 32 | np.int64(slots[owning]) << 1 | entered
                    written += np.uint64(held)
                found = np.int64(written)
            continue
        for a in range(dims):
            for place in range(begin[a], end[a]):
                box = np.int64(owners[place] >> 1)
                entry = box * width if width else starts[box]
                count = width if width else starts[box + 1] - entry
                was = now = True
                for k in range(count):
                    i = entry + k
                    j = attributes[k] if width else attributes[i]
                    was &= (lo[i] <= before[row, j]) & (before[row, j] < hi[i])
                    now &= (lo[i] <= after[row, j]) & (after[row, j] < hi[i])
                    if not (was or now):
                        break
                if was == now or not (whole or removed_at[box] > version):
                    continue
                taken = False  # whether a border of the box that comes before this one was crossed
                for k in range(count):
                    i = entry + k
                    j = attributes[k] if width else attributes[i]
                    if j > a:
                        break
                    crossed_lo = (lo[i] <= before[row, j]) != (lo[i] <= after[row, j])
                    crossed_hi = (before[row, j] < hi[i]) != (after[row, j] < hi[i])
                    if j < a:
                        taken |= crossed_lo | crossed_hi
                    else:
                        taken |= (owners[place] & 1 != 0) & crossed_lo
                if not taken:
                    if found < out.size:
                        out[found] = np.int64(row) << 32 | np.int64(slots[box]) << 1 | np.int64(now)
                    found += 1
    return found


@kernel(types.int64(_POINTS, _POINTS, *_LISTS, writes(types.int64, 1), writes(types.boolean, 1)))
def met(  # type: ignore[no-untyped-def]
    before, after, starts, attributes, width, lo, hi, values, owners, first, grid, first_cell, cells,
    removed_at, version, out, doubtful,
):  # fmt: skip
    """See ``BorderLists.met``. In an attribute the segment is in the box for a range of its parameter t; the
    box is met where all ranges and [0, 1] have a t in common.

    Which boxes are candidates is decided as in ``search``, in the loop and not by a kernel that both call:
    a call for each border made small moves four times as long."""
    dims = before.shape[1]
    found = 0
    for row in range(before.shape[0]):
        for a in range(dims):
            b, c = before[row, a], after[row, a]
            if not (np.isfinite(b) and np.isfinite(c)) or b == c or first[a] == first[a + 1]:
                continue
            begin = rank_of(values, first, grid, first_cell, cells, a, min(b, c))
            end = _gallop(values, begin, first[a + 1], max(b, c))
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
