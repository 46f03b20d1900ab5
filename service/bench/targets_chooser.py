"""The chooser's predictions against measurement: ``rangewatch bench chooser``.

Every structure that can hold a workload holds all of it, alone, and finds the same keys in one batch of
1,000 points. What the model predicts for it is set beside what it took. Constants of the model may be of
another machine, so what counts is whether the structure that is predicted to be the cheapest is, or costs
little more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from service.bench.experiment import Experiment, Result, Scale
from service.bench.goals import Goal, all_met, combined
from service.bench.measure import Contender, Deferred, race
from service.bench.workloads import A, B, C, D, E, F, G, Law, Workload, intervals
from service.index.answers import Keys
from service.index.default.chooser import STRUCTURES, Structure, chosen, shape_of
from service.index.default.part import Part, Sparse, sparse
from service.index.protocol import Hits, Points

_POINTS = 1_000
_REGRET = 1.5
"""How much more the chosen structure may take than the best one."""

CASES: tuple[tuple[Law, int], ...] = (
    *((intervals, boxes) for boxes in (30, 100, 300, 10_000, 640_000)),
    *((G, boxes) for boxes in (30, 100, 300, 5_000, 100_000)),
    (E, 1_000_000),
    *((C, boxes) for boxes in (30, 100, 300, 5_000, 100_000)),
    *((D, boxes) for boxes in (30, 100, 300, 5_000, 100_000)),
    *((A, boxes) for boxes in (30, 100, 100_000)),
    *((B, boxes) for boxes in (30, 100, 100_000)),
    *((F, boxes) for boxes in (30, 100, 100_000)),
)


class Compared(NamedTuple):
    """By structure, ns an event: predicted and measured. ``chosen`` is what the index would take, which gives
    few boxes no part of their own."""

    load: Workload
    chosen: str
    predicted: Mapping[str, float]
    measured: Mapping[str, float]
    digest: str

    @property
    def regret(self) -> float:
        """How many times as long the chosen structure takes as the best."""
        return self.measured[self.chosen] / min(self.measured.values())


def _able(boxes: Sparse) -> Mapping[str, Structure]:
    """The structures that can hold all of the boxes."""
    counts = np.diff(boxes.starts)
    alike = (counts == counts[0]).all() and (
        boxes.attributes.reshape(len(boxes), -1) == boxes.attributes[: counts[0]]
    ).all()
    return {
        name: one for name, one in STRUCTURES.items() if (one.fits(int(counts[0])) if alike else one.mixed)
    }


def _contender(part: Part, points: Points) -> Contender:
    """Finds keys into room that is there; they are put in order afterwards."""
    room: Keys = np.empty(part.stab(points, 0, np.empty(0, np.int64)), np.int64)

    def call() -> Deferred:
        part.stab(points, 0, room)
        return Deferred(hits)

    def hits() -> Hits:
        return Hits((room >> 32).astype(np.int32), (room & 0x7FFFFFFF).astype(np.int32))

    return call


def compared(law: Law, boxes: int, seed: int, repeats: int) -> Compared:
    load = law(boxes, _POINTS, seed)
    dims = load.lo.shape[1]
    filed = sparse(load.slots, load.lo, load.hi)
    shape = shape_of(filed, dims)
    able = _able(filed)
    parts = {name: structure.make(filed, dims) for name, structure in able.items()}
    timings = race({name: _contender(part, load.points) for name, part in parts.items()}, repeats=repeats)
    (choice,) = {choice.structure for choice in chosen(filed, dims)}
    return Compared(
        load,
        choice,
        {name: structure.ns(shape) for name, structure in able.items()},
        {name: timing.best_s * 1e9 / _POINTS for name, timing in timings.items()},
        next(iter(timings.values())).digest,
    )


def chooser(scale: Scale, seed: int) -> Result:
    quick = scale is Scale.QUICK
    cases = [(law, boxes) for law, boxes in CASES if not quick or boxes <= 10_000]
    founds = [compared(law, boxes, seed, 1 if quick else 3) for law, boxes in cases]
    goals = [
        Goal(
            f"{len(one.load.lo):,} of {one.load.name}: {one.chosen} over the best", one.regret, _REGRET, True
        )
        for one in founds
        if len(one.measured) > 1
    ]
    places: dict[str, list[tuple[float, float]]] = {}
    for one in founds:
        for name, predicted in one.predicted.items():
            places.setdefault(name, []).append((predicted, one.measured[name]))
    return Result(
        x="ns an event, predicted",
        y="ns an event, measured",
        series={name: sorted(points) for name, points in places.items()},
        rows=[
            {
                "measured over best": measured / min(one.measured.values()),
                "workload": one.load.name,
                "boxes": len(one.load.lo),
                "structure": name,
                "chosen": "chosen" if name == one.chosen else "",
                "predicted ns": one.predicted[name],
                "measured ns": measured,
                "measured over predicted": measured / one.predicted[name],
            }
            for one in founds
            for name, measured in sorted(one.measured.items(), key=lambda item: item[1])
        ],
        digest=combined(one.digest for one in founds),
        agrees=all_met(goals),
        verdict=_verdict(goals),
        log_x=True,
        log_y=True,
    )


def _verdict(goals: list[Goal]) -> str:
    worst = max(goals, key=lambda goal: goal.reached)
    good = sum(goal.met for goal in goals)
    return f"{good} of {len(goals)} choices are as good as wanted; the worst: {worst}."


EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        "chooser",
        "the cost model of the default index",
        "Does the structure that the chooser predicts to be the cheapest turn out to be?",
        f"What it chooses takes at most {_REGRET} times as long as the best of all structures.",
        chooser,
    ),
)
