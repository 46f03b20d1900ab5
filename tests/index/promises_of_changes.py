"""What an index does about inserts and removals, and about those that it must refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from service.index.protocol import BoxIndex
from tests.index.slow import SlowTwin
from tests.index.worlds import (
    INF,
    NAN,
    SMALL,
    Factory,
    cubes,
    ends,
    filled,
    moves,
    pairs,
    random_points,
    same,
    slots,
)


def _raises(error: type[Exception], call: Callable[..., Any], *arguments: Any) -> None:
    try:
        call(*arguments)
    except error:
        return
    raise AssertionError(f"{error.__name__} expected")


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


def remove_and_insert_again(factory: Factory) -> None:
    index, dims = filled(factory, (0.0, 2.0), (0.0, 2.0), (0.0, 2.0)), factory.dims
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
    points = random_points(factory, seed=4, count=40)
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


def growth_and_decay(factory: Factory) -> None:
    """One by one in, one by one out: arrays grow, boxes are renumbered, nothing is lost."""
    dims, count = factory.dims, 70 if SMALL else 300
    index, twin = factory.make(), SlowTwin(dims)
    rng = np.random.default_rng(8)
    points = random_points(factory, seed=9, count=10)
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
