"""The experiments of the BMQ-Index paper run, on streams that move as they should."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest

from service.bench.experiment import Experiment, Scale
from service.bench.goals import all_met
from service.bench.papers import bmq_findings
from service.bench.papers.bmq import EXPERIMENTS
from service.bench.papers.bmq_findings import Judge
from service.bench.papers.bmq_streams import (
    BMQ,
    CEI_BASED,
    DOMAIN,
    OVER_INTERVALS,
    QUICK,
    Setting,
    cost,
    queries,
    values,
)


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda experiment: experiment.name)
def test_an_experiment_runs(experiment: Experiment) -> None:
    result = experiment.run(Scale.QUICK, 7)
    assert re.fullmatch("[0-9a-f]{64}", result.digest)
    assert result.verdict.endswith(".")
    (columns,) = {tuple(row) for row in result.rows}
    assert len(columns) > 1
    assert all(y > 0 for points in result.series.values() for _, y in points)


@pytest.mark.parametrize("dims", [1, 3])
def test_streams_fluctuate_at_the_level(dims: int) -> None:
    """FL as the paper defines it (Sect. 3.4): the mean distance over the size of the domain."""
    path = values(Setting(1, 1.0, 0.05, dims), 2_000, 20, 7)
    assert len(path) == 21
    distances = [np.linalg.norm(b - a, axis=1) for a, b in pairwise(path)]
    assert np.mean(distances) / DOMAIN * 100 == pytest.approx(0.05, rel=0.02)
    assert all(((at >= 0) & (at <= DOMAIN)).all() for at in path)


def test_queries_have_the_width() -> None:
    lo, hi = queries(Setting(500, 0.1, 0.01), 7)
    assert lo.min() >= 1 and lo.max() <= DOMAIN - 1
    assert np.ptp(hi - lo) == 0 and (hi - lo)[0, 0] == 1_000


def test_efficiency_is_of_one_tour() -> None:
    """Where streams begin does not count: neither do the queries that they enter from nowhere."""
    measured = cost((BMQ, CEI_BASED), Setting(5_000, 0.1, 0.01), QUICK, 7)
    assert measured.efficiency[BMQ] == 100.0
    assert measured.accessed[BMQ] == measured.reported
    assert 0 < measured.efficiency[CEI_BASED] < 20
    assert measured.bytes[BMQ] > 0


LEVELS = [0.01, 0.05, 0.09, 0.1]


@pytest.mark.parametrize(
    ("judge", "ours", "theirs", "holds"),
    [
        (bmq_findings.efficiency_by_level, [100, 100, 95, 92], [10, 50, 90, 93], True),
        pytest.param(
            bmq_findings.efficiency_by_level, [100, 100, 80, 75], [10, 50, 72, 75], False, id="fast loss"
        ),
        pytest.param(
            bmq_findings.efficiency_by_level, [100, 100, 100, 100], [10, 50, 90, 93], False, id="no loss"
        ),
        (bmq_findings.time_by_level, [1, 2, 3, 4], [5, 5, 4, 3.5], True),
        pytest.param(bmq_findings.time_by_level, [1, 2, 3, 4], [5, 5, 5, 6], False, id="faster at W"),
        pytest.param(bmq_findings.time_by_level, [1, 2, 3, 4], [5, 5, 3, 2], False, id="far slower at W"),
        pytest.param(bmq_findings.time_by_level, [1, 2, 3, 4], [5, 3, 3, 3.5], False, id="not much faster"),
        pytest.param(bmq_findings.time_by_level, [1, 2, 3, 4], [5, 5, 2, 3.5], False, id="slower below W"),
    ],
)
def test_what_is_found_over_the_level_can_be_refuted(
    judge: Judge, ours: list[float], theirs: list[float], holds: bool
) -> None:
    curves = {BMQ: ours, **dict.fromkeys(OVER_INTERVALS, theirs)}
    assert all_met(judge(LEVELS, curves)) is holds
