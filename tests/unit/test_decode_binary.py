"""Avro and Protobuf to columns: the same events as in JSON have the same fate, and no bytes do harm."""

from __future__ import annotations

import json
import struct
import tracemalloc
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service import decode_binary
from service.decoders import decoder_of
from service.engine.categories import Dictionary
from service.language import parse_source
from service.log.port import Record
from service.model import MISSING, Reason, Refusal
from service.rows import Decoded, Registered
from tests.unit.encoders import (
    AVRO,
    AVRO_FRAMED,
    BODY,
    PROTOBUF,
    PROTOBUF_FRAMED,
    SCHEMA,
    SEEN_INDEX,
    Field,
    as_json,
    avro,
    descriptors,
    file_of,
    framed,
    length,
    message_class,
    protobuf,
    varint,
)

MAX_BYTES = 2_000
FORMATS: dict[str, tuple[Any, Any]] = {
    "json": ("json", as_json),
    "avro": (AVRO, avro),
    "avro_framed": (AVRO_FRAMED, lambda event: framed(7, avro(event))),
    "protobuf": (PROTOBUF, protobuf),
    "protobuf_framed": (PROTOBUF_FRAMED, lambda event: framed(8, protobuf(event), SEEN_INDEX)),
}
BINARY = [name for name in FORMATS if name != "json"]


def decode(
    format: Any,
    values: Sequence[bytes | None],
    *,
    key: bytes | None = b"k",
    registry: dict[int, Registered | None] | None = None,
    body: dict[str, Any] = BODY,
    **policies: Any,
) -> Decoded:
    source = parse_source("s", {**body, "format": format, **policies})
    kinds = {name: Dictionary() for name, kind in body["attributes"].items() if kind == "category"}
    decoder = decoder_of(source, kinds, max_bytes=MAX_BYTES)
    records = [Record(2 * i, 1000 + i, key, value) for i, value in enumerate(values)]
    known = {7: Registered(json.dumps(SCHEMA))} if registry is None else registry
    decoder.learn({id: known.get(id) for id in decoder.lacking(records)})
    decoded = decoder.decode(records)
    # A code is what a reader gave a text when it first met it, in a refused event perhaps; the texts count.
    for place, name in enumerate(body["attributes"]):
        if name in kinds:
            texts = [kinds[name].text(code) for code in decoded.batch.values[:, place].tolist()]
            decoded.batch.values[:, place] = [MISSING if text is None else TEXTS.code(text) for text in texts]
    return decoded


TEXTS = Dictionary()


def seen(decoded: Decoded) -> tuple[Any, ...]:
    """All there is to a batch."""
    batch = decoded.batch
    return (
        list(batch.stream_ids),
        *(column.tolist() for column in (batch.offsets, batch.items, batch.log_ts, batch.removal)),
        *(column.tolist() for column in (batch.ts, batch.timed, batch.values)),
        [(one.offset, one.item, one.stream_id, one.reason) for one in decoded.refused],
        decoded.events,
        decoded.nulls.tolist(),
    )


def reasons(decoded: Decoded) -> list[str]:
    return [str(one.reason) for one in decoded.refused]


# ---- the same events

TEXT = st.one_of(
    st.sampled_from(["a", "tug", "", "é", "\U0001f600", "k" * 256, "k" * 257]), st.text(max_size=3)
)
NUMBER = st.one_of(st.sampled_from([0.0, -0.0, 1.5, 2.0**53, 1e300, -(2.0**63)]), st.floats(-9, 9))
TS = st.one_of(
    st.integers(-3, 3), st.sampled_from([2**53, 2**53 + 1, -(2**53), -(2**53) - 1, 2**63 - 1, -(2**63)])
)


def some(values: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=values)


EVENT = some(
    {
        "stream_id": TEXT,
        "ts": TS,
        "x": NUMBER,
        "position": some({"lat": NUMBER}),
        "kind": TEXT,
    }
)
POLICIES = st.fixed_dictionaries({"nulls": st.sampled_from(["reject", "absent"])})


