"""The experiments of the VCR paper, Fig. 6 to 9 (Wu, Chen, Yu). Fig. 12, 13 of the VCI paper are Fig. 6, 7.

Parameters are those that are printed: W = 40 by 20 with L = 16 by 8 unless varied, n from 32,000 to 256,000,
planes of 60,000 and 3,000,000 cells, a hash table of 10 n places or of 1,800,017, skews of 90-10, of 90-1 in
Fig. 8 and none. Not printed are the sides of the planes (300 by 200 and 2,000 by 1,500 here), the number of
predicates and the skew of Fig. 6 (64,000 and 90-10), and the plane of Fig. 9 (the large one, to which the
hash table fits).

Not for: what is measured and how (``vcr_figures``).
"""

from __future__ import annotations

from collections.abc import Sequence

from service.bench.experiment import Experiment
from service.bench.papers.figures import Curves, Judge
from service.bench.papers.vcr_figures import (
    UNIFORM,
    Curve,
    Drawn,
    Setting,
    Structure,
    Sweep,
    figure,
    rtree,
    vcr,
)
from service.index.box.vcr import Decomposition, prime_from
from service.index.box.vcr_lists import Lists

_MODERATE, _LARGE = (300, 200), (2_000, 1_500)
_WIDEST, _LONGEST = (40, 20), (16, 8)
_COUNTS = (32_000, 64_000, 128_000, 256_000)
_LENGTHS = (1, 2, 4, 8, 16, 32)
_OVERLAPPING, _CROWDED = (0.9, 0.1), (0.9, 0.01)
_HASH_SIZE = 1_800_017
_COUNTED = "storage in the paper's count"
_SIMPLE, _OVERLAPPED = Decomposition.SIMPLE, Decomposition.OVERLAPPED

BY_LENGTH = (Structure("VCR", vcr(_SIMPLE, Lists.ARRAY)),)
AGAINST_RTREE = tuple(
    Structure(f"{name}, {words}", make, skew)
    for words, skew in (("90-10", _OVERLAPPING), ("uniform", UNIFORM))
    for name, make in (
        ("R-tree", rtree),
        ("VCR", vcr(_SIMPLE, Lists.ARRAY)),
        ("VCR by bit vector", vcr(_SIMPLE, Lists.BITS)),
    )
)
HASHING = (
    Structure("without hashing", vcr(_OVERLAPPED, Lists.ARRAY)),
    Structure("hashing", vcr(_OVERLAPPED, Lists.HASHED, lambda setting: prime_from(10 * setting.predicates))),
    Structure("bit vector", vcr(_OVERLAPPED, Lists.BITS)),
)
DECOMPOSITIONS = (
    Structure("SD", vcr(_SIMPLE, Lists.HASHED, lambda setting: _HASH_SIZE)),
    Structure("OD", vcr(_OVERLAPPED, Lists.HASHED, lambda setting: _HASH_SIZE)),
)


def best_length(storage: float, search: float) -> Judge:
    """The L with the least storage, in the paper's count, and the L with the fastest search are these."""

    def judge(x: Sequence[float], curves: Curves) -> tuple[bool, str]:
        def best(label: str) -> float:
            return x[min(range(len(x)), key=curves[label].__getitem__)]

        times = curves["search time"]
        verdict = (
            f"Storage is least at L = {best(_COUNTED):.0f} in the paper's count and at {best('storage'):.0f}"
            f" as it is here; search is fastest at L = {best('search time'):.0f}, {min(times):.1f} us against"
            f" {times[x.index(search)]:.1f} us at the paper's L = {search:.0f}."
        )
        return best(_COUNTED) == storage and best("search time") == search, verdict

    return judge


