"""What one batch of events does: matches, and the borders that each stream crosses.

Of the queries that match, one stab serves both: the points of the events give the matches, and the same hits,
compared with those of the point where each stream was, give the borders. Of the others the index gives the
borders at once. A stream's first point in the batch is compared with the one in the table, every further one
with its predecessor in the batch.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from service.engine import kernels, numbers
from service.engine.crossings import ChangedPairs, Walked, changed_pairs, moves_of
from service.engine.distinct import distinct
from service.engine.effects import (
    NO_RECORDS,
    Batch,
    BorderRecords,
    EventEffects,
    Refused,
    Task,
)
from service.engine.queryset import KIND_BIT, QuerySet
from service.engine.rules import NEVER, Times
from service.engine.streams import StreamTable
from service.index.protocol import Hits, Rows
from service.model import Kind, Late, Missing, Reason

_MATCH = KIND_BIT[Kind.MATCH]
_BIT_OF_SIDE = np.array([KIND_BIT[kind] for kind in (Kind.LEAVE, Kind.ENTER, Kind.CROSS)], dtype=np.uint8)
"""By LEAVE, ENTER, CROSS."""
_LATE_POLICY = {
    Late.NO_BORDER: kernels.LATE_NO_BORDER,
    Late.PROCESS: kernels.LATE_PROCESS,
    Late.REJECT: kernels.LATE_REJECT,
}


def apply_events(
    task: Task,
    table: StreamTable,
    queries: QuerySet,
    batch: Batch,
    clock: Times,
    *,
    max_streams: int,
    max_ids: int,
    commands: int,
) -> EventEffects:
    """Moves the streams of one partition by one batch, during which nothing falls due. ``clock int64[n]`` is
    the partition's time at each row; ``commands``: the offset that the catalog is at. O(n stab + hits)."""
    batch, rows, refused, clock = _admit(table, batch, max_streams, clock)
    n = len(rows)
    points = np.empty((2 * n, len(queries.attributes)))
    verdict = np.empty(n, dtype=np.uint8)
    before = np.empty(n, dtype=np.int32)
    first, silent = np.empty(n, dtype=np.bool_), np.empty(n, dtype=np.bool_)
    source, recent = queries.source, table.recent
    ids = recent.make_room(rows, batch.event_ids)
    counts = np.zeros(2, dtype=np.int64)
    used = kernels.walk(
        rows, batch.removal, batch.ts, batch.timed, batch.values, ids, clock,
        _LATE_POLICY[source.late], source.missing is Missing.CARRY, source.stale_after or NEVER, recent.last,
        table.known, table.last_ts, table.seen, table.point, table.carried,
        recent.ids, recent.accepted, recent.unsaved, table.scratch,
        points, verdict, before, first, silent, counts,
    )  # fmt: skip
    if n:
        table.oldest_seen = min(table.oldest_seen, int(clock[0]))
    hits = queries.hits(points[:used])
    walked = Walked(rows, clock, points[:used], verdict, before, first, silent)
    changed = changed_pairs(table, queries, walked, hits)
    aggregates = table.aggregates.follow(moves_of(table, walked, changed), int(clock[-1])) if n else []
    ts = np.where(batch.timed, batch.ts, batch.log_ts)
    borders = number_borders(table, queries, walked, changed, ts, max_ids)
    table.trace.record(batch, rows, verdict, points[:n], commands=commands)
    removes = np.flatnonzero(verdict == kernels.REMOVES)
    points[removes] = points[before[removes]]

    # A late event moves nothing, but its stream has been seen.
    refuses = kernels.refused(verdict)
    seen = ~refuses & (verdict != kernels.NOTHING)
    touched = distinct(rows[seen])
    table.touch(touched)
    table.give_up(touched[~table.known[touched]].tolist())
    refused += [_refused(batch, i, *_why(batch, i, verdict)) for i in np.flatnonzero(refuses).tolist()]
    matched = (hits.rows < n) & ((queries.kinds[hits.slots] & _MATCH) != 0)
    queries.mark_fired(hits.slots[matched], changed.slots)
    return EventEffects(
        task=task,
        batch=batch,
        refused=refused,
        matches=Hits(hits.rows[matched], hits.slots[matched]),
        late=verdict == kernels.LATE,
        removed=verdict == kernels.REMOVES,
        points=points[:n],
        borders=borders,
        aggregates=aggregates,
        older=int(counts[0]),
        carried=int(counts[1]),
    )


