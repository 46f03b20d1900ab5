"""What the Kafka log asks of a client library, and which library there is.

Idea: ``kafka`` holds all that makes the log exact; what a library does its own way lies behind these
protocols. Two fulfil them: kafka-python (``kafka_client``, ``kafka_reader``, ``kafka_writer``), which is
always there, and confluent-kafka (``confluent_client``, ``confluent_reader``, ``confluent_writer``), native
and some times as fast, where it is installed. One suite holds both to the same behaviour.

Every method raises the port's errors and takes the port's names of topics. Not for: what a commit is made of.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from importlib.util import find_spec
from typing import Any, NamedTuple, Protocol

from service.log.port import Assignment, Chunk, LogFenced, Message, Output, Record, TopicPartition

AUTO = "auto"
KAFKA_PYTHON = "kafka-python"
CONFLUENT_KAFKA = "confluent-kafka"
#: What is said beside an error of a connection that has to be secure.
LOOKS_THE_SAME = "; a wrong password, certificate or security protocol looks the same"
_PACKAGES = {KAFKA_PYTHON: "kafka", CONFLUENT_KAFKA: "confluent_kafka"}

OptionsOf = Callable[[str], Mapping[str, Any]]
"""The options of security that a library is to have, by its name, as it names them."""


class Mark(NamedTuple):
    """An offset that a group commits, and what it notes beside it."""

    offset: int
    metadata: str


class Placed(NamedTuple):
    """A message that goes into a given partition."""

    partition: TopicPartition
    key: bytes | None
    value: bytes | None


class OutcomeUnknown(LogFenced):
    """Nobody knows whether a transaction has been committed. ``offsets``: of its messages, in order, where
    ``append`` has written them."""

    def __init__(self, why: object, offsets: list[int]) -> None:
        super().__init__(f"it is not known whether a commit has been made ({why})")
        self.offsets = offsets


class Cluster(Protocol):
    """A Kafka cluster as one worker sees it. Any thread may call ``partition_count`` and ``ends``. Made with
    ``client_options``, which gives the options of security that a library is to have. ``timeout_s``: how long
    it may take to answer."""

    timeout_s: float

    def open(self) -> None: ...

    def close(self) -> None: ...

    def answers(self) -> bool:
        """Whether a broker answers a client that comes anew, found out within a second or two."""

    def name(self, topic: str) -> str:
        """The cluster's name of a topic."""

    def ensure(
        self, topics: Iterable[str], *, partitions: int, config: Mapping[str, object] | None = None
    ) -> None:
        """Creates those topics that the cluster lacks, and returns when all of them can be used."""

    def partition_count(self, topic: str) -> int:
        """The number of partitions as of the first question. Raises LogUnavailable for a missing topic."""

    def topic_id(self, topic: str) -> str | None:
        """The id of a topic as the cluster has it now, another one for a topic that is deleted and made anew;
        None of a cluster that gives none (Kafka before 2.8). Raises LogUnavailable for a missing topic."""

    def config(self, topic: str, setting: str) -> str:
        """One setting of a topic, as the cluster has it now."""

    def start_of(self, partition: TopicPartition) -> int:
        """The offset of the first record that the cluster still holds."""

    def ends(self, partitions: Iterable[TopicPartition], *, committed: bool) -> dict[TopicPartition, int]:
        """The offset after the last record, or after the last that no open transaction holds back."""

    def records(self, partition: TopicPartition, start: int, end: int) -> Iterator[Record]:
        """The committed records with ``start <= offset < end``, in order, by a consumer of their own. Waits
        for transactions that are open below ``end``; raises LogUnavailable when nothing moves."""


class CommandReader(Protocol):
    """The committed commands from an offset on. Before the first ``seek`` there are none."""

    def close(self) -> None: ...

    def seek(self, offset: int) -> None: ...

    def poll(self, max_records: int) -> list[Record]:
        """Commands that have come in. Waits for nothing."""

    @property
    def position(self) -> int:
        """Where the next poll goes on: past what it has returned, and past transactions' own marks."""


