"""The cost model of Spatial Join: what it expects is what a join meets, and what it chooses follows."""

from __future__ import annotations

import numpy as np
import pytest

from service.index.box.corner import corner_order
from service.index.box.spatial_join import SpatialJoin, _Sizes
from service.index.box.spatial_join_cost import (
    SIZES,
    Constants,
    chosen_size,
    mean_sides,
    meets,
    predicted,
    sampled,
    share_below,
)
from service.index.box.spatial_join_data import Arranged, arranged
from service.index.box.spatial_join_regions import Regions, regions_of_boxes
from service.index.protocol import Bounds, Points
from tests.index.worlds import INF, LOWEST, NAN, SMALL, ends

RUN = 8


def filed(lo: Bounds, hi: Bounds) -> tuple[Bounds, Bounds, Regions]:
    lo, hi = np.ascontiguousarray(lo), np.ascontiguousarray(hi)
    order = corner_order(lo, hi, RUN)
    return lo[order], hi[order], regions_of_boxes(lo[order], hi[order], RUN)


def counted(batch: Arranged, lo: Bounds, hi: Bounds, size: int) -> float:
    """How many boxes overlap with a cluster, on average."""
    ordered = batch.columns.T
    windows = [ordered[first : first + size] for first in range(0, len(ordered), size)]
    return float(np.mean([((lo <= c.max(0)) & (hi > c.min(0))).all(axis=1).sum() for c in windows]))


def only(name: str) -> Constants:
    """One constant is 1, the others 0."""
    return Constants(**{field: float(field == name) for field in Constants._fields})


def worlds() -> dict[str, tuple[Bounds, Bounds, Points]]:
    rng = np.random.default_rng(21)
    boxes, points = (1000, 512) if SMALL else (10_000, 4096)
    two = np.sort(rng.random((boxes, 3, 2)), axis=2)
    free = two.copy()
    free[rng.random((boxes, 3)) < 0.5] = (-INF, INF)
    lo = rng.random((boxes, 2))
    uniform = rng.random((points, 3))
    return {
        "wide": (two[:, :, 0], two[:, :, 1], uniform),
        "half free": (free[:, :, 0], free[:, :, 1], uniform),
        "narrow": (lo, lo + 0.02, rng.random((points, 2))),
        "crowded points": (two[:, :, 0], two[:, :, 1], 0.45 + uniform / 10),
        "on a line": (two[:, :, 0], two[:, :, 1], np.repeat(uniform[:, :1], 3, axis=1)),
    }


@pytest.mark.parametrize("name", ["wide", "half free", "narrow", "crowded points"])
def test_expected_candidates_are_those_that_are_met(name: str) -> None:
    """Within a third, for every size: the model is from samples of 64 boxes and 16 clusters."""
    lo, hi, points = worlds()[name]
    lo, hi, regions = filed(lo, hi)
    batch = arranged(np.ascontiguousarray(points))
    expected = (
        predicted(batch, regions, sampled(lo, hi), only("candidate")) * SIZES[: batch.rows.size.bit_length()]
    )
    for place in (3, 5, 7, 9):
        met = counted(batch, lo, hi, SIZES[place])
        assert 0.66 * met < expected[place] < 1.5 * met, SIZES[place]


def test_points_on_a_line_are_not_overestimated_by_much() -> None:
    """Attributes are taken for independent, which these are not: too many candidates, but of the order."""
    lo, hi, points = worlds()["on a line"]
    lo, hi, regions = filed(lo, hi)
    batch = arranged(points)
    expected = predicted(batch, regions, sampled(lo, hi), only("candidate"))
    for place in (3, 6):
        met = counted(batch, lo, hi, SIZES[place])
        assert met / 3 < expected[place] * SIZES[place] < 3 * met


def test_expected_runs_and_rectangles() -> None:
    """A point in a grid of disjoint boxes is in one run, and under one rectangle of each level."""
    side = 32 if SMALL else 64
    corner = np.stack(np.meshgrid(np.arange(side), np.arange(side)), axis=-1).reshape(-1, 2) / side
    lo, hi, regions = filed(corner, corner + 1 / side)
    batch = arranged(np.random.default_rng(22).random((1024, 2)))
    runs = predicted(batch, regions, sampled(lo, hi), only("run"))
    assert 0.7 < runs[0] < 1.5
    rectangles = predicted(batch, regions, sampled(lo, hi), only("rectangle"))
    levels = len(regions.levels) - 1
    assert 8 * (levels - 2) < rectangles[0] < 16 * levels


