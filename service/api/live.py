"""What is written, as it is written, to whoever stays on the line: server-sent events.

First comes a picture of who is inside what, then every record that changes it, exactly once and in order per
stream: the picture and the first record meet at one commit. A client that is slower than its records is cut
and told so; it begins anew with another picture. Its key is looked at again before anything is told, and
every few seconds.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from enum import StrEnum
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from starlette.responses import StreamingResponse

from service.api.context import LiveService
from service.api.problems import Unready, documented
from service.engine.picture import Inside, picture
from service.live import REVOKED, Committed, Crowded, Feed
from service.log import topics
from service.log.port import Output
from service.model import Reason, Refusal
from service.wire import head_of

router = APIRouter(prefix="/v1", tags=["outputs"])

_HEARTBEAT_S = 15.0
#: How long a key that is none any more can go unnoticed where there is nothing to tell.
_KEY_CHECK_S = 3.0
_MOST_NAMED = 1_000
_MEDIA_TYPE = "text/event-stream"


class Topic(StrEnum):
    BORDERS = topics.BORDERS
    MATCHES = topics.MATCHES
    AGGREGATES = topics.AGGREGATES


_Names = Annotated[list[str], Field(max_length=_MOST_NAMED)]


class Listening(BaseModel):
    source: str = Field(description="the source that is listened to")
    topic: list[Topic] = Field([Topic.BORDERS], description="records of these topics; may be repeated")
    query: _Names = Field([], description="only records that name one of these queries; may be repeated")
    stream_id: _Names = Field([], description="only records of these streams; may be repeated")


class _Head(msgspec.Struct):
    """What a record is about; each topic has some of these fields."""

    source: str
    stream_id: str | None = None
    query: str | None = None
    queries: list[str] = []
    leave: list[str] = []
    enter: list[str] = []
    cross: list[str] = []


_head = msgspec.json.Decoder(_Head).decode


class _Wanted:
    """Which records of its tenant, which are all that come, a client asks for."""

    def __init__(self, listening: Listening) -> None:
        self._source = listening.source
        self._topics = frozenset(topic.value for topic in listening.topic)
        self._queries = frozenset(listening.query)
        self._streams = frozenset(listening.stream_id)

    def __contains__(self, output: Output) -> bool:
        if output.topic not in self._topics:
            return False
        head = _head(output.value or b"null")
        if head.source != self._source:
            return False
        # An aggregate is of no stream: it is held back only by its query.
        if self._streams and head.stream_id is not None and head.stream_id not in self._streams:
            return False
        if not self._queries:
            return True
        named = head.query, *head.queries, *head.leave, *head.enter, *head.cross
        return not self._queries.isdisjoint(named)


_EXAMPLE = """event: snapshot
data: {"source":"ais","stream_id":"v-17","seq":3,"inside":["harbour-7-fast"]}

event: live
data: {"streams":1}

event: borders
data: {"v":1,"tenant":"default","source":"ais","stream_id":"v-17","seq":4,...}

"""


@router.get(
    "/live",
    summary="Listen to what happens",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "Server-sent events, without end.",
            "content": {_MEDIA_TYPE: {"schema": {"type": "string"}, "example": _EXAMPLE}},
        },
        **documented(404, 422, 429, 503),
    },
)
async def listen(listening: Annotated[Listening, Query()], service: LiveService) -> StreamingResponse:
    """Events: `snapshot`, one a stream that is inside a query, or that was asked for by name; `live`, when
    what follows is new; then records under the name of their topic, as they are in it, each once it is
    committed. `cut` is the last one, with the reason: `slow`, the client took its records more slowly than
    they came (the settings max_live_records and max_live_bytes); `moved`, partitions came or went, or the
    service began afresh; `revoked`, the key has expired, was revoked, or has another role or tenant than when
    it was shown; `stopping`, the service ends. On Kafka a worker tells of the partitions that it has. A very
    large change of a query is told in portions, while the picture has it at once: take enters and leaves as
    what a set gains and loses."""
    try:
        feed = service.runtime.hub.open(head_of(service.tenant), max_bytes=service.settings.max_live_bytes)
    except Crowded as crowded:
        if crowded.of_its_own:
            detail = f"{crowded}, as many as max_live_clients_tenant allows; close one of them"
            raise Refusal(Reason.QUOTA, "", detail) from None
        raise Unready(f"{crowded}, as many as max_live_clients allows; try again") from None
    try:
        first, found = await service.picture(
            lambda engine: picture(
                engine,
                listening.source,
                tenant=service.tenant,
                streams=listening.stream_id,
                queries=listening.query,
                most=service.settings.max_live_snapshot,
            )
        )
    except BaseException:
        service.runtime.hub.close(feed)
        raise
    told = _told(feed, _Wanted(listening), listening.source, first, found, service)
    # Begun here: only what has begun comes to its end, and closes the feed, when the client has gone already.
    begun = await anext(told)
    return StreamingResponse(
        _from(begun, told), media_type=_MEDIA_TYPE, headers={"Cache-Control": "no-store"}
    )


async def _from(begun: bytes, told: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield begun
    async for text in told:
        yield text


async def _told(
    feed: Feed,
    wanted: _Wanted,
    source: str,
    first: int,
    found: Sequence[Inside],
    service: LiveService,
) -> AsyncIterator[bytes]:
    try:
        for inside in found:
            yield _event("snapshot", _snapshot(source, inside))
        yield _event("live", json.dumps({"streams": len(found)}).encode())
        clock = asyncio.get_running_loop().time
        due = clock() + _HEARTBEAT_S
        while True:
            committed, cut = await feed.next(min(max(due - clock(), 0), _KEY_CHECK_S))
            if not service.is_still_let_in():
                committed, cut = [], REVOKED
            text = b"".join(_records(committed, first, wanted))
            if cut:
                yield text + _event("cut", json.dumps({"reason": cut}).encode())
                return
            # Of commits that are of others nothing is to be noticed, so the heart beats at its own times.
            if text or clock() >= due:
                due = clock() + _HEARTBEAT_S
                yield text or b": still here\n\n"
            await asyncio.sleep(0)  # others may have their turn, however much there is to tell
    finally:
        service.runtime.hub.close(feed)


def _records(committed: Sequence[Committed], first: int, wanted: _Wanted) -> list[bytes]:
    return [
        _event(output.topic, output.value or b"")
        for commit in committed
        if commit.number >= first
        for output in commit.outputs
        if output in wanted
    ]


def _snapshot(source: str, inside: Inside) -> bytes:
    view: dict[str, Any] = {"source": source, "stream_id": inside.stream_id, "seq": inside.seq}
    return msgspec.json.encode({**view, "inside": inside.queries})


def _event(name: str, data: bytes) -> bytes:
    """Records are JSON on one line, so they are one field."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), data)
