"""The query table of a BMQ-Index, and which slots are in it.

Idea: the cross-check (Sect. 4.3) needs the ends of a box by its number, and a change must not wait for
readers. So boxes are numbered as they come and never move; a removal writes the version from which the box is
no more, and who reads at an older version still sees it. A slot of several boxes links them in a ring.

Invariant: below ``size`` the ends, slots and siblings never change, and ``removed_at`` only from ``NEVER`` to
a version that nobody has been given yet.

Not for: two threads that write.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from service.index.border.bmq_types import Queries
from service.index.boxes import LiveSlots
from service.index.kernel import kernel, reads, writes
from service.index.protocol import Bounds, Slots

NEVER = np.int32(2**31 - 1)
_LEAST_ROOM = 64
_NONE = np.int32(-1)


class QueryTable:
    """The writer's side; complexities count k boxes or slots of a call.

    ``size`` is the number of boxes, ``removed`` how many of them live no more, ``version`` that of the latest
    removal.
    """

    def __init__(self, dims: int) -> None:
        self.version = 0
        self.size = 0
        self.removed = 0
        self._live = LiveSlots(dims)
        self._box_of = np.full(_LEAST_ROOM, _NONE)
        self._columns = _columns(dims, _LEAST_ROOM)
        self._views = _frozen(self._columns)

    def __len__(self) -> int:
        return len(self._live)

    @property
    def nbytes(self) -> int:
        columns = sum(column.nbytes for column in self._columns)
        return columns + self._box_of.nbytes + self._live.nbytes

    @property
    def queries(self) -> Queries:
        """The table as kernels read it, at the latest version."""
        return Queries(*self._views, version=self.version)

    def add(self, slots: Slots, lo: Bounds, hi: Bounds) -> int:
        """Appends boxes in the order of their first lower ends, so that boxes which answer together lie
        together. Returns the number of the first. Raises as ``BoxIndex.insert``. O(k log k), amortised."""
        slots, lo, hi = self._live.add(slots, lo, hi)
        first, self.size = self.size, self.size + len(slots)
        if len(slots) == 0:
            return first
        self._make_room(int(slots.max()) + 1)
        columns, new = self._columns, slice(first, self.size)
        order = np.argsort(lo[:, 0], kind="stable") if len(slots) > 1 else slice(None)
        columns.lo[new], columns.hi[new], columns.slots[new] = lo[order], hi[order], slots[order]
        columns.removed_at[new] = NEVER
        _link(columns.slots[new], first, columns.siblings, self._box_of)
        return first

    def discard(self, slots: Slots) -> int:
        """Removes the boxes of slots, for readers of the next version. Returns how many. Raises as
        ``BoxIndex.remove``. O(k)."""
        self._live.discard(slots)
        if len(slots) == 0:
            return 0
        self.version += 1
        slots = np.ascontiguousarray(slots)
        gone: int = _unlink(
            slots, self.version, self._columns.siblings, self._box_of, self._columns.removed_at
        )
        self.removed += gone
        return gone

    def living(self) -> NDArray[np.intp]:
        """The numbers of the boxes that are not removed, rising. O(size)."""
        return np.flatnonzero(self._columns.removed_at[: self.size] == NEVER)

    def compact(self) -> None:
        """Numbers the living boxes anew, in the order of their first lower ends. Readers keep the table they
        have. O(size log size)."""
        living, old = self.living(), self._columns
        living = living[np.argsort(old.lo[living, 0], kind="stable")]
        self._columns = _columns(old.lo.shape[1], max(len(living), _LEAST_ROOM))
        _copy(_taken(old, living), self._columns)
        self.size, self.removed, self.version = len(living), 0, 0
        self._box_of[:] = _NONE
        _link(self._columns.slots[: self.size], 0, self._columns.siblings, self._box_of)
        self._views = _frozen(self._columns)

    def check(self) -> None:
        """Asserts the invariants. O(size)."""
        lo, hi, slots, siblings, removed_at = (column[: self.size] for column in self._columns)
        living = self.living()
        assert (lo < hi).all() and (slots >= 0).all()
        assert self.removed == self.size - len(living)
        assert (removed_at[removed_at != NEVER] <= self.version).all()
        assert np.array_equal(slots[siblings], slots)
        assert np.array_equal(np.sort(siblings), np.arange(self.size)), "no rings"
        assert np.array_equal(np.unique(slots[living]), self._live.named())
        assert np.array_equal(np.flatnonzero(self._box_of != _NONE), self._live.named())
        owned = np.bincount(slots[living])
        for slot in self._live.named():
            ring = [self._box_of[slot]]
            while siblings[ring[-1]] != ring[0]:
                ring.append(siblings[ring[-1]])
            assert len(ring) == owned[slot] and (removed_at[ring] == NEVER).all()

    def _make_room(self, slots: int) -> None:
        """Grows by doubling: the columns to ``size`` boxes, and what is kept by slot."""
        if slots > len(self._box_of):
            grown = np.full(max(slots, 2 * len(self._box_of)), _NONE)
            grown[: len(self._box_of)] = self._box_of
            self._box_of = grown
        old = self._columns
        if self.size > len(old.slots):
            self._columns = _columns(old.lo.shape[1], max(self.size, 2 * len(old.slots)))
            _copy(old, self._columns)
            self._views = _frozen(self._columns)


class _Columns(NamedTuple):
    lo: Bounds
    hi: Bounds
    slots: Slots
    siblings: NDArray[np.int32]
    removed_at: NDArray[np.int32]


def _frozen(columns: _Columns) -> _Columns:
    """Views of the columns that cannot be written through."""
    views = _taken(columns, slice(None))
    for view in (views.lo, views.hi, views.slots, views.siblings, views.removed_at):
        view.flags.writeable = False
    return views


def _taken(columns: _Columns, chosen: slice | NDArray[np.intp]) -> _Columns:
    lo, hi, slots, siblings, removed_at = columns
    return _Columns(lo[chosen], hi[chosen], slots[chosen], siblings[chosen], removed_at[chosen])


def _copy(source: _Columns, target: _Columns) -> None:
    """Copies all rows to the first ones of longer columns."""
    size = len(source.slots)
    target.lo[:size], target.hi[:size], target.slots[:size] = source.lo, source.hi, source.slots
    target.siblings[:size], target.removed_at[:size] = source.siblings, source.removed_at


def _columns(dims: int, room: int) -> _Columns:
    return _Columns(
        np.empty((room, dims)),
        np.empty((room, dims)),
        np.empty(room, np.int32),
        np.empty(room, np.int32),
        np.empty(room, np.int32),
    )


@kernel(types.void(reads(types.int32, 1), types.int64, writes(types.int32, 1), writes(types.int32, 1)))
def _link(slots, first, siblings, box_of):  # type: ignore[no-untyped-def]
    """Links boxes ``first .. first + k`` of ``slots`` in a ring a slot. ``box_of[slot]`` becomes one of
    them; it is below ``first`` if the slot has none yet. O(k)."""
    for i in range(len(slots)):
        box = first + i
        other = box_of[slots[i]]
        if other < 0:
            siblings[box] = box
            box_of[slots[i]] = box
        else:
            siblings[box] = siblings[other]
            siblings[other] = box


@kernel(
    types.int64(
        reads(types.int32, 1),
        types.int64,
        reads(types.int32, 1),
        writes(types.int32, 1),
        writes(types.int32, 1),
    )
)
def _unlink(slots, version, siblings, box_of, removed_at):  # type: ignore[no-untyped-def]
    """Marks every box of the slots; a slot that comes twice has none the second time. Returns how many."""
    gone = 0
    for slot in slots:
        box = box_of[slot]
        while box >= 0 and removed_at[box] > version:
            removed_at[box] = version
            box = siblings[box]
            gone += 1
        box_of[slot] = -1
    return gone
