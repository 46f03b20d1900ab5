"""The shapes of requests and answers, for the OpenAPI document and for clients that are generated from it.

Bodies are judged by ``language``, which names the field and the reason; nothing here validates a request.
Tests hold every answer against these models.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from service.api.bodies import NDJSON
from service.language import MAX_EVENT_IDS
from service.model import AttributeType, Initial, Kind, Late, Missing, Nulls

QUERY_EXAMPLE: dict[str, Any] = {
    "id": "harbour-7-fast",
    "source": "ais",
    "where": "29.5 <= lat < 29.8 and -95.1 <= lon < -94.7 and (sog > 10 or kind in ('tug', 'tanker'))",
    "on": ["match", "enter", "leave"],
    "select": ["sog", "lat", "lon"],
    "tags": {"team": "port"},
}
SOURCE_EXAMPLE: dict[str, Any] = {
    "attributes": {"lat": "number", "lon": "number", "sog": "number", "kind": "category"},
    "late": "no_border",
    "dedup": {"by": "event_id", "last": 100},
}
EVENT_EXAMPLE: dict[str, Any] = {
    "stream_id": "v-17",
    "ts": 1641168000000,
    "lat": 29.6,
    "lon": -95.0,
    "sog": 12.1,
    "kind": "tug",
}


class Shape(BaseModel):
    model_config = ConfigDict(extra="forbid")


class PartitionOffset(Shape):
    topic: str
    partition: int
    offset: int


class ActiveFrom(Shape):
    """From where a change holds: its offset in the command log and, in the answer to the change itself, the
    first event offset of each partition that sees it."""

    command: int
    positions: list[PartitionOffset] | None = None


class DedupView(Shape):
    """What makes an event a copy."""

    by: str = Field(description="the field that has the id of an event")
    last: int = Field(description="how many ids of accepted events a stream remembers")


class SourceView(Shape):
    name: str
    attributes: dict[str, AttributeType]
    topic: str
    key: str
    ts: str
    paths: dict[str, str]
    missing: Missing
    nulls: Nulls
    late: Late
    stream_ttl: int | None
    stale_after: int | None
    format: Literal["json"] | dict[str, Any] = Field(description="how its messages are written")
    dedup: DedupView | None


class ChangedSource(SourceView):
    active_from: ActiveFrom


class SourceList(Shape):
    sources: list[SourceView]


class IndexPart(Shape):
    """A part of an index. ``predicted_ns``: what an event was predicted to cost in it, in a large batch."""

    structure: str
    reason: str
    attributes: list[str]
    boxes: int
    removed: int
    bytes: int
    predicted_ns: float | None


class IndexView(Shape):
    source: str
    matching: list[IndexPart] = Field(description="of the queries with `match` in their `on`")
    quiet: list[IndexPart] = Field(description="of the others")
    keeping: list[IndexPart] = Field(description="of regions of `keep`")
    crossing: list[IndexPart] = Field(description="of the queries with `cross` once more")
    shaped: list[IndexPart] = Field(
        description="of the queries with polygons or circles, whatever their `on`"
    )
    shaped_keeping: list[IndexPart] = Field(description="of regions of `keep` with polygons or circles")


class Why(Shape):
    """Where and why something was refused."""

    field: str
    reason: str
    detail: str


class AggregatesAsked(Shape):
    """Which aggregates a query asks for."""

    every: int = Field(description="ms")
    of: list[str]


class QueryView(Shape):
    """A query as it is registered, all defaults filled in, with what the service says of it."""

    id: str
    source: str
    where: str | dict[str, Any]
    on: list[Kind]
    initial: Initial
    keep: str | dict[str, Any] | None
    for_: int | None = Field(alias="for", description="ms")
    cooldown: int | None = Field(description="ms")
    once: bool
    select: list[str]
    aggregates: AggregatesAsked | None
    tags: dict[str, str]
    enabled: bool
    expires_at: int | None = Field(description="ms since 1970")
    etag: str = Field(description="the version; If-Match takes it")
    state: Literal["active", "disabled"]
    active_from: ActiveFrom
    canonical: str = Field(description="`where` in its one canonical form")


class QuarantinedView(Shape):
    """A stored query that no longer validates: in no index until it is replaced or deleted."""

    id: str
    etag: str = Field(description="the version; If-Match takes it")
    state: Literal["quarantined"]
    stored: Any = Field(description="the body as it is stored")
    refusal: Why


class QueryPage(Shape):
    queries: list[QueryView | QuarantinedView]
    next: str | None = Field(description="`after` of the next page; null on the last")


class LineFailure(Why):
    line: int = Field(description="number of the line, from 1")
    id: str | None


class BulkSummary(Shape):
    received: int
    created: int
    replaced: int
    unchanged: int
    refused: int
    active_from: ActiveFrom | None = Field(description="null where nothing changed")
    failures: list[LineFailure] = Field(description="of the lines that were refused the first thousand")


class CollectionView(Shape):
    """A set of queries that is replaced as one."""

    name: str
    source: str
    kind: Literal["geojson", "csv", "parquet"] = Field(description="of the file that it was made from")
    members: int
    at: int | None = Field(description="when it was last put, ms since 1970")
    etag: str = Field(description="the version, of members too; If-Match takes it")


class CollectionList(Shape):
    collections: list[CollectionView]


class ChangedCollection(CollectionView):
    created: int
    replaced: int
    unchanged: int
    deleted: int
    expired: int = Field(description="of the file, left out since `expires_at` has passed")
    active_from: ActiveFrom | None = Field(description="null where nothing changed")


class Members(Shape):
    query: str
    streams: list[str] = Field(description="ids of the streams inside, sorted")
    next: str | None = Field(description="`after` of the next page; null on the last")


class Numbers(Shape):
    """Of one attribute, over the ``n`` members that have it."""

    n: int
    sum: float | None = Field(description="0 without a value, null beyond float64")
    min: float | None
    max: float | None
    avg: float | None


class AggregatesOfPartition(Shape):
    topic: str
    partition: int
    count: int
    of: dict[str, Numbers]


class AggregatesView(Shape):
    query: str
    source: str
    count: int = Field(description="how many streams are inside, in all partitions of this worker")
    of: dict[str, Numbers]
    partitions: list[AggregatesOfPartition]


class Validated(Shape):
    canonical: str
    where: dict[str, Any] = Field(description="the same as JSON")
    boxes: int = Field(description="conjuncts after multiplying out")


class Matched(Shape):
    matches: list[list[str]] = Field(description="for each event the ids of the queries it satisfies, sorted")


class Accepted(Shape):
    positions: list[PartitionOffset] = Field(description="where each message lies in the log")


class OutputView(Shape):
    topic: str
    key: str | None
    value: Any


class Processed(Accepted):
    refused: int = Field(description="how many of the events went to the dead letters")
    outputs: list[OutputView]


class RecordView(Shape):
    offset: int
    key: str | None
    value: Any


class TopicPage(Shape):
    records: list[RecordView]
    next: int = Field(description="`after` of the next page")


class HistoryEntry(Shape):
    command: int
    at: int | None = Field(description="ms since 1970")
    by: str | None = Field(description="what the client said of itself in `X-Actor`")
    what: str = Field(
        description="`written` (its predecessor is not on this page), `changed`, `enabled`, `disabled`,"
        " `deleted`, `expired`"
    )
    query: str | None = Field(description="the query that was changed; so with the two below")
    source: str | None
    collection: str | None = Field(description="its members have entries of their own")
    changed: list[str] | None = Field(description="fields that differ from the body before, if it is here")
    body: dict[str, Any] | None


class HistoryPage(Shape):
    entries: list[HistoryEntry]
    next: int = Field(description="`after` of the next page")


class StreamView(Shape):
    source: str
    stream_id: str
    last: dict[str, float | str]
    ts: int | None
    seq: int
    inside: list[str]
    topic: str
    partition: int


class Health(Shape):
    status: Literal["ok", "ready"]


def json_body(schema: dict[str, Any], example: Any) -> dict[str, Any]:
    """The OpenAPI entry of a JSON request body."""
    return {
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": schema, "example": example}},
        }
    }


def lines_body(example: str) -> dict[str, Any]:
    """The OpenAPI entry of an NDJSON request body."""
    return {
        "requestBody": {
            "required": True,
            "content": {NDJSON: {"schema": {"type": "string"}, "example": example}},
        }
    }


def answer(model: type[BaseModel], description: str, example: Any) -> dict[str, Any]:
    """The OpenAPI entry of one answer."""
    return {
        "model": model,
        "description": description,
        "content": {"application/json": {"example": example}},
    }


_REGION: dict[str, Any] = {
    "oneOf": [
        {"type": "string", "description": "an expression"},
        {
            "type": "object",
            "properties": {
                "any": {
                    "type": "array",
                    "minItems": 1,
                    "items": {
                        "type": "object",
                        "additionalProperties": {"type": "object", "minProperties": 1},
                    },
                }
            },
            "required": ["any"],
            "additionalProperties": False,
        },
    ]
}
_DURATION: dict[str, Any] = {"type": ["integer", "string", "null"], "examples": [30000, "30s"]}
_PERIOD: dict[str, Any] = {"type": ["integer", "string"], "default": "1s"}

_QUERY_FIELDS: dict[str, Any] = {
    "id": {"type": "string", "pattern": "^[A-Za-z0-9._~:-]{1,200}$"},
    "source": {"type": "string"},
    "where": _REGION,
    "on": {"type": "array", "items": {"enum": [kind.value for kind in Kind]}, "minItems": 1},
    "initial": {"enum": [initial.value for initial in Initial]},
    "keep": {"oneOf": [*_REGION["oneOf"], {"type": "null"}]},
    "for": _DURATION,
    "cooldown": _DURATION,
    "once": {"type": "boolean"},
    "select": {"type": "array", "items": {"type": "string"}},
    "aggregates": {
        "type": ["object", "null"],
        "properties": {"every": _PERIOD, "of": {"type": "array", "items": {"type": "string"}}},
        "additionalProperties": False,
    },
    "tags": {"type": "object", "additionalProperties": {"type": "string"}},
    "enabled": {"type": "boolean"},
    "expires_at": {"type": ["integer", "string", "null"]},
}

QUERY_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": _QUERY_FIELDS,
    "required": ["id", "source", "where"],
    "additionalProperties": False,
}
PATCH_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {name: schema for name, schema in _QUERY_FIELDS.items() if name not in ("id", "source")},
    "additionalProperties": False,
}
_FORMAT: dict[str, Any] = {
    "description": "how the messages of the topic are written; docs/formats.md",
    "oneOf": [
        {"const": "json"},
        {
            "type": "object",
            "description": "Avro: either the schema of all messages, or each names its own, of a registry",
            "properties": {
                "type": {"const": "avro"},
                "schema": {"type": "object"},
                "registry": {"type": "boolean"},
            },
            "required": ["type"],
            "additionalProperties": False,
        },
        {
            "type": "object",
            "properties": {
                "type": {"const": "protobuf"},
                "descriptors": {
                    "type": "string",
                    "contentEncoding": "base64",
                    "description": "a FileDescriptorSet",
                },
                "message": {"type": "string"},
                "registry": {"type": "boolean", "description": "messages have the frame of a registry"},
            },
            "required": ["type", "descriptors", "message"],
            "additionalProperties": False,
        },
    ],
}
SOURCE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "attributes": {
            "type": "object",
            "additionalProperties": {"enum": [kind.value for kind in AttributeType]},
        },
        "topic": {"type": ["string", "null"]},
        "key": {"type": "string"},
        "ts": {"type": "string"},
        "paths": {"type": "object", "additionalProperties": {"type": "string"}},
        "missing": {"enum": [missing.value for missing in Missing]},
        "nulls": {"enum": [nulls.value for nulls in Nulls]},
        "late": {"enum": [late.value for late in Late]},
        "stream_ttl": _DURATION,
        "stale_after": _DURATION,
        "format": _FORMAT,
        "dedup": {
            "type": ["object", "null"],
            "description": "refuses copies: events whose id is one of the last of their stream",
            "properties": {
                "by": {"type": "string"},
                "last": {"type": "integer", "minimum": 1, "maximum": MAX_EVENT_IDS, "default": 100},
            },
            "required": ["by"],
            "additionalProperties": False,
        },
    },
    "required": ["attributes"],
    "additionalProperties": False,
}
