"""From the start of the process to ready, with a large embedded file: how long, and whether HTTP answers.

The file is made through the log and the state log directly, as the service itself would have written it:
queries of several forms (boxes in two attributes, with categories, of two disjuncts, as JSON; some that keep
and so are remembered), and streams, each inside some of them. Then ``rangewatch serve`` is started on it as a
process of its own. /healthz is asked all the time by a thread, /readyz now and then; at the end some streams
are asked where they are and compared with what was put into the file. CPU seconds count on a shared machine.

    python -m tests.bench.bench_ready [--queries 1000000] [--streams 1000000] [--file FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np
from numpy.typing import NDArray

from service import wire
from service.engine.commands import Entry, put_entry
from service.engine.delta import MEMBER
from service.engine.effects import Task
from service.engine.engine import Engine, EngineLimits
from service.engine.fingerprint import mark
from service.engine.state import HEARD, Heard, heard_record
from service.language import parse_query, query_body, source_body
from service.log.port import Commit, Position, StateRecord, TopicPartition
from service.log.sqlite import SqliteLog

WIDTH = 1_000.0
KINDS = ("tug", "tanker", "ferry", "yacht")
SOURCE = {"attributes": {"x": "number", "y": "number", "kind": "category"}}
#: One query in so many keeps its members in a wider box, and is remembered with them.
KEEPING = 100
WITHIN_S = 1_800.0
AT_MS = 1_700_000_000_000


class World(NamedTuple):
    """``boxes``: ``float64[n, 4]``, x from, to, y from, to; ``points``: ``float64[m, 2]``."""

    boxes: NDArray[np.float64]
    points: NDArray[np.float64]


def world(queries: int, streams: int, seed: int) -> World:
    """A point lies in about ten boxes, however many there are."""
    rng = np.random.default_rng(seed)
    side = WIDTH * np.sqrt(10 / max(queries, 1))
    low = rng.uniform(0, WIDTH - side, (queries, 2)).round(3)
    high = (low + rng.uniform(0.5 * side, 1.5 * side, (queries, 2))).round(3)
    boxes = np.stack([low[:, 0], high[:, 0], low[:, 1], high[:, 1]], axis=1)
    points = rng.uniform(0, WIDTH, (streams, 2)).round(3)
    members = min(streams, queries // KEEPING)
    points[:members] = boxes[: members * KEEPING : KEEPING, [0, 2]]  # of the queries that keep, one each
    return World(boxes, points)


def bodies(boxes: NDArray[np.float64]) -> Iterator[dict[str, Any]]:
    """What clients would put: every tenth of some other form than a box of two attributes."""
    for i, (x0, x1, y0, y1) in enumerate(boxes.tolist()):
        body: dict[str, Any] = {"id": f"q{i}", "source": "fleet", "on": ["enter", "leave"]}
        box = f"{x0} <= x < {x1} and {y0} <= y < {y1}"
        if i % KEEPING == 0:
            body |= {"where": box, "keep": f"x >= {x0 - 1} and x < {x1 + 1} and {y0 - 1} <= y < {y1 + 1}"}
        elif i % 10 == 3:
            body |= {"where": {"any": [{"x": {"gte": x0, "lt": x1}, "y": {"gte": y0, "lt": y1}}]}}
        elif i % 10 == 5:
            body |= {"where": f"{box} and kind in ('{KINDS[i % 4]}', '{KINDS[i // 10 % 4]}')"}
        elif i % 10 == 7:
            body |= {"where": f"({box}) or x > {WIDTH + i % 7}", "tags": {"team": f"t{i % 50}"}}
        else:
            body |= {"where": box}
        yield body


def entries(engine: Engine, made: Iterator[dict[str, Any]]) -> Iterator[Entry]:
    """The entries of the command log, as the service writes them."""
    sources, limits = engine.catalog.sources, engine.catalog.limits
    for body in made:
        query = parse_query(body, sources, id=None, now_ms=None, limits=limits)
        yield put_entry(query.id, query_body(query))


def build(path: Path, queries: int, streams: int, seed: int) -> World:
    """Makes the file."""
    made = world(queries, streams, seed)
    engine, task = Engine(engine_limits=EngineLimits(streams=streams)), Task("events.fleet", 0)
    log = SqliteLog(path, max_message_bytes=4 << 20)
    log.open()
    first = {"v": 1, "op": "source", "name": "fleet"}
    engine.command([(0, {**first, "source": SOURCE})], AT_MS)
    body = {**first, "source": source_body(engine.catalog.sources["fleet"])}
    log.append_commands(
        [wire.command_message(Entry("source:fleet:", body), at_ms=AT_MS)], after=log.end_of_commands()
    )
    fingerprint, end = mark(0), 1
    left = entries(engine, bodies(made.boxes))
    while some := list(islice(left, 10_000)):
        log.append_commands(
            [wire.command_message(one, at_ms=AT_MS, by="maker") for one in some], after=log.end_of_commands()
        )
        keeping = [(end + i, one.body) for i, one in enumerate(some) if one.body["query"]["keep"]]
        engine.command(keeping, AT_MS)
        for offset in range(end, end + len(some)):
            fingerprint ^= mark(offset)
        end += len(some)
    engine.assign(task, [])
    records = [StateRecord(*one) for one in state(engine, task, made.points)]
    records = [one for one in records if one.key != HEARD]
    records.append(StateRecord(*heard_record(Heard(end, fingerprint))))
    partition = TopicPartition(*task)
    log.commit(Commit([], {partition: records}, {partition: Position(0, end)}))
    log.close()
    return made


def state(engine: Engine, task: Task, points: NDArray[np.float64]) -> list[tuple[bytes, bytes | None]]:
    """Streams with a last value, and those of the queries that keep as their members."""
    table, queries = engine.tables[task], engine.queries_of(task)
    rows = np.array([table.add(f"s{i}") for i in range(len(points))], dtype=np.int32)
    kinds = queries.dictionaries["kind"].column(KINDS)
    table.known[rows] = True
    table.seq[rows] = 1
    table.last_ts[rows] = table.seen[rows] = AT_MS
    table.time.move(np.array([AT_MS]), np.array([True]), np.array([AT_MS]))
    table.point[rows] = np.column_stack([points, kinds[rows % len(kinds)]])
    for row, slot in zip(rows.tolist(), range(len(queries.slot_of)), strict=False):
        table.memory.set(row, slot, (MEMBER, AT_MS, 0))
    table.touch(rows)
    return engine.state_records(task)


class Answers(threading.Thread):
    """Asks /healthz all the time; ``longest_s`` is the longest that an answer took."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._url = url
        self.ended = threading.Event()
        self.longest_s = 0.0
        self.waits: list[float] = []

    def run(self) -> None:
        with httpx.Client(base_url=self._url, timeout=WITHIN_S) as client:
            while not self.ended.wait(0.05):
                began = time.perf_counter()
                client.get("/healthz").raise_for_status()
                self.waits.append(time.perf_counter() - began)
        self.longest_s = max(self.waits)


