"""The contract suite: what every index must do, one function a promise, each given a factory.

``CHECKS`` is the whole suite. It runs against every index (``test_contract``) and against wrong ones
(``test_canaries``), so a check says what is wrong by an AssertionError and knows nothing but the protocol.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from service.index.protocol import BoxIndex
from tests.index.concurrency import answers_are_of_one_state
from tests.index.machine import any_history, any_history_of_floats
from tests.index.slow import SlowTwin
from tests.index.worlds import (
    FLOAT_WORLD,
    INF,
    LOWEST,
    MOST,
    NAN,
    QUICK,
    SMALL,
    TINY,
    TINY_ENDS,
    TINY_WORLD,
    Factory,
    cubes,
    ends,
    grid_boxes,
    grid_points,
    insert_queries,
    moves,
    pairs,
    same,
    slots,
)


def _raises(error: type[Exception], call: Callable[..., Any], *arguments: Any) -> None:
    try:
        call(*arguments)
    except error:
        return
    raise AssertionError(f"{error.__name__} expected")


def _filled(factory: Factory, *intervals: tuple[float, float]) -> BoxIndex:
    """An index of cubes under the slots 0, 1 and on."""
    index = factory.make()
    index.insert(np.arange(len(intervals), dtype=np.int32), *cubes(intervals, factory.dims))
    index.check()
    return index


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
    index = _filled(factory, (1.0, 2.0))
    below, top = np.nextafter([1.0, 2.0], -INF)
    points = ends([-INF, 0.0, below, 1.0, 1.5, top, 2.0, 3.0, INF, NAN], factory.dims)
    assert pairs(index.stab(points)) == [(3, 0), (4, 0), (5, 0)]
    assert len(index) == 1
    assert index.nbytes > 0


def every_attribute_counts(factory: Factory) -> None:
    index, dims = _filled(factory, (1.0, 2.0)), factory.dims
    for attribute in range(dims):
        for outside in (0.5, 2.0, -INF, INF, NAN):
            point = ends([1.5], dims)
            point[0, attribute] = outside
            assert pairs(index.stab(point)) == []


def duplicates(factory: Factory) -> None:
    index = _filled(factory, *[(0.0, 1.0)] * 70)
    points = ends([0.5, 0.5, 1.0], factory.dims)
    assert pairs(index.stab(points)) == [(row, slot) for row in (0, 1) for slot in range(70)]


def touching(factory: Factory) -> None:
    index = _filled(factory, (0.0, 1.0), (1.0, 2.0), (2.0, 3.0))
    points = ends([0.0, 1.0, 2.0, 3.0, *np.nextafter([0.0, 1.0, 2.0, 3.0], -INF)], factory.dims)
    assert pairs(index.stab(points)) == [(0, 0), (1, 1), (2, 2), (5, 0), (6, 1), (7, 2)]


def neighbouring_floats(factory: Factory) -> None:
    """Ends closer than any coarser number can tell apart."""
    for x in (0.1, 1e9, -1e-300, 1.7e308):
        up, down = float(np.nextafter(x, INF)), float(np.nextafter(x, -INF))
        index = _filled(factory, (down, x), (x, up), (down, up), (up, INF))
        assert pairs(index.stab(ends([down, x, up], factory.dims))) == [
            (0, 0),
            (0, 2),
            (1, 1),
            (1, 2),
            (2, 3),
        ]


def infinite_ends(factory: Factory) -> None:
    index = _filled(
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
    index, dims = _filled(factory, (-INF, INF), (0.0, 9.0)), factory.dims
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
    index = _filled(factory, *[(-float(i) - 1, 100.0 + i) for i in range(count)])
    points = ends(np.linspace(0.0, 99.0, batch), factory.dims)
    assert pairs(index.stab(points)) == [(row, slot) for row in range(batch) for slot in range(count)]
    index.check()


def remove_and_insert_again(factory: Factory) -> None:
    index, dims = _filled(factory, (0.0, 2.0), (0.0, 2.0), (0.0, 2.0)), factory.dims
    points = ends([1.0, 5.0], dims)
    index.remove(slots(1))
    index.check()
    assert len(index) == 2
    assert pairs(index.stab(points)) == [(0, 0), (0, 2)]
    index.insert(slots(1), *cubes([(4.0, 6.0)], dims))
    index.check()
    assert pairs(index.stab(points)) == [(0, 0), (0, 2), (1, 1)]
    index.remove(slots(0, 1, 2))
    index.check()
    assert len(index) == 0
    assert pairs(index.stab(points)) == []
    index.insert(slots(2, 0), *cubes([(4.0, 6.0), (0.0, 6.0)], dims))
    index.check()
    assert pairs(index.stab(points)) == [(0, 0), (1, 0), (1, 2)]


def _refused(factory: Factory, error: type[Exception], *attempts: Callable[[BoxIndex], None]) -> None:
    """Each attempt on an index with the slots 0, 1 and 7 fails and changes nothing."""
    index, dims = factory.make(), factory.dims
    index.insert(slots(0, 1, 7), *cubes([(0.0, 2.0), (1.0, 3.0), (-INF, INF)], dims))
    points = ends([0.0, 1.0, 2.5, -INF, 20.0], dims)
    before = index.stab(points)
    for attempt in attempts:
        _raises(error, attempt, index)
        index.check()
        assert len(index) == 3
        assert same(index.stab(points), before)
    index.insert(slots(2, 3), *cubes([(2.0, 3.0), (20.0, 21.0)], dims))
    index.remove(slots(0, 1, 7))
    index.check()
    assert pairs(index.stab(points)) == [(2, 2), (4, 3)]


def unknown_removal(factory: Factory) -> None:
    _refused(
        factory,
        KeyError,
        lambda index: index.remove(slots(2)),
        lambda index: index.remove(slots(0, 2)),
        lambda index: index.remove(slots(7, 100_000, 1)),
        lambda index: index.remove(slots(-1)),
        lambda index: index.remove(slots(0, -7)),
    )


def double_insert(factory: Factory) -> None:
    _refused(
        factory,
        ValueError,
        lambda index: index.insert(slots(1), *cubes([(20.0, 30.0)], factory.dims)),
        lambda index: index.insert(slots(5, 7, 6), *cubes([(20.0, 30.0)] * 3, factory.dims)),
    )


def bad_boxes(factory: Factory) -> None:
    dims = factory.dims
    good = cubes([(20.0, 30.0)] * 3, dims)

    def with_side(lo: float, hi: float) -> Callable[[BoxIndex], None]:
        def attempt(index: BoxIndex) -> None:
            low, high = (bound.copy() for bound in good)
            low[1, dims - 1], high[1, dims - 1] = lo, hi
            index.insert(slots(4, 5, 6), low, high)

        return attempt

    _refused(
        factory,
        ValueError,
        with_side(5.0, 5.0),
        with_side(6.0, 5.0),
        with_side(INF, INF),
        with_side(-INF, -INF),
        with_side(0.0, -0.0),
        with_side(NAN, 1.0),
        with_side(0.0, NAN),
        lambda index: index.insert(slots(4, -1, 6), *good),
        lambda index: index.insert(slots(4, 5), *good),
        lambda index: index.insert(slots(4, 5, 6), good[0], good[1][:2]),
        lambda index: index.insert(slots(4, 5, 6), *cubes([(20.0, 30.0)] * 3, dims + 1)),
        lambda index: index.insert(slots(4, 5, 6).reshape(3, 1), *good),
        lambda index: index.insert(slots(4, 5, 6), good[0][0], good[1][0]),
    )


def bad_points(factory: Factory) -> None:
    dims = factory.dims
    three = ends([1.0, 1.0, 1.0], dims)
    _refused(
        factory,
        ValueError,
        lambda index: index.stab(ends([1.0], dims + 1)) and None,
        lambda index: index.stab(three.ravel()) and None,
        lambda index: index.borders(three, three[:2]) and None,
        lambda index: index.borders(three, ends([1.0] * 3, dims + 1)) and None,
    )


def crowded_border(factory: Factory) -> None:
    """Thousands of boxes that begin, or end, at one value."""
    count = 300 if SMALL else 3000
    above = [(5.0, 6.0 + i / 8) for i in range(count)]
    below = [(4.0 - i / 8, 5.0) for i in range(count)]
    index, dims = _filled(factory, *above, *below), factory.dims
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
    index, dims = _filled(factory, (0.0, 2.0), (1.0, 3.0), (-INF, INF)), factory.dims
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
    _random_boxes(factory, [index, twin], seed=1, count=200)
    points = _random_points(factory, seed=2, count=50)
    hits, borders = index.stab(points), index.borders(points, points[::-1].copy())
    assert hits.rows.dtype == hits.slots.dtype == borders.rows.dtype == borders.slots.dtype == np.int32
    assert borders.entered.dtype == np.bool_
    for rows, owners in ((hits.rows, hits.slots), (borders.rows, borders.slots)):
        assert rows.shape == owners.shape == (len(rows),)
        assert len(rows) > 0
        keys = rows.astype(np.int64) << 32 | owners
        assert (np.diff(keys) > 0).all(), "not sorted, or not unique"
    assert same(index.stab(points), hits), "not deterministic"
    assert same(hits, twin.stab(points))


def arguments_are_left_alone(factory: Factory) -> None:
    """Arguments are neither kept nor written: what the caller does with them later has no effect."""
    index, dims = factory.make(), factory.dims
    owners, (lo, hi) = slots(0, 1), cubes([(0.0, 2.0), (1.0, 3.0)], dims)
    index.insert(owners, lo, hi)
    owners[:], lo[:], hi[:] = 5, 50.0, 60.0
    points = ends([0.5, 1.5], dims)
    points.flags.writeable = False
    assert pairs(index.stab(points)) == [(0, 0), (1, 0), (1, 1)]
    assert moves(index.borders(points, points[::-1].copy())) == [(0, 1, True), (1, 1, False)]
    index.check()


def order_of_registration(factory: Factory) -> None:
    """The answer depends on what is stored, not on how it came to be stored."""
    dims, count = factory.dims, 90
    rng = np.random.default_rng(3)
    lo = rng.integers(0, 12, (count, dims)).astype(np.float64)
    hi = lo + rng.integers(1, 8, (count, dims))
    owners = np.arange(count, dtype=np.int32) // 2
    points = _random_points(factory, seed=4, count=40)
    answers = []
    for seed in range(4):
        index, order = factory.make(), np.random.default_rng(seed).permutation(count // 2)
        index.insert(slots(*range(100, 150)), *cubes([(0.0, 9.0)] * 50, dims))
        for part in np.array_split(order, seed + 1):
            chosen = np.flatnonzero(np.isin(owners, part))
            chosen = np.random.default_rng(seed).permutation(chosen)
            index.insert(owners[chosen], lo[chosen], hi[chosen])
        index.remove(slots(*(100 + np.random.default_rng(seed).permutation(50))))
        index.check()
        answers.append(index.stab(points))
    assert len(answers[0].rows) > 0
    assert all(same(answer, answers[0]) for answer in answers)


def batch_split_anywhere(factory: Factory) -> None:
    index = factory.make()
    _random_boxes(factory, [index], seed=5, count=80)
    points = _random_points(factory, seed=6, count=12)
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


def growth_and_decay(factory: Factory) -> None:
    """One by one in, one by one out: arrays grow, boxes are renumbered, nothing is lost."""
    dims, count = factory.dims, 70 if SMALL else 300
    index, twin = factory.make(), SlowTwin(dims)
    rng = np.random.default_rng(8)
    points = _random_points(factory, seed=9, count=10)
    for slot in range(count):
        lo = rng.uniform(-5, 50, (1, dims))
        for each in (index, twin):
            each.insert(slots(slot), lo, lo + 10.0 + slot)
        if slot % 37 == 0:
            index.check()
            assert same(index.stab(points), twin.stab(points))
    full = index.nbytes
    for step, slot in enumerate(rng.permutation(count).tolist()):
        for each in (index, twin):
            each.remove(slots(slot))
        assert len(index) == len(twin)
        if step % 29 == 0:
            index.check()
            assert same(index.stab(points), twin.stab(points))
    assert len(index) == 0
    assert index.nbytes < full or isinstance(index, SlowTwin)
    index.check()


def small_world(factory: Factory) -> None:
    """Everything that a few values can make: all boxes, all points, all pairs of points."""
    dims = factory.dims
    values = (LOWEST, 0.0, 1.0, 2.0, INF) if dims == 1 or (dims == 2 and not SMALL) else (-INF, 0.0, INF)
    lo, hi = grid_boxes(values, dims)
    index, twin = factory.make(), SlowTwin(dims)
    owners = np.arange(len(lo), dtype=np.int32)
    for each in (index, twin):
        each.insert(owners, lo, hi)
    between = (0.5,) if dims < 3 else ()
    points = grid_points((*values, *between, NAN) if dims < 5 else (*values, 0.5), dims)
    for _ in range(3):
        index.check()
        assert same(index.stab(points), twin.stab(points))
        if dims == 1:
            both = np.array([(a, b) for a in points[:, 0] for b in points[:, 0]])
            before, after = (np.ascontiguousarray(both[:, side : side + 1]) for side in (0, 1))
            assert same(index.borders(before, after), twin.borders(before, after))
        owners = owners[::2]
        for each in (index, twin):
            each.remove(owners)
            if len(owners) > 1:
                each.insert(owners[1::2], lo[owners[1::2]], hi[owners[1::2]])
        owners = np.array(sorted(twin.boxes), np.int32)


def small_world_of_pairs(factory: Factory) -> None:
    """Every two intervals of a few values as the boxes of one slot."""
    intervals = [(lo, hi) for lo in TINY_ENDS for hi in TINY_ENDS if lo < hi]
    if SMALL:
        intervals = intervals[::2]
    two = [(a, b) for a in intervals for b in intervals]
    lo, hi = cubes([interval for pair in two for interval in pair], factory.dims)
    owners = np.repeat(np.arange(len(two), dtype=np.int32), 2)
    index, twin = factory.make(), SlowTwin(factory.dims)
    for each in (index, twin):
        each.insert(owners, lo, hi)
    index.check()
    points = ends([*TINY_ENDS, 0.5, NAN], factory.dims)
    assert same(index.stab(points), twin.stab(points))
    for shift in range(1, len(points)):
        after = np.roll(points, shift, axis=0)
        assert same(index.borders(points, after), twin.borders(points, after))


def any_boxes_any_points(factory: Factory) -> None:
    """Hypothesis, tiny grid first: what a registration and a batch say, against the slow twin."""
    for world in (TINY_WORLD, FLOAT_WORLD):

        @QUICK
        @given(queries=world.queries(factory.dims, 8), points=world.points(factory.dims, 6), data=st.data())
        def run(queries: Any, points: Any, data: Any) -> None:
            index, twin = factory.make(), SlowTwin(factory.dims)
            insert_queries([index, twin], 0, queries, factory.dims)
            index.check()
            assert same(index.stab(points), twin.stab(points))
            after = points[data.draw(st.permutations(range(len(points))))]
            assert same(index.borders(points, after), twin.borders(points, after))

        run()


def _random_boxes(factory: Factory, indexes: list[BoxIndex], *, seed: int, count: int) -> None:
    """Boxes on a small grid of numbers, two a slot, wide enough for a random point to be in some."""
    rng = np.random.default_rng(seed)
    lo = rng.integers(-3, 10, (count, factory.dims)).astype(np.float64)
    hi = lo + rng.integers(3, 14, (count, factory.dims))
    for index in indexes:
        index.insert(np.arange(count, dtype=np.int32) // 2, lo, hi)


def _random_points(factory: Factory, *, seed: int, count: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 12, (count, factory.dims)).astype(np.float64)


CHECKS: tuple[Callable[[Factory], None], ...] = (
    empty,
    one_box,
    every_attribute_counts,
    duplicates,
    touching,
    neighbouring_floats,
    infinite_ends,
    missing_values,
    nan_is_nowhere,
    full_cover,
    remove_and_insert_again,
    unknown_removal,
    double_insert,
    bad_boxes,
    bad_points,
    crowded_border,
    slots_of_several_boxes,
    borders_are_differences,
    form_of_answers,
    arguments_are_left_alone,
    order_of_registration,
    batch_split_anywhere,
    shifted_coordinates,
    growth_and_decay,
    small_world,
    small_world_of_pairs,
    answers_are_of_one_state,
    any_boxes_any_points,
    any_history,
    any_history_of_floats,
)
