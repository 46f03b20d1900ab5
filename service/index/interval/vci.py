"""UI, SCI and LCI: virtual construct intervals for one attribute, after Wu, Chen and Yu.

Idea: define over the cells of the axis, once, virtual intervals of some lengths that begin at every cell: one
of unit length (UI), one of each length up to L (SCI), or one of each power of two up to L (LCI). A query
interval is decomposed into them, the longest first from the left, and filed in the ID list of each. Around
every cell lie the same virtual intervals, shifted, so one precomputed difference table and an addition name
them; their lists are the answer, without a comparison with any end. ``vci_kernels`` has decomposition and
search; ``vci_encoding`` shows labels and tables one by one.

LCI-BV(DT), the variant that the VCI paper measures as the best, puts a bit vector before the lists: most VCIs
around a value have no entry, and a bit tells so without a look at the list.

Where this departs from the papers:

* Ends are float64, not integers. Values are mapped to cells monotonely, the cells that a box covers whole go
  the papers' way, and the box is also listed directly under the (at most two) cells that its ends cut, where
  it is compared exactly (``cei_grid``). Where all ends fall on cell boundaries nothing is cut.
* Intervals are half-open, as in the CEI paper: a value on a border lies in those that begin there, not in
  those that end there. The VCI paper closes both ends and would name a query in both.
* The axis begins L - 1 cells before its first cell, so that the difference table needs no case for the left
  border, which the papers leave aside.
* The papers name the bit vector and do not say how it is made. Here the difference table is a mask that is
  laid over 32 bits at once, and counts of the bits before each word find the lists of the bits that are set:
  ids without an entry need no pointer.
* ID lists are slices of one array, made in one go (``filed``), in the order of the lower ends; the step of
  the grid and L are chosen from the boxes, with a bound on the entries a box (``vci_grid``).

Not for: ends that crowd in a small part of the axis (they share cells, and cut cells are compared box by
box), or widths of all magnitudes, for which one L is too short or too long.
"""

from __future__ import annotations

from collections.abc import Sequence

from service.index.filed import FiledIndex
from service.index.interval.vci_encoding import logarithmic_lengths, simple_lengths
from service.index.interval.vci_grid import fitted, require_step
from service.index.interval.vci_lists import VciFiling
from service.index.protocol import Bounds

MOST_LONGEST = 1024
"""The greatest L: beyond it, a search looks at thousands of lists."""
_SIMPLE_CHOICES = tuple(simple_lengths(longest) for longest in (1, 2, 4, 8))
_LOGARITHMIC_CHOICES = tuple(logarithmic_lengths(longest) for longest in (1, 2, 4, 8, 16, 32))


class _VirtualConstructs(FiledIndex):
    """What the three share: a set of lengths, or several to choose from, and a step or None to choose it."""

    def __init__(
        self, choices: Sequence[Sequence[int]], *, step: float | None, bit_vector: bool, tail_limit: int
    ) -> None:
        require_step(step)
        self._choices = choices
        self._step = step
        self._bit_vector = bit_vector
        super().__init__(1, tail_limit=tail_limit)

    def _file(self, lo: Bounds, hi: Bounds) -> VciFiling:
        fit = fitted(lo, hi, step=self._step, choices=self._choices)
        return VciFiling(fit, bit_vector=self._bit_vector)


class UI(_VirtualConstructs):
    """Unit intervals: a ``BoxIndex`` of one attribute; see ``protocol`` for what it takes and promises.

    ``step`` is the length of a cell: by default it follows from the boxes. ``tail_limit`` is the number of
    boxes that may wait unfiled, however few there are. ValueError on values out of range.

    For n boxes of w cells, m points and h hits: filing is O(n (w + log n)), a stab O(m (1 + cut + n / 64) + h
    log h), where cut is the number of ends in the cell of a point.
    """

    def __init__(self, *, step: float | None = None, tail_limit: int = 1024) -> None:
        super().__init__([simple_lengths(1)], step=step, bit_vector=False, tail_limit=tail_limit)


class SCI(_VirtualConstructs):
    """Simple construct intervals: a ``BoxIndex`` of one attribute, as ``UI``.

    ``longest`` is the paper's L, by default what takes the least storage, 8 at most. For n boxes of w cells,
    filing is O(n (L + w / L + log n)), a stab O(m (L**2 / 2 + cut + n / 64) + h log h).
    """

    def __init__(
        self, *, longest: int | None = None, step: float | None = None, tail_limit: int = 1024
    ) -> None:
        choices = _SIMPLE_CHOICES if longest is None else [simple_lengths(_within(longest))]
        super().__init__(choices, step=step, bit_vector=False, tail_limit=tail_limit)


class LCI(_VirtualConstructs):
    """Logarithmic construct intervals: a ``BoxIndex`` of one attribute, as ``UI``.

    ``longest`` is the paper's L = 2**k, by default what takes the least storage, 32 at most. ``bit_vector``
    makes it LCI-BV(DT). For n boxes of w cells, filing is O(n (k + w / L + log n)), a stab O(m (2 L + cut + n
    / 64) + h log h), with the bit vector L k / 32 in place of 2 L.
    """

    def __init__(
        self,
        *,
        longest: int | None = None,
        bit_vector: bool = True,
        step: float | None = None,
        tail_limit: int = 1024,
    ) -> None:
        choices = _LOGARITHMIC_CHOICES if longest is None else [logarithmic_lengths(_within(longest))]
        super().__init__(choices, step=step, bit_vector=bit_vector, tail_limit=tail_limit)


def _within(longest: int) -> int:
    if longest > MOST_LONGEST:
        raise ValueError(f"longest must be at most {MOST_LONGEST}, not {longest}")
    return longest
