"""Conditions in both forms: what they mean, how they are refused, how they are printed."""

from __future__ import annotations

import math
import sys
from typing import Any

import pytest

from service.expression import parse_expression
from service.language import parse_source, parse_where, print_region, region_json
from service.model import LOWEST, AttributeType, Interval, Reason, Refusal, Region, Source, Texts
from service.where import PAIRS_PER_DISJUNCT, Normaliser

NUMBER, CATEGORY = AttributeType.NUMBER, AttributeType.CATEGORY
SHIPS = Source("ships", {"x": NUMBER, "y": NUMBER, "höhe": NUMBER, "kind": CATEGORY, "flag": CATEGORY}, "t")
INF, LARGEST, TINY = math.inf, sys.float_info.max, 5e-324


def above(number: float) -> float:
    return math.nextafter(number, INF)


def where(condition: Any, limit: int = 1000) -> Region:
    return parse_where(condition, SHIPS, limit=limit)


def refusal(condition: Any, limit: int = 1000) -> Refusal:
    with pytest.raises(Refusal) as caught:
        where(condition, limit)
    return caught.value


def x(*intervals: tuple[float, float]) -> Region:
    return Region(tuple({"x": Interval(lo, hi)} for lo, hi in intervals))


def kind(*values: str, negated: bool = False) -> Region:
    return Region(({"kind": Texts(frozenset(values), negated)},))


BOTH_FORMS: list[tuple[str, Any, Region]] = [
    ("x > 5", [{"x": {"gt": 5}}], x((above(5), INF))),
    ("x >= 5", [{"x": {"gte": 5}}], x((5, INF))),
    ("x < 5", [{"x": {"lt": 5}}], x((LOWEST, 5))),
    ("x <= 5", [{"x": {"lte": 5}}], x((LOWEST, above(5)))),
    ("x == 5", [{"x": {"eq": 5}}], x((5, above(5)))),
    ("x != 5", [{"x": {"ne": 5}}], x((LOWEST, 5), (above(5), INF))),
    ("x in (2, 1, 2.0)", [{"x": {"in": [2, 1, 2.0]}}], x((1, above(1)), (2, above(2)))),
    ("x not in (2, 1)", [{"x": {"not_in": [2, 1]}}], x((LOWEST, 1), (above(1), 2), (above(2), INF))),
    ("1 <= x < 5", [{"x": {"gte": 1, "lt": 5}}], x((1, 5))),
    ("5 > x >= 1", [{"x": {"lt": 5, "gte": 1}}], x((1, 5))),
    ("0 <= x <= 0", [{"x": {"gte": 0, "lte": 0}}], x((0, TINY))),
    ("x > 1 and x >= 1", [{"x": {"gt": 1, "gte": 1}}], x((above(1), INF))),
    ("x == -0.0", [{"x": {"eq": -0.0}}], x((0, TINY))),
    ("x <= -5e-324", [{"x": {"lte": -TINY}}], x((LOWEST, 0))),
    ("x > -5e-324", [{"x": {"gt": -TINY}}], x((0, INF))),
    ("x <= 1.7976931348623157e308", [{"x": {"lte": LARGEST}}], x((LOWEST, INF))),
    ("x >= -1.7976931348623157e308", [{"x": {"gte": -LARGEST}}], x((LOWEST, INF))),
    ("x != 1.7976931348623157e308", [{"x": {"ne": LARGEST}}], x((LOWEST, LARGEST))),
    ("x == 1.7976931348623157e308", [{"x": {"eq": LARGEST}}], x((LARGEST, INF))),
    ("x > 0.1 and x < 0.2", [{"x": {"gt": 0.1, "lt": 0.2}}], x((above(0.1), 0.2))),
    ("x > 9007199254740993.0", [{"x": {"gt": 9007199254740993.0}}], x((9007199254740994, INF))),
    ("x < 9223372036854775808", [{"x": {"lt": 9223372036854775808}}], x((LOWEST, 2.0**63))),
    ("x > 5 or x < 3 or 5 < x", [{"x": {"gt": 5}}, {"x": {"lt": 3}}], x((LOWEST, 3), (above(5), INF))),
    ("kind == 'tug'", [{"kind": {"eq": "tug"}}], kind("tug")),
    ("kind in ('tug', 'b', 'tug')", [{"kind": {"in": ["b", "tug"]}}], kind("b", "tug")),
    ("kind != 'tug'", [{"kind": {"ne": "tug"}}], kind("tug", negated=True)),
    ("kind not in ['a', 'b']", [{"kind": {"not_in": ["a", "b"]}}], kind("a", "b", negated=True)),
    ("kind in ('a', 'b') and kind != 'a'", [{"kind": {"in": ["a", "b"], "ne": "a"}}], kind("b")),
    ("kind == ''", [{"kind": {"eq": ""}}], kind("")),
    ("True", [{}], Region(({},))),
    ("True or x > 5", [{"x": {"gt": 5}}, {}], Region(({}, {"x": Interval(above(5), INF)}))),
]


