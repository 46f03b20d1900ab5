"""Connections, bounded: how many there are, and how long each may take. None of it asks for a key.

Idea: every connection is a file of the process, and who runs out of files can neither let anybody in nor go
on working. So the listening socket counts the connections that it has handed out (before TLS, which takes
time) and turns the newest away when there are as many as may be; some files are left for the service itself.
A connection that has no request under way must send the whole head of one in time, and one that is written
to must take it in time, or it is cut. A head has a length that it may have at the most.

Not for: bodies, which have limits of their own (``api.bodies``).
"""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import os
import resource
import socket
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from service.api.problems import REASON_OF_STATUS, problem
from service.api.unsent import Unsent

_logger = logging.getLogger("rangewatch")

#: Files that connections leave to the service: its log (a file and its companions, or two to a broker), its
#: keys and certificates, kernels that are loaded when first used.
OWN_FILES = 128
#: How long the whole head of a request may take to come; many times what any client needs.
HEAD_TIMEOUT_S = 30.0
#: How long a client may take for so much of what waits for it: hardly a line is as slow as that.
TAKING_TIMEOUT_S = 60.0
_LEAST_TAKEN_BYTES = 32 * 1024
#: How much waits in a connection before it is to be given no more.
_BUFFER_BYTES = 64 * 1024
#: How long the head of a request may be; many times what any client needs.
MOST_HEAD_BYTES = 64 * 1024
#: How long the same thing is not said again, where clients without a key can cause it at any rate.
SILENCE_S = 60.0

#: A body may say its length in both ways: it is read by the latter, but whoever stands in between may have
#: gone by the former. So what follows on the connection is nobody's request (RFC 9112, 6.3).
_LENGTHS = {b"content-length", b"transfer-encoding"}

_CLOSES = {"Connection": "close"}

_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_PAUSE_S = 0.01


def connections_of_process(wanted: int) -> int:
    """How many connections there may be, ``wanted`` at the most: so many files as the process may open but
    ``OWN_FILES``, or half of them where that is more. Raises the process's own limit as far as it needs and
    may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = wanted + OWN_FILES
    if soft != resource.RLIM_INFINITY and soft < files:
        soft = files if hard == resource.RLIM_INFINITY else min(files, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    most = wanted if soft == resource.RLIM_INFINITY else min(wanted, max(soft - OWN_FILES, soft // 2))
    if most < wanted:
        _logger.warning(
            "max_connections is %d, and not %d: the process may open %d files; raise that (ulimit -n)",
            *(most, wanted, soft),
        )
    return most


class Seldom:
    """Whether to say something now that was not said for a while."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next = float("-inf")

    def __call__(self) -> bool:
        now = self._clock()
        if now < self._next:
            return False
        self._next = now + SILENCE_S
        return True


class _Counted(socket.socket):
    """A connection that says when it is closed, however that comes to be."""

    on_close: Callable[[], None] | None = None

    def close(self) -> None:
        super().close()
        if self.on_close is not None:
            self.on_close()
            self.on_close = None


