from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.conftest import OwnSource
from tests.api.harness import eventually, running, write_commands


def test_a_query_is_shown_whole_with_what_the_service_says_of_it(
    client: httpx.Client, source: OwnSource
) -> None:
    made = source.register("q", "x > 5 and 1 <= y < 2", tags={"team": "port"})
    assert made["on"] == ["match", "enter", "leave"]
    assert (made["initial"], made["keep"], made["for"], made["select"]) == ("emit", None, None, [])
    assert (made["state"], made["canonical"]) == ("active", "x > 5 and 1 <= y < 2")
    own = {"topic": f"events.{source.name}", "partition": 0, "offset": 0}
    assert own in made["active_from"]["positions"]
    read = client.get(f"/v1/queries/{source.id('q')}")
    assert read.headers["etag"] == f'"{made["etag"]}"'
    assert read.json() == {**made, "active_from": {"command": made["active_from"]["command"]}}


def test_put_creates_then_replaces_the_whole(client: httpx.Client, source: OwnSource) -> None:
    path = f"/v1/queries/{source.id('q')}"
    created = client.put(path, json=source.body("q", tags={"a": "b"}))
    assert created.status_code == 201
    assert created.headers["location"] == path
    again = client.put(path, json=source.body("q", tags={"a": "b"}))
    assert (again.status_code, again.headers["etag"]) == (200, created.headers["etag"])
    replaced = client.put(path, json={"source": source.name, "where": "x > 1"})
    assert replaced.status_code == 200
    assert replaced.headers["etag"] != created.headers["etag"]
    assert replaced.json()["tags"] == {}


def test_post_refuses_a_live_id_also_of_a_disabled_query(client: httpx.Client, source: OwnSource) -> None:
    source.register("q", enabled=False)
    refused = client.post("/v1/queries", json=source.body("q"))
    assert (refused.status_code, refused.json()["reason"]) == (409, "exists")
    client.delete(f"/v1/queries/{source.id('q')}").raise_for_status()
    assert client.post("/v1/queries", json=source.body("q")).status_code == 201


def test_patch_replaces_the_named_fields_only(client: httpx.Client, source: OwnSource) -> None:
    source.register("q", tags={"a": "b"}, select=["x"])
    patched = client.patch(f"/v1/queries/{source.id('q')}", json={"enabled": False, "select": []})
    assert patched.status_code == 200
    assert (patched.json()["state"], patched.json()["select"]) == ("disabled", [])
    assert patched.json()["tags"] == {"a": "b"}


def test_every_control_is_kept_shown_and_exported(client: httpx.Client, source: OwnSource) -> None:
    controls = {"initial": "ignore", "keep": "x > 3", "for": "30s", "cooldown": 60_000, "once": True}
    controls |= {"on": ["enter", "leave", "cross"], "expires_at": "2200-01-01T00:00:00Z"}
    made = source.register("q", "x > 5", **controls)
    shown = controls | {"for": 30_000, "expires_at": 7_258_118_400_000}
    assert {name: made[name] for name in controls} == shown
    id = source.id("q")
    exported = client.get("/v1/queries:export", params={"source": source.name}).text
    assert client.put(f"/v1/queries/{id}", content=exported.strip()).json()["etag"] == made["etag"]
    nothing = {"keep": None, "for": None, "cooldown": None, "once": False, "expires_at": None}
    patched = client.patch(f"/v1/queries/{id}", json=nothing).json()
    assert {name: patched[name] for name in nothing} == nothing


def test_a_query_waits_and_expires_without_an_event(client: httpx.Client, source: OwnSource) -> None:
    source.send({"stream_id": "s", "x": 6})
    source.register("waits", "x > 5", **{"for": 20})
    source.register("ends", "x > 5", expires_at=int(time.time() * 1000) + 300)
    streams = f"/v1/queries/{source.id('waits')}/streams"
    eventually(lambda: client.get(streams).json()["streams"] == ["s"], "the wait is over")
    eventually(lambda: client.get(f"/v1/queries/{source.id('ends')}").status_code == 404, "it has expired")
    assert client.post("/v1/queries", json=source.body("ends")).status_code == 201


