"""What is committed, as it is committed, for those who listen: bounded, and never waited for.

Idea: the worker hands every commit to the *hub*, which puts what begins as records of the listener's tenant
do into its *feed*: what others are told neither wakes it nor counts for it. All else of filtering and reading
is left to the listener's own thread. A feed holds a bounded number of records and of bytes; one that is full
is cut, with a reason, so a slow listener costs neither the worker nor the others. Without listeners a commit
costs one comparison.

Feeds share the records, which leave them in pieces, as they are sent: a cut lets go of all that a listener is
behind. So feeds of one tenant, however many, hold no more together than one of them may, and a piece each.

A listener begins with a picture of the engine, which is taken piece by piece by the worker's thread. Commits
are numbered; each piece notes ``Hub.mark``, the first commit that is not yet in it.

Not for: HTTP (``api.live``), or history: what was before comes from the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from service.log.port import Output

SLOW = "slow"
"""The listener took its records more slowly than they came."""
MOVED = "moved"
"""Partitions have come or gone, or the worker began afresh: the picture has to be taken anew."""
STOPPING = "stopping"
"""The service ends."""
REVOKED = "revoked"
"""Whoever listens would not be let in any more, or as somebody else."""


PIECE_BYTES = 64 * 1024
"""A feed is read in pieces of no more than this and one record."""


class Crowded(Exception):
    """There are as many listeners as allowed: of all, or ``of_its_own`` tenant."""

    def __init__(self, count: int, *, of_its_own: bool) -> None:
        super().__init__(f"{count} clients{' of this tenant' if of_its_own else ''} listen already")
        self.of_its_own = of_its_own


class Committed(NamedTuple):
    """The outputs of one commit, in order."""

    number: int
    outputs: Sequence[Output]


class Feed:
    """The commits that one listener has still to read. Made and read on its event loop."""

    def __init__(self, max_records: int, max_bytes: float, head: bytes) -> None:
        self._max_records = max_records
        self._max_bytes = max_bytes
        self.head = head
        self._lock = threading.Lock()
        self._waiting: deque[Committed] = deque()
        self._records = 0
        self._bytes = 0
        self._cut = ""
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()

    async def next(self, timeout_s: float) -> tuple[list[Committed], str]:
        """A piece of what waits, or nothing after a time; and why nothing will follow, or "". A commit may
        come in several pieces. Whoever is cut for being slow loses what waited."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._news.wait()
        with self._lock:
            found = self._piece()
            if self._waiting:
                return found, ""
            self._news.clear()
            return found, self._cut

    def _piece(self) -> list[Committed]:
        found: list[Committed] = []
        length = 0
        while self._waiting and length < PIECE_BYTES:
            number, outputs = self._waiting.popleft()
            count = 0
            while count < len(outputs) and length < PIECE_BYTES:
                length += _size(outputs[count])
                count += 1
            found.append(Committed(number, outputs[:count]))
            self._records -= count
            if count < len(outputs):
                self._waiting.appendleft(Committed(number, outputs[count:]))
        self._bytes -= length
        return found

    def offer(self, committed: Committed) -> bool:
        """Whether it was taken; if not, the feed is cut. Any thread."""
        own = [output for output in committed.outputs if output.value.startswith(self.head)]
        if not own:
            return True
        with self._lock:
            self._records += len(own)
            self._bytes += sum(map(_size, own))
            self._waiting.append(Committed(committed.number, own))
            if self._records > self._max_records or self._bytes > self._max_bytes:
                self._waiting.clear()
                self._records = self._bytes = 0
                self._cut = self._cut or SLOW
            cut = self._cut
        self._wake()
        return not cut

    def cut(self, reason: str) -> None:
        """Any thread. What waits is still read."""
        with self._lock:
            self._cut = self._cut or reason
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # its loop has ended, and the listener with it
            self._loop.call_soon_threadsafe(self._news.set)


def _size(output: Output) -> int:
    return len(output.value)


class Hub:
    """See the module. ``committed`` and ``moved`` are the worker's; the rest is for any thread."""

    def __init__(self, *, max_feeds: int, max_feeds_tenant: int, max_records: int) -> None:
        self._max_feeds = max_feeds
        self._max_feeds_tenant = max_feeds_tenant
        self._max_records = max_records
        self._lock = threading.Lock()
        self._feeds: frozenset[Feed] = frozenset()
        self._stopped = False
        self._number = 0

    def __len__(self) -> int:
        return len(self._feeds)

    def open(self, head: bytes = b"", *, max_bytes: float = math.inf) -> Feed:
        """A feed of all commits from now on: of the records that begin so, which are one tenant's.
        ``max_bytes``: of the values of records that may wait in it. On an event loop. Raises Crowded.
        O(feeds). After ``stop`` it is cut already."""
        with self._lock:
            if len(self._feeds) >= self._max_feeds:
                raise Crowded(self._max_feeds, of_its_own=False)
            if sum(feed.head == head for feed in self._feeds) >= self._max_feeds_tenant:
                raise Crowded(self._max_feeds_tenant, of_its_own=True)
            feed = Feed(self._max_records, max_bytes, head)
            if self._stopped:
                feed.cut(STOPPING)
            else:
                self._feeds |= {feed}
        return feed

    def close(self, feed: Feed) -> None:
        self._drop(frozenset((feed,)))

    def mark(self, *, uncommitted: int) -> int:
        """The number of the first commit that the engine does not have as it is now; ``uncommitted``: it
        has what so many of the next commits will be. The worker's thread only."""
        return self._number + uncommitted

    def committed(self, outputs: Sequence[Output]) -> None:
        number, self._number = self._number, self._number + 1
        if self._feeds and outputs:
            committed = Committed(number, outputs)
            cut = frozenset(feed for feed in self._feeds if not feed.offer(committed))
            self._drop(cut)

    def moved(self) -> None:
        """What was told so far has no continuation."""
        feeds = self._feeds
        for feed in feeds:
            feed.cut(MOVED)
        self._drop(feeds)

    def stop(self) -> None:
        """Nothing will follow, for nobody."""
        with self._lock:
            feeds, self._feeds, self._stopped = self._feeds, frozenset(), True
        for feed in feeds:
            feed.cut(STOPPING)

    def _drop(self, feeds: frozenset[Feed]) -> None:
        with self._lock:
            self._feeds -= feeds
