"""The kd partition under ``kd``: which boxes cut which leaf, and which cover which node whole.

Idea: space is split in two at the end of a box, again and again, each time in the attribute where the fewest
boxes are on both sides. A box that covers the *cell* of a node is filed there once, for all leaves below. The
others go down to the leaves whose cells they cut. A node is split as long as the tests that this saves are
worth the entries that it adds; so where boxes are small against their distance the leaves are small, and
where they overlap many times nothing is copied much.

Invariants: the cells of the leaves partition space. The leaf of a point is found by ``x < value`` on the way
down. Every box is filed, for every leaf whose cell it meets, once: in the leaf, or in one node above it.

Not for: how a leaf's boxes are tested (``kd_leaves``).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.index.default.kd_tree_kernels import choose, part
from service.index.protocol import Bounds

LEAF = 32
"""A node with so few boxes is not split: a scan of them is as fast as what it takes to find them."""
MOST_ENTRIES = 8
"""Entries a box. A level that would take more is not made: its nodes stay leaves."""
_MOST_LEVELS = 64


class Tree(NamedTuple):
    """A kd tree of w nodes, the root first, children in pairs: below and above.

    ``attributes``: ``int8[w]``, -1 for a leaf. ``values``: ``float64[w]``. ``children``: ``int32[w]``, the
    child below. ``cells``: ``float64[w, 2, k]``. ``covering_starts``: ``int64[w + 1]`` into ``covering``.
    ``leaf_starts``: ``int64[l + 1]`` into ``cutting``, for the leaves in the order of their numbers.
    """

    attributes: NDArray[np.int8]
    values: NDArray[np.float64]
    children: NDArray[np.int32]
    cells: NDArray[np.float64]
    covering_starts: NDArray[np.int64]
    covering: NDArray[np.int32]
    leaf_starts: NDArray[np.int64]
    cutting: NDArray[np.int32]


class _Level(NamedTuple):
    """Nodes that are not split yet; see ``kd_tree_kernels``."""

    cells: NDArray[np.float64]
    starts: NDArray[np.int64]
    entries: NDArray[np.int32]


class _Split(NamedTuple):
    """What ``choose`` says of a level."""

    attributes: NDArray[np.int8]
    values: NDArray[np.float64]
    counts: NDArray[np.int64]


def tree_of(lo: Bounds, hi: Bounds, leaf: int) -> Tree:
    """The tree of n boxes ``float64[n, k]`` with ``leaf`` for LEAF. O(k n log n)."""
    count, dims = lo.shape
    root = np.concatenate([np.full((1, 1, dims), -np.inf), np.full((1, 1, dims), np.inf)], axis=1)
    level = _Level(root, np.array([0, count]), np.arange(count, dtype=np.int32))
    splits: list[_Split] = []
    cells, covered, covering, kept = [root], [np.zeros(1, np.int64)], [], []
    filed = 0
    while len(level.starts) > 1:
        split = _split(lo, hi, level, leaf)
        growing = int(split.counts[split.attributes >= 0].sum())
        sizes = np.diff(level.starts)
        filed += int(sizes[split.attributes < 0].sum())
        if filed + growing > MOST_ENTRIES * count or len(splits) == _MOST_LEVELS:
            split.attributes[:] = -1
        splits.append(split)
        level, above, leaves = _next(lo, hi, level, split)
        covered.append(split.counts[split.attributes >= 0][:, :, 1].ravel())
        filed += len(above)
        cells.append(level.cells)
        covering.append(above)
        kept.append((sizes[split.attributes < 0], leaves))

    attributes = np.concatenate([split.attributes for split in splits])
    inner = np.cumsum(attributes >= 0)
    return Tree(
        attributes,
        np.concatenate([split.values for split in splits]),
        np.where(attributes >= 0, 2 * inner - 1, 0).astype(np.int32),
        np.concatenate(cells),
        _starts(np.concatenate(covered)),
        np.concatenate(covering),
        _starts(np.concatenate([counts for counts, _ in kept])),
        np.concatenate([leaves for _, leaves in kept]),
    )


def _starts(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])


def _split(lo: Bounds, hi: Bounds, level: _Level, leaf: int) -> _Split:
    width = len(level.starts) - 1
    split = _Split(np.empty(width, np.int8), np.zeros(width), np.zeros((width, 2, 2), np.int64))
    choose(lo, hi, *level, leaf, *split)
    split.values[split.attributes < 0] = 0.0
    return split


def _next(
    lo: Bounds, hi: Bounds, level: _Level, split: _Split
) -> tuple[_Level, NDArray[np.int32], NDArray[np.int32]]:
    """The level below; the boxes that cover its nodes; the entries of the leaves of this one."""
    inner = np.flatnonzero(split.attributes >= 0)
    counts = split.counts[inner].reshape(-1, 2)
    cutting = np.empty(counts[:, 0].sum() + 1, np.int32)
    covering = np.empty(counts[:, 1].sum(), np.int32)
    leaves = np.empty(np.diff(level.starts)[split.attributes < 0].sum(), np.int32)
    part(lo, hi, *level, split.attributes, split.values, cutting, covering, leaves)
    cells = np.repeat(level.cells[inner], 2, axis=0)
    numbers = np.arange(len(inner))
    cells[2 * numbers, 1, split.attributes[inner]] = split.values[inner]
    cells[2 * numbers + 1, 0, split.attributes[inner]] = split.values[inner]
    return _Level(cells, _starts(counts[:, 0]), cutting[:-1]), covering, leaves
