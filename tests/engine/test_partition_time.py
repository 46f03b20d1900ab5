"""A partition's time: it follows from the log alone, never goes back, however the log was read."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.streams import PartitionTime

Event = tuple[int | None, int]
"""``ts`` and the log's timestamp."""

EVENTS = st.lists(st.tuples(st.one_of(st.none(), st.integers(-9, 9)), st.integers(0, 9)), max_size=12)


def move(time: PartitionTime, events: list[Event]) -> list[int]:
    ts = np.array([ts or 0 for ts, _ in events], np.int64)
    timed = np.array([ts is not None for ts, _ in events], np.bool_)
    return time.move(ts, timed, np.array([log_ts for _, log_ts in events], np.int64)).tolist()


@given(EVENTS, st.data())
def test_cuts_change_nothing(events: list[Event], data: st.DataObject) -> None:
    whole = PartitionTime()
    clock = move(whole, events)
    cut = data.draw(st.integers(0, len(events)))
    parts = PartitionTime()
    assert move(parts, events[:cut]) + move(parts, events[cut:]) == clock
    assert (parts.ahead, parts.reached) == (whole.ahead, whole.reached)
    again = PartitionTime(parts.ahead, parts.reached)
    assert again.at(20) == whole.at(20)


@given(EVENTS)
def test_it_is_the_largest_ts_and_the_wall_time_since(events: list[Event]) -> None:
    clock = move(PartitionTime(), events)
    assert clock == sorted(clock)
    for i, (_, log_ts) in enumerate(events):
        timed = [(ts, at) for ts, at in events[: i + 1] if ts is not None]
        ahead = max((ts - at for ts, at in timed), default=0)
        begins = events[i] in timed and len(timed) == 1 and i > 0  # until then it was the wall time
        expected = log_ts + (max(ahead, 0) if begins else ahead)
        assert clock[i] == max(expected, clock[i - 1] if i else expected)
        # No event is after the partition's time.
        assert all(ts <= clock[i] for ts, _ in timed)


@given(EVENTS, st.lists(st.integers(0, 5), max_size=4))
def test_it_rises_with_the_wall_clock(events: list[Event], steps: list[int]) -> None:
    time = PartitionTime()
    reached = move(time, events)[-1:]
    now = max((log_ts for _, log_ts in events), default=0)
    for step in steps:
        now += step
        reached.append(time.at(now))
        assert time.let_pass(now) == reached[-1] == time.at(now)
        assert not events or time.reached == reached[-1]
    assert reached == sorted(reached)


@given(EVENTS.map(lambda events: sorted(events, key=lambda event: event[1])), st.data())
def test_looking_at_the_clock_between_messages_changes_nothing(
    events: list[Event], data: st.DataObject
) -> None:
    watched = PartitionTime()
    clock = []
    for i, event in enumerate(events):
        if data.draw(st.booleans()):
            watched.let_pass(data.draw(st.integers(events[i - 1][1] if i else 0, event[1])))
        clock += move(watched, [event])
    assert clock == move(PartitionTime(), events)


@pytest.mark.parametrize(
    ("events", "clock"),
    [
        ([(None, 5), (None, 8)], [5, 8]),  # no ts: the log's timestamps
        ([(100, 5), (None, 8)], [100, 103]),  # the wall time since counts on
        ([(100, 5), (90, 8)], [100, 103]),  # a ts behind changes nothing
        ([(100, 5), (110, 8)], [100, 110]),
        ([(100, 5), (100, 5), (101, 7)], [100, 100, 102]),
        ([(None, 50), (10, 50)], [50, 50]),  # it does not go back to a first ts of long ago
        ([(None, 50), (10, 55), (17, 56)], [50, 55, 55]),
        ([(10, 50), (None, 60)], [10, 20]),
        ([(10, 50), (12, 40)], [10, 12]),  # timestamps of the log that go backwards
        ([(10, 50), (None, 40), (None, 51)], [10, 10, 11]),
        ([], []),
    ],
)
def test_by_hand(events: list[Event], clock: list[int]) -> None:
    assert move(PartitionTime(), events) == clock


def test_before_the_first_event_it_is_the_wall_time_and_binds_nothing() -> None:
    time = PartitionTime()
    assert time.let_pass(1_000) == 1_000
    assert move(time, [(10, 2_000)]) == [10]
