"""Signature bitmaps: the promises of a part, each step of how they are made, and worlds that are unkind."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit, types

from service.index.default import bitmaps_kernels
from service.index.default.bitmaps import Bitmaps
from service.index.default.bitmaps_groups import groups_of
from service.index.default.bitmaps_kernels import (
    BLOCK,
    NEXT,
    QUEUED,
    SETS,
    STOP_BLOCK,
    TILE,
    WORDS,
    depth,
    locate,
    look,
    lowest,
    meet,
    prefetch,
    sweep,
)
from service.index.default.bitmaps_rows import LEAST_WINDOWS, MOST_WINDOWS, chosen_rows
from service.index.default.bitmaps_tiles import tiled
from service.index.default.bitmaps_windows import WINDOWS, chosen_cuts, scales_of, spans_of
from service.index.default.part import NEVER, Sparse, dense, in_order, sparse, taken
from service.index.kernel import reads, writes
from service.index.protocol import Bounds, Points
from tests.index.parts import found
from tests.index.worlds import FLOAT_WORLD, INF, LOWEST, MOST, NAN, QUICK, SMALL, TINY, TINY_WORLD, World

COUNT = 300 if SMALL else 3000


def boxes_of(lo: Bounds, hi: Bounds) -> Sparse:
    """Slots 0, 1 and on; what constrains nothing is left out, as the owner of a part does."""
    bound = ((lo != -INF) | (hi != INF)).any(axis=1)
    return sparse(np.flatnonzero(bound).astype(np.int32), lo[bound], hi[bound])


def some_boxes(count: int, dims: int, constrained: int, *, seed: int, values: int = 8) -> Sparse:
    """Whole numbers, some ends open; each box constrains so many attributes or a few less."""
    rng = np.random.default_rng(seed)
    lo = rng.integers(0, values, (count, dims)).astype(np.float64)
    hi = lo + rng.integers(1, values, (count, dims))
    lo[rng.random((count, dims)) < 0.05] = -INF
    hi[rng.random((count, dims)) < 0.05] = INF
    free = rng.random((count, dims)).argsort(axis=1) >= constrained
    lo[free], hi[free] = -INF, INF
    return boxes_of(lo, hi)


def some_points(count: int, dims: int, *, seed: int, values: int = 8) -> Points:
    """Halves, some of them missing, some rows all NaN."""
    rng = np.random.default_rng(seed)
    points = rng.integers(-2, 4 * values, (count, dims)) / 2
    points[rng.random((count, dims)) < 0.1] = -INF
    points[rng.random(count) < 0.1] = NAN
    return points


def expected(boxes: Sparse, points: Points, living: np.ndarray | None = None) -> list[tuple[int, int]]:
    """By comparing every point with every box."""
    lo, hi = dense(boxes, points.shape[1])
    inside = ((lo <= points[:, None]) & (points[:, None] < hi)).all(axis=2)
    if living is not None:
        inside &= living
    rows, numbers = np.nonzero(inside)
    return sorted(zip(rows.tolist(), boxes.slots[numbers].tolist(), strict=True))


def columns(boxes: Sparse) -> list[list[float]]:
    named = boxes.slots, boxes.starts, boxes.attributes, boxes.lo, boxes.hi
    return [column.tolist() for column in named]


@pytest.mark.parametrize("world", [TINY_WORLD, FLOAT_WORLD], ids=["tiny", "floats"])
@pytest.mark.parametrize("dims", [1, 2, 4])
def test_any_boxes_any_points(world: World, dims: int) -> None:
    @QUICK
    @given(queries=world.queries(dims, 30), points=world.points(dims, 8))
    def run(queries: list[list[tuple[list[float], list[float]]]], points: Points) -> None:
        sides = [box for boxes in queries for box in boxes]
        lo, hi = (np.array([side[i] for side in sides], np.float64).reshape(-1, dims) for i in (0, 1))
        boxes = boxes_of(lo, hi)
        part = Bitmaps.of(boxes, dims)
        part.check()
        # As the owner of a part does: inf is in no box, also where a box leaves the attribute free.
        whole = np.where((points < INF).all(axis=1)[:, None], points, NAN)
        at_corners = dense(boxes, dims)[0][:5]
        points = np.concatenate([whole, at_corners])
        assert found(part, points) == expected(boxes, points)

    run()


@pytest.mark.parametrize(
    "dims, constrained", [(1, 1), (2, 2), (5, 5), (8, 3), (20, 6), (20, 9), (80, 9), (256, 2)]
)
@pytest.mark.parametrize("points", [1, 40])
def test_some_of_many_attributes(dims: int, constrained: int, points: int) -> None:
    boxes = some_boxes(COUNT, dims, constrained, seed=dims)
    part = Bitmaps.of(boxes, dims)
    part.check()
    asked = some_points(points, dims, seed=3)
    assert found(part, asked) == expected(boxes, asked)


@pytest.mark.parametrize("count", [1, 63, 64, 65, TILE - 1, TILE, TILE + 1, 2 * TILE + 1])
def test_whole_words_and_tiles(count: int) -> None:
    boxes = some_boxes(count, 2, 2, seed=count)
    part = Bitmaps.of(boxes, 2)
    part.check()
    points = some_points(20, 2, seed=4)
    assert found(part, points) == expected(boxes, points)


def test_more_than_a_block() -> None:
    """The boxes are few under the JIT's absence: then one block has to do."""
    boxes = some_boxes(COUNT if SMALL else 2 * BLOCK + 100, 3, 3, seed=1, values=50)
    part = Bitmaps.of(boxes, 3)
    part.check()
    points = some_points(30, 3, seed=2, values=50)
    assert found(part, points) == expected(boxes, points)


