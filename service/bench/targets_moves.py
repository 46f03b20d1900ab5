"""Targets of the default index: what a move enters and leaves.

``stab-and-diff`` is the same index asked for both ends of the move. What it finds it compares in a compiled
loop, so what it loses by is the looking up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from service.bench.border_peers import SortedBorders, stab_and_diff
from service.bench.experiment import Experiment, Result, Scale
from service.bench.goals import Goal, all_met, combined, in_words
from service.bench.measure import Contender, Deferred, border_batches, race
from service.bench.targets_stab import DEFAULT, OURS
from service.bench.workloads import Moves, fences, jumps, walk
from service.index.kernel import kernel, reads
from service.index.protocol import Borders, BoxIndex

_DIFF = "stab-and-diff"
_FLOOR = "floor (reads)"
_FLAT = 1.5
"""How much more a move may cost at 100 times as many fences around it, to be called independent of them."""


class Timed(NamedTuple):
    """Microseconds a move by (contender, batch size)."""

    load: Moves
    us: Mapping[tuple[str, int], float]
    digest: str


def filled(load: Moves) -> BoxIndex:
    index = DEFAULT(load.lo.shape[1])
    index.insert(load.slots, load.lo, load.hi)
    return index


def timed(load: Moves, sizes: tuple[int, ...], repeats: int, **others: Contender) -> Timed:
    """Races the index, stab-and-diff on it and others, which answer all moves however they like."""
    index = filled(load)
    us: dict[tuple[str, int], float] = {}
    digests = []
    for size in sizes:
        runners: dict[str, Contender] = {
            OURS: border_batches(index.borders, load.before, load.after, size),
            _DIFF: border_batches(stab_and_diff(index), load.before, load.after, size),
        }
        timings = race(runners | others, repeats=repeats)
        us |= {(name, size): timing.best_s * 1e6 / len(load.before) for name, timing in timings.items()}
        digests.append(timings[OURS].digest)
    return Timed(load, us, combined(digests))


def _rows(found: Timed, **columns: float | int | str) -> list[Mapping[str, float | int | str]]:
    return [
        {
            "ratio": us / found.us[OURS, size],
            "contender": name,
            **columns,
            "batch": size,
            "us a move": us,
            "moves a second": round(1e6 / us),
        }
        for (name, size), us in found.us.items()
    ]


def enter_and_leave(scale: Scale, seed: int) -> Result:
    """100,000 fences in two attributes, 10 to 1,000 of them around each stream."""
    quick = scale is Scale.QUICK
    boxes, moves, repeats = (10_000, 200, 1) if quick else (100_000, 1_000, 5)
    founds = {
        k: timed(fences(boxes, moves, seed, inside=k), (1_000, 1), repeats)
        for k in ((10, 100) if quick else (10, 100, 1_000))
    }
    least, most = min(founds), max(founds)
    goals = []
    for size, words in ((1_000, "in batches of 1,000"), (1, "one at a time")):
        growth = founds[most].us[OURS, size] / founds[least].us[OURS, size]
        goals.append(Goal(f"cost at k = {most:,} over k = {least}, {words},", growth, _FLAT, at_most=True))
    gain = founds[most].us[_DIFF, 1_000] / founds[most].us[OURS, 1_000]
    goals.append(Goal(f"times faster than stab-and-diff at k = {most:,},", gain, 100))
    series = {
        f"{name}, batches of {size:,}": [(float(k), found.us[name, size]) for k, found in founds.items()]
        for name in (OURS, _DIFF)
        for size in (1_000, 1)
    }
    return Result(
        x="fences around a stream",
        y="microseconds a move",
        series=series,
        rows=[row for k, found in founds.items() for row in _rows(found, k=k)],
        digest=combined(found.digest for found in founds.values()),
        agrees=all_met(goals),
        verdict=in_words(goals),
        log_x=True,
        log_y=True,
    )


@kernel(
    types.int64(reads(types.float64, 1), reads(types.int32, 1), reads(types.int64, 1), reads(types.int64, 1))
)
def read_jumps(values, slots, first, stop):  # type: ignore[no-untyped-def]
    """Reads the borders ``first[row] .. stop[row]`` of every move and adds up what it saw."""
    seen = np.int64(0)
    for row in range(len(first)):
        for border in range(first[row], stop[row]):
            seen += slots[border]
            if values[border] < 0:
                seen += 1
    return seen


class Floor:
    """The least that a sorted list of borders costs: the places of both ends are known, and what lies between
    them is read, value and slot. Its answer is put together afterwards, not in the timing."""

    def __init__(self, load: Moves) -> None:
        count = len(load.lo)
        ends = np.concatenate([load.lo.ravel(), load.hi.ravel()])
        order = np.argsort(ends, kind="stable")
        self._values = ends[order]
        self._slots = (order % count).astype(np.int32)
        self._lower: NDArray[np.bool_] = order < count
        before, after = (
            np.searchsorted(self._values, side.ravel(), "right") for side in (load.before, load.after)
        )
        self._up: NDArray[np.bool_] = before <= after
        self._first, self._stop = np.minimum(before, after), np.maximum(before, after)

    def __call__(self) -> Deferred:
        read_jumps(self._values, self._slots, self._first, self._stop)
        return Deferred(self._borders)

    def _borders(self) -> Borders:
        counts = self._stop - self._first
        rows = np.repeat(np.arange(len(counts)), counts)
        places = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts) + self._first[rows]
        entered = self._lower[places] == self._up[rows]
        return Borders(rows.astype(np.int32), self._slots[places], entered)


def walks(scale: Scale, seed: int) -> Result:
    """100,000 intervals, steps that pass 11 and 110 borders."""
    quick = scale is Scale.QUICK
    boxes, moves, repeats = (10_000, 200, 1) if quick else (100_000, 1_000, 5)
    goals, rows, digests = [], [], []
    series: dict[str, list[tuple[float, float]]] = {}
    for deltas in (1, 11) if quick else (11, 110):
        load = walk(boxes, moves, seed, deltas=deltas)
        peers: dict[str, Contender] = {
            SortedBorders.name: SortedBorders(load.lo, load.hi).contender(load.before, load.after),
            _FLOOR: Floor(load),
        }
        found = timed(load, (1_000,), repeats, **peers)
        above_ns = (found.us[OURS, 1_000] - found.us[_FLOOR, 1_000]) * 1e3 / deltas
        goals.append(Goal(f"ns a delta above the floor, {deltas} a move,", above_ns, 10, at_most=True))
        rows += _rows(found, deltas=deltas)
        for (name, _), us in found.us.items():
            series.setdefault(name, []).append((float(deltas), us))
        digests.append(found.digest)
    return Result(
        x="borders passed a move",
        y="microseconds a move",
        series=series,
        rows=rows,
        digest=combined(digests),
        agrees=all_met(goals),
        verdict=in_words(goals),
        log_x=True,
        log_y=True,
    )


def far_jumps(scale: Scale, seed: int) -> Result:
    """Where border lists do not help: every move leaves everything."""
    quick = scale is Scale.QUICK
    load = jumps(10_000 if quick else 100_000, 200 if quick else 1_000, seed)
    found = timed(load, (1_000, 1), 1 if quick else 5)
    gains = {size: found.us[_DIFF, size] / found.us[OURS, size] for size in (1_000, 1)}
    verdict = (
        f"Against two look-ups a jump is {gains[1_000]:.2f} times as fast in batches of 1,000 and"
        f" {gains[1]:.2f} times one at a time: it passes {2 * len(load.lo) * 2 / 3:,.0f} borders on average,"
        f" and only {load.deltas:.0f} of them matter."
    )
    return Result(
        x="moves a batch",
        y="microseconds a move",
        series={name: [(float(size), found.us[name, size]) for size in (1, 1_000)] for name in (OURS, _DIFF)},
        rows=_rows(found),
        digest=found.digest,
        agrees=all(0.5 <= gain < 1.25 for gain in gains.values()),
        verdict=verdict,
        log_x=True,
        log_y=True,
    )


EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        "default-fences",
        "targets of the default index",
        "What do tiny moves among 100,000 fences cost, with 10, 100 and 1,000 fences around a stream?",
        "Cost follows the borders that are crossed, not the fences around (at most 1.5 times as much at 100"
        " times as many), and is a hundredth of stab-and-diff's.",
        enter_and_leave,
    ),
    Experiment(
        "default-walk",
        "targets of the default index",
        "What does a step along one attribute cost that passes 11 or 110 borders of 100,000 intervals?",
        "Under 10 ns a border above the floor, which is reading the borders that the step passes.",
        walks,
    ),
    Experiment(
        "loses-far-jumps",
        "where the default index loses",
        "What do moves from anywhere to anywhere cost, among 100,000 boxes in two attributes?",
        "As much as looking up both ends, give or take: a jump passes too many borders to read them.",
        far_jumps,
    ),
)
