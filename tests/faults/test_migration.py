"""Files and state records that earlier revisions have written (``tests/data``) are taken up where they are.

Each file was written by the real service of its time, killed while it ran. Today's worker opens it: what is
inside what follows from the border records that are there already, every stream is what the old service said
of it, and what comes afterwards goes on from its numbers, exactly once. The same through the port alone, as
it would be with the state topic of a broker.
"""

from __future__ import annotations

import json
import lzma
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec
import pytest

from service.engine.engine import Engine
from service.engine.state import VERSION
from service.log.port import Log, LogUnusable, Message, Output, Position, Record, TopicPartition
from service.log.sqlite import SqliteLog
from service.log.sqlite_file import SCHEMA_VERSION
from service.metrics import Metrics
from service.worker import Worker
from tests.faults.oracle import by_stream, check_balance
from tests.log.sites import eventually
from tests.runtime.memory_log import MemoryLog, Store

FILES = Path(__file__).parents[1] / "data"
OLD = ["state-1", "state-2", "state-3", "state-4"]
SOURCES = ["plain", "carried"]
OUTPUTS = ["matches", "borders", "dead_letter"]
#: Their waits end by the clock, so that they may have changed after the old service was asked.
TIMED = {"slow", "slower", "cool"}


class Place(Protocol):
    """Where an old log lies."""

    now: int

    def log(self) -> Log: ...

    def events(self, topic: str) -> list[Record]: ...

    def outputs(self) -> list[Output]: ...


