"""Window lists: the promises of a part, the size of the lists, and worlds that are unkind to windows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.index.default.part import NEVER, Sparse, sparse, taken
from service.index.default.windows import Windows
from service.index.default.windows_kernels import FAR, NO_EDGE, SLACK, cell_of, edge_of, step_of
from service.index.default.windows_living import Living
from service.index.protocol import Points
from tests.index.parts import found
from tests.index.slow import holds
from tests.index.worlds import FLOAT_WORLD, INF, LOWEST, MOST, NAN, QUICK, SMALL, TINY, TINY_WORLD, ends

Interval = tuple[float, float]


def boxes_of(intervals: list[Interval]) -> Sparse:
    """Slots 0, 1 and on; what constrains nothing is left out, as the owner of a part does."""
    lo, hi = (ends([interval[side] for interval in intervals], 1) for side in (0, 1))
    bound = ((lo != -INF) | (hi != INF)).ravel()
    return sparse(np.flatnonzero(bound).astype(np.int32), lo[bound], hi[bound])


def expected(boxes: Sparse, points: Points, living: np.ndarray | None = None) -> list[tuple[int, int]]:
    return sorted(
        (row, int(boxes.slots[i]))
        for row, point in enumerate(points.tolist())
        for i in range(len(boxes))
        if (living is None or living[i]) and holds(([float(boxes.lo[i])], [float(boxes.hi[i])]), point)
    )


def intervals_of(end: st.SearchStrategy[float], most: int) -> st.SearchStrategy[list[Interval]]:
    side = st.tuples(end, end).filter(lambda pair: pair[0] != pair[1])
    return st.lists(side.map(lambda pair: (min(pair), max(pair))), max_size=most)


MANY = 60 if SMALL else 200


@QUICK
@given(intervals=intervals_of(TINY_WORLD.end, MANY), points=TINY_WORLD.points(1, 12))
def test_tiny_world(intervals: list[Interval], points: Points) -> None:
    boxes = boxes_of(intervals)
    part = Windows.of(boxes, 1)
    part.check()
    assert found(part, points) == expected(boxes, points)


@QUICK
@given(intervals=intervals_of(FLOAT_WORLD.end, MANY), points=FLOAT_WORLD.points(1, 12))
def test_any_floats(intervals: list[Interval], points: Points) -> None:
    boxes = boxes_of(intervals)
    part = Windows.of(boxes, 1)
    part.check()
    points = np.concatenate([points, boxes.lo[:20, None], boxes.hi[:20, None]])
    assert found(part, points) == expected(boxes, points)


def columns(boxes: Sparse) -> list[list[float]]:
    named = boxes.slots, boxes.starts, boxes.attributes, boxes.lo, boxes.hi
    return [column.tolist() for column in named]


def some_intervals(count: int, seed: int) -> list[Interval]:
    """Short and long ones, on halves."""
    rng = np.random.default_rng(seed)
    lo = rng.integers(0, 2 * count, count) / 2
    width = (
        np.where(rng.random(count) < 0.1, rng.integers(1, 2 * count, count), rng.integers(1, 40, count)) / 2
    )
    return list(zip(lo.tolist(), (lo + width).tolist(), strict=True))


def test_removed_boxes_are_there_for_earlier_versions() -> None:
    boxes = boxes_of(some_intervals(MANY, 1))
    part = Windows.of(boxes, 1)
    gone_at = np.random.default_rng(2).integers(1, 4, len(boxes)).astype(np.int32)
    gone_at[::3] = NEVER
    part.removed_at[:] = gone_at[part.slots]
    points = ends(np.linspace(0.0, MANY, 30), 1)
    for version in range(5):
        assert found(part, points, version) == expected(boxes, points, gone_at > version)


def test_order_and_attribute_do_not_matter() -> None:
    boxes = boxes_of(some_intervals(MANY, 3))
    part = Windows.of(boxes, 1)
    shuffled = taken(boxes, np.random.default_rng(4).permutation(len(boxes)))
    other = Windows.of(shuffled, 1)
    assert columns(part.boxes()) == columns(other.boxes())
    moved = Sparse(boxes.slots, boxes.starts, boxes.attributes + np.uint8(3), boxes.lo, boxes.hi)
    points = np.full((20, 5), 1e9)
    points[:, 3] = np.linspace(0.0, MANY, 20)
    fourth = Windows.of(moved, 5)
    fourth.check()
    assert fourth.boxes().attributes.tolist() == [3] * len(boxes)
    assert found(fourth, points) == found(part, ends(points[:, 3], 1))


@pytest.mark.parametrize(
    "intervals",
    [
        [],
        [(0.0, 1.0)],
        [(5.0, 5.0 + 2**-50)] * 100,
        [(5.0, 9.0)] * 100,
        [(-INF, float(i)) for i in range(100)],
        [(float(i), INF) for i in range(100)],
        [(float(i), 200.0 - i) for i in range(100)],  # nested
        [(float(i), float(i + 1)) for i in range(100)],
        [(i * TINY, (i + 1) * TINY) for i in range(100)],
        [(MOST / 200 * i, MOST / 200 * (i + 1)) for i in range(-100, 100)],
        [(LOWEST, MOST), (-INF, LOWEST), (MOST, INF), (LOWEST, INF)] * 20,
        [(-0.0, 1.0), (-1.0, 0.0), (0.0, 1.0), (-1.0, -0.0)],
        [(0.0, 1.0)] * 90 + [(1e300, INF)] * 10,
    ],
)
def test_unkind_worlds(intervals: list[Interval]) -> None:
    boxes = boxes_of(intervals)
    part = Windows.of(boxes, 1)
    part.check()
    values = np.concatenate([boxes.lo, boxes.hi])
    with np.errstate(over="ignore"):
        near = np.concatenate([np.nextafter(values, -INF), np.nextafter(values, INF)])
    points = ends(np.unique(np.concatenate([values, near, [-INF, INF, 0.5, NAN, NAN]])), 1)
    assert found(part, points) == expected(boxes, points)


def test_values_on_the_steps_of_ends() -> None:
    """Hundredths are no sums of powers of two: ends, and points that are equal to them, lie within steps."""
    intervals = [(low / 100, high / 100) for low, high in some_intervals(MANY, 8)]
    boxes = boxes_of(intervals)
    part = Windows.of(boxes, 1)
    part.check()
    assert not part._lists.doubtful.any()
    values = np.concatenate([boxes.lo, boxes.hi])
    points = ends(np.concatenate([values, np.nextafter(values, -INF), np.nextafter(values, INF)]), 1)
    assert found(part, points) == expected(boxes, points)
    gone_at = np.random.default_rng(9).integers(1, 3, len(boxes)).astype(np.int32)
    part.removed_at[:] = gone_at[part.slots]
    assert found(part, points, 1) == expected(boxes, points, gone_at > 1)


def test_different_ends_on_one_step() -> None:
    """Where a far end makes steps wide, each end is compared."""
    near = [5.0 + i * 2.0**-45 for i in range(40)]
    for intervals in (
        [(0.0, end) for end in near] + [(1e6, 2e6)],
        [(end, 9e6) for end in near] + [(0.0, 1.0)],
        [(low, high) for low, high in zip(near, near[20:], strict=False)] + [(0.0, 1e6), (-1e6, 0.0)],
        [(float(i), i + 400.0) for i in range(300)] + [(end, 250.0 + end) for end in near] + [(0.0, 1e9)],
    ):
        boxes = boxes_of(intervals)
        part = Windows.of(boxes, 1)
        part.check()
        assert part._lists.doubtful.any()
        values = np.concatenate([boxes.lo, boxes.hi])
        points = ends(np.concatenate([values, np.nextafter(values, -INF), np.nextafter(values, INF)]), 1)
        assert found(part, points) == expected(boxes, points)


@pytest.mark.parametrize("end", [0.0, -0.0, 0.37, -INF, INF, TINY, LOWEST, MOST, 1e300])
def test_an_edge_parts_the_values_below_an_end_from_the_others(end: float) -> None:
    near = [end, end - 1.0, end + 1.0, end / 3]
    with np.errstate(over="ignore"):
        near += [float(np.nextafter(end, -INF)), float(np.nextafter(end, INF))]
        for origin, scale in ((0.0, 100.0), (0.25, 2.0**40), (-FAR, 2.0**-120), (0.37, 8.0)):
            edge = edge_of(end, origin, scale)
            assert 1 <= edge < NO_EDGE
            for x in near:
                if x < INF:
                    step = step_of(x, origin, scale)
                    assert step <= edge if x < end else step >= edge


def test_a_box_is_filed_at_most_three_times_on_average() -> None:
    for intervals in (
        some_intervals(2000, 5),
        [(0.0, 1.0)] * 2000,
        [(float(i), 4000.0 - i) for i in range(2000)],
        [(float(i), INF) for i in range(2000)],
        [(float(i), i + 300.0) for i in range(2000)],
    ):
        part = Windows.of(boxes_of(intervals), 1)
        assert part.entries <= 3 * len(intervals)


def test_what_is_looked_at_follows_the_answer() -> None:
    """However many boxes there are, a window's own are about half as many as hold any of its values."""
    count = 3000
    part = Windows.of(boxes_of([(float(i), i + 50.0) for i in range(count)]), 1)
    first = part._lists.windows.view(np.int32)[:, 6]
    assert np.diff(first).max() <= (50 + SLACK) / 2 + 2 * 16
    assert len(first) > count / 100