class GroupReader(Protocol):
    """The events of those partitions that the group gives to this worker; see ``kafka_reader``. Made of a
    cluster, the group's name, the silence (seconds) after which the group passes over a worker, and what is
    to be done, by the thread that polls, before partitions are lost."""

    @property
    def owned(self) -> AbstractSet[TopicPartition]: ...

    @property
    def membership(self) -> Any:
        """The library's word for the generation that the reported assignment belongs to, or None."""

    @property
    def settled(self) -> bool:
        """Whether the group has dealt out what is subscribed to, and all of it has been reported."""

    @property
    def changed(self) -> bool:
        """Whether there is something for ``take_assignment``."""

    def close(self, timeout_s: float) -> None:
        """Leaves the group, so that the others need not wait for the session to end."""

    def subscribe(self, topics: Iterable[str]) -> None: ...

    def poll(self, max_records: int) -> list[Chunk]:
        """Events that have come in. Waits for nothing but, for a moment, the group. Raises LogFenced where
        what comes next is gone."""

    def wait(self, commands: Any, news: threading.Event, timeout_s: float) -> None:
        """Waits until ``news`` is set, or events or commands may have come in; may return early.
        ``commands`` is the command reader of the same library."""

    def take_assignment(self) -> Assignment:
        """What has been gained and lost since the last call."""

    def committed(self, partition: TopicPartition) -> Mark | None:
        """The offset that the group has committed. Waits for transactions that are about to move it."""

    def rests(self, partition: TopicPartition) -> bool:
        """Whether ``committed`` would answer at once; found out within a moment."""

    def start(self, partition: TopicPartition, offset: int) -> None: ...

    def pause(self, partitions: Iterable[TopicPartition]) -> None: ...

    def resume(self, partitions: Iterable[TopicPartition]) -> None: ...


class Transactions(Protocol):
    """One transactional producer at a time, used by one thread after the other; see ``kafka_writer``.

    Both writers raise LogUnavailable or LogUnusable when nothing has been written, LogFenced when nothing
    has been and nothing must be, OutcomeUnknown when nobody knows. ``ts`` stamps the messages, ms since 1970.
    """

    def open(self) -> None:
        """Fences whoever used the transactional id before, and ends what they left open."""

    @property
    def held(self) -> bool:
        """Whether the next write goes on with the producer of the one before, or of ``open``."""

    def close(self) -> None: ...

    def begin(
        self,
        outputs: Sequence[Output],
        state: Iterable[Placed],
        marks: Mapping[TopicPartition, Mark],
        membership: Any,
        ts: int,
    ) -> Callable[[], None]:
        """Sends messages in a transaction. What is returned ends it, with the marks of the group: it is
        called once, by any thread, and nothing else is asked of this until it has come back."""

    def append(self, messages: Iterable[Placed], ts: int) -> list[int]:
        """Writes messages in one transaction; returns their offsets in order."""


class Appender(Protocol):
    """Writes without transactions, from any thread."""

    def open(self) -> None: ...

    def close(self) -> None: ...

    def append(self, topic: str, messages: Sequence[Message], ts: int) -> list[tuple[int, int]]:
        """Appends, and returns (partition, offset) of each when all are safe. If it raises, some may be."""


class Library(NamedTuple):
    """The parts of one library; those that take a cluster take the one that the same library made."""

    name: str
    cluster: Callable[..., Cluster]
    group_reader: Callable[..., GroupReader]
    command_reader: Callable[..., CommandReader]
    transactions: Callable[..., Transactions]
    appender: Callable[..., Appender]


def chosen(name: str) -> str:
    """The library that a setting stands for: ``auto`` is the native one where it is installed."""
    if name != AUTO:
        return name
    return CONFLUENT_KAFKA if is_installed(CONFLUENT_KAFKA) else KAFKA_PYTHON


def is_installed(name: str) -> bool:
    """Whether this environment has what a name stands for."""
    return find_spec(_PACKAGES[chosen(name)]) is not None


def library(name: str) -> Library:
    """The parts of a library. Imports confluent-kafka only where it is meant, and raises ImportError where it
    is not installed."""
    if chosen(name) == CONFLUENT_KAFKA:
        from service.log import confluent_client, confluent_reader, confluent_writer

        return Library(
            CONFLUENT_KAFKA,
            confluent_client.Cluster,
            confluent_reader.GroupReader,
            confluent_reader.CommandReader,
            confluent_writer.Transactions,
            confluent_writer.Appender,
        )
    from service.log import kafka_client, kafka_reader, kafka_writer

    return Library(
        KAFKA_PYTHON,
        kafka_client.Cluster,
        kafka_reader.GroupReader,
        kafka_reader.CommandReader,
        kafka_writer.Transactions,
        kafka_writer.Appender,
    )
