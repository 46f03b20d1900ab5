"""One shape and many points: the kernel, its slow twin and the cover against fractions and against GEOS."""

from __future__ import annotations

import math
import random
import time
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
import shapely
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from service import geometry
from service.engine.cover import Cell, cover
from service.engine.shapes import Located, verified
from service.geometry import Circle, Polygon, haversine, lies_in, normal, rectangle_lies_in
from service.index.protocol import Hits
from tests.engine.shape_oracle import in_circle, in_polygon

COLUMNS = {"x": 0, "y": 1}
Ring = list[tuple[float, float]]


def found(shape: Polygon | Circle, points: list[tuple[float, float]]) -> list[bool]:
    """The kernel's verdict."""
    rows = np.arange(len(points), dtype=np.int32)
    hits = Hits(rows, np.zeros(len(points), dtype=np.int32))
    return verified(hits, np.array(points, dtype=np.float64), [(Located(shape, COLUMNS),)]).tolist()


def covered(cells: list[Cell], point: tuple[float, float]) -> list[bool]:
    """Whether each cell that holds the point is sure."""
    return [
        cell.sure
        for cell in cells
        if all(lo <= at < hi for at, (lo, hi) in zip(point, cell.rectangle, strict=True))
    ]


def check_cover(shape: Polygon | Circle, points: list[tuple[float, float]], wanted: list[bool]) -> None:
    """Every point inside is in a cell, and whatever is in a sure one is inside."""
    cells = cover(shape)
    for point, inside in zip(points, wanted, strict=True):
        around = covered(cells, point)
        assert any(around) <= inside <= bool(around)


def closed(ring: Ring) -> Ring:
    return [*ring, ring[0]]


def polygon(rings: list[Ring]) -> Polygon | None:
    try:
        return normal("x", "y", rings)
    except ValueError:
        return None


def check(rings: list[Ring], points: list[tuple[float, float]]) -> None:
    shape = polygon(rings)
    assert shape is not None
    wanted = [in_polygon(rings, point) for point in points]
    assert found(shape, points) == wanted
    assert [shape.holds(*point) for point in points] == wanted
    check_cover(shape, points, wanted)


GRID = st.integers(0, 5).map(float)
RING = st.lists(st.tuples(GRID, GRID), min_size=3, max_size=7, unique=True).map(closed)
HALVES = [(x / 2, y / 2) for x in range(-1, 12) for y in range(-1, 12)]


@settings(max_examples=100, deadline=None)
@given(st.lists(RING, min_size=1, max_size=2))
def test_any_polygon_of_a_small_grid(rings: list[Ring]) -> None:
    assume(polygon(rings) is not None)
    check(rings, HALVES)


NEAR_ZERO = st.builds(lambda sign, power: sign * 10.0**power, st.sampled_from([-1, 1]), st.integers(-18, 2))
ANY = st.one_of(st.floats(-180, 180), NEAR_ZERO, st.integers(-3, 3).map(float))


@settings(max_examples=150, deadline=None)
@given(st.tuples(*[st.tuples(ANY, ANY)] * 3), st.lists(st.floats(0, 1), max_size=4))
def test_points_beside_an_edge_by_one_float(
    corners: tuple[tuple[float, float], ...], parts: list[float]
) -> None:
    ring = closed([(x + 0.0, y + 0.0) for x, y in corners])
    assume(polygon([ring]) is not None)
    points = list(ring)
    for (ax, ay), (bx, by) in pairwise(ring):
        for part in [0.5, *parts]:
            x, y = ax + part * (bx - ax), ay + part * (by - ay)
            points += [(x, y), (math.nextafter(x, 999), y), (x, math.nextafter(y, -999))]
    check([ring], points)


def test_a_point_on_an_edge_that_106_bits_do_not_find() -> None:
    """GEOS 3.14 has it outside: the products of the differences have more digits than its arithmetic."""
    ring = closed(
        [
            (99.82536765110888, -2.3379528840681587),
            (-165.5224382434209, 100.00054370785821),
            (-3.0, -43.76238067234209),
        ]
    )
    point = (33.48841617747643, 23.246671263913434)
    assert in_polygon([ring], point)
    check([ring], [point])


@pytest.mark.parametrize("edges", [8, 200, 3_000])
def test_a_large_polygon_agrees_with_the_library(edges: int) -> None:
    made = random.Random(edges)
    angles = [2 * math.pi * i / edges for i in range(edges)]
    radii = [made.uniform(8, 9) for _ in angles]
    ring = closed([(r * math.cos(a), r * math.sin(a)) for r, a in zip(radii, angles, strict=True)])
    shape = normal("x", "y", [ring])
    points = [(made.uniform(-10, 10), made.uniform(-10, 10)) for _ in range(2_000)]
    wanted = shapely.intersects_xy(shape.geometry(), np.array(points)).tolist()
    assert found(shape, points) == wanted
    check_cover(shape, points, wanted)
    if edges > 100:
        cells = cover(shape)
        assert sum(any(covered(cells, point)) for point in points) > 0.4 * sum(wanted)


