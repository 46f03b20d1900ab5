"""Whether a kd partition is that of its boxes: the slow twin of ``kd_tree`` and ``kd_leaves``, for tests.

Idea: from the values of the splits alone follow the cells; from cells and boxes, who has to be filed where.

Not for: production; O(n leaves).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from service.index.default.kd_kernels import BLOCK, Search, cell_of
from service.index.default.kd_leaves import filled, leaves_of

Cell = NDArray[np.float64]
"""``float64[2, k]``: lower and upper ends."""


def check_search(search: Search, root: int) -> None:
    """Asserts that it is made of its boxes."""
    lo, hi = search.lo, search.hi
    dims = lo.shape[1]
    cells = _cells(search, root, dims)
    listed: list[NDArray[np.int32]] = []
    above_leaf = search.leaves.view(np.int32)[:, -1]
    for leaf, (low, high) in enumerate(cells.tolist()):
        filed = [_cutting(search, leaf, dims)]
        listed.append(filed[0])
        for cover in _chain(search, int(above_leaf[leaf])):
            covering, named = search.covering[search.covers[cover, 0] : search.covers[cover + 1, 0]].T
            assert len(covering) and np.array_equal(named, search.slots[covering])
            assert ((lo[covering] <= low) & (high <= hi[covering])).all()
            filed.append(covering)
        # Once each, not merely at all.
        meets = ((lo < high) & (hi > low)).all(axis=1)
        assert np.array_equal(np.sort(np.concatenate(filed)), np.flatnonzero(meets))

    starts = np.cumsum([0, *map(len, listed)])
    leaves, lanes = leaves_of(lo, hi, search.slots, cells, starts, np.concatenate(listed))
    assert np.array_equal(lanes, search.lanes)
    assert np.array_equal(leaves.view(np.int32)[:, :-1], search.leaves.view(np.int32)[:, :-1])
    assert search.covers[0, 0] == 0 and search.covers[-1, 0] == len(search.covering)
    _check_grid(search, cells)


def _cells(search: Search, root: int, dims: int) -> NDArray[np.float64]:
    """The cells of the leaves, ``float64[l, 2, k]``; each leaf is reached once."""
    reached: dict[int, Cell] = {}
    waiting: list[tuple[int, Cell]] = [(root, np.array([[-np.inf] * dims, [np.inf] * dims]))]
    while waiting:
        link, cell = waiting.pop()
        if link < 0:
            assert ~link not in reached
            reached[~link] = cell
            continue
        node, j = link >> 2, link & 3
        value = search.nodes[node, 0]
        assert cell[0, j] < value < cell[1, j]
        for side in range(2):
            part = cell.copy()
            part[1 - side, j] = value
            waiting.append((int(search.nodes.view(np.int32)[node, 2 + side]), part))
    assert sorted(reached) == list(range(len(search.leaves) - 1))
    return np.array([reached[leaf] for leaf in sorted(reached)])


def _cutting(search: Search, leaf: int, dims: int) -> NDArray[np.int32]:
    """The boxes listed in a leaf; lanes without an entry come last."""
    numbers = search.leaves.view(np.int32)
    blocks = slice(numbers[leaf, -2], numbers[leaf + 1, -2])
    holds = filled(search.lanes[blocks]).ravel()
    assert (np.diff(holds.astype(np.int8)) <= 0).all()
    return search.lanes.view(np.int32)[blocks, (dims + 1) * BLOCK :].ravel()[holds]


def _chain(search: Search, cover: int) -> list[int]:
    chain = []
    while cover >= 0:
        chain.append(cover)
        cover = int(search.covers[cover, 1])
    return chain


def _check_grid(search: Search, cells: NDArray[np.float64]) -> None:
    """From the grid, the least and the largest point of every leaf are found in it."""
    with np.errstate(over="ignore"):
        corners = np.stack([cells[:, 0], np.nextafter(cells[:, 1], -np.inf)], axis=1)
    for leaf, points in enumerate(corners.tolist()):
        for point in points:
            cell = 0
            for x, (origin, scale, count, _) in zip(point, search.axes.tolist(), strict=True):
                cell = cell * int(count) + cell_of(x, origin, scale, count)
            link = int(search.grid[cell])
            while link >= 0:
                node, above = link >> 2, point[link & 3] >= search.nodes[link >> 2, 0]
                link = int(search.nodes.view(np.int32)[node, 2 + above])
            assert link == ~leaf