def test_delete_frees_the_id(client: httpx.Client, source: OwnSource) -> None:
    source.register("q")
    path = f"/v1/queries/{source.id('q')}"
    assert client.delete(path).status_code == 204
    for method in ("GET", "DELETE", "PATCH"):
        gone = client.request(method, path, content=b"{}" if method == "PATCH" else None)
        assert (gone.status_code, gone.json()["reason"]) == (404, "unknown_id")
    assert client.get(f"{path}/streams").status_code == 404


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE"])
def test_a_change_of_another_version_is_refused(client: httpx.Client, source: OwnSource, method: str) -> None:
    old = source.register("q")["etag"]
    path = f"/v1/queries/{source.id('q')}"
    new = client.patch(path, json={"tags": {"v": "2"}}).json()["etag"]
    body = (
        None
        if method == "DELETE"
        else {"where": "x > 7", **({"source": source.name} if method == "PUT" else {})}
    )
    for stale in (f'"{old}"', f'W/"{new}"', '"junk"', '"'):
        refused = client.request(method, path, json=body, headers={"If-Match": stale})
        assert (refused.status_code, refused.json()["field"]) == (412, "If-Match")
    assert client.get(path).json()["etag"] == new
    changed = client.request(method, path, json=body, headers={"If-Match": f'"{new}"'})
    assert changed.is_success


def test_if_match_star_wants_a_query_that_is_there(client: httpx.Client, source: OwnSource) -> None:
    path = f"/v1/queries/{source.id('q')}"
    body = {"source": source.name, "where": "x > 0"}
    assert client.put(path, json=body, headers={"If-Match": "*"}).status_code == 412
    source.register("q", "x > 1")
    assert client.put(path, json=body, headers={"If-Match": "*"}).status_code == 200


def test_if_none_match_star_wants_a_query_that_is_not_there(client: httpx.Client, source: OwnSource) -> None:
    path = f"/v1/queries/{source.id('q')}"
    headers = {"If-None-Match": "*"}
    for where, status in (("x > 0", 201), ("x > 1", 412)):
        answer = client.put(path, json={"source": source.name, "where": where}, headers=headers)
        assert answer.status_code == status
    assert answer.json()["field"] == "If-None-Match"
    assert client.get(path).json()["canonical"] == "x > 0"
    client.delete(path).raise_for_status()
    body = {"source": source.name, "where": "x > 2"}
    assert client.put(path, json=body, headers=headers).status_code == 201
    for wrong in ({"If-None-Match": '"1"'}, {"If-None-Match": "*", "If-Match": "*"}):
        refused = client.put(path, json=body, headers=wrong)
        assert (refused.status_code, refused.json()["field"]) == (422, "If-None-Match")


def test_a_version_that_the_client_has_is_not_sent_again(client: httpx.Client, source: OwnSource) -> None:
    path, old = f"/v1/queries/{source.id('q')}", source.register("q")["etag"]
    tag = client.patch(path, json={"tags": {"v": "2"}}).headers["etag"]
    for known in (tag, f"W/{tag}", tag.strip('"'), f'"{old}", W/{tag}', "*"):
        same = client.get(path, headers={"If-None-Match": known})
        assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
    for other in (f'"{old}"', f'"0", "{old}"', '"junk"', "", ",", '"*"'):
        sent = client.get(path, headers={"If-None-Match": other})
        assert (sent.status_code, sent.json()["tags"], sent.headers["etag"]) == (200, {"v": "2"}, tag)
    gone = client.get(f"{path}.no", headers={"If-None-Match": "*"})
    assert gone.status_code == 404


def test_several_versions_in_if_match_are_refused(client: httpx.Client, source: OwnSource) -> None:
    source.register("q")
    headers = {"If-Match": '"1", "2"'}
    refused = client.delete(f"/v1/queries/{source.id('q')}", headers=headers)
    assert (refused.status_code, refused.json()["field"]) == (422, "If-Match")


def test_the_source_of_a_query_never_changes(client: httpx.Client, source: OwnSource) -> None:
    source.register("q")
    other = OwnSource(client)
    moved = client.put(f"/v1/queries/{source.id('q')}", json={"source": other.name, "where": "x > 0"})
    assert (moved.status_code, moved.json()["field"]) == (422, "source")


def test_a_change_holds_when_it_is_answered(client: httpx.Client, source: OwnSource) -> None:
    source.send({"stream_id": "in", "x": 5}, {"stream_id": "out", "x": -5})
    source.register("q")
    assert client.get(f"/v1/queries/{source.id('q')}/streams").json()["streams"] == ["in"]
    client.patch(f"/v1/queries/{source.id('q')}", json={"where": "x < 0"}).raise_for_status()
    assert client.get(f"/v1/queries/{source.id('q')}/streams").json()["streams"] == ["out"]


