"""The grid and the lengths of virtual construct intervals, chosen so that memory stays proportional to boxes.

Idea: values become cells as under CEI (``cei_grid``), exactly. Other than CEI, where a box takes two entries
a level at most, these structures take about ``w / L`` entries for a box of w cells. So the grid that CEI
would have is made coarser, by powers of two, until the mean is within a limit: fewer entries for more ends a
cell. Answers do not depend on it.

L is chosen by the papers' trade-off: a longer L means fewer entries and more lists, and more lists to look
at. Of the powers of two up to a cap it is the one with the least storage.

Not for: mapping values (``cei_grid``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.index.interval.cei_grid import LEAST_STEP, MOST_STEP, chosen_grid, spans_of
from service.index.interval.cei_kernels import Grid, cells_of
from service.index.protocol import Bounds, Points

Lengths = Callable[[int], Sequence[int]]

ENTRIES_A_BOX = 32
"""The mean number of entries that a chosen grid allows."""
MOST_ENTRIES_A_BOX = 1024
"""The mean number of entries up to which a given step is taken as it is."""
_LIST_BYTES, _ENTRY_BYTES = 8, 4


class Fit(NamedTuple):
    """A grid, the lengths of the intervals over it, and where the boxes are: ``spans`` as of ``spans_of``."""

    grid: Grid
    lengths: NDArray[np.int64]
    spans: NDArray[np.int64]


def require_step(step: float | None) -> None:
    """ValueError unless a given step is within what a grid can have."""
    if step is not None and not LEAST_STEP <= step <= MOST_STEP:
        raise ValueError(f"step must be within {LEAST_STEP} and {MOST_STEP}, not {step}")


def fitted(lo: Bounds, hi: Bounds, *, step: float | None, choices: Sequence[Sequence[int]]) -> Fit:
    """The grid for n boxes ``float64[n, 1]`` and the best of some sets of lengths, the longest L last.

    ``step`` None is chosen; a given one is doubled while the boxes would take more than the most entries.
    O(n) for each time that the grid is made coarser, which is once or twice.
    """
    most = ENTRIES_A_BOX if step is None else MOST_ENTRIES_A_BOX
    low, high = lo[:, 0], hi[:, 0]
    grid = chosen_grid(low, high, step=step, segment_length=1)
    while True:
        spans = spans_of(low, high, grid)
        lengths, entries = _least_storage(spans, grid, choices)
        if entries <= most:
            return Fit(grid, lengths, spans)
        coarser = 2.0 ** math.ceil(math.log2(entries / most)) / grid.scale
        if coarser <= MOST_STEP:
            grid = chosen_grid(low, high, step=coarser, segment_length=1)
        else:
            # Ends all over float64: the cells beyond a few, where no step is long enough, become one.
            grid = grid._replace(cells=max(4, int(grid.cells * most / entries)))


def cells_of_points(points: Points, grid: Grid) -> NDArray[np.int64]:
    """The cell of each point ``float64[m, 1]``, -1 where it is in no box: NaN and inf. O(m)."""
    values = points[:, 0]
    cells = np.empty(len(values), np.int64)
    somewhere = values < np.inf
    if somewhere.all():
        cells_of(np.ascontiguousarray(values), grid, cells)
    else:
        cells_of(np.where(somewhere, values, -np.inf), grid, cells)
        cells[~somewhere] = -1
    return cells


def _least_storage(
    spans: NDArray[np.int64], grid: Grid, choices: Sequence[Sequence[int]]
) -> tuple[NDArray[np.int64], float]:
    """The lengths that take the fewest bytes, and their mean number of entries a box."""
    counts = np.bincount(np.maximum(spans[:, 1] - spans[:, 0], 0))
    widths = np.flatnonzero(counts)
    best: tuple[float, tuple[int, ...], int] | None = None
    for lengths in choices:
        entries = int(_pieces(widths, lengths) @ counts[widths])
        storage = _LIST_BYTES * grid.cells * len(lengths) + _ENTRY_BYTES * entries
        if best is None or storage < best[0]:
            best = storage, tuple(lengths), entries
    assert best is not None
    return np.array(best[1], np.int64), best[2] / max(len(spans), 1)


def _pieces(widths: NDArray[np.int64], lengths: Sequence[int]) -> NDArray[np.int64]:
    """How many intervals each width decomposes into, the longest first."""
    pieces, remnants = np.zeros_like(widths), widths
    for length in reversed(lengths):
        whole, remnants = np.divmod(remnants, length)
        pieces += whole
    return pieces
