"""The parts that indexes are made of, each against its slow twin: scan, search, snapshots, answers."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from service.index.answers import Collector
from service.index.boxes import REMOVED, Boxes, BoxStore, by_first_lower_end
from service.index.interval.cei_grid import chosen_grid
from service.index.interval.cei_kernels import search
from service.index.interval.cei_lists import id_lists
from service.index.protocol import Points
from service.index.scan import BLOCK, scan
from tests.index.slow import holds
from tests.index.worlds import SMALL, cubes, pairs, slots


def _store(dims: int, count: int, seed: int) -> BoxStore:
    """A store of random boxes, every fifth slot removed."""
    rng = np.random.default_rng(seed)
    store = BoxStore(dims)
    lo = rng.integers(0, 9, (count, dims)).astype(np.float64)
    store.insert(np.arange(count, dtype=np.int32), lo, lo + rng.integers(1, 9, lo.shape))
    store.remove(np.arange(0, count, 5, dtype=np.int32))
    return store


def _points(dims: int, count: int) -> Points:
    return np.random.default_rng(1).integers(0, 18, (count, dims)).astype(np.float64)


def slow_scan(boxes: Boxes, first: int, stop: int, points: Points) -> Counter[tuple[int, int]]:
    """How often each (row, slot) is to be reported: once a box."""
    return Counter(
        (row, int(boxes.slots[box]))
        for row, point in enumerate(points.tolist())
        for box in range(first, stop)
        if boxes.slots[box] != REMOVED and holds((boxes.lo[box].tolist(), boxes.hi[box].tolist()), point)
    )


def _split(keys: np.ndarray) -> Counter[tuple[int, int]]:
    return Counter((int(key) >> 32, int(key) & 0x7FFFFFFF) for key in keys)


@pytest.mark.parametrize("dims", [1, 2, 3, 4])
@pytest.mark.parametrize("first", [0, 1, BLOCK - 1, BLOCK, BLOCK + 9, 150])
@pytest.mark.parametrize("stop", [0, 1, BLOCK, BLOCK + 10, 150])
def test_scan_is_its_slow_twin(dims: int, first: int, stop: int) -> None:
    boxes = _store(dims, 150, seed=dims).boxes
    points = _points(dims, 4 if SMALL else 20)
    expected = slow_scan(boxes, first, stop, points)
    out = np.full(expected.total() + 3, -7, np.int64)
    assert scan(boxes.near, boxes.lo, boxes.hi, boxes.slots, first, stop, points, out) == expected.total()
    assert _split(out[:-3]) == expected
    assert (out[-3:] == -7).all()


def test_search_is_its_slow_twin() -> None:
    boxes = _store(1, 150, seed=5).boxes
    lo, hi, points = boxes.lo[:150], boxes.hi[:150], _points(1, 20) + 0.5
    for step in (1.0, 0.7, 5.0):
        for length in (1, 2, 8, None):
            grid = chosen_grid(lo[:, 0], hi[:, 0], step=step, segment_length=length)
            _, lists, entries = id_lists(lo, hi, grid)
            expected = slow_scan(boxes, 0, 150, points)
            out = np.full(expected.total() + 3, -7, np.int64)
            found = search(boxes.lo, boxes.hi, boxes.slots, lists, entries, grid, points, out)
            assert found == expected.total()
            assert _split(out[:-3]) == expected
            assert (out[-3:] == -7).all()


@pytest.mark.parametrize("room", [0, 1, 5])
def test_kernels_count_on_where_the_room_ends(room: int) -> None:
    boxes = _store(1, 150, seed=5).boxes
    points = _points(1, 10)
    needed = slow_scan(boxes, 0, 150, points).total()
    grid = chosen_grid(boxes.lo[:150, 0], boxes.hi[:150, 0], step=0.7, segment_length=4)
    _, lists, entries = id_lists(boxes.lo[:150], boxes.hi[:150], grid)
    out = np.full(room + 1, -7, np.int64)
    assert scan(boxes.near, boxes.lo, boxes.hi, boxes.slots, 0, 150, points, out[:room]) == needed
    assert out[room] == -7
    assert search(boxes.lo, boxes.hi, boxes.slots, lists, entries, grid, points, out[:room]) == needed
    assert out[room] == -7


def test_a_snapshot_stays_as_it_is() -> None:
    """Through appends, growth, removals and renumbering."""
    store = BoxStore(2)
    snapshots: list[tuple[Boxes, list[object]]] = []

    def seen(boxes: Boxes) -> list[object]:
        return [column[: boxes.size].tolist() for column in (boxes.slots, boxes.lo, boxes.hi)]

    for step in range(40):
        fresh = np.arange(10 * step, 10 * step + 10, dtype=np.int32)
        store.insert(fresh, *cubes([(float(slot), slot + 1.0) for slot in fresh], 2))
        snapshots.append((store.boxes, seen(store.boxes)))
        store.remove(fresh[: 3 + step % 7])
        snapshots.append((store.boxes, seen(store.boxes)))
        if step == 20:
            store.arrange(by_first_lower_end)
        store.check()
    assert len({boxes.layout for boxes, _ in snapshots}) > 2
    assert all(seen(boxes) == before for boxes, before in snapshots)


def test_a_layout_lasts_until_boxes_are_renumbered() -> None:
    store = BoxStore(1)
    for slot in range(3 * BLOCK):
        store.insert(slots(slot), *cubes([(-float(slot), 1.0)], 1))
        assert store.boxes.layout == 0
    assert store.boxes.slots[: store.boxes.size].tolist() == list(range(3 * BLOCK))
    store.remove(slots(*range(1, BLOCK)))
    assert store.boxes.layout == 0
    store.remove(slots(*range(BLOCK, 3 * BLOCK)))
    assert (store.boxes.layout, store.boxes.size) == (1, 1)
    store.insert(slots(7, 5), *cubes([(-9.0, 1.0), (-3.0, 1.0)], 1))
    store.arrange(by_first_lower_end)
    assert store.boxes.slots[: store.boxes.size].tolist() == [7, 5, 0]
    store.check()


def test_a_slot_removed_twice_in_one_call_is_removed_once() -> None:
    store = BoxStore(1)
    store.insert(slots(0, 1, 1), *cubes([(0.0, 1.0)] * 3, 1))
    store.remove(slots(1, 1))
    store.check()
    assert len(store) == 1


def test_slots_need_not_be_dense() -> None:
    store = BoxStore(1)
    store.insert(slots(1_000_000, 3), *cubes([(0.0, 1.0)] * 2, 1))
    store.check()
    assert len(store) == 2
    with pytest.raises(KeyError, match="999999"):
        store.remove(slots(999_999))


@pytest.mark.parametrize("count", [0, 1, 1023, 1024, 1025, 5000])
def test_the_collector_makes_room(count: int) -> None:
    """Whatever it remembers of other answers, larger and smaller."""
    collector = Collector()
    for keys in (count, 3, count, count + 1, 0, count):

        def fill(out: np.ndarray, keys: int = keys) -> int:
            written = min(keys, len(out))
            out[:written] = np.arange(keys)[::-1][:written]
            return keys

        hits = collector.hits(fill, rows=7)
        assert pairs(hits) == [(0, slot) for slot in range(keys)]


def test_the_collector_sorts_and_drops_repeats() -> None:
    found = np.array([[5, 2], [0, 9], [5, 2], [0, 1], [2**31 - 1, 2**31 - 1], [0, 9]], np.int64)

    def fill(out: np.ndarray) -> int:
        out[: len(found)] = found[:, 0] << 32 | found[:, 1]
        return len(found)

    hits = Collector().hits(fill, rows=1)
    assert list(zip(*(column.tolist() for column in hits), strict=True)) == [
        (0, 1),
        (0, 9),
        (5, 2),
        (2**31 - 1, 2**31 - 1),
    ]
    assert hits.rows.dtype == hits.slots.dtype == np.int32


@pytest.mark.parametrize("rows", [[0, 0, 2, 2, 3], [2, 0, 3, 0, 2], [3, 2, 1, 0, 0]])
def test_the_collector_deals_keys_out_to_their_rows(rows: list[int]) -> None:
    """Slots of a row stay as they came."""
    found = np.array([row << 32 | slot for slot, row in enumerate(rows)], np.int64)

    def fill(out: np.ndarray) -> int:
        out[: len(found)] = found
        return len(found)

    collector = Collector()
    for _ in range(2):  # in new room, and in room that was used
        hits = collector.by_row(fill, rows=4)
        expected = sorted(enumerate(rows), key=lambda hit: hit[1])
        assert list(zip(hits.slots.tolist(), hits.rows.tolist(), strict=True)) == expected
    assert hits.rows.dtype == hits.slots.dtype == np.int32
