"""A rebalance that gives a worker its own partitions back costs nothing; another costs a restore."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import pytest

from service.deliveries import Delivery
from service.engine.commands import Command, DeleteQuery, PutQuery, PutSource
from service.engine.engine import Engine, EngineLimits
from service.log.port import LogUnavailable, Message, Output, Polled, TopicPartition
from service.metrics import Metrics
from service.requests import CommandRequest
from service.worker import Worker
from tests.runtime.memory_log import Fate, MemoryLog, Store

TOPIC = "events.s"


class Heard:
    """A listener that writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def committed(self, outputs: Sequence[Output]) -> None:
        self.told.append(f"committed {len(outputs)}")

    def moved(self) -> None:
        self.told.append("moved")


def _worker(
    log: MemoryLog,
    listener: Heard | None = None,
    portion: int = 2_000,
    clock: Callable[[], int] = lambda: 1000,
) -> Worker:
    return Worker(
        log,
        partial(Engine, engine_limits=EngineLimits(portion=portion)),
        Metrics(),
        clock=clock,
        max_message_bytes=1 << 20,
        max_batch_events=100,
        listener=listener,
    )


def _settle(worker: Worker) -> None:
    for _ in range(4):
        worker.step([], timeout_s=0)


def _fail(error: BaseException) -> None:
    raise error


def _begun(log: MemoryLog, listener: Heard | None = None, clock: Callable[[], int] = lambda: 1000) -> Worker:
    worker = _worker(log, listener, clock=clock)
    worker.open()
    query = {"id": "q", "source": "s", "where": "x >= 0"}
    for command in (PutSource("s", {"attributes": {"x": "number"}}), PutQuery(None, query)):
        _command(worker, command)
        _settle(worker)
    return worker


def _command(worker: Worker, command: Command) -> None:
    worker.step([CommandRequest([command], True, _ignore, _fail)], timeout_s=0)


def _send(store: Store, stream_id: str, x: int) -> None:
    store.append(TOPIC, Message(stream_id.encode(), json.dumps({"stream_id": stream_id, "x": x}).encode()))


def _borders(store: Store) -> list[tuple[str, int, list[str], list[str]]]:
    found = [json.loads(value) for topic, _, value in store.outputs if topic == "borders"]
    return [(one["stream_id"], one["seq"], one["leave"], one["enter"]) for one in found]


def test_partitions_that_come_back_are_taken_up_as_they_were() -> None:
    store, fate = Store(), Fate()
    log = MemoryLog(store, fate)
    worker = _begun(log)
    _send(store, "a", 1)
    _settle(worker)
    fate.names.clear()
    heard: list[Delivery] = []
    waiting = Delivery(TOPIC, [Message(b"b", b'{"stream_id":"b","x":1}')], heard.append, _fail)
    log.rebalance()
    worker.step([waiting], timeout_s=0)
    _settle(worker)
    assert "restore" not in fate.names
    assert [output.topic for output in heard[0].outputs] == ["matches", "borders"]
    _send(store, "a", -1)
    _settle(worker)
    assert _borders(store) == [("a", 1, [], ["q"]), ("b", 1, [], ["q"]), ("a", 2, ["q"], [])]


def test_partitions_that_another_worker_moved_are_restored() -> None:
    store, fate = Store(), Fate()
    log = MemoryLog(store, fate)
    worker = _begun(log)
    _send(store, "a", 1)
    _settle(worker)
    log.rebalance()
    other = _worker(MemoryLog(store))
    other.open()
    _send(store, "a", -1)
    _settle(other)
    fate.names.clear()
    _settle(worker)
    assert "restore" in fate.names
    _send(store, "a", 2)
    _settle(worker)
    assert _borders(store) == [("a", 1, [], ["q"]), ("a", 2, ["q"], []), ("a", 3, [], ["q"])]


def test_who_waits_for_what_another_worker_processes_is_told_so_once() -> None:
    store = Store(partitions=2)
    log = MemoryLog(store)
    worker = _begun(log)
    log.give_away(TopicPartition(TOPIC, 1))
    _settle(worker)
    told: list[tuple[str, bool]] = []

    def sent(name: str, *partitions: int) -> Delivery:
        messages = [Message(b"a", b'{"stream_id":"a","x":1}', number) for number in partitions]
        return Delivery(TOPIC, messages, lambda one: told.append((name, one.elsewhere)), _fail)

    worker.step([sent("here", 0), sent("there", 1), sent("both", 0, 1)], timeout_s=0)
    _settle(worker)
    assert sorted(told) == [("both", True), ("here", False), ("there", True)]
    log.give_away(TopicPartition(TOPIC, 0))
    worker.step([sent("moved", 0)], timeout_s=0)
    _settle(worker)
    assert told[3:] == [("moved", True)]


