"""kd windows: the promises of a part, steps of two bytes, the size of the tree, and unkind worlds."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.index.default.kd import MOST_DIMS, Kd
from service.index.default.kd_kernels import BLOCK, FAR, cell_of, step_of
from service.index.default.kd_leaves import chosen_scales
from service.index.default.kd_tree import MOST_ENTRIES
from service.index.default.part import NEVER, Sparse, dense, sparse, taken
from service.index.protocol import Bounds, Points
from tests.index.parts import found
from tests.index.slow import holds
from tests.index.worlds import (
    FLOAT_WORLD,
    INF,
    LOWEST,
    MOST,
    NAN,
    QUICK,
    SMALL,
    TINY,
    TINY_WORLD,
    World,
    ends,
)

COUNT = 150 if SMALL else 600


def boxes_of(lo: Bounds, hi: Bounds) -> Sparse:
    """Slots 0, 1 and on, without the boxes that leave an attribute free, as the owner of a part does."""
    bound = ((lo != -INF) | (hi != INF)).all(axis=1)
    return sparse(np.flatnonzero(bound).astype(np.int32), lo[bound], hi[bound])


def expected(boxes: Sparse, points: Points, living: np.ndarray | None = None) -> list[tuple[int, int]]:
    lo, hi = (bounds.tolist() for bounds in dense(boxes, points.shape[1]))
    return sorted(
        (row, int(boxes.slots[i]))
        for row, point in enumerate(points.tolist())
        for i in range(len(boxes))
        if (living is None or living[i]) and holds((lo[i], hi[i]), point)
    )


def whole(points: Points) -> Points:
    """As the owner of a part hands them over: with NaN everywhere or nowhere."""
    return np.where(np.logical_or.reduce(np.isnan(points), axis=1)[:, None], NAN, points)


def random_boxes(dims: int, seed: int) -> Sparse:
    """Small and large ones, on halves; many ends are equal."""
    rng = np.random.default_rng(seed)
    lo = rng.integers(0, 40, (COUNT, dims)) / 2
    wide = rng.random((COUNT, dims)) < 0.1
    hi = lo + np.where(wide, rng.integers(10, 40, lo.shape), rng.integers(1, 6, lo.shape)) / 2
    return boxes_of(lo, hi)


def random_points(dims: int, seed: int, count: int = 40) -> Points:
    return np.random.default_rng(seed).integers(-2, 90, (count, dims)) / 4


@pytest.mark.parametrize("world", [TINY_WORLD, FLOAT_WORLD])
@pytest.mark.parametrize("dims", [1, 2, 3, 4])
@given(data=st.data())
@QUICK
def test_any_world(world: World, dims: int, data: st.DataObject) -> None:
    drawn = data.draw(st.lists(world.box(dims), max_size=40))
    lo, hi = (np.array([box[side] for box in drawn], np.float64).reshape(-1, dims) for side in (0, 1))
    boxes = boxes_of(lo, hi)
    points = np.concatenate([data.draw(world.points(dims, 10)), lo[:10], hi[:10]])
    for leaf in (1, 32):
        part = Kd.of(boxes, dims, leaf=leaf)
        part.check()
        assert found(part, whole(points)) == expected(boxes, points)


@pytest.mark.parametrize("dims", [1, 2, 3, 4])
@pytest.mark.parametrize("leaf", [1, 8, 32])
def test_random_boxes(dims: int, leaf: int) -> None:
    boxes = random_boxes(dims, dims)
    part = Kd.of(boxes, dims, leaf=leaf)
    part.check()
    points = random_points(dims, 7)
    assert found(part, points) == expected(boxes, points)
    assert part.entries <= MOST_ENTRIES * len(boxes)


def test_removed_boxes_are_there_for_earlier_versions() -> None:
    boxes = random_boxes(2, 1)
    part = Kd.of(boxes, 2)
    gone_at = np.random.default_rng(2).integers(1, 4, len(boxes)).astype(np.int32)
    gone_at[::3] = NEVER
    part.removed_at[:] = gone_at[part.slots]
    points = random_points(2, 3)
    for version in range(5):
        assert found(part, points, version) == expected(boxes, points, gone_at > version)


def test_more_removed_boxes_around_a_point_than_wait() -> None:
    """Keys wait until it is looked whether their boxes live, and there is room for so many only."""
    count = 40 * BLOCK if SMALL else 100 * BLOCK
    lo = np.random.default_rng(11).integers(0, 20, (count, 2)).astype(np.float64)
    boxes = boxes_of(lo, np.full((count, 2), 30.0))
    part = Kd.of(boxes, 2, leaf=count)
    part.removed_at[part.slots % 3 == 0] = 1
    living = boxes.slots % 3 != 0
    for points in (np.full((1, 2), 25.0), np.full((3, 2), 15.0), np.full((2, 2), 19.0)):
        assert found(part, points, 0) == expected(boxes, points)
        assert found(part, points, 1) == expected(boxes, points, living)


def leaf_of(*counts: int) -> Kd:
    """One leaf of which so many boxes of each block hold 0, the first ones of the block."""
    lo = np.arange(-BLOCK * len(counts), 0, dtype=np.float64)
    holding = np.concatenate([np.arange(BLOCK) < count for count in counts])
    part = Kd.of(boxes_of(lo[:, None], np.where(holding, 1.0, lo + 0.5)[:, None]), 1, leaf=len(lo))
    assert part.slots.tolist() == list(range(len(lo)))
    return part


@pytest.mark.parametrize("counts", [(BLOCK - 1,), (BLOCK,), (BLOCK, BLOCK - 1), (BLOCK - 1, 1)])
def test_a_block_of_which_all_lanes_but_one_hold_a_point_and_as_much_room(counts: tuple[int, ...]) -> None:
    """The last lane has a key too, which is written where the next one would be if there is room for that."""
    hits = [(0, BLOCK * block + lane) for block, count in enumerate(counts) for lane in range(count)]
    assert found(leaf_of(*counts), np.zeros((1, 1))) == hits


def test_a_block_of_which_all_lanes_but_one_are_removed_and_as_many_may_wait() -> None:
    """There is room for two blocks to wait with one point; what is behind it says which boxes wait."""
    part = leaf_of(BLOCK, 1, BLOCK - 1)
    part.removed_at[1:] = 1
    assert found(part, np.zeros((1, 1)), 1) == [(0, 0)]


def columns(boxes: Sparse) -> list[list[float]]:
    named = boxes.slots, boxes.starts, boxes.attributes, boxes.lo, boxes.hi
    return [column.tolist() for column in named]


def test_the_order_of_boxes_does_not_matter() -> None:
    boxes = random_boxes(3, 4)
    part = Kd.of(boxes, 3)
    other = Kd.of(taken(boxes, np.random.default_rng(5).permutation(len(boxes))), 3)
    assert columns(part.boxes()) == columns(other.boxes())
    points = random_points(3, 6)
    out, again = np.zeros((2, COUNT * len(points)), np.int64)
    assert part.stab(points, 0, out) == other.stab(points, 0, again)
    assert np.array_equal(out, again)


def test_boxes_are_given_back() -> None:
    boxes = random_boxes(2, 8)
    back = Kd.of(boxes, 2).boxes()
    assert columns(taken(back, np.argsort(back.slots))) == columns(boxes)


def test_attributes_may_be_any_of_the_index() -> None:
    boxes = random_boxes(3, 9)
    moved = Sparse(
        boxes.slots, boxes.starts, np.tile(np.array([1, 4, 5], np.uint8), len(boxes)), boxes.lo, boxes.hi
    )
    points = np.full((40, 7), 1e9)
    points[:, [1, 4, 5]] = random_points(3, 10)
    part = Kd.of(moved, 7)
    part.check()
    assert columns(part.boxes())[2] == moved.attributes.tolist()
    assert found(part, points) == expected(moved, points)


def cubes_in_two(intervals: list[tuple[float, float]]) -> tuple[Bounds, Bounds]:
    """Every interval in the first attribute with the next one in the second, and with itself."""
    pairs = [(a, b) for a, b in zip(intervals, intervals[1:] + intervals[:1], strict=True)]
    pairs += [(a, a) for a in intervals]
    return (
        np.array([[a[0], b[0]] for a, b in pairs], np.float64),
        np.array([[a[1], b[1]] for a, b in pairs], np.float64),
    )


@pytest.mark.parametrize(
    "intervals",
    [
        [(0.0, 1.0)],
        [(5.0, 5.0 + 2**-50)] * 60,
        [(5.0, 9.0)] * 60,
        [(-INF, float(i)) for i in range(60)],
        [(float(i), INF) for i in range(60)],
        [(float(i), 200.0 - i) for i in range(60)],  # nested
        [(float(i), float(i + 1)) for i in range(60)],
        [(i * TINY, (i + 1) * TINY) for i in range(60)],
        [(MOST / 60 * i, MOST / 60 * (i + 1)) for i in range(-60, 60, 2)],
        [(LOWEST, MOST), (-INF, LOWEST), (MOST, INF), (LOWEST, INF)] * 12,
        [(-0.0, 1.0), (-1.0, 0.0), (0.0, 1.0), (-1.0, -0.0)] * 12,
        [(0.0, 1.0)] * 50 + [(1e300, INF)] * 10,
        [(1.0 + i * 2**-52, 1.0 + (i + 3) * 2**-52) for i in range(50)] + [(-1e6, 1e6)] * 10,
    ],
)
def test_unkind_worlds(intervals: list[tuple[float, float]]) -> None:
    boxes = boxes_of(*cubes_in_two(intervals))
    values = np.concatenate([boxes.lo, boxes.hi])
    with np.errstate(over="ignore"):
        near = np.concatenate([np.nextafter(values, -INF), np.nextafter(values, INF)])
    values = np.unique(np.concatenate([values, near, [-INF, INF, 0.5]]))
    rng = np.random.default_rng(1)
    points = rng.choice(values, (60, 2))
    points = np.concatenate([points, ends(values[:: max(1, len(values) // 30)], 2), [[NAN, NAN]]])
    for leaf in (1, 32):
        part = Kd.of(boxes, 2, leaf=leaf)
        part.check()
        assert found(part, points) == expected(boxes, points)


def test_categories_are_never_copied() -> None:
    """Boxes that name one category each, most of them a few, and a range of prices."""
    rng = np.random.default_rng(11)
    code = np.minimum(rng.geometric(0.05, COUNT), 200).astype(np.float64)
    price = rng.random(COUNT) * 100
    boxes = boxes_of(np.stack([code, price], axis=1), np.stack([code + 1, price + 2], axis=1))
    part = Kd.of(boxes, 2, leaf=8)
    part.check()
    assert part.entries < 3 * COUNT
    points = np.stack([rng.integers(0, 60, 40), rng.random(40) * 100], axis=1).astype(np.float64)
    assert found(part, points) == expected(boxes, points)


def test_equal_boxes_are_filed_once() -> None:
    """Where a box covers the cell it is filed above it, however many there are."""
    lo, hi = np.full((COUNT, 2), 3.0), np.full((COUNT, 2), 4.0)
    part = Kd.of(boxes_of(lo, hi), 2)
    assert part.entries == COUNT
    points = np.array(list(product([2.9, 3.0, 3.5, 4.0], repeat=2)))
    assert len(found(part, points)) == 4 * COUNT


def test_no_box() -> None:
    part = Kd.of(sparse(np.empty(0, np.int32), np.empty((0, 2)), np.empty((0, 2))), 2)
    part.check()
    assert found(part, random_points(2, 1)) == []
    assert len(part.boxes()) == 0


def test_no_point() -> None:
    assert found(Kd.of(random_boxes(2, 1), 2), np.empty((0, 2))) == []


STEPS = st.tuples(FLOAT_WORLD.end.filter(np.isfinite), FLOAT_WORLD.end.filter(np.isfinite)).map(sorted)


def chosen_scale(low: float, high: float) -> tuple[float, float]:
    origins, scales = chosen_scales(np.array([low]), np.array([high]))
    return float(origins[0]), float(scales[0])


@QUICK
@given(range_=STEPS, values=st.lists(FLOAT_WORLD.end | TINY_WORLD.end, min_size=2))
def test_steps_are_monotone(range_: list[float], values: list[float]) -> None:
    origin, scale = chosen_scale(*range_)
    assert abs(origin) <= FAR and 2.0**-120 <= scale <= 2.0**120
    steps = [step_of(x, origin, scale) for x in sorted([*values, *range_])]
    assert steps == sorted(steps)
    assert all(1 <= step <= 65534 for step in steps)


def test_round_ends_lie_between_steps() -> None:
    """So a value on such an end is told from the one before it without the end itself."""
    for low, high, apart in ((0.0, 40.0, 1 / 64), (-3.0, 64000.0, 1000.0), (29.5, 29.75, 2.0**-12)):
        origin, scale = chosen_scale(low, high)
        for end in np.arange(low, high, apart).tolist():
            assert step_of(end, origin, scale) > step_of(float(np.nextafter(end, -INF)), origin, scale)


@QUICK
@given(values=st.lists(FLOAT_WORLD.end | TINY_WORLD.end, min_size=2), cells=st.sampled_from([1, 2, 64]))
def test_cells_are_monotone(values: list[float], cells: int) -> None:
    for origin, scale in ((0.0, 1.0), (-1e9, 2.0**-20), (1.0, 2.0**120)):
        numbers = [cell_of(x, origin, scale, float(cells)) for x in sorted(values)]
        assert numbers == sorted(numbers)
        assert all(0 <= number < cells for number in numbers)


def test_refusals() -> None:
    wide = MOST_DIMS + 1
    with pytest.raises(ValueError, match=f"1 to {MOST_DIMS} attributes"):
        Kd.of(sparse(np.array([0], np.int32), ends([0.0], wide), ends([1.0], wide)), wide)
    lo = np.array([[0.0, 0.0, -INF], [-INF, 0.0, 0.0]])
    with pytest.raises(ValueError, match="the same attributes"):
        Kd.of(sparse(np.array([0, 1], np.int32), lo, np.where(lo == 0.0, 1.0, INF)), 3)
    lo = np.array([[0.0, 0.0], [-INF, 0.0]])
    with pytest.raises(ValueError, match="all the same"):
        Kd.of(sparse(np.array([0, 1], np.int32), lo, np.where(lo == 0.0, 1.0, INF)), 2)
