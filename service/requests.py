"""Requests to change the query set: judged against the catalog, written to the command log, answered.

A request is judged once the catalog has seen all commands there are, and written in one transaction; who
asked is told once the log has come back with it. Judging many commands takes long, so of a long request a
part is judged a step, with events in between. Where commands of others have come meanwhile, it begins anew;
after that has happened often, it is judged while it is written, when the log lets nobody else write.

Invariant: what is written was judged against the catalog as of all that is before it in the command log,
whoever wrote that: the log refuses it where the end is not the one that the catalog has seen. A request is
written once or not at all, and who asked hears of the judgement that was written.

Not for: what a command means (``engine.catalog``), and when it holds (``worker``).
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from service import wire
from service.engine.catalog import Catalog, Draft
from service.engine.commands import Command, Outcome, Prepared, PutSource, Registered
from service.engine.engine import Engine
from service.language import parse_source
from service.log.port import Log, LogError, LogMoved, LogUnusable, Message
from service.metrics import Metrics
from service.model import Query, Reason, Refusal, Source

#: Commands judged in one step, and the time after which no further one is: a polygon may take 0.1 s.
PART = 5_000
PART_S = 0.2
#: After so many refusals the rest of an atomic request is not judged.
MOST_REFUSALS = 1_000
#: How often a long request is begun anew.
_ATTEMPTS = 3

ActiveFrom = Mapping[str, Mapping[tuple[str, int], int]]
"""By source, the next event of each of its partitions."""


@dataclass(slots=True)
class CommandRequest:
    """Commands to judge and write. ``results`` is full when the last of them holds; then ``done`` is called.

    ``by`` is who asks, for the history. ``atomic``: one refusal refuses all; ``results`` then has the
    refusals at their places, ``MOST_REFUSALS`` at the most, and None elsewhere.
    """

    commands: Sequence[Command]
    atomic: bool
    done: Callable[[CommandRequest], None]
    failed: Callable[[BaseException], None]
    by: str | None = None
    results: list[Outcome | Refusal | None] = field(default_factory=list)
    open: int = 0


class _OpenCommand(NamedTuple):
    request: CommandRequest
    place: int
    prepared: Prepared


class _Refused(Exception):
    """An atomic request has been refused while it was written."""


class _Judging:
    """A request of which a part has been judged. ``writing``: (place, what was prepared) of those that are to
    be written, and ``messages``, the same for the log."""

    def __init__(
        self, request: CommandRequest, engine: Engine, log: Log, now: int, attempts: int = 0
    ) -> None:
        self.request = request
        self._log = log
        self._topics = engine.source_of_topic
        self.attempts = attempts
        self.offset = engine.catalog.offset
        self._now = now
        self._draft: Draft = engine.draft(now)
        self._left = iter(request.commands)
        self.prepared: list[Prepared | Refusal] = []
        self.writing: list[tuple[int, Prepared]] = []
        self.messages: list[Message] = []
        self._refusals = 0

    @property
    def whole(self) -> bool:
        """Whether all has been judged that needs to be."""
        return len(self.prepared) == len(self.request.commands) or self._has_failed

    @property
    def _has_failed(self) -> bool:
        """Whether it has come to so many refusals that nobody wants more."""
        return self.request.atomic and self._refusals >= MOST_REFUSALS

    @property
    def refused(self) -> list[Refusal | None]:
        return [one if isinstance(one, Refusal) else None for one in self.prepared]

    @property
    def fails(self) -> bool:
        """Whether it is refused as a whole."""
        return self.request.atomic and self._refusals > 0

    def rest(self) -> Iterator[Message]:
        """The messages, those too that are made by judging what is left. Raises _Refused at the end."""
        yield from self.messages
        while not self.whole:
            made = len(self.messages)
            self.go_on()
            yield from self.messages[made:]
        if self.fails:
            raise _Refused

    def go_on(self) -> None:
        """Judges the next part."""
        until = time.monotonic() + PART_S
        for command in islice(self._left, PART):
            try:
                if isinstance(command, PutSource):
                    self._make_topic(parse_source(command.name, command.body).topic)
                one: Prepared | Refusal = self._draft.prepare(command)
            except Refusal as refusal:
                one = refusal.kept()
                self._refusals += 1
            if isinstance(one, Prepared) and one.entry is not None:
                self.writing.append((len(self.prepared), one))
                self.messages.append(wire.command_message(one.entry, at_ms=self._now, by=self.request.by))
            self.prepared.append(one)
            if time.monotonic() > until or self._has_failed:
                return

    def _make_topic(self, topic: str) -> None:
        """A source that is in the log is every worker's, for good: its topic must be one that can be read."""
        if topic in self._topics:
            return
        try:
            self._log.make_topic(topic)
        except LogUnusable as error:
            detail = f"{topic} cannot be read ({error}); name another, or have it permitted"
            raise Refusal(Reason.BAD_VALUE, "topic", detail) from error


