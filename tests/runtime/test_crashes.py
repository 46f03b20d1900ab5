"""The worker dies at every call to the log, once before and once after it took effect, and starts again.

What is in the output is what an uninterrupted run wrote: no record more, none less, in order per stream."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from service.engine.commands import Command, DeleteQuery, PatchQuery, PutQuery, PutSource
from service.engine.engine import Engine, EngineLimits
from service.log.port import LogError, LogFenced, LogMoved, LogUnavailable, Message, Output
from service.metrics import Metrics
from service.requests import CommandRequest
from service.worker import Worker
from tests.runtime.memory_log import Died, Fate, MemoryLog, SecretiveLog, SlowLog, Store

TOPIC = "events.s"
Act = Callable[["Life"], None]


def _event(stream_id: str, ts: int, x: float) -> Message:
    return Message(stream_id.encode(), json.dumps({"stream_id": stream_id, "ts": ts, "x": x}).encode())


def _query(id: str, low: float, high: float, tenant: str = "default", **more: Any) -> PutQuery:
    where = {"any": [{"x": {"gte": low, "lte": high}}]}
    return PutQuery(id, {"id": id, "source": "s", "where": where, **more}, tenant=tenant)


SCRIPT: list[Command | list[Message]] = [
    PutSource("s", {"attributes": {"x": "number"}}),
    _query("low", 0, 5),
    [_event("a", 1, 3), _event("b", 1, 7), _event("c", 1, 4)],
    _query("shy", 0, 9, "acme", initial="ignore"),
    [_event("a", 2, 6), _event("b", 0, 3), _event("b", 2, 3), Message(b"b", None), _event("b", 3, 1)],
    PatchQuery("low", {"enabled": False}),
    [_event("c", 2, 20), Message(b"x", b"no json"), _event("c", 3, 2)],
    PatchQuery("low", {"enabled": True}),
    PatchQuery("acme/shy", {"where": {"any": [{"x": {"gte": 3}}]}}),
    [_event("d", 1, 1), _event("a", 4, 2), _event("d", 2, 30)],
    DeleteQuery("acme/shy"),
    [_event("a", 5, 50)],
]


class Life:
    """One store and the workers that live on it, one after another."""

    script = SCRIPT
    make_engine: Callable[[], Engine] = Engine
    make_log: type[MemoryLog] = MemoryLog
    max_batch_events = 100
    most_matches = 1_000
    #: turns of the loop after each act; as many again for a command
    turns = 4
    #: the most commits that were not known to be made when a step had been taken in
    most_uncommitted = 0

    def __init__(self, fate: Fate) -> None:
        self.store = Store()
        self.fate = fate
        self.worker = self._begin()

    def _begin(self) -> Worker:
        return Worker(
            self.make_log(self.store, self.fate),
            type(self).make_engine,
            Metrics(),
            clock=lambda: 1000,
            max_message_bytes=1 << 20,
            max_batch_events=self.max_batch_events,
            most_matches=self.most_matches,
        )

    def survive(self, act: Callable[[], None]) -> None:
        """Does something; if the worker dies of it, a new one starts and the rest of the log is processed."""
        try:
            act()
        except Died:
            self.worker = self._begin()
            self.survive(self._settle)
        except LogUnavailable:
            self.survive(self._settle)
        except LogFenced:
            self.survive(self._open_anew)
            self.survive(self._settle)

    def _open_anew(self) -> None:
        self.worker.close()
        self.worker.open()

    def _settle(self) -> None:
        turns = self.turns
        if not self.worker.engine.sets:
            self.worker.open()
            turns = 4
        for _ in range(turns):
            self.worker.step([], timeout_s=0)
            self.most_uncommitted = max(self.most_uncommitted, self.worker.uncommitted)

    def _process(self) -> None:
        self._settle()

    def pay(self) -> None:
        """Writes all that is owed."""

        def act() -> None:
            self._settle()
            while self.worker.engine.owes:
                self.worker.step([], timeout_s=0)

        self.survive(act)

    def play(self) -> None:
        self.survive(self.worker.open)
        self.survive(self._settle)
        for act in self.script:
            if isinstance(act, list):
                for message in act:
                    self.store.append(TOPIC, message)
                self.survive(self._process)
            else:
                self._command(act)
        self.pay()

    def _command(self, command: Command) -> None:
        """Sends a command; a client whose answer was lost asks again, which changes nothing twice."""
        heard: list[CommandRequest] = []

        def act() -> None:
            self._settle()
            request = CommandRequest([command], True, heard.append, lambda error: None)
            self.worker.step([request], timeout_s=0)
            for _ in range(self.turns):
                self.worker.step([], timeout_s=0)

        for _ in range(3):  # one more than what can go wrong
            if not heard:
                self.survive(act)
        assert heard

    def outputs(self) -> list[Output]:
        return self.store.outputs


def _by_stream(outputs: list[Output]) -> dict[bytes | None, list[tuple[str, Any]]]:
    streams: dict[bytes | None, list[tuple[str, Any]]] = defaultdict(list)
    for topic, key, value in outputs:
        streams[key].append((topic, json.loads(value)))
    return streams


class Hasty(Life):
    """Takes in what comes next while a commit is under way: two events are much."""

    make_log = SlowLog
    max_batch_events = 2
    turns = 8


class HastyInTheDark(Hasty):
    make_log = SecretiveLog


class Moving(Hasty):
    """Loses its partitions while the commit of what came first is under way, and gets them back."""

    def _process(self) -> None:
        if self.worker.engine.sets:
            self.worker.step([], timeout_s=0)
            log = self.worker._log
            assert isinstance(log, MemoryLog)
            log.rebalance()
        self._settle()


class Bounded(Life):
    """A step ends with the first event that matches anything; what is left of the poll waits."""

    make_log = SlowLog
    most_matches = 1
    turns = 12


class BoundedMoving(Moving):
    max_batch_events = 100
    most_matches = 1
    turns = 12


LIVES = (Life, Hasty, HastyInTheDark, Moving, Bounded, BoundedMoving)


def _uninterrupted(kind: type[Life]) -> tuple[Life, Fate]:
    fate = Fate()
    life = kind(fate)
    life.play()
    return life, fate


CLEAN, COUNTED = _uninterrupted(Life)


def test_the_uninterrupted_run_says_what_the_script_means() -> None:
    borders = [json.loads(value) for topic, _, value in CLEAN.outputs() if topic == "borders"]
    told = {
        (b["stream_id"], b["seq"]): (b["reason"], b["leave"], b["enter"])
        for b in borders
        if b["tenant"] == "default"
    }
    assert told["a", 1] == ("event", [], ["low"])
    assert told["a", 2] == ("event", ["low"], [])
    assert told["c", 2] == ("disabled", ["low"], [])
    assert {b["reason"] for b in borders} == {
        "event",
        "stream_removed",
        "disabled",
        "enabled",
        "updated",
        "deleted",
    }
    assert sum(topic == "dead_letter" for topic, _, _ in CLEAN.outputs()) == 1


@pytest.mark.parametrize("kind", LIVES)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_death_at_every_call_changes_nothing(after: bool, kind: type[Life]) -> None:
    expected = _by_stream(CLEAN.outputs())
    calm, counted = _uninterrupted(kind)
    assert _by_stream(calm.outputs()) == expected
    assert calm.most_uncommitted == (kind is not Life), "a commit is under way between two steps"
    died = 0
    for at in range(counted.calls):
        fate = Fate(at=at, after=after)
        life = kind(fate)
        life.play()
        died += fate.at == -1
        assert _by_stream(life.outputs()) == expected, f"died at call {at}, {counted.names[at]}"
    assert died > 10


@pytest.mark.parametrize("kind", LIVES)
@pytest.mark.parametrize(
    ("error", "after", "calls"),
    [
        (LogMoved("another writes"), False, {"append_commands"}),
        (LogUnavailable("away"), False, {"commit"}),
        (LogFenced("not known, and not written"), False, {"append_commands", "commit"}),
        (LogFenced("not known, and written"), True, {"append_commands", "commit"}),
    ],
)
def test_what_is_refused_or_unknown_changes_nothing(
    error: LogError, after: bool, calls: set[str], kind: type[Life]
) -> None:
    expected = _by_stream(CLEAN.outputs())
    commands = [record.value for record in CLEAN.store.commands]
    _, counted = _uninterrupted(kind)
    for at in [at for at, name in enumerate(counted.names) if name in calls]:
        fate = Fate(at=at, after=after, error=error)
        life = kind(fate)
        life.play()
        assert fate.at == -1
        assert _by_stream(life.outputs()) == expected, f"{error} at call {at}, {counted.names[at]}"
        assert [record.value for record in life.store.commands] == commands, "written once, or not at all"


@pytest.mark.parametrize("kind", LIVES)
def test_death_soon_after_a_log_that_was_away_changes_nothing(kind: type[Life]) -> None:
    """What waits for the log is committed as it was put together, whatever has been taken in since."""
    expected = _by_stream(CLEAN.outputs())
    _, counted = _uninterrupted(kind)
    died = 0
    for at in [at for at, name in enumerate(counted.names) if name == "commit"]:
        for later in (1, 2, 4):
            fate = Fate(at=at, error=LogUnavailable("away"), then=Fate(at=at + later))
            life = kind(fate)
            life.play()
            died += fate.at == -1
            told = f"away at call {at}, died {later} later"
            assert _by_stream(life.outputs()) == expected, told
    assert died > 10


MANY = [f"{letter}{number}" for letter in "abcd" for number in range(4)]


#: Commands that move more streams than are told until the next act.
OWING: list[Command | list[Message]] = [
    PutSource("s", {"attributes": {"x": "number", "y": "number"}}),
    [_event(name, 1, place) for place, name in enumerate(MANY)],
    _query("all", 0, 99, select=["x"]),
    [_event("d3", 2, 100), Message(b"d2", None), _event("d2", 3, 5)],
    _query("slow", 0, 99, "acme", **{"for": 10}),
    PatchQuery("all", {"select": ["y"], "where": {"any": [{"x": {"lt": 8}}]}}),
    [_event("c0", 2, 3), _event("zz", 12, 4)],
    DeleteQuery("all"),
    _query("all", 3, 5),
    PutSource("s", {"attributes": {"x": "number"}}),
    DeleteQuery("acme/slow"),
    [_event("a0", 12, 4), _event("d3", 12, 4)],
]


class Owing(Life):
    script = OWING


class Paced(Owing):
    make_engine = partial(Engine, engine_limits=EngineLimits(portion=1))
    turns = 1

    def __init__(self, fate: Fate) -> None:
        self.most_owed = 0
        super().__init__(fate)

    def _settle(self) -> None:
        super()._settle()
        owed = sum(table.owed.records for table in self.worker.engine.tables.values())
        self.most_owed = max(self.most_owed, owed)


def test_death_at_every_call_changes_nothing_of_what_is_owed() -> None:
    at_once = Owing(Fate())
    at_once.play()
    expected = _by_stream(at_once.outputs())
    assert sum(topic == "borders" for topic, _, _ in at_once.outputs()) > 2 * len(MANY)
    fate = Fate()
    calm = Paced(fate)
    calm.play()
    assert _by_stream(calm.outputs()) == expected
    assert calm.most_owed > len(MANY), "much is owed while events come"
    assert not any(key.startswith(b"o") for state in calm.store.state.values() for key in state)
    for at in range(fate.calls):
        life = Paced(Fate(at, after=at % 2 == 0 or fate.names[at] == "commit"))
        life.play()
        assert _by_stream(life.outputs()) == expected, f"died at call {at}, {fate.names[at]}"


def _named(id: str, stream_id: str, ts: int, x: float) -> Message:
    event = {"stream_id": stream_id, "ts": ts, "x": x, "id": id}
    return Message(stream_id.encode(), json.dumps(event).encode())


#: What a producer sends, one block after the other. Late events are processed like others: copies would show.
BLOCKS = [
    [_named("1", "a", 1, 3), _named("2", "b", 1, 7), _named("3", "a", 2, 9)],
    [_named("4", "a", 3, 1), _named("5", "a", 2, 8), _named("6", "b", 2, 2), _named("7", "c", 1, 2)],
    [_named("8", "c", 2, 6), _named("9", "a", 4, 4)],
]
COPIES = PutSource("s", {"attributes": {"x": "number"}, "late": "process", "dedup": {"by": "id", "last": 9}})


ONCE: list[Command | list[Message]] = [COPIES, _query("low", 0, 5), *BLOCKS]
#: The producer has not heard of its blocks, and sends each again, with what it sends next.
AGAIN = [*ONCE[:2], BLOCKS[0], BLOCKS[0] + BLOCKS[1], BLOCKS[1] * 2 + BLOCKS[2], BLOCKS[2]]


class Once(Life):
    script = ONCE


class Again(Life):
    script = AGAIN


class HastyAgain(Hasty):
    script = AGAIN


def _without_copies(outputs: list[Output]) -> dict[bytes | None, list[tuple[str, Any]]]:
    """The records by stream, but for where they come from and the letters of copies."""
    found: dict[bytes | None, list[tuple[str, Any]]] = defaultdict(list)
    for key, records in _by_stream(outputs).items():
        for topic, record in records:
            if record.get("reason") != "duplicate":
                found[key].append((topic, {**record, "origin": "command" in record["origin"]}))
    return found


@pytest.mark.parametrize("kind", [Again, HastyAgain])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_death_at_every_call_lets_no_copy_through(after: bool, kind: type[Life]) -> None:
    once, _ = _uninterrupted(Once)
    again, counted = _uninterrupted(kind)
    letters = [json.loads(value) for topic, _, value in again.outputs() if topic == "dead_letter"]
    copies = sum(len(act) for act in AGAIN if isinstance(act, list)) - sum(map(len, BLOCKS))
    assert [letter["reason"] for letter in letters] == ["duplicate"] * copies
    assert _without_copies(again.outputs()) == _without_copies(once.outputs())
    expected = _by_stream(again.outputs())
    for at in range(counted.calls):
        life = kind(Fate(at=at, after=after))
        life.play()
        assert _by_stream(life.outputs()) == expected, f"died at call {at}, {counted.names[at]}"
