"""A small schema registry that is really there: an HTTP server on a socket of its own.

It answers as the real ones do, and, told so, as one does that is in trouble.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_TIMEOUT_S = 30
_TRICKLE_S = 0.05


class FakeRegistry:
    """``schemas`` are its answers by id. ``mood`` is how it answers: "well", a status, "garbage", "no schema"
    (JSON, but none), "silence" (until ``heard`` is set), "cut" (in the middle of an answer), "slow head" and
    "slow body" (byte by byte, until ``heard`` is set), "moved" (all is at another address)."""

    def __init__(self) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.mood: str | int = "well"
        self.failing: set[int] = set()
        self.asked: list[str] = []
        self.authorizations: list[str | None] = []
        self.wanted_authorization: str | None = None
        self.heard = threading.Event()
        self.url = ""

    def put(self, id: int, schema: Any, **more: Any) -> None:
        self.schemas[id] = {"schema": schema if isinstance(schema, str) else json.dumps(schema), **more}

    def answer(self, path: str, authorization: str | None) -> tuple[int, bytes]:
        self.asked.append(path)
        self.authorizations.append(authorization)
        if self.wanted_authorization not in (None, authorization):
            return 401, b'{"error_code": 401, "message": "Unauthorized"}'
        if isinstance(self.mood, int):
            return self.mood, b"<html>trouble</html>"
        if self.mood == "moved":
            return 301, b""
        if self.mood == "garbage":
            return 200, b"\xff\xfe{"
        if self.mood == "no schema":
            return 200, b'{"schema": 7}'
        id = int(path.rsplit("/", 1)[1])
        if id in self.failing:
            return 500, b"{}"
        if id > 2**31 - 1:  # to those in Java no integer, so no address of theirs
            return 404, b'{"error_code": 404, "message": "HTTP 404 Not Found"}'
        schema = self.schemas.get(id)
        if schema is None:
            return 404, b'{"error_code": 40403, "message": "Schema not found"}'
        return 200, json.dumps(schema).encode()


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def _handler(registry: FakeRegistry) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = _TIMEOUT_S

        def do_GET(self) -> None:
            if registry.mood == "silence":
                registry.heard.wait(_TIMEOUT_S)
                self.close_connection = True
                return
            status, body = registry.answer(self.path, self.headers.get("Authorization"))
            self.send_response(status)
            if registry.mood in ("slow head", "slow body"):
                self._trickle()
                return
            if registry.mood == "moved":
                self.send_header("Location", f"{registry.url}/moved{self.path}")
            self.send_header("Content-Length", str(len(body) + (registry.mood == "cut")))
            self.end_headers()
            self.wfile.write(body)
            self.close_connection = registry.mood == "cut"

        def _trickle(self) -> None:
            self.close_connection = True
            if registry.mood == "slow body":
                self.send_header("Content-Length", "1000000")
                self.end_headers()
            else:
                self.flush_headers()
                self.wfile.write(b"X-Slow: ")
            with suppress(OSError):  # the client has had enough
                while not registry.heard.wait(_TRICKLE_S):
                    self.wfile.write(b" ")

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler


class _Quiet(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away, or that a handshake keeps out, is nothing to tell."""


@contextmanager
def schema_registry(tls: ssl.SSLContext | None = None) -> Iterator[FakeRegistry]:
    registry = FakeRegistry()
    server = _Quiet(("127.0.0.1", 0), _handler(registry))
    if tls is not None:
        # The handshake is made by the thread of the connection, when it first reads.
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    registry.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield registry
    finally:
        registry.heard.set()
        server.shutdown()
        thread.join(_TIMEOUT_S)
        server.server_close()
