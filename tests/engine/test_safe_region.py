"""Safe regions against brute force: nothing changes inside, and no side can take more."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.engine.coverage import Cutting
from service.engine.safe_region import NumberSide, SafeRegion, TextSide
from service.engine.safe_region import safe_region as within_cuts
from service.language import Limits, parse_query
from service.model import LOWEST, AttributeType, Interval, Refusal, Region, Texts
from tests.engine.test_shapes import OVER
from tests.engine.test_shapes import WHERE as SHAPES_WHERE
from tests.engine.worlds import EDGES, HALVES, SOURCE, TEXTS, events, is_readable, region, wheres

NAMES = list(SOURCE.attributes)
Values = dict[str, Any]
Side = NumberSide | TextSide


def safe_region(
    attributes: dict[str, AttributeType], values: Values, regions: list[Region], most_cuts: int = 100_000
) -> SafeRegion:
    return within_cuts(attributes, values, regions, most_cuts=most_cuts)


def allows(side: Side, value: float | str | None) -> bool:
    if value is None:
        return side.missing
    if isinstance(side, TextSide):
        return side.texts is None or (value in side.texts.values) != side.texts.negated
    low = -math.inf if side.lower is None else side.lower
    high = math.inf if side.upper is None else side.upper
    return low <= value < high


def inside(safe: SafeRegion, values: Values) -> bool:
    return all(allows(side, values.get(side.attribute)) for side in safe.sides)


def candidates(regions: list[Region], values: Values) -> dict[str, list[float | str | None]]:
    """For every attribute a value of every stretch of its axis on which nothing can change."""
    found: dict[str, list[float | str | None]] = {}
    for name in ("x", "y"):
        bounds = [c[name] for one in regions for c in one.conjuncts if name in c]
        ends = {end for bound in bounds for end in (bound.lo, bound.hi)} | {LOWEST, -LOWEST}
        if name in values:
            ends.add(values[name] + 0.0)
        ends |= {math.nextafter(end, way) for end in ends for way in (-math.inf, math.inf)}
        found[name] = [None, *sorted(end for end in ends if LOWEST <= end <= -LOWEST)]
    found["k"] = [None, *TEXTS, "unnamed", "never named"]
    return found


def answers(regions: list[Region], values: Values) -> list[bool]:
    return [values in one for one in regions]


def points(choices: dict[str, list[float | str | None]]) -> list[Values]:
    return [
        {name: value for name, value in zip(NAMES, combination, strict=True) if value is not None}
        for combination in product(*(choices[name] for name in NAMES))
    ]


def check(safe: SafeRegion, regions: list[Region], values: Values) -> None:
    assert safe.maximal
    assert [side.attribute for side in safe.sides] == NAMES
    assert inside(safe, values)
    wanted = answers(regions, values)
    choices = candidates(regions, values)
    within = {side.attribute: [v for v in choices[side.attribute] if allows(side, v)] for side in safe.sides}
    for point in points(within):
        assert answers(regions, point) == wanted, (safe, point)
    for side in safe.sides:
        for value in just_outside(side, choices[side.attribute]):
            beyond = points({**within, side.attribute: [value]})
            assert any(answers(regions, point) != wanted for point in beyond), (safe, side, value)


def just_outside(side: Side, choices: list[float | str | None]) -> list[float | str | None]:
    """What a side would take next: a number's neighbours on either end, any text that it does not have."""
    outside = [value for value in choices if not allows(side, value)]
    if isinstance(side, TextSide):
        return outside
    order = [None, *(value for value in choices if value is not None)]
    return [
        value
        for place, value in enumerate(order)
        if value in outside
        and any(0 <= other < len(order) and allows(side, order[other]) for other in (place - 1, place + 1))
    ]


REGIONS = st.lists(wheres(HALVES).filter(is_readable).map(region), max_size=4)
MANY = settings(max_examples=200, deadline=None)


@MANY
@given(REGIONS, events(HALVES))
def test_nothing_changes_inside_and_no_side_can_take_more(regions: list[Region], values: Values) -> None:
    check(safe_region(SOURCE.attributes, values, regions), regions, values)


@MANY
@given(st.lists(wheres(HALVES, most=6).filter(is_readable).map(region), max_size=2), events(HALVES))
def test_queries_of_many_disjuncts(regions: list[Region], values: Values) -> None:
    check(safe_region(SOURCE.attributes, values, regions), regions, values)


