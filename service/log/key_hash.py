"""The hash by which Kafka's clients choose a partition for a key (murmur2)."""

from __future__ import annotations

from functools import lru_cache

from kafka.partitioner.default import murmur2

#: Longer keys are hashed anew each time, so that what is kept has a bound. Few stream ids are as long.
LONGEST_KEPT = 256


def key_hash(key: bytes) -> int:
    """The hash of a key, not negative. Of short ones it is kept: it costs more than the rest of a send."""
    return _kept(key) if len(key) <= LONGEST_KEPT else _hash(key)


def _hash(key: bytes) -> int:
    return int(murmur2(key)) & 0x7FFFFFFF


_kept = lru_cache(maxsize=1 << 16)(_hash)
