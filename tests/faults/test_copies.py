"""A producer that sends at least once, to a source with ``dedup``: what is written is as if it had sent once.

Two sources get the same events. To one they are sent once; to the other in blocks that come again, since the
producer has not heard of them, while the service is killed and started anew. Late events are processed like
any others there, so each copy would match once more and move its stream back.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from kafka import KafkaProducer

from deploy.kafka.broker import Broker
from tests.api.harness import eventually
from tests.faults.fleet import WITHIN_S, fleet
from tests.faults.history import Broker as Reader
from tests.faults.oracle import by_stream, check_balance

pytestmark = [pytest.mark.kafka, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]

ONCE, AGAIN = "once", "again"
STREAMS, EACH = 30, 12
SOURCE = {"attributes": {"x": "number"}, "late": "process", "dedup": {"by": "meta.id", "last": EACH}}
QUERIES = {"low": "x < 5", "middle": "3 <= x < 8", "high": "x > 6"}


def block(rng: random.Random, numbers: range) -> list[dict[str, Any]]:
    """Some events of every stream, each with an id and a ``ts`` of its own; as many as a stream remembers."""
    return [
        {
            "stream_id": f"s{stream}",
            "ts": number,
            "x": rng.randrange(10),
            "meta": {"id": f"{stream}-{number}"},
        }
        for number in numbers
        for stream in range(STREAMS)
    ]


def test_blocks_that_come_again_across_a_kill_change_nothing(broker: Broker, tmp_path: Path) -> None:
    rng, prefix = random.Random(7), f"copies-{os.getpid()}."
    reader, group = Reader(broker.address, prefix), f"{prefix}group"
    first, second = block(rng, range(EACH)), block(rng, range(EACH, 2 * EACH))
    half = second[len(second) // 2 :]
    with (
        fleet(tmp_path, broker.address, prefix) as workers,
        closing(KafkaProducer(bootstrap_servers=broker.address, acks="all", linger_ms=5)) as producer,
    ):

        def begin(name: str) -> str:
            worker = workers.start(name)
            eventually(lambda: worker.ready, f"{name} is ready", within_s=WITHIN_S)
            assert worker.url is not None
            return worker.url

        def send(source: str, events: Sequence[dict[str, Any]]) -> None:
            for event in events:
                value, key = json.dumps(event).encode(), event["stream_id"].encode()
                producer.send(f"{prefix}events.{source}", value, key)
            producer.flush(WITHIN_S)

        def done(source: str) -> dict[int, int]:
            committed = reader.committed(f"events.{source}", group)
            return {partition: position.event for partition, position in committed.items()}

        url = begin("killed")
        for source in (ONCE, AGAIN):
            httpx.put(f"{url}/v1/sources/{source}", json=SOURCE, timeout=60).raise_for_status()
            for id, where in QUERIES.items():
                body = {"source": source, "where": where}
                httpx.put(f"{url}/v1/queries/{source}.{id}", json=body, timeout=60).raise_for_status()
        send(AGAIN, first)
        eventually(lambda: sum(done(AGAIN).values()) > 0, "some are processed", within_s=WITHIN_S)
        workers.workers["killed"].kill()
        send(AGAIN, first)
        for events in (second, half, second):
            send(AGAIN, events)
        send(ONCE, [*first, *second])
        begin("next")
        for source in (ONCE, AGAIN):
            ends = reader.ends(f"events.{source}")
            eventually(
                lambda source=source, ends=ends: {**dict.fromkeys(ends, 0), **done(source)} == ends,
                "all is processed",
                within_s=WITHIN_S,
            )
    written = {topic: [read.record for read in reader.read(topic)] for topic in ("matches", "borders")}
    told = {
        source: by_stream(
            (topic, record.key, _of(source, record.value))
            for topic, records in written.items()
            for record in records
            if json.loads(record.value or b"")["source"] == source
        )
        for source in (ONCE, AGAIN)
    }
    assert sum(map(len, told[ONCE].values())) > 2 * EACH * STREAMS
    assert told[AGAIN] == told[ONCE]
    assert any(check_balance(told[AGAIN]).values())
    letters = [json.loads(read.record.value or b"") for read in reader.read("dead_letter")]
    assert {(letter["source"], letter["reason"]) for letter in letters} == {(AGAIN, "duplicate")}
    refused = [json.loads(letter["value"]) for letter in letters]
    assert sorted(refused, key=repr) == sorted([*first, *half, *second], key=repr)


def _of(source: str, value: bytes | None) -> bytes:
    """A record without what tells the two sources apart."""
    record = json.loads(value or b"")
    record["source"] = ""
    record["origin"] = {}
    for field in ("queries", "leave", "enter"):
        if field in record:
            record[field] = [id.removeprefix(f"{source}.") for id in record[field]]
    return json.dumps(record).encode()
