"""kd windows: boxes that constrain a few attributes, all the same.

Idea: the window list in more than one attribute. Space is cut by a kd partition into cells (``kd_tree``), and
each has a list of the boxes that cut it, tested sixteen at a time on ends of two bytes (``kd_leaves``).
What covers a cell is filed at a node above and is not tested at all. The leaf of a point is found from a grid
that says where in the tree to begin, from there in a step or two.

Boxes are numbered along a Z curve through the quantiles of their lower ends: boxes that answer together lie
together.

Exact on float64: values are compared with cell borders as they are, and with a box's ends wherever two bytes
do not decide. The grid is monotone in the value.

Not for: wide boxes in many attributes, which cut most cells.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from service.index.answers import Keys
from service.index.default.arena import arena_of
from service.index.default.kd_check import check_search
from service.index.default.kd_kernels import FAR, MOST_SCALE, Search, search, write_grid
from service.index.default.kd_leaves import filled, leaves_of
from service.index.default.kd_tree import LEAF, Tree, tree_of
from service.index.default.kd_tree_kernels import descend
from service.index.default.part import NEVER, Sparse, in_order, taken
from service.index.default.windows_living import Living
from service.index.protocol import Bounds, Points, Slots

MOST_DIMS = 4
"""Attributes that the boxes may constrain."""

_Z_BITS = 10
_SAMPLED = 1 << 14


class Kd:
    """A ``Part`` of n boxes that constrain the same k attributes; see the module.

    About 150 bytes a small box in two attributes. Built in O(k n log n).
    """

    name = "kd"

    def __init__(
        self, slots: Slots, columns: NDArray[np.int64], lo: Bounds, hi: Bounds, leaf: int = LEAF
    ) -> None:
        """Boxes ``float64[n, k]`` that constrain the attributes ``columns``, in an order that keeps together
        what lies together."""
        search, self._root = _searchable(tree_of(lo, hi, leaf), slots, lo, hi, columns)
        self._arena, views = arena_of(search)
        self._search = Search(*views)
        self.slots, self.removed_at = self._search.slots, self._search.removed_at
        self._living = Living(self.removed_at)
        self._columns = columns

    @classmethod
    def of(cls, boxes: Sparse, dims: int, leaf: int = LEAF) -> Kd:
        """ValueError unless all boxes constrain the same attributes, at most MOST_DIMS of them."""
        counts = np.diff(boxes.starts)
        width = int(counts[0]) if len(boxes) else 1
        if not 0 < width <= MOST_DIMS or (counts != width).any():
            raise ValueError(
                f"kd windows are of boxes that constrain 1 to {MOST_DIMS} attributes, all the same"
            )
        columns = boxes.attributes.reshape(-1, width)
        if (columns != columns[:1]).any():
            raise ValueError("kd windows are of boxes that constrain the same attributes")
        boxes = in_order(boxes)
        boxes = taken(boxes, _along_z(boxes.lo.reshape(-1, width)))
        lo, hi = boxes.lo.reshape(-1, width), boxes.hi.reshape(-1, width)
        numbers = columns[0].astype(np.int64) if len(boxes) else np.zeros(1, np.int64)
        return cls(boxes.slots, numbers, lo, hi, leaf)

    @property
    def entries(self) -> int:
        """How often boxes are filed in all."""
        filed = self._search
        return int(filled(filed.lanes).sum()) + len(filed.covering)

    @property
    def nbytes(self) -> int:
        return self._arena.nbytes + self._columns.nbytes

    def stab(self, points: Points, version: int, out: Keys) -> int:
        """O(log n + boxes that cut the leaf + k) for a point in k boxes."""
        whole = len(self._living.marks(version, len(points))) == 0
        found: int = search(self._arena, points, version, whole, out)
        return found

    def boxes(self) -> Sparse:
        lo, hi = self._search.lo, self._search.hi
        count, dims = lo.shape
        attributes = np.tile(self._columns.astype(np.uint8), count)
        starts = np.arange(0, count * dims + 1, dims)
        return Sparse(self.slots, starts, attributes, lo.ravel(), hi.ravel())

    def check(self) -> None:
        assert (self._search.lo < self._search.hi).all()
        check_search(self._search, self._root)


def _along_z(lo: Bounds) -> NDArray[np.intp]:
    """The order of points ``float64[n, k]`` along a Z curve through the cells between their quantiles."""
    count, dims = lo.shape
    code = np.zeros(count, np.int64)
    # The bits of a number, with room between them for those of the other attributes.
    numbers = np.arange(1 << _Z_BITS)
    spread = sum((numbers >> bit & 1) << bit * dims for bit in range(_Z_BITS))
    for j in range(dims):
        sample = np.sort(lo[:: max(1, count // _SAMPLED), j])
        cuts = sample[np.arange(1, 1 << _Z_BITS) * len(sample) >> _Z_BITS] if count else sample
        code |= spread[np.searchsorted(cuts, lo[:, j], "right")] << j
    return np.argsort(code, kind="stable")


def _searchable(
    tree: Tree, slots: Slots, lo: Bounds, hi: Bounds, columns: NDArray[np.int64]
) -> tuple[Search, int]:
    """The tree in the form in which it is searched, and the link to its root."""
    inner = tree.attributes >= 0
    leaves, lanes = leaves_of(lo, hi, slots, tree.cells[~inner], tree.leaf_starts, tree.cutting)

    links = np.where(
        inner,
        (np.cumsum(inner) - 1) << 2 | tree.attributes,
        ~(np.cumsum(~inner) - 1),
    ).astype(np.int32)
    nodes = np.empty((int(inner.sum()), 2))
    nodes[:, 0] = tree.values[inner]
    nodes.view(np.int32)[:, 2] = links[tree.children[inner]]
    nodes.view(np.int32)[:, 3] = links[tree.children[inner] + 1]

    above, depths = np.full(len(inner), -1, np.int32), np.zeros((len(inner), lo.shape[1]), np.int32)
    descend(tree.attributes, tree.children, tree.covering_starts, above, depths)
    axes = _axes(lo, depths[~inner], columns)
    grid = np.empty(int(axes[:, 2].prod()), np.int32)
    with np.errstate(over="ignore"):  # only without the JIT: the float below the lowest is infinite
        write_grid(nodes, int(links[0]), axes, grid)

    # Covers are the covered nodes, in the order of these.
    covered = np.diff(tree.covering_starts) > 0
    number = np.where(covered, np.cumsum(covered) - 1, -1)
    covers = np.full((int(covered.sum()) + 1, 2), -1, np.int32)
    covers[:-1, 0], covers[-1, 0] = tree.covering_starts[:-1][covered], len(tree.covering)
    covers[:-1, 1] = np.where(above >= 0, number[above], -1)[covered]
    nearest = np.where(covered, np.arange(len(inner)), above)[~inner]
    leaves.view(np.int32)[:-1, -1] = np.where(nearest >= 0, number[nearest], -1)
    removed_at = np.full(len(slots), NEVER)
    covering = np.stack([tree.covering, slots[tree.covering]], axis=1)
    filed = nodes, axes, grid, leaves, lanes, covering, covers
    return Search(lo, hi, slots, removed_at, *filed), int(links[0])


def _axes(lo: Bounds, depths: NDArray[np.int32], columns: NDArray[np.int64]) -> NDArray[np.float64]:
    """By attribute the origin, scale and number of cells of a grid with about four times as many cells as
    there are leaves, finer where they are. ``depths``: how often an attribute is split above each leaf."""
    axes = np.empty((lo.shape[1], 4))
    bits = np.rint(depths.mean(axis=0)).astype(np.int64) + 1
    while bits.sum() > len(depths).bit_length() + 2:
        bits[bits.argmax()] -= 1
    for j in range(lo.shape[1]):
        ends = lo[np.abs(lo[:, j]) <= FAR, j]  # one-sided bounds say nothing about where values lie
        cells = 1 << int(bits[j])
        low = high = 0.0
        if len(ends):
            trimmed = len(ends) // 256
            ends.partition((trimmed, len(ends) - 1 - trimmed))
            low, high = float(ends[trimmed]), float(ends[-1 - trimmed])
        scale = min(cells / max(high - low, 1 / MOST_SCALE), MOST_SCALE)
        axes[j] = low, scale, cells, columns[j]
    return axes
