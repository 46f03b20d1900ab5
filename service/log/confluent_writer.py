"""Writing to Kafka over confluent-kafka: in transactions (``Transactions``), and plainly (``Appender``).

The invariants are those of ``kafka_writer``, over kafka-python: a producer that has failed is never used
again; a transaction is committed only when all of it has been acknowledged; an unknown outcome counts as
fencing. What this library does for them by itself: it commits no transaction of which a message has failed,
and says of an error that the transaction must be aborted where it has not been committed.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import Message as Written
from confluent_kafka import TopicPartition as ClusterPartition

from service.log.confluent_client import BATCH_OVERHEAD_BYTES, Cluster
from service.log.confluent_errors import log_error
from service.log.kafka_library import Mark, OutcomeUnknown, Placed
from service.log.port import (
    LogFenced,
    LogUnavailable,
    LogUnusable,
    Message,
    Output,
    TopicPartition,
)

_ABORT_S = 3.0
#: How much longer than it was told a call may take.
_GRACE_S = 2.0
_SERVE_S = 0.1
_BATCH_BYTES = 1 << 19
#: No limit of its own: what a commit holds is bounded by the step that it belongs to.
_UNLIMITED_KB = (1 << 31) - 1
#: The hash of the key as Kafka's other clients have it; any partition without a key.
_PARTITIONER = "murmur2_random"
_ANY = -1
#: Stands for the offset of a message that has none.
_FAILED = -1
#: What ends a transactional producer is raised, and being fenced is nothing that a person has to hear of.
_UNHEARD = logging.Logger("librdkafka", logging.CRITICAL + 1)


class Transactions:
    """One transactional producer, and another after a failure; used by one thread after the other.
    ``lasts_s``: the longest that a transaction may take."""

    def __init__(self, cluster: Cluster, transactional_id: str, lasts_s: float) -> None:
        self._cluster = cluster
        self._id = transactional_id
        self._lasts_ms = int(1000 * lasts_s)
        self._producer: Producer | None = None
        self._fenced: LogFenced | None = None
        self._closed = True

    def open(self) -> None:
        self._fenced = None
        with self._cluster.translated():
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
        membership: Any,
        ts: int,
    ) -> Callable[[], None]:
        names = {topic: self._cluster.name(topic) for topic in {output.topic for output in outputs}}

        def fill(producer: Producer) -> None:
            produce = producer.produce
            for topic, key, value in outputs:
                produce(names[topic], value, key, _ANY, None, None, ts)
            for (topic, number), key, record in state:
                produce(self._cluster.name(topic), record, key, number, None, None, ts)

        return self._begun(fill, marks, membership)

    def append(self, messages: Iterable[Placed], ts: int) -> list[int]:
        offsets: list[int] = []

        def placed(error: KafkaError | None, written: Written) -> None:
            offsets.append(written.offset() if error is None else _FAILED)  # type: ignore[arg-type]

        def fill(producer: Producer) -> None:
            for (topic, number), key, value in messages:
                producer.produce(self._cluster.name(topic), value, key, number, placed, None, ts)

        self._begun(fill, {}, None, offsets)()
        return offsets  # those of one partition are acknowledged in their order

    def _begun(
        self,
        fill: Callable[[Producer], None],
        marks: Mapping[TopicPartition, Mark],
        membership: Any,
        offsets: Sequence[int] = (),
    ) -> Callable[[], None]:
        """Begins a transaction with what ``fill`` produces, which fills ``offsets`` as it is acknowledged;
        what is returned ends it, with ``marks`` of the group."""
        if self._fenced is not None:
            raise self._fenced
        if self._closed:
            raise LogUnavailable("the log is closed")
        with self._cluster.translated():
            producer = self._producer or self._start()
        try:
            producer.begin_transaction()
            fill(producer)
        except Exception as error:
            raise self._give_up(producer, error) from error
        deadline = time.monotonic() + self._cluster.timeout_s  # messages may take long to be made
        marked = [self._cluster.marked(*mark) for mark in marks.items()]
        return lambda: self._end(producer, deadline, marked, membership, offsets)

    def _end(
        self,
        producer: Producer,
        deadline: float,
        marked: list[ClusterPartition],
        membership: Any,
        offsets: Sequence[int],
    ) -> None:
        try:
            if marked:
                left_s = _left_s(deadline)
                _in_time(lambda: producer.send_offsets_to_transaction(marked, membership, left_s), left_s)
            if producer.flush(_left_s(deadline)):
                raise LogUnavailable("the cluster did not acknowledge everything in time")
        except _Stuck as stuck:
            self._producer = None  # nothing more is asked of it: its successor fences it
            self._fenced = LogFenced(str(stuck))
            raise self._fenced from None
        except Exception as error:
            raise self._give_up(producer, error) from error
        try:
            producer.commit_transaction(_left_s(deadline))
        except Exception as error:
            aborts = isinstance(error, KafkaException) and error.args[0].txn_requires_abort()
            if aborts or _FAILED in offsets:
                raise self._give_up(producer, error) from error
            self._producer = None
            _discard(producer)
            _forget_frames(error)
            self._fenced = OutcomeUnknown(error, list(offsets))
            raise self._fenced from error

    def _start(self) -> Producer:
        producer = _producer(
            self._cluster,
            **{
                "transactional.id": self._id,
                "transaction.timeout.ms": self._lasts_ms,
                "batch.size": _BATCH_BYTES,
                "linger.ms": 5,
                "retry.backoff.ms": 1,  # a commit waits for this several times
                "logger": _UNHEARD,
            },
        )
        try:
            producer.init_transactions(self._cluster.timeout_s)
        except BaseException:
            _discard(producer)
            del producer  # the error may be kept, see _forget_frames
            raise
        self._producer = producer
        return producer

    def _give_up(self, producer: Producer, error: BaseException) -> BaseException:
        """Aborts, throws the producer away and returns what to raise."""
        cause = _cause(producer, error)
        with contextlib.suppress(KafkaException, SystemError):
            producer.abort_transaction(_ABORT_S)
        self._producer = None
        _discard(producer)
        _forget_frames(error)
        _forget_frames(cause)
        if isinstance(cause, KafkaException | BufferError):
            cause = log_error(cause)
        if isinstance(cause, LogFenced):
            self._fenced = cause
        return cause


class Appender:
    """A producer without transactions that any thread may use."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._lock = threading.Lock()
        self._served: _Served | None = None
        self._closed = True

    def open(self) -> None:
        self._closed = False

    def close(self) -> None:
        with self._lock:
            self._closed = True
            served, self._served = self._served, None
        if served is not None:
            served.end()

    def append(self, topic: str, messages: Sequence[Message], ts: int) -> list[tuple[int, int]]:
        limit = self._cluster.max_message_bytes
        if any(value is not None and len(value) > limit for _, value, _ in messages):
            raise LogUnusable(f"a message is larger than the {limit} bytes that the log allows")
        served = self._ready()
        receipt = _Receipt(len(messages))
        name = self._cluster.name(topic)
        try:
            for place, (key, value, partition) in enumerate(messages):
                number = _ANY if partition is None else partition
                told = partial(receipt.acknowledge, place)
                served.producer.produce(name, value, key, number, told, None, ts)
            return receipt.wait(self._cluster.timeout_s)
        except (KafkaException, BufferError, LogUnavailable) as error:
            with self._lock:
                if self._served is served:
                    self._served = None
            served.end()
            raise log_error(error) from error

    def _ready(self) -> _Served:
        with self._lock, self._cluster.translated():
            if self._closed:
                raise LogUnavailable("the log is closed")
            if self._served is None:
                timeout_ms = int(self._cluster.timeout_s * 1000)
                own = {"message.timeout.ms": 2 * timeout_ms, "linger.ms": 1, "retry.backoff.ms": 20}
                self._served = _Served(_producer(self._cluster, **own))
            return self._served


