"""The suite is worth something: it rejects each of the wrong indexes, and says so by an assertion."""

from __future__ import annotations

import numpy as np
import pytest

from service.index.protocol import Hits, Points
from tests.index.canaries import CANARIES
from tests.index.contract import CHECKS
from tests.index.slow import SlowTwin
from tests.index.worlds import Factory


def rejected_by(factory: Factory) -> str | None:
    """The first check that the index fails, or None for an index that keeps the contract."""
    for check in CHECKS:
        try:
            check(factory)
        except AssertionError:
            return check.__name__
    return None


class AnotherOrder(SlowTwin):
    """Gives the slots of a row falling, as an index may."""

    def stab(self, points: Points) -> Hits:
        hits = super().stab(points)
        order = np.lexsort((-hits.slots, hits.rows))
        return Hits(hits.rows[order], hits.slots[order])


def test_the_suite_takes_the_slots_of_a_row_in_any_order() -> None:
    assert rejected_by(Factory("another order", 1, lambda: AnotherOrder(1))) is None


@pytest.mark.parametrize("dims", [1, 2])
@pytest.mark.parametrize("canary", CANARIES, ids=lambda canary: canary.__name__)
def test_the_suite_rejects(canary: type[SlowTwin], dims: int) -> None:
    assert rejected_by(Factory(canary.__name__, dims, lambda: canary(dims))) is not None
