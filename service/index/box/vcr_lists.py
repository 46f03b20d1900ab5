"""The ID lists of VCR: which boxes are filed under which virtual construct rectangle, held in three ways.

An *array* has a list for every VCR, activated or not; *hashing* keeps the activated ones in a hash table
(both of the VCR paper, Sect. 2.2.3); a *bit vector* has a bit for every VCR and a list for every bit that is
set, as the VCI paper's LCI-BV(DT) has in one attribute. A VCR that is not activated takes a sixteenth of what
it takes in the array; search was up to twice as fast where answers are small, and as fast where they are
large. So the bit vector is the default.

Invariants: a structure is frozen once it is made. What a list holds is asserted by ``vcr_check``.

Not for: boxes that are not filed yet (``vcr``).
"""

from __future__ import annotations

from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from service.index.answers import Keys
from service.index.box.vcr_check import check
from service.index.box.vcr_grid import Fit, Side, id_count, pieces_of, pivots_of, rects_of, table_of
from service.index.box.vcr_kernels import Plane, decompose_all, file_boxes
from service.index.box.vcr_search_kernels import (
    Bits,
    Hashed,
    Listed,
    buckets_of,
    search,
    search_bits,
    search_hashed,
)
from service.index.boxes import Boxes
from service.index.protocol import Bounds, Points

_WORD = 32


class Lists(StrEnum):
    """How ID lists are found from the ids of VCRs."""

    ARRAY = "array"
    HASHED = "hashed"
    BITS = "bits"


BYTES_AN_ID = {Lists.ARRAY: 4.0, Lists.HASHED: 0.0, Lists.BITS: 0.25}
"""What a VCR costs that is not activated."""


class VcrFiling:
    """A ``Filing``; ``hash_size`` is the paper's H, of VCR hashing."""

    def __init__(self, fit: Fit, lists: Lists, *, overlapped: bool, hash_size: int) -> None:
        self._grids = fit.grids
        self.plane = fit.plane
        self._overlapped = overlapped
        pieces = pieces_of(fit.rects, fit.plane, overlapped=overlapped)
        if lists is Lists.HASHED:
            self.constructs: Listed | Hashed | Bits = _hashed(fit, pieces, overlapped, hash_size)
        else:
            listed = _listed(fit, pieces, overlapped)
            self.constructs = _bits(listed, fit.plane) if lists is Lists.BITS else listed
        for array in self.constructs:
            array.flags.writeable = False
        self.nbytes = sum(array.nbytes for array in self.constructs)

    def search(self, boxes: Boxes, points: Points, out: Keys) -> int:
        pivots = pivots_of(points, self._grids, self.plane)
        lo, hi, slots, constructs = boxes.lo, boxes.hi, boxes.slots, self.constructs
        if isinstance(constructs, Listed):
            found: int = search(lo, hi, slots, constructs, pivots, points, out)
        elif isinstance(constructs, Hashed):
            found = search_hashed(lo, hi, slots, constructs, pivots, points, out)
        else:
            found = search_bits(lo, hi, slots, constructs, pivots, points, out)
        return found

    @property
    def activated(self) -> int:
        """How many VCRs have an entry."""
        lists = self.constructs.lists
        return int(np.count_nonzero(lists[1:] > lists[:-1]))

    @property
    def entries(self) -> int:
        """How many entries there are in all lists."""
        return len(self.constructs.entries)

    def check(self, lo: Bounds, hi: Bounds) -> None:
        fit = Fit(self._grids, self.plane, rects_of(lo, hi, self._grids))
        check(self.constructs, fit, lo, hi, overlapped=self._overlapped)


def _most(pieces: tuple[Side, Side]) -> int:
    """As large as the largest decomposition, and as the room that cutting one side takes."""
    most = (pieces[0] * pieces[1]).max(initial=1)
    return int(max(most, pieces[0].max(initial=1), pieces[1].max(initial=1)))


def _listed(fit: Fit, pieces: tuple[Side, Side], overlapped: bool) -> Listed:
    plane = fit.plane
    most = _most(pieces)
    lists = np.zeros(id_count(plane) + 1, np.int32)
    file_boxes(fit.rects, plane, overlapped, most, lists, np.empty(0, np.int32))
    np.cumsum(lists, out=lists)
    entries = np.empty(lists[-1], np.int32)
    file_boxes(fit.rects, plane, overlapped, most, lists, entries)
    return Listed(table_of(plane), lists, entries)


def _hashed(fit: Fit, pieces: tuple[Side, Side], overlapped: bool, size: int) -> Hashed:
    count = int((pieces[0] * pieces[1]).sum())
    ids, entries = np.empty(count, np.int64), np.empty(count, np.int32)
    decompose_all(fit.rects, fit.plane, overlapped, _most(pieces), ids, entries)
    activated, number, sizes = np.unique(ids, return_inverse=True, return_counts=True)
    buckets = np.empty(len(activated), np.int32)
    buckets_of(activated, size, buckets)
    by_bucket = np.argsort(buckets, kind="stable")
    place = np.empty(len(activated), np.int32)
    place[by_bucket] = np.arange(len(activated), dtype=np.int32)
    return Hashed(
        table_of(fit.plane),
        _sums(np.bincount(buckets, minlength=size)),
        activated[by_bucket],
        _sums(sizes[by_bucket]),
        entries[np.argsort(place[number], kind="stable")],
    )


def _bits(listed: Listed, plane: Plane) -> Bits:
    table, lists, entries = listed
    filed = lists[1:] > lists[:-1]
    # A window may begin in the last word with an id, and reads the word behind it.
    bits = _packed(np.flatnonzero(filed), len(filed) + 2 * _WORD)
    ones = np.append(0, np.cumsum(np.bitwise_count(bits), dtype=np.int64)[:-1])
    offsets, masks = _masks(table, plane)
    first = lists[:-1][filed]
    return Bits(offsets, masks, bits, ones.astype(np.int32), np.append(first, lists[-1]), entries)


def _masks(table: NDArray[np.int64], plane: Plane) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The distance table as words to be laid over the bits: every row of corners begins a new word."""
    row = (plane.kx + 1) * (plane.ky + 1) * plane.range_x
    offsets, masks = [], []
    for first in range(0, int(table[-1]) + 1, row):
        inside = table[(first <= table) & (table < first + row)] - first
        words = _packed(inside, int(inside[-1]) + 1)
        used = np.flatnonzero(words)
        offsets.append(first + _WORD * used)
        masks.append(words[used].astype(np.int64))
    return np.concatenate(offsets), np.concatenate(masks)


def _packed(places: NDArray[np.int64], room: int) -> NDArray[np.uint32]:
    """Words of 32 bits for ``room`` bits and more, those at ``places`` set."""
    is_set = np.zeros(-(-room // _WORD) * _WORD, np.uint8)
    is_set[places] = 1
    return np.packbits(is_set, bitorder="little").view("<u4").astype(np.uint32)


def _sums(counts: NDArray[np.intp]) -> NDArray[np.int32]:
    """Where each of so many things begins, and where the last ends."""
    return np.append(0, np.cumsum(counts)).astype(np.int32)
