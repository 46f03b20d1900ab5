"""Small worlds for the contract suite: ways to write boxes and points, and hypothesis strategies for them.

``RANGEWATCH_INDEX_SUITE=small`` shrinks everything, for runs without the JIT or with checked array bounds;
``large`` draws ten times as much (``make soak``).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from service.index.protocol import Borders, Bounds, BoxIndex, Hits, Points, Slots

_SIZE = os.environ.get("RANGEWATCH_INDEX_SUITE")
SMALL = _SIZE == "small"

INF = math.inf
NAN = math.nan
MOST = float(np.finfo(np.float64).max)
LOWEST = -MOST
TINY = float(np.nextafter(0.0, 1.0))

QUICK = settings(
    max_examples=4 if SMALL else 100 if _SIZE == "large" else 10,
    stateful_step_count=10 if SMALL else 20,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


@dataclass(frozen=True)
class Factory:
    """An index under test: its name, its number of attributes, and how to make an empty one."""

    name: str
    dims: int
    make: Callable[[], BoxIndex]


def slots(*numbers: int) -> Slots:
    return np.array(numbers, np.int32)


def ends(values: Sequence[float] | np.ndarray, dims: int) -> Bounds:
    """The same bound in every attribute: ``float64[n, dims]``. Points of the diagonal, too."""
    return np.repeat(np.array(values, np.float64).reshape(-1, 1), dims, axis=1)


def cubes(intervals: Sequence[tuple[float, float]], dims: int) -> tuple[Bounds, Bounds]:
    """Boxes with the same interval in every attribute."""
    return ends([lo for lo, _ in intervals], dims), ends([hi for _, hi in intervals], dims)


def pairs(hits: Hits) -> list[tuple[int, int]]:
    """Sorted: an answer is by rising row, the slots of a row in any order."""
    rows = hits.rows.tolist()
    assert rows == sorted(rows)
    return sorted(zip(rows, hits.slots.tolist(), strict=True))


def moves(borders: Borders) -> list[tuple[int, int, bool]]:
    return list(zip(borders.rows.tolist(), borders.slots.tolist(), borders.entered.tolist(), strict=True))


def same(got: Hits | Borders, wanted: Hits | Borders) -> bool:
    """Whether two answers say the same, in the form that is promised."""
    if isinstance(got, Hits) and isinstance(wanted, Hits):
        got, wanted = _in_one_order(got), _in_one_order(wanted)
    alike = all(a.dtype == b.dtype for a, b in zip(got, wanted, strict=True))
    return alike and all(np.array_equal(a, b) for a, b in zip(got, wanted, strict=True))


def _in_one_order(hits: Hits) -> Hits:
    """The slots of each row, rising; the rows as they come."""
    place = np.cumsum(np.diff(hits.rows, prepend=hits.rows[:1]) != 0)
    return Hits(hits.rows, hits.slots[np.lexsort((hits.slots, place))])


def grid_intervals(values: Sequence[float]) -> list[tuple[float, float]]:
    """All intervals with ends among rising values."""
    return list(combinations(values, 2))


def grid_boxes(values: Sequence[float], dims: int) -> tuple[Bounds, Bounds]:
    """All boxes with ends among rising values."""
    sides = np.array(list(product(grid_intervals(values), repeat=dims)), np.float64)
    return np.ascontiguousarray(sides[:, :, 0]), np.ascontiguousarray(sides[:, :, 1])


def grid_points(values: Sequence[float], dims: int) -> Points:
    """All points with coordinates among some values."""
    return np.array(list(product(values, repeat=dims)), np.float64)


TINY_ENDS = (-INF, LOWEST, 0.0, 1.0, 2.0, 3.0, INF)
TINY_COORDINATES = (-INF, LOWEST, 0.0, 0.5, 1.0, 2.0, 3.0, MOST, INF, NAN)


@dataclass(frozen=True)
class World:
    """Where hypothesis takes the ends of boxes and the coordinates of points from."""

    end: st.SearchStrategy[float]
    coordinate: st.SearchStrategy[float]

    def box(self, dims: int) -> st.SearchStrategy[tuple[list[float], list[float]]]:
        side = st.tuples(self.end, self.end).filter(lambda ends: ends[0] != ends[1]).map(sorted)
        return st.lists(side, min_size=dims, max_size=dims).map(
            lambda sides: ([lo for lo, _ in sides], [hi for _, hi in sides])
        )

    def queries(self, dims: int, most: int) -> st.SearchStrategy[list[list[tuple[list[float], list[float]]]]]:
        """Some queries of one to three boxes each."""
        return st.lists(st.lists(self.box(dims), min_size=1, max_size=3), max_size=most)

    def points(self, dims: int, most: int) -> st.SearchStrategy[Points]:
        row = st.lists(self.coordinate, min_size=dims, max_size=dims)
        return st.lists(row, max_size=most).map(lambda rows: np.array(rows, np.float64).reshape(-1, dims))


TINY_WORLD = World(st.sampled_from(TINY_ENDS), st.sampled_from(TINY_COORDINATES))
FLOAT_WORLD = World(st.floats(allow_nan=False), st.floats())


def insert_queries(
    indexes: Sequence[BoxIndex], first: int, queries: list[list[tuple[list[float], list[float]]]], dims: int
) -> None:
    """Inserts queries under the slots ``first``, ``first + 1`` and on, all in one call an index."""
    owners = [first + i for i, boxes in enumerate(queries) for _ in boxes]
    lo = np.array([lo for boxes in queries for lo, _ in boxes], np.float64).reshape(-1, dims)
    hi = np.array([hi for boxes in queries for _, hi in boxes], np.float64).reshape(-1, dims)
    for index in indexes:
        index.insert(slots(*owners), lo, hi)


def filled(factory: Factory, *intervals: tuple[float, float]) -> BoxIndex:
    """An index of cubes under the slots 0, 1 and on."""
    index = factory.make()
    index.insert(np.arange(len(intervals), dtype=np.int32), *cubes(intervals, factory.dims))
    index.check()
    return index


def random_boxes(factory: Factory, indexes: list[BoxIndex], *, seed: int, count: int) -> None:
    """Boxes on a small grid of numbers, two a slot, wide enough for a random point to be in some."""
    rng = np.random.default_rng(seed)
    lo = rng.integers(-3, 10, (count, factory.dims)).astype(np.float64)
    hi = lo + rng.integers(3, 14, (count, factory.dims))
    for index in indexes:
        index.insert(np.arange(count, dtype=np.int32) // 2, lo, hi)


def random_points(factory: Factory, *, seed: int, count: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 12, (count, factory.dims)).astype(np.float64)
