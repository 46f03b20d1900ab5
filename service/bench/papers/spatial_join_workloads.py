"""What the experiments of the Spatial Join paper share: queries, data elements, structures, and their race.

Queries and data elements are those of Sect. 7.1: a query has conditions on randomly chosen attributes, each
an interval between two values uniform in [0, 1], left open, right open or closed with equal chances; data
elements are uniform in [0, 1]. ``R_pred`` is the share of the attributes that a query has conditions on.
Where the paper prints none, all attributes have one (1.0).

Time is that of a batch, from its points to the pairs, with the data index of SJ-Batch made anew each time (as
in the paper). Pairs are left in the order in which a structure finds them; the digest sorts, outside of the
timing. SJ-Immediate and IBS take the same points one by one, in one call.

Not for: which figure shows what (``spatial_join``), joins of windows (``spatial_join_windows``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from service.bench.experiment import Scale
from service.bench.measure import Batches, Timing, batches, race
from service.bench.papers.intervals import AsReported
from service.index.box.ibs_attributes import IBSAttributes
from service.index.box.spatial_join import Mode, SpatialJoin
from service.index.protocol import Bounds, Points

Row = Mapping[str, float | int | str]
Index = SpatialJoin | IBSAttributes
CONTENDERS = ("SJ-Batch", "SJ-Immediate", "IBS")

SKEWED = (0.16, 0.26)
"""The tenth of the domain in which skewed data elements lie. The paper does not say which; here a value is in
as many queries as on average, so that answers are as large whatever the skew, and only data differ."""


class Setting(NamedTuple):
    """N_query, N_attr, N_batch_data, R_pred and R_skew."""

    queries: int
    attributes: int
    points: int
    predicates: float = 1.0
    skew: float = 0.0

    def at(self, scale: Scale) -> Setting:
        """The same, or a small likeness."""
        if scale is Scale.FULL:
            return self
        return self._replace(queries=max(self.queries // 50, 200), points=max(self.points // 25, 80))


class Measured(NamedTuple):
    """Microseconds a data element, by contender; pairs a data element; digest of the pairs."""

    element_us: Mapping[str, float]
    hits: float
    digest: str


def queries(setting: Setting, seed: int) -> tuple[Bounds, Bounds]:
    """N_query boxes ``float64[n, N_attr]``; an attribute without a condition is the whole domain."""
    rng = np.random.default_rng(seed)
    shape = setting.queries, setting.attributes
    ends = np.sort(rng.random((*shape, 2)), axis=2)
    lo, hi = ends[:, :, 0].copy(), ends[:, :, 1].copy()
    form = rng.integers(0, 3, shape)  # left open, right open, closed
    lo[form == 0] = np.nextafter(lo[form == 0], np.inf)
    hi[form != 1] = np.nextafter(hi[form != 1], np.inf)
    free = setting.attributes - max(round(setting.predicates * setting.attributes), 1)
    without = np.argsort(rng.random(shape), axis=1) < free
    lo[without], hi[without] = -np.inf, np.inf
    return lo, hi


def data_elements(setting: Setting, seed: int) -> Points:
    """N_batch_data points ``float64[m, N_attr]``, a share R_skew of them in a tenth of the domain."""
    rng = np.random.default_rng([seed, 1])
    points = rng.random((setting.points, setting.attributes))
    skewed = rng.random(setting.points) < setting.skew
    low, high = SKEWED
    points[skewed] = low + (high - low) * points[skewed]
    return points


def structures(setting: Setting, seed: int) -> Mapping[str, Index]:
    """Each contender with the queries of a setting."""
    lo, hi = queries(setting, seed)
    made: dict[str, Index] = {
        "SJ-Batch": SpatialJoin(setting.attributes, tail_limit=0),
        "SJ-Immediate": SpatialJoin(setting.attributes, mode=Mode.IMMEDIATE, tail_limit=0),
        "IBS": IBSAttributes(setting.attributes),
    }
    for index in made.values():
        index.insert(np.arange(setting.queries, dtype=np.int32), lo, hi)
        # The one thing to change in an index: what it does with the ids that its structure has reported.
        index._collector = AsReported()
    return made


def measured(indexes: Mapping[str, Index], points: Points) -> Measured:
    """Lets the indexes race over one batch; they must find the same pairs."""
    timings: Mapping[str, Timing] = race(
        {name: batches(index.stab, points, len(points)) for name, index in indexes.items()}, repeats=1
    )
    first = next(iter(indexes.values()))
    hits = len(Batches(len(points), [first.stab(points)]).answers[0].rows) / len(points)
    return Measured(
        {name: 1e6 * timing.best_s / len(points) for name, timing in timings.items()},
        hits,
        next(iter(timings.values())).digest,
    )


def sweep(settings: Sequence[Setting], scale: Scale, seed: int) -> list[Measured]:
    """All contenders at each setting. Settings take turns as contenders do: a machine that slows down for a
    minute must not look like a trend. Structures of the same queries are the same."""
    chosen = [setting.at(scale) for setting in settings]
    made: dict[Setting, Mapping[str, Index]] = {}
    for setting in chosen:
        of_queries = setting._replace(points=0, skew=0.0)
        if of_queries not in made:
            made[of_queries] = structures(setting, seed)
    rounds = [
        [
            measured(made[setting._replace(points=0, skew=0.0)], data_elements(setting, seed))
            for setting in chosen
        ]
        for _ in range(2 if scale is Scale.FULL else 1)
    ]
    return [_best(of_one) for of_one in zip(*rounds, strict=True)]


def _best(rounds: Sequence[Measured]) -> Measured:
    names = rounds[0].element_us
    return rounds[0]._replace(
        element_us={name: min(one.element_us[name] for one in rounds) for name in names}
    )
