"""What answers are about, found in the engine, or the one refusal that says that it is not there.

Everything here runs on the owner's thread. Not for: what changes something (its refusals are the catalog's).
"""

from __future__ import annotations

from service.api.context import unknown_source
from service.engine.commands import quarantined_refusal
from service.engine.engine import Engine, StreamPlace
from service.engine.queryset import QuerySet
from service.model import Query, Reason, Refusal
from service.tenants import key_of


def queries_of(engine: Engine, source: str) -> QuerySet:
    """The queries of a source. Raises Refusal (unknown_source)."""
    if source not in engine.sets:
        raise unknown_source(source)
    return engine.sets[source]


def living_stream(engine: Engine, source: str, stream_id: str, *, field: str) -> StreamPlace:
    """Where a stream is kept. Raises Refusal: unknown_source, or unknown_id of the field that named it."""
    queries_of(engine, source)
    place = engine.place_of(source, stream_id)
    if place is None:
        raise unknown_stream(source, stream_id, field=field)
    return place


def registered_query(engine: Engine, tenant: str, id: str, source: str | None) -> Query:
    """A query of a tenant by id, which is to be on ``source`` if that is given. Raises Refusal: unknown_id or
    quarantined, of the field ``query``, or bad_value."""
    key = key_of(tenant, id)
    registered = engine.catalog.queries.get(key)
    if registered is None:
        quarantined = engine.catalog.quarantined.get(key)
        if quarantined is None:
            raise Refusal(Reason.UNKNOWN_ID, "query", f"there is no query {id!r}")
        raise quarantined_refusal("query", id, quarantined.refusal)
    query = registered.query
    if source not in (None, query.source):
        raise Refusal(Reason.BAD_VALUE, "source", f"query {id!r} is on source {query.source!r}")
    return query


def unknown_stream(source: str, stream_id: str, *, field: str) -> Refusal:
    return Refusal(Reason.UNKNOWN_ID, field, f"source {source!r} has no stream {stream_id!r}")
