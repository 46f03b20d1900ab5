"""Which attributes of a group get a row of bitmaps, and into how many windows each is cut.

Idea: a bitmap row leaves fewer boxes to be verified, and takes memory and time of its own. Beginning with the
shared attributes in a few windows each, what saves most a byte is added as long as it saves more than it
costs: twice as many windows of a row, or a row for an attribute that many of the boxes constrain.

Not for: which boxes make a group (``signatures``), or the bits (``bitmaps_kernels``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

LEAST_WINDOWS, MOST_WINDOWS = 8, 64
_MOST_BYTES = 24.0
"""Bytes of bitmaps a box; a row of 8 windows takes one."""
_ROW_NS, _BOX_NS = 2.2, 20.0
"""What a row costs a tile that is looked at, and a box that is left to verify."""
_LEAST_DENSITY = 0.02
_LEAST_GAIN = 0.02
"""Less than this share of what a search costs is not worth more windows."""


class Row(NamedTuple):
    attribute: int
    windows: int


def chosen_rows(
    boxes: int, shared: Sequence[int], density: NDArray[np.float64], shares: NDArray[np.float64], tile: int
) -> list[Row]:
    """The rows of a group of so many boxes, the shared attributes first, for tiles of ``tile`` boxes.

    ``density[a]``: the share of the boxes that constrain attribute a; ``shares[a]``: how much of it an
    average constraint covers. O(rows**2)."""
    rows = dict.fromkeys(shared, LEAST_WINDOWS)
    tiles = max(boxes / tile, 1.0)
    parts = tiles ** (1 / len(shared))
    visited = tiles * math.prod(min(1.0, shares[a] + (1 - shares[a]) / parts) for a in shared)

    def passing(attribute: int, windows: int) -> float:
        return float(1 - density[attribute] * (1 - min(1.0, shares[attribute] + 1 / windows)))

    left = boxes * math.prod(passing(a, LEAST_WINDOWS) for a in shared)
    candidates = [int(a) for a in np.argsort(-density, kind="stable") if density[a] > _LEAST_DENSITY]
    spent = float(len(rows))
    while True:
        best, row = 0.0, None
        for attribute in candidates:
            windows = rows.get(attribute)
            if windows is None:
                gain = left * (1 - passing(attribute, LEAST_WINDOWS)) * _BOX_NS - visited * _ROW_NS
                price, wanted = 1.0, LEAST_WINDOWS
            elif windows < MOST_WINDOWS:
                gain = left * (1 - passing(attribute, 2 * windows) / passing(attribute, windows)) * _BOX_NS
                price, wanted = windows / 8, 2 * windows
                if gain <= _LEAST_GAIN * (visited * _ROW_NS + left * _BOX_NS):
                    continue
            else:
                continue
            if gain / price > best and spent + price <= _MOST_BYTES:
                best, row = gain / price, Row(attribute, wanted)
        if row is None:
            return [Row(*item) for item in rows.items()]
        before = rows.get(row.attribute)
        left *= passing(*row) / (passing(row.attribute, before) if before else 1.0)
        spent += (row.windows - (before or 0)) / 8
        rows[row.attribute] = row.windows
