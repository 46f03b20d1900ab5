"""The Hilbert curve: a bijection of cells onto places, in steps to a neighbour; and the order made of it."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from service.index.box.hilbert import bits_of, frame_of, hilbert_order, places_of
from tests.index.worlds import INF, LOWEST, MOST, NAN

GRIDS = [(1, 1), (1, 6), (2, 1), (2, 2), (2, 4), (3, 1), (3, 3), (4, 2), (5, 1), (6, 1), (8, 1)]


def curve(axes: int, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """All cells of a grid, and their places."""
    cells = np.array(list(product(range(1 << bits), repeat=axes)), np.int64)
    places = np.empty(len(cells), np.uint64)
    places_of(cells, bits, places)
    return cells, places


@pytest.mark.parametrize(("axes", "bits"), GRIDS)
def test_every_place_is_taken_once(axes: int, bits: int) -> None:
    _, places = curve(axes, bits)
    assert np.array_equal(np.sort(places), np.arange(1 << axes * bits, dtype=np.uint64))


@pytest.mark.parametrize(("axes", "bits"), GRIDS)
def test_every_step_goes_to_a_neighbour(axes: int, bits: int) -> None:
    """The reason why the paper prefers it to the Z-order (Sect. 5.3)."""
    cells, places = curve(axes, bits)
    steps = np.abs(np.diff(cells[np.argsort(places)], axis=0))
    assert (steps.sum(axis=1) == 1).all()


@pytest.mark.parametrize(("axes", "bits"), [(1, 4), (2, 3), (3, 2), (4, 2)])
def test_a_coarser_cell_is_passed_in_one_go(axes: int, bits: int) -> None:
    """All cells of a cube of half the side have places that differ in the last bit an axis only."""
    cells, places = curve(axes, bits)
    coarse = {tuple(cell): int(place) >> axes for cell, place in zip(cells // 2, places, strict=True)}
    assert len(set(coarse.values())) == len(coarse)
    for cell, place in zip(cells // 2, places, strict=True):
        assert coarse[tuple(cell)] == int(place) >> axes


def test_the_first_curve_of_figure_9() -> None:
    """Four cells: a U."""
    cells, places = curve(2, 1)
    assert cells[np.argsort(places)].tolist() == [[0, 0], [0, 1], [1, 1], [1, 0]]


def test_a_place_fits_its_bits() -> None:
    for axes in range(1, 17):
        for points in (0, 1, 1000, 10**6, 2**31 - 1):
            assert bits_of(axes, points) >= 1
            assert axes * bits_of(axes, points) <= 32


def order_of(points: np.ndarray, axes: list[int] | None = None) -> list[int]:
    sample = np.sort(np.ascontiguousarray(points.T), axis=1)
    chosen = np.array(range(points.shape[1]) if axes is None else axes, np.int64)
    return hilbert_order(points, sample, chosen).tolist()


def test_on_one_axis_it_is_the_order_of_values() -> None:
    values = np.random.default_rng(1).permutation(200).astype(np.float64)
    inner = slice(5, -5)  # the outermost share a cell
    assert order_of(values.reshape(-1, 1))[inner] == np.argsort(values).tolist()[inner]


def test_attributes_that_are_not_asked_for_do_not_count() -> None:
    points = np.random.default_rng(2).random((100, 3))
    assert order_of(points, [1]) == order_of(np.ascontiguousarray(points[:, 1:2]))
    assert order_of(points, []) == list(range(100))


def test_what_has_no_cell_is_put_somewhere() -> None:
    """Infinite, huge and equal values are in the order once, rows with a NaN are not."""
    values = [-INF, LOWEST, -1.0, 0.0, 0.0, 5e-324, 1.0, MOST, INF, NAN]
    points = np.array(list(product(values, repeat=2)))
    assert sorted(order_of(points)) == np.flatnonzero(~np.isnan(points).any(axis=1)).tolist()
    for same in (0.0, INF, -INF, MOST):
        assert order_of(np.full((5, 2), same)) == [0, 1, 2, 3, 4]
    assert order_of(np.full((5, 2), NAN)) == []
    assert order_of(np.empty((0, 2))) == []


def test_more_attributes_than_a_place_has_bits() -> None:
    points = np.random.default_rng(3).random((50, 40))
    assert sorted(order_of(points)) == list(range(50))


def test_a_stray_value_does_not_put_the_rest_into_one_cell() -> None:
    values = np.append(np.linspace(0.0, 1.0, 255), 1e9)
    frame = frame_of(values.reshape(1, -1), 8)
    assert 1.0 / frame.scale[0] < 0.01


@pytest.mark.parametrize(("axes", "share"), [(2, 0.03), (4, 0.06)])
def test_neighbours_in_the_order_are_near(axes: int, share: float) -> None:
    """A sixty-fourth of the points takes little more than a sixty-fourth of the space."""
    points = np.random.default_rng(4).random((4096, axes))
    clusters = points[order_of(points)].reshape(64, 64, axes)
    volumes = (clusters.max(axis=1) - clusters.min(axis=1)).prod(axis=1)
    assert volumes.mean() < share
