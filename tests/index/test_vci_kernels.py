"""Kernels of virtual construct intervals and of direct listing, against their slow twins."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.index.interval.dlist import direct_lists
from service.index.interval.dlist_kernels import search as search_direct
from service.index.interval.vci_encoding import (
    decomposition,
    difference_table,
    logarithmic_lengths,
    simple_lengths,
)
from service.index.interval.vci_kernels import file_boxes, ones, search, search_bits
from service.index.interval.vci_lists import BitVector, Listed, as_bit_vector, id_lists
from tests.index.worlds import QUICK, ends

Span = tuple[int, int]
CELLS = 24
SETS = st.sampled_from(
    [simple_lengths(1), simple_lengths(5), logarithmic_lengths(4), logarithmic_lengths(16)]
)
SPANS = st.lists(st.tuples(st.integers(0, CELLS), st.integers(0, CELLS)), max_size=12)


def as_spans(spans: Sequence[Span]) -> np.ndarray:
    return np.array([(a, b, -1, -1) for a, b in spans], np.int64).reshape(-1, 4)


def slow_lists(spans: Sequence[Span], lengths: Sequence[int]) -> dict[int, list[int]]:
    """The slow twin of ``file_boxes``: the boxes under each id, on an axis that begins L - 1 cells before
    0."""
    under: dict[int, list[int]] = {}
    for box, (start, stop) in enumerate(spans):
        for a, b in decomposition(start, max(start, stop), lengths):
            id = (a + lengths[-1] - 1) * len(lengths) + lengths.index(b - a)
            under.setdefault(id, []).append(box)
    return under


def slow_search(spans: Sequence[Span], cells: Sequence[int], slots: Sequence[int]) -> list[int]:
    """The slow twin of both searches: the keys of the boxes that cover the cell of a row whole."""
    return sorted(
        row << 32 | slots[box]
        for row, cell in enumerate(cells)
        for box, (start, stop) in enumerate(spans)
        if cell >= 0 and start <= cell < stop and slots[box] >= 0
    )


def filed(spans: Sequence[Span], lengths: Sequence[int]) -> tuple[Listed, BitVector]:
    listed = id_lists(as_spans(spans), np.array(lengths, np.int64), CELLS)
    return listed, as_bit_vector(listed)


@QUICK
@given(spans=SPANS, lengths=SETS)
def test_boxes_are_filed_in_rising_order(spans: list[Span], lengths: tuple[int, ...]) -> None:
    listed, _ = filed(spans, lengths)
    assert len(listed.lists) == (CELLS + lengths[-1] - 1) * len(lengths) + 1
    under = {
        id: listed.entries[listed.lists[id] : listed.lists[id + 1]].tolist()
        for id in range(len(listed.lists) - 1)
    }
    assert {id: boxes for id, boxes in under.items() if boxes} == slow_lists(spans, lengths)


@QUICK
@given(spans=SPANS, lengths=SETS, removed=st.sets(st.integers(0, 11)))
def test_searches_are_those_of_the_slow_twin(
    spans: list[Span], lengths: tuple[int, ...], removed: set[int]
) -> None:
    cells = [*range(CELLS), -1, 0]
    slots = [-1 if box in removed else 100 - box for box in range(len(spans))]
    listed, vector = filed(spans, lengths)
    expected = slow_search(spans, cells, slots)
    kinds = len(lengths)
    least = np.array([-1 if cell < 0 else cell * kinds + kinds - 1 for cell in cells], np.int64)
    column = np.array(slots, np.int32)
    for room in (len(expected) + 3, len(expected), max(len(expected) - 2, 0), 0):
        out = np.full(room, -7, np.int64)
        found = search(column, listed.lists, listed.entries, listed.differences, least, out)
        assert found == len(expected)
        again = np.full(room, -7, np.int64)
        table, bits, ranks, lists, entries = vector
        assert search_bits(column, bits, ranks, lists, entries, table, least, again) == found
        assert again.tolist() == out.tolist(), "both follow the difference table"
        written = out[: min(room, found)].tolist()
        assert set(written) <= set(expected)
        assert len(set(written)) == len(written)
        assert (out[found:] == -7).all()


@QUICK
@given(spans=SPANS, lengths=SETS)
def test_a_bit_vector_stands_for_the_lists(spans: list[Span], lengths: tuple[int, ...]) -> None:
    listed, vector = filed(spans, lengths)
    vector.check(listed.differences)
    same = vector.unpacked(listed.differences, len(listed.lists) - 1)
    assert all(np.array_equal(a, b) for a, b in zip(same, listed, strict=True))
    assert len(vector.lists) == len(slow_lists(spans, lengths)) + 1


@pytest.mark.parametrize("longest", [1, 4, 16, 64])
def test_the_table_of_bits_is_the_difference_table(longest: int) -> None:
    lengths = logarithmic_lengths(longest)
    _, vector = filed([(0, CELLS)], lengths)
    places = [place for place in range(32 * len(vector.table)) if vector.table[place // 32] >> place % 32 & 1]
    assert places == difference_table(lengths)


def test_ones() -> None:
    words = [0, 1, 2, 3, 0x80000000, 0xFFFFFFFF, *(1 << bit for bit in range(32))]
    words += np.random.default_rng(3).integers(0, 1 << 32, 200).tolist()
    assert [ones(word) for word in words] == [word.bit_count() for word in words]


def test_nothing_to_file() -> None:
    lists = np.zeros(4, np.int64)
    lengths = np.array([1], np.int64)
    file_boxes(as_spans([]), lengths, lists, np.empty(0, np.int32))
    file_boxes(as_spans([(3, 3), (2, 1)]), lengths, lists, np.empty(0, np.int32))
    assert lists.tolist() == [0, 0, 0, 0]


def test_direct_lists_by_hand() -> None:
    """Cells of length one. Box 0 is [0.5, 3): it cuts cell 0 and covers 1 and 2. Box 1 is [1.2, 1.6)."""
    spans = np.array([(1, 3, 0, -1), (2, 1, 1, -1)], np.int64)
    lists, entries = direct = direct_lists(spans, 4)
    direct.check(spans, 4)
    assert [entries[lists[cell] : lists[cell + 1]].tolist() for cell in range(4)] == [[~0], [0, ~1], [0], []]
    lo, hi = ends([0.5, 1.2], 1), ends([3.0, 1.6], 1)
    points = ends([0.25, 0.5, 1.1, 1.2, 1.6, 2.9, 3.0, 9.0], 1)
    cells = np.array([0, 0, 1, 1, 1, 2, 3, -1], np.int64)
    slots = np.array([8, 9], np.int32)
    for room in (0, 3, 5, 9):
        out = np.full(room, -7, np.int64)
        assert search_direct(lo, hi, slots, lists, entries, cells, points, out) == 6
        keys = [row << 32 | slot for row, slot in ((1, 8), (2, 8), (3, 8), (3, 9), (4, 8), (5, 8))]
        assert out.tolist() == (keys + [-7] * 3)[:room]
    slots[0] = -1
    out = np.full(9, -7, np.int64)
    assert search_direct(lo, hi, slots, lists, entries, cells, points, out) == 1
    assert out[0] == 3 << 32 | 9
