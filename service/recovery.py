"""Recovery: what a partition gets before this worker goes on with it.

The position of a partition says which of its events have been processed, and which commands its streams have
been told of. Where the catalog has seen more (a crash between a command and its effects, a partition that was
elsewhere), its streams first get what they missed, from a second engine that is replayed to just that
position, in a commit of its own. The partition's state says what that query set was (``fingerprint``): where
it cannot be had any more, because the command log keeps replaced versions for a limited time only, or where
the state itself is gone, the streams begin anew with a ``reset``.

Invariant: whatever is committed here moves the position of the partition with it, so a crash in between
neither loses it nor makes it twice.

Not for: when partitions are taken, or what becomes of them then (``worker``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from service import wire
from service.engine.effects import CommandEffects, Paid, Task
from service.engine.engine import Engine
from service.engine.fingerprint import text as shown
from service.engine.state import heard
from service.log.port import Commit, Log, LogUnusable, Position, StateRecord, TopicPartition
from service.metrics import Metrics
from service.outlet import Outlet, Step
from service.stored import StoredQueries

logger = logging.getLogger("rangewatch")

StateOf = list[tuple[bytes, bytes]]
"""The state records of one partition."""

_GONE = {
    "state": "its position is known and its state is gone; every stream gets a reset with its next event",
    "position": "its state is known and its position is gone; every stream gets a reset",
    "commands": "the query set that its streams have seen cannot be had any more; every stream gets a reset",
}

#: How many entries of the command log are applied at a time for streams that have missed them.
MISSED_ENTRIES = 10_000


class Recovery:
    """``make_engine`` gives a fresh engine, one for each catching up; ``lost_input`` is the setting."""

    def __init__(
        self,
        log: Log,
        make_engine: Callable[[], Engine],
        make_outlet: Callable[[Engine], Outlet],
        metrics: Metrics,
        *,
        clock: Callable[[], int],
        lost_input: str,
    ) -> None:
        self._log = log
        self._make_engine = make_engine
        self._make_outlet = make_outlet
        self._metrics = metrics
        self._clock = clock
        self._lost_input = lost_input

    def replay(self, engine: Engine, end: int) -> None:
        """Brings a fresh engine to a command offset."""
        queries = StoredQueries(engine.catalog.sources)
        engine.replay(
            (record.offset, queries.read(record.value) or wire.command_body(record.value))
            for record in self._log.commands(0, end)
        )

    def position(self, task: Task, command: int) -> Position | None:
        """Where a partition stands; None of a new one. One that has a state and no position stands at its
        beginning, with the commands up to ``command``, once its streams have begun anew. Raises LogUnusable
        of such a one unless ``lost_input`` allows it."""
        partition = TopicPartition(*task)
        position = self._log.position(partition)
        if position is not None:
            return position
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
        self._reset(task, position, records, "position", command)
        return position._replace(command=command)

    def next_event(self, task: Task, position: Position) -> int:
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

    def brought_up(self, task: Task, position: Position, engine: Engine) -> StateOf:
        """The state of a partition whose streams have been told of all commands that ``engine`` has seen."""
        records, command = self._state_of(task), engine.catalog.offset
        known = heard(records)
        if position.command < command:
            engine = self._make_engine()
            self.replay(engine, position.command)
        fingerprint = engine.catalog.fingerprint
        if not records and position.event > 0:
            self._reset(task, position, records, "state", command)
        elif known is not None and known.at != (position.command, fingerprint):
            logger.error(
                "the query set at command %d was %s, and is %s here",
                *(known.offset, shown(known.fingerprint), shown(fingerprint)),
            )
            self._reset(task, position, records, "commands", command)
        elif position.command < command:
            self._make_up(task, engine, position, command, records)
        else:
            return records
        return self._state_of(task)

    def _state_of(self, task: Task) -> StateOf:
        return [(record.key, record.value or b"") for record in self._log.restore(TopicPartition(*task))]

    def _make_up(
        self, task: Task, engine: Engine, position: Position, command: int, records: StateOf
    ) -> None:
        """Commits what the streams of a partition missed of the command log, from its position on, where
        ``engine`` is."""
        engine.assign(task, records)
        now = self._clock()
        missed = (
            (record.offset, wire.command_body(record.value))
            for record in self._log.commands(position.command, command)
        )
        for entries in _batched(missed, MISSED_ENTRIES):
            effects = [*engine.command(entries, now), *engine.pay()]
            self._commit(task, engine, effects, Position(position.event, entries[-1][0] + 1))

    def _reset(self, task: Task, position: Position, records: StateOf, missing: str, command: int) -> None:
        """Commits that the streams of a partition begin anew, with the query set at ``command``: what is
        needed to go on is gone."""
        logger.error("%s/%d begins anew: %s", *task, _GONE[missing])
        self._metrics.reset(missing)
        engine = self._make_engine()
        self.replay(engine, command)
        effects = engine.reset(task, records, position.command, self._clock())
        self._commit(task, engine, effects, Position(position.event, engine.catalog.offset))

    def _commit(
        self, task: Task, engine: Engine, effects: Iterable[CommandEffects | Paid], position: Position
    ) -> None:
        """A commit of one partition, by an engine of its own. Nothing of it is counted."""
        outlet, step = self._make_outlet(engine), Step()
        for one in effects:
            outlet.caused(one, step)
        state = [StateRecord(*record) for record in engine.state_records(task)]
        partition = TopicPartition(*task)
        self._log.commit(Commit(step.outputs, {partition: state}, {partition: position}))


def _batched(entries: Iterator[tuple[int, Any]], size: int) -> Iterator[list[tuple[int, Any]]]:
    while batch := list(islice(entries, size)):
        yield batch
