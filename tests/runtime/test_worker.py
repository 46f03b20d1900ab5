"""What the worker owes to those who wait, and to the counters, when something goes wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from service import decode, requests, wire
from service.deliveries import Delivery
from service.engine.commands import Command, DeleteQuery, Outcome, PatchQuery, PutQuery, PutSource
from service.engine.effects import Batch, CommandEffects, EventEffects, Task
from service.engine.engine import Engine, EngineLimits
from service.log.port import (
    Commit,
    Log,
    LogFenced,
    LogMoved,
    LogUnavailable,
    Message,
    Polled,
    Record,
    TopicPartition,
)
from service.log.sqlite import SqliteLog
from service.metrics import Metrics
from service.model import Reason, Refusal
from service.pace import REFUSED_AS
from service.requests import CommandRequest
from service.worker import Worker
from tests.runtime.memory_log import MemoryLog, Store

TOPIC = "events.s"
QUERY = {"source": "s", "where": "x > 0"}


class Failing(MemoryLog):
    """A log whose commits raise what ``failures`` has, one after another. ``first``: commands of another
    worker, which is faster with them than the next append. ``busy``: how many appends find that another is
    writing."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.failures: list[Exception] = []
        self.first: list[Message] = []
        self.busy = 0

    def commit(self, commit: Commit) -> None:
        if self.failures:
            raise self.failures.pop(0)
        super().commit(commit)

    def append_commands(self, commands: Iterable[Message], *, after: int) -> list[int]:
        if self.busy:
            self.busy -= 1
            raise LogMoved("another worker is writing commands")
        first, self.first = self.first, []
        super().append_commands(first, after=self.end_of_commands())
        return super().append_commands(commands, after=after)


@pytest.fixture
def store() -> Store:
    return Store(partitions=1)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def log(store: Store) -> Failing:
    return Failing(store)


@pytest.fixture
def worker(log: Failing, metrics: Metrics) -> Worker:
    worker = Worker(log, Engine, metrics, clock=lambda: 1000, max_message_bytes=1 << 20, max_batch_events=100)
    worker.open()
    for command in (
        PutSource("s", {"attributes": {"x": "number"}}),
        PutQuery(None, {"id": "q", "source": "s", "where": "x > 0"}),
    ):
        worker.step([CommandRequest([command], True, lambda _: None, _fail)], timeout_s=0)
        worker.step([], timeout_s=0)
        worker.step([], timeout_s=0)
    return worker


def _fail(error: BaseException) -> None:
    raise error


def _event(x: int) -> Message:
    return Message(b"a", json.dumps({"stream_id": "a", "x": x}).encode())


def _counted(metrics: Metrics) -> dict[str, float]:
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(metrics.text().decode()):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


@pytest.mark.parametrize("key", [None, b"", b"\xff"])
def test_a_tombstone_without_a_stream_is_a_dead_letter(
    key: bytes | None, worker: Worker, store: Store, metrics: Metrics
) -> None:
    for message in (_event(1), Message(key, None), Message(b"a", None), Message(b"nobody", None)):
        store.append(TOPIC, message._replace(partition=0))
    worker.step([], timeout_s=0)
    counted = _counted(metrics)
    assert counted["rangewatch_events_total"] == 2
    assert counted["rangewatch_events_processed_total"] == 1
    assert counted["rangewatch_events_refused_total"] == 1
    reasons = [json.loads(value)["reason"] for topic, _, value in store.outputs if topic == "dead_letter"]
    assert reasons == ["no_stream_id"]


@pytest.mark.parametrize("late", ["no_border", "process", "reject"])
def test_what_policies_do_is_counted(late: str, worker: Worker, store: Store, metrics: Metrics) -> None:
    attributes = {"x": "number", "y": "number", "k": "category"}
    body = {"attributes": attributes, "missing": "carry", "nulls": "absent", "late": late}
    worker.step([CommandRequest([PutSource("t", body)], True, lambda _: None, _fail)], timeout_s=0)
    for _ in range(2):
        worker.step([], timeout_s=0)
    events = [
        {"ts": 5, "x": 1, "k": "a"},
        {"ts": 6, "y": None},  # x and k are carried, y is null
        {"ts": 4, "x": 2, "k": None},  # late: nothing is carried
        {"ts": 7, "x": None, "k": "b"},  # x is carried
    ]
    for event in events:
        value = json.dumps({"stream_id": "a", **event}).encode()
        store.append("events.t", Message(b"a", value)._replace(partition=0))
    for _ in range(3):
        worker.step([], timeout_s=0)
    counted = _counted(metrics)
    assert counted["rangewatch_events_total"] == 4
    refused = late == "reject"
    assert counted.get("rangewatch_events_refused_total", 0) == refused
    assert counted["rangewatch_events_late_total"] == (not refused)
    assert counted["rangewatch_values_null_total"] == 3
    assert counted["rangewatch_values_carried_total"] == 3


