"""Conditions that differ in their literals only: what they have in common is worked out once.

Idea: a million queries are written by a few programs, each with a handful of *forms*, such as
``# <= x < # and # <= y < #``. The literals are cut out of a condition; what is left over tells, once parsed,
which end of which bound each of them is. The next condition of the form takes its literals and puts them
there: a tenth of the work of scanning, parsing and multiplying out.

A form holds only where no literal can change more than the bound that it stands in: each attribute of a
disjunct has at most one lower and one upper end, or one set of texts, and nothing is negated. Everything else
(shapes, exclusions, an ``or`` within an ``and``, literals of unusual spelling) has no form, and what a form
would refuse is not refused here: for all of that the answer is None, and the condition goes the whole way
(``where``), which says what is wrong and where.

Invariant: a region from here equals that of the whole way. Pure; the forms met last are remembered.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

from service.conditions import read_condition
from service.expression import Comparison, Condition, Either, Every, Op, parse_expression
from service.model import LOWEST, AttributeType, Bound, Conjunct, Interval, Refusal, Region, Source, Texts

#: Longer conditions are seldom like another, and are all the longer remembered.
_LONGEST = 2_000
_MOST_FORMS = 4_096

# A literal as the scanner sees it, if spelled plainly: what stands around it is no part of it, and another
# of its kind in its place is one token as well. Fifteen digits are exact in a float64.
_AFTER_NONE = r"""(?<![\w.'"].)"""
_NUMBER = rf"""(?:0{_AFTER_NONE}|[1-9]{_AFTER_NONE}[0-9]{{0,14}})(?:\.[0-9]{{1,17}})?(?![\w.'"])"""
_TEXT = r"""'[ !#-&(-\[\]-~]*'"""
_numbers_in = re.compile(f"({_NUMBER})").split
_literals_in = re.compile(f"({_TEXT}|{_NUMBER})").split
#: In place of the literals when a form is worked out: no other spelling of a literal means one of these.
_FIRST = 7_000_003

Literal = float | str

_interval = partial(tuple.__new__, Interval)


class _End(NamedTuple):
    """One end of an interval: literal number ``place``, negated or not, or the float64 above it."""

    place: int
    sign: float
    above: bool


def _above(number: float) -> float:
    return math.nextafter(number, math.inf) + 0.0


#: Where there is no bound: of no sign.
_NO_END = _End(0, 0.0, False)


class _Range(NamedTuple):
    """Of a number."""

    lo: _End
    hi: _End


class _Choice(NamedTuple):
    """Of a category: one of the literals at these places."""

    places: tuple[int, ...]


class Form(NamedTuple):
    """By disjunct the attributes that it bounds, in order of name. No region of it has more boxes than
    ``most_boxes``."""

    disjuncts: tuple[tuple[tuple[str, _Range | _Choice], ...], ...]
    most_boxes: int

    def region(self, literals: Sequence[Any], source: Source, limit: int) -> Region | None:
        """The region with these literals; None where one is out of place, or a bound is empty. O(bounds)."""
        if self.most_boxes > limit:
            return None
        types = source.attributes
        conjuncts: list[Conjunct] = []
        for disjunct in self.disjuncts:
            conjunct: dict[str, Bound] = {}
            for name, bound in disjunct:
                kind = types.get(name)
                if isinstance(bound, _Range):  # written out: it is done for every bound of a million queries
                    (low, low_sign, above_low), (high, high_sign, above_high) = bound
                    lo = low_sign * literals[low] + 0.0 if low_sign else LOWEST
                    hi = high_sign * literals[high] + 0.0 if high_sign else math.inf
                    lo = _above(lo) if above_low else lo
                    hi = _above(hi) if above_high else hi
                    if not lo < hi or kind is not AttributeType.NUMBER:
                        return None
                    conjunct[name] = _interval((lo, hi))
                else:
                    texts = [str(literals[i]) for i in bound.places]
                    if kind is not AttributeType.CATEGORY or not all(map(str.isascii, texts)):
                        return None  # half of a surrogate pair is no text
                    conjunct[name] = Texts(frozenset(texts), False)
            conjuncts.append(conjunct)
        return Region(tuple(conjuncts))


def known_region(where: Any, source: Source, *, limit: int, max_bytes: int) -> Region | None:
    """The region of a condition in either form, if it is of a form that is known by now; see the module.
    O(length)."""
    if isinstance(where, str):
        if len(where) > _LONGEST or 4 * len(where) > max_bytes:
            return None
        if "'" in where:
            pieces = _literals_in(where)
            found = pieces[1::2]
            literals = [one[1:-1] if one[0] == "'" else float(one) for one in found]
            texts = tuple([i for i, one in enumerate(found) if one[0] == "'"])
        else:
            pieces = _numbers_in(where)
            literals, texts = list(map(float, pieces[1::2])), ()
        form = _form_of_text(tuple(pieces[::2]), texts)
    else:
        parts = _json_parts(where)
        if parts is None:
            return None
        bounds, literals = parts
        form = _form_of_json(bounds)
    return None if form is None else form.region(literals, source, limit)


# ---- texts


@lru_cache(maxsize=_MOST_FORMS)
def _form_of_text(frame: tuple[str, ...], texts: tuple[int, ...]) -> Form | None:
    """The form of a text without its literals; ``texts``: which of them are texts."""
    literals = [repr(str(_FIRST + i)) if i in texts else str(_FIRST + i) for i in range(len(frame) - 1)]
    text = "".join(piece for pair in zip(frame, [*literals, ""], strict=True) for piece in pair)
    try:
        return _form(parse_expression(text, ""), len(literals))
    except Refusal:
        return None


# ---- JSON

_JsonForm = tuple[tuple[tuple[str, str, int], ...], ...]
"""By disjunct: attribute, operator, and of how many texts; 0 for a number."""


def _json_parts(where: Any) -> tuple[_JsonForm, list[Literal]] | None:
    """What a condition as JSON has in common with others, and its literals; None if it is unusual."""
    if not isinstance(where, dict) or len(where) != 1:
        return None
    disjuncts = where.get("any")
    if not isinstance(disjuncts, list) or not 0 < len(disjuncts) <= 10:
        return None
    literals: list[Literal] = []
    form = []
    for disjunct in disjuncts:
        if not isinstance(disjunct, dict) or len(disjunct) > 100:
            return None
        said = []
        for name, bounds in disjunct.items():
            if not isinstance(bounds, dict) or not bounds:
                return None
            for op, value in bounds.items():
                if op in ("in", "not_in"):
                    if op == "not_in" or not _are_texts(value):
                        return None
                    said.append((name, op, len(value)))
                    literals += value
                elif isinstance(value, str):
                    said.append((name, op, 1))
                    literals.append(value)
                elif math.isfinite(value) if isinstance(value, float) else _is_short(value):
                    said.append((name, op, 0))
                    literals.append(value)
                else:
                    return None
        form.append(tuple(said))
    return tuple(form), literals


def _is_short(value: Any) -> bool:
    return type(value) is int and abs(value) < 10**15


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and 0 < len(value) <= 100 and all(isinstance(one, str) for one in value)


@lru_cache(maxsize=_MOST_FORMS)
def _form_of_json(form: _JsonForm) -> Form | None:
    count = 0
    disjuncts = []
    for said in form:
        disjunct: dict[str, dict[str, Any]] = {}
        for name, op, texts in said:
            places = range(_FIRST + count, _FIRST + count + max(texts, 1))
            count += len(places)
            values: list[Any] = [str(place) for place in places] if texts else list(places)
            disjunct.setdefault(name, {})[op] = values if op == "in" else values[0]
        disjuncts.append(disjunct)
    try:
        return _form(read_condition({"any": disjuncts}, ""), count)
    except Refusal:
        return None


# ---- both


class _Formless(Exception):
    """A condition of which more depends on its literals than their bounds."""


def _form(condition: Condition, count: int) -> Form | None:
    """The form of a condition whose literals number 0 to ``count`` stand for themselves."""
    used: list[int] = []
    try:
        parts = condition.parts if isinstance(condition, Either) else (condition,)
        disjuncts = tuple([_disjunct(part, used) for part in parts])
    except _Formless:
        return None
    if sorted(used) != list(range(count)):
        return None
    most = sum(
        math.prod(len(bound.places) for _, bound in disjunct if isinstance(bound, _Choice))
        for disjunct in disjuncts
    )
    return Form(disjuncts, most)


def _disjunct(condition: Condition, used: list[int]) -> tuple[tuple[str, _Range | _Choice], ...]:
    bounds: dict[str, _Range | _Choice] = {}
    for comparison in _comparisons(condition):
        bound = _bound(comparison, used)
        known = bounds.get(comparison.attribute)
        bounds[comparison.attribute] = bound if known is None else _both(known, bound)
    return tuple(sorted(bounds.items(), key=lambda item: item[0]))


def _comparisons(condition: Condition) -> Iterable[Comparison]:
    if isinstance(condition, Comparison):
        yield condition
    elif isinstance(condition, Every):
        for part in condition.parts:
            yield from _comparisons(part)
    else:
        raise _Formless


def _bound(comparison: Comparison, used: list[int]) -> _Range | _Choice:
    places = []
    sign = 1.0
    for value, _ in comparison.values:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise _Formless
        if isinstance(value, int):
            sign = -1.0 if value < 0 else 1.0
            place = abs(value) - _FIRST
        elif not value.isdecimal():
            raise _Formless
        else:
            place = int(value) - _FIRST
        if place < 0:
            raise _Formless
        places.append(place)
    used += places
    of_texts = all(isinstance(value, str) for value, _ in comparison.values)
    if of_texts and comparison.op in (Op.EQ, Op.IN):
        return _Choice(tuple(places))
    if of_texts or len(places) != 1:
        raise _Formless
    return _range(comparison.op, _End(places[0], sign, False), _End(places[0], sign, True))


def _range(op: Op, here: _End, above: _End) -> _Range:
    match op:
        case Op.GT:
            return _Range(above, _NO_END)
        case Op.GTE:
            return _Range(here, _NO_END)
        case Op.LT:
            return _Range(_NO_END, here)
        case Op.LTE:
            return _Range(_NO_END, above)
        case Op.EQ | Op.IN:
            return _Range(here, above)
        case Op.NE | Op.NOT_IN:
            raise _Formless


def _both(one: _Range | _Choice, other: _Range | _Choice) -> _Range:
    """A lower and an upper end together; two of a kind have no form."""
    if isinstance(one, _Choice) or isinstance(other, _Choice):
        raise _Formless
    if _NO_END not in (one.lo, other.lo) or _NO_END not in (one.hi, other.hi):
        raise _Formless
    lo = one.lo if other.lo is _NO_END else other.lo
    hi = one.hi if other.hi is _NO_END else other.hi
    return _Range(lo, hi)
