"""Races: answers are compared whatever form they have, and who is wrong is named."""

from __future__ import annotations

import gc
from collections.abc import Callable

import numpy as np
import pytest

from service.bench.measure import (
    Answer,
    Batches,
    Deferred,
    Disagreement,
    batches,
    border_batches,
    digest_of,
    machine,
    race,
)
from service.index.brute import BruteForce
from service.index.protocol import Borders, Hits


def hits(*pairs: tuple[int, int]) -> Hits:
    rows, slots = zip(*pairs, strict=True) if pairs else ((), ())
    return Hits(np.array(rows, np.int32), np.array(slots, np.int32))


def borders(*triples: tuple[int, int, bool]) -> Borders:
    rows, slots, entered = zip(*triples, strict=True)
    return Borders(np.array(rows, np.int32), np.array(slots, np.int32), np.array(entered))


def test_one_digest_for_every_form_of_an_answer() -> None:
    answer = hits((0, 3), (0, 7), (2, 1), (5, 0))
    forms: list[Answer] = [
        answer,
        hits((5, 0), (0, 7), (2, 1), (0, 3)),
        Deferred(lambda: answer),
        Batches(2, [hits((0, 3), (0, 7)), hits((0, 1)), hits((1, 0))]),
        Deferred(lambda: Batches(100, [answer])),
    ]
    assert len({digest_of(form) for form in forms}) == 1


@pytest.mark.parametrize(
    ("wrong", "where"),
    [
        (hits((0, 3), (2, 2)), "row 2 has slot 1 0 times, expected 1 (2 against 2 in all)"),
        (hits((0, 3)), "row 2 has slot 1 0 times, expected 1 (1 against 2 in all)"),
        (hits((0, 3), (2, 1), (2, 1)), "row 2 has slot 1 2 times, expected 1"),
        (hits((0, 2), (0, 3), (2, 1)), "row 0 has slot 2 1 times, expected 0"),
        (b"", "differs from right"),
    ],
)
def test_a_wrong_answer_is_an_error_that_says_whose_and_where(wrong: Answer, where: str) -> None:
    right = hits((0, 3), (2, 1))
    with pytest.raises(Disagreement, match=r"^wrong differs from right: ") as raised:
        race({"right": lambda: right, "same": lambda: right, "wrong": lambda: wrong}, repeats=1)
    assert where in str(raised.value)


def test_the_side_of_a_border_counts() -> None:
    with pytest.raises(Disagreement, match=r"row 0 has slot 4 0 times, expected 1"):
        race({"a": lambda: borders((0, 4, False)), "b": lambda: borders((0, 4, True))}, repeats=1)


def test_bytes_differ_from_a_place_on() -> None:
    with pytest.raises(Disagreement, match="from byte 2 of 3"):
        race({"a": lambda: b"abc", "b": lambda: b"abd"}, repeats=1)
    with pytest.raises(Disagreement, match="from byte 3 of 4"):
        race({"a": lambda: b"abc", "b": lambda: b"abcd"}, repeats=1)


def test_contenders_take_turns_without_garbage_collection_and_conversion_comes_once() -> None:
    calls: list[str] = []
    converted: list[str] = []
    collecting: list[bool] = []

    def contender(name: str) -> Callable[[], Answer]:
        def convert() -> Hits:
            converted.append(name)
            return hits()

        def call() -> Answer:
            calls.append(name)
            collecting.append(gc.isenabled())
            # Longer than the shortest timing, so that a round is one call.
            return Deferred(convert) if sum(range(200_000)) else b""

        return call

    timings = race({"a": contender("a"), "b": contender("b")}, repeats=3, warmup=1)
    assert calls[:2] == ["a", "b"] and converted == ["a", "b"]
    # Each turn is a call that does not count and one that does.
    assert calls[-12:] == ["a", "a", "b", "b"] * 3
    assert not any(collecting[2:]) and gc.isenabled()
    assert all(0 < timing.best_s <= timing.median_s for timing in timings.values())
    assert timings["a"].digest == timings["b"].digest == digest_of(hits())


def test_short_calls_are_repeated() -> None:
    calls = 0

    def short() -> Answer:
        nonlocal calls
        calls += 1
        return b"x"

    race({"short": short}, repeats=1)
    # One for the answer, ten to see how long it takes, and then more than one a round.
    assert calls > 12


def test_a_race_needs_a_contender_and_a_round() -> None:
    with pytest.raises(ValueError, match="a contender"):
        race({})
    with pytest.raises(ValueError, match="a round"):
        race({"a": lambda: b""}, repeats=0)


def test_one_contender_must_agree_with_the_oracle() -> None:
    race({"alone": lambda: hits((0, 1))}, repeats=1, oracle=lambda: hits((0, 1)))
    with pytest.raises(Disagreement, match="alone differs from the oracle: row 0 has slot 2 0 times"):
        race({"alone": lambda: hits((0, 1))}, repeats=1, oracle=lambda: hits((0, 1), (0, 2)))


def test_batches_of_any_size_are_one_answer() -> None:
    rng = np.random.default_rng(1)
    lo = rng.random((50, 2))
    index = BruteForce(2)
    index.insert(np.arange(50, dtype=np.int32), lo, lo + 0.3)
    before, after = rng.random((23, 2)), rng.random((23, 2))
    whole = digest_of(index.stab(before))
    moves = digest_of(index.borders(before, after))
    assert len(index.stab(before).rows) > 23
    for size in (1, 7, 23, 100):
        assert digest_of(batches(index.stab, before, size)()) == whole
        assert digest_of(border_batches(index.borders, before, after, size)()) == moves


def test_the_machine_has_a_name() -> None:
    assert {"cpu", "cores", "python", "numpy", "numba"} <= machine().keys()
    assert all(machine().values())
