"""Queries over HTTP, one at a time: register, replace, change, delete, read, and who is inside."""

from __future__ import annotations

import asyncio
import heapq
import json
import re
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import BaseModel, Field

from service.api.bodies import json_answer, read_message
from service.api.context import LiveService
from service.api.problems import ProblemError, documented
from service.api.shapes import (
    PATCH_SCHEMA,
    QUERY_EXAMPLE,
    QUERY_SCHEMA,
    AggregatesView,
    Members,
    QuarantinedView,
    QueryView,
    answer,
    json_body,
)
from service.api.views import active_from, aggregates_view, quarantined_view, query_view
from service.engine.commands import (
    ABSENT,
    DeleteQuery,
    Outcome,
    PatchQuery,
    PutQuery,
    Registered,
    quarantined_refusal,
)
from service.engine.engine import Engine
from service.language import load_json
from service.model import Reason, Refusal

router = APIRouter(prefix="/v1/queries", tags=["queries"])

IfMatch = Annotated[
    str | None,
    Header(alias="If-Match", description="change only this version (an ETag), or any that is there (*)"),
]

IfNoneMatch = Annotated[
    str | None, Header(alias="If-None-Match", description="`*`: create it, only if it is not there")
]

IfChanged = Annotated[
    str | None,
    Header(
        alias="If-None-Match", description="versions that you have (ETags, or *): they are not sent again"
    ),
]

VIEW_EXAMPLE: dict[str, Any] = {
    **QUERY_EXAMPLE,
    "initial": "emit",
    "keep": None,
    "for": None,
    "cooldown": None,
    "once": False,
    "aggregates": None,
    "enabled": True,
    "expires_at": None,
    "etag": "12",
    "state": "active",
    "active_from": {"command": 12},
    "canonical": "29.5 <= lat < 29.8 and -95.1 <= lon < -94.7 and sog > 10"
    " or kind in ('tanker', 'tug') and 29.5 <= lat < 29.8 and -95.1 <= lon < -94.7",
}
_CHANGED = {
    **VIEW_EXAMPLE,
    "active_from": {"command": 12, "positions": [{"topic": "events.ais", "partition": 0, "offset": 4711}]},
}
_NUMBERS = {"count": 3, "of": {"sog": {"n": 2, "sum": 20.0, "min": 7.9, "max": 12.1, "avg": 10.0}}}
_AGGREGATES = {
    "query": "harbour-7-fast",
    "source": "ais",
    **_NUMBERS,
    "partitions": [{"topic": "events.ais", "partition": 0, **_NUMBERS}],
}
ACTIVE_FROM_HEADER = {
    "Active-From": {
        "description": "as JSON what other answers carry as `active_from`",
        "schema": {"type": "string"},
    }
}
ETAG_HEADER = {"ETag": {"description": "the version; If-Match takes it", "schema": {"type": "string"}}}


NOT_MODIFIED: dict[int | str, dict[str, Any]] = {
    304: {"description": "It is still as one of those in If-None-Match.", "headers": ETAG_HEADER}
}
_TAG = re.compile(r'(?:W/)?"([^"]*)"|([^\s,"]+)')


def _query(description: str, example: dict[str, Any]) -> dict[str, Any]:
    return {**answer(QueryView, description, example), "headers": ETAG_HEADER}


def etag(version: int | str) -> str:
    return f'"{version}"'


def version_in(if_match: str | None, if_none_match: str | None = None) -> str | None:
    """The version in an If-Match: ``"12"``, bare ``12`` or ``*``. A weak tag is none and never matches.
    Of ``If-None-Match: *`` it is ``ABSENT``."""
    if if_none_match is not None:
        if if_none_match.strip() != "*" or if_match is not None:
            raise Refusal(Reason.BAD_VALUE, "If-None-Match", "must be *, and stand without If-Match")
        return ABSENT
    if if_match is None:
        return None
    text = if_match.strip()
    if "," in text:
        raise Refusal(Reason.BAD_VALUE, "If-Match", "names several versions; name the one that you have read")
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text


def answer_unless_known(view: dict[str, Any], if_none_match: str | None) -> Response:
    """The answer to a GET of what has an ``etag``: 304, without a body, where the client has that version.
    Weak tags count, too: who compresses an answer on its way makes them."""
    version, given = view["etag"], if_none_match or ""
    headers = {"ETag": etag(version)}
    if given.strip() == "*" or any(version in tag for tag in _TAG.findall(given)):
        return Response(status_code=304, headers=headers)
    return json_answer(view, headers=headers)


def _changed(outcome: Outcome) -> Response:
    assert isinstance(outcome.subject, Registered)
    view = {**query_view(outcome.subject), "active_from": active_from(outcome)}
    headers = {"ETag": etag(outcome.subject.version)}
    created = outcome.done == "created"
    if created:
        headers["Location"] = f"/v1/queries/{outcome.subject.query.public_id}"
    return json_answer(view, 201 if created else 200, headers)


