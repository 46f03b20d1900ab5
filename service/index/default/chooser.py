"""The chooser: which structure holds which boxes of a level, by what each would cost.

Idea: boxes that constrain the same attributes have one *signature*. For every signature with enough boxes the
model predicts what an event costs in each structure that can hold them, and the cheapest takes them; the
rest, however mixed, share one part. What a structure costs depends on the number of boxes, on how many hold a
typical point, and on how many attributes they constrain. How many hold a point is estimated from samples of
the boxes alone, with places inside of them as points: queries are asked where events are.

The constants are ns on the machine where they were fitted; only their ratios matter. ``rangewatch bench
chooser`` holds predictions against measurements.

Not for: what a structure is (the parts).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numba import types
from numpy.typing import NDArray

from service.index.default.bitmaps import Bitmaps
from service.index.default.kd import MOST_DIMS, Kd
from service.index.default.part import Part, Sparse, constrained, dense, joined, taken
from service.index.default.scan_part import ScanPart
from service.index.default.signatures import signatures
from service.index.default.windows import Windows
from service.index.kernel import kernel, reads

_SAMPLE_BOXES = 2048
_SAMPLE_POINTS = 256
_POINTS_OF = 16
"""Boxes for which one of them is asked about, at least: of a few boxes an estimate must not cost more than
filing them."""
_LEAST_APART = 256
"""Boxes of one signature that are worth a part of their own: a further part costs about as much as these."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What the model knows of some boxes: their number, how many attributes each constrains (of mixed ones:
    the mean), how many attributes an event has and how many of these any box constrains, how many boxes hold
    a typical point, and how much of an attribute its mean constraint covers there, 0 to 1."""

    boxes: int
    attributes: float
    dims: int
    among: int
    hits: float
    share: float


@dataclass(frozen=True, slots=True)
class Structure:
    """A kind of part. ``fits``: whether it holds boxes of one signature of so many attributes, ``mixed``:
    whether of any; ``ns``: what the model says an event costs, in a batch of 1,000."""

    make: Callable[[Sparse, int], Part]
    fits: Callable[[int], bool]
    mixed: bool
    ns: Callable[[Shape], float]


@dataclass(frozen=True, slots=True)
class Choice:
    """A structure for some boxes. ``predicted_ns``: as ``Structure.ns``. ``reason`` says why, for people."""

    structure: str
    boxes: Sparse
    predicted_ns: float
    reason: str


Choose = Callable[[Sparse, int], Sequence[Choice]]
"""The choices for some boxes of an index of so many attributes; every box is in one of them."""


def scan_ns(shape: Shape) -> float:
    """All boxes pass by, by block; a block with a box around the point is looked at closely. The first of
    these costs little: where it is the only one, all of them are in the cache."""
    passing = 30 + 0.13 * shape.boxes * shape.dims
    looked_at = min(shape.hits, shape.boxes / 64)
    return passing + 10 + 70 * max(looked_at - 1, 0.0) + 10 * shape.hits


def windows_ns(shape: Shape) -> float:
    """The window, and what is found in it."""
    return 50 + 2.3 * shape.hits


def kd_ns(shape: Shape) -> float:
    """The leaf; its candidates are the more, the more sides a box has to cut cells with."""
    return 120 + 16 * shape.hits * math.pow(4, max(0.0, shape.attributes - 2))


def bitmaps_ns(shape: Shape) -> float:
    """The groups, the tiles whose hulls are around the point, and the boxes that their bits leave.

    Boxes of one signature are one group and have fine bits for all of their attributes. Mixed ones are taken
    to be in groups that share two, with coarse bits for about twenty of the others. However few boxes there
    are, a tile is looked at, and an attribute more is more to be read."""
    mixed = shape.among > shape.attributes
    groups = 2.5 * shape.among / max(shape.attributes, 2.5) if mixed else 1.0
    shared = min(shape.attributes, 2.0 if mixed else 4.0)
    rows = min(shape.among, 20)
    tiles = max(shape.boxes / 512, 1.0)
    parts = math.pow(max(tiles / groups, 1.0), 1 / max(shared, 1.0))
    looks = tiles * math.pow(shape.share + (1 - shape.share) / parts, shared)
    fine = shared if mixed else shape.attributes
    coarse = min(shape.attributes - fine, 20 * shape.attributes / max(shape.among, 1) - 1) if mixed else 0.0
    passing = math.pow(shape.share + 0.016, fine) * math.pow(shape.share + 0.125, max(coarse, 0.0))
    wide = 13 * max(shape.attributes - 3, 0.0)
    fixed = 50 + wide + 40 * (groups if mixed else 0.0) + 70 * shape.boxes / 32768
    return fixed + looks * (16 + 2.6 * rows) + 8 * shape.boxes * passing + 6 * shape.hits


STRUCTURES: Mapping[str, Structure] = {
    "scan": Structure(ScanPart.of, lambda attributes: True, True, scan_ns),
    "windows": Structure(Windows.of, lambda attributes: attributes == 1, False, windows_ns),
    "kd": Structure(Kd.of, lambda attributes: 2 <= attributes <= MOST_DIMS, False, kd_ns),
    "bitmaps": Structure(Bitmaps.of, lambda attributes: True, True, bitmaps_ns),
}


def chosen(
    boxes: Sparse,
    dims: int,
    asked: Mapping[frozenset[int], str] | None = None,
    otherwise: str | None = None,
) -> Sequence[Choice]:
    """The choices of the model, but for signatures that a structure is ``asked`` for. ``otherwise``: one for
    any mixture that is asked for all the others. O(c)."""
    asked = asked or {}
    number, firsts = signatures(boxes)
    counts = np.bincount(number, minlength=len(firsts))
    order = np.argsort(number, kind="stable")
    ends = np.cumsum(counts)
    apart: list[Choice] = []
    together = counts < _LEAST_APART
    # There may be as many signatures as boxes: only those that may be apart are looked at.
    for one in range(len(firsts)) if asked else np.flatnonzero(~together).tolist():
        attributes = boxes.attributes[boxes.starts[firsts[one]] : boxes.starts[firsts[one] + 1]].tolist()
        wanted = asked.get(frozenset(attributes))
        if wanted is None and (together[one] or otherwise):
            together[one] = True
            continue
        own = boxes if len(firsts) == 1 else taken(boxes, order[ends[one] - counts[one] : ends[one]])
        choice = _asked(wanted, own) if wanted else _cheapest(own, dims, len(attributes))
        # What goes to a structure for any mixture had better go there at once.
        together[one] = wanted is None and STRUCTURES[choice.structure].mixed
        if not together[one]:
            apart.append(choice)
    if together.any():
        rest = boxes if together.all() else taken(boxes, np.flatnonzero(together[number]))
        apart.append(_asked(otherwise, rest) if otherwise else _cheapest(rest, dims, None))
    return apart


def _asked(structure: str, boxes: Sparse) -> Choice:
    return Choice(structure, boxes, float("nan"), "asked for")


def _cheapest(boxes: Sparse, dims: int, attributes: int | None) -> Choice:
    """The cheapest of those that hold the boxes, of one signature of so many attributes, or of any (None)."""
    shape = shape_of(boxes, dims)
    costs = {
        name: structure.ns(shape)
        for name, structure in STRUCTURES.items()
        if (structure.mixed if attributes is None else structure.fits(attributes))
    }
    name = min(costs, key=lambda name: costs[name])
    others = ", ".join(f"{other} {ns:.0f}" for other, ns in sorted(costs.items()) if other != name)
    reason = f"{shape.boxes} boxes, about {shape.hits:.1f} around a point: {name} {costs[name]:.0f} ns"
    return Choice(name, boxes, costs[name], reason + (f" ({others})" if others else ""))


def only(structure: str) -> Choose:
    """Chooses one structure for all boxes. ValueError unless there is one that holds any mixture."""
    fitting = sorted(name for name, one in STRUCTURES.items() if one.mixed)
    if structure not in fitting:
        raise ValueError(f"{structure!r} is no structure for any boxes; these are: {', '.join(fitting)}")
    return lambda boxes, dims: [_asked(structure, boxes)]


def shape_of(boxes: Sparse, dims: int) -> Shape:
    """Estimated from samples taken at equal distances. O(samples)."""
    n = len(boxes)
    if n == 0:
        return Shape(0, 0.0, dims, 0, 0.0, 0.0)
    some = taken(boxes, _spread(n, _SAMPLE_BOXES))
    asked = taken(boxes, _spread(n, min(_SAMPLE_POINTS, max(32, n // _POINTS_OF))))
    # What none of them constrains says nothing.
    attributes = constrained(joined([some, asked]), dims)
    place = np.zeros(dims, np.uint8)
    place[attributes] = np.arange(len(attributes))
    lo, hi = dense(replace(some, attributes=place[some.attributes]), len(attributes))
    points = _insides(*dense(replace(asked, attributes=place[asked.attributes]), len(attributes)))
    held = 0
    for attribute in range(len(attributes)):
        bound = np.isfinite(lo[:, attribute]) | np.isfinite(hi[:, attribute])
        x = points[:, attribute, None]
        held += int(((lo[bound, attribute] <= x) & (x < hi[bound, attribute])).sum())
    pairs = len(points) * len(lo)
    return Shape(
        n,
        len(boxes.attributes) / n,
        dims,
        len(constrained(boxes, dims)),
        n * _hits(lo, hi, points) / pairs,
        held / max(len(some.attributes) * len(points), 1),
    )


_MATRIX = reads(types.float64, 2)


@kernel(types.int64(_MATRIX, _MATRIX, _MATRIX))
def _hits(lo, hi, points):  # type: ignore[no-untyped-def]
    """How many pairs of a point and a box around it there are. O(m n d), less by early exit."""
    hits = 0
    for row in range(points.shape[0]):
        for box in range(lo.shape[0]):
            j = 0
            while j < points.shape[1] and lo[box, j] <= points[row, j] and points[row, j] < hi[box, j]:
                j += 1
            hits += j == points.shape[1]
    return hits


def _spread(n: int, most: int) -> NDArray[np.intp]:
    return np.unique(np.linspace(0, n - 1, min(n, most)).astype(np.intp))


def _insides(lo: NDArray[np.float64], hi: NDArray[np.float64]) -> NDArray[np.float64]:
    """A point in each box: anywhere between its ends; where it is open, its one end; where free, anything.

    Middles alone would not do: those of wide boxes lie close together, and all of the boxes hold them."""
    # Multiples of irrational numbers, modulo 1, are spread evenly, and a sample is the same every time.
    part = (
        np.arange(len(lo))[:, None] * 0.6180339887498949 + np.arange(lo.shape[1]) * 0.41421356237309515
    ) % 1
    with np.errstate(invalid="ignore", over="ignore"):  # inf - inf, where free
        between = lo * (1 - part) + hi * part
        last = np.nextafter(hi, -np.inf)
    points = np.where(np.isfinite(lo) & np.isfinite(hi), np.clip(between, lo, last), np.nan)
    points = np.where(np.isfinite(points), points, np.where(np.isfinite(lo), lo, last))
    # A free attribute takes the values that boxes of the sample have there.
    free = ~np.isfinite(lo) & ~np.isfinite(hi)
    for attribute in np.flatnonzero(free.any(axis=0)):
        bound = np.flatnonzero(~free[:, attribute])
        some = points[bound, attribute] if len(bound) else np.zeros(1)
        places = np.flatnonzero(free[:, attribute])
        points[places, attribute] = some[np.arange(len(places)) % len(some)]
    return points
