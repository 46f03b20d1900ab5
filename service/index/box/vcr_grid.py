"""The plane under VCR: cells of both attributes and the largest VCR, chosen so that memory follows the boxes.

Idea: each attribute is mapped to cells monotonely (``interval.cei_grid``), so a box becomes the rectangle of
the cells that it meets: its ends rounded outwards, as the paper has it for ends that are no integers (Sect.
2). The cells that no end cuts are covered whole, and this is known exactly; where only such cells are
concerned, nothing has to be compared later.

Cells: what CEI would choose for each attribute alone is made coarser, the finer attribute first, until there
are about as many cells in the plane as boxes, and then until the boxes take no more than some entries each. A
step that is given is kept as long as memory allows it.

L: the papers' trade-off. A larger L means fewer entries and more virtual rectangles, of which more cover a
point. Of the powers of two up to a cap, Lx and Ly are those with the least storage, told from a sample.
Hashing does not store what is not activated, but looks for it: there a VCR counts as much as under a bit
vector.

Not for: mapping values (``interval.cei_grid``). No answer depends on what is chosen here.
"""

from __future__ import annotations

import math
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.index.box.vcr_encoding import distance_table
from service.index.box.vcr_kernels import Plane
from service.index.interval.cei_grid import MOST_STEP, chosen_grid, spans_of
from service.index.interval.cei_kernels import Grid, cells_of
from service.index.protocol import Bounds, Points

Side = NDArray[np.int64]
Steps = tuple[float, float]

ENTRIES_A_BOX = 32
"""The mean number of entries that chosen cells allow."""
MOST_ENTRIES_A_BOX = 1024
"""The mean number of entries up to which a given step is taken as it is."""
_MOST_ENTRIES = 2**31 - 1
_LEAST_IDS, _IDS_A_BOX = 1 << 13, 2048
MOST_IDS = 1 << 26
"""How many VCRs may be there, activated or not, where each takes memory."""
MOST_LONGEST = 64
"""The greatest L of either attribute: beyond it, a search looks at tens of thousands of VCRs."""
_SAMPLE = 4096
_ENTRY_BYTES, _LEAST_ID_BYTES = 4.0, 0.25


class Wish(NamedTuple):
    """What is asked for; None is chosen. ``id_bytes``: what a VCR costs that is not activated."""

    step: Steps | None
    longest: tuple[int, int] | None
    overlapped: bool
    id_bytes: float


class Fit(NamedTuple):
    """The grids of X and Y, the plane over them, and the boxes on it: ``int64[n, 8]`` (``rects_of``)."""

    grids: tuple[Grid, Grid]
    plane: Plane
    rects: NDArray[np.int64]


def fitted(lo: Bounds, hi: Bounds, wish: Wish) -> Fit:
    """The plane for n boxes ``float64[n, 2]``. O(n) each time that cells are made larger, a few times.

    A given step is doubled while there would be too many entries, or too many VCRs that take memory.
    """
    a_box = ENTRIES_A_BOX if wish.step is None else MOST_ENTRIES_A_BOX
    most_entries = min(a_box * max(len(lo), 1), _MOST_ENTRIES)
    most_ids = min(_LEAST_IDS + _IDS_A_BOX * len(lo), MOST_IDS) if wish.id_bytes else math.inf
    grids = _first_grids(lo, hi, wish.step)
    while True:
        rects = rects_of(lo, hi, grids)
        plane = _least_storage(rects, grids, wish)
        entries = int(np.prod(pieces_of(rects, plane, overlapped=wish.overlapped), axis=0).sum())
        excess = max(entries / most_entries, id_count(plane) / most_ids)
        if excess <= 1 or all(grid.cells == 4 for grid in grids):
            return Fit(grids, plane, rects)
        grids = _coarser(lo, hi, grids, halvings=math.ceil(math.log2(excess)))


def rects_of(lo: Bounds, hi: Bounds, grids: tuple[Grid, Grid]) -> NDArray[np.int64]:
    """``int64[n, 8]`` for n boxes, X and then Y: the first cell met and the one behind the last, and the same
    of the cells covered whole, which may be none. O(n)."""
    rects = np.empty((len(lo), 8), np.int64)
    for j, grid in enumerate(grids):
        start, stop, low_cut, high_cut = spans_of(*sides(lo, hi, j), grid).T
        first = np.where(low_cut >= 0, low_cut, start)
        behind = np.where(high_cut >= 0, high_cut + 1, np.maximum(stop, first + 1))
        rects[:, 4 * j : 4 * j + 4] = np.column_stack([first, behind, start, stop])
    return rects


