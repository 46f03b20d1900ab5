"""Bodies that are under way: how many bytes of them there may be at once, and how long they may take."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, nullcontext
from http.client import HTTPResponse
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from fastapi import Request, Response
from starlette.types import Message, Receive, Scope, Send

from service.api.bodies import Bodies, read_body, read_lines
from service.api.problems import ProblemError, Unready
from service.keys import Role
from service.settings import Settings, SettingsError, load_settings
from tests.api.harness import TIMEOUT_S, Running, eventually, running
from tests.api.test_access import add_key

MOST = 300_000
"""Of one body, whatever its kind."""
LIMITS = {"max_request_bytes": MOST, "max_bulk_bytes": MOST, "max_message_bytes": MOST}
LONG = 20_000_000
READERS = [
    ("POST", "/v1/events?source=s"),
    ("POST", "/v1/queries:bulk"),
    ("POST", "/v1/validate"),
    ("PUT", "/v1/collections/c?source=s"),
]
CSV = {"Content-Type": "text/csv"}


def begun(
    service: Running, method: str, path: str, sent: int, *, of: int = MOST, key: str = "", more: str = ""
) -> socket.socket:
    """A request of whose body so many bytes have been sent, and no more come."""
    address = urlsplit(service.url)
    connection = socket.create_connection((address.hostname, address.port), TIMEOUT_S)
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: text/csv\r\n"
        f"Authorization: Bearer {key}\r\n{more}Content-Length: {of}\r\n\r\n"
    )
    connection.sendall(head.encode() + (b"x" * 99 + b"\n") * (sent // 100))
    return connection


def answer_of(connection: socket.socket) -> tuple[int, dict[str, Any]]:
    """What comes until the service hangs up."""
    text = b"".join(iter(lambda: connection.recv(65_536), b""))
    head, _, body = text.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


def whole(client: httpx.Client, method: str = "POST", path: str = "/v1/validate") -> httpx.Response:
    """The answer to a body of the largest size, which nothing can be made of."""
    return client.request(method, path, content=b"{" * MOST, headers=CSV)


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service with room for one body."""
    with running(tmp_path_factory.mktemp("narrow"), max_bodies_bytes=MOST, **LIMITS) as service:
        service.client.put("/v1/sources/s", json={"attributes": {"x": "number"}}).raise_for_status()
        yield service