def test_more_keys_than_wait_at_once() -> None:
    """The search stops in the midst of a block to verify, and goes on."""
    boxes = boxes_of(np.zeros((COUNT, 2)), np.ones((COUNT, 2)))
    points = np.full((60, 2), 0.5)
    points[::7] = NAN
    assert COUNT * len(points) > bitmaps_kernels._ROOM
    assert found(Bitmaps.of(boxes, 2), points) == expected(boxes, points)


def test_many_points_pass_together() -> None:
    boxes = some_boxes(COUNT, 6, 3, seed=1)
    points = some_points(11 if SMALL else bitmaps_kernels._ROWS + 3, 6, seed=2)
    part = Bitmaps.of(boxes, 6)
    assert found(part, points) == expected(boxes, points)


def test_no_box_and_no_point() -> None:
    part = Bitmaps.of(boxes_of(np.empty((0, 3)), np.empty((0, 3))), 3)
    part.check()
    assert found(part, some_points(5, 3, seed=1)) == []
    assert found(Bitmaps.of(some_boxes(5, 3, 2, seed=1), 3), np.empty((0, 3))) == []


def test_neighbouring_floats() -> None:
    """Far more of them than windows."""
    ends = [0.0]
    for _ in range(COUNT):
        ends.append(float(np.nextafter(ends[-1], INF)))
    lo = np.array(ends[:-1])[:, None]
    boxes = boxes_of(np.repeat(lo, 2, axis=1), np.repeat(np.array(ends[1:])[:, None], 2, axis=1))
    points = np.repeat(np.array([-TINY, -0.0, *ends[::9], 1.0])[:, None], 2, axis=1)
    assert found(Bitmaps.of(boxes, 2), points) == expected(boxes, points)


def test_a_missing_attribute() -> None:
    """It is in a box that is open below, in one that leaves it free, and in no other."""
    boxes = boxes_of(
        np.array([[0.0, 0.0], [-INF, 0.0], [-INF, 0.0], [LOWEST, 0.0]]),
        np.array([[9.0, 9.0], [INF, 9.0], [9.0, 9.0], [9.0, 9.0]]),
    )
    assert found(Bitmaps.of(boxes, 2), np.array([[-INF, 1.0]])) == [(0, 1), (0, 2)]


