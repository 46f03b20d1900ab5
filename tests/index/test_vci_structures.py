"""UI, SCI, LCI and D-list as structures: what they file, how they choose, and that their checks see
faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from service.index.filed import FiledIndex
from service.index.interval.dlist import DList
from service.index.interval.vci import LCI, MOST_LONGEST, SCI, UI
from service.index.interval.vci_encoding import logarithmic_lengths, mean_entries, simple_lengths
from service.index.interval.vci_grid import ENTRIES_A_BOX, MOST_ENTRIES_A_BOX, fitted
from service.index.interval.vci_lists import VciFiling
from service.index.protocol import Bounds
from tests.index.worlds import INF, LOWEST, MOST, NAN, SMALL, TINY, ends, pairs, slots

MAKERS: tuple[Callable[..., FiledIndex], ...] = (
    UI,
    SCI,
    LCI,
    lambda **options: LCI(bit_vector=False, **options),
    DList,
)
COUNT = 60 if SMALL else 600


def whole_numbers(count: int, *, widest: int, domain: int = 500) -> tuple[Bounds, Bounds]:
    rng = np.random.default_rng(4)
    lo = rng.integers(0, domain, (count, 1)).astype(np.float64)
    return lo, lo + rng.integers(1, widest + 1, (count, 1))


def entries_of(filing: VciFiling) -> int:
    return len(filing.constructs.entries)


@pytest.mark.parametrize("lengths", [simple_lengths(1), simple_lengths(4), logarithmic_lengths(8)], ids=str)
def test_whole_numbers_cut_nothing(lengths: tuple[int, ...]) -> None:
    """On cells of length one this is the papers' index, and it has as many entries as they say."""
    widest = 4 * lengths[-1]
    lo = ends(np.arange(widest), 1)
    hi = lo + np.arange(1.0, widest + 1)[:, None]
    filing = VciFiling(fitted(lo, hi, step=1.0, choices=[lengths]), bit_vector=False)
    filing.check(lo, hi)
    assert filing.cut is None
    assert entries_of(filing) == widest * mean_entries(lengths, widest)


def test_direct_listing_of_whole_numbers() -> None:
    """One entry a box and cell, none of which is compared."""
    lo, hi = ends([3.0, 5.0, -2.0], 1), ends([6.0, 6.0, 4.0], 1)
    index = DList(step=1.0, tail_limit=0)
    index.insert(slots(0, 1, 2), lo, hi)
    index.check()
    assert pairs(index.stab(ends([-2.0, 3.9, 4.0, 5.5, 6.0], 1))) == [
        (0, 2), (1, 0), (1, 2), (2, 0), (3, 0), (3, 1),
    ]  # fmt: skip


def test_the_queries_around_a_value() -> None:
    """A value's queries are those filed under the VCIs around it, some under one that they share."""
    index = LCI(longest=4, step=1.0, tail_limit=0)
    index.insert(slots(2, 3, 4), ends([0.0, 1.0, 2.0], 1), ends([4.0, 5.0, 4.0], 1))
    index.check()
    assert pairs(index.stab(ends([2.5, 1.0, 4.5, 5.0], 1))) == [
        (0, 2),
        (0, 3),
        (0, 4),
        (1, 2),
        (1, 3),
        (2, 3),
    ]


@pytest.mark.parametrize("make", MAKERS)
def test_one_sided_and_free_boxes(make: Callable[..., FiledIndex]) -> None:
    """They cover every cell; memory stays proportional to their number, and none is missed."""
    lo, hi = whole_numbers(COUNT, widest=20)
    lo[::3], hi[1::3] = -INF, INF
    lo[2::9], hi[2::9] = -INF, INF
    index = make(tail_limit=0)
    index.insert(np.arange(COUNT, dtype=np.int32), lo, hi)
    index.check()
    assert index.nbytes < COUNT * (300 + 8 * ENTRIES_A_BOX)
    points = np.array([-INF, LOWEST, 0.0, 250.5, 600.0, MOST])
    expected = [
        (row, slot)
        for row, x in enumerate(points)
        for slot in np.flatnonzero((lo[:, 0] <= x) & (x < hi[:, 0])).tolist()
    ]
    assert pairs(index.stab(ends(points, 1))) == expected


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("step", [1e-9, 1e9])
def test_memory_follows_the_boxes_whatever_the_step(make: Callable[..., FiledIndex], step: float) -> None:
    lo, hi = whole_numbers(COUNT, widest=400)
    index = make(step=step, tail_limit=0)
    index.insert(np.arange(COUNT, dtype=np.int32), lo, hi)
    index.check()
    assert index.nbytes < 400_000 + COUNT * (1000 + 4 * MOST_ENTRIES_A_BOX)
    assert len(index.stab(ends([250.5], 1)).slots) == np.count_nonzero((lo <= 250) & (hi > 250))


