"""Border monitoring: streams move, queries come and go, and the search efficiency is the paper's."""

from __future__ import annotations

import numpy as np
import pytest

from service.index.border.bmq import BMQIndex
from service.index.border.bmq_monitor import BorderMonitor
from tests.index.test_bmq import FIGURE_2, node
from tests.index.worlds import INF, NAN, SMALL, ends, moves, slots


def monitor_of(queries: dict[int, tuple[float, float]]) -> BorderMonitor:
    monitor = BorderMonitor(BMQIndex(1, fresh_limit=0, anchored=False))
    for slot, (lo, hi) in queries.items():
        monitor.register(slots(slot), ends([lo], 1), ends([hi], 1))
    return monitor


def streams(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int32)


def test_walk_through() -> None:
    """Two streams rest in N5 of Figure 2; one goes to N8 and one to N2."""
    monitor = monitor_of(FIGURE_2)
    arrived = monitor.move(streams(3, 8), np.concatenate([node(5), node(5)]))
    assert moves(arrived) == [(0, 2, True), (0, 4, True), (1, 2, True), (1, 4, True)]
    moved = monitor.move(streams(8, 3), np.concatenate([node(8), node(2)]))
    assert moves(moved) == [
        (0, 2, False), (0, 4, False), (0, 5, True), (1, 1, True), (1, 3, True), (1, 4, False),
    ]  # fmt: skip
    assert moves(monitor.move(streams(3, 8), np.concatenate([node(2), node(8)]))) == []


def test_search_efficiency() -> None:
    """All final results over all intermediate ones, summed over the moves and not averaged."""
    monitor = monitor_of(FIGURE_2)
    assert monitor.search_efficiency == 1.0
    monitor.move(streams(0), node(5))
    # From below b0 to N5, six delta queries of N1 to N5 are read; Q1 and Q3 are passed whole.
    assert (monitor.accessed, monitor.reported) == (6, 2)
    monitor.move(streams(0), node(8))
    assert (monitor.accessed, monitor.reported) == (9, 5)
    monitor.move(streams(0), node(8))
    monitor.move(streams(0), node(4))
    # Four more: Q2, Q3 and Q4 are entered again and Q5 is left.
    assert (monitor.accessed, monitor.reported) == (13, 9)
    assert monitor.search_efficiency == 9 / 13


def test_efficiency_is_whole_while_no_query_is_passed_over() -> None:
    """Steps shorter than the widths (Sect. 5.2.1): every delta query that is read is reported."""
    rng = np.random.default_rng(1)
    lo = rng.uniform(0, 1000, (200, 1))
    monitor = BorderMonitor(BMQIndex(1))
    everyone = np.arange(50, dtype=np.int32)
    at = rng.uniform(0, 1000, (50, 1))
    monitor.move(everyone, at)
    monitor.register(np.arange(200, dtype=np.int32), lo, lo + 10)
    for _ in range(5):
        at = at + rng.uniform(-9, 9, (50, 1))
        monitor.move(everyone, at)
    assert monitor.reported > 100
    assert monitor.search_efficiency == 1.0


def test_two_attributes_cost_efficiency() -> None:
    monitor = BorderMonitor(BMQIndex(2))
    monitor.move(streams(0), np.array([[5.0, 0.5]]))
    monitor.register(slots(0, 1), np.array([[0.0, 0.0], [0.0, 4.0]]), np.array([[1.0, 1.0], [1.0, 5.0]]))
    assert moves(monitor.move(streams(0), np.array([[0.5, 0.5]]))) == [(0, 0, True)]
    assert (monitor.accessed, monitor.reported) == (2, 1)


def test_registration_tells_no_stream() -> None:
    monitor = monitor_of({})
    monitor.move(streams(0), ends([5.0], 1))
    monitor.register(slots(1), ends([0.0], 1), ends([10.0], 1))
    assert moves(monitor.move(streams(0), ends([6.0], 1))) == []
    assert moves(monitor.move(streams(0), ends([10.0], 1))) == [(0, 1, False)]
    monitor.move(streams(0), ends([6.0], 1))
    monitor.deregister(slots(1))
    assert moves(monitor.move(streams(0), ends([10.0], 1))) == []
    assert len(monitor.index) == 0


