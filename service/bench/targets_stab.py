"""Targets of the default index: which boxes are around a point, per workload.

Every library that takes the workload is asked in batches of 1,000, of 100, and one point at a time. What
takes long a point (loops over all boxes, libraries in plain Python) is asked about fewer points, in one
batch, with the default index beside it; its time a point is set against all three.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from service.bench.experiment import Experiment, Result, Scale
from service.bench.goals import Goal, all_met, combined, in_words
from service.bench.measure import Contender, batches, race
from service.bench.peers import IntervalTree, Numpy, Peer, RTree, contender, peers_for
from service.bench.workloads import A, B, C, D, E, F, G, Law, Workload, intervals
from service.bench.yardstick import ColumnScan, RowScan
from service.index.box.ibs_attributes import IBSAttributes
from service.index.brute import BruteForce
from service.index.default.mixed import DefaultIndex
from service.index.default.part import sparse
from service.index.default.windows import Windows
from service.index.protocol import BoxIndex

DEFAULT = DefaultIndex
"""The index that the targets are about."""

OURS = "default"
IBS = "IBS-trees"
SIZES = (1_000, 100, 1)
_SLOW: tuple[type[Peer], ...] = (IntervalTree, Numpy)
_FEW = 32


class Case(NamedTuple):
    """A workload at its full count. ``points`` are asked in batches, ``singles`` of them one at a time.
    ``ibs``: the IBS-trees of the Spatial Join paper's baseline are asked, too."""

    law: Law
    boxes: int
    points: int = 1_000
    singles: int = 300
    ibs: bool = False


class Measured(NamedTuple):
    """Microseconds a point by (contender, batch size); slow ones have the size 0."""

    load: Workload
    us: Mapping[tuple[str, int], float]
    held: BoxIndex
    digest: str

    def ratio(self, name: str, size: int, *, of_size: int | None = None) -> float:
        """How many times longer ``name`` takes than the default index in batches of ``size``."""
        return self.us[name, size if of_size is None else of_size] / self.us[OURS, size]

    @property
    def brute_us(self) -> float:
        """The yardstick: the better of its two layouts."""
        return min(self.us[ColumnScan.name, 0], self.us[RowScan.name, 0])

    def brute_ratio(self, size: int) -> float:
        return self.brute_us / self.us[OURS, size]

    def ibs_ratio(self, size: int) -> float:
        return self.us[IBS, 0] / self.us[OURS, size]

    @property
    def bytes_a_query(self) -> float:
        return self.held.nbytes / max(len(self.held), 1)


def filled(index: BoxIndex, load: Workload) -> BoxIndex:
    index.insert(load.slots, load.lo, load.hi)
    return index


