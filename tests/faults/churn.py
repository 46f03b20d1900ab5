"""``make soak``: a real service under churn, for as long as wanted; its memory must stay flat.

Every second queries are registered under ids that were never there (in bulk), with texts that were never
there; they live for some seconds and expire, or are deleted one by one, and a collection is replaced by other
members. Streams come under new names, move, and go by ``stream_ttl``. So the numbers of queries and streams
are soon constant, and what still grows then is a leak. RSS is printed every ten seconds; the run fails where
its mean over the last third is more than 5 % above that over the second.

    python -m tests.faults.churn [--minutes 10] [--rate 1000]

Not for: the file, which keeps all records. The same in small, by counting: ``engine/test_churn.py``.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from tests.cli.conftest import serving

LIVES_S = 20
DELETED = 20
"""So many a second are deleted by a request each."""
MEMBERS = 50
PRINT_EVERY_S = 10.0
GROWTH = 1.05
SOURCE = {"attributes": {"x": "number", "y": "number", "kind": "category"}, "stream_ttl": "10s"}


def rss_mb(pid: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def queries(first: int, count: int) -> list[dict[str, Any]]:
    """All kinds by turns: matched, quiet, kept, with a wait, of a text of its own, in two boxes, round."""
    expires = int(1_000 * (time.time() + LIVES_S))
    made = []
    for n in range(first, first + count):
        x, y = n * 7 % 1_000, n * 13 % 1_000
        box = f"{x} <= x < {x + 20} and {y} <= y < {y + 20}"
        body = {"id": f"q{n}", "source": "fleet", "where": box, "tags": {"n": str(n)}, "expires_at": expires}
        match n % 7:
            case 0:
                body["on"] = ["enter", "leave"]
            case 1:
                body["keep"] = f"{x - 5} <= x < {x + 25} and {y - 5} <= y < {y + 25}"
            case 2:
                body["for"] = "3s"
            case 3:
                body["where"] = f"{box} and kind in ('k{n}', 'tug')"
            case 4:
                body["where"] = f"({box}) or x > {1_000 + n % 50}"
            case 5 if n % 100 == 5:
                body["where"] = f"(x, y) in circle({x % 170}, {y % 80}, 900000)"
            case 6:
                body |= {"initial": "ignore", "aggregates": {"every": "1s", "of": ["x"]}}
        made.append(body)
    return made


def events(second: int) -> list[dict[str, Any]]:
    """Streams of this second and of the five before, somewhere else each time."""
    rng = np.random.default_rng(second)
    return [
        {"stream_id": f"v{begun}-{i}", "x": float(x), "y": float(y), "kind": f"k{begun}-{i}"}
        for begun in range(max(second - 5, 0), second + 1)
        for i, (x, y) in enumerate(rng.uniform(0, 1_000, (30, 2)).round(2).tolist())
    ]


def members(second: int) -> bytes:
    features = [
        {
            "type": "Feature",
            "id": f"m{second}-{i}",
            "properties": {},
            "geometry": {
                "type": "Polygon",
                "coordinates": [[[i, 0], [i + 3, 0], [i + 1, 4 + second % 40], [i, 0]]],
            },
        }
        for i in range(MEMBERS)
    ]
    return json.dumps({"type": "FeatureCollection", "features": features}).encode()


def second_of_churn(client: httpx.Client, second: int, rate: int) -> None:
    first = second * rate
    lines = "\n".join(map(json.dumps, queries(first, rate)))
    client.post("/v1/queries:bulk", content=lines.encode()).raise_for_status()
    client.post("/v1/events?source=fleet&wait=true", json=events(second)).raise_for_status()
    for n in range(first, first + min(DELETED, rate)):
        client.delete(f"/v1/queries/q{n}").raise_for_status()
    client.delete(f"/v1/streams/v{second}-0?source=fleet").raise_for_status()
    client.put(
        "/v1/collections/ports",
        params={"source": "fleet", "lon": "x", "lat": "y"},
        content=members(second),
        headers={"Content-Type": "application/geo+json"},
    ).raise_for_status()


def churn(folder: Path, minutes: float, rate: int) -> bool:
    """Returns whether memory was flat."""
    seen: list[tuple[float, float]] = []
    with serving(folder) as served, httpx.Client(base_url=served.url, timeout=120) as client:
        client.put("/v1/sources/fleet", json=SOURCE).raise_for_status()
        began, second, print_at, due = time.monotonic(), 0, 0.0, time.monotonic()
        while time.monotonic() - began < 60 * minutes:
            time.sleep(max(due - time.monotonic(), 0))
            # What is late is not made up for: more queries would live at a time, and take more memory.
            due = time.monotonic() + 1
            second_of_churn(client, second, rate)
            second += 1
            spent_s = time.monotonic() - began
            seen.append((spent_s, rss_mb(served.process.pid)))
            if spent_s >= print_at:
                size = sum(file.stat().st_size for file in folder.glob("log.db*")) / 1e6
                print(f"{spent_s:6.0f} s: {seen[-1][1]:6.1f} MB, {second * rate / spent_s:,.0f} queries/s, "
                      f"file {size:.0f} MB", flush=True)  # fmt: skip
                print_at += PRINT_EVERY_S
    third = seen[-1][0] / 3
    middle = float(np.mean([mb for at, mb in seen if third <= at < 2 * third]))
    last = float(np.mean([mb for at, mb in seen if at >= 2 * third]))
    flat = last <= GROWTH * middle
    print(
        f"{second * rate:,} queries came and went; {middle:.1f} MB over the second third, {last:.1f} MB over"
        f" the last: {100 * (last / middle - 1):+.1f} %, {'flat' if flat else 'NOT FLAT'}",
        flush=True,
    )
    return flat


def main() -> int:
    parser = argparse.ArgumentParser(prog="churn")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--rate", type=int, default=1_000, help="queries registered, and gone, a second")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return 0 if churn(Path(folder), asked.minutes, asked.rate) else 1


if __name__ == "__main__":
    raise SystemExit(main())
