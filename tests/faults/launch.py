"""Starts real services, and lets one end itself at a point that its order names. No part of the product.

Idea: this process imports the service once; each line on its standard input is an order, for which it forks a
child that runs ``rangewatch serve`` as the command line would, and answers with the child's process id. A
child costs some tenths of a second, so that a test can kill many. Whoever starts this process ends all of its
children with it.

A *fuse* is a point in the life of a worker, and how often it must be reached before the process sends itself
a signal: KILL, to be gone at once and without a word, or STOP, to stand still until it is woken. It writes
``fuse: POINT`` to its log first. Points are put around the log and the worker from outside (``_wire``), and
around both libraries that talk to Kafka.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from functools import wraps
from typing import Any

from confluent_kafka import KafkaException, Producer
from kafka import KafkaProducer
from kafka.producer.transaction_manager import TransactionManager

import service.api.app
import service.cli.serve
import service.metrics
import service.runtime  # noqa: F401 (all imported here once, for every child)
from service.__main__ import main as rangewatch
from service.engine.state import StateLog
from service.log import confluent_reader, confluent_writer, kafka_reader, kafka_writer
from service.log.kafka import KafkaLog
from service.log.kafka_share import Share
from service.recovery import Recovery
from service.worker import Worker

#: So few rows a page and so few deltas that pages are written all the time.
STATE_LOG = {"block": 4, "ring": 12, "most_bytes": 4096}
#: How many commands in one append are a bulk registration.
BULK = 20
#: How long a commit goes on before its worker ends in the middle of it.
IN_COMMIT_S = 0.002
_DIE_WITH_PARENT = 1


class FusedProducer(Producer):
    """The native library's producer, which takes no new methods itself."""


class Fuse:
    """Sends this process a signal when ``point`` is reached for the ``count``-th time."""

    def __init__(self, point: str, count: int, how: int) -> None:
        self.point = point
        self._left = count
        self._how = how

    def reach(self, point: str, prepare: Callable[[], Any] = lambda: None) -> None:
        """``prepare`` is done before the end, and only then."""
        if point != self.point:
            return
        self._left -= 1
        if self._left == 0:
            prepare()
            os.write(2, f"fuse: {point}\n".encode())
            # To this thread, which goes no step further then: sent to the process, the signal would wait
            # until its main thread runs.
            signal.pthread_kill(threading.get_ident(), self._how)


def _around(
    owner: type,
    name: str,
    *,
    before: Callable[..., None] | None = None,
    after: Callable[..., Any] | None = None,
) -> None:
    """Calls ``before(*arguments)`` and ``after(result, *arguments)``, which returns the result, around a
    method."""
    inner = getattr(owner, name)

    @wraps(inner)
    def call(*arguments: Any, **named: Any) -> Any:
        if before is not None:
            before(*arguments)
        result = inner(*arguments, **named)
        return result if after is None else after(result, *arguments)

    setattr(owner, name, call)


class _Commit:
    """Counts what a commit has sent so far: its outputs, then its state."""

    def __init__(self, fuse: Fuse) -> None:
        self._fuse = fuse
        self._thread = 0
        self._outputs = 0
        self._sent = 0
        self.flush: Callable[[], Any] = lambda: None

    def watch(self, writer: type) -> None:
        inner = writer.begin  # type: ignore[attr-defined]

        @wraps(inner)
        def begin(transactions: Any, outputs: Any, *arguments: Any) -> Callable[[], None]:
            self._outputs, self._sent = len(outputs), 0
            with self._by_this_thread():
                end = inner(transactions, outputs, *arguments)

            def ending() -> None:
                with self._by_this_thread():
                    end()

            return ending

        writer.begin = begin  # type: ignore[attr-defined]

    @contextlib.contextmanager
    def _by_this_thread(self) -> Iterator[None]:
        self._thread = threading.get_ident()
        try:
            yield
        finally:
            self._thread = 0

    @property
    def goes_on(self) -> bool:
        """Whether this thread is in a commit: others append events meanwhile, and commands are no commit."""
        return threading.get_ident() == self._thread

    def sent(self, result: Any, producer: Any, topic: str, value: Any, key: Any, *_: Any) -> Any:
        if not self.goes_on:
            return result
        place, self._sent = self._sent, self._sent + 1
        flush = self.flush = producer.flush
        if place == self._outputs // 2 and self._outputs:
            self._fuse.reach("while producing", flush)
        if place >= self._outputs:
            self._fuse.reach("while writing state", flush)
            if key.split(b"/", 2)[2].startswith(b"p"):
                self._fuse.reach("while writing a page", flush)
        return result