@MANY
@given(st.lists(wheres(EDGES).filter(is_readable).map(region), max_size=3), events(EDGES))
def test_at_the_ends_of_float64(regions: list[Region], values: Values) -> None:
    values = {name: value if isinstance(value, str) else value + 0.0 for name, value in values.items()}
    check(safe_region(SOURCE.attributes, values, regions), regions, values)


def sides(values: Values, *wheres: str) -> list[Side]:
    return safe_region(SOURCE.attributes, values, [region(where) for where in wheres]).sides


def test_without_queries_everything_is_safe() -> None:
    free = [NumberSide("x", None, None, True), NumberSide("y", None, None, True), TextSide("k", None, True)]
    assert sides({"x": 1.0}) == sides({}) == free


def test_the_first_attribute_takes_the_most() -> None:
    # Of the free plane around a square's corner, x takes all while y stands still, and y what is left then.
    assert sides({"x": 0.0, "y": 0.0}, "1 <= x < 2 and 1 <= y < 2")[:2] == [
        NumberSide("x", None, None, True),
        NumberSide("y", None, 1.0, True),
    ]


def test_from_one_disjunct_to_another_is_no_border() -> None:
    assert sides({"x": 0.5}, "0 <= x < 1 or 1 <= x < 2")[0] == NumberSide("x", 0.0, 2.0, False)
    assert sides({"x": 0.5}, "0 <= x < 1 or 1 < x < 2")[0] == NumberSide("x", 0.0, 1.0, False)
    corner = "0 <= x < 2 and 0 <= y < 1 or 0 <= x < 1 and 0 <= y < 2"
    assert sides({"x": 0.5, "y": 0.5}, corner)[:2] == [
        NumberSide("x", 0.0, 2.0, False),
        NumberSide("y", 0.0, 1.0, False),
    ]


def test_ends_are_those_of_the_bounds() -> None:
    after = math.nextafter(5.0, math.inf)
    assert sides({"x": 5.0}, "x > 5")[0] == NumberSide("x", None, after, True)
    assert sides({"x": after}, "x > 5")[0] == NumberSide("x", after, None, False)
    assert sides({"x": 5.0}, "x <= 5")[0] == NumberSide("x", None, after, False)


def test_a_missing_value_stands_below_all_numbers() -> None:
    assert sides({}, "x > 5 and y > 5")[0] == NumberSide("x", None, None, True)
    assert sides({"y": 6.0}, "x >= 5 and y > 5")[0] == NumberSide("x", None, 5.0, True)
    assert sides({"y": 6.0}, "x < 5 and y > 5")[0] == NumberSide("x", None, LOWEST, True)


@pytest.mark.parametrize(
    ("values", "where", "texts", "missing"),
    [
        ({"k": "tug"}, "k in ('tug', 'yacht')", Texts(frozenset({"tug", "yacht"}), False), False),
        ({"k": "tug"}, "k == 'yacht'", Texts(frozenset({"yacht"}), True), True),
        ({"k": "tug"}, "k != 'yacht'", Texts(frozenset({"yacht"}), True), False),
        ({"k": "yacht"}, "k != 'yacht'", Texts(frozenset({"yacht"}), False), True),
        ({"k": "other"}, "k == 'yacht'", Texts(frozenset({"yacht"}), True), True),
        ({}, "k != 'yacht'", Texts(frozenset({"yacht"}), False), True),
        ({}, "k != 'yacht' or k == 'yacht'", Texts(frozenset(), False), True),
    ],
)
def test_a_category_takes_all_texts_that_change_nothing(
    values: Values, where: str, texts: Texts, missing: bool
) -> None:
    assert sides(values, where)[2] == TextSide("k", texts, missing)


def test_work_is_bounded_and_what_is_not_proven_is_not_taken() -> None:
    checks = [f"{a} <= x < {a + 1} and {b} <= y < {b + 1}" for a in range(8) for b in range(8)]
    regions = [region(" or ".join(checks))]
    values = {"x": 3.5, "y": 3.5}
    whole = safe_region(SOURCE.attributes, values, regions)
    assert whole.maximal
    assert whole.sides[:2] == [NumberSide("x", 0.0, 8.0, False), NumberSide("y", 0.0, 8.0, False)]
    cut_short = safe_region(SOURCE.attributes, values, regions, most_cuts=20)
    assert not cut_short.maximal
    assert inside(cut_short, values)
    low, high = cut_short.sides[1].lower, cut_short.sides[1].upper  # type: ignore[union-attr]
    assert low is not None and high is not None and 0.0 <= low <= 3.5 < high <= 8.0 and (low, high) != (0, 8)