def test_a_log_that_is_away_delays_the_commit_and_nothing_else(
    worker: Worker, log: Failing, store: Store, metrics: Metrics
) -> None:
    heard: list[Delivery] = []
    log.failures = [LogUnavailable("away"), LogUnavailable("away")]
    request = Delivery(TOPIC, [_event(1)], heard.append, _fail)
    with pytest.raises(LogUnavailable):
        worker.step([request], timeout_s=0)
    assert worker.uncommitted and not heard
    with pytest.raises(LogUnavailable):
        worker.step([], timeout_s=0)
    assert _counted(metrics).get("rangewatch_events_total", 0) == 0
    worker.step([], timeout_s=0)
    assert heard == [request]
    assert [output.topic for output in request.outputs] == ["matches", "borders"]
    assert _counted(metrics)["rangewatch_events_total"] == 1
    assert [output.topic for output in store.outputs] == ["matches", "borders"]


def test_whoever_waits_for_a_commit_that_fails_for_good_is_told(
    worker: Worker, log: Failing, store: Store, metrics: Metrics
) -> None:
    told: list[BaseException] = []
    log.failures = [LogFenced("another worker")]
    request = Delivery(TOPIC, [_event(1)], lambda _: None, told.append)
    with pytest.raises(LogFenced):
        worker.step([request], timeout_s=0)
    worker.close()
    worker.open()
    assert len(told) == 1
    for _ in range(3):
        worker.step([], timeout_s=0)
    assert _counted(metrics)["rangewatch_events_total"] == 1
    assert [output.topic for output in store.outputs] == ["matches", "borders"]

    told.clear()
    log.failures = [LogFenced("another worker")]
    command = PutQuery(None, {"id": "r", "source": "s", "where": "x > 0"})
    with pytest.raises(LogFenced):
        worker.step([CommandRequest([command], True, lambda _: None, told.append)], timeout_s=0)
    worker.close()
    worker.open()
    assert len(told) == 1
    for _ in range(3):
        worker.step([], timeout_s=0)
    borders = [json.loads(value) for topic, _, value in store.outputs if topic == "borders"]
    assert [(one["seq"], one["enter"]) for one in borders] == [(1, ["q"]), (2, ["r"])]


def test_the_number_of_the_query_set_is_that_of_every_worker_that_has_it(
    worker: Worker, store: Store, metrics: Metrics
) -> None:
    def at_work(store: Store) -> tuple[Worker, Metrics]:
        metrics = Metrics()
        made = Worker(
            MemoryLog(store),
            Engine,
            metrics,
            clock=lambda: 1,
            max_message_bytes=1 << 20,
            max_batch_events=100,
        )
        made.open()
        made.step([], timeout_s=0)
        return made, metrics

    def told(metrics: Metrics) -> tuple[float, float]:
        counted = _counted(metrics)
        return counted["rangewatch_command_offset"], counted["rangewatch_query_set_fingerprint"]

    first = told(metrics)
    _, beside = at_work(store)
    assert told(beside) == first
    _answer(worker, PutQuery(None, {"id": "r", "source": "s", "where": "x > 1"}))
    second = told(metrics)
    assert told(at_work(store)[1]) == second
    other, apart = at_work(Store(partitions=1))
    _answer(other, PutSource("s", {"attributes": {"x": "number"}}))
    _answer(other, PutQuery(None, {"id": "q", "source": "s", "where": "x > 0"}))
    assert told(apart) == first, "the same set, though of another log"
    _answer(other, DeleteQuery("q"))
    third = told(apart)
    assert third[0] == second[0], "as of the same offset"
    assert len({first[1], second[1], third[1]}) == 3


def test_a_worker_is_ready_when_it_has_applied_all_commands(worker: Worker, store: Store) -> None:
    assert worker.ready
    entry = worker.engine.draft(0).prepare(PutQuery(None, {"id": "r", "source": "s", "where": "x > 1"})).entry
    assert entry is not None
    elsewhere = MemoryLog(store)
    elsewhere.append_commands([wire.command_message(entry, at_ms=0)], after=elsewhere.end_of_commands())
    assert not worker.ready
    worker.step([], timeout_s=0)
    assert worker.ready
    assert "r" in worker.engine.catalog.queries


def test_a_query_is_refused_whose_source_another_worker_changes_meanwhile(
    log: Failing, worker: Worker
) -> None:
    elsewhere = worker.engine.draft(0).prepare(PutSource("s", {"attributes": {"x": "number", "y": "number"}}))
    assert elsewhere.entry is not None
    elsewhere.entry.body["source"]["attributes"] = {"y": "number", "x": "category"}
    log.first = [wire.command_message(elsewhere.entry, at_ms=0)]
    heard: list[CommandRequest] = []
    wanted = [PutQuery("r", {"source": "s", "where": "x > 1"}), DeleteQuery("q")]
    worker.step([CommandRequest(wanted, True, heard.append, _fail)], timeout_s=0)
    for _ in range(3):
        worker.step([], timeout_s=0)
    (request,) = heard
    put, delete = request.results
    assert isinstance(put, Refusal) and put.reason is Reason.BAD_OPERATOR and delete is None
    assert list(worker.engine.catalog.quarantined) == ["q"], "it is as the other has left it"


