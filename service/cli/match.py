"""``rangewatch match``: queries against events without a service, by the same decoder, catalog and index."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from service.cli.errors import USAGE, CliError
from service.cli.files import Shape, opened
from service.cli.inference import infer_attributes
from service.cli.text import warn

_SHOWN = 5


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "match",
        help="match a file of events against a file of queries, without a service",
        description="Prints, as NDJSON, the queries that each event satisfies: row (from 0), stream id, ts,"
        " query ids. Events that satisfy none are left out. Borders, which depend on what was before, need a"
        " service.",
    )
    parser.add_argument("queries", type=Path, metavar="QUERIES", help="NDJSON, a query body a line (.gz too)")
    parser.add_argument("events", type=Path, metavar="EVENTS", help="CSV, NDJSON or Parquet (.gz too)")
    parser.add_argument(
        "--attributes",
        type=_attributes,
        metavar="NAME=TYPE,...",
        help="types (number, category); without it they are inferred from the events",
    )
    parser.add_argument("--source", metavar="NAME", help="take only the queries of this source")
    parser.set_defaults(run=run)


def _attributes(text: str) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in text.split(",")]
    if not all(name and kind in ("number", "category") for name, _, kind in pairs):
        raise argparse.ArgumentTypeError("must be NAME=number or NAME=category, with commas between")
    return {name: kind for name, _, kind in pairs}


def run(args: argparse.Namespace) -> int:
    for file in (args.queries, args.events):
        if not file.is_file():
            raise CliError(f"there is no file {file}", USAGE)
    # The engine compiles its kernels when it is imported; the other commands start without it.
    from service.cli.offline import load, results

    attributes = args.attributes or infer_attributes(args.events)
    engine, source = load(args.queries, attributes, args.source)
    events = pairs = refused = 0
    with opened(args.events, Shape(attributes)) as (rows, _):
        for number, (text, result) in enumerate(results(engine, source, rows)):
            events += 1
            if isinstance(result, str):
                refused += 1
                if refused <= _SHOWN:
                    warn(f"event {number}: {result}")
            elif result:
                pairs += len(result)
                event = json.loads(text)
                found = {
                    "row": number,
                    "stream_id": event["stream_id"],
                    "ts": event.get("ts"),
                    "queries": result,
                }
                print(json.dumps(found, ensure_ascii=False))
    warn(f"{events} events, {pairs} matches, {refused} refused")
    return 0
