"""The experiments on intervals: what they count, what they measure on, and that a finding can be refuted."""

from __future__ import annotations

import numpy as np
import pytest

from service.bench.experiment import Scale
from service.bench.measure import digest_of
from service.bench.papers import cei, cei_findings, vci
from service.bench.papers.cei_findings import ALL, VIRTUAL
from service.bench.papers.figures import Curves, Judge
from service.bench.papers.intervals import STRUCTURES, AsReported, Setting, cost, queries, values
from service.bench.papers.virtual_constructs import CONSTRUCTS, entries, paper_bytes
from service.index.brute import BruteForce
from service.index.protocol import Hits
from tests.index.worlds import SMALL

SETTING = Setting(queries=200 if SMALL else 2_000, domain=1_024, widest=40, longest=8)


def test_queries_are_those_of_the_paper() -> None:
    lo, hi = queries(SETTING, 7)
    widths = (hi - lo)[:, 0]
    assert lo.shape == hi.shape == (SETTING.queries, 1)
    assert (lo == np.floor(lo)).all() and lo.min() >= 1 and lo.max() < SETTING.domain
    assert (widths == np.floor(widths)).all() and set(widths) == set(range(1, SETTING.widest + 1))
    assert all(np.array_equal(a, b) for a, b in zip(queries(SETTING, 7), (lo, hi), strict=True))
    assert not np.array_equal(queries(SETTING, 8)[0], lo)
    points = values(SETTING, 500, 7)
    assert points.min() >= 1 and points.max() < SETTING.domain


def test_an_axis_of_unit_cells_unless_queries_are_few() -> None:
    assert SETTING.step == 1.0
    assert SETTING._replace(queries=5_000, domain=1 << 20).step == 8.0


def test_constructs_of_all_queries() -> None:
    lo, hi = queries(SETTING, 7)
    for name, construct in CONSTRUCTS.items():
        one_by_one = sum(
            construct.decomposed(int(a), int(b), SETTING.longest)
            for a, b in zip(lo[:, 0], hi[:, 0], strict=True)
        )
        assert entries(name, SETTING, 7) == one_by_one
        storage = paper_bytes(name, SETTING, 7)
        assert storage == 4 * construct.defined(SETTING.domain, SETTING.longest) + 8 * one_by_one
    assert paper_bytes("IS-list", SETTING, 7) is None


def test_an_answer_as_reported_is_the_answer() -> None:
    keys = np.array([5 << 32 | 7, 2 << 32 | 2**31 - 1, 5 << 32 | 1], np.int64)

    def fill(out: np.ndarray) -> int:
        out[:3] = keys
        return 3

    reported = AsReported().hits(fill, 6)
    assert reported.rows.tolist() == [5, 2, 5]
    assert reported.slots.tolist() == [7, 2**31 - 1, 1]
    assert digest_of(reported) == digest_of(Hits(np.array([2, 5, 5]), np.array([2**31 - 1, 1, 7])))


def test_all_structures_agree_with_brute_force() -> None:
    """``cost`` refuses structures that differ; so the digest of one is that of all."""
    measured = cost(STRUCTURES, SETTING, searches=100, repeats=1, seed=7)
    lo, hi = queries(SETTING, 7)
    plain = BruteForce(1)
    plain.insert(np.arange(SETTING.queries, dtype=np.int32), lo, hi)
    assert measured.digest == digest_of(plain.stab(values(SETTING, 100, 7)))
    assert measured.searches == 100
    assert set(measured.search_us) == set(measured.bytes) == set(STRUCTURES)
    assert all(size > 0 for size in measured.bytes.values())


@pytest.mark.parametrize("name", ["vci-7", "cei-1", "cei-14", "cei-17a"])
def test_an_experiment_is_reproducible(name: str) -> None:
    experiment = next(e for e in (*vci.EXPERIMENTS, *cei.EXPERIMENTS) if e.name == name)
    first, again = (experiment.run(Scale.QUICK, 3) for _ in range(2))
    assert first.agrees
    assert first.digest == again.digest
    assert first.series == again.series
    assert len({tuple(row) for row in first.rows}) == 1, "rows with other columns"


def curves(**by_name: list[float]) -> Curves:
    return {name.replace("_", "-"): curve for name, curve in by_name.items()}


