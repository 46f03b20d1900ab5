"""Answers that clients do not take: what waits of them, and what the service does about it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.api.unsent import PIECE_BYTES, Answers, Unsent
from tests.api.conftest import OwnSource
from tests.api.harness import Running, eventually, running
from tests.api.test_bodies import begun

BODY = bytes(range(256)) * (4 * PIECE_BYTES // 256) + b"and a bit"


async def app(scope: Any, receive: Any, send: Callable[[Any], Awaitable[None]]) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": BODY, "more_body": True})
    await send({"type": "http.response.body"})


class Line:
    """Takes of an answer as much as it is told to."""

    def __init__(self) -> None:
        self.taken: list[Any] = []
        self._may_take = asyncio.Semaphore(0)

    async def __call__(self, message: Any) -> None:
        await self._may_take.acquire()
        self.taken.append(message)

    async def take(self, messages: int) -> None:
        for _ in range(messages):
            self._may_take.release()
        while not self._may_take.locked():
            await asyncio.sleep(0)
        for _ in range(10):
            await asyncio.sleep(0)


async def answer(answers: Answers, path: str, send: Any, method: str = "GET") -> None:
    await answers({"type": "http", "method": method, "path": path}, None, send)  # type: ignore[arg-type]


async def refused(answers: Answers, path: str) -> bool:
    """Whether a request is turned away, and not for any other reason."""
    messages: list[Any] = []

    async def keep(message: Any) -> None:
        messages.append(message)

    await answer(answers, path, keep)
    if messages[0]["status"] == 200:
        return False
    assert messages[0]["status"] == 503 and (b"retry-after", b"1") in messages[0]["headers"]
    assert "max_unsent_bytes" in json.loads(messages[1]["body"])["detail"]
    return True


def test_an_answer_goes_out_in_pieces_and_what_waits_of_it_is_counted() -> None:
    async def ask() -> None:
        unsent, line = Unsent(PIECE_BYTES), Line()
        answers = Answers(app, unsent, {"/healthz"})
        answering = asyncio.create_task(answer(answers, "/", line))
        await line.take(1)
        assert (len(line.taken), unsent.bytes) == (1, len(BODY)), "its head"
        assert await refused(answers, "/") and not await refused(answers, "/healthz")
        await line.take(3)
        assert unsent.bytes == len(BODY) - 3 * PIECE_BYTES
        await line.take(1)
        assert unsent.bytes == len(b"and a bit") and not await refused(answers, "/")
        await line.take(2)
        await answering
        assert b"".join(message.get("body", b"") for message in line.taken) == BODY
        assert [message.get("more_body", False) for message in line.taken[1:]] == [True] * 5 + [False]
        assert unsent.bytes == 0

    asyncio.run(ask())


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/", 503), ("POST", "/ask", 503), ("GET", "/healthz", 200), ("POST", "/do", 200)],
)
def test_an_answer_that_is_made_while_too_much_has_come_to_wait_is_given_only_where_something_is_done(
    method: str, path: str, status: int
) -> None:
    async def ask() -> None:
        unsent, messages = Unsent(1), []

        async def slow(scope: Any, receive: Any, send: Any) -> None:
            unsent.bytes += 2
            await app(scope, receive, send)

        async def keep(message: Any) -> None:
            messages.append(message)

        await answer(Answers(slow, unsent, {"/healthz"}, {"/ask"}), path, keep, method)
        assert [message["status"] for message in messages if "status" in message] == [status]
        assert unsent.bytes == 2

    asyncio.run(ask())


def test_what_waits_of_an_answer_that_is_given_up_waits_no_more() -> None:
    async def ask() -> None:
        unsent, line = Unsent(1), Line()
        answering = asyncio.create_task(answer(Answers(app, unsent), "/", line))
        await line.take(3)
        assert unsent.bytes > 0
        answering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await answering
        assert unsent.bytes == 0

    asyncio.run(ask())


def test_while_clients_leave_too_much_untaken_others_are_told_to_wait(tmp_path: Path) -> None:
    with running(tmp_path, max_unsent_bytes=100_000) as service:
        source = OwnSource(service.client)
        where = "kind in (" + ", ".join(f"'{i:0>500}'" for i in range(100)) + ")"
        bodies = "\n".join(json.dumps(source.body(f"q{i}", where)) for i in range(100))
        service.client.post("/v1/queries:bulk", content=bodies.encode()).raise_for_status()
        with closing(begun(service, "GET", "/v1/queries?limit=1000", 0, of=0)):
            told = eventually(lambda: _told_to_wait(service), "what waits is too much")
            assert told.json()["reason"] == "unavailable" and "max_unsent_bytes" in told.json()["detail"]
            assert told.headers["retry-after"] == "1"
            assert [service.client.get(path).status_code for path in ("/healthz", "/readyz", "/metrics")] == (
                [200, 200, 200]
            )
        eventually(lambda: _told_to_wait(service) is None, "its client is gone")
        assert len(service.client.get("/v1/queries?limit=1000").json()["queries"]) == 100


def _told_to_wait(service: Running) -> httpx.Response | None:
    response = service.client.get("/v1/schemas/matches")
    return response if response.status_code == 503 else None
