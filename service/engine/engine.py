"""The engine: batches of events and commands in, matches and border records out. Nothing else happens here.

Data flow of a batch of events (``events``)::

    Batch -> rows of the stream table -> walk (late, carry, who was where)
          -> queries that match: one stab of all points; hits of the new points are the matches,
             differences of old and new hits the borders
          -> queries that do not: borders from where a stream was to where it is
          -> both: delta.settle -> border records, numbered per stream

Commands go the same way with the points standing still (``changes``): the points of all streams are stabbed
with the boxes before and after, and the same ``settle`` says who enters and who leaves. What that
gives to tell is owed (``owed``) and paid in portions (``pay``).

Invariants: what happens to a stream depends on the order of events and commands only, not on where a batch
was cut; all assigned tasks have seen exactly the commands that the catalog has. Nothing here reads a clock:
``now_ms`` is always an argument. Not for: bytes (``wire``), positions and commits (``runtime``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from service.engine import aggregates, owed
from service.engine.catalog import Catalog, Draft, QueryChange, SourceChange
from service.engine.categories import Dictionary
from service.engine.changes import apply_changes
from service.engine.commands import Prepared
from service.engine.delta import MEMBER
from service.engine.due import apply_in_time, fire, next_due
from service.engine.effects import Batch, CommandEffects, Effects, Paid, Task
from service.engine.kernels import NO_TIME
from service.engine.payments import pay
from service.engine.queryset import IndexFactory, QuerySet, default_index, new_dictionaries
from service.engine.reset import begin_anew
from service.engine.state import HEARD, Heard, StateLog, heard, heard_record
from service.engine.streams import StreamTable
from service.engine.tally import Tally
from service.engine.trace import Trace
from service.index.default.level import PartView
from service.index.protocol import BoxIndex, Points, Rows
from service.language import Limits
from service.model import MISSING, Missing, Query
from service.tenants import DEFAULT_TENANT, tenant_of

_NONE_JUDGED: Mapping[int, Prepared] = {}


class EngineLimits(NamedTuple):
    """``streams``: the most living streams of one partition. ``ids``: the most ids in one record. ``trace``:
    how many of its newest events a partition remembers for people. ``portion``: the most border records of
    commands that are told at a time. ``queries``: the most of all tenants together; ``queries_tenant``: of
    each; ``disjuncts_tenant``: the most that those come to."""

    streams: int = 10_000_000
    ids: int = 1_000
    queries: int = 10_000_000
    trace: int = 4_096
    portion: int = 2_000
    queries_tenant: int = 10_000_000
    disjuncts_tenant: int = 100_000_000


class Held(NamedTuple):
    """A partition that was let go of."""

    table: StreamTable
    state_log: StateLog
    heard: Heard | None


class StreamView(NamedTuple):
    """One stream as it stands to a tenant: present attributes, time of the last timed event (ms), number of
    the last border record, public ids of the queries that it is a member of (sorted), and where it lives."""

    last: dict[str, float | str]
    ts: int | None
    seq: int
    inside: list[str]
    task: Task


class StreamPlace(NamedTuple):
    """A living stream: its partition, the table and its row there."""

    task: Task
    table: StreamTable
    row: int

    @property
    def ts(self) -> int | None:
        """Time of its last timed event, ms."""
        ts = int(self.table.last_ts[self.row])
        return None if ts == NO_TIME else ts

    @property
    def point(self) -> Points:
        """Its last value as a copy, ``float64[1, d]``: others may keep it while the stream moves on."""
        return self.table.point[self.row : self.row + 1].copy()


class Engine:
    """Everything that is in memory: the catalog, the queries of each source, the streams of each task."""

    def __init__(
        self,
        *,
        limits: Limits | None = None,
        engine_limits: EngineLimits | None = None,
        make_index: IndexFactory = default_index,
        make_state_log: Callable[[], StateLog] = StateLog,
    ) -> None:
        self.limits = engine_limits or EngineLimits()
        self.catalog = Catalog(
            limits=limits or Limits(),
            max_queries=self.limits.queries,
            max_queries_tenant=self.limits.queries_tenant,
            max_disjuncts_tenant=self.limits.disjuncts_tenant,
        )
        self.sets: dict[str, QuerySet] = {}
        self.source_of_topic: dict[str, str] = {}
        self.tables: dict[Task, StreamTable] = {}
        self._state_logs: dict[Task, StateLog] = {}
        self._heard: dict[Task, Heard | None] = {}
        self._make_index = make_index
        self._make_state_log = make_state_log

    # ---- tasks

    def assign(self, task: Task, records: Iterable[tuple[bytes, bytes]]) -> None:
        """Takes on a partition with the state records that the log holds of it.

        The catalog must be where the partition's position is: its streams have seen just those commands."""
        log, queries = self._make_state_log(), self.queries_of(task)
        kinds: dict[bytes, list[tuple[bytes, bytes]]] = {aggregates.KEY: [], owed.KEY: [], HEARD: []}
        table = log.load(_apart(records, kinds), queries)
        table.owed.load(kinds[owed.KEY], table.told)
        for id in table.owed.queries:
            queries.tenants.number(tenant_of(id))
        known = heard(kinds[HEARD])
        asking = [
            (slot, query, table.members_at(member_rows(table, queries, query)))
            for slot, query in enumerate(queries.queries)
            if query is not None and query.aggregates is not None
        ]
        table.aggregates.load(kinds[aggregates.KEY], asking, queries.attributes)
        table.trace = Trace(table.point.shape[1], self.limits.trace)
        table.lost = known is not None and known.lost
        self.tables[task], self._state_logs[task], self._heard[task] = table, log, known

    def reset(
        self, task: Task, records: Iterable[tuple[bytes, bytes]], command: int, now_ms: int
    ) -> list[CommandEffects]:
        """Takes on a partition that has seen other commands than the catalog, and nobody knows which: its
        streams begin anew (``reset``). Without records there are no streams: those that come will each begin
        with a reset. ``command``: the first that it has not seen. The effects must be written out before
        the next call."""
        records = list(records)
        source = self.queries_of(task).source
        queries = self.sets[source.name] = QuerySet(source, new_dictionaries(source), self._make_index)
        self.assign(task, records)
        table = self.tables[task]
        table.owed.forget()  # it was of lives that end here
        table.lost = table.lost or not records
        told = table.aggregates.follow([], table.time.at(now_ms))  # of all that asked, that there is nobody
        registered = [one.query for one in self.catalog.queries.values() if one.query.source == source.name]
        effects = begin_anew(
            task, table, queries, registered, command=command, now_ms=now_ms, max_ids=self.limits.ids
        )
        return [effects[0]._replace(aggregates=told), *effects[1:]]

    def release(self, task: Task) -> Held | None:
        """Lets go of a partition; what is returned may be taken up again by ``resume``, or dropped."""
        if task not in self.tables:
            return None
        return Held(self.tables.pop(task), self._state_logs.pop(task), self._heard.pop(task))

    def resume(self, task: Task, held: Held) -> None:
        """Takes up a partition as it was let go of: nobody may have moved it since, nor the catalog."""
        self.tables[task], self._state_logs[task], self._heard[task] = held

    def state_records(self, task: Task) -> list[tuple[bytes, bytes | None]]:
        """The state records that must be committed with all that was returned since the last call; None
        removes one."""
        table = self.tables[task]
        rows = self._state_logs[task].save(table, self.queries_of(task))
        records = [*rows, *table.aggregates.save(), *table.owed.save()]
        now = Heard(self.catalog.offset, self.catalog.fingerprint, table.lost)
        if now != self._heard[task]:
            self._heard[task] = now
            records.append(heard_record(now))
        return records

    def indexes(self) -> list[BoxIndex]:
        """The indexes of all sources, for whoever tends them."""
        return [index for queries in self.sets.values() for index in queries.indexes.values()]

    def queries_of(self, task: Task) -> QuerySet:
        return self.sets[self.source_of_topic[task.topic]]

    # ---- events and commands

    def apply(self, task: Task, batch: Batch) -> list[Effects]:
        """Applies one batch of events: what it and the time that it lets pass cause, in order. The effects
        must be written out before the next call for the task."""
        table = self.tables[task]
        table.recycle()
        return apply_in_time(
            task,
            table,
            self.queries_of(task),
            batch,
            max_streams=self.limits.streams,
            max_ids=self.limits.ids,
            commands=self.catalog.offset,
        )

    def tick(self, task: Task, now_ms: int) -> list[CommandEffects | Paid]:
        """Does what is due in a partition by now. To be called only while nothing of it waits to be read,
        and before commands are applied at that time; the effects must be written out before the next call
        for the task. O(1) while nothing is due."""
        table = self.tables[task]
        up_to = table.time.let_pass(now_ms)
        return fire(task, table, self.queries_of(task), up_to, max_ids=self.limits.ids)

    def due(self, task: Task, now_ms: int) -> bool:
        """Whether ``tick`` would do anything. O(1); may be wrong about silent streams."""
        table = self.tables[task]
        due = min(next_due(table, self.queries_of(task)), table.aggregates.next_due)
        return due <= table.time.at(now_ms)

    @property
    def owes(self) -> bool:
        """Whether ``pay`` would do anything. O(partitions)."""
        return any(table.owed for table in self.tables.values())

    def pay(self) -> list[Paid]:
        """The next portion of the records that changes of queries have left to be told: to be called after
        every ``command``, and again while the engine owes something, events in between. The effects must be
        written out before the next call. O(portion)."""
        paid: list[Paid] = []
        most = self.limits.portion
        owing = [(table.owed.oldest, task) for task, table in self.tables.items() if table.owed]
        for _, task in sorted(owing):
            table = self.tables[task]
            entries = table.owed.portion(table.told, most)
            most -= len(entries.rows)
            if len(entries.rows):
                paid.append(pay(task, table, self.queries_of(task), entries))
        return paid

    def draft(self, now_ms: int) -> Draft:
        """Judges requests against the catalog as it is now; see ``catalog.Draft``."""
        return Draft(self.catalog, now_ms=now_ms)

    def command(
        self,
        entries: Sequence[tuple[int, Any]],
        now_ms: int,
        judged: Mapping[int, Prepared] = _NONE_JUDGED,
    ) -> list[CommandEffects | Paid]:
        """Applies entries ``(offset, body)`` of the command log, in order, to every assigned task. What
        streams are to be told of them is owed from then on: ``pay`` has to follow.

        Entries on different queries are taken together. ``judged`` may have what a draft made of the entry at
        an offset, which saves reading it again. The effects must be written out before the next call.
        """
        for queries in self.sets.values():
            queries.recycle()
        effects: list[CommandEffects | Paid] = []
        group: dict[str, QueryChange] = {}
        for offset, body in entries:
            change = self.catalog.apply(offset, body, judged.get(offset))
            if isinstance(change, SourceChange) or (change is not None and change.id in group):
                effects += self._apply_group(group, now_ms)
                group = {}
            if isinstance(change, SourceChange):
                effects += self._apply_group({one.id: one for one in change.broken}, now_ms)
                effects += self._change_source(change)
            elif change is not None:
                group[change.id] = change
        return effects + self._apply_group(group, now_ms)

    def replay(self, entries: Iterable[tuple[int, Any]]) -> None:
        """Applies entries of the command log from its beginning, where no partition is assigned: nobody is to
        be told of anything, so the queries that are there in the end are indexed once, all together. An entry
        may be the query alone that it puts (``Catalog.apply``)."""
        assert not self.tables and not self.sets, "from the beginning, and nobody is there to be told"
        for offset, body in entries:
            self.catalog.apply(offset, body)
        by_source: dict[str, list[Query]] = {name: [] for name in self.catalog.sources}
        for registered in self.catalog.queries.values():
            by_source[registered.query.source].append(registered.query)
        for name, source in self.catalog.sources.items():
            self.source_of_topic[source.topic] = name
            queries = self.sets[name] = QuerySet(source, new_dictionaries(source), self._make_index)
            queries.put(by_source[name])

    def tidy(self) -> None:
        """Forgets the texts of categories that no stream and no query has any more. To be called when the
        effects of all calls have been written out, no batch that was read before is still to be applied, and
        no partition that was released to be resumed. O(1) a new text, amortised: O(queries + streams) when so
        many have come."""
        for queries in self.sets.values():
            for place, name in enumerate(queries.attributes):
                dictionary = queries.dictionaries.get(name)
                if dictionary is None or not dictionary.grown:
                    continue
                queries.recycle()
                codes, looked_at = queries.codes_in_use(name), len(queries.names)
                for task, table in self.tables.items():
                    if task.topic == queries.source.topic:
                        codes.update(table.values_of(place).tolist())
                        looked_at += len(table)
                dictionary.keep(codes, looked_at)

    def _apply_group(self, group: dict[str, QueryChange], now_ms: int) -> list[CommandEffects]:
        effects: list[CommandEffects] = []
        for name, queries in self.sets.items():
            changes = [change for change in group.values() if change.source == name]
            if changes:
                tables = [(t, self.tables[t]) for t in sorted(self.tables) if t.topic == queries.source.topic]
                effects += apply_changes(queries, changes, tables, now_ms)
        return effects

    def _change_source(self, change: SourceChange) -> list[Paid]:
        """What is owed to streams whose attributes change is paid before, all of it: this is rare."""
        before, after = change.before, change.after
        if (
            before is not None and before.topic != after.topic
        ):  # two have created it: nobody has come to use it
            del self.source_of_topic[before.topic]
            for task in [task for task in self.tables if task.topic == before.topic]:
                self.release(task)
        self.source_of_topic[after.topic] = after.name
        if before is None:
            self.sets[after.name] = QuerySet(after, new_dictionaries(after), self._make_index)
            return []
        queries = self.sets[after.name]
        tables = [(task, table) for task, table in sorted(self.tables.items()) if task.topic == after.topic]
        paid = []
        if before.attributes != after.attributes:
            paid = [
                pay(task, table, queries, table.owed.portion(table.told, table.owed.records))
                for task, table in tables
                if table.owed
            ]
        places = {attribute: place for place, attribute in enumerate(before.attributes.items())}
        kept = [places.get(attribute, -1) for attribute in after.attributes.items()]
        queries.respecify(after, new_dictionaries(after, queries.dictionaries))
        for _, table in tables:
            if before.attributes != after.attributes:
                table.reshape(kept)
                table.aggregates.recolumn(queries.attributes)
            if before.missing != after.missing:
                table.carry(after.missing is Missing.CARRY)
            if before.dedup != after.dedup:
                table.dedup(before.dedup, after.dedup)
            if before.stale_after != after.stale_after:
                table.memory.retime(queries.rules)
        return paid

    def follow_moves(self) -> None:
        """Makes the indexes ready for streams that move: the first event need not wait for it."""
        for queries in self.sets.values():
            queries.follow_moves()

    # ---- answers

    def index_views(self, source: str) -> dict[str, list[PartView]]:
        """What each index of a source is made of."""
        return {name: index.views() for name, index in self.sets[source].indexes.items()}

    def parts_holding(self, query: Query) -> list[tuple[PartView, int]]:
        """The parts of its index that the boxes of a registered query lie in, and how many; none of a
        disabled one. O(boxes that wait to be filed)."""
        return self.sets[query.source].parts_holding(query)

    def stream(self, source: str, stream_id: str, tenant: str = DEFAULT_TENANT) -> StreamView | None:
        """One stream as a tenant sees it, or None. O(one stab)."""
        place = self.place_of(source, stream_id)
        if place is None:
            return None
        queries = self.sets[source]
        task, table, row = place
        return StreamView(
            last=values(queries, table.point[row]),
            ts=place.ts,
            seq=table.number(row, tenant),
            inside=queries.ids_of(tenant, self.slots_of_member(source, place)),
            task=task,
        )

    def slots_of_member(self, source: str, place: StreamPlace) -> list[int]:
        """Slots of the queries that a stream is a member of. O(one stab)."""
        queries = self.sets[source]
        inside = queries.stab(place.point).slots.tolist()
        return members_among(place.table, queries, place.row, inside)

    def place_of(self, source: str, stream_id: str) -> StreamPlace | None:
        """Where a living stream is kept, or None. O(partitions)."""
        topic = self.sets[source].source.topic
        for task, table in self.tables.items():
            row = table.row_of.get(stream_id, -1) if task.topic == topic else -1
            if row >= 0 and table.known[row]:
                return StreamPlace(task, table, row)
        return None

    def members(self, query_id: str) -> list[str]:
        """Ids of the streams that are members of a query, in no order. O(streams of its source) at most."""
        query = self.catalog.queries[query_id].query
        queries = self.sets[query.source]
        return [
            table.names[row]
            for task, table in self.tables.items()
            if task.topic == queries.source.topic
            for row in member_rows(table, queries, query).tolist()
        ]

    def aggregates(self, query_id: str) -> dict[Task, Tally] | None:
        """What is counted of a query as it stands, by partition; None where it does not ask.
        O(partitions)."""
        query = self.catalog.queries[query_id].query
        queries = self.sets[query.source]
        if query.aggregates is None:
            return None
        slot = queries.slot_of[query_id]
        tallies = {
            task: table.aggregates.tally(slot)
            for task, table in sorted(self.tables.items())
            if task.topic == queries.source.topic
        }
        return {task: tally for task, tally in tallies.items() if tally is not None}

    def matching(self, source: str, points: Points, tenant: str = DEFAULT_TENANT) -> list[list[str]]:
        """Public ids of the queries of a tenant that each point satisfies, sorted; nothing is moved. For dry
        runs."""
        queries = self.sets[source]
        hits = queries.stab(points)
        ends = np.searchsorted(hits.rows, np.arange(len(points) + 1)).tolist()
        slots = hits.slots.tolist()
        return [queries.ids_of(tenant, slots[begin:end]) for begin, end in pairwise(ends)]