def used(pid: int) -> tuple[float, float, float]:
    """CPU seconds of a process, MB of memory that are its own now, and at the most."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    cpu = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    status = Path(f"/proc/{pid}/status").read_text()
    now, most = (float(re.search(rf"{name}:\s+(\d+)", status)[1]) / 1024 for name in ("VmRSS", "VmHWM"))  # type: ignore[index]
    return cpu, now, most


def listening(process: subprocess.Popen[bytes], output: Path) -> str:
    """The address of a service, once it says it."""
    deadline = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline and process.poll() is None:
        if found := re.search(r"listening on (http://\S+)", output.read_text()):
            return found[1]
        time.sleep(0.02)
    raise SystemExit(f"it does not listen:\n{output.read_text()}")


def check(client: httpx.Client, made: World) -> int:
    """Compares some streams with the boxes that hold them; how many memberships were seen."""
    seen = 0
    for i in range(0, len(made.points), max(len(made.points) // 50, 1)):
        x, y = made.points[i]
        x0, x1, y0, y1 = made.boxes.T
        holds = set(np.flatnonzero((x0 <= x) & (x < x1) & (y0 <= y) & (y < y1)).tolist())
        answer = client.get(f"/v1/streams/s{i}", params={"source": "fleet"}).raise_for_status().json()
        inside = {int(id[1:]) for id in answer["inside"]}
        certain = {q for q in holds if q % 10 != 5 and (q % KEEPING or q == i * KEEPING)}
        assert certain <= inside <= holds, (i, certain ^ inside)
        seen += len(inside)
    return seen


def start(path: Path, made: World, flags: Sequence[str]) -> None:
    """Starts a service on the file and prints how it went."""
    output = path.with_name("serve.log")
    command = [sys.executable, "-m", "service", "serve", "--log", f"sqlite:{path}", "--port", "0", *flags]
    began = time.perf_counter()
    with output.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        url = listening(process, output)
        listens_s = time.perf_counter() - began
        answers = Answers(url)
        answers.start()
        with httpx.Client(base_url=url, timeout=WITHIN_S) as client:
            while client.get("/readyz").status_code != httpx.codes.OK:
                if process.poll() is not None:
                    raise SystemExit(output.read_text())
                time.sleep(0.2)
            ready_s = time.perf_counter() - began
            cpu, now, most = used(process.pid)
            answers.ended.set()
            answers.join()
            waits = np.array(answers.waits)
            print(
                f"listens after {listens_s:.1f} s, ready after {ready_s:.1f} s and {cpu:.1f} s of CPU; "
                f"/healthz: {len(waits)} answers, longest {1e3 * answers.longest_s:.0f} ms, "
                f"p99 {1e3 * float(np.quantile(waits, 0.99)):.0f} ms; "
                f"{now:.0f} MB, at the most {most:.0f} MB",
                flush=True,
            )
            print(f"{check(client, made)} memberships of 50 streams are as they should be", flush=True)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
    print(json.dumps({"queries": len(made.boxes), "streams": len(made.points), "ready_s": ready_s,
                      "cpu_s": cpu, "longest_healthz_s": answers.longest_s, "rss_mb": now}))  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--queries", type=int, default=1_000_000)
    parser.add_argument("--streams", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--file", type=Path, help="keep the file here, and use the one that is there")
    parser.add_argument("--repeat", type=int, default=1)
    args = parser.parse_args()
    flags = ["--max-streams", str(2 * args.streams), "--max-queries", str(2 * args.queries)]
    with tempfile.TemporaryDirectory() as directory:
        path = args.file or Path(directory) / "large.db"
        began = time.perf_counter()
        made = world(args.queries, args.streams, args.seed)
        if not path.exists():
            build(path, args.queries, args.streams, args.seed)
        size = path.stat().st_size / 1e6
        made_s = time.perf_counter() - began
        print(f"{args.queries} queries, {args.streams} streams, seed {args.seed}; "
              f"a file of {size:.0f} MB, made in {made_s:.0f} s", flush=True)  # fmt: skip
        for _ in range(args.repeat):
            start(path, made, flags)


if __name__ == "__main__":
    main()
