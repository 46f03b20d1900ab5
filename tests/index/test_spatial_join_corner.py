"""The query index of Spatial Join: the partition of corner space, and the directory over its runs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.index.box.corner import corner_order, rank_of, select
from service.index.box.spatial_join_kernels import met_runs
from service.index.box.spatial_join_regions import check, largest_below, regions_of, regions_of_boxes
from tests.index.worlds import FLOAT_WORLD, INF, LOWEST, MOST, QUICK, SMALL, TINY_WORLD


def random_ends(seed: int, count: int, dims: int) -> tuple[np.ndarray, np.ndarray]:
    """Boxes with ends among twenty values, so that many are equal."""
    ends = np.sort(np.random.default_rng(seed).integers(0, 20, (count, dims, 2)), axis=2).astype(np.float64)
    return np.ascontiguousarray(ends[:, :, 0]), np.ascontiguousarray(ends[:, :, 1] + 1.0)


def halved(corners: np.ndarray, run: int) -> bool:
    """Whether points are in an order made by cuts across an axis, at multiples of ``run``, down to runs."""
    if len(corners) <= run:
        return True
    for axis in range(corners.shape[1]):
        for middle in range(run, len(corners), run):
            if (
                corners[:middle, axis].max() <= corners[middle:, axis].min()
                and halved(corners[:middle], run)
                and halved(corners[middle:], run)
            ):
                return True
    return False


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("count", [0, 1, 8, 9, 60])
def test_runs_are_regions_of_corner_space(dims: int, count: int) -> None:
    lo, hi = random_ends(count + dims, count, dims)
    order = corner_order(lo, hi, 8)
    assert sorted(order.tolist()) == list(range(count))
    assert halved(np.concatenate([lo, hi], axis=1)[order], 8)


def test_equal_boxes_are_filed_too() -> None:
    lo, hi = np.zeros((300, 2)), np.ones((300, 2))
    assert sorted(corner_order(lo, hi, 16).tolist()) == list(range(300))


def test_free_attributes_part_from_constrained_ones() -> None:
    """Sect. 5.4: open predicates are whole domains. Most runs have boxes of one kind, where by chance all but
    one in a hundred would have both."""
    count = 2048
    lo, hi = random_ends(5, count, 2)
    free = np.arange(count) % 4 == 0
    lo[free, 1], hi[free, 1] = -INF, INF
    kinds = free[corner_order(lo, hi, 16)].reshape(-1, 16).mean(axis=1)
    assert ((kinds > 0.0) & (kinds < 1.0)).mean() < 0.3


def test_runs_span_little() -> None:
    """Small boxes: each run spans about its share of the plane, and no strip as in an order by one end."""
    rng = np.random.default_rng(6)
    lo = rng.random((1024, 2))
    hi = lo + 0.001

    def sides(order: np.ndarray) -> np.ndarray:
        return hi[order].reshape(-1, 16, 2).max(axis=1) - lo[order].reshape(-1, 16, 2).min(axis=1)

    filed, by_one_end = sides(corner_order(lo, hi, 16)), sides(np.argsort(lo[:, 0]))
    assert filed.prod(axis=1).mean() < 1.2 / 64
    assert filed.sum(axis=1).mean() < by_one_end.sum(axis=1).mean() / 2


@QUICK
@given(values=st.lists(st.sampled_from([-INF, 0.0, 1.0, 2.0, 3.0, INF]), min_size=1), where=st.data())
def test_select(values: list[float], where: st.DataObject) -> None:
    middle = where.draw(st.integers(0, len(values) - 1))
    keys, order = np.array([9.0, *values, -9.0]), np.arange(len(values) + 2)
    select(keys, order, 1, len(values) + 1, middle + 1)
    assert sorted(keys[1:-1]) == sorted(values)
    assert keys[1 : middle + 1].max(initial=-INF) <= keys[middle + 1 : -1].min()
    assert keys[[0, -1]].tolist() == [9.0, -9.0]
    assert [([9.0, *values, -9.0])[i] for i in order] == keys.tolist()


@QUICK
@given(values=st.lists(st.floats(allow_nan=False), max_size=20), x=st.floats(allow_nan=False))
def test_rank_of(values: list[float], x: float) -> None:
    assert rank_of(np.sort(np.array(values, np.float64)), x) == sum(value < x for value in values)


def test_the_largest_value_inside() -> None:
    hi = np.array([[1.0, INF, LOWEST, MOST, 0.0, 5e-324]])
    with np.errstate(over="ignore"):
        below = [np.nextafter(1.0, 0.0), MOST, -INF, np.nextafter(MOST, 0.0), -5e-324, 0.0]
    assert largest_below(hi).tolist() == [below]


@pytest.mark.parametrize("count", [1, 7, 8, 9, 64, 65, 700])
@pytest.mark.parametrize("run", [1, 3, 64])
def test_directory(count: int, run: int) -> None:
    """What it leads to is what meets, for every level that a directory of this size has."""
    rng = np.random.default_rng(count + run)
    low = np.sort(rng.integers(0, 50, (count, 2)), axis=0).astype(np.float64)
    high = low + rng.integers(0, 5, (count, 2))
    regions = regions_of(low, high, run)
    check(regions, low, high, run)
    runs = np.empty(regions.levels[1], np.int32)
    for _ in range(5 if SMALL else 30):
        a = rng.integers(-2, 55, 2).astype(np.float64)
        b = a + rng.integers(0, 9, 2)
        met = runs[: met_runs(*regions, a, b, runs)].tolist()
        rectangles = regions.ends[: regions.levels[1]]
        expected = ((rectangles[:, :2] <= b) & (a <= rectangles[:, 2:])).all(axis=1)
        assert met == np.flatnonzero(expected).tolist()


def test_an_empty_directory() -> None:
    regions = regions_of(np.empty((0, 2)), np.empty((0, 2)), 64)
    check(regions, np.empty((0, 2)), np.empty((0, 2)), 64)
    assert met_runs(*regions, np.zeros(2), np.ones(2), np.empty(0, np.int32)) == 0


def test_check_notices_a_rectangle_that_is_too_small() -> None:
    low = np.arange(40.0).reshape(20, 2)
    regions = regions_of(low, low + 1.0, 4)
    regions.ends[3, 2] -= 0.5
    with pytest.raises(AssertionError):
        check(regions, low, low + 1.0, 4)


@QUICK
@given(data=st.data(), world=st.sampled_from([TINY_WORLD, FLOAT_WORLD]))
def test_the_region_of_a_run_meets_what_its_boxes_hold(data: st.DataObject, world: type[TINY_WORLD]) -> None:
    """Lemma 2, on any float64: the window of a point leads to the run of every box that holds it."""
    boxes = data.draw(st.lists(world.box(2), min_size=1, max_size=12))
    points = data.draw(world.points(2, 6))
    lo, hi = (np.array([box[side] for box in boxes], np.float64) for side in (0, 1))
    regions = regions_of_boxes(lo, hi, 2)
    runs = np.empty(regions.levels[1], np.int32)
    for point in points[~np.isnan(points).any(axis=1)]:
        met = runs[: met_runs(*regions, point, point, runs)].tolist()
        holding = np.flatnonzero(((lo <= point) & (point < hi)).all(axis=1))
        assert {box // 2 for box in holding.tolist()} <= set(met)
