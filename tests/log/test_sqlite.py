"""What only the embedded log promises: one owner, a file that is never harmed, surviving ``kill -9``."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.log.port import (
    Commit,
    LogUnavailable,
    LogUnusable,
    Message,
    Output,
    Position,
    Record,
    StateRecord,
    TopicPartition,
)
from service.log.sqlite import SqliteLog
from service.log.sqlite_backup import back_up
from service.log.sqlite_file import SCHEMA_VERSION
from tests.log.sites import begin, events, values

ZERO = TopicPartition("events.a", 0)

OWNER = """
import sys
from service.log.sqlite import SqliteLog
log = SqliteLog(sys.argv[1])
log.open()
print("open", flush=True)
sys.stdin.read()
"""

WRITER = """
import itertools, sys
from service.log.port import Commit, Output, Position, StateRecord, TopicPartition
from service.log.sqlite import SqliteLog
log = SqliteLog(sys.argv[1])
log.open()
zero = TopicPartition("events.a", 0)
log.subscribe(["events.a"])
position = log.position(zero)
for turn in itertools.count(position.event if position else 0):
    if str(turn) in sys.argv[2:]:
        sys.stdin.readline()
    outputs = [Output("matches", b"%d" % turn, bytes(500)) for _ in range(100)]
    state = [StateRecord(b"%d" % key, b"%d" % turn) for key in range(100)]
    log.commit(Commit(outputs, {zero: state}, {zero: Position(turn + 1, turn)}))
    print(turn + 1, flush=True)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


@pytest.fixture
def log(path: Path) -> Iterator[SqliteLog]:
    log = SqliteLog(path)
    yield log
    log.close()


def filled(path: Path) -> None:
    """A log with a few pages of records."""
    log = SqliteLog(path)
    log.open()
    log.append_events("events.a", [Message(b"key", bytes(1000))] * 200)
    log.close()


def spawn(script: str, path: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, str(path), *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


# ---- one owner


def test_a_second_process_is_told_who_has_the_file(path: Path, log: SqliteLog) -> None:
    with spawn(OWNER, path) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "open\n"
        with pytest.raises(LogUnavailable, match=f"in use by process {owner.pid}: .*another file"):
            log.open()
        owner.kill()
    log.open()  # the lock has gone with its owner
    log.append_events("events.a", [Message(b"key", b"value")])


def test_a_second_log_in_the_process_is_refused_too(path: Path, log: SqliteLog) -> None:
    log.open()
    (path.parent / "other name.db").symlink_to(path)
    for name in (path, path.parent / "other name.db"):
        with pytest.raises(LogUnavailable, match="in use"):
            SqliteLog(name).open()
    log.append_events("events.a", [Message(b"key", b"value")])


def test_a_writer_from_outside_is_waited_for_and_then_reported(path: Path, log: SqliteLog) -> None:
    begin(log, "events.a", partitions=1)
    intruder = sqlite3.connect(path, isolation_level=None)
    intruder.execute("BEGIN IMMEDIATE")
    with pytest.raises(LogUnavailable, match="locked by another program"):
        log.append_events("events.a", [Message(b"key", b"value")])
    intruder.execute("ROLLBACK")
    intruder.close()
    assert log.append_events("events.a", [Message(b"key", b"value")]) == [(0, 0)]


# ---- a file that is never harmed


@pytest.mark.parametrize("keep", [0.5, 0.01, 100, 5000])
def test_a_torn_file_is_refused_and_left_alone(path: Path, log: SqliteLog, keep: float) -> None:
    filled(path)
    whole = path.read_bytes()
    torn = whole[: int(keep * len(whole)) if keep < 1 else int(keep)]
    path.write_bytes(torn)
    with pytest.raises(LogUnusable, match=r"damaged.*another file"):
        log.open()
    assert path.read_bytes() == torn


@pytest.mark.parametrize("emptied", [False, True])
def test_a_file_that_is_gone_and_has_left_its_write_ahead_log_is_refused(
    path: Path, log: SqliteLog, emptied: bool
) -> None:
    with spawn(WRITER, path) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        writer.kill()
    path.unlink()
    if emptied:
        path.touch()
    wal = Path(f"{path}-wal")
    left = wal.read_bytes()
    assert left
    with pytest.raises(LogUnusable, match=r"damaged.*log\.db-wal is there"):
        log.open()
    assert wal.read_bytes() == left


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.9])
def test_a_torn_write_ahead_log_loses_whole_commits_from_the_end(
    path: Path, log: SqliteLog, keep: float
) -> None:
    with spawn(WRITER, path, "6") as writer:  # too few for anything to be in the file itself
        assert writer.stdout is not None
        for _ in range(6):
            writer.stdout.readline()
        writer.kill()
    wal = Path(f"{path}-wal")
    whole = wal.read_bytes()
    wal.write_bytes(whole[: int(keep * len(whole))])
    log.open()
    position = log.position(ZERO) if log.end_offsets([ZERO])[ZERO] >= 0 else None
    turns = position.event if position else 0
    records, _ = log.read("matches", after=0, limit=10**6)
    assert len(records) == 100 * turns, "outputs, state and position go back together"
    state = {b"%d" % key: b"%d" % (turns - 1) for key in range(100)} if turns else {}
    assert dict(log.restore(ZERO)) == state


