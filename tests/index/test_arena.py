"""Arenas: what goes in comes out, where the header says."""

from __future__ import annotations

import numpy as np

from service.index.default.arena import arena_of


def test_arrays_lie_in_one_buffer_as_they_were() -> None:
    arrays = [
        np.arange(6.0).reshape(3, 2),
        np.empty(0, np.int32),
        np.arange(5, dtype=np.uint16),
        np.array([[-1, 2]], np.int32),
    ]
    arena, views = arena_of(arrays)
    header = arena[: 2 * 8 * len(arrays)].view(np.int64).reshape(-1, 2)
    assert arena.ctypes.data % 64 == 0 and len(arena) % 64 == 0
    for array, view, (begin, end) in zip(arrays, views, header.tolist(), strict=True):
        assert begin % 64 == 0
        assert view.dtype == array.dtype and np.array_equal(view, array)
        assert np.array_equal(arena[begin:end].view(array.dtype), array.ravel())
        assert not np.shares_memory(view, array)


def test_a_view_changes_the_arena() -> None:
    arena, (marks,) = arena_of([np.zeros(3, np.int32)])
    marks[1] = 7
    begin = int(arena.view(np.int64)[0])
    assert arena[begin : begin + 12].view(np.int32).tolist() == [0, 7, 0]
