"""Boxes around a shape: a filter for indexes, tighter than its frame where that pays.

A polygon is cut as a quadtree is, the largest cell on its border first. Cells without any of it are dropped;
cells wholly inside are *sure*: a point in them is inside without a test. Small polygons that fill their frame
stay one box, because the test costs less than further boxes; many edges, or a thin polygon, are worth cells.

Invariant: every point of the shape lies in a cell, and every point of a sure cell in the shape.

Not for: the test itself (``shapes``).
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any, NamedTuple

from service.geometry import Polygon, Rectangle, Shape

_FEW_EDGES = 64
"""So many edges are tested faster than another box is looked at."""
_FULL = 0.4
"""A polygon that fills this much of its frame needs no tighter one."""
_MOST_CELLS = 24
#: A cell is judged with this part of its coordinates around it: the library rounds.
_SLACK = 1e-9


class Cell(NamedTuple):
    rectangle: Rectangle
    sure: bool


def cover(shape: Shape) -> list[Cell]:
    """The cells of a shape, at most about ``_MOST_CELLS``. O(cells x edges)."""
    frame = [Cell(rectangle, False) for rectangle in shape.frame()]
    if not isinstance(shape, Polygon):
        return frame
    edges = sum(len(ring) // 16 - 1 for ring in shape.rings)
    if edges <= _FEW_EDGES and shape.area() >= _FULL * _area(frame[0].rectangle):
        return frame
    import shapely

    geometry = shape.geometry()
    shapely.prepare(geometry)
    return _cut(geometry, frame[0].rectangle)


def _cut(geometry: Any, frame: Rectangle) -> list[Cell]:
    done: list[Cell] = []
    border: list[tuple[float, Rectangle]] = [(0.0, frame)]
    while border and len(done) + len(border) <= _MOST_CELLS - 3:
        _, rectangle = heappop(border)
        quarters = _quarters(rectangle)
        if quarters is None:
            done.append(Cell(rectangle, False))
            continue
        for quarter in quarters:
            around = _around(quarter)
            if geometry.disjoint(around):
                continue
            if geometry.contains_properly(around):
                done.append(Cell(quarter, True))
            else:
                heappush(border, (-_area(quarter), quarter))
    return done + [Cell(rectangle, False) for _, rectangle in border]


def _area(rectangle: Rectangle) -> float:
    (x0, x1), (y0, y1) = rectangle
    return (x1 - x0) * (y1 - y0)


def _quarters(rectangle: Rectangle) -> list[Rectangle] | None:
    """The four quarters, or None where float64 has no middle."""
    (x0, x1), (y0, y1) = rectangle
    x, y = x0 / 2 + x1 / 2, y0 / 2 + y1 / 2
    if not (x0 < x < x1 and y0 < y < y1):
        return None
    return [Rectangle(across, up) for across in ((x0, x), (x, x1)) for up in ((y0, y), (y, y1))]


def _around(rectangle: Rectangle) -> Any:
    """The rectangle as a geometry, a little larger than it is."""
    import shapely

    (x0, x1), (y0, y1) = rectangle
    more_x, more_y = (_SLACK * max(abs(lo), abs(hi)) for lo, hi in rectangle)
    return shapely.box(x0 - more_x, y0 - more_y, x1 + more_x, y1 + more_y)