@pytest.mark.parametrize(
    ("judge", "holds", "fails"),
    [
        (
            cei_findings.storage_by_length_large,
            curves(UI=[9, 9, 9], LCI=[5, 4, 6], CEI=[5, 3, 2]),
            curves(UI=[9, 9, 9], LCI=[5, 4, 3], CEI=[5, 3, 2]),
        ),
        (
            cei_findings.storage_by_length_small,
            curves(UI=[9, 9, 9], LCI=[5, 4, 6], CEI=[5, 3, 2]),
            curves(UI=[9, 9, 9], LCI=[5, 4, 6], CEI=[5, 6, 2]),
        ),
        (
            cei_findings.time_by_length,
            curves(UI=[1, 1, 1], LCI=[1, 3, 9], CEI=[1, 1, 2]),
            curves(UI=[2, 2, 2], LCI=[1, 3, 9], CEI=[1, 1, 2]),
        ),
        (
            cei_findings.time_by_width,
            curves(UI=[1, 2, 3], LCI=[2, 3, 4], CEI=[1, 2, 3], IS_list=[20, 21, 22]),
            curves(UI=[1, 2, 3], LCI=[2, 3, 4], CEI=[1, 2, 3], IS_list=[9, 10, 11]),
        ),
        (
            cei_findings.storage_by_width,
            curves(UI=[1, 5, 9], LCI=[2, 2, 2], CEI=[1, 1, 1], IS_list=[3, 3, 3]),
            curves(UI=[1, 5, 9], LCI=[4, 2, 2], CEI=[1, 1, 1], IS_list=[3, 3, 3]),
        ),
        (
            cei_findings.time_by_count,
            curves(UI=[1, 2, 3], LCI=[2, 3, 4], CEI=[1, 2, 3], IS_list=[5, 6, 7]),
            curves(UI=[1, 2, 3], LCI=[2, 3, 4], CEI=[1, 2, 3], IS_list=[5, 6, 2]),
        ),
        (  # the IS-list a little faster than LCI
            cei_findings.time_by_count,
            curves(UI=[1, 2, 3], LCI=[2, 3, 4], CEI=[1, 2, 3], IS_list=[5, 6, 4.1]),
            curves(UI=[1, 2, 3], LCI=[2, 3, 4], CEI=[1, 2, 3], IS_list=[5, 6, 3.9]),
        ),
        (  # CEI a little slower than LCI
            cei_findings.time_by_count,
            curves(UI=[2, 2, 3], LCI=[2.1, 3, 4], CEI=[2, 2, 3], IS_list=[5, 6, 7]),
            curves(UI=[2, 2, 3], LCI=[1.9, 3, 4], CEI=[2, 2, 3], IS_list=[5, 6, 7]),
        ),
        (  # CEI far from UI
            cei_findings.time_by_count,
            curves(UI=[2, 2, 3], LCI=[3, 3, 4], CEI=[2.9, 2, 3], IS_list=[5, 6, 7]),
            curves(UI=[2, 2, 3], LCI=[4, 3, 4], CEI=[3.1, 2, 3], IS_list=[5, 6, 7]),
        ),
        (
            cei_findings.storage_by_count_large,
            curves(UI=[9, 9, 9], LCI=[3, 4, 5], CEI=[3, 4, 5], IS_list=[1, 3, 9]),
            curves(UI=[9, 9, 9], LCI=[3, 4, 5], CEI=[3, 4, 5], IS_list=[1, 3, 4]),
        ),
        (
            cei_findings.storage_by_count_small,
            curves(UI=[9, 9, 9], LCI=[3, 4, 5], CEI=[3, 4, 5], IS_list=[4, 5, 9]),
            curves(UI=[9, 9, 9], LCI=[3, 4, 5], CEI=[3, 4, 5], IS_list=[1, 5, 9]),
        ),
    ],
)
def test_a_finding_can_be_refuted(judge: Judge, holds: Curves, fails: Curves) -> None:
    assert set(holds) in (set(VIRTUAL), set(ALL))
    for expected, measured in ((True, holds), (False, fails)):
        agrees, verdict = judge([2.0, 4.0, 8.0], measured)
        assert agrees is expected
        assert verdict
