"""The IS-list: the interval skip list for one attribute, after Hanson and Johnson.

Idea: a skip list of the ends of all intervals, whose edges carry markers: an interval marks the longest edges
that it contains, expected O(log n) of them. A point goes down the levels to where it belongs and collects the
markers of the edges that span it. The CEI paper (Sect. 2 and 5.2) and the BMQ-Index paper (Sect. 5) compare
with it as the best dynamic index of intervals; ``is_list_kernels`` has the words and how nodes come and go.

Where this departs from the papers:

* All intervals are ``[lo, hi)``, so an edge covers its lower key and not its upper one, and a point on a key
  is found on the edges from there. Marker sets of nodes (for closed ends) are not needed.
* Markers are slices of one array, not linked lists, and an edge has the key that it leads to beside it: both
  spare a search reads of memory. A removal looks for the box in each of its marker sets.
* Coins are thrown by a seed, so a history of calls always makes the same list, and a call that brings a
  quarter of all boxes makes the list anew, its nodes in the order of their keys (``in_place``).

Exact on float64: keys are the ends themselves, compared as they are. A lock stands between a change and a
stab (``in_place``).

Not for: many readers and a busy writer at once.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numpy.typing import NDArray

from service.index.answers import Keys
from service.index.boxes import Boxes, living
from service.index.in_place import InPlaceIndex
from service.index.interval.is_list_check import check
from service.index.interval.is_list_kernels import (
    COUNT,
    EDGES,
    FIRST,
    MOST_LEVELS,
    NODES,
    ROOM,
    SKIP_LIST,
    USED,
    SkipList,
    add_boxes,
    chain,
    drop_boxes,
    mark_boxes,
)
from service.index.interval.mark_pool import SLACK, laid_out
from service.index.kernel import kernel, reads, writes
from service.index.protocol import Points

# As in ``is_list_kernels``: a kernel names none of another module.
_HEAD, _NEXT, _FIRST, _COUNT = 0, 0, 1, 2


class ISList(InPlaceIndex):
    """A ``BoxIndex`` of one attribute; see ``protocol`` for what it takes, raises and promises.

    ``share`` is the expected share of nodes of a level that are in the next one too, and ``seed`` decides
    which. ValueError unless 0 < share < 1.

    Expected, for n boxes, m points and h hits: a stab is O(m log n + h log h), a box in or out O(log n) and
    the markers moved or searched, memory O(n log n) at worst.
    """

    def __init__(self, *, share: float = 0.5, seed: int = 0) -> None:
        self._list = _List(share, seed)
        super().__init__(1, self._list)

    def _search(self, boxes: Boxes, points: Points, out: Keys) -> int:
        needed: int = search(self._list.skips, boxes.slots, points, out)
        return needed


class _List:
    """The ``Structure`` (see ``in_place``): the arrays of the list and their growth."""

    def __init__(self, share: float, seed: int) -> None:
        if not 0.0 < share < 1.0:
            raise ValueError(f"share must be within 0 and 1, not {share}")
        self._share = share
        self._coins = np.random.default_rng(seed)
        self.skips = _empty(2, MOST_LEVELS, 0)

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.skips)

    def build(self, boxes: Boxes) -> None:
        alive = living(boxes)
        lo, hi = boxes.lo[alive, 0], boxes.hi[alive, 0]
        keys = np.unique(np.concatenate([lo, hi]))
        keys = keys[np.abs(keys) < np.inf]
        heights = self._heights(len(keys))
        self.skips = _empty(len(keys) + 2, MOST_LEVELS + int(heights.sum()), len(boxes.slots))
        chain(self.skips, keys, heights)
        self.skips.ends[alive, 0] = _nodes(keys, lo)
        self.skips.ends[alive, 1] = _nodes(keys, hi)
        self.skips.owners[:] = np.bincount(self.skips.ends[alive].ravel(), minlength=len(keys) + 2)
        self._mark_anew(alive, slack=0)

    def add(self, boxes: Boxes, first: int) -> None:
        heights = self._heights(2 * (boxes.size - first)).reshape(-1, 2)
        self._make_room(heights.size, int(heights.sum()), len(boxes.slots))
        add_boxes(self.skips, first, boxes.size, boxes.lo, boxes.hi, heights)
        self._mend(boxes)

    def drop(self, boxes: Boxes, gone: NDArray[np.int64]) -> None:
        drop_boxes(self.skips, gone)
        self._mend(boxes)

    def check(self, boxes: Boxes) -> None:
        check(self.skips, boxes)

    def _heights(self, count: int) -> NDArray[np.int64]:
        """1 with the probability 1 - share, 2 with share times that, and so on; ``int64[count]``."""
        return np.minimum(self._coins.geometric(1.0 - self._share, count), MOST_LEVELS - 1)

    def _make_room(self, nodes: int, edges: int, boxes: int) -> None:
        """Room for so many more nodes and edges, and for so many boxes in all."""
        skips = self.skips
        nodes += int(skips.state[NODES])
        edges += int(skips.state[EDGES])
        if nodes > len(skips.key) or edges > len(skips.edges) or boxes > len(skips.ends):
            grown = _empty(
                _grown(len(skips.key), nodes), _grown(len(skips.edges), edges), _grown(len(skips.ends), boxes)
            )
            for name in ("key", "tower", "height", "owners", "edges", "ahead", "ends"):
                old = getattr(skips, name)
                getattr(grown, name)[: len(old)] = old
            self.skips = grown._replace(pool=skips.pool, state=skips.state)

    def _mend(self, boxes: Boxes) -> None:
        """When the pool was too short some markers are missing."""
        if self.skips.state[USED] > len(self.skips.pool):
            self._mark_anew(living(boxes), slack=SLACK)

    def _mark_anew(self, alive: NDArray[np.int64], *, slack: int) -> None:
        """All markers of the living boxes, from their ends, with 1 / ``slack`` of room to spare an edge."""
        skips = self.skips
        edges = skips.edges
        edges[:, COUNT] = 0
        mark_boxes(skips, alive, 0)
        used, pool = laid_out(edges[:, FIRST], edges[:, COUNT], edges[:, ROOM], slack=slack)
        skips.state[USED] = used
        self.skips = skips._replace(pool=pool)
        mark_boxes(self.skips, alive, 1)


def _empty(nodes: int, edges: int, boxes: int) -> SkipList:
    return SkipList(
        np.zeros(nodes, np.float64),
        np.zeros(nodes, np.int32),
        np.zeros(nodes, np.int32),
        np.zeros(nodes, np.int32),
        np.zeros((edges, 4), np.int32),
        np.zeros(edges, np.float64),
        np.zeros((boxes, 2), np.int32),
        np.empty(0, np.int32),
        np.zeros(3, np.int64),
    )


def _grown(length: int, wanted: int) -> int:
    return length if wanted <= length else max(wanted, 2 * length)


def _nodes(keys: NDArray[np.float64], ends: NDArray[np.float64]) -> NDArray[np.int64]:
    """The nodes of ends in a list of these finite keys: 0 for -inf, 1 for inf, then key by key."""
    nodes = np.searchsorted(keys, ends) + 2
    nodes[ends == -np.inf] = 0
    nodes[ends == np.inf] = 1
    return nodes


@kernel(types.int64(SKIP_LIST, reads(types.int32, 1), reads(types.float64, 2), writes(types.int64, 1)))
def search(skips, slots, points, out):  # type: ignore[no-untyped-def]
    """Writes the key ``row << 32 | slot`` of every point in every box: the markers on its edge of each level.

    ``points``: ``float64[m, 1]``. Returns the number of keys, of which the first ``len(out)`` are written.
    Expected O(m * log nodes + keys).
    """
    ahead, tower, edges, pool = skips.ahead, skips.tower, skips.edges, skips.pool
    needed = 0
    for row in range(points.shape[0]):
        x = points[row, 0]
        if not x < np.inf:
            continue
        node = np.int64(_HEAD)
        for level in range(skips.height[_HEAD] - 1, -1, -1):
            edge = np.int64(tower[node]) + level
            while ahead[edge] <= x:
                node = np.int64(edges[edge, _NEXT])
                edge = np.int64(tower[node]) + level
            first = np.int64(edges[edge, _FIRST])
            for i in range(first, first + edges[edge, _COUNT]):
                if needed < len(out):
                    out[needed] = (np.int64(row) << 32) | slots[pool[i]]
                needed += 1
    return needed
