"""An index whose structure is updated in place: the part that all such structures share.

Idea: search trees and skip lists are made to be changed where they are, one box at a time. So they are, and
a lock stands between a change and a stab: a reader waits for the change or the other way round. What a
structure has to bring is a ``Structure``: how it takes boxes in and out; what an index adds is how it
searches. Validation, the numbers of boxes and the form of an answer are here, once.

A call that brings a good part of all boxes builds the structure anew, which is cheaper than taking them in
one by one, and so does the store when it renumbers its boxes (half of them removed): what removals left
behind in the structure is gone then.

Invariant: between two calls the structure is that of the living boxes of the store's snapshot.

Not for: readers that must not wait (``filed``).
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from service.index.answers import Collector, Keys, as_points, borders_by_stab
from service.index.boxes import Boxes, BoxStore, by_first_lower_end
from service.index.protocol import Borders, Bounds, Hits, Points, Slots

_BULK_SHARE = 4
"""Taking in n / 4 boxes one by one costs about as much as building n of them anew, everywhere."""


class Structure(Protocol):
    """A structure over the living boxes of a snapshot, by their numbers."""

    @property
    def nbytes(self) -> int:
        """Bytes held besides the boxes."""

    def build(self, boxes: Boxes) -> None:
        """Becomes the structure of the living boxes, whatever it was."""

    def add(self, boxes: Boxes, first: int) -> None:
        """Takes in the boxes ``first .. boxes.size``, all alive."""

    def drop(self, boxes: Boxes, gone: NDArray[np.int64]) -> None:
        """Gives up the boxes with these numbers, each once."""

    def check(self, boxes: Boxes) -> None:
        """Asserts that it is the structure of the living boxes."""


class InPlaceIndex(ABC):
    """A ``BoxIndex`` over a ``Structure``; see ``protocol`` for what it takes, raises and promises."""

    def __init__(self, dims: int, structure: Structure) -> None:
        self.dims = dims
        self._store = BoxStore(dims)
        self._structure = structure
        self._structure.build(self._store.boxes)
        self._collector = Collector()
        self._lock = threading.Lock()

    @abstractmethod
    def _search(self, boxes: Boxes, points: Points, out: Keys) -> int:
        """Writes the key ``row << 32 | slot`` of every living box around a point, at most ``len(out)`` of
        them, and returns how many there are. Any order, repeats allowed."""

    def __len__(self) -> int:
        return len(self._store)

    @property
    def nbytes(self) -> int:
        return self._store.nbytes + self._structure.nbytes

    def insert(self, slots: Slots, lo: Bounds, hi: Bounds) -> None:
        """O(1) a box for the store, amortised, and what the structure takes."""
        with self._lock:
            first = self._store.boxes.size
            self._store.insert(slots, lo, hi)
            if _BULK_SHARE * len(slots) > self._store.boxes.size:
                self._store.arrange(by_first_lower_end)
                self._structure.build(self._store.boxes)
            else:
                self._structure.add(self._store.boxes, first)

    def remove(self, slots: Slots) -> None:
        """O(n) for the store, a copy of 4 bytes a box, and what the structure takes."""
        with self._lock:
            before = self._store.boxes
            self._store.remove(slots)
            after = self._store.boxes
            if after.layout != before.layout:
                self._structure.build(after)
            else:
                self._structure.drop(after, np.flatnonzero(before.slots != after.slots))

    def stab(self, points: Points) -> Hits:
        points = as_points(points, self.dims)
        with self._lock:
            boxes = self._store.boxes
            return self._collector.hits(lambda out: self._search(boxes, points, out), len(points))

    def borders(self, before: Points, after: Points) -> Borders:
        """As two stabs."""
        return borders_by_stab(self, before, after)

    def check(self) -> None:
        with self._lock:
            self._store.check()
            self._structure.check(self._store.boxes)
