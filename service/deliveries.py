"""Deliveries: messages that somebody put into the log and waits for, until what they caused is committed.

The log says where each message came to lie. As the events there are applied, what they cause is noted with
whom it concerns; the commit of the last of them is the answer.

Not for: applying events, or when a commit is made (``worker``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from service.engine.effects import EventEffects, Task
from service.log.port import Message, Output
from service.tenants import DEFAULT_TENANT
from service.wire import Written, owner


@dataclass(slots=True, eq=False)
class Delivery:
    """Messages that somebody waits for: ``done`` is called after the commit of the last of them.

    ``outputs`` is what they caused that ``tenant`` is told, in order: its own records and the dead letters.
    What others are told leaves no trace here. ``removed``: whether a tombstone among them removed a stream.
    ``elsewhere``: some are in partitions of another worker, who tells of none here; they will be processed.
    ``too_long``: the outputs come to more than ``room`` bytes, and are not here.
    """

    topic: str
    messages: Sequence[Message]
    done: Callable[[Delivery], None]
    failed: Callable[[BaseException], None]
    tenant: str = DEFAULT_TENANT
    room: float = math.inf
    positions: list[tuple[int, int]] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    refused: int = 0
    removed: bool = False
    elsewhere: bool = False
    too_long: bool = False
    open: int = 0

    def note(self, output: Output) -> None:
        """A record that the messages have caused: adds it, if it is for the tenant."""
        if self.too_long or owner(output.value) not in (None, self.tenant):
            return
        self.room -= len(output.value) + len(output.key or b"")
        if self.room >= 0:
            self.outputs.append(output)
        else:
            self.outputs, self.too_long = [], True


class Deliveries:
    """Those that wait, by where their messages are."""

    def __init__(self) -> None:
        self._waiting: dict[Task, dict[int, Delivery]] = {}

    def __iter__(self) -> Iterator[Delivery]:
        """Each of them; those of several messages more than once."""
        for by_offset in self._waiting.values():
            yield from by_offset.values()

    def add(self, delivery: Delivery) -> None:
        """One whose messages are in the log, at its ``positions``."""
        delivery.open = len(delivery.positions)
        for partition, offset in delivery.positions:
            self._waiting.setdefault(Task(delivery.topic, partition), {})[offset] = delivery
        if not delivery.open:
            delivery.done(delivery)

    def note(self, task: Task, written: Written, effects: EventEffects) -> None:
        """What events of a partition have caused, for whoever waits for them."""
        waiting = self._waiting.get(task)
        if not waiting:
            return
        for output, offset in zip(written.outputs, written.offsets.tolist(), strict=True):
            if offset in waiting:
                waiting[offset].note(output)
        for refused in effects.refused:
            if refused.offset in waiting:
                waiting[refused.offset].refused += 1
        for offset in effects.batch.offsets[effects.removed].tolist():
            if offset in waiting:
                waiting[offset].removed = True

    def passed(self, task: Task, next_offset: int) -> list[Delivery]:
        """Those of which nothing is left to be applied, now that a partition is at an offset."""
        waiting, whole = self._waiting.get(task, {}), []
        for offset in [offset for offset in waiting if offset < next_offset]:
            delivery = waiting.pop(offset)
            delivery.open -= 1
            if not delivery.open:
                whole.append(delivery)
        return whole

    def end_elsewhere(self, here: Collection[Task]) -> None:
        """Tells whoever waits for events of a partition that is not here that another worker processes
        them."""
        for task in self._waiting.keys() - here:
            for delivery in dict.fromkeys(self._waiting.get(task, {}).values()):
                self._end(delivery)

    def begin(self, task: Task, offset: int) -> None:
        """A partition is gone on with from an offset. Whoever waits for events before it is told that another
        worker has processed them: it had the partition in between."""
        waiting = self._waiting.get(task, {})
        for delivery in dict.fromkeys(one for at, one in waiting.items() if at < offset):
            self._end(delivery)

    def _end(self, delivery: Delivery) -> None:
        for task, by_offset in list(self._waiting.items()):
            kept = {offset: one for offset, one in by_offset.items() if one is not delivery}
            if kept:
                self._waiting[task] = kept
            else:
                del self._waiting[task]
        delivery.elsewhere = True
        delivery.done(delivery)

    def fail(self, task: Task, error: BaseException) -> None:
        """Tells whoever waits for events of a partition that they will be processed, unheard of."""
        for delivery in dict.fromkeys(self._waiting.pop(task, {}).values()):
            delivery.failed(error)

    def clear(self) -> None:
        self._waiting.clear()