@router.put(
    "/{id}",
    summary="Register or replace a query",
    response_model=None,
    responses={
        200: _query("The query was there and is now as the body says.", _CHANGED),
        201: _query("The query is new.", _CHANGED),
        **documented(400, 408, 412, 413, 422, 503),
    },
    openapi_extra=json_body({**QUERY_SCHEMA, "required": ["source", "where"]}, QUERY_EXAMPLE),
)
async def put_query(
    id: str,
    request: Request,
    service: LiveService,
    if_match: IfMatch = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Replaces the whole; what the body leaves out takes its default. The same body again changes nothing.
    The answer is sent when the change holds."""
    version = version_in(if_match, if_none_match)
    body = load_json(await read_message(request, service.settings))
    return _changed(await service.command(PutQuery(id, body, if_match=version, tenant=service.tenant)))


@router.post(
    "",
    summary="Register a new query",
    status_code=201,
    response_model=None,
    responses={201: _query("The query is new.", _CHANGED), **documented(400, 408, 409, 413, 422, 503)},
    openapi_extra=json_body(QUERY_SCHEMA, QUERY_EXAMPLE),
)
async def post_query(request: Request, service: LiveService) -> Response:
    """Refuses an id that is live, also that of a disabled query (409)."""
    body = load_json(await read_message(request, service.settings))
    return _changed(await service.command(PutQuery(None, body, create_only=True, tenant=service.tenant)))


@router.patch(
    "/{id}",
    summary="Change some fields of a query",
    response_model=None,
    responses={
        200: _query("The query as it is now.", _CHANGED),
        **documented(400, 404, 408, 409, 412, 413, 422, 503),
    },
    openapi_extra=json_body(PATCH_SCHEMA, {"enabled": False}),
)
async def patch_query(id: str, request: Request, service: LiveService, if_match: IfMatch = None) -> Response:
    """Replaces the fields that the body names, each as a whole, and no other. A query that is quarantined is
    put as a whole instead."""
    version = version_in(if_match)
    changes = load_json(await read_message(request, service.settings))
    return _changed(await service.command(PatchQuery(service.key(id), changes, if_match=version)))


@router.delete(
    "/{id}",
    summary="Delete a query",
    status_code=204,
    response_model=None,
    responses={
        204: {"description": "The query is gone; its members have left it.", "headers": ACTIVE_FROM_HEADER},
        **documented(404, 412, 422, 503),
    },
)
async def delete_query(id: str, service: LiveService, if_match: IfMatch = None) -> Response:
    outcome = await service.command(DeleteQuery(service.key(id), if_match=version_in(if_match)))
    return Response(status_code=204, headers={"Active-From": json.dumps(active_from(outcome))})


@router.get(
    "/{id}",
    summary="One query",
    response_model=None,
    responses={
        200: {**_query("The query.", VIEW_EXAMPLE), "model": QueryView | QuarantinedView},
        **NOT_MODIFIED,
        **documented(404, 422, 503),
    },
)
async def get_query(id: str, service: LiveService, if_none_match: IfChanged = None) -> Response:
    key = service.key(id)
    registered, quarantined = await service.ask(
        lambda engine: (engine.catalog.queries.get(key), engine.catalog.quarantined.get(key))
    )
    if registered is not None:
        return answer_unless_known(query_view(registered), if_none_match)
    if quarantined is None:
        raise _unknown(id)
    return answer_unless_known(quarantined_view(id, quarantined), if_none_match)


class MembersPaging(BaseModel):
    after: str = Field("", description="ids of streams after this one")
    limit: int | None = Field(
        None,
        ge=1,
        description="at most so many; the setting max_page bounds it, and stands where it is left out",
    )


@router.get(
    "/{id}/streams",
    tags=["streams"],
    summary="Who is inside a query",
    response_model=None,
    responses={
        200: answer(
            Members,
            "A page of members by id.",
            {"query": "harbour-7-fast", "streams": ["v-17", "v-23"], "next": None},
        ),
        **documented(404, 422, 503),
    },
)
async def get_members(id: str, paging: Annotated[MembersPaging, Query()], service: LiveService) -> Response:
    """The streams that are members: inside the region, and not merely since before the query watched. A page
    of them in the order of their ids; go on with `after` set to `next`. A stream that is a member all along
    is on exactly one page, whatever else comes and goes meanwhile. Nobody is inside a query that is
    quarantined."""
    limit = paging.limit or service.settings.max_page
    service.check_limit(limit)
    key = service.key(id)

    def members(engine: Engine) -> list[str] | None:
        if key in engine.catalog.quarantined:
            return []
        return engine.members(key) if key in engine.catalog.queries else None

    found = await service.ask(members)
    if found is None:
        raise _unknown(id)
    return json_answer({"query": id, **await asyncio.to_thread(_members_page, found, paging.after, limit)})


def _members_page(members: Sequence[str], after: str, limit: int) -> dict[str, Any]:
    """O(members log limit), with no more than a page of them in order."""
    page = heapq.nsmallest(limit + 1, (stream_id for stream_id in members if stream_id > after))
    return {"streams": page[:limit], "next": page[limit - 1] if len(page) > limit else None}


@router.get(
    "/{id}/aggregates",
    tags=["streams"],
    summary="How many are inside a query, and sums and extremes of their attributes",
    response_model=None,
    responses={
        200: answer(AggregatesView, "The members as a whole.", _AGGREGATES),
        **documented(404, 409, 422, 503),
    },
)
async def get_aggregates(id: str, service: LiveService) -> Response:
    """What the query asks for in `aggregates`, as it stands now, whatever has been told already: exact, over
    the partitions of this worker, and of each of them."""

    key = service.key(id)

    def counted(engine: Engine) -> dict[str, Any] | None:
        known = engine.catalog.queries.get(key)
        if known is None:
            quarantined = engine.catalog.quarantined.get(key)
            if quarantined is not None:
                raise quarantined_refusal("id", id, quarantined.refusal)
            return None
        tallies = engine.aggregates(key)
        if tallies is None:
            detail = f"query {id!r} asks for no aggregates; give it the field aggregates"
            raise ProblemError(404, "not_found", "aggregates", detail)
        return aggregates_view(known.query, tallies)

    view = await service.ask(counted)
    if view is None:
        raise _unknown(id)
    return json_answer(view)


def _unknown(id: str) -> Refusal:
    return Refusal(Reason.UNKNOWN_ID, "id", f"there is no query {id!r}")
