"""Events over HTTP: onto the log, like any producer's, or matched without a trace."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field

from service.api.bodies import NDJSON, json_answer, read_body
from service.api.context import LiveService, Service, unknown_source
from service.api.media import AVRO, PROTOBUF, check_media, media_of
from service.api.messages import message_of_binary, messages_of, portions_of, values_of
from service.api.problems import documented
from service.api.shapes import EVENT_EXAMPLE, Accepted, Matched, Processed, answer
from service.engine.effects import Refused
from service.engine.engine import Engine
from service.log.port import Message, Output
from service.model import Reason, Refusal, Source
from service.runtime import Receipt
from service.trial import Tried, try_some

router = APIRouter(prefix="/v1", tags=["events"])

#: What a dry run asks of the owner thread in one go: so many events, and no more once so many ids are found.
#: Either is some 10 ms, and no more memory than a few MB.
_EVENTS_AT_A_TIME = 1_000
_IDS_AT_A_TIME = 100_000

_LARGEST_PARTITION, _LARGEST_OFFSET = 2**31 - 1, 2**63 - 1


class OfSource(BaseModel):
    source: str = Field(description="the source that the events are of")


class Sending(OfSource):
    wait: bool = Field(False, description="answer when the events are processed, with what they caused")


_POSITION = {"topic": "events.ais", "partition": 0, "offset": 4711}
_PROCESSED = {
    "positions": [_POSITION],
    "refused": 0,
    "outputs": [
        {
            "topic": "matches",
            "key": "v-17",
            "value": {
                "v": 1,
                "tenant": "default",
                "source": "ais",
                "stream_id": "v-17",
                "ts": 1641168000000,
                "queries": ["harbour-7-fast"],
                "attrs": {"sog": 12.1},
                "origin": {"topic": "events.ais", "partition": 0, "offset": 4711, "row": 0},
            },
        }
    ],
}
_EVENT: dict[str, Any] = {"type": "object", "description": "the stream id, the time and the attributes"}
_JSON_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {"oneOf": [_EVENT, {"type": "array", "items": _EVENT}]},
                "examples": {
                    "one": {"summary": "one event", "value": EVENT_EXAMPLE},
                    "many": {
                        "summary": "several events",
                        "value": [EVENT_EXAMPLE, {**EVENT_EXAMPLE, "ts": 1641168060000}],
                    },
                },
            },
            NDJSON: {
                "schema": {"type": "string"},
                "example": '{"stream_id": "v-17", "sog": 12.1}\n{"stream_id": "v-23", "sog": 0.2}\n',
            },
        },
    }
}
_MESSAGE = {"type": "string", "format": "binary", "description": "one message, as on the topic"}
_MESSAGES = {
    **{media: {"schema": _MESSAGE, "example": "\x08v-17\x00"} for media in AVRO},
    **{media: {"schema": _MESSAGE, "example": "\n\x04v-17"} for media in PROTOBUF},
}
_EVENTS_BODY = {
    "requestBody": {
        "required": True,
        "content": {**_JSON_BODY["requestBody"]["content"], **_MESSAGES},
    }
}


async def _values(body: bytes, media: str, service: Service) -> list[bytes]:
    most = service.settings.max_request_events
    return await asyncio.to_thread(values_of, body, is_ndjson=media == NDJSON, max_events=most)


async def _messages(body: bytes, media: str, source: Source, service: LiveService) -> list[Message]:
    """What a body is on the topic of a source, of whose format it is."""
    partitions = await asyncio.to_thread(service.runtime.partitions, source.name)
    most_bytes = service.settings.max_message_bytes
    if source.format is not None:
        schemas = service.runtime.schemas
        message = await asyncio.to_thread(
            message_of_binary, body, source, schemas, partitions=partitions, max_bytes=most_bytes
        )
        return [message]
    values = await _values(body, media, service)
    most_events = service.settings.max_message_events
    return await asyncio.to_thread(
        messages_of, values, source, partitions=partitions, max_bytes=most_bytes, max_events=most_events
    )


@router.post(
    "/events",
    summary="Send events",
    status_code=202,
    response_model=None,
    responses={
        200: answer(Processed, "With wait=true: processed and committed.", _PROCESSED),
        202: answer(Accepted, "In the log; they will be processed once.", {"positions": [_POSITION]}),
        **documented(400, 408, 413, 415, 422, 503),
    },
    openapi_extra=_EVENTS_BODY,
)
async def send_events(
    sending: Annotated[Sending, Query()], request: Request, service: LiveService
) -> Response:
    """One event, a JSON array of events, or one of either a line; for a source whose `format` is Avro or
    Protobuf one message, as it would be on its topic, with the content type of that format. What is no event
    goes to the dead letters; with `wait=true` the answer counts these and has them among the outputs, with
    the records of the key's tenant. Where several workers share the partitions of a topic, `wait=true` is
    answered with 202 as soon as one of the events lies in another worker's: that one tells what it causes. So
    it is, once they are processed, where these outputs are longer than the setting max_answer_bytes: read
    them on their topics. A body of more events, or lines, than the setting max_request_events is refused, as
    is one of so many messages that an answer could not say where each lies."""
    body, media = await read_body(request, service.settings), media_of(request)
    source = await service.source(sending.source)
    check_media(media, source)
    messages = await _messages(body, media, source, service)
    _check_positions(len(messages), source.topic, service)
    receipt = await service.send(source.name, messages, wait=sending.wait)
    positions = [_position(source.topic, partition, offset) for partition, offset in receipt.positions]
    if receipt.outputs is None:
        return json_answer({"positions": positions}, 202)
    return Response(_processed(positions, receipt), 200, media_type="application/json")


def _position(topic: str, partition: int, offset: int) -> dict[str, Any]:
    return {"topic": topic, "partition": partition, "offset": offset}


def _check_positions(messages: int, topic: str, service: Service) -> None:
    """Raises Refusal, before anything is sent, where the answer could not say where each message lies."""
    longest = len(json.dumps(_position(topic, _LARGEST_PARTITION, _LARGEST_OFFSET))) + len(", ")
    most = service.settings.max_answer_bytes
    if messages > 1 and messages * longest > most:
        detail = (
            f"is {messages} messages; where they lie may take more than the {most} bytes of max_answer_bytes:"
            f" send {max(most // longest, 1)} at once, or events in arrays"
        )
        raise Refusal(Reason.LIMIT, "", detail)


def _processed(positions: list[dict[str, Any]], receipt: Receipt) -> bytes:
    outputs = [_output(output) for output in receipt.outputs or ()]
    return msgspec.json.encode({"positions": positions, "refused": receipt.refused, "outputs": outputs})


def _output(output: Output) -> dict[str, Any]:
    key = None if output.key is None else output.key.decode()
    return {"topic": output.topic, "key": key, "value": msgspec.Raw(output.value)}


@router.post(
    "/match",
    summary="Match events without a trace",
    response_model=None,
    responses={
        200: answer(Matched, "The queries of each event.", {"matches": [["harbour-7-fast"], []]}),
        **documented(400, 408, 413, 415, 422, 503),
    },
    openapi_extra=_JSON_BODY,
)
async def match_events(of: Annotated[OfSource, Query()], request: Request, service: LiveService) -> Response:
    """A dry run: which queries these events would match; in JSON, whatever the format of the source is.
    Nothing is stored, no stream moves, nothing is carried. An event that would be refused refuses the request
    and is named as `events[n]`; an answer longer than the setting max_answer_bytes is refused, as are more
    events than max_request_events: send fewer."""
    body, media = await read_body(request, service.settings), media_of(request)
    check_media(media)
    values = await _values(body, media, service)
    source = await service.source(of.source)
    most_bytes = service.settings.max_message_bytes
    most_events = service.settings.max_message_events
    messages = await asyncio.to_thread(
        messages_of, values, source, partitions=1, max_bytes=most_bytes, max_events=most_events
    )
    texts: list[bytes] = []
    events = length = 0
    for portion in portions_of(
        (message.value or b"" for message in messages), most=_EVENTS_AT_A_TIME, max_bytes=most_bytes
    ):
        begin, whole = 0, False
        while not whole:  # a question at a time: events are processed in between
            ask = partial(_tried, source=of.source, values=portion, begin=begin, service=service)
            tried, whole = await service.ask(ask)
            for i, one in enumerate(tried, events):
                if isinstance(one, Refused):
                    raise Refusal(one.reason, f"events[{i}]", one.detail)
            if tried:
                texts.append(msgspec.json.encode(tried)[1:-1])
                length += len(texts[-1]) + 1
            _check_answer(length, events, service)
            begin += len(tried)
            events += len(tried)
    return Response(b'{"matches":[' + b",".join(texts) + b"]}", media_type="application/json")


def _check_answer(length: int, events: int, service: Service) -> None:
    most = service.settings.max_answer_bytes
    if length > most:
        detail = f"the answer is longer than the {most} bytes of max_answer_bytes; send fewer events at once"
        if events:
            detail += f": the first {events} would do"
        raise Refusal(Reason.LIMIT, "", detail)


def _tried(engine: Engine, *, source: str, values: Sequence[bytes], begin: int, service: Service) -> Tried:
    if source not in engine.sets:
        raise unknown_source(source)
    return try_some(
        engine,
        source,
        values,
        max_bytes=service.settings.max_message_bytes,
        tenant=service.tenant,
        begin=begin,
        most_ids=_IDS_AT_A_TIME,
    )
