"""Levels are merged aside, by a real thread, while the index is read and changed."""

from __future__ import annotations

import numpy as np
import pytest

from service.index.brute import BruteForce
from service.index.default import mixed
from service.index.default.mixed import DefaultIndex, Rebuild
from service.rebuilds import Rebuilds
from tests.api.harness import eventually
from tests.index.worlds import same


@pytest.fixture
def nothing_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixed, "_GROWN", 0)


def levels(index: DefaultIndex) -> int:
    return len(index._snapshot.levels)


@pytest.mark.usefixtures("nothing_at_once")
def test_levels_are_merged_while_the_index_changes() -> None:
    rng = np.random.default_rng(5)
    index, brute, rebuilds = DefaultIndex(2, aside=True, delta=0), BruteForce(2), Rebuilds()
    lo = rng.random((400, 2))
    points = rng.random((50, 2))
    for slot in range(400):
        for one in (index, brute):
            one.insert(np.array([slot], np.int32), lo[slot : slot + 1], lo[slot : slot + 1] + 0.2)
            if slot % 4 == 3:
                one.remove(np.array([slot - 2], np.int32))
        rebuilds.tend([index])
        assert same(index.stab(points), brute.stab(points))

    def merged() -> bool:
        rebuilds.tend([index])
        return levels(index) <= 9

    eventually(merged, "few levels")
    index.check()
    assert same(index.stab(points), brute.stab(points))
    rebuilds.close()


@pytest.mark.usefixtures("nothing_at_once")
def test_what_a_rebuild_dies_of_is_raised_and_an_index_that_is_gone_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    index, rebuilds = DefaultIndex(1, aside=True, delta=0), Rebuilds()
    for slot in range(2):
        index.insert(np.array([slot], np.int32), np.array([[0.0]]), np.array([[1.0]]))
    rebuilds.tend([index])
    eventually(lambda: rebuilds._running is not None and rebuilds._running.future.done(), "merged")
    rebuilds.tend([])
    assert levels(index) == 2

    def die(_: Rebuild) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(Rebuild, "run", die)
    rebuilds.tend([index])
    eventually(lambda: rebuilds._running is not None and rebuilds._running.future.done(), "dead")
    with pytest.raises(MemoryError, match="no room"):
        rebuilds.tend([index])
    rebuilds.close()
