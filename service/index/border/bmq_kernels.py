"""Kernels of the search in a BMQ-Index: where a value is, what a move crosses, what a place holds.

A move crosses the deltas of the nodes ``low < node <= high`` between its two places. Whether a crossed delta
counts is decided by its partner alone: a partner among the crossed nodes too means that the box was entered
and left (or left and entered) in one move, and nothing happened; a partner above ``high`` means that the box
holds the upper place and not the lower one, a partner at ``low`` or below the reverse. This is the paper's
difference of the unions of +DQSets and -DQSets (Sect. 3.3), without sets.

With several attributes every box so found goes through the cross-check (Sect. 4.3): a box that is entered in
one attribute must hold the new point in all others, one that is left must have held the old point. A slot
of several boxes is entered only if none of its boxes held the old point, and left only if none holds the new.

A change of membership is reported as the *key* ``row << 32 | slot << 1``, plus 1 if the slot was entered.
Indexes in the inner loops are unsigned: one that may be negative has to be wrapped, which costs more than all
the rest. Not for: making the lists (``bmq_list_kernels``).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from service.index.border.bmq_types import ANCHORS, QUERIES, RS_LISTS
from service.index.kernel import kernel, reads, writes

_POINTS = reads(types.float64, 2)
_PLACES = reads(types.int32, 2)
_KEYS = writes(types.int64, 1)
_TWO_COUNTS: Any = types.UniTuple(types.int64, 2)  # type: ignore[no-untyped-call]

_LEAST_JUMP = 128
"""A jump over fewer deltas is walked without a look at what else it could cost."""
_PRICE_OF_MEMBERS = 3
"""A member is looked up in the query table, a delta is not: measured, it costs as much as three."""


@kernel(types.int64(RS_LISTS, types.int64, types.float64, types.int64))
def place_of(lists, k, x, hint):  # type: ignore[no-untyped-def]
    """The node of attribute k that holds x, which is not NaN, searched from a node on.

    Gallops from ``hint`` in steps that double, then bisects: O(log distance). A hint outside of the list of k
    stands for none, and the whole list is bisected.
    """
    first = lists.heads[k]
    stop = lists.heads[k + 1]
    low = first
    high = stop
    if first <= hint and hint < stop:
        step = 1
        if hint == first or lists.lower[hint] <= x:
            low = hint
            while low + step < stop and lists.lower[low + step] <= x:
                low += step
                step *= 2
            high = min(low + step, stop)
        else:
            high = hint
            while high - step > first and lists.lower[high - step] > x:
                high -= step
                step *= 2
            low = max(high - step, first)
    while high - low > 1:
        middle = (low + high) // 2
        if lists.lower[middle] <= x:
            low = middle
        else:
            high = middle
    return low


@kernel(types.void(RS_LISTS, _POINTS, _PLACES, writes(types.int32, 2)))
def locate(lists, points, hints, places):  # type: ignore[no-untyped-def]
    """Writes the nodes ``int32[m, d]`` of points ``float64[m, d]``: the heads if one attribute is NaN.

    Point i is searched from the nodes ``hints[i]`` on; points behind the hints are after points of a move,
    and searched from the place of the point ``len(hints)`` before.
    """
    dims = points.shape[1]
    for row in range(points.shape[0]):
        somewhere = True
        for k in range(dims):
            somewhere &= not np.isnan(points[row, k])
        for k in range(dims):
            if somewhere:
                hint = hints[row, k] if row < len(hints) else places[row - len(hints), k]
                places[row, k] = place_of(lists, k, points[row, k], hint)
            else:
                places[row, k] = lists.heads[k]


@kernel(types.boolean(_POINTS, _POINTS, types.int64, _POINTS, types.int64))
def holds(lo, hi, box, points, row):  # type: ignore[no-untyped-def]
    """Whether a box holds a point in all attributes. O(d)."""
    k = 0
    while k < points.shape[1] and lo[box, k] <= points[row, k] and points[row, k] < hi[box, k]:
        k += 1
    return k == points.shape[1]


@kernel(types.boolean(_POINTS, _POINTS, reads(types.int32, 1), types.int64, _POINTS, types.int64))
def others_hold(lo, hi, siblings, box, points, row):  # type: ignore[no-untyped-def]
    """Whether another box of the same slot holds a point. O(d) a box of the slot."""
    other = siblings[box]
    while other != box:
        if holds(lo, hi, other, points, row):
            return True
        other = siblings[other]
    return False


@kernel(_TWO_COUNTS(RS_LISTS, ANCHORS, _PLACES, types.int64))
def narrowest(lists, anchors, places, row):  # type: ignore[no-untyped-def]
    """The attribute in which the fewest entries tell who holds a place, and how many these are. O(d)."""
    best = 0
    least = np.int64(-1)
    for k in range(places.shape[1]):
        place = places[row, k]
        node = lists.heads[k]
        entries = np.int64(0)
        if len(anchors.nodes) > 0:
            anchor = anchors.nearest[place]
            node = np.int64(anchors.nodes[anchor])
            entries += anchors.starts[anchor + 1] - anchors.starts[anchor]
        entries += lists.starts[place + 1] - lists.starts[node + 1]
        if least < 0 or entries < least:
            best = k
            least = entries
    return best, least


@kernel(types.int64(QUERIES, RS_LISTS, ANCHORS, types.int64, types.int64, writes(types.int32, 1)))
def members(queries, lists, anchors, k, place, found):  # type: ignore[no-untyped-def]
    """Writes the living boxes that hold a node of attribute k, in that attribute: those of the nearest anchor
    that have not ended, and those that have begun since. ``found`` must have room for the entries read.
    Returns how many there are. O(entries)."""
    removed_at, version = queries.removed_at, queries.version
    all_live = lists.version == version
    node = lists.heads[k]
    count = np.uint64(0)
    if len(anchors.nodes) > 0:
        anchor = anchors.nearest[place]
        node = np.int64(anchors.nodes[anchor])
        boxes, ends = anchors.boxes, anchors.ends
        for i in range(np.uint64(anchors.starts[anchor]), np.uint64(anchors.starts[anchor + 1])):
            found[count] = boxes[i]
            count += np.uint64(ends[i] > place and (all_live or removed_at[np.uint64(boxes[i])] > version))
    boxes, ends = lists.boxes, lists.partners
    for i in range(np.uint64(lists.starts[node + 1]), np.uint64(lists.starts[place + 1])):
        found[count] = boxes[i]
        count += np.uint64(ends[i] > place and (all_live or removed_at[np.uint64(boxes[i])] > version))
    return np.int64(count)


@kernel(types.int64(QUERIES, RS_LISTS, ANCHORS, _POINTS, _PLACES, _KEYS))
def stab(queries, lists, anchors, points, places, out):  # type: ignore[no-untyped-def]
    """Writes ``row << 32 | slot`` for every living box around a point; a slot of several boxes as often as
    they hold it. Returns the number of keys, of which the first ``len(out)`` are written.
    O(m d + entries, times d for those that hold a point in one attribute)."""
    lo, hi, slots = queries.lo, queries.hi, queries.slots
    several = points.shape[1] > 1
    found = np.empty(64, np.int32)
    needed = 0
    for row in range(points.shape[0]):
        k, entries = narrowest(lists, anchors, places, row)
        if entries >= len(found):
            found = np.empty(2 * entries, np.int32)
        count = members(queries, lists, anchors, k, places[row, k], found)
        for i in range(np.uint64(count)):
            if several and not holds(lo, hi, found[i], points, row):
                continue
            if needed < len(out):
                out[np.uint64(needed)] = (np.int64(row) << 32) | slots[np.uint64(found[i])]
            needed += 1
    return needed


@kernel(_TWO_COUNTS(RS_LISTS, ANCHORS, _PLACES, writes(types.boolean, 1)))
def choose_ways(lists, anchors, places, by_members):  # type: ignore[no-untyped-def]
    """Decides which of m moves are compared by members, and which are walked: whichever costs less.

    ``places``: ``int32[2 m, d]``, m before and m after. Returns how many are compared, and the number of
    entries to be read. O(m d).
    """
    starts = lists.starts
    batch = len(by_members)
    compared = 0
    accessed = np.int64(0)
    for row in range(batch):
        jump = np.int64(0)
        for k in range(places.shape[1]):
            was, now = places[row, k], places[row + batch, k]
            jump += starts[max(was, now) + 1] - starts[min(was, now) + 1]
        by_members[row] = False
        if jump > _LEAST_JUMP:
            both = narrowest(lists, anchors, places, row)[1]
            both += narrowest(lists, anchors, places, row + batch)[1]
            if _PRICE_OF_MEMBERS * both < jump:
                by_members[row] = True
                compared += 1
                jump = both
        accessed += jump
    return compared, accessed


@kernel(types.int64(QUERIES, RS_LISTS, _POINTS, _PLACES, reads(types.boolean, 1), _KEYS))
def walk(queries, lists, points, places, skipped, out):  # type: ignore[no-untyped-def]
    """The incremental search (Sect. 3.3) and the cross-check (Sect. 4.3) of the moves that are not skipped.

    ``points``: ``float64[2 m, d]`` and ``places``: ``int32[2 m, d]``, m before and m after. Writes the key of
    every slot that is left or entered, once for each crossed border that says so. Returns the number of keys;
    or more than ``len(out)``, unless there is room for all deltas crossed: each is written, and kept if it
    counts, since a branch on that could not be foreseen. O(m d + deltas, times d for those that count).
    """
    starts, boxes, partners, owners = lists.starts, lists.boxes, lists.partners, lists.owners
    lo, hi, slots, siblings = queries.lo, queries.hi, queries.slots, queries.siblings
    removed_at, version = queries.removed_at, queries.version
    batch, dims = len(skipped), points.shape[1]
    several = dims > 1
    checked = several or lists.version != version
    needed = 0
    for row in range(batch):
        if skipped[row]:
            continue
        first = np.int64(row) << 32
        for k in range(dims):
            was, now = places[row, k], places[row + batch, k]
            low, high, up = min(was, now), max(was, now), was < now
            start, stop = np.uint64(starts[low + 1]), np.uint64(starts[high + 1])
            if needed + np.int64(stop - start) > len(out):
                return len(out) + 1
            for i in range(start, stop):
                partner = partners[i]
                slot = np.int64(owners[i])
                side = np.int64((partner > high) == up)
                counts = (partner > high) | (partner <= low)
                if checked | (slot < 0):
                    box = boxes[i]
                    counts = counts and removed_at[box] > version
                    counts = counts and (not several or holds(lo, hi, box, points, row + side * batch))
                    if slot < 0:
                        slot = np.int64(slots[box])
                        other = row + (1 - side) * batch
                        counts = counts and not others_hold(lo, hi, siblings, box, points, other)
                out[np.uint64(needed)] = first | slot << 1 | side
                needed += counts
    return needed


@kernel(types.int64(QUERIES, RS_LISTS, ANCHORS, _POINTS, _PLACES, reads(types.boolean, 1), _KEYS))
def compare(queries, lists, anchors, points, places, chosen, out):  # type: ignore[no-untyped-def]
    """What ``walk`` says of the chosen moves, from the members of their two places.

    Arguments as ``walk`` takes them. Returns the number of keys, of which the first ``len(out)`` are written.
    O(m + entries read, times d for members).
    """
    lo, hi, slots, siblings = queries.lo, queries.hi, queries.slots, queries.siblings
    batch, several = len(chosen), points.shape[1] > 1
    found = np.empty(64, np.int32)
    needed = 0
    for row in range(batch):
        if not chosen[row]:
            continue
        for side in range(2):
            here, there = row + side * batch, row + (1 - side) * batch
            k, entries = narrowest(lists, anchors, places, here)
            if entries >= len(found):
                found = np.empty(2 * entries, np.int32)
            count = members(queries, lists, anchors, k, places[here, k], found)
            for i in range(np.uint64(count)):
                box = found[i]
                if (several and not holds(lo, hi, box, points, here)) or holds(lo, hi, box, points, there):
                    continue
                if others_hold(lo, hi, siblings, box, points, there):
                    continue
                if needed < len(out):
                    slot = np.int64(slots[np.uint64(box)])
                    out[np.uint64(needed)] = np.int64(row) << 32 | slot << 1 | side
                needed += 1
    return needed
