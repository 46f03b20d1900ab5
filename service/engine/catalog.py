"""The catalog: every source and query as of one command offset, and the rules for changing them.

Two steps, never mixed. ``Draft`` judges requests against the catalog and turns each into an *entry* for the
command log, or refuses it; a draft sees its own earlier entries, so a batch is judged in order. ``apply``
takes entries as they come from the log, whoever wrote them, and says what changed. A query that does not
validate against the source as the log has it by then is quarantined: listed with its reason, in no index,
never in the way of the others. So is one whose source drops or retypes what it uses: a draft refuses that,
but somebody may have written to the log by hand. Of what no draft lets through, what cannot be beside what
came first does nothing: a second source of a topic, a query of a second source under an id, the expiry of a
query that is another by now; a source that has come to read another topic does. What applies depends on the
log alone, never on who judged what.

Pure. Borders that a change causes are the engine's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

from service.engine.collections import TAG, Collections, Snapshot, home
from service.engine.commands import (
    ABSENT,
    ChangeCollection,
    ChangeMember,
    Command,
    DeleteQuery,
    Done,
    Entry,
    ExpireQuery,
    PatchQuery,
    Prepared,
    PutQuery,
    PutSource,
    Registered,
    delete_entry,
    put_entry,
    quarantined_refusal,
)
from service.engine.fingerprint import mark
from service.language import (
    STORED,
    Limits,
    expiry_of,
    load_json,
    parse_query,
    parse_source,
    patch_body,
    query_body,
    source_body,
)
from service.model import Query, Reason, Refusal, Source
from service.tenants import DEFAULT_TENANT, id_of, key_of, own, split, tenant_of

_MANY_GONE = 1_024
"""Expiries of queries that are gone that are kept whatever there is besides."""


class QueryChange(NamedTuple):
    """What one entry did to one query; either side may be None."""

    command: int
    id: str
    before: Query | None
    after: Query | None
    reason: str

    @property
    def source(self) -> str:
        query = self.after or self.before
        assert query is not None
        return query.source


class SourceChange(NamedTuple):
    """``broken``: the queries that used what is not there any more, to be moved out of the way before."""

    command: int
    before: Source | None
    after: Source
    broken: tuple[QueryChange, ...] = ()


class Quarantined(NamedTuple):
    body: Any
    refusal: Refusal
    version: int
    """Offset of the entry, as ``Registered`` has it."""
    expires_at: int | None
    """Its time comes as that of any other query."""


class Contents:
    """All that is under the keys of a catalog at one moment; neither it nor what it holds ever changes."""

    def __init__(self, queries: Mapping[str, Registered], quarantined: Mapping[str, Quarantined]) -> None:
        self.queries = queries
        self.quarantined = quarantined
        self._own: dict[str, Contents] = {}

    def of(self, tenant: str) -> Contents:
        """What is a tenant's, by id. O(queries) for the first who asks. Any thread."""
        found = self._own.get(tenant)
        if found is None:
            found = Contents(own(tenant, self.queries), own(tenant, self.quarantined))
            self._own[tenant] = found
        return found


