"""Other ways to say what a move enters and leaves.

* ``SortedBorders``: sortedcontainers, the ends of all intervals in one sorted list. A move passes a range of
  it. One attribute only.
* ``stab_and_diff``: stabs before and after in any index, and compares the two answers.

Not for: finding what is around a point (``peers``).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import sortedcontainers

from service.bench.measure import Contender, Deferred
from service.index.answers import borders_by_stab
from service.index.protocol import Borders, Bounds, BoxIndex, Points

Passed = dict[int, int]
"""By slot, the ends of its interval that a move passed upwards: 1 the lower, -1 the upper, 0 both."""


class SortedBorders:
    """n intervals ``[lo[i], hi[i])`` of slot i, ``float64[n, 1]`` each. O(log n + borders passed) a move, in
    Python."""

    name = "sortedcontainers"

    def __init__(self, lo: Bounds, hi: Bounds) -> None:
        lower = [(value, slot, 1) for slot, value in enumerate(lo.ravel().tolist())]
        upper = [(value, slot, -1) for slot, value in enumerate(hi.ravel().tolist())]
        self._borders = sortedcontainers.SortedList(lower + upper)

    def moved(self, before: float, after: float) -> Passed:
        """The slots entered (1) and left (-1); 0 where a move passed an interval from end to end."""
        last = float("inf")
        up = before <= after
        below, above = (before, after) if up else (after, before)
        found: Passed = {}
        for _, slot, side in self._borders.irange((below, last), (above, last), inclusive=(False, True)):
            found[slot] = found.get(slot, 0) + (side if up else -side)
        return found

    def contender(self, before: Points, after: Points) -> Contender:
        """Asked move by move; only ``moved`` is timed."""
        moves = list(zip(before.ravel().tolist(), after.ravel().tolist(), strict=True))

        def call() -> Deferred:
            found = [self.moved(*move) for move in moves]
            return Deferred(lambda: _borders(found))

        return call


def stab_and_diff(index: BoxIndex) -> Callable[[Points, Points], Borders]:
    """The borders of an index as two stabs and their difference, whatever the index could do itself."""
    return lambda before, after: borders_by_stab(index, before, after)


def _borders(found: list[Passed]) -> Borders:
    triples = [
        (row, slot, sign > 0)
        for row, passed in enumerate(found)
        for slot, sign in sorted(passed.items())
        if sign
    ]
    rows, slots, entered = zip(*triples, strict=True) if triples else ((), (), ())
    return Borders(np.array(rows, np.int32), np.array(slots, np.int32), np.array(entered, np.bool_))
