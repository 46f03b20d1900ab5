"""The safe region of a point: a box around it in which no query's answer changes.

**Definition.** A query *answers* a point by whether its region holds it; moving from one disjunct to another
is no change. The safe region is a product of one *side* for each attribute. It is grown from the point alone,
attribute by attribute in the order of the source: each in turn takes all values that can be added while the
attributes before it have their sides, and those after it the point's value, without any query answering
otherwise anywhere. Of a number these are the values around the point's without a gap, ``[lower, upper)``; of
a category every text that changes nothing, near or not, as texts have no order. A missing value is one of the
values that a side may have: it stands below all numbers.

So the region is *maximal*: what stopped a side is a change somewhere over the values that the other
attributes had then, and the region still has all of these, so no side can take more. It depends on the point,
the regions and the order of attributes only. It is one of many maximal boxes: the first attribute gets the
most.

**How.** A query that does not hold the point may meet the region with none of its boxes; a query that does
must cover it with them. Along one attribute the ends of all boxes cut the axis into *segments*, within which
nothing changes. A box forbids its segments if it meets the region in all other attributes. A query of one box
allows the segments of that box. A query of several allows those whose slice of the region its boxes cover
together, which is found by cutting the slice along them. That can take exponential time for boxes piled up
with intent, so work is bounded; what is not proven within the bound is not taken, and the answer says that it
may not be maximal.

Pure. Not for the stream of events: it looks at every box.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.engine.boxes import Boxes, boxes_of
from service.engine.categories import Dictionary
from service.engine.cover import cover_around
from service.engine.coverage import Cutting
from service.geometry import around
from service.model import LOWEST, MISSING, AttributeType, Conjunct, Interval, Region, Texts, framed, shapes_of

_MOST_MET = 1024
"""So many boxes of one conjunct, where several shapes must hold; fewer and coarser ones past it."""


class NumberSide(NamedTuple):
    """All numbers ``lower <= x < upper``, None for no end; ``missing``: a missing value too."""

    attribute: str
    lower: float | None
    upper: float | None
    missing: bool


class TextSide(NamedTuple):
    """All texts that ``texts`` allows, None for any; ``missing``: a missing value too."""

    attribute: str
    texts: Texts | None
    missing: bool


class SafeRegion(NamedTuple):
    """Sides in the order of the attributes. ``maximal`` is False where work was cut short, or a region has
    shapes, which the sides come near to but do not touch."""

    sides: list[NumberSide | TextSide]
    maximal: bool


def safe_region(
    attributes: Mapping[str, AttributeType],
    values: Mapping[str, float | str],
    regions: Iterable[Region],
    *,
    most_cuts: int,
) -> SafeRegion:
    """The safe region of a point, given by its present attributes, among the regions of queries; for what
    ``most_cuts`` cuts of slices, over all attributes, are not enough is not taken.

    O(d * (n d + n log n)) for n boxes in d attributes, and the cuts.
    """
    dictionaries = {name: Dictionary() for name, kind in attributes.items() if kind is AttributeType.CATEGORY}
    names = list(attributes)
    point = np.array([_code(values.get(name), dictionaries.get(name)) for name in names])
    some = [(region, region.has_shapes) for region in regions]
    conjuncts = (_around(region, values) if shaped else region.conjuncts for region, shaped in some)
    world = _World(
        point, boxes_of(enumerate(conjuncts), names, dictionaries), set(dictionaries), names, most_cuts
    )
    sides: list[NumberSide | TextSide] = []
    for place, name in enumerate(names):
        side = world.grow(place)
        dictionary = dictionaries.get(name)
        if dictionary is None:
            sides.append(_number_side(name, side[0]))
        else:
            sides.append(_text_side(name, side, dictionary))
    return SafeRegion(sides, not world.cutting.exhausted and not any(shaped for _, shaped in some))


def _around(region: Region, values: Mapping[str, float | str]) -> list[Conjunct]:
    """A region with shapes as boxes around a point: where it holds the point, boxes that lie in it, of which
    one has the point; where it does not, boxes around it, of which none has."""
    inside = values in region
    found: list[Conjunct] = []
    for conjunct in region.conjuncts:
        shapes = shapes_of(conjunct)
        covers = []
        for shape in shapes.ordered() if shapes else ():
            x, y = (values.get(name, MISSING) for name in (shape.x, shape.y))
            assert not isinstance(x, str) and not isinstance(y, str), "shapes are over numbers"
            cells = [cell.rectangle for cell in cover_around(shape, x, y) if cell.sure or not inside]
            covers.append((shape, cells, [cell for cell in cells if cell.holds(x, y)]))
        # What keeps the point out comes first, and so is met with all of its cells.
        covers.sort(key=lambda cover: bool(cover[2]))
        boxes = [framed(conjunct, ())]
        for shape, cells, holding in covers:
            if len(boxes) > 1 and len(boxes) * len(cells) > _MOST_MET:
                cells = holding if inside else [around(shape.frame())]
            met = (framed(box, [(shape, cell)]) for box in boxes if box is not None for cell in cells)
            boxes = [box for box in met if box is not None]
        found += (box for box in boxes if box is not None)
    return found


def _code(value: float | str | None, dictionary: Dictionary | None) -> float:
    if value is None:
        return MISSING
    if isinstance(value, str):
        assert dictionary is not None, "texts belong to categories"
        return dictionary.code(value)
    return value


def _take(boxes: Boxes, chosen: NDArray[np.bool_]) -> Boxes:
    owners, lo, hi = boxes
    return Boxes(owners[chosen], lo[chosen], hi[chosen])


class _World:
    """The region as it grows. ``sides[j]`` are the stretches of the axis that attribute j has, ascending."""

    def __init__(
        self,
        point: NDArray[np.float64],
        boxes: Boxes,
        categories: set[str],
        names: Sequence[str],
        most_cuts: int,
    ) -> None:
        self._is_category = [name in categories for name in names]
        self._sides = [
            [_only(value, is_category)]
            for value, is_category in zip(point.tolist(), self._is_category, strict=True)
        ]
        self.cutting = Cutting(most_cuts)
        inside = np.logical_and.reduce((boxes.lo <= point) & (point < boxes.hi), axis=1)
        holds = np.isin(boxes.owners, boxes.owners[inside])
        self._outside = _take(boxes, ~holds)
        around = _take(boxes, holds)
        _, number, count = np.unique(around.owners, return_inverse=True, return_counts=True)
        alone = count[number] == 1
        self._single = _take(around, alone)
        several = _take(around, ~alone)
        self._several = [_take(several, several.owners == owner) for owner in np.unique(several.owners)]

    def grow(self, place: int) -> list[Interval]:
        """Gives one attribute all that it can take, and returns that."""
        boxes = self._in_the_way(place)
        lo = np.concatenate([boxes.lo[:, place], self._single.lo[:, place]])
        hi = np.concatenate([boxes.hi[:, place], self._single.hi[:, place]])
        only = self._sides[place][0]
        cuts = [_axis_cuts(self._is_category[place]), np.array(only), lo, hi]
        cuts += [end for one in self._several for end in (one.lo[:, place], one.hi[:, place])]
        ends = np.unique(np.concatenate(cuts))
        n = len(boxes.owners)
        safe = (_cover(ends, lo[:n], hi[:n]) == 0) & (
            _cover(ends, lo[n:], hi[n:]) == len(self._single.owners)
        )
        here = int(np.searchsorted(ends, only.lo, side="right")) - 1
        if not self._is_category[place]:
            safe = _run_around(safe, here)
        for one in self._several:
            safe = self._covered_by(one, place, ends, safe, here)
        self._sides[place] = _stretches(ends, safe)
        return self._sides[place]

    def _in_the_way(self, place: int) -> Boxes:
        """The boxes of queries outside that meet the region in every other attribute."""
        boxes = self._outside
        meets = np.ones(len(boxes.owners), np.bool_)
        for other, side in enumerate(self._sides):
            if other != place:
                meets &= _meets(side, boxes.lo[:, other], boxes.hi[:, other])
        return _take(boxes, meets)

    def _covered_by(
        self, boxes: Boxes, place: int, ends: NDArray[np.float64], safe: NDArray[np.bool_], here: int
    ) -> NDArray[np.bool_]:
        """Those safe segments whose slice the boxes of one query cover together; of a number, as far as they
        go on from ``here``."""
        # Between the ends of these boxes alone nothing differs, however many others cut the axis there.
        own_ends = np.unique([boxes.lo[:, place], boxes.hi[:, place]])
        own = np.searchsorted(own_ends, ends, side="right").tolist()
        known: dict[int, bool] = {}
        others = [other for other in range(len(self._sides)) if other != place]

        def covers(segment: int) -> bool:
            key = own[segment]
            if key not in known:
                over = (boxes.lo[:, place] <= ends[segment]) & (ends[segment] < boxes.hi[:, place])
                lo, hi = boxes.lo[over][:, others], boxes.hi[over][:, others]
                cells = product(*(self._sides[other] for other in others))
                known[key] = all(self.cutting.covered(cell, lo, hi) for cell in cells)
            return known[key]

        kept = np.zeros_like(safe)
        if self._is_category[place]:
            kept[[segment for segment in np.flatnonzero(safe).tolist() if covers(segment)]] = True
            kept[here] = True
            return kept
        kept[here] = True
        for step in (-1, 1):
            segment = here + step
            while 0 <= segment < len(safe) and safe[segment] and covers(segment):
                kept[segment] = True
                segment += step
        return kept


def _only(value: float, is_category: bool) -> Interval:
    """The stretch of an axis that has one value: below the lowest number there is the missing value alone."""
    if value == MISSING:
        return Interval(MISSING, 0.0 if is_category else LOWEST)
    # ``+ 0.0`` because the float64 above -5e-324 would be -0.0.
    return Interval(value, value + 1.0 if is_category else math.nextafter(value, math.inf) + 0.0)


def _axis_cuts(is_category: bool) -> NDArray[np.float64]:
    """Where every axis is cut: the missing value apart, which no text's code is next to."""
    return np.array([-np.inf, 0.0, np.inf] if is_category else [-np.inf, np.inf])


