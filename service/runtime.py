"""The runtime: the worker on a thread of its own, and the bounded queue that leads to it.

Invariants: one thread owns engine and log; everybody else hands it requests and gets futures. The queue
is bounded: when it is full the caller hears ``Busy`` at once. While the log is away the worker pauses and
tries again, nothing is dropped: questions are answered from memory, whoever wants to write hears
LogUnavailable at once. When another worker has taken over it starts afresh from the log; anything else ends
it, and ``failure`` says what it was.
"""

from __future__ import annotations

import contextlib
import logging
import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import Any, NamedTuple, TypeVar

from service.deliveries import Delivery
from service.engine.commands import Command, Outcome
from service.engine.engine import Engine, EngineLimits
from service.garbage import at_start
from service.indexing import index_factory, read_overrides
from service.language import Limits
from service.live import Hub
from service.log.port import Log, LogFenced, LogUnavailable, LogUnusable, Message, Output, Record
from service.metrics import Metrics
from service.model import Reason, Refusal
from service.registry import NoRegistry, Registry, Schemas
from service.requests import CommandRequest
from service.settings import Settings
from service.tenants import DEFAULT_TENANT
from service.where import ShapeLimits
from service.worker import Listener, Worker

logger = logging.getLogger("rangewatch")

T = TypeVar("T")

IDLE_POLL_S = 0.25
RETRY_S = 0.5
MEASURE_EVERY_S = 5.0
#: So often in a row a worker may be passed over before it stands back, and how long at most; s.
_FENCINGS = 3
_FENCED_AGAIN_S = 60.0
_MOST_BACK_S = 30.0
#: How long who is let into the log just as it is to stop has to leave it again; s.
_LET_IN_S = 1.0


class Busy(Exception):
    """The queue to the worker is full; try again in a moment."""


class NotRunning(Exception):
    """The worker has stopped or could not start; the service must be looked after."""


class Receipt(NamedTuple):
    """Where messages lie in the log, (partition, offset) each; with ``wait``, what the sender is told of
    them, in order, or None where another worker processes some, or where that is longer than an answer may
    be."""

    positions: list[tuple[int, int]]
    outputs: list[Output] | None
    refused: int | None


def _receipt(done: Delivery) -> Receipt:
    if done.elsewhere or done.too_long:
        return Receipt(done.positions, None, None)
    return Receipt(done.positions, done.outputs, done.refused)


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def _settle(future: Future[T], result: T) -> None:
    """Answers, unless whoever asked has given up."""
    with contextlib.suppress(InvalidStateError):
        future.set_result(result)


def _fail(future: Future[T], error: BaseException) -> None:
    with contextlib.suppress(InvalidStateError):
        future.set_exception(error)


class _Question(NamedTuple):
    ask: Callable[[], None]
    failed: Callable[[BaseException], None]


def limits_of(settings: Settings) -> Limits:
    """What one query may have, as the settings have it."""
    return Limits(disjuncts=settings.max_disjuncts, shapes=ShapeLimits(vertices=settings.max_vertices))


def make_worker(
    log: Log,
    settings: Settings,
    metrics: Metrics,
    clock: Callable[[], int],
    listener: Listener | None = None,
    schemas: Schemas | None = None,
) -> Worker:
    """A worker as the settings have it; ``clock`` is the wall time, ms since 1970; ``schemas``: where it gets
    schemas from, if anywhere."""
    limits = limits_of(settings)
    engine_limits = EngineLimits(
        streams=settings.max_streams,
        ids=settings.max_ids_per_record,
        queries=settings.max_queries,
        queries_tenant=settings.max_queries_tenant,
        disjuncts_tenant=settings.max_disjuncts_tenant,
        trace=settings.trace_events,
        portion=settings.portion_records,
    )
    make_index = index_factory(read_overrides(settings.index))
    return Worker(
        log,
        lambda: Engine(limits=limits, engine_limits=engine_limits, make_index=make_index),
        metrics,
        clock=clock,
        max_message_bytes=settings.max_message_bytes,
        max_message_events=settings.max_message_events,
        max_batch_events=settings.max_batch_events,
        listener=listener,
        lost_input=settings.lost_input,
        schemas=schemas,
    )


