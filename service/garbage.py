"""How often Python looks for garbage that holds itself, and among what.

Events make none. Yet by default a search begins after every 700 objects that are made, of which a batch of
10,000 events has a hundred thousand, and every so often it visits all that the service holds, while
everybody waits. Three things are done about it. Searches are seldom (10,000 queries, 100,000 events in
batches: 7 to 9 us of CPU an event by default, 0.4 us as it is set here). What a full search has found to be
in use, if it is much, is set aside: that is the query set, which grows, and whose parts are freed as soon as
nobody holds them. So a search visits what has come since, and seldom a million queries, for which it takes
two to three seconds. And while a service reads the query set from the log, which makes nothing else, there is
no search at all (``at_start``).

What requests under way hold is set aside with it, and some of that may come to hold itself later. So what was
set aside is taken back now and then, and searched with all else: where more has been set aside for an hour,
and before that comes to too much. A service whose query set stays has set aside nothing, and is not held up.

Not for: what is freed as soon as nobody holds it, which is nearly everything.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Iterator
from typing import Any

#: New objects before the youngest are searched; such searches before the next older are; and of those, before
#: all are.
_THRESHOLDS = 50_000, 4, 4
#: So many objects are much to look at again.
_MANY = 200_000
#: What was set aside is searched again after so long, or when it has come to so many objects.
_ASIDE_S = 3_600.0
_MOST_ASIDE = 20_000_000


def collect_seldom() -> None:
    """Makes it so for this process. Called once, at its start."""
    gc.set_threshold(*_THRESHOLDS)
    gc.callbacks.append(_FULL)


class _Full:
    """Told of every search; sets aside after a full one, and takes back before one."""

    def __init__(self) -> None:
        self._aside = 0
        self._since = 0.0
        self._is_of_all = False
        self._has_begun = False

    def __call__(self, phase: str, info: dict[str, Any]) -> None:
        if info["generation"] < 2:
            return
        if phase == "start":
            waited = time.monotonic() - self._since > _ASIDE_S
            self._is_of_all = self._aside > (0 if waited else _MOST_ASIDE)
            if self._is_of_all:
                gc.unfreeze()
        else:
            found = len(gc.get_objects(generation=2))
            if found > _MANY:
                gc.freeze()
            if self._is_of_all:
                self._aside = 0
            elif found > _MANY:
                self._put_aside(found)

    def begin(self) -> None:
        """All that there is will be set aside. If not for the first time, some of what was before may hold
        itself; how much that is takes long to count."""
        if self._has_begun:
            self._put_aside(_MANY)
        self._has_begun = True

    def _put_aside(self, objects: int) -> None:
        self._since = self._since if self._aside else time.monotonic()
        self._aside += objects


_FULL = _Full()


@contextlib.contextmanager
def at_start() -> Iterator[None]:
    """For a stretch of this process in which it makes what it will keep: no search, and none through that
    afterwards."""
    gc.disable()
    try:
        yield
    finally:
        _FULL.begin()
        gc.freeze()
        gc.enable()
