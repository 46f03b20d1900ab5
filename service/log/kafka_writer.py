"""Writing to Kafka: in transactions (``Transactions``), and plainly from any thread (``Appender``).

Invariants:

1. A producer that has failed once is never used again: its transaction is aborted, it is thrown away, and the
   next write makes a new one. What the library remembers of a failed transaction cannot leak into the next
   (it would: offsets that were not committed are sent again with the next transaction's).
2. Before a transaction is committed every message of it has been acknowledged, one by one: the library does
   not fail a transaction for a batch that has merely run out of time.
3. A commit whose outcome is unknown (the broker went away while it was made) counts as fencing: whoever made
   it has to look in the log. After fencing nothing is written until the log is opened anew, or two workers
   with one transactional id would throw each other out forever.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from kafka import KafkaProducer
from kafka import TopicPartition as ClusterPartition
from kafka import errors as kafka_errors
from kafka.structs import ConsumerGroupMetadata, OffsetAndMetadata

from service.log.kafka_client import BATCH_OVERHEAD_BYTES, Cluster, log_error, translated
from service.log.kafka_library import Mark, OutcomeUnknown, Placed
from service.log.key_hash import key_hash
from service.log.port import LogFenced, LogUnavailable, LogUnusable, Message, Output, TopicPartition

_Fill = Callable[[KafkaProducer, "Partitions"], Iterable[Any]]

_ABORT_S = 3.0
_CLOSE_S = 2.0
#: While a second batch of a partition waits, every send wakes the library's own thread: few batches are best.
_BATCH_BYTES = 1 << 19


class Partitions:
    """Numbers of partitions as a producer sees them now: one lookup a topic, not one a message."""

    def __init__(self, producer: KafkaProducer, cluster: Cluster) -> None:
        self._producer = producer
        self._cluster = cluster
        self._topics: dict[str, tuple[str, int]] = {}

    def topic(self, topic: str) -> tuple[str, int]:
        """The cluster's name of a topic and its number of partitions."""
        found = self._topics.get(topic)
        if found is None:
            name = self._cluster.name(topic)
            found = self._topics[topic] = (name, len(self._producer.partitions_for(name)))
        return found


class Transactions:
    """One transactional producer, and another after a failure; used by one thread after the other.
    ``lasts_s``: the longest that a transaction may take."""

    def __init__(self, cluster: Cluster, transactional_id: str, lasts_s: float) -> None:
        self._cluster = cluster
        self._id = transactional_id
        self._lasts_ms = int(1000 * lasts_s)
        self._producer: KafkaProducer | None = None
        self._fenced: LogFenced | None = None
        self._closed = True

    def open(self) -> None:
        """Fences whoever used the transactional id before, and ends what they left open."""
        self._fenced = None
        with translated():
            self._start()
        self._closed = False

    @property
    def held(self) -> bool:
        return self._producer is not None

    def close(self) -> None:
        self._closed = True
        producer, self._producer = self._producer, None
        if producer is not None:
            _discard(producer)

    def begin(
        self,
        outputs: Sequence[Output],
        state: Iterable[Placed],
        marks: Mapping[TopicPartition, Mark],
        membership: ConsumerGroupMetadata | None,
        ts: int,
    ) -> Callable[[], None]:
        """Sends messages in a transaction; what is returned ends it, with the marks of the group."""

        def fill(producer: KafkaProducer, partitions: Partitions) -> Iterator[Any]:
            for topic, key, value in outputs:
                name, count = partitions.topic(topic)
                place = None if key is None else key_hash(key) % count
                yield producer.send(name, value, key, None, place, ts)
            yield from _sent(producer, partitions, state, ts)

        offsets = {
            self._cluster.partition(partition): OffsetAndMetadata(mark.offset, mark.metadata, -1)
            for partition, mark in marks.items()
        }
        producer, futures, deadline = self._filled(fill)
        return lambda: self._end(producer, futures, deadline, offsets, membership)

    def append(self, messages: Iterable[Placed], ts: int) -> list[int]:
        """Writes messages in one transaction; returns their offsets in order."""
        filled = self._filled(lambda producer, partitions: _sent(producer, partitions, messages, ts))
        self._end(*filled, {}, None)
        return [future.value.offset for future in filled[1]]

    def _filled(self, fill: _Fill) -> tuple[KafkaProducer, list[Any], float]:
        """Begins a transaction with what ``fill`` sends. Returns its producer, the futures of the messages,
        in order, and when all of it must have been written."""
        if self._fenced is not None:
            raise self._fenced
        if self._closed:
            raise LogUnavailable("the log is closed")
        try:
            producer = self._producer or self._start()
        except kafka_errors.KafkaError as error:
            raise log_error(error) from error
        futures: list[Any] = []
        try:
            producer.begin_transaction()
            futures.extend(fill(producer, Partitions(producer, self._cluster)))
        except Exception as error:
            self._raise(producer, futures, error)
        return producer, futures, time.monotonic() + self._cluster.timeout_s  # making them may take long

    def _end(
        self,
        producer: KafkaProducer,
        futures: Sequence[Any],
        deadline: float,
        offsets: Mapping[ClusterPartition, OffsetAndMetadata],
        membership: ConsumerGroupMetadata | None,
    ) -> None:
        """Commits a transaction with ``offsets`` of the group. Raises LogUnavailable or LogUnusable when
        nothing of it has been written, LogFenced when nothing has been and must not be, OutcomeUnknown when
        nobody knows."""
        try:
            if offsets:
                step = producer._transaction_manager.send_offsets_to_transaction(offsets, membership)
                _await(producer, step, deadline)
            producer.flush(max(deadline - time.monotonic(), 0))
            _check(futures)
        except Exception as error:
            self._raise(producer, futures, error)
        try:
            _await(producer, producer._transaction_manager.begin_commit(), deadline)
        except Exception as error:
            self._producer = None
            _discard(producer)
            self._fenced = OutcomeUnknown(error, [future.value.offset for future in futures])
            raise self._fenced from error

    def _start(self) -> KafkaProducer:
        producer = _producer(
            self._cluster,
            transactional_id=self._id,
            transaction_timeout_ms=self._lasts_ms,
            batch_size=_BATCH_BYTES,
            linger_ms=100,  # until a batch is full; run() flushes the rest
            retry_backoff_ms=2,  # a commit waits for this several times
        )
        try:
            producer.init_transactions()
        except BaseException:
            _discard(producer)
            raise
        self._producer = producer
        return producer

    def _raise(self, producer: KafkaProducer, futures: Sequence[Any], error: Exception) -> NoReturn:
        """What a transaction has failed of, once it has been aborted."""
        cause = self._give_up(producer, futures, error)
        if cause is error:
            raise error
        raise cause from error

    def _give_up(self, producer: KafkaProducer, futures: Sequence[Any], error: Exception) -> Exception:
        """Aborts, throws the producer away and returns what to raise."""
        cause = _cause(producer, futures, error)
        with contextlib.suppress(Exception):
            abort = producer._transaction_manager.begin_abort()
            _await(producer, abort, time.monotonic() + _ABORT_S)
        self._producer = None
        _discard(producer)
        if isinstance(cause, kafka_errors.KafkaError):
            cause = log_error(cause)
        if isinstance(cause, LogFenced):
            self._fenced = cause
        return cause


