"""A partition begins anew: its streams are known, and what they were members of is not.

Each living stream gets a ``reset`` record, the first of a new life, for every tenant of the source: whoever
folds the log lets go of all that the stream was in. Then it enters what it is in now, as if every query had
just been registered, and that is the reason given: waits begin, ``initial: ignore`` ignores.

Invariant: nothing that was remembered of pairs is used; points, times and ``ts`` of the streams are.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from service.engine.catalog import QueryChange
from service.engine.changes import apply_changes
from service.engine.effects import ENTER, NO_RECORDS, BorderRecords, Cause, CommandEffects, Task
from service.engine.numbers import next_numbers
from service.engine.owed import Entries
from service.engine.queryset import QuerySet
from service.engine.streams import StreamTable, occurrences
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
    registered = list(registered)
    for query in registered:
        queries.tenants.number(query.tenant)
    living = table.living()
    table.seq[living] = 0
    table.others.clear()
    table.touch(living)
    effects = [_resets(task, table, queries, Cause(command, "reset"), living, now_ms)]
    changes = [QueryChange(command, query.id, None, query, "registered") for query in registered]
    told = apply_changes(queries, changes, [(task, table)], now_ms)
    owed = table.owed.portion(table.told, table.owed.records)
    if len(owed.rows):
        enters = _by_stream(owed, table, queries, max_ids)
        cause = Cause(command, "registered")
        effects.append(CommandEffects(task, [cause], enters, table.point[enters.streams]))
    return [*effects, *told]


def _resets(
    task: Task, table: StreamTable, queries: QuerySet, cause: Cause, living: Rows, now_ms: int
) -> CommandEffects:
    streams = np.repeat(living, len(queries.tenants))
    tenants = np.tile(queries.tenants.in_order(), len(living)) if queries.tenants.are_several else None
    count = len(streams)
    records = NO_RECORDS._replace(
        causes=np.zeros(count, dtype=np.int32),
        streams=streams,
        seq=next_numbers(table, queries, streams, tenants),
        ts=np.full(count, table.time.at(now_ms), dtype=np.int64),
        starts=np.zeros(count + 1, dtype=np.int64),
        tenants=tenants,
    )
    return CommandEffects(task, [cause], records, table.point[streams])


def _by_stream(owed: Entries, table: StreamTable, queries: QuerySet, max_ids: int) -> BorderRecords:
    """The enters of a stream and tenant together, at most ``max_ids`` of them in a record, by id."""
    slots = np.array([queries.slot_of[change.query] for change in owed.changes], dtype=np.int32)[owed.places]
    ids, ranks = np.array(queries.ids(slots)), queries.tenants.ranks_of(slots)
    order = np.lexsort((ids, ranks, owed.rows))
    streams, slots = owed.rows[order], slots[order]
    groups = streams.astype(np.int64) * len(queries.tenants) + ranks[order]
    place = occurrences(groups)
    starts = np.flatnonzero(place % max_ids == 0)
    tenants = queries.tenants.of(slots[starts])
    return BorderRecords(
        causes=np.zeros(len(starts), dtype=np.int32),
        streams=streams[starts],
        seq=next_numbers(table, queries, streams[starts], tenants),
        ts=np.full(len(starts), owed.changes[0].ts, dtype=np.int64),
        starts=np.append(starts, len(streams)).astype(np.int64),
        slots=slots,
        sides=np.full(len(streams), ENTER, dtype=np.uint8),
        tenants=tenants,
    )
