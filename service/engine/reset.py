"""A partition begins anew: its streams are known, and what they were members of is not.

Each living stream gets a ``reset`` record, the first of a new life: whoever folds the log lets go of all that
the stream was in. Then it enters what it is in now, as if every query had just been registered, and that is
the reason given: waits begin, ``initial: ignore`` ignores.

Invariant: nothing that was remembered of pairs is used; points, times and ``ts`` of the streams are.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from service.engine.catalog import QueryChange
from service.engine.changes import apply_changes
from service.engine.effects import NO_RECORDS, BorderRecords, Cause, CommandEffects, Task
from service.engine.queryset import QuerySet
from service.engine.streams import StreamTable, next_numbers
from service.index.protocol import Rows
from service.model import Query


def begin_anew(
    task: Task,
    table: StreamTable,
    queries: QuerySet,
    registered: Iterable[Query],
    *,
    command: int,
    now_ms: int,
    max_ids: int,
) -> list[CommandEffects]:
    """Tells of the streams of one partition what they are in. ``queries`` is a set of their source without
    any query, ``registered`` what goes into it, ``table`` was restored with that empty set. ``command`` is
    the first command that the partition cannot be told of. O(streams x boxes) at most."""
    living = table.living()
    table.seq[living] = 0
    table.touch(living)
    effects = [_resets(task, table, Cause(command, "reset"), living, now_ms)]
    changes = [QueryChange(command, query.id, None, query, "registered") for query in registered]
    for one in apply_changes(queries, changes, [(task, table)], now_ms):
        enters = _by_stream(one.borders, table, queries, living, max_ids)
        points = table.point[enters.streams]
        cause = Cause(command, "registered")
        effects.append(CommandEffects(task, [cause], enters, points, one.aggregates))
    return effects


def _resets(task: Task, table: StreamTable, cause: Cause, living: Rows, now_ms: int) -> CommandEffects:
    count = len(living)
    records = NO_RECORDS._replace(
        causes=np.zeros(count, dtype=np.int32),
        streams=living,
        seq=next_numbers(table, living),
        ts=np.full(count, table.time.at(now_ms), dtype=np.int64),
        starts=np.zeros(count + 1, dtype=np.int64),
    )
    return CommandEffects(task, [cause], records, table.point[living])


def _by_stream(
    found: BorderRecords, table: StreamTable, queries: QuerySet, living: Rows, max_ids: int
) -> BorderRecords:
    """The enters of a stream together, at most ``max_ids`` of them in a record, by id; numbered anew."""
    order = np.lexsort((np.array(queries.ids(found.slots), dtype=np.str_), found.streams))
    streams, slots = found.streams[order], found.slots[order]
    begins = np.flatnonzero(np.append(True, streams[1:] != streams[:-1])[: len(streams)])
    place = np.arange(len(streams)) - np.repeat(begins, np.diff(np.append(begins, len(streams))))
    starts = np.flatnonzero(place % max_ids == 0)
    table.seq[living] = 1  # as after the resets
    return BorderRecords(
        causes=np.zeros(len(starts), dtype=np.int32),
        streams=streams[starts],
        seq=next_numbers(table, streams[starts]),
        ts=found.ts[starts],
        starts=np.append(starts, len(streams)).astype(np.int64),
        slots=slots,
        sides=found.sides[order],
    )
