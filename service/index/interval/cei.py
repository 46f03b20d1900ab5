"""CEI: containment-encoded intervals for one attribute, after Wu, Chen and Yu.

Idea: cut the axis into unit cells and define over them, once, binary trees of virtual intervals. A query
interval is decomposed into the fewest of them, at most two a level, and filed in the ID list of each. A point
lies in exactly one virtual interval of each level; shifts lead from the smallest to the others, and their ID
lists are the answer, without a comparison with any end. ``cei_kernels`` has labels, decomposition and search;
``cei_encoding`` shows them one by one.

Where this departs from the paper:

* Ends are float64, not integers. Values are mapped to cells monotonely, the cells that a box covers whole go
  the paper's way, and the box is also filed in the (at most two) cells that its ends cut, where it is
  compared exactly (``cei_grid``). Where all ends fall on cell boundaries nothing is cut: the paper's index.
* ``[lo, hi)`` on floats needs no point CEIs (Sect. 3.4, shown in ``cei_encoding``): ``x <= b`` ends at
  ``nextafter(b, inf)``. The lists of cut cells take their place, one a cell, apart from the tree.
* ID lists are slices of one array, made in one go (``filed``), in the order of the lower ends and on a grid
  chosen from them, instead of lists that grow one by one.

Not for: ends that crowd in a small part of the axis (they share cells, and cut cells are compared box by
box).
"""

from __future__ import annotations

from service.index.answers import Keys
from service.index.boxes import Boxes
from service.index.filed import FiledIndex
from service.index.interval.cei_grid import LEAST_STEP, MOST_CELLS, MOST_STEP, chosen_grid
from service.index.interval.cei_kernels import search
from service.index.interval.cei_lists import IdLists, check, id_lists
from service.index.protocol import Bounds, Points


class CEI(FiledIndex):
    """A ``BoxIndex`` of one attribute; see ``protocol`` for what it takes, raises and promises.

    ``segment_length`` is the paper's L, a power of two: by default one segment spans the grid, which takes
    the fewest entries. ``step`` is the length of a cell: by default it follows from the boxes. ``tail_limit``
    is the number of boxes that may wait unfiled, however few there are. ValueError on values out of range.

    For n boxes, m points, h hits and L = 2**k: filing is O(n (k + log n)), a stab O(m (k + cut + n / 64) +
    h log h), where cut is the number of ends in the cell of a point.
    """

    def __init__(
        self, *, segment_length: int | None = None, step: float | None = None, tail_limit: int = 1024
    ) -> None:
        if segment_length is not None and not (
            1 <= segment_length <= MOST_CELLS and segment_length.bit_count() == 1
        ):
            raise ValueError(
                f"segment_length must be a power of two up to {MOST_CELLS}, not {segment_length}"
            )
        if step is not None and not LEAST_STEP <= step <= MOST_STEP:
            raise ValueError(f"step must be within {LEAST_STEP} and {MOST_STEP}, not {step}")
        self._segment_length = segment_length
        self._step = step
        super().__init__(1, tail_limit=tail_limit)

    def _file(self, lo: Bounds, hi: Bounds) -> _Filing:
        grid = chosen_grid(lo[:, 0], hi[:, 0], step=self._step, segment_length=self._segment_length)
        return _Filing(id_lists(lo, hi, grid))


class _Filing:
    def __init__(self, ids: IdLists) -> None:
        self._ids = ids
        self.nbytes = ids.nbytes

    def search(self, boxes: Boxes, points: Points, out: Keys) -> int:
        grid, lists, entries = self._ids
        found: int = search(boxes.lo, boxes.hi, boxes.slots, lists, entries, grid, points, out)
        return found

    def check(self, lo: Bounds, hi: Bounds) -> None:
        check(self._ids, lo, hi)
