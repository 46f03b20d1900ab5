"""The contract in the plainest Python: one event, one query, one stream, one pair at a time.

No index, no columns, no heap: what is due is looked for among all pairs, and every cause ends in ``_judge``,
which is the rule of membership in words. This is the oracle of the engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

from service.model import Initial, Interval, Kind, Late, Missing, Query, Reason, Region, Source
from service.tenants import order, tenant_of


class Border(NamedTuple):
    """A border record; ``label`` says what caused it. Ids are keys of queries of one tenant."""

    label: Any
    tenant: str
    stream: str
    seq: int
    ts: int
    reason: str
    leave: list[str]
    enter: list[str]
    cross: list[str]


@dataclass
class Pair:
    """What is known of one stream and one query. ``since``: it waits since then; ``free_at``: a cooldown ends
    then; ``spent``: it was a member once, and the query is ``once``."""

    member: bool = False
    ignored: bool = False
    since: int | None = None
    free_at: int | None = None
    spent: bool = False

    def due(self, query: Query) -> int | None:
        return None if self.since is None else max(self.since + query.dwell, self.free_at or 0)


@dataclass
class Stream:
    seen: int
    last: dict[str, Any] = field(default_factory=dict)
    carried: dict[str, Any] = field(default_factory=dict)
    ts: int | None = None
    seq: Counter[str] = field(default_factory=Counter)
    ids: list[str] = field(default_factory=list)
    pairs: dict[str, Pair] = field(default_factory=dict)

    def pair(self, id: str) -> Pair:
        return self.pairs.setdefault(id, Pair())


class Due(NamedTuple):
    """What time does to a stream, in the order in which it does it."""

    at: int
    removes: bool
    stream_id: str
    tenant: tuple[bool, str] = (False, "")
    cooled: bool = False
    id: str = ""


class Reference:
    """One partition. ``matches`` gets (label, stream, sorted ids, late), ``borders`` the records; at most
    ``max_ids`` ids each. ``refused`` gets the labels of events that are not accepted, and why."""

    def __init__(self, source: Source, now: int, max_ids: int) -> None:
        self.source = source
        self.now = now
        self.max_ids = max_ids
        self.ahead: int | None = None
        self.reached: int | None = None
        self.streams: dict[str, Stream] = {}
        self.queries: dict[str, Query] = {}
        self.matches: list[tuple[Any, str, list[str], bool]] = []
        self.borders: list[Border] = []
        self.refused: list[tuple[Any, Reason]] = []

    def members(self, stream_id: str) -> set[str]:
        stream = self.streams.get(stream_id)
        return {id for id, pair in stream.pairs.items() if pair.member} if stream else set()

    def inside(self, id: str) -> list[str]:
        return sorted(stream_id for stream_id in self.streams if id in self.members(stream_id))

    # ---- time

    @property
    def time(self) -> int:
        """The partition's time, if no event comes before."""
        wall = self.now + (self.ahead or 0)
        return wall if self.reached is None else max(wall, self.reached)

    def wait_until(self, now: int) -> None:
        """The wall clock moves, and all that was sent has been read."""
        self.now = now
        if self.reached is not None:
            self.reached = self.time
        self._fire(self.time)
        expired = [(query.expires_at, id) for id, query in self.queries.items() if query.expires_at]
        for expires_at, id in sorted(expired):
            if expires_at <= now:
                self._change("expired", id, None, "expired")

    def _move(self, ts: int | None) -> int:
        if ts is not None:
            self.ahead = max(self.ahead, ts - self.now) if self.ahead is not None else ts - self.now
        self.reached = self.time
        self._fire(self.reached)
        return self.reached

    def _fire(self, up_to: int) -> None:
        while due := min(self._due(up_to), default=None):
            if due.removes:
                self._remove("timer", due.stream_id, due.at)
                continue
            together = [other for other in self._due(up_to) if other._replace(id=due.id) == due]
            entered = [other.id for other in together]
            for id in entered:
                pair = self.streams[due.stream_id].pair(id)
                pair.member, pair.since, pair.free_at = True, None, None
            reason = "cooldown" if due.cooled else "dwell"
            self._tell("timer", due.stream_id, due.at, reason, [], entered, [])

    def _due(self, up_to: int) -> Iterable[Due]:
        ttl, stale_after = self.source.stream_ttl, self.source.stale_after
        for stream_id, stream in self.streams.items():
            if ttl and stream.seen + ttl <= up_to:
                yield Due(stream.seen + ttl, True, stream_id)
            for id, pair in stream.pairs.items():
                due = pair.due(self.queries[id])
                if due is None or due > up_to:
                    continue
                silence = due - stream.seen
                if not (stale_after and silence >= stale_after) and not (ttl and silence > ttl):
                    assert pair.since is not None
                    cooled = due > pair.since + self.queries[id].dwell
                    yield Due(due, False, stream_id, order(tenant_of(id)), cooled, id)

    # ---- events

    def event(self, label: Any, stream_id: str, ts: int | None, values: dict[str, Any]) -> None:
        clock = self._move(ts)
        event_id = values.get(self.source.dedup.by) if self.source.dedup else None
        values = {name: value for name, value in values.items() if name in self.source.attributes}
        stream = self.streams.get(stream_id)
        first = stream is None
        if stream is not None and event_id is not None and str(event_id) in stream.ids:
            self.refused.append((label, Reason.DUPLICATE))
            return
        late = stream is not None and ts is not None and stream.ts is not None and ts < stream.ts
        if late and self.source.late is Late.REJECT:
            self.refused.append((label, Reason.LATE))
            return
        stream = stream or Stream(seen=clock)
        if self.source.dedup is not None and event_id is not None:
            stream.ids = [*stream.ids, str(event_id)][-self.source.dedup.last :]
        self.streams[stream_id] = stream
        silent = self._is_silent(stream, clock)
        stream.seen = clock
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
        for _, own in _by_tenant(hit):
            for begin in range(0, len(own), self.max_ids):
                self.matches.append((label, stream_id, own[begin : begin + self.max_ids], unmoved))
        before, was = self.members(stream_id), stream.last
        if not unmoved:
            stream.last = value
            if not late and ts is not None:
                stream.ts = ts
        for id, query in self.queries.items():
            pair = stream.pair(id)
            waits_anew = silent and pair.since is not None
            if not unmoved or waits_anew:
                self._judge(
                    pair, query, stream.last, clock, begins=first, restarts=first or waits_anew, silent=silent
                )
        after = self.members(stream_id)
        crossed = [
            id
            for id, query in self.queries.items()
            if query.enabled and not first and not unmoved and not {id} & (before | after)
            if jumps_over(query.region, was, value)
        ]
        record_ts = self.now if ts is None else ts
        self._tell(label, stream_id, record_ts, "event", before - after, after - before, crossed)

    def _is_silent(self, stream: Stream, now: int) -> bool:
        stale_after = self.source.stale_after
        return stale_after is not None and now - stream.seen >= stale_after

    def remove(self, label: Any, stream_id: str) -> None:
        self._move(None)
        if stream_id in self.streams:
            self._remove(label, stream_id, self.now)

    def _remove(self, label: Any, stream_id: str, ts: int) -> None:
        self._tell(label, stream_id, ts, "stream_removed", self.members(stream_id), [], [])
        del self.streams[stream_id]

    # ---- commands

    def put(self, label: Any, query: Query) -> None:
        old = self.queries.get(query.id)
        if old is None:
            reason = "registered"
        elif old.enabled != query.enabled:
            reason = "enabled" if query.enabled else "disabled"
        else:
            reason = "updated"
        self._change(label, query.id, query, reason)

    def delete(self, label: Any, id: str, reason: str = "deleted") -> None:
        self._change(label, id, None, reason)

    def _change(self, label: Any, id: str, new: Query | None, reason: str) -> None:
        old = self.queries.pop(id, None)
        if new is not None:
            self.queries[id] = new
        was_region, region = (q.region if q and q.enabled else None for q in (old, new))
        waits_for = [(q.region, q.keep_region, q.dwell) if q and q.enabled else None for q in (old, new)]
        both = {Kind.ENTER, Kind.LEAVE}
        balanced0, balanced1 = (q is not None and both <= q.on for q in (old, new))
        for stream_id, stream in self.streams.items():
            pair = stream.pair(id)
            was = pair.member
            if new is None:
                del stream.pairs[id]
                is_ = False
            else:
                begins, restarts = was_region != region, waits_for[0] != waits_for[1]
                silent = self._is_silent(stream, self.time)
                self._judge(
                    pair, new, stream.last, self.time, begins=begins, restarts=restarts, silent=silent
                )
                is_ = pair.member
            leaves = was and (not is_ or (balanced0 and not balanced1))
            enters = is_ and (not was or (balanced1 and not balanced0))
            leave = [id] if leaves and old and Kind.LEAVE in old.on else []
            enter = [id] if enters and new and Kind.ENTER in new.on else []
            self._record(label, stream_id, self.time, reason, leave, enter, [])

    def change_source(self, source: Source) -> None:
        gone = set(self.source.attributes) - set(source.attributes)
        for stream in self.streams.values():
            stream.last = {name: value for name, value in stream.last.items() if name not in gone}
            stream.carried = {name: value for name, value in stream.carried.items() if name not in gone}
            if source.missing is not self.source.missing:
                stream.carried = dict(stream.last) if source.missing is Missing.CARRY else {}
            same = source.dedup and self.source.dedup and source.dedup.by == self.source.dedup.by
            stream.ids = stream.ids[-source.dedup.last :] if same else []
        self.source = source

    # ---- the rule

    @staticmethod
    def _judge(
        pair: Pair,
        query: Query,
        value: dict[str, Any],
        now: int,
        *,
        begins: bool,
        restarts: bool,
        silent: bool,
    ) -> None:
        """What a pair becomes when the stream is at ``value`` now."""
        goes_on = pair.since is not None and not restarts
        inside = query.enabled and value in query.region
        kept = query.enabled and query.keep_region is not None and value in query.keep_region
        if not query.cooldown and pair.free_at is not None:
            pair.free_at = min(pair.free_at, now)
        if not query.once:
            pair.spent = False
        if pair.member:
            if inside or kept:
                return
            pair.member = False
            if query.once:
                pair.spent = True
            elif query.cooldown:
                pair.free_at = now + query.cooldown
        if not (inside and goes_on) and pair.free_at is not None and pair.free_at <= now:
            pair.free_at = None
        if not inside:
            pair.ignored, pair.since = False, None
            return
        if begins:
            pair.ignored = query.initial is Initial.IGNORE
        if pair.ignored or pair.spent:
            pair.since = None
            return
        if pair.since is None or restarts:
            pair.since = now
        due = pair.due(query)
        held_up = goes_on and silent and (query.dwell or query.cooldown)
        if due is not None and due <= now and not held_up:
            pair.member, pair.since, pair.free_at = True, None, None

    # ---- records

    def _tell(
        self,
        label: Any,
        stream_id: str,
        ts: int,
        reason: str,
        left: Iterable[str],
        entered: Iterable[str],
        crossed: Iterable[str],
    ) -> None:
        sides = ((left, Kind.LEAVE), (entered, Kind.ENTER), (crossed, Kind.CROSS))
        told = [sorted(id for id in ids if kind in self.queries[id].on) for ids, kind in sides]
        self._record(label, stream_id, ts, reason, *told)

    def _record(
        self,
        label: Any,
        stream_id: str,
        ts: int,
        reason: str,
        leave: list[str],
        enter: list[str],
        cross: list[str],
    ) -> None:
        for tenant, own in _by_tenant({*leave, *enter, *cross}):
            sides = [(side, id) for side, ids in enumerate((leave, enter, cross)) for id in ids if id in own]
            for begin in range(0, len(sides), self.max_ids):
                told = sides[begin : begin + self.max_ids]
                stream = self.streams[stream_id]
                stream.seq[tenant] += 1
                ids = [[id for side, id in told if side == one] for one in range(3)]
                self.borders.append(Border(label, tenant, stream_id, stream.seq[tenant], ts, reason, *ids))


