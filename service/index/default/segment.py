"""Whether a straight segment meets a box, exactly, where floating point cannot tell.

Not for: many segments; ``border_lists`` decides nearly all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction


def meets(sides: Iterable[tuple[float, float, float, float]]) -> bool:
    """Whether the segment has a point in the box. A side is ``(from, to, lo, hi)`` in one attribute, the ends
    of the segment finite, the box ``[lo, hi)``. Rational arithmetic: exact."""
    # The parameters t in [0, 1] of points inside, and whether the least and the largest belong to them.
    least, largest = (Fraction(0), True), (Fraction(1), True)
    for begin, end, lo, hi in sides:
        if begin == end:
            if not lo <= begin < hi:
                return False
            continue
        step = Fraction(end) - Fraction(begin)
        at_lo = None if lo == float("-inf") else (Fraction(lo) - Fraction(begin)) / step
        at_hi = None if hi == float("inf") else (Fraction(hi) - Fraction(begin)) / step
        # ``lo`` belongs to the box, ``hi`` does not.
        lower, upper = ((at_lo, True), (at_hi, False)) if step > 0 else ((at_hi, False), (at_lo, True))
        if lower[0] is not None and (lower[0] > least[0] or (lower[0] == least[0] and not lower[1])):
            least = lower[0], lower[1]
        if upper[0] is not None and (upper[0] < largest[0] or (upper[0] == largest[0] and not upper[1])):
            largest = upper[0], upper[1]
    return least[0] < largest[0] or (least[0] == largest[0] and least[1] and largest[1])
