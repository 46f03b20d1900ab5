"""Aggregates on a real broker: one record a partition, which together are the whole, read by ``tail``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from deploy.kafka.broker import Broker
from tests.api.harness import TIMEOUT_S, eventually
from tests.cli.conftest import eventually_at_work, rangewatch, serving

pytestmark = pytest.mark.kafka

PREFIX = "cli-aggregates."
STREAMS = 30


def _tailed(broker: Broker, *more: str) -> list[str]:
    place = ("--log", f"kafka:{broker.address}", "--topic-prefix", PREFIX)
    done = rangewatch("tail", "aggregates", "--once", "--after", "0", *place, *more)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def _last(broker: Broker) -> dict[str, dict[str, Any]]:
    """The last record of each key, as a compacted topic would keep it."""
    records = [json.loads(line) for line in _tailed(broker, "--json")]
    return {record["key"]: record["value"] for record in records}


def test_partitions_add_up_to_the_whole_and_end_with_nobody(broker: Broker, tmp_path: Path) -> None:
    arguments = ("--log", f"kafka:{broker.address}", "--topic-prefix", PREFIX, "--partitions", "3")
    with (
        serving(tmp_path, *arguments) as served,
        httpx.Client(base_url=served.url, timeout=TIMEOUT_S) as client,
    ):
        client.put("/v1/sources/s", json={"attributes": {"x": "number"}}).raise_for_status()
        query = {"source": "s", "where": "x > 0", "aggregates": {"every": "50ms", "of": ["x"]}}
        client.put("/v1/queries/q", json=query).raise_for_status()
        eventually_at_work(client, partitions=3)
        events = [{"stream_id": f"v{stream}", "x": stream} for stream in range(STREAMS)]
        sent = client.post("/v1/events?source=s&wait=true", json=events)
        assert sent.status_code == 200, sent.text

        whole = client.get("/v1/queries/q/aggregates").json()
        assert whole["count"] == STREAMS - 1 and len(whole["partitions"]) == 3
        total = sum(range(STREAMS))
        numbers = {"n": STREAMS - 1, "sum": total, "min": 1, "max": STREAMS - 1, "avg": total / (STREAMS - 1)}
        assert whole["of"] == {"x": numbers}
        parts = {f"q/{part['partition']}": (part["count"], part["of"]) for part in whole["partitions"]}
        eventually(
            lambda: {key: (last["count"], last["of"]) for key, last in _last(broker).items()} == parts,
            "the last records are how things stand",
        )
        client.delete("/v1/queries/q").raise_for_status()
        assert [last["count"] for last in _last(broker).values()] == [0, 0, 0]
        line = _tailed(broker)[-1]
        assert " q  s/" in line and "count=0" in line
