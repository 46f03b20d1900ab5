"""Everything that a small world holds, and what hypothesis finds beyond it, against the slow twin."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.index.slow import SlowTwin
from tests.index.worlds import (
    FLOAT_WORLD,
    INF,
    LOWEST,
    NAN,
    QUICK,
    SMALL,
    TINY_ENDS,
    TINY_WORLD,
    Factory,
    cubes,
    ends,
    grid_boxes,
    grid_points,
    insert_queries,
    same,
)


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
    if SMALL and dims > 2:
        points = np.ascontiguousarray(points[::7])  # without the JIT it takes seconds to stab all of them
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
