"""What a batch costs for each size of its clusters: the choice of N_dc, left open by the paper (Sect. 5.5).

A larger cluster shares its search among more points, but its window holds more boxes. With m points in
clusters of c, per batch,

    cost(c) = m * (ARRANGE + d * RANK)
              + m / c * (rectangles(c) * RECTANGLE + runs(c) * (RUN + d * RUN_ATTRIBUTE)
                         + sum over candidates of (CANDIDATE + asked(c) * (log4(c) + 1) * STEP
                                                   + asked(c) * c / 64 * WORD))

What varies is estimated from samples, for the batch at hand:

* Everything is measured in *ranks*, the share of the batch's values below a value, in each attribute. A
  cluster of c points of this batch, cut as it would be, has sides ``s_j(c)`` in ranks, averaged over some.
* By definition points lie evenly in ranks; let clusters do so too, and independently in each attribute. Then
  the chance that a cluster meets a rectangle ``[u, v]`` is a product over the attributes: of the share of
  places in ``[0, 1 - s]`` from which a side of length s reaches it, ``(min(v, 1 - s) - max(u - s, 0)) / (1 -
  s)``. That gives rectangles and runs (of a sample of the directory) and candidates (of a sample of boxes).
* A candidate is asked attribute by attribute unless it covers the cluster there, which has the chance
  ``max(v - u - s, 0) / (1 - s)``; and only while some of the c points are left. Of those, attribute j leaves
  the share ``(v - u) / meets``. Where ``left`` are expected, some are with a chance of about ``left / (1 +
  left)``: less than if each were left on its own, for neighbours share their fate.

c = 1 stands for SJ-Immediate, where nothing is arranged, ranked or asked. Sizes are powers of two: the cost
is flat around its minimum (the paper: +10 % from half to three times the best size), so nothing finer is
worth it.

The constants are nanoseconds, fitted to the measured costs of 24 batches of all sizes, 1 to 20 attributes and
10,000 to 1M boxes: half of the predictions were within 15 %, the sizes chosen cost 4 % more than the best on
average and 35 % at worst (``service.bench.papers.spatial_join`` shows the curves). Only their ratios matter.
No answer depends on any of this.

Not for: the cost of writing and sorting the answer, which is the same for all sizes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from service.index.box.spatial_join_data import Arranged
from service.index.box.spatial_join_regions import Regions
from service.index.kernel import kernel, reads, writes
from service.index.protocol import Bounds

SIZES = tuple(1 << power for power in range(11))
"""The sizes of a cluster to choose from, 1 for SJ-Immediate."""

_CLUSTERS = 16
_SAMPLE = 64


class Constants(NamedTuple):
    """Nanoseconds: a point put into order, a value ranked; a rectangle of the directory; a run met, and each
    attribute of its 64 boxes; a candidate, a step of the search in one attribute, a word of a bitmap."""

    arrange: float
    rank: float
    rectangle: float
    run: float
    run_attribute: float
    candidate: float
    step: float
    word: float


CONSTANTS = Constants(120.0, 70.0, 9.0, 27.0, 13.5, 20.0, 5.5, 1.2)


class Sampled(NamedTuple):
    """Some boxes of a filing, ``float64[k, d]`` each, and how many boxes each stands for."""

    lo: Bounds
    hi: Bounds
    weight: float


def sampled(lo: Bounds, hi: Bounds) -> Sampled:
    """A sample of n filed boxes, from all over their order. O(1)."""
    chosen = np.unique(np.linspace(0, len(lo) - 1, min(len(lo), _SAMPLE)).astype(np.intp))
    return Sampled(lo[chosen], hi[chosen], len(lo) / max(len(chosen), 1))


def predicted(
    batch: Arranged, regions: Regions, boxes: Sampled, constants: Constants = CONSTANTS
) -> NDArray[np.float64]:
    """Nanoseconds a point for every size in ``SIZES`` that is at most the batch: ``float64[k]``, k >= 1.

    ``batch`` is arranged, ``regions`` and ``boxes`` are of one filing. O(m d) and some thousand operations.
    """
    columns, _, sample = batch
    sizes = np.array([size for size in SIZES if size <= max(columns.shape[1], 1)], np.int64)
    sides = np.empty((len(sizes), len(columns)))
    mean_sides(columns, sample, sizes, sides)
    cost = _search(regions, sample, sides, constants)
    spans = _spans(boxes.lo, boxes.hi, sample)
    refined = np.empty(len(sizes))
    refinement(spans, sides, sizes, constants.candidate, constants.step, constants.word, refined)
    cost += boxes.weight * refined
    cost += sizes * np.where(sizes > 1, constants.arrange + len(columns) * constants.rank, 0.0)
    return cost / sizes


def chosen_size(batch: Arranged, regions: Regions, boxes: Sampled) -> int:
    """The N_dc that is expected to cost the least for this batch; 1 says SJ-Immediate. As ``predicted``."""
    return SIZES[int(np.argmin(predicted(batch, regions, boxes)))]


def _search(
    regions: Regions, sample: NDArray[np.float64], sides: NDArray[np.float64], constants: Constants
) -> NDArray[np.float64]:
    """Nanoseconds a cluster for the directory and the runs that it meets, by size."""
    ends, levels = regions
    dims = len(sample)
    cost: NDArray[np.float64] = np.zeros(len(sides))
    met = np.empty(len(sides))
    for level in range(len(levels) - 1):
        first, stop = levels[level], levels[level + 1]
        chosen = np.linspace(first, stop - 1, min(stop - first, _SAMPLE)).astype(np.intp)
        meetings(_spans(ends[chosen, :dims], ends[chosen, dims:], sample), sides, met)
        share = met / max(len(chosen), 1)
        if level == 0:
            cost += share * int(stop - first) * (constants.run + dims * constants.run_attribute)
        else:
            # What is below a rectangle is looked at if that is met.
            cost += share * int(levels[level] - levels[level - 1]) * constants.rectangle
    cost += int(levels[-1] - levels[-2]) * constants.rectangle
    return cost


def _spans(low: Bounds, high: Bounds, sample: NDArray[np.float64]) -> NDArray[np.float64]:
    spans = np.empty((*low.shape, 2))
    spans_of(np.ascontiguousarray(low), np.ascontiguousarray(high), sample, spans)
    return spans


_TABLE = reads(types.float64, 2)


@kernel(types.float64(_TABLE, types.int64, types.float64))
def share_below(sample, j, x):  # type: ignore[no-untyped-def]
    """The share of the sorted ``sample[j]`` below x. O(log q)."""
    base = 0
    count = sample.shape[1]
    while count > 0:
        half = count >> 1
        if sample[j, base + half] < x:
            base += half + 1
            count -= half + 1
        else:
            count = half
    return base / max(sample.shape[1], 1)


@kernel(types.void(_TABLE, _TABLE, _TABLE, writes(types.float64, 3)))
def spans_of(low, high, sample, spans):  # type: ignore[no-untyped-def]
    """Writes the ends of k rectangles in ranks: ``float64[k, d, 2]``."""
    for i in range(low.shape[0]):
        for j in range(low.shape[1]):
            spans[i, j, 0] = share_below(sample, j, low[i, j])
            spans[i, j, 1] = share_below(sample, j, high[i, j])


@kernel(types.void(_TABLE, _TABLE, reads(types.int64, 1), writes(types.float64, 2)))
def mean_sides(columns, sample, sizes, sides):  # type: ignore[no-untyped-def]
    """Writes the mean sides in ranks of clusters of each size, over some of them: ``float64[sizes, d]``."""
    dims, batch = columns.shape
    for i in range(len(sizes)):
        size = sizes[i]
        clusters = min(batch // size, _CLUSTERS)
        for j in range(dims):
            sides[i, j] = 0.0
            for c in range(clusters):
                first = c * (batch // size) // clusters * size
                low, high = columns[j, first], columns[j, first]
                for point in range(first + 1, first + size):
                    low = min(low, columns[j, point])
                    high = max(high, columns[j, point])
                if low < high:
                    sides[i, j] += (share_below(sample, j, high) - share_below(sample, j, low)) / clusters


@kernel(types.float64(types.float64, types.float64, types.float64))
def meets(u, v, side):  # type: ignore[no-untyped-def]
    """The chance that a side somewhere in [0, 1] meets [u, v]; the whole of it meets what is not beyond."""
    if side >= 1.0:
        return 1.0 if u < 1.0 and v > 0.0 else 0.0
    return min(max((min(v, 1.0 - side) - max(u - side, 0.0)) / (1.0 - side), 0.0), 1.0)


@kernel(types.void(reads(types.float64, 3), _TABLE, writes(types.float64, 1)))
def meetings(spans, sides, met):  # type: ignore[no-untyped-def]
    """Writes how many of k rectangles a cluster with such sides is expected to meet, by size."""
    for i in range(len(sides)):
        met[i] = 0.0
        for k in range(len(spans)):
            chance = 1.0
            for j in range(spans.shape[1]):
                chance *= meets(spans[k, j, 0], spans[k, j, 1], sides[i, j])
            met[i] += chance


@kernel(
    types.void(
        reads(types.float64, 3),
        _TABLE,
        reads(types.int64, 1),
        types.float64,
        types.float64,
        types.float64,
        writes(types.float64, 1),
    )
)
def refinement(spans, sides, sizes, candidate, step, word, cost):  # type: ignore[no-untyped-def]
    """Writes the expected nanoseconds to refine k boxes against one cluster, by size. See ``Constants``."""
    for i in range(len(sizes)):
        cost[i] = 0.0
        search = step * (2.0 + np.log2(sizes[i])) / 2.0 + word * np.ceil(sizes[i] / 64.0)
        for k in range(len(spans)):
            chance = 1.0
            asked = 0.0
            left = float(sizes[i])
            for j in range(spans.shape[1]):
                u, v, side = spans[k, j, 0], spans[k, j, 1], sides[i, j]
                met = meets(u, v, side)
                chance *= met
                covers = min(max(v - u - side, 0.0) / (1.0 - side), met) if side < 1.0 else 0.0
                if met > 0.0:
                    asked += left / (1.0 + left) * (1.0 - covers / met)
                    left *= min((v - u) / met, 1.0)
            cost[i] += chance * (candidate + (asked * search if sizes[i] > 1 else 0.0))
