"""The runtime on a log whose commits are made late: who is told what when it stops, and what somebody hears
who begins to listen, while a commit is under way."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from service.engine.commands import PutQuery, PutSource
from service.engine.picture import Inside, picture
from service.live import Feed
from service.log import topics
from service.log.port import (
    Commit,
    LogFenced,
    LogUnavailable,
    Message,
    Polled,
    Position,
    Record,
    TopicPartition,
)
from service.metrics import Metrics
from service.runtime import NotRunning, Receipt, Runtime
from service.settings import Settings
from service.tenants import DEFAULT_TENANT
from tests.api.harness import TIMEOUT_S, eventually
from tests.runtime.memory_log import SlowLog, Store

MUCH = 4
"""Events that fill a batch, so that their commit is only begun."""


class HeldLog(SlowLog):
    """After ``hold`` it stands still as soon as a commit has begun, until it has been woken so many times:
    by each request that is put in the queue, and by the stop."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.is_away = False
        self.cannot_poll = self.cannot_open = self.cannot_replay = self.fences = False
        self.cannot_position = False
        self.polls = 0
        self.begun = threading.Event()
        self.missed = threading.Event()
        self._wakes_to_wait_for = 0
        self._wakes = threading.Semaphore(0)
        self._news = threading.Event()

    def hold(self, *, wakes: int) -> None:
        self._wakes = threading.Semaphore(0)
        self._wakes_to_wait_for = wakes

    def wake(self) -> None:
        self._wakes.release()
        self._news.set()

    def poll(self, *, timeout_s: float, max_records: int) -> Polled:
        self._news.wait(timeout_s)
        self._news.clear()
        if self.cannot_poll:
            raise LogUnavailable("away")
        if self.fences:
            self.fences = False
            raise LogFenced("passed over")
        self.polls += 1
        return super().poll(timeout_s=timeout_s, max_records=max_records)

    def open(self) -> None:
        if self.cannot_open:
            raise LogUnavailable("away")
        super().open()

    def position(self, partition: TopicPartition) -> Position | None:
        if self.cannot_position:
            self.cannot_open = True
            raise LogUnavailable("away")
        self.cannot_open = False
        return super().position(partition)

    def commands(self, start: int, end: int) -> Iterator[Record]:
        if self.cannot_replay:
            raise LogUnavailable("away")
        return super().commands(start, end)

    def begin_commit(self, commit: Commit) -> Future[None]:
        under_way = super().begin_commit(commit)
        wakes, self._wakes_to_wait_for = self._wakes_to_wait_for, 0
        if wakes:
            self.begun.set()
            assert all(self._wakes.acquire(timeout=TIMEOUT_S) for _ in range(wakes))
        return under_way

    def _begun(self, commit: Commit) -> Callable[[], None]:
        end = super()._begun(commit)

        def end_if_there() -> None:
            if self.is_away:
                raise LogUnavailable("away")
            end()

        return end_if_there

    def answers(self) -> bool:
        if self.is_away:
            self.missed.set()
        return not self.is_away


def begun(store: Store) -> tuple[Runtime, HeldLog]:
    log = HeldLog(store)
    runtime = Runtime(log, Settings(max_batch_events=MUCH), Metrics(), clock=lambda: 1000)
    runtime.start()
    return runtime, log


@pytest.fixture
def store() -> Store:
    return Store(partitions=1)


@pytest.fixture
def running(store: Store) -> Iterator[tuple[Runtime, HeldLog]]:
    runtime, log = begun(store)
    commands = [
        PutSource("s", {"attributes": {"x": "number"}}),
        *(PutQuery(id, {"source": "s", "where": where}) for id, where in (("q", "x > 0"), ("r", "x > 5"))),
    ]
    for command in commands:
        runtime.command([command], atomic=True).result(TIMEOUT_S)
    yield runtime, log
    log.is_away = False
    if not runtime.failure:
        runtime.stop(TIMEOUT_S)


def events(**values: int) -> list[Message]:
    return [Message(id.encode(), json.dumps({"stream_id": id, "x": x}).encode()) for id, x in values.items()]


def much(x: int) -> list[Message]:
    return events(**dict.fromkeys("abcd", x))


def begin_commit(runtime: Runtime, log: HeldLog, *, wakes: int, wait: bool = False) -> Future[Receipt]:
    """Sends what is much; returns when its commit is under way, until the log has been woken so often."""
    log.hold(wakes=wakes)
    sent = runtime.send("s", much(1), wait=wait)
    assert log.begun.wait(TIMEOUT_S)
    return sent


def borders(outputs: list[Any]) -> list[tuple[str, int]]:
    found = [json.loads(value) for topic, _, value in outputs if topic == topics.BORDERS]
    return [(one["stream_id"], one["seq"]) for one in found]


# ---- when it stops


def test_a_commit_under_way_when_the_stop_comes_is_told_to_whoever_waits(
    running: tuple[Runtime, HeldLog], store: Store
) -> None:
    runtime, log = running
    sent = begin_commit(runtime, log, wakes=2, wait=True)
    runtime.stop(TIMEOUT_S)
    receipt = sent.result(0)
    assert receipt.outputs == store.outputs
    assert borders(store.outputs) == [(id, 1) for id in "abcd"]