class InFile:
    """The file itself. ``now``: ms since 1970, after its newest record."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with closing(sqlite3.connect(path)) as connection:
            (newest,) = connection.execute("SELECT max(ts) FROM records").fetchone()
        self.now = int(newest) + 1

    def log(self) -> SqliteLog:
        return SqliteLog(self.path, max_message_bytes=1 << 20, clock_ms=lambda: self.now)

    def events(self, topic: str) -> list[Record]:
        return _read(self.path, topic)

    def outputs(self) -> list[Output]:
        return [
            Output(topic, one.key, one.value or b"") for topic in OUTPUTS for one in _read(self.path, topic)
        ]


def _read(path: Path, topic: str) -> list[Record]:
    rows = (
        "SELECT offset, ts, key, value FROM records JOIN topics ON topic = id WHERE name = ? ORDER BY offset"
    )
    with closing(sqlite3.connect(path)) as connection:
        return [Record(*row) for row in connection.execute(rows, (topic,))]


class _Store(Store):
    now = 0

    def append(self, topic: str, message: Message) -> tuple[int, int]:
        records = self.events[self.topic(topic)[0]]
        records.append(Record(len(records), self.now, message.key, message.value))
        return 0, len(records) - 1


class InMemory:
    """What the port hands over of it, in a log of another kind."""

    def __init__(self, file: InFile) -> None:
        self.now = file.now
        self._store = _Store(partitions=1)
        self._store.now = file.now
        self._store.commands = _read(file.path, "queries")
        self._store.outputs = file.outputs()
        with closing(file.log()) as log:
            log.open()
            for source in SOURCES:
                partition = TopicPartition(f"events.{source}", 0)
                position = log.position(partition)
                assert position is not None
                self._store.events[partition] = _read(file.path, partition.topic)
                self._store.positions[partition] = Position(*position)
                self._store.state[partition] = {one.key: one.value or b"" for one in log.restore(partition)}

    def log(self) -> Log:
        return MemoryLog(self._store)

    def events(self, topic: str) -> list[Record]:
        return self._store.events[TopicPartition(topic, 0)]

    def outputs(self) -> list[Output]:
        return list(self._store.outputs)


class World(NamedTuple):
    place: Place
    said: dict[str, Any]
    """By source and stream what the old service answered; None where it knew none."""


def unpacked(name: str, folder: Path) -> InFile:
    path = folder / f"{name}.db"
    path.write_bytes(lzma.decompress((FILES / f"{name}.db.xz").read_bytes()))
    return InFile(path)


@pytest.fixture(params=OLD)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["file", "port"])
def world(request: pytest.FixtureRequest, name: str, tmp_path: Path) -> World:
    file = unpacked(name, tmp_path)
    place: Place = file if request.param == "file" else InMemory(file)
    return World(place, json.loads((FILES / f"{name}.json").read_text()))


class Serving:
    """A worker on the log, with all that it has to do done."""

    def __init__(self, place: Place) -> None:
        self.log = place.log()
        self.worker = Worker(
            self.log,
            Engine,
            Metrics(),
            clock=lambda: place.now,
            max_message_bytes=1 << 16,
            max_batch_events=1_000,
        )
        try:
            self.worker.open()
            self.settle()
        except BaseException:
            self.log.close()
            raise

    @property
    def engine(self) -> Engine:
        return self.worker.engine

    def settle(self) -> None:
        def idle() -> bool:
            self.worker.step([], timeout_s=0)
            at = {TopicPartition(*task): event for task, event in self.worker.positions.items()}
            return self.worker.ready and not self.engine.owes and self.log.end_offsets(at) == at

        eventually(idle, "the worker has caught up")

    def send(self, source: str, events: list[dict[str, Any]]) -> None:
        messages = [Message(one["stream_id"].encode(), json.dumps(one).encode()) for one in events]
        self.log.append_events(f"events.{source}", messages)
        self.settle()


def inside(place: Place) -> dict[str, dict[str, set[str]]]:
    """By source, who is inside what, by all border records that were ever written. Fails if they do not
    balance."""
    borders: dict[str, list[Output]] = {source: [] for source in SOURCES}
    for one in place.outputs():
        if one.topic == "borders":
            borders[json.loads(one.value)["source"]].append(one)
    folded = {source: check_balance(by_stream(records)) for source, records in borders.items()}
    return {source: {name: ids for name, ids in found.items() if ids} for source, found in folded.items()}


def stamps(record: Record) -> list[int]:
    """The ``ts`` of the events in a message; none of a tombstone."""
    sent = json.loads(record.value or b"[]")
    return [one["ts"] for one in (sent if isinstance(sent, list) else [sent])]


def since(before: list[Output], place: Place) -> list[Output]:
    """The outputs that are not among those before: by topic, what is behind them."""
    counts = Counter(one.topic for one in before)
    now = {topic: [one for one in place.outputs() if one.topic == topic] for topic in OUTPUTS}
    return [one for topic, outputs in now.items() for one in outputs[counts[topic] :]]


def members(engine: Engine, source: str) -> dict[str, set[str]]:
    """The same as the engine has it."""
    (table,) = (table for task, table in engine.tables.items() if task.topic == f"events.{source}")
    views = {name: engine.stream(source, name) for name in table.row_of}
    return {name: set(view.inside) for name, view in views.items() if view is not None and view.inside}


def without_timed(ids: list[str]) -> set[str]:
    names = {id: id.partition(".")[2] for id in ids}
    return {id for id, name in names.items() if name not in TIMED and not name.startswith("owed")}


def test_streams_are_what_they_were(world: World) -> None:
    place, said = world
    before = place.outputs()
    serving = Serving(place)
    with closing(serving.log):
        for key, was in said.items():
            source, _, stream = key.partition("/")
            view = serving.engine.stream(source, stream)
            if was is None:
                assert view is None, key
                continue
            assert view is not None, key
            assert (view.last, view.ts) == (was["last"], was["ts"]), key
            assert without_timed(view.inside) == without_timed(was["inside"]), key
        assert sum(was is not None for was in said.values()) > 100
        for task, table in serving.engine.tables.items():
            each = [(ts, record.ts) for record in place.events(task.topic) for ts in stamps(record)]
            assert table.time.reached >= max(ts for ts, _ in each)
            assert table.time.ahead is not None
            assert abs(table.time.ahead - max(ts - at for ts, at in each)) < 60_000, (
                "what a slow machine delays"
            )
        assert {source: members(serving.engine, source) for source in SOURCES} == inside(place)
    told = [json.loads(one.value) for one in since(before, place)]
    owed = [one["enter"] + one["leave"] for one in told if one["source"] == "plain"]
    assert len(owed) == len(told)
    assert bool(owed) == ("plain.owed0" in serving.engine.catalog.queries)
    assert all(ids[0].startswith("plain.owed") and len(ids) == 1 for ids in owed), "and nothing again"


def test_what_comes_goes_on_from_there(world: World) -> None:
    place, said = world
    serving = Serving(place)
    before = place.outputs()
    living = {
        source: sorted(key.partition("/")[2] for key, was in said.items() if was and key.startswith(source))
        for source in SOURCES
    }
    sent = 0
    for turn, x in enumerate((1.5, 7, 2, -2, 9)):
        for source, streams in living.items():
            ts = 1_700_001_000_000 + 10_000 * turn
            serving.send(source, [{"stream_id": one, "ts": ts, "x": x, "kind": "tug"} for one in streams])
            sent += len(streams) if 0 <= x < 3 else 0
        if x == 7:  # nearly all have left nearly all
            assert {source: members(serving.engine, source) for source in SOURCES} == inside(place)
    written = since(before, place)
    matches = [json.loads(one.value) for one in written if one.topic == "matches"]
    assert len(matches) == sent, "one record for each event that is in `low`, which alone asks for matches"
    assert {tuple(one["queries"]) for one in matches} == {("plain.low",), ("carried.low",)}
    assert any(one.topic == "borders" for one in written)
    now = {source: members(serving.engine, source) for source in SOURCES}
    assert now == inside(place)
    serving.log.close()  # as a worker that is killed between two steps
    written = place.outputs()
    again = Serving(place)
    with closing(again.log):
        assert {source: members(again.engine, source) for source in SOURCES} == now
        assert place.outputs() == written


# ---- and what a later revision writes is left to it


def contents(path: Path) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        tables = ("topics", "records", "state", "positions")
        return [connection.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall() for table in tables]


@pytest.fixture
def newest(tmp_path: Path) -> Iterator[InFile]:
    yield unpacked(OLD[-1], tmp_path)


def test_a_file_of_a_later_revision_is_refused_and_left_as_it_is(newest: InFile) -> None:
    with closing(sqlite3.connect(newest.path)) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    before = newest.path.read_bytes()
    with pytest.raises(LogUnusable, match="newer version of this program"):
        newest.log().open()
    assert newest.path.read_bytes() == before


@pytest.mark.parametrize("letter", ["d", "p", "o"])
def test_state_of_a_later_revision_is_refused_and_left_as_it_is(newest: InFile, letter: str) -> None:
    """Deltas, pages and debts: each says which version it is of."""
    with closing(sqlite3.connect(newest.path)) as connection, connection:
        rows = connection.execute(
            "SELECT topic, key, value FROM state WHERE substr(key, 1, 1) = ?", (letter.encode(),)
        )
        topic, key, value = rows.fetchall()[0]
        later = msgspec.msgpack.encode([VERSION + 1, *msgspec.msgpack.decode(value)[1:]])
        connection.execute("UPDATE state SET value = ? WHERE topic = ? AND key = ?", (later, topic, key))
    before = contents(newest.path)
    refused = (
        rf"events.*/0 cannot be read .* has version {VERSION + 1}; this service knows .*: run the version"
    )
    with pytest.raises(LogUnusable, match=refused):
        Serving(newest)
    assert contents(newest.path) == before


@pytest.mark.parametrize("letter", ["d", "p", "o"])
@pytest.mark.parametrize("garbled", [b"", b"\xc1nothing", "types", "lengths"], ids=str)
def test_state_that_is_damaged_is_refused_with_what_to_do(
    newest: InFile, letter: str, garbled: bytes | str
) -> None:
    with closing(sqlite3.connect(newest.path)) as connection, connection:
        rows = connection.execute(
            "SELECT topic, key, value FROM state WHERE substr(key, 1, 1) = ?", (letter.encode(),)
        )
        topic, key, value = rows.fetchall()[0]
        if isinstance(garbled, str):
            fields = msgspec.msgpack.decode(value)
            first = next(place for place, one in enumerate(fields) if isinstance(one, bytes) and one)
            fields[first] = 7 if garbled == "types" else fields[first][:-1]
            garbled = msgspec.msgpack.encode(fields)
        connection.execute("UPDATE state SET value = ? WHERE topic = ? AND key = ?", (garbled, topic, key))
    before = contents(newest.path)
    with pytest.raises(LogUnusable, match=r"cannot be read: .* damaged, and a copy has to be put back"):
        Serving(newest)
    assert contents(newest.path) == before
