"""Kernels of VCR that search: from the pivot VCR of a point to the ID lists of its covering VCR set.

Words are those of ``vcr_kernels``. There are three ways from an id to its list: an array of lists, a hash
table of the activated VCRs, and a bit vector; all report what they find alike.

Structures are tuples of arrays that are frozen (not writable), as their types say: numba lets a kernel that
only reads have a writable array, but not a tuple of them.

Each kernel has a slow twin in the tests of the index. Not for: filing (``vcr_kernels``).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from service.index.kernel import kernel, reads, writes
from service.index.protocol import Bounds, Points, Slots


class Stored(NamedTuple):
    """Who is compared: boxes ``float64[n, 2]``, their slots, and points ``float64[m, 2]``."""

    lo: Bounds
    hi: Bounds
    slots: Slots
    points: Points


class Listed(NamedTuple):
    """A list an id, of all ids: list g is ``entries[lists[g]:lists[g + 1]]``. ``table``: the distances."""

    table: NDArray[np.int64]
    lists: NDArray[np.int32]
    entries: NDArray[np.int32]


class Hashed(NamedTuple):
    """A hash table of the activated VCRs (Sect. 2.2.3): in bucket h are the numbers ``heads[h]`` up to
    ``heads[h + 1]``; number c has the id ``ids[c]`` and the list ``entries[lists[c]:lists[c + 1]]``."""

    table: NDArray[np.int64]
    heads: NDArray[np.int32]
    ids: NDArray[np.int64]
    lists: NDArray[np.int32]
    entries: NDArray[np.int32]


class Bits(NamedTuple):
    """A bit an id, and a list for every bit that is set, in order. ``ranks[w]`` counts the ones of all words
    before ``bits[w]``; one more word than ids need must follow. The distance table is ``masks``, each to be
    laid over the 32 bits that begin ``offsets`` behind the pivot VCR."""

    offsets: NDArray[np.int64]
    masks: NDArray[np.int64]
    bits: NDArray[np.uint32]
    ranks: NDArray[np.int32]
    lists: NDArray[np.int32]
    entries: NDArray[np.int32]


_INT64S, _INT32S = reads(types.int64, 1), reads(types.int32, 1)
_MATRIX = reads(types.float64, 2)
_OUT = writes(types.int64, 1)


def _named(fields: tuple[Any, ...], name: Any) -> Any:
    return types.NamedTuple(fields, name)  # type: ignore[no-untyped-call]


_STORED = _named((_MATRIX, _MATRIX, _INT32S, _MATRIX), Stored)
_LISTED = _named((_INT64S, _INT32S, _INT32S), Listed)
_HASHED = _named((_INT64S, _INT32S, _INT64S, _INT32S, _INT32S), Hashed)
_BITS = _named((_INT64S, _INT64S, reads(types.uint32, 1), _INT32S, _INT32S, _INT32S), Bits)


@kernel(types.int64(types.int64, types.int64))
def bucket_of(id, size):  # type: ignore[no-untyped-def]
    """Where an id is hashed: randomised, since activated VCRs cluster, then divided by the size of the table,
    below ``2**31`` and best a prime (Sect. 2.2.3). No product exceeds 63 bits."""
    folded = (id ^ (id >> 31)) & 0x7FFFFFFF
    return ((folded * 0x9E3779B1) >> 15) % size


@kernel(types.void(_INT64S, types.int64, writes(types.int32, 1)))
def buckets_of(ids, size, out):  # type: ignore[no-untyped-def]
    """Writes the bucket of every id."""
    for i in range(len(ids)):
        out[i] = bucket_of(ids[i], size)


@kernel(types.int64(_STORED, _INT32S, types.int64, types.int64, types.int64, _OUT, types.int64))
def report(stored, entries, first, stop, row, out, needed):  # type: ignore[no-untyped-def]
    """Adds the keys of a list ``first .. stop`` for one row to ``needed`` earlier ones; their number."""
    for i in range(first, stop):
        entry = entries[i]
        if entry < 0:
            box = np.int64(~entry)
            x, y = stored.points[row, 0], stored.points[row, 1]
            if not (stored.lo[box, 0] <= x and x < stored.hi[box, 0]):
                continue
            if not (stored.lo[box, 1] <= y and y < stored.hi[box, 1]):
                continue
        else:
            box = np.int64(entry)
        slot = stored.slots[box]
        if slot >= 0:
            if needed < len(out):
                out[needed] = (np.int64(row) << 32) | slot
            needed += 1
    return needed


@kernel(types.int64(_MATRIX, _MATRIX, _INT32S, _LISTED, _INT64S, _MATRIX, _OUT))
def search(lo, hi, slots, constructs, pivots, points, out):  # type: ignore[no-untyped-def]
    """Writes the key ``row << 32 | slot`` of every point in every filed box, once or more (Sect. 2.3.2).

    ``pivots[row]`` is the id of the pivot VCR of a point, negative for one that is nowhere. The ids of the
    covering VCR set follow by additions. Returns the number of keys, of which the first ``len(out)`` are
    written. O(m C + entries met) for the C numbers of the distance table.
    """
    table, lists, entries = constructs
    stored = Stored(lo, hi, slots, points)
    needed = 0
    for row in range(len(pivots)):
        if pivots[row] < 0:
            continue
        for distance in table:
            id = pivots[row] + distance
            first, stop = lists[id], lists[id + 1]
            if first < stop:
                needed = report(stored, entries, first, stop, row, out, needed)
    return needed


@kernel(types.int64(_MATRIX, _MATRIX, _INT32S, _HASHED, _INT64S, _MATRIX, _OUT))
def search_hashed(lo, hi, slots, constructs, pivots, points, out):  # type: ignore[no-untyped-def]
    """``search`` by VCR hashing (Sect. 2.2.3).

    Most buckets are empty, and each lies elsewhere in memory: all are looked up before the first is looked
    into, so that the memory answers several at a time. This took half the time of one after another.
    """
    table, heads, ids, lists, entries = constructs
    stored = Stored(lo, hi, slots, points)
    size = len(heads) - 1
    firsts, stops = np.empty(len(table), np.int32), np.empty(len(table), np.int32)
    # One more than can be found: the place behind the last is written too.
    found = np.empty(len(table) + 1, np.int32)
    needed = 0
    for row in range(len(pivots)):
        if pivots[row] < 0:
            continue
        for i in range(len(table)):
            bucket = bucket_of(pivots[row] + table[i], size)
            firsts[i] = heads[bucket]
            stops[i] = heads[bucket + 1]
        count = 0
        for i in range(len(table)):
            id = pivots[row] + table[i]
            for c in range(firsts[i], stops[i]):
                found[count] = c
                count += ids[c] == id
        for i in range(count):
            c = found[i]
            needed = report(stored, entries, lists[c], lists[c + 1], row, out, needed)
    return needed


@kernel(types.int64(types.int64))
def ones(word):  # type: ignore[no-untyped-def]
    """The number of ones in a word of 32 bits: sums of pairs, of fours, of eights, and of all."""
    word -= (word >> 1) & 0x55555555
    word = (word & 0x33333333) + ((word >> 2) & 0x33333333)
    word = (word + (word >> 4)) & 0x0F0F0F0F
    return ((word * 0x01010101) >> 24) & 0xFF


@kernel(types.int64(_MATRIX, _MATRIX, _INT32S, _BITS, _INT64S, _MATRIX, _OUT))
def search_bits(lo, hi, slots, constructs, pivots, points, out):  # type: ignore[no-untyped-def]
    """``search`` by a bit vector: the VCRs around a point whose corners lie in one row have ids near each
    other, so a few words tell which of them are activated. O(m Ly Lx B / 32 + lists and entries met)."""
    offsets, masks, bits, ranks, lists, entries = constructs
    stored = Stored(lo, hi, slots, points)
    needed = 0
    for row in range(len(pivots)):
        if pivots[row] < 0:
            continue
        for chunk in range(len(offsets)):
            place = pivots[row] + offsets[chunk]
            word = place >> 5
            shift = place & 31
            low = np.int64(bits[word])
            window = ((low | (np.int64(bits[word + 1]) << 32)) >> shift) & 0xFFFFFFFF
            covering = window & masks[chunk]
            if covering == 0:
                continue
            before = ranks[word] + ones(low & ((np.int64(1) << shift) - 1))
            while covering != 0:
                lowest = covering & -covering
                covering ^= lowest
                c = before + ones(window & (lowest - 1))
                needed = report(stored, entries, lists[c], lists[c + 1], row, out, needed)
    return needed
