"""The ID lists of CEI: which boxes are filed under which containment-encoded interval.

Invariants: every box is filed under CEIs that partition the cells it covers whole, no two of them halves of
one parent (so they are the fewest), and under the cells that its ends cut. A list names a box once, in rising
order. ``check`` asserts this from the labels alone, without the code that files.

Not for: boxes that are not filed yet (``cei``).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.index.interval.cei_grid import spans_of
from service.index.interval.cei_kernels import Grid, file_boxes
from service.index.protocol import Bounds


class IdLists(NamedTuple):
    """List i is ``entries[lists[i]:lists[i + 1]]``: ``2 * cells`` global ids, then ``cells`` cut cells."""

    grid: Grid
    lists: NDArray[np.int64]
    entries: NDArray[np.int32]

    @property
    def nbytes(self) -> int:
        return self.lists.nbytes + self.entries.nbytes


def id_lists(lo: Bounds, hi: Bounds, grid: Grid) -> IdLists:
    """Files n boxes ``float64[n, 1]`` by their numbers. O(n k + cells)."""
    spans = spans_of(lo[:, 0], hi[:, 0], grid)
    lists = np.zeros(3 * grid.cells + 1, np.int64)
    file_boxes(spans, grid, lists, np.empty(0, np.int32))
    np.cumsum(lists, out=lists)
    entries = np.empty(lists[-1], np.int32)
    file_boxes(spans, grid, lists, entries)
    return IdLists(grid, lists, entries)


def check(filed: IdLists, lo: Bounds, hi: Bounds) -> None:
    """Asserts that the lists are those of the boxes. O(entries log entries)."""
    grid, lists, entries = filed
    assert grid.cells % (1 << grid.k) == 0
    assert len(lists) == 3 * grid.cells + 1
    assert lists[0] == 0 and lists[-1] == len(entries) and (np.diff(lists) >= 0).all()
    assert ((entries >= 0) & (entries < len(lo))).all()
    ids = np.repeat(np.arange(3 * grid.cells), np.diff(lists))
    assert (np.diff(ids * (len(lo) + 1) + entries) > 0).all(), "a list names a box twice or out of order"
    spans = spans_of(lo[:, 0], hi[:, 0], grid)
    whole = ids < 2 * grid.cells
    _check_whole(ids[whole], entries[whole], spans, grid)
    _check_cut(ids[~whole] - 2 * grid.cells, entries[~whole], spans)


def _check_whole(
    ids: NDArray[np.int64], boxes: NDArray[np.int32], spans: NDArray[np.int64], grid: Grid
) -> None:
    length = 1 << grid.k
    local = ids % (2 * length)
    assert (local > 0).all(), "local id 0 is not used"
    height = grid.k + 1 - np.frexp(local)[1].astype(np.int64)
    first = ids // (2 * length) * length + (local << height) - length
    order = np.lexsort((first, boxes))
    ids, boxes, first, height = ids[order], boxes[order], first[order], height[order]
    stop = first + (1 << height)

    again = boxes[1:] == boxes[:-1]
    assert (first[1:] == stop[:-1])[again].all(), "the CEIs of a box overlap or leave a gap"
    halves = again & (ids[1:] == ids[:-1] + 1) & (ids[:-1] % 2 == 0)
    assert not halves.any(), "both halves of a parent"

    begins = np.append(True, ~again)[: len(boxes)]
    ends = np.append(~again, True)[: len(boxes)]
    covers = np.flatnonzero(spans[:, 0] < spans[:, 1])
    assert np.array_equal(boxes[begins], covers)
    assert np.array_equal(first[begins], spans[covers, 0])
    assert np.array_equal(stop[ends], spans[covers, 1])


def _check_cut(cells: NDArray[np.int64], boxes: NDArray[np.int32], spans: NDArray[np.int64]) -> None:
    numbers = np.arange(len(spans))
    expected = {(c, b) for end in (2, 3) for c, b in zip(spans[:, end], numbers, strict=True) if c >= 0}
    assert set(zip(cells, boxes, strict=True)) == expected
