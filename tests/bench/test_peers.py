"""Every peer, and the yardstick, gives the answers of brute force: in a batch, and one at a time."""

from __future__ import annotations

import numpy as np
import pytest

from service.bench.border_peers import SortedBorders, stab_and_diff
from service.bench.measure import batches, border_batches, race
from service.bench.peers import NCLS, PEERS, Numpy, Peer, SuperIntervals, contender, peers_for
from service.bench.targets_moves import Floor
from service.bench.workloads import A, C, G, Workload, cube, intervals, walk
from service.bench.yardstick import BLOCK, ColumnScan, RowScan
from service.index.brute import BruteForce

#: Dense enough that every point is in some boxes: one and two attributes, four, and free ones.
WORKLOADS = (
    intervals(20_000, 40, 3),
    cube("decimals", 1, 0.05)(300, 40, 3),
    cube("squares", 2, 0.2)(300, 40, 3),
    G(2_000, 40, 3),
    C(3_000, 40, 3),
    A(3_000, 40, 3),
)


def index_of(load: Workload) -> BruteForce:
    index = BruteForce(load.lo.shape[1])
    index.insert(load.slots, load.lo, load.hi)
    return index


def on_borders(load: Workload) -> Workload:
    """The same boxes, asked at their own finite ends."""
    corners = np.concatenate([load.lo[:20], load.hi[:20]])
    return load._replace(points=np.where(np.isfinite(corners), corners, load.points))


@pytest.mark.parametrize("load", WORKLOADS, ids=lambda load: load.name)
@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_a_peer_agrees_with_brute_force(peer: type[Peer], load: Workload) -> None:
    if peer not in peers_for(load.lo, load.hi):
        assert not peer.least <= load.lo.shape[1] <= peer.most or peer.finite
        return
    made = peer(load.lo, load.hi)
    for asked in (load, on_borders(load)):
        expected = batches(index_of(load).stab, asked.points, 40)
        one_by_one = contender(made, asked.points, 1)
        race({"brute": expected, "batch": contender(made, asked.points, 40), "ones": one_by_one}, repeats=1)


@pytest.mark.parametrize("load", WORKLOADS, ids=lambda load: load.name)
@pytest.mark.parametrize("scan", [ColumnScan, RowScan], ids=lambda scan: scan.name)
def test_the_yardstick_agrees_with_brute_force(
    scan: type[ColumnScan] | type[RowScan], load: Workload
) -> None:
    yardstick = scan(load.lo, load.hi)
    for asked in (load, on_borders(load)):
        found = yardstick.stab(asked.points)
        expected = index_of(load).stab(asked.points)
        assert np.array_equal(found.rows, expected.rows) and np.array_equal(found.slots, expected.slots)
    assert len(load.lo) % BLOCK, "a last block that is not full is part of the test"


def test_whole_numbers_and_ranks_answer_half_numbers_alike() -> None:
    lo, hi = np.array([[0.0], [1.0], [-5.0]]), np.array([[1.0], [3.0], [7.0]])
    points = np.array([[-5.0], [-0.5], [0.5], [0.999], [1.0], [2.5], [3.0], [6.5], [7.0], [1e300]])
    halves = np.vstack([lo, [[0.25]]]), np.vstack([hi, [[0.75]]])
    for ends in ((lo, hi), (lo + 5, hi + 5), halves):
        expected = Numpy(*ends).stab(points)
        for peer in (SuperIntervals, NCLS):
            found = peer(*ends).stab(points)
            assert np.array_equal(found.rows, expected.rows) and np.array_equal(found.slots, expected.slots)


def test_who_takes_what() -> None:
    one, two, free = intervals(10, 1, 1), G(10, 1, 1), A(10, 1, 1)
    names = [{peer.name for peer in peers_for(load.lo, load.hi)} for load in (one, two, free)]
    assert names == [
        {"superintervals", "ncls", "intervaltree", "numpy"},
        {"shapely", "rtree", "numpy"},
        {"numpy"},
    ]


def test_borders_by_other_ways() -> None:
    load = walk(20_000, 60, 3, deltas=11)
    index = BruteForce(1)
    index.insert(load.slots, load.lo, load.hi)
    # Also far, so that intervals are passed from end to end, and not at all.
    rng = np.random.default_rng(4)
    before = np.concatenate([load.before, rng.uniform(0, 1e6, (30, 1)), load.lo[:5], load.before[:5]])
    after = np.concatenate([load.after, rng.uniform(0, 1e6, (30, 1)), load.hi[:5], load.before[:5]])
    race(
        {
            "index": border_batches(index.borders, before, after, 20),
            "stab and diff": border_batches(stab_and_diff(index), before, after, 100),
            "sortedcontainers": SortedBorders(load.lo, load.hi).contender(before, after),
        },
        repeats=1,
    )


def test_the_floor_reads_what_matters() -> None:
    load = walk(20_000, 200, 3, deltas=11)
    index = BruteForce(1)
    index.insert(load.slots, load.lo, load.hi)
    race(
        {"index": border_batches(index.borders, load.before, load.after, 200), "floor": Floor(load)},
        repeats=1,
    )
