"""The ids of queries as JSON in one array of bytes, by slot: for kernels that write or order them.

Idea: the room of a slot is a power of two and is used again, so what lies idle is never more than what is in
use, and nothing is ever moved. Invariants: ids need no escaping; in their quotation marks they have the order
that they have without, since these come before all that an id is made of. Not for: ids as ``str``
(``queryset``).
"""

from __future__ import annotations

from collections.abc import Sequence

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

    def put(self, slots: Sequence[int], ids: Sequence[str]) -> None:
        """Slots, each once, have been taken by queries. O(length of the ids), amortised."""
        encoded = [b'"%b"' % id.encode() for id in ids]
        at = np.array(slots, dtype=np.int64)
        lengths = np.array(list(map(len, encoded)), dtype=np.int64)
        small = self._rooms[at] < lengths
        if small.any():
            self._make_room(at[small], lengths[small])
        self.lengths[at] = lengths
        begins = self.starts[at].astype(np.int64) - (np.cumsum(lengths) - lengths)
        joined = np.frombuffer(b"".join(encoded), dtype=np.uint8)
        self.text[np.repeat(begins, lengths) + np.arange(len(joined))] = joined

    def _make_room(self, at: NDArray[np.int64], lengths: NDArray[np.int64]) -> None:
        _, bits = np.frexp(lengths - 1)
        rooms = np.left_shift(1, bits.astype(np.int64))
        ends = self._used + np.cumsum(rooms)
        self.starts[at], self._rooms[at] = ends - rooms, rooms
        self._used = int(ends[-1])
        while self._used > len(self.text):
            self.text = np.concatenate([self.text, np.zeros_like(self.text)])
