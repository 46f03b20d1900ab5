"""Questions about all queries of a source: which have the same region, and which nothing has happened to."""

from __future__ import annotations

import asyncio
import heapq
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Query, Response
from pydantic import Field

from service.api.answer_shapes import DuplicatesPage, UnmatchedPage
from service.api.bodies import json_answer
from service.api.context import LiveService
from service.api.events import OfSource
from service.api.lookup import queries_of
from service.api.problems import documented
from service.api.shapes import answer
from service.engine.effects import Task
from service.engine.engine import Engine
from service.engine.overview import Unfired, duplicates, enabled, unfired
from service.language import print_region
from service.model import Query as RangeQuery

router = APIRouter(prefix="/v1", tags=["queries", "answers"])


class OverviewPaging(OfSource):
    after: str = Field("", description="go on after this id")
    limit: int = Field(100, ge=1, description="at most so many; the setting max_page bounds it")


_DUPLICATES = {
    "source": "ais",
    "groups": [{"canonical": "sog > 10", "queries": ["fast", "fast-2"]}],
    "next": None,
}
_UNMATCHED = {
    "source": "ais",
    "since": [{"topic": "events.ais", "partition": 0, "offset": 4711, "at_ms": 1641168000000}],
    "queries": [{"id": "north-pole", "without": "matches"}],
    "next": None,
}


@router.get(
    "/queries:duplicates",
    summary="Queries of the same region",
    response_model=None,
    responses={
        200: answer(DuplicatesPage, "Groups of queries.", _DUPLICATES),
        **documented(422, 503),
    },
)
async def list_duplicates(paging: Annotated[OverviewPaging, Query()], service: LiveService) -> Response:
    """Groups of enabled queries with one canonical form, in the order of their first ids; go on with `after`
    set to `next`. They may differ in anything but the region of `where`: kinds, `keep`, `for`, `cooldown`,
    `once`, `initial`, `select`, tags."""
    service.check_limit(paging.limit)
    async with service.looks:
        queries = await service.ask(lambda engine: enabled(queries_of(engine, paging.source), service.tenant))
        return json_answer(await asyncio.to_thread(_groups, queries, paging))


def _groups(queries: list[RangeQuery], paging: OverviewPaging) -> dict[str, Any]:
    left = [group for group in duplicates(queries) if group.ids[0] > paging.after]
    page = left[: paging.limit]
    return {
        "source": paging.source,
        "groups": [{"canonical": print_region(group.region), "queries": group.ids} for group in page],
        "next": page[-1].ids[0] if len(page) < len(left) else None,
    }


class _Counted(NamedTuple):
    unfired: Unfired
    since: list[tuple[Task, int | None, int | None]]


@router.get(
    "/queries:unmatched",
    summary="Queries that nothing has matched",
    response_model=None,
    responses={
        200: answer(UnmatchedPage, "A page of queries by id.", _UNMATCHED),
        **documented(422, 503),
    },
)
async def list_unmatched(paging: Annotated[OverviewPaging, Query()], service: LiveService) -> Response:
    """Enabled queries that no event has matched since this service took up the partitions that `since` names,
    or since the query was registered or enabled or its region changed, if that was later. Of a query without
    `match` in its `on` the borders count that events have made streams cross. Counted in memory: a restart
    begins anew, and each worker speaks for its own partitions. Go on with `after` set to `next`."""
    service.check_limit(paging.limit)

    def look(engine: Engine) -> _Counted:
        queries = queries_of(engine, paging.source)
        tables = [(task, engine.tables[task]) for task in sorted(engine.tables)]
        since = [
            (task, table.trace.first_offset, table.trace.first_seen_ms)
            for task, table in tables
            if task.topic == queries.source.topic
        ]
        return _Counted(unfired(queries, service.tenant), since)

    async with service.looks:
        return json_answer(await asyncio.to_thread(_unmatched, await service.ask(look), paging))


def _unmatched(counted: _Counted, paging: OverviewPaging) -> dict[str, Any]:
    idle = [(id, "matches") for id in counted.unfired.unmatched if id > paging.after]
    idle += [(id, "borders") for id in counted.unfired.uncrossed if id > paging.after]
    page = heapq.nsmallest(paging.limit, idle)
    return {
        "source": paging.source,
        "since": [
            {"topic": task.topic, "partition": task.partition, "offset": offset, "at_ms": at_ms}
            for task, offset, at_ms in counted.since
        ],
        "queries": [{"id": id, "without": without} for id, without in page],
        "next": page[-1][0] if len(page) < len(idle) else None,
    }
