"""The real broker that tests run against: one for the whole session, however many workers pytest has.

The first test that asks starts it, on free ports and in a directory of its own; the last process that has
asked ends it by its process id. A broker that cannot be had is a failure, never a skip.

Use: ``from tests.broker import broker`` in the conftest of a folder, and mark the tests ``kafka``.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy.kafka.broker import Broker, free_ports, start

#: Kept to the end of the process: whoever starts the broker may leave before those who end it.
_KEPT = pytest.StashKey[Broker]()


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The session's broker; ``broker.address`` is its ``host:port``."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "kafka"
    folder.mkdir(exist_ok=True)
    request.config.stash[_KEPT] = node = _enter(folder)
    try:
        yield node
    finally:
        _leave(folder, node)


def _enter(folder: Path) -> Broker:
    with _turn(folder) as users:
        record = folder / "broker"
        if record.exists():
            address, pid = record.read_text().split()
            node = Broker(address, int(pid), folder / "node")
            if node.alive():
                users.append(os.getpid())
                return node
        port, controller_port = free_ports(2)
        node = start(port, controller_port, folder / "node")
        record.write_text(f"{node.address} {node.pid}")
        users.append(os.getpid())
        return node


def _leave(folder: Path, node: Broker) -> None:
    with _turn(folder) as users:
        users.remove(os.getpid())
        if not any(_runs(user) for user in users):
            node.stop()
        elif node.process is not None:
            node.process.returncode = 0  # somebody else ends it: there is nothing here to wait for


@contextmanager
def _turn(folder: Path) -> Iterator[list[int]]:
    """The process ids that use the broker, to be changed by one process at a time."""
    path = folder / "users"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        users = json.loads(path.read_text()) if path.exists() else []
        yield users
        path.write_text(json.dumps(users))


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
