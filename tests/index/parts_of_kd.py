"""Indexes of nothing but window lists and kd windows, so that the contract suite reaches each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from service.index.answers import Collector, Keys, as_points, borders_by_stab
from service.index.boxes import LiveSlots
from service.index.default.kd import Kd
from service.index.default.part import NEVER, Part, Sparse, joined, sparse, taken
from service.index.default.windows import Windows
from service.index.protocol import Borders, Bounds, Hits, Points, Slots
from tests.index.worlds import Factory

Make = Callable[[Sparse, int], Part]

_MOST_PARTS = 4


class _Snapshot(NamedTuple):
    version: int
    free: Slots
    parts: tuple[Part, ...]


class PartsIndex:
    """A ``BoxIndex``: parts by the attributes that boxes constrain, made anew when they become many."""

    def __init__(self, dims: int, make: Make) -> None:
        self.dims = dims
        self._make = make
        self._live = LiveSlots(dims)
        self._collector = Collector()
        self._snapshot = _Snapshot(0, np.empty(0, np.int32), ())

    def __len__(self) -> int:
        return len(self._live)

    @property
    def nbytes(self) -> int:
        return self._live.nbytes + sum(part.nbytes for part in self._snapshot.parts)

    def insert(self, slots: Slots, lo: Bounds, hi: Bounds) -> None:
        slots, lo, hi = self._live.add(slots, lo, hi)
        version, free, parts = self._snapshot
        bound = ((lo != -np.inf) | (hi != np.inf)).any(axis=1)
        free = np.union1d(free, slots[~bound]).astype(np.int32)
        boxes = sparse(slots[bound], lo[bound], hi[bound])
        if len(parts) > _MOST_PARTS:
            boxes, parts = joined([_living(parts), boxes]), ()
        self._snapshot = _Snapshot(version, free, (*parts, *self._made(boxes)))

    def _made(self, boxes: Sparse) -> list[Part]:
        of_set: dict[bytes, list[int]] = {}
        for box in range(len(boxes)):
            attributes = boxes.attributes[boxes.starts[box] : boxes.starts[box + 1]]
            of_set.setdefault(attributes.tobytes(), []).append(box)
        numbers = [of_set[attributes] for attributes in sorted(of_set)]
        return [self._make(taken(boxes, np.array(some, np.intp)), self.dims) for some in numbers]

    def remove(self, slots: Slots) -> None:
        self._live.discard(slots)
        version, free, parts = self._snapshot
        for part in parts:
            gone = np.isin(part.slots, slots) & (part.removed_at == NEVER)
            part.removed_at[gone] = version + 1
        living = sum(int((part.removed_at == NEVER).sum()) for part in parts)
        if 2 * living < sum(len(part.slots) for part in parts):
            parts = tuple(self._made(_living(parts)))
        self._snapshot = _Snapshot(version + 1, free[~np.isin(free, slots)], parts)

    def stab(self, points: Points) -> Hits:
        points = as_points(points, self.dims)
        nowhere = ~np.logical_and.reduce(points < np.inf, axis=1)
        points = np.where(nowhere[:, None], np.nan, points)
        version, free, parts = self._snapshot
        everywhere = (np.flatnonzero(~nowhere)[:, None] << 32 | free.astype(np.int64)).ravel()

        def fill(out: Keys) -> int:
            out[: len(everywhere)] = everywhere[: len(out)]
            found = len(everywhere)
            for part in parts:
                found += part.stab(points, version, out[found:])
            return found

        return self._collector.hits(fill, len(points))

    def borders(self, before: Points, after: Points) -> Borders:
        return borders_by_stab(self, before, after)

    def check(self) -> None:
        for part in self._snapshot.parts:
            part.check()


def _living(parts: tuple[Part, ...]) -> Sparse:
    return joined([taken(part.boxes(), np.flatnonzero(part.removed_at == NEVER)) for part in parts])


def deep_kd(boxes: Sparse, dims: int) -> Part:
    """Split as far as it goes, however few the boxes."""
    return Kd.of(boxes, dims, leaf=1)


def windows_or_kd(boxes: Sparse, dims: int) -> Part:
    return Windows.of(boxes, dims) if len(boxes.attributes) == len(boxes) else Kd.of(boxes, dims)


FACTORIES = (
    Factory("windows", 1, lambda: PartsIndex(1, Windows.of)),
    Factory("kd-2d", 2, lambda: PartsIndex(2, Kd.of)),
    Factory("kd-deep-1d", 1, lambda: PartsIndex(1, deep_kd)),
    Factory("kd-deep-2d", 2, lambda: PartsIndex(2, deep_kd)),
    Factory("windows-kd-3d", 3, lambda: PartsIndex(3, windows_or_kd)),
    Factory("kd-deep-4d", 4, lambda: PartsIndex(4, deep_kd)),
)
