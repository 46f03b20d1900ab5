"""The baselines of the papers, for the contract suite."""

from __future__ import annotations

from service.index.border.diff_rmq import DiffRMQ
from service.index.box.ibs_attributes import IBSAttributes
from service.index.box.rtree import RTree
from service.index.default.mixed import DefaultIndex
from service.index.interval.cei import CEI
from service.index.interval.ibs_tree import IBSTree
from service.index.interval.is_list import ISList
from tests.index.worlds import Factory

FACTORIES = (
    Factory("ibs-tree", 1, lambda: IBSTree()),
    Factory("is-list", 1, lambda: ISList()),
    # Low towers, and high ones.
    Factory("is-list-low", 1, lambda: ISList(share=0.1, seed=1)),
    Factory("is-list-high", 1, lambda: ISList(share=0.75, seed=2)),
    Factory("ibs-attributes-1d", 1, lambda: IBSAttributes(1)),
    Factory("ibs-attributes-2d", 2, lambda: IBSAttributes(2)),
    Factory("ibs-attributes-5d", 5, lambda: IBSAttributes(5)),
    Factory("rtree-1d", 1, lambda: RTree(1)),
    # Small nodes, so that they split on tiny inputs.
    Factory("rtree-2d", 2, lambda: RTree(2, capacity=4)),
    Factory("rtree-3d", 3, lambda: RTree(3)),
    Factory("diff-rmq-cei", 1, lambda: DiffRMQ(CEI())),
    Factory("diff-rmq-is-list", 1, lambda: DiffRMQ(ISList())),
    # An index that does not sort the slots of a row.
    Factory("diff-rmq-default", 1, lambda: DiffRMQ(DefaultIndex(1, delta=3))),
)
