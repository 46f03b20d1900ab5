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
from service.engine.effects import ENTER, NO_RECORDS, BorderRecords, Cause, CommandEffects, Task
from service.engine.owed import Entries
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
    told = apply_changes(queries, changes, [(task, table)], now_ms)
    owed = table.owed.portion(table.told, table.owed.records)
    if len(owed.rows):
        enters = _by_stream(owed, table, queries, max_ids)
        cause = Cause(command, "registered")
        effects.append(CommandEffects(task, [cause], enters, table.point[enters.streams]))
    return [*effects, *told]


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


def _by_stream(owed: Entries, table: StreamTable, queries: QuerySet, max_ids: int) -> BorderRecords:
    """The enters of a stream together, at most ``max_ids`` of them in a record, by id."""
    ids = np.array([change.query for change in owed.changes], dtype=np.str_)[owed.places]
    order = np.lexsort((ids, owed.rows))
    streams, ids = owed.rows[order], ids[order]
    begins = np.flatnonzero(np.append(True, streams[1:] != streams[:-1])[: len(streams)])
    place = np.arange(len(streams)) - np.repeat(begins, np.diff(np.append(begins, len(streams))))
    starts = np.flatnonzero(place % max_ids == 0)
    return BorderRecords(
        causes=np.zeros(len(starts), dtype=np.int32),
        streams=streams[starts],
        seq=next_numbers(table, streams[starts]),
        ts=np.full(len(starts), owed.changes[0].ts, dtype=np.int64),
        starts=np.append(starts, len(streams)).astype(np.int64),
        slots=np.array([queries.slot_of[id] for id in ids.tolist()], dtype=np.int32),
        sides=np.full(len(streams), ENTER, dtype=np.uint8),
    )
