"""Which pairs of stream and query change as streams move: enters, leaves, and regions jumped over.

Of the queries that match or have shapes, one stab serves both: the points of the events give the matches, and
the same hits, compared with those of the point where each stream was, give the borders. Of the others, and of
``keep`` regions, the index gives the borders at once. Pairs that have memory then go through
``delta.settle``, in order; of all others crossing the border of ``where`` is the change.

Whether a ``keep`` region holds a stream is known without asking, because each box of ``where`` lies in it:
who is inside ``where`` is in ``keep``, and who leaves ``where`` but does not cross ``keep`` stays in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.engine import kernels
from service.engine.aggregates import Move
from service.engine.delta import WAITING, Transition, settle
from service.engine.distinct import distinct
from service.engine.effects import CROSS, ENTER, LEAVE, Sides
from service.engine.queryset import QuerySet
from service.engine.rules import Flags, Times
from service.engine.streams import StreamTable, occurrences
from service.index.default.segment import meets
from service.index.protocol import Borders, Hits, Points, Rows, Slots
from service.model import Conjunct, Interval, Texts


class Walked(NamedTuple):
    """What ``kernels.walk`` made of a batch of n rows; ``points`` is what it wrote."""

    rows: Rows
    clock: Times
    points: Points
    verdict: NDArray[np.uint8]
    before: Rows
    first: Flags
    silent: Flags

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
    keep = _keep_borders(table, queries, walked, where) if queries.has_keeps else None
    remembers = queries.rules.remembers
    woken = _woken(table, walked)
    plain, hops = ~remembers[where.slots], ~remembers[jumped.slots]
    sides = np.where(where.entered[plain], ENTER, LEAVE).astype(np.uint8)
    parts = [
        ChangedPairs(where.rows[plain], where.slots[plain], sides),
        ChangedPairs(jumped.rows[hops], jumped.slots[hops], np.full(int(hops.sum()), CROSS, dtype=np.uint8)),
    ]
    if keep is not None or len(woken.rows) or not (plain.all() and hops.all()):
        facts = _facts(queries, where, keep, Hits(jumped.rows[~hops], jumped.slots[~hops]), woken)
        parts.append(_settle_in_waves(table, queries, walked, facts))
    return ChangedPairs(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def moves_of(table: StreamTable, walked: Walked, changed: ChangedPairs) -> Iterator[tuple[int, list[Move]]]:
    """What the aggregates of the table follow of a batch: the rows whose stream is a member of a query that
    asks for them, or becomes one, each with its time. Nothing while none asks. O(batch), then those rows."""
    if not len(table.aggregates):
        return
    asked = table.aggregates.slots.among(changed.slots) & (changed.sides != CROSS)
    pairs, slots, sides = (column[asked] for column in changed)
    counted = table.aggregates.rows.among(walked.rows)
    if len(pairs):
        counted |= np.isin(walked.rows, walked.rows[pairs])
    counted &= _moves(walked)
    counted[pairs] = True  # a late event moves nobody, but may end a silence, and with it a wait that is over
    of_row: dict[int, tuple[list[int], list[int]]] = {}
    for row, slot, side in zip(pairs.tolist(), slots.tolist(), sides.tolist(), strict=True):
        of_row.setdefault(row, ([], []))[side].append(slot)
    for row in np.flatnonzero(counted).tolist():
        leaves, enters = of_row.get(row, ((), ()))
        yield (
            int(walked.clock[row]),
            [Move(int(walked.rows[row]), _place(table, walked, row).tolist(), leaves, enters)],
        )


def _moves(walked: Walked) -> Flags:
    moves: Flags = (walked.verdict == kernels.MOVES) | (walked.verdict == kernels.REMOVES)
    return moves


def _place(table: StreamTable, walked: Walked, row: int) -> Points:
    """Where a stream is after a row, ``float64[d]``. One that does not move it is the first of its stream."""
    moves = _moves(walked)
    stream, place = walked.rows[row], row
    if not moves[row]:
        later = np.flatnonzero((walked.rows == stream) & moves)
        place = int(walked.before[later[0]]) if len(later) else kernels.NOWHERE
    found: Points = table.point[stream] if place == kernels.NOWHERE else walked.points[place]
    return found


def _woken(table: StreamTable, walked: Walked) -> Hits:
    """The waits that begin anew because an event broke too long a silence, by (row of the batch, slot). Such
    a row is the first of its stream in the batch, so what is remembered is as it was before the batch."""
    woken = [
        (place, slot)
        for place in (np.flatnonzero(walked.silent).tolist() if len(table.memory) else ())
        for slot, entry in sorted(table.memory.of_row(int(walked.rows[place])).items())
        if entry[0] == WAITING
    ]
    pairs = np.array(woken, dtype=np.int32).reshape(-1, 2)
    return Hits(pairs[:, 0], pairs[:, 1])


def _where_borders(queries: QuerySet, walked: Walked, hits: Hits) -> Borders:
    """Who holds exactly one of where each row's stream was and where it is, by rising row of the batch."""
    crossed = _differences(hits, len(walked.points), walked.before, walked.here, queries.marks)
    if not len(queries.quiet):
        return crossed
    quiet = queries.quiet.borders(*_ends(walked.points, walked.before, walked.here))
    rows, slots, entered = (np.concatenate(columns) for columns in zip(crossed, quiet, strict=True))
    order = np.argsort(rows, kind="stable")
    return Borders(rows[order], slots[order], entered[order])


