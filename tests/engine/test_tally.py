"""Counting as members come and go gives, bit by bit, what counting from scratch gives."""

from __future__ import annotations

import math
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from service.engine.tally import Content, Numbers, Tally, empty, together
from service.model import MISSING

FLOATS = st.floats(allow_nan=False, allow_infinity=False).map(lambda value: value + 0.0)
VALUES = st.one_of(
    FLOATS,
    st.sampled_from([0.0, 0.1, 0.3, -0.1, 1.0, 1e16, 1e308, -1e308, 1.7976931348623157e308, 5e-324, MISSING]),
)
STEPS = st.lists(st.tuples(st.integers(0, 6), st.one_of(st.none(), st.tuples(VALUES, VALUES))), max_size=60)


def counted(members: dict[int, tuple[float, float]], names: tuple[str, ...] = ("x", "y")) -> Content:
    """The same from scratch."""
    of = {}
    for place, name in enumerate(names):
        values = [point[place] for point in members.values() if point[place] != MISSING]
        total = sum(map(Fraction, values), Fraction(0))
        try:
            rounded = float(total)
        except OverflowError:
            rounded = None
        n = len(values)
        of[name] = (
            Numbers(n, rounded, min(values), max(values), float(total / n))
            if n
            else Numbers(0, 0.0, None, None, None)
        )
    return Content(len(members), of)


def exactly(content: Content) -> str:
    """Tells apart what equality does not: -0.0 and 0.0."""
    return repr(content)


@settings(max_examples=300, deadline=None)
@given(STEPS)
def test_every_step_counts_as_from_scratch(steps: list[tuple[int, tuple[float, float] | None]]) -> None:
    tally, members = Tally(("x", "y"), (1, 0)), dict[int, tuple[float, float]]()
    for row, values in steps:
        if values is None:
            if members.pop(row, None) is not None:
                tally.drop(row)
        else:
            tally.put(row, [values[1], values[0]])
            members[row] = values
        assert exactly(tally.content()) == exactly(counted(members))


@given(st.lists(FLOATS.filter(lambda value: abs(value) < 1e300), max_size=50))
def test_the_sum_is_that_of_fsum(values: list[float]) -> None:
    tally = Tally(("x",), (0,))
    for row, value in enumerate([*values, *values]):
        tally.put(row % max(len(values), 1), [-value])
        tally.put(row % max(len(values), 1), [value])
    assert tally.content().of["x"].sum == math.fsum(values)


@given(st.lists(st.tuples(st.booleans(), VALUES), min_size=1, max_size=20))
def test_two_parts_together_are_the_whole(values: list[tuple[bool, float]]) -> None:
    parts = Tally(("x",), (0,)), Tally(("x",), (0,))
    for row, (which, value) in enumerate(values):
        parts[which].put(row, [value])
    whole = counted({row: (value, MISSING) for row, (_, value) in enumerate(values)}, ("x",))
    assert exactly(together(parts)) == exactly(whole)


def test_without_members_there_is_nothing_but_a_sum() -> None:
    nothing = Content(0, {"x": Numbers(0, 0.0, None, None, None)})
    assert Tally(("x",), (0,)).content() == empty(["x"]) == nothing


def test_a_sum_beyond_float64_is_none_and_comes_back() -> None:
    tally = Tally(("x",), (0,))
    tally.put(0, [1.7e308])
    tally.put(1, [1.7e308])
    assert tally.content().of["x"] == Numbers(2, None, 1.7e308, 1.7e308, 1.7e308)
    tally.drop(0)
    assert tally.content().of["x"].sum == 1.7e308


def test_small_values_survive_large_ones() -> None:
    tally = Tally(("x",), (0,))
    for row, value in enumerate([1e300, 5e-324, -1e300]):
        tally.put(row, [value])
    assert tally.content().of["x"].sum == 5e-324


def test_heaps_do_not_grow_with_what_has_gone() -> None:
    tally = Tally(("x",), (0,))
    for value in range(100_000):
        tally.put(value % 3, [float(value)])
        if value % 1000 == 0:
            tally.content()
    assert max(len(heap._entries) for heap in (tally.columns()[0]._low, tally.columns()[0]._high)) < 2_000
    assert tally.content().of["x"] == Numbers(3, 299_994.0, 99_997.0, 99_999.0, 99_998.0)
