"""Deliberately wrong indexes, each by a fault that a real one could have. The suite must reject them all."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from service.index.protocol import Borders, Bounds, Hits, Points, Slots
from tests.index.slow import SlowTwin, holds


class ClosedUpperEnd(SlowTwin):
    def found(self, points: Points) -> list[tuple[int, int]]:
        return sorted(
            (row, slot)
            for row, point in enumerate(points.tolist())
            for slot, owned in self.boxes.items()
            if any(
                all(lo <= x <= hi for lo, x, hi in zip(low, point, high, strict=True)) for low, high in owned
            )
        )


class OpenLowerEnd(SlowTwin):
    """``(lo, hi]``: the other way round."""

    def stab(self, points: Points) -> Hits:
        return super().stab(np.nextafter(points, -np.inf))


class ForgetsRemovals(SlowTwin):
    """Answers as if nothing had ever been removed, until the slot is registered again."""

    def __init__(self, dims: int) -> None:
        super().__init__(dims)
        self.ever: dict[int, list[tuple[list[float], list[float]]]] = {}

    def found(self, points: Points) -> list[tuple[int, int]]:
        self.ever |= self.boxes
        twin = SlowTwin(self.dims)
        twin.boxes = self.ever
        return twin.found(points)


class ReportsDuplicates(SlowTwin):
    """Names a slot once for every box around the point."""

    def stab(self, points: Points) -> Hits:
        hits = super().stab(points)
        times = [
            sum(holds(box, points[row].tolist()) for box in self.boxes[slot])
            for row, slot in zip(hits.rows.tolist(), hits.slots.tolist(), strict=True)
        ]
        return Hits(np.repeat(hits.rows, times), np.repeat(hits.slots, times))


class Unsorted(SlowTwin):
    def stab(self, points: Points) -> Hits:
        hits = super().stab(points)
        return Hits(hits.rows[::-1].copy(), hits.slots[::-1].copy())


class WideIntegers(SlowTwin):
    def stab(self, points: Points) -> Hits:
        hits = super().stab(points)
        return Hits(hits.rows.astype(np.int64), hits.slots.astype(np.int64))


class NanIsSomewhere(SlowTwin):
    def stab(self, points: Points) -> Hits:
        return super().stab(np.where(np.isnan(points), -np.inf, points))


class MissingIsLowest(SlowTwin):
    def stab(self, points: Points) -> Hits:
        return super().stab(np.maximum(points, np.finfo(np.float64).min))


class SinglePrecision(SlowTwin):
    def stab(self, points: Points) -> Hits:
        with np.errstate(over="ignore"):
            return super().stab(points.astype(np.float32).astype(np.float64))


class FirstBoxOnly(SlowTwin):
    def insert(self, slots: Slots, lo: Bounds, hi: Bounds) -> None:
        super().insert(slots, lo, hi)
        self.boxes = {slot: boxes[:1] for slot, boxes in self.boxes.items()}


class BordersOfBoxes(SlowTwin):
    """Takes the move from one box of a slot to another for a leave and an enter."""

    def borders(self, before: Points, after: Points) -> Borders:
        moved = sorted(
            {
                (row, slot, holds(box, now))
                for row, (was, now) in enumerate(zip(before.tolist(), after.tolist(), strict=True))
                for slot, owned in self.boxes.items()
                for box in owned
                if holds(box, was) != holds(box, now)
            }
        )
        rows, slots, entered = (np.array([move[i] for move in moved]) for i in range(3))
        return Borders(rows.astype(np.int32), slots.astype(np.int32), entered.astype(np.bool_))


class KeepsHalfOfARefusedCall(SlowTwin):
    def insert(self, slots: Slots, lo: Bounds, hi: Bounds) -> None:
        for i in range(max(len(slots), 1)):
            part = slice(i, i + 1)
            if i and slots[i] == slots[i - 1]:
                super().insert(slots, lo, hi)
                return
            super().insert(slots[part], lo[part], hi[part])


class RemovesBeforeItRefuses(SlowTwin):
    def remove(self, slots: Slots) -> None:
        for slot in slots:
            super().remove(np.array([slot], np.int32))


class KeepsTheCallersArrays(SlowTwin):
    def insert(self, slots: Slots, lo: Bounds, hi: Bounds) -> None:
        super().insert(slots, lo, hi)
        kept: dict[int, Any] = dict(self.boxes)
        for slot in set(slots.tolist()):
            kept[slot] = [(lo[i], hi[i]) for i in np.flatnonzero(slots == slot)]
        self.boxes = kept


class TornInsert(SlowTwin):
    """Publishes half of an insert, and gives a reader the time to see it."""

    def __init__(self, dims: int) -> None:
        super().__init__(dims)
        self.alone = threading.active_count()
        self.stabbed = threading.Event()

    def insert(self, slots: Slots, lo: Bounds, hi: Bounds) -> None:
        before = self.boxes
        super().insert(slots, lo, hi)
        if threading.active_count() > self.alone:
            whole = self.boxes
            half = sorted(set(whole) - set(before))[::2]
            self.boxes = before | {slot: whole[slot] for slot in half}
            for _ in range(2):  # the first stab may have begun before
                self.stabbed.clear()
                self.stabbed.wait(1.0)
            self.boxes = whole

    def stab(self, points: Points) -> Hits:
        hits = super().stab(points)
        self.stabbed.set()
        return hits


class TornBorders(SlowTwin):
    """Stabs before and after one by one, and gives a writer the time to change something between."""

    def __init__(self, dims: int) -> None:
        super().__init__(dims)
        self.alone = threading.active_count()
        self.changed = threading.Event()

    def insert(self, slots: Slots, lo: Bounds, hi: Bounds) -> None:
        super().insert(slots, lo, hi)
        self.changed.set()

    def borders(self, before: Points, after: Points) -> Borders:
        if before.shape != after.shape:
            raise ValueError("shape")
        was = SlowTwin(self.dims)
        was.boxes = self.boxes
        if threading.current_thread() is not threading.main_thread():
            self.changed.clear()
            self.changed.wait(1.0)
        now = SlowTwin(self.dims)
        now.boxes = self.boxes
        gone, come = set(was.found(before)), set(now.found(after))
        moved = sorted(gone ^ come)
        return Borders(
            np.array([row for row, _ in moved], np.int32),
            np.array([slot for _, slot in moved], np.int32),
            np.array([pair in come for pair in moved], np.bool_),
        )


CANARIES = (
    ClosedUpperEnd,
    OpenLowerEnd,
    ForgetsRemovals,
    ReportsDuplicates,
    Unsorted,
    WideIntegers,
    NanIsSomewhere,
    MissingIsLowest,
    SinglePrecision,
    FirstBoxOnly,
    BordersOfBoxes,
    KeepsHalfOfARefusedCall,
    RemovesBeforeItRefuses,
    KeepsTheCallersArrays,
    TornInsert,
    TornBorders,
)
