"""Collections: queries that come as one file and are replaced together.

A member is a query whose id is ``{collection}:{id in the file}`` and whose tag ``collection`` names it;
nothing else makes it one. So members are queries like any other: they can be read, changed and deleted alone,
and the log holds no more of them than of others. Of the collection itself it holds one small entry, the
newest by its key: source, kind of the file and number of members. A reader that does not know such entries
passes them over.

Here a collection's ``name`` is its key (``tenants``), as ids are; tags and texts have what its tenant calls
it.

A collection is replaced by its difference (``planned``): what means the same gets no command at all. The
plan is made from a snapshot, away from the thread that owns the engine; each of its commands says what it was
made from and is refused where that has changed meanwhile, and then the plan is made anew.

Version: the offset of the newest command that changed the collection or a member. The entry that takes a
member away says whose it was, and so does every later one of that id, so that the version does not go back
when what was before is compacted away. Who has been a member is not remembered: the id alone tells.

Not for: reading files (``members``). Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from msgspec.structs import replace

from service.engine.commands import (
    ChangeCollection,
    ChangeMember,
    Command,
    Done,
    Entry,
    Prepared,
    Registered,
    delete_entry,
    put_entry,
)
from service.language import Limits, check_collection_name, is_query_id, parse_query, query_body
from service.model import Query, Reason, Refusal, Source
from service.tenants import id_of, key_of, split, tenant_of

TAG = "collection"


class Collection(NamedTuple):
    """As its newest entry has it: ``kind`` of the file, ``at`` ms since 1970."""

    source: str
    kind: str
    at: int | None


class Collections:
    """The collections of a catalog and who is in them."""

    def __init__(self) -> None:
        self.living: dict[str, Collection] = {}
        self.members: dict[str, set[str]] = {}
        self.versions: dict[str, int] = {}

    def apply(self, offset: int, body: Mapping[str, Any]) -> None:
        """Takes an entry of the command log that is about a collection."""
        name = body["name"]
        self.versions[name] = offset
        if body.get("deleted"):
            self.living.pop(name, None)
        else:
            self.living[name] = Collection(body["source"], body["kind"], body.get("at"))

    def left(self, offset: int, id: str, name: Any) -> None:
        """A command took a query out of this collection, as its entry has it: by what its tenant calls it."""
        if name is not None and (was := home(id, {TAG: name})) is not None:
            self.versions[was] = offset

    def follow(self, offset: int, id: str, tags: Any) -> None:
        """A query was put under this id; None: it is gone."""
        if not tags and not self.members:
            return  # as for most of a million
        name = home(id, tags)
        others = self.members.get(id.partition(":")[0])
        if others is not None and id in others:
            self.versions[id.partition(":")[0]] = offset
            if name is None:
                others.discard(id)
                if not others:
                    del self.members[id.partition(":")[0]]
        if name is not None:
            self.members.setdefault(name, set()).add(id)
            self.versions[name] = offset

    def told_by(self, id: str) -> str | None:
        """The collection whose version may rest on the newest entry of an id: it is or was a member, or looks
        like one. Compaction drops that entry for the next of the id, which has to bear the version on."""
        name = id.partition(":")[0]
        return name if name in self.versions else None


def home(id: str, tags: Any) -> str | None:
    """The collection that a query of this id and these tags is in."""
    tag = tags.get(TAG) if isinstance(tags, dict) else None
    if not isinstance(tag, str) or ":" in tag:
        return None
    name = key_of(tenant_of(id), tag)
    return name if id.startswith(f"{name}:") else None


class Snapshot(NamedTuple):
    """What a plan is made from: ``members`` of the collection, quarantined ones as None; ``others``:
    all queries, likewise."""

    collection: Collection | None
    version: int | None
    sources: Mapping[str, Source]
    members: Mapping[str, Registered | None]
    others: Mapping[str, Registered | None]


class Member(NamedTuple):
    """One query of a file: its id there, its body without id, and where it stands for people. A Refusal
    stands for a body that could not be made."""

    place: str
    id: str | None
    body: dict[str, Any] | Refusal


class Failure(NamedTuple):
    place: str
    id: str | None
    refusal: Refusal


#: Failures of a file that are told one by one; a file of a million may be wrong in each.
_TOLD = 1_000


class Failures(NamedTuple):
    """Why there is no plan: the first of what is wrong, and of how many."""

    told: list[Failure]
    of: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What makes a collection what a file says. ``commands`` are one request, all or nothing; none if it is
    so already. ``done`` counts created, replaced, unchanged and deleted members, and what was left out of the
    file as ``expired``: its time has come, so it is no member any more."""

    commands: list[Command]
    done: Counter[str]


