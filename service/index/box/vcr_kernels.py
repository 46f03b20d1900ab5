"""Kernels of VCR that file: labels of virtual construct rectangles, and decomposition.

Words of the papers: both attributes are cut into *cells*, ``Rx`` and ``Ry`` of them, numbered from 0. At the
bottom-left corner of every cell begin B virtual construct rectangles (*VCRs*), ``(x, y, 2**i, 2**j)`` for i
up to kx and j up to ky, the largest of ``Lx = 2**kx`` by ``Ly = 2**ky`` cells, so ``B = (kx + 1)(ky + 1)``.
They are numbered cell by cell, in rows from the bottom; a VCR that some box is filed under is *activated*.
The VCRs around a point are its *covering VCR set*; their ids are that of the *pivot VCR* ``(a + 1 - Lx, b + 1
- Ly, 1, 1)`` of the point's cell (a, b), plus each number of one *distance table*.

Ids need no case at the borders of the plane. Ly rows lie below it, so that none is negative; and a VCR that
would begin left of the plane has the id of one that begins in the row before and reaches beyond the right
border, which no box is ever filed under.

An entry of an ID list is the number of a box, if the box covers the VCR whole, or its complement, if some end
of the box cuts the VCR: only then is the point compared.

Each kernel has a slow twin in the tests of the index. Not for: search (``vcr_search_kernels``), or the choice
of cells and of L (``vcr_grid``).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types

from service.index.kernel import kernel, reads, writes


class Plane(NamedTuple):
    """``range_x`` by ``range_y`` cells, at least Lx of them in a row; VCRs of up to ``2**kx`` by
    ``2**ky``."""

    range_x: int
    range_y: int
    kx: int
    ky: int


_PLANE: Any = types.NamedUniTuple(types.int64, 4, Plane)  # type: ignore[no-untyped-call]


@kernel(types.int64(types.int64, types.int64, types.int64, types.int64, _PLANE))
def id_of(x, y, i, j, plane):  # type: ignore[no-untyped-def]
    """The id of the VCR ``(x, y, 2**i, 2**j)`` (Eq. 1, with y counted from Ly rows below the plane)."""
    corner = x + (y + (1 << plane.ky)) * plane.range_x
    return corner * ((plane.kx + 1) * (plane.ky + 1)) + j * (plane.kx + 1) + i


@kernel(
    types.int64(
        types.int64, types.int64, types.int64, types.boolean, writes(types.int64, 1), writes(types.int64, 1)
    )
)
def cut_side(start, stop, k, overlapped, places, levels):  # type: ignore[no-untyped-def]
    """Cuts a side ``[start, stop)`` into lengths ``2**levels`` that begin at ``places``, from the left.

    Simple decomposition takes the longest that fits, again and again; overlapped decomposition takes the
    longest that fits at first, and moves the last one back so that it fits too. Both kinds of the papers are
    the VCRs over all pieces of the one side and all pieces of the other: a strip is cut like every other.
    The output must hold ``(stop - start) >> k`` and k + 1 more. Returns the number of pieces.
    """
    level = k
    count = 0
    while start < stop:
        if not overlapped or count == 0:
            while (1 << level) > stop - start:
                level -= 1
        places[count] = min(start, stop - (1 << level))
        levels[count] = level
        count += 1
        start += 1 << level
    return count


@kernel(
    types.int64(
        reads(types.int64, 1),
        types.int64,
        _PLANE,
        types.boolean,
        writes(types.int64, 2),
        writes(types.int64, 1),
        writes(types.int32, 1),
    )
)
def decompose(rect, box, plane, overlapped, pieces, ids, named):  # type: ignore[no-untyped-def]
    """The ids of the VCRs that a rectangle decomposes into, row by row, and the entry of the box in each.

    ``rect``: the first cell, the cell behind the last, and the same of those that the box covers whole, of
    attribute X and then of Y. ``pieces``: ``int64[4, p]``, room to work in. Returns the number of VCRs (Sect.
    2.2).
    """
    across = cut_side(rect[0], rect[1], plane.kx, overlapped, pieces[0], pieces[1])
    upwards = cut_side(rect[4], rect[5], plane.ky, overlapped, pieces[2], pieces[3])
    count = 0
    for v in range(upwards):
        y, j = pieces[2, v], pieces[3, v]
        whole_y = rect[6] <= y and y + (1 << j) <= rect[7]
        for u in range(across):
            x, i = pieces[0, u], pieces[1, u]
            whole = whole_y and rect[2] <= x and x + (1 << i) <= rect[3]
            ids[count] = id_of(x, y, i, j, plane)
            named[count] = box if whole else ~box
            count += 1
    return count


@kernel(
    types.void(
        reads(types.int64, 2),
        _PLANE,
        types.boolean,
        types.int64,
        writes(types.int32, 1),
        writes(types.int32, 1),
    )
)
def file_boxes(rects, plane, overlapped, most, lists, entries):  # type: ignore[no-untyped-def]
    """Files boxes under the VCRs that they decompose into, in two passes.

    ``rects``: ``int64[n, 8]``, as for ``decompose``; ``most``: how many pieces a side, and VCRs a box, there
    may be. With ``entries`` empty, counts: adds one to ``lists[id]`` for every filing. Else ``lists[id]``
    holds where the list ends and is moved down to where it begins, while its boxes are written, in rising
    order. O(entries).
    """
    filing = len(entries) > 0
    pieces = np.empty((4, most), np.int64)
    ids, named = np.empty(most, np.int64), np.empty(most, np.int32)
    for box in range(rects.shape[0] - 1, -1, -1):
        for i in range(decompose(rects[box], box, plane, overlapped, pieces, ids, named)):
            if filing:
                lists[ids[i]] -= 1
                entries[lists[ids[i]]] = named[i]
            else:
                lists[ids[i]] += 1


@kernel(
    types.int64(
        reads(types.int64, 2),
        _PLANE,
        types.boolean,
        types.int64,
        writes(types.int64, 1),
        writes(types.int32, 1),
    )
)
def decompose_all(rects, plane, overlapped, most, ids, entries):  # type: ignore[no-untyped-def]
    """As ``file_boxes``, but writes id and entry of every filing in the order of the boxes; returns how many.
    The output must hold them all."""
    pieces = np.empty((4, most), np.int64)
    some_ids, named = np.empty(most, np.int64), np.empty(most, np.int32)
    filed = 0
    for box in range(rects.shape[0]):
        count = decompose(rects[box], box, plane, overlapped, pieces, some_ids, named)
        ids[filed : filed + count] = some_ids[:count]
        entries[filed : filed + count] = named[:count]
        filed += count
    return filed