def test_rows_of_one_stream_follow_each_other() -> None:
    monitor = monitor_of({1: (0.0, 2.0), 2: (1.0, 3.0)})
    found = monitor.move(streams(7, 7, 2, 7), ends([0.5, 1.5, 2.5, NAN], 1))
    assert moves(found) == [(0, 1, True), (1, 2, True), (2, 2, True), (3, 1, False), (3, 2, False)]
    assert monitor.last(streams(2, 7, 900, -1))[:, 0].tolist()[0] == 2.5
    assert np.isnan(monitor.last(streams(7, 900, -1))).all()


@pytest.mark.parametrize("dims", [1, 2])
@pytest.mark.parametrize("anchored", [False, True])
def test_folded_borders_are_the_membership(dims: int, anchored: bool) -> None:
    """Whatever comes and goes meanwhile: what is entered and not left, and lives, holds the stream."""
    rng = np.random.default_rng(2)
    monitor = BorderMonitor(BMQIndex(dims, anchored=anchored, fresh_limit=5))
    membership: dict[int, set[int]] = {stream: set() for stream in range(30)}
    live: list[int] = []
    at = rng.integers(0, 60, (30, dims)).astype(np.float64)
    for step in range(8 if SMALL else 60):
        fresh = np.arange(4 * step, 4 * step + 4, dtype=np.int32)
        lo = rng.integers(0, 60, (8, dims)).astype(np.float64)
        monitor.register(np.repeat(fresh, 2), lo, lo + rng.integers(1, 30, lo.shape))
        live.extend(fresh.tolist())
        if step % 3 == 2:
            gone = rng.permutation(live)[:9].astype(np.int32)
            monitor.deregister(gone)
            live = [slot for slot in live if slot not in gone]
        # Registration says nothing to streams that are inside already, so the caller finds those by a stab.
        for held in membership.values():
            held.intersection_update(live)
        known = monitor.last(np.arange(30, dtype=np.int32))
        for row, slot in zip(*(column.tolist() for column in monitor.index.stab(known)), strict=True):
            membership[row].add(slot)
        at = at + rng.integers(-3, 4, at.shape) + 40 * (rng.random(at.shape) < 0.1)
        moving = rng.permutation(30)[:20].astype(np.int32)
        for row, slot, entered in moves(monitor.move(moving, at[moving])):
            held = membership[int(moving[row])]
            assert (slot in held) != entered
            (held.add if entered else held.remove)(slot)
        now = monitor.index.stab(monitor.last(np.arange(30, dtype=np.int32)))
        pairs = {(stream, slot) for stream, held in membership.items() for slot in held}
        assert pairs == set(zip(now.rows.tolist(), now.slots.tolist(), strict=True))
        monitor.index.check()


def test_what_is_refused_moves_nobody() -> None:
    monitor = monitor_of({1: (0.0, 10.0)})
    monitor.move(streams(0, 1), ends([5.0, 50.0], 1))
    for error, numbers, points in (
        (TypeError, np.array([0, 1]), ends([50.0, 5.0], 1)),
        (TypeError, streams(0, 1), ends([50.0, 5.0], 1).astype(np.float32)),
        (ValueError, streams(0, -1), ends([50.0, 5.0], 1)),
        (ValueError, streams(0), ends([50.0, 5.0], 1)),
        (ValueError, streams(0, 1), ends([50.0, 5.0], 2)),
    ):
        with pytest.raises(error):
            monitor.move(numbers, points)
        assert monitor.last(streams(0, 1))[:, 0].tolist() == [5.0, 50.0]
    assert moves(monitor.move(streams(), ends([], 1))) == []
    assert moves(monitor.move(streams(1, 0), ends([5.0, -INF], 1))) == [(0, 1, True), (1, 1, False)]


def test_storage_of_the_stream_table() -> None:
    """A value and a place an attribute (Sect. 4.1), and room to grow."""
    monitor = BorderMonitor(BMQIndex(2))
    monitor.move(streams(999), np.array([[1.0, 1.0]]))
    assert monitor.stream_table_nbytes == 1000 * 2 * (8 + 4)
    assert monitor.nbytes == monitor.index.nbytes + monitor.stream_table_nbytes
