"""From what a kernel finds to what an index answers: sorted, unique, int32.

A kernel reports a hit as the int64 *key* ``row << 32 | slot``, in any order and as often as it meets it. One
sort puts keys in the order of the answer and one pass drops the repeats (a slot with several boxes around one
point), so no structure has to care about either. Borders are the difference of two such answers.

Not for: finding hits.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import types
from numpy.typing import NDArray

from service.index.kernel import kernel, reads, writes
from service.index.protocol import Borders, BoxIndex, Hits, Points

Keys = NDArray[np.int64]

_LEAST_ROOM = 1024
#: Below this many keys, what is saved by sorting less is spent on packing.
_FEW = 512
_LAST = np.iinfo(np.int64).max


class Collector:
    """Runs a kernel that reports how many keys it has, and runs it again with more room if they did not fit.

    It remembers how many keys a row had lately. That is a hint alone: threads may race on it, and a wrong one
    costs a second run.
    """

    def __init__(self) -> None:
        self.keys_a_row = 0.0

    def hits(self, fill: Callable[[Keys], int], rows: int) -> Hits:
        """The answer of ``fill(out)`` about a batch of ``rows`` points; see ``keys``. O(h log h) for h keys,
        besides ``fill``."""
        return _hits(self.keys(fill, rows), rows)

    def keys(self, fill: Callable[[Keys], int], rows: int) -> Keys:
        """All that ``fill(out)`` has: it writes at most ``len(out)`` keys and returns how many there are."""
        keys = np.empty(max(_LEAST_ROOM, int(1.25 * rows * self.keys_a_row)), np.int64)
        needed = fill(keys)
        if needed > len(keys):
            keys = np.empty(needed, np.int64)
            fill(keys)
        self.keys_a_row = max(needed / max(rows, 1), self.keys_a_row / 2)
        return keys[:needed]


def as_points(points: Points, dims: int) -> Points:
    """The points as kernels take them, contiguous. TypeError unless float64, ValueError unless [m, dims]."""
    if points.dtype != np.float64:
        raise TypeError(f"points must be float64, not {points.dtype}")
    if points.ndim != 2 or points.shape[1] != dims:
        raise ValueError(f"points must have the shape (m, {dims}), not {points.shape}")
    if points.flags.c_contiguous and points.flags.aligned:
        return points
    return np.require(points, requirements=["C", "A"])


def require_one_shape(before: Points, after: Points) -> None:
    """ValueError unless the two ends of a batch of moves have one shape."""
    if before.shape != after.shape:
        raise ValueError(f"before and after must have one shape, not {before.shape} and {after.shape}")


def borders_by_stab(index: BoxIndex, before: Points, after: Points) -> Borders:
    """The borders of any index: what holds ``after[row]`` and not ``before[row]``, and the reverse.

    Both are stabbed in one batch, so a change by another thread falls before both or after both. A slot
    counts once a point, however many of its boxes hold it: moving from one to another is no border. O(stab).
    """
    require_one_shape(before, after)
    return difference(index.stab(np.concatenate([before, after])), len(before))


def difference(hits: Hits, batch: int) -> Borders:
    """The borders from hits of rows ``0 .. batch`` (before) and ``batch .. 2 * batch`` (after). O(h)."""
    rows, slots = hits
    moved_rows, moved_slots = np.empty_like(rows), np.empty_like(slots)
    entered = np.empty(len(rows), np.bool_)
    count = _difference(rows, slots, batch, moved_rows, moved_slots, entered)
    return Borders(moved_rows[:count], moved_slots[:count], entered[:count])


def _hits(keys: Keys, rows: int) -> Hits:
    found = np.empty(len(keys), np.int32), np.empty(len(keys), np.int32)
    if len(keys) > _FEW:
        # Half the bytes sort in half the time.
        packed = np.empty(len(keys), np.uint32)
        span = _pack(keys, rows, packed)
        if span:
            packed.sort()
            count = _unpack(packed, span, *found)
            return Hits(found[0][:count], found[1][:count])
    keys.sort()
    count = _split(keys, *found)
    return Hits(found[0][:count], found[1][:count])


@kernel(types.int64(reads(types.int64, 1), types.int64, writes(types.uint32, 1)))
def _pack(keys, rows, packed):  # type: ignore[no-untyped-def]
    """Writes ``row * span + slot``, where ``span`` exceeds every slot, and returns span; or 0, and nothing is
    written, if that takes more than 32 bits."""
    top = np.int64(0)
    for key in keys:
        top = max(top, key & 0x7FFFFFFF)
    span = top + 1
    if rows * span > 1 << 32:
        return 0
    for i in range(len(keys)):
        packed[i] = (keys[i] >> 32) * span + (keys[i] & 0x7FFFFFFF)
    return span


@kernel(types.int64(reads(types.uint32, 1), types.int64, writes(types.int32, 1), writes(types.int32, 1)))
def _unpack(packed, span, rows, slots):  # type: ignore[no-untyped-def]
    """Splits sorted packed keys into ``rows`` and ``slots``, each once; returns how many."""
    count = 0
    row = np.int64(0)
    first = np.int64(0)
    last = np.int64(-1)
    for one in packed:
        key = np.int64(one)
        if key == last:
            continue
        if key - first >= span:
            row = key // span
            first = row * span
        rows[count] = row
        slots[count] = key - first
        count += 1
        last = key
    return count


@kernel(types.int64(reads(types.int64, 1), writes(types.int32, 1), writes(types.int32, 1)))
def _split(keys, rows, slots):  # type: ignore[no-untyped-def]
    """Splits sorted keys into ``rows`` and ``slots``, as long as ``keys``, each once; returns how many."""
    count = 0
    last = np.int64(-1)
    for key in keys:
        if count == 0 or key != last:
            rows[count] = key >> 32
            slots[count] = key & 0x7FFFFFFF
            count += 1
            last = key
    return count


@kernel(
    types.int64(
        reads(types.int32, 1),
        reads(types.int32, 1),
        types.int64,
        writes(types.int32, 1),
        writes(types.int32, 1),
        writes(types.boolean, 1),
    )
)
def _difference(rows, slots, batch, moved_rows, moved_slots, entered):  # type: ignore[no-untyped-def]
    """Merges the hits of rows ``0 .. batch`` (before) with those of ``batch .. 2 * batch`` (after).

    The outputs are as long as the hits, which is enough; returns how many were written. O(h).
    """
    split = np.searchsorted(rows, batch)
    b, a, count = 0, split, 0
    while b < split or a < len(rows):
        was = np.int64(rows[b]) << 32 | slots[b] if b < split else _LAST
        now = np.int64(rows[a] - batch) << 32 | slots[a] if a < len(rows) else _LAST
        if was != now:
            key = min(was, now)
            moved_rows[count] = key >> 32
            moved_slots[count] = key & 0x7FFFFFFF
            entered[count] = now < was
            count += 1
        if was <= now:
            b += 1
        if now <= was:
            a += 1
    return count
