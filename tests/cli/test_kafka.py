"""The service and ``tail`` on a real broker, as processes."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import httpx
import pytest

from deploy.kafka.broker import Broker
from tests.api.harness import TIMEOUT_S
from tests.api.test_live import Listener
from tests.cli.conftest import Served, eventually_at_work, rangewatch, serving

pytestmark = pytest.mark.kafka

PREFIX = "cli-test."
STREAMS = 20
ROUNDS = 30


@pytest.fixture(scope="module")
def served(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service that has processed one array of many streams."""
    arguments = ("--log", f"kafka:{broker.address}", "--topic-prefix", PREFIX, "--partitions", "3")
    with serving(tmp_path_factory.mktemp("kafka"), *arguments) as served:
        yield served


@pytest.fixture(scope="module")
def answer(served: Served) -> dict[str, Any]:
    with httpx.Client(base_url=served.url, timeout=TIMEOUT_S) as client:
        client.put("/v1/sources/s", json={"attributes": {"x": "number"}}).raise_for_status()
        eventually_at_work(client, partitions=3)
        made = client.put("/v1/queries/q", json={"source": "s", "where": "x > 0"})
        assert len(made.json()["active_from"]["positions"]) == 3
        events = [
            {"stream_id": f"v{stream}", "ts": n, "x": 1 if n % 2 else -1}
            for n in range(ROUNDS)
            for stream in range(STREAMS)
        ]
        sent = client.post("/v1/events?source=s&wait=true", json=events)
        assert sent.status_code == 200, sent.text
        body: dict[str, Any] = sent.json()
        return body


def in_order(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(records, key=lambda record: (record["stream_id"], record["seq"]))


def test_an_array_is_split_by_partition_and_every_stream_keeps_its_order(answer: dict[str, Any]) -> None:
    assert {position["partition"] for position in answer["positions"]} == {0, 1, 2}
    matches = [output["value"] for output in answer["outputs"] if output["topic"] == "matches"]
    ordered = sorted(matches, key=lambda match: match["stream_id"])
    streams = {
        id: [match["ts"] for match in group] for id, group in groupby(ordered, lambda m: m["stream_id"])
    }
    assert streams == {f"v{stream}": list(range(1, ROUNDS, 2)) for stream in range(STREAMS)}
    partitions = {(match["stream_id"], match["origin"]["partition"]) for match in matches}
    assert len(partitions) == STREAMS, "a stream lives in one partition"


def test_tail_reads_the_topics_of_the_broker(answer: dict[str, Any], broker: Broker) -> None:
    def tail(*more: object) -> list[str]:
        source = ("--log", f"kafka:{broker.address}", "--topic-prefix", PREFIX)
        done = rangewatch("tail", "borders", "--once", *source, *more)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    written = [output["value"] for output in answer["outputs"] if output["topic"] == "borders"]
    read = [json.loads(line) for line in tail("--after", "0", "--json")]
    assert in_order([record["value"] for record in read]) == in_order(written)
    last = tail("--after", "-2")
    assert len(last) == 6, "the last two of each of three partitions"
    assert all("s/v" in line and (" + q" in line or " - q" in line) for line in last)


def test_topics_are_not_read_over_http_on_kafka(served: Served, answer: dict[str, Any]) -> None:
    response = httpx.get(f"{served.url}/v1/topics/borders")
    assert (response.status_code, response.json()["reason"]) == (501, "not_supported")
    assert f"{PREFIX}borders" in response.json()["detail"]


def test_a_stop_cuts_whoever_listens_and_leaves_the_group(broker: Broker, tmp_path: Path) -> None:
    """Within times that nobody would wait for: else the next worker would get no partition."""
    arguments = ("--log", f"kafka:{broker.address}", "--topic-prefix", "cli-stop.", "--partitions", "2")
    arguments = (*arguments, "--group", "cli-stop", "--stop-timeout-s", "1e6", "--session-timeout-s", "1200")
    event = {"stream_id": "v", "x": 1}
    with (
        serving(tmp_path, *arguments, "--worker", "one") as served,
        httpx.Client(base_url=served.url, timeout=TIMEOUT_S) as client,
    ):
        client.put("/v1/sources/s", json={"attributes": {"x": "number"}}).raise_for_status()
        client.put("/v1/queries/q", json={"source": "s", "where": "x > 0"}).raise_for_status()
        with client.stream("GET", "/v1/live?source=s") as response:
            live = Listener(response)
            assert live.picture() == {}
            client.post("/v1/events?source=s&wait=true", json=event).raise_for_status()
            assert next(live)[0] == "borders"
            served.process.send_signal(signal.SIGTERM)
            assert list(live) == [("cut", {"reason": "stopping"})]
        assert served.process.wait(TIMEOUT_S) == 0
        assert "Traceback" not in served.log.read_text()
    with (
        serving(tmp_path, *arguments, "--worker", "two") as served,
        httpx.Client(base_url=served.url, timeout=TIMEOUT_S) as client,
    ):
        answer = client.post("/v1/events?source=s&wait=true", json=event).json()
        assert [output["topic"] for output in answer["outputs"]] == ["matches"], "it is inside already"


def test_a_topic_or_a_broker_that_is_not_there_is_said_so(broker: Broker) -> None:
    done = rangewatch(
        "tail", "borders", "--once", "--log", f"kafka:{broker.address}", "--topic-prefix", "no."
    )
    assert done.returncode == 1
    assert "no.borders" in done.stderr
    done = rangewatch("tail", "borders", "--once", "--log", "kafka:127.0.0.1:9")
    assert done.returncode == 3
    assert len(done.stderr.splitlines()) == 1
