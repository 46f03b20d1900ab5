"""From the body of a request to messages for the log, without changing a byte of an event.

A body is one JSON value, or NDJSON: one value a line. One value is one message as it came; an array is cut
only where it must be, between events: where it is longer than a message may be, and by partition, since a
stream's events belong into one. Order is kept within a stream, and within a partition.

Events are not judged here: whatever is JSON goes to the log and is judged there as from any producer. In
another format a body is one message, as it is on the topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from service.decoders import binary_decoder
from service.elements import count_elements, is_array
from service.log.port import Message, Record
from service.model import Reason, Refusal, Source
from service.registry import Schemas
from service.rows import LONGEST_TEXT
from service.slices import slices

#: How long a request waits for the schema of its event.
SCHEMA_WAIT_S = 5.0

_NOT_JSON = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

_raw = msgspec.json.Decoder(msgspec.Raw).decode
_raw_items = msgspec.json.Decoder(list[msgspec.Raw]).decode


def partition_of(key: bytes, partitions: int) -> int:
    """The partition that Kafka's own clients choose for a key."""
    if partitions == 1:
        return 0
    # Imported here: the embedded log has one partition and does without the client's start-up time.
    from service.log.key_hash import key_hash

    return key_hash(key) % partitions


def values_of(body: bytes, *, is_ndjson: bool, max_events: int) -> list[bytes]:
    """The JSON values of a body: itself, or its lines that are not blank.

    A line of NDJSON may be no JSON, as a message may; a body is NDJSON if it says so and has a line that is
    JSON, or if its first line is. Raises Refusal: malformed; limit, before anything is made of more than
    ``max_events`` lines, or of more events in all.
    """
    values = _values_of(body, is_ndjson, max_events)
    _check_count(sum(map(_count, values)), "events", max_events)
    return values


def _values_of(body: bytes, is_ndjson: bool, max_events: int) -> list[bytes]:
    try:
        _raw(body)
        return [body]
    except _NOT_JSON as error:
        mistake = "zero bytes" if not body else str(error)
    _check_count(body.removesuffix(b"\n").count(b"\n") + 1, "lines", max_events)
    lines = [line for line in body.split(b"\n") if line.strip()]
    if len(lines) > 1 and any(map(_is_json, lines if is_ndjson else lines[:1])):
        return lines
    raise Refusal(Reason.MALFORMED, "", f"neither JSON nor a JSON value a line: {mistake}")


def _check_count(count: int, of: str, max_events: int) -> None:
    if count > max_events:
        detail = f"has {count} {of}; max_request_events allows {max_events}: send it in parts"
        raise Refusal(Reason.LIMIT, "", detail)


def _count(value: bytes) -> int:
    """How many events a value has: never fewer than are made of it."""
    return count_elements(value) if is_array(value) else 1


def messages_of(
    values: Iterable[bytes], source: Source, *, partitions: int, max_bytes: int, max_events: int
) -> list[Message]:
    """The messages for these values, in order, each of at most ``max_bytes`` and ``max_events``. Raises
    Refusal (too_large): an event beyond ``max_bytes``."""
    stream_ids = _StreamIds(source.key)
    messages: list[Message] = []
    for value in values:
        if not is_array(value):
            _check_size(value, max_bytes)
            messages.append(Message(stream_ids.of(value), value))
        elif partitions == 1 and len(value) <= max_bytes and _count(value) <= max_events:
            messages.append(Message(None, value, 0))
        else:
            messages += _split(value, stream_ids, partitions, max_bytes, max_events)
    return messages


def portions_of(values: Iterable[bytes], *, most: int, max_bytes: int) -> Iterator[list[bytes]]:
    """The events of these messages in order, in messages of at most ``most`` events together; what is no JSON
    stays as it is."""
    singles: list[bytes] = []
    for value in values:
        if not is_array(value):
            singles.append(value)
            continue
        yield from slices(singles, max_bytes, most)
        singles = []
        try:
            events = [bytes(event) for event in _raw_items(value)]
        except _NOT_JSON:
            yield [value]
        else:
            for some in slices(events, max_bytes, most):
                yield [b"[" + b",".join(some) + b"]"]
    yield from slices(singles, max_bytes, most)


