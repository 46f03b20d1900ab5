"""The elements of a JSON array, counted before anything is made of them: each may be a few bytes or many.

Pure. Not for: whether it is JSON.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numpy.typing import NDArray

from service.index.kernel import kernel, reads, writes

Text = NDArray[np.uint8]
Spans = NDArray[np.int64]
"""(n, 2): where in a text each of n elements begins and ends."""

_NO_SPANS = np.empty((0, 2), np.int64)


def is_array(value: bytes) -> bool:
    """Whether a JSON value begins like an array."""
    return value.lstrip(b" \t\r\n")[:1] == b"["


def count_elements(array: bytes) -> int:
    """How many elements a JSON array has. O(bytes), without the interpreter's lock."""
    return int(elements(np.frombuffer(array, np.uint8), _NO_SPANS))


@kernel(types.int64(reads(types.uint8, 1), writes(types.int64, 2)))
def elements(text: Text, spans: Spans) -> int:
    """How many elements a JSON array has; the begins and ends of as many as there is room for. Of what only
    begins like one it is no fewer than a reader finds before the mistake."""
    count, depth, begin, end = 0, 0, -1, 0
    in_string = is_escaped = False
    for i in range(len(text)):
        sign = text[i]
        if in_string:
            end = i + 1
            if is_escaped:
                is_escaped = False
            elif sign == ord("\\"):
                is_escaped = True
            elif sign == ord('"'):
                in_string = False
            continue
        if sign == ord(" ") or sign == ord("\n") or sign == ord("\r") or sign == ord("\t"):
            continue
        if sign == ord("]") or sign == ord("}"):
            depth -= 1
        if begin >= 0 and (depth == 0 or (depth == 1 and sign == ord(","))):
            if count < len(spans):
                spans[count] = begin, end
            count += 1
            begin = -1
            continue
        if begin < 0 and depth == 1:
            begin = i
        end = i + 1
        if sign == ord("[") or sign == ord("{"):
            depth += 1
        in_string = sign == ord('"')
    return count
