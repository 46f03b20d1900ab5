"""Where a log keeps what it is given: one shape for both adapters, so that one suite can judge them.

A site outlives the logs that are opened on it. The helpers below poll until a deadline; nothing sleeps.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

from kafka import KafkaAdminClient, KafkaConsumer
from kafka import TopicPartition as ClusterPartition
from kafka.admin import OffsetSpec

from service.log.clock import now_ms
from service.log.kafka import KafkaLog
from service.log.kafka_library import KAFKA_PYTHON
from service.log.port import Chunk, Log, LogUnavailable, Record, TopicPartition
from service.log.sqlite import SqliteLog

#: What the logs of the suite allow in one message.
LIMIT_BYTES = 100_000
#: More than either log lets through, whatever it adds to its limit.
TOO_LARGE = bytes(LIMIT_BYTES + (1 << 17))
WITHIN_S = 30.0

_numbers = itertools.count()


class Site(Protocol):
    partitions: int

    def log(self, worker: str = "worker", *, clock_ms: Callable[[], int] = now_ms) -> Log:
        """A log on this site, not opened yet."""

    def outputs(self, topic: str) -> list[tuple[bytes | None, bytes | None]]:
        """Key and value of all that consumers of an output topic can see, partition by partition."""

    def trim(self, log: Log, partition: TopicPartition, before: int) -> None:
        """Removes the events below an offset, as retention does."""


class SqliteSite:
    partitions = 1

    def __init__(self, path: Path) -> None:
        self.path = path
        self._log: SqliteLog | None = None

    def log(self, worker: str = "worker", *, clock_ms: Callable[[], int] = now_ms) -> SqliteLog:
        self._log = SqliteLog(self.path, max_message_bytes=LIMIT_BYTES, clock_ms=clock_ms)
        return self._log

    def outputs(self, topic: str) -> list[tuple[bytes | None, bytes | None]]:
        assert self._log is not None
        found, after = [], 0
        while records := self._log.read(topic, after=after, limit=100)[0]:
            found += [(record.key, record.value) for record in records]
            after = records[-1].offset + 1
        return found

    def trim(self, log: Log, partition: TopicPartition, before: int) -> None:
        assert isinstance(log, SqliteLog)
        log.trim(partition.topic, before)


class KafkaSite:
    partitions = 2

    def __init__(self, bootstrap: str, *, client: str = KAFKA_PYTHON, timeout_s: float = 20.0) -> None:
        self.bootstrap = bootstrap
        self.client = client
        self.prefix = f"log-{os.getpid()}-{next(_numbers)}."
        self.group = self.prefix + "group"
        self._timeout_s = timeout_s

    def log(self, worker: str = "worker", *, clock_ms: Callable[[], int] = now_ms) -> KafkaLog:
        return KafkaLog(
            self.bootstrap,
            transactional_id=self.prefix + worker,
            group=self.group,
            topic_prefix=self.prefix,
            partitions=self.partitions,
            max_message_bytes=LIMIT_BYTES,
            timeout_s=self._timeout_s,
            client=self.client,
            clock_ms=clock_ms,
        )

    def outputs(self, topic: str) -> list[tuple[bytes | None, bytes | None]]:
        found: list[tuple[bytes | None, bytes | None]] = []
        for number in range(self.partitions):
            found += [
                (one.key, one.value) for one in self._read(ClusterPartition(self.prefix + topic, number))
            ]
        return found

    def _read(self, partition: ClusterPartition) -> Iterator[Any]:
        with closing(self.admin()) as admin:  # a commit is not visible to others at once, but it is written
            end = admin.list_partition_offsets({partition: OffsetSpec.LATEST})[partition].offset
        with closing(self.consumer()) as consumer:
            consumer.assign([partition])
            consumer.seek(partition, 0)
            deadline = time.monotonic() + WITHIN_S
            while (consumer.position(partition) or 0) < end:
                assert time.monotonic() < deadline, f"{partition} cannot be read to its end"
                yield from consumer.poll(timeout_ms=50).get(partition, ())

    def trim(self, log: Log, partition: TopicPartition, before: int) -> None:
        source = ClusterPartition(self.prefix + partition.topic, partition.partition)
        with closing(self.admin()) as admin:
            admin.delete_records({source: before})

    def consumer(self) -> KafkaConsumer:
        return KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )

    def admin(self) -> KafkaAdminClient:
        return KafkaAdminClient(bootstrap_servers=self.bootstrap)


def eventually(condition: Callable[[], Any], what: str) -> Any:
    """The first true value of a condition that takes its own time. Fails after a deadline."""
    deadline = time.monotonic() + WITHIN_S
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {WITHIN_S} s: {what}"
    return value


def opened(log: Log, *topics: str) -> Log:
    """The log, opened and subscribed."""
    log.open()
    log.subscribe(topics)
    return log


def gain(log: Log, count: int) -> list[TopicPartition]:
    """Polls until that many partitions have been gained, and returns them sorted."""
    gained: set[TopicPartition] = set()

    def enough() -> bool:
        assignment = log.poll(timeout_s=0.1, max_records=1).assignment
        gained.difference_update(assignment.lost)
        gained.update(assignment.gained)
        return len(gained) >= count

    eventually(enough, f"{count} partitions gained")
    return sorted(gained)


def begin(log: Log, *topics: str, partitions: int) -> list[TopicPartition]:
    """Opens, subscribes, gains and starts every partition where its position says, or at its beginning."""
    opened(log, *topics)
    gained = gain(log, partitions * len(topics))
    for partition in gained:
        position = log.position(partition)
        log.start(partition, position.event if position else None)
    return gained


def events(log: Log, count: int, *, max_records: int = 1000) -> list[Chunk]:
    """The next chunks of events, until they hold that many records; exactly so many, or it fails."""
    chunks: list[Chunk] = []

    def enough() -> bool:
        chunks.extend(log.poll(timeout_s=0.1, max_records=max_records).chunks)
        return sum(len(chunk.records) for chunk in chunks) >= count

    eventually(enough, f"{count} events")
    assert sum(len(chunk.records) for chunk in chunks) == count
    return chunks


def settle(log: Log) -> None:
    """Polls until there is nothing to be read."""

    def quiet() -> bool:
        polled = log.poll(timeout_s=0.1, max_records=10)
        return not (polled.chunks or polled.commands or any(polled.assignment))

    eventually(quiet, "nothing to be read")


def values(chunks: list[Chunk]) -> list[bytes | None]:
    return [record.value for chunk in chunks for record in chunk.records]


def commands(log: Log, count: int) -> list[Record]:
    """The next commands of the polls; exactly so many, or it fails."""
    found: list[Record] = []

    def enough() -> bool:
        found.extend(log.poll(timeout_s=0.1, max_records=1000).commands)
        return len(found) >= count

    eventually(enough, f"{count} commands")
    assert len(found) == count
    return found


def is_closed(call: Callable[[], Any]) -> bool:
    """Whether a call says that the log is closed."""
    try:
        call()
    except LogUnavailable as error:
        return "closed" in str(error)
    return False
