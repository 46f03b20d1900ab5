"""Errors as application/problem+json: one shape for every way a request can fail.

``field`` and ``reason`` are ours: where the mistake is (a dotted path into the body, a parameter, a header,
or "" for the whole) and its class, from ``model.Reason`` or one of the few below that only HTTP knows. No
answer carries a traceback or a path of the server.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute, Match, Route

from service.literals import shown
from service.log.port import LogError, LogUnavailable
from service.model import Reason, Refusal
from service.registry import SchemasUnavailable
from service.runtime import Busy, NotRunning

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_S = 1
NOT_RUNNING = "the service has stopped working and must be started again; its log says why"

_logger = logging.getLogger(__name__)

_STATUS_OF: Mapping[Reason, int] = {
    Reason.EXISTS: 409,
    Reason.IN_USE: 409,
    Reason.QUARANTINED: 409,
    Reason.UNKNOWN_ID: 404,
    Reason.CHANGED: 412,
    Reason.TOO_LARGE: 413,
    Reason.QUOTA: 429,
}

REASON_OF_STATUS: Mapping[int, str] = {
    400: "bad_request",
    404: "not_found",
    405: "method_not_allowed",
    415: "unsupported_media_type",
    431: "too_large",
    501: "not_supported",
    503: "unavailable",
}


class Problem(BaseModel):
    """The body of every error (RFC 9457), with the field and the reason class besides."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(description="urn:rangewatch:problem: and the reason")
    title: str
    status: int
    detail: str = Field(description="what is wrong, and the way out")
    field: str = Field(
        description="where: a path into the body, a parameter or a header; empty for the whole"
    )
    reason: str = Field(description="the class of the mistake, stable for programs")


