"""An R-tree for any number of attributes, by the library ``rtree`` (libspatialindex): the box baseline.

Idea: boxes are gathered in nodes by their bounding boxes, nodes in nodes, and a point goes down wherever it
is inside. The tree (an R*-tree after Beckmann and others) is the library's; what is ours is that the answer
is exact: the library finds candidates in closed boxes that are a little too large, and ``lo <= x < hi`` on
float64 decides.

What the library needs, and gets by a map of values that never changes their order, so that no hit is lost:

* No infinities, and no numbers whose product over the attributes overflows (it computes volumes): values are
  clipped to +-10**(300 / dims), at most 10**100.
* No box of next to no size, which it would keep as its lower corner alone: lower ends go down by 1e-15 of
  their size, at least by 1e-15.
* Two attributes at least: a single one gets a second that is the same for all.

Bulk loading (sort-tile-recursive) when it is built, one call a box otherwise. The library is not made for
several threads: a lock stands between all calls (``in_place``).

Not for: the service. The library is a dependency of the benchmarks alone; importing this module needs it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray
from rtree.index import Index, Property

from service.index.answers import Keys
from service.index.boxes import Boxes, living
from service.index.in_place import InPlaceIndex
from service.index.kernel import kernel, reads, writes
from service.index.protocol import Bounds, Points

_MOST_EXPONENT = 100.0
_EXPONENT_OF_A_VOLUME = 300.0
_MARGIN = 1e-15
"""Above the 2.2e-16 below which the library takes two coordinates for one, and above half a unit in the last
place of any number."""


class RTree(InPlaceIndex):
    """A ``BoxIndex`` of one attribute or more, else ValueError; see ``protocol`` for the rest.

    ``capacity`` is the number of entries of a node: the default is what was fastest for points, the
    library's own is 100. ValueError below 4.

    A stab is O(log n) for boxes that overlap little and O(n) for those that all do, a box in or out O(log n).
    ``nbytes`` counts what the library stores, not what it takes besides.
    """

    def __init__(self, dims: int, *, capacity: int = 20) -> None:
        if dims < 1:
            raise ValueError(f"an R-tree needs an attribute, not {dims}")
        if capacity < 4:
            raise ValueError(f"a node has at least 4 entries, not {capacity}")
        self._tree = _Tree(dims, capacity)
        super().__init__(dims, self._tree)

    def _search(self, boxes: Boxes, points: Points, out: Keys) -> int:
        # A NaN or an infinity is in no box, and no coordinate for the library.
        rows = np.flatnonzero((points < np.inf).all(axis=1))
        ids, counts = self._tree.candidates(points[rows])
        rows = np.repeat(rows, counts.astype(np.int64))
        needed: int = verify(rows, ids, boxes.lo, boxes.hi, boxes.slots, points, out)
        return needed


class _Tree:
    """The ``Structure`` (see ``in_place``): the library's index of the box numbers."""

    def __init__(self, dims: int, capacity: int) -> None:
        self._capacity = capacity
        self._dims = dims
        self._most = 10.0 ** min(_MOST_EXPONENT, _EXPONENT_OF_A_VOLUME / dims)
        self._index = Index(properties=self._properties())

    @property
    def nbytes(self) -> int:
        """A node has its number of entries, its level, its bounds; an entry its bounds, id and length."""
        bounds = 16 * max(self._dims, 2)
        entries = len(self._index)
        nodes = entries // self._capacity + 1
        return entries * (bounds + 12) + nodes * (2 * bounds + 20)

    def build(self, boxes: Boxes) -> None:
        alive = living(boxes)
        if len(alive):
            columns = (alive, *self._coordinates(boxes.lo[alive], boxes.hi[alive]))
            self._index = Index(columns, properties=self._properties())
        else:
            self._index = Index(properties=self._properties())

    def add(self, boxes: Boxes, first: int) -> None:
        numbers = np.arange(first, boxes.size)
        for number, corners in self._corners(boxes, numbers):
            self._index.insert(number, corners)

    def drop(self, boxes: Boxes, gone: NDArray[np.int64]) -> None:
        for number, corners in self._corners(boxes, gone):
            self._index.delete(number, corners)

    def candidates(self, points: Points) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """The numbers of the boxes that may hold ``float64[m, d]`` points, and how many by point."""
        if len(points) == 0 or len(self._index) == 0:
            return np.empty(0, np.int64), np.zeros(len(points), np.uint64)
        clipped = self._padded(np.clip(points, -self._most, self._most), 0.0)
        return self._met(clipped, clipped)

    def check(self, boxes: Boxes) -> None:
        alive = living(boxes)
        assert len(self._index) == len(alive)
        if len(alive):
            everywhere = np.full((1, max(self._dims, 2)), 2.0 * self._most)
            found, _ = self._met(-everywhere, everywhere)
            assert np.array_equal(np.sort(found), alive)

    def _met(self, low: Bounds, high: Bounds) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        found: tuple[NDArray[np.int64], NDArray[np.uint64]]
        found = self._index.intersection_v(low, high)  # type: ignore[no-untyped-call]
        return found

    def _properties(self) -> Property:
        return Property(
            dimension=max(self._dims, 2), index_capacity=self._capacity, leaf_capacity=self._capacity
        )

    def _coordinates(self, lo: Bounds, hi: Bounds) -> tuple[Bounds, Bounds]:
        """Corners ``float64[n, max(d, 2)]`` as the library takes them."""
        low, high = (np.clip(ends, -self._most, self._most) for ends in (lo, hi))
        low -= _MARGIN * np.maximum(np.abs(low), 1.0)
        return self._padded(low, -1.0), self._padded(high, 1.0)

    def _corners(self, boxes: Boxes, numbers: NDArray[np.int64]) -> Any:
        """Of each box its number and its corners, joined: ``float64[2 max(d, 2)]``."""
        corners = np.hstack(self._coordinates(boxes.lo[numbers], boxes.hi[numbers]))
        return zip(numbers.tolist(), corners, strict=True)

    def _padded(self, values: Points, second: float) -> Points:
        if self._dims > 1:
            return values
        return np.column_stack([values, np.full(len(values), second)])


@kernel(
    types.int64(
        reads(types.int64, 1),
        reads(types.int64, 1),
        reads(types.float64, 2),
        reads(types.float64, 2),
        reads(types.int32, 1),
        reads(types.float64, 2),
        writes(types.int64, 1),
    )
)
def verify(rows, boxes, lo, hi, slots, points, out):  # type: ignore[no-untyped-def]
    """Writes the key ``row << 32 | slot`` of every candidate that is one.

    ``rows``, ``boxes``: ``int64[c]``, pairs of a point and a box that may hold it. Returns the number of
    keys, of which the first ``len(out)`` are written. O(c * d).
    """
    dims = points.shape[1]
    needed = 0
    for i in range(len(rows)):
        row, box = rows[i], boxes[i]
        j = 0
        while j < dims and lo[box, j] <= points[row, j] and points[row, j] < hi[box, j]:
            j += 1
        if j == dims:
            if needed < len(out):
                out[needed] = (row << 32) | slots[box]
            needed += 1
    return needed
