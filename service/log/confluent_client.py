"""The Kafka log over confluent-kafka: settings, names, topics and offsets.

What is particular to this library (librdkafka beneath it):

- Its threads fetch and send by themselves; a poll only takes what has come in and runs what is to be told.
- It never tells where a consumer stands behind the marks of transactions, except at the end of a partition:
  there it says so once (``_PARTITION_EOF``), after a fetch that finds nothing. So readers that have to know
  fetch with a short wait (``MARK_WAIT_MS``).
- Why it cannot connect it tells only aside, so the last such word is kept for the error that follows.

``kafka_client`` is the same over kafka-python.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any
from uuid import UUID

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka import Message as Found
from confluent_kafka import TopicPartition as ClusterPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from service.log import kafka_client
from service.log.confluent_errors import MOVING, log_error
from service.log.kafka_library import CONFLUENT_KAFKA, LOOKS_THE_SAME, Mark, OptionsOf
from service.log.port import LogUnavailable, Record, TopicPartition

#: A batch of messages is larger than its largest message by its header, the key and the lengths.
BATCH_OVERHEAD_BYTES = 1 << 16
#: How long a fetch waits for news where the end of a partition has to be heard of soon.
MARK_WAIT_MS = 10
_BROKER_DEFAULT_BYTES = 1 << 20
_READ_WAIT_S = 0.1
_ANSWER_S = 1.0
_EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_READ_RECORDS = 5_000
_LOOK_AGAIN_S = 0.05
_WORD = 1 << 64
#: Only what ends the library itself goes to stderr: the rest is raised.
_LOG_LEVEL = 2


def record_of(found: Found) -> Record:
    return Record(found.offset(), found.timestamp()[1], found.key(), found.value())  # type: ignore[arg-type]


class Cluster:
    """``kafka_library.Cluster``; ``timeout_s`` is how long the cluster may take to answer."""

    def __init__(
        self,
        bootstrap: str,
        *,
        topic_prefix: str,
        replication: int,
        max_message_bytes: int,
        timeout_s: float,
        client_options: OptionsOf,
    ) -> None:
        self.max_message_bytes = max_message_bytes
        self.timeout_s = timeout_s
        self._prefix = topic_prefix
        self._replication = replication
        self._aside = ""
        self.options: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "socket.timeout.ms": int(timeout_s * 1000),
            "reconnect.backoff.max.ms": 1000,
            "log_level": _LOG_LEVEL,
            "error_cb": self._note,
            **client_options(CONFLUENT_KAFKA),
        }
        #: The same, as kafka-python sees it.
        self.beside = kafka_client.Cluster(
            bootstrap,
            topic_prefix=topic_prefix,
            replication=replication,
            max_message_bytes=max_message_bytes,
            timeout_s=timeout_s,
            client_options=client_options,
        )
        self._admin: AdminClient | None = None
        self._partition_counts: dict[str, int] = {}

    def _note(self, error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._aside = f"; {error.name()}: {error.str()}"

    @contextlib.contextmanager
    def translated(self) -> Iterator[None]:
        """Turns the library's errors into the port's."""
        try:
            yield
        except (KafkaException, BufferError, RuntimeError) as error:
            raise log_error(error, self._aside) from error

    @property
    def patience_s(self) -> float:
        """How long to wait for a transaction that a dead worker has left open: longer than it can last."""
        return 2 * self.timeout_s

    def open(self) -> None:
        self._aside = ""
        try:
            with self.translated():
                self._admin = AdminClient(self.options)
                self._admin.list_topics(timeout=self.timeout_s)
        except LogUnavailable as away:
            if self.options.get("security.protocol", "PLAINTEXT") == "PLAINTEXT":
                raise
            raise LogUnavailable(f"{away}{LOOKS_THE_SAME}") from away
        self._aside = ""

    def answers(self) -> bool:
        """Whether a broker answers a client that comes anew."""
        quiet: dict[str, Any] = {"error_cb": lambda _: None}
        try:
            AdminClient({**self.options, **quiet}).list_topics(timeout=_ANSWER_S)
        except KafkaException:
            return False
        return True

    def close(self) -> None:
        self._admin = None
        self._partition_counts.clear()

    @property
    def admin(self) -> AdminClient:
        if self._admin is None:
            raise LogUnavailable("the log is closed")
        return self._admin

    # ---- names

    def name(self, topic: str) -> str:
        return self._prefix + topic

    def partition(self, partition: TopicPartition, offset: int = 0) -> ClusterPartition:
        return ClusterPartition(self._prefix + partition.topic, partition.partition, offset)

    def marked(self, partition: TopicPartition, mark: Mark) -> ClusterPartition:
        """A partition with what the group commits of it."""
        return ClusterPartition(self._prefix + partition.topic, partition.partition, *mark)

    def own(self, topic: str, partition: int) -> TopicPartition:
        """The port's name of a partition of the cluster."""
        return TopicPartition(topic[len(self._prefix) :], partition)

    # ---- topics

    def ensure(
        self, topics: Iterable[str], *, partitions: int, config: Mapping[str, object] | None = None
    ) -> None:
        """Creates those topics that the cluster lacks, and returns when all of them can be used."""
        wanted = [self.name(topic) for topic in topics if topic not in self._partition_counts]
        if not wanted:
            return
        max_bytes = max(self.max_message_bytes, _BROKER_DEFAULT_BYTES) + BATCH_OVERHEAD_BYTES
        configs = {
            name: str(value) for name, value in {"max.message.bytes": max_bytes, **(config or {})}.items()
        }
        with self.translated():
            counts = self._counts(wanted)
            missing = [
                NewTopic(name, partitions, self._replication, config=configs)
                for name in sorted(wanted)
                if name not in counts
            ]
            if missing:
                for made in self.admin.create_topics(missing, operation_timeout=self.timeout_s).values():
                    self._created(made)
            deadline = time.monotonic() + self.timeout_s
            while len(counts := self._counts(wanted)) < len(wanted):
                if time.monotonic() > deadline:
                    raise LogUnavailable(f"not all of {wanted} can be used yet")
                time.sleep(_LOOK_AGAIN_S)
        self._partition_counts.update({name[len(self._prefix) :]: count for name, count in counts.items()})

    def _created(self, made: Future[None]) -> None:
        try:
            made.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def _counts(self, names: list[str]) -> dict[str, int]:
        """The numbers of partitions of those topics that exist and whose partitions all have a leader."""
        counts: dict[str, int] = {}
        described = self.admin.describe_topics(TopicCollection(names), request_timeout=self.timeout_s)
        for name, future in described.items():
            try:
                partitions = future.result().partitions
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise
            else:
                if partitions and all(one.leader is not None for one in partitions):
                    counts[name] = len(partitions)
        return counts

    def partition_count(self, topic: str) -> int:
        """The number of partitions as of the first question. Raises LogUnavailable for a missing topic."""
        if topic not in self._partition_counts:
            name = self.name(topic)
            with self.translated():
                counts = self._counts([name])
            if name not in counts:
                raise LogUnavailable(f"the topic {name} does not exist")
            self._partition_counts[topic] = counts[name]
        return self._partition_counts[topic]

    def topic_id(self, topic: str) -> str | None:
        """The id of a topic as the cluster has it now, written as by kafka-python; None of none."""
        name = self.name(topic)
        with self.translated():
            asked = self.admin.describe_topics(TopicCollection([name]), request_timeout=self.timeout_s)
            found = asked[name].result().topic_id
        high, low = found.get_most_significant_bits(), found.get_least_significant_bits()
        number = (high % _WORD) * _WORD + low % _WORD  # both are signed
        return str(UUID(int=number)) if number else None

    def config(self, topic: str, setting: str) -> str:
        """One setting of a topic, as the cluster has it now."""
        resource = ConfigResource(ResourceType.TOPIC, self.name(topic))
        with self.translated():
            asked = self.admin.describe_configs([resource], request_timeout=self.timeout_s)
            return str(asked[resource].result()[setting].value)

    # ---- offsets and records

    def start_of(self, partition: TopicPartition) -> int:
        """The offset of the first record that the cluster still holds."""
        return self._offsets([partition], _EARLIEST, IsolationLevel.READ_COMMITTED)[partition]

    def ends(self, partitions: Iterable[TopicPartition], *, committed: bool) -> dict[TopicPartition, int]:
        """The offset after the last record, or after the last that no open transaction holds back."""
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        return self._offsets(partitions, _LATEST, level)

    def _offsets(
        self, partitions: Iterable[TopicPartition], spec: OffsetSpec, level: IsolationLevel
    ) -> dict[TopicPartition, int]:
        wanted = {self.partition(partition): spec for partition in partitions}
        offsets: dict[TopicPartition, int] = {}
        deadline = time.monotonic() + self.timeout_s
        with self.translated():
            while wanted:
                found = self.admin.list_offsets(wanted, isolation_level=level, request_timeout=self.timeout_s)
                for at, future in found.items():
                    try:
                        offsets[self.own(at.topic, at.partition)] = future.result().offset
                        del wanted[at]
                    except KafkaException as error:
                        if error.args[0].code() not in MOVING or time.monotonic() > deadline:
                            raise
                        time.sleep(_LOOK_AGAIN_S)
                        self.admin.list_topics(timeout=self.timeout_s)  # who leads now
        return offsets

    def consumer(self, **own: object) -> Consumer:
        """A consumer of what is committed, that starts where it is told and commits nothing. Options as the
        library names them, with ``_`` for ``.``."""
        named = {name.replace("_", "."): value for name, value in own.items()}
        options = {
            "group.id": "rangewatch",  # the library wants one, also of those that join none
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
            "allow.auto.create.topics": False,
            "check.crcs": True,
            **self.options,
            **named,
        }
        with self.translated():
            return Consumer(options)

    def records(self, partition: TopicPartition, start: int, end: int) -> Iterator[Record]:
        """The committed records with ``start <= offset < end``, in order, by a consumer of their own.

        Waits for transactions that are open below ``end``. Raises LogUnavailable when nothing moves for
        ``patience_s``."""
        if start >= end:
            return
        name = f"{self.name(partition.topic)}/{partition.partition}"
        consumer = self.consumer(enable_partition_eof=True, fetch_wait_max_ms=MARK_WAIT_MS)
        with contextlib.closing(consumer), self.translated():
            consumer.assign([self.partition(partition, start)])
            at, deadline = start, time.monotonic() + self.patience_s
            while at < end:
                first = consumer.poll(_READ_WAIT_S)
                if first is None:
                    if time.monotonic() > deadline:
                        raise LogUnavailable(f"{name} cannot be read on from {at}{self._aside}")
                    continue
                for found in (first, *consumer.consume(_READ_RECORDS, 0)):
                    moved = self.next_offset(found)
                    if moved > at:
                        at, deadline = moved, time.monotonic() + self.patience_s
                    if found.error() is None:
                        if found.offset() >= end:  # type: ignore[operator]
                            return
                        yield record_of(found)

    def next_offset(self, found: Found) -> int:
        """Where reading goes on after what a consumer has found; -1 where it was told of some trouble that
        it gets over by itself. Raises the port's errors for other trouble."""
        error = found.error()
        if error is None:
            return found.offset() + 1  # type: ignore[operator]
        if error.code() == KafkaError._PARTITION_EOF:
            return found.offset()  # type: ignore[return-value]
        told = log_error(KafkaException(error))
        if isinstance(told, LogUnavailable):
            self._note(error)
            return -1
        raise told
