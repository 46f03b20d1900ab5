"""The experiments on VCR: what they measure on, that structures agree, and that a finding can be refuted."""

from __future__ import annotations

import numpy as np
import pytest

from service.bench.experiment import Scale
from service.bench.measure import Disagreement, digest_of
from service.bench.papers import vcr
from service.bench.papers.figures import Curves, Judge
from service.bench.papers.vcr_figures import UNIFORM, Drawn, Setting, costs, events, predicates
from service.index.box.vcr import VCR
from service.index.brute import BruteForce
from tests.bench.broken import without_the_last
from tests.index.worlds import SMALL

COUNT = 200 if SMALL else 4_000
SETTING = Setting(COUNT, (60, 40), (10, 5), (4, 2), (0.9, 0.1))
STRUCTURES = {
    structure.name: structure
    for group in (vcr.BY_LENGTH, vcr.AGAINST_RTREE, vcr.HASHING, vcr.DECOMPOSITIONS)
    for structure in group
}


def test_predicates_are_those_of_the_paper() -> None:
    lo, hi = predicates(SETTING, 7)
    assert lo.shape == hi.shape == (COUNT, 2)
    assert (lo == np.floor(lo)).all() and (lo < hi).all()
    assert (lo >= 0).all() and (hi <= SETTING.ranges).all()
    inside = (hi < SETTING.ranges).all(axis=1)
    for attribute, widest in enumerate(SETTING.widest):
        widths = (hi - lo)[inside, attribute]
        assert set(widths) == set(range(1, widest + 1))
    assert all(np.array_equal(a, b) for a, b in zip(predicates(SETTING, 7), (lo, hi), strict=True))
    assert not np.array_equal(predicates(SETTING, 8)[0], lo)


@pytest.mark.parametrize(("skew", "share"), [((0.9, 0.1), 0.91), ((0.9, 0.01), 0.901), (UNIFORM, 0.1)])
def test_the_rule_of_overlap(skew: tuple[float, float], share: float) -> None:
    """Of the places, 90 % and a share of those anywhere are in the middle, for 90-10 and 90-1."""
    area = skew[1] if skew != UNIFORM else 0.1
    points = events(SETTING._replace(skew=skew), 20_000, 7)
    from_centre = np.abs(points / SETTING.ranges - 0.5)
    assert (from_centre <= 0.5).all()
    within = (from_centre <= area**0.5 / 2).all(axis=1).mean()
    # Three standard errors, and a little.
    assert within == pytest.approx(share, abs=0.01)


def test_all_structures_agree_with_brute_force() -> None:
    """``costs`` refuses structures that differ, OD's repeated ids aside."""
    alike = [structure._replace(skew=None) for structure in STRUCTURES.values()]
    measured, digest = costs(alike, SETTING, searches=100, repeats=1, seed=7)
    assert set(measured) == set(STRUCTURES)
    plain = BruteForce(2)
    plain.insert(np.arange(COUNT, dtype=np.int32), *predicates(SETTING, 7))
    hits = plain.stab(events(SETTING, 100, 7))
    alone, expected = costs(alike[:1], SETTING, searches=100, repeats=1, seed=7)
    assert digest == expected != digest_of(hits)  # it is a digest of digests
    assert all(cost.ids == len(hits.rows) / 100 for cost in (*measured.values(), *alone.values()))
    assert all(cost.bytes > 0 and cost.search_us > 0 for cost in measured.values())
    assert all((cost.load > 0) == (name in ("hashing", "SD", "OD")) for name, cost in measured.items())


def test_a_structure_that_is_alone_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that forgets its last hit, where no other is asked."""
    monkeypatch.setattr(VCR, "stab", without_the_last(VCR.stab))
    alone = [next(iter(STRUCTURES.values()))._replace(skew=None)]
    with pytest.raises(Disagreement, match="differs from the oracle"):
        costs(alone, SETTING, searches=100, repeats=1, seed=7)


@pytest.mark.parametrize("name", ["vcr-7b", "vcr-8b", "vcr-9b"])
def test_an_experiment_is_reproducible(name: str) -> None:
    experiment = next(e for e in vcr.EXPERIMENTS if e.name == name)
    first, again = (experiment.run(Scale.QUICK, 3) for _ in range(2))
    assert first.digest == again.digest
    assert first.series == again.series
    assert first.agrees == again.agrees
    assert len({tuple(row) for row in first.rows}) == 1, "rows with other columns"
    assert [len(points) for points in first.series.values()] == [len(first.rows)] * len(first.series)


def test_names_and_what_they_draw() -> None:
    assert [e.name for e in vcr.EXPERIMENTS] == [
        f"vcr-{n}" for n in ("6a", "6b", "7a", "7b", "8a", "8b", "9a", "9b")
    ]
    assert len({drawn.value for drawn in Drawn}) == len(Drawn)


def curves(**by_label: list[float]) -> Curves:
    words = {"search": "search time", "counted": "storage in the paper's count", "plain": "without hashing"}
    words |= {"bits": "bit vector", "r_90": "R-tree, 90-10", "r_uni": "R-tree, uniform", "v_90": "VCR, 90-10"}
    words |= {
        "v_uni": "VCR, uniform",
        "b_90": "VCR by bit vector, 90-10",
        "b_uni": "VCR by bit vector, uniform",
    }
    return {words.get(label, label): curve for label, curve in by_label.items()}


@pytest.mark.parametrize(
    ("judge", "holds", "fails"),
    [
        (
            vcr.best_length(8, 16),
            curves(storage=[9, 1, 2], counted=[9, 1, 2], search=[9, 2, 1]),
            curves(storage=[9, 1, 2], counted=[9, 1, 2], search=[9, 1, 2]),
        ),
        (
            vcr.rtree_is_slower,
            curves(r_90=[4, 8, 9], v_90=[1, 2, 3], r_uni=[2, 2, 2], v_uni=[1, 1, 1], b_90=[9, 9, 9]),
            curves(r_90=[4, 8, 9], v_90=[1, 2, 3], r_uni=[2, 2, 2], v_uni=[1, 1, 3], b_90=[1, 1, 1]),
        ),
        (
            vcr.vcr_stores_more,
            curves(r_90=[4, 8, 9], v_90=[5, 9, 10], b_90=[1, 1, 1]),
            curves(r_90=[4, 8, 9], v_90=[9, 9, 10], b_90=[1, 1, 1]),
        ),
        (
            vcr.hashing_is_slower,
            curves(hashing=[6, 6, 6], plain=[1, 2, 3], bits=[1, 1, 1]),
            curves(hashing=[6, 6, 6], plain=[3, 2, 1], bits=[1, 1, 1]),
        ),
        (
            vcr.hashing_stores_less,
            curves(hashing=[1, 2, 3], plain=[4, 4, 4], bits=[1, 1, 1]),
            curves(hashing=[1, 2, 5], plain=[4, 4, 4], bits=[1, 1, 1]),
        ),
        (vcr.od_is_faster, curves(SD=[1, 2, 4], OD=[1, 1, 1]), curves(SD=[4, 2, 2], OD=[1, 1, 1])),
        (vcr.od_loads_less, curves(SD=[2, 3, 4], OD=[1, 2, 3]), curves(SD=[2, 3, 3], OD=[1, 2, 3])),
    ],
)
def test_a_finding_can_be_refuted(judge: Judge, holds: Curves, fails: Curves) -> None:
    for expected, measured in ((True, holds), (False, fails)):
        agrees, verdict = judge([4.0, 8.0, 16.0], measured)
        assert agrees is expected
        assert verdict
