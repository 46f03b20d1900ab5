"""What must hold in an IS-list, asserted from the keys and the ends alone, without the code that marks.

Invariants: the list of each level has the nodes that are high enough, in the order of their keys; every node
but the first and the last is the end of an interval; the edges that an interval marks lie in it and join from
its lower to its upper end, and none of them lies under a longer edge that is in the interval, too.

Not for: production.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from service.index.boxes import Boxes, living
from service.index.interval.is_list_kernels import (
    COUNT,
    EDGES,
    FIRST,
    HEAD,
    MOST_LEVELS,
    NEXT,
    NODES,
    ROOM,
    TAIL,
    SkipList,
)


def check(skips: SkipList, boxes: Boxes) -> None:
    """Asserts the invariants of the list of the living boxes. O((edges + markers) log)."""
    nodes, edges, used = skips.state.tolist()
    assert nodes <= len(skips.key) and edges <= len(skips.edges) == len(skips.ahead)
    assert used <= len(skips.pool)
    _check_ends(skips, boxes)
    levels = [_chain(skips, level) for level in range(MOST_LEVELS)]
    inner = levels[0][1:]
    assert (skips.height[inner] < skips.height[HEAD]).all()
    for level, chain in enumerate(levels):
        assert np.array_equal(chain[1:], inner[skips.height[inner] > level])
    alive = living(boxes)
    ends = np.setdiff1d(skips.ends[alive].ravel(), (HEAD, TAIL))
    assert np.array_equal(np.sort(inner), ends), "a node that is no end, or the reverse"
    _check_markers(skips, boxes, levels[: skips.height[HEAD]])


def _check_ends(skips: SkipList, boxes: Boxes) -> None:
    alive = living(boxes)
    ends = skips.ends[alive]
    assert np.array_equal(skips.key[ends[:, 0]], boxes.lo[alive, 0])
    assert np.array_equal(skips.key[ends[:, 1]], boxes.hi[alive, 0])
    owned = np.bincount(ends.ravel(), minlength=len(skips.key))
    assert np.array_equal(owned[: skips.state[NODES]], skips.owners[: skips.state[NODES]])


def _chain(skips: SkipList, level: int) -> NDArray[np.int64]:
    """The nodes of a level, without the last; asserts that its edges lead upwards and know where."""
    chain, node = [], HEAD
    while node != TAIL:
        chain.append(node)
        edge = skips.tower[node] + level
        assert edge < skips.state[EDGES]
        following = int(skips.edges[edge, NEXT])
        assert skips.key[node] < skips.key[following] == skips.ahead[edge]
        node = following
    return np.array(chain)


def _check_markers(skips: SkipList, boxes: Boxes, levels: list[NDArray[np.int64]]) -> None:
    low, high, box, longer_low, longer_high = (np.concatenate(part) for part in _markers(skips, levels))
    lo, hi = boxes.lo[box, 0], boxes.hi[box, 0]
    assert ((lo <= low) & (high <= hi)).all(), "a marker on an edge that is not in the interval"
    assert not ((lo <= longer_low) & (longer_high <= hi)).any(), (
        "a marker below a longer edge in the interval"
    )
    order = np.lexsort((low, box))
    low, high, box = low[order], high[order], box[order]
    begins = np.append(True, box[1:] != box[:-1])[: len(box)]
    ends = np.append(begins[1:], True)[: len(box)]
    assert np.array_equal(box[begins], living(boxes))
    assert np.array_equal(low[1:][~begins[1:]], high[:-1][~ends[:-1]]), "edges overlap or leave a gap"
    assert np.array_equal(low[begins], boxes.lo[box[begins], 0])
    assert np.array_equal(high[ends], boxes.hi[box[ends], 0])


def _markers(skips: SkipList, levels: list[NDArray[np.int64]]) -> tuple[list[NDArray[np.float64]], ...]:
    """Of every marker, by level: the ends of its edge, its box, the ends of the longer edge above its own."""
    found: tuple[list[NDArray[np.float64]], ...] = ([], [], [], [], [])
    for level, chain in enumerate(levels):
        edges = skips.tower[chain] + level
        first, count, room = (skips.edges[edges, column].astype(np.int64) for column in (FIRST, COUNT, ROOM))
        assert (count <= room).all()
        pick = np.repeat(np.arange(len(chain)), count)
        place = np.arange(len(pick)) - np.repeat(np.cumsum(count) - count, count)
        low, high = skips.key[chain], skips.ahead[edges]
        longer_low, longer_high = np.full_like(low, np.nan), np.full_like(low, np.nan)
        if level + 1 < len(levels):
            longer = levels[level + 1]
            over = np.searchsorted(skips.key[longer], low, side="right") - 1
            longer_low = skips.key[longer][over]
            longer_high = skips.ahead[skips.tower[longer] + level + 1][over]
        columns = (
            low[pick],
            high[pick],
            skips.pool[first[pick] + place],
            longer_low[pick],
            longer_high[pick],
        )
        for part, column in zip(found, columns, strict=True):
            part.append(column)
    return found
