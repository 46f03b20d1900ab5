"""Stab time of the indexes, a point: ``python -m tests.bench.bench_index [--smoke]``.

Every peer answers the same points on the same boxes in the same run, in turns; the best of the rounds counts.
The hash is of the answers and must agree within a workload. The peer that gives the ratio its unit is numpy,
comparing a column of all boxes at a time.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.index.brute import BruteForce
from service.index.interval.cei import CEI
from service.index.protocol import Bounds, BoxIndex, Hits, Points

SEED = 20240229


class Workload(NamedTuple):
    """``count`` boxes in ``dims`` attributes, about ``hits`` around a point, in batches of ``batch``."""

    count: int
    dims: int
    hits: int
    batch: int


WORKLOADS = (
    Workload(10_000, 1, 10, 1_000),
    Workload(10_000, 1, 10, 1),
    Workload(10_000, 2, 10, 1_000),
    Workload(10_000, 2, 10, 1),
    Workload(100_000, 1, 20, 1_000),
)
SMOKE = (Workload(300, 1, 5, 20), Workload(300, 2, 5, 20), Workload(300, 2, 5, 1))


class Numpy:
    """The unit: for each point, one comparison of each column with all boxes."""

    def __init__(self, lo: Bounds, hi: Bounds) -> None:
        self.columns = [(lo[:, j].copy(), hi[:, j].copy()) for j in range(lo.shape[1])]

    def _slots(self, point: NDArray[np.float64]) -> NDArray[np.int32]:
        sides = [(lo <= x) & (x < hi) for (lo, hi), x in zip(self.columns, point, strict=True)]
        return np.flatnonzero(np.logical_and.reduce(sides)).astype(np.int32)

    def stab(self, points: Points) -> Hits:
        found = [self._slots(point) for point in points]
        rows = np.repeat(np.arange(len(points), dtype=np.int32), [len(slots) for slots in found])
        return Hits(rows, np.concatenate(found))


def world(load: Workload) -> tuple[Bounds, Bounds, Points]:
    """Boxes of equal mean size, uniform in the unit cube, and uniform points."""
    rng = np.random.default_rng(SEED)
    side = (load.hits / load.count) ** (1 / load.dims)
    width = rng.uniform(0.5, 1.5, (load.count, load.dims)) * side
    lo = rng.uniform(-side / 2, 1 - side / 2, (load.count, load.dims))
    return lo, lo + width, rng.random((max(load.batch, 20), load.dims))


def filled(index: BoxIndex, lo: Bounds, hi: Bounds) -> tuple[BoxIndex, float]:
    """The index with all boxes in, and the seconds that took."""
    start = time.perf_counter()
    index.insert(np.arange(len(lo), dtype=np.int32), lo, hi)
    return index, time.perf_counter() - start


def answers(stab: Callable[[Points], Hits], points: Points, batch: int) -> list[Hits]:
    return [stab(points[first : first + batch]) for first in range(0, len(points), batch)]


def digest(hits: list[Hits]) -> str:
    text = hashlib.sha256()
    for rows, slots in hits:
        text.update(rows.tobytes())
        text.update(slots.tobytes())
    return text.hexdigest()[:12]


def run(load: Workload, rounds: int) -> None:
    lo, hi, points = world(load)
    indexes: dict[str, tuple[BoxIndex, float]] = {"brute": filled(BruteForce(load.dims), lo, hi)}
    if load.dims == 1:
        indexes["cei"] = filled(CEI(), lo, hi)
    peers = {"numpy": Numpy(lo, hi).stab} | {name: index.stab for name, (index, _) in indexes.items()}
    hashes = {name: digest(answers(stab, points, load.batch)) for name, stab in peers.items()}
    best = dict.fromkeys(peers, float("inf"))
    for _ in range(rounds):
        for name, stab in peers.items():
            start = time.perf_counter()
            answers(stab, points, load.batch)
            best[name] = min(best[name], (time.perf_counter() - start) / len(points))
    print(f"\n{load.count:,} boxes, {load.dims}-D, about {load.hits} hits, batches of {load.batch:,}")
    print(f"{'':8}{'ratio':>10}{'us/point':>10}{'ms/fill':>10}{'B/box':>8}  hash")
    for name, seconds in best.items():
        index, fill_s = indexes.get(name, (None, 0.0))
        size = f"{index.nbytes / load.count:.0f}" if index else ""
        fill = f"{fill_s * 1e3:.1f}" if index else ""
        ratio = best["numpy"] / seconds
        print(f"{name:8}{ratio:>9.1f}x{seconds * 1e6:>10.3f}{fill:>10}{size:>8}  {hashes[name]}")
    assert len(set(hashes.values())) == 1, "the peers disagree"


def main() -> None:
    smoke = "--smoke" in sys.argv[1:]
    print(f"seed {SEED}; ratio: how many times faster than numpy")
    for load in SMOKE if smoke else WORKLOADS:
        run(load, 2 if smoke else 9)


if __name__ == "__main__":
    main()
