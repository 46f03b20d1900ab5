"""Virtual construct rectangles: the papers' worked examples, and their theorems by exhaustion."""

from __future__ import annotations

from itertools import product

import pytest

from service.index.box.vcr_encoding import (
    Rectangle,
    covering_set,
    decomposition,
    distance_table,
    pivot,
    storage_bytes,
    vcr_id,
    vcrs_a_cell,
)
from tests.index.worlds import SMALL

EXAMPLE = Rectangle(3, 3, 11, 6)
SIZES = [(1, 1), (2, 1), (1, 4), (4, 4)] + ([] if SMALL else [(8, 2), (16, 8)])
RANGE_X = 100


def cells(rectangle: Rectangle) -> set[tuple[int, int]]:
    x, y, width, height = rectangle
    return set(product(range(x, x + width), range(y, y + height)))


def data_points(rectangle: Rectangle) -> set[tuple[int, int]]:
    """The whole points of a rectangle with all of its border."""
    return cells(rectangle._replace(width=rectangle.width + 1, height=rectangle.height + 1))


def sd(rectangle: Rectangle, longest: tuple[int, int]) -> list[Rectangle]:
    """The slow twin of simple decomposition: Fig. 2 of the VCR paper, with its names."""

    def largest(limit: int, most: int) -> int:
        return max(1 << level for level in range(most.bit_length()) if 1 << level <= limit)

    found = []
    lw, bw, ww, hw = rectangle
    while hw > 0:
        hs = largest(hw, longest[1])
        ls, ws = lw, ww
        while ws > 0:
            width = largest(ws, longest[0])
            found.append(Rectangle(ls, bw, width, hs))
            ls, ws = ls + width, ws - width
        bw, hw = bw + hs, hw - hs
    return found


def test_the_nine_vcrs_of_a_corner() -> None:
    """VCR paper, Fig. 1 a: L = 4 by 4, from the unit square 0 to the largest, 8."""
    corner = [Rectangle(0, 0, width, height) for height in (1, 2, 4) for width in (1, 2, 4)]
    assert [vcr_id(vcr, range_x=300, longest=(4, 4)) for vcr in corner] == list(range(9))
    assert vcrs_a_cell((4, 4)) == 9
    assert vcr_id(Rectangle(1, 0, 1, 1), range_x=300, longest=(4, 4)) == 9
    assert vcr_id(Rectangle(5, 2, 2, 4), range_x=300, longest=(4, 4)) == 9 * (5 + 2 * 300) + 2 * 3 + 1


def test_simple_decomposition_of_the_example() -> None:
    """VCR paper, Fig. 3: 8 VCRs of 6 sizes, in a strip of height 4 and one of height 2."""
    vcrs = decomposition(EXAMPLE, (4, 4), overlapped=False)
    assert vcrs == [
        Rectangle(3, 3, 4, 4),
        Rectangle(7, 3, 4, 4),
        Rectangle(11, 3, 2, 4),
        Rectangle(13, 3, 1, 4),
        Rectangle(3, 7, 4, 2),
        Rectangle(7, 7, 4, 2),
        Rectangle(11, 7, 2, 2),
        Rectangle(13, 7, 1, 2),
    ]
    sizes = {(vcr.width, vcr.height) for vcr in vcrs}
    assert sizes == {(4, 4), (4, 2), (2, 4), (2, 2), (1, 4), (1, 2)}
    shared = data_points(vcrs[0]) & data_points(vcrs[1])
    assert shared == {(7, 3), (7, 4), (7, 5), (7, 6), (7, 7)}


def test_overlapped_decomposition_of_the_example() -> None:
    """VCR paper, Fig. 4: 6 VCRs of 4 by 4."""
    vcrs = decomposition(EXAMPLE, (4, 4), overlapped=True)
    assert vcrs == [Rectangle(x, y, 4, 4) for y in (3, 5) for x in (3, 7, 10)]
    shared = data_points(Rectangle(7, 3, 4, 4)) & data_points(Rectangle(10, 3, 4, 4))
    assert shared == set(product((10, 11), range(3, 8)))
    assert len(shared) == 10


@pytest.mark.parametrize(("height", "strip"), [(5, 4), (10, 8)])
def test_height_of_a_strip(height: int, strip: int) -> None:
    """VCR paper, Sect. 2.2.1, with Ly = 8."""
    vcrs = decomposition(Rectangle(0, 0, 1, height), (1, 8), overlapped=False)
    assert vcrs[0].height == strip


def test_queries_of_figure_8() -> None:
    """VCI paper, Fig. 8: which queries the three points are in, found by covering VCR sets."""
    filed = {
        name: set(decomposition(query, (4, 4), overlapped=True))
        for name, query in {"q1": Rectangle(3, 3, 5, 6), "q2": Rectangle(6, 7, 5, 5)}.items()
    }

    def found(x: float, y: float) -> set[str]:
        around = set(covering_set(int(x), int(y), (4, 4)))
        return {name for name, vcrs in filed.items() if vcrs & around}

    assert found(9.3, 4.15) == set()
    assert found(3.6, 5.2) == {"q1"}
    assert found(7.5, 9.5) == {"q2"}
    assert found(6.5, 8.5) == {"q1", "q2"}


