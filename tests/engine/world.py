"""The engine and the oracle side by side: every operation of a history (``histories``) goes to both, and what
they say is compared. Pages and deltas of the state are so small that all that can happen to them happens."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from service.engine.collections import Failures, Member, Plan, planned, removed
from service.engine.commands import ChangeMember, Command, DeleteQuery, PatchQuery, PutQuery
from service.engine.engine import EngineLimits
from service.engine.state import StateLog
from service.language import Limits, parse_query, parse_source, patch_body, query_body
from service.model import Initial, Kind, Query, Reason, Refusal
from service.tenants import DEFAULT_TENANT, key_of, split, tenant_of
from tests.cases.driver import Mode
from tests.cases.engine_driver import EngineDriver
from tests.engine.histories import STREAMS, History, Operation
from tests.engine.reference import Border, Reference

BEGIN = 1_700_000_000_000
"""Wall time at the beginning, ms; the driver judges bodies as of then."""

BOTH = {Kind.ENTER, Kind.LEAVE}


def play(history: History) -> World:
    """Plays a history and checks it after every operation, or at its end where batches are to be long."""
    world = World(history.names, history.mode, history.max_ids, history.portion, history.keys)
    for operation in history.operations:
        world.do(*operation)
        if history.mode != "batch":
            world.check()
    world.settle()
    world.check()
    return world


class World:
    """``mode``: every operation is processed at once ("one"), only where it must be ("batch"), or with a
    restart after each ("restart"). ``portion``: so many records of a command are written with it, and so
    many more by each operation ``tell``; without, all at once. ``keys``: of queries that are not known by
    their id alone, since they are another tenant's."""

    def __init__(
        self,
        names: Sequence[str],
        mode: Mode,
        max_ids: int,
        portion: int | None = None,
        keys: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._keys = keys
        self._types = {name: "category" if name == "k" else "number" for name in names}
        limits = EngineLimits(ids=max_ids)
        limits = limits._replace(portion=portion) if portion else limits
        self.driver = EngineDriver(limits, lambda: StateLog(block=2, ring=8))
        self.driver.clock(BEGIN)
        self._mode = mode
        #: else what a query asks for may have changed since its records were caused
        self._folds = mode != "batch" and portion is None
        self._now = BEGIN
        body: dict[str, Any] = {"attributes": self._types}
        self._source(body)
        self.reference = Reference(parse_source("s", body), BEGIN, max_ids)
        #: when they expire, by key
        self._quarantined: dict[str, int | None] = {}
        self._seen = 0
        self._matches: list[Any] = []
        self._borders: list[Border] = []
        self._refused: list[tuple[Any, str]] = []
        self._checked = (0, 0)
        self._told_all = True
        self._fold: dict[str, set[str]] = {}
        self._seq: dict[tuple[str, str], int] = {}
        self._balanced: set[str] = set()
        #: by command: the queries that ask for both kinds before it and after it
        self._balanced_by: dict[Any, tuple[set[str], set[str]]] = {}

    def _source(self, body: dict[str, Any]) -> None:
        self._sources = {"s": parse_source("s", body)}
        self.driver.source("s", body)

    def do(self, operation: str, argument: Any) -> None:
        if operation not in ("event", "events", "pass", "remove"):
            self.driver.flush()
        getattr(self, f"_do_{operation}")(argument)
        if self._mode != "batch":
            self.driver.flush()
        if self._mode == "restart":
            self.driver.restart(compacted=True)

    def _do_event(self, event: tuple[str, int | None, dict[str, Any]]) -> None:
        self._send([event], array=False)

    def _do_events(self, events: list[tuple[str, int | None, dict[str, Any]]]) -> None:
        self._send(events, array=True)

    def _send(self, events: list[tuple[str, int | None, dict[str, Any]]], *, array: bool) -> None:
        bodies = [
            {"stream_id": stream_id, **values, **({} if lead is None else {"ts": self._now + lead})}
            for stream_id, lead, values in events
        ]
        value = json.dumps(bodies if array else bodies[0]).encode()
        _, offset = self.driver.send("s", None if array else events[0][0].encode(), value)
        for row, (stream_id, lead, values) in enumerate(events):
            ts = None if lead is None else self._now + lead
            self.reference.event((offset, row), stream_id, ts, values)

    def _do_crash(self, event: tuple[str, int | None, dict[str, Any]]) -> None:
        self.driver.arm_crash()
        self._send([event], array=False)
        self.driver.crash()
        self.driver.flush()

    def _do_remove(self, stream_id: str) -> None:
        _, offset = self.driver.send("s", stream_id.encode(), None)
        self.reference.remove((offset, 0), stream_id)

    def _do_pass(self, passed_ms: int) -> None:
        now = self._now + passed_ms
        expiries = [query.expires_at for query in self.reference.queries.values()]
        if any(at and at <= now for at in [*expiries, *self._quarantined.values()]):
            self.driver.flush()
            self.driver.clock(now)
            self.driver.flush()
        self.driver.clock(now)
        self._quarantined = {id: at for id, at in self._quarantined.items() if not at or at > now}
        self._now = now
        self.reference.wait_until(now)

    def _absolute(self, body: Mapping[str, Any]) -> dict[str, Any]:
        expires_in = body.get("expires_at")
        return {**body, "expires_at": self._now + expires_in} if expires_in else dict(body)

    def _do_put(self, body: dict[str, Any]) -> None:
        self._do_commands([("put", body)])

    def _do_patch(self, argument: tuple[str, dict[str, Any]]) -> None:
        self._do_commands([("patch", argument)])

    def _do_delete(self, id: str) -> None:
        self._do_commands([("delete", id)])

    def _do_commands(self, asked: list[Operation]) -> None:
        """Requests that are judged and applied together; the oracle takes one after the other."""
        commands = [self._command(*one) for one in asked]
        for command, answer in zip(commands, self.driver.commands(commands), strict=True):
            if isinstance(command, DeleteQuery):
                self._delete(command.id, *answer)
            elif isinstance(command, PutQuery | PatchQuery):
                self._put(command, *answer)

    def _do_collection(self, bodies: list[dict[str, Any]] | None) -> None:
        """Puts the collection that the keys name, or deletes it (None); the oracle puts and deletes what
        differs, one member after the other."""
        name = self._key("p").rpartition(":")[0]
        snapshot = self.driver.engine.catalog.snapshot(name)
        if bodies is None:
            if snapshot.collection is not None:
                self._carry_out(removed(name, snapshot))
            return
        members = [
            Member(str(place), body["id"], {k: v for k, v in self._absolute(body).items() if k != "id"})
            for place, body in enumerate(bodies)
        ]
        plan = planned(name, "s", "geojson", members, snapshot, now_ms=BEGIN, limits=Limits())
        alien = {body["id"] for body in bodies if self._is_alien(self._key(body["id"]), name)}
        if isinstance(plan, Failures):
            refused = {failure.id for failure in plan.told}
            assert plan.of == len(plan.told)
            assert refused >= alien
            for failure in plan.told:
                assert failure.id in alien or failure.refusal.reason is not Reason.EXISTS
            return
        assert not alien
        listed = {self._key(body["id"]) for body in bodies}
        self._carry_out(plan)
        there = self.driver.engine.catalog.collections.members.get(name, set())
        assert there <= listed and self._members(name) == there - self._quarantined.keys()
        tenant, tag = split(name)
        for member in members:
            body = {**member.body, "source": "s", "tags": {"collection": tag}}
            try:
                wanted = parse_query(
                    body, self._sources, id=f"{tag}:{member.id}", now_ms=BEGIN, limits=Limits(), tenant=tenant
                )
            except Refusal as refusal:
                assert refusal.reason is Reason.PAST
                assert f"{name}:{member.id}" not in there
            else:
                known = self.reference.queries[wanted.id]
                assert replace(wanted, where=known.where, keep=known.keep) == known

    def _is_alien(self, key: str, name: str) -> bool:
        there = self.driver.engine.catalog.collections.members.get(name, set())
        return key in {*self.reference.queries, *self._quarantined} and key not in there

    def _members(self, name: str) -> set[str]:
        """The registered queries that belong to a collection by their ids and tags."""
        tag = split(name)[1]
        return {
            key
            for key, query in self.reference.queries.items()
            if key.startswith(f"{name}:") and query.tags.get("collection") == tag
        }

    def _carry_out(self, plan: Plan) -> None:
        answers = self.driver.commands(plan.commands)
        for command, (status, reason, offset) in zip(plan.commands, answers, strict=True):
            assert status == 200, reason
            if not isinstance(command, ChangeMember):
                continue
            query = command.prepared.subject
            if command.prepared.done == "deleted":
                self._delete(command.id, status, reason, offset)
            else:
                assert isinstance(query, Query) and offset is not None
                self._register(query, offset)

    def _command(self, operation: str, argument: Any) -> Command:
        match operation:
            case "put":
                tenant, id = split(self._key(argument["id"]))
                body = {**self._absolute(argument), "id": id, "source": "s"}
                return PutQuery(id, body, tenant=tenant)
            case "patch":
                id, changes = argument
                return PatchQuery(self._key(id), self._absolute(changes))
            case _:
                return DeleteQuery(self._key(argument))

    def _key(self, id: str) -> str:
        return self._keys.get(id, id)

    def _put(
        self, command: PutQuery | PatchQuery, status: int, reason: str | None, offset: int | None
    ) -> None:
        if isinstance(command, PutQuery):
            whole, tenant = command.body, command.tenant
        elif command.id in self.reference.queries:
            whole = patch_body(query_body(self.reference.queries[command.id]), command.changes)
            tenant = tenant_of(command.id)
        else:
            assert status == (409 if command.id in self._quarantined else 404), reason
            return
        try:
            query: Query = parse_query(
                whole, self._sources, id=None, now_ms=BEGIN, limits=Limits(), tenant=tenant
            )
        except Refusal as refusal:
            assert (status, reason) == (422, refusal.reason)
            return
        assert status == 200, reason
        if offset is not None:
            self._register(query, offset)

    def _register(self, query: Query, offset: int) -> None:
        self._quarantined.pop(query.id, None)
        before = self._ask_for_both()
        self.reference.put(("command", offset), query)
        self._balanced_by["command", offset] = before, self._ask_for_both()

    def _delete(self, id: str, status: int, reason: str | None, offset: int | None) -> None:
        known = id in self.reference.queries
        assert status == (200 if known or id in self._quarantined else 404), reason
        self._quarantined.pop(id, None)
        if known:
            before = self._ask_for_both()
            self.reference.delete(("command", offset), id)
            self._balanced_by["command", offset] = before, self._ask_for_both()

    def _do_quarantine(self, id: str) -> None:
        key = self._key(id)
        if key in self.reference.queries:
            expires_at = self.reference.queries[key].expires_at
            query = {"id": split(key)[1], "source": "s", "where": "nowhere > 1", "expires_at": expires_at}
            body = {"op": "query", "id": key, "query": query}
            self.reference.delete(("command", self.driver.entry(body)), key, "quarantined")
            self._quarantined[key] = expires_at

    def _do_source(self, policies: dict[str, Any]) -> None:
        policies = dict(policies)
        grown = {"z": "number"} if policies.pop("grown", False) else {}
        self._source({"attributes": {**self._types, **grown}, **policies})
        self.reference.change_source(self._sources["s"])
        self.reference.wait_until(self._now)

    def _do_tell(self, _: None) -> None:
        self.driver.tell()

    def settle(self) -> None:
        """Writes all that is owed."""
        self.driver.flush()
        while self.driver.engine.owes:
            self.driver.tell()

    def _do_restart(self, compacted: bool) -> None:
        self.driver.restart(compacted=compacted)

    def _do_reassign(self, resumed: bool) -> None:
        self.driver.reassign(resumed=resumed)

    # ---- comparing

    def check(self) -> None:
        """All that has been written is the oracle's, balances, and is what the engine answers. What is still
        owed is what the oracle has besides."""
        self.driver.flush()
        self._read()
        owed = self.check_records()
        reference, engine = self.reference, self.driver.engine
        for stream_id in STREAMS:
            stream, members = reference.streams.get(stream_id), reference.members(stream_id)
            for tenant in self._tenants():
                view = engine.stream("s", stream_id, tenant)
                assert (view and (view.last, view.ts, view.seq)) == (
                    stream and (stream.last, stream.ts, stream.seq[tenant] - owed[stream_id, tenant])
                )
                own = sorted(id for key in members for of, id in [split(key)] if of == tenant)
                assert (view.inside if view else []) == own
            if self._folds:
                both = self._ask_for_both()
                assert self._fold.get(stream_id, set()) & both == members & both
        assert engine.catalog.quarantined.keys() == self._quarantined.keys()
        self._balanced = self._ask_for_both()
        for id, query in reference.queries.items():
            inside = reference.inside(id)
            assert sorted(engine.members(id)) == inside
            if not query.stores and query.initial is Initial.EMIT and not self._ignored(id):
                holds = [s for s, stream in reference.streams.items() if stream.last in query.region]
                assert inside == (sorted(holds) if query.enabled else [])

    def _tenants(self) -> set[str]:
        return {DEFAULT_TENANT, *map(tenant_of, self._keys.values())}

    def _ignored(self, id: str) -> bool:
        return any(stream.pair(id).ignored for stream in self.reference.streams.values())

    def check_records(self) -> Counter[tuple[str, str]]:
        """What has been written since the last call; of the streams that one command moves, in any order.
        Returns how many records each stream is owed, by tenant."""
        matches, borders = self._checked
        assert self._matches[matches:] == self.reference.matches[matches:]
        self._checked = len(self._matches), len(self._borders)
        assert self._refused == self.reference.refused
        if not any(table.owed for table in self.driver.engine.tables.values()) and self._told_all:
            written, wanted = self._borders[borders:], self.reference.borders[borders:]
            assert self._by_stream(written) == self._by_stream(wanted)
            return Counter()
        written_of, caused_of = self._by_stream(self._borders), self._by_stream(self.reference.borders)
        for name in STREAMS:
            assert written_of[name] == caused_of[name][: len(written_of[name])]
        owed = Counter(
            (name, border.tenant) for name in STREAMS for border in caused_of[name][len(written_of[name]) :]
        )
        assert owed.total() == sum(table.owed.records for table in self.driver.engine.tables.values())
        self._told_all = not owed
        return owed

    @staticmethod
    def _by_stream(borders: list[Border]) -> dict[str, list[Border]]:
        return {name: [border for border in borders if border.stream == name] for name in STREAMS}

    def _read(self) -> None:
        records = self.driver.records()
        for topic, _, value in records[self._seen :]:
            record = json.loads(value)
            if topic == "matches":
                self._take_match(_label(record), record)
            elif topic == "borders":
                self._take(record)
            elif topic == "dead_letter":
                self._refused.append((_label(record), record["reason"]))
        self._seen = len(records)

    def _take_match(self, label: Any, record: dict[str, Any]) -> None:
        """Queries that select other attributes have a record of their own; to the oracle, which knows of
        chunks only, they are one."""
        matched = _keys_of(record, "queries")
        before = self._matches[-1] if self._matches else None
        is_part = before and before[0] == label and tenant_of(before[2][0]) == record["tenant"]
        if is_part and "chunk" not in record:
            matched = sorted(self._matches.pop()[2] + matched)
        self._matches.append((label, record["stream_id"], matched, record.get("late", False)))

    def _take(self, record: dict[str, Any]) -> None:
        """Folds one border record as a consumer would, who knows nothing but the records."""
        said = (record[name] for name in ("tenant", "stream_id", "seq", "ts", "reason"))
        border = Border(
            _label(record), *said, *(_keys_of(record, name) for name in ("leave", "enter", "cross"))
        )
        self._borders.append(border)
        if not self._folds:
            return
        before, after = self._balanced_by.get(border.label, (self._balanced, self._balanced))
        # Of a query that asks for one of the two kinds there is nothing to fold.
        inside = self._fold.get(border.stream, set()) & before
        own, counted = {id for id in inside if tenant_of(id) == border.tenant}, (border.stream, border.tenant)
        assert border.seq == self._seq.get(counted, 0) + 1 or (border.seq == 1 and not own)
        self._seq[counted] = border.seq
        assert border.leave or border.enter or border.cross
        assert before & set(border.leave) <= inside
        inside -= set(border.leave)
        assert not after & set(border.enter) & inside
        self._fold[border.stream] = inside | (after & set(border.enter))

    def _ask_for_both(self) -> set[str]:
        return {id for id, query in self.reference.queries.items() if query.on >= BOTH}


def _keys_of(record: dict[str, Any], field: str) -> list[str]:
    """The keys of the queries that a record names."""
    return [key_of(record["tenant"], id) for id in record[field]]


def _label(record: dict[str, Any]) -> Any:
    origin = record["origin"]
    if "timer" in origin:
        return "timer"
    if record.get("reason") == "expired":
        return "expired"
    return ("command", origin["command"]) if "command" in origin else (origin["offset"], origin["row"])
