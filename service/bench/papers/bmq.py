"""The experiments of the BMQ-Index paper: against DiffRMQ over CEI and over the IS-list (Fig. 6 to 9), with
more attributes (Sect. 4.4), and against the reads that a jump cannot do without.

Parameters are those that are printed: N from 10,000 to 100,000, W and FL from 0.01 % to 0.1 % of a domain of
a million; where they are fixed, N = 100,000, W = 0.1 % and FL = 0.01 %.

``BMQ-Index`` is the paper's: delta queries alone. Where ``BMQ-Index, anchored`` is drawn too, that is the
default of the module: long jumps take the members of both places where that costs less.

Not for: workload and measurement (``bmq_streams``), what confirms a finding (``bmq_findings``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NamedTuple

import numpy as np

from service.bench.experiment import Experiment, Result, Scale
from service.bench.goals import Goal, all_met, combined, in_words
from service.bench.measure import Contender, race
from service.bench.papers import bmq_findings
from service.bench.papers.bmq_findings import FIXED_LEVEL, FIXED_QUERIES, FIXED_WIDTH, Judge
from service.bench.papers.bmq_streams import (
    ANCHORED,
    BMQ,
    CEI_UNIT,
    FULL,
    OVER_INTERVALS,
    QUICK,
    RTREE_BASED,
    Cost,
    Setting,
    cost,
    shrunk,
)
from service.bench.papers.figures import series
from service.bench.targets_moves import Floor
from service.bench.workloads import walk
from service.index.border.bmq import BMQIndex


class Drawn(Enum):
    """What a figure shows: the label of its axis."""

    EFFICIENCY = "search efficiency, %"
    TIME = "us a move"
    STORAGE = "MB of index"


class Sweep(NamedTuple):
    """``parameter`` is the paper's name of what varies, ``field`` of a setting."""

    parameter: str
    field: str
    settings: Sequence[Setting]
    contenders: Sequence[str]


_PAPER = (BMQ, *OVER_INTERVALS)
_HUNDREDTHS = [round(0.01 * i, 2) for i in range(1, 11)]
_BY_N = Sweep("N", "queries", [Setting(10_000 * i, FIXED_WIDTH, FIXED_LEVEL) for i in range(1, 11)], _PAPER)
_BY_W = Sweep("W, %", "width", [Setting(FIXED_QUERIES, width, FIXED_LEVEL) for width in _HUNDREDTHS], _PAPER)
_BY_FL = Sweep(
    "FL, %",
    "level",
    [Setting(FIXED_QUERIES, FIXED_WIDTH, level) for level in _HUNDREDTHS],
    (BMQ, ANCHORED, *OVER_INTERVALS),
)
_BY_N_STORED = _BY_N._replace(contenders=(*_PAPER, CEI_UNIT))
_BY_W_STORED = _BY_W._replace(contenders=(*_PAPER, CEI_UNIT))


def _figure(name: str, question: str, finding: str, sweep: Sweep, drawn: Drawn, judge: Judge) -> Experiment:
    def run(scale: Scale, seed: int) -> Result:
        settings = shrunk(sweep.settings, scale)
        size = FULL if scale is Scale.FULL else QUICK
        if drawn is not Drawn.TIME:
            size = size._replace(repeats=1)
        costs = [cost(sweep.contenders, setting, size, seed) for setting in settings]
        x = [float(getattr(setting, sweep.field)) for setting in settings]
        curves = {name: [_height(each, name, drawn) for each in costs] for name in sweep.contenders}
        goals = judge(x, curves)
        return Result(
            x=sweep.parameter,
            y=drawn.value,
            series=series(x, curves),
            rows=[
                _row(sweep, drawn, place, {name: curve[i] for name, curve in curves.items()}, costs[i])
                for i, place in enumerate(x)
            ],
            digest=combined(each.digest for each in costs),
            agrees=all_met(goals),
            verdict=in_words(goals),
            log_y=drawn is not Drawn.EFFICIENCY,
        )

    origin = f"BMQ-Index paper, Fig. {name.removeprefix('bmq-')}"
    return Experiment(name, origin, question, finding, run)


