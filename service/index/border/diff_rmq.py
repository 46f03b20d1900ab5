"""DiffRMQ: borders as the difference of two answers of a region index. The BMQ-Index baseline.

Idea (BMQ-Index paper, Sect. 5): an index that knows which queries hold a value, CEI or an IS-list, becomes
one for borders. The queries that held the stream's last value are compared with those that hold the new one;
what is in one set only was entered or left. The work follows the size of the two sets, however few queries
differ: consecutive values lie close together, so nearly all queries are in both.

The paper's face is ``move``: the *stream table* keeps each stream's last value and its last answer, so a new
value costs one search, not two. A change of the queries makes the answers kept stale; a stream's last value
is then searched once more, with its next move. Its measure is the *search efficiency*: the size of the final
result over that of the intermediate one, which is the matching queries of both values.

Exact on float64 as the index within is: what is compared are its answers.

Invariant: the answer kept of a stream is what its last value is in, by the queries of its version.

Not for: ``move`` from several threads. As a ``BoxIndex`` it is the index within, and as safe.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from service.index.answers import as_points, borders_by_stab
from service.index.kernel import kernel, reads, writes
from service.index.protocol import Borders, Bounds, BoxIndex, Hits, Points, Slots

Streams = NDArray[np.int32]

_LAST = np.iinfo(np.int64).max
_FREE, _ACCESSED = 0, 1


class _Answers(NamedTuple):
    """Of every stream, the slots that its last value is in: ``slots[first .. first + size]``, rising.

    ``state``: where the free part of ``slots`` begins, and how many slots were compared so far.
    """

    first: NDArray[np.int64]
    size: NDArray[np.int64]
    room: NDArray[np.int64]
    slots: Slots
    state: NDArray[np.int64]


class DiffRMQ:
    """A ``BoxIndex`` over another one, and a stream table. ``accessed`` and ``reported`` are the sizes of the
    intermediate and the final results of all moves."""

    def __init__(self, index: BoxIndex) -> None:
        self._index = index
        self._version = 0
        self._values = np.empty((0, index.dims))
        self._seen = np.empty(0, np.int64)
        self._answers = _answers(0, 0)
        self.dims = index.dims
        self.accessed = 0
        self.reported = 0

    def __len__(self) -> int:
        return len(self._index)

    @property
    def nbytes(self) -> int:
        table = sum(column.nbytes for column in (self._values, self._seen, *self._answers))
        return self._index.nbytes + table

    @property
    def search_efficiency(self) -> float:
        """Reported over accessed queries of all moves (Sect. 5.2.1), 1 at best; 1 too when nothing was."""
        return self.reported / self.accessed if self.accessed else 1.0

    def insert(self, slots: Slots, lo: Bounds, hi: Bounds) -> None:
        """As the index within."""
        self._index.insert(slots, lo, hi)
        self._version += 1

    def remove(self, slots: Slots) -> None:
        """As the index within."""
        self._index.remove(slots)
        self._version += 1

    def stab(self, points: Points) -> Hits:
        """As the index within."""
        return self._index.stab(points)

    def borders(self, before: Points, after: Points) -> Borders:
        """Two stabs of the index within and their difference."""
        return borders_by_stab(self._index, before, after)

    def move(self, streams: Streams, points: Points) -> Borders:
        """The borders that streams cross, from their last values to ``points``, which become their last.

        ``streams``: ``int32[m]``, dense numbers from 0, any of them several times: their values come in this
        order. ``points``: ``float64[m, dims]``. A stream that was not seen before comes from nowhere. Rows of
        the answer are positions in ``streams``. TypeError on another dtype, ValueError on a negative stream
        or another shape. O(stab + accessed).
        """
        points = as_points(points, self.dims)
        if streams.dtype != np.int32:
            raise TypeError(f"streams must be int32, not {streams.dtype}")
        if streams.shape != (len(points),):
            raise ValueError(f"streams must have the shape ({len(points)},), not {streams.shape}")
        if len(streams) == 0:
            return borders_by_stab(self._index, points, points)
        if streams.min() < 0:
            raise ValueError(f"stream {streams.min()} is negative")
        self._make_known(int(streams.max()) + 1)
        self._refresh(np.unique(streams))
        accessed = self._answers.state[_ACCESSED]
        borders = self._exchange(streams, self._risen(points))
        self.accessed += int(self._answers.state[_ACCESSED] - accessed)
        self.reported += len(borders.rows)
        self._values[streams] = points
        self._seen[streams] = self._version
        return borders

    def check(self) -> None:
        self._index.check()
        first, size, room, slots, state = self._answers
        assert (size <= room).all() and (first + room <= state[_FREE]).all() and state[_FREE] <= len(slots)
        current = np.flatnonzero(self._seen == self._version)
        wanted = self._risen(self._values[current])
        kept = [slots[first[stream] : first[stream] + size[stream]] for stream in current]
        assert np.array_equal(np.concatenate([slots[:0], *kept]), wanted.slots)
        assert np.array_equal(np.bincount(wanted.rows, minlength=len(current)), size[current])

    def _make_known(self, streams: int) -> None:
        """Lines of the stream table for so many streams; a new one is nowhere."""
        known = len(self._seen)
        if streams <= known:
            return
        length = max(streams, 2 * known)
        values, seen = np.full((length, self.dims), np.nan), np.full(length, -1)
        values[:known], seen[:known] = self._values, self._seen
        grown = _answers(length, 0)._replace(slots=self._answers.slots, state=self._answers.state)
        for new, old in zip(grown[:3], self._answers[:3], strict=True):
            new[:known] = old
        self._values, self._seen, self._answers = values, seen, grown

    def _refresh(self, streams: NDArray[np.int32]) -> None:
        """Searches the last values of those whose answers are older than the queries."""
        stale = streams[(self._seen[streams] >= 0) & (self._seen[streams] != self._version)]
        if len(stale):
            self._exchange(stale, self._risen(self._values[stale]))

    def _risen(self, points: Points) -> Hits:
        """The hits of the index within, by row and, which it need not do, by slot. O(h log h) at most."""
        rows, slots = self._index.stab(points)
        if ((slots[1:] < slots[:-1]) & (rows[1:] == rows[:-1])).any():
            order = np.lexsort((slots, rows))
            return Hits(rows[order], slots[order])
        return Hits(rows, slots)

    def _exchange(self, streams: Streams, hits: Hits) -> Borders:
        """Keeps new answers in place of the old ones and returns how they differ."""
        self._make_room(2 * len(hits.slots))
        # A stream that comes again compares with what it just found.
        most = int(self._answers.size[streams].sum()) + 2 * len(hits.slots)
        rows, slots, entered = np.empty(most, np.int32), np.empty(most, np.int32), np.empty(most, np.bool_)
        count = exchange(streams, hits.rows, hits.slots, self._answers, rows, slots, entered)
        return Borders(rows[:count], slots[:count], entered[:count])

    def _make_room(self, slots: int) -> None:
        """Room for so many more slots behind the answers, which move together if there is too little."""
        old = self._answers
        if old.state[_FREE] + slots <= len(old.slots):
            return
        kept = int(old.size.sum())
        fresh = _answers(len(old.first), 2 * (kept + slots))
        fresh.first[:] = np.cumsum(old.size) - old.size
        fresh.size[:] = fresh.room[:] = old.size
        fresh.state[:] = kept, old.state[_ACCESSED]
        stays = np.repeat(old.first - fresh.first, old.size) + np.arange(kept)
        fresh.slots[:kept] = old.slots[stays]
        self._answers = fresh


def _answers(streams: int, slots: int) -> _Answers:
    first, size, room = np.zeros((3, streams), np.int64)
    return _Answers(first, size, room, np.empty(slots, np.int32), np.zeros(2, np.int64))


_ANSWERS = types.NamedTuple(  # type: ignore[no-untyped-call]
    (
        writes(types.int64, 1),
        writes(types.int64, 1),
        writes(types.int64, 1),
        writes(types.int32, 1),
        writes(types.int64, 1),
    ),
    _Answers,
)


@kernel(
    types.int64(
        reads(types.int32, 1),
        reads(types.int32, 1),
        reads(types.int32, 1),
        _ANSWERS,
        writes(types.int32, 1),
        writes(types.int32, 1),
        writes(types.boolean, 1),
    )
)
def exchange(streams, rows, slots, answers, moved_rows, moved_slots, entered):  # type: ignore[no-untyped-def]
    """Merges, row by row, the slots kept of a stream with those found now, and keeps the latter.

    ``streams``: ``int32[m]``; ``rows``, ``slots``: the hits of their new values. ``answers.slots`` has room
    for twice the hits. The outputs are as long as all sets compared; returns how many were written. O(both).
    """
    first, size, room, kept, state = answers
    written = 0
    b = 0
    for row in range(len(streams)):
        stream = streams[row]
        start = b
        a, stop = first[stream], first[stream] + size[stream]
        while a < stop or (b < len(rows) and rows[b] == row):
            was = np.int64(kept[a]) if a < stop else _LAST
            now = np.int64(slots[b]) if b < len(rows) and rows[b] == row else _LAST
            if was != now:
                moved_rows[written] = row
                moved_slots[written] = min(was, now)
                entered[written] = now < was
                written += 1
            if was <= now:
                a += 1
            if now <= was:
                b += 1
        state[_ACCESSED] += size[stream] + b - start
        size[stream] = b - start
        if size[stream] > room[stream]:
            room[stream] = size[stream] + size[stream] // 2
            first[stream] = state[_FREE]
            state[_FREE] += room[stream]
        for i in range(b - start):
            kept[first[stream] + i] = slots[start + i]
    return written
