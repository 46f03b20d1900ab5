"""Slots of several boxes: what crossing a border of one of their boxes means for the slot.

Idea: a slot is in or out by all of its boxes together. Leaving one box for another of the same slot is no
border of the slot, and a crossed border inside another of its boxes is none either. Most slots have one box;
the boxes of the others are kept here once more, slot by slot, so that both ends can be tested against all.

Not for: finding crossed borders (``border_lists``).
"""

from __future__ import annotations

import numpy as np
from numba import types
from numpy.typing import NDArray

from service.index.answers import Keys
from service.index.default.part import Sparse, taken
from service.index.kernel import kernel, reads, writes
from service.index.protocol import Points, Slots


class Several:
    """``slots``: ``int32[s]``, rising, those with more than one of the boxes."""

    def __init__(self, boxes: Sparse) -> None:
        slots, counts = np.unique(boxes.slots, return_counts=True)
        self.slots: Slots = slots[counts > 1]
        order = np.argsort(boxes.slots, kind="stable")
        self._boxes = taken(boxes, order[np.isin(boxes.slots[order], self.slots)])
        self._first = np.concatenate([[0], np.cumsum(counts[counts > 1])]).astype(np.int64)

    @property
    def nbytes(self) -> int:
        return self.slots.nbytes + self._boxes.nbytes + self._first.nbytes

    def settled(self, keys: Keys, before: Points, after: Points) -> Keys:
        """From keys ``row << 32 | slot << 1 | entered`` by box, in any order, to such keys by slot, each
        once. They are sorted on the way, in place, where a slot has several boxes."""
        if len(self.slots) == 0:
            return keys
        keys.sort()
        settled = np.empty_like(keys)
        boxes = self._boxes
        columns = boxes.starts, boxes.attributes, boxes.lo, boxes.hi
        count = _settled(keys, self.slots, self._first, *columns, before, after, settled)
        return settled[:count]

    def holds(self, slot: int, point: NDArray[np.float64]) -> bool:
        """Whether a box of the slot, one of ``slots``, holds the point ``float64[d]``."""
        place = int(np.searchsorted(self.slots, slot))
        boxes = self._boxes
        for box in range(int(self._first[place]), int(self._first[place + 1])):
            entries = slice(boxes.starts[box], boxes.starts[box + 1])
            x = point[boxes.attributes[entries]]
            if ((boxes.lo[entries] <= x) & (x < boxes.hi[entries])).all():
                return True
        return False


_FLOATS = reads(types.float64, 1)
_POINTS = reads(types.float64, 2)


@kernel(
    types.int64(
        reads(types.int64, 1),
        reads(types.int32, 1),
        reads(types.int64, 1),
        reads(types.int64, 1),
        reads(types.uint8, 1),
        _FLOATS,
        _FLOATS,
        _POINTS,
        _POINTS,
        writes(types.int64, 1),
    )
)
def _settled(keys, slots, first, starts, attributes, lo, hi, before, after, out):  # type: ignore[no-untyped-def]
    """See ``Several.settled``; returns how many were written, at most as many as there are keys."""
    count = 0
    last = np.int64(-1)
    for key in keys:
        if key >> 1 == last:
            continue
        last = key >> 1
        slot = last & 0x7FFFFFFF
        place = np.searchsorted(slots, slot)
        if place == len(slots) or slots[place] != slot:
            out[count] = key
            count += 1
            continue
        row = key >> 32
        was = now = False
        for box in range(first[place], first[place + 1]):
            holds_before = holds_after = True
            for i in range(starts[box], starts[box + 1]):
                b, c = before[row, attributes[i]], after[row, attributes[i]]
                holds_before &= lo[i] <= b and b < hi[i]
                holds_after &= lo[i] <= c and c < hi[i]
            was |= holds_before
            now |= holds_after
        if was != now:
            out[count] = last << 1 | np.int64(now)
            count += 1
    return count
