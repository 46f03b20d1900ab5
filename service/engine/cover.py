"""Boxes around a shape: a filter for indexes, tighter than its frame where that pays.

A polygon is cut as a quadtree is, the largest cell on its border first. Cells without any of it are dropped;
cells wholly inside are *sure*: a point in them is inside without a test. Small polygons that fill their frame
stay one box, because the test costs less than further boxes; many edges, or a thin polygon, are worth cells.

Invariant: every point of the shape lies in a cell, and every point of a sure cell in the shape.

Not for: the test itself (``shapes``).
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

from service.geometry import Judge, Polygon, Rectangle, Relation, Shape

_FEW_EDGES = 64
"""So many edges are tested faster than another box is looked at."""
_FULL = 0.4
"""A polygon that fills this much of its frame needs no tighter one."""
_MOST_CELLS = 24
_DEEPEST = 12
"""So many times a point's own cell is cut before the point is taken out of it."""


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
    return _cut(frame[0].rectangle, shape.judge())


def cover_around(shape: Shape, x: float, y: float) -> list[Cell]:
    """The cells of a shape, of which none that is not sure holds this point: finer around it, and coarse
    where it lies outside the frame. O(cells x edges)."""
    done: list[Cell] = []
    judge = shape.judge()
    for frame in shape.frame():
        rectangle, depth = frame, 0
        if not frame.holds(x, y):
            done.append(Cell(frame, False))
            continue
        while (relation := judge(rectangle)) is Relation.MEETS and depth < _DEEPEST:
            quarters = _quarters(rectangle)
            if quarters is None:
                break
            (rectangle,) = (quarter for quarter in quarters if quarter.holds(x, y))
            others = (quarter for quarter in quarters if quarter is not rectangle)
            done += (cell for quarter in others for cell in _cut(quarter, judge))
            depth += 1
        if relation is Relation.INSIDE:
            done.append(Cell(rectangle, True))
        elif relation is Relation.MEETS:
            done += _isolated(rectangle, x, y, sure=shape.holds(x, y))
    return done


def _cut(frame: Rectangle, judge: Judge) -> list[Cell]:
    done: list[Cell] = []
    border: list[tuple[float, Rectangle]] = []
    waiting = [frame]
    while True:
        for rectangle in waiting:
            relation = judge(rectangle)
            if relation is Relation.INSIDE:
                done.append(Cell(rectangle, True))
            elif relation is Relation.MEETS:
                heappush(border, (-_area(rectangle), rectangle))
        if not border or len(done) + len(border) > _MOST_CELLS - 3:
            return done + [Cell(rectangle, False) for _, rectangle in border]
        _, rectangle = heappop(border)
        quarters = _quarters(rectangle)
        if quarters is None:
            done.append(Cell(rectangle, False))
        waiting = quarters or []


def _isolated(rectangle: Rectangle, x: float, y: float, *, sure: bool) -> list[Cell]:
    """A rectangle as one point of it, dropped where it is not inside, and what lies around."""
    (x0, x1), (y0, y1) = rectangle
    point = Rectangle.closed(x, y, x, y)
    across, up = point
    around = [
        Rectangle((x0, x), (y0, y1)),
        Rectangle((across[1], x1), (y0, y1)),
        Rectangle(across, (y0, y)),
        Rectangle(across, (up[1], y1)),
    ]
    cells = [Cell(point, True)] if sure else []
    return cells + [Cell(one, False) for one in around if one.x[0] < one.x[1] and one.y[0] < one.y[1]]


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