def test_members_come_in_pages_that_hold_each_once(client: httpx.Client, source: OwnSource) -> None:
    source.send(*({"stream_id": f"v{i}", "x": 1} for i in range(7)))
    source.register("q")
    path = f"/v1/queries/{source.id('q')}/streams"
    assert client.get(path).json() == {
        "query": source.id("q"),
        "streams": [f"v{i}" for i in range(7)],
        "next": None,
    }
    first = client.get(path, params={"limit": 3}).json()
    assert (first["streams"], first["next"]) == (["v0", "v1", "v2"], "v2")
    for gone in ("v1", "v4"):
        client.delete(f"/v1/streams/{gone}", params={"source": source.name}).raise_for_status()
    source.send({"stream_id": "v0a", "x": 1}, {"stream_id": "v9", "x": 1}, {"stream_id": "v8", "x": -1})
    rest = client.get(path, params={"after": first["next"], "limit": 4}).json()
    assert (rest["streams"], rest["next"]) == (["v3", "v5", "v6", "v9"], None)


@pytest.mark.parametrize(("limit", "reason"), [("0", "bad_value"), ("many", "bad_value"), ("10001", "limit")])
def test_a_page_of_members_has_a_limit(
    client: httpx.Client, source: OwnSource, limit: str, reason: str
) -> None:
    source.register("q")
    refused = client.get(f"/v1/queries/{source.id('q')}/streams", params={"limit": limit})
    assert (refused.status_code, refused.json()["field"], refused.json()["reason"]) == (422, "limit", reason)


def test_without_a_limit_a_page_of_members_has_max_page(tmp_path: Path) -> None:
    with running(tmp_path, max_page=2) as service:
        own = OwnSource(service.client)
        own.send(*({"stream_id": f"v{i}", "x": 1} for i in range(3)))
        own.register("q")
        page = service.client.get(f"/v1/queries/{own.id('q')}/streams").json()
    assert (page["streams"], page["next"]) == (["v0", "v1"], "v1")


@pytest.mark.parametrize(
    ("change", "reason", "field"),
    [
        ({"where": "speed > 5"}, "unknown_attribute", "where"),
        ({"where": "x >"}, "syntax", "where"),
        ({"where": "x > 5 and x < 3"}, "empty_range", "where"),
        ({"where": 5}, "syntax", "where"),
        ({"where": {"any": []}}, "syntax", "where.any"),
        ({"where": {"any": [{"x": {"gte": 5, "lt": 5}}]}}, "empty_range", "where.any[0].x"),
        ({"where": {"any": [{"kind": {"gte": "a"}}]}}, "bad_operator", "where.any[0].kind.gte"),
        ({"on": ["often"]}, "bad_value", "on[0]"),
        ({"on": "match"}, "bad_value", "on"),
        ({"keep": "x > 7"}, "keep_smaller", "keep"),
        ({"for": "soon"}, "bad_value", "for"),
        ({"cooldown": 0}, "bad_value", "cooldown"),
        ({"once": "yes"}, "bad_value", "once"),
        ({"tags": {"team": 5}}, "bad_value", "tags.team"),
        ({"enabled": "yes"}, "bad_value", "enabled"),
        ({"select": ["nope"]}, "unknown_attribute", "select[0]"),
        ({"source": "nowhere"}, "unknown_source", "source"),
        ({"id": "a b"}, "bad_id", "id"),
        ({"id": 7}, "bad_id", "id"),
        ({"weather": "x > 0"}, "unknown_field", "weather"),
        ({"expires_at": 1}, "past", "expires_at"),
    ],
)
def test_a_bad_query_is_refused_by_field_and_reason(
    client: httpx.Client, source: OwnSource, change: dict[str, Any], reason: str, field: str
) -> None:
    body = {**source.body("q"), **change}
    for method, path in (("POST", "/v1/queries"), ("POST", "/v1/validate")):
        refused = client.request(method, path, json=body)
        assert refused.status_code == 422, refused.text
        assert (refused.json()["reason"], refused.json()["field"]) == (reason, field)
    assert client.get(f"/v1/queries/{source.id('q')}").status_code == 404