def with_nulls(event: dict[str, Any]) -> dict[str, Any]:
    """What Avro says where JSON would leave it out."""
    found = {name: event.get(name) for name in ("stream_id", "ts", "x", "position", "kind")}
    if found["position"] is not None:
        found["position"] = {"lat": found["position"].get("lat")}
    return found


def without_z(event: dict[str, Any]) -> dict[str, Any]:
    position = event["position"]
    return event if position is None else {**event, "position": {**position, "z": b""}}


@settings(deadline=None, max_examples=60)
@given(st.lists(st.one_of(EVENT, st.none()), max_size=8), POLICIES)
def test_avro_is_judged_as_json_with_its_nulls(
    events: list[dict[str, Any] | None], policies: dict[str, Any]
) -> None:
    nulled = [event if event is None else with_nulls(event) for event in events]
    as_it_is = [event if event is None else as_json(event) for event in nulled]
    expected = seen(decode("json", as_it_is, **policies))
    for name in ("avro", "avro_framed"):
        format, encode = FORMATS[name]
        values = [event if event is None else encode(without_z(event)) for event in nulled]
        assert seen(decode(format, values, **policies)) == expected, name


@settings(deadline=None, max_examples=60)
@given(st.lists(st.one_of(EVENT, st.none()), max_size=8), POLICIES)
def test_protobuf_is_judged_as_json_that_leaves_out_what_is_not_set(
    events: list[dict[str, Any] | None], policies: dict[str, Any]
) -> None:
    expected = seen(
        decode("json", [event if event is None else as_json(event) for event in events], **policies)
    )
    for name in ("protobuf", "protobuf_framed"):
        format, encode = FORMATS[name]
        values = [event if event is None else encode(event) for event in events]
        assert seen(decode(format, values, **policies)) == expected, name


@pytest.mark.parametrize("name", BINARY)
def test_what_json_cannot_say_is_refused(name: str) -> None:
    format, encode = FORMATS[name]
    events = [
        {"stream_id": "a", "x": value, "position": {"lat": 1.0, "z": b""}, "kind": "tug"}
        for value in (float("nan"), float("inf"), float("-inf"), 1.0)
    ]
    decoded = decode(format, [encode(event) for event in events], nulls="absent")
    assert reasons(decoded) == ["not_finite"] * 3
    assert [one.stream_id for one in decoded.refused] == ["a"] * 3
    assert decoded.batch.values[:, 0].tolist() == [1.0]
    assert decoded.originals[0, 0] == encode(events[0])


@pytest.mark.parametrize("name", BINARY)
def test_tombstones_and_sizes(name: str) -> None:
    format, encode = FORMATS[name]
    long = encode({"stream_id": "a", "kind": "k" * MAX_BYTES})
    decoded = decode(format, [None, long], key=b"a")
    assert list(decoded.batch.stream_ids) == ["a"]
    assert decoded.batch.removal.tolist() == [True]
    assert reasons(decoded) == ["too_large"]
    assert reasons(decode(format, [None, None], key=b"")) == ["no_stream_id"] * 2


@pytest.mark.parametrize("mark", [bytes(8), b"\xff" * 8, blake2b(digest_size=8).digest()])
def test_two_messages_cannot_pretend_to_end_elsewhere(mark: bytes) -> None:
    """What ends the events that are read together is known to nobody who writes one of them."""
    types = {"stream_id": "string", "note": "bytes", "x": "double"}
    fields = [{"name": name, "type": type_} for name, type_ in types.items()]
    schema = {"type": "record", "name": "E", "fields": fields}
    format, body = {"type": "avro", "schema": schema}, {"attributes": {"x": "number"}}
    one = avro({"stream_id": "a", "note": b"", "x": 1.0}, schema)
    other = avro({"stream_id": "b", "note": mark + b"rest", "x": 2.0}, schema)
    begun, rest = other.split(mark)
    assert reasons(decode(format, [one, other], body=body)) == []
    assert reasons(decode(format, [one + mark + begun, rest], body=body)) == ["malformed"] * 2


