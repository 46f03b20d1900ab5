"""The structures by virtual construct intervals, and direct listing, that the contract suite runs against."""

from __future__ import annotations

from service.index.interval.dlist import DList
from service.index.interval.vci import LCI, SCI, UI
from tests.index.worlds import Factory

FACTORIES = (
    # Everything is filed at once, on a grid chosen from the boxes: no tail.
    Factory("ui-filed", 1, lambda: UI(tail_limit=0)),
    Factory("sci-filed", 1, lambda: SCI(tail_limit=0)),
    Factory("lci-filed", 1, lambda: LCI(bit_vector=False, tail_limit=0)),
    Factory("lci-bits-filed", 1, lambda: LCI(tail_limit=0)),
    Factory("dlist-filed", 1, lambda: DList(tail_limit=0)),
    # As on the paper's axis: whole numbers cut nothing; L is 4, so that boxes are longer and shorter.
    Factory("sci-of-4", 1, lambda: SCI(longest=4, step=1.0, tail_limit=0)),
    Factory("lci-of-4", 1, lambda: LCI(longest=4, bit_vector=False, step=1.0, tail_limit=0)),
    # A difference table of several words.
    Factory("lci-bits-of-64", 1, lambda: LCI(longest=64, step=1.0, tail_limit=0)),
    # Steps that fit nothing, so that every end cuts a cell, and a tail beside the lists.
    Factory("ui-coarse", 1, lambda: UI(step=0.7, tail_limit=8)),
    Factory("sci-coarse", 1, lambda: SCI(longest=3, step=0.7, tail_limit=8)),
    Factory("lci-bits-coarse", 1, lambda: LCI(longest=2, step=0.7, tail_limit=8)),
    Factory("dlist-coarse", 1, lambda: DList(step=3.0, tail_limit=2)),
)
