"""From Kafka to Kafka: the service against a bare transactional pass-through with the same client.

Both read the same topic of one event a message with the same consumer settings, write with the same
producer settings and commit in transactions of the same size; the pass-through does nothing else. The ratio
is what the service costs. Seeded; the digest of the results is printed, and does not depend on how the log
was cut.

    python -m tests.bench.bench_throughput [--events 200000] [--queries 10000] [--streams 1000]
"""

from __future__ import annotations

import argparse
import cProfile
import hashlib
import pstats
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from deploy.kafka.broker import free_ports, start
from service.decode import Decoder
from service.engine.commands import PutQuery, PutSource
from service.engine.effects import EventEffects, Task
from service.engine.engine import Engine
from service.log.kafka import KafkaLog
from service.log.port import Commit, Message, Output, Position, Record, TopicPartition
from service.metrics import Metrics
from service.model import Refusal
from service.wire import Encoder
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

    def log(self, name: str) -> KafkaLog:
        self.number += 1
        log = KafkaLog(
            self.broker.address,
            transactional_id=f"{name}-{self.number}",
            group=name,
            partitions=1,
            max_message_bytes=8 << 20,
        )
        log.open()
        return log


def fill(host: Host, made: list[tuple[bytes, bytes]]) -> None:
    log = host.log("fill")
    log.subscribe([TOPIC])
    for at in range(0, len(made), 20_000):
        log.append_events(TOPIC, [Message(key, value, 0) for key, value in made[at : at + 20_000]])
    log.close()


def pass_through(host: Host, count: int, round_: int) -> float:
    """Seconds to copy the topic, one output an event, in transactions with positions."""
    log = host.log(f"bare-{round_}")
    log.subscribe([TOPIC])
    partition = TopicPartition(TOPIC, 0)
    done, began = 0, 0.0
    while done < count:
        polled = log.poll(timeout_s=1, max_records=BATCH)
        for gained in polled.assignment.gained:
            log.start(gained, None)
            began = time.perf_counter()
        for chunk in polled.chunks:
            outputs = [Output("matches", record.key, record.value or b"") for record in chunk.records]
            log.commit(Commit(outputs, {}, {partition: Position(chunk.next_offset, 0)}))
            done += len(chunk.records)
    seconds = time.perf_counter() - began
    log.close()
    return seconds


class Spy:
    """A log that keeps what is committed, for the digest after the run."""

    def __init__(self, log: KafkaLog) -> None:
        self._log = log
        self.commits: list[Commit] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def commit(self, commit: Commit) -> None:
        self._log.commit(commit)
        self.commits.append(commit)

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


def worker_on(log: Spy) -> Worker:
    return Worker(
        log,  # type: ignore[arg-type]
        Engine,
        Metrics(),
        clock=lambda: 1_700_000_000_000,
        max_message_bytes=1_000_000,
        max_batch_events=BATCH,
    )


def register(host: Host, registered: list[PutQuery]) -> None:
    worker = worker_on(Spy(host.log("register")))
    worker.open()
    for commands in ([PutSource("fleet", SOURCE)], registered):
        done: list[CommandRequest] = []
        worker.step([CommandRequest(commands, True, done.append, _fail)], timeout_s=0.1)
        while not done:
            worker.step([], timeout_s=0.1)
        refused = [one for one in done[0].results if isinstance(one, Refusal)]
        assert not refused, refused[0]
    worker.close()


def service(host: Host, count: int, round_: int, *, profile: bool) -> tuple[float, dict[str, Any]]:
    """Seconds of the worker for the same topic, and what it wrote."""
    spy = Spy(host.log(f"service-{round_}"))
    worker = worker_on(spy)
    worker.open()
    while not worker.positions:
        worker.step([], timeout_s=0.1)
    profiler = cProfile.Profile()
    began = time.perf_counter()
    if profile:
        profiler.enable()
    while min(worker.positions.values()) < count:
        worker.step([], timeout_s=1)
    seconds = time.perf_counter() - began
    profiler.disable()
    worker.close()
    if profile:
        pstats.Stats(profiler, stream=sys.stderr).sort_stats("tottime").print_stats(30)
    return seconds, spy.summary()


def kernels(made: list[tuple[bytes, bytes]], registered: list[PutQuery]) -> dict[str, float]:
    """Microseconds an event of each part of the way, without any log."""
    engine = Engine()
    draft = engine.draft(0)
    entries = [draft.prepare(command).entry for command in [PutSource("fleet", SOURCE), *registered]]
    engine.command([(i, entry.body) for i, entry in enumerate(entries) if entry], 0)
    task = Task(TOPIC, 0)
    engine.assign(task, ())
    queries_ = engine.sets["fleet"]
    decoder = Decoder(queries_.source, queries_.dictionaries, max_bytes=1_000_000)
    encoder = Encoder(queries_, max_ids=1000, max_bytes=1_000_000)
    spent = dict.fromkeys(("decode", "stab alone", "engine", "encode", "state"), 0.0)
    for at in range(0, len(made), BATCH):
        records = [Record(at + i, 0, key, value) for i, (key, value) in enumerate(made[at : at + BATCH])]
        marks = [time.perf_counter()]
        decoded = decoder.decode(records)
        marks.append(time.perf_counter())
        queries_.stab(decoded.batch.values)
        marks.append(time.perf_counter())
        caused = engine.apply(task, decoded.batch)
        marks.append(time.perf_counter())
        for effects in caused:
            if isinstance(effects, EventEffects):
                encoder.events(effects, decoded.originals)
        marks.append(time.perf_counter())
        engine.state_records(task)
        marks.append(time.perf_counter())
        for part, began, ended in zip(spent, marks, marks[1:], strict=False):
            spent[part] += ended - began
    return {part: seconds / len(made) * 1e6 for part, seconds in spent.items()}


def _fail(error: BaseException) -> None:
    raise error


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--streams", type=int, default=1_000)
    parser.add_argument("--hits", type=float, default=1.0, help="queries that an event satisfies, on average")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--profile", action="store_true", help="profile the first round of the service")
    args = parser.parse_args()
    made = events(args.events, args.streams, args.seed)
    registered = queries(args.queries, args.seed, args.hits)
    print(f"{args.events} events, {args.streams} streams, {args.queries} queries, seed {args.seed}")
    with tempfile.TemporaryDirectory() as directory:
        host = Host(Path(directory))
        try:
            register(host, registered)
            fill(host, made)
            for round_ in range(args.rounds):
                bare = pass_through(host, args.events, round_)
                mine, summary = service(host, args.events, round_, profile=args.profile and round_ == 0)
                print(
                    f"ratio {bare / mine:.2f}: service {args.events / mine:,.0f} events/s, "
                    f"pass-through {args.events / bare:,.0f} events/s; {summary}",
                    flush=True,
                )
        finally:
            host.broker.stop()
    parts = kernels(made, registered)
    print("us an event, no log: " + ", ".join(f"{part} {us:.2f}" for part, us in parts.items()))


if __name__ == "__main__":
    main()
