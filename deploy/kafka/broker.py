"""One real Kafka broker for development and tests, with nothing to install but Java.

Idea: the jars come from Maven coordinates (``pom.xml`` beside this file), through Maven itself or, where
there is none, through the Ivy that PySpark ships. A node is a directory (settings, storage, log output) and a
process; it is started in the background, and it is ended by its process id.

Used by ``make kafka`` and ``make kafka-stop`` on a fixed port, and by the tests on free ones. Not for
production: one copy of everything, no authentication, 127.0.0.1 only.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

HERE = Path(__file__).resolve().parent
HOME = HERE.parents[1] / ".kafka"
HOST = "127.0.0.1"
JAVA_NEEDED = 17
START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 30.0


class BrokerError(Exception):
    """The broker cannot be fetched, started or ended; the message says what to do."""


@dataclass(slots=True)
class Broker:
    """A running node. ``process`` is None for one that another process started."""

    address: str
    pid: int
    directory: Path
    process: subprocess.Popen[bytes] | None = None

    def alive(self) -> bool:
        """Whether the process runs, and is this node and not another that has got its id since."""
        if self.process is not None:
            return self.process.poll() is None
        return str(_settings_path(self.directory)) in _command_line(self.pid)

    def stop(self) -> None:
        """Shuts the node down in good order. Idempotent."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Ends the process at once, as a crash would. Idempotent."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        if not self.alive():
            return
        os.kill(self.pid, how)
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while self.alive():
            if time.monotonic() > deadline:
                os.kill(self.pid, signal.SIGKILL)
                deadline += STOP_TIMEOUT_S
            time.sleep(0.05)


