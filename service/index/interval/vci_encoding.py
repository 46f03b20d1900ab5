"""The labels of virtual construct intervals, one by one, as the papers state them.

Sources: Wu, Chen and Yu, "Indexing Continual Range Queries for Efficient Stream Processing", Sect. 2 (the VCI
paper), and their paper on CEI, Sect. 2.2 and 4 (the CEI paper).

Idea: what the papers say can be looked up, tried and tested here against the kernel that decomposes. Cells
are the papers' integers: cell c is ``[c, c + 1)``, and ``[a, b)`` are the cells a .. b - 1. A set of VCIs is
told by its ``lengths``, rising from 1 to L; every cell begins one VCI of each.

The VCI paper's intervals hold both of their ends. A value between two integers lies in the same ones either
way; a whole number j then also lies in those that end at j, which is what ``closed`` adds.

Not for: the hot path.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from service.index.interval.vci_kernels import decompose as _decompose


def simple_lengths(longest: int) -> tuple[int, ...]:
    """The lengths of simple construct intervals, SCI: 1, 2, 3 .. L. With L = 1 the unit intervals, UI.

    ValueError unless L is at least 1."""
    if longest < 1:
        raise ValueError(f"the longest interval has at least one cell, not {longest}")
    return tuple(range(1, longest + 1))


def logarithmic_lengths(longest: int) -> tuple[int, ...]:
    """The lengths of logarithmic construct intervals, LCI: 1, 2, 4 .. L = 2**k; else ValueError."""
    if longest < 1 or longest.bit_count() != 1:
        raise ValueError(f"the longest interval has a power of two of cells, not {longest}")
    return tuple(1 << level for level in range(longest.bit_length()))


def vci_id(a: int, b: int, lengths: Sequence[int], *, origin: int = 0) -> int:
    """The id of the VCI from a to b on an axis that begins at ``origin`` (VCI paper, Sect. 2.2).

    For SCI this is ``(a - a0) L + (b - a) - 1``, for LCI with ``b - a = 2**l`` it is ``(a - a0)(k + 1) + l``.
    ValueError if no VCI has this length."""
    if b - a not in lengths:
        raise ValueError(f"no interval has the length {b - a}")
    return (a - origin) * len(lengths) + lengths.index(b - a)


def decomposition(a: int, b: int, lengths: Sequence[int]) -> list[tuple[int, int]]:
    """The VCIs ``(a, b)`` that a query from a to b is filed under, left to right (VCI paper, Sect. 2.3).

    O(B + (b - a) / L)."""
    ids = np.empty((b - a) // lengths[-1] + len(lengths), np.int64)
    count = _decompose(a, b, np.array(lengths, np.int64), ids)
    # The kernel's axis begins L - 1 cells before cell 0.
    starts, kinds = np.divmod(ids[:count], len(lengths))
    return [
        (int(start) - lengths[-1] + 1, int(start) - lengths[-1] + 1 + lengths[kind])
        for start, kind in zip(starts, kinds, strict=True)
    ]


def least_covering_id(j: int, lengths: Sequence[int], *, closed: bool = False, origin: int = 0) -> int:
    """The least id of the VCIs around cell j, or around the value j where they are ``closed``: V_j^min.

    It is that of the longest VCI that begins as far left as it may (VCI paper, Sect. 2.4): closed, that is
    ``(j - L) L + L - 1`` for SCI and ``(j - L)(k + 1) + k`` for LCI."""
    start = j - lengths[-1] + (0 if closed else 1)
    return vci_id(start, start + lengths[-1], lengths, origin=origin)


def difference_table(lengths: Sequence[int], *, closed: bool = False) -> list[int]:
    """D: the ids of all VCIs around a cell (or, ``closed``, a value), rising, less the least (Sect. 2.4).

    One table serves every cell: moving by one adds B to every id. O(C) for the C covering VCIs, which are
    ``2 L - 1`` of LCI and ``L (L + 1) / 2`` of SCI, and one more of each length where they are closed."""
    least = least_covering_id(0, lengths, closed=closed)
    around = [
        vci_id(start, start + length, lengths)
        for length in lengths
        for start in range(-length if closed else 1 - length, 1)
    ]
    return sorted(id - least for id in around)


def vci_count(cells: int, lengths: Sequence[int]) -> int:
    """The number N of VCIs over an axis: ``r`` of UI, ``r L`` of SCI, ``r (1 + log L)`` of LCI (CEI paper,
    Table 1)."""
    return cells * len(lengths)


def mean_entries(lengths: Sequence[int], widest: int) -> float:
    """The mean number of VCIs that a query decomposes into, its width uniform in 1 .. W.

    Exact where W is a multiple of L; else ValueError, there the CEI paper has a lower and an upper bound.
    With T(0, L] the sum for the widths 1 .. L, which is L for SCI and ``1 + L k / 2`` for LCI (Lemma 8), the
    next L widths take ``i L`` more: T(iL, (i+1)L] = T(0, L] + i L."""
    longest = lengths[-1]
    if widest < 1 or widest % longest:
        raise ValueError(f"the greatest width must be a multiple of {longest}, not {widest}")
    simple = len(lengths) == longest
    first = longest if simple else 1 + longest * (len(lengths) - 1) // 2
    rounds = widest // longest
    return (rounds * first + longest * rounds * (rounds - 1) // 2) / widest


def storage_bytes(constructs: int, queries: int, entries_a_query: float) -> float:
    """What an index by virtual constructs takes in the papers' count: ``4 N + 8 n delta`` (CEI paper, Sect.
    4).

    A pointer a construct, and for every entry an id and a pointer to the next, of 4 bytes each."""
    return 4.0 * constructs + 8.0 * queries * entries_a_query