def test_ten_vcrs_of_one_height_along_one_row() -> None:
    """VCR paper, Appendix A: height 4, bottom-left corners at b - 4, from 1 VCR at a - 4 to 3 at a."""
    a, b = 20, 30
    row = [vcr for vcr in covering_set(a, b, (4, 4), closed=True) if vcr.y == b - 4 and vcr.height == 4]
    assert len(row) == 10
    contributed = [sum(vcr.x == x for vcr in row) for x in range(a - 4, a + 1)]
    assert contributed == [1, 1, 2, 3, 3]


@pytest.mark.parametrize("longest", SIZES)
def test_covering_sets(longest: tuple[int, int]) -> None:
    """Equation 2 and Theorem 1, and what becomes of them for points between the integers."""
    (lx, ly), (a, b) = longest, (20, 30)
    kx, ky = lx.bit_length() - 1, ly.bit_length() - 1
    sides = [(1 << i, 1 << j) for i in range(kx + 1) for j in range(ky + 1)]
    near = product(range(a - lx - 2, a + lx + 3), range(b - ly - 2, b + ly + 3), sides)
    everywhere = [Rectangle(x, y, width, height) for x, y, (width, height) in near]
    closed = set(covering_set(a, b, longest, closed=True))
    assert closed == {vcr for vcr in everywhere if (a, b) in data_points(vcr)}
    assert len(closed) == (2 * lx + kx) * (2 * ly + ky)
    inside = list(covering_set(a, b, longest))
    assert set(inside) == {vcr for vcr in everywhere if (a, b) in cells(vcr)}
    assert len(inside) == len(set(inside)) == (2 * lx - 1) * (2 * ly - 1)


@pytest.mark.parametrize("longest", SIZES)
@pytest.mark.parametrize("closed", [False, True])
def test_one_distance_table_serves_every_point(longest: tuple[int, int], closed: bool) -> None:
    """Theorem 2."""
    table = distance_table(RANGE_X, longest, closed=closed)
    assert table == sorted(set(table))

    def id_of(vcr: Rectangle) -> int:
        return vcr_id(vcr, range_x=RANGE_X, longest=longest)

    for a, b in ((16, 16), (17, 16), (16, 17), (50, 33)):
        ids = sorted(id_of(vcr) for vcr in covering_set(a, b, longest, closed=closed))
        from_pivot = id_of(pivot(a, b, longest, closed=closed))
        assert ids == [from_pivot + distance for distance in table]


def test_pivots_of_both_papers() -> None:
    assert pivot(20, 30, (4, 8), closed=True) == Rectangle(16, 22, 1, 1)
    assert pivot(20, 30, (4, 8)) == Rectangle(17, 23, 1, 1)
    assert pivot(20, 30, (4, 8), closed=True) not in set(covering_set(20, 30, (4, 8), closed=True))


@pytest.mark.parametrize("longest", SIZES)
def test_simple_decomposition_is_that_of_figure_2(longest: tuple[int, int]) -> None:
    for width, height in product(range(1, 20, 2 if SMALL else 1), range(1, 11)):
        rectangle = Rectangle(3, 5, width, height)
        vcrs = decomposition(rectangle, longest, overlapped=False)
        assert vcrs == sd(rectangle, longest)
        covered = [cell for vcr in vcrs for cell in cells(vcr)]
        assert len(covered) == len(set(covered))
        assert set(covered) == cells(rectangle)


@pytest.mark.parametrize("longest", SIZES)
def test_overlapped_decomposition_is_of_one_size_and_the_fewest(longest: tuple[int, int]) -> None:
    for width, height in product(range(1, 20, 2 if SMALL else 1), range(1, 11)):
        rectangle = Rectangle(3, 5, width, height)
        vcrs = decomposition(rectangle, longest, overlapped=True)
        assert set().union(*map(cells, vcrs)) == cells(rectangle)
        [(used_x, used_y)] = {(vcr.width, vcr.height) for vcr in vcrs}
        assert used_x <= longest[0] and (2 * used_x > width or used_x == longest[0])
        assert used_y <= longest[1] and (2 * used_y > height or used_y == longest[1])
        assert len(vcrs) == len(set(vcrs)) == -(-width // used_x) * -(-height // used_y)
        assert len(vcrs) <= len(decomposition(rectangle, longest, overlapped=False))


def test_storage_of_a_pointer_a_vcr_and_two_words_an_entry() -> None:
    assert storage_bytes(9 * 60_000, 1_000) == 4 * 9 * 60_000 + 8 * 1_000


def test_refusals() -> None:
    for size in (0, -2, 3, 12):
        for longest in ((size, 4), (4, size)):
            with pytest.raises(ValueError, match="power of two"):
                vcrs_a_cell(longest)
            with pytest.raises(ValueError, match="power of two"):
                decomposition(EXAMPLE, longest, overlapped=True)
    for width, height in ((3, 1), (1, 3), (8, 1), (1, 8), (0, 1)):
        with pytest.raises(ValueError, match="no VCR is"):
            vcr_id(Rectangle(0, 0, width, height), range_x=9, longest=(4, 4))
    for width, height in ((0, 1), (1, -1)):
        with pytest.raises(ValueError, match="empty"):
            decomposition(Rectangle(0, 0, width, height), (4, 4), overlapped=False)