def test_ranking_is_paid_by_clusters_alone() -> None:
    lo, hi, points = worlds()["wide"]
    lo, hi, regions = filed(lo, hi)
    for name, each in (("arrange", 1.0), ("rank", 3.0)):
        cost = predicted(arranged(points), regions, sampled(lo, hi), only(name))
        assert cost.tolist() == [0.0] + [each] * (len(cost) - 1)
    assert predicted(arranged(points), regions, sampled(lo, hi), only("word"))[0] == 0.0


def test_wide_boxes_get_large_clusters_and_narrow_ones_small() -> None:
    rng = np.random.default_rng(23)
    lo = rng.random((5000, 2))
    points = arranged(rng.random((1024, 2)))

    def chosen(width: float, batch: Arranged) -> int:
        low, high, regions = filed(lo, lo + width)
        return chosen_size(batch, regions, sampled(low, high))

    assert chosen(0.0005, points) == 1
    assert chosen(0.3, points) >= 64
    assert chosen(0.3, arranged(rng.random((64, 2)))) <= 64


def test_a_batch_that_is_no_batch() -> None:
    """Nothing, a single point, points that are all one or nowhere."""
    lo, hi, regions = filed(ends([0.0] * 20, 2), ends(np.arange(1.0, 21.0), 2))
    for values in ([], [1.0], [NAN, NAN], [2.0] * 100, [-INF] * 100, [INF, LOWEST] * 50):
        cost = predicted(arranged(ends(values, 2)), regions, sampled(lo, hi))
        assert np.isfinite(cost).all() and (cost >= 0.0).all()
        assert chosen_size(arranged(ends(values, 2)), regions, sampled(lo, hi)) <= max(len(values), 1)


def test_sides_are_shares_of_the_values() -> None:
    """A cluster that holds all values is as wide as the sample, and one of two neighbours a step of it."""
    columns = np.arange(64.0).reshape(1, 64)
    sides = np.empty((2, 1))
    mean_sides(columns, columns, np.array([64, 2]), sides)
    assert sides[:, 0].tolist() == [63 / 64, 1 / 64]
    assert [share_below(columns, 0, x) for x in (-1.0, 0.0, 0.5, 63.0, 64.0)] == [0, 0, 1 / 64, 63 / 64, 1]


def test_meets() -> None:
    """A point, half of the axis, all of it; rectangles beyond the axis and without extent."""
    assert meets(0.25, 0.75, 0.0) == 0.5
    assert meets(0.4, 0.6, 0.5) == 1.0
    assert meets(0.0, 0.1, 0.5) == pytest.approx(0.2)
    assert meets(0.3, 0.3, 1.0) == 1.0
    assert meets(0.0, 0.0, 1.0) == meets(1.0, 1.0, 1.0) == 0.0
    assert meets(0.5, 0.5, 0.0) == 0.0


def test_a_choice_stands_for_some_batches_of_like_size() -> None:
    asked: list[int] = []

    def choose() -> int:
        asked.append(1)
        return len(asked)

    sizes = _Sizes()
    assert [sizes.size_for(1000, choose) for _ in range(20)] == [1] * 16 + [2] * 4
    assert sizes.size_for(100, choose) == 3
    assert sizes.size_for(1023, choose) == 2


def test_the_index_chooses_by_itself() -> None:
    """And its answer is that of any size."""
    lo, hi, points = (np.ascontiguousarray(part) for part in worlds()["half free"])
    free, fixed = SpatialJoin(3, tail_limit=0), SpatialJoin(3, cluster_size=7, tail_limit=0)
    for index in (free, fixed):
        index.insert(np.arange(len(lo), dtype=np.int32), lo, hi)
        index.check()
    points = points[:200]
    expected = free.predicted(points)
    assert list(expected) == [1, 2, 4, 8, 16, 32, 64, 128]
    assert min(expected.values()) > 0.0
    assert list(SpatialJoin(3).predicted(points[:1])) == [1]
    answers = [index.stab(points) for index in (free, fixed)]
    assert len(answers[0].rows) > 0
    assert all(np.array_equal(a, b) for a, b in zip(*answers, strict=True))
