"""The blocked scan: test points against every box of a range, in the order in which boxes are stored.

Idea: a cheap filter that never misses, then the exact test. The filter compares float32 roundings: rounding
is monotone, so ``lo <= x < hi`` implies ``near(lo) <= near(x) <= near(hi)``, whatever is lost on the way. It
halves the bytes and doubles the lanes of a comparison; survivors are few and are tested on float64.

Layout: ``near`` is ``float32[blocks, 2 * dims * BLOCK]``; a block holds, attribute by attribute, BLOCK lower
ends and then BLOCK upper ends. All points pass over a block while it is in the nearest cache, attribute by
attribute without a branch a box, and a block is left as soon as none of its boxes is. Measured against plain
float64 columns, blocks of 128 to 512 and row-wise tests, for 2 to 50 attributes, this was the fastest or
within 10 % of it; row-wise was 4 to 17 times slower, also where few of many attributes are constrained.

Not for: visibility to other threads, removal or growth (``boxes``).
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import numba
import numpy as np
from numba import types
from numpy.typing import NDArray

from service.index.kernel import kernel, reads, writes
from service.index.protocol import Bounds, Slots

BLOCK = 64
"""Boxes a block. Larger ones leave later and search more lanes for one survivor."""

Near = NDArray[np.float32]


def near_blocks(capacity: int, dims: int) -> Near:
    """Room for the filter of ``capacity`` boxes, a multiple of BLOCK."""
    return np.zeros((capacity // BLOCK, 2 * dims * BLOCK), np.float32)


def near_ends(near: Near, first: int, count: int, dims: int) -> tuple[Near, Near]:
    """The rounded lower and upper ends of a range of boxes: copies, ``float32[count, dims]`` each."""
    blocks, lanes = np.divmod(np.arange(first, first + count), BLOCK)
    shaped = near.reshape(len(near), dims, 2, BLOCK)
    return shaped[blocks, :, 0, lanes], shaped[blocks, :, 1, lanes]


def write_near(near: Near, first: int, lo: Bounds, hi: Bounds) -> None:
    """Rounds ``float64[n, dims]`` ends, C-contiguous, into the lanes of boxes ``first .. first + n``."""
    with rounding():
        _write_near(near, first, lo, hi)


def write_boxes(
    near: Near,
    all_lo: Bounds,
    all_hi: Bounds,
    all_slots: Slots,
    first: int,
    slots: Slots,
    lo: Bounds,
    hi: Bounds,
) -> None:
    """Writes boxes, all C-contiguous, at the places ``first .. first + n`` of the columns and the filter."""
    with rounding():
        _write_boxes(near, all_lo, all_hi, all_slots, first, slots, lo, hi)


def rounding() -> AbstractContextManager[None]:
    """Around kernels that round to float32: without the JIT alone does it warn that values grow infinite."""
    return np.errstate(over="ignore") if numba.config.DISABLE_JIT else _COMPILED  # type: ignore[attr-defined]


_COMPILED = nullcontext()


@kernel(types.void(writes(types.float32, 2), types.int64, reads(types.float64, 2), reads(types.float64, 2)))
def _write_near(near, first, lo, hi):  # type: ignore[no-untyped-def]
    """See ``write_near``. O(n d)."""
    for i in range(lo.shape[0]):
        block, lane = (first + i) // BLOCK, (first + i) % BLOCK
        for j in range(lo.shape[1]):
            near[block, 2 * j * BLOCK + lane] = np.float32(lo[i, j])
            near[block, (2 * j + 1) * BLOCK + lane] = np.float32(hi[i, j])


@kernel(
    types.void(
        writes(types.float32, 2),
        writes(types.float64, 2),
        writes(types.float64, 2),
        writes(types.int32, 1),
        types.int64,
        reads(types.int32, 1),
        reads(types.float64, 2),
        reads(types.float64, 2),
    )
)
def _write_boxes(near, all_lo, all_hi, all_slots, first, slots, lo, hi):  # type: ignore[no-untyped-def]
    """See ``write_boxes``. One call, because a box alone costs more to call for than to write. O(n d)."""
    _write_near(near, first, lo, hi)
    for i in range(len(slots)):
        all_slots[first + i] = slots[i]
        for j in range(lo.shape[1]):
            all_lo[first + i, j], all_hi[first + i, j] = lo[i, j], hi[i, j]


@kernel(
    types.int64(
        reads(types.float32, 2),
        reads(types.float64, 2),
        reads(types.float64, 2),
        reads(types.int32, 1),
        types.int64,
        types.int64,
        reads(types.float64, 2),
        writes(types.int64, 1),
    )
)
def scan(near, lo, hi, slots, first, stop, points, out):  # type: ignore[no-untyped-def]
    """Writes the key ``row << 32 | slot`` of every point in every box ``first <= box < stop``.

    ``lo``, ``hi``: ``float64[capacity, d]``; ``slots``: ``int32[capacity]``, negative for a removed box;
    ``points``: ``float64[m, d]``. Keys come in no useful order, one a box. Returns the number of keys, of
    which the first ``len(out)`` are written. Lanes outside the range are read and ignored.
    O(m * (stop - first) * d).
    """
    dims = points.shape[1]
    passed = np.empty(BLOCK, np.uint8)
    eights = passed.view(np.uint64)
    needed = 0
    for block in range(first // BLOCK, (stop + BLOCK - 1) // BLOCK):
        ends = near[block]
        for row in range(points.shape[0]):
            # Up to two attributes: is there any box at all? Without a mask to keep this takes half the time.
            some = dims != 1 and dims != 2
            if dims == 1:
                x = np.float32(points[row, 0])
                for i in range(BLOCK):
                    some |= (ends[i] <= x) & (x <= ends[BLOCK + i])
            elif dims == 2:
                x = np.float32(points[row, 0])
                y = np.float32(points[row, 1])
                for i in range(BLOCK):
                    first_holds = (ends[i] <= x) & (x <= ends[BLOCK + i])
                    some |= first_holds & (ends[2 * BLOCK + i] <= y) & (y <= ends[3 * BLOCK + i])
            if not some:
                continue
            for i in range(BLOCK):
                passed[i] = 1
            for j in range(dims):
                if not some:
                    break
                x = np.float32(points[row, j])
                some = False
                # Unsigned: an index that may be negative is wrapped, and that costs the vector code.
                lower = np.uint64(2 * j * BLOCK)
                upper = np.uint64((2 * j + 1) * BLOCK)
                for i in range(np.uint64(BLOCK)):
                    inside = (ends[lower + i] <= x) & (x <= ends[upper + i]) & (passed[i] != 0)
                    passed[i] = inside
                    some |= inside
            if not some:
                continue
            for eight in range(BLOCK // 8):
                if eights[eight] == 0:
                    continue
                for i in range(8 * eight, 8 * eight + 8):
                    box = block * BLOCK + i
                    if passed[i] == 0 or box < first or box >= stop or slots[box] < 0:
                        continue
                    j = 0
                    while j < dims and lo[box, j] <= points[row, j] and points[row, j] < hi[box, j]:
                        j += 1
                    if j == dims:
                        if needed < out.size:
                            out[needed] = (np.int64(row) << 32) | slots[box]
                        needed += 1
    return needed
