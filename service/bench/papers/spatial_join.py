"""The experiments of the Spatial Join paper (Lim, Lee, Lee, Whang, Song; Sect. 7, Table 3, Fig. 15 to 18).

Parameters are those that are printed: batches of 10,000 data elements; 10,000 queries for the size of a
cluster; 10,000 to 100,000 queries, 4 and 8 attributes (Fig. 15); 50,000 queries and 8 attributes (Fig. 16);
100,000 queries and 4 attributes (Fig. 17). The paper reports time per data element on a disk-based index read
into memory beforehand, so ratios are what can be compared.

Not for: workloads and races (``spatial_join_workloads``), windows (``spatial_join_windows``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from service.bench.experiment import Experiment, Result, Scale
from service.bench.goals import combined
from service.bench.measure import batches, race
from service.bench.papers.intervals import AsReported
from service.bench.papers.spatial_join_windows import WINDOWS
from service.bench.papers.spatial_join_workloads import (
    CONTENDERS,
    Measured,
    Row,
    Setting,
    data_elements,
    queries,
    sweep,
)
from service.index.box.spatial_join import SpatialJoin

_SIZES = tuple(1 << power for power in range(3, 12))
_CHOSEN = "chosen by the model"
_FLAT = 1.1
"""What sizes from half to three times the best may cost, of the best: the paper's tenth."""


def _by_size(setting: Setting, seed: int, *, repeats: int) -> tuple[dict[int, float], float, int, str]:
    """Microseconds a data element for each N_dc and for the model's choice, that choice, and the digest."""
    lo, hi = queries(setting, seed)
    points = data_elements(setting, seed)
    sizes = [size for size in _SIZES if size <= setting.points]
    indexes = {str(size): SpatialJoin(setting.attributes, cluster_size=size, tail_limit=0) for size in sizes}
    indexes[_CHOSEN] = SpatialJoin(setting.attributes, tail_limit=0)
    for index in indexes.values():
        index.insert(np.arange(setting.queries, dtype=np.int32), lo, hi)
        index._collector = AsReported()
    contenders = {name: batches(index.stab, points, len(points)) for name, index in indexes.items()}
    timings = race(contenders, repeats=repeats)
    element_us = {name: 1e6 * timing.best_s / len(points) for name, timing in timings.items()}
    predicted = indexes[_CHOSEN].predicted(points)
    return (
        {size: element_us[str(size)] for size in sizes},
        element_us[_CHOSEN],
        min(predicted, key=lambda size: predicted[size]),
        timings[_CHOSEN].digest,
    )


def _cluster_size(scale: Scale, seed: int) -> Result:
    setting = Setting(10_000, 8, 10_000).at(scale)
    cost, chosen_us, chosen, digest = _by_size(setting, seed, repeats=5 if scale is Scale.FULL else 1)
    index = SpatialJoin(setting.attributes, tail_limit=0)
    index.insert(np.arange(setting.queries, dtype=np.int32), *queries(setting, seed))
    predicted = index.predicted(data_elements(setting, seed))
    best = min(cost, key=lambda size: cost[size])
    beside = costliest_beside(cost)
    rows: list[Row] = [
        {
            "measured / best": round(us / cost[best], 2),
            "N_dc": size,
            "measured us": round(us, 3),
            "predicted us": round(predicted[size] / 1000, 3) if size in predicted else "",
            "chosen": "yes" if size == chosen else "",
        }
        for size, us in cost.items()
    ]
    return Result(
        "N_dc",
        "us a data element",
        {
            "measured": list(cost.items()),
            "predicted": [(size, ns / 1000) for size, ns in predicted.items() if size in cost],
        },
        rows,
        digest,
        beside <= _FLAT and best not in (min(cost), max(cost)),
        f"The best N_dc is {best}, its neighbours cost up to {beside:.2f} times as much. The model takes"
        f" {chosen}, which costs {chosen_us / cost[best]:.2f} times the best, the choice included.",
        log_x=True,
        log_y=True,
    )


