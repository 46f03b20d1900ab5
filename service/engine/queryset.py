"""The queries of one source, in the form that matching needs: boxes in an index, columns by slot.

A slot is the dense number of an enabled or disabled query of the source. A slot that is given up stays
reserved until ``recycle``, so that effects which name it can still be turned into ids.

Only enabled queries lie in an index, and each in one of two: those with ``match`` among their kinds in
``matching``, the others in ``quiet``. Whoever writes matches must find all that hold a point anyway, and then
has the borders from the same hits. Queries without matches are asked for their borders only, which costs what
is crossed, however many hold the point. Two more indexes are empty unless queries ask for what they serve:
``keeping`` holds the ``keep`` regions, ``crossing`` the boxes of queries with ``cross``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.engine.boxes import Boxes, boxes_of, stretches
from service.engine.categories import Dictionary
from service.engine.rules import Rules
from service.index.default.mixed import DefaultIndex
from service.index.protocol import Bounds, BoxIndex, Hits, Points, Slots
from service.model import AttributeType, Interval, Kind, Query, Region, Source, Texts

KIND_BIT: Mapping[Kind, int] = {Kind.MATCH: 1, Kind.ENTER: 2, Kind.LEAVE: 4, Kind.CROSS: 8}

IndexFactory = Callable[[Source], BoxIndex]
"""Makes an empty index for the queries of a source."""


class QuerySet:
    """Queries of one source by slot; see the module. ``names[slot]`` is the id, "" for a free slot."""

    def __init__(
        self, source: Source, dictionaries: Mapping[str, Dictionary], make_index: IndexFactory
    ) -> None:
        self.source = source
        self.attributes = tuple(source.attributes)
        self.dictionaries = dictionaries
        self._make_index = make_index
        self._new_indexes()
        self.rules = Rules()
        self.names: list[str] = []
        self.slot_of: dict[str, int] = {}
        self.queries: list[Query | None] = []
        self.kinds: NDArray[np.uint8] = np.zeros(16, dtype=np.uint8)
        self.selects: NDArray[np.bool_] = np.zeros(16, dtype=np.bool_)
        #: by slot: whether it matched, or, of one without matches, a border was crossed, since it was indexed
        self.fired: NDArray[np.bool_] = np.zeros(16, dtype=np.bool_)
        self.marks: NDArray[np.uint8] = np.zeros(16, dtype=np.uint8)  # scratch, zeros between uses
        self.projections: list[tuple[str, ...]] = []
        self._free: list[int] = []
        self._given_up: list[int] = []

    def boxes(self, region: Region) -> tuple[Bounds, Bounds]:
        """A region as boxes over the source's attributes, ``float64[n, d]`` twice; free: -inf..inf."""
        _, lo, hi = boxes_of([(0, region)], self.attributes, self.dictionaries)
        return lo, hi

    def intervals(self, name: str, bound: Interval | Texts) -> Sequence[Interval]:
        """What a bound allows of the axis of an attribute, ascending."""
        return stretches(bound, self.dictionaries.get(name))

    def boxes_of(self, numbered: Iterable[tuple[int, Query | None]]) -> Boxes:
        """The boxes of some queries under their numbers; those that are None or disabled have none."""
        return self.boxes_in((number, active_region(query)) for number, query in numbered)

    def boxes_in(self, numbered: Iterable[tuple[int, Region | None]]) -> Boxes:
        """The boxes of some regions under their numbers; None has none."""
        regions = ((number, region) for number, region in numbered if region is not None)
        return boxes_of(regions, self.attributes, self.dictionaries)

    def put(self, queries: Sequence[Query]) -> Slots:
        """Registers or replaces queries (each id once) and returns their slots. One index update for all."""
        slots = [self._reserve(query.id) for query in queries]
        moves = [
            (slot, _places(self.queries[slot]), _places(query))
            for slot, query in zip(slots, queries, strict=True)
        ]
        for slot, query in zip(slots, queries, strict=True):
            self.queries[slot] = query
            self.kinds[slot] = sum(KIND_BIT[kind] for kind in query.on)
            self.rules.put(slot, query)
            self.projections[slot] = query.select
            self.selects[slot] = bool(query.select)
        self._move(moves)
        self.fired[[slot for slot, old, new in moves if old != new]] = False
        return np.array(slots, dtype=np.int32)

    def drop(self, ids: Sequence[str]) -> Slots:
        """Takes queries out; their slots stay readable until ``recycle``."""
        slots = [self.slot_of.pop(id) for id in ids]
        self._move([(slot, _places(self.queries[slot]), _NOWHERE) for slot in slots])
        for slot in slots:
            self.queries[slot] = None
        self._given_up.extend(slots)
        return np.array(slots, dtype=np.int32)

    def recycle(self) -> None:
        """Frees the slots given up since the last call: effects that name them have been written."""
        for slot in self._given_up:
            self.names[slot] = ""
            self.rules.forget(slot)
        self._free.extend(reversed(self._given_up))
        self._given_up.clear()

    def respecify(self, source: Source, dictionaries: Mapping[str, Dictionary]) -> None:
        """Takes on another version of the source. New attributes are new, unconstrained dimensions."""
        grown = tuple(source.attributes) != self.attributes
        self.source = source
        self.dictionaries = dictionaries
        self.attributes = tuple(source.attributes)
        if grown:
            self._new_indexes()
            self._move([(slot, _NOWHERE, _places(query)) for slot, query in enumerate(self.queries)])

    def mark_fired(self, matched: Slots, crossed: Slots) -> None:
        """Marks what a batch of events did: a slot a match, and a slot a border that a stream crossed, of
        which those of queries without matches count. O(n)."""
        self.fired[matched] = True
        self.fired[crossed[(self.kinds[crossed] & KIND_BIT[Kind.MATCH]) == 0]] = True

    def ids(self, slots: Slots) -> list[str]:
        names = self.names
        return [names[slot] for slot in slots.tolist()]

    @property
    def active(self) -> int:
        """How many queries are enabled."""
        return len(self.matching) + len(self.quiet)

    def stab(self, points: Points) -> Hits:
        """All (row, slot) of enabled queries around ``float64[m, d]`` points, by rising row. For answers to
        people; events ask the two indexes apart."""
        rows, slots = (
            np.concatenate(columns)
            for columns in zip(self.matching.stab(points), self.quiet.stab(points), strict=True)
        )
        order = np.argsort(rows, kind="stable")
        return Hits(rows[order], slots[order])

    def _new_indexes(self) -> None:
        self.matching, self.quiet, self.keeping = (self._make_index(self.source) for _ in range(3))
        self.crossing = DefaultIndex(len(self.attributes))

    @property
    def indexes(self) -> tuple[BoxIndex, ...]:
        """All of them, in the order of ``_Places``."""
        return self.matching, self.quiet, self.keeping, self.crossing

    def _move(self, moves: Sequence[tuple[int, _Places, _Places]]) -> None:
        """Takes slots from where they are in each index to where they shall be."""
        for place, index in enumerate(self.indexes):
            moved = [(slot, old[place], new[place]) for slot, old, new in moves if old[place] != new[place]]
            gone = [slot for slot, old, _ in moved if old is not None]
            if gone:
                index.remove(np.array(gone, dtype=np.int32))
            boxes = self.boxes_in((slot, new) for slot, _, new in moved)
            if len(boxes.owners):
                index.insert(*boxes)

    def _reserve(self, id: str) -> int:
        slot = self.slot_of.get(id)
        if slot is not None:
            return slot
        if self._free:
            slot = self._free.pop()
            self.names[slot] = id
        else:
            slot = len(self.names)
            self.names.append(id)
            self.queries.append(None)
            self.projections.append(())
            if slot >= len(self.kinds):
                self.kinds = np.concatenate([self.kinds, np.zeros_like(self.kinds)])
                self.rules.grow()
                self.marks = np.zeros_like(self.kinds)
                self.selects = np.concatenate([self.selects, np.zeros_like(self.selects)])
                self.fired = np.concatenate([self.fired, np.zeros_like(self.fired)])
        self.slot_of[id] = slot
        return slot


class _Places(NamedTuple):
    """The region under which a query lies in each index; None: not in it."""

    matching: Region | None = None
    quiet: Region | None = None
    keeping: Region | None = None
    crossing: Region | None = None


_NOWHERE = _Places()


def _places(query: Query | None) -> _Places:
    region = active_region(query)
    if query is None or region is None:
        return _NOWHERE
    return _Places(
        matching=region if Kind.MATCH in query.on else None,
        quiet=None if Kind.MATCH in query.on else region,
        keeping=query.keep_region,
        crossing=region if Kind.CROSS in query.on else None,
    )


def active_region(query: Query | None) -> Region | None:
    """The ``where`` of an enabled query."""
    return query.region if query is not None and query.enabled else None


def new_dictionaries(source: Source, old: Mapping[str, Dictionary] | None = None) -> dict[str, Dictionary]:
    """One dictionary a category attribute; those that exist are kept."""
    old = old or {}
    return {
        name: old.get(name) or Dictionary()
        for name, kind in source.attributes.items()
        if kind is AttributeType.CATEGORY
    }


def default_index(source: Source) -> BoxIndex:
    return DefaultIndex(len(source.attributes))
