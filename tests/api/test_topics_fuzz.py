"""Any bytes on the topic of a source: events or dead letters, each counted, and the service goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from service.api.outputs import schema
from service.engine.commands import PutSource
from service.log.port import Message
from tests.api.harness import TIMEOUT_S, Running, running
from tests.unit.encoders import AVRO, PROTOBUF, avro, protobuf
from tests.unit.test_bytes import KEY, VALUE
from tests.unit.test_decode_binary import spoilt

SOURCE = {
    "attributes": {"x": "number", "lat": "number", "kind": "category"},
    "paths": {"lat": "position.lat"},
    "missing": "carry",
    "nulls": "absent",
}


FORMATS = {"avro": AVRO, "protobuf": PROTOBUF}


@pytest.fixture(scope="module")
def flooded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("flood"), max_message_bytes=200, max_streams=50) as service:
        service.client.put("/v1/sources/s", json=SOURCE).raise_for_status()
        body = {"source": "s", "where": "x > 0 or kind == 'tug'", "on": ["match", "enter", "leave", "cross"]}
        service.client.put("/v1/queries/q", json=body).raise_for_status()
        for name, format in FORMATS.items():
            # Not over HTTP, where it is longer than the messages that this service takes.
            put = PutSource(name, {**SOURCE, "format": format})
            service.runtime.command([put], atomic=True).result(TIMEOUT_S)
            service.client.put(f"/v1/queries/{name}", json={**body, "source": name}).raise_for_status()
        yield service


_turns = count()


@settings(suppress_health_check=list(HealthCheck), deadline=None)
@given(st.lists(st.tuples(KEY, VALUE), min_size=1, max_size=8))
def test_whatever_comes_is_matched_or_a_dead_letter(
    flooded: Running, messages: list[tuple[bytes | None, bytes | None]]
) -> None:
    flood(flooded, "s", messages)
    known = {"stream_id": "known", "x": next(_turns) % 2}
    (answer,) = flooded.client.post("/v1/match?source=s", json=known).json()["matches"]
    assert answer == (["q"] if known["x"] else [])


@pytest.mark.parametrize("name", FORMATS)
@settings(suppress_health_check=list(HealthCheck), deadline=None, max_examples=40)
@given(drawn=st.data())
def test_whatever_comes_in_another_format_is_too(flooded: Running, name: str, drawn: st.DataObject) -> None:
    value = st.one_of(spoilt(avro if name == "avro" else protobuf), VALUE)
    flood(flooded, name, drawn.draw(st.lists(st.tuples(KEY, value), min_size=1, max_size=8)))


def flood(flooded: Running, source: str, messages: list[tuple[bytes | None, bytes | None]]) -> None:
    receipt = flooded.runtime.send(source, [Message(*one) for one in messages], wait=True).result(TIMEOUT_S)
    assert len(receipt.positions) == len(messages)
    written = receipt.outputs or []
    assert sum(output.topic == "dead_letter" for output in written) == receipt.refused
    for output in written:
        Draft202012Validator(schema(output.topic)).validate(json.loads(output.value))
    assert flooded.client.get("/readyz").status_code == 200
