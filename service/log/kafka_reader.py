"""Reading from Kafka: events as a member of the consumer group, commands by oneself.

Idea: a poll of either never waits for data. Each says through ``when_fetched`` that something has come in,
so that one thread waits for events, commands and ``wake`` at once.

Invariants of ``GroupReader`` (``kafka_library`` says what its methods do):

1. A partition is paused from the moment it is assigned until ``start``; nothing of it is delivered before.
2. In a rebalance every partition is lost first and what is assigned then is gained (``Share``), by the
   library's "range" strategy, which gives the same numbers of different topics to the same worker.
3. ``membership`` is the generation that the reported assignment belongs to. A commit that names it is refused
   by the group once there is a newer one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer
from kafka import TopicPartition as ClusterPartition
from kafka.errors import KafkaTimeoutError
from kafka.structs import ConsumerGroupMetadata

from service.log.kafka_client import Cluster, translated
from service.log.kafka_library import Mark
from service.log.kafka_share import Share
from service.log.port import Assignment, Chunk, Record, TopicPartition

#: A fetch that finds nothing comes back after this, and only then can a partition join the next one.
_FETCH_WAIT_MS = 250
_JOIN_WAIT_MS = 300
#: In which a group that nothing holds up answers.
_MOMENT_MS = 500
#: What confluent-kafka writes behind every note.
_NOTE_END = "\0"


class GroupReader:
    """The events of those partitions that the group gives to this worker."""

    def __init__(
        self, cluster: Cluster, group: str, session_timeout_s: float, before_loss: Callable[[], None]
    ) -> None:
        self._cluster = cluster
        session_timeout_ms = int(session_timeout_s * 1000)
        self._consumer = cluster.consumer(
            group_id=group,
            fetch_max_wait_ms=_FETCH_WAIT_MS,
            retry_backoff_ms=20,
            session_timeout_ms=session_timeout_ms,
            heartbeat_interval_ms=session_timeout_ms // 5,
            auto_offset_reset="none",  # what is gone is not passed over in silence
        )
        self._listener = _Listener(self)
        self._topics: list[str] = []
        #: where reading goes on as the last poll has told it, of every partition that has been started
        self._started: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._share = Share(before_loss)

    @property
    def owned(self) -> set[TopicPartition]:
        return self._share.owned

    @property
    def membership(self) -> ConsumerGroupMetadata | None:
        return self._share.membership

    def close(self, timeout_s: float) -> None:
        """Leaves the group, so that the others need not wait for the session to end."""
        with translated():
            self._consumer.close(autocommit=False, timeout_ms=timeout_s * 1000)

    def subscribe(self, topics: Iterable[str]) -> None:
        wanted = sorted(topics)
        if wanted == self._topics:
            return
        self._topics = wanted
        with translated():
            if not wanted:
                self._consumer.unsubscribe()
                self.revoke(self.owned)
                self._share.joined = True
                return
            self._share.joined = False
            names = [self._cluster.name(topic) for topic in wanted]
            self._consumer.subscribe(topics=names, listener=self._listener)
            for name in names:  # known before the group is joined, or the assignment would be empty
                self._consumer.partitions_for_topic(name)

    def poll(self, max_records: int) -> list[Chunk]:
        """Events that have come in. Waits for nothing but, for a moment, the group."""
        if not self._topics:
            return []
        with translated():
            self._join()
            if not self._share.joined:
                return []
            polled = self._consumer.poll(timeout_ms=0, max_records=max_records)
            if self.membership is None and self.owned:
                membership = self._consumer.group_metadata()
                # Without a generation the group would take commits from anybody.
                self._share.membership = membership if membership.generation_id >= 0 else None
            chunks = [self._chunk(source, found) for source, found in polled.items()]
        return chunks + self._passed_over()

    def _join(self) -> None:
        """Takes part in a rebalance, if there is one.

        The library's own poll would do so too, but one that does not wait forgets a round that ends between
        two polls; and where it was changed metadata that began the round, it never joins again."""
        coordinator = self._consumer._coordinator
        if not self._share.joined:
            coordinator.request_rejoin()
        if coordinator.need_rejoin():
            coordinator.poll(timeout_ms=_JOIN_WAIT_MS)

    def _chunk(self, source: ClusterPartition, found: Sequence[Any]) -> Chunk:
        records = [Record(one.offset, one.timestamp, one.key, one.value) for one in found]
        partition = self._cluster.own(source)
        next_offset = max(self._position(source), records[-1].offset + 1)
        if partition in self._started:
            self._started[partition] = next_offset
        return Chunk(partition, records, next_offset)

    def _passed_over(self) -> list[Chunk]:
        """The partitions of which a fetch had nothing but what others have aborted, and transactions' marks:
        no poll of the library tells of that. O(partitions)."""
        passed = []
        for partition, told in self._started.items():
            position = self._position(self._cluster.partition(partition))
            if position > told:
                self._started[partition] = position
                passed.append(Chunk(partition, [], position))
        return passed

    def _position(self, source: ClusterPartition) -> int:
        """Where the library goes on. Its public ``position`` may ask the cluster, and takes long anyway."""
        state = self._consumer._subscription.assignment.get(source)
        return -1 if state is None or state.position is None else int(state.position.offset)

    def wait(self, commands: CommandReader, news: threading.Event, timeout_s: float) -> None:
        """Waits until ``news`` is set or a fetch comes in. Not in a rebalance: there ``poll`` waits."""
        if self._share.joined:
            self.when_fetched(news.set)
            commands.when_fetched(news.set)
            news.wait(timeout_s)

    @property
    def settled(self) -> bool:
        return self._share.settled

    @property
    def changed(self) -> bool:
        return self._share.changed

    def take_assignment(self) -> Assignment:
        return self._share.take()

    def committed(self, partition: TopicPartition) -> Mark | None:
        """The offset that the group has committed. Waits for transactions that are about to move it."""
        return _committed(self._consumer, self._cluster, partition)

    def rests(self, partition: TopicPartition) -> bool:
        return _rests(self._consumer, self._cluster, partition)

    def start(self, partition: TopicPartition, offset: int) -> None:
        self._share.check(partition)
        self._consumer.seek(self._cluster.partition(partition), offset)
        self._started[partition] = offset
        self._resume(partition)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in self.owned.intersection(partitions):
            self._paused.add(partition)
            self._consumer.pause(self._cluster.partition(partition))

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in self.owned.intersection(partitions):
            self._paused.discard(partition)
            self._resume(partition)

    def _resume(self, partition: TopicPartition) -> None:
        if partition in self._started and partition not in self._paused:
            self._consumer.resume(self._cluster.partition(partition))

    def when_fetched(self, call: Callable[[], None]) -> None:
        """Calls, from another thread, when a fetch that is under way comes in."""
        _when_fetched(self._consumer, call)

    # ---- called by the listener while a poll waits for the group

    def revoke(self, partitions: Iterable[TopicPartition]) -> None:
        revoked = self._share.revoke(partitions)
        for partition in revoked:
            self._started.pop(partition, None)
        self._paused -= revoked

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        assigned = list(partitions)
        for partition in assigned:
            source = self._cluster.partition(partition)
            self._consumer.pause(source)
            self._consumer.seek(source, 0)  # anywhere: a partition without a position is looked up at once
        self._share.assign(assigned)


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, reader: GroupReader) -> None:
        self._reader = reader

    def on_partitions_revoked(self, revoked: Iterable[ClusterPartition]) -> None:
        self._reader.revoke(map(self._reader._cluster.own, revoked))

    def on_partitions_assigned(self, assigned: Iterable[ClusterPartition]) -> None:
        self._reader.assign(map(self._reader._cluster.own, assigned))


class CommandReader:
    """The committed commands from an offset on. Before the first ``seek`` there are none."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._consumer: KafkaConsumer = cluster.consumer(fetch_max_wait_ms=_FETCH_WAIT_MS)
        self._source = cluster.partition(TopicPartition(topic, 0))
        self._consumer.assign([self._source])
        self._sought = False

    def close(self) -> None:
        with translated():
            self._consumer.close(autocommit=False)

    def seek(self, offset: int) -> None:
        self._consumer.seek(self._source, offset)
        self._sought = True

    def poll(self, max_records: int) -> list[Record]:
        """Commands that have come in. Waits for nothing."""
        if not self._sought:
            return []
        with translated():
            polled = self._consumer.poll(timeout_ms=0, max_records=max_records)
        found = polled.get(self._source, ())
        return [Record(one.offset, one.timestamp, one.key, one.value) for one in found]

    @property
    def position(self) -> int:
        """Where the next poll goes on: past what it has returned, and past transactions' own marks."""
        if not self._sought:
            return 0
        with translated():
            return self._consumer.position(self._source, timeout_ms=0) or 0

    def when_fetched(self, call: Callable[[], None]) -> None:
        """Calls, from another thread, when a fetch that is under way comes in."""
        _when_fetched(self._consumer, call)


