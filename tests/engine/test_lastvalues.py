"""Which streams are in which boxes, by scan and by index, while they move, come and go."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.engine import lastvalues
from service.engine.lastvalues import LastValues
from service.index.box.spatial_join_data import DataIndex
from tests.index.slow import holds
from tests.index.worlds import QUICK, TINY_WORLD, pairs

DIMS = 2


@pytest.fixture
def built_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lastvalues, "_FEW", 0)
    monkeypatch.setattr(lastvalues, "_BUILD_NS", 0.0)


@pytest.mark.usefixtures("built_at_once")
@pytest.mark.parametrize("share", [1, 16])
def test_any_history(share: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lastvalues, "_MOVED_SHARE", share)
    made: list[int] = []
    monkeypatch.setattr(lastvalues, "DataIndex", counting(made))
    point_of = st.lists(
        TINY_WORLD.coordinate.filter(lambda x: x == x), min_size=DIMS, max_size=DIMS
    )  # a living stream has no NaN
    step = st.one_of(
        st.tuples(st.just("move"), st.integers(0, 11), point_of),
        st.tuples(st.just("remove"), st.integers(0, 11), st.none()),
        st.tuples(st.just("ask"), st.none(), TINY_WORLD.queries(DIMS, 4)),
        st.tuples(st.just("grow"), st.none(), st.none()),
    )

    @given(st.lists(step, max_size=40))
    @settings(QUICK, max_examples=50)
    def play(steps: list[tuple[str, int | None, object]]) -> None:
        values, point = LastValues(), np.full((6, DIMS), np.nan)
        for kind, row, what in steps:
            if kind == "grow":
                point = np.concatenate([point, np.full((3, DIMS), np.nan)])
            elif row is not None and row < len(point):
                point[row] = np.nan if kind == "remove" else what
                values.moved(np.array([row], np.int32))
            elif kind == "ask":
                ask(values, point, what)  # type: ignore[arg-type]

    play()
    assert made, "the index was made at least once"


def counting(made: list[int]) -> Callable[[np.ndarray], DataIndex]:
    def make(points: np.ndarray) -> DataIndex:
        made.append(len(points))
        return DataIndex(points)

    return make


def ask(values: LastValues, point: np.ndarray, queries: list[list[tuple[list[float], list[float]]]]) -> None:
    owners = np.array([place for place, boxes in enumerate(queries) for _ in boxes], np.int32)
    lo = np.array([lo for boxes in queries for lo, _ in boxes], np.float64).reshape(-1, DIMS)
    hi = np.array([hi for boxes in queries for _, hi in boxes], np.float64).reshape(-1, DIMS)
    living = np.flatnonzero(~np.isnan(point).any(axis=1)).astype(np.int32)
    expected = [
        (row, place)
        for row in living.tolist()
        for place, boxes in enumerate(queries)
        if any(holds(box, point[row].tolist()) for box in boxes)
    ]
    assert pairs(values.inside(point, living, owners, lo, hi)) == expected


def test_the_index_is_made_when_scans_have_paid_for_it_and_given_up_when_many_have_moved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[int] = []
    monkeypatch.setattr(lastvalues, "DataIndex", counting(made))
    rng = np.random.default_rng(2)
    values, point = LastValues(), rng.random((5_000, DIMS))
    living = np.arange(5_000, dtype=np.int32)
    box = np.array([0], np.int32), np.array([[0.2, 0.2]]), np.array([[0.3, 0.3]])
    asked = 0
    while not made:
        values.inside(point, living, *box)
        asked += 1
        assert asked < 1_000
    assert asked > 10, "not for the first few"
    values.inside(point, living, *box)
    assert made == [5_000]
    values.moved(living[:1_000])
    point[:1_000] = 0.25
    assert set(range(1_000)) <= set(values.inside(point, living, *box).rows.tolist())
    assert values._index is None
    values.forget()
    assert pairs(values.inside(point, living[:0], *box)) == []
