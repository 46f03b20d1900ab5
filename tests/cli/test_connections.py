"""Connections: how many there may be, how long they may take, and that none of it ends the service."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import re
import resource
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

import h11
import httpx
import pytest
from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn import Config
from uvicorn.server import ServerState

from service.api.unsent import Answers, Unsent
from service.cli import connections
from service.cli.connections import (
    MOST_LATE_BYTES,
    OWN_FILES,
    SILENCE_S,
    Connection,
    Http,
    Listening,
    Seldom,
    Turns,
    connections_of_process,
)
from service.cli.http_server import HttpServer
from service.live import Hub
from tests.api.harness import TIMEOUT_S, eventually
from tests.certificates import Authority
from tests.cli.conftest import serving

FILES = 256
BIG = 16 << 20

Address = tuple[str, int]


def connected(stack: ExitStack, address: Address, *, takes: int | None = None) -> socket.socket:
    """``takes``: the bytes that its side of the line holds at the most."""
    connection = stack.enter_context(closing(socket.socket()))
    connection.settimeout(TIMEOUT_S)
    if takes is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, takes)
    connection.connect(address)
    return connection


def test_connections_without_a_key_leave_the_service_its_files(tmp_path: Path) -> None:
    with (
        serving(tmp_path, files=FILES) as served,
        httpx.Client(base_url=served.url, timeout=TIMEOUT_S) as client,
        ExitStack() as stack,
    ):
        url = httpx.URL(served.url)
        address = url.host, url.port or 0
        assert client.get("/healthz").status_code == 200, "is connected"
        with ExitStack() as idle:
            crowd = [connected(idle, address) for _ in range(FILES + 50)]
            answer = crowd[-1].recv(10_000)
            head, _, body = answer.partition(b"\r\n\r\n")
            assert head.split()[1] == b"503"
            assert "max_connections" in json.loads(body)["detail"]
            # What it does for the first time takes files.
            assert client.put("/v1/sources/s", json={"attributes": {"x": "number"}}).status_code == 201
            assert client.put("/v1/queries/q", json={"source": "s", "where": "x > 0"}).status_code == 201
            event = {"stream_id": "v", "x": 1}
            assert client.post("/v1/events?source=s&wait=true", json=event).status_code == 200
        assert eventually(lambda: httpx.get(f"{served.url}/healthz").status_code == 200, "room again")
        connected(stack, address)
        assert served.stop() == 0
        said = served.log.read_text()
    assert said.count("\n") < 10, said
    assert said.count("turned away") == 1


@pytest.mark.parametrize(
    ("limits", "wanted", "most", "soft"),
    [
        ((1024, 4096), 4000, 4096 - OWN_FILES, 4096),
        ((1024, 524_288), 4000, 4000, 4000 + OWN_FILES),
        ((1024, resource.RLIM_INFINITY), 4000, 4000, 4000 + OWN_FILES),
        ((524_288, 524_288), 4000, 4000, 524_288),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), 4000, 4000, resource.RLIM_INFINITY),
        ((256, 256), 4000, 256 - OWN_FILES, 256),
        ((64, 64), 4000, 32, 64),
    ],
)
def test_there_are_no_more_connections_than_files_for_them(
    monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int], wanted: int, most: int, soft: int
) -> None:
    now = [limits]
    monkeypatch.setattr(resource, "getrlimit", lambda _: now[0])
    monkeypatch.setattr(resource, "setrlimit", lambda _, to: now.append(to))
    assert connections_of_process(wanted) == most
    assert now[-1] == (soft, limits[1])


def files_open() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_who_waits_is_turned_away_where_others_have_taken_the_files(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    accept = socket.socket.accept
    free = files_open()

    def accept_if_there_is_a_file(listening: socket.socket) -> tuple[socket.socket, object]:
        if files_open() >= free + 3:  # the listening socket, the client, the spare
            raise OSError(errno.EMFILE, "Too many open files")
        return accept(listening)

    monkeypatch.setattr(socket.socket, "accept", accept_if_there_is_a_file)
    with closing(Listening(socket.AF_INET, 9, answers_in_clear=True)) as listening, ExitStack() as stack:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        listening.setblocking(False)
        for _ in range(3):
            waiting = connected(stack, listening.getsockname())
            with pytest.raises(BlockingIOError):
                listening.accept()
            assert waiting.recv(1) == b"", "hung up"
            waiting.close()
    assert len(caplog.records) == 1
    assert files_open() == free


def test_what_clients_can_cause_is_said_once_in_a_while() -> None:
    now = [100.0]
    tells = Seldom(lambda: now[0])
    said = []
    for now[0] in (100.0, 100.1, 99.0 + SILENCE_S, 100.0 + SILENCE_S, 101.0 + SILENCE_S):
        said.append(tells())
    assert said == [True, False, False, True, False]


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_TIMEOUT_S", 0.5)
    monkeypatch.setattr(connections, "TAKING_TIMEOUT_S", 0.5)
    # Those of servers that were: what one of them has let through is not told again for a while.
    monkeypatch.setattr(logging.getLogger("uvicorn.error"), "filters", [])


@pytest.fixture
def unsent() -> Unsent:
    return Unsent(1 << 40)


@pytest.fixture
def address(short: None, unsent: Unsent) -> Iterator[Address]:
    """Of a server whose connections have half a second."""
    with at_work(unsent) as address:
        yield address


@contextmanager
def at_work(unsent: Unsent, tls: ssl.SSLContext | None = None) -> Iterator[Address]:
    app = FastAPI()
    app.add_middleware(Answers, unsent=unsent)

    @app.get("/pieces")
    async def pieces() -> Response:
        async def body() -> AsyncIterator[bytes]:
            for _ in range(BIG // (1 << 16)):
                yield bytes(1 << 16)

        return StreamingResponse(body())

    @app.post("/echo")
    async def echo(request: Request) -> Response:
        return Response(await request.body())

    @app.get("/whole")
    async def whole() -> Response:
        return Response(bytes(BIG))

    hub = Hub(max_feeds=1, max_feeds_tenant=1, max_records=1)
    server = HttpServer(app, hub, unsent, stop_timeout_s=2.0, tls=tls)
    listening = Listening(socket.AF_INET, 9, answers_in_clear=tls is None)
    listening.bind(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    eventually(lambda: server.started, "started")
    yield listening.getsockname()
    server.should_exit = True
    thread.join(TIMEOUT_S)


def rest_of(connection: socket.socket) -> int:
    """How many bytes come until the service hangs up, of itself."""
    length = 0
    with suppress(ConnectionResetError, ssl.SSLEOFError):
        while some := connection.recv(1 << 16):
            length += len(some)
    return length


@pytest.mark.parametrize("sent", [b"", b"GET /pieces HTTP/1.1\r\nHost: a\r\n", b"G"])
def test_the_head_of_a_request_must_come_in_time(address: Address, sent: bytes) -> None:
    with ExitStack() as stack:
        connection = connected(stack, address)
        connection.sendall(sent)
        assert rest_of(connection) == 0


def test_who_dribbles_a_head_is_cut_off(address: Address) -> None:
    with ExitStack() as stack:
        connection = connected(stack, address)
        begun = time.monotonic()
        with pytest.raises(OSError, match=r"reset|[Bb]roken"):
            for _ in range(600):
                connection.sendall(b"G")
                time.sleep(0.1)
        assert time.monotonic() - begun < TIMEOUT_S / 2


@pytest.mark.parametrize("path", ["/pieces", "/whole"])
def test_who_takes_nothing_is_cut_off_and_who_is_slow_gets_all(address: Address, path: str) -> None:
    with ExitStack() as stack:
        idle, slow = (connected(stack, address, takes=1 << 16) for _ in range(2))
        for connection in (idle, slow):
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        length, begun = 0, time.monotonic()
        while length < BIG:
            some = slow.recv(1 << 16)
            assert some, f"cut off after {length} bytes"
            length += len(some)
            time.sleep(0.01)
        assert time.monotonic() - begun > 1.5, "longer than anybody may take for nothing"
        assert rest_of(idle) < BIG


def test_what_waits_in_connections_is_counted_until_it_is_taken_or_they_are_gone(
    address: Address, unsent: Unsent
) -> None:
    with ExitStack() as stack:
        idle, slow = (connected(stack, address, takes=1 << 16) for _ in range(2))
        for connection in (idle, slow):
            connection.sendall(b"GET /whole HTTP/1.1\r\nHost: a\r\n\r\n")
        eventually(lambda: unsent.bytes > 0, "counted")
        length = 0
        while length < BIG:
            length += len(slow.recv(1 << 20))
        eventually(lambda: unsent.bytes == 0, "one is taken, one is cut off")


def both_sides(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """TLS of a server and of a client that trusts it."""
    authority = Authority(folder)
    signed, tls = authority.sign("server"), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(signed.cert, signed.key)
    return tls, ssl.create_default_context(cafile=str(authority.cert))


def test_over_tls_too_who_takes_nothing_is_cut_off_and_who_is_slow_gets_all(
    short: None, unsent: Unsent, tmp_path: Path
) -> None:
    tls, trust = both_sides(tmp_path)
    with at_work(unsent, tls) as address, ExitStack() as stack:
        idle, slow = (
            stack.enter_context(
                trust.wrap_socket(connected(stack, address, takes=1 << 16), server_hostname="127.0.0.1")
            )
            for _ in range(2)
        )
        for connection in (idle, slow):
            connection.sendall(b"GET /whole HTTP/1.1\r\nHost: a\r\n\r\n")
        eventually(lambda: unsent.bytes > BIG // 4, "most of it waits")
        length, begun = 0, time.monotonic()
        while length < BIG:
            some = slow.recv(1 << 16)
            assert some, f"cut off after {length} bytes"
            length += len(some)
            time.sleep(0.002)
        assert time.monotonic() - begun > 1.5, "longer than anybody may take for nothing"
        assert rest_of(idle) < BIG
        eventually(lambda: unsent.bytes == 0, "one is taken, one is cut off")


class Line:
    """A transport of which so much waits, and the loop of its connection: time passes when it is told to."""

    def __init__(self) -> None:
        self.waiting = 0
        self.is_cut = False
        self._due: list[Callable[[], None]] = []

    def call_later(self, delay_s: float, call: Callable[..., None], *args: Any) -> None:
        self._due.append(partial(call, *args))

    def let_time_pass(self) -> None:
        """What has come to be due last is."""
        self._due.pop()()

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def is_closing(self) -> bool:
        return self.is_cut

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def get_extra_info(self, name: str) -> None:
        pass

    def abort(self) -> None:
        self.is_cut = True


@pytest.fixture
def line() -> Line:
    return Line()


@pytest.fixture
def connection(line: Line) -> Connection:
    config = Config(FastAPI(), loop="asyncio", lifespan="off", log_config=None)
    config.load()
    connection = Connection(config, ServerState(), {}, line, unsent=Unsent(1), turns=Turns())
    connection.connection_made(line)  # type: ignore[arg-type]
    return connection


LEAST = 32 * 1024


@pytest.mark.parametrize("taken", [0, 1, LEAST - 1])
def test_who_takes_less_than_the_least_in_time_is_cut_off_however_long_it_has_taken_more(
    connection: Connection, line: Line, taken: int
) -> None:
    line.waiting = 10 * LEAST
    connection.pause_writing()
    for _ in range(5):
        line.waiting -= LEAST
        line.let_time_pass()
        assert not line.is_cut
    line.waiting -= taken
    line.let_time_pass()
    assert line.is_cut


@pytest.mark.parametrize("taken", [0, 1, 100])
def test_who_asks_for_nothing_more_is_cut_off_once_it_takes_nothing_of_its_last_answer(
    connection: Connection, line: Line, taken: int
) -> None:
    line.waiting = 100
    line.let_time_pass()
    assert not line.is_cut, "it has not had the time for that"
    line.waiting -= taken
    line.let_time_pass()
    assert line.is_cut == (taken in (0, 100)), "all of it is taken, or nothing"


BODY = b"2\r\n{}\r\n0\r\n\r\n"
CHUNKED = b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n"
UPGRADE = b"GET /nowhere HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n"
NEXT = b"GET /smuggled HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize(("more", "answers"), [(b"", 3), (b"Content-Length: 2\r\n", 2)])
@pytest.mark.parametrize("path", [b"echo", b"nowhere"])
def test_nothing_follows_a_body_that_says_its_length_in_two_ways(
    address: Address, more: bytes, answers: int, path: bytes
) -> None:
    first = CHUNKED.replace(b"echo", path) + b"\r\n" + BODY
    second = CHUNKED.replace(b"echo", path) + more + b"\r\n" + BODY
    with ExitStack() as stack:
        connection = connected(stack, address)
        connection.sendall(first + second + NEXT)
        told = b"".join(iter(lambda: connection.recv(10_000), b""))
    assert told.count(b"HTTP/1.1 ") == answers, told


IN_A_HEADER = [b"GET / HTTP/1.1\r\nHost: a\r\n" + line + b"\r\n\r\n" for line in (b"%b: x", b"X-Long: %b")]


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("head", [b"GET /%b HTTP/1.1\r\nHost: a\r\n\r\n", *IN_A_HEADER])
@pytest.mark.parametrize(("length", "may"), [(60_000, True), (70_000, False), (1_000_000, False)])
def test_how_long_a_head_may_be_does_not_depend_on_how_it_is_received(
    at_once: bool, head: bytes, length: int, may: bool
) -> None:
    head = head % (b"x" * length)
    size = len(head) if at_once else 10_000
    http = Http()
    with nullcontext() if may else pytest.raises(h11.RemoteProtocolError) as refused:
        for begin in range(0, len(head), size):
            http.receive_data(head[begin : begin + size])
            event = http.next_event()
        assert isinstance(event, h11.Request)
    if refused is not None:
        assert http.error is refused.value
        assert refused.value.error_status_hint == 431


def read(text: bytes) -> list[Any]:
    """The events of what a client sends."""
    http = Http()
    http.receive_data(text)
    return list(iter(http.next_event, h11.NEED_DATA))


def chunks(size: int, number: int, more: bytes = b"") -> bytes:
    return (b"%x%b\r\n%b\r\n" % (size, more, b"x" * size)) * number


@pytest.mark.parametrize(
    ("chunk", "may"), [((16, b""), True), ((1, b""), False), ((16, b";a=%099d" % 1), False)]
)
def test_a_body_may_be_wrapped_in_no_more_than_it_needs(chunk: tuple[int, bytes], may: bool) -> None:
    size, more = chunk
    assert len(read(CHUNKED + b"\r\n" + chunks(size, 100, more) + b"0\r\n\r\n")) == 102, "there are few"
    many = CHUNKED + b"\r\n" + chunks(size, 20_000, more) + b"0\r\n\r\n"
    with nullcontext() if may else pytest.raises(h11.RemoteProtocolError, match="chunks"):
        assert len(read(many)) >= 20_002


@pytest.mark.parametrize("begin", [b"GET / HTTP/1.1\r\nHost: a\r\n", CHUNKED + b"\r\n" + BODY[:-2]])
@pytest.mark.parametrize(("lines", "may"), [(200, True), (20_000, False)])
def test_lines_of_headers_are_bounded(begin: bytes, lines: int, may: bool) -> None:
    with nullcontext() if may else pytest.raises(h11.RemoteProtocolError, match="lines") as refused:
        read(begin + b"a:\r\n" * lines + b"\r\n")
    assert refused is None or refused.value.error_status_hint == 431


class Wire:
    """A transport that is there until it is closed."""

    def __init__(self) -> None:
        self.is_paused = self.is_closed = False
        self.written = b""

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def get_extra_info(self, name: str) -> None:
        pass


def connect(app: ASGIApp, turns: Turns | None = None) -> tuple[Connection, Wire]:
    """A connection of the running loop to an application."""
    config = Config(app, loop="asyncio", lifespan="off", log_config=None)
    config.load()
    connection, wire = (
        Connection(config, ServerState(), {}, unsent=Unsent(1), turns=turns or Turns()),
        Wire(),
    )
    connection.connection_made(wire)  # type: ignore[arg-type]
    return connection, wire


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():
            await asyncio.sleep(0)


async def reads_nothing(scope: Scope, receive: Receive, send: Send) -> None:
    await asyncio.Event().wait()


def test_connections_that_have_received_much_read_on_by_turns() -> None:
    async def receive_much() -> None:
        turns = Turns()
        made = [connect(reads_nothing, turns) for _ in range(3)]
        size, number = 24, 10 * connections.MOST_EVENTS
        for connection, _ in made:
            connection.data_received(CHUNKED + b"\r\n" + chunks(size, number))

        def read() -> list[int]:
            return [len(connection.cycle.body) // size for connection, _ in made]

        one_each = read()
        assert max(one_each) <= connections.MOST_EVENTS
        while sum(one_each) < len(made) * number:
            assert [wire.is_paused for _, wire in made] == [each < number for each in one_each]
            await asyncio.sleep(0)
            before, one_each = one_each, read()
            assert sum(one_each) - sum(before) in range(1, connections.MOST_EVENTS + 1)
            assert max(one_each) - min(one_each) <= 2 * connections.MOST_EVENTS, "nobody waits for long"
        await until(lambda: not any(wire.is_paused for _, wire in made))

    asyncio.run(receive_much())


def test_who_has_received_much_reads_no_more_before_the_application_does() -> None:
    async def receive_much() -> None:
        connection, wire = connect(reads_nothing)
        connection.data_received(CHUNKED + b"\r\n" + chunks(1_000, 200))
        await until(lambda: len(connection.cycle.body) == 200_000)
        for _ in range(10):
            await asyncio.sleep(0)
        assert wire.is_paused
        taking = asyncio.create_task(connection.cycle.receive())
        await until(taking.done)
        assert len(taking.result()["body"]) == 200_000 and not wire.is_paused

    asyncio.run(receive_much())


@pytest.mark.parametrize("over_tls", [False, True])
def test_what_has_come_in_many_pieces_is_read_whole_and_the_next_request_is_too(
    unsent: Unsent, tmp_path: Path, over_tls: bool
) -> None:
    tls, trust = both_sides(tmp_path) if over_tls else (None, None)
    with at_work(unsent, tls) as address, ExitStack() as stack:
        connection = connected(stack, address)
        if trust is not None:
            connection = stack.enter_context(trust.wrap_socket(connection, server_hostname="127.0.0.1"))
        connection.sendall((CHUNKED + b"\r\n" + chunks(24, 5_000) + b"0\r\n\r\n") * 2 + NEXT)
        told = b"".join(iter(lambda: connection.recv(100_000), b""))
    assert told.count(b"HTTP/1.1 200") == 2 and told.count(b"HTTP/1.1 404") == 1
    assert told.count(b"x" * 24 * 5_000) == 2


@pytest.mark.parametrize(("size", "ends"), [(MOST_LATE_BYTES, False), (MOST_LATE_BYTES + 1, True)])
def test_a_body_that_goes_on_for_long_after_its_answer_ends_the_connection(size: int, ends: bool) -> None:
    async def ask() -> None:
        connection, wire = connect(Response("no"))
        for _ in range(1 if ends else 2):  # on one connection
            wire.written = b""
            connection.data_received(CHUNKED + b"\r\n" + chunks(100_000, 1))
            await until(lambda: wire.written.endswith(b"no"))
            connection.data_received(chunks(size, 1))
            if ends:
                await until(lambda: wire.is_closed)
            else:
                connection.data_received(b"0\r\n\r\n")
                await until(lambda: connection.conn.their_state is h11.IDLE)

    asyncio.run(ask())


def test_who_is_still_at_work_on_what_was_no_http_answers_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async def ask() -> None:
        goes_on = asyncio.Event()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await goes_on.wait()
            await Response("too late")(scope, receive, send)

        connection, wire = connect(app)
        connection.data_received(CHUNKED + b"\r\nnothing\r\n")
        assert b" 400 " in wire.written and wire.is_closed
        (task,) = connection.tasks
        goes_on.set()
        await task
        assert b"too late" not in wire.written

    asyncio.run(ask())
    assert [record for record in caplog.records if record.exc_info] == []


@pytest.mark.parametrize(
    "head",
    [
        *(b"Authorization : Bearer %b", b"Authorization: Bearer %b\r", b"%b", b"Transfer-Encoding: %b"),
        *(b"Host: %b", b"Content-Length: %b", b"Transfer-Encoding: chunked\r\n\r\n%b\r\n"),
        b"Transfer-Encoding: chunked\r\n\r\n1\r\nx%b\r\n",
    ],
)
def test_what_a_client_has_sent_amiss_is_not_repeated(address: Address, head: bytes) -> None:
    key = b"rw_a_key'"
    with ExitStack() as stack:
        connection = connected(stack, address)
        connection.sendall(b"POST /echo HTTP/1.1\r\nHost: a\r\n" + head % key + b"\r\n\r\n")
        told = b"".join(iter(lambda: connection.recv(10_000), b""))
    problem = json.loads(told.partition(b"\r\n\r\n")[2])
    assert problem["status"] in (400, 501)
    assert re.fullmatch(r"Invalid HTTP request received\. [A-Za-z :-]{12,}", problem["detail"])
    assert b"rw_" not in told


WAITED_FOR = CHUNKED + b"Expect: 100-continue\r\n\r\n"


def test_who_is_cut_off_by_a_stop_is_told_so(short: None, unsent: Unsent) -> None:
    with ExitStack() as stack:
        with at_work(unsent) as address:
            connection = connected(stack, address)
            connection.sendall(WAITED_FOR)
            assert connection.recv(100).startswith(b"HTTP/1.1 100 "), "it waits for the body"
        told = b"".join(iter(lambda: connection.recv(10_000), b""))
    head, _, body = told.lower().partition(b"\r\n\r\n")
    assert head.split()[1] == b"503"
    assert b"retry-after: 1" in head and b"content-type: application/problem+json" in head
    assert json.loads(body)["reason"] == "unavailable"


def test_what_is_no_http_is_a_400_and_seldom_a_line_of_the_log(
    address: Address, caplog: pytest.LogCaptureFixture
) -> None:
    for sent in (b"nothing\r\n\r\n", UPGRADE) * 3:
        with ExitStack() as stack:
            connection = connected(stack, address)
            connection.sendall(sent)
            head, _, body = connection.recv(10_000).partition(b"\r\n\r\n")
            assert int(head.split()[1]) == (404 if sent is UPGRADE else 400)
            if sent is not UPGRADE:
                problem = json.loads(body)
                assert (problem["status"], problem["reason"]) == (400, "bad_request")
                assert "illegal request line" in problem["detail"]
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == len(set(said)) >= 2
