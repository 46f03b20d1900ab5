from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import Response

from service.api.collection import Paging, list_queries
from service.api.context import LOOKS, Service, unknown_source
from service.api.overview import OverviewPaging, list_duplicates, list_unmatched
from service.engine.engine import Engine
from service.metrics import Metrics
from service.model import Refusal
from service.settings import Settings
from tests.api.conftest import OwnSource
from tests.api.harness import TIMEOUT_S, eventually, running, write_commands


def pages(client: httpx.Client, **params: Any) -> list[list[dict[str, Any]]]:
    """All pages of a list, one after another."""
    found = []
    after: str | None = ""
    while after is not None:
        page = client.get("/v1/queries", params={**params, "after": after}).json()
        found.append(page["queries"])
        after = page["next"]
    return found


def ids(queries: list[dict[str, Any]]) -> list[str]:
    return [query["id"] for query in queries]


def test_pages_hold_every_query_once_in_order(client: httpx.Client, source: OwnSource) -> None:
    made = sorted(source.register(f"q{i:02}")["id"] for i in range(7))
    found = pages(client, source=source.name, limit=3)
    assert [len(page) for page in found] == [3, 3, 1]
    assert [id for page in found for id in ids(page)] == made
    assert ids(pages(client, source=source.name, limit=7)[0]) == made
    assert len(pages(client, source=source.name, limit=7)) == 1


def test_a_page_ends_at_the_bytes_of_an_answer(tmp_path: Path) -> None:
    with running(tmp_path, max_answer_bytes=3_000) as service:
        source = OwnSource(service.client)
        made = [source.register(f"q{i}", f"kind == '{'k' * 700}'")["id"] for i in range(7)]
        found = pages(service.client)
        assert [len(page) for page in found] == [2, 2, 2, 1], "of some 1,900 bytes each"
        assert [id for page in found for id in ids(page)] == made
        beyond = service.client.get("/v1/queries", params={"after": "z"}).json()
        assert beyond == {"queries": [], "next": None}


def test_paging_is_stable_under_change(client: httpx.Client, source: OwnSource) -> None:
    for i in range(6):
        source.register(f"q{i}")
    first = client.get("/v1/queries", params={"source": source.name, "limit": 3}).json()
    for gone in ("q1", "q2", "q4"):
        client.delete(f"/v1/queries/{source.id(gone)}").raise_for_status()
    source.register("q0a")
    source.register("q9")
    rest = client.get(
        "/v1/queries", params={"source": source.name, "limit": 10, "after": first["next"]}
    ).json()
    assert ids(first["queries"]) == [source.id(name) for name in ("q0", "q1", "q2")]
    assert ids(rest["queries"]) == [source.id(name) for name in ("q3", "q5", "q9")]


def test_filters_hold_together(client: httpx.Client, source: OwnSource) -> None:
    source.register("a", tags={"team": "port", "level": "high"})
    source.register("b", tags={"team": "port"}, enabled=False)
    source.register("c", tags={"team": "sea"})

    def found(**params: Any) -> list[str]:
        queries = client.get("/v1/queries", params={"source": source.name, **params}).json()["queries"]
        return [id.removeprefix(f"{source.name}.") for id in ids(queries)]

    assert found() == ["a", "b", "c"]
    assert found(tag="team:port") == ["a", "b"]
    assert found(tag="level") == ["a"]
    assert found(tag=["team:port", "level:high"]) == ["a"]
    assert found(tag="team:port", state="active") == ["a"]
    assert found(state="disabled") == ["b"]
    assert found(state="quarantined") == []
    assert found(tag="team:") == []


