"""Spatial Join: the paper's examples, both directions of the join, and its parameters."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.index.box.spatial_join import Mode, SpatialJoin, telling_axes
from service.index.box.spatial_join_data import DataIndex, arranged
from service.index.box.spatial_join_kernels import (
    candidates,
    join_batch,
    join_boxes,
    join_immediate,
    rank_cluster,
    ranks_in,
    room_for,
)
from service.index.box.spatial_join_regions import filed_boxes, regions_of_boxes
from service.index.boxes import BoxStore
from service.index.protocol import Bounds, Points
from tests.index.slow import SlowTwin, holds
from tests.index.worlds import (
    FLOAT_WORLD,
    INF,
    NAN,
    QUICK,
    SMALL,
    TINY_WORLD,
    World,
    ends,
    insert_queries,
    pairs,
    same,
    slots,
)


def window(lo: Bounds, hi: Bounds, low: Points, high: Points) -> list[int]:
    """The boxes that are candidates for the closed rectangle ``[low, high]``."""
    store = BoxStore(lo.shape[1])
    store.insert(np.arange(len(lo), dtype=np.int32), lo, hi)
    filed = filed_boxes(store.boxes, len(lo), regions_of_boxes(lo, hi, 64))
    runs, boxes = np.empty(filed.levels[1], np.int32), np.empty(64 * filed.levels[1], np.int32)
    with np.errstate(over="ignore"):
        return sorted(boxes[: candidates(filed, low, high, runs, boxes)].tolist())


@pytest.mark.parametrize("mode", Mode)
def test_examples_1_and_2(mode: Mode) -> None:
    """Figure 4: q1 is x in [1, 6], y in [4, 6]; q2 is x and y in [0, 3]. d2 = (1, 2) is in q2, d3 in q1, and
    d1 = (4, 3) in none. (The text does not give d3.)"""
    index = SpatialJoin(2, mode=mode, cluster_size=2, tail_limit=0)
    lo = np.array([[1.0, 4.0], [0.0, 0.0]])
    hi = np.nextafter([[6.0, 6.0], [3.0, 3.0]], INF)
    index.insert(slots(1, 2), lo, hi)
    index.check()
    d1, d2, d3 = [4.0, 3.0], [1.0, 2.0], [5.0, 5.0]
    assert pairs(index.stab(np.array([d1, d2, d3]))) == [(1, 2), (2, 1)]


def test_example_4() -> None:
    """Figure 12: six data elements with one attribute, three a cluster. The first cluster is joined with q1,
    q2 and q3, the second one with q3, q4 and q5."""
    lo, hi = ends([0.0, 0.1, 0.25, 0.65, 0.8], 1), ends([0.12, 0.2, 0.7, 0.75, 0.95], 1)
    points = ends([0.85, 0.05, 0.3, 0.6, 0.15, 0.9], 1)
    columns, rows, _ = arranged(points)
    clusters = [columns[:, first : first + 3] for first in (0, 3)]
    assert [rows[first : first + 3].tolist() for first in (0, 3)] == [[1, 4, 2], [3, 0, 5]]
    windows = [window(lo, hi, cluster.min(axis=1), cluster.max(axis=1)) for cluster in clusters]
    assert windows == [[0, 1, 2], [2, 3, 4]]


def test_the_window_is_what_overlaps() -> None:
    """Lemma 2 by exhaustion: all intervals of a few values, free ones too, against all closed intervals. What
    only touches may be among the candidates: the filter compares roundings."""
    values = [-INF, -9.0, 0.0, 1.0, 2.0, 3.0, INF]
    sides = [(a, b) for a in values for b in values if a < b]
    lo, hi = ends([a for a, _ in sides], 1), ends([b for _, b in sides], 1)
    inner = [-INF, -9.0, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 3.5]
    for low in inner:
        for high in inner:
            if low <= high:
                overlapping = {i for i, (a, b) in enumerate(sides) if a <= high and b > low}
                touching = {
                    i
                    for i, (a, b) in enumerate(sides)
                    if np.float32(a) <= np.float32(high) and np.float32(b) >= np.float32(low)
                }
                found = set(window(lo, hi, np.array([low]), np.array([high])))
                assert overlapping <= found <= touching


def test_a_disjunction_is_several_boxes_of_a_slot() -> None:
    """Footnote 2: the results of the conjuncts are or-ed."""
    index = SpatialJoin(1, cluster_size=4, tail_limit=0)
    index.insert(slots(7, 7), ends([0.0, 1.0], 1), ends([2.0, 3.0], 1))
    assert pairs(index.stab(ends([0.5, 1.5, 2.5, 3.0], 1))) == [(0, 7), (1, 7), (2, 7)]


@QUICK
@given(data=st.data(), world=st.sampled_from([TINY_WORLD, FLOAT_WORLD]), dims=st.integers(1, 3))
def test_the_size_of_a_cluster_does_not_matter(data: st.DataObject, world: World, dims: int) -> None:
    queries = data.draw(world.queries(dims, 12))
    points = data.draw(world.points(dims, 12))
    indexes = [SpatialJoin(dims, cluster_size=size, tail_limit=0) for size in (1, 2, 5, 64, 65536)]
    indexes.append(SpatialJoin(dims, mode=Mode.IMMEDIATE, tail_limit=0))
    twin = SlowTwin(dims)
    insert_queries([*indexes, twin], 0, queries, dims)
    answer = twin.stab(points)
    for index in indexes:
        index.check()
        assert same(index.stab(points), answer)


def test_batches_of_every_size() -> None:
    """Around the fewest points that are clustered, and around the words of a bitmap."""
    rng = np.random.default_rng(11)
    lo = rng.integers(0, 20, (200, 2)).astype(np.float64)
    hi = lo + rng.integers(1, 15, (200, 2))
    points = rng.integers(0, 30, (140, 2)).astype(np.float64)
    points[7] = NAN
    twin, index = SlowTwin(2), SpatialJoin(2, tail_limit=0)
    sixty = SpatialJoin(2, cluster_size=65, tail_limit=0)
    for each in (twin, index, sixty):
        each.insert(np.arange(200, dtype=np.int32), lo, hi)
    for size in (0, 1, 63, 64, 65, 128, 129, 140):
        answer = twin.stab(points[:size])
        assert same(index.stab(points[:size]), answer)
        assert same(sixty.stab(points[:size]), answer)


def test_a_removed_box_is_in_no_answer_before_all_is_filed_anew() -> None:
    index = SpatialJoin(1, cluster_size=2, tail_limit=0)
    index.insert(slots(0, 1, 2, 3, 4), ends([0.0] * 5, 1), ends([9.0] * 5, 1))
    index.remove(slots(1, 3))
    index.check()
    assert pairs(index.stab(ends([1.0, 2.0], 1))) == [(r, s) for r in (0, 1) for s in (0, 2, 4)]


def test_kernels_never_write_past_their_room() -> None:
    """They say how many keys there are, whatever fits."""
    lo, hi, points = ends([0.0] * 70, 2), ends([9.0] * 70, 2), ends(np.arange(9.0), 2)
    store = BoxStore(2)
    store.insert(np.arange(70, dtype=np.int32), lo, hi)
    filed = filed_boxes(store.boxes, 70, regions_of_boxes(lo, hi, 64))
    columns, rows, _ = arranged(points)
    data = DataIndex(points)
    for room in (0, 1, 100, 630):
        for join in (
            lambda out: join_batch(filed, columns, rows, 4, out),
            lambda out: join_immediate(filed, points, out),
            lambda out: join_boxes(columns, rows, *data._clusters, lo, hi, hi, out),
        ):
            out = np.full(630, -7)
            assert join(out[:room]) == 630
            assert (out[room:] == -7).all()
            assert (out[:room] >= 0).all()


@QUICK
@given(
    values=st.lists(
        st.sampled_from([-INF, -1.0, 0.0, 1.0, 2.0, INF]) | st.floats(allow_nan=False), min_size=1
    ),
    x=st.floats(allow_nan=False),
    y=st.floats(allow_nan=False),
)
def test_a_ranked_cluster(values: list[float], x: float, y: float) -> None:
    """The values in order, and for each rank the points below it."""
    count = len(values)
    ranked = np.empty((1, room_for(count)))
    below = np.empty((1, count + 1, -(-count // 64)), np.uint64)
    rank_cluster(np.array([[NAN, *values]]), 1, ranked, below)
    assert ranked[0, :count].tolist() == sorted(values)
    assert (ranked[0, count:] == INF).all()
    for rank in range(count + 1):
        points = [i for i in range(count) if int(below[0, rank, i // 64]) >> (i % 64) & 1]
        assert sorted(values[i] for i in points) == sorted(values)[:rank]
    for one in (x, y, *values):
        expected = sum(value < one for value in ranked[0])
        assert ranks_in(ranked, 0, one, one) == (expected, expected)
    assert ranks_in(ranked, 0, x, y) == (sum(v < x for v in ranked[0]), sum(v < y for v in ranked[0]))


def test_room_for() -> None:
    assert [room_for(count) for count in (1, 2, 4, 5, 16, 17, 64, 1024, 1025)] == [
        1, 4, 4, 16, 16, 64, 64, 1024, 4096,
    ]  # fmt: skip


def test_attributes_that_tell_boxes_apart_come_first() -> None:
    lo, hi = np.full((4, 3), -INF), np.full((4, 3), INF)
    lo[:, 2] = 0.0
    hi[:3, 1] = 1.0
    assert telling_axes(lo, hi).tolist() == [2, 1, 0]


def test_refused_parameters() -> None:
    for size in (0, -1, 65537):
        with pytest.raises(ValueError, match="cluster_size"):
            SpatialJoin(1, cluster_size=size)
    with pytest.raises(ValueError, match="attribute"):
        SpatialJoin(0)
    with pytest.raises(ValueError, match="with d at least 1"):
        DataIndex(np.empty((3, 0)))
    with pytest.raises(ValueError, match="with d at least 1"):
        DataIndex(np.empty(3))
    data = DataIndex(np.empty((3, 2)))
    with pytest.raises(TypeError, match="float64"):
        DataIndex(np.empty((3, 2), np.float32))
    with pytest.raises(TypeError, match="float64"):
        data.join(np.empty((1, 2), np.int64), np.empty((1, 2)))
    with pytest.raises(ValueError, match="shape"):
        data.join(np.empty((1, 3)), np.empty((1, 3)))
    with pytest.raises(ValueError, match="length"):
        data.join(np.empty((1, 2)), np.empty((2, 2)))


@QUICK
@given(data=st.data(), world=st.sampled_from([TINY_WORLD, FLOAT_WORLD]), dims=st.integers(1, 3))
def test_the_dual_finds_the_points_of_a_box(data: st.DataObject, world: World, dims: int) -> None:
    boxes = data.draw(st.lists(world.box(dims), max_size=6))
    points = data.draw(world.points(dims, 12))
    lo, hi = (np.array([box[side] for box in boxes], np.float64).reshape(-1, dims) for side in (0, 1))
    index = DataIndex(points)
    index.check(points)
    assert len(index) == len(points)
    found = index.join(lo, hi)
    assert list(zip(found.boxes.tolist(), found.rows.tolist(), strict=True)) == [
        (number, row)
        for number, box in enumerate(boxes)
        for row, point in enumerate(points.tolist())
        if holds(box, point)
    ]


def test_the_dual_is_the_join_turned_around() -> None:
    """Many clusters, some covered by a box and some cut, against the same pairs found from the other side."""
    count = 400 if SMALL else 3000
    rng = np.random.default_rng(12)
    points = rng.integers(0, 40, (count, 2)).astype(np.float64)
    points[::97] = NAN
    points[1::97, 0] = -INF
    lo = rng.integers(-5, 40, (50, 2)).astype(np.float64)
    hi = lo + rng.integers(1, 30, (50, 2))
    lo[::7, 0], hi[::7, 0] = -INF, INF
    data = DataIndex(points)
    data.check(points)
    index = SpatialJoin(2, tail_limit=0)
    index.insert(np.arange(50, dtype=np.int32), lo, hi)
    hits = index.stab(points)
    found = data.join(lo, hi)
    order = np.lexsort((hits.rows, hits.slots))
    assert len(found.rows) > count
    assert np.array_equal(found.boxes, hits.slots[order])
    assert np.array_equal(found.rows, hits.rows[order])
    assert found.boxes.dtype == found.rows.dtype == np.int32


def test_the_dual_of_nothing() -> None:
    """No points, no boxes, boxes that hold nothing."""
    empty = np.empty((0, 2))
    assert len(DataIndex(empty).join(ends([0.0], 2), ends([1.0], 2)).rows) == 0
    points = ends([0.0, 1.0, 2.0], 2)
    data = DataIndex(points)
    points[:] = 9.0  # copied
    assert data.join(ends([0.0], 2), ends([2.0], 2)).rows.tolist() == [0, 1]
    assert len(data.join(empty, empty).rows) == 0
    assert len(data.join(ends([1.0, 2.0, NAN, 0.0], 2), ends([1.0, 1.0, 2.0, NAN], 2)).rows) == 0
    assert data.nbytes > 0
