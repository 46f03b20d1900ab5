"""Sources over HTTP."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from service.api.bodies import json_answer, read_message
from service.api.context import LiveService, unknown_source
from service.api.problems import ProblemError, documented
from service.api.shapes import (
    SOURCE_EXAMPLE,
    SOURCE_SCHEMA,
    ChangedSource,
    SourceList,
    SourceView,
    answer,
    json_body,
)
from service.api.views import active_from, source_view
from service.engine.commands import PutSource
from service.language import load_json
from service.model import Source

router = APIRouter(prefix="/v1/sources", tags=["sources"])

_VIEW = {
    "name": "ais",
    "attributes": SOURCE_EXAMPLE["attributes"],
    "topic": "events.ais",
    "key": "stream_id",
    "ts": "ts",
    "paths": {},
    "missing": "absent",
    "nulls": "reject",
    "late": "no_border",
    "stream_ttl": None,
    "stale_after": None,
}
_CHANGED = {
    **_VIEW,
    "active_from": {"command": 0, "positions": [{"topic": "events.ais", "partition": 0, "offset": 0}]},
}


@router.put(
    "/{name}",
    summary="Create or change a source",
    response_model=None,
    responses={
        200: answer(ChangedSource, "The source was there and is now as the body says.", _CHANGED),
        201: answer(ChangedSource, "The source is new.", _CHANGED),
        **documented(400, 409, 413, 422, 503),
    },
    openapi_extra=json_body(SOURCE_SCHEMA, SOURCE_EXAMPLE),
)
async def put_source(name: str, request: Request, service: LiveService) -> Response:
    """Replaces the whole; what the body leaves out takes its default. Attributes can grow; dropping or
    retyping one that queries use is a 409."""
    body = load_json(await read_message(request, service.settings))
    outcome = await service.command(PutSource(name, body))
    assert isinstance(outcome.subject, Source)
    view = {**source_view(outcome.subject), "active_from": active_from(outcome)}
    return json_answer(view, 201 if outcome.done == "created" else 200)


@router.get(
    "/{name}",
    summary="One source",
    response_model=None,
    responses={200: answer(SourceView, "The source.", _VIEW), **documented(404, 503)},
)
async def get_source(name: str, service: LiveService) -> Response:
    source = await service.ask(lambda engine: engine.catalog.sources.get(name))
    if source is None:
        missing = unknown_source(name)
        raise ProblemError(404, missing.reason, "name", missing.detail)
    return json_answer(source_view(source))


@router.get(
    "",
    summary="All sources",
    response_model=None,
    responses={200: answer(SourceList, "The sources by name.", {"sources": [_VIEW]}), **documented(503)},
)
async def list_sources(service: LiveService) -> Response:
    sources = await service.ask(lambda engine: dict(engine.catalog.sources))
    return json_answer({"sources": [source_view(source) for _, source in sorted(sources.items())]})
