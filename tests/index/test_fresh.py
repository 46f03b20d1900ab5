"""What the grid of fresh boxes promises beyond the contract: what it takes, what old readers see, bounds."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from numba import njit, types

from service.index.answers import Keys
from service.index.brute import BruteForce
from service.index.default import fresh_kernels, mixed
from service.index.default.fresh import Fresh, FreshPart
from service.index.default.fresh_kernels import LANES, WORDS, around
from service.index.default.mixed import DefaultIndex
from service.index.default.part import sparse
from service.index.default.scan_part import ScanPart
from service.index.kernel import reads
from service.index.protocol import Bounds, Points, Slots
from tests.index.worlds import INF, NAN, SMALL, same, slots

COUNT = 60 if SMALL else 600


def squares(count: int, seed: int, width: float = 0.05) -> tuple[Slots, Bounds, Bounds]:
    rng = np.random.default_rng(seed)
    lo = rng.random((count, 2))
    return np.arange(count, dtype=np.int32), lo, lo + rng.uniform(width / 50, width, (count, 2))


def grid(limit: int, dims: int = 2) -> Fresh:
    """An empty grid beside boxes that are anywhere in the unit cube."""
    corner = np.linspace(0.0, 1.0, 65)[:, None] * np.ones(dims)
    filed = sparse(np.arange(65, dtype=np.int32), corner, corner + 0.1)
    return Fresh([ScanPart.of(filed, dims)], dims, limit)


def found(part: FreshPart, points: Points, version: int = 0) -> list[int]:
    out = np.empty(1 << 14, np.int64)
    return sorted(out[: part.stab(points, version, out)].tolist())


def brute(slots: Slots, lo: Bounds, hi: Bounds, points: Points) -> list[int]:
    inside = ((lo <= points[:, None]) & (points[:, None] < hi)).all(axis=2)
    return sorted(row << 32 | int(slots[box]) for row, box in np.argwhere(inside).tolist())


# Not a ``kernel``: the cache of those does not see that ``around`` has changed.
@njit(types.uint64(reads(types.float32, 1), types.uint64, types.float32, types.float32))
def flags_of(halves, at, x, y):  # type: ignore[no-untyped-def]
    return around(halves, at, x, y)


@pytest.mark.parametrize("lane", range(LANES))
@pytest.mark.parametrize("behind", [-INF, 0.5, INF, NAN])
def test_which_entries_of_a_block_may_hold_a_point_and_which_surely_do(lane: int, behind: float) -> None:
    """One entry is [0, 1) x [2, 3), the others are far; what lies behind the ends is nobody's business."""
    block = np.full(3 + WORDS, behind, np.float32)
    ends = block[3 : 3 + 4 * LANES].reshape(4, LANES)
    ends[:] = 9.0
    ends[:, lane] = 0.0, 1.0, 2.0, 3.0
    of_x = {0.0: 1, 0.5: 2, 1.0: 1, -1e-30: 0, 1.1: 0, NAN: 0, INF: 0, -INF: 0}
    of_y = {2.0: 1, 2.5: 2, 3.0: 1, 1.9: 0, 3.1: 0, NAN: 0, INF: 0, -INF: 0}
    for (x, one), (y, other) in product(of_x.items(), of_y.items()):
        may, sure = (1 << lane if min(one, other) >= least else 0 for least in (1, 2))
        assert flags_of(block, np.uint64(3), np.float32(x), np.float32(y)) == may | sure << LANES, (x, y)


def test_points_that_float32_does_not_tell_from_an_end() -> None:
    """In both attributes: the floats on both sides of each end, and the end itself."""
    lo, hi = np.array([[0.1, 0.3]]), np.array([[0.11, 0.32]])
    values = np.concatenate([lo, hi, (lo + hi) / 2])
    near = np.stack([np.nextafter(values, -INF), values, np.nextafter(values, INF)])
    assert (near.astype(np.float32) == values.astype(np.float32)).all()
    points = np.array(list(product(near[..., 0].ravel(), near[..., 1].ravel())))
    fresh = grid(COUNT)
    fresh.insert(slots(7), lo, hi)
    assert fresh.size == 1
    assert found(fresh.part, points) == brute(slots(7), lo, hi, points)


@pytest.mark.parametrize("limit", [COUNT, 8 * COUNT])
def test_boxes_of_many_planes_that_share_few_buckets(limit: int) -> None:
    """Entries of one attribute, of another and of both, of all widths: none is compared in another plane."""
    rng = np.random.default_rng(3)
    numbers, lo, hi = squares(COUNT, 1, 0.12)
    free = rng.integers(0, 3, COUNT)
    for attribute in (0, 1):
        lo[free == attribute, attribute], hi[free == attribute, attribute] = -INF, INF
    fresh = grid(limit)
    left = [fresh.insert(numbers[cut], lo[cut], hi[cut])[0] for cut in np.split(np.arange(COUNT), 10)]
    fresh.check()
    here = ~np.isin(numbers, np.concatenate(left))
    assert fresh.size == here.sum() > COUNT / 2
    points = np.concatenate([rng.random((300, 2)), lo[:100], np.nextafter(hi[:100], -INF), hi[:100]])
    points = points[(points < INF).all(axis=1)]
    assert found(fresh.part, points) == brute(numbers[here], lo[here], hi[here], points)
    assert found(fresh.part, np.full((3, 2), NAN)) == []


