"""The measurement of features runs, and the plain queries are told the same whoever else is there."""

from __future__ import annotations

import pytest

from tests.bench import bench_features


@pytest.mark.parametrize("where", [bench_features.ELSEWHERE, bench_features.EVERYWHERE])
def test_features_of_others_change_nothing_that_is_told(where: str) -> None:
    made = bench_features.batches(2, 300, 20, seed=1)
    costs = bench_features.measure(where, bench_features.plain_queries(50, seed=1), made, rounds=1)
    assert costs.keys() == bench_features.FEATURES.keys()
    assert len({cost.digest for cost in costs.values()}) == 1
