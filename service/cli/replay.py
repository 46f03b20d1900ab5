"""``rangewatch replay``: sends a file of events to the service, in file order, fast or in time."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from service.cli.client import add_url, checked, connected, send
from service.cli.errors import FAILED, USAGE, CliError
from service.cli.files import BadRow, Row, Shape, opened
from service.cli.inference import infer_attributes
from service.cli.text import say, warn

#: One request is one array of events; it should stay one message of the log.
BATCH_EVENTS = 5_000
BATCH_BYTES = 500_000

#: So many bad rows are shown; all are counted.
_SHOWN = 5


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "replay",
        help="send a file of events",
        description="Sends the events of a CSV, NDJSON or Parquet file (.gz too) in file order. Columns"
        " are found by name: stream_id, ts, the attributes of the source, and the id of an event where the"
        " source has dedup.",
    )
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("--source", required=True, metavar="NAME", help="the source that the events are of")
    parser.add_argument(
        "--speed",
        type=_speed,
        default=None,
        metavar="N|max",
        help="N times as fast as the events' own time, or as fast as it goes (max, the default)",
    )
    add_url(parser)
    parser.set_defaults(run=run)


def _speed(text: str) -> float | None:
    if text == "max":
        return None
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not 0 < speed < float("inf"):
        raise argparse.ArgumentTypeError("must be a number above 0, or max")
    return speed


@dataclass(slots=True)
class Replayed:
    """What a replay came to; ``seconds`` of wall time."""

    events: int = 0
    bad_rows: int = 0
    seconds: float = 0.0


def run(args: argparse.Namespace) -> int:
    if not args.file.is_file():
        raise CliError(f"there is no file {args.file}", USAGE)
    with connected(args.url) as client:
        shape = shape_of(client, args.source, args.file)
        replayed = _with_progress(client, args.file, args.source, shape, args.speed)
    rate = replayed.events / max(replayed.seconds, 1e-9)
    say(f"{replayed.events} events sent in {replayed.seconds:.1f} s ({rate:,.0f}/s)")
    if replayed.bad_rows:
        warn(f"{replayed.bad_rows} rows could not be sent")
    return FAILED if replayed.bad_rows else 0


def shape_of(client: httpx.Client, source: str, file: Path) -> Shape:
    """The source as the service knows it. Raises CliError, with a way out, where it does not."""
    path = f"/v1/sources/{quote(source, safe='')}"
    response = client.get(path)
    if response.status_code == 404:
        body = json.dumps({"attributes": infer_attributes(file)})
        raise CliError(
            f"there is no source {source!r}; to create it with the attributes that the file seems to have:\n"
            f"  curl -X PUT {client.base_url.join(path)} -d '{body}'"
        )
    known = checked(response).json()
    dedup = known.get("dedup") or {}
    return Shape(known["attributes"], known["key"], known["ts"], known["paths"], dedup.get("by"))


def _with_progress(
    client: httpx.Client, file: Path, source: str, shape: Shape, speed: float | None
) -> Replayed:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}% {task.fields[events]:>9,} events {task.fields[rate]:>9,.0f}/s"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(file.name, total=None, events=0, rate=0.0)

        def show(done: int, total: int, so_far: Replayed) -> None:
            rate = so_far.events / max(so_far.seconds, 1e-9)
            bar.update(task, completed=done, total=total, events=so_far.events, rate=rate)

        return replay(client, file, source, shape, speed=speed, show=show)


def replay(
    client: httpx.Client,
    file: Path,
    source: str,
    shape: Shape,
    *,
    speed: float | None,
    show: Callable[[int, int, Replayed], None],
) -> Replayed:
    """Sends a file; ``show(done, total, so far)`` is called after every request. Raises CliError."""
    result = Replayed()
    started = time.monotonic()
    with opened(file, shape) as (rows, progress):
        good = _good(rows, result)
        for body, events in packed(good if speed is None else _in_time(good, speed)):
            try:
                send(
                    client,
                    "POST",
                    "/v1/events",
                    params={"source": source},
                    content=body,
                    headers={"Content-Type": "application/json"},
                )
            except CliError as error:
                raise CliError(f"after {result.events} events: {error}", error.code) from None
            result.events += events
            result.seconds = time.monotonic() - started
            show(progress.done(), progress.total, result)
    return result


def _good(rows: Iterable[Row | BadRow], result: Replayed) -> Iterator[Row]:
    for row in rows:
        if isinstance(row, Row):
            yield row
            continue
        result.bad_rows += 1
        if result.bad_rows <= _SHOWN:
            warn(f"line {row.number}: {row.detail}")


def _in_time(rows: Iterable[Row], speed: float) -> Iterator[Row | None]:
    """Rows when they are due, by their ``ts`` since the first; None before a wait."""
    started = time.monotonic()
    first: int | None = None
    for row in rows:
        if row.ts is not None:
            first = row.ts if first is None else first
            wait = (row.ts - first) / 1000 / speed - (time.monotonic() - started)
            if wait > 0:
                yield None
                time.sleep(wait)
        yield row


def packed(rows: Iterable[Row | None]) -> Iterator[tuple[bytes, int]]:
    """JSON arrays of rows in order, each with its number of events. None sends what there is."""
    packet: list[bytes] = []
    length = 0
    for row in rows:
        array = row is not None and row.text[:1] == b"["
        full = row is not None and (len(packet) >= BATCH_EVENTS or length + len(row.text) > BATCH_BYTES)
        if packet and (row is None or array or full):
            yield b"[" + b",".join(packet) + b"]", len(packet)
            packet, length = [], 0
        if row is None:
            continue
        if array:
            yield row.text, len(json.loads(row.text))
            continue
        packet.append(row.text)
        length += len(row.text) + 1
    if packet:
        yield b"[" + b",".join(packet) + b"]", len(packet)
