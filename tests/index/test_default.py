"""What the default index promises beyond the contract: segments, levels, marks, merging aside."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.index.answers import Collector
from service.index.brute import BruteForce
from service.index.default import level, mixed
from service.index.default.border_lists import BorderLists
from service.index.default.mixed import DefaultIndex
from service.index.default.part import dense, in_order, joined, sparse, taken
from service.index.default.scan_part import ScanPart
from service.index.default.segment import meets
from service.index.protocol import Bounds
from tests.index.slow import holds
from tests.index.worlds import INF, MOST, NAN, QUICK, SMALL, TINY_WORLD, cubes, pairs, same, slots

Box = tuple[list[float], list[float]]


def meets_slowly(box: Box, begin: list[float], end: list[float]) -> bool:
    """Whether a segment meets a box: tested at every parameter where that can change, and between them."""
    lo, hi = box
    critical = {Fraction(0), Fraction(1)}
    for low, high, b, c in zip(lo, hi, begin, end, strict=True):
        for value in (low, high):
            if b != c and abs(value) < INF:
                critical.add((Fraction(value) - Fraction(b)) / (Fraction(c) - Fraction(b)))
    times = sorted(t for t in critical if 0 <= t <= 1)
    times += [(a + b) / 2 for a, b in pairwise(times)]
    return any(
        all(
            low <= Fraction(b) + t * (Fraction(c) - Fraction(b)) < high
            for low, high, b, c in zip(lo, hi, begin, end, strict=True)
        )
        for t in times
    )


def crossing(queries: list[list[Box]], begin: list[float], end: list[float]) -> list[int]:
    """The queries that the segment crosses, among boxes that constrain finite attributes only."""
    return [
        slot
        for slot, boxes in enumerate(queries)
        if not any(holds(box, end_point) for box in boxes for end_point in (begin, end))
        and any(meets_slowly(box, begin, end) for box in boxes)
    ]


def index_of(queries: list[list[Box]], dims: int, delta: int) -> DefaultIndex:
    index = DefaultIndex(dims, delta=delta)
    for slot, boxes in enumerate(queries):
        index.insert(
            slots(*[slot] * len(boxes)),
            np.array([lo for lo, _ in boxes], np.float64),
            np.array([hi for _, hi in boxes], np.float64),
        )
    return index


SIDES = st.sampled_from(
    [(0.0, 1.0), (1.0, 3.0), (0.0, 3.0), (2.0, 3.0), (-INF, 1.0), (2.0, INF), (-INF, INF)]
)
COORDINATES = st.sampled_from([-1.0, 0.0, 0.5, 1.0, 2.0, 2.5, 3.0, 4.0])


def boxes_of(dims: int) -> st.SearchStrategy[Box]:
    sides = st.lists(SIDES, min_size=dims, max_size=dims)
    return sides.map(lambda sides: ([lo for lo, _ in sides], [hi for _, hi in sides]))


@pytest.mark.parametrize("delta", [0, 100])
@given(data=st.data())
@QUICK
def test_the_boxes_met_by_a_segment(delta: int, data: st.DataObject) -> None:
    dims = data.draw(st.integers(1, 3))
    queries = data.draw(st.lists(st.lists(boxes_of(dims), min_size=1, max_size=2), max_size=8))
    point = st.lists(COORDINATES, min_size=dims, max_size=dims)
    moves = data.draw(st.lists(st.tuples(point, point), max_size=12))
    index = index_of(queries, dims, delta)
    before = np.array([b for b, _ in moves], np.float64).reshape(-1, dims)
    after = np.array([a for _, a in moves], np.float64).reshape(-1, dims)
    expected = [(row, slot) for row, (b, a) in enumerate(moves) for slot in crossing(queries, b, a)]
    assert pairs(index.met(before, after)) == expected


def test_a_corner_is_met_only_if_it_belongs_to_the_box() -> None:
    index = index_of([[([1.0, 1.0], [2.0, 2.0])]], 2, 0)

    def met(begin: tuple[float, float], end: tuple[float, float]) -> bool:
        return len(index.met(np.array([begin]), np.array([end])).slots) == 1

    assert met((0.0, 2.0), (2.0, 0.0)), "through the lower corner"
    assert not met((1.0, 3.0), (3.0, 1.0)), "through the upper corner"
    assert not met((0.0, 1.0), (2.0, 3.0)), "through the upper left corner, on the upper edge"
    assert met((0.0, 0.5), (3.0, 2.0)), "well inside"
    # A slope that floating point cannot hold: the point (1, 1) is a rounding away.
    third = 1.0 / 3.0
    expected = meets_slowly(([1.0, 1.0], [2.0, 2.0]), [0.0, 1.0 + third], [4.0, -third * 0 + 1.0 - 3 * third])
    assert met((0.0, 1.0 + third), (4.0, 1.0 - 3 * third)) is expected


@given(st.lists(st.tuples(COORDINATES, COORDINATES, SIDES), min_size=1, max_size=4))
@QUICK
def test_meets_is_exact(drawn: list[tuple[float, float, tuple[float, float]]]) -> None:
    box = ([side[0] for _, _, side in drawn], [side[1] for _, _, side in drawn])
    expected = meets_slowly(box, [begin for begin, _, _ in drawn], [end for _, end, _ in drawn])
    assert meets((begin, end, *side) for begin, end, side in drawn) is expected


def test_corners_that_are_a_rounding_away() -> None:
    """Every segment is at the origin after four fifths of its way, which is rounded in both attributes, each
    in its own manner. The corner of its box is there too, or beside it, nearer than that can tell."""
    rng = np.random.default_rng(3)
    count = 50 if SMALL else 200
    begin = rng.uniform(1.0, 2.0, (count, 2)) * rng.choice([-1.0, 1.0], (count, 2))
    end = -begin / 4
    corner, upper = rng.choice([-1e-30, 0.0, 1e-30], begin.shape), rng.random(begin.shape) < 0.5
    lo, hi = np.where(upper, -9.0, corner), np.where(upper, corner, 9.0)
    moves = [tuple(column[i].tolist() for column in (lo, hi, begin, end)) for i in range(count)]
    index = index_of([[(low, high)] for low, high, _, _ in moves], 2, 0)
    met = set(pairs(index.met(begin, end)))
    expected = [crossing([[(low, high)]], b, c) == [0] for low, high, b, c in moves]
    assert 0 < sum(expected) < count
    assert [(i, i) in met for i in range(count)] == expected


def test_a_removed_query_is_met_by_who_began_before() -> None:
    index = index_of([[([float(i)], [i + 0.5])] for i in range(8)], 1, 0)
    before, after = np.array([[-1.0]]), np.array([[9.0]])
    earlier = index._snapshot
    index.remove(slots(1, 4))
    assert pairs(index.met(before, after)) == [(0, slot) for slot in (0, 2, 3, 5, 6, 7)]
    index._snapshot = earlier
    assert pairs(index.met(before, after)) == [(0, slot) for slot in range(8)]


def test_a_segment_of_huge_and_tiny_steps() -> None:
    index = index_of([[([-1.0], [1.0])], [([0.0], [5e-324])]], 1, 0)
    moves = np.array([[-MOST, MOST], [MOST, -MOST], [-5e-324, 5e-324], [2.0, 3.0]])
    hits = index.met(np.ascontiguousarray(moves[:, :1]), np.ascontiguousarray(moves[:, 1:]))
    assert pairs(hits) == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 1)]


def test_a_missing_attribute_is_on_no_segment_of_boxes_that_constrain_it() -> None:
    index = index_of([[([1.0, -INF], [2.0, INF])], [([1.0, 1.0], [2.0, 2.0])]], 2, 0)
    hits = index.met(
        np.array([[0.0, -INF], [0.0, 1.5], [NAN, 0.0]]), np.array([[3.0, -INF], [3.0, 1.5], [3.0, 0.0]])
    )
    assert pairs(hits) == [(0, 0), (1, 0), (1, 1)]


@pytest.mark.parametrize("box_by_box", [False, True])
@pytest.mark.parametrize("delta", [0, 8])
def test_a_slot_with_a_box_that_constrains_nothing_is_never_met(box_by_box: bool, delta: int) -> None:
    index = index_of([[([1.0], [2.0]), ([-INF], [INF])], [([1.0], [2.0])]], 1, delta)
    hits = index.met(np.array([[0.0]]), np.array([[3.0]]), box_by_box=box_by_box)
    assert pairs(hits) == [(0, 1)]


def fences(count: int, seed: int) -> tuple[Bounds, Bounds]:
    rng = np.random.default_rng(seed)
    lo = rng.random((count, 2))
    return lo, lo + rng.uniform(0.001, 0.1, (count, 2))


@pytest.mark.parametrize("aside", [False, True])
def test_levels_are_few_and_answers_are_brute_force_whatever_comes(aside: bool) -> None:
    rng = np.random.default_rng(7)
    index, brute = DefaultIndex(2, delta=8 if SMALL else 32, aside=aside), BruteForce(2)
    count = 200 if SMALL else 3000
    lo, hi = fences(count, 1)
    most = 0
    for i in range(count):
        one = np.array([i], np.int32), lo[i : i + 1], hi[i : i + 1]
        index.insert(*one)
        brute.insert(*one)
        if i % 3 == 2:
            gone = np.array([rng.integers(i // 2, i)], np.int32)
            if gone[0] % 5 and brute_has(brute, int(gone[0])):
                index.remove(gone)
                brute.remove(gone)
        if aside and i % 50 == 0 and (rebuild := index.rebuild()) is not None:
            rebuild.run()
            index.adopt(rebuild)
        most = max(most, len(index._snapshot.levels))
        if i % (count // 20) == 0:
            points = rng.random((40, 2))
            after = points + rng.normal(0, 0.01, (40, 2))
            assert same(index.stab(points), brute.stab(points))
            assert same(index.borders(points, after), brute.borders(points, after))
            index.check()
    assert len(index) == len(brute)
    for slot in range(count):
        held = index.holding(slot)
        assert [boxes for _, boxes in held] == ([1] if brute_has(brute, slot) else [])
        assert all(view in index.views() for view, _ in held)
    assert 2 <= most <= 12


def brute_has(brute: BruteForce, slot: int) -> bool:
    return bool(brute._store.has(slots(slot))[0])


@pytest.fixture
def nothing_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixed, "_GROWN", 0)


def structures(index: DefaultIndex) -> dict[str, int]:
    return {view.structure: view.boxes - view.removed for view in index.views() if view.boxes}


@pytest.mark.parametrize("by_moves", [False, True])
def test_what_waits_is_filed_once_it_has_been_scanned_for_enough_points(by_moves: bool) -> None:
    count = mixed._LEAST_WAITING
    index, brute = DefaultIndex(2, aside=True), BruteForce(2)
    lo, hi = fences(count, 1)
    for i in range(count):
        for one in (index, brute):
            one.insert(np.array([i], np.int32), lo[i : i + 1], hi[i : i + 1])
    points = np.random.default_rng(2).random((1_000, 2))

    def asked(times: int) -> None:
        for _ in range(times):
            if by_moves:  # both ends of a move are looked up in what waits
                assert same(
                    index.borders(points[:500], points[500:]), brute.borders(points[:500], points[500:])
                )
            else:
                assert same(index.stab(points), brute.stab(points))

    enough = mixed._PATIENCE // (2 * len(points))
    asked(enough)
    assert index.rebuild() is None and structures(index) == {"delta": count}, "a point less than enough"
    asked(1)
    assert index.rebuild() is None
    assert "delta" not in structures(index) and sum(structures(index).values()) == count
    index.check()
    asked(1)
    for one in (index, brute):
        one.insert(np.array([count], np.int32), lo[:1], hi[:1])
    asked(2 * enough)
    assert index.rebuild() is None
    assert structures(index)["delta"] == 1, "few may wait for ever"


def test_what_waits_beside_a_grid_goes_there_once_it_has_been_scanned_enough() -> None:
    filed, count = 4 * mixed._LEAST_WAITING, mixed._LEAST_WAITING
    index = DefaultIndex(2, aside=True, fresh=filed, delta=2 * count)
    lo, hi = fences(filed + count, 1)
    index.insert(np.arange(filed, dtype=np.int32), lo[:filed], hi[:filed])
    for i in range(filed, filed + count):
        index.insert(np.array([i], np.int32), lo[i : i + 1], hi[i : i + 1])
    assert structures(index)["delta"] == count
    points = np.random.default_rng(2).random((1_000, 2))
    expected = index.stab(points)
    for _ in range(5 * mixed._PATIENCE // (2 * len(points))):
        index.stab(points)
    assert index.rebuild() is None
    found = structures(index)
    assert "delta" not in found and found["grid"] >= count // 2
    assert sum(found.values()) == filed + count
    assert same(index.stab(points), expected)
    index.check()


@pytest.mark.usefixtures("nothing_at_once")
def test_what_is_removed_and_put_back_while_levels_are_merged_is_as_it_was_left() -> None:
    index = DefaultIndex(1, aside=True, delta=0)
    for slot in range(3):
        index.insert(slots(slot), *cubes([(0.0, 1.0)], 1))
    rebuild = index.rebuild()
    assert rebuild is not None
    index.remove(slots(0, 1))
    index.insert(slots(0), *cubes([(5.0, 6.0)], 1))
    rebuild.run()
    index.adopt(rebuild)
    index.check()
    assert pairs(index.stab(np.array([[0.5], [5.5]]))) == [(0, 2), (1, 0)]


@pytest.mark.usefixtures("nothing_at_once")
def test_a_rebuild_of_levels_that_are_gone_changes_nothing() -> None:
    index = DefaultIndex(1, aside=True, delta=0)
    for slot in range(2):
        index.insert(slots(slot), *cubes([(0.0, 1.0)], 1))
    first, second = index.rebuild(), index.rebuild()
    assert first is not None and second is not None
    for rebuild in (first, second):
        rebuild.run()
        index.adopt(rebuild)
    index.check()
    assert len(index._snapshot.levels) == 1


@pytest.mark.usefixtures("nothing_at_once")
def test_who_adopts_a_level_does_not_make_its_borders(monkeypatch: pytest.MonkeyPatch) -> None:
    index = DefaultIndex(1, aside=True, delta=0)
    for slot in range(2):
        index.insert(slots(slot), *cubes([(0.0, 1.0)], 1))
    before, after = np.array([[0.5]]), np.array([[1.5]])
    assert len(index.borders(before, after).rows) == 2
    rebuild = index.rebuild()
    assert rebuild is not None
    rebuild.run()

    def refuse(*_: object) -> None:
        raise AssertionError("made by the thread that adopts")

    monkeypatch.setattr(level, "BorderLists", refuse)
    index.adopt(rebuild)
    assert len(index.borders(before, after).rows) == 2


def test_versions_that_are_used_up_begin_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixed, "NEVER", np.int32(4))
    index = DefaultIndex(1, delta=0)
    index.insert(np.arange(12, dtype=np.int32), *cubes([(0.0, 1.0)] * 12, 1))
    for gone in range(9):
        index.remove(slots(gone))
        assert pairs(index.stab(np.array([[0.5]]))) == [(0, slot) for slot in range(gone + 1, 12)]


def test_all_boxes_of_a_slot_are_found_in_their_parts() -> None:
    for delta in (0, 10):
        index = DefaultIndex(2, delta=delta)
        ends = [[0.0, 0.0], [2.0, -np.inf], [-np.inf, -np.inf]], [[1.0, 1.0], [3.0, np.inf], [np.inf, np.inf]]
        lo, hi = map(np.array, ends)
        index.insert(np.array([4, 4, 7], np.int32), lo, hi)
        assert sum(boxes for _, boxes in index.holding(4)) == 2
        assert [(view.structure, boxes) for view, boxes in index.holding(7)] == [
            ("delta" if delta else "free", 1)
        ]
        index.remove(np.array([4], np.int32))
        assert index.holding(4) == index.holding(5) == []


def test_a_slot_that_is_everywhere_is_no_border_of_its_other_boxes() -> None:
    index = index_of([[([-INF], [INF]), ([1.0], [2.0])], [([1.0], [2.0]), ([2.0], [3.0])]], 1, 0)
    moved = index.borders(np.array([[0.0], [1.5], [2.5]]), np.array([[1.5], [2.5], [NAN]]))
    assert list(zip(*(column.tolist() for column in moved), strict=True)) == [
        (0, 1, True),
        (2, 0, False),
        (2, 1, False),
    ]


def test_the_first_move_waits_for_no_borders_where_they_were_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    index, before, after = DefaultIndex(1, delta=1), np.array([[0.5]]), np.array([[2.5]])
    lo = np.arange(20.0)[:, None]
    index.insert(slots(*range(20)), lo, lo + 1)
    index.follow_moves()

    def made_late(*_: object) -> BorderLists:
        raise AssertionError("made when a move is asked about")

    monkeypatch.setattr(level, "BorderLists", made_late)
    assert len(index.borders(before, after).rows) == 2


def test_cost_follows_the_borders_that_are_crossed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small move among boxes that all hold it looks nothing up."""
    index = DefaultIndex(2, delta=0)
    lo, hi = fences(500, 3)
    index.insert(np.arange(500, dtype=np.int32), lo - 1.0, hi + 1.0)

    def refuse(*_: object) -> int:
        raise AssertionError("looked up")

    monkeypatch.setattr(ScanPart, "stab", refuse)
    assert len(index.borders(np.array([[0.5, 0.5]]), np.array([[0.5001, 0.5001]])).rows) == 0
    with pytest.raises(AssertionError, match="looked up"):
        index.borders(np.array([[-9.0, -9.0]]), np.array([[9.0, 9.0]]))