class Appender:
    """A producer without transactions that any thread may use."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._lock = threading.Lock()
        self._producer: KafkaProducer | None = None
        self._closed = True

    def open(self) -> None:
        self._closed = False

    def close(self) -> None:
        with self._lock:
            self._closed = True
            producer, self._producer = self._producer, None
        if producer is not None:
            _discard(producer)

    def append(self, topic: str, messages: Sequence[Message], ts: int) -> list[tuple[int, int]]:
        """Appends, and returns (partition, offset) of each when all are safe. If it raises, some may be."""
        limit = self._cluster.max_message_bytes
        if any(value is not None and len(value) > limit for _, value, _ in messages):
            raise LogUnusable(f"a message is larger than the {limit} bytes that the log allows")
        deadline = time.monotonic() + self._cluster.timeout_s
        producer = self._ready()
        try:
            name, count = Partitions(producer, self._cluster).topic(topic)
            futures = [
                producer.send(name, value, key, None, _place(key, partition, count), ts)
                for key, value, partition in messages
            ]
            placed = [future.get(max(deadline - time.monotonic(), 0)) for future in futures]
        except kafka_errors.KafkaError as error:
            with self._lock:
                if self._producer is producer:
                    self._producer = None
            _discard(producer)
            raise log_error(error) from error
        return [(one.partition, one.offset) for one in placed]

    def _ready(self) -> KafkaProducer:
        with self._lock, translated():
            if self._closed:
                raise LogUnavailable("the log is closed")
            if self._producer is None:
                self._producer = _producer(self._cluster, retry_backoff_ms=20)
            return self._producer


def _sent(
    producer: KafkaProducer, partitions: Partitions, messages: Iterable[Placed], ts: int
) -> Iterator[Any]:
    for (topic, number), key, value in messages:
        yield producer.send(partitions.topic(topic)[0], value, key, None, number, ts)


def _place(key: bytes | None, partition: int | None, count: int) -> int | None:
    return key_hash(key) % count if partition is None and key is not None else partition


def _producer(cluster: Cluster, **own: object) -> KafkaProducer:
    timeout_ms = int(cluster.timeout_s * 1000)
    return KafkaProducer(
        acks="all",
        allow_auto_create_topics=False,
        max_block_ms=timeout_ms,
        delivery_timeout_ms=2 * timeout_ms,
        max_request_size=cluster.max_message_bytes + BATCH_OVERHEAD_BYTES,
        metrics_enabled=False,
        **{**cluster.options, **own},
    )


def _await(producer: KafkaProducer, step: Any, deadline: float) -> None:
    """Waits for a step of a transaction. The library's own waits have no limit, hence its inner objects."""
    producer._sender.wakeup()
    if not step.wait(timeout_ms=max(deadline - time.monotonic(), 0) * 1000):
        raise kafka_errors.KafkaTimeoutError("the cluster did not answer in time")


def _check(futures: Iterable[Any]) -> None:
    for future in futures:
        if future.exception is not None or not future.is_done:
            raise future.exception or kafka_errors.KafkaTimeoutError("a message was not acknowledged in time")


def _cause(producer: KafkaProducer, futures: Sequence[Any], error: Exception) -> Exception:
    """The first error of a transaction; what was raised may only say that there has been one."""
    noted = producer._transaction_manager.last_error
    if isinstance(error, kafka_errors.MessageSizeTooLargeError):
        return LogUnusable(f"a message is larger than the cluster or the settings allow ({error})")
    if isinstance(noted, Exception):
        return noted
    return next((future.exception for future in futures if future.exception is not None), error)


def _discard(producer: KafkaProducer) -> None:
    """Ends a producer without waiting for what it holds, which its public ``close`` cannot."""
    producer._sender.force_close()
    with contextlib.suppress(kafka_errors.KafkaError):
        producer.close(timeout=_CLOSE_S)