def test_many_attributes_and_queries_without_boxes_around() -> None:
    attributes = {f"a{i}": AttributeType.NUMBER for i in range(20)}
    regions = [Region(({f"a{i}": Interval(float(i), float(i + 1))},)) for i in range(20)]
    found = safe_region(attributes, dict.fromkeys(attributes, 0.5), regions)
    assert found.sides[0] == NumberSide("a0", 0.0, 1.0, False)
    assert found.sides[7] == NumberSide("a7", None, 7.0, True)


GRID = st.integers(0, 4).map(float)
BOX = st.lists(st.tuples(GRID, GRID).filter(lambda ends: ends[0] < ends[1]), min_size=2, max_size=2)


@MANY
@given(BOX, st.lists(BOX, max_size=7))
def test_coverage_is_that_of_every_cell(box: list[Any], boxes: list[list[Any]]) -> None:
    los = np.array([[lo for lo, _ in one] for one in boxes]).reshape(-1, 2)
    his = np.array([[hi for _, hi in one] for one in boxes]).reshape(-1, 2)
    cells = product(*(range(int(lo), int(hi)) for lo, hi in box))
    expected = all(
        any(all(lo <= at < hi for at, (lo, hi) in zip(cell, one, strict=True)) for one in boxes)
        for cell in cells
    )
    assert Cutting(10_000).covered([Interval(*ends) for ends in box], los, his) is expected


def shaped(where: Any) -> Region | None:
    body = {"source": "s", "where": where}
    try:
        return parse_query(body, {"s": SOURCE}, id="q", now_ms=0, limits=Limits()).region
    except Refusal:  # such as shapes that do not meet what stands beside them
        return None


SHAPED = st.lists(st.one_of(SHAPES_WHERE, SHAPES_WHERE, wheres(HALVES)), max_size=3)


@MANY
@given(SHAPED, events(HALVES), st.lists(st.fixed_dictionaries({"x": HALVES, "y": HALVES}), max_size=30))
def test_nothing_changes_inside_where_queries_have_shapes(
    given: list[Any], values: Values, others: list[Values]
) -> None:
    regions = [region for where in given if (region := shaped(where)) is not None]
    safe = safe_region(SOURCE.attributes, values, regions)
    assert inside(safe, values)
    assert safe.maximal == (not any(region.has_shapes for region in regions))
    corners = [
        {side.attribute: value for side, value in zip(safe.sides, corner, strict=True) if value is not None}
        for corner in product(*(ends(side) for side in safe.sides))
    ]
    for point in [*corners, *({**values, **other} for other in others)]:
        if inside(safe, point):
            assert answers(regions, point) == answers(regions, values), (safe, point)


def ends(side: Side) -> list[float | str | None]:
    """The least and the largest value of a side, and a missing one, as far as it has them."""
    if isinstance(side, TextSide):
        found: list[float | str | None] = [None, *TEXTS, "unnamed"]
    else:
        low = LOWEST if side.lower is None else side.lower
        found = [None, low, -LOWEST if side.upper is None else math.nextafter(side.upper, -math.inf)]
    numbers = (value for value in found if not isinstance(value, float) or value >= LOWEST)
    return [value for value in numbers if allows(side, value)]


def test_a_region_in_a_large_shape_is_not_a_point() -> None:
    everywhere = shaped({"any": [{"in": {"circle": {"lon": 0, "lat": 0, "radius_m": 1_000_000}, **OVER}}]})
    assert everywhere is not None
    safe = safe_region(SOURCE.attributes, {"x": 1.0, "y": 1.0}, [everywhere])
    widths = [
        side.upper - side.lower
        for side in safe.sides
        if isinstance(side, NumberSide) and side.upper is not None and side.lower is not None
    ]
    assert len(widths) == 2 and all(width > 2 for width in widths), "a million metres are 9 degrees"
