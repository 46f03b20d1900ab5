"""A figure of the CEI or the VCI paper as an experiment: one parameter varies, structures are compared.

Idea: a figure is a *sweep* of settings, the structures that it draws, what it draws of them (search time or
storage), and a *judge*, which says from the measured curves alone whether the paper's finding holds. The
table has one row a setting, the ratio of two structures first.

Not for: what is measured and how (``intervals``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from service.bench.experiment import Experiment, Result, Scale
from service.bench.goals import combined
from service.bench.papers.figures import Judge, judged
from service.bench.papers.intervals import Cost, Setting, cost
from service.bench.papers.virtual_constructs import paper_bytes

_SEARCHES = 50_000
_SHRINK = 32


class Drawn(Enum):
    """What a figure shows of a structure: the label of its axis."""

    SEARCH = "search time, us"
    STORAGE = "storage, MB"


class Sweep(NamedTuple):
    """``parameter`` is the name that the paper gives to what varies, a field of the settings at ``field``."""

    parameter: str
    field: str
    settings: Sequence[Setting]
    structures: Sequence[str]
    ratio: tuple[str, str]


def figure(
    name: str, origin: str, question: str, finding: str, *, sweep: Sweep, drawn: Drawn, judge: Judge
) -> Experiment:
    """An experiment that measures a sweep and has it judged."""

    def run(scale: Scale, seed: int) -> Result:
        settings = sweep.settings if scale is Scale.FULL else _quick(sweep.settings)
        costs = [_cost(sweep, setting, drawn, scale, seed) for setting in settings]
        x = [float(getattr(setting, sweep.field)) for setting in settings]
        curves = {
            structure: [_height(each, structure, drawn) for each in costs] for structure in sweep.structures
        }
        rows = [
            _row(sweep, drawn, setting, each, {s: curve[i] for s, curve in curves.items()}, seed)
            for i, (setting, each) in enumerate(zip(settings, costs, strict=True))
        ]
        digest = combined(each.digest for each in costs)
        return judged(sweep.parameter, drawn.value, x, curves, rows, digest, judge)

    return Experiment(name, origin, question, finding, run)


def _cost(sweep: Sweep, setting: Setting, drawn: Drawn, scale: Scale, seed: int) -> Cost:
    """Storage needs few searches: for the digest only."""
    if drawn is Drawn.STORAGE or scale is Scale.QUICK:
        return cost(sweep.structures, setting, searches=_SEARCHES // 25, repeats=1, seed=seed)
    return cost(sweep.structures, setting, searches=_SEARCHES, repeats=7, seed=seed)


def _quick(settings: Sequence[Setting]) -> list[Setting]:
    """The first, the middle and the last setting, with fewer queries on as much less of an axis."""
    chosen = [settings[0], settings[len(settings) // 2], settings[-1]]
    return [
        each._replace(queries=max(each.queries // _SHRINK, 100), domain=max(each.domain // _SHRINK, 1024))
        for each in chosen
    ]


def _height(measured: Cost, structure: str, drawn: Drawn) -> float:
    return measured.search_us[structure] if drawn is Drawn.SEARCH else measured.bytes[structure] / 1e6


def _row(
    sweep: Sweep, drawn: Drawn, setting: Setting, measured: Cost, heights: Mapping[str, float], seed: int
) -> dict[str, float | int | str]:
    above, below = sweep.ratio
    row: dict[str, float | int | str] = {
        f"{above} / {below}": round(heights[above] / heights[below], 2),
        sweep.parameter: getattr(setting, sweep.field),
    }
    unit = "us" if drawn is Drawn.SEARCH else "MB"
    row |= {f"{structure}, {unit}": round(height, 3) for structure, height in heights.items()}
    if drawn is Drawn.SEARCH:
        return row | {"ids a search": round(setting.hits, 1), "searches": measured.searches}
    counted = {structure: paper_bytes(structure, setting, seed) for structure in sweep.structures}
    return row | {
        f"{structure}, MB in the paper's count": round(size / 1e6, 3)
        for structure, size in counted.items()
        if size is not None
    }
