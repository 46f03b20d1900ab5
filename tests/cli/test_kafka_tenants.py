"""Two tenants on a real broker, through a restart: each is told all of its own, numbered for itself."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from kafka import KafkaConsumer, TopicPartition

from deploy.kafka.broker import Broker
from service.keys import Role
from tests.api.harness import TIMEOUT_S
from tests.api.test_access import add_key
from tests.cli.conftest import Served, eventually_at_work, serving

pytestmark = pytest.mark.kafka

PREFIX = "cli-tenants."
PARTITIONS = 2
STREAMS = [f"v{n}" for n in range(6)]
TENANTS = ("default", "acme")
#: Under one id a query of each: other streams are in, and the second is in at other times too.
WHERE = {"default": "x > 0", "acme": "x > 1 or x < -1"}
INSIDE = {"default": lambda x: x > 0, "acme": lambda x: x > 1 or x < -1}
VALUES = (2, 1, -2, 0, 2, 2, -1)


def client(served: Served, key: str) -> httpx.Client:
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.Client(base_url=served.url, headers=headers, timeout=TIMEOUT_S)


def committed(broker: Broker, topic: str) -> Iterator[dict[str, Any]]:
    """The records of a topic as its consumers see them, by partition."""
    name = PREFIX + topic
    consumer = KafkaConsumer(
        bootstrap_servers=broker.address, isolation_level="read_committed", enable_auto_commit=False
    )
    try:
        places = [TopicPartition(name, number) for number in range(PARTITIONS)]
        consumer.assign(places)
        ends = consumer.end_offsets(places)
        consumer.seek_to_beginning(*places)
        while any(consumer.position(place) < ends[place] for place in places):
            for found in consumer.poll(timeout_ms=500).values():
                yield from (json.loads(record.value) for record in found)
    finally:
        consumer.close()


def test_each_tenant_is_told_all_of_its_own_and_nothing_else(broker: Broker, tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    keys = {tenant: add_key(file, tenant, Role.ADMIN, tenant=tenant) for tenant in TENANTS}
    arguments = ("--log", f"kafka:{broker.address}", "--topic-prefix", PREFIX, "--partitions", PARTITIONS)
    arguments = (*arguments, "--keys-file", file)
    sent: list[tuple[str, int]] = []

    def send(owner: httpx.Client, values: tuple[int, ...]) -> None:
        for n, value in enumerate(values):
            events = [{"stream_id": stream, "x": value + (n + i) % 2} for i, stream in enumerate(STREAMS)]
            owner.post("/v1/events?source=s&wait=true", json=events).raise_for_status()
            sent.extend((event["stream_id"], event["x"]) for event in events)

    with serving(tmp_path, *arguments) as served, client(served, keys["default"]) as owner:
        owner.put("/v1/sources/s", json={"attributes": {"x": "number"}}).raise_for_status()
        eventually_at_work(owner, partitions=PARTITIONS)
        for tenant in TENANTS:
            with client(served, keys[tenant]) as one:
                made = one.put("/v1/queries/area", json={"source": "s", "where": WHERE[tenant]})
                assert made.status_code == 201, "an id is one within its tenant"
        send(owner, VALUES[:4])
        assert served.stop() == 0
    with serving(tmp_path, *arguments) as served, client(served, keys["default"]) as owner:
        send(owner, VALUES[4:])
        inside = {}
        for tenant in TENANTS:
            with client(served, keys[tenant]) as one:
                inside[tenant] = set(one.get("/v1/queries/area/streams").json()["streams"])

    matched: dict[tuple[str, str], int] = defaultdict(int)
    for match in committed(broker, "matches"):
        assert match["queries"] == ["area"]
        matched[match["tenant"], match["stream_id"]] += 1
    borders: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for record in committed(broker, "borders"):
        borders[record["tenant"], record["stream_id"]].append(record)
    for tenant in TENANTS:
        for stream in STREAMS:
            states = [INSIDE[tenant](x) for name, x in sent if name == stream]
            assert matched[tenant, stream] == sum(states)
            changes = [
                after for before, after in zip([False, *states], states, strict=False) if before != after
            ]
            records = borders[tenant, stream]
            assert [record["seq"] for record in records] == list(range(1, len(changes) + 1))
            assert [record["enter"] == ["area"] for record in records] == changes
            assert [record["leave"] == ["area"] for record in records] == [not one for one in changes]
            assert (stream in inside[tenant]) == states[-1]
    assert {tenant for tenant, _ in borders} == set(TENANTS)
