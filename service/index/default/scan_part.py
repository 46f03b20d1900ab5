"""The part without a structure: its boxes are scanned. For so few boxes that nothing else pays.

Not for: thousands of boxes.
"""

from __future__ import annotations

import numpy as np

from service.index.answers import Keys
from service.index.boxes import REMOVED
from service.index.default.part import NEVER, Sparse, dense, in_order
from service.index.protocol import Points
from service.index.scan import BLOCK, near_blocks, near_ends, scan, write_near


class ScanPart:
    """A ``Part`` of n boxes; 40 bytes a box and attribute of the index."""

    name = "scan"

    def __init__(self, boxes: Sparse, dims: int) -> None:
        self._boxes = boxes
        self._dims = dims
        self._lo, self._hi = dense(boxes, dims)
        capacity = -(-len(boxes) // BLOCK) * BLOCK
        self._near = near_blocks(capacity, dims)
        write_near(self._near, 0, self._lo, self._hi)
        self.slots = boxes.slots
        self.removed_at = np.full(len(boxes), NEVER)

    @classmethod
    def of(cls, boxes: Sparse, dims: int) -> ScanPart:
        return cls(in_order(boxes), dims)

    @property
    def nbytes(self) -> int:
        held = (self._near, self._lo, self._hi, self.removed_at)
        return sum(array.nbytes for array in held) + self._boxes.nbytes

    def stab(self, points: Points, version: int, out: Keys) -> int:
        """O(m n), less by early exit."""
        seen = np.where(self.removed_at > version, self.slots, REMOVED)
        with np.errstate(over="ignore"):  # only without the JIT does rounding to float32 warn
            found: int = scan(self._near, self._lo, self._hi, seen, 0, len(seen), points, out)
        return found

    def boxes(self) -> Sparse:
        return self._boxes

    def check(self) -> None:
        near_lo, near_hi = near_ends(self._near, 0, len(self.slots), self._dims)
        lo, hi = dense(self._boxes, self._dims)
        assert np.array_equal(lo, self._lo) and np.array_equal(hi, self._hi)
        with np.errstate(over="ignore"):
            assert np.array_equal(near_lo, lo.astype(np.float32))
            assert np.array_equal(near_hi, hi.astype(np.float32))