def _keep_borders(table: StreamTable, queries: QuerySet, walked: Walked, where: Borders) -> Borders | None:
    """The borders of ``keep`` regions that may matter: of streams that have memory, or begin to have it here.
    None if there are none such, so that queries without ``keep`` pay nothing."""
    streams = walked.rows
    begins = streams[where.rows[queries.rules.keeps[where.slots]]]
    rows = np.flatnonzero(table.memory.among(streams) | np.isin(streams, begins)).astype(np.int32)
    if not len(rows):
        return None
    crossed = queries.keep_borders(*_ends(walked.points, walked.before[rows], walked.here[rows]))
    return crossed._replace(rows=rows[crossed.rows])


def _ends(points: Points, before: Rows, here: Rows) -> tuple[Points, Points]:
    """Where streams were and where they are; NOWHERE, -1, is a row of NaN behind the others."""
    known = np.concatenate([points, np.full((1, points.shape[1]), np.nan)])
    return known[before], known[here]


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


class _Facts(NamedTuple):
    """Of m pairs with memory, by (row of the batch, slot): inside ``where`` before and after, whether
    ``where`` or ``keep`` holds a member after, and whether the stream jumped over ``where``."""

    pairs: Rows
    slots: Slots
    inside0: Flags
    inside1: Flags
    held1: Flags
    jumps: Flags


def _facts(queries: QuerySet, where: Borders, keep: Borders | None, jumped: Hits, woken: Hits) -> _Facts:
    width = max(len(queries.names), 1)
    chosen = np.flatnonzero(queries.rules.remembers[where.slots])
    keys_of_where = where.rows[chosen].astype(np.int64) * width + where.slots[chosen]
    keys_of_jumps = jumped.rows.astype(np.int64) * width + jumped.slots
    keys_of_woken = woken.rows.astype(np.int64) * width + woken.slots
    keys_of_keep, kept = np.empty(0, np.int64), np.empty(0, np.bool_)
    if keep is not None:
        keys_of_keep, kept = keep.rows.astype(np.int64) * width + keep.slots, keep.entered
    keys = distinct(np.concatenate([keys_of_where, keys_of_keep, keys_of_jumps, keys_of_woken]))
    slots = (keys % width).astype(np.int32)
    by_where, in_where = _looked_up(keys, keys_of_where, where.entered[chosen])
    by_keep, in_keep = _looked_up(keys, keys_of_keep, kept)
    keeps = queries.rules.keeps[slots]
    inside = np.isin(keys, keys_of_woken) & ~by_where  # who waits is inside
    return _Facts(
        pairs=(keys // width).astype(np.int32),
        slots=slots,
        inside0=inside | (by_where & ~in_where),
        inside1=inside | in_where,
        # Who crosses neither border stays what it is: a member is held.
        held1=np.where(by_keep, in_keep, np.where(by_where, in_where | keeps, True)),
        jumps=np.isin(keys, keys_of_jumps),
    )


def _looked_up(keys: NDArray[np.int64], known: NDArray[np.int64], values: Flags) -> tuple[Flags, Flags]:
    """Which keys are known, and their values (False for the others)."""
    if not len(known):
        return np.zeros(len(keys), np.bool_), np.zeros(len(keys), np.bool_)
    order = np.argsort(known)
    known, values = known[order], values[order]
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
                restarts=walked.first[pairs] | walked.silent[pairs],
                silent=walked.silent[pairs],
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
    if not queries.dictionaries:
        rows, slots = queries.crossing.met(begin, end)
        return Hits(moved[rows], slots)
    # Categories have no between: the segment is asked for as if they stayed, and each box is judged then.
    category = np.array([name in queries.dictionaries for name in queries.attributes])
    rows, slots = queries.crossing.met(begin, np.where(category, begin, end), box_by_box=True)
    kept = np.array(
        [
            _jumps(queries, slot, begin[row], end[row])
            for row, slot in zip(rows.tolist(), slots.tolist(), strict=True)
        ],
        dtype=np.bool_,
    )
    return Hits(moved[rows[kept]], slots[kept])


def _jumps(queries: QuerySet, slot: int, begin: Points, end: Points) -> bool:
    """Whether a stream jumps over one query whose source has categories: they must hold at both ends."""
    query = queries.queries[slot]
    assert query is not None
    place = {name: column for column, name in enumerate(queries.attributes)}

    def holds(conjunct: Conjunct, point: Points) -> bool:
        return all(
            any(lo <= point[place[name]] < hi for lo, hi in queries.intervals(name, bound))
            for name, bound in conjunct.items()
        )

    met = False
    for conjunct in query.region.conjuncts:
        if holds(conjunct, begin) or holds(conjunct, end):
            return False
        texts = {name: bound for name, bound in conjunct.items() if isinstance(bound, Texts)}
        sides = [
            (float(begin[place[name]]), float(end[place[name]]), *bound)
            for name, bound in conjunct.items()
            if isinstance(bound, Interval)
        ]
        present = all(np.isfinite(side[:2]).all() for side in sides)
        met |= present and holds(texts, begin) and holds(texts, end) and meets(sides)
    return met
