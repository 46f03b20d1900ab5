"""Topics in Avro, with schemas of a registry, and in Protobuf, from a real broker to a real broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from deploy.kafka.broker import Broker
from service.engine.commands import Command, PutQuery, PutSource
from service.log.port import Message
from service.metrics import Metrics
from service.model import Refusal
from service.runtime import Runtime
from service.settings import Settings
from tests.api.harness import TIMEOUT_S, eventually
from tests.log.sites import KafkaSite
from tests.schema_registry import FakeRegistry, schema_registry
from tests.unit.encoders import (
    AVRO_FRAMED,
    BODY,
    PROTOBUF_FRAMED,
    SCHEMA,
    SEEN_INDEX,
    avro,
    framed,
    protobuf,
)

pytestmark = pytest.mark.kafka


@pytest.fixture
def there() -> Iterator[FakeRegistry]:
    with schema_registry() as registry:
        yield registry


@contextmanager
def started(site: KafkaSite, there: FakeRegistry) -> Iterator[Runtime]:
    settings = Settings(schema_registry_url=there.url)
    runtime = Runtime(site.log(), settings, Metrics())
    runtime.start()
    try:
        eventually(lambda: runtime.ready or runtime.failure, "ready")
        yield runtime
    finally:
        runtime.stop(TIMEOUT_S)


def put(runtime: Runtime, *commands: Command) -> None:
    for one in runtime.command(commands, atomic=True).result(TIMEOUT_S):
        assert one is not None
        assert not isinstance(one, Refusal), one


def records(site: KafkaSite, topic: str) -> list[tuple[str, str, str]]:
    """Source, stream and the ids or the reason of all records of an output topic."""
    found = []
    for _, value in site.outputs(topic):
        one: dict[str, Any] = json.loads(value or b"")
        found.append((one["source"], one["stream_id"] or "", one.get("reason") or " ".join(one["queries"])))
    return sorted(found)


def test_events_wait_for_the_registry_through_a_restart_and_none_is_lost(
    broker: Broker, there: FakeRegistry
) -> None:
    site = KafkaSite(broker.address)
    there.put(7, SCHEMA)
    there.mood = 503
    streams = [f"s{i}" for i in range(6)]
    in_avro = [
        Message(stream.encode(), framed(7, avro({"stream_id": stream, "x": 1.0, "kind": "k"})))
        for stream in streams
    ]
    in_protobuf = [
        Message(stream.encode(), framed(3, protobuf({"stream_id": stream, "x": 1.0}), SEEN_INDEX))
        for stream in streams
    ]
    unknown = Message(b"s0", framed(8, b"\0"))
    with started(site, there) as runtime:
        put(
            runtime,
            PutSource("a", {**BODY, "nulls": "absent", "format": AVRO_FRAMED}),
            PutSource("p", {**BODY, "format": PROTOBUF_FRAMED}),
            PutQuery(None, {"id": "in-a", "source": "a", "where": "x > 0"}),
            PutQuery(None, {"id": "in-p", "source": "p", "where": "x > 0"}),
        )
        runtime.send("a", [*in_avro, unknown], wait=False).result(TIMEOUT_S)
        done = runtime.send("p", in_protobuf, wait=True).result(TIMEOUT_S)
        assert done.refused == 0
        eventually(lambda: runtime.held, "the worker says what is wrong")
        assert "503" in (runtime.held or "")
        assert records(site, "matches") == [("p", stream, "in-p") for stream in streams]
    with started(site, there) as runtime:
        eventually(lambda: runtime.held, "the next one waits as well")
        there.mood = "well"
        eventually(lambda: runtime.held is None, "the registry is back")
        done = runtime.send("a", in_avro, wait=True).result(TIMEOUT_S)
        assert done.refused == 0
    matches = records(site, "matches")
    assert [one for one in matches if one[0] == "a"] == [
        ("a", stream, "in-a") for stream in streams for _ in range(2)
    ]
    assert records(site, "dead_letter") == [("a", "", "unknown_schema")]