@pytest.mark.parametrize(("method", "path"), READERS)
def test_clients_that_stall_hold_no_more_than_all_bodies_may(narrow: Running, method: str, path: str) -> None:
    with ExitStack() as stalled:

        def refused_beside_another() -> httpx.Response | None:
            """One that stalls may come too late, and be refused itself: there is another each time."""
            stalled.enter_context(closing(begun(narrow, method, path, MOST // 3 - 1_000)))
            answer = whole(narrow.client, method, path)
            return answer if answer.status_code == 503 else None

        refused = eventually(refused_beside_another, "there is no room")
        assert refused.json()["reason"] == "unavailable" and "max_bodies_bytes" in refused.json()["detail"]
        assert refused.headers["retry-after"] == "1"
        small = narrow.client.post("/v1/match?source=s", json=[{"stream_id": "a", "x": 1}])
        assert small.json() == {"matches": [[]]}, "others are answered"
    eventually(lambda: whole(narrow.client, method, path).status_code == 422, "who has gone holds nothing")


def test_who_is_refused_holds_nothing_while_the_rest_is_read_on(narrow: Running) -> None:
    with ExitStack() as stalled:
        for _ in range(3):
            too_long = begun(narrow, "POST", "/v1/validate", MOST + 1_000, of=2 * MOST)
            stalled.enter_context(closing(too_long))
            eventually(lambda: whole(narrow.client).status_code == 422, "there is room", within_s=20)


def test_who_takes_an_answer_slowly_holds_nothing_of_the_body_any_more() -> None:
    held: list[int] = []
    settings = Settings()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        text = await read_body(Request(scope, receive), settings)
        held.append(bodies.held_bytes)
        await Response(text)(scope, receive, send)

    async def receive() -> Message:
        return {"type": "http.request", "body": b"a body"}

    async def send(message: Message) -> None:
        held.append(bodies.held_bytes)

    bodies = Bodies(app, settings)
    asyncio.run(bodies({"type": "http", "headers": []}, receive, send))
    assert held == [len(b"a body"), 0, 0], "when it is read, at the head of the answer, and at its body"


@pytest.mark.parametrize(("method", "path"), READERS)
def test_every_answer_gives_back_what_its_body_took(narrow: Running, method: str, path: str) -> None:
    for _ in range(3):
        refused = whole(narrow.client, method, path)
        assert refused.status_code == 422
        too_long = narrow.client.request(method, path, content=b"{" * (MOST + 1), headers=CSV)
        assert too_long.status_code == 413
    taken = json.dumps([{"stream_id": "a", "x": 1}] * 5_000)
    for _ in range(2 * MOST // len(taken) + 1):
        narrow.client.post("/v1/match?source=s", content=taken).raise_for_status()
    assert whole(narrow.client).status_code == 422


REFUSED_UNREAD = [
    ("POST", "/v1/nothing", 404),
    ("PUT", "/v1/queries", 405),
    ("POST", "/v1/queries:bulk?atomic=5", 422),
    ("POST", "/v1/validate?what=1", 422),
]


@pytest.mark.parametrize(("method", "path", "status"), REFUSED_UNREAD)
def test_who_sends_more_than_anybody_reads_gets_to_see_why_it_is_refused(
    narrow: Running, method: str, path: str, status: int
) -> None:
    with closing(begun(narrow, method, path, LONG, of=LONG, more="Connection: close\r\n")) as sent:
        answer = HTTPResponse(sent)
        answer.begin()
        assert (answer.status, json.load(answer)["status"]) == (status, status)


@pytest.mark.parametrize(("method", "path", "status"), REFUSED_UNREAD)
def test_who_waits_for_being_asked_for_a_body_that_is_refused_is_not_asked(
    narrow: Running, method: str, path: str, status: int
) -> None:
    with closing(begun(narrow, method, path, 0, of=LONG, more="Expect: 100-continue\r\n")) as waiting:
        assert answer_of(waiting)[0] == status


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, str]]:
    """A service with room for one body, of which every piece must come soon; and a key to it."""
    folder = tmp_path_factory.mktemp("hasty")
    key = add_key(folder / "keys.toml", "ana", Role.ADMIN)
    limits = {**LIMITS, "max_bodies_bytes": MOST, "body_timeout_s": 2.0}
    with running(folder, keys_file=str(folder / "keys.toml"), **limits) as service:
        service.with_key(key).put("/v1/sources/s", json={"attributes": {"x": "number"}}).raise_for_status()
        yield service, key


@pytest.mark.parametrize(("method", "path"), READERS)
def test_who_stalls_is_told_so_and_holds_nothing_more(
    hasty: tuple[Running, str], method: str, path: str
) -> None:
    service, key = hasty
    with closing(begun(service, method, path, MOST // 2, key=key)) as stalled:
        status, problem = answer_of(stalled)
        assert (status, problem["reason"]) == (408, "timeout")
        assert "body_timeout_s" in problem["detail"]
        assert whole(service.with_key(key)).status_code == 422


def test_a_body_may_take_its_time_if_its_pieces_come(hasty: tuple[Running, str]) -> None:
    service, key = hasty

    def pieces() -> Iterator[bytes]:
        for _ in range(6):
            time.sleep(service.settings.body_timeout_s / 5)
            yield b'{"stream_id": "a"}\n'

    client = service.with_key(key)
    sent = client.post(
        "/v1/events?source=s", content=pieces(), headers={"Content-Type": "application/x-ndjson"}
    )
    assert (sent.status_code, len(sent.json()["positions"])) == (202, 6)


class Clock(asyncio.SelectorEventLoop):
    """A loop in which time passes when it is told to."""

    now_s = 0.0

    def time(self) -> float:
        return self.now_s


class Sender:
    """Sends a body without end, and lets each piece take so long."""

    def __init__(self, loop: Clock, piece: bytes, takes_s: float = 0.0) -> None:
        self.sent = 0
        self._loop = loop
        self._piece = piece
        self._takes_s = takes_s

    async def receive(self) -> Message:
        self.sent += 1
        assert self.sent < 1_000, "read on for ever"
        self._loop.now_s += self._takes_s
        await asyncio.sleep(0)
        return {"type": "http.request", "body": self._piece, "more_body": True}


async def never(message: Message) -> None:
    raise AssertionError(message)


def test_who_dribbles_is_told_so_in_the_end() -> None:
    settings = Settings()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await read_body(Request(scope, receive), settings)

    with asyncio.Runner(loop_factory=Clock) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, Clock)
        dribbling = Sender(loop, b" ", settings.body_timeout_s * 0.99)
        with pytest.raises(ProblemError, match="the body took 1800 s, which is 30 times") as refused:
            runner.run(Bodies(app, settings)({"type": "http", "headers": []}, dribbling.receive, never))
    assert (refused.value.status, refused.value.reason) == (408, "timeout")
    assert dribbling.sent in (30, 31, 32)


def test_a_line_is_too_long_before_its_end() -> None:
    settings = Settings(max_message_bytes=1_000)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        async for _ in read_lines(Request(scope, receive), settings):
            pass

    with asyncio.Runner(loop_factory=Clock) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, Clock)
        line = Sender(loop, b" " * 100)
        with pytest.raises(ProblemError, match="line 1 is longer than the 1000 bytes of max_message_bytes"):
            runner.run(Bodies(app, settings)({"type": "http", "headers": []}, line.receive, never))
    assert line.sent == 11


@pytest.mark.parametrize(("length", "fits"), [(50, True), (51, False)])
def test_bodies_hold_no_more_than_all_may_at_any_time(length: int, fits: bool) -> None:
    settings = Settings(max_bodies_bytes=100, **dict.fromkeys(LIMITS, 100))
    held: list[int] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await read_body(Request(scope, receive), settings)
        if scope["then"]:
            await ask(*scope["then"])

    async def ask(*then: str) -> None:
        """One body, and then others while it is held."""
        messages = iter([b" " * length, b""])

        async def receive() -> Message:
            held.append(bodies.held_bytes)
            piece = next(messages)
            return {"type": "http.request", "body": piece, "more_body": bool(piece)}

        await bodies({"type": "http", "headers": [], "then": then[1:]}, receive, never)

    bodies = Bodies(app, settings)
    with nullcontext() if fits else pytest.raises(Unready, match="100 bytes of max_bodies_bytes"):
        asyncio.run(ask("one", "another"))
    assert held == ([0, 50, 50, 100] if fits else [0, 51, 51])
    assert bodies.held_bytes == 0


def test_who_is_not_let_in_takes_no_room_and_is_told_though_it_stalls(hasty: tuple[Running, str]) -> None:
    service, key = hasty
    with closing(begun(service, "POST", "/v1/validate", MOST // 2, key="rw_no")) as stalled:
        assert whole(service.with_key(key)).status_code == 422
        status, problem = answer_of(stalled)
        assert (status, problem["reason"]) == (401, "unauthenticated")


@pytest.mark.parametrize("name", LIMITS)
def test_one_body_must_fit(name: str) -> None:
    with pytest.raises(SettingsError, match=f"{name} is more than max_bodies_bytes, which is {MOST}"):
        load_settings({**LIMITS, name: MOST + 1, "max_bodies_bytes": MOST})
