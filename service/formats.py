"""How the messages of a source are written: the field ``format`` of its body, and what must hold of it.

``"json"``, or an object with the ``type`` ``avro`` or ``protobuf``. A format that is given whole (a schema,
or descriptors) is held against the attributes at once: each must be found there, as a type that it can be
read from. Of a schema that a registry has nothing is known yet; what it lacks is missing in its messages.

Not for: decoding (``decode_binary``). Pure.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, NoReturn

from service.avro_schema import Node, is_id, is_number, is_text, is_time, leaf_at, read_schema
from service.literals import shown
from service.model import AttributeType, Avro, Protobuf, Reason, Refusal, Source
from service.protobuf_schema import Description, Path, Wanted, describe

JSON = "json"
_FIELDS = {"avro": ("type", "schema", "registry"), "protobuf": ("type", "descriptors", "message", "registry")}
_SERVES = {
    Wanted.KEY: is_text,
    Wanted.TEXT: is_text,
    Wanted.ID: is_id,
    Wanted.NUMBER: is_number,
    Wanted.TIME: is_time,
}


def parse_format(given: Any) -> Avro | Protobuf | None:
    """A format from its part of a source's body. Raises Refusal: bad_value, unknown_field, missing_field."""
    if given == JSON:
        return None
    kind = given.get("type") if isinstance(given, dict) else None
    if not isinstance(kind, str) or kind not in _FIELDS:
        detail = 'must be "json", or an object whose type is avro or protobuf'
        raise Refusal(Reason.BAD_VALUE, "format", detail)
    for name in given:
        if name not in _FIELDS[kind]:
            detail = f"is no field of this format; there are {', '.join(_FIELDS[kind])}"
            raise Refusal(Reason.UNKNOWN_FIELD, f"format.{shown(name)}", detail)
    registry = given.get("registry", False)
    if not isinstance(registry, bool):
        raise Refusal(Reason.BAD_VALUE, "format.registry", "must be true or false")
    if kind == "avro":
        return _avro(given, registry)
    for name in ("descriptors", "message"):
        if not isinstance(given.get(name), str):
            detail = "is needed: descriptors in base64, and the full name of the message"
            raise Refusal(Reason.MISSING_FIELD, f"format.{name}", detail)
    return Protobuf(given["descriptors"], given["message"], registry)


def _avro(given: Mapping[str, Any], registry: bool) -> Avro:
    schema = given.get("schema")
    if registry == (schema is not None):
        detail = "either one schema for all messages, or registry: true, and each message names its own"
        raise Refusal(Reason.MISSING_FIELD if schema is None else Reason.BAD_VALUE, "format.schema", detail)
    return Avro(schema)


def format_body(format: Avro | Protobuf | None) -> Any:
    """The format as ``parse_format`` reads it."""
    if format is None:
        return JSON
    if isinstance(format, Avro):
        one = {"registry": True} if format.schema is None else {"schema": format.schema}
        return {"type": "avro", **one}
    return {
        "type": "protobuf",
        "descriptors": format.descriptors,
        "message": format.message,
        "registry": format.registry,
    }


def check_format(source: Source) -> None:
    """Raises Refusal where the source's format cannot be read, or does not have what the source reads."""
    if isinstance(source.format, Avro) and source.format.schema is not None:
        root = avro_root(source.format)
        for path in paths_of(source):
            _check_avro(root, path)
    elif isinstance(source.format, Protobuf):
        description(source)


def paths_of(source: Source) -> list[Path]:
    """What is read of each event, in the order of ``Rules``: the stream id, the time, the attributes, the
    id."""
    paths = [
        Path(tuple(source.key.split(".")), Wanted.KEY, "key"),
        Path(tuple(source.ts.split(".")), Wanted.TIME, "ts", optional=source.ts == "ts"),
    ]
    for name, kind in source.attributes.items():
        wanted = Wanted.NUMBER if kind is AttributeType.NUMBER else Wanted.TEXT
        field = f"paths.{name}" if name in source.paths else f"attributes.{name}"
        paths.append(Path(tuple(source.paths.get(name, name).split(".")), wanted, field))
    if source.dedup is not None:
        paths.append(Path(tuple(source.dedup.by.split(".")), Wanted.ID, "dedup.by"))
    return paths


def avro_root(format: Avro) -> Node:
    """The tree of an inline schema. Raises Refusal."""
    try:
        return read_schema(format.schema)
    except Refusal as refusal:
        at = refusal.field
        field = f"format.schema{'' if not at or at.startswith('[') else '.'}{at}"
        raise Refusal(refusal.reason, field, refusal.detail) from None


def description(source: Source) -> Description:
    """The message type of a source in Protobuf. Raises Refusal."""
    assert isinstance(source.format, Protobuf)
    try:
        descriptors = base64.b64decode(source.format.descriptors, validate=True)
    except (binascii.Error, ValueError):
        raise Refusal(Reason.BAD_VALUE, "format.descriptors", "is not base64") from None
    return describe(descriptors, source.format.message, paths_of(source))


def _check_avro(root: Node, path: Path) -> None:
    leaf = leaf_at(root, path.steps)
    if leaf.node is None and not path.optional:
        _refuse(path, "is not in the schema; name another path, or leave it out")
    if leaf.node is not None and leaf.sure and not _SERVES[path.wanted](leaf.node):
        logical = f" ({leaf.node.logical})" if leaf.node.logical else ""
        _refuse(
            path,
            f"is a {leaf.node.kind}{logical} in the schema, not {_MEANT[path.wanted]}; name another path",
        )


_MEANT = {
    Wanted.KEY: "a string",
    Wanted.TEXT: "a string or an enum",
    Wanted.ID: "a string, an enum, an int or a long",
    Wanted.NUMBER: "an int, long, float, double or decimal",
    Wanted.TIME: "a long of ms since 1970, or a timestamp",
}


def _refuse(path: Path, detail: str) -> NoReturn:
    raise Refusal(Reason.BAD_VALUE, path.field, f"{shown('.'.join(path.steps))} {detail}")
