"""Kernels of the IS-list: the interval skip list, after Hanson and Johnson.

A *node* has a key, which is an end of some interval, and a *height*, drawn at random: it is in the lists of
the levels 0 .. height - 1. From a node, the *edge* of level l leads to the next node in that list; it covers
the keys from its node up to the next. ``edges`` has a row an edge, those of a node in a row from
``tower[node]`` on: the next node, and the *markers*, the numbers of boxes. ``ahead`` repeats the key of the
next node, so that a search touches only the nodes that it stops at. Node HEAD has the key -inf and is one
level higher than all others, node TAIL has the key inf.

Every interval has a marker on each edge that it contains and that no longer edge which it contains lies
above: a staircase from its lower end up and down again to its upper end. So a point, which lies on one edge
of each level, meets every interval around it once.

A new node of height h cuts the edges of the levels below h that span it. They all lie between the node ahead
of it and the node behind it that are at least h high, and so does all that changes: intervals with markers
on cut edges are taken off this stretch and put on again when the node is linked. A node that no interval
ends at any more goes the same way.

Markers of an edge are ``pool[FIRST .. FIRST + COUNT]``; see ``ibs_tree_kernels`` for the pool, whose two
kernels are repeated here because a kernel names none of another module. Not for: the growth of the arrays.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from service.index.kernel import kernel, reads, writes

NEXT, FIRST, COUNT, ROOM = 0, 1, 2, 3
NODES, EDGES, USED = 0, 1, 2
HEAD, TAIL = 0, 1
MOST_LEVELS = 32


class SkipList(NamedTuple):
    """See the module. ``owners``: intervals that end at a node. ``ends``: ``int32[n, 2]``, the nodes of the
    ends of a box. ``state``: nodes, edges and room of the pool in use."""

    key: NDArray[np.float64]
    tower: NDArray[np.int32]
    height: NDArray[np.int32]
    owners: NDArray[np.int32]
    edges: NDArray[np.int32]
    ahead: NDArray[np.float64]
    ends: NDArray[np.int32]
    pool: NDArray[np.int32]
    state: NDArray[np.int64]


SKIP_LIST: Any = types.NamedTuple(  # type: ignore[no-untyped-call]
    (
        writes(types.float64, 1),
        writes(types.int32, 1),
        writes(types.int32, 1),
        writes(types.int32, 1),
        writes(types.int32, 2),
        writes(types.float64, 1),
        writes(types.int32, 2),
        writes(types.int32, 1),
        writes(types.int64, 1),
    ),
    SkipList,
)


@kernel(types.void(SKIP_LIST, types.int64, types.int64))
def add_marker(skips, edge, box):  # type: ignore[no-untyped-def]
    """Marks an edge. O(1) amortised."""
    edges, pool = skips.edges, skips.pool
    first, count = np.int64(edges[edge, FIRST]), edges[edge, COUNT]
    if count == edges[edge, ROOM]:
        room = count + max(4, count // 2)
        moved = skips.state[USED]
        skips.state[USED] += room
        if skips.state[USED] > len(pool):
            return
        for i in range(count):
            pool[moved + i] = pool[first + i]
        edges[edge, FIRST], edges[edge, ROOM] = moved, room
        first = moved
    pool[first + count] = box
    edges[edge, COUNT] = count + 1


@kernel(types.void(SKIP_LIST, types.int64, types.int64))
def drop_marker(skips, edge, box):  # type: ignore[no-untyped-def]
    """Takes a marker away; the last one of the edge takes its place. O(markers of the edge)."""
    edges, pool = skips.edges, skips.pool
    first = np.int64(edges[edge, FIRST])
    last = first + edges[edge, COUNT] - 1
    for i in range(last, first - 1, -1):
        if pool[i] == box:
            pool[i] = pool[last]
            edges[edge, COUNT] -= 1
            return


@kernel(types.void(SKIP_LIST, types.int64, types.int64, types.int64, types.int64))
def mark(skips, box, start, stop, change):  # type: ignore[no-untyped-def]
    """Marks a box from a node to a later one (``change`` 1), takes its markers away (-1) or counts (0).

    From each node the longest edge that does not go beyond. O(markers), expected O(log nodes); when they are
    taken away, the markers of the edges besides.
    """
    ahead, tower, height = skips.ahead, skips.tower, skips.height
    end = skips.key[stop]
    node, level = np.int64(start), 0
    while node != stop:
        edge = np.int64(tower[node])
        while level + 1 < height[node] and ahead[edge + level + 1] <= end:
            level += 1
        while ahead[edge + level] > end:
            level -= 1
        edge += level
        if change > 0:
            add_marker(skips, edge, box)
        elif change < 0:
            drop_marker(skips, edge, box)
        else:
            skips.edges[edge, COUNT] += 1
        node = np.int64(skips.edges[edge, NEXT])


@kernel(types.void(SKIP_LIST, reads(types.int64, 1), types.int64))
def mark_boxes(skips, boxes, change):  # type: ignore[no-untyped-def]
    """``mark`` for boxes whose ``ends`` are known, from end to end."""
    for box in boxes:
        mark(skips, box, skips.ends[box, 0], skips.ends[box, 1], change)


@kernel(types.void(SKIP_LIST, reads(types.float64, 1), reads(types.int64, 1)))
def chain(skips, keys, heights):  # type: ignore[no-untyped-def]
    """Makes the list of rising finite keys; ``heights`` are its nodes', below MOST_LEVELS. O(edges)."""
    key, tower, height, edges, ahead = skips.key, skips.tower, skips.height, skips.edges, skips.ahead
    last = np.empty(MOST_LEVELS, np.int64)
    key[HEAD], key[TAIL] = -np.inf, np.inf
    tower[HEAD], height[HEAD], tower[TAIL], height[TAIL] = 0, 1, MOST_LEVELS, 0
    for level in range(MOST_LEVELS):
        last[level] = level
    made = MOST_LEVELS
    for i in range(len(keys)):
        node = i + 2
        key[node], tower[node], height[node] = keys[i], made, heights[i]
        for level in range(heights[i]):
            edges[last[level], NEXT], ahead[last[level]] = node, keys[i]
            last[level] = made + level
        made += heights[i]
        height[HEAD] = max(height[HEAD], heights[i] + 1)
    for level in range(MOST_LEVELS):
        edges[last[level], NEXT], ahead[last[level]] = TAIL, np.inf
    skips.state[NODES], skips.state[EDGES] = len(keys) + 2, made


