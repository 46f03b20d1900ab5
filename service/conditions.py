"""The JSON form of conditions, ``{"any": [{attribute: {op: bound}}]}``, read into the tree of ``expression``.

Not for: what a comparison means on an attribute of some type (``where``). Pure.
"""

from __future__ import annotations

from typing import Any

from service.expression import Comparison, Condition, Either, Every, Op
from service.literals import Place, Value, shown
from service.model import IN, Reason, Refusal
from service.shapes import Within, json_shapes

_OPERATORS = frozenset(Op)


def read_condition(where: Any, field: str) -> Condition:
    """The tree of a condition as JSON. Raises Refusal: syntax, unknown_field, bad_operator. O(bounds)."""
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
    parts: list[Condition] = []
    for name, given in disjunct.items():
        where = f"{field}.{shown(name)}"
        if name == IN:
            parts += [_any_part(shape, Place(where)) for shape in json_shapes(given, where)]
        else:
            parts.append(_json_bounds(name, given, where))
    return Every(tuple(parts), Place(field))


def _any_part(parts: list[Within], place: Place) -> Condition:
    return parts[0] if len(parts) == 1 else Either(parts, place)


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