def _by_tenant(keys: Iterable[str]) -> list[tuple[str, list[str]]]:
    """The keys of each tenant, sorted; the default tenant first."""
    keys = sorted(keys)
    tenants = sorted({tenant_of(key) for key in keys}, key=order)
    return [(tenant, [key for key in keys if tenant_of(key) == tenant]) for tenant in tenants]


def jumps_over(region: Region, begin: dict[str, Any], end: dict[str, Any]) -> bool:
    """Whether the straight segment meets a conjunct though neither end is inside the region: every bound cuts
    a piece out of the parameter's [0, 1], in rational numbers."""
    if begin in region or end in region:
        return False
    return any(
        all(name in begin and name in end for name in numbers)
        and {name: begin.get(name) for name in texts} in Region((texts,))
        and {name: end.get(name) for name in texts} in Region((texts,))
        and _meets([(begin[name], end[name], bound) for name, bound in numbers.items()])
        for conjunct in region.conjuncts
        for numbers in [{name: b for name, b in conjunct.items() if isinstance(b, Interval)}]
        for texts in [{name: b for name, b in conjunct.items() if not isinstance(b, Interval)}]
    )


def _meets(sides: list[tuple[float, float, Interval]]) -> bool:
    """Whether some t in [0, 1] is in all bounds: such a t, if there is one, is one of the ends of the pieces
    or lies between two neighbours of them, so those are all that have to be tried."""
    ends = {Fraction(0), Fraction(1)}
    for begin, end, bound in sides:
        for border in bound:
            if begin != end and border not in (float("inf"), float("-inf")):
                ends.add((Fraction(border) - Fraction(begin)) / (Fraction(end) - Fraction(begin)))
    tried = sorted(t for t in ends if 0 <= t <= 1)
    tried += [(a + b) / 2 for a, b in pairwise(tried)]
    return any(
        all(
            lo <= Fraction(begin) + t * (Fraction(end) - Fraction(begin)) < hi
            for begin, end, (lo, hi) in sides
        )
        for t in tried
    )
