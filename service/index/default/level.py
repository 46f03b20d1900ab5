"""Levels: boxes that were filed together, in as many parts as suit them.

Idea: the default index is a handful of levels, each larger than the one before, so that a box is filed again
only a few times in its life however many come after it. A level never changes, but for the mark on boxes that
are removed.

Invariants: all boxes of a slot are in one level. ``by_slot`` of a part is the order of its boxes by slot, so
a removal finds them without a search through all.

Not for: when levels are made (``mixed``), which parts (``chooser``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from service.index.answers import Keys
from service.index.default.border_lists import BorderLists
from service.index.default.chooser import STRUCTURES, Choice, Choose
from service.index.default.fresh import FreshPart
from service.index.default.part import NEVER, Part, Sparse, constrained, joined, taken
from service.index.default.several import Several
from service.index.default.windows_living import Living
from service.index.kernel import kernel, reads, writes
from service.index.protocol import Points, Slots


class PartView(NamedTuple):
    """A part, for people: its structure and why it was chosen, the attributes that its boxes constrain, how
    many boxes it has, how many of these are removed, what it holds, what an event was predicted to cost."""

    structure: str
    reason: str
    attributes: tuple[int, ...]
    boxes: int
    removed: int
    nbytes: int
    predicted_ns: float


class Level:
    """n boxes in parts; see the module. Built in O(n log n)."""

    def __init__(self, boxes: Sparse, parts: Sequence[tuple[Part, PartView]]) -> None:
        """``boxes``: the living ones of the parts, in any order."""
        self.parts: tuple[Part, ...] = tuple(part for part, _ in parts)
        self.views = [view for _, view in parts]
        self._by_slot = [np.argsort(part.slots, kind="stable").astype(np.int32) for part in self.parts]
        #: What a point is predicted to cost; NaN where nobody predicted it.
        self.predicted_ns = sum(view.predicted_ns for view in self.views)
        self.several = Several(boxes)
        self._living = [Living(part.removed_at) for part in self.parts]
        self._lists: tuple[BorderLists, ...] | None = None

    @classmethod
    def of(cls, boxes: Sparse, dims: int, choose: Choose) -> Level:
        """The boxes, in the parts that are chosen for them."""
        choices = choose(boxes, dims) if len(boxes) else ()
        parts = [STRUCTURES[one.structure].make(one.boxes, dims) for one in choices]
        return cls(
            boxes, [(part, _viewed(part, one, dims)) for part, one in zip(parts, choices, strict=True)]
        )

    @classmethod
    def around(cls, part: FreshPart, version: int, dims: int) -> Level:
        """The boxes of a grid, where they are, for versions from this on."""
        boxes = taken(part.boxes(), np.flatnonzero(part.removed_at > version))
        return cls(boxes, [(part, fresh_view(part, dims))])

    @property
    def unique(self) -> bool:
        """Whether no slot has more than one box here."""
        return len(self.several.slots) == 0

    @property
    def size(self) -> int:
        """Its boxes, removed ones too."""
        return sum(view.boxes for view in self.views)

    @property
    def living(self) -> int:
        """Its boxes that are not removed."""
        return sum(view.boxes - view.removed for view in self.views)

    @property
    def nbytes(self) -> int:
        held = sum(part.nbytes for part in self.parts) + sum(order.nbytes for order in self._by_slot)
        return held + self.several.nbytes + sum(lists.nbytes for lists in self._lists or ())

    @property
    def borders(self) -> tuple[BorderLists, ...]:
        """One for each part; made when they are first asked for."""
        if self._lists is None:
            self._lists = tuple(BorderLists(part.boxes()) for part in self.parts)
        return self._lists

    def remove(self, slots: Slots, version: int) -> None:
        """Marks all boxes of the slots that are here and live as removed at a version; any slots will do.

        Writer only. O(k log n) a part."""
        for number, (part, by_slot) in enumerate(zip(self.parts, self._by_slot, strict=True)):
            count = _remove(part.slots, by_slot, slots, part.removed_at, version)
            if count:
                view = self.views[number]
                self.views[number] = view._replace(removed=view.removed + count)

    def holding(self, slot: int, version: int) -> list[tuple[PartView, int]]:
        """The parts with boxes of a slot that live at a version, and how many of them. O(log n) a part."""
        found: list[tuple[PartView, int]] = []
        for part, by_slot, view in zip(self.parts, self._by_slot, self.views, strict=True):
            first, last = (
                int(np.searchsorted(part.slots, slot, side, sorter=by_slot)) for side in ("left", "right")
            )
            count = int(np.count_nonzero(part.removed_at[by_slot[first:last]] > version))
            if count:
                found.append((view, count))
        return found

    def removed_since(self, version: int) -> Slots:
        """The slots removed after a version. O(n)."""
        gone = [part.slots[(part.removed_at > version) & (part.removed_at < NEVER)] for part in self.parts]
        return np.unique(np.concatenate([*gone, np.empty(0, np.int32)]))

    def boxes(self, version: int) -> Sparse:
        """The boxes that lived at a version. Any thread. O(n)."""
        living = [taken(part.boxes(), np.flatnonzero(part.removed_at > version)) for part in self.parts]
        return joined(living)

    def moved(
        self, before: Points, after: Points, version: int, worth_ns: float, far: NDArray[np.bool_], out: Keys
    ) -> int:
        """As ``BorderLists.search``, of all parts, by box: slots of several boxes are still to be settled."""
        found = 0
        for living, lists in zip(self._living, self.borders, strict=True):
            marks = living.marks(version, len(before))
            room = out[found:] if found else out
            found += lists.search(before, after, marks, version, worth_ns, far, room)
        return found

    def check(self) -> None:
        """Asserts every invariant. O(size)."""
        assert self.size == sum(len(part.slots) for part in self.parts)
        assert self.living == sum(int((part.removed_at == NEVER).sum()) for part in self.parts)
        assert [view.boxes for view in self.views] == [len(part.slots) for part in self.parts]
        for part, by_slot in zip(self.parts, self._by_slot, strict=True):
            part.check()
            assert np.array_equal(np.sort(by_slot), np.arange(len(part.slots)))
            assert (np.diff(part.slots[by_slot]) >= 0).all()
        living = [part.slots[part.removed_at == NEVER] for part in self.parts]
        slots, counts = np.unique(np.concatenate(living), return_counts=True)
        assert np.isin(slots[counts > 1], self.several.slots).all()
        for lists in self._lists or ():
            lists.check()


def fresh_view(part: FreshPart, dims: int) -> PartView:
    """A grid, as it is now."""
    return PartView(
        structure="grid",
        reason="came lately",
        attributes=tuple(constrained(part.boxes(), dims).tolist()),
        boxes=len(part.slots),
        removed=int(np.count_nonzero(part.removed_at != NEVER)),
        nbytes=part.nbytes,
        predicted_ns=part.predicted_ns,
    )


def _viewed(part: Part, choice: Choice, dims: int) -> PartView:
    """A part that has just been made."""
    return PartView(
        structure=choice.structure,
        reason=choice.reason,
        attributes=tuple(constrained(choice.boxes, dims).tolist()),
        boxes=len(part.slots),
        removed=0,
        nbytes=part.nbytes,
        predicted_ns=choice.predicted_ns,
    )


@kernel(
    types.int64(
        reads(types.int32, 1),
        reads(types.int32, 1),
        reads(types.int32, 1),
        writes(types.int32, 1),
        types.int64,
    )
)
def _remove(slots, by_slot, wanted, removed_at, version):  # type: ignore[no-untyped-def]
    """Writes ``removed_at[box] = version`` for the living boxes of the wanted slots; returns how many."""
    count = 0
    for slot in wanted:
        low, high = 0, len(by_slot)
        while low < high:
            middle = (low + high) >> 1
            if slots[by_slot[middle]] < slot:
                low = middle + 1
            else:
                high = middle
        while low < len(by_slot) and slots[by_slot[low]] == slot:
            box = by_slot[low]
            if removed_at[box] == 2147483647:
                removed_at[box] = version
                count += 1
            low += 1
    return count