def test_a_commit_that_is_not_made_when_the_stop_comes_is_made_by_the_next_one(
    running: tuple[Runtime, HeldLog], store: Store
) -> None:
    runtime, log = running
    sent = begin_commit(runtime, log, wakes=2, wait=True)
    log.is_away = True
    runtime.stop(TIMEOUT_S)
    with pytest.raises(NotRunning):
        sent.result(0)
    assert not store.outputs
    after, _ = begun(store)
    after.send("s", events(a=-1), wait=True).result(TIMEOUT_S)
    after.stop(TIMEOUT_S)
    assert borders(store.outputs) == [*((id, 1) for id in "abcd"), ("a", 2)]


def test_what_waits_in_the_queue_when_the_stop_comes_is_refused(
    running: tuple[Runtime, HeldLog], store: Store
) -> None:
    runtime, log = running
    begin_commit(runtime, log, wakes=5)
    waiting: list[Future[Any]] = [
        runtime.command([PutQuery("t", {"source": "s", "where": "x > 9"})], atomic=True),
        runtime.send("s", events(e=1), wait=True),
        runtime.remove_stream("s", "a"),
        runtime.ask(lambda engine: len(engine.catalog.queries)),
    ]
    runtime.stop(TIMEOUT_S)
    for future in waiting:
        with pytest.raises(NotRunning):
            future.result(0)
    with pytest.raises(NotRunning):
        runtime.ask(lambda engine: None)
    assert borders(store.outputs) == [(id, 1) for id in "abcd"]


# ---- while the group deals out partitions


def asked_in_a_rebalance(runtime: Runtime, log: HeldLog) -> Future[tuple[int, list[Inside]]]:
    """Somebody asks when the worker has heard that its partitions are lost."""
    log.begin_rebalance()
    eventually(lambda: log.has_told, "the worker has heard of the loss")
    return drawn(runtime)


def test_who_asks_in_a_rebalance_is_told_of_what_comes_back(running: tuple[Runtime, HeldLog]) -> None:
    runtime, log = running
    runtime.send("s", events(a=1), wait=True).result(TIMEOUT_S)
    asked = asked_in_a_rebalance(runtime, log)
    polls = log.polls
    eventually(lambda: log.polls > polls + 2, "steps go by")
    assert not asked.done()
    log.end_rebalance()
    _, found = asked.result(TIMEOUT_S)
    assert [(inside.stream_id, *inside.queries) for inside in found] == [("a", "q")]


def test_who_asks_in_a_rebalance_is_told_when_it_stops(running: tuple[Runtime, HeldLog]) -> None:
    runtime, log = running
    asked = asked_in_a_rebalance(runtime, log)
    polls = log.polls
    eventually(lambda: log.polls > polls + 2, "steps go by")
    runtime.stop(TIMEOUT_S)
    with pytest.raises(NotRunning):
        asked.result(0)


def test_who_asks_while_the_log_is_away_is_told_of_what_was_lost(running: tuple[Runtime, HeldLog]) -> None:
    """A library that hears nothing of the group for long enough gives all partitions up by itself."""
    runtime, log = running
    runtime.send("s", events(a=1), wait=True).result(TIMEOUT_S)
    asked = asked_in_a_rebalance(runtime, log)
    log.cannot_poll = log.is_away = True
    for one in (asked, drawn(runtime), drawn(runtime)):
        assert [inside.stream_id for inside in one.result(TIMEOUT_S)[1]] == ["a"]
    log.cannot_poll = log.is_away = False


def test_who_asks_when_it_starts_afresh_and_the_log_is_away_is_told_from_memory(
    running: tuple[Runtime, HeldLog],
) -> None:
    runtime, log = running
    runtime.send("s", events(a=1), wait=True).result(TIMEOUT_S)
    log.cannot_open = log.is_away = log.fences = True
    assert log.missed.wait(TIMEOUT_S), "it has been passed over, and cannot begin anew"
    assert runtime.ready and [inside.stream_id for inside in drawn(runtime).result(TIMEOUT_S)[1]] == ["a"]
    log.cannot_open = log.is_away = False
    eventually(lambda: runtime.caught_up and not log.fences, "it is at work again")
    assert [inside.stream_id for inside in drawn(runtime).result(TIMEOUT_S)[1]] == ["a"]


def test_who_asks_when_the_log_goes_away_in_the_middle_of_a_start_is_told_so(
    running: tuple[Runtime, HeldLog],
) -> None:
    """There is not to be nothing where there was something."""
    runtime, log = running
    log.cannot_replay = log.is_away = log.fences = True
    assert log.missed.wait(TIMEOUT_S)
    assert not runtime.ready
    with pytest.raises(LogUnavailable):
        drawn(runtime).result(TIMEOUT_S)
    log.cannot_replay = log.is_away = False
    eventually(lambda: runtime.caught_up, "it is at work again")


