"""Whether boxes cover a box together, exactly, within a budget of work.

Idea: cut one of them away from the box and ask of each piece that is left whether the others cover it.
Cutting with the one that covers most attributes whole leaves the fewest pieces: one that covers all but one
leaves at most two. In d attributes n boxes piled up with intent can still leave n**d, so the cuts are
counted; when they are used up the answer is no, which errs on the side that loses nothing but size.

Half-open throughout, so nothing is counted twice or falls between. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from service.index.protocol import Bounds
from service.model import Interval

Ends = NDArray[np.float64]
"""``float64[d]``: one end of one box."""


class Cutting:
    """A budget of cuts, used up question by question."""

    def __init__(self, most: int) -> None:
        self._left = most
        self.exhausted = False

    def covered(self, box: Sequence[Interval], los: Bounds, his: Bounds) -> bool:
        """Whether the boxes ``[los[i], his[i])``, ``float64[n, d]``, cover a box of d stretches. In no
        attributes any box covers, and none does not. O(n d) a cut."""
        left = [
            (
                np.array([stretch.lo for stretch in box]),
                np.array([stretch.hi for stretch in box]),
                np.arange(len(los)),
            )
        ]
        while left:
            if self._left == 0:
                self.exhausted = True
                return False
            self._left -= 1
            lo, hi, boxes = left.pop()
            boxes = boxes[np.logical_and.reduce((los[boxes] < hi) & (lo < his[boxes]), axis=1)]
            if not len(boxes):
                return False
            within = ((los[boxes] <= lo) & (hi <= his[boxes])).sum(axis=1)
            best = int(np.argmax(within))
            if within[best] < len(lo):
                others = np.delete(boxes, best)
                left += [(*piece, others) for piece in _pieces(lo, hi, los[boxes[best]], his[boxes[best]])]
        return True


def _pieces(lo: Ends, hi: Ends, cut_lo: Ends, cut_hi: Ends) -> list[tuple[Ends, Ends]]:
    """What is left of a box when another that meets it is cut away, as boxes; at most two an attribute."""
    pieces: list[tuple[Ends, Ends]] = []
    lo, hi = lo.copy(), hi.copy()
    for j in range(len(lo)):
        for piece_lo, piece_hi in ((lo[j], cut_lo[j]), (cut_hi[j], hi[j])):
            if piece_lo < piece_hi:
                pieces.append((lo.copy(), hi.copy()))
                pieces[-1][0][j], pieces[-1][1][j] = piece_lo, piece_hi
        lo[j], hi[j] = max(lo[j], cut_lo[j]), min(hi[j], cut_hi[j])
    return pieces
