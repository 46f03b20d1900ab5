"""Copies of a log's file while it is in use, and how one takes the place of the file again.

Idea: one read transaction sees the file as of one commit, however long the copy takes and whatever is
committed meanwhile; writers go on (they cannot take the journal back into the file until it ends, so that
grows). A commit has outputs, state and position, so the copy is a log that a service simply goes on from.

The copy is checked before it gets its name, and takes the place of nothing: a name is a good copy or is not
there.

A copy is put back as a whole or not at all. SQLite keeps newer pages in ``FILE-wal``: those of the old file
must not be there beside the new one, and two names cannot change in one step. So the copy, whole and checked,
first gets a name with which no service opens the file (``RESTORING``); what is old goes then, its ``-wal``
first, and the copy gets the file's name last. Whatever ends this in between, it can be begun anew.

Not for: a log on Kafka, which has replicas.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sqlite3
from collections.abc import Callable
from itertools import count
from pathlib import Path

from service.log.port import LogUnusable
from service.log.sqlite_file import RESTORING, LogFile

_PAGES_AT_ONCE = 4_096
_MAX_BYTES = 1 << 30


Told = Callable[[int, int], None]
"""Hears how many pages are done, and of how many."""


def back_up(source: Path, target: Path, told: Told) -> None:
    """Copies the file of a log. Raises LogUnusable where ``source`` is no log or ``target`` is there already
    or cannot be written, LogUnavailable where another program keeps the file locked."""
    if not source.exists():
        raise LogUnusable(f"{source} is not there")
    if target.exists():
        raise LogUnusable(f"{target} is there already: name another, or move it away")
    unfinished = target.with_name(f"{target.name}.unfinished")
    try:
        _copy(source, unfinished, told)
        unfinished.rename(target)
        _make_lasting(target.resolve().parent)
    except OSError as error:
        raise LogUnusable(f"{target} cannot be written: {error.strerror}") from error
    finally:
        _discard(unfinished)


def put_back(copy: Path, target: Path, told: Told, *, keep: bool) -> Path | None:
    """Makes ``target`` what ``copy`` is. Returns where the old file is, if there was one and it is to be
    kept. Raises LogUnusable where ``copy`` is no whole log that this version reads, or ``target`` cannot be
    written; LogUnavailable where a service has ``target`` open. Then all is as it was."""
    if not copy.exists():
        raise LogUnusable(f"{copy} is not there")
    file = LogFile(target, max_message_bytes=_MAX_BYTES)
    if copy.resolve() == file.path:
        raise LogUnusable(f"{copy} is the file itself: name a copy of it")
    file.own()
    unfinished = file.beside(".unfinished")
    with contextlib.closing(file):
        try:
            _copy(copy, unfinished, told, is_closed=not Path(f"{copy.resolve()}-wal").exists())
            unfinished.rename(file.beside(RESTORING))
            return _install(file, keep=keep)
        except OSError as error:
            raise LogUnusable(f"{target} cannot be written: {error.strerror}") from error
        finally:
            _discard(unfinished)


def _install(file: LogFile, *, keep: bool) -> Path | None:
    """Puts a checked copy in the place of the file, which is owned. Can be repeated from anywhere."""
    _make_lasting(file.path.parent)
    there = [ending for ending in ("-wal", "") if file.beside(ending).exists()]
    old = LogFile(_free_name(file), max_message_bytes=_MAX_BYTES)
    if "" in there:
        shutil.copymode(file.path, file.beside(RESTORING))
    if keep and there:
        for ending in there:
            file.beside(ending).rename(old.beside(ending))
        old.path.touch()  # the name is taken, also where only a journal was left
    for ending in ("-wal", "-shm"):
        file.beside(ending).unlink(missing_ok=True)
    _make_lasting(file.path.parent)
    file.beside(RESTORING).replace(file.path)
    _make_lasting(file.path.parent)
    return old.path if keep and there else None


def _free_name(file: LogFile) -> Path:
    return next(name for i in count(1) if not (name := file.beside(f".replaced-{i}")).exists())


def _copy(source: Path, unfinished: Path, told: Told, *, is_closed: bool = False) -> None:
    """Copies a log as of one commit, and makes sure that the copy is a whole one, on the disk. ``is_closed``:
    nobody writes to it, so that it is read where no journal can be made beside it. Raises OSError where the
    copy cannot be written."""
    file = LogFile(source, max_message_bytes=_MAX_BYTES, way_out="a copy of it is of no use")
    _discard(unfinished)
    unfinished.touch()
    with (
        file.translated(),
        contextlib.closing(_read_only(source, is_closed=is_closed)) as reading,
        contextlib.closing(sqlite3.connect(unfinished, isolation_level=None)) as writing,
    ):
        if not file.check_owner(reading):
            raise LogUnusable(f"{source} is empty: it is no log")
        reading.execute("BEGIN")
        reading.execute("SELECT count(*) FROM sqlite_schema").fetchone()  # from here on one commit is seen
        try:
            reading.backup(
                writing, pages=_PAGES_AT_ONCE, progress=lambda _, left, pages: told(pages - left, pages)
            )
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_FULL:
                raise
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error  # nothing else is written
        (state,) = writing.execute("PRAGMA integrity_check(1)").fetchone()
        if state != "ok":
            raise LogUnusable(f"{source} is damaged ({state}): a copy is of no use")
    _make_lasting(unfinished)


def _discard(unfinished: Path) -> None:
    """Takes away what there is of it. Raises nothing."""
    for ending in ("", "-journal"):
        with contextlib.suppress(OSError):
            Path(f"{unfinished}{ending}").unlink()


def _read_only(path: Path, *, is_closed: bool) -> sqlite3.Connection:
    path = path.resolve()
    options = "mode=ro&immutable=1" if is_closed else "mode=ro"
    return sqlite3.connect(f"{path.as_uri()}?{options}", uri=True, isolation_level=None)


def _make_lasting(path: Path) -> None:
    """Waits until a file, or the names in a directory, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