@kernel(types.int64(SKIP_LIST, types.float64, writes(types.int64, 1)))
def seek(skips, x, path):  # type: ignore[no-untyped-def]
    """Writes the node of every level behind which ``x`` belongs, and returns the first node not below ``x``.

    ``path``: ``int64[MOST_LEVELS]``. Expected O(log nodes)."""
    ahead, tower, edges = skips.ahead, skips.tower, skips.edges
    levels = skips.height[HEAD]
    path[levels:] = HEAD
    node = np.int64(HEAD)
    for level in range(levels - 1, -1, -1):
        edge = np.int64(tower[node]) + level
        while ahead[edge] < x:
            node = np.int64(edges[edge, NEXT])
            edge = np.int64(tower[node]) + level
        path[level] = node
    return np.int64(edges[tower[node], NEXT])


@kernel(types.void(SKIP_LIST, reads(types.int32, 1), types.int64, types.int64, types.int64))
def mark_stretch(skips, boxes, start, stop, change):  # type: ignore[no-untyped-def]
    """``mark`` for as much of each box as lies between two nodes."""
    key, ends = skips.key, skips.ends
    for box in boxes:
        first = np.int64(ends[box, 0]) if key[ends[box, 0]] > key[start] else start
        last = np.int64(ends[box, 1]) if key[ends[box, 1]] < key[stop] else stop
        mark(skips, box, first, last, change)


@kernel(types.int64(SKIP_LIST, reads(types.int64, 1), writes(types.int32, 1)))
def markers_of(skips, edges, out):  # type: ignore[no-untyped-def]
    """Writes the markers of some edges, as many as ``out`` takes, and returns how many there are."""
    count = 0
    for edge in edges:
        first = np.int64(skips.edges[edge, FIRST])
        for i in range(first, first + skips.edges[edge, COUNT]):
            if count < len(out):
                out[count] = skips.pool[i]
            count += 1
    return count


