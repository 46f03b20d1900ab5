"""The worker dies at every call to the log, once before and once after it took effect, and starts again.

What is in the output is what an uninterrupted run wrote: no record more, none less, in order per stream."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from service.engine.commands import Command, DeleteQuery, PatchQuery, PutQuery, PutSource
from service.engine.engine import Engine
from service.log.port import Message, Output
from service.metrics import Metrics
from service.worker import CommandRequest, Worker
from tests.runtime.memory_log import Died, Fate, MemoryLog, Store

TOPIC = "events.s"
Act = Callable[["Life"], None]


def _event(stream_id: str, ts: int, x: float) -> Message:
    return Message(stream_id.encode(), json.dumps({"stream_id": stream_id, "ts": ts, "x": x}).encode())


def _query(id: str, low: float, high: float, **more: Any) -> PutQuery:
    where = {"any": [{"x": {"gte": low, "lte": high}}]}
    return PutQuery(id, {"id": id, "source": "s", "where": where, **more})


SCRIPT: list[Command | list[Message]] = [
    PutSource("s", {"attributes": {"x": "number"}}),
    _query("low", 0, 5),
    [_event("a", 1, 3), _event("b", 1, 7), _event("c", 1, 4)],
    _query("shy", 0, 9, initial="ignore"),
    [_event("a", 2, 6), _event("b", 0, 3), _event("b", 2, 3), Message(b"b", None), _event("b", 3, 1)],
    PatchQuery("low", {"enabled": False}),
    [_event("c", 2, 20), Message(b"x", b"no json"), _event("c", 3, 2)],
    PatchQuery("low", {"enabled": True}),
    PatchQuery("shy", {"where": {"any": [{"x": {"gte": 3}}]}}),
    [_event("d", 1, 1), _event("a", 4, 2), _event("d", 2, 30)],
    DeleteQuery("shy"),
    [_event("a", 5, 50)],
]


class Life:
    """One store and the workers that live on it, one after another."""

    script = SCRIPT

    def __init__(self, fate: Fate) -> None:
        self.store = Store()
        self.fate = fate
        self.worker = self._begin()

    def _begin(self) -> Worker:
        return Worker(
            MemoryLog(self.store, self.fate),
            Engine,
            Metrics(),
            clock=lambda: 1000,
            max_message_bytes=1 << 20,
            max_batch_events=100,
        )

    def survive(self, act: Callable[[], None]) -> None:
        """Does something; if the worker dies of it, a new one starts and the rest of the log is processed."""
        try:
            act()
        except Died:
            self.worker = self._begin()
            self.survive(self._settle)

    def _settle(self) -> None:
        if not self.worker.engine.sets:
            self.worker.open()
        for _ in range(4):
            self.worker.step([], timeout_s=0)

    def play(self) -> None:
        self.survive(self.worker.open)
        self.survive(self._settle)
        for act in self.script:
            if isinstance(act, list):
                for message in act:
                    self.store.append(TOPIC, message)
                self.survive(self._settle)
            else:
                self._command(act)

    def _command(self, command: Command) -> None:
        """Sends a command; a client whose answer was lost asks again, which changes nothing twice."""
        heard: list[CommandRequest] = []

        def act() -> None:
            self._settle()
            request = CommandRequest([command], True, heard.append, lambda error: None)
            self.worker.step([request], timeout_s=0)
            for _ in range(3):
                self.worker.step([], timeout_s=0)

        self.survive(act)
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


def _uninterrupted() -> tuple[Life, Fate]:
    fate = Fate()
    life = Life(fate)
    life.play()
    return life, fate


CLEAN, COUNTED = _uninterrupted()


def test_the_uninterrupted_run_says_what_the_script_means() -> None:
    borders = [json.loads(value) for topic, _, value in CLEAN.outputs() if topic == "borders"]
    told = {(b["stream_id"], b["seq"]): (b["reason"], b["leave"], b["enter"]) for b in borders}
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


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_death_at_every_call_changes_nothing(after: bool) -> None:
    expected = _by_stream(CLEAN.outputs())
    died = 0
    for at in range(COUNTED.calls):
        fate = Fate(at=at, after=after)
        life = Life(fate)
        life.play()
        died += fate.at == -1
        assert _by_stream(life.outputs()) == expected, f"died at call {at}, {COUNTED.names[at]}"
    assert died > 10
