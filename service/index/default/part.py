"""Parts: boxes that never change, in the structure that suits them.

Idea: the default index is a few immutable parts. A part is made of boxes that constrain certain attributes
and leave the rest free, so boxes are kept *sparse*, as their constrained attributes only. What is removed is
marked in place: ``removed_at[box]`` is the version of the index from which the box is no more, so a reader
that began at an earlier version still sees it, and no reader sees half a removal.

Not for: which boxes go into which part (``mixed``, ``chooser``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from service.index.answers import Keys
from service.index.protocol import Bounds, Points, Slots

NEVER = np.int32(2**31 - 1)
"""``removed_at`` of a box that lives."""

MOST_ATTRIBUTES = 256


@dataclass(frozen=True, slots=True)
class Sparse:
    """n boxes by the attributes that they constrain; box i has the entries ``starts[i]:starts[i + 1]``.

    ``slots``: ``int32[n]``. ``starts``: ``int64[n + 1]``, from 0. ``attributes``: ``uint8[c]``, rising within
    a box. ``lo``, ``hi``: ``float64[c]``, lo < hi, never ``[-inf, inf)``. Every box constrains at least one
    attribute.
    """

    slots: Slots
    starts: NDArray[np.int64]
    attributes: NDArray[np.uint8]
    lo: NDArray[np.float64]
    hi: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.slots)

    @property
    def nbytes(self) -> int:
        columns = self.slots, self.starts, self.attributes, self.lo, self.hi
        return sum(column.nbytes for column in columns)


class Part(Protocol):
    """n boxes, numbered ``0 .. n`` in an order of the part's own; see the module.

    A part class has a classmethod ``of(boxes: Sparse, dims: int) -> Self``. The same boxes make the same
    part, whatever their order was.
    """

    slots: Slots
    """``int32[n]``, by box."""
    removed_at: NDArray[np.int32]
    """``int32[n]``, by box; ``NEVER`` at first. The owner of the part writes it, the part only reads it."""

    @property
    def nbytes(self) -> int:
        """All bytes held, ``slots`` and ``removed_at`` included."""

    def stab(self, points: Points, version: int, out: Keys) -> int:
        """Writes the key ``row << 32 | slot`` of every box around a point that lived at ``version``
        (``removed_at[box] > version``), at most ``len(out)``, and returns how many there are. ``points`` is
        ``float64[m, dims]``, C-contiguous, all attributes of the index; a row is all NaN (and in no box) or
        has none. Keys in any order, but deterministic."""

    def boxes(self) -> Sparse:
        """Its boxes in its order, removed ones too; views where possible."""

    def check(self) -> None:
        """Asserts every invariant. O(size); for tests."""


def sparse(slots: Slots, lo: Bounds, hi: Bounds) -> Sparse:
    """Boxes ``float64[n, d]`` by their constrained attributes. O(n d)."""
    bound = (lo != -np.inf) | (hi != np.inf)
    starts = np.zeros(len(slots) + 1, np.int64)
    np.cumsum(bound.sum(axis=1), out=starts[1:])
    attributes = np.nonzero(bound)[1].astype(np.uint8)
    return Sparse(slots.copy(), starts, attributes, lo[bound], hi[bound])


def dense(boxes: Sparse, dims: int) -> tuple[Bounds, Bounds]:
    """The same boxes as ``float64[n, dims]``. O(n dims)."""
    lo, hi = np.full((len(boxes), dims), -np.inf), np.full((len(boxes), dims), np.inf)
    owner = np.repeat(np.arange(len(boxes)), np.diff(boxes.starts))
    lo[owner, boxes.attributes], hi[owner, boxes.attributes] = boxes.lo, boxes.hi
    return lo, hi


def taken(boxes: Sparse, order: NDArray[np.intp]) -> Sparse:
    """Some of the boxes, in the order given. O(their entries)."""
    counts = np.diff(boxes.starts)[order]
    starts = np.zeros(len(order) + 1, np.int64)
    np.cumsum(counts, out=starts[1:])
    entries = np.repeat(boxes.starts[:-1][order] - starts[:-1], counts) + np.arange(starts[-1])
    return Sparse(boxes.slots[order], starts, boxes.attributes[entries], boxes.lo[entries], boxes.hi[entries])


def in_order(boxes: Sparse) -> Sparse:
    """The same boxes in the one order that does not depend on the order given: by slot, then by entries.

    O(c log c)."""
    order = np.argsort(boxes.slots, kind="stable")
    slots = boxes.slots[order]
    if (slots[1:] == slots[:-1]).any():
        # Only boxes of one slot need more to tell them apart.
        def entries(box: int) -> tuple[int, list[int], list[float], list[float]]:
            place = slice(boxes.starts[box], boxes.starts[box + 1])
            columns = boxes.attributes[place], boxes.lo[place], boxes.hi[place]
            attributes, lo, hi = (column.tolist() for column in columns)
            return int(boxes.slots[box]), attributes, lo, hi

        twins = np.isin(slots, slots[1:][slots[1:] == slots[:-1]])
        order[twins] = sorted(order[twins].tolist(), key=entries)
    return taken(boxes, order)


def joined(several: Sequence[Sparse]) -> Sparse:
    """All boxes of all, one behind the other."""
    counts = [np.diff(boxes.starts) for boxes in several]
    starts = np.zeros(sum(map(len, several)) + 1, np.int64)
    np.cumsum(np.concatenate([*counts, np.zeros(0, np.int64)]), out=starts[1:])
    return Sparse(
        np.concatenate([boxes.slots for boxes in several]),
        starts,
        np.concatenate([boxes.attributes for boxes in several]),
        np.concatenate([boxes.lo for boxes in several]),
        np.concatenate([boxes.hi for boxes in several]),
    )
