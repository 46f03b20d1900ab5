"""Regions with shapes as boxes and tests: the two steps of every answer about them.

A *clause* is a set of boxes and the shapes that a point in any of them must pass; a region is inside where
one of its clauses is. Conjuncts without shapes, and the sure cells of a shape (``cover``), share a clause
without tests. An index holds the boxes of clauses under their numbers; what it finds is ``verified`` and told
by the number of the query.

Not for: regions without shapes, which are boxes and nothing else (``queryset``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from service.engine.boxes import Boxes, boxes_of
from service.engine.categories import Dictionary
from service.engine.cover import Cell, cover
from service.engine.distinct import distinct
from service.engine.shapes import Located, verified
from service.geometry import Shape, around
from service.index.answers import difference
from service.index.default.mixed import DefaultIndex
from service.index.protocol import Borders, Bounds, Hits, Points, Slots
from service.model import IN, Conjunct, Region, framed, shapes_of

_MOST_BOXES = 64
"""So many may be around the shapes of one conjunct: what further ones would cut finer is left to the test."""
_MOST_PAIRS = 32_000
"""Of a box and a cell, met for one region where several shapes must hold."""


class Clause(NamedTuple):
    """Boxes, ``float64[k, d]`` twice, at least one, and the tests of a point in them."""

    lo: Bounds
    hi: Bounds
    tests: tuple[Located, ...]


class _Tested(NamedTuple):
    """A box, and the shapes that a point in it must pass."""

    box: Conjunct
    unsure: tuple[Shape, ...]


def _met(boxes: Iterable[_Tested], shape: Shape, cells: Iterable[Cell]) -> list[_Tested]:
    """What of the boxes lies in the cells of one more shape."""
    return [
        _Tested(met, unsure if cell.sure else (*unsure, shape))
        for box, unsure in boxes
        for cell in cells
        if (met := framed(box, [(shape, cell.rectangle)])) is not None
    ]


def clauses_of(
    region: Region, attributes: Sequence[str], dictionaries: Mapping[str, Dictionary]
) -> list[Clause]:
    """A region as clauses. O(cells of its shapes), once each; shapes that must hold together are met within a
    budget, past which their frames do."""
    columns = {name: column for column, name in enumerate(attributes)}
    found: defaultdict[tuple[Shape, ...], list[Conjunct]] = defaultdict(list)
    cover_of = cache(cover)
    pairs = 0
    for conjunct in region.conjuncts:
        shapes = shapes_of(conjunct)
        boxes = [_Tested({name: bound for name, bound in conjunct.items() if name != IN}, ())]
        for shape in shapes.ordered() if shapes else ():
            finer = _met(boxes, shape, cover_of(shape)) if pairs < _MOST_PAIRS or len(boxes) == 1 else None
            if finer is None or len(finer) > _MOST_BOXES:
                finer = _met(boxes, shape, [Cell(around(shape.frame()), False)])
            pairs += len(boxes) * len(cover_of(shape)) if len(boxes) > 1 else 0
            boxes = finer
        for box in boxes:
            found[box.unsure].append(box.box)
    clauses = []
    for unsure, conjuncts in found.items():
        _, lo, hi = boxes_of([(0, conjuncts)], attributes, dictionaries)
        clauses.append(Clause(lo, hi, tuple(Located(shape, columns) for shape in unsure)))
    return clauses


class Filter(NamedTuple):
    """The boxes of some regions under their numbers; where there are ``tests``, under the clauses that these
    are of: a clause belongs to the number ``owner_of[clause]``."""

    boxes: Boxes
    owner_of: Slots | None = None
    tests: Sequence[tuple[Located, ...]] = ()

    @classmethod
    def of(cls, plain: Boxes, shaped: Sequence[tuple[int, Sequence[Clause]]]) -> Filter:
        """The boxes of regions without shapes, and those of others as clauses. O(boxes)."""
        if not shaped:
            return cls(plain)
        numbers, number_of_box = np.unique(plain.owners, return_inverse=True)
        clauses = [clause for _, some in shaped for clause in some]
        owner_of = [*numbers.tolist(), *(number for number, some in shaped for _ in some)]
        places = np.arange(len(numbers), len(owner_of))
        owners = np.concatenate([number_of_box, np.repeat(places, [len(clause.lo) for clause in clauses])])
        return cls(
            Boxes(
                owners.astype(np.int32),
                np.concatenate([plain.lo, *(clause.lo for clause in clauses)]),
                np.concatenate([plain.hi, *(clause.hi for clause in clauses)]),
            ),
            np.array(owner_of, dtype=np.int32),
            [()] * len(numbers) + [clause.tests for clause in clauses],
        )

    def told(self, hits: Hits, points: Points) -> Hits:
        """Hits of these boxes as (row, number). Without tests they are so already."""
        return hits if self.owner_of is None else told(hits, points, self.tests, self.owner_of)


def told(hits: Hits, points: Points, tests: Sequence[tuple[Located, ...]], owner_of: Slots) -> Hits:
    """Hits of clauses as hits of their owners: those that hold, sorted, no pair twice. O(h log h)."""
    holds = verified(hits, points, tests)
    rows, owners = hits.rows[holds], owner_of[hits.slots[holds]]
    keys = distinct(rows.astype(np.int64) << 32 | owners)
    return Hits((keys >> 32).astype(np.int32), (keys & 0x7FFFFFFF).astype(np.int32))


class ShapedIndex:
    """An exact index of regions with shapes, over an index of boxes. ``stab`` and ``borders`` promise what
    those of a ``BoxIndex`` do; a border is what is inside at one end only, wherever the boxes end."""

    def __init__(self, boxes: DefaultIndex) -> None:
        self.boxes = boxes
        self._clauses_of: dict[int, list[int]] = {}
        self._owner_of = np.zeros(16, dtype=np.int32)
        self._tests: list[tuple[Located, ...]] = []
        self._free: list[int] = []

    def __len__(self) -> int:
        """Number of live slots."""
        return len(self._clauses_of)

    def insert(self, regions: Iterable[tuple[int, Sequence[Clause]]]) -> None:
        """Adds regions under slots that are not live. One insertion into the index for all."""
        clauses: list[tuple[int, Clause]] = []
        for slot, some in regions:
            numbers = [self._reserve(slot, clause) for clause in some]
            self._clauses_of[slot] = numbers
            clauses += zip(numbers, some, strict=True)
        if clauses:
            owners = np.array([number for number, _ in clauses], dtype=np.int32)
            sizes = [len(clause.lo) for _, clause in clauses]
            lo, hi = (np.concatenate([clause[end] for _, clause in clauses]) for end in (0, 1))
            self.boxes.insert(np.repeat(owners, sizes), lo, hi)

    def remove(self, slots: Slots) -> None:
        """Removes live slots. KeyError if one is not."""
        numbers = [number for slot in slots.tolist() for number in self._clauses_of.pop(slot)]
        self.boxes.remove(np.array(numbers, dtype=np.int32))
        for number in numbers:
            self._tests[number] = ()
        self._free += numbers

    def clauses_of(self, slot: int) -> Sequence[int]:
        """The numbers that a live slot has in the index of boxes; none of another."""
        return self._clauses_of.get(slot, ())

    def stab(self, points: Points) -> Hits:
        return told(self.boxes.stab(points), points, self._tests, self._owner_of)

    def borders(self, before: Points, after: Points) -> Borders:
        return difference(self.stab(np.concatenate([before, after])), len(before))

    def _reserve(self, slot: int, clause: Clause) -> int:
        if self._free:
            number = self._free.pop()
            self._tests[number] = clause.tests
        else:
            number = len(self._tests)
            self._tests.append(clause.tests)
            if number >= len(self._owner_of):
                self._owner_of = np.append(self._owner_of, np.zeros_like(self._owner_of))
        self._owner_of[number] = slot
        return number
