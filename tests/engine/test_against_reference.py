"""The engine equals the oracle for every cause in every order, however batches are cut and whenever it is
started anew. ``HYPOTHESIS_PROFILE=soak`` (``make soak``) plays a million operations and more."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.engine.engine import EngineLimits
from tests.cases.driver import Mode
from tests.cases.engine_driver import EngineDriver
from tests.engine.world import Operation, World, histories

LINE = ["x"]
PLANE = ["x", "y", "k"]
LENGTH = 50
SLOW = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def _play(names: list[str], done: list[Operation], mode: Mode, portion: int | None = None) -> World:
    world = World(names, mode, portion=portion)
    for operation in done:
        world.do(*operation)
        if mode != "batch":
            world.check()
    world.settle()
    world.check()
    return world


def _put(id: str, where: Any, dwell: int | None) -> Operation:
    body = {"id": id, "where": where, "on": ["match", "enter", "leave"], "initial": "emit", "for": dwell}
    return "put", {**body, "cooldown": None, "once": False, "enabled": True, "expires_at": None, "keep": None}


@pytest.mark.parametrize("mode", ["one", "batch", "restart"])
def test_a_wait_made_shorter_in_the_millisecond_that_it_began(mode: Mode) -> None:
    around, everywhere = {"any": [{"x": {"gte": 0, "lte": 0}}]}, {"any": [{}]}
    event: Operation = ("event", ("a", None, {"x": 0}))
    _play(
        LINE,
        [event, _put("q", around, 3), _put("q", everywhere, 1), event, ("pass", 1), ("remove", "a")],
        mode,
    )


@SLOW
@given(histories(LINE, LENGTH), st.sampled_from(["one", "restart"]))
def test_on_a_line(done: list[Operation], mode: Mode) -> None:
    _play(LINE, done, mode)


@SLOW
@given(histories(PLANE, LENGTH), st.sampled_from(["one", "restart"]))
def test_on_a_plane_with_categories(done: list[Operation], mode: Mode) -> None:
    _play(PLANE, done, mode)


@SLOW
@given(
    st.sampled_from([LINE, PLANE]).flatmap(lambda names: st.tuples(st.just(names), histories(names, LENGTH)))
)
def test_cuts_and_restarts_change_nothing(drawn: tuple[list[str], list[Operation]]) -> None:
    """To the byte, of each stream; among the streams that one command moves, the order may differ."""
    one, batch, restart = (_by_stream(_play(*drawn, mode)) for mode in ("one", "batch", "restart"))
    assert one == batch == restart


@SLOW
@given(
    st.sampled_from([LINE, PLANE]).flatmap(lambda names: st.tuples(st.just(names), histories(names, LENGTH))),
    st.sampled_from(["one", "batch", "restart"]),
    st.integers(1, 3),
)
def test_portions_change_nothing(drawn: tuple[list[str], list[Operation]], mode: Mode, portion: int) -> None:
    """To the byte, of each stream, though something is owed nearly always."""
    assert _by_stream(_play(*drawn, mode, portion)) == _by_stream(_play(*drawn, "one"))


def _by_stream(world: World) -> list[tuple[str, bytes | None, bytes]]:
    return sorted(world.driver.records(), key=lambda record: record[:2])


def _records(driver: EngineDriver, topic: str) -> list[dict[str, Any]]:
    return [json.loads(value) for name, _, value in driver.records() if name == topic]


def test_a_full_record_is_split_by_id_whatever_the_slots() -> None:
    driver = EngineDriver(EngineLimits(ids=2))
    driver.source("s", {"attributes": {"x": "number"}})
    for id in ("e", "b", "d", "a", "c"):
        driver.command("put", {"query": {"id": id, "source": "s", "where": {"any": [{"x": {"gte": 0}}]}}})
    driver.command("put", {"query": {"id": "n", "source": "s", "where": {"any": [{"x": {"lt": 0}}]}}})
    for x in (1, -1, 1):
        driver.send("s", b"a", json.dumps({"stream_id": "a", "x": x}).encode())
    driver.flush()
    assert [(r["seq"], r["leave"], r["enter"]) for r in _records(driver, "borders")] == [
        (1, [], ["a", "b"]),
        (2, [], ["c", "d"]),
        (3, [], ["e"]),
        (4, ["a", "b"], []),
        (5, ["c", "d"], []),
        (6, ["e"], ["n"]),
        (7, ["n"], ["a"]),
        (8, [], ["b", "c"]),
        (9, [], ["d", "e"]),
    ]
    matches = _records(driver, "matches")
    assert [(m["queries"], m.get("chunk"), m.get("chunks")) for m in matches] == [
        (["a", "b"], 1, 3),
        (["c", "d"], 2, 3),
        (["e"], 3, 3),
        (["n"], None, None),
        (["a", "b"], 1, 3),
        (["c", "d"], 2, 3),
        (["e"], 3, 3),
    ]


def test_streams_past_the_limit_are_refused_wherever_the_batch_is_cut() -> None:
    outputs = []
    for mode in ("one", "batch"):
        driver = EngineDriver(EngineLimits(streams=2))
        driver.source("s", {"attributes": {"x": "number"}})
        for key, value in [("a", 1), ("b", 1), ("c", 1), ("a", None), ("c", 2), ("a", 3), ("b", 2)]:
            event = None if value is None else json.dumps({"stream_id": key, "x": value}).encode()
            driver.send("s", key.encode(), event)
            if mode == "one":
                driver.flush()
        driver.flush()
        outputs.append(driver.records())
        refused = _records(driver, "dead_letter")
        assert [(r["reason"], r["stream_id"], r["origin"]["offset"]) for r in refused] == [
            ("limit", "c", 2),
            ("limit", "a", 5),
        ]
    assert outputs[0] == outputs[1]
