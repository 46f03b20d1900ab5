"""Workloads are what their names say, and the same everywhere."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from service.bench import workloads
from service.bench.workloads import Law, Moves, Workload
from service.index.brute import BruteForce

#: Of each: the count at which it is published, and the hits that are stated for it there.
LAWS: dict[str, tuple[Law, int, float]] = {
    "intervals": (workloads.intervals, 640_000, 61),
    "A": (workloads.A, 1_000_000, 6),
    "B": (workloads.B, 1_000_000, 10),
    "C": (workloads.C, 100_000, 50),
    "D": (workloads.D, 100_000, 3.3),
    "E": (workloads.E, 1_000_000, 10),
    "F": (workloads.F, 1_000_000, 126),
    "G": (workloads.G, 100_000, 10),
}
MOVES: dict[str, Callable[[int, int, int], Moves]] = {
    "fences": lambda boxes, moves, seed: workloads.fences(boxes, moves, seed, inside=100),
    "walk": lambda boxes, moves, seed: workloads.walk(boxes, moves, seed, deltas=11),
    "jumps": workloads.jumps,
}
law_by_name = pytest.mark.parametrize("name", LAWS)
moves_by_name = pytest.mark.parametrize("name", MOVES)


def filled(load: Workload | Moves) -> BruteForce:
    index = BruteForce(load.lo.shape[1])
    index.insert(load.slots, load.lo, load.hi)
    return index


def volumes(load: Workload) -> float:
    """The mean number of boxes around a uniform point: the sum of the boxes' shares of the domain."""
    domain = workloads.DOMAIN if load.name == "1-D" else 1.0
    side = (np.minimum(load.hi, domain) - np.maximum(load.lo, 0)) / domain
    return float(side.prod(axis=1).sum())


@law_by_name
def test_the_stated_number_of_hits(name: str) -> None:
    law, boxes, stated = LAWS[name]
    sampled = boxes // 20
    load = law(sampled, 1, 5)
    assert load.hits * 20 == pytest.approx(stated, rel=0.1)
    assert volumes(load) == pytest.approx(load.hits, rel=0.1)


@pytest.mark.parametrize("name", ["intervals", "C", "G"])
def test_the_measured_number_of_hits(name: str) -> None:
    law, boxes, stated = LAWS[name]
    load = law(boxes, 2_000, 5)
    assert len(filled(load).stab(load.points).rows) / 2_000 == pytest.approx(stated, rel=0.1)


@law_by_name
def test_the_same_seed_gives_the_same_workload(name: str) -> None:
    law = LAWS[name][0]
    one, same, other = law(200, 30, 5), law(200, 30, 5), law(200, 30, 6)
    for a, b, c in zip(one[1:4], same[1:4], other[1:4], strict=True):
        assert np.array_equal(a, b)
        assert not np.array_equal(a, c)
    assert (one.lo < one.hi).all()
    assert one.points.shape == (30, one.lo.shape[1])


@pytest.mark.parametrize(("name", "dims", "constrained"), [("A", 20, 10), ("B", 20, 5), ("F", 50, 3)])
def test_few_of_many_attributes_are_constrained(name: str, dims: int, constrained: int) -> None:
    load = LAWS[name][0](5_000, 1, 5)
    bound = np.isfinite(load.lo)
    assert np.array_equal(bound, np.isfinite(load.hi))
    assert bound.shape[1] == dims
    assert (bound.sum(axis=1) == constrained).all()
    share = bound.mean(axis=0)
    if name == "F":
        # Zipf: the first is drawn first by 1 box in 4.5, the last by 1 in 225.
        assert share[0] > 10 * share[-1] > 0
    else:
        assert np.allclose(share, constrained / dims, atol=0.05)


@moves_by_name
def test_moves_are_what_they_say(name: str) -> None:
    load = MOVES[name](100_000, 2_000, 5)
    index = filled(load)
    assert len(index.stab(load.before).rows) / 2_000 == pytest.approx(load.inside, rel=0.1)
    assert len(index.borders(load.before, load.after).rows) / 2_000 == pytest.approx(load.deltas, rel=0.15)


@moves_by_name
def test_the_same_seed_gives_the_same_moves(name: str) -> None:
    one, same = MOVES[name](20_000, 50, 5), MOVES[name](20_000, 50, 5)
    assert all(np.array_equal(a, b) for a, b in zip(one[1:5], same[1:5], strict=True))


def test_a_walk_never_passes_an_interval_from_end_to_end() -> None:
    with pytest.raises(ValueError, match="too few"):
        workloads.walk(1_000, 10, 5, deltas=110)
