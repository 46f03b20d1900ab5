"""The slow twin of every index: what the protocol means, in plain Python, for reading and as the oracle."""

from __future__ import annotations

import math

import numpy as np

from service.index.protocol import Borders, Bounds, Hits, Points, Slots

Box = tuple[list[float], list[float]]


def holds(box: Box, point: list[float]) -> bool:
    """Whether a point is in a box: every coordinate is at or above the lower end and below the upper end."""
    lo, hi = box
    return all(low <= x < high for low, x, high in zip(lo, point, hi, strict=True))


class SlowTwin:
    """A dict from slot to boxes; every change makes a new dict, so that a stab sees one or the other."""

    def __init__(self, dims: int) -> None:
        self.dims = dims
        self.boxes: dict[int, list[Box]] = {}

    def __len__(self) -> int:
        return len(self.boxes)

    @property
    def nbytes(self) -> int:
        return sum(16 * self.dims * len(boxes) for boxes in self.boxes.values())

    def insert(self, slots: Slots, lo: Bounds, hi: Bounds) -> None:
        wanted = (len(slots), self.dims)
        if slots.ndim != 1 or lo.shape != wanted or hi.shape != wanted:
            raise ValueError("shape")
        fresh: dict[int, list[Box]] = {}
        for slot, low, high in zip(slots.tolist(), lo.tolist(), hi.tolist(), strict=True):
            if slot < 0 or slot in self.boxes:
                raise ValueError(slot)
            if not all(a < b for a, b in zip(low, high, strict=True)):
                raise ValueError((low, high))
            fresh.setdefault(slot, []).append((low, high))
        self.boxes = {**self.boxes, **fresh}

    def remove(self, slots: Slots) -> None:
        for slot in slots.tolist():
            if slot not in self.boxes:
                raise KeyError(slot)
        gone = set(slots.tolist())
        self.boxes = {slot: boxes for slot, boxes in self.boxes.items() if slot not in gone}

    def found(self, points: Points) -> list[tuple[int, int]]:
        """The (row, slot) pairs of an answer, sorted."""
        if points.ndim != 2 or points.shape[1] != self.dims:
            raise ValueError("shape")
        boxes = self.boxes
        return sorted(
            (row, slot)
            for row, point in enumerate(points.tolist())
            if not any(math.isnan(x) for x in point)
            for slot, owned in boxes.items()
            if any(holds(box, point) for box in owned)
        )

    def stab(self, points: Points) -> Hits:
        pairs = self.found(points)
        return Hits(np.array([r for r, _ in pairs], np.int32), np.array([s for _, s in pairs], np.int32))

    def borders(self, before: Points, after: Points) -> Borders:
        if before.shape != after.shape:
            raise ValueError("shape")
        pairs = self.found(np.concatenate([before, after]))
        was = {(row, slot) for row, slot in pairs if row < len(before)}
        now = {(row - len(before), slot) for row, slot in pairs if row >= len(before)}
        moved = sorted(was ^ now)
        return Borders(
            np.array([row for row, _ in moved], np.int32),
            np.array([slot for _, slot in moved], np.int32),
            np.array([pair in now for pair in moved], np.bool_),
        )

    def check(self) -> None:
        assert all(boxes for boxes in self.boxes.values())
