"""A set of small numbers (rows, slots) in which many can be looked up at once."""

from __future__ import annotations

import numpy as np

from service.engine.rules import Flags
from service.index.protocol import Rows


class Marks:
    """See the module. Room doubles."""

    def __init__(self) -> None:
        self._marked: Flags = np.zeros(16, dtype=np.bool_)

    def put(self, number: int, on: bool) -> None:
        while number >= len(self._marked):
            self._marked = np.append(self._marked, np.zeros_like(self._marked))
        self._marked[number] = on

    def among(self, numbers: Rows) -> Flags:
        """Which are in it, ``bool[n]``; -1 never is. O(n)."""
        known = (numbers >= 0) & (numbers < len(self._marked))
        found: Flags = known & self._marked[np.where(known, numbers, 0)]
        return found
