"""Rates: how often one may ask, how much one may send. A token bucket for each name.

Idea: a bucket holds at most ``burst`` tokens and gains ``per_s`` of them a second. Whoever comes while there
is one may go on, and takes what it needs, even if that is more than there are: others wait until the debt is
paid. So the mean holds, and nobody has to say beforehand how much will come. A bucket is a level and the time
at which it held. Time is an input, in seconds of any clock that does not go back. Memory: one bucket a name;
names are those of keys. Pure.
"""

from __future__ import annotations


class Rates:
    def __init__(self, per_s: float, burst: int) -> None:
        """``per_s`` 0: no limit."""
        self.per_s = per_s
        self._burst = burst
        self._buckets: dict[str | None, tuple[float, float]] = {}

    def wait_s(self, name: str | None, now_s: float) -> float:
        """0.0 where one may come, else the time until one may. O(1)."""
        if self.per_s == 0:
            return 0.0
        return max(1 - self._level(name, now_s), 0.0) / self.per_s

    def take(self, name: str | None, tokens: int, now_s: float) -> None:
        """O(1)."""
        if self.per_s != 0:
            self._buckets[name] = (self._level(name, now_s) - tokens, now_s)

    def _level(self, name: str | None, now_s: float) -> float:
        level, at = self._buckets.get(name, (float(self._burst), now_s))
        return min(float(self._burst), level + (now_s - at) * self.per_s)
