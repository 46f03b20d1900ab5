"""The command line, ``rangewatch COMMAND``: each module of ``cli`` adds its own."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from service import __version__
from service.allocator import give_back_large_blocks
from service.cli import (
    backup,
    bench,
    collections,
    errors,
    health,
    history,
    keys,
    match,
    queries,
    replay,
    serve,
    tail,
    test,
)
from service.cli.text import warn
from service.garbage import collect_seldom

_EPILOG = """\
examples:
  rangewatch serve
  rangewatch queries import alarms.ndjson
  rangewatch collections put ports ports.geojson --source ais
  rangewatch replay weather.csv.gz --source weather
  rangewatch tail borders
  rangewatch match alarms.ndjson weather.csv.gz
  rangewatch test alarms.yaml --junit report.xml

exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 nothing answers at the address, 130 interrupted
"""


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    made = argparse.ArgumentParser(
        prog="rangewatch",
        description="Continual range queries over streams: matches, enters and leaves, exactly once.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--version", action="version", version=f"rangewatch {__version__}")
    commands = made.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in (
        serve,
        health,
        keys,
        replay,
        queries,
        collections,
        history,
        tail,
        match,
        test,
        backup,
        bench,
    ):
        module.add(commands)
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    give_back_large_blocks()
    collect_seldom()
    args = parser().parse_args(argv)
    try:
        code: int = args.run(args)
        sys.stdout.flush()
    except errors.CliError as error:
        warn(*f"rangewatch: {error}".split("\n"))
        return error.code
    except KeyboardInterrupt:
        return errors.INTERRUPTED
    except BrokenPipeError:
        # The reader of our output (head, less) has gone: that is no error, but Python would complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


if __name__ == "__main__":
    sys.exit(main())
