"""What is counted of the members of one query: how many there are, and sums and extremes of attributes.

Idea: kept as members come, change and go, and yet exactly what a count from scratch would give. Sums are
whole numbers of the smallest step of a float64, 2^-1074: adding and taking away loses nothing, and one
rounding at the end gives the float64 nearest to the true sum, as ``math.fsum`` does. The average is the
nearest to the true quotient. Extremes are heaps from which what has gone is dropped when it comes up.

A member without an attribute counts as a member, and for nothing else.

Not for: when anybody is told (``aggregates``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush
from operator import itemgetter
from typing import NamedTuple

from service.model import MISSING

_FRACTION_BITS = 1074
_ONE = 1 << _FRACTION_BITS

_MANY_GONE = 64
"""A heap is made anew when it holds so many entries more than twice the values that there are."""


class Numbers(NamedTuple):
    """Of one attribute: ``n`` members have it. Without any, ``sum`` is 0 and the others are None; a sum
    beyond float64 is None."""

    n: int
    sum: float | None
    min: float | None
    max: float | None
    avg: float | None


class Content(NamedTuple):
    """What there is to tell of a query: its members, and the numbers of each attribute by name."""

    members: int
    of: dict[str, Numbers]


def empty(names: Iterable[str]) -> Content:
    """The content without members."""
    return Content(0, {name: Numbers(0, 0.0, None, None, None) for name in names})


class _Heap:
    """The smallest ``sign * value`` of the rows of one attribute."""

    __slots__ = ("_entries", "_sign")

    def __init__(self, sign: int) -> None:
        self._sign = sign
        self._entries: list[tuple[float, int]] = []

    def push(self, row: int, value: float) -> None:
        heappush(self._entries, (self._sign * value, row))

    def first(self, values: dict[int, float]) -> float | None:
        """The first value that is still the one of its row. Amortised O(log n)."""
        if len(self._entries) > 2 * len(values) + _MANY_GONE:
            self._entries = [(self._sign * value, row) for row, value in values.items()]
            heapify(self._entries)
        entries = self._entries
        while entries:
            value, row = entries[0]
            if values.get(row) == self._sign * value:
                return self._sign * value + 0.0
            heappop(entries)
        return None


class Column:
    """One attribute of the members that have it."""

    __slots__ = ("_high", "_low", "total", "values")

    def __init__(self) -> None:
        self.values: dict[int, float] = {}
        #: The sum in steps of 2^-1074.
        self.total = 0
        self._low, self._high = _Heap(1), _Heap(-1)

    def put(self, row: int, value: float) -> None:
        """Makes this the value of a row, MISSING for none. O(log n)."""
        before = self.values.pop(row, MISSING)
        if before != MISSING:
            self.total -= _steps(before)
        if value == MISSING:
            return
        self.total += _steps(value)
        self.values[row] = value
        self._low.push(row, value)
        self._high.push(row, value)

    @property
    def low(self) -> float | None:
        return self._low.first(self.values)

    @property
    def high(self) -> float | None:
        return self._high.first(self.values)


class Tally:
    """The members of one query by row, with the attributes ``names`` that lie in ``columns`` of a point.

    What a member's values are is noted when they change; they are counted when somebody asks."""

    def __init__(self, names: Sequence[str], columns: Sequence[int]) -> None:
        self.names = tuple(names)
        self.members: dict[int, tuple[float, ...]] = {}
        self._of = tuple(Column() for _ in names)
        self._changed: set[int] = set()
        self.recolumn(columns)

    def recolumn(self, columns: Sequence[int]) -> None:
        """The attributes lie in these columns from now on."""
        self._picked = _picker(tuple(columns))

    def put(self, row: int, point: Sequence[float]) -> bool:
        """A member is at a point. Returns whether anything is other than it was. O(attributes)."""
        values = self._picked(point)
        if self.members.get(row) == values:
            return False
        self.members[row] = values
        self._changed.add(row)
        return True

    def drop(self, row: int) -> None:
        """A member is none any more. O(1)."""
        del self.members[row]
        self._changed.add(row)

    def columns(self) -> tuple[Column, ...]:
        """One an attribute, with all that has changed. O(changed rows x attributes log n)."""
        gone = (MISSING,) * len(self._of)
        for row in self._changed:
            for column, value in zip(self._of, self.members.get(row, gone), strict=True):
                column.put(row, value)
        self._changed.clear()
        return self._of

    def content(self) -> Content:
        """What there is to tell."""
        return together([self])


def _picker(columns: tuple[int, ...]) -> Callable[[Sequence[float]], tuple[float, ...]]:
    """Takes the values of some columns of a point."""
    if len(columns) > 1:
        return itemgetter(*columns)
    return lambda point: tuple([point[column] for column in columns])


def together(tallies: Sequence[Tally]) -> Content:
    """The content of a query from its tallies in several partitions, at least one, all of the same names."""
    columns = zip(*(tally.columns() for tally in tallies), strict=True)
    return Content(
        sum(len(tally.members) for tally in tallies),
        {name: _numbers(found) for name, found in zip(tallies[0].names, columns, strict=True)},
    )


def _numbers(columns: Sequence[Column]) -> Numbers:
    """The numbers of the members of several columns, which share none."""
    n = sum(len(column.values) for column in columns)
    if not n:
        return Numbers(0, 0.0, None, None, None)
    total = sum(column.total for column in columns)
    lows = [low for column in columns if (low := column.low) is not None]
    highs = [high for column in columns if (high := column.high) is not None]
    return Numbers(n, _rounded(total), min(lows), max(highs), total / (n * _ONE))


def _steps(value: float) -> int:
    """A finite float64 in steps of 2^-1074: exact."""
    numerator, denominator = value.as_integer_ratio()
    return numerator << (_FRACTION_BITS + 1 - denominator.bit_length())


def _rounded(total: int) -> float | None:
    try:
        return total / _ONE
    except OverflowError:
        return None
