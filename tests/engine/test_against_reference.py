"""The engine equals the reference for every interleaving of events and commands, however batches are cut."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.engine.engine import EngineLimits
from service.language import Limits, parse_query, parse_source
from service.model import Source
from tests.cases.driver import Mode
from tests.cases.engine_driver import EngineDriver
from tests.engine.reference import Reference

GRID = st.integers(0, 4)
STREAMS = st.sampled_from(["a", "b", "c"])
QUERIES = st.sampled_from(["p", "q", "r", "s"])
KINDS = ["tug", "cargo", "yacht"]

BOUNDS = (
    st.tuples(GRID, GRID)
    .map(sorted)
    .flatmap(
        lambda ends: st.sampled_from(
            [
                {"gte": ends[0], "lte": ends[1]},
                {"gte": ends[0], "lt": ends[1] + 1},
                {"gte": ends[0]},
                {"lt": ends[1] + 1},
            ]
        )
    )
)
CATEGORY = st.one_of(
    st.sampled_from(KINDS).map(lambda kind: {"eq": kind}),
    st.sampled_from(KINDS).map(lambda kind: {"ne": kind}),
    st.lists(st.sampled_from(KINDS), min_size=1, max_size=2, unique=True).map(lambda kinds: {"in": kinds}),
)
CONJUNCT = st.fixed_dictionaries({}, optional={"x": BOUNDS, "y": BOUNDS, "k": CATEGORY})
WHERE = st.lists(CONJUNCT, min_size=1, max_size=3).map(lambda conjuncts: {"any": conjuncts})
ON = st.sampled_from(
    [["match", "enter", "leave"]] * 4 + [["match"], ["enter", "leave"], ["enter"], ["match", "leave"]]
)
QUERY = st.fixed_dictionaries(
    {
        "id": QUERIES,
        "where": WHERE,
        "on": ON,
        "initial": st.sampled_from(["emit", "ignore"]),
        "enabled": st.booleans(),
    }
)
EVENT = st.fixed_dictionaries(
    {"stream_id": STREAMS},
    optional={"ts": st.integers(0, 8), "x": GRID, "y": GRID, "k": st.sampled_from(KINDS)},
)
OPERATION = st.one_of(
    st.tuples(st.just("event"), EVENT),
    st.tuples(st.just("event"), EVENT),
    st.tuples(st.just("event"), EVENT),
    st.tuples(st.just("remove"), STREAMS),
    st.tuples(st.just("put"), QUERY),
    st.tuples(st.just("delete"), QUERIES),
    st.tuples(st.just("restart"), st.none()),
    st.tuples(st.just("cut"), st.none()),
)
POLICIES = st.fixed_dictionaries(
    {}, optional={"missing": st.just("carry"), "late": st.sampled_from(["no_border", "process", "reject"])}
)


def _play(
    policies: dict[str, str], operations: list[tuple[str, Any]], mode: Mode
) -> tuple[EngineDriver, Reference]:
    body = {"attributes": {"x": "number", "y": "number", "k": "category"}, **policies}
    source: Source = parse_source("s", body)
    driver, reference = EngineDriver(), Reference(source)
    driver.source("s", body)
    for operation, argument in operations:
        match operation:
            case "event":
                stream_id = argument["stream_id"]
                _, offset = driver.send("s", stream_id.encode(), json.dumps(argument).encode())
                values = {name: argument[name] for name in ("x", "y", "k") if name in argument}
                reference.event(offset, stream_id, argument.get("ts"), values)
            case "remove":
                _, offset = driver.send("s", argument.encode(), None)
                reference.remove(offset, argument)
            case "put":
                driver.flush()
                query = {**argument, "source": "s"}
                status, reason, offset = driver.command("put", {"query": query})
                assert status == 200, reason
                parsed = parse_query(query, {"s": source}, id=None, now_ms=0, limits=Limits())
                if offset is not None:
                    reference.put(("command", offset), parsed)
            case "delete":
                driver.flush()
                status, _, offset = driver.command("delete", {"id": argument})
                assert status == (200 if argument in reference.queries else 404)
                if offset is not None:
                    reference.delete(("command", offset), argument)
            case "restart":
                driver.flush()
                driver.restart()
            case "cut":
                driver.flush()
        if mode != "batch":
            driver.flush()
        if mode == "restart":
            driver.restart()
    driver.flush()
    return driver, reference


def _matches(driver: EngineDriver) -> list[Any]:
    records = [json.loads(value) for topic, _, value in driver.records() if topic == "matches"]
    return [(r["origin"]["offset"], r["stream_id"], r["queries"], r.get("late", False)) for r in records]


def _borders(driver: EngineDriver) -> list[Any]:
    rows = []
    for topic, _, value in driver.records():
        if topic == "borders":
            r = json.loads(value)
            origin = r["origin"]
            label = ("command", origin["command"]) if "command" in origin else origin["offset"]
            rows.append((label, r["stream_id"], r["seq"], r["reason"], r["leave"], r["enter"]))
    return rows


def _by_stream(rows: list[Any]) -> dict[str, list[Any]]:
    return {stream_id: [row for row in rows if row[1] == stream_id] for stream_id in "abc"}


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(POLICIES, st.lists(OPERATION, max_size=40), st.sampled_from(["one", "batch", "restart"]))
def test_engine_is_the_reference(
    policies: dict[str, str], operations: list[tuple[str, Any]], mode: Mode
) -> None:
    driver, reference = _play(policies, operations, mode)
    assert _matches(driver) == reference.matches
    assert _by_stream(_borders(driver)) == _by_stream(reference.borders)
    for stream_id in "abc":
        view = driver.engine.stream("s", stream_id)
        expected = reference.members(stream_id)
        assert (set(view.inside) if view else set()) == expected
        if view:
            assert view.seq == reference.streams[stream_id].seq
    for id in reference.queries:
        inside = sorted(stream_id for stream_id in reference.streams if id in reference.members(stream_id))
        assert driver.engine.members(id) == inside


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(POLICIES, st.lists(OPERATION, max_size=40))
def test_cuts_and_restarts_change_nothing(
    policies: dict[str, str], operations: list[tuple[str, Any]]
) -> None:
    outputs = [_play(policies, operations, mode)[0].records() for mode in ("one", "batch", "restart")]
    assert outputs[0] == outputs[1] == outputs[2]


def test_a_full_record_is_split_by_id_whatever_the_slots() -> None:
    driver = EngineDriver(EngineLimits(ids=2))
    driver.source("s", {"attributes": {"x": "number"}})
    for id in ("e", "b", "d", "a", "c"):
        driver.command("put", {"query": {"id": id, "source": "s", "where": {"any": [{"x": {"gte": 0}}]}}})
    driver.command("put", {"query": {"id": "n", "source": "s", "where": {"any": [{"x": {"lt": 0}}]}}})
    for x in (1, -1, 1):
        driver.send("s", b"a", json.dumps({"stream_id": "a", "x": x}).encode())
    driver.flush()
    assert [(seq, leave, enter) for _, _, seq, _, leave, enter in _borders(driver)] == [
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
    matches = [json.loads(value) for topic, _, value in driver.records() if topic == "matches"]
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
        refused = [json.loads(value) for topic, _, value in driver.records() if topic == "dead_letter"]
        assert [(r["reason"], r["stream_id"], r["origin"]["offset"]) for r in refused] == [
            ("limit", "c", 2),
            ("limit", "a", 5),
        ]
    assert outputs[0] == outputs[1]
