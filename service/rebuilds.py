"""Merging the levels of indexes on a thread of its own, so that events need not wait for it.

The index allows for it: what is merged is immutable, and the outcome is swapped in by the thread that owns
the index (``default.mixed``). One rebuild at a time: there is one core to spare.

Not for: deciding what is to be merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from service.index.default.mixed import DefaultIndex, Rebuild
from service.index.protocol import BoxIndex


@dataclass(frozen=True, slots=True)
class _Running:
    index: DefaultIndex
    rebuild: Rebuild
    future: Future[None]


class Rebuilds:
    """Called by the one thread that changes the indexes."""

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None
        self._running: _Running | None = None

    def tend(self, indexes: Sequence[BoxIndex]) -> None:
        """Swaps in what is done, begins what is due. Raises what a rebuild died of. Returns at once."""
        if self._running is not None:
            if not self._running.future.done():
                return
            merged, self._running = self._running, None
            merged.future.result()
            if any(one is merged.index for one in indexes):
                merged.index.adopt(merged.rebuild)
        for index in indexes:
            if isinstance(index, DefaultIndex) and (due := index.rebuild()) is not None:
                self._executor = self._executor or ThreadPoolExecutor(1, thread_name_prefix="rebuild")
                self._running = _Running(index, due, self._executor.submit(due.run))
                return

    def close(self) -> None:
        """Waits for what is running and drops it. ``tend`` may follow."""
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)
        self._executor = self._running = None
