"""Libraries that a Python user could pick instead, each on the question "which boxes are around this point?".

Idea: a peer is shown at its best. It is asked in its own form (``asked``), which is made before the timing;
what it answers is brought into ours after (``hits``), and where it knows closed boxes only, the test of the
upper end is made there too. Only ``find`` is timed, which favours the peer. A batch of one is asked through
the call that is made for it.

Not for: unbounded boxes, NaN; the tree libraries do not take them. ``peers_for`` says who takes what.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, ClassVar

import intervaltree
import ncls
import numpy as np
import rtree
import shapely
import superintervals
from numpy.typing import NDArray

from service.bench.measure import Batches, Contender, Deferred
from service.index.protocol import Bounds, Hits, Points

Ids = NDArray[np.int64]


class Peer(ABC):
    """n boxes ``[lo[i], hi[i])`` of slot i in a library's structure; ``least`` to ``most`` attributes."""

    name: ClassVar[str]
    least: ClassVar[int] = 1
    most: ClassVar[int] = 1
    finite: ClassVar[bool] = True
    """Whether it takes boxes with finite ends only."""

    def __init__(self, lo: Bounds, hi: Bounds) -> None:
        self._lo, self._hi = lo, hi

    @abstractmethod
    def asked(self, points: Points) -> Any:
        """The points as the library takes them; not timed."""

    @abstractmethod
    def find(self, asked: Any) -> Any:
        """What the library says; timed."""

    @abstractmethod
    def pairs(self, found: Any) -> tuple[Ids, Ids]:
        """Row and slot of all that was found; not timed."""

    def hits(self, found: Any, points: Points) -> Hits:
        """The exact answer out of ``find``: half-open, each pair once."""
        rows, slots = self.pairs(found)
        inside = (self._lo[slots] <= points[rows]) & (points[rows] < self._hi[slots])
        exact = inside.all(axis=1)
        order = np.lexsort((slots[exact], rows[exact]))
        return Hits(rows[exact][order].astype(np.int32), slots[exact][order].astype(np.int32))

    def stab(self, points: Points) -> Hits:
        return self.hits(self.find(self.asked(points)), points)


def contender(peer: Peer, points: Points, size: int) -> Contender:
    """A peer that is asked about ``float64[m, d]`` points, ``size`` at a time; see the module."""
    parts = [points[first : first + size] for first in range(0, len(points), size)]
    asked = [peer.asked(part) for part in parts]

    def converted(found: Sequence[Any]) -> Batches:
        return Batches(size, [peer.hits(one, part) for one, part in zip(found, parts, strict=True)])

    def call() -> Deferred:
        found = [peer.find(one) for one in asked]
        return Deferred(lambda: converted(found))

    return call


class _Whole:
    """Values as int32 from 0, for libraries of whole numbers: plus one if they are such, else by *rank*.

    The rank of a value is the number of borders (ends of intervals) up to it. It is monotone and grows at
    every border, so ``lo <= x < hi`` holds for the ranks just when it holds for the values.
    """

    def __init__(self, lo: Bounds, hi: Bounds) -> None:
        values = np.concatenate([lo, hi]).ravel()
        whole = np.isfinite(values).all() and (np.floor(values) == values).all()
        # ncls takes negative numbers for places on the other strand of a genome.
        fits = whole and bool(((values >= 0) & (values < 2**30)).all())
        self._borders = None if fits else np.unique(values)

    def __call__(self, values: Points) -> NDArray[np.int32]:
        column = values.ravel()
        if self._borders is not None:
            return np.searchsorted(self._borders, column, "right").astype(np.int32)
        return (np.floor(np.clip(column, -1, 2**30)) + 1).astype(np.int32)


class SuperIntervals(Peer):
    """superintervals: a batch of points a call, or one."""

    name = "superintervals"
    finite = False

    def __init__(self, lo: Bounds, hi: Bounds) -> None:
        super().__init__(lo, hi)
        self._whole = _Whole(lo, hi)
        # Its ends are inclusive.
        self._map = superintervals.IntervalMap.from_arrays(
            self._whole(lo), self._whole(hi) - np.int32(1), range(len(lo))
        )

    def asked(self, points: Points) -> Any:
        values = self._whole(points)
        return int(values[0]) if len(values) == 1 else values

    def find(self, asked: Any) -> Any:
        if isinstance(asked, int):
            return [self._map.search_values(asked, asked)]
        return self._map.search_values_batch(asked, asked)

    def pairs(self, found: Any) -> tuple[Ids, Ids]:
        return _flat(found)


class NCLS(Peer):
    """ncls: a batch of points a call, or one through its iterator."""

    name = "ncls"
    finite = False

    def __init__(self, lo: Bounds, hi: Bounds) -> None:
        super().__init__(lo, hi)
        self._whole = _Whole(lo, hi)
        self._list = ncls.NCLS(*(self._whole(ends).astype(np.int64) for ends in (lo, hi)), np.arange(len(lo)))

    def asked(self, points: Points) -> Any:
        values = self._whole(points).astype(np.int64)
        return int(values[0]) if len(values) == 1 else (values, values + 1, np.arange(len(values)))

    def find(self, asked: Any) -> Any:
        if isinstance(asked, int):
            return list(self._list.find_overlap(asked, asked + 1))
        return self._list.all_overlaps_both(*asked)

    def pairs(self, found: Any) -> tuple[Ids, Ids]:
        if isinstance(found, list):
            return _flat([[slot for _, _, slot in found]])
        return found[0], found[1]


