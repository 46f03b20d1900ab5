"""Border lists: which boxes a move leaves and enters, at the price of the borders that it crosses.

Idea: a move changes its side of a border value v in one attribute exactly if v lies in ``(smaller, larger]``
of the two coordinates. So the borders of an attribute are kept sorted, a move is a range of ranks in each
attribute, and only the boxes that own a border in such a range can have been left, entered or cut through.
Each is tested exactly for both ends. How many boxes hold the point does not matter (BMQ-Index makes use of
the same fact, segment by segment; here there is nothing but a sorted array).

Invariants: a box with several crossed borders is taken at the first of them only, so it is reported once; the
cost of a move is known before it is paid, as the difference of ranks.

Exact on float64: ends are compared as they are wherever steps, which are monotone, do not tell. Whether a
segment meets a box is decided by floating point where that is certain and left to the caller (``doubtful``)
where it is not.

Not for: moves across half of the domain; ``search`` says which they are and leaves them alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.index.answers import Keys
from service.index.default.border_lists_kernels import (
    ATTRIBUTE,
    AXIS_COLUMNS,
    BASE,
    BEHIND,
    FACTOR,
    FIRST,
    IN_STEPS,
    LANES,
    LAST_STEP,
    NOT_KEPT,
    SCALE_COLUMNS,
    STOP,
    TOP,
    Lists,
    cells_of,
    met,
    rank_of,
    search,
    step_of,
    steps_of,
    value_of,
)
from service.index.default.part import Sparse
from service.index.protocol import Points

_BORDERS_A_CELL = 4
_BEYOND_ALL = 2**31 - 1
"""The place of an upper border that is infinite."""
_SHARED = 64
"""Of so many borders, one may have the step of the one before."""
_REACH = 16
"""Steps reach so many halves of what the cells span beyond them."""
_FEW = 16
"""So many crossed borders are never worth two look-ups."""
_CROSSED_NS = 25.0
_PAIRED_NS = 6.0
"""What a crossed border costs, if its box is looked at and if not, in the unit of the chooser's constants."""


class BorderLists:
    """The sorted borders of n boxes with c constraints: about 18 c bytes, 26 c where they are of few values.

    Each attribute that is constrained is an *axis*, a row of ``axes`` and ``scales``. Its borders are those
    from the place FIRST to STOP, by rising value; ``owners`` says of which box each is an end (``box << 1``,
    plus 1 for an upper end). Values are in the boxes already, so instead of these an axis has their *steps*,
    of which there are 2**32 between its outermost borders: a step is monotone in the value, so a value is
    looked up only where two have one step. Where many would have, the axis keeps its ``values`` instead.

    Cells of so many steps each shorten the search: cell i of an axis begins at the place
    ``cells[FIRST_CELL + i]``. Behind the last step or value of an axis are LANES that are above all, so
    that several can be compared at a time.

    Boxes that constrain one attribute, all the same, have their borders in pairs: ``partners`` is by border
    the place of the other one of its box; of an infinite one, one before or behind all others. So no box is
    looked at, and ``slots`` are by border too.

    Built in O(c log c).
    """

    def __init__(self, boxes: Sparse) -> None:
        lower, upper = np.isfinite(boxes.lo), np.isfinite(boxes.hi)
        owner = np.repeat(np.arange(len(boxes), dtype=np.int32), np.diff(boxes.starts))
        values = np.concatenate([boxes.lo[lower], boxes.hi[upper]])
        owners = np.concatenate([owner[lower] << 1, owner[upper] << 1 | 1])
        attributes = np.concatenate([boxes.attributes[lower], boxes.attributes[upper]])
        order = np.lexsort((owners, values, attributes))
        values, owners = values[order], owners[order]
        own, counts = np.unique(attributes, return_counts=True)
        stops = np.cumsum(counts)
        ranges = zip(own.tolist(), (stops - counts).tolist(), stops.tolist(), strict=True)
        scales, axes = np.zeros((len(own), SCALE_COLUMNS)), np.zeros((len(own), AXIS_COLUMNS), np.int64)
        all_values, all_steps, cells = [np.empty(0)], [np.empty(0, np.uint32)], [np.empty(0, np.int32)]
        for k, (attribute, first, stop) in enumerate(ranges):
            scales[k] = _scale(values[first:stop])
            steps = np.empty(stop - first, np.uint32)
            steps_of(values[first:stop], scales[k], steps)
            in_values = in_steps = NOT_KEPT
            if _tell_apart(steps):
                in_steps = _behind(all_steps, steps, BEHIND) - first
            else:
                in_values = _behind(all_values, values[first:stop], np.nan) - first
            columns, begin = _celled(steps)
            axes[k] = attribute, first, stop, in_values, in_steps, sum(map(len, cells)), *columns
            cells.append(begin + np.int32(first))
        widths = np.diff(boxes.starts)
        alike = len(boxes) > 0 and (widths == widths[0]).all()
        by_box = boxes.attributes.reshape(len(boxes), -1) if alike else boxes.attributes
        starts, attributes, width = boxes.starts, boxes.attributes, 0
        if alike and (by_box == by_box[0]).all():
            # Where a box begins, and what it constrains, is neither looked up nor kept.
            width = int(widths[0])
            starts, attributes = np.zeros(1, np.int64), attributes[:width].copy()
        self._lists = Lists(
            _frozen(starts),
            _frozen(attributes),
            width,
            _frozen(boxes.lo),
            _frozen(boxes.hi),
            _frozen(np.concatenate(all_values)),
            _frozen(np.concatenate(all_steps)),
            _frozen(owners),
            _frozen(scales),
            _frozen(axes),
            _frozen(np.concatenate(cells)),
        )
        self._count = len(boxes)
        self._slots, self._partners = boxes.slots, np.empty(0, np.int32)
        if width == 1:
            self._slots, self._partners = boxes.slots[owners >> 1], _partners(owners, len(boxes))

    @property
    def nbytes(self) -> int:
        """Without the boxes, which belong to the part."""
        lists = self._lists
        columns = lists.values, lists.steps, lists.owners, lists.cells, self._partners
        by_border = self._slots.nbytes if len(self._partners) else 0
        return by_border + sum(column.nbytes for column in columns)

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
            self._slots,
            self._partners,
            *self._lists,
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
        found: int = met(before, after, self._lists, removed_at, version, out, doubtful)
        return found

    def check(self) -> None:
        """Asserts that the lists are the borders of the boxes. O(c log c)."""
        starts, attributes, width, lo, hi, _, steps, owners, scales, axes, _ = self._lists
        owner = np.repeat(np.arange(self._count), width or np.diff(starts))
        attribute = np.tile(attributes, self._count) if width else attributes
        expected = {
            (int(a), float(v), int(b) << 1 | side)
            for side, ends in enumerate((lo, hi))
            for a, v, b in zip(attribute, ends, owner, strict=True)
            if np.isfinite(v)
        }
        listed = []
        for k, (a, first, stop) in enumerate(axes[:, [ATTRIBUTE, FIRST, STOP]].tolist()):
            values = [value_of(self._lists, k, place) for place in range(first, stop)]
            listed += [(a, v, b) for v, b in zip(values, owners[first:stop].tolist(), strict=True)]
            shift = int(axes[k, IN_STEPS])
            if shift != NOT_KEPT:
                assert (steps[stop + shift : stop + shift + LANES] == BEHIND).all()
                own_steps = steps[first + shift : stop + shift].tolist()
                assert own_steps == sorted(step_of(v, scales[k]) for v in values)
            for x in [*values, -np.inf, np.inf]:
                assert rank_of(self._lists, k, x) == first + np.searchsorted(values, x, "right")
        assert listed == sorted(expected)
        if len(self._partners):
            ends = {owner: place for place, owner in enumerate(owners.tolist())}
            beyond = -1, _BEYOND_ALL
            assert self._partners.tolist() == [ends.get(owner ^ 1, beyond[owner & 1 == 0]) for owner in ends]


