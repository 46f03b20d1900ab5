"""Duplicates and queries that nothing has matched, over HTTP."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.api.conftest import OwnSource


def page(client: httpx.Client, what: str, source: OwnSource, **params: Any) -> dict[str, Any]:
    response = client.get(f"/v1/queries:{what}", params={"source": source.name, **params})
    assert response.status_code == 200, response.text
    return response.json()


def test_groups_of_queries_that_mean_the_same(client: httpx.Client, source: OwnSource) -> None:
    for name, where in (
        ("a", "x > 1 and y < 2"),
        ("b", "x > 3"),
        ("c", "not (x <= 1 or y >= 2)"),
        ("d", {"any": [{"x": {"gt": 3}}]}),
        ("e", "x > 4"),
    ):
        source.register(name, where)
    source.register("f", "x > 4", enabled=False)
    groups = [
        {"canonical": "x > 1 and y < 2", "queries": [source.id("a"), source.id("c")]},
        {"canonical": "x > 3", "queries": [source.id("b"), source.id("d")]},
    ]
    whole = page(client, "duplicates", source)
    assert whole == {"source": source.name, "groups": groups, "next": None}
    first = page(client, "duplicates", source, limit=1)
    assert (first["groups"], first["next"]) == (groups[:1], source.id("a"))
    second = page(client, "duplicates", source, limit=1, after=first["next"])
    assert (second["groups"], second["next"]) == (groups[1:], None)


def test_queries_that_nothing_has_matched_and_since_when(client: httpx.Client, source: OwnSource) -> None:
    for name, where, on in (
        ("a", "x > 1", ["match"]),
        ("b", "x > 100", ["match", "enter"]),
        ("c", "x > 100", ["enter"]),
        ("d", "x > 1", ["enter", "leave"]),
        ("e", "x > 100", ["leave", "match"]),
    ):
        source.register(name, where, on=on)
    found = page(client, "unmatched", source)
    topic = f"events.{source.name}"
    assert found["since"] == [{"topic": topic, "partition": 0, "offset": None, "at_ms": None}]
    assert [one["id"] for one in found["queries"]] == [source.id(name) for name in "abcde"]

    source.send({"stream_id": "v", "x": 5})
    idle = [
        {"id": source.id("b"), "without": "matches"},
        {"id": source.id("c"), "without": "borders"},
        {"id": source.id("e"), "without": "matches"},
    ]
    found = page(client, "unmatched", source)
    assert (found["queries"], found["next"]) == (idle, None)
    assert [(one["topic"], one["offset"]) for one in found["since"]] == [(topic, 0)]
    assert isinstance(found["since"][0]["at_ms"], int)
    first = page(client, "unmatched", source, limit=2)
    assert (first["queries"], first["next"]) == (idle[:2], source.id("c"))
    assert page(client, "unmatched", source, limit=2, after=first["next"])["queries"] == idle[2:]


@pytest.mark.parametrize("what", ["duplicates", "unmatched"])
def test_mistakes_are_named(client: httpx.Client, source: OwnSource, what: str) -> None:
    for query, reason, field in (
        ("", "missing_field", "source"),
        ("source=nobody", "unknown_source", "source"),
        (f"source={source.name}&limit=0", "bad_value", "limit"),
        (f"source={source.name}&limit=1000000", "limit", "limit"),
        (f"source={source.name}&tag=a", "unknown_field", "tag"),
    ):
        response = client.get(f"/v1/queries:{what}?{query}")
        assert (response.status_code, response.json()["reason"], response.json()["field"]) == (
            422,
            reason,
            field,
        )
