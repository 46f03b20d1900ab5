"""The log port: what the runtime asks of a log, and nothing more.

Idea: everything durable is a log. Events come in on *event topics* (one a source), changes of the query set
on the *command topic* (one partition, so commands are totally ordered), results go out on *output topics*,
and the state of an event partition lives in keyed *state records*. One call, ``commit``, makes outputs,
state and position durable together or not at all. That is the whole of exactly-once. It may be begun alone
(``begin_commit``), so that the next events are read and processed while it is under way.

Who calls: the runtime's one thread calls everything; other threads may call only ``append_events``,
``read`` and ``end_offsets``. Nothing here decodes a payload or knows what a query is.

Adapters: ``sqlite`` (one file, no server, one partition a topic) and ``kafka``. Both pass one contract suite.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import NamedTuple, Protocol

#: A commit that has been made.
COMMITTED: Future[None] = Future()
COMMITTED.set_result(None)

#: Commands that one poll returns: they hold events up, so many of them must not come at once.
MOST_COMMANDS = 1_000


class LogError(Exception):
    """The log could not do what was asked. The tree of what can go wrong::

    LogError
    |-- LogUnavailable   it may work later (broker away, file locked): pause and try again
    |-- LogFenced        another worker has taken over, or what comes next is gone: forget what is
    |                    uncommitted, close and open anew
    |-- LogMoved         somebody else has appended commands, or is about to: catch up and judge again
    `-- LogUnusable      it will not work until a person acts (torn file, newer version, disk full)
    """


class LogUnavailable(LogError):
    pass


class LogFenced(LogError):
    pass


class LogMoved(LogError):
    pass


class LogUnusable(LogError):
    pass


class TopicPartition(NamedTuple):
    topic: str
    partition: int


class Position(NamedTuple):
    """How far a partition has come: the next event offset and the next command offset."""

    event: int
    command: int


class Record(NamedTuple):
    """One message as it lies in the log. ``ts`` is the log's own timestamp, ms since 1970."""

    offset: int
    ts: int
    key: bytes | None
    value: bytes | None


class Message(NamedTuple):
    """One message to be written. ``partition`` None: chosen by the hash of the key (murmur2, as Kafka's
    own clients do), or round robin without a key."""

    key: bytes | None
    value: bytes | None
    partition: int | None = None


class Output(NamedTuple):
    topic: str
    key: bytes | None
    value: bytes


class StateRecord(NamedTuple):
    """One keyed state record of a partition; a ``value`` of None removes the key."""

    key: bytes
    value: bytes | None


class Commit(NamedTuple):
    """All that one step of the runtime makes durable, at once or not at all.

    ``positions`` names every partition whose position moves; ``state`` only those whose state changed.
    """

    outputs: Sequence[Output]
    state: Mapping[TopicPartition, Sequence[StateRecord]]
    positions: Mapping[TopicPartition, Position]


class Chunk(NamedTuple):
    """Events of one partition, in order; offsets may have holes. ``next_offset`` is where to go on, which
    may lie past the last record (aborted transactions, compaction)."""

    partition: TopicPartition
    records: Sequence[Record]
    next_offset: int


class Assignment(NamedTuple):
    """Partitions gained and lost since the last poll. Lost ones must be forgotten, not committed."""

    gained: Sequence[TopicPartition]
    lost: Sequence[TopicPartition]


class Polled(NamedTuple):
    """``next_command`` is where the command reader stands, which may lie past the last command."""

    assignment: Assignment
    chunks: Sequence[Chunk]
    commands: Sequence[Record]
    next_command: int


class Log(Protocol):
    """See the module. Every method may raise LogUnavailable, LogFenced or LogUnusable."""

    def open(self) -> None:
        """Connects and creates the fixed topics that are missing (outputs, commands, state)."""

    def close(self) -> None:
        """Leaves the group and closes. Uncommitted work is gone. Idempotent."""

    def make_topic(self, topic: str) -> None:
        """Creates an event topic if it is missing. Raises LogUnusable where it cannot be one, or cannot be
        read: such a topic must not be subscribed to."""

    def subscribe(self, topics: Iterable[str]) -> None:
        """Sets the event topics to read, creating those that are missing; kept across calls.

        The next polls report the partitions gained. A gained partition yields no chunk until ``start``."""

    def partitions(self, topic: str) -> int:
        """Number of partitions of an event topic (1 on sqlite)."""

    def at_rest(self, partition: TopicPartition) -> bool:
        """Whether nothing is under way any more that ``position`` and ``restore`` of a gained partition would
        wait for: the transaction of a worker that had it and died, until it comes back or times out. Found
        out within a moment; to be asked again."""

    def position(self, partition: TopicPartition) -> Position | None:
        """The committed position, or None for a partition that never had one."""

    def restore(self, partition: TopicPartition) -> Iterator[StateRecord]:
        """All living state records of a partition, each key once, in no particular order."""

    def beginning(self, partition: TopicPartition) -> int:
        """The offset of the first event that the log still holds; the end where it holds none."""

    def start(self, partition: TopicPartition, event_offset: int | None) -> int:
        """Begins to deliver a gained partition from that offset (None: from its beginning); returns it.
        Where the offset is before the beginning, or the beginning comes to be past what was delivered, polls
        raise LogFenced (Kafka) or go on at the beginning."""

    @property
    def settled(self) -> bool:
        """Whether the partitions of the subscribed topics have been handed out (some may be another's)."""

    def commands(self, start: int, end: int) -> Iterator[Record]:
        """The committed commands with ``start <= offset < end`` that the log still holds, in order. Does not
        move the reader that ``poll`` uses."""

    def seek_commands(self, offset: int) -> None:
        """The command offset that the next poll reads from. Before the first call polls yield none."""

    def end_of_commands(self) -> int:
        """The offset after the last committed command: a reader that is there has caught up."""

    def poll(self, *, timeout_s: float, max_records: int) -> Polled:
        """Waits at most ``timeout_s`` for events or commands; returns early when ``wake`` is called.
        Only committed records are seen. At most ``max_records`` events are returned, and ``MOST_COMMANDS``
        commands."""

    def answers(self) -> bool:
        """Whether the log can be reached, found out within a second or two. After LogUnavailable."""

    def wake(self) -> None:
        """Makes a running or the next ``poll`` return at once. Callable from any thread."""

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Stops delivering these partitions (they stay assigned)."""

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Undoes ``pause``."""

    def commit(self, commit: Commit) -> None:
        """Makes it all durable in one transaction, or raises and nothing of it is."""

    def begin_commit(self, commit: Commit) -> Future[None]:
        """As ``commit``, which it begins: the future is done when all is durable. Either raises what
        ``commit`` would. Until the future is done positions and state are not to be asked for, nor is another
        commit to be begun; what a poll reports lost was lost after that."""

    def append_commands(self, commands: Iterable[Message], *, after: int) -> list[int]:
        """Appends to the command topic in one transaction of its own; returns the offsets in order.

        ``after`` is the end of the command log as the caller has seen it. Raises LogMoved, and nothing has
        been written, where it is not the end any more or another is writing; to be called again after the
        next poll, with what was judged anew if that has brought commands. Raises LogFenced where nobody knows
        whether it has been written. Commands that are made as they are asked for are made while nobody else
        can append; what making them raises is passed on, and nothing has been written."""

    def append_events(self, topic: str, messages: Sequence[Message]) -> list[tuple[int, int]]:
        """Appends durably to an event topic; returns (partition, offset) of each. Any thread."""

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last event of each partition, for the lag."""

    def gone(self, topic: str) -> tuple[int, Mapping[str, int]]:
        """From which offset on an output topic still has all its records, and how many before it have been
        removed, by whose they were (a log is told that when it is made). Any thread. Raises
        NotImplementedError as ``read``."""

    def read(
        self, topic: str, *, after: int, limit: int, most_bytes: float = math.inf
    ) -> tuple[list[Record], int]:
        """Up to ``limit`` records of an output topic with ``offset >= after``, no more once their values come
        to ``most_bytes``, and the ``after`` of the next call: the same where there are none. Any thread.
        Raises NotImplementedError where consumers read the log themselves (Kafka)."""
