"""Commands: changes of the sources and queries, as they are asked for and as they are answered.

A request becomes a *prepared* command (validated against the catalog, ready for the command log) or a
``Refusal``. What is in the log is applied by everyone who reads it, in order; nothing is validated twice.

``id`` and ``name`` of queries and collections are keys (``tenants``); only ``PutQuery`` has the id as the
client gave it, and whose it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import msgspec

from service.model import Query, Reason, Refusal, Source
from service.tenants import DEFAULT_TENANT

ABSENT = "\0"
"""As ``if_match``: nothing may be there."""


@dataclass(frozen=True, slots=True)
class PutSource:
    """``body`` is parsed JSON (``language.load_json``), without the name."""

    name: str
    body: Any


@dataclass(frozen=True, slots=True)
class PutQuery:
    """Replaces or registers. ``create_only`` refuses a live id (POST), ``if_match`` another version
    (``ABSENT``: any).

    ``id`` is the id in the path, or None where the body must have it (POST, bulk). ``body`` is parsed JSON,
    or its bytes, which are parsed when it is judged: of many queries they are the smaller by far."""

    id: str | None
    body: Any
    create_only: bool = False
    if_match: str | None = None
    tenant: str = DEFAULT_TENANT


@dataclass(frozen=True, slots=True)
class PatchQuery:
    """Replaces the fields named in ``changes`` and no other."""

    id: str
    changes: Any
    if_match: str | None = None


@dataclass(frozen=True, slots=True)
class DeleteQuery:
    id: str
    if_match: str | None = None


@dataclass(frozen=True, slots=True)
class ExpireQuery:
    """The time of a query has come: ``expires_at`` is what it says. Not for clients: any worker may give it,
    and two of them have one effect."""

    id: str
    expires_at: int


class Entry(NamedTuple):
    """One command as it lies in the log: compaction key and JSON body."""

    key: str
    body: dict[str, Any]


def put_entry(id: str, body: Any, left: Mapping[str, str] | None = None) -> Entry:
    """The entry of a query as it is now; ``left`` says which collection it has been taken out of, if so, as
    its tenant calls it."""
    return Entry(f"query:{id}", {"v": 1, "op": "query", "id": id, "query": body, **(left or {})})


def delete_entry(id: str, reason: str, **more: Any) -> Entry:
    """The entry of a query that is gone."""
    return Entry(f"query:{id}", {"v": 1, "op": "delete", "id": id, "reason": reason, **more})


def quarantined_refusal(field: str, id: str, why: Refusal) -> Refusal:
    """Of what cannot be asked of a query that is quarantined; ``id`` as its tenant calls it."""
    detail = f"query {id!r} is quarantined; put it anew as a whole, or delete it ({why.detail})"
    return Refusal(Reason.QUARANTINED, field, detail)


Done = Literal["created", "replaced", "unchanged", "deleted"]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request that was judged well: what will have been done to what. ``entry`` is None where nothing
    changes; ``subject`` is None where a quarantined query is deleted, of a collection its source.
    ``against``: the source that a query was judged with."""

    done: Done
    subject: Query | Source | None
    entry: Entry | None
    against: Source | None = None


@dataclass(frozen=True, slots=True)
class ChangeMember:
    """A change of one query that was judged elsewhere, from ``before``: it holds only if that is still what
    is there (the very object, or None)."""

    id: str
    before: Query | None
    prepared: Prepared


@dataclass(frozen=True, slots=True)
class ChangeCollection:
    """The last command of a plan (``collections``), made from this source and this version. None: there is no
    such source, and the collection goes."""

    name: str
    source: Source | None
    version: int | None
    prepared: Prepared


Command = PutSource | PutQuery | PatchQuery | DeleteQuery | ExpireQuery | ChangeMember | ChangeCollection


class Registered(msgspec.Struct, frozen=True):
    """A query as the catalog holds it. ``version`` is the offset of the command that made it what it is;
    as text it is the ETag."""

    query: Query
    version: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command did. ``unchanged``: it was so already and nothing was written. ``subject`` is None where
    a quarantined query was deleted.

    ``command`` is the offset of the command in the log (of the last change, if unchanged); the change holds
    for every event at or after ``active_from[topic, partition]``.
    """

    done: Done
    subject: Source | Registered | None
    command: int
    active_from: Mapping[tuple[str, int], int]
