"""The boxes that an index stores: immutable snapshots for readers, one store for the writer.

Idea: readers never wait and never see half a change. What they read is a ``Boxes``, a snapshot that a change
leaves as it is: new boxes go behind its visible length, removed ones are masked in a copy of the slot column,
and every so often the living are copied together. Whoever publishes a change swaps one reference; whoever
stabs reads that reference once.

Invariants:

1. Below ``size`` nothing of a snapshot ever changes. Above it only the one writer writes, and arrays are
   shared along one line of snapshots only, so no two snapshots disagree about a box that both see.
2. A box keeps its number until ``layout`` changes.
3. At most half of the boxes of a store's snapshot are removed ones.

Memory is proportional to the number of boxes and to the largest slot ever used: slots are dense by contract.

Not for: finding boxes (``scan`` and the indexes), or two threads that write.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from service.index.kernel import kernel, reads, writes
from service.index.protocol import Bounds, Slots
from service.index.scan import BLOCK, Near, near_blocks, near_ends, write_boxes

REMOVED = np.int32(-1)


class Boxes(NamedTuple):
    """A snapshot. Box number i, below ``size``, is ``[lo[i], hi[i])`` of ``slots[i]`` (REMOVED: of none)."""

    near: Near
    lo: Bounds
    hi: Bounds
    slots: Slots
    size: int
    layout: int

    @property
    def nbytes(self) -> int:
        return self.near.nbytes + self.lo.nbytes + self.hi.nbytes + self.slots.nbytes


def living(boxes: Boxes) -> NDArray[np.intp]:
    """The numbers of the living boxes of a snapshot, rising. O(n)."""
    return np.flatnonzero(boxes.slots[: boxes.size] != REMOVED)


def by_first_lower_end(lo: Bounds, hi: Bounds) -> NDArray[np.intp] | None:
    """An order for ``BoxStore.arrange``: boxes that answer together lie together. O(n log n)."""
    return np.argsort(lo[:, 0], kind="stable") if lo.shape[1] else None


def no_boxes(dims: int, capacity: int, layout: int = 0) -> Boxes:
    """A snapshot without a box, and with room for so many."""
    capacity = -(-capacity // BLOCK) * BLOCK
    return Boxes(
        near_blocks(capacity, dims),
        np.empty((capacity, dims)),
        np.empty((capacity, dims)),
        np.empty(capacity, np.int32),
        0,
        layout,
    )


def appended(boxes: Boxes, slots: Slots, lo: Bounds, hi: Bounds) -> Boxes:
    """A snapshot with more boxes, C-contiguous ones; the arrays are shared and must have the room. O(k)."""
    near, all_lo, all_hi, all_slots, size, layout = boxes
    write_boxes(near, all_lo, all_hi, all_slots, size, slots, lo, hi)
    return Boxes(near, all_lo, all_hi, all_slots, size + len(slots), layout)


class LiveSlots:
    """Which slots are live, and whether new boxes may be taken: what ``BoxIndex`` promises to refuse."""

    def __init__(self, dims: int) -> None:
        if dims < 0:
            raise ValueError(f"an index has at least 0 attributes, not {dims}")
        self._dims = dims
        self._live = np.zeros(BLOCK, np.bool_)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        return self._live.nbytes

    def add(self, slots: Slots, lo: Bounds, hi: Bounds) -> tuple[Slots, Bounds, Bounds]:
        """Marks the slots of new boxes; raises as ``BoxIndex.insert`` does. They, C-contiguous. O(k)."""
        _require(slots, np.int32, (slots.size,), "slots")
        _require(lo, np.float64, (len(slots), self._dims), "lo")
        _require(hi, np.float64, (len(slots), self._dims), "hi")
        slots, lo, hi = np.ascontiguousarray(slots), np.ascontiguousarray(lo), np.ascontiguousarray(hi)
        top = _first_fault(slots, lo, hi, self._live)
        if top < 0:
            box = -1 - top
            if slots[box] < 0:
                raise ValueError(f"slot {slots[box]} is negative")
            if not (lo[box] < hi[box]).all():
                raise ValueError(f"a box of slot {slots[box]} is empty or has a NaN: {lo[box]} to {hi[box]}")
            raise ValueError(f"slot {slots[box]} is live already")
        if top > len(self._live):
            live = np.zeros(max(top, 2 * len(self._live)), np.bool_)
            live[: len(self._live)] = self._live
            self._live = live
        self._count += _mark(self._live, slots)
        return slots, lo, hi

    def discard(self, slots: Slots) -> None:
        """Takes the mark from slots; raises as ``BoxIndex.remove`` does. O(k)."""
        _require(slots, np.int32, (slots.size,), "slots")
        strangers = slots[~self.has(slots)]
        if len(strangers):
            raise KeyError(int(strangers[0]))
        self._live[slots] = False
        self._count -= 1 if len(slots) == 1 else len(set(slots.tolist()))

    def has(self, slots: Slots) -> NDArray[np.bool_]:
        """Whether each of the slots is live."""
        known = (slots >= 0) & (slots < len(self._live))
        return known & self._live[np.where(known, slots, 0)]

    def named(self) -> NDArray[np.intp]:
        """All live slots, rising."""
        return np.flatnonzero(self._live)


class BoxStore:
    """The writer's side: validates, numbers and keeps boxes, and knows which slots are live.

    ``boxes`` is the latest snapshot. Complexities count k boxes or slots of a call and n stored boxes.
    """

    def __init__(self, dims: int) -> None:
        self.dims = dims
        self._live = LiveSlots(dims)
        self.boxes = no_boxes(dims, BLOCK, 0)
        self._removed_boxes = 0

    def __len__(self) -> int:
        return len(self._live)

    @property
    def nbytes(self) -> int:
        return self.boxes.nbytes + self._live.nbytes

    def insert(self, slots: Slots, lo: Bounds, hi: Bounds) -> None:
        """See ``BoxIndex.insert``; TypeError on another dtype. O(k), amortised over growth by doubling."""
        slots, lo, hi = self._live.add(slots, lo, hi)
        boxes = self.boxes
        size = boxes.size + len(slots)
        if size > len(boxes.slots):
            boxes = self._copied(slice(boxes.size), max(size, 2 * boxes.size), boxes.layout)
        self.boxes = appended(boxes, slots, lo, hi)

    def remove(self, slots: Slots) -> None:
        """See ``BoxIndex.remove``; a slot named twice is removed once. O(n), a copy of 4 bytes a box."""
        self._live.discard(slots)
        if len(slots) == 0:
            return
        boxes = self.boxes
        column = boxes.slots.copy()
        seen = column[: boxes.size]
        gone = (seen != REMOVED) & ~self._live.has(seen)
        seen[gone] = REMOVED
        self._removed_boxes += int(np.count_nonzero(gone))
        self.boxes = boxes._replace(slots=column)
        if 2 * self._removed_boxes > boxes.size:
            self._renumber(living(self.boxes))

    def has(self, slots: Slots) -> NDArray[np.bool_]:
        """Whether each of the slots is live here."""
        return self._live.has(slots)

    def arrange(self, order: Callable[[Bounds, Bounds], NDArray[np.intp] | None]) -> None:
        """Renumbers the living boxes; ``order`` of their ends is the permutation, None for as they are.

        O(n), besides ``order``."""
        boxes = self.boxes
        alive = living(boxes)
        permutation = order(boxes.lo[alive], boxes.hi[alive])
        self._renumber(alive if permutation is None else alive[permutation])

    def check(self) -> None:
        """Asserts the invariants of the store and of its latest snapshot. O(n)."""
        near, lo, hi, slots, size, _ = self.boxes
        lo, hi, slots = lo[:size], hi[:size], slots[:size]
        assert size <= len(self.boxes.slots) == len(near) * BLOCK
        assert (lo < hi).all()
        assert (slots >= REMOVED).all()
        named = np.unique(slots[slots != REMOVED])
        assert np.array_equal(named, self._live.named())
        assert len(self._live) == len(named)
        assert self._removed_boxes == np.count_nonzero(slots == REMOVED)
        assert 2 * self._removed_boxes <= size
        near_lo, near_hi = near_ends(near, 0, size, self.dims)
        with np.errstate(over="ignore"):
            assert np.array_equal(near_lo, lo.astype(np.float32))
            assert np.array_equal(near_hi, hi.astype(np.float32))

    def _renumber(self, alive: NDArray[np.intp]) -> None:
        self.boxes = self._copied(alive, len(alive), self.boxes.layout + 1)
        self._removed_boxes = 0

    def _copied(self, chosen: slice | NDArray[np.intp], capacity: int, layout: int) -> Boxes:
        boxes = self.boxes
        fresh = no_boxes(self.dims, capacity, layout)
        return appended(fresh, boxes.slots[chosen], boxes.lo[chosen], boxes.hi[chosen])


def _require(array: NDArray[np.generic], dtype: type[np.generic], shape: tuple[int, ...], name: str) -> None:
    """Refuses an array of another dtype (TypeError) or shape (ValueError)."""
    if array.dtype != dtype:
        raise TypeError(f"{name} must be {np.dtype(dtype)}, not {array.dtype}")
    if array.shape != shape:
        raise ValueError(f"{name} must have the shape {shape}, not {array.shape}")


_ENDS = reads(types.float64, 2)


@kernel(types.int64(reads(types.int32, 1), _ENDS, _ENDS, reads(types.boolean, 1)))
def _first_fault(slots, lo, hi, live):  # type: ignore[no-untyped-def]
    """One more than the largest slot; or ``-1 - i``, where box i must not be taken. O(k d)."""
    top = np.int64(0)
    for i in range(len(slots)):
        slot = np.int64(slots[i])
        if slot < 0 or (slot < len(live) and live[slot]):
            return -1 - i
        for j in range(lo.shape[1]):
            if not lo[i, j] < hi[i, j]:
                return -1 - i
        top = max(top, slot + 1)
    return top


@kernel(types.int64(writes(types.boolean, 1), reads(types.int32, 1)))
def _mark(live, slots):  # type: ignore[no-untyped-def]
    """Sets ``live`` at the slots; returns how many were not set. O(k)."""
    fresh = 0
    for slot in slots:
        fresh += not live[slot]
        live[slot] = True
    return fresh
