"""The suite is worth something: it rejects each of the wrong indexes, and says so by an assertion."""

from __future__ import annotations

import pytest

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


@pytest.mark.parametrize("dims", [1, 2])
@pytest.mark.parametrize("canary", CANARIES, ids=lambda canary: canary.__name__)
def test_the_suite_rejects(canary: type[SlowTwin], dims: int) -> None:
    assert rejected_by(Factory(canary.__name__, dims, lambda: canary(dims))) is not None