def comb(teeth: int) -> Polygon:
    """Upright teeth, side by side, and on their left a slanting side from (-2 * teeth, 0) to
    (-2 * teeth - 1, 3)."""
    ring = [(-2.0 * i - dx, y) for i in range(teeth) for dx, y in ((0, -1.0), (0.5, 2.0), (1, -1.0))]
    left = -2.0 * teeth
    return normal("x", "y", [closed([*ring, (left, 0.0), (left - 1, 3.0), (left - 1, -2.0), (0.0, -2.0)])])


def test_of_many_edges_beside_a_point_few_take_rational_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[float] = []

    def counted(number: float) -> Fraction:
        made.append(number)
        return Fraction(number)

    monkeypatch.setattr(geometry, "Fraction", counted)
    shape = comb(500)
    x = -1000.5
    points = [(x, 1.5), (math.nextafter(x, 0), 1.5), (math.nextafter(x, -2000), 1.5)]
    wanted = [in_polygon(shape.positions(), point) for point in points]
    made.clear()
    assert found(shape, points) == wanted
    assert [shape.holds(*point) for point in points] == wanted
    assert len(made) == 4 * 8  # four times of one edge


def test_a_point_at_an_edge_costs_little_more_than_another() -> None:
    angles = [2 * math.pi * i / 20_000 for i in range(20_000)]
    ring = closed([(2.0, 0.0), *((math.cos(a), math.sin(a)) for a in angles[1:])])
    shape = normal("x", "y", [ring])
    (ax, ay), (bx, by) = ring[0], ring[1]
    located, hits = Located(shape, {"x": 0, "y": 1}), Hits(np.zeros(9, np.int32), np.zeros(9, np.int32))

    def cost_s(x: float, y: float) -> float:
        """Best of several, of this thread."""
        costs = []
        for _ in range(7):
            begin = time.thread_time()
            verified(hits, np.array([[x, y]]), [[located]])
            costs.append(time.thread_time() - begin)
        return min(costs)

    beside, within = cost_s((ax + bx) / 2, (ay + by) / 2), cost_s(0.5, 0.1)
    assert beside < 40 * within


def test_a_thin_polygon_has_a_tight_cover() -> None:
    shape = normal("x", "y", [closed([(0.0, 0.0), (100.0, 99.0), (100.0, 100.0)])])
    area = sum((x1 - x0) * (y1 - y0) for (x0, x1), (y0, y1) in (cell.rectangle for cell in cover(shape)))
    assert area < 0.4 * 100 * 100


INVALID = {
    "crosses itself": [[(0, 0), (4, 4), (4, 0), (0, 4), (0, 0)]],
    "no area": [[(0, 0), (1, 1), (2, 2), (0, 0)]],
    "one point": [[(0, 0), (0, 0), (0, 0), (0, 0)]],
    "a hole outside": [[(0, 0), (1, 0), (1, 1), (0, 0)], [(5, 5), (6, 5), (6, 6), (5, 5)]],
    "a hole across": [[(0, 0), (4, 0), (4, 4), (0, 4), (0, 0)], [(2, 2), (6, 2), (6, 3), (2, 2)]],
    "holes that overlap": [
        [(0, 0), (9, 0), (9, 9), (0, 9), (0, 0)],
        [(1, 1), (5, 1), (5, 5), (1, 5), (1, 1)],
        [(4, 4), (8, 4), (8, 8), (4, 8), (4, 4)],
    ],
    "too far": [[(0, 0), (1e200, 0), (1e200, 1), (0, 0)]],
}


@pytest.mark.parametrize("rings", INVALID.values(), ids=INVALID)
def test_what_is_no_polygon_is_refused(rings: list[Ring]) -> None:
    with pytest.raises(ValueError, match=r"is no valid polygon: \w|beyond"):
        normal("x", "y", rings)


def test_one_polygon_has_one_form() -> None:
    ring = [(0.0, 0.0), (4.0, 0.0), (4.0, 4.0)]
    turned = [ring[1:] + ring[:1], ring[2:] + ring[:2], ring[::-1], [(-0.0, 0.0), *ring[1:]]]
    assert {normal("x", "y", [closed(one)]) for one in [ring, *turned]} == {normal("x", "y", [closed(ring)])}


def test_an_upright_rectangle_is_told_from_what_looks_like_one() -> None:
    square = [(0.0, 0.0), (4.0, 0.0), (4.0, 3.0), (0.0, 3.0)]
    rectangle = normal("x", "y", [closed(square)]).rectangle()
    assert rectangle == ((0.0, math.nextafter(4, 9)), (0.0, math.nextafter(3, 9)))
    assert normal("x", "y", [closed(square[:3])]).rectangle() is None
    hole = [(1.0, 1.0), (2.0, 1.0), (2.0, 2.0)]
    assert normal("x", "y", [closed(square), closed(hole)]).rectangle() is None


LON, LAT = st.floats(-180, 180), st.floats(-90, 90)


