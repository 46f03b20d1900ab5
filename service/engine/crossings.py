"""Which pairs of stream and query change as streams move: enters, leaves, and regions jumped over.

Of the queries that match or have shapes, one stab serves both: the points of the events give the matches, and
the same hits, compared with those of the point where each stream was, give the borders. Of the others, and of
``keep`` regions, the index gives the borders at once. Pairs that have memory then go through
``delta.settle``, in order; of all others crossing the border of ``where`` is the change.

Whether a ``keep`` region holds a stream is known without asking, because each box of ``where`` lies in it:
who is inside ``where`` is in ``keep``, and who leaves ``where`` but does not cross ``keep`` stays in it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.engine import kernels
from service.engine.delta import WAITING, Transition, settle
from service.engine.effects import CROSS, ENTER, LEAVE, Sides
from service.engine.queryset import QuerySet
from service.engine.rules import Flags, Times
from service.engine.streams import StreamTable, occurrences
from service.index.default.segment import meets
from service.index.protocol import Borders, Hits, Points, Rows, Slots


class Walked(NamedTuple):
    """What ``kernels.walk`` made of a batch of n rows; ``points`` is what it wrote."""

    rows: Rows
    clock: Times
    points: Points
    verdict: NDArray[np.uint8]
    before: Rows
    first: Flags

    @property
    def here(self) -> Rows:
        """The point at which each row leaves its stream, ``int32[n]``; NOWHERE where it moves none."""
        places = np.arange(len(self.rows), dtype=np.int32)
        return np.where(self.verdict == kernels.MOVES, places, np.int32(kernels.NOWHERE))


class ChangedPairs(NamedTuple):
    """p changes: the row of the batch, the slot, and LEAVE, ENTER or CROSS. In no order."""

    pairs: Rows
    slots: Slots
    sides: Sides


def changed_pairs(table: StreamTable, queries: QuerySet, walked: Walked, hits: Hits) -> ChangedPairs:
    """All changes of a batch, and the memory moved on. ``hits``: those of ``walked.points`` among the queries
    that match or have shapes. O(hits + borders)."""
    where = _where_borders(queries, walked, hits)
    jumped = _jumped(queries, walked)
    keep = queries.keep_borders(*_ends(walked))
    remembers = queries.rules.remembers
    plain, hops = ~remembers[where.slots], ~remembers[jumped.slots]
    sides = np.where(where.entered[plain], ENTER, LEAVE).astype(np.uint8)
    parts = [
        ChangedPairs(where.rows[plain], where.slots[plain], sides),
        ChangedPairs(jumped.rows[hops], jumped.slots[hops], np.full(int(hops.sum()), CROSS, dtype=np.uint8)),
    ]
    if keep is not None or not (plain.all() and hops.all()):
        facts = _facts(queries, where, keep, Hits(jumped.rows[~hops], jumped.slots[~hops]))
        parts.append(_settle_in_waves(table, queries, walked, facts))
    return ChangedPairs(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def restart_waits(table: StreamTable, queries: QuerySet, rows: Rows, clock: Times) -> None:
    """Waits of streams that had been silent for too long begin anew with the event that broke the silence,
    at ``clock``."""
    if not len(rows) or not len(table.memory):
        return
    for row, now in zip(rows.tolist(), clock.tolist(), strict=True):
        waits = [slot for slot, entry in table.memory.of_row(row).items() if entry[0] == WAITING]
        slots = np.array(waits, dtype=np.int32)
        streams = np.full(len(waits), row, dtype=np.int32)
        before = table.memory.get(streams, slots)
        after = before._replace(since=np.full(len(waits), now, dtype=np.int64))
        table.memory.put(streams, slots, before, after, queries.rules.of(slots))


def _where_borders(queries: QuerySet, walked: Walked, hits: Hits) -> Borders:
    """Who holds exactly one of where each row's stream was and where it is, by (row of the batch, slot)."""
    crossed = _differences(hits, len(walked.points), walked.before, walked.here)
    if not len(queries.quiet):
        return crossed
    quiet = queries.quiet.borders(*_ends(walked))
    rows, slots, entered = (np.concatenate(columns) for columns in zip(crossed, quiet, strict=True))
    order = np.lexsort((slots, rows))
    return Borders(rows[order], slots[order], entered[order])


def _ends(walked: Walked) -> tuple[Points, Points]:
    """Where each row's stream was and where it is."""
    nowhere = np.full((1, walked.points.shape[1]), np.nan)
    known = np.concatenate([walked.points, nowhere])  # row NOWHERE, -1, is the last
    return known[walked.before], known[walked.here]


def _differences(hits: Hits, used: int, before: Rows, here: Rows) -> Borders:
    """The borders between the hits of two points a row (NOWHERE: of none)."""
    indptr = np.searchsorted(hits.rows, np.arange(used + 1, dtype=np.int32)).astype(np.int64)
    room = len(before) + 64
    while True:
        pairs = np.empty(room, dtype=np.int32)
        slots = np.empty(room, dtype=np.int32)
        entered = np.empty(room, dtype=np.bool_)
        found = kernels.differences(indptr, hits.slots, before, here, pairs, slots, entered)
        if found <= room:
            return Borders(pairs[:found], slots[:found], entered[:found])
        room = found


