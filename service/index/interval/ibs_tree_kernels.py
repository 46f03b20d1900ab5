"""Kernels of IBS trees: interval binary search trees, after Hanson and others, balanced as AVL trees.

Every node has a key, which is an end of some interval. The keys above a node bound its *range* [L, R); its
key K cuts that into [L, K), on *side* 0, and [K, R), on side 1. Side s of node v is the *edge* ``2 v + s``: a
row of ``edges`` with the child there and with the *marks* of that part of the range, the numbers of the
boxes that cover it. An interval marks every part that it covers, unless it covers the whole range of the
node, which is then (within) a part of a node above: the fewest parts that make it up, at most two a level.

Marks of an edge are ``pool[FIRST .. FIRST + COUNT]``. When its ROOM is used up they move behind all others,
to half as much room again. A pool that is too short is never exceeded: ``state[USED]`` then says how much
would have been needed, some marks are missing, and the caller marks everything anew in a longer one.

Several trees (one an attribute) share the arrays: ``roots[j]`` is the root of tree j.
Not for: making a tree from scratch, the growth of the arrays (``ibs_tree_forest``).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from service.index.kernel import kernel, reads, writes

CHILD, FIRST, COUNT, ROOM = 0, 1, 2, 3
NODES, USED = 0, 1
NONE = -1
MOST_DEPTH = 64
"""An AVL tree of 2**31 nodes is 45 deep."""
MOST_PARTS = 2 * MOST_DEPTH


class Forest(NamedTuple):
    """Trees in shared arrays of N nodes; see the module. ``state``: nodes and room of the pool in use."""

    key: NDArray[np.float64]
    height: NDArray[np.int8]
    edges: NDArray[np.int32]
    roots: NDArray[np.int64]
    pool: NDArray[np.int32]
    state: NDArray[np.int64]


FOREST: Any = types.NamedTuple(  # type: ignore[no-untyped-call]
    (
        writes(types.float64, 1),
        writes(types.int8, 1),
        writes(types.int32, 2),
        writes(types.int64, 1),
        writes(types.int32, 1),
        writes(types.int64, 1),
    ),
    Forest,
)
_BOUNDS = reads(types.float64, 2)


@kernel(types.void(FOREST, types.int64, types.int64))
def add_mark(forest, edge, box):  # type: ignore[no-untyped-def]
    """Marks an edge. O(1) amortised."""
    edges, pool = forest.edges, forest.pool
    first, count = np.int64(edges[edge, FIRST]), edges[edge, COUNT]
    if count == edges[edge, ROOM]:
        room = count + max(4, count // 2)
        moved = forest.state[USED]
        forest.state[USED] += room
        if forest.state[USED] > len(pool):
            return
        for i in range(count):
            pool[moved + i] = pool[first + i]
        edges[edge, FIRST], edges[edge, ROOM] = moved, room
        first = moved
    pool[first + count] = box
    edges[edge, COUNT] = count + 1


@kernel(types.void(FOREST, types.int64, types.int64))
def drop_mark(forest, edge, box):  # type: ignore[no-untyped-def]
    """Takes a mark away; the last one of the edge takes its place. O(marks of the edge)."""
    edges, pool = forest.edges, forest.pool
    first = np.int64(edges[edge, FIRST])
    last = first + edges[edge, COUNT] - 1
    for i in range(last, first - 1, -1):
        if pool[i] == box:
            pool[i] = pool[last]
            edges[edge, COUNT] -= 1
            return


@kernel(types.int64(FOREST, types.int64, types.float64, types.float64, writes(types.int64, 1)))
def parts_of(forest, tree, lo, hi, parts):  # type: ignore[no-untyped-def]
    """Writes the edges that ``[lo, hi)`` marks, at most MOST_PARTS, and returns how many.

    Its finite ends must be keys. Down to the node that splits the interval, then along the lower end and
    along the upper end. O(depth).
    """
    key, edges = forest.key, forest.edges
    node, low, high = forest.roots[tree], -np.inf, np.inf
    while True:
        cut = key[node]
        if hi <= cut:
            if hi == cut and lo <= low:
                parts[0] = 2 * node
                return 1
            high = cut
            node = edges[2 * node, CHILD]
        elif lo >= cut:
            if lo == cut and high <= hi:
                parts[0] = 2 * node + 1
                return 1
            low = cut
            node = edges[2 * node + 1, CHILD]
        else:
            break
    count = 0
    for side in range(2):
        end = hi if side else lo
        if (side and high <= end) or (not side and end <= low):
            parts[count] = 2 * node + side
            count += 1
            continue
        below = edges[2 * node + side, CHILD]
        cut = key[below]
        while cut != end:
            if (end < cut) == (side == 0):
                # The node is inside, and all that lies between it and the split.
                parts[count] = 2 * below + 1 - side
                count += 1
                below = edges[2 * below + side, CHILD]
            else:
                below = edges[2 * below + 1 - side, CHILD]
            cut = key[below]
        parts[count] = 2 * below + 1 - side
        count += 1
    return count


@kernel(types.boolean(_BOUNDS, _BOUNDS, types.int64, types.int64))
def marks_tree(lo, hi, box, tree):  # type: ignore[no-untyped-def]
    """Whether a box is kept in a tree: it constrains the attribute, or it constrains none and this is 0."""
    if lo[box, tree] > -np.inf or hi[box, tree] < np.inf:
        return True
    if tree > 0:
        return False
    constrained = False
    for other in range(1, lo.shape[1]):
        constrained |= lo[box, other] > -np.inf or hi[box, other] < np.inf
    return not constrained


@kernel(types.void(FOREST, reads(types.int64, 1), _BOUNDS, _BOUNDS, types.int64))
def mark_boxes(forest, boxes, lo, hi, change):  # type: ignore[no-untyped-def]
    """Marks boxes (``change`` 1), takes their marks away (-1) or only counts them (0). All ends must be keys.

    O(d * depth) a box; when marks are taken away, the marks of the edges besides.
    """
    parts = np.empty(MOST_PARTS, np.int64)
    for box in boxes:
        for tree in range(len(forest.roots)):
            if not marks_tree(lo, hi, box, tree):
                continue
            count = parts_of(forest, tree, lo[box, tree], hi[box, tree], parts)
            for i in range(count):
                if change > 0:
                    add_mark(forest, parts[i], box)
                elif change < 0:
                    drop_mark(forest, parts[i], box)
                else:
                    forest.edges[parts[i], COUNT] += 1


@kernel(types.int64(FOREST, types.int64))
def height_below(forest, edge):  # type: ignore[no-untyped-def]
    """The height of the subtree that an edge leads to."""
    child = forest.edges[edge, CHILD]
    return np.int64(forest.height[child]) if child >= 0 else 0


@kernel(types.void(FOREST, types.int64))
def measure(forest, node):  # type: ignore[no-untyped-def]
    """Sets the height of a node from those of its children."""
    forest.height[node] = 1 + max(height_below(forest, 2 * node), height_below(forest, 2 * node + 1))


@kernel(types.boolean(_BOUNDS, _BOUNDS, types.int64, types.int64, types.int64, types.float64))
def reaches(lo, hi, box, tree, side, bound):  # type: ignore[no-untyped-def]
    """Whether a box goes as far as ``bound``, upwards on side 1 and downwards on side 0."""
    if side:
        return hi[box, tree] >= bound
    return lo[box, tree] <= bound


@kernel(types.int64(FOREST, types.int64, types.int64, types.int64, types.float64, _BOUNDS, _BOUNDS))
def rotate(forest, tree, node, side, bound, lo, hi):  # type: ignore[no-untyped-def]
    """Lifts the child on ``side`` above ``node`` and moves the marks along. Returns the child.

    ``bound`` is the end of the node's range on the other side. Let the child lie on side 0: node N cuts
    [L, R), child C cuts [L, N). Afterwards C cuts [L, R) and N cuts [C, R). So what covers [L, N) covers both
    [L, C) and [C, N); what covers [C, N) and goes on to R covers the new part [C, R) and needs its mark on
    [N, R) no longer. Side 1 is the mirror image. O(marks of the two nodes).
    """
    edges, pool = forest.edges, forest.pool
    other = 1 - side
    child = np.int64(edges[2 * node + side, CHILD])
    short, whole = 2 * child + side, 2 * node + side
    middle, far = 2 * child + other, 2 * node + other

    kept = 0
    for i in range(edges[whole, COUNT]):
        box = pool[edges[whole, FIRST] + i]
        add_mark(forest, short, box)
        if reaches(lo, hi, box, tree, other, bound):
            add_mark(forest, middle, box)  # it covers all of [L, R): at the root alone, nothing lies above
        else:
            pool[edges[whole, FIRST] + kept] = box
            kept += 1
    edges[whole, COUNT] = kept
    kept = 0
    for i in range(edges[middle, COUNT]):
        box = pool[edges[middle, FIRST] + i]
        if reaches(lo, hi, box, tree, other, bound):
            pool[edges[middle, FIRST] + kept] = box
            kept += 1
        else:
            add_mark(forest, whole, box)
    edges[middle, COUNT] = kept
    kept = 0
    for i in range(edges[far, COUNT]):
        box = pool[edges[far, FIRST] + i]
        if not reaches(lo, hi, box, tree, side, forest.key[child]):
            pool[edges[far, FIRST] + kept] = box
            kept += 1
    edges[far, COUNT] = kept

    edges[whole, CHILD] = edges[middle, CHILD]
    edges[middle, CHILD] = node
    measure(forest, node)
    measure(forest, child)
    return child


@kernel(types.void(FOREST, types.int64, types.float64, _BOUNDS, _BOUNDS))
def add_key(forest, tree, x, lo, hi):  # type: ignore[no-untyped-def]
    """Makes ``x`` a key, if it is none, and balances the tree. Room for one node. O(depth + marks moved)."""
    key, height, edges = forest.key, forest.height, forest.edges
    path = np.empty(MOST_DEPTH, np.int64)  # the edges on the way
    limits = np.empty((MOST_DEPTH, 2))  # the ranges of their nodes
    node, low, high, depth = forest.roots[tree], -np.inf, np.inf, 0
    while node >= 0:
        if key[node] == x:
            return
        side = np.int64(x > key[node])
        path[depth], limits[depth, 0], limits[depth, 1] = 2 * node + side, low, high
        if side:
            low = key[node]
        else:
            high = key[node]
        depth += 1
        node = np.int64(edges[2 * node + side, CHILD])

    leaf = forest.state[NODES]
    forest.state[NODES] += 1
    key[leaf], height[leaf] = x, 1
    for edge in range(2 * leaf, 2 * leaf + 2):
        edges[edge, CHILD] = NONE
        edges[edge, FIRST] = edges[edge, COUNT] = edges[edge, ROOM] = 0
    edges[path[depth - 1], CHILD] = leaf

    while depth > 0:
        depth -= 1
        node = path[depth] >> 1
        before = height[node]
        lean = height_below(forest, 2 * node + 1) - height_below(forest, 2 * node)
        if abs(lean) <= 1:
            measure(forest, node)
            if height[node] == before:
                return
            continue
        side = np.int64(lean > 0)
        child = np.int64(edges[2 * node + side, CHILD])
        if height_below(forest, 2 * child + side) < height_below(forest, 2 * child + 1 - side):
            child = rotate(forest, tree, child, 1 - side, limits[depth, side], lo, hi)
            edges[2 * node + side, CHILD] = child
        top = rotate(forest, tree, node, side, limits[depth, 1 - side], lo, hi)
        if depth > 0:
            edges[path[depth - 1], CHILD] = top
        else:
            forest.roots[tree] = top
        return


@kernel(types.void(FOREST, types.int64, types.int64, _BOUNDS, _BOUNDS))
def add_boxes(forest, first, stop, lo, hi):  # type: ignore[no-untyped-def]
    """Takes in the boxes ``first .. stop``, one by one: their ends become keys, then they mark their parts.

    Room for ``2 d`` nodes a box. Boxes from ``first`` on must have no marks. O(d * depth) a box, and what
    rotations move.
    """
    parts = np.empty(MOST_PARTS, np.int64)
    for box in range(first, stop):
        for tree in range(len(forest.roots)):
            if not marks_tree(lo, hi, box, tree):
                continue
            for end in (lo[box, tree], hi[box, tree]):
                if -np.inf < end and end < np.inf:
                    add_key(forest, tree, end, lo, hi)
            count = parts_of(forest, tree, lo[box, tree], hi[box, tree], parts)
            for i in range(count):
                add_mark(forest, parts[i], box)