def test_a_group_that_has_not_seen_a_new_source_yet_is_waited_for() -> None:
    """It deals out nothing of it at first, which is not to say that another worker has it."""
    store = Store(partitions=1)
    log = MemoryLog(store)
    worker = _begun(log)
    log.unseen.add("events.t")
    told: list[str] = []
    put = CommandRequest(
        [PutSource("t", {"attributes": {"x": "number"}})], True, lambda _: told.append("put"), _fail
    )
    worker.step([put], timeout_s=0)
    sent = Delivery(
        "events.t",
        [Message(b"a", b'{"stream_id":"a","x":1}')],
        lambda one: told.append(f"elsewhere {one.elsewhere}"),
        _fail,
    )
    worker.step([sent], timeout_s=0)
    _settle(worker)
    assert worker.dealing and told == []
    log.see("events.t")
    _settle(worker)
    assert not worker.dealing and told == ["put", "elsewhere False"]


@pytest.mark.parametrize("minutes", [1, -60], ids=["a while later", "after the clock was set back"])
def test_a_group_that_deals_forever_is_not_waited_for_forever(minutes: int) -> None:
    now = [10_000_000]
    log = MemoryLog(Store())
    worker = _begun(log, clock=lambda: now[0])
    assert not worker.dealing
    log.begin_rebalance()
    _settle(worker)
    assert worker.dealing
    now[0] += minutes * 60_000
    _settle(worker)
    assert not worker.dealing
    log.end_rebalance()
    _settle(worker)
    assert not worker.dealing and len(worker.engine.tables) == 2


def test_a_partition_whose_last_worker_died_at_work_keeps_nobody_waiting() -> None:
    """What it had under way ends when it comes back, or times out: till then all else goes on."""
    store = Store(partitions=1)
    log = MemoryLog(store)
    worker = _begun(log)
    _send(store, "a", 1)
    _settle(worker)
    log.restless.add(TopicPartition("events.t", 0))
    _command(worker, PutSource("t", {"attributes": {"x": "number"}}))
    _settle(worker)
    _send(store, "a", -1)
    _settle(worker)
    assert _borders(store) == [("a", 1, [], ["q"]), ("a", 2, ["q"], [])]
    assert worker.behind and len(worker.engine.tables) == 1
    log.restless.add(TopicPartition("events.a", 0))
    _command(worker, PutSource("a", {"attributes": {"x": "number"}}))
    log.rebalance()  # what was here comes back before what has never been
    _settle(worker)
    assert worker.behind and [task.topic for task in worker.engine.tables] == [TOPIC]
    log.restless.discard(
        TopicPartition("events.t", 0)
    )  # nor does one keep the other waiting: they take turns
    for _ in range(4):
        _settle(worker)
    assert worker.behind and sorted(task.topic for task in worker.engine.tables) == [TOPIC, "events.t"]
    log.restless.clear()
    _settle(worker)
    assert not worker.behind and len(worker.engine.tables) == 3


def test_a_timer_that_is_due_while_the_log_is_away_loses_nothing() -> None:
    """Whether events wait that say what time it is cannot be found out then; it is asked again."""
    store, now = Store(partitions=1), [1_000]
    log = _EndsAway(store)
    worker = _begun(log, clock=lambda: now[0])
    for command in (
        PutSource("s", {"attributes": {"x": "number"}, "stream_ttl": "10s"}),
        PutQuery(None, {"id": "q", "source": "s", "where": "x >= 0"}),
    ):
        _command(worker, command)
        _settle(worker)
    _send(store, "a", 1)
    _settle(worker)
    now[0] += 11_000
    log.is_away = True
    _send(store, "b", 2)
    with pytest.raises(LogUnavailable):
        worker.step([], timeout_s=0)
    (table,) = worker.engine.tables.values()
    assert worker.ask(lambda: None) and table.row_of.keys() == {"a", "b"}
    log.is_away = False
    _settle(worker)
    told = [
        (name, seq, leave, enter) for name in "ab" for seq, leave, enter in ((1, [], ["q"]), (2, ["q"], []))
    ]
    assert sorted(_borders(store)) == told


def test_a_timer_that_is_due_waits_for_events_that_are_there() -> None:
    store, now = Store(partitions=1), [1_000]
    worker = _begun(MemoryLog(store), clock=lambda: now[0])
    _command(worker, PutSource("s", {"attributes": {"x": "number"}, "stream_ttl": "10s"}))
    _settle(worker)
    _send(store, "a", 1)
    _settle(worker)
    now[0] += 11_000
    _send(store, "a", 2)
    _settle(worker)
    assert _borders(store) == [("a", 1, [], ["q"]), ("a", 2, ["q"], [])]


