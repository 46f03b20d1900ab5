"""What brute force offers besides the contract: ``inside``, no attributes at all, refusals by dtype."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.index.brute import BruteForce, inside
from tests.index.slow import SlowTwin, holds
from tests.index.worlds import FLOAT_WORLD, INF, NAN, QUICK, TINY_WORLD, cubes, ends, pairs, same, slots


@pytest.mark.parametrize("world", [TINY_WORLD, FLOAT_WORLD], ids=["tiny", "floats"])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_inside_is_in_at_least_one_box(world: object, dims: int) -> None:
    assert world in (TINY_WORLD, FLOAT_WORLD)

    @QUICK
    @given(points=world.points(dims, 6), boxes=st.lists(world.box(dims), max_size=4))  # type: ignore[attr-defined]
    def run(points: np.ndarray, boxes: list[tuple[list[float], list[float]]]) -> None:
        lo = np.array([lo for lo, _ in boxes], np.float64).reshape(-1, dims)
        hi = np.array([hi for _, hi in boxes], np.float64).reshape(-1, dims)
        found = inside(points, lo, hi)
        assert found.dtype == np.bool_
        assert found.tolist() == [any(holds(box, point) for box in boxes) for point in points.tolist()]

    run()


def test_inside_refuses_what_does_not_fit() -> None:
    lo, hi = cubes([(0.0, 1.0), (2.0, 3.0)], 2)
    with pytest.raises(ValueError, match="shape"):
        inside(ends([0.5], 3), lo, hi)
    with pytest.raises(ValueError, match="shape"):
        inside(ends([0.5], 2), lo, hi[:1])
    with pytest.raises(ValueError, match="shape"):
        inside(ends([0.5], 2), lo[0], hi[0])
    with pytest.raises(TypeError, match="float64"):
        inside(ends([0.5], 2).astype(np.float32), lo, hi)


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
