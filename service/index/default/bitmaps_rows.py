"""Rows: about which attributes the boxes of a group have bits, and how finely.

Idea: a row of bits for an attribute tells, for each of its windows, which boxes may hold a value there; a box
that leaves the attribute free has all its bits set. A finer row lets fewer boxes through that fail the exact
test; one row more costs a look in every tile. So rows are added, and made finer, one step at a time,
whichever step saves most for a byte, as long as it saves enough and there are bytes left.

Invariants: the shared attributes of the group have the first rows; no attribute has two.

Not for: which attributes are shared (``bitmaps_groups``).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.index.default.bitmaps_groups import COSTS

LEAST_WINDOWS, MOST_WINDOWS = 8, 64
_WORTH = 0.02
"""A step has to save this part of what search costs."""


class Rows(NamedTuple):
    """``attributes[j]`` has row j, with ``windows[j]`` windows, a power of two."""

    attributes: list[int]
    windows: list[int]


def chosen_rows(
    boxes: int,
    shared: list[int],
    density: NDArray[np.float64],
    shares: NDArray[np.float64],
    *,
    tile: int,
    room: float,
) -> Rows:
    """Rows for a group of so many boxes in tiles of ``tile`` boxes. ``density[a]``: the part of its boxes
    that constrain attribute a, 0 to 1; ``shares[a]``: how much of a its mean constraint covers; ``room``:
    bytes of bits for a box, unless the shared attributes alone take more (8 windows take one).

    O(dims log dims + rows**2)."""

    def passing(attribute: int, windows: int) -> float:
        """The part of the boxes that a row lets through."""
        return float(1.0 - density[attribute] * (1.0 - min(shares[attribute] + 1.0 / windows, 1.0)))

    tiles = max(boxes / tile, 1.0)
    parts = tiles ** (1.0 / len(shared))
    looks = tiles * float(np.prod(np.minimum(shares[shared] + (1.0 - shares[shared]) / parts, 1.0)))
    rows = dict.fromkeys(shared, LEAST_WINDOWS)
    left = boxes * float(np.prod([passing(a, LEAST_WINDOWS) for a in shared]))
    spent = len(shared) * LEAST_WINDOWS / 8
    stopped = density * (1.0 - np.minimum(shares + 1.0 / LEAST_WINDOWS, 1.0))
    further = [a for a in np.argsort(-stopped, kind="stable").tolist() if stopped[a] > 0.0 and a not in rows]
    while spent < room:
        worth = _WORTH * (looks * COSTS.row + left * COSTS.box)
        best, step = 0.0, None
        for attribute, windows in rows.items():
            size = windows / 8
            saved = left * (1.0 - passing(attribute, 2 * windows) / passing(attribute, windows)) * COSTS.box
            affordable = windows < MOST_WINDOWS and spent + size <= room
            if affordable and saved > worth and saved / size > best:
                best, step = saved / size, (attribute, 2 * windows)
        if further:
            saved = left * float(stopped[further[0]]) * COSTS.box - looks * COSTS.row
            if saved > max(worth, best):
                step = further.pop(0), LEAST_WINDOWS
        if step is None:
            break
        attribute, windows = step
        before = rows.get(attribute)
        left *= passing(attribute, windows) / (passing(attribute, before) if before else 1.0)
        spent += (windows - (before or 0)) / 8
        rows[attribute] = windows
    return Rows(list(rows), list(rows.values()))