def test_removed_boxes_by_version() -> None:
    boxes = some_boxes(COUNT, 4, 2, seed=8)
    part = Bitmaps.of(boxes, 4)
    assert (part.removed_at == NEVER).all() and part.removed_at.dtype == np.int32
    own = part.boxes()
    part.removed_at[::2], part.removed_at[::3] = 3, 5
    points = some_points(25, 4, seed=9)
    for version in (0, 2, 3, 4, 5, 6):
        assert found(part, points, version) == expected(own, points, part.removed_at > version)


def test_its_boxes_are_those_given() -> None:
    boxes = some_boxes(COUNT, 7, 4, seed=2)
    assert columns(in_order(Bitmaps.of(boxes, 7).boxes())) == columns(in_order(boxes))


def test_order_does_not_matter() -> None:
    boxes = some_boxes(COUNT, 5, 3, seed=11)
    boxes = Sparse(boxes.slots // 3, boxes.starts, boxes.attributes, boxes.lo, boxes.hi)
    shuffled = taken(boxes, np.random.default_rng(0).permutation(len(boxes)))
    one, other = Bitmaps.of(boxes, 5), Bitmaps.of(shuffled, 5)
    assert columns(one.boxes()) == columns(other.boxes())
    assert all(np.array_equal(a, b) for a, b in zip(one._bits, other._bits, strict=True))


def test_check_sees_a_wrong_bit() -> None:
    part = Bitmaps.of(some_boxes(COUNT, 4, 2, seed=3), 4)
    for column in ("lines", "hulls"):
        words = getattr(part._bits, column)
        words.flat[len(words) // 2] ^= np.uint64(1 << 7)
        with pytest.raises(AssertionError):
            part.check()
        words.flat[len(words) // 2] ^= np.uint64(1 << 7)
    part.check()


def let_through(part: Bitmaps, points: Points) -> int:
    """How many pairs of a point and a box the bits leave."""
    for column in part._bits:  # in a tuple, a kernel takes what it only reads if nobody can write it
        column.flags.writeable = False
    steps = np.empty(points.shape, np.uint16)
    locate(part._cuts, part._scales, points, steps)
    bits, together = part._bits, 3
    cursor, looks = np.zeros(4, np.int64), np.empty((64 * together, len(points)), np.uint16)
    queue, counts = np.empty(64 * together, np.uint16), np.zeros(64 * together, np.uint16)
    table = np.empty((together * len(points), len(bits.attribute)), np.uint16)
    waiting = np.empty((4, SETS * WORDS), np.uint64)
    keys = np.empty(bitmaps_kernels._ROOM + TILE * (len(points) + SETS), np.int64)
    count = 0
    while cursor[STOP_BLOCK] < len(bits.blocks):
        look(bits, steps, cursor, queue, table, looks, counts)
        while cursor[NEXT] < cursor[QUEUED]:
            count += int(sweep(bits, cursor, queue, table, looks, counts, waiting, 0, keys))
    assert not counts.any()
    return count


def random_boxes(count: int, dims: int, constrained: int, width: float) -> Sparse:
    rng = np.random.default_rng(7)
    lo, hi = np.full((count, dims), -INF), np.full((count, dims), INF)
    chosen = rng.random((count, dims)).argsort(axis=1)[:, :constrained]
    begin = rng.random((count, constrained)) * (1 - width)
    np.put_along_axis(lo, chosen, begin, axis=1)
    np.put_along_axis(hi, chosen, begin + width, axis=1)
    return boxes_of(lo, hi)


@pytest.mark.parametrize(
    "dims, constrained, width, most, bytes_a_box", [(4, 4, 0.3, 2.5, 130), (20, 5, 0.3, 8.0, 150)]
)
def test_little_is_let_through_and_stored(
    dims: int, constrained: int, width: float, most: float, bytes_a_box: int
) -> None:
    """Of a few boxes, which no bit tells apart yet, none may be missing all the same."""
    boxes = random_boxes(COUNT if SMALL else 30_000, dims, constrained, width)
    part = Bitmaps.of(boxes, dims)
    points = np.random.default_rng(8).random((40, dims))
    hits = len(found(part, points))
    left = let_through(part, points)
    assert left >= hits
    if not SMALL:
        assert left <= most * hits
        assert part.nbytes <= bytes_a_box * len(boxes)


@pytest.mark.parametrize(
    "dims, constrained, size", [(9, 2, 10), (9, 6, 30), (9, 7, 2), (64, 8, 8), (64, 9, 8), (65, 9, 9)]
)
def test_what_is_kept_of_attributes(dims: int, constrained: int, size: int) -> None:
    """With steps, as a set, or as they are: bytes a box. Either way the answer is exact."""
    boxes = some_boxes(COUNT // 5, dims, constrained, seed=1)
    boxes = taken(boxes, np.flatnonzero(np.diff(boxes.starts) == constrained))
    part = Bitmaps.of(boxes, dims)
    part.check()
    assert len(part._exact.near) == size * len(boxes)
    assert columns(in_order(part.boxes())) == columns(in_order(boxes))
    points = some_points(30, dims, seed=2)
    assert found(part, points) == expected(part.boxes(), points)


@pytest.mark.parametrize("constrained", [1, 3, 8])
def test_where_entries_begin_is_kept_only_if_it_differs(constrained: int) -> None:
    mixed = some_boxes(COUNT // 5, 9, constrained, seed=5)
    widths = np.diff(mixed.starts)
    alike = taken(mixed, np.flatnonzero(widths == constrained))
    for boxes in (mixed, alike, taken(alike, np.arange(1))):
        part = Bitmaps.of(boxes, 9)
        part.check()
        differs = len(set(np.diff(boxes.starts).tolist())) > 1
        assert (len(part._exact.offsets) > 0) == differs
        assert columns(in_order(part.boxes())) == columns(in_order(boxes))
        points = some_points(40, 9, seed=2)
        assert found(part, points) == expected(boxes, points)


def full_boxes(count: int, dims: int, *, seed: int) -> Sparse:
    """Every box constrains every attribute; slots fall where numbers rise."""
    rng = np.random.default_rng(seed)
    lo = rng.integers(0, 8, (count, dims)) + rng.choice([0.0, 1e-9, 0.25], (count, dims))
    return sparse(
        np.arange(count, 0, -1, dtype=np.int32) * 3, lo, lo + rng.choice([1e-6, 1.0, 6.0], lo.shape)
    )


@pytest.mark.parametrize("dims", [1, 2, 3, 4, 5, 6, 7])
@pytest.mark.parametrize("count", [1, 2, 4, 8, COUNT])
def test_boxes_that_constrain_every_attribute(dims: int, count: int) -> None:
    """What is kept of them is in another form, up to six attributes; whoever is removed is not found."""
    boxes = full_boxes(count, dims, seed=dims)
    part = Bitmaps.of(boxes, dims)
    part.check()
    if dims <= 6:
        assert len(part._exact.near) == 4 * (dims + 1) * count + 8
    assert columns(in_order(part.boxes())) == columns(in_order(boxes))
    rng = np.random.default_rng(count)
    lo, hi = dense(boxes, dims)
    chosen = rng.integers(0, count, 60)
    points = np.where(rng.random((60, dims)) < 0.5, lo[chosen], np.nextafter(hi[chosen], -INF))
    points[:20] = (lo[chosen[:20]] + hi[chosen[:20]]) / 2
    points[20:30] = np.where(rng.random((10, dims)) < 0.2, hi[chosen[20:30]], points[20:30])
    points[30:32] = NAN
    answer = expected(boxes, points)
    assert len(answer) >= 20
    assert found(part, points) == answer
    for row in range(60):
        assert found(part, points[row : row + 1]) == [(0, slot) for own, slot in answer if own == row]
    part.removed_at[::2] = 3
    assert found(part, points, 2) == answer
    assert found(part, points, 3) == expected(part.boxes(), points, part.removed_at > 3)


def test_values_beside_the_ends() -> None:
    """Ends within one step, where only the comparison tells, and values just inside and outside of them."""
    rng = np.random.default_rng(6)
    lo = rng.random((COUNT, 2))
    hi = lo + rng.choice([1e-15, 1e-6, 0.1], (COUNT, 2))
    boxes = boxes_of(lo, hi)
    ends = np.concatenate([lo[:40], hi[:40]])
    points = np.concatenate([ends, np.nextafter(ends, -INF), np.nextafter(ends, INF)])
    assert found(Bitmaps.of(boxes, 2), points) == expected(boxes, points)


# ---- instructions, in no ``kernel``: the cache of those does not see that an instruction has changed


@njit(
    types.int64(
        reads(types.uint64, 2), types.uint64, reads(types.uint16, 2), types.int64, writes(types.uint64, 2)
    )
)
def lowest_met(lines, base, table, row, waiting):  # type: ignore[no-untyped-def]
    """The first box that is in all lines of a row of the table, -1 if there is none."""
    prefetch(lines, base)
    if not meet(lines, base, table, np.uint64(row), np.uint64(table.shape[1]), waiting, np.uint64(1)):
        return -1
    for word in range(8):
        if waiting[0, 8 + word] != 0:
            return 64 * word + np.int64(lowest(waiting[0, 8 + word]))
    return -2


@pytest.mark.parametrize("rows", [1, 3, 8, 21])
@pytest.mark.parametrize("row", [0, 2])
def test_lines_that_meet(rows: int, row: int) -> None:
    """The instructions do what they say, and so do their slow twins; also where the highest bit is alone."""
    rng = np.random.default_rng(rows)
    inside = rng.random((40, TILE)) < 0.9
    inside[:, -1] = True
    table = rng.integers(0, 33, (3, rows)).astype(np.uint16)
    waiting = np.zeros((4, 3 * WORDS), np.uint64)
    for chosen in (inside, inside & (np.arange(TILE) == TILE - 1), inside & False):
        lines = np.packbits(chosen, axis=1, bitorder="little").view(np.uint64)
        expected = chosen[7 + table[row]].all(axis=0)
        first = lowest_met(lines, np.uint64(7), table, row, waiting)
        assert first == (int(np.argmax(expected)) if expected.any() else -1)
        assert np.array_equal(
            np.unpackbits(waiting[0, 8:16].view(np.uint8), bitorder="little") == 1, expected
        )
        assert not waiting[0, :8].any() and not waiting[0, 16:].any() and not waiting[1:].any()


@njit(types.uint64(reads(types.uint8, 1), types.uint64, types.uint64, reads(types.uint16, 2), types.uint64))
def depth_of(near, at, width, steps, row):  # type: ignore[no-untyped-def]
    return depth(near, at, width, steps, row)


@pytest.mark.parametrize("width", range(1, 10))
def test_how_deep_a_point_is_in_a_box(width: int) -> None:
    """In each attribute on either step, just inside, just outside, and far away; what lies behind is nobody's
    business."""
    steps = np.full((8, width), 30_000, np.uint16)
    ends = np.stack([np.full(width, 20_000), np.full(width, 40_000)]).astype(np.uint16)
    ends[0, -1], ends[1, -1] = 0, 65_535
    for attribute in range(width):
        low, high = ends[:, attribute].astype(int).tolist()
        for step, inside in [
            *[(low, 1), (high, 1), (low + 1, 2), (high - 1, 2)],
            *[(low - 1, 0), (high + 1, 0), (0, 0), (65_535, 0)],
        ]:
            if not 0 <= step <= 65_535 or (step in (low, high) and inside == 0):
                continue
            steps[:] = 30_000
            steps[1, attribute] = step
            for behind in (0, 255):
                near = np.full(6 + 4 * width + 8, behind, np.uint8)
                near[6 : 6 + 4 * width] = ends.view(np.uint8).ravel()
                found = depth_of(near, np.uint64(6), np.uint64(width), steps, np.uint64(1))
                assert found == inside, (attribute, step)
                assert depth_of(near, np.uint64(6), np.uint64(width), steps, np.uint64(0)) == 2


# ---- windows

_ENDS = st.sampled_from([-INF, LOWEST, -1.0, -TINY, 0.0, TINY, 1.0, 2.0, MOST, INF]) | st.floats(
    allow_nan=False
)


@QUICK
@given(
    sides=st.lists(st.tuples(_ENDS, _ENDS).filter(lambda side: side[0] != side[1])), values=st.lists(_ENDS)
)
def test_windows_are_monotone_and_spans_miss_nothing(
    sides: list[tuple[float, float]], values: list[float]
) -> None:
    boxes = boxes_of(
        np.array([[min(side)] for side in sides]).reshape(-1, 1),
        np.array([[max(side)] for side in sides]).reshape(-1, 1),
    )
    cuts = chosen_cuts(boxes, 1)
    spans = spans_of(boxes, cuts)
    points = np.array(sorted([*values, *boxes.lo, *boxes.hi, -INF, INF]))[:, None]
    steps = np.empty(points.shape, np.uint16)
    locate(cuts, scales_of(cuts), points, steps)
    assert (np.diff(steps[:, 0].astype(int)) >= 0).all()
    assert ((steps == 0) == (points == -INF)).all()
    inside = (boxes.lo <= points) & (points < boxes.hi)
    assert ((spans[:, 0] <= steps) & (steps <= spans[:, 1]))[inside].all()
    assert inside[(spans[:, 0] < steps) & (steps < spans[:, 1])].all()


def test_steps_divide_a_window() -> None:
    """Ends lie so close that few values share a step with an end: most need no comparison."""
    boxes = random_boxes(COUNT, 1, 1, 0.1)
    cuts = chosen_cuts(boxes, 1)
    points = np.random.default_rng(9).random((500, 1))
    steps = np.empty(points.shape, np.uint16)
    locate(cuts, scales_of(cuts), points, steps)
    low, high = spans_of(boxes, cuts).T
    unsure = (low == steps) | (steps == high)
    assert unsure.mean() < 1e-3
    assert len(np.unique(steps)) > 450


def test_codes_have_a_window_each() -> None:
    """200 codes, one of them in most of the boxes."""
    codes = np.concatenate([np.arange(200.0), np.full(COUNT, 7.0)])[:, None]
    boxes = boxes_of(codes, codes + 1)
    spans = spans_of(boxes, chosen_cuts(boxes, 1)) >> 8
    assert (spans[:, 0] == spans[:, 1]).all()
    assert len(np.unique(spans)) == 200


def test_cuts_are_where_the_boxes_are() -> None:
    """Nine boxes in ten lie in a thousandth of the axis."""
    lo = np.random.default_rng(1).random((COUNT, 1))
    lo[: COUNT * 9 // 10] /= 1000
    cuts = chosen_cuts(boxes_of(lo, lo + 1e-6), 1)[0]
    assert (cuts <= 0.001).sum() > 0.8 * min(WINDOWS, 2 * COUNT)


# ---- groups, tiles, rows


def slow_groups(boxes: Sparse, shared: list[list[int]]) -> list[int]:
    """The first group that the box constrains all attributes of."""
    signatures = [set(boxes.attributes[a:b].tolist()) for a, b in pairwise(boxes.starts.tolist())]
    return [next(g for g, group in enumerate(shared) if set(group) <= own) for own in signatures]


@pytest.mark.parametrize("dims, constrained", [(3, 3), (12, 4), (200, 3), (256, 40)])
def test_every_box_is_in_the_first_group_that_it_fits(dims: int, constrained: int) -> None:
    boxes = some_boxes(COUNT, dims, constrained, seed=dims)
    groups = groups_of(boxes, np.full(dims, 0.2), TILE)
    assert groups.of.tolist() == slow_groups(boxes, groups.shared)
    assert all(group == sorted(set(group)) for group in groups.shared)
    assert set(groups.of.tolist()) == set(range(len(groups.shared)))


def test_signatures_that_are_frequent_are_groups() -> None:
    """Three kinds of boxes, each in a group that shares all that its boxes constrain."""
    kinds = [[0, 1], [1, 2, 3], [5, 70, 255]]
    count = 1200
    starts = np.concatenate([[0], np.cumsum([len(kinds[i % 3]) for i in range(count)])])
    attributes = np.concatenate([kinds[i % 3] for i in range(count)]).astype(np.uint8)
    lo = np.zeros(len(attributes))
    boxes = Sparse(np.arange(count, dtype=np.int32), starts, attributes, lo, lo + 1)
    assert sorted(groups_of(boxes, np.full(256, 0.1), TILE).shared) == kinds


def test_a_wide_attribute_is_not_worth_sharing() -> None:
    boxes = some_boxes(COUNT, 2, 2, seed=5)
    both = boxes.starts[1:] - boxes.starts[:-1] == 2
    boxes = taken(boxes, np.flatnonzero(both))
    assert groups_of(boxes, np.array([1.0, 0.01]), TILE).shared == [[1]]


def test_tiles_are_small() -> None:
    rng = np.random.default_rng(3)
    low = rng.integers(0, 240, (COUNT, 3, 1))
    spans = np.concatenate([low, low + rng.integers(0, 15, low.shape)], axis=2).astype(np.uint8)
    order = tiled(spans, 2, 16)
    assert np.array_equal(np.sort(order), np.arange(COUNT))

    def area(spans: np.ndarray) -> float:
        first = np.arange(0, COUNT, 16)
        low = np.minimum.reduceat(spans[:, :2, 0].astype(int), first)
        high = np.maximum.reduceat(spans[:, :2, 1].astype(int), first)
        return float((high - low + 1).prod(axis=1).mean())

    assert area(spans[order]) < area(spans) / 4


def test_tiles_of_equal_boxes() -> None:
    spans = np.tile(np.array([3, 9], np.uint8), (1000, 2, 1))
    assert np.array_equal(np.sort(tiled(spans, 2, TILE)), np.arange(1000))


@pytest.mark.parametrize("room", [0.0, 2.0, 5.0, 24.0])
@pytest.mark.parametrize("boxes", [1, 300, 100_000])
def test_rows_stay_within_their_room(boxes: int, room: float) -> None:
    density = np.array([1.0, 0.0, 1.0, 0.5, 0.01, 0.9])
    rows = chosen_rows(boxes, [0, 2], density, np.full(6, 0.3), tile=TILE, room=room)
    assert rows.attributes[:2] == [0, 2]
    assert len(set(rows.attributes)) == len(rows.attributes) == len(rows.windows)
    assert 1 not in rows.attributes
    assert set(rows.windows) <= {8, 16, 32, 64} and (LEAST_WINDOWS, MOST_WINDOWS) == (8, 64)
    assert sum(rows.windows) / 8 <= max(room, 2.0)


def test_rows_go_where_they_tell_most() -> None:
    density = np.array([1.0, 1.0, 0.9, 0.1])
    rows = chosen_rows(100_000, [0, 1], density, np.array([0.02, 1.0, 0.1, 0.1]), tile=TILE, room=24.0)
    windows = dict(zip(rows.attributes, rows.windows, strict=True))
    assert windows[0] == MOST_WINDOWS  # narrow
    assert windows[1] == LEAST_WINDOWS  # covers everything
    assert windows[2] >= windows.get(3, 0)
