"""What brute force offers besides the contract: no attributes at all, refusals by dtype."""

from __future__ import annotations

import numpy as np
import pytest

from service.index.brute import BruteForce
from tests.index.slow import SlowTwin
from tests.index.worlds import INF, NAN, cubes, ends, pairs, same, slots


def test_a_source_without_attributes() -> None:
    """Every event is in every box of no attributes."""
    index, none = BruteForce(0), np.empty((2, 0))
    index.insert(slots(4, 1), none, none)
    index.check()
    assert pairs(index.stab(np.empty((3, 0)))) == [(row, slot) for row in range(3) for slot in (1, 4)]
    index.remove(slots(4))
    index.check()
    assert pairs(index.stab(np.empty((1, 0)))) == [(0, 1)]
    with pytest.raises(ValueError, match="attributes"):
        BruteForce(-1)


def test_another_dtype_is_refused_and_changes_nothing() -> None:
    index = BruteForce(1)
    lo, hi = cubes([(0.0, 2.0)], 1)
    attempts = (
        lambda: index.insert(slots(0).astype(np.int64), lo, hi),
        lambda: index.insert(slots(0), lo.astype(np.float32), hi),
        lambda: index.insert(slots(0), lo, hi.astype(np.int64)),
        lambda: index.remove(slots().astype(np.float64)),
        lambda: index.stab(lo.astype(np.int64)),
    )
    for attempt in attempts:
        with pytest.raises(TypeError):
            attempt()
        index.check()
        assert len(index) == 0


def test_any_memory_layout_of_points_gives_the_same_answer() -> None:
    index, twin = BruteForce(2), SlowTwin(2)
    for each in (index, twin):
        each.insert(slots(0, 1), *cubes([(0.0, 2.0), (1.0, 3.0)], 2))
    points = np.arange(20.0).reshape(10, 2) / 5
    raw = np.frombuffer(b"\0" + points.tobytes(), np.uint8)[1:].view(np.float64).reshape(10, 2)
    for layout in (np.asfortranarray(points), points[::2], points[::-1], raw):
        assert same(index.stab(layout), twin.stab(layout))


def test_numbers_that_overflow_single_precision() -> None:
    """The filter rounds to float32, where these are all infinite; the exact test decides."""
    index = BruteForce(2)
    index.insert(slots(0, 1, 2), *cubes([(1e300, 2e300), (2e300, INF), (-INF, -1e300)], 2))
    index.check()
    points = ends([1e300, 1.5e300, 2e300, 1e301, -1e300, -1e301, INF, NAN], 2)
    assert pairs(index.stab(points)) == [(0, 0), (1, 0), (2, 1), (3, 1), (5, 2)]
