"""Bytes to columns: both readers judge alike, and every event is a row or a refusal."""

from __future__ import annotations

import json
import math
import tracemalloc
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import service.decode
from service.decode import LARGEST_TS, LONGEST_TEXT, Decoded, Decoder
from service.engine.categories import Dictionary
from service.language import parse_source
from service.log.port import Record
from service.model import MISSING

MAX_BYTES = 100_000


def decode(
    *values: bytes | None, key: bytes | None = b"k", careful: bool = False, **policies: Any
) -> Decoded:
    """Decodes messages at offsets 0, 2, 4 ...; ``careful`` leaves everything to the careful reader."""
    body = {"attributes": {"x": "number", "lat": "number", "kind": "category"}, **policies}
    source = parse_source("s", {"paths": {"lat": "position.lat"}, **body})
    decoder = Decoder(source, {"kind": Dictionary()}, max_bytes=MAX_BYTES)
    if careful:
        decoder._fast = _take_nothing
    return decoder.decode([Record(2 * i, 1000 + i, key, value) for i, value in enumerate(values)])


def test_columns() -> None:
    decoded = decode(
        b'{"stream_id":"a","ts":5,"x":1,"position":{"lat":-0.0,"z":[1]},"kind":"tug","more":{"a":1}}',
        b'[{"stream_id":"b","x":2.5},{"stream_id":"a","ts":null,"kind":""}]',
        None,
    )
    batch = decoded.batch
    assert not decoded.refused
    assert decoded.events == 3
    assert list(batch.stream_ids) == ["a", "b", "a", "k"]
    assert batch.offsets.tolist() == [0, 2, 2, 4]
    assert batch.items.tolist() == [0, 0, 1, 0]
    assert batch.log_ts.tolist() == [1000, 1001, 1001, 1002]
    assert batch.timed.tolist() == [True, False, False, False]
    assert batch.ts.tolist() == [5, 0, 0, 0]
    assert batch.removal.tolist() == [False, False, False, True]
    assert batch.values.tolist() == [
        [1.0, 0.0, 0.0],
        [2.5, MISSING, MISSING],
        [MISSING, MISSING, 1.0],
        [MISSING, MISSING, MISSING],
    ]
    assert math.copysign(1, batch.values[0, 1]) == 1


