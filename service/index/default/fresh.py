"""The grid of fresh boxes: boxes that are found among many others as soon as they are there.

Idea: a box that is filed in a tree is filed with others, and until they are many there are trees of all
sizes to be asked, one after another. A grid takes a box in O(1). Fresh boxes of any number are in this one,
and what it holds goes into a tree in one go, when it is worth one.

A box constrains one attribute or two. It is entered in the cells that it meets, which are as wide as itself
or up to four times wider. Boxes with the same attributes and the same width of cell make a *plane*; a point
looks at one cell of every plane. Cells are hashed to *buckets* of entries, so they need no domain, and where
boxes are crowded and small so are their cells. An entry has both ends in both attributes in four bytes each;
the box itself is looked at only where these do not decide.

Who reads has a ``FreshPart``, which is what the grid was with so many boxes. All that is written later is
behind that, in the arrays, in a bucket and in a block, and is passed over.

Not taken, and left to the trees: boxes that are wide or open in an attribute, or constrain more of them (two
would tell too few of these apart), crowds around one place, and the few of a plane of their own. So what a
point costs is bounded, whatever comes.

Exact on float64: rounding and cells are monotone in the value; where they do not decide, ends are compared.
Hierarchical grids are folklore (of collision detection); buckets without keys are a departure.

Not for: many boxes around a point.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from service.index.answers import Keys
from service.index.default.arena import Arena, empty_arena
from service.index.default.fresh_kernels import (
    LANES,
    MOST_PLANES,
    WORDS,
    Columns,
    assign,
    bucket_of,
    chain,
    mark,
    put,
    search,
    sides_of,
)
from service.index.default.part import NEVER, Part, Sparse, joined, sparse, taken
from service.index.protocol import Bounds, Points, Slots
from service.index.scan import rounding

_BLOCKS_A_BOX = 2
_SAMPLED = 1024
_LEAST_OF_PLANE = 16
"""One in so many of the boxes that come together must be of a new plane: each costs every point a look."""
_WORTH = 8
"""A grid that has used 1 / _WORTH of its room is worth being made anew."""
_PLANE_NS = 40.0
"""What a plane costs a point, in the unit of the chooser's constants."""


class FreshPart:
    """A ``Part``: the first boxes of a grid, in the order in which they came. Made in O(1).

    ``blocks``: how many there were; ``whole``: whether every box lived."""

    def __init__(
        self, arena: Arena, columns: Columns, size: int, planes: int, blocks: int, *, whole: bool
    ) -> None:
        self._arena, self._columns = arena, columns
        self._planes, self._blocks, self._whole = planes, blocks, whole
        self.slots, self.removed_at = columns.slots[:size], columns.removed_at[:size]

    @property
    def nbytes(self) -> int:
        """Without what is kept for more boxes."""
        heads = self._columns.heads.nbytes * self._planes // MOST_PLANES
        held = self.removed_at.nbytes + heads + 4 * WORDS * self._blocks
        return self.boxes().nbytes + held

    @property
    def predicted_ns(self) -> float:
        """What a point is predicted to cost."""
        return _PLANE_NS * self._planes

    def stab(self, points: Points, version: int, out: Keys) -> int:
        """O(planes + entries of a bucket + k) for a point in k boxes."""
        size = len(self.slots)
        with rounding():
            found: int = search(self._arena, points, version, size, self._planes, self._whole, out)
        return found

    def boxes(self) -> Sparse:
        columns, size = self._columns, len(self.slots)
        end = int(columns.starts[size])
        entries = columns.attributes[:end], columns.lo[:end], columns.hi[:end]
        return Sparse(self.slots, columns.starts[: size + 1], *entries)

    def check(self) -> None:
        """The buckets hold the boxes, each in those of its cells, in the order in which they came."""
        columns, boxes = self._columns, self.boxes()
        expected: dict[int, list[tuple[float, ...]]] = {}
        for box, plane in enumerate(columns.plane_of[: len(boxes)].tolist()):
            ends, cells = np.empty(4), np.empty(4, np.int64)
            own = slice(boxes.starts[box], boxes.starts[box + 1])
            of_plane = columns.planes[plane]
            assert [*boxes.attributes[own].tolist(), -1][:2] == of_plane[::2].tolist()
            with np.errstate(over="ignore"):
                sides_of(of_plane, boxes.lo[own], boxes.hi[own], ends, cells)
                near = ends.astype(np.float32).tolist()
            sides = range(cells[0], cells[1] + 1), range(cells[2], cells[3] + 1)
            mask = len(columns.heads) // MOST_PLANES - 1
            for bucket in {bucket_of(plane, i, j, mask) for i, j in product(*sides)}:
                expected.setdefault(bucket, []).append((*near, int(boxes.slots[box]), box + 1))
        names = columns.blocks.view(np.int32)
        for bucket in np.flatnonzero(columns.heads).tolist():
            found, block = [], int(columns.heads[bucket])
            while block:
                for lane in range(LANES):
                    near = columns.blocks[block, lane : 4 * LANES : LANES].tolist()
                    slot, name = names[block, 4 * LANES + lane : 6 * LANES : LANES].tolist()
                    if 0 < name <= len(boxes):
                        found.append((*near, slot, name))
                block = int(names[block, WORDS - 2])
            assert found == expected.pop(bucket, [])
        assert not expected


