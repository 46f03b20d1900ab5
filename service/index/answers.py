"""From what a kernel finds to what an index answers: by row, unique, int32.

A kernel reports a hit as the int64 *key* ``row << 32 | slot``, in any order and as often as it meets it.
Where a slot may have several boxes, one sort and one pass drop the repeats; where none has, keys are dealt
out to their rows, and mostly they lie so already. So no structure has to care about either. Borders are the
difference of two sorted answers.

Not for: finding hits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numba import types
from numpy.typing import NDArray

from service.index.kernel import kernel, reads, writes
from service.index.protocol import Borders, BoxIndex, Hits, Points

Keys = NDArray[np.int64]
Answer = TypeVar("Answer")

_LEAST_ROOM = 1024
#: Room for so many keys stays in the cache until the next call; more is given back.
_MOST_SPARE = 1 << 17
#: Below this many keys, what is saved by sorting less is spent on packing.
_FEW = 512
_FLOAT64 = np.dtype(np.float64)
_LAST = np.iinfo(np.int64).max


class Collector:
    """Runs a kernel that reports how many keys it has, and runs it again with more room if they did not fit.

    It remembers how many keys a row had lately, and keeps small room for keys to use it again. The first is a
    hint alone: threads may race on it, and a wrong one costs a second run. Room is taken out while it is in
    use, so no two calls write to the same.
    """

    def __init__(self) -> None:
        self.keys_a_row = 0.0
        self._spare: list[Keys] = []

    def hits(self, fill: Callable[[Keys], int], rows: int) -> Hits:
        """The answer of ``fill(out)``, see ``answered``, about a batch of ``rows`` points, sorted by (row,
        slot). O(h log h) for h keys, besides ``fill``."""
        keys, needed = self._filled(self._room(), fill, rows)
        hits = _hits(keys[:needed], rows)
        self._keep(keys)
        return hits

    def by_row(self, fill: Callable[[Keys], int], rows: int) -> Hits:
        """As ``hits``, of keys of which none comes twice, by rising row alone. O(rows + h)."""
        keys, needed = self._filled(self._room(), fill, rows)
        found = np.empty((2, needed), np.int32)
        _deal(keys, rows, found)
        self._keep(keys)
        # As Hits(...), in half of the time: one point is answered in 4 us.
        return tuple.__new__(Hits, (found[0], found[1]))

    def keys(self, fill: Callable[[Keys], int], rows: int) -> Keys:
        """All that ``fill(out)`` has, to be kept; see ``answered``."""
        keys, needed = self._filled(np.empty(0, np.int64), fill, rows)
        return keys[:needed]

    def answered(self, fill: Callable[[Keys], int], rows: int, answer: Callable[[Keys], Answer]) -> Answer:
        """What ``answer(keys)`` makes of all that ``fill(out)`` has, and must not keep: that writes at most
        ``len(out)`` keys and returns how many there are. Asked once more it may have fewer, never more."""
        keys, needed = self._filled(self._room(), fill, rows)
        answered = answer(keys[:needed])
        self._keep(keys)
        return answered

    def _room(self) -> Keys:
        try:
            return self._spare.pop()
        except IndexError:
            return np.empty(0, np.int64)

    def _keep(self, room: Keys) -> None:
        if len(room) <= _MOST_SPARE:
            self._spare.append(room)

    def _filled(self, keys: Keys, fill: Callable[[Keys], int], rows: int) -> tuple[Keys, int]:
        """The keys of ``fill`` in the room given, or in more, and how many there are."""
        expected = self.keys_a_row
        if len(keys) < 1.25 * rows * expected or len(keys) < _LEAST_ROOM:
            keys = np.empty(max(int(1.25 * rows * expected), _LEAST_ROOM), np.int64)
        needed = fill(keys)
        if needed > len(keys):
            keys = np.empty(needed, np.int64)
            # Not what the first run said: moves that it found to be far are passed over now.
            needed = min(fill(keys), len(keys))
        if rows:
            a_row = needed / rows
            self.keys_a_row = a_row if a_row > expected / 2 else expected / 2
        return keys, needed


def as_points(points: Points, dims: int) -> Points:
    """The points as kernels take them, contiguous. TypeError unless float64, ValueError unless [m, dims]."""
    if points.dtype is not _FLOAT64 and points.dtype != _FLOAT64:
        raise TypeError(f"points must be float64, not {points.dtype}")
    if points.shape[1:] != (dims,):
        raise ValueError(f"points must have the shape (m, {dims}), not {points.shape}")
    if points.flags.carray:  # one look instead of three; what may only be read is sorted out behind
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
    rows, slots = index.stab(np.concatenate([before, after]))
    keys = rows.astype(np.int64) << 32 | slots
    return difference(_hits(keys, 2 * len(before)), len(before))


def difference(hits: Hits, batch: int) -> Borders:
    """The borders from hits of rows ``0 .. batch`` (before) and ``batch .. 2 * batch`` (after), sorted by
    (row, slot). O(h)."""
    rows, slots = hits
    moved_rows, moved_slots = np.empty_like(rows), np.empty_like(slots)
    entered = np.empty(len(rows), np.bool_)
    count = _difference(rows, slots, batch, moved_rows, moved_slots, entered)
    return Borders(moved_rows[:count], moved_slots[:count], entered[:count])


def _sorted_in_half(keys: Keys, rows: int) -> tuple[NDArray[np.uint32], int] | None:
    """The keys of ``rows`` rows, sorted, each as ``row * span + its lower half``, and span: half the bytes
    sort in half the time. None where they are few, or do not go into 32 bits. O(k log k)."""
    if len(keys) <= _FEW:
        return None
    packed = np.empty(len(keys), np.uint32)
    span = _pack(keys, rows, packed)
    if not span:
        return None
    packed.sort()
    return packed, span


def _hits(keys: Keys, rows: int) -> Hits:
    found = np.empty(len(keys), np.int32), np.empty(len(keys), np.int32)
    packed = _sorted_in_half(keys, rows)
    if packed is not None:
        count = _unpack(*packed, *found)
        return Hits(found[0][:count], found[1][:count])
    keys.sort()
    count = _split(keys, *found)
    return Hits(found[0][:count], found[1][:count])


@kernel(types.void(reads(types.int64, 1), types.int64, writes(types.int32, 2)))
def _deal(keys, batch, found):  # type: ignore[no-untyped-def]
    """Splits the first keys into the rows ``found[0]`` and the slots ``found[1]``, as many as these have room
    for, by rising row of 0 .. batch, those of a row in the order in which they come."""
    count, one, half = np.uint64(found.shape[1]), np.uint64(1), np.uint64(32)
    rows, slots = found[0], found[1]
    steps = np.int64(0)  # negative as soon as one is
    for i in range(min(count, one)):
        rows[i] = keys[i] >> 32
        slots[i] = keys[i] & 0x7FFFFFFF
    for i in range(one, count):
        row = keys[i] >> 32
        rows[i] = row
        slots[i] = keys[i] & 0x7FFFFFFF
        steps |= row - (keys[i - one] >> 32)
    if steps >= 0:
        return
    place = np.zeros(batch + 1, np.uint64)
    for i in range(count):
        place[(np.uint64(keys[i]) >> half) + one] += one
    for row in range(np.uint64(batch)):
        first = place[row]
        place[row + one] += first
        for i in range(first, place[row + one]):
            rows[i] = row
    for i in range(count):
        own = np.uint64(keys[i]) >> half
        slots[place[own]] = keys[i] & 0x7FFFFFFF
        place[own] += one


@kernel(types.int64(reads(types.int64, 1), types.int64, writes(types.uint32, 1)))
def _pack(keys, rows, packed):  # type: ignore[no-untyped-def]
    """Writes ``row * span + lower half``, where ``span`` exceeds every lower half, and returns span; or 0,
    and nothing is written, if that takes more than 32 bits."""
    top = np.int64(0)
    for key in keys:
        top = max(top, key & 0xFFFFFFFF)
    span = top + 1
    if rows * span > 1 << 32:
        return 0
    for i in range(len(keys)):
        packed[i] = (keys[i] >> 32) * span + (keys[i] & 0xFFFFFFFF)
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
