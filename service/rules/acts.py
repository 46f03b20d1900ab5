"""What a step does: messages, commands, time, a restart; each read from its node.

Bodies of commands and messages are bytes, as a client or a producer would send them: whether they are good is
the service's judgement. Not for: the order of steps (``scenarios``), doing it (``play``).
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from service.language import parse_duration
from service.model import Refusal
from service.rules.collections import PutCollection
from service.rules.document import Node
from service.rules.parties import parted
from service.tenants import DEFAULT_TENANT

#: A time beyond this is refused (not every client's JSON can hold it) and does not move the clock.
LARGEST_TS = 2**53


class Send(NamedTuple):
    """A message on the topic of a source. It arrives at ``ts`` ms, if that is later than now."""

    source: str
    key: bytes | None
    value: bytes | None
    ts: int | None


class RemoveStream(NamedTuple):
    source: str
    stream_id: str


class Body(NamedTuple):
    """A command of the API: ``op`` is put, post, patch, delete or put_source; ``id`` is that of the query or
    the name of the source (None for post); ``body`` is what is sent, for a query by ``tenant``."""

    op: str
    id: str | None
    body: bytes
    node: Node
    tenant: str = DEFAULT_TENANT


class MoveTime(NamedTuple):
    """To a time, or (``is_relative``) on by a duration; ms."""

    ms: int
    is_relative: bool
    node: Node


class Restart(NamedTuple):
    """The service ends and starts again on its log."""


Act = Send | RemoveStream | Body | PutCollection | MoveTime | Restart


class Paths(NamedTuple):
    """Where the events of a source have their stream id and time."""

    key: str
    ts: str


def read_source(node: Node, default_name: str) -> tuple[Body, Paths]:
    """A source with its name among the fields. Its events are JSON here, whatever its ``format`` is. Raises
    RuleFileError."""
    fields = dict(node.mapping())
    fields.pop("format", None)
    name = fields.pop("name").text() if "name" in fields else default_name
    key, ts = (fields[field].value if field in fields else None for field in ("key", "ts"))
    paths = Paths(key if isinstance(key, str) else "stream_id", ts if isinstance(ts, str) else "ts")
    return Body("put_source", name, _json(node, fields), node), paths


def read_query(op: str, node: Node, source: str) -> Body:
    """A query that is put or posted; ``source`` is the one of a body that names none."""
    fields, tenant = parted(node)
    fields.setdefault("source", Node(source, node.line, f"{node.field}.source"))
    if op == "put" and "id" not in fields:
        raise node.error("has no `id`")
    return Body(op, fields["id"].text() if op == "put" else None, _json(node, fields), node, tenant)


def read_patch(node: Node) -> Body:
    """The fields to change, with the id of the query among them."""
    fields, tenant = parted(node)
    if "id" not in fields:
        raise node.error("has no `id`")
    return Body("patch", fields.pop("id").text(), _json(node, fields), node, tenant)


def read_deletion(node: Node) -> Body:
    """The id of a query, or a mapping with that and the tenant. Raises RuleFileError."""
    if not isinstance(node.value, dict):
        return Body("delete", node.text(), b"", node)
    fields = node.fields(("id", "tenant"))
    if "id" not in fields:
        raise node.error("has no `id`")
    return Body("delete", fields["id"].text(), b"", node, parted(node)[1])


def read_time(node: Node) -> MoveTime:
    """A time to move to, whole ms. Raises RuleFileError."""
    if isinstance(node.value, int) and not isinstance(node.value, bool):
        return MoveTime(node.value, False, node)
    raise node.error("must be a time (whole ms, or 2024-01-31T12:00:00Z); `advance` takes a duration")


def read_duration(node: Node) -> MoveTime:
    """A duration that passes, as queries write theirs. Raises RuleFileError."""
    try:
        return MoveTime(parse_duration(node.value, "advance"), True, node)
    except Refusal as refusal:
        raise node.error(refusal.detail) from None


def read_message(name: str, node: Node, source: str, paths: Paths) -> tuple[Send, str | None]:
    """A message, and the stream that it is about (of several events: the last), if that can be told."""
    value = _message(name, node)
    events = _events_of(value)
    times = [_at(event, paths.ts) for event in events]
    known = [ts for ts in times if isinstance(ts, int) and not isinstance(ts, bool) and ts <= LARGEST_TS]
    stream_id = _stream_id(_at(events[-1], paths.key)) if events else None
    key = stream_id.encode() if stream_id is not None and name != "events" else None
    return Send(source, key, value, max(known, default=None)), stream_id


def _message(name: str, node: Node) -> bytes:
    match name:
        case "event":
            return _json(node, node.mapping())
        case "events":
            node.items()
            return _encoded(node)
        case "raw":
            if not isinstance(node.value, str):
                raise node.error(f"must be a text, not {node.shown()}; put it in quotes")
            return node.value.encode()
        case _:
            try:
                return bytes.fromhex(node.text())
            except ValueError:
                raise node.error("must be pairs of hexadecimal digits, in quotes") from None


def _json(node: Node, fields: dict[str, Node]) -> bytes:
    return _encoded(Node(fields, node.line, node.field))


def _encoded(node: Node) -> bytes:
    return node.json_text().encode()


def _events_of(value: bytes) -> list[Any]:
    """The events of a message, if it is JSON."""
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        return []
    return parsed if isinstance(parsed, list) else [parsed]


def _stream_id(value: Any) -> str | None:
    """A stream id, if it is one that can be the key of a message."""
    try:
        return value if isinstance(value, str) and value.encode() else None
    except UnicodeEncodeError:  # JSON can say half of a surrogate pair
        return None


def _at(event: Any, path: str) -> Any:
    for part in path.split("."):
        event = event.get(part) if isinstance(event, dict) else None
    return event


def title(name: str, act: Act | None) -> str:
    """What a step does, in a few words."""
    match act:
        case Send(_, key, _, ts) if key is not None:
            return f"{name} {key.decode()}" + (f" at {ts}" if ts is not None else "")
        case RemoveStream(_, stream_id):
            return f"{name} {stream_id}"
        case Body(_, id, _, node, _):
            return f"{name} {id if id is not None else node.reach('id').plain()}"
        case PutCollection():
            return f"{name} {act.name}"
        case MoveTime(ms, is_relative, _):
            return f"{name} {ms} ms" if is_relative else f"{name} {ms}"
        case _:
            return name
