"""Shapes in the plainest Python: winding numbers over fractions, and engines' queries by them.

Nothing here comes from the service: rings are lists of pairs, queries are bodies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import Any

Position = tuple[float, float]


def side(a: Position, b: Position, p: Position) -> Fraction:
    """Positive where p lies to the left of the line from a to b, 0 on it."""
    (ax, ay), (bx, by), (px, py) = (tuple(map(Fraction, one)) for one in (a, b, p))
    return (bx - ax) * (py - ay) - (by - ay) * (px - ax)


def on_edge(a: Position, b: Position, p: Position) -> bool:
    between = all(min(a[i], b[i]) <= p[i] <= max(a[i], b[i]) for i in (0, 1))
    return between and side(a, b, p) == 0


def winding(ring: list[Position], p: Position) -> int:
    turns = 0
    for a, b in pairwise(ring):
        if a[1] <= p[1] < b[1]:
            turns += side(a, b, p) > 0
        elif b[1] <= p[1] < a[1]:
            turns -= side(a, b, p) < 0
    return turns


def in_polygon(rings: list[list[Position]], p: Position) -> bool:
    """Inside the outer ring and no hole, or on any edge."""
    if any(on_edge(a, b, p) for ring in rings for a, b in pairwise(ring)):
        return True
    outer, *holes = rings
    return winding(outer, p) != 0 and not any(winding(hole, p) for hole in holes)


def in_circle(circle: dict[str, float], p: Position) -> bool:
    """By the angle between unit vectors: good to about 1 part in 10**12 of the earth."""
    if not (-180 <= p[0] <= 180 and -90 <= p[1] <= 90):
        return False
    one, other = (unit(*map(math.radians, at)) for at in (p, (circle["lon"], circle["lat"])))
    chord = math.dist(one, other)
    return 2 * math.asin(min(1.0, chord / 2)) * 6_371_008.8 <= circle["radius_m"]


def unit(lon: float, lat: float) -> tuple[float, float, float]:
    return math.cos(lat) * math.cos(lon), math.cos(lat) * math.sin(lon), math.sin(lat)


def in_disjunct(disjunct: dict[str, Any], event: dict[str, Any]) -> bool:
    """JSON disjuncts of ``in`` (over x and y), ``gte``, ``lt`` and ``eq``."""
    for name, wanted in disjunct.items():
        if name != "in":
            value = event.get(name)
            if value is None or not all(_compares(op, value, bound) for op, bound in wanted.items()):
                return False
            continue
        for shape in wanted if isinstance(wanted, list) else [wanted]:
            x, y = event.get("x"), event.get("y")
            if x is None or y is None or not _in_shape(shape, (x, y)):
                return False
    return True


def _compares(op: str, value: Any, bound: Any) -> bool:
    return {"gte": lambda: value >= bound, "lt": lambda: value < bound, "eq": lambda: value == bound}[op]()


def _in_shape(shape: dict[str, Any], p: Position) -> bool:
    if "circle" in shape:
        return in_circle(shape["circle"], p)
    geometry = shape["polygon"]
    parts = geometry["coordinates"] if geometry["type"] == "MultiPolygon" else [geometry["coordinates"]]
    return any(in_polygon([[tuple(at) for at in ring] for ring in part], p) for part in parts)


def inside(where: dict[str, Any], event: dict[str, Any] | None) -> bool:
    return event is not None and any(in_disjunct(one, event) for one in where["any"])


@dataclass
class World:
    """Who is a member, cause by cause: queries of ``where`` and ``keep``, streams of last events."""

    queries: dict[str, dict[str, Any]] = field(default_factory=dict)
    last: dict[str, dict[str, Any]] = field(default_factory=dict)
    members: set[tuple[str, str]] = field(default_factory=set)

    def event(self, event: dict[str, Any]) -> list[str]:
        """The queries that it matches."""
        self.last[event["stream_id"]] = event
        self._settle()
        return sorted(
            id
            for id, body in self.queries.items()
            if inside(body["where"], event) and "match" in body.get("on", ["match"])
        )

    def remove(self, stream_id: str) -> None:
        self.last.pop(stream_id, None)
        self._settle()

    def put(self, body: dict[str, Any]) -> None:
        self.queries[body["id"]] = body
        self._settle()

    def delete(self, id: str) -> None:
        self.queries.pop(id, None)
        self._settle()

    def _settle(self) -> None:
        before = self.members
        self.members = set()
        for stream_id, event in self.last.items():
            for id, body in self.queries.items():
                keeps = (stream_id, id) in before and body.get("keep") and inside(body["keep"], event)
                if inside(body["where"], event) or keeps:
                    self.members.add((stream_id, id))
