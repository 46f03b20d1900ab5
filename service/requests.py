"""Requests to change the query set: judged against the catalog, written to the command log, answered.

A request is judged once the catalog has seen all commands there are, and written in one transaction; who
asked is told once the log has come back with it. Judging many commands takes long, so of a long request a
part is judged a step, with events in between. Where commands of others have come meanwhile, it begins anew;
after that has happened often, it is judged in one go.

Invariant: what is written was judged against the catalog as of the end of the command log, which is looked at
once more after the judging, and nothing that this worker writes comes in between. What another worker writes
between that look and the writing is not seen: the later entry counts (``_outdated`` has the exceptions).

Not for: what a command means (``engine.catalog``), and when it holds (``worker``).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from service import wire
from service.engine.catalog import Catalog, Draft
from service.engine.commands import Command, Outcome, Prepared, Registered
from service.engine.engine import Engine
from service.log.port import Log, LogError, Message
from service.metrics import Metrics
from service.model import Query, Reason, Refusal, Source

#: Commands judged in one step.
PART = 5_000
#: How often a long request is begun anew.
_ATTEMPTS = 3

ActiveFrom = Mapping[str, Mapping[tuple[str, int], int]]
"""By source, the next event of each of its partitions."""


@dataclass(slots=True)
class CommandRequest:
    """Commands to judge and write. ``results`` is full when the last of them holds; then ``done`` is called.

    ``by`` is who asks, for the history. ``atomic``: one refusal refuses all; ``results`` then has the
    refusals at their places and None elsewhere.
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


class _Judging:
    """A request of which a part has been judged. ``writing``: (place, what was prepared) of those that are to
    be written, and ``messages``, the same for the log."""

    def __init__(self, request: CommandRequest, engine: Engine, now: int, attempts: int = 0) -> None:
        self.request = request
        self.attempts = attempts
        self.offset = engine.catalog.offset
        self._now = now
        self._draft: Draft = engine.draft(now)
        self._left = iter(request.commands)
        self.prepared: list[Prepared | Refusal] = []
        self.writing: list[tuple[int, Prepared]] = []
        self.messages: list[Message] = []

    def go_on(self, most: int | None) -> bool:
        """Judges the next commands, so many (None: all). Whether all have been judged."""
        for command in islice(self._left, most):
            try:
                one: Prepared | Refusal = self._draft.prepare(command)
            except Refusal as refusal:
                one = refusal
            if isinstance(one, Prepared) and one.entry is not None:
                self.writing.append((len(self.prepared), one))
                self.messages.append(wire.command_message(one.entry, at_ms=self._now, by=self.request.by))
            self.prepared.append(one)
        return len(self.prepared) == len(self.request.commands)


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
        self._waiting.appendleft(request)

    @property
    def all(self) -> list[CommandRequest]:
        """Some of them more than once."""
        begun = [self._judging.request] if self._judging else []
        return [*self._waiting, *begun, *(one.request for one in self._open.values())]

    @property
    def unjudged(self) -> bool:
        """Whether there is something to judge."""
        return bool(self._waiting) or self.in_work

    @property
    def in_work(self) -> bool:
        """Whether a part of a request has been judged, and the rest waits for the next step."""
        return self._judging is not None

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
        active_from: Callable[[], ActiveFrom],
    ) -> None:
        """Judges what waits, a part of a long request, and writes it: as long as the catalog has seen all
        commands there are."""
        if self._judging is not None and self._judging.offset != engine.catalog.offset:
            self._judging = _Judging(self._judging.request, engine, now, self._judging.attempts + 1)
        while (self._judging or self._waiting) and caught_up():
            if self._judging is None:
                self._judging = _Judging(self._waiting.popleft(), engine, now)
            often = self._judging.attempts >= _ATTEMPTS
            if not self._judging.go_on(None if often else PART):
                return
            if not often and not caught_up():  # somebody has been faster than the judging
                return
            judged, self._judging = self._judging, None
            self._write(judged, engine.catalog, active_from)

    def _write(self, judged: _Judging, catalog: Catalog, active_from: Callable[[], ActiveFrom]) -> None:
        request = judged.request
        refused = [one if isinstance(one, Refusal) else None for one in judged.prepared]
        request.results = list(refused)
        self._count(request.commands, refused)
        if request.atomic and any(refused):
            request.done(request)
            return
        try:
            offsets = self._log.append_commands(judged.messages) if judged.messages else []
        except LogError as error:
            request.failed(error)
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
            for command, bad in zip(commands, refused, strict=True)
        )
        for (kind, result), count in counts.items():
            self._metrics.commands(kind, result, count)

    def judged(self, offsets: Iterable[int]) -> dict[int, Prepared]:
        """What was made of those entries that requests of this worker have written."""
        return {offset: self._open[offset].prepared for offset in offsets if offset in self._open}

    def applied(
        self, offsets: Iterable[int], catalog: Catalog, active_from: ActiveFrom
    ) -> list[CommandRequest]:
        """Notes that these entries hold. Returns the requests of which none is open any more."""
        answered = []
        for offset in offsets:
            one = self._open.pop(offset, None)
            if one is None:
                continue
            request, place, prepared = one
            outdated = _outdated(prepared, offset, catalog)
            request.results[place] = outdated or _outcome(prepared, offset, active_from)
            request.open -= 1
            if not request.open:
                answered.append(request)
        return answered


def _outdated(prepared: Prepared, offset: int, catalog: Catalog) -> Refusal | None:
    """What to say where another worker has changed something since a command was judged, and the entry, or
    what it was to put in force, counts for nothing in consequence."""
    subject = prepared.subject
    if prepared.done == "deleted" or subject is None or prepared.entry is None:
        return None
    if isinstance(subject, Source):
        if prepared.entry.body["op"] != "source" or catalog.source_versions.get(subject.name, -1) >= offset:
            return None
        return Refusal(
            Reason.EXISTS, "topic", f"another source reads {subject.topic!r} meanwhile; name another"
        )
    if subject.id in catalog.quarantined:
        return Refusal(Reason.CHANGED, "source", f"source {subject.source!r} has changed meanwhile; repeat")
    there = catalog.queries.get(subject.id)
    if there is not None and there.query.source != subject.source:
        detail = (
            f"query {subject.public_id!r} is one of source {there.query.source!r} meanwhile; use another id"
        )
        return Refusal(Reason.EXISTS, "id", detail)
    return None


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
