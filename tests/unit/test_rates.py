"""Token buckets against the plainest statement of what they promise."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.rates import Rates


def turn(rates: Rates, name: str, now_s: float) -> float:
    """What one who asks once has to wait; 0 takes a token."""
    wait_s = rates.wait_s(name, now_s)
    if wait_s == 0:
        rates.take(name, 1, now_s)
    return wait_s


def test_a_burst_comes_at_once_and_then_one_each_interval() -> None:
    rates = Rates(4, 3)
    assert [turn(rates, "a", 10.0) for _ in range(4)] == [0, 0, 0, 0.25]
    assert turn(rates, "a", 10.125) == 0.125
    assert turn(rates, "a", 10.25) == 0
    assert turn(rates, "a", 10.25) == 0.25
    assert turn(rates, "b", 10.25) == 0, "each name for itself"


def test_no_limit_is_no_limit() -> None:
    rates = Rates(0, 1)
    assert {turn(rates, "a", 0.0) for _ in range(1_000)} == {0.0}


@settings(deadline=None)
@given(
    st.integers(1, 8),
    st.integers(1, 5),
    st.lists(st.integers(0, 16), max_size=60),
)
def test_no_stretch_of_time_lets_through_more_than_burst_and_rate(
    per_s: int, burst: int, steps: list[int]
) -> None:
    """Eighths of a second, so that every sum is exact."""
    rates, now, passed = Rates(per_s, burst), 0, []
    for step in steps:
        now += step
        wait_s = turn(rates, "a", now / 8)
        if wait_s == 0:
            passed.append(now)
        else:
            assert wait_s <= 1 / per_s
    for i, begin in enumerate(passed):
        for count, end in enumerate(passed[i:], 1):
            assert count <= burst + (end - begin) / 8 * per_s


@pytest.mark.parametrize("late_s", [0.0, 0.1, 100.0])
def test_whoever_waits_as_told_comes_through(late_s: float) -> None:
    rates, now = Rates(3, 1), 0.0
    for _ in range(20):
        assert turn(rates, "a", now) == 0
        now += turn(rates, "a", now) + 1e-9 + late_s


def test_who_takes_more_than_there_is_waits_until_it_is_paid() -> None:
    rates = Rates(100, 100)
    rates.take("a", 1_000, 0.0)
    assert rates.wait_s("a", 0.0) == pytest.approx(9.01)
    assert rates.wait_s("a", 9.0) == pytest.approx(0.01)
    assert rates.wait_s("a", 9.5) == 0 == rates.wait_s("b", 0.0)
    rates.take("a", 50, 9.5)
    assert rates.wait_s("a", 9.5) == pytest.approx(0.01)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 300)), max_size=60))
def test_the_mean_holds_whatever_each_takes(steps: list[tuple[int, int]]) -> None:
    """Whoever comes only when let in has, at any time, taken no more than burst, rate and its last one."""
    rates, now, taken = Rates(64, 64), 0, 0
    for step, tokens in steps:
        now += step
        if rates.wait_s("a", now / 8) == 0:
            assert taken <= 63 + now * 8
            rates.take("a", tokens, now / 8)
            taken += tokens