def test_who_asks_before_partitions_have_come_is_not_told_that_there_is_nothing(
    running: tuple[Runtime, HeldLog],
) -> None:
    runtime, log = running
    log.cannot_position = log.is_away = log.fences = True  # it starts afresh, and the log goes in the middle
    assert log.missed.wait(TIMEOUT_S)
    with pytest.raises(LogUnavailable):
        drawn(runtime).result(TIMEOUT_S)
    log.cannot_position = log.cannot_open = log.is_away = False
    eventually(lambda: runtime.caught_up, "it is at work again")
    assert drawn(runtime).result(TIMEOUT_S)[1] == []


def test_a_stop_does_not_wait_for_a_log_that_lets_nobody_in() -> None:
    knocks, opens = threading.Event(), threading.Event()

    class Shut(HeldLog):
        def open(self) -> None:
            knocks.set()
            assert opens.wait(TIMEOUT_S)
            super().open()

    runtime = Runtime(Shut(Store(partitions=1)), Settings(), Metrics())  # type: ignore[arg-type]
    runtime.start()
    assert knocks.wait(TIMEOUT_S)
    runtime.stop(0.01)
    opens.set()
    eventually(lambda: not runtime._thread.is_alive(), "it has ended")


def test_who_is_passed_over_again_and_again_says_why_that_may_be_and_stands_back(
    running: tuple[Runtime, HeldLog], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    runtime, log = running
    monkeypatch.setattr("service.runtime._FENCED_AGAIN_S", 3600.0)
    for _ in range(3):
        log.fences = True
        eventually(lambda: runtime.caught_up and not log.fences, "it is at work again at once")
    assert "another name" not in caplog.text
    monkeypatch.setattr("service.runtime._MOST_BACK_S", 3600.0)
    monkeypatch.setattr("service.runtime._FENCINGS", -20)
    log.fences = True
    eventually(lambda: "passed over 4 times in a row" in caplog.text, "it stands back")
    with pytest.raises(LogUnavailable, match=r"another process is the worker .* another name"):
        runtime.send("s", events(a=1), wait=True).result(TIMEOUT_S)
    assert drawn(runtime).result(TIMEOUT_S)[1] == [], "from memory"


# ---- when somebody begins to listen


def drawn(runtime: Runtime) -> Future[tuple[int, list[Inside]]]:
    return runtime.picture(
        lambda engine: picture(engine, "s", tenant=DEFAULT_TENANT, streams=[], queries=[], most=100)
    )


async def followed(feed: Feed, first: int, found: list[Inside]) -> dict[str, tuple[int, set[str]]]:
    """What somebody makes of a picture and the news: by stream, the last ``seq`` and who is inside. Nothing
    is told twice or missed."""
    known = {inside.stream_id: (inside.seq, set(inside.queries)) for inside in found}
    committed, cut = await feed.next(0.0)
    assert not cut
    for commit in committed:
        for output in commit.outputs if commit.number >= first else []:
            if output.topic == topics.BORDERS:
                record = json.loads(output.value or b"")
                # Who is inside of nothing is not in the picture.
                seq, inside = known.get(record["stream_id"], (record["seq"] - 1, set()))
                assert record["seq"] == seq + 1
                assert inside >= set(record["leave"]) and inside.isdisjoint(record["enter"])
                known[record["stream_id"]] = seq + 1, (inside - {*record["leave"]}) | {*record["enter"]}
    return known


def test_a_picture_taken_while_a_commit_is_under_way_meets_the_news(
    running: tuple[Runtime, HeldLog],
) -> None:
    runtime, log = running

    async def listen() -> None:
        feed = runtime.hub.open()
        begin_commit(runtime, log, wakes=1)
        first, found = drawn(runtime).result(TIMEOUT_S)
        assert [(inside.stream_id, inside.seq) for inside in found] == [(id, 1) for id in "abcd"]
        runtime.send("s", events(a=9, b=-1), wait=True).result(TIMEOUT_S)
        assert await followed(feed, first, found) == {
            "a": (2, {"q", "r"}),
            "b": (2, set()),
            "c": (1, {"q"}),
            "d": (1, {"q"}),
        }

    asyncio.run(listen())


def test_a_picture_taken_while_the_log_is_away_has_two_commits_more(
    running: tuple[Runtime, HeldLog], store: Store
) -> None:
    runtime, log = running

    async def listen() -> None:
        feed = runtime.hub.open()
        begin_commit(runtime, log, wakes=1)
        log.is_away = True
        runtime.send("s", events(a=9, b=9, c=-1), wait=False)
        log.wake()
        assert log.missed.wait(TIMEOUT_S)
        first, found = drawn(runtime).result(TIMEOUT_S)
        assert [(inside.stream_id, inside.seq) for inside in found] == [("a", 2), ("b", 2), ("d", 1)]
        assert not store.outputs
        log.is_away = False
        eventually(lambda: len(borders(store.outputs)) == 4 + 3, "both commits are made")
        runtime.send("s", events(a=-1, c=1), wait=True).result(TIMEOUT_S)
        assert await followed(feed, first, found) == {
            "a": (3, set()),
            "b": (2, {"q", "r"}),
            "c": (3, {"q"}),
            "d": (1, {"q"}),
        }

    asyncio.run(listen())
