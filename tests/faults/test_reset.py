"""Where the history that a partition needs is gone, its streams begin anew; whoever folds the log agrees."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import pytest

from service.engine.commands import Command, DeleteQuery, PatchQuery, PutQuery, PutSource
from service.engine.engine import Engine
from service.log.port import Log, Message, TopicPartition
from service.metrics import Metrics
from service.worker import CommandRequest, Worker
from tests.faults.oracle import by_stream, check_balance
from tests.log.sites import KafkaSite, SqliteSite, eventually

TOPIC = "events.s"
ZERO = TopicPartition(TOPIC, 0)
SOURCE = PutSource("s", {"attributes": {"x": "number"}})


class Losing(Protocol):
    """A log that loses what a test wants it to lose, while nobody has it open."""

    partitions: int

    def log(self, worker: str = "worker") -> Log: ...

    def outputs(self, topic: str) -> list[tuple[bytes | None, bytes | None]]: ...

    def lose_command(self, offset: int) -> None:
        """Compacts the command log: of the key of this command only the newest stays."""

    def lose_state(self) -> None: ...


class LosingFile(SqliteSite):
    def lose_command(self, offset: int) -> None:
        self._do("DELETE FROM records WHERE offset = ? AND topic = (SELECT id FROM topics WHERE name = ?)",
                 offset, "queries")  # fmt: skip

    def lose_state(self) -> None:
        self._do("DELETE FROM state")

    def _do(self, statement: str, *values: object) -> None:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            assert connection.execute(statement, values).rowcount > 0


class LosingTopics(KafkaSite):
    partitions = 1

    def lose_command(self, offset: int) -> None:
        """Waits for the broker to do it, which looks at what lies before the newest record only."""
        at_once = {"min.compaction.lag.ms": "0", "min.cleanable.dirty.ratio": "0.0001", "segment.ms": "1"}
        topic = ConfigResource(ConfigResourceType.TOPIC, self.prefix + "queries", configs=at_once)
        with closing(self.admin()) as admin:
            admin.alter_configs([topic])
        with closing(self.log("elsewhere")) as log:
            log.open()

            def compacted() -> bool:
                log.append_commands([Message(b"nothing", b"null")])
                return all(record.offset != offset for record in log.commands(0, log.end_of_commands()))

            eventually(compacted, "the command log is compacted")

    def lose_state(self) -> None:
        with closing(self.admin()) as admin:
            admin.delete_topics([self.prefix + "state"])


@pytest.fixture(params=["sqlite", pytest.param("kafka", marks=pytest.mark.kafka)])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Losing:
    if request.param == "sqlite":
        return LosingFile(tmp_path / "log.db")
    return LosingTopics(request.getfixturevalue("broker").address)


@pytest.fixture
def begin(site: Losing) -> Iterator[Callable[[], Worker]]:
    """Starts a worker and waits until it has its partition; the one before has ended."""
    made: list[Worker] = []

    def one() -> Worker:
        for before in made:
            before.close()
        worker = Worker(
            site.log(),
            lambda: Engine(engine_limits=Engine().limits._replace(ids=2)),
            Metrics(),
            clock=lambda: 5_000,
            max_message_bytes=1 << 16,
            max_batch_events=100,
        )
        made.append(worker)
        worker.open()
        settle(worker)
        return worker

    yield one
    for worker in made:
        worker.close()


def settle(worker: Worker) -> None:
    """Until nothing is left to do."""

    def idle() -> bool:
        worker.step([], timeout_s=0.05)
        ends = worker._log.end_offsets([TopicPartition(*task) for task in worker.positions])
        return worker.ready and all(worker.positions[task] == end for task, end in ends.items())  # type: ignore[index]

    eventually(idle, "the worker has caught up")


def ask(worker: Worker, *commands: Command) -> None:
    for command in commands:
        heard: list[CommandRequest] = []
        request = CommandRequest([command], True, heard.append, lambda error: pytest.fail(str(error)))
        worker.step([request], timeout_s=0)
        settle(worker)
        assert heard and not isinstance(heard[0].results[0], Exception)


def query(id: str, where: str, **more: Any) -> PutQuery:
    return PutQuery(id, {"id": id, "source": "s", "where": where, **more})


def send(worker: Worker, *events: dict[str, Any]) -> None:
    worker._log.append_events(
        TOPIC, [Message(one["stream_id"].encode(), json.dumps(one).encode(), 0) for one in events]
    )
    settle(worker)


def told(site: Losing) -> list[tuple[str, int, str, list[str], list[str]]]:
    records = [json.loads(value or b"") for _, value in site.outputs("borders")]
    return [(r["stream_id"], r["seq"], r["reason"], r["leave"], r["enter"]) for r in records]


def folded(site: Losing) -> dict[str, set[str]]:
    return check_balance(by_stream(("borders", key, value) for key, value in site.outputs("borders")))


def elsewhere(log: Log, *commands: Command) -> list[int]:
    """Commands that another worker writes, which has the same query set."""
    worker = Worker(
        log, Engine, Metrics(), clock=lambda: 5_000, max_message_bytes=1 << 16, max_batch_events=100
    )
    log.open()
    worker._replay(worker.engine, log.end_of_commands())
    draft = worker.engine.draft(5_000)
    from service import wire

    entries = [draft.prepare(command).entry for command in commands]
    offsets = log.append_commands([wire.command_message(entry, at_ms=5_000) for entry in entries if entry])
    log.close()
    return offsets


def begun(begin: Callable[[], Worker]) -> Worker:
    """Three streams, and queries of every kind."""
    worker = begin()
    ask(worker, SOURCE, query("a", "x > 0"), query("b", "x > 5"), query("c", "x < 100"), query("d", "x > 7"))
    ask(worker, query("shy", "x > 0", initial="ignore"), query("kept", "x > 9", keep="x > 5"))
    ask(worker, query("counted", "x > 0", aggregates={"every": 10, "of": ["x"]}))
    send(worker, {"stream_id": "s1", "x": 10}, {"stream_id": "s2", "x": -5}, {"stream_id": "s3", "x": 6})
    return worker


def test_what_is_missed_and_can_be_had_is_told_as_it_was(site: Losing, begin: Callable[[], Worker]) -> None:
    begun(begin).close()
    elsewhere(site.log("elsewhere"), PatchQuery("a", {"where": "x > 8"}), DeleteQuery("b"))
    begin()
    reasons = [reason for _, _, reason, _, _ in told(site)]
    assert "reset" not in reasons
    assert {"updated", "deleted"} <= set(reasons)
    assert folded(site)["s3"] == {"c", "counted"}


def test_streams_begin_anew_where_the_command_log_is_past_their_position(
    site: Losing, begin: Callable[[], Worker]
) -> None:
    first = begun(begin)
    before = len(told(site))
    first.close()
    then = [read.offset for read in commands_of(site) if b'"op":"query","id":"a"' in (read.value or b"")]
    elsewhere(site.log("elsewhere"), PatchQuery("a", {"where": "x > 8"}), DeleteQuery("b"))
    site.lose_command(then[0])
    worker = begin()
    assert [
        (id, seq, leave, enter) for id, seq, reason, leave, enter in told(site)[before:] if reason == "reset"
    ] == [
        ("s1", 1, [], []),
        ("s2", 1, [], []),
        ("s3", 1, [], []),
        ("s1", 2, [], ["a", "c"]),
        ("s1", 3, [], ["counted", "d"]),
        ("s1", 4, [], ["kept"]),
        ("s2", 2, [], ["c"]),
        ("s3", 2, [], ["c", "counted"]),
    ]
    assert len(told(site)) == before + 8
    members = {id: set(worker.engine.members(id)) for id in worker.engine.catalog.queries}
    inside = folded(site)
    assert members == {id: {stream for stream in inside if id in inside[stream]} for id in members}
    assert members["shy"] == set(), "it is ignored where it is found inside"
    assert b'rangewatch_resets_total{missing="commands"} 1.0' in worker._metrics.text()
    send(worker, {"stream_id": "s3", "x": 20}, {"stream_id": "s2", "x": 3})
    assert folded(site)["s3"] == {"a", "c", "d", "counted", "kept"}
    assert told(site)[-3][:3] == ("s3", 3, "event")
    begin()
    assert b"rangewatch_resets_total{" not in begin()._metrics.text(), "it is said once"


def test_streams_begin_anew_with_their_next_event_where_the_state_is_gone(
    site: Losing, begin: Callable[[], Worker]
) -> None:
    first = begun(begin)
    before = len(told(site))
    first.close()
    site.lose_state()
    worker = begin()
    assert len(told(site)) == before
    assert b'rangewatch_resets_total{missing="state"} 1.0' in worker._metrics.text()
    send(worker, {"stream_id": "s1", "x": 6}, {"stream_id": "s1", "x": -1}, {"stream_id": "new", "x": -200})
    worker = begin()
    send(worker, {"stream_id": "s3", "x": -6}, {"stream_id": "s1", "x": 1})
    assert told(site)[before:] == [
        ("s1", 1, "reset", [], []),
        ("s1", 2, "event", [], ["a", "b"]),
        ("s1", 3, "event", [], ["c", "counted"]),
        ("s1", 4, "event", ["a", "b"], []),
        ("s1", 5, "event", ["counted"], []),
        ("new", 1, "reset", [], []),
        ("new", 2, "event", [], ["c"]),
        ("s3", 1, "reset", [], []),
        ("s3", 2, "event", [], ["c"]),
        ("s1", 6, "event", [], ["a", "counted"]),
        ("s1", 7, "event", [], ["shy"]),
    ]
    assert folded(site) == {"s1": {"a", "c", "counted", "shy"}, "s2": {"c"}, "s3": {"c"}, "new": {"c"}}


def commands_of(site: Losing) -> list[Any]:
    with closing(site.log("elsewhere")) as log:
        log.open()
        return list(log.commands(0, log.end_of_commands()))
