"""What the benchmarks on Kafka share: a broker, seeded events and queries, and the two that are compared.

``Bare`` is the pass-through: it reads with the same consumer, writes one output an event with the same
producer and commits with positions in transactions, by the same ``KafkaLog``; it does nothing else.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
from kafka import KafkaAdminClient
from kafka.errors import UnknownTopicOrPartitionError

from deploy.kafka.broker import free_ports, start
from service.engine.commands import PutQuery, PutSource
from service.engine.engine import Engine
from service.garbage import at_start
from service.log.kafka import KafkaLog
from service.log.port import Commit, Message, Output, Polled, Position
from service.metrics import Metrics
from service.model import Refusal
from service.worker import CommandRequest, Worker

TOPIC = "events.fleet"
BATCH = 10_000
SOURCE = {"attributes": {"lat": "number", "lon": "number"}}


def events(count: int, streams: int, seed: int) -> list[tuple[bytes, bytes]]:
    """Random walks in the unit square, one event a message; (key, value)."""
    rng = np.random.default_rng(seed)
    place = rng.random((streams, 2))
    made = []
    who = rng.integers(0, streams, count)
    steps = rng.normal(0, 0.002, (count, 2))
    for i in range(count):
        s = who[i]
        place[s] = np.clip(place[s] + steps[i], 0, 1)
        lat, lon = place[s].round(6).tolist()
        id = f"vehicle-{s:05d}"
        value = f'{{"stream_id":"{id}","ts":{1_700_000_000_000 + i},"lat":{lat},"lon":{lon}}}'
        made.append((id.encode(), value.encode()))
    return made


def queries(count: int, seed: int, hits: float) -> list[PutQuery]:
    """Square fences, so large that a point lies in ``hits`` of them on average."""
    rng = np.random.default_rng(seed + 1)
    side = (hits / count) ** 0.5
    corners = rng.random((count, 2)) * (1 - side)
    made = []
    for i, (lat, lon) in enumerate(corners.tolist()):
        box = {"lat": {"gte": lat, "lt": lat + side}, "lon": {"gte": lon, "lt": lon + side}}
        made.append(PutQuery(None, {"id": f"fence-{i:05d}", "source": "fleet", "where": {"any": [box]}}))
    return made


class Host:
    """A broker of its own, and logs on it."""

    def __init__(self, directory: Path) -> None:
        port, controller_port = free_ports(2)
        self.broker = start(port, controller_port, directory)
        self.number = 0

    def forget(self) -> None:
        """Nobody has been here: no state, and so no position beside it, is left of another run."""
        with closing(KafkaAdminClient(bootstrap_servers=self.broker.address)) as admin:
            with suppress(UnknownTopicOrPartitionError):
                admin.delete_topics(["state"])
            while "state" in admin.list_topics():
                time.sleep(0.05)

    def log(self, name: str, client: str, prefix: str = "") -> KafkaLog:
        self.number += 1
        log = KafkaLog(
            self.broker.address,
            transactional_id=f"{name}-{self.number}",
            group=name,
            topic_prefix=prefix,
            client=client,
            partitions=1,
            max_message_bytes=8 << 20,
        )
        log.open()
        return log


def fill(host: Host, client: str, made: list[tuple[bytes, bytes]]) -> None:
    log = host.log("fill", client)
    log.subscribe([TOPIC])
    for at in range(0, len(made), 20_000):
        log.append_events(TOPIC, [Message(key, value, 0) for key, value in made[at : at + 20_000]])
    log.close()


class Spy:
    """A log that notes how old events were when they were committed and, if ``keeps``, keeps what was, for
    the digest after the run. What is kept is looked through for garbage now and then, which takes time."""

    def __init__(self, log: KafkaLog, *, keeps: bool = True) -> None:
        self._log = log
        self._keeps = keeps
        self.commits: list[Commit] = []
        self.ages_ms: list[float] = []
        self._stamps: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def poll(self, *, timeout_s: float, max_records: int) -> Polled:
        polled = self._log.poll(timeout_s=timeout_s, max_records=max_records)
        self._stamps += [record.ts for chunk in polled.chunks for record in chunk.records]
        return polled

    def begin_commit(self, commit: Commit) -> Future[None]:
        ended = self._noted(commit)
        under_way = self._log.begin_commit(commit)
        under_way.add_done_callback(lambda _: ended())
        return under_way

    def commit(self, commit: Commit) -> None:
        ended = self._noted(commit)
        self._log.commit(commit)
        ended()

    def _noted(self, commit: Commit) -> Callable[[], None]:
        """Keeps a commit; what is returned is called when it has been made."""
        if self._keeps:
            self.commits.append(commit)
        stamps, self._stamps = self._stamps, []

        def ended() -> None:
            now_ms = time.time() * 1000
            self.ages_ms += [now_ms - stamp for stamp in stamps]

        return ended

    def summary(self) -> dict[str, Any]:
        digest = hashlib.sha256()
        topics: Counter[str] = Counter()
        for commit in self.commits:
            for topic, key, value in commit.outputs:
                topics[topic] += 1
                digest.update(b"%s %s %s\n" % (topic.encode(), key, value))
        state = sum(len(records) for commit in self.commits for records in commit.state.values())
        return {
            **topics,
            "state records": state,
            "commits": len(self.commits),
            "digest": digest.hexdigest()[:16],
        }


class Bare:
    """The pass-through, step by step; ``done`` is how many events it has committed."""

    def __init__(self, log: Spy) -> None:
        self._log = log
        self.done = 0
        self.started = False
        log.subscribe([TOPIC])

    def step(self) -> None:
        polled = self._log.poll(timeout_s=1, max_records=BATCH)
        for gained in polled.assignment.gained:
            self._log.start(gained, None)
            self.started = True
        for chunk in polled.chunks:
            outputs = [Output("matches", record.key, record.value or b"") for record in chunk.records]
            self._log.commit(Commit(outputs, {}, {chunk.partition: Position(chunk.next_offset, 0)}))
            self.done += len(chunk.records)


def opened(log: Spy) -> Worker:
    """A worker that has partitions, started as the service starts it."""
    worker = worker_on(log)
    with at_start():
        worker.open()
    while not worker.positions:
        worker.step([], timeout_s=0.1)
    return worker


def worker_on(log: Spy) -> Worker:
    return Worker(
        log,  # type: ignore[arg-type]
        Engine,
        Metrics(),
        clock=lambda: 1_700_000_000_000,
        max_message_bytes=1_000_000,
        max_batch_events=BATCH,
    )


def register(host: Host, client: str, registered: list[PutQuery], prefix: str = "") -> None:
    worker = worker_on(Spy(host.log("register", client, prefix)))
    worker.open()
    for commands in ([PutSource("fleet", SOURCE)], registered):
        done: list[CommandRequest] = []
        worker.step([CommandRequest(commands, True, done.append, _fail)], timeout_s=0.1)
        while not done:
            worker.step([], timeout_s=0.1)
        refused = [one for one in done[0].results if isinstance(one, Refusal)]
        assert not refused, refused[0]
    worker.close()


def _fail(error: BaseException) -> None:
    raise error