def _height(measured: Cost, name: str, drawn: Drawn) -> float:
    if drawn is Drawn.EFFICIENCY:
        return measured.efficiency[name]
    return measured.move_us[name] if drawn is Drawn.TIME else measured.bytes[name] / 1e6


def _row(
    sweep: Sweep, drawn: Drawn, place: float, heights: Mapping[str, float], measured: Cost
) -> Mapping[str, float | int | str]:
    best = (max if drawn is Drawn.EFFICIENCY else min)(heights[name] for name in OVER_INTERVALS)
    better, worse = (heights[BMQ], best) if drawn is Drawn.EFFICIENCY else (best, heights[BMQ])
    return {
        f"times better: {BMQ}": round(better / worse, 2),
        sweep.parameter: place,
        **{f"{name}, {drawn.value}": round(height, 3) for name, height in heights.items()},
        "borders a move": round(measured.reported, 3),
    }


def _attributes(scale: Scale, seed: int) -> Result:
    """The same distance a move, in one to four attributes."""
    names = (BMQ, ANCHORED, RTREE_BASED)
    size = FULL._replace(moves=5) if scale is Scale.FULL else QUICK
    count = 100_000 if scale is Scale.FULL else 2_000
    settings = [Setting(count, 1.0, 0.01, dims) for dims in (1, 2, 3, 4)]
    costs = [cost(names, setting, size, seed) for setting in settings]
    dims = [setting.dims for setting in settings]
    read = [each.accessed[BMQ] / costs[0].accessed[BMQ] for each in costs]
    excess = max(times / math.sqrt(d) for times, d in zip(read, dims, strict=True))
    goals = [
        Goal(
            "delta queries read over sqrt(d) times those in one attribute, at most,",
            excess,
            1.1,
            at_most=True,
        )
    ]
    return Result(
        x="attributes",
        y=Drawn.TIME.value,
        series={
            name: [(float(d), each.move_us[name]) for d, each in zip(dims, costs, strict=True)]
            for name in names
        },
        rows=[
            {
                f"times faster: {BMQ}": round(each.move_us[RTREE_BASED] / each.move_us[BMQ], 2),
                "attributes": d,
                **{f"{name}, us": round(each.move_us[name], 3) for name in names},
                "delta queries read a move": round(each.accessed[BMQ], 2),
                "of those in one attribute": round(times, 2),
                "borders a move": round(each.reported, 3),
                f"{BMQ}, MB": round(each.bytes[BMQ] / 1e6, 2),
            }
            for d, each, times in zip(dims, costs, read, strict=True)
        ],
        digest=combined(each.digest for each in costs),
        agrees=all_met(goals),
        verdict=in_words(goals),
        log_y=True,
    )


def _above_the_floor(scale: Scale, seed: int) -> Result:
    """Moves of known places, against reading what they jump over."""
    boxes, moves, repeats = (100_000, 1_000, 9) if scale is Scale.FULL else (10_000, 200, 1)
    floor = "floor (reads)"
    goals, rows, digests = [], [], []
    series: dict[str, list[tuple[float, float]]] = {BMQ: [], floor: []}
    for deltas in (2, 11, 110) if scale is Scale.FULL else (2, 11):
        load = walk(boxes, moves, seed, deltas=deltas)
        index = BMQIndex(1)
        index.insert(load.slots, load.lo, load.hi)
        places = index.crossing(load.after, load.before, None).places
        contenders: dict[str, Contender] = {
            BMQ: _crossings(index, load.before, load.after, places),
            floor: Floor(load),
        }
        timings = race(contenders, repeats=repeats)
        ns = {name: 1e9 * timing.best_s / moves for name, timing in timings.items()}
        above = (ns[BMQ] - ns[floor]) / deltas
        if deltas > 2:
            goals.append(Goal(f"ns a delta above the floor, {deltas} a move,", above, 10, at_most=True))
        rows.append(
            {
                "ratio": round(ns[BMQ] / ns[floor], 2),
                "deltas a move": deltas,
                **{f"{name}, ns a move": round(each, 1) for name, each in ns.items()},
                "ns a delta above the floor": round(above, 2),
            }
        )
        for name, each in ns.items():
            series[name].append((float(deltas), each))
        digests.append(timings[BMQ].digest)
    return Result(
        x="deltas a move",
        y="ns a move",
        series=series,
        rows=rows,
        digest=combined(digests),
        agrees=all_met(goals),
        verdict=in_words(goals),
        log_x=True,
        log_y=True,
    )


