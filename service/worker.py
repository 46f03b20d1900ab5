"""The worker: the loop that turns log into log. One thread, no locks, one commit a step.

A step takes the requests that wait, polls the log, applies commands, writes a portion of the records that
commands have left owed, applies events, and commits outputs, state and positions in one transaction. Only
then is anybody told. If the worker dies anywhere, the next one starts from the last commit and nothing that
was not committed has happened.

Where much comes in, a commit is only begun: the next step takes in what there is while it is under way, and
waits before it commits itself. Commits are made one after the other, so at any time what the log lacks of the
engine is the last two steps at most, and they are gone together.

Catching up: the catalog is replayed from the command log. A partition whose position has seen fewer commands
than the catalog (a crash between a command and its effects, a partition that was elsewhere) first gets what
its streams missed, from a second engine that is replayed to just that position, in a commit of its own. The
partition's state says what that query set was (``fingerprint``): where it cannot be had any more, because the
command log keeps replaced versions for a limited time only, or where the state itself is gone, the streams
begin anew with a ``reset``.

Not for: threads, futures, HTTP (``runtime``); deciding anything about queries or streams (``engine``).
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from time import perf_counter
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from service import wire
from service.decode import MOST_EVENTS
from service.decoders import decoder_of
from service.engine.effects import (
    Batch,
    CommandEffects,
    Effects,
    EventEffects,
    Paid,
    Refused,
    Task,
    with_refused,
)
from service.engine.engine import Engine, Held
from service.engine.fingerprint import text as shown
from service.engine.queryset import QuerySet
from service.engine.state import heard
from service.engine.versions import UnreadableState
from service.log.port import (
    COMMITTED,
    Assignment,
    Chunk,
    Commit,
    Log,
    LogError,
    LogFenced,
    LogUnavailable,
    LogUnusable,
    Message,
    Output,
    Polled,
    Position,
    Record,
    StateRecord,
    TopicPartition,
)
from service.metrics import Metrics
from service.model import Source
from service.pace import MOST_MATCHES, Pace
from service.rebuilds import Rebuilds
from service.registry import NoRegistry, Schemas, SchemasUnavailable
from service.requests import ActiveFrom, CommandRequest, Requests
from service.rows import AnyDecoder
from service.stored import StoredQueries
from service.wire import Encoder, Written

logger = logging.getLogger("rangewatch")

StateOf = list[tuple[bytes, bytes]]
"""The state records of one partition."""

_GONE = {
    "state": "its position is known and its state is gone; every stream gets a reset with its next event",
    "position": "its state is known and its position is gone; every stream gets a reset",
    "commands": "the query set that its streams have seen cannot be had any more; every stream gets a reset",
}

#: How long to wait for news when others write commands, before it is asked again whether they still do.
_TURN_S = 0.05
#: How long an answer waits for partitions of a new topic, ms: a member that has died may hold them up.
_JOIN_MS = 5_000
#: How many entries of the command log are applied at a time for streams that have missed them.
MISSED_ENTRIES = 10_000


@dataclass(slots=True)
class Delivery:
    """Messages that somebody waits for: ``done`` is called after the commit of the last of them.

    ``outputs`` is what they caused, in order; ``removed`` whether a tombstone among them removed a stream.
    ``elsewhere``: some are in partitions of another worker, who tells of none here; they will be processed.
    """

    topic: str
    messages: Sequence[Message]
    done: Callable[[Delivery], None]
    failed: Callable[[BaseException], None]
    positions: list[tuple[int, int]] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    refused: int = 0
    removed: bool = False
    elsewhere: bool = False
    open: int = 0


@dataclass(slots=True)
class _Step:
    """What one step will commit, what it counts then, and whom it tells."""

    outputs: list[Output] = field(default_factory=list)
    moved: set[Task] = field(default_factory=set)
    count: list[Callable[[], None]] = field(default_factory=list)
    answered: list[CommandRequest | Delivery] = field(default_factory=list)
    commit: Commit | None = None
    #: what its events have matched, borders included
    matched: int = 0
    #: the log was not there for something that can wait
    away: LogUnavailable | None = None


@dataclass(slots=True)
class _Told:
    """What the events of a chunk have come to so far."""

    parts: int = 0
    matched: int = 0
    late: int = 0
    carried: int = 0
    seconds: float = 0.0
    refused: Counter[str] = field(default_factory=Counter)
    matches: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class _Codec:
    """How a source's bytes are read and its records written; made anew when the source changes."""

    source: Source
    decoder: AnyDecoder
    encoder: Encoder


class Listener(Protocol):
    """Who is told what the worker does. It must not make it wait."""

    def committed(self, outputs: Sequence[Output]) -> None:
        """A commit has been made."""

    def moved(self) -> None:
        """Partitions have gone to another worker, or this one begins afresh."""


