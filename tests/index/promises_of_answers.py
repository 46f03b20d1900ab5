"""What an index answers: who is inside, in which form, at every kind of border."""

from __future__ import annotations

import numpy as np

from tests.index.slow import SlowTwin
from tests.index.worlds import (
    INF,
    LOWEST,
    MOST,
    NAN,
    SMALL,
    TINY,
    Factory,
    cubes,
    ends,
    filled,
    moves,
    pairs,
    random_boxes,
    random_points,
    same,
    slots,
)


def empty(factory: Factory) -> None:
    index, dims = factory.make(), factory.dims
    index.check()
    nothing = np.empty((0, dims))
    index.insert(slots(), nothing, nothing)
    index.remove(slots())
    index.check()
    assert len(index) == 0
    assert index.dims == dims
    for points in (nothing, ends([0.0, -INF, NAN], dims)):
        assert pairs(index.stab(points)) == []
        assert moves(index.borders(points, points)) == []


def one_box(factory: Factory) -> None:
    index = filled(factory, (1.0, 2.0))
    below, top = np.nextafter([1.0, 2.0], -INF)
    points = ends([-INF, 0.0, below, 1.0, 1.5, top, 2.0, 3.0, INF, NAN], factory.dims)
    assert pairs(index.stab(points)) == [(3, 0), (4, 0), (5, 0)]
    assert len(index) == 1
    assert index.nbytes > 0


def every_attribute_counts(factory: Factory) -> None:
    index, dims = filled(factory, (1.0, 2.0)), factory.dims
    for attribute in range(dims):
        for outside in (0.5, 2.0, -INF, INF, NAN):
            point = ends([1.5], dims)
            point[0, attribute] = outside
            assert pairs(index.stab(point)) == []


def duplicates(factory: Factory) -> None:
    index = filled(factory, *[(0.0, 1.0)] * 70)
    points = ends([0.5, 0.5, 1.0], factory.dims)
    assert pairs(index.stab(points)) == [(row, slot) for row in (0, 1) for slot in range(70)]


def touching(factory: Factory) -> None:
    index = filled(factory, (0.0, 1.0), (1.0, 2.0), (2.0, 3.0))
    points = ends([0.0, 1.0, 2.0, 3.0, *np.nextafter([0.0, 1.0, 2.0, 3.0], -INF)], factory.dims)
    assert pairs(index.stab(points)) == [(0, 0), (1, 1), (2, 2), (5, 0), (6, 1), (7, 2)]


def neighbouring_floats(factory: Factory) -> None:
    """Ends closer than any coarser number can tell apart."""
    for x in (0.1, 1e9, -1e-300, 1.7e308):
        up, down = float(np.nextafter(x, INF)), float(np.nextafter(x, -INF))
        index = filled(factory, (down, x), (x, up), (down, up), (up, INF))
        assert pairs(index.stab(ends([down, x, up], factory.dims))) == [
            (0, 0),
            (0, 2),
            (1, 1),
            (1, 2),
            (2, 3),
        ]


def infinite_ends(factory: Factory) -> None:
    index = filled(
        factory,
        (-INF, INF),
        (LOWEST, INF),
        (-INF, 0.0),
        (0.0, INF),
        (LOWEST, 0.0),
        (-INF, LOWEST),
        (MOST, INF),
    )
    inside = [
        (-INF, [0, 2, 5]),
        (LOWEST, [0, 1, 2, 4]),
        (-1.0, [0, 1, 2, 4]),
        (-TINY, [0, 1, 2, 4]),
        (-0.0, [0, 1, 3]),
        (0.0, [0, 1, 3]),
        (TINY, [0, 1, 3]),
        (1e300, [0, 1, 3]),
        (MOST, [0, 1, 3, 6]),
        (INF, []),
        (NAN, []),
    ]
    for x, expected in inside:
        assert pairs(index.stab(ends([x], factory.dims))) == [(0, slot) for slot in expected], x


def missing_values(factory: Factory) -> None:
    """A missing value is -inf: it satisfies "no constraint" alone."""
    index, dims = factory.make(), factory.dims
    for attribute in range(dims):
        lo, hi = cubes([(0.0, 1.0), (LOWEST, INF)], dims)
        lo[:, attribute], hi[:, attribute] = -INF, INF
        index.insert(slots(2 * attribute, 2 * attribute + 1), lo, hi)
    index.check()
    for attribute in range(dims):
        point = ends([0.5], dims)
        point[0, attribute] = -INF
        assert pairs(index.stab(point)) == [(0, 2 * attribute), (0, 2 * attribute + 1)]


def nan_is_nowhere(factory: Factory) -> None:
    index, dims = filled(factory, (-INF, INF), (0.0, 9.0)), factory.dims
    points = ends([1.0, NAN, 2.0, NAN, 3.0], dims)
    points[3] = 4.0
    points[3, dims - 1] = NAN
    assert pairs(index.stab(points)) == [(row, slot) for row in (0, 2, 4) for slot in (0, 1)]
    assert moves(index.borders(points[1:3], points[2:4])) == [
        (0, 0, True),
        (0, 1, True),
        (1, 0, False),
        (1, 1, False),
    ]


def full_cover(factory: Factory) -> None:
    count, batch = 40, 60
    index = filled(factory, *[(-float(i) - 1, 100.0 + i) for i in range(count)])
    points = ends(np.linspace(0.0, 99.0, batch), factory.dims)
    assert pairs(index.stab(points)) == [(row, slot) for row in range(batch) for slot in range(count)]
    index.check()


