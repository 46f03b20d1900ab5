"""D-list: direct listing of the intervals that hold a value, the yardstick of the VCI paper (Sect. 2.5).

Idea: no virtual constructs. Every cell of the axis lists the boxes that meet it; a search reads one list, and
nothing is faster while the lists are in the cache. A box is listed once a cell, so storage grows with its
width, and this is what the paper's other structures save. ``dlist_kernels`` has listing and search.

Where this departs from the paper:

* Ends are float64, not integers. Values are mapped to cells monotonely (``cei_grid``); the entries of cells
  that a box covers whole are its number, those of the (at most two) cells that its ends cut the complement of
  its number, and only these are compared. Where all ends fall on cell boundaries nothing is: the paper's
  list.
* The paper lists under every integer of a closed interval; here a list serves all values of a cell, and ``x
  <= b`` ends at ``nextafter(b, inf)``.
* Lists are slices of one array, made in one go (``filed``). Unless a step is given the cells are so long that
  a box takes no more than some entries (``vci_grid``).

Not for: wide intervals.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.index.answers import Keys
from service.index.boxes import Boxes
from service.index.filed import FiledIndex
from service.index.interval.cei_grid import spans_of
from service.index.interval.cei_kernels import Grid
from service.index.interval.dlist_kernels import list_boxes, search
from service.index.interval.vci_grid import cells_of_points, fitted, require_step
from service.index.protocol import Bounds, Points


class DList(FiledIndex):
    """A ``BoxIndex`` of one attribute; see ``protocol`` for what it takes, raises and promises.

    ``step`` is the length of a cell: by default it follows from the boxes. ``tail_limit`` is the number of
    boxes that may wait unlisted, however few there are. ValueError on a step out of range.

    For n boxes of w cells, m points and h hits: filing is O(n (w + log n)), a stab O(m (1 + cut + n / 64) + h
    log h), where cut is the number of ends in the cell of a point.
    """

    def __init__(self, *, step: float | None = None, tail_limit: int = 1024) -> None:
        require_step(step)
        self._step = step
        super().__init__(1, tail_limit=tail_limit)

    def _file(self, lo: Bounds, hi: Bounds) -> _Filing:
        fit = fitted(lo, hi, step=self._step, choices=[(1,)])
        return _Filing(fit.grid, direct_lists(fit.spans, fit.grid.cells))


class _Filing:
    def __init__(self, grid: Grid, direct: DirectLists) -> None:
        self._grid = grid
        self._direct = direct
        self.nbytes = direct.nbytes

    def search(self, boxes: Boxes, points: Points, out: Keys) -> int:
        return self._direct.search(boxes, cells_of_points(points, self._grid), points, out)

    def check(self, lo: Bounds, hi: Bounds) -> None:
        self._direct.check(spans_of(lo[:, 0], hi[:, 0], self._grid), self._grid.cells)


class DirectLists(NamedTuple):
    """The list of cell c is ``entries[lists[c]:lists[c + 1]]``: box numbers, complemented where to
    compare."""

    lists: NDArray[np.int64]
    entries: NDArray[np.int32]

    @property
    def nbytes(self) -> int:
        return self.lists.nbytes + self.entries.nbytes

    def search(self, boxes: Boxes, cells: NDArray[np.int64], points: Points, out: Keys) -> int:
        """See ``Filing.search``; ``cells`` are those of the points, -1 for nowhere."""
        found: int = search(boxes.lo, boxes.hi, boxes.slots, self.lists, self.entries, cells, points, out)
        return found

    def check(self, spans: NDArray[np.int64], cells: int) -> None:
        """Asserts that the lists are those of boxes with these spans. O(entries log entries)."""
        lists, entries = self
        assert len(lists) == cells + 1
        assert lists[0] == 0 and lists[-1] == len(entries) and (np.diff(lists) >= 0).all()
        under = np.repeat(np.arange(cells), np.diff(lists))
        boxes = np.where(entries < 0, ~entries, entries).astype(np.int64)
        assert (np.diff(under * (len(spans) + 1) + boxes) > 0).all(), (
            "a list names a box twice or out of order"
        )
        widths = np.maximum(spans[:, 1] - spans[:, 0], 0)
        whole = entries >= 0
        assert np.array_equal(np.bincount(boxes[whole], minlength=len(spans)), widths)
        assert (spans[boxes[whole], 0] <= under[whole]).all() and (
            under[whole] < spans[boxes[whole], 1]
        ).all()
        numbers = np.arange(len(spans))
        cut = {(c, b) for end in (2, 3) for c, b in zip(spans[:, end], numbers, strict=True) if c >= 0}
        assert set(zip(under[~whole], boxes[~whole], strict=True)) == cut


def direct_lists(spans: NDArray[np.int64], cells: int) -> DirectLists:
    """The lists of boxes with the spans ``int64[n, 4]`` of ``cei_grid.spans_of``. O(cells + entries)."""
    lists = np.zeros(cells + 1, np.int64)
    list_boxes(spans, lists, np.empty(0, np.int32))
    np.cumsum(lists, out=lists)
    entries = np.empty(lists[-1], np.int32)
    list_boxes(spans, lists, entries)
    return DirectLists(lists, entries)