@pytest.mark.parametrize("content", [b"not a database, but someone's work", bytes(4096), b"\xff" * 10_000])
def test_a_file_of_another_kind_is_refused_and_left_alone(path: Path, log: SqliteLog, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(LogUnusable):
        log.open()
    assert path.read_bytes() == content


def test_a_database_of_another_program_is_refused_and_left_alone(path: Path, log: SqliteLog) -> None:
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE theirs (x)")
    other.commit()
    other.close()
    before = path.read_bytes()
    with pytest.raises(LogUnusable, match="another program"):
        log.open()
    assert path.read_bytes() == before


def test_a_newer_version_is_refused_and_left_alone(path: Path, log: SqliteLog) -> None:
    filled(path)
    later = sqlite3.connect(path, isolation_level=None)
    later.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    later.close()
    before = path.read_bytes()
    with pytest.raises(LogUnusable, match=r"newer version.*upgrade"):
        log.open()
    assert path.read_bytes() == before


def test_damage_found_later_is_reported(path: Path, log: SqliteLog) -> None:
    filled(path)
    whole = bytearray(path.read_bytes())
    for page in range(10, len(whole) // 4096):  # all but the first pages, that hold the schema
        whole[page * 4096 : page * 4096 + 100] = b"\x07" * 100
    path.write_bytes(whole)
    log.open()
    with pytest.raises(LogUnusable, match="damaged"):
        log.read("events.a", after=0, limit=1000)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "no such folder" / "log.db")
    with pytest.raises(LogUnusable, match="no such folder"):
        log.open()


def test_an_empty_file_is_a_new_log(path: Path, log: SqliteLog) -> None:
    path.touch()
    log.open()
    assert log.append_events("events.a", [Message(b"key", b"value")]) == [(0, 0)]


# ---- survival


def test_kill_in_mid_commit_leaves_all_or_nothing(path: Path) -> None:
    for round_ in range(1, 5):
        with spawn(WRITER, path) as writer:
            assert writer.stdout is not None
            acknowledged = 0
            for _ in range(7 * round_):
                acknowledged = int(writer.stdout.readline())
            os.kill(writer.pid, signal.SIGKILL)
            rest = writer.stdout.read().split("\n")[:-1]
            acknowledged = int(rest[-1]) if rest else acknowledged
        log = SqliteLog(path)
        log.open()
        position = log.position(ZERO)
        assert position is not None
        turns = position.event
        assert turns - acknowledged in (0, 1), "an acknowledged commit is there, and at most the next one"
        assert position.command == turns - 1
        assert dict(log.restore(ZERO)) == {b"%d" % key: b"%d" % (turns - 1) for key in range(100)}
        records, end = log.read("matches", after=0, limit=100 * turns + 1)
        assert [record.offset for record in records] == list(range(100 * turns))
        assert [record.key for record in records] == [b"%d" % (place // 100) for place in range(100 * turns)]
        assert end == 100 * turns
        log.close()


def test_what_is_acknowledged_is_in_the_file(path: Path) -> None:
    with spawn(WRITER, path) as writer:
        assert writer.stdout is not None
        seen = int(writer.stdout.readline())
        onlooker = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        ((event,),) = onlooker.execute("SELECT event FROM positions").fetchall()
        onlooker.close()
        assert event >= seen
        writer.kill()


# ---- reading outputs


def test_outputs_are_read_in_pages(log: SqliteLog) -> None:
    log.open()
    log.commit(Commit([Output("matches", b"k", b"%d" % number) for number in range(25)], {}, {}))
    found, after = [], 0
    for expected in (10, 10, 5, 0):
        records, after = log.read("matches", after=after, limit=10)
        assert len(records) == expected
        found += records
    assert after == 25
    assert [record.value for record in found] == [b"%d" % number for number in range(25)]
    assert [record.offset for record in found] == list(range(25))
    assert log.read("matches", after=100, limit=10) == ([], 100)
    assert log.read("no such topic", after=3, limit=10) == ([], 3)


def test_a_page_of_outputs_ends_at_some_bytes_with_a_record_at_least(log: SqliteLog) -> None:
    log.open()
    values = [b"x" * length for length in (10, 10, 10, 500, 1, 1)]
    log.commit(Commit([Output("matches", b"k", value) for value in values], {}, {}))
    pages, after = [], 0
    while (page := log.read("matches", after=after, limit=4, most_bytes=20))[0]:
        pages.append([record.value for record in page[0]])
        after = page[1]
    assert pages == [values[:2], values[2:4], values[4:]]
    assert after == 6


def test_trimmed_outputs_are_passed_over(log: SqliteLog) -> None:
    log.open()
    log.commit(Commit([Output("matches", b"k", b"%d" % number) for number in range(10)], {}, {}))
    log.trim("matches", 7)
    records, after = log.read("matches", after=0, limit=2)
    assert [record.offset for record in records] == [7, 8]
    assert after == 9
    log.trim("matches", 1000)
    log.trim("no such topic", 1)
    assert log.read("matches", after=9, limit=2) == ([], 9)
    log.commit(Commit([Output("matches", b"k", b"new")], {}, {}))
    assert log.read("matches", after=9, limit=2)[0][0].offset == 10


def test_offsets_go_on_after_everything_was_trimmed(path: Path, log: SqliteLog) -> None:
    log.open()
    log.append_events("events.a", [Message(b"k", b"v")] * 5)
    log.trim("events.a", 5)
    log.close()
    begin(log, "events.a", partitions=1)
    assert log.start(ZERO, None) == 5
    assert log.append_events("events.a", [Message(b"k", b"v")]) == [(0, 5)]


def test_what_is_old_and_was_processed_goes_as_new_comes(path: Path) -> None:
    now = 0
    log = SqliteLog(path, keep_ms=1_000, clock_ms=lambda: now)
    begin(log, "events.a", partitions=1)

    def commit(event: int) -> None:
        matches = [Output("matches", b"k", b"%d" % event)]
        log.commit(Commit(matches, {}, {ZERO: Position(event, 0)}))

    log.append_commands([Message(b"query:q", b"1")], after=0)
    log.append_events("events.a", [Message(b"k", b"v")] * 5)
    commit(3)
    log.commit(Commit([Output("borders", b"k", b"of long ago")], {}, {}))
    now = 1_000
    commit(3)
    assert log.beginning(ZERO) == 0, "just not too old"
    now = 1_001
    log.append_events("events.a", [Message(b"k", b"v")])
    commit(4)
    assert log.beginning(ZERO) == 4, "what is to be processed stays, however old"
    assert [record.value for record in log.read("matches", after=0, limit=9)[0]] == [b"3", b"4"]
    assert log.read("borders", after=0, limit=9)[0], "nothing new has come there"
    commit(6)
    assert log.beginning(ZERO) == 5
    now = 9_000
    commit(6)
    assert log.beginning(ZERO) == 6
    assert [record.value for record in log.read("matches", after=0, limit=9)[0]] == [b"6"]
    assert len(list(log.commands(0, 9))) == 1, "commands are the query set"
    log.close()


def test_a_topic_that_is_not_there_ends_at_0(log: SqliteLog) -> None:
    log.open()
    log.append_events("events.a", [Message(b"k", b"v")] * 3)
    missing = TopicPartition("events.b", 0)
    assert log.end_offsets([missing]) == {missing: 0}
    assert log.beginning(missing) == 0


def test_a_file_whose_records_go_does_not_grow(path: Path) -> None:
    now = 0
    log = SqliteLog(path, keep_ms=1_000, clock_ms=lambda: now)
    log.open()
    for _ in range(300):
        now += 100
        log.commit(Commit([Output("matches", b"k", bytes(1_000))] * 100, {}, {}))
    log.close()
    assert path.stat().st_size < 10_000_000, "of thirty million bytes the last million is kept"


def test_others_read_while_commits_are_made(log: SqliteLog) -> None:
    begin(log, "events.a", partitions=1)
    failed: list[BaseException] = []
    done = threading.Event()

    def read() -> None:
        try:
            while not done.is_set():
                records, _ = log.read("matches", after=0, limit=10_000)
                assert len(records) % 10 == 0, "a commit is seen whole"
                log.end_offsets([ZERO])
                log.append_events("events.a", [Message(b"k", b"v")])
        except BaseException as error:
            failed.append(error)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for turn in range(100):
        state = {ZERO: [StateRecord(b"s", b"%d" % turn)]}
        log.commit(Commit([Output("matches", b"k", b"v")] * 10, state, {ZERO: Position(turn, 0)}))
    done.set()
    for reader in readers:
        reader.join()
    assert not failed
    assert len(log.read("matches", after=0, limit=10_000)[0]) == 1000


def test_a_topic_has_one_partition(log: SqliteLog) -> None:
    log.open()
    with pytest.raises(ValueError, match="one partition"):
        log.append_events("events.a", [Message(b"k", b"v", 1)])


def test_the_clock_stamps_the_records(path: Path) -> None:
    log = SqliteLog(path, clock_ms=lambda: 1_641_168_000_000)
    begin(log, "events.a", partitions=1)
    log.append_events("events.a", [Message(b"k", b"v")])
    ((chunk,), _) = log.poll(timeout_s=0, max_records=1)[1:3]
    assert chunk.records[0].ts == 1_641_168_000_000
    log.close()


def test_a_full_disk_is_unusable_and_leaves_nothing(path: Path, log: SqliteLog) -> None:
    begin(log, "events.a", partitions=1)
    assert log._writer is not None
    (pages,) = log._writer.execute("PRAGMA page_count").fetchone()
    log._writer.execute(f"PRAGMA max_page_count = {pages + 20}")
    with pytest.raises(LogUnusable, match="full"):
        log.append_events("events.a", [Message(b"k", bytes(5000))] * 100)
    assert log.end_offsets([ZERO]) == {ZERO: 0}
    assert log.append_events("events.a", [Message(b"k", b"small")]) == [(0, 0)]


class CommitFails:
    """A connection whose COMMIT the disk does not take."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        if statement == "COMMIT":
            raise sqlite3.OperationalError("disk I/O error")
        return self._connection.execute(statement, *values)


def test_a_commit_that_the_disk_does_not_take_moves_nothing(path: Path, log: SqliteLog) -> None:
    begin(log, "events.a", partitions=1)
    writer, log._writer = log._writer, CommitFails(log._writer)  # type: ignore[arg-type, assignment]
    with pytest.raises(LogUnusable, match="disk I/O error"):
        log.append_events("events.a", [Message(b"k", b"lost")])
    with pytest.raises(LogUnusable, match="disk I/O error"):
        log.commit(Commit([Output("matches", b"k", b"lost")], {}, {ZERO: Position(1, 1)}))
    assert log.end_offsets([ZERO]) == {ZERO: 0}
    assert not log.poll(timeout_s=0, max_records=10).chunks
    log._writer = writer
    assert log.append_events("events.a", [Message(b"k", b"v")]) == [(0, 0)]
    assert values(events(log, 1)) == [b"v"]
    log.commit(Commit([Output("matches", b"k", b"told")], {}, {ZERO: Position(1, 1)}))
    records, _ = log.read("matches", after=0, limit=10)
    assert [(one.offset, one.value) for one in records] == [(0, b"told")]


def test_a_poll_that_fails_skips_nothing(path: Path, log: SqliteLog, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(log, "events.a", "events.b", partitions=1)
    for topic in ("events.a", "events.b"):
        log.append_events(topic, [Message(b"k", topic.encode())])
    read_on, calls = log._read_on, []

    def fails_late(topic: str, offset: int, limit: int) -> tuple[list[Record], int]:
        calls.append(topic)
        if len(calls) == 2:
            raise LogUnavailable("locked")
        return read_on(topic, offset, limit)

    monkeypatch.setattr(log, "_read_on", fails_late)
    with pytest.raises(LogUnavailable):
        log.poll(timeout_s=0, max_records=10)
    assert sorted(values(events(log, 2))) == [b"events.a", b"events.b"]


def test_the_file_is_as_safe_from_a_loss_of_power_as_is_promised(path: Path, log: SqliteLog) -> None:
    """Whole commits may be lost from the end, but the file is never torn."""
    log.open()
    for connection in (log._writer, log._reader, log._poller):
        assert connection is not None
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA synchronous").fetchone() == (1,), "NORMAL"


def test_a_poll_of_large_messages_is_bounded_in_bytes(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log.db", max_message_bytes=4 << 20)
    begin(log, "events.large", partitions=1)
    large = bytes(3 << 20)
    log.append_events("events.large", [Message(b"k", large)] * 5)
    chunks = [log.poll(timeout_s=0, max_records=100).chunks for _ in range(3)]
    assert [[len(chunk.records) for chunk in found] for found in chunks] == [[3], [2], []]
    log.close()


@pytest.mark.parametrize("copied_at", [1, 4, 40])
def test_a_copy_under_the_journal_of_another_is_refused_with_what_to_do(
    path: Path, log: SqliteLog, copied_at: int
) -> None:
    copy = path.with_name("copy.db")
    # It waits at the copy and at its end: else chance has a word on its journal.
    with spawn(WRITER, path, str(copied_at), "80") as writer:
        assert writer.stdin is not None and writer.stdout is not None
        for _ in range(copied_at):
            writer.stdout.readline()
        back_up(path, copy, lambda done, total: None)
        writer.stdin.write("\n")
        writer.stdin.flush()
        for _ in range(80 - copied_at):
            writer.stdout.readline()
        writer.kill()
    shutil.copyfile(copy, path)
    with pytest.raises(LogUnusable, match=r"damaged.*rangewatch restore"):
        log.open()
        log.position(ZERO)
        dict(log.restore(ZERO))
        log.read("matches", after=0, limit=10**6)


@pytest.mark.parametrize("table", ["state", "records"])
def test_rows_of_something_else_are_told(path: Path, log: SqliteLog, table: str) -> None:
    filled(path)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        (topic,) = other.execute("SELECT id FROM topics WHERE name = 'events.a'").fetchone()
        if table == "state":
            other.execute("INSERT INTO state VALUES (?, ?, 5)", (topic, b"key"))
        else:
            other.execute("UPDATE records SET value = 5 WHERE topic = ? AND offset = 1", (topic,))
    log.open()
    with pytest.raises(LogUnusable, match=r"something else.*rangewatch restore"):
        if table == "state":
            list(log.restore(ZERO))
        else:
            log.read("events.a", after=0, limit=10)


def test_records_that_are_missing_in_between_are_told(path: Path, log: SqliteLog) -> None:
    filled(path)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        (topic,) = other.execute("SELECT id FROM topics WHERE name = 'events.a'").fetchone()
        other.execute("DELETE FROM records WHERE topic = ? AND offset = 1", (topic,))
    log.open()
    with pytest.raises(LogUnusable, match=r"lacks records.*rangewatch restore"):
        log.read("events.a", after=0, limit=10)


def test_what_goes_while_it_is_asked_what_is_gone_is_gone_or_there_and_not_both(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log.db", owner_of=bytes.decode)
    log.open()
    log.commit(Commit([Output("matches", None, b"a")] * 10, {}, {}))

    def meanwhile(statement: str) -> None:
        if "FROM gone" in statement:
            log.trim("matches", 7)

    assert log._reader is not None
    log._reader.set_trace_callback(meanwhile)
    begin, counts = log.gone("matches")
    log._reader.set_trace_callback(None)
    assert (begin, counts) == (0, {})
    assert log.gone("matches") == (7, {"a": 7})
    log.close()
