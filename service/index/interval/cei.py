"""CEI: containment-encoded intervals for one attribute, after Wu, Chen and Yu.

Idea: cut the axis into unit cells and define over them, once, binary trees of virtual intervals. A query
interval is decomposed into the fewest of them, at most two a level, and filed in the ID list of each. A point
lies in exactly one virtual interval of each level; shifts lead from the smallest to the others, and their ID
lists are the answer, without a comparison with any end. ``cei_kernels`` has labels, decomposition and search;
``cei_encoding`` shows them one by one.

Where this departs from the paper:

* Ends are float64, not integers. Values are mapped to cells monotonely, the cells that a box covers whole go
  the paper's way, and the box is also filed in the (at most two) cells that its ends cut, where it is
  compared exactly (``cei_grid``). Where all ends fall on cell boundaries nothing is cut: the paper's index.
* ``[lo, hi)`` on floats needs no point CEIs (Sect. 3.4): ``x <= b`` ends at ``nextafter(b, inf)``. The lists
  of cut cells take their place, one a cell, apart from the tree.
* ID lists are slices of one array, made in one go, instead of lists that grow one by one, so that a stab
  reads an immutable snapshot and never waits. New boxes wait in the *tail*, which is scanned; when it
  outgrows its limit, all boxes are filed anew, in the order of their lower ends, on a grid chosen from them.
  Removed boxes are masked until then.

Invariant: the boxes below ``filed`` are in the ID lists of the snapshot, those behind are its tail.

Not for: ends that crowd in a small part of the axis (they share cells, and cut cells are compared box by
box).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from service.index.answers import Collector, Keys, as_points, borders_by_stab
from service.index.boxes import Boxes, BoxStore
from service.index.interval.cei_grid import LEAST_STEP, MOST_CELLS, MOST_STEP, chosen_grid
from service.index.interval.cei_kernels import search
from service.index.interval.cei_lists import IdLists, check, id_lists
from service.index.protocol import Borders, Bounds, Hits, Points, Slots
from service.index.scan import scan

_TAIL_SHARE = 64
"""A tail of n / 64 boxes costs about as much to scan as the lists of n boxes to read."""


class _Snapshot(NamedTuple):
    boxes: Boxes
    ids: IdLists
    filed: int


class CEI:
    """A ``BoxIndex`` of one attribute; see ``protocol`` for what it takes, raises and promises.

    ``segment_length`` is the paper's L, a power of two: by default one segment spans the grid, which takes
    the fewest entries. ``step`` is the length of a cell: by default it follows from the boxes. ``tail_limit``
    is the number of boxes that may wait unfiled, however few there are. ValueError on values out of range.
    Complexities are for n boxes, m points, h hits and L = 2**k.
    """

    dims = 1

    def __init__(
        self, *, segment_length: int | None = None, step: float | None = None, tail_limit: int = 1024
    ) -> None:
        if segment_length is not None and not (
            1 <= segment_length <= MOST_CELLS and segment_length.bit_count() == 1
        ):
            raise ValueError(
                f"segment_length must be a power of two up to {MOST_CELLS}, not {segment_length}"
            )
        if step is not None and not LEAST_STEP <= step <= MOST_STEP:
            raise ValueError(f"step must be within {LEAST_STEP} and {MOST_STEP}, not {step}")
        self._segment_length = segment_length
        self._step = step
        self._tail_limit = tail_limit
        self._store = BoxStore(1)
        self._collector = Collector()
        self._snapshot = self._filed()

    def __len__(self) -> int:
        return len(self._store)

    @property
    def nbytes(self) -> int:
        return self._store.nbytes + self._snapshot.ids.nbytes

    def insert(self, slots: Slots, lo: Bounds, hi: Bounds) -> None:
        """O(1) a box, and for every n / 64 boxes once O(n (k + log n)): amortised O(k + log n) a box."""
        self._store.insert(slots, lo, hi)
        self._publish()

    def remove(self, slots: Slots) -> None:
        """O(n), a copy of 4 bytes a box; every n / 2 removals all is filed anew."""
        self._store.remove(slots)
        self._publish()

    def stab(self, points: Points) -> Hits:
        """O(m (k + cut + n / 64) + h log h), where cut is the number of ends in the cell of a point."""
        points = as_points(points, 1)
        snapshot = self._snapshot
        # Only without the JIT does a large number warn when it becomes infinite.
        with np.errstate(over="ignore"):
            return self._collector.hits(lambda out: _found(snapshot, points, out), len(points))

    def borders(self, before: Points, after: Points) -> Borders:
        """As two stabs."""
        return borders_by_stab(self, before, after)

    def check(self) -> None:
        self._store.check()
        boxes, ids, filed = self._snapshot
        assert boxes is self._store.boxes
        assert 0 <= boxes.size - filed <= self._most_waiting(boxes)
        check(ids, boxes.lo[:filed], boxes.hi[:filed])

    def _publish(self) -> None:
        """Makes the store's boxes visible; files all anew if too many wait or their numbers changed."""
        boxes, snapshot = self._store.boxes, self._snapshot
        if boxes.layout != snapshot.boxes.layout or boxes.size - snapshot.filed > self._most_waiting(boxes):
            self._snapshot = self._filed()
        else:
            self._snapshot = snapshot._replace(boxes=boxes)

    def _most_waiting(self, boxes: Boxes) -> int:
        return max(self._tail_limit, boxes.size // _TAIL_SHARE)

    def _filed(self) -> _Snapshot:
        self._store.sort()
        boxes = self._store.boxes
        lo, hi = boxes.lo[: boxes.size], boxes.hi[: boxes.size]
        grid = chosen_grid(lo[:, 0], hi[:, 0], step=self._step, segment_length=self._segment_length)
        return _Snapshot(boxes, id_lists(lo, hi, grid), boxes.size)


def _found(snapshot: _Snapshot, points: Points, out: Keys) -> int:
    """Writes the keys of the filed boxes and, behind them, of the tail; returns how many there are."""
    (near, lo, hi, slots, size, _), (grid, lists, entries), filed = snapshot
    listed: int = search(lo, hi, slots, lists, entries, grid, points, out)
    waiting: int = scan(near, lo, hi, slots, filed, size, points, out[listed:])
    return listed + waiting
