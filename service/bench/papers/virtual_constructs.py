"""What the papers count of virtual constructs: how many there are, how many a query takes, how many hold a
value.

Idea: these counts do not depend on a machine, so they are compared with the closed forms of the CEI paper
(Sect. 2.2 and 4) on the same queries that the structures are measured on. Here they come from the labels and
the decompositions, not from the indexes.

Not for: bytes that a structure really holds (``intervals``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from service.bench.papers.intervals import Setting, queries
from service.index.interval import cei_encoding, vci_encoding


class Construct(NamedTuple):
    """A kind of virtual construct intervals; all counts are for a longest one of L cells.

    ``defined(r, L)`` is N, ``covering(L)`` C in closed form. ``decomposed(a, b, L)`` is the number of
    constructs that a query from a to b takes, ``mean(L, W)`` its mean in closed form, W a multiple of L.
    ``around(c, L)`` are the ids of those around a cell.
    """

    defined: Callable[[int, int], int]
    covering: Callable[[int], int]
    decomposed: Callable[[int, int, int], int]
    mean: Callable[[int, int], float]
    around: Callable[[int, int], list[int]]


def _vci(lengths: Callable[[int], tuple[int, ...]], covering: Callable[[int], int]) -> Construct:
    def around(cell: int, longest: int) -> list[int]:
        least = vci_encoding.least_covering_id(cell, lengths(longest))
        return [least + difference for difference in vci_encoding.difference_table(lengths(longest))]

    return Construct(
        lambda domain, longest: vci_encoding.vci_count(domain, lengths(longest)),
        covering,
        lambda a, b, longest: len(vci_encoding.decomposition(a, b, lengths(longest))),
        lambda longest, widest: vci_encoding.mean_entries(lengths(longest), widest),
        around,
    )


CONSTRUCTS = {
    "UI": _vci(lambda longest: vci_encoding.simple_lengths(1), lambda longest: 1),
    "SCI": _vci(vci_encoding.simple_lengths, lambda longest: longest * (longest + 1) // 2),
    "LCI": _vci(vci_encoding.logarithmic_lengths, lambda longest: 2 * longest - 1),
    "CEI": Construct(
        cei_encoding.cei_count,
        lambda longest: longest.bit_length(),
        lambda a, b, longest: len(cei_encoding.decomposition(a, b, longest)),
        cei_encoding.mean_entries,
        cei_encoding.covering,
    ),
}


def entries(structure: str, setting: Setting, seed: int) -> int:
    """D: the number of constructs that the queries of a setting decompose into, all together. O(n W / L)."""
    lo, hi = queries(setting, seed)
    construct, longest = CONSTRUCTS[structure], setting.longest
    # What a decomposition takes depends on its width and, for CEI, on its place within a segment.
    places = lo[:, 0].astype(np.int64) % longest
    kinds, counts = np.unique(
        np.stack([places, (hi - lo)[:, 0].astype(np.int64)], axis=1), axis=0, return_counts=True
    )
    taken = [construct.decomposed(place, place + width, longest) for place, width in kinds.tolist()]
    return int(np.array(taken) @ counts)


def paper_bytes(structure: str, setting: Setting, seed: int) -> float | None:
    """Storage in the papers' count, ``4 N + 8 n delta`` bytes; None for a structure that it is not made
    for."""
    if structure not in CONSTRUCTS:
        return None
    constructs = CONSTRUCTS[structure].defined(setting.domain, setting.longest)
    each = entries(structure, setting, seed) / setting.queries
    return vci_encoding.storage_bytes(constructs, setting.queries, each)