@QUICK
@given(
    values=st.lists(FLOAT_WORLD.end | TINY_WORLD.end, min_size=2),
    origin=st.floats(-1e200, 1e200),
    scale=st.floats(2.0**-900, 2.0**120),
)
def test_cells_are_monotone(values: list[float], origin: float, scale: float) -> None:
    cells = [cell_of(x, origin, scale, 100) for x in sorted(values)]
    assert cells == sorted(cells)
    assert all(0 <= cell < 100 for cell in cells)
    assert cell_of(NAN, origin, scale, 100) == 0


def test_refusals() -> None:
    two = sparse(np.array([0], np.int32), ends([0.0], 2), ends([1.0], 2))
    with pytest.raises(ValueError, match="one attribute"):
        Windows.of(two, 2)
    lo, hi = np.array([[0.0, -INF], [-INF, 0.0]]), np.array([[1.0, INF], [INF, 1.0]])
    with pytest.raises(ValueError, match="one attribute"):
        Windows.of(sparse(np.array([0, 1], np.int32), lo, hi), 2)


def test_marks_are_read_only_where_some_box_is_removed() -> None:
    removed_at = np.full(64_000, NEVER)
    living = Living(removed_at)
    assert len(living.marks(0, 1)) == 0
    removed_at[7] = 3  # by an owner whose readers are at version 2
    assert len(living.marks(0, 1)) == 0
    assert len(living.marks(1, 1)) == len(removed_at), "a look at all marks is not worth it for one point"
    assert len(living.marks(1, 1000)) == 0
    assert len(living.marks(3, 1000)) == len(removed_at)
    assert len(living.marks(4, 1000)) == len(removed_at)
    assert len(living.marks(1, 1)) == 0


def test_removal_between_two_stabs() -> None:
    part = Windows.of(boxes_of([(0.0, 10.0), (1.0, 10.0), (2.0, 10.0)] * 20), 1)
    point = ends([5.0], 1)
    assert len(found(part, point, 0)) == 60
    part.removed_at[part.slots == 31] = 1
    assert len(found(part, point, 0)) == 60
    assert (0, 31) not in found(part, point, 1)
    assert len(found(part, point, 1)) == 59
