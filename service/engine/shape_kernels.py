"""Kernels that put points into polygons and circles; ``shapes`` calls them.

A polygon is tested by the edges to the right of a point. Where floating point cannot tell on which side of an
edge the point is, the kernel says so, and rational arithmetic decides (``geometry.inside_exactly``).

Not for: polygons of some thousand edges around most points; ``cover`` keeps those away.
"""

from __future__ import annotations

import math

from numba import types

from service.index.kernel import kernel, reads, writes

OUTSIDE, INSIDE, DOUBTFUL = range(3)

#: Largest error of the determinant of an edge and a point, as part of what it is the difference of
#: (J. R. Shewchuk, "Adaptive Precision Floating-Point Arithmetic", bound A for two dimensions).
_ERROR = (3 + 16 * 2.0**-53) * 2.0**-53
#: Products below the normal numbers lose digits that the bound does not know of.
_TINY = 1e-290


@kernel(
    types.void(
        reads(types.float64, 2),
        reads(types.int64, 1),
        reads(types.int64, 1),
        reads(types.float64, 1),
        reads(types.float64, 1),
        writes(types.uint8, 1),
    )
)
def in_polygons(edges, starts, which, x, y, out):  # type: ignore[no-untyped-def]
    """Writes OUTSIDE, INSIDE or DOUBTFUL for each of n points and its polygon ``which[i]``, whose edges
    ``(ax, ay, bx, by)`` are ``edges[starts[p]:starts[p + 1]]``. An edge or a vertex is inside. O(edges)."""
    for i in range(len(x)):
        px, py = x[i], y[i]
        odd = 0
        for e in range(starts[which[i]], starts[which[i] + 1]):
            ax, ay, bx, by = edges[e, 0], edges[e, 1], edges[e, 2], edges[e, 3]
            if ay == py and (ax == px or (by == py and min(ax, bx) <= px <= max(ax, bx))):
                odd = 1
                break
            if (ay > py) == (by > py) or px > max(ax, bx):
                continue
            if px < min(ax, bx):
                odd ^= 1
                continue
            if ax == bx:  # and px between them
                odd = 1
                break
            left, right = (bx - ax) * (py - ay), (by - ay) * (px - ax)
            apart = left - right
            if not abs(apart) > _ERROR * (abs(left) + abs(right)) + _TINY:
                odd = DOUBTFUL
                break
            if (apart > 0) == (by > ay):
                odd ^= 1
        out[i] = odd


@kernel(
    types.void(
        reads(types.float64, 2), reads(types.float64, 1), reads(types.float64, 1), writes(types.uint8, 1)
    )
)
def in_circles(circles, x, y, out):  # type: ignore[no-untyped-def]
    """Writes OUTSIDE or INSIDE for each of n positions and its circle ``(lon, lat, reach)``; the rule is
    ``geometry.Circle.holds``, operation by operation. O(1) each."""
    for i in range(len(x)):
        px, py = x[i], y[i]
        out[i] = OUTSIDE
        if not (-180.0 <= px <= 180.0 and -90.0 <= py <= 90.0):
            continue
        at_x, at_y = circles[i, 0], circles[i, 1]
        half_y = math.sin(math.radians(py - at_y) * 0.5)
        half_x = math.sin(math.radians(px - at_x) * 0.5)
        between = (
            half_y * half_y + math.cos(math.radians(at_y)) * math.cos(math.radians(py)) * half_x * half_x
        )
        if between <= circles[i, 2]:
            out[i] = INSIDE
