"""Groups: boxes that share some of the attributes that they constrain.

Idea: a structure over several attributes needs boxes that constrain all of them. Boxes of one *signature*
(``signatures``) do, but a full signature may be rare: 10 of 20 attributes have 184,756. So a *group* is made
for a set of attributes and takes every box whose signature contains it. Groups are found greedily: of all
boxes that are left, an attribute is added to the set as long as that makes a box cheaper to search, by a
model of what search costs; what constrains the set is a group.

Invariants: every box is in one group, the first one whose attributes it constrains. The groups depend on the
boxes and their order alone.

Not for: how a group is searched (``bitmaps``), or whether it should be (``chooser``).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from service.index.default.part import MOST_ATTRIBUTES, Sparse, taken
from service.index.default.signatures import masks_of, signatures
from service.index.kernel import kernel, reads, writes

_WORDS = MOST_ATTRIBUTES // 64
_MOST_SHARED = 8
_MOST_GROUPS = 1024
_SAMPLE = 1 << 15
"""Signatures that groups are made for; any others are only assigned."""


class Costs(NamedTuple):
    """What search costs a point, in ns: a group; a tile that is looked at, and a row of bits there; a box
    that has to be tested. Only the ratios matter."""

    group: float
    tile: float
    row: float
    box: float


COSTS = Costs(group=100.0, tile=16.0, row=2.6, box=12.0)


class Groups(NamedTuple):
    """``shared[g]``: the attributes of group g, rising. ``of``: ``int32[n]``, the group of each box."""

    shared: list[list[int]]
    of: NDArray[np.int32]


def groups_of(boxes: Sparse, shares: NDArray[np.float64], tile: int) -> Groups:
    """Groups of n boxes that are searched in tiles of so many. ``shares[a]``: how much of attribute a its
    mean constraint covers, 0 to 1.

    O(c) for c constraints, and for each of the sampled signatures O(groups)."""
    dims = len(shares)
    number, firsts = signatures(boxes)
    kinds = taken(boxes, firsts.astype(np.intp))
    masks = masks_of(kinds)
    step = max(-(-len(kinds) // _SAMPLE), 1)
    sample = taken(kinds, np.arange(0, len(kinds), step))
    weights = np.bincount(number, minlength=len(kinds))[::step] * float(step)
    found = np.zeros((_MOST_GROUPS + dims, _WORDS), np.uint64)
    seen = np.ascontiguousarray(masks[::step]), sample.starts, sample.attributes, weights
    made = _cover(*seen, shares, float(tile), COSTS, found[:_MOST_GROUPS])
    # Whatever constrains an attribute fits into the group of that attribute alone.
    for attribute in np.argsort(shares, kind="stable").tolist():
        found[made, attribute // 64] = np.uint64(1 << attribute % 64)
        made += 1
    group = np.empty(len(kinds), np.int32)
    _assign(masks, found[:made], group)
    used, of = np.unique(group, return_inverse=True)
    shared = [[a for a in range(dims) if int(found[g, a // 64]) >> a % 64 & 1] for g in used.tolist()]
    return Groups(shared, of.astype(np.int32)[number])


_MASKS = reads(types.uint64, 2)
_STARTS = reads(types.int64, 1)
_ATTRIBUTES = reads(types.uint8, 1)
_FLOATS = reads(types.float64, 1)
_BEST: Any = types.Tuple((types.int64, types.float64))  # type: ignore[no-untyped-call]
_COSTS: Any = types.NamedUniTuple(types.float64, 4, Costs)  # type: ignore[no-untyped-call]


@kernel(_BEST(_FLOATS, types.float64, _STARTS, types.int64, _FLOATS, types.float64, _COSTS))
def _best_addition(frequency, whole, chosen, shared, shares, tile, costs):  # type: ignore[no-untyped-def]
    """The attribute that, added to the first ``shared`` of ``chosen``, makes a box cheapest to search, and
    what a box costs then; -1 if there is none.

    ``frequency[a]`` of the ``whole`` boxes constrain a; chosen ones count as 0. Tiles are taken to be as
    compact as can be, and attributes that are not shared to have rows of 8 windows."""
    passed = 1.0
    rows = 1.0 + shared
    for a in range(len(shares)):
        density = frequency[a] / whole
        passed *= 1.0 - density * (1.0 - min(shares[a] + 0.125, 1.0))
        rows += min(2.0 * density, 1.0)
    best, cheapest = -1, np.inf
    for a in range(len(shares)):
        boxes = frequency[a]
        if boxes == 0.0:
            continue
        tiles = max(boxes / tile, 1.0)
        parts = tiles ** (1.0 / (shared + 1))
        looks = tiles * min(shares[a] + (1.0 - shares[a]) / parts, 1.0)
        left = min(shares[a] + 0.04, 1.0)
        for k in range(shared):
            share = shares[chosen[k]]
            looks *= min(share + (1.0 - share) / parts, 1.0)
            left *= min(share + 0.04, 1.0)
        left *= passed / max(1.0 - boxes / whole * (1.0 - min(shares[a] + 0.125, 1.0)), 1e-9)
        cost = (costs.group + looks * (costs.tile + costs.row * rows)) / boxes + costs.box * left
        if cost < cheapest:
            best, cheapest = a, cost
    return best, cheapest


@kernel(types.void(_STARTS, _ATTRIBUTES, _FLOATS, _STARTS, types.int64, writes(types.float64, 1)))
def _write_frequency(starts, attributes, weights, members, count, frequency):  # type: ignore[no-untyped-def]
    """Writes how much weight the first ``count`` members have that constrain each attribute."""
    frequency[:] = 0.0
    for i in range(count):
        one = members[i]
        for entry in range(starts[one], starts[one + 1]):
            frequency[attributes[entry]] += weights[one]


@kernel(types.int64(_MASKS, reads(types.uint64, 1), types.boolean, types.int64, writes(types.int64, 1)))
def _keep(masks, group, having, count, members):  # type: ignore[no-untyped-def]
    """Keeps, of the first ``count`` members, those that constrain all of the group, or those that do not.
    Returns how many."""
    kept = 0
    for i in range(count):
        contained = True
        for word in range(len(group)):
            contained &= group[word] & ~masks[members[i], word] == np.uint64(0)
        if contained == having:
            members[kept] = members[i]
            kept += 1
    return kept


@kernel(
    types.int64(
        _MASKS,
        _STARTS,
        _ATTRIBUTES,
        _FLOATS,
        _FLOATS,
        types.float64,
        _COSTS,
        writes(types.uint64, 2),
    )
)
def _cover(masks, starts, attributes, weights, shares, tile, costs, groups):  # type: ignore[no-untyped-def]
    """Writes greedy groups, as masks, of some signatures, of which number i weighs ``weights[i]``. Returns
    how many were made, at most ``len(groups)``."""
    left = np.arange(len(weights))
    members = np.empty(len(weights), np.int64)
    remaining = len(weights)
    chosen = np.empty(_MOST_SHARED, np.int64)
    frequency = np.zeros(len(shares))
    made = 0
    while remaining > 0 and made < groups.shape[0]:
        group = groups[made]
        members[:remaining] = left[:remaining]
        count, shared, current = remaining, 0, np.inf
        while shared < _MOST_SHARED:
            _write_frequency(starts, attributes, weights, members, count, frequency)
            whole = 0.0
            for i in range(count):
                whole += weights[members[i]]
            for k in range(shared):
                frequency[chosen[k]] = 0.0
            best, cost = _best_addition(frequency, whole, chosen, shared, shares, tile, costs)
            if best < 0 or cost >= current:
                break
            current = cost
            chosen[shared] = best
            shared += 1
            group[best >> 6] |= np.uint64(1) << np.uint64(best & 63)
            count = _keep(masks, group, True, count, members)
        remaining = _keep(masks, group, False, remaining, left)
        made += 1
    return made


@kernel(types.void(_MASKS, _MASKS, writes(types.int32, 1)))
def _assign(masks, groups, group):  # type: ignore[no-untyped-def]
    """Writes the first group that each signature contains; one of the last ones it always does."""
    for i in range(masks.shape[0]):
        for g in range(groups.shape[0]):
            contained = True
            for word in range(masks.shape[1]):
                if groups[g, word] & ~masks[i, word] != np.uint64(0):
                    contained = False
                    break
            if contained:
                group[i] = g
                break
