"""Answers that clients do not take, bounded together.

Idea: an answer goes to its connection a piece at a time, the next one when the line has nearly taken those
before, so that what waits of all answers is known here and in the buffers of connections (which count what
waits in them as well: ``cli.connections``), over TLS too. When it is more than may wait, no further answer is
begun. What the buffers of connections hold before they are full, some pieces each, is not counted.

Not for: clients that take nothing at all, or hardly anything. Their connections are cut.
"""

from __future__ import annotations

from collections.abc import Collection

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.problems import problem

PIECE_BYTES = 64 * 1024


class Unsent:
    """The account of the bytes that wait for clients to take them. For one event loop."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.bytes = 0


class _TooMuch(Exception):
    """An answer that was made while others came to wait."""


class Answers:
    """An application whose answers go out in pieces and are accounted for. ``always``: the paths that are
    answered whatever waits. ``asking``: those at which a POST changes nothing, as no GET does."""

    def __init__(
        self, app: ASGIApp, unsent: Unsent, always: Collection[str] = (), asking: Collection[str] = ()
    ) -> None:
        self._app = app
        self._unsent = unsent
        self._always = always
        self._asking = asking

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Many may ask before the first answer waits, so who has only asked is told so in the end, too. Of
        what is done the client has to know."""
        path, most = scope.get("path"), self._unsent.max_bytes
        is_bounded = path not in self._always
        changes_nothing = is_bounded and (scope.get("method") == "GET" or path in self._asking)

        async def in_pieces(message: Message) -> None:
            if message["type"] == "http.response.body":
                await self._send_body(message, send)
            elif changes_nothing and self._unsent.bytes > most:
                raise _TooMuch
            else:
                await send(message)

        try:
            if is_bounded and self._unsent.bytes > most:
                raise _TooMuch
            await self._app(scope, receive, in_pieces)
        except _TooMuch:
            detail = f"clients have not taken more than the {most} bytes of max_unsent_bytes; try again"
            await problem(503, "unavailable", "", detail)(scope, receive, send)

    async def _send_body(self, message: Message, send: Send) -> None:
        body, more = message.get("body", b""), message.get("more_body", False)
        waiting = len(body)
        self._unsent.bytes += waiting
        try:
            for begin in range(0, max(len(body), 1), PIECE_BYTES):
                piece = body[begin : begin + PIECE_BYTES]
                is_last = begin + PIECE_BYTES >= len(body)
                await send({**message, "body": piece, "more_body": more or not is_last})
                self._unsent.bytes -= len(piece)
                waiting -= len(piece)
        finally:
            self._unsent.bytes -= waiting
