"""BMQ-Index: the paper's walk-through, splits and merges, and promises beyond the contract."""

from __future__ import annotations

import numpy as np
import pytest

from service.index.border.bmq import BMQIndex, RSNode
from service.index.border.bmq_kernels import locate, narrowest, walk
from service.index.protocol import Borders
from tests.index.slow import SlowTwin
from tests.index.worlds import INF, NAN, SMALL, ends, moves, same, slots

# The figure of the paper draws five queries and nine nodes. This is what its sentences say of them: from N5
# to N8, Q5 is entered and Q2 and Q4 are left; from N5 to N2, Q3 and Q1 are entered and Q4 is left; nine nodes
# for ten borders, so two share one. The borders b0 .. b8 are the numbers 0 .. 8, and node i begins at i - 1.
FIGURE_2 = {1: (0.0, 2.0), 2: (0.0, 5.0), 3: (1.0, 4.0), 4: (3.0, 7.0), 5: (6.0, 8.0)}


def paper_index(queries: dict[int, tuple[float, float]]) -> BMQIndex:
    """Queries one by one in an index that keeps to the paper: every change at once, delta queries alone."""
    index = BMQIndex(1, fresh_limit=0, anchored=False)
    for slot, (lo, hi) in queries.items():
        index.insert(slots(slot), ends([lo], 1), ends([hi], 1))
        index.check()
    return index


def node(number: int) -> np.ndarray:
    """A value in the middle of a node of Figure 2."""
    return ends([number - 0.5], 1)


def test_figure_2() -> None:
    nodes = paper_index(FIGURE_2).rs_list()
    assert len(nodes) == 9
    assert nodes[0] == RSNode(0.0, begins=(1, 2), ends=())
    assert nodes[4] == RSNode(4.0, begins=(), ends=(3,))
    assert [len(n.begins) + len(n.ends) for n in nodes] == [2, 1, 1, 1, 1, 1, 1, 1, 1]


@pytest.mark.parametrize("anchored", [False, True])
def test_walk_through_of_section_3_3(anchored: bool) -> None:
    index = BMQIndex(1, fresh_limit=0, anchored=anchored)
    for slot, (lo, hi) in FIGURE_2.items():
        index.insert(slots(slot), ends([lo], 1), ends([hi], 1))
    assert moves(index.borders(node(5), node(8))) == [(0, 2, False), (0, 4, False), (0, 5, True)]
    assert moves(index.borders(node(5), node(2))) == [(0, 1, True), (0, 3, True), (0, 4, False)]
    assert moves(index.borders(node(5), node(5) + 0.4)) == []


def test_a_delta_query_is_read_once_a_crossed_node() -> None:
    index = paper_index(FIGURE_2)
    assert [index.crossing(node(5), node(n), None).accessed for n in range(1, 10)] == [
        4, 3, 2, 1, 0, 1, 2, 3, 4,
    ]  # fmt: skip


def test_the_formula_of_section_3_3() -> None:
    """The unions of +DQSets and -DQSets and their differences, between any two nodes."""
    index = paper_index({**FIGURE_2, 6: (1.0, 2.0), 7: (2.0, 8.0), 8: (-INF, 3.0), 9: (4.0, INF)})
    nodes = index.rs_list()
    places = [*nodes, *reversed(nodes)]
    for j, before in enumerate(nodes):
        for h, after in enumerate(nodes):
            passed = places[j + 1 : h + 1] if j < h else nodes[h + 1 : j + 1]
            begins = {query for n in passed for query in n.begins}
            ended = {query for n in passed for query in n.ends}
            up, down = begins - ended, ended - begins
            entered, left = (up, down) if j < h else (down, up)
            expected = sorted([(0, q, True) for q in entered] + [(0, q, False) for q in left])
            found = index.borders(ends([before.lower], 1), ends([after.lower], 1))
            assert moves(found) == expected, (before, after)


