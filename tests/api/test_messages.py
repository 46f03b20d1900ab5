"""From bodies to messages, without a service: order, partitions, limits, untouched bytes."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.api.messages import messages_of, partition_of, values_of
from service.log import key_hash
from service.log.port import Message
from service.model import AttributeType, Reason, Refusal, Source

SOURCE = Source("s", {"x": AttributeType.NUMBER}, "events.s")


def made(
    *values: bytes,
    partitions: int = 1,
    max_bytes: int = 1_000,
    max_events: int = 100,
    source: Source = SOURCE,
) -> list[Message]:
    return messages_of(values, source, partitions=partitions, max_bytes=max_bytes, max_events=max_events)


def test_an_event_is_a_message_as_it_came_with_its_stream_id_as_key() -> None:
    event = b' {"x": 1.0e0, "stream_id": "\\u00e4", "stream_id":"b"} '
    assert made(event) == [Message(b"b", event)]
    assert made(b'{"x": 1}') == [Message(None, b'{"x": 1}')]
    assert made(b'{"stream_id": ""}')[0].key is None
    assert made(b"5") == [Message(None, b"5")]


def test_a_nested_key_is_found() -> None:
    source = Source("s", {"x": AttributeType.NUMBER}, "t", key="a.b.c")
    assert made(b'{"a": {"b": {"c": "k"}}}', source=source)[0].key == b"k"
    assert made(b'{"a": {"b": "k"}}', source=source)[0].key is None


def test_an_array_that_fits_into_its_only_partition_keeps_every_byte() -> None:
    array = b'[ {"stream_id":"a" } ,5,\n{"stream_id":"b","x":1e0}]'
    assert made(array) == [Message(None, array, 0)]


def test_an_array_of_more_events_than_a_message_may_have_is_several() -> None:
    array = json.dumps([{"stream_id": "a", "x": n} for n in range(7)]).encode()
    assert [json.loads(one.value or b"") for one in made(array, max_events=3)] == [
        [{"stream_id": "a", "x": n} for n in some] for some in (range(3), range(3, 6), range(6, 7))
    ]
    assert made(array, max_events=7) == [Message(None, array, 0)]


@pytest.mark.parametrize(
    ("key", "partition"),
    # Computed with Kafka's own Java client: the hash is part of its protocol with other producers.
    [
        (b"21", (-973932308 & 0x7FFFFFFF) % 7),
        (b"foobar", (-790332482 & 0x7FFFFFFF) % 7),
        (b"abc", 479470107 % 7),
    ],
)
def test_partitions_are_those_of_kafkas_clients(key: bytes, partition: int) -> None:
    assert partition_of(key, 7) == partition


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", "c", "ä", None]), st.integers(0, 10**6)), max_size=40),
    st.integers(1, 5),
    st.integers(60, 400),
)
def test_a_split_loses_nothing_and_keeps_the_order_of_a_stream(
    events: list[tuple[str | None, int]], partitions: int, max_bytes: int
) -> None:
    array = json.dumps([{"stream_id": id, "x": x} for id, x in events]).encode()
    messages = made(array, partitions=partitions, max_bytes=max_bytes)
    assert all(len(message.value or b"") <= max_bytes for message in messages)
    sent = [(message.partition, event) for message in messages for event in json.loads(message.value or b"")]
    for id in {id for id, _ in events}:
        assert [event["x"] for _, event in sent if event["stream_id"] == id] == [
            x for i, x in events if i == id
        ]
    for partition, event in sent:
        if event["stream_id"] is not None:
            assert partition == partition_of(event["stream_id"].encode(), partitions)
    assert len(sent) == len(events)


def test_an_event_beyond_the_limit_is_refused_alone_or_in_an_array() -> None:
    long = b'{"stream_id": "a", "note": "' + b"x" * 100 + b'"}'
    for value in (long, b"[" + long + b"]", b"[5," + long + b"]"):
        with pytest.raises(Refusal):
            made(value, max_bytes=100)
    assert len(made(b"[" + long + b"," + long + b"]", max_bytes=len(long) + 2)) == 2


@pytest.mark.parametrize(
    "body",
    [
        b"[" + b"0," * 500_000 + b"0]",
        b"[" + b"{}," * 300_000 + b"{}]",
        b"0\n" * 500_000,
        b"\n" * 1_000_000 + b"0\n0",
        b"[0,0,0,0]\n" * 100_000,
        b"[" + b"0," * 500_000 + b"0]\n" + b"0\n",
        b"[" + b"0," * 500_000 + b"]\n0\n",
    ],
    ids=[
        "array",
        "objects",
        "lines",
        "blank lines",
        "arrays",
        "one long line",
        "one long line that is no JSON",
    ],
)
def test_a_body_of_too_many_events_is_refused_before_anything_is_made_of_them(body: bytes) -> None:
    tracemalloc.start()
    with pytest.raises(Refusal) as refused:
        values_of(body, is_ndjson=True, max_events=150_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert refused.value.reason is Reason.LIMIT
    assert "max_request_events allows 150000" in refused.value.detail
    assert peak < 20_000_000 if body.startswith(b"[0,0,0,0]") else peak < 3_000_000


def test_a_body_of_as_many_events_as_there_may_be_is_taken() -> None:
    for body in (b"[0,0,0]", b"0\n0\n0\n", b"0\r\n[0,0]\n", b'[{"a":[1,2,3]},0,0]'):
        values_of(body, is_ndjson=True, max_events=3)
        with pytest.raises(Refusal):
            values_of(body, is_ndjson=True, max_events=2)


def test_no_message_has_more_events_than_it_may_have_whatever_they_are() -> None:
    assert [one.value for one in made(b"[0,0,0,0,0]", max_events=2)] == [b"[0,0]", b"[0,0]", b"[0]"]


def test_a_stream_id_that_is_too_long_is_no_key() -> None:
    """What it belongs to is refused wherever it lies."""
    for length, key in ((256, b"k" * 256), (257, None)):
        event = b'{"stream_id": "' + b"k" * length + b'"}'
        assert made(event) == [Message(key, event)]


def test_hashes_are_kept_of_short_keys_only() -> None:
    before = key_hash._kept.cache_info().currsize
    for n in range(10):
        assert partition_of(b"%d" % n + b"k" * 1_000, 7) in range(7)
        assert partition_of(b"only one %d" % n, 1) == 0
    assert key_hash._kept.cache_info().currsize == before
    partition_of(b"a short one", 7)
    assert key_hash._kept.cache_info().currsize == before + 1


def test_a_body_is_one_value_or_lines() -> None:
    assert values_of(b' {"a":\n1} ', is_ndjson=True, max_events=100) == [b' {"a":\n1} ']
    assert values_of(b"1\n2\n\nbad", is_ndjson=False, max_events=100) == [b"1", b"2", b"bad"]
    assert values_of(b"bad\n2", is_ndjson=True, max_events=100) == [b"bad", b"2"]
    with pytest.raises(Refusal):
        values_of(b"bad\n2", is_ndjson=False, max_events=100)


@given(st.binary(max_size=60), st.booleans())
def test_no_body_gives_anything_but_values_or_a_refusal(body: bytes, is_ndjson: bool) -> None:
    try:
        values = values_of(body, is_ndjson=is_ndjson, max_events=100)
    except Refusal:
        return
    assert b"".join(b"".join(values).split()) == b"".join(body.split())
    made(*values, partitions=3)