def costliest_beside(cost: Mapping[int, float]) -> float:
    """What the worst size from half to three times the best costs, of the best."""
    best = min(cost, key=lambda size: cost[size])
    return max(us for size, us in cost.items() if best <= 2 * size and size <= 3 * best) / cost[best]


def _table_3(scale: Scale, seed: int) -> Result:
    rows: list[Row] = []
    series: dict[str, list[tuple[float, float]]] = {}
    digests, regrets = [], []
    falls = grows = True
    for attributes in (4, 8):
        best_us, best_sizes, curve = [], [], []
        for points in (2_000, 4_000, 6_000, 8_000, 10_000):
            setting = Setting(10_000, attributes, points).at(scale)
            repeats = 5 if scale is Scale.FULL else 1
            cost, chosen_us, chosen, digest = _by_size(setting, seed, repeats=repeats)
            best = min(cost, key=lambda size: cost[size])
            regrets.append(chosen_us / cost[best])
            best_us.append(cost[best])
            best_sizes.append(best)
            curve.append((float(setting.points), cost[best]))
            digests.append(digest)
            rows.append(
                {
                    "chosen / best": round(regrets[-1], 2),
                    "N_attr": attributes,
                    "N_batch_data": setting.points,
                    "best N_dc": best,
                    "best us": round(cost[best], 3),
                    "chosen N_dc": chosen,
                    "chosen us": round(chosen_us, 3),
                }
            )
        series[f"{attributes} attributes"] = curve
        falls &= best_us[-1] < best_us[0]
        grows &= best_sizes[-1] >= best_sizes[0]
    return Result(
        "N_batch_data",
        "us a data element",
        series,
        rows,
        combined(digests),
        falls and grows,
        f"From the smallest batch to the largest, time a data element {'falls' if falls else 'does not fall'}"
        f" and the best N_dc {'does not fall' if grows else 'falls'}. The model's choice costs"
        f" {np.mean(regrets):.2f} times the best on average and {max(regrets):.2f} at worst.",
    )


def _figure(
    x: str,
    values: Sequence[float],
    found: Sequence[Measured],
    judge: Callable[[Sequence[Measured]], bool],
    words: str,
) -> Result:
    """The table and the plot of a sweep; ``words`` go before the figures of its verdict."""
    rows: list[Row] = []
    for value, one in zip(values, found, strict=True):
        batch, immediate, ibs = (one.element_us[name] for name in CONTENDERS)
        rows.append(
            {
                "IBS / SJ-Batch": round(ibs / batch, 1),
                "IBS / SJ-Immediate": round(ibs / immediate, 1),
                x: value,
                **{f"{name} us": round(us, 2) for name, us in one.element_us.items()},
                "queries met": round(one.hits, 1),
            }
        )
    ratios = [
        f"{row['IBS / SJ-Batch']} and {row['IBS / SJ-Immediate']} at {row[x]:,}"
        for row in (rows[0], rows[-1])
    ]
    return Result(
        x,
        "us a data element",
        {
            name: [(value, one.element_us[name]) for value, one in zip(values, found, strict=True)]
            for name in CONTENDERS
        },
        rows,
        combined(one.digest for one in found),
        judge(found),
        f"{words} IBS takes so many times as long as SJ-Batch and SJ-Immediate: {'; '.join(ratios)}.",
        log_y=True,
    )


def _change(found: Sequence[Measured], name: str) -> float:
    """The time at the last setting over that at the first."""
    return found[-1].element_us[name] / found[0].element_us[name]


def _ordered_and_growing(found: Sequence[Measured]) -> bool:
    """SJ-Batch before SJ-Immediate before IBS everywhere, and both leads over IBS grow."""
    ordered = all(
        one.element_us["SJ-Batch"] < one.element_us["SJ-Immediate"] < one.element_us["IBS"] for one in found
    )
    return ordered and all(_change(found, name) < _change(found, "IBS") for name in CONTENDERS[:2])


