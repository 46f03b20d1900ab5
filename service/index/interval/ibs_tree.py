"""The IBS tree: an interval binary search tree for one attribute, after Hanson and others.

Idea: a balanced binary search tree of the ends of all intervals. Every node cuts the range between the keys
above it in two; an interval is marked at the few parts that make it up, at most two a level, and a point
finds its intervals as the marks on its way from the root to a leaf. It is the predicate index that the
Spatial Join paper (Sect. 2 and 7) compares with, there as one tree an attribute (``box.ibs_attributes``),
and the CEI paper (Sect. 2) names as a dynamic index of intervals. ``ibs_tree_kernels`` has the words.

Where this departs from the papers:

* All intervals are ``[lo, hi)``. So a node cuts in two, its key belonging to the upper part, and there are
  two sets of marks a node instead of three (``<``, ``=``, ``>``), which takes about half of the marks: what
  a point on the key itself is in is found in the part above it.
* Infinite ends are no keys: the outermost ranges reach to infinity.
* Marks are slices of one array, not linked lists: a stab reads them in a row. A removal looks for the box in
  each of its sets.
* An end that no interval has any more stays a key until half of the boxes are removed; then, and when a call
  brings a quarter of all boxes, the tree is built anew, perfectly balanced (``in_place``).

Exact on float64: keys are the ends themselves, compared as they are. A lock stands between a change and a
stab (``in_place``).

Not for: many readers and a busy writer at once.
"""

from __future__ import annotations

import numpy as np
from numba import types

from service.index.answers import Keys
from service.index.boxes import Boxes
from service.index.in_place import InPlaceIndex
from service.index.interval.ibs_tree_forest import IBSForest
from service.index.interval.ibs_tree_kernels import FOREST
from service.index.kernel import kernel, reads, writes
from service.index.protocol import Points

# As in ``ibs_tree_kernels``: a kernel names none of another module.
_CHILD, _FIRST, _COUNT = 0, 1, 2


class IBSTree(InPlaceIndex):
    """A ``BoxIndex`` of one attribute; see ``protocol`` for what it takes, raises and promises.

    For n boxes, m points and h hits: a stab is O(m log n + h log h), a box in or out O(log n) and the marks
    moved or searched, memory O(n log n) at worst.
    """

    def __init__(self) -> None:
        self._forest = IBSForest(1)
        super().__init__(1, self._forest)

    def _search(self, boxes: Boxes, points: Points, out: Keys) -> int:
        needed: int = search(self._forest.trees, boxes.slots, points, out)
        return needed


@kernel(types.int64(FOREST, reads(types.int32, 1), reads(types.float64, 2), writes(types.int64, 1)))
def search(forest, slots, points, out):  # type: ignore[no-untyped-def]
    """Writes the key ``row << 32 | slot`` of every point in every box of tree 0: what is marked on its way.

    ``points``: ``float64[m, 1]``. Returns the number of keys, of which the first ``len(out)`` are written.
    O(m * depth + keys).
    """
    key, edges, pool = forest.key, forest.edges, forest.pool
    needed = 0
    for row in range(points.shape[0]):
        x = points[row, 0]
        if not x < np.inf:
            continue
        node = forest.roots[0]
        while node >= 0:
            edge = 2 * node + np.int64(x >= key[node])
            first = np.int64(edges[edge, _FIRST])
            for i in range(first, first + edges[edge, _COUNT]):
                if needed < len(out):
                    out[needed] = (np.int64(row) << 32) | slots[pool[i]]
                needed += 1
            node = np.int64(edges[edge, _CHILD])
    return needed
