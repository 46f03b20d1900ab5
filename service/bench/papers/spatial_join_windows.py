"""Sliding window joins as the Spatial Join paper measures them (Sect. 7.4, Fig. 18): SJ-Join against IBS-JS.

Two streams of two attributes; a query has a selection condition on each of the four, as in
``spatial_join_workloads``, and a condition ``x op x`` between the first attributes, op one of five. SJ-Join
decomposes it into four pieces, as printed. IBS-JS evaluates the join conditions first, each once for all
queries that share it, and then the selection conditions of those queries by IBS trees.

The paper prints neither the number of attributes nor the values of N_query. Time is that of one newcomer
against a full window, its data index included; both sort what they answer.

Not for: the maintenance of windows.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.bench.experiment import Experiment, Result, Scale
from service.bench.goals import combined
from service.bench.measure import Batches, Contender, race
from service.bench.papers.spatial_join_workloads import Row, Setting, queries
from service.index.box.ibs_attributes import IBSAttributes
from service.index.box.spatial_join_window import Comparison, Conditions, WindowJoin, decomposed
from service.index.protocol import Bounds, Hits, Points

_SIDE = 2
_QUARTERS = (0.25, 0.5, 0.75)
_OPERATORS = {
    Comparison.LT: operator.lt,
    Comparison.LE: operator.le,
    Comparison.EQ: operator.eq,
    Comparison.GE: operator.ge,
    Comparison.GT: operator.gt,
}


class SharedJoin:
    """IBS-JS (Table 1): by comparison, the queries that have it, in IBS trees over all four attributes."""

    def __init__(self, lo: Bounds, hi: Bounds, comparison: NDArray[np.int64]) -> None:
        self._trees: dict[Comparison, IBSAttributes] = {}
        for each in Comparison:
            having = np.flatnonzero(comparison == each).astype(np.int32)
            self._trees[each] = IBSAttributes(2 * _SIDE)
            self._trees[each].insert(having, lo[having], hi[having])

    def match(self, newcomer: NDArray[np.float64], window: Points) -> Hits:
        """As ``WindowJoin.match``, in no order."""
        found = []
        for comparison, trees in self._trees.items():
            joined = np.flatnonzero(_OPERATORS[comparison](newcomer[0], window[:, 0]))
            pairs = np.concatenate([np.tile(newcomer, (len(joined), 1)), window[joined]], axis=1)
            rows, slots = trees.stab(pairs)
            found.append((joined[rows].astype(np.int32), slots))
        return Hits(*(np.concatenate(column) for column in zip(*found, strict=True)))


class _Case(NamedTuple):
    size: int
    queries: int
    element_us: Mapping[str, float]
    met: float
    digest: str


def _case(size: int, count: int, newcomers: int, seed: int, *, repeats: int) -> _Case:
    """Newcomers against a window of ``size`` and ``count`` queries."""
    rng = np.random.default_rng([seed, 2])
    window, arriving = rng.random((size, _SIDE)), rng.random((newcomers, _SIDE))
    lo, hi, conditions = _queries(count, seed)
    join = WindowJoin(_SIDE, _SIDE, cuts=_QUARTERS)
    join.insert(np.arange(len(lo), dtype=np.int32), lo, hi, conditions)
    shared = SharedJoin(lo, hi, conditions.comparison)

    def contender(join: WindowJoin | SharedJoin) -> Contender:
        return lambda: Batches(size, [join.match(one, window) for one in arriving])

    timings = race({"SJ-Join": contender(join), "IBS-JS": contender(shared)}, repeats=repeats)
    element_us = {name: 1e6 * timing.best_s / newcomers for name, timing in timings.items()}
    met = sum(len(join.match(one, window).rows) for one in arriving) / newcomers
    return _Case(size, count, element_us, met, timings["SJ-Join"].digest)


def _queries(count: int, seed: int) -> tuple[Bounds, Bounds, Conditions]:
    """Boxes and join conditions, without the queries that no pair can meet (``x < 0.1`` where ``x > x'`` and
    ``x' > 0.2``)."""
    lo, hi = queries(Setting(count, 2 * _SIDE, 0), seed)
    first = np.zeros(count, np.int64)
    comparison = np.random.default_rng([seed, 3]).integers(0, len(Comparison), count)
    cuts = np.array([-np.inf, *_QUARTERS, np.inf])
    possible = np.unique(decomposed(lo, hi, Conditions(first, comparison, first + _SIDE), cuts).queries)
    return (
        lo[possible],
        hi[possible],
        Conditions(*(column[possible] for column in (first, comparison, first))),
    )


def _by_window(scale: Scale, seed: int) -> Result:
    full = scale is Scale.FULL
    counts = (10_000, 30_000, 100_000) if full else (300, 600)
    sizes = {100: 20, 1_000: 5, 10_000: 1} if full else {20: 4, 200: 2}
    cases = [
        _case(size, count, newcomers, seed, repeats=2 if full else 1)
        for size, newcomers in sizes.items()
        for count in counts
    ]
    rows: list[Row] = []
    series: dict[str, list[tuple[float, float]]] = {}
    for case in cases:
        for name, us in case.element_us.items():
            series.setdefault(f"{name}, window of {case.size:,}", []).append((float(case.queries), us))
        rows.append(
            {
                "IBS-JS / SJ-Join": round(case.element_us["IBS-JS"] / case.element_us["SJ-Join"], 1),
                "Size_sw": case.size,
                "N_query": case.queries,
                **{f"{name} us": round(us, 1) for name, us in case.element_us.items()},
                "queries met in the window": round(case.met),
            }
        )
    leads = [
        max(case.element_us["IBS-JS"] / case.element_us["SJ-Join"] for case in cases if case.size == size)
        for size in sizes
    ]
    agrees = all(row["IBS-JS us"] > row["SJ-Join us"] for row in rows) and leads == sorted(leads)  # type: ignore[operator]
    words = ", ".join(f"{lead:.1f} at {size:,}" for lead, size in zip(leads, sizes, strict=True))
    return Result(
        "N_query",
        "us a newcomer",
        series,
        rows,
        combined(case.digest for case in cases),
        agrees,
        f"IBS-JS takes up to so many times as long as SJ-Join: {words}. The paper has 2.6 at 100, 3.9 at"
        " 1,000 and 6.9 at 10,000.",
        log_x=True,
        log_y=True,
    )


WINDOWS = (
    Experiment(
        "join-18",
        "Spatial Join paper, Fig. 18",
        "How does time to join a newcomer with a window depend on the number of queries and on the window?",
        "SJ-Join is faster than IBS-JS, the more so the larger the window is: up to 2.6 times at 100, 3.9 at"
        " 1,000 and 6.9 at 10,000 data elements.",
        _by_window,
    ),
)