@pytest.mark.parametrize("flat", [True, False])
def test_no_more_messages_are_read_than_hold_so_many_events(
    flat: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that are refused count; what lies behind is left for the next time, and plain messages, which are
    an event each and read together, only if one that is not is left before them."""
    monkeypatch.setattr(service.decode, "MOST_ROWS", 3)
    body: dict[str, Any] = {"attributes": {"x": "number"}, **({} if flat else {"paths": {"x": "deep.x"}})}
    decoder = Decoder(parse_source("s", body), {}, max_bytes=MAX_BYTES)
    plain, two, bad = b'{"stream_id":"a","x":1}', b'[{"stream_id":"a"},{"stream_id":"b"}]', b"[1,2]"
    for values, of_flat, of_others in (
        ([plain, two, plain, two, plain, two, plain], 5, 2),
        ([two, bad, plain, plain], 4, 2),
        ([two, bad, plain, bad], 3, 2),
        ([two, two, bad, plain], 2, 2),
        ([bad, bad, plain, two], 3, 2),
        ([bad, bad], 2, 2),
        ([], 0, 0),
    ):
        records = [Record(2 * i, 1000 + i, None, value) for i, value in enumerate(values)]
        decoded = decoder.decode(records)
        assert decoded.read == (of_flat if flat else of_others), values
        rows = [2 * i for i, value in enumerate(values[: decoded.read]) for _ in range(1 + (value is two))]
        assert decoded.batch.offsets.tolist() == [at for at in rows if values[at // 2] is not bad]
        refused = [(at, item) for at in rows if values[at // 2] is bad for item in (0, 1)]
        assert [(one.offset, one.item) for one in decoded.refused] == refused
        assert decoded.events == len(decoded.batch.offsets) + len(decoded.refused)


def ids(decoded: Decoded) -> list[str | None]:
    assert decoded.batch.event_ids is not None
    return list(decoded.batch.event_ids)


@pytest.mark.parametrize("careful", [False, True])
@pytest.mark.parametrize(("by", "written"), [("e", b'"e":%s'), ("meta.e", b'"meta":{"e":%s,"f":1}')])
def test_ids_of_events(by: str, written: bytes, careful: bool) -> None:
    given = {
        b'"a"': "a",
        b'"7"': "7",
        b"7": "7",
        b"-7": "-7",
        b"0": "0",
        b'"\\u00e9"': "\u00e9",
        b"null": None,
        b"18446744073709551616": "18446744073709551616",
        b"9" * 200: "9" * 200,
        b'"' + b"x" * 200 + b'"': "x" * 200,
    }
    refused = (b'""', b"1.0", b"1e2", b"true", b"[]", b"{}", b'"' + b"x" * 201 + b'"', b"9" * 201)
    events = [b'{"stream_id":"a",' + written % id + b"}" for id in (*given, *refused)]
    for decoded in (
        decode(*events, None, careful=careful, dedup={"by": by}),
        decode(b"[" + b",".join(events) + b"]", None, careful=careful, dedup={"by": by}),
    ):
        assert ids(decoded) == [*given.values(), None]
        assert {(r.reason, r.stream_id) for r in decoded.refused} == {("bad_event_id", "a")}
        assert len(decoded.refused) == len(refused)
        assert all(repr(by) in r.detail for r in decoded.refused)
    assert ids(decode(b'{"stream_id":"a"}', b'{"stream_id":"b","meta":7}', dedup={"by": by})) == [None, None]
    assert decode(*events).batch.event_ids is None, "nobody reads them"


def test_ids_stay_with_their_events() -> None:
    decoded = decode(
        *(b'{"stream_id":"a","e":%d,"x":%s}' % (e, b"null" if e % 3 else b"1") for e in range(7)),
        dedup={"by": "e"},
    )
    assert ids(decoded) == ["0", "3", "6"]
    assert ids(decoded._replace(batch=decoded.batch.take(np.array([2, 0])))) == ["6", "0"]


def _take_nothing(value: bytes) -> Any:
    raise msgspec.ValidationError("the fast reader takes nothing")


REFUSED: list[tuple[bytes, str, str | None]] = [
    (b"", "malformed", None),
    (b"no json", "malformed", None),
    (b'{"stream_id":"a"', "malformed", None),
    (b'{"stream_id":"a"} x', "malformed", None),
    (b"7", "malformed", None),
    (b'"text"', "malformed", None),
    (b"null", "malformed", None),
    (b'\xef\xbb\xbf{"stream_id":"a"}', "malformed", None),
    (b'{"stream_id":"a\xff"}', "malformed", None),
    (b'{"stream_id":"\\ud800"}', "malformed", None),
    (b'{"stream_id":"a","x":NaN}', "malformed", None),
    (b"[" * 50_000, "malformed", None),
    (b'{"stream_id":"a","x":' + b"[" * 20_000 + b"]" * 20_000 + b"}", "malformed", None),
    (b"{}", "no_stream_id", None),
    (b'{"stream_id":""}', "no_stream_id", None),
    (b'{"stream_id":17}', "no_stream_id", None),
    (b'{"stream_id":null}', "no_stream_id", None),
    (b'{"stream_id":"a","ts":1.5}', "bad_ts", "a"),
    (b'{"stream_id":"a","ts":1.0}', "bad_ts", "a"),
    (b'{"stream_id":"a","ts":true}', "bad_ts", "a"),
    (b'{"stream_id":"a","ts":"5"}', "bad_ts", "a"),
    (b'{"stream_id":"a","ts":%d}' % (LARGEST_TS + 1), "bad_ts", "a"),
    (b'{"stream_id":"a","ts":%d}' % -(2**63), "bad_ts", "a"),
    (b'{"stream_id":"a","ts":99999999999999999999999999}', "bad_ts", "a"),
    (b'{"stream_id":"a","x":"5"}', "not_a_number", "a"),
    (b'{"stream_id":"a","x":true}', "not_a_number", "a"),
    (b'{"stream_id":"a","x":null}', "not_a_number", "a"),
    (b'{"stream_id":"a","x":[1]}', "not_a_number", "a"),
    (b'{"stream_id":"a","x":1e999}', "not_finite", "a"),
    (b'{"stream_id":"a","x":-1e999}', "not_finite", "a"),
    (b'{"stream_id":"a","x":1' + b"0" * 400 + b"}", "not_finite", "a"),
    (b'{"stream_id":"a","x":9007199254740993}', "inexact", "a"),
    (b'{"stream_id":"a","x":18446744073709551615}', "inexact", "a"),
    (b'{"stream_id":"a","position":{"lat":"n"}}', "not_a_number", "a"),
    (b'{"stream_id":"a","kind":5}', "not_a_category", "a"),
    (b'{"stream_id":"a","kind":null}', "not_a_category", "a"),
    (b'{"stream_id":"a","kind":"' + b"k" * (LONGEST_TEXT + 1) + b'"}', "limit", "a"),
    (b'{"stream_id":"' + b"k" * (LONGEST_TEXT + 1) + b'"}', "limit", None),
    (b'{"stream_id":"a","x":' + b" " * MAX_BYTES + b"1}", "too_large", None),
]


@pytest.mark.parametrize(("value", "reason", "stream_id"), REFUSED, ids=lambda one: repr(one)[:40])
def test_refusals(value: bytes, reason: str, stream_id: str | None) -> None:
    fine = b'{"stream_id":"z","x":1}'
    decoded = decode(fine, value, fine)
    assert [(r.offset, r.item, r.reason, r.stream_id) for r in decoded.refused] == [(2, 0, reason, stream_id)]
    assert decoded.refused[0].detail
    assert decoded.originals[2, 0] == value
    assert decoded.batch.offsets.tolist() == [0, 4]
    assert decoded.events == 3


@pytest.mark.parametrize("ignored", [b'"\x80":0', b'"more":"\x80"', b'"more":["\xed\xa0\x80"]'])
def test_what_is_ignored_must_be_utf8_too(ignored: bytes) -> None:
    event = b'{"stream_id":"a",' + ignored + b"}"
    for value in (event, b"[" + event + b"]"):
        assert [one.reason for one in decode(value).refused] == ["malformed"]


def test_each_item_of_an_array_is_judged_alone() -> None:
    decoded = decode(b'[1,{"stream_id":"a","x":1}, {"stream_id":"b","x":null},[],{"stream_id":"c","x":2}]')
    assert [(r.item, r.reason) for r in decoded.refused] == [
        (0, "malformed"),
        (2, "not_a_number"),
        (3, "malformed"),
    ]
    assert decoded.originals[0, 2] == b'{"stream_id":"b","x":null}'
    assert decoded.batch.items.tolist() == [1, 4]
    assert decoded.events == 5
    assert decode(b"[]").events == 0


def test_half_a_surrogate_spoils_its_own_event_only() -> None:
    decoded = decode(b' [ {"stream_id":"a","x":1} , {"stream_id":"\\ud800"},{"stream_id":"b","x":2} ] ')
    assert [(r.item, r.reason) for r in decoded.refused] == [(1, "malformed")]
    assert decoded.originals[0, 1] == b'{"stream_id":"\\ud800"}'
    assert list(decoded.batch.stream_ids) == ["a", "b"]
    for broken in (b'["\\ud800"', b'["\\ud800",', b'["\\ud800"]x', b'["\\ud800" 1]', b'["\\ud800",NaN]'):
        assert [(r.item, r.reason) for r in decode(broken).refused] == [(0, "malformed")]


def test_exact_integers_and_the_same_digits_with_a_point_are_taken() -> None:
    batch = decode(
        b'{"stream_id":"a","x":9007199254740994}',
        b'{"stream_id":"a","x":9007199254740993.0}',
        b'{"stream_id":"a","x":18446744073709551616}',
        b'{"stream_id":"a","x":1e308}',
    ).batch
    assert batch.values[:, 0].tolist() == [9007199254740994.0, 9007199254740992.0, 2.0**64, 1e308]


def test_nulls_are_counted_where_they_are_accepted() -> None:
    texts = [
        '{"stream_id":"a","x":null,"kind":null}',
        '{"stream_id":"a","x":1}',
        '{"stream_id":"a","x":null,"kind":"k"}',
        '{"stream_id":"","x":null}',
        '{"stream_id":"a","x":9007199254740993,"kind":null}',
    ]
    one_by_one = [decode(text.encode(), nulls="absent").nulls.tolist() for text in texts]
    assert one_by_one == [[2], [0], [1], [], []], "what is refused counts as that alone"
    together = decode(f"[{','.join(texts)}]".encode(), nulls="absent")
    assert (together.nulls.tolist(), len(together.refused)) == ([2, 0, 1], 2)
    assert decode(b'{"stream_id":"a","x":1}').nulls.tolist() == [0]
    source = parse_source("s", {"attributes": {"x": "number", "y": "number"}, "nulls": "absent"})
    plain, array = (
        b'{"stream_id":"a","x":1}',
        b'[{"stream_id":"a","x":null,"y":null},{"stream_id":"b","x":1}]',
    )
    records = [Record(i, 0, None, value) for i, value in enumerate([plain, array, plain, array])]
    mixed = Decoder(source, {}, max_bytes=MAX_BYTES).decode(records)
    assert mixed.nulls.tolist() == [0, 2, 0, 0, 2, 0], "row by row, however each was read"


def test_nulls_absent() -> None:
    decoded = decode(b'{"stream_id":"a","x":null,"kind":null,"position":null}', nulls="absent")
    assert not decoded.refused
    assert decoded.batch.values.tolist() == [[MISSING] * 3]
    assert [r.reason for r in decode(b'{"stream_id":"a","x":"1"}', nulls="absent").refused] == [
        "not_a_number"
    ]


def test_the_last_of_two_equal_keys_counts() -> None:
    decoded = decode(b'{"stream_id":"a","x":"bad","x":6}', b'{"stream_id":"a","x":6,"x":null}')
    assert decoded.batch.values[:, 0].tolist() == [6.0]
    assert [r.reason for r in decoded.refused] == ["not_a_number"]


@pytest.mark.parametrize("key", [None, b"", b"\xff"])
def test_a_tombstone_needs_a_key(key: bytes | None) -> None:
    decoded = decode(None, key=key)
    assert [(r.reason, decoded.originals[r.offset, r.item]) for r in decoded.refused] == [
        ("no_stream_id", None)
    ]
    assert len(decoded.batch.stream_ids) == 0
    assert decoded.events == 1


def test_nothing() -> None:
    decoded = decode()
    assert decoded.events == 0
    assert decoded.batch.values.shape == (0, 3)


VALUE = st.one_of(
    st.integers(-10, 10),
    st.integers(2**53 - 3, 2**53 + 3),
    st.floats(allow_nan=False, allow_infinity=False),
    st.none(),
    st.booleans(),
    st.text(max_size=3),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
)
EVENT = st.dictionaries(st.sampled_from(["stream_id", "ts", "x", "position", "kind", "more"]), VALUE)


@given(
    st.lists(st.one_of(EVENT, st.lists(st.one_of(EVENT, VALUE), max_size=3), VALUE), max_size=5),
    st.sampled_from([None, {"by": "more"}]),
)
def test_both_readers_judge_alike(bodies: list[Any], dedup: Any) -> None:
    values = [json.dumps(body).encode() for body in bodies]
    fast = decode(*values, dedup=dedup)
    careful = decode(*values, careful=True, dedup=dedup)
    assert fast.refused == careful.refused
    assert fast.events == careful.events
    assert list(fast.batch.stream_ids) == list(careful.batch.stream_ids)
    for one, other in zip(
        fast.batch._replace(stream_ids=()), careful.batch._replace(stream_ids=()), strict=True
    ):
        assert np.array_equal(one, other)
    items = sum(len(body) if isinstance(body, list) else 1 for body in bodies)
    assert len(fast.batch.stream_ids) + len(fast.refused) == items == fast.events


@given(st.binary(max_size=60))
def test_any_bytes_are_a_row_or_a_refusal(value: bytes) -> None:
    decoded = decode(value)
    assert len(decoded.batch.stream_ids) + len(decoded.refused) == decoded.events
    for one in decoded.refused:
        assert one.detail


def test_a_message_of_too_many_events_is_refused_before_anything_is_made_of_them() -> None:
    """In a message that any reader would take, and in one with a mistake at its end."""
    decoder = Decoder(
        parse_source("s", {"attributes": {"x": "number"}}), {}, max_bytes=1_000_000, max_events=1_000
    )
    for event in (b"0", b"{}", b"NaN"):
        value = b"[" + b",".join([event] * 100_000) + b"]"
        tracemalloc.start()
        decoded = decoder.decode([Record(7, 0, None, value)])
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        (refused,) = decoded.refused
        assert (refused.offset, refused.item, refused.reason) == (7, 0, "limit")
        assert "100000 events; max_message_events allows 1000" in refused.detail
        assert peak < 1_000_000
