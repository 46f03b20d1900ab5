"""The tables of a BMQ-Index, as kernels take them.

Words of the paper: the ends of all queries in one attribute are *borders*; they cut the axis into *region
segments*. An *RS node* is a region segment with its *delta queries*: +DQSet holds the queries that begin at
its lower border, -DQSet those that end there. An *RS list* is the nodes of one attribute in order. The
*query table* holds the ends of every query for the cross-check. A query is a box here, by its number.

Layout: the RS lists of all attributes lie one behind the other, so a node is one int32 number in every
attribute: ``heads[k] .. heads[k + 1]`` are the nodes of attribute k. The first of them, the *head*, is below
-inf: no box holds it, and a point that is nowhere (NaN) is in it. A delta is a box and its *partner*: the
node of the box's other border. A partner to the right makes it a member of +DQSet, one to the left of -DQSet.
What a walk asks of nearly all boxes, the slot, is in the delta too: the query table would be a miss of the
cache for each.

Invariant: all arrays are read-only and those of RS lists and anchors never change, so a reader keeps what it
has. A query table changes in two ways that no reader of an older version notices: rows are written behind
those that are filed in lists, and ``removed_at`` becomes a version that the reader has not reached.

Not for: making them (``bmq_lists``, ``bmq_queries``) or searching (``bmq_kernels``).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from service.index.kernel import reads
from service.index.protocol import Bounds, Slots


class RSLists(NamedTuple):
    """n boxes in d attributes: at most ``d (2 n + 1)`` nodes, exactly ``2 d n`` deltas.

    ``heads``: ``int64[d + 1]``. ``lower``: ``float64[nodes]``, the lower border of a node (NaN at a head),
    rising within an attribute. ``starts``: ``int32[nodes + 1]``; the deltas of node i are ``starts[i] ..
    starts[i + 1]``. ``boxes``, ``partners``, ``owners``: ``int32[deltas]``; the owner is the slot of a box
    if that has no other, else -1. No box was removed at ``version`` or before.
    """

    heads: NDArray[Any]
    lower: NDArray[Any]
    starts: NDArray[Any]
    boxes: NDArray[Any]
    partners: NDArray[Any]
    owners: NDArray[Any]
    version: int


class Anchors(NamedTuple):
    """Nodes whose members are listed, so that a search for members need not begin at a head.

    ``nearest``: ``int32[nodes]``, the last anchor at or before a node. ``nodes``: ``int32[anchors]``.
    ``starts``: ``int32[anchors + 1]``. ``boxes``, ``ends``: the members of anchor a are ``starts[a] ..
    starts[a + 1]``, each with the node of its upper end. All empty: there are no anchors but the heads, which
    have no members.
    """

    nearest: NDArray[Any]
    nodes: NDArray[Any]
    starts: NDArray[Any]
    boxes: NDArray[Any]
    ends: NDArray[Any]


class Queries(NamedTuple):
    """The query table, by box, and from when it is looked at.

    ``lo``, ``hi``: ``float64[capacity, d]``. ``slots``: ``int32``. ``siblings``: the next box of the same
    slot, in a ring; a lone box is its own. ``removed_at``: the version from which the box is no more.
    A box lives where that is later than ``version``.
    """

    lo: Bounds
    hi: Bounds
    slots: Slots
    siblings: NDArray[Any]
    removed_at: NDArray[Any]
    version: int


_INT32 = reads(types.int32, 1)
_ENDS = reads(types.float64, 2)

RS_LISTS: Any = types.NamedTuple(  # type: ignore[no-untyped-call]
    (reads(types.int64, 1), reads(types.float64, 1), _INT32, _INT32, _INT32, _INT32, types.int64), RSLists
)
ANCHORS: Any = types.NamedUniTuple(_INT32, 5, Anchors)  # type: ignore[no-untyped-call]
QUERIES: Any = types.NamedTuple(  # type: ignore[no-untyped-call]
    (_ENDS, _ENDS, _INT32, _INT32, _INT32, types.int64), Queries
)


NO_ANCHORS = Anchors(*(np.empty(0, np.int32) for _ in Anchors._fields))
for _column in NO_ANCHORS:
    _column.flags.writeable = False


def nbytes(table: RSLists | Anchors) -> int:
    """Bytes of the arrays."""
    return sum(column.nbytes for column in table if isinstance(column, np.ndarray))
