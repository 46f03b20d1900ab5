"""DiffRMQ's stream table: moves are the borders between successive values, by the queries of the moment."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.index.border.diff_rmq import DiffRMQ
from service.index.brute import BruteForce
from service.index.default.mixed import DefaultIndex
from service.index.interval.cei import CEI
from service.index.interval.is_list import ISList
from service.index.protocol import BoxIndex
from tests.index.slow import SlowTwin
from tests.index.worlds import NAN, QUICK, cubes, ends, moves, same, slots

WITHIN = {
    "cei": CEI,
    "is-list": ISList,
    "brute": lambda: BruteForce(1),
    "default": lambda: DefaultIndex(1, delta=3),  # slots in no order
}


def three_queries(index: BoxIndex) -> DiffRMQ:
    monitor = DiffRMQ(index)
    monitor.insert(slots(0, 1, 2), *cubes([(0.0, 10.0), (5.0, 15.0), (20.0, 30.0)], 1))
    return monitor


@pytest.mark.parametrize("within", WITHIN)
def test_a_walk(within: str) -> None:
    monitor = three_queries(WITHIN[within]())
    stream = slots(0)
    assert moves(monitor.move(stream, ends([7.0], 1))) == [(0, 0, True), (0, 1, True)]
    assert moves(monitor.move(stream, ends([8.0], 1))) == []
    assert moves(monitor.move(stream, ends([12.0], 1))) == [(0, 0, False)]
    assert moves(monitor.move(stream, ends([25.0], 1))) == [(0, 1, False), (0, 2, True)]
    assert moves(monitor.move(stream, ends([NAN], 1))) == [(0, 2, False)]
    monitor.check()


def test_search_efficiency_as_the_paper_defines_it() -> None:
    """Final over intermediate results, summed over all values (Sect. 5.2.1)."""
    monitor = three_queries(ISList())
    assert monitor.search_efficiency == 1.0
    monitor.move(slots(0, 1), ends([7.0, 25.0], 1))
    assert (monitor.reported, monitor.accessed) == (3, 3)
    monitor.move(slots(0, 1), ends([8.0, 26.0], 1))  # two and one before, the same after
    assert (monitor.reported, monitor.accessed) == (3, 9)
    monitor.move(slots(0), ends([12.0], 1))  # two before, one after, one left
    assert (monitor.reported, monitor.accessed) == (4, 12)
    assert monitor.search_efficiency == 4 / 12


def test_values_of_one_stream_come_in_their_order() -> None:
    monitor = three_queries(CEI())
    crossed = monitor.move(slots(4, 4, 9, 4), ends([7.0, 12.0, 7.0, 25.0], 1))
    assert moves(crossed) == [
        (0, 0, True), (0, 1, True), (1, 0, False), (2, 0, True), (2, 1, True), (3, 1, False), (3, 2, True),
    ]  # fmt: skip
    assert monitor.accessed == 2 + (2 + 1) + 2 + (1 + 1)
    assert moves(monitor.move(slots(4), ends([25.0], 1))) == []


def test_a_change_of_the_queries_is_no_move() -> None:
    """The last value counts by the queries of the next move, as if they had always been there."""
    monitor = three_queries(CEI())
    monitor.move(slots(0, 1), ends([7.0, 25.0], 1))
    monitor.remove(slots(0))
    monitor.insert(slots(3, 4), *cubes([(6.0, 8.0), (0.0, 100.0)], 1))
    assert moves(monitor.move(slots(0), ends([7.5], 1))) == []
    assert moves(monitor.move(slots(0), ends([9.0], 1))) == [(0, 3, False)]
    assert moves(monitor.move(slots(1), ends([50.0], 1))) == [(0, 2, False)]
    monitor.check()


@QUICK
@given(data=st.data())
def test_any_moves(data: st.DataObject) -> None:
    """Against the difference of two stabs, with queries that come and go between."""
    value = st.sampled_from([NAN, *np.arange(0.0, 8.0, 0.5).tolist()])
    monitor, twin = DiffRMQ(ISList()), SlowTwin(1)
    last: dict[int, float] = {}
    for slot in range(6):
        low = data.draw(st.integers(0, 6))
        interval = cubes([(float(low), float(data.draw(st.integers(low + 1, 7))))], 1)
        for each in (monitor, twin):
            each.insert(slots(slot), *interval)
            if slot == 4:
                each.remove(slots(1))
        batch = data.draw(st.lists(st.tuples(st.integers(0, 3), value), max_size=5))
        streams = slots(*(stream for stream, _ in batch))
        before = []
        for stream, x in batch:
            before.append(last.get(stream, NAN))
            last[stream] = x
        after = ends([x for _, x in batch], 1)
        assert same(monitor.move(streams, after), twin.borders(ends(before, 1), after))
        monitor.check()


def test_answers_that_outgrow_their_room() -> None:
    monitor, twin = DiffRMQ(BruteForce(1)), SlowTwin(1)
    for each in (monitor, twin):
        each.insert(np.arange(200, dtype=np.int32), *cubes([(float(i), 300.0) for i in range(200)], 1))
    before, streams = ends([NAN] * 7, 1), np.arange(7, dtype=np.int32)
    rng = np.random.default_rng(6)
    for _ in range(30):
        after = rng.uniform(-1.0, 320.0, (7, 1))
        assert same(monitor.move(streams, after), twin.borders(before, after))
        monitor.check()
        before = after
    assert len(monitor._answers.slots) < 30 * 7 * 200, "what is not needed any more is never given back"


def test_streams_that_do_not_fit() -> None:
    monitor = three_queries(CEI())
    monitor.move(slots(0), ends([7.0], 1))
    for error, streams, points in (
        (ValueError, slots(-1), ends([7.0], 1)),
        (ValueError, slots(0, 1), ends([7.0], 1)),
        (ValueError, slots(0), ends([7.0], 2)),
        (TypeError, slots(0).astype(np.int64), ends([7.0], 1)),
        (TypeError, slots(0), ends([7.0], 1).astype(np.float32)),
    ):
        with pytest.raises(error):
            monitor.move(streams, points)
    assert moves(monitor.move(slots(), np.empty((0, 1)))) == []
    assert moves(monitor.move(slots(0), ends([12.0], 1))) == [(0, 0, False)]
