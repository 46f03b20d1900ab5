"""The indexes that the contract suite runs against."""

from __future__ import annotations

from service.index.brute import BruteForce
from service.index.interval.cei import CEI
from tests.index import (
    factories_baselines,
    factories_bmq,
    factories_default,
    factories_join,
    factories_vci,
    factories_vcr,
)
from tests.index.slow import SlowTwin
from tests.index.worlds import Factory

FACTORIES = (
    Factory("slow-1d", 1, lambda: SlowTwin(1)),
    Factory("slow-2d", 2, lambda: SlowTwin(2)),
    Factory("brute-1d", 1, lambda: BruteForce(1)),
    Factory("brute-2d", 2, lambda: BruteForce(2)),
    Factory("brute-3d", 3, lambda: BruteForce(3)),
    Factory("brute-5d", 5, lambda: BruteForce(5)),
    Factory("cei", 1, lambda: CEI()),
    # Everything is filed at once, on a grid chosen from the boxes: no tail.
    Factory("cei-filed", 1, lambda: CEI(tail_limit=0)),
    # The paper's small segments, so that guiding posts fall inside the boxes of the tests.
    Factory("cei-segments-of-4", 1, lambda: CEI(segment_length=4, step=1.0, tail_limit=0)),
    # Steps that fit nothing, so that every end cuts a cell, and a tail beside the lists.
    Factory("cei-coarse", 1, lambda: CEI(segment_length=2, step=0.7, tail_limit=8)),
    # One cell a segment: no tree at all.
    Factory("cei-unit-intervals", 1, lambda: CEI(segment_length=1, step=3.0, tail_limit=2)),
    *factories_default.FACTORIES,
    *factories_vci.FACTORIES,
    *factories_vcr.FACTORIES,
    *factories_bmq.FACTORIES,
    *factories_join.FACTORIES,
    *factories_baselines.FACTORIES,
)