@pytest.mark.parametrize("dims", [1, 2])
def test_moves_that_cross_many_borders_and_few_together(dims: int) -> None:
    """More answers than there is room for at first, some rows far, some near, some boxes removed."""
    rng = np.random.default_rng(4)
    count, rows = 3000, 60
    lo = np.floor(rng.random((count, dims)) * 400)
    hi = lo + rng.integers(1, 60, (count, dims))
    hi[::50, 0], lo[1::50, 0] = INF, -INF
    index, brute = DefaultIndex(dims, delta=0), BruteForce(dims)
    for one in (index, brute):
        one.insert(np.arange(count, dtype=np.int32), lo, hi)
    before = np.floor(rng.random((rows, dims)) * 400)
    for reach in (1, 3, 30, 400):
        after = before + rng.integers(-reach, reach + 1, (rows, dims))
        assert same(index.borders(before, after), brute.borders(before, after))
        gone = rng.permutation(len(brute))[:20].astype(np.int32)
        gone = gone[brute._store.has(gone)]
        for one in (index, brute):
            one.remove(gone)
        for cut in (slice(0, 1), slice(0, rows)):
            assert same(index.borders(before[cut], after[cut]), brute.borders(before[cut], after[cut]))
    index.check()


def test_moves_that_one_part_reports_and_the_next_finds_too_far() -> None:
    """Two signatures, so two parts of a level, and more answers than there is room for at first: when the
    level is asked again, the first part passes over what the second has found to be far."""
    rng = np.random.default_rng(4)
    count, rows = 600, 60
    lo, hi = np.full((2 * count, 2), -INF), np.full((2 * count, 2), INF)
    for attribute, width in ((0, 0.04), (1, 1e-6)):
        own = slice(attribute * count, (attribute + 1) * count)
        lo[own, attribute] = rng.random(count)
        hi[own, attribute] = lo[own, attribute] + width
    index, brute = DefaultIndex(2, delta=0), BruteForce(2)
    for one in (index, brute):
        one.insert(np.arange(2 * count, dtype=np.int32), lo, hi)
    assert [len(one.parts) for one in index._snapshot.levels] == [2]
    before = rng.random((rows, 2)) * 0.9
    after = before + np.array([0.03, 0.0])
    after[1::2, 1] = (before[1::2, 1] + 0.5) % 1
    assert same(index.borders(before, after), brute.borders(before, after))


