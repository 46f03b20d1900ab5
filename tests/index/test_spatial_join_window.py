"""Sliding window joins: pairs of events and queries with a join condition, against what the words say."""

from __future__ import annotations

import operator
from itertools import product

import numpy as np
import pytest

from service.index.box.spatial_join_window import Comparison, Conditions, WindowJoin, decomposed
from service.index.protocol import Hits
from tests.index.worlds import INF, LOWEST, MOST, NAN, ends, pairs, slots

OPERATORS = {
    Comparison.LT: operator.lt,
    Comparison.LE: operator.le,
    Comparison.EQ: operator.eq,
    Comparison.GE: operator.ge,
    Comparison.GT: operator.gt,
}
VALUES = (-INF, LOWEST, 0.0, 0.25, 0.5, 1.0, MOST)
QUARTERS = (0.25, 0.5, 0.75)


def conditions(*each: tuple[int, Comparison, int]) -> Conditions:
    return Conditions(*np.array(each, np.int64).reshape(-1, 3).T)


@pytest.mark.parametrize("cuts", [(), (0.5,), QUARTERS])
@pytest.mark.parametrize("newcomer_is_left", [True, False])
def test_all_pairs_of_a_small_world(cuts: tuple[float, ...], newcomer_is_left: bool) -> None:
    """Every comparison, boxes open and closed, missing values, from either side."""
    sides = [(-INF, INF), (LOWEST, INF), (0.0, 0.5), (0.25, INF), (-INF, 0.5)]
    queries = [(a, b, op) for a in sides for b in sides for op in Comparison]
    lo = np.array([[a[0], b[0]] for a, b, _ in queries])
    hi = np.array([[a[1], b[1]] for a, b, _ in queries])
    possible = [
        i
        for i, (a, b, op) in enumerate(queries)
        if any(
            a[0] <= x < a[1] and b[0] <= y < b[1] and OPERATORS[op](x, y)
            for x, y in product((LOWEST, 0.0, 0.25, 0.3, 0.4, 0.6, MOST), repeat=2)
        )
    ]
    join = WindowJoin(1, 1, cuts=cuts)
    chosen = [queries[i] for i in possible]
    join.insert(
        np.array(possible, np.int32),
        lo[possible],
        hi[possible],
        conditions(*[(0, op, 0) for *_, op in chosen]),
    )
    join.check()
    window = ends([*VALUES, NAN], 1)
    for one in (*VALUES, NAN):
        expected = []
        for row, other in enumerate((*VALUES, NAN)):
            x, y = (one, other) if newcomer_is_left else (other, one)
            expected += [
                (row, i)
                for i, (a, b, op) in zip(possible, chosen, strict=True)
                if a[0] <= x < a[1] and b[0] <= y < b[1] and x > -INF and y > -INF and OPERATORS[op](x, y)
            ]
        assert pairs(join.match(np.array([one]), window, newcomer_is_left=newcomer_is_left)) == expected


def test_figure_14() -> None:
    """The diagonal of the unit square as four squares on it instead of the whole plane; x < y as four
    rectangles that lie on or above it."""
    lo, hi = np.zeros((2, 2)), np.ones((2, 2))
    cuts = np.array([-INF, *QUARTERS, INF])
    pieces = decomposed(lo, hi, conditions((0, Comparison.EQ, 1), (0, Comparison.LT, 1)), cuts)
    assert pieces.queries.tolist() == [0] * 4 + [1] * 4
    squares = [[a, a] for a in (0.0, 0.25, 0.5, 0.75)]
    assert pieces.lo[:4].tolist() == squares
    assert pieces.hi[:4].tolist() == [[a + 0.25, a + 0.25] for a, _ in squares]
    assert pieces.lo[4:].tolist() == [[a, np.nextafter(a, 1.0)] for a, _ in squares]
    assert pieces.hi[4:].tolist() == [[a + 0.25, 1.0] for a, _ in squares]


def test_attributes_of_both_sides() -> None:
    """A condition names an attribute of each side, and a box constrains all of them."""
    join = WindowJoin(2, 3, cuts=QUARTERS)
    lo, hi = np.full((2, 5), -INF), np.full((2, 5), INF)
    lo[1, 4] = 0.5
    join.insert(slots(3, 8), lo, hi, conditions((1, Comparison.GT, 2), (0, Comparison.EQ, 0)))
    join.check()
    assert len(join) == 2
    window = np.array([[7.0, 0.0, 1.0], [7.0, 0.0, 0.4], [6.0, 9.0, 0.5]])
    assert pairs(join.match(np.array([7.0, 0.45]), window)) == [(0, 8), (1, 3)]
    join.remove(slots(3))
    join.check()
    assert pairs(join.match(np.array([7.0, 0.45]), window)) == [(0, 8)]
    join.insert(slots(3), lo[:1], hi[:1], conditions((1, Comparison.LT, 2)))
    assert pairs(join.match(np.array([7.0, 0.45]), window)) == [(0, 3), (0, 8), (2, 3)]