def _by_queries(attributes: int, paper: str) -> Callable[[Scale, int], Result]:
    def run(scale: Scale, seed: int) -> Result:
        settings = [Setting(count, attributes, 10_000) for count in (10_000, 30_000, 100_000)]
        counts = [setting.at(scale).queries for setting in settings]
        return _figure("N_query", counts, sweep(settings, scale, seed), _ordered_and_growing, paper)

    return run


def _by_predicates(scale: Scale, seed: int) -> Result:
    shares = (0.375, 0.5, 0.75, 1.0)
    found = sweep([Setting(50_000, 8, 10_000, share) for share in shares], scale, seed)

    def judge(found: Sequence[Measured]) -> bool:
        return (
            _change(found, "IBS") > 1
            and _change(found, "SJ-Batch") < 1
            and _change(found, "SJ-Immediate") < 1
        )

    words = ", ".join(f"{name} {_change(found, name):.2f}" for name in CONTENDERS)
    return _figure("R_pred", shares, found, judge, f"Time changes from first to last by the factors {words}.")


def _by_skew(scale: Scale, seed: int) -> Result:
    shares = (0.0, 0.5, 1.0)
    found = sweep([Setting(100_000, 4, 10_000, skew=share) for share in shares], scale, seed)

    def judge(found: Sequence[Measured]) -> bool:
        steady = all(0.75 < _change(found, name) < 1.33 for name in CONTENDERS[1:])
        return steady and _change(found, "SJ-Batch") < 1

    words = ", ".join(f"{name} {_change(found, name):.2f}" for name in CONTENDERS)
    return _figure(
        "R_skew", shares, found, judge, f"Time changes from none to all skewed by the factors {words}."
    )


EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        "join-ndc",
        "Spatial Join paper, Sect. 7.2",
        "How does time depend on the number of data elements in a cluster, and does the cost model know?",
        "There is a best size, and around it time changes little: by a tenth from half to three times of it.",
        _cluster_size,
    ),
    Experiment(
        "join-table3",
        "Spatial Join paper, Table 3",
        "Which N_dc is the best for batches of 2,000 to 10,000 data elements, and what does it cost?",
        "With larger batches the best N_dc grows and time a data element falls.",
        _table_3,
    ),
    Experiment(
        "join-15a",
        "Spatial Join paper, Fig. 15 a",
        "How does time grow with the number of queries, 4 attributes?",
        "SJ-Batch is the fastest, then SJ-Immediate, then IBS, and the leads grow: 15.0 and 1.7 times IBS at"
        " 10,000 queries, 28.5 and 3.2 at 100,000.",
        _by_queries(4, "The paper has 15.0 and 1.7 at 10,000, 28.5 and 3.2 at 100,000 queries."),
    ),
    Experiment(
        "join-15b",
        "Spatial Join paper, Fig. 15 b",
        "How does time grow with the number of queries, 8 attributes?",
        "SJ-Batch is the fastest, then SJ-Immediate, then IBS, and the leads grow: 15.9 and 1.4 times IBS at"
        " 10,000 queries, 36.2 and 2.1 at 100,000.",
        _by_queries(8, "The paper has 15.9 and 1.4 at 10,000, 36.2 and 2.1 at 100,000 queries."),
    ),
    Experiment(
        "join-16",
        "Spatial Join paper, Fig. 16",
        "How does time depend on the share of the attributes that queries have conditions on?",
        "With more conditions IBS gets slower, SJ-Batch and SJ-Immediate get faster. R_pred below 0.375,"
        " conditions on one or two of the eight attributes, is left out: a data element is in more than 5,000"
        " of the 50,000 queries there, and only writing them would be measured.",
        _by_predicates,
    ),
    Experiment(
        "join-17",
        "Spatial Join paper, Fig. 17",
        "How does time depend on the skew of data elements?",
        "SJ-Batch gains up to 1.7 times from skew; SJ-Immediate and IBS do not depend on it.",
        _by_skew,
    ),
    *WINDOWS,
)
