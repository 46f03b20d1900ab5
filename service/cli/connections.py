"""Connections, bounded: how many there are, and how long each may take. None of it asks for a key.

Idea: every connection is a file of the process, and who runs out of files can neither let anybody in nor go
on working. So the listening socket counts the connections that it has handed out (before TLS, which takes
time) and turns the newest away when there are as many as may be; some files are left for the service itself.
A connection that has no request under way must send the whole head of one in time, and one that is written
to must take it in time, or it is cut. A head has a length that it may have at the most.

What is received at once may be many small things to read, and all connections share one thread. So a
connection reads a few of them at a time (``Turns``), and of a body what wraps its content is bounded.

Not for: what bodies contain, which has limits of its own (``api.bodies``).
"""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import os
import re
import resource
import socket
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.flow_control import FlowControl
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
#: How many lines a head, or what follows the chunks of a body, may have; each costs time of all.
MOST_HEAD_LINES = 256
#: How many events (heads, pieces and ends of bodies) a connection reads before others have their turn.
MOST_EVENTS = 16
#: How much is looked at at once where its meaning has to be found.
_PIECE_BYTES = 8 * 1024
#: How much longer than half of its content the wrapping of a body may be: the sizes of its chunks, and what
#: else comes with them. Chunks of a dozen bytes each pass, however many they are.
MOST_WRAPPING_BYTES = 16 * 1024
#: How much of a body is read once it has been answered: it may have been on its way.
MOST_LATE_BYTES = 64 * 1024
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
    """What a client sends, read as HTTP, ``may_read`` events more. The library looks at all that it is given,
    and bounds what is there of a head only while its end is missing: so it is given a piece at a time."""

    def __init__(self) -> None:
        super().__init__(h11.SERVER, MOST_HEAD_BYTES)
        self.error: h11.RemoteProtocolError | None = None
        self.may_read: float = math.inf
        self._received = bytearray()
        self._is_chunked = False
        self._given_bytes = self._content_bytes = self._late_bytes = 0

    def receive_data(self, data: bytes) -> None:
        self._received += data

    def next_event(self) -> Any:
        try:
            return self._next_event()
        except h11.RemoteProtocolError as error:
            self.error = error
            raise

    def _next_event(self) -> Any:
        if self.may_read <= 0:
            return h11.NEED_DATA
        while (event := super().next_event()) is h11.NEED_DATA:
            self._check_unfinished()
            if not self._received:
                return event
            self._give()
        self.may_read -= 1
        if isinstance(event, h11.Request):
            if _head_bytes(event) > MOST_HEAD_BYTES:
                raise h11.RemoteProtocolError("its head is too long", error_status_hint=431)
            self._is_chunked = any(name == b"transfer-encoding" for name, _ in event.headers)
            self._given_bytes = self._content_bytes = self._late_bytes = 0
        elif isinstance(event, h11.Data):
            self._content_bytes += len(event.data)
            if self.our_state is h11.DONE:
                self._late_bytes += len(event.data)
                if self._late_bytes > MOST_LATE_BYTES:
                    raise h11.RemoteProtocolError("a body goes on that has been answered")
        return event

    def _give(self) -> None:
        is_plain = self.their_state is h11.SEND_BODY and not self._is_chunked
        piece = self._received if is_plain else self._received[:_PIECE_BYTES]
        super().receive_data(bytes(piece))
        self._given_bytes += len(piece)
        del self._received[: len(piece)]

    def _check_unfinished(self) -> None:
        """What waits is no content of a body: the beginning of a head, of a chunk, or of what follows the
        last chunk."""
        if self.trailing_data[0].count(b"\n") > MOST_HEAD_LINES:
            detail = f"there are more than {MOST_HEAD_LINES} lines of headers"
            raise h11.RemoteProtocolError(detail, error_status_hint=431)
        if self.their_state is h11.SEND_BODY:
            wrapping = self._given_bytes - self._content_bytes
            if wrapping > MOST_WRAPPING_BYTES + self._content_bytes // 2:
                raise h11.RemoteProtocolError("the chunks of the body are too small: send it in larger ones")


def _head_bytes(request: h11.Request) -> int:
    return len(request.target) + sum(len(name) + len(value) for name, value in request.headers)


#: How the library quotes what a client has sent, which may be its key.
_QUOTED = re.compile(r":? ?(?:bytearray\()?b['\"]")


class Turns:
    """The connections that have received more than they may read at a time. One of them reads on each time
    that the loop comes round, so whoever is new waits for a few events of one of them, however many there
    are. For one event loop."""

    def __init__(self) -> None:
        self._waiting: dict[Connection, None] = {}
        self._is_due = False

    def wait(self, connection: Connection) -> None:
        self._waiting[connection] = None
        self._go_on()

    def _go_on(self) -> None:
        if self._waiting and not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._next)

    def leave(self, connection: Connection) -> None:
        self._waiting.pop(connection, None)

    def _next(self) -> None:
        self._is_due = False
        if self._waiting:
            connection = next(iter(self._waiting))
            self.leave(connection)
            connection.read_on()  # and may wait again, behind the others
        self._go_on()


class Flow(FlowControl):
    """Reading pauses while the application has enough, as in uvicorn, and while a connection waits its
    turn."""

    _waits = False

    def pause_reading(self) -> None:
        self.read_paused = True
        self._set()

    def resume_reading(self) -> None:
        self.read_paused = False
        self._set()

    def wait(self, waits: bool) -> None:
        self._waits = waits
        self._set()

    def _set(self) -> None:
        if self.read_paused or self._waits:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()


class Connection(H11Protocol):
    """Uvicorn's protocol, with an end in time to all that a client can leave undone, and reading by turns."""

    _head_due: asyncio.TimerHandle | None = None
    _taking_due: asyncio.TimerHandle | None = None

    def __init__(self, *args: Any, unsent: Unsent, turns: Turns, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conn: Http = Http()
        self._unsent = unsent
        self._turns = turns
        self._counted_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow: Flow = Flow(transport)
        # Over TLS it would be many times as much that waits and is not counted.
        transport.set_write_buffer_limits(_BUFFER_BYTES)
        self._look()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def handle_events(self) -> None:
        self.conn.may_read = MOST_EVENTS
        super().handle_events()
        is_more = self.conn.may_read <= 0 and not self.transport.is_closing()
        self.flow.wait(is_more)
        if is_more:
            self._turns.wait(self)

    def read_on(self) -> None:
        """It is this connection's turn."""
        if not self.transport.is_closing():
            self.handle_events()
            self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look()

    def send_400_response(self, msg: str) -> None:
        """Says why it is none, where no other answer has begun; nothing of what the client has sent."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            error = self.conn.error
            status = HTTPStatus(error.error_status_hint if error else HTTPStatus.BAD_REQUEST)
            detail = f"{msg} {_QUOTED.split(str(error or ''), maxsplit=1)[0]}".strip()
            answer = problem(status, REASON_OF_STATUS[status], "", detail, headers=_CLOSES)
            events = (
                h11.Response(status_code=status, headers=answer.raw_headers, reason=status.phrase.encode()),
                h11.Data(data=bytes(answer.body)),
                h11.EndOfMessage(),
            )
            self.transport.write(b"".join(self.conn.send(event) or b"" for event in events))
        if self.cycle is not None:
            self.cycle.disconnected = True  # whatever is still done for it
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._turns.leave(self)
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
