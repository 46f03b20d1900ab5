"""One IBS tree an attribute, and a merge: the predicate index that the Spatial Join paper compares with.

Idea (Sect. 2 and 7.3, "IBS"): every attribute has an IBS tree of the intervals that the boxes have there. A
point stabs them all and merges what it finds: a box whose every constrained attribute was found holds it.
An attribute that a box leaves free is not in its tree, and is not counted.

The merge counts down, for each point, from the number of constrained attributes of every box; who arrives at
zero is reported, once, at its last attribute. The counters are two bytes each and lie side by side, so what
is found at random in them stays in a near cache. They are set anew by a copy for every point, or, where few
boxes are found, by going over these a second time.

Where this departs from the paper: see ``interval.ibs_tree`` for the trees. A box without any constraint is
kept in the first tree. Exact on float64: the trees compare ends as they are.

Not for: wide boxes. The work is the sum of what is found in every attribute, whatever the answer is.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numpy.typing import NDArray

from service.index.answers import Keys
from service.index.boxes import Boxes
from service.index.in_place import InPlaceIndex
from service.index.interval.ibs_tree_forest import IBSForest
from service.index.interval.ibs_tree_kernels import FOREST
from service.index.kernel import kernel, reads, writes
from service.index.protocol import Points

MOST_DIMS = 2**16 - 1
# As in ``ibs_tree_kernels``: a kernel names none of another module.
_CHILD, _FIRST, _COUNT = 0, 1, 2


class IBSAttributes(InPlaceIndex):
    """A ``BoxIndex`` of 1 to MOST_DIMS attributes, else ValueError; see ``protocol`` for the rest.

    For n boxes, m points, h hits and f boxes found in an attribute: a stab is O(m (d log n + min(n, d f)) +
    m d f + h log h), a box in or out O(c log n) for c constrained attributes, and the marks moved or
    searched. Memory is that of the trees and 4 bytes a box.
    """

    def __init__(self, dims: int) -> None:
        if dims > MOST_DIMS:
            raise ValueError(f"at most {MOST_DIMS} attributes are counted, not {dims}")
        self._counted = _CountedForest(dims)
        super().__init__(dims, self._counted)

    def _search(self, boxes: Boxes, points: Points, out: Keys) -> int:
        counted = self._counted
        needed: int = merge(counted.trees, counted.wanted, counted.left, boxes.slots, points, out)
        return needed


class _CountedForest(IBSForest):
    """IBS trees and, by box, in how many of them it is (``wanted``) and has not been found yet (``left``)."""

    def __init__(self, dims: int) -> None:
        super().__init__(dims)
        self.wanted = np.empty(0, np.uint16)
        self.left = np.empty(0, np.uint16)

    @property
    def nbytes(self) -> int:
        return super().nbytes + self.wanted.nbytes + self.left.nbytes

    def build(self, boxes: Boxes) -> None:
        super().build(boxes)
        self._count(boxes)

    def add(self, boxes: Boxes, first: int) -> None:
        super().add(boxes, first)
        self._count(boxes, first)

    def check(self, boxes: Boxes) -> None:
        super().check(boxes)
        expected = _constrained(boxes, 0)
        assert np.array_equal(self.wanted[: boxes.size], expected)
        assert np.array_equal(self.left[: boxes.size], expected), "counters of an earlier point"

    def _count(self, boxes: Boxes, first: int = 0) -> None:
        """The counters of the boxes from ``first`` on; all of the earlier ones are there."""
        if len(self.wanted) < boxes.size or first == 0:
            wanted = np.ones(len(boxes.slots), np.uint16)
            wanted[:first] = self.wanted[:first]
            self.wanted, self.left = wanted, wanted.copy()
        self.wanted[first : boxes.size] = _constrained(boxes, first)
        self.left[first : boxes.size] = self.wanted[first : boxes.size]


def _constrained(boxes: Boxes, first: int) -> NDArray[np.uint16]:
    """In how many trees the boxes from ``first`` on are: one for each constrained attribute, at least one."""
    lo, hi = boxes.lo[first : boxes.size], boxes.hi[first : boxes.size]
    constrained = np.count_nonzero((lo > -np.inf) | (hi < np.inf), axis=1)
    trees: NDArray[np.uint16] = np.maximum(constrained, 1).astype(np.uint16)
    return trees


@kernel(
    types.int64(
        FOREST,
        reads(types.uint16, 1),
        writes(types.uint16, 1),
        reads(types.int32, 1),
        reads(types.float64, 2),
        writes(types.int64, 1),
    )
)
def merge(forest, wanted, left, slots, points, out):  # type: ignore[no-untyped-def]
    """Writes the key ``row << 32 | slot`` of every point in every box.

    ``wanted``: in how many trees a box is. ``left``: the same, to be counted down; it is left as it was.
    ``slots``: ``int32[n]``; ``points``: ``float64[m, d]``. Returns the number of keys, of which the first
    ``len(out)`` are written. O(m * (d * depth + boxes found)), and a copy of ``wanted`` at most a point.
    """
    key, edges, pool = forest.key, forest.edges, forest.pool
    dims = points.shape[1]
    needed = 0
    for row in range(points.shape[0]):
        somewhere = True
        for j in range(dims):
            somewhere &= points[row, j] < np.inf
        if not somewhere:
            continue
        found = 0
        for j in range(dims):
            x = points[row, j]
            node = forest.roots[j]
            while node >= 0:
                edge = 2 * node + np.int64(x >= key[node])
                first = np.int64(edges[edge, _FIRST])
                for i in range(first, first + edges[edge, _COUNT]):
                    box = pool[i]
                    left[box] -= 1
                    if left[box] == 0:
                        if needed < len(out):
                            out[needed] = (np.int64(row) << 32) | slots[box]
                        needed += 1
                found += edges[edge, _COUNT]
                node = np.int64(edges[edge, _CHILD])
        # A copy takes about as long as an eighth of as many counters one by one.
        if 8 * found >= len(left):
            left[:] = wanted
            continue
        for j in range(dims):
            x = points[row, j]
            node = forest.roots[j]
            while node >= 0:
                edge = 2 * node + np.int64(x >= key[node])
                first = np.int64(edges[edge, _FIRST])
                for i in range(first, first + edges[edge, _COUNT]):
                    left[pool[i]] = wanted[pool[i]]
                node = np.int64(edges[edge, _CHILD])
    return needed