def test_a_batch_is_read_the_same_whatever_is_beside_a_message() -> None:
    """Messages are read many at a time: a bad one in any place leaves its neighbours as they are."""
    good = [avro({"stream_id": f"s{i}", "x": float(i), "kind": "tug"}) for i in range(600)]
    for place in (0, 1, 255, 256, 599):
        for spoil in (good[place][:-1], good[place] + b"\0", b"", good[place] + good[0]):
            values = [*good[:place], spoil, *good[place + 1 :]]
            decoded = decode(AVRO, values, nulls="absent")
            assert [one.offset for one in decoded.refused] == [2 * place]
            assert reasons(decoded) == ["malformed"]
            assert decoded.batch.values[:, 0].tolist() == [i for i in range(600) if i != place]


def test_what_is_in_memory_is_bounded_by_the_bytes_of_a_message() -> None:
    """Each byte here becomes a dict, and there are thirty such messages in the poll."""
    item = {"type": "record", "name": "Item", "fields": [{"name": "is", "type": "boolean"}]}
    fields = [
        {"name": "stream_id", "type": "string"},
        {"name": "many", "type": {"type": "array", "items": item}},
    ]
    registry: dict[int, Registered | None] = {
        7: Registered(json.dumps({"type": "record", "name": "E", "fields": fields}))
    }
    size = 20_000
    value = framed(7, b"\x02a" + varint(size) + b"\1" * size + b"\0")
    source = parse_source("s", {**BODY, "format": AVRO_FRAMED})
    decoder = decoder_of(source, {"kind": Dictionary()}, max_bytes=size * 2)
    decoder.learn(registry)
    tracemalloc.start()
    assert decoder.decode([Record(i, 0, None, value) for i in range(30)]).events == 30
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 70_000_000


# ---- any bytes


@st.composite
def spoilt(draw: st.DrawFn, encode: Any) -> bytes:
    """An event with a few of its bytes changed, cut, or made more."""
    event = draw(EVENT)
    if encode is avro:
        event = without_z(with_nulls(event))
    value = bytearray(encode(event))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(value)))
        value[at : at + draw(st.integers(0, 3))] = draw(
            st.one_of(st.binary(max_size=3), st.integers(-(2**63), 2**63 - 1).map(varint))
        )
    return bytes(value[: draw(st.integers(0, len(value)))] if draw(st.booleans()) else value)


