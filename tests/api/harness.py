"""A real service in this process: the runtime on a file, uvicorn on a free port, and a strict client.

The client holds every answer against the OpenAPI document: a status or a body that is not documented fails
the test that met it.
"""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI
from jsonschema import Draft202012Validator

from service.api.app import create_app
from service.engine.commands import Entry
from service.log.sqlite import SqliteLog
from service.metrics import Metrics
from service.runtime import Runtime
from service.settings import Settings
from service.wire import command_message

TIMEOUT_S = 60.0


def eventually(condition: Callable[[], Any], what: str, *, within_s: float = TIMEOUT_S) -> Any:
    """The first true value of a condition. Fails after a deadline."""
    deadline = time.monotonic() + within_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {within_s} s: {what}"
        time.sleep(0.01)
    return value


def history(client: httpx.Client, after: int = 0, **asked: Any) -> list[dict[str, Any]]:
    """All pages of the history that is asked for."""
    found: list[dict[str, Any]] = []
    while True:
        page = client.get("/v1/history", params={**asked, "after": after}).raise_for_status().json()
        found += page["entries"]
        if page["next"] == after:
            return found
        after = page["next"]


def write_commands(directory: Path, *bodies: dict[str, Any]) -> None:
    """Somebody writes these entries of the command log by hand, while no service runs on it."""
    log = SqliteLog(directory / "log.db")
    log.open()
    begin = log.end_of_commands()
    entries = [Entry(f"hand:{begin + i}", {"v": 1, **body}) for i, body in enumerate(bodies)]
    log.append_commands([command_message(entry, at_ms=0) for entry in entries], after=begin)
    log.close()


class Contract:
    """The OpenAPI document as a judge of answers."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self._paths = [(self._pattern(path), path) for path in document["paths"]]

    @staticmethod
    def _pattern(path: str) -> re.Pattern[str]:
        """Stream ids may hold a slash; nothing else may."""
        variable = ".+" if path.startswith("/v1/streams/") else "[^/]+"
        return re.compile(re.sub(r"\\{[^}]+\\}", variable, re.escape(path)), re.DOTALL)

    def template(self, path: str) -> str | None:
        """The documented path that a real one belongs to: the one with the fewest variables."""
        found = [template for pattern, template in self._paths if pattern.fullmatch(path)]
        return min(found, key=lambda template: template.count("{"), default=None)

    def judge(self, response: httpx.Response) -> None:
        template = self.template(response.request.url.path)
        operation = self.document["paths"].get(template, {}).get(response.request.method.lower())
        if operation is None:
            assert response.status_code in (404, 405), response
            self._judge_problem(response)
            return
        documented = operation["responses"].get(str(response.status_code))
        assert documented, f"{response.request.method} {template}: {response.status_code} is not documented"
        media = response.headers.get("content-type", "").partition(";")[0]
        if response.status_code >= 400:
            self._judge_problem(response)
        elif "content" in documented:
            assert media in documented["content"], f"{media} is not documented for {template}"
            if media == "application/json":
                self._validate(response.json(), documented["content"][media]["schema"])
        else:
            assert not response.content

    def _judge_problem(self, response: httpx.Response) -> None:
        assert response.headers["content-type"] == "application/problem+json"
        problem = response.json()
        self._validate(problem, {"$ref": "#/components/schemas/Problem"})
        assert problem["status"] == response.status_code
        assert "Traceback" not in response.text
        assert response.status_code != 503 or int(response.headers["retry-after"]) >= 1

    def _validate(self, value: Any, schema: dict[str, Any]) -> None:
        Draft202012Validator({**schema, "components": self.document["components"]}).validate(value)


class Running:
    """A service at work; ``client`` judges every answer, ``plain`` none."""

    def __init__(self, url: str, app: FastAPI, runtime: Runtime, settings: Settings) -> None:
        self.url = url
        self.app = app
        self.runtime = runtime
        self.settings = settings
        self.plain = httpx.Client(base_url=url, timeout=TIMEOUT_S)
        self.contract = Contract(self.plain.get("/openapi.json").json())
        self._clients: dict[str | None, httpx.Client] = {}
        self.client = self.with_key(None)

    def with_key(self, key: str | None) -> httpx.Client:
        """The judging client that shows this key, or none."""
        if key not in self._clients:
            self._clients[key] = httpx.Client(
                base_url=self.url,
                timeout=TIMEOUT_S,
                headers={} if key is None else {"Authorization": f"Bearer {key}"},
                event_hooks={"response": [self._judge]},
            )
        return self._clients[key]

    def refused(self, path: str, *, key: str | None = None, **params: Any) -> httpx.Response:
        """The answer to a GET of what has no end, if it is an error: else reading it would not end."""
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        with self.plain.stream("GET", path, params=params, headers=headers) as response:
            assert response.is_error, f"{response.status_code}, and not refused"
            self._judge(response)
        return response

    def _judge(self, response: httpx.Response) -> None:
        response.read()
        self.contract.judge(response)

    def close(self) -> None:
        for client in (self.plain, *self._clients.values()):
            client.close()


@contextmanager
def running(
    directory: Path,
    *,
    start: bool = True,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    **settings: Any,
) -> Iterator[Running]:
    """A service on a file in a directory. ``start=False``: its runtime never gets ready. ``now``: the time by
    which keys expire."""
    made = Settings(log=f"sqlite:{directory / 'log.db'}", **settings)
    metrics = Metrics()
    runtime = Runtime(SqliteLog(made.log_place), made, metrics)
    app = create_app(runtime, made, metrics, now=now)
    if start:
        runtime.start()
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_config=None))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    service = Running(f"http://127.0.0.1:{listening.getsockname()[1]}", app, runtime, made)
    try:
        if start:
            eventually(lambda: runtime.ready or runtime.failure, "ready")
        yield service
    finally:
        service.close()
        server.should_exit = True
        thread.join(TIMEOUT_S)
        listening.close()
        if start:
            runtime.stop(TIMEOUT_S)
