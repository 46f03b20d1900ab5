"""The contract in the plainest Python: one event, one query, one stream at a time.

No index, no columns. Membership is computed from scratch before and after every cause and compared: this is
the oracle of the engine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from service.model import Initial, Kind, Late, Missing, Query, Source


@dataclass
class Stream:
    last: dict[str, Any] | None = None
    carried: dict[str, Any] = field(default_factory=dict)
    ts: int | None = None
    seq: int = 0


class Reference:
    """``matches`` gets (label, stream, sorted ids, late), ``borders`` (label, stream, seq, reason, leave,
    enter)."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.streams: dict[str, Stream] = {}
        self.queries: dict[str, Query] = {}
        self.ignored: set[tuple[str, str]] = set()
        self.matches: list[tuple[Any, str, list[str], bool]] = []
        self.borders: list[tuple[Any, str, int, str, list[str], list[str]]] = []
        self.late: list[Any] = []

    def members(self, stream_id: str) -> set[str]:
        stream = self.streams.get(stream_id)
        if stream is None or stream.last is None:
            return set()
        return {
            id
            for id, query in self.queries.items()
            if query.enabled and stream.last in query.region and (stream_id, id) not in self.ignored
        }

    def event(self, label: Any, stream_id: str, ts: int | None, values: dict[str, Any]) -> None:
        stream = self.streams.setdefault(stream_id, Stream())
        first = stream.last is None
        late = ts is not None and stream.ts is not None and ts < stream.ts
        if late and self.source.late is Late.REJECT:
            self.late.append(label)
            return
        value = dict(values)
        if self.source.missing is Missing.CARRY and not late:
            stream.carried.update(values)
            value = dict(stream.carried)
        unmoved = late and self.source.late is Late.NO_BORDER
        hit = sorted(
            id
            for id, query in self.queries.items()
            if query.enabled and Kind.MATCH in query.on and value in query.region
        )
        if hit:
            self.matches.append((label, stream_id, hit, unmoved))
        if unmoved:
            return
        before = self.members(stream_id)
        stream.last = value
        if not late and ts is not None:
            stream.ts = ts
        for id, query in self.queries.items():
            inside = query.enabled and value in query.region
            if first and inside and query.initial is Initial.IGNORE:
                self.ignored.add((stream_id, id))
            elif not inside:
                self.ignored.discard((stream_id, id))
        self._tell(label, stream_id, "event", before, self.members(stream_id))

    def remove(self, label: Any, stream_id: str) -> None:
        if stream_id not in self.streams:
            return
        before = self.members(stream_id)
        self.streams[stream_id].last = None
        self._tell(label, stream_id, "stream_removed", before, set())
        del self.streams[stream_id]
        self.ignored = {pair for pair in self.ignored if pair[0] != stream_id}

    def put(self, label: Any, query: Query) -> None:
        old = self.queries.get(query.id)
        before = {stream_id: self.members(stream_id) for stream_id in self.streams}
        begins = query.enabled and (old is None or not old.enabled or old.region != query.region)
        for stream_id, stream in self.streams.items():
            inside = query.enabled and stream.last in query.region
            pair = (stream_id, query.id)
            if not inside:
                self.ignored.discard(pair)
            elif begins:
                if query.initial is Initial.IGNORE and query.id not in before[stream_id]:
                    self.ignored.add(pair)
                else:
                    self.ignored.discard(pair)
        self.queries[query.id] = query
        if old is None:
            reason = "registered"
        elif old.enabled != query.enabled:
            reason = "enabled" if query.enabled else "disabled"
        else:
            reason = "updated"
        for stream_id in self.streams:
            self._tell_command(label, stream_id, reason, query.id, before[stream_id], old, query)

    def delete(self, label: Any, id: str) -> None:
        old = self.queries[id]
        before = {stream_id: self.members(stream_id) for stream_id in self.streams}
        del self.queries[id]
        self.ignored = {pair for pair in self.ignored if pair[1] != id}
        for stream_id in self.streams:
            self._tell_command(label, stream_id, "deleted", id, before[stream_id], old, None)

    def _tell_command(
        self,
        label: Any,
        stream_id: str,
        reason: str,
        id: str,
        before: set[str],
        old: Query | None,
        new: Query | None,
    ) -> None:
        was, is_ = id in before, id in self.members(stream_id)
        both = {Kind.ENTER, Kind.LEAVE}
        balanced0 = old is not None and both <= old.on
        balanced1 = new is not None and both <= new.on
        leave = (
            old is not None and Kind.LEAVE in old.on and was and (not is_ or (balanced0 and not balanced1))
        )
        enter = (
            new is not None and Kind.ENTER in new.on and is_ and (not was or (balanced1 and not balanced0))
        )
        self._record(label, stream_id, reason, [id] if leave else [], [id] if enter else [])

    def _tell(self, label: Any, stream_id: str, reason: str, before: set[str], after: set[str]) -> None:
        leave = sorted(id for id in before - after if Kind.LEAVE in self.queries[id].on)
        enter = sorted(id for id in after - before if Kind.ENTER in self.queries[id].on)
        self._record(label, stream_id, reason, leave, enter)

    def _record(self, label: Any, stream_id: str, reason: str, leave: list[str], enter: list[str]) -> None:
        if leave or enter:
            stream = self.streams[stream_id]
            stream.seq += 1
            self.borders.append((label, stream_id, stream.seq, reason, leave, enter))
