"""The delta: boxes that wait to be filed.

Idea: a new box costs one write behind the visible length of a few columns, which grow by doubling, and a new
snapshot; it is found by a scan. What is removed is masked in a copy of the column of slots. Both leave the
snapshots as they are that readers hold (``boxes``).

Not for: refusing boxes (``LiveSlots``; the index has one for all), or more boxes than a scan passes in the
time of a look-up.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from service.index.boxes import REMOVED, Boxes, appended, living, no_boxes
from service.index.protocol import Bounds, Slots
from service.index.scan import BLOCK, near_ends


class Delta:
    """``boxes`` is the latest snapshot. Complexities count n boxes in it."""

    def __init__(self, dims: int) -> None:
        self._dims = dims
        self.boxes: Boxes = no_boxes(dims, 0)
        #: Whether no slot has more than one box. It may stay False when such slots are gone.
        self.unique = True

    @property
    def nbytes(self) -> int:
        return self.boxes.nbytes

    def insert(self, slots: Slots, lo: Bounds, hi: Bounds) -> None:
        """Boxes as ``LiveSlots.add`` leaves them. O(k), amortised."""
        if len(slots) > 1 and self.unique:
            self.unique = len(np.unique(slots)) == len(slots)
        boxes = self.boxes
        size = boxes.size + len(slots)
        if size > len(boxes.slots):
            fresh = no_boxes(self._dims, max(size, 2 * boxes.size, BLOCK))
            boxes = appended(fresh, *_columns(boxes, slice(boxes.size)))
        self.boxes = appended(boxes, slots, lo, hi)

    def taken(self) -> tuple[Slots, Bounds, Bounds]:
        """Its living boxes, which it has no more. O(n)."""
        boxes, self.boxes, self.unique = self.boxes, no_boxes(self._dims, 0), True
        return _columns(boxes, living(boxes))

    def has(self, slots: Slots) -> NDArray[np.bool_]:
        """Whether each of the slots has a living box here. O((n + k) log n)."""
        size = self.boxes.size
        if size == 0:
            return np.zeros(len(slots), np.bool_)
        return np.isin(slots, self.boxes.slots[:size])

    def remove(self, slots: Slots) -> None:
        """Takes out the boxes of slots, any slots; those left are copied together when they are less than
        half. O((n + k) log k)."""
        boxes = self.boxes
        column = boxes.slots.copy()
        seen = column[: boxes.size]
        seen[np.isin(seen, slots)] = REMOVED
        self.boxes = boxes._replace(slots=column)
        if 2 * np.count_nonzero(seen == REMOVED) > len(seen):
            self.insert(*self.taken())

    def check(self) -> None:
        """Asserts the invariants of the latest snapshot. O(n)."""
        near, lo, hi, slots, size, _ = self.boxes
        waiting = slots[:size][slots[:size] != REMOVED]
        assert not self.unique or len(np.unique(waiting)) == len(waiting)
        lo, hi = lo[:size], hi[:size]
        assert size <= len(slots) == len(near) * BLOCK
        assert (lo < hi).all() and (slots[:size] >= REMOVED).all()
        near_lo, near_hi = near_ends(near, 0, size, self._dims)
        with np.errstate(over="ignore"):
            assert np.array_equal(near_lo, lo.astype(np.float32))
            assert np.array_equal(near_hi, hi.astype(np.float32))


def _columns(boxes: Boxes, chosen: slice | NDArray[np.intp]) -> tuple[Slots, Bounds, Bounds]:
    return boxes.slots[chosen], boxes.lo[chosen], boxes.hi[chosen]
