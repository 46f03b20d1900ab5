"""What a group of query changes does to the membership of the streams of one source.

The group names each query once. The last values of all living streams are asked which of them are in the
boxes as they were and as they are (``lastvalues``); every pair inside either goes through ``delta.settle``.
A change of ``on`` alone moves nobody, but where it ends the pair of border kinds the members' leaves are
written first, and where it begins the pair, their enters: a log that has both kinds of a query starts with an
enter and can be folded.

Pairs that are remembered (``memory``) are looked at besides: a member need not be inside ``where``. So the
members of each query after the change are at hand, and those that ask for aggregates are counted anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from service.engine.aggregates import AggregateRecord
from service.engine.catalog import QueryChange
from service.engine.clauses import Filter
from service.engine.delta import Transition, settle
from service.engine.distinct import distinct
from service.engine.effects import Change, CommandEffects, Task, only_aggregates
from service.engine.owed import Entries
from service.engine.queryset import KIND_BIT, QuerySet, active_region, bits_of
from service.engine.rules import NEVER, Flags, rule_of
from service.engine.streams import StreamTable
from service.index.protocol import Hits, Rows, Slots
from service.model import Aggregates, Kind, Query, Region

_AT_ONCE = 1 << 15
"""Pairs that are settled together: few enough for their columns to stay near the processor."""
_ENTER, _LEAVE = KIND_BIT[Kind.ENTER], KIND_BIT[Kind.LEAVE]
_BOTH = _ENTER | _LEAVE


def apply_changes(
    queries: QuerySet, changes: Sequence[QueryChange], tables: Sequence[tuple[Task, StreamTable]], now_ms: int
) -> list[CommandEffects]:
    """Moves the queries of one source. Who entered and left is owed from now on (``owed``); what is told of
    aggregates is returned. O(streams x boxes) at most."""
    telling = [change for change in changes if _tells(change)] if tables else []
    old = queries.filter_of(enumerate(change.before for change in telling))
    slot_of_dropped = {c.id: queries.slot_of[c.id] for c in changes if c.before and not c.after}
    queries.drop([change.id for change in changes if change.before and not change.after])
    queries.put([change.after for change in changes if change.after])
    new = queries.filter_of(enumerate(change.after for change in telling))
    keep = queries.filter_in(enumerate(_active_keep(change.after) for change in telling))
    slots = np.array(
        [slot_of_dropped.get(c.id, queries.slot_of.get(c.id, -1)) for c in telling], dtype=np.int32
    )
    group = _Group(telling, slots, old, new, keep)
    caused = ((task, table, group.apply(table, queries, now_ms)) for task, table in tables)
    return [only_aggregates(task, table.point, told) for task, table, told in caused if told]


def _active_keep(query: Query | None) -> Region | None:
    return query.keep_region if query is not None and query.enabled else None


def _watching(query: Query | None) -> tuple[object, ...]:
    """What membership depends on."""
    if query is None:
        return ()
    return active_region(query), _active_keep(query), query.dwell, query.cooldown, query.once


def _asks(query: Query | None) -> Aggregates | None:
    return query.aggregates if query is not None else None


def _bits(query: Query | None) -> int:
    return bits_of(query.on) if query is not None else 0


def _tells(change: QueryChange) -> bool:
    """Whether a change can move a member or a record at all: not so for tags, `select`, `initial` alone."""
    if _watching(change.before) != _watching(change.after):
        return True
    if _asks(change.before) != _asks(change.after):
        return True
    return change.before is not None and change.after is not None and change.before.on != change.after.on


class _Group:
    """A group of changes as columns over their places in the group."""

    def __init__(
        self, changes: Sequence[QueryChange], slots: Slots, old: Filter, new: Filter, keep: Filter
    ) -> None:
        self.slots = slots
        self.asking = [
            (place, change.after if _asks(change.after) else None)
            for place, change in enumerate(changes)
            if _asks(change.before) or _asks(change.after)
        ]
        self.old = old
        self.new = new
        self.keep = keep
        self.changes = changes
        regions = [(active_region(change.before), active_region(change.after)) for change in changes]
        self.watched0: Flags = np.array([old is not None for old, _ in regions], dtype=np.bool_)
        self.watched1: Flags = np.array([new is not None for _, new in regions], dtype=np.bool_)
        self.begins: Flags = np.array(
            [new is not None and old != new for old, new in regions], dtype=np.bool_
        )
        self.restarts: Flags = np.array(
            [_waits_for(change.before) != _waits_for(change.after) for change in changes], dtype=np.bool_
        )
        self.remains: Flags = np.array([change.after is not None for change in changes], dtype=np.bool_)
        self.stores0 = rule_of([change.before for change in changes]).stores
        self.rules = rule_of([change.after for change in changes])
        self.on0 = np.array([_bits(change.before) for change in changes], dtype=np.uint8)
        self.on1 = np.array([_bits(change.after) for change in changes], dtype=np.uint8)

    def apply(self, table: StreamTable, queries: QuerySet, now_ms: int) -> list[AggregateRecord]:
        now = table.time.at(now_ms)
        lists = [table.inside(self.old), table.inside(self.new), table.inside(self.keep)]
        pairs = _any_of([*lists, self._remembered(table)], len(self.slots))
        steps = range(0, max(len(pairs.rows), 1), _AT_ONCE)
        moved = [self._move(table, queries, pairs.take(slice(i, i + _AT_ONCE)), now) for i in steps]
        is_member, leaves, enters = (np.concatenate(columns) for columns in zip(*moved, strict=True))
        told = np.flatnonzero(leaves | enters)
        told = told[np.argsort(pairs.places[told], kind="stable")]  # they are by row
        if len(told):
            changes = self._told(queries, now)
            table.owed.add(Entries(changes, pairs.places[told], pairs.rows[told], enters[told]))
        return self._counted(table, queries, pairs.rows[is_member], pairs.places[is_member], now)

    def _move(
        self, table: StreamTable, queries: QuerySet, pairs: _Pairs, now: int
    ) -> tuple[Flags, Flags, Flags]:
        """Which pairs are members now, and which are to be told that they leave, and that they enter."""
        streams, places, inside0, inside1, kept = pairs
        memory, rules = table.memory.get(streams, self.slots[places]), self.rules.take(places)
        settled = settle(
            Transition(
                memory=memory,
                inside0=inside0,
                stores0=self.stores0[places],
                watched0=self.watched0[places],
                inside1=inside1,
                held1=inside1 | kept,
                watched1=self.watched1[places],
                rule1=rules,
                begins=self.begins[places],
                restarts=self.restarts[places],
                silent=now - table.seen[streams] >= (queries.source.stale_after or NEVER),
                remains=self.remains[places],
                now=np.full(len(places), now, dtype=np.int64),
            )
        )
        retimed = self.restarts[places] & rules.stores
        changed = table.memory.put(
            streams, self.slots[places], memory, settled.memory, rules, retimed=retimed
        )
        table.touch_in_place(streams[changed])
        on0, on1 = self.on0[places], self.on1[places]
        both0, both1 = (on0 & _BOTH) == _BOTH, (on1 & _BOTH) == _BOTH
        stays = settled.member0 & settled.member1
        leave = ((settled.member0 & ~settled.member1) | (stays & both0 & ~both1)) & ((on0 & _LEAVE) != 0)
        enter = ((settled.member1 & ~settled.member0) | (stays & both1 & ~both0)) & ((on1 & _ENTER) != 0)
        return settled.member1, leave, enter

    def _told(self, queries: QuerySet, now: int) -> list[Change]:
        """What the records of each change will say."""
        return [
            Change(change.command, change.reason, now, change.id, queries.projections[slot])
            for change, slot in zip(self.changes, self.slots.tolist(), strict=True)
        ]

    def _counted(
        self, table: StreamTable, queries: QuerySet, streams: Rows, places: Rows, now: int
    ) -> list[AggregateRecord]:
        """What is told of the queries that ask for aggregates, or did; these are all members of the group."""
        told: list[AggregateRecord] = []
        if self.asking:
            order = np.argsort(places, kind="stable")
            streams, places = streams[order], places[order]
        for place, query in self.asking:
            slot = int(self.slots[place])
            if query is None:
                told += table.aggregates.end(slot, now)
                continue
            begin, end = np.searchsorted(places, [place, place + 1])
            told += table.aggregates.put(
                slot, query, queries.attributes, table.members_at(streams[begin:end]), now
            )
        return told

    def _remembered(self, table: StreamTable) -> Hits:
        """The pairs that have memory, by (row, place)."""
        found = sorted(
            (row, place)
            for place, slot in enumerate(self.slots.tolist())
            for row in table.memory.rows_of(slot)
        )
        pairs = np.array(found, dtype=np.int32).reshape(-1, 2)
        return Hits(pairs[:, 0], pairs[:, 1])


def _waits_for(query: Query | None) -> tuple[object, ...]:
    """What a wait depends on: a change of it begins the wait anew."""
    return (None, None, 0) if query is None else (active_region(query), _active_keep(query), query.dwell)


class _Pairs(NamedTuple):
    """n pairs of a row and a place in the group, by row and place; whether ``where`` held them before and
    does after, and whether ``keep`` does."""

    rows: Rows
    places: Rows
    inside0: Flags
    inside1: Flags
    kept: Flags

    def take(self, chosen: slice) -> _Pairs:
        rows, places, inside0, inside1, kept = self
        return _Pairs(rows[chosen], places[chosen], inside0[chosen], inside1[chosen], kept[chosen])


def _any_of(lists: Sequence[Hits], width: int) -> _Pairs:
    """The pairs that are in any of some hit lists: before, after, keep, and others."""
    keys = [hits.rows.astype(np.int64) * width + hits.slots for hits in lists]
    found = distinct(np.concatenate(keys))
    rows = (found // max(width, 1)).astype(np.int32)
    places = (found % max(width, 1)).astype(np.int32)
    inside0, inside1, kept = (np.isin(found, one) for one in keys[:3])
    return _Pairs(rows, places, inside0, inside1, kept)
