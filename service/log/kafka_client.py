"""How the Kafka log talks to a cluster: settings, names, topics, offsets, and errors in the port's words.

Topics have two names: the port's, and the cluster's, which is the port's behind a prefix. They are translated
here (``Cluster.name``, ``Cluster.partition``) and nowhere else.

The library is kafka-python. ``kafka_reader`` and ``kafka_writer`` use four things that it keeps to itself,
because it has no public way to do them: to take part in a rebalance without waiting for events, to hear that
a fetch has come in, to wait for a step of a transaction for a limited time, and to end a producer without
waiting for what it holds. Each place says so; the contract suite fails where a new version moves them.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer
from kafka import TopicPartition as ClusterPartition
from kafka import errors as kafka_errors
from kafka.admin import ConfigResource, ConfigResourceType, OffsetSpec
from kafka.protocol.consumer import IsolationLevel

from service.log.kafka_library import KAFKA_PYTHON, LOOKS_THE_SAME, OptionsOf
from service.log.port import LogError, LogFenced, LogUnavailable, LogUnusable, Record, TopicPartition

#: A worker that has been passed over by its group, whose transactional id another one uses now, or whose
#: place in a topic is no more.
_FENCED = (
    kafka_errors.ProducerFencedError,
    kafka_errors.InvalidProducerEpochError,
    kafka_errors.InvalidProducerIdMappingError,  # the cluster has forgotten an id that was idle for days
    kafka_errors.FencedInstanceIdError,
    kafka_errors.CommitFailedError,
    kafka_errors.IllegalGenerationError,
    kafka_errors.UnknownMemberIdError,
    kafka_errors.RebalanceInProgressError,
    # What was to be read next is gone: whoever starts afresh finds that out and decides.
    kafka_errors.OffsetOutOfRangeError,
    kafka_errors.NoOffsetForPartitionError,
)
#: What a person has to put right. Everything that is neither this nor fencing may work when tried again.
_UNUSABLE = (
    kafka_errors.AuthorizationError,
    kafka_errors.CorruptRecordError,
    kafka_errors.InvalidConfigurationError,
    kafka_errors.InvalidPartitionsError,
    kafka_errors.InvalidRecordError,
    kafka_errors.InvalidReplicationFactorError,
    kafka_errors.InvalidTimestampError,
    kafka_errors.InvalidTopicError,
    kafka_errors.InvalidTransactionTimeoutError,
    kafka_errors.KafkaConfigurationError,
    kafka_errors.LogTruncationError,
    kafka_errors.MessageSizeTooLargeError,
    kafka_errors.PolicyViolationError,
    kafka_errors.RecordListTooLargeError,
    kafka_errors.SaslAuthenticationFailedError,
    kafka_errors.UnsupportedVersionError,
)

#: A batch of messages is larger than its largest message by its header, the key and the lengths.
BATCH_OVERHEAD_BYTES = 1 << 16
_BROKER_DEFAULT_BYTES = 1 << 20
_READ_WAIT_MS = 100
#: How long a new consumer waits, again and again, for its first answer: short, as it sleeps all of it.
_NEW_WAIT_MS = 10
_ANSWER_MS = 1_000
_READ_RECORDS = 5_000


def log_error(error: Exception) -> LogError:
    """The port's word for an error of the library. An error of the port stays what it is."""
    if isinstance(error, LogError):
        return error
    what = f"{type(error).__name__}: {error}"
    if isinstance(error, _FENCED):
        return LogFenced(what)
    if isinstance(error, _UNUSABLE):
        return LogUnusable(f"Kafka refuses ({what})")
    return LogUnavailable(f"Kafka cannot do it now ({what})")


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Turns the library's errors into the port's."""
    try:
        yield
    except kafka_errors.KafkaError as error:
        raise log_error(error) from error


class Cluster:
    """A Kafka cluster as one worker sees it. ``timeout_s`` is how long it may take to answer.

    ``partition_count`` and ``ends`` may be called from any thread.
    """

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
        self.options: dict[str, Any] = {
            "bootstrap_servers": bootstrap.split(","),
            "bootstrap_timeout_ms": int(timeout_s * 1000),
            "request_timeout_ms": int(timeout_s * 1000),
            "reconnect_backoff_max_ms": 1000,
            **client_options(KAFKA_PYTHON),
        }
        self._admin: KafkaAdminClient | None = None
        self._partition_counts: dict[str, int] = {}

    @property
    def patience_s(self) -> float:
        """How long to wait for a transaction that a dead worker has left open: longer than it can last."""
        return 2 * self.timeout_s

    def open(self) -> None:
        try:
            with translated():
                self._admin = KafkaAdminClient(**self.options)
        except LogUnavailable as away:
            if self.options.get("security_protocol", "PLAINTEXT") == "PLAINTEXT":
                raise
            # A broker ends such a connection before the library has read why.
            raise LogUnavailable(f"{away}{LOOKS_THE_SAME}") from away

    def answers(self) -> bool:
        """Whether a broker answers a client that comes anew."""
        hasty = {"bootstrap_timeout_ms": _ANSWER_MS, "request_timeout_ms": _ANSWER_MS}
        try:
            KafkaAdminClient(**{**self.options, **hasty}).close()
        except kafka_errors.KafkaError:
            return False
        return True

    def close(self) -> None:
        if self._admin is not None:
            admin, self._admin = self._admin, None
            self._partition_counts.clear()
            with translated():
                admin.close()

    @property
    def admin(self) -> KafkaAdminClient:
        if self._admin is None:
            raise LogUnavailable("the log is closed")
        return self._admin

    # ---- names

    def name(self, topic: str) -> str:
        return self._prefix + topic

    def partition(self, partition: TopicPartition) -> ClusterPartition:
        return ClusterPartition(self._prefix + partition.topic, partition.partition)

    def own(self, partition: ClusterPartition) -> TopicPartition:
        """The port's name of a partition of the cluster."""
        return TopicPartition(partition.topic[len(self._prefix) :], partition.partition)

    # ---- topics

    def ensure(
        self, topics: Iterable[str], *, partitions: int, config: Mapping[str, object] | None = None
    ) -> None:
        """Creates those topics that the cluster lacks, and returns when all of them can be used."""
        wanted = [self.name(topic) for topic in topics if topic not in self._partition_counts]
        if not wanted:
            return
        max_bytes = max(self.max_message_bytes, _BROKER_DEFAULT_BYTES) + BATCH_OVERHEAD_BYTES
        configs = {"max.message.bytes": max_bytes, **(config or {})}
        settings = {
            "num_partitions": partitions,
            "replication_factor": self._replication,
            "configs": {name: str(value) for name, value in configs.items()},
        }
        with translated():
            described = self.admin.describe_topics(wanted)
            for found in described:  # no waiting makes these better
                if issubclass(cause := kafka_errors.for_code(found["error_code"]), _UNUSABLE):
                    raise cause(found["name"])
            missing = [found["name"] for found in described if found["error_code"]]
            if missing:
                with contextlib.suppress(kafka_errors.TopicAlreadyExistsError):
                    self.admin.create_topics(dict.fromkeys(sorted(missing), settings))
            self.admin.wait_for_topics(wanted, timeout_ms=int(self.timeout_s * 1000))
            for found in self.admin.describe_topics(wanted):
                self._partition_counts[found["name"][len(self._prefix) :]] = len(found["partitions"])

    def partition_count(self, topic: str) -> int:
        """The number of partitions as of the first question. Raises LogUnavailable for a missing topic."""
        if topic not in self._partition_counts:
            self._partition_counts[topic] = len(self._described(topic)["partitions"])
        return self._partition_counts[topic]

    def topic_id(self, topic: str) -> str | None:
        """The id of a topic as the cluster has it now; None where it gives none."""
        return self._described(topic).get("topic_id")

    def _described(self, topic: str) -> dict[str, Any]:
        found: dict[str, Any]
        with translated():
            (found,) = self.admin.describe_topics([self.name(topic)])
        if not found["partitions"]:
            raise LogUnavailable(f"the topic {self.name(topic)} does not exist")
        return found

    def config(self, topic: str, setting: str) -> str:
        """One setting of a topic, as the cluster has it now."""
        resource = ConfigResource(ConfigResourceType.TOPIC, self.name(topic))
        with translated():
            found = self.admin.describe_configs([resource], config_filter="all")
        return str(found[ConfigResourceType.TOPIC.name.lower()][self.name(topic)][setting]["value"])

    # ---- offsets and records

    def start_of(self, partition: TopicPartition) -> int:
        """The offset of the first record that the cluster still holds."""
        return self._offsets([partition], OffsetSpec.EARLIEST, IsolationLevel.READ_COMMITTED)[partition]

    def ends(self, partitions: Iterable[TopicPartition], *, committed: bool) -> dict[TopicPartition, int]:
        """The offset after the last record, or after the last that no open transaction holds back."""
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        return self._offsets(partitions, OffsetSpec.LATEST, level)

    def _offsets(
        self, partitions: Iterable[TopicPartition], spec: OffsetSpec, level: IsolationLevel
    ) -> dict[TopicPartition, int]:
        wanted = {self.partition(partition): spec for partition in partitions}
        if not wanted:
            return {}
        with translated():
            found = self.admin.list_partition_offsets(wanted, isolation_level=level)
        return {self.own(partition): at.offset for partition, at in found.items()}

    def consumer(self, **own: object) -> KafkaConsumer:
        """A consumer of what is committed, that starts where it is told and commits nothing."""
        with translated():
            return KafkaConsumer(
                isolation_level="read_committed",
                enable_auto_commit=False,
                allow_auto_create_topics=False,
                metrics_enabled=False,
                **{"auto_offset_reset": "earliest", **self.options, **own},
            )

    def records(self, partition: TopicPartition, start: int, end: int) -> Iterator[Record]:
        """The committed records with ``start <= offset < end``, in order, by a consumer of their own.

        Waits for transactions that are open below ``end``. Raises LogUnavailable when nothing moves for
        ``patience_s``."""
        if start >= end:
            return
        source = self.partition(partition)
        with contextlib.closing(self.consumer(retry_backoff_ms=_NEW_WAIT_MS)) as consumer, translated():
            consumer.assign([source])
            consumer.seek(source, start)
            at, deadline = start, time.monotonic() + self.patience_s
            while at < end:
                polled = consumer.poll(timeout_ms=_READ_WAIT_MS, max_records=_READ_RECORDS)
                for found in polled.get(source, ()):
                    if found.offset >= end:
                        return
                    yield Record(found.offset, found.timestamp, found.key, found.value)
                moved = consumer.position(source, timeout_ms=0)
                if moved is not None and moved > at:
                    at, deadline = moved, time.monotonic() + self.patience_s
                elif time.monotonic() > deadline:
                    raise LogUnavailable(f"{source.topic}/{source.partition} cannot be read on from {at}")