def _elsewhere(log: Failing, worker: Worker, *commands: Command) -> None:
    """Another worker, which has seen what this one has, writes these commands before the next of this one."""
    draft = worker.engine.draft(0)
    entries = [draft.prepare(command).entry for command in commands]
    log.first = [wire.command_message(entry, at_ms=0) for entry in entries if entry is not None]


def _answer(worker: Worker, *commands: Command) -> Sequence[Outcome | Refusal | None]:
    heard: list[CommandRequest] = []
    _run(worker, CommandRequest(commands, False, heard.append, _fail), heard)
    return heard[0].results


def _many(count: int) -> list[Command]:
    return [PutQuery(None, {"id": f"m{n}", "source": "s", "where": f"x > {n}"}) for n in range(count)]


def test_a_long_request_is_judged_between_events(
    log: Failing, worker: Worker, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "PART", 2)
    heard: list[CommandRequest] = []
    before = log.end_of_commands()
    long, short = (
        CommandRequest(commands, True, heard.append, _fail) for commands in (_many(5), [DeleteQuery("m4")])
    )
    worker.step([long, short], timeout_s=9)
    for x in (-1, 1):
        assert log.end_of_commands() == before, "nothing is written before all has been judged"
        store.append(TOPIC, _event(x)._replace(partition=0))
        worker.step([], timeout_s=9)
    assert len([output for output in store.outputs if output.topic == "borders"]) == 1, "events go on"
    assert log.end_of_commands() == before + 5
    while len(heard) < 2:
        worker.step([], timeout_s=9)
    assert heard == [long, short], "and the next one sees what it has done"
    assert [outcome.done for outcome in short.results if isinstance(outcome, Outcome)] == ["deleted"]


def test_a_request_whose_commands_take_long_is_judged_between_events_too(
    log: Failing, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "PART_S", -1.0)  # each takes longer
    heard: list[CommandRequest] = []
    before = log.end_of_commands()
    request = CommandRequest(_many(3), True, heard.append, _fail)
    for some in ([request], []):
        worker.step(some, timeout_s=9)
        assert log.end_of_commands() == before
    worker.step([], timeout_s=9)
    assert log.end_of_commands() == before + 3
    while not heard:
        worker.step([], timeout_s=9)
    assert heard == [request]
    assert [outcome.done for outcome in request.results if isinstance(outcome, Outcome)] == ["created"] * 3


def test_a_long_request_that_others_come_before_is_judged_anew(
    log: Failing, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "PART", 2)
    heard: list[CommandRequest] = []
    long = CommandRequest([*_many(4), DeleteQuery("q")], True, heard.append, _fail)
    worker.step([long], timeout_s=9)
    gone = worker.engine.draft(0).prepare(DeleteQuery("q")).entry
    assert gone is not None
    log.append_commands([wire.command_message(gone, at_ms=0)], after=log.end_of_commands())
    while not heard:
        worker.step([], timeout_s=9)
    *others, refused = long.results
    assert isinstance(refused, Refusal) and refused.reason is Reason.UNKNOWN_ID
    assert others == [None] * 4 and "m0" not in worker.engine.catalog.queries


def test_a_long_request_is_judged_in_the_end_however_often_others_come_before(
    log: Failing, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "PART", 2)
    heard: list[CommandRequest] = []
    worker.step([CommandRequest(_many(7), True, heard.append, _fail)], timeout_s=9)
    for number in range(10):
        other = PutQuery(f"o{number}", {"source": "s", "where": "x > 0"})
        entry = worker.engine.draft(0).prepare(other).entry
        assert entry is not None
        log.append_commands([wire.command_message(entry, at_ms=0)], after=log.end_of_commands())
        for _ in range(2):
            worker.step([], timeout_s=9)
    assert heard and len(heard[0].results) == 7
    assert all(isinstance(result, Outcome) for result in heard[0].results)