def test_a_box_of_four_cells_in_two_buckets_is_found_once() -> None:
    fresh = grid(3)
    fresh.insert(slots(3), np.array([[-0.01, -0.01]]), np.array([[0.01, 0.01]]))
    fresh.check()
    assert found(fresh.part, np.zeros((1, 2))) == [3]


def test_who_read_before_goes_on_to_see_what_was_there() -> None:
    numbers, lo, hi = squares(COUNT, 2)
    points = np.random.default_rng(5).random((200, 2))
    fresh = grid(COUNT)
    readers: list[tuple[FreshPart, int, list[int]]] = []
    for version, cut in enumerate(np.split(np.arange(COUNT), 20)):
        fresh.insert(numbers[cut], lo[cut], hi[cut])
        fresh.remove(numbers[cut[:1]] - 1, version + 1)
        readers.append((fresh.part, version + 1, found(fresh.part, points, version + 1)))
    assert len({len(expected) for _, _, expected in readers}) > 2
    for part, version, expected in readers:
        assert found(part, points, version) == expected
        part.check()
    fresh.check()


def test_a_crowd_around_one_place_is_left_to_others() -> None:
    fresh = grid(4000)
    lo = np.full((1000, 2), 0.5)
    left, *_ = fresh.insert(np.arange(1000, dtype=np.int32), lo, lo + 0.01)
    fresh.check()
    assert fresh.size == fresh_kernels.MOST_ENTRIES == 1000 - len(left)


@pytest.mark.parametrize(
    "box",
    [
        ([0.1, 0.1], [0.11, 0.9]),
        ([0.1, 0.1], [0.11, INF]),
        ([-INF, -INF], [INF, INF]),
        ([-1e308, 0.1], [1e308, 0.11]),
    ],
)
def test_boxes_that_are_wide_open_or_everywhere_are_not_taken_nor_their_twins(
    box: tuple[list[float], list[float]],
) -> None:
    fresh = grid(100)
    lo, hi = np.array([[0.1, 0.1], box[0], [0.3, 0.3]]), np.array([[0.11, 0.11], box[1], [0.31, 0.31]])
    left, left_lo, left_hi = fresh.insert(slots(7, 7, 8), lo, hi)
    assert left.tolist() == [7, 7]
    assert np.array_equal(left_lo, lo[:2]) and np.array_equal(left_hi, hi[:2])
    assert fresh.part.slots.tolist() == [8]
    fresh.check()


def test_more_than_two_attributes_are_not_taken() -> None:
    fresh = grid(100, 3)
    lo = np.array([[0.1, 0.1, 0.1], [0.1, -INF, 0.1]])
    hi = np.array([[0.11, 0.11, 0.11], [0.11, INF, 0.11]])
    left, *_ = fresh.insert(slots(0, 1), lo, hi)
    assert left.tolist() == [0]
    assert found(fresh.part, np.array([[0.1, 0.7, 0.1], [0.2, 0.1, 0.1]])) == [1]


def test_every_room_for_keys_is_enough_or_is_said_to_be_too_little() -> None:
    numbers, lo, hi = squares(COUNT, 6, 0.1)
    fresh = grid(COUNT)
    fresh.insert(numbers, lo, hi)
    points = np.random.default_rng(6).random((40, 2))
    everything = np.empty(1 << 14, np.int64)
    count = fresh.part.stab(points, 0, everything)
    for room in range(count + 2):
        out: Keys = np.full(room, -1, np.int64)
        assert fresh.part.stab(points, 0, out) == count
        assert np.array_equal(out, np.concatenate([everything[:count], [-1, -1]])[:room])


def test_a_check_that_finds_what_is_wrong() -> None:
    numbers, lo, hi = squares(COUNT, 7)
    fresh = grid(COUNT)
    fresh.insert(numbers, lo, hi)
    fresh.check()
    columns = fresh._columns
    bucket = int(np.flatnonzero(columns.heads)[0])
    for column, place in ((columns.slots, 1), (columns.lo, 0), (columns.heads, bucket)):
        was = column[place]
        column[place] = 0
        with pytest.raises(AssertionError):
            fresh.part.check()
        column[place] = was
    fresh.part.check()


def beside_many(aside: bool) -> tuple[DefaultIndex, BruteForce]:
    index, brute = DefaultIndex(2, delta=16, fresh=64, aside=aside), BruteForce(2)
    numbers, lo, hi = squares(4 * COUNT, 8)
    for one in (index, brute):
        one.insert(numbers, lo, hi)
    return index, brute


