"""Why a region holds a point or does not: a collector beside matching, not a second matcher.

Idea: a region is a union of conjuncts, a conjunct an intersection of *predicates*, one bound on one attribute
each, or one shape. Every distinct predicate on one attribute goes into an index of its own under a slot of
its own, as the boxes that it would be in the index of all queries, and one stab says which predicates hold
where. A conjunct holds where all of its do. So the exact test is the index's, to the last bit, and what is
added is names and distances.

A *distance* is how far a number is from an end of its bound, in units of the attribute, rounded to float64.
The end is the one of the canonical text: ``x > 5`` ends at 5, and that end is *open*: 5 itself is outside. So
a distance of 0 at an open end means that any step beyond it will do. Texts have no distances, and nothing is
near a missing value.

A shape is one predicate on two attributes, decided by the exact test that matching ends with. How far a point
is from it is told in the shape's own unit, and compared with nothing.

Not for: membership (``delta``), or reading events and queries. Pure.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.engine.boxes import stretches
from service.engine.categories import Dictionary
from service.engine.shapes import Located, verified
from service.expression import Op, comparisons
from service.geometry import Shape, Shapes
from service.index.brute import BruteForce
from service.index.protocol import Hits, Points
from service.model import LOWEST, Conjunct, Interval, Region, Texts

_MOST = sys.float_info.max

Value = float | str | tuple[float, float] | None

Predicate = tuple[str, Interval | Texts | Shape]
"""What a conjunct asks of an attribute, or of two by a shape (under ``IN``)."""

Values = Mapping[str, float | str]
"""The present attributes of one point, categories as texts."""


class Border(NamedTuple):
    """An end of a bound on a number, and how far away it is (at most the largest float64). ``open``: the end
    itself does not satisfy the bound. The edge of a shape has no ``end``; its distance is in the units of the
    attributes, from a circle in m."""

    attribute: str
    end: float | None
    distance: float
    open: bool


class Failure(NamedTuple):
    """A predicate that does not hold. ``value`` is None where the attribute is missing; ``nearest`` is the
    end that is to be passed, None where no change of a number would do: a missing value, a text. Of a shape
    ``attribute`` is such as ``(lon, lat)``, and ``value`` the position."""

    attribute: str
    bound: Interval | Texts | Shape
    value: Value
    nearest: Border | None


class Disjunct(NamedTuple):
    """One conjunct of the region. ``nearest``: where it holds and has no shape, its border that is nearest;
    where numbers alone are in the way, the one of them that is farthest; else None."""

    holds: bool
    fails: Sequence[Failure]
    nearest: Border | None


class Explanation(NamedTuple):
    """Of one point; disjuncts in the canonical order of the region.

    ``nearest`` of a region that holds: as long as no number moves by as much, one disjunct goes on holding.
    Of one that does not: if every number may move a little beyond as much, some disjunct can be made to hold.
    None where no number has such a border, or a shape has a say.
    """

    holds: bool
    disjuncts: Sequence[Disjunct]
    nearest: Border | None


class Condition:
    """A region over the attributes of a source, ready to be asked. O(bounds) to make.

    What it takes from the dictionaries it takes now: any thread may call ``explain`` later.
    """

    def __init__(
        self, region: Region, attributes: Sequence[str], dictionaries: Mapping[str, Dictionary]
    ) -> None:
        self._place = {name: place for place, name in enumerate(attributes)}
        conjuncts = [_predicates(conjunct) for conjunct in region.conjuncts]
        distinct = dict.fromkeys(predicate for conjunct in conjuncts for predicate in conjunct)
        slot_of = {predicate: slot for slot, predicate in enumerate(distinct)}
        self._predicates = list(distinct)
        self._axes = [
            (slot, self._place[name], end)
            for slot, (name, bound) in enumerate(distinct)
            if not isinstance(bound, Shape)
            for end in stretches(bound, dictionaries.get(name))
        ]
        self._shapes = [
            (slot, Located(bound, self._place))
            for slot, (_, bound) in enumerate(distinct)
            if isinstance(bound, Shape)
        ]
        self._conjuncts = [
            np.array([slot_of[predicate] for predicate in conjunct], np.intp) for conjunct in conjuncts
        ]

    def explain(self, points: Points, values: Sequence[Values]) -> list[Explanation]:
        """What holds and fails at each of ``float64[m, d]`` points, whose present attributes are ``values``.

        O(m * bounds)."""
        holds = self._holding(np.ascontiguousarray(points))
        return [self._explanation(row, one) for row, one in zip(holds, values, strict=True)]

    def _holding(self, points: Points) -> NDArray[np.bool_]:
        """Which predicate holds at which point: ``bool[m, predicates]``."""
        index = BruteForce(points.shape[1])
        slots = np.array([slot for slot, _, _ in self._axes], np.int32)
        places = np.array([place for _, place, _ in self._axes], np.intp)
        lo = np.full((len(slots), points.shape[1]), -np.inf)
        hi = np.full((len(slots), points.shape[1]), np.inf)
        boxes = np.arange(len(slots))
        lo[boxes, places] = [end.lo for _, _, end in self._axes]
        hi[boxes, places] = [end.hi for _, _, end in self._axes]
        index.insert(slots, lo, hi)
        hits = index.stab(points)
        holds = np.zeros((len(points), len(self._predicates)), np.bool_)
        holds[hits.rows, hits.slots] = True
        every = np.arange(len(points), dtype=np.int32)
        for slot, test in self._shapes:
            holds[:, slot] = verified(Hits(every, np.zeros_like(every)), points, [[test]])
        return holds

    def _explanation(self, holding: NDArray[np.bool_], values: Values) -> Explanation:
        disjuncts = [self._disjunct(slots, holding, values) for slots in self._conjuncts]
        holds = any(one.holds for one in disjuncts)
        borders = [one.nearest for one in disjuncts if one.holds == holds]
        near = [border for border in borders if border is not None]
        if holds:
            nearest = None if len(near) < len(borders) else max(near, key=_room)
        else:
            nearest = min(near, key=_way, default=None)
        return Explanation(holds, disjuncts, nearest)

    def _disjunct(self, slots: NDArray[np.intp], holding: NDArray[np.bool_], values: Values) -> Disjunct:
        predicates = [self._predicates[slot] for slot in slots.tolist()]
        fails = [
            _failure(predicate, values)
            for predicate, holds in zip(predicates, holding[slots].tolist(), strict=True)
            if not holds
        ]
        if not fails:
            if any(isinstance(bound, Shape) for _, bound in predicates):
                return Disjunct(True, fails, None)
            near = [end for name, bound in predicates for end in _around(name, bound, values[name])]
            return Disjunct(True, fails, min(near, key=_room, default=None))
        far = [one.nearest for one in fails if one.nearest is not None and one.nearest.end is not None]
        return Disjunct(False, fails, max(far, key=_way) if len(far) == len(fails) else None)


def _predicates(conjunct: Conjunct) -> list[Predicate]:
    found: list[Predicate] = []
    for name, bound in conjunct.items():
        found += ((name, one) for one in (bound.ordered() if isinstance(bound, Shapes) else [bound]))
    return found


def _failure(predicate: Predicate, values: Values) -> Failure:
    name, bound = predicate
    if not isinstance(bound, Shape):
        return Failure(name, bound, values.get(name), _in_the_way(name, bound, values.get(name)))
    named = f"({bound.x}, {bound.y})"
    x, y = values.get(bound.x), values.get(bound.y)
    if not isinstance(x, float) or not isinstance(y, float):
        return Failure(named, bound, None, None)
    return Failure(named, bound, (x, y), Border(named, None, min(bound.distance(x, y), _MOST), False))


def _room(border: Border) -> tuple[float, bool]:
    """How much of a way there is to a border before the bound ends: an open one ends before it is reached."""
    return border.distance, not border.open


def _way(border: Border) -> tuple[float, bool]:
    """How long the way into the bound is: an open border is to be passed, a closed one to be reached."""
    return border.distance, border.open


def _in_the_way(attribute: str, bound: Interval | Texts, value: float | str | None) -> Border | None:
    """The end that a value outside is to pass."""
    if value is None or isinstance(value, str) or isinstance(bound, Texts):
        return None
    low, high = _ends(bound)
    end = low if value < bound.lo else high
    assert end is not None, "where there is no end there is nothing outside"
    return _border(attribute, end, value)


def _around(attribute: str, bound: Interval | Texts | Shape, value: float | str) -> list[Border]:
    """The ends around a value inside."""
    if isinstance(value, str) or not isinstance(bound, Interval):
        return []
    return [_border(attribute, end, value) for end in _ends(bound) if end is not None]


class _End(NamedTuple):
    at: float
    open: bool


def _border(attribute: str, end: _End, value: float) -> Border:
    return Border(attribute, end.at, min(abs(value - end.at), _MOST), end.open)


def _ends(bound: Interval) -> tuple[_End | None, _End | None]:
    """The ends of the canonical text, lower and upper; None where there is no finite one."""
    low = high = None
    for op, at in comparisons(bound):
        assert not isinstance(at, str | list), "an interval is compared with numbers"
        end = _End(float(at), op in (Op.GT, Op.LT))
        if op is Op.EQ or op in (Op.GT, Op.GTE):
            low = end
        if op is Op.EQ or op in (Op.LT, Op.LTE):
            high = end
    return (None if bound.lo == LOWEST else low), high
