"""``POST /v1/explain``: why a query holds or does not, of an event or of a stream as it stands."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
from fastapi import APIRouter, Request, Response

from service.api.answer_shapes import DISJUNCT_EXAMPLE, MARGIN_EXAMPLE, Explained
from service.api.answer_views import event_view, explanation_view, verdict_view
from service.api.bodies import json_answer, read_message
from service.api.context import LiveService
from service.api.lookup import living_stream, registered_query
from service.api.problems import documented
from service.api.shapes import EVENT_EXAMPLE, QUERY_SCHEMA, answer, json_body
from service.api.views import part_view
from service.engine.categories import Dictionary, overlays
from service.engine.engine import Engine, StreamPlace
from service.engine.inquiry import Case, Event, Stand, case_of, stand_of
from service.engine.queryset import QuerySet
from service.engine.rules import NEVER
from service.index.default.level import PartView
from service.index.protocol import Points
from service.language import load_json, parse_query, print_region
from service.model import Query, Reason, Refusal, Source
from service.runtime import wall_ms
from service.tenants import DEFAULT_TENANT
from service.trial import read_event

router = APIRouter(prefix="/v1", tags=["answers"])

#: Stands in for an id that a query given whole leaves out.
_NO_ID = "unnamed"
_FIELDS = ("query", "source", "event", "stream_id")

_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "query": {
            "oneOf": [
                {"type": "string", "description": "the id of a query"},
                {**QUERY_SCHEMA, "required": ["where"], "description": "a query, registered or not"},
            ]
        },
        "source": {"type": "string", "description": "of a query given whole, unless that names it"},
        "event": {"type": "object", "description": "the stream id, the time and the attributes"},
        "stream_id": {"type": "string", "description": "the stream whose last values are asked about"},
    },
    "required": ["query"],
    "oneOf": [{"required": ["event"]}, {"required": ["stream_id"]}],
    "additionalProperties": False,
}
_EXAMPLE = {"query": "harbour-7-fast", "event": {**EVENT_EXAMPLE, "sog": 9.5, "kind": "yacht"}}
_ANSWER = {
    "query": "harbour-7-fast",
    "source": "ais",
    "canonical": "29.5 <= lat < 29.8 and sog > 10",
    "enabled": True,
    "values": {"lat": 29.6, "lon": -95.0, "sog": 9.5, "kind": "yacht"},
    "holds": False,
    "margin": MARGIN_EXAMPLE,
    "disjuncts": [DISJUNCT_EXAMPLE],
    "keep": None,
    "stream": None,
    "index": [
        {
            "structure": "kd",
            "reason": "100000 boxes, about 10.0 around a point: kd 280 ns (scan 26730)",
            "attributes": ["lat", "sog"],
            "boxes": 100000,
            "removed": 12,
            "bytes": 9600000,
            "predicted_ns": 280.0,
            "of_query": 1,
        }
    ],
}


@dataclass(frozen=True, slots=True)
class _Question:
    """Exactly one of ``event``, its bytes as they came, and ``stream_id`` is given. ``query`` is an id or a
    body."""

    query: Any
    source: str | None
    event: bytes | None
    stream_id: str | None


class _Found(NamedTuple):
    query: Query
    registered: bool
    source: Source
    case: Case
    keep: Case | None
    place: StreamPlace | None
    stand: Stand | None
    ts: int | None
    parts: list[tuple[PartView, int]]


@router.post(
    "/explain",
    summary="Why does a query hold, or not?",
    response_model=None,
    responses={
        200: answer(Explained, "Disjunct by disjunct.", _ANSWER),
        **documented(400, 404, 408, 409, 413, 422, 503),
    },
    openapi_extra=json_body(_SCHEMA, _EXAMPLE),
)
async def explain(request: Request, service: LiveService) -> Response:
    """Which comparisons fail, and by how much; where all hold, how near the border is. Takes a query by its
    id or whole, and an event or a stream. An event is judged on its own, as by `POST /v1/match`: nothing is
    carried, nothing is stored. Of a stream the last values are judged, and the answer says whether it is a
    member, whether the query ignores it, what it waits for, since when it has been silent (`stale_after`),
    and what became of its newest event. To keys of the default tenant it also says in which index structure
    the boxes of a registered query lie, and why. `keep` is explained in the same way besides: a member
    outside `where` stays one as long as that holds."""
    question = _read(await read_message(request, service.settings))
    most_bytes = service.settings.max_message_bytes
    found = await service.ask(lambda engine: _look(engine, question, service.tenant, most_bytes))
    return json_answer(await asyncio.to_thread(_answer, found, question))


def _read(body: bytes) -> _Question:
    """The request. The event stays bytes: it is read as from the log, by other rules than ours."""
    try:
        pairs = json.loads(body, object_pairs_hook=tuple)
        raw = _raw_fields(body)
    except (ValueError, RecursionError) as error:
        load_json(body)  # tells more exactly what is wrong, if it is wrong for JSON of any kind
        raise Refusal(Reason.SYNTAX, "", f"the body must be a JSON object: {error}") from None
    names = [name for name, _ in pairs]
    for name in names:
        if name not in _FIELDS:
            raise Refusal(
                Reason.UNKNOWN_FIELD, name[:80], f"is no field here; there are {', '.join(_FIELDS)}"
            )
        if names.count(name) > 1:
            raise Refusal(Reason.SYNTAX, name, "stands twice in one object; keep the one that you mean")
    if "query" not in raw:
        raise Refusal(Reason.MISSING_FIELD, "query", "must be given: an id, or a query")
    if ("event" in raw) == ("stream_id" in raw):
        raise Refusal(Reason.MISSING_FIELD, "event", "either event or stream_id must be given, and not both")
    return _Question(
        query=_field("query", raw),
        source=_text("source", raw),
        event=bytes(raw["event"]) if "event" in raw else None,
        stream_id=_text("stream_id", raw),
    )


_raw_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def _field(name: str, raw: dict[str, msgspec.Raw]) -> Any:
    try:
        return load_json(bytes(raw[name]))
    except Refusal as refusal:
        raise _under(name, refusal) from None


def _text(name: str, raw: dict[str, msgspec.Raw]) -> str | None:
    if name not in raw:
        return None
    value = _field(name, raw)
    if not isinstance(value, str):
        raise Refusal(Reason.BAD_VALUE, name, "must be a text")
    return value


def _under(name: str, refusal: Refusal) -> Refusal:
    """The same refusal, of a field within another."""
    field = f"{name}.{refusal.field}" if refusal.field else name
    return Refusal(refusal.reason, field, refusal.detail)


def _look(engine: Engine, question: _Question, tenant: str, max_bytes: int) -> _Found:
    """Runs on the owner's thread. How the index is made up tells of the queries of all tenants."""
    query, registered = _query(engine, tenant, question)
    queries = engine.sets[query.source]
    source = queries.source
    parts = engine.parts_holding(query) if registered and tenant == DEFAULT_TENANT else []
    dictionaries = overlays(queries.dictionaries)
    if question.stream_id is None:
        points = read_event(queries, dictionaries, question.event or b"", max_bytes=max_bytes)
        case, keep = _cases(queries, dictionaries, query, points)
        return _Found(query, registered, source, case, keep, None, None, None, parts)
    place = living_stream(engine, query.source, question.stream_id, field="stream_id")
    case, keep = _cases(queries, dictionaries, query, place.point)
    stand = stand_of(engine, query, place, wall_ms(), registered=registered)
    return _Found(query, registered, source, case, keep, place, stand, place.ts, parts)