def one_by_one(index: DefaultIndex, brute: BruteForce, first: int, count: int) -> None:
    _, lo, hi = squares(count, 9)
    for i in range(count):
        for one in (index, brute):
            one.insert(slots(first + i), lo[i : i + 1], hi[i : i + 1])


@pytest.mark.parametrize("aside", [False, True])
def test_beside_many_there_is_one_part_more_however_many_come(aside: bool) -> None:
    index, brute = beside_many(aside)
    one_by_one(index, brute, 4 * COUNT, COUNT)
    assert [view.structure for view in index.views()][1:] == ["grid", "delta"]
    assert len(index._snapshot.levels) == 1
    points = np.random.default_rng(1).random((100, 2))
    assert same(index.stab(points), brute.stab(points))
    held = index.holding(4 * COUNT)
    assert [(view.structure, boxes) for view, boxes in held] == [("grid", 1)]
    assert held[0][0] in index.views()
    index.check()


def test_a_grid_that_is_full_is_merged_while_the_next_one_grows() -> None:
    index, brute = beside_many(True)
    one_by_one(index, brute, 4 * COUNT, 2 * COUNT + 20)
    points = np.random.default_rng(1).random((100, 2))
    rebuild = index.rebuild()
    assert rebuild is not None and len(rebuild.levels) == 2
    one_by_one(index, brute, 7 * COUNT, COUNT)
    gone = np.arange(3 * COUNT, 6 * COUNT, 7, dtype=np.int32)
    for one in (index, brute):
        one.remove(gone)
    assert same(index.stab(points), brute.stab(points))
    rebuild.run()
    index.adopt(rebuild)
    assert len(index._snapshot.levels) == 1
    assert same(index.stab(points), brute.stab(points))
    index.check()


def test_a_grid_that_is_mostly_removed_is_made_anew() -> None:
    index, brute = beside_many(False)
    one_by_one(index, brute, 4 * COUNT, COUNT)
    gone = np.arange(4 * COUNT, 5 * COUNT - 20, dtype=np.int32)
    for one in (index, brute):
        one.remove(gone)
    assert index._snapshot.fresh is None
    points = np.random.default_rng(1).random((100, 2))
    assert same(index.stab(points), brute.stab(points))
    index.check()


def test_a_slot_that_comes_and_goes_leaves_no_more_behind_than_there_is_room_for() -> None:
    index, brute = beside_many(False)
    lo, hi = np.array([[0.5, 0.5]]), np.array([[0.51, 0.51]])
    for _ in range(4 * COUNT):
        index.insert(slots(4 * COUNT), lo, hi)
        index.remove(slots(4 * COUNT))
    assert sum(view.boxes for view in index.views()) < 5 * COUNT
    assert same(index.stab(lo), brute.stab(lo))
    index.check()


def test_moves_among_fresh_boxes_and_who_asks_about_them_has_levels_from_then_on() -> None:
    index, brute = beside_many(True)
    one_by_one(index, brute, 4 * COUNT, COUNT)
    for one in (index, brute):  # again, with two boxes: a border of one inside of the other is none
        one.remove(slots(4 * COUNT + 1))
        lo = np.array([[0.4, 0.4], [0.41, 0.41]])
        one.insert(slots(4 * COUNT + 1, 4 * COUNT + 1), lo, lo + 0.02)
    one_by_one(index, brute, 5 * COUNT, 20)
    rng = np.random.default_rng(2)
    before = np.concatenate([rng.random((100, 2)), rng.uniform(0.39, 0.44, (100, 2))])
    after = before + rng.normal(0, 0.01, before.shape)
    assert index._snapshot.fresh is not None
    assert same(index.borders(before, after), brute.borders(before, after))
    one_by_one(index, brute, 6 * COUNT, 20)
    assert index._snapshot.fresh is None
    for one in (index, brute):
        one.remove(slots(4 * COUNT + 3))
    assert same(index.borders(before, after), brute.borders(before, after))
    index.check()


def test_segments_among_fresh_boxes() -> None:
    index, brute = beside_many(True)
    one_by_one(index, brute, 4 * COUNT, COUNT)
    filed = DefaultIndex(2, delta=0)
    boxes = brute._store.boxes
    filed.insert(boxes.slots[: boxes.size], boxes.lo[: boxes.size], boxes.hi[: boxes.size])
    rng = np.random.default_rng(2)
    before, after = rng.random((30, 2)), rng.random((30, 2))
    assert same(index.met(before, after), filed.met(before, after))


def test_marks_that_begin_again(monkeypatch: pytest.MonkeyPatch) -> None:
    index, brute = beside_many(True)
    one_by_one(index, brute, 4 * COUNT, COUNT)
    monkeypatch.setattr(mixed, "NEVER", np.int32(3))
    points = np.random.default_rng(1).random((100, 2))
    for gone in range(4 * COUNT - 4, 4 * COUNT + 4):
        for one in (index, brute):
            one.remove(slots(gone))
        assert same(index.stab(points), brute.stab(points))
