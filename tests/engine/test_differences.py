"""The differences of hits: against sets, for hits in any order, and room that is too small at first."""

from __future__ import annotations

import numpy as np

from service.engine.kernels import NOWHERE, differences


def test_differences_are_those_of_sets() -> None:
    rng = np.random.default_rng(11)
    hits = [rng.permutation(40)[: rng.integers(0, 12)].astype(np.int32) for _ in range(30)]
    indptr = np.concatenate([[0], np.cumsum([len(one) for one in hits])]).astype(np.int64)
    before, after = (rng.integers(NOWHERE, 30, 50).astype(np.int32) for _ in range(2))
    sets = [set(one.tolist()) for one in hits] + [set()]  # NOWHERE, -1, is the last
    expected = []
    for pair, (was, now) in enumerate(zip(before.tolist(), after.tolist(), strict=True)):
        expected += [(pair, slot, True) for slot in sets[now] - sets[was]]
        expected += [(pair, slot, False) for slot in sets[was] - sets[now]]
    assert len(expected) > 100

    marks = np.zeros(40, np.uint8)
    for room in (0, 7, len(expected)):
        out = np.full(room, -1, np.int32), np.full(room, -1, np.int32), np.zeros(room, np.bool_)
        assert differences(indptr, np.concatenate(hits), before, after, marks, *out) == len(expected)
        assert not marks.any()
        pairs, slots, entered = (column.tolist() for column in out)
        assert pairs == sorted(pairs)
        found = set(zip(pairs, slots, entered, strict=True))
        assert len(found) == room and found <= set(expected)
