"""The queries of one source, in the form that matching needs: boxes in an index, columns by slot.

A slot is the dense number of an enabled or disabled query of the source. A slot that is given up stays
reserved until ``recycle``, so that effects which name it can still be turned into ids.

Only enabled queries lie in an index, and each in one of two: those with ``match`` among their kinds in
``matching``, the others in ``quiet``. Whoever writes matches must find all that hold a point anyway, and then
has the borders from the same hits. Queries without matches are asked for their borders only, which costs what
is crossed, however many hold the point.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.engine.categories import Dictionary
from service.index.default.mixed import DefaultIndex
from service.index.protocol import Bounds, BoxIndex, Hits, Points, Slots
from service.model import AttributeType, Initial, Interval, Kind, Query, Region, Source

KIND_BIT: Mapping[Kind, int] = {Kind.MATCH: 1, Kind.ENTER: 2, Kind.LEAVE: 4, Kind.CROSS: 8}

IndexFactory = Callable[[Source], BoxIndex]
"""Makes an empty index for the queries of a source."""


class Boxes(NamedTuple):
    """``[lo[i], hi[i])`` belongs to the number ``owners[i]``."""

    owners: Slots
    lo: Bounds
    hi: Bounds


class QuerySet:
    """Queries of one source by slot; see the module. ``names[slot]`` is the id, "" for a free slot."""

    def __init__(
        self, source: Source, dictionaries: Mapping[str, Dictionary], make_index: IndexFactory
    ) -> None:
        self.source = source
        self.attributes = tuple(source.attributes)
        self.dictionaries = dictionaries
        self._make_index = make_index
        self.matching, self.quiet = self._new_indexes()
        self.names: list[str] = []
        self.slot_of: dict[str, int] = {}
        self.queries: list[Query | None] = []
        self.kinds: NDArray[np.uint8] = np.zeros(16, dtype=np.uint8)
        self.remembers: NDArray[np.bool_] = np.zeros(16, dtype=np.bool_)
        self.selects: NDArray[np.bool_] = np.zeros(16, dtype=np.bool_)
        self._ignores: NDArray[np.bool_] = np.zeros(16, dtype=np.bool_)
        self.marks: NDArray[np.uint8] = np.zeros(16, dtype=np.uint8)  # scratch, zeros between uses
        self.projections: list[tuple[str, ...]] = []
        self._free: list[int] = []
        self._given_up: list[int] = []

    def ignores(self, slots: Slots) -> NDArray[np.bool_]:
        return self._ignores[slots]

    def boxes(self, region: Region) -> tuple[Bounds, Bounds]:
        """A region as boxes over the source's attributes, ``float64[n, d]`` twice; free: -inf..inf."""
        rows: list[tuple[Interval, ...]] = []
        free = [Interval(-np.inf, np.inf)]
        for conjunct in region.conjuncts:
            axes: list[Sequence[Interval]] = []
            for name in self.attributes:
                bound = conjunct.get(name)
                if bound is None:
                    axes.append(free)
                elif isinstance(bound, Interval):
                    axes.append([bound])
                else:
                    axes.append(self.dictionaries[name].intervals(bound))
            rows.extend(product(*axes))
        flat = np.array(rows, dtype=np.float64).reshape(len(rows), len(self.attributes), 2)
        return np.ascontiguousarray(flat[:, :, 0]), np.ascontiguousarray(flat[:, :, 1])

    def boxes_of(self, numbered: Iterable[tuple[int, Query | None]]) -> Boxes:
        """The boxes of some queries under their numbers; those that are None or disabled have none."""
        dims = len(self.attributes)
        owners, lows, highs = [np.empty(0, np.int32)], [np.empty((0, dims))], [np.empty((0, dims))]
        for number, query in numbered:
            if query is not None and query.enabled:
                lo, hi = self.boxes(query.region)
                owners.append(np.full(len(lo), number, dtype=np.int32))
                lows.append(lo)
                highs.append(hi)
        return Boxes(np.concatenate(owners), np.concatenate(lows), np.concatenate(highs))

    def put(self, queries: Sequence[Query]) -> Slots:
        """Registers or replaces queries (each id once) and returns their slots. One index update for all."""
        slots = [self._reserve(query.id) for query in queries]
        moved = [
            slot
            for slot, query in zip(slots, queries, strict=True)
            if _indexed(self.queries[slot]) != _indexed(query)
        ]
        self._unindex(moved)
        for slot, query in zip(slots, queries, strict=True):
            self.queries[slot] = query
            self.kinds[slot] = sum(KIND_BIT[kind] for kind in query.on)
            self._ignores[slot] = query.initial is Initial.IGNORE
            self.remembers[slot] |= self._ignores[slot]
            self.projections[slot] = query.select
            self.selects[slot] = bool(query.select)
        self._index(moved)
        return np.array(slots, dtype=np.int32)

    def drop(self, ids: Sequence[str]) -> Slots:
        """Takes queries out; their slots stay readable until ``recycle``."""
        slots = [self.slot_of.pop(id) for id in ids]
        self._unindex(slots)
        for slot in slots:
            self.queries[slot] = None
        self._given_up.extend(slots)
        return np.array(slots, dtype=np.int32)

    def recycle(self) -> None:
        """Frees the slots given up since the last call: effects that name them have been written."""
        for slot in self._given_up:
            self.names[slot] = ""
            self.remembers[slot] = False
        self._free.extend(reversed(self._given_up))
        self._given_up.clear()

    def respecify(self, source: Source, dictionaries: Mapping[str, Dictionary]) -> None:
        """Takes on another version of the source. New attributes are new, unconstrained dimensions."""
        grown = tuple(source.attributes) != self.attributes
        self.source = source
        self.dictionaries = dictionaries
        self.attributes = tuple(source.attributes)
        if grown:
            self.matching, self.quiet = self._new_indexes()
            self._index(list(range(len(self.queries))))

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

    def _new_indexes(self) -> tuple[BoxIndex, BoxIndex]:
        return self._make_index(self.source), self._make_index(self.source)

    def _by_index(self, slots: Sequence[int]) -> list[tuple[BoxIndex, list[int]]]:
        """The enabled ones of some slots, by the index that they belong to."""
        places = [(slot, _indexed(self.queries[slot])) for slot in slots]
        return [
            (index, [slot for slot, place in places if place is not None and place[0] is matches])
            for index, matches in ((self.matching, True), (self.quiet, False))
        ]

    def _unindex(self, slots: Sequence[int]) -> None:
        for index, owned in self._by_index(slots):
            if owned:
                index.remove(np.array(owned, dtype=np.int32))

    def _index(self, slots: Sequence[int]) -> None:
        for index, owned in self._by_index(slots):
            if owned:
                index.insert(*self.boxes_of((slot, self.queries[slot]) for slot in owned))

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
                self.remembers = np.concatenate([self.remembers, np.zeros_like(self.remembers)])
                self.marks = np.zeros_like(self.kinds)
                self.selects = np.concatenate([self.selects, np.zeros_like(self.selects)])
                self._ignores = np.concatenate([self._ignores, np.zeros_like(self._ignores)])
        self.slot_of[id] = slot
        return slot


def _indexed(query: Query | None) -> tuple[bool, Region] | None:
    """Whether a query is among those that match, and its region; None if it is in no index."""
    if query is None or not query.enabled:
        return None
    return Kind.MATCH in query.on, query.region


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
