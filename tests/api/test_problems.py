"""Requests that nobody should send: each gets a problem, none does harm."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from fastapi import FastAPI, Request, Response

from service.api import problems
from service.api.access import ROLES
from service.engine.engine import Engine
from service.log.port import LogUnavailable
from service.runtime import Busy, NotRunning
from tests.api.conftest import OwnSource
from tests.api.harness import Running, eventually, running

MIB = 1024 * 1024


def chunks(total: int) -> Iterator[bytes]:
    for _ in range(total // MIB):
        yield b"x" * MIB


@pytest.mark.parametrize("path", ["/v1/queries", "/v1/validate", "/v1/events?source=s", "/v1/match?source=s"])
@pytest.mark.parametrize("announced", [True, False])
def test_fifty_megabytes_are_refused_and_the_service_stays_up(
    client: httpx.Client, path: str, announced: bool
) -> None:
    body = b"x" * (50 * MIB) if announced else chunks(50 * MIB)
    refused = client.post(path, content=body)
    assert (refused.status_code, refused.json()["reason"]) == (413, "too_large")
    assert client.get("/readyz").status_code == 200


def test_the_body_limit_is_a_setting(tmp_path: Path) -> None:
    with running(tmp_path, max_request_bytes=1_000, max_message_bytes=500) as service:
        client = service.client
        body: dict[str, Any] = {"attributes": {"x": "number"}}
        client.put("/v1/sources/s", json=body).raise_for_status()
        query = json.dumps({"id": "q", "source": "s", "where": "x > 0"}).encode()
        assert client.post("/v1/queries", content=query + b" " * (501 - len(query))).status_code == 413
        assert client.post("/v1/queries", content=query + b" " * (500 - len(query))).status_code == 201
        event = b'{"stream_id": "s"}'
        assert client.post("/v1/events?source=s", content=b" " * 983 + event).status_code == 413
        array = b"[" + b",".join([event] * 52) + b"]"
        assert len(array) <= 1_000
        assert client.post("/v1/events?source=s", content=array).status_code == 202


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v2/queries", "/v1/queries/", "/v1/queries/a/b", "//", "/%2e%2e/etc"]
)
def test_unknown_paths_are_problems(client: httpx.Client, path: str) -> None:
    response = client.get(path)
    assert (response.status_code, response.json()["reason"]) == (404, "not_found")
    assert "/openapi.json" in response.json()["detail"]


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/v1/queries", "GET, POST"),
        ("POST", "/v1/queries/q", "DELETE, GET, PATCH, PUT"),
        ("POST", "/v1/queries/q/streams", "GET"),
        ("PATCH", "/v1/collections/ports", "DELETE, GET, PUT"),
        ("PUT", "/v1/streams/a/b", "DELETE, GET"),
        ("POST", "/v1/sources/s", "GET, PUT"),
        ("DELETE", "/readyz", "GET"),
    ],
)
def test_wrong_methods_are_problems_that_name_the_right_ones(
    client: httpx.Client, method: str, path: str, allowed: str
) -> None:
    response = client.request(method, path)
    problem = response.json()
    assert (response.status_code, problem["reason"]) == (405, "method_not_allowed")
    assert response.headers["allow"] == allowed
    assert problem["detail"] == f"{path} does not take {method}; it takes {allowed}"


@pytest.mark.parametrize(("method", "path"), [one for one in ROLES if one[1].startswith("/v1/")])
def test_a_parameter_that_is_none_is_refused_everywhere(client: httpx.Client, method: str, path: str) -> None:
    refused = client.request(method, path.format(name="n", id="i", topic="matches"), params={"sauce": "x"})
    problem = refused.json()
    assert (refused.status_code, problem["field"], problem["reason"]) == (422, "sauce", "unknown_field")


def test_the_parameters_that_there_are_are_named(client: httpx.Client) -> None:
    def detail(path: str) -> str:
        return client.get(path).json()["detail"]

    assert detail("/v1/queries/q?limit=5") == "none is taken here"
    assert detail("/v1/queries/q/streams?offset=5") == "is no parameter here; there are after, limit"


def test_a_probe_may_carry_any_parameter(client: httpx.Client) -> None:
    for path in ("/healthz", "/readyz", "/metrics"):
        assert client.get(path, params={"sauce": "x"}).status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x00",
        b"\xff\xfe{}",
        b"null",
        b"5",
        b'"text"',
        b"[[[[",
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b'{"id": "q"',
        b'{"id": 5, "source": [], "where": {}}',
        b'{"id": "q", "source": "s", "where": "' + b"(" * 5_000 + b'"}',
        b'{"id": "q", "source": "s", "where": "x > ' + b"9" * 5_000 + b'"}',
        b'{"\\ud800": 1}',
    ],
)
@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/v1/queries"), ("PUT", "/v1/queries/q"), ("POST", "/v1/validate"), ("PUT", "/v1/sources/bad")],
)
def test_no_body_breaks_the_service(client: httpx.Client, method: str, path: str, body: bytes) -> None:
    response = client.request(method, path, content=body)
    assert response.status_code == 422
    assert response.json()["reason"] not in ("", "internal")


def test_patching_with_junk_is_refused(client: httpx.Client, source: OwnSource) -> None:
    source.register("q")
    path = f"/v1/queries/{source.id('q')}"
    for body in (b"", b"[]", b'{"nope": 1}', b'{"id": "other"}', b'{"where": null}', b'{"on": []}'):
        assert client.patch(path, content=body).status_code == 422
    assert client.get(path).json()["canonical"] == "x > 0"
    refused = client.patch(path, content=b"[]").json()
    assert refused["detail"] == "the body must be a JSON object of the fields to change, not a list"


@pytest.mark.parametrize(
    "header",
    [
        ("If-Match", "\x7f"),
        ("If-Match", ""),
        ("If-Match", "*" * 5_000),
        ("Content-Type", "application/xml"),
        ("Content-Type", ";;;="),
        ("Accept", "image/png"),
        ("Transfer-Encoding-Junk", "é".encode().decode("latin-1")),
    ],
)
def test_junk_in_headers_is_ignored_or_refused(
    client: httpx.Client, source: OwnSource, header: tuple[str, str]
) -> None:
    source.register("q")
    headers = [(header[0].encode(), header[1].encode("latin-1"))]
    response = client.patch(f"/v1/queries/{source.id('q')}", content=b'{"tags": {}}', headers=headers)
    assert response.status_code in (200, 412)


@pytest.mark.parametrize(
    "raw",
    [
        b"GARBAGE\r\n\r\n",
        b"POST /v1/queries HTTP/1.1\r\nHost: x\r\nContent-Length: nonsense\r\n\r\n",
        b"POST /v1/queries HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: " + b"x" * 100_000 + b"\r\n\r\n",
        b"POST /v1/queries HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf",
        b"POST /v1/queries:bulk HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_broken_http_does_no_harm(service: Running, raw: bytes) -> None:
    address = urlsplit(service.url)
    with socket.create_connection((address.hostname, address.port), timeout=10) as connection:
        connection.sendall(raw)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while received := connection.recv(65_536):
            answer += received
    assert not answer or answer.startswith(b"HTTP/1.1 4")
    assert b"Traceback" not in answer
    assert service.client.get("/readyz").status_code == 200


def failing_app() -> FastAPI:
    """An application with our error answers and routes that fail in every way."""
    app = FastAPI(openapi_url=None)
    problems.install(app)
    errors = {
        "busy": Busy("full"),
        "stopped": NotRunning("gone"),
        "away": LogUnavailable("broker at 10.0.0.1 is away"),
        "bug": RuntimeError("secret"),
    }

    async def fail(request: Request) -> Response:
        raise errors[request.path_params["how"]]

    app.router.add_route("/{how}", fail)
    return app


@pytest.mark.parametrize(("path", "status"), [("busy", 503), ("stopped", 503), ("away", 503), ("bug", 500)])
def test_what_fails_inside_is_a_problem_without_a_traceback(path: str, status: int) -> None:
    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(failing_app(), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.get(f"/{path}")

    response = asyncio.run(ask())
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    assert ("retry-after" in response.headers) == (status == 503)
    assert "secret" not in response.text
    assert "10.0.0.1" not in response.text


def test_a_client_that_goes_away_is_no_failure(tmp_path: Path) -> None:
    sent: list[MutableMapping[str, Any]] = []

    async def call(app: FastAPI) -> None:
        async def receive() -> MutableMapping[str, Any]:
            return {"type": "http.disconnect"}

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "path": "/v1/validate",
            "raw_path": b"/v1/validate",
            "root_path": "",
            "scheme": "http",
            "query_string": b"",
            "headers": [],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 2),
        }
        await app(scope, receive, send)

    with running(tmp_path) as service:
        asyncio.run(call(service.app))
    assert sent[0]["status"] == 400


class Fatal(BaseException):
    pass


def test_a_worker_that_has_died_is_told_at_once(tmp_path: Path) -> None:
    def die(_: Engine) -> None:
        raise Fatal

    with pytest.raises(Fatal), running(tmp_path) as service:
        service.runtime.ask(die)
        eventually(lambda: service.runtime.failure, "the worker has died")
        for path in ("/healthz", "/readyz", "/v1/queries", "/v1/sources"):
            assert service.client.get(path).status_code == 503
        assert service.client.get("/metrics").status_code == 200


def test_a_parameter_that_is_said_twice_is_refused_unless_it_is_a_list(client: httpx.Client) -> None:
    twice = client.get("/v1/queries?state=active&state=disabled")
    problem = twice.json()
    assert (twice.status_code, problem["field"], problem["reason"]) == (422, "state", "bad_value")
    assert problem["detail"] == "stands there 2 times; say it once"
    assert client.get("/v1/queries?tag=a&tag=b").status_code == 200
