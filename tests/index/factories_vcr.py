"""VCR in its kinds, that the contract suite runs against."""

from __future__ import annotations

from service.index.box.vcr import VCR, Decomposition
from service.index.box.vcr_lists import Lists
from tests.index.worlds import Factory

SIMPLE = Decomposition.SIMPLE

FACTORIES = (
    # Everything is filed at once, on a plane chosen from the boxes: no tail.
    Factory("vcr-filed", 2, lambda: VCR(tail_limit=0)),
    Factory("vcr-array-filed", 2, lambda: VCR(lists=Lists.ARRAY, tail_limit=0)),
    Factory("vcr-hashed-filed", 2, lambda: VCR(lists=Lists.HASHED, tail_limit=0)),
    # As on the papers' plane: whole numbers cut nothing. Boxes are wider and narrower than L.
    Factory(
        "vcr-simple-of-8",
        2,
        lambda: VCR(decomposition=SIMPLE, lists=Lists.ARRAY, longest=(8, 16), step=(1.0, 1.0), tail_limit=0),
    ),
    Factory("vcr-bits-of-16", 2, lambda: VCR(longest=(16, 8), step=(1.0, 1.0), tail_limit=0)),
    # A hash table with collisions everywhere, and a tail beside the lists.
    Factory(
        "vcr-hashed-crowded",
        2,
        lambda: VCR(lists=Lists.HASHED, hash_size=3, longest=(2, 8), step=(8.0, 2.0), tail_limit=8),
    ),
    # Steps that fit nothing, so that every end cuts a cell.
    Factory(
        "vcr-coarse", 2, lambda: VCR(decomposition=SIMPLE, longest=(2, 1), step=(2.7, 9.3), tail_limit=2)
    ),
)
