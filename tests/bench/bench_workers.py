"""One worker against two in one group: how much faster processes on a real broker work a backlog off.

Each round is a group of its own over four partitions: the workers take them up while they are empty, and
stand still (SIGSTOP) while the backlog is written. Then the time until the group has committed all of it
counts. Beside it stands the CPU time of the workers, since on a machine with few cores the broker takes its
share: where each worker has a core of its own, throughput follows what an event costs in CPU. The records
written are compared between the rounds by their digest.

    python -m tests.bench.bench_workers [--events 200000] [--queries 10000] [--streams 1000] [--workers 1 2]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import tempfile
import time
from itertools import product
from pathlib import Path

import httpx
from kafka import KafkaProducer

from deploy.kafka.broker import free_ports, start
from tests.api.harness import eventually
from tests.bench.bench_throughput import SOURCE, events, queries
from tests.faults.fleet import PARTITIONS, Fleet
from tests.faults.history import Broker as Reader

WITHIN_S = 900.0
LOOK_EVERY_S = 0.05


def cpu_s(pid: int) -> float:
    """CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def work_off(
    address: str, folder: Path, prefix: str, workers: int, made: list[tuple[bytes, bytes]], fences: int
) -> tuple[float, float, str]:
    """Wall and CPU seconds to work off the backlog, and a digest of what was written."""
    reader, group = Reader(address, prefix), f"{prefix}group"
    arguments = ["--log", f"kafka:{address}", "--topic-prefix", prefix, "--group", group]
    patient = ["--session-timeout-s", "120"]  # longer than they stand still
    fleet = Fleet(folder, [*arguments, *patient, "--partitions", str(PARTITIONS)])
    try:
        for number in range(workers):
            worker = fleet.start(f"w{number}")
            eventually(lambda worker=worker: worker.ready, "ready", within_s=WITHIN_S)
        with httpx.Client(base_url=worker.url or "", timeout=WITHIN_S) as client:
            client.put("/v1/sources/fleet", json=SOURCE).raise_for_status()
            bodies = [command.body for command in queries(fences, 7, 1.0)]
            lines = "\n".join(map(json.dumps, bodies)).encode()
            client.post("/v1/queries:bulk", content=lines).raise_for_status()
        topic = "events.fleet"
        eventually(lambda: len(reader.committed(topic, group)) == PARTITIONS, "shared", within_s=WITHIN_S)
        for one in fleet.living():
            one.signal(signal.SIGSTOP)
        producer = KafkaProducer(bootstrap_servers=address, acks="all", linger_ms=20, batch_size=1 << 18)
        for key, value in made:
            producer.send(prefix + topic, value, key)
        producer.close()
        ends = reader.ends(topic)
        before = sum(cpu_s(one.pid) for one in fleet.living())
        began = time.perf_counter()
        for one in fleet.living():
            one.signal(signal.SIGCONT)
        with reader.admin() as admin:
            while {n: at.event for n, at in reader.committed_by(admin, topic, group).items()} != ends:
                time.sleep(LOOK_EVERY_S)
        wall = time.perf_counter() - began
        cpu = sum(cpu_s(one.pid) for one in fleet.living()) - before
    finally:
        fleet.close()
    written = sorted((read.record.key or b"", read.record.value or b"") for read in reader.read("matches"))
    return wall, cpu, hashlib.sha256(b"".join(value for _, value in written)).hexdigest()[:12]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--streams", type=int, default=1_000)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3, help="the first one warms the broker up")
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    made = events(args.events, args.streams, args.seed)
    print(f"{args.events} events, {args.streams} streams, {args.queries} queries, seed {args.seed}, "
          f"{os.cpu_count()} cores for workers, broker and producer")  # fmt: skip
    best: dict[int, float] = {}
    with tempfile.TemporaryDirectory() as directory:
        broker = start(*free_ports(2), Path(directory) / "node")
        try:
            for round_, number in product(range(args.rounds), args.workers):
                name = f"round{round_}-{number}"
                folder = Path(directory) / name
                folder.mkdir()
                wall, cpu, digest = work_off(broker.address, folder, f"{name}.", number, made, args.queries)
                best[number] = max(best.get(number, 0.0), args.events / wall)
                print(
                    f"{number} workers: {args.events / wall:,.0f} events/s, "
                    f"{1e6 * cpu / args.events:.1f} us CPU an event; matches {digest}",
                    flush=True,
                )
        finally:
            broker.stop()
    first = best[args.workers[0]]
    print("best: " + ", ".join(f"{n} workers {rate / first:.2f}" for n, rate in best.items()))


if __name__ == "__main__":
    main()