def rtree_is_slower(x: Sequence[float], curves: Curves) -> tuple[bool, str]:
    """The R-tree takes longer than VCR, whatever the overlap."""
    overlapping = _ratios(curves["R-tree, 90-10"], curves["VCR, 90-10"])
    uniform = _ratios(curves["R-tree, uniform"], curves["VCR, uniform"])
    bits = _ratios(curves["R-tree, 90-10"], curves["VCR by bit vector, 90-10"])
    verdict = (
        f"The R-tree takes {_span(overlapping)} times as long as VCR where predicates overlap (by bit vector"
        f" {_span(bits)} times), {_span(uniform)} times where they are uniform."
    )
    return min(*overlapping, *uniform) > 1, verdict


def vcr_stores_more(x: Sequence[float], curves: Curves) -> tuple[bool, str]:
    """VCR takes more storage than the R-tree at every n, and modestly so: at most twice as much."""
    more = _ratios(curves["VCR, 90-10"], curves["R-tree, 90-10"])
    bits = _ratios(curves["VCR by bit vector, 90-10"], curves["R-tree, 90-10"])
    verdict = f"VCR takes {_span(more)} times the storage of the R-tree, by bit vector {_span(bits)} times."
    return min(more) > 1 and max(more) <= 2, verdict


def hashing_is_slower(x: Sequence[float], curves: Curves) -> tuple[bool, str]:
    """Hashing costs time at every n, and less of it, by share, the more predicates there are."""
    slower = _ratios(curves["hashing"], curves["without hashing"])
    bits = _ratios(curves["bit vector"], curves["without hashing"])
    verdict = (
        f"A search with hashing takes {slower[0]:.2f} times as long at n = {x[0]:,.0f} and {slower[-1]:.2f}"
        f" times at {x[-1]:,.0f}; with the bit vector {_span(bits)} times."
    )
    return min(slower) > 1 and slower[-1] < slower[0], verdict


def hashing_stores_less(x: Sequence[float], curves: Curves) -> tuple[bool, str]:
    """Hashing takes less storage at every n."""
    saved = _ratios(curves["without hashing"], curves["hashing"])
    bits = _ratios(curves["without hashing"], curves["bit vector"])
    verdict = (
        f"An array of all VCRs takes {_span(saved)} times the storage of hashing, and {_span(bits)} times"
        " that of the bit vector."
    )
    return min(saved) > 1, verdict


def od_is_faster(x: Sequence[float], curves: Curves) -> tuple[bool, str]:
    """OD is faster at the largest n, and gains on SD from the smallest on."""
    gain = _ratios(curves["SD"], curves["OD"])
    verdict = (
        f"SD takes {gain[0]:.2f} times as long as OD at n = {x[0]:,.0f}, and {gain[-1]:.2f} times at"
        f" {x[-1]:,.0f}."
    )
    return gain[-1] > 1 and gain[-1] > gain[0], verdict


def od_loads_less(x: Sequence[float], curves: Curves) -> tuple[bool, str]:
    """OD activates fewer VCRs, so its load factor is lower at every n."""
    more = _ratios(curves["SD"], curves["OD"])
    verdict = (
        f"SD activates {_span(more)} times as many VCRs; the load factors are {curves['SD'][-1]:.2f} and"
        f" {curves['OD'][-1]:.2f} at n = {x[-1]:,.0f}."
    )
    return min(more) > 1, verdict


def _ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    return [a / b for a, b in zip(above, below, strict=True)]


def _span(values: Sequence[float]) -> str:
    return f"{min(values):.2f} to {max(values):.2f}"


def _lengths(widest: int) -> Sweep:
    settings = [
        Setting(64_000, _MODERATE, (widest, widest), (length, length), _OVERLAPPING) for length in _LENGTHS
    ]
    curves = (
        Curve(BY_LENGTH[0], Drawn.SEARCH, "search time"),
        Curve(BY_LENGTH[0], Drawn.STORAGE, "storage"),
        Curve(BY_LENGTH[0], Drawn.COUNTED, _COUNTED),
    )
    return Sweep("L", lambda setting: setting.longest[0], settings, curves, None)


