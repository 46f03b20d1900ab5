"""Health, readiness and metrics, for whatever looks after the service."""

from __future__ import annotations

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse

from service.api.bodies import json_answer
from service.api.context import AnyService
from service.api.problems import NOT_RUNNING, Unready, documented
from service.api.shapes import Health, answer
from service.metrics import CONTENT_TYPE

router = APIRouter(tags=["operations"])


@router.get(
    "/healthz",
    summary="Is the process alive?",
    response_model=None,
    responses={200: answer(Health, "It works.", {"status": "ok"}), **documented(503)},
)
async def healthz(service: AnyService) -> Response:
    """503 once the worker has died: the process must be started again."""
    if service.runtime.failure is not None:
        raise Unready(NOT_RUNNING)
    return json_answer({"status": "ok"})


@router.get(
    "/readyz",
    summary="May traffic come?",
    response_model=None,
    responses={200: answer(Health, "It may.", {"status": "ready"}), **documented(503)},
)
async def readyz(service: AnyService) -> Response:
    """200 once the query set and the state of all streams have caught up with the log, and while no input
    waits for a schema registry. What the registry says, and where it is, is in the log of the service: nobody
    needs a key here."""
    if not service.runtime.caught_up:
        raise Unready("the service is catching up; try again")
    if service.runtime.held is not None:
        raise Unready("events wait for schemas that the registry does not give; the service's log says why")
    return json_answer({"status": "ready"})


@router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    response_class=PlainTextResponse,
    responses={
        200: {
            "description": "Prometheus' text format.",
            "content": {"text/plain": {"example": 'rangewatch_events_total{source="ais"} 99999.0\n'}},
        },
        **documented(),
    },
)
async def metrics(service: AnyService) -> Response:
    """All counters start at 0 with the process."""
    return Response(service.metrics.text(), media_type=CONTENT_TYPE)
