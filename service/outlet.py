"""The outlet: what the engine has caused, as records of a step, and what is counted once they are committed.

Not for: when a step is committed (``worker``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from service.deliveries import Delivery
from service.engine.effects import CommandEffects, Effects, EventEffects, Paid, Task
from service.engine.engine import Engine
from service.engine.queryset import QuerySet
from service.log.port import Commit, LogUnavailable, Output
from service.metrics import Metrics
from service.model import Source
from service.requests import CommandRequest
from service.wire import Encoder, Written


@dataclass(slots=True)
class Step:
    """What one step will commit, what it counts then, and whom it tells."""

    outputs: list[Output] = field(default_factory=list)
    moved: set[Task] = field(default_factory=set)
    count: list[Callable[[], None]] = field(default_factory=list)
    answered: list[CommandRequest | Delivery] = field(default_factory=list)
    commit: Commit | None = None
    #: what its events have matched, borders included; a refused one counts as ``REFUSED_AS`` matches
    matched: int = 0
    #: the log was not there for something that can wait
    away: LogUnavailable | None = None


class Outlet:
    """Of one engine."""

    def __init__(self, engine: Engine, *, metrics: Metrics, max_message_bytes: int) -> None:
        self._engine = engine
        self._metrics = metrics
        self._max_message_bytes = max_message_bytes
        self._encoders: dict[str, tuple[Source, Encoder]] = {}

    def caused(self, effects: CommandEffects | Paid, step: Step) -> None:
        """What a command has caused, or the time alone."""
        task = effects.task
        queries = self._engine.queries_of(task)
        step.outputs += self._encoder(queries).commands(effects, self._engine.tables[task])
        self._count_borders(queries, effects.sides_by_tenant, step)
        self._told(effects, queries, step)

    def events(
        self, effects: EventEffects, originals: Mapping[tuple[int, int], bytes | None], step: Step
    ) -> Written:
        """What events have caused; ``originals``: as in ``Encoder.events``."""
        queries = self._engine.queries_of(effects.task)
        written = self._encoder(queries).events(effects, originals)
        step.outputs += written.outputs
        self._count_borders(queries, effects.borders.sides_by_tenant, step)
        self._told(effects, queries, step)
        return written

    def _told(self, effects: Effects, queries: QuerySet, step: Step) -> None:
        if effects.aggregates:
            step.outputs += self._encoder(queries).aggregates(effects.task, effects.aggregates)
            step.count.append(partial(self._metrics.aggregates, queries.source.name, len(effects.aggregates)))

    def _count_borders(
        self, queries: QuerySet, sides: Iterable[tuple[int, NDArray[np.uint8]]], step: Step
    ) -> None:
        name = queries.source.name
        step.count += [
            partial(self._metrics.borders, name, queries.tenants.names[number], some)
            for number, some in sides
        ]

    def _encoder(self, queries: QuerySet) -> Encoder:
        """Made anew when the source changes."""
        source, encoder = self._encoders.get(queries.source.name, (None, None))
        if encoder is None or source is not queries.source:
            encoder = Encoder(queries, max_ids=self._engine.limits.ids, max_bytes=self._max_message_bytes)
            self._encoders[queries.source.name] = queries.source, encoder
        return encoder