def _cases(
    queries: QuerySet, dictionaries: Mapping[str, Dictionary], query: Query, points: Points
) -> tuple[Case, Case | None]:
    """Of ``where``, and of ``keep`` if there is one."""
    case = case_of(queries, dictionaries, query.region, points)
    if query.keep_region is None:
        return case, None
    return case, case_of(queries, dictionaries, query.keep_region, points)


def _query(engine: Engine, tenant: str, question: _Question) -> tuple[Query, bool]:
    """The query, and whether it is a registered one."""
    if isinstance(question.query, str):
        return registered_query(engine, tenant, question.query, question.source), True
    if not isinstance(question.query, dict):
        raise Refusal(Reason.BAD_VALUE, "query", "must be the id of a query, or a query")
    body = {"id": _NO_ID, **question.query}
    if question.source is not None and body.setdefault("source", question.source) != question.source:
        raise Refusal(Reason.BAD_VALUE, "source", "is not that of the query; leave one of them out")
    try:
        limits = engine.catalog.limits
        return parse_query(body, engine.catalog.sources, id=None, now_ms=None, limits=limits), False
    except Refusal as refusal:
        raise _under("query", refusal) from None


def _answer(found: _Found, question: _Question) -> dict[str, Any]:
    query = found.query
    (explanation,) = found.case.explanations()
    (values,) = found.case.values
    return {
        "query": query.public_id if found.registered else None,
        "source": query.source,
        "canonical": print_region(query.region),
        "enabled": query.enabled,
        **explanation_view(query.region, values, explanation),
        "keep": _keep_view(found),
        "stream": _stand_view(found, question),
        "index": [
            {**part_view(tuple(found.source.attributes), part), "of_query": boxes}
            for part, boxes in found.parts
        ],
    }


def _keep_view(found: _Found) -> dict[str, Any] | None:
    region = found.query.keep_region
    if region is None or found.keep is None:
        return None
    (explanation,) = found.keep.explanations()
    return {"canonical": print_region(region), **verdict_view(region, explanation)}


def _stand_view(found: _Found, question: _Question) -> dict[str, Any] | None:
    place, stand = found.place, found.stand
    if place is None or stand is None:
        return None
    return {
        "stream_id": question.stream_id,
        "topic": place.task.topic,
        "partition": place.task.partition,
        "ts": found.ts,
        "member": stand.member,
        "ignored": stand.ignored,
        "waits_until": stand.waits_until,
        "barred_until": stand.barred_until if stand.barred_until != NEVER else None,
        "spent": stand.barred_until == NEVER if found.registered else None,
        "silent_since": stand.silent_since,
        "missing": found.source.missing.value,
        "late": found.source.late.value,
        "newest": _event_view(stand.newest),
        "moved_by": _event_view(stand.moved_by),
    }


def _event_view(event: Event | None) -> dict[str, Any] | None:
    return None if event is None else event_view(event)