def test_registration_splits_and_deregistration_merges() -> None:
    index = paper_index({1: (0.0, 4.0)})
    assert [n.lower for n in index.rs_list()] == [0.0, 4.0]
    index.insert(slots(2), ends([2.0], 1), ends([4.0], 1))
    # The lower end splits a segment, the upper one is a border already and joins its -DQSet.
    assert index.rs_list() == [
        RSNode(0.0, (1,), ()),
        RSNode(2.0, (2,), ()),
        RSNode(4.0, (), (1, 2)),
    ]
    index.insert(slots(3), ends([4.0], 1), ends([5.0], 1))
    assert index.rs_list()[2:] == [RSNode(4.0, (3,), (1, 2)), RSNode(5.0, (), (3,))]
    index.remove(slots(2))
    assert [n.lower for n in index.rs_list()] == [0.0, 4.0, 5.0]
    index.remove(slots(1))
    assert [n.lower for n in index.rs_list()] == [4.0, 5.0]
    index.remove(slots(3))
    assert index.rs_list() == []
    index.check()


def test_attributes_have_lists_of_their_own() -> None:
    index = BMQIndex(2, fresh_limit=0)
    index.insert(slots(1, 2), np.array([[0.0, 10.0], [1.0, -INF]]), np.array([[2.0, 20.0], [2.0, INF]]))
    assert index.rs_list(0) == [RSNode(0.0, (1,), ()), RSNode(1.0, (2,), ()), RSNode(2.0, (), (1, 2))]
    assert [n.lower for n in index.rs_list(1)] == [-INF, 10.0, 20.0, INF]


def test_cross_check() -> None:
    """A border of one attribute counts where the new point, or the old one, is inside in the other."""
    index = BMQIndex(2, fresh_limit=0)
    index.insert(slots(1), np.array([[0.0, 0.0]]), np.array([[1.0, 1.0]]))
    inside, beside, above, apart = (np.array([p]) for p in ([0.5, 0.5], [2.0, 0.5], [0.5, 2.0], [2.0, 2.0]))
    assert moves(index.borders(beside, inside)) == moves(index.borders(apart, inside)) == [(0, 1, True)]
    assert moves(index.borders(inside, above)) == moves(index.borders(inside, apart)) == [(0, 1, False)]
    for before, after, accessed in ((beside, above, 2), (above, apart, 1), (beside, apart, 1)):
        crossing = index.crossing(before, after, None)
        assert moves(crossing.borders) == []
        assert crossing.accessed == accessed


def test_newest_boxes_wait_and_settle() -> None:
    index = BMQIndex(1, fresh_limit=3)
    for slot in range(3):
        index.insert(slots(slot), ends([slot], 1), ends([slot + 1], 1))
        assert index.rs_list() == []
    index.insert(slots(3), ends([3], 1), ends([4], 1))
    assert [n.lower for n in index.rs_list()] == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert moves(index.borders(ends([0.5], 1), ends([3.5], 1))) == [(0, 0, False), (0, 3, True)]


def test_removed_boxes_are_dropped_when_lists_settle() -> None:
    index = BMQIndex(1, fresh_limit=2)
    index.insert(slots(*range(10)), ends(range(10), 1), ends(range(1, 11), 1))
    index.remove(slots(3, 4))
    assert len(index.rs_list()) == 11
    assert moves(index.borders(ends([3.5], 1), ends([5.5], 1))) == [(0, 5, True)]
    index.remove(slots(5))
    assert [n.lower for n in index.rs_list()] == [0.0, 1.0, 2.0, 3.0, 6.0, 7.0, 8.0, 9.0, 10.0]
    index.check()


