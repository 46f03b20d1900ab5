"""``rangewatch keys new | list | revoke``: the file of API keys, on the machine that has it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from service.cli.errors import USAGE, CliError
from service.cli.text import say, warn
from service.keys import Key, KeysError, Role, edit, new_key, read_keys, with_key, without_key
from service.language import parse_duration
from service.model import Refusal
from service.settings import PREFIX, SettingsError, load_settings
from service.tenants import DEFAULT_TENANT


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "keys",
        help="make, list or revoke API keys",
        description="Edits the file of API keys. A running service takes up the change at once.",
    )
    actions = parser.add_subparsers(metavar="new|list|revoke", required=True)
    making = actions.add_parser(
        "new",
        help="make a key and print it",
        description="Makes a key and prints it, once: the file keeps a hash. Two keys of one name are valid"
        " together, so that clients can change from one to the other.",
    )
    making.add_argument("name", metavar="NAME", help="who will use it; stands in the history")
    making.add_argument("--role", required=True, choices=[*Role], help="what it may do")
    making.add_argument("--tenant", default=DEFAULT_TENANT, help="whose queries it is for (%(default)s)")
    making.add_argument(
        "--expires", type=_duration, metavar="90d", help="for how long it is valid (for ever)"
    )
    making.set_defaults(run=run_new)
    listing = actions.add_parser(
        "list", help="show the keys", description="Shows all about the keys but themselves."
    )
    listing.set_defaults(run=run_list)
    revoking = actions.add_parser("revoke", help="end keys", description="Takes keys out of the file.")
    revoking.add_argument(
        "ids", nargs="+", metavar="ID", help="as in the list: the key's part between rw_ and _"
    )
    revoking.set_defaults(run=run_revoke)
    for action in (making, listing, revoking):
        action.add_argument(
            "--keys-file",
            type=Path,
            metavar="FILE",
            help=f"the file ({PREFIX}KEYS_FILE, or from the settings)",
        )
        action.add_argument("--config", type=Path, metavar="FILE", help="settings as TOML")


def _duration(text: str) -> timedelta:
    try:
        return timedelta(milliseconds=parse_duration(text, ""))
    except Refusal as refusal:
        raise argparse.ArgumentTypeError(refusal.detail) from None


def _file(args: argparse.Namespace) -> Path:
    if args.keys_file is not None:
        return Path(args.keys_file)
    try:
        named = load_settings({}, args.config).keys_file
    except SettingsError as error:
        raise CliError(str(error), USAGE) from None
    if not named:
        raise CliError(f"which file? give --keys-file, or set {PREFIX}KEYS_FILE", USAGE)
    return Path(named)


def run_new(args: argparse.Namespace) -> int:
    file, now = _file(args), datetime.now(UTC)
    try:
        expires = None if args.expires is None else (now + args.expires).replace(microsecond=0)
        text, key = new_key(args.name, Role(args.role), now=now, tenant=args.tenant, expires=expires)
    except (KeysError, OverflowError) as error:
        raise CliError(str(error), USAGE) from None

    def added(document: str) -> str:
        read_keys(document)
        return with_key(document, key)

    _edit(file, added)
    print(text)
    warn(f"This is the only time that it is shown. {file} has its hash, under the id {key.id}.")
    return 0


def run_list(args: argparse.Namespace) -> int:
    file, now = _file(args), datetime.now(UTC)
    try:
        keys = read_keys(file.read_text())
    except KeysError as error:
        raise CliError(f"{file}: {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"cannot read {file}: {error}") from None
    for line in _table(
        ["id", "name", "role", "tenant", "created", "expires"], [_row(key, now) for key in keys.values()]
    ):
        say(line)
    return 0


def _row(key: Key, now: datetime) -> list[str]:
    expires = "never" if key.expires is None else _day(key.expires)
    return [
        key.id,
        key.name,
        key.role,
        key.tenant,
        _day(key.created),
        expires + " (over)" * key.has_expired(now),
    ]


def _day(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M}Z"


def _table(head: list[str], rows: list[list[str]]) -> Iterable[str]:
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for row in (head, *rows):
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def run_revoke(args: argparse.Namespace) -> int:
    file = _file(args)

    def emptied(document: str) -> str:
        for id in args.ids:
            document = without_key(document, id)
        return document

    _edit(file, emptied)
    warn(f"revoked: {', '.join(args.ids)}")
    return 0


def _edit(file: Path, change: Callable[[str], str]) -> None:
    try:
        edit(file, change)
    except KeysError as error:
        raise CliError(f"{file}: {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"cannot write {file}: {error}") from None