class Catalog:
    """See the module. All look-ups are by the key of a query (``tenants``); O(1). ``max_queries``: of all
    tenants together; ``max_queries_tenant`` and ``max_disjuncts_tenant``: of each."""

    def __init__(
        self, *, limits: Limits, max_queries: int, max_queries_tenant: int, max_disjuncts_tenant: int
    ) -> None:
        self.limits = limits
        self.max_queries = max_queries
        self.max_queries_tenant = max_queries_tenant
        self.max_disjuncts_tenant = max_disjuncts_tenant
        self.offset = 0
        self.sources: dict[str, Source] = {}
        self.source_versions: dict[str, int] = {}
        #: see ``take_unreadable``
        self._unreadable: dict[str, Refusal] = {}
        self.queries: dict[str, Registered] = {}
        self.quarantined: dict[str, Quarantined] = {}
        #: see ``contents``
        self._contents: Contents | None = None
        #: how many of both each tenant has: a quarantined one holds an id, and memory
        self.queries_of: Counter[str] = Counter()
        #: what the registered ones of each tenant come to
        self.disjuncts_of: Counter[str] = Counter()
        #: of the query set at ``offset``, see ``fingerprint``
        self.fingerprint = 0
        self.collections = Collections()
        self._expiries: list[tuple[int, str]] = []

    def expired(self, now_ms: int) -> list[ExpireQuery]:
        """The queries whose time has come, the earliest first; they are there until that is applied. O(1)
        while there are none."""
        due: dict[str, int] = {}
        while self._expiries and self._expiries[0][0] <= now_ms:
            expires_at, id = heappop(self._expiries)
            if self.expiry(id) == expires_at:
                due[id] = expires_at
        for id, expires_at in due.items():
            heappush(self._expiries, (expires_at, id))
        return [ExpireQuery(id, expires_at) for id, expires_at in due.items()]

    def take_unreadable(self) -> dict[str, Refusal]:
        """The sources whose newest entry says nothing, and why, that have come since the last call."""
        taken, self._unreadable = self._unreadable, {}
        return taken

    def expiry(self, id: str) -> int | None:
        """When what is under an id expires, registered or quarantined; None if never, or nothing is there."""
        if id in self.queries:
            return self.queries[id].query.expires_at
        return self.quarantined[id].expires_at if id in self.quarantined else None

    def snapshot(self, name: str) -> Snapshot:
        """What a plan for a collection of this name is made from. O(queries)."""
        collections = self.collections
        return Snapshot(
            collections.living.get(name),
            collections.versions.get(name),
            dict(self.sources),
            {id: self.queries.get(id) for id in collections.members.get(name, ())},
            {**self.queries, **dict.fromkeys(self.quarantined)},
        )

    def contents(self) -> Contents:
        """What there is now, the same copy for all who ask before the next entry: whoever may read could
        otherwise have as many made as there are connections. O(queries) for the first of them."""
        if self._contents is None:
            self._contents = Contents(dict(self.queries), dict(self.quarantined))
        return self._contents

    def apply(
        self, offset: int, body: Any, judged: Prepared | None = None
    ) -> QueryChange | SourceChange | None:
        """Takes one entry of the command log. None where it changes nothing (a second delete, quarantine, an
        entry that this program has not written).

        ``body`` may be the query alone of an entry that puts one, read against the sources as they are by now
        (``stored``). ``judged`` is what a draft made of the entry: its query is taken as it is, not read
        again, while the source is the one that it was judged with."""
        self.offset = offset + 1
        self._contents = None
        if isinstance(body, Query):
            return None if self._is_of_another(body.id, body.source) else self._put(offset, body)
        op = _op(body)
        if op == "source":
            return self._apply_source(offset, body)
        if op == "query":
            return self._apply_query(offset, body, judged)
        if op == "delete":
            return self._apply_delete(offset, body)
        if op == "collection":
            self.collections.apply(offset, body)
        return None

    def _apply_source(self, offset: int, body: dict[str, Any]) -> SourceChange | None:
        name = body["name"]
        before = self.sources.get(name)
        try:
            after = _in_order(before, parse_source(name, body["source"]))
        except Refusal as refusal:
            self._unreadable[name] = refusal.kept()
            return None
        self._unreadable.pop(name, None)
        if _reader_of(after.topic, self.sources, but=name):
            return None
        self.sources[name] = after
        if name in self.source_versions:
            self.fingerprint ^= mark(self.source_versions[name])
        self.fingerprint ^= mark(offset)
        self.source_versions[name] = offset
        broken = () if before is None else tuple(self._break(offset, before, after))
        return SourceChange(offset, before, after, broken)

    def _break(self, offset: int, before: Source, after: Source) -> Iterator[QueryChange]:
        """Quarantines the queries that use what a source has no more. O(queries), if it has less at all."""
        changed = _changed(before, after)
        broken = [one.query for one in self.queries.values() if _uses(one.query, before.name, changed)]
        for query in broken:
            name = min(_uses(query, before.name, changed))
            detail = f"source {before.name!r} has changed {name!r} since; put the query anew"
            self._take_out(query.id)
            refusal = Refusal(Reason.UNKNOWN_ATTRIBUTE, "source", detail)
            self._quarantine(query.id, Quarantined(query_body(query), refusal, offset, query.expires_at))
            self.collections.follow(offset, query.id, query.tags)
            yield QueryChange(offset, query.id, query, None, "quarantined")

    def _apply_query(self, offset: int, body: dict[str, Any], judged: Prepared | None) -> QueryChange | None:
        id = body["id"]
        if self._is_of_another(id, body["query"].get("source")):
            return None
        self.collections.left(offset, id, body.get(TAG))
        try:
            after = self._as_judged(judged) or self._read(id, body["query"])
        except Refusal as refusal:
            old = self._take_out(id)
            self._quarantine(id, Quarantined(body["query"], refusal.kept(), offset, expiry_of(body["query"])))
            self.collections.follow(offset, id, body["query"].get("tags"))
            return QueryChange(offset, id, old.query, None, "quarantined") if old else None
        return self._put(offset, after)

    def _is_of_another(self, id: str, source: Any) -> bool:
        """Whether a query of another source is registered under an id."""
        there = self.queries.get(id)
        return there is not None and there.query.source != source

    def _put(self, offset: int, after: Query) -> QueryChange:
        id = after.id
        old = self._take_out(id)
        before = old.query if old else None
        self.queries[id] = Registered(after, offset)
        tenant = tenant_of(id)
        self.queries_of[tenant] += 1
        self.disjuncts_of[tenant] += after.disjuncts
        self.fingerprint ^= mark(offset)
        self.collections.follow(offset, id, after.tags)
        self._expires(id, after.expires_at)
        return QueryChange(offset, id, before, after, _reason(before, after))

    def _quarantine(self, id: str, bad: Quarantined) -> None:
        self.quarantined[id] = bad
        self.queries_of[tenant_of(id)] += 1
        self.fingerprint ^= mark(bad.version, quarantined=True)
        self._expires(id, bad.expires_at)

    def _expires(self, id: str, expires_at: int | None) -> None:
        """Notes when a query expires, if ever. Those that were deleted before their time are dropped when
        they are the most. O(log n), amortised."""
        if expires_at is None:
            return
        heappush(self._expiries, (expires_at, id))
        if len(self._expiries) > 2 * (len(self.queries) + len(self.quarantined)) + _MANY_GONE:
            living = ((self.expiry(id), id) for id in (*self.queries, *self.quarantined))
            self._expiries = [(at, id) for at, id in living if at is not None]
            heapify(self._expiries)

    def _as_judged(self, judged: Prepared | None) -> Query | None:
        """The query of a draft, if the source is still what it was judged with."""
        query = judged.subject if judged is not None else None
        if judged is None or not isinstance(query, Query):
            return None
        return query if judged.against == self.sources.get(query.source) else None

    def _take_out(self, id: str) -> Registered | None:
        """Nothing is in force under this id any more. Returns what was registered."""
        old, bad = self.queries.pop(id, None), self.quarantined.pop(id, None)
        if old is not None:
            self.fingerprint ^= mark(old.version)
            self.disjuncts_of[tenant_of(id)] -= old.query.disjuncts
        if bad is not None:
            self.fingerprint ^= mark(bad.version, quarantined=True)
        if old is not None or bad is not None:
            self.queries_of[tenant_of(id)] -= 1
        return old

    def _read(self, id: str, body: Any) -> Query:
        tenant, public_id = split(id)
        if key_of(tenant, public_id) != id:
            raise Refusal(Reason.BAD_ID, "id", f"{id!r} is no key; the default tenant is not named")
        return parse_query(body, self.sources, id=public_id, now_ms=None, limits=STORED, tenant=tenant)

    def _apply_delete(self, offset: int, body: dict[str, Any]) -> QueryChange | None:
        self.collections.left(offset, body["id"], body.get(TAG))
        if "expires_at" in body and self.expiry(body["id"]) != body["expires_at"]:
            return None
        old = self._take_out(body["id"])
        self.collections.follow(offset, body["id"], None)
        if old is None:
            return None
        reason = "expired" if body.get("reason") == "expired" else "deleted"
        return QueryChange(offset, body["id"], old.query, None, reason)