def test_keys_and_values_of_tags_may_hold_colons(client: httpx.Client, source: OwnSource) -> None:
    source.register("value", tags={"k8s": "app:web"})
    source.register("key", tags={"k8s:app": "web"})
    source.register("both", tags={"k8s:app": "web:1"})
    source.register("alone", tags={"k8s:app:web": ""})

    def found(tag: str) -> list[str]:
        queries = client.get("/v1/queries", params={"source": source.name, "tag": tag}).json()["queries"]
        return [id.removeprefix(f"{source.name}.") for id in ids(queries)]

    assert found("k8s:app:web") == ["alone", "key", "value"]
    assert found("k8s:app:web:1") == ["both"]
    assert found("k8s:app:web:") == ["alone"]
    assert found("k8s:app") == ["both", "key"]
    assert found("k8s") == ["value"]
    assert found("app:web") == found("k8s:app:we") == found("k8s:") == []


@pytest.mark.parametrize("path", ["/v1/queries", "/v1/queries:export", "/v1/history"])
def test_an_unknown_source_is_told(client: httpx.Client, source: OwnSource, path: str) -> None:
    assert client.get(path, params={"source": source.name}).status_code == 200
    refused = client.get(path, params={"source": "nope"})
    problem = refused.json()
    assert (refused.status_code, problem["field"], problem["reason"]) == (422, "source", "unknown_source")
    assert "PUT /v1/sources" in problem["detail"]


@pytest.mark.parametrize(
    ("params", "field", "reason"),
    [
        ({"limit": "0"}, "limit", "bad_value"),
        ({"limit": "many"}, "limit", "bad_value"),
        ({"limit": "10001"}, "limit", "limit"),
        ({"state": "sleepy"}, "state", "bad_value"),
        ({"sauce": "x"}, "sauce", "unknown_field"),
    ],
)
def test_bad_parameters_are_named(
    client: httpx.Client, params: dict[str, str], field: str, reason: str
) -> None:
    refused = client.get("/v1/queries", params=params)
    assert refused.status_code == 422
    assert (refused.json()["field"], refused.json()["reason"]) == (field, reason)


def test_what_is_exported_can_be_imported_as_it_is(client: httpx.Client, source: OwnSource) -> None:
    source.register("plain")
    source.register(
        "full", {"any": [{"kind": {"in": ["tug", "é 🚢"]}, "x": {"lt": 1.5}}]}, select=["y"], on=["match"]
    )
    source.register("off", enabled=False, initial="ignore", tags={"a": "b"})
    exported = client.get("/v1/queries:export", params={"source": source.name})
    bodies = [json.loads(line) for line in exported.text.splitlines()]
    assert ids(bodies) == [source.id(name) for name in ("full", "off", "plain")]
    before = [client.get(f"/v1/queries/{id}").json() for id in ids(bodies)]

    unchanged = client.post("/v1/queries:bulk", content=exported.content).json()
    assert (unchanged["unchanged"], unchanged["refused"]) == (3, 0)
    for id in ids(bodies):
        client.delete(f"/v1/queries/{id}").raise_for_status()
    assert client.get("/v1/queries:export", params={"source": source.name}).content == b""
    created = client.post("/v1/queries:bulk", content=exported.content).json()
    assert created["created"] == 3
    after = [client.get(f"/v1/queries/{id}").json() for id in ids(bodies)]
    volatile = ("etag", "active_from")
    assert [{k: v for k, v in view.items() if k not in volatile} for view in after] == [
        {k: v for k, v in view.items() if k not in volatile} for view in before
    ]


def test_a_stored_query_that_no_longer_validates_is_listed_and_can_be_mended(tmp_path: Path) -> None:
    stored = {"id": "q", "source": "s", "where": "gone > 0", "tags": {"team": "port"}}
    source = {"op": "source", "name": "s", "source": {"attributes": {"x": "number"}}}
    write_commands(tmp_path, source, {"op": "query", "id": "q", "query": stored})
    with running(tmp_path) as service:
        client = service.client
        found = client.get("/v1/queries/q").json()
        assert (found["state"], found["stored"]) == ("quarantined", stored)
        assert (found["refusal"]["field"], found["refusal"]["reason"]) == ("where", "unknown_attribute")
        assert client.get("/v1/queries", params={"state": "quarantined", "tag": "team"}).json()[
            "queries"
        ] == [found]
        assert client.get("/v1/queries", params={"state": "active"}).json()["queries"] == []
        assert client.get("/v1/queries:export").content == b""
        assert client.post("/v1/queries", json={**stored, "where": "x > 0"}).status_code == 409
        mended = client.put("/v1/queries/q", json={**stored, "where": "x > 0"})
        assert mended.json()["state"] == "active"