def test_what_others_write_while_a_request_is_judged_counts(
    log: Failing, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = str(worker.engine.catalog.queries["q"].version)
    others = [worker.engine.draft(0).prepare(PatchQuery("q", {"where": "x > 7"})).entry]
    judge = requests._Judging.go_on

    def slowly(judging: requests._Judging) -> None:
        judge(judging)
        for entry in others:
            assert entry is not None
            log.append_commands([wire.command_message(entry, at_ms=0)], after=log.end_of_commands())
        others.clear()

    monkeypatch.setattr(requests._Judging, "go_on", slowly)
    (refused,) = _answer(worker, PatchQuery("q", {"tags": {"a": "b"}}, version))
    assert isinstance(refused, Refusal) and refused.reason is Reason.CHANGED
    assert worker.engine.catalog.queries["q"].query.where == "x > 7"


def test_who_waits_for_a_long_request_is_told_when_the_worker_gives_up(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "PART", 2)
    told: list[BaseException] = []
    worker.step([CommandRequest(_many(5), True, lambda _: None, told.append)], timeout_s=9)
    worker.abandon(LogFenced("away"))
    assert [str(error) for error in told] == ["away"]


def test_a_topic_is_of_the_source_that_came_first(log: Failing, worker: Worker) -> None:
    body = {"attributes": {"x": "number"}, "topic": "events.t"}
    _elsewhere(log, worker, PutSource("first", body))
    put, query = _answer(
        worker, PutSource("second", body), PutQuery("r", {"source": "second", "where": "x > 1"})
    )
    assert isinstance(put, Refusal) and (put.reason, put.field) == (Reason.EXISTS, "topic")
    assert isinstance(query, Refusal) and query.reason is Reason.UNKNOWN_SOURCE
    assert worker.engine.source_of_topic == {TOPIC: "s", "events.t": "first"}


def test_of_two_first_versions_of_a_source_the_second_counts(
    log: Failing, worker: Worker, store: Store
) -> None:
    """And what the first has begun is over: its partitions are nobody's."""

    def told() -> list[Any]:
        records = [json.loads(output.value) for output in store.outputs if output.topic == "borders"]
        return [record["enter"] for record in records]

    first, second = (
        worker.engine.draft(0).prepare(PutSource("t", {"attributes": {"x": "number"}, "topic": topic})).entry
        for topic in ("events.old", "events.new")
    )
    assert first is not None and second is not None
    log.append_commands([wire.command_message(first, at_ms=0)], after=log.end_of_commands())
    worker.step([], timeout_s=0)
    _answer(worker, PutQuery("r", {"source": "t", "where": "x > 0"}))
    store.append("events.old", _event(1)._replace(partition=0))
    worker.step([], timeout_s=0)
    assert told() == [["r"]]

    log.append_commands([wire.command_message(second, at_ms=0)], after=log.end_of_commands())
    store.append("events.old", _event(-1)._replace(partition=0))
    store.append("events.new", _event(2)._replace(partition=0))
    for _ in range(4):
        worker.step([], timeout_s=0)
    assert told() == [["r"], ["r"]]
    assert {topic for topic, _ in worker.positions} == {TOPIC, "events.new"}
    assert {task.topic for task in worker.engine.tables} == {TOPIC, "events.new"}


def test_an_id_is_of_the_source_that_came_first(log: Failing, worker: Worker, store: Store) -> None:
    _answer(worker, PutSource("t", {"attributes": {"y": "number"}}))
    _elsewhere(log, worker, PutQuery("r", {"source": "s", "where": "x > 5"}))
    (put,) = _answer(worker, PutQuery("r", {"source": "t", "where": "y > 5"}))
    assert isinstance(put, Refusal) and (put.reason, put.field) == (Reason.BAD_VALUE, "source")
    for _ in range(3):
        worker.step([], timeout_s=0)
    assert worker.engine.catalog.queries["r"].query.source == "s"
    newest = [json.loads(record.value or b"") for record in log.commands(0, log.end_of_commands())][-1]
    assert newest["id"] == "r" and newest["query"]["source"] == "s", "nothing is written that does nothing"


def test_a_request_waits_while_another_writes_and_is_written_once(
    log: Failing, worker: Worker, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[CommandRequest] = []
    waits: list[float] = []
    poll = log.poll

    def polled(*, timeout_s: float, max_records: int) -> Polled:
        waits.append(timeout_s)
        return poll(timeout_s=timeout_s, max_records=max_records)

    monkeypatch.setattr(log, "poll", polled)
    before, log.busy = log.end_of_commands(), 3
    request = CommandRequest(_many(2), True, heard.append, _fail)
    short = CommandRequest([DeleteQuery("m1")], True, heard.append, _fail)
    worker.step([request, short], timeout_s=9)
    for x in (-1, 1):
        store.append(TOPIC, _event(x)._replace(partition=0))
        worker.step([], timeout_s=9)
    assert not log.busy and log.end_of_commands() == before and not heard
    assert [output.topic for output in store.outputs] == ["matches", "borders"], "events go on"
    assert all(0 < wait < 1 for wait in waits), "nobody sleeps for it, nor asks without a pause"
    while len(heard) < 2:
        worker.step([], timeout_s=9)
    assert heard == [request, short] and log.end_of_commands() == before + 3
    assert [outcome.done for outcome in short.results if isinstance(outcome, Outcome)] == ["deleted"]


@pytest.mark.parametrize("refused", [False, True])
def test_a_long_request_is_judged_while_it_is_written_where_others_are_always_faster(
    refused: bool, log: Failing, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "PART", 2)
    heard: list[CommandRequest] = []
    commands = [*_many(7), *([DeleteQuery("nobody")] if refused else [])]
    worker.step([CommandRequest(commands, True, heard.append, _fail)], timeout_s=9)
    for number in range(10):
        other = PutQuery(f"o{number}", {"source": "s", "where": "x > 0"})
        entry = worker.engine.draft(0).prepare(other).entry
        assert entry is not None
        message = wire.command_message(entry, at_ms=0)
        log.first = [message] if number % 2 else []
        if not log.first:
            log.append_commands([message], after=log.end_of_commands())
        for _ in range(3):
            worker.step([], timeout_s=9)
    (request,) = heard
    written = [id for id in worker.engine.catalog.queries if id.startswith("m")]
    if refused:
        assert not written and request.results[:-1] == [None] * 7
        assert isinstance(request.results[-1], Refusal)
    else:
        assert len(written) == 7 and all(isinstance(result, Outcome) for result in request.results)
    entries = [wire.command_body(record.value) for record in log.commands(0, log.end_of_commands())]
    ids = [entry["id"] for entry in entries if entry["op"] == "query"]
    assert len(ids) == len(set(ids)), "nothing is written twice"


def test_who_waits_while_another_writes_is_told_when_the_worker_gives_up(
    log: Failing, worker: Worker
) -> None:
    told: list[BaseException] = []
    log.busy = 1
    worker.step([CommandRequest(_many(1), True, lambda _: None, told.append)], timeout_s=9)
    worker.abandon(LogFenced("away"))
    assert [str(error) for error in told] == ["away"]
    before = log.end_of_commands()
    worker.step([], timeout_s=0)
    assert log.end_of_commands() == before, "and nothing is written for it any more"


class Timed(MemoryLog):
    """A log that notes how long each poll was ready to wait."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.waits: list[float] = []

    def poll(self, *, timeout_s: float, max_records: int) -> Polled:
        self.waits.append(timeout_s)
        return super().poll(timeout_s=timeout_s, max_records=max_records)


def _in_memory(_: Path) -> Log:
    return Timed(Store(partitions=1))


def _in_a_file(folder: Path) -> Log:
    return SqliteLog(folder / "log.db", clock_ms=lambda: 1000)


def _run(worker: Worker, request: CommandRequest | Delivery, heard: list[Any]) -> int:
    """Steps until the request is answered; returns how many that took."""
    worker.step([request], timeout_s=9)
    steps = 1
    while not heard:
        assert steps < 1_000, "it is not getting on"
        worker.step([], timeout_s=9)
        steps += 1
    return steps


@pytest.mark.parametrize("make_log", [_in_memory, _in_a_file])
def test_events_are_served_while_a_command_is_told(
    make_log: Callable[[Path], Log], tmp_path: Path, metrics: Metrics
) -> None:
    log = make_log(tmp_path)
    limits = EngineLimits(portion=2)
    worker = Worker(
        log,
        lambda: Engine(engine_limits=limits),
        metrics,
        clock=lambda: 1000,
        max_message_bytes=1 << 20,
        max_batch_events=100,
    )
    worker.open()
    heard: list[Any] = []
    streams = [f"s{number}" for number in range(20)]

    def command(body: Command) -> int:
        heard.clear()
        return _run(worker, CommandRequest([body], True, heard.append, _fail), heard)

    command(PutSource("s", {"attributes": {"x": "number"}}))
    worker.step([], timeout_s=0)
    log.append_events(
        TOPIC, [Message(name.encode(), b'{"stream_id": "%b", "x": 1}' % name.encode()) for name in streams]
    )
    worker.step([], timeout_s=0)
    command(PutQuery(None, {"id": "q", "source": "s", "where": "x > 0", "on": ["enter", "leave"]}))
    assert sorted(worker.engine.members("q")) == sorted(streams), "the answer comes when the change holds"
    assert worker.engine.owes
    heard.clear()
    event = Message(b"s19", b'{"stream_id": "s19", "x": 0}')
    steps = _run(worker, Delivery(TOPIC, [event], heard.append, _fail), heard)
    assert steps <= 2, "it waits for a portion at the most"
    assert [json.loads(output.value)["seq"] for output in heard[0].outputs] == [2]
    owed = 20 - 2 - 1 - 2 * steps
    assert _counted(metrics)["rangewatch_owed_records"] == owed
    if isinstance(log, Timed):
        log.waits.clear()
    steps = 0
    while worker.engine.owes:
        worker.step([], timeout_s=9)
        steps += 1
    assert steps == -(-owed // 2)
    if isinstance(log, Timed):
        assert log.waits == [0.0] * steps, "nobody waits for news while something is owed"
    assert _counted(metrics)["rangewatch_owed_records"] == 0
    assert _counted(metrics)["rangewatch_enters_total"] == 20
    worker.close()


class Watched(SqliteLog):
    """Notes what each commit has, as (events up to here, records of matches and borders)."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, clock_ms=lambda: 1000)
        self.commits: list[tuple[int, int]] = []

    def commit(self, commit: Commit) -> None:
        for position in commit.positions.values():
            told = sum(output.topic in ("matches", "borders") for output in commit.outputs)
            self.commits.append((position.event, told))
        super().commit(commit)


@pytest.mark.parametrize("make_log", [_in_memory, Watched])
def test_a_step_ends_with_the_message_that_has_matched_enough(
    make_log: Callable[[Path], Log], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events go one by one then, and nothing of what is told or counted changes."""

    def played(folder: Path, most_matches: int) -> tuple[list[Any], dict[str, float], Log]:
        folder.mkdir()
        log, metrics = make_log(folder / "log.db"), Metrics()
        worker = Worker(
            log,
            Engine,
            metrics,
            clock=lambda: 1000,
            max_message_bytes=1 << 20,
            max_batch_events=100,
            max_message_events=6,
            most_matches=most_matches,
        )
        worker.open()
        heard: list[Any] = []
        source = {"attributes": {"x": "number"}, "nulls": "absent"}
        _run(worker, CommandRequest([PutSource("s", source)], True, heard.append, _fail), heard)
        queries: list[Command] = [
            PutQuery(None, {"id": f"q{n}", "source": "s", "where": f"x > {n}"}) for n in range(4)
        ]
        heard.clear()
        _run(worker, CommandRequest(queries, True, heard.append, _fail), heard)
        events = [{"stream_id": f"s{n % 3}", "x": n * 7 % 6 or None} for n in range(20)]
        messages = [
            json.dumps(events[:5]).encode(),
            b"no json",
            b"[5, " + json.dumps(events[5:10])[1:].encode(),
            json.dumps(events[10]).encode(),
            json.dumps(events[11:18]).encode(),  # one too many
            json.dumps(events[18:]).encode(),
        ]
        several = [Message(None, value, 0) for value in messages] + [Message(b"s1", None)]
        if isinstance(log, Watched):
            log.commits.clear()
        heard.clear()
        _run(worker, Delivery(TOPIC, several, heard.append, _fail), heard)
        counted = _counted(metrics)
        log.close()
        (delivery,) = heard
        assert delivery.refused == 3 and delivery.removed
        names = ("events_processed", "events_refused", "values_null", "matches", "enters", "leaves")
        return delivery.outputs, {name: counted[f"rangewatch_{name}_total"] for name in names}, log

    whole, counts, log = played(tmp_path / "whole", 1_000)
    parts, the_same, cut = played(tmp_path / "cut", 1)
    assert parts == whole and the_same == counts
    monkeypatch.setattr(decode, "MOST_ROWS", 3)
    some, the_same, _ = played(tmp_path / "some", 1_000)
    assert some == whole and the_same == counts
    letters = [json.loads(value) for topic, _, value in whole if topic == "dead_letter"]
    assert [one["reason"] for one in letters] == ["malformed", "malformed", "limit"]
    assert "max_message_events" in letters[-1]["detail"]
    if isinstance(log, Watched) and isinstance(cut, Watched):
        assert [upto for upto, _ in log.commits] == [7]
        assert [upto for upto, _ in cut.commits] == [2, 3, 5, 6, 7]
        assert all(told for _, told in cut.commits)


def _ask(worker: Worker, *commands: Command) -> None:
    heard: list[Any] = []
    _run(worker, CommandRequest(commands, True, heard.append, _fail), heard)


def _bounded(log: Log, *, max_batch_events: int, most_matches: int) -> Worker:
    worker = Worker(
        log,
        Engine,
        Metrics(),
        clock=lambda: 1000,
        max_message_bytes=1 << 20,
        max_batch_events=max_batch_events,
        most_matches=most_matches,
    )
    worker.open()
    return worker


def _steps_of(events: Mapping[int, Sequence[bytes]], *, most_matches: int) -> list[dict[int, int]]:
    """Of messages by partition, about ten queries of x > 0: the position of each partition that moved, commit
    by commit."""

    class Noting(MemoryLog):
        def commit(self, commit: Commit) -> None:
            commits.append({place.partition: position.event for place, position in commit.positions.items()})
            super().commit(commit)

    commits: list[dict[int, int]] = []
    store = Store(partitions=2)
    worker = _bounded(Noting(store), max_batch_events=100, most_matches=most_matches)
    _ask(worker, PutSource("s", {"attributes": {"x": "number"}}))
    _ask(worker, *(PutQuery(None, QUERY | {"id": f"q{n}"}) for n in range(10)))
    commits.clear()
    for partition, values in events.items():
        for value in values:
            store.append(TOPIC, Message(None, value, partition))
    for _ in range(20):
        worker.step([], timeout_s=0)
    assert {place.partition: len(records) for place, records in store.events.items()} == {
        place.partition: position.event for place, position in store.positions.items()
    }
    return commits


def test_a_step_holds_what_all_partitions_have_matched_together() -> None:
    event = b'{"stream_id": "a", "x": 1}'
    one, other = _steps_of({0: [event], 1: [event]}, most_matches=10)
    assert [one, other] == [{0: 1}, {1: 1}]
    assert _steps_of({0: [event], 1: [event]}, most_matches=1_000) == [{0: 1, 1: 1}]


def test_a_step_ends_with_refusals_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a dead letter, which is more than a match; and no more messages are read than that."""
    messages = {0: [b"[1, 2, 3, 4]"] * 5}
    assert _steps_of(messages, most_matches=4 * REFUSED_AS) == [{0: 5}]
    monkeypatch.setattr(decode, "MOST_ROWS", 8)
    assert _steps_of(messages, most_matches=8 * REFUSED_AS) == [{0: 2}, {0: 4}, {0: 5}]
    assert _steps_of(messages, most_matches=16 * REFUSED_AS) == [{0: 4}, {0: 5}]


def test_nothing_more_is_read_of_a_partition_of_which_something_waits() -> None:
    store = Store(partitions=1)
    log = MemoryLog(store)
    worker = _bounded(log, max_batch_events=3, most_matches=10)
    _ask(worker, PutSource("s", {"attributes": {"x": "number"}}))
    _ask(worker, *(PutQuery(None, QUERY | {"id": f"q{n}"}) for n in range(10)))
    task, waited = Task(TOPIC, 0), []
    for _ in range(12):
        store.append(TOPIC, Message(None, b'{"stream_id": "a", "x": 1}', 0))
    while worker.positions.get(task, 0) < 12:
        worker.step([], timeout_s=0)
        if worker.positions.get(task):
            waited.append(log._readers[TopicPartition(*task)] - worker.positions[task])
    assert waited == [2, 1, 0] * 4, "a message a step, and a poll when there is none left"


def test_queries_that_come_make_slices_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    """What events matched before tells nothing of those: each may match every event."""
    applied: list[int] = []
    apply = Engine.apply

    def noting(self: Engine, task: Task, batch: Batch) -> Iterator[EventEffects | CommandEffects]:
        applied.append(len(batch.offsets))
        return apply(self, task, batch)

    monkeypatch.setattr(Engine, "apply", noting)
    store = Store(partitions=1)
    worker = _bounded(MemoryLog(store), max_batch_events=1_000, most_matches=1_000)

    def sent(count: int) -> list[int]:
        applied.clear()
        for _ in range(count):
            store.append(TOPIC, _event(-1)._replace(partition=0))
        for _ in range(20):
            worker.step([], timeout_s=0)
        assert sum(applied) == count
        return list(applied)

    _ask(worker, PutSource("s", {"attributes": {"x": "number"}}), PutQuery(None, QUERY | {"id": "q"}))
    sent(1_000)
    assert sent(1_000) == [1_000], "they matched nothing"
    _ask(worker, *(PutQuery(None, QUERY | {"id": f"q{n}"}) for n in range(500)))
    sizes = sent(1_000)
    assert sizes[:3] == [2, 16, 128], "as if all matched; then more, since nothing does"
    assert max(sizes) == 128, "but not so many that it would be far too much if they did"


def test_a_quarantined_query_expires_once_though_nobody_was_there_when_its_time_came(
    store: Store, metrics: Metrics
) -> None:
    log = Failing(store)
    stored = {"id": "q", "source": "s", "where": "nowhere > 0", "expires_at": 2000}
    entries = [
        {"op": "source", "name": "s", "source": {"attributes": {"x": "number"}}},
        {"op": "query", "id": "q", "query": stored},
    ]
    log.append_commands([Message(b"", json.dumps({"v": 1, **entry}).encode()) for entry in entries], after=0)
    for now, there in ((1999, ["q"]), (2000, []), (3000, [])):
        worker = Worker(
            log, Engine, metrics, clock=lambda now=now: now, max_message_bytes=1 << 20, max_batch_events=100
        )
        worker.open()
        for _ in range(5):
            worker.step([], timeout_s=0)
        assert list(worker.engine.catalog.quarantined) == there
        worker.close()
    written = [json.loads(record.value or b"") for record in log.commands(0, log.end_of_commands())]
    assert [(entry["op"], entry.get("reason")) for entry in written] == [
        *(("source", None), ("query", None)),
        ("delete", "expired"),
    ]


def test_a_late_expiry_does_nothing(worker: Worker, log: Failing, store: Store) -> None:
    body = {"v": 1, "op": "delete", "id": "q", "reason": "expired", "expires_at": 5}
    log.append_commands([Message(b"query:q", json.dumps(body).encode())], after=log.end_of_commands())
    for _ in range(5):
        worker.step([], timeout_s=0)
    entries = [json.loads(record.value or b"") for record in log.commands(0, log.end_of_commands())]
    assert [entry["op"] for entry in entries] == ["source", "query", "delete"]
    store.append(TOPIC, _event(1)._replace(partition=0))
    worker.step([], timeout_s=0)
    assert [output.topic for output in store.outputs] == ["matches", "borders"], "nobody has left"


def test_a_source_that_cannot_be_read_is_told_of_once_and_after_a_start(
    worker: Worker, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody, or a newer version, has written it."""

    def write(attributes: dict[str, str]) -> list[str]:
        body = {"v": 1, "op": "source", "name": "t", "source": {"attributes": attributes}}
        record = Record(len(store.commands), 1000, b"source:t:", json.dumps(body).encode())
        store.commands.append(record)
        return told(lambda: worker.step([], timeout_s=0))

    def told(act: Callable[[], None]) -> list[str]:
        caplog.clear()
        act()
        return [record.getMessage() for record in caplog.records if "cannot be read" in record.getMessage()]

    (said,) = write({"x": "vector"})
    assert "'t'" in said and "attributes.x" in said
    assert not told(lambda: worker.step([], timeout_s=0))
    worker.close()
    assert told(worker.open) == [said]
    assert not write({"x": "number"}) and "t" in worker.engine.sets
    assert write({"x": "vector"}) == [said]
    assert worker.engine.catalog.sources["t"].attributes["x"] == "number"


def test_a_source_whose_topic_cannot_be_read_is_refused_and_not_written(
    worker: Worker, log: Failing, store: Store
) -> None:
    store.refused.add("events.t")
    before = log.end_of_commands()
    (refusal,) = _answer(worker, PutSource("t", {"attributes": {"x": "number"}}))
    assert isinstance(refusal, Refusal)
    assert (refusal.reason, refusal.field) == (Reason.BAD_VALUE, "topic")
    assert "events.t is refused" in refusal.detail
    assert log.end_of_commands() == before
    (outcome,) = _answer(worker, PutSource("t", {"attributes": {"x": "number"}, "topic": "events.other"}))
    assert isinstance(outcome, Outcome) and outcome.done == "created"


def test_a_log_that_is_away_while_a_topic_is_made_turns_the_source_away(worker: Worker, log: Failing) -> None:
    def away(topic: str) -> None:
        raise LogUnavailable("away")

    told: list[BaseException] = []
    request = CommandRequest(
        [PutSource("t", {"attributes": {"x": "number"}})], True, lambda _: None, told.append
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(log, "make_topic", away)
        worker.step([request], timeout_s=0)
    assert [str(error) for error in told] == ["away"]
    (outcome,) = _answer(worker, *request.commands)
    assert isinstance(outcome, Outcome) and outcome.done == "created"


def test_a_topic_that_cannot_be_read_any_more_keeps_no_other_from_being_read(
    worker: Worker, log: Failing, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """Now, and after a start."""
    entry = worker.engine.draft(0).prepare(PutSource("t", {"attributes": {"x": "number"}})).entry
    assert entry is not None
    log.append_commands([wire.command_message(entry, at_ms=0)], after=log.end_of_commands())
    store.refused.add("events.t")
    for starts_anew in (False, True):
        caplog.clear()
        if starts_anew:
            worker.close()
            worker.open()
        store.append(TOPIC, _event(1))
        before = len(store.outputs)
        for _ in range(4):
            worker.step([], timeout_s=0)
        assert [output.topic for output in store.outputs[before:]][:1] == ["matches"]
        assert worker.ready
        told = [record for record in caplog.records if "events.t of source 't'" in record.getMessage()]
        assert len(told) == 1, "and not with every step"


def test_who_makes_a_source_is_told_when_its_partitions_have_come_or_a_while_has_passed(
    log: Failing, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1_000]
    worker = Worker(
        log, Engine, metrics, clock=lambda: now[0], max_message_bytes=1 << 20, max_batch_events=100
    )
    worker.open()
    heard: list[CommandRequest] = []

    def put(name: str) -> None:
        body = {"attributes": {"x": "number"}}
        worker.step([CommandRequest([PutSource(name, body)], True, heard.append, _fail)], timeout_s=0)
        for _ in range(3):
            worker.step([], timeout_s=0)

    def positions() -> list[tuple[str, int]]:
        (outcome,) = heard.pop().results
        assert isinstance(outcome, Outcome)
        return list(outcome.active_from)

    put("a")
    assert positions() == [("events.a", 0)]
    with monkeypatch.context() as patched:
        patched.setattr(Failing, "settled", property(lambda _: False))
        put("b")
        now[0] += 4_999
        worker.step([], timeout_s=0)
        assert heard == []
        now[0] += 1
        worker.step([], timeout_s=0)
        positions()
        put("c")
        assert heard == []
    worker.step([], timeout_s=0)
    assert positions() == [("events.c", 0)]
