"""What one batch of events does: matches, and the borders that each stream crosses.

Of the queries that match, one stab serves both: the points of the events give the matches, and the same hits,
compared with those of the point where each stream was, give the borders. Of the others the index gives the
borders at once. A stream's first point in the batch is compared with the one in the table, every further one
with its predecessor in the batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from service.engine import kernels
from service.engine.delta import Flags, Transition, settle
from service.engine.effects import Batch, BorderRecords, EventEffects, Refused, Task
from service.engine.queryset import KIND_BIT, QuerySet
from service.engine.streams import StreamTable, occurrences
from service.index.protocol import Borders, Hits, Points, Rows, Slots
from service.model import Kind, Late, Missing, Reason

_MATCH, _ENTER, _LEAVE = KIND_BIT[Kind.MATCH], KIND_BIT[Kind.ENTER], KIND_BIT[Kind.LEAVE]
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
    *,
    now_ms: int,
    max_streams: int,
    max_ids: int,
) -> EventEffects:
    """Moves the streams of one partition by one batch. O(n stab + hits)."""
    batch, rows, refused = _admit(table, batch, max_streams)
    n = len(rows)
    points = np.empty((2 * n, len(queries.attributes)))
    verdict = np.empty(n, dtype=np.uint8)
    before = np.empty(n, dtype=np.int32)
    first = np.empty(n, dtype=np.bool_)
    source = queries.source
    used = kernels.walk(
        rows, batch.removal, batch.ts, batch.timed, batch.values,
        _LATE_POLICY[source.late], source.missing is Missing.CARRY,
        table.known, table.last_ts, table.point, table.carried, table.scratch,
        points, verdict, before, first,
    )  # fmt: skip
    hits = queries.matching.stab(points[:used])
    crossed = _crossed(queries, points, hits, used, before, verdict)
    borders = _borders(table, queries, batch, rows, verdict, first, crossed, max_ids)
    removes = np.flatnonzero(verdict == kernels.REMOVES)
    points[removes] = points[before[removes]]

    accepted = batch.timed & ((verdict == kernels.MOVES) | (verdict == kernels.LATE))
    if accepted.any():
        table.time.see(int(batch.ts[accepted].max()), now_ms)
    touched = np.unique(rows[(verdict == kernels.MOVES) | (verdict == kernels.REMOVES)])
    table.touch(touched)
    table.give_up(touched[~table.known[touched]].tolist())
    rejected = np.flatnonzero(verdict == kernels.REJECTED).tolist()
    refused += [_refused(batch, i, Reason.LATE, "older than the last event of its stream") for i in rejected]
    matched = (hits.rows < n) & ((queries.kinds[hits.slots] & _MATCH) != 0)
    return EventEffects(
        task=task,
        batch=batch,
        refused=refused,
        matches=Hits(hits.rows[matched], hits.slots[matched]),
        late=verdict == kernels.LATE,
        removed=verdict == kernels.REMOVES,
        points=points[:n],
        borders=borders,
    )


def _refused(batch: Batch, i: int, reason: Reason, detail: str) -> Refused:
    return Refused(int(batch.offsets[i]), int(batch.items[i]), batch.stream_ids[i], reason, detail)


def _admit(table: StreamTable, batch: Batch, max_streams: int) -> tuple[Batch, Rows, list[Refused]]:
    """Gives rows to new streams, in order; refuses those past the limit."""
    refused: list[Refused] = []
    rows = table.rows(batch.stream_ids)
    if len(table) + np.count_nonzero(rows < 0) > max_streams:
        past = _past_limit(table, batch, max_streams)
        detail = f"there are {max_streams} streams, the most allowed; remove some or raise max_streams"
        refused = [_refused(batch, i, Reason.LIMIT, detail) for i in past]
        batch = batch.take(np.setdiff1d(np.arange(len(rows)), np.array(past, dtype=np.int64)))
        rows = table.rows(batch.stream_ids)
    ids, removal = batch.stream_ids, batch.removal
    for i in np.flatnonzero(rows < 0).tolist():
        row = table.row_of.get(ids[i], -1)
        if row < 0 and not removal[i]:
            row = table.add(ids[i])
        rows[i] = row
    return batch, rows, refused


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


def _borders(
    table: StreamTable,
    queries: QuerySet,
    batch: Batch,
    rows: Rows,
    verdict: NDArray[np.uint8],
    first: Flags,
    crossed: Borders,
    max_ids: int,
) -> BorderRecords:
    pairs, slots, inside1 = crossed
    member0, member1 = ~inside1, inside1
    remembered = np.flatnonzero(queries.remembers[slots])
    if len(remembered):
        settled0, settled1 = _settle_in_waves(
            table, queries, rows[pairs[remembered]], slots[remembered], inside1[remembered],
            first[pairs[remembered]], verdict[pairs[remembered]] != kernels.REMOVES,
        )  # fmt: skip
        member0[remembered], member1[remembered] = settled0, settled1
    kinds = queries.kinds[slots]
    told = np.flatnonzero(
        (member0 & ~member1 & ((kinds & _LEAVE) != 0)) | (member1 & ~member0 & ((kinds & _ENTER) != 0))
    )
    told = told[np.lexsort((slots[told], member1[told], pairs[told]))]
    pairs, slots, entered = pairs[told], slots[told], member1[told]
    ids_of_row = np.bincount(pairs, minlength=len(rows))
    records_of_row = -(-ids_of_row // max_ids)
    if ids_of_row.size and ids_of_row.max() > max_ids:
        slots = _by_id(queries, pairs, slots, entered, np.flatnonzero(ids_of_row > max_ids).tolist())
    causes = np.repeat(np.arange(len(rows), dtype=np.int32), records_of_row)
    seq = np.empty(len(causes), dtype=np.int64)
    kernels.number(rows, records_of_row, verdict, table.seq, seq)
    return BorderRecords(
        causes=causes,
        streams=rows[causes],
        seq=seq,
        ts=np.where(batch.timed, batch.ts, batch.log_ts)[causes],
        starts=_starts(ids_of_row, records_of_row, max_ids),
        slots=slots,
        entered=entered,
    )


def _crossed(
    queries: QuerySet, points: Points, hits: Hits, used: int, before: Rows, verdict: NDArray[np.uint8]
) -> Borders:
    """Who holds exactly one of where each row's stream was and where it is, by rising row of the batch."""
    here = np.where(
        verdict == kernels.MOVES, np.arange(len(before), dtype=np.int32), np.int32(kernels.NOWHERE)
    )
    crossed = _differences(hits, used, before, here, queries.marks)
    if not len(queries.quiet):
        return crossed
    nowhere = np.full((1, points.shape[1]), np.nan)
    known = np.concatenate([points[:used], nowhere])  # row NOWHERE, -1, is the last
    quiet = queries.quiet.borders(known[before], known[here])
    rows, slots, entered = (np.concatenate(columns) for columns in zip(crossed, quiet, strict=True))
    order = np.argsort(rows, kind="stable")
    return Borders(rows[order], slots[order], entered[order])


