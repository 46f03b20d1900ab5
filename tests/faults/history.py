"""What really happened, read from the broker alone: events, commands, outputs, and every committed position.

The group's own topic has each commit of each partition: the next event offset, and as its metadata the next
command offset. So the order of events and commands in a partition is known exactly, however many workers have
died in between: a step applies commands first, then events.
"""

from __future__ import annotations

import struct
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

from kafka import KafkaAdminClient, KafkaConsumer
from kafka import TopicPartition as ClusterPartition
from kafka.admin import OffsetSpec

from service.log.port import Position, Record, TopicPartition

_OFFSETS = "__consumer_offsets"
WITHIN_S = 60.0


class Read(NamedTuple):
    """A committed record of a topic, and the partition that it lies in."""

    partition: int
    record: Record


class Broker:
    """Reads one service's topics (those behind ``prefix``)."""

    def __init__(self, address: str, prefix: str) -> None:
        self._address = address
        self._prefix = prefix

    def read(self, topic: str) -> list[Read]:
        """All committed records, partition by partition. Waits for open transactions to end."""
        return list(self._all(self._prefix + topic))

    def ends(self, topic: str) -> dict[int, int]:
        """The offset after the last record of each partition, committed or not."""
        return {partition.partition: end for partition, end in self._ends(self._prefix + topic).items()}

    def committed(self, topic: str, group: str) -> dict[int, Position]:
        """The position of each partition of an event topic as the group has it now."""
        with self.admin() as admin:
            return self.committed_by(admin, topic, group)

    def admin(self) -> closing[KafkaAdminClient]:
        return closing(KafkaAdminClient(bootstrap_servers=self._address))

    def committed_by(self, admin: KafkaAdminClient, topic: str, group: str) -> dict[int, Position]:
        """The same, by a client that is there already."""
        found = admin.list_group_offsets(group)
        offsets = found.get(group, found)
        return {
            partition.partition: Position(at.offset, _noted(at.metadata))
            for partition, at in offsets.items()
            if partition.topic == self._prefix + topic and at.offset >= 0
        }

    def positions(self, group: str) -> dict[TopicPartition, list[Position]]:
        """Every position that the group has ever committed, in order."""
        found: dict[TopicPartition, list[Position]] = defaultdict(list)
        for _, record in self._all(_OFFSETS):
            place = _key(record.key or b"")
            if place is not None and place[0] == group and record.value is not None:
                topic = place[1].removeprefix(self._prefix)
                found[TopicPartition(topic, place[2])].append(_position(record.value))
        return dict(found)

    def _ends(self, topic: str) -> dict[ClusterPartition, int]:
        with self.admin() as admin:
            (found,) = admin.describe_topics([topic])
            partitions = [ClusterPartition(topic, number) for number in range(len(found["partitions"]))]
            ends = admin.list_partition_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
        return {partition: ends[partition].offset for partition in partitions}

    def _all(self, topic: str) -> Iterator[Read]:
        ends = self._ends(topic)
        consumer = KafkaConsumer(
            bootstrap_servers=self._address,
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        with closing(consumer):
            for partition, end in ends.items():
                consumer.assign([partition])
                consumer.seek(partition, 0)
                deadline = time.monotonic() + WITHIN_S
                while (consumer.position(partition) or 0) < end:
                    assert time.monotonic() < deadline, f"{partition} cannot be read to its end"
                    for one in consumer.poll(timeout_ms=50).get(partition, ()):
                        if one.offset < end:
                            record = Record(one.offset, one.timestamp, one.key, one.value)
                            yield Read(partition.partition, record)


def _text(raw: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">h", raw, at)
    return raw[at + 2 : at + 2 + length].decode(), at + 2 + length


def _key(raw: bytes) -> tuple[str, str, int] | None:
    """Group, topic and partition of a committed offset; None for a record of another kind."""
    (version,) = struct.unpack_from(">h", raw)
    if version > 1:
        return None
    group, at = _text(raw, 2)
    topic, at = _text(raw, at)
    (partition,) = struct.unpack_from(">i", raw, at)
    return group, topic, partition


def _noted(metadata: str) -> int:
    """The command offset beside an event offset, as either library writes it."""
    return int(metadata.removesuffix("\0"))


def _position(raw: bytes) -> Position:
    version, offset = struct.unpack_from(">hq", raw)
    if version == 3:
        return Position(offset, _noted(_text(raw, 14)[0]))
    assert version == 4, f"the broker writes committed offsets in version {version}"
    length = raw[14] - 1  # a "compact" text: one more than its length, here always in one byte
    return Position(offset, _noted(raw[15 : 15 + length].decode()))