def test_exact_numbers_and_double_keys_are_told(client: httpx.Client, source: OwnSource) -> None:
    head = f'{{"id": "{source.id("q")}", "source": "{source.name}", "where": '
    for where, reason, field in (
        ('{"any": [{"x": {"gte": 9007199254740993}}]}}', "inexact", "where.any[0].x.gte"),
        ('{"any": [{"x": {"gte": 1e999}}]}}', "not_finite", "where.any[0].x.gte"),
        ('{"any": [{"x": {"gt": 1}}, {"x": {"in": [1, -Infinity]}}]}}', "not_finite", "where.any[1].x.in[1]"),
        ('{"any": [{"x": {"gte": NaN}}]}}', "not_finite", "where.any[0].x.gte"),
        ('"x > 0", "where": "x > 1"}', "syntax", "where"),
        ('{"any": [{"x": {"gte": 0, "gte": 1}}]}}', "syntax", "gte"),
        ('"x > 0"', "syntax", ""),
        ('"x > 0", "tags": {"a": "\\ud800"}}', "syntax", ""),
    ):
        refused = client.post("/v1/queries", content=(head + where).encode())
        assert (refused.status_code, refused.json()["reason"]) == (422, reason)
        assert refused.json()["field"] == field
    made = client.post(
        "/v1/queries", content=(head + '{"any": [{"x": {"gte": 9007199254740993.0}}]}}').encode()
    )
    assert made.status_code == 201


def test_integers_beyond_64_bits_come_back_as_they_went(client: httpx.Client, source: OwnSource) -> None:
    source.register("q", {"any": [{"x": {"gte": 2**80}}]})
    assert client.get(f"/v1/queries/{source.id('q')}").json()["where"] == {"any": [{"x": {"gte": 2**80}}]}


@pytest.mark.parametrize(
    "id",
    [
        "%00",
        "%2e%2e",
        "a%20b",
        "%F0%9F%9A%A2",
        "x" * 201,
        "%ff%fe",
        "'; drop table",
        "%22quotes%22",
        "a%0d%0ab",
    ],
)
def test_absurd_ids_are_refused_or_unknown(client: httpx.Client, source: OwnSource, id: str) -> None:
    put = client.put(f"/v1/queries/{id}", json={"source": source.name, "where": "x > 0"})
    assert put.status_code in (404, 405, 422)
    assert client.get(f"/v1/queries/{id}").status_code in (404, 405)


def test_a_slash_belongs_to_no_id(client: httpx.Client, source: OwnSource) -> None:
    body = {"source": source.name, "where": "x > 0"}
    assert client.put("/v1/queries/a%2Fb", json=body).status_code == 404


def test_validate_shows_what_a_condition_means(client: httpx.Client, source: OwnSource) -> None:
    body = {"source": source.name, "where": "(x > 0 or y > 0) and kind != 'tug'"}
    found = client.post("/v1/validate", json=body).json()
    assert found["boxes"] == 2
    again = client.post("/v1/validate", json={**body, "where": found["where"]}).json()
    assert again == found
    assert client.post("/v1/validate", json={**body, "where": found["canonical"]}).json() == found


def test_a_stricter_limit_leaves_what_is_registered_and_what_is_remembered(tmp_path: Path) -> None:
    queries = {
        "two": {"where": "x < 0 or x > 200"},
        "many": {"where": "x < 0 or x > 70"},
        "kept": {"where": "x > 80", "keep": "x > 70"},
        "once": {"where": "x > 80", "once": True},
        "shy": {"where": "x > 70", "initial": "ignore"},
    }
    with running(tmp_path) as service:
        client = service.client
        client.put("/v1/sources/s", json={"attributes": {"x": "number"}}).raise_for_status()
        for id, body in queries.items():
            client.put(f"/v1/queries/{id}", json={"source": "s", **body}).raise_for_status()
        for x in (81, 60, 81, 75):
            client.post("/v1/events?source=s&wait=true", json={"stream_id": "m", "x": x}).raise_for_status()
        before = client.get("/v1/streams/m?source=s").json()
        assert before["inside"] == ["kept", "many", "shy"]
    with running(tmp_path, max_disjuncts=1) as service:
        client = service.client
        assert client.get("/v1/streams/m?source=s").json() == before, "not a record was written"
        states = {one["id"]: one["state"] for one in client.get("/v1/queries").json()["queries"]}
        assert states == dict.fromkeys(queries, "active")
        refused = client.put("/v1/queries/new", json={"source": "s", "where": "x < 0 or x > 200"})
        assert (refused.status_code, refused.json()["reason"]) == (422, "limit")
        assert "more than 1 disjuncts" in refused.json()["detail"]