@pytest.mark.parametrize("lengths", [simple_lengths(1), simple_lengths(4), logarithmic_lengths(8)], ids=str)
@pytest.mark.parametrize("step", [None, 1e-9, 0.7, 1e9])
@pytest.mark.parametrize(
    "values",
    [
        [],
        [5.0],
        [0.0, TINY],
        [LOWEST / 2, MOST / 2],
        [float(np.nextafter(LOWEST, 0)), float(np.nextafter(MOST, 0))],
        [LOWEST, 0.0, 1.0, INF],
    ],
    ids=str,
)
def test_any_ends_are_fitted(values: list[float], step: float | None, lengths: tuple[int, ...]) -> None:
    """All intervals between some values, many times: the mean number of entries is within its limit."""
    sides = [(a, b) for a in (-INF, *values) for b in (*values, INF) if a < b] * (5 if SMALL else 50)
    lo, hi = ends([a for a, _ in sides], 1), ends([b for _, b in sides], 1)
    fit = fitted(lo, hi, step=step, choices=[lengths])
    filing = VciFiling(fit, bit_vector=True)
    filing.check(lo, hi)
    most = ENTRIES_A_BOX if step is None else MOST_ENTRIES_A_BOX
    assert entries_of(filing) <= most * len(sides)


def test_the_longest_interval_follows_the_widths() -> None:
    """Narrow boxes take short intervals, wide ones longer, up to a cap."""
    choices = [logarithmic_lengths(longest) for longest in (1, 2, 4, 8, 16, 32)]
    chosen = []
    for widest in (1, 8, 400):
        lo, hi = whole_numbers(2000, widest=widest)
        chosen.append(int(fitted(lo, hi, step=1.0, choices=choices).lengths[-1]))
    assert chosen[0] == 1
    assert chosen[0] < chosen[1] < chosen[2] == 32


def test_a_bit_vector_takes_less_storage() -> None:
    lo, hi = whole_numbers(COUNT, widest=64, domain=20 * COUNT)
    with_bits, without = (
        LCI(longest=16, bit_vector=bit_vector, step=1.0, tail_limit=0) for bit_vector in (True, False)
    )
    for index in (with_bits, without):
        index.insert(np.arange(COUNT, dtype=np.int32), lo, hi)
        index.check()
    assert with_bits.nbytes < without.nbytes / 2


@pytest.mark.parametrize("bit_vector", [False, True])
@pytest.mark.parametrize("fault", ["box", "order", "cut"])
def test_a_check_sees_a_wrong_entry(fault: str, bit_vector: bool) -> None:
    lo, hi = whole_numbers(50, widest=40)
    lo += 0.25
    filing = VciFiling(fitted(lo, hi, step=1.0, choices=[logarithmic_lengths(8)]), bit_vector=bit_vector)
    filing.check(lo, hi)
    entries: Any = filing.constructs.entries
    if fault == "box":
        entries[3] = (entries[3] + 1) % 50
    elif fault == "order":
        listed = filing.constructs.lists
        long = int(np.flatnonzero(np.diff(listed) > 1)[0])
        place = int(listed[long])
        entries[place], entries[place + 1] = entries[place + 1], entries[place]
    else:
        assert filing.cut is not None
        filing.cut.entries[0] = ~filing.cut.entries[0]
    with pytest.raises(AssertionError):
        filing.check(lo, hi)


def test_refused_parameters() -> None:
    for longest in (0, -1, MOST_LONGEST + 1):
        for make in (SCI, LCI):
            with pytest.raises(ValueError, match="longest"):
                make(longest=longest)
    with pytest.raises(ValueError, match="power of two"):
        LCI(longest=12)
    for any_of in MAKERS:
        for step in (0.0, -1.0, INF, NAN):
            with pytest.raises(ValueError, match="step"):
                any_of(step=step)
