"""VCR as it files and searches: the plane, the kinds of ID lists, and that ``check`` sees what is wrong."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.index.box.vcr import VCR, Decomposition, prime_from
from service.index.box.vcr_check import check
from service.index.box.vcr_encoding import Rectangle, decomposition, vcr_id
from service.index.box.vcr_grid import (
    ENTRIES_A_BOX,
    MOST_ENTRIES_A_BOX,
    Fit,
    Wish,
    fitted,
    id_count,
    pivots_of,
    rects_of,
)
from service.index.box.vcr_kernels import Plane, id_of
from service.index.box.vcr_lists import Lists, VcrFiling
from service.index.box.vcr_search_kernels import Hashed, bucket_of, ones
from service.index.interval.cei_grid import LEAST_STEP, MOST_STEP
from service.index.interval.cei_kernels import Grid
from service.index.protocol import Bounds
from tests.index.worlds import INF, LOWEST, MOST, NAN, QUICK, SMALL, TINY, ends, grid_boxes, slots

WHOLE = Grid(0.0, 1.0, 24, 0)
"""Cells of length one; those of 0 and on are the third and on."""
SHIFT = 2
BOTH = [(False, Lists.ARRAY), (True, Lists.ARRAY), (False, Lists.BITS), (True, Lists.HASHED)]


def filing(lo: Bounds, hi: Bounds, plane: Plane, lists: Lists, *, overlapped: bool) -> VcrFiling:
    """Boxes on the whole numbers of a plane."""
    rects = rects_of(lo, hi, (WHOLE, WHOLE))
    return VcrFiling(Fit((WHOLE, WHOLE), plane, rects), lists, overlapped=overlapped, hash_size=7)


@pytest.mark.parametrize(("overlapped", "lists"), BOTH)
def test_whole_numbers_are_filed_as_in_the_papers(overlapped: bool, lists: Lists) -> None:
    """Ids and all, and nothing is compared."""
    longest = (4, 2)
    plane = Plane(24, 24, 2, 1)
    values = [float(x) for x in (0, 1, 3, 4, 9, 15)]
    lo, hi = grid_boxes(values, 2)
    made = filing(lo, hi, plane, lists, overlapped=overlapped)
    made.check(lo, hi)
    assert (made.constructs.entries >= 0).all()
    under: dict[int, set[int]] = {}
    for box, ((x, y), (right, top)) in enumerate(zip(lo.astype(int), hi.astype(int), strict=True)):
        rectangle = Rectangle(int(x) + SHIFT, int(y) + SHIFT, int(right - x), int(top - y))
        for vcr in decomposition(rectangle, longest, overlapped=overlapped):
            # Ly rows lie below the plane.
            id = vcr_id(vcr._replace(y=vcr.y + longest[1]), range_x=24, longest=longest)
            under.setdefault(id, set()).add(box)
    lists_of = zip(made.constructs.lists[:-1], made.constructs.lists[1:], strict=True)
    found = [set(made.constructs.entries[first:stop].tolist()) for first, stop in lists_of if first < stop]
    assert made.activated == len(under) == len(found)
    assert made.entries == sum(map(len, under.values()))
    if isinstance(made.constructs, Hashed):
        assert dict(zip(made.constructs.ids.tolist(), found, strict=True)) == under
    else:
        assert found == [under[id] for id in sorted(under)]


def test_only_what_an_end_cuts_is_compared() -> None:
    """The box [2.5, 9) by [1, 5): its left end cuts the cell of 2, the others fall on whole numbers."""
    lo, hi = np.array([[2.5, 1.0]]), np.array([[9.0, 5.0]])
    made = filing(lo, hi, Plane(24, 24, 1, 2), Lists.ARRAY, overlapped=False)
    made.check(lo, hi)
    # The sides are 7 and 4 cells: pieces of 2, 2, 2 and 1, of which the first is cut, times one of 4.
    assert made.constructs.entries.tolist() == [~0, 0, 0, 0]


def test_ids_do_not_collide_at_the_borders_of_the_plane() -> None:
    """A VCR beyond the left border has the id of one that reaches beyond the right: never one that fits."""
    plane = Plane(8, 3, 2, 1)
    fits = {
        int(id_of(x, y, i, j, plane))
        for x, y, i, j in product(range(8), range(3), range(3), range(2))
        if x + (1 << i) <= 8 and y + (1 << j) <= 3
    }
    for x, y, i, j in product(range(-3, 8), range(-1, 3), range(3), range(2)):
        id = int(id_of(x, y, i, j, plane))
        assert 0 <= id < id_count(plane)
        if x < 0 or y < 0:
            # Those that cover a cell of the plane reach it.
            assert x + (1 << i) <= 0 or y + (1 << j) <= 0 or id not in fits


def test_pivots() -> None:
    plane = Plane(24, 24, 2, 1)
    points = np.array([[5.5, 7.0], [-INF, LOWEST], [INF, 1.0], [1.0, NAN], [NAN, INF], [MOST, 0.0]])
    pivots = pivots_of(points, (WHOLE, WHOLE), plane)
    assert pivots.tolist() == [
        id_of(5 + SHIFT - 3, 7 + SHIFT - 1, 0, 0, plane),
        id_of(0 - 3, 1 - 1, 0, 0, plane),
        -1,
        -1,
        -1,
        id_of(23 - 3, 0 + SHIFT - 1, 0, 0, plane),
    ]


def test_a_bucket_is_within_the_table_and_no_id_overflows() -> None:
    ids = [0, 1, 2**31 - 1, 2**31, 2**50, 2**62]
    for size in (1, 7, 1_800_017, 2**31 - 1):
        with np.errstate(all="raise"):
            assert all(0 <= bucket_of(np.int64(id), size) < size for id in ids)


def test_neighbouring_ids_spread() -> None:
    """Activated VCRs cluster; their buckets should not."""
    size = prime_from(1000)
    buckets = {int(bucket_of(np.int64(id), size)) for id in range(500, 900)}
    # As many as 400 balls fill of 1,000 urns, or more: 330 on average.
    assert len(buckets) > 300


@given(word=st.integers(0, 2**32 - 1))
@QUICK
def test_ones(word: int) -> None:
    assert ones(np.int64(word)) == word.bit_count()


@pytest.mark.parametrize(
    "values",
    [
        [],
        [5.0],
        [5.0, 5.0, 5.0],
        [0.0, TINY],
        [LOWEST / 2, MOST / 2],
        [float(np.nextafter(LOWEST, 0)), float(np.nextafter(MOST, 0))],
        [1e300, float(np.nextafter(1e300, INF))],
        [LOWEST, INF],
        list(np.linspace(-1.0, 1.0, 50 if SMALL else 500)),
    ],
)
@pytest.mark.parametrize("step", [None, (LEAST_STEP, 0.3), (1.0, MOST_STEP)])
@pytest.mark.parametrize("longest", [None, (1, 64)])
@pytest.mark.parametrize("id_bytes", [0.0, 4.0])
def test_any_ends_give_a_plane(
    values: list[float],
    step: tuple[float, float] | None,
    longest: tuple[int, int] | None,
    id_bytes: float,
) -> None:
    lo = ends(values, 2)
    hi = np.full_like(lo, INF)
    lo[lo == INF] = MOST
    fit = fitted(lo, hi, Wish(step, longest, True, id_bytes))
    plane = fit.plane
    assert plane.range_x >= max(fit.grids[0].cells, 1 << plane.kx)
    assert longest is None or (1 << plane.kx, 1 << plane.ky) == longest
    first_x, stop_x, _, _, first_y, stop_y, _, _ = fit.rects.T
    assert (first_x >= 0).all() and (first_x < stop_x).all() and (stop_x <= plane.range_x).all()
    assert (first_y >= 0).all() and (first_y < stop_y).all() and (stop_y <= plane.range_y).all()
    widths, heights = stop_x - first_x, stop_y - first_y
    pieces = -(-widths // (1 << plane.kx)) * -(-heights // (1 << plane.ky))
    assert pieces.sum() <= max(16, ENTRIES_A_BOX if step is None else MOST_ENTRIES_A_BOX) * max(len(lo), 1)
    if id_bytes:
        assert id_count(plane) <= 8192 + 2048 * len(lo)


def test_memory_follows_the_boxes() -> None:
    """Whatever the steps ask for."""
    for lists in Lists:
        index = VCR(step=(1e-9, 1e-6), lists=lists, tail_limit=0)
        index.insert(slots(0, 1), ends([0.0, 1e9], 2), ends([1.0, INF], 2))
        index.check()
        assert index.nbytes < 400_000
        assert index.stab(ends([0.5, 1e9], 2)).slots.tolist() == [0, 1]


def test_wide_boxes_make_cells_coarse() -> None:
    count = 100 if SMALL else 1_000
    rng = np.random.default_rng(1)
    lo = rng.uniform(0, 1, (count, 2))
    index = VCR(tail_limit=0)
    index.insert(np.arange(count, dtype=np.int32), lo, lo + 100.0)
    index.check()
    assert index.filing.entries <= ENTRIES_A_BOX * count


def test_a_free_attribute_leaves_the_cells_to_the_other() -> None:
    count = 100 if SMALL else 1_000
    lo = ends(np.arange(count, dtype=np.float64), 2)
    hi = lo + 1.0
    lo[:, 1], hi[:, 1] = -INF, INF
    index = VCR(tail_limit=0)
    index.insert(np.arange(count, dtype=np.int32), lo, hi)
    index.check()
    assert index.filing.plane.range_y == 4
    assert index.filing.plane.range_x > count / 8


def test_wider_boxes_ask_for_larger_rectangles() -> None:
    """VCR paper, Sect. 3.2."""
    count = 200 if SMALL else 2_000
    rng = np.random.default_rng(2)
    lo = np.floor(rng.uniform(0, 60, (count, 2)))
    lengths = []
    for widest in (2, 10, 40):
        index = VCR(step=(1.0, 1.0), tail_limit=0)
        index.insert(np.arange(count, dtype=np.int32), lo, lo + rng.integers(1, widest + 1, lo.shape))
        lengths.append((index.filing.plane.kx, index.filing.plane.ky))
    assert lengths == sorted(lengths)
    assert lengths[0] < lengths[1] < lengths[2]


def test_overlapped_decomposition_activates_less() -> None:
    """VCR paper, Sect. 3.5."""
    count = 100 if SMALL else 1_000
    rng = np.random.default_rng(3)
    lo = np.floor(rng.uniform(0, 60, (count, 2)))
    hi = lo + rng.integers(1, 21, lo.shape)
    activated = {}
    for kind in Decomposition:
        index = VCR(decomposition=kind, step=(1.0, 1.0), longest=(8, 8), tail_limit=0)
        index.insert(np.arange(count, dtype=np.int32), lo, hi)
        activated[kind] = index.filing.activated
    assert activated[Decomposition.OVERLAPPED] < activated[Decomposition.SIMPLE]


@pytest.mark.parametrize(("overlapped", "lists"), BOTH)
def test_check_sees_what_is_wrong(overlapped: bool, lists: Lists) -> None:
    values = [0.0, 1.0, 3.5, 4.0, 9.0]
    lo, hi = grid_boxes(values, 2)
    plane = Plane(24, 24, 1, 1)
    fit = Fit((WHOLE, WHOLE), plane, rects_of(lo, hi, (WHOLE, WHOLE)))
    good = filing(lo, hi, plane, lists, overlapped=overlapped).constructs
    check(good, fit, lo, hi, overlapped=overlapped)

    def refused(**wrong: np.ndarray) -> None:
        for array in wrong.values():
            array.flags.writeable = False
        with pytest.raises(AssertionError):
            check(good._replace(**wrong), fit, lo, hi, overlapped=overlapped)

    refused(entries=good.entries[::-1].copy())
    for change in (lambda entries: ~entries, lambda entries: entries // 2):
        one_wrong = good.entries.copy()
        one_wrong[len(one_wrong) // 2] = change(one_wrong[len(one_wrong) // 2])
        refused(entries=one_wrong)
    refused(lists=np.roll(good.lists, 1))
    refused(entries=good.entries[:-1].copy(), lists=np.minimum(good.lists, len(good.entries) - 1))
    with pytest.raises(AssertionError):
        check(good._replace(entries=good.entries.copy()), fit, lo, hi, overlapped=overlapped)
    with pytest.raises(AssertionError):
        check(good, fit, lo, hi, overlapped=not overlapped)


def test_primes() -> None:
    assert [prime_from(least) for least in (0, 1, 2, 3, 4, 14, 90)] == [2, 2, 2, 3, 5, 17, 97]
    assert prime_from(1_800_000) == 1_800_017


def test_refused_parameters() -> None:
    for length in (0, -4, 3, 128):
        with pytest.raises(ValueError, match="longest"):
            VCR(longest=(4, length))
    for step in (0.0, -1.0, INF, NAN):
        with pytest.raises(ValueError, match="step"):
            VCR(step=(1.0, step))
    for size in (0, -1, 2**31):
        with pytest.raises(ValueError, match="hash_size"):
            VCR(lists=Lists.HASHED, hash_size=size)
