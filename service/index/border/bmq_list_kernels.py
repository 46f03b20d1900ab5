"""Kernels that make RS lists: of new boxes, of two lists merged, and the anchors of a list.

Registration splits a segment where a border is new, deregistration merges two where a border belonged to no
other box (Sect. 3.2). Lists never change, so both happen in ``merged_nodes``: it walks over two lists at
once, and a node without a living delta is not taken over. See ``bmq_types`` for the words and the layout.

Not for: searching (``bmq_kernels``).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from service.index.border.bmq_types import RS_LISTS
from service.index.kernel import kernel, reads, writes

_INT32 = reads(types.int32, 1)
_OUT32 = writes(types.int32, 1)
_TWO_COUNTS: Any = types.UniTuple(types.int64, 2)  # type: ignore[no-untyped-call]


@kernel(
    types.int64(
        reads(types.float64, 2),
        reads(types.int64, 2),
        types.int64,
        writes(types.int64, 1),
        writes(types.float64, 1),
        _OUT32,
        _OUT32,
        _OUT32,
    )
)
def file_boxes(ends, order, first, heads, lower, starts, boxes, partners):  # type: ignore[no-untyped-def]
    """Makes the RS lists of n boxes that are numbered from ``first`` on.

    ``ends``: ``float64[d, 2 n]``, in every attribute n lower and then n upper ends; ``order``: ``int64[d,
    2 n]``, the permutations that sort them. Writes the columns of ``RSLists``, which must have room for ``d
    (2 n + 1)`` nodes. Returns the number of nodes. O(d n).
    """
    dims, deltas = ends.shape
    count = deltas // 2
    node_of = np.empty(deltas, np.int32)
    node = 0
    written = 0
    for k in range(dims):
        heads[k] = node
        lower[node] = np.nan
        starts[node] = written
        node += 1
        for i in range(deltas):
            value = ends[k, order[k, i]]
            if i == 0 or value != lower[node - 1]:
                lower[node] = value
                starts[node] = written + i
                node += 1
            node_of[order[k, i]] = node - 1
        for i in range(deltas):
            end = order[k, i]
            boxes[written + i] = first + end % count
            partners[written + i] = node_of[(end + count) % deltas]
        written += deltas
    heads[dims] = node
    starts[node] = written
    return node


@kernel(types.int64(RS_LISTS, types.int64, _INT32, types.int64))
def living(lists, node, removed_at, version):  # type: ignore[no-untyped-def]
    """How many deltas of a node are of boxes that live at a version."""
    count = 0
    for i in range(lists.starts[node], lists.starts[node + 1]):
        count += removed_at[lists.boxes[i]] > version
    return count


@kernel(types.int64(RS_LISTS, RS_LISTS, _INT32, types.int64, _OUT32, _OUT32, writes(types.int64, 1), _OUT32))
def merged_nodes(a, b, removed_at, version, node_of_a, node_of_b, heads, starts):  # type: ignore[no-untyped-def]
    """Numbers the nodes of two lists merged, without what is gone at a version.

    Writes ``node_of_a[i]``, the new number of node i of a (-1 if no living delta is left in it), the same for
    b, the new ``heads``, and ``starts``, which must have room for the nodes of both. Returns the number of
    nodes. O(size).
    """
    node = 0
    deltas = 0
    for k in range(len(heads) - 1):
        i, j = a.heads[k], b.heads[k]
        heads[k] = node
        starts[node] = deltas
        node_of_a[i] = node
        node_of_b[j] = node
        node += 1
        i += 1
        j += 1
        while i < a.heads[k + 1] or j < b.heads[k + 1]:
            from_a = j == b.heads[k + 1] or (i < a.heads[k + 1] and a.lower[i] <= b.lower[j])
            from_b = i == a.heads[k + 1] or (j < b.heads[k + 1] and b.lower[j] <= a.lower[i])
            count = 0
            if from_a:
                count += living(a, i, removed_at, version)
            if from_b:
                count += living(b, j, removed_at, version)
            number = node if count > 0 else -1
            if from_a:
                node_of_a[i] = number
                i += 1
            if from_b:
                node_of_b[j] = number
                j += 1
            if count > 0:
                starts[node] = deltas
                node += 1
                deltas += count
    heads[len(heads) - 1] = node
    starts[node] = deltas
    return node


@kernel(types.void(RS_LISTS, _INT32, _INT32, types.int64, writes(types.float64, 1), _OUT32, _OUT32, _OUT32))
def take_over(part, node_of, removed_at, version, lower, filled, boxes, partners):  # type: ignore[no-untyped-def]
    """Writes the borders and the living deltas of one of two merged lists to where ``node_of`` says.

    ``filled[i]`` is where the next delta of the new node i goes, and is moved on. O(size).
    """
    for node in range(len(node_of)):
        number = node_of[node]
        if number < 0:
            continue
        lower[number] = part.lower[node]
        place = filled[number]
        for i in range(part.starts[node], part.starts[node + 1]):
            if removed_at[part.boxes[i]] > version:
                boxes[place] = part.boxes[i]
                partners[place] = node_of[part.partners[i]]
                place += 1
        filled[number] = place


@kernel(_TWO_COUNTS(RS_LISTS, types.int64, _OUT32))
def choose_anchors(lists, least, nearest):  # type: ignore[no-untyped-def]
    """Chooses the anchors of RS lists and writes the last one at or before every node.

    A head is an anchor. So is a node by which, since the last anchor, ``least`` deltas and half as many
    deltas as it has members have been passed: then the members listed are at most twice the deltas, and a
    search meets at most about three times what it finds, and ``least``. Returns how many anchors and members
    there are. O(size).
    """
    anchors = 0
    listed = 0
    for k in range(len(lists.heads) - 1):
        count = 0
        passed = 0
        for node in range(lists.heads[k], lists.heads[k + 1]):
            for i in range(lists.starts[node], lists.starts[node + 1]):
                count += 1 if lists.partners[i] > node else -1
                passed += 1
            if node == lists.heads[k] or passed >= max(least, (count + 1) // 2):
                anchors += 1
                listed += count
                passed = 0
            nearest[node] = anchors - 1
    return anchors, listed


@kernel(types.void(RS_LISTS, _INT32, types.int64, types.int64, _OUT32, _OUT32, _OUT32, _OUT32))
def list_members(lists, nearest, first, count, nodes, starts, boxes, ends):  # type: ignore[no-untyped-def]
    """Writes the anchors that ``choose_anchors`` chose; the boxes are numbered ``first .. first + count``.

    One sweep over the nodes with the boxes that hold the current one. O(size + members).
    """
    held = np.empty(count, np.int32)
    held_until = np.empty(count, np.int32)
    place_of = np.empty(count, np.int32)
    anchor = -1
    listed = 0
    for k in range(len(lists.heads) - 1):
        holding = 0
        for node in range(lists.heads[k], lists.heads[k + 1]):
            for i in range(lists.starts[node], lists.starts[node + 1]):
                box = lists.boxes[i]
                if lists.partners[i] > node:
                    held[holding] = box
                    held_until[holding] = lists.partners[i]
                    place_of[box - first] = holding
                    holding += 1
                else:
                    holding -= 1
                    gap = place_of[box - first]
                    held[gap] = held[holding]
                    held_until[gap] = held_until[holding]
                    place_of[held[gap] - first] = gap
            if nearest[node] != anchor:
                anchor += 1
                nodes[anchor] = node
                starts[anchor] = listed
                boxes[listed : listed + holding] = held[:holding]
                ends[listed : listed + holding] = held_until[:holding]
                listed += holding
    starts[anchor + 1] = listed