def _cover(ends: NDArray[np.float64], lo: NDArray[np.float64], hi: NDArray[np.float64]) -> NDArray[np.int64]:
    """How many of the intervals hold each of the segments between ``ends``, of which their ends are some."""
    changes = np.zeros(len(ends), np.int64)
    np.add.at(changes, np.searchsorted(ends, lo), 1)
    np.add.at(changes, np.searchsorted(ends, hi), -1)
    return np.cumsum(changes)[:-1]


def _run_around(safe: NDArray[np.bool_], here: int) -> NDArray[np.bool_]:
    """The safe segments around one without a gap."""
    unsafe = np.flatnonzero(~safe)
    after = int(np.searchsorted(unsafe, here))
    first = int(unsafe[after - 1]) + 1 if after else 0
    last = int(unsafe[after]) if after < len(unsafe) else len(safe)
    run = np.zeros_like(safe)
    run[first:last] = True
    return run


def _stretches(ends: NDArray[np.float64], safe: NDArray[np.bool_]) -> list[Interval]:
    """Neighbouring safe segments as one."""
    edges = np.diff(np.concatenate([[0], safe.astype(np.int8), [0]]))
    first, last = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    return [Interval(lo, hi) for lo, hi in zip(ends[first].tolist(), ends[last].tolist(), strict=True)]


