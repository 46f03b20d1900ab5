"""VCR: virtual construct rectangles for two attributes, after Wu, Chen and Yu.

Idea: cut both attributes into cells and define, once, virtual rectangles that begin at every cell: of all
widths and heights that are powers of two, up to Lx by Ly. A box is decomposed into them and filed in the ID
list of each. Around every cell lie the same virtual rectangles, shifted, so the id of the pivot VCR of a
point and one precomputed distance table name them by additions; their ID lists are the answer. How much boxes
overlap matters through the size of the answer alone, unlike in an R-tree. ``vcr_kernels`` has labels and
decomposition, ``vcr_search_kernels`` search; ``vcr_encoding`` shows labels and tables one by one.

The papers' choices are parameters: simple decomposition (SD), which covers every cell once, or overlapped
decomposition (OD), with fewer and more often shared VCRs; ID lists in an array over all VCRs, or by VCR
hashing.

Where this departs from the papers:

* Ends are float64, not integers. Values are mapped to cells monotonely and ends rounded outwards, as the VCR
  paper proposes (Sect. 2). It checks every box that was found; here only an entry of a VCR that an end cuts
  is compared, and where all ends fall on cell boundaries nothing is: the papers' index. Filing the cells that
  are cut apart, instead of rounding, took 1.4 to 4 times the entries for L of 2 and 4 and was no faster.
* Rectangles are half-open: a point on a border is in those that begin there, not in those that end there. Of
  the two definitions of the pivot VCR, this makes the VCI paper's the one that fits.
* No case at the borders of the plane, which the papers leave aside (``vcr_kernels``).
* A third kind of ID lists, behind a bit vector, is the VCI paper's LCI-BV(DT) taken to two attributes. It is
  the default (``vcr_lists``).
* OD names a box several times; the papers report it so, here the answer names it once.
* Lists are slices of one array, made in one go (``filed``), and the hash table is made with them: what falls
  into one bucket lies together, so a collision costs a comparison and no pointer. Cells and L are chosen from
  the boxes unless given (``vcr_grid``).

Not for: boxes of all magnitudes, for which one L is too small or too large, or ends that crowd in a small
part of the plane (they share cells, and what is cut is compared box by box). Boxes that are long on both
axes, in cells, make the cells coarse.
"""

from __future__ import annotations

from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from service.index.box.vcr_grid import MOST_LONGEST, Steps, Wish, fitted
from service.index.box.vcr_lists import BYTES_AN_ID, Lists, VcrFiling
from service.index.filed import FiledIndex
from service.index.interval.vci_grid import require_step
from service.index.protocol import Bounds

_MOST_BUCKETS = 1 << 31
_BUCKETS_A_BOX = 10
"""As the VCR paper's experiments (Sect. 3.4)."""


class Decomposition(StrEnum):
    """How a box is cut into virtual construct rectangles."""

    SIMPLE = "simple"
    OVERLAPPED = "overlapped"


class VCR(FiledIndex):
    """A ``BoxIndex`` of two attributes; see ``protocol`` for what it takes, raises and promises.

    ``longest`` is the papers' (Lx, Ly), powers of two: by default what takes the least storage. ``step`` is
    the width and the height of a cell: by default they follow from the boxes; given ones are doubled where
    memory would not hold the plane. ``hash_size`` is the papers' H, of VCR hashing: by default a prime of ten
    times the number of boxes or more. ``tail_limit`` is the number of boxes that may wait unfiled, however
    few there are. ValueError on values out of range.

    For n boxes of w cells, m points and h hits: filing is O(n (w / (Lx Ly) + log n)), a stab O(m (C + cut + n
    / 64) + h log h), where C is ``(2 Lx - 1)(2 Ly - 1)``, with the bit vector ``Lx Ly B / 32``, and cut is
    the number of boxes with an end in a VCR around a point.
    """

    def __init__(
        self,
        *,
        decomposition: Decomposition = Decomposition.OVERLAPPED,
        lists: Lists = Lists.BITS,
        longest: tuple[int, int] | None = None,
        step: Steps | None = None,
        hash_size: int | None = None,
        tail_limit: int = 1024,
    ) -> None:
        for length in longest or ():
            if not (1 <= length <= MOST_LONGEST and length.bit_count() == 1):
                raise ValueError(f"longest must be powers of two up to {MOST_LONGEST}, not {longest}")
        for one in step or ():
            require_step(one)
        if hash_size is not None and not 1 <= hash_size < _MOST_BUCKETS:
            raise ValueError(f"hash_size must be within 1 and {_MOST_BUCKETS - 1}, not {hash_size}")
        self._overlapped = decomposition is Decomposition.OVERLAPPED
        self._lists = lists
        self._wish = Wish(step, longest, self._overlapped, BYTES_AN_ID[lists])
        self._hash_size = hash_size
        super().__init__(2, tail_limit=tail_limit)

    @property
    def filing(self) -> VcrFiling:
        """The structure that a stab would search now; what waits in the tail is not in it."""
        filing = self._snapshot.filing
        assert isinstance(filing, VcrFiling)
        return filing

    def _file(self, lo: Bounds, hi: Bounds) -> VcrFiling:
        fit = fitted(lo, hi, self._wish)
        size = self._hash_size or prime_from(min(_BUCKETS_A_BOX * len(lo), _MOST_BUCKETS - 1))
        return VcrFiling(fit, self._lists, overlapped=self._overlapped, hash_size=size)


def prime_from(least: int) -> int:
    """The smallest prime that is not below ``least``, nor below 2. O(sqrt(least) log(least)) or so."""
    candidate = max(least, 2)
    while candidate > 2 and not _is_prime(candidate):
        candidate += 1
    return candidate


def _is_prime(number: int) -> bool:
    divisors: NDArray[np.int64] = np.arange(2, int(number**0.5) + 1)
    return bool((number % divisors != 0).all())
