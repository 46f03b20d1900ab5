"""``POST /v1/validate``: what a query body comes to, without registering it."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from service.api.bodies import json_answer, read_message
from service.api.context import LiveService
from service.api.problems import documented
from service.api.shapes import QUERY_EXAMPLE, QUERY_SCHEMA, Validated, answer, json_body
from service.language import load_json, parse_query, print_region, region_json
from service.runtime import limits_of, wall_ms

router = APIRouter(prefix="/v1", tags=["queries"])

#: Stands in for an id that the body leaves out: what is asked is what the condition means.
_NO_ID = "unnamed"

_VALIDATED: dict[str, Any] = {
    "canonical": "29.5 <= lat < 29.8 and sog > 10",
    "where": {"any": [{"lat": {"gte": 29.5, "lt": 29.8}, "sog": {"gt": 10}}]},
    "boxes": 1,
}


@router.post(
    "/validate",
    summary="Check a query",
    response_model=None,
    responses={
        200: answer(Validated, "The query could be registered.", _VALIDATED),
        **documented(400, 408, 413, 422, 503),
    },
    openapi_extra=json_body(
        {**QUERY_SCHEMA, "required": ["source", "where"]},
        {**QUERY_EXAMPLE, "where": "29.5 <= lat < 29.8 and sog > 10"},
    ),
)
async def validate(request: Request, service: LiveService) -> Response:
    """Takes a whole query body; the id may be left out. A body that would be refused is refused here in the
    same way."""
    body = load_json(await read_message(request, service.settings))
    sources = await service.ask(lambda engine: dict(engine.catalog.sources))
    unnamed = isinstance(body, dict) and "id" not in body
    query = parse_query(
        body,
        sources,
        id=_NO_ID if unnamed else None,
        now_ms=wall_ms(),
        limits=limits_of(service.settings),
    )
    return json_answer(
        {
            "canonical": print_region(query.region),
            "where": region_json(query.region),
            "boxes": len(query.region.conjuncts),
        }
    )
