"""A forest of IBS trees, one an attribute, over boxes: the arrays, their growth, and what must hold in them.

Idea: the kernels work in arrays of fixed length and say what they lack; here they get it. When the pool of
marks is full, all boxes are marked anew in a longer one, which also brings together what moved apart. A tree
that was just built has no room to spare on its edges, for it may never change; one that changes gets some.

Invariants (``check``): keys are finite, rising from left to right, and every finite end of a living box is
one; subtrees of a node differ by at most one in height; the marks of a box in a tree make it up exactly and
no part of a node is marked where the whole range of the node is inside.

Not for: searching (``ibs_tree``, ``box.ibs_attributes``).
"""

from __future__ import annotations

import numpy as np
from numba import types
from numpy.typing import NDArray

from service.index.boxes import Boxes, living
from service.index.interval.ibs_tree_kernels import (
    CHILD,
    COUNT,
    FIRST,
    FOREST,
    NODES,
    ROOM,
    USED,
    Forest,
    add_boxes,
    mark_boxes,
    marks_tree,
)
from service.index.interval.mark_pool import SLACK, laid_out
from service.index.kernel import kernel, reads
from service.index.protocol import Bounds

# As in ``ibs_tree_kernels``: a kernel names none of another module.
_CHILD, _NODES = 0, 0


class IBSForest:
    """A ``Structure`` (see ``in_place``) of ``dims`` IBS trees, at least one, else ValueError.

    For n boxes of c constrained attributes: building is O(n c log n), a box in or out O(c log n) and the
    marks that rotations move, or that are searched for the box; memory is 80 bytes an end and up to 10 a
    mark. A box has at most 2 log n marks an attribute. A removed box's ends stay keys until the next build.
    """

    def __init__(self, dims: int) -> None:
        if dims < 1:
            raise ValueError(f"an IBS tree needs an attribute, not {dims}")
        self.dims = dims
        self.trees = _empty(dims, 0)

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.trees)

    def build(self, boxes: Boxes) -> None:
        alive = living(boxes)
        keys = [_keys(boxes.lo[alive, tree], boxes.hi[alive, tree]) for tree in range(self.dims)]
        self.trees = _empty(self.dims, sum(len(each) for each in keys))
        for tree in range(self.dims):
            _grow(self.trees, keys[tree], tree)
        self._mark_anew(boxes, slack=0)

    def add(self, boxes: Boxes, first: int) -> None:
        self._make_room(2 * self.dims * (boxes.size - first))
        add_boxes(self.trees, first, boxes.size, boxes.lo, boxes.hi)
        if self.trees.state[USED] > len(self.trees.pool):
            self._mark_anew(boxes, slack=SLACK)

    def drop(self, boxes: Boxes, gone: NDArray[np.int64]) -> None:
        mark_boxes(self.trees, gone, boxes.lo, boxes.hi, -1)

    def check(self, boxes: Boxes) -> None:
        nodes, used = self.trees.state
        assert 0 < nodes <= len(self.trees.key)
        assert 2 * len(self.trees.key) == len(self.trees.edges)
        assert used <= len(self.trees.pool)
        ranges, owners = self._ranges()
        _check_marks(self.trees, ranges, owners, boxes)

    def _make_room(self, nodes: int) -> None:
        """Room for so many more nodes."""
        trees = self.trees
        wanted = int(trees.state[NODES]) + nodes
        if wanted > len(trees.key):
            grown = _empty(self.dims, max(wanted, 2 * len(trees.key)))
            grown.key[: len(trees.key)] = trees.key
            grown.height[: len(trees.height)] = trees.height
            grown.edges[: len(trees.edges)] = trees.edges
            self.trees = trees._replace(key=grown.key, height=grown.height, edges=grown.edges)

    def _mark_anew(self, boxes: Boxes, *, slack: int) -> None:
        """All marks of the living boxes, from the trees alone; an edge has 1 / ``slack`` room to spare."""
        alive, trees = living(boxes), self.trees
        edges = trees.edges
        edges[:, COUNT] = 0
        mark_boxes(trees, alive, boxes.lo, boxes.hi, 0)
        used, pool = laid_out(edges[:, FIRST], edges[:, COUNT], edges[:, ROOM], slack=slack)
        trees.state[USED] = used
        self.trees = trees._replace(pool=pool)
        mark_boxes(self.trees, alive, boxes.lo, boxes.hi, 1)

    def _ranges(self) -> tuple[Bounds, NDArray[np.int64]]:
        """The ranges ``float64[N, 2]`` of nodes and their trees ``int64[N]``. Asserts order and balance."""
        key, height, edges, roots, _, state = self.trees
        ranges, owners = np.full((state[NODES], 2), np.nan), np.full(state[NODES], -1)

        def height_of(node: int, low: float, high: float, tree: int) -> int:
            if node < 0:
                return 0
            assert owners[node] == -1, "a node in two places"
            owners[node], ranges[node] = tree, (low, high)
            cut = float(key[node])
            assert low < cut < high
            heights = (
                height_of(int(edges[2 * node, CHILD]), low, cut, tree),
                height_of(int(edges[2 * node + 1, CHILD]), cut, high, tree),
            )
            assert abs(heights[0] - heights[1]) <= 1
            assert height[node] == 1 + max(heights)
            return 1 + max(heights)

        for tree, root in enumerate(roots.tolist()):
            height_of(root, -np.inf, np.inf, tree)
        assert (owners >= 0).all(), "a node that no root leads to"
        return ranges, owners