def _meets(side: Sequence[Interval], lo: NDArray[np.float64], hi: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which intervals have a value of the side."""
    starts = np.array([stretch.lo for stretch in side])
    stops = np.array([stretch.hi for stretch in side])
    # The first stretch that ends behind the interval's beginning is the only one that need be looked at.
    first = np.searchsorted(stops, lo, side="right")
    found: NDArray[np.bool_] = first < len(side)
    found &= starts[np.minimum(first, len(side) - 1)] < hi
    return found


def _number_side(name: str, side: Interval) -> NumberSide:
    missing = side.lo == MISSING
    return NumberSide(
        name,
        None if missing or side.lo == LOWEST else side.lo,
        None if side.hi == np.inf else side.hi,
        missing,
    )


def _text_side(name: str, side: Sequence[Interval], dictionary: Dictionary) -> TextSide:
    """As the texts that it has, or, where it has those that nobody names, as the texts that it has not."""
    missing = side[0].lo == MISSING
    codes = np.arange(len(dictionary.texts), dtype=np.float64)
    has = _meets(side, codes, codes + 1.0)
    unnamed = side[-1].hi == np.inf
    listed = frozenset(
        text for text, safe in zip(dictionary.texts, has.tolist(), strict=True) if safe != unnamed
    )
    if unnamed and not listed:
        return TextSide(name, None, missing)
    return TextSide(name, Texts(listed, unnamed), missing)
