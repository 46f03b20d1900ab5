"""Condition texts: from ``29.5 <= lat < 29.8 and kind in ('tug', 'tanker')`` to a tree, and back.

Idea: the text is Python's comparison syntax. A scan over tokens lets through only what conditions need (so
the parser never meets a comment, a call by keyword or a strange escape, and has no warning to give), then
``ast`` parses it and a walk turns it into the tree. Nothing is evaluated. ``not`` is pushed down on the way:
the tree holds no negation, each comparison under it is its opposite.

Invariants: the parser raises ``Refusal`` and nothing else; a refusal names the column, counted in characters
from 1. What ``print_region`` writes parses to an equal region.

Not for: what a comparison means on an attribute of some type (``where``). Pure.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from service.geometry import Shapes
from service.literals import Place, Value
from service.model import LOWEST, Bound, Conjunct, Interval, Reason, Refusal, Region, Texts
from service.shapes import CIRCLE, POLYGON, Within, plain, shape_text

MAX_BYTES = 64 * 1024
MAX_DEPTH = 64

#: No integer with more digits is a float64; Python itself refuses to read very long ones.
MAX_DIGITS = 309


class Op(StrEnum):
    """Comparison of an attribute with one value or, for the last two, with several."""

    GT = "gt"
    GTE = "gte"
    LT = "lt"
    LTE = "lte"
    EQ = "eq"
    NE = "ne"
    IN = "in"
    NOT_IN = "not_in"


class Comparison(NamedTuple):
    attribute: str
    op: Op
    values: tuple[Value, ...]
    place: Place


class Every(NamedTuple):
    """All parts hold; without parts it is true of every event."""

    parts: tuple[Condition, ...]
    place: Place


class Either(NamedTuple):
    """At least one part holds. To be read once."""

    parts: Iterable[Condition]
    place: Place


Condition = Comparison | Within | Every | Either

_OPPOSITE = {
    Op.GT: Op.LTE,
    Op.LTE: Op.GT,
    Op.LT: Op.GTE,
    Op.GTE: Op.LT,
    Op.EQ: Op.NE,
    Op.NE: Op.EQ,
    Op.IN: Op.NOT_IN,
    Op.NOT_IN: Op.IN,
}

#: The comparison as it reads from the other side: ``5 < x`` is ``x > 5``.
_MIRROR = {Op.GT: Op.LT, Op.LT: Op.GT, Op.GTE: Op.LTE, Op.LTE: Op.GTE, Op.EQ: Op.EQ, Op.NE: Op.NE}

_OPS: dict[type[ast.cmpop], Op] = {
    ast.Gt: Op.GT,
    ast.GtE: Op.GTE,
    ast.Lt: Op.LT,
    ast.LtE: Op.LTE,
    ast.Eq: Op.EQ,
    ast.NotEq: Op.NE,
    ast.In: Op.IN,
    ast.NotIn: Op.NOT_IN,
}

_TOKEN = re.compile(
    r"""(?P<space>[ \t\f\r\n]+)
    | (?P<name>[^\W\d]\w*\b(?!['"]))
    | (?P<number>(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][+-]?[0-9_]+)?(?![\w.]))
    | (?P<text>(?P<quote>['"])(?:[^'"\\\r\n]|(?!(?P=quote))['"]
        |\\(?:[\\'"abfnrtv]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}))*(?P=quote))
    | (?P<open>[(\[{])
    | (?P<close>[)\]}])
    | (?P<op>[<>]=?|[=!]=|[,+-])""",
    re.VERBOSE,
)

_HINTS = {
    "=": "write == for equality",
    "!": "write not, or !=",
    "&": "write and",
    "|": "write or",
    "*": "arithmetic is not supported; compare an attribute with a number",
    "/": "arithmetic is not supported; compare an attribute with a number",
    "#": "comments are not supported; leave this out",
    "'": "close the text with ' on the same line and double each backslash in it",
    '"': 'close the text with " on the same line and double each backslash in it',
}


def parse_expression(text: str, field: str, *, max_bytes: int = MAX_BYTES) -> Condition:
    """The tree of a condition text. Raises Refusal: syntax, bad_operator, inexact, limit, empty_range
    (``False``). O(length)."""
    _scan(text, field, max_bytes)
    # In parentheses a line may end anywhere; blanks keep it one line, so that a byte offset in the line is a
    # place in the text.
    line = "(" + re.sub(r"[\r\n]", " ", text) + ")"
    try:
        tree = ast.parse(line, mode="eval")
    except (MemoryError, RecursionError):
        raise Refusal(Reason.LIMIT, field, "too many signs or nots in a row; leave some out") from None
    except (SyntaxError, ValueError) as error:
        offset = getattr(error, "offset", None)
        column = min(max(offset - 1, 1), len(text)) if offset else None
        detail = "cannot be read here; write such as x > 5 and kind in ('a', 'b')"
        raise Place(field, column).refusal(Reason.SYNTAX, detail) from None
    return _Walk(line, field).condition(tree.body, True)


def _scan(text: str, field: str, max_bytes: int) -> None:
    """Refuses texts that are too long or nested too deep, and every token that no condition needs."""
    if not text.strip():
        raise Refusal(Reason.SYNTAX, field, "is empty; write True for a query that every event satisfies")
    if len(text) > max_bytes or len(text.encode("utf-8", "surrogatepass")) > max_bytes:
        raise Refusal(Reason.LIMIT, field, f"is longer than {max_bytes} bytes; split the query")
    at, brackets, before = 0, "", ""
    while at < len(text):
        token = _TOKEN.match(text, at)
        place = Place(field, at + 1)
        if token is None:
            raise place.refusal(Reason.SYNTAX, _hint(text[at]))
        kind, sign = token.lastgroup, token.group()
        if kind == "open":
            brackets += sign
            if len(brackets) > MAX_DEPTH:
                raise place.refusal(
                    Reason.LIMIT, f"nested deeper than {MAX_DEPTH} brackets; write it flatter"
                )
        elif kind == "close":
            if brackets[-1:] + sign not in ("()", "[]", "{}"):
                raise place.refusal(Reason.SYNTAX, f"{sign} closes nothing; leave it out")
            brackets = brackets[:-1]
        elif kind == "text" and before == "text":
            raise place.refusal(Reason.SYNTAX, "two texts side by side; put a comma between them")
        elif kind == "number" and len(digits := sign.replace("_", "")) > MAX_DIGITS and digits.isdecimal():
            raise place.refusal(
                Reason.INEXACT, "no float64 is such a long integer; write it with an exponent"
            )
        before = before if kind == "space" else str(kind)
        at = token.end()
    if brackets:
        raise Place(field, len(text)).refusal(Reason.SYNTAX, f"{brackets[-1]} is never closed; close it")


def _hint(sign: str) -> str:
    if "0" <= sign <= "9":
        return "write the number in decimal, with a blank after it"
    return _HINTS.get(sign, f"{sign!a} has no meaning here; leave it out")


class _Walk:
    """From ``ast`` nodes to the tree. ``holds`` is False under an odd number of ``not``."""

    def __init__(self, line: str, field: str) -> None:
        self._line = line.encode()
        self._ascii = line.isascii()
        self._field = field

    def _place(self, node: ast.expr) -> Place:
        # The bracket before the text makes the 0-based offset the 1-based column.
        before = node.col_offset
        column = before if self._ascii else len(self._line[:before].decode())
        return Place(self._field, max(column, 1))

    def condition(self, node: ast.expr, holds: bool) -> Condition:
        while isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            node, holds = node.operand, not holds
        place = self._place(node)
        if isinstance(node, ast.BoolOp):
            parts = tuple(self.condition(part, holds) for part in node.values)
            return (Every if isinstance(node.op, ast.And) == holds else Either)(parts, place)
        if isinstance(node, ast.Compare):
            return self._chain(node, holds)
        if isinstance(node, ast.Constant) and isinstance(node.value, bool):
            if node.value == holds:
                return Every((), place)
            raise place.refusal(Reason.EMPTY_RANGE, "this is true of no event; leave it out")
        if isinstance(node, ast.Name):
            detail = f"{_cut(node.id)} stands alone; compare it, as in {_cut(node.id)} > 0"
            raise place.refusal(Reason.SYNTAX, detail)
        detail = "only comparisons of an attribute with literals, joined by and, or, not"
        raise place.refusal(Reason.SYNTAX, detail)

    def _chain(self, node: ast.Compare, holds: bool) -> Condition:
        sides = [node.left, *node.comparators]
        parts = tuple(
            self._comparison(left, op, right, holds)
            for left, op, right in zip(sides, node.ops, sides[1:], strict=False)
        )
        if len(parts) == 1:
            return parts[0]
        return (Every if holds else Either)(parts, self._place(node))

    def _comparison(
        self, left: ast.expr, sign: ast.cmpop, right: ast.expr, holds: bool
    ) -> Comparison | Within:
        place = self._place(left)
        op = _OPS.get(type(sign))
        if op is None:
            raise place.refusal(Reason.BAD_OPERATOR, "is has no meaning here; write == or !=")
        if op in (Op.IN, Op.NOT_IN):
            if isinstance(left, ast.Tuple) or isinstance(right, ast.Call):
                return self._within(left, right, (op is Op.IN) == holds)
            if not isinstance(left, ast.Name):
                raise place.refusal(
                    Reason.SYNTAX, "the left side of in is an attribute; write such as x in (1, 2)"
                )
            name, values = left.id, self._members(right)
        elif isinstance(right, ast.Name) and (not isinstance(left, ast.Name) or _is_not_finite(left)):
            name, values, op = right.id, (self._literal(left),), _MIRROR[op]
        elif isinstance(left, ast.Name):
            name, values = left.id, (self._literal(right),)
        else:
            raise place.refusal(Reason.SYNTAX, "one side must be an attribute and the other a literal")
        return Comparison(name, op if holds else _OPPOSITE[op], values, place)

    def _within(self, left: ast.expr, right: ast.expr, holds: bool) -> Within:
        place = self._place(left)
        names = (
            [one.id for one in left.elts if isinstance(one, ast.Name)] if isinstance(left, ast.Tuple) else []
        )
        named = right.func.id if isinstance(right, ast.Call) and isinstance(right.func, ast.Name) else ""
        if len(names) != 2 or named not in (CIRCLE, POLYGON):
            detail = (
                "write such as (lon, lat) in circle(-95.0, 29.6, 500) or in polygon([(0, 0), (4, 0), (4, 4)])"
            )
            raise place.refusal(Reason.SYNTAX, detail)
        if not holds:
            raise place.refusal(Reason.BAD_OPERATOR, "there is no opposite of a shape; leave out the not")
        assert isinstance(right, ast.Call)
        if named == CIRCLE:
            numbers = [self._literal(one).value for one in right.args]
            if len(numbers) != 3:
                detail = "circle takes longitude and latitude of its centre and its radius in metres"
                raise place.refusal(Reason.SYNTAX, detail)
        else:
            numbers = [self._ring(ring) for ring in right.args]
        return Within((names[0], names[1]), named, numbers, place)

    def _ring(self, node: ast.expr) -> list[list[object]]:
        """The positions of a ring; it is closed where the text does not."""
        if not isinstance(node, ast.List | ast.Tuple):
            detail = "a ring is a list of positions, such as [(0, 0), (4, 0), (4, 4)]"
            raise self._place(node).refusal(Reason.SYNTAX, detail)
        ring: list[list[object]] = []
        for position in node.elts:
            if not isinstance(position, ast.List | ast.Tuple) or len(position.elts) != 2:
                raise self._place(position).refusal(Reason.SYNTAX, "a position is such as (-95.0, 29.6)")
            ring.append([self._literal(number).value for number in position.elts])
        return [*ring, ring[0]] if ring and ring[0] != ring[-1] else ring

    def _members(self, node: ast.expr) -> tuple[Value, ...]:
        if not isinstance(node, ast.Tuple | ast.List | ast.Set):
            detail = "after in comes a list; write such as (1, 2), or ('a',) for one value"
            raise self._place(node).refusal(Reason.SYNTAX, detail)
        if not node.elts:
            raise self._place(node).refusal(Reason.SYNTAX, "the list is empty; name at least one value")
        return tuple(self._literal(member) for member in node.elts)

    def _literal(self, node: ast.expr) -> Value:
        place = self._place(node)
        signs, negative = 0, False
        while isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
            signs, negative = signs + 1, negative != isinstance(node.op, ast.USub)
            node = node.operand
        if not isinstance(node, ast.Constant):
            detail = "a literal must stand here: compare an attribute with a number or a text"
            if isinstance(node, ast.Name) and _is_not_finite(node):
                detail = f"{node.id} is no number to compare with; leave the bound out for no limit"
            raise place.refusal(Reason.SYNTAX, detail)
        value = node.value
        if signs:
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise place.refusal(Reason.SYNTAX, "a sign belongs before a number; leave it out")
            value = -value if negative else value
        return Value(value, place)


def print_region(region: Region) -> str:
    """The canonical text of a region, of which ``parse_where`` makes an equal region (with a larger
    ``max_bytes`` if the region is very large). O(bounds).

    Each bound takes the shortest of its exact forms (``x > 5``, not ``x >= 5.000000000000001``). The conjunct
    that is true of every event is ``True``.
    """
    return " or ".join(_conjunct_text(conjunct) for conjunct in region.conjuncts)


def _conjunct_text(conjunct: Conjunct) -> str:
    return " and ".join(_bound_text(name, bound) for name, bound in conjunct.items()) or "True"


_SIGNS = {Op.GT: ">", Op.GTE: ">=", Op.LT: "<", Op.LTE: "<=", Op.EQ: "==", Op.NE: "!="}


def _bound_text(name: str, bound: Bound) -> str:
    if isinstance(bound, Shapes):
        return " and ".join(map(shape_text, bound.ordered()))
    said = comparisons(bound)
    if len(said) == 2:
        (low, lo), (high, hi) = said
        return f"{lo!r} {_SIGNS[_MIRROR[low]]} {name} {_SIGNS[high]} {hi!r}"
    op, value = said[0]
    if isinstance(value, list):
        return f"{name} {'in' if op is Op.IN else 'not in'} ({', '.join(map(repr, value))})"
    return f"{name} {_SIGNS[op]} {value!r}"


def comparisons(bound: Interval | Texts) -> list[tuple[Op, int | float | str | list[str]]]:
    """A bound as the one or two comparisons that mean it: of a two-sided range, the lower end first."""
    if isinstance(bound, Texts):
        values = sorted(bound.values)
        if len(values) == 1:
            return [(Op.NE if bound.negated else Op.EQ, values[0])]
        return [(Op.NOT_IN if bound.negated else Op.IN, values)]
    lo, hi = bound
    if hi == math.nextafter(lo, math.inf):
        return [(Op.EQ, plain(lo))]
    said: list[tuple[Op, int | float | str | list[str]]] = []
    if lo > LOWEST or hi == math.inf:
        said.append(_shortest((Op.GTE, lo), (Op.GT, math.nextafter(lo, -math.inf))))
    if hi < math.inf:
        said.append(_shortest((Op.LT, hi), (Op.LTE, math.nextafter(hi, -math.inf))))
    return said


def _shortest(*forms: tuple[Op, float]) -> tuple[Op, int | float]:
    spoken: Iterable[tuple[Op, int | float]] = ((op, plain(end)) for op, end in forms if math.isfinite(end))
    return min(spoken, key=lambda form: len(repr(form[1])))


def _is_not_finite(name: ast.Name) -> bool:
    """Whether a name reads as a number that is none. An attribute may be called so, too."""
    return name.id.lower() in ("nan", "inf", "infinity")


def _cut(name: str) -> str:
    return name if len(name) <= 64 else name[:61] + "..."
