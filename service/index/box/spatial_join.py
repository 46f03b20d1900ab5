"""Spatial Join CQ for boxes of any number of attributes, after Lim, Lee, Lee, Whang and Song.

Idea: data and queries are duals, points and boxes in one space, and answering is a join of the two that may
start from either side. A batch of points is put into an order of proximity and cut into clusters of N_dc;
the boxes that may hold a point of a cluster are found once for all of them, in its *spatial join window*, and
then refined (SJ-Batch). One point is a cluster of its own (SJ-Immediate).

    points -- Hilbert order -> clusters, MBRs ----+
                                                  +-- window of an MBR -> candidates -> refine -> pairs
    boxes -- corner transform -> runs, regions ---+

``spatial_join_data`` is the data index, ``corner`` and ``spatial_join_regions`` make the query index,
``spatial_join_kernels`` joins, ``spatial_join_cost`` chooses N_dc.

Where this departs from the paper:

* The query index is a partition of corner space made in one go and not the multilevel grid file, which the
  paper lets one replace; ``corner`` says why. New boxes wait in a scanned tail (``filed``).
* The data index is a sorted array and not a search tree: a batch is there at once.
* N_dc follows from the batch by a cost model; the paper finds it by experiment and calls for this.
* A cluster's points are refined together, by bitmaps (``spatial_join_kernels``); the paper does not say how.
* Exact on float64: ends are half-open and compared as they are; there is no unit domain. An attribute
  without a constraint is the whole domain, as in the paper, and is never looked at for a cluster.
* A query is a conjunction here; a disjunction is several boxes of one slot (footnote 2).

Not for: few points at a time over very many attributes of which each box constrains few.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from service.index.answers import Keys, as_points
from service.index.box.corner import corner_order
from service.index.box.spatial_join_cost import SIZES, chosen_size, predicted, sampled
from service.index.box.spatial_join_data import arranged
from service.index.box.spatial_join_kernels import RUN, join_batch, join_immediate
from service.index.box.spatial_join_regions import check as check_regions
from service.index.box.spatial_join_regions import filed_boxes, largest_below, regions_of_boxes
from service.index.boxes import Boxes
from service.index.filed import FiledIndex
from service.index.protocol import Bounds, Points

FEWEST_POINTS = 64
"""Smaller batches are joined point by point: they would not repay their order."""
_CHOICE_STANDS = 16
MOST_POINTS = 1 << 16
"""Points a cluster at most: its bitmaps take an eighth of their square in bytes, an attribute."""


class Mode(StrEnum):
    """SJ-Batch clusters the points of a stab; SJ-Immediate joins them one by one."""

    BATCH = "batch"
    IMMEDIATE = "immediate"


class SpatialJoin(FiledIndex):
    """A ``BoxIndex``; see ``protocol`` for what it takes, raises and promises.

    ``cluster_size`` is the paper's N_dc, at most 65,536: by default it is chosen for each batch.
    ``tail_limit`` is the number of boxes that may wait unfiled, however few there are. ValueError on values
    out of range, and on less than one attribute.

    For n boxes, m points and h hits filing is O(n (log n + d)), a stab O(clusters (met rectangles + 64 d met
    runs) + candidates d (log N_dc + N_dc / 64) + m (d + n / 64) + h log h).
    """

    def __init__(
        self,
        dims: int,
        *,
        mode: Mode = Mode.BATCH,
        cluster_size: int | None = None,
        tail_limit: int = 1024,
    ) -> None:
        if dims < 1:
            raise ValueError(f"a join takes at least one attribute, not {dims}")
        if cluster_size is not None and not 1 <= cluster_size <= MOST_POINTS:
            raise ValueError(f"cluster_size must be from 1 to {MOST_POINTS}, not {cluster_size}")
        self._mode = mode
        self._cluster_size = cluster_size
        super().__init__(dims, tail_limit=tail_limit)

    def _order(self, lo: Bounds, hi: Bounds) -> NDArray[np.intp]:
        return corner_order(lo, hi, RUN)

    def _file(self, lo: Bounds, hi: Bounds) -> _Filing:
        self._latest = _Filing(lo, hi, self._mode, self._cluster_size)
        return self._latest

    def predicted(self, points: Points) -> Mapping[int, float]:
        """What the cost model expects of a batch ``float64[m, d]``: nanoseconds a point by size of cluster.

        1 is SJ-Immediate. Boxes that wait unfiled are not counted. O(m (d + log m)).
        """
        return self._latest.predicted(as_points(points, self.dims))


class _Filing:
    def __init__(self, lo: Bounds, hi: Bounds, mode: Mode, cluster_size: int | None) -> None:
        self._count = len(lo)
        self._mode = mode
        self._cluster_size = cluster_size
        self._regions = regions_of_boxes(lo, hi, RUN)
        self._sampled = sampled(lo, hi)
        self._axes = telling_axes(self._sampled.lo, self._sampled.hi)
        self._sizes = _Sizes()
        self.nbytes = self._regions.nbytes

    def search(self, boxes: Boxes, points: Points, out: Keys) -> int:
        if self._count == 0:
            return 0
        found: int
        filed = filed_boxes(boxes, self._count, self._regions)
        size = self._cluster_size_for(points)
        if size == 1:
            found = join_immediate(filed, points, out)
        else:
            columns, rows, _ = arranged(points, self._axes)
            found = join_batch(filed, columns, rows, size, out)
        return found

    def predicted(self, points: Points) -> dict[int, float]:
        cost = predicted(arranged(points, self._axes), self._regions, self._sampled)
        return dict(zip(SIZES, cost.tolist(), strict=False))

    def _cluster_size_for(self, points: Points) -> int:
        """N_dc for a batch; 1 for SJ-Immediate."""
        if self._mode is Mode.IMMEDIATE:
            return 1
        if self._cluster_size is not None:
            return self._cluster_size
        if len(points) < FEWEST_POINTS:
            return 1
        return self._sizes.size_for(
            len(points), lambda: chosen_size(arranged(points, self._axes), self._regions, self._sampled)
        )

    def check(self, lo: Bounds, hi: Bounds) -> None:
        check_regions(self._regions, lo, largest_below(hi), RUN)


class _Sizes:
    """The sizes chosen lately. The batches of one source resemble each other, so for batches of one order of
    magnitude a choice stands for a while. A hint alone: threads may race on it, and no answer depends on it.
    """

    def __init__(self) -> None:
        self._chosen: dict[int, tuple[int, int]] = {}

    def size_for(self, points: int, choose: Callable[[], int]) -> int:
        """What ``choose`` said for a batch of about so many points, asked every ``_CHOICE_STANDS`` times."""
        size, uses = self._chosen.get(points.bit_length(), (0, _CHOICE_STANDS))
        if uses >= _CHOICE_STANDS:
            size, uses = choose(), 0
        self._chosen[points.bit_length()] = size, uses + 1
        return size


def telling_axes(lo: Bounds, hi: Bounds) -> NDArray[np.int64]:
    """The attributes in the order in which they tell boxes apart: the most often constrained first.

    ``float64[k, d]`` each, a sample. Ties go by the number of the attribute. O(k d)."""
    constrained = ((lo > -np.inf) | (hi < np.inf)).sum(axis=0)
    return np.argsort(-constrained, kind="stable")
