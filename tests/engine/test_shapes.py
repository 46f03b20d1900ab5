"""Queries with polygons and circles in the engine, whatever happens, against membership from scratch."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.geometry import normal
from tests.cases.driver import Mode
from tests.cases.engine_driver import EngineDriver
from tests.engine.shape_oracle import World, inside

SOURCE = {"attributes": {"x": "number", "y": "number", "k": "category"}}
GRID = st.integers(0, 5)
HALF = st.integers(-1, 11).map(lambda number: number / 2)


def valid(ring: list[list[float]]) -> bool:
    try:
        normal("x", "y", [[(x, y) for x, y in ring]])
    except ValueError:
        return False
    return True


RING = (
    st.lists(st.tuples(GRID, GRID).map(list), min_size=3, max_size=6, unique_by=tuple)
    .map(lambda ring: [*ring, ring[0]])
    .filter(valid)
)
OVER = {"lon": "x", "lat": "y"}
POLYGON = st.one_of(
    RING.map(lambda ring: {"type": "Polygon", "coordinates": [ring]}),
    st.tuples(RING, RING).map(lambda rings: {"type": "MultiPolygon", "coordinates": [[r] for r in rings]}),
).map(lambda geometry: {"polygon": geometry, **OVER})
CIRCLE = st.builds(
    lambda lon, lat, radius_m: {"circle": {"lon": lon, "lat": lat, "radius_m": radius_m}, **OVER},
    *(GRID, GRID, st.sampled_from([60_000, 130_000, 300_000])),
)
SHAPE = st.one_of(POLYGON, POLYGON, CIRCLE)
DISJUNCT = st.one_of(
    st.builds(lambda shape: {"in": shape}, SHAPE),
    st.builds(lambda shape, k: {"in": shape, "k": {"eq": k}}, SHAPE, st.sampled_from("ab")),
    st.builds(lambda lo: {"x": {"gte": lo, "lt": lo + 2}}, GRID),
)
WHERE = st.lists(DISJUNCT, min_size=1, max_size=2).map(lambda disjuncts: {"any": disjuncts})
EVERYWHERE = {
    "polygon": {"type": "Polygon", "coordinates": [[[-9, -9], [99, -9], [99, 98], [-9, 99], [-9, -9]]]},
    **OVER,
}
ON = st.sampled_from([["match", "enter", "leave"], ["enter", "leave"]])
QUERY = st.fixed_dictionaries(
    {"id": st.sampled_from("pqr"), "source": st.just("s"), "where": WHERE, "on": ON}
)
EVENT = st.fixed_dictionaries(
    {"stream_id": st.sampled_from("abc")}, optional={"x": HALF, "y": HALF, "k": st.sampled_from("ab")}
)
STEP = st.one_of(
    st.tuples(st.just("event"), EVENT),
    st.tuples(st.just("event"), EVENT),
    st.tuples(st.just("event"), EVENT),
    st.tuples(st.just("put"), QUERY),
    st.tuples(st.just("put"), QUERY),
    st.tuples(st.just("delete"), st.sampled_from("pqr")),
    st.tuples(st.just("remove"), st.sampled_from("abc")),
    st.tuples(st.just("toggle"), st.sampled_from("pqr")),
)
Steps = list[tuple[str, Any]]


def play(steps: Steps, mode: Mode) -> tuple[EngineDriver, World, list[tuple[int, list[str]]]]:
    """The driver and the oracle at the end of the same steps, and what should have matched, by offset."""
    driver, world = EngineDriver(), World()
    driver.source("s", SOURCE)
    matches = []
    for step, what in steps:
        if step in ("put", "delete", "toggle"):
            driver.flush()
        match step:
            case "event":
                _, offset = driver.send("s", what["stream_id"].encode(), json.dumps(what).encode())
                if matched := world.event(what):
                    matches.append((offset, matched))
            case "put":
                status, reason, _ = driver.command("put", {"query": what})
                if reason == "empty_range":  # shapes that do not meet what stands beside them
                    continue
                assert status == 200, reason
                world.put(what)
            case "delete":
                driver.command("delete", {"id": what})
                world.delete(what)
            case "remove":
                driver.send("s", what.encode(), None)
                world.remove(what)
            case "toggle" if what in world.queries:
                body = world.queries[what]
                for enabled in (False, True):
                    assert driver.command("put", {"query": {**body, "enabled": enabled}})[0] == 200
                world.delete(what)
                world.put(body)
        if mode != "batch":
            driver.flush()
        if mode == "restart":
            driver.restart()
    driver.flush()
    return driver, world, matches


def by_stream(driver: EngineDriver) -> dict[tuple[str, bytes | None], list[bytes]]:
    """What is written of each stream, in order: between streams there is none."""
    found: dict[tuple[str, bytes | None], list[bytes]] = {}
    for topic, key, value in driver.records():
        found.setdefault((topic, key), []).append(value)
    return found


def folded(driver: EngineDriver) -> set[tuple[str, str]]:
    """Membership from the border log alone, which has to balance."""
    members: Counter[tuple[str, str]] = Counter()
    for topic, _, value in driver.records():
        if topic == "borders":
            record = json.loads(value)
            members.subtract((record["stream_id"], id) for id in record["leave"])
            members.update((record["stream_id"], id) for id in record["enter"])
            assert set(members.values()) <= {0, 1}
    return {pair for pair, times in members.items() if times}


def matched(driver: EngineDriver) -> list[tuple[int, list[str]]]:
    records = [json.loads(value) for topic, _, value in driver.records() if topic == "matches"]
    return [(record["origin"]["offset"], record["queries"]) for record in records]


def check(steps: Steps, mode: Mode) -> EngineDriver:
    driver, world, matches = play(steps, mode)
    assert matched(driver) == matches
    assert folded(driver) == world.members
    for stream_id in "abc":
        view = driver.engine.stream("s", stream_id)
        wanted = {id for stream, id in world.members if stream == stream_id}
        assert (set(view.inside) if view else set()) == wanted
    for id in world.queries:
        assert sorted(driver.engine.members(id)) == sorted(
            stream for stream, one in world.members if one == id
        )
    return driver


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(STEP, max_size=30), st.sampled_from(["one", "batch", "restart"]))
def test_matches_borders_and_views_are_those_of_brute_force(steps: Steps, mode: Mode) -> None:
    check(steps, mode)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(STEP, max_size=25))
def test_cuts_and_restarts_change_nothing(steps: Steps) -> None:
    outputs = [by_stream(play(steps, mode)[0]) for mode in ("one", "batch", "restart")]
    assert outputs[0] == outputs[1] == outputs[2]


KEEPING = st.one_of(
    st.just({"any": [{"in": EVERYWHERE}]}),
    st.just({"any": [{"x": {"gte": -9, "lt": 99}}]}),
    st.just(
        {
            "any": [
                {
                    "in": {
                        "polygon": {"type": "Polygon", "coordinates": [[[0, 0], [5, 0], [5, 5], [0, 0]]]},
                        **OVER,
                    }
                }
            ]
        }
    ),
)
WITHIN = st.one_of(
    RING.map(lambda ring: {"any": [{"in": {"polygon": {"type": "Polygon", "coordinates": [ring]}, **OVER}}]}),
    st.just({"any": [{"x": {"gte": 2, "lt": 4}, "y": {"gte": 1, "lt": 2}}]}),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    WITHIN,
    KEEPING,
    st.lists(st.tuples(HALF, HALF), max_size=25),
    st.sampled_from(["one", "batch", "restart"]),
)
def test_keep_with_shapes(
    where: dict[str, Any], keep: dict[str, Any], way: list[tuple[float, float]], mode: Mode
) -> None:
    """A stream enters by ``where`` and leaves by ``keep``, where that is not refused for being smaller."""
    body = {"id": "q", "source": "s", "where": where, "keep": keep}
    status, reason, _ = play([], "one")[0].command("put", {"query": body})
    if status == 200:
        check([("put", body), *(("event", {"stream_id": "a", "x": x, "y": y}) for x, y in way)], mode)
    else:
        assert reason == "keep_smaller"


TRIANGLE = {"polygon": {"type": "Polygon", "coordinates": [[[0, 0], [4, 0], [4, 4], [0, 0]]]}, **OVER}


def test_crossing_an_edge_within_the_frame_is_a_border() -> None:
    for on in (["enter", "leave"], ["match", "enter", "leave"]):
        body = {"id": "q", "source": "s", "where": {"any": [{"in": TRIANGLE}]}, "on": on}
        way = [(1, 3), (3, 1), (2, 2), (1.5, 2), (3, 3), (9, 9)]
        driver = check(
            [("put", body), *(("event", {"stream_id": "a", "x": x, "y": y}) for x, y in way)], "batch"
        )
        borders = [json.loads(value) for topic, _, value in driver.records() if topic == "borders"]
        assert [(one["origin"]["offset"], one["enter"], one["leave"]) for one in borders] == [
            *((1, ["q"], []), (3, [], ["q"]), (4, ["q"], []), (5, [], ["q"]))
        ]


def test_a_query_of_many_edges_and_one_of_few_share_an_event() -> None:
    """The first has sure cells, so that one slot is found by boxes with and without a test."""
    angles = np.linspace(0, 2 * np.pi, 500, endpoint=False)
    ring = [[5 + 4 * float(np.cos(a)), 5 + 4 * float(np.sin(a))] for a in angles]
    round_ = {"polygon": {"type": "Polygon", "coordinates": [[*ring, ring[0]]]}, **OVER}
    bodies = [
        {"id": id, "source": "s", "where": {"any": [{"in": shape}, {"x": {"gte": 8, "lt": 9}}]}}
        for id, shape in (("p", round_), ("q", TRIANGLE))
    ]
    points = np.random.default_rng(1).uniform(0, 10, (400, 2)).tolist()
    events = [("event", {"stream_id": "abc"[i % 3], "x": x, "y": y}) for i, (x, y) in enumerate(points)]
    check([("put", bodies[0]), ("put", bodies[1]), *events], "batch")
    check([*events, ("put", bodies[0]), ("put", bodies[1])], "batch")


@pytest.mark.parametrize("mode", ["one", "restart"])
def test_new_attributes_of_the_source_leave_shapes_where_they_are(mode: Mode) -> None:
    driver = EngineDriver()
    driver.source("s", SOURCE)
    driver.command("put", {"query": {"id": "q", "source": "s", "where": {"any": [{"in": TRIANGLE}]}}})
    driver.source("s", {"attributes": {"z": "number", **SOURCE["attributes"]}})
    if mode == "restart":
        driver.restart()
    for x, y in [(1, 3), (3, 1)]:
        driver.send("s", b"a", json.dumps({"stream_id": "a", "x": x, "y": y, "z": 7}).encode())
    driver.flush()
    assert matched(driver) == [(1, ["q"])]
    assert inside({"any": [{"in": TRIANGLE}]}, {"x": 3, "y": 1})


def test_attributes_under_a_shape_cannot_go() -> None:
    driver = EngineDriver()
    driver.source("s", SOURCE)
    driver.command("put", {"query": {"id": "q", "source": "s", "where": {"any": [{"in": TRIANGLE}]}}})
    for attributes in ({"x": "number", "k": "category"}, {"y": "number", "x": "category"}):
        with pytest.raises(AssertionError):
            driver.source("s", {"attributes": attributes})
    driver.command("delete", {"id": "q"})
    driver.source("s", {"attributes": {"x": "number"}})


@pytest.mark.parametrize("wider", [{"in": TRIANGLE}, {"x": {"gt": 3}}])
def test_attributes_that_only_keep_names_cannot_go(wider: dict[str, Any]) -> None:
    driver = EngineDriver()
    driver.source("s", SOURCE)
    tug = {"k": {"eq": "a"}}
    body = {"id": "q", "source": "s", "where": {"any": [tug]}, "keep": {"any": [tug, wider]}}
    assert driver.command("put", {"query": body})[0] == 200
    with pytest.raises(AssertionError):
        driver.source("s", {"attributes": {"k": "category"}})
    driver.command("put", {"query": {**body, "keep": None}})
    driver.source("s", {"attributes": {"k": "category"}})