@pytest.mark.parametrize(("text", "disjuncts", "region"), BOTH_FORMS, ids=[case[0] for case in BOTH_FORMS])
def test_both_forms_of_a_condition_give_its_boxes(text: str, disjuncts: Any, region: Region) -> None:
    assert where(text) == region
    assert where({"any": disjuncts}) == region


def test_no_end_of_an_interval_is_minus_zero() -> None:
    for text in ("x == -0.0", "x != -0.0", "x <= -5e-324", "x > -5e-324", "x >= -0", "x < -0.0"):
        for conjunct in where(text).conjuncts:
            bound = conjunct["x"]
            assert isinstance(bound, Interval)
            assert all(end != 0 or math.copysign(1, end) == 1 for end in bound), text


SAME: list[tuple[str, str]] = [
    ("not x > 5", "x <= 5"),
    ("not not x > 5", "x > 5"),
    ("not x == 5", "x != 5"),
    ("not 1 <= x < 5", "x < 1 or x >= 5"),
    ("not (x > 5 and y > 5)", "x <= 5 or y <= 5"),
    ("not (x > 5 or not y > 5)", "x <= 5 and y > 5"),
    ("not kind in ('a', 'b')", "kind not in ('a', 'b')"),
    ("not kind not in ('a', 'b')", "kind in ('a', 'b')"),
    ("not x in (1, 2)", "x != 1 and x != 2"),
    ("not False", "True"),
    ("True and x > 5", "x > 5"),
    ("(x < 3 or x > 5) and (x > 4 or x < 1)", "x < 1 or x > 5"),
    ("x > 5 and (y > 1 or kind == 'a')", "x > 5 and y > 1 or x > 5 and kind == 'a'"),
    ("(x < 1 or x < 2) and x > 1.5", "1.5 < x < 2"),
    ("x != 1 and x > 0 and x < 2", "0 < x < 1 or 1 < x < 2"),
    ("((x < 1 or x < 2) and x > 5) or y > 1", "y > 1"),
    ("x > 1 and (y > 1 and (x < 5 and y < 5))", "1 < x < 5 and 1 < y < 5"),
    ("(kind != 'a' or x > 5) and kind != 'b'", "kind not in ('a', 'b') or x > 5 and kind != 'b'"),
    ("(kind in ('a', 'b') or x > 5) and kind != 'b'", "kind == 'a' or x > 5 and kind != 'b'"),
    ("(kind != 'b' or x > 5) and kind in ('a', 'b')", "kind == 'a' or x > 5 and kind in ('a', 'b')"),
    ("(((x > 1)))", "x > 1"),
    ("x>1 and(y<2)", "x > 1 and y < 2"),
    ("x >\n  1\r\nand\ty < 2", "x > 1 and y < 2"),
    ("x > +-+-5", "x > 5"),
    ("x > .5e1", "x > 5.0"),
    ("x > 1_000", "x > 1000"),
    ("'a' == kind", "kind == 'a'"),
    ('kind == "it\'s"', r"kind == 'it\x27s'"),
    (r"kind == '\u00e9\t\\'", "kind == 'é\t\\\\'"),
    ("x in {1, 2}", "x in [1, 2]"),
    ("kind != 'a' and kind != 'b'", "kind not in ('a', 'b')"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_two_ways_of_saying_it(one: str, other: str) -> None:
    assert where(one) == where(other)


def test_overlapping_boxes_stay_apart() -> None:
    assert len(where("0 < x < 2 or 1 < x < 3").conjuncts) == 2


def test_a_region_is_canonical_however_it_is_built() -> None:
    a, b = {"y": Interval(0, 1), "x": Interval(1, 2)}, {"kind": Texts(frozenset("ab"), False)}
    assert Region((a, b, dict(a))) == Region((b, a))
    assert [list(c) for c in Region((a, b)).conjuncts] == [["kind"], ["x", "y"]]
    with pytest.raises(ValueError, match="at least one"):
        Region(())


REFUSED_TEXTS: list[tuple[str, Reason, int | None]] = [
    ("", Reason.SYNTAX, None),
    (" \n", Reason.SYNTAX, None),
    ("x", Reason.SYNTAX, 1),
    ("x > 5 and", Reason.SYNTAX, 9),
    ("x > 5 and y", Reason.SYNTAX, 11),
    ("x > y", Reason.SYNTAX, 5),
    ("3 < 5", Reason.SYNTAX, 1),
    ("x == y == 3", Reason.SYNTAX, 6),
    ("f(x) > 3", Reason.SYNTAX, 1),
    ("x > f(3)", Reason.SYNTAX, 5),
    ("x + 1 > 3", Reason.SYNTAX, 1),
    ("x > 1 + 2", Reason.SYNTAX, 5),
    ("x * 2 > 3", Reason.SYNTAX, 3),
    ("x.y > 3", Reason.SYNTAX, 2),
    ("x[0] > 3", Reason.SYNTAX, 1),
    ("x = 5", Reason.SYNTAX, 3),
    ("x > 1 && y > 1", Reason.SYNTAX, 7),
    ("x > 1; y > 1", Reason.SYNTAX, 6),
    ("x > 1, y > 1", Reason.SYNTAX, 1),
    ("x > 1 # fast", Reason.SYNTAX, 7),
    ("(x := 1)", Reason.SYNTAX, 4),
    ("x > 1 if y > 1 else y > 2", Reason.SYNTAX, 1),
    ("[x > 1 for x in (1, 2)]", Reason.SYNTAX, 1),
    ("(x > 1", Reason.SYNTAX, 6),
    ("x > 1)", Reason.SYNTAX, 6),
    ("(x > 1]", Reason.SYNTAX, 7),
    ("x in ('a')", Reason.SYNTAX, 7),
    ("x in 5", Reason.SYNTAX, 6),
    ("x in ()", Reason.SYNTAX, 6),
    ("x not in []", Reason.SYNTAX, 10),
    ("x in (1, y)", Reason.SYNTAX, 10),
    ("x in (1, (2, 3))", Reason.SYNTAX, 10),
    ("x in {1: 2}", Reason.SYNTAX, 8),
    ("1 in x", Reason.SYNTAX, 1),
    ("x > -'5'", Reason.SYNTAX, 5),
    ("x > 0x10", Reason.SYNTAX, 5),
    ("x > 1or y > 2", Reason.SYNTAX, 5),
    ("x > 5j", Reason.SYNTAX, 5),
    ("x > " + 60_000 * "1" + "j", Reason.SYNTAX, 5),
    ("x > 05", Reason.SYNTAX, None),
    ("kind == b'a'", Reason.SYNTAX, 9),
    ("kind == f'{x}'", Reason.SYNTAX, 9),
    ("kind == 'a' 'b'", Reason.SYNTAX, 13),
    ("kind == '''a'''", Reason.SYNTAX, 11),
    ("kind == 'a", Reason.SYNTAX, 9),
    ("kind == 'a\nb'", Reason.SYNTAX, 9),
    (r"kind == '\d'", Reason.SYNTAX, 9),
    (r"kind == '\ud800'", Reason.SYNTAX, 9),
    ("kind == '\ud800'", Reason.SYNTAX, None),
    ("x > 1\x00", Reason.SYNTAX, 6),
    ("kind == '\x00'", Reason.SYNTAX, None),
    ("x > \uff11", Reason.SYNTAX, 5),
    ("höhe > 1 and x", Reason.SYNTAX, 14),
    ("höhe > 1\r\nand x", Reason.SYNTAX, 15),
    ("speed > 5", Reason.UNKNOWN_ATTRIBUTE, 1),
    ("x > 1 and Kind == 'a'", Reason.UNKNOWN_ATTRIBUTE, 11),
    ("x > '5'", Reason.NOT_A_NUMBER, 5),
    ("x > True", Reason.NOT_A_NUMBER, 5),
    ("x == None", Reason.NOT_A_NUMBER, 6),
    ("x in (1, 'a')", Reason.NOT_A_NUMBER, 10),
    ("kind == 5", Reason.NOT_A_CATEGORY, 9),
    ("kind in ('a', None)", Reason.NOT_A_CATEGORY, 15),
    ("kind > 'a'", Reason.BAD_OPERATOR, 1),
    ("'a' < kind", Reason.BAD_OPERATOR, 1),
    ("x is None", Reason.BAD_OPERATOR, 1),
    ("x is not 5", Reason.BAD_OPERATOR, 1),
    ("x > NaN", Reason.SYNTAX, 5),
    ("x > 1e999", Reason.NOT_FINITE, 5),
    ("x > -1e999", Reason.NOT_FINITE, 5),
    ("x > 9007199254740993", Reason.INEXACT, 5),
    ("x > -9007199254740993", Reason.INEXACT, 5),
    ("x in (1, 9223372036854775807)", Reason.INEXACT, 10),
    ("x > 1" + 308 * "0" + "1", Reason.INEXACT, 5),
    ("x > 9" + 308 * "9", Reason.INEXACT, 5),
    ("x > " + 5000 * "1", Reason.INEXACT, 5),
    ("False", Reason.EMPTY_RANGE, 1),
    ("x > 1 or not True", Reason.EMPTY_RANGE, 14),
    ("x > 5 and x < 3", Reason.EMPTY_RANGE, 1),
    ("y > 1 and 5 <= x < 5", Reason.EMPTY_RANGE, 11),
    ("x > 0.1 and x < 0.10000000000000002", Reason.EMPTY_RANGE, 1),
    ("x > 1.7976931348623157e308", Reason.EMPTY_RANGE, 1),
    ("x < -1.7976931348623157e308", Reason.EMPTY_RANGE, 1),
    ("not x <= 1.7976931348623157e308", Reason.EMPTY_RANGE, 5),
    ("y > 1 or x > 5 and x < 3", Reason.EMPTY_RANGE, 10),
    ("y > 1 or x > 5 and (y > 1 and x < 3)", Reason.EMPTY_RANGE, 10),
    ("y > 1 or x == 5 and x != 5", Reason.EMPTY_RANGE, 10),
    ("y > 1 or x > 5 and x < 3 and (y > 1 or y < 0)", Reason.EMPTY_RANGE, 10),
    ("kind == 'a' and kind == 'b'", Reason.EMPTY_RANGE, 1),
    ("kind in ('a', 'b') and kind not in ('b', 'a')", Reason.EMPTY_RANGE, 1),
    ("(x < 1 or x < 2) and x > 5", Reason.EMPTY_RANGE, None),
    ("(" * 65 + "x > 1" + ")" * 65, Reason.LIMIT, 65),
    ("not " * 16_000 + "x > 1", Reason.LIMIT, None),
    ("-" * 60_000 + "1 < x", Reason.LIMIT, None),
    ("kind == '" + 65_536 * "a" + "'", Reason.LIMIT, None),
    ("kind == '" + 33_000 * "é" + "'", Reason.LIMIT, None),
]


@pytest.mark.parametrize(
    ("text", "reason", "column"), REFUSED_TEXTS, ids=[t[:40] for t, _, _ in REFUSED_TEXTS]
)
def test_a_text_is_refused_with_its_reason_and_column(text: str, reason: Reason, column: int | None) -> None:
    found = refusal(text)
    assert (found.reason, found.field) == (reason, "where")
    if column is not None:
        assert found.detail.startswith(f"column {column}: ")


@pytest.mark.parametrize(
    ("text", "column", "named"),
    [
        ("x > NaN", 5, "NaN"),
        ("x == nan", 6, "nan"),
        ("x < -inf", 5, "inf"),
        ("NaN < x", 1, "NaN"),
        ("-Infinity < x < 5", 1, "Infinity"),
        ("x in (1, NaN)", 10, "NaN"),
    ],
)
def test_what_is_no_finite_number_is_told_so(text: str, column: int, named: str) -> None:
    found = refusal(text)
    detail = f"column {column}: {named} is no number to compare with; leave the bound out for no limit"
    assert (found.reason, found.detail) == (Reason.SYNTAX, detail)


def test_an_attribute_may_be_called_like_what_is_no_number() -> None:
    source = parse_source("s", {"attributes": {"inf": "number"}})
    assert parse_where("inf > 5", source, limit=1) == parse_where("5 < inf", source, limit=1)


REFUSED_JSON: list[tuple[Any, Reason, str]] = [
    (None, Reason.SYNTAX, "where"),
    (5, Reason.SYNTAX, "where"),
    ([], Reason.SYNTAX, "where"),
    ({}, Reason.SYNTAX, "where"),
    ({"all": [{}]}, Reason.SYNTAX, "where"),
    ({"any": [{}], "all": []}, Reason.UNKNOWN_FIELD, "where.all"),
    ({"any": []}, Reason.SYNTAX, "where.any"),
    ({"any": {}}, Reason.SYNTAX, "where.any"),
    ({"any": [{}, 5]}, Reason.SYNTAX, "where.any[1]"),
    ({"any": [{"x": {}}]}, Reason.SYNTAX, "where.any[0].x"),
    ({"any": [{"x": {"gt": 0}, "y": {}}]}, Reason.SYNTAX, "where.any[0].y"),
    ({"any": [{"x": 5}]}, Reason.SYNTAX, "where.any[0].x"),
    ({"any": [{"x": {"above": 5}}]}, Reason.BAD_OPERATOR, "where.any[0].x.above"),
    ({"any": [{"kind": {"gte": "a"}}]}, Reason.BAD_OPERATOR, "where.any[0].kind.gte"),
    ({"any": [{"x": {"in": []}}]}, Reason.SYNTAX, "where.any[0].x.in"),
    ({"any": [{"x": {"in": 5}}]}, Reason.SYNTAX, "where.any[0].x.in"),
    ({"any": [{"kind": {"in": "tug"}}]}, Reason.SYNTAX, "where.any[0].kind.in"),
    ({"any": [{"speed": {"gt": 5}}]}, Reason.UNKNOWN_ATTRIBUTE, "where.any[0].speed.gt"),
    ({"any": [{}, {"x": {"gt": "5"}}]}, Reason.NOT_A_NUMBER, "where.any[1].x.gt"),
    ({"any": [{"x": {"gt": True}}]}, Reason.NOT_A_NUMBER, "where.any[0].x.gt"),
    ({"any": [{"x": {"gt": None}}]}, Reason.NOT_A_NUMBER, "where.any[0].x.gt"),
    ({"any": [{"x": {"gt": [1]}}]}, Reason.NOT_A_NUMBER, "where.any[0].x.gt"),
    ({"any": [{"x": {"in": [1, {}]}}]}, Reason.NOT_A_NUMBER, "where.any[0].x.in[1]"),
    ({"any": [{"kind": {"eq": 5}}]}, Reason.NOT_A_CATEGORY, "where.any[0].kind.eq"),
    ({"any": [{"kind": {"in": ["a", None]}}]}, Reason.NOT_A_CATEGORY, "where.any[0].kind.in[1]"),
    ({"any": [{"kind": {"eq": "\udc80"}}]}, Reason.SYNTAX, "where.any[0].kind.eq"),
    ({"any": [{"x": {"gt": math.nan}}]}, Reason.NOT_FINITE, "where.any[0].x.gt"),
    ({"any": [{"x": {"gt": -INF}}]}, Reason.NOT_FINITE, "where.any[0].x.gt"),
    ({"any": [{"x": {"in": [1, 2**53 + 1]}}]}, Reason.INEXACT, "where.any[0].x.in[1]"),
    ({"any": [{"x": {"gt": -(2**53) - 1}}]}, Reason.INEXACT, "where.any[0].x.gt"),
    ({"any": [{"x": {"gt": 10**5000}}]}, Reason.INEXACT, "where.any[0].x.gt"),
    ({"any": [{}, {"y": {"gt": 0}, "x": {"gte": 5, "lt": 5}}]}, Reason.EMPTY_RANGE, "where.any[1].x"),
    ({"any": [{"x": {"gt": 5, "lte": 5}}]}, Reason.EMPTY_RANGE, "where.any[0].x"),
    ({"any": [{"x": {"gte": 6, "lte": 5}}]}, Reason.EMPTY_RANGE, "where.any[0].x"),
    ({"any": [{"x": {"ne": 5, "eq": 5}}, {}]}, Reason.EMPTY_RANGE, "where.any[0].x"),
    ({"any": [{"x": {"in": [1, 2], "gt": 2}}, {}]}, Reason.EMPTY_RANGE, "where.any[0].x"),
    ({"any": [{"x": {"gt": LARGEST}}]}, Reason.EMPTY_RANGE, "where.any[0].x.gt"),
    ({"any": [{"kind": {"in": ["a"], "ne": "a"}}]}, Reason.EMPTY_RANGE, "where.any[0].kind"),
]


@pytest.mark.parametrize(
    ("body", "reason", "field"),
    REFUSED_JSON,
    ids=[f"{field}-{i}" for i, (_, _, field) in enumerate(REFUSED_JSON)],
)
def test_json_is_refused_with_its_reason_and_field(body: Any, reason: Reason, field: str) -> None:
    found = refusal(body)
    assert (found.reason, found.field) == (reason, field)


def test_the_field_can_be_another_one() -> None:
    with pytest.raises(Refusal) as caught:
        parse_where({"any": [{"x": {"gt": "5"}}]}, SHIPS, limit=1, field="keep")
    assert caught.value.field == "keep.any[0].x.gt"


def test_an_inexact_integer_is_told_how_to_mean_its_nearest() -> None:
    detail = refusal("x > 9007199254740993").detail
    assert "9007199254740993.0" in detail
    assert "9007199254740992" in detail


COUNTS: list[tuple[str, int]] = [
    ("x > 5", 1),
    ("x != 5", 2),
    ("x in (1, 2, 3)", 3),
    ("x not in (1, 2, 3)", 4),
    ("kind in ('a', 'b', 'c')", 3),
    ("kind not in ('a', 'b', 'c')", 4),
    ("kind in ('a', 'b') and flag not in ('c', 'd')", 6),
    ("(x > 1 or x > 2) and (y > 1 or y > 2)", 4),
    ("(x < 3 or x > 5) and (x > 4 or x < 1)", 2),
    ("x > 5 or 5 < x or kind in ('a', 'b')", 3),
    ("x in (1, 2, 3) and (y > 1 or y < 0) and x < 2 ", 2),
    ("kind in ('a', 'b', 'c') and (kind == 'a' or kind == 'b')", 2),
]


@pytest.mark.parametrize(("text", "boxes"), COUNTS)
def test_the_limit_counts_boxes(text: str, boxes: int) -> None:
    where(text, limit=boxes)
    found = refusal(text, limit=boxes - 1)
    assert (found.reason, found.field) == (Reason.LIMIT, "where")
    assert str(boxes - 1) in found.detail


def test_the_limit_of_bytes_is_a_setting() -> None:
    parse_where("x > 5", SHIPS, limit=1, max_bytes=5)
    with pytest.raises(Refusal) as caught:
        parse_where("x > 5", SHIPS, limit=1, max_bytes=4)
    assert caught.value.reason is Reason.LIMIT


def pairs_until_refused(text: str, limit: int) -> int:
    normaliser = Normaliser(SHIPS, limit=limit, field="where")
    with pytest.raises(Refusal) as caught:
        normaliser.region(parse_expression(text, "where"))
    assert caught.value.reason is Reason.LIMIT
    return normaliser.pairs


def test_a_product_of_many_pairs_is_refused_before_it_is_built() -> None:
    attributes = {f"a{i}": NUMBER for i in range(40)}
    wide = Source("wide", attributes, "t")
    normaliser = Normaliser(wide, limit=1000, field="where")
    text = " and ".join(f"({name} < 1 or {name} > 2)" for name in attributes)
    with pytest.raises(Refusal) as caught:
        normaliser.region(parse_expression(text, "where"))
    assert caught.value.reason is Reason.LIMIT
    assert normaliser.pairs <= 2 * 1000 * PAIRS_PER_DISJUNCT


def test_no_combination_is_met_beyond_the_budget() -> None:
    numbers = ", ".join(map(str, range(1000)))
    # One product over the budget is refused before its first pair is met; pairs are counted ahead.
    assert pairs_until_refused(f"x in ({numbers}) and x in ({numbers})", limit=100) == 1_000_000


def test_many_exclusions_cost_no_product() -> None:
    normaliser = Normaliser(SHIPS, limit=1000, field="where")
    text = " and ".join(f"x != {i}" for i in range(900))
    assert len(normaliser.region(parse_expression(text, "where")).conjuncts) == 901
    assert normaliser.pairs == 0


def test_a_long_list_of_disjuncts_is_not_read_to_its_end() -> None:
    disjuncts: list[Any] = [{"x": {"eq": i}} for i in range(11)]
    assert refusal({"any": [*disjuncts, "never read"]}, limit=10).reason is Reason.LIMIT


PRINTED: list[tuple[str, str]] = [
    ("x > 5.0", "x > 5"),
    ("x >= 5", "x >= 5"),
    ("x <= 0.1", "x <= 0.1"),
    ("x < 0.1", "x < 0.1"),
    ("x == 5", "x == 5"),
    ("5 >= x > 1", "1 < x <= 5"),
    ("x in (2, 1)", "x == 1 or x == 2"),
    ("x != 0", "x < 0 or x > 0"),
    ("x >= -1.7976931348623157e308", "x >= -1.7976931348623157e+308"),
    ("x > 1e22", "x > 1e+22"),
    ("kind in ('b', 'a')", "kind in ('a', 'b')"),
    ("kind not in ('b', 'a')", "kind not in ('a', 'b')"),
    ("kind in ('b',)", "kind == 'b'"),
    ('not kind == "it\'s"', 'kind != "it\'s"'),
    ("not False", "True"),
    ("y < 1 and (kind == 'a' or x > 1)", "kind == 'a' and y < 1 or x > 1 and y < 1"),
]


@pytest.mark.parametrize(("text", "printed"), PRINTED)
def test_a_region_prints_in_its_shortest_exact_form(text: str, printed: str) -> None:
    region = where(text)
    assert print_region(region) == printed
    assert where(printed) == region


def test_a_region_has_a_json_form() -> None:
    region = where("x > 5 and 1 <= y < 2.5 or kind not in ('a', 'b') or höhe == 0.1 or True")
    body = region_json(region)
    assert body == {
        "any": [
            {},
            {"höhe": {"eq": 0.1}},
            {"kind": {"not_in": ["a", "b"]}},
            {"x": {"gt": 5}, "y": {"gte": 1, "lt": 2.5}},
        ]
    }
    assert where(body) == region
