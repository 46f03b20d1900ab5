"""One worker against two in one group: how much faster processes on a real broker work a backlog off.

Each round is a group of its own over four partitions: the workers take them up while they are empty, and
stand still (SIGSTOP) while the backlog is written. Then the time until the group has committed all of it
counts. Beside it stands the CPU time of the workers, since on a machine with few cores the broker takes its
share. ``--share`` gives each worker the same part of a core and no more, one or many: a machine in small, in
which there are cores enough (Linux control groups, as root). The records written are compared between the
rounds by their digest.

    python -m tests.bench.bench_workers [--events 200000] [--queries 10000] [--streams 1000] [--workers 1 2]
        [--share 0.3]
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import signal
import tempfile
import time
from collections.abc import Iterable
from itertools import product
from pathlib import Path

import httpx
from kafka import KafkaProducer

from deploy.kafka.broker import free_ports, start
from tests.api.harness import eventually
from tests.bench.bench_throughput import SOURCE, events, queries
from tests.faults.fleet import PARTITIONS, Fleet, Worker
from tests.faults.history import Broker as Reader

WITHIN_S = 900.0
LOOK_EVERY_S = 0.05
_GROUPS = Path("/sys/fs/cgroup/cpu")
_PERIOD_US = 20_000


def cpu_s(pid: int) -> float:
    """CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def owned(worker: Worker) -> int:
    """How many partitions a worker has, as it says itself now and then."""
    return httpx.get(f"{worker.url}/metrics", timeout=WITHIN_S).text.count("rangewatch_consumer_lag_events{")


def confine(worker: Worker, share: float) -> Path:
    """Gives a process so much of a core. Returns its control group."""
    group = _GROUPS / f"rangewatch-{worker.pid}"
    group.mkdir()
    (group / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
    (group / "cpu.cfs_quota_us").write_text(str(int(share * _PERIOD_US)))
    (group / "cgroup.procs").write_text(str(worker.pid))
    return group


def dissolve(groups: Iterable[Path]) -> None:
    """Removes control groups whose processes have ended."""
    for group in groups:
        eventually(lambda group=group: not (group / "cgroup.procs").read_text(), "the end of a worker")
        group.rmdir()


def work_off(
    address: str,
    folder: Path,
    prefix: str,
    workers: int,
    made: list[tuple[bytes, bytes]],
    fences: int,
    share: float | None,
) -> tuple[float, float, str]:
    """Wall and CPU seconds to work off the backlog, and a digest of what was written."""
    reader, group = Reader(address, prefix), f"{prefix}group"
    arguments = ["--log", f"kafka:{address}", "--topic-prefix", prefix, "--group", group]
    patient = ["--session-timeout-s", "120"]  # longer than they stand still
    fleet = Fleet(folder, [*arguments, *patient, "--partitions", str(PARTITIONS)])
    groups: list[Path] = []
    with contextlib.ExitStack() as ending:
        ending.callback(dissolve, groups)
        ending.callback(fleet.close)
        for number in range(workers):
            worker = fleet.start(f"w{number}")
            eventually(lambda worker=worker: worker.ready, "ready", within_s=WITHIN_S)
        with httpx.Client(base_url=worker.url or "", timeout=WITHIN_S) as client:
            client.put("/v1/sources/fleet", json=SOURCE).raise_for_status()
            bodies = [command.body for command in queries(fences, 7, 1.0)]
            lines = "\n".join(map(json.dumps, bodies)).encode()
            client.post("/v1/queries:bulk", content=lines).raise_for_status()
        topic, last = "events.fleet", reader.read("queries")[-1].record.offset

        def shared() -> bool:
            positions = reader.committed(topic, group).values()
            return len(positions) == PARTITIONS and all(position.command > last for position in positions)

        eventually(shared, "all partitions have all queries", within_s=WITHIN_S)
        for one in fleet.living():
            of_one = PARTITIONS // workers
            eventually(lambda one=one, n=of_one: owned(one) == n, "an equal share", within_s=WITHIN_S)
        for one in fleet.living():
            one.signal(signal.SIGSTOP)
        producer = KafkaProducer(bootstrap_servers=address, acks="all", linger_ms=20, batch_size=1 << 18)
        for key, value in made:
            producer.send(prefix + topic, value, key)
        producer.close()
        ends = reader.ends(topic)
        if share is not None:
            groups += [confine(worker, share) for worker in fleet.living()]
        before = sum(cpu_s(one.pid) for one in fleet.living())
        began = time.perf_counter()
        for one in fleet.living():
            one.signal(signal.SIGCONT)
        with reader.admin() as admin:
            while {n: at.event for n, at in reader.committed_by(admin, topic, group).items()} != ends:
                time.sleep(LOOK_EVERY_S)
        wall = time.perf_counter() - began
        cpu = sum(cpu_s(one.pid) for one in fleet.living()) - before
    written = sorted((read.record.key or b"", read.record.value or b"") for read in reader.read("matches"))
    return wall, cpu, hashlib.sha256(b"".join(value for _, value in written)).hexdigest()[:12]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--streams", type=int, default=1_000)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3, help="the first one warms the broker up")
    parser.add_argument("--share", type=float, help="of a core, for each worker; all there is if not given")
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    made = events(args.events, args.streams, args.seed)
    each = "all it can get" if args.share is None else f"{args.share:g} of a core"
    print(f"{args.events} events, {args.streams} streams, {args.queries} queries, seed {args.seed}, "
          f"{os.cpu_count()} cores for workers, broker and producer, {each} for each worker")  # fmt: skip
    best: dict[int, float] = {}
    with tempfile.TemporaryDirectory() as directory:
        broker = start(*free_ports(2), Path(directory) / "node")
        try:
            for round_, number in product(range(args.rounds), args.workers):
                name = f"round{round_}-{number}"
                folder = Path(directory) / name
                folder.mkdir()
                wall, cpu, digest = work_off(
                    broker.address, folder, f"{name}.", number, made, args.queries, args.share
                )
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
