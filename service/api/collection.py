"""Queries over HTTP, many at a time: pages and the export.

Both look at a copy of what is in the catalog, outside the owner thread. It is a shallow one, made between
two batches, and shared by all who ask before the next change. Only so many look at a time: else each might
hold the copy of another moment, and all of them every thread. Order is by id, and a page goes on after an
id, so a page never repeats or skips a query that was there all along, whatever changes meanwhile.
"""

from __future__ import annotations

import asyncio
import heapq
import json
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from service.api.bodies import NDJSON
from service.api.context import LiveService, Service, unknown_source
from service.api.problems import RETRY_AFTER_S, ProblemError, documented
from service.api.queries import VIEW_EXAMPLE
from service.api.shapes import QueryPage, answer
from service.api.views import quarantined_view, query_view
from service.engine.catalog import Contents, Quarantined
from service.engine.commands import Registered
from service.language import query_body

router = APIRouter(prefix="/v1", tags=["queries"])

#: How much of an export is made at a time: no more than this and one query waits for a client.
_PIECE_BYTES = 64 * 1024


class Filter(BaseModel):
    """Which queries; every condition given must hold."""

    source: str | None = Field(None, description="of this source")
    tag: list[str] = Field(
        [],
        description="with this tag, as key:value or key alone; may be repeated. Keys and values may hold"
        " colons: a:b:c is the key a with b:c, a:b with c, and a:b:c alone",
    )
    state: Literal["active", "disabled", "quarantined"] | None = Field(None, description="in this state")


class Paging(Filter):
    after: str = Field("", description="ids after this one")
    limit: int = Field(100, ge=1, description="at most so many; the setting max_page bounds it")


@asynccontextmanager
async def _look(service: Service, chosen: Filter) -> AsyncIterator[Contents]:
    """What the tenant has in the catalog at one moment, by id, for who looks at it in its turn. Raises
    Refusal: unknown_source."""
    async with service.looks:
        is_known, everything = await service.ask(
            lambda engine: (
                chosen.source is None or chosen.source in engine.catalog.sources,
                engine.catalog.contents(),
            )
        )
        found = await asyncio.to_thread(everything.of, service.tenant)
        # A query that is quarantined since its source is not there is still found by that source.
        if not is_known and not any(
            _body(one).get("source") == chosen.source for one in found.quarantined.values()
        ):
            raise unknown_source(chosen.source or "")
        yield found


def _body(quarantined: Quarantined) -> Mapping[str, Any]:
    return quarantined.body if isinstance(quarantined.body, dict) else {}


def _has_tag(tags: Mapping[str, str], wanted: str) -> bool:
    """What is wanted is a key, or a key and its value. It is never cut: both may hold colons."""
    return wanted in tags or any(wanted == f"{name}:{text}" for name, text in tags.items())


def _holds(chosen: Filter, registered: Registered) -> bool:
    query = registered.query
    return (
        (chosen.source is None or chosen.source == query.source)
        and (chosen.state is None or chosen.state == ("active" if query.enabled else "disabled"))
        and all(_has_tag(query.tags, wanted) for wanted in chosen.tag)
    )


def _holds_quarantined(chosen: Filter, quarantined: Quarantined) -> bool:
    body = _body(quarantined)
    tags = body.get("tags")
    return (
        chosen.state in (None, "quarantined")
        and (chosen.source is None or chosen.source == body.get("source"))
        and all(_has_tag(tags if isinstance(tags, dict) else {}, wanted) for wanted in chosen.tag)
    )


def _page(contents: Contents, paging: Paging, most_bytes: int) -> bytes:
    """The answer, which ends with the query that takes it to ``most_bytes``."""
    ids = [id for id, one in contents.queries.items() if id > paging.after and _holds(paging, one)]
    ids += [
        id
        for id, one in contents.quarantined.items()
        if id > paging.after and _holds_quarantined(paging, one)
    ]
    last, texts, length = None, [], 0
    for last in heapq.nsmallest(paging.limit, ids):
        texts.append(json.dumps(_view(contents, last)).encode())
        length += len(texts[-1])
        if length >= most_bytes:
            break
    following = last if len(texts) < len(ids) else None
    return b'{"queries": [%b], "next": %b}' % (b", ".join(texts), json.dumps(following).encode())


def _view(contents: Contents, id: str) -> dict[str, Any]:
    if id in contents.queries:
        return query_view(contents.queries[id])
    return quarantined_view(id, contents.quarantined[id])


@router.get(
    "/queries",
    summary="List queries",
    response_model=None,
    responses={
        200: answer(QueryPage, "A page of queries by id.", {"queries": [VIEW_EXAMPLE], "next": None}),
        **documented(422, 503),
    },
)
async def list_queries(paging: Annotated[Paging, Query()], service: LiveService) -> Response:
    """A page of queries in the order of their ids. Go on with `after` set to `next`. It may be shorter than
    `limit`: it ends with the query that takes it to the setting max_answer_bytes."""
    service.check_limit(paging.limit)
    async with _look(service, paging) as contents:
        page = await asyncio.to_thread(_page, contents, paging, service.settings.max_answer_bytes)
    return Response(page, media_type="application/json")


async def _turn(service: LiveService) -> AsyncIterator[None]:
    """An export of a tenant is under way until its answer or its client is gone. Raises ProblemError: 429."""
    tenant, under_way, most = service.tenant, service.exports, service.settings.max_exports_tenant
    if under_way[tenant] >= most:
        detail = f"{most} exports are under way, as many as max_exports_tenant allows; read them to their end"
        raise ProblemError(429, "quota", "", detail, headers={"Retry-After": str(RETRY_AFTER_S)})
    under_way[tenant] += 1
    try:
        yield
    finally:
        under_way[tenant] -= 1


@router.get(
    "/queries:export",
    summary="Export queries",
    response_class=Response,
    responses={
        200: {
            "description": "One body a line, as `POST /v1/queries:bulk` takes them.",
            "content": {
                NDJSON: {
                    "schema": {"type": "string"},
                    "example": '{"id": "hot", "source": "rooms", "where": "temp > 30", "on": ["match"]}\n',
                }
            },
        },
        **documented(422, 429, 503),
    },
    dependencies=[Depends(_turn)],
)
async def export_queries(chosen: Annotated[Filter, Query()], service: LiveService) -> Response:
    """All queries of one moment by id, importable as they are. Quarantined ones are left out: they would be
    refused. A tenant has at most as many exports under way as the setting max_exports_tenant says."""
    async with _look(service, chosen) as contents:
        queries = await asyncio.to_thread(_chosen, contents.queries, chosen)
    return StreamingResponse(_pieces(queries), media_type=NDJSON)


def _chosen(queries: Mapping[str, Registered], chosen: Filter) -> list[Registered]:
    return [one for _, one in sorted(queries.items()) if _holds(chosen, one)]


def _pieces(queries: Iterable[Registered]) -> Iterator[bytes]:
    piece, length = [], 0
    for one in queries:
        line = json.dumps(query_body(one.query)) + "\n"
        piece.append(line)
        length += len(line)
        if length >= _PIECE_BYTES:
            yield "".join(piece).encode()
            piece, length = [], 0
    if piece:
        yield "".join(piece).encode()
