"""Compiled loops of the engine: the walk over a batch, differences of hits, sequence numbers.

Each function has its slow twin in ``tests/engine``. Arrays are C-contiguous; a kernel writes only what its
docstring names.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numpy.typing import NDArray

from service.index.kernel import kernel, reads, writes
from service.index.protocol import Points, Rows, Slots

Flags = NDArray[np.bool_]
Times = NDArray[np.int64]
Verdicts = NDArray[np.uint8]
Digests = NDArray[np.uint64]

# What becomes of a row of a batch.
MOVES = 0  # an ordinary event: matches, moves its stream
LATE = 1  # older than the stream: matches, moves nothing
REJECTED = 2  # older than the stream, and the source refuses such
DUPLICATE = 3  # its id is one that the stream remembers
REMOVES = 4  # a tombstone of a living stream
NOTHING = 5  # a tombstone of no stream

# `late` policies of a source, as the kernel takes them.
LATE_NO_BORDER = 0
LATE_PROCESS = 1
LATE_REJECT = 2


def refused(verdict: Verdicts) -> Flags:
    """Which rows leave their stream as it was, and go to the dead letters."""
    refuses: Flags = (verdict == REJECTED) | (verdict == DUPLICATE)
    return refuses


NO_TIME = np.iinfo(np.int64).min
NOWHERE = -1
UNTOUCHED = -2


@kernel(
    types.int64(
        reads(types.int32, 1),
        reads(types.boolean, 1),
        reads(types.int64, 1),
        reads(types.boolean, 1),
        reads(types.float64, 2),
        reads(types.uint64, 2),
        reads(types.int64, 1),
        types.int64,
        types.boolean,
        types.int64,
        types.int64,
        writes(types.boolean, 1),
        writes(types.int64, 1),
        writes(types.int64, 1),
        writes(types.float64, 2),
        writes(types.float64, 2),
        writes(types.uint64, 3),
        writes(types.int64, 1),
        writes(types.int64, 1),
        writes(types.int32, 1),
        writes(types.float64, 2),
        writes(types.uint8, 1),
        writes(types.int32, 1),
        writes(types.boolean, 1),
        writes(types.boolean, 1),
        writes(types.int64, 1),
    )
)
def walk(
    rows: Rows,
    removal: Flags,
    ts: Times,
    timed: Flags,
    values: Points,
    ids: Digests,
    clock: Times,
    late_policy: int,
    carry: bool,
    stale_after: int,
    last_ids: int,
    known: Flags,
    last_ts: Times,
    seen: Times,
    point: Points,
    carried: Points,
    recent: Digests,
    accepted: Times,
    unsaved: Times,
    current: Rows,
    points: Points,
    verdict: Verdicts,
    before: Rows,
    first: Flags,
    silent: Flags,
    counts: Times,
) -> int:
    """Walks a batch in order and moves its streams. Returns the number of points written.

    In: ``rows int32[n]`` (-1: no stream), the batch's columns, ``ids uint64[n, 2]`` (zeros: none), ``clock
    int64[n]`` (the partition's time at each row), the policies; ``last_ids``: how many ids a stream
    remembers, 0 for none, and ``ids`` is empty then. In and out: the stream table's ``known``, ``last_ts``,
    ``seen``, ``point``, ``carried``, and ``recent``, ``accepted``, ``unsaved`` as ``RecentIds`` has them,
    with room for the ids of the batch; ``current int32[capacity]`` is scratch, UNTOUCHED before and after.
    Out: ``points float64[>= 2n, d]`` gets the n values to match (NaN where there is none), then the earlier
    point of each stream touched; ``verdict uint8[n]``; ``before int32[n]`` the point that the stream was at
    (NOWHERE: none); ``first bool[n]`` whether the row begins a stream's life; ``silent bool[n]`` whether its
    stream had been silent for ``stale_after`` until then; to ``counts int64[2]`` are added the late rows that
    are not refused, and the values that were carried. O(n (d + last_ids)).
    """
    n = len(rows)
    dims = values.shape[1]
    used = n
    for i in range(n):
        s = rows[i]
        first[i] = False
        silent[i] = False
        before[i] = NOWHERE
        for j in range(dims):
            points[i, j] = np.nan
        if s < 0:
            verdict[i] = NOTHING
            continue
        if current[s] == UNTOUCHED:
            current[s] = NOWHERE
            if known[s]:
                for j in range(dims):
                    points[used, j] = point[s, j]
                current[s] = used
                used += 1
        if removal[i]:
            verdict[i] = NOTHING
            if known[s]:
                verdict[i] = REMOVES
                before[i] = current[s]
                current[s] = NOWHERE
                known[s] = False
                last_ts[s] = NO_TIME
                accepted[s] = unsaved[s] = 0
                for j in range(dims):
                    carried[s, j] = -np.inf
            continue
        has_id = last_ids > 0 and (ids[i, 0] != 0 or ids[i, 1] != 0)
        if has_id:
            is_copy = False
            for k in range(min(accepted[s], last_ids)):
                is_copy |= recent[s, k, 0] == ids[i, 0] and recent[s, k, 1] == ids[i, 1]
            if is_copy:
                verdict[i] = DUPLICATE
                continue
        is_late = known[s] and timed[i] and ts[i] < last_ts[s]
        if is_late and late_policy == LATE_REJECT:
            verdict[i] = REJECTED
            continue
        if has_id:
            place = accepted[s] % last_ids
            recent[s, place, 0], recent[s, place, 1] = ids[i, 0], ids[i, 1]
            accepted[s] += 1
            unsaved[s] += 1
        silent[i] = known[s] and clock[i] - seen[s] >= stale_after
        seen[s] = clock[i]
        for j in range(dims):
            points[i, j] = values[i, j]
        if is_late:
            counts[0] += 1
            if late_policy == LATE_NO_BORDER:
                verdict[i] = LATE
                continue
        verdict[i] = MOVES
        first[i] = not known[s]
        known[s] = True
        if not is_late:
            if carry:
                for j in range(dims):
                    if values[i, j] != -np.inf:
                        carried[s, j] = values[i, j]
                    elif carried[s, j] != -np.inf:
                        counts[1] += 1
                    points[i, j] = carried[s, j]
            if timed[i]:
                last_ts[s] = ts[i]
        before[i] = current[s]
        current[s] = i
    for i in range(n):
        s = rows[i]
        if s >= 0 and current[s] != UNTOUCHED:
            for j in range(dims):
                point[s, j] = points[current[s], j] if current[s] >= 0 else np.nan
            current[s] = UNTOUCHED
    return used


@kernel(
    types.int64(
        reads(types.int64, 1),
        reads(types.int32, 1),
        reads(types.int32, 1),
        reads(types.int32, 1),
        writes(types.uint8, 1),
        writes(types.int32, 1),
        writes(types.int32, 1),
        writes(types.boolean, 1),
    )
)
def differences(
    indptr: Times,
    slots: Slots,
    before: Rows,
    after: Rows,
    marks: NDArray[np.uint8],
    out_pairs: Rows,
    out_slots: Slots,
    out_entered: Flags,
) -> int:
    """Compares the hits of pairs of points and keeps what only one of the two has.

    ``indptr int64[m + 1]`` and ``slots`` are hits by point, in any order, none twice; pair i goes from point
    ``before[i]`` to ``after[i]`` (NOWHERE: no hits). ``marks``, one a slot, is scratch: zeros before and
    after. Out: pair, slot and direction of each difference, by rising pair, at most ``len(out_slots)`` of
    them. Returns how many there are. O(hits).
    """
    found = 0
    room = len(out_slots)
    for i in range(len(before)):
        a, a_end, b, b_end = 0, 0, 0, 0
        if before[i] >= 0:
            a, a_end = indptr[before[i]], indptr[before[i] + 1]
        if after[i] >= 0:
            b, b_end = indptr[after[i]], indptr[after[i] + 1]
        for slot in slots[a:a_end]:
            marks[slot] = 1
        for slot in slots[b:b_end]:
            if marks[slot]:
                marks[slot] = 0
                continue
            if found < room:
                out_pairs[found], out_slots[found], out_entered[found] = i, slot, True
            found += 1
        for slot in slots[a:a_end]:
            if marks[slot]:
                marks[slot] = 0
                if found < room:
                    out_pairs[found], out_slots[found], out_entered[found] = i, slot, False
                found += 1
    return found


@kernel(
    types.void(
        reads(types.int32, 1),
        reads(types.int64, 1),
        reads(types.uint8, 1),
        writes(types.int64, 1),
        writes(types.int64, 1),
    )
)
def number(rows: Rows, counts: Times, verdict: Verdicts, seq: Times, out_seq: Times) -> None:
    """Gives each record its number in the life of its stream.

    Row i of the batch has ``counts[i]`` records, in order; a removal ends the life after its own. In, out:
    ``seq int64[capacity]`` of the stream table. Out: ``out_seq int64[r]``. O(n + r).
    """
    r = 0
    for i in range(len(rows)):
        s = rows[i]
        for _ in range(counts[i]):
            seq[s] += 1
            out_seq[r] = seq[s]
            r += 1
        if verdict[i] == REMOVES:
            seq[s] = 0