def test_a_window_that_is_clustered() -> None:
    """Many events, against all comparisons written out."""
    rng = np.random.default_rng(31)
    count, window = 60, rng.random((500, 2))
    lo = rng.random((count, 4)) / 2
    hi = lo + 0.5
    left, comparison, right = (rng.integers(0, limit, count) for limit in (2, 5, 2))
    comparison[comparison == Comparison.EQ] = Comparison.LE
    join = WindowJoin(2, 2, cuts=QUARTERS)
    join.insert(np.arange(count, dtype=np.int32), lo, hi, Conditions(left, comparison, right))
    newcomer = np.array([0.5, 0.6])
    both = np.concatenate([np.broadcast_to(newcomer, (500, 2)), window], axis=1)
    expected = [
        (row, i)
        for row, pair in enumerate(both)
        for i in range(count)
        if ((lo[i] <= pair) & (pair < hi[i])).all()
        and OPERATORS[Comparison(comparison[i])](pair[left[i]], pair[2 + right[i]])
    ]
    assert len(expected) > 500
    assert pairs(join.match(newcomer, window)) == expected


def test_nothing() -> None:
    join = WindowJoin(1, 1, cuts=())
    join.check()
    nothing = np.empty((0, 2))
    join.insert(slots(), nothing, nothing, conditions())
    join.remove(slots())
    assert len(join) == 0
    for window in (ends([1.0, NAN], 1), np.empty((0, 1))):
        found = join.match(np.array([1.0]), window)
        assert isinstance(found, Hits) and pairs(found) == []


def test_refusals_change_nothing() -> None:
    join = WindowJoin(1, 2, cuts=(0.5,))
    free = np.full((2, 3), -INF), np.full((2, 3), INF)
    join.insert(slots(1), free[0][:1], free[1][:1], conditions((0, Comparison.LT, 1)))
    for owners, both in (
        (slots(4, 4), [(0, Comparison.LT, 0)] * 2),
        (slots(4, 1), [(0, Comparison.LT, 0)] * 2),
        (slots(4, -5), [(0, Comparison.LT, 0)] * 2),
        (slots(4, 5), [(0, Comparison.LT, 2), (0, Comparison.LT, 0)]),
        (slots(4, 5), [(0, Comparison.LT, 0), (1, Comparison.LT, 0)]),
        (slots(4, 5), [(0, Comparison.LT, 0), (-1, Comparison.LT, 0)]),
        (slots(4, 5), [(0, 5, 0), (0, 0, 0)]),
        (slots(4, 5), [(0, Comparison.LT, 0)]),
        (slots(4), [(0, Comparison.LT, 0)]),
    ):
        with pytest.raises(ValueError):
            join.insert(owners, *free, conditions(*both))
    lo, hi = free[0].copy(), free[1].copy()
    lo[1, 0], hi[1, 1] = 5.0, 5.0
    with pytest.raises(ValueError, match="slot 5"):
        join.insert(slots(4, 5), lo, hi, conditions(*[(0, Comparison.LE, 0)] * 2))
    with pytest.raises(KeyError):
        join.remove(slots(4))
    join.check()
    assert pairs(join.match(np.array([0.0]), np.array([[9.0, 1.0], [9.0, -1.0]]))) == [(0, 1)]
    with pytest.raises(ValueError, match="attribute"):
        WindowJoin(0, 1, cuts=())
    for cuts in ((1.0, 1.0), (2.0, 1.0), (INF,), (NAN,)):
        with pytest.raises(ValueError, match="cuts"):
            WindowJoin(1, 1, cuts=cuts)


@pytest.mark.parametrize(("left_dims", "right_dims"), list(product((1, 2, 3), repeat=2)))
@pytest.mark.parametrize("newcomer_is_left", [True, False])
def test_any_numbers_of_attributes(left_dims: int, right_dims: int, newcomer_is_left: bool) -> None:
    join = WindowJoin(left_dims, right_dims, cuts=(0.5,))
    dims = left_dims + right_dims
    join.insert(slots(3), np.zeros((1, dims)), np.ones((1, dims)), conditions((0, Comparison.LT, 0)))
    own, other = (left_dims, right_dims) if newcomer_is_left else (right_dims, left_dims)
    window = ends([0.2, 0.4, 0.6], other)
    found = join.match(np.full(own, 0.4), window, newcomer_is_left=newcomer_is_left)
    assert pairs(found) == [(2 if newcomer_is_left else 0, 3)]
