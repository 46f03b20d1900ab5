"""Questions about streams and queries, answered from the engine as it stands.

Idea: what only the owner of the engine may read is gathered at once, by copies: a *case* is a condition with
points to hold against it. Holding them against it, and whatever else takes long, is left to the asker, on any
thread. Nothing here changes anything.

Not for: the questions that every event asks (``engine``).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import compress
from typing import NamedTuple

import numpy as np

from service.engine import kernels
from service.engine.categories import Dictionary, overlays
from service.engine.delta import IGNORED, WAITING
from service.engine.engine import Engine, StreamPlace, present, values
from service.engine.explain import Condition, Explanation, Values
from service.engine.queryset import QuerySet
from service.engine.rules import NEVER
from service.engine.trace import Seen, Verdict, verdict_of
from service.index.protocol import Points
from service.model import MISSING, Query, Region


class Case(NamedTuple):
    """A condition and m points: ``points float64[m, d]``, and their present attributes."""

    condition: Condition
    points: Points
    values: list[Values]

    def explanations(self) -> list[Explanation]:
        """One a point. Any thread. O(m * bounds)."""
        return self.condition.explain(self.points, self.values)


def case_of(
    queries: QuerySet, dictionaries: Mapping[str, Dictionary], region: Region, points: Points
) -> Case:
    """The points must have been made with these dictionaries. O(bounds + m d)."""
    attributes = queries.attributes
    condition = Condition(region, attributes, dictionaries)
    return Case(condition, points, [present(attributes, dictionaries, point) for point in points])


def present_of(queries: QuerySet, place: StreamPlace) -> dict[str, float | str]:
    """The present attributes of a stream."""
    return values(queries, place.table.point[place.row])


class Event(NamedTuple):
    """An event as the engine took it: where it came from, its time (ms; None without), what became of it,
    which attributes it had from earlier events, in the order of the source, and how far the command log
    was."""

    offset: int
    item: int
    ts: int | None
    verdict: Verdict
    carried: list[str]
    commands: int


def event_at(queries: QuerySet, seen: Seen, place: int) -> Event:
    """One event of a trace."""
    carried = ~seen.given[place] & (seen.points[place] != MISSING)
    return Event(
        offset=int(seen.offsets[place]),
        item=int(seen.items[place]),
        ts=int(seen.ts[place]) if seen.timed[place] else None,
        verdict=verdict_of(seen.verdicts[place]),
        carried=list(compress(queries.attributes, carried.tolist())),
        commands=int(seen.commands[place]),
    )


class Stand(NamedTuple):
    """How a stream stands to a query. ``member`` and ``ignored`` are None of a query that is not registered.

    ``waits_until``: when it becomes a member if it stays inside; ``barred_until``: before that it cannot
    become one, the largest int64 for never again; ``silent_since``: its newest accepted event was then,
    ``stale_after`` ago, and no wait ends before the next (ms of the partition's time, None where there is
    none).
    ``newest`` is its newest event, ``moved_by`` the one that gave it its last value, None where that is no
    longer remembered.
    """

    member: bool | None
    ignored: bool | None
    waits_until: int | None
    barred_until: int | None
    silent_since: int | None
    newest: Event | None
    moved_by: Event | None


def stand_of(engine: Engine, query: Query, place: StreamPlace, now_ms: int, *, registered: bool) -> Stand:
    """How it stands at a wall time. O(one stab, and the partition's trace)."""
    queries = engine.sets[query.source]
    trace = place.table.trace
    seen = trace.of(place.row, trace.capacity)
    moving = np.flatnonzero(seen.verdicts == kernels.MOVES)
    slot = queries.slot_of[query.id] if registered else -1
    one = np.array([slot], dtype=np.int32)
    memory = place.table.memory.get(np.array([place.row], dtype=np.int32), one)
    due, free_at = int(memory.due(queries.rules.of(one))[0]), int(memory.free_at[0])
    now, seen_at = place.table.time.at(now_ms), int(place.table.seen[place.row])
    silent = now - seen_at >= (queries.source.stale_after or NEVER)
    waits = registered and memory.state[0] == WAITING and due != NEVER
    return Stand(
        member=slot in engine.slots_of_member(query.source, place) if registered else None,
        ignored=bool(memory.state[0] == IGNORED) if registered else None,
        waits_until=due if waits and not silent else None,
        barred_until=free_at if registered and free_at > now else None,
        silent_since=seen_at if silent else None,
        newest=event_at(queries, seen, 0) if len(seen.verdicts) else None,
        moved_by=event_at(queries, seen, int(moving[0])) if len(moving) else None,
    )


class Told(NamedTuple):
    """The newest events of a stream, the newest first, each with its point in ``case``. Every event of the
    stream's present life from ``from_offset`` on is remembered (None: there was none since the partition was
    taken up); ``overwritten``: there were older ones since then."""

    events: list[Event]
    case: Case
    from_offset: int | None
    overwritten: bool


def told_of(queries: QuerySet, region: Region, place: StreamPlace, limit: int) -> Told:
    """O(the partition's trace + limit d + bounds)."""
    trace = place.table.trace
    seen = trace.of(place.row, limit)
    return Told(
        events=[event_at(queries, seen, i) for i in range(len(seen.verdicts))],
        case=case_of(queries, overlays(queries.dictionaries), region, np.ascontiguousarray(seen.points)),
        from_offset=trace.from_offset,
        overwritten=trace.overwritten,
    )
