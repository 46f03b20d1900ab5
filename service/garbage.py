"""How often Python looks for garbage that holds itself, and among what.

Events make none. Yet by default a search begins after every 700 objects that are made, of which a batch of
10,000 events has a hundred thousand, and every so often it visits all that the service holds, while
everybody waits. Three things are done about it. Searches are seldom (10,000 queries, 100,000 events in
batches: 7 to 9 us of CPU an event by default, 0.4 us as it is set here). What a whole search has found to be
in use, if it is much, is not looked at again: that is the query set, which grows, and whose parts are freed
as soon as nobody holds them. So a search visits what has come since, never a million queries. And while a
service reads the query set from the log, which makes nothing else, there is no search at all (``at_start``).

Not for: what is freed as soon as nobody holds it, which is nearly everything.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Any

#: New objects before the youngest are searched; such searches before the next older are; and of those, before
#: all are.
_THRESHOLDS = 50_000, 4, 4
#: So many objects are much to look at again.
_MANY = 200_000


def collect_seldom() -> None:
    """Makes it so for this process. Called once, at its start."""
    gc.set_threshold(*_THRESHOLDS)
    gc.callbacks.append(_after)


def _after(phase: str, info: dict[str, Any]) -> None:
    if phase == "stop" and info["generation"] == 2 and len(gc.get_objects(generation=2)) > _MANY:
        gc.freeze()


@contextlib.contextmanager
def at_start() -> Iterator[None]:
    """For a stretch of this process in which it makes what it will keep: no search, and none through that
    afterwards."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
