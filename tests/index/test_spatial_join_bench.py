"""The experiments of the Spatial Join paper: their workload is the paper's, and they run."""

from __future__ import annotations

import numpy as np
import pytest

from service.bench.experiment import Experiment, Scale
from service.bench.papers.spatial_join import EXPERIMENTS, costliest_beside
from service.bench.papers.spatial_join_workloads import SKEWED, Setting, data_elements, queries


def test_queries_have_so_many_conditions() -> None:
    for share in (0.25, 0.5, 1.0):
        lo, hi = queries(Setting(500, 4, 0, share), 1)
        constrained = (lo > -np.inf) & (hi < np.inf)
        assert (constrained.sum(axis=1) == 4 * share).all()
        assert (constrained == ((lo > -np.inf) | (hi < np.inf))).all()
        assert (lo < hi).all()
        # Attributes are chosen at random: each is constrained about as often.
        assert np.abs(constrained.mean(axis=0) - share).max() < 0.1


def test_a_condition_holds_for_a_third_of_all_values() -> None:
    lo, hi = queries(Setting(20_000, 1, 0), 2)
    assert (hi - lo).mean() == pytest.approx(1 / 3, rel=0.03)


def test_skewed_data_elements_are_in_as_many_queries() -> None:
    setting = Setting(20_000, 1, 2_000, skew=0.5)
    points = data_elements(setting, 3)
    low, high = SKEWED
    assert ((low <= points) & (points < high)).mean() == pytest.approx(0.55, abs=0.04)
    lo, hi = queries(setting, 3)
    inside = ((lo[:, 0] <= 0.21) & (hi[:, 0] > 0.21)).mean()
    assert inside == pytest.approx(1 / 3, rel=0.05)


def test_a_seed_gives_one_workload() -> None:
    setting = Setting(50, 3, 50, 0.7, 0.3)
    assert np.array_equal(queries(setting, 4), queries(setting, 4))
    assert np.array_equal(data_elements(setting, 4), data_elements(setting, 4))
    assert not np.array_equal(queries(setting, 4), queries(setting, 5))


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda experiment: experiment.name)
def test_experiments_run(experiment: Experiment) -> None:
    """All contenders find the same, and every row has the same columns."""
    result = experiment.run(Scale.QUICK, 6)
    assert len(result.rows) > 1
    assert len({tuple(row) for row in result.rows}) == 1
    assert len(result.digest) == 64
    assert all(len(points) > 0 for points in result.series.values())


def test_sizes_from_half_to_three_times_the_best_are_beside_it() -> None:
    assert costliest_beside({8: 9.0, 16: 2.2, 32: 2.0, 64: 2.1, 128: 9.0}) == pytest.approx(1.1)
    assert costliest_beside({32: 2.0, 64: 2.5}) == pytest.approx(1.25)
