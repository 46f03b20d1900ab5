"""From the keys that moves are reported by to borders, in order.

Idea: a move that enters or leaves a slot is the key ``row << 32 | slot << 1 | entered``. One sort brings keys
into the order of the answer. Where rows and slots allow it they are packed into four bytes first: half the
bytes sort in half the time.

Not for: keys that repeat (there are none: a slot is entered or left once a move), or points (``answers``).
"""

from __future__ import annotations

import numpy as np
from numba import types

from service.index.answers import Keys
from service.index.kernel import kernel, reads, writes
from service.index.protocol import Borders

_FEW = 256
"""Below this many keys, what is saved by sorting less is spent on packing."""


def borders_of(keys: Keys, rows: int) -> Borders:
    """The answer about ``rows`` moves, from keys in any order; they may be sorted in place. O(k log k)."""
    found = np.empty(len(keys), np.int32), np.empty(len(keys), np.int32), np.empty(len(keys), np.bool_)
    if len(keys) > _FEW:
        packed = np.empty(len(keys), np.uint32)
        span = _pack(keys, rows, packed)
        if span:
            packed.sort()
            _unpack(packed, span, *found)
            return Borders(*found)
    keys.sort()
    _split(keys, *found)
    return Borders(*found)


_OUT = writes(types.int32, 1), writes(types.int32, 1), writes(types.boolean, 1)


@kernel(types.int64(reads(types.int64, 1), types.int64, writes(types.uint32, 1)))
def _pack(keys, rows, packed):  # type: ignore[no-untyped-def]
    """Writes ``row * span + (slot << 1 | entered)``, where ``span`` exceeds every second term, and returns
    span; or 0, and nothing is written, if that takes more than 32 bits."""
    top = np.int64(0)
    for key in keys:
        top = max(top, key & 0xFFFFFFFF)
    span = top + 1
    if rows * span > 1 << 32:
        return 0
    for i in range(len(keys)):
        packed[i] = (keys[i] >> 32) * span + (keys[i] & 0xFFFFFFFF)
    return span


@kernel(types.void(reads(types.uint32, 1), types.int64, *_OUT))
def _unpack(packed, span, rows, slots, entered):  # type: ignore[no-untyped-def]
    """Splits sorted packed keys into columns of the same length."""
    row = np.int64(0)
    first = np.int64(0)
    for i in range(len(packed)):
        key = np.int64(packed[i])
        if key - first >= span:
            row = key // span
            first = row * span
        rows[i] = row
        slots[i] = (key - first) >> 1
        entered[i] = (key - first) & 1 != 0


@kernel(types.void(reads(types.int64, 1), *_OUT))
def _split(keys, rows, slots, entered):  # type: ignore[no-untyped-def]
    """Splits keys into columns of the same length."""
    for i in range(len(keys)):
        rows[i] = keys[i] >> 32
        slots[i] = (keys[i] & 0xFFFFFFFF) >> 1
        entered[i] = keys[i] & 1 != 0
