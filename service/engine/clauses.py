"""Regions with shapes as boxes and tests: the two steps of every answer about them.

A *clause* is a set of boxes and the shapes that a point in any of them must pass; a region is inside where
one of its clauses is. Conjuncts without shapes, and the sure cells of a shape (``cover``), share a clause
without tests. An index holds the boxes of clauses under their numbers; what it finds is ``verified`` and told
by the number of the query.

Not for: regions without shapes, which are boxes and nothing else (``queryset``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from service.engine.shapes import Located, verified
from service.index.answers import difference
from service.index.protocol import Borders, Bounds, BoxIndex, Hits, Points, Slots


class Clause(NamedTuple):
    """Boxes ``float64[k, d]`` twice, and the tests of a point in them."""

    lo: Bounds
    hi: Bounds
    tests: tuple[Located, ...]


class Boxes(NamedTuple):
    """``[lo[i], hi[i])`` belongs to the number ``owners[i]``; or, where there are ``tests``, to that clause,
    whose owner is ``owner_of[clause]``."""

    owners: Slots
    lo: Bounds
    hi: Bounds
    owner_of: Slots | None = None
    tests: Sequence[tuple[Located, ...]] = ()

    @classmethod
    def of(cls, numbered: Sequence[tuple[int, Sequence[Clause]]], dims: int) -> Boxes:
        """The boxes of the clauses of some numbers."""
        clauses = [clause for _, some in numbered for clause in some]
        numbers = [number for number, some in numbered for _ in some]
        parts = [np.empty((0, dims))]
        tested = any(clause.tests for clause in clauses)
        owners = np.arange(len(clauses)) if tested else np.array(numbers)
        return cls(
            np.repeat(owners.astype(np.int32), [len(clause.lo) for clause in clauses]),
            np.concatenate(parts + [clause.lo for clause in clauses]),
            np.concatenate(parts + [clause.hi for clause in clauses]),
            np.array(numbers, dtype=np.int32) if tested else None,
            [clause.tests for clause in clauses] if tested else (),
        )

    def told(self, hits: Hits, points: Points) -> Hits:
        """Hits of these boxes as (row, owner). Without tests they are so already."""
        return hits if self.owner_of is None else told(hits, points, self.tests, self.owner_of)


def told(hits: Hits, points: Points, tests: Sequence[tuple[Located, ...]], owner_of: Slots) -> Hits:
    """Hits of clauses as hits of their owners: those that hold, sorted, no pair twice. O(h log h)."""
    holds = verified(hits, points, tests)
    rows, owners = hits.rows[holds], owner_of[hits.slots[holds]]
    keys = np.unique(rows.astype(np.int64) << 32 | owners)
    return Hits((keys >> 32).astype(np.int32), (keys & 0x7FFFFFFF).astype(np.int32))


class ShapedIndex:
    """An exact index of regions with shapes, over an index of boxes. ``stab`` and ``borders`` promise what
    those of a ``BoxIndex`` do; a border is what is inside at one end only, wherever the boxes end."""

    def __init__(self, boxes: BoxIndex) -> None:
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
