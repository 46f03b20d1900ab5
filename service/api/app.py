"""The HTTP application: routes, error answers and the OpenAPI document, around one runtime.

Handlers never block the event loop: questions and changes go to the worker's thread as futures, reading of
the log and parsing of big bodies to threads. Bodies are read as bytes and judged by ``language``, which names
the field and the reason; the framework validates query parameters only, of known names (``parameters``).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from fastapi import Depends, FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from service import __version__
from service.api import (
    access,
    bulk,
    collection,
    collections,
    events,
    explain,
    health,
    history,
    live,
    outputs,
    overview,
    parameters,
    problems,
    queries,
    sources,
    stream_answers,
    streams,
    validation,
)
from service.api.bodies import Bodies
from service.api.context import Service, attach
from service.api.unsent import Answers, Unsent
from service.keys import Role
from service.metrics import Metrics
from service.runtime import Runtime
from service.settings import Settings

_DESCRIPTION = """
Continual range queries over streams of events. Register a source, then queries on it; send events here or to
the source's topic; read what matched, and which stream entered or left which query.

Every error is `application/problem+json` with the field and the reason class. A change is answered when it
holds: `active_from` names the first offset of each partition that sees all of it; of more than 1,000 queries
in one request some are seen earlier.
"""

#: ``bulk`` and ``collection`` come first: their paths begin like that of one query; so does ``overview``. The
#: answers about a stream come before the stream, whose id may hold a slash.
_ROUTERS = (
    *(sources, bulk, collections, collection, overview, queries, validation, explain),
    *(events, stream_answers, streams, outputs, live, history, health),
)

#: What is answered whatever clients leave untaken.
_ALWAYS = frozenset(route.path for route in health.router.routes if isinstance(route, APIRoute))
_ASKING = frozenset(
    path for (method, path), role in access.ROLES.items() if (method, role) == ("POST", Role.READ)
)


def create_app(
    runtime: Runtime,
    settings: Settings,
    metrics: Metrics,
    *,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> FastAPI:
    """The application. It neither starts nor stops the runtime. ``now``: the time by which keys expire.
    Raises KeysError."""
    routes = [route for module in _ROUTERS for route in module.router.routes]
    access.check_roles(routes)
    app = FastAPI(
        title="Rangewatch",
        version=__version__,
        summary="A streaming matching service for continual range queries.",
        description=_DESCRIPTION,
        redirect_slashes=False,
        redoc_url=None,
        dependencies=[Depends(access.Guard(settings, metrics, now=now))],
    )
    attach(app, Service(runtime, settings, metrics))
    app.state.unsent = Unsent(settings.max_unsent_bytes)
    app.add_middleware(Answers, unsent=app.state.unsent, always=_ALWAYS, asking=_ASKING)
    app.add_middleware(Bodies, settings=settings)  # around all that refuses
    problems.install(app, routes)
    for module in _ROUTERS:
        # A probe may carry what it likes: it is to be answered.
        checks = [] if module is health else [Depends(parameters.check_names)]
        app.include_router(module.router, dependencies=checks)
    _document(app)
    return app


def _document(app: FastAPI) -> None:
    """Replaces the framework's idea of the document: its errors are not ours, and ours have one schema."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            made = get_openapi(
                title=app.title,
                version=app.version,
                summary=app.summary,
                description=app.description,
                routes=app.routes,
            )
            _replace_errors(made)
            _restore_examples(made)
            access.document_roles(made)
            app.openapi_schema = made
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def _replace_errors(document: dict[str, Any]) -> None:
    """Path parameters are texts, which always validate: the errors that the framework adds never happen."""
    schemas = document["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas["Problem"] = problems.Problem.model_json_schema()
    for methods in document["paths"].values():
        for operation in methods.values():
            if problems.MEDIA_TYPE not in operation["responses"].get("422", {}).get("content", {}):
                operation["responses"].pop("422", None)


def _restore_examples(document: dict[str, Any]) -> None:
    """The framework drops what is null, also from examples, where it says something."""
    for route in (route for module in _ROUTERS for route in module.router.routes):
        assert isinstance(route, APIRoute)
        for operation in document["paths"][route.path_format].values():
            if operation["summary"] == route.summary:
                for status, entry in route.responses.items():
                    for media, content in entry.get("content", {}).items():
                        shown = operation["responses"][str(status)]["content"][media]
                        shown["example"] = content["example"]
