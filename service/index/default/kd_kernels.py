"""Kernels that find the boxes around points in a kd partition; ``kd``, ``kd_tree``, ``kd_leaves`` have words.

A *link* leads to a leaf, ``~leaf``, or to an inner node and says in which attribute that is split:
``node << 2 | attribute``. ``nodes``: ``float64[i, 2]``, the value of the split and, as two int32, the links
below and above it. ``axes``: ``float64[k, 4]``, by attribute the origin, scale and number of cells of a grid
and its number in the index; ``grid``: the link of each cell, the last attribute running fastest.

``leaves``: ``float64[l + 1, k + (k + 1) // 2 + 1]``, a leaf a row: its k origins, its k scales as float32,
and as two int32 its first block and its first *cover*, -1 if it has none. ``covers``: ``int32[c + 1, 2]``,
nodes that boxes cover: the first of these in ``covering``, and the next cover above, or -1. ``lanes``: see
``kd_leaves``.

Not for: what makes the tree.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from service.index.kernel import kernel, reads, writes

BLOCK = 16
FAR = 2.0**900
MOST_SCALE = 2.0**120
"""Values beyond FAR share a cell and a step, and a unit of value has no more of these: nothing overflows."""

_ROWS = 64
"""Points that are looked up before the first of them is answered: what they miss in the cache overlaps."""

_FLOATS = reads(types.float64, 1)
_INTS = reads(types.int32, 1)
_MATRIX = reads(types.float64, 2)


class Search(NamedTuple):
    """What ``search`` reads besides the boxes themselves, in its order; see the module."""

    nodes: NDArray[np.float64]
    axes: NDArray[np.float64]
    grid: NDArray[np.int32]
    leaves: NDArray[np.float64]
    lanes: NDArray[np.uint16]
    covering: NDArray[np.int32]
    covers: NDArray[np.int32]


@kernel(types.int64(types.float64, types.float64, types.float64, types.float64))
def cell_of(x, origin, scale, cells):  # type: ignore[no-untyped-def]
    """The cell of a value among equal ones from ``origin`` on; those beyond share the first and the last, NaN
    is in the first. Monotone, which is all that matters."""
    place = (min(max(x, -FAR), FAR) - origin) * scale
    if not place > 0.0:
        return 0
    if place >= cells - 1.0:
        return np.int64(cells) - 1
    return np.int64(place)


@kernel(types.void(_MATRIX, types.int32, _MATRIX, writes(types.int32, 1)))
def write_grid(nodes, root, axes, grid):  # type: ignore[no-untyped-def]
    """Writes the link to the deepest node that holds all of each cell. O(cells * depth)."""
    links = nodes.view(np.int32)
    dims = axes.shape[0]
    cell = np.zeros(dims, np.int64)
    for number in range(len(grid)):
        link = root
        while link >= 0:
            node, j = link >> 2, link & 3
            value = nodes[node, 0]
            own = cell_of(value, axes[j, 0], axes[j, 1], axes[j, 2])
            before = cell_of(np.nextafter(value, -np.inf), axes[j, 0], axes[j, 1], axes[j, 2])
            if cell[j] == own and before == own:
                break
            link = links[node, 2 + (cell[j] >= own)]
        grid[number] = link
        j = dims - 1
        while j >= 0:
            cell[j] += 1
            if cell[j] < axes[j, 2]:
                break
            cell[j] = 0
            j -= 1


@kernel(types.int64(types.float64, types.float64, types.float64))
def step_of(x, origin, scale):  # type: ignore[no-untyped-def]
    """The step of a value that is not NaN, 1 .. 65534. Monotone; the origin is finite, the scale positive."""
    place = (min(max(x, -FAR), FAR) - origin) * scale
    if place < 0.0:
        return 1
    if place >= 65532.0:
        return 65534
    return np.int64(place) + 2


@kernel(
    types.void(
        _MATRIX,
        _MATRIX,
        reads(types.int64, 1),
        reads(types.int32, 1),
        reads(types.float64, 3),
        _MATRIX,
        writes(types.uint16, 2),
    )
)
def encode(lo, hi, starts, entries, cells, leaves, lanes):  # type: ignore[no-untyped-def]
    """Writes the lanes of every leaf, given its scales and blocks: ``entries[starts[leaf]:starts[leaf + 1]]``
    of the boxes cut its cell ``cells[leaf]``, lower and upper ends. O(k entries)."""
    dims = lo.shape[1]
    halves, numbers, boxes = leaves.view(np.float32), leaves.view(np.int32), lanes.view(np.int32)
    begin = numbers.shape[1] - 2
    for leaf in range(len(starts) - 1):
        size = starts[leaf + 1] - starts[leaf]
        first = numbers[leaf, begin]
        for i in range((numbers[leaf + 1, begin] - first) * BLOCK):
            block, lane = first + i // BLOCK, i % BLOCK
            box = entries[starts[leaf] + i] if i < size else 0
            boxes[block, dims * BLOCK + lane] = box
            for j in range(dims):
                origin, scale = leaves[leaf, j], halves[leaf, 2 * dims + j]
                lower, upper = np.int64(0), np.int64(65535)
                if i >= size:
                    lower, upper = upper, lower
                elif lo[box, j] > cells[leaf, 0, j]:
                    # A step less if no smaller value has it: the end is then between two steps.
                    lower = step_of(lo[box, j], origin, scale)
                    lower -= step_of(np.nextafter(lo[box, j], -np.inf), origin, scale) < lower
                if i < size and hi[box, j] < cells[leaf, 1, j]:
                    upper = step_of(hi[box, j], origin, scale)
                lanes[block, 2 * j * BLOCK + lane] = lower
                lanes[block, (2 * j + 1) * BLOCK + lane] = upper


@kernel(
    types.int64(
        _MATRIX,
        types.int64,
        _MATRIX,
        _MATRIX,
        _INTS,
        writes(types.int64, 1),
        writes(types.float64, 2),
        writes(types.int64, 1),
    )
)
def look_up(points, base, nodes, axes, grid, row_of, values, leaf_of):  # type: ignore[no-untyped-def]
    """For up to _ROWS points from ``base`` on that are somewhere, the row, the values and the leaf; returns
    how many. All points go down a level before any goes down the next, so that they wait together."""
    dims = axes.shape[0]
    links = nodes.view(np.int32)
    count = 0
    for row in range(base, min(base + _ROWS, points.shape[0])):
        cell = 0
        somewhere = True
        for j in range(dims):
            x = points[row, np.int64(axes[j, 3])]
            somewhere &= x < np.inf
            cell = cell * np.int64(axes[j, 2]) + cell_of(x, axes[j, 0], axes[j, 1], axes[j, 2])
            values[count, j] = x
        row_of[count] = row
        leaf_of[count] = grid[cell]
        count += somewhere
    going = len(nodes) > 0
    while going:
        going = False
        for i in range(count):
            link = leaf_of[i]
            node = max(link, 0) >> 2
            below = links[node, 2 + (values[i, link & 3 if link >= 0 else 0] >= nodes[node, 0])]
            link = below if link >= 0 else link
            leaf_of[i] = link
            going |= link >= 0
    for i in range(count):
        leaf_of[i] = ~leaf_of[i]
    return count


@kernel(
    types.int64(
        reads(types.int64, 1), types.int64, _INTS, _INTS, types.int64, writes(types.int64, 1), types.int64
    )
)
def report(found, count, slots, removed_at, version, out, needed):  # type: ignore[no-untyped-def]
    """Appends the keys of those of the first ``count`` of ``found``, ``row << 32 | box``, that live, behind
    the first ``needed`` of ``out`` as far as it goes; returns ``needed`` with them. ``removed_at`` is empty
    if every box lives."""
    seen = np.int32(version)
    whole = len(removed_at) == 0
    if count <= len(out) - needed:
        # Room for all that may come: keys are written without a branch.
        written = np.uint64(needed)
        if whole:
            for i in range(np.uint64(count)):
                box = np.uint64(found[i]) & np.uint64(0xFFFFFFFF)
                out[written + i] = (found[i] >> 32) << 32 | slots[box]
            return needed + count
        for i in range(np.uint64(count)):
            box = np.uint64(found[i]) & np.uint64(0xFFFFFFFF)
            out[written] = (found[i] >> 32) << 32 | slots[box]
            written += np.uint64(removed_at[box] > seen)
        return np.int64(written)
    for i in range(count):
        box = found[i] & 0xFFFFFFFF
        if whole or removed_at[box] > seen:
            if needed < len(out):
                out[needed] = (found[i] >> 32) << 32 | slots[box]
            needed += 1
    return needed


@kernel(
    types.int64(
        _MATRIX,
        _MATRIX,
        _INTS,
        _INTS,
        _MATRIX,
        _MATRIX,
        _INTS,
        _MATRIX,
        reads(types.uint16, 2),
        _INTS,
        reads(types.int32, 2),
        _MATRIX,
        types.int64,
        writes(types.int64, 1),
    )
)
def search(  # type: ignore[no-untyped-def]
    lo, hi, slots, removed_at, nodes, axes, grid, leaves, lanes, covering, covers, points, version, out
):  # fmt: skip
    """Writes the key ``row << 32 | slot`` of every living box around a point; at most ``len(out)``, returns
    how many there are. O(depth below the grid + blocks of the leaf + hits) a point."""
    dims = lo.shape[1]
    halves, numbers, boxes = leaves.view(np.float32), leaves.view(np.int32), lanes.view(np.int32)
    begin = numbers.shape[1] - 2
    row_of, leaf_of = np.empty(_ROWS, np.int64), np.empty(_ROWS, np.int64)
    values, steps = np.empty((_ROWS, dims), np.float64), np.empty((_ROWS, dims), np.uint16)
    passed, touched = np.empty(BLOCK, np.uint16), np.empty(_ROWS, np.uint16)
    found = np.empty(32 * _ROWS, np.int64)
    # Unsigned, because an index that may be negative costs the vector code.
    width = np.uint64(BLOCK)
    needed = np.int64(0)
    for base in range(0, points.shape[0], _ROWS):
        rows = look_up(points, base, nodes, axes, grid, row_of, values, leaf_of)
        for i in range(rows):
            leaf = leaf_of[i]
            for j in range(dims):
                steps[i, j] = step_of(values[i, j], leaves[leaf, j], halves[leaf, 2 * dims + j])
            # Of no use but to have all lanes of all points on their way before the first is compared.
            touch = np.uint16(0)
            for block in range(numbers[leaf, begin], numbers[leaf + 1, begin]):
                for line in range(0, lanes.shape[1], 32):
                    touch ^= lanes[block, line]
            touched[i] = touch
        count = np.int64(0)
        for i in range(rows):
            leaf = leaf_of[i]
            key = row_of[i] << 32
            for block in range(numbers[leaf, begin], numbers[leaf + 1, begin]):
                if count + BLOCK > len(found):
                    needed = report(found, count, slots, removed_at, version, out, needed)
                    count = np.int64(0)
                ends = lanes[block]
                unsure = np.uint16(0)
                if dims == 2:
                    s, t = steps[i, 0], steps[i, 1]
                    for lane in range(width):
                        a, b = ends[lane], ends[lane + width]
                        c, d = ends[lane + np.uint64(2 * BLOCK)], ends[lane + np.uint64(3 * BLOCK)]
                        inside = (a <= s) & (s <= b) & (c <= t) & (t <= d)
                        passed[lane] = inside
                        unsure |= inside & ((a == s) | (b == s) | (c == t) | (d == t))
                else:
                    for lane in range(width):
                        passed[lane] = 1
                    for j in range(dims):
                        s = steps[i, j]
                        lower, upper = np.uint64(2 * j * BLOCK), np.uint64((2 * j + 1) * BLOCK)
                        for lane in range(width):
                            a, b = ends[lower + lane], ends[upper + lane]
                            passed[lane] &= (a <= s) & (s <= b)
                            unsure |= passed[lane] & ((a == s) | (b == s))
                if unsure:
                    for lane in range(BLOCK):
                        box = boxes[block, dims * BLOCK + lane]
                        for j in range(dims if passed[lane] else 0):
                            if not (lo[box, j] <= values[i, j] and values[i, j] < hi[box, j]):
                                passed[lane] = 0
                place = np.uint64(count)
                for lane in range(width):
                    found[place] = key | boxes[block, np.uint64(dims * BLOCK) + lane]
                    place += np.uint64(passed[lane])
                count = np.int64(place)
            cover = numbers[leaf, begin + 1]
            while cover >= 0:
                for at in range(covers[cover, 0], covers[cover + 1, 0]):
                    if count == len(found):
                        needed = report(found, count, slots, removed_at, version, out, needed)
                        count = np.int64(0)
                    found[count] = key | covering[at]
                    count += 1
                cover = covers[cover, 1]
        needed = report(found, count, slots, removed_at, version, out, needed)
    return needed
