"""The queries of one source, in the form that matching needs: boxes in an index, columns by slot.

A slot is the dense number of an enabled or disabled query of the source. A slot that is given up stays
reserved until ``recycle``, so that effects which name it can still be turned into ids.

Only enabled queries lie in an index, and each in one of two: those with ``match`` among their kinds in
``matching``, the others in ``quiet``. Whoever writes matches must find all that hold a point anyway, and then
has the borders from the same hits. Queries without matches are asked for their borders only, which costs what
is crossed, however many hold the point. Two more indexes are empty unless queries ask for what they serve:
``keeping`` holds the ``keep`` regions, ``crossing`` the boxes of queries with ``cross``. Queries with shapes
lie in ``shaped``, whatever they want to be told, since only a test of both ends shows a border (``clauses``);
their ``keep`` regions, if those have shapes, in ``shaped_keeping``, each together with ``where``: the library
rounds when it says that one shape lies in another, and ``crossings`` counts on that to the last bit.

Queries of all tenants lie together: what each is told is parted where records are made (``tenancy``).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from service.engine.boxes import boxes_of, stretches
from service.engine.categories import Dictionary
from service.engine.clauses import Clause, Filter, ShapedIndex, clauses_of
from service.engine.idtexts import IdTexts
from service.engine.rules import Rules
from service.engine.tenancy import Tenancy
from service.index.default.level import PartView
from service.index.default.mixed import DefaultIndex
from service.index.protocol import Borders, BoxIndex, Hits, Points, Slots
from service.model import AttributeType, Bound, Conjunct, Interval, Kind, Query, Region, Source, Texts
from service.tenants import split

KIND_BIT: Mapping[Kind, int] = {Kind.MATCH: 1, Kind.ENTER: 2, Kind.LEAVE: 4, Kind.CROSS: 8}


@lru_cache
def bits_of(kinds: frozenset[Kind]) -> int:
    """The kinds of records that a query wants as ``KIND_BIT`` has them."""
    return sum(KIND_BIT[kind] for kind in kinds)


IndexFactory = Callable[[Source], DefaultIndex]
"""Makes an empty index for the queries of a source."""


class QuerySet:
    """Queries of one source by slot; see the module. ``names[slot]`` is the id, "" for a free slot, and
    ``public_names[slot]`` what its tenant calls it; ``id_texts`` has the same for kernels."""

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
        self.public_names: list[str] = []
        self.id_texts = IdTexts(16)
        self.tenants = Tenancy(16)
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
        self._clauses: dict[int, tuple[Region, list[Clause]]] = {}

    def intervals(self, name: str, bound: Bound) -> Sequence[Interval]:
        """What a bound allows of the axis of an attribute, ascending; a shape bounds no single one."""
        return stretches(bound, self.dictionaries.get(name))

    def clauses(self, region: Region) -> list[Clause]:
        """A region as clauses. Those of a region that changes are asked for several times, and are made once
        until ``recycle``."""
        _, made = self._clauses.get(id(region), (region, None))
        if made is None:
            made = clauses_of(region, self.attributes, self.dictionaries)
            self._clauses[id(region)] = region, made
        return made

    def filter_of(self, numbered: Iterable[tuple[int, Query | None]]) -> Filter:
        """The regions of some queries under their numbers; those that are None or disabled have none."""
        return self.filter_in((number, active_region(query)) for number, query in numbered)

    def filter_in(self, numbered: Iterable[tuple[int, Region | None]]) -> Filter:
        """Some regions under their numbers; None is nowhere."""
        shaped: list[tuple[int, Region]] = []

        def plain() -> Iterator[tuple[int, Sequence[Conjunct]]]:
            for number, region in numbered:
                if region is not None and region.has_shapes:
                    shaped.append((number, region))
                elif region is not None:
                    yield number, region.conjuncts

        boxes = boxes_of(plain(), self.attributes, self.dictionaries)
        return Filter.of(boxes, [(number, self.clauses(region)) for number, region in shaped])

    def put(self, queries: Sequence[Query]) -> Slots:
        """Registers or replaces queries (each id once) and returns their slots. One index update for all."""
        slots = self._slots([query.id for query in queries])
        moves = [
            (slot, _places(self.queries[slot]), _places(query))
            for slot, query in zip(slots, queries, strict=True)
        ]
        for slot, query in zip(slots, queries, strict=True):
            self._uncount(slot)
            self.tenants.count(slot, 1, enabled=query.enabled)
            self.queries[slot] = query
            self.projections[slot] = query.select
        put = np.array(slots, dtype=np.int32)
        self.kinds[put] = [bits_of(query.on) for query in queries]
        self.selects[put] = [bool(query.select) for query in queries]
        self.rules.put(put, queries)
        self._move(moves)
        self.fired[[slot for slot, old, new in moves if old != new]] = False
        return put

    def drop(self, ids: Sequence[str]) -> Slots:
        """Takes queries out; their slots stay readable until ``recycle``."""
        slots = [self.slot_of.pop(id) for id in ids]
        self._move([(slot, _places(self.queries[slot]), _NOWHERE) for slot in slots])
        for slot in slots:
            self._uncount(slot)
            self.queries[slot] = None
        self._given_up.extend(slots)
        return np.array(slots, dtype=np.int32)

    def recycle(self) -> None:
        """Frees the slots given up since the last call: effects that name them have been written."""
        for slot in self._given_up:
            self.names[slot] = self.public_names[slot] = ""
            self.rules.forget(slot)
        self._clauses.clear()
        self._free.extend(reversed(self._given_up))
        self._given_up.clear()

    def codes_in_use(self, name: str) -> set[float]:
        """The codes of all texts of a category that regions name. O(queries)."""
        dictionary, codes = self.dictionaries[name], set[float]()
        for query in self.queries:
            for region in (query.region, query.keep_region) if query is not None else ():
                for conjunct in region.conjuncts if region is not None else ():
                    bound = conjunct.get(name)
                    if isinstance(bound, Texts):
                        codes.update(map(dictionary.code, bound.values))
        return codes

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

    def mark_fired(self, matched: Slots, crossed: Slots) -> None:
        """Marks what a batch of events did: a slot a match, and a slot a border that a stream crossed, of
        which those of queries without matches count. O(n)."""
        self.fired[matched] = True
        self.fired[crossed[(self.kinds[crossed] & KIND_BIT[Kind.MATCH]) == 0]] = True

    def ids(self, slots: Slots) -> list[str]:
        """What the tenants of some queries call them."""
        names = self.public_names
        return [names[slot] for slot in slots.tolist()]

    def ids_of(self, tenant: str, slots: Iterable[int]) -> list[str]:
        """What a tenant calls those of some queries that are its own, sorted."""
        return sorted(self.public_names[slot] for slot in self.tenants.own(tenant, slots))

    def hits(self, points: Points) -> Hits:
        """(row, slot) of the queries that match or have shapes, around ``float64[m, d]`` points, by rising
        row."""
        hits = self.matching.stab(points)
        return _merged(hits, self.shaped.stab(points)) if len(self.shaped) else hits

    def stab(self, points: Points) -> Hits:
        """All (row, slot) of enabled queries around the points, by rising row. For answers to people; events
        ask the indexes apart."""
        return _merged(self.hits(points), self.quiet.stab(points))

    @property
    def has_keeps(self) -> bool:
        """Whether any enabled query has a ``keep`` region."""
        return len(self.keeping) > 0 or len(self.shaped_keeping) > 0

    def keep_borders(self, before: Points, after: Points) -> Borders:
        """The borders of ``keep`` regions between the points, by rising row."""
        borders = self.keeping.borders(before, after)
        if not len(self.shaped_keeping):
            return borders
        return _merged(borders, self.shaped_keeping.borders(before, after))

    def parts_holding(self, query: Query) -> list[tuple[PartView, int]]:
        """The parts of its index that the boxes of a registered query lie in, and how many; none of a
        disabled one. O(boxes that wait to be filed)."""
        slot = self.slot_of[query.id]
        if query.region.has_shapes:
            index, numbers = self.shaped.boxes, self.shaped.clauses_of(slot)
        else:
            index, numbers = self.matching if Kind.MATCH in query.on else self.quiet, [slot]
        held: Counter[PartView] = Counter()
        for number in numbers:
            held.update(dict(index.holding(number)))
        return list(held.items())

    def _new_indexes(self) -> None:
        made = (self._make_index(self.source) for _ in range(6))
        self.matching, self.quiet, self.keeping, self.crossing, shaped, shaped_keeping = made
        self.shaped, self.shaped_keeping = ShapedIndex(shaped), ShapedIndex(shaped_keeping)

    @property
    def indexes(self) -> dict[str, DefaultIndex]:
        """All that hold boxes, by name."""
        return {
            "matching": self.matching,
            "quiet": self.quiet,
            "keeping": self.keeping,
            "crossing": self.crossing,
            "shaped": self.shaped.boxes,
            "shaped_keeping": self.shaped_keeping.boxes,
        }

    def follow_moves(self) -> None:
        """Makes those indexes ready that are asked about moves; see ``DefaultIndex.follow_moves``."""
        for index in (self.quiet, self.keeping, self.crossing):
            index.follow_moves()

    def _move(self, moves: Sequence[tuple[int, _Places, _Places]]) -> None:
        """Takes slots from where they are in each index to where they shall be."""
        gone: defaultdict[str, list[int]] = defaultdict(list)
        come: defaultdict[str, list[tuple[int, Region]]] = defaultdict(list)
        for slot, old, new in moves:
            for name, region in old.items():
                if new.get(name) != region:
                    gone[name].append(slot)
            for name, region in new.items():
                if old.get(name) != region:
                    come[name].append((slot, region))
        for name, slots in gone.items():
            index: BoxIndex | ShapedIndex = getattr(self, name)
            index.remove(np.array(slots, dtype=np.int32))
        for name, regions in come.items():
            index = getattr(self, name)
            if isinstance(index, ShapedIndex):
                index.insert((slot, self.clauses(region)) for slot, region in regions)
            else:
                index.insert(*self.filter_in(regions).boxes)

    def _uncount(self, slot: int) -> None:
        query = self.queries[slot]
        if query is not None:
            self.tenants.count(slot, -1, enabled=query.enabled)

    def _slots(self, ids: Sequence[str]) -> list[int]:
        """The slots of queries, each named once; who has none is given one."""
        slot_of = self.slot_of
        new = [id for id in ids if id not in slot_of]
        taken = self._take(new) if new else []
        return taken if len(new) == len(ids) else [slot_of[id] for id in ids]

    def _take(self, ids: Sequence[str]) -> list[int]:
        """Gives out slots: those that are free, the newest first, then new ones."""
        slots = [self._free.pop() for _ in range(min(len(ids), len(self._free)))]
        more, size = len(ids) - len(slots), len(self.names)
        slots += range(size, size + more)
        self.names += [""] * more
        self.public_names += [""] * more
        self.queries += [None] * more
        self.projections += [()] * more
        while len(self.names) > len(self.kinds):
            self._grow()
        keys = [split(id) for id in ids]
        for slot, id, (_, public_name) in zip(slots, ids, keys, strict=True):
            self.names[slot] = id
            self.public_names[slot] = public_name
            self.slot_of[id] = slot
        self.id_texts.put(slots, [public_name for _, public_name in keys])
        self.tenants.put(slots, [tenant for tenant, _ in keys])
        return slots

    def _grow(self) -> None:
        """Room for twice as many slots."""
        self.kinds = np.concatenate([self.kinds, np.zeros_like(self.kinds)])
        self.marks = np.zeros_like(self.kinds)
        self.selects = np.concatenate([self.selects, np.zeros_like(self.selects)])
        self.fired = np.concatenate([self.fired, np.zeros_like(self.fired)])
        self.rules.grow()
        self.id_texts.grow()
        self.tenants.grow()


_Places = Mapping[str, Region]
"""The region under which a query lies in an index, by the name of the index."""

_NOWHERE: _Places = {}


def _places(query: Query | None) -> _Places:
    region = active_region(query)
    if query is None or region is None:
        return _NOWHERE
    keep = query.keep_region
    index = "shaped" if region.has_shapes else "matching" if Kind.MATCH in query.on else "quiet"
    places = {index: region}
    if Kind.CROSS in query.on:
        places["crossing"] = region
    if keep is not None and keep.has_shapes:
        places["shaped_keeping"] = Region((*keep.conjuncts, *region.conjuncts))
    elif keep is not None:
        places["keeping"] = keep
    return places


Pairs = TypeVar("Pairs", Hits, Borders)


def _merged(one: Pairs, other: Pairs) -> Pairs:
    """Pairs of different slots as one list, by rising row."""
    columns = [np.concatenate(pair) for pair in zip(one, other, strict=True)]
    order = np.argsort(columns[0], kind="stable")
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


def default_index(source: Source) -> DefaultIndex:
    return DefaultIndex(len(source.attributes))
