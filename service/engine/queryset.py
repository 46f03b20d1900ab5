"""The queries of one source, in the form that matching needs: boxes in an index, columns by slot.

A slot is the dense number of an enabled or disabled query of the source. A slot that is given up stays
reserved until ``recycle``, so that effects which name it can still be turned into ids.

Only enabled queries lie in an index, and each in one of two: those with ``match`` among their kinds in
``matching``, the others in ``quiet``. Whoever writes matches must find all that hold a point anyway, and then
has the borders from the same hits. Queries without matches are asked for their borders only, which costs what
is crossed, however many hold the point. Two more indexes are empty unless queries ask for what they serve:
``keeping`` holds the ``keep`` regions, ``crossing`` the boxes of queries with ``cross``. Queries with shapes
lie in ``shaped``, whatever they want to be told, since only a test of both ends shows a border (``clauses``);
their ``keep`` regions, if those have shapes, in ``shaped_keeping``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from service.engine.categories import Dictionary
from service.engine.clauses import Boxes, Clause, ShapedIndex
from service.engine.cover import cover
from service.engine.rules import Rules
from service.engine.shapes import Located
from service.geometry import Shape
from service.index.default.mixed import DefaultIndex
from service.index.protocol import Borders, Bounds, BoxIndex, Hits, Points, Slots
from service.model import (
    AttributeType,
    Conjunct,
    Interval,
    Kind,
    Query,
    Region,
    Source,
    Texts,
    framed,
    shapes_of,
)

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
        self.projections: list[tuple[str, ...]] = []
        self._free: list[int] = []
        self._given_up: list[int] = []
        self._clauses: dict[int, tuple[Region, list[Clause]]] = {}

    def boxes(self, region: Region) -> tuple[Bounds, Bounds]:
        """A region without shapes as boxes over the source's attributes, ``float64[n, d]`` twice; free:
        -inf..inf."""
        assert not region.has_shapes, "shapes are more than boxes"
        return self._bounds(region.conjuncts)

    def clauses(self, region: Region) -> list[Clause]:
        """Any region as clauses, each with at least one box. Those of a region that changes are asked for
        several times, and are made once until ``recycle``."""
        _, made = self._clauses.get(id(region), (region, None))
        if made is None:
            made = self._made_clauses(region)
            self._clauses[id(region)] = region, made
        return made

    def _made_clauses(self, region: Region) -> list[Clause]:
        columns = {name: column for column, name in enumerate(self.attributes)}
        boxes: defaultdict[tuple[Shape, ...], list[Conjunct]] = defaultdict(list)
        for conjunct in region.conjuncts:
            shapes = shapes_of(conjunct)
            ordered = shapes.ordered() if shapes else []
            for cells in product(*map(cover, ordered)):
                box = framed(
                    conjunct, ((shape, cell.rectangle) for shape, cell in zip(ordered, cells, strict=True))
                )
                if box is not None:
                    unsure = (shape for shape, cell in zip(ordered, cells, strict=True) if not cell.sure)
                    boxes[tuple(unsure)].append(box)
        return [
            Clause(*self._bounds(found), tuple(Located(shape, columns) for shape in shapes))
            for shapes, found in boxes.items()
        ]

    def _bounds(self, conjuncts: Iterable[Conjunct]) -> tuple[Bounds, Bounds]:
        rows: list[tuple[Interval, ...]] = []
        free = [Interval(-np.inf, np.inf)]
        for conjunct in conjuncts:
            axes: list[Sequence[Interval]] = []
            for name in self.attributes:
                bound = conjunct.get(name)
                if isinstance(bound, Interval):
                    axes.append([bound])
                elif isinstance(bound, Texts):
                    axes.append(self.dictionaries[name].intervals(bound))
                else:
                    axes.append(free)
            rows.extend(product(*axes))
        flat = np.array(rows, dtype=np.float64).reshape(len(rows), len(self.attributes), 2)
        return np.ascontiguousarray(flat[:, :, 0]), np.ascontiguousarray(flat[:, :, 1])

    def boxes_of(self, numbered: Iterable[tuple[int, Query | None]]) -> Boxes:
        """The boxes of some queries under their numbers; those that are None or disabled have none."""
        return self.boxes_in((number, active_region(query)) for number, query in numbered)

    def boxes_in(self, numbered: Iterable[tuple[int, Region | None]]) -> Boxes:
        """The boxes of some regions under their numbers; None has none."""
        found: list[tuple[int, Sequence[Clause]]] = []
        for number, region in numbered:
            if region is not None and region.has_shapes:
                found.append((number, self.clauses(region)))
            elif region is not None:
                found.append((number, [Clause(*self._bounds(region.conjuncts), ())]))
        return Boxes.of(found, len(self.attributes))

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
        self._clauses.clear()
        self._free.extend(reversed(self._given_up))
        self._given_up.clear()

    def respecify(self, source: Source, dictionaries: Mapping[str, Dictionary]) -> None:
        """Takes on another version of the source. New attributes are new, unconstrained dimensions."""
        grown = tuple(source.attributes) != self.attributes
        self.source = source
        self.dictionaries = dictionaries
        self.attributes = tuple(source.attributes)
        if grown:
            self._clauses.clear()
            self._new_indexes()
            self._move([(slot, _NOWHERE, _places(query)) for slot, query in enumerate(self.queries)])

    def ids(self, slots: Slots) -> list[str]:
        names = self.names
        return [names[slot] for slot in slots.tolist()]

    @property
    def active(self) -> int:
        """How many queries are enabled."""
        return len(self.matching) + len(self.quiet) + len(self.shaped)

    def hits(self, points: Points) -> Hits:
        """(row, slot) of the queries that match or have shapes, around ``float64[m, d]`` points, sorted."""
        hits = self.matching.stab(points)
        return _merged(hits, self.shaped.stab(points)) if len(self.shaped) else hits

    def stab(self, points: Points) -> Hits:
        """All (row, slot) of enabled queries around the points, sorted. For answers to people."""
        return _merged(self.hits(points), self.quiet.stab(points))

    def keep_borders(self, before: Points, after: Points) -> Borders | None:
        """The borders of ``keep`` regions between the points, row by row; None if there are no regions."""
        borders = self.keeping.borders(before, after) if len(self.keeping) else None
        if not len(self.shaped_keeping):
            return borders
        shaped = self.shaped_keeping.borders(before, after)
        return shaped if borders is None else _merged(borders, shaped)

    def _new_indexes(self) -> None:
        matching, quiet, keeping, shaped, shaped_keeping = (self._make_index(self.source) for _ in range(5))
        self.matching, self.quiet, self.keeping = matching, quiet, keeping
        self.crossing = DefaultIndex(len(self.attributes))
        self.shaped, self.shaped_keeping = ShapedIndex(shaped), ShapedIndex(shaped_keeping)

    @property
    def indexes(self) -> tuple[BoxIndex, ...]:
        """All that hold boxes; the first ones are in the order of ``_Places``."""
        plain = self.matching, self.quiet, self.keeping, self.crossing
        return *plain, self.shaped.boxes, self.shaped_keeping.boxes

    def _move(self, moves: Sequence[tuple[int, _Places, _Places]]) -> None:
        """Takes slots from where they are in each index to where they shall be."""
        plain = self.matching, self.quiet, self.keeping, self.crossing
        indexes: tuple[BoxIndex | ShapedIndex, ...] = (*plain, self.shaped, self.shaped_keeping)
        for place, index in enumerate(indexes):
            moved = [(slot, old[place], new[place]) for slot, old, new in moves if old[place] != new[place]]
            gone = [slot for slot, old, _ in moved if old is not None]
            come = [(slot, new) for slot, _, new in moved if new is not None]
            if gone:
                index.remove(np.array(gone, dtype=np.int32))
            if isinstance(index, ShapedIndex):
                index.insert((slot, self.clauses(region)) for slot, region in come)
            elif come:
                boxes = self.boxes_in(come)
                index.insert(boxes.owners, boxes.lo, boxes.hi)

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
                self.selects = np.concatenate([self.selects, np.zeros_like(self.selects)])
        self.slot_of[id] = slot
        return slot


class _Places(NamedTuple):
    """The region under which a query lies in each index; None: not in it."""

    matching: Region | None = None
    quiet: Region | None = None
    keeping: Region | None = None
    crossing: Region | None = None
    shaped: Region | None = None
    shaped_keeping: Region | None = None


_NOWHERE = _Places()


def _places(query: Query | None) -> _Places:
    region = active_region(query)
    if query is None or region is None:
        return _NOWHERE
    keep, shaped = query.keep_region, region.has_shapes
    shaped_keep = keep is not None and keep.has_shapes
    matches = Kind.MATCH in query.on
    return _Places(
        matching=region if matches and not shaped else None,
        quiet=region if not matches and not shaped else None,
        keeping=None if shaped_keep else keep,
        crossing=region if Kind.CROSS in query.on else None,
        shaped=region if shaped else None,
        shaped_keeping=keep if shaped_keep else None,
    )


Pairs = TypeVar("Pairs", Hits, Borders)


def _merged(one: Pairs, other: Pairs) -> Pairs:
    """Pairs of different slots in one order."""
    columns = [np.concatenate(pair) for pair in zip(one, other, strict=True)]
    order = np.lexsort((columns[1], columns[0]))
    return type(one)(*(column[order] for column in columns))


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
