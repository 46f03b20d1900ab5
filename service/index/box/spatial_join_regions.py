"""Regions: a directory over runs of items, for both sides of the join.

Idea: items lie in an order in which neighbours are near, cut into *runs*. Of each run the directory keeps the
closed rectangle that holds it, of every eight neighbouring rectangles the one around them, and so on up. A
search for what meets a rectangle skips whole subtrees. Data and queries are dual (Sect. 4), so one directory
serves both: a cluster of points is held by its MBR, a run of boxes by ``[min lo, max hi]``, of which the
largest values inside are kept, so that both are closed.

For boxes that is the corner of the run's region of corner space that lies deepest in a spatial join window:
the window of ``[a, b]`` is ``lo <= b, hi > a`` (Lemma 2), and a region of corner space meets it when its
least ``lo`` and its largest ``hi`` do.

Invariants: level 0 has a rectangle a run, the next one an eighth as many, the last one at most eight. Each is
the least rectangle around what is below it.

Not for: searching (``spatial_join_kernels``).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.index.box.spatial_join_kernels import FANOUT_BITS
from service.index.box.spatial_join_types import Filed, read_only
from service.index.boxes import Boxes
from service.index.protocol import Bounds


class Regions(NamedTuple):
    """Rectangle i is ``ends[i, :d] .. ends[i, d:]``, closed. ``levels[l]`` is the first one of level l, and
    ``levels[-1]`` the number of all."""

    ends: NDArray[np.float64]
    levels: NDArray[np.int64]

    @property
    def nbytes(self) -> int:
        return self.ends.nbytes + self.levels.nbytes


def regions_of(low: Bounds, high: Bounds, run: int) -> Regions:
    """The directory over n closed rectangles ``float64[n, d]``, ``run`` of them a run. O(n d)."""
    lows, highs = [_grouped(np.minimum, low, run)], [_grouped(np.maximum, high, run)]
    while len(lows[-1]) > 1 << FANOUT_BITS:
        lows.append(_grouped(np.minimum, lows[-1], 1 << FANOUT_BITS))
        highs.append(_grouped(np.maximum, highs[-1], 1 << FANOUT_BITS))
    levels = np.cumsum([0, *map(len, lows)])
    return Regions(np.concatenate([np.concatenate(lows), np.concatenate(highs)], axis=1), levels)


def regions_of_boxes(lo: Bounds, hi: Bounds, run: int) -> Regions:
    """The same for n boxes ``[lo, hi)``."""
    return regions_of(lo, largest_below(hi), run)


def filed_boxes(boxes: Boxes, stop: int, regions: Regions) -> Filed:
    """The first ``stop`` boxes of a snapshot and their directory, as kernels take them. O(1)."""
    near, lo, hi, slots, _, _ = boxes
    ends, levels = regions
    return Filed(
        read_only(near),
        read_only(lo),
        read_only(hi),
        read_only(slots),
        stop,
        read_only(ends),
        read_only(levels),
    )


def largest_below(hi: Bounds) -> Bounds:
    """The largest value inside of ``[.., hi)``; -inf is the only one below the least finite value."""
    with np.errstate(over="ignore"):
        return np.nextafter(hi, -np.inf)


def check(regions: Regions, low: Bounds, high: Bounds, run: int) -> None:
    """Asserts the invariants for n closed rectangles. O(n d)."""
    ends, levels = regions
    dims = low.shape[1]
    assert levels[0] == 0 and levels[-1] == len(ends)
    assert levels[-1] - levels[-2] <= 1 << FANOUT_BITS
    for level in range(len(levels) - 1):
        rectangles = ends[levels[level] : levels[level + 1]]
        assert len(rectangles) == -(-len(low) // run)
        for i, rectangle in enumerate(rectangles):
            below = slice(i * run, (i + 1) * run)
            assert np.array_equal(rectangle[:dims], low[below].min(axis=0))
            assert np.array_equal(rectangle[dims:], high[below].max(axis=0))
        low, high, run = rectangles[:, :dims], rectangles[:, dims:], 1 << FANOUT_BITS


def _grouped(bound: np.ufunc, ends: Bounds, size: int) -> Bounds:
    """The bound of every ``size`` neighbours."""
    if len(ends) == 0:
        return ends
    return bound.reduceat(ends, np.arange(0, len(ends), size), axis=0)
