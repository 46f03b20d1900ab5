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
from numba import types
from numpy.typing import NDArray

from service.index.answers import Keys
from service.index.kernel import kernel, reads, writes
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
    """Boxes ``float64[n, d]``, C-contiguous, by their constrained attributes. O(n d)."""
    starts = np.zeros(len(slots) + 1, np.int64)
    _count(lo, hi, starts)
    total = int(starts[-1])
    kept = Sparse(slots.copy(), starts, np.empty(total, np.uint8), np.empty(total), np.empty(total))
    _write_sparse(lo, hi, kept.attributes, kept.lo, kept.hi)
    return kept


def dense(boxes: Sparse, dims: int) -> tuple[Bounds, Bounds]:
    """The same boxes as ``float64[n, dims]``. O(n dims)."""
    lo, hi = np.empty((len(boxes), dims)), np.empty((len(boxes), dims))
    _write_dense(boxes.starts, boxes.attributes, boxes.lo, boxes.hi, lo, hi)
    return lo, hi


def taken(boxes: Sparse, order: NDArray[np.intp]) -> Sparse:
    """Some of the boxes, in the order given. O(their entries)."""
    starts = np.zeros(len(order) + 1, np.int64)
    np.cumsum(boxes.starts[order + 1] - boxes.starts[order], out=starts[1:])
    total = int(starts[-1])
    some = Sparse(boxes.slots[order], starts, np.empty(total, np.uint8), np.empty(total), np.empty(total))
    columns = boxes.starts, boxes.attributes, boxes.lo, boxes.hi
    _take(*columns, order, some.attributes, some.lo, some.hi)
    return some


def constrained(boxes: Sparse, dims: int) -> NDArray[np.intp]:
    """The attributes that any of the boxes constrains, rising. O(entries)."""
    marks = np.zeros(dims, np.bool_)
    _mark(boxes.attributes, marks)
    return np.flatnonzero(marks)


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
    """All boxes of all, one behind the other; those of one are not copied."""
    if len(several) == 1:
        return several[0]
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


_ENDS = reads(types.float64, 2)
_FLOATS = reads(types.float64, 1)
_ENTRIES = writes(types.uint8, 1), writes(types.float64, 1), writes(types.float64, 1)


@kernel(types.void(_ENDS, _ENDS, writes(types.int64, 1)))
def _count(lo, hi, starts):  # type: ignore[no-untyped-def]
    """Writes where the entries of each box begin. O(n d)."""
    for i in range(lo.shape[0]):
        count = 0
        for j in range(lo.shape[1]):
            count += (lo[i, j] != -np.inf) | (hi[i, j] != np.inf)
        starts[i + 1] = starts[i] + count


@kernel(types.void(_ENDS, _ENDS, *_ENTRIES))
def _write_sparse(lo, hi, attributes, kept_lo, kept_hi):  # type: ignore[no-untyped-def]
    """Writes the entries of all boxes. O(n d)."""
    entry = 0
    for i in range(lo.shape[0]):
        for j in range(lo.shape[1]):
            if lo[i, j] != -np.inf or hi[i, j] != np.inf:
                attributes[entry] = j
                kept_lo[entry], kept_hi[entry] = lo[i, j], hi[i, j]
                entry += 1


_SPARSE = reads(types.int64, 1), reads(types.uint8, 1), _FLOATS, _FLOATS


@kernel(types.void(*_SPARSE, writes(types.float64, 2), writes(types.float64, 2)))
def _write_dense(starts, attributes, lo, hi, all_lo, all_hi):  # type: ignore[no-untyped-def]
    """Writes both ends of all boxes in all attributes. O(n d)."""
    for box in range(all_lo.shape[0]):
        for j in range(all_lo.shape[1]):
            all_lo[box, j], all_hi[box, j] = -np.inf, np.inf
        for entry in range(starts[box], starts[box + 1]):
            all_lo[box, attributes[entry]] = lo[entry]
            all_hi[box, attributes[entry]] = hi[entry]


@kernel(types.void(*_SPARSE, reads(types.int64, 1), *_ENTRIES))
def _take(starts, attributes, lo, hi, order, some_attributes, some_lo, some_hi):  # type: ignore[no-untyped-def]
    """Copies the entries of the boxes in an order. O(entries)."""
    at = 0
    for box in order:
        for entry in range(starts[box], starts[box + 1]):
            some_attributes[at] = attributes[entry]
            some_lo[at], some_hi[at] = lo[entry], hi[entry]
            at += 1


@kernel(types.void(reads(types.uint8, 1), writes(types.boolean, 1)))
def _mark(attributes, marks):  # type: ignore[no-untyped-def]
    """Sets the marks of attributes."""
    for attribute in attributes:
        marks[attribute] = True
