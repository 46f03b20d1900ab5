"""``rangewatch queries import | export``: the query set as a file, one body a line."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import httpx

from service.cli.client import add_url, connected, problem_text, send
from service.cli.errors import FAILED, USAGE, CliError
from service.cli.text import say, warn
from service.cli.upload import TIMEOUT_S, tell_failures, upload


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "queries", help="import or export queries", description="Moves queries between files and the service."
    )
    actions = parser.add_subparsers(metavar="import|export", required=True)
    taking = actions.add_parser(
        "import",
        help="register or replace the queries of a file",
        description="Registers or replaces the queries of a file in one request: all of them, or none.",
    )
    taking.add_argument("file", type=Path, metavar="FILE", help="NDJSON, a query body a line (.gz too)")
    taking.add_argument("--each", action="store_true", help="each line for itself: refused ones are skipped")
    add_url(taking)
    taking.set_defaults(run=run_import)
    giving = actions.add_parser(
        "export",
        help="write the queries to a file",
        description="Writes all queries, one body a line, as import takes them.",
    )
    giving.add_argument("file", type=Path, metavar="FILE", help="the file to write; - for stdout")
    giving.add_argument("--source", metavar="NAME", help="only the queries of this source")
    add_url(giving)
    giving.set_defaults(run=run_export)


def run_import(args: argparse.Namespace) -> int:
    if not args.file.is_file():
        raise CliError(f"there is no file {args.file}", USAGE)
    with connected(args.url, timeout_s=TIMEOUT_S) as client:
        send(client, "GET", "/readyz")
        summary = import_queries(client, args.file, atomic=not args.each)
    failures = [(f"line {failure['line']}", failure) for failure in summary["failures"]]
    tell_failures(failures, summary["refused"])
    say(
        f"{summary['received']} queries: {summary['created']} created, {summary['replaced']} replaced,"
        f" {summary['unchanged']} unchanged, {summary['refused']} refused"
    )
    return FAILED if summary["refused"] else 0


def import_queries(client: httpx.Client, file: Path, *, atomic: bool) -> dict[str, Any]:
    """Sends a file as one streamed request; returns the service's summary. Raises CliError."""
    params = httpx.QueryParams(atomic=str(atomic).lower())
    answer = upload(client, "POST", "/v1/queries:bulk", file, "application/x-ndjson", params)
    return {"created": 0, "replaced": 0, "unchanged": 0, **answer}


def run_export(args: argparse.Namespace) -> int:
    params = {"source": args.source} if args.source else {}
    with connected(args.url) as client, client.stream("GET", "/v1/queries:export", params=params) as response:
        if response.is_error:
            response.read()
            raise CliError(problem_text(response))
        if str(args.file) == "-":
            for line in response.iter_lines():
                print(line)
            return 0
        count = _write(response, args.file)
    warn(f"{count} queries written to {args.file}")
    return 0


def _write(response: httpx.Response, file: Path) -> int:
    """Writes the lines beside the file first: a broken transfer leaves no half of an export."""
    unfinished = file.with_name(f"{file.name}.unfinished")
    count = 0
    try:
        with unfinished.open("wb") as out:
            for chunk in response.iter_bytes():
                out.write(chunk)
                count += chunk.count(b"\n")
        unfinished.replace(file)
    except OSError as error:
        raise CliError(f"cannot write {file}: {error.strerror}") from None
    finally:
        unfinished.unlink(missing_ok=True)
    return count
