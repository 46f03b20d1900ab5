"""``rangewatch history``: who changed which query or source, and when."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from service.cli.client import add_url, connected, send
from service.cli.text import say


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "history",
        help="show who changed what, and when",
        description="Prints the changes of queries and sources, the oldest first.",
    )
    parser.add_argument("query", nargs="?", metavar="ID", help="only the changes of this query")
    parser.add_argument(
        "--after", type=int, default=0, metavar="N", help="begin at this command (%(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line, for machines")
    add_url(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    for entry in _entries(args):
        if args.json:
            print(json.dumps(entry, ensure_ascii=False))
        else:
            say(_line(entry))
    return 0


def _entries(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    asked = {"query": args.query} if args.query else {}
    after = args.after
    with connected(args.url) as client:
        while True:
            page = send(client, "GET", "/v1/history", params={**asked, "after": after}).json()
            yield from page["entries"]
            if page["next"] <= after:
                return
            after = page["next"]


def _line(entry: dict[str, Any]) -> str:
    at = entry["at"]
    when = "-" if at is None else f"{datetime.fromtimestamp(at / 1000, UTC):%Y-%m-%d %H:%M:%S}Z"
    name = entry["query"] or (
        f"source {entry['source']}" if entry["source"] else f"collection {entry['collection']}"
    )
    by = f" by {entry['by']}" if entry["by"] else ""
    fields = f": {', '.join(entry['changed'])}" if entry["changed"] else ""
    return f"{when}  {entry['command']:>8}  {name}  {entry['what']}{by}{fields}"
