"""A service to play on: the worker on its embedded log, in a temporary file, with a clock that is moved.

The worker is stepped by hand until it has caught up, so every call returns when all that it caused is
committed. A restart is a restart: log and worker are closed and opened anew, and nothing else is kept.

Not for: HTTP, whose handlers do no more than these calls.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from service.deliveries import Delivery
from service.engine.commands import Command, Outcome
from service.engine.engine import Engine
from service.log.port import Message, TopicPartition
from service.log.sqlite import SqliteLog
from service.log.topics import OUTPUTS
from service.metrics import Metrics
from service.model import Reason, Refusal
from service.requests import CommandRequest
from service.runtime import make_worker
from service.settings import Settings
from service.worker import Worker

#: More than any message or record of a test has.
_MAX_LOG_BYTES = 64 << 20
#: Turns of the loop within which everything that was asked for must have happened.
_MOST_TURNS = 1_000
_PAGE = 1_000


class Stage:
    """See the module; a context manager. Times are ms, and begin at 0."""

    def __init__(self, settings: Settings) -> None:
        self.now_ms = 0
        self._settings = settings
        self._folder = tempfile.TemporaryDirectory(prefix="rangewatch-test-")
        self._read_to = dict.fromkeys(OUTPUTS, 0)
        self._log, self._worker = self._make()

    def __enter__(self) -> Stage:
        try:
            self._open()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._worker.close()
        finally:
            self._folder.cleanup()

    def _make(self) -> tuple[SqliteLog, Worker]:
        """A worker that knows nothing yet, on the one file."""
        file = Path(self._folder.name) / "log.db"
        log = SqliteLog(file, max_message_bytes=_MAX_LOG_BYTES, clock_ms=lambda: self.now_ms)
        return log, make_worker(log, self._settings, Metrics(), lambda: self.now_ms)

    def _open(self) -> None:
        self._worker.open()
        self._catch_up()

    # ---- what can be done

    def restart(self) -> None:
        self._worker.close()
        self._log, self._worker = self._make()
        self._open()

    def advance(self, now_ms: int) -> None:
        """Moves the clock on, never back, and lets the worker do what is due then."""
        if now_ms > self.now_ms:
            self.now_ms = now_ms
            self._catch_up()

    def command(self, command: Command) -> Outcome:
        """Makes a change that holds when this returns. Raises its Refusal."""
        (outcome,) = self.commands([command])
        return outcome

    def commands(self, commands: Sequence[Command]) -> list[Outcome]:
        """Makes changes, all or nothing. Raises the first Refusal."""
        heard: list[CommandRequest] = []
        self._ask(CommandRequest(commands, True, heard.append, _raise), heard)
        results = heard[0].results
        for result in results:
            if isinstance(result, Refusal):
                raise result
        return [result for result in results if isinstance(result, Outcome)]

    @property
    def engine(self) -> Engine:
        """To be asked, not to be changed."""
        return self._worker.engine

    def send(self, source: str, key: bytes | None, value: bytes | None, *, at_ms: int | None) -> None:
        """Puts a message on the topic of a source, at ``at_ms`` if that is later than now; it is processed
        when this returns. One turn of the loop sees both, the message and that time has passed."""
        self.now_ms = max(self.now_ms, at_ms or 0)
        self._deliver(source, Message(key, value))

    def remove_stream(self, source: str, stream_id: str) -> None:
        """Raises Refusal (unknown_id) where there is no such stream."""
        if not self._deliver(source, Message(stream_id.encode(), None)).removed:
            raise Refusal(Reason.UNKNOWN_ID, "id", f"source {source!r} has no stream {stream_id!r}")

    def records(self) -> dict[str, list[dict[str, Any]]]:
        """The records written since the last call, by topic."""
        found: dict[str, list[dict[str, Any]]] = {}
        for topic in OUTPUTS:
            found[topic] = []
            while records := self._log.read(topic, after=self._read_to[topic], limit=_PAGE)[0]:
                found[topic] += [json.loads(record.value or b"null") for record in records]
                self._read_to[topic] = records[-1].offset + 1
        return found

    # ---- the loop

    def _deliver(self, source: str, message: Message) -> Delivery:
        known = self._worker.engine.catalog.sources.get(source)
        if known is None:
            raise Refusal(Reason.UNKNOWN_SOURCE, "source", f"there is no source {source!r}")
        heard: list[Delivery] = []
        self._ask(Delivery(known.topic, [message], heard.append, _raise), heard)
        return heard[0]

    def _ask(self, request: CommandRequest | Delivery, heard: list[Any]) -> None:
        self._worker.step([request], timeout_s=0)
        self._turn_until(lambda: bool(heard))
        self._catch_up()

    def _catch_up(self) -> None:
        """Lets the worker do all that there is to do: read on, take on partitions, write what is due."""
        self._worker.step([], timeout_s=0)
        self._turn_until(lambda: self._worker.ready and not self._lags())

    def _lags(self) -> bool:
        """Whether something waits to be read, is due or owed."""
        positions, engine = self._worker.positions, self._worker.engine
        ends = self._log.end_offsets([TopicPartition(*task) for task in positions])
        return (
            bool(engine.catalog.expired(self.now_ms))
            or engine.owes
            or any(
                position < ends[TopicPartition(*task)] or engine.due(task, self.now_ms)
                for task, position in positions.items()
            )
        )

    def _turn_until(self, done: Callable[[], bool]) -> None:
        for _ in range(_MOST_TURNS):
            if done():
                return
            self._worker.step([], timeout_s=0)
        raise RuntimeError(f"the worker has not caught up within {_MOST_TURNS} turns")


def _raise(error: BaseException) -> None:
    raise error