def _frozen(column: NDArray[Any]) -> NDArray[Any]:
    """The array, not to be written: as kernels take it in a tuple."""
    view = column.view()
    view.flags.writeable = False
    return view


def _partners(owners: NDArray[np.int32], boxes: int) -> NDArray[np.int32]:
    """See ``BorderLists``. O(borders)."""
    place = np.empty(2 * boxes, np.int32)
    place[::2], place[1::2] = -1, _BEYOND_ALL
    place[owners] = np.arange(len(owners), dtype=np.int32)
    partners: NDArray[np.int32] = place[owners ^ 1]
    return partners


def _behind(kept: list[NDArray[Any]], more: NDArray[Any], behind: float) -> int:
    """Keeps more, and LANES of what is behind them; returns how many were there before."""
    before = sum(map(len, kept))
    kept += [more, np.full(LANES, behind, more.dtype)]
    return before


def _tell_apart(steps: NDArray[np.uint32]) -> bool:
    """Whether rising steps do for the values: few share one, be the values equal or not."""
    return len(steps) > 1 and int(np.count_nonzero(steps[1:] == steps[:-1])) * _SHARED <= len(steps)


def _scale(values: NDArray[np.float64]) -> tuple[float, float, float, float]:
    """The scale of an axis with these borders, rising."""
    low, high = _inner(values)
    first, last = float(values[0]), float(values[-1])
    reach = _REACH * (high / 2 - low / 2)  # halved: the difference of two finite numbers may be infinite
    if reach > 0:
        first, last = max(first, low - reach), min(last, high + reach)
    half = last / 2 - first / 2
    if half < 1e-290:
        return first / 2, 0.0, 0.0, 0.0
    steps = (LAST_STEP - 4) / half
    # A step more on each side: what is beyond all borders has not the step of one.
    return first / 2, steps, -1 / steps, min(half + 2 / steps, float(np.finfo(np.float64).max))


def _celled(steps: NDArray[np.uint32]) -> tuple[tuple[int, int, int], NDArray[np.int32]]:
    """The columns BASE, TOP and FACTOR of an axis with these steps, and at which of them each cell begins,
    and the last ends. O(steps)."""
    count = max(1, len(steps) // _BORDERS_A_CELL)
    base, top = (int(step) for step in _inner(steps))
    columns = base, top, (count << 32) // (top - base + 1)
    number = np.empty(len(steps), np.int32)
    axis = np.zeros(AXIS_COLUMNS, np.int64)
    axis[[BASE, TOP, FACTOR]] = columns
    cells_of(steps, axis, number)
    return columns, np.searchsorted(number, np.arange(count + 1)).astype(np.int32)


def _inner(rising: NDArray[Any]) -> tuple[float, float]:
    """The ends of all but the outermost 1/256: one stray border must not stretch a grid."""
    stray = len(rising) // 256
    return float(rising[stray]), float(rising[-1 - stray])
