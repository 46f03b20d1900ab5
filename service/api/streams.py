"""Streams over HTTP: what is known of one, and its removal."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from service.api.bodies import json_answer
from service.api.context import LiveService
from service.api.events import OfSource
from service.api.lookup import queries_of, unknown_stream
from service.api.paths import TEXT
from service.api.problems import documented
from service.api.shapes import StreamView, answer
from service.engine import engine as engines

router = APIRouter(prefix="/v1/streams", tags=["streams"])

_VIEW = {
    "source": "ais",
    "stream_id": "v-17",
    "last": {"lat": 29.6, "lon": -95.0, "sog": 12.1, "kind": "tug"},
    "ts": 1641168000000,
    "seq": 3,
    "inside": ["harbour-7-fast"],
    "topic": "events.ais",
    "partition": 0,
}


@router.get(
    f"/{{id:{TEXT}}}",
    summary="One stream",
    response_model=None,
    responses={200: answer(StreamView, "The stream as it stands.", _VIEW), **documented(404, 422, 503)},
)
async def get_stream(id: str, of: Annotated[OfSource, Query()], service: LiveService) -> Response:
    """Its last values, and, as the key's tenant is told, the number of its last border record and the queries
    that it is inside. Of several workers each knows the streams of its own partitions only, and another's is
    a 404. An id that ends in `/trace` or `/safe-region` must be sent with that slash as `%2F`."""

    def look(engine: engines.Engine) -> engines.StreamView | None:
        queries_of(engine, of.source)
        return engine.stream(of.source, id, service.tenant)

    stream = await service.ask(look)
    if stream is None:
        raise unknown_stream(of.source, id, field="id")
    return json_answer(
        {
            "source": of.source,
            "stream_id": id,
            "last": stream.last,
            "ts": stream.ts,
            "seq": stream.seq,
            "inside": stream.inside,
            "topic": stream.task.topic,
            "partition": stream.task.partition,
        }
    )


@router.delete(
    f"/{{id:{TEXT}}}",
    summary="Remove a stream",
    status_code=204,
    response_model=None,
    responses={
        202: {"description": "The removal is in the log; the worker that has the partition will do it."},
        204: {"description": "The stream is unknown from now on; its leaves are written."},
        **documented(404, 422, 503),
    },
)
async def delete_stream(id: str, of: Annotated[OfSource, Query()], service: LiveService) -> Response:
    """The stream leaves exactly the queries that it is in, of all tenants: so it takes a key of the default
    one. Its next event begins a new life."""
    removed = await service.remove_stream(of.source, id) if id else False
    if removed is None:
        return Response(status_code=202)
    if not removed:
        raise unknown_stream(of.source, id, field="id")
    return Response(status_code=204)
