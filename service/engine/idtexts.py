"""The ids of queries as JSON in one array of bytes, by slot: for kernels that write or order them.

Idea: the room of a slot is a power of two and is used again, so what lies idle is never more than what is in
use, and nothing is ever moved. Invariants: ids need no escaping; in their quotation marks they have the order
that they have without, since these come before all that an id is made of. Not for: ids as ``str``
(``queryset``).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class IdTexts:
    """The id of a slot is ``text[starts[slot]:starts[slot] + lengths[slot]]``: ``text uint8[...]``,
    ``starts`` and ``lengths``, ``uint64[capacity]``."""

    def __init__(self, capacity: int) -> None:
        self.text: NDArray[np.uint8] = np.zeros(16 * capacity, dtype=np.uint8)
        self.starts: NDArray[np.uint64] = np.zeros(capacity, dtype=np.uint64)
        self.lengths: NDArray[np.uint64] = np.zeros(capacity, dtype=np.uint64)
        self._rooms: NDArray[np.int64] = np.zeros(capacity, dtype=np.int64)
        self._used = 0

    def grow(self) -> None:
        """Room for twice as many slots."""
        self.starts, self.lengths, self._rooms = (
            np.concatenate([one, np.zeros_like(one)]) for one in (self.starts, self.lengths, self._rooms)
        )

    def put(self, slot: int, id: str) -> None:
        """A slot has been taken by a query. O(len(id)), amortised."""
        encoded = b'"%b"' % id.encode()
        length = len(encoded)
        if self._rooms[slot] < length:
            room = 1 << (length - 1).bit_length()
            while self._used + room > len(self.text):
                self.text = np.concatenate([self.text, np.zeros_like(self.text)])
            self.starts[slot], self._rooms[slot] = self._used, room
            self._used += room
        start = int(self.starts[slot])
        self.text[start : start + length] = np.frombuffer(encoded, dtype=np.uint8)
        self.lengths[slot] = length