def random_index(seed: int, *, dims: int = 1, anchored: bool = True, count: int = 400) -> BMQIndex:
    """Boxes on a grid, one or two a slot, of all widths."""
    rng = np.random.default_rng(seed)
    lo = rng.integers(0, 1000, (count, dims)).astype(np.float64)
    hi = lo + np.ceil(1000 ** rng.random((count, dims)))
    index = BMQIndex(dims, anchored=anchored)
    index.insert(np.arange(count, dtype=np.int32) * 2 // 3, lo, hi)
    return index


def random_points(seed: int, count: int, dims: int) -> np.ndarray:
    points = np.random.default_rng(seed).integers(-5, 1500, (count, dims)).astype(np.float64)
    points[::17] = NAN
    points[5::17] = -INF
    return points


def test_where_to_look_first_changes_nothing() -> None:
    for dims in (1, 2):
        index = random_index(1, dims=dims)
        before, after = random_points(2, 60, dims), random_points(3, 60, dims)
        expected = index.crossing(before, after, None)
        rng = np.random.default_rng(4)
        for _ in range(5):
            hints = rng.integers(-3, 2000, before.shape).astype(np.int32)
            again = index.crossing(before, after, hints)
            assert same(again.borders, expected.borders)
            assert np.array_equal(again.places, expected.places)
    with pytest.raises(ValueError, match="places"):
        index.crossing(before, after, hints[:1])


def test_places_by_galloping_are_those_by_bisection() -> None:
    index = random_index(5, count=60)
    lists = index._snapshot.settled.lists
    lower = lists.lower[1:]
    values = np.unique(np.concatenate([lower, lower + 0.5, [-INF, INF, -1.0]])).reshape(-1, 1)
    expected = np.searchsorted(lower, values[:, 0], "right")
    places = np.empty(values.shape, np.int32)
    for hint in range(-1, len(lower) + 3, 5 if SMALL else 1):
        locate(lists, values, np.full(values.shape, hint, np.int32), places)
        assert np.array_equal(places[:, 0], expected), hint


def test_jumps_by_members_are_those_by_walking() -> None:
    """Across the domain, members are fewer than the deltas between: the answer is the same, and cheaper."""
    for dims in (1, 3):
        walking, anchored = (random_index(6, dims=dims, anchored=a) for a in (False, True))
        before, after = random_points(7, 80, dims), random_points(8, 80, dims)
        far, near = walking.crossing(before, after, None), anchored.crossing(before, after, None)
        assert same(far.borders, near.borders)
        assert near.accessed < far.accessed


def test_a_search_for_members_reads_little_more_than_it_finds() -> None:
    index = random_index(9, count=200 if SMALL else 3000)
    lists, anchors = index._snapshot.settled
    places = np.arange(len(lists.lower), dtype=np.int32).reshape(-1, 1)
    begins = np.repeat(places[:, 0], np.diff(lists.starts)) < lists.partners
    change = np.add.reduceat(np.where(begins, 1, -1), np.minimum(lists.starts[1:-1], len(begins) - 1))
    held = np.concatenate([[0], np.cumsum(change)])
    read = np.array([narrowest(lists, anchors, places, row)[1] for row in range(len(places))])
    assert (read <= 3 * held + 48).all()
    assert held.max() > 20


def test_many_borders_whose_numbers_do_not_fit_in_32_bits() -> None:
    """Answers are sorted as 32-bit keys where these hold rows times slots, else as 64-bit ones."""
    near, far = BMQIndex(1), BMQIndex(1)
    owners = np.arange(300, dtype=np.int32)
    lo, hi = ends(range(300), 1), ends(range(300, 600), 1)
    near.insert(owners, lo, hi)
    far.insert(owners + 3_000_000, lo, hi)
    before, after = ends(np.linspace(0, 300, 800), 1), ends(np.linspace(100, 590, 800), 1)
    small, large = near.borders(before, after), far.borders(before, after)
    assert len(small.rows) > 10_000
    assert same(small, Borders(large.rows, large.slots - 3_000_000, large.entered))
    twin = SlowTwin(1)
    twin.insert(owners, lo, hi)
    rows = slice(0, 800, 40)
    assert same(near.borders(before[rows], after[rows]), twin.borders(before[rows], after[rows]))


def test_storage_does_not_depend_on_widths() -> None:
    """Two delta queries a query (Sect. 3.4), and at most two borders."""
    sizes = []
    for width in (1.5, 15.5, 150.5):
        index = BMQIndex(1, anchored=False)
        lo = ends(range(100), 1)
        index.insert(np.arange(100, dtype=np.int32), lo, lo + width)
        deltas = [len(n.begins) + len(n.ends) for n in index.rs_list()]
        assert sum(deltas) == len(deltas) == 200
        sizes.append(index.list_nbytes)
    assert len(set(sizes)) == 1


def test_an_index_needs_an_attribute() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        BMQIndex(0)


def test_a_walk_without_room_says_so_and_writes_no_further() -> None:
    index = paper_index(FIGURE_2)
    queries, (lists, _), _ = index._snapshot
    points = np.concatenate([node(5), node(8)])
    places = np.empty(points.shape, np.int32)
    locate(lists, points, np.full((1, 1), -1, np.int32), places)
    out = np.full(5, -7, np.int64)
    for room in range(3):
        assert walk(queries, lists, points, places, np.zeros(1, np.bool_), out[:room]) > room
        assert (out[room:] == -7).all()
    assert walk(queries, lists, points, places, np.zeros(1, np.bool_), out) == 3
    assert (out[3:] == -7).all()
