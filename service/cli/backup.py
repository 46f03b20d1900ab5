"""``rangewatch backup`` and ``restore``: a copy of the embedded log, made while the service runs on it, and
how it takes the place of the file again."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from service.cli.errors import CliError
from service.cli.progress import copying
from service.cli.text import say

_BACKUP = """\
Copies the file of the embedded log, as of one commit, while a service runs on it or not. The copy is a log:
"rangewatch restore COPY FILE" puts it back, and a service can be started on the copy itself
(--log sqlite:COPY)."""
_RESTORE = """\
Puts a copy in the place of the file of the embedded log. The service that has it open has to be ended first.
The copy is checked before anything changes: it is whole, a log, and of a version that this program reads. The
old file stays beside the new one (FILE.replaced-1), with its -wal, unless it is to be discarded. Do not put
the copy there by hand: with the -wal of the old file beside it, it is damaged."""


def add(commands: Any) -> None:
    backing = commands.add_parser(
        "backup", help="copy the embedded log while it is in use", description=_BACKUP
    )
    backing.add_argument("file", type=Path, metavar="FILE", help="file of the log: what follows sqlite:")
    backing.add_argument("copy", type=Path, metavar="COPY", help="file to make; it must not be there yet")
    backing.set_defaults(run=run_backup)
    restoring = commands.add_parser(
        "restore", help="put a copy of the embedded log back", description=_RESTORE
    )
    restoring.add_argument("copy", type=Path, metavar="COPY", help='what "rangewatch backup" made')
    restoring.add_argument("file", type=Path, metavar="FILE", help="file of the log: what follows sqlite:")
    restoring.add_argument("--discard", action="store_true", help="do not keep the old file")
    restoring.set_defaults(run=run_restore)


def run_backup(args: argparse.Namespace) -> int:
    from service.log.port import LogError
    from service.log.sqlite_backup import back_up

    try:
        with copying(args.file) as told:
            back_up(args.file, args.copy, told)
    except LogError as error:
        raise CliError(str(error)) from None
    say(f"{args.copy}: {args.copy.stat().st_size:,} bytes")
    return 0


def run_restore(args: argparse.Namespace) -> int:
    from service.log.port import LogError
    from service.log.sqlite_backup import put_back

    try:
        with copying(args.copy) as told:
            old = put_back(args.copy, args.file, told, keep=not args.discard)
    except LogError as error:
        raise CliError(str(error)) from None
    kept = "" if old is None else f"; what was there is {old}"
    say(f"{args.file} is as {args.copy}{kept}")
    return 0
