"""A log in memory, for simulations: what it stores survives the worker, and every call is a place to die.

``Store`` is the disk. ``MemoryLog`` is one worker's connection to it; it follows ``service.log.port`` and
raises ``Died`` at the call that ``Fate`` names, before or after the call took effect.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field

from service.log.port import (
    Assignment,
    Chunk,
    Commit,
    LogError,
    LogMoved,
    LogUnusable,
    Message,
    Output,
    Polled,
    Position,
    Record,
    StateRecord,
    TopicPartition,
)


class Died(BaseException):
    """The process is gone; nothing of it goes on."""


@dataclass
class Fate:
    """Dies at call number ``at`` (0 = never counted down), before or after its effect; counts all calls.
    With ``error`` the call raises that instead. ``then`` is what comes after that, counted from the first
    call too."""

    at: int = -1
    after: bool = False
    error: Exception | None = None
    calls: int = 0
    names: list[str] = field(default_factory=list)
    then: Fate | None = None

    def meet(self, name: str, *, after: bool) -> None:
        if not after:
            self.calls += 1
            self.names.append(name)
        if self.calls - 1 == self.at and after == self.after:
            error, then, self.at = self.error, self.then, -1
            if then is not None:
                self.at, self.after, self.error, self.then = then.at, then.after, then.error, None
            if error is not None:
                raise error
            raise Died(f"{name}, {'after' if after else 'before'} its effect")


@dataclass
class Store:
    partitions: int = 2
    events: dict[TopicPartition, list[Record]] = field(default_factory=dict)
    commands: list[Record] = field(default_factory=list)
    state: dict[TopicPartition, dict[bytes, bytes]] = field(default_factory=lambda: defaultdict(dict))
    positions: dict[TopicPartition, Position] = field(default_factory=dict)
    outputs: list[Output] = field(default_factory=list)
    #: topics that cannot be had
    refused: set[str] = field(default_factory=set)

    def topic(self, topic: str) -> list[TopicPartition]:
        found = [TopicPartition(topic, number) for number in range(self.partitions)]
        for partition in found:
            self.events.setdefault(partition, [])
        return found

    def append(self, topic: str, message: Message) -> tuple[int, int]:
        number = (
            message.partition if message.partition is not None else sum(message.key or b"") % self.partitions
        )
        records = self.events[self.topic(topic)[number]]
        records.append(Record(len(records), 1000, message.key, message.value))
        return number, len(records) - 1


class MemoryLog:
    def __init__(
        self, store: Store, fate: Fate | None = None, *, on_commit: Callable[[], None] | None = None
    ) -> None:
        self.store = store
        self.fate = fate or Fate()
        self._on_commit = on_commit
        self._topics: set[str] = set()
        self._gained: list[TopicPartition] = []
        self._lost: list[TopicPartition] = []
        self._readers: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._command_reader = 0
        #: what a rebalance that goes on has yet to give; None: none goes on
        self._to_come: list[TopicPartition] | None = None
        #: partitions with a transaction of a worker that has died
        self.restless: set[TopicPartition] = set()
        #: topics that the group has not seen yet
        self.unseen: set[str] = set()

    def rebalance(self) -> None:
        """Everything is lost, and gained again by the same worker, as in a group whose topics change."""
        self._lost += self._readers
        self._gained += self._readers
        self._readers.clear()

    def begin_rebalance(self) -> None:
        """Everything is lost, and what is gained comes later."""
        self._lost += self._readers
        self._to_come = [*self._readers]
        self._readers.clear()

    @property
    def has_told(self) -> bool:
        """Whether a poll has told of all that is lost."""
        return not self._lost

    def end_rebalance(self) -> None:
        assert self._to_come is not None
        self._gained += self._to_come
        self._to_come = None

    def see(self, topic: str) -> None:
        """The group sees a topic that it had not, and deals out what it has."""
        self.unseen.remove(topic)
        self._gained += self.store.topic(topic)

    def give_away(self, partition: TopicPartition) -> None:
        """Another worker has a partition from now on."""
        self._lost.append(partition)
        del self._readers[partition]

    @property
    def settled(self) -> bool:
        return not self._gained and self._to_come is None

    def open(self) -> None:
        self.fate.meet("open", after=False)

    def close(self) -> None:
        self._topics.clear()
        self._gained.clear()
        self._readers.clear()
        self._paused.clear()

    def make_topic(self, topic: str) -> None:
        self.fate.meet("make_topic", after=False)
        if topic in self.store.refused:
            raise LogUnusable(f"{topic} is refused")

    def subscribe(self, topics: Iterable[str]) -> None:
        self.fate.meet("subscribe", after=False)
        assert self.store.refused.isdisjoint(topics)
        for topic in topics:
            if topic not in self._topics:
                self._topics.add(topic)
                if topic not in self.unseen:
                    self._gained += self.store.topic(topic)

    def partitions(self, topic: str) -> int:
        return self.store.partitions

    def at_rest(self, partition: TopicPartition) -> bool:
        self.fate.meet("at_rest", after=False)
        return partition not in self.restless

    def position(self, partition: TopicPartition) -> Position | None:
        self.fate.meet("position", after=False)
        assert partition not in self.restless, "it would have to wait"
        return self.store.positions.get(partition)

    def restore(self, partition: TopicPartition) -> Iterator[StateRecord]:
        self.fate.meet("restore", after=False)
        return iter([StateRecord(key, value) for key, value in self.store.state[partition].items()])

    def beginning(self, partition: TopicPartition) -> int:
        return 0

    def start(self, partition: TopicPartition, event_offset: int | None) -> int:
        self._readers[partition] = event_offset or 0
        self._paused.discard(partition)
        return event_offset or 0

    def seek_commands(self, offset: int) -> None:
        self._command_reader = offset

    def end_of_commands(self) -> int:
        return len(self.store.commands)

    def commands(self, start: int, end: int) -> Iterator[Record]:
        return iter(self.store.commands[start:end])

    def poll(self, *, timeout_s: float, max_records: int) -> Polled:
        self.fate.meet("poll", after=False)
        gained, self._gained = self._gained, []
        lost, self._lost = self._lost, []
        commands = self.store.commands[self._command_reader :]
        self._command_reader += len(commands)
        chunks = []
        for partition, offset in self._readers.items():
            records = self.store.events[partition][offset : offset + max_records]
            if records and partition not in self._paused:
                self._readers[partition] = offset + len(records)
                chunks.append(Chunk(partition, records, offset + len(records)))
        return Polled(Assignment(gained, lost), chunks, commands, self._command_reader)

    def answers(self) -> bool:
        return True

    def wake(self) -> None:
        pass

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self._paused.update(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self._paused.difference_update(partitions)

    def commit(self, commit: Commit) -> None:
        self.fate.meet("commit", after=False)
        self.store.outputs += commit.outputs
        for partition, records in commit.state.items():
            for key, value in records:
                if value is None:
                    self.store.state[partition].pop(key, None)
                else:
                    self.store.state[partition][key] = value
        self.store.positions.update(commit.positions)
        self.fate.meet("commit", after=True)

    def begin_commit(self, commit: Commit) -> Future[None]:
        done: Future[None] = Future()
        try:
            self.commit(commit)
        except LogError as error:
            done.set_exception(error)
        else:
            done.set_result(None)
        return done

    def append_commands(self, commands: Iterable[Message], *, after: int) -> list[int]:
        self.fate.meet("append_commands", after=False)
        first = len(self.store.commands)
        if after < first:
            raise LogMoved(f"the log ends at {first}")
        self.store.commands += [
            Record(first + place, 1000, message.key, message.value) for place, message in enumerate(commands)
        ]
        self.fate.meet("append_commands", after=True)
        return list(range(first, len(self.store.commands)))

    def append_events(self, topic: str, messages: Sequence[Message]) -> list[tuple[int, int]]:
        self.fate.meet("append_events", after=False)
        places = [self.store.append(topic, message) for message in messages]
        self.fate.meet("append_events", after=True)
        return places

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {partition: len(self.store.events[partition]) for partition in partitions}

    def gone(self, topic: str) -> tuple[int, Mapping[str, int]]:
        return 0, {}

    def read(
        self, topic: str, *, after: int, limit: int, most_bytes: float = math.inf
    ) -> tuple[list[Record], int]:
        raise NotImplementedError


class _UnderWay(Future[None]):
    """A commit that ends when it is waited for."""

    def __init__(self, end: Callable[[], None]) -> None:
        super().__init__()
        self._end = end

    def result(self, timeout: float | None = None) -> None:
        if not self.done():
            try:
                self._end()
            except LogError as error:
                self.set_exception(error)
            else:
                self.set_result(None)
        super().result(timeout)


class SlowLog(MemoryLog):
    """A log whose commits are under way for a while. One that has begun is made when it is waited for, as
    late as can be."""

    _under_way: _UnderWay | None = None

    def commit(self, commit: Commit) -> None:
        self._require_calm()
        super().commit(commit)

    def begin_commit(self, commit: Commit) -> Future[None]:
        self._require_calm()
        self._under_way = _UnderWay(self._begun(commit))
        return self._under_way

    def _begun(self, commit: Commit) -> Callable[[], None]:
        """Begins a commit; what is returned ends it."""
        return lambda: MemoryLog.commit(self, commit)

    def _require_calm(self) -> None:
        assert self._under_way is None or self._under_way.done(), "a commit is under way"

    def _let_end(self) -> None:
        if self._under_way is not None:
            with suppress(LogError):
                self._under_way.result()

    def poll(self, *, timeout_s: float, max_records: int) -> Polled:
        if self._lost:
            self._let_end()
        return super().poll(timeout_s=timeout_s, max_records=max_records)

    def close(self) -> None:
        self._let_end()
        super().close()

    def position(self, partition: TopicPartition) -> Position | None:
        self._require_calm()
        return super().position(partition)

    def restore(self, partition: TopicPartition) -> Iterator[StateRecord]:
        self._require_calm()
        return super().restore(partition)


class SecretiveLog(SlowLog):
    """One whose commits are made at once, which nobody hears of until somebody waits for it."""

    def _begun(self, commit: Commit) -> Callable[[], None]:
        error: LogError | None = None
        try:
            super().commit(commit)
        except LogError as raised:
            error = raised

        def end() -> None:
            if error is not None:
                raise error

        return end
