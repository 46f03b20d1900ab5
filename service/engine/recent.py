"""The ids of the last events that each stream of a partition has accepted, by which copies are told.

Idea: a ring of digests a stream. An id is known by 128 bits of its hash (BLAKE2b), so that every id takes as
much: two ids with one digest have never been seen, and the text of an id is not needed once it has been
compared. The rings are as wide as the stream with most ids needs, at most ``last``; so memory is 16 bytes
times that width for every stream, and a stream of few events in a table of such costs little.

Who decides is ``kernels.walk``. Not for: which of an event's fields is the id (``rows``). Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from service.index.protocol import Rows

Digests = NDArray[np.uint64]
_BYTES = 16
_NONE = bytes(_BYTES)
_EMPTY: Digests = np.zeros((0, 2), dtype=np.uint64)


def digests(ids: Sequence[str | None]) -> Digests:
    """``uint64[n, 2]``, zeros for none."""
    found = [_NONE if id is None else blake2b(id.encode(), digest_size=_BYTES).digest() for id in ids]
    return np.frombuffer(b"".join(found), dtype="<u8").astype(np.uint64, copy=False).reshape(-1, 2)


class RecentIds:
    """See the module. ``last``: how many ids each stream remembers; 0: none, and nothing is kept.

    ``ids uint64[capacity, width, 2]``: of each row a ring, whose newest entry is the one before place
    ``accepted % last``. ``accepted int64[capacity]``: how many ids went into it, which are the stream's last
    ones; ``unsaved int64[capacity]``: how many of these came since the row was saved. Invariant: no ring goes
    round before ``width`` is ``last``.
    """

    def __init__(self) -> None:
        self.last = 0
        self.ids: Digests = np.zeros((0, 0, 2), dtype=np.uint64)
        self.accepted: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.unsaved: NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    def grow(self, more: int) -> None:
        """Appends rows that remember nothing."""
        self.ids = np.concatenate([self.ids, np.zeros((more, *self.ids.shape[1:]), dtype=np.uint64)])
        self.accepted = np.concatenate([self.accepted, np.zeros(more, dtype=np.int64)])
        self.unsaved = np.concatenate([self.unsaved, np.zeros(more, dtype=np.int64)])

    def make_room(self, rows: Rows, ids: Sequence[str | None] | None) -> Digests:
        """The digests of a batch, for which there is room then; ``rows int32[n]``, -1 for no stream. Empty
        where nothing is remembered. O(n log n)."""
        if not self.last:
            return _EMPTY
        if ids is None:
            return np.zeros((len(rows), 2), dtype=np.uint64)
        touched, counts = np.unique(rows[rows >= 0], return_counts=True)
        self._widen(int((self.accepted[touched] + counts).max(initial=0)))
        return digests(ids)

    def _widen(self, wanted: int) -> None:
        width = self.ids.shape[1]
        if width < min(wanted, self.last):
            more = min(max(wanted, 2 * width), self.last) - width
            self.ids = np.concatenate([self.ids, np.zeros((len(self.ids), more, 2), dtype=np.uint64)], axis=1)

    def forget(self, row: int) -> None:
        """The stream is no more."""
        self.accepted[row] = self.unsaved[row] = 0

    def resize(self, last: int, *, kept: bool) -> Rows:
        """Remembers ``last`` ids of each stream from now on, of those so far the newest, if they are
        ``kept``. Returns the rows that remember fewer than before; these are to be saved."""
        rows, windows = np.flatnonzero(self.accepted).astype(np.int32), Windows()
        held, unsaved = self.held(rows), self.unsaved[rows]
        if kept:
            windows.place(rows, held.tobytes(), self.newest(rows, whole=True))
        self.restore(last, windows)
        self.unsaved[rows] = np.minimum(unsaved, self.accepted[rows])
        return rows[self.accepted[rows] < held]

    def held(self, rows: Rows) -> NDArray[np.int64]:
        """How many ids each of these rows has, ``int64[n]``."""
        return np.minimum(self.accepted[rows], self.last)

    def newest(self, rows: Rows, *, whole: bool) -> list[bytes]:
        """Of each of these rows, its ids that have come since it was saved, or all that it remembers: digests
        one behind the other, the oldest first."""
        accepted = self.accepted[rows]
        counts = np.minimum(accepted if whole else self.unsaved[rows], self.last)
        ends = np.cumsum(counts)
        # How far each is from the end of its ring: the newest one place.
        behind = np.repeat(ends, counts) - np.arange(counts.sum())
        places = (np.repeat(accepted, counts) - behind) % max(self.last, 1)
        joined = self.ids[np.repeat(rows, counts), places].astype("<u8", copy=False).tobytes()
        bounds = (_BYTES * np.append(0, ends)).tolist()
        return [joined[begin:end] for begin, end in pairwise(bounds)]

    def saved(self, rows: Rows) -> None:
        """All that these rows remember has been written."""
        if self.last:
            self.unsaved[rows] = 0

    def restore(self, last: int, windows: Windows) -> None:
        """Remembers ``last`` ids a row, and of these rows the newest of what they had; nothing else. Raises
        ValueError where some of those are missing."""
        self.last = last
        self.accepted[:] = self.unsaved[:] = 0
        most = max((len(ids) for _, ids in windows.of_row.values()), default=0) // _BYTES
        self.ids = np.zeros((len(self.accepted), min(most, last), 2), dtype=np.uint64)
        for row, (count, ids) in windows.of_row.items():
            window = np.frombuffer(ids, dtype="<u8").reshape(count, 2)
            newest = window[max(0, count - last) :]
            self.ids[row, : len(newest)] = newest
            self.accepted[row] = len(newest)


class Windows:
    """What rows remember, while it is read from blocks of state. ``of_row``: how many ids each has, and the
    digests, one behind the other."""

    def __init__(self) -> None:
        self.of_row: dict[int, tuple[int, bytes]] = {}

    def place(self, rows: Rows, held: bytes, fresh: Sequence[bytes]) -> None:
        """Writes a block over them: each row has ``held int64[n]`` ids, of which the newest are ``fresh`` and
        the others those that it had. A block without says that they have none. Old blocks may count on ids
        that are nowhere any more: a later one stands over what they leave."""
        if not held:
            for row in rows.tolist() if self.of_row else ():
                self.of_row.pop(row, None)
            return
        counts = np.frombuffer(held, dtype="<i8").tolist()
        for row, count, newest in zip(rows.tolist(), counts, fresh, strict=True):
            joined = self.of_row.get(row, (0, b""))[1] + newest
            self.of_row[row] = count, joined[max(0, len(joined) - _BYTES * count) :]
