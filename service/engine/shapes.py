"""The exact test of shapes over many points: the one verify behind every answer about queries with shapes.

A filter of boxes (``cover``, an index) says which points may be inside; here it is decided, for events,
borders, registrations and answers to people alike. Costs nothing where no query has a shape.

Not for: which boxes (``clauses``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from service.engine.shape_kernels import DOUBTFUL, INSIDE, in_circles, in_polygons
from service.geometry import Circle, Polygon, Shape, inside_exactly
from service.index.protocol import Hits, Points

Flags = NDArray[np.bool_]


class Located:
    """A shape over two columns of a point, in the form that kernels take."""

    __slots__ = ("numbers", "shape", "x", "y")

    def __init__(self, shape: Shape, columns: Mapping[str, int]) -> None:
        self.shape = shape
        self.x, self.y = columns[shape.x], columns[shape.y]
        self.numbers = (
            _edges(shape)
            if isinstance(shape, Polygon)
            else np.array([shape.at_x, shape.at_y, shape.reach], dtype=np.float64)
        )


def _edges(polygon: Polygon) -> Points:
    rings = [np.frombuffer(ring, dtype=np.float64).reshape(-1, 2) for ring in polygon.rings]
    return np.concatenate([np.concatenate([ring[:-1], ring[1:]], axis=1) for ring in rings])


def verified(hits: Hits, points: Points, tests: Sequence[Sequence[Located]]) -> Flags:
    """Which (row, clause) of a filter's hits hold, ``bool[h]``: those whose point passes all tests of its
    clause. O(hits + edges looked at)."""
    holds = np.ones(len(hits.rows), dtype=np.bool_)
    wanted = [tests[clause] for clause in hits.slots.tolist()]
    for place in range(max(map(len, wanted), default=0)):
        chosen = [i for i, some in enumerate(wanted) if len(some) > place and holds[i]]
        asked = [wanted[i][place] for i in chosen]
        rows = hits.rows[chosen]
        x = points[rows, [test.x for test in asked]]
        y = points[rows, [test.y for test in asked]]
        holds[chosen] = _holding(asked, x, y)
    return holds


def _holding(tests: Sequence[Located], x: Points, y: Points) -> Flags:
    found = np.empty(len(tests), dtype=np.uint8)
    circles = [i for i, test in enumerate(tests) if isinstance(test.shape, Circle)]
    polygons = [i for i, test in enumerate(tests) if isinstance(test.shape, Polygon)]
    if circles:
        inside = np.empty(len(circles), dtype=np.uint8)
        in_circles(np.stack([tests[i].numbers for i in circles]), x[circles], y[circles], inside)
        found[circles] = inside
    if polygons:
        inside = np.empty(len(polygons), dtype=np.uint8)
        places: dict[int, int] = {}
        which = [places.setdefault(id(tests[i]), len(places)) for i in polygons]
        distinct = list({id(tests[i]): tests[i].numbers for i in polygons}.values())
        starts = np.cumsum([0, *map(len, distinct)])
        in_polygons(np.concatenate(distinct), starts, np.array(which), x[polygons], y[polygons], inside)
        for i in np.flatnonzero(inside == DOUBTFUL).tolist():
            place = polygons[i]
            inside[i] = _decided(tests[place].numbers, float(x[place]), float(y[place]))
        found[polygons] = inside
    return np.equal(found, INSIDE)


def _decided(edges: Points, x: float, y: float) -> bool:
    """The same exactly. O(edges), and rational arithmetic for the few near the point; at every other edge
    comparisons tell as much."""
    ax, ay, bx, by = edges.T
    near = (np.minimum(ay, by) <= y) & (np.maximum(ay, by) >= y) & (np.maximum(ax, bx) >= x)
    return inside_exactly([((ax, ay), (bx, by)) for ax, ay, bx, by in edges[near].tolist()], x, y)
