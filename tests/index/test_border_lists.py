"""Border lists of values of every kind: ranks told by steps, by values, and by values where steps do not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from service.index.answers import borders_by_stab
from service.index.brute import BruteForce
from service.index.default.border_lists import BorderLists
from service.index.default.border_lists_kernels import IN_STEPS, NOT_KEPT
from service.index.default.part import NEVER, sparse
from service.index.protocol import Bounds

Law = Callable[[np.random.Generator, int], NDArray[np.float64]]
COUNT = 300


def _spread(rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    return rng.random(count)


def _few_alike(rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    """Spread, and a few beside each other that have one step."""
    values = rng.random(count) * 1e6
    values[: count // 100] = 5e5 + np.arange(count // 100) * 1e-9
    return values


def _whole(rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    return rng.integers(-20, 20, count).astype(np.float64)


def _times(rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    return 1.7e9 + rng.random(count) * 86_400


def _strays(rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    values = rng.random(count)
    values[:3] = -1e300, 1e300, 1e9
    return values


def _skewed(rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    return np.exp(rng.normal(0, 8, count))


def _huge(rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    return (rng.random(count) - 0.5) * 1.7e308


def _utmost(rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    utmost = np.finfo(np.float64).max
    return rng.choice([-utmost, -np.nextafter(utmost, 0), 0.0, 1.0, utmost], count)


def _tiny(rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    return rng.integers(-50, 50, count) * 5e-324


def _one(rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    return np.zeros(count)


LAWS: dict[str, tuple[Law, bool]] = {
    "spread": (_spread, True),
    "few alike": (_few_alike, True),
    "whole": (_whole, False),
    "times": (_times, True),
    "strays": (_strays, True),
    "skewed": (_skewed, False),
    "huge": (_huge, True),
    "utmost": (_utmost, False),
    "tiny": (_tiny, False),
    "one": (_one, False),
}


def _boxes(law: Law, rng: np.random.Generator, dims: int, *, mixed: bool) -> tuple[Bounds, Bounds]:
    """Boxes between values of the law, some of them open on a side; ``mixed``: not all constrain all."""
    a, b = law(rng, COUNT * dims).reshape(-1, dims), law(rng, COUNT * dims).reshape(-1, dims)
    lo, hi = np.minimum(a, b), np.maximum(a, b)
    hi[lo == hi] = np.inf
    lo[rng.random(lo.shape) < 0.05] = -np.inf
    free = (lo == -np.inf) & (hi == np.inf)
    free |= rng.random(lo.shape) < (0.4 if mixed else 0.0)
    lo[free], hi[free] = -np.inf, np.inf
    whole = (~free).all(axis=1) if not mixed else (~free).any(axis=1)
    return np.ascontiguousarray(lo[whole]), np.ascontiguousarray(hi[whole])


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(("dims", "mixed"), [(1, False), (2, False), (3, True)])
def test_moves_to_borders_and_beside_them(law: str, dims: int, mixed: bool) -> None:
    rng = np.random.default_rng(dims)
    lo, hi = _boxes(LAWS[law][0], rng, dims, mixed=mixed)
    lists = BorderLists(sparse(np.arange(len(lo), dtype=np.int32), lo, hi))
    brute = BruteForce(dims)
    brute.insert(np.arange(len(lo), dtype=np.int32), lo, hi)

    ends = np.concatenate([lo, hi])
    ends[np.isinf(ends)] = 0.0
    rows = 60
    before = ends[rng.integers(0, len(ends), (rows, dims)), np.arange(dims)]
    after = ends[rng.integers(0, len(ends), (rows, dims)), np.arange(dims)]
    near = rng.random((rows, dims))
    after = np.where(near < 0.3, before, after)
    beside = np.where(near < 0.1, np.inf, -np.inf)
    utmost = np.finfo(np.float64).max
    with np.errstate(over="ignore"):
        after = np.where(near < 0.2, np.nextafter(after, beside), after).clip(-utmost, utmost)
        before = np.where(rng.random((rows, dims)) < 0.2, np.nextafter(before, beside), before)
        before = before.clip(-utmost, utmost)
    before[:5, 0], after[5:10, 0], after[10:15, 0] = -np.inf, -np.inf, -0.0

    keys, far = np.empty(rows * len(lo), np.int64), np.zeros(rows, np.bool_)
    found = lists.search(before, after, np.empty(0, np.int32), 0, 1e12, far, keys)
    expected = borders_by_stab(brute, before, after)
    packed = expected.rows.astype(np.int64) << 32 | expected.slots.astype(np.int64) << 1 | expected.entered
    assert not far.any()
    assert np.sort(keys[:found]).tolist() == packed.tolist()


@pytest.mark.parametrize("law", LAWS)
def test_borders_in_order(law: str) -> None:
    make, in_steps = LAWS[law]
    rng = np.random.default_rng(7)
    lo, hi = _boxes(make, rng, 1, mixed=False)
    lists = BorderLists(sparse(np.arange(len(lo), dtype=np.int32), lo, hi))
    lists.check()
    assert (lists._lists.axes[:, IN_STEPS] != NOT_KEPT).tolist() == [in_steps]
    assert lists.nbytes < (22 if in_steps else 30) * np.isfinite(np.concatenate([lo, hi])).sum()


def test_rows_that_are_nowhere_are_passed_over() -> None:
    rng = np.random.default_rng(1)
    for law in (_spread, _whole):
        lo, hi = _boxes(law, rng, 2, mixed=False)
        lists = BorderLists(sparse(np.arange(len(lo), dtype=np.int32), lo, hi))
        before, after = rng.uniform(-1, 3, (100, 2)), rng.uniform(-1, 3, (100, 2))
        before[::3, 0], after[1::3, 1], after[::9, 0] = np.nan, np.inf, np.nan
        far = ~(np.isfinite(before) & np.isfinite(after)).all(axis=1)
        keys = np.empty(200 * len(lo), np.int64)
        found = lists.search(before, after, np.empty(0, np.int32), 0, 1e12, far, keys)
        assert found > 0 and not far[keys[:found] >> 32].any()


def test_a_removed_box_is_met_at_the_versions_before_alone() -> None:
    lo = np.array([[1.0], [2.0], [3.0]])
    lists = BorderLists(sparse(np.arange(3, dtype=np.int32), lo, lo + 0.5))
    removed_at = np.array([2, 3, NEVER], np.int32)
    before, after = np.array([[0.0]]), np.array([[9.0]])
    for version, living in ((1, [0, 1, 2]), (2, [1, 2]), (3, [2]), (4, [2])):
        keys, doubtful = np.empty(3, np.int64), np.empty(3, np.bool_)
        found = lists.met(before, after, removed_at, version, keys, doubtful)
        assert sorted(keys[:found].tolist()) == living