class Runtime:
    """See the module. Every method may be called from any thread."""

    def __init__(
        self, log: Log, settings: Settings, metrics: Metrics, *, clock: Callable[[], int] = wall_ms
    ) -> None:
        self._log = log
        self._metrics = metrics
        self._most_answer_bytes = settings.max_answer_bytes
        self._queue: queue.Queue[CommandRequest | Delivery | _Question] = queue.Queue(settings.queue_size)
        #: questions off the queue that are not answered yet; as many as the queue has at the most
        self._asked: deque[_Question] = deque()
        self._stopping = threading.Event()
        self._ready = threading.Event()
        #: nothing is under way: it has ended, or only waits to be let into the log
        self._still = threading.Event()
        self._thread = threading.Thread(target=self._run, name="worker", daemon=True)
        self.failure: BaseException | None = None
        self.hub = Hub(
            max_feeds=settings.max_live_clients,
            max_feeds_tenant=settings.max_live_clients_tenant,
            max_records=settings.max_live_records,
        )
        self._away: LogUnavailable | None = None
        self._name = settings.worker
        #: how often it was passed over in a row, and until when one time more counts to these
        self._fencings = 0
        self._fencings_until = 0.0
        self.schemas = Registry(settings) if settings.schema_registry_url else NoRegistry()
        self._worker = make_worker(log, settings, metrics, clock, self.hub, self.schemas)

    def start(self) -> None:
        """Starts the worker and returns at once; ``ready`` says when it has caught up."""
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Ends the worker after its current step, leaves the group and raises what it had died of, if so. One
        that a log keeps waiting at the door has nothing to end."""
        self._stopping.set()
        self._log.wake()
        if not self._still.wait(timeout_s):
            raise TimeoutError(f"the worker has not stopped within {timeout_s} s")
        self._thread.join(min(timeout_s, _LET_IN_S))
        if self.failure is not None:
            raise self.failure

    @property
    def ready(self) -> bool:
        """Whether the query set and the state have caught up since the start, and the worker is at work."""
        return self._ready.is_set() and self.failure is None

    @property
    def caught_up(self) -> bool:
        """Whether it is ready, and no partition waits that has come to this worker since."""
        return self.ready and not self._worker.behind

    @property
    def held(self) -> str | None:
        """Why input waits that could be read, if some does; all else goes on."""
        return self._worker.held

    # ---- what others may ask

    def command(
        self, commands: Sequence[Command], *, atomic: bool, by: str | None = None
    ) -> Future[list[Outcome | Refusal | None]]:
        """Judges and applies commands; done when the changes hold. See ``requests.CommandRequest``."""
        future: Future[list[Outcome | Refusal | None]] = Future()
        self._put(
            CommandRequest(
                commands,
                atomic,
                lambda one: _settle(future, one.results),
                lambda error: _fail(future, error),
                by,
            )
        )
        return future

    def send(
        self, source: str, messages: Sequence[Message], *, wait: bool, tenant: str = DEFAULT_TENANT
    ) -> Future[Receipt]:
        """Appends messages to the topic of a source. ``wait``: done when they are processed and committed,
        with what ``tenant`` is told of them.

        Raises Refusal (in the future) for an unknown source."""
        future: Future[Receipt] = Future()
        topic = self._topic(source)
        if topic is None:
            future.set_exception(Refusal(Reason.UNKNOWN_SOURCE, "source", f"there is no source {source!r}"))
        elif wait:
            self._put(
                Delivery(
                    topic,
                    messages,
                    lambda one: _settle(future, _receipt(one)),
                    lambda error: _fail(future, error),
                    tenant=tenant,
                    room=self._most_answer_bytes,
                )
            )
        else:
            try:
                self._refuse_writes()
                future.set_result(Receipt(self._log.append_events(topic, messages), None, None))
            except Exception as error:
                future.set_exception(error)
        return future

    def remove_stream(self, source: str, stream_id: str) -> Future[bool | None]:
        """Removes a stream by a tombstone; False if it was not there, None if another worker does it."""
        future: Future[bool | None] = Future()
        topic = self._topic(source)
        if topic is None:
            future.set_exception(Refusal(Reason.UNKNOWN_SOURCE, "source", f"there is no source {source!r}"))
        else:
            tombstone = Message(stream_id.encode(), None)
            self._put(
                Delivery(
                    topic,
                    [tombstone],
                    lambda one: _settle(future, None if one.elsewhere else one.removed),
                    lambda error: _fail(future, error),
                    room=0,
                )
            )
        return future

    def ask(self, question: Callable[[Engine], T]) -> Future[T]:
        """Answers a question from the engine, between two steps, by the worker's thread."""
        future: Future[T] = Future()

        def answer() -> None:
            try:
                found = question(self._worker.engine)
            except Exception as error:
                _fail(future, error)
            else:
                _settle(future, found)

        self._put(_Question(answer, lambda error: _fail(future, error)))
        return future

    def picture(self, question: Callable[[Engine], T]) -> Future[tuple[int, T]]:
        """As ``ask``, with the number of the first commit that the answer does not have (``live``)."""
        return self.ask(
            lambda engine: (self.hub.mark(uncommitted=self._worker.uncommitted), question(engine))
        )

    def history(self, start: int, limit: int, most_bytes: float) -> Future[tuple[list[tuple[int, Any]], int]]:
        """A stretch of the command log; see ``worker.Worker.history``. It is read between two steps, so its
        limits bound how long events wait for it."""
        return self.ask(lambda _: self._worker.history(start, limit, most_bytes))

    def gone(self, topic: str) -> tuple[int, Mapping[str, int]]:
        """What an output topic has no more; see ``log.port.Log.gone``."""
        return self._log.gone(topic)

    def read(
        self, topic: str, after: int, limit: int, most_bytes: float = math.inf
    ) -> tuple[list[Record], int]:
        """Records of an output topic; see ``log.port.Log.read``."""
        return self._log.read(topic, after=after, limit=limit, most_bytes=most_bytes)

    def partitions(self, source: str) -> int:
        """How many partitions the topic of a source has. Raises Refusal for an unknown source."""
        topic = self._topic(source)
        if topic is None:
            raise Refusal(Reason.UNKNOWN_SOURCE, "source", f"there is no source {source!r}")
        return self._log.partitions(topic)

    def _topic(self, source: str) -> str | None:
        known = self._worker.engine.catalog.sources.get(source)
        return known.topic if known else None

    def _refuse_writes(self) -> None:
        if self._away is not None:
            raise LogUnavailable(str(self._away))

    def _put(self, request: CommandRequest | Delivery | _Question) -> None:
        if not isinstance(request, _Question):
            self._refuse_writes()
        if self.failure is not None or self._stopping.is_set():
            raise NotRunning("the worker is not running") from self.failure
        try:
            self._queue.put_nowait(request)
        except queue.Full:
            raise Busy("too many requests wait for the worker") from None
        self._log.wake()

    # ---- the worker's thread

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    self._open()
                    self._turn()
                except LogFenced as fenced:
                    logger.warning("passed over, or the log is not as it was (%s); starting afresh", fenced)
                    self._worker.close()
                    self._stand_back()
        except LogUnusable as error:  # a person has to act, and the word says how
            logger.error("the worker has stopped: %s", error)
            self.failure = error
        except BaseException as error:
            logger.exception("the worker has stopped")
            self.failure = error
        finally:
            self._unready()
            self.hub.stop()
            self._worker.close()
            self.schemas.close()
            self._refuse_the_rest()
            self._still.set()

    def _stand_back(self) -> None:
        """Waits before it starts afresh, longer each time, where it was passed over several times in a row:
        two workers under one name would throw each other out without end."""
        now = time.monotonic()
        self._fencings = self._fencings + 1 if now < self._fencings_until else 1
        wait_s = min(2.0 ** (self._fencings - _FENCINGS), _MOST_BACK_S) if self._fencings > _FENCINGS else 0.0
        self._fencings_until = now + wait_s + _FENCED_AGAIN_S
        if wait_s:
            name = f"{self._name!r}" if self._name else "of this host and port"
            away = LogUnavailable(
                f"passed over {self._fencings} times in a row: if another process is the worker {name}, too,"
                " end one of them, or give one another name (setting worker)"
            )
            logger.error("%s; waiting for %g s", away, wait_s)
            self._wait_out(away, lambda: time.monotonic() >= now + wait_s)

    def _open(self) -> None:
        while not self._stopping.is_set():
            try:
                self._still.set()
                self._worker.connect()
                self._still.clear()
                self._unready()
                with at_start():
                    self._worker.load()
                return
            except LogUnavailable as away:
                self._pause(away)
                self._worker.close()

    def _unready(self) -> None:
        self._ready.clear()
        self._metrics.ready(False)

    def _turn(self) -> None:
        measure_at = time.monotonic()
        told_ready = False
        idle_s = 0.0  # at first: there may be nothing to wait for until it is ready
        while not self._stopping.is_set():
            try:
                busy = not self._queue.empty()
                self._worker.step(self._waiting(), timeout_s=0.0 if busy else idle_s)
                idle_s = IDLE_POLL_S
                if not self._ready.is_set() and self._worker.ready:
                    self._ready.set()
                if told_ready != self.caught_up:
                    told_ready = self.caught_up
                    self._metrics.ready(told_ready)
                if time.monotonic() >= measure_at:
                    self._worker.measure()
                    measure_at = time.monotonic() + MEASURE_EVERY_S
            except LogUnavailable as away:
                self._pause(away)
        with contextlib.suppress(LogUnavailable):  # then it will be done again
            self._worker.settle()

    def _waiting(self) -> list[CommandRequest | Delivery]:
        """Takes what waits in the queue; questions are answered on the spot, unless the group is just dealing
        out what the answer is to be about."""
        requests: list[CommandRequest | Delivery] = []
        for _ in range(min(self._queue.qsize(), self._queue.maxsize - len(self._asked))):
            try:
                request = self._queue.get_nowait()
            except queue.Empty:
                break
            if isinstance(request, _Question):
                self._asked.append(request)
            else:
                requests.append(request)
        if not self._worker.dealing:
            self._answer_asked()
        return requests

    def _answer_asked(self) -> None:
        while self._asked:
            self._answer(self._asked.popleft())

    def _answer(self, question: _Question) -> None:
        if not self._worker.ask(question.ask):
            question.failed(
                self._away or LogUnavailable("partitions are on their way; try again in a moment")
            )

    def _pause(self, away: LogUnavailable) -> None:
        """Returns when the log answers again, or the worker is to stop."""
        logger.warning("the log is not available (%s); waiting for it", away)
        self._wait_out(away, self._log.answers)

    def _wait_out(self, away: LogUnavailable, is_over: Callable[[], bool]) -> None:
        """Answers from memory, and turns away whoever needs the log, until it is over or the worker is to
        stop. Whether it is over is asked every ``RETRY_S``."""
        self._set_away(away)
        self._answer_asked()
        try:
            self._worker.turn_away(away)
            while not self._stopping.is_set():
                self._answer_until(time.monotonic() + RETRY_S, away)
                if is_over():
                    return
        finally:
            self._set_away(None)

    def _set_away(self, away: LogUnavailable | None) -> None:
        self._away = away
        self._metrics.log_away(away is not None)

    def _answer_until(self, deadline: float, away: LogUnavailable) -> None:
        """Answers questions, and turns away whoever had come in before the log was known to be away."""
        while not self._stopping.is_set() and (left_s := deadline - time.monotonic()) > 0:
            try:
                request = self._queue.get(timeout=left_s)
            except queue.Empty:
                return
            if isinstance(request, _Question):
                self._answer(request)
            else:
                request.failed(away)

    def _refuse_the_rest(self) -> None:
        error = NotRunning("the worker has stopped")
        self._worker.abandon(error)
        while self._asked:
            self._asked.popleft().failed(error)
        while True:
            try:
                self._queue.get_nowait().failed(error)
            except queue.Empty:
                return
