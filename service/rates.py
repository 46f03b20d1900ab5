"""Rates: how often one may ask. A token bucket for each name.

Idea: a bucket holds at most ``burst`` tokens and gains ``per_s`` of them a second; a request takes one, or is
told how long the next one takes. A bucket is a level and the time at which it held. Time is an input, in
seconds of any clock that does not go back. Memory: one bucket a name; names are those of keys. Pure.
"""

from __future__ import annotations


class Rates:
    def __init__(self, per_s: float, burst: int) -> None:
        """``per_s`` 0: no limit."""
        self.per_s = per_s
        self._burst = burst
        self._buckets: dict[str | None, tuple[float, float]] = {}

    def wait_s(self, name: str | None, now_s: float) -> float:
        """0.0 where the request may come (a token is taken), else the time until one may. O(1)."""
        if self.per_s == 0:
            return 0.0
        level, at = self._buckets.get(name, (float(self._burst), now_s))
        level = min(float(self._burst), level + (now_s - at) * self.per_s)
        taken = level >= 1
        self._buckets[name] = (level - taken, now_s)
        return 0.0 if taken else (1 - level) / self.per_s