def crowded_border(factory: Factory) -> None:
    """Thousands of boxes that begin, or end, at one value."""
    count = 300 if SMALL else 3000
    above = [(5.0, 6.0 + i / 8) for i in range(count)]
    below = [(4.0 - i / 8, 5.0) for i in range(count)]
    index, dims = filled(factory, *above, *below), factory.dims
    points = ends([float(np.nextafter(5.0, -INF)), 5.0, 6.0, 3.0], dims)
    assert pairs(index.stab(points)) == (
        [(0, slot) for slot in range(count, 2 * count)]
        + [(1, slot) for slot in range(count)]
        + [(2, slot) for slot in range(1, count)]
        + [(3, slot) for slot in range(count + 8, 2 * count)]
    )
    crossed = index.borders(points[:1], points[1:2])
    assert crossed.slots.tolist() == list(range(2 * count))
    assert crossed.entered.tolist() == [True] * count + [False] * count


def slots_of_several_boxes(factory: Factory) -> None:
    """A slot is named once, and moving from one of its boxes to another is no border."""
    index, dims = factory.make(), factory.dims
    boxes = [(0.0, 2.0), (1.0, 3.0), (5.0, 6.0), (0.0, 6.0), (1.0, 3.0), (2.0, 9.0)]
    index.insert(slots(3, 1, 3, 1, 3, 2), *cubes(boxes, dims))
    index.check()
    assert len(index) == 3
    points = ends([0.0, 1.5, 2.5, 4.0, 5.5, 7.0], dims)
    assert pairs(index.stab(points)) == [
        (0, 1), (0, 3), (1, 1), (1, 3), (2, 1), (2, 2), (2, 3),
        (3, 1), (3, 2), (4, 1), (4, 2), (4, 3), (5, 2),
    ]  # fmt: skip
    stays = moves(index.borders(ends([1.5, 2.5, 0.5], dims), ends([2.5, 5.5, 4.0], dims)))
    assert stays == [(0, 2, True), (2, 2, True), (2, 3, False)]
    index.remove(slots(3))
    index.check()
    assert pairs(index.stab(points[:2])) == [(0, 1), (1, 1)]


def borders_are_differences(factory: Factory) -> None:
    index, dims = filled(factory, (0.0, 2.0), (1.0, 3.0), (-INF, INF)), factory.dims
    before = ends([NAN, 0.5, 0.5, 2.5, 1.5, -INF], dims)
    after = ends([0.5, NAN, 2.5, 2.5, 9.0, 1.5], dims)
    assert moves(index.borders(before, after)) == [
        (0, 0, True), (0, 2, True), (1, 0, False), (1, 2, False), (2, 0, False), (2, 1, True),
        (4, 0, False), (4, 1, False), (5, 0, True), (5, 1, True),
    ]  # fmt: skip
    back = index.borders(after, before)
    assert [(row, slot, not entered) for row, slot, entered in moves(back)] == moves(
        index.borders(before, after)
    )


def form_of_answers(factory: Factory) -> None:
    index, twin = factory.make(), SlowTwin(factory.dims)
    random_boxes(factory, [index, twin], seed=1, count=200)
    points = random_points(factory, seed=2, count=50)
    hits, borders = index.stab(points), index.borders(points, points[::-1].copy())
    assert hits.rows.dtype == hits.slots.dtype == borders.rows.dtype == borders.slots.dtype == np.int32
    assert borders.entered.dtype == np.bool_
    for rows, owners in ((hits.rows, hits.slots), (borders.rows, borders.slots)):
        assert rows.shape == owners.shape == (len(rows),)
        assert len(rows) > 0
    assert len(set(pairs(hits))) == len(hits.rows), "not unique"
    keys = borders.rows.astype(np.int64) << 32 | borders.slots
    assert (np.diff(keys) > 0).all(), "not sorted, or not unique"
    assert same(index.stab(points), hits), "not deterministic"
    assert same(hits, twin.stab(points))


def batch_split_anywhere(factory: Factory) -> None:
    index = factory.make()
    random_boxes(factory, [index], seed=5, count=80)
    points = random_points(factory, seed=6, count=12)
    whole, moved = pairs(index.stab(points)), moves(index.borders(points, points[::-1].copy()))
    assert whole
    for cut in range(len(points) + 1):
        head, tail = index.stab(points[:cut]), index.stab(points[cut:])
        assert pairs(head) + [(row + cut, slot) for row, slot in pairs(tail)] == whole
        halves = [
            index.borders(points[part], points[::-1][part].copy()) for part in (slice(cut), slice(cut, None))
        ]
        assert moves(halves[0]) + [(row + cut, slot, e) for row, slot, e in moves(halves[1])] == moved


def shifted_coordinates(factory: Factory) -> None:
    """Moving everything by a whole number, where float64 is exact, changes nothing."""
    dims = factory.dims
    rng = np.random.default_rng(7)
    lo = rng.integers(0, 30, (120, dims)).astype(np.float64)
    hi = lo + rng.integers(1, 20, (120, dims))
    points = rng.integers(-1, 52, (60, dims)).astype(np.float64)
    owners = np.arange(120, dtype=np.int32)
    answers = []
    for shift in (0.0, 1.0, -37.0, 2.0**20, -(2.0**40)):
        index = factory.make()
        index.insert(owners, lo + shift, hi + shift)
        index.check()
        answers.append(index.stab(points + shift))
    assert len(answers[0].rows) > 0
    assert all(same(answer, answers[0]) for answer in answers)
