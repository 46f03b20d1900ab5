"""Shapes in conditions: from what clients write to ``geometry``, and back.

In JSON a disjunct has them under ``in``, a word that no attribute can be called by: one, or a list of which
all must hold::

    {"in": {"polygon": {"type": "Polygon", "coordinates": [...]}, "lon": "x", "lat": "y"}, "sog": {"gt": 10}}
    {"in": {"circle": {"lon": -95.0, "lat": 29.6, "radius_m": 500}}}

``lon`` and ``lat`` beside the shape name the attributes; those are their defaults. A ``MultiPolygon`` is any
of its parts. As text they are ``(lon, lat) in polygon([(0, 0), (4, 0), (4, 4)])``, further rings being holes,
and ``(lon, lat) in circle(-95.0, 29.6, 500)``. There is no opposite of a shape.

Not for: bounds and products (``where``). Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from service.geometry import Circle, Shape, normal
from service.literals import Place, Value, known_fields, number_of
from service.model import IN, Reason, Refusal

POLYGON, CIRCLE = "polygon", "circle"

#: Half the way around the earth: a circle of this radius is everything.
LARGEST_RADIUS_M = 20_037_508.0

_FORMS = 'must be {"polygon": {...}} or {"circle": {"lon", "lat", "radius_m"}}, each with "lon" and "lat"'


class Within(NamedTuple):
    """A position is inside a shape. ``numbers``: of a polygon its rings, lists of pairs; of a circle
    longitude, latitude and radius; all as they were given."""

    attributes: tuple[str, str]
    shape: str
    numbers: Sequence[Any]
    place: Place

    @property
    def vertices(self) -> int:
        """How many positions its rings have, whatever they are."""
        if self.shape == CIRCLE or not isinstance(self.numbers, list | tuple):
            return 0
        return sum(len(ring) for ring in self.numbers if isinstance(ring, list | tuple))


def json_shapes(given: Any, field: str) -> list[list[Within]]:
    """What ``in`` says: shapes of which all must hold, each as the parts of which one must. Raises Refusal:
    syntax, unknown_field, missing_field, bad_value."""
    place = Place(field)
    if not isinstance(given, list):
        return [_json_shape(given, field)]
    if not given:
        raise place.refusal(Reason.SYNTAX, "must be at least one shape")
    return [_json_shape(one, f"{field}[{i}]") for i, one in enumerate(given)]


def _json_shape(given: Any, field: str) -> list[Within]:
    place = Place(field)
    if not isinstance(given, dict) or (POLYGON in given) == (CIRCLE in given):
        raise place.refusal(Reason.SYNTAX, _FORMS)
    known_fields(given, (POLYGON, CIRCLE, "lon", "lat"), field)
    attributes = given.get("lon", "lon"), given.get("lat", "lat")
    for name, attribute in zip(("lon", "lat"), attributes, strict=True):
        if not isinstance(attribute, str):
            raise Refusal(Reason.BAD_VALUE, f"{field}.{name}", "must be the name of an attribute")
    if CIRCLE in given:
        return [Within(attributes, CIRCLE, _circle(given[CIRCLE], f"{field}.{CIRCLE}"), place)]
    inner = f"{field}.{POLYGON}"
    return [
        Within(attributes, POLYGON, rings, Place(where)) for rings, where in _parts(given[POLYGON], inner)
    ]


def _circle(given: Any, field: str) -> list[Any]:
    if not isinstance(given, dict):
        raise Refusal(Reason.SYNTAX, field, 'must be {"lon": ..., "lat": ..., "radius_m": ...}')
    names = ("lon", "lat", "radius_m")
    known_fields(given, names, field)
    for name in names:
        if name not in given:
            raise Refusal(Reason.MISSING_FIELD, f"{field}.{name}", "must be given")
    return [given[name] for name in names]


def _parts(geometry: Any, field: str) -> list[tuple[Sequence[Any], str]]:
    """The polygons of a GeoJSON geometry and where each stands. Members that GeoJSON does not name are left
    alone, as it asks."""
    kind = geometry.get("type") if isinstance(geometry, dict) else None
    if kind not in ("Polygon", "MultiPolygon"):
        detail = 'must be a GeoJSON geometry of the type "Polygon" or "MultiPolygon"'
        raise Refusal(Reason.BAD_VALUE, field, detail)
    coordinates, inside = geometry.get("coordinates"), f"{field}.coordinates"
    if not isinstance(coordinates, list) or not coordinates:
        raise Refusal(Reason.BAD_VALUE, inside, "must be a list of at least one ring or polygon")
    if kind == "Polygon":
        return [(coordinates, inside)]
    return [(part, f"{inside}[{i}]") for i, part in enumerate(coordinates)]


def read_shape(within: Within) -> Shape:
    """The shape itself. Raises Refusal: not_a_number, not_finite, inexact, bad_value."""
    (x, y), place = within.attributes, within.place
    if x == y:
        raise place.refusal(Reason.BAD_VALUE, "a shape needs two attributes; lon and lat name the same")
    if within.shape == CIRCLE:
        return _read_circle(x, y, within.numbers, place)
    rings = [_ring(ring, number, place) for number, ring in enumerate(_list(within.numbers, place, "rings"))]
    try:
        return normal(x, y, rings)
    except ValueError as wrong:
        raise place.refusal(Reason.BAD_VALUE, f"{wrong}; draw it anew") from None


def _read_circle(x: str, y: str, numbers: Sequence[Any], place: Place) -> Circle:
    lon, lat, radius_m = (number_of(Value(number, place)) for number in numbers)
    if not (-180 <= lon <= 180 and -90 <= lat <= 90):
        detail = "the centre must lie within -180..180 and -90..90 degrees; lon comes first"
        raise place.refusal(Reason.BAD_VALUE, detail)
    if not 0 < radius_m <= LARGEST_RADIUS_M:
        detail = f"radius_m must be more than 0 and at most {LARGEST_RADIUS_M:.0f}"
        raise place.refusal(Reason.BAD_VALUE, detail)
    return Circle(x, y, lon, lat, radius_m)


def _list(given: Any, place: Place, what: str) -> Sequence[Any]:
    if not isinstance(given, list | tuple) or not given:
        raise place.refusal(Reason.BAD_VALUE, f"must be a list of at least one of its {what}")
    return given


def _ring(given: Any, number: int, place: Place) -> list[tuple[float, float]]:
    ring = []
    for i, position in enumerate(_list(given, place, "rings")):
        # What comes after longitude and latitude (an altitude) is left alone, as GeoJSON allows.
        if not isinstance(position, list | tuple) or len(position) < 2:
            detail = f"position {i} of ring {number} must be a list of longitude and latitude"
            raise place.refusal(Reason.BAD_VALUE, detail)
        try:
            lon, lat = (number_of(Value(one, place)) for one in position[:2])
        except Refusal as refusal:
            detail = f"position {i} of ring {number}: {refusal.detail}"
            raise Refusal(refusal.reason, refusal.field, detail) from None
        ring.append((lon, lat))
    if len(ring) < 4 or ring[0] != ring[-1]:
        detail = f"ring {number} must have at least 4 positions, the last like the first"
        raise place.refusal(Reason.BAD_VALUE, detail)
    return ring


def shape_json(shape: Shape) -> dict[str, Any]:
    """What ``json_shapes`` takes."""
    if isinstance(shape, Circle):
        body: Any = {"lon": shape.at_x, "lat": shape.at_y, "radius_m": shape.radius_m}
        return {CIRCLE: body, "lon": shape.x, "lat": shape.y}
    rings = [[[x, y] for x, y in ring] for ring in shape.positions()]
    return {POLYGON: {"type": "Polygon", "coordinates": rings}, "lon": shape.x, "lat": shape.y}


def shape_text(shape: Shape) -> str:
    """The same in a condition text."""
    left = f"({shape.x}, {shape.y}) {IN}"
    if isinstance(shape, Circle):
        return f"{left} circle({plain(shape.at_x)}, {plain(shape.at_y)}, {plain(shape.radius_m)})"
    rings = (
        "[" + ", ".join(f"({plain(x)}, {plain(y)})" for x, y in ring[:-1]) + "]" for ring in shape.positions()
    )
    return f"{left} polygon({', '.join(rings)})"


def plain(number: float) -> int | float:
    """The number without a needless point: 5, not 5.0."""
    return int(number) if number.is_integer() and abs(number) < 2**53 else number
