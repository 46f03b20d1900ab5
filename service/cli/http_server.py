"""The HTTP server, and how it ends.

When a stop is asked for, whoever listens is cut at once: they would keep their connections open without end.
Requests under way may go on, and need the worker for that, so it stops after them. There is one time for all
of it, ``stop_timeout_s``: requests have half of it at the most, and what they leave is the worker's. Who is
cut off is told so.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from ssl import SSLContext

from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn import Config, Server

from service.api.problems import problem
from service.api.unsent import Unsent
from service.cli.connections import Connection, Seldom, Turns
from service.live import Hub


class HttpServer(Server):
    """Uvicorn's server. ``clock``: s, of any origin."""

    def __init__(
        self,
        app: FastAPI,
        hub: Hub,
        unsent: Unsent,
        *,
        stop_timeout_s: float,
        tls: SSLContext | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        config = Config(
            CutOff(app),
            # Those that are bounded (``connections``), whatever else is installed.
            http=partial(Connection, unsent=unsent, turns=Turns()),  # type: ignore[arg-type]  # what makes one will do
            loop="asyncio",
            log_config=None,
            access_log=False,
            server_header=False,
            headers=[("X-Content-Type-Options", "nosniff")],
            lifespan="off",
            timeout_graceful_shutdown=stop_timeout_s / 2,  # type: ignore[arg-type]  # it need not be whole
        )
        config.load()
        config.ssl = tls
        super().__init__(config)
        for tells in (_is_no_end, Warnings()):
            logging.getLogger("uvicorn.error").addFilter(tells)
        self._hub = hub
        self._stop_timeout_s = stop_timeout_s
        self._clock = clock
        self._stop_by: float | None = None

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._stop_by = self._clock() + self._stop_timeout_s
        self._hub.stop()
        await super().shutdown(sockets)

    @property
    def left_s(self) -> float:
        """How long the stop may still take."""
        if self._stop_by is None:
            return self._stop_timeout_s
        return max(self._stop_by - self._clock(), 0.0)


class CutOff:
    """An application whose requests are told that the stop has ended them, where no answer has begun."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = False

        async def send_and_note(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, send_and_note)
        except asyncio.CancelledError:
            if has_begun:
                raise
            detail = "the service is stopping; whether a change that was asked for holds is not known"
            answer = problem(503, "unavailable", "", detail, headers={"Connection": "close"})
            await answer(scope, receive, send)


def _is_no_end(record: logging.LogRecord) -> bool:
    """The server says how many requests it has cut off in the end: where each of them was says nothing."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


class Warnings(logging.Filter):
    """The server warns of every request that is no HTTP, or that wants an upgrade, and no key is needed for
    one: each kind of warning is told seldom."""

    def __init__(self) -> None:
        super().__init__()
        self._tells: defaultdict[str, Seldom] = defaultdict(Seldom)

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno != logging.WARNING or self._tells[str(record.msg)]()
