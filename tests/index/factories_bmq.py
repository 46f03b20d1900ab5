"""BMQ-Index in the forms that the contract suite runs against."""

from __future__ import annotations

from service.index.border.bmq import BMQIndex
from tests.index.worlds import Factory

FACTORIES = (
    Factory("bmq-1d", 1, lambda: BMQIndex(1)),
    Factory("bmq-2d", 2, lambda: BMQIndex(2)),
    Factory("bmq-3d", 3, lambda: BMQIndex(3)),
    # The paper's: every change splits and merges segments at once, and nothing but delta queries is stored.
    Factory("bmq-plain-1d", 1, lambda: BMQIndex(1, fresh_limit=0, anchored=False)),
    Factory("bmq-plain-2d", 2, lambda: BMQIndex(2, fresh_limit=0, anchored=False)),
    # All in the fresh lists, beside settled ones with what is dead in them.
    Factory("bmq-fresh", 1, lambda: BMQIndex(1, fresh_limit=40)),
)
