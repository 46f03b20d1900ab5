"""What the experiments of the VCR paper share: predicates, events, structures, and how a figure is drawn.

Idea: n predicates, rectangles on whole numbers, are inserted at once and many events are matched; the paper
plots the mean search time, the storage or the load of the hash table. A search ends when the ids are
reported, in whatever order and as often as the structure meets them (OD reports a predicate more than once):
that is what the paper times, so the indexes run with a collector that does not sort; the digest sorts and
names each once, outside of the timing.

Degrees of overlap are the paper's rule alpha-beta: a share alpha of the corners is uniform in a rectangle in
the middle with a share beta of the area, the others anywhere; events likewise. Whole numbers are the plane's
cells, except that the outermost ends, 1 in 256 on either side, share the first and the last cell.

Not for: which figure shows what (``vcr``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import numpy as np

from service.bench.experiment import Experiment, Result, Scale
from service.bench.goals import combined
from service.bench.measure import Batches, Contender, Deferred, batches, race
from service.bench.papers.figures import Curves, Judge, judged
from service.bench.papers.intervals import AsReported
from service.index.box.rtree import RTree
from service.index.box.vcr import VCR, Decomposition
from service.index.box.vcr_encoding import storage_bytes, vcrs_a_cell
from service.index.box.vcr_lists import Lists
from service.index.box.vcr_search_kernels import Hashed
from service.index.brute import BruteForce
from service.index.protocol import Bounds, Hits, Points

Pair = tuple[int, int]
Index = VCR | RTree
UNIFORM = (0.0, 1.0)
_SEARCHES = 100_000
_MOST_HITS = 1_000_000
"""Answers are kept until they are compared: beyond this many ids in all, fewer events are matched."""
_BATCH_HITS = 100_000
_SAMPLE = 300
"""Events that tell how many ids a search reports."""
_SHRINK = 64


class Setting(NamedTuple):
    """n predicates on Rx by Ry cells, of widths and heights uniform in 1 .. W, VCRs of up to Lx by Ly; share
    ``skew[0]`` of them in share ``skew[1]`` of the area."""

    predicates: int
    ranges: Pair
    widest: Pair
    longest: Pair
    skew: tuple[float, float]


class Cost(NamedTuple):
    """Microseconds and ids a search, bytes besides the predicates' ends, and of VCR the bytes that the paper
    counts and the activated VCRs a place in the hash table (0 without one)."""

    search_us: float
    ids: float
    bytes: int
    counted: int
    load: float


class Drawn(Enum):
    """What a curve shows."""

    SEARCH = "search time, us"
    STORAGE = "storage, MB"
    COUNTED = "storage in the paper's count, MB"
    LOAD = "load factor"

    def of(self, cost: Cost) -> float:
        match self:
            case Drawn.SEARCH:
                return cost.search_us
            case Drawn.STORAGE:
                return cost.bytes / 1e6
            case Drawn.COUNTED:
                return cost.counted / 1e6
            case Drawn.LOAD:
                return cost.load


class Structure(NamedTuple):
    """An index to race, under the skew of the setting or its own."""

    name: str
    make: Callable[[Setting], Index]
    skew: tuple[float, float] | None = None


class Curve(NamedTuple):
    structure: Structure
    drawn: Drawn
    label: str


@dataclass(frozen=True, slots=True)
class Sweep:
    """One parameter varies, of ``value`` in a setting. ``ratio`` is of two curves, by label; without it, what
    comes first in the table is how far the first curve is above its least."""

    parameter: str
    value: Callable[[Setting], int]
    settings: Sequence[Setting]
    curves: Sequence[Curve]
    ratio: tuple[str, str] | None


def vcr(
    decomposition: Decomposition, lists: Lists, hash_size: Callable[[Setting], int] | None = None
) -> Callable[[Setting], Index]:
    """What makes a VCR index on the plane of a setting; nothing waits in a tail."""

    def make(setting: Setting) -> Index:
        return VCR(
            decomposition=decomposition,
            lists=lists,
            longest=setting.longest,
            step=(1.0, 1.0),
            hash_size=hash_size(setting) if hash_size else None,
            tail_limit=0,
        )

    return make


def rtree(setting: Setting) -> Index:
    """An R-tree, bulk loaded."""
    return RTree(2)


def figure(name: str, origin: str, question: str, finding: str, *, sweep: Sweep, judge: Judge) -> Experiment:
    """An experiment that measures a sweep and has it judged."""

    def run(scale: Scale, seed: int) -> Result:
        quick = scale is Scale.QUICK
        settings = [_quick(each) if quick else each for each in sweep.settings]
        timed = any(curve.drawn is Drawn.SEARCH for curve in sweep.curves) and not quick
        measured = [_measured(sweep, setting, timed=timed, seed=seed) for setting in settings]
        x = [float(sweep.value(setting)) for setting in settings]
        curves = {
            curve.label: [curve.drawn.of(found[curve.structure.name]) for found, _ in measured]
            for curve in sweep.curves
        }
        drawn = " or ".join(dict.fromkeys(curve.drawn.value for curve in sweep.curves))
        rows = _rows(sweep, settings, curves, [found for found, _ in measured])
        return judged(
            sweep.parameter, drawn, x, curves, rows, combined(digest for _, digest in measured), judge
        )

    return Experiment(name, origin, question, finding, run)


def predicates(setting: Setting, seed: int) -> tuple[Bounds, Bounds]:
    """n rectangles ``float64[n, 2]`` on whole numbers, cut off at the border of the plane."""
    rng = np.random.default_rng(seed)
    lo = np.floor(_places(rng, setting, setting.predicates))
    widths = rng.integers(1, np.array(setting.widest) + 1, lo.shape)
    return lo, np.minimum(lo + widths, np.array(setting.ranges, np.float64))


def events(setting: Setting, count: int, seed: int) -> Points:
    """Points of the plane, ``float64[count, 2]``, by the same rule as the corners of the predicates."""
    return _places(np.random.default_rng([seed, 1]), setting, count)


def costs(
    structures: Sequence[Structure], setting: Setting, *, searches: int, repeats: int, seed: int
) -> tuple[Mapping[str, Cost], str]:
    """Builds each structure and lets those with one skew race; they must agree with brute force on every
    event.

    By name what each costs, and a digest of all answers."""
    found: dict[str, Cost] = {}
    digests = []
    for skew in dict.fromkeys(structure.skew for structure in structures):
        skewed = setting._replace(skew=skew or setting.skew)
        lo, hi = predicates(skewed, seed)
        slots = np.arange(len(lo), dtype=np.int32)
        plain = BruteForce(2)
        plain.insert(slots, lo, hi)
        indexes: dict[str, Index] = {}
        for structure in structures:
            if structure.skew == skew:
                index = structure.make(skewed)
                index.insert(slots, lo, hi)
                # The one thing to change in an index: what it does with the ids that were reported.
                index._collector = AsReported()
                indexes[structure.name] = index
        points = events(skewed, searches, seed)
        sample = points[:_SAMPLE]
        ids = len(plain.stab(sample).rows) / len(sample)
        points = points[: int(_MOST_HITS / max(ids, 1))]
        size = max(int(_BATCH_HITS / max(ids, 1)), 100)
        timings = race(
            {name: _asks(index, points, size) for name, index in indexes.items()},
            repeats=repeats,
            oracle=batches(plain.stab, points, size),
        )
        digests.append(next(iter(timings.values())).digest)
        for name, index in indexes.items():
            besides = index.nbytes - plain.nbytes
            search_us = 1e6 * timings[name].best_s / len(points)
            found[name] = Cost(search_us, ids, besides, *_counted(index))
    return found, combined(digests)


def _asks(index: Index, points: Points, size: int) -> Contender:
    parts = [np.ascontiguousarray(points[first : first + size]) for first in range(0, len(points), size)]

    def ask() -> Deferred:
        answers = [index.stab(part) for part in parts]
        return Deferred(lambda: Batches(size, [_once(answer) for answer in answers]))

    return ask


def _once(answer: Hits) -> Hits:
    """Each pair once."""
    keys = np.unique(answer.rows.astype(np.int64) << 32 | answer.slots)
    return Hits((keys >> 32).astype(np.int32), (keys & 0x7FFFFFFF).astype(np.int32))


def _counted(index: Index) -> tuple[int, float]:
    """The bytes that the paper counts of VCR, and the load factor of its hash table."""
    if not isinstance(index, VCR):
        return 0, 0.0
    constructs, entries = index.filing.constructs, index.filing.entries
    if isinstance(constructs, Hashed):
        size = len(constructs.heads) - 1
        return storage_bytes(size, entries), index.filing.activated / size
    plane = index.filing.plane
    longest = 1 << plane.kx, 1 << plane.ky
    return storage_bytes(vcrs_a_cell(longest) * plane.range_x * plane.range_y, entries), 0.0


def _places(rng: np.random.Generator, setting: Setting, count: int) -> Points:
    alpha, beta = setting.skew
    share = rng.random((count, 2))
    crowded = rng.random((count, 1)) < alpha
    side = beta**0.5
    middle = (1 - side) / 2 + side * share
    places: Points = np.where(crowded, middle, share) * np.array(setting.ranges)
    return places


def _quick(setting: Setting) -> Setting:
    """Fewer predicates on a plane of fewer cells."""
    ranges = setting.ranges[0] // 4, setting.ranges[1] // 4
    return setting._replace(predicates=setting.predicates // _SHRINK, ranges=ranges)


def _measured(sweep: Sweep, setting: Setting, *, timed: bool, seed: int) -> tuple[Mapping[str, Cost], str]:
    """What every structure costs at one setting. Storage and load need few searches: for the digest only."""
    return costs(
        list(dict.fromkeys(curve.structure for curve in sweep.curves)),
        setting,
        searches=_SEARCHES if timed else _SEARCHES // 500,
        repeats=5 if timed else 1,
        seed=seed,
    )


def _rows(
    sweep: Sweep, settings: Sequence[Setting], curves: Curves, measured: Sequence[Mapping[str, Cost]]
) -> list[Mapping[str, float | int | str]]:
    first = sweep.curves[0].label
    rows: list[Mapping[str, float | int | str]] = []
    for i, (setting, found) in enumerate(zip(settings, measured, strict=True)):
        row: dict[str, float | int | str] = {}
        if sweep.ratio is None:
            row[f"{first} / least"] = round(curves[first][i] / min(curves[first]), 3)
        else:
            above, below = sweep.ratio
            row[f"{above} / {below}"] = round(curves[above][i] / curves[below][i], 3)
        row[sweep.parameter] = sweep.value(setting)
        for curve in sweep.curves:
            unit = curve.drawn.value.rpartition(", ")[2]
            row[f"{curve.label}, {unit}"] = round(curves[curve.label][i], 4)
        row["ids a search"] = round(found[sweep.curves[0].structure.name].ids, 1)
        rows.append(row)
    return rows
