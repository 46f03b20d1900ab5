"""A contender that answers wrongly, for experiments that have to notice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from service.index.protocol import Hits, Points


def without_the_last(stab: Callable[[Any, Points], Hits]) -> Callable[[Any, Points], Hits]:
    """A ``stab`` of which each answer misses its last hit."""

    def missing(index: Any, points: Points) -> Hits:
        rows, slots = stab(index, points)
        return Hits(rows[:-1], slots[:-1])

    return missing
