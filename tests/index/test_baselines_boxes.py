"""IBS trees by attribute and the R-tree beyond the contract: what is counted, what the library would lose."""

from __future__ import annotations

import numpy as np
import pytest

from service.index.box.ibs_attributes import MOST_DIMS, IBSAttributes
from service.index.box.rtree import RTree
from service.index.interval.ibs_tree_kernels import COUNT
from tests.index.slow import SlowTwin
from tests.index.worlds import INF, LOWEST, MOST, cubes, ends, pairs, same, slots


def free(*, dims: int, **constrained: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
    """One box that constrains those of the attributes ``a0``, ``a1`` and on that are given."""
    lo, hi = np.full((1, dims), -INF), np.full((1, dims), INF)
    for name, (low, high) in constrained.items():
        lo[0, int(name[1:])], hi[0, int(name[1:])] = low, high
    return lo, hi


def test_a_free_attribute_takes_no_mark_and_is_not_waited_for() -> None:
    index = IBSAttributes(3)
    index.insert(slots(5), *free(dims=3, a1=(0.0, 1.0)))
    trees = index._counted.trees
    assert int(trees.edges[:, COUNT].sum()) == 1
    assert index._counted.wanted[0] == 1
    points = np.array([[-INF, 0.5, 7.0], [INF, 0.5, 7.0], [1.0, 1.0, 1.0], [np.nan, 0.5, 0.0]])
    assert pairs(index.stab(points)) == [(0, 5)]


def test_a_box_without_constraints_is_met_once() -> None:
    index = IBSAttributes(3)
    index.insert(slots(2), *free(dims=3))
    assert pairs(index.stab(np.array([[1.0, 2.0, 3.0], [-INF, -INF, -INF], [0.0, 0.0, INF]]))) == [
        (0, 2),
        (1, 2),
    ]
    index.check()


@pytest.mark.parametrize("width", [0.5, 200.0], ids=["few found", "many found"])
def test_counters_are_set_anew_for_every_point(width: float) -> None:
    """Either way of doing so: ``check`` compares them with what a point must start from."""
    index, twin = IBSAttributes(2), SlowTwin(2)
    rng = np.random.default_rng(5)
    lo = rng.uniform(0.0, 100.0, (300, 2))
    for each in (index, twin):
        each.insert(np.arange(300, dtype=np.int32), lo, lo + width)
    points = rng.uniform(0.0, 100.0, (40, 2))
    for _ in range(2):
        assert same(index.stab(points), twin.stab(points))
        index.check()


def test_attributes_that_cannot_be() -> None:
    for dims in (0, -1, MOST_DIMS + 1):
        with pytest.raises(ValueError, match="attribute"):
            IBSAttributes(dims)
    with pytest.raises(ValueError, match="attribute"):
        RTree(0)
    with pytest.raises(ValueError, match="entries"):
        RTree(2, capacity=3)


@pytest.mark.parametrize("dims", [1, 2, 5])
def test_boxes_too_small_for_the_library(dims: int) -> None:
    """It would keep these as points, at their lower corners, and not find them when they are removed."""
    index, twin = RTree(dims), SlowTwin(dims)
    boxes = [(0.0, 1e-300), (1e-301, 1e-17), (1.0, 1.0 + 2.0**-52), (-1e-17, 1e-17), (3.0, 4.0)]
    for each in (index, twin):
        each.insert(slots(0, 1, 2, 3), *cubes(boxes[:4], dims))
        for slot in range(4, 30):
            each.insert(slots(slot), *cubes([boxes[slot % 5]], dims))
    index.check()
    points = ends([0.0, 5e-302, 5e-301, 1e-300, 1e-18, 1e-17, 1.0, 1.0 + 2.0**-52, 3.5], dims)
    assert same(index.stab(points), twin.stab(points))
    for slot in range(12):
        for each in (index, twin):
            each.remove(slots(slot))
        index.check()
    assert same(index.stab(points), twin.stab(points))


@pytest.mark.parametrize("dims", [1, 3, 9])
def test_boxes_too_large_for_the_library(dims: int) -> None:
    """Beyond what is clipped everything is a candidate, and float64 decides."""
    index, twin = RTree(dims, capacity=4), SlowTwin(dims)
    sides = [LOWEST, -1e200, -1e20, 0.0, 1e20, 1e200, MOST, INF]
    boxes = [(-INF, sides[0])] + [(a, b) for i, a in enumerate(sides) for b in sides[i + 1 :]]
    for each in (index, twin):
        each.insert(np.arange(len(boxes), dtype=np.int32), *cubes(boxes, dims))
    index.check()
    values = [-INF, *sides[:-1], *np.nextafter(sides[1:-1], -INF), INF]
    points = ends(values, dims)
    assert same(index.stab(points), twin.stab(points))


def test_the_library_is_asked_about_what_can_be_somewhere_only() -> None:
    index = RTree(2)
    index.insert(slots(0), *cubes([(-INF, INF)], 2))
    assert pairs(index.stab(np.array([[np.nan, 0.0], [0.0, INF], [0.0, 0.0]]))) == [(2, 0)]
    assert pairs(index.stab(np.array([[np.nan, np.nan]]))) == []
