"""From Kafka to Kafka: the service against a bare transactional pass-through, over both client libraries.

Both read the same topic of one event a message with the same consumer settings, write with the same
producer settings and commit in transactions of the same size; the pass-through does nothing else. The ratio
is what the service costs. Then the time from produce to committed result is measured at half of the service's
load (``bench_latency``). Seeded; the digest of the results is printed, and depends neither on how the log was
cut nor on the library, or the run fails.

    python -m tests.bench.bench_throughput [--events 200000] [--queries 10000] [--streams 1000]
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from service.decode import Decoder
from service.engine.commands import PutQuery, PutSource
from service.engine.effects import EventEffects, Task
from service.engine.engine import Engine
from service.garbage import collect_seldom
from service.log.kafka_library import CONFLUENT_KAFKA, KAFKA_PYTHON
from service.log.port import Record
from service.wire import Encoder
from tests.bench.bench_latency import latency
from tests.bench.on_kafka import (
    BATCH,
    SOURCE,
    TOPIC,
    Bare,
    Host,
    Spy,
    events,
    fill,
    opened,
    queries,
    register,
)


class Spent(NamedTuple):
    """Seconds of a run: by the clock, and of this process with the library's threads."""

    wall: float
    cpu: float


class _Watch:
    def __init__(self) -> None:
        self._began = time.perf_counter(), time.process_time()

    def spent(self) -> Spent:
        return Spent(time.perf_counter() - self._began[0], time.process_time() - self._began[1])


def pass_through(host: Host, client: str, count: int, round_: int) -> Spent:
    """What it takes to copy the topic."""
    host.forget()
    log = Spy(host.log(f"bare-{client}-{round_}", client))
    bare = Bare(log)
    while not bare.started:
        bare.step()
    watch = _Watch()
    while bare.done < count:
        bare.step()
    spent = watch.spent()
    log.close()
    return spent


def service(
    host: Host, client: str, count: int, round_: int, *, profile: bool
) -> tuple[Spent, dict[str, Any]]:
    """What it takes the worker for the same topic, and what it wrote."""
    host.forget()
    spy = Spy(host.log(f"service-{client}-{round_}", client))
    worker = opened(spy)
    profiler = cProfile.Profile()
    watch = _Watch()
    if profile:
        profiler.enable()
    while min(worker.positions.values()) < count:
        worker.step([], timeout_s=1)
    worker.settle()
    spent = watch.spent()
    profiler.disable()
    worker.close()
    if profile:
        pstats.Stats(profiler, stream=sys.stderr).sort_stats("tottime").print_stats(30)
    return spent, spy.summary()


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


def compared(host: Host, client: str, args: argparse.Namespace, round_: int) -> tuple[float, str]:
    """Prints one round; returns the events a second of the service and the digest of what it wrote."""
    bare = pass_through(host, client, args.events, round_)
    mine, summary = service(host, client, args.events, round_, profile=args.profile and round_ == 0)
    print(
        f"{client}: ratio {bare.wall / mine.wall:.2f} (CPU {bare.cpu / mine.cpu:.2f}): "
        f"service {args.events / mine.wall:,.0f} events/s at {mine.cpu / args.events * 1e6:.1f} us of CPU, "
        f"pass-through {args.events / bare.wall:,.0f} at {bare.cpu / args.events * 1e6:.1f}; "
        f"load {os.getloadavg()[0]:.1f}; {summary}",
        flush=True,
    )
    return args.events / mine.wall, summary["digest"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--streams", type=int, default=1_000)
    parser.add_argument("--hits", type=float, default=1.0, help="queries that an event satisfies, on average")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--seconds", type=float, default=10, help="how long latencies are measured in a turn; 0: not"
    )
    parser.add_argument(
        "--turns", type=int, default=3, help="how often service and pass-through take turns at that"
    )
    parser.add_argument("--clients", nargs="+", default=[KAFKA_PYTHON, CONFLUENT_KAFKA])
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--profile", action="store_true", help="profile the first round of the service")
    args = parser.parse_args()
    collect_seldom()
    made = events(args.events, args.streams, args.seed)
    registered = queries(args.queries, args.seed, args.hits)
    print(f"{args.events} events, {args.streams} streams, {args.queries} queries, seed {args.seed}")
    with tempfile.TemporaryDirectory() as directory:
        host = Host(Path(directory))
        try:
            register(host, args.clients[0], registered)
            fill(host, args.clients[0], made)
            slowest = dict.fromkeys(args.clients, float("inf"))
            digests = set()
            for round_ in range(args.rounds):
                for client in args.clients:
                    rate, digest = compared(host, client, args, round_)
                    slowest[client] = min(slowest[client], rate)
                    digests.add(digest)
            assert len(digests) == 1, f"the results differ: {digests}"
            for client in args.clients if args.seconds else ():
                rate = slowest[client] / 2
                print(latency(host, client, made, registered, rate, args.seconds, args.turns), flush=True)
        finally:
            host.broker.stop()
    parts = kernels(made, registered)
    print("us an event, no log: " + ", ".join(f"{part} {us:.2f}" for part, us in parts.items()))


if __name__ == "__main__":
    main()