def fetch() -> Path:
    """The folder with the broker's jars, fetched if they are not there. Raises BrokerError."""
    wanted = hashlib.sha256((HERE / "pom.xml").read_bytes()).hexdigest()
    libs = HOME / "libs"
    stamp = libs / ".pom"
    HOME.mkdir(exist_ok=True)
    with (HOME / "fetch.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stamp.exists() and stamp.read_text() == wanted:
            return libs
        fresh = HOME / "libs.new"
        shutil.rmtree(fresh, ignore_errors=True)
        if shutil.which("mvn"):
            _fetch_by_maven(fresh)
        else:
            _fetch_by_ivy(fresh)
        (fresh / ".pom").write_text(wanted)
        shutil.rmtree(libs, ignore_errors=True)
        fresh.rename(libs)
    return libs


def _fetch_by_maven(libs: Path) -> None:
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={libs}"]
    _run(["mvn", "-q", "-B", "-f", str(HERE / "pom.xml"), *goal], "Maven could not fetch the broker")


def _fetch_by_ivy(libs: Path) -> None:
    try:
        import pyspark
    except ImportError:
        raise BrokerError("fetching the broker takes Maven (mvn), or pyspark in this environment") from None
    (ivy,) = Path(pyspark.__file__).parent.glob("jars/ivy-*.jar")
    what = ["-ivy", str(HERE / "pom.xml"), "-confs", "runtime", "-types", "jar", "bundle"]
    where = ["-cache", str(HOME / "ivy"), "-retrieve", f"{libs}/[artifact]-[revision].[ext]"]
    _run([_java(), "-jar", str(ivy), "-error", *what, *where], "Ivy could not fetch the broker")


def start(
    port: int, controller_port: int, directory: Path, more: Mapping[str, object] | None = None
) -> Broker:
    """Starts a node whose storage is in ``directory`` and returns when it answers, within 90 s. ``more``
    are settings of the broker that go before its own.

    Started again on a directory that it has used, it goes on with what is there. Raises BrokerError.
    """
    address = f"{HOST}:{port}"
    if _accepts(port):
        raise BrokerError(f"something else listens on {address}: end it, or choose another port")
    java, classpath = _java(), f"{fetch()}/*"
    directory.mkdir(parents=True, exist_ok=True)
    settings = _settings_path(directory)
    settings.write_text(_settings(port, controller_port, directory, more or {}))
    if not (directory / "storage" / "meta.properties").exists():
        tool = [java, "-cp", classpath, "kafka.tools.StorageTool", "format", "--standalone"]
        _run([*tool, "-t", "rangewatch-dev-broker00", "-c", str(settings)], "formatting the storage failed")
    options = ["-Xms256m", "-Xmx512m", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
    with (directory / "broker.log").open("ab") as output:
        process = subprocess.Popen(
            [java, *options, "-cp", classpath, "kafka.Kafka", str(settings)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    broker = Broker(address, process.pid, directory, process)
    try:
        _wait(broker, port)
    except BaseException:
        broker.kill()
        raise
    return broker


def _wait(broker: Broker, port: int) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while broker.alive() and time.monotonic() < deadline:
        if _accepts(port):
            with contextlib.suppress(KafkaError):
                KafkaAdminClient(bootstrap_servers=broker.address, bootstrap_timeout_ms=5000).close()
                return
        time.sleep(0.1)
    log = broker.directory / "broker.log"
    tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
    state = "does not answer" if broker.alive() else "has ended"
    raise BrokerError(f"the broker {state}; the end of {log}:\n{tail}")


def _settings(port: int, controller_port: int, directory: Path, more: Mapping[str, object]) -> str:
    own: dict[str, object] = {
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "controller.quorum.bootstrap.servers": f"{HOST}:{controller_port}",
        "log.dirs": directory / "storage",
    }
    lines = [f"{name}={value}" for name, value in {**own, **more}.items()]
    return (HERE / "server.properties").read_text() + "\n" + "\n".join(lines) + "\n"


def _settings_path(directory: Path) -> Path:
    return directory.resolve() / "server.properties"


def _command_line(pid: int) -> str:
    """The command line of a process, or "" if there is none: from /proc, or from ps where that is missing."""
    if Path("/proc/self").exists():
        with contextlib.suppress(OSError):
            return Path(f"/proc/{pid}/cmdline").read_text()
        return ""
    return subprocess.run(["ps", "-o", "args=", "-p", str(pid)], capture_output=True, text=True).stdout


def _accepts(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=1):
        return True
    return False


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    advice = f"the broker needs Java {JAVA_NEEDED} or newer: install it, or let JAVA_HOME name it"
    try:
        shown = subprocess.run(
            [java or "java", "-version"], capture_output=True, text=True, check=True
        ).stderr
    except (OSError, subprocess.CalledProcessError):
        raise BrokerError(f"no Java was found; {advice}") from None
    version = re.search(r'version "(?:1\.)?(\d+)', shown)
    if version is None or int(version[1]) < JAVA_NEEDED:
        raise BrokerError(f"{advice}; found: {shown.splitlines()[0]}")
    return java or "java"


def _run(command: list[str], failure: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BrokerError(f"{failure}:\n{(done.stdout + done.stderr)[-2000:]}")


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nothing listens on at the moment, all different."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((HOST, 0))
        return [one.getsockname()[1] for one in sockets]


def _running(record: Path) -> Broker | None:
    """The node that ``record`` (address, process id) tells of, or None if there is none or it has ended."""
    if not record.exists():
        return None
    address, pid = record.read_text().split()
    broker = Broker(address, int(pid), record.parent)
    return broker if broker.alive() else None


def _main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("command", choices=["fetch", "start", "stop"])
    parser.add_argument("--port", type=int, default=9092)
    parser.add_argument("--controller-port", type=int, default=9093)
    args = parser.parse_args()
    try:
        print(_act(args.command, args.port, args.controller_port))
    except BrokerError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _act(command: str, port: int, controller_port: int) -> str:
    if command == "fetch":
        return str(fetch())
    record = HOME / "node" / "broker.pid"
    broker = _running(record)
    if command == "stop":
        if broker is None:
            return "no broker is running"
        broker.stop()
        record.unlink()
        return f"ended the broker on {broker.address}"
    if broker is not None:
        return f"already running on {broker.address}"
    broker = start(port, controller_port, record.parent)
    record.write_text(f"{broker.address} {broker.pid}\n")
    return f"running on {broker.address}"


if __name__ == "__main__":
    sys.exit(_main())
