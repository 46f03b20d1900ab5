"""Aggregates told by the engine beside a recount after every step, for every cause of change.

The fast side takes batches as they come, ticks only when told to and may restart anywhere. The slow side is
an engine to which every event comes alone and every millisecond ticks; before and after each change its
members are counted from scratch, and a query is told when what it would be told is other than what it was
told and ``every`` has passed.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from random import Random
from types import MappingProxyType
from typing import Any, NamedTuple

from service import wire
from service.decode import Decoder
from service.engine.aggregates import AggregateRecord
from service.engine.commands import Command, DeleteQuery, PutQuery, PutSource
from service.engine.effects import CommandEffects, EventEffects, Task
from service.engine.engine import Engine
from service.engine.tally import Content
from service.index.default.mixed import DefaultIndex
from service.log.port import Record
from service.model import MISSING
from service.tenants import split
from tests.engine.test_tally import counted

TASKS = (Task("events.s", 0), Task("events.s", 1))
HOMES = {"a": 0, "b": 0, "c": 0, "d": 1, "e": 1}
ATTRIBUTES = {"x": "number", "y": "number", "k": "category"}


class Host:
    """An engine with what a log would keep of it."""

    def __init__(self) -> None:
        self.entries: list[Any] = []
        self.state: dict[Task, dict[bytes, bytes]] = {task: {} for task in TASKS}
        self.told: defaultdict[Task, list[AggregateRecord]] = defaultdict(list)
        self.engine = self._new()

    def _new(self) -> Engine:
        return Engine(make_index=lambda source: DefaultIndex(len(source.attributes), delta=2))

    def restart(self, now: int) -> None:
        self.engine = self._new()
        self.engine.command(list(enumerate(self.entries)), now)
        for task in TASKS:
            self.engine.assign(task, self.state[task].items())

    def command(self, command: Command, now: int) -> None:
        entry = self.engine.draft(now).prepare(command).entry
        if entry is None:
            return
        body = wire.command_body(wire.command_message(entry, at_ms=now).value)
        self.entries.append(body)
        self.write(self.engine.command([(len(self.entries) - 1, body)], now))

    def events(self, task: Task, records: list[Record]) -> None:
        queries = self.engine.queries_of(task)
        decoded = Decoder(queries.source, queries.dictionaries, max_bytes=1 << 20).decode(records)
        assert not decoded.refused
        self.write(self.engine.apply(task, decoded.batch))

    def tick(self, now: int) -> None:
        for task in TASKS:
            if self.engine.due(task, now):
                self.write(self.engine.tick(task, now))

    def write(self, caused: Iterable[EventEffects | CommandEffects]) -> None:
        for effects in caused:
            self.told[effects.task] += effects.aggregates
        for task in self.engine.tables:
            for key, value in self.engine.state_records(task):
                if value is None:
                    self.state[task].pop(key, None)
                else:
                    self.state[task][key] = value

    def content(self, id: str, task: Task) -> Content:
        """What is counted of a query in one partition."""
        tallies = self.engine.aggregates(id)
        assert tallies is not None
        return tallies[task].content()


def recounted(engine: Engine, id: str, task: Task) -> Content:
    """The same from scratch: members and their last values, one by one."""
    aggregates = engine.catalog.queries[id].query.aggregates
    assert aggregates is not None
    streams = [engine.stream("s", name) for name in engine.members(id)]
    here = [stream.last for stream in streams if stream is not None and stream.task == task]
    points = {row: tuple(last.get(name, MISSING) for name in aggregates.of) for row, last in enumerate(here)}
    return counted(points, aggregates.of)  # type: ignore[arg-type]


class Slow:
    """The slow side; see the module."""

    def __init__(self) -> None:
        self.host = Host()
        self.now = 0
        self.told: defaultdict[Task, list[tuple[str, int, Content]]] = defaultdict(list)
        self._last: dict[tuple[Task, str], tuple[int, Content]] = {}

    def pass_to(self, now: int) -> None:
        while self.now < now:
            self.now += 1
            self.observe()
            self.host.tick(self.now)
            self.observe()

    def event(self, task: Task, record: Record) -> None:
        self.pass_to(record.ts)
        self.host.events(task, [record])
        self.observe()

    def command(self, command: Command) -> None:
        self.host.command(command, self.now)
        self.observe()

    def observe(self) -> None:
        queries = self.host.engine.catalog.queries
        asking = {id: one.query.aggregates for id, one in queries.items() if one.query.aggregates}
        for task in TASKS:
            for id, aggregates in sorted(asking.items()):
                at, told = self._last.get((task, id), (-1_000, None))
                found = recounted(self.host.engine, id, task)
                news = found != told if told and (told.members or found.members) else found.members > 0
                if news and self.now >= at + aggregates.every:
                    self._tell(task, id, found)
            for of, id in sorted(self._last):
                if of == task and id not in asking:
                    _, told = self._last[task, id]
                    assert told is not None
                    if told.members:
                        self._tell(task, id, counted({}, tuple(told.of)))
                    del self._last[task, id]

    def _tell(self, task: Task, id: str, content: Content) -> None:
        self._last[task, id] = self.now, content
        self.told[task].append((id, self.now, content))


ANYTHING = (0, 1, 2, 3, 0.1, 2.7, 1e16, -1)
IDS = ("p", "q", "r")


class History(NamedTuple):
    """``silence``: policies of time that stay; ``restarts``: there is one after every operation; ``keys``: by
    an id of the operations, that of another tenant."""

    silence: dict[str, int]
    restarts: bool
    operations: list[tuple[str, Any]]
    keys: Mapping[str, str] = MappingProxyType({})


def draw(rng: Random) -> History:
    """Queries, then events and all else that changes who is counted."""
    lengths = {"stream_ttl": (3, 20), "stale_after": (2, 6)}
    silence = {name: rng.randint(*between) for name, between in lengths.items() if rng.random() < 0.5}
    first = [("put", _query(rng)) for _ in range(rng.randint(1, 3))]
    rest = [_operation(rng) for _ in range(rng.randint(5, 20))]
    operations = first + rest
    keys = Random(repr(operations)).choice(({}, {"q": "acme/p"}))
    return History(silence, rng.random() < 0.5, operations, keys)


def _operation(rng: Random) -> tuple[str, Any]:
    kinds = [*["events"] * 5, *["put"] * 2, "delete", *["pass"] * 2, "source", "restart"]
    match rng.choice(kinds):
        case "events":
            return "events", [_event(rng) for _ in range(rng.randint(3, 12))]
        case "put":
            return "put", _query(rng)
        case "delete":
            return "delete", rng.choice(IDS)
        case "pass":
            return "pass", rng.randint(0, 25)
        case "source":
            return "source", _policies(rng)
        case _:
            return "restart", None


def _event(rng: Random) -> dict[str, Any]:
    event = {"stream_id": rng.choice(sorted(HOMES)), "after": rng.randint(0, 6)}
    if rng.random() < 0.1:
        return event | {"removed": True}
    event["x"] = None if rng.random() < 0.2 else rng.choice(ANYTHING)
    others = {"y": rng.choice(ANYTHING), "k": rng.choice(("tug", "cargo")), "late": rng.randint(1, 9)}
    return event | {name: value for name, value in others.items() if rng.random() < 0.4}


def _query(rng: Random) -> dict[str, Any]:
    aggregates = {"every": rng.choice((1, 4, 15)), "of": rng.choice((["x"], ["y", "x"], []))}
    if rng.random() < 0.3:
        kept = {"id": rng.choice(IDS[:2]), "where": "x >= 2", "keep": "x >= 1", "aggregates": aggregates}
        return kept | {"for": rng.choice((None, None, 3, 8))}
    fields: dict[str, tuple[Any, ...]] = {
        "id": IDS,
        "where": ("x > 0", "x >= 2 or y < 1", "k == 'tug'", "x < 1e15", "0 <= y <= 2"),
        "aggregates": (*[aggregates] * 5, None),
        "enabled": (*[True] * 5, False),
        "initial": (*["emit"] * 5, "ignore"),
        "for": (None, None, None, 1, 3, 8),
        "cooldown": (None, None, None, 2, 7),
        "once": (*[False] * 6, True),
        "on": (["match", "enter", "leave"], ["match"], ["enter"], ["leave", "cross"]),
        "tags": ({}, {"n": "1"}),
    }
    return {name: rng.choice(choices) for name, choices in fields.items()}


def _policies(rng: Random) -> dict[str, Any]:
    policies: dict[str, Any] = {"attributes": rng.choice((ATTRIBUTES, {"z": "number", **ATTRIBUTES}))}
    others = {"missing": "carry", "late": rng.choice(("no_border", "process"))}
    return policies | {name: value for name, value in others.items() if rng.random() < 0.5}


class Play:
    """One play of operations on both sides."""

    def __init__(
        self, silence: dict[str, int], restarts: bool, keys: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self.fast, self.slow = Host(), Slow()
        self.keys = keys
        self.silence = silence
        self.restarts = restarts
        self.now = 0
        self.offset = 0
        for host in (self.fast, self.slow.host):
            host.command(PutSource("s", {"attributes": {"w": "number", **ATTRIBUTES}, **silence}), 0)
            for task in TASKS:
                host.engine.assign(task, ())
        for task in TASKS:  # no partition begins with a late event
            first = Record(0, 0, b"first", b'{"stream_id": "first", "ts": 0}')
            self.fast.events(task, [first])
            self.slow.event(task, first)

    def do(self, operation: str, argument: Any) -> None:
        match operation:
            case "events":
                self._events(argument)
            case "put":
                tenant, id = split(self.keys.get(argument["id"], argument["id"]))
                self._command(PutQuery(id, {"source": "s", **argument, "id": id}, tenant=tenant))
            case "delete":
                key = self.keys.get(argument, argument)
                if key in self.fast.engine.catalog.queries:
                    self._command(DeleteQuery(key))
            case "pass":
                self.now += argument
            case "source":
                self._command(PutSource("s", {**argument, **self.silence}))
            case "restart":
                self.fast.restart(self.now)
        if self.restarts:
            self.fast.restart(self.now)
        self.check()

    def _settle(self) -> None:
        self.fast.tick(self.now)
        self.slow.pass_to(self.now)

    def _command(self, command: Command) -> None:
        self._settle()
        self.fast.command(command, self.now)
        self.slow.command(command)

    def _events(self, events: list[dict[str, Any]]) -> None:
        batches: defaultdict[Task, list[Record]] = defaultdict(list)
        for event in events:
            self.now += event["after"]
            self.offset += 1
            body = {
                name: value
                for name, value in event.items()
                if name not in ("after", "late") and value is not None
            }
            body["ts"] = self.now - event.get("late", 0)
            value = None if event.get("removed") else json.dumps(body).encode()
            task = TASKS[HOMES[event["stream_id"]]]
            record = Record(self.offset, self.now, event["stream_id"].encode(), value)
            batches[task].append(record)
            self.slow.event(task, record)
        for task, records in sorted(batches.items()):
            self.fast.events(task, records)

    def check(self) -> None:
        self._settle()
        engine = self.fast.engine
        for id, registered in engine.catalog.queries.items():
            for task in TASKS if registered.query.aggregates else ():
                assert repr(self.fast.content(id, task)) == repr(recounted(engine, id, task))
        for task in TASKS:
            assert list(map(repr, map(tuple, self.fast.told[task]))) == list(map(repr, self.slow.told[task]))


def play(history: History) -> Play:
    """Plays a history on both sides and checks them after every operation."""
    both = Play(history.silence, history.restarts, history.keys)
    for operation, argument in history.operations:
        both.do(operation, argument)
    both.do("pass", 60)
    return both
