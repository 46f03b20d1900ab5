"""What an experiment is: a question, how to answer it by measurement, and what came out.

Not for: how time is taken (``measure``), how results are shown (``report``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Scale(StrEnum):
    """``QUICK`` ends within seconds an experiment, and shows that it runs; ``FULL`` is what is published."""

    QUICK = "quick"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Result:
    """What an experiment found.

    ``series`` is the plot: by the name of a contender, points ``(x, y)``. ``rows`` is the table: every row
    has the same columns in the same order, a ratio first where there is one. ``digest`` is of the answers,
    which were checked to be equal among all contenders. ``agrees`` says whether this is the expected finding
    (of the paper, or the target), ``verdict`` in one or two sentences with figures what was found.
    """

    x: str
    y: str
    series: Mapping[str, Sequence[tuple[float, float]]]
    rows: Sequence[Mapping[str, float | int | str]]
    digest: str
    agrees: bool
    verdict: str
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True, slots=True)
class Experiment:
    """``name`` is what ``rangewatch bench NAME`` takes. ``origin`` is the paper and the figure or table, or
    what else asks for it. ``finding`` is what is to be confirmed, in our own words. ``run`` takes the scale
    and a seed; the same seed gives the same workload everywhere."""

    name: str
    origin: str
    question: str
    finding: str
    run: Callable[[Scale, int], Result]