def test_who_asks_is_not_told_of_partitions_as_they_were_before_a_command() -> None:
    log = MemoryLog(Store(partitions=1))
    worker = _begun(log)
    log.begin_rebalance()
    _settle(worker)
    assert worker.ask(_ignore_all), "they may come back as they were"
    _command(worker, PutQuery(None, {"id": "r", "source": "s", "where": "x >= 0"}))
    _settle(worker)
    assert not worker.ask(lambda: _fail(AssertionError("there is nothing to be asked about")))
    log.end_rebalance()
    _settle(worker)
    assert worker.ask(_ignore_all)


def _ignore_all() -> None:
    pass


class _EndsAway(MemoryLog):
    is_away = False

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        if self.is_away:
            raise LogUnavailable("away")
        return super().end_offsets(partitions)


def test_a_listener_hears_of_partitions_that_come_and_go_and_of_no_others() -> None:
    store, heard = Store(), Heard()
    log = MemoryLog(store)
    worker = _begun(log, heard)
    _send(store, "a", 1)
    _settle(worker)
    assert heard.told[0] == "moved", "it has begun"
    assert [told for told in heard.told[1:] if told != "committed 0"] == ["committed 2"]
    heard.told.clear()
    log.rebalance()
    _settle(worker)
    assert "moved" not in heard.told, "its partition came back as it was"
    log.rebalance()
    other = _worker(MemoryLog(store))
    other.open()
    _send(store, "a", -1)
    _settle(other)
    _settle(worker)
    assert heard.told[0] == "moved", "another had it meanwhile"


def test_what_is_owed_moves_with_its_partition() -> None:
    store = Store(partitions=1)
    log = MemoryLog(store)
    worker = _worker(log, portion=1)
    worker.open()
    query = {"id": "q", "source": "s", "where": "x >= 0"}
    _command(worker, PutSource("s", {"attributes": {"x": "number"}}))
    _settle(worker)
    for place, name in enumerate("abcdefgh"):
        _send(store, name, place)
    _settle(worker)
    _command(worker, PutQuery(None, query))
    worker.step([], timeout_s=0)
    log.rebalance()
    worker.step([], timeout_s=0)
    assert worker.engine.owes and 1 < len(_borders(store)) < 8
    log.rebalance()
    other = _worker(MemoryLog(store), portion=1)
    other.open()
    other.step([], timeout_s=0)
    _command(other, DeleteQuery("q"))
    other.step([], timeout_s=0)
    assert other.engine.owes
    while not worker.engine.tables or worker.engine.owes:
        worker.step([], timeout_s=0)
    for name in "abcdefgh":
        assert [one[1:] for one in _borders(store) if one[0] == name] == [(1, [], ["q"]), (2, ["q"], [])]


def _ignore(_: CommandRequest) -> None:
    pass


def test_who_waits_is_told_of_events_that_another_worker_had_in_between() -> None:
    store = Store(partitions=2)
    log = MemoryLog(store)
    worker = _begun(log)
    poll, told = log.poll, []

    def poll_late(**how: Any) -> Polled:
        """Another worker has everything between what was sent and the next look at the group."""
        log.poll = poll  # type: ignore[method-assign]
        other = _worker(MemoryLog(store))
        other.open()
        _settle(other)
        return poll(**how)

    log.rebalance()
    log.poll = poll_late  # type: ignore[method-assign]
    messages = [Message(b"%d" % i, b'{"stream_id":"%d","x":1}' % i, i % 2) for i in range(4)]
    delivery = Delivery(TOPIC, messages, lambda one: told.append((one.elsewhere, len(one.outputs))), _fail)
    worker.step([delivery], timeout_s=0)
    _settle(worker)
    assert told == [(True, 0)], "once, and before anything else comes in"
    _send(store, "c", 1)
    _settle(worker)
    assert len(told) == 1


def test_partitions_are_taken_a_while_in_one_step_and_all_else_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = Store(partitions=3)
    _begun(MemoryLog(store))
    monkeypatch.setattr("service.worker._TAKING_S", -1.0)
    worker = _worker(MemoryLog(store))
    worker.open()
    at_work = []
    while len(worker.engine.tables) < 3:
        worker.step([], timeout_s=60)  # does not wait: there is more to be taken
        at_work.append(len(worker.engine.tables))
        assert worker.behind is (len(worker.engine.tables) < 3)
    assert at_work == [1, 2, 3]
