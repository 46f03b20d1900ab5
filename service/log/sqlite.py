"""The embedded log: one SQLite file, no server, one partition a topic.

Idea: a topic is a range of rows ``(topic, offset)`` and a commit is one SQLite transaction, so all that the
port promises of a commit is what SQLite promises of a transaction. Offsets of a topic are contiguous.

Invariant: ``_ends`` holds the next offset of every topic as committed. Only a thread that holds ``_writing``
moves it, after COMMIT; so a poll that finds nothing new there need not touch the file.

What is acknowledged survives the death of the process (``kill -9`` included). When the machine loses power
the newest commits may be gone, whole ones from the end and never a part of one: outputs, state and position
go back together, so the service goes on correctly from there, but a producer whose events were among them
has to send them again. (WAL with ``synchronous=NORMAL``: no fsync a commit.)

Not for: several processes, or several partitions. That is Kafka.
"""

from __future__ import annotations

import contextlib
import math
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from itertools import chain, count
from operator import itemgetter
from pathlib import Path

from service.log import topics
from service.log.clock import now_ms
from service.log.port import (
    COMMITTED,
    MOST_COMMANDS,
    Assignment,
    Chunk,
    Commit,
    LogMoved,
    LogUnavailable,
    Message,
    Polled,
    Position,
    Record,
    StateRecord,
    TopicPartition,
)
from service.log.sqlite_file import LogFile

_SELECT = "SELECT offset, ts, key, value FROM records WHERE topic = ? AND offset >= ? ORDER BY offset LIMIT ?"
#: Rows of a topic lie before those of the next id. To append in front of large ones makes SQLite balance its
#: tree at every row, fifteen times slower, and events may be large: their topics come before all others.
_FIXED = (*topics.OUTPUTS, topics.COMMANDS)
_ROWS_AT_ONCE = 64
_INSERT = "INSERT INTO records VALUES (?, ?, ?, ?, ?)"
#: Each statement lets other threads have the interpreter, and may wait for it afterwards: few statements.
_INSERT_MANY = _INSERT + ", (?, ?, ?, ?, ?)" * (_ROWS_AT_ONCE - 1)
_COMMANDS_AT_ONCE = 1_000
#: What is read of one topic at a time, and the message that goes over it.
_BYTES_AT_ONCE = 8 << 20
_TRIMMED_AT_ONCE = 10_000
_BYTES = frozenset({bytes, type(None)})
_key_of, _value_of = itemgetter(2), itemgetter(3)
_FIRST = "SELECT offset, ts FROM records WHERE topic = ? ORDER BY offset LIMIT 1"
_GONE = (
    "CREATE TABLE IF NOT EXISTS gone (topic INTEGER, owner TEXT, count INTEGER, PRIMARY KEY (topic, owner))"
)
_COUNT_GONE = "INSERT INTO gone VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET count = count + excluded.count"
_FIRST_KEPT = "SELECT min(offset) FROM records WHERE topic = ? AND offset < ? AND ts >= ?"


