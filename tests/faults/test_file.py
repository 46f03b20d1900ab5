"""The embedded service is killed, and its disk runs full: what was answered is there, once."""

from __future__ import annotations

import json
import os
import random
import re
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.log.sqlite import SqliteLog
from tests.api.harness import eventually
from tests.cli.conftest import COMMAND, environment, serving
from tests.faults.fleet import WITHIN_S, Fleet
from tests.faults.oracle import by_stream, check_balance

SEED = int(os.environ.get("FAULTS_SEED", random.randrange(1 << 20)))
STREAMS = 7
TOPICS = ("events.s", "matches", "borders")
MANY = 1 << 20


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(tmp_path, ["--log", f"sqlite:{tmp_path / 'log.db'}"])
    yield made
    made.close()


def prepare(url: str) -> None:
    """Every event matches ``all``; ``even`` is entered and left all the time."""
    with httpx.Client(base_url=url, timeout=WITHIN_S) as client:
        client.put("/v1/sources/s", json={"attributes": {"x": "number"}}).raise_for_status()
        client.put("/v1/queries/all", json={"source": "s", "where": "x >= 0"}).raise_for_status()
        even = {"source": "s", "where": "0 <= x < 1", "on": ["enter", "leave"]}
        client.put("/v1/queries/even", json=even).raise_for_status()


def events(first: int, count: int) -> list[dict[str, Any]]:
    numbers = range(first, first + count)
    return [{"stream_id": f"v{n % STREAMS}", "ts": n, "x": n // STREAMS % 2} for n in numbers]


def check(path: Path) -> int:
    """Every event in the file was processed once and in order. Returns how many there are."""
    log = SqliteLog(path)
    log.open()
    try:
        sent, matches, borders = (log.read(topic, after=0, limit=MANY)[0] for topic in TOPICS)
        expected = [(one.offset, row) for one in sent for row in range(len(json.loads(one.value or b"")))]
        origins = [json.loads(record.value or b"")["origin"] for record in matches]
        assert [(origin["offset"], origin["row"]) for origin in origins] == expected
        check_balance(by_stream(("borders", record.key, record.value) for record in borders))
        return len(expected)
    finally:
        log.close()


def test_a_service_that_is_killed_goes_on_where_its_file_is(fleet: Fleet, tmp_path: Path) -> None:
    rng = random.Random(SEED)
    print(f"FAULTS_SEED={SEED}")
    sent = answered = 0
    for life in range(6):
        worker = fleet.start("one")
        eventually(lambda worker=worker: worker.ready, "ready", within_s=WITHIN_S)
        url = worker.url or ""
        if life == 0:
            prepare(url)
        for _ in range(rng.randrange(3, 12)):
            response = httpx.post(
                f"{url}/v1/events?source=s&wait=true", json=events(sent, 50), timeout=WITHIN_S
            )
            assert response.status_code == 200
            assert len(response.json()["outputs"]) >= 50
            sent, answered = sent + 50, answered + 1
        with httpx.Client(base_url=url) as client, pytest.raises(httpx.TimeoutException):
            # The answer is not waited for; the service is in the middle of it when it ends.
            client.post("/v1/events?source=s&wait=true", json=events(sent, 2_000), timeout=rng.random() / 50)
        worker.kill()
        sent += 2_000
    worker = fleet.start("one")
    eventually(lambda: worker.ready, "ready", within_s=WITHIN_S)
    httpx.post(f"{worker.url}/v1/events?source=s&wait=true", json=events(sent, 1), timeout=WITHIN_S)
    worker.stop()
    assert check(tmp_path / "log.db") >= 50 * answered


def test_a_disk_that_is_full_ends_the_service_with_a_word_and_harms_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    output = tmp_path / "full.log"
    with output.open("wb") as out:
        process = subprocess.Popen(
            [COMMAND, "serve", "--port", "0", "--log", f"sqlite:{path}"],
            stdout=out,
            stderr=out,
            env=environment(),
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (3 << 20, 3 << 20)),
        )
    try:
        found = eventually(lambda: re.search(r"listening on (\S+)", output.read_text()), "an address")
        url = found[1]
        eventually(lambda: httpx.get(f"{url}/readyz").status_code == 200, "ready", within_s=WITHIN_S)
        prepare(url)
        answered = 0
        while process.poll() is None:
            body = events(1_000 * answered, 1_000)
            try:
                response = httpx.post(f"{url}/v1/events?source=s&wait=true", json=body, timeout=WITHIN_S)
            except httpx.TransportError:
                break
            if response.status_code != 200:
                assert response.status_code == 503
                break
            answered += 1
        assert answered
    finally:
        process.terminate()
        code = process.wait(WITHIN_S)
    assert code == 1, output.read_text()
    assert f"{path} cannot be used" in output.read_text()
    with serving(tmp_path) as served:
        body = events(1_000 * answered, 1_000)
        response = httpx.post(f"{served.url}/v1/events?source=s&wait=true", json=body, timeout=WITHIN_S)
        assert response.status_code == 200
        assert served.stop() == 0
    assert check(path) >= 1_000 * (answered + 1)