def measured(case: Case, scale: Scale, seed: int) -> Measured:
    """Times all contenders on a case; QUICK takes a hundredth of the boxes and a tenth of the points."""
    quick = scale is Scale.QUICK
    boxes, points, repeats = case.boxes, case.points, 5
    if quick:
        boxes, points, repeats = boxes // 100, points // 10, 1
    load = case.law(boxes, points, seed)
    index = filled(DEFAULT(load.lo.shape[1]), load)
    kinds = list(peers_for(load.lo, load.hi))
    fast = [kind(load.lo, load.hi) for kind in kinds if kind not in _SLOW]
    us: dict[tuple[str, int], float] = {}
    digests = []
    for size in SIZES:
        asked = load.points[: case.singles // (10 if quick else 1)] if size == 1 else load.points
        runners: dict[str, Contender] = {OURS: batches(index.stab, asked, size)}
        runners |= {peer.name: contender(peer, asked, size) for peer in fast}
        timings = race(runners, repeats=repeats)
        us |= {(name, size): timing.best_s * 1e6 / len(asked) for name, timing in timings.items()}
        digests.append(timings[OURS].digest)
    few = load.points[:_FEW]
    slow = _slow_runners(load, [kind for kind in kinds if kind in _SLOW])
    if case.ibs:
        slow[IBS] = batches(filled(IBSAttributes(load.lo.shape[1]), load).stab, few, _FEW)
    slow[OURS] = batches(index.stab, few, _FEW)
    timings = race(slow, repeats=min(repeats, 3))
    us |= {(name, 0): timing.best_s * 1e6 / len(few) for name, timing in timings.items() if name != OURS}
    return Measured(load, us, index, combined([*digests, timings[OURS].digest]))


def _slow_runners(load: Workload, kinds: Sequence[type[Peer]]) -> dict[str, Contender]:
    few = load.points[:_FEW]
    scans = [scan(load.lo, load.hi) for scan in (ColumnScan, RowScan)]
    runners: dict[str, Contender] = {scan.name: batches(scan.stab, few, _FEW) for scan in scans}
    runners["brute-force index"] = batches(filled(BruteForce(load.lo.shape[1]), load).stab, few, _FEW)
    return runners | {kind.name: contender(kind(load.lo, load.hi), few, _FEW) for kind in kinds}


def rows(found: Measured) -> list[Mapping[str, float | int | str]]:
    """A row a contender and batch size: how many times longer it takes than the default index."""
    made = [
        _row(found, name, us, ours)
        for (name, size), us in found.us.items()
        for ours in ((size,) if size else SIZES)
    ]
    return sorted(made, key=lambda row: (-int(row["batch"]), float(row["ratio"])))


def _row(found: Measured, name: str, us: float, ours: int) -> Mapping[str, float | int | str]:
    return {
        "ratio": us / found.us[OURS, ours],
        "contender": name,
        "workload": found.load.name,
        "boxes": len(found.load.lo),
        "batch": ours,
        "us a point": us,
        "hits": found.load.hits,
        "bytes a query": f"{found.bytes_a_query:,.0f}" if name == OURS else "",
    }


def result(founds: Sequence[Measured], goals: Sequence[Goal], besides: str = "") -> Result:
    """``besides``: what the verdict says beyond the goals."""
    series: dict[str, list[tuple[float, float]]] = {}
    for found in founds:
        prefix = f"{found.load.name} " if len(founds) > 1 else ""
        for (name, size), us in found.us.items():
            places = (size,) if size else SIZES
            series.setdefault(prefix + name, []).extend((float(place), us) for place in places)
    return Result(
        x="points a batch",
        y="microseconds a point",
        series=series,
        rows=[row for found in founds for row in rows(found)],
        digest=combined(found.digest for found in founds),
        agrees=all_met(goals),
        verdict=in_words(goals) + besides,
        log_x=True,
        log_y=True,
    )


def one_attribute(scale: Scale, seed: int) -> Result:
    found = measured(Case(intervals, 640_000), scale, seed)
    better = min(("superintervals", "ncls"), key=lambda name: found.us[name, 1_000])
    boxes = sparse(found.load.slots, found.load.lo, found.load.hi)
    entries = Windows.of(boxes, 1).entries / len(boxes)
    goals = [
        Goal(f"times faster than {better}, in batches of 1,000,", found.ratio(better, 1_000), 10),
        Goal("entries a query in its window list", entries, 3, at_most=True),
    ]
    return result([found], goals, one_value_at_a_time(found.us))


def one_value_at_a_time(us: Mapping[tuple[str, int], float]) -> str:
    """By which libraries the default index is beaten where each value is a call, and why; from us a point by
    (contender, batch size)."""
    ours = us[OURS, 1]
    faster = [
        f"{name} takes {theirs / ours:.3g} of the time"
        for (name, size), theirs in us.items()
        if size == 1 and theirs < ours
    ]
    if not faster:
        return ""
    return (
        f" One value at a time it loses: {', '.join(faster)}. A call from Python, arrays in and out, costs"
        f" more than what it finds: {ours:.3g} us a value, of which {us[OURS, 1_000]:.3g} in a batch of"
        " 1,000."
    )


def two_attributes(scale: Scale, seed: int) -> Result:
    founds = [measured(Case(G, 100_000), scale, seed), measured(Case(E, 1_000_000), scale, seed)]
    goals = []
    for found in founds:
        name = found.load.name
        bulk = found.us["shapely", 1_000] / found.us[OURS, 1]
        goals += [
            Goal(f"{name}: times faster than shapely in batches,", found.ratio("shapely", 1_000), 5),
            Goal(f"{name}: than rtree,", found.ratio(RTree.name, 1_000), 20),
            Goal(f"{name}: one at a time, than shapely in bulk,", bulk, 1),
        ]
    return result(founds, goals)


def wide_boxes(scale: Scale, seed: int) -> Result:
    four = measured(Case(C, 100_000, ibs=True), scale, seed)
    eight = measured(Case(D, 100_000, ibs=True), scale, seed)
    goals = [
        Goal("C: times faster than brute in batches of 1,000,", four.brute_ratio(1_000), 60),
        Goal("C: one at a time,", four.brute_ratio(1), 22),
        Goal("C: than IBS-trees, in batches of 1,000,", four.ibs_ratio(1_000), 100),
        Goal("D: in batches of 1,000,", eight.brute_ratio(1_000), 33),
        Goal("D: one at a time,", eight.brute_ratio(1), 14),
        Goal("D: than IBS-trees, in batches of 1,000,", eight.ibs_ratio(1_000), 100),
    ]
    return result([four, eight], goals)


class Wanted(NamedTuple):
    """Times faster than brute, and bytes a query."""

    in_batches: float
    one_at_a_time: float
    bytes_a_query: float


def many_attributes(law: Law, wanted: Wanted, scale: Scale, seed: int) -> Result:
    """A million boxes that leave most attributes free."""
    found = measured(Case(law, 1_000_000), scale, seed)
    goals = [
        Goal("times faster than brute in batches of 1,000,", found.brute_ratio(1_000), wanted.in_batches),
        Goal("one at a time,", found.brute_ratio(1), wanted.one_at_a_time),
        Goal("bytes a query", found.bytes_a_query, wanted.bytes_a_query, at_most=True),
    ]
    return result([found], goals)


_ORIGIN = "targets of the default index"
_BRUTE = "brute is the better of two compiled loops over all boxes (yardstick.py)"

EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        "default-1d",
        _ORIGIN,
        "Which of 640,000 intervals are around a value?",
        "10 times faster than the better of superintervals and ncls, with at most 3 entries stored a query.",
        one_attribute,
    ),
    Experiment(
        "default-2d",
        _ORIGIN,
        "Which of 100,000 and of a million boxes in two attributes are around a point?",
        "5 times faster than shapely and 20 times than rtree in batches; one at a time no slower than"
        " shapely's bulk call.",
        two_attributes,
    ),
    Experiment(
        "default-wide",
        _ORIGIN,
        "Which of 100,000 wide boxes in four and eight attributes are around a point?",
        "60 and 33 times faster than brute in batches of 1,000, 22 and 14 times one at a time, and 100 times"
        f" faster than IBS-trees; {_BRUTE}.",
        wide_boxes,
    ),
    Experiment(
        "default-10-of-20",
        _ORIGIN,
        "A million boxes that constrain 10 of 20 attributes (workload A)",
        f"350 times faster than brute in batches of 1,000, 100 times one at a time, in 200 bytes a query;"
        f" {_BRUTE}.",
        partial(many_attributes, A, Wanted(350, 100, 200)),
    ),
    Experiment(
        "default-5-of-20",
        _ORIGIN,
        "A million boxes that constrain 5 of 20 attributes (workload B)",
        f"600 and 160 times faster than brute, in 150 bytes a query; {_BRUTE}.",
        partial(many_attributes, B, Wanted(600, 160, 150)),
    ),
    Experiment(
        "default-3-of-50",
        _ORIGIN,
        "A million boxes that constrain 3 of 50 attributes, some far more often than others (workload F)",
        f"250 and 80 times faster than brute, in 120 bytes a query; {_BRUTE}.",
        partial(many_attributes, F, Wanted(250, 80, 120)),
    ),
)
