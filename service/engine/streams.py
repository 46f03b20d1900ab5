"""The streams of one partition, in columns: what is remembered of each between events.

A *row* of the table is one living stream. Rows are reused, but never between two commits, and they are kept
across restarts, because the state log saves the table page by page (``state``).

Invariants: ``point[row]`` is the value that decides membership (NaN for no stream, -inf for a missing
attribute); ``carried[row]`` is the last known value of each attribute (used by ``missing: carry`` only);
``seq[row]`` is the number of the last border record of this life, as the default tenant counts, and
``others[row]`` that of each other tenant that was told anything; ``seen[row]`` is the partition's time when
its last event was accepted; ``recent`` has the ids of its last events, if the source has ``dedup``;
``memory`` has what is remembered of pairs with queries, ``aggregates`` what is counted of the members of
those that ask; ``owed``, with the column ``told``, what the streams have not been told yet. ``trace`` is for
people only: nothing that is written depends on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.engine.aggregates import PartitionAggregates
from service.engine.clauses import Filter
from service.engine.distinct import distinct
from service.engine.kernels import NO_TIME, UNTOUCHED
from service.engine.lastvalues import LastValues
from service.engine.memory import PairMemory
from service.engine.owed import Owed
from service.engine.recent import RecentIds
from service.engine.trace import Trace
from service.index.protocol import Hits, Points, Rows
from service.model import MISSING, Dedup
from service.tenants import DEFAULT_TENANT


def occurrences(keys: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """How many equal keys stand before each, ``int64[n]``. O(n log n)."""
    order = np.argsort(keys, kind="stable")
    grouped = keys[order]
    starts = np.flatnonzero(np.append(True, grouped[1:] != grouped[:-1])[: len(keys)])
    rank = np.empty(len(keys), dtype=np.int64)
    rank[order] = np.arange(len(keys)) - np.repeat(starts, np.diff(np.append(starts, len(keys))))
    return rank


class PartitionTime:
    """A partition's time: the largest ``ts`` seen plus the wall time since; the wall time before the first.

    The wall time of an event is the log's timestamp, so the time at each event follows from the log alone,
    however late it is read. In other words: the partition's time is ``ahead`` of the wall time by the most
    that any ``ts`` was ahead of its log's timestamp. It never goes back: where the first ``ts`` comes after
    messages without any, it goes on from the wall time, whether anybody has looked at the clock since or not.
    """

    __slots__ = ("ahead", "reached")

    def __init__(self, ahead: int | None = None, reached: int = NO_TIME) -> None:
        self.ahead = ahead
        self.reached = reached

    def at(self, now_ms: int) -> int:
        """The time at a wall time, ms, if no event comes before."""
        return max(self.reached, now_ms + (self.ahead or 0))

    def let_pass(self, now_ms: int) -> int:
        """Moves on to the time at a wall time and returns it: nothing that came before waits to be read.
        Before the first event nothing is moved, since that may be of long ago."""
        if self.reached != NO_TIME:
            self.reached = self.at(now_ms)
        return self.at(now_ms)

    def move(
        self, ts: NDArray[np.int64], timed: NDArray[np.bool_], log_ts: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Moves on by n events and returns the time at each, ``int64[n]``, rising."""
        if not len(ts):
            return ts
        known = NO_TIME if self.ahead is None else self.ahead
        most = np.maximum.accumulate(np.maximum(np.where(timed, ts - log_ts, NO_TIME), known))
        untimed = most == NO_TIME  # no ``ts`` so far
        wall = log_ts + np.where(untimed, 0, most)
        if self.ahead is None and not untimed[-1]:
            first = int(np.argmin(untimed))
            if first or self.reached != NO_TIME:
                wall[first] = max(wall[first], log_ts[first])
        clock: NDArray[np.int64] = np.maximum.accumulate(np.maximum(wall, self.reached))
        self.ahead = None if untimed[-1] else int(most[-1])
        self.reached = int(clock[-1])
        return clock


