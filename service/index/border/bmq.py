"""BMQ-Index: what a move leaves and enters, after Lee, Lee, Kang, Lee, Jin, Kim and Song.

Idea: a query is stored only where its range begins and where it ends. A move from one place to another
passes the borders between them, and what is stored there is what changed; how many queries hold the stream
all the while does not matter. ``bmq_types`` has the words and the layout, ``bmq_kernels`` the search,
``bmq_list_kernels`` the split and merge of segments. ``bmq_monitor`` adds the stream table.

Where this departs from the paper:

* RS lists are flat arrays that never change, two of them: the *settled* lists and the *fresh* ones, of the
  newest boxes. A registration merges into the fresh lists, and every so often these into the settled ones.
  A change costs about the square root of what is stored, and readers never wait. What is removed is marked,
  and its segments are merged at the next settling. With ``fresh_limit=0`` every change settles: the paper.
* A delta knows the node of its partner, the other border of its box. So the differences of unions of +DQSets
  and -DQSets need no sets: one comparison with the partner says whether both borders were passed.
* Every so often along an attribute an *anchor* lists the members of a node. From there a stab takes as long
  as its answer, and so does a jump across the domain: whichever costs less, the deltas between the two
  places or the members of both, is read. With ``anchored=False`` there are none, the storage is the paper's
  and members are found by a walk from below -inf.
* Exact on float64: borders are the ends of boxes themselves, compared with values as they are.
* A slot may own several boxes, and a move from one to another is no border (``bmq_kernels``).

Not for: matching events that jump at random among many wide boxes of several attributes: members of one
attribute are all tried.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.index.answers import Collector, Keys, as_points, require_one_shape
from service.index.border.bmq_kernels import choose_ways, compare, locate, stab, walk
from service.index.border.bmq_lists import anchored, check_anchors, check_lists, merged, rs_lists
from service.index.border.bmq_queries import QueryTable
from service.index.border.bmq_types import NO_ANCHORS, Anchors, Queries, RSLists, nbytes
from service.index.crossings import borders_of
from service.index.protocol import Borders, Bounds, Hits, Points, Slots

_MOST_NODES = 2**31 - 1

Places = NDArray[np.int32]
"""``int32[m, d]``: the nodes of the settled lists that hold m points, one an attribute."""


class Crossing(NamedTuple):
    """Borders, the places after the moves, and how many entries were read to find them."""

    borders: Borders
    places: Places
    accessed: int


class RSNode(NamedTuple):
    """A region segment: its lower border and the slots that begin (+DQSet) and end (-DQSet) there."""

    lower: float
    begins: tuple[int, ...]
    ends: tuple[int, ...]


class _Filed(NamedTuple):
    lists: RSLists
    anchors: Anchors

    @property
    def nbytes(self) -> int:
        return nbytes(self.lists) + nbytes(self.anchors)


class _Snapshot(NamedTuple):
    queries: Queries
    settled: _Filed
    fresh: _Filed

    @property
    def filed(self) -> tuple[_Filed, ...]:
        return (self.settled, self.fresh) if len(self.fresh.lists.boxes) else (self.settled,)


class BMQIndex:
    """A ``BoxIndex`` of one or more attributes; see ``protocol`` for what it takes, raises and promises.

    ``fresh_limit`` is the number of boxes that may wait in the fresh lists, and of removed ones that may stay
    in the settled lists; by default the square root of the number of boxes. ``anchored``: see the module.

    For n boxes in d attributes and m moves over b deltas: ``borders`` is O(m d log n + b), times d for boxes
    that go through the cross-check. Storage is at most 2 d deltas and 2 d borders a box and the query table,
    and as much again for anchors.
    """

    def __init__(self, dims: int, *, fresh_limit: int | None = None, anchored: bool = True) -> None:
        if dims < 1:
            raise ValueError(f"a BMQ-Index has at least 1 attribute, not {dims}")
        self.dims = dims
        self._fresh_limit = fresh_limit
        self._anchored = anchored
        self._table = QueryTable(dims)
        self._hits = Collector()
        self._empty = _Filed(rs_lists(self._table.queries, 0, 0), NO_ANCHORS)
        self._snapshot = _Snapshot(self._table.queries, self._empty, self._empty)

    def __len__(self) -> int:
        return len(self._table)

    @property
    def nbytes(self) -> int:
        return self._table.nbytes + self._snapshot.settled.nbytes + self._snapshot.fresh.nbytes

    @property
    def list_nbytes(self) -> int:
        """Bytes of the RS lists alone, without anchors and query table."""
        return nbytes(self._snapshot.settled.lists) + nbytes(self._snapshot.fresh.lists)

    @property
    def anchor_nbytes(self) -> int:
        """Bytes of the anchors."""
        return nbytes(self._snapshot.settled.anchors)

    def insert(self, slots: Slots, lo: Bounds, hi: Bounds) -> None:
        """O(d k log k) for k boxes and O(d sqrt(n)) amortised. Raises ValueError on more boxes than int32 can
        number the borders of, too."""
        table, snapshot = self._table, self._snapshot
        if self.dims * (2 * (table.size + len(slots)) + 1) > _MOST_NODES:
            raise ValueError(f"more boxes than {_MOST_NODES} nodes are enough for")
        first = table.add(slots, lo, hi)
        if table.size == first:
            return
        queries = table.queries
        new = rs_lists(queries, first, table.size)
        fresh = merged(snapshot.fresh.lists, new, queries) if len(snapshot.fresh.lists.boxes) else new
        self._publish(snapshot.settled, fresh)

    def remove(self, slots: Slots) -> None:
        """O(d k) for the boxes of k slots and O(d sqrt(n)) amortised."""
        gone = self._table.discard(slots)
        if 2 * self._table.removed > self._table.size:
            self._table.compact()
            self._publish(self._empty, rs_lists(self._table.queries, 0, self._table.size))
        elif gone:
            self._publish(self._snapshot.settled, self._snapshot.fresh.lists)

    def stab(self, points: Points) -> Hits:
        """O(m d log n + entries): from the nearest anchor, in the attribute with the fewest entries."""
        points = as_points(points, self.dims)
        snapshot = self._snapshot
        near = _nowhere(*points.shape)
        filed = [(*each, _places(each.lists, points, near)) for each in snapshot.filed]

        def fill(out: Keys) -> int:
            needed = 0
            for lists, anchors, places in filed:
                room = out[min(needed, len(out)) :]
                needed += stab(snapshot.queries, lists, anchors, points, places, room)
            return needed

        return self._hits.hits(fill, len(points))

    def borders(self, before: Points, after: Points) -> Borders:
        """The incremental search; the place of ``before`` is looked up, that of ``after`` from there on."""
        return self.crossing(before, after, None).borders

    def crossing(self, before: Points, after: Points, places: Places | None) -> Crossing:
        """As ``borders``; ``places`` are where to look for ``before``, as an earlier crossing gave them.

        Places that are out of date, or wrong, cost time only. O(m d log distance + deltas).
        """
        require_one_shape(before, after)
        if places is not None and places.shape != before.shape:
            raise ValueError(f"places must have the shape of points, {before.shape}, not {places.shape}")
        batch = len(before)
        points = np.concatenate([as_points(before, self.dims), as_points(after, self.dims)])
        snapshot = self._snapshot
        queries = snapshot.queries
        tours = [_tour(each, points, places if each is snapshot.settled else None) for each in snapshot.filed]

        accessed = sum(tour.accessed for tour in tours)
        keys = np.empty(accessed, np.int64)
        count = 0
        for lists, anchors, both, by_members, compared, _ in tours:
            count += walk(queries, lists, points, both, by_members, keys[count:])
            if compared:
                count += compare(queries, lists, anchors, points, both, by_members, keys[count:])
        return Crossing(borders_of(keys[:count], batch), tours[0].places[batch:], accessed)

    def rs_list(self, attribute: int = 0) -> list[RSNode]:
        """The settled RS list of an attribute, as the paper draws it: without the head. O(size); to look at.

        A slot of several boxes appears once for each. Removed boxes that were not settled yet appear too."""
        heads, lower, starts, boxes, partners, *_ = self._snapshot.settled.lists
        slots = self._snapshot.queries.slots
        nodes = []
        for node in range(heads[attribute] + 1, heads[attribute + 1]):
            deltas = range(starts[node], starts[node + 1])
            begins = sorted(int(slots[boxes[i]]) for i in deltas if partners[i] > node)
            ends = sorted(int(slots[boxes[i]]) for i in deltas if partners[i] < node)
            nodes.append(RSNode(float(lower[node]), tuple(begins), tuple(ends)))
        return nodes

    def check(self) -> None:
        self._table.check()
        queries, settled, fresh = self._snapshot
        assert all(a is b or a == b for a, b in zip(queries, self._table.queries, strict=True))
        for lists, anchors in (settled, fresh):
            check_lists(lists, queries)
            if anchors is not NO_ANCHORS:
                check_anchors(anchors, lists)
        filed = np.concatenate([np.unique(settled.lists.boxes), np.unique(fresh.lists.boxes)])
        assert len(np.unique(filed)) == len(filed), "a box in both lists"
        assert np.isin(self._table.living(), filed).all()
        assert len(filed) - len(self._table.living()) <= self._most_waiting()
        assert len(np.unique(fresh.lists.boxes)) <= self._most_waiting()

    def _most_waiting(self) -> int:
        return math.isqrt(self._table.size) if self._fresh_limit is None else self._fresh_limit

    def _publish(self, settled: _Filed, fresh: RSLists) -> None:
        """Makes a change visible; settles first what is too much to wait."""
        queries = self._table.queries
        waiting, resting = (len(lists.boxes) // (2 * self.dims) for lists in (fresh, settled.lists))
        dead = waiting + resting - (self._table.size - self._table.removed)
        if max(waiting, dead) > self._most_waiting():
            lists = merged(settled.lists, fresh, queries)
            settled = _Filed(lists, anchored(lists) if self._anchored else NO_ANCHORS)
            fresh = self._empty.lists
        self._snapshot = _Snapshot(queries, settled, _Filed(fresh, NO_ANCHORS))


def _places(lists: RSLists, points: Points, near: Places) -> Places:
    places = np.empty(points.shape, np.int32)
    locate(lists, points, near, places)
    return places


def _nowhere(count: int, dims: int) -> Places:
    """Where to look for points of which nothing is known."""
    return np.full((count, dims), -1, np.int32)


class _Tour(NamedTuple):
    """Moves in some lists: ``int32[2 m, d]`` places, m before and m after, and the way each is looked at."""

    lists: RSLists
    anchors: Anchors
    places: Places
    by_members: NDArray[np.bool_]
    compared: int
    accessed: int


def _tour(filed: _Filed, points: Points, near: Places | None) -> _Tour:
    lists, anchors = filed
    batch = len(points) // 2
    by_members = np.empty(batch, np.bool_)
    places = _places(lists, points, _nowhere(batch, points.shape[1]) if near is None else near)
    return _Tour(lists, anchors, places, by_members, *choose_ways(lists, anchors, places, by_members))
