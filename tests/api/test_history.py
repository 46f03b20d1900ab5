"""The history of sources and queries over HTTP."""

from __future__ import annotations

import time
from pathlib import Path

import httpx

from tests.api.conftest import OwnSource
from tests.api.harness import history, running, write_commands


def test_every_change_of_a_query_with_who_and_when(client: httpx.Client, source: OwnSource) -> None:
    begun = time.time_ns() // 1_000_000
    path = f"/v1/queries/{source.id('q')}"
    client.put(path, json=source.body("q", "x > 1"), headers={"X-Actor": "ana"}).raise_for_status()
    client.put(path, json=source.body("q", "x > 1"), headers={"X-Actor": "bob"}).raise_for_status()
    client.patch(path, json={"where": "x > 2", "tags": {"a": "b"}}).raise_for_status()
    client.patch(path, json={"enabled": False}, headers={"X-Actor": "cleo"}).raise_for_status()
    client.patch(path, json={"enabled": True}).raise_for_status()
    source.register("other")
    client.delete(path).raise_for_status()

    found = history(client, query=source.id("q"))
    assert [(entry["what"], entry["by"], entry["changed"]) for entry in found] == [
        ("written", "ana", None),
        ("changed", None, ["where", "tags"]),
        ("disabled", "cleo", ["enabled"]),
        ("enabled", None, ["enabled"]),
        ("deleted", None, None),
    ], "what changed nothing is not there"
    assert found[1]["body"]["where"] == "x > 2"
    assert found[-1]["body"] is None
    assert all(begun <= entry["at"] <= time.time_ns() // 1_000_000 for entry in found)
    assert [entry["command"] for entry in found] == sorted({entry["command"] for entry in found})


def test_the_history_of_a_quarantined_query_has_what_its_source_did(tmp_path: Path) -> None:
    wide, narrow = ({"attributes": dict.fromkeys(names, "number")} for names in ("xy", "x"))
    with running(tmp_path) as service:
        service.client.put("/v1/sources/s", json=wide).raise_for_status()
        for id, where in (("q", "y > 0"), ("r", "x > 0")):
            body = {"source": "s", "where": where}
            service.client.put(f"/v1/queries/{id}", json=body).raise_for_status()
    write_commands(tmp_path, {"op": "source", "name": "s", "source": narrow})
    with running(tmp_path) as service:
        found = [(entry["query"], entry["source"]) for entry in history(service.client, query="q")]
        assert found == [("q", None), (None, "s")]
        assert [entry["query"] for entry in history(service.client, query="r")] == ["r"]
        service.client.put("/v1/queries/q", json={"source": "s", "where": "x > 0"}).raise_for_status()
        assert [entry["query"] for entry in history(service.client, query="q")] == ["q", "q"]


def test_pages_go_through_everything_once(client: httpx.Client, source: OwnSource) -> None:
    for number in range(5):
        source.register(f"q{number}")
    (mine,) = history(client, source=source.name)
    assert (mine["source"], mine["query"]) == (source.name, None)
    whole = history(client, after=mine["command"])
    assert [entry["query"] for entry in whole] == [None, *(source.id(f"q{number}") for number in range(5))]
    assert history(client, after=mine["command"], limit=2) == whole


def test_a_page_ends_at_the_bytes_of_an_answer_and_so_does_each_look(tmp_path: Path) -> None:
    with running(tmp_path, max_answer_bytes=2_000) as service:
        source = OwnSource(service.client)
        for number in range(7):
            source.register(f"q{number}", f"kind == '{'k' * 800}'")
        pages, after = [], 0
        while True:
            page = service.client.get("/v1/history", params={"after": after}).json()
            pages.append([entry["query"] for entry in page["entries"]])
            if page["next"] == after:
                break
            after = page["next"]
        assert [id for page in pages for id in page] == [None, *(source.id(f"q{i}") for i in range(7))]
        assert len(pages) > 3
        (last,) = history(service.client, query=source.id("q6"))
        assert service.client.get("/v1/history", params={"query": source.id("q6")}).json()["entries"] == [
            last
        ]


def test_what_is_refused(client: httpx.Client) -> None:
    refused = client.get("/v1/history", params={"limit": 10**9})
    assert (refused.status_code, refused.json()["reason"], refused.json()["field"]) == (422, "limit", "limit")
    assert client.get("/v1/history", params={"after": -1}).status_code == 422
    long = client.get("/v1/history", headers={"X-Actor": "a" * 201})
    assert (long.status_code, long.json()["field"]) == (422, "X-Actor")
