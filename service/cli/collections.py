"""``rangewatch collections put | list | delete``: files of regions and thresholds as one resource."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from service.cli.client import add_url, connected, send
from service.cli.errors import FAILED, USAGE, CliError
from service.cli.text import escaped, say, warn
from service.cli.upload import TIMEOUT_S, tell_failures, upload

_MEDIA = {
    ".geojson": "application/geo+json",
    ".json": "application/geo+json",
    ".csv": "text/csv",
    ".parquet": "application/vnd.apache.parquet",
}


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "collections",
        help="replace, list or delete sets of queries",
        description="Keeps sets of queries as they are in files: what is equal stays untouched.",
    )
    actions = parser.add_subparsers(metavar="put|list|delete", required=True)
    putting = actions.add_parser(
        "put",
        help="make a collection what a file says",
        description="Makes a collection what a file says: all of it, or nothing is changed.",
    )
    putting.add_argument("name", metavar="NAME")
    putting.add_argument(
        "file",
        type=Path,
        metavar="FILE",
        help="GeoJSON (.geojson, .json), .csv, these also with .gz, .parquet",
    )
    putting.add_argument("--source", required=True, metavar="NAME", help="the source of its queries")
    for name, what in (("lon", "first"), ("lat", "second")):
        putting.add_argument(
            f"--{name}", metavar="ATTRIBUTE", help=f"attribute of the {what} coordinate ({name})"
        )
    putting.add_argument("--id", metavar="FIELD", help="property or column with the ids")
    putting.add_argument("--radius", metavar="FIELD", help="property or column with the radius, m (radius_m)")
    putting.add_argument(
        "--tags", action="append", metavar="FIELD", help="property or column to keep as a tag"
    )
    putting.add_argument(
        "--default",
        action="append",
        type=_default,
        default=[],
        metavar="FIELD=VALUE",
        help="a field of the queries, as on=enter or for=30s; may be repeated",
    )
    add_url(putting)
    putting.set_defaults(run=run_put)
    listing = actions.add_parser("list", help="list the collections", description="Lists the collections.")
    add_url(listing)
    listing.set_defaults(run=run_list)
    deleting = actions.add_parser(
        "delete", help="delete a collection", description="Deletes a collection and its queries."
    )
    deleting.add_argument("name", metavar="NAME")
    add_url(deleting)
    deleting.set_defaults(run=run_delete)


def _default(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError("must be FIELD=VALUE")
    return name, value


def _url(name: str) -> str:
    return f"/v1/collections/{quote(name, safe='')}"


def run_put(args: argparse.Namespace) -> int:
    file: Path = args.file
    if not file.is_file():
        raise CliError(f"there is no file {file}", USAGE)
    suffixes = [suffix.lower() for suffix in file.suffixes if suffix.lower() != ".gz"]
    media = _MEDIA.get(suffixes[-1] if suffixes else "")
    if media is None:
        raise CliError(f"{file}: the name must end in one of {', '.join(_MEDIA)}", USAGE)
    given = {name: getattr(args, name) for name in ("source", "lon", "lat", "id", "radius", "tags")}
    params: list[tuple[str, Any]] = [
        (name, value) for name, value in given.items() if value is not None and name != "tags"
    ]
    params += [("tags", tag) for tag in args.tags or []] + args.default
    with connected(args.url, timeout_s=TIMEOUT_S) as client:
        send(client, "GET", "/readyz")
        answer = upload(client, "PUT", _url(args.name), file, media, httpx.QueryParams(params))
    if "created" not in answer:
        return _tell(answer)
    expired = f", {answer['expired']} expired and left out" if answer["expired"] else ""
    say(
        f"{args.name}: {answer['members']} queries: {answer['created']} created,"
        f" {answer['replaced']} replaced, {answer['unchanged']} unchanged,"
        f" {answer['deleted']} deleted{expired}"
    )
    return 0


def _tell(problem: dict[str, Any]) -> int:
    tell_failures([(failure["place"], failure) for failure in problem["failures"]], problem["refused"])
    warn("nothing was changed")
    return FAILED


def run_list(args: argparse.Namespace) -> int:
    with connected(args.url) as client:
        found = send(client, "GET", "/v1/collections").json()["collections"]
    for one in found:
        columns = one["name"], one["source"], f"{one['members']} queries", f"from {one['kind']}"
        print("\t".join(map(escaped, columns)))
    return 0


def run_delete(args: argparse.Namespace) -> int:
    with connected(args.url, timeout_s=TIMEOUT_S) as client:
        send(client, "DELETE", _url(args.name))
    say(f"{args.name} deleted")
    return 0
