"""One thread changes an index while others stab it: every answer is that of a state between two calls."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from service.index.protocol import Borders, Bounds, BoxIndex, Hits, Points, Slots
from tests.index.slow import SlowTwin
from tests.index.worlds import SMALL, Factory, same, slots

READERS = 2
DEADLINE_S = 60.0


@dataclass
class Change:
    """One call: an insert when it has bounds, else a removal."""

    slots: Slots
    lo: Bounds | None = None
    hi: Bounds | None = None

    def apply(self, index: BoxIndex) -> None:
        if self.lo is None or self.hi is None:
            index.remove(self.slots)
        else:
            index.insert(self.slots, self.lo, self.hi)


@dataclass
class Progress:
    """How many changes have begun and ended; written by the writer alone."""

    begun: int = 0
    ended: int = 0
    failures: list[str] = field(default_factory=list)


@cache
def _expected(dims: int) -> tuple[Points, Points, list[Change], list[Hits], list[Borders]]:
    """Points, where they move to, the changes, and what is to be said of the points before and after each."""
    changes = _history(dims, 12 if SMALL else 80)
    points = np.random.default_rng(11).integers(0, 12, (3 if SMALL else 20, dims)).astype(np.float64)
    after = points[::-1].copy()
    twin = SlowTwin(dims)
    hits, borders = [twin.stab(points)], [twin.borders(points, after)]
    for change in changes:
        change.apply(twin)
        hits.append(twin.stab(points))
        borders.append(twin.borders(points, after))
    return points, after, changes, hits, borders


def answers_are_of_one_state(factory: Factory) -> None:
    points, after, changes, hits, borders = _expected(factory.dims)
    index, progress = factory.make(), Progress()
    done = threading.Event()

    def possible(got: Hits | Borders, states: list[Hits] | list[Borders], first: int, last: int) -> None:
        if not any(same(got, states[i]) for i in range(first, last + 1)):
            progress.failures.append(f"an answer of no state from {first} to {last}")

    def read() -> None:
        try:
            finished = False
            while not finished:
                finished = done.is_set()
                first = progress.ended
                got = index.stab(points)
                possible(got, hits, first, progress.begun)
                first = progress.ended
                moved = index.borders(points, after)
                possible(moved, borders, first, progress.begun)
        except Exception as error:
            progress.failures.append(repr(error))

    readers = [threading.Thread(target=read, daemon=True) for _ in range(READERS)]
    for reader in readers:
        reader.start()
    try:
        for change in changes:
            if progress.failures:
                break
            progress.begun += 1
            change.apply(index)
            progress.ended += 1
    finally:
        done.set()
        for reader in readers:
            reader.join(DEADLINE_S)
    assert not any(reader.is_alive() for reader in readers)
    assert not progress.failures, progress.failures[0]
    index.check()


def _history(dims: int, length: int) -> list[Change]:
    """Batches in and out, of sizes that make arrays grow, be compacted and be filed anew."""
    rng = np.random.default_rng(10)
    live: list[int] = []
    changes: list[Change] = []
    next_slot = 0
    for _ in range(length):
        if len(live) > 60 and rng.random() < 0.5:
            gone = rng.permutation(live)[: len(live) * 2 // 3].tolist()
            live = [slot for slot in live if slot not in gone]
            changes.append(Change(slots(*gone)))
            continue
        fresh = range(next_slot, next_slot + int(rng.integers(2, 40)))
        next_slot = fresh.stop
        lo = rng.integers(-3, 12, (len(fresh), dims)).astype(np.float64)
        changes.append(Change(slots(*fresh), lo, lo + rng.integers(1, 12, lo.shape)))
        live.extend(fresh)
    return changes
