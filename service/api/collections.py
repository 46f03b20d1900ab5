"""Collections over HTTP: a file of regions or thresholds as one resource, replaced by its difference.

Reading the file, judging its members and finding what differs is done aside, from a snapshot of the catalog;
the worker's thread then takes what changes as one request, all or nothing. Where the collection has changed
in between, that is done anew. The body is in memory as bytes, and of its members what they come to.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field

from service.api.bodies import json_answer, read_bulk
from service.api.context import LiveService, Service
from service.api.problems import ProblemError, Unready, documented, status_of
from service.api.queries import (
    ACTIVE_FROM_HEADER,
    ETAG_HEADER,
    NOT_MODIFIED,
    IfChanged,
    IfMatch,
    IfNoneMatch,
    answer_unless_known,
    etag,
    version_in,
)
from service.api.shapes import ChangedCollection, CollectionList, CollectionView, answer
from service.api.views import positions_view, refusal_view
from service.engine.collections import (
    Failure,
    Failures,
    Member,
    Plan,
    Snapshot,
    planned,
    removed,
    unknown_collection,
)
from service.engine.commands import ABSENT, Outcome
from service.engine.engine import Engine
from service.members import CSV, GEOJSON, PARQUET, Reading, field_value, members, rows
from service.model import Reason, Refusal
from service.runtime import limits_of, wall_ms
from service.tenants import id_of, own

router = APIRouter(prefix="/v1/collections", tags=["collections"])

KINDS = {
    "application/geo+json": GEOJSON,
    "application/json": GEOJSON,
    "text/csv": CSV,
    "application/vnd.apache.parquet": PARQUET,
}

#: How often a plan is made anew because others change a member or the source meanwhile.
_ATTEMPTS = 5

_VIEW = {
    "name": "ports",
    "source": "ais",
    "kind": "geojson",
    "members": 2,
    "at": 1641168000000,
    "etag": "16",
}
_CHANGED = {
    **_VIEW,
    "created": 1,
    "replaced": 0,
    "unchanged": 1,
    "deleted": 0,
    "expired": 0,
    "active_from": {"command": 16, "positions": [{"topic": "events.ais", "partition": 0, "offset": 4711}]},
}
_FEATURES = {
    "type": "FeatureCollection",
    "features": [
        {
            "type": "Feature",
            "id": "harbour-7",
            "properties": {"name": "Harbour 7"},
            "geometry": {
                "type": "Polygon",
                "coordinates": [[[-95.1, 29.5], [-94.7, 29.5], [-94.8, 29.8], [-95.1, 29.5]]],
            },
        },
        {
            "type": "Feature",
            "id": "pilot-station",
            "properties": {"radius_m": 500},
            "geometry": {"type": "Point", "coordinates": [-94.6, 29.3]},
        },
    ],
}
_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/geo+json": {"schema": {"type": "object"}, "example": _FEATURES},
            "text/csv": {
                "schema": {"type": "string"},
                "example": "id,sog.gt,kind.in,on\nfast,30,,enter leave\ntugs,,tug|tanker,\n",
            },
            "application/vnd.apache.parquet": {
                "schema": {"type": "string", "format": "binary"},
                "example": "the same columns as in CSV",
            },
        },
    }
}


class Options(BaseModel):
    """How the file is read, and what its queries are like unless it says otherwise."""

    source: str = Field(description="the source of all members")
    lon: str = Field("lon", description="the attribute of the first coordinate")
    lat: str = Field("lat", description="the attribute of the second")
    id: str | None = Field(None, description="the property or column with the ids (a feature's own; id)")
    radius: str = Field("radius_m", description="the property or column with the radius of a circle, m")
    tags: list[str] = Field([], description="a property or column that becomes a tag; may be repeated")
    on: list[str] | None = Field(None, description="as in a query; may be repeated")
    initial: str | None = Field(None, description="as in a query")
    keep: str | None = Field(None, description="as in a query, an expression")
    for_: str | None = Field(None, alias="for", description="as in a query")
    cooldown: str | None = Field(None, description="as in a query")
    once: bool | None = Field(None, description="as in a query")
    select: list[str] | None = Field(None, description="as in a query; may be repeated")
    enabled: bool | None = Field(None, description="as in a query")
    aggregates: str | None = Field(None, description="as in a query, JSON")
    expires_at: str | None = Field(None, description="as in a query")

    def defaults(self) -> dict[str, Any]:
        """The fields of queries that were given. Raises Refusal: syntax."""
        given = self.model_dump(by_alias=True, exclude_none=True)
        return {
            name: field_value(name, given[name])
            for name in given
            if name not in ("source", "lon", "lat", "id", "radius", "tags")
        }


@router.put(
    "/{name}",
    summary="Create or replace a collection",
    response_model=None,
    responses={
        200: {
            **answer(ChangedCollection, "The collection is now as the file says.", _CHANGED),
            "headers": ETAG_HEADER,
        },
        201: {**answer(ChangedCollection, "The collection is new.", _CHANGED), "headers": ETAG_HEADER},
        **documented(400, 404, 408, 409, 412, 413, 415, 422, 503),
    },
    openapi_extra=_BODY,
)
async def put_collection(
    name: str,
    options: Annotated[Options, Query()],
    request: Request,
    service: LiveService,
    if_match: IfMatch = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """A GeoJSON FeatureCollection (polygons, or points with a radius), or a table of thresholds in CSV or
    Parquet. Its members are queries named `{collection}:{id}` with the tag `collection`; those that are as
    they were stay untouched: nothing leaves and nothing enters. One refused member refuses all; the problem's
    `failures` names each with its place in the file."""
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    kind = KINDS.get(media)
    if kind is None:
        detail = f"must be {', '.join(KINDS)}, not {media or 'nothing'}"
        raise ProblemError(415, "unsupported_media_type", "Content-Type", detail)
    key, version = service.key(name), version_in(if_match, if_none_match)
    raw = await read_bulk(request, service.settings)

    def plan(snapshot: Snapshot) -> Plan:
        source = snapshot.sources.get(options.source)
        if source is None:
            raise Refusal(Reason.UNKNOWN_SOURCE, "source", f"there is no source {options.source!r}")
        reading = Reading(
            source,
            options.lon,
            options.lat,
            options.id,
            options.radius,
            options.tags,
            options.defaults(),
            service.settings.max_message_bytes,
            service.settings.most_queries,
            service.settings.max_bulk_bytes,
        )
        found = planned(
            key,
            options.source,
            kind,
            _read(kind, raw, reading),
            snapshot,
            now_ms=wall_ms(),
            limits=limits_of(service.settings),
        )
        if isinstance(found, Failures):
            raise _refused(found, kind)
        return found

    made, outcomes = await _change(service, key, version, plan)
    view = await service.ask(lambda engine: _view(key, engine))
    if view is None:
        raise unknown_collection(key)
    done = {part: made.done[part] for part in ("created", "replaced", "unchanged", "deleted", "expired")}
    created = any(one.done == "created" for one in outcomes[-1:])
    body = {**view, **done, "active_from": _active_from(outcomes)}
    return json_answer(body, 201 if created else 200, {"ETag": etag(view["etag"])})


def _read(kind: str, raw: bytes, reading: Reading) -> Iterator[Member]:
    """The members of a file. Raises Refusal where it as a whole cannot be read."""
    if kind != PARQUET:
        yield from members(kind, raw, reading)
        return
    from service.parquet_process import unpacked

    with unpacked(raw, reading.max_unpacked_bytes) as table:
        yield from rows(table, reading)


async def _change(
    service: Service, key: str, version: str | None, plan: Any
) -> tuple[Plan, Sequence[Outcome]]:
    """Makes a plan from a snapshot and carries it out, several times where it is outdated by then. Changes of
    one collection come one after another. Returns the plan and what became of its commands. Raises the
    Refusal of either, and Unready where others were faster each time."""
    async with service.changing.of(key):
        for _ in range(_ATTEMPTS):
            snapshot = await service.ask(lambda engine: engine.catalog.snapshot(key))
            _check_version(key, version, snapshot)
            made: Plan = await asyncio.to_thread(plan, snapshot)
            answers = await service.commands(made.commands, atomic=True) if made.commands else []
            refusals = [one for one in answers if isinstance(one, Refusal)]
            if not refusals:
                return made, [one for one in answers if isinstance(one, Outcome)]
            if not any(one.reason is Reason.CHANGED for one in refusals):
                raise refusals[0]
    raise Unready(f"others keep changing collection {id_of(key)!r}, its members or its source; try again")


def _check_version(key: str, version: str | None, snapshot: Snapshot) -> None:
    if version is None:
        return
    if version == ABSENT:
        if snapshot.collection is not None:
            raise Refusal(Reason.CHANGED, "If-None-Match", f"collection {id_of(key)!r} is there")
        return
    if snapshot.collection is None or version not in ("*", str(snapshot.version)):
        now = f"is at version {snapshot.version}" if snapshot.collection else "is not there"
        detail = f"collection {id_of(key)!r} {now}; read it again and repeat"
        raise Refusal(Reason.CHANGED, "If-Match", detail)


def _refused(failures: Failures, kind: str) -> ProblemError:
    views = [_failure(failure, kind) for failure in failures.told]
    first = views[0]
    more = f" (and {failures.of - 1} more)" if failures.of > 1 else ""
    return ProblemError(
        status_of(failures.told[0].refusal),
        first["reason"],
        first["field"],
        f"{first['place']}: {first['detail']}{more}; nothing was changed",
        extra={"refused": failures.of, "failures": views},
    )


def _failure(failure: Failure, kind: str) -> dict[str, Any]:
    """What was refused, with the field as the file has it."""
    view = refusal_view(failure.refusal)
    if kind == GEOJSON and view["field"].startswith("where"):
        view["field"] = "geometry"
    return {
        "place": failure.place,
        "id": failure.id,
        **view,
        "field": view["field"].removeprefix("where.any[0]."),
    }


def _active_from(outcomes: Sequence[Outcome]) -> dict[str, Any] | None:
    if not outcomes:
        return None
    positions: dict[tuple[str, int], int] = {}
    for seen in {id(outcome.active_from): outcome.active_from for outcome in outcomes}.values():
        for partition, offset in seen.items():
            positions[partition] = max(offset, positions.get(partition, 0))
    return positions_view(outcomes[-1].command, positions)


def _view(key: str, engine: Engine) -> dict[str, Any] | None:
    collections = engine.catalog.collections
    collection = collections.living.get(key)
    if collection is None:
        return None
    return {
        "name": id_of(key),
        "source": collection.source,
        "kind": collection.kind,
        "members": len(collections.members.get(key, ())),
        "at": collection.at,
        "etag": str(collections.versions[key]),
    }


@router.get(
    "/{name}",
    summary="One collection",
    response_model=None,
    responses={
        200: {**answer(CollectionView, "The collection.", _VIEW), "headers": ETAG_HEADER},
        **NOT_MODIFIED,
        **documented(404, 422, 503),
    },
)
async def get_collection(name: str, service: LiveService, if_none_match: IfChanged = None) -> Response:
    """Its members are listed by `GET /v1/queries?tag=collection:{name}`."""
    key = service.key(name)
    view = await service.ask(lambda engine: _view(key, engine))
    if view is None:
        raise unknown_collection(key)
    return answer_unless_known(view, if_none_match)


@router.get(
    "",
    summary="All collections",
    response_model=None,
    responses={
        200: answer(CollectionList, "The collections by name.", {"collections": [_VIEW]}),
        **documented(422, 503),
    },
)
async def list_collections(service: LiveService) -> Response:
    def look(engine: Engine) -> list[dict[str, Any] | None]:
        names = own(service.tenant, engine.catalog.collections.living)
        return [_view(service.key(name), engine) for name in sorted(names)]

    return json_answer({"collections": await service.ask(look)})


@router.delete(
    "/{name}",
    summary="Delete a collection with its members",
    status_code=204,
    response_model=None,
    responses={
        204: {"description": "The collection and its members are gone.", "headers": ACTIVE_FROM_HEADER},
        **documented(404, 412, 422, 503),
    },
)
async def delete_collection(name: str, service: LiveService, if_match: IfMatch = None) -> Response:
    """All or nothing, with the leaves of all who are inside."""
    key = service.key(name)
    _, outcomes = await _change(service, key, version_in(if_match), lambda snapshot: removed(key, snapshot))
    return Response(status_code=204, headers={"Active-From": json.dumps(_active_from(outcomes))})
