"""A sequence of byte strings in parts of bounded size. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence


def slices(values: Sequence[bytes], most_bytes: int, most: float = math.inf) -> Iterator[list[bytes]]:
    """The values in order, in lists of at most ``most`` and at most ``most_bytes``; one that is larger stands
    alone."""
    some: list[bytes] = []
    size = 0
    for value in values:
        if some and (len(some) >= most or size + len(value) > most_bytes):
            yield some
            some, size = [], 0
        some.append(value)
        size += len(value)
    if some:
        yield some
