"""The broker goes away and comes back: nothing is dropped or done twice, and those who ask are answered.

``FAULTS_AWAY_S`` is how long it is away.
"""

from __future__ import annotations

import gc
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from deploy.kafka.broker import Broker, free_ports, start
from tests.api.harness import eventually
from tests.faults.fleet import LOG_TIMEOUT_S, SESSION_S, WITHIN_S
from tests.faults.world import World, world

pytestmark = [pytest.mark.kafka, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]

#: Past every timeout that there is: of the group, of requests, of transactions. What holds for so long holds
#: for as long as you like, since nothing is left that could run out.
AWAY_S = float(os.environ.get("FAULTS_AWAY_S", 1.5 * LOG_TIMEOUT_S + SESSION_S + 3))
READ_S = 4 * LOG_TIMEOUT_S


class Mortal:
    """A broker of one's own, that comes back with what it had."""

    def __init__(self, folder: Path) -> None:
        self._ports = free_ports(2)
        self._folder = folder
        self.node: Broker
        self.start()

    def start(self) -> None:
        self.node = start(*self._ports, self._folder)


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[Mortal]:
    one = Mortal(tmp_path / "node")
    yield one
    one.node.kill()
    gc.collect()  # the sockets of attempts to connect, which the library leaves behind


def read(one: World, path: str) -> httpx.Response:
    return one.say("GET", path, timeout=READ_S)


def test_a_broker_that_is_away_is_waited_for(mortal: Mortal, tmp_path: Path) -> None:
    with world(tmp_path, mortal.node.address, "away.", random.randrange(1 << 20)) as one:
        one.timed = False
        one.begin("a")
        one.insist(lambda: one.say("PUT", "/v1/queries/all", json={"source": "s", "where": "x > -1"}))
        one.send(300)
        one.catch_up()
        asked = [f"/v1/queries/all{what}" for what in ("", "/streams")]
        before = [read(one, path).content for path in asked]
        mortal.node.kill()
        answers = {"reads": 0, "writes": 0}
        until = time.monotonic() + AWAY_S
        while time.monotonic() < until or not all(answers.values()):
            for method, path, body in (
                ("PUT", "/v1/queries/new", {"source": "s", "where": "x > 1"}),
                ("POST", "/v1/events?source=s", {"stream_id": "v1", "x": 1}),
                ("POST", "/v1/events?source=s&wait=true", {"stream_id": "v1", "x": 1}),
                ("DELETE", "/v1/streams/v1?source=s", None),
            ):
                answer = one.say(method, path, json=body, timeout=READ_S)
                assert (answer.status_code, answer.json()["reason"]) == (503, "unavailable"), answer.text
                assert int(answer.headers["retry-after"]) >= 1
                answers["writes"] += 1
            assert [read(one, path).content for path in asked] == before
            answers["reads"] += 1
            (living,) = one.fleet.living()
            assert httpx.get(f"{living.url}/healthz", timeout=READ_S).status_code == 200
        assert b"rangewatch_log_away 1.0" in read(one, "/metrics").content
        mortal.start()
        one.send(300)
        one.insist(lambda: one.say("PUT", "/v1/queries/new", json={"source": "s", "where": "x > 1"}))
        one.catch_up()
        assert [worker.alive for worker in one.fleet.workers.values()] == [True], "it has never ended"
        assert b"rangewatch_log_away 0.0" in read(one, "/metrics").content
        one.judge()


def test_a_broker_that_is_restarted_under_load(mortal: Mortal, tmp_path: Path) -> None:
    with world(tmp_path, mortal.node.address, "restarted.", random.randrange(1 << 20)) as one:
        one.timed = False
        one.begin("a", "b")
        one.send(400)
        mortal.node.kill()
        mortal.start()
        one.send(200)
        one.insist(lambda: one.bulk(20))
        eventually(lambda: all(worker.ready for worker in one.fleet.living()), "ready", within_s=WITHIN_S)
        assert len(one.fleet.living()) == 2, "nobody has ended"
        one.judge()
