"""The containment encoding: the paper's worked examples, and its properties and lemmas by exhaustion."""

from __future__ import annotations

from functools import cache

import pytest

from service.index.interval.cei_encoding import (
    best_partition,
    cei_count,
    closed_covering,
    closed_decomposition,
    covering,
    decomposition,
    global_id,
    mean_entries,
    parent,
    point_id,
)

LENGTHS = (1, 2, 4, 8, 16)


def cells_of_id(id: int, length: int) -> range:
    """The cells of a CEI, from the picture of the tree: its level says how long, its place in it where."""
    segment, local = divmod(id, 2 * length)
    level = local.bit_length() - 1
    size = length >> level
    first = segment * length + (local - 2**level) * size
    return range(first, first + size)


def test_six_units_from_8_are_the_ceis_2_and_6() -> None:
    """Section 3.2: L = 8, the unit CEIs 8 to 13."""
    assert best_partition(8, 14, 8) == [2, 6]


def test_the_remnant_from_11_to_15_is_three_ceis() -> None:
    """Section 3.2: L = 8, an odd start and an odd end."""
    assert best_partition(11, 15, 8) == [11, 6, 14]


def test_labels_of_figure_4() -> None:
    """L = 8: one CEI of length 8 is 1, the halves are 2 and 3, the units are 8 to 15."""
    assert [covering(cell, 8)[0] for cell in range(8)] == list(range(8, 16))
    assert covering(5, 8) == [13, 6, 3, 1]
    assert covering(8 + 5, 8) == [16 + 13, 16 + 6, 16 + 3, 16 + 1]
    assert global_id(13, 1, 8) == 29
    assert parent(13) == 6
    assert parent(1) == 0


def test_queries_of_figure_10() -> None:
    """L = 4, in a segment with the CEIs 1 to 7: what each query is filed under, and what a search finds."""
    filed = {
        "Q1": decomposition(0, 4, 4),
        "Q2": decomposition(1, 3, 4),
        "Q3": decomposition(1, 4, 4),
        "Q4": decomposition(0, 2, 4),
    }
    assert filed == {"Q1": [1], "Q2": [5, 6], "Q3": [5, 3], "Q4": [2]}

    def found(cell: int) -> set[str]:
        return {query for query, ids in filed.items() if set(ids) & set(covering(cell, 4))}

    assert covering(1, 4) == [5, 2, 1]
    assert found(1) == {"Q1", "Q2", "Q3", "Q4"}
    assert found(3) == {"Q1", "Q3"}


def test_guiding_posts_cut_off_the_remnants() -> None:
    """L = 8, cells 5 to 25: a remnant before the post 8, two whole segments, a remnant behind the post 24."""
    assert decomposition(5, 26, 8) == [13, 7, 17, 33, 48 + 4]


@pytest.mark.parametrize("length", LENGTHS)
def test_a_cell_lies_in_one_cei_of_each_level(length: int) -> None:
    k = length.bit_length() - 1
    for cell in range(3 * length):
        ids = covering(cell, length)
        assert len(set(ids)) == k + 1
        assert [len(cells_of_id(id, length)) for id in ids] == [2**level for level in range(k + 1)]
        assert all(cell in cells_of_id(id, length) for id in ids)
        locals_ = [id % (2 * length) for id in ids]
        assert [parent(local) for local in locals_] == [*locals_[1:], 0]


@pytest.mark.parametrize("length", LENGTHS)
def test_decompositions_are_the_fewest_and_the_only_fewest(length: int) -> None:
    """Theorem 1 and Lemma 2: against all ways to tile an interval with CEIs."""
    cells = 2 * length
    by_first: dict[int, list[int]] = {}
    for id in range(1, 2 * cells):
        if id % (2 * length):
            by_first.setdefault(cells_of_id(id, length).start, []).append(len(cells_of_id(id, length)))

    @cache
    def fewest(a: int, b: int) -> tuple[int, int]:
        """The least number of tiles, and in how many ways."""
        if a == b:
            return 0, 1
        tails = [fewest(a + size, b) for size in by_first[a] if a + size <= b]
        least = min(count for count, _ in tails)
        return least + 1, sum(ways for count, ways in tails if count == least)

    for a in range(cells):
        for b in range(a, cells + 1):
            ids = decomposition(a, b, length)
            assert [cell for id in ids for cell in cells_of_id(id, length)] == list(range(a, b))
            assert fewest(a, b) == (len(ids), 1)


@pytest.mark.parametrize("length", LENGTHS)
def test_lemma_3(length: int) -> None:
    """An interval shorter than L with an end on a guiding post is as many CEIs as its width has ones."""
    for width in range(1, length):
        for post in (length, 2 * length):
            assert len(decomposition(post, post + width, length)) == width.bit_count()
            assert len(decomposition(post - width, post, length)) == width.bit_count()


@pytest.mark.parametrize("length", LENGTHS)
def test_search_meets_a_query_once_or_never(length: int) -> None:
    for a in range(3 * length):
        for b in range(a + 1, 3 * length + 1):
            filed = decomposition(a, b, length)
            for cell in range(3 * length):
                met = set(filed) & set(covering(cell, length))
                assert len(met) == (a <= cell < b)


def test_queries_of_figure_10_with_both_ends() -> None:
    """L = 4, one segment: where a query ends it is found by the point CEI, before by the intervals."""
    assert closed_decomposition(0, 3, 4, 4) == [2, 6, 8 + 3]
    assert closed_decomposition(2, 2, 4, 4) == [8 + 2], "a point is filed as that alone"
    assert closed_covering(3, 4, 4) == [7, 3, 1, 8 + 3]


@pytest.mark.parametrize("length", LENGTHS)
def test_search_meets_a_query_with_both_ends_once_or_never(length: int) -> None:
    cells = 3 * length
    intervals = {id for cell in range(cells) for id in covering(cell, length)}
    points = {point_id(value, cells) for value in range(cells)}
    assert len(points) == cells and not points & intervals
    for a in range(cells):
        for b in range(a, cells):
            filed = closed_decomposition(a, b, length, cells)
            for value in range(cells):
                met = set(filed) & set(closed_covering(value, length, cells))
                assert len(met) == (a <= value <= b)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("segments", [1, 2, 3, 5])
def test_mean_entries_is_the_mean(length: int, segments: int) -> None:
    """The closed form against a count over all places within a segment and all widths up to W."""
    widest = segments * length
    counts = [
        len(decomposition(place, place + width, length))
        for place in range(length)
        for width in range(1, widest + 1)
    ]
    assert mean_entries(length, widest) == sum(counts) / len(counts)


@pytest.mark.parametrize("length", LENGTHS)
def test_number_of_ceis(length: int) -> None:
    ids = {id for cell in range(3 * length) for id in covering(cell, length)}
    assert cei_count(3 * length, length) == len(ids)


def test_refusals() -> None:
    for length in (0, -2, 3, 12):
        for call in (
            lambda length=length: global_id(1, 1, length),
            lambda length=length: decomposition(0, 1, length),
            lambda length=length: mean_entries(length, 12),
            lambda length=length: cei_count(12, length),
        ):
            with pytest.raises(ValueError, match="power of two"):
                call()
    with pytest.raises(ValueError, match="not within"):
        best_partition(7, 9, 8)
    with pytest.raises(ValueError, match="not within"):
        best_partition(9, 17, 8)
    for value in (-1, 8):
        with pytest.raises(ValueError, match="not within"):
            point_id(value, 8)
    with pytest.raises(ValueError, match="multiple of 8"):
        mean_entries(8, 12)
