"""The worker: the loop that turns log into log. One thread, no locks, one commit a step.

A step takes the requests that wait, polls the log, applies commands, writes a portion of the records that
commands have left owed, applies events, and commits outputs, state and positions in one transaction. Only
then is anybody told. If the worker dies anywhere, the next one starts from the last commit and nothing that
was not committed has happened.

Where much comes in, a commit is only begun: the next step takes in what there is while it is under way, and
waits before it commits itself. Commits are made one after the other, so at any time what the log lacks of the
engine is the last two steps at most, and they are gone together.

A worker begins by replaying the command log. Partitions come with its steps, and go; one that comes is
brought up to the catalog first (``recovery``).

Not for: threads, futures, HTTP (``runtime``); deciding anything about queries or streams (``engine``).
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from time import perf_counter
from typing import Any, Protocol

from service import wire
from service.decode import MOST_EVENTS
from service.deliveries import Deliveries, Delivery
from service.engine.effects import Task
from service.engine.engine import Engine, Held
from service.engine.versions import UnreadableState
from service.intake import Intake
from service.log.port import (
    COMMITTED,
    Assignment,
    Commit,
    Log,
    LogError,
    LogFenced,
    LogUnavailable,
    LogUnusable,
    Output,
    Polled,
    Position,
    Record,
    StateRecord,
    TopicPartition,
)
from service.metrics import Metrics
from service.outlet import Outlet, Step
from service.pace import MOST_MATCHES
from service.rebuilds import Rebuilds
from service.recovery import Recovery
from service.registry import NoRegistry, Schemas
from service.requests import ActiveFrom, CommandRequest, Requests

logger = logging.getLogger("rangewatch")

#: How long to wait for news when others write commands, before it is asked again whether they still do.
_TURN_S = 0.05
#: How long partitions are taken in one step before the others get their turn.
_TAKING_S = 0.2
#: How long an answer waits for partitions of a new topic, ms: a member that has died may hold them up.
_JOIN_MS = 5_000


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
        schemas = schemas or NoRegistry()
        schemas.when_news(log.wake)
        self._listener = listener
        self._rebuilds = Rebuilds()
        self._make_engine = make_engine
        self._metrics = metrics
        self._clock = clock
        self._max_batch_events = max_batch_events
        self._make_outlet = partial(Outlet, metrics=metrics, max_message_bytes=max_message_bytes)
        self._recovery = Recovery(
            log, make_engine, self._make_outlet, metrics, clock=clock, lost_input=lost_input
        )
        self._make_intake = partial(
            Intake,
            log=log,
            schemas=schemas,
            metrics=metrics,
            max_message_bytes=max_message_bytes,
            max_message_events=max_message_events,
            most_matches=most_matches,
        )
        self._forget()

    def _forget(self) -> None:
        self.engine = self._make_engine()
        #: whether it has been as it is meant to be since then: there is something to ask about
        self._has_begun = False
        self.positions: dict[Task, int] = {}
        #: taken in and not known to be committed, the oldest first, and the commit of that
        self._steps: deque[Step] = deque()
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
        #: partitions that are this worker's and not at work yet, and how often each was tried; whether some
        #: were left for the next step
        self._waiting: set[Task] = set()
        self._tries: Counter[Task] = Counter()
        self._much_waits = False
        #: partitions lost in a rebalance that goes on, as they were, and the position they were at
        self._held: dict[Task, tuple[Held, Position]] = {}
        self._next_command = 0
        self._requests = Requests(self._log, self._metrics)
        self._deliveries = Deliveries()
        self._outlet = self._make_outlet(self.engine)
        self._intake = self._make_intake(self.engine, self._outlet, self._deliveries, self.positions)

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
        self._recovery.replay(self.engine, self._log.end_of_commands())
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
        waiting: list[CommandRequest | Delivery] = [*self._requests.all, *self._deliveries]
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
            self._intake.forget(task)
            self._metrics.forget_partition(*task)
        if assignment.lost and self._joins_until is None:
            self._joins_until = self._clock() + _JOIN_MS
        self._waiting.update(Task(*partition) for partition in assignment.gained)
        # Those that have been tried least, of these first what was here till now. What is left is for the
        # next step: all else goes on.
        began, self._much_waits = perf_counter(), False
        for task in sorted(self._waiting, key=lambda one: (self._tries[one], one not in self._held, one)):
            try:
                self._tries[task] += 1
                if not self._log.at_rest(TopicPartition(*task)):
                    break  # whoever had it died at work
                self._take(task)
            except UnreadableState as error:
                raise LogUnusable(
                    f"the state of {task.topic}/{task.partition} cannot be read ({error}): run the version"
                    " that wrote it, if that is a newer one, or restore a copy of the log from before"
                ) from error
            if perf_counter() - began > _TAKING_S:
                self._much_waits = bool(self._waiting)
                break
        self._has_begun = self._has_begun or (self._log.settled and not self._waiting)
        if self._joins_until is not None and (self._is_dealt() or self._joins_late(self._joins_until)):
            self._undealt, self._joins_until = frozenset(), None
        if self._log.settled and self._joins_until is None:  # what is not here now is another worker's
            gone = self._held.keys() - self._waiting
            if gone:
                self._tell_moved()
            for task in gone:
                del self._held[task]
            self._deliveries.end_elsewhere(self.engine.tables.keys() | self._waiting)

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

    def _take(self, task: Task) -> None:
        """Takes a partition on as soon as the catalog is not behind it.

        One that this worker had until just now, and that nobody has moved since, is taken up as it was: its
        state is committed together with its position, so the position tells."""
        partition = TopicPartition(*task)
        offset = self.engine.catalog.offset
        position = self._recovery.position(task, offset)
        held, position_then = self._held.pop(task, (None, None))
        if position is not None:
            if held is not None and position == position_then and position.command == offset:
                self.engine.resume(task, held)
                self._begin(task, self._log.start(partition, position.event))
                return
            if position.command > offset:
                return
        records, event = [], None
        if position is not None:
            records = self._recovery.brought_up(task, position, self.engine)
            event = self._recovery.next_event(task, position)
            self._tell_moved()  # its streams are new to whoever listens
        self.engine.assign(task, records)
        self._begin(task, self._log.start(partition, event))

    def _begin(self, task: Task, offset: int) -> None:
        self.positions[task] = offset
        self._waiting.discard(task)
        del self._tries[task]
        self._deliveries.begin(task, offset)
        self._count_streams(task)

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
            self._steps.append(Step())
            try:
                self._take_in(polled, self._steps[-1])
            except LogUnavailable as away:  # what was polled would be skipped by the next poll
                raise LogFenced(f"the log went away in the middle of a step ({away})") from away
            self._much |= self._intake.is_cut
            if self._steps[-1].away is not None:
                raise self._steps[-1].away
        self._commit_steps()
        self._rebuilds.tend(self.engine.indexes())
        if not self._held:
            self.engine.tidy()

    def _wait_s(self, timeout_s: float) -> float:
        """How long the next poll may wait for news."""
        if self._much or self._much_waits or self.engine.owes or self._requests.in_work:
            return 0.0
        return min(timeout_s, _TURN_S) if self._requests.begun else timeout_s

    @property
    def uncommitted(self) -> int:
        """How many commits the engine is ahead of what is known to be in the log."""
        return sum(bool(step.moved) for step in self._steps)

    def _take_in(self, polled: Polled, step: Step) -> None:
        self._assign(polled.assignment)
        self._next_command = polled.next_command
        self._tick(step)
        self._apply_commands(polled.commands, step)
        self._answer(step)
        for effects in self.engine.pay():
            self._outlet.caused(effects, step)
            step.moved.add(effects.task)
        self._intake.take(polled.chunks, step)

    @property
    def held(self) -> str | None:
        """Why the input of partitions waits for schemas; None where none waits for longer than it takes."""
        return self._intake.held

    def _accept(self, request: CommandRequest | Delivery) -> None:
        if isinstance(request, CommandRequest):
            self._requests.add(request)
            return
        try:
            request.positions = self._log.append_events(request.topic, request.messages)
        except LogError as error:
            request.failed(error)
        else:
            self._deliveries.add(request)

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

    def _tick(self, step: Step) -> None:
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
                self._outlet.caused(effects, step)
                step.moved.add(task)

    def _active_from(self) -> ActiveFrom:
        """By source, the next event of each of its partitions."""
        found: dict[str, dict[tuple[str, int], int]] = {}
        for task, position in self.positions.items():
            source = self.engine.source_of_topic[task.topic]
            found.setdefault(source, {})[task.topic, task.partition] = position
        return found

    def _apply_commands(self, records: Sequence[Record], step: Step) -> None:
        if not records:
            return
        entries = [(record.offset, wire.command_body(record.value)) for record in records]
        offsets = [offset for offset, _ in entries]
        judged = self._requests.judged(offsets)
        for effects in self.engine.command(entries, self._clock(), judged):
            self._outlet.caused(effects, step)
        self._drop_sourceless()
        self._tell_unreadable()
        step.moved = set(self.engine.tables)
        self._subscribe()
        self._count_queries()
        self._untold.append((offsets, self._active_from()))
        self._intake.added(len(records))

    def _answer(self, step: Step) -> None:
        """Notes whom the step answers. Where a command has changed what is subscribed to, that is after its
        partitions have come: only then are there positions to name."""
        if not self._untold or self.dealing:
            return
        since = self._active_from()
        for offsets, then in self._untold:
            found = {name: {**here, **then.get(name, {})} for name, here in since.items()}
            step.answered += self._requests.applied(offsets, {**then, **found})
        self._untold = []

    def _commit_steps(self) -> None:
        """Commits one step after the other; returns when the commit of the last is under way, or made."""
        while self._steps:
            if self._under_way is None:
                self._under_way = self._begun(self._steps[0])
            elif len(self._steps) > 1 or self._under_way.done():
                self.settle()
            else:
                return

    def _begun(self, step: Step) -> Future[None]:
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

    def _commit_of(self, step: Step) -> Commit:
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

    def _count_streams(self, task: Task) -> None:
        table, name = self.engine.tables[task], self.engine.queries_of(task).source.name
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
