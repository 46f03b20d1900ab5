"""What a source may say of how its messages are written, and which schemas are refused."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from hypothesis import given, settings
from hypothesis import strategies as st

from service.avro_schema import MAX_DEPTH, MAX_NODES, MAX_SCHEMA_BYTES, read_schema
from service.language import parse_source, source_body
from service.model import Reason, Refusal
from service.protobuf_schema import MAX_DESCRIPTORS_BYTES, MAX_FILES
from tests.unit.encoders import (
    AVRO,
    AVRO_FRAMED,
    BODY,
    PROTOBUF,
    PROTOBUF_FRAMED,
    SCHEMA,
    Field,
    descriptors,
    file_of,
)


def refused(format: Any, **body: Any) -> tuple[Reason, str]:
    with pytest.raises(Refusal) as caught:
        parse_source("s", {**BODY, **body, "format": format})
    assert caught.value.detail
    return caught.value.reason, caught.value.field


@pytest.mark.parametrize("format", [AVRO, AVRO_FRAMED, PROTOBUF, PROTOBUF_FRAMED])
def test_a_format_is_written_as_it_is_read(format: dict[str, Any]) -> None:
    source = parse_source("s", {**BODY, "format": format})
    body = source_body(source)
    assert {**format, **body["format"]} == body["format"]
    assert parse_source("s", body) == source


def test_json_is_what_sources_had_before() -> None:
    source = parse_source("s", {**BODY, "format": "json"})
    assert source == parse_source("s", BODY)
    assert "format" not in source_body(source)


@pytest.mark.parametrize(
    ("format", "reason", "field"),
    [
        (None, "bad_value", "format"),
        ("avro", "bad_value", "format"),
        ([], "bad_value", "format"),
        ({"type": "json"}, "bad_value", "format"),
        ({"type": ["avro"]}, "bad_value", "format"),
        ({**AVRO, "message": "x"}, "unknown_field", "format.message"),
        ({**AVRO, "registry": 1}, "bad_value", "format.registry"),
        ({**AVRO, "registry": True}, "bad_value", "format.schema"),
        ({"type": "avro"}, "missing_field", "format.schema"),
        ({"type": "protobuf", "message": "x"}, "missing_field", "format.descriptors"),
        ({"type": "protobuf", "descriptors": ""}, "missing_field", "format.message"),
        ({**PROTOBUF, "descriptors": "ä"}, "bad_value", "format.descriptors"),
        ({**PROTOBUF, "descriptors": "AA"}, "bad_value", "format.descriptors"),
        ({**PROTOBUF, "descriptors": "/////w=="}, "bad_value", "format.descriptors"),
        ({**PROTOBUF, "message": "Seen"}, "bad_value", "format.message"),
        ({**PROTOBUF, "message": "fleet"}, "bad_value", "format.message"),
        ({**PROTOBUF, "descriptors": ""}, "bad_value", "format.message"),
    ],
)
def test_what_is_no_format(format: Any, reason: str, field: str) -> None:
    assert refused(format) == (reason, field)


# ---- Avro


def record(*types: Any, name: str = "R") -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": f"f{i}", "type": t} for i, t in enumerate(types)],
    }


def nested(depth: int) -> Any:
    schema: Any = "int"
    for level in range(depth):
        schema = record(schema, name=f"R{level}")
    return schema


def doubling(times: int) -> Any:
    """A small schema of very many types: each record has two of the one before."""
    schema: Any = record("null", name="R0")
    for level in range(1, times):
        schema = record(schema, f"R{level - 1}", name=f"R{level}")
    return schema


SELF = {"type": "record", "name": "R", "fields": [{"name": "next", "type": ["null", "R"]}]}
BAD_SCHEMAS: list[tuple[Any, str, str]] = [
    ("string", "bad_value", ""),
    (7, "bad_value", ""),
    ({}, "bad_value", "type"),
    ({"type": "nothing"}, "bad_value", ""),
    ({"type": "array", "items": "int"}, "bad_value", ""),
    ([record("int")], "bad_value", ""),
    ({"type": "record", "name": "R"}, "bad_value", "fields"),
    ({"type": "record", "name": "1", "fields": []}, "bad_value", "name"),
    ({"type": "record", "name": "R", "fields": [{"name": "a b", "type": "int"}]}, "bad_value", "fields[0]"),
    ({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}] * 2}, "bad_value", "fields[1]"),
    (SELF, "bad_value", "fields[0].type[1]"),
    (record({"type": "array", "items": "R"}), "bad_value", "fields[0].type.items"),
    (record(record("int", name="A"), record("int", name="A")), "bad_value", "fields[1].type.name"),
    (record([]), "bad_value", "fields[0].type"),
    (record(["null", ["int"]]), "bad_value", "fields[0].type"),
    (record({"type": "enum", "name": "E", "symbols": []}), "bad_value", "fields[0].type.symbols"),
    (record({"type": "enum", "name": "E", "symbols": ["A", "A"]}), "bad_value", "fields[0].type.symbols"),
    (record({"type": "fixed", "name": "F", "size": -1}), "bad_value", "fields[0].type.size"),
    (record({"type": "fixed", "name": "F", "size": 1 << 40}), "bad_value", "fields[0].type.size"),
    (record({"type": "bytes", "logicalType": "decimal", "scale": 1e9}), "bad_value", "fields[0].type.scale"),
    # What takes no bytes could be told 2**62 times in ten of them.
    (record({"type": "array", "items": "null"}), "bad_value", "fields[0].type.items"),
    (record({"type": "array", "items": record(name="A")}), "bad_value", "fields[0].type.items"),
    (record({"type": "map", "values": record(record(record("null", name="C"), name="B"), name="A")}),
     "bad_value", "fields[0].type.values"),
    (nested(MAX_DEPTH + 5), "limit", "fields[0].type" + ".fields[0].type" * MAX_DEPTH),
    (nested(5_000), "limit", ""),
    (record("int", name="R" * MAX_SCHEMA_BYTES), "limit", ""),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "reason", "field"), BAD_SCHEMAS)
def test_schemas_that_are_refused(schema: Any, reason: str, field: str) -> None:
    with pytest.raises(Refusal) as caught:
        read_schema(schema)
    assert (caught.value.reason, caught.value.field) == (reason, field)
    assert caught.value.detail


def test_a_schema_of_too_many_types() -> None:
    for schema in (record(*["int"] * MAX_NODES), doubling(30)):
        with pytest.raises(Refusal) as caught:
            read_schema(schema)
        assert caught.value.reason is Reason.LIMIT
    read_schema(record(*["int"] * (MAX_NODES - 1)))
    read_schema(nested(MAX_DEPTH))


def test_names_are_found_as_avro_wants_it() -> None:
    inner = {"type": "enum", "name": "E", "symbols": ["A"]}
    schema = {
        "type": "record",
        "name": "R",
        "namespace": "a.b",
        "fields": [
            {"name": "one", "type": inner},
            {"name": "two", "type": "a.b.E"},
            {"name": "three", "type": ["null", "E"]},
            {"name": "four", "type": {"type": "E"}},
            {"name": "five", "type": {"type": "fixed", "name": "c.F", "size": 3}},
            {"name": "six", "type": "c.F"},
            {"name": "seven", "type": {"type": {"type": "long"}}},
        ],
    }
    root = read_schema(schema)
    kinds = [node.plain()[0].kind for _, node in root.inner]
    assert kinds == ["enum", "enum", "enum", "enum", "fixed", "fixed", "long"]
    assert root.least == 1 + 1 + 1 + 1 + 3 + 3 + 1


@pytest.mark.parametrize(
    ("field", "type_", "where"),
    [
        ("stream_id", ["null", "long"], "key"),
        ("ts", "double", "ts"),
        ("ts", {"type": "long", "logicalType": "local-timestamp-millis"}, "ts"),
        ("x", ["null", "string"], "attributes.x"),
        ("x", "bytes", "attributes.x"),
        ("x", "boolean", "attributes.x"),
        ("kind", "double", "attributes.kind"),
        ("kind", {"type": "array", "items": "string"}, "attributes.kind"),
        ("position", "double", "paths.lat"),
    ],
)
def test_a_schema_that_does_not_serve_the_source(field: str, type_: Any, where: str) -> None:
    fields = [{**one, "type": type_} if one["name"] == field else one for one in SCHEMA["fields"]]
    schema = {**SCHEMA, "fields": fields}
    assert refused({"type": "avro", "schema": schema}) == (Reason.BAD_VALUE, where)
    without = {**SCHEMA, "fields": [one for one in SCHEMA["fields"] if one["name"] != field]}
    if field == "ts":
        parse_source("s", {**BODY, "format": {"type": "avro", "schema": without}})
        assert refused({"type": "avro", "schema": without}, ts="at") == (Reason.BAD_VALUE, "ts")
    else:
        assert refused({"type": "avro", "schema": without}) == (Reason.BAD_VALUE, where)


JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-3, 3),
        st.sampled_from(["null", "int", "string", "record", "enum", "fixed", "map", "array", "R", "decimal"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "name",
                    "fields",
                    "items",
                    "values",
                    "symbols",
                    "size",
                    "logicalType",
                    "scale",
                    "namespace",
                ]
            ),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=8,
)


@settings(deadline=None, max_examples=100)
@given(JSON, st.text(max_size=8))
def test_no_format_does_harm(given_: Any, text: str) -> None:
    encoded = base64.b64encode(text.encode()).decode()
    for format in (given_, {"type": "avro", "schema": given_}, {**PROTOBUF, "descriptors": encoded}):
        with pytest.raises(Refusal):
            parse_source("s", {**BODY, "format": format})


# ---- Protobuf


def body_of(file: FileDescriptorProto, message: str = "fleet.E") -> dict[str, Any]:
    return {"type": "protobuf", "descriptors": descriptors(file), "message": message}


@pytest.mark.parametrize(
    ("field", "kind", "where"),
    [
        ("stream_id", Field.TYPE_INT64, "key"),
        ("stream_id*", Field.TYPE_STRING, "key"),
        ("ts", Field.TYPE_DOUBLE, "ts"),
        ("ts", ".google.protobuf.DoubleValue", "ts"),
        ("x", Field.TYPE_BOOL, "attributes.x"),
        ("x", Field.TYPE_BYTES, "attributes.x"),
        ("x*", Field.TYPE_DOUBLE, "attributes.x"),
        ("x", ".google.protobuf.Timestamp", "attributes.x"),
        ("x", ".google.protobuf.StringValue", "attributes.x"),
        ("kind", ".fleet.E", "attributes.kind"),
        ("kind", Field.TYPE_BYTES, "attributes.kind"),
        ("position", Field.TYPE_DOUBLE, "paths.lat"),
        ("x", None, "attributes.x"),
        ("stream_id", None, "key"),
    ],
)
def test_a_message_that_does_not_serve_the_source(field: str, kind: Any, where: str) -> None:
    fields: dict[str, Any] = {
        "stream_id": Field.TYPE_STRING,
        "ts": Field.TYPE_INT64,
        "x": Field.TYPE_DOUBLE,
        "position": ".fleet.P",
        "kind": Field.TYPE_STRING,
    }
    del fields[field.rstrip("*")]
    if kind is not None:
        fields[field] = kind
    imports = ["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"]
    numbered = [(name, i + 1, kind) for i, (name, kind) in enumerate(fields.items())]
    file = file_of({"E": numbered, "P": [("lat", 1, Field.TYPE_DOUBLE)]}, imports=imports)
    assert refused(body_of(file)) == (Reason.BAD_VALUE, where)


def test_descriptors_that_are_refused() -> None:
    one = [("stream_id", 1, Field.TYPE_STRING)]
    where = (Reason.BAD_VALUE, "format.descriptors")
    assert refused(body_of(file_of({"E": one}, imports=["missing.proto"]))) == where
    assert refused(body_of(file_of({"E": one}, imports=["fleet.proto"]))) == where
    assert refused(body_of(file_of({"E": [("a", 1, ".fleet.Missing")]}))) == where
    assert refused(body_of(file_of({"E": one * 2}))) == where
    large = base64.b64encode(b"\0" * (MAX_DESCRIPTORS_BYTES + 1)).decode()
    assert refused({**PROTOBUF, "descriptors": large}) == (Reason.LIMIT, "format.descriptors")
    files = [FileDescriptorProto(name=f"{i}.proto") for i in range(MAX_FILES)]
    many = {**PROTOBUF, "descriptors": descriptors(file_of({"E": one}), *files)}
    assert refused(many) == (Reason.LIMIT, "format.descriptors")
