"""Targets of the default index: registration, and memory.

Registration one at a time is measured as the service does it: one thread matches batches and, between them,
inserts; merging runs aside, on a thread of its own, and is swapped in when it is done.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.bench.experiment import Experiment, Result, Scale
from service.bench.goals import Goal, all_met, combined, in_words
from service.bench.measure import Disagreement, agreed
from service.bench.memory import Stab, grown
from service.bench.peers import RTree, STRTree
from service.bench.targets_stab import DEFAULT, OURS, filled
from service.bench.workloads import A, B, E, F, Law, Workload
from service.index.brute import BruteForce
from service.index.default.mixed import DefaultIndex, Rebuild
from service.index.protocol import BoxIndex

_BATCH = 100
"""Points that are matched between registrations."""


class Bulk(NamedTuple):
    """Boxes inserted in one call."""

    workload: str
    boxes: int
    seconds: float
    bytes_a_query: float
    digest: str


def bulk(law: Law, boxes: int, seed: int) -> Bulk:
    load = law(boxes, 100, seed)
    index = DEFAULT(load.lo.shape[1])
    start = time.perf_counter()
    index.insert(load.slots, load.lo, load.hi)
    seconds = time.perf_counter() - start
    return Bulk(load.name, boxes, seconds, index.nbytes / boxes, checked(index, load))


def checked(index: BoxIndex, load: Workload) -> str:
    """The digest of what an index that holds all boxes says of ``_BATCH`` points; Disagreement unless brute
    force says the same."""
    some = load.points[:_BATCH]
    brute = filled(BruteForce(load.lo.shape[1]), load)
    return agreed({"brute force": brute.stab(some), OURS: index.stab(some)})


def in_bulk(scale: Scale, seed: int) -> Result:
    boxes = 10_000 if scale is Scale.QUICK else 1_000_000
    founds = [bulk(law, boxes, seed) for law in (E, A, B, F)]
    goals = [Goal(f"{found.workload}: seconds", found.seconds, 5, at_most=True) for found in founds]
    return Result(
        x="",
        y="",
        series={},
        rows=[
            {
                "boxes a second": round(found.boxes / found.seconds),
                "workload": found.workload,
                "boxes": found.boxes,
                "seconds": found.seconds,
                "bytes a query": round(found.bytes_a_query),
            }
            for found in founds
        ],
        digest=combined(found.digest for found in founds),
        agrees=all_met(goals),
        verdict=in_words(goals),
    )


class Merger:
    """Merges levels of an index on another thread, one merge at a time. Writer only."""

    def __init__(self, index: DefaultIndex, thread: ThreadPoolExecutor) -> None:
        self._index = index
        self._thread = thread
        self._running: tuple[Rebuild, Future[None]] | None = None
        self.merges = 0

    def step(self) -> None:
        """Swaps in what is ready and begins what is due; never waits."""
        if self._running is not None:
            rebuild, done = self._running
            if not done.done():
                return
            done.result()
            self._index.adopt(rebuild)
            self.merges += 1
            self._running = None
        due = self._index.rebuild()
        if due is not None:
            self._running = due, self._thread.submit(due.run)


class Latencies(NamedTuple):
    """Seconds of every stab, and of all inserts together."""

    stabs: NDArray[np.float64]
    inserts_s: float
    inserts: int

    def percentile_us(self, p: float) -> float:
        return float(np.percentile(self.stabs, p) * 1e6)


def _stab_latencies(
    index: DefaultIndex, load: Workload, rounds: int, between: Callable[[], int]
) -> Latencies:
    """Stabs ``rounds`` batches and does ``between`` after each, which returns how many boxes it inserted."""
    stabs, inserts_s, inserts = np.empty(rounds), 0.0, 0
    batches = [load.points[first : first + _BATCH] for first in range(0, len(load.points), _BATCH)]
    for i in range(rounds):
        start = time.perf_counter()
        index.stab(batches[i % len(batches)])
        stabbed = time.perf_counter()
        inserts += between()
        stabs[i] = stabbed - start
        inserts_s += time.perf_counter() - stabbed
    return Latencies(stabs, inserts_s, inserts)


def one_at_a_time(scale: Scale, seed: int) -> Result:
    """A million boxes, and a fifth more while a batch is matched every 100 of them."""
    quick = scale is Scale.QUICK
    boxes, rounds, each = (10_000, 40, 50) if quick else (1_000_000, 2_000, 100)
    load = E(boxes + rounds * each, 10_000, seed)
    slots = load.slots  # made once: it is as long as all boxes
    index = DefaultIndex(2, aside=True)
    index.insert(slots[:boxes], load.lo[:boxes], load.hi[:boxes])
    _stab_latencies(index, load, min(rounds, 100), lambda: 0)
    before = _stab_latencies(index, load, rounds, lambda: 0)
    at = boxes
    with ThreadPoolExecutor(1) as thread:
        merger = Merger(index, thread)

        def between() -> int:
            nonlocal at
            for box in range(at, at + each):
                cut = slice(box, box + 1)
                index.insert(slots[cut], load.lo[cut], load.hi[cut])
            at += each
            merger.step()
            return each

        during = _stab_latencies(index, load, rounds, between)
    return _registration_result(before, during, merger.merges, checked(index, load))


def _registration_result(before: Latencies, during: Latencies, merges: int, digest: str) -> Result:
    growth = during.percentile_us(99) / before.percentile_us(99)
    goals = [
        Goal("registrations a second", during.inserts / during.inserts_s, 50_000),
        Goal("p99 of a stab during over before", growth, 2, at_most=True),
    ]
    both = {"before registrations": before, "during registrations": during}
    return Result(
        x="percentile",
        y=f"microseconds a stab of {_BATCH} points",
        series={
            name: [(float(p), one.percentile_us(p)) for p in (50, 90, 95, 99, 99.9)]
            for name, one in both.items()
        },
        rows=[
            {
                "p99 over before": one.percentile_us(99) / before.percentile_us(99),
                "matching": name,
                "p50 us": one.percentile_us(50),
                "p99 us": one.percentile_us(99),
                "most us": one.percentile_us(100),
                "registrations": one.inserts,
                "a second": round(one.inserts / one.inserts_s) if one.inserts else 0,
                "merges": merges if one.inserts else 0,
            }
            for name, one in both.items()
        ],
        digest=digest,
        agrees=all_met(goals),
        verdict=in_words(goals),
        log_y=True,
    )


def _squares(boxes: int, points: int, seed: int) -> Workload:
    """Workload E by a function that another process can import."""
    return E(boxes, points, seed)


def _built_default(load: Workload) -> Stab:
    index = DEFAULT(load.lo.shape[1])
    index.insert(load.slots, load.lo, load.hi)
    return index.stab


def _built_to_move(load: Workload) -> Stab:
    """With what it makes at the first question about a move."""
    index = DEFAULT(load.lo.shape[1])
    index.insert(load.slots, load.lo, load.hi)
    index.borders(load.points[:1], load.points[:1])
    return index.stab


def _built_shapely(load: Workload) -> Stab:
    return STRTree(load.lo, load.hi).stab


def _built_rtree(load: Workload) -> Stab:
    return RTree(load.lo, load.hi).stab


def memory(scale: Scale, seed: int) -> Result:
    """A million boxes in two attributes; each structure in a process of its own."""
    boxes = 10_000 if scale is Scale.QUICK else 1_000_000
    load = partial(_squares, boxes, 100, seed)
    kinds = {
        OURS: _built_default,
        f"{OURS}, with moves": _built_to_move,
        STRTree.name: _built_shapely,
        RTree.name: _built_rtree,
    }
    found = grown(kinds, load)
    if len({one.digest for one in found.values()}) != 1:
        raise Disagreement(f"not one digest: { {name: one.digest[:12] for name, one in found.items()} }")
    size = {name: one.bytes_held / boxes for name, one in found.items()}
    goals = [Goal(f"{name}: bytes a query", size[name], 200, at_most=True) for name in list(kinds)[:2]]
    return Result(
        x="",
        y="",
        series={},
        rows=[
            {"ratio": value / size[OURS], "structure": name, "bytes a query": round(value)}
            for name, value in size.items()
        ],
        digest=found[OURS].digest,
        agrees=all_met(goals),
        verdict=in_words(goals),
    )


_ORIGIN = "targets of the default index"

EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        "default-bulk",
        _ORIGIN,
        "How long does it take to register a million boxes in one call?",
        "At most 5 seconds.",
        in_bulk,
    ),
    Experiment(
        "default-registration",
        _ORIGIN,
        "How fast are boxes registered one at a time, beside a million, while matching goes on?",
        "50,000 a second, while the 99th percentile of matching at most doubles.",
        one_at_a_time,
    ),
    Experiment(
        "default-memory",
        _ORIGIN,
        "How much memory does a box in two attributes take, among a million of them?",
        "At most 200 bytes, all included.",
        memory,
    ),
)