class StreamTable:
    """See the module. Capacity doubles; all columns have the same length."""

    def __init__(self, dims: int) -> None:
        self.time = PartitionTime()
        self.trace = Trace(dims, 0)
        #: streams that seem new may have had memberships that nobody knows of
        self.lost = False
        self.row_of: dict[str, int] = {}
        self.names: list[str] = []
        self.recent = RecentIds()
        self.memory = PairMemory()
        self.aggregates = PartitionAggregates()
        self.owed = Owed()
        self.known: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self.last_ts: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.seq: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.others: dict[int, dict[str, int]] = {}
        self.seen: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.told: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        #: no stream was seen before this, ms; it may lag behind
        self.oldest_seen = NO_TIME
        self.point: Points = np.zeros((0, dims))
        self.carried: Points = np.zeros((0, dims))
        self.scratch: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        self._free: list[int] = []
        self._given_up: list[int] = []
        self._dirty: list[Rows] = []
        self._last_values = LastValues()
        self._grow(16)

    def __len__(self) -> int:
        return len(self.row_of)

    def rows(self, stream_ids: Sequence[str | None]) -> Rows:
        """Rows of streams, ``int32[n]``; -1 for a stream that is not there (None always)."""
        get = self.row_of.get
        return np.array([get(id, -1) for id in stream_ids], dtype=np.int32)  # type: ignore[arg-type]

    def add(self, stream_id: str) -> int:
        """Reserves a row for a new stream: not yet known, nowhere."""
        if self._free:
            row = self._free.pop()
        else:
            row = len(self.names)
            self.names.append("")
            if row >= len(self.known):
                self._grow(2 * len(self.known))
        self.place(row, stream_id)
        return row

    def place(self, row: int, stream_id: str) -> None:
        """Gives a free row to a stream. ``told`` stays: whoever had the row before was paid when it went."""
        self.names[row] = stream_id
        self.row_of[stream_id] = row
        self.known[row] = False
        self.last_ts[row] = NO_TIME
        self.seq[row] = 0
        self.seen[row] = NO_TIME
        self.point[row] = np.nan
        self.carried[row] = MISSING

    def give_up(self, rows: Iterable[int]) -> None:
        """Forgets removed streams; their names stay readable until ``recycle``."""
        for row in rows:
            del self.row_of[self.names[row]]
            self.memory.forget(row)
            self.recent.forget(row)
            self.others.pop(row, None)
            self.known[row] = False
            self.point[row] = np.nan
            self._given_up.append(row)

    def recycle(self) -> None:
        """Frees the rows given up since the last call: what names them has been written."""
        self.trace.forget(self._given_up)
        for row in self._given_up:
            self.names[row] = ""
        self._free.extend(reversed(self._given_up))
        self._given_up.clear()

    def find_oldest(self) -> int:
        """When the stream that has been silent longest was seen, ms; the largest int64 without a stream.
        O(streams)."""
        self.oldest_seen = int(self.seen[self.known].min(initial=np.iinfo(np.int64).max))
        return self.oldest_seen

    def number(self, row: int, tenant: str) -> int:
        """The number of the last border record of a stream as a tenant counts; 0 if it was told nothing."""
        if tenant == DEFAULT_TENANT:
            return int(self.seq[row])
        return self.others.get(row, {}).get(tenant, 0)

    def touch(self, rows: Rows) -> None:
        """Marks rows whose state has changed: it must be saved with the next commit."""
        if len(rows):
            self.touch_in_place(rows)
            self._last_values.moved(rows)

    def touch_in_place(self, rows: Rows) -> None:
        """The same of streams that have neither come, gone nor moved."""
        self._dirty.append(rows)

    def take_dirty(self) -> Rows:
        """The rows touched since the last call, ascending, each once."""
        dirty = distinct(np.concatenate(self._dirty)) if self._dirty else np.zeros(0, dtype=np.int32)
        self._dirty.clear()
        return dirty.astype(np.int32, copy=False)

    def inside(self, regions: Filter) -> Hits:
        """All (row, number) of living streams whose last value is in a region, by rising row, no pair twice.
        See ``lastvalues``."""
        boxes = regions.boxes
        hits = self._last_values.inside(self.point, self.living(), boxes.owners, boxes.lo, boxes.hi)
        return regions.told(hits, self.point)

    def members_at(self, rows: Rows) -> Iterator[tuple[int, list[float]]]:
        """Rows with their points, one at a time, as ``aggregates`` counts them."""
        for row in rows.tolist():
            yield row, self.point[row].tolist()

    def living(self) -> Rows:
        """Rows of all living streams, ascending."""
        return np.flatnonzero(self.known).astype(np.int32)

    def values_of(self, column: int) -> NDArray[np.float64]:
        """All values of an attribute that are held, as last, carried or traced ones, each once. O(streams log
        streams)."""
        living = self.living()
        held = self.point[living, column], self.carried[living, column], self.trace.values_of(column)
        return np.unique(np.concatenate(held))

    def reshape(self, kept: Sequence[int]) -> None:
        """Rearranges the attributes: new column i is old column ``kept[i]``, or missing where that is -1."""
        for name in ("point", "carried"):
            old = getattr(self, name)
            new = np.full((len(old), len(kept)), MISSING)
            for column, place in enumerate(kept):
                if place >= 0:
                    new[:, column] = old[:, place]
            setattr(self, name, new)
        self.point[~self.known] = np.nan
        self.trace.reshape(kept)
        self._last_values.forget()
        self.touch(self.living())

    def carry(self, on: bool) -> None:
        """Begins or ends carrying: what is carried at first is the last value."""
        living = self.living()
        self.carried[living] = self.point[living] if on else MISSING
        self.touch(living)

    def dedup(self, before: Dedup | None, after: Dedup | None) -> None:
        """Remembers as many ids of each stream as its source wants from now on; none of another field."""
        same = before is not None and after is not None and before.by == after.by
        self.touch_in_place(self.recent.resize(after.last if after else 0, kept=same))

    def extend_to(self, rows: int) -> None:
        """Makes room for rows 0 to ``rows - 1``; used when the table is restored."""
        while len(self.known) < rows:
            self._grow(2 * len(self.known))
        self.names.extend([""] * (rows - len(self.names)))

    def finish_restore(self) -> None:
        """Derives what the columns imply, once all rows have been restored."""
        living = self.living().tolist()
        self.row_of = {self.names[row]: row for row in living}
        self.point[~self.known] = np.nan
        self._free = [row for row in range(len(self.names) - 1, -1, -1) if not self.known[row]]

    def _grow(self, capacity: int) -> None:
        more = capacity - len(self.known)
        dims = self.point.shape[1]
        self.recent.grow(more)
        self.known = np.concatenate([self.known, np.zeros(more, dtype=np.bool_)])
        self.last_ts = np.concatenate([self.last_ts, np.full(more, NO_TIME, dtype=np.int64)])
        self.seq = np.concatenate([self.seq, np.zeros(more, dtype=np.int64)])
        self.seen = np.concatenate([self.seen, np.full(more, NO_TIME, dtype=np.int64)])
        self.told = np.concatenate([self.told, np.zeros(more, dtype=np.int64)])
        self.point = np.concatenate([self.point, np.full((more, dims), np.nan)])
        self.carried = np.concatenate([self.carried, np.full((more, dims), MISSING)])
        self.scratch = np.concatenate([self.scratch, np.full(more, UNTOUCHED, dtype=np.int32)])
