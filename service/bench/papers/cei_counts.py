"""What the CEI paper counts of virtual constructs: Table 1 (N, C) and Fig. 14 with Table 2 (D).

Idea: N, the number of constructs, C, the number around a value, and D, the number that all queries decompose
into, decide storage and search time of every index by virtual constructs. The closed forms are compared with
counts by exhaustion, and with the decompositions of the queries of Fig. 14.

Not for: bytes and times (``cei``).
"""

from __future__ import annotations

import hashlib
import math

from service.bench.experiment import Experiment, Result, Scale
from service.bench.papers.intervals import LARGE_RANGE, Setting
from service.bench.papers.virtual_constructs import CONSTRUCTS, entries

_WIDEST = 200
_LENGTHS = (2, 4, 8, 16, 32, 64, 128)
"""Up to W: shorter queries than L have no lower bound (Sect. 4.1)."""
_DRAWN = ("UI", "LCI", "CEI")
_SPREAD = 0.58
"""The standard deviation of a width uniform in 1 .. W, as a share of its mean."""

Row = dict[str, float | int | str]


def _table_1(scale: Scale, seed: int) -> Result:
    """Constructs are told apart by their ids, over an axis of four times L cells. Nothing is drawn."""
    rows: list[Row] = []
    series: dict[str, list[tuple[float, float]]] = {name: [] for name in CONSTRUCTS}
    wrong = []
    for longest in _LENGTHS[: 3 if scale is Scale.QUICK else 6]:
        cells = 4 * longest
        for name, construct in CONSTRUCTS.items():
            around = [construct.around(cell, longest) for cell in range(cells)]
            # Ids below 0 are those of constructs that begin before the axis.
            count = len({id for ids in around for id in ids if id >= 0})
            sizes = {len(ids) for ids in around}
            in_closed_form = construct.defined(cells, longest), construct.covering(longest)
            if count != in_closed_form[0] or sizes != {in_closed_form[1]}:
                wrong.append(f"{name} at L = {longest}")
            series[name].append((float(longest), float(max(sizes))))
            rows.append(
                {
                    "C / C of CEI": round(max(sizes) / CONSTRUCTS["CEI"].covering(longest), 2),
                    "structure": name,
                    "L": longest,
                    "r": cells,
                    "N": count,
                    "N, closed form": in_closed_form[0],
                    "C": max(sizes),
                    "C, closed form": in_closed_form[1],
                }
            )
    found = f"but not for {', '.join(wrong)}" if wrong else "for every structure and L"
    return Result(
        x="L",
        y="C, constructs around a value",
        series=series,
        rows=rows,
        digest=_digest(rows),
        agrees=not wrong,
        verdict=f"Counts of N and C are those of the closed forms, {found}.",
        log_x=True,
        log_y=True,
    )


def _figure_14(scale: Scale, seed: int) -> Result:
    """The constructs of all queries, beside the lower and the upper bound of their mean times n."""
    count, domain = (2_000, LARGE_RANGE // 64) if scale is Scale.QUICK else (100_000, LARGE_RANGE)
    # Queries are drawn: their mean is within four standard errors of that of the law.
    slack = 4 * _SPREAD / math.sqrt(count)
    rows: list[Row] = []
    taken: dict[str, list[int]] = {name: [] for name in _DRAWN}
    outside = []
    for longest in _LENGTHS:
        setting = Setting(count, domain, _WIDEST, longest)
        bounds = {name: [round(count * mean) for mean in _bounds(name, longest)] for name in _DRAWN}
        for name in _DRAWN:
            taken[name].append(entries(name, setting, seed))
            low, high = bounds[name]
            if not (1 - slack) * low <= taken[name][-1] <= (1 + slack) * high:
                outside.append(f"{name} at L = {longest}")
        row: Row = {"CEI / LCI": round(taken["CEI"][-1] / taken["LCI"][-1], 2), "L": longest}
        for name in _DRAWN:
            row |= {f"D of {name}": taken[name][-1]}
            row |= {f"{name}, lower bound": bounds[name][0], f"{name}, upper bound": bounds[name][1]}
        rows.append(row)
    more = [cei / lci for cei, lci in zip(taken["CEI"], taken["LCI"], strict=True)]
    saved = [ui / cei for ui, cei in zip(taken["UI"], taken["CEI"], strict=True)]
    allowed = f"(queries are drawn, so {slack:.1%} beyond counts as within)"
    found = (
        f"outside of their bounds {allowed} for {', '.join(outside)}"
        if outside
        else f"within their bounds {allowed} for every L"
    )
    return Result(
        x="L",
        y="D, constructs of all queries",
        series={
            name: [(float(x), float(y)) for x, y in zip(_LENGTHS, taken[name], strict=True)]
            for name in _DRAWN
        },
        rows=rows,
        digest=_digest(rows),
        agrees=not outside and min(more) >= 1 and min(saved) > 1,
        verdict=(
            f"Decompositions are {found}. CEI takes {min(more):.2f} to {max(more):.2f} times as many as LCI;"
            f" UI takes {saved[0]:.1f} times as many as CEI at L = {_LENGTHS[0]}, {saved[-1]:.1f} times at"
            f" {_LENGTHS[-1]}."
        ),
        log_x=True,
        log_y=True,
    )


def _bounds(structure: str, longest: int) -> tuple[float, float]:
    """Of the mean number of constructs a query: W is taken down and up to a multiple of L (Theorem 2)."""
    if structure == "UI":
        return (1 + _WIDEST) / 2, (1 + _WIDEST) / 2
    mean = CONSTRUCTS[structure].mean
    below, above = _WIDEST // longest * longest, -(-_WIDEST // longest) * longest
    return mean(longest, below) * below / _WIDEST, mean(longest, above) * above / _WIDEST


def _digest(rows: list[Row]) -> str:
    return hashlib.sha256(repr(rows).encode()).hexdigest()


COUNTS = (
    Experiment(
        "cei-1",
        "CEI paper, Table 1",
        "How many constructs are there, and how many hold a value?",
        "Of unit intervals r and 1, of LCI (1 + log L) r and 2 L - 1, of CEI 2 r - r / L and 1 + log L.",
        _table_1,
    ),
    Experiment(
        "cei-14",
        "CEI paper, Fig. 14 and Table 2",
        "How many constructs do queries decompose into?",
        "As many as the closed forms say; CEI takes more than LCI, and UI far more than both.",
        _figure_14,
    ),
)
