"""``make run``: the service with a year of weather and thirteen years of share prices, in one command.

Starts the service as a process of its own (on a fresh embedded log, or on the Kafka broker that is there),
registers two sources and their queries over HTTP, replays both sets, shows who enters and leaves what, sums
up and serves on until Ctrl-C. On Kafka the Spark job then makes tables of the same topics.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from summary import Summary, counted, table
from ticker import Ticker

from service.cli.client import connected, send
from service.cli.errors import CliError
from service.cli.queries import import_queries
from service.cli.replay import Replayed, replay, shape_of

HERE = Path(__file__).parent
SETS = ("weather", "stocks")
READY_WITHIN_S = 120.0
DRAINED_WITHIN_S = 120.0
PAGE = 500
PAUSE_S = 0.1

console = Console(highlight=False, soft_wrap=True)


def main() -> int:
    args = parser().parse_args()
    # However it is ended, the service that it has started ends with it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    url = f"http://127.0.0.1:{args.port}"
    folder = args.data / "demo"
    prefix = f"demo-{time.time_ns() // 1_000_000}." if args.log == "kafka" else ""
    try:
        check_port(args.port)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        with serving(args, folder, prefix) as process, connected(url) as client:
            await_ready(client, process, folder)
            conditions = register(client)
            read = kafka_borders(args.bootstrap, prefix) if args.log == "kafka" else service_borders(client)
            summaries = show(client, url, Ticker(conditions), read)
            console.print(table(summaries))
            if args.log == "kafka":
                run_spark(args.bootstrap, args.data / "spark", prefix)
            if args.exit:
                return 0
            hints(url, args.log, args.bootstrap, prefix)
            process.wait()
            raise CliError(f"the service has stopped; {folder / 'service.log'} says why")
    except CliError as error:
        print(f"demo: {error}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        return 0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="run.py", description="The demo: weather alarms and price bands.")
    made.add_argument("--log", choices=("sqlite", "kafka"), default="sqlite", help="where the events go")
    made.add_argument("--bootstrap", default="127.0.0.1:9092", metavar="HOST:PORT", help="the Kafka broker")
    made.add_argument("--port", type=int, default=8080, help="of the service (%(default)s)")
    made.add_argument(
        "--data",
        type=Path,
        default=Path(".data"),
        metavar="DIR",
        help="demo/ and spark/ in it are made anew (%(default)s)",
    )
    made.add_argument("--exit", action="store_true", help="stop after the summary")
    return made


def check_port(port: int) -> None:
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", port))
        except OSError as error:
            raise CliError(
                f"port {port} cannot be used ({error.strerror}); choose another by --port"
            ) from None


@contextmanager
def serving(args: argparse.Namespace, folder: Path, prefix: str) -> Iterator[subprocess.Popen[bytes]]:
    """The service as a process; ended when the block is."""
    log = f"kafka:{args.bootstrap}" if args.log == "kafka" else f"sqlite:{folder / 'rangewatch.db'}"
    command = [sys.executable, "-m", "service", "serve", "--port", str(args.port), "--log", log]
    if prefix:
        command += ["--topic-prefix", prefix, "--group", f"{prefix}workers"]
    with (folder / "service.log").open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()


def await_ready(client: httpx.Client, process: subprocess.Popen[bytes], folder: Path) -> None:
    deadline = time.monotonic() + READY_WITHIN_S
    with console.status("starting the service"):
        while time.monotonic() < deadline:
            if process.poll() is not None:
                last = (folder / "service.log").read_text(errors="replace").strip().splitlines()[-1:]
                raise CliError(f"the service did not start: {' '.join(last)}")
            try:
                if client.get("/readyz").status_code == 200:
                    return
            except httpx.ConnectError:
                pass
            time.sleep(PAUSE_S)
    raise CliError(f"the service was not ready within {READY_WITHIN_S:.0f} s; see {folder / 'service.log'}")


def register(client: httpx.Client) -> dict[str, str]:
    """Creates the sources and their queries; returns the condition of each query."""
    for name, body in json.loads((HERE / "sources.json").read_text()).items():
        send(client, "PUT", f"/v1/sources/{name}", json=body)
        done = import_queries(client, HERE / f"{name}_queries.jsonl", atomic=True)
        if done["refused"]:
            raise CliError(f"{name}: {done['failures'][0]['detail']}")
        console.print(f"{done['received']:>5} queries registered on {name}")
    queries = send(client, "GET", "/v1/queries", params={"limit": 1_000}).json()["queries"]
    return {query["id"]: query["canonical"] for query in queries}


Read = Callable[[], list[dict[str, Any]]]
"""The next border records, [] when there are none yet."""


def service_borders(client: httpx.Client) -> Read:
    after = 0

    def read() -> list[dict[str, Any]]:
        nonlocal after
        page = send(client, "GET", "/v1/topics/borders", params={"after": after, "limit": PAGE}).json()
        after = page["next"]
        return [record["value"] for record in page["records"]]

    return read


def kafka_borders(bootstrap: str, prefix: str) -> Read:
    import kafka

    consumer = kafka.KafkaConsumer(
        f"{prefix}borders",
        bootstrap_servers=bootstrap.split(","),
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        group_id=None,
    )

    def read() -> list[dict[str, Any]]:
        polled = consumer.poll(timeout_ms=100, max_records=PAGE)
        return [json.loads(record.value) for records in polled.values() for record in records]

    return read


def show(client: httpx.Client, url: str, ticker: Ticker, read: Read) -> dict[str, Summary]:
    """Replays the sets in a thread of their own and prints the ticker until it has seen every change."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%  {task.fields[seen]}", style="dim"),
    )
    summaries: dict[str, Summary] = {}
    failures: list[BaseException] = []
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        total = sum((HERE / f"{name}.csv.gz").stat().st_size for name in SETS)
        task = bar.add_task("replaying", total=total, seen="")

        def feed() -> None:
            try:
                feed_all(url, summaries, lambda done: bar.update(task, completed=done))
            except BaseException as error:
                failures.append(error)

        feeder = threading.Thread(target=feed, daemon=True)
        feeder.start()
        deadline: float | None = None
        while feeder.is_alive() or ticker.changes < sum(s.enters + s.leaves for s in summaries.values()):
            records = read()
            for line in ticker.take(records):
                console.print(line)
            bar.update(task, seen=f"{ticker.shown:,} of {ticker.changes:,} changes shown")
            if not feeder.is_alive() and deadline is None:
                deadline = time.monotonic() + DRAINED_WITHIN_S
            if deadline is not None and time.monotonic() > deadline:
                raise CliError("the border log is shorter than the service's own count")
            if not records:
                time.sleep(PAUSE_S)
    if failures:
        raise failures[0]
    console.print(f"{ticker.shown:,} of {ticker.changes:,} changes shown", style="dim")
    return summaries


