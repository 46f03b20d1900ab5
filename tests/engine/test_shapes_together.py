"""Shapes that must hold at once: their cells are met within a budget; past it the answers are the same."""

from __future__ import annotations

import math
import random
import time
from typing import Any

import numpy as np
import pytest

from service.engine import clauses, safe_region
from service.engine.clauses import clauses_of
from service.engine.shapes import verified
from service.index.protocol import Hits
from service.language import STORED, Limits, parse_query, parse_source
from service.model import AttributeType, Reason, Refusal, Region, shapes_of

NAMES = [f"a{i}" for i in range(16)]
SOURCE = parse_source("s", {"attributes": dict.fromkeys(NAMES, "number")})
PAIRS = [(NAMES[i], NAMES[i + 1]) for i in range(0, 16, 2)]


def star(at: float, edges: int = 80) -> dict[str, Any]:
    angles = (2 * math.pi * i / edges for i in range(edges))
    ring = [
        [at + (9 if i % 2 else 6) * math.cos(angle), (9 if i % 2 else 6) * math.sin(angle)]
        for i, angle in enumerate(angles)
    ]
    return {"polygon": {"type": "Polygon", "coordinates": [[*ring, ring[0]]]}}


def circle(at: float) -> dict[str, Any]:
    """Across the antimeridian."""
    return {"circle": {"lon": 180 - at, "lat": 0, "radius_m": 500_000}}


def over(shape: dict[str, Any], pair: tuple[str, str]) -> dict[str, Any]:
    return {**shape, "lon": pair[0], "lat": pair[1]}


def region(shapes: list[dict[str, Any]], limits: Limits = Limits()) -> Region:  # noqa: B008
    body = {"source": "s", "where": {"any": [{"in": shapes}]}}
    return parse_query(body, {"s": SOURCE}, id="q", now_ms=0, limits=limits).region


WORLDS = {
    "over one pair": [over(star(i / 4), PAIRS[0]) for i in range(16)],
    "each over its own pair": [over(star(i / 4), pair) for i, pair in enumerate(PAIRS)],
    "two over each pair": [over(star(i / 4), pair) for i in range(2) for pair in PAIRS],
    "a chain": [over(star(i / 4), (NAMES[i], NAMES[i + 1])) for i in range(15)],
    "across the antimeridian": [over(circle(i / 100), PAIRS[0]) for i in range(16)],
    "each across it over its own pair": [over(circle(i), pair) for i in range(2) for pair in PAIRS],
}


@pytest.fixture(params=[None, 1, 0], ids=["the usual budget", "a small one", "none"])
def budget(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param is not None:
        monkeypatch.setattr(clauses, "_MOST_BOXES", 4 * request.param)
        monkeypatch.setattr(clauses, "_MOST_PAIRS", 1_000 * request.param)
        monkeypatch.setattr(safe_region, "_MOST_MET", 100 * request.param)


@pytest.mark.usefixtures("budget")
@pytest.mark.parametrize("name", WORLDS)
def test_what_holds_is_what_each_shape_says(name: str) -> None:
    shapes = WORLDS[name]
    for some in (shapes[:2], shapes[:3], shapes):
        found = region(some)
        (conjunct,) = found.conjuncts
        alone = shapes_of(conjunct)
        assert alone is not None
        assert len(alone.shapes) == len(some)
        random_ = random.Random(1)
        xs = (175.0, 180.0) if "circle" in some[0] else (-9.0, 12.0)
        points = np.array(
            [
                [
                    random_.uniform(*xs) if "antimeridian" in name or i % 2 == 0 else random_.uniform(-9, 9)
                    for i in range(16)
                ]
                for _ in range(400)
            ]
        )
        points[:200, 1:] /= 4
        made = clauses_of(found, NAMES, {})
        held = np.zeros(len(points), dtype=bool)
        for clause in made:
            rows = np.array(
                [
                    i
                    for i, point in enumerate(points)
                    if ((clause.lo <= point) & (point < clause.hi)).all(1).any()
                ],
                dtype=np.int32,
            )
            hits = Hits(rows, np.zeros(len(rows), dtype=np.int32))
            held[rows[verified(hits, points, [clause.tests])]] = True
        wanted = [
            all(
                shape.holds(point[NAMES.index(shape.x)], point[NAMES.index(shape.y)])
                for shape in alone.shapes
            )
            for point in points
        ]
        assert held.tolist() == wanted


@pytest.mark.usefixtures("budget")
@pytest.mark.parametrize("name", WORLDS)
def test_nothing_changes_inside_a_safe_region(name: str) -> None:
    found = region(WORLDS[name])
    random_ = random.Random(2)
    types = dict.fromkeys(NAMES, AttributeType.NUMBER)
    for middle in (2.0, 178.0):
        for _ in range(4):
            values = {
                at: random_.uniform(-4, 4) + (middle if i % 2 == 0 else 0) for i, at in enumerate(NAMES)
            }
            safe = safe_region.safe_region(types, values, [found], most_cuts=1_000)
            for _ in range(50):
                other = dict(values)
                for side in safe.sides:
                    assert isinstance(side, safe_region.NumberSide)
                    low = -20.0 if side.lower is None else side.lower
                    high = 200.0 if side.upper is None else side.upper
                    assert low <= values[side.attribute] < high
                    other[side.attribute] = random_.choice(
                        [low, math.nextafter(high, -math.inf), random_.uniform(low, high)]
                    )
                assert (other in found) is (values in found)


@pytest.mark.parametrize("name", WORLDS)
def test_their_boxes_and_the_work_for_them_are_bounded(name: str) -> None:
    begin = time.thread_time()
    made = clauses_of(region(WORLDS[name]), NAMES, {})
    values = dict.fromkeys(NAMES, 0.0)
    safe_region.safe_region(
        dict.fromkeys(NAMES, AttributeType.NUMBER), values, [region(WORLDS[name])], most_cuts=10
    )
    # Cells met each with each would be 24 ** 8 of them: what is compared is seconds with years.
    assert time.thread_time() - begin < 10
    assert sum(len(clause.lo) for clause in made) <= 64


def test_what_was_accepted_stays_readable_whatever_the_limits_are() -> None:
    many = [over(star(i / 4, 4), PAIRS[0]) for i in range(17)]
    large = [over(star(0, 200), PAIRS[0])]
    with pytest.raises(Refusal, match="16 shapes") as refused:
        region(many)
    assert refused.value.reason is Reason.LIMIT
    strict = Limits(shapes=Limits().shapes._replace(vertices=200))
    with pytest.raises(Refusal, match="max_vertices") as refused:
        region(large, strict)
    assert refused.value.reason is Reason.LIMIT
    region(large, Limits(shapes=Limits().shapes._replace(vertices=201)))
    assert region(many, STORED).has_shapes
    assert region(large, STORED).has_shapes
