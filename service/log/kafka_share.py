"""What a worker has of its group's partitions, whichever library tells: gained, lost, and not yet reported.

In a rebalance every partition is lost first and what is assigned then is gained, even if it is the same:
another worker may have had it in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from service.log.port import Assignment, LogFenced, TopicPartition


class Share:
    """``joined``: whether the group has dealt; ``membership``: the library's word for the generation that it
    has dealt for, or None. ``before_loss`` is called before partitions are lost."""

    def __init__(self, before_loss: Callable[[], None]) -> None:
        self._before_loss = before_loss
        self.owned: set[TopicPartition] = set()
        self.joined = True
        self.membership: Any = None
        self._gained: list[TopicPartition] = []
        self._lost: list[TopicPartition] = []

    def revoke(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        """The group deals anew; returns those partitions that were had until now."""
        self._before_loss()
        self.joined = False
        self.membership = None
        revoked = self.owned.intersection(partitions)
        self.owned -= revoked
        for partition in sorted(revoked):
            if partition in self._gained:  # nobody has heard of it yet
                self._gained.remove(partition)
            else:
                self._lost.append(partition)
        return revoked

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        self.joined = True
        gained = sorted(partitions)
        self.owned.update(gained)
        self._gained += gained

    @property
    def settled(self) -> bool:
        """Whether the group has dealt out what is subscribed to, and all of it has been reported."""
        return self.joined and not self.changed

    @property
    def changed(self) -> bool:
        """Whether there is something to ``take``."""
        return bool(self._gained or self._lost)

    def take(self) -> Assignment:
        """What has been gained and lost since the last call."""
        taken = Assignment(self._gained, self._lost)
        self._gained, self._lost = [], []
        return taken

    def check(self, partition: TopicPartition) -> None:
        """Raises LogFenced for a partition that is not had."""
        if partition not in self.owned:
            raise LogFenced(f"{partition.topic}/{partition.partition} has moved to another worker")
