"""The experiments of the VCI paper on intervals (Wu, Chen, Yu; Fig. 6 and 7).

The paper prints R = 5,000 and refers to another one for the rest; n is varied from 1,000 to 32,000 here, with
widths up to W = 200 and L = 16, which are the parameters of the CEI paper.

Not for: what is measured and how (``intervals``, ``interval_figures``); rectangles (``vcr``).
"""

from __future__ import annotations

from collections.abc import Sequence

from service.bench.experiment import Experiment
from service.bench.papers.figures import Curves
from service.bench.papers.interval_figures import Drawn, Sweep, figure
from service.bench.papers.intervals import Setting

_BEST = "LCI-BV(DT)"
_STRUCTURES = ("SCI", "LCI", _BEST, "D-list", "IS-list")
_COUNTS = (1_000, 2_000, 4_000, 8_000, 16_000, 32_000)
_NEAR = 1.5
"""Near-best: at most this many times as long as the fastest."""
_SWEEP = Sweep(
    "n",
    "queries",
    [Setting(count, 5_000, 200, 16) for count in _COUNTS],
    _STRUCTURES,
    ("IS-list", _BEST),
)


def _time(counts: Sequence[float], curves: Curves) -> tuple[bool, str]:
    """D-list is the fastest, LCI-BV(DT) near it, and the IS-list slower than that."""
    fastest, near, skips = (curves[name] for name in ("D-list", _BEST, "IS-list"))
    first = all(time == min(curve[i] for curve in curves.values()) for i, time in enumerate(fastest))
    behind = [a / b for a, b in zip(near, fastest, strict=True)]
    lead = [a / b for a, b in zip(skips, near, strict=True)]
    return first and max(behind) <= _NEAR and min(lead) > 1, (
        f"The D-list is {'' if first else 'not always '}the fastest, and LCI-BV(DT) takes {min(behind):.1f}"
        f" to {max(behind):.1f} times as long. The IS-list takes {lead[0]:.1f} times as long as LCI-BV(DT) at"
        f" n = {counts[0]:,.0f} and {lead[-1]:.1f} times at {counts[-1]:,.0f}."
    )


def _storage(counts: Sequence[float], curves: Curves) -> tuple[bool, str]:
    """LCI-BV(DT) takes the least of all."""
    least, direct = curves[_BEST], curves["D-list"]
    saved = {
        name: min(a / b for a, b in zip(curve, least, strict=True))
        for name, curve in curves.items()
        if name != _BEST
    }
    next_best = min(saved, key=lambda name: saved[name])
    return saved[next_best] >= 1, (
        f"{next_best} comes nearest to LCI-BV(DT), with {saved[next_best]:.2f} times its storage or more; the"
        f" D-list takes {direct[0] / least[0]:.1f} times at n = {counts[0]:,.0f} and"
        f" {direct[-1] / least[-1]:.1f} times at {counts[-1]:,.0f}."
    )


EXPERIMENTS: tuple[Experiment, ...] = (
    figure(
        "vci-6",
        "VCI paper, Fig. 6",
        "How fast is a search of the interval indexes?",
        "Direct listing is the fastest, LCI-BV(DT) comes near it, and the IS-list is slow.",
        sweep=_SWEEP,
        drawn=Drawn.SEARCH,
        judge=_time,
    ),
    figure(
        "vci-7",
        "VCI paper, Fig. 7",
        "How much storage do the interval indexes take?",
        "LCI-BV(DT) takes the least; direct listing takes much.",
        sweep=_SWEEP,
        drawn=Drawn.STORAGE,
        judge=_storage,
    ),
)
