"""Border monitoring: the stream table of BMQ-Index, and its search efficiency.

Idea: the last value of every stream is kept, and with it the node that held it (Sect. 3.1, 4.1). The next
value is most likely in the same node or one nearby, so the search goes on from there: a look at two borders
says that nothing has happened.

A node may be split, merged or renumbered while a stream rests. So the value is what counts, and the node is
only where to look for it first.

Invariant: a stream that has never been seen is nowhere (NaN); its first value enters what holds it.

Not for: more than one thread. Others may read ``index`` meanwhile.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numpy.typing import NDArray

from service.index.answers import as_points
from service.index.border.bmq import BMQIndex
from service.index.kernel import kernel, reads, writes
from service.index.protocol import Borders, Bounds, Points, Slots

_LEAST_ROOM = 64
_UNKNOWN = np.int32(-1)


class BorderMonitor:
    """BMQs over streams: queries come and go, streams move, and every move says what it left and entered.

    ``index`` holds the queries: an empty or filled ``BMQIndex``, of this monitor alone from now on.
    ``accessed`` and ``reported`` count since the start: delta queries that were read, and differential
    queries in the answers.
    """

    def __init__(self, index: BMQIndex) -> None:
        self.index = index
        self.accessed = 0
        self.reported = 0
        self._last = np.full((_LEAST_ROOM, index.dims), np.nan)
        self._places = np.full((_LEAST_ROOM, index.dims), _UNKNOWN)

    @property
    def nbytes(self) -> int:
        return self.index.nbytes + self.stream_table_nbytes

    @property
    def stream_table_nbytes(self) -> int:
        return self._last.nbytes + self._places.nbytes

    @property
    def search_efficiency(self) -> float:
        """SE (Sect. 5.2.1): the size of all final results by that of all intermediate ones, at most 1 while
        slots have one box and queries one attribute. 1.0 while nothing has been read."""
        return self.reported / self.accessed if self.accessed else 1.0

    def register(self, slots: Slots, lo: Bounds, hi: Bounds) -> None:
        """Adds queries; see ``BoxIndex.insert``. No stream is told: the next move counts from the last value,
        so a query that holds it already is left by a move, and not entered."""
        self.index.insert(slots, lo, hi)

    def deregister(self, slots: Slots) -> None:
        """Removes queries; see ``BoxIndex.remove``. Nobody leaves them."""
        self.index.remove(slots)

    def move(self, streams: NDArray[np.int32], points: Points) -> Borders:
        """The new values ``float64[m, d]`` of streams ``int32[m]``, and what each of them left and entered.

        A stream may come more than once, its rows are moves one after the other. A value with a NaN takes a
        stream out of everything. Raises TypeError on another dtype, ValueError on another shape or a negative
        stream; nothing has moved then. O(m d log distance + deltas); memory is proportional to the largest
        stream.
        """
        if streams.dtype != np.int32:
            raise TypeError(f"streams must be int32, not {streams.dtype}")
        points = as_points(points, self.index.dims)
        if streams.shape != (len(points),):
            raise ValueError(f"streams must have the shape ({len(points)},), not {streams.shape}")
        if len(streams) and streams.min() < 0:
            raise ValueError(f"stream {streams.min()} is negative")
        self._make_room(int(streams.max()) + 1 if len(streams) else 0)
        before = np.empty(points.shape)
        _advance(np.ascontiguousarray(streams), points, self._last, before)
        crossing = self.index.crossing(before, points, self._places[streams])
        self._places[streams] = crossing.places
        self.accessed += crossing.accessed
        self.reported += len(crossing.borders.rows)
        return crossing.borders

    def last(self, streams: NDArray[np.int32]) -> Points:
        """The last values of streams ``int32[m]`` as ``float64[m, d]``; NaN of those never seen."""
        known = (streams >= 0) & (streams < len(self._last))
        values: Points = self._last[np.where(known, streams, 0)]
        values[~known] = np.nan
        return values

    def _make_room(self, streams: int) -> None:
        if streams > len(self._last):
            more = max(streams, 2 * len(self._last)) - len(self._last)
            self._last = np.pad(self._last, ((0, more), (0, 0)), constant_values=np.nan)
            self._places = np.pad(self._places, ((0, more), (0, 0)), constant_values=_UNKNOWN)


@kernel(
    types.void(
        reads(types.int32, 1),
        reads(types.float64, 2),
        writes(types.float64, 2),
        writes(types.float64, 2),
    )
)
def _advance(streams, points, last, before):  # type: ignore[no-untyped-def]
    """Writes the value of every row's stream before that row, and leaves the newest values in ``last``."""
    for row in range(len(streams)):
        for k in range(points.shape[1]):
            before[row, k] = last[streams[row], k]
            last[streams[row], k] = points[row, k]
