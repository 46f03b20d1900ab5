"""The grid under CEI: float64 ends onto the paper's integer axis, exactly.

Idea: any monotone map from values to cells will do. If c is the cell of a box's lower end and d that of the
largest float below its upper end, every value of a cell strictly between c and d is in the box, and no value
of a cell outside c .. d is. So the cells between are covered whole, and decomposed as in the paper. An end
cell is covered whole too when the nearest float outside the box lies in another cell, which is so when the
end falls on a cell boundary; otherwise the end *cuts* the cell. Values beyond the grid share its first and
last cell. Nothing is ever rounded in a comparison, so overflow, huge and tiny steps cost time, never an
answer.

The alternative, ranks among the sorted ends as the integer axis, would need no cut cells but would move every
rank on each registration.

The grid is chosen from the ends: it spans all but the outermost 1/256 on either side (one stray end must not
stretch it), with a cell for two to four ends and a step that is a power of two, so that round ends fall on
cell boundaries. Twice to four times as many cells were no faster to search and took twice the memory.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from service.index.interval.cei_kernels import Grid, cells_of

MOST_CELLS = 1 << 22
_LEAST_CELLS = 1 << 10
LEAST_STEP = 2.0**-1000  # its reciprocal is finite
MOST_STEP = 2.0**1000
_HUGE = 1.7976931348623157e308


def chosen_grid(
    lo: NDArray[np.float64], hi: NDArray[np.float64], *, step: float | None, segment_length: int | None
) -> Grid:
    """The grid for n intervals ``[lo[i], hi[i])``, ``float64[n]``. What is None is chosen. O(n)."""
    ends = np.concatenate([lo, hi])
    ends = ends[np.abs(ends) < _HUGE]  # one-sided bounds say nothing about where values lie
    trimmed = len(ends) // 256
    if len(ends) == 0:
        low = high = 0.0
    else:
        ends.partition((trimmed, len(ends) - 1 - trimmed))
        low, high = float(ends[trimmed]), float(ends[-1 - trimmed])
    if step is None:
        wanted = max(1, min(len(ends) // 4, MOST_CELLS // 2))
        # Divided first: the difference of two finite ends may be infinite.
        gap = high / wanted - low / wanted
        step = 2.0 ** math.floor(math.log2(min(max(gap, LEAST_STEP), MOST_STEP)))
    origin = max(math.floor(low / step) * step, -_HUGE) if abs(low / step) < 2.0**53 else low
    # Whatever the step, memory is proportional to the boxes; what lies beyond shares the last cell.
    most = min(_LEAST_CELLS + 16 * len(ends), MOST_CELLS - 4)
    cells = int(min((high - origin) / step, most)) + 4
    length = segment_length or 1 << (cells - 1).bit_length()
    return Grid(origin, 1.0 / step, -(-cells // length) * length, length.bit_length() - 1)


def spans_of(lo: NDArray[np.float64], hi: NDArray[np.float64], grid: Grid) -> NDArray[np.int64]:
    """``int64[n, 4]`` for n intervals: the cells ``[start, stop)`` covered whole, and those that the lower
    and the upper end cut, -1 for none. An interval inside one cell is cut once, by its lower end. O(n)."""
    spans = np.empty((len(lo), 4), np.int64)
    start, stop, low_cut, high_cut = spans.T
    with np.errstate(over="ignore"):
        below, highest = np.nextafter(lo, -np.inf), np.nextafter(hi, -np.inf)
    first, last = _cells(lo, grid), _cells(highest, grid)
    cuts_low = (lo > -np.inf) & (_cells(below, grid) == first)
    cuts_high = (hi < np.inf) & (_cells(hi, grid) == last)
    start[:] = first + cuts_low
    stop[:] = last + 1 - cuts_high
    low_cut[:] = np.where(cuts_low, first, -1)
    high_cut[:] = np.where(cuts_high & ~(cuts_low & (first == last)), last, -1)
    return spans


def _cells(values: NDArray[np.float64], grid: Grid) -> NDArray[np.int64]:
    cells = np.empty(len(values), np.int64)
    with np.errstate(over="ignore"):  # only without the JIT
        cells_of(values, grid, cells)
    return cells
