"""Events of one source in every format: JSON, Avro (with a frame and without) and Protobuf.

The source has a number ``x``, a nested number ``lat`` and a category ``kind``. Descriptors are built with the
library's own classes, so that no compiler is needed.
"""

from __future__ import annotations

import base64
import io
import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import fastavro
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

ATTRIBUTES = {"x": "number", "lat": "number", "kind": "category"}
BODY: dict[str, Any] = {"attributes": ATTRIBUTES, "paths": {"lat": "position.lat"}}

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Seen",
    "namespace": "fleet",
    "fields": [
        {"name": "stream_id", "type": ["null", "string"]},
        {"name": "note", "type": ["null", {"type": "map", "values": {"type": "array", "items": "int"}}]},
        {"name": "ts", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
        {"name": "x", "type": ["null", "double"]},
        {
            "name": "position",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "Position",
                    "fields": [{"name": "lat", "type": ["double", "null"]}, {"name": "z", "type": "bytes"}],
                },
            ],
        },
        {"name": "kind", "type": ["string", "null"]},
    ],
}


def avro(event: Mapping[str, Any], schema: Any = SCHEMA) -> bytes:
    """One event by the schema; what it leaves out is null."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), dict(event))
    return stream.getvalue()


def framed(id: int, body: bytes, indexes: Sequence[int] | None = None) -> bytes:
    """As registries frame messages; ``indexes`` are those of Protobuf, a zero byte for the first type."""
    if indexes is None:
        places = b""
    elif list(indexes) == [0]:
        places = b"\0"
    else:
        places = varint(len(indexes)) + b"".join(map(varint, indexes))
    return b"\0" + struct.pack(">I", id) + places + body


def varint(number: int) -> bytes:
    """A zigzag varint."""
    return length(number << 1 if number >= 0 else (-number << 1) - 1)


def length(left: int) -> bytes:
    """A varint."""
    found = bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes(found) + bytes([left])


Field = FieldDescriptorProto
OPTIONAL, REQUIRED, REPEATED = Field.LABEL_OPTIONAL, Field.LABEL_REQUIRED, Field.LABEL_REPEATED


def file_of(
    messages: Mapping[str, Sequence[tuple[str, int, Any]]],
    *,
    syntax: str = "proto3",
    imports: Sequence[str] = (),
) -> FileDescriptorProto:
    """A file ``fleet.proto`` of messages: fields by name, number, and type, which is one of the numbers of
    ``FieldDescriptorProto``, or the name of a message. A name that ends in ``?`` can tell whether it is set;
    in ``*``: repeated."""
    file = FileDescriptorProto(name="fleet.proto", package="fleet", syntax=syntax, dependency=imports)
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field, number, kind in fields:
            added = message.field.add(name=field.rstrip("?*"), number=number, label=OPTIONAL)
            if field.endswith("*"):
                added.label = REPEATED
            if isinstance(kind, str):
                added.type, added.type_name = Field.TYPE_MESSAGE, kind
            else:
                added.type = kind
            if field.endswith("?") and syntax == "proto3":
                added.proto3_optional = True
                added.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{added.name}")
    return file


def descriptors(*files: FileDescriptorProto) -> str:
    return base64.b64encode(FileDescriptorSet(file=files).SerializeToString()).decode()


SEEN = file_of(
    {
        "Other": [("a", 1, Field.TYPE_STRING)],
        "Seen": [
            ("note*", 9, ".fleet.Seen"),
            ("stream_id?", 1, Field.TYPE_STRING),
            ("ts?", 2, Field.TYPE_SINT64),
            ("x?", 3, Field.TYPE_DOUBLE),
            ("position", 4, ".fleet.Position"),
            ("kind?", 5, Field.TYPE_STRING),
        ],
        "Position": [("z", 1, Field.TYPE_BYTES), ("lat?", 2, Field.TYPE_DOUBLE)],
    }
)
#: Where ``Seen`` stands in its file.
SEEN_INDEX = (1,)


def message_class(file: FileDescriptorProto, name: str) -> Any:
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName(name))


_Seen = message_class(SEEN, "fleet.Seen")


def protobuf(event: Mapping[str, Any]) -> bytes:
    """One event as ``fleet.Seen``; what it leaves out is not set."""
    message = _Seen()
    for name, value in event.items():
        if name == "position":
            message.position.SetInParent()
            for inner, number in value.items():
                setattr(message.position, inner, number)
        else:
            setattr(message, name, value)
    encoded: bytes = message.SerializeToString()
    return encoded


def as_json(event: Mapping[str, Any]) -> bytes:
    return json.dumps(event).encode()


AVRO = {"type": "avro", "schema": SCHEMA}
AVRO_FRAMED = {"type": "avro", "registry": True}
PROTOBUF = {"type": "protobuf", "descriptors": descriptors(SEEN), "message": "fleet.Seen"}
PROTOBUF_FRAMED = {**PROTOBUF, "registry": True}