def _differences(hits: Hits, used: int, before: Rows, here: Rows, marks: NDArray[np.uint8]) -> Borders:
    """The borders between the hits of two points a row (NOWHERE: of none), by rising row."""
    indptr = np.searchsorted(hits.rows, np.arange(used + 1, dtype=np.int32)).astype(np.int64)
    room = len(before) + 64
    while True:
        pairs = np.empty(room, dtype=np.int32)
        slots = np.empty(room, dtype=np.int32)
        entered = np.empty(room, dtype=np.bool_)
        found = kernels.differences(indptr, hits.slots, before, here, marks, pairs, slots, entered)
        if found <= room:
            return Borders(pairs[:found], slots[:found], entered[:found])
        room = found


def _settle_in_waves(
    table: StreamTable,
    queries: QuerySet,
    streams: Rows,
    slots: Slots,
    inside1: Flags,
    first: Flags,
    lives: Flags,
) -> tuple[Flags, Flags]:
    """Settles pairs with memory. A pair that changes k times in one batch takes k waves, in order."""
    key = streams.astype(np.int64) * len(queries.names) + slots
    wave = occurrences(key)
    member0, member1 = np.empty_like(inside1), np.empty_like(inside1)
    for number in range(int(wave.max()) + 1):
        now = np.flatnonzero(wave == number)
        ignored0 = table.ignores(streams[now], slots[now])
        always = np.ones(len(now), dtype=np.bool_)
        settled = settle(
            Transition(
                inside0=~inside1[now],
                ignored0=ignored0,
                watched0=always,
                inside1=inside1[now],
                watched1=lives[now],
                begins=first[now],
                ignores=queries.ignores(slots[now]),
            )
        )
        table.remember(streams[now], slots[now], ignored0, settled.ignored1)
        member0[now], member1[now] = settled.member0, settled.member1
    return member0, member1


def _by_id(queries: QuerySet, pairs: Rows, slots: Slots, entered: Flags, large: Sequence[int]) -> Slots:
    """Orders the ids of rows that fill several records, so that where they are split depends on ids alone."""
    slots = slots.copy()
    for row in large:
        for side in (False, True):
            place = np.flatnonzero((pairs == row) & (entered == side))
            names = queries.ids(slots[place])
            slots[place] = slots[place][np.argsort(np.array(names))] if len(names) else slots[place]
    return slots


def _starts(
    ids_of_row: NDArray[np.int64], records_of_row: NDArray[np.int64], max_ids: int
) -> NDArray[np.int64]:
    """Where each record begins among the pairs, and the end."""
    first_pair = np.cumsum(ids_of_row) - ids_of_row
    first_record = np.cumsum(records_of_row) - records_of_row
    which = np.arange(int(records_of_row.sum()), dtype=np.int64) - np.repeat(first_record, records_of_row)
    starts = np.repeat(first_pair, records_of_row) + which * max_ids
    return np.append(starts, ids_of_row.sum()).astype(np.int64)
