"""``rangewatch test``: plays rule tests, files that say what goes in and which records must come out."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from service.cli.errors import FAILED, USAGE, CliError
from service.cli.text import say, warn


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "test",
        help="play rule tests: queries and events, and the records that they must cause",
        description="Plays every scenario of the files on a service of its own, in this process, and shows"
        " where the records differ from those expected: - expected, + written. The exit code is 0 if all are"
        " as expected, 1 if not, 2 if a file is not valid (the others are played all the same) or is not"
        " there (none is played), or the report cannot be written."
        " docs/rule-tests.md has the format.",
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="a rule test, YAML")
    parser.add_argument("--junit", type=Path, metavar="OUT.xml", help="write a JUnit report too")
    parser.add_argument(
        "--restarts",
        action="store_true",
        help="start the service anew after every step: it must make no difference",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    for file in args.files:
        if not file.is_file():
            raise CliError(f"there is no file {file}", USAGE)
    # The engine compiles its kernels when it is imported; the other commands start without it.
    from service.rules.play import FileResult, play_file
    from service.rules.report import junit, summary, told

    results: list[FileResult] = []
    for file in args.files:
        try:
            result = play_file(file, restarts=args.restarts)
        except OSError as error:
            raise CliError(f"cannot play {file}: {error.strerror}", USAGE) from None
        results.append(result)
        if result.error is not None:
            place = f"{file}:{result.error.line}"
            field = f"{result.error.field}: " if result.error.field else ""
            warn(f"{place}: {field}{result.error.detail}")
        else:
            say(*told(result))
    say(summary(results))
    if args.junit is not None:
        _write(args.junit, junit(results))
    if any(result.error is not None for result in results):
        return USAGE
    return 0 if all(played.passed for result in results for played in result.played) else FAILED


def _write(file: Path, report: bytes) -> None:
    try:
        file.write_bytes(report)
    except OSError as error:
        raise CliError(f"cannot write {file}: {error.strerror}", USAGE) from None