@pytest.mark.parametrize("name", BINARY)
@settings(deadline=None, max_examples=60)
@given(messages=st.data(), policies=POLICIES)
def test_every_message_of_any_bytes_is_a_row_or_a_refusal(
    name: str, messages: st.DataObject, policies: dict[str, Any]
) -> None:
    format, _ = FORMATS[name]
    body = spoilt(avro if "avro" in name else protobuf)
    value = st.one_of(body, st.binary(max_size=40), st.none())
    if "framed" in name:
        framing = st.builds(framed, st.sampled_from([7, 8, 9]), body, st.just(None))
        if "protobuf" in name:
            indexes = st.lists(st.integers(-2, 2), max_size=2)
            framing = st.builds(framed, st.just(8), body, st.one_of(st.just([1]), indexes))
        value = st.one_of(framing, framing, value)
    values = messages.draw(st.lists(value, max_size=6))
    decoded = decode(format, values, **policies)
    places = sorted([*decoded.batch.offsets.tolist(), *(one.offset for one in decoded.refused)])
    assert places == [2 * i for i in range(len(values))]
    for one in decoded.refused:
        assert isinstance(one.reason, Reason)
        assert decoded.originals[one.offset, 0] == values[one.offset // 2]
    assert not np.isnan(decoded.batch.values).any()
    # Alone each message has the fate that it has among the others.
    for i, alone in enumerate(values):
        again = decode(format, [alone], **policies)
        assert len(again.refused) == sum(one.offset == 2 * i for one in decoded.refused)


@pytest.mark.parametrize("cut", range(1, 40))
def test_a_message_that_is_cut_is_refused(cut: int) -> None:
    whole = avro({"stream_id": "vessel-17", "ts": 9, "x": 2.5, "note": {"a": [1, 2]}, "kind": "tug boat"})
    assert reasons(decode(AVRO, [whole[:-cut], whole], nulls="absent")) == ["malformed"]


HOSTILE = [
    b"\x02\x02a\x02" + varint(2**62) + b"\x02a",  # a map of 2**62 entries
    b"\x02\x02a\x02" + varint(-(2**63)) + varint(2**62),
    b"\x02\x02a\x02\x02\x02a" + varint(2**62) + b"\x00" * 100,  # an array of 2**62 items
    b"\x02" + varint(2**62) + b"a",  # a text of 2**62 bytes
    b"\x02" + varint(-(2**62)) + b"a",
    b"\x80" * 1_000,  # a number without an end
    varint(2**40) + b"a",  # a branch that is not there
    b"\x02\x06\xff\xfe\xfd\x00\x00\x00\x00\x03",  # not UTF-8
]


@pytest.mark.parametrize("value", HOSTILE)
def test_counts_and_lengths_beyond_the_message(value: bytes) -> None:
    assert reasons(decode(AVRO, [value])) == ["malformed"]


@pytest.mark.parametrize(
    "value",
    [
        b"\x0a\xff\xff\xff\xff\x7fa",
        b"\x0b" * 1_000,  # groups in groups
        b"\x0a\x01\xff",  # not UTF-8
        b"\xff" * 20,
    ],
)
def test_protobuf_that_is_none(value: bytes) -> None:
    assert reasons(decode(PROTOBUF, [value])) == ["malformed"]


def test_what_no_path_names_is_passed_over_however_it_is_nested() -> None:
    nested = b""
    while len(nested) < MAX_BYTES // 2:
        nested = b"\x4a" + length(len(nested)) + nested
    decoded = decode(PROTOBUF, [nested + b"\x0a\x01a"])
    assert list(decoded.batch.stream_ids) == ["a"]


# ---- types


def one(type_: Any, value: Any, kind: str = "number", at: str = "v", **policies: Any) -> Any:
    """What a value of an Avro type becomes, by a schema of a registry: the number or text, or the reason."""
    fields = [{"name": "stream_id", "type": "string"}, {"name": at, "type": type_}]
    schema = {"type": "record", "name": "E", "fields": fields}
    body = {"attributes": {"v": kind}}
    value = framed(7, avro({"stream_id": "a", at: value}, schema))
    known = {7: Registered(json.dumps(schema))}
    source = parse_source("s", {**body, "format": AVRO_FRAMED, **policies})
    texts = Dictionary()
    decoder = decoder_of(source, {"v": texts}, max_bytes=MAX_BYTES)
    records = [Record(0, 0, None, value)]
    decoder.learn({id: known[id] for id in decoder.lacking(records)})
    decoded = decoder.decode(records)
    if decoded.refused:
        return decoded.refused[0].reason
    if at == "event":
        return decoded.batch.event_ids and decoded.batch.event_ids[0]
    if at == "ts":
        return int(decoded.batch.ts[0]) if decoded.batch.timed[0] else None
    found = float(decoded.batch.values[0, 0])
    return found if kind == "number" else texts.text(found)


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


ENUM = {"type": "enum", "name": "Kind", "symbols": ["TUG", "TANKER"]}
FIXED = {"type": "fixed", "name": "Twelve", "size": 12}


@pytest.mark.parametrize(
    ("type_", "value", "found"),
    [
        ("int", -7, -7.0),
        ("long", 2**53, 2.0**53),
        ("long", 2**53 + 1, "inexact"),
        ("float", 0.5, 0.5),
        ("double", -0.0, 0.0),
        ("boolean", True, "not_a_number"),
        ("string", "7", "not_a_number"),
        ("bytes", b"7", "not_a_number"),
        (ENUM, "TUG", "not_a_number"),
        (["int", "double"], 7, 7.0),
        (["string", "double"], "7", "not_a_number"),
        (["string", "double"], 7.0, 7.0),
        (["null", "double"], None, "not_a_number"),
        (logical("long", "timestamp-micros"), 5_000, 5_000.0),
        (logical("bytes", "decimal", precision=9, scale=2), b"\x00\xfb", 2.51),
        (logical("bytes", "decimal", precision=9, scale=2), b"\xff", -0.01),
        (["null", logical("bytes", "decimal", precision=9, scale=2)], b"\x00\xfb", 2.51),
        (logical("bytes", "decimal", precision=400, scale=0), b"\x01" + b"\0" * 6 + b"\x01", "inexact"),
        (logical("bytes", "decimal", precision=400, scale=0), b"\x7f" * 200, "not_finite"),
        (logical("bytes", "decimal", precision=999, scale=1), b"\x7f" * 200, "not_finite"),
        ({**FIXED, "logicalType": "decimal", "precision": 9, "scale": 1}, b"\0" * 11 + b"\x0f", 1.5),
        (["null", {"type": "array", "items": "int"}], [1], "not_a_number"),
        *((logical(kind, "decimal", precision=9, scale=2), 7, 7.0) for kind in ("int", "long", "double")),
    ],
)
def test_numbers_of_avro(type_: Any, value: Any, found: Any) -> None:
    assert one(type_, value) == found


@pytest.mark.parametrize(
    ("type_", "value", "found"),
    [
        ("string", "tug", "tug"),
        (ENUM, "TANKER", "TANKER"),
        (["null", ENUM], "TANKER", "TANKER"),
        (["null", ENUM], None, "not_a_category"),
        (logical("string", "uuid"), "x", "x"),
        (FIXED, b"0" * 12, "not_a_category"),
        ("int", 7, "not_a_category"),
    ],
)
def test_categories_of_avro(type_: Any, value: Any, found: Any) -> None:
    assert one(type_, value, "category") == found


@pytest.mark.parametrize(
    ("type_", "value", "found"),
    [
        ("long", 17, 17),
        ("int", -17, -17),
        (["null", "long"], None, None),
        (logical("long", "timestamp-millis"), 17, 17),
        (logical("long", "timestamp-micros"), 17_999, 17),
        (logical("long", "timestamp-micros"), -1, -1),
        (["null", logical("long", "timestamp-micros")], 17_999, 17),
        (logical("long", "timestamp-nanos"), 17_999_999, 17),
        (logical("long", "local-timestamp-millis"), 17, "bad_ts"),
        (logical("int", "date"), 17, "bad_ts"),
        (logical("long", "of-our-own"), 17, 17),
        ("double", 17.0, "bad_ts"),
        ("string", "17", "bad_ts"),
    ],
)
def test_times_of_avro(type_: Any, value: Any, found: Any) -> None:
    assert one(type_, value, at="ts") == found


@pytest.mark.parametrize(
    ("type_", "value", "found"),
    [
        ("string", "e", "e"),
        ("string", "", "bad_event_id"),
        ("string", "x" * 201, "bad_event_id"),
        ("long", 7, "7"),
        (["null", "int"], -7, "-7"),
        (["null", "string"], None, None),
        (["null", "string", "long"], 7, "7"),
        (["null", "string", "long"], "e", "e"),
        (logical("string", "uuid"), "e", "e"),
        (logical("long", "timestamp-micros"), 17_999, "17999"),
        (ENUM, "TUG", "TUG"),
        ("double", 7.0, "bad_event_id"),
        ("boolean", True, "bad_event_id"),
        (FIXED, b"0" * 12, "bad_event_id"),
    ],
)
def test_ids_of_events_in_avro(type_: Any, value: Any, found: Any) -> None:
    assert one(type_, value, at="event", dedup={"by": "event"}) == found


def test_ids_of_events_in_protobuf() -> None:
    types = file_of(
        {
            "E": [
                *(("stream_id", 1, Field.TYPE_STRING), ("text", 2, Field.TYPE_STRING)),
                *(("maybe?", 3, Field.TYPE_STRING), ("number", 4, Field.TYPE_UINT64)),
                *(("wrapped", 5, ".google.protobuf.Int64Value"), ("half", 6, Field.TYPE_DOUBLE)),
            ]
        },
        imports=["google/protobuf/wrappers.proto"],
    )
    format = {"type": "protobuf", "descriptors": descriptors(types), "message": "fleet.E"}
    bare, full = b"\x0a\x01a", b"\x0a\x01a\x12\x01t\x1a\x01m\x20\x07\x2a\x02\x08\x08"
    body: dict[str, Any] = {"attributes": {"half": "number"}}
    for by, found in (
        *(("maybe", [None, "m"]), ("wrapped", [None, "8"]), ("number", ["0", "7"])),
        ("text", ["t"]),  # where it is not set it is "", which is none
    ):
        decoded = decode(format, [bare, full, None], body=body, dedup={"by": by})
        assert decoded.batch.event_ids == [*found, None]
        assert reasons(decoded) == ["bad_event_id"] * (2 - len(found))


@pytest.mark.parametrize("format", [AVRO, PROTOBUF, PROTOBUF_FRAMED])
def test_an_id_that_the_schema_cannot_have_is_refused_with_its_field(format: Any) -> None:
    for by in ("nowhere", "position"):
        with pytest.raises(Refusal) as caught:
            parse_source("s", {"attributes": {"x": "number"}, "format": format, "dedup": {"by": by}})
        assert caught.value.field == "dedup.by"


def test_a_field_that_a_schema_of_the_registry_lacks_is_missing() -> None:
    assert one("int", 7, at="other") == MISSING
    assert one("string", "7", "category", at="other") is None
    assert one(["null", "double"], None, nulls="absent") == MISSING
    assert one("int", 7, dedup={"by": "event"}) == 7


def test_protobuf_types() -> None:
    kinds = file_of(
        {
            "E": [
                ("stream_id", 1, Field.TYPE_STRING),
                ("ts", 2, ".google.protobuf.Timestamp"),
                ("v", 3, Field.TYPE_FLOAT),
                ("big", 4, Field.TYPE_UINT64),
                ("wrapped", 5, ".google.protobuf.DoubleValue"),
                ("named", 6, ".google.protobuf.StringValue"),
                ("kind", 7, Field.TYPE_ENUM),
            ]
        },
        imports=["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"],
    )
    kinds.message_type[0].field[6].type_name = ".fleet.Kind"
    enum = kinds.enum_type.add(name="Kind")
    enum.value.add(name="UNKNOWN", number=0)
    enum.value.add(name="TUG", number=1)
    attributes = {
        "v": "number",
        "big": "number",
        "wrapped": "number",
        "named": "category",
        "kind": "category",
    }
    format = {"type": "protobuf", "descriptors": descriptors(kinds), "message": "fleet.E"}
    values = [
        b"\x0a\x01a",
        b"\x0a\x01a\x12\x05\x08\x05\x10\xff\x7f\x2a\x00\x32\x00\x38\x01",
        b"\x0a\x01a\x12\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x38\x09",
        b"\x0a\x01a\x20\x81\x80\x80\x80\x80\x80\x80\x10",
    ]
    decoded = decode(format, values, body={"attributes": attributes})
    assert reasons(decoded) == ["not_a_category", "inexact"]
    batch = decoded.batch
    assert batch.timed.tolist() == [False, True]
    assert batch.ts[1] == 5_000
    unknown, tug, empty = (TEXTS.code(text) for text in ("UNKNOWN", "TUG", ""))
    assert batch.values.tolist() == [[0, 0, MISSING, MISSING, unknown], [0, 0, 0, empty, tug]]


def test_fields_that_are_called_as_what_messages_can_do() -> None:
    fields = [("stream_id", 1, Field.TYPE_STRING), ("HasField?", 2, Field.TYPE_DOUBLE)]
    more = [("FromString?", 3, Field.TYPE_DOUBLE), ("DESCRIPTOR?", 4, Field.TYPE_DOUBLE)]
    format = {
        "type": "protobuf",
        "descriptors": descriptors(file_of({"E": [*fields, *more]})),
        "message": "fleet.E",
    }
    attributes = {"has": "number", "parse": "number", "descriptor": "number"}
    paths = {"has": "HasField", "parse": "FromString", "descriptor": "DESCRIPTOR"}
    values = [b"\x0a\x01a\x11" + struct.pack("<d", 0), b"\x0a\x01a\x21" + struct.pack("<d", 2.5)]
    decoded = decode(format, values, body={"attributes": attributes, "paths": paths})
    assert reasons(decoded) == []
    assert decoded.batch.values.tolist() == [[0, MISSING, MISSING], [MISSING, MISSING, 2.5]]


def test_texts_of_proto2_that_are_not_utf8() -> None:
    fields = [("stream_id", 1, Field.TYPE_STRING), ("kind", 2, Field.TYPE_STRING)]
    file = file_of({"E": fields}, syntax="proto2")
    format = {"type": "protobuf", "descriptors": descriptors(file), "message": "fleet.E"}
    values = [b"\x0a\x01\xff", b"\x0a\x01a\x12\x01\xff", b"\x0a\x01a\x12\x01b", b"\x0a\x01a"]
    decoded = decode(format, values, body={"attributes": {"kind": "category"}})
    assert reasons(decoded) == ["no_stream_id", "not_a_category"]
    assert decoded.batch.values.tolist() == [[TEXTS.code("b")], [MISSING]]


def test_fields_of_a_oneof_undo_one_another() -> None:
    file = file_of(
        {"E": [("stream_id", 1, Field.TYPE_STRING), ("x", 2, Field.TYPE_DOUBLE), ("y", 3, Field.TYPE_DOUBLE)]}
    )
    message = file.message_type[0]
    message.oneof_decl.add(name="unused")
    message.oneof_decl.add(name="value")
    message.field.add(name="z", number=4, type=Field.TYPE_STRING, label=1, oneof_index=0)
    for field in message.field[1:3]:
        field.oneof_index = 1
    written = message_class(file, "fleet.E")
    values = [written(stream_id="a", x=1).SerializeToString() + written(y=2).SerializeToString()]
    format = {"type": "protobuf", "descriptors": descriptors(file), "message": "fleet.E"}
    decoded = decode(format, values, body={"attributes": {"x": "number"}})
    assert decoded.batch.values.tolist() == [[MISSING]]


# ---- frames and schemas


def test_frames() -> None:
    event = protobuf({"stream_id": "a", "x": 1.0})
    values = [
        framed(8, event, SEEN_INDEX),
        framed(8, event, [0]),
        b"\0\0\0\0\x08\0" + event,  # short for the first type
        framed(8, event, [1, 0]),
        b"\0\0\0\0\x08\xff\xff\xff\xff\xff",
        b"\0\0\0\0\x08" + varint(1_000),
        b"\0\0\0\0\x08",
        b"\0\0\0",
        b"\x01" + framed(8, event, SEEN_INDEX)[1:],
        b"",
    ]
    decoded = decode(PROTOBUF_FRAMED, values)
    assert decoded.batch.offsets.tolist() == [0]
    assert reasons(decoded) == ["malformed"] * 9


def test_frames_of_the_first_type_of_a_file() -> None:
    file = file_of({"E": [("stream_id", 1, Field.TYPE_STRING), ("x", 2, Field.TYPE_DOUBLE)]})
    format = {"type": "protobuf", "descriptors": descriptors(file), "message": "fleet.E", "registry": True}
    event = b"\x0a\x01a"
    values = [framed(8, event, [0]), b"\0\0\0\0\x08" + varint(1) + varint(0) + event, framed(8, event, [1])]
    decoded = decode(format, values, body={"attributes": {"x": "number"}})
    assert decoded.batch.offsets.tolist() == [0, 2]
    assert reasons(decoded) == ["malformed"]


@pytest.mark.parametrize("count", [-1, 33, 2**33])
def test_no_more_message_indexes_are_read_than_a_type_can_have(count: int) -> None:
    """However many a message says that it has, or has."""
    decoded = decode(PROTOBUF_FRAMED, [b"\0\0\0\0\x08" + varint(count) + b"\0" * 1_000])
    assert [one.detail for one in decoded.refused] == [f"{count} message indexes are in front of it"]


def test_a_type_far_down_its_file_and_within_another() -> None:
    file = file_of({f"E{i}": [("stream_id", 1, Field.TYPE_STRING)] for i in range(70)})
    nested = file.message_type[69].nested_type.add(name="In")
    nested.CopyFrom(file_of({"In": [("stream_id", 1, Field.TYPE_STRING), ("x", 2, 1)]}).message_type[0])
    format = {
        "type": "protobuf",
        "descriptors": descriptors(file),
        "message": "fleet.E69.In",
        "registry": True,
    }
    values = [framed(8, b"\x0a\x01a", indexes) for indexes in ([69, 0], [69], [0])]
    decoded = decode(format, values, body={"attributes": {"x": "number"}})
    assert decoded.batch.offsets.tolist() == [0]


def test_schemas_of_the_registry() -> None:
    whole = json.dumps(SCHEMA)
    other = {"type": "record", "name": "E", "fields": [{"name": "stream_id", "type": "string"}]}
    registry = {
        1: Registered(whole),
        2: Registered(json.dumps(other)),
        3: None,
        4: Registered("[" * 100_000),
        5: Registered('"string"'),
        6: Registered("syntax = 1;", "PROTOBUF"),
        7: Registered(whole, references=True),
    }
    good = avro({"stream_id": "a", "x": 1.0, "kind": "tug"})
    bare = avro({"stream_id": "b"}, other)
    values = [framed(id, bare if id == 2 else good) for id in (2, 1, 3, 4, 5, 6, 7, 2, 1)]
    decoded = decode(AVRO_FRAMED, values, registry=registry)
    assert list(decoded.batch.stream_ids) == ["b", "a", "b", "a"]
    assert decoded.batch.offsets.tolist() == [0, 2, 14, 16]
    assert reasons(decoded) == ["unknown_schema", *["bad_schema"] * 4]
    assert [one.detail.split(" ")[0] for one in decoded.refused] == ["the", *["schema"] * 4]


def test_a_schema_that_is_unknown_is_asked_for_again_and_others_are_not() -> None:
    decoder = decoder_of(
        parse_source("s", {**BODY, "format": AVRO_FRAMED}), {"kind": Dictionary()}, max_bytes=MAX_BYTES
    )
    records = [Record(i, 0, None, framed(i, avro({"stream_id": "a", "x": 1.0, "kind": "t"}))) for i in (1, 2)]
    assert decoder.lacking(records) == {1, 2}
    decoder.learn({1: Registered(json.dumps(SCHEMA)), 2: None})
    assert reasons(decoder.decode(records)) == ["unknown_schema"]
    assert decoder.lacking(records) == {2}
    decoder.learn({2: Registered(json.dumps(SCHEMA))})
    assert reasons(decoder.decode(records)) == []
    assert decoder.lacking(records) == set()
    assert decoder.lacking([Record(9, 0, None, b"\0\0"), Record(10, 0, None, None)]) == set()


def test_schemas_are_forgotten_where_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode_binary, "MAX_FORMS", 2)
    decoder = decoder_of(
        parse_source("s", {**BODY, "format": AVRO_FRAMED}), {"kind": Dictionary()}, max_bytes=MAX_BYTES
    )
    records = [Record(i, 0, None, framed(i, b"")) for i in range(3)]
    decoder.learn(dict.fromkeys(range(2), Registered(json.dumps(SCHEMA))))
    assert decoder.lacking(records[:1]) == set()
    decoder.learn({2: Registered(json.dumps(SCHEMA))})
    assert decoder.lacking(records[2:]) == set()
    assert decoder.lacking(records) == {0, 1}


def test_what_is_not_there_is_known_until_all_that_a_poll_needs_is() -> None:
    """However long a registry takes for the many ids of a poll: what it has said is not asked again."""
    decoder = decoder_of(
        parse_source("s", {**BODY, "format": AVRO_FRAMED}), {"kind": Dictionary()}, max_bytes=MAX_BYTES
    )
    records = [Record(i, 0, None, framed(i, b"")) for i in range(5)]
    for told in range(5):
        assert decoder.lacking(records) == set(range(told, 5))
        decoder.learn({told: None})
    assert decoder.lacking(records) == set()
    decoder.decode(records[:2])
    assert reasons(decoder.decode(records[2:])) == ["unknown_schema"] * 3
    assert decoder.lacking(records) == set(range(5))


def test_a_dead_letter_says_the_same_in_every_run() -> None:
    fields = [{"name": "stream_id", "type": "string"}, {"name": "v", "type": "double"}]
    known = {1: Registered(json.dumps({"type": "record", "name": "E", "fields": fields}))}
    body = {"attributes": {"v": "number"}}
    decoded = decode(AVRO_FRAMED, [framed(1, b"\x02a\1")], registry=known, body=body)
    (refused,) = decoded.refused
    assert "0x" not in refused.detail