class Notes:
    """What a group has committed, seen by one who is not of it. Connects with the first question."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._cluster = cluster
        self._group = group
        self._consumer: KafkaConsumer | None = None

    def committed(self, partition: TopicPartition) -> Mark | None:
        """As ``GroupReader.committed``."""
        return _committed(self._connected(), self._cluster, partition)

    def rests(self, partition: TopicPartition) -> bool:
        """As ``GroupReader.rests``."""
        return _rests(self._connected(), self._cluster, partition)

    def _connected(self) -> KafkaConsumer:
        if self._consumer is None:
            self._consumer = self._cluster.consumer(group_id=self._group, retry_backoff_ms=20)
        return self._consumer

    def close(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            with translated():
                consumer.close(autocommit=False, timeout_ms=0)


def _committed(consumer: KafkaConsumer, cluster: Cluster, partition: TopicPartition) -> Mark | None:
    source, timeout_ms = cluster.partition(partition), cluster.patience_s * 1000
    with translated():
        found = consumer.committed(source, metadata=True, timeout_ms=timeout_ms)
    return None if found is None else Mark(found.offset, found.metadata.removesuffix(_NOTE_END))


def _rests(consumer: KafkaConsumer, cluster: Cluster, partition: TopicPartition) -> bool:
    with translated():
        try:
            consumer.committed(cluster.partition(partition), metadata=True, timeout_ms=_MOMENT_MS)
        except KafkaTimeoutError:
            return False
    return True


def _when_fetched(consumer: KafkaConsumer, call: Callable[[], None]) -> None:
    # The library waits for these futures in its own poll, which cannot be woken for anything else.
    for future in tuple(consumer._fetcher._fetch_futures):
        future.add_both(lambda _: call())
