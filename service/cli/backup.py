"""``rangewatch backup``: a copy of the embedded log, made while the service runs on it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from service.cli.errors import CliError
from service.cli.progress import copying

_DESCRIPTION = """\
Copies the file of the embedded log, as of one commit, while a service runs on it or not. The copy is a log:
to restore it, end the service and start it on the copy (--log sqlite:COPY), or put the copy in the place of
the file, without the files beside it whose names go on with -wal and -shm."""


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "backup", help="copy the embedded log while it is in use", description=_DESCRIPTION
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="file of the log: what follows sqlite:")
    parser.add_argument("copy", type=Path, metavar="COPY", help="file to make; it must not be there yet")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from service.log.port import LogError
    from service.log.sqlite_backup import back_up

    try:
        with copying(args.file) as told:
            back_up(args.file, args.copy, told)
    except LogError as error:
        raise CliError(str(error)) from None
    print(f"{args.copy}: {args.copy.stat().st_size:,} bytes")
    return 0