class ProblemError(Exception):
    """A problem that no Refusal expresses: another status, members (``extra``) or headers of its own."""

    def __init__(
        self,
        status: int,
        reason: str,
        field: str,
        detail: str,
        *,
        extra: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.reason = reason
        self.field = field
        self.detail = detail
        self.extra = extra or {}
        self.headers = headers or {}


class Unready(ProblemError):
    """Not now: start-up, overload, or a log that is away. The client may try again."""

    def __init__(self, detail: str) -> None:
        super().__init__(503, "unavailable", "", detail)


def status_of(refusal: Refusal) -> int:
    return _STATUS_OF.get(refusal.reason, 422)


def problem(
    status: int,
    reason: str,
    field: str,
    detail: str,
    *,
    extra: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """The response. Its JSON is ASCII, so whatever the client sent can be quoted in it."""
    body = {
        "type": f"urn:rangewatch:problem:{reason}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "field": field,
        "reason": reason,
        **(extra or {}),
    }
    sent = dict(headers or {})
    if status == 503:
        sent["Retry-After"] = str(RETRY_AFTER_S)
    return Response(json.dumps(body).encode(), status, sent, MEDIA_TYPE)


def install(app: FastAPI, routes: Sequence[BaseRoute] = ()) -> None:
    """Makes every error of the application, ours and the framework's, a problem. ``routes``: all that a path
    may belong to; a wrong method is told which of them take another."""
    app.add_exception_handler(Refusal, _refusal)
    app.add_exception_handler(ProblemError, _problem_error)
    app.add_exception_handler(Busy, _busy)
    app.add_exception_handler(NotRunning, _not_running)
    app.add_exception_handler(LogError, _log_error)
    app.add_exception_handler(SchemasUnavailable, _schemas_unavailable)
    app.add_exception_handler(RequestValidationError, _validation)
    app.add_exception_handler(HTTPException, partial(_framework, routes))
    app.add_exception_handler(ClientDisconnect, _gone)
    app.add_exception_handler(Exception, _failure)


async def _refusal(_: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return problem(status_of(error), error.reason, error.field, error.detail)


async def _problem_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, ProblemError)
    return problem(
        error.status, error.reason, error.field, error.detail, extra=error.extra, headers=error.headers
    )


async def _busy(_: Request, __: Exception) -> Response:
    return problem(503, "unavailable", "", "too many requests are waiting; try again")


async def _not_running(_: Request, __: Exception) -> Response:
    return problem(503, "unavailable", "", NOT_RUNNING)


async def _log_error(request: Request, error: Exception) -> Response:
    if isinstance(error, LogUnavailable):  # the worker has said so already, and many may ask
        _logger.warning("%s %s: %s", request.method, request.url.path, error)
    else:
        _logger.error("%s %s: the log failed", request.method, request.url.path, exc_info=error)
    return problem(503, "unavailable", "", "the log is not available; whether the change holds is not known")


async def _schemas_unavailable(_: Request, error: Exception) -> Response:
    return problem(503, "unavailable", "", str(error))


async def _validation(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    reason = Reason.MISSING_FIELD if first["type"] == "missing" else Reason.BAD_VALUE
    return problem(422, reason, str(first["loc"][-1]), first["msg"])


async def _framework(routes: Sequence[BaseRoute], request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status, detail, headers = error.status_code, str(error.detail), dict(error.headers or {})
    path = shown(request.url.path)
    if status == 404:
        detail = f"there is no path {path}; /openapi.json names all that there are, and /docs shows them"
    elif status == 405:
        # The framework names the methods of the first route of the path only.
        fitting = (route for route in routes if route.matches(request.scope)[0] is not Match.NONE)
        allowed = {method for route in fitting if isinstance(route, Route) for method in route.methods or ()}
        headers["Allow"] = ", ".join(sorted(allowed)) or headers.get("Allow", "")
        detail = f"{path} does not take {request.method}; it takes {headers['Allow']}"
    reason = REASON_OF_STATUS.get(status, "bad_request")
    return problem(status, reason, "", detail, headers=headers)


async def _gone(_: Request, __: Exception) -> Response:
    return problem(400, "bad_request", "", "the request ended before its body did")


async def _failure(request: Request, error: Exception) -> Response:
    _logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return problem(500, "internal", "", "the service failed on this request; its log says why")


_EXAMPLES: Mapping[int, tuple[str, str, str]] = {
    400: ("bad_request", "", "the request ended before its body did"),
    401: ("unauthenticated", "Authorization", "send a key, as Authorization: Bearer rw_..."),
    403: ("forbidden", "Authorization", "POST /v1/queries needs the role write; port-dashboard has read"),
    404: ("unknown_id", "id", "there is no query 'harbour-7-fast'"),
    408: ("timeout", "", "nothing more of the body came within the 60 s of body_timeout_s"),
    409: ("exists", "id", "query 'harbour-7-fast' exists; use PUT to replace it"),
    412: ("changed", "If-Match", "query 'harbour-7-fast' is at version 12; read it again and repeat"),
    413: ("too_large", "", "the body is longer than the 33554432 bytes of max_request_bytes"),
    415: ("unsupported_media_type", "Content-Type", "must be application/geo+json or text/csv"),
    422: ("unknown_attribute", "where", "source 'ais' has no attribute 'speed'"),
    429: ("quota", "", "more than 50 requests a second, which is max_requests_per_s; try again in 0.02 s"),
    500: ("internal", "", "the service failed on this request; its log says why"),
    501: ("not_supported", "", "consumers read the topics of this log themselves"),
    503: ("unavailable", "", "the service is catching up; try again"),
}


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI entries of these error answers, and of the 500 that any operation may give."""
    entries: dict[int | str, dict[str, Any]] = {}
    for status in sorted({*statuses, 500}):
        reason, field, detail = _EXAMPLES[status]
        example = {
            "type": f"urn:rangewatch:problem:{reason}",
            "title": HTTPStatus(status).phrase,
            "status": status,
            "detail": detail,
            "field": field,
            "reason": reason,
        }
        entries[status] = {
            "description": HTTPStatus(status).phrase,
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}, "example": example}},
        }
    return entries
