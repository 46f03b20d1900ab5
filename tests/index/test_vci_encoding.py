"""Labels of virtual construct intervals: the papers' numbers, and their statements by exhaustion."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from service.index.interval.vci_encoding import (
    decomposition,
    difference_table,
    least_covering_id,
    logarithmic_lengths,
    mean_entries,
    simple_lengths,
    storage_bytes,
    vci_count,
    vci_id,
)

SETS = (
    simple_lengths(1),
    simple_lengths(3),
    simple_lengths(4),
    logarithmic_lengths(2),
    logarithmic_lengths(4),
    logarithmic_lengths(16),
)


def slow_decomposition(a: int, b: int, lengths: Sequence[int]) -> list[tuple[int, int]]:
    """The slow twin of ``decompose``: cut off the longest interval that fits, and go on with the rest."""
    if a >= b:
        return []
    longest = max(length for length in lengths if a + length <= b)
    return [(a, a + longest), *slow_decomposition(a + longest, b, lengths)]


def around(j: int, lengths: Sequence[int], *, closed: bool) -> list[int]:
    """The ids of all intervals around a cell, or around a value with both ends closed, by looking at all."""
    return sorted(
        vci_id(a, a + length, lengths)
        for a in range(j - 2 * lengths[-1], j + 2)
        for length in lengths
        if (a <= j <= a + length if closed else a <= j < a + length)
    )


def test_labels_of_figure_2() -> None:
    """SCI, L = 4: the four intervals that begin at a0 + j are jL to (j + 1)L - 1, the shortest first."""
    lengths = simple_lengths(4)
    for a0 in (0, 7):
        for j in range(5):
            ids = [vci_id(a0 + j, a0 + j + length, lengths, origin=a0) for length in lengths]
            assert ids == [4 * j, 4 * j + 1, 4 * j + 2, 4 * j + 3]


def test_labels_of_figure_3() -> None:
    """LCI, L = 4 and k = 2: the three intervals that begin at a0 + j are 3j, 3j + 1 and 3j + 2."""
    lengths = logarithmic_lengths(4)
    assert lengths == (1, 2, 4)
    assert [vci_id(0, 1, lengths), vci_id(0, 2, lengths), vci_id(0, 4, lengths)] == [0, 1, 2]
    assert [vci_id(a, a + 2, lengths) for a in range(4)] == [1, 4, 7, 10]


def test_a_remnant_of_7_takes_three_logarithmic_intervals_or_one_simple() -> None:
    """VCI paper, Section 2.3, L = 16. Its lengths "1, 2 and 3" do not add up to 7: they are 4, 2 and 1."""
    logarithmic = decomposition(0, 7, logarithmic_lengths(16))
    assert [b - a for a, b in logarithmic] == [4, 2, 1]
    assert decomposition(0, 7, simple_lengths(16)) == [(0, 7)]
    assert len(decomposition(0, 16 + 16 + 7, logarithmic_lengths(16))) == 2 + 3


def test_the_number_of_longest_intervals() -> None:
    """Section 2.3 counts ceil((y - x - 1) / L) of them and then a remnant shorter than L. Its own process
    cuts floor((y - x) / L): for a length of L + 2 the former gives two, which is longer than the query."""
    for lengths in SETS:
        longest = lengths[-1]
        for width in range(1, 5 * longest + 1):
            pieces = decomposition(0, width, lengths)
            whole = [b - a for a, b in pieces].count(longest)
            assert whole == width // longest
            assert sum(b - a for a, b in pieces) - whole * longest < longest


@pytest.mark.parametrize("lengths", SETS, ids=str)
def test_decomposition_is_a_partition_from_the_left(lengths: tuple[int, ...]) -> None:
    for a in (0, 1, 5):
        for b in range(a, a + 5 * lengths[-1] + 2):
            assert decomposition(a, b, lengths) == slow_decomposition(a, b, lengths)


@pytest.mark.parametrize("length", [1, 2, 4, 16])
def test_a_simple_remnant_takes_one_interval_a_logarithmic_one_its_ones(length: int) -> None:
    for width in range(1, length):
        assert len(decomposition(3, 3 + width, simple_lengths(length))) == 1
        assert len(decomposition(3, 3 + width, logarithmic_lengths(length))) == width.bit_count()


@pytest.mark.parametrize("k", range(5))
def test_least_covering_ids_of_section_2_4(k: int) -> None:
    """V_j^min, both ends closed: (j - L) L + L - 1 for SCI, (j - L)(k + 1) + k for LCI."""
    longest = 2**k
    for j in range(longest, 3 * longest + 1):
        simple = least_covering_id(j, simple_lengths(longest), closed=True)
        assert simple == (j - longest) * longest + longest - 1
        logarithmic = least_covering_id(j, logarithmic_lengths(longest), closed=True)
        assert logarithmic == (j - longest) * (k + 1) + k
        # The pivot of a value between j and j + 1 begins at j + 1 - L.
        assert least_covering_id(j, simple_lengths(longest)) == (j + 1 - longest) * longest + longest - 1


def test_difference_tables_by_hand() -> None:
    """L = 2, so B = 2: around cell j lie [j-1, j+1), [j, j+1) and [j, j+2), of the ids 2j - 1, 2j, 2j + 1."""
    assert difference_table(logarithmic_lengths(2)) == difference_table(simple_lengths(2)) == [0, 1, 2]
    assert difference_table(simple_lengths(1)) == [0]
    assert difference_table(simple_lengths(1), closed=True) == [0, 1]
    # L = 4, B = 3: from j-3 the length 4; from j-2 it; from j-1 the lengths 2, 4; from j all three.
    assert difference_table(logarithmic_lengths(4)) == [0, 3, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("lengths", SETS, ids=str)
def test_one_difference_table_serves_every_value(lengths: tuple[int, ...], closed: bool) -> None:
    table = difference_table(lengths, closed=closed)
    for j in range(lengths[-1], 4 * lengths[-1]):
        least = least_covering_id(j, lengths, closed=closed)
        assert [least + difference for difference in table] == around(j, lengths, closed=closed)


@pytest.mark.parametrize("length", [1, 2, 4, 8, 16])
def test_counts_of_table_1(length: int) -> None:
    """CEI paper, Table 1: N and C. A closed interval covers one whole number more."""
    k = length.bit_length() - 1
    simple, logarithmic = simple_lengths(length), logarithmic_lengths(length)
    assert vci_count(5000, simple_lengths(1)) == 5000
    assert vci_count(5000, simple) == 5000 * length
    assert vci_count(5000, logarithmic) == 5000 * (1 + k)
    assert len(difference_table(simple)) == length * (length + 1) // 2
    assert len(difference_table(logarithmic)) == 2 * length - 1
    assert len(difference_table(logarithmic, closed=True)) == 2 * length - 1 + k + 1


@pytest.mark.parametrize("lengths", SETS, ids=str)
@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_mean_entries_is_the_mean(lengths: tuple[int, ...], rounds: int) -> None:
    """The closed form (CEI paper, Section 4, Lemma 8 and Table 2) against a count over all widths."""
    widest = rounds * lengths[-1]
    counts = [len(decomposition(0, width, lengths)) for width in range(1, widest + 1)]
    assert mean_entries(lengths, widest) == sum(counts) / widest


def test_closed_forms_of_section_4() -> None:
    """Unit intervals: (1 + W) / 2. Lemma 8, L = 16: T(0, L] = 1 + 16 * 4 / 2. Storage: 4 N + 8 n delta."""
    assert mean_entries(simple_lengths(1), 200) == 100.5
    assert mean_entries(logarithmic_lengths(16), 16) == 33 / 16
    assert storage_bytes(5000, 1000, 100.5) == 4 * 5000 + 8 * 100_500


def test_refusals() -> None:
    for longest in (0, -1):
        with pytest.raises(ValueError, match="at least one cell"):
            simple_lengths(longest)
    for longest in (0, -2, 3, 12):
        with pytest.raises(ValueError, match="power of two"):
            logarithmic_lengths(longest)
    with pytest.raises(ValueError, match="length 3"):
        vci_id(0, 3, logarithmic_lengths(4))
    for widest in (0, 7):
        with pytest.raises(ValueError, match="multiple of 4"):
            mean_entries(simple_lengths(4), widest)