_FIELDS: Mapping[str, Mapping[str, type]] = {
    "source": {"name": str, "source": dict},
    "query": {"id": str, "query": dict},
    "delete": {"id": str},
    "collection": {"name": str, "source": str, "kind": str},
}


def _op(body: Any) -> str | None:
    """What an entry does; None where it lacks what that takes. One that somebody else has put into the log
    must not keep the service from reading on."""
    op = body.get("op") if isinstance(body, dict) else None
    fields = _FIELDS.get(op) if isinstance(op, str) else None
    if fields is None:
        return None
    if op == "collection" and body.get("deleted"):
        fields = {"name": str}
    for name, kind in fields.items():
        if not isinstance(body.get(name), kind):
            return None
    return op


def _reason(before: Query | None, after: Query) -> str:
    if before is None:
        return "registered"
    if before.enabled != after.enabled:
        return "enabled" if after.enabled else "disabled"
    return "updated"


def _changed(before: Source, after: Source) -> set[str]:
    """The attributes that are not what they were."""
    return {name for name, kind in before.attributes.items() if after.attributes.get(name) != kind}


def _uses(query: Query, source: str, names: set[str]) -> set[str]:
    """Those attributes of a source that a query uses."""
    if not names or query.source != source:
        return set()
    counted = query.aggregates.of if query.aggregates else ()
    used = {*query.select, *counted} | query.region.attributes
    if query.keep_region is not None:
        used |= query.keep_region.attributes
    return names & used