def planned(
    name: str,
    source: str,
    kind: str,
    members: Iterable[Member],
    snapshot: Snapshot,
    *,
    now_ms: int,
    limits: Limits,
) -> Plan | Failures:
    """The plan, or why there is none. Raises Refusal where it is not about a member: bad_id, unknown_source,
    bad_value (another source than before). O(members), besides what reading the bodies costs."""
    check_collection_name(id_of(name))
    known = snapshot.sources.get(source)
    if known is None:
        raise Refusal(Reason.UNKNOWN_SOURCE, "source", f"there is no source {source!r}; create it first")
    if snapshot.collection is not None and snapshot.collection.source != source:
        detail = f"a collection stays on its source, {snapshot.collection.source!r}; use another name"
        raise Refusal(Reason.BAD_VALUE, "source", detail)
    commands: list[Command] = []
    done: Counter[str] = Counter()
    told: list[Failure] = []
    failed = 0
    seen: set[str] = set()
    named: set[str] = set()
    for member in members:
        try:
            query = _query(name, source, member, named, snapshot, now_ms, limits)
            seen.add(query.id)
        except Refusal as refusal:
            if refusal.reason is Reason.PAST:  # the last that a body is asked
                done["expired"] += 1
            else:
                failed += 1
                if failed <= _TOLD:
                    told.append(Failure(member.place, member.id, refusal.kept()))
            continue
        command = _put(query, known, snapshot.members)
        done["unchanged" if command is None else command.prepared.done] += 1
        if command is not None:
            commands.append(command)
    if failed:
        return Failures(told, failed)
    # The deletions come first, so that what goes makes room under the limit on queries.
    commands[:0] = _deletions(name, snapshot, seen)
    done["deleted"] = len(snapshot.members.keys() - seen)
    if commands or snapshot.collection is None or snapshot.collection.kind != kind:
        body = {"source": source, "kind": kind, "members": len(seen)}
        commands.append(_change(name, known, snapshot, body))
    return Plan(commands, done)


def removed(name: str, snapshot: Snapshot) -> Plan:
    """The plan of deleting a collection with its members. Raises Refusal: unknown_id."""
    if snapshot.collection is None:
        raise unknown_collection(name)
    known = snapshot.sources.get(snapshot.collection.source)  # one that cannot be read holds nothing up
    commands: list[Command] = [
        *_deletions(name, snapshot, set()),
        _change(name, known, snapshot, {"deleted": True}),
    ]
    return Plan(commands, Counter(deleted=len(snapshot.members)))


def unknown_collection(name: str) -> Refusal:
    return Refusal(Reason.UNKNOWN_ID, "name", f"there is no collection {id_of(name)!r}")


def _query(
    name: str,
    source: str,
    member: Member,
    named: set[str],
    snapshot: Snapshot,
    now_ms: int,
    limits: Limits,
) -> Query:
    if isinstance(member.body, Refusal):
        raise member.body.kept()  # the member is held by this call, which what is raised holds
    if member.id is None:
        raise Refusal(Reason.MISSING_FIELD, "id", "must be given: it is what a member is known by")
    tenant, called = split(name)
    public_id = f"{called}:{member.id}"
    id = key_of(tenant, public_id)
    if id in named:
        raise Refusal(Reason.EXISTS, "id", f"{member.id!r} stands twice in the file; give each its own")
    if not is_query_id(public_id):
        detail = (
            f"{member.id!r} must be of A-Z a-z 0-9 . _ ~ : -, and with {called!r} and : before it at most 200"
        )
        raise Refusal(Reason.BAD_ID, "id", detail)
    named.add(id)
    tags = {**member.body.get("tags", {}), TAG: called}
    query = parse_query(
        {**member.body, "source": source, "tags": tags},
        snapshot.sources,
        id=public_id,
        now_ms=now_ms,
        limits=limits,
        tenant=tenant,
    )
    if id in snapshot.others and id not in snapshot.members:
        detail = f"query {public_id!r} exists and is not of this collection; delete it"
        raise Refusal(Reason.EXISTS, "id", detail)
    there = snapshot.others.get(id)
    if there is not None and there.query.source != source:
        detail = f"query {public_id!r} exists and stays on its source, {there.query.source!r}; delete it"
        raise Refusal(Reason.EXISTS, "id", detail)
    return query


def _put(query: Query, source: Source, members: Mapping[str, Registered | None]) -> ChangeMember | None:
    old = members.get(query.id)
    before = old.query if old else None
    # The regions are compared, not how they are written: a program that writes its file anew may begin a ring
    # elsewhere, or run it the other way.
    if before is not None and replace(query, where=before.where, keep=before.keep) == before:
        return None
    done: Done = "replaced" if query.id in members else "created"
    entry = put_entry(query.id, query_body(query))
    return ChangeMember(query.id, before, Prepared(done, query, entry, source))


def _deletions(name: str, snapshot: Snapshot, seen: set[str]) -> list[ChangeMember]:
    gone = []
    for id in sorted(snapshot.members.keys() - seen):
        old = snapshot.members[id]
        before = old.query if old else None
        entry = delete_entry(id, "deleted", **{TAG: id_of(name)})
        gone.append(ChangeMember(id, before, Prepared("deleted", before, entry)))
    return gone


def _change(
    name: str, source: Source | None, snapshot: Snapshot, body: Mapping[str, Any]
) -> ChangeCollection:
    entry = Entry(f"collection:{name}", {"v": 1, "op": "collection", "name": name, **body})
    done: Done = "deleted" if "deleted" in body else "replaced" if snapshot.collection else "created"
    return ChangeCollection(name, source, snapshot.version, Prepared(done, source, entry))
