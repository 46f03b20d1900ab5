"""Makes an embedded file as an earlier revision of the service wrote it, and notes what that one said of it.

Run it with the interpreter's path at a checkout of the revision; only what all of them have is used::

    cd CHECKOUT && PYTHONPATH=$PWD python .../tests/data/make.py OUT_DIRECTORY NAME

It serves, registers queries of every kind that the revision knows, sends events one commit at a time until
pages of state have been written and deltas overwritten, asks where every stream is, and kills the service;
where the revision tells changes in portions, in the middle of one. ``NAME.db.xz`` is the file, after SQLite
has put its write-ahead log into it and has been told to forget free pages; ``NAME.json`` is what was said.
"""

from __future__ import annotations

import json
import lzma
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx

STREAMS = 60
COMMITS = 1_060
FIRST_MS = 1_700_000_000_000
SOURCES: dict[str, dict[str, Any]] = {
    "plain": {"attributes": {"x": "number", "kind": "category"}},
    "carried": {"attributes": {"x": "number", "kind": "category"}, "missing": "carry"},
}
QUERIES: dict[str, dict[str, Any]] = {
    "all": {"where": "x >= 0", "select": ["kind"]},
    "low": {"where": "x < 3 and x >= 0", "on": ["match", "enter", "leave"]},
    "tug": {"where": "kind == 'tug' and 2 <= x < 8 or x == 9"},
    "shy": {"where": "x < 5", "initial": "ignore"},
    "off": {"where": "x < 5", "enabled": False},
    "moved": {"where": "x < 2"},
    "gone": {"where": "x < 9"},
    "later": {"where": "x < 6", "initial": "ignore", "tags": {"team": "port"}},
}
QUIET = {"on": ["enter", "leave"]}
#: What not every revision knows; those that refuse one go without.
NEWER: dict[str, dict[str, Any]] = {
    "sticky": {"where": "x < 3", "keep": "x < 6"},
    "slow": {"where": "x < 5", "for": "5s"},
    "slower": {"where": "x < 5", "for": "10d"},
    "cool": {"where": "x < 5", "cooldown": "10s"},
    "once": {"where": "x < 2", "once": True},
    "counted": {"where": "x < 4", "aggregates": {"every": "1s", "of": ["x"]}},
    "near": {"where": "(x, y) in circle(1, 2, 200000)"},
}


def serve(path: Path, output: Path, *flags: str) -> tuple[subprocess.Popen[bytes], str]:
    command = [sys.executable, "-m", "service", "serve", "--log", f"sqlite:{path}", "--port", "0", *flags]
    with output.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    deadline = time.monotonic() + 900  # its kernels may have to be compiled
    while time.monotonic() < deadline and process.poll() is None:
        found = re.search(r"listening on (http://\S+)", output.read_text())
        if found and _ready(found[1]):
            return process, found[1]
        time.sleep(0.1)
    raise SystemExit(output.read_text())


def _ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz").status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def event(rng: random.Random, number: int, stream: int) -> dict[str, Any]:
    made: dict[str, Any] = {"stream_id": f"v{stream}", "ts": FIRST_MS + 100 * number}
    if rng.random() < 0.9:
        made["x"] = rng.randrange(-1, 11)
    if rng.random() < 0.7:
        made["kind"] = rng.choice(["tug", "tanker", "ferry \u00e9"])
    return made


def live(client: httpx.Client) -> None:
    rng = random.Random(7)
    for name, body in SOURCES.items():
        client.put(f"/v1/sources/{name}", json=body).raise_for_status()
        for id, query in {**QUERIES, **NEWER}.items():
            if id != "later":
                answer = client.put(f"/v1/queries/{name}.{id}", json={"source": name, **QUIET, **query})
                assert id in NEWER or answer.status_code == httpx.codes.CREATED, answer.text
        first = [event(rng, 0, stream) for stream in range(STREAMS)]
        client.post(f"/v1/events?source={name}&wait=true", json=first).raise_for_status()
        client.put(
            f"/v1/queries/{name}.later", json={"source": name, **QUIET, **QUERIES["later"]}
        ).raise_for_status()
        moved = {"source": name, **QUIET, "where": "x < 4 and x > -3"}
        client.put(f"/v1/queries/{name}.moved", json=moved).raise_for_status()
        client.delete(f"/v1/queries/{name}.gone").raise_for_status()
        for stream in range(5):
            client.delete(f"/v1/streams/v{stream}?source={name}").raise_for_status()
    for number in range(1, COMMITS):
        name = "carried" if number % 10 == 0 else "plain"
        one = event(rng, number, rng.randrange(2, STREAMS))
        client.post(f"/v1/events?source={name}&wait=true", json=one).raise_for_status()


def said(client: httpx.Client) -> dict[str, Any]:
    """What the service says of every stream."""
    found: dict[str, Any] = {}
    for name in SOURCES:
        for stream in range(STREAMS):
            answer = client.get(f"/v1/streams/v{stream}", params={"source": name})
            body = answer.json() if answer.status_code == httpx.codes.OK else None
            kept = ("last", "ts", "seq", "inside")
            found[f"{name}/v{stream}"] = body and {field: body[field] for field in kept}
    return found


def packed(path: Path, to: Path) -> None:
    """The file alone, small."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.execute("VACUUM")
    connection.execute("PRAGMA journal_mode = DELETE")
    connection.close()
    with path.open("rb") as raw, lzma.open(to, "wb", preset=9) as out:
        shutil.copyfileobj(raw, out)


def main() -> None:
    out, name = Path(sys.argv[1]), sys.argv[2]
    with tempfile.TemporaryDirectory() as directory:
        path, output = Path(directory) / "log.db", Path(directory) / "out"
        process, url = serve(path, output)
        with httpx.Client(base_url=url, timeout=60) as client:
            live(client)
            told = said(client)
        process.kill()
        process.wait()
        if "portion" in "".join(file.read_text() for file in Path("service").glob("settings.py")):
            process, url = serve(path, output, "--portion-records", "1")
            with httpx.Client(base_url=url, timeout=60) as client:
                told = said(client)
                many = [
                    {"id": f"plain.owed{n}", "source": "plain", "where": "x < 100", **QUIET}
                    for n in range(40)
                ]
                client.post("/v1/queries:bulk", content="\n".join(map(json.dumps, many))).raise_for_status()
                process.kill()
            process.wait()
        packed(path, out / f"{name}.db.xz")
    (out / f"{name}.json").write_text(json.dumps(told, sort_keys=True, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
