"""What time alone does to the streams of one partition: waits that end, streams silent for too long.

A partition's time moves by its events and by the wall clock (``streams.PartitionTime``). Whatever is due by
then is done first. So a batch of events is cut where something falls due, which is nowhere unless queries
wait or streams can expire; a batch and its events one by one give the same.

A stream whose time to live ends first is removed first, and waits for nothing then; in the same millisecond
its waits end first. A wait of a stream that has been silent for ``stale_after`` does not end: it begins anew
with the next event (``crossings.restart_waits``).
"""

from __future__ import annotations

import numpy as np

from service.engine import kernels
from service.engine.crossings import Walked, changed_pairs
from service.engine.delta import MEMBER, WAITING, Memory
from service.engine.effects import (
    ENTER,
    Batch,
    BorderRecords,
    Cause,
    CommandEffects,
    EventEffects,
    Task,
)
from service.engine.events import apply_events, number_borders
from service.engine.queryset import KIND_BIT, QuerySet
from service.engine.rules import NEVER
from service.engine.streams import StreamTable, next_numbers
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
) -> list[EventEffects | CommandEffects]:
    """What a batch of events and the time that it lets pass do, in order."""
    effects: list[EventEffects | CommandEffects] = []
    limits = {"max_streams": max_streams, "max_ids": max_ids}
    clock = table.time.move(batch.ts, batch.timed, batch.log_ts)
    shortest = min(queries.rules.shortest_wait, queries.source.stream_ttl or NEVER)
    # What is remembered of a stream ends with it: nothing of its next life may lie in the same part.
    lives = np.append(np.flatnonzero(batch.removal) + 1 if queries.rules.store else [], len(clock)).astype(
        int
    )
    start = 0
    while start < len(clock):
        now = int(clock[start])
        effects += fire(task, table, queries, now, max_ids=max_ids)
        end = int(lives[np.searchsorted(lives, start, side="right")])
        if shortest != NEVER:
            due = min(next_due(table, queries), now + shortest)
            end = min(end, int(np.searchsorted(clock, due)))
        part = batch if end - start == len(clock) else batch.take(np.arange(start, end))
        effects.append(apply_events(task, table, queries, part, clock[start:end], **limits))
        start = end
    return effects or [apply_events(task, table, queries, batch, clock, **limits)]


def next_due(table: StreamTable, queries: QuerySet) -> int:
    """Nothing is due before this, ms; NEVER if nothing is. O(1)."""
    ttl = queries.source.stream_ttl
    silent = NEVER if ttl is None or table.oldest_seen > NEVER - ttl else table.oldest_seen + ttl
    return min(table.memory.next_end, silent)


def fire(
    task: Task, table: StreamTable, queries: QuerySet, up_to: int, *, max_ids: int
) -> list[CommandEffects]:
    """Does what is due up to a time, ms. O(what is due); now and then O(streams), where they can expire."""
    if next_due(table, queries) > up_to:
        return []
    effects = [_end_waits(task, table, queries, up_to), _expire(task, table, queries, up_to, max_ids)]
    return [one for one in effects if one is not None]


def _end_waits(task: Task, table: StreamTable, queries: QuerySet, up_to: int) -> CommandEffects | None:
    """Those who have waited long enough become members."""
    ttl, stale_after = queries.source.stream_ttl or NEVER, queries.source.stale_after or NEVER
    ended: list[tuple[int, int, int, bool]] = []
    for due, row, slot in table.memory.ended(up_to, queries.rules):
        entry = table.memory.of_row(row).get(slot)
        if entry is None or entry[0] != WAITING:
            continue
        one = np.array([slot], dtype=np.int32)
        rule = queries.rules.of(one)
        memory = Memory(*(np.array([value]) for value in entry))
        silent_for = due - int(table.seen[row])
        if int(memory.due(rule)[0]) != due or silent_for > ttl or silent_for >= stale_after:
            continue
        after = (MEMBER, 0, entry[2] if rule.once[0] else 0)
        table.memory.set(row, slot, after)
        ended.append((due, row, slot, due > entry[1] + int(rule.dwell[0])))
    if not ended:
        return None
    dues, rows, slots, cooled = (np.array(column) for column in zip(*ended, strict=True))
    streams, owners = rows.astype(np.int32), slots.astype(np.int32)
    table.touch(streams)
    told = (queries.kinds[owners] & _ENTER) != 0
    streams, owners = streams[told], owners[told]
    return CommandEffects(
        task,
        [Cause(None, "dwell"), Cause(None, "cooldown")],
        BorderRecords(
            causes=cooled[told].astype(np.int32),
            streams=streams,
            seq=next_numbers(table, streams),
            ts=dues[told].astype(np.int64),
            starts=np.arange(len(streams) + 1, dtype=np.int64),
            slots=owners,
            sides=np.full(len(streams), ENTER, dtype=np.uint8),
        ),
        table.point[streams],
    )


def _expire(
    task: Task, table: StreamTable, queries: QuerySet, up_to: int, max_ids: int
) -> CommandEffects | None:
    """Streams that have been silent for their time to live are removed, each from all that it is in."""
    ttl = queries.source.stream_ttl
    if ttl is None or table.find_oldest() > up_to - ttl:
        return None
    rows = np.flatnonzero(table.known & (table.seen <= up_to - ttl)).astype(np.int32)
    rows = rows[np.argsort(table.seen[rows], kind="stable")]
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
    )
    changed = changed_pairs(table, queries, walked, queries.hits(points))
    borders = number_borders(table, queries, walked, changed, due, max_ids)
    table.touch(rows)
    table.give_up(rows.tolist())
    table.find_oldest()
    told = borders.causes
    return CommandEffects(
        task,
        [Cause(None, "stream_removed")],
        borders._replace(causes=np.zeros(len(told), dtype=np.int32)),
        points[n:][told],
    )
