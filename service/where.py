"""What a condition means: the ``where`` of a query, in either form, as a region of boxes.

Idea: a comparison on a number is a union of ``[lo, hi)``, on a category a set of texts; ``every`` multiplies
out, ``either`` adds up. The expression form and the JSON form become one tree (``expression``) and take one
path from there, so the same condition gives equal regions.

Rules of emptiness (the contract's "empty as written"): comparisons joined by ``and`` alone are one disjunct;
if no value satisfies it, the query is refused. What multiplying out by an ``or`` leaves empty is dropped;
when nothing is left, the query is refused.

Invariants: no interval is empty, its lower end is finite, no end is ``-0.0``; a region has at most ``limit``
boxes. Work is bounded before it is done, never exponential.

Not for: reading bytes or whole bodies (``language``). Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import product
from typing import Any, NamedTuple

from service.conditions import read_condition
from service.expression import (
    MAX_BYTES,
    Comparison,
    Condition,
    Either,
    Op,
    comparisons,
    parse_expression,
)
from service.forms import known_region
from service.geometry import Polygon, Rectangle, Shape, Shapes, around, lies_in, rectangle_lies_in
from service.literals import Place, Value, number_of, shown
from service.model import (
    IN,
    LOWEST,
    AttributeType,
    Bound,
    Conjunct,
    Interval,
    Reason,
    Refusal,
    Region,
    Source,
    Texts,
    framed,
    shapes_of,
)
from service.shapes import Within, read_shape, shape_json

#: Pairs of conjuncts that may be met for each disjunct of the limit: room for products that are mostly empty.
PAIRS_PER_DISJUNCT = 32

#: So many boxes may be around the shapes of one conjunct: those at the antimeridian have two each.
_MOST_FRAMES = 64


class ShapeLimits(NamedTuple):
    """Of one condition: the most positions of the rings of all its polygons, and the most shapes that must
    hold at once."""

    vertices: int = 10_000
    together: int = 16


USUAL_SHAPES = ShapeLimits()


def parse_where(
    where: Any,
    source: Source,
    *,
    limit: int,
    field: str = "where",
    max_bytes: int = MAX_BYTES,
    shapes: ShapeLimits = USUAL_SHAPES,
) -> Region:
    """The region of a condition text or of ``{"any": [{attribute: {op: bound}}]}``.

    ``limit`` is the largest number of boxes, ``max_bytes`` the longest text in UTF-8. JSON takes the
    operators of ``Op``; ``not_in`` is there so that every region has a JSON form. Raises Refusal:
    unknown_attribute, unknown_field, not_a_number, not_a_category, bad_operator, not_finite, inexact,
    empty_range, syntax, limit. O(length + limit), and the square of the vertices of a polygon at worst.
    """
    region = known_region(where, source, limit=limit, max_bytes=max_bytes)
    if region is not None:
        return region
    if isinstance(where, str):
        condition = parse_expression(where, field, max_bytes=max_bytes)
    else:
        condition = read_condition(where, field)
    return Normaliser(source, limit=limit, field=field, shapes=shapes).region(condition)


def covers(outer: Region, inner: Region, *, limit: int) -> bool:
    """Whether each box of ``inner`` lies in one box of ``outer``: box by box, not as sets of points. A
    category that may be one of several texts is a box for each. False past ``limit * PAIRS_PER_DISJUNCT``
    pairs. O(pairs)."""
    boxes = [box for conjunct in inner.conjuncts for box in _single(conjunct)]
    if len(boxes) * len(outer.conjuncts) > limit * PAIRS_PER_DISJUNCT:
        return False
    return all(any(_within(box, around) for around in outer.conjuncts) for box in boxes)


def _single(conjunct: Conjunct) -> Iterable[Conjunct]:
    """The conjunct with every choice of wanted texts apart."""
    axes = [
        [(name, Texts(frozenset((text,)), False)) for text in sorted(bound.values)]
        if isinstance(bound, Texts) and not bound.negated
        else [(name, bound)]
        for name, bound in conjunct.items()
    ]
    return (dict(chosen) for chosen in product(*axes))


def _within(box: Conjunct, around: Conjunct) -> bool:
    """Whether a conjunct surely lies in another. Of the shapes of the inner one each is looked at alone, and
    the box around them."""
    boxes = _framed(box)
    for name, bound in around.items():
        if isinstance(bound, Shapes):
            if not all(_shape_holds(shape, box, boxes) for shape in bound.shapes):
                return False
        elif not all(name in one and _bound_within(one[name], bound) for one in boxes):
            return False
    return True


def _shape_holds(outer: Shape, inner: Conjunct, boxes: list[Conjunct]) -> bool:
    shapes = shapes_of(inner)
    if shapes is not None and any(lies_in(shape, outer) for shape in shapes.shapes):
        return True
    sides = [(box.get(outer.x), box.get(outer.y)) for box in boxes]
    return all(
        isinstance(x, Interval) and isinstance(y, Interval) and rectangle_lies_in(Rectangle(x, y), outer)
        for x, y in sides
    )


def _bound_within(a: Bound, b: Bound) -> bool:
    if isinstance(a, Interval) and isinstance(b, Interval):
        return b.lo <= a.lo and a.hi <= b.hi
    assert isinstance(a, Texts) and isinstance(b, Texts), "an attribute has one type"
    if b.negated:
        return a.values >= b.values if a.negated else not a.values & b.values
    return not a.negated and a.values <= b.values


def region_json(region: Region) -> dict[str, Any]:
    """The JSON form of a region, of which ``parse_where`` makes an equal region. O(bounds)."""
    return {
        "any": [
            {name: _bound_json(bound) for name, bound in conjunct.items()} for conjunct in region.conjuncts
        ]
    }


def _bound_json(bound: Bound) -> Any:
    if not isinstance(bound, Shapes):
        return dict(comparisons(bound))
    shapes = [shape_json(shape) for shape in bound.ordered()]
    return shapes if len(shapes) > 1 else shapes[0]


Key = frozenset[tuple[str, Bound]]


class _Product(NamedTuple):
    """A conjunction not yet multiplied out: ``plain``, what its comparisons alone allow (never empty), and a
    union of conjuncts for each ``or`` that it holds."""

    plain: list[Conjunct]
    factors: list[list[Conjunct]]


class Normaliser:
    """Turns one condition into a region, within a budget of work.

    ``pairs`` counts the pairs of conjuncts met where both factors have more than one; all other work is
    linear in the condition.
    """

    def __init__(self, source: Source, *, limit: int, field: str, shapes: ShapeLimits = USUAL_SHAPES) -> None:
        self._source = source
        self._limit = limit
        self._field = field
        self._shapes = shapes
        self._vertices = 0
        self.pairs = 0

    def region(self, condition: Condition) -> Region:
        """Raises Refusal: everything that a comparison can be refused for, empty_range, limit."""
        distinct: dict[Key, Conjunct] = {}
        boxes = 0
        for part in condition.parts if isinstance(condition, Either) else (condition,):
            for conjunct in self._union(part):
                if (key := _key(conjunct)) not in distinct:
                    distinct[key] = conjunct
                    boxes += _boxes(conjunct)
                    if boxes > self._limit:
                        raise self._over()
        if not distinct:
            raise Refusal(Reason.EMPTY_RANGE, self._field, "no event can satisfy this; check the bounds")
        return Region(tuple(distinct.values()))

    def _over(self) -> Refusal:
        detail = f"more than {self._limit} disjuncts once multiplied out, which is the limit; split the query"
        return Refusal(Reason.LIMIT, self._field, detail)

    def _union(self, condition: Condition) -> list[Conjunct]:
        plain, factors = self._product(condition)
        return self._multiplied([plain, *factors]) if factors else plain

    def _product(self, condition: Condition) -> _Product:
        if isinstance(condition, Comparison):
            bounds = _bounds(condition, self._source)
            if not bounds:
                detail = "no finite number satisfies this; leave it out"
                raise condition.place.refusal(Reason.EMPTY_RANGE, detail)
            return _Product([{condition.attribute: bound} for bound in bounds], [])
        if isinstance(condition, Within):
            self._vertices += condition.vertices
            if self._vertices > self._shapes.vertices:
                detail = f"polygons have more than {self._shapes.vertices} positions, which is the limit"
                raise Refusal(
                    Reason.LIMIT, self._field, f"{detail} (max_vertices); simplify them, or split the query"
                )
            return _Product([_located(condition, self._source)], [])
        if isinstance(condition, Either):
            union = _distinct(conjunct for part in condition.parts for conjunct in self._union(part))
            return _Product([{}], [union])
        parts = [self._product(part) for part in _gathered(condition.parts)]
        plain = self._multiplied(part.plain for part in parts)
        if not plain:
            detail = "no value satisfies all of these at once; check the bounds"
            raise condition.place.refusal(Reason.EMPTY_RANGE, detail)
        return _Product(plain, [factor for part in parts for factor in part.factors])

    def _multiplied(self, factors: Iterable[list[Conjunct]]) -> list[Conjunct]:
        """The combinations of one conjunct from each factor that are not empty. Small factors come first:
        single conjuncts narrow everything before anything is multiplied."""
        result, *others = sorted(factors, key=len) or [[{}]]
        for factor in others:
            if len(result) > 1 and len(factor) > 1:
                self.pairs += len(result) * len(factor)
                if self.pairs > self._limit * PAIRS_PER_DISJUNCT:
                    raise self._over()
            result = [met for a in result for b in factor if (met := self._met(a, b)) is not None]
            if len(result) > 1:
                result = _distinct(result)
        return result

    def _met(self, a: Conjunct, b: Conjunct) -> Conjunct | None:
        shapes = [found.shapes for one in (a, b) if (found := shapes_of(one))]
        if len(shapes) == 2 and len(shapes[0] | shapes[1]) > self._shapes.together:
            detail = f"more than {self._shapes.together} shapes that must hold at once, which is the limit"
            raise Refusal(Reason.LIMIT, self._field, detail)
        return _meet(a, b)


def _gathered(parts: Iterable[Condition]) -> list[Condition]:
    """The parts of an ``and``, all that excludes values of one attribute gathered in one comparison: n values
    leave n + 1 intervals, at the price of a sort."""
    gathered: list[Condition] = []
    excluding: dict[str, list[Comparison]] = {}
    for part in parts:
        if isinstance(part, Comparison) and part.op in (Op.NE, Op.NOT_IN):
            excluding.setdefault(part.attribute, []).append(part)
        else:
            gathered.append(part)
    for attribute, found in excluding.items():
        values = tuple(value for part in found for value in part.values)
        gathered.append(Comparison(attribute, Op.NOT_IN, values, found[0].place))
    return gathered


def _key(conjunct: Conjunct) -> Key:
    return frozenset(conjunct.items())


def _distinct(conjuncts: Iterable[Conjunct]) -> list[Conjunct]:
    return list({_key(conjunct): conjunct for conjunct in conjuncts}.values())


def _boxes(conjunct: Conjunct) -> int:
    """How many boxes an index stores for it: a category takes k points, or the k + 1 gaps around k points."""
    return math.prod(len(b.values) + b.negated for b in conjunct.values() if isinstance(b, Texts))


def _meet(a: Conjunct, b: Conjunct) -> Conjunct | None:
    """What lies in both, or None."""
    both = dict(a)
    for name, bound in b.items():
        known = both.get(name)
        narrowed = bound if known is None else _narrow(known, bound)
        if narrowed is None:
            return None
        both[name] = narrowed
    return both if _framed(both) else None


def _framed(conjunct: Conjunct) -> list[Conjunct]:
    """The boxes around a conjunct: of shapes, those that are not empty. At most ``_MOST_FRAMES``, which are
    wider where the shapes would come to more."""
    shapes = shapes_of(conjunct)
    if shapes is None:
        return [conjunct]
    boxes = [framed(conjunct, ())]
    for shape in shapes.ordered():
        frames = shape.frame()
        if len(boxes) * len(frames) > _MOST_FRAMES:
            frames = [around(frames)]
        met = (framed(box, [(shape, frame)]) for box in boxes if box is not None for frame in frames)
        boxes = [box for box in met if box is not None]
    return [box for box in boxes if box is not None]


def _narrow(a: Bound, b: Bound) -> Bound | None:
    if isinstance(a, Shapes) and isinstance(b, Shapes):
        return Shapes(a.shapes | b.shapes)
    if isinstance(a, Interval) and isinstance(b, Interval):
        lo, hi = max(a.lo, b.lo), min(a.hi, b.hi)
        return Interval(lo, hi) if lo < hi else None
    assert isinstance(a, Texts) and isinstance(b, Texts), "an attribute has one type"
    if a.negated and b.negated:
        return Texts(a.values | b.values, True)
    if a.negated:
        a, b = b, a
    wanted = a.values - b.values if b.negated else a.values & b.values
    return Texts(wanted, False) if wanted else None


def _type_of(attribute: str, source: Source, place: Place) -> AttributeType:
    kind = source.attributes.get(attribute)
    if kind is None:
        known = ", ".join(list(source.attributes)[:20])
        detail = f"source {source.name} has no attribute {shown(attribute)}; it has {known}"
        raise place.refusal(Reason.UNKNOWN_ATTRIBUTE, detail)
    return kind


def _located(within: Within, source: Source) -> Conjunct:
    """A shape as a conjunct; an upright rectangle is a box like any other."""
    for attribute in within.attributes:
        if _type_of(attribute, source, within.place) is not AttributeType.NUMBER:
            detail = f"{attribute} is a category; a shape lies over two numbers"
            raise within.place.refusal(Reason.BAD_OPERATOR, detail)
    shape = read_shape(within)
    rectangle = shape.rectangle() if isinstance(shape, Polygon) else None
    if rectangle is None:
        return {IN: Shapes(frozenset((shape,)))}
    return {shape.x: Interval(*rectangle.x), shape.y: Interval(*rectangle.y)}


def _bounds(comparison: Comparison, source: Source) -> list[Interval] | list[Texts]:
    """A comparison as the union of these bounds; empty if no value satisfies it."""
    attribute, op, values, place = comparison
    kind = _type_of(attribute, source, place)
    if kind is AttributeType.NUMBER:
        return _intervals(op, sorted({number_of(value) for value in values}))
    if op not in (Op.EQ, Op.NE, Op.IN, Op.NOT_IN):
        detail = f"{attribute} is a category, which has no order; compare it by ==, != or in"
        raise place.refusal(Reason.BAD_OPERATOR, detail)
    return [Texts(frozenset(map(_text, values)), op in (Op.NE, Op.NOT_IN))]


def _intervals(op: Op, numbers: list[float]) -> list[Interval]:
    first = numbers[0]
    match op:
        case Op.GT:
            bounds = [Interval(_next(first), math.inf)]
        case Op.GTE:
            bounds = [Interval(first, math.inf)]
        case Op.LT:
            bounds = [Interval(LOWEST, first)]
        case Op.LTE:
            bounds = [Interval(LOWEST, _next(first))]
        case Op.EQ | Op.IN:
            bounds = [Interval(number, _next(number)) for number in numbers]
        case Op.NE | Op.NOT_IN:
            starts = [LOWEST, *map(_next, numbers)]
            bounds = [Interval(lo, hi) for lo, hi in zip(starts, [*numbers, math.inf], strict=True)]
    return [bound for bound in bounds if bound.lo < bound.hi]


def _next(number: float) -> float:
    """The float64 above; ``+ 0.0`` because the one above -5e-324 would be -0.0."""
    return math.nextafter(number, math.inf) + 0.0


def _text(given: Value) -> str:
    value, place = given
    if not isinstance(value, str):
        raise place.refusal(Reason.NOT_A_CATEGORY, f"{shown(value)} is not a text; write one, in quotes")
    try:
        value.encode()
    except UnicodeEncodeError:
        detail = "half of a surrogate pair is no text; write the whole sign"
        raise place.refusal(Reason.SYNTAX, detail) from None
    return value
