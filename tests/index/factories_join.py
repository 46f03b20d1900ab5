"""Spatial Join as the contract suite runs it."""

from __future__ import annotations

from service.index.box.spatial_join import Mode, SpatialJoin
from tests.index.worlds import Factory

FACTORIES = (
    Factory("join-1d", 1, lambda: SpatialJoin(1)),
    # Everything is filed at once, and small clusters of points even for a batch of one: no tail.
    Factory("join-clusters-of-2", 1, lambda: SpatialJoin(1, cluster_size=2, tail_limit=0)),
    Factory("join-2d", 2, lambda: SpatialJoin(2, tail_limit=0)),
    # A cluster that is no power of two, and spans words, with some boxes filed and some waiting.
    Factory("join-clusters-of-70", 2, lambda: SpatialJoin(2, cluster_size=70, tail_limit=8)),
    Factory("join-clusters-of-3", 3, lambda: SpatialJoin(3, cluster_size=3, tail_limit=0)),
    Factory("join-immediate", 3, lambda: SpatialJoin(3, mode=Mode.IMMEDIATE, tail_limit=0)),
    Factory("join-5d", 5, lambda: SpatialJoin(5, cluster_size=16, tail_limit=2)),
)
