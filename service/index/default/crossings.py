"""From the keys that moves are reported by to borders, in order.

Idea: a move that enters or leaves a slot is the key ``row << 32 | slot << 1 | entered``. One sort brings keys
into the order of the answer, in four bytes a key where rows and slots allow it.

Not for: keys that repeat (there are none: a slot is entered or left once a move), or points (``answers``).
"""

from __future__ import annotations

import numpy as np
from numba import types

from service.index.answers import Keys, sorted_in_half
from service.index.kernel import kernel, reads, writes
from service.index.protocol import Borders


def borders_of(keys: Keys, rows: int) -> Borders:
    """The answer about ``rows`` moves, from keys in any order; they may be sorted in place. O(k log k)."""
    found = np.empty(len(keys), np.int32), np.empty(len(keys), np.int32), np.empty(len(keys), np.bool_)
    packed = sorted_in_half(keys, rows)
    if packed is not None:
        _unpack(*packed, *found)
        return Borders(*found)
    keys.sort()
    _split(keys, *found)
    return Borders(*found)


_OUT = writes(types.int32, 1), writes(types.int32, 1), writes(types.boolean, 1)


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
