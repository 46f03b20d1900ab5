"""The log on Kafka: one worker of a consumer group, exactly once by transactions.

Idea: outputs, state records and the position of every partition go into one transaction. The position is the
group's committed offset, with the command offset as its metadata, and the group refuses it from a worker that
it has passed over. So whatever a worker does after it has lost a partition comes to nothing. It is beside the
state as well, and where both are there and differ, that one counts: another group may have gone on.

A partition's state is in the ``state`` topic, which is compacted (``kafka_state``). In which partition of it
follows from their number, which must never change.

What is particular here:

- Offsets have holes, where transactions end and where compaction has been at work.
- After LogFenced the log has to be closed and opened anew.
- While the cluster is away ``poll`` finds nothing; the other calls raise LogUnavailable after ``timeout_s``.
- In a rebalance ``poll`` may take a third of a second longer than it was asked to.
- An ``append_events`` that fails may have appended some of its messages.
- What a commit writes has been handed to the library when ``begin_commit`` returns; a thread of its own then
  waits for the cluster. Whoever loses partitions meanwhile waits for that first.
- Commands are written under an id that all workers share (``kafka_pen``); an ``append_commands`` that raises
  LogFenced leaves the rest of the log as it was.

Not for: reading outputs; consumers do that themselves, with ``isolation.level=read_committed``.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait

from service.log import topics
from service.log.clock import now_ms
from service.log.kafka_library import (
    KAFKA_PYTHON,
    CommandReader,
    GroupReader,
    Mark,
    OptionsOf,
    Placed,
    library,
)
from service.log.kafka_pen import COMMANDS, LASTS_S, Pen
from service.log.kafka_state import States, head_of
from service.log.port import (
    MOST_COMMANDS,
    Commit,
    LogError,
    LogFenced,
    LogUnavailable,
    LogUnusable,
    Message,
    Polled,
    Position,
    Record,
    StateRecord,
    TopicPartition,
)

logger = logging.getLogger("rangewatch")

_DAY_MS = 24 * 60 * 60 * 1000
_SEGMENT_BYTES = 64 << 20
#: The longest that a poll goes without a look at the group.
_TICK_S = 0.25
_CLOSE_S = 2.0


class KafkaLog:
    """``port.Log`` over a cluster (``bootstrap``: ``host:port,...``); see the module.

    ``transactional_id`` belongs to one worker at a time: opening a log with it fences the previous holder.
    A worker that has been silent for ``session_timeout_s`` is passed over by the group.
    ``partitions``, ``replication`` and ``command_history_ms`` are for topics that the log creates.
    ``client`` names the library (``kafka_library``); ``client_options`` gives its options of security
    (``kafka_security``). ``clock_ms`` stamps the records that are written (ms since 1970).
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        transactional_id: str,
        group: str = "rangewatch",
        topic_prefix: str = "",
        partitions: int = 4,
        replication: int = 1,
        max_message_bytes: int = 1_000_000,
        command_history_ms: int = 7 * _DAY_MS,
        timeout_s: float = 20.0,
        session_timeout_s: float = 15.0,
        client: str = KAFKA_PYTHON,
        client_options: OptionsOf = lambda _: {},
        clock_ms: Callable[[], int] = now_ms,
    ) -> None:
        self._group = group
        self._session_timeout_s = session_timeout_s
        self._clock_ms = clock_ms
        self._partitions = partitions
        self._command_history_ms = command_history_ms
        self._library = library(client)
        self._cluster = self._library.cluster(
            bootstrap,
            topic_prefix=topic_prefix,
            replication=replication,
            max_message_bytes=max_message_bytes,
            timeout_s=timeout_s,
            client_options=client_options,
        )
        # Longer than a commit may take, short enough for others not to wait long for a dead worker's.
        lasts_s = 1.5 * timeout_s
        self._transactions = self._library.transactions(self._cluster, transactional_id, lasts_s)
        pen_id = self._cluster.name(topics.COMMANDS)
        self._pen = Pen(self._cluster, self._library.transactions(self._cluster, pen_id, LASTS_S))
        self._appender = self._library.appender(self._cluster)
        self._events: GroupReader | None = None
        self._command_reader: CommandReader | None = None
        self._unread_commands: list[Record] = []
        self._next_command = 0
        self._news = threading.Event()
        self._woken = False
        #: where the state of partitions that are not at rest ended when that was asked for first
        self._state_ends: dict[TopicPartition, int] = {}
        #: of the partitions that this worker has had, as it has found or left them
        self._positions: dict[TopicPartition, Position] = {}
        self._topic_ids: dict[TopicPartition, str | None] = {}
        #: partitions that this worker has and has not started
        self._waiting: set[TopicPartition] = set()
        self._states = States(
            lambda: self._cluster.partition_count(topics.STATE),
            lambda place: self._cluster.ends([place], committed=False)[place],
            self._cluster.records,
        )
        #: ends transactions, one at a time, while the runtime's thread goes on
        self._committing: ThreadPoolExecutor | None = None
        self._under_way: Future[None] | None = None

    def open(self) -> None:
        try:
            self._cluster.open()
            self._make_topics()
            self._transactions.open()
            self._appender.open()
            self._command_reader = self._library.command_reader(self._cluster, topics.COMMANDS)
            self._events = self._library.group_reader(
                self._cluster, self._group, self._session_timeout_s, self._let_end
            )
        except BaseException:
            self.close()
            raise

    def _make_topics(self) -> None:
        ensure = self._cluster.ensure
        ensure(topics.OUTPUTS, partitions=self._partitions)
        compacted: dict[str, object] = {"cleanup.policy": "compact", "segment.bytes": _SEGMENT_BYTES}
        ensure([topics.STATE], partitions=self._partitions, config=compacted)
        history = {"min.compaction.lag.ms": self._command_history_ms}
        ensure([topics.COMMANDS], partitions=1, config=compacted | history)
        if self._cluster.partition_count(topics.COMMANDS) != 1:
            name = self._cluster.name(topics.COMMANDS)
            raise LogUnusable(f"the topic {name} must have one partition, or commands have no order")
        for topic in (topics.STATE, topics.COMMANDS):
            policy = self._cluster.config(topic, "cleanup.policy")
            if policy != "compact":
                raise LogUnusable(
                    f"the topic {self._cluster.name(topic)} has cleanup.policy={policy}: what is kept there"
                    " must not go by age or size; set it to compact"
                )

    def close(self) -> None:
        events, self._events = self._events, None
        commands, self._command_reader = self._command_reader, None
        self._unread_commands, self._next_command = [], 0
        self._state_ends.clear()
        self._positions.clear()
        self._topic_ids.clear()
        self._waiting.clear()
        self._states.clear()
        self._let_end()
        self._under_way = None
        if self._committing is not None:
            self._committing.shutdown(wait=False)
            self._committing = None
        with contextlib.ExitStack() as ending:  # in reverse, and all of it whatever happens
            ending.enter_context(contextlib.suppress(LogError))
            ending.callback(self._cluster.close)
            ending.callback(self._appender.close)
            ending.callback(self._transactions.close)
            ending.callback(self._pen.close)
            if commands is not None:
                ending.callback(commands.close)
            if events is not None:
                ending.callback(events.close, _CLOSE_S)
        self.wake()

    # ---- partitions

    def make_topic(self, topic: str) -> None:
        self._cluster.ensure([topic], partitions=self._partitions)

    def subscribe(self, topics: Iterable[str]) -> None:
        wanted = set(topics)
        self._cluster.ensure(wanted, partitions=self._partitions)
        self._reader.subscribe(wanted)

    @property
    def settled(self) -> bool:
        return self._reader.settled

    def partitions(self, topic: str) -> int:
        return self._cluster.partition_count(topic)

    def at_rest(self, partition: TopicPartition) -> bool:
        state = self._states.place_of(partition)
        end = self._cluster.ends([state], committed=False)[state]  # also tells whether the cluster is away
        end = self._state_ends.setdefault(partition, end)
        # The end first: while it is held back, nobody waits for the group's answer.
        if self._cluster.ends([state], committed=True)[state] < end or not self._reader.rests(partition):
            return False
        del self._state_ends[partition]
        return True

    def position(self, partition: TopicPartition) -> Position | None:
        # The group first: once it has answered, nobody who had the partition can commit any more.
        noted = self._reader.committed(partition)
        position, then = self._positions.get(partition), self._topic_ids.get(partition)
        if position is None or noted != _mark(position):  # else it is as this worker has left it
            position, then = self._beside_state(partition, noted)
        topic_id = self._cluster.topic_id(partition.topic)
        if position is not None:
            if position.event and then and topic_id and then != topic_id:
                raise LogUnusable(
                    f"the topic {self._cluster.name(partition.topic)} was deleted and made anew: its id is"
                    f" {topic_id}, and was {then} when events of partition {partition.partition} up to"
                    f" {position.event} were processed; use another source, or another topic_prefix"
                )
            self._positions[partition] = position
        self._topic_ids[partition] = topic_id
        return position

    def _beside_state(
        self, partition: TopicPartition, noted: Mark | None
    ) -> tuple[Position | None, str | None]:
        """The position of a partition, and the id of the topic that it is of, as far as that is known.

        What the group has noted counts only where nothing is beside the state. A group forgets (one without
        members after ``offsets.retention.minutes``, every one when the topic is deleted), and where another
        one has gone on it is behind."""
        beside = self._states.living(partition, self._waiting).get(_POSITION)
        place = f"{self._cluster.name(partition.topic)}/{partition.partition}"
        if beside is not None:
            event, command, *topic_id = beside.decode().split()  # without an id in earlier versions
            position = Position(int(event), int(command))
            if noted is not None and noted != _mark(position):
                logger.warning(
                    "%s goes on where its state is, at event %d and command %d; event %d and command %s,"
                    " which the group %s has committed, do not count: another group has gone on since, or"
                    " they were set by hand",
                    *(place, *position, noted.offset, noted.metadata or "none", self._group),
                )
            return position, topic_id[0] if topic_id else None
        if noted is None:
            return None, None
        if not noted.metadata.isdigit():
            raise LogUnusable(
                f"the offset of {place} in the group {self._group} was not "
                "committed by this program (no command offset): commit none by hand, or use another group"
            )
        return Position(noted.offset, int(noted.metadata)), None

    def restore(self, partition: TopicPartition) -> Iterator[StateRecord]:
        living = self._states.living(partition, self._waiting)
        living.pop(_POSITION, None)
        return itertools.starmap(StateRecord, living.items())

    def beginning(self, partition: TopicPartition) -> int:
        return self._cluster.start_of(partition)

    def start(self, partition: TopicPartition, event_offset: int | None) -> int:
        offset = self.beginning(partition) if event_offset is None else event_offset
        self._reader.start(partition, offset)
        self._waiting.discard(partition)
        self._states.drop(partition)
        return offset

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self._reader.pause(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self._reader.resume(partitions)

    # ---- reading

    def commands(self, start: int, end: int) -> Iterator[Record]:
        return self._cluster.records(COMMANDS, start, end)

    def seek_commands(self, offset: int) -> None:
        self._unread_commands = []
        self._next_command = offset
        self._commands.seek(offset)

    def end_of_commands(self) -> int:
        # What this worker has just written may not be visible yet; to itself it must be.
        return max(self._cluster.ends([COMMANDS], committed=True)[COMMANDS], self._pen.end)

    def poll(self, *, timeout_s: float, max_records: int) -> Polled:
        deadline = time.monotonic() + timeout_s
        events, commands = self._reader, self._commands
        while True:
            self._news.clear()
            # What one has returned is kept when the other one fails.
            self._unread_commands = self._unread_commands or commands.poll(MOST_COMMANDS)
            chunks = events.poll(max_records)
            left_s = deadline - time.monotonic()
            moved = commands.position != self._next_command
            if chunks or moved or events.changed or self._woken or left_s <= 0:
                self._woken = False
                self._next_command = commands.position
                taken, self._unread_commands = self._unread_commands, []
                assignment = events.take_assignment()
                for partition in assignment.lost:
                    self._state_ends.pop(partition, None)
                    self._waiting.discard(partition)
                    self._states.drop(partition)
                self._waiting.update(assignment.gained)
                return Polled(assignment, chunks, taken, self._next_command)
            events.wait(commands, self._news, min(left_s, _TICK_S))

    def answers(self) -> bool:
        return self._cluster.answers()

    def wake(self) -> None:
        self._woken = True
        self._news.set()

    # ---- writing

    def commit(self, commit: Commit) -> None:
        self._sent(commit)()

    def begin_commit(self, commit: Commit) -> Future[None]:
        end = self._sent(commit)
        self._committing = self._committing or ThreadPoolExecutor(1, thread_name_prefix="kafka-commit")
        self._under_way = self._committing.submit(end)
        return self._under_way

    def _sent(self, commit: Commit) -> Callable[[], None]:
        """Sends what a commit writes; what is returned ends it."""
        events = self._reader
        gone = (commit.positions.keys() | commit.state.keys()) - events.owned
        if gone or (commit.positions and events.membership is None):
            raise LogFenced(f"the group has passed this worker over (lost: {sorted(gone)})")
        marks = {partition: _mark(position) for partition, position in commit.positions.items()}
        return self._transactions.begin(
            commit.outputs, self._state(commit), marks, events.membership, self._clock_ms()
        )

    def _let_end(self) -> None:
        """The commit that is under way, if any, has ended then: the group takes its positions from whom they
        belong to, and until it deals anew that is this worker."""
        if self._under_way is not None:
            wait([self._under_way])

    def _state(self, commit: Commit) -> Iterator[Placed]:
        for partition, records in commit.state.items():
            place, head = self._states.place_of(partition), head_of(partition)
            for record in records:
                yield Placed(place, head + record.key, record.value)
        for partition, position in commit.positions.items():
            # Should the commit come to nothing, the group does not have it either, and it does not count.
            self._positions[partition] = position
            key, topic_id = head_of(partition) + _POSITION, self._topic_ids.get(partition)
            written = b"%d %d" % position + (f" {topic_id}".encode() if topic_id else b"")
            yield Placed(self._states.place_of(partition), key, written)

    def append_commands(self, commands: Iterable[Message], *, after: int) -> list[int]:
        messages = (Placed(COMMANDS, key, value) for key, value, _ in commands)
        return self._pen.append(messages, after, self._clock_ms())

    # ---- any thread

    def append_events(self, topic: str, messages: Sequence[Message]) -> list[tuple[int, int]]:
        self._cluster.ensure([topic], partitions=self._partitions)
        return self._appender.append(topic, messages, self._clock_ms())

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._cluster.ends(partitions, committed=True)

    def gone(self, topic: str) -> tuple[int, Mapping[str, int]]:
        raise NotImplementedError("outputs on Kafka are read with a consumer of one's own")

    def read(
        self, topic: str, *, after: int, limit: int, most_bytes: float = math.inf
    ) -> tuple[list[Record], int]:
        raise NotImplementedError("outputs on Kafka are read with a consumer of one's own")

    # ---- beneath

    @property
    def _reader(self) -> GroupReader:
        if self._events is None:
            raise LogUnavailable("the log is closed")
        return self._events

    @property
    def _commands(self) -> CommandReader:
        if self._command_reader is None:
            raise LogUnavailable("the log is closed")
        return self._command_reader


#: Under this key, which no record of the engine has, is the position to which a partition's state belongs.
_POSITION = b"@"


def _mark(position: Position) -> Mark:
    return Mark(position.event, str(position.command))
