from __future__ import annotations

import json

import httpx
import pytest

from tests.api.conftest import ATTRIBUTES, OwnSource


def test_a_source_is_created_read_and_listed(client: httpx.Client) -> None:
    made = client.put("/v1/sources/harbour", json={"attributes": {"lat": "number"}, "late": "process"})
    assert made.status_code == 201
    assert made.json()["topic"] == "events.harbour"
    assert made.json()["late"] == "process"
    assert made.json()["active_from"]["command"] >= 0
    places = [(place["topic"], place["partition"]) for place in made.json()["active_from"]["positions"]]
    assert places, "the answer comes once its events are read"
    assert {topic for topic, _ in places} == {"events.harbour"}
    read = client.get("/v1/sources/harbour").json()
    assert read == {name: value for name, value in made.json().items() if name != "active_from"}
    assert read in client.get("/v1/sources").json()["sources"]


def test_the_same_body_again_changes_nothing(client: httpx.Client, source: OwnSource) -> None:
    before = client.put(f"/v1/sources/{source.name}", json={"attributes": ATTRIBUTES})
    after = client.put(f"/v1/sources/{source.name}", json={"attributes": ATTRIBUTES})
    assert (before.status_code, after.status_code) == (200, 200)
    assert before.json()["active_from"]["command"] == after.json()["active_from"]["command"]


def test_deduplication_is_switched_on_and_off(client: httpx.Client, source: OwnSource) -> None:
    path = f"/v1/sources/{source.name}"
    assert client.get(path).json()["dedup"] is None
    on = client.put(path, json={"attributes": ATTRIBUTES, "dedup": {"by": "meta.id"}})
    assert (on.status_code, on.json()["dedup"]) == (200, {"by": "meta.id", "last": 100})
    event = {"stream_id": "s", "x": 1, "meta": {"id": 7}}
    assert source.send(event, event)["refused"] == 1
    answer = source.send(event)
    assert answer["refused"] == 1
    assert [one["value"]["reason"] for one in answer["outputs"]] == ["duplicate"]
    off = client.put(path, json={"attributes": ATTRIBUTES})
    assert off.json()["dedup"] is None
    assert source.send(event, event)["refused"] == 0


def test_attributes_grow_and_keep_their_order(client: httpx.Client, source: OwnSource) -> None:
    grown = client.put(f"/v1/sources/{source.name}", json={"attributes": {"z": "number", **ATTRIBUTES}})
    assert grown.status_code == 200
    assert list(grown.json()["attributes"]) == [*ATTRIBUTES, "z"]
    source.register("q", "z > 1")
    outputs = source.send({"stream_id": "s", "z": 2})["outputs"]
    assert [output["topic"] for output in outputs] == ["matches", "borders"]


def test_what_queries_use_cannot_be_dropped_or_retyped(client: httpx.Client, source: OwnSource) -> None:
    source.register("q", "x > 0 and kind == 'tug'")
    for attributes in ({"y": "number", "kind": "category"}, {**ATTRIBUTES, "kind": "number"}):
        refused = client.put(f"/v1/sources/{source.name}", json={"attributes": attributes})
        assert refused.status_code == 409
        assert refused.json()["reason"] == "in_use"
    dropped = client.put(
        f"/v1/sources/{source.name}", json={"attributes": {"x": "number", "kind": "category"}}
    )
    assert dropped.status_code == 200


def test_a_topic_has_one_source(client: httpx.Client, source: OwnSource) -> None:
    body = {"attributes": ATTRIBUTES, "topic": f"events.{source.name}"}
    refused = client.put("/v1/sources/thief", json=body)
    assert (refused.status_code, refused.json()["field"]) == (409, "topic")


def test_how_queries_are_indexed_is_shown_with_the_reason(client: httpx.Client, source: OwnSource) -> None:
    body = "".join(
        json.dumps({"id": source.id(f"q{n}"), "source": source.name, "where": f"x > {n}", "on": ["match"]})
        + "\n"
        for n in range(2_000)
    )
    client.post("/v1/queries:bulk", content=body).raise_for_status()
    source.register("quiet", "y > 0", on=["enter", "leave"])
    view = client.get(f"/v1/sources/{source.name}/index").json()
    assert view["source"] == source.name
    filed = [part for part in view["matching"] if part["structure"] != "delta"]
    assert filed and all(part["attributes"] == ["x"] and "boxes" in part["reason"] for part in filed)
    assert sum(part["boxes"] - part["removed"] for part in view["matching"]) == 2_000
    assert [(part["structure"], part["boxes"]) for part in view["quiet"]] == [("delta", 1)]
    gone = client.get("/v1/sources/none/index")
    assert (gone.status_code, gone.json()["reason"]) == (404, "unknown_source")


@pytest.mark.parametrize(
    ("body", "reason", "field"),
    [
        (b"", "syntax", ""),
        (b"[]", "syntax", ""),
        (b'{"attributes": {"x": "number"}, "attributes": {}}', "syntax", "attributes"),
        (b"{}", "missing_field", "attributes"),
        (b'{"attributes": {"x": "int"}}', "bad_value", "attributes.x"),
        (b'{"attributes": {"x": 5}}', "bad_value", "attributes.x"),
        (b'{"attributes": {"x": "number"}, "latte": "reject"}', "unknown_field", "latte"),
        (b'{"attributes": {"x": "number"}, "paths": {"y": "a.b"}}', "unknown_attribute", "paths.y"),
        (b'{"attributes": {"x": "number"}, "stream_ttl": "soon"}', "bad_value", "stream_ttl"),
        (b'{"attributes": {"x": "number"}, "dedup": {"by": "id", "last": 1e3}}', "bad_value", "dedup.last"),
    ],
)
def test_a_bad_source_is_refused_by_field_and_reason(
    client: httpx.Client, body: bytes, reason: str, field: str
) -> None:
    refused = client.put("/v1/sources/bad", content=body)
    assert refused.status_code == 422
    assert (refused.json()["reason"], refused.json()["field"]) == (reason, field)
    assert client.get("/v1/sources/bad").status_code == 404


def test_a_bad_name_is_refused(client: httpx.Client) -> None:
    refused = client.put("/v1/sources/a%20b", json={"attributes": ATTRIBUTES})
    assert (refused.status_code, refused.json()["reason"]) == (422, "bad_id")
