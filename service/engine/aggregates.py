"""Aggregates over borders in one partition: whose members are counted, and when somebody is told.

Idea: a fold of the changes of membership and value that happen anyway (``events``, ``due``, ``changes``), so
queries that do not ask add nothing. It moves nobody: whatever is told follows from what was decided before.

A change is told at once where ``every`` has passed since the query was last told, at the partition's time;
otherwise when it has passed, if what there is to tell is then still other than what was told. So a query
is told at most once in ``every``, never the same twice, and always how it ended. What ends (the query is
deleted, or asks no more) is told at once.

Invariants: a tally has exactly the members of its query, each at its last value; something is due of a query
only if it has changed since it was told. What was told, and when, is saved with each commit; all else follows
from the streams when a partition is taken on.

Not for: counting (``tally``); membership (``delta``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

import msgspec

from service.engine.kernels import NO_TIME
from service.engine.marks import Marks
from service.engine.rules import NEVER
from service.engine.tally import Content, Numbers, Tally, empty
from service.engine.versions import check_version, read_strictly
from service.model import Query

Members = Iterable[tuple[int, Sequence[float]]]
"""The members of a query by row, each with its point."""

KEY = b"a"
"""State records of this module are ``KEY`` and the id of a query."""
_VERSION = 1


class AggregateRecord(NamedTuple):
    """What is told of a query; ``ts`` is the partition's time, ms."""

    query: str
    ts: int
    content: Content


class Move(NamedTuple):
    """A stream is at a point now, and has become a member of some slots and none of others."""

    row: int
    point: Sequence[float]
    leaves: Sequence[int]
    enters: Sequence[int]


class _Told(msgspec.Struct, array_like=True, frozen=True):
    v: int
    at: int
    members: int
    of: dict[str, Numbers]


_decode = msgspec.msgpack.Decoder(_Told).decode
_encode = msgspec.msgpack.Encoder().encode


class _Asked:
    """A query that asks: its tally, what it was told, and when it will be told again (NEVER: no need)."""

    __slots__ = ("due", "every", "id", "slot", "tally", "told")

    def __init__(self, slot: int, id: str, every: int, tally: Tally, told: _Told | None) -> None:
        self.slot = slot
        self.id = id
        self.every = every
        self.tally = tally
        self.told = told
        self.due = NEVER


