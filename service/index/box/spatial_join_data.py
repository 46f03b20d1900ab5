"""The data index of Spatial Join: a batch of points in the order of the Hilbert curve.

Idea (Sect. 5.3): points that come in an order of proximity can be cut into clusters with small MBRs, and what
is found for a cluster is found for all of its points. The index lives as long as the batch. The paper builds
a binary search tree on the place along the curve; here a batch is there at once, so it is a sorted array.

``Arranged`` is that order, for SJ-Batch. ``DataIndex`` adds the directory of the clusters and turns the join
around: boxes probe points. That is the query-initiative half of the duality (Sect. 1, 4): which of many
points, last values for instance, are in a new box.

Invariants: every row without a NaN is there once, its values are its values; a cluster is at most 64 points.

Not for: points that come and go one by one, as in the paper's sliding windows (Sect. 6): build it anew, it
costs less than half a microsecond a point.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.index.answers import Collector, as_points
from service.index.box.hilbert import hilbert_order
from service.index.box.spatial_join_kernels import RUN, join_boxes
from service.index.box.spatial_join_regions import check as check_regions
from service.index.box.spatial_join_regions import largest_below, regions_of
from service.index.protocol import Bounds, Points, Rows

_SAMPLE = 128


class Arranged(NamedTuple):
    """Points without a NaN in the order of the curve.

    ``columns``: ``float64[d, m]``; ``rows``: ``int32[m]``, which row each was; ``sample``: ``float64[d, q]``,
    sorted values of each attribute, at most 256, those of rows with a NaN included (NaN last).
    """

    columns: NDArray[np.float64]
    rows: Rows
    sample: NDArray[np.float64]


class Pairs(NamedTuple):
    """Which points are in which boxes: ``int32[h]`` each, sorted by (box, row), no pair twice."""

    boxes: Rows
    rows: Rows


def arranged(points: Points, axes: NDArray[np.int64] | None = None) -> Arranged:
    """Points ``float64[m, d]`` in the order of the curve through some attributes, the most important first:
    those that tell boxes apart; by default as they are. O(m (d + log m))."""
    step = max(1, len(points) // _SAMPLE)
    sample = np.sort(np.ascontiguousarray(points[::step].T), axis=1)
    rows = hilbert_order(points, sample, np.arange(points.shape[1]) if axes is None else axes)
    return Arranged(np.ascontiguousarray(points[rows].T), rows, sample)


class DataIndex:
    """Points, to be asked which of them are in which boxes. Does not change, and may be read by many threads.

    ``points``: ``float64[m, d]`` with d at least 1, copied; a row with a NaN is in no box. TypeError and
    ValueError as for ``BoxIndex.stab``.
    """

    def __init__(self, points: Points) -> None:
        if points.ndim != 2 or points.shape[1] < 1:
            raise ValueError(f"points must have the shape (m, d) with d at least 1, not {points.shape}")
        self._points = len(points)
        self.dims = points.shape[1]
        self._arranged = arranged(as_points(points, self.dims))
        ordered = np.ascontiguousarray(self._arranged.columns.T)
        self._clusters = regions_of(ordered, ordered, RUN)

    def __len__(self) -> int:
        """Number of points, those with a NaN too."""
        return self._points

    @property
    def nbytes(self) -> int:
        """Bytes of memory held."""
        return sum(array.nbytes for array in (*self._arranged, *self._clusters))

    def join(self, lo: Bounds, hi: Bounds) -> Pairs:
        """All (box, row) with ``points[row]`` in ``[lo[box], hi[box])``, for k boxes ``float64[k, d]``.

        A box that is empty, or has a NaN, holds nothing. TypeError on another dtype, ValueError on a shape
        that does not fit. O(k clusters / 8) at worst, and the points of clusters that a box cuts.
        """
        lo, hi = as_points(lo, self.dims), as_points(hi, self.dims)
        if len(lo) != len(hi):
            raise ValueError(f"lo and hi must have one length, not {len(lo)} and {len(hi)}")
        columns, rows, _ = self._arranged
        largest = largest_below(hi)
        # A collector a call: it keeps a hint, which threads would race on.
        return Pairs(
            *Collector().hits(
                lambda out: join_boxes(columns, rows, *self._clusters, lo, hi, largest, out), len(lo)
            )
        )

    def check(self, points: Points) -> None:
        """Asserts the invariants; ``points`` are those that it was made of. O(m d)."""
        columns, rows, _ = self._arranged
        assert np.array_equal(np.sort(rows), np.flatnonzero(~np.isnan(points).any(axis=1)))
        assert np.array_equal(columns.T, points[rows])
        check_regions(self._clusters, columns.T, columns.T, RUN)
