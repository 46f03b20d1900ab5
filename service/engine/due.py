"""What time alone does to the streams of one partition: waits that end, streams silent for too long.

A partition's time moves by its events and by the wall clock (``streams.PartitionTime``). Whatever is due by
then is done first. So a batch of events is cut where something falls due, which is nowhere unless queries
wait or streams can expire; a batch and its events one by one give the same.

A stream whose time to live ends first is removed first, and waits for nothing then; in the same millisecond
its waits end first. A wait of a stream that has been silent for ``stale_after`` does not end: it begins anew
with the next event (``crossings``).

Aggregates that are due move nobody and cut nothing: they are told between the changes that they follow.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import groupby

import numpy as np

from service.engine import kernels
from service.engine.aggregates import Move
from service.engine.crossings import Walked, changed_pairs, moves_of
from service.engine.delta import MEMBER, WAITING, Memory
from service.engine.effects import (
    ENTER,
    Batch,
    BorderRecords,
    Cause,
    CommandEffects,
    Effects,
    Paid,
    Task,
    only_aggregates,
)
from service.engine.events import apply_events, number_borders
from service.engine.numbers import next_numbers, starts_of
from service.engine.payments import pay_streams
from service.engine.queryset import KIND_BIT, QuerySet
from service.engine.rules import NEVER
from service.engine.streams import StreamTable
from service.model import Kind

_ENTER = KIND_BIT[Kind.ENTER]


def apply_in_time(
    task: Task,
    table: StreamTable,
    queries: QuerySet,
    batch: Batch,
    *,
    max_streams: int,
    max_ids: int,
    commands: int,
) -> list[Effects]:
    """What a batch of events and the time that it lets pass do, in order. What the streams of the batch are
    owed comes first."""
    effects: list[Effects] = []
    if table.owed:
        effects += pay_streams(task, table, queries, table.rows(batch.stream_ids))
    limits = {"max_streams": max_streams, "max_ids": max_ids, "commands": commands}
    clock = table.time.move(batch.ts, batch.timed, batch.log_ts)
    shortest = min(queries.rules.shortest_wait, queries.source.stream_ttl or NEVER)
    if queries.rules.shortest_wait != NEVER:  # no wait may begin and a silence end in one part
        shortest = min(shortest, queries.source.stale_after or NEVER)
    # What is remembered of a stream ends with it, and so do its numbers with other tenants: nothing of its
    # next life may lie in the same part.
    cuts = queries.rules.store or queries.tenants.are_several
    lives = (np.flatnonzero(batch.removal) + 1).tolist() if cuts else []
    lives.append(len(clock))
    start = 0
    while start < len(clock):
        now = int(clock[start])
        effects += fire(task, table, queries, now, max_ids=max_ids)
        end = lives[bisect_right(lives, start)]
        if shortest != NEVER:
            due = min(next_due(table, queries), now + shortest)
            end = min(end, int(np.searchsorted(clock, due)))
        part = batch if end - start == len(clock) else batch.take(np.arange(start, end))
        effects.append(apply_events(task, table, queries, part, clock[start:end], **limits))
        start = end
    return effects or [apply_events(task, table, queries, batch, clock, **limits)]


def next_due(table: StreamTable, queries: QuerySet) -> int:
    """Nothing that moves a stream is due before this, ms; NEVER if nothing is. O(1)."""
    ttl = queries.source.stream_ttl
    silent = NEVER if ttl is None or table.oldest_seen > NEVER - ttl else table.oldest_seen + ttl
    return min(table.memory.next_end, silent)


def fire(
    task: Task, table: StreamTable, queries: QuerySet, up_to: int, *, max_ids: int
) -> list[CommandEffects | Paid]:
    """Does what is due up to a time, ms. O(what is due); now and then O(streams), where they can expire."""
    effects: list[CommandEffects | Paid] = []
    changes: _Changes = []
    if next_due(table, queries) <= up_to:
        effects += _end_waits(task, table, queries, up_to, changes, max_ids)
        effects += _expire(task, table, queries, up_to, changes, max_ids)
    if table.aggregates.next_due <= up_to or changes:
        changes.sort(key=_when)
        grouped = ((at, [move for _, move in moves]) for at, moves in groupby(changes, key=_when))
        told = table.aggregates.follow(grouped, up_to)
        if told:
            effects.append(only_aggregates(task, table.point, told))
    return effects


_Changes = list[tuple[int, Move]]
"""What the aggregates follow of what time does: moves with their times, ms."""


def _when(change: tuple[int, Move]) -> int:
    return change[0]


def _end_waits(
    task: Task, table: StreamTable, queries: QuerySet, up_to: int, changes: _Changes, max_ids: int
) -> list[CommandEffects | Paid]:
    """Those who have waited long enough become members; cooldowns that are over are forgotten. What ends for
    one stream, tenant and reason at one time is told together."""
    ends = list(dict.fromkeys(table.memory.ended(up_to, queries.rules)))
    if not ends:
        return []
    columns = np.array(ends, dtype=np.int64)
    due, rows, slots = columns[:, 0], columns[:, 1].astype(np.int32), columns[:, 2].astype(np.int32)
    memory, rule = table.memory.get(rows, slots), queries.rules.of(slots)
    waits = memory.state == WAITING
    silence = due - table.seen[rows]
    silent = (silence > (queries.source.stream_ttl or NEVER)) | (
        silence >= (queries.source.stale_after or NEVER)
    )
    over = (memory.due(rule) == due) & ~(waits & silent)
    enters = over & waits
    after = Memory(
        np.where(enters, MEMBER, memory.state).astype(np.uint8),
        np.where(enters, 0, memory.since),
        np.where(over, 0, memory.free_at),
    )
    table.touch(rows[table.memory.put(rows, slots, memory, after, rule)])
    for i in np.flatnonzero(enters & table.aggregates.slots.among(slots)).tolist():
        changes.append((ends[i].due, Move(ends[i].row, table.point[rows[i]].tolist(), (), (ends[i].slot,))))
    told = np.flatnonzero(enters & ((queries.kinds[slots] & _ENTER) != 0))
    if not len(told):
        return []
    cooled = due > memory.since + rule.dwell
    ranks = queries.tenants.ranks_of(slots)
    names = np.array([queries.names[slot] for slot in slots[told].tolist()])
    told = told[np.lexsort((names, cooled[told], ranks[told], rows[told], due[told]))]
    ends_together = np.column_stack([due, rows, ranks, cooled])[told]
    first = np.flatnonzero(np.append(True, (ends_together[1:] != ends_together[:-1]).any(axis=1)))
    ids = np.diff(np.append(first, len(told)))
    records = -(-ids // max_ids)
    of_record = told[np.repeat(first, records)]
    streams, tenants = rows[of_record], queries.tenants.of(slots[of_record])
    paid = pay_streams(task, table, queries, streams)
    entered = CommandEffects(
        task,
        [Cause(None, "dwell"), Cause(None, "cooldown")],
        BorderRecords(
            causes=cooled[of_record].astype(np.int32),
            streams=streams,
            seq=next_numbers(table, queries, streams, tenants),
            ts=due[of_record],
            starts=starts_of(ids, records, np.zeros_like(ids), max_ids),
            slots=slots[told],
            sides=np.full(len(told), ENTER, dtype=np.uint8),
            tenants=tenants,
        ),
        table.point[streams],
    )
    return [*paid, entered]


def _expire(
    task: Task, table: StreamTable, queries: QuerySet, up_to: int, changes: _Changes, max_ids: int
) -> list[CommandEffects | Paid]:
    """Streams that have been silent for their time to live are removed, each from all that it is in."""
    ttl = queries.source.stream_ttl
    if ttl is None or table.find_oldest() > up_to - ttl:
        return []
    rows = np.flatnonzero(table.known & (table.seen <= up_to - ttl)).astype(np.int32)
    rows = rows[np.argsort(table.seen[rows], kind="stable")]
    paid = pay_streams(task, table, queries, rows)
    n = len(rows)
    due = table.seen[rows] + ttl
    points = np.concatenate([np.full((n, table.point.shape[1]), np.nan), table.point[rows]])
    walked = Walked(
        rows,
        due,
        points,
        verdict=np.full(n, kernels.REMOVES, dtype=np.uint8),
        before=np.arange(n, 2 * n, dtype=np.int32),
        first=np.zeros(n, dtype=np.bool_),
        silent=np.zeros(n, dtype=np.bool_),
    )
    changed = changed_pairs(table, queries, walked, queries.hits(points))
    borders = number_borders(table, queries, walked, changed, due, max_ids)
    changes += [(at, move) for at, moves in moves_of(table, walked, changed) for move in moves]
    table.touch(rows)
    table.give_up(rows.tolist())
    table.find_oldest()
    told = borders.causes
    removed = CommandEffects(
        task,
        [Cause(None, "stream_removed")],
        borders._replace(causes=np.zeros(len(told), dtype=np.int32)),
        points[n:][told],
    )
    return [*paid, removed]