class Requests:
    """The requests that one worker has been given and that are not answered yet."""

    def __init__(self, log: Log, metrics: Metrics) -> None:
        self._log = log
        self._metrics = metrics
        self._waiting: deque[CommandRequest] = deque()
        self._judging: _Judging | None = None
        self._open: dict[int, _OpenCommand] = {}

    def add(self, request: CommandRequest) -> None:
        self._waiting.append(request)

    def add_first(self, request: CommandRequest) -> None:
        """Nothing where the same commands stand first already."""
        if not self._waiting or self._waiting[0].commands != request.commands:
            self._waiting.appendleft(request)

    @property
    def all(self) -> list[CommandRequest]:
        """Some of them more than once."""
        begun = [self._judging.request] if self._judging else []
        return [*self._waiting, *begun, *(one.request for one in self._open.values())]

    @property
    def unjudged(self) -> bool:
        """Whether there is something to judge."""
        return bool(self._waiting) or self.begun

    @property
    def begun(self) -> bool:
        """Whether a request has been judged, in part at least, that is not written yet."""
        return self._judging is not None

    @property
    def in_work(self) -> bool:
        """Whether a part of a request has been judged, and the rest waits for the next step."""
        return self._judging is not None and not self._judging.whole

    def forget_waiting(self) -> None:
        """Those that nobody has written yet; what is in the log is applied, unheard of."""
        self._waiting.clear()
        self._judging = None

    def forget(self) -> None:
        self.forget_waiting()
        self._open.clear()

    def judge(
        self,
        engine: Engine,
        now: int,
        caught_up: Callable[[], bool],
        end: int,
        active_from: Callable[[], ActiveFrom],
    ) -> None:
        """Judges what waits, a part of a long request, and writes it: as long as the catalog has seen all
        commands there are. ``end`` is that of the command log as the catalog has seen it. What the log does
        not let be written now stays, for a later step."""
        if self._judging is not None and self._judging.offset != engine.catalog.offset:
            begun = self._judging
            self._judging = _Judging(begun.request, engine, self._log, now, begun.attempts + 1)
        while (self._judging or self._waiting) and caught_up():
            if self._judging is None:
                self._judging = _Judging(self._waiting.popleft(), engine, self._log, now)
            try:
                if not self._judging.whole:
                    self._judging.go_on()
                if not self._judging.whole and self._judging.attempts < _ATTEMPTS:
                    return
                offsets = self._append(self._judging, end)
            except LogMoved:
                return
            except LogError as error:
                self._judging.request.failed(error)
                self._judging = None
                continue
            judged, self._judging = self._judging, None
            self._written(judged, offsets, engine.catalog, active_from)

    def _append(self, judged: _Judging, end: int) -> list[int]:
        """Writes what has been judged, and the rest as it is judged. Returns the offsets; none where there is
        nothing to write."""
        if not judged.whole:
            with suppress(_Refused):
                return self._log.append_commands(judged.rest(), after=end)
        elif judged.messages and not judged.fails:
            return self._log.append_commands(judged.messages, after=end)
        return []

    def _written(
        self,
        judged: _Judging,
        offsets: Sequence[int],
        catalog: Catalog,
        active_from: Callable[[], ActiveFrom],
    ) -> None:
        request, refused = judged.request, judged.refused
        request.results = [*refused, *[None] * (len(request.commands) - len(refused))]
        self._count(request.commands, refused)
        if judged.fails:
            request.done(request)
            return
        for offset, (place, one) in zip(offsets, judged.writing, strict=True):
            self._open[offset] = _OpenCommand(request, place, one)
        request.open = len(offsets)
        if len(offsets) < len(judged.prepared):
            positions = active_from()
            for place, other in enumerate(judged.prepared):
                if isinstance(other, Prepared) and other.entry is None:
                    request.results[place] = _unchanged(other, catalog, positions)
        if not request.open:
            request.done(request)

    def _count(self, commands: Iterable[Command], refused: Iterable[Refusal | None]) -> None:
        counts = Counter(
            (type(command).__name__, "refused" if bad else "accepted")
            for command, bad in zip(commands, refused, strict=False)  # the rest was not judged
        )
        for (kind, result), count in counts.items():
            self._metrics.commands(kind, result, count)

    def judged(self, offsets: Iterable[int]) -> dict[int, Prepared]:
        """What was made of those entries that requests of this worker have written."""
        return {offset: self._open[offset].prepared for offset in offsets if offset in self._open}

    def applied(self, offsets: Iterable[int], active_from: ActiveFrom) -> list[CommandRequest]:
        """Notes that these entries hold. Returns the requests of which none is open any more."""
        answered = []
        for offset in offsets:
            one = self._open.pop(offset, None)
            if one is None:
                continue
            request, place, prepared = one
            request.results[place] = _outcome(prepared, offset, active_from)
            request.open -= 1
            if not request.open:
                answered.append(request)
        return answered


def _outcome(prepared: Prepared, offset: int, active_from: ActiveFrom) -> Outcome:
    subject = prepared.subject
    if isinstance(subject, Query):
        found = active_from.get(subject.source, {})
        return Outcome(prepared.done, Registered(subject, offset), offset, found)
    found = active_from.get(subject.name, {}) if subject else {}
    return Outcome(prepared.done, subject, offset, found)


def _unchanged(prepared: Prepared, catalog: Catalog, active_from: ActiveFrom) -> Outcome:
    subject = prepared.subject
    assert subject is not None
    if isinstance(subject, Source):
        version = catalog.source_versions.get(subject.name, -1)
        return Outcome("unchanged", subject, version, active_from.get(subject.name, {}))
    registered = catalog.queries.get(subject.id) or Registered(subject, -1)
    return Outcome("unchanged", registered, registered.version, active_from.get(subject.source, {}))
