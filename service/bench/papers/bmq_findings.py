"""What confirms the findings of the BMQ-Index paper (Fig. 6 to 9): goals, from the measured curves alone.

Idea: the paper draws curves and says how they run. A judge takes the values of the parameter and the curves
of all contenders, and says what would show the same, in figures: a verdict is computed and never written.

Not for: measuring (``bmq_streams``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from service.bench.goals import Goal
from service.bench.papers.bmq_streams import BMQ, CEI_UNIT, IS_BASED, OVER_INTERVALS
from service.bench.papers.figures import Curves

FIXED_QUERIES = 100_000
FIXED_WIDTH = 0.1
FIXED_LEVEL = 0.01
"""N, and W and FL in percent, where they do not vary."""

_MUCH = 2
"""How many times as fast is far, or much, faster."""
_LITTLE = 1.5
"""How many times as slow is a little slower."""
_SLOWLY = 10
"""A loss of so many percentage points, of a hundred, while FL grows tenfold."""

Judge = Callable[[Sequence[float], Curves], list[Goal]]
"""From the values of the parameter and the curves: what would confirm the finding."""


def _best(curves: Curves, *, highest: bool = False) -> list[float]:
    """The better DiffRMQ at every place."""
    both = zip(*(curves[name] for name in OVER_INTERVALS), strict=True)
    return [max(pair) if highest else min(pair) for pair in both]


def _least_ratio(above: Sequence[float], below: Sequence[float]) -> float:
    return min(a / b for a, b in zip(above, below, strict=True))


def efficiency_by_count(x: Sequence[float], curves: Curves) -> list[Goal]:
    return [
        Goal("least efficiency of BMQ-Index, %,", min(curves[BMQ]), 99.9),
        Goal("highest of DiffRMQ, %,", max(_best(curves, highest=True)), 50, at_most=True),
    ]


def time_by_count(x: Sequence[float], curves: Curves) -> list[Goal]:
    lead = _least_ratio(_best(curves), curves[BMQ])
    return [Goal("times slower the better DiffRMQ, at least,", lead, _MUCH)]


def efficiency_by_width(x: Sequence[float], curves: Curves) -> list[Goal]:
    others = _best(curves, highest=True)
    # Steps are up to 2 FL: a query that is narrower can be passed whole.
    wide = [found for width, found in zip(x, curves[BMQ], strict=True) if width >= 2 * FIXED_LEVEL]
    return [
        Goal("least efficiency of BMQ-Index from W = 2 FL on, %,", min(wide), 99.9),
        Goal("efficiency of DiffRMQ at the narrowest over that at the widest", others[0] / others[-1], 3),
    ]


def time_by_width(x: Sequence[float], curves: Curves) -> list[Goal]:
    growth = max(curves[BMQ]) / min(curves[BMQ])
    others = [curves[name][-1] / curves[name][0] for name in OVER_INTERVALS]
    return [
        Goal("slowest over fastest BMQ-Index", growth, 1.5, at_most=True),
        Goal("times slower DiffRMQ gets, at least,", min(others), 1.5),
    ]


def efficiency_by_level(x: Sequence[float], curves: Curves) -> list[Goal]:
    others = _best(curves, highest=True)
    below = [i for i, level in enumerate(x) if level < FIXED_WIDTH]
    loss = curves[BMQ][0] - curves[BMQ][-1]
    return [
        Goal("loss of BMQ-Index, percentage points,", loss, 0.1),
        Goal("the same, as slow as can be called slowly,", loss, _SLOWLY, at_most=True),
        Goal("gain of DiffRMQ, percentage points,", others[-1] - others[0], 20),
        Goal(
            "least lead below FL = W, percentage points,", min(curves[BMQ][i] - others[i] for i in below), 0
        ),
    ]


def time_by_level(x: Sequence[float], curves: Curves) -> list[Goal]:
    half = sum(level <= FIXED_WIDTH / 2 for level in x)
    below = sum(level < FIXED_WIDTH for level in x)
    others, ours = _best(curves), curves[BMQ]
    at_width = ours[-1] / others[-1]
    return [
        Goal(
            "times slower the better DiffRMQ, up to FL = W / 2,",
            _least_ratio(others[:half], ours[:half]),
            _MUCH,
        ),
        Goal("the same, below FL = W,", _least_ratio(others[:below], ours[:below]), 1),
        Goal("time of BMQ-Index over that of the better DiffRMQ at FL = W", at_width, 1),
        Goal("the same, to be a little more,", at_width, _LITTLE, at_most=True),
    ]


def storage_by_count(x: Sequence[float], curves: Curves) -> list[Goal]:
    ours, cei, is_list = curves[BMQ], curves[CEI_UNIT], curves[IS_BASED]
    return [
        Goal("times larger the IS-list, at least,", _least_ratio(is_list, ours), 1),
        Goal("times larger CEI of unit cells, at least,", _least_ratio(cei, ours), 1),
        Goal("CEI of unit cells over the IS-list, at least,", _least_ratio(cei, is_list), 1),
    ]


def storage_by_width(x: Sequence[float], curves: Curves) -> list[Goal]:
    growth = {name: curve[-1] / curve[0] for name, curve in curves.items()}
    return [
        Goal("growth of BMQ-Index with W", growth[BMQ], 1.01, at_most=True),
        Goal("growth of CEI of unit cells over that of the IS-list", growth[CEI_UNIT] / growth[IS_BASED], 1),
    ]
