"""The oracle: the engine over the log as it was written, in one go, on an index that compares everything.

One partition at a time, step by committed step. Nothing is shared with the run that is judged but the
engine's rules and the encoder; no worker, no restart, no state.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from service import wire
from service.decode import Decoder
from service.engine.effects import CommandEffects, EventEffects, Paid, Task, with_refused
from service.engine.engine import Engine, EngineLimits
from service.index.brute import BruteForce
from service.log.port import Output, Position, Record, TopicPartition
from service.wire import Encoder

#: Later than anything that is waited for, ms.
_END_OF_TIME = 1 << 50

Streams = Mapping[tuple[str, bytes | None], Sequence[Any]]
"""By topic and key the records in order."""


class Uninterrupted:
    """The life of one partition. ``engine`` is as it ends."""

    def __init__(self, partition: TopicPartition, *, max_ids: int, max_bytes: int) -> None:
        self._task = Task(*partition)
        self._max_bytes = max_bytes
        self._limits = EngineLimits(ids=max_ids)
        self.engine = Engine(
            engine_limits=self._limits, make_index=lambda source: BruteForce(len(source.attributes))
        )
        self.outputs: list[Output] = []

    def run(self, steps: Iterable[Position], commands: Sequence[Record], events: Sequence[Record]) -> None:
        for before, after in pairwise([Position(0, 0), *steps]):
            entries = [one for one in commands if before.command <= one.offset < after.command]
            self._command([(one.offset, wire.command_body(one.value)) for one in entries])
            self._apply([one for one in events if before.event <= one.offset < after.event])
        if self._task in self.engine.tables:
            self._tell(self.engine.tick(self._task, _END_OF_TIME))

    def _command(self, entries: Sequence[tuple[int, Any]]) -> None:
        # The time is that of the last event, or none: what commands write has no time of its own here.
        self._tell(self.engine.command(entries, 0))
        while self.engine.owes:
            self._tell(self.engine.pay())

    def _tell(self, caused: Iterable[CommandEffects | Paid]) -> None:
        for effects in caused:
            self.outputs += self._encoder().commands(effects, self.engine.tables[self._task])

    def _apply(self, records: Sequence[Record]) -> None:
        if self._task not in self.engine.tables:
            self.engine.assign(self._task, ())
        queries = self.engine.queries_of(self._task)
        decoder = Decoder(queries.source, queries.dictionaries, max_bytes=self._max_bytes)
        decoded = decoder.decode(records)
        for effects in with_refused(self.engine.apply(self._task, decoded.batch), decoded.refused):
            if isinstance(effects, EventEffects):
                self.outputs += self._encoder().events(effects, decoded.originals).outputs
            else:
                self._tell([effects])

    def _encoder(self) -> Encoder:
        queries = self.engine.queries_of(self._task)
        return Encoder(queries, max_ids=self._limits.ids, max_bytes=self._max_bytes)


def by_stream(outputs: Iterable[tuple[str, bytes | None, bytes | None]]) -> Streams:
    """Records as they can be compared: in order for each topic and key, but those without a key, which lie
    anywhere, sorted. What a command wrote bears the time at which it was applied, which is not compared."""
    found: dict[tuple[str, bytes | None], list[Any]] = defaultdict(list)
    for topic, key, value in outputs:
        record = json.loads(value or b"null")
        if "command" in record["origin"]:
            del record["ts"]
        found[topic, key].append(record)
    for (_, key), records in found.items():
        if key is None:
            records.sort(key=repr)
    return found


def check_balance(streams: Streams) -> dict[str, set[str]]:
    """Folds the border records of every stream; who is inside what in the end. Fails where they do not
    balance."""
    inside: dict[str, set[str]] = {}
    for (topic, key), records in streams.items():
        if topic != "borders":
            continue
        members: set[str] = set()
        seq = 0
        for record in records:
            if record["seq"] == 1:
                assert not members or record["reason"] == "reset", f"{key!r}: a new life with {members}"
                members.clear()
            else:
                assert record["seq"] == seq + 1, f"{key!r}: {record['seq']} after {seq}"
            seq = record["seq"]
            assert members.issuperset(record["leave"]), f"{key!r}: {record} with {members}"
            members.difference_update(record["leave"])
            assert members.isdisjoint(record["enter"]), f"{key!r}: {record} with {members}"
            members.update(record["enter"])
        inside[(key or b"").decode()] = members
    return inside