def test_a_stricter_limit_of_vertices_leaves_what_is_registered(tmp_path: Path) -> None:
    body = {"source": "s", "where": "(lon, lat) in polygon([(0, 0), (4, 0), (4, 4), (1, 3)])"}
    event = {"stream_id": "m", "lon": 3, "lat": 2}
    with running(tmp_path) as service:
        attributes = {"lon": "number", "lat": "number"}
        service.client.put("/v1/sources/s", json={"attributes": attributes}).raise_for_status()
        service.client.put("/v1/queries/q", json=body).raise_for_status()
        service.client.post("/v1/events?source=s&wait=true", json=event).raise_for_status()
    with running(tmp_path, max_vertices=4) as service:
        assert service.client.get("/v1/queries/q").json()["state"] == "active"
        assert service.client.get("/v1/streams/m?source=s").json()["inside"] == ["q"]
        for asked in ("PUT", "/v1/queries/new"), ("POST", "/v1/validate"):
            refused = service.client.request(*asked, json=body)
            assert (refused.status_code, refused.json()["reason"]) == (422, "limit")
            assert "max_vertices" in refused.json()["detail"]


def source_entry(*attributes: str) -> dict[str, Any]:
    return {"op": "source", "name": "s", "source": {"attributes": dict.fromkeys(attributes, "number")}}


def query_entry(id: str, **fields: Any) -> dict[str, Any]:
    return {"op": "query", "id": id, "query": {"id": id, "source": "s", "where": "y > 0", **fields}}


def test_a_quarantined_query_is_there_for_every_request(tmp_path: Path) -> None:
    aggregates = {"aggregates": {"every": 1_000, "of": ["y"]}}
    write_commands(
        tmp_path,
        source_entry("x", "y"),
        *(query_entry(id, **aggregates) for id in ("q", "r")),
        source_entry("x"),
    )
    with running(tmp_path) as service:
        client, path = service.client, "/v1/queries/q"
        client.post("/v1/events?source=s&wait=true", json={"stream_id": "v", "x": 1}).raise_for_status()
        found = client.get(path)
        assert found.json()["state"] == "quarantined"
        assert found.headers["etag"] == '"{}"'.format(found.json()["etag"])
        assert client.get(path, headers={"If-None-Match": found.headers["etag"]}).status_code == 304
        nobody = {"query": "q", "streams": [], "next": None}
        assert client.get(f"{path}/streams").json() == nobody

        event = {"stream_id": "v", "x": 1}
        for refused, field in (
            (client.patch(path, json={"where": "x > 0"}), "id"),
            (client.patch(path, json={"where": "x > 0"}, headers={"If-Match": "*"}), "id"),
            (client.get(f"{path}/aggregates"), "id"),
            (client.post("/v1/explain", json={"query": "q", "event": event}), "query"),
            (client.get("/v1/streams/v/trace?source=s&query=q"), "query"),
        ):
            problem = refused.json()
            assert (refused.status_code, problem["reason"], problem["field"]) == (409, "quarantined", field)
            assert problem["detail"] == (
                "query 'q' is quarantined; put it anew as a whole, or delete it"
                " (source 's' has changed 'y' since; put the query anew)"
            )

        body = {"source": "s", "where": "x > 0"}
        for stale in ('"0"', '"2"', f"W/{found.headers['etag']}"):
            refused = client.put(path, json=body, headers={"If-Match": stale})
            assert (refused.status_code, refused.json()["field"]) == (412, "If-Match")
            assert client.delete(path, headers={"If-Match": stale}).status_code == 412
        assert client.put(path, json=body, headers={"If-None-Match": "*"}).status_code == 412
        put = client.put(path, json=body, headers={"If-Match": found.headers["etag"]})
        assert put.json()["state"] == "active"
        assert client.get(f"{path}/streams").json()["streams"] == ["v"]
        assert client.delete("/v1/queries/r", headers={"If-Match": "*"}).status_code == 204
        assert client.get("/v1/queries/r").status_code == 404


@pytest.mark.parametrize("version", [True, False], ids=["version", "any"])
def test_if_match_holds_for_a_quarantined_query(tmp_path: Path, version: bool) -> None:
    write_commands(tmp_path, source_entry("x"), *(query_entry(id) for id in ("q", "r")))
    with running(tmp_path) as service:
        client = service.client
        tags = {id: client.get(f"/v1/queries/{id}").headers["etag"] if version else "*" for id in ("q", "r")}
        deleted = client.delete("/v1/queries/q", headers={"If-Match": tags["q"]})
        put = client.put(
            "/v1/queries/r", json={"source": "s", "where": "x > 0"}, headers={"If-Match": tags["r"]}
        )
        assert deleted.status_code == 204
        assert put.status_code == 200  # it was there
