"""What a group of query changes does to the membership of the streams of one source.

The group names each query once. The last values of all living streams are asked which of them are in the
boxes as they were and as they are (``lastvalues``); every pair inside either goes through ``delta.settle``.
A change of ``on`` alone moves nobody, but where it ends the pair of border kinds the members' leaves are
written first, and where it begins the pair, their enters: a log that has both kinds of a query starts with an
enter and can be folded.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from service.engine.boxes import Boxes
from service.engine.catalog import QueryChange
from service.engine.delta import Flags, Transition, settle
from service.engine.effects import BorderRecords, Cause, CommandEffects, Task
from service.engine.queryset import KIND_BIT, QuerySet
from service.engine.streams import StreamTable, occurrences
from service.index.protocol import Hits, Rows, Slots
from service.model import Initial, Kind, Query, Region

_ENTER, _LEAVE = KIND_BIT[Kind.ENTER], KIND_BIT[Kind.LEAVE]
_BOTH = _ENTER | _LEAVE


def apply_changes(
    queries: QuerySet, changes: Sequence[QueryChange], tables: Sequence[tuple[Task, StreamTable]], now_ms: int
) -> list[CommandEffects]:
    """Moves the queries of one source and says who entered and left. O(streams x boxes) at most."""
    telling = [change for change in changes if _tells(change)] if tables else []
    old = queries.boxes_of(enumerate(change.before for change in telling))
    slot_of_dropped = {c.id: queries.slot_of[c.id] for c in changes if c.before and not c.after}
    queries.drop([change.id for change in changes if change.before and not change.after])
    queries.put([change.after for change in changes if change.after])
    new = queries.boxes_of(enumerate(change.after for change in telling))
    slots = np.array(
        [slot_of_dropped.get(c.id, queries.slot_of.get(c.id, -1)) for c in telling], dtype=np.int32
    )
    group = _Group(telling, slots, old, new)
    effects = [group.effects(task, table, queries, now_ms) for task, table in tables]
    return [effect for effect in effects if len(effect.borders.seq)]


def _active_region(query: Query | None) -> Region | None:
    return query.region if query is not None and query.enabled else None


def _bits(query: Query | None) -> int:
    return sum(KIND_BIT[kind] for kind in query.on) if query is not None else 0


def _tells(change: QueryChange) -> bool:
    """Whether a change can move a member or a record at all: not so for tags, `select`, `initial` alone."""
    if _active_region(change.before) != _active_region(change.after):
        return True
    return change.before is not None and change.after is not None and change.before.on != change.after.on


class _Group:
    """A group of changes as columns over their places in the group."""

    def __init__(self, changes: Sequence[QueryChange], slots: Slots, old: Boxes, new: Boxes) -> None:
        self.slots = slots
        self.old = old
        self.new = new
        self.causes = [Cause(change.command, change.reason) for change in changes]
        regions = [(_active_region(change.before), _active_region(change.after)) for change in changes]
        self.watched0: Flags = np.array([old is not None for old, _ in regions], dtype=np.bool_)
        self.watched1: Flags = np.array([new is not None for _, new in regions], dtype=np.bool_)
        self.begins: Flags = np.array(
            [new is not None and old != new for old, new in regions], dtype=np.bool_
        )
        self.ignores: Flags = np.array(
            [c.after is not None and c.after.initial is Initial.IGNORE for c in changes], dtype=np.bool_
        )
        self.on0 = np.array([_bits(change.before) for change in changes], dtype=np.uint8)
        self.on1 = np.array([_bits(change.after) for change in changes], dtype=np.uint8)

    def effects(self, task: Task, table: StreamTable, queries: QuerySet, now_ms: int) -> CommandEffects:
        streams, places, inside0, inside1 = _either(
            table.inside(*self.old), table.inside(*self.new), len(self.slots)
        )
        ignored0 = table.ignores(streams, self.slots[places])
        settled = settle(
            Transition(
                inside0=inside0,
                ignored0=ignored0,
                watched0=self.watched0[places],
                inside1=inside1,
                watched1=self.watched1[places],
                begins=self.begins[places],
                ignores=self.ignores[places],
            )
        )
        table.remember(streams, self.slots[places], ignored0, settled.ignored1)
        on0, on1 = self.on0[places], self.on1[places]
        both0, both1 = (on0 & _BOTH) == _BOTH, (on1 & _BOTH) == _BOTH
        stays = settled.member0 & settled.member1
        leave = ((settled.member0 & ~settled.member1) | (stays & both0 & ~both1)) & ((on0 & _LEAVE) != 0)
        enter = ((settled.member1 & ~settled.member0) | (stays & both1 & ~both0)) & ((on1 & _ENTER) != 0)
        told = np.flatnonzero(leave | enter)
        told = told[np.lexsort((streams[told], places[told]))]
        streams, places = streams[told], places[told]
        records = BorderRecords(
            causes=places,
            streams=streams,
            seq=_number(table, streams),
            ts=np.full(len(told), table.time.at(now_ms), dtype=np.int64),
            starts=np.arange(len(told) + 1, dtype=np.int64),
            slots=self.slots[places],
            entered=enter[told],
        )
        table.touch(streams)
        return CommandEffects(task, self.causes, records)


def _either(old: Hits, new: Hits, width: int) -> tuple[Rows, Rows, Flags, Flags]:
    """Row and place of each pair that is in either of two hit lists, and in which of them it is."""
    keys0 = old.rows.astype(np.int64) * width + old.slots
    keys1 = new.rows.astype(np.int64) * width + new.slots
    keys = np.union1d(keys0, keys1)
    rows = (keys // max(width, 1)).astype(np.int32)
    places = (keys % max(width, 1)).astype(np.int32)
    return rows, places, np.isin(keys, keys0), np.isin(keys, keys1)


def _number(table: StreamTable, streams: Rows) -> NDArray[np.int64]:
    """The next numbers of the streams' records, in the order given."""
    seq: NDArray[np.int64] = table.seq[streams] + occurrences(streams) + 1
    np.maximum.at(table.seq, streams, seq)
    return seq