class _Facts(NamedTuple):
    """Of m pairs with memory, by (row of the batch, slot): inside ``where`` before and after, whether
    ``where`` or ``keep`` holds a member after, and whether the stream jumped over ``where``."""

    pairs: Rows
    slots: Slots
    inside0: Flags
    inside1: Flags
    held1: Flags
    jumps: Flags


def _facts(queries: QuerySet, where: Borders, keep: Borders | None, jumped: Hits) -> _Facts:
    width = max(len(queries.names), 1)
    chosen = np.flatnonzero(queries.rules.remembers[where.slots])
    keys_of_where = where.rows[chosen].astype(np.int64) * width + where.slots[chosen]
    keys_of_jumps = jumped.rows.astype(np.int64) * width + jumped.slots
    keys_of_keep, kept = np.empty(0, np.int64), np.empty(0, np.bool_)
    if keep is not None:
        keys_of_keep, kept = keep.rows.astype(np.int64) * width + keep.slots, keep.entered
    keys = np.unique(np.concatenate([keys_of_where, keys_of_keep, keys_of_jumps]))
    slots = (keys % width).astype(np.int32)
    by_where, in_where = _looked_up(keys, keys_of_where, where.entered[chosen])
    by_keep, in_keep = _looked_up(keys, keys_of_keep, kept)
    keeps = queries.rules.keeps[slots]
    return _Facts(
        pairs=(keys // width).astype(np.int32),
        slots=slots,
        inside0=by_where & ~in_where,
        inside1=in_where,
        # Who crosses neither border stays what it is: a member is held.
        held1=np.where(by_keep, in_keep, np.where(by_where, in_where | keeps, True)),
        jumps=np.isin(keys, keys_of_jumps),
    )


def _looked_up(keys: NDArray[np.int64], known: NDArray[np.int64], values: Flags) -> tuple[Flags, Flags]:
    """Which keys are known, and their values (False for the others). ``known`` ascends."""
    if not len(known):
        return np.zeros(len(keys), np.bool_), np.zeros(len(keys), np.bool_)
    place = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    found = known[place] == keys
    return found, found & values[place]


def _settle_in_waves(table: StreamTable, queries: QuerySet, walked: Walked, facts: _Facts) -> ChangedPairs:
    """Settles pairs with memory. A pair that changes k times in one batch takes k waves, in order."""
    streams = walked.rows[facts.pairs]
    wave = occurrences(streams.astype(np.int64) * max(len(queries.names), 1) + facts.slots)
    member0, member1 = np.empty(len(streams), dtype=np.bool_), np.empty(len(streams), dtype=np.bool_)
    for number in range(int(wave.max(initial=-1)) + 1):
        now = np.flatnonzero(wave == number)
        rows, slots, pairs = streams[now], facts.slots[now], facts.pairs[now]
        memory = table.memory.get(rows, slots)
        rule = queries.rules.of(slots)
        lives = walked.verdict[pairs] != kernels.REMOVES
        settled = settle(
            Transition(
                memory=memory,
                inside0=facts.inside0[now],
                stores0=rule.stores,
                watched0=np.ones(len(now), dtype=np.bool_),
                inside1=facts.inside1[now],
                held1=facts.held1[now],
                watched1=lives,
                rule1=rule,
                begins=walked.first[pairs],
                restarts=walked.first[pairs],
                remains=lives,
                now=walked.clock[pairs],
            )
        )
        table.memory.put(rows, slots, memory, settled.memory, rule)
        member0[now], member1[now] = settled.member0, settled.member1
    changed = member0 != member1
    told = changed | (facts.jumps & ~member0)
    sides = np.where(changed, np.where(member1, ENTER, LEAVE), CROSS).astype(np.uint8)
    return ChangedPairs(facts.pairs[told], facts.slots[told], sides[told])


def _jumped(queries: QuerySet, walked: Walked) -> Hits:
    """The queries that ask for ``cross`` and whose ``where`` a stream jumps over: the straight segment from
    its last value to the new one meets a box though neither end is inside. By (row of the batch, slot)."""
    if not len(queries.crossing):
        return Hits(np.empty(0, np.int32), np.empty(0, np.int32))
    moved = np.flatnonzero((walked.verdict == kernels.MOVES) & (walked.before >= 0)).astype(np.int32)
    begin, end = walked.points[walked.before[moved]], walked.points[moved]
    rows, slots = queries.crossing.met(begin, end)
    if queries.dictionaries:
        met = [
            _meets(queries, slot, begin[row], end[row])
            for row, slot in zip(rows.tolist(), slots.tolist(), strict=True)
        ]
        kept = np.array(met, dtype=np.bool_)
        rows, slots = rows[kept], slots[kept]
    return Hits(moved[rows], slots)


def _meets(queries: QuerySet, slot: int, begin: Points, end: Points) -> bool:
    """The same for one pair where categories count: they have no between, but must hold at both ends."""
    query = queries.queries[slot]
    assert query is not None
    category = np.array([name in queries.dictionaries for name in queries.attributes])
    for lo, hi in zip(*queries.boxes(query.region), strict=True):
        holds = (lo <= begin) & (begin < hi) & (lo <= end) & (end < hi)
        bounded = ~category & ((lo != -np.inf) | (hi != np.inf))
        columns = (column[bounded] for column in (begin, end, lo, hi))
        sides = np.stack(list(columns), axis=1)
        if holds[category].all() and np.isfinite(sides[:, :2]).all() and meets(sides.tolist()):
            return True
    return False