def feed_all(url: str, summaries: dict[str, Summary], show_bytes: Callable[[int], None]) -> None:
    """Replays one set after the other; a set is done when all of it is processed."""
    before = 0
    with connected(url) as client:
        for name in SETS:
            file = HERE / f"{name}.csv.gz"
            started = time.monotonic()

            def progress(done: int, total: int, so_far: Replayed, before: int = before) -> None:
                show_bytes(before + done)

            sent = replay(client, file, name, shape_of(client, name, file), speed=None, show=progress)
            while (summary := counted(client, name)).events < sent.events:
                time.sleep(PAUSE_S)
            summary.seconds = time.monotonic() - started
            summaries[name] = summary
            before += file.stat().st_size


def run_spark(bootstrap: str, out: Path, prefix: str) -> None:
    console.print("\nthe Spark job makes tables of the topics and reads the visits back from them:")
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, "-m", "spark_connector", "--bootstrap", bootstrap, "--prefix", prefix]
    done = subprocess.run([*command, "--out", str(out)], check=False)
    if done.returncode:
        raise CliError(f"the Spark job ended with {done.returncode}", done.returncode)


def hints(url: str, log: str, bootstrap: str, prefix: str) -> None:
    follow = f"--log kafka:{bootstrap} --topic-prefix {prefix}" if log == "kafka" else f"--url {url}"
    topics = f" Its topics on {bootstrap} begin with {prefix}" if log == "kafka" else ""
    console.print(
        f"""
The service goes on at {url} (Ctrl-C stops it).{topics} In another terminal:

  curl '{url}/v1/queries?source=weather&limit=3'
  curl '{url}/v1/queries/freezing/streams'
  curl -X PUT '{url}/v1/queries/my-heat' -d '{{"source": "weather", "where": "temp > 100 and humid > 40"}}'
  curl '{url}/v1/events?source=weather&wait=true' -d '{{"stream_id": "JFK", "temp": 101, "humid": 50}}'
  .venv/bin/rangewatch tail borders {follow}

{url}/docs shows every request there is, {url}/metrics the numbers."""
    )


if __name__ == "__main__":
    sys.exit(main())
