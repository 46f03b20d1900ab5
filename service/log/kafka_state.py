"""What the ``state`` topic holds of the partitions that a worker is about to take.

The topic is compacted: event partition n writes to state partition n modulo their number, under ``topic/n/``
before each key. So partitions of many sources share one of it. It is read once for all that wait; what is
asked later reads on from there, to the end that it has then.

Not for: positions, or who may take what (``kafka``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from service.log import topics
from service.log.port import Record, TopicPartition

Living = dict[bytes, bytes]
"""By key: the last value of each that has one."""


def head_of(partition: TopicPartition) -> bytes:
    """What comes before each key of an event partition."""
    return f"{partition.topic}/{partition.partition}/".encode()


@dataclass(slots=True)
class _Read:
    """``found``: by head, of those that were asked for when reading began; ``at``: where it goes on."""

    found: dict[bytes, Living]
    at: int = 0


class States:
    """``partitions`` of the topic; ``end``: the offset after the last record of one of them, committed or
    not; ``records``: the committed ones from an offset to another."""

    def __init__(
        self,
        partitions: Callable[[], int],
        end: Callable[[TopicPartition], int],
        records: Callable[[TopicPartition, int, int], Iterator[Record]],
    ) -> None:
        self._partitions = partitions
        self._end = end
        self._records = records
        self._reads: dict[TopicPartition, _Read] = {}

    def place_of(self, partition: TopicPartition) -> TopicPartition:
        """The partition of the topic that an event partition writes to."""
        return TopicPartition(topics.STATE, partition.partition % self._partitions())

    def living(self, partition: TopicPartition, waiting: Iterable[TopicPartition]) -> Living:
        """A copy of what is there now of one partition; it is read for all those that wait, too."""
        place, head = self.place_of(partition), head_of(partition)
        # Up to the last record of all, committed or not: a transaction whose position has been seen may
        # still be about to appear here.
        end = self._end(place)
        read = self._reads.get(place)
        if read is None or head not in read.found:
            heads = {head, *(head_of(one) for one in waiting if self.place_of(one) == place)}
            read = self._reads[place] = _Read({head: {} for head in heads})
        for record in self._records(place, read.at, end):
            _note(record, read.found)
        read.at = max(read.at, end)
        return dict(read.found[head])

    def drop(self, partition: TopicPartition) -> None:
        """Keeps nothing of a partition any more."""
        for place, read in list(self._reads.items()):
            read.found.pop(head_of(partition), None)
            if not read.found:
                del self._reads[place]

    def clear(self) -> None:
        self._reads.clear()


def _note(record: Record, found: dict[bytes, Living]) -> None:
    if record.key is None:
        return
    cut = record.key.find(b"/", record.key.find(b"/") + 1) + 1
    living, key = found.get(record.key[:cut]), record.key[cut:]
    if living is None:
        return
    if record.value is None:
        living.pop(key, None)
    else:
        living[key] = record.value
