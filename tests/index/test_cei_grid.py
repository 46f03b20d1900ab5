"""The grid under CEI: cells are monotone, and what counts as covered whole is so for every float."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.index.interval.cei import CEI
from service.index.interval.cei_encoding import decomposition
from service.index.interval.cei_grid import LEAST_STEP, MOST_CELLS, MOST_STEP, chosen_grid, spans_of
from service.index.interval.cei_kernels import Grid, cell_of
from service.index.interval.cei_lists import check, id_lists
from tests.index.worlds import INF, LOWEST, MOST, NAN, QUICK, SMALL, TINY, ends, slots

GRIDS = st.builds(
    Grid,
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-1000, 1000).map(lambda power: 2.0**power) | st.floats(1e-6, 1e6),
    st.sampled_from([4, 8, 64, 1024]),
    st.integers(0, 2),
)
VALUES = st.sampled_from([-INF, LOWEST, -1.0, -TINY, 0.0, 1.0, 2.0, MOST, INF]) | st.floats(allow_nan=False)


def slow_cell(x: float, grid: Grid) -> int:
    """The slow twin of ``cell_of``."""
    if x == -INF:
        return 0
    place = (x - grid.origin) * grid.scale
    if place < 0:
        return 1
    return 2 + int(place) if place < grid.cells - 3 else grid.cells - 1


def cell(x: float, grid: Grid) -> int:
    with np.errstate(over="ignore"):
        return int(cell_of(x, grid))


@QUICK
@given(grid=GRIDS, values=st.lists(VALUES, min_size=2))
def test_cells_are_monotone(grid: Grid, values: list[float]) -> None:
    cells = [cell(x, grid) for x in sorted(values)]
    assert cells == sorted(cells)
    assert cells == [slow_cell(x, grid) for x in sorted(values)]
    assert all(0 <= c < grid.cells for c in cells)
    assert all((c == 0) == (x == -INF) for c, x in zip(cells, sorted(values), strict=True))


@QUICK
@given(grid=GRIDS, sides=st.lists(st.tuples(VALUES, VALUES), min_size=1), values=st.lists(VALUES))
def test_spans_are_exact(grid: Grid, sides: list[tuple[float, float]], values: list[float]) -> None:
    """A cell covered whole has no value outside the box, a cell neither covered nor cut none inside."""
    intervals = [(min(side), max(side)) for side in sides if side[0] != side[1]]
    lo, hi = (np.array([side[i] for side in intervals], np.float64) for i in (0, 1))
    spans = spans_of(lo, hi, grid)
    near = [float(np.nextafter(x, to)) for x in (*lo, *hi) if abs(x) < MOST for to in (-INF, INF)]
    for x in (*values, *lo, *hi, *near):
        if x == INF:
            continue
        c = cell(x, grid)
        for (low, high), (start, stop, low_cut, high_cut) in zip(intervals, spans.tolist(), strict=True):
            if start <= c < stop:
                assert low <= x < high
            elif c not in (low_cut, high_cut):
                assert not low <= x < high


def test_ends_on_cell_boundaries_cut_nothing() -> None:
    """With whole numbers on cells of length one this is the paper's index, ids and all."""
    sides = [(float(a), float(b)) for a in range(12) for b in range(a + 1, 13)]
    lo, hi = ends([a for a, _ in sides], 1), ends([b for _, b in sides], 1)
    grid = Grid(0.0, 1.0, 16, 2)
    filed = id_lists(lo, hi, grid)
    check(filed, lo, hi)
    assert filed.lists[2 * grid.cells] == len(filed.entries)
    under: dict[int, list[int]] = {}
    for id in range(2 * grid.cells):
        for box in filed.entries[filed.lists[id] : filed.lists[id + 1]].tolist():
            under.setdefault(box, []).append(id)
    shift = 2  # the cells of -inf and of what is below the origin come first
    for box, (a, b) in enumerate(sides):
        assert under[box] == sorted(decomposition(int(a) + shift, int(b) + shift, 4))


def test_one_sided_and_free_boxes_are_never_compared() -> None:
    lo, hi = ends([-INF, LOWEST, 0.0, -INF, -INF], 1), ends([INF, INF, INF, 0.0, LOWEST], 1)
    spans = spans_of(lo[:, 0], hi[:, 0], Grid(0.0, 1.0, 16, 2))
    assert spans.tolist() == [
        [0, 16, -1, -1],
        [1, 16, -1, -1],
        [2, 16, -1, -1],
        [0, 2, -1, -1],
        [0, 1, -1, -1],
    ]


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
        [-1.0, 1.0],
        [LOWEST, INF],
        list(np.linspace(-1.0, 1.0, 1000)),
    ],
)
@pytest.mark.parametrize("step", [None, LEAST_STEP, 0.3, MOST_STEP])
@pytest.mark.parametrize("length", [None, 1, 64])
def test_any_ends_give_a_grid(values: list[float], step: float | None, length: int | None) -> None:
    lo = np.array(values, np.float64)
    hi = np.full(len(values), INF)
    grid = chosen_grid(lo, hi, step=step, segment_length=length)
    assert np.isfinite(grid.origin)
    assert 0.0 < grid.scale < INF
    assert 4 <= grid.cells <= 4096 + 32 * len(values)
    assert grid.cells % (1 << grid.k) == 0
    assert length is None or 1 << grid.k == length
    spans = spans_of(lo, hi, grid)
    assert ((spans >= -1) & (spans <= grid.cells)).all()


def test_a_stray_end_does_not_stretch_the_grid() -> None:
    lo = np.append(np.linspace(0.0, 1000.0, 999), [1e12])
    grid = chosen_grid(lo, lo + 1.0, step=None, segment_length=None)
    assert 1 / grid.scale < 10.0
    assert cell(500.0, grid) not in (cell(490.0, grid), cell(510.0, grid))


def test_memory_follows_the_boxes() -> None:
    """Whatever the step asks for."""
    index = CEI(step=1e-9, tail_limit=0)
    index.insert(slots(0, 1), ends([0.0, 1e9], 1), ends([1.0, INF], 1))
    index.check()
    assert index.nbytes < 200_000
    assert index.stab(ends([0.5, 1e9], 1)).slots.tolist() == [0, 1]


def test_a_bulk_of_boxes_is_filed_and_a_few_more_wait() -> None:
    count = 400 if SMALL else 3000
    index = CEI(tail_limit=count // 3)
    lo = ends(np.arange(count, dtype=np.float64), 1)
    index.insert(np.arange(count, dtype=np.int32), lo, lo + 3.0)
    index.check()
    filed = index.nbytes
    index.insert(slots(count, count + 1), ends([-1.0, 5.5], 1), ends([2.0, INF], 1))
    index.check()
    hits = index.stab(ends([1.0, 5.75, NAN], 1))
    assert hits.slots.tolist() == [0, 1, count, 3, 4, 5, count + 1]
    assert index.nbytes < 2 * filed


def test_refused_parameters() -> None:
    for length in (0, -4, 3, 2 * MOST_CELLS):
        with pytest.raises(ValueError, match="segment_length"):
            CEI(segment_length=length)
    for step in (0.0, -1.0, INF, NAN):
        with pytest.raises(ValueError, match="step"):
            CEI(step=step)
