"""Request bodies, read within limits while they arrive, and JSON answers.

A body is never trusted to be as long as its Content-Length says: bytes are counted as they come. All
readers draw on one account of the bytes of all bodies that are under way, and wait only so long for a
piece, and for all of them. What a request has drawn is given back when it ends, however it ends. Before an
answer that refuses, for whatever reason, what is left of the body is read on for a while, so that a client
which is still sending gets to see it; that is not kept, and draws on nothing. If much has not come by then,
the connection ends (``cli.connections``).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, NamedTuple

from fastapi import Request, Response
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.problems import ProblemError, Unready
from service.settings import Settings

NDJSON = "application/x-ndjson"

#: How much of a body that is refused is read and thrown away before the answer.
DISCARDED_BYTES = 64 * 1024 * 1024

#: How many times as long as its next piece a whole body may take.
MOST_WAITS = 30


class Line(NamedTuple):
    """One line that is not blank; ``number`` counts all lines from 1."""

    number: int
    text: bytes


class Bodies:
    """The account, and an application around another that gives each request its ``Body``. For one event
    loop."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self.max_bytes = settings.max_bodies_bytes
        self.timeout_s = settings.body_timeout_s
        self.held_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        request = Request(scope, receive)
        request.state.body = body = Body(request, self)

        async def send_after_body(message: Message) -> None:
            if message["type"] == "http.response.start":
                if message["status"] >= 400:
                    await body.discard()
                else:
                    body.give_back()  # what came of it has gone, or is the answer
            await send(message)

        try:
            await self._app(scope, receive, send_after_body)
        finally:
            body.give_back()


class Body:
    """The body of one request, which is read once."""

    def __init__(self, request: Request, bodies: Bodies) -> None:
        self._bodies = bodies
        self._chunks = request.stream()
        self._drawn = 0
        self._is_asked_for = "100-continue" not in request.headers.get("expect", "").lower()
        self.on_piece: Callable[[int], None] = lambda length: None
        """Told the bytes of every piece, kept or not."""

    async def pieces(self, limit: int, setting: str) -> AsyncIterator[bytes]:
        """The body as it comes, within all limits. Raises ProblemError (408, 413, 503)."""
        self._is_asked_for = True
        length, now = 0, asyncio.get_running_loop().time
        ends = now() + MOST_WAITS * self._bodies.timeout_s
        while True:
            try:
                async with asyncio.timeout_at(min(now() + self._bodies.timeout_s, ends)):
                    chunk = await anext(self._chunks, None)
            except TimeoutError:
                raise self._too_slow(now() >= ends) from None
            if chunk is None:
                return
            length += len(chunk)
            self.on_piece(len(chunk))
            if length > limit:
                raise too_large("the body", limit, setting)
            self._draw(len(chunk))
            yield chunk

    async def whole(self, limit: int, setting: str) -> bytes:
        """Raises ProblemError (408, 413, 503)."""
        try:
            return b"".join([piece async for piece in self.pieces(limit, setting)])
        except ProblemError:
            self.give_back()  # the list has gone
            raise

    async def discard(self) -> None:
        """Reads on and throws away what comes, up to ``DISCARDED_BYTES``, and no longer in all than one piece
        of a body may take to come. Nothing, where the client waits for being asked before it sends any."""
        if not self._is_asked_for:
            return
        length = 0
        with contextlib.suppress(TimeoutError, ClientDisconnect):
            async with asyncio.timeout(self._bodies.timeout_s):
                async for chunk in self._chunks:
                    length += len(chunk)
                    self.on_piece(len(chunk))
                    if length > DISCARDED_BYTES:
                        return

    def give_back(self) -> None:
        """What was read is held no more."""
        self._bodies.held_bytes -= self._drawn
        self._drawn = 0

    def _draw(self, length: int) -> None:
        most = self._bodies.max_bytes
        if self._bodies.held_bytes + length > most:
            raise Unready(f"the bodies under way come to the {most} bytes of max_bodies_bytes; try again")
        self._bodies.held_bytes += length
        self._drawn += length

    def _too_slow(self, whole: bool) -> ProblemError:
        wait_s = self._bodies.timeout_s
        if whole:
            detail = f"the body took {MOST_WAITS * wait_s:g} s, which is {MOST_WAITS} times body_timeout_s"
        else:
            detail = f"nothing more of the body came within the {wait_s:g} s of body_timeout_s"
        return ProblemError(408, "timeout", "", detail, headers={"Connection": "close"})


def too_large(what: str, limit: int, setting: str) -> ProblemError:
    return ProblemError(413, "too_large", "", f"{what} is longer than the {limit} bytes of {setting}")


def body_of(request: Request) -> Body:
    body = request.state.body
    assert isinstance(body, Body)
    return body


async def read_body(request: Request, settings: Settings) -> bytes:
    """The whole body. Raises ProblemError (408, 413, 503)."""
    return await body_of(request).whole(settings.max_request_bytes, "max_request_bytes")


async def read_bulk(request: Request, settings: Settings) -> bytes:
    """A whole body of many queries. Raises ProblemError (408, 413, 503)."""
    return await body_of(request).whole(settings.max_bulk_bytes, "max_bulk_bytes")


async def read_message(request: Request, settings: Settings) -> bytes:
    """A body that becomes one message of the command log. Raises ProblemError (408, 413, 503)."""
    return await body_of(request).whole(settings.max_message_bytes, "max_message_bytes")


def read_lines(request: Request, settings: Settings) -> AsyncIterator[list[Line]]:
    """The lines of an NDJSON body, as many at a time as have arrived. O(bytes), however it is cut.

    Raises ProblemError (408, 503; 413 on a body or a line that is too long).
    """
    return _lines(body_of(request).pieces(settings.max_bulk_bytes, "max_bulk_bytes"), settings)


async def _lines(pieces: AsyncIterator[bytes], settings: Settings) -> AsyncIterator[list[Line]]:
    cut = _Cut(settings.max_message_bytes)
    async for piece in pieces:
        yield await asyncio.to_thread(cut.add, piece)  # a piece may have very many lines
    yield cut.end()


class _Cut:
    """Cuts a body into lines of at most ``max_line`` bytes, piece by piece. Raises ProblemError (413)."""

    def __init__(self, max_line: int) -> None:
        self._max_line = max_line
        self._number = 0
        self._unfinished: list[bytes] = []
        self._pending = 0

    def add(self, piece: bytes) -> list[Line]:
        """The lines that end in this piece."""
        head, *rest = piece.split(b"\n")
        self._unfinished.append(head)
        self._pending += len(head)
        complete: list[bytes] = []
        for text in rest:
            complete.append(b"".join(self._unfinished))
            self._unfinished, self._pending = [text], len(text)
        _check_lines(complete, self._pending, self._number, self._max_line)
        begin, self._number = self._number, self._number + len(complete)
        return [Line(begin + i, text) for i, text in enumerate(complete, 1) if text.strip()]

    def end(self) -> list[Line]:
        """The last line, if the body does not end with a line break."""
        return self.add(b"\n")


def _check_lines(complete: list[bytes], pending: int, number: int, max_line: int) -> None:
    for i, length in enumerate((*map(len, complete), pending), number + 1):
        if length > max_line:
            raise too_large(f"line {i}", max_line, "max_message_bytes")


def json_answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON answer. Integers of any size and texts of any kind pass."""
    return Response(json.dumps(value).encode(), status, dict(headers or {}), "application/json")