@kernel(types.int64(SKIP_LIST, types.float64, types.int64))
def node_at(skips, x, height):  # type: ignore[no-untyped-def]
    """The node with the key ``x``, a new one of this height if there is none. Room for it is required.

    Expected O(log nodes), and for a new node the markers on what it cuts and on the edges near it.
    """
    path = np.empty(MOST_LEVELS, np.int64)
    there = np.int64(TAIL) if x == np.inf else seek(skips, x, path) if x > -np.inf else np.int64(HEAD)
    if skips.key[there] == x:
        return there
    tower, edges, ahead = skips.tower, skips.edges, skips.ahead
    before = path[height - 1]
    behind = np.int64(edges[tower[before] + height - 1, NEXT])
    cut = np.empty(height, np.int64)
    for level in range(height):
        cut[level] = tower[path[level]] + level
    lifted = np.empty(markers_of(skips, cut, np.empty(0, np.int32)), np.int32)
    markers_of(skips, cut, lifted)
    for level in range(height):
        edges[cut[level], COUNT] = 0  # at once: none of them stays
    mark_stretch(skips, lifted, before, behind, -1)

    node, made = skips.state[NODES], skips.state[EDGES]
    skips.state[NODES] += 1
    skips.state[EDGES] += height
    skips.height[HEAD] = max(skips.height[HEAD], height + 1)
    skips.key[node], tower[node], skips.height[node], skips.owners[node] = x, made, height, 0
    for level in range(height):
        edge = made + level
        edges[edge, NEXT], ahead[edge] = edges[cut[level], NEXT], ahead[cut[level]]
        edges[edge, FIRST] = edges[edge, COUNT] = edges[edge, ROOM] = 0
        edges[cut[level], NEXT], ahead[cut[level]] = node, x
    mark_stretch(skips, lifted, before, behind, 1)
    return node


@kernel(types.void(SKIP_LIST, types.int64))
def unlink(skips, node):  # type: ignore[no-untyped-def]
    """Takes a node away that no interval ends at. Its place in the arrays is lost. Costs as ``node_at``."""
    tower, edges, ahead = skips.tower, skips.edges, skips.ahead
    height = skips.height[node]
    path = np.empty(MOST_LEVELS, np.int64)
    seek(skips, skips.key[node], path)
    before = path[height - 1]
    behind = np.int64(edges[tower[node] + height - 1, NEXT])
    # No interval ends here, so one that stops here goes on, and has one marker among the edges from here.
    onward = np.empty(height, np.int64)
    for level in range(height):
        onward[level] = tower[node] + level
    lifted = np.empty(markers_of(skips, onward, np.empty(0, np.int32)), np.int32)
    markers_of(skips, onward, lifted)
    for level in range(height):
        edges[onward[level], COUNT] = 0  # at once: none of them stays
    mark_stretch(skips, lifted, before, behind, -1)
    for level in range(height):
        edge = tower[path[level]] + level
        edges[edge, NEXT], ahead[edge] = edges[onward[level], NEXT], ahead[onward[level]]
    mark_stretch(skips, lifted, before, behind, 1)


@kernel(
    types.void(
        SKIP_LIST,
        types.int64,
        types.int64,
        reads(types.float64, 2),
        reads(types.float64, 2),
        reads(types.int64, 2),
    )
)
def add_boxes(skips, first, stop, lo, hi, heights):  # type: ignore[no-untyped-def]
    """Takes in the boxes ``first .. stop``, one by one. ``lo``, ``hi``: ``float64[n, 1]``.

    ``heights``: ``int64[stop - first, 2]``, of the nodes of their ends where these are new; the arrays must
    have the room for all of them. Expected O(log nodes) a box, and the markers that new nodes move.
    """
    for box in range(first, stop):
        for end in range(2):
            x = hi[box, 0] if end else lo[box, 0]
            node = node_at(skips, x, heights[box - first, end])
            skips.owners[node] += 1
            skips.ends[box, end] = node
        mark(skips, box, skips.ends[box, 0], skips.ends[box, 1], 1)


@kernel(types.void(SKIP_LIST, reads(types.int64, 1)))
def drop_boxes(skips, boxes):  # type: ignore[no-untyped-def]
    """Takes boxes away, and the nodes that were theirs alone. Expected O(log nodes) a box, the markers of its
    edges, and those that go with a node."""
    for box in boxes:
        mark(skips, box, skips.ends[box, 0], skips.ends[box, 1], -1)
        for end in range(2):
            node = np.int64(skips.ends[box, end])
            skips.owners[node] -= 1
            if skips.owners[node] == 0 and node != HEAD and node != TAIL:
                unlink(skips, node)