class Worker:
    """See the module. ``make_engine`` gives a fresh engine: one for the catalog, one for each catching up."""

    def __init__(
        self,
        log: Log,
        make_engine: Callable[[], Engine],
        metrics: Metrics,
        *,
        clock: Callable[[], int],
        max_message_bytes: int,
        max_batch_events: int,
        listener: Listener | None = None,
        lost_input: str = "stop",
        schemas: Schemas | None = None,
        max_message_events: int = MOST_EVENTS,
        most_matches: int = MOST_MATCHES,
    ) -> None:
        """``most_matches``: of the events of a step, borders included, beyond which it ends with the message;
        and what is in memory of them at a time, as far as can be foreseen (``pace``)."""
        self._log = log
        self._most_matches = most_matches
        self._schemas = schemas or NoRegistry()
        self._schemas.when_news(log.wake)
        self._listener = listener
        self._rebuilds = Rebuilds()
        self._make_engine = make_engine
        self._metrics = metrics
        self._clock = clock
        self._max_message_bytes = max_message_bytes
        self._max_message_events = max_message_events
        self._max_batch_events = max_batch_events
        self._lost_input = lost_input
        self._forget()

    def _forget(self) -> None:
        self.engine = self._make_engine()
        #: whether it has been as it is meant to be since then: there is something to ask about
        self._has_begun = False
        self.positions: dict[Task, int] = {}
        #: taken in and not known to be committed, the oldest first, and the commit of that
        self._steps: deque[_Step] = deque()
        self._under_way: Future[None] | None = None
        #: whether the last poll brought so much that the next is sure to bring more
        self._much = False
        #: the topics of all sources, and those of them that are subscribed to
        self._wanted: frozenset[str] = frozenset()
        self._topics: frozenset[str] = frozenset()
        #: topics that the group may not have seen yet, and until when it is waited for, ms; None: it is not
        #: dealing
        self._undealt: frozenset[str] = frozenset()
        self._joins_until: int | None = None
        #: offsets of commands that hold, from the positions beside them; to be told of
        self._untold: list[tuple[list[int], ActiveFrom]] = []
        #: partitions that are this worker's and not at work yet, and how often each was not at rest
        self._waiting: set[Task] = set()
        self._tries: Counter[Task] = Counter()
        #: partitions lost in a rebalance that goes on, as they were, and the position they were at
        self._held: dict[Task, tuple[Held, Position]] = {}
        self._codecs: dict[str, _Codec] = {}
        #: what was read of partitions that are paused, since schemas of it are not there yet, or since a step
        #: holds enough (``_cut``)
        self._parked: dict[Task, list[Chunk]] = {}
        self._cut: set[Task] = set()
        self._paces: dict[Task, Pace] = {}
        self._next_command = 0
        self._requests = Requests(self._log, self._metrics)
        self._deliveries: dict[Task, dict[int, Delivery]] = {}

    # ---- starting

    def open(self) -> None:
        """Both: opens the log and replays the command log; the partitions come with the first steps."""
        self.connect()
        self.load()

    def connect(self) -> None:
        """Opens the log. What the engine holds from before can still be asked about."""
        self.abandon(LogFenced("the worker starts afresh; ask again"))
        self._log.open()

    def load(self) -> None:
        """Replays the command log, with nothing left of before."""
        self._forget()
        self._tell_moved()
        self._replay(self.engine, self._log.end_of_commands())
        self.engine.follow_moves()
        self._next_command = self.engine.catalog.offset
        self._log.seek_commands(self._next_command)
        self._tell_unreadable()
        self._subscribe()
        self._count_queries()
        self._has_begun = not self._topics

    def close(self) -> None:
        self._rebuilds.close()
        self._log.close()

    def turn_away(self, error: BaseException) -> None:
        """Tells everybody who waits that they need not. What is in the log is still processed, unheard of."""
        waiting: list[CommandRequest | Delivery] = [*self._requests.all]
        waiting += [delivery for by_offset in self._deliveries.values() for delivery in by_offset.values()]
        waiting += [request for step in self._steps for request in step.answered]
        for request in {id(request): request for request in waiting}.values():
            request.failed(error)
        self._requests.forget_waiting()

    def abandon(self, error: BaseException) -> None:
        """Tells everybody who still waits that nothing will come."""
        self.turn_away(error)
        self._requests.forget()
        self._deliveries.clear()
        self._steps.clear()
        self._under_way = None

    @property
    def ready(self) -> bool:
        """Whether the query set and the state of every partition of this worker have caught up."""
        return not self._waiting and self._log.settled and self._caught_up()

    def _caught_up(self) -> bool:
        return self._next_command >= self._log.end_of_commands()

    def _replay(self, engine: Engine, end: int) -> None:
        """Brings a fresh engine to a command offset."""
        queries = StoredQueries(engine.catalog.sources)
        engine.replay(
            (record.offset, queries.read(record.value) or wire.command_body(record.value))
            for record in self._log.commands(0, end)
        )

    def _entries(self, start: int, end: int) -> Iterator[tuple[int, Any]]:
        return ((record.offset, wire.command_body(record.value)) for record in self._log.commands(start, end))

    def _tell_unreadable(self) -> None:
        for name, refusal in self.engine.catalog.take_unreadable().items():
            logger.error(
                "the command log has a source %r that cannot be read: %s; put it anew, or run the version"
                " that wrote it; until then what it was before holds, if anything was",
                name,
                refusal,
            )

    def _subscribe(self) -> None:
        wanted = frozenset(self.engine.source_of_topic)
        if wanted == self._wanted:
            return
        new = [topic for topic in sorted(wanted - self._topics) if self._can_be_read(topic)]
        topics = (self._topics & wanted).union(new)
        self._wanted = wanted
        if topics != self._topics:
            self.settle()
            self._log.subscribe(sorted(topics))
            self._undealt = topics - self._topics
            self._topics = topics
            self._joins_until = self._clock() + _JOIN_MS

    def _can_be_read(self, topic: str) -> bool:
        """Whether a topic may be subscribed to; one of an earlier version, or whose permission has gone, may
        not, and must not keep the others from being read. It is tried again when sources change."""
        try:
            self._log.make_topic(topic)
        except LogUnusable as error:
            name = self.engine.source_of_topic[topic]
            logger.error("the topic %s of source %r cannot be read, all others are: %s", topic, name, error)
            return False
        return True

    # ---- partitions

    def _drop_sourceless(self) -> None:
        """Partitions whose source has come to be another one, of another topic."""
        topics = self.engine.source_of_topic
        self._waiting = {task for task in self._waiting if task.topic in topics}
        for task in [task for task in self.positions if task.topic not in topics]:
            del self.positions[task]
            self._metrics.forget_partition(*task)

    def _assign(self, assignment: Assignment) -> None:
        if assignment.lost or assignment.gained or self._waiting:
            self.settle()  # positions are asked for, and there may be commits aside
        for partition in assignment.lost:
            task = Task(*partition)
            held = self.engine.release(task)
            if held is not None:
                self._held[task] = held, Position(self.positions.pop(task), self.engine.catalog.offset)
            self._waiting.discard(task)
            del self._tries[task]
            self._parked.pop(task, None)
            self._paces.pop(task, None)
            self._metrics.forget_partition(*task)
        if assignment.lost and self._joins_until is None:
            self._joins_until = self._clock() + _JOIN_MS
        self._waiting.update(Task(*partition) for partition in assignment.gained)
        # Those that have been tried least, of these first what was here till now.
        for task in sorted(self._waiting, key=lambda one: (self._tries[one], one not in self._held, one)):
            try:
                if not self._log.at_rest(TopicPartition(*task)):
                    # Whoever had it died at work. It is asked again in the next step: all else goes on.
                    self._tries[task] += 1
                    break
                self._take(task)
            except UnreadableState as error:
                raise LogUnusable(
                    f"the state of {task.topic}/{task.partition} cannot be read ({error}): run the version"
                    " that wrote it, if that is a newer one, or restore a copy of the log from before"
                ) from error
        self._has_begun = self._has_begun or (self._log.settled and not self._waiting)
        if self._joins_until is not None and (self._is_dealt() or self._joins_late(self._joins_until)):
            self._undealt, self._joins_until = frozenset(), None
        if self._log.settled and self._joins_until is None:  # what is not here now is another worker's
            gone = self._held.keys() - self._waiting
            if gone:
                self._tell_moved()
            for task in gone:
                del self._held[task]
            for task in self._deliveries.keys() - self.engine.tables.keys() - self._waiting:
                self._end_elsewhere(task)

    @property
    def dealing(self) -> bool:
        """Whether the group is dealing out partitions, for ``_JOIN_MS`` at the most. Whoever asks meanwhile
        might be told of what will be another's in a moment."""
        return self._joins_until is not None

    @property
    def behind(self) -> bool:
        """Whether there are partitions that are not at work yet. Callable from any thread."""
        return self.dealing or bool(self._waiting)

    def ask(self, question: Callable[[], None]) -> bool:
        """Asks something about the engine, which has the partitions that were lost and not dealt out anew as
        they were then. False, and nothing has been asked, where that cannot be had: nobody is to be told that
        there is nothing where something is."""
        now = self.engine.catalog.offset
        lost = {task: held for task, (held, at) in self._held.items() if at.command == now}
        if not self._has_begun or len(lost) < len(self._held):
            return False
        for task, held in lost.items():
            self.engine.resume(task, held)
        try:
            question()
        finally:
            for task in lost:
                self.engine.release(task)
        return True

    def _is_dealt(self) -> bool:
        # A group that has not seen a new topic yet deals out nothing of it, and deals again soon.
        here = {task.topic for task in self.positions}
        return self._log.settled and not self._waiting and self._undealt <= here

    def _joins_late(self, until: int) -> bool:
        # Nor does a clock that was set back keep anybody waiting.
        return not until - _JOIN_MS <= self._clock() < until

    def _end_elsewhere(self, task: Task) -> None:
        """Tells whoever waits for events of a partition that another worker processes them."""
        for delivery in {id(one): one for one in self._deliveries.pop(task).values()}.values():
            delivery.elsewhere = True
            for by_offset in self._deliveries.values():
                for offset in [offset for offset, one in by_offset.items() if one is delivery]:
                    del by_offset[offset]
            delivery.done(delivery)

    def _take(self, task: Task) -> None:
        """Takes a partition on as soon as the catalog is not behind it.

        One that this worker had until just now, and that nobody has moved since, is taken up as it was: its
        state is committed together with its position, so the position tells."""
        partition = TopicPartition(*task)
        offset = self.engine.catalog.offset
        position = self._log.position(partition) or self._begun_anew(task, offset)
        held, position_then = self._held.pop(task, (None, None))
        if position is not None:
            if held is not None and position == position_then and position.command == offset:
                self.engine.resume(task, held)
                self._begin(task, self._log.start(partition, position.event))
                return
            if position.command > offset:
                return
        records = self._brought_up(task, position, offset) if position is not None else []
        if position is not None:
            self._tell_moved()  # its streams are new to whoever listens
        self.engine.assign(task, records)
        self._begin(task, self._log.start(partition, self._next_event(task, position) if position else None))

    def _begun_anew(self, task: Task, offset: int) -> Position | None:
        """Where a partition stands that has a state and no position, once its streams have begun anew; None
        of one that has neither. Raises LogUnusable unless ``lost_input`` allows it."""
        partition = TopicPartition(*task)
        if not self._log.end_offsets([partition])[partition] or not (records := self._state_of(task)):
            return None
        gone = (
            f"{task.topic}/{task.partition} has streams in the state, but this group has no position there:"
            " it has expired, or the group is another than the one that wrote it"
        )
        if self._lost_input == "stop":
            raise LogUnusable(
                f"{gone}; use that group, or lost_input=go_on: its streams begin anew, and the events that"
                " are still there are processed again"
            )
        logger.error("%s", gone)
        position = Position(self._log.beginning(partition), 0)
        self._reset(task, position, records, "position")
        return position._replace(command=offset)

    def _next_event(self, task: Task, position: Position) -> int:
        """Where to go on with the events of a partition. Raises LogUnusable where that is gone."""
        partition, at = TopicPartition(*task), position.event
        beginning, end = self._log.beginning(partition), self._log.end_offsets([partition])[partition]
        place = f"{task.topic}/{task.partition}"
        if at > end:
            raise LogUnusable(
                f"{place} ends at {end}, and events up to {at} have been processed: the topic is another, or"
                " was cut off; use another source, or another topic_prefix"
            )
        if at >= beginning:
            return at
        gone = f"{place} begins at {beginning}: {beginning - at} messages from {at} on were never processed"
        if self._lost_input == "stop":
            raise LogUnusable(f"{gone}; lost_input=go_on goes on without them")
        logger.error("%s", gone)
        self._metrics.lost(beginning - at)
        return beginning

    def _begin(self, task: Task, offset: int) -> None:
        self.positions[task] = offset
        self._waiting.discard(task)
        del self._tries[task]
        self._count_streams(task)

    def _brought_up(self, task: Task, position: Position, offset: int) -> StateOf:
        """The state of a partition whose streams have been told of all commands up to ``offset``."""
        records = self._state_of(task)
        known, engine = heard(records), self.engine
        if position.command < offset:
            engine = self._make_engine()
            self._replay(engine, position.command)
        fingerprint = engine.catalog.fingerprint
        if not records and position.event > 0:
            self._reset(task, position, records, "state")
        elif known is not None and known.at != (position.command, fingerprint):
            logger.error(
                "the query set at command %d was %s, and is %s here",
                *(known.offset, shown(known.fingerprint), shown(fingerprint)),
            )
            self._reset(task, position, records, "commands")
        elif position.command < offset:
            self._make_up(task, engine, position, offset, records)
        else:
            return records
        return self._state_of(task)

    def _state_of(self, task: Task) -> StateOf:
        return [(record.key, record.value or b"") for record in self._log.restore(TopicPartition(*task))]

    def _make_up(self, task: Task, engine: Engine, position: Position, offset: int, records: StateOf) -> None:
        """Commits what the streams of a partition missed of the command log, from its position on, where
        ``engine`` is."""
        engine.assign(task, records)
        now = self._clock()
        for entries in _batched(self._entries(position.command, offset), MISSED_ENTRIES):
            effects = [*engine.command(entries, now), *engine.pay()]
            self._commit_aside(task, engine, effects, Position(position.event, entries[-1][0] + 1))

    def _reset(self, task: Task, position: Position, records: StateOf, missing: str) -> None:
        """Commits that the streams of a partition begin anew: what is needed to go on is gone."""
        logger.error("%s/%d begins anew: %s", *task, _GONE[missing])
        self._metrics.reset(missing)
        engine = self._make_engine()
        self._replay(engine, self.engine.catalog.offset)
        effects = engine.reset(task, records, position.command, self._clock())
        self._commit_aside(task, engine, effects, Position(position.event, engine.catalog.offset))

    def _commit_aside(
        self, task: Task, engine: Engine, effects: Iterable[CommandEffects | Paid], position: Position
    ) -> None:
        """A commit of one partition, by an engine of its own."""
        encoder, table = self._encoder(engine.queries_of(task)), engine.tables[task]
        outputs: list[Output] = []
        for one in effects:
            outputs += encoder.commands(one, table)
            outputs += encoder.aggregates(task, one.aggregates)
        state = [StateRecord(*record) for record in engine.state_records(task)]
        partition = TopicPartition(*task)
        self._log.commit(Commit(outputs, {partition: state}, {partition: position}))

    def _source(self, task: Task) -> Source:
        return self.engine.queries_of(task).source

    # ---- a step

    def step(self, requests: Iterable[CommandRequest | Delivery], *, timeout_s: float) -> None:
        """One turn of the loop. Raises LogUnavailable where calling again later is all that is needed (what
        was polled is kept and committed then), LogFenced where the worker must be opened anew."""
        for request in requests:
            self._accept(request)
        if not self._steps or self._under_way is not None:  # or a commit is to be begun anew
            if not self._much:
                self.settle()
            self._judge()
            polled = self._log.poll(timeout_s=self._wait_s(timeout_s), max_records=self._max_batch_events)
            self._much = 2 * sum(len(chunk.records) for chunk in polled.chunks) >= self._max_batch_events
            self._steps.append(_Step())
            try:
                self._take_in(polled, self._steps[-1])
            except LogUnavailable as away:  # what was polled would be skipped by the next poll
                raise LogFenced(f"the log went away in the middle of a step ({away})") from away
            self._much |= bool(self._cut)
            if self._steps[-1].away is not None:
                raise self._steps[-1].away
        self._commit_steps()
        self._rebuilds.tend(self.engine.indexes())
        if not self._held:
            self.engine.tidy()

    def _wait_s(self, timeout_s: float) -> float:
        """How long the next poll may wait for news."""
        if self._much or self.engine.owes or self._requests.in_work:
            return 0.0
        return min(timeout_s, _TURN_S) if self._requests.begun else timeout_s

    @property
    def uncommitted(self) -> int:
        """How many commits the engine is ahead of what is known to be in the log."""
        return sum(bool(step.moved) for step in self._steps)

    def _take_in(self, polled: Polled, step: _Step) -> None:
        self._assign(polled.assignment)
        self._next_command = polled.next_command
        self._tick(step)
        self._apply_commands(polled.commands, step)
        self._answer(step)
        for effects in self.engine.pay():
            self._take_caused(effects, step)
            step.moved.add(effects.task)
        self._apply_readable(polled.chunks, step)
        self._metrics.held(len(self._lacking))
        if self._lacking and (trouble := self._schemas.trouble):
            self._turn_away_parked(trouble)

    # ---- schemas

    @property
    def held(self) -> str | None:
        """Why the input of partitions waits for schemas; None where none waits for longer than it takes."""
        trouble, lacking = self._schemas.trouble, self._lacking
        if not lacking or trouble is None:
            return None
        return f"{len(lacking)} partitions wait for schemas: {trouble}"

    @property
    def _lacking(self) -> set[Task]:
        """The partitions of which something waits for schemas, and not for the next step only."""
        return self._parked.keys() - self._cut

    def _apply_readable(self, polled: Sequence[Chunk], step: _Step) -> None:
        """Applies the chunks whose schemas are all there, those that have waited first, until the step holds
        enough. What is not applied is kept, and its partition is paused, so that it is one poll's at the
        most."""
        parked, self._parked = self._parked, {}
        self._cut = set()
        for chunk in [*(chunk for chunks in parked.values() for chunk in chunks), *polled]:
            task = Task(*chunk.partition)
            if task not in self.engine.tables:
                continue
            if task not in self._parked:
                if step.matched >= self._most_matches:
                    self._cut.add(task)
                elif self._has_schemas(task, chunk):
                    rest = self._apply_events(chunk, step)
                    if rest is None:
                        continue
                    self._cut.add(task)
                    chunk = rest
            if task not in parked and task not in self._parked:
                self._log.pause([chunk.partition])
            self._parked.setdefault(task, []).append(chunk)
        if parked:
            self._log.resume([TopicPartition(*task) for task in parked if task not in self._parked])

    def _has_schemas(self, task: Task, chunk: Chunk) -> bool:
        decoder = self._codec(task).decoder
        lacking = decoder.lacking(chunk.records)
        if not lacking:
            return True
        found = self._schemas.look(lacking)
        decoder.learn(found)
        return len(found) == len(lacking)

    def _turn_away_parked(self, trouble: str) -> None:
        """Whoever waits for events that wait for a registry need not: they will be processed, unheard of."""
        error = SchemasUnavailable(f"{trouble}; the events are in the log and will be processed")
        for task in self._lacking:
            for delivery in self._deliveries.pop(task, {}).values():
                delivery.failed(error)

    # ---- effects

    def _accept(self, request: CommandRequest | Delivery) -> None:
        if isinstance(request, CommandRequest):
            self._requests.add(request)
            return
        try:
            request.positions = self._log.append_events(request.topic, request.messages)
        except LogError as error:
            request.failed(error)
            return
        request.open = len(request.positions)
        for partition, offset in request.positions:
            self._deliveries.setdefault(Task(request.topic, partition), {})[offset] = request
        if not request.open:
            request.done(request)

    def _judge(self) -> None:
        """Judges what is asked for, once the catalog has seen all commands there are. Before what clients ask
        for comes the deletion of queries whose time has come."""
        catalog, now = self.engine.catalog, self._clock()
        wanted = [] if self._requests.begun else catalog.expired(now)
        if not (wanted or self._requests.unjudged) or not self._caught_up():
            return  # most steps have nothing to judge, and need not ask the log
        if wanted:
            self._requests.add_first(CommandRequest(wanted, False, lambda _: None, lambda _: None))
        self._requests.judge(self.engine, now, self._caught_up, self._next_command, self._active_from)

    def _tick(self, step: _Step) -> None:
        """Takes in what time alone has caused, in every partition of which nothing waits to be read: while
        something does, its events say what time it is."""
        now = self._clock()
        due = [task for task in self.engine.tables if self.engine.due(task, now)]
        try:
            ends = self._log.end_offsets([TopicPartition(*task) for task in due]) if due else {}
        except LogUnavailable as away:  # it can wait; what was polled is taken in all the same
            step.away = away
            return
        for task in due:
            if self.positions[task] < ends[TopicPartition(*task)]:
                continue
            for effects in self.engine.tick(task, now):
                self._take_caused(effects, step)
                step.moved.add(task)

    def _take_caused(self, effects: CommandEffects | Paid, step: _Step) -> None:
        task = effects.task
        step.outputs += self._codec(task).encoder.commands(effects, self.engine.tables[task])
        self._count_borders(self.engine.queries_of(task), effects.sides_by_tenant, step)
        self._take_told(effects, step)

    def _take_told(self, effects: Effects, step: _Step) -> None:
        if effects.aggregates:
            codec = self._codec(effects.task)
            step.outputs += codec.encoder.aggregates(effects.task, effects.aggregates)
            step.count.append(partial(self._metrics.aggregates, codec.source.name, len(effects.aggregates)))

    def _active_from(self) -> ActiveFrom:
        """By source, the next event of each of its partitions."""
        found: dict[str, dict[tuple[str, int], int]] = {}
        for task, position in self.positions.items():
            source = self.engine.source_of_topic[task.topic]
            found.setdefault(source, {})[task.topic, task.partition] = position
        return found

    def _apply_commands(self, records: Sequence[Record], step: _Step) -> None:
        if not records:
            return
        entries = [(record.offset, wire.command_body(record.value)) for record in records]
        offsets = [offset for offset, _ in entries]
        judged = self._requests.judged(offsets)
        for effects in self.engine.command(entries, self._clock(), judged):
            self._take_caused(effects, step)
        self._drop_sourceless()
        self._tell_unreadable()
        step.moved = set(self.engine.tables)
        self._subscribe()
        self._count_queries()
        self._untold.append((offsets, self._active_from()))
        for pace in self._paces.values():
            pace.added(len(records))

    def _answer(self, step: _Step) -> None:
        """Notes whom the step answers. Where a command has changed what is subscribed to, that is after its
        partitions have come: only then are there positions to name."""
        if not self._untold or self.dealing:
            return
        since = self._active_from()
        for offsets, then in self._untold:
            found = {name: {**here, **then.get(name, {})} for name, here in since.items()}
            step.answered += self._requests.applied(offsets, {**then, **found})
        self._untold = []

    def _apply_events(self, chunk: Chunk, step: _Step) -> Chunk | None:
        """Applies the events of a chunk, some at a time. Where the step holds enough, the messages that are
        left are returned, to be read anew: a commit has whole messages."""
        task = Task(*chunk.partition)
        codec = self._codec(task)
        decoded = codec.decoder.decode(chunk.records)
        queries = self.engine.queries_of(task)
        pace = self._paces.setdefault(task, Pace(len(queries.names), self._most_matches))
        told = _Told()
        offsets, left = decoded.batch.offsets, decoded.refused
        start, end, next_offset = 0, len(offsets), chunk.next_offset
        while start < end or not told.parts:
            allowed = pace.events(len(queries.names))
            stop = min(start + allowed, end)
            batch = decoded.batch if stop - start == end else decoded.batch.take(np.arange(start, stop))
            refused, left, ends = left, [], True
            if stop < end:
                ends = offsets[stop] > offsets[stop - 1]
                behind = int(offsets[stop]), 0 if ends else int(decoded.batch.items[stop])
                left = [one for one in refused if (one.offset, one.item) >= behind]
                refused = [one for one in refused if (one.offset, one.item) < behind]
            matched = told.matched
            self._apply_part(codec, task, batch, refused, decoded.originals, told, step)
            if stop > start:
                pace.took(stop - start, told.matched - matched, allowed)
            step.matched += told.matched - matched
            start = stop
            if step.matched >= self._most_matches and stop < end and ends:
                next_offset = int(offsets[stop])
                break
        step.moved.add(task)
        self.positions[task] = next_offset
        whole = next_offset == chunk.next_offset
        step.count.append(
            partial(
                self._metrics.batch,
                codec.source.name,
                events=decoded.events - int((~decoded.batch.removal[start:]).sum()) - len(left),
                refused=told.refused,
                late=told.late,
                carried=told.carried,
                nulls=decoded.nulls if whole else 0,
                matches=told.matches,
                match_seconds=told.seconds,
            )
        )
        self._end_deliveries(task, next_offset, step)
        if whole:
            return None
        return chunk._replace(records=[one for one in chunk.records if one.offset >= next_offset])

    def _apply_part(
        self,
        codec: _Codec,
        task: Task,
        batch: Batch,
        refused: Sequence[Refused],
        originals: Mapping[tuple[int, int], bytes | None],
        told: _Told,
        step: _Step,
    ) -> None:
        started = perf_counter()
        caused = self.engine.apply(task, batch)
        told.seconds += perf_counter() - started
        told.parts += 1
        queries = self.engine.queries_of(task)
        for effects in with_refused(caused, refused):
            if not isinstance(effects, EventEffects):
                self._take_caused(effects, step)
                continue
            written = codec.encoder.events(effects, originals)
            step.outputs += written.outputs
            self._count_borders(queries, effects.borders.sides_by_tenant, step)
            self._take_told(effects, step)
            told.late += effects.older
            told.carried += effects.carried
            told.matched += len(effects.matches.slots) + len(effects.borders.slots)
            told.matches.update(queries.tenants.shares(effects.matches.slots))
            told.refused.update(one.reason for one in effects.refused)
            if self._deliveries.get(task):
                self._deliver(self._deliveries[task], written, effects)

    def _deliver(self, waiting: Mapping[int, Delivery], written: Written, effects: EventEffects) -> None:
        for output, offset in zip(written.outputs, written.offsets.tolist(), strict=True):
            delivery = waiting.get(offset)
            if delivery is not None:
                delivery.outputs.append(output)
        for refused in effects.refused:
            if refused.offset in waiting:
                waiting[refused.offset].refused += 1
        for offset in effects.batch.offsets[effects.removed].tolist():
            if offset in waiting:
                waiting[offset].removed = True

    def _end_deliveries(self, task: Task, next_offset: int, step: _Step) -> None:
        waiting = self._deliveries.get(task, {})
        for offset in [offset for offset in waiting if offset < next_offset]:
            delivery = waiting.pop(offset)
            delivery.open -= 1
            if not delivery.open:
                step.answered.append(delivery)

    def _commit_steps(self) -> None:
        """Commits one step after the other; returns when the commit of the last is under way, or made."""
        while self._steps:
            if self._under_way is None:
                self._under_way = self._begun(self._steps[0])
            elif len(self._steps) > 1 or self._under_way.done():
                self.settle()
            else:
                return

    def _begun(self, step: _Step) -> Future[None]:
        """Commits a step, or only begins to, where there is something to do meanwhile."""
        if not step.moved:
            return COMMITTED
        if step.commit is None:
            step.commit = self._commit_of(step)
        started = perf_counter()

        def ended(commit: Future[None]) -> None:
            if commit.exception() is None:
                self._metrics.commit(perf_counter() - started)

        if self._much:
            commit = self._log.begin_commit(step.commit)
        else:
            self._log.commit(step.commit)
            commit = COMMITTED
        commit.add_done_callback(ended)
        return commit

    def settle(self) -> None:
        """Waits for the commit that is under way, if one is, and tells everybody whom it concerns. Raises as
        ``step`` does."""
        if self._under_way is None:
            return
        commit, self._under_way = self._under_way, None
        commit.result()
        step = self._steps.popleft()
        if step.commit is not None:
            if self._listener is not None:
                self._listener.committed(step.commit.outputs)
            for task in step.moved & self.engine.tables.keys():
                self._count_streams(task)
        for count in step.count:
            count()
        for answered in step.answered:
            answered.done(answered)  # type: ignore[arg-type]

    def _tell_moved(self) -> None:
        if self._listener is not None:
            self._listener.moved()

    def _commit_of(self, step: _Step) -> Commit:
        command = self.engine.catalog.offset
        return Commit(
            outputs=step.outputs,
            state={
                TopicPartition(*task): [StateRecord(*record) for record in self.engine.state_records(task)]
                for task in sorted(step.moved)
            },
            positions={
                TopicPartition(*task): Position(self.positions[task], command) for task in sorted(step.moved)
            },
        )

    def _codec(self, task: Task) -> _Codec:
        queries = self.engine.queries_of(task)
        codec = self._codecs.get(queries.source.name)
        if codec is None or codec.source is not queries.source:
            decoder = decoder_of(
                queries.source,
                queries.dictionaries,
                max_bytes=self._max_message_bytes,
                max_events=self._max_message_events,
            )
            encoder = self._encoder(queries)
            codec = self._codecs[queries.source.name] = _Codec(queries.source, decoder, encoder)
        return codec

    def _encoder(self, queries: QuerySet) -> Encoder:
        max_ids = self.engine.limits.ids
        return Encoder(queries, max_ids=max_ids, max_bytes=self._max_message_bytes)

    def history(self, start: int, limit: int, most_bytes: float) -> tuple[list[tuple[int, Any]], int]:
        """At most ``limit`` entries of the command log that have been applied, from an offset on, no more
        once they come to ``most_bytes``, and the offset to go on from. Not in a step."""
        end = self.engine.catalog.offset
        found: list[tuple[int, Any]] = []
        for record in self._log.commands(start, end):
            found.append((record.offset, wire.command_body(record.value)))
            most_bytes -= len(record.value or b"")
            if len(found) == limit or most_bytes <= 0:
                return found, record.offset + 1
        return found, max(start, end)

    # ---- metrics

    def _count_queries(self) -> None:
        self._metrics.query_set(self.engine.catalog.offset, self.engine.catalog.fingerprint)
        for name, queries in self.engine.sets.items():
            for tenant, (active, disabled) in queries.tenants.census.items():
                self._metrics.queries(name, tenant, active=active, disabled=disabled)

    def _count_borders(
        self, queries: QuerySet, sides: Iterable[tuple[int, NDArray[np.uint8]]], step: _Step
    ) -> None:
        name = queries.source.name
        step.count += [
            partial(self._metrics.borders, name, queries.tenants.names[number], some)
            for number, some in sides
        ]

    def _count_streams(self, task: Task) -> None:
        table, name = self.engine.tables[task], self._source(task).name
        self._metrics.partition(*task, name, streams=len(table), owed=table.owed.records)

    def measure(self) -> None:
        """Sets what is looked at now and then: the lag of every partition, a round trip to the log, and what
        the indexes are made of."""
        for name in self.engine.sets:
            parts = [part for parts in self.engine.index_views(name).values() for part in parts]
            boxes: Counter[str] = Counter()
            for part in parts:
                boxes[part.structure] += part.boxes - part.removed
            self._metrics.index(name, boxes=boxes, nbytes=sum(part.nbytes for part in parts))
        partitions = [TopicPartition(*task) for task in self.positions]
        for partition, end in self._log.end_offsets(partitions).items():
            self._metrics.lag(partition.topic, partition.partition, end - self.positions[Task(*partition)])


def _batched(entries: Iterator[tuple[int, Any]], size: int) -> Iterator[list[tuple[int, Any]]]:
    while batch := list(islice(entries, size)):
        yield batch
