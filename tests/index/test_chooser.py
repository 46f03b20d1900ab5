"""The chooser: which structure takes which boxes, and what it looks at to decide."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from service.bench.workloads import A, B, C, D, F, G, Law, intervals, some
from service.index.default import chooser
from service.index.default.chooser import bitmaps_ns, chosen, shape_of
from service.index.default.part import Sparse, dense, joined, sparse
from tests.index.worlds import INF, LOWEST, MOST


def boxes_of(law: Law, count: int) -> tuple[Sparse, int]:
    load = law(count, 1, 1)
    return sparse(load.slots, load.lo, load.hi), load.lo.shape[1]


@pytest.mark.parametrize(
    ("law", "count", "structure"),
    [
        (intervals, 30, "scan"),
        (intervals, 60, "scan"),
        (G, 30, "scan"),
        (G, 60, "scan"),
        (C, 30, "scan"),
        (C, 60, "scan"),
        (D, 30, "scan"),
        (D, 60, "scan"),
        (A, 100, "scan"),
        (G, 300, "bitmaps"),
        (C, 300, "bitmaps"),
        (D, 300, "bitmaps"),
        (A, 300, "bitmaps"),
        (intervals, 1_000, "windows"),
        (intervals, 20_000, "windows"),
        (G, 50_000, "kd"),
        (C, 1_000, "bitmaps"),
        (C, 20_000, "bitmaps"),
        (D, 1_000, "bitmaps"),
        (A, 1_000, "bitmaps"),
        (B, 20_000, "bitmaps"),
        (F, 20_000, "bitmaps"),
        (some("one of 5", 5, 1, 0.01), 20_000, "windows"),
    ],
)
def test_each_kind_of_boxes_has_its_structure(law: Law, count: int, structure: str) -> None:
    boxes, dims = boxes_of(law, count)
    choices = chosen(boxes, dims)
    assert {choice.structure for choice in choices} == {structure}
    assert sorted(np.concatenate([choice.boxes.slots for choice in choices]).tolist()) == list(range(count))


def test_kinds_that_suit_different_structures_part() -> None:
    """Intervals on attribute 0 beside boxes of 10 of the 20 attributes."""
    one, _ = boxes_of(intervals, 5_000)
    many, dims = boxes_of(A, 5_000)
    sizes: Mapping[str, int] = {
        choice.structure: len(choice.boxes) for choice in chosen(joined([one, many]), dims)
    }
    assert sizes == {"windows": 5_000, "bitmaps": 5_000}


def test_what_the_model_knows() -> None:
    """Ten attributes, two of which every box constrains to a fifth."""
    lo, hi = np.full((2_000, 10), -INF), np.full((2_000, 10), INF)
    lo[:, [2, 7]] = np.random.default_rng(1).random((2_000, 2))
    hi[:, [2, 7]] = lo[:, [2, 7]] + 0.2
    shape = shape_of(sparse(np.arange(2_000, dtype=np.int32), lo, hi), 10)
    assert (shape.boxes, shape.attributes, shape.dims, shape.among) == (2_000, 2.0, 10, 2)
    assert 0.1 < shape.share < 0.3
    assert 0.02 < shape.hits / 2_000 < 0.06


def test_more_of_anything_costs_more() -> None:
    shape = shape_of(*boxes_of(B, 5_000))
    # Twice the boxes have twice the hits.
    sizes = [shape.boxes * scale for scale in (1, 2, 8, 64)]
    more = [chooser.Shape(size, 5.0, 20, 20, size / 1e5, shape.share) for size in sizes]
    wider = [chooser.Shape(shape.boxes, 5.0, 20, 20, 1.0, share) for share in (0.0, 0.1, 0.5, 1.0)]
    for shapes in (more, wider):
        costs = [bitmaps_ns(one) for one in shapes]
        assert costs == sorted(set(costs))


def test_points_are_inside_of_the_boxes_that_they_stand_for() -> None:
    """Of all kinds: wide, open below or above, of one float alone, as far as floats go."""
    nothing_above = np.nextafter(1.0, INF)
    sides = [(0.0, 5.0), (-INF, 3.0), (3.0, INF), (1.0, nothing_above), (LOWEST, MOST), (LOWEST, INF)]
    lo = np.array([[low, other] for low, _ in sides for other, _ in sides])
    hi = np.array([[high, other] for _, high in sides for _, other in sides])
    points = chooser._insides(lo, hi)
    assert ((lo <= points) & (points < hi)).all()


def test_points_of_wide_boxes_are_spread() -> None:
    """Their middles alone would be in all of the boxes."""
    boxes, dims = boxes_of(some("wide", 2, 2, 0.6), 500)
    points = chooser._insides(*dense(boxes, dims))
    assert (points.min(axis=0) < 0.2).all() and (points.max(axis=0) > 0.8).all()
