"""The intake: what was polled of partitions, decoded and applied, as much of it as a step holds.

What a step holds is bounded by what its events match and by how many are refused (``pace``), for that is in
memory until the commit. A commit has whole messages: the rest is kept, its partition is paused, and the next
step begins with it. So is what cannot be read until schemas of a registry have come.

Invariant: of a partition that is paused no more is kept than one poll brought, and nothing behind it is
applied before it.

Not for: commands and what time does (``worker``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter

import numpy as np

from service.decoders import decoder_of
from service.deliveries import Deliveries
from service.engine.effects import Batch, EventEffects, Refused, Task, with_refused
from service.engine.engine import Engine
from service.log.port import Chunk, Log, TopicPartition
from service.metrics import Metrics
from service.model import Source
from service.outlet import Outlet, Step
from service.pace import REFUSED_AS, Pace
from service.registry import Schemas, SchemasUnavailable
from service.rows import AnyDecoder, Decoded


@dataclass(slots=True)
class _Told:
    """What events have come to so far."""

    parts: int = 0
    late: int = 0
    carried: int = 0
    seconds: float = 0.0
    refused: Counter[str] = field(default_factory=Counter)
    matches: Counter[str] = field(default_factory=Counter)


class Intake:
    """``positions``: the next event of every partition that is at work; moved as events are applied."""

    def __init__(
        self,
        engine: Engine,
        outlet: Outlet,
        deliveries: Deliveries,
        positions: dict[Task, int],
        *,
        log: Log,
        schemas: Schemas,
        metrics: Metrics,
        max_message_bytes: int,
        max_message_events: int,
        most_matches: int,
    ) -> None:
        self._log = log
        self._engine = engine
        self._outlet = outlet
        self._deliveries = deliveries
        self._positions = positions
        self._schemas = schemas
        self._metrics = metrics
        self._max_message_bytes = max_message_bytes
        self._max_message_events = max_message_events
        self._most_matches = most_matches
        self._decoders: dict[str, tuple[Source, AnyDecoder]] = {}
        #: what was read of partitions that are paused, and those of them that wait for the next step only
        self._parked: dict[Task, list[Chunk]] = {}
        self._cut: set[Task] = set()
        self._paces: dict[Task, Pace] = {}

    @property
    def is_cut(self) -> bool:
        """Whether there is something that waits for the next step only."""
        return bool(self._cut)

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

    def forget(self, task: Task) -> None:
        """A partition that has gone."""
        self._parked.pop(task, None)
        self._paces.pop(task, None)

    def added(self, queries: int) -> None:
        """So many queries may have come."""
        for pace in self._paces.values():
            pace.added(queries)

    def take(self, polled: Sequence[Chunk], step: Step) -> None:
        """Applies the chunks whose schemas are all there, those that have waited first, until the step holds
        enough."""
        parked, self._parked = self._parked, {}
        self._cut = set()
        for chunk in [*(chunk for chunks in parked.values() for chunk in chunks), *polled]:
            task = Task(*chunk.partition)
            if task not in self._engine.tables:
                continue
            if task not in self._parked:
                if step.matched >= self._most_matches:
                    self._cut.add(task)
                elif self._has_schemas(task, chunk):
                    rest = self._apply(task, chunk, step)
                    if rest is None:
                        continue
                    self._cut.add(task)
                    chunk = rest
            if task not in parked and task not in self._parked:
                self._log.pause([chunk.partition])
            self._parked.setdefault(task, []).append(chunk)
        if parked:
            self._log.resume([TopicPartition(*task) for task in parked if task not in self._parked])
        self._metrics.held(len(self._lacking))
        if self._lacking and (trouble := self._schemas.trouble):
            error = SchemasUnavailable(f"{trouble}; the events are in the log and will be processed")
            for task in self._lacking:
                self._deliveries.fail(task, error)

    def _has_schemas(self, task: Task, chunk: Chunk) -> bool:
        decoder = self._decoder(task)
        lacking = decoder.lacking(chunk.records)
        if not lacking:
            return True
        found = self._schemas.look(lacking)
        decoder.learn(found)
        return len(found) == len(lacking)

    def _apply(self, task: Task, chunk: Chunk, step: Step) -> Chunk | None:
        """Applies the events of a chunk, some messages at a time. Where the step holds enough, the messages
        that are left are returned, to be read anew."""
        records = chunk.records
        while True:
            decoded = self._decoder(task).decode(records)
            whole = decoded.read == len(records)
            next_offset = self._apply_decoded(
                task, decoded, chunk.next_offset if whole else records[decoded.read].offset, step
            )
            self._positions[task] = next_offset
            step.answered += self._deliveries.passed(task, next_offset)
            if next_offset == chunk.next_offset:
                return None
            records = [one for one in records if one.offset >= next_offset]
            if step.matched >= self._most_matches:
                return chunk._replace(records=records)

    def _apply_decoded(self, task: Task, decoded: Decoded, behind: int, step: Step) -> int:
        """Applies events up to the offset ``behind``, as many at a time as fit, or to the end of the message
        with which the step holds enough. Returns the offset to go on from."""
        queries = self._engine.queries_of(task)
        pace = self._paces.setdefault(task, Pace(len(queries.names), self._most_matches))
        told = _Told()
        offsets, left = decoded.batch.offsets, decoded.refused
        start, end, next_offset = 0, len(offsets), behind
        while start < end or not told.parts:
            allowed = pace.events(len(queries.names))
            stop = min(start + allowed, end)
            batch = decoded.batch if stop - start == end else decoded.batch.take(np.arange(start, stop))
            refused, left, ends = left, [], True
            if stop < end:
                ends = offsets[stop] > offsets[stop - 1]
                place = int(offsets[stop]), 0 if ends else int(decoded.batch.items[stop])
                left = [one for one in refused if (one.offset, one.item) >= place]
                refused = [one for one in refused if (one.offset, one.item) < place]
            matched = self._apply_part(task, batch, refused, decoded.originals, told, step)
            if stop > start:
                pace.took(stop - start, matched, allowed)
            start = stop
            if step.matched >= self._most_matches and stop < end and ends:
                next_offset = int(offsets[stop])
                break
        step.moved.add(task)
        step.count.append(
            partial(
                self._metrics.batch,
                queries.source.name,
                events=decoded.events - int((~decoded.batch.removal[start:]).sum()) - len(left),
                refused=told.refused,
                late=told.late,
                carried=told.carried,
                nulls=int(decoded.nulls[:start].sum()),
                matches=told.matches,
                match_seconds=told.seconds,
            )
        )
        return next_offset

    def _apply_part(
        self,
        task: Task,
        batch: Batch,
        refused: Sequence[Refused],
        originals: Mapping[tuple[int, int], bytes | None],
        told: _Told,
        step: Step,
    ) -> int:
        """Returns what the events have matched, borders included."""
        matched = 0
        started = perf_counter()
        caused = self._engine.apply(task, batch)
        told.seconds += perf_counter() - started
        told.parts += 1
        tenants = self._engine.queries_of(task).tenants
        for effects in with_refused(caused, refused):
            if not isinstance(effects, EventEffects):
                self._outlet.caused(effects, step)
                continue
            written = self._outlet.events(effects, originals, step)
            told.late += effects.older
            told.carried += effects.carried
            matched += len(effects.matches.slots) + len(effects.borders.slots)
            step.matched += REFUSED_AS * len(effects.refused)
            told.matches.update(tenants.shares(effects.matches.slots))
            told.refused.update(one.reason for one in effects.refused)
            self._deliveries.note(task, written, effects)
        step.matched += matched
        return matched

    def _decoder(self, task: Task) -> AnyDecoder:
        """Made anew when the source changes."""
        queries = self._engine.queries_of(task)
        source, decoder = self._decoders.get(queries.source.name, (None, None))
        if decoder is None or source is not queries.source:
            decoder = decoder_of(
                queries.source,
                queries.dictionaries,
                max_bytes=self._max_message_bytes,
                max_events=self._max_message_events,
            )
            self._decoders[queries.source.name] = queries.source, decoder
        return decoder
