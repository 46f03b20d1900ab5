"""The leaves of ``kd``: the boxes that cut a cell, in a form that is tested sixteen at a time.

Idea: within a cell, a value is in one of 65,534 *steps*, equal ones between the first and the last end in it,
so an end is two bytes. Steps are monotone in the value; what lies strictly between those of its ends is in
the box, what lies outside is not, and only what lies on one of them is compared with the ends themselves.

Layout: blocks of BLOCK *lanes*, each an entry. A block is ``uint16[2 * (k + 2) * BLOCK]``: attribute by
attribute BLOCK lower and BLOCK upper steps, then of four bytes each BLOCK slots and BLOCK numbers of boxes,
which are read only where a step does not decide or a box may be removed. A lane without an entry holds
nothing.

Invariant, for the step s of a value and the steps l, h of a box in an attribute: l < s < h implies that the
value is between its ends, and that implies l <= s <= h. Steps of values are 1 .. 65534, so a box that has no
end in the cell on a side has the step 0 or 65535 there and is never compared.

Not for: which boxes cut which cell (``kd_tree``).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from service.index.default.kd_kernels import BLOCK, FAR, encode
from service.index.default.kd_tree_kernels import write_ranges
from service.index.protocol import Bounds, Slots

_MOST_POWER = 120
_STEPS = 65000.0
"""Steps between the first and the last end, at most."""


def leaves_of(
    lo: Bounds,
    hi: Bounds,
    slots: Slots,
    cells: NDArray[np.float64],
    starts: NDArray[np.int64],
    entries: NDArray[np.int32],
) -> tuple[NDArray[np.float64], NDArray[np.uint16]]:
    """``leaves``, as in ``kd_kernels`` but without covers, and ``lanes``, for the cells ``float64[l, 2, k]``
    and the boxes ``entries[starts[i]:starts[i + 1]]`` of n boxes ``float64[n, k]``. O(k entries)."""
    count, _, dims = cells.shape
    leaves = np.zeros((count + 1, dims + (dims + 1) // 2 + 1), np.float64)
    numbers = leaves.view(np.int32)
    np.cumsum(-(-np.diff(starts) // BLOCK), out=numbers[1:, -2])
    numbers[:, -1] = -1
    lanes = np.zeros((int(numbers[-1, -2]), 2 * (dims + 2) * BLOCK), np.uint16)
    ranges = np.empty_like(cells)
    write_ranges(lo, hi, starts, entries, cells, ranges)
    leaves[:-1, :dims], scales = chosen_scales(ranges[:, 0], ranges[:, 1])
    leaves.view(np.float32)[:-1, 2 * dims : 3 * dims] = scales
    with np.errstate(over="ignore"):  # only without the JIT: the float below the lowest is infinite
        encode(lo, hi, slots, starts, entries, cells, leaves, lanes)
    return leaves, lanes


def filled(lanes: NDArray[np.uint16]) -> NDArray[np.bool_]:
    """Which lanes hold an entry: ``bool[b, BLOCK]``."""
    return lanes[:, :BLOCK] <= lanes[:, BLOCK : 2 * BLOCK]


def chosen_scales(
    least: NDArray[np.float64], most: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Origins and scales for cells whose ends, finite ones, go from least to most. A step is a power of two,
    and the origin a multiple of it where floats allow, so round ends lie between two steps, not on one."""
    low, high = np.clip(least, -FAR, FAR), np.clip(most, -FAR, FAR)
    gap = (high - low) / _STEPS
    exponent = np.where(gap > 0.0, np.clip(np.frexp(gap)[1], -_MOST_POWER, _MOST_POWER), -_MOST_POWER)
    step = np.ldexp(1.0, exponent)
    whole = np.abs(low) < 2.0**53 * step
    return np.where(whole, np.floor(low / step) * step, low), 1.0 / step