class Fresh:
    """The writer's side, with room for ``limit`` boxes, at least; ``part`` is the latest snapshot. ``filed``:
    the parts that there are besides, which say where values lie. Complexities count k boxes of a call."""

    def __init__(self, filed: Sequence[Part], dims: int, limit: int) -> None:
        some = joined([_sampled(part.boxes()) for part in filed])
        self._limit = limit
        self._domains = _domains(some, dims)
        # Of a plane: about as many as half of the boxes.
        buckets = MOST_PLANES << max(limit.bit_length() - 1, 0)
        self._arena, views = empty_arena(
            [
                *[(np.dtype(np.int32), (limit,))] * 3,
                (np.dtype(np.int64), (limit + 1,)),
                (np.dtype(np.uint8), (2 * limit,)),
                *[(np.dtype(np.float64), (2 * limit,))] * 2,
                (np.dtype(np.float64), (MOST_PLANES, 4)),
                (np.dtype(np.int32), (buckets,)),
                (np.dtype(np.float32), (_BLOCKS_A_BOX * (limit + 1), WORDS)),
            ]
        )
        self._columns = Columns(*views)
        self._tails = np.zeros((buckets, 2), np.int32)
        self._newest, self._previous = np.zeros(0, np.int32), np.zeros(limit, np.int32)
        # Of boxes and of blocks; block 0 is none.
        self._sizes = np.array([0, 1])
        self._planes = self._removed = 0
        #: Whether no slot has more than one box here.
        self.unique = True
        self._publish()

    @property
    def size(self) -> int:
        """Its boxes, removed ones too."""
        return len(self.part.slots)

    @property
    def living(self) -> int:
        """Its boxes that are not removed."""
        return self.size - self._removed

    @property
    def stale(self) -> bool:
        """Whether it had better be made anew: more than half of it, and not of a few, is removed."""
        return 2 * self.living < self.size and _WORTH * self.size > self._limit

    @property
    def nbytes(self) -> int:
        tails = self._tails.nbytes * self._planes // MOST_PLANES
        return self.part.nbytes + tails + self._newest.nbytes + self._previous.nbytes

    def takes(self, boxes: int) -> bool:
        """Whether there is room for so many more."""
        return self.size + boxes <= self._limit and bool(self._sizes[1] + boxes <= len(self._columns.blocks))

    def insert(self, slots: Slots, lo: Bounds, hi: Bounds) -> tuple[Slots, Bounds, Bounds]:
        """Takes boxes for which it has room, those of new slots; returns the ones that it does not take.
        O(k log k)."""
        order = np.argsort(slots, kind="stable")
        slots, lo, hi = slots[order], lo[order], hi[order]
        boxes, columns = sparse(slots, lo, hi), self._columns
        number, placed = np.empty(len(slots), np.int32), np.zeros(len(slots), np.bool_)
        least = -(-len(slots) // _LEAST_OF_PLANE)
        entries = boxes.starts, boxes.attributes, boxes.lo, boxes.hi
        limit, size = float(self._limit), self.size
        with rounding():
            self._planes = assign(*entries, self._domains, limit, least, columns.planes, self._planes, number)
            put(
                slots,
                boxes.starts,
                boxes.lo,
                boxes.hi,
                number,
                columns.planes,
                columns.heads,
                columns.blocks,
                self._tails,
                self._sizes,
                placed,
            )
        here = np.flatnonzero(placed)
        if len(here):
            self._append(taken(boxes, here), number[here], size)
        left = ~placed
        return slots[left], lo[left], hi[left]

    def _append(self, boxes: Sparse, number: NDArray[np.int32], size: int) -> None:
        columns, end = self._columns, size + len(boxes)
        first = int(columns.starts[size])
        last = first + len(boxes.attributes)
        columns.slots[size:end], columns.plane_of[size:end] = boxes.slots, number
        columns.removed_at[size:end] = NEVER
        columns.starts[size : end + 1] = first + boxes.starts
        columns.attributes[first:last] = boxes.attributes
        columns.lo[first:last], columns.hi[first:last] = boxes.lo, boxes.hi
        top = int(boxes.slots[-1]) + 1
        if top > len(self._newest):
            newest = np.zeros(max(top, 2 * len(self._newest)), np.int32)
            newest[: len(self._newest)] = self._newest
            self._newest = newest
        chain(boxes.slots, size, self._newest, self._previous)
        self.unique = self.unique and bool((boxes.slots[1:] != boxes.slots[:-1]).all())
        self._publish()

    def remove(self, slots: Slots, version: int) -> None:
        """As ``Level.remove``. O(k)."""
        count: int = mark(slots, version, self._newest, self._previous, self._columns.removed_at)
        if count:
            self._removed += count
            self._publish()

    def sealed(self) -> FreshPart:
        """Its boxes, for an owner who marks them and takes no more to this."""
        return self._part(whole=False)

    def check(self) -> None:
        """Asserts every invariant. O(size)."""
        self.part.check()
        slots, removed_at = self.part.slots, self.part.removed_at
        assert self.size == self._sizes[0] <= self._limit
        assert self._removed == np.count_nonzero(removed_at != NEVER)
        boxes_of: dict[int, list[int]] = {}
        for box, slot in enumerate(slots.tolist()):
            boxes_of.setdefault(slot, []).append(box)
        for slot, newest in enumerate(self._newest.tolist()):
            for box in reversed(boxes_of.pop(slot, [])):
                assert newest == box + 1
                newest = int(self._previous[box])
            assert newest == 0
        assert not boxes_of
        living = slots[removed_at == NEVER]
        assert not self.unique or len(np.unique(living)) == len(living)

    def _publish(self) -> None:
        self.part = self._part(whole=self._removed == 0)

    def _part(self, *, whole: bool) -> FreshPart:
        size, blocks = self._sizes.tolist()
        return FreshPart(self._arena, self._columns, size, self._planes, blocks, whole=whole)


def _sampled(boxes: Sparse) -> Sparse:
    return taken(boxes, np.unique(np.linspace(0, len(boxes) - 1, min(len(boxes), _SAMPLED)).astype(np.intp)))


def _domains(boxes: Sparse, dims: int) -> NDArray[np.float64]:
    """By attribute between which values most ends of boxes are: ``float64[dims, 2]``, NaN where there are
    none."""
    values = np.where(np.isfinite(boxes.lo), boxes.lo, boxes.hi)
    domains = np.full((dims, 2), np.nan)
    for attribute in np.unique(boxes.attributes).tolist():
        own = np.sort(values[boxes.attributes == attribute])
        domains[attribute] = own[len(own) // 64], own[-1 - len(own) // 64]
    return domains