class SqliteLog:
    """``port.Log`` over one file; see the module. ``clock_ms`` stamps the records (ms since 1970).

    Events that were processed and output records that are older than ``keep_ms`` go as new ones come (None:
    none goes). The file does not shrink by that: what comes next takes the room. ``owner_of`` says of the
    value of an output record whose it is, None if nobody's: what goes is counted by that.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        max_message_bytes: int = 1_000_000,
        keep_ms: int | None = None,
        owner_of: Callable[[bytes], str | None] = lambda value: None,
        clock_ms: Callable[[], int] = now_ms,
    ) -> None:
        self._file = LogFile(Path(path), max_message_bytes)
        self._max_message_bytes = max_message_bytes
        self._keep_ms = keep_ms
        self._owner_of = owner_of
        self._clock_ms = clock_ms
        self._writer: sqlite3.Connection | None = None  # used by who holds _writing
        self._reader: sqlite3.Connection | None = None  # used by who holds _reading
        self._poller: sqlite3.Connection | None = None  # used by the runtime's thread
        self._writing = threading.Lock()
        self._reading = threading.Lock()
        self._changed = threading.Condition()
        self._woken = False
        self._forget()

    def _forget(self) -> None:
        self._ids: dict[str, int] = {}
        self._ends: dict[int, int] = {}
        self._gained: list[TopicPartition] = []
        self._lost: list[TopicPartition] = []
        self._subscribed: dict[str, None] = {}  # in the order in which the next poll looks at them
        self._next: dict[str, int] = {}  # of the started topics
        self._paused: set[str] = set()
        self._next_command: int | None = None

    def open(self) -> None:
        self._file.open()
        try:
            self._writer, self._reader, self._poller = (self._file.connect() for _ in range(3))
            with self._writing:
                self._load_topics(self._writer)
                self._topic_ids(_FIXED)
                with self._file.translated():
                    self._writer.execute(_GONE)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        with self._writing, self._reading:
            for connection in (self._reader, self._poller, self._writer):
                if connection is not None:
                    connection.close()
            self._writer = self._reader = self._poller = None
            self._forget()
            self._file.close()
        self.wake()

    # ---- partitions

    def make_topic(self, topic: str) -> None:
        """Any name will do, and ``subscribe`` notes it."""

    def subscribe(self, topics: Iterable[str]) -> None:
        wanted = dict.fromkeys(topics)
        with self._writing:
            self._topic_ids(wanted)
        lost = self._subscribed.keys() - wanted
        for topic in lost:
            self._next.pop(topic, None)
            self._paused.discard(topic)
        self._gained += [TopicPartition(topic, 0) for topic in wanted if topic not in self._subscribed]
        self._lost += [TopicPartition(topic, 0) for topic in sorted(lost)]
        self._subscribed = wanted

    @property
    def settled(self) -> bool:
        return not self._gained

    def partitions(self, topic: str) -> int:
        return 1

    def at_rest(self, partition: TopicPartition) -> bool:
        return True

    def position(self, partition: TopicPartition) -> Position | None:
        found = self._find("SELECT event, command FROM positions WHERE topic = ?", partition.topic)
        return Position(*found) if found else None

    def restore(self, partition: TopicPartition) -> Iterator[StateRecord]:
        # A connection of its own: a read that is not finished would hold back what the poller sees.
        with contextlib.closing(self._file.connect()) as connection, self._file.translated():
            id_ = self._ids.get(partition.topic)
            rows = connection.execute("SELECT key, value FROM state WHERE topic = ?", (id_,))
            for key, value in rows:
                if not (isinstance(key, bytes) and isinstance(value, bytes)):
                    raise self._file.damaged(f"the state of {partition.topic} has rows of something else")
                yield StateRecord(key, value)

    def beginning(self, partition: TopicPartition) -> int:
        topic = partition.topic
        found = self._find("SELECT min(offset) FROM records WHERE topic = ?", topic)
        return self._end(topic) if found is None or found[0] is None else found[0]

    def start(self, partition: TopicPartition, event_offset: int | None) -> int:
        offset = self.beginning(partition) if event_offset is None else event_offset
        self._next[partition.topic] = offset
        return offset

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self._paused.update(topic for topic, _ in partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self._paused.difference_update(topic for topic, _ in partitions)

    # ---- reading

    def commands(self, start: int, end: int) -> Iterator[Record]:
        while start < end:
            most = min(end - start, _COMMANDS_AT_ONCE)
            records = self._records(self._poller, topics.COMMANDS, start, most, _BYTES_AT_ONCE)
            yield from (record for record in records if record.offset < end)
            start = records[-1].offset + 1 if records else end

    def seek_commands(self, offset: int) -> None:
        self._next_command = offset

    def end_of_commands(self) -> int:
        return self._end(topics.COMMANDS)

    def poll(self, *, timeout_s: float, max_records: int) -> Polled:
        _open(self._poller)
        deadline = time.monotonic() + timeout_s
        while True:
            polled = self._poll(max_records)
            with self._changed:
                found = polled.chunks or polled.commands or any(polled.assignment)
                left_s = deadline - time.monotonic()
                if found or self._woken or left_s <= 0:
                    self._woken = False
                    return polled
                if not self._news():
                    self._changed.wait(left_s)

    def _poll(self, max_records: int) -> Polled:
        commands: list[Record] = []
        next_command = self._next_command
        if next_command is not None and next_command < self.end_of_commands():
            commands, next_command = self._read_on(topics.COMMANDS, next_command, MOST_COMMANDS)
        chunks: list[Chunk] = []
        for topic in self._with_news():
            if max_records <= 0:
                break
            records, next_ = self._read_on(topic, self._next[topic], max_records)
            chunks.append(Chunk(TopicPartition(topic, 0), records, next_))
            max_records -= len(records)
        # Everything has been read: from here on nothing fails, so nothing is skipped by a poll that fails.
        for (topic, _), _, next_ in chunks:
            self._next[topic] = next_
            self._subscribed[topic] = self._subscribed.pop(topic)  # the next poll looks here last
        self._next_command = next_command
        assignment = Assignment(self._gained, self._lost)
        self._gained, self._lost = [], []
        return Polled(assignment, [chunk for chunk in chunks if chunk.records], commands, next_command or 0)

    def _read_on(self, topic: str, offset: int, limit: int) -> tuple[list[Record], int]:
        """The next records of a topic and where to go on: past what has been trimmed away, if that is all."""
        end = self._end(topic)
        records = self._records(self._poller, topic, offset, limit, _BYTES_AT_ONCE)
        return records, records[-1].offset + 1 if records else end

    def _news(self) -> bool:
        """Whether a poll would find something now."""
        unread = self._next_command is not None and self._next_command < self.end_of_commands()
        return unread or bool(self._with_news())

    def _with_news(self) -> list[str]:
        """The started topics that have events to deliver."""
        readable = (topic for topic in self._subscribed if topic in self._next and topic not in self._paused)
        return [topic for topic in readable if self._next[topic] < self._end(topic)]

    def answers(self) -> bool:
        return True

    def wake(self) -> None:
        with self._changed:
            self._woken = True
            self._changed.notify()

    # ---- writing

    def commit(self, commit: Commit) -> None:
        used = {output.topic for output in commit.outputs}
        used.update(topic for topic, _ in (*commit.state, *commit.positions))
        with self._writing:
            ids = self._topic_ids(used)
            with self._transaction() as writer:
                rows = ((ids[topic], key, value) for topic, key, value in commit.outputs)
                ends = self._insert(writer, rows)
                for (topic, _), records in commit.state.items():
                    _write_state(writer, ids[topic], dict(records))
                writer.executemany(
                    "INSERT OR REPLACE INTO positions VALUES (?, ?, ?)",
                    ((ids[topic], *position) for (topic, _), position in commit.positions.items()),
                )
                done = {topic: position.event for (topic, _), position in commit.positions.items()}
                self._expire(writer, {ids[name]: done.get(name, math.inf) for name in used})
            self._advance(ends)

    def begin_commit(self, commit: Commit) -> Future[None]:
        self.commit(commit)
        return COMMITTED

    def _expire(self, writer: sqlite3.Connection, topics: dict[int, float]) -> None:
        """Removes what is too old of topics, each below an offset; a part at a time. O(removed)."""
        if self._keep_ms is None:
            return
        oldest = self._clock_ms() - self._keep_ms
        for id_, end in topics.items():
            first = writer.execute(_FIRST, (id_,)).fetchone()
            if first is None or first[1] >= oldest:
                continue
            upto = int(min(end, first[0] + _TRIMMED_AT_ONCE))
            kept = writer.execute(_FIRST_KEPT, (id_, upto, oldest)).fetchone()[0]
            self._remove(writer, id_, upto if kept is None else kept)

    def append_commands(self, commands: Iterable[Message], *, after: int) -> list[int]:
        return self._append(topics.COMMANDS, commands, after)

    def append_events(self, topic: str, messages: Sequence[Message]) -> list[tuple[int, int]]:
        if any(message.partition for message in messages):
            raise ValueError("a topic of this log has one partition, 0")
        return [(0, offset) for offset in self._append(topic, messages)]

    def _append(self, topic: str, messages: Iterable[Message], after: float = math.inf) -> list[int]:
        with self._writing:
            id_ = self._topic_ids((topic,))[topic]
            first = self._ends[id_]
            if after < first:
                raise LogMoved(f"the log ends at {first}, not at {after}")
            with self._transaction() as writer:
                ends = self._insert(writer, ((id_, message.key, message.value) for message in messages))
            self._advance(ends)
        return list(range(first, ends.get(id_, first)))

    def trim(self, topic: str, before_offset: int) -> None:
        """Removes the records of a topic below an offset; positions and state do not need them. Any thread,
        and writers get their turn in between. O(removed)."""
        id_ = self._ids.get(topic)
        while id_ is not None:
            with self._writing, self._transaction() as writer:
                (first,) = writer.execute(
                    "SELECT min(offset) FROM records WHERE topic = ?", (id_,)
                ).fetchone()
                if first is None or first >= before_offset:
                    return
                self._remove(writer, id_, min(before_offset, first + _TRIMMED_AT_ONCE))

    def _remove(self, writer: sqlite3.Connection, topic: int, before_offset: int) -> None:
        """O(removed)."""
        there = "FROM records WHERE topic = ? AND offset < ?", (topic, before_offset)
        if topic in {self._ids[name] for name in topics.OUTPUTS}:
            values = writer.execute(f"SELECT value {there[0]}", there[1])
            owners = Counter(self._owner_of(value) for (value,) in values if isinstance(value, bytes))
            gone = ((topic, owner, count) for owner, count in owners.items() if owner is not None)
            writer.executemany(_COUNT_GONE, gone)
        writer.execute(f"DELETE {there[0]}", there[1])

    def _insert(
        self, writer: sqlite3.Connection, records: Iterable[tuple[int, bytes | None, bytes | None]]
    ) -> dict[int, int]:
        """Inserts (topic, key, value) at the ends of their topics and returns the new ends of these."""
        ts, limit = self._clock_ms(), self._max_message_bytes
        ends: dict[int, int] = {}
        rows = []
        for id_, key, value in records:
            offset = ends.get(id_)
            if offset is None:
                offset = self._ends[id_]
            ends[id_] = offset + 1
            if value is not None and len(value) > limit:
                raise self._file.too_large()
            rows.append((id_, offset, ts, key, value))
        whole = len(rows) - len(rows) % _ROWS_AT_ONCE
        for begin in range(0, whole, _ROWS_AT_ONCE):
            writer.execute(_INSERT_MANY, list(chain.from_iterable(rows[begin : begin + _ROWS_AT_ONCE])))
        writer.executemany(_INSERT, rows[whole:])
        writer.executemany(
            "UPDATE topics SET next = ? WHERE id = ?", [(end, id_) for id_, end in ends.items()]
        )
        return ends

    def _advance(self, ends: dict[int, int]) -> None:
        with self._changed:
            self._ends.update(ends)
            self._changed.notify()

    # ---- any thread

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {partition: self._end(partition.topic) for partition in partitions}

    def gone(self, topic: str) -> tuple[int, Mapping[str, int]]:
        id_ = self._ids.get(topic)
        with self._reading, self._file.translated():
            reader = _open(self._reader)
            reader.execute("BEGIN")
            try:
                (end,) = reader.execute("SELECT next FROM topics WHERE id = ?", (id_,)).fetchone() or (0,)
                first = reader.execute(_FIRST, (id_,)).fetchone()
                counts = dict(reader.execute("SELECT owner, count FROM gone WHERE topic = ?", (id_,)))
            finally:
                reader.execute("COMMIT")
        return end if first is None else first[0], counts

    def read(
        self, topic: str, *, after: int, limit: int, most_bytes: float = math.inf
    ) -> tuple[list[Record], int]:
        with self._reading:
            records = self._records(self._reader, topic, after, limit, most_bytes)
        return records, records[-1].offset + 1 if records else after

    # ---- beneath

    def _end(self, topic: str) -> int:
        id_ = self._ids.get(topic)
        return 0 if id_ is None else self._ends[id_]

    def _find(self, select: str, topic: str) -> tuple[int, ...] | None:
        with self._file.translated():
            found: tuple[int, ...] | None = (
                _open(self._poller).execute(select, (self._ids.get(topic),)).fetchone()
            )
            return found

    def _records(
        self,
        connection: sqlite3.Connection | None,
        topic: str,
        offset: int,
        limit: int,
        most_bytes: float = math.inf,
    ) -> list[Record]:
        """The next records; with ``most_bytes`` no more once their values come to that."""
        records: list[Record] = []
        with self._file.translated():
            rows = _open(connection).execute(_SELECT, (self._ids.get(topic), offset, limit))
            if most_bytes == math.inf:
                return self._checked(topic, list(map(Record._make, rows)))
            for record in map(Record._make, rows):
                records.append(record)
                if record.value:
                    if not isinstance(record.value, bytes):
                        break  # is told below
                    most_bytes -= len(record.value)
                if most_bytes <= 0:
                    break
            rows.close()  # a read that is not finished would hold back what the next one sees
        return self._checked(topic, records)

    def _checked(self, topic: str, records: list[Record]) -> list[Record]:
        """The records, if they are what was written: pages of another time or table hold something else.
        Raises LogUnusable."""
        if records:
            first, last = records[0].offset, records[-1].offset
            if not (_is_bytes(map(_key_of, records)) and _is_bytes(map(_value_of, records))):
                raise self._file.damaged(f"{topic} has rows of something else")
            if not isinstance(first, int) or not isinstance(last, int):
                raise self._file.damaged(f"{topic} has offsets of something else")
            # Of commands there may be some that are gone, as on other logs: who reads them finds that out.
            if topic != topics.COMMANDS and last - first != len(records) - 1:
                raise self._file.damaged(f"{topic} lacks records after {first}")
        return records

    def _topic_ids(self, names: Iterable[str]) -> dict[str, int]:
        """The ids of all topics; of those named the missing are made. The caller holds ``_writing``."""
        missing = [name for name in names if name not in self._ids]
        if missing:
            ids = self._ids.values()
            after, before = count(max(ids, default=0) + 1), count(min([0, *ids]) - 1, -1)
            made = [(name, next(after if name in _FIXED else before)) for name in missing]
            with self._transaction() as writer:
                writer.executemany("INSERT INTO topics (name, id, next) VALUES (?, ?, 0)", made)
            self._load_topics(_open(self._writer))
        return self._ids

    def _load_topics(self, writer: sqlite3.Connection) -> None:
        with self._file.translated():
            rows = writer.execute("SELECT id, name, next FROM topics").fetchall()
        self._ends = {id_: next_ for id_, _, next_ in rows}
        self._ids = {name: id_ for id_, name, _ in rows}

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._file.translated():
            writer = _open(self._writer)
            writer.execute("BEGIN IMMEDIATE")
            try:
                yield writer
                writer.execute("COMMIT")
            finally:
                if writer.in_transaction:
                    writer.execute("ROLLBACK")


def _is_bytes(column: Iterable[object]) -> bool:
    """Whether a column has bytes and nulls only."""
    return _BYTES.issuperset(map(type, column))


def _open(connection: sqlite3.Connection | None) -> sqlite3.Connection:
    if connection is None:
        raise LogUnavailable("the log is closed")
    return connection


def _write_state(writer: sqlite3.Connection, topic: int, newest: dict[bytes, bytes | None]) -> None:
    writer.executemany(
        "DELETE FROM state WHERE topic = ? AND key = ?",
        [(topic, key) for key, value in newest.items() if value is None],
    )
    writer.executemany(
        "INSERT OR REPLACE INTO state VALUES (?, ?, ?)",
        [(topic, key, value) for key, value in newest.items() if value is not None],
    )
