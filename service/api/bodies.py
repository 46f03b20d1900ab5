"""Request bodies, read with a limit while they arrive, and JSON answers.

A body is never trusted to be as long as its Content-Length says: bytes are counted as they come. What is too
long is not kept, but read on for a while, so that a client which is still sending gets to see its 413.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple

from fastapi import Request, Response

from service.api.problems import ProblemError
from service.settings import Settings

NDJSON = "application/x-ndjson"

#: How much of a body that is too long is read and thrown away before the answer.
DISCARDED_BYTES = 64 * 1024 * 1024


class Line(NamedTuple):
    """One line that is not blank; ``number`` counts all lines from 1."""

    number: int
    text: bytes


def too_large(what: str, limit: int, setting: str) -> ProblemError:
    return ProblemError(413, "too_large", "", f"{what} is longer than the {limit} bytes of {setting}")


async def _limited(request: Request, limit: int, setting: str) -> AsyncIterator[bytes]:
    length = 0
    chunks = request.stream()
    async for chunk in chunks:
        length += len(chunk)
        if length > limit:
            await discard(chunks)
            raise too_large("the body", limit, setting)
        yield chunk


async def discard(chunks: AsyncIterator[bytes]) -> None:
    """Reads on and throws away what comes, up to ``DISCARDED_BYTES``."""
    length = 0
    async for chunk in chunks:
        length += len(chunk)
        if length > DISCARDED_BYTES:
            return


async def read_body(request: Request, settings: Settings) -> bytes:
    """The whole body. Raises ProblemError (413)."""
    chunks = _limited(request, settings.max_request_bytes, "max_request_bytes")
    return b"".join([chunk async for chunk in chunks])


async def read_bulk(request: Request, settings: Settings) -> bytes:
    """A whole body of many queries. Raises ProblemError (413)."""
    chunks = _limited(request, settings.max_bulk_bytes, "max_bulk_bytes")
    return b"".join([chunk async for chunk in chunks])


async def read_message(request: Request, settings: Settings) -> bytes:
    """A body that becomes one message of the command log. Raises ProblemError (413)."""
    chunks = _limited(request, settings.max_message_bytes, "max_message_bytes")
    return b"".join([chunk async for chunk in chunks])


async def read_lines(request: Request, settings: Settings) -> AsyncIterator[list[Line]]:
    """The lines of an NDJSON body, as many at a time as have arrived. O(bytes), however it is cut.

    Raises ProblemError (413) on a body or a line that is too long.
    """
    max_line = settings.max_message_bytes
    number = 0
    unfinished: list[bytes] = []
    pending = 0
    async for chunk in _limited(request, settings.max_bulk_bytes, "max_bulk_bytes"):
        head, *rest = chunk.split(b"\n")
        unfinished.append(head)
        pending += len(head)
        complete: list[bytes] = []
        for text in rest:
            complete.append(b"".join(unfinished))
            unfinished, pending = [text], len(text)
        _check_lines(complete, pending, number, max_line)
        yield [Line(number + i, text) for i, text in enumerate(complete, 1) if text.strip()]
        number += len(complete)
    last = b"".join(unfinished)
    _check_lines([last], 0, number, max_line)
    if last.strip():
        yield [Line(number + 1, last)]


def _check_lines(complete: list[bytes], pending: int, number: int, max_line: int) -> None:
    for i, length in enumerate((*map(len, complete), pending), number + 1):
        if length > max_line:
            raise too_large(f"line {i}", max_line, "max_message_bytes")


def json_answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON answer. Integers of any size and texts of any kind pass."""
    return Response(json.dumps(value).encode(), status, dict(headers or {}), "application/json")
