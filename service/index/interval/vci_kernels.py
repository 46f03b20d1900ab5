"""Kernels of the virtual construct intervals: decomposition, filing and search.

Words of the paper: the axis is cut into *cells* of unit length, numbered from 0. At every cell begin B
virtual construct intervals (*VCIs*), of the lengths ``lengths``, rising from 1 to L: all of 1 .. L for SCI,
the powers of two for LCI, 1 alone for UI. The id of ``[a, a + lengths[l])`` is ``(a - a0) B + l``. Here
``a0`` lies L - 1 cells before cell 0, so that no cell is too near to the left end to have all its covering
VCIs, and one *difference table* serves every cell: the VCIs that cover cell j are its least id, ``(j + 1 - L
- a0) B + B - 1 = j B + B - 1``, plus each of the differences.

``entries[lists[g]:lists[g + 1]]`` are the boxes filed under the VCI with id g.

Each kernel has a slow twin in the tests of the index. Not for: ends inside a cell (``dlist_kernels``).
"""

from __future__ import annotations

import numpy as np
from numba import types

from service.index.kernel import kernel, reads, writes


@kernel(types.int64(types.int64, types.int64, reads(types.int64, 1), writes(types.int64, 1)))
def decompose(start, stop, lengths, ids):  # type: ignore[no-untyped-def]
    """The ids of the VCIs that make up the cells ``[start, stop)``, left to right (VCI paper, Sect. 2.3).

    The longest VCI that fits is cut off at the left until nothing remains. ``ids`` must hold ``(stop - start)
    / L + B``. Returns the number written. O(B + (stop - start) / L).
    """
    kinds = len(lengths)
    first = lengths[kinds - 1] - 1
    count = 0
    kind = kinds - 1
    while start < stop:
        while lengths[kind] > stop - start:
            kind -= 1
        ids[count] = (start + first) * kinds + kind
        count += 1
        start += lengths[kind]
    return count


@kernel(
    types.void(reads(types.int64, 2), reads(types.int64, 1), writes(types.int64, 1), writes(types.int32, 1))
)
def file_boxes(spans, lengths, lists, entries):  # type: ignore[no-untyped-def]
    """Files boxes under the VCIs that they decompose into, in two passes.

    ``spans``: ``int64[n, 4]``, a box a row, which covers the cells ``[start, stop)`` of the first two columns
    whole. With ``entries`` empty, counts: adds one to ``lists[id]`` for every filing. Else ``lists[id]``
    holds where the list ends and is moved down to where it begins, while the numbers of its boxes are
    written, in rising order. O(n B + entries).
    """
    filing = len(entries) > 0
    widest = np.int64(0)
    for box in range(spans.shape[0]):
        widest = max(widest, spans[box, 1] - spans[box, 0])
    ids = np.empty(widest // lengths[len(lengths) - 1] + len(lengths), np.int64)
    for box in range(spans.shape[0] - 1, -1, -1):
        for i in range(decompose(spans[box, 0], spans[box, 1], lengths, ids)):
            if filing:
                lists[ids[i]] -= 1
                entries[lists[ids[i]]] = box
            else:
                lists[ids[i]] += 1


@kernel(
    types.int64(
        reads(types.int32, 1),
        reads(types.int64, 1),
        reads(types.int32, 1),
        reads(types.int64, 1),
        reads(types.int64, 1),
        writes(types.int64, 1),
    )
)
def search(slots, lists, entries, differences, least, out):  # type: ignore[no-untyped-def]
    """Writes the key ``row << 32 | slot`` of every box that covers the cell of a row whole (Sect. 2.4).

    ``least[row]`` is the least id of the VCIs that cover its cell, negative for a point that is nowhere. What
    is listed holds the point without a look at its ends. Returns the number of keys, of which the first
    ``len(out)`` are written. O(m C + entries met) for C differences.
    """
    needed = 0
    for row in range(len(least)):
        if least[row] < 0:
            continue
        for difference in differences:
            id = least[row] + difference
            for i in range(lists[id], lists[id + 1]):
                slot = slots[entries[i]]
                if slot >= 0:
                    if needed < len(out):
                        out[needed] = (np.int64(row) << 32) | slot
                    needed += 1
    return needed


@kernel(types.int64(types.int64))
def ones(word):  # type: ignore[no-untyped-def]
    """The number of ones in a word of 32 bits: sums of pairs, of fours, of eights, and of all."""
    word -= (word >> 1) & 0x55555555
    word = (word & 0x33333333) + ((word >> 2) & 0x33333333)
    word = (word + (word >> 4)) & 0x0F0F0F0F
    return ((word * 0x01010101) >> 24) & 0xFF


@kernel(
    types.int64(
        reads(types.int32, 1),
        reads(types.uint32, 1),
        reads(types.int32, 1),
        reads(types.int64, 1),
        reads(types.int32, 1),
        reads(types.int64, 1),
        reads(types.int64, 1),
        writes(types.int64, 1),
    )
)
def search_bits(slots, bits, ranks, lists, entries, table, least, out):  # type: ignore[no-untyped-def]
    """``search`` by the bit vector: bit g says whether anything is filed under id g, and only such ids have a
    list, ``lists`` being in the order of their ids.

    ``ranks[w]`` counts the ones of all words before ``bits[w]``; one more word than ids need must follow.
    ``table`` is the difference table as bits, 32 a word: it is laid over the bits from the least id on, and
    only where both are set is there a list. O(m L B / 32 + lists and entries met).
    """
    needed = 0
    for row in range(len(least)):
        if least[row] < 0:
            continue
        for chunk in range(len(table)):
            place = least[row] + 32 * chunk
            word = place >> 5
            shift = place & 31
            low = np.int64(bits[word])
            window = ((low | (np.int64(bits[word + 1]) << 32)) >> shift) & 0xFFFFFFFF
            covering = window & table[chunk]
            if covering == 0:
                continue
            before = ranks[word] + ones(low & ((np.int64(1) << shift) - 1))
            while covering != 0:
                lowest = covering & -covering
                covering ^= lowest
                listed = before + ones(window & (lowest - 1))
                for i in range(lists[listed], lists[listed + 1]):
                    slot = slots[entries[i]]
                    if slot >= 0:
                        if needed < len(out):
                            out[needed] = (np.int64(row) << 32) | slot
                        needed += 1
    return needed
