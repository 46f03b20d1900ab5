"""The service as a process: settings, start, stop, and what a killed one leaves behind."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from service.__main__ import main
from service.api.unsent import Unsent
from service.cli.http_server import HttpServer
from service.live import Hub
from service.runtime import Runtime
from tests.api.harness import TIMEOUT_S
from tests.api.test_live import Listener
from tests.cli.conftest import rangewatch, serving

SOURCE = {"attributes": {"x": "number"}}
QUERY = {"source": "s", "where": "x > 0"}


def send(client: httpx.Client, ts: int, x: int) -> list[dict[str, object]]:
    body = client.post("/v1/events?source=s&wait=true", json={"stream_id": "v", "ts": ts, "x": x}).json()
    return [output["value"] for output in body["outputs"]]


def test_a_restart_goes_on_where_it_was(tmp_path: Path) -> None:
    with serving(tmp_path) as served, httpx.Client(base_url=served.url, timeout=TIMEOUT_S) as client:
        client.put("/v1/sources/s", json=SOURCE)
        client.put("/v1/queries/q", json=QUERY)
        assert [value.get("enter") for value in send(client, 1, 1)] == [None, ["q"]]
        assert served.stop() == 0
    with serving(tmp_path) as served, httpx.Client(base_url=served.url, timeout=TIMEOUT_S) as client:
        assert len(send(client, 2, 1)) == 1, "still inside: a match and no enter"
        served.process.send_signal(signal.SIGKILL)
        served.process.wait()
    with serving(tmp_path) as served, httpx.Client(base_url=served.url, timeout=TIMEOUT_S) as client:
        assert client.get("/v1/queries/q/streams").json()["streams"] == ["v"]
        (border,) = send(client, 3, -1)
        assert (border["leave"], border["seq"]) == (["q"], 2)


@pytest.mark.parametrize("asked", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_cuts_whoever_listens_and_does_not_wait_for_them(
    tmp_path: Path, asked: signal.Signals
) -> None:
    with (
        serving(tmp_path, "--stop-timeout-s", "1e6") as served,
        httpx.Client(base_url=served.url, timeout=TIMEOUT_S) as client,
    ):
        client.put("/v1/sources/s", json=SOURCE)
        client.put("/v1/queries/q", json=QUERY)
        with client.stream("GET", "/v1/live?source=s") as response:
            live = Listener(response)
            assert live.picture() == {}
            send(client, 1, 1)
            assert next(live)[0] == "borders"
            served.process.send_signal(asked)
            assert list(live) == [("cut", {"reason": "stopping"})]
        assert served.process.wait(TIMEOUT_S) == 0
        assert "Traceback" not in served.log.read_text()


def test_a_request_that_does_not_end_is_cut_off_and_the_worker_still_stops(tmp_path: Path) -> None:
    with serving(tmp_path, "--stop-timeout-s", "2") as served:
        url = httpx.URL(served.url)
        head = "POST /v1/validate HTTP/1.1", f"Host: {url.host}", "Content-Length: 9", "Expect: 100-continue"
        with socket.create_connection((url.host, url.port), TIMEOUT_S) as connection:
            connection.sendall("\r\n".join([*head, "", ""]).encode())
            assert b"100 Continue" in connection.recv(1000), "the service waits for a body"
            assert served.stop() == 0
        said = served.log.read_text()
        assert "Cancel 1 running task" in said
        assert "stopped" in said
        assert "Traceback" not in said


def test_a_stop_has_one_time_for_requests_and_the_worker() -> None:
    now = [100.0]
    hub = Hub(max_feeds=1, max_feeds_tenant=1, max_records=1)
    server = HttpServer(FastAPI(), hub, Unsent(1), stop_timeout_s=30.0, clock=lambda: now[0])
    assert server.left_s == 30.0
    server.should_exit = True
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server.run(sockets=[listening])
    left = []
    for now[0] in (100.0, 112.0, 140.0):
        left.append(server.left_s)
    assert left == [30.0, 18.0, 0.0]


@pytest.mark.parametrize("stops", [True, False])
def test_the_worker_has_what_requests_have_left_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stops: bool
) -> None:
    given: list[float] = []
    stop = Runtime.stop

    def noted(runtime: Runtime, timeout_s: float) -> None:
        given.append(timeout_s)
        stop(runtime, TIMEOUT_S)
        if not stops:
            raise TimeoutError("the worker has not stopped")

    def at_its_end(server: HttpServer, sockets: list[socket.socket]) -> None:
        server.should_exit = True
        sockets[0].close()

    monkeypatch.setattr(Runtime, "stop", noted)
    monkeypatch.setattr(HttpServer, "run", at_its_end)
    monkeypatch.setattr(HttpServer, "left_s", 1.5)
    before = signal.getsignal(signal.SIGTERM)
    try:
        code = main(["serve", "--port", "0", "--log", f"sqlite:{tmp_path / 'log.db'}"])
    finally:
        signal.signal(signal.SIGTERM, before)
    assert given == [1.5]
    assert code == (0 if stops else 1)


def test_interrupting_it_is_a_clean_end(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        served.process.send_signal(signal.SIGINT)
        assert served.process.wait(TIMEOUT_S) == 0
        assert "stopped" in served.log.read_text()


def test_settings_come_from_flags_variables_and_the_file(tmp_path: Path) -> None:
    config = tmp_path / "settings.toml"
    config.write_text("max_page = 3\nmax_queries = 3\nmax_disjuncts = 3\n")
    with (
        serving(tmp_path, "--config", config, "--max-page", "1", RANGEWATCH_MAX_QUERIES="1") as served,
        httpx.Client(base_url=served.url, timeout=TIMEOUT_S) as client,
    ):
        client.put("/v1/sources/s", json=SOURCE)
        assert client.get("/v1/queries?limit=2").status_code == 422
        assert client.put("/v1/queries/a", json=QUERY).status_code == 201
        second = client.put("/v1/queries/b", json=QUERY)
        assert (second.status_code, second.json()["reason"]) == (429, "quota")
        assert "retry-after" not in second.headers, "time does not lift it"
        four = {"source": "s", "where": "x == 1 or x == 3 or x == 5 or x == 7"}
        refused = client.put("/v1/queries/a", json=four)
        assert (refused.status_code, refused.json()["reason"]) == (422, "limit")
        assert "3" in refused.json()["detail"]


def test_an_unknown_key_in_the_file_is_named(tmp_path: Path) -> None:
    config = tmp_path / "settings.toml"
    config.write_text("max_steams = 3\n")
    done = rangewatch("serve", "--config", config)
    assert done.returncode == 2
    assert "max_steams" in done.stderr


def test_a_port_that_is_taken_is_said_so(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = rangewatch("serve", "--port", port, "--log", f"sqlite:{tmp_path / 'log.db'}")
    assert done.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}" in done.stderr


def test_a_log_that_is_none_ends_the_service(tmp_path: Path) -> None:
    file = tmp_path / "log.db"
    file.write_text("not a database, but long enough to look like something " * 100)
    done = rangewatch("serve", "--port", "0", "--log", f"sqlite:{file}")
    assert done.returncode == 1
    assert str(file) in done.stderr
    assert file.read_text().startswith("not a database")
