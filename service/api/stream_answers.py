"""Questions about one stream: why did it not fire, and how far may it move before anything changes.

The paths are those of a stream with a further step. A stream id may hold a slash, so its path could end
alike: the step counts only where its slash stands as itself in the path as it was sent. Whoever asks for the
stream ``a/trace`` writes ``a%2Ftrace``.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Query, Response
from fastapi.routing import APIRoute
from pydantic import Field
from starlette.routing import Match
from starlette.types import Scope

from service.api.answer_shapes import DISJUNCT_EXAMPLE, MARGIN_EXAMPLE, SafeRegionView, Traced
from service.api.answer_views import event_view, explanation_view, sides_view
from service.api.bodies import json_answer
from service.api.context import LiveService
from service.api.events import OfSource
from service.api.lookup import living_stream, registered_query
from service.api.paths import TEXT
from service.api.problems import documented
from service.api.shapes import answer
from service.engine.commands import Registered
from service.engine.effects import Task
from service.engine.engine import Engine
from service.engine.inquiry import Event, Told, present_of, told_of
from service.engine.overview import enabled
from service.engine.safe_region import safe_region
from service.engine.trace import REFUSED
from service.language import print_region
from service.model import Kind, Reason, Refusal, Region, Source

#: Events times boxes in one trace: some 14 MB, 2 s. So many that the 20 events that are shown by default can
#: be held against a query of a thousand boxes.
_MOST_VERDICTS = 25_000


class _StepRoute(APIRoute):
    """A route whose last step must be in the path literally."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        step = self.path.rpartition("/")[2]
        raw = scope.get("raw_path")
        if raw is not None and not raw.endswith(f"/{step}".encode()):
            return Match.NONE, {}
        return super().matches(scope)


router = APIRouter(prefix="/v1/streams", tags=["streams", "answers"], route_class=_StepRoute)


class Tracing(OfSource):
    query: str = Field(description="id of the query that its events are held against")
    limit: int = Field(20, ge=1, description="at most so many events; the setting max_page bounds it")


_VALUES = {"lat": 29.6, "lon": -95.0, "sog": 9.5}
_TRACED = {
    "source": "ais",
    "stream_id": "v-17",
    "query": "harbour-7-fast",
    "canonical": "29.5 <= lat < 29.8 and sog > 10",
    "enabled": True,
    "topic": "events.ais",
    "partition": 0,
    "remembered": {"from_offset": 4000, "overwritten": True},
    "events": [
        {
            "offset": 4711,
            "row": 0,
            "ts": 1641168000000,
            "verdict": "moved",
            "carried": [],
            "in_force": True,
            "matched": False,
            "values": _VALUES,
            "holds": False,
            "margin": MARGIN_EXAMPLE,
            "disjuncts": [DISJUNCT_EXAMPLE],
        }
    ],
}
_SAFE = {
    "source": "ais",
    "stream_id": "v-17",
    "values": {**_VALUES, "kind": "tug"},
    "queries": 2,
    "maximal": True,
    "sides": [
        {"attribute": "lat", "type": "number", "lower": 29.5, "upper": 29.8, "missing": False},
        {"attribute": "lon", "type": "number", "lower": -95.1, "upper": -94.7, "missing": False},
        {"attribute": "sog", "type": "number", "lower": None, "upper": None, "missing": True},
        {"attribute": "kind", "type": "category", "texts": {"in": ["tanker", "tug"]}, "missing": False},
    ],
}


class _Trace(NamedTuple):
    registered: Registered
    task: Task
    told: Told


