"""Whether any box of a part is removed: as long as none is, its marks need not be read.

Idea: marks are spread over memory as boxes are, so to read one for every hit costs as much as the hit. Marks
are only ever added, and only for versions later than those that readers have. So once all marks have been
found to be later than a version, that is settled for it and the versions before; and once one is not, for the
versions behind. Between, a look at all marks is worth it when enough points have been asked for.

Invariant: what is remembered is true whatever threads do; they can only forget it.

Not for: deciding which box is removed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from service.index.default.part import NEVER

_MARKS_A_POINT = 64
"""Marks that are looked at in the time that a point takes."""

_NONE: NDArray[np.int32] = np.empty(0, np.int32)


class Living:
    """Remembers what is known of ``removed_at``, ``int32[n]``, which the owner of the part writes."""

    def __init__(self, removed_at: NDArray[np.int32]) -> None:
        self._removed_at = removed_at
        self._whole = -1
        self._broken = False
        self._points = len(removed_at)

    def marks(self, version: int, points: int) -> NDArray[np.int32]:
        """The marks to be read for so many points at a version: all, or none (empty) if no box is removed.

        O(1) a point."""
        if version <= self._whole:
            return _NONE
        if self._broken:
            return self._removed_at
        self._points += points
        if self._points * _MARKS_A_POINT < len(self._removed_at):
            return self._removed_at
        self._points = 0
        if self._removed_at.min(initial=NEVER) > version:
            self._whole = version
            return _NONE
        self._broken = True
        return self._removed_at
