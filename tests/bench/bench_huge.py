"""Changes of very many members at once: how long until answered, until all is told, and what others wait for.

``rangewatch serve`` runs as a process of its own on an embedded file. Streams are put inside one query, which
is registered, deleted and registered again; a collection of polygons is put, put again as it is, replaced by
one of which every member differs, and deleted. At last one event is sent that very many queries hold, and
what it causes is compared with them. All the while a probe sends an event to another source every 20 ms and
waits for its commit: its longest wait is what such a change costs the others.

    python -m tests.bench.bench_huge [--streams 1000000] [--members 100000] [--matches 1000000]
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx

from tests.cli.conftest import serving
from tests.faults.churn import rss_mb

WITHIN_S = 1_800.0
AT_ONCE = 10_000
PROBE_EVERY_S = 0.02


class Probe(threading.Thread):
    """Sends an event now and then; ``waits_s`` has how long each took."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.waits_s: list[float] = []
        self._url = url
        self._ends = threading.Event()

    def run(self) -> None:
        with httpx.Client(base_url=self._url, timeout=WITHIN_S) as client:
            while not self._ends.wait(PROBE_EVERY_S):
                begun_s = time.monotonic()
                body = {"stream_id": "probe", "x": len(self.waits_s) % 2}
                client.post("/v1/events?source=probes&wait=true", json=body).raise_for_status()
                self.waits_s.append(time.monotonic() - begun_s)

    def end(self) -> None:
        self._ends.set()
        self.join()


def owed(client: httpx.Client) -> float:
    """How many records are still to be told."""
    found = re.findall(r"^rangewatch_owed_records\{.*\} (\S+)$", client.get("/metrics").text, re.MULTILINE)
    return sum(map(float, found))


def zones(count: int, shift: float) -> bytes:
    """Triangles side by side, each moved by ``shift``."""
    features = []
    for n in range(count):
        x, y = n % 400 * 0.5 + shift, n // 400 * 0.3
        ring = [[x, y], [x + 0.6, y], [x + 0.5, y + 0.4], [x, y]]
        geometry = {"type": "Polygon", "coordinates": [ring]}
        features.append({"type": "Feature", "id": f"f{n}", "properties": {}, "geometry": geometry})
    return json.dumps({"type": "FeatureCollection", "features": features}).encode()


def measure(what: str, client: httpx.Client, pid: int, probe: Probe, change: Callable[[], object]) -> None:
    """Makes a change and prints a line about it."""
    probe.waits_s.clear()
    begun_s = time.monotonic()
    change()
    answered_s = time.monotonic() - begun_s
    while owed(client):
        time.sleep(0.2)
    told_s = time.monotonic() - begun_s
    time.sleep(1.0)
    waits_ms = sorted(1e3 * wait_s for wait_s in probe.waits_s)
    print(
        f"{what:<28} answered {answered_s:6.2f} s, told {told_s:6.1f} s, others wait"
        f" {waits_ms[len(waits_ms) // 2]:4.0f} ms, at most {waits_ms[-1]:5.0f} ms; {rss_mb(pid):5.0f} MB",
        flush=True,
    )


def put_crowd(client: httpx.Client, count: int) -> None:
    """Queries that all hold one point."""
    client.put("/v1/sources/crowd", json={"attributes": {"x": "number"}}).raise_for_status()
    for first in range(0, count, AT_ONCE):
        numbers = range(first, min(count, first + AT_ONCE))
        lines = [json.dumps({"id": f"c{n}", "source": "crowd", "where": f"x > {-1 - n}"}) for n in numbers]
        client.post("/v1/queries:bulk", content="\n".join(lines)).raise_for_status()


def told(client: httpx.Client, topic: str, field: str, count: int) -> tuple[int, int]:
    """How many records of the source there are, and how many bytes the largest has. Raises AssertionError
    unless together they name all queries of ``put_crowd`` once."""
    after, records, largest, ids = 0, 0, 0, list[str]()
    while True:
        page = (
            client.get(f"/v1/topics/{topic}", params={"after": after, "limit": 1000})
            .raise_for_status()
            .json()
        )
        for value in (record["value"] for record in page["records"]):
            if value["source"] == "crowd":
                records, largest = records + 1, max(largest, len(json.dumps(value)))
                ids += value[field]
        if page["next"] == after:
            break
        after = page["next"]
    assert sorted(ids) == sorted(f"c{n}" for n in range(count)), f"{topic}: {len(ids)} ids of {count}"
    return records, largest


def run(folder: Path, streams: int, members: int, matches: int) -> None:
    most = str(2 * (matches + members))
    flags = ("--max-queries", most, "--max-queries-tenant", most, "--max-streams", str(2 * streams))
    with serving(folder, *flags) as served, httpx.Client(base_url=served.url, timeout=WITHIN_S) as client:
        pid = served.process.pid
        for name in ("fleet", "probes"):
            body = {"attributes": {"x": "number", "y": "number"}}
            client.put(f"/v1/sources/{name}", json=body).raise_for_status()
        client.put("/v1/queries/near", json={"source": "probes", "where": "x > 0"}).raise_for_status()
        for first in range(0, streams, AT_ONCE):
            several = range(first, min(streams, first + AT_ONCE))
            sent = [{"stream_id": f"v{n}", "x": n % 200, "y": n % 75} for n in several]
            client.post("/v1/events?source=fleet&wait=true", json=sent).raise_for_status()
        print(f"{streams:,} streams, {members:,} members; {rss_mb(pid):.0f} MB", flush=True)
        probe = Probe(str(client.base_url))
        probe.start()
        everywhere = {"source": "fleet", "where": "x >= 0", "on": ["enter", "leave"]}
        put = {"params": {"source": "fleet", "lon": "x", "lat": "y"}}
        geo = {"Content-Type": "application/geo+json"}
        changes: list[tuple[str, Callable[[], httpx.Response]]] = [
            ("registered over all streams", lambda: client.put("/v1/queries/all", json=everywhere)),
            ("deleted with all inside", lambda: client.delete("/v1/queries/all")),
        ]
        for what, shift in (("collection put", 0.0), ("put again", 0.0), ("all members differ", 0.05)):
            file = zones(members, shift)
            changes.append(
                (
                    what,
                    lambda file=file: client.put("/v1/collections/zones", content=file, headers=geo, **put),
                )
            )
        changes.append(("collection deleted", lambda: client.delete("/v1/collections/zones")))
        for what, change in changes:
            measure(what, client, pid, probe, lambda change=change: change().raise_for_status())
        put_crowd(client, matches)
        event = {"stream_id": "one", "x": 0}
        measure(
            f"an event of {matches:,} matches",
            client,
            pid,
            probe,
            lambda: client.post("/v1/events?source=crowd&wait=true", json=event).raise_for_status(),
        )
        probe.end()
        for topic, field in (("matches", "queries"), ("borders", "enter")):
            count, largest = told(client, topic, field, matches)
            print(
                f"{topic}: {count:,} records, the largest of {largest:,} bytes, name each query once",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench_huge")
    parser.add_argument("--streams", type=int, default=1_000_000)
    parser.add_argument("--members", type=int, default=100_000)
    parser.add_argument("--matches", type=int, default=1_000_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run(Path(folder), asked.streams, asked.members, asked.matches)


if __name__ == "__main__":
    main()