def message_of_binary(
    body: bytes, source: Source, schemas: Schemas, *, partitions: int, max_bytes: int
) -> Message:
    """The message of a body in the source's own format. Raises Refusal (too_large, malformed), and
    SchemasUnavailable where only its schema could say which partition it belongs to."""
    _check_size(body, max_bytes)
    if not body:
        raise Refusal(Reason.MALFORMED, "", "zero bytes; an event is one message in the format of the source")
    decoder = binary_decoder(source, {}, max_bytes=max_bytes)
    lacking = decoder.lacking([Record(0, 0, None, body)])
    if lacking and partitions == 1:
        return Message(None, body, 0)
    decoder.learn(schemas.wait(lacking, SCHEMA_WAIT_S) if lacking else {})
    return Message(decoder.key(body), body)


def _split(
    array: bytes, stream_ids: _StreamIds, partitions: int, max_bytes: int, max_events: int
) -> list[Message]:
    try:
        events = [bytes(event) for event in _raw_items(array)]
    except _NOT_JSON:
        _check_size(array, max_bytes)
        return [Message(None, array)]
    by_partition: dict[int, list[bytes]] = {}
    for event, key in zip(events, stream_ids.of_all(array, events), strict=True):
        partition = partition_of(key, partitions) if key else 0
        by_partition.setdefault(partition, []).append(event)
    return [
        Message(None, value, partition)
        for partition, chosen in sorted(by_partition.items())
        for value in _packed(chosen, max_bytes, max_events)
    ]


def _packed(events: Sequence[bytes], max_bytes: int, max_events: int) -> Iterable[bytes]:
    """Arrays of these events in order, as few as fit."""
    packet: list[bytes] = []
    length = 1
    for event in events:
        _check_size(event, max_bytes - 2)
        if length + len(event) + 1 > max_bytes or len(packet) == max_events:
            yield b"[" + b",".join(packet) + b"]"
            packet, length = [], 1
        packet.append(event)
        length += len(event) + 1
    if packet:
        yield b"[" + b",".join(packet) + b"]"


def _check_size(event: bytes, max_bytes: int) -> None:
    if len(event) > max_bytes:
        raise Refusal(
            Reason.TOO_LARGE, "", f"an event of {len(event)} bytes; max_message_bytes allows {max_bytes}"
        )


def _is_json(value: bytes) -> bool:
    try:
        _raw(value)
    except _NOT_JSON:
        return False
    return True


class _StreamIds:
    """Reads the stream id of events at the source's key path, as a key; None where there is none, or one that
    is too long: such an event is refused wherever it lies."""

    def __init__(self, path: str) -> None:
        self._depth = path.count(".") + 1
        shape: Any = str
        for part in reversed(path.split(".")):
            shape = msgspec.defstruct("Keyed", [("inner", shape)], rename={"inner": part})
        self._one = msgspec.json.Decoder(shape).decode
        self._many = msgspec.json.Decoder(list[shape]).decode

    def of(self, event: bytes) -> bytes | None:
        try:
            return self._key(self._one(event))
        except (*_NOT_JSON, UnicodeEncodeError):
            return None

    def of_all(self, array: bytes, events: Sequence[bytes]) -> list[bytes | None]:
        try:
            return [self._key(event) for event in self._many(array)]
        except (*_NOT_JSON, UnicodeEncodeError):
            return [self.of(event) for event in events]

    def _key(self, found: Any) -> bytes | None:
        for _ in range(self._depth):
            found = found.inner
        return found.encode() if 0 < len(found) <= LONGEST_TEXT else None
