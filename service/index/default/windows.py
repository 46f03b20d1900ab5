"""The window list: boxes that constrain one attribute, all the same.

Idea (Chazelle, *Filtering search*, 1986): cut the axis into windows and keep, for each, what may be around
its values, so that a list costs about what its shortest answer does. Here boxes are numbered by their lower
ends, and a window is a run of them: its values are those from its first lower end to that of the next window.
Boxes of earlier windows that reach into it are its *entries*, by their upper ends. So of the boxes around a
value x, some are among the window's own boxes, which are one range up to the last lower end that is at most
x, and are compared with their upper ends; the others are entries, those behind the last one that
ends at x or before; they are counted in passing and copied as they lie.

Departures: Chazelle's windows list all that meets them and are scanned whole. A window here ends as soon as
it has more boxes of its own than half of those around its end (plus a constant), so there are at most 2 n
entries, three filings a box in all.

Exact on float64: only lower and upper ends themselves are compared. A grid of equal cells, which is monotone
in the value, shortens the search among lower ends and decides nothing.

Not for: boxes that constrain more, or different attributes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from service.index.answers import Keys
from service.index.default.arena import arena_of
from service.index.default.part import NEVER, Sparse, in_order, taken
from service.index.default.windows_kernels import (
    BLOCK,
    FAR,
    MOST_SCALE,
    SLACK,
    Lists,
    cell_of,
    cut,
    file_boxes,
    search,
    write_cells,
)
from service.index.default.windows_living import Living
from service.index.protocol import Points, Slots

_BOXES_A_CELL = 4


class Windows:
    """A ``Part`` of n boxes that constrain one attribute; about 50 bytes a box. Built in O(n log n)."""

    name = "windows"

    def __init__(
        self, slots: Slots, attribute: int, lo: NDArray[np.float64], hi: NDArray[np.float64]
    ) -> None:
        """Boxes by rising lower end: ``int32[n]``, ``float64[n]``."""
        self._attribute = attribute
        self._arena, views = arena_of(_filed(slots, attribute, lo, hi))
        self._lists = Lists(*views)
        self.slots, self.removed_at = self._lists.slots, self._lists.removed_at
        self._living = Living(self.removed_at)

    @classmethod
    def of(cls, boxes: Sparse, dims: int) -> Windows:
        """ValueError unless all boxes constrain one attribute, and the same."""
        if len(boxes.attributes) != len(boxes) or (boxes.attributes != boxes.attributes[:1]).any():
            raise ValueError("windows are of boxes that constrain one attribute, all the same")
        boxes = in_order(boxes)
        boxes = taken(boxes, np.argsort(boxes.lo, kind="stable"))
        return cls(boxes.slots, int(boxes.attributes[0]) if len(boxes) else 0, boxes.lo, boxes.hi)

    @property
    def entries(self) -> int:
        """How often boxes are filed in all, their own windows included."""
        return len(self.slots) + len(self._lists.filed)

    @property
    def nbytes(self) -> int:
        return self._arena.nbytes

    def stab(self, points: Points, version: int, out: Keys) -> int:
        """O(log n + k) for a point in k boxes; O(k) where values are spread evenly."""
        whole = len(self._living.marks(version, len(points))) == 0
        found: int = search(self._arena, points, version, whole, out)
        return found

    def boxes(self) -> Sparse:
        count = len(self.slots)
        attributes = np.full(count, self._attribute, np.uint8)
        return Sparse(self.slots, np.arange(count + 1), attributes, self._lists.lo, self._lists.hi)

    def check(self) -> None:
        lo, hi, _, _, cells, window_of, windows, ends, names, filed, (origin, scale, attribute) = self._lists
        assert attribute == self._attribute
        assert (lo < hi).all() and (lo[1:] >= lo[:-1]).all()
        expected = [cell_of(x, origin, scale, len(cells) - 1) for x in lo]
        assert np.array_equal(np.repeat(np.arange(len(cells) - 1), np.diff(cells)), expected)

        first, begin = windows.T
        assert np.array_equal(
            window_of, np.searchsorted(first[:-1], np.arange(len(window_of)) * BLOCK, "right") - 1
        )
        assert first[-1] == len(lo) and begin[0] == 0 and begin[-1] == len(filed) <= 2 * len(lo)
        assert np.array_equal(ends, hi[filed])
        assert np.array_equal(names, self.slots[filed])
        for window in range(len(windows) - 1):
            around = np.flatnonzero(hi[: first[window]] > lo[first[window]])
            listed = filed[begin[window] : begin[window + 1]]
            assert np.array_equal(np.sort(listed), around)
            assert (hi[listed[1:]] >= hi[listed[:-1]]).all()
            # No value in it is in many fewer boxes than are looked at: fewest are around the next window's.
            stop = first[window + 1]
            if stop < len(lo):
                assert 2 * (stop - first[window]) > (hi[:stop] > lo[stop]).sum() + SLACK


def _filed(slots: Slots, attribute: int, lo: NDArray[np.float64], hi: NDArray[np.float64]) -> Lists:
    count = len(lo)
    by_hi = np.argsort(hi, kind="stable")
    marks = np.arange(0, count, BLOCK)
    around = marks - np.searchsorted(hi[by_hi], lo[marks], "right")
    window_of = np.empty(len(marks), np.int32)
    made = cut(around, window_of)
    first = np.searchsorted(window_of, np.arange(made + 1)) * BLOCK
    first[made] = count

    # A box is around the lower ends of the windows behind its own up to this one.
    last = np.searchsorted(lo[first[:made]], hi, "left") - 1
    starts = np.zeros(made + 1, np.int64)
    file_boxes(by_hi, last, window_of, starts, np.empty(0, np.int32))
    starts = np.cumsum(starts) - starts
    begin = starts.copy()
    filed = np.empty(starts[-1], np.int32)
    file_boxes(by_hi, last, window_of, starts, filed)
    origin, scale, wanted = _grid(lo)
    cells = np.empty(wanted + 1, np.int32)
    write_cells(lo, origin, scale, cells)
    windows = np.stack([first, begin], axis=1).astype(np.int32)
    grid = np.array([origin, scale, attribute])
    removed_at = np.full(count, NEVER)
    return Lists(lo, hi, slots, removed_at, cells, window_of, windows, hi[filed], slots[filed], filed, grid)


def _grid(lo: NDArray[np.float64]) -> tuple[float, float, int]:
    """Origin, scale and number of cells for rising lower ends: they span all but the outermost 1/256."""
    ends = lo[np.abs(lo) <= FAR]  # one-sided bounds say nothing about where values lie
    if len(ends) == 0:
        return 0.0, 1.0, 1
    trimmed = len(ends) // 256
    low, high = float(ends[trimmed]), float(ends[-1 - trimmed])
    cells = len(ends) // _BOXES_A_CELL + 1
    return low, min(cells / max(high - low, 1 / MOST_SCALE), MOST_SCALE), cells