def member_rows(table: StreamTable, queries: QuerySet, query: Query) -> Rows:
    """The rows of one table that are members of a registered query. O(streams) at most."""
    slot = queries.slot_of[query.id]
    if not query.enabled:
        return np.empty(0, dtype=np.int32)
    if query.stores:
        rows = [row for row in table.memory.rows_of(slot) if table.memory.of_row(row)[slot][0] == MEMBER]
        return np.array(sorted(rows), dtype=np.int32)
    held = table.inside(queries.filter_in([(0, query.region)])).rows
    remembering = np.array([*table.memory.rows_of(slot)], dtype=np.int32)
    return np.setdiff1d(held, remembering, assume_unique=True)


def _apart(
    records: Iterable[tuple[bytes, bytes]], kinds: Mapping[bytes, list[tuple[bytes, bytes]]]
) -> Iterator[tuple[bytes, bytes]]:
    """The records of the table; those of other kinds, by the letter that their keys begin with, are put
    aside."""
    for record in records:
        kind = kinds.get(record[0][:1])
        if kind is None:
            yield record
        else:
            kind.append(record)


def members_among(table: StreamTable, queries: QuerySet, row: int, inside: Sequence[int]) -> list[int]:
    """The slots whose member a stream is, of those whose ``where`` holds it and those that remember it."""
    memory = table.memory.of_row(row)
    stores = queries.rules.of(np.array(inside, dtype=np.int32)).stores.tolist()
    by_place = [
        slot for slot, stored in zip(inside, stores, strict=True) if not stored and slot not in memory
    ]
    return by_place + [slot for slot, entry in memory.items() if entry[0] == MEMBER]


def present(
    attributes: Sequence[str], dictionaries: Mapping[str, Dictionary], point: Points
) -> dict[str, float | str]:
    """The present attributes of one point ``float64[d]``, categories as texts."""
    found: dict[str, float | str] = {}
    for name, value in zip(attributes, point.tolist(), strict=True):
        if value == MISSING or value != value:
            continue
        dictionary = dictionaries.get(name)
        text = value if dictionary is None else dictionary.text(value)
        assert text is not None, "a code that is not MISSING has a text"
        found[name] = text
    return found


def values(queries: QuerySet, point: Points) -> dict[str, float | str]:
    """The present attributes of one point ``float64[d]``, categories as texts."""
    return present(queries.attributes, queries.dictionaries, point)
