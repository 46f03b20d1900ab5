"""What is freed goes back to the system, in a process of its own: the setting holds for all of it."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from service.allocator import give_back_large_blocks
from service.bench.memory import resident_bytes

_BLOCK = 2 << 20
_BLOCKS = 32


def left_behind(asked: bool) -> int:
    """Bytes that a process still holds when of 32 blocks all but the last are freed."""
    assert not asked or give_back_large_blocks()
    np.ones(24 << 20, np.uint8)  # glibc learns from the first large block that is freed
    before = resident_bytes()
    blocks = [np.ones(_BLOCK, np.uint8) for _ in range(_BLOCKS)]
    del blocks[:-1]
    return resident_bytes() - before


def test_large_blocks_go_back() -> None:
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=spawn, max_tasks_per_child=1) as processes:
        kept, as_it_comes = processes.map(left_behind, [True, False])
    assert kept < 2 * _BLOCK
    assert as_it_comes > _BLOCKS // 2 * _BLOCK, "then the setting is not needed any more"
