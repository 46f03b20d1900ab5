"""Whether the findings of the CEI paper hold, from the curves that were measured.

Idea: a judge puts what the paper says about a figure as a condition on curves, and what was found in numbers.
A time that has to be more is more on every setting; only where the finding itself says so are times within
some percent of each other the same. Storage is exact.

Not for: measuring.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from service.bench.papers.figures import Curves

VIRTUAL = ("UI", "LCI", "CEI")
ALL = (*VIRTUAL, "IS-list")
_ABOUT = 1.15
"""Within this factor two times are the same: what a shared machine can tell."""
_CLOSE = 1.5
"""Within this factor two times are close to each other."""


def storage_by_length_large(lengths: Sequence[float], curves: Curves) -> tuple[bool, str]:
    """CEI falls with L, LCI has a least L, UI does not depend on it."""
    ui, lci, cei = (curves[name] for name in VIRTUAL)
    least = min(lci)
    return _falls(cei) and least < lci[-1] and max(ui) == min(ui), (
        f"CEI goes from {cei[0]:.1f} to {cei[-1]:.1f} MB; LCI is least with {least:.1f} MB at L ="
        f" {lengths[lci.index(least)]:.0f} and takes {lci[-1]:.1f} MB at {lengths[-1]:.0f}; UI takes"
        f" {ui[0]:.1f} MB."
    )


def storage_by_length_small(lengths: Sequence[float], curves: Curves) -> tuple[bool, str]:
    """CEI falls with L, and UI takes the most."""
    ui, lci, cei = (curves[name] for name in VIRTUAL)
    most = all(u > max(a, b) for u, a, b in zip(ui, lci, cei, strict=True))
    return _falls(cei) and most, (
        f"UI takes {ui[0]:.1f} MB. As L grows to {lengths[-1]:.0f}, CEI goes from {cei[0]:.1f} to"
        f" {cei[-1]:.1f} MB and LCI from {lci[0]:.1f} to {lci[-1]:.1f}."
    )


def time_by_length(lengths: Sequence[float], curves: Curves) -> tuple[bool, str]:
    """LCI slows down much more than CEI, and UI is about the fastest."""
    ui, lci, cei = (curves[name] for name in VIRTUAL)
    slower, to_cei = (lci[-1] / lci[0], cei[-1] / cei[0]), _ratios(ui, cei)
    fastest = all(u < _ABOUT * min(a, b) for u, a, b in zip(ui, lci, cei, strict=True))
    return slower[0] > slower[1] and lci[-1] > 2 * cei[-1] and fastest, (
        f"From L = {lengths[0]:.0f} to {lengths[-1]:.0f} the time of LCI is multiplied by {slower[0]:.1f} and"
        f" that of CEI by {slower[1]:.1f}; at the end LCI takes {lci[-1] / cei[-1]:.1f} times as long as CEI."
        f" UI takes {min(to_cei):.2f} to {max(to_cei):.2f} of the time of CEI."
    )


def time_by_width(widths: Sequence[float], curves: Curves) -> tuple[bool, str]:
    """All are faster than the IS-list, CEI by an order at the narrowest queries, where the gap is widest."""
    lead = _ratios(curves["IS-list"], curves["CEI"])
    slowest = all(min(_ratios(curves["IS-list"], curves[name])) > 1 for name in VIRTUAL)
    return slowest and lead[0] == max(lead) and lead[0] >= 10, (
        f"The IS-list is {'' if slowest else 'not always '}the slowest. It takes {lead[0]:.1f} times as long"
        f" as CEI at W = {widths[0]:.0f} (almost 20 times in the paper) and {lead[-1]:.1f} times at"
        f" {widths[-1]:.0f}."
    )


def storage_by_width(widths: Sequence[float], curves: Curves) -> tuple[bool, str]:
    """The IS-list takes more than LCI and CEI, and less than UI where queries are wide."""
    ui, lci, cei, skips = (curves[name] for name in ALL)
    to_cei, to_lci = _ratios(skips, cei), _ratios(skips, lci)
    wide = next((w for w, u, s in zip(widths, ui, skips, strict=True) if u > s), None)
    where = "for no W" if wide is None else f"from W = {wide:.0f} on"
    return min(to_cei) > 1 and min(to_lci) > 1 and wide is not None, (
        f"The IS-list takes {min(to_cei):.1f} to {max(to_cei):.1f} times the storage of CEI and"
        f" {min(to_lci):.1f} to {max(to_lci):.1f} times that of LCI; it takes less than UI {where}."
    )


def time_by_count(counts: Sequence[float], curves: Curves) -> tuple[bool, str]:
    """The IS-list is the slowest, CEI faster than LCI and close to UI, be it faster or slower."""
    ui, lci, cei, skips = (curves[name] for name in ALL)
    lead, to_lci, to_ui = _ratios(skips, cei), _ratios(lci, cei), _ratios(cei, ui)
    slowest = all(min(_ratios(skips, curves[name])) > 1 for name in VIRTUAL)
    close = max(to_ui) <= _CLOSE and min(to_ui) >= 1 / _CLOSE
    return slowest and min(to_lci) > 1 and close, (
        f"The IS-list is {'' if slowest else 'not always '}the slowest. It takes {lead[0]:.1f} times as long"
        f" as CEI at n = {counts[0]:,.0f} and {lead[-1]:.1f} times at {counts[-1]:,.0f}. LCI takes"
        f" {min(to_lci):.1f} to {max(to_lci):.1f} times as long as CEI, and CEI {min(to_ui):.1f} to"
        f" {max(to_ui):.1f} times as long as UI."
    )


def storage_by_count_large(counts: Sequence[float], curves: Curves) -> tuple[bool, str]:
    """The IS-list is lighter for few queries only."""
    first, words = _crossing(counts, curves)
    return first is not None and first > counts[0], words


def storage_by_count_small(counts: Sequence[float], curves: Curves) -> tuple[bool, str]:
    """The IS-list is lighter for no number of queries."""
    first, words = _crossing(counts, curves)
    return first == counts[0], words


def _crossing(counts: Sequence[float], curves: Curves) -> tuple[float | None, str]:
    """The number of queries from which on CEI is lighter than the IS-list, and what there is to say of it."""
    shares = _ratios(curves["IS-list"], curves["CEI"])
    first = next((n for i, n in enumerate(counts) if min(shares[i:]) > 1), None)
    where = "for no n" if first is None else f"from n = {first:,.0f} on"
    return first, (
        f"The IS-list takes {shares[0]:.2f} times the storage of CEI at n = {counts[0]:,.0f} and"
        f" {shares[-1]:.2f} times at {counts[-1]:,.0f}; CEI takes less {where}."
    )


def _falls(curve: Sequence[float]) -> bool:
    """Within a percent, since an axis is rounded up to whole segments of L cells."""
    return curve[-1] < curve[0] and all(after <= 1.01 * before for before, after in pairwise(curve))


def _ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    return [a / b for a, b in zip(above, below, strict=True)]
