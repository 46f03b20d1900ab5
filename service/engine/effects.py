"""What goes into the engine and what comes out of it, in columns."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.engine.aggregates import AggregateRecord
from service.engine.categories import Dictionary
from service.index.protocol import Hits, Points, Rows, Slots
from service.model import Reason


class Task(NamedTuple):
    """One event partition: the unit of state, time and position."""

    topic: str
    partition: int


class Batch(NamedTuple):
    """Decoded messages of one partition in log order, n rows.

    ``offsets int64[n]`` and ``items int32[n]`` say where a row came from (message, place in its array);
    ``log_ts int64[n]`` is the log's timestamp, ms. ``removal bool[n]`` marks tombstones. ``ts int64[n]``
    holds only where ``timed bool[n]``. ``values float64[n, d]`` in the source's attribute order, missing
    -inf. ``event_ids``: by row, None where there is none; None for all of a source without ``dedup``.
    """

    offsets: NDArray[np.int64]
    items: NDArray[np.int32]
    log_ts: NDArray[np.int64]
    stream_ids: Sequence[str]
    removal: NDArray[np.bool_]
    ts: NDArray[np.int64]
    timed: NDArray[np.bool_]
    values: Points
    event_ids: Sequence[str | None] | None = None

    def take(self, chosen: NDArray[np.int64]) -> Batch:
        """The chosen rows, in that order."""
        ids, event_ids = self.stream_ids, self.event_ids
        return Batch(
            self.offsets[chosen],
            self.items[chosen],
            self.log_ts[chosen],
            [ids[row] for row in chosen.tolist()],
            self.removal[chosen],
            self.ts[chosen],
            self.timed[chosen],
            np.ascontiguousarray(self.values[chosen]),
            None if event_ids is None else [event_ids[row] for row in chosen.tolist()],
        )


class Refused(NamedTuple):
    """One event that was not accepted. ``item`` is its place in the message."""

    offset: int
    item: int
    stream_id: str | None
    reason: Reason
    detail: str


Sides = NDArray[np.uint8]
LEAVE, ENTER, CROSS = range(3)


class BorderRecords(NamedTuple):
    """r records over p (slot, side) pairs.

    ``causes int32[r]``: the row of the batch, or the place of the command in its group, ascending.
    ``streams int32[r]``: row in the stream table. ``seq``, ``ts`` (ms): ``int64[r]``. Record i holds the
    pairs ``starts[i]:starts[i + 1]``, by side: LEAVE, ENTER, CROSS. ``tenants int32[r]``: whose each record
    is, by the numbers of the query set; None: all of the default tenant.
    """

    causes: Rows
    streams: Rows
    seq: NDArray[np.int64]
    ts: NDArray[np.int64]
    starts: NDArray[np.int64]
    slots: Slots
    sides: Sides
    tenants: Rows | None = None

    @property
    def sides_by_tenant(self) -> list[tuple[int, Sides]]:
        """The sides of all pairs, by the number of their tenant."""
        if self.tenants is None:
            return [(0, self.sides)]
        return _parted(np.repeat(self.tenants, np.diff(self.starts)), self.sides)


def _parted(tenants: Rows, sides: Sides) -> list[tuple[int, Sides]]:
    return [(tenant, sides[tenants == tenant]) for tenant in np.unique(tenants).tolist()]


def _none(dtype: type) -> NDArray[Any]:
    return np.empty(0, dtype)


NO_RECORDS = BorderRecords(
    causes=_none(np.int32),
    streams=_none(np.int32),
    seq=_none(np.int64),
    ts=_none(np.int64),
    starts=np.zeros(1, np.int64),
    slots=_none(np.int32),
    sides=_none(np.uint8),
)


class EventEffects(NamedTuple):
    """What one batch of events caused. ``points float64[n, d]`` are the values that were matched (carried
    ones included; of a removed stream its last one); ``late bool[n]`` marks rows that matched without
    touching membership, ``removed bool[n]`` tombstones of living streams. ``older`` counts the rows that were
    late and not refused, whatever the policy made of them; ``carried`` the values that were carried."""

    task: Task
    batch: Batch
    refused: Sequence[Refused]
    matches: Hits
    late: NDArray[np.bool_]
    removed: NDArray[np.bool_]
    points: Points
    borders: BorderRecords
    aggregates: Sequence[AggregateRecord] = ()
    older: int = 0
    carried: int = 0


class Cause(NamedTuple):
    """Of a record that no event caused: offset of the command in the log, None where it was time; reason."""

    command: int | None
    reason: str


class CommandEffects(NamedTuple):
    """What time, or of aggregates a group of commands, caused in one partition; ``borders.causes`` index
    ``causes``.

    ``points float64[r, d]``: the value of the stream of each record."""

    task: Task
    causes: Sequence[Cause]
    borders: BorderRecords
    points: Points
    aggregates: Sequence[AggregateRecord] = ()

    @property
    def sides_by_tenant(self) -> list[tuple[int, Sides]]:
        """Of all pairs, by the number of their tenant."""
        return self.borders.sides_by_tenant


class Change(NamedTuple):
    """What records say of the change of a query: offset of the command in the log, reason, ``ts`` (ms), id,
    and the attributes that the query selected after it."""

    command: int
    reason: str
    ts: int
    query: str
    select: tuple[str, ...]


class Paid(NamedTuple):
    """r border records of changes of queries that streams of one partition were owed, each of one id.

    ``places int32[r]``: which of ``changes``; ``streams int32[r]``: row in the stream table; ``seq
    int64[r]``; ``sides``: LEAVE or ENTER. ``points float64[r, d]``: the value of each stream, over these
    attributes. ``tenants``: as ``BorderRecords`` has them.
    """

    task: Task
    changes: Sequence[Change]
    places: Rows
    streams: Rows
    seq: NDArray[np.int64]
    sides: Sides
    points: Points
    attributes: Sequence[str]
    dictionaries: Mapping[str, Dictionary]
    tenants: Rows | None
    aggregates: Sequence[AggregateRecord] = ()

    @property
    def sides_by_tenant(self) -> list[tuple[int, Sides]]:
        return [(0, self.sides)] if self.tenants is None else _parted(self.tenants, self.sides)


Effects = EventEffects | CommandEffects | Paid


def only_aggregates(task: Task, points: Points, told: Sequence[AggregateRecord]) -> CommandEffects:
    """Effects without a border; ``points`` says over which attributes."""
    return CommandEffects(task, [], NO_RECORDS, points[:0], told)


def with_refused(effects: Sequence[Effects], refused: Sequence[Refused]) -> Iterator[Effects]:
    """The effects of one batch, in order, with what was refused before it came to the engine: each where it
    stood among the events. There is at least one part of events."""
    parts = [(place, one) for place, one in enumerate(effects) if isinstance(one, EventEffects)]
    ends = [(int(part.batch.offsets[0]), int(part.batch.items[0])) for _, part in parts[1:]]
    mine: dict[int, list[Refused]] = {}
    for one in refused:
        mine.setdefault(parts[bisect_right(ends, (one.offset, one.item))][0], []).append(one)
    for place, part in enumerate(effects):
        if place in mine and isinstance(part, EventEffects):
            part = part._replace(refused=[*mine[place], *part.refused])
        yield part