def _why(batch: Batch, i: int, verdict: NDArray[np.uint8]) -> tuple[Reason, str]:
    """Why the walk refuses a row, and the detail."""
    if verdict[i] == kernels.REJECTED or batch.event_ids is None:
        return Reason.LATE, "older than the last event of its stream"
    return (
        Reason.DUPLICATE,
        f"{batch.event_ids[i]!r} is the id of an event that its stream has accepted before",
    )


def _refused(batch: Batch, i: int, reason: Reason, detail: str) -> Refused:
    return Refused(int(batch.offsets[i]), int(batch.items[i]), batch.stream_ids[i], reason, detail)


def _admit(
    table: StreamTable, batch: Batch, max_streams: int, clock: Times
) -> tuple[Batch, Rows, list[Refused], Times]:
    """Gives rows to new streams, in order; refuses those past the limit."""
    refused: list[Refused] = []
    rows = table.rows(batch.stream_ids)
    if len(table) + np.count_nonzero(rows < 0) > max_streams:
        past = _past_limit(table, batch, max_streams)
        detail = f"there are {max_streams} streams, the most allowed; remove some or raise max_streams"
        refused = [_refused(batch, i, Reason.LIMIT, detail) for i in past]
        kept = np.setdiff1d(np.arange(len(rows)), np.array(past, dtype=np.int64))
        batch, clock = batch.take(kept), clock[kept]
        rows = table.rows(batch.stream_ids)
    ids, removal = batch.stream_ids, batch.removal
    for i in np.flatnonzero(rows < 0).tolist():
        row = table.row_of.get(ids[i], -1)
        if row < 0 and not removal[i]:
            row = table.add(ids[i])
        rows[i] = row
    return batch, rows, refused, clock


def _past_limit(table: StreamTable, batch: Batch, max_streams: int) -> list[int]:
    """Rows that would begin a stream while there are as many as allowed; the walk that few batches need."""
    living = len(table)
    alive: dict[str, bool] = {}
    past = []
    for i, (id, removed) in enumerate(zip(batch.stream_ids, batch.removal.tolist(), strict=True)):
        lives = alive.get(id, id in table.row_of)
        if removed:
            living -= lives
        elif not lives and living >= max_streams:
            past.append(i)
            continue
        else:
            living += not lives
        alive[id] = not removed
    return past


def number_borders(
    table: StreamTable, queries: QuerySet, walked: Walked, changed: ChangedPairs, ts: Times, max_ids: int
) -> BorderRecords:
    """What is told of the pairs that changed, as numbered records in order of the rows; ``ts`` is by row."""
    rows = walked.rows
    told = np.flatnonzero((queries.kinds[changed.slots] & _BIT_OF_SIDE[changed.sides]) != 0)
    if not len(told) and not (walked.verdict == kernels.REMOVES).any() and not table.lost:
        return NO_RECORDS  # most single events: nothing is crossed
    if queries.tenants.are_several:
        changed = ChangedPairs(changed.pairs[told], changed.slots[told], changed.sides[told])
        return numbers.number_borders(table, queries, walked, changed, ts, max_ids)
    told = told[np.lexsort((changed.slots[told], changed.sides[told], changed.pairs[told]))]
    pairs, slots, sides = changed.pairs[told], changed.slots[told], changed.sides[told]
    ids_of_row = np.bincount(pairs, minlength=len(rows))
    resets = (walked.first & table.lost).astype(np.int64)
    records_of_row = -(-ids_of_row // max_ids) + resets
    if ids_of_row.size and ids_of_row.max() > max_ids:
        ends = np.cumsum(ids_of_row)
        for row in np.flatnonzero(ids_of_row > max_ids).tolist():
            numbers.by_id(queries, slots, sides, slice(int(ends[row] - ids_of_row[row]), int(ends[row])))
    causes = np.repeat(np.arange(len(rows), dtype=np.int32), records_of_row)
    seq = np.empty(len(causes), dtype=np.int64)
    kernels.number(rows, records_of_row, walked.verdict, table.seq, seq)
    return BorderRecords(
        causes=causes,
        streams=rows[causes],
        seq=seq,
        ts=ts[causes],
        starts=numbers.starts_of(ids_of_row, records_of_row, resets, max_ids),
        slots=slots,
        sides=sides,
    )
