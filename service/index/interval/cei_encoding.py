"""The containment encoding of CEI, label by label, as the paper states it (Sect. 3 and 4).

Idea: the same kernels that file and search, called for one interval or one cell, so that what the paper says
can be looked up, tried and tested against the code that runs. Cells are the paper's integers: cell c is
``[c, c + 1)``, and ``[a, b)`` are the cells a .. b - 1. L is the length of a segment, a power of two (else
ValueError).

Not for: the hot path.
"""

from __future__ import annotations

import numpy as np

from service.index.interval.cei_kernels import best_partition as _best_partition
from service.index.interval.cei_kernels import decompose as _decompose


def global_id(local: int, segment: int, segment_length: int) -> int:
    """The id of a CEI among all: ``l + 2 i L`` (Sect. 3.1)."""
    _height(segment_length)
    return local + 2 * segment * segment_length


def parent(local: int) -> int:
    """The local id of the CEI twice as long around a CEI: a shift (Property 3.4); 0 for the root."""
    return local >> 1


def covering(cell: int, segment_length: int) -> list[int]:
    """The global ids of the k + 1 CEIs that contain a cell, the unit CEI first (Properties 3.6, 3.7)."""
    segment, within = divmod(cell, segment_length)
    k = _height(segment_length)
    return [global_id((within + segment_length) >> level, segment, segment_length) for level in range(k + 1)]


def best_partition(start: int, stop: int, segment_length: int) -> list[int]:
    """The fewest CEIs of one segment that make up ``[start, stop)``, as local ids from left to right.

    ``start`` and ``stop`` are local ids of unit CEIs, L .. 2L; else ValueError. (Sect. 3.2, Theorem 1.) O(k).
    """
    if not segment_length <= start <= stop <= 2 * segment_length:
        raise ValueError(f"[{start}, {stop}) is not within [{segment_length}, {2 * segment_length})")
    ids = np.empty(2 * _height(segment_length) + 1, np.int64)
    count = _best_partition(start, stop, 0, ids, 0)
    return [int(local) for local in ids[:count]]


def decomposition(a: int, b: int, segment_length: int) -> list[int]:
    """The global ids that a query ``[a, b)``, ``0 <= a <= b``, is filed under, left to right (Sect. 3.2).

    O(k + (b - a) / L)."""
    k = _height(segment_length)
    ids = np.empty((b - a) // segment_length + 2 * k + 2, np.int64)
    count = _decompose(a, b, k, ids)
    return [int(id) for id in ids[:count]]


def point_id(value: int, cells: int) -> int:
    """The id of the point CEI of a value, ``0 <= value < cells``: one of as many as there are cells, behind
    all intervals, as they are kept apart from these (Sect. 3.4)."""
    if not 0 <= value < cells:
        raise ValueError(f"{value} is not within [0, {cells})")
    return 2 * cells + value


def closed_decomposition(a: int, b: int, segment_length: int, cells: int) -> list[int]:
    """The global ids that a query ``[a, b]``, both ends included, ``0 <= a <= b < cells``, is filed under:
    those of ``[a, b)`` and the point CEI of b (Sect. 3.4)."""
    return [*decomposition(a, b, segment_length), point_id(b, cells)]


def closed_covering(value: int, segment_length: int, cells: int) -> list[int]:
    """The global ids under which queries ``[a, b]`` around a value are found: a unit CEI says that they go
    on behind it, its point CEI that they end there (Sect. 3.4)."""
    return [*covering(value, segment_length), point_id(value, cells)]


def cei_count(cells: int, segment_length: int) -> int:
    """The number N of CEIs over an axis of ``cells``, a multiple of L: ``2 r - r / L`` (Table 1)."""
    _height(segment_length)
    return 2 * cells - cells // segment_length


def mean_entries(segment_length: int, widest: int) -> float:
    """The mean number of CEIs that a query decomposes into, its width uniform in 1 .. W, its place uniform.

    Exact where W is a multiple of L; else ValueError, there the paper has a lower and an upper bound. In its
    terms, T(0, L] counts the CEIs of all intervals from L successive places with widths up to L, and
    T(iL, (i+1)L] those of the next L widths. With k = log2 L (Lemmas 3 to 7, summed):

        T(0, L]        = L**2 (k - 3/2) + 3/2 L (k + 1) + 1
        T(iL, (i+1)L]  = L**2 (k - 1/2 + i) + 3/2 L
    """
    length, k = segment_length, _height(segment_length)
    if widest < 1 or widest % length:
        raise ValueError(f"the greatest width must be a multiple of {length}, not {widest}")
    total = length**2 * (k - 1.5) + 1.5 * length * (k + 1) + 1
    total += sum(length**2 * (k - 0.5 + i) + 1.5 * length for i in range(1, widest // length))
    return total / (length * widest)


def _height(segment_length: int) -> int:
    """k = log2 L."""
    if segment_length < 1 or segment_length.bit_count() != 1:
        raise ValueError(f"a segment has a power of two of cells, not {segment_length}")
    return segment_length.bit_length() - 1
