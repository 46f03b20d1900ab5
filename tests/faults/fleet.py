"""Services as real processes on one broker: started, killed, stopped, woken, and asked."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import httpx

from service.log.kafka_library import KAFKA_PYTHON
from tests.api.harness import eventually

ROOT = Path(__file__).parents[2]

SESSION_S = 2.0
#: How long the log may take to answer; the broker ends a transaction after half as long again.
LOG_TIMEOUT_S = 6.0
WITHIN_S = 90.0


class Fuse(NamedTuple):
    """See ``launch``."""

    point: str
    count: int = 1
    how: str = "SIGKILL"


class Worker:
    """One process that serves. Its id stays taken only as long as it runs (``launch`` reaps)."""

    def __init__(self, name: str, pid: int, output: Path, fuse: Fuse | None) -> None:
        self.name = name
        self.pid = pid
        self.output = output
        self.fuse = fuse

    @property
    def alive(self) -> bool:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        return True

    @property
    def url(self) -> str | None:
        """Where it listens, once it does."""
        found = re.search(r"listening on (http://\S+)", self.output.read_text())
        return found and found[1]

    @property
    def burnt(self) -> bool:
        """Whether its fuse has been reached; of one that stops it, whether it stands still."""
        if self.fuse is None or f"fuse: {self.fuse.point}\n" not in self.output.read_text():
            return False
        return self.fuse.how != "SIGSTOP" or self._stands_still

    @property
    def _stands_still(self) -> bool:
        """Else a SIGCONT could come before the SIGSTOP that it is to undo."""
        stat = Path(f"/proc/{self.pid}/stat")
        return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "T"

    @property
    def ready(self) -> bool:
        url = self.url
        try:
            return url is not None and httpx.get(f"{url}/readyz", timeout=10).status_code == 200
        except httpx.HTTPError:
            return False

    def signal(self, which: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, which)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        eventually(lambda: not self.alive, f"the end of {self.name}")

    def stop(self) -> None:
        """Ends it in good order."""
        self.signal(signal.SIGTERM)
        eventually(lambda: not self.alive, f"the end of {self.name}, asked for", within_s=WITHIN_S)


class Fleet:
    """The workers of one group. ``arguments`` are those that all of them have; ``clients`` are the libraries
    that talk to Kafka, of one worker after the other."""

    def __init__(
        self, folder: Path, arguments: Sequence[str], clients: Sequence[str] = (KAFKA_PYTHON,)
    ) -> None:
        self._folder = folder
        self._arguments = arguments
        self._clients = itertools.cycle(clients)
        self._started = 0
        self.workers: dict[str, Worker] = {}
        with (folder / "launcher.log").open("wb") as output:
            self._launcher = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.launch"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                cwd=ROOT,
                text=True,
            )
        assert self._told() == "ready", (folder / "launcher.log").read_text()

    def _told(self) -> str:
        assert self._launcher.stdout is not None
        return self._launcher.stdout.readline().strip()

    def start(self, name: str, fuse: Fuse | None = None) -> Worker:
        """Starts a worker and returns at once. One of that name must have ended."""
        assert name not in self.workers or not self.workers[name].alive
        self._started += 1
        output = self._folder / f"{name}-{self._started}.log"
        output.touch()
        own = ["--worker", name, "--port", "0", "--kafka-client", next(self._clients)]
        arguments = [*self._arguments, *own]
        order = {"arguments": arguments, "output": str(output), "fuse": fuse}
        assert self._launcher.stdin is not None
        self._launcher.stdin.write(json.dumps(order) + "\n")
        self._launcher.stdin.flush()
        worker = self.workers[name] = Worker(name, int(self._told()), output, fuse)
        return worker

    def living(self) -> list[Worker]:
        return [worker for worker in self.workers.values() if worker.alive]

    def close(self) -> None:
        """Ends all of them, and with them the process that has started them."""
        for worker in self.living():
            worker.kill()
        self._launcher.kill()
        self._launcher.communicate()

    def outputs(self) -> str:
        """The end of what each process has said, for people."""
        logs = sorted(self._folder.glob("*.log"), key=lambda path: path.stat().st_mtime)
        return "\n".join(f"--- {path.name}\n{path.read_text()[-1500:]}" for path in logs[-6:])


@contextlib.contextmanager
def fleet(
    folder: Path, address: str, prefix: str, *more: object, clients: Sequence[str] = (KAFKA_PYTHON,)
) -> Iterator[Fleet]:
    """A fleet on a broker, small in every way, with timeouts of seconds."""
    made = Fleet(
        folder,
        [
            *("--log", f"kafka:{address}", "--topic-prefix", prefix, "--group", f"{prefix}group"),
            *("--partitions", str(PARTITIONS), "--max-batch-events", "24", "--max-ids-per-record", "12"),
            *("--log-timeout-s", str(LOG_TIMEOUT_S), "--session-timeout-s", str(SESSION_S)),
            *map(str, more),
        ],
        clients,
    )
    try:
        yield made
    finally:
        made.close()


PARTITIONS = 4
