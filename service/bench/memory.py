"""How much memory a structure takes: the growth of a fresh process while it is built.

Idea: what an allocator rounds up, what a library keeps beside and what Python objects cost is all in the
resident set of a process, and nowhere else. So each structure is built in a process of its own, which imports
first, makes the workload, and then looks at its size before and after.

Linux only (``/proc/self/statm``). Not for: peaks while building.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

from service.allocator import give_back_large_blocks
from service.bench.measure import digest_of
from service.bench.workloads import Workload
from service.index.protocol import Hits, Points

Stab = Callable[[Points], Hits]


class Grown(NamedTuple):
    """``bytes_held`` of resident memory, and the digest of what the structure answers."""

    bytes_held: int
    digest: str


def grown(
    builds: Mapping[str, Callable[[Workload], Stab]], load: Callable[[], Workload]
) -> Mapping[str, Grown]:
    """For each structure, the memory that its building leaves held, and what it answers about the points of
    the workload.

    All is sent to fresh processes, so it must be importable: functions of modules, or partials of such."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=spawn, max_tasks_per_child=1) as processes:
        results = {name: processes.submit(_measured, build, load) for name, build in builds.items()}
        return {name: result.result() for name, result in results.items()}


def _measured(build: Callable[[Workload], Stab], load: Callable[[], Workload]) -> Grown:
    give_back_large_blocks()  # as the service does
    # A small one first: what is loaded or allocated once does not count.
    workload = load()
    few = workload._replace(lo=workload.lo[:100], hi=workload.hi[:100])
    build(few)(workload.points[:1])
    gc.collect()
    before = resident_bytes()
    stab = build(workload)
    gc.collect()
    after = resident_bytes()
    return Grown(after - before, digest_of(stab(workload.points)))


def resident_bytes() -> int:
    """Of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