class PartitionAggregates:
    """See the module."""

    def __init__(self) -> None:
        self._asked: dict[int, _Asked] = {}
        self._slots_of: dict[int, set[int]] = {}
        #: the slots that ask, and the rows that are members of any
        self.slots, self.rows = Marks(), Marks()
        self._due: list[tuple[int, str, int]] = []
        self._unsaved: dict[str, _Told | None] = {}
        #: what was told of queries that are gone without a word
        self._orphans: dict[str, _Told] = {}

    def __len__(self) -> int:
        """How many queries ask."""
        return len(self._asked)

    def tally(self, slot: int) -> Tally | None:
        """The tally of a query that asks; not to be changed."""
        asked = self._asked.get(slot)
        return asked.tally if asked is not None else None

    @property
    def next_due(self) -> int:
        """Nobody is to be told before this, ms; NEVER if nobody is."""
        if self._orphans:
            return NO_TIME
        return self._due[0][0] if self._due else NEVER

    # ---- what happens

    def follow(self, changes: Iterable[tuple[int, Sequence[Move]]], up_to: int) -> list[AggregateRecord]:
        """Takes in moves, those of one time together, and returns what is told until ``up_to``, ms, in order.
        Times rise. O(moves log n + told)."""
        records: list[AggregateRecord] = []
        for now, moves in changes:
            records += self._flush(now)
            touched = {asked.id: asked for move in moves for asked in self._move(move)}
            records += [record for id in sorted(touched) for record in self._changed(touched[id], now)]
        return records + self._flush(up_to)

    def put(
        self, slot: int, query: Query, attributes: Sequence[str], members: Members, now: int
    ) -> list[AggregateRecord]:
        """A query asks, from now on or otherwise than before. ``query.aggregates`` is not None."""
        return self._changed(self._replace(slot, query, attributes, members), now)

    def end(self, slot: int, now: int) -> list[AggregateRecord]:
        """A query is gone, or asks no more; nothing happens where it has not asked."""
        asked = self._asked.get(slot)
        if asked is None:
            return []
        self._forget(asked)
        return self._farewell(asked.id, asked.told, now)

    def recolumn(self, attributes: Sequence[str]) -> None:
        """The attributes of points are these from now on."""
        for asked in self._asked.values():
            asked.tally.recolumn(_columns(asked.tally.names, attributes))

    def _move(self, move: Move) -> Iterator[_Asked]:
        """Takes in one move; yields the queries that it changes and for which nothing is due."""
        row, point = move.row, move.point
        for slot in move.leaves:
            asked = self._asked[slot]
            asked.tally.drop(row)
            self._part(row, slot)
            if asked.due == NEVER:
                yield asked
        for slot in move.enters:
            self._join(row, slot)
        for slot in self._slots_of.get(row, ()):
            asked = self._asked[slot]
            if asked.tally.put(row, point) and asked.due == NEVER:
                yield asked

    def _changed(self, asked: _Asked, now: int) -> list[AggregateRecord]:
        """Tells what there is now, or sees to it that it will be told."""
        if asked.due != NEVER:
            return []
        free = now if asked.told is None else asked.told.at + asked.every
        if free <= now:
            return self._tell(asked, now)
        asked.due = free
        heappush(self._due, (free, asked.id, asked.slot))
        return []

    def _flush(self, up_to: int) -> list[AggregateRecord]:
        """Tells what is due."""
        records: list[AggregateRecord] = []
        for id in sorted(self._orphans):
            records += self._farewell(id, self._orphans.pop(id), up_to)
        while self._due and self._due[0][0] <= up_to:
            due, id, slot = heappop(self._due)
            asked = self._asked.get(slot)
            if asked is not None and (asked.due, asked.id) == (due, id):
                asked.due = NEVER
                records += self._tell(asked, due)
        return records

    def _tell(self, asked: _Asked, now: int) -> list[AggregateRecord]:
        content = asked.tally.content()
        if _knows(asked.told, content):
            return []
        asked.told = self._unsaved[asked.id] = _Told(_VERSION, now, content.members, content.of)
        return [AggregateRecord(asked.id, now, content)]

    def _farewell(self, id: str, told: _Told | None, now: int) -> list[AggregateRecord]:
        if told is None:
            return []
        self._unsaved[id] = None
        return [AggregateRecord(id, now, empty(told.of))] if told.members else []

    # ---- who asks

    def _replace(self, slot: int, query: Query, attributes: Sequence[str], members: Members) -> _Asked:
        assert query.aggregates is not None
        before = self._asked.get(slot)
        if before is not None:
            self._forget(before)
        every, names = query.aggregates
        tally = Tally(names, _columns(names, attributes))
        asked = _Asked(slot, query.id, every, tally, before.told if before is not None else None)
        self._asked[slot] = asked
        self.slots.put(slot, True)
        for row, point in members:
            self._join(row, slot)
            tally.put(row, point)
        return asked

    def _forget(self, asked: _Asked) -> None:
        for row in asked.tally.members:
            self._part(row, asked.slot)
        del self._asked[asked.slot]
        self.slots.put(asked.slot, False)

    def _join(self, row: int, slot: int) -> None:
        self._slots_of.setdefault(row, set()).add(slot)
        self.rows.put(row, True)

    def _part(self, row: int, slot: int) -> None:
        slots = self._slots_of[row]
        slots.remove(slot)
        if not slots:
            del self._slots_of[row]
            self.rows.put(row, False)

    # ---- the state log

    def save(self) -> Iterator[tuple[bytes, bytes | None]]:
        """What was told since the last call; None where nothing is to be remembered."""
        for id, told in self._unsaved.items():
            yield KEY + id.encode(), None if told is None else _encode(told)
        self._unsaved.clear()

    def load(
        self,
        records: Iterable[tuple[bytes, bytes]],
        queries: Iterable[tuple[int, Query, Members]],
        attributes: Sequence[str],
    ) -> None:
        """Begins with the queries that ask and what they have been told. Raises ValueError on a record of a
        newer version."""
        self._orphans = {key.removeprefix(KEY).decode(): _read(key, value) for key, value in records}
        for slot, query, members in queries:
            asked = self._replace(slot, query, attributes, members)
            asked.told = self._orphans.pop(query.id, None)
            if not _knows(asked.told, asked.tally.content()):
                asked.due = asked.told.at + asked.every if asked.told is not None else NO_TIME
                heappush(self._due, (asked.due, asked.id, slot))


def _columns(names: Iterable[str], attributes: Sequence[str]) -> tuple[int, ...]:
    return tuple(attributes.index(name) for name in names)


def _knows(told: _Told | None, content: Content) -> bool:
    """Whether there is nothing new. Who was told nothing knows that there is nobody."""
    if told is None or not content.members:
        return not content.members and (told is None or not told.members)
    return (told.members, told.of) == content


@read_strictly()
def _read(key: bytes, value: bytes) -> _Told:
    told = _decode(value)
    check_version(key, told.v, _VERSION)
    return told