def test_exports_of_a_tenant_are_bounded_and_each_ends_with_its_client(tmp_path: Path) -> None:
    with running(tmp_path, max_exports_tenant=2) as service:
        source = OwnSource(service.client)
        where = "kind in (" + ", ".join(f"'{i:0>500}'" for i in range(100)) + ")"
        bodies = "\n".join(json.dumps(source.body(f"q{i}", where)) for i in range(200))
        service.client.post("/v1/queries:bulk", content=bodies.encode()).raise_for_status()
        with ExitStack() as stack:
            for _ in range(2):  # 10 MB each: they wait for their clients
                stack.enter_context(service.plain.stream("GET", "/v1/queries:export"))
            refused = service.refused("/v1/queries:export")
            assert (refused.status_code, refused.json()["reason"]) == (429, "quota")
            assert "max_exports_tenant" in refused.json()["detail"]
            assert refused.headers["retry-after"] == "1"
        eventually(lambda: service.plain.get("/v1/queries:export").status_code == 200, "a turn again")
        lines = service.plain.get("/v1/queries:export").text.splitlines()
        assert [json.loads(line)["where"] for line in lines] == [where] * 200


class Asked:
    """A runtime that answers questions when it is told to."""

    def __init__(self) -> None:
        self.engine = Engine()
        self.waiting: list[tuple[Callable[[Engine], Any], Future[Any]]] = []

    def ask(self, question: Callable[[Engine], Any]) -> Future[Any]:
        self.waiting.append((question, Future()))
        return self.waiting[-1][1]

    def answer(self) -> list[Any]:
        answers = []
        while self.waiting:
            question, future = self.waiting.pop()
            answers.append(question(self.engine))
            future.set_result(answers[-1])
        return answers


def test_however_many_list_queries_they_share_a_copy_and_few_look_at_a_time() -> None:
    async def ask() -> None:
        runtime, copies = Asked(), []
        service = Service(runtime, Settings(), Metrics())  # type: ignore[arg-type]
        asking = asyncio.gather(*(list_queries(Paging(limit=1), service) for _ in range(5 * LOOKS)))
        for _ in range(1_000):
            await asyncio.sleep(0)
        assert len(runtime.waiting) == LOOKS, "the others wait for their turn"
        while not asking.done():
            copies += [copy for _, copy in runtime.answer()]
            await asyncio.sleep(0.001)
        assert {answer.body for answer in await asking} == {b'{"queries": [], "next": null}'}
        assert len(copies) == 5 * LOOKS and len(set(map(id, copies))) == 1

    asyncio.run(asyncio.wait_for(ask(), TIMEOUT_S))


@pytest.mark.parametrize("look", [list_duplicates, list_unmatched])
def test_few_look_over_all_queries_of_a_source_at_a_time(look: Callable[..., Awaitable[Response]]) -> None:
    async def ask() -> None:
        runtime = Asked()
        service = Service(runtime, Settings(), Metrics())  # type: ignore[arg-type]
        paging = OverviewPaging(source="nowhere")
        asking = [asyncio.ensure_future(look(paging, service)) for _ in range(3 * LOOKS)]
        for _ in range(1_000):
            await asyncio.sleep(0)
        assert len(runtime.waiting) == LOOKS, "the others wait for their turn"
        while not all(one.done() for one in asking):
            for _, future in runtime.waiting[:LOOKS]:
                future.set_exception(unknown_source("nowhere"))
            del runtime.waiting[:LOOKS]
            await asyncio.sleep(0.001)
        assert all(isinstance(one.exception(), Refusal) for one in asking), "whoever fails makes room"

    asyncio.run(asyncio.wait_for(ask(), TIMEOUT_S))
