"""Copies of a log's file while it is in use.

Idea: one read transaction sees the file as of one commit, however long the copy takes and whatever is
committed meanwhile; writers go on (they cannot take the journal back into the file until it ends, so that
grows). A commit has outputs, state and position, so the copy is a log that a service simply goes on from.

The copy is checked before it gets its name, and takes the place of nothing: a name is a good copy or is not
there.

Not for: a log on Kafka, which has replicas.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

from service.log.port import LogUnusable
from service.log.sqlite_file import LogFile

_PAGES_AT_ONCE = 4_096


def back_up(source: Path, target: Path, told: Callable[[int, int], None]) -> None:
    """Copies the file of a log. ``told`` hears how many pages are done, and of how many. Raises LogUnusable
    where ``source`` is no log or ``target`` is there already or cannot be written, LogUnavailable where
    another program keeps the file locked."""
    if not source.exists():
        raise LogUnusable(f"{source} is not there")
    if target.exists():
        raise LogUnusable(f"{target} is there already: name another, or move it away")
    unfinished = target.with_name(f"{target.name}.unfinished")
    file = LogFile(source, max_message_bytes=1 << 30)
    try:
        with (
            file.translated(),
            contextlib.closing(_read_only(source)) as reading,
            contextlib.closing(sqlite3.connect(unfinished, isolation_level=None)) as writing,
        ):
            file.check_owner(reading)
            reading.execute("BEGIN")
            reading.execute(
                "SELECT count(*) FROM sqlite_schema"
            ).fetchone()  # from here on one commit is seen
            reading.backup(
                writing, pages=_PAGES_AT_ONCE, progress=lambda _, left, pages: told(pages - left, pages)
            )
            (state,) = writing.execute("PRAGMA quick_check(1)").fetchone()
            if state != "ok":
                raise LogUnusable(f"{source} is damaged ({state}): a copy is of no use")
        _make_lasting(unfinished)
        unfinished.rename(target)
        _make_lasting(target.resolve().parent)
    except OSError as error:
        raise LogUnusable(f"{target} cannot be written: {error.strerror}") from error
    finally:
        unfinished.unlink(missing_ok=True)


def _read_only(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, isolation_level=None)


def _make_lasting(path: Path) -> None:
    """Waits until a file, or the names in a directory, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
