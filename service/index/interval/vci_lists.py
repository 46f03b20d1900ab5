"""The ID lists of virtual construct intervals, as an array of lists or behind a bit vector.

Invariants: every box is filed under VCIs that partition the cells that it covers whole, each the longest that
fits from the left; and it is listed directly, to be compared, under the cells that its ends cut. A list names
a box once, in rising order. A bit vector tells the ids that have an entry, and has their lists in the same
order. ``check`` asserts this from the labels alone, without the code that files.

Not for: boxes that are not filed yet (``vci``).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.index.answers import Keys
from service.index.boxes import Boxes
from service.index.interval.cei_grid import spans_of
from service.index.interval.dlist import DirectLists, direct_lists
from service.index.interval.vci_encoding import difference_table
from service.index.interval.vci_grid import Fit, cells_of_points
from service.index.interval.vci_kernels import file_boxes, search, search_bits
from service.index.protocol import Bounds, Points

_WORD = 32


class Listed(NamedTuple):
    """One list an id, of all N ids: list g is ``entries[lists[g]:lists[g + 1]]``."""

    differences: NDArray[np.int64]
    lists: NDArray[np.int64]
    entries: NDArray[np.int32]

    @property
    def nbytes(self) -> int:
        return self.differences.nbytes + self.lists.nbytes + self.entries.nbytes

    def search(self, boxes: Boxes, least: NDArray[np.int64], out: Keys) -> int:
        found: int = search(boxes.slots, self.lists, self.entries, self.differences, least, out)
        return found


class BitVector(NamedTuple):
    """One bit an id, and one list for every bit that is set (``vci_kernels.search_bits``)."""

    table: NDArray[np.int64]
    bits: NDArray[np.uint32]
    ranks: NDArray[np.int32]
    lists: NDArray[np.int64]
    entries: NDArray[np.int32]

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self)

    def search(self, boxes: Boxes, least: NDArray[np.int64], out: Keys) -> int:
        table, bits, ranks, lists, entries = self
        found: int = search_bits(boxes.slots, bits, ranks, lists, entries, table, least, out)
        return found

    def check(self, differences: NDArray[np.int64]) -> None:
        """Asserts that the table is that of the differences, and that bits, ranks and lists agree. O(N)."""
        table, bits, ranks, lists, entries = self
        places = np.unpackbits(table.astype("<u4").view(np.uint8), bitorder="little")
        assert np.array_equal(np.flatnonzero(places), differences)
        counts = [word.bit_count() for word in bits.tolist()]
        assert np.array_equal(ranks, np.cumsum([0, *counts])[:-1])
        assert len(lists) == sum(counts) + 1
        assert lists[0] == 0 and lists[-1] == len(entries) and (np.diff(lists) > 0).all(), (
            "a bit without entries"
        )

    def unpacked(self, differences: NDArray[np.int64], ids: int) -> Listed:
        """The lists of all ids that this stands for. O(N)."""
        sizes = np.zeros(len(self.bits) * _WORD, np.int64)
        is_set = np.unpackbits(self.bits.view(np.uint8), bitorder="little").astype(np.bool_)
        sizes[is_set] = np.diff(self.lists)
        assert not is_set[ids:].any()
        return Listed(differences, np.append(0, np.cumsum(sizes[:ids])), self.entries)


class VciFiling:
    """A ``Filing``: the lists of virtual constructs, and the direct lists of the cells that ends cut."""

    def __init__(self, fit: Fit, *, bit_vector: bool) -> None:
        grid, lengths, spans = fit
        self._grid = grid
        self._lengths = lengths
        listed = id_lists(spans, lengths, grid.cells)
        self.constructs: Listed | BitVector = as_bit_vector(listed) if bit_vector else listed
        cuts_any = (spans[:, 2:] >= 0).any()
        self.cut: DirectLists | None = direct_lists(_only_cut(spans), grid.cells) if cuts_any else None
        self.nbytes = self.constructs.nbytes + (self.cut.nbytes if self.cut else 0)

    def search(self, boxes: Boxes, points: Points, out: Keys) -> int:
        cells = cells_of_points(points, self._grid)
        kinds = len(self._lengths)
        least = np.where(cells < 0, -1, cells * kinds + (kinds - 1))
        found = self.constructs.search(boxes, least, out)
        if self.cut is not None:
            found += self.cut.search(boxes, cells, points, out[found:])
        return found

    def check(self, lo: Bounds, hi: Bounds) -> None:
        grid, lengths = self._grid, self._lengths
        spans = spans_of(lo[:, 0], hi[:, 0], grid)
        differences = np.array(difference_table(lengths.tolist()), np.int64)
        constructs, ids = self.constructs, _id_count(grid.cells, lengths)
        if isinstance(constructs, BitVector):
            constructs.check(differences)
            constructs = constructs.unpacked(differences, ids)
        assert np.array_equal(constructs.differences, differences)
        assert len(constructs.lists) == ids + 1
        _check_listed(constructs, spans, lengths)
        if self.cut is None:
            assert (spans[:, 2:] < 0).all()
        else:
            self.cut.check(_only_cut(spans), grid.cells)


def _id_count(cells: int, lengths: NDArray[np.int64]) -> int:
    """N of an axis with L - 1 cells more before cell 0."""
    return int(cells + lengths[-1] - 1) * len(lengths)


def _only_cut(spans: NDArray[np.int64]) -> NDArray[np.int64]:
    """The spans with no cell covered whole."""
    without = spans.copy()
    without[:, 1] = without[:, 0]
    return without


def id_lists(spans: NDArray[np.int64], lengths: NDArray[np.int64], cells: int) -> Listed:
    """Files the boxes of some spans under their VCIs. O(n B + N + entries)."""
    lists = np.zeros(_id_count(cells, lengths) + 1, np.int64)
    file_boxes(spans, lengths, lists, np.empty(0, np.int32))
    np.cumsum(lists, out=lists)
    entries = np.empty(lists[-1], np.int32)
    file_boxes(spans, lengths, lists, entries)
    return Listed(np.array(difference_table(lengths.tolist()), np.int64), lists, entries)


def as_bit_vector(listed: Listed) -> BitVector:
    """The same lists behind a bit vector. O(N)."""
    differences, lists, entries = listed
    filed = np.diff(lists) > 0
    # One word more: the last window begins within the last word.
    words = -(-len(filed) // _WORD) + len(_bits(differences)) + 1
    is_set = np.zeros(words * _WORD, np.uint8)
    is_set[: len(filed)] = filed
    bits = np.packbits(is_set, bitorder="little").view(np.uint32)
    ones = np.append(0, np.cumsum(np.bitwise_count(bits), dtype=np.int64)[:-1])
    first = lists[:-1][filed]
    return BitVector(
        _bits(differences).astype(np.int64),
        bits,
        ones.astype(np.int32),
        np.append(first, lists[-1]),
        entries,
    )


def _bits(differences: NDArray[np.int64]) -> NDArray[np.uint32]:
    is_set = np.zeros(-(-int(differences[-1] + 1) // _WORD) * _WORD, np.uint8)
    is_set[differences] = 1
    return np.packbits(is_set, bitorder="little").view(np.uint32)


def _check_listed(listed: Listed, spans: NDArray[np.int64], lengths: NDArray[np.int64]) -> None:
    _, lists, entries = listed
    assert lists[0] == 0 and lists[-1] == len(entries) and (np.diff(lists) >= 0).all()
    assert ((entries >= 0) & (entries < len(spans))).all()
    ids = np.repeat(np.arange(len(lists) - 1), np.diff(lists))
    assert (np.diff(ids * (len(spans) + 1) + entries) > 0).all(), "a list names a box twice or out of order"

    order = np.lexsort((ids, entries))
    ids, boxes = ids[order], entries[order]
    start = ids // len(lengths) - (lengths[-1] - 1)
    length = lengths[ids % len(lengths)]
    stop = start + length
    again = boxes[1:] == boxes[:-1]
    assert (start[1:] == stop[:-1])[again].all(), "the VCIs of a box overlap or leave a gap"
    remaining = spans[boxes, 1] - start
    assert (length == lengths[np.searchsorted(lengths, remaining, "right") - 1]).all(), "a longer one fits"

    begins = np.append(True, ~again)[: len(boxes)]
    ends = np.append(~again, True)[: len(boxes)]
    covers = np.flatnonzero(spans[:, 0] < spans[:, 1])
    assert np.array_equal(boxes[begins], covers)
    assert np.array_equal(start[begins], spans[covers, 0])
    assert np.array_equal(stop[ends], spans[covers, 1])
