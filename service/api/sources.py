"""Sources over HTTP."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from service.api.bodies import json_answer, read_message
from service.api.context import LiveService, unknown_source
from service.api.problems import ProblemError, documented
from service.api.shapes import (
    SOURCE_EXAMPLE,
    SOURCE_SCHEMA,
    ChangedSource,
    IndexView,
    SourceList,
    SourceView,
    answer,
    json_body,
)
from service.api.views import active_from, index_view, source_view
from service.engine.commands import PutSource
from service.engine.engine import Engine
from service.language import load_json
from service.model import Reason, Refusal, Source
from service.settings import Settings

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
    "format": "json",
    "dedup": {"by": "event_id", "last": 100},
}
_INDEX_VIEW = {
    "source": "ais",
    "matching": [
        {
            "structure": "kd",
            "reason": "100000 boxes, about 10.0 around a point: kd 280 ns (scan 26730)",
            "attributes": ["lat", "lon"],
            "boxes": 100000,
            "removed": 12,
            "bytes": 9600000,
            "predicted_ns": 280.0,
        },
        {
            "structure": "delta",
            "reason": "not filed yet",
            "attributes": ["lat", "lon"],
            "boxes": 3,
            "removed": 0,
            "bytes": 4096,
            "predicted_ns": 21.0,
        },
    ],
    **{name: [] for name in ("quiet", "keeping", "crossing")},
    **{name: [] for name in ("shaped", "shaped_keeping")},
}
_CHANGED = {
    **_VIEW,
    "active_from": {"command": 0, "positions": [{"topic": "events.ais", "partition": 0, "offset": 0}]},
}


def _not_there(name: str) -> ProblemError:
    missing = unknown_source(name)
    return ProblemError(404, missing.reason, "name", missing.detail)


def _check_registry(body: Any, settings: Settings) -> None:
    """A source whose schemas come from a registry needs one. Raises Refusal."""
    format = body.get("format") if isinstance(body, dict) else None
    asks = isinstance(format, dict) and format.get("type") == "avro" and format.get("registry") is True
    if asks and not settings.schema_registry_url:
        detail = "needs the setting schema_registry_url; or give the schema instead"
        raise Refusal(Reason.BAD_VALUE, "format.registry", detail)


@router.put(
    "/{name}",
    summary="Create or change a source",
    response_model=None,
    responses={
        200: answer(ChangedSource, "The source was there and is now as the body says.", _CHANGED),
        201: answer(ChangedSource, "The source is new.", _CHANGED),
        **documented(400, 408, 409, 413, 422, 503),
    },
    openapi_extra=json_body(SOURCE_SCHEMA, SOURCE_EXAMPLE),
)
async def put_source(name: str, request: Request, service: LiveService) -> Response:
    """Replaces the whole; what the body leaves out takes its default. Attributes can grow; dropping or
    retyping one that queries use is a 409."""
    body = load_json(await read_message(request, service.settings))
    _check_registry(body, service.settings)
    outcome = await service.command(PutSource(name, body))
    assert isinstance(outcome.subject, Source)
    view = {**source_view(outcome.subject), "active_from": active_from(outcome)}
    return json_answer(view, 201 if outcome.done == "created" else 200)


@router.get(
    "/{name}",
    summary="One source",
    response_model=None,
    responses={200: answer(SourceView, "The source.", _VIEW), **documented(404, 422, 503)},
)
async def get_source(name: str, service: LiveService) -> Response:
    source = await service.ask(lambda engine: engine.catalog.sources.get(name))
    if source is None:
        raise _not_there(name)
    return json_answer(source_view(source))


@router.get(
    "/{name}/index",
    summary="How the queries of a source are indexed",
    response_model=None,
    responses={
        200: answer(IndexView, "The parts of its indexes.", _INDEX_VIEW),
        **documented(404, 422, 503),
    },
)
async def get_index(name: str, service: LiveService) -> Response:
    """The structures that hold the queries, why each was chosen, and what an event was predicted to cost in
    it."""

    def look(engine: Engine) -> dict[str, Any] | None:
        source = engine.catalog.sources.get(name)
        return None if source is None else index_view(source, engine.index_views(name))

    view = await service.ask(look)
    if view is None:
        raise _not_there(name)
    return json_answer(view)


@router.get(
    "",
    summary="All sources",
    response_model=None,
    responses={
        200: answer(SourceList, "The sources by name.", {"sources": [_VIEW]}),
        **documented(422, 503),
    },
)
async def list_sources(service: LiveService) -> Response:
    sources = await service.ask(lambda engine: dict(engine.catalog.sources))
    return json_answer({"sources": [source_view(source) for _, source in sorted(sources.items())]})
