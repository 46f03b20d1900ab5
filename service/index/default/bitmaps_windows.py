"""Windows: each attribute's axis in at most 256 pieces, and which of them a value or an interval lies in.

Idea: a *window* is what lies from one *cut* to the next. Cuts are quantiles of the ends of the boxes, so a
skewed attribute has its windows where its boxes are, and an attribute of few values (a category code) has one
window a value. A window between two cuts is divided into 256 equal *steps*. So a window number is a byte, and
with it as the higher byte, a step number two.

Invariants: the window of a value is the number of cuts at or below it. Its step is monotone in it. The *span*
of an interval ``[lo, hi)`` goes from the step of ``lo`` to that of the last value below ``hi``. So a value
inside has its step in the span, and one with a step strictly inside of the span is inside, on float64 as it
is. Window 0 holds -inf, a missing value, alone.

Not for: cells of equal size (``interval.cei_grid``), or deciding what is inside.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numpy.typing import NDArray

from service.index.default.bitmaps_kernels import write_spans
from service.index.default.part import Sparse
from service.index.kernel import kernel, reads, writes

WINDOWS = 256
STEPS = 256
"""Of a window."""
_CUTS = WINDOWS - 1
_MOST_SCALE = 2.0**900
_SAMPLE = 1 << 13
"""Constraints whose ends are looked at to place the cuts of an attribute."""

Windows = NDArray[np.uint8]
Spans = NDArray[np.uint16]
"""``uint16[c, 2]``, by constraint the first and the last step."""
Cuts = NDArray[np.float64]
"""``float64[dims, WINDOWS - 1]``, rising, NaN behind the last one."""

_LOWEST = -np.finfo(np.float64).max


def chosen_cuts(boxes: Sparse, dims: int) -> Cuts:
    """Cuts at the quantiles of the ends of the boxes. O(c + dims s log s) for c constraints, s of which are
    the sample of an attribute; beyond that number the order of the boxes says which."""
    counts = np.bincount(boxes.attributes, minlength=dims)
    steps = np.maximum(counts // _SAMPLE, 1)
    first = np.zeros(dims + 1, np.int64)
    np.cumsum(-(-counts // steps), out=first[1:])
    sample = np.empty((first[-1], 2))
    _sample(boxes.attributes, boxes.lo, boxes.hi, steps, first, sample)
    cuts = np.full((dims, _CUTS), np.nan)
    for attribute in range(dims):
        ends = sample[first[attribute] : first[attribute + 1]].ravel()
        ends = np.sort(ends[np.isfinite(ends)])
        values = np.unique(ends)
        if len(values) >= _CUTS:
            values = np.unique(ends[np.linspace(0, len(ends) - 1, _CUTS - 1).astype(np.intp)])
        # The lowest of all numbers is the first cut, so that -inf is alone below.
        values = np.concatenate([[_LOWEST], values[values > _LOWEST]])
        cuts[attribute, : len(values)] = values
    return cuts


def scales_of(cuts: Cuts) -> NDArray[np.float64]:
    """Steps in two units of value, by window: ``float64[dims, WINDOWS]``; 1 where it has no cut on a side.
    Of two units, because half of a value less half of another never overflows."""
    scales = np.ones((len(cuts), WINDOWS))
    gaps = cuts[:, 1:] / 2 - cuts[:, :-1] / 2
    least = STEPS / _MOST_SCALE
    scales[:, 1:-1] = np.where(gaps > least, STEPS / np.maximum(gaps, least), 1.0)
    return scales


def spans_of(boxes: Sparse, cuts: Cuts) -> Spans:
    """The first and last step of every constraint. O(c)."""
    spans = np.empty((len(boxes.lo), 2), np.uint16)
    with np.errstate(over="ignore"):  # only without the JIT: the float below the lowest is infinite
        write_spans(boxes.attributes, boxes.lo, boxes.hi, cuts, scales_of(cuts), spans)
    return spans


def windows_of(spans: Spans) -> Windows:
    """The first and last window of every constraint: ``uint8[c, 2]``. O(c)."""
    return (spans // STEPS).astype(np.uint8)


_FLOATS = reads(types.float64, 1)


@kernel(
    types.void(
        reads(types.uint8, 1),
        _FLOATS,
        _FLOATS,
        reads(types.int64, 1),
        reads(types.int64, 1),
        writes(types.float64, 2),
    )
)
def _sample(attributes, lo, hi, steps, first, sample):  # type: ignore[no-untyped-def]
    """Writes both ends of every ``steps[a]``-th constraint of attribute a, from row ``first[a]`` on."""
    seen = np.zeros(len(steps), np.int64)
    for entry in range(len(attributes)):
        a = attributes[entry]
        if seen[a] % steps[a] == 0:
            row = first[a] + seen[a] // steps[a]
            sample[row, 0] = lo[entry]
            sample[row, 1] = hi[entry]
        seen[a] += 1
