"""Forms of conditions: what comes from a form is what the whole way gives, and a form never refuses."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.conditions import read_condition
from service.expression import MAX_BYTES, parse_expression
from service.forms import known_region
from service.language import load_json, parse_source
from service.model import Interval, Reason, Refusal, Region, Texts
from service.where import Normaliser, parse_where

SOURCE = parse_source("s", {"attributes": {"x": "number", "y": "number", "x1": "number", "k": "category"}})


def known(where: Any, *, limit: int = 1_000, max_bytes: int = MAX_BYTES) -> Region | None:
    return known_region(where, SOURCE, limit=limit, max_bytes=max_bytes)


def whole_way(where: Any, limit: int = 1_000) -> Region | Reason:
    try:
        condition = (
            parse_expression(where, "where") if isinstance(where, str) else read_condition(where, "where")
        )
        return Normaliser(SOURCE, limit=limit, field="where").region(condition)
    except Refusal as refusal:
        return refusal.reason


# ---- texts made of pieces that the scanner, the parser and the forms could take for different things

literals = st.sampled_from(
    [
        *("0", "1", "7", "12.5", "0.0", "3.", ".5", "1e3", "1_0", "007", "00", "1e400", "2.5e-3"),
        *("123456789012345", "1234567890123456", "9007199254740993", "1.23456789012345678", "7000003"),
        *("'a'", "'b'", '"a"', "'it'", '"it\'s 5"', "'\\x41'", "'7000003'", "''", "'#'", "'5 < x'", "'ä'"),
        *("True", "None", "-1", "- 2.5", "+3", "--4", "x", "(1, 2)", "('a', 'b')", "[1]", "('a',)", "(-3,)"),
    ]
)
names = st.sampled_from(["x", "y", "k", "x1", "z", "x.y", "in", "1"])
signs = st.sampled_from(["<", "<=", ">", ">=", "==", "!=", "in", "not in", "is", "="])
links = st.sampled_from([" and ", " or ", " and not ", ")or(", "and", " ", "", "\n and ", " # "])


@st.composite
def texts(draw: st.DrawFn) -> str:
    parts = []
    for _ in range(draw(st.integers(1, 3))):
        left, name, right = draw(literals), draw(names), draw(literals)
        form = draw(
            st.sampled_from(["{n} {s} {b}", "{a} {s} {n}", "{a} {s} {n} {t} {b}", "{n}{s}{b}", "{n}"])
        )
        parts.append(form.format(a=left, n=name, b=right, s=draw(signs), t=draw(signs)))
        parts.append(draw(links))
    return "".join(parts[:-1])


@given(texts(), st.integers(1, 3))
@settings(max_examples=150, deadline=None)
def test_a_text_means_what_it_means_the_whole_way(text: str, limit: int) -> None:
    region = known(text, limit=limit)
    assert region is None or region == whole_way(text, limit)


values = st.one_of(
    st.integers(),
    st.floats(),
    st.booleans(),
    st.sampled_from(["a", "b", "", "\ud800", "ä", None, [], ["a", "b"], ["a", 1], [1.0], [math.inf], {}]),
    st.sampled_from([1.7976931348623157e308, -1.7976931348623157e308, -0.0, 5e-324, 10**15, -(10**16)]),
)
bounds = st.dictionaries(
    st.sampled_from(["gt", "gte", "lt", "lte", "eq", "ne", "in", "not_in", "is"]),
    values,
    min_size=1,
    max_size=2,
)
disjuncts = st.dictionaries(st.sampled_from(["x", "y", "k", "z", "in"]), bounds, max_size=2)
conditions = st.lists(disjuncts, min_size=1, max_size=2).map(lambda some: {"any": some})


@given(conditions, st.integers(1, 3))
@settings(max_examples=150, deadline=None)
def test_json_means_what_it_means_the_whole_way(where: Any, limit: int) -> None:
    region = known(where, limit=limit)
    assert region is None or region == whole_way(where, limit)


def texts_of(*texts: str) -> Texts:
    return Texts(frozenset(texts), False)


# ---- the second of a form is read by it: the properties above would hold of forms that know nothing


@pytest.mark.parametrize(
    ("where", "conjuncts"),
    [
        ("29.5 <= lat < 29.8", None),
        ("1 <= x < 2 and 3.5 < y", [{"x": Interval(1, 2), "y": Interval(math.nextafter(3.5, 9), math.inf)}]),
        ("not x > -2 and x >= -5", [{"x": Interval(-5, math.nextafter(-2, 0))}]),
        ("x1 == 0.0", [{"x1": Interval(0.0, 5e-324)}]),
        ("(x >= 1) and k in ('a', 'b')", [{"k": texts_of("a", "b"), "x": Interval(1, math.inf)}]),
        ("k == 'a b' or x in (3,)", [{"x": Interval(3, math.nextafter(3, 4))}, {"k": texts_of("a b")}]),
        ("True", [{}]),
        ({"any": [{"x": {"gte": 1, "lt": 2.5}, "k": {"eq": "a"}}]},
         [{"k": texts_of("a"), "x": Interval(1, 2.5)}]),
        ({"any": [{}]}, [{}]),
    ],
)  # fmt: skip
def test_plain_conditions_have_a_form(where: Any, conjuncts: list[Any] | None) -> None:
    assert known(where) == (Region(tuple(conjuncts)) if conjuncts else None)


@pytest.mark.parametrize(
    "where",
    [
        *("x != 1", "x > 1 and x > 2", "x in (1, 2)", "x > 1e3", "x > 007", "k == 'it\\'s'", "k == 1"),
        *("(x > 1 or y > 2) and y > 3", "2 <= x < 1", "x >", "(x, y) in circle(1, 2, 3)", "k != 'a'"),
        *({"any": []}, {"any": [{"x": {"gt": math.inf}}]}, {"any": [{"x": {"lt": math.inf}}]}, None, 5),
        *({"any": [{"k": {"eq": "\ud800"}}]}, {"any": [{"x": {"gt": True}}]}),
        *({"any": [{"x": {"eq": 2**60}}]}, {"any": [{"x": {"in": 5}}]}, "x < 'a'", ""),
        *("k == \"7000003\" and x > 5", "k == '7000003' and k in (\"7000003\",)"),
    ],
)  # fmt: skip
def test_others_go_the_whole_way(where: Any) -> None:
    assert known(where) is None


def test_what_would_be_too_much_goes_the_whole_way() -> None:
    where = "k in ('a', 'b', 'c') or x > 1"
    assert known(where, limit=4) == whole_way(where)
    assert known(where, limit=3) is None
    assert whole_way(where, limit=3) is Reason.LIMIT
    assert known("x > 1", max_bytes=19) is None


def test_a_refusal_names_the_column_of_its_own_condition() -> None:
    """Not that of the first of its form."""
    parse_where("1 < x < 2", SOURCE, limit=10)
    with pytest.raises(Refusal, match=r"column 1: no value satisfies"):
        parse_where("2000 < x < 1000", SOURCE, limit=10)
    with pytest.raises(Refusal, match=r"column 16"):
        parse_where("100000 < x and zz < 1000", SOURCE, limit=10)


def test_equal_bodies_are_equal_however_they_came() -> None:
    text = parse_where("1 <= x < 2 and k == 'a'", SOURCE, limit=10)
    assert text == parse_where(
        load_json(b'{"any": [{"k": {"eq": "a"}, "x": {"gte": 1, "lt": 2}}]}'), SOURCE, limit=10
    )
