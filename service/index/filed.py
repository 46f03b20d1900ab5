"""An index that files its boxes in one go: the part that all such structures share.

Idea: a structure is made for all boxes at once (it is *filed*) and never changed after, so that a stab reads
an immutable snapshot and never waits. New boxes wait in the *tail*, which is scanned; when it outgrows its
limit, everything is filed anew. Removed boxes are masked until then.

What a structure has to bring is a ``Filing``: how it was made and how it finds. Everything else (validation,
snapshots, the form of an answer) is here, once.

Invariant: the boxes below ``filed`` are in the filing of the snapshot, those behind are its tail.

Not for: structures that change in place.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from service.index.answers import Collector, Keys, as_points, borders_by_stab
from service.index.boxes import Boxes, BoxStore, by_first_lower_end
from service.index.protocol import Borders, Bounds, Hits, Points, Slots
from service.index.scan import scan

_TAIL_SHARE = 64
"""A tail of n / 64 boxes costs about as much to scan as a good structure of n boxes to search."""


class Filing(Protocol):
    """A structure over the first boxes of a snapshot, by their numbers."""

    @property
    def nbytes(self) -> int:
        """Bytes held besides the boxes."""

    def search(self, boxes: Boxes, points: Points, out: Keys) -> int:
        """Writes the key ``row << 32 | slot`` of every filed box around a point, at most ``len(out)`` of
        them, and returns how many there are. Any order, repeats allowed; a negative slot is a removed box."""

    def check(self, lo: Bounds, hi: Bounds) -> None:
        """Asserts that it is the structure of the boxes ``float64[n, d]``."""


class _Snapshot(NamedTuple):
    boxes: Boxes
    filing: Filing
    filed: int


class FiledIndex(ABC):
    """A ``BoxIndex`` over ``_file``; see ``protocol`` for what it takes, raises and promises.

    ``tail_limit`` is the number of boxes that may wait unfiled, however few there are.
    """

    def __init__(self, dims: int, *, tail_limit: int = 1024) -> None:
        self.dims = dims
        self._tail_limit = tail_limit
        self._store = BoxStore(dims)
        self._collector = Collector()
        self._snapshot = self._filed()

    @abstractmethod
    def _file(self, lo: Bounds, hi: Bounds) -> Filing:
        """The structure of n boxes ``float64[n, d]``."""

    def _order(self, lo: Bounds, hi: Bounds) -> NDArray[np.intp] | None:
        """The order in which boxes are numbered before they are filed: a permutation of n, None as they are.
        By default that of their first lower ends."""
        return by_first_lower_end(lo, hi)

    def __len__(self) -> int:
        return len(self._store)

    @property
    def nbytes(self) -> int:
        return self._store.nbytes + self._snapshot.filing.nbytes

    def insert(self, slots: Slots, lo: Bounds, hi: Bounds) -> None:
        """O(1) a box, and for every n / 64 boxes all is filed once."""
        self._store.insert(slots, lo, hi)
        self._publish()

    def remove(self, slots: Slots) -> None:
        """O(n), a copy of 4 bytes a box; every n / 2 removals all is filed anew."""
        self._store.remove(slots)
        self._publish()

    def stab(self, points: Points) -> Hits:
        points = as_points(points, self.dims)
        snapshot = self._snapshot
        # Only without the JIT does a large number warn when it becomes infinite.
        with np.errstate(over="ignore"):
            return self._collector.hits(lambda out: _found(snapshot, points, out), len(points))

    def borders(self, before: Points, after: Points) -> Borders:
        """As two stabs."""
        return borders_by_stab(self, before, after)

    def check(self) -> None:
        self._store.check()
        boxes, filing, filed = self._snapshot
        assert boxes is self._store.boxes
        assert 0 <= boxes.size - filed <= self._most_waiting(boxes)
        filing.check(boxes.lo[:filed], boxes.hi[:filed])

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
        self._store.arrange(self._order)
        boxes = self._store.boxes
        filing = self._file(boxes.lo[: boxes.size], boxes.hi[: boxes.size])
        return _Snapshot(boxes, filing, boxes.size)


def _found(snapshot: _Snapshot, points: Points, out: Keys) -> int:
    """Writes the keys of the filed boxes and, behind them, of the tail; returns how many there are."""
    boxes, filing, filed = snapshot
    found = filing.search(boxes, points, out)
    near, lo, hi, slots, size, _ = boxes
    waiting: int = scan(near, lo, hi, slots, filed, size, points, out[found:])
    return found + waiting