class IntervalTree(Peer):
    """intervaltree: one point a call, it has no other."""

    name = "intervaltree"
    finite = False

    def __init__(self, lo: Bounds, hi: Bounds) -> None:
        super().__init__(lo, hi)
        ends = zip(lo.ravel().tolist(), hi.ravel().tolist(), strict=True)
        self._tree = intervaltree.IntervalTree(
            intervaltree.Interval(begin, end, slot) for slot, (begin, end) in enumerate(ends)
        )

    def asked(self, points: Points) -> Any:
        return points.ravel().tolist()

    def find(self, asked: Any) -> Any:
        return [self._tree.at(value) for value in asked]

    def pairs(self, found: Any) -> tuple[Ids, Ids]:
        return _flat([[interval.data for interval in one] for one in found])


class RTree(Peer):
    """rtree (libspatialindex), loaded in bulk (sort-tile-recursive); nodes of 20, the best of 20 to 200."""

    name = "rtree"
    least = 2
    most = 16

    def __init__(self, lo: Bounds, hi: Bounds) -> None:
        super().__init__(lo, hi)
        properties = rtree.index.Property(dimension=lo.shape[1], leaf_capacity=20, index_capacity=20)
        # Each a copy: it keeps no reference, and it wants them contiguous.
        self._tree = rtree.index.Index(
            (np.arange(len(lo)), np.ascontiguousarray(lo), np.ascontiguousarray(hi)), properties=properties
        )

    def asked(self, points: Points) -> Any:
        return (points[0].tolist() * 2,) if len(points) == 1 else (points, points)

    def find(self, asked: Any) -> Any:
        if len(asked) == 1:
            return [list(self._tree.intersection(asked[0]))]
        return self._tree.intersection_v(*asked)  # type: ignore[no-untyped-call]

    def pairs(self, found: Any) -> tuple[Ids, Ids]:
        if isinstance(found, list):
            return _flat(found)
        slots, counts = found
        return np.repeat(np.arange(len(counts)), counts.astype(np.int64)), slots


class STRTree(Peer):
    """shapely's STRtree: a batch of points a call (bulk), or one."""

    name = "shapely"
    least = 2
    most = 2

    def __init__(self, lo: Bounds, hi: Bounds) -> None:
        super().__init__(lo, hi)
        self._tree = shapely.STRtree(shapely.box(lo[:, 0], lo[:, 1], hi[:, 0], hi[:, 1]))
        # It is built at the first question.
        self._tree.query(shapely.Point(0, 0))

    def asked(self, points: Points) -> Any:
        made = shapely.points(points)
        return made[0] if len(points) == 1 else made

    def find(self, asked: Any) -> Any:
        return self._tree.query(asked)

    def pairs(self, found: Any) -> tuple[Ids, Ids]:
        return (np.zeros_like(found), found) if found.ndim == 1 else (found[0], found[1])


class Numpy(Peer):
    """numpy without an index: for each point, each column is compared with all boxes."""

    name = "numpy"
    most = 256
    finite = False

    def __init__(self, lo: Bounds, hi: Bounds) -> None:
        super().__init__(lo, hi)
        self._columns = [(lo[:, j].copy(), hi[:, j].copy()) for j in range(lo.shape[1])]

    def asked(self, points: Points) -> Any:
        return points

    def find(self, asked: Any) -> Any:
        return [self._slots(point) for point in asked]

    def _slots(self, point: NDArray[np.float64]) -> Ids:
        (lo, hi), *others = self._columns
        inside = (lo <= point[0]) & (point[0] < hi)
        for (lo, hi), value in zip(others, point[1:], strict=True):
            inside &= lo <= value
            inside &= value < hi
        return np.flatnonzero(inside)

    def pairs(self, found: Any) -> tuple[Ids, Ids]:
        return _flat(found)


PEERS: tuple[type[Peer], ...] = (SuperIntervals, NCLS, IntervalTree, STRTree, RTree, Numpy)


def peers_for(lo: Bounds, hi: Bounds) -> Iterable[type[Peer]]:
    """The peers that can hold these boxes."""
    bounded = bool(np.isfinite(lo).all() and np.isfinite(hi).all())
    return [peer for peer in PEERS if peer.least <= lo.shape[1] <= peer.most and (bounded or not peer.finite)]


def _flat(slots: Sequence[Any]) -> tuple[Ids, Ids]:
    """Lists of slots, one a row, as pairs."""
    counts = [len(one) for one in slots]
    flat = np.fromiter(chain.from_iterable(slots), np.int64, sum(counts))
    return np.repeat(np.arange(len(slots)), counts), flat
