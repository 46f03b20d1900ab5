"""Shapes on a plane or a globe: polygons over two number attributes, and circles on the sphere.

A polygon is planar in the two attributes, whatever their unit; its edges are straight there. A point is
inside if it is within the outer ring and in no hole, or exactly on an edge or a vertex of either. The test
decides as rational arithmetic does. So that is the meaning of longitude and latitude, too: nothing wraps at
the antimeridian (RFC 7946 says to split a polygon there).

A circle is what lies within ``radius_m`` of a centre on a sphere of the earth's mean radius R; there is no
edge at the antimeridian or a pole. The rule, in float64: ``haversine(...) <= sin(radius_m / 2R) ** 2``. A
position beyond 180 or 90 degrees is in no circle.

Invariants: rings are closed, in the normal form of the library (first vertex, direction, order of holes), so
equal polygons have equal rings; no coordinate is NaN, infinite or ``-0.0``. ``frame`` is never too small.

Not for: many points at once (``engine.shapes``), nor bodies of requests (``shapes``). Pure.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

#: Mean radius of the earth (IUGG), m.
EARTH_M = 6_371_008.8

#: What floating-point sines may be wrong by, with room to spare: degrees, and parts of a radius.
_MARGIN_DEG = 1e-9
_MARGIN = 1e-9

#: A rectangle is judged with this part of its coordinates around it: the library rounds, and so do sines.
_SLACK = 1e-9

#: Squares of larger coordinates are not what they should be.
_LARGEST = 1e100

#: Circles of different centres must keep this far apart to lie in one another for certain, m.
_NESTED_M = 0.01

Position = tuple[float, float]
Ring = Sequence[Position]


class Rectangle(NamedTuple):
    """``[lo, hi)`` of the first and of the second attribute."""

    x: tuple[float, float]
    y: tuple[float, float]

    @classmethod
    def closed(cls, x0: float, y0: float, x1: float, y1: float) -> Rectangle:
        """The smallest that holds both corners."""
        return cls((x0, _above(x1)), (y0, _above(y1)))

    def holds(self, x: float, y: float) -> bool:
        (x0, x1), (y0, y1) = self
        return x0 <= x < x1 and y0 <= y < y1


def around(some: Sequence[Rectangle]) -> Rectangle:
    """The smallest rectangle around these, of which there is at least one."""
    los = (min(one.x[0] for one in some), min(one.y[0] for one in some))
    his = (max(one.x[1] for one in some), max(one.y[1] for one in some))
    return Rectangle((los[0], his[0]), (los[1], his[1]))


def _above(number: float) -> float:
    return math.nextafter(number, math.inf) + 0.0


def _below(number: float) -> float:
    return math.nextafter(number, -math.inf)


class Relation(Enum):
    """What a shape is to a rectangle. Only MEETS may be said where another is true."""

    OUTSIDE = "outside"
    INSIDE = "inside"
    MEETS = "meets"


Judge = Callable[[Rectangle], Relation]
"""How a rectangle lies to a shape: wholly outside, wholly inside, or maybe neither."""


@dataclass(frozen=True, slots=True)
class Polygon:
    """Over the attributes ``x`` and ``y``. ``rings``: the outer one, then holes; each is float64 pairs as
    bytes, which is what they take least room in."""

    x: str
    y: str
    rings: tuple[bytes, ...]

    @property
    def key(self) -> tuple[Any, ...]:
        """Sorts shapes, and tells any two apart."""
        return ("polygon", self.x, self.y, self.rings)

    def positions(self) -> list[Ring]:
        """The rings as positions, each closed."""
        return [_positions(ring) for ring in self.rings]

    def frame(self) -> list[Rectangle]:
        """The smallest rectangle around it."""
        outer = _positions(self.rings[0])
        xs, ys = [x for x, _ in outer], [y for _, y in outer]
        return [Rectangle.closed(min(xs), min(ys), max(xs), max(ys))]

    def rectangle(self) -> Rectangle | None:
        """The rectangle that it is, if it is one."""
        (frame,) = self.frame()
        outer = _positions(self.rings[0])
        ends = {frame.x[0], math.nextafter(frame.x[1], -math.inf)}
        sides = {frame.y[0], math.nextafter(frame.y[1], -math.inf)}
        upright = all(x in ends and y in sides for x, y in outer)
        # A valid ring that meets only the corners of its frame is the frame, unless it cuts a corner off.
        return frame if upright and len(set(outer)) == 4 and len(self.rings) == 1 else None

    def holds(self, x: float, y: float) -> bool:
        """Whether a point is inside, by rational arithmetic. O(vertices)."""
        return inside_exactly([edge for ring in self.positions() for edge in pairwise(ring)], x, y)

    def distance(self, x: float, y: float) -> float:
        """From a point outside to the nearest edge, in the units of the attributes."""
        import shapely

        return float(shapely.distance(self.geometry(), shapely.points(x, y)))

    def area(self) -> float:
        """In the units of the attributes, nearly."""
        rings = ((a[0] * b[1] - b[0] * a[1] for a, b in pairwise(ring)) for ring in self.positions())
        outer, *holes = (abs(sum(ring)) / 2 for ring in rings)
        return outer - sum(holes)

    def judge(self) -> Judge:
        """See there. O(edges) to make and at most for each rectangle."""
        import shapely

        geometry = self.geometry()
        shapely.prepare(geometry)

        def judged(rectangle: Rectangle) -> Relation:
            (x0, x1), (y0, y1) = rectangle
            more_x, more_y = (_SLACK * max(abs(lo), abs(hi)) for lo, hi in rectangle)
            around = shapely.box(x0 - more_x, y0 - more_y, x1 + more_x, y1 + more_y)
            if geometry.disjoint(around):
                return Relation.OUTSIDE
            return Relation.INSIDE if geometry.contains_properly(around) else Relation.MEETS

        return judged

    def geometry(self) -> Any:
        """The same for the library."""
        import numpy as np
        import shapely

        rings = [np.frombuffer(ring).reshape(-1, 2) for ring in self.rings]
        return shapely.polygons(*_linear(rings))


@dataclass(frozen=True, slots=True)
class Circle:
    """Around longitude ``at_x`` and latitude ``at_y``, degrees; over the attributes ``x`` and ``y``."""

    x: str
    y: str
    at_x: float
    at_y: float
    radius_m: float

    @property
    def key(self) -> tuple[Any, ...]:
        """Sorts shapes, and tells any two apart."""
        return ("circle", self.x, self.y, self.at_x, self.at_y, self.radius_m)

    @property
    def reach(self) -> float:
        """The largest ``haversine`` inside; above 1 where the circle is the whole sphere."""
        half = self.radius_m / (2 * EARTH_M)
        return math.sin(half) ** 2 if half < math.pi / 2 else 2.0

    def frame(self) -> list[Rectangle]:
        """Rectangles around it: two where it crosses the antimeridian."""
        angle = self.radius_m / EARTH_M * (1 + _MARGIN)
        south = self.at_y - math.degrees(angle) - _MARGIN_DEG
        north = self.at_y + math.degrees(angle) + _MARGIN_DEG
        whole = [Rectangle.closed(-180.0, max(south, -90.0), 180.0, min(north, 90.0))]
        if south <= -90 or north >= 90:
            return whole
        ratio = math.sin(angle) / math.cos(math.radians(self.at_y))
        if ratio >= 1:
            return whole
        wide = math.degrees(math.asin(ratio)) * (1 + _MARGIN) + _MARGIN_DEG
        west, east = self.at_x - wide, self.at_x + wide
        if wide >= 180:
            return whole
        if west < -180:
            return [_band(-180.0, east, south, north), _band(west + 360 - _MARGIN_DEG, 180.0, south, north)]
        if east > 180:
            return [_band(west, 180.0, south, north), _band(-180.0, east - 360 + _MARGIN_DEG, south, north)]
        return [_band(west, east, south, north)]

    def holds(self, x: float, y: float) -> bool:
        """Whether a position is inside."""
        if not (-180 <= x <= 180 and -90 <= y <= 90):
            return False
        return haversine(x, y, self.at_x, self.at_y) <= self.reach

    def judge(self) -> Judge:
        """See there. O(1) for each rectangle."""
        reach, scale = self.reach, math.cos(math.radians(self.at_y))

        def judged(rectangle: Rectangle) -> Relation:
            (x0, x1), (y0, y1) = rectangle
            if x0 < -180 or _below(x1) > 180 or y0 < -90 or _below(y1) > 90:
                return Relation.MEETS
            x_near, x_far = _half_sines(x0 - self.at_x, x1 - self.at_x)
            y_near, y_far = _half_sines(y0 - self.at_y, y1 - self.at_y)
            flat = math.cos(math.radians(min(abs(y0), abs(y1)) if (y0 > 0) == (y1 > 0) else 0.0))
            steep = math.cos(math.radians(max(abs(y0), abs(y1))))
            if y_near + scale * steep * x_near > reach * (1 + _SLACK) + _SLACK**2:
                return Relation.OUTSIDE
            far = y_far + scale * flat * x_far
            return Relation.INSIDE if far < reach * (1 - _SLACK) - _SLACK**2 else Relation.MEETS

        return judged

    def distance(self, x: float, y: float) -> float:
        """From a position outside to the edge, m."""
        return max(metres(x, y, self.at_x, self.at_y) - self.radius_m, 0.0)


def _half_sines(begin: float, end: float) -> tuple[float, float]:
    """The least and the largest square of the sine of half an angle from ``begin`` to ``end`` degrees, both
    within a turn of 0."""
    ends = [math.sin(math.radians(angle) * 0.5) ** 2 for angle in (begin, end)]
    least = 0.0 if begin <= 0 <= end else min(ends)
    largest = 1.0 if begin <= 180 <= end or begin <= -180 <= end else max(ends)
    return least, largest


def _band(west: float, east: float, south: float, north: float) -> Rectangle:
    return Rectangle.closed(west, south, east, north)


Shape = Polygon | Circle


@dataclass(frozen=True, slots=True)
class Shapes:
    """A bound on two attributes or more: inside every one of these shapes, of which there is at least one."""

    shapes: frozenset[Shape]

    @property
    def key(self) -> tuple[Any, ...]:
        """Sorts shapes, and tells any two apart."""
        return tuple(sorted(shape.key for shape in self.shapes))

    @property
    def attributes(self) -> frozenset[str]:
        return frozenset(name for shape in self.shapes for name in (shape.x, shape.y))

    def ordered(self) -> list[Shape]:
        return sorted(self.shapes, key=lambda shape: shape.key)


def haversine(x: float, y: float, at_x: float, at_y: float) -> float:
    """Of the angle between two positions in degrees: the square of the sine of its half."""
    half_y = math.sin(math.radians(y - at_y) * 0.5)
    half_x = math.sin(math.radians(x - at_x) * 0.5)
    return half_y * half_y + math.cos(math.radians(at_y)) * math.cos(math.radians(y)) * half_x * half_x


def metres(x: float, y: float, at_x: float, at_y: float) -> float:
    """Between two positions in degrees, over the sphere."""
    return 2 * EARTH_M * math.asin(min(1.0, math.sqrt(haversine(x, y, at_x, at_y))))


def inside_exactly(edges: Sequence[tuple[Position, Position]], x: float, y: float) -> bool:
    """Whether a point is on an edge or has an odd number of edges to its right. O(edges); rational arithmetic
    is for those in whose frame the point is."""
    odd = False
    for (ax, ay), (bx, by) in edges:
        if (ax, ay) == (x, y) or (ay == by == y and min(ax, bx) <= x <= max(ax, bx)):
            return True
        if (ay > y) == (by > y) or x > max(ax, bx):
            continue
        if x < min(ax, bx):
            odd = not odd
            continue
        left = (Fraction(bx) - Fraction(ax)) * (Fraction(y) - Fraction(ay))
        right = (Fraction(by) - Fraction(ay)) * (Fraction(x) - Fraction(ax))
        if left == right:
            return True
        odd ^= (left > right) == (by > ay)
    return odd


def normal(x: str, y: str, rings: Sequence[Ring]) -> Polygon:
    """A polygon in its normal form. ValueError says what is wrong with it: a ring that crosses or runs along
    itself or another, a hole outside, no area."""
    import shapely

    if any(abs(number) > _LARGEST for ring in rings for position in ring for number in position):
        raise ValueError(f"has a coordinate beyond {_LARGEST:g}")
    polygon = shapely.polygons(*_linear(rings))
    if not shapely.is_valid(polygon):
        raise ValueError(f"is no valid polygon: {shapely.is_valid_reason(polygon)}")
    polygon = shapely.normalize(polygon)
    holes = shapely.get_num_interior_rings(polygon)
    found = [shapely.get_exterior_ring(polygon)]
    found += [shapely.get_interior_ring(polygon, hole) for hole in range(holes)]
    # The sum makes zeros of negative ones.
    return Polygon(x, y, tuple((shapely.get_coordinates(ring) + 0.0).tobytes() for ring in found))


def _linear(rings: Sequence[Any]) -> tuple[Any, list[Any] | None]:
    """The outer ring and the holes for the library."""
    import shapely

    outer, *holes = (shapely.linearrings(ring) for ring in rings)
    return outer, holes or None


def _positions(ring: bytes) -> list[Position]:
    numbers = array("d", ring).tolist()
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def lies_in(inner: Shape, outer: Shape) -> bool:
    """Whether one shape surely lies in another over the same attributes. A circle lies in a polygon only if
    its frame does, a polygon in no circle, and a circle in another only if 1 cm of room is left."""
    if inner == outer:
        return True
    if (inner.x, inner.y) != (outer.x, outer.y):
        return False
    if isinstance(outer, Polygon):
        if isinstance(inner, Polygon):
            return bool(outer.geometry().covers(inner.geometry()))
        return all(rectangle_lies_in(frame, outer) for frame in inner.frame())
    if isinstance(inner, Polygon):
        return False
    if (inner.at_x, inner.at_y) == (outer.at_x, outer.at_y):
        return inner.radius_m <= outer.radius_m
    apart_m = metres(inner.at_x, inner.at_y, outer.at_x, outer.at_y)
    return apart_m + inner.radius_m + _NESTED_M <= outer.radius_m


def rectangle_lies_in(rectangle: Rectangle, outer: Shape) -> bool:
    """Whether a rectangle surely lies in a shape: never in a circle."""
    (x0, x1), (y0, y1) = rectangle
    if not isinstance(outer, Polygon) or math.inf in (x1, y1):
        return False
    import shapely

    box = shapely.box(x0, y0, math.nextafter(x1, -math.inf), math.nextafter(y1, -math.inf))
    return bool(outer.geometry().covers(box))
