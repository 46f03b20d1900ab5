"""Borders in order: from the keys of moves, whatever their order."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from service.index.crossings import borders_of

ROWS = 5


def expected(keys: NDArray[np.int64]) -> tuple[list[int], list[int], list[bool]]:
    ordered = np.unique(keys)
    return (ordered >> 32).tolist(), ((ordered & 0xFFFFFFFF) >> 1).tolist(), (ordered & 1 != 0).tolist()


def given(keys: NDArray[np.int64]) -> tuple[list[int], list[int], list[bool]]:
    found = borders_of(keys, ROWS)
    assert [column.dtype for column in found] == [np.int32, np.int32, np.bool_]
    rows, slots, entered = (column.tolist() for column in found)
    return rows, slots, entered


@pytest.mark.parametrize("slots", [1, 30, 1000, 1 << 17, 1 << 31])
def test_as_if_all_keys_were_sorted(slots: int) -> None:
    """Every number of keys that is sorted in a way of its own, in rows that rise and in rows that fall."""
    rng = np.random.default_rng(slots)
    for most in (1, 2, 15, 16, 17, 31, 47, 48, 49, 90, 511, 600):
        counts = rng.integers(most // 2, most + 1, ROWS)
        rows = np.repeat(np.arange(ROWS), counts)
        halves = rng.integers(2 * slots - min(2 * slots, 5000), 2 * slots, len(rows))
        keys = rows << 32 | halves
        unique = np.array(list(dict.fromkeys(keys.tolist())), np.int64)  # in the order in which they come
        for each in (unique, keys, rng.permutation(unique), np.repeat(keys, 2)):
            before = each.copy()
            assert given(each) == expected(each)
            assert np.array_equal(each, before)


def test_no_keys() -> None:
    assert given(np.empty(0, np.int64)) == ([], [], [])


def test_rows_between_may_have_none() -> None:
    keys = np.array([4 << 32 | 7, 4 << 32 | 6, 0 << 32 | 1, 4 << 32 | 0], np.int64)
    assert given(keys) == ([0, 4, 4, 4], [0, 0, 3, 3], [True, False, False, True])
