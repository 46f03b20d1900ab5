"""Traces and safe regions over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from service.api import stream_answers
from tests.api.conftest import ATTRIBUTES, OwnSource
from tests.api.harness import Running, running


def trace(client: httpx.Client, id: str, source: str, query: str, **params: Any) -> dict[str, Any]:
    response = client.get(f"/v1/streams/{id}/trace", params={"source": source, "query": query, **params})
    assert response.status_code == 200, response.text
    return response.json()


def safe_region(client: httpx.Client, id: str, source: str) -> dict[str, Any]:
    response = client.get(f"/v1/streams/{id}/safe-region", params={"source": source})
    assert response.status_code == 200, response.text
    return response.json()


def test_why_it_did_not_fire(client: httpx.Client, source: OwnSource) -> None:
    source.send({"stream_id": "v", "ts": 1, "x": 7, "y": 1})
    query = source.register("q", "x > 5 and y > 2")
    source.send({"stream_id": "v", "ts": 9, "x": 7, "y": 1}, {"stream_id": "w", "x": 1})
    sent = source.send(
        {"stream_id": "v", "ts": 8, "x": 7, "y": 3}, {"stream_id": "v", "ts": 10, "x": 7, "y": 3}
    )
    answer = trace(client, "v", source.name, query["id"])
    assert (answer["query"], answer["canonical"], answer["enabled"]) == (query["id"], "x > 5 and y > 2", True)
    assert answer["remembered"] == {"from_offset": 0, "overwritten": False}
    told = [
        (one["offset"], one["row"], one["ts"], one["verdict"], one["in_force"], one["holds"], one["matched"])
        for one in answer["events"]
    ]
    assert told == [
        (2, 1, 10, "moved", True, True, True),
        (2, 0, 8, "late", True, True, True),
        (1, 0, 9, "moved", True, False, False),
        (0, 0, 1, "moved", False, False, None),
    ]
    assert answer["events"][2]["margin"] == {"attribute": "y", "border": 2.0, "distance": 1.0, "open": True}
    matches = [one["value"] for one in sent["outputs"] if one["topic"] == "matches"]
    assert [one["queries"] for one in matches] == [[query["id"]], [query["id"]]]
    assert trace(client, "v", source.name, query["id"], limit=1)["events"] == answer["events"][:1]


def test_a_match_is_due_only_where_one_is_asked_for(client: httpx.Client, source: OwnSource) -> None:
    body = {"attributes": ATTRIBUTES, "late": "reject", "dedup": {"by": "id"}}
    client.put(f"/v1/sources/{source.name}", json=body).raise_for_status()
    off = source.register("off", "x > 5", enabled=False)["id"]
    quiet = source.register("quiet", "x > 5", on=["enter"])["id"]
    loud = source.register("loud", "x > 5")["id"]
    events = [{"stream_id": "v", "ts": ts, "x": 7, "id": id} for ts, id in ((2, "a"), (1, "b"), (3, "a"))]
    source.send(*events)
    for id, verdicts in ((off, [False] * 3), (quiet, [False] * 3), (loud, [False, False, True])):
        found = trace(client, "v", source.name, id)["events"]
        assert [one["verdict"] for one in found] == ["duplicate", "rejected", "moved"]
        assert [one["holds"] for one in found] == [True] * 3
        assert [one["matched"] for one in found] == verdicts


def test_a_restart_remembers_nothing_and_says_so(tmp_path: Path) -> None:
    with running(tmp_path) as first:
        first.client.put("/v1/sources/s", json={"attributes": ATTRIBUTES}).raise_for_status()
        first.client.put("/v1/queries/q", json={"source": "s", "where": "x > 5"}).raise_for_status()
        first.client.post("/v1/events?source=s&wait=true", json={"stream_id": "v", "x": 7})
        assert len(trace(first.client, "v", "s", "q")["events"]) == 1
        newest = first.client.post("/v1/explain", json={"query": "q", "stream_id": "v"}).json()["stream"]
        assert newest["newest"]["offset"] == newest["moved_by"]["offset"] == 0
    with running(tmp_path) as second:
        answer = trace(second.client, "v", "s", "q")
        assert (answer["events"], answer["remembered"]) == ([], {"from_offset": None, "overwritten": False})
        stream = second.client.post("/v1/explain", json={"query": "q", "stream_id": "v"}).json()["stream"]
        assert (stream["newest"], stream["moved_by"], stream["member"]) == (None, None, True)
        second.client.post("/v1/events?source=s&wait=true", json={"stream_id": "v", "x": 7})
        answer = trace(second.client, "v", "s", "q")
        assert [one["offset"] for one in answer["events"]] == [1]
        assert answer["remembered"] == {"from_offset": 1, "overwritten": False}


def test_the_setting_bounds_what_is_remembered(tmp_path: Path) -> None:
    with running(tmp_path, trace_events=3, max_page=10) as service:
        client = service.client
        client.put("/v1/sources/s", json={"attributes": ATTRIBUTES}).raise_for_status()
        client.put("/v1/queries/q", json={"source": "s", "where": "x > 5"}).raise_for_status()
        for x in range(5):
            client.post("/v1/events?source=s&wait=true", json={"stream_id": "v", "x": x})
        answer = trace(client, "v", "s", "q", limit=10)
        assert [one["offset"] for one in answer["events"]] == [4, 3, 2]
        assert answer["remembered"] == {"from_offset": 2, "overwritten": True}
        response = client.get("/v1/streams/v/trace?source=s&query=q&limit=11")
        assert (response.status_code, response.json()["reason"], response.json()["field"]) == (
            422,
            "limit",
            "limit",
        )


def test_a_trace_is_bounded_by_events_times_boxes(client: httpx.Client, source: OwnSource) -> None:
    boxes = 500
    where = " or ".join(f"{2 * i} < x < {2 * i + 1} and y > {i}" for i in range(boxes))
    query = source.register("wide", where)["id"]
    source.send(*({"stream_id": "v", "x": -1, "y": i} for i in range(60)))
    most = stream_answers._MOST_VERDICTS // boxes
    assert len(trace(client, "v", source.name, query, limit=most)["events"]) == most
    params = {"source": source.name, "query": query, "limit": most + 1}
    problem = client.get("/v1/streams/v/trace", params=params).json()
    assert (problem["status"], problem["field"], problem["reason"]) == (422, "limit", "limit")
    assert f"ask for {most} at most" in problem["detail"]
    narrow = source.register("narrow")["id"]
    assert len(trace(client, "v", source.name, narrow, limit=1000)["events"]) == 60


def test_the_safe_region_of_a_stream(client: httpx.Client, source: OwnSource) -> None:
    source.register("a", "0 <= x < 10 and kind in ('tug', 'tanker')")
    source.register("b", "x > 4 and y >= 2", on=["enter"])
    source.register("off", "x < 3", enabled=False)
    source.send({"stream_id": "v", "x": 2, "kind": "tug"})
    assert safe_region(client, "v", source.name) == {
        "source": source.name,
        "stream_id": "v",
        "values": {"x": 2.0, "kind": "tug"},
        "queries": 2,
        "maximal": True,
        "sides": [
            {"attribute": "x", "type": "number", "lower": 0.0, "upper": 10.0, "missing": False},
            {"attribute": "y", "type": "number", "lower": None, "upper": 2.0, "missing": True},
            {"attribute": "kind", "type": "category", "texts": {"in": ["tanker", "tug"]}, "missing": False},
        ],
    }


def test_keep_counts_for_those_whom_it_keeps(client: httpx.Client, source: OwnSource) -> None:
    source.register("q", "5 <= x < 6", keep="4 <= x < 7")

    def ends() -> tuple[Any, Any]:
        side = safe_region(client, "v", source.name)["sides"][0]
        return side["lower"], side["upper"]

    source.send({"stream_id": "v", "x": 16})
    assert ends() == (6.0, None)
    source.send({"stream_id": "v", "x": 5.5})
    assert ends() == (5.0, 6.0)
    source.send({"stream_id": "v", "x": 6.5})
    assert ends() == (6.0, 7.0)


def test_within_it_nothing_is_crossed_and_beyond_it_something_is(
    client: httpx.Client, source: OwnSource
) -> None:
    for name, where in (
        ("a", "0 <= x < 10 and y < 3"),
        ("b", "x > 4 or y > 2"),
        ("c", "kind != 'tug' and x <= 6"),
    ):
        source.register(name, where)
    start = {"stream_id": "v", "x": 2, "y": 1, "kind": "tug"}
    source.send(start)
    x, y, kind = safe_region(client, "v", source.name)["sides"]
    for inside in ({"x": x["lower"]}, {"y": y["upper"] - 0.5}, {"x": x["upper"] - 0.5}):
        assert crossed(source, {**start, **inside}) == 0
    assert kind["texts"] == {"in": ["tug"]}
    for outside in ({"x": x["lower"] - 0.5}, {"x": x["upper"]}, {"y": y["upper"]}, {"kind": "yacht"}):
        assert crossed(source, {**start, **outside}) == 1
        assert crossed(source, start) == 1


def crossed(source: OwnSource, event: dict[str, Any]) -> int:
    return sum(one["topic"] == "borders" for one in source.send(event)["outputs"])


@pytest.mark.parametrize("id", ["a/b", "a/trace", "a/safe-region", "trace", "ü €"])
def test_every_stream_can_be_asked_about(service: Running, source: OwnSource, id: str) -> None:
    query = source.register("q", "x > 5")["id"]
    source.send({"stream_id": id, "x": 7})
    sent = httpx.URL("/").copy_with(path="/v1/streams/" + id).raw_path.decode()
    escaped = sent.removeprefix("/v1/streams/").replace("/", "%2F")
    params = {"source": source.name}
    assert service.plain.get(f"/v1/streams/{escaped}", params=params).json()["stream_id"] == id
    safe = service.plain.get(f"/v1/streams/{escaped}/safe-region", params=params).json()
    assert (safe["stream_id"], safe["values"]) == (id, {"x": 7.0})
    traced = service.plain.get(f"/v1/streams/{escaped}/trace", params={**params, "query": query}).json()
    assert (traced["stream_id"], len(traced["events"])) == (id, 1)
    assert service.plain.delete(f"/v1/streams/{escaped}", params=params).status_code == 204


def test_a_slash_that_stands_as_itself_begins_the_step(service: Running, source: OwnSource) -> None:
    query = source.register("q", "x > 5")["id"]
    source.send({"stream_id": "a", "x": 7}, {"stream_id": "a/trace", "x": 8})
    assert trace(service.plain, "a", source.name, query)["stream_id"] == "a"
    assert trace(service.plain, "a%2Ftrace", source.name, query)["events"][0]["values"] == {"x": 8.0}
    response = service.plain.get("/v1/streams/a%2Ftrace", params={"source": source.name})
    assert response.json()["last"] == {"x": 8.0}


def test_the_setting_bounds_the_work_on_a_safe_region(tmp_path: Path) -> None:
    squares = " or ".join(f"{a} <= x < {a + 1} and {b} <= y < {b + 1}" for a in range(4) for b in range(4))
    for cuts, maximal in ((3, False), (1_000, True)):
        place = tmp_path / str(cuts)
        place.mkdir()
        with running(place, safe_region_cuts=cuts) as service:
            client = service.client
            client.put("/v1/sources/s", json={"attributes": ATTRIBUTES}).raise_for_status()
            client.put("/v1/queries/q", json={"source": "s", "where": squares}).raise_for_status()
            client.post("/v1/events?source=s&wait=true", json={"stream_id": "v", "x": 1.5, "y": 1.5})
            found = safe_region(client, "v", "s")
        assert found["maximal"] is maximal
        whole = [(side["lower"], side["upper"]) for side in found["sides"][:2]] == [(0.0, 4.0), (0.0, 4.0)]
        assert whole is maximal


def test_what_is_not_there_is_named(client: httpx.Client, source: OwnSource) -> None:
    query = source.register("q", "x > 5")["id"]
    other = OwnSource(client)
    foreign = other.register("q", "x > 5")["id"]
    source.send({"stream_id": "v", "x": 7})
    name = source.name
    for path, status, reason, field in (
        (f"nobody/trace?source={name}&query={query}", 404, "unknown_id", "id"),
        (f"v/trace?source={name}&query=nobody", 404, "unknown_id", "query"),
        (f"v/trace?source=nobody&query={query}", 422, "unknown_source", "source"),
        (f"v/trace?source={name}&query={foreign}", 422, "bad_value", "source"),
        (f"v/trace?source={name}", 422, "missing_field", "query"),
        (f"v/trace?source={name}&query={query}&limit=0", 422, "bad_value", "limit"),
        (f"v/trace?source={name}&query={query}&after=1", 422, "unknown_field", "after"),
        (f"nobody/safe-region?source={name}", 404, "unknown_id", "id"),
        ("v/safe-region?source=nobody", 422, "unknown_source", "source"),
        ("v/safe-region", 422, "missing_field", "source"),
    ):
        response = client.get(f"/v1/streams/{path}")
        found = response.json()
        assert (response.status_code, found["reason"], found["field"]) == (status, reason, field), path
