"""Which streams are in which boxes: the dual of matching, for queries that come and go.

Idea: a registration has to find the streams that its boxes hold. One scan of the last values does that, and
is the best there is for one registration now and then. Where scans have cost as much as an index of the last
values would have, it is made (``DataIndex``), and boxes probe it from then on. Streams that move afterwards
are marked and looked at one by one; when many have moved, scans begin again. So the cost is never more than
about twice that of whatever would have been better.

Invariant: a stream whose last value is not the one in the index is marked as moved.

Not for: who is a member (``delta``).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from service.engine.distinct import distinct
from service.index.box.spatial_join_data import DataIndex
from service.index.brute import BruteForce
from service.index.default.mixed import DefaultIndex
from service.index.protocol import Bounds, BoxIndex, Hits, Points, Rows, Slots

_FEW = 2_000
"""Streams that are scanned anyway."""
_BUILD_NS = 500.0
"""What the index costs a stream to make: about so many ns (``box.spatial_join_data``)."""
_SCAN_NS, _BOX_NS = 3.0, 0.25
"""What a scan costs a stream, besides what each box adds."""
_MOVED_SHARE = 16
"""The index is given up when more than 1 / _MOVED_SHARE of the streams have moved."""
_MANY_BOXES = 256
"""From so many boxes on, a scan is made with an index of the boxes."""


class LastValues:
    """Finds rows of one stream table by box. The table says what moves; ``point`` is asked for each time."""

    def __init__(self) -> None:
        self._index: DataIndex | None = None
        self._rows: Rows = np.empty(0, np.int32)
        self._moved: NDArray[np.bool_] = np.empty(0, np.bool_)
        self._paid_ns = 0.0

    def moved(self, rows: Rows) -> None:
        """These rows may have other values now, or none. O(rows) where there is an index, else nothing."""
        if self._index is not None:
            self._moved[rows[rows < len(self._moved)]] = True

    def forget(self) -> None:
        """All values may be others."""
        self._index = None

    def inside(self, point: Points, living: Rows, owners: Slots, lo: Bounds, hi: Bounds) -> Hits:
        """All (row, owner) with ``point[row]`` in a box ``[lo[i], hi[i])`` of the owner, for living rows.

        ``point``: ``float64[capacity, d]``; ``living``: ``int32[n]``, rising; ``owners``: ``int32[k]``.
        By rising row, no pair twice. O(n k) at most; O(k + hits + moved k) with an index.
        """
        if len(owners) == 0 or len(living) == 0:
            return Hits(np.empty(0, np.int32), np.empty(0, np.int32))
        if len(living) <= _FEW or point.shape[1] == 0:
            return _scanned(point, living, owners, lo, hi)
        stale = self._stale(point, living, len(owners))
        if self._index is None:
            return _scanned(point, living, owners, lo, hi)
        pairs = self._index.join(lo, hi)
        rows = self._rows[pairs.rows]
        still = ~self._moved[rows]
        among = _scanned(point, stale, owners, lo, hi)
        keys = np.concatenate(
            [
                rows[still].astype(np.int64) << 32 | owners[pairs.boxes[still]],
                among.rows.astype(np.int64) << 32 | among.slots,
            ]
        )
        keys = distinct(keys)
        return Hits((keys >> 32).astype(np.int32), (keys & 0x7FFFFFFF).astype(np.int32))

    def _stale(self, point: Points, living: Rows, boxes: int) -> Rows:
        """The living rows that the index does not know as they are. Makes the index when it has been paid
        for, and gives it up when it no longer fits; without one, nothing is known."""
        if self._index is not None:
            stale = np.ones(len(living), np.bool_)
            known = living < len(self._moved)
            stale[known] = self._moved[living[known]]
            if _MOVED_SHARE * int(np.count_nonzero(stale)) <= len(living):
                return living[stale]
            self._index, self._paid_ns = None, 0.0
        self._paid_ns += len(living) * (_SCAN_NS + _BOX_NS * min(boxes, _MANY_BOXES * 4))
        if self._paid_ns < _BUILD_NS * len(living):
            return living
        self._rows = living
        self._index = DataIndex(np.ascontiguousarray(point[living]))
        self._moved = np.ones(len(point), np.bool_)
        self._moved[living] = False
        return living[:0]


def _scanned(point: Points, living: Rows, owners: Slots, lo: Bounds, hi: Bounds) -> Hits:
    """The same by a pass over the values."""
    dims = point.shape[1]
    index: BoxIndex = BruteForce(dims) if len(owners) < _MANY_BOXES else DefaultIndex(dims)
    index.insert(owners, lo, hi)
    hits = index.stab(np.ascontiguousarray(point[living]))
    return Hits(living[hits.rows], hits.slots)
