"""Signatures: the set of attributes that a box constrains.

Not for: which structure holds the boxes of a signature (``chooser``).
"""

from __future__ import annotations

import numpy as np
from numba import types
from numpy.typing import NDArray

from service.index.default.part import MOST_ATTRIBUTES, Sparse
from service.index.kernel import kernel, reads, writes

_WORDS = MOST_ATTRIBUTES // 64


def signatures(boxes: Sparse) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The boxes by signature: ``int32[n]``, for each box the number of its signature, and ``int32[s]``, for
    each signature the first of its boxes. O(c) for c constraints."""
    masks = masks_of(boxes)
    number, firsts = np.empty(len(boxes), np.int32), np.empty(len(boxes), np.int32)
    count = _numbered(masks, number, firsts)
    return number, firsts[:count]


def masks_of(boxes: Sparse) -> NDArray[np.uint64]:
    """Their signatures as sets of bits: ``uint64[n, 4]``, bit a for attribute a. O(c)."""
    masks = np.zeros((len(boxes), _WORDS), np.uint64)
    _masks(boxes.starts, boxes.attributes, masks)
    return masks


_MASKS = reads(types.uint64, 2)


@kernel(types.void(reads(types.int64, 1), reads(types.uint8, 1), writes(types.uint64, 2)))
def _masks(starts, attributes, masks):  # type: ignore[no-untyped-def]
    """Sets bit a of ``masks[i]`` for every attribute a of box i."""
    for i in range(masks.shape[0]):
        for entry in range(starts[i], starts[i + 1]):
            a = attributes[entry]
            masks[i, a >> 6] |= np.uint64(1) << np.uint64(a & 63)


@kernel(types.int64(_MASKS, writes(types.int32, 1), writes(types.int32, 1)))
def _numbered(masks, number, firsts):  # type: ignore[no-untyped-def]
    """Numbers equal rows from 0 in the order of their first: row i has ``number[i]``, and number k is first
    at ``firsts[k]``. Returns how many there are. O(n)."""
    rows, words = masks.shape
    size = 16
    while size < 2 * rows:
        size *= 2
    table = np.full(size, -1, np.int32)
    count = 0
    for i in range(rows):
        mixed = np.uint64(0)
        for word in range(words):
            mixed ^= masks[i, word]
            mixed ^= mixed >> np.uint64(29)
            # Halves, so that no product leaves 64 bits.
            mixed = (mixed & np.uint64(0xFFFFFFFF)) * np.uint64(0x9E3779B1) ^ (
                mixed >> np.uint64(32)
            ) * np.uint64(0x85EBCA77)
        place = np.int64((mixed ^ mixed >> np.uint64(32)) & np.uint64(size - 1))
        while True:
            known = table[place]
            if known < 0:
                table[place] = count
                firsts[count] = i
                number[i] = count
                count += 1
                break
            same = True
            for word in range(words):
                same &= masks[i, word] == masks[firsts[known], word]
            if same:
                number[i] = known
                break
            place = (place + 1) & (size - 1)
    return count