class _Served:
    """A producer, and the thread in which it tells what has been acknowledged."""

    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self._ended = False
        self._thread = threading.Thread(target=self._serve, name="kafka-appender", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while not self._ended:
            self.producer.poll(_SERVE_S)

    def end(self) -> None:
        """Tells everybody who still waits that nothing will come."""
        if not self._ended:
            _discard(self.producer)
            self._ended = True
        self._thread.join()


class _Receipt:
    """Where messages have come to lie; filled by the thread of their producer."""

    def __init__(self, count: int) -> None:
        self._places: list[tuple[int, int]] = [(0, 0)] * count
        self._open = count
        self._error: KafkaError | None = None
        self._done = threading.Event()
        if not count:
            self._done.set()

    def acknowledge(self, place: int, error: KafkaError | None, written: Written) -> None:
        if error is None:
            self._places[place] = written.partition(), written.offset()  # type: ignore[assignment]
        else:
            self._error = self._error or error
        self._open -= 1
        if not self._open or self._error is not None:
            self._done.set()

    def wait(self, timeout_s: float) -> list[tuple[int, int]]:
        """Raises the first error, or LogUnavailable when it takes too long."""
        if not self._done.wait(timeout_s):
            raise LogUnavailable("the cluster did not acknowledge everything in time")
        if self._error is not None:
            raise KafkaException(self._error)
        return self._places


def _producer(cluster: Cluster, **own: object) -> Producer:
    return Producer(
        {
            "acks": "all",
            "enable.idempotence": True,
            "partitioner": _PARTITIONER,
            "sticky.partitioning.linger.ms": 0,
            "message.max.bytes": cluster.max_message_bytes + BATCH_OVERHEAD_BYTES,
            "queue.buffering.max.messages": 0,
            "queue.buffering.max.kbytes": _UNLIMITED_KB,
            **cluster.options,
            **own,
        }
    )


class _Stuck(Exception):
    pass


def _in_time(call: Callable[[], None], timeout_s: float) -> None:
    """What a call raises. It has been seen not to come back at all, whatever time it was given, when a broker
    came back while its group was still without a coordinator: then raises _Stuck, and its thread is left."""
    raised: list[Exception] = []

    def run() -> None:
        try:
            call()
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=run, name="kafka-offsets", daemon=True)
    thread.start()
    thread.join(timeout_s + _GRACE_S)
    if thread.is_alive():
        raise _Stuck(f"the client library did not come back within {timeout_s + _GRACE_S:g} s")
    if raised:
        raise raised[0]


def _cause(producer: Producer, error: BaseException) -> BaseException:
    """What a transaction has failed of. A call that is under way just then says only that it has, as do those
    after a fatal error; the next transaction is refused with the reason."""
    if isinstance(error, SystemError):  # what the library tells in the middle of a callback
        error = error.__cause__ or error
    if isinstance(error, KafkaException) and error.args[0].code() in (KafkaError._STATE, KafkaError._FATAL):
        try:
            producer.begin_transaction()
        except KafkaException as cause:
            return cause
    return error


def _forget_frames(error: BaseException | None) -> None:
    """The library never lets go of some of the errors that it has raised, and their frames hold the producer,
    with its threads and sockets."""
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


def _left_s(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.0)


def _discard(producer: Producer) -> None:
    """Ends a producer without waiting for what it holds."""
    with contextlib.suppress(KafkaException, SystemError):
        producer.purge()
        producer.poll(0)
