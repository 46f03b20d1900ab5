"""Files that are read anew when they change, until that has gone well.

Idea: what counts as read is how the files were when the last reading went well. One that failed is tried
again, though nothing about the files changes: what kept it from being read may be elsewhere (no descriptor
was free, a folder was closed). Not at every look, since somebody may look at every request.

Not for: what is in the files.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path

AGAIN_S = 0.25
"""How long files that could not be read are left alone while they stay as they are."""

_Stamp = list[tuple[int, int, int, int]]


class Watch:
    """When to read these files. Whoever makes one reads them well after that. Used by one thread."""

    def __init__(self, *files: Path, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._files = files
        self._clock_s = clock_s
        self._tried = self._read = self._look()
        self._again_at = -math.inf
        self._told: tuple[_Stamp, str] | None = None

    def _look(self) -> _Stamp:
        """What changes when a file does, or whom it lets read or write it; nothing where one is not there."""
        try:
            found = [file.stat() for file in self._files]
        except OSError:  # reading says which
            return []
        # The time of the change of the inode tells of modes and owners, which no other does.
        return [(one.st_mtime_ns, one.st_ctime_ns, one.st_size, one.st_ino) for one in found]

    def is_due(self) -> bool:
        """Whether to read them now: one stat each. Say ``has_been_read`` when it has gone well."""
        found = self._look()
        if found == self._read or (found == self._tried and self._clock_s() < self._again_at):
            return False
        self._tried = found
        self._again_at = self._clock_s() + AGAIN_S
        return True

    def has_been_read(self) -> None:
        """The reading that was due has gone well."""
        self._read = self._tried
        self._told = None

    def is_news(self, failure: str) -> bool:
        """Whether this failure of the reading that was due has not been told of: once a change and reason."""
        told, self._told = self._told, (self._tried, failure)
        return told != self._told
