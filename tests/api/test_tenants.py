"""Tenants over HTTP: each has ids, versions, collections and records of its own, and sees nobody else's.

The walk calls every operation of the OpenAPI document as one tenant, and looks through every byte that it
answers for a mark that all names of the others have. What cannot be asked for without naming it is asked for
by a name that somebody has, and by one that nobody has: there must be no difference.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from service.api.access import OF_ALL, ROLES
from service.keys import Role
from service.log.topics import DEAD_LETTER, OUTPUTS
from tests.api.harness import TIMEOUT_S, Running, running
from tests.api.test_access import add_key

MARK = "secret"
"""In every name of another tenant than the one that looks: ids, tags, collections, the tenant, its keys."""

ID = f"{MARK}-q"
EVENTS = [
    {"stream_id": "v", "ts": 5, "x": 1},
    {"stream_id": "v", "ts": 6, "x": -1},
    {"stream_id": "w", "x": 2},
]
ZONES = "id,x.gt\na,0\nb,5\n"

Asked = tuple[str, dict[str, Any]]


class Tenants(NamedTuple):
    """``mine``: an administrator of the tenant that looks; ``theirs``: of another, and of the default one."""

    service: Running
    mine: httpx.Client
    theirs: tuple[httpx.Client, httpx.Client]


def furnish(client: httpx.Client, prefix: str) -> None:
    """Some of everything that a tenant can have."""

    def put(id: str, where: str = "x > 0", **fields: Any) -> None:
        body = {"source": "s", "where": where, "tags": {prefix: prefix}, **fields}
        client.put(f"/v1/queries/{prefix}-{id}", json=body).raise_for_status()

    put("q", select=["x"], aggregates={"every": 1, "of": ["x"]})
    put("twin")
    put("off", enabled=False)
    put("quiet", on=["enter", "leave"], keep="x > -1", **{"for": None})
    put("idle", "x > 1e9")
    put("idle-too", "x > 1e9", on=["enter"])
    put(
        "shape",
        {"any": [{"in": {"circle": {"lon": 0, "lat": 0, "radius_m": 500_000}, "lon": "x", "lat": "y"}}]},
    )
    put("gone")
    client.delete(f"/v1/queries/{prefix}-gone").raise_for_status()
    client.put(
        f"/v1/collections/{prefix}-zones?source=s", content=ZONES, headers={"Content-Type": "text/csv"}
    ).raise_for_status()


@pytest.fixture(scope="module")
def tenants(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tenants]:
    folder = tmp_path_factory.mktemp("tenants")
    file = folder / "keys.toml"
    owner = add_key(file, f"{MARK}-operator", Role.ADMIN)
    other = add_key(file, f"{MARK}-writer", Role.ADMIN, tenant=f"{MARK}-tenant")
    mine = add_key(file, "me", Role.ADMIN, tenant="mine")
    with running(folder, keys_file=str(file)) as service:
        tenants = Tenants(service, service.with_key(mine), (service.with_key(owner), service.with_key(other)))
        source = {"attributes": {"x": "number", "y": "number"}}
        tenants.theirs[0].put("/v1/sources/s", json=source).raise_for_status()
        for client in tenants.theirs:
            furnish(client, MARK)
        furnish(tenants.mine, "own")
        sent = tenants.mine.post("/v1/events?source=s&wait=true", json=EVENTS)
        assert sent.status_code == 200
        yield tenants


# ---- the walk


WHOLE = {"source": "s", "where": "x > 0"}
CSV = {"Content-Type": "text/csv"}
WALK: dict[tuple[str, str], list[Asked]] = {
    ("GET", "/healthz"): [("/healthz", {})],
    ("GET", "/readyz"): [("/readyz", {})],
    ("GET", "/metrics"): [("/metrics", {})],
    ("PUT", "/v1/sources/{name}"): [("/v1/sources/s", {"json": {"attributes": {"z": "number"}}})],
    ("GET", "/v1/sources/{name}"): [("/v1/sources/s", {})],
    ("GET", "/v1/sources/{name}/index"): [("/v1/sources/s/index", {})],
    ("GET", "/v1/sources"): [("/v1/sources", {})],
    ("POST", "/v1/queries:bulk"): [
        ("/v1/queries:bulk", {"content": json.dumps({"id": "own-bulk", **WHOLE})})
    ],
    ("GET", "/v1/queries:export"): [("/v1/queries:export", {}), ("/v1/queries:export?source=s", {})],
    ("GET", "/v1/queries:duplicates"): [("/v1/queries:duplicates?source=s", {})],
    ("GET", "/v1/queries:unmatched"): [("/v1/queries:unmatched?source=s", {})],
    ("GET", "/v1/queries"): [
        ("/v1/queries", {}),
        ("/v1/queries?limit=1", {}),
        ("/v1/queries?after=a&state=disabled", {}),
        ("/v1/queries?state=quarantined", {}),
        ("/v1/queries?source=s&limit=10000", {}),
    ],
    ("POST", "/v1/queries"): [("/v1/queries", {"json": {"id": "own-new", **WHOLE}})],
    ("PUT", "/v1/queries/{id}"): [("/v1/queries/own-put", {"json": WHOLE})],
    ("PATCH", "/v1/queries/{id}"): [("/v1/queries/own-q", {"json": {"tags": {}}})],
    ("DELETE", "/v1/queries/{id}"): [("/v1/queries/own-twin", {})],
    ("GET", "/v1/queries/{id}"): [("/v1/queries/own-q", {})],
    ("GET", "/v1/queries/{id}/streams"): [("/v1/queries/own-q/streams", {})],
    ("GET", "/v1/queries/{id}/aggregates"): [("/v1/queries/own-q/aggregates", {})],
    ("PUT", "/v1/collections/{name}"): [
        ("/v1/collections/own-zones?source=s", {"content": ZONES, "headers": CSV})
    ],
    ("GET", "/v1/collections/{name}"): [("/v1/collections/own-zones", {})],
    ("GET", "/v1/collections"): [("/v1/collections", {})],
    ("DELETE", "/v1/collections/{name}"): [("/v1/collections/own-zones", {})],
    ("POST", "/v1/validate"): [("/v1/validate", {"json": WHOLE})],
    ("POST", "/v1/explain"): [
        ("/v1/explain", {"json": {"query": "own-q", "stream_id": "w"}}),
        ("/v1/explain", {"json": {"query": "own-q", "event": EVENTS[0]}}),
        ("/v1/explain", {"json": {"query": WHOLE, "stream_id": "w"}}),
    ],
    ("POST", "/v1/match"): [("/v1/match?source=s", {"json": EVENTS})],
    ("POST", "/v1/events"): [
        ("/v1/events?source=s&wait=true", {"json": EVENTS}),
        ("/v1/events?source=s&wait=true", {"json": [{"stream_id": "u", "x": 1}, {"x": 1}]}),
        ("/v1/events?source=s", {"json": EVENTS}),
    ],
    ("GET", "/v1/streams/{id}/trace"): [("/v1/streams/v/trace?source=s&query=own-q", {})],
    ("GET", "/v1/streams/{id}/safe-region"): [("/v1/streams/v/safe-region?source=s", {})],
    ("GET", "/v1/streams/{id}"): [("/v1/streams/v?source=s", {}), ("/v1/streams/w?source=s", {})],
    ("DELETE", "/v1/streams/{id}"): [("/v1/streams/v?source=s", {})],
    ("GET", "/v1/live"): [],  # has no end: see below
    ("GET", "/v1/history"): [("/v1/history", {}), ("/v1/history?source=s", {})],
    ("GET", "/v1/topics/{topic}"): [
        *((f"/v1/topics/{topic}", {}) for topic in OUTPUTS),
        *((f"/v1/topics/{topic}?after=-100", {}) for topic in OUTPUTS),
    ],
    ("GET", "/v1/schemas/{name}"): [(f"/v1/schemas/{topic}", {}) for topic in OUTPUTS],
}


def test_the_walk_is_of_every_operation(tenants: Tenants) -> None:
    paths = tenants.service.contract.document["paths"]
    assert (
        {(m.upper(), path) for path, methods in paths.items() for m in methods} == WALK.keys() == ROLES.keys()
    )


@pytest.mark.parametrize("operation", WALK, ids=" ".join)
def test_no_byte_of_an_answer_names_what_is_anothers(tenants: Tenants, operation: tuple[str, str]) -> None:
    for path, request in WALK[operation]:
        answer = tenants.mine.request(operation[0], path, **request)
        assert answer.status_code < 400 or operation in OF_ALL or DEAD_LETTER in path, answer.text
        said = str(answer.headers).encode() + answer.content
        assert MARK.encode() not in said


def test_the_walk_would_see_it(tenants: Tenants) -> None:
    """The same of those whose names they are: nearly all answers have the mark."""
    silent = {
        *(("GET", path) for path in ("/healthz", "/readyz", "/v1/sources", "/v1/sources/{name}")),
        *(("GET", "/v1/sources/{name}/index"), ("GET", "/v1/schemas/{name}"), ("GET", "/v1/live")),
        *(("POST", "/v1/validate"), ("GET", "/v1/streams/{id}/safe-region")),
    }
    operator = tenants.theirs[0]
    for operation in WALK:
        if operation[0] == "GET" or "match" in operation[1] or "explain" in operation[1]:
            answers = [
                operator.request(
                    operation[0],
                    path.replace("own", MARK),
                    **json.loads(json.dumps(request).replace("own", MARK)),
                ).content
                for path, request in WALK[operation]
            ]
            assert (MARK.encode() in b"".join(answers)) == (operation not in silent), operation


def listened(client: httpx.Client, send: httpx.Client, **asked: Any) -> str:
    """What somebody hears who listens until a record of the last event has come, which is about ``last``."""
    params = {"source": "s", "topic": ["borders", "matches", "aggregates"], **asked}
    heard = ""
    plain = httpx.Client(base_url=client.base_url, headers=client.headers, timeout=60)
    with plain, plain.stream("GET", "/v1/live", params=params) as response:
        assert response.status_code == 200, response.read()
        for line in response.iter_lines():
            heard += line + "\n"
            if line == "event: live":
                event = [
                    {"stream_id": "v", "x": 3},
                    {"stream_id": "v", "x": -3},
                    {"stream_id": "last", "x": 3},
                ]
                send.post("/v1/events?source=s&wait=true", json=event).raise_for_status()
                send.post(
                    "/v1/events?source=s&wait=true", json={"stream_id": "last", "x": -3}
                ).raise_for_status()
            if re.search(r'"stream_id":"last".*"leave":\["', line):
                return heard
    raise AssertionError("it ended")


def test_who_listens_hears_of_its_own(tenants: Tenants) -> None:
    everybody_sends = tenants.theirs[1]
    heard = listened(tenants.mine, everybody_sends)
    assert MARK not in heard
    assert all(f"event: {topic}" in heard for topic in ("snapshot", "borders", "matches", "aggregates"))
    assert MARK in listened(tenants.theirs[0], everybody_sends)


def test_who_listens_does_not_notice_what_others_are_told(tenants: Tenants) -> None:
    """Not even that there was something: "x > 0" of the others holds, and nothing of ours."""
    params = {"source": "s", "query": "own-idle-too"}
    plain = httpx.Client(base_url=tenants.mine.base_url, headers=tenants.mine.headers, timeout=60)
    heard: list[str] = []
    with plain, plain.stream("GET", "/v1/live", params=params) as response:
        for line in response.iter_lines():
            heard.append(line)
            if line == "event: live":
                for x in (7, -7, 7, -7, 2e9):
                    tenants.theirs[1].post(
                        "/v1/events?source=s&wait=true", json={"stream_id": "unnoticed", "x": x}
                    ).raise_for_status()
            if "unnoticed" in line:
                break
    assert "unnoticed" in "".join(heard)
    assert [line for line in heard if line.startswith(":")] == []


# ---- asking by name


NOBODYS = "n" * len(MARK)
NAMED: list[tuple[str, str, dict[str, Any]]] = [
    ("GET", "/v1/queries/NAME", {}),
    ("PATCH", "/v1/queries/NAME", {"json": {"enabled": False}}),
    ("DELETE", "/v1/queries/NAME", {}),
    ("GET", "/v1/queries/NAME/streams", {}),
    ("GET", "/v1/queries/NAME/aggregates", {}),
    ("GET", "/v1/collections/NAME", {}),
    ("DELETE", "/v1/collections/NAME", {}),
    ("GET", "/v1/history?query=NAME", {}),
    ("GET", "/v1/history?collection=NAME", {}),
    ("GET", "/v1/streams/v/trace?source=s&query=NAME", {}),
    ("GET", "/v1/live?source=s&query=NAME", {}),
    ("GET", "/v1/queries?tag=NAME:NAME", {}),
    ("POST", "/v1/explain", {"json": {"query": "NAME", "stream_id": "v"}}),
    ("POST", "/v1/explain", {"json": {"query": "NAME", "event": {"stream_id": "v", "x": 1}}}),
]
NAMES = [ID, f"{MARK}-zones", f"{MARK}-zones:a", f"{MARK}-tenant/{ID}", f"default/{ID}", f"/{ID}", MARK]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("asked", NAMED, ids=lambda asked: f"{asked[0]} {asked[1]}")
def test_what_is_anothers_is_not_there(tenants: Tenants, asked: tuple[str, str, Any], name: str) -> None:
    method, path, request = asked
    answers = []
    for one in (name, name.replace(MARK, NOBODYS)):
        quoted = one.replace("/", "%2F") if "?" not in path else one
        sent = json.loads(json.dumps(request).replace("NAME", one))
        answers.append(tenants.mine.request(method, path.replace("NAME", quoted), **sent))
    theirs, nobodys = answers
    assert theirs.status_code == nobodys.status_code
    assert theirs.text.replace(MARK, NOBODYS) == nobodys.text


def test_the_default_tenant_does_not_reach_others_by_their_keys(tenants: Tenants) -> None:
    """Inside a query is known as ``tenant/id``; a client who says so asks for an id that is none."""
    operator, key = tenants.theirs[0], "mine/own-q"
    for method, path, request in NAMED:
        if "NAME" in path and "?" not in path:
            continue
        answer = operator.request(
            method, path.replace("NAME", key), **json.loads(json.dumps(request).replace("NAME", key))
        )
        assert answer.status_code in (200, 404, 422)
        assert "canonical" not in answer.text and "own-q" not in answer.text.replace(key, "")
    assert operator.put("/v1/queries/x", json={"id": key, **WHOLE}).status_code == 422


# ---- the same names


def test_ids_versions_and_collections_are_a_tenants_own(tenants: Tenants) -> None:
    mine, (operator, other) = tenants.mine, tenants.theirs
    made = [client.post("/v1/queries", json={"id": "same", **WHOLE}) for client in (mine, operator, other)]
    assert [one.status_code for one in made] == [201] * 3
    assert {one.headers["location"] for one in made} == {"/v1/queries/same"}
    tags = [one.headers["etag"] for one in made]
    assert len(set(tags)) == 3
    changed = mine.patch("/v1/queries/same", json={"where": "x > 7"}, headers={"If-Match": tags[1]})
    assert changed.status_code == 412
    assert mine.patch("/v1/queries/same", json={"where": "x > 7"}, headers={"If-Match": tags[0]}).is_success
    assert mine.delete("/v1/queries/same").status_code == 204
    assert operator.get("/v1/queries/same").json()["where"] == "x > 0"
    matched = {client: client.post("/v1/match?source=s", json=EVENTS[0]).json() for client in (mine, other)}
    assert "same" in matched[other]["matches"][0] and "same" not in matched[mine]["matches"][0]

    for client, table in ((mine, "id,x.gt\na,1\n"), (other, "id,x.gt\na,2\nb,3\n")):
        put = client.put("/v1/collections/area?source=s", content=table, headers=CSV)
        assert put.status_code == 201 and put.json()["name"] == "area"
    put = mine.put("/v1/collections/area?source=s", content="id,x.gt\na,1\nc,1\n", headers=CSV)
    assert (put.json()["created"], put.json()["unchanged"], put.json()["deleted"]) == (1, 1, 0)
    tagged = other.get("/v1/queries?tag=collection:area").json()["queries"]
    assert [one["id"] for one in tagged] == ["area:a", "area:b"]
    assert {one["tags"]["collection"] for one in tagged} == {"area"}
    assert mine.delete("/v1/collections/area").status_code == 204
    assert other.get("/v1/collections/area").json()["members"] == 2
    moved = other.patch("/v1/queries/area:a", json={"tags": {}}).json()["active_from"]["command"]
    view = other.get("/v1/collections/area").json()
    assert (view["members"], view["etag"]) == (1, str(moved))
    entries = other.get("/v1/history?collection=area").json()["entries"]
    assert [entry["collection"] for entry in entries] == ["area"]


def test_how_the_index_is_made_up_is_the_default_tenants(tenants: Tenants) -> None:
    """It counts the boxes of everybody."""
    parts = []
    for client in (tenants.theirs[0], tenants.mine):
        client.put("/v1/queries/indexed", json=WHOLE).raise_for_status()
        asked = {"query": "indexed", "event": EVENTS[0]}
        explained = client.post("/v1/explain", json=asked).raise_for_status().json()
        assert explained["holds"]
        parts.append(explained["index"])
    assert parts[0] and parts[1] == []


def test_what_one_tenant_exports_another_imports(tenants: Tenants) -> None:
    operator, mine = tenants.theirs[0], tenants.mine
    operator.put("/v1/queries/to-copy", json={**WHOLE, "tags": {"copy": ""}}).raise_for_status()
    exported = operator.get("/v1/queries:export?tag=copy").content
    assert mine.post("/v1/queries:bulk", content=exported).json()["created"] == 1
    assert mine.get("/v1/queries:export?tag=copy").content == exported


def test_numbers_of_a_stream_are_a_tenants_own(tenants: Tenants) -> None:
    mine, other = tenants.mine, tenants.theirs[1]
    for n, client in ((1, mine), (3, other)):
        for i in range(n):
            client.put(
                f"/v1/queries/n{i}", json={"source": "s", "where": f"x > {100 + i}"}
            ).raise_for_status()
    for x in range(100, 105):
        other.post("/v1/events?source=s&wait=true", json={"stream_id": "n", "x": x}).raise_for_status()
    views = [client.get("/v1/streams/n?source=s").json() for client in (mine, other)]
    inside = [[id for id in view["inside"] if id.startswith("n")] for view in views]
    assert inside == [["n0"], ["n0", "n1", "n2"]]
    for client, view in zip((mine, other), views, strict=True):
        records = client.get("/v1/topics/borders").json()["records"]
        numbers = [one["value"]["seq"] for one in records if one["key"] == "n"]
        assert numbers == list(range(1, view["seq"] + 1))


def test_records_are_numbered_as_if_there_were_no_others(tenants: Tenants) -> None:
    """Else an event that others' queries match would show in the numbers of one's own."""
    mine, (operator, other) = tenants.mine, tenants.theirs
    mine.put("/v1/queries/always", json={"source": "s", "where": "x < 1e6"}).raise_for_status()
    other.put("/v1/queries/far", json={"source": "s", "where": "x > 5000"}).raise_for_status()
    before = mine.get("/v1/topics/matches?after=-1").json()
    for x in (5001, 4999, 5002):
        mine.post("/v1/events?source=s&wait=true", json={"stream_id": "far", "x": x}).raise_for_status()
    after = mine.get(f"/v1/topics/matches?after={before['next']}").json()
    numbers = [record["offset"] for record in after["records"]]
    assert numbers == list(range(before["next"], after["next"]))
    values = [record["value"]["attrs"] for record in after["records"] if record["value"]["attrs"]]
    assert values == [{"x": 5001}, {"x": 4999}, {"x": 5002}] and len(numbers) % 3 == 0
    whole = mine.get("/v1/topics/matches").json()
    assert [record["offset"] for record in whole["records"]] == list(range(whole["next"]))
    assert mine.get("/v1/topics/matches?after=1&limit=2").json()["records"] == whole["records"][1:3]
    assert mine.get(f"/v1/topics/matches?after={after['next']}").json() == {
        "records": [],
        "next": after["next"],
    }
    assert operator.get("/v1/topics/matches").json()["next"] > whole["next"]


def test_who_waits_for_events_does_not_notice_that_others_are_told_more_than_an_answer(
    tmp_path: Path,
) -> None:
    """Whatever others have around an event: else their borders could be found by trying."""
    file = tmp_path / "keys.toml"
    root, mine, other = (
        add_key(file, name, Role.ADMIN, tenant=name) for name in ("default", "mine", "other")
    )
    with running(tmp_path, keys_file=str(file), max_answer_bytes=2_000) as service:
        source = {"attributes": {"x": "number"}}
        service.with_key(root).put("/v1/sources/s", json=source).raise_for_status()
        for key in (root, other):
            near = {**WHOLE, "where": "41 <= x < 42", "on": ["match", "enter", "leave"]}
            service.with_key(key).put("/v1/queries/near", json=near).raise_for_status()
        alternating = [{"stream_id": "p", "x": x} for x in (41, 43) * 20]
        at = "/v1/events?source=s&wait=true"
        for key in (root, other):
            assert service.with_key(key).post(at, json=alternating).status_code == 202
        answer = service.with_key(mine).post(at, json=alternating)
        assert (answer.status_code, answer.json()["outputs"]) == (200, [])
        service.with_key(mine).put("/v1/queries/own", json=WHOLE).raise_for_status()
        answer = service.with_key(mine).post(at, json=[{"stream_id": "q", "x": 43}, *alternating, {"x": 0}])
        assert answer.status_code == 202, "its own and the dead letters count"


# ---- what is shared


@pytest.mark.parametrize("operation", sorted(OF_ALL), ids=" ".join)
def test_what_all_share_is_for_the_default_tenant(tenants: Tenants, operation: tuple[str, str]) -> None:
    ((path, request),) = WALK[operation]
    refused = tenants.mine.request(operation[0], path, **request)
    assert (refused.status_code, refused.json()["reason"]) == (403, "forbidden")
    document = tenants.service.contract.document["paths"][operation[1]][operation[0].lower()]
    assert document["x-tenant"] == "default"


def test_dead_letters_are_for_the_default_tenant(tenants: Tenants) -> None:
    for client, status in ((tenants.mine, 403), (tenants.theirs[1], 403), (tenants.theirs[0], 200)):
        assert client.get(f"/v1/topics/{DEAD_LETTER}").status_code == status


def test_metrics_are_by_tenant(tenants: Tenants) -> None:
    text = tenants.theirs[0].get("/metrics").text
    for name in ("matches_total", "enters_total", "leaves_total", "queries"):
        found = set(re.findall(rf'rangewatch_{name}{{[^}}]*source="s"[^}}]*tenant="([^"]+)"', text))
        assert found == {"default", "mine", f"{MARK}-tenant"}
    for client, tenant in zip((tenants.theirs[0], tenants.mine), ("default", "mine"), strict=True):
        listed = client.get("/v1/queries?source=s&state=active&limit=10000").json()["queries"]
        assert f'rangewatch_queries{{source="s",state="active",tenant="{tenant}"}} {len(listed)}.0' in text


def test_a_quota_is_of_each_tenant_and_names_itself(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    keys = [add_key(file, "ana", Role.ADMIN), add_key(file, "ana", Role.WRITE, tenant="acme")]
    limits = {"max_queries_tenant": 1, "max_requests_per_s": 0.001, "max_requests_burst": 4}
    with running(tmp_path, keys_file=str(file), **limits) as service:
        ana, other = map(service.with_key, keys)
        ana.put("/v1/sources/s", json={"attributes": {"x": "number"}}).raise_for_status()
        for client in (ana, other):
            assert client.put("/v1/queries/a", json=WHOLE).status_code == 201
            refused = client.put("/v1/queries/b", json=WHOLE)
            assert (refused.status_code, refused.json()["reason"]) == (429, "quota")
            assert "max_queries_tenant" in refused.json()["detail"]
        assert ana.get("/v1/queries").status_code == 200
        assert ana.get("/v1/queries").status_code == 429
        assert other.get("/v1/queries").status_code == 200, "a name is one within its tenant"


def test_listeners_are_counted_for_each_tenant(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    keys = [add_key(file, "ana", Role.ADMIN), add_key(file, "bo", Role.READ, tenant="acme")]
    with running(tmp_path, keys_file=str(file), max_live_clients_tenant=1) as service:
        ana, other = map(service.with_key, keys)
        ana.put("/v1/sources/s", json={"attributes": {"x": "number"}}).raise_for_status()
        at = "/v1/live"
        with ExitStack() as listening:
            for client in (ana, other):
                plain = httpx.Client(base_url=service.url, headers=client.headers, timeout=TIMEOUT_S)
                begun = listening.enter_context(
                    listening.enter_context(plain).stream("GET", at, params={"source": "s"})
                )
                assert begun.status_code == 200
            for key in keys:
                refused = service.refused(at, key=key, source="s")
                assert (refused.status_code, refused.json()["reason"]) == (429, "quota")
                assert "max_live_clients_tenant" in refused.json()["detail"]