def _counts(
    ranges: tuple[int, int],
    skew: tuple[float, float],
    drawn: Drawn,
    structures: Sequence[Structure],
    ratio: tuple[str, str],
) -> Sweep:
    settings = [Setting(count, ranges, _WIDEST, _LONGEST, skew) for count in _COUNTS]
    curves = [Curve(structure, drawn, structure.name) for structure in structures]
    return Sweep("n", lambda setting: setting.predicates, settings, curves, ratio)


EXPERIMENTS: tuple[Experiment, ...] = (
    figure(
        "vcr-6a",
        "VCR paper, Fig. 6 a (VCI paper, Fig. 12 a)",
        "Which L is best for predicates of widths up to 20?",
        "Both a small and a large L cost storage and time: L = 8 takes the least storage, 16 the least time.",
        sweep=_lengths(20),
        judge=best_length(8, 16),
    ),
    figure(
        "vcr-6b",
        "VCR paper, Fig. 6 b (VCI paper, Fig. 12 b)",
        "Which L is best for predicates of widths up to 40?",
        "Wider predicates ask for a larger L: 16 takes the least storage and the least time.",
        sweep=_lengths(40),
        judge=best_length(16, 16),
    ),
    figure(
        "vcr-7a",
        "VCR paper, Fig. 7 a (VCI paper, Fig. 13 a)",
        "How do VCR and an R-tree compare in search time, for predicates that overlap much and little?",
        "VCR is much faster in both cases, 4.6 and 5.1 times at n = 32,000, and more for more predicates.",
        sweep=_counts(
            _MODERATE,
            UNIFORM,
            Drawn.SEARCH,
            AGAINST_RTREE,
            ("R-tree, 90-10", "VCR, 90-10"),
        ),
        judge=rtree_is_slower,
    ),
    figure(
        "vcr-7b",
        "VCR paper, Fig. 7 b (VCI paper, Fig. 13 b)",
        "How do VCR and an R-tree compare in storage?",
        "VCR takes modestly more.",
        sweep=_counts(
            _MODERATE,
            UNIFORM,
            Drawn.STORAGE,
            AGAINST_RTREE[:3],
            ("VCR, 90-10", "R-tree, 90-10"),
        ),
        judge=vcr_stores_more,
    ),
    figure(
        "vcr-8a",
        "VCR paper, Fig. 8 a",
        "What does VCR hashing cost in search time, on a large plane?",
        "It takes longer, 5 times at n = 32,000 and 1.5 times at 256,000.",
        sweep=_counts(
            _LARGE,
            _CROWDED,
            Drawn.SEARCH,
            HASHING,
            ("hashing", "without hashing"),
        ),
        judge=hashing_is_slower,
    ),
    figure(
        "vcr-8b",
        "VCR paper, Fig. 8 b",
        "What does VCR hashing save in storage, on a large plane?",
        "It takes far less than an array of all VCRs.",
        sweep=_counts(
            _LARGE,
            _CROWDED,
            Drawn.STORAGE,
            HASHING,
            ("without hashing", "hashing"),
        ),
        judge=hashing_stores_less,
    ),
    figure(
        "vcr-9a",
        "VCR paper, Fig. 9 a",
        "How do overlapped and simple decomposition compare in search time, with VCR hashing?",
        "OD is faster, above all where there are many predicates: fewer VCRs, so fewer collisions.",
        sweep=_counts(_LARGE, _OVERLAPPING, Drawn.SEARCH, DECOMPOSITIONS, ("SD", "OD")),
        judge=od_is_faster,
    ),
    figure(
        "vcr-9b",
        "VCR paper, Fig. 9 b",
        "How do overlapped and simple decomposition compare in the load of the hash table?",
        "OD activates fewer VCRs.",
        sweep=_counts(_LARGE, _OVERLAPPING, Drawn.LOAD, DECOMPOSITIONS, ("SD", "OD")),
        judge=od_loads_less,
    ),
)
