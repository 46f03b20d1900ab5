"""The chooser: which structure holds which boxes of a level, by what each would cost.

Idea: boxes that constrain the same attributes have one *signature*. For every signature with enough boxes the
model predicts what an event costs in each structure that can hold them, and the cheapest takes them; the
rest, however mixed, share one part. What a structure costs depends on the number of boxes, on how many hold a
typical point, and on how well one attribute alone tells them apart. Both are estimated from samples of the
boxes alone, with their own middles as points: queries are asked where events are.

The constants are ns on the machine where they were fitted; only their ratios matter. ``rangewatch bench
chooser`` holds predictions against measurements.

Not for: what a structure is (the parts).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.index.default.part import Part, Sparse, dense, taken
from service.index.default.scan_part import ScanPart

_SAMPLE_BOXES = 2048
_SAMPLE_POINTS = 256


@dataclass(frozen=True, slots=True)
class Shape:
    """What the model knows of some boxes: their number, the attributes that all of them constrain (of mixed
    ones: the mean number), how many hold a typical point, and how many the most telling attribute leaves."""

    boxes: int
    attributes: float
    hits: float
    left: float


@dataclass(frozen=True, slots=True)
class Choice:
    """A structure for some boxes. ``predicted_ns`` is the model's cost of an event in a batch of 1,000;
    ``reason`` says why, for people."""

    structure: str
    boxes: Sparse
    predicted_ns: float
    reason: str


Choose = Callable[[Sparse, int], Sequence[Choice]]
"""The choices for some boxes of an index of so many attributes; every box is in one of them."""


def scan_ns(shape: Shape) -> float:
    """A scan looks at every box, at further attributes only of blocks that the first leaves."""
    return 20 + 0.25 * shape.boxes


STRUCTURES: Mapping[str, Callable[[Sparse, int], Part]] = {"scan": ScanPart.of}


def chosen(boxes: Sparse, dims: int) -> Sequence[Choice]:
    """The choices of the model. O(n) and samples."""
    shape = shape_of(boxes, dims)
    return [Choice("scan", boxes, scan_ns(shape), f"{shape.boxes} boxes")]


def only(structure: str) -> Choose:
    """Chooses one structure for all boxes. ValueError on an unknown one."""
    if structure not in STRUCTURES:
        raise ValueError(f"there is no structure {structure!r}, only {', '.join(sorted(STRUCTURES))}")

    def choose(boxes: Sparse, dims: int) -> Sequence[Choice]:
        return [Choice(structure, boxes, float("nan"), "asked for")]

    return choose


def shape_of(boxes: Sparse, dims: int) -> Shape:
    """Estimated from samples taken at equal distances. O(samples)."""
    n = len(boxes)
    if n == 0:
        return Shape(0, 0.0, 0.0, 0.0)
    lo, hi = dense(taken(boxes, _spread(n, _SAMPLE_BOXES)), dims)
    points = _middles(*dense(taken(boxes, _spread(n, _SAMPLE_POINTS)), dims))
    inside = np.ones((len(points), len(lo)), np.bool_)
    left = 1.0
    for attribute in range(dims):
        x = points[:, attribute, None]
        holds = (lo[:, attribute] <= x) & (x < hi[:, attribute])
        inside &= holds
        left = min(left, float(holds.mean()))
    return Shape(n, float(np.diff(boxes.starts).mean()), n * float(inside.mean()), n * left)


def signatures(boxes: Sparse) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The boxes by signature: for each box the number of its signature, and for each signature one of its
    boxes. O(c log n) for c entries."""
    # Two independent sums of random words tell sets apart but for one in 2**100.
    words = np.random.default_rng(0).integers(1, 2**62, (256, 2))
    owner = np.repeat(np.arange(len(boxes)), np.diff(boxes.starts))
    sums = np.zeros((len(boxes), 2), np.int64)
    np.add.at(sums, owner, words[boxes.attributes])
    _, first, number = np.unique(sums, axis=0, return_index=True, return_inverse=True)
    return number.reshape(-1), first


def _spread(n: int, most: int) -> NDArray[np.intp]:
    return np.unique(np.linspace(0, n - 1, min(n, most)).astype(np.intp))


def _middles(lo: NDArray[np.float64], hi: NDArray[np.float64]) -> NDArray[np.float64]:
    """A point in each box: its middle, its one end where it is open, anything where it is free."""
    with np.errstate(invalid="ignore"):  # inf - inf, where free
        middles = lo / 2 + hi / 2
    one_end = np.where(np.isfinite(lo), lo, np.nextafter(hi, -np.inf))
    middles = np.where(np.isfinite(middles), middles, one_end)
    # A free attribute takes the values that boxes of the sample have there.
    free = ~np.isfinite(lo) & ~np.isfinite(hi)
    for attribute in np.flatnonzero(free.any(axis=0)):
        bound = np.flatnonzero(~free[:, attribute])
        some = middles[bound, attribute] if len(bound) else np.zeros(1)
        places = np.flatnonzero(free[:, attribute])
        middles[places, attribute] = some[np.arange(len(places)) % len(some)]
    return middles
