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

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from service.index.answers import Keys
from service.index.default.border_lists_kernels import cells_of, met, rank_of, search
from service.index.default.part import Sparse
from service.index.protocol import Points

_BORDERS_A_CELL = 4
_FEW = 16
"""So many crossed borders are never worth two look-ups."""
_CROSSED_NS = 25.0
_PAIRED_NS = 6.0
"""What a crossed border costs, if its box is looked at and if not, in the unit of the chooser's constants."""


class BorderLists:
    """The sorted borders of n boxes with c constraints in ``dims`` attributes: about 27 c bytes.

    Attribute a has the values ``values[first[a]:first[a + 1]]``, rising; ``owners`` says of which box each is
    an end (``box << 1``, plus 1 for an upper end). A grid of equal cells, which is monotone in the value,
    shortens the search, tells moves that are surely far, and decides nothing else: ``grid[a]`` is
    ``(origin, scale, top)``, and cell i of a begins at the rank ``cells[first_cell[a] + i]``.

    Boxes that constrain one attribute, all the same, have their borders in pairs: ``partners`` is by border
    the place of the other one of its box, -1 if that is infinite. So no box is looked at.

    Built in O(c log c).
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
        # All of one signature: where a box begins, and what it constrains, are neither looked up nor kept.
        self._width = int(widths[0]) if alike and (by_box == by_box[0]).all() else 0
        if self._width:
            self._boxes = replace(
                boxes, starts=np.zeros(1, np.int64), attributes=boxes.attributes[: self._width].copy()
            )
        self._partners = _partners(self._owners, len(boxes)) if self._width == 1 else np.empty(0, np.int32)

    @property
    def nbytes(self) -> int:
        """Without the boxes, which belong to the part."""
        return self._values.nbytes + self._owners.nbytes + self._cells.nbytes + self._partners.nbytes

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
        worth_ns: float,
        far: NDArray[np.bool_],
        out: Keys,
    ) -> int:
        """Writes ``row << 32 | slot << 1 | entered`` for every box that lived at ``version`` and holds
        exactly one end of the move; at most ``len(out)``, returns how many there are. ``removed_at`` is empty
        if every box lives.

        A row that crosses more borders than can be read in ``worth_ns``, and more than a few, sets
        ``far[row]`` and reports nothing; a row whose ``far`` is set already, as it must be where an end has
        NaN or inf, is passed over.
        O(ranks + borders crossed).
        """
        found: int = search(
            before,
            after,
            self._boxes.slots,
            self._partners,
            *self._lists(),
            removed_at,
            version,
            max(_FEW, int(worth_ns / (_PAIRED_NS if len(self._partners) else _CROSSED_NS))),
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
        found: int = met(
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
        widths = self._width or np.diff(boxes.starts)
        owner = np.repeat(np.arange(len(boxes)), widths)
        attribute = np.tile(boxes.attributes, len(boxes)) if self._width else boxes.attributes
        expected = {
            (int(a), float(v), int(b) << 1 | side)
            for side, ends in enumerate((boxes.lo, boxes.hi))
            for a, v, b in zip(attribute, ends, owner, strict=True)
            if np.isfinite(v)
        }
        attributes = np.repeat(np.arange(len(self._first) - 1), np.diff(self._first))
        listed = list(zip(attributes.tolist(), self._values.tolist(), self._owners.tolist(), strict=True))
        assert listed == sorted(expected)
        ends = {owner: place for place, owner in enumerate(self._owners.tolist())}
        if len(self._partners):
            assert self._partners.tolist() == [ends.get(owner ^ 1, -1) for owner in ends]
        for a in range(len(self._first) - 1):
            for x in self._values[self._first[a] : self._first[a + 1]].tolist():
                rank = rank_of(self._values, *self._lists()[7:], a, x)
                expected_rank = self._first[a] + np.searchsorted(
                    self._values[self._first[a] : self._first[a + 1]], x, "right"
                )
                assert rank == expected_rank


def _partners(owners: NDArray[np.int32], boxes: int) -> NDArray[np.int32]:
    """See ``BorderLists``. O(borders)."""
    place = np.full(2 * boxes, -1, np.int32)
    place[owners] = np.arange(len(owners), dtype=np.int32)
    partners: NDArray[np.int32] = place[owners ^ 1]
    return partners


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
        cells_of(own, grid[a], count, number)
        starts = np.searchsorted(number, np.arange(count + 1)).astype(np.int32)
        cells.append(starts)
        first_cell[a + 1] = first_cell[a] + len(starts)
    return grid, first_cell, np.concatenate([*cells, np.empty(0, np.int32)])
