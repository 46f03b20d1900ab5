"""The window list: boxes that constrain one attribute, all the same.

Idea (Chazelle, *Filtering search*, 1986): cut the axis into windows and keep, for each, what may be around
its values, so that a list costs about what its shortest answer does. Here boxes are numbered by their lower
ends, and a window is a run of them: its values are those from its first lower end to that of the next window.
Boxes of earlier windows that reach into it are its *entries*, by their upper ends. So of the boxes around a
value x, some are among the window's own boxes, which are one range up to the last lower end that is at most
x, and are compared with their upper ends; the others are entries, those behind the last one that
ends at x or before; they are counted in passing and copied as they lie.

Departures: Chazelle's windows list all that meets them and are scanned whole. A window here ends as soon as
it has more boxes of its own than half of those around its end (plus a constant), so there are at most 2 n
entries, three filings a box in all.

All that a point reads of a window lies together, and few bytes of it: within a window, ends are kept as steps
of two bytes (``windows_kernels``), sixteen of which are compared at a time.

Exact on float64: steps are monotone in the value, and where one does not decide, the ends themselves are
compared. A grid of equal cells, which is monotone too, shortens the search among windows and decides nothing.

Not for: boxes that constrain more, or different attributes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from service.index.answers import Keys
from service.index.default.arena import arena_of
from service.index.default.kd_leaves import chosen_scales
from service.index.default.part import NEVER, Sparse, in_order, taken
from service.index.default.windows_kernels import (
    BLOCK,
    FAR,
    MOST_SCALE,
    NO_EDGE,
    SLACK,
    Lists,
    cell_of,
    cut,
    edge_of,
    encode,
    file_boxes,
    search,
    write_cells,
    write_spans,
)
from service.index.default.windows_living import Living
from service.index.protocol import Points, Slots

_CELLS_A_WINDOW = 4


class Windows:
    """A ``Part`` of n boxes that constrain one attribute; 40 to 50 bytes a box. Built in O(n log n)."""

    name = "windows"

    def __init__(
        self, slots: Slots, attribute: int, lo: NDArray[np.float64], hi: NDArray[np.float64]
    ) -> None:
        """Boxes by rising lower end: ``int32[n]``, ``float64[n]``."""
        self._attribute = attribute
        self._arena, views = arena_of(_filed(slots, attribute, lo, hi))
        self._lists = Lists(*views)
        self.slots, self.removed_at = self._lists.slots, self._lists.removed_at
        self._living = Living(self.removed_at)

    @classmethod
    def of(cls, boxes: Sparse, dims: int) -> Windows:
        """ValueError unless all boxes constrain one attribute, and the same."""
        if len(boxes.attributes) != len(boxes) or (boxes.attributes != boxes.attributes[:1]).any():
            raise ValueError("windows are of boxes that constrain one attribute, all the same")
        boxes = in_order(boxes)
        boxes = taken(boxes, np.argsort(boxes.lo, kind="stable"))
        return cls(boxes.slots, int(boxes.attributes[0]) if len(boxes) else 0, boxes.lo, boxes.hi)

    @property
    def entries(self) -> int:
        """How often boxes are filed in all, their own windows included."""
        return len(self.slots) + int(np.count_nonzero(self._lists.filed >= 0))

    @property
    def nbytes(self) -> int:
        return self._arena.nbytes

    def stab(self, points: Points, version: int, out: Keys) -> int:
        """O(log n + k) for a point in k boxes; O(k) where values are spread evenly."""
        whole = len(self._living.marks(version, len(points))) == 0
        found: int = search(self._arena, points, version, whole, out)
        return found

    def boxes(self) -> Sparse:
        count = len(self.slots)
        attributes = np.full(count, self._attribute, np.uint8)
        return Sparse(self.slots, np.arange(count + 1), attributes, self._lists.lo, self._lists.hi)

    def check(self) -> None:
        lo, hi, _, _, cells, windows, steps, names, filed, _, grid = self._lists
        count, (origin, scale, attribute) = len(windows) - 1, grid
        assert attribute == self._attribute
        assert (lo < hi).all() and (lo[1:] >= lo[:-1]).all()
        assert self.entries <= 3 * len(lo)
        expected = [cell_of(x, origin, scale, len(cells) - 1) for x in windows[:-1, 0]]
        assert np.array_equal(np.repeat(np.arange(len(cells) - 1), np.diff(cells)), expected)

        first, begin = windows.view(np.int32)[:, 6:].T.astype(np.int64)
        assert not (first % BLOCK).any() and not (begin % BLOCK).any()
        assert (
            first[-1] == -(-len(lo) // BLOCK) * BLOCK
            and begin[0] == 0
            and begin[-1] == len(filed) == len(names)
        )
        assert len(steps) == 2 * first[-1] + begin[-1]
        assert np.array_equal(names[filed >= 0], self.slots[filed[filed >= 0]])
        with np.errstate(over="ignore"):  # only without the JIT: the float below the lowest is infinite
            for window in range(count):
                self._check_window(window)

    def _check_window(self, window: int) -> None:
        lo, hi, _, _, _, windows, steps, _, filed, doubtful, _ = self._lists
        least, origin, scale, _ = windows[window].tolist()
        behind = float(windows[window + 1, 0]) if window + 2 < len(windows) else np.inf
        (first, begin), (next_first, next_begin) = windows.view(np.int32)[window : window + 2, 6:].tolist()
        own = slice(first, min(next_first, len(lo)))
        assert least == lo[first]

        around = np.flatnonzero(hi[:first] > least)
        room, more = next_first - first, next_begin - begin
        assert room - len(lo[own]) < BLOCK and 0 <= more - len(around) < BLOCK
        nothing = more - len(around)
        listed = filed[begin + nothing : next_begin]
        assert (filed[begin : begin + nothing] == -1).all()
        assert np.array_equal(np.sort(listed), around)
        assert (hi[listed[1:]] >= hi[listed[:-1]]).all()

        lower = [edge_of(end, origin, scale) for end in lo[own]]
        upper, ends = (
            [edge_of(end, origin, scale) if end < behind else NO_EDGE for end in bounds]
            for bounds in (hi[own], hi[listed])
        )
        empty = room - len(lower)
        expected = [*lower, *[NO_EDGE] * empty, *upper, *[0] * empty, *[0] * nothing, *ends]
        assert steps[2 * first + begin : 2 * next_first + next_begin].tolist() == expected
        bounds = np.concatenate([hi[own], hi[listed]])
        distinct = np.unique(np.concatenate([lo[own], bounds[bounds < behind]]))
        assert doubtful[window] == (len({edge_of(end, origin, scale) for end in distinct}) < len(distinct))
        # No value in it is in many fewer boxes than are looked at: fewest are around the next window's.
        if next_first < len(lo):
            assert 2 * room > (hi[:next_first] > lo[next_first]).sum() + SLACK


def _filed(slots: Slots, attribute: int, lo: NDArray[np.float64], hi: NDArray[np.float64]) -> Lists:
    count = len(lo)
    by_hi = np.argsort(hi, kind="stable")
    marks = np.arange(0, count, BLOCK)
    around = marks - np.searchsorted(hi[by_hi], lo[marks], "right")
    window_of = np.empty(len(marks), np.int32)
    made = cut(around, window_of)
    first = np.searchsorted(window_of, np.arange(made + 1)) * BLOCK
    least = lo[first[:made]]

    # A box is around the lower ends of the windows behind its own up to this one.
    last = np.searchsorted(least, hi, "left") - 1
    counts = np.zeros(made + 1, np.int64)
    file_boxes(by_hi, last, window_of, counts, np.empty(0, np.int32))
    begin = np.concatenate([[0], np.cumsum(-(-counts[:made] // BLOCK) * BLOCK)])
    filed = np.full(begin[-1], -1, np.int32)
    file_boxes(by_hi, last, window_of, begin[1:] - counts[:made], filed)
    names = np.where(filed >= 0, slots[filed], np.int32(-1)) if count else filed

    windows = np.zeros((made + 1, 4))
    windows[:-1, 0] = least
    windows.view(np.int32)[:, 6:] = np.stack([first, begin], axis=1)
    most = np.empty(made)
    write_spans(lo, hi, filed, windows, most)
    windows[:-1, 1], windows[:-1, 2] = chosen_scales(least, most)
    steps, doubtful = np.zeros(2 * first[-1] + begin[-1], np.uint16), np.zeros(made, np.uint8)
    with np.errstate(over="ignore"):  # only without the JIT: the float below the lowest is infinite
        encode(lo, hi, filed, windows, steps, doubtful)
    origin, scale, wanted = _grid(least)
    cells = np.empty(wanted + 1, np.int32)
    write_cells(least, origin, scale, cells)
    grid = np.array([origin, scale, attribute])
    removed_at = np.full(count, NEVER)
    return Lists(lo, hi, slots, removed_at, cells, windows, steps, names, filed, doubtful, grid)


def _grid(least: NDArray[np.float64]) -> tuple[float, float, int]:
    """Origin, scale and number of cells for rising values: they span all but the outermost 1/256."""
    ends = least[np.abs(least) <= FAR]  # one-sided bounds say nothing about where values lie
    if len(ends) == 0:
        return 0.0, 1.0, 1
    trimmed = len(ends) // 256
    low, high = float(ends[trimmed]), float(ends[-1 - trimmed])
    cells = len(ends) * _CELLS_A_WINDOW + 1
    return low, min(cells / max(high - low, 1 / MOST_SCALE), MOST_SCALE), cells
