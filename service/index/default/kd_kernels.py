"""Kernels that find the boxes around points in a kd partition; ``kd``, ``kd_tree``, ``kd_leaves`` have words.

A *link* leads to a leaf, ``~leaf``, or to an inner node and says in which attribute that is split:
``node << 2 | attribute``. ``nodes``: ``float64[i, 2]``, the value of the split and, as two int32, the links
below and above it. ``axes``: ``float64[k, 4]``, by attribute the origin, scale and number of cells of a grid
and its number in the index; ``grid``: the link of each cell, the last attribute running fastest.

``leaves``: ``float64[l + 1, k + (k + 1) // 2 + 1]``, a leaf a row: its k origins, its k scales as float32,
and as two int32 its first block and its first *cover*, -1 if it has none. ``covers``: ``int32[c + 1, 2]``,
nodes that boxes cover: the first of these in ``covering``, ``int32[e, 2]``, boxes with their slots, and the
next cover above, or -1. ``lanes``: see ``kd_leaves``.

``search`` reads all of these in one arena and addresses them by where they begin in it: a view of an array
inside of a loop costs more than what is done with it.

Not for: what makes the tree.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from service.index.kernel import instruction, kernel, prefetching, reads, writes

BLOCK = 16
FAR = 2.0**900
MOST_SCALE = 2.0**120
"""Values beyond FAR share a cell and a step, and a unit of value has no more of these: nothing overflows."""

_LINE = np.uint64(32)
"""Steps in a line of the cache: the ends of a block in an attribute, or its slots."""

_WAITING = 1024
"""Keys that are found before it is looked whether their boxes live."""

_AHEAD = 32
"""Marks that are fetched ahead of the one that is looked at."""

_FETCHED = 4
"""Blocks of a leaf that are fetched before the first point is compared. Most leaves have two or three."""

_ROWS = 128
"""Points that are looked up before the first of them is answered. What is read next, of all of them, is
fetched while the others are looked at: the cell of the grid, nodes, the leaf, its lanes, its first cover."""

_FLOATS = reads(types.float64, 1)
_INTS = reads(types.int32, 1)
_MATRIX = reads(types.float64, 2)


class Search(NamedTuple):
    """What ``search`` reads, in the order of the arena; see the module. The boxes are ``float64[n, k]``."""

    lo: NDArray[np.float64]
    hi: NDArray[np.float64]
    slots: NDArray[np.int32]
    removed_at: NDArray[np.int32]
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
        _INTS,
        reads(types.int64, 1),
        _INTS,
        reads(types.float64, 3),
        _MATRIX,
        writes(types.uint16, 2),
    )
)
def encode(lo, hi, slots, starts, entries, cells, leaves, lanes):  # type: ignore[no-untyped-def]
    """Writes the lanes of every leaf, given its scales and blocks: ``entries[starts[leaf]:starts[leaf + 1]]``
    of the boxes cut its cell ``cells[leaf]``, lower and upper ends. O(k entries)."""
    dims = lo.shape[1]
    halves, numbers, names = leaves.view(np.float32), leaves.view(np.int32), lanes.view(np.int32)
    begin = numbers.shape[1] - 2
    for leaf in range(len(starts) - 1):
        size = starts[leaf + 1] - starts[leaf]
        first = numbers[leaf, begin]
        for i in range((numbers[leaf + 1, begin] - first) * BLOCK):
            block, lane = first + i // BLOCK, i % BLOCK
            box = entries[starts[leaf] + i] if i < size else 0
            names[block, dims * BLOCK + lane] = slots[box]
            names[block, (dims + 1) * BLOCK + lane] = box
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


@instruction(prefetching(3))
def prefetch(array, at):  # type: ignore[no-untyped-def]
    """Has the element ``at`` of an array brought into the cache meanwhile; it need not be there."""


_NODES, _AXES, _GRID, _LEAVES, _LANES, _COVERING, _COVERS = range(4, 11)


@kernel(
    types.int64(
        _MATRIX,
        types.int64,
        reads(types.uint8, 1),
        writes(types.int64, 2),
        writes(types.float64, 2),
    )
)
def look_up(points, base, arena, found, values):  # type: ignore[no-untyped-def]
    """For as many points from ``base`` on as there is room for, those that are somewhere: the row,
    ``found[0]``, the leaf, ``found[1]``, and the ``values``; returns how many. All points go down a level
    before any goes down the next, and what the next reads is fetched meanwhile: so they wait together.
    ``found[2]`` is scratch, those that go on."""
    header, floats, numbers = arena.view(np.int64), arena.view(np.float64), arena.view(np.int32)
    nodes, axes, grid = header[2 * _NODES] >> 3, header[2 * _AXES] >> 3, header[2 * _GRID] >> 2
    leaves, dims = header[2 * _LEAVES] >> 3, values.shape[1]
    leaf_width = dims + (dims + 1) // 2 + 1
    count = going = 0
    for row in range(base, min(base + found.shape[1], points.shape[0])):
        cell = 0
        somewhere = True
        for j in range(dims):
            axis = axes + 4 * j
            x = points[row, np.int64(floats[axis + 3])]
            somewhere &= x < np.inf
            cells = floats[axis + 2]
            cell = cell * np.int64(cells) + cell_of(x, floats[axis], floats[axis + 1], cells)
            values[count, j] = x
        found[0, count], found[1, count] = row, grid + cell
        prefetch(numbers, np.uint64(grid + cell))
        count += somewhere
    for i in range(count):
        link = numbers[found[1, i]]
        found[1, i], found[2, going] = link, i
        prefetch(floats, np.uint64(nodes + 2 * (max(link, 0) >> 2)))
        going += int(link >= 0)
    while going > 0:
        left = 0
        for k in range(going):
            i = found[2, k]
            link = found[1, i]
            node = nodes + 2 * (link >> 2)
            link = numbers[2 * node + 2 + (values[i, link & 3] >= floats[node])]
            found[1, i], found[2, left] = link, i
            prefetch(floats, np.uint64(nodes + 2 * (max(link, 0) >> 2)))
            left += int(link >= 0)
        going = left
    for i in range(count):
        found[1, i] = ~found[1, i]
        prefetch(floats, np.uint64(leaves + found[1, i] * leaf_width))
    return count


@kernel(
    types.int64(
        _INTS,
        types.int64,
        types.int32,
        reads(types.int64, 2),
        types.int64,
        types.int64,
        writes(types.int64, 1),
    )
)
def keep(numbers, removed_at, seen, waiting, count, needed, out):  # type: ignore[no-untyped-def]
    """Writes, behind the ``needed`` keys that there are, those of the first that wait whose boxes, the second
    row, live; at most ``len(out)``. Returns how many there are then."""
    for i in range(min(count, _AHEAD)):
        prefetch(numbers, np.uint64(removed_at + waiting[1, i]))
    for i in range(count):
        prefetch(numbers, np.uint64(removed_at + waiting[1, min(i + _AHEAD, count - 1)]))
        if needed < len(out):
            out[needed] = waiting[0, i]
        needed += numbers[removed_at + waiting[1, i]] > seen
    return needed


@kernel(
    types.int64(
        reads(types.uint8, 1),
        _MATRIX,
        types.int64,
        types.boolean,
        writes(types.int64, 1),
    )
)
def search(arena, points, version, whole, out):  # type: ignore[no-untyped-def]
    """Writes the key ``row << 32 | slot`` of every living box around a point; at most ``len(out)``, returns
    how many there are. ``arena``: the arrays of ``Search``; ``whole``: whether every box lives.
    O(depth below the grid + blocks of the leaf + hits) a point."""
    header, floats, halves = arena.view(np.int64), arena.view(np.float64), arena.view(np.float32)
    numbers, steps = arena.view(np.int32), arena.view(np.uint16)
    dims = (header[2 * _AXES + 1] - header[2 * _AXES]) >> 5
    lo, hi, removed_at = header[0] >> 3, header[2] >> 3, header[6] >> 2
    leaves, lanes = header[2 * _LEAVES] >> 3, header[2 * _LANES] >> 1
    covering, covers = header[2 * _COVERING] >> 2, header[2 * _COVERS] >> 2
    leaf_width, block_width = dims + (dims + 1) // 2 + 1, 2 * (dims + 2) * BLOCK
    most = min(points.shape[0], _ROWS)
    found, values = np.empty((3, most), np.int64), np.empty((most, dims), np.float64)
    step = np.empty((most, dims), np.uint16)
    passed = np.empty(BLOCK, np.uint8)
    # Unsigned, because an index that may be negative costs the vector code.
    width, seen = np.uint64(BLOCK), np.int32(version)
    needed = waits = np.int64(0)
    # Keys, and their boxes, of which it is not known whether they live.
    waiting = found if whole else np.empty((2, min(BLOCK * (most + 1), _WAITING)), np.int64)
    for base in range(0, points.shape[0], max(most, 1)):
        rows = look_up(points, base, arena, found, values)
        for i in range(rows):
            leaf = leaves + found[1, i] * leaf_width
            for j in range(dims):
                step[i, j] = step_of(values[i, j], floats[leaf + j], halves[2 * (leaf + dims) + j])
            # All that is read of the first blocks, the numbers of boxes left out.
            end = 2 * (leaf + leaf_width) - 2
            behind = min(numbers[end + 2 * leaf_width], numbers[end] + _FETCHED)
            for block in range(numbers[end], behind):
                begin = np.uint64(lanes + block * block_width)
                for line in range(np.uint64(dims + 1)):
                    prefetch(steps, begin + line * _LINE)
            prefetch(numbers, np.uint64(covers + 2 * max(numbers[end + 1], 0)))
            found[1, i] = end
        for i in range(rows):
            cover = np.int64(numbers[found[1, i] + 1])
            if cover >= 0:
                prefetch(numbers, np.uint64(covering + 2 * np.int64(numbers[covers + 2 * cover])))
        for i in range(rows):
            end = found[1, i]
            key = found[0, i] << 32
            for block in range(numbers[end], numbers[end + 2 * leaf_width]):
                first = np.uint64(lanes + block * block_width)
                named = first // np.uint64(2) + np.uint64(dims * BLOCK)
                unsure = False
                if dims == 2:
                    s, t = step[i, 0], step[i, 1]
                    for lane in range(width):
                        a, b = steps[first + lane], steps[first + lane + width]
                        c = steps[first + lane + np.uint64(2 * BLOCK)]
                        d = steps[first + lane + np.uint64(3 * BLOCK)]
                        inside = (a <= s) & (s <= b) & (c <= t) & (t <= d)
                        passed[lane] = inside
                        unsure |= inside & ((a == s) | (b == s) | (c == t) | (d == t))
                else:
                    for lane in range(width):
                        passed[lane] = 1
                    for j in range(dims):
                        s = step[i, j]
                        lower = first + np.uint64(2 * j * BLOCK)
                        for lane in range(width):
                            a, b = steps[lower + lane], steps[lower + width + lane]
                            inside = (passed[lane] != 0) & (a <= s) & (s <= b)
                            passed[lane] = inside
                            unsure |= inside & ((a == s) | (b == s))
                if unsure:
                    for lane in range(width):
                        box = dims * np.int64(numbers[named + width + lane])
                        for j in range(dims if passed[lane] else 0):
                            x = values[i, j]
                            if not (floats[lo + box + j] <= x and x < floats[hi + box + j]):
                                passed[lane] = 0
                if not whole:
                    if waits + BLOCK > waiting.shape[1]:
                        needed = keep(numbers, removed_at, seen, waiting, waits, needed, out)
                        waits = np.int64(0)
                    place = np.uint64(waits)
                    for lane in range(width):
                        waiting[0, place] = key | numbers[named + lane]
                        waiting[1, place] = numbers[named + width + lane]
                        place += np.uint64(passed[lane])
                    waits = np.int64(place)
                elif needed + BLOCK > len(out):
                    for lane in range(width):
                        if passed[lane]:
                            if needed < len(out):
                                out[needed] = key | numbers[named + lane]
                            needed += 1
                else:
                    # Room for all that may come: keys are written without a branch.
                    place = np.uint64(needed)
                    for lane in range(width):
                        out[place] = key | numbers[named + lane]
                        place += np.uint64(passed[lane])
                    needed = np.int64(place)
            cover = np.int64(numbers[end + 1])
            while cover >= 0:
                for at in range(numbers[covers + 2 * cover], numbers[covers + 2 * cover + 2]):
                    box, slot = numbers[covering + 2 * at], numbers[covering + 2 * at + 1]
                    if whole:
                        if needed < len(out):
                            out[needed] = key | slot
                        needed += 1
                        continue
                    if waits == waiting.shape[1]:
                        needed = keep(numbers, removed_at, seen, waiting, waits, needed, out)
                        waits = np.int64(0)
                    waiting[0, waits], waiting[1, waits] = key | slot, box
                    waits += 1
                cover = np.int64(numbers[covers + 2 * cover + 1])
        if not whole:
            needed = keep(numbers, removed_at, seen, waiting, waits, needed, out)
            waits = np.int64(0)
    return needed
