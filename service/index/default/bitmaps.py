"""Signature bitmaps: boxes that constrain some of many attributes, in any mixture.

Idea: boxes are put into *groups* that share some constrained attributes (``signatures``). In a group, boxes
that lie close together are numbered together, and every 256 of them are a *tile* (``bitmaps_tiles``). Each
attribute is cut into windows (``bitmaps_windows``), and for some of them a tile has a bitmap a window: which
of its boxes may hold a value there (``bitmaps_rows`` chooses). A point meets the bitmaps of its windows word
by word; the boxes whose bits are left are compared exactly. Which tiles are worth a look is told by bitmaps
over tiles, of the shared attributes. An event that lacks a shared attribute meets no tile of the group.

Invariants: a box is in one group; bitmaps may say yes in vain, never no. The same boxes make the same part,
whatever their order was.

Exact on float64: the window of a value is monotone in it, and what the bitmaps leave is compared as it is.

Not for: one attribute alone (``windows``), or many small boxes in two (``kd``), which leave too many tiles.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numpy.typing import NDArray

from service.index.answers import Keys
from service.index.default.bitmaps_kernels import BLOCK, HULLS, TILE, Bits, fill, search
from service.index.default.bitmaps_rows import Row, chosen_rows
from service.index.default.bitmaps_tiles import tiled
from service.index.default.bitmaps_windows import WINDOWS, chosen_cuts, spans_of, windows_of
from service.index.default.part import NEVER, Sparse, in_order, taken
from service.index.default.signatures import groups_of
from service.index.kernel import kernel, reads, writes
from service.index.protocol import Points

_ROWS_AT_ONCE = 4
"""Rows come in fours, see ``bitmaps_kernels``."""


class Bitmaps:
    """A ``Part`` of n boxes with c constraints: about 17 c + 8 n bytes, and up to 24 n of bitmaps. Built in
    O(c + n log n) and O(dims) a box for a moment."""

    name = "bitmaps"

    def __init__(self, boxes: Sparse, dims: int) -> None:
        """``boxes`` in the order of ``in_order``."""
        self._cuts = chosen_cuts(boxes, dims)
        spans = spans_of(boxes, self._cuts)
        counts = np.bincount(boxes.attributes, minlength=dims)
        lengths = (spans[:, 1].astype(np.int32) - spans[:, 0] + 1) / WINDOWS
        shares = np.bincount(boxes.attributes, lengths, minlength=dims) / np.maximum(counts, 1)
        groups = groups_of(boxes, shares)
        by_group = np.argsort(groups.of, kind="stable")
        bounds = np.searchsorted(groups.of[by_group], np.arange(len(groups.shared) + 1))
        order = np.empty(len(boxes), np.int64)
        filed = _Filed(dims)
        for shared, first, stop in zip(groups.shared, bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            if first < stop:
                members = by_group[first:stop]
                order[first:stop] = members[filed.add(boxes, spans, shares, shared, members, first)]
        self._bits = filed.bits()
        self._boxes = taken(boxes, order)
        self._starts = self._boxes.starts.astype(np.uint32)
        self.slots = self._boxes.slots
        self.removed_at = np.full(len(boxes), NEVER)

    @classmethod
    def of(cls, boxes: Sparse, dims: int) -> Bitmaps:
        return cls(in_order(boxes), dims)

    @property
    def nbytes(self) -> int:
        boxes = self._boxes
        own = self._cuts, self._starts, self.removed_at
        return boxes.nbytes - boxes.starts.nbytes + sum(array.nbytes for array in (*own, *self._bits))

    def stab(self, points: Points, version: int, out: Keys) -> int:
        """O(rows) words of 256 boxes for every tile that the hulls leave, and O(c / n) for each box left."""
        boxes = self._boxes
        found: int = search(
            self._bits,
            self._starts,
            boxes.attributes,
            boxes.lo,
            boxes.hi,
            self.slots,
            self.removed_at,
            version,
            points,
            windows_of(points, self._cuts),
            out,
        )
        return found

    def boxes(self) -> Sparse:
        return self._boxes

    def check(self) -> None:
        boxes, (blocks, attribute, shift, line, hulls, lines) = self._boxes, self._bits
        spans = spans_of(boxes, self._cuts)
        seen = 0
        coarse = shift.tolist()
        for first, tiles, shared, first_row, stop_row, first_hull, first_line, tile_lines in blocks.tolist():
            assert first == seen and 0 < tiles <= BLOCK // TILE
            stop = min(first + TILE * tiles, len(boxes))
            if tiles < BLOCK // TILE:  # the last block of its group ends where the next one begins
                later = blocks[blocks[:, 0] > first, 0]
                stop = min(stop, int(later.min()) if len(later) else len(boxes))
            seen = stop
            for number in range(first, stop):
                tile, place = divmod(number - first, TILE)
                entries = slice(boxes.starts[number], boxes.starts[number + 1])
                own = dict(zip(boxes.attributes[entries].tolist(), spans[entries].tolist(), strict=True))
                for row in range(first_row, stop_row):
                    low, high = own.get(int(attribute[row]), (0, WINDOWS - 1))
                    begin = first_line + tile * tile_lines + int(line[row])
                    bits = lines[begin : begin + (WINDOWS >> coarse[row]), place >> 6] >> np.uint64(
                        place & 63
                    )
                    marked = np.flatnonzero(bits & np.uint64(1))
                    assert np.array_equal(marked, np.arange(low >> coarse[row], (high >> coarse[row]) + 1))
                    if row - first_row < shared:
                        assert int(attribute[row]) in own, "a shared attribute is constrained"
                        hull = hulls[first_hull + (row - first_row) * HULLS :][low >> 2 : (high >> 2) + 1]
                        assert (hull >> np.uint64(tile) & np.uint64(1)).all()
        assert seen == len(boxes)


class _Filed:
    """Collects the bitmaps of group after group."""

    def __init__(self, dims: int) -> None:
        self._dims = dims
        self._blocks: list[list[int]] = []
        self._attribute: list[int] = []
        self._shift: list[int] = []
        self._line: list[int] = []
        self._hulls = [np.empty(0, np.uint64)]
        self._lines = [np.empty((0, 4), np.uint64)]
        self._hull_count = self._line_count = 0

    def add(
        self,
        boxes: Sparse,
        spans: NDArray[np.uint8],
        shares: NDArray[np.float64],
        shared: list[int],
        members: NDArray[np.intp],
        first: int,
    ) -> NDArray[np.int32]:
        """Files a group whose boxes are numbered from ``first`` on; the order in which, of its members."""
        wide = np.empty((len(members), self._dims, 2), np.uint8)
        density = np.zeros(self._dims, np.int64)
        _widened(boxes.starts, boxes.attributes, spans, members, density, wide)
        rows = chosen_rows(len(members), shared, density / len(members), shares, TILE)
        order = tiled(np.ascontiguousarray(wide[:, shared]), TILE)
        in_rows = np.ascontiguousarray(wide[order][:, [row.attribute for row in rows]])
        shift = np.array([(WINDOWS // row.windows).bit_length() - 1 for row in rows], np.uint8)
        first_row, tile_lines = len(self._attribute), sum(row.windows for row in rows)
        self._add_rows(rows, shift.tolist())
        for begin in range(0, len(members), BLOCK):
            part = in_rows[begin : begin + BLOCK]
            tiles = -(-len(part) // TILE)
            hulls, lines = (
                np.zeros(len(shared) * HULLS, np.uint64),
                np.zeros((tiles * tile_lines, 4), np.uint64),
            )
            fill(part, shift, len(shared), hulls, lines)
            places = first_row, len(self._attribute), self._hull_count, self._line_count, tile_lines
            self._blocks.append([first + begin, tiles, len(shared), *places])
            self._hulls.append(hulls)
            self._lines.append(lines)
            self._hull_count += len(hulls)
            self._line_count += len(lines)
        return order

    def _add_rows(self, rows: list[Row], shift: list[int]) -> None:
        padding = -len(rows) % _ROWS_AT_ONCE
        line = np.cumsum([0, *(row.windows for row in rows)])[:-1].tolist()
        self._attribute += [row.attribute for row in rows] + [rows[-1].attribute] * padding
        self._shift += shift + shift[-1:] * padding
        self._line += line + line[-1:] * padding

    def bits(self) -> Bits:
        bits = Bits(
            np.array(self._blocks, np.int64).reshape(-1, 8),
            np.array(self._attribute, np.uint8),
            np.array(self._shift, np.uint8),
            np.array(self._line, np.uint16),
            np.concatenate(self._hulls),
            np.concatenate(self._lines),
        )
        for column in bits:  # as the kernels take them, which only read
            column.flags.writeable = False
        return bits


@kernel(
    types.void(
        reads(types.int64, 1),
        reads(types.uint8, 1),
        reads(types.uint8, 2),
        reads(types.int64, 1),
        writes(types.int64, 1),
        writes(types.uint8, 3),
    )
)
def _widened(starts, attributes, spans, members, density, wide):  # type: ignore[no-untyped-def]
    """Writes the spans of each member in every attribute, all windows where it is free, and adds to
    ``density[a]`` how many constrain attribute a. O(members dims)."""
    for i in range(len(members)):
        for a in range(wide.shape[1]):
            wide[i, a, 0] = 0
            wide[i, a, 1] = 255
        for entry in range(starts[members[i]], starts[members[i] + 1]):
            a = attributes[entry]
            density[a] += 1
            wide[i, a, 0] = spans[entry, 0]
            wide[i, a, 1] = spans[entry, 1]