@router.get(
    f"/{{id:{TEXT}}}/trace",
    summary="Why did it not fire?",
    response_model=None,
    responses={
        200: answer(Traced, "The newest events, held against the query.", _TRACED),
        **documented(404, 409, 422, 503),
    },
)
async def trace(id: str, tracing: Annotated[Tracing, Query()], service: LiveService) -> Response:
    """The newest events of a stream, each held against a query as it is now, as by `POST /v1/explain`, and
    what became of each: an event that comes late matches without moving its stream, or is rejected, by the
    source's policy. The service remembers the newest events of each partition (the setting trace_events) in
    memory only: a trace begins anew when the worker starts again and when the partition moves to another
    worker, and `remembered` says from where. Dead letters for any other reason are no events of a stream and
    not there either; nor is what came before the stream was last removed. Of a query of many boxes fewer
    events can be asked for at once (422 says how many)."""
    service.check_limit(tracing.limit)

    def look(engine: Engine) -> _Trace:
        place = living_stream(engine, tracing.source, id, field="id")
        query = registered_query(engine, service.tenant, tracing.query, tracing.source)
        told = told_of(engine.sets[tracing.source], query.region, place, tracing.limit)
        return _Trace(engine.catalog.queries[query.id], place.task, told)

    found = await service.ask(look)
    _check_length(found)
    return json_answer(await asyncio.to_thread(_traced, id, found))


def _check_length(found: _Trace) -> None:
    """Raises Refusal: limit. An answer has every box of the query once for each event."""
    query, events = found.registered.query, len(found.told.events)
    most = max(1, _MOST_VERDICTS // max(1, len(query.region.conjuncts)))
    if events > most:
        boxes = f"the {len(query.region.conjuncts)} boxes of {query.public_id!r}"
        detail = f"{events} events held against {boxes} are too much for one answer; ask for {most} at most"
        raise Refusal(Reason.LIMIT, "limit", detail)


def _traced(id: str, found: _Trace) -> dict[str, Any]:
    registered, task, told = found
    query = registered.query
    return {
        "source": query.source,
        "stream_id": id,
        "query": query.public_id,
        "canonical": print_region(query.region),
        "enabled": query.enabled,
        "topic": task.topic,
        "partition": task.partition,
        "remembered": {"from_offset": told.from_offset, "overwritten": told.overwritten},
        "events": [
            {
                **event_view(event),
                **_firing(registered, event, explanation.holds),
                **explanation_view(query.region, values, explanation),
            }
            for event, values, explanation in zip(
                told.events, told.case.values, told.case.explanations(), strict=True
            )
        ],
    }


def _firing(registered: Registered, event: Event, holds: bool) -> dict[str, Any]:
    query = registered.query
    if event.commands <= registered.version:
        return {"in_force": False, "matched": None}
    told = query.enabled and Kind.MATCH in query.on and event.verdict not in REFUSED
    return {"in_force": True, "matched": told and holds}


class _Standing(NamedTuple):
    """``queries``: how many; of them the ``regions`` whose borders change something for the stream."""

    source: Source
    values: dict[str, float | str]
    queries: int
    regions: list[Region]


@router.get(
    f"/{{id:{TEXT}}}/safe-region",
    summary="How far may it move before anything changes?",
    response_model=None,
    responses={
        200: answer(SafeRegionView, "A box around its last values.", _SAFE),
        **documented(404, 422, 503),
    },
)
async def get_safe_region(id: str, of: Annotated[OfSource, Query()], service: LiveService) -> Response:
    """A box around the last values of a stream in which no enabled query begins or ends to hold: neither its
    `where` nor, where the stream is a member, its `keep`. It is
    maximal: no side can take more without such a change. It is one of many such boxes: the attributes take
    what they can one after the other, in the order of the source, those behind standing still meanwhile. A
    number takes all values up to the next border on either side, a category all texts that change nothing.
    Looks at every query, so it is no request for every event."""

    def look(engine: Engine) -> _Standing:
        place = living_stream(engine, of.source, id, field="id")
        queries = engine.sets[of.source]
        chosen = enabled(queries, service.tenant)
        members = {queries.names[slot] for slot in engine.slots_of_member(of.source, place)}
        kept = [one.keep_region for one in chosen if one.keep_region is not None and one.id in members]
        regions = [*(one.region for one in chosen), *kept]
        return _Standing(queries.source, present_of(queries, place), len(chosen), regions)

    found = await service.ask(look)
    safe = await asyncio.to_thread(
        safe_region,
        found.source.attributes,
        found.values,
        found.regions,
        most_cuts=service.settings.safe_region_cuts,
    )
    return json_answer(
        {
            "source": of.source,
            "stream_id": id,
            "values": found.values,
            "queries": found.queries,
            "maximal": safe.maximal,
            "sides": sides_view(safe),
        }
    )
