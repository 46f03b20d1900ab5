"""Who is inside what, of many streams at once: what somebody begins with who then follows the changes.

Not for: one stream or one query (``engine``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

import numpy as np

from service.engine.engine import Engine, StreamPlace, member_rows, members_among
from service.engine.queryset import QuerySet
from service.engine.streams import StreamTable
from service.model import Reason, Refusal
from service.tenants import key_of


class Inside(NamedTuple):
    """One living stream as a tenant sees it: ``seq`` of its last border record, and public ids of the queries
    it is in, sorted."""

    stream_id: str
    seq: int
    queries: list[str]


def picture(
    engine: Engine, source: str, *, tenant: str, streams: Collection[str], queries: Collection[str], most: int
) -> list[Inside]:
    """The streams named, or, of all, those that are inside a query of a tenant; ``queries``: only these
    count. Nothing named is everything. Raises Refusal: unknown_source, unknown_id; limit, where it would have
    to look at more than ``most`` streams."""
    known = engine.sets.get(source)
    if known is None:
        raise Refusal(Reason.UNKNOWN_SOURCE, "source", f"there is no source {source!r}")
    for id in queries:
        if key_of(tenant, id) not in known.slot_of:
            raise Refusal(Reason.UNKNOWN_ID, "query", f"source {source!r} has no query {id!r}")
    wanted = _Wanted(tenant, frozenset(queries))
    if streams:
        places = (engine.place_of(source, id) for id in streams)
        return [_at(known, place, wanted) for place in places if place is not None]
    tables = [table for task, table in engine.tables.items() if task.topic == known.source.topic]
    living = sum(map(len, tables))
    if living > most and not queries:
        detail = f"{living} streams live, more than max_live_snapshot, {most}; name queries or streams"
        raise Refusal(Reason.LIMIT, "source", detail)
    found = _of_queries if queries else _of_all
    return [inside for table in tables for inside in found(engine, known, table, wanted)]


class _Wanted(NamedTuple):
    """Whose picture it is, and which ids of that tenant count; none: all."""

    tenant: str
    ids: frozenset[str]


def _at(queries: QuerySet, place: StreamPlace, wanted: _Wanted) -> Inside:
    _, table, row = place
    return _inside(queries, table, row, queries.stab(place.point).slots.tolist(), wanted)


def _of_queries(engine: Engine, queries: QuerySet, table: StreamTable, wanted: _Wanted) -> Iterator[Inside]:
    members: dict[int, list[str]] = {}
    for id in wanted.ids:
        query = engine.catalog.queries[key_of(wanted.tenant, id)].query
        for row in member_rows(table, queries, query).tolist():
            members.setdefault(row, []).append(id)
    for row in sorted(members):
        yield Inside(table.names[row], table.number(row, wanted.tenant), sorted(members[row]))


def _of_all(engine: Engine, queries: QuerySet, table: StreamTable, wanted: _Wanted) -> Iterator[Inside]:
    rows = table.living()
    hits = queries.stab(np.ascontiguousarray(table.point[rows]))
    ends = np.searchsorted(hits.rows, np.arange(len(rows) + 1)).tolist()
    slots = hits.slots.tolist()
    for place, row in enumerate(rows.tolist()):
        inside = _inside(queries, table, row, slots[ends[place] : ends[place + 1]], wanted)
        if inside.queries:
            yield inside


def _inside(queries: QuerySet, table: StreamTable, row: int, held: list[int], wanted: _Wanted) -> Inside:
    ids = queries.ids_of(wanted.tenant, members_among(table, queries, row, held))
    inside = [id for id in ids if not wanted.ids or id in wanted.ids]
    return Inside(table.names[row], table.number(row, wanted.tenant), inside)