class Listening(socket.socket):
    """A listening socket with no more than ``most`` connections at once. For one event loop.
    ``answers_in_clear``: whether who is turned away can read HTTP, which it cannot where TLS comes first."""

    def __init__(self, family: int, most: int, *, answers_in_clear: bool) -> None:
        super().__init__(family, socket.SOCK_STREAM)
        self._most = most
        self._open = 0
        self._spare: int | None = os.open(os.devnull, os.O_RDONLY)
        self._tells_full, self._tells_out = Seldom(), Seldom()
        self._answers_in_clear = answers_in_clear

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection that there is room for. Raises BlockingIOError when nobody waits any more."""
        while True:
            try:
                connection, address = super().accept()
            except OSError as error:
                if error.errno not in _NO_ROOM:
                    raise
                self._turn_away_by_spare(error)
                continue
            if self._open < self._most:
                self._open += 1
                counted = _Counted(fileno=connection.detach())
                counted.on_close = self._one_less
                return counted, address
            self._turn_away(connection)

    def close(self) -> None:
        super().close()
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None

    def _one_less(self) -> None:
        self._open -= 1

    def _turn_away(self, connection: socket.socket) -> None:
        if self._tells_full():
            _logger.warning(
                "there are %d connections (max_connections): new ones are turned away", self._most
            )
        with connection:
            connection.setblocking(False)
            if self._answers_in_clear:
                try:
                    connection.send(_full(self._most))
                    connection.shutdown(socket.SHUT_WR)
                except OSError:
                    pass  # gone already

    def _turn_away_by_spare(self, error: OSError) -> None:
        """Others have taken the files that were left: lets go of the one kept for this, so that who waits is
        turned away and does not wait for ever. The loop would try again without a pause, and log each try."""
        if self._tells_out():
            _logger.error("no connection can be taken (%s): new ones are turned away", error.strerror)
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None
        try:
            connection, _ = super().accept()
            connection.close()
        except OSError:
            time.sleep(_PAUSE_S)
            raise BlockingIOError from None
        finally:
            try:
                self._spare = os.open(os.devnull, os.O_RDONLY)
            except OSError:
                self._spare = None


def _full(most: int) -> bytes:
    detail = f"there are {most} connections, as many as max_connections allows; try again"
    answer = problem(503, "unavailable", "", detail, headers=_CLOSES)
    status = HTTPStatus(answer.status_code)
    lines = [
        f"HTTP/1.1 {status.value} {status.phrase}".encode(),
        *map(b": ".join, answer.raw_headers),
        b"",
        b"",
    ]
    return b"\r\n".join(lines) + bytes(answer.body)


class Http(h11.Connection):
    """What a client sends, read as HTTP. The library bounds what is there of a head only while its end is
    missing, so how long one may be would be chance: it depends on how much of it is received at once."""

    def __init__(self) -> None:
        super().__init__(h11.SERVER, MOST_HEAD_BYTES)
        self.error: h11.RemoteProtocolError | None = None

    def next_event(self) -> Any:
        try:
            event = super().next_event()
            if isinstance(event, h11.Request) and _head_bytes(event) > MOST_HEAD_BYTES:
                raise h11.RemoteProtocolError("its head is too long", error_status_hint=431)
        except h11.RemoteProtocolError as error:
            self.error = error
            raise
        return event


def _head_bytes(request: h11.Request) -> int:
    return len(request.target) + sum(len(name) + len(value) for name, value in request.headers)


class Connection(H11Protocol):
    """Uvicorn's protocol, with an end in time to all that a client can leave undone."""

    _head_due: asyncio.TimerHandle | None = None
    _taking_due: asyncio.TimerHandle | None = None

    def __init__(self, *args: Any, unsent: Unsent, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conn: Http = Http()
        self._unsent = unsent
        self._counted_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # Over TLS it would be many times as much that waits and is not counted.
        transport.set_write_buffer_limits(_BUFFER_BYTES)
        self._look()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look()

    def send_400_response(self, msg: str) -> None:
        """Says why it is none, where no other answer has begun."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            error = self.conn.error
            status = HTTPStatus(error.error_status_hint if error else HTTPStatus.BAD_REQUEST)
            detail = f"{msg} {error or ''}".strip()
            answer = problem(status, REASON_OF_STATUS[status], "", detail, headers=_CLOSES)
            events = (
                h11.Response(status_code=status, headers=answer.raw_headers, reason=status.phrase.encode()),
                h11.Data(data=bytes(answer.body)),
                h11.EndOfMessage(),
            )
            self.transport.write(b"".join(self.conn.send(event) or b"" for event in events))
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for due in (self._head_due, self._taking_due):
            if due is not None:
                due.cancel()
        self._count(0)

    def pause_writing(self) -> None:
        super().pause_writing()
        waiting = self.transport.get_write_buffer_size()
        self._count(waiting)
        self._taking_due = self._taken_later(waiting)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._count(0)
        if self._taking_due is not None:
            self._taking_due.cancel()
            self._taking_due = None

    def _count(self, waiting: int) -> None:
        """Nothing more is written while a connection is paused, so what waits then is the most that does."""
        self._unsent.bytes += waiting - self._counted_bytes
        self._counted_bytes = waiting

    def _look(self) -> None:
        """Whoever has no request under way has so long to send the head of one, in however many pieces."""
        if self.cycle is None or self.cycle.response_complete:
            if self._head_due is None:
                self._head_due = self._head_later(math.inf)
            return
        if self._head_due is not None:
            self._head_due.cancel()
            self._head_due = None
        if {name for name, _ in self.headers} >= _LENGTHS:
            self.cycle.keep_alive = False

    def _head_later(self, waiting: float) -> asyncio.TimerHandle:
        return self.loop.call_later(HEAD_TIMEOUT_S, self._head_is_late, waiting)

    def _head_is_late(self, waiting: float) -> None:
        """... or to take the answer before, of which so many bytes were waiting."""
        now_waiting = self.transport.get_write_buffer_size()
        if 0 < now_waiting < waiting:
            self._head_due = self._head_later(now_waiting)
        else:
            self.transport.abort()

    def _taken_later(self, waiting: int) -> asyncio.TimerHandle:
        return self.loop.call_later(TAKING_TIMEOUT_S, self._taking_is_late, waiting)

    def _taking_is_late(self, waiting: int) -> None:
        now_waiting = self.transport.get_write_buffer_size()
        if now_waiting <= waiting - _LEAST_TAKEN_BYTES:
            self._taking_due = self._taken_later(now_waiting)
        else:
            self.transport.abort()
