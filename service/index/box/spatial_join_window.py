"""Sliding window joins by Spatial Join (Sect. 6): which queries a newcomer meets with each event of a window.

Idea: a joinable pair is the newcomer of one stream and an event of the other stream's window (Definition 4),
so it is a point in the attributes of both, and a query over pairs is a region there. The pairs of a newcomer
are a batch, and are joined as any (SJ-Batch); its own attributes are the same in all of them.

A join condition, ``left[i] op right[j]``, is a region along a diagonal, whose MBR would be everything. It is
decomposed (Sect. 6, Fig. 14): the axis of ``left[i]`` is cut at given values, and each piece has an MBR of
its own, all of them boxes of the query's slot. What a piece holds beyond the condition is taken out by
comparing the two values, which is the refinement (Sect. 5.1).

Where this departs from the paper: the caller has the window, with what has expired left out already, so there
is no linked list here, and no axis of time. Exact on float64; a missing value (-inf) satisfies no condition.

Not for: joins of more than two streams.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from service.index.box.spatial_join import SpatialJoin
from service.index.kernel import kernel, reads, writes
from service.index.protocol import Bounds, Hits, Points, Slots

_LOWEST = -np.finfo(np.float64).max


class Comparison(IntEnum):
    """``left op right``."""

    LT = 0
    LE = 1
    EQ = 2
    GE = 3
    GT = 4


# As integers: a kernel takes no enumeration.
_LE, _GE = int(Comparison.LE), int(Comparison.GE)


class Conditions(NamedTuple):
    """Join conditions, one a query: ``left[i] op right[j]``, ``int64[n]`` each."""

    left: NDArray[np.int64]
    comparison: NDArray[np.int64]
    right: NDArray[np.int64]


class Pieces(NamedTuple):
    """Boxes ``float64[k, d]`` and the query that each is a piece of, ``int64[k]``, rising."""

    lo: Bounds
    hi: Bounds
    queries: NDArray[np.int64]


class WindowJoin:
    """Queries over pairs of a left and a right event, with a box over the attributes of both (left first) and
    one join condition each. One thread changes it while none matches.

    ``cuts``: rising values where the axis of a condition's left attribute is cut (the paper's four pieces of
    the unit domain: 0.25, 0.5, 0.75).
    """

    def __init__(self, left_dims: int, right_dims: int, *, cuts: Sequence[float]) -> None:
        if min(left_dims, right_dims) < 1:
            raise ValueError("either side of a join has at least one attribute")
        self._left_dims, self._right_dims = left_dims, right_dims
        self._cuts = np.array([-np.inf, *cuts, np.inf], np.float64)
        if not (self._cuts[:-1] < self._cuts[1:]).all():
            raise ValueError(f"cuts must rise, and be finite: {list(cuts)}")
        self._index = SpatialJoin(left_dims + right_dims)
        self._conditions = np.zeros((0, 3), np.int64)

    def __len__(self) -> int:
        """Number of queries."""
        return len(self._index)

    def insert(self, slots: Slots, lo: Bounds, hi: Bounds, conditions: Conditions) -> None:
        """Adds n queries, a slot each: boxes ``float64[n, left + right]`` and their join conditions.

        ValueError as for ``BoxIndex.insert``, on a slot named twice, on a condition about an attribute that
        is not there, and on a query that no pair can meet. O(n pieces), and see ``SpatialJoin``.
        """
        if len(set(slots.tolist())) != len(slots):
            raise ValueError("a slot has one box and one condition")
        if not lo.shape == hi.shape == (len(slots), self._index.dims):
            raise ValueError(
                f"boxes must have the shape (n, {self._index.dims}), not {lo.shape} and {hi.shape}"
            )
        left, comparison, right = conditions
        for number, limit in (
            (left, self._left_dims),
            (comparison, len(Comparison)),
            (right, self._right_dims),
        ):
            if number.shape != slots.shape or (number < 0).any() or (number >= limit).any():
                raise ValueError("each query needs a condition about attributes that are there")
        pieces = decomposed(lo, hi, conditions._replace(right=right + self._left_dims), self._cuts)
        impossible = np.setdiff1d(np.arange(len(slots)), pieces.queries)
        if len(impossible):
            raise ValueError(f"no pair can meet the query of slot {slots[impossible[0]]}")
        self._index.insert(slots[pieces.queries], pieces.lo, pieces.hi)
        if len(slots):
            room = max(int(slots.max()) + 1 - len(self._conditions), 0)
            self._conditions = np.concatenate([self._conditions, np.zeros((room, 3), np.int64)])
            self._conditions[slots] = np.stack(conditions, axis=1)

    def remove(self, slots: Slots) -> None:
        """As ``BoxIndex.remove``."""
        self._index.remove(slots)

    def match(self, newcomer: NDArray[np.float64], window: Points, *, newcomer_is_left: bool = True) -> Hits:
        """The queries that a newcomer, ``float64[dims of its side]``, meets with each event of the window of
        the other side, ``float64[w, dims]``; rows count the window. O(stab of w points in all attributes)."""
        repeated = np.broadcast_to(newcomer, (len(window), len(newcomer)))
        sides = [repeated, window] if newcomer_is_left else [window, repeated]
        # Beside a window of one attribute it may lie column by column.
        pairs = np.ascontiguousarray(np.concatenate(sides, axis=1))
        candidates = self._index.stab(pairs)
        met = Hits(np.empty_like(candidates.rows), np.empty_like(candidates.slots))
        count = refine(pairs, self._left_dims, self._conditions, *candidates, *met)
        return Hits(met.rows[:count], met.slots[:count])

    def check(self) -> None:
        """Asserts the invariants. O(size)."""
        self._index.check()
        boxes = self._index._store.boxes
        living = np.flatnonzero(boxes.slots[: boxes.size] >= 0)
        left, _, right = self._conditions[boxes.slots[living]].T
        for attribute in (left, right + self._left_dims):
            assert (boxes.lo[living, attribute] >= _LOWEST).all(), "a missing value could meet a condition"


_NUMBERS = reads(types.int32, 1)


@kernel(
    types.int64(
        reads(types.float64, 2),
        types.int64,
        reads(types.int64, 2),
        _NUMBERS,
        _NUMBERS,
        writes(types.int32, 1),
        writes(types.int32, 1),
    )
)
def refine(pairs, left_dims, conditions, rows, slots, met_rows, met_slots):  # type: ignore[no-untyped-def]
    """Keeps the candidates whose join condition holds, in their order (Fig. 11, line 11).

    ``pairs``: ``float64[w, left + right]``; ``conditions``: ``int64[slots, 3]``. The outputs are as long as
    the candidates; returns how many were written. O(candidates).
    """
    count = 0
    for i in range(len(rows)):
        slot = slots[i]
        x = pairs[rows[i], conditions[slot, 0]]
        y = pairs[rows[i], left_dims + conditions[slot, 2]]
        comparison = conditions[slot, 1]
        if (
            (x < y and comparison <= _LE)
            or (x == y and _LE <= comparison <= _GE)
            or (x > y and comparison >= _GE)
        ):
            met_rows[count] = rows[i]
            met_slots[count] = slot
            count += 1
    return count


def decomposed(lo: Bounds, hi: Bounds, conditions: Conditions, cuts: NDArray[np.float64]) -> Pieces:
    """The pieces of n boxes ``float64[n, d]`` under their conditions (both attributes by their number in the
    box), cut where the left attribute has the values ``cuts``, -inf and inf included. O(n pieces)."""
    count, parts = len(lo), len(cuts) - 1
    queries = np.repeat(np.arange(count), parts)
    left, comparison, right = (column[queries] for column in conditions)
    lo, hi = lo[queries], hi[queries]
    each = np.arange(len(queries))
    # A missing value is below the least finite one.
    lo[each, left] = a = np.maximum(np.maximum(lo[each, left], _LOWEST), np.tile(cuts[:-1], count))
    hi[each, left] = b = np.minimum(hi[each, left], np.tile(cuts[1:], count))
    with np.errstate(over="ignore"):
        above, largest = np.nextafter(a, np.inf), np.nextafter(b, -np.inf)
    least = np.choose(comparison, [above, a, a, np.full_like(a, _LOWEST), np.full_like(a, _LOWEST)])
    stop = np.choose(comparison, [np.full_like(b, np.inf), np.full_like(b, np.inf), b, b, largest])
    lo[each, right] = np.maximum(lo[each, right], least)
    hi[each, right] = np.minimum(hi[each, right], stop)
    some = (lo < hi).all(axis=1)
    return Pieces(lo[some], hi[some], queries[some])
