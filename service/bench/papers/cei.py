"""The experiments of the CEI paper: CEI against UI, LCI and the IS-list (Wu, Chen, Yu; Tables 1, 2, Fig. 14
to 19).

Parameters are those that are printed: widths up to W = 200 unless varied, n = 100,000 for the influence of L;
n = 50,000, r = 65,536 and L = 16 for that of W; n from 5,000 to 640,000 and L = 16 for its own; 50,000
searches. The ranges that are called large and small are those of Fig. 14 and 17: 1,048,576 and 65,536.

Not for: what is measured and how (``intervals``, ``interval_figures``), what confirms a finding
(``cei_findings``), counts that need no measurement (``cei_counts``).
"""

from __future__ import annotations

from service.bench.experiment import Experiment
from service.bench.papers import cei_findings
from service.bench.papers.cei_counts import COUNTS
from service.bench.papers.cei_findings import ALL, VIRTUAL
from service.bench.papers.interval_figures import Drawn, Sweep, figure
from service.bench.papers.intervals import LARGE_RANGE, SMALL_RANGE, Setting

_WIDEST = 200


def _by_length(domain: int) -> Sweep:
    lengths = (2, 4, 8, 16, 32, 64, 128, 256)
    settings = [Setting(100_000, domain, _WIDEST, longest) for longest in lengths]
    return Sweep("L", "longest", settings, VIRTUAL, ("LCI", "CEI"))


def _by_width() -> Sweep:
    widths = (10, 20, 40, 80, 160, 320)
    settings = [Setting(50_000, SMALL_RANGE, widest, 16) for widest in widths]
    return Sweep("W", "widest", settings, ALL, ("IS-list", "CEI"))


def _by_count(domain: int) -> Sweep:
    counts = (5_000, 10_000, 20_000, 40_000, 80_000, 160_000, 320_000, 640_000)
    settings = [Setting(count, domain, _WIDEST, 16) for count in counts]
    return Sweep("n", "queries", settings, ALL, ("IS-list", "CEI"))


EXPERIMENTS: tuple[Experiment, ...] = (
    *COUNTS,
    figure(
        "cei-15a",
        "CEI paper, Fig. 15 a",
        "How does storage depend on the longest construct L, over a large range?",
        "CEI takes less the longer L is; LCI takes less and then more again; UI does not depend on L.",
        sweep=_by_length(LARGE_RANGE),
        drawn=Drawn.STORAGE,
        judge=cei_findings.storage_by_length_large,
    ),
    figure(
        "cei-15b",
        "CEI paper, Fig. 15 b",
        "How does search time depend on the longest construct L, over a large range?",
        "LCI slows down fast as L grows and CEI little; UI is the fastest, or within 15 % of it.",
        sweep=_by_length(LARGE_RANGE),
        drawn=Drawn.SEARCH,
        judge=cei_findings.time_by_length,
    ),
    figure(
        "cei-16a",
        "CEI paper, Fig. 16 a",
        "How does storage depend on the longest construct L, over a small range?",
        "CEI takes less the longer L is; UI takes the most.",
        sweep=_by_length(SMALL_RANGE),
        drawn=Drawn.STORAGE,
        judge=cei_findings.storage_by_length_small,
    ),
    figure(
        "cei-16b",
        "CEI paper, Fig. 16 b",
        "How does search time depend on the longest construct L, over a small range?",
        "LCI slows down fast as L grows and CEI little; UI is the fastest, or within 15 % of it.",
        sweep=_by_length(SMALL_RANGE),
        drawn=Drawn.SEARCH,
        judge=cei_findings.time_by_length,
    ),
    figure(
        "cei-17a",
        "CEI paper, Fig. 17 a",
        "How does storage depend on the width of queries?",
        "The IS-list takes more than LCI and CEI, and less than UI where queries are wide.",
        sweep=_by_width(),
        drawn=Drawn.STORAGE,
        judge=cei_findings.storage_by_width,
    ),
    figure(
        "cei-17b",
        "CEI paper, Fig. 17 b",
        "How does search time depend on the width of queries?",
        "UI, LCI and CEI are faster than the IS-list at all widths; CEI almost 20 times at the smallest.",
        sweep=_by_width(),
        drawn=Drawn.SEARCH,
        judge=cei_findings.time_by_width,
    ),
    figure(
        "cei-18a",
        "CEI paper, Fig. 18 a",
        "How does storage grow with the number of queries, over a large range?",
        "The IS-list takes less than CEI while there are few queries, and no longer when there are many.",
        sweep=_by_count(LARGE_RANGE),
        drawn=Drawn.STORAGE,
        judge=cei_findings.storage_by_count_large,
    ),
    figure(
        "cei-18b",
        "CEI paper, Fig. 18 b",
        "How does search time grow with the number of queries, over a large range?",
        "The IS-list is the slowest; CEI is faster than LCI and close to UI (within a factor of 1.5).",
        sweep=_by_count(LARGE_RANGE),
        drawn=Drawn.SEARCH,
        judge=cei_findings.time_by_count,
    ),
    figure(
        "cei-19a",
        "CEI paper, Fig. 19 a",
        "How does storage grow with the number of queries, over a small range?",
        "The IS-list takes more than CEI, also while there are few queries.",
        sweep=_by_count(SMALL_RANGE),
        drawn=Drawn.STORAGE,
        judge=cei_findings.storage_by_count_small,
    ),
    figure(
        "cei-19b",
        "CEI paper, Fig. 19 b",
        "How does search time grow with the number of queries, over a small range?",
        "The IS-list is the slowest; CEI is faster than LCI and close to UI (within a factor of 1.5).",
        sweep=_by_count(SMALL_RANGE),
        drawn=Drawn.SEARCH,
        judge=cei_findings.time_by_count,
    ),
)
