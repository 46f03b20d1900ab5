"""IBS trees and IS-lists beyond the contract: where marks go, what moves them, and what ``check`` refuses."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.index.boxes import BoxStore
from service.index.in_place import InPlaceIndex
from service.index.interval.ibs_tree import IBSTree
from service.index.interval.ibs_tree_forest import IBSForest
from service.index.interval.ibs_tree_kernels import COUNT, FIRST, USED, parts_of
from service.index.interval.is_list import ISList
from service.index.interval.is_list_kernels import EDGES, HEAD, NEXT, NODES, TAIL
from tests.index.slow import SlowTwin
from tests.index.worlds import INF, QUICK, SMALL, cubes, ends, pairs, same, slots

MANY = 60 if SMALL else 400
MAKERS = [IBSTree, ISList, lambda: ISList(share=0.8, seed=3)]


def one_by_one(index: InPlaceIndex, intervals: list[tuple[float, float]], *, first: int = 0) -> None:
    for i, interval in enumerate(intervals):
        index.insert(slots(first + i), *cubes([interval], 1))
        index.check()


def forest_of(*intervals: tuple[float, float]) -> tuple[IBSForest, BoxStore]:
    """An IBS tree made at once."""
    store, forest = BoxStore(1), IBSForest(1)
    store.insert(np.arange(len(intervals), dtype=np.int32), *cubes(intervals, 1))
    forest.build(store.boxes)
    forest.check(store.boxes)
    return forest, store


def parts(forest: IBSForest, lo: float, hi: float) -> list[tuple[float, int]]:
    """Where an interval is marked, as (key, side), from lower to higher keys."""
    found = np.empty(128, np.int64)
    count = parts_of(forest.trees, 0, lo, hi, found)
    return sorted((float(forest.trees.key[edge // 2]), int(edge % 2)) for edge in found[:count])


def test_a_predicate_of_the_spatial_join_paper() -> None:
    """Sect. 2: 14 is above the node 11 and below the node 15, and Q1 is stored at both."""
    tree = IBSTree()
    after_eleven = float(np.nextafter(11.0, INF))
    tree.insert(slots(1), *cubes([(after_eleven, 15.0)], 1))
    assert pairs(tree.stab(ends([14.0, 11.0, 15.0, after_eleven], 1))) == [(0, 1), (3, 1)]


def test_parts_of_an_interval() -> None:
    """The keys 1 .. 7 make a full tree: 4 on top, 2 and 6, then the odd ones."""
    forest, _ = forest_of(*[(float(i), float(i + 1)) for i in range(1, 7)])
    assert parts(forest, 1.0, 7.0) == [(1.0, 1), (2.0, 1), (6.0, 0), (7.0, 0)]
    assert parts(forest, 2.0, 6.0) == [(2.0, 1), (6.0, 0)]
    assert parts(forest, 3.0, 4.0) == [(3.0, 1)]
    assert parts(forest, 4.0, 6.0) == [(6.0, 0)]
    assert parts(forest, 4.0, INF) == [(4.0, 1)]
    assert parts(forest, -INF, 5.0) == [(4.0, 0), (5.0, 0)]
    assert parts(forest, -INF, INF) == [(4.0, 0), (4.0, 1)]


@QUICK
@given(st.lists(st.tuples(st.integers(0, 15), st.integers(0, 15)), min_size=1, max_size=30))
def test_an_interval_has_at_most_two_parts_a_level(sides: list[tuple[int, int]]) -> None:
    intervals = [(float(min(side)), float(max(side))) for side in sides if side[0] != side[1]] or [(0.0, 1.0)]
    forest, _ = forest_of(*intervals)
    height = int(forest.trees.height[forest.trees.roots[0]])
    assert all(len(parts(forest, lo, hi)) <= 2 * height for lo, hi in intervals)


@pytest.mark.parametrize(
    "key_of",
    [
        lambda i: float(i),
        lambda i: float(-i),
        lambda i: float(i if i % 2 else -i),
        lambda i: float(i * 37 % 101) / 8,
    ],
    ids=["rising", "falling", "outwards", "scattered"],
)
def test_an_ibs_tree_stays_balanced_and_its_marks_move_along(key_of: Callable[[int], float]) -> None:
    """Every kind of rotation under wide and narrow intervals; ``check`` knows where all marks belong."""
    index, twin = IBSTree(), SlowTwin(1)
    wide = [(-INF, INF), (-INF, 0.0), (0.0, INF)] + [(-1000.0 + i, 1000.0 - i) for i in range(17)]
    for each in (index, twin):
        each.insert(np.arange(20, dtype=np.int32), *cubes(wide, 1))
    for i in range(60):
        low, high = sorted((key_of(i), key_of(i + 1) + 0.5))
        for each in (index, twin):
            each.insert(slots(20 + i), *cubes([(low, high)], 1))
        index.check()
    nodes = int(index._forest.trees.state[0])
    height = int(index._forest.trees.height[index._forest.trees.roots[0]])
    assert nodes > 60
    assert height <= 1.45 * math.log2(nodes + 2)
    points = ends(np.linspace(-70.0, 70.0, 300), 1)
    assert same(index.stab(points), twin.stab(points))


@pytest.mark.parametrize("make", MAKERS)
def test_marks_that_outgrow_their_pool_are_made_anew(make: Callable[[], InPlaceIndex]) -> None:
    """Wide intervals among many small ones: each has marks on many edges, and all of these grow."""
    index, twin = make(), SlowTwin(1)
    small = [(float(i), i + 1.0) for i in range(MANY)]
    for each in (index, twin):
        each.insert(np.arange(MANY, dtype=np.int32), *cubes(small, 1))
    rng = np.random.default_rng(1)
    pools = set()
    for slot in range(MANY, 4 * MANY):
        low = float(rng.integers(0, MANY // 2))
        for each in (index, twin):
            each.insert(slots(slot), *cubes([(low, low + MANY / 3)], 1))
        structure = index._forest.trees if isinstance(index, IBSTree) else index._list.skips  # type: ignore[attr-defined]
        pools.add(len(structure.pool))
    index.check()
    assert SMALL or len(pools) > 1, "the pool never had to grow"
    points = ends(np.arange(-1.0, MANY + 1.0, 0.5), 1)
    assert same(index.stab(points), twin.stab(points))


@pytest.mark.parametrize("make", MAKERS)
def test_out_in_another_order(make: Callable[[], InPlaceIndex]) -> None:
    index, twin = make(), SlowTwin(1)
    rng = np.random.default_rng(2)
    lo = rng.integers(0, 40, (120, 1)).astype(np.float64)
    hi = lo + rng.integers(1, 30, (120, 1))
    for each in (index, twin):
        each.insert(np.arange(120, dtype=np.int32), lo, hi)
    points = ends(np.arange(-1.0, 72.0, 2.0 if SMALL else 0.5), 1)
    most = 15 if SMALL else 59  # no more than half: nothing is built anew
    for slot in rng.permutation(120)[:most].tolist():
        for each in (index, twin):
            each.remove(slots(slot))
        index.check()
        assert same(index.stab(points), twin.stab(points))


def test_the_longest_edges_carry_the_markers() -> None:
    """By hand, from the heights that the seed gives: a walk by the definition, from edge to edge."""
    index = ISList(seed=5)
    index.insert(np.arange(15, dtype=np.int32), *cubes([(float(i), i + 1.0) for i in range(15)], 1))
    one_by_one(index, [(2.0, 13.0)], first=15)
    skips, box = index._list.skips, index._store.boxes.size - 1
    carried = {
        (float(skips.key[node]), float(skips.ahead[skips.tower[node] + level]))
        for node in range(skips.state[NODES])
        for level in range(skips.height[node])
        if box in markers(skips.pool, skips.edges[skips.tower[node] + level])
    }
    expected, at = set(), 2.0
    while at < 13.0:
        (node,) = np.flatnonzero(skips.key[: skips.state[NODES]] == at)
        reach = skips.ahead[skips.tower[node] : skips.tower[node] + skips.height[node]]
        further = float(reach[reach <= 13.0].max())
        expected.add((at, further))
        at = further
    assert carried == expected
    assert len(expected) < 11, "all heights are one"


def markers(pool: np.ndarray, edge: np.ndarray) -> list[int]:
    return pool[edge[FIRST] : edge[FIRST] + edge[COUNT]].tolist()


def test_nodes_go_with_the_last_interval_that_ends_there() -> None:
    index = ISList()
    index.insert(np.arange(4, dtype=np.int32), *cubes([(0.0, 4.0), (1.0, 4.0), (1.0, 3.0), (0.0, 3.0)], 1))
    assert keys(index) == [0.0, 1.0, 3.0, 4.0]
    index.remove(slots(1))
    assert keys(index) == [0.0, 1.0, 3.0, 4.0]
    index.remove(slots(2))
    assert keys(index) == [0.0, 3.0, 4.0]
    index.check()


def keys(index: ISList) -> list[float]:
    skips, found, node = index._list.skips, [], HEAD
    while (node := int(skips.edges[skips.tower[node], NEXT])) != TAIL:
        found.append(float(skips.key[node]))
    return found


def test_a_seed_makes_the_same_list_again() -> None:
    rng = np.random.default_rng(4)
    lo = rng.uniform(0.0, 10.0, (80, 1))
    lists = []
    for seed in (7, 7, 8):
        index = ISList(seed=seed)
        index.insert(np.arange(60, dtype=np.int32), lo[:60], lo[:60] + 1.0)
        one_by_one(index, [(float(low), float(low) + 1.0) for low in lo[60:, 0]], first=60)
        index.remove(slots(3, 70))
        lists.append(index)
    first, again, other = (index._list.skips for index in lists)
    assert all(np.array_equal(a, b) for a, b in zip(first[:6], again[:6], strict=True))
    assert first.state[EDGES] != other.state[EDGES] or not np.array_equal(first.tower, other.tower)
    points = ends(np.linspace(0.0, 11.0, 50), 1)
    assert same(lists[0].stab(points), lists[1].stab(points))
    assert same(lists[0].stab(points), lists[2].stab(points))


@pytest.mark.parametrize("share", [0.0, 1.0, -0.5, float("nan")])
def test_the_share_of_a_level_is_a_proper_fraction(share: float) -> None:
    with pytest.raises(ValueError, match="share"):
        ISList(share=share)


def test_check_of_an_ibs_tree_sees_damage() -> None:
    def damage(change: Callable[[IBSForest], None]) -> None:
        forest, store = forest_of((0.0, 4.0), (1.0, 3.0), (2.0, 5.0))
        change(forest)
        with pytest.raises(AssertionError):
            forest.check(store.boxes)

    def lose_a_mark(forest: IBSForest) -> None:
        edges = forest.trees.edges
        edges[np.flatnonzero(edges[:, COUNT])[0], COUNT] -= 1

    def misplace_a_mark(forest: IBSForest) -> None:
        forest.trees.pool[0] = (forest.trees.pool[0] + 1) % 3

    def swap_keys(forest: IBSForest) -> None:
        forest.trees.key[:2] = forest.trees.key[1::-1].copy()

    def say_too_high(forest: IBSForest) -> None:
        forest.trees.height[forest.trees.roots[0]] += 1

    def use_too_much(forest: IBSForest) -> None:
        forest.trees.state[USED] = len(forest.trees.pool) + 1

    for change in (lose_a_mark, misplace_a_mark, swap_keys, say_too_high, use_too_much):
        damage(change)


def test_check_of_an_is_list_sees_damage() -> None:
    def damage(change: Callable[[ISList], None]) -> None:
        index = ISList()
        index.insert(np.arange(3, dtype=np.int32), *cubes([(0.0, 4.0), (1.0, 3.0), (2.0, 5.0)], 1))
        change(index)
        with pytest.raises(AssertionError):
            index.check()

    def lose_a_marker(index: ISList) -> None:
        edges = index._list.skips.edges
        edges[np.flatnonzero(edges[:, COUNT])[0], COUNT] -= 1

    def forget_a_key_ahead(index: ISList) -> None:
        index._list.skips.ahead[0] += 0.5

    def skip_a_node(index: ISList) -> None:
        skips = index._list.skips
        first = skips.edges[HEAD, NEXT]
        skips.edges[HEAD, NEXT] = skips.edges[skips.tower[first], NEXT]
        skips.ahead[HEAD] = skips.ahead[skips.tower[first]]

    def miscount_owners(index: ISList) -> None:
        index._list.skips.owners[2] += 1

    for change in (lose_a_marker, forget_a_key_ahead, skip_a_node, miscount_owners):
        damage(change)
