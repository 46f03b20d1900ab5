"""How the C library keeps memory: what indexes leave behind goes back to the system.

Filing a million boxes makes and drops arrays of many times their size. glibc takes blocks of up to 32 MiB
from one heap once such a block has been freed, and a heap shrinks only from its end: what lies below the last
block in use stays with the process. A fixed bound makes every array above it a mapping of its own, which is
given back as soon as it is freed. Measured on a million boxes in two attributes: 134 instead of 326 bytes of
resident memory a box, in the same time.

Not for: other C libraries; there nothing happens.
"""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_LARGE_BYTES = 1 << 20
"""A fourth of it saves 7 % more, four times as much a fourth less; an answer seldom is so large."""

_KEPT_BYTES = 4 << 20
"""Free memory that stays at the end of the heap: what answers take again and again is not given back."""


def give_back_large_blocks() -> bool:
    """Makes it so for this process, whether it can be done. Called once, at its start."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    wanted = {_M_MMAP_THRESHOLD: _LARGE_BYTES, _M_TRIM_THRESHOLD: _KEPT_BYTES}
    return mallopt is not None and all(mallopt(what, size) == 1 for what, size in wanted.items())
