"""The real command in processes of its own, and one service that most tests share."""

from __future__ import annotations

import os
import re
import resource
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx
import pytest

from tests.api.harness import TIMEOUT_S, eventually
from tests.broker import broker as broker

COMMAND = str(Path(sys.executable).with_name("rangewatch"))


def environment(**changes: str) -> dict[str, str]:
    """The environment without settings of ours, wide enough that no line is broken."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RANGEWATCH_")}
    return {**kept, "COLUMNS": "200", **changes}


def rangewatch(*args: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end."""
    return subprocess.run(
        [COMMAND, *map(str, args)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S * 2,
        env=environment(**variables),
        check=False,
    )


class Served:
    """A service in a process of its own."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, tls: ssl.SSLContext | None) -> None:
        self.process = process
        self.log = log
        self.url = eventually(self._url, f"a line with the address in {log}")
        with httpx.Client(base_url=self.url, verify=tls or True) as client:
            eventually(lambda: self._answers(client), "ready")

    def _url(self) -> str | None:
        assert self.process.poll() is None, self.log.read_text()
        found = re.search(r"listening on (https?://\S+)", self.log.read_text())
        return found and found[1]

    @staticmethod
    def _answers(client: httpx.Client) -> bool:
        try:
            return client.get("/readyz").status_code == 200
        except httpx.ConnectError:
            return False

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(TIMEOUT_S)


@contextmanager
def serving(
    folder: Path,
    *args: object,
    tls: ssl.SSLContext | None = None,
    files: int | None = None,
    **variables: str,
) -> Iterator[Served]:
    """``rangewatch serve`` on a free port and a file of the folder, unless ``args`` say otherwise; ``tls``
    is how a client trusts it; ``files``: how many it may open."""
    log = folder / "service.log"
    default = ["--log", f"sqlite:{folder / 'log.db'}"] if "--log" not in args else []
    with log.open("wb") as out:
        process = subprocess.Popen(
            [COMMAND, "serve", "--port", "0", *default, *map(str, args)],
            stdout=out,
            stderr=out,
            env=environment(**variables),
            preexec_fn=files and partial(resource.setrlimit, resource.RLIMIT_NOFILE, (files, files)),
        )
    try:
        yield Served(process, log, tls)
    finally:
        process.kill()
        process.wait()


def eventually_at_work(client: httpx.Client, *, partitions: int) -> None:
    """Waits until a worker reads so many partitions. Who makes a topic is answered after a while even if the
    group has not dealt it out by then, which takes long where all is busy."""
    eventually(
        lambda: client.get("/metrics").text.count("rangewatch_consumer_lag_events{") == partitions,
        f"{partitions} partitions at work",
    )


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("cli")) as served:
        yield served


@pytest.fixture
def client(service: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=service.url, timeout=TIMEOUT_S) as client:
        yield client
