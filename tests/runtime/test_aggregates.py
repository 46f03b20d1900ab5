"""Aggregates are told exactly once, wherever the worker dies and wherever a partition goes."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pytest

from service.engine.commands import Command, DeleteQuery, PatchQuery, PutQuery, PutSource
from service.log.port import Message
from tests.runtime.memory_log import Died, Fate, MemoryLog, Store
from tests.runtime.test_crashes import TOPIC, Life, _event
from tests.runtime.test_rebalance import _fail, _settle, _worker


def _query(id: str, where: str, **aggregates: Any) -> PutQuery:
    return PutQuery(id, {"id": id, "source": "s", "where": where, "aggregates": aggregates})


SCRIPT: list[Command | list[Message]] = [
    PutSource("s", {"attributes": {"x": "number"}}),
    _query("low", "x < 5", every=10, of=["x"]),
    [_event("a", 1, 3), _event("b", 1, 7), _event("c", 1, 4)],
    [_event("a", 2, 2.5), _event("c", 3, 1), _event("d", 20, 9)],
    _query("high", "x > 5", every=2),
    [_event("d", 21, 8), _event("c", 24, 11), _event("a", 24, 0.1), Message(b"b", None)],
    PatchQuery("low", {"aggregates": {"every": 3, "of": []}}),
    [_event("a", 30, 6), _event("d", 31, 1), _event("a", 60, 1), _event("c", 61, 2)],
    DeleteQuery("high"),
    PatchQuery("low", {"enabled": False}),
    [_event("a", 90, 2), _event("c", 90, 2)],
    DeleteQuery("low"),
]


class Counting(Life):
    script = SCRIPT


def told(store: Store) -> dict[str, list[tuple[int, int, Any]]]:
    """By key: when, how many, and the numbers."""
    found: dict[str, list[tuple[int, int, Any]]] = defaultdict(list)
    for topic, key, value in store.outputs:
        if topic == "aggregates":
            record = json.loads(value)
            assert (key or b"").decode() == f"{record['query']}/{record['partition']}"
            found[(key or b"").decode()].append((record["ts"], record["count"], record["of"]))
    return found


def _uninterrupted() -> tuple[Counting, Fate]:
    fate = Fate()
    life = Counting(fate)
    life.play()
    return life, fate


def test_the_script_tells_of_every_cause() -> None:
    life, _ = _uninterrupted()
    found = told(life.store)
    assert set(found) == {"low/0", "low/1", "high/0", "high/1"}
    assert len(found["low/1"]) > 4
    assert all(records[-1][1] == 0 for records in found.values()), "all is over in the end"
    assert not any(key.startswith(b"a") for state in life.store.state.values() for key in state)


@pytest.mark.parametrize("after", [False, True])
def test_a_death_anywhere_changes_no_record(after: bool) -> None:
    calm, fate = _uninterrupted()
    for at in range(fate.calls):
        life = Counting(Fate(at, after))
        try:
            life.play()
        except Died as died:
            pytest.fail(f"died twice: {died}")
        assert told(life.store) == told(calm.store), f"call {at}, {fate.names[at]}"


def test_a_partition_that_was_away_is_told_what_it_missed() -> None:
    store = Store(partitions=1)
    log = MemoryLog(store)
    worker = _worker(log)
    worker.open()
    commands: list[Command] = [
        PutSource("s", {"attributes": {"x": "number"}}),
        _query("gone", "x > 0", every=10),
        _query("moved", "x > 0", every=10, of=["x"]),
    ]
    _ask(worker, commands)
    store.append(TOPIC, _event("a", 1, 1))
    store.append(TOPIC, _event("b", 1, 2))
    _settle(worker)
    assert {key: [record[1] for record in records] for key, records in told(store).items()} == {
        "gone/0": [1],
        "moved/0": [1],
    }
    worker.close()
    elsewhere = _worker(MemoryLog(Store(partitions=1)))  # its log has the commands, not the partition
    elsewhere.open()
    _ask(elsewhere, commands)
    missed = [DeleteQuery("gone"), PatchQuery("moved", {"where": "x > 1"})]
    _ask(elsewhere, missed)
    store.commands[:] = elsewhere._log.store.commands  # type: ignore[attr-defined]
    back = _worker(MemoryLog(store))
    back.open()
    _settle(back)
    store.append(TOPIC, _event("c", 5_000, 0))
    _settle(back)
    found = told(store)
    assert [record[1] for record in found["gone/0"]] == [1, 0]
    numbers = {"n": 1, "sum": 2.0, "min": 2.0, "max": 2.0, "avg": 2.0}
    assert found["moved/0"][-1][1:] == (1, {"x": numbers})


def _ask(worker: Any, commands: list[Command]) -> None:
    from service.requests import CommandRequest

    for command in commands:
        worker.step([CommandRequest([command], True, lambda _: None, _fail)], timeout_s=0)
        _settle(worker)
