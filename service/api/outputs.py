"""What the service writes, over HTTP: output topics of the embedded log, and the schemas of their records."""

from __future__ import annotations

import asyncio
import json
from bisect import bisect_left
from functools import cache
from importlib import resources
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from service.api.context import LiveService
from service.api.problems import ProblemError, documented
from service.api.shapes import TopicPage, answer
from service.log.port import Record
from service.log.topics import DEAD_LETTER, OUTPUTS
from service.runtime import Runtime
from service.tenants import DEFAULT_TENANT
from service.wire import owner

router = APIRouter(prefix="/v1", tags=["outputs"])


class Reading(BaseModel):
    after: int = Field(
        0,
        ge=-(2**53),
        le=2**53,
        description="from this offset on: the `next` of the page before; -N: from N before the end",
    )
    limit: int = Field(
        1_000, ge=1, description="look at so many records at most; the setting max_page bounds it"
    )


@cache
def schema(name: str) -> dict[str, Any]:
    """The JSON Schema of the records of an output topic."""
    loaded: dict[str, Any] = json.loads(
        resources.files("service").joinpath("schemas", f"{name}.json").read_bytes()
    )
    return loaded


def _known(topic: str) -> str:
    if topic not in OUTPUTS:
        detail = f"there is no output topic {topic!r}; there are {', '.join(OUTPUTS)}"
        raise ProblemError(404, "not_found", "topic", detail)
    return topic


@router.get(
    "/topics/{topic}",
    summary="Read an output topic",
    response_model=None,
    responses={
        200: answer(
            TopicPage,
            "Records in order of their offsets.",
            {
                "records": [{"offset": 0, "key": "v-17", "value": schema("borders")["examples"][0]}],
                "next": 1,
            },
        ),
        **documented(404, 422, 501, 503),
    },
)
async def read_topic(topic: str, reading: Annotated[Reading, Query()], service: LiveService) -> Response:
    """Records of `matches`, `borders`, `joins`, `aggregates` or `dead_letter` of the embedded log from
    `after` on. The end is reached when `next` is `after`; a page may be shorter than `limit` before that,
    since it ends with the record that takes it to the setting max_answer_bytes. Keys of another tenant than
    the default one see its own records, numbered as if there were no others; those of the default one look at
    `limit` records of all and are shown its own. On Kafka consumers read the topics themselves (501).
    `dead_letter` has events of everybody: for admins of the default tenant only."""
    service.check_limit(reading.limit)
    topic, tenant = _known(topic), service.tenant
    after, limit, most_bytes = reading.after, reading.limit, service.settings.max_answer_bytes
    try:
        if tenant == DEFAULT_TENANT:
            page = await asyncio.to_thread(_read, service.runtime, topic, after, limit, most_bytes)
        else:
            own = service.own_records
            page = await own.read(service.runtime, topic, tenant, after, limit, most_bytes)
    except NotImplementedError:
        detail = f"this service runs on Kafka: read the topic {service.settings.topic_prefix}{topic} there"
        raise ProblemError(501, "not_supported", "topic", detail) from None
    records, next_ = page
    told = {"records": [_record(record) for record in records], "next": next_}
    return Response(msgspec.json.encode(told), media_type="application/json")


def _read(
    runtime: Runtime, topic: str, after: int, limit: int, most_bytes: float
) -> tuple[list[Record], int]:
    start = after if after >= 0 else max(0, _end(runtime, topic) + after)
    records, after = runtime.read(topic, start, limit, most_bytes)
    if topic != DEAD_LETTER:
        records = [record for record in records if owner(record.value) == DEFAULT_TENANT]
    return records, after


def _end(runtime: Runtime, topic: str) -> int:
    """The offset after the last record, by doubling, then halving: O(log offset) reads of one record."""

    def is_beyond(offset: int) -> bool:
        return not runtime.read(topic, offset, 1)[0]

    high = 1
    while not is_beyond(high):
        high *= 2
    return bisect_left(range(high), True, key=is_beyond)


def _record(record: Record) -> dict[str, Any]:
    return {"offset": record.offset, "key": _text(record.key), "value": msgspec.Raw(record.value or b"null")}


def _text(key: bytes | None) -> str | None:
    """A key as text. Keys are stream ids, or ids of queries with a partition, all UTF-8."""
    return None if key is None else key.decode(errors="replace")


@router.get(
    "/schemas/{name}",
    summary="The JSON Schema of an output record",
    response_class=Response,
    responses={
        200: {
            "description": "A JSON Schema (2020-12).",
            "content": {
                "application/schema+json": {"schema": {"type": "object"}, "example": schema("matches")}
            },
        },
        **documented(404, 422, 503),
    },
)
async def get_schema(name: str) -> Response:
    """The schema of the records of the output topic of this name."""
    return Response(json.dumps(schema(_known(name))), media_type="application/schema+json")
