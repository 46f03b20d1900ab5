"""Where the default index wins little or loses, and why.

* Long answers: writing an answer and putting it in order costs the same whatever found it.
* Very wide boxes in many attributes: no attribute excludes much, so nothing is better than comparing.
"""

from __future__ import annotations

from collections.abc import Callable

from service.bench.experiment import Experiment, Result, Scale
from service.bench.goals import combined
from service.bench.measure import Contender, batches, race
from service.bench.peers import STRTree, contender
from service.bench.targets_stab import DEFAULT, OURS, filled
from service.bench.workloads import Workload, cube, wide
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
    """Says how the lead over ``rival`` goes from the first load to the last; it is expected to fall."""
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
        f" at {last:g}. {because if falls else 'It was expected to fall.'}",
        log_x=True,
        log_y=True,
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
    because = "Answers are written and sorted whoever finds them, and finding is no longer what costs."
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
)
