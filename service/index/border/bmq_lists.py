"""RS lists: made of new boxes, merged with others, and anchored.

Idea: the borders of the boxes are the borders of the structure, as they are, so it is exact on float64
without a grid. Flat sorted arrays instead of a linked list: a jump reads memory in order.

Invariants (``check``): borders rise within an attribute and every node but a head has a delta; a box has two
deltas an attribute, which name each other's node as partner; an anchor lists the boxes that hold its node.

Not for: which lists there are, and when they are merged (``bmq``).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.index.border.bmq_list_kernels import (
    choose_anchors,
    file_boxes,
    list_members,
    merged_nodes,
    take_over,
)
from service.index.border.bmq_types import Anchors, Queries, RSLists

_LEAST_PASSED = 16
"""Deltas between two anchors. Fewer make anchors out of nodes that a search would pass in no time."""


def rs_lists(queries: Queries, first: int, stop: int) -> RSLists:
    """The lists of the boxes numbered ``first .. stop``, of which none is removed. O(d n log n) for n."""
    new = slice(first, stop)
    ends = np.ascontiguousarray(np.concatenate([queries.lo[new], queries.hi[new]]).T)
    count, dims = stop - first, len(ends)
    order = np.argsort(ends, axis=1, kind="stable")
    heads, lower = np.empty(dims + 1, np.int64), np.empty(dims * (2 * count + 1))
    starts = np.empty(len(lower) + 1, np.int32)
    boxes, partners = np.empty(2 * dims * count, np.int32), np.empty(2 * dims * count, np.int32)
    nodes = file_boxes(ends, order, first, heads, lower, starts, boxes, partners)
    return _rs_lists(heads, lower[:nodes], starts[: nodes + 1], boxes, partners, queries)


def merged(a: RSLists, b: RSLists, queries: Queries) -> RSLists:
    """The lists of the boxes of a and b, which have none in common, without the removed ones. O(size)."""
    removed_at, version = queries.removed_at, queries.version
    node_of_a, node_of_b = np.empty(len(a.lower), np.int32), np.empty(len(b.lower), np.int32)
    heads, starts = np.empty_like(a.heads), np.empty(len(a.lower) + len(b.lower) + 1, np.int32)
    nodes = merged_nodes(a, b, removed_at, version, node_of_a, node_of_b, heads, starts)
    starts = starts[: nodes + 1].copy()
    lower, filled = np.empty(nodes), starts.copy()
    boxes, partners = np.empty(starts[-1], np.int32), np.empty(starts[-1], np.int32)
    for part, node_of in ((a, node_of_a), (b, node_of_b)):
        take_over(part, node_of, removed_at, version, lower, filled, boxes, partners)
    return _rs_lists(heads, lower, starts, boxes, partners, queries)


def anchored(lists: RSLists) -> Anchors:
    """Anchors for some lists. O(size)."""
    nearest = np.empty(len(lists.lower), np.int32)
    anchors, listed = choose_anchors(lists, _LEAST_PASSED, nearest)
    nodes, starts = np.empty(anchors, np.int32), np.empty(anchors + 1, np.int32)
    boxes, ends = np.empty(listed, np.int32), np.empty(listed, np.int32)
    first = int(lists.boxes.min()) if len(lists.boxes) else 0
    count = int(lists.boxes.max()) + 1 - first if len(lists.boxes) else 0
    list_members(lists, nearest, first, count, nodes, starts, boxes, ends)
    _freeze(nearest, nodes, starts, boxes, ends)
    return Anchors(nearest, nodes, starts, boxes, ends)


def check_lists(lists: RSLists, queries: Queries) -> None:
    """Asserts the invariants of lists. O(size log size)."""
    heads, lower, starts, boxes, partners, owners, version = lists
    lo, hi = queries.lo, queries.hi
    dims = lo.shape[1]
    assert version <= queries.version and (queries.removed_at[boxes] > version).all()
    alone = queries.siblings[boxes] == boxes
    assert np.array_equal(owners, np.where(alone, queries.slots[boxes], -1))
    assert len(heads) == dims + 1 and heads[0] == 0 and heads[-1] == len(lower) == len(starts) - 1
    assert starts[0] == 0 and starts[-1] == len(boxes) == len(partners)
    is_head = np.zeros(len(lower), np.bool_)
    is_head[heads[:-1]] = True
    assert ((np.diff(starts) > 0) != is_head).all(), "a node without a delta, or a head with one"
    assert np.array_equal(np.isnan(lower), is_head)
    node = np.repeat(np.arange(len(lower)), np.diff(starts))
    attribute = np.searchsorted(heads, node, "right") - 1
    begins = partners > node
    assert (lower[node] == np.where(begins, lo[boxes, attribute], hi[boxes, attribute])).all()
    for k in range(dims):
        assert (np.diff(lower[heads[k] + 1 : heads[k + 1]]) > 0).all()
        of_k = attribute == k
        plus, minus = np.flatnonzero(of_k & begins), np.flatnonzero(of_k & ~begins)
        plus, minus = plus[np.argsort(boxes[plus])], minus[np.argsort(boxes[minus])]
        assert np.array_equal(boxes[plus], np.unique(boxes)), "a box with no lower border, or two"
        assert np.array_equal(boxes[minus], np.unique(boxes)), "a box with no upper border, or two"
        assert np.array_equal(partners[plus], node[minus]) and np.array_equal(partners[minus], node[plus])


def check_anchors(anchors: Anchors, lists: RSLists) -> None:
    """Asserts that anchors list the boxes that hold their nodes. O(anchors * deltas)."""
    nearest, nodes, starts, boxes, ends = anchors
    assert (np.diff(nodes) > 0).all() and np.isin(lists.heads[:-1], nodes).all()
    assert np.array_equal(nearest, np.searchsorted(nodes, np.arange(len(nearest)), "right") - 1)
    assert len(boxes) == len(ends) <= 2 * len(lists.boxes)
    node = np.repeat(np.arange(len(lists.lower)), np.diff(lists.starts))
    begins = lists.partners > node
    for anchor, at in enumerate(nodes):
        listed = slice(starts[anchor], starts[anchor + 1])
        holding = begins & (node <= at) & (lists.partners > at)
        found = sorted(zip(boxes[listed], ends[listed], strict=True))
        assert found == sorted(zip(lists.boxes[holding], lists.partners[holding], strict=True))


def _rs_lists(
    heads: NDArray[np.int64],
    lower: NDArray[np.float64],
    starts: NDArray[np.int32],
    boxes: NDArray[np.int32],
    partners: NDArray[np.int32],
    queries: Queries,
) -> RSLists:
    owners = queries.slots[boxes]
    owners[queries.siblings[boxes] != boxes] = -1
    _freeze(heads, lower, starts, boxes, partners, owners)
    return RSLists(heads, lower, starts, boxes, partners, owners, queries.version)


def _freeze(*columns: NDArray[Any]) -> None:
    for column in columns:
        column.flags.writeable = False