@settings(max_examples=200, deadline=None)
@given(LON, LAT, st.floats(1.0, 2.0e7), st.lists(st.tuples(LON, LAT), max_size=10), st.floats(0, 6.3))
def test_any_circle(
    lon: float, lat: float, radius_m: float, points: list[tuple[float, float]], bearing: float
) -> None:
    shape = Circle("x", "y", lon, lat, radius_m)
    points = [*points, *(destination(lon, lat, radius_m * part, bearing) for part in (0.5, 0.9999, 1.0001))]
    check_cover(shape, points, found(shape, points))
    for point, inside in zip(points, found(shape, points), strict=True):
        assert inside == shape.holds(*point)
        larger, smaller = ({"lon": lon, "lat": lat, "radius_m": radius_m * part} for part in (1.0001, 0.9999))
        assert in_circle(smaller, point) <= inside <= in_circle(larger, point)


def destination(lon: float, lat: float, way_m: float, bearing: float) -> tuple[float, float]:
    """The position so far away in a direction."""
    angle, phi = way_m / 6_371_008.8, math.radians(lat)
    sine = math.sin(phi) * math.cos(angle) + math.cos(phi) * math.sin(angle) * math.cos(bearing)
    there = math.asin(max(-1.0, min(1.0, sine)))
    east = math.atan2(
        math.sin(bearing) * math.sin(angle) * math.cos(phi), math.cos(angle) - math.sin(phi) * sine
    )
    return (lon + math.degrees(east) + 180) % 360 - 180, math.degrees(there)


def test_circles_at_the_antimeridian_and_the_poles() -> None:
    fiji = Circle("x", "y", 179.9, -17.0, 50_000.0)
    assert found(
        fiji, [(-179.9, -17.0), (179.6, -17.0), (-179.0, -17.0), (180.0, -17.0), (-180.0, -17.0)]
    ) == [*(True, True, False, True, True)]
    assert len(cover(fiji)) == 2
    pole = Circle("x", "y", 20.0, 89.9, 50_000.0)
    assert found(pole, [(-160.0, 89.9), (20.0, 89.6), (20.0, 89.0), (75.0, 90.0)]) == [
        True,
        True,
        False,
        True,
    ]
    everything = Circle("x", "y", 0.0, 0.0, 2.003e7)
    assert found(everything, [(180.0, 0.0), (180.0, 0.5), (181.0, 0.0), (0.0, 91.0)]) == [
        True,
        True,
        False,
        False,
    ]


def test_the_border_of_a_circle_is_the_rule_to_the_last_bit() -> None:
    """The circle whose reach is a position's own haversine holds it, the next smaller one does not."""
    made = random.Random(3)
    circles, points = [], []
    for _ in range(2_000):
        lon, lat = made.uniform(-180, 180), made.uniform(-90, 90)
        point = destination(lon, lat, made.uniform(1, 1e6), made.uniform(0, 6.3))
        between = haversine(*point, lon, lat)
        circles.append((lon, lat, between))
        points.append(point)
    tests = [Located(Circle("x", "y", lon, lat, 1.0), COLUMNS) for lon, lat, _ in circles]
    hits = Hits(np.arange(len(points), dtype=np.int32), np.arange(len(points), dtype=np.int32))
    for test, (_, _, between) in zip(tests, circles, strict=True):
        test.numbers[2] = between
    assert verified(hits, np.array(points), [(test,) for test in tests]).all()
    for test, (_, _, between) in zip(tests, circles, strict=True):
        test.numbers[2] = math.nextafter(between, 0)
    assert not verified(hits, np.array(points), [(test,) for test in tests]).any()


SHAPES = st.one_of(
    RING.map(lambda ring: polygon([ring])).filter(lambda shape: shape is not None),
    st.builds(Circle, st.just("x"), st.just("y"), GRID, GRID, st.sampled_from([1e5, 2e5, 4e5])),
)


@settings(max_examples=150, deadline=None)
@given(SHAPES, SHAPES)
def test_what_lies_in_another_is_held_by_it(inner: Polygon | Circle, outer: Polygon | Circle) -> None:
    if lies_in(inner, outer):
        assert [
            b for a, b in zip(found(inner, HALVES), found(outer, HALVES), strict=True) if a and not b
        ] == []
    for rectangle in inner.frame():
        if rectangle_lies_in(rectangle, outer):
            held = [
                p for p in HALVES if all(lo <= at < hi for at, (lo, hi) in zip(p, rectangle, strict=True))
            ]
            assert all(found(outer, held)) or not held


def test_lying_in_another_is_found_where_it_should_be() -> None:
    small, large = (normal("x", "y", [closed([(0.0, 0.0), (a, 0.0), (a, a)])]) for a in (3.0, 4.0))
    assert lies_in(small, large)
    assert not lies_in(large, small)
    near, far = Circle("x", "y", 3.0, 1.0, 1_000.0), Circle("x", "y", 3.001, 1.0, 2_000.0)
    assert lies_in(near, far)
    assert lies_in(near, Circle("x", "y", 3.0, 1.0, 1_000.5))
    assert lies_in(near, large)
    assert not lies_in(small, far)
