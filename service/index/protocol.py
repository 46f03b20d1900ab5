"""The one protocol of every index, in columns.

Idea: an index stores *boxes* under *slots*. A slot is the dense int32 number that the caller gives a
query; a slot may own several boxes (the disjuncts of one query), and the answer names it once. A
structure is a filter that never misses a box followed by the exact test ``lo <= x < hi`` on float64; a
structure may over-report internally, its answers never do.

Invariants of every implementation:

1. ``stab`` is exact, by rising row and free of duplicates. Which pairs it has depends on the stored boxes
   only; the order of the slots of a row says nothing and may depend on how the boxes came. Nobody needs that
   order (ids are sorted where they leave), and to make it costs more than to find the pairs. Borders are
   sorted by (row, slot): there are few.
2. A NaN anywhere in a point puts it nowhere: it is in no box, not even in ``[-inf, inf)``. A missing value
   is ``-inf``: it is in ``[-inf, inf)`` ("no constraint") and in no box whose lower end is finite.
3. One thread may insert and remove while others stab: a stab sees the boxes as they were before or after a
   call of ``insert`` or ``remove``, never in between.

Not for: DNF normalisation (``language``), ids, time or membership (``engine``).
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int32]
Slots = NDArray[np.int32]
Points = NDArray[np.float64]
"""``float64[m, d]``, C-contiguous: m points of d attributes."""
Bounds = NDArray[np.float64]
"""``float64[n, d]``, C-contiguous: one end of n boxes."""


class Hits(NamedTuple):
    """Which rows are inside which slots: ``int32[h]`` each, by rising row, its slots in any order, no pair
    twice."""

    rows: Rows
    slots: Slots


class Borders(NamedTuple):
    """Changes from ``before[row]`` to ``after[row]``: sorted by (row, slot), no pair twice.

    ``entered[i]`` is True where the slot holds ``after`` but not ``before``, False for the reverse.
    """

    rows: Rows
    slots: Slots
    entered: NDArray[np.bool_]


class BoxIndex(Protocol):
    """A set of boxes in ``dims`` attributes, stabbed by batches of points."""

    dims: int

    def __len__(self) -> int:
        """Number of live slots."""

    @property
    def nbytes(self) -> int:
        """Bytes of memory held by the structure."""

    def insert(self, slots: Slots, lo: Bounds, hi: Bounds) -> None:
        """Adds boxes ``[lo[i], hi[i])`` under ``slots[i]``.

        All the boxes of a slot come in one call, in any order. Raises ValueError on a slot that is live
        already, a negative slot, an empty box (``lo >= hi``), a NaN, or a shape that does not fit; nothing
        has changed then.
        """

    def remove(self, slots: Slots) -> None:
        """Removes all boxes of each slot. Raises KeyError on a slot that is not live; nothing has changed
        then."""

    def stab(self, points: Points) -> Hits:
        """All (row, slot) with ``points[row]`` inside a box of the slot."""

    def borders(self, before: Points, after: Points) -> Borders:
        """The slots left and entered between ``before[row]`` and ``after[row]``, row by row."""

    def check(self) -> None:
        """Asserts every invariant of the structure. O(size); for tests."""
