"""What must hold of the ID lists of VCR, asserted from the labels alone, without the code that files.

The VCRs that a box is filed under are all pairs of a piece of its one side and a piece of its other. Simple
decomposition: the pieces of a side follow each other without a gap, each the longest that fits. Overlapped:
all are the longest that fits at first, and only the last one begins before its predecessor ends. An entry is
complemented where an end cuts the VCR, and nowhere else. A list names a box once, in rising order.

Not for: what answers must hold.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.index.box.vcr_grid import Fit, Side, id_count, sides, table_of
from service.index.box.vcr_kernels import Plane
from service.index.box.vcr_search_kernels import Bits, Hashed, Listed, buckets_of
from service.index.interval.cei_grid import spans_of
from service.index.protocol import Bounds

_WORD = 32


class Filed(NamedTuple):
    """What was filed, in the order of ids: entry e is in the list of the VCR ``ids[e]``."""

    ids: NDArray[np.int64]
    entries: NDArray[np.int32]


def check(constructs: Listed | Hashed | Bits, fit: Fit, lo: Bounds, hi: Bounds, *, overlapped: bool) -> None:
    """Asserts that the lists are those of n boxes ``float64[n, 2]``. O(entries log entries + ids)."""
    grids, plane, _ = fit
    lists, entries = constructs.lists, constructs.entries
    assert plane.range_x == max(grids[0].cells, 1 << plane.kx)
    assert plane.range_y == grids[1].cells
    assert not any(array.flags.writeable for array in constructs)
    assert lists[0] == 0 and lists[-1] == len(entries) and (np.diff(lists) >= 0).all()
    if isinstance(constructs, Listed):
        filed = _check_listed(constructs, plane)
    elif isinstance(constructs, Hashed):
        filed = _check_hashed(constructs, plane)
    else:
        filed = _check_bits(constructs, plane)
    boxes = np.where(filed.entries < 0, ~filed.entries, filed.entries).astype(np.int64)
    assert (boxes < len(lo)).all()
    again = filed.ids[1:] == filed.ids[:-1]
    assert (np.diff(boxes)[again] > 0).all(), "a list names a box twice or out of order"

    corners, kinds = np.divmod(filed.ids, (plane.kx + 1) * (plane.ky + 1))
    places = corners % plane.range_x, corners // plane.range_x - (1 << plane.ky)
    levels = kinds % (plane.kx + 1), kinds // (plane.kx + 1)
    filings = np.ones(len(lo), np.int64)
    cut = np.zeros(len(boxes), np.bool_)
    for j, k in enumerate((plane.kx, plane.ky)):
        met = fit.rects[:, 4 * j], fit.rects[:, 4 * j + 1]
        filings *= _check_side(boxes, places[j], levels[j], met, k, overlapped=overlapped)
        spans = spans_of(*sides(lo, hi, j), grids[j])[boxes]
        for cells in (spans[:, 2], spans[:, 3]):
            cut |= (places[j] <= cells) & (cells < places[j] + (1 << levels[j]))
    assert np.array_equal(filings, np.bincount(boxes, minlength=len(lo))), "not all pairs of pieces"
    assert np.array_equal(filed.entries < 0, cut), "compared where no end cuts, or the reverse"


def _check_side(
    boxes: NDArray[np.int64], places: Side, levels: Side, met: tuple[Side, Side], k: int, *, overlapped: bool
) -> NDArray[np.int64]:
    """Asserts that the pieces of one side of every box are as they should; how many there are a box."""
    cells = int(met[1].max(initial=0)) + 1
    keys, level = np.divmod(np.unique((boxes * cells + places) * (k + 1) + levels), k + 1)
    box, start = np.divmod(keys, cells)
    stop = start + (1 << level)
    again = box[1:] == box[:-1]
    first, last = np.append(True, ~again)[: len(box)], np.append(~again, True)[: len(box)]
    every = np.arange(len(met[0]))
    assert np.array_equal(box[first], every) and np.array_equal(box[last], every), "a box without pieces"
    assert np.array_equal(start[first], met[0]) and np.array_equal(stop[last], met[1])
    if overlapped:
        assert (level[1:] == level[:-1])[again].all(), "of different length"
        back = (stop[:-1] - start[1:])[again]
        assert (back >= 0).all(), "a gap"
        assert (back < (1 << level[1:])[again]).all(), "one that adds nothing"
        assert (back[~last[1:][again]] == 0).all(), "one that is not the last moved back"
        remaining = met[1][box] - met[0][box]
    else:
        assert (start[1:] == stop[:-1])[again].all(), "the pieces overlap or leave a gap"
        remaining = met[1][box] - start
    longest_fits = (level == k) | ((2 << level) > remaining)
    assert (longest_fits & ((1 << level) <= remaining) & (level <= k)).all(), "not the longest that fits"
    return np.bincount(box, minlength=len(every))


def _check_listed(listed: Listed, plane: Plane) -> Filed:
    assert np.array_equal(listed.table, table_of(plane))
    assert len(listed.lists) == id_count(plane) + 1
    return Filed(np.repeat(np.arange(id_count(plane)), np.diff(listed.lists)), listed.entries)


def _check_hashed(hashed: Hashed, plane: Plane) -> Filed:
    table, heads, ids, lists, entries = hashed
    assert np.array_equal(table, table_of(plane))
    assert heads[0] == 0 and heads[-1] == len(ids) == len(lists) - 1 and (np.diff(heads) >= 0).all()
    assert (np.diff(lists) > 0).all(), "a VCR that is not activated"
    assert len(np.unique(ids)) == len(ids)
    assert ((ids >= 0) & (ids < id_count(plane))).all()
    buckets = np.empty(len(ids), np.int32)
    buckets_of(ids, len(heads) - 1, buckets)
    assert np.array_equal(buckets, np.repeat(np.arange(len(heads) - 1), np.diff(heads)))
    filed = np.repeat(ids, np.diff(lists))
    order = np.argsort(filed, kind="stable")
    return Filed(filed[order], entries[order])


def _check_bits(vector: Bits, plane: Plane) -> Filed:
    offsets, masks, bits, ranks, lists, entries = vector
    distances = [
        int(offset) + bit
        for offset, mask in zip(offsets, masks, strict=True)
        for bit in range(_WORD)
        if mask >> bit & 1
    ]
    assert distances == table_of(plane).tolist()
    activated = _unpacked(bits)
    assert len(activated) == len(lists) - 1
    assert (np.diff(lists) > 0).all(), "a bit without entries"
    assert (activated < id_count(plane)).all()
    assert len(bits) * _WORD >= id_count(plane) + _WORD
    before = np.searchsorted(activated, _WORD * np.arange(len(bits)))
    assert np.array_equal(ranks, before)
    return Filed(np.repeat(activated, np.diff(lists)), entries)


def _unpacked(words: NDArray[np.uint32]) -> NDArray[np.intp]:
    """The places of the bits that are set."""
    return np.flatnonzero(np.unpackbits(words.astype("<u4").view(np.uint8), bitorder="little"))