def _wire(fuse: Fuse) -> None:
    """Puts every point where it belongs."""

    def polled(chunks: Any, *_: Any) -> Any:
        if chunks:
            fuse.reach("after poll")
        return chunks

    def matched(result: None, worker: Worker, polled: Any, step: Any) -> None:
        if step.outputs:
            fuse.reach("after match")
        if step.outputs and worker.uncommitted > 1:
            fuse.reach("after match in a commit")

    def begun(commit: Future[None], *_: Any) -> Future[None]:
        commit.add_done_callback(lambda _: fuse.reach("after commit"))
        return commit

    commit = _Commit(fuse)

    def restored(records: Iterator[Any], *_: Any) -> Iterator[Any]:
        fuse.reach("before restoring")
        for record in records:
            yield record
            fuse.reach("while restoring")

    def lost(share: Share, partitions: Any) -> None:
        if share.owned:
            fuse.reach("when partitions are lost")

    def appended(result: Any, log: Any, commands: Any) -> Any:
        if len(commands) >= BULK:
            fuse.reach("after a bulk is written")
        return result

    def appending(log: Any, commands: Any) -> None:
        if len(commands) >= BULK:
            fuse.reach("before a bulk is written")

    def applied(result: Any, worker: Worker, records: Any, step: Any) -> Any:
        if len(records) >= BULK:
            fuse.reach("after a bulk is applied")
        return result

    def at(point: str) -> Callable[..., None]:
        return lambda *_: fuse.reach(point)

    def past(point: str) -> Callable[..., Any]:
        def after(result: Any, *_: Any) -> Any:
            fuse.reach(point)
            return result

        return after

    def past_in_commit(point: str) -> Callable[..., Any]:
        def after(result: Any, *_: Any) -> Any:
            if commit.goes_on:
                fuse.reach(point)
            return result

        return after

    def committing(producer: Any, timeout_s: float) -> None:
        def begin() -> None:
            with contextlib.suppress(KafkaException):  # it is not done yet
                Producer.commit_transaction(producer, IN_COMMIT_S)

        if commit.goes_on:
            fuse.reach("in commit", begin)

    def filled(*_: Any) -> None:
        fuse.reach("after produce", commit.flush)

    confluent_writer.Producer = FusedProducer
    for reader in (kafka_reader.GroupReader, confluent_reader.GroupReader):
        _around(reader, "poll", after=polled)
    for writer in (kafka_writer.Transactions, confluent_writer.Transactions):
        commit.watch(writer)
    for producer, send in ((KafkaProducer, "send"), (FusedProducer, "produce")):
        _around(producer, send, after=commit.sent)
        _around(producer, "flush", after=past_in_commit("before commit"))
    for owner in (TransactionManager, FusedProducer):
        _around(owner, "send_offsets_to_transaction", before=filled)
    _around(TransactionManager, "begin_commit", after=past_in_commit("in commit"))
    _around(FusedProducer, "commit_transaction", before=committing)
    _around(Share, "revoke", before=lost)
    _around(Share, "assign", after=past("when partitions are gained"))
    _around(Worker, "_take_in", after=matched)
    _around(Worker, "_apply_commands", after=applied)
    _around(Recovery, "_make_up", before=at("before catching up"), after=past("after catching up"))
    _around(KafkaLog, "restore", after=restored)
    _around(KafkaLog, "commit", after=past("after commit"))
    _around(KafkaLog, "begin_commit", after=begun)
    _around(KafkaLog, "append_commands", before=appending, after=appended)


def _child(order: Mapping[str, Any]) -> int:
    """Runs the service; never returns to the loop of the parent."""
    if sys.platform == "linux":  # elsewhere the fleet ends them one by one
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    output = os.open(order["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for own, given in ((0, nothing), (1, output), (2, output)):
        os.dup2(given, own)
    random.seed()
    StateLog.__init__.__kwdefaults__.update(STATE_LOG)
    if order["fuse"] is not None:
        point, count, how = order["fuse"]
        _wire(Fuse(point, count, signal.Signals[how]))
    return rangewatch(["serve", *order["arguments"]])


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # a child that has ended is gone, and nobody waits for it
    print("ready", flush=True)
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                code = _child(json.loads(line))
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        print(pid, flush=True)


if __name__ == "__main__":
    main()
