"""Boxes and points to measure on: seeded, with the number of hits that their names promise.

Idea: a workload is a law for boxes and points; count and seed are its parameters. Values are in ``[0, 1)``
unless said otherwise, points uniform. A box lies inside of the domain, so a uniform point is in it with the
probability that is its volume, and the mean number of hits is the sum of the volumes: no sample is needed to
know it.

Invariant: the same seed and count give the same workload everywhere.

Not for: the workloads of the papers, which are beside their experiments (``papers``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.index.protocol import Bounds, Points, Slots


class Workload(NamedTuple):
    """n boxes ``[lo[i], hi[i])`` of slot i, and m points. ``hits`` is the mean number of boxes around one of
    the points that the law gives at this count, ``words`` the law."""

    name: str
    lo: Bounds
    hi: Bounds
    points: Points
    hits: float
    words: str

    @property
    def slots(self) -> Slots:
        return np.arange(len(self.lo), dtype=np.int32)


class Moves(NamedTuple):
    """n boxes, and m moves from ``before[row]`` to ``after[row]``; ``inside`` boxes around a point and
    ``deltas`` enters and leaves a move, on average, both as the law gives them."""

    name: str
    lo: Bounds
    hi: Bounds
    before: Points
    after: Points
    inside: float
    deltas: float
    words: str

    @property
    def slots(self) -> Slots:
        return np.arange(len(self.lo), dtype=np.int32)


Law = Callable[[int, int, int], Workload]
"""(boxes, points, seed) to a workload."""

DOMAIN = 1 << 20
"""Of the one-dimensional workload, in whole numbers: 640,000 intervals of mean length 100.5 give 61 hits."""


def intervals(boxes: int, points: int, seed: int) -> Workload:
    """Whole numbers: lengths uniform in 1 to 200, 61 hits at 640,000."""
    rng = np.random.default_rng(seed)
    length = rng.integers(1, 201, (boxes, 1)).astype(np.float64)
    lo = rng.integers(0, DOMAIN - 200, (boxes, 1)).astype(np.float64)
    asked = rng.integers(0, DOMAIN, (points, 1)).astype(np.float64)
    words = f"lengths uniform in 1 to 200 (W = 200) on 0 to {DOMAIN:,}, whole numbers"
    return Workload("1-D", lo, lo + length, asked, boxes * 100.5 / DOMAIN, words)


def _within(rng: np.random.Generator, width: NDArray[np.float64]) -> tuple[Bounds, Bounds]:
    """Boxes of these widths at uniform places inside of the unit cube."""
    lo = rng.random(width.shape) * (1 - width)
    return lo, lo + width


def cube(name: str, dims: int, width: float) -> Law:
    """Boxes that constrain all of ``dims`` attributes to exactly ``width``."""

    def law(boxes: int, points: int, seed: int) -> Workload:
        rng = np.random.default_rng(seed)
        lo, hi = _within(rng, np.full((boxes, dims), width))
        words = f"{dims} attributes, all constrained, width {width:g}"
        return Workload(name, lo, hi, rng.random((points, dims)), boxes * width**dims, words)

    return law


def wide(name: str, dims: int, most: float) -> Law:
    """Boxes that constrain all of ``dims`` attributes, widths uniform up to ``most``."""

    def law(boxes: int, points: int, seed: int) -> Workload:
        rng = np.random.default_rng(seed)
        lo, hi = _within(rng, (1 - rng.random((boxes, dims))) * most)
        words = f"{dims} attributes, all constrained, widths uniform up to {most:g}"
        return Workload(name, lo, hi, rng.random((points, dims)), boxes * (most / 2) ** dims, words)

    return law


def some(name: str, dims: int, constrained: int, width: float, *, skew: float = 0.0) -> Law:
    """Boxes that constrain ``constrained`` of ``dims`` attributes to ``width`` and leave the rest free.

    The attributes of a box are drawn one after another without repetition, attribute j with a weight of
    ``1 / (j + 1) ** skew`` (Zipf; 0 for uniform). Points have all attributes.
    """

    def law(boxes: int, points: int, seed: int) -> Workload:
        rng = np.random.default_rng(seed)
        # Exponential clocks with these rates ring in the order in which weighted draws come.
        clocks = rng.exponential(size=(boxes, dims)) * np.arange(1, dims + 1) ** skew
        chosen = np.argpartition(clocks, constrained - 1, axis=1)[:, :constrained]
        lo, hi = np.full((boxes, dims), -np.inf), np.full((boxes, dims), np.inf)
        begin, end = _within(rng, np.full((boxes, constrained), width))
        np.put_along_axis(lo, chosen, begin, axis=1)
        np.put_along_axis(hi, chosen, end, axis=1)
        choice = f", chosen with a Zipf skew of {skew:g}" if skew else ""
        words = f"{dims} attributes, {constrained} constrained{choice}, width {width:g}"
        return Workload(name, lo, hi, rng.random((points, dims)), boxes * width**constrained, words)

    return law


A = some("A", 20, 10, 0.3)
B = some("B", 20, 5, 0.1)
C = wide("C", 4, 0.3)
D = wide("D", 8, 0.55)
E = cube("E", 2, 1e-5**0.5)
F = some("F", 50, 3, 0.05, skew=1.0)
G = cube("G", 2, 1e-4**0.5)


def fences(boxes: int, moves: int, seed: int, *, inside: int) -> Moves:
    """Square fences in the unit square, ``inside`` of them around a stream; tiny moves, so that one move in
    five enters or leaves one, however many there are around it."""
    rng = np.random.default_rng(seed)
    # Corners have 1 - side to lie in, so boxes are denser by that than their number says.
    share = (inside / boxes) ** 0.5
    side = share / (1 + share)
    deltas = 0.2
    lo, hi = _within(rng, np.full((boxes, 2), side))
    # Away from the rim, where fences are rare.
    before = rng.uniform(side, 1 - side, (moves, 2))
    density = boxes / (1 - side) ** 2
    # A move of (dx, dy) passes 2 * density * side * (|dx| + |dy|) edges, and that sum is `step` on average.
    step = deltas / (2 * density * side)
    after = before + rng.uniform(-step, step, (moves, 2))
    words = f"square fences of side {side:.3g} in the unit square, moves of up to {step:.2g} an attribute"
    return Moves("fences", lo, hi, before, after, inside, deltas, words)


def walk(boxes: int, moves: int, seed: int, *, deltas: float) -> Moves:
    """One attribute: borders passed in jumps from anywhere, too short to pass both ends of an interval.

    Lengths are uniform in 2,000 to 6,000 on 0 to a million, 400 intervals around a value at 100,000."""
    rng = np.random.default_rng(seed)
    domain = 1e6
    length = rng.uniform(2_000, 6_000, (boxes, 1))
    lo = rng.uniform(0, domain, (boxes, 1)) - length / 2
    mean_step = deltas * domain / (2 * boxes)
    if 2 * mean_step > 2_000:
        raise ValueError(f"{boxes} intervals are too few for {deltas} borders a move")
    before = rng.uniform(10_000, domain - 10_000, (moves, 1))
    after = before + rng.uniform(0, 2 * mean_step, (moves, 1)) * rng.choice([-1.0, 1.0], (moves, 1))
    words = f"lengths uniform in 2,000 to 6,000 on 0 to a million, steps uniform up to {2 * mean_step:,.0f}"
    return Moves("walk", lo, lo + length, before, after, boxes * 4_000 / domain, deltas, words)


def jumps(boxes: int, moves: int, seed: int) -> Moves:
    """Boxes of workload G (two attributes, 10 around a point at 100,000), and moves from anywhere to
    anywhere: all that was around is left, all that will be is entered."""
    rng = np.random.default_rng(seed)
    load = G(boxes, moves, seed + 1)
    words = f"{load.words}; moves from anywhere to anywhere"
    after = rng.random((moves, 2))
    return Moves("jumps", load.lo, load.hi, load.points, after, load.hits, 2 * load.hits, words)