def test_keys_that_are_fewer_when_asked_again() -> None:
    calls = []

    def fill(out: np.ndarray) -> int:
        calls.append(len(out))
        found = 5000 if len(calls) == 1 else 3
        out[: min(found, len(out))] = 7
        return found

    assert Collector().answered(fill, 1, np.ndarray.tolist) == [7, 7, 7]
    assert len(calls) == 2


def test_every_room_for_keys_is_enough_or_is_said_to_be_too_little() -> None:
    lo = np.arange(40.0)[:, None]
    boxes = sparse(np.arange(40, dtype=np.int32), lo, lo + np.arange(1, 41)[:, None] % 7 + 0.5)
    lists = BorderLists(boxes)
    before, after = np.array([[3.0], [20.0]]), np.array([[12.0], [11.2]])
    living, far = np.empty(0, np.int32), np.zeros(2, np.bool_)
    expected = np.empty(100, np.int64)
    count = lists.search(before, after, living, 0, 1e9, far, expected)
    assert 10 < count < 40
    for room in range(count + 30):
        keys = np.full(room, -1, np.int64)
        assert lists.search(before, after, living, 0, 1e9, far, keys) == count
        assert np.array_equal(keys[:count], expected[: min(room, count)])


@given(data=st.data())
@QUICK
def test_sparse_boxes_are_the_boxes(data: st.DataObject) -> None:
    dims = data.draw(st.integers(1, 3))
    boxes = [
        box
        for box in data.draw(st.lists(TINY_WORLD.box(dims), max_size=10))
        if any((lo, hi) != (-INF, INF) for lo, hi in zip(*box, strict=True))
    ]
    lo = np.array([box[0] for box in boxes], np.float64).reshape(-1, dims)
    hi = np.array([box[1] for box in boxes], np.float64).reshape(-1, dims)
    numbers = np.array(data.draw(st.permutations([i // 2 for i in range(len(boxes))])), np.int32)
    kept = sparse(numbers, lo, hi)
    assert all(map(np.array_equal, dense(kept, dims), (lo, hi)))
    order = np.array(data.draw(st.permutations(range(len(boxes)))), np.intp)
    assert all(map(np.array_equal, dense(taken(kept, order), dims), (lo[order], hi[order])))
    twice = joined([kept, kept])
    assert all(map(np.array_equal, dense(twice, dims), (np.concatenate([lo, lo]), np.concatenate([hi, hi]))))
    one, other = in_order(kept), in_order(taken(kept, order))
    assert np.array_equal(one.slots, other.slots)
    assert all(map(np.array_equal, dense(one, dims), dense(other, dims)))
    BorderLists(kept).check()


def test_every_move_of_a_grid_of_pairs_of_boxes() -> None:
    """Two boxes a slot, all moves of a small grid, against brute force."""
    sides = [(0.0, 1.0), (1.0, 2.0), (0.0, 2.0), (-INF, 1.0)]
    boxes = [([a[0], b[0]], [a[1], b[1]]) for a, b in product(sides, sides)]
    queries = [[one, other] for one, other in product(boxes, boxes)]
    index, brute = index_of(queries, 2, 0), BruteForce(2)
    for slot, owned in enumerate(queries):
        brute.insert(slots(slot, slot), np.array([lo for lo, _ in owned]), np.array([hi for _, hi in owned]))
    points = np.array(list(product([-0.5, 0.0, 0.5, 1.0, 1.5, 2.0], repeat=2)))[:: 4 if SMALL else 1]
    moves = list(product(range(len(points)), repeat=2))
    before, after = points[[b for b, _ in moves]], points[[a for _, a in moves]]
    assert same(index.borders(before, after), brute.borders(before, after))
