"""Border lists: which boxes a move leaves and enters, at the price of the borders that it crosses.

Idea: a move changes its side of a border value v in one attribute exactly if v lies in ``(smaller, larger]``
of the two coordinates. So the borders of an attribute are kept sorted, a move is a range of ranks in each
attribute, and only the boxes that own a border in such a range can have been left, entered or cut through.
Each is tested exactly for both ends. How many boxes hold the point does not matter (BMQ-Index makes use of
the same fact, segment by segment; here there is nothing but a sorted array).

Invariants: a box with several crossed borders is taken at the first of them only, so it is reported once; the
cost of a move is known before it is paid, as the difference of ranks.

Exact on float64: ends are compared as they are. Whether a segment meets a box is decided by floating point
where that is certain and left to the caller (``doubtful``) where it is not.

Not for: moves across half of the domain; ``search`` says which they are and leaves them alone.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numpy.typing import NDArray

from service.index.answers import Keys
from service.index.default.part import Sparse
from service.index.kernel import kernel, reads, writes
from service.index.protocol import Points

_BORDERS_A_CELL = 4


class BorderLists:
    """The sorted borders of n boxes with c constraints in ``dims`` attributes: about 27 c bytes.

    Attribute a has the values ``values[first[a]:first[a + 1]]``, rising; ``owners`` says of which box each is
    an end (``box << 1``, plus 1 for an upper end). A grid of equal cells, which is monotone in the value,
    shortens the search and decides nothing: ``grid[a]`` is ``(origin, scale, top)``, and cell i of a begins
    at the rank ``cells[first_cell[a] + i]``. Built in O(c log c).
    """

    def __init__(self, boxes: Sparse, dims: int) -> None:
        self._boxes = boxes
        lower, upper = np.isfinite(boxes.lo), np.isfinite(boxes.hi)
        owner = np.repeat(np.arange(len(boxes), dtype=np.int32), np.diff(boxes.starts))
        values = np.concatenate([boxes.lo[lower], boxes.hi[upper]])
        owners = np.concatenate([owner[lower] << 1, owner[upper] << 1 | 1])
        attributes = np.concatenate([boxes.attributes[lower], boxes.attributes[upper]])
        order = np.lexsort((owners, values, attributes))
        self._values, self._owners = values[order], owners[order]
        self._first = np.searchsorted(attributes[order], np.arange(dims + 1)).astype(np.int64)
        self._grid, self._first_cell, self._cells = _celled(self._values, self._first)
        widths = np.diff(boxes.starts)
        alike = len(boxes) > 0 and (widths == widths[0]).all()
        by_box = boxes.attributes.reshape(len(boxes), -1) if alike else boxes.attributes
        # All of one signature: where a box begins, and what it constrains, need not be looked up.
        self._width = int(widths[0]) if alike and (by_box == by_box[0]).all() else 0

    @property
    def nbytes(self) -> int:
        """Without the boxes, which belong to the part."""
        return self._values.nbytes + self._owners.nbytes + self._cells.nbytes

    def _lists(self) -> tuple[object, ...]:
        """What both kernels take of it."""
        boxes = self._boxes
        return (
            boxes.starts,
            boxes.attributes,
            self._width,
            boxes.lo,
            boxes.hi,
            self._values,
            self._owners,
            self._first,
            self._grid,
            self._first_cell,
            self._cells,
        )

    def search(
        self,
        before: Points,
        after: Points,
        removed_at: NDArray[np.int32],
        version: int,
        most: int,
        far: NDArray[np.bool_],
        out: Keys,
    ) -> int:
        """Writes ``row << 32 | slot << 1 | entered`` for every box that lived at ``version`` and holds
        exactly one end of the move; at most ``len(out)``, returns how many there are.

        A row that crosses more than ``most`` borders sets ``far[row]`` and reports nothing; a row whose
        ``far`` is set already, as it must be where an end has NaN or inf, is passed over.
        O(ranks + borders crossed).
        """
        found: int = _search(
            before,
            after,
            self._boxes.slots,
            *self._lists(),
            removed_at,
            version,
            most,
            far,
            out,
        )
        return found

    def met(
        self,
        before: Points,
        after: Points,
        removed_at: NDArray[np.int32],
        version: int,
        out: Keys,
        doubtful: NDArray[np.bool_],
    ) -> int:
        """Writes ``row << 32 | box`` for every box that lived at ``version``, holds neither end, and is met
        by the straight segment between them; ``doubtful`` is set where rounding could have decided.

        An attribute that is missing (-inf), infinite or NaN at an end is on no segment: boxes that constrain
        it are not met. As ``search`` otherwise, without a limit on the borders crossed.
        """
        found: int = _met(
            before,
            after,
            *self._lists(),
            removed_at,
            version,
            out,
            doubtful,
        )
        return found

    def check(self) -> None:
        """Asserts that the lists are the borders of the boxes. O(c log c)."""
        boxes = self._boxes
        owner = np.repeat(np.arange(len(boxes)), np.diff(boxes.starts))
        expected = {
            (int(a), float(v), int(b) << 1 | side)
            for side, ends in enumerate((boxes.lo, boxes.hi))
            for a, v, b in zip(boxes.attributes, ends, owner, strict=True)
            if np.isfinite(v)
        }
        attributes = np.repeat(np.arange(len(self._first) - 1), np.diff(self._first))
        listed = list(zip(attributes.tolist(), self._values.tolist(), self._owners.tolist(), strict=True))
        assert listed == sorted(expected)
        for a in range(len(self._first) - 1):
            for x in self._values[self._first[a] : self._first[a + 1]].tolist():
                rank = _rank(self._values, *self._lists()[7:], a, x)
                expected_rank = self._first[a] + np.searchsorted(
                    self._values[self._first[a] : self._first[a + 1]], x, "right"
                )
                assert rank == expected_rank


def _celled(
    values: NDArray[np.float64], first: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int32]]:
    """The grids over the sorted values of each attribute: see ``BorderLists``. O(values)."""
    dims = len(first) - 1
    grid, first_cell = np.zeros((dims, 3)), np.zeros(dims + 1, np.int64)
    cells: list[NDArray[np.int32]] = []
    for a in range(dims):
        own = values[first[a] : first[a + 1]]
        count = max(1, len(own) // _BORDERS_A_CELL)
        if len(own):
            # Between the outermost 1/256: one stray border must not stretch the cells.
            low, high = own[len(own) // 256], own[-1 - len(own) // 256]
            half = high / 2 - low / 2  # halved: the difference of two finite numbers may be infinite
            grid[a] = low, count / half if half > 1e-290 else 0.0, high
        number = np.empty(len(own), np.int32)
        _cells_of(own, grid[a], count, number)
        starts = np.searchsorted(number, np.arange(count + 1)).astype(np.int32)
        cells.append(starts)
        first_cell[a + 1] = first_cell[a] + len(starts)
    return grid, first_cell, np.concatenate([*cells, np.empty(0, np.int32)])


_FLOATS = reads(types.float64, 1)
_RANKS = (
    reads(types.int64, 1),
    reads(types.float64, 2),
    reads(types.int64, 1),
    reads(types.int32, 1),
)
_LISTS = (
    reads(types.int64, 1),
    reads(types.uint8, 1),
    types.int64,
    _FLOATS,
    _FLOATS,
    _FLOATS,
    reads(types.int32, 1),
    *_RANKS,
    reads(types.int32, 1),
    types.int64,
)
_POINTS = reads(types.float64, 2)


@kernel(types.int64(types.float64, _FLOATS, types.int64))
def _cell(x, grid, cells):  # type: ignore[no-untyped-def]
    """The cell of x, 0 to ``cells - 1``: monotone in x, whatever is rounded. Beyond the grid, the first or
    the last. Nothing overflows: x is brought between the ends of the grid, and halves are subtracted."""
    place = (min(max(x, grid[0]), grid[2]) / 2 - grid[0] / 2) * grid[1]
    return np.int64(min(place, cells - 1))


@kernel(types.void(_FLOATS, _FLOATS, types.int64, writes(types.int32, 1)))
def _cells_of(values, grid, cells, out):  # type: ignore[no-untyped-def]
    """Writes the cell of each value."""
    for i in range(len(values)):
        out[i] = _cell(values[i], grid, cells)


@kernel(types.int64(_FLOATS, *_RANKS, types.int64, types.float64))
def _rank(values, first, grid, first_cell, cells, a, x):  # type: ignore[no-untyped-def]
    """The place of the first border of attribute a above x: all values in earlier cells are at most x."""
    begin = first_cell[a]
    cell = begin + _cell(x, grid[a], first_cell[a + 1] - begin - 1)
    low, high = first[a] + cells[cell], first[a] + cells[cell + 1]
    while low < high:
        middle = (low + high) >> 1
        if values[middle] <= x:
            low = middle + 1
        else:
            high = middle
    return low


@kernel(types.int64(_FLOATS, types.int64, types.int64, types.float64))
def _gallop(values, low, stop, x):  # type: ignore[no-untyped-def]
    """The place of the first of ``values[low:stop]`` above x, for one that is likely to be near."""
    step = 1
    high = low
    while high < stop and values[high] <= x:
        low = high + 1
        high += step
        step *= 2
    high = min(high, stop)
    while low < high:
        middle = (low + high) >> 1
        if values[middle] <= x:
            low = middle + 1
        else:
            high = middle
    return low


@kernel(
    types.int64(
        _POINTS,
        _POINTS,
        reads(types.int32, 1),
        *_LISTS,
        types.int64,
        writes(types.boolean, 1),
        writes(types.int64, 1),
    )
)
def _search(  # type: ignore[no-untyped-def]
    before, after, slots, starts, attributes, width, lo, hi, values, owners, first, grid, first_cell, cells,
    removed_at, version, most, far, out,
):  # fmt: skip
    """See ``BorderLists.search``."""
    dims = before.shape[1]
    begin = np.empty(dims, np.int64)
    end = np.empty(dims, np.int64)
    found = 0
    for row in range(before.shape[0]):
        if far[row]:
            continue
        crossed = 0
        for a in range(dims):
            b, c = before[row, a], after[row, a]
            begin[a] = end[a] = 0
            if b != c and first[a] < first[a + 1]:
                begin[a] = _rank(values, first, grid, first_cell, cells, a, min(b, c))
                end[a] = _gallop(values, begin[a], first[a + 1], max(b, c))
                crossed += end[a] - begin[a]
        if crossed > most:
            far[row] = True
            continue
        for a in range(dims):
            for place in range(begin[a], end[a]):
                box = np.int64(owners[place] >> 1)
                entry = box * width if width else starts[box]
                count = width if width else starts[box + 1] - entry
                was = now = True
                taken = False  # whether a border of the box that comes before this one was crossed
                for k in range(count):
                    i = entry + k
                    j = attributes[k] if width else attributes[i]
                    b, c = before[row, j], after[row, j]
                    above_b, above_c = lo[i] <= b, lo[i] <= c
                    below_b, below_c = b < hi[i], c < hi[i]
                    was &= above_b & below_b
                    now &= above_c & below_c
                    if j < a:
                        taken |= (above_b != above_c) | (below_b != below_c)
                    elif j == a:
                        taken |= (owners[place] & 1 != 0) & (above_b != above_c)
                if was != now and not taken and removed_at[box] > version:
                    if found < out.size:
                        out[found] = np.int64(row) << 32 | np.int64(slots[box]) << 1 | np.int64(now)
                    found += 1
    return found


@kernel(types.int64(_POINTS, _POINTS, *_LISTS, writes(types.int64, 1), writes(types.boolean, 1)))
def _met(  # type: ignore[no-untyped-def]
    before, after, starts, attributes, width, lo, hi, values, owners, first, grid, first_cell, cells,
    removed_at, version, out, doubtful,
):  # fmt: skip
    """See ``BorderLists.met``. In an attribute the segment is in the box for a range of its parameter t; the
    box is met where all ranges and [0, 1] have a t in common.

    Which boxes are candidates is decided as in ``_search``, in the loop and not by a kernel that both call:
    a call for each border made small moves four times as long."""
    dims = before.shape[1]
    found = 0
    for row in range(before.shape[0]):
        for a in range(dims):
            b, c = before[row, a], after[row, a]
            if not (np.isfinite(b) and np.isfinite(c)) or b == c or first[a] == first[a + 1]:
                continue
            begin = _rank(values, first, grid, first_cell, cells, a, min(b, c))
            end = _gallop(values, begin, first[a + 1], max(b, c))
            for place in range(begin, end):
                box = owners[place] >> 1
                if removed_at[box] <= version:
                    continue
                was = now = met = True
                taken = False
                unsure = False
                enters, leaves = 0.0, 1.0
                for i in range(starts[box], starts[box + 1]):
                    j = attributes[i]
                    b, c = before[row, j], after[row, j]
                    above_b, above_c = lo[i] <= b, lo[i] <= c
                    below_b, below_c = b < hi[i], c < hi[i]
                    was &= above_b & below_b
                    now &= above_c & below_c
                    if j < a:
                        taken |= (above_b != above_c) | (below_b != below_c)
                    elif j == a:
                        taken |= (owners[place] & 1 != 0) & (above_b != above_c)
                    met &= np.isfinite(b) & np.isfinite(c)
                    # Both ends on one outer side: certain, whatever rounding does below.
                    met &= (above_b | above_c) & (below_b | below_c)
                    if met and b != c:
                        # Halved: the difference of two finite numbers may be infinite.
                        step = c / 2 - b / 2
                        if abs(step) < 1e-290:  # halves of the least numbers are rounded, to zero even
                            unsure = True
                            continue
                        if above_b != above_c:
                            t = (lo[i] / 2 - b / 2) / step
                            if above_c:
                                enters = max(enters, t)
                            else:
                                leaves = min(leaves, t)
                        if below_b != below_c:
                            t = (hi[i] / 2 - b / 2) / step
                            if below_b:
                                leaves = min(leaves, t)
                            else:
                                enters = max(enters, t)
                if was or now or taken or not met:
                    continue
                # Each t is off by a few units in the last place, relative to 1.
                unsure |= abs(leaves - enters) <= 1e-12
                if leaves < enters and not unsure:
                    continue
                if found < out.size:
                    out[found] = np.int64(row) << 32 | box
                    doubtful[found] = unsure
                found += 1
    return found
