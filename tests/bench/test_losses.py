"""Verdicts name every contender that is faster, not only the one that is beaten."""

from __future__ import annotations

from service.bench.targets_losses import _result
from service.bench.targets_stab import OURS, one_value_at_a_time


def test_who_takes_less_time_is_named_with_the_place() -> None:
    series = {
        OURS: [(10.0, 1.0), (100.0, 2.0)],
        "brute": [(10.0, 9.0), (100.0, 4.0)],
        "tree": [(10.0, 3.0), (100.0, 1.0)],
    }
    verdict = _result(series, "", x="hits", rival="brute", because="Why.").verdict
    assert verdict == (
        "The lead over brute goes from 9 times at 10 to 2 times at 100."
        " At 100 tree takes 0.5 of the time. Why."
    )


def test_one_value_at_a_time_is_set_against_each_library() -> None:
    us = {(OURS, 1_000): 0.1, (OURS, 1): 4.0, ("fast", 1): 2.0, ("slow", 1): 5.0, ("fast", 1_000): 9.0}
    words = one_value_at_a_time(us)
    assert "fast takes 0.5 of the time." in words and "slow" not in words
    assert words.endswith("4 us a value, of which 0.1 in a batch of 1,000.")
    assert one_value_at_a_time({(OURS, 1_000): 0.1, (OURS, 1): 1.0, ("fast", 1): 2.0}) == ""
