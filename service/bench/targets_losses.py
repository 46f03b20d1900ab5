"""Where the default index wins little or loses, and why.

* Long answers: every hit is compared, written as a key and dealt out to its row, whatever found it.
* Very wide boxes in many attributes: no attribute excludes much, so nothing is better than comparing.
* Boxes that wait to be filed: they are scanned, up to 1,024 of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from service.bench.experiment import Experiment, Result, Scale
from service.bench.goals import combined
from service.bench.measure import Contender, batches, race
from service.bench.peers import STRTree, contender
from service.bench.targets_stab import DEFAULT, OURS, filled
from service.bench.workloads import A, C, D, Law, Workload, cube, intervals, wide
from service.bench.yardstick import ColumnScan
from service.index.brute import BruteForce


def _curve(
    loads: list[tuple[float, Workload]], rivals: Callable[[Workload], dict[str, Contender]], repeats: int
) -> tuple[dict[str, list[tuple[float, float]]], str]:
    """By contender, microseconds a point over the parameter of each load; and one digest."""
    series: dict[str, list[tuple[float, float]]] = {}
    digests = []
    for parameter, load in loads:
        index = filled(DEFAULT(load.lo.shape[1]), load)
        runners: dict[str, Contender] = {OURS: batches(index.stab, load.points, len(load.points))}
        timings = race(runners | rivals(load), repeats=repeats)
        for name, timing in timings.items():
            series.setdefault(name, []).append((parameter, timing.best_s * 1e6 / len(load.points)))
        digests.append(timings[OURS].digest)
    return series, combined(digests)


def _result(
    series: dict[str, list[tuple[float, float]]], digest: str, *, x: str, rival: str, because: str
) -> Result:
    """Says how the lead over ``rival`` goes from the first load to the last, which is expected to fall, and
    at which loads any contender takes less time."""
    leads = [theirs / ours for (_, theirs), (_, ours) in zip(series[rival], series[OURS], strict=True)]
    first, last = series[OURS][0][0], series[OURS][-1][0]
    rows: list[dict[str, float | int | str]] = [
        {"ratio": us / ours, x: parameter, "contender": name, "us a point": us}
        for name, points in series.items()
        for (parameter, us), (_, ours) in zip(points, series[OURS], strict=True)
    ]
    falls = leads[-1] < leads[0]
    return Result(
        x=x,
        y="microseconds a point",
        series=series,
        rows=sorted(rows, key=lambda row: float(row[x])),
        digest=digest,
        agrees=falls,
        verdict=f"The lead over {rival} goes from {leads[0]:.3g} times at {first:g} to {leads[-1]:.3g} times"
        f" at {last:g}. {_faster(series)}{because if falls else 'It was expected to fall.'}",
        log_x=True,
        log_y=True,
    )


def _faster(series: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """A sentence for each load and contender that takes less time than ours."""
    return "".join(
        f"At {parameter:g} {name} takes {us / ours:.3g} of the time. "
        for name, points in series.items()
        for (parameter, us), (_, ours) in zip(points, series[OURS], strict=True)
        if us < ours
    )


def long_answers(scale: Scale, seed: int) -> Result:
    quick = scale is Scale.QUICK
    boxes, points, repeats = (10_000, 20, 1) if quick else (100_000, 200, 3)
    loads = [
        (float(hits), cube(f"{hits} hits", 2, (hits / boxes) ** 0.5)(boxes, points, seed))
        for hits in ((10, 100, 1_000) if quick else (10, 100, 1_000, 10_000))
    ]

    def rivals(load: Workload) -> dict[str, Contender]:
        brute = filled(BruteForce(2), load)
        return {
            STRTree.name: contender(STRTree(load.lo, load.hi), load.points, points),
            "brute-force index": batches(brute.stab, load.points, points),
        }

    series, digest = _curve(loads, rivals, repeats)
    because = (
        "Each hit is compared, written as a key, and dealt out to its row in a second pass (nothing is"
        " sorted): that is a price a hit, however well boxes are found. Bitmaps, which take the widest of"
        " these boxes, find hits tile by tile, so that keys do not come by row; a tree writes a pair once, as"
        " it meets it."
    )
    return _result(series, digest, x="hits a point", rival="brute-force index", because=because)


def wide_in_many(scale: Scale, seed: int) -> Result:
    quick = scale is Scale.QUICK
    boxes, points, repeats = (2_000, 20, 1) if quick else (100_000, 200, 3)
    loads = [
        (most, wide(f"up to {most:g}", 8, most)(boxes, points, seed)) for most in (0.1, 0.3, 0.55, 0.8, 1.0)
    ]

    def rivals(load: Workload) -> dict[str, Contender]:
        brute = filled(BruteForce(8), load)
        scan = ColumnScan(load.lo, load.hi)
        return {
            ColumnScan.name: batches(scan.stab, load.points, points),
            "brute-force index": batches(brute.stab, load.points, points),
        }

    series, digest = _curve(loads, rivals, repeats)
    because = "No attribute excludes much, so most boxes have to be looked at."
    return _result(series, digest, x="widest side", rival=ColumnScan.name, because=because)


_WAITING = 1_000
"""Boxes that wait: most of the 1,024 that may."""


class Waiting(NamedTuple):
    """Microseconds a point by (whether boxes wait, batch size), of ``boxes`` in all."""

    load: Workload
    boxes: int
    delta: int
    us: Mapping[tuple[bool, int], float]
    digest: str

    def ratio(self, size: int) -> float:
        return self.us[True, size] / self.us[False, size]


def _waited(law: Law, filed: int, points: int, repeats: int, seed: int) -> Waiting:
    """The same boxes twice: all filed, and ``_WAITING`` of them registered one by one behind the others."""
    load = law(filed + _WAITING, points, seed)
    dims = load.lo.shape[1]
    some_wait, slots = DEFAULT(dims), load.slots
    some_wait.insert(slots[:filed], load.lo[:filed], load.hi[:filed])
    for box in range(filed, filed + _WAITING):
        cut = slice(box, box + 1)
        some_wait.insert(slots[cut], load.lo[cut], load.hi[cut])
    all_filed, brute = filled(DEFAULT(dims, delta=0), load), filled(BruteForce(dims), load)
    us: dict[tuple[bool, int], float] = {}
    digests = []
    for size in (1_000, 1):
        asked = load.points if size > 1 else load.points[:100]
        runners = {
            "all filed": batches(all_filed.stab, asked, size),
            "some wait": batches(some_wait.stab, asked, size),
        }
        timings = race(runners, repeats=repeats, oracle=batches(brute.stab, asked, size))
        us[False, size] = timings["all filed"].best_s * 1e6 / len(asked)
        us[True, size] = timings["some wait"].best_s * 1e6 / len(asked)
        digests.append(timings["all filed"].digest)
    (delta,) = (view.boxes for view in some_wait.views() if view.structure == "delta")
    return Waiting(load, len(load.lo), delta, us, combined(digests))


def waiting(scale: Scale, seed: int) -> Result:
    quick = scale is Scale.QUICK
    points, repeats = (100, 1) if quick else (1_000, 5)
    founds = [
        _waited(law, filed, points, repeats, seed)
        for filed in ((0, 2_000) if quick else (0, 100_000))
        for law in (intervals, C, D, A)
    ]
    series: dict[str, list[tuple[float, float]]] = {}
    for found in founds:
        for wait, name in ((False, "all filed"), (True, "some wait")):
            place = float(found.boxes), found.us[wait, 1_000]
            series.setdefault(f"{found.load.name}, {name}", []).append(place)
    worst, alone = (
        max((one for one in founds if (one.boxes == _WAITING) is few), key=lambda one: one.ratio(1_000))
        for few in (False, True)
    )
    return Result(
        x="boxes in all",
        y="microseconds a point, in batches of 1,000",
        series=series,
        rows=[
            {
                "waiting over filed": found.ratio(size),
                "workload": found.load.name,
                "boxes": found.boxes,
                "of these in the delta": found.delta,
                "batch": size,
                "all filed, us a point": found.us[False, size],
                "some wait, us a point": found.us[True, size],
            }
            for found in founds
            for size in (1_000, 1)
        ],
        digest=combined(found.digest for found in founds),
        agrees=worst.ratio(1_000) > 1 and alone.ratio(1_000) > 1,
        verdict=f"In batches of 1,000, {_WAITING:,} boxes registered one by one behind"
        f" {worst.boxes - _WAITING:,} make an event cost up to {worst.ratio(1_000):.3g} times as much"
        f" (workload {worst.load.name}), and {_WAITING:,} that are alone up to {alone.ratio(1_000):.3g} times"
        f" (workload {alone.load.name}). Until they are filed, up to 1,024 boxes are scanned for every event;"
        " beside 8,192 others or more, up to 128 where the grid takes them. A service files them when they"
        " have been scanned for so many events that it was worth it; nobody does that here.",
        log_x=True,
        log_y=True,
    )


_ORIGIN = "where the default index loses"

EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        "loses-long-answers",
        _ORIGIN,
        "What becomes of the lead when a point is in 10 to 10,000 of 100,000 boxes?",
        "It shrinks as answers grow.",
        long_answers,
    ),
    Experiment(
        "loses-wide-boxes",
        _ORIGIN,
        "What becomes of the lead when boxes in eight attributes grow up to the whole domain?",
        "It shrinks as boxes grow.",
        wide_in_many,
    ),
    Experiment(
        "loses-waiting",
        _ORIGIN,
        f"What do {_WAITING:,} boxes cost that were registered one by one and are not filed yet, alone and"
        " behind 100,000?",
        "An event costs more than with all of them filed, since those that wait are scanned.",
        waiting,
    ),
)
