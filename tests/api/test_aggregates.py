"""Aggregates over HTTP: asked for, told on the topic, and counted on request."""

from __future__ import annotations

import json
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator

from tests.api.conftest import OwnSource
from tests.api.harness import eventually, running

SCHEMA = json.loads(files("service").joinpath("schemas", "aggregates.json").read_bytes())


def numbers(*values: float) -> dict[str, Any]:
    """Of values whose sums are exact."""
    if not values:
        return {"n": 0, "sum": 0.0, "min": None, "max": None, "avg": None}
    total, n = sum(values), len(values)
    return {"n": n, "sum": total, "min": min(values), "max": max(values), "avg": total / n}


def told(client: httpx.Client, query: str) -> list[dict[str, Any]]:
    """All records of a query, each fitting the schema."""
    page = client.get("/v1/topics/aggregates", params={"limit": 1000}).json()
    mine = [record for record in page["records"] if record["key"] == f"{query}/0"]
    for record in mine:
        Draft202012Validator(SCHEMA).validate(record["value"])
        assert record["value"]["query"] == query
    return [record["value"] for record in mine]


def test_a_query_counts_its_members(client: httpx.Client, source: OwnSource) -> None:
    view = source.register("q", aggregates={"every": "1ms", "of": ["y"]})
    assert view["aggregates"] == {"every": 1, "of": ["y"]}
    source.send(
        {"stream_id": "a", "ts": 10, "x": 1, "y": 4},
        {"stream_id": "b", "ts": 20, "x": 1},
        {"stream_id": "c", "ts": 30, "x": -1, "y": 7},
        {"stream_id": "a", "ts": 40, "x": 1, "y": 8},
        {"stream_id": "b", "ts": 50, "x": 1, "y": 1},
    )
    id = source.id("q")
    here = {"count": 2, "of": {"y": numbers(8, 1)}}
    topic = f"events.{source.name}"
    assert client.get(f"/v1/queries/{id}/aggregates").json() == {
        "query": id,
        "source": source.name,
        **here,
        "partitions": [{"topic": topic, "partition": 0, **here}],
    }
    records = told(client, id)
    assert [(one["count"], one["of"]["y"]) for one in records] == [
        (1, numbers(4)),
        (2, numbers(4)),
        (2, numbers(8)),
        (2, numbers(8, 1)),
    ]
    assert [one["ts"] - records[0]["ts"] for one in records] == sorted(
        one["ts"] - records[0]["ts"] for one in records
    )
    client.delete(f"/v1/queries/{id}").raise_for_status()
    assert told(client, id)[-1]["count"] == 0
    assert client.get(f"/v1/queries/{id}/aggregates").status_code == 404


def test_the_last_state_comes_out_without_another_event(client: httpx.Client, source: OwnSource) -> None:
    source.register("q", aggregates={"every": "300ms", "of": ["y"]})
    source.send(*({"stream_id": f"v{i}", "x": 1, "y": i} for i in range(50)))
    id = source.id("q")
    eventually(lambda: told(client, id)[-1]["count"] == 50, "the last state")
    records = told(client, id)
    assert len(records) < 50 and records[-1]["of"] == {"y": numbers(*range(50))}
    assert all(later["ts"] - one["ts"] >= 300 for one, later in pairwise(records))


def test_disabling_and_asking_no_more_end_with_nobody(client: httpx.Client, source: OwnSource) -> None:
    for name in ("off", "mute"):
        source.register(name, aggregates={"every": 1})
    source.send({"stream_id": "a", "x": 1})
    client.patch(f"/v1/queries/{source.id('off')}", json={"enabled": False}).raise_for_status()
    client.patch(f"/v1/queries/{source.id('mute')}", json={"aggregates": None}).raise_for_status()

    def counts(name: str) -> list[int]:
        return [one["count"] for one in told(client, source.id(name))]

    eventually(lambda: counts("off") == [1, 0] == counts("mute"), "nobody is inside")
    assert client.get(f"/v1/queries/{source.id('off')}/aggregates").json()["count"] == 0
    answer = client.get(f"/v1/queries/{source.id('mute')}/aggregates")
    assert (answer.status_code, answer.json()["reason"]) == (404, "not_found")


def test_registering_over_present_streams_tells_once(client: httpx.Client, source: OwnSource) -> None:
    source.send(*({"stream_id": f"v{i}", "x": i, "y": 2} for i in range(20)))
    source.register("q", where="x >= 5", aggregates={"of": ["y"]})
    assert [one["count"] for one in told(client, source.id("q"))] == [15]


@pytest.mark.parametrize("asked", [None, {"every": "1s", "of": ["x"]}])
def test_the_metric_counts_what_was_told(tmp_path: Path, asked: dict[str, Any] | None) -> None:
    with running(tmp_path) as service:
        service.client.put("/v1/sources/s", json={"attributes": {"x": "number"}}).raise_for_status()
        query = {"source": "s", "where": "x > 0", "aggregates": asked}
        service.client.put("/v1/queries/q", json=query).raise_for_status()
        service.client.post("/v1/events?source=s&wait=true", json={"stream_id": "a", "x": 1})
        text = service.client.get("/metrics").text
        assert ('rangewatch_aggregates_total{source="s"} 1.0' in text) == (asked is not None)


def test_a_restart_tells_nothing_twice(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        service.client.put("/v1/sources/s", json={"attributes": {"x": "number"}}).raise_for_status()
        asked = {"every": "1ms", "of": ["x"]}
        query = {"source": "s", "where": "x > 0", "aggregates": asked}
        service.client.put("/v1/queries/q", json=query).raise_for_status()
        service.client.post("/v1/events?source=s&wait=true", json={"stream_id": "a", "ts": 1, "x": 1})
    with running(tmp_path) as service:
        assert service.client.get("/v1/queries/q/aggregates").json()["of"] == {"x": numbers(1)}
        service.client.post("/v1/events?source=s&wait=true", json={"stream_id": "a", "ts": 99, "x": 1})
        service.client.post("/v1/events?source=s&wait=true", json={"stream_id": "a", "ts": 999, "x": 3})
        assert [one["of"]["x"]["sum"] for one in told(service.client, "q")] == [1, 3]
