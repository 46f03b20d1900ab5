"""Signature bitmaps: boxes that constrain some of many attributes, or all of several, in any mixture.

Idea: boxes that constrain some attributes in common form a *group* (``bitmaps_groups``). In a group, boxes
that lie close together are numbered together, and every 512 of them are a *tile* (``bitmaps_tiles``).
Attributes are cut into windows (``bitmaps_windows``), and for some attributes and each of their windows a bit
a box says whether the box may hold a value there (``bitmaps_rows`` chooses). A point looks at the tiles whose
hulls are around it and meets the bits of its windows there, 512 boxes at a time. What is left is hardly more
than the answer. Where boxes have few constraints, two bytes an end tell nearly always whether a value is
inside; whatever they do not decide is compared exactly. All points of a batch pass tile by tile, so that what
is read for one of them is in the cache for the next.

Invariants: a box is in one group; bits may say yes in vain, never no. The same boxes make the same part,
whatever their order was. A point that lacks an attribute is in its window 0, where no box with a finite lower
end is, so it meets no tile of a group that shares the attribute.

Exact on float64: the window of a value is monotone in it, and what the bitmaps leave is compared as it is.

Not for: one attribute alone (``windows``), or many small boxes in two (``kd``), which leave too many tiles.
"""

from __future__ import annotations

import numpy as np

from service.index.answers import Keys
from service.index.default.arena import arena_of
from service.index.default.bitmaps_build import as_sparse, built, check, exact
from service.index.default.bitmaps_kernels import Bits, Exact, search
from service.index.default.bitmaps_windows import Cuts, chosen_cuts, scales_of, spans_of, windows_of
from service.index.default.part import NEVER, Sparse, in_order, taken
from service.index.default.windows_living import Living
from service.index.protocol import Points

_FEW = 6
"""Constraints of a mean box up to which it has more bits, and its spans."""
_ROOM, _ROOM_OF_FEW = 23.0, 28.0
"""Bytes of bits for a box."""
_ROOM_OF_FEWER = 5.0
"""More of them for each constraint that it has less than five: a box of three is still the smaller one."""


class Bitmaps:
    """A ``Part`` of n boxes with c constraints: 17 c + 8 n bytes at most, 2 n more unless all have as many,
    and 23 n of bits; where boxes have few constraints 4 c of spans and 28 n to 48 n of bits. Built in
    O(c log n)."""

    name = "bitmaps"

    def __init__(self, boxes: Exact, bits: Bits, cuts: Cuts) -> None:
        """Of boxes in the order of their blocks."""
        arrays = (*bits, *boxes, cuts, scales_of(cuts), np.full(len(boxes.slots), NEVER))
        self._arena, views = arena_of(arrays)
        self._bits, self._exact = Bits(*views[: len(bits)]), Exact(*views[len(bits) : -3])
        self._cuts, self._scales, self.removed_at = views[-3:]
        self.slots = self._exact.slots
        self._living = Living(self.removed_at)

    @classmethod
    def of(cls, boxes: Sparse, dims: int) -> Bitmaps:
        boxes = in_order(boxes)
        cuts = chosen_cuts(boxes, dims)
        few = len(boxes.lo) <= _FEW * len(boxes)
        fewer = max(5.0 - len(boxes.lo) / max(len(boxes), 1), 0.0)
        room = _ROOM_OF_FEW + _ROOM_OF_FEWER * fewer if few else _ROOM
        windows = windows_of(spans_of(boxes, cuts))
        order, bits = built(boxes, windows, dims, room)
        boxes = taken(boxes, order)
        return cls(exact(boxes, spans_of(boxes, cuts) if few else None, dims), bits, cuts)

    @property
    def nbytes(self) -> int:
        return self._arena.nbytes

    def stab(self, points: Points, version: int, out: Keys) -> int:
        """O(m (blocks + tiles around a point)), and O(1) to O(c / n) for each box that the bits leave."""
        whole = len(self._living.marks(version, len(points))) == 0
        found: int = search(self._arena, version, whole, points, out)
        return found

    def boxes(self) -> Sparse:
        """O(c); ends and slots are views."""
        return as_sparse(self._exact, len(self._cuts))

    def check(self) -> None:
        boxes = self.boxes()
        assert len(boxes.lo) == len(boxes.hi) == len(boxes.attributes) == boxes.starts[-1]
        assert boxes.starts[0] == 0 and (np.diff(boxes.starts) > 0).all()
        assert len(self.removed_at) == len(boxes)
        rising = self._cuts[:, 1:] > self._cuts[:, :-1]
        assert (rising | np.isnan(self._cuts[:, 1:])).all()
        spans = spans_of(boxes, self._cuts)
        few = len(self._exact.near) > len(boxes.lo)
        made = exact(boxes, spans if few else None, len(self._cuts))
        assert np.array_equal(self._exact.near, made.near)
        assert np.array_equal(self._exact.chunks, made.chunks)
        assert np.array_equal(self._exact.offsets, made.offsets)
        check(boxes, windows_of(spans), self._bits)