def _crossings(index: BMQIndex, before: np.ndarray, after: np.ndarray, places: np.ndarray) -> Contender:
    """A contender of its own scope: the index changes from race to race."""
    return lambda: index.crossing(before, after, places).borders


EXPERIMENTS: tuple[Experiment, ...] = (
    _figure(
        "bmq-6a",
        "How much of what is read is reported, by the number of queries?",
        "All of it with BMQ-Index, whatever N is; little of it with DiffRMQ, whose answers overlap.",
        _BY_N,
        Drawn.EFFICIENCY,
        bmq_findings.efficiency_by_count,
    ),
    _figure(
        "bmq-6b",
        "How long does a move take, by the number of queries?",
        "BMQ-Index is far faster than DiffRMQ; it slows down a little as more is reported.",
        _BY_N,
        Drawn.TIME,
        bmq_findings.time_by_count,
    ),
    _figure(
        "bmq-7a",
        "How much of what is read is reported, by the width of queries?",
        "With BMQ-Index nearly all; with DiffRMQ rapidly less as queries get wider.",
        _BY_W,
        Drawn.EFFICIENCY,
        bmq_findings.efficiency_by_width,
    ),
    _figure(
        "bmq-7b",
        "How long does a move take, by the width of queries?",
        "With BMQ-Index always the same; with DiffRMQ much longer as queries get wider.",
        _BY_W,
        Drawn.TIME,
        bmq_findings.time_by_width,
    ),
    _figure(
        "bmq-8a",
        "How much of what is read is reported, by the fluctuation level?",
        "Slowly less with BMQ-Index (by 10 percentage points at most), rapidly more with DiffRMQ; BMQ-Index"
        " leads as long as FL < W.",
        _BY_FL,
        Drawn.EFFICIENCY,
        bmq_findings.efficiency_by_level,
    ),
    _figure(
        "bmq-8b",
        "How long does a move take, by the fluctuation level?",
        "BMQ-Index is much faster than DiffRMQ while FL is smaller than W (twice as fast, up to W / 2), and a"
        " little slower at FL = W.",
        _BY_FL,
        Drawn.TIME,
        bmq_findings.time_by_level,
    ),
    _figure(
        "bmq-9a",
        "How much memory does an index take, by the number of queries?",
        "BMQ-Index the least, CEI the most.",
        _BY_N_STORED,
        Drawn.STORAGE,
        bmq_findings.storage_by_count,
    ),
    _figure(
        "bmq-9b",
        "How much memory does an index take, by the width of queries?",
        "BMQ-Index always the same; CEI grows rapidly, the IS-list less so.",
        _BY_W_STORED,
        Drawn.STORAGE,
        bmq_findings.storage_by_width,
    ),
    Experiment(
        "bmq-attributes",
        "BMQ-Index paper, Sect. 4.4",
        "What do more attributes cost?",
        "At the same distance a move, at most sqrt(d) times the delta queries of one attribute are read.",
        _attributes,
    ),
    Experiment(
        "bmq-floor",
        "the target for moves in one attribute",
        "What does a move cost above reading what it jumps over?",
        "Less than 10 ns a delta.",
        _above_the_floor,
    ),
)
