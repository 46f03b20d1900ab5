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

from service.expression import (
    MAX_BYTES,
    Comparison,
    Condition,
    Either,
    Every,
    Op,
    Place,
    Value,
    comparisons,
    parse_expression,
)
from service.model import LOWEST, AttributeType, Conjunct, Interval, Reason, Refusal, Region, Source, Texts

#: Pairs of conjuncts that may be met for each disjunct of the limit: room for products that are mostly empty.
PAIRS_PER_DISJUNCT = 32


def parse_where(
    where: Any, source: Source, *, limit: int, field: str = "where", max_bytes: int = MAX_BYTES
) -> Region:
    """The region of a condition text or of ``{"any": [{attribute: {op: bound}}]}``.

    ``limit`` is the largest number of boxes, ``max_bytes`` the longest text in UTF-8. JSON takes the
    operators of ``Op``; ``not_in`` is there so that every region has a JSON form. Raises Refusal:
    unknown_attribute, unknown_field, not_a_number, not_a_category, bad_operator, not_finite, inexact,
    empty_range, syntax, limit. O(length + limit).
    """
    if isinstance(where, str):
        condition = parse_expression(where, field, max_bytes=max_bytes)
    else:
        condition = _json_condition(where, field)
    return Normaliser(source, limit=limit, field=field).region(condition)


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
    return all(name in box and _bound_within(box[name], bound) for name, bound in around.items())


def _bound_within(a: Interval | Texts, b: Interval | Texts) -> bool:
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
            {name: dict(comparisons(bound)) for name, bound in conjunct.items()}
            for conjunct in region.conjuncts
        ]
    }


_OPERATORS = frozenset(Op)


def _json_condition(where: Any, field: str) -> Condition:
    if not isinstance(where, dict) or "any" not in where:
        raise Refusal(Reason.SYNTAX, field, 'must be a condition text or {"any": [{attribute: {op: bound}}]}')
    for key in where:
        if key != "any":
            raise Refusal(Reason.UNKNOWN_FIELD, f"{field}.{shown(key)}", 'stands beside "any"; leave it out')
    disjuncts = where["any"]
    place = Place(f"{field}.any")
    if not isinstance(disjuncts, list) or not disjuncts:
        raise place.refusal(
            Reason.SYNTAX, "must be a list of at least one object; [{}] is true of every event"
        )
    # Read one by one, so that a list far over the limit is not read to its end.
    return Either((_json_disjunct(d, f"{field}.any[{i}]") for i, d in enumerate(disjuncts)), place)


def _json_disjunct(disjunct: Any, field: str) -> Condition:
    if not isinstance(disjunct, dict):
        raise Refusal(Reason.SYNTAX, field, "must be an object of attributes and their bounds")
    parts = (_json_bounds(name, bounds, f"{field}.{shown(name)}") for name, bounds in disjunct.items())
    return Every(tuple(parts), Place(field))


def _json_bounds(attribute: str, bounds: Any, field: str) -> Condition:
    if not isinstance(bounds, dict) or not bounds:
        raise Refusal(Reason.SYNTAX, field, 'must be an object of at least one bound, such as {"gte": 0}')
    parts = (_json_comparison(attribute, op, bound, field) for op, bound in bounds.items())
    return Every(tuple(parts), Place(field))


def _json_comparison(attribute: str, name: str, bound: Any, field: str) -> Comparison:
    place = Place(f"{field}.{shown(name)}")
    if name not in _OPERATORS:
        raise place.refusal(Reason.BAD_OPERATOR, f"is no operator; use one of {', '.join(Op)}")
    op = Op(name)
    if op not in (Op.IN, Op.NOT_IN):
        return Comparison(attribute, op, (Value(bound, place),), place)
    if not isinstance(bound, list) or not bound:
        raise place.refusal(Reason.SYNTAX, "must be a list of at least one value")
    values = tuple(Value(value, Place(f"{place.field}[{i}]")) for i, value in enumerate(bound))
    return Comparison(attribute, op, values, place)


Key = frozenset[tuple[str, Interval | Texts]]


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

    def __init__(self, source: Source, *, limit: int, field: str) -> None:
        self._source = source
        self._limit = limit
        self._field = field
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
            result = [met for a in result for b in factor if (met := _meet(a, b)) is not None]
            if len(result) > 1:
                result = _distinct(result)
        return result


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
    return both


def _narrow(a: Interval | Texts, b: Interval | Texts) -> Interval | Texts | None:
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


def _bounds(comparison: Comparison, source: Source) -> list[Interval] | list[Texts]:
    """A comparison as the union of these bounds; empty if no value satisfies it."""
    attribute, op, values, place = comparison
    kind = source.attributes.get(attribute)
    if kind is None:
        known = ", ".join(list(source.attributes)[:20])
        detail = f"source {source.name} has no attribute {shown(attribute)}; it has {known}"
        raise place.refusal(Reason.UNKNOWN_ATTRIBUTE, detail)
    if kind is AttributeType.NUMBER:
        return _intervals(op, sorted({_number(value) for value in values}))
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


def _number(given: Value) -> float:
    """The bound as a finite float64, never -0.0. Raises Refusal: not_a_number, not_finite, inexact."""
    value, place = given
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise place.refusal(Reason.NOT_A_NUMBER, f"{shown(value)} is not a number; write one, without quotes")
    if isinstance(value, float):
        if not math.isfinite(value):
            raise place.refusal(
                Reason.NOT_FINITE, "must be a finite float64; leave the bound out for no limit"
            )
        return value + 0.0
    try:
        number = float(value)
    except OverflowError:
        detail = "no float64 is such a large integer; leave the bound out for no limit"
        raise place.refusal(Reason.INEXACT, detail) from None
    if int(number) != value:
        detail = f"no float64 is exactly {value}; write {value}.0 for the nearest, which is {int(number)}"
        raise place.refusal(Reason.INEXACT, detail)
    return number + 0.0


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


def shown(value: object) -> str:
    """A value in a few words, for details: of whatever size and depth it is."""
    if isinstance(value, str):
        return value if len(value) <= 80 else value[:77] + "..."
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int | float):
        return repr(value) if abs(value) < 1e300 else "a huge number"
    return "an object" if isinstance(value, dict) else "a list"