def _reader_of(topic: str, sources: Mapping[str, Source], *, but: str) -> str | None:
    """The other source that reads a topic."""
    return next((name for name, one in sources.items() if one.topic == topic and name != but), None)


def _in_order(before: Source | None, after: Source) -> Source:
    """The attributes that were there keep their columns; new ones follow."""
    if before is None:
        return after
    kept = [name for name in before.attributes if name in after.attributes]
    new = [name for name in after.attributes if name not in before.attributes]
    return replace(after, attributes={name: after.attributes[name] for name in (*kept, *new)})


class Draft:
    """Judges requests in order against the catalog and the entries that it has itself prepared."""

    def __init__(self, catalog: Catalog, *, now_ms: int) -> None:
        self._catalog = catalog
        self._now_ms = now_ms
        self._sources: dict[str, Source] = dict(catalog.sources)
        self._queries: dict[str, Query | None] = {}
        #: by tenant, how many more queries and disjuncts there are than in the catalog
        self._growth: Counter[str] = Counter()
        self._disjuncts: Counter[str] = Counter()

    def prepare(self, command: Command) -> Prepared:
        """One request as an entry. Raises Refusal, and then the draft is as it was."""
        match command:
            case PutSource():
                return self._put_source(command)
            case PutQuery():
                return self._put_query(command)
            case PatchQuery():
                return self._patch_query(command)
            case DeleteQuery():
                return self._delete_query(command)
            case ExpireQuery():
                return self._expire_query(command)
            case ChangeMember():
                return self._change_member(command)
            case ChangeCollection():
                return self._change_collection(command)

    def _put_source(self, command: PutSource) -> Prepared:
        before = self._sources.get(command.name)
        after = _in_order(before, parse_source(command.name, command.body))
        if before is not None:
            self._refuse_breaking(before, after)
        if other := _reader_of(after.topic, self._sources, but=after.name):
            raise Refusal(Reason.EXISTS, "topic", f"source {other!r} reads this topic; name another")
        self._sources[command.name] = after
        if before == after:
            return Prepared("unchanged", after, None)
        body = {"v": 1, "op": "source", "name": after.name, "source": source_body(after)}
        # A key for each version: compaction must not take a source away from before its queries.
        previous = self._catalog.source_versions.get(command.name, "")
        entry = Entry(f"source:{command.name}:{previous}", body)
        return Prepared("created" if before is None else "replaced", after, entry)

    def _refuse_breaking(self, before: Source, after: Source) -> None:
        if before.topic != after.topic:
            raise Refusal(
                Reason.IN_USE, "topic", f"the topic of a source stays {before.topic!r}; use another source"
            )
        changed = _changed(before, after)
        if not changed:
            return
        for registered in self._catalog.queries.values():
            self._refuse_use(self._queries.get(registered.query.id, registered.query), before.name, changed)
        for query in self._queries.values():
            self._refuse_use(query, before.name, changed)

    @staticmethod
    def _refuse_use(query: Query | None, source: str, changed: set[str]) -> None:
        if query is None:
            return
        for name in sorted(_uses(query, source, changed)):
            detail = f"query {query.id!r} uses {name!r}; change or delete it first"
            if query.tenant != DEFAULT_TENANT:  # nobody but its tenant is told of it
                detail = f"a query of another tenant uses {name!r}"
            raise Refusal(Reason.IN_USE, f"attributes.{name}", detail)

    def _current(self, id: str) -> Query | None:
        if id in self._queries:
            return self._queries[id]
        registered = self._catalog.queries.get(id)
        return registered.query if registered else None

    def _check_version(self, id: str, if_match: str | None) -> None:
        if if_match is None:
            return
        if if_match == ABSENT:
            if self._current(id) is not None or self._quarantined(id):
                raise Refusal(Reason.CHANGED, "If-None-Match", f"query {id_of(id)!r} is there")
            return
        catalog = self._catalog
        there = None if id in self._queries else catalog.queries.get(id) or catalog.quarantined.get(id)
        if there is None or (if_match != "*" and if_match != str(there.version)):
            now = f"is at version {there.version}" if there else "has changed or is not there"
            detail = f"query {id_of(id)!r} {now}; read it again and repeat"
            raise Refusal(Reason.CHANGED, "If-Match", detail)

    def _put_query(self, command: PutQuery) -> Prepared:
        body = load_json(command.body) if isinstance(command.body, bytes) else command.body
        query = self._parsed(command.tenant, command.id, body)
        before = self._current(query.id)
        if command.create_only and (before is not None or self._quarantined(query.id)):
            raise Refusal(Reason.EXISTS, "id", f"query {query.public_id!r} exists; use PUT to replace it")
        self._check_version(query.id, command.if_match)
        return self._replace(before, query)

    def _patch_query(self, command: PatchQuery) -> Prepared:
        before = self._current(command.id)
        if before is None:
            if self._quarantined(command.id):
                why = self._catalog.quarantined[command.id].refusal
                raise quarantined_refusal("id", id_of(command.id), why)
            raise _unknown(command.id)
        self._check_version(command.id, command.if_match)
        body = patch_body(query_body(before), command.changes)
        return self._replace(before, self._parsed(before.tenant, before.public_id, body))

    def _parsed(self, tenant: str, id: str | None, body: Any) -> Query:
        return parse_query(
            body, self._sources, id=id, now_ms=self._now_ms, limits=self._catalog.limits, tenant=tenant
        )

    def _replace(self, before: Query | None, query: Query) -> Prepared:
        if before is not None and before.source != query.source:
            raise Refusal(
                Reason.BAD_VALUE, "source", f"a query stays on its source, {before.source!r}; use another id"
            )
        done: Done = "created" if before is None and not self._quarantined(query.id) else "replaced"
        self._make_room(before, query)
        left = {} if home(query.id, query.tags) else self._membership(query.id)
        self._queries[query.id] = query
        if before is not None and query_body(before) == query_body(query):
            return Prepared("unchanged", query, None)
        entry = put_entry(query.id, query_body(query), left)
        return Prepared(done, query, entry, self._sources[query.source])

    def _membership(self, id: str) -> dict[str, str]:
        """For an entry after which a query is in no collection: the one that it is or may have been in."""
        drafted = self._queries.get(id)
        name = home(id, drafted.tags) if drafted else None
        name = name or self._catalog.collections.told_by(id)
        return {} if name is None else {TAG: id_of(name)}

    def _make_room(self, before: Query | None, after: Query) -> None:
        """A query is to come in the place of another, of a quarantined one, or of none. Raises Refusal."""
        catalog, tenant = self._catalog, after.tenant
        comes = before is None and not self._quarantined(after.id)
        if comes:
            most = catalog.max_queries_tenant
            if catalog.queries_of[tenant] + self._growth[tenant] >= most:
                detail = f"there are {most} queries, all that max_queries_tenant allows; delete some"
                raise Refusal(Reason.QUOTA, "id", detail)
            most = catalog.max_queries
            if len(catalog.queries) + len(catalog.quarantined) + self._growth.total() >= most:
                detail = f"there are {most} queries, all that max_queries allows; delete some"
                raise Refusal(Reason.QUOTA, "id", detail)
        more = after.disjuncts - (before.disjuncts if before is not None else 0)
        total, most = (
            catalog.disjuncts_of[tenant] + self._disjuncts[tenant] + more,
            catalog.max_disjuncts_tenant,
        )
        if more > 0 and total > most:
            detail = f"all queries came to {total} disjuncts; max_disjuncts_tenant allows {most}: delete some"
            raise Refusal(Reason.QUOTA, "where", detail)
        self._growth[tenant] += comes
        self._disjuncts[tenant] += more

    def _change_member(self, command: ChangeMember) -> Prepared:
        before, after = self._current(command.id), command.prepared.subject
        if before is not command.before:
            raise _outdated(f"query {id_of(command.id)!r}")
        if command.prepared.done == "deleted":
            self._let_go(command.id)
            return command.prepared
        assert isinstance(after, Query)
        self._make_room(before, after)
        self._queries[command.id] = after
        return command.prepared

    def _change_collection(self, command: ChangeCollection) -> Prepared:
        version, source = self._catalog.collections.versions.get(command.name), command.source
        if version != command.version or (source and self._sources.get(source.name) is not source):
            raise _outdated(f"collection {id_of(command.name)!r} or its source")
        return command.prepared

    def _delete_query(self, command: DeleteQuery) -> Prepared:
        before = self._current(command.id)
        if before is None and not self._quarantined(command.id):
            raise _unknown(command.id)
        self._check_version(command.id, command.if_match)
        return self._deleted(command.id, before, "deleted")

    def _expire_query(self, command: ExpireQuery) -> Prepared:
        before = self._current(command.id)
        if before is not None:
            expires_at = before.expires_at
        else:
            expires_at = self._catalog.expiry(command.id) if self._quarantined(command.id) else None
        if expires_at != command.expires_at:
            raise _unknown(command.id)
        return self._deleted(command.id, before, "expired", expires_at=command.expires_at)

    def _deleted(self, id: str, before: Query | None, reason: str, **more: Any) -> Prepared:
        left = self._membership(id)
        self._let_go(id)
        return Prepared("deleted", before, delete_entry(id, reason, **left, **more))

    def _let_go(self, id: str) -> None:
        """An id is free again, and with it the place of what was there."""
        tenant, there = tenant_of(id), self._current(id)
        self._growth[tenant] -= there is not None or self._quarantined(id)
        self._disjuncts[tenant] -= there.disjuncts if there is not None else 0
        self._queries[id] = None

    def _quarantined(self, id: str) -> bool:
        return id not in self._queries and id in self._catalog.quarantined


def _unknown(id: str) -> Refusal:
    return Refusal(Reason.UNKNOWN_ID, "id", f"there is no query {id_of(id)!r}")


def _outdated(what: str) -> Refusal:
    return Refusal(Reason.CHANGED, "", f"{what} has changed meanwhile; repeat the request")
