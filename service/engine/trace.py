"""The newest events of one partition, kept for people who ask why something did not happen.

Idea: a ring of columns. Every row of every batch leaves what the engine made of it: the stream, the values
that were matched, the verdict, and how far the command log was. Nothing is decided or evaluated here; whoever
asks evaluates what is still there. It lives in memory only: a partition that is taken up begins with an empty
ring.

Invariants: no Python object per event; memory is fixed by the capacity. ``stream`` names rows of the stream
table while these are the same stream's, and is -1 once the stream is removed. Dead letters of the decoder
never come here: they are no rows of a batch.

Not for: state (``state``), or what must survive a restart.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.engine import kernels
from service.engine.effects import Batch
from service.index.protocol import Points, Rows
from service.model import MISSING


class Verdict(StrEnum):
    """What became of an event."""

    MOVED = "moved"
    LATE = "late"
    REJECTED = "rejected"
    DUPLICATE = "duplicate"


_VERDICTS = {
    kernels.MOVES: Verdict.MOVED,
    kernels.LATE: Verdict.LATE,
    kernels.REJECTED: Verdict.REJECTED,
    kernels.DUPLICATE: Verdict.DUPLICATE,
}
REFUSED = (Verdict.REJECTED, Verdict.DUPLICATE)


def verdict_of(code: int) -> Verdict:
    """By the code that the walk gave; a removal is no event."""
    return _VERDICTS[code]


class Seen(NamedTuple):
    """k events of one stream, the newest first.

    ``offsets int64[k]``, ``items int32[k]``: where they came from. ``ts int64[k]`` holds where ``timed
    bool[k]``. ``commands int64[k]``: the offset that the command log had been applied to. ``verdicts
    uint8[k]``: see ``verdict_of``. ``points float64[k, d]``: the values that were matched, or, of a refused
    event, as it gave them. ``given bool[k, d]``: whether the event itself had the attribute; what is there
    otherwise was carried.
    """

    offsets: NDArray[np.int64]
    items: NDArray[np.int32]
    ts: NDArray[np.int64]
    timed: NDArray[np.bool_]
    commands: NDArray[np.int64]
    verdicts: NDArray[np.uint8]
    points: Points
    given: NDArray[np.bool_]


class Trace:
    """A ring of ``capacity`` rows; 0 keeps nothing. See the module."""

    def __init__(self, dims: int, capacity: int) -> None:
        self.capacity = capacity
        #: rows ever recorded
        self.count = 0
        #: offset of the first event since the partition was taken up, and the log's timestamp of it, ms
        self.first_offset: int | None = None
        self.first_seen_ms: int | None = None
        self._stream: Rows = np.full(capacity, -1, np.int32)
        self._offsets = np.zeros(capacity, np.int64)
        self._items = np.zeros(capacity, np.int32)
        self._ts = np.zeros(capacity, np.int64)
        self._timed = np.zeros(capacity, np.bool_)
        self._commands = np.zeros(capacity, np.int64)
        self._verdict = np.zeros(capacity, np.uint8)
        self._points: Points = np.zeros((capacity, dims))
        self._given = np.zeros((capacity, dims), np.bool_)

    @property
    def nbytes(self) -> int:
        columns = (
            *(self._stream, self._offsets, self._items, self._ts, self._timed),
            *(self._commands, self._verdict, self._points, self._given),
        )
        return sum(column.nbytes for column in columns)

    def values_of(self, column: int) -> NDArray[np.float64]:
        """The values of an attribute in the ring."""
        return self._points[: min(self.count, self.capacity), column]

    @property
    def overwritten(self) -> bool:
        """Whether events since the partition was taken up are no longer here."""
        return self.count > self.capacity

    @property
    def from_offset(self) -> int | None:
        """Every event from this offset on is here, but for streams removed since; None before the first."""
        if not self.overwritten:
            return self.first_offset
        if self.capacity == 0:
            return None
        oldest = self.count % self.capacity
        # Of a message that held several, the first may be gone.
        return int(self._offsets[oldest]) + int(self._items[oldest] > 0)

    def record(
        self,
        batch: Batch,
        rows: Rows,
        verdict: NDArray[np.uint8],
        points: Points,
        *,
        commands: int,
    ) -> None:
        """Takes a batch of n rows: ``rows int32[n]`` of the stream table, ``verdict uint8[n]`` of the walk,
        ``points float64[n, d]`` as matched. O(min(n, capacity) d)."""
        n = len(rows)
        if n and self.first_offset is None:
            self.first_offset, self.first_seen_ms = int(batch.offsets[0]), int(batch.log_ts[0])
        kept = min(n, self.capacity)
        place = (self.count + n - kept) % self.capacity if self.capacity else 0
        self.count += n
        first = n - kept
        while first < n:  # at most twice: the ring's end may lie between
            last = min(n, first + self.capacity - place)
            here, there = slice(place, place + last - first), slice(first, last)
            self._stream[here] = rows[there]
            self._offsets[here] = batch.offsets[there]
            self._items[here] = batch.items[there]
            self._ts[here] = batch.ts[there]
            self._timed[here] = batch.timed[there]
            self._commands[here] = commands
            self._verdict[here] = verdict[there]
            self._points[here] = points[there]
            np.not_equal(batch.values[there], MISSING, out=self._given[here])
            refused = np.flatnonzero(kernels.refused(verdict[there]))
            if len(refused):
                self._points[place + refused] = batch.values[first + refused]
            first, place = last, 0

    def forget(self, rows: Sequence[int]) -> None:
        """These rows of the stream table are to be other streams'. O(capacity)."""
        if len(rows):
            self._stream[np.isin(self._stream, np.array(rows, np.int32))] = -1

    def reshape(self, kept: Sequence[int]) -> None:
        """New column i is old column ``kept[i]``, or missing where that is -1; as ``StreamTable.reshape``."""
        places = np.array(kept, np.int64)
        old = places >= 0
        points, given = self._points[:, places[old]], self._given[:, places[old]]
        self._points = np.full((self.capacity, len(places)), MISSING)
        self._given = np.zeros((self.capacity, len(places)), np.bool_)
        self._points[:, old], self._given[:, old] = points, given

    def of(self, row: int, limit: int) -> Seen:
        """The newest events of the stream at a row of the table, of its present life only. O(capacity)."""
        here = np.flatnonzero(self._stream == row)
        age = (self.count - 1 - here) % self.capacity if self.capacity else here
        here = here[np.argsort(age)]
        ends = np.flatnonzero(self._verdict[here] >= kernels.REMOVES)
        here = here[: ends[0] if len(ends) else len(here)][:limit]
        return Seen(
            self._offsets[here],
            self._items[here],
            self._ts[here],
            self._timed[here],
            self._commands[here],
            self._verdict[here],
            self._points[here],
            self._given[here],
        )
