"""What the experiments of the BMQ-Index paper share: streams, queries, contenders, and what they cost.

Idea: 2,000 streams move at a *fluctuation level* FL, the mean distance of two values as a share of the domain
(Sect. 3.4), among N queries of width W. A ``Setting`` is one place on an axis of a figure. The streams go
through their values and back again, so a contender ends where it began and every round asks the same.

What is taken from the paper: domain, N, W, FL, the number of streams, and lower bounds uniform from 1 to
D - 1 (Sect. 5.1). What it leaves open: a step is uniform in 0 to 2 FL either way, values stay inside by
reflection. A stream has 30 values here, not 1,000: the mean of 60,000 moves does not change any more.

Not for: which figure shows what (``bmq``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from service.bench.experiment import Scale
from service.bench.measure import Batches, Contender, race
from service.index.border.bmq import BMQIndex
from service.index.border.bmq_monitor import BorderMonitor
from service.index.border.diff_rmq import DiffRMQ
from service.index.box.rtree import RTree
from service.index.brute import BruteForce
from service.index.interval.cei import CEI
from service.index.interval.is_list import ISList
from service.index.protocol import Borders, Bounds, BoxIndex, Points

DOMAIN = 1_000_000
"""D, the highest price of a stock (Sect. 5.1.2)."""

BMQ = "BMQ-Index"
ANCHORED = "BMQ-Index, anchored"
CEI_BASED = "DiffRMQ over CEI"
CEI_UNIT = "DiffRMQ over CEI, unit cells"
"""CEI as in its own paper: whole numbers are cells, and L = 16. The default chooses longer cells and a single
segment, which takes less."""
IS_BASED = "DiffRMQ over IS-list"
RTREE_BASED = "DiffRMQ over R-tree"
OVER_INTERVALS = (CEI_BASED, IS_BASED)


class Setting(NamedTuple):
    """``queries`` is the paper's N; ``width`` and ``level`` are W and FL in percent of the domain."""

    queries: int
    width: float
    level: float
    dims: int = 1

    @property
    def step(self) -> float:
        """The length of a unit cell: one, or the least power of two that gives no more than 16 cells a query
        end, which is what a grid has at most."""
        return 2.0 ** max(0, math.ceil(math.log2(DOMAIN / (32 * self.queries))))


class Size(NamedTuple):
    """How much is run: streams, the moves of each one way, and rounds."""

    streams: int
    moves: int
    repeats: int


FULL = Size(2_000, 15, 3)
QUICK = Size(100, 3, 1)


class Monitor(Protocol):
    """Something with a stream table."""

    accessed: int
    reported: int

    def move(self, streams: NDArray[np.int32], points: Points) -> Borders: ...


class Cost(NamedTuple):
    """By the name of a contender: microseconds a move, the search efficiency in percent, and bytes.

    ``accessed`` is the size of the intermediate results a move, ``reported`` that of the final ones, which
    all share. Bytes are those of the index alone: without the ends of the queries and the stream table.
    """

    move_us: Mapping[str, float]
    efficiency: Mapping[str, float]
    accessed: Mapping[str, float]
    reported: float
    bytes: Mapping[str, int]
    digest: str


INDEXES: Mapping[str, Callable[[Setting], BoxIndex]] = {
    BMQ: lambda setting: BMQIndex(setting.dims, fresh_limit=0, anchored=False),
    ANCHORED: lambda setting: BMQIndex(setting.dims, fresh_limit=0),
    # Nothing waits in a tail: all queries are in the structure.
    CEI_BASED: lambda setting: CEI(tail_limit=0),
    CEI_UNIT: lambda setting: CEI(segment_length=16, step=setting.step, tail_limit=0),
    IS_BASED: lambda setting: ISList(),
    RTREE_BASED: lambda setting: RTree(setting.dims),
}


def shrunk(settings: Sequence[Setting], scale: Scale) -> Sequence[Setting]:
    """For a quick run the first and the last setting, with a twentieth of the queries."""
    if scale is Scale.FULL:
        return settings
    return [each._replace(queries=each.queries // 20) for each in (settings[0], settings[-1])]


def queries(setting: Setting, seed: int) -> tuple[Bounds, Bounds]:
    """N boxes ``float64[N, d]`` of one width; lower bounds are whole, from 1 to D - 1."""
    rng = np.random.default_rng(seed)
    lo = rng.integers(1, DOMAIN, (setting.queries, setting.dims)).astype(np.float64)
    return lo, lo + setting.width / 100 * DOMAIN


def values(setting: Setting, streams: int, moves: int, seed: int) -> list[Points]:
    """``moves + 1`` values of every stream, ``float64[streams, d]`` each, whose mean distance is FL.

    A step goes in any direction, and is as long in several attributes as in one (Sect. 4.4)."""
    rng = np.random.default_rng([seed, 1])
    at = rng.uniform(0, DOMAIN, (streams, setting.dims))
    path = [at]
    for _ in range(moves):
        way = rng.normal(size=at.shape)
        way /= np.linalg.norm(way, axis=1, keepdims=True)
        distance = rng.uniform(0, 2 * setting.level / 100 * DOMAIN, (streams, 1))
        at = np.abs(at + distance * way)
        at = DOMAIN - np.abs(DOMAIN - at)
        path.append(at)
    return path


def cost(names: Sequence[str], setting: Setting, size: Size, seed: int) -> Cost:
    """Files the queries in each index and lets the streams move; all must report the same borders."""
    lo, hi = queries(setting, seed)
    path = values(setting, size.streams, size.moves, seed)
    slots = np.arange(setting.queries, dtype=np.int32)
    plain = BruteForce(setting.dims)
    plain.insert(slots, lo, hi)
    monitors: dict[str, Monitor] = {}
    held: dict[str, int] = {}
    for name in names:
        index = INDEXES[name](setting)
        index.insert(slots, lo, hi)
        if isinstance(index, BMQIndex):
            monitors[name] = BorderMonitor(index)
            held[name] = index.list_nbytes + index.anchor_nbytes
        else:
            monitors[name] = DiffRMQ(index)
            held[name] = index.nbytes - plain.nbytes
    tours = {name: _there_and_back(monitor, path) for name, monitor in monitors.items()}
    read, found = {}, {}
    for name, monitor in monitors.items():
        accessed, reported = monitor.accessed, monitor.reported
        tours[name]()
        read[name], found[name] = monitor.accessed - accessed, monitor.reported - reported
    timings = race(tours, repeats=size.repeats)
    count = 2 * size.moves * size.streams
    return Cost(
        move_us={name: 1e6 * timing.best_s / count for name, timing in timings.items()},
        efficiency={name: 100 * found[name] / max(read[name], 1) for name in names},
        accessed={name: read[name] / count for name in names},
        reported=found[names[0]] / count,
        bytes=held,
        digest=timings[names[0]].digest,
    )


def _there_and_back(monitor: Monitor, path: Sequence[Points]) -> Contender:
    """Puts the streams where their path begins. A call moves them along it and back."""
    streams = np.arange(len(path[0]), dtype=np.int32)
    monitor.move(streams, path[0])
    stops = [*path[1:], *path[-2::-1]]
    return lambda: Batches(len(streams), [monitor.move(streams, points) for points in stops])
