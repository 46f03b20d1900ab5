"""Brute force: every point against every box. The index without a structure, and the oracle of the others.

Idea: what it costs is known before it starts, whatever the queries look like: a fraction of a nanosecond a
box and point, less where the first attributes exclude whole blocks (``scan``). Below some thousand boxes it
is hard to beat, and registration is an append. It is exact by construction, so it is also the index to run
when another is doubted.

Concurrency by snapshots: a stab reads one reference and works on what it found there (``boxes``).

Not for: a million queries.
"""

from __future__ import annotations

import numpy as np

from service.index.answers import Collector, as_points, borders_by_stab
from service.index.boxes import BoxStore
from service.index.protocol import Borders, Bounds, Hits, Points, Slots
from service.index.scan import scan


class BruteForce:
    """A ``BoxIndex`` in any number of attributes; see ``protocol`` for what it takes, raises and promises.

    For n boxes in d attributes, m points and h hits; memory is 24 d + 4 bytes a box.
    """

    def __init__(self, dims: int) -> None:
        self._store = BoxStore(dims)
        self._collector = Collector()
        self.dims = dims

    def __len__(self) -> int:
        return len(self._store)

    @property
    def nbytes(self) -> int:
        return self._store.nbytes

    def insert(self, slots: Slots, lo: Bounds, hi: Bounds) -> None:
        """O(k) for k boxes, amortised."""
        self._store.insert(slots, lo, hi)

    def remove(self, slots: Slots) -> None:
        """O(n), a copy of 4 bytes a box; every n/2 removals one of everything."""
        self._store.remove(slots)

    def stab(self, points: Points) -> Hits:
        """O(m n d + h log h), less by early exit."""
        points = as_points(points, self.dims)
        near, lo, hi, slots, size, _ = self._store.boxes
        # Only without the JIT does rounding a large number to float32 warn.
        with np.errstate(over="ignore"):
            return self._collector.hits(
                lambda out: scan(near, lo, hi, slots, 0, size, points, out), len(points)
            )

    def borders(self, before: Points, after: Points) -> Borders:
        """As two stabs, in one pass over the boxes."""
        return borders_by_stab(self, before, after)

    def check(self) -> None:
        self._store.check()
