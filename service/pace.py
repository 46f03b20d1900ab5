"""How many events are applied at a time, so that what they match stays in bounds.

What a slice of events matches is in memory at once, and nobody knows beforehand how much that is. What is
known: how much the last events of the partition matched, each on average; that a query which came since adds
no more than one; and that an event matches no more queries than there are. So a slice is as large as should
fit, and not so large that it might come to far too much. It grows by steps, for events differ. Pure.
"""

from __future__ import annotations

MOST_MATCHES = 1 << 20
"""What a slice should match at the most, borders included: some tens of megabytes."""

REFUSED_AS = 32
"""A dead letter is in memory as much as so many matches."""
_POSSIBLE = 32
"""So many times as much it may be if every event matches every query: about a gigabyte."""
_LEAST = 128
"""Events that are let through whatever is possible: fewer at a time cost more."""
_GROWS = 8


class Pace:
    """Of one partition."""

    def __init__(self, queries: int, most_matches: int = MOST_MATCHES) -> None:
        self._most_matches = most_matches
        self._each = float(queries)
        self._most = most_matches

    def events(self, queries: int) -> int:
        """How many events to apply next, to so many queries."""
        possible = max(_POSSIBLE * self._most_matches // max(queries, 1), _LEAST)
        return max(min(int(self._most_matches / max(self._each, 1.0)), possible, self._most), 1)

    def added(self, queries: int) -> None:
        """So many queries may have come."""
        self._each += queries

    def took(self, events: int, matches: int, allowed: int) -> None:
        """What so many events, at least one, have matched, where so many were allowed."""
        self._each = matches / events
        self._most = min(_GROWS * allowed, self._most_matches)
