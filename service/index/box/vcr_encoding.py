"""Virtual construct rectangles, label by label, as the papers state them.

Sources: Wu, Chen and Yu, "VCR Indexing for Fast Event Matching for Highly-Overlapping Range Predicates" (the
VCR paper; sections are of this one), and their "Indexing Continual Range Queries for Efficient Stream
Processing", Sect. 3 (the VCI paper).

Idea: what the papers say can be looked up, tried and tested here against the kernels that file and search.
Rectangles are ``(x, y, width, height)`` on the papers' integers, which count cells: ``(0, 0, 1, 1)`` is cell
(0, 0). ``Lx`` and ``Ly`` are powers of two (else ValueError).

A point between the integers lies in a cell, and in the same VCRs either way. The VCR paper's points are
integers besides, and its rectangles hold all of their border: ``closed`` adds the VCRs that a point (a, b)
merely touches. The two papers also differ in the corner of the pivot VCR: (a - Lx, b - Ly) closed, (a + 1 -
Lx, b + 1 - Ly) else.

Not for: the hot path.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from service.index.box.vcr_kernels import cut_side


class Rectangle(NamedTuple):
    """Its bottom-left corner, its width and its height."""

    x: int
    y: int
    width: int
    height: int


def vcr_id(vcr: Rectangle, *, range_x: int, longest: tuple[int, int]) -> int:
    """``B (x + y Rx) + j (kx + 1) + i`` for a VCR of ``2**i`` by ``2**j`` (Eq. 1).

    ValueError if no VCR is as wide or as high."""
    levels = _levels(longest)
    i, j = (max(side.bit_length() - 1, 0) for side in (vcr.width, vcr.height))
    if (vcr.width, vcr.height) != (1 << i, 1 << j) or i > levels[0] or j > levels[1]:
        raise ValueError(f"no VCR is {vcr.width} by {vcr.height}")
    return vcrs_a_cell(longest) * (vcr.x + vcr.y * range_x) + j * (levels[0] + 1) + i


def vcrs_a_cell(longest: tuple[int, int]) -> int:
    """B: the VCRs with one bottom-left corner (Sect. 2.1)."""
    kx, ky = _levels(longest)
    return (kx + 1) * (ky + 1)


def decomposition(rectangle: Rectangle, longest: tuple[int, int], *, overlapped: bool) -> list[Rectangle]:
    """The VCRs of the simple or the overlapped decomposition, strip by strip from the bottom (Sect. 2.2).

    Raises ValueError on a side without length."""
    if rectangle.width < 1 or rectangle.height < 1:
        raise ValueError(f"{rectangle} is empty")
    kx, ky = _levels(longest)
    across = _cut(rectangle.x, rectangle.width, kx, overlapped)
    upwards = _cut(rectangle.y, rectangle.height, ky, overlapped)
    return [Rectangle(x, y, width, height) for y, height in upwards for x, width in across]


def covering_set(a: int, b: int, longest: tuple[int, int], *, closed: bool = False) -> Iterator[Rectangle]:
    """The VCRs around cell (a, b), or around the point (a, b) where they are ``closed`` (Eq. 2), unordered.

    There are ``(2 Lx - 1)(2 Ly - 1)``, or closed ``(2 Lx + kx)(2 Ly + ky)`` (Theorem 1)."""
    kx, ky = _levels(longest)
    reach = 0 if closed else 1
    for width in (1 << i for i in range(kx + 1)):
        for height in (1 << j for j in range(ky + 1)):
            for x in range(a - width + reach, a + 1):
                for y in range(b - height + reach, b + 1):
                    yield Rectangle(x, y, width, height)


def pivot(a: int, b: int, longest: tuple[int, int], *, closed: bool = False) -> Rectangle:
    """PV(a, b), the unit VCR whose corner is that of the covering VCR with the least id (Sect. 2.3.2)."""
    reach = 0 if closed else 1
    return Rectangle(a - longest[0] + reach, b - longest[1] + reach, 1, 1)


def distance_table(range_x: int, longest: tuple[int, int], *, closed: bool = False) -> list[int]:
    """DT: the ids of a covering VCR set less that of the pivot VCR, rising; the same for every point
    (Theorem 2)."""

    def id_of(vcr: Rectangle) -> int:
        return vcr_id(vcr, range_x=range_x, longest=longest)

    origin = id_of(pivot(0, 0, longest, closed=closed))
    return sorted(id_of(vcr) - origin for vcr in covering_set(0, 0, longest, closed=closed))


def storage_bytes(pointers: int, entries: int) -> int:
    """What the papers count: a pointer for every VCR, or every place of the hash table, and for every entry
    of a linked ID list an id and a pointer to the next, of 4 bytes each (Sect. 3.1)."""
    return 4 * pointers + 8 * entries


def _cut(start: int, length: int, k: int, overlapped: bool) -> list[tuple[int, int]]:
    places, levels = (np.empty((length >> k) + k + 1, np.int64) for _ in range(2))
    count = cut_side(start, start + length, k, overlapped, places, levels)
    return [
        (int(place), 1 << int(level)) for place, level in zip(places[:count], levels[:count], strict=True)
    ]


def _levels(longest: tuple[int, int]) -> tuple[int, int]:
    """``kx = log2 Lx`` and ``ky``."""
    for length in longest:
        if length < 1 or length.bit_count() != 1:
            raise ValueError(f"the longest side of a VCR is a power of two, not {length}")
    return longest[0].bit_length() - 1, longest[1].bit_length() - 1