def sides(lo: Bounds, hi: Bounds, j: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The ends of attribute j, contiguous."""
    return np.ascontiguousarray(lo[:, j]), np.ascontiguousarray(hi[:, j])


def pieces_of(rects: NDArray[np.int64], plane: Plane, *, overlapped: bool) -> tuple[Side, Side]:
    """Into how many pieces both sides of every rectangle are cut, ``int64[n]`` each."""
    across, upwards = rects[:, 1] - rects[:, 0], rects[:, 5] - rects[:, 4]
    return _pieces(across, plane.kx, overlapped), _pieces(upwards, plane.ky, overlapped)


def pivots_of(points: Points, grids: tuple[Grid, Grid], plane: Plane) -> NDArray[np.int64]:
    """The id of the pivot VCR of each point ``float64[m, 2]``, -1 where it is in no box (NaN, inf). O(m)."""
    somewhere = (points[:, 0] < np.inf) & (points[:, 1] < np.inf)
    known = points if somewhere.all() else np.where(somewhere[:, None], points, 0.0)
    cells = np.empty((2, len(points)), np.int64)
    for j, grid in enumerate(grids):
        cells_of(np.ascontiguousarray(known[:, j]), grid, cells[j])
    x, y = cells[0] + 1 - (1 << plane.kx), cells[1] + 1  # Ly rows lie below the plane
    pivots: NDArray[np.int64] = (x + y * plane.range_x) * ((plane.kx + 1) * (plane.ky + 1))
    pivots[~somewhere] = -1
    return pivots


def id_count(plane: Plane) -> int:
    """How many ids there are, with those below the plane."""
    return (plane.kx + 1) * (plane.ky + 1) * plane.range_x * (plane.range_y + (1 << plane.ky))


def table_of(plane: Plane) -> NDArray[np.int64]:
    """The distance table."""
    return np.array(distance_table(plane.range_x, (1 << plane.kx, 1 << plane.ky)), np.int64)


def _first_grids(lo: Bounds, hi: Bounds, step: Steps | None) -> tuple[Grid, Grid]:
    steps = step or (None, None)
    grids = [chosen_grid(*sides(lo, hi, j), step=given, segment_length=1) for j, given in enumerate(steps)]
    pair = grids[0], grids[1]
    if step is not None:
        return pair
    excess = pair[0].cells * pair[1].cells / max(len(lo), 1 << 8)
    return _coarser(lo, hi, pair, halvings=math.ceil(math.log2(excess))) if excess > 1 else pair


def _coarser(lo: Bounds, hi: Bounds, grids: tuple[Grid, Grid], *, halvings: int) -> tuple[Grid, Grid]:
    """Grids with a ``2**halvings``-th of the cells or so; every halving is of the finer attribute."""
    cells = [grid.cells for grid in grids]
    times = [0, 0]
    for _ in range(halvings):
        finer = 0 if cells[0] >= cells[1] else 1
        if cells[finer] > 4:
            cells[finer] = max(4, cells[finer] // 2)
            times[finer] += 1
    fresh = list(grids)
    for j in range(2):
        if not times[j]:
            continue
        # A step far below what the boxes ask for would take a thousand doublings.
        asked = chosen_grid(*sides(lo, hi, j), step=None, segment_length=1)
        step = max(2.0 ** times[j] / grids[j].scale, 1 / (16 * asked.scale))
        if step <= MOST_STEP:
            fresh[j] = chosen_grid(*sides(lo, hi, j), step=step, segment_length=1)
        else:
            fresh[j] = grids[j]._replace(cells=cells[j])
    return fresh[0], fresh[1]


def _least_storage(rects: NDArray[np.int64], grids: tuple[Grid, Grid], wish: Wish) -> Plane:
    """The plane with the L that takes the fewest bytes: pointers to lists, and entries."""
    if wish.longest is not None:
        kx, ky = (length.bit_length() - 1 for length in wish.longest)
        return _plane(grids, kx, ky)
    sample = rects[:: max(1, len(rects) // _SAMPLE)]
    levels = range(MOST_LONGEST.bit_length())
    across = np.array([_pieces(sample[:, 1] - sample[:, 0], k, wish.overlapped) for k in levels])
    upwards = np.array([_pieces(sample[:, 5] - sample[:, 4], k, wish.overlapped) for k in levels])
    entries = (across @ upwards.T) * (len(rects) / max(len(sample), 1))

    def storage(kx: int, ky: int) -> float:
        id_bytes = max(wish.id_bytes, _LEAST_ID_BYTES)
        return id_bytes * id_count(_plane(grids, kx, ky)) + _ENTRY_BYTES * float(entries[kx, ky])

    kx, ky = min(product(levels, levels), key=lambda level: (storage(*level), level))
    return _plane(grids, kx, ky)


def _plane(grids: tuple[Grid, Grid], kx: int, ky: int) -> Plane:
    return Plane(max(grids[0].cells, 1 << kx), grids[1].cells, kx, ky)


def _pieces(widths: NDArray[np.int64], k: int, overlapped: bool) -> NDArray[np.int64]:
    """How many pieces each width is cut into."""
    if overlapped:
        longest = np.minimum(k, np.frexp(widths.astype(np.float64))[1] - 1).astype(np.int64)
        pieces: NDArray[np.int64] = -(-widths >> longest)
    else:
        pieces = (widths >> k) + np.bitwise_count(widths & ((1 << k) - 1))
    return pieces
