"""Signatures: which attributes a box constrains, and groups of boxes that share some of them.

Idea: a structure over several attributes needs boxes that constrain all of them. Boxes with the same
*signature* (the set of their constrained attributes) do, but a full signature may be rare: 10 of 20
attributes have 184,756. So a *group* is made for a set of attributes and takes every box whose signature
contains it. Groups are found greedily: from all boxes that are left, an attribute is added as long as that
makes a box cheaper to search, by a model of what search costs; what is then found is the next group.

Invariants: every box is in exactly one group, the first one whose attributes it constrains. The groups depend
on the boxes and their order alone.

Not for: what a group is searched by (``bitmaps``).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from service.index.default.part import MOST_ATTRIBUTES, Sparse
from service.index.kernel import kernel, reads, writes

_WORDS = MOST_ATTRIBUTES // 64
_COSTS = np.array([12.0, 2.2, 15.0, 20.0])
"""What search costs, in ns: a tile that is looked at, each of its rows, a group, a box that is verified."""
_MOST_GROUPS = 1024
_SAMPLE = 1 << 15
"""Signatures that groups are made for; the rest are only assigned."""


class Groups(NamedTuple):
    """``shared[g]``: the attributes of group g, rising. ``of``: ``int32[n]``, the group of each box."""

    shared: list[list[int]]
    of: NDArray[np.int32]


def groups_of(boxes: Sparse, shares: NDArray[np.float64]) -> Groups:
    """Groups of n boxes. ``shares[a]``: how much of attribute a an average constraint covers, 0 to 1.

    O(c) for c constraints, and O(groups) for each of the sampled signatures."""
    dims = len(shares)
    masks = np.zeros((len(boxes), _WORDS), np.uint64)
    _masks(boxes.starts, boxes.attributes, masks)
    number = np.empty(len(boxes), np.int32)
    firsts = np.empty(len(boxes), np.int32)
    count = _numbered(masks, number, firsts)
    signatures = masks[firsts[:count]]
    weights = np.bincount(number, minlength=count).astype(np.float64)
    step = -(-count // _SAMPLE)
    sample = np.ascontiguousarray(signatures[::step])
    scaled = weights[::step] * (weights.sum() / weights[::step].sum())
    found = np.zeros((_MOST_GROUPS + dims, _WORDS), np.uint64)
    groups = _cover(sample, scaled, shares, _COSTS, found[:_MOST_GROUPS])
    # Whatever constrains an attribute fits into the group of that attribute alone.
    for attribute in np.argsort(shares, kind="stable").tolist():
        found[groups, attribute // 64] = np.uint64(1 << attribute % 64)
        groups += 1
    group = np.empty(count, np.int32)
    _assign(signatures, found[:groups], group)
    used, of = np.unique(group, return_inverse=True)
    shared = [[a for a in range(dims) if int(found[g, a // 64]) >> a % 64 & 1] for g in used.tolist()]
    return Groups(shared, of.astype(np.int32)[number])


_MASKS = reads(types.uint64, 2)


@kernel(types.void(reads(types.int64, 1), reads(types.uint8, 1), writes(types.uint64, 2)))
def _masks(starts, attributes, masks):  # type: ignore[no-untyped-def]
    """Sets bit a of ``masks[i]`` for every attribute a of box i."""
    for i in range(masks.shape[0]):
        for entry in range(starts[i], starts[i + 1]):
            a = attributes[entry]
            masks[i, a >> 6] |= np.uint64(1) << np.uint64(a & 63)


@kernel(types.int64(_MASKS, writes(types.int32, 1), writes(types.int32, 1)))
def _numbered(masks, number, firsts):  # type: ignore[no-untyped-def]
    """Numbers equal rows from 0 in the order of their first: row i has ``number[i]``, and number k is first
    at ``firsts[k]``. Returns how many there are. O(n)."""
    rows, words = masks.shape
    size = 16
    while size < 2 * rows:
        size *= 2
    table = np.full(size, -1, np.int32)
    count = 0
    for i in range(rows):
        mixed = np.uint64(0)
        for word in range(words):
            mixed ^= masks[i, word]
            mixed ^= mixed >> np.uint64(29)
            # Halves, so that no product leaves 64 bits.
            mixed = (mixed & np.uint64(0xFFFFFFFF)) * np.uint64(0x9E3779B1) ^ (
                mixed >> np.uint64(32)
            ) * np.uint64(0x85EBCA77)
        place = np.int64((mixed ^ mixed >> np.uint64(32)) & np.uint64(size - 1))
        while True:
            known = table[place]
            if known < 0:
                table[place] = count
                firsts[count] = i
                number[i] = count
                count += 1
                break
            same = True
            for word in range(words):
                same &= masks[i, word] == masks[firsts[known], word]
            if same:
                number[i] = known
                break
            place = (place + 1) & (size - 1)
    return count


@kernel(
    types.int64(
        _MASKS,
        reads(types.float64, 1),
        reads(types.float64, 1),
        reads(types.float64, 1),
        writes(types.uint64, 2),
    )
)
def _cover(masks, weights, shares, costs, groups):  # type: ignore[no-untyped-def]
    """Greedy groups of the signatures, a mask each; returns how many were made, at most ``len(groups)``."""
    dims = len(shares)
    left = np.arange(masks.shape[0])
    remaining = len(left)
    members = np.empty(remaining, np.int64)
    chosen = np.zeros(dims, np.bool_)
    frequency = np.zeros(dims)
    made = 0
    while remaining > 0 and made < groups.shape[0]:
        members[:remaining] = left[:remaining]
        count = remaining
        shared = 0
        chosen[:] = False
        current = np.inf
        while shared < 8:
            frequency[:] = 0.0
            for i in range(count):
                signature = members[i]
                for word in range(masks.shape[1]):
                    bits = masks[signature, word]
                    a = 64 * word
                    while bits != 0:
                        if bits & np.uint64(1):
                            frequency[a] += weights[signature]
                        bits >>= np.uint64(1)
                        a += 1
            best = -1
            cheapest = current
            others = 0.0
            extras = 0.0
            whole = 0.0
            for i in range(count):
                whole += weights[members[i]]
            for b in range(dims):
                if not chosen[b]:
                    others += np.log(1 - frequency[b] / whole * (1 - min(shares[b] + 0.125, 1.0)) + 1e-9)
                    extras += min(2.0 * frequency[b] / whole, 1.0)
            for a in range(dims):
                if frequency[a] > 0.0 and not chosen[a]:
                    tiles = max(frequency[a] / 256, 1.0)
                    parts = tiles ** (1.0 / (shared + 1))
                    visited, passed = 1.0, 1.0
                    for b in range(dims):
                        if b == a or chosen[b]:
                            visited *= min(shares[b] + (1 - shares[b]) / parts, 1.0)
                            passed *= min(shares[b] + 0.04, 1.0)
                    passed *= np.exp(
                        others - np.log(1 - frequency[a] / whole * (1 - min(shares[a] + 0.125, 1.0)) + 1e-9)
                    )
                    cost = tiles * visited * (costs[0] + costs[1] * (shared + extras)) + costs[2]
                    cost = (cost + 2.0 * shared) / frequency[a] + costs[3] * passed
                    if cost < cheapest:
                        cheapest = cost
                        best = a
            if best < 0:
                break
            current = cheapest
            chosen[best] = True
            shared += 1
            kept = 0
            for i in range(count):
                if masks[members[i], best >> 6] >> np.uint64(best & 63) & np.uint64(1):
                    members[kept] = members[i]
                    kept += 1
            count = kept
        for a in range(dims):
            if chosen[a]:
                groups[made, a >> 6] |= np.uint64(1) << np.uint64(a & 63)
        kept = 0
        for i in range(remaining):
            contained = True
            for word in range(masks.shape[1]):
                contained &= groups[made, word] & ~masks[left[i], word] == 0
            if not contained:
                left[kept] = left[i]
                kept += 1
        remaining = kept
        made += 1
    return made


@kernel(types.void(_MASKS, _MASKS, writes(types.int32, 1)))
def _assign(masks, groups, group):  # type: ignore[no-untyped-def]
    """Writes the first group that each mask contains; the last ones contain every mask."""
    for i in range(masks.shape[0]):
        for g in range(groups.shape[0]):
            contained = True
            for word in range(masks.shape[1]):
                contained &= groups[g, word] & ~masks[i, word] == 0
            if contained:
                group[i] = g
                break