def _empty(dims: int, nodes: int) -> Forest:
    return Forest(
        np.zeros(nodes, np.float64),
        np.zeros(nodes, np.int8),
        np.zeros((2 * nodes, 4), np.int32),
        np.full(dims, -1),
        np.empty(0, np.int32),
        np.zeros(2, np.int64),
    )


def _keys(lo: NDArray[np.float64], hi: NDArray[np.float64]) -> NDArray[np.float64]:
    """The finite ends, each once, rising. Where there are none, 0, for a box without ends needs a node."""
    keys = np.unique(np.concatenate([lo, hi]))
    keys = keys[np.abs(keys) < np.inf]
    return keys if len(keys) else np.zeros(1)


def _check_marks(trees: Forest, ranges: Bounds, owners: NDArray[np.int64], boxes: Boxes) -> None:
    """Asserts that every living box marks the fewest parts that make it up, in each of its trees."""
    parts = np.arange(2 * len(ranges))
    _, count, room = (trees.edges[parts, column].astype(np.int64) for column in (FIRST, COUNT, ROOM))
    assert (count <= room).all()
    part = np.repeat(parts, count)
    place = np.arange(len(part)) - np.repeat(np.cumsum(count) - count, count)
    box = trees.pool[trees.edges[part, FIRST] + place].astype(np.int64)
    node, side, tree = part // 2, part % 2, owners[part // 2]
    low = np.where(side == 1, trees.key[node], ranges[node, 0])
    high = np.where(side == 1, ranges[node, 1], trees.key[node])
    lo, hi = boxes.lo[box, tree], boxes.hi[box, tree]
    assert ((lo <= low) & (high <= hi)).all(), "a mark on a part that the box does not cover"
    root = node == trees.roots[tree]
    whole = (lo <= ranges[node, 0]) & (ranges[node, 1] <= hi)
    assert not (whole & ~root).any(), "a mark below a part that is covered whole"

    order = np.lexsort((low, tree, box))
    box, tree, low, high = box[order], tree[order], low[order], high[order]
    begins = np.append(True, (box[1:] != box[:-1]) | (tree[1:] != tree[:-1]))[: len(box)]
    ends = np.append(begins[1:], True)[: len(box)]
    assert np.array_equal(low[1:][~begins[1:]], high[:-1][~ends[:-1]]), "marks overlap or leave a gap"
    assert np.array_equal(low[begins], boxes.lo[box[begins], tree[begins]])
    assert np.array_equal(high[ends], boxes.hi[box[ends], tree[ends]])
    kept = [
        (one, attribute)
        for one in living(boxes).tolist()
        for attribute in range(len(trees.roots))
        if marks_tree(boxes.lo, boxes.hi, one, attribute)
    ]
    assert list(zip(box[begins].tolist(), tree[begins].tolist(), strict=True)) == kept


@kernel(types.void(FOREST, reads(types.float64, 1), types.int64))
def _grow(forest, keys, tree):  # type: ignore[no-untyped-def]
    """Makes a tree of rising keys, as balanced as can be, its nodes numbered level by level. O(keys)."""
    key, height, edges = forest.key, forest.height, forest.edges
    first_node = forest.state[_NODES]
    forest.roots[tree] = first_node
    starts, stops = np.empty(len(keys), np.int64), np.empty(len(keys), np.int64)
    starts[0], stops[0] = 0, len(keys)
    made = 1
    for i in range(len(keys)):
        start, stop = starts[i], stops[i]
        middle = (start + stop) // 2
        node = first_node + i
        key[node] = keys[middle]
        height[node] = 0
        while stop - start >> height[node] > 0:
            height[node] += 1
        for side in range(2):
            below, above = (middle + 1, stop) if side else (start, middle)
            edges[2 * node + side] = 0
            edges[2 * node + side, _CHILD] = -1
            if below < above:
                edges[2 * node + side, _CHILD] = first_node + made
                starts[made], stops[made] = below, above
                made += 1
    forest.state[_NODES] += len(keys)
