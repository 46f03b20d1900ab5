"""What the experiments of the CEI and the VCI paper share: queries, searches, structures, and what they cost.

Idea: both papers insert n query intervals at once, search many random values, and plot the mean search time
and the storage against one parameter at a time. A ``Setting`` is one place on such an axis. A search ends
when the ids are reported, in whatever order the structure meets them: that is what the papers time, so the
indexes run with a collector that does not sort (``AsReported``); the digest sorts, outside of the timing.

Whole numbers are the papers' axis, so cells have length one and ends fall on their boundaries. There are two
exceptions, the same for all structures with cells. The outermost ends, 1 in 256 on either side, share the
first and the last cell (``cei_grid``). And where there are too few queries for an axis of unit cells, since a
grid follows the queries, cells are longer. Both cost comparisons, and the latter saves pointers.

Not for: which figure shows what (``cei``, ``vci``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np

from service.bench.measure import batches, race
from service.index.answers import Collector, Keys
from service.index.brute import BruteForce
from service.index.filed import FiledIndex
from service.index.in_place import InPlaceIndex
from service.index.interval.cei import CEI
from service.index.interval.dlist import DList
from service.index.interval.is_list import ISList
from service.index.interval.vci import LCI, SCI, UI
from service.index.protocol import Bounds, Hits, Points

Index = FiledIndex | InPlaceIndex
LARGE_RANGE = 1 << 20
"""The range r of the CEI paper's Fig. 14, taken for its "large r"."""
SMALL_RANGE = 1 << 16
"""The range r of the CEI paper's Fig. 17, taken for its "small r"."""
_MOST_HITS = 4_000_000
"""Answers are kept until they are compared: beyond this many ids in all, fewer values are searched."""
_BATCH_HITS = 100_000
"""A batch reports about this many ids, which stay in the cache; its fixed cost does not show then."""
_LEAST_BATCH, _MOST_BATCH = 100, 10_000


class Setting(NamedTuple):
    """n query intervals on 1 .. r - 1, of widths uniform in 1 .. W, L cells the longest construct."""

    queries: int
    domain: int
    widest: int
    longest: int

    @property
    def hits(self) -> float:
        """The mean number of queries around a value."""
        return self.queries * (1 + self.widest) / 2 / self.domain

    @property
    def step(self) -> float:
        """The length of a cell: one, or the least power of two that gives no more than 16 cells a query end,
        which is what a grid has at most."""
        return 2.0 ** max(0, math.ceil(math.log2(self.domain / (32 * self.queries))))


class Cost(NamedTuple):
    """By the name of a structure: microseconds a search, and bytes besides those of the queries' ends."""

    search_us: Mapping[str, float]
    bytes: Mapping[str, int]
    searches: int
    digest: str


# Nothing waits in a tail: all queries are in the structure.
STRUCTURES: Mapping[str, Callable[[Setting], Index]] = {
    "UI": lambda setting: UI(step=setting.step, tail_limit=0),
    "SCI": lambda setting: SCI(longest=setting.longest, step=setting.step, tail_limit=0),
    "LCI": lambda setting: LCI(longest=setting.longest, bit_vector=False, step=setting.step, tail_limit=0),
    "LCI-BV(DT)": lambda setting: LCI(longest=setting.longest, step=setting.step, tail_limit=0),
    "CEI": lambda setting: CEI(segment_length=setting.longest, step=setting.step, tail_limit=0),
    "D-list": lambda setting: DList(step=setting.step, tail_limit=0),
    "IS-list": lambda setting: ISList(),
}


class AsReported(Collector):
    """Leaves an answer in the order in which a structure reports it."""

    def hits(self, fill: Callable[[Keys], int], rows: int) -> Hits:
        keys = self.keys(fill, rows)
        # The halves of the keys, as they lie there: no pass over the ids.
        halves = keys.astype("<i8", copy=False).view("<i4").reshape(-1, 2)
        return Hits(halves[:, 1], halves[:, 0])


def queries(setting: Setting, seed: int) -> tuple[Bounds, Bounds]:
    """n intervals ``[a, a + w)``, ``float64[n, 1]``: a whole in 1 .. r - 1, w whole in 1 .. W, both
    uniform."""
    rng = np.random.default_rng(seed)
    lo = rng.integers(1, setting.domain, (setting.queries, 1)).astype(np.float64)
    return lo, lo + rng.integers(1, setting.widest + 1, lo.shape)


def values(setting: Setting, count: int, seed: int) -> Points:
    """Values to search, ``float64[count, 1]``, uniform in 1 .. r."""
    return np.random.default_rng([seed, 1]).uniform(1, setting.domain, (count, 1))


def cost(names: Iterable[str], setting: Setting, *, searches: int, repeats: int, seed: int) -> Cost:
    """Builds each structure and lets them race; they must agree on every search. ``searches`` are at most so
    many that 4 million ids are reported."""
    lo, hi = queries(setting, seed)
    slots = np.arange(setting.queries, dtype=np.int32)
    plain = BruteForce(1)
    plain.insert(slots, lo, hi)
    indexes: dict[str, Index] = {}
    for name in names:
        index = STRUCTURES[name](setting)
        index.insert(slots, lo, hi)
        # The one thing to change in an index: what it does with the ids that its structure has reported.
        index._collector = AsReported()
        indexes[name] = index
    count = min(searches, int(_MOST_HITS / setting.hits))
    points = values(setting, count, seed)
    size = min(max(int(_BATCH_HITS / setting.hits), _LEAST_BATCH), _MOST_BATCH)
    timings = race(
        {name: batches(index.stab, points, size) for name, index in indexes.items()}, repeats=repeats
    )
    return Cost(
        {name: 1e6 * timing.best_s / count for name, timing in timings.items()},
        {name: index.nbytes - plain.nbytes for name, index in indexes.items()},
        count,
        next(iter(timings.values())).digest,
    )
