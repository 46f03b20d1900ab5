"""The file under the embedded log: ownership, schema, connections, and errors in the port's words.

Invariants:

1. One process owns the file. It holds an exclusive lock on ``FILE.lock`` while the file is open; the kernel
   lets go of it when the process ends, in whatever way.
2. A file that is not ours, is damaged or was written by a newer version is refused and left as it is. So is
   one whose replacement by a copy has not come to its end (``sqlite_backup``).

Not for: topics, offsets or anything else of the port (``sqlite``).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from service.log.port import LogUnavailable, LogUnusable

SCHEMA_VERSION = 1
#: Ends the name of a good copy that is about to take the place of the file.
RESTORING = ".restoring"
APPLICATION_ID = 0x52574C47
_SCHEMA = """
CREATE TABLE topics (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, next INTEGER NOT NULL);
CREATE TABLE records (
    topic INTEGER NOT NULL, offset INTEGER NOT NULL, ts INTEGER NOT NULL, key BLOB, value BLOB,
    PRIMARY KEY (topic, offset)
) WITHOUT ROWID;
CREATE TABLE state (
    topic INTEGER NOT NULL, key BLOB NOT NULL, value BLOB NOT NULL, PRIMARY KEY (topic, key)
) WITHOUT ROWID;
CREATE TABLE positions (topic INTEGER PRIMARY KEY, event INTEGER NOT NULL, command INTEGER NOT NULL);
"""

#: SQLite takes a shorter file for an empty database, and would write over it.
_MIN_FILE_BYTES = 512
#: What a start reads whole, bounded by the streams. Of the records damage is told as they are read.
_READ_WHOLE = ("topics", "positions", "state")
#: SQLite's limit is on a whole row: the value, and beside it a key and three numbers.
_ROW_OVERHEAD_BYTES = 1 << 16
_BUSY_TIMEOUT_S = 2.0


class LogFile:
    """A file that this process owns between ``open`` and ``close``."""

    def __init__(self, path: Path, max_message_bytes: int, way_out: str | None = None) -> None:
        self.path = path.resolve()
        self._way_out = way_out or (
            f"put a copy back (rangewatch restore COPY {self.path}), or use another file"
        )
        self._max_message_bytes = max_message_bytes
        self._lock: IO[str] | None = None

    def open(self) -> None:
        """Takes the file, and makes it if there is none. Raises LogUnavailable if another process has it,
        LogUnusable if it is not for us to use."""
        self.own()
        try:
            self._refuse_unrestored()
            self._refuse_headless()
            with self.translated(), contextlib.closing(self.connect()) as connection:
                self._check(connection)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Lets go of the file. Idempotent. Connections are closed before by those who opened them."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def connect(self) -> sqlite3.Connection:
        """A connection that threads may share if they take turns. Transactions are explicit."""
        with self.translated():
            connection = sqlite3.connect(
                self.path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
            )
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, self._max_message_bytes + _ROW_OVERHEAD_BYTES)
            return connection

    @contextlib.contextmanager
    def translated(self) -> Iterator[None]:
        """Turns SQLite's errors into the port's."""
        try:
            yield
        except sqlite3.DataError as error:
            raise self.too_large() from error
        except sqlite3.DatabaseError as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise LogUnavailable(f"{self.path} is locked by another program: {error}") from error
            if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
                raise self.damaged(str(error)) from error
            raise LogUnusable(f"{self.path} cannot be used: {error}") from error

    def too_large(self) -> LogUnusable:
        return LogUnusable(
            f"a message is larger than the {self._max_message_bytes} bytes that the log allows"
        )

    def damaged(self, how: str) -> LogUnusable:
        return LogUnusable(f"{self.path} is damaged, or no log ({how}): {self._way_out}")

    def beside(self, ending: str) -> Path:
        """The file whose name goes on with ``ending``."""
        return self.path.with_name(self.path.name + ending)

    def own(self) -> None:
        """Takes the lock, whether there is a file or not. Raises LogUnavailable, LogUnusable."""
        try:
            lock = self.beside(".lock").open("a+")
        except OSError as error:
            raise LogUnusable(f"{self.path} cannot be used: {error.strerror}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.seek(0)
            owner = lock.read().strip()
            lock.close()
            advice = "end that one, or use another file"
            raise LogUnavailable(f"{self.path} is in use by process {owner}: {advice}") from None
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        self._lock = lock

    def _refuse_unrestored(self) -> None:
        if self.beside(RESTORING).exists():
            raise LogUnusable(
                f"{self.path} was being replaced by a copy, and that has not come to its end: repeat it"
                f" (rangewatch restore COPY {self.path})"
            )

    def _refuse_headless(self) -> None:
        """A write-ahead log without its file holds commits; SQLite would begin a new file and drop them."""
        wal = self.beside("-wal")
        if wal.exists() and wal.stat().st_size > 0 and not (self.path.exists() and self.path.stat().st_size):
            raise self.damaged(f"{wal.name} is there and the file itself is not")

    def _check(self, connection: sqlite3.Connection) -> None:
        """Makes sure that the file is ours before anything is written to it."""
        size = self.path.stat().st_size
        if 0 < size < _MIN_FILE_BYTES:
            raise self.damaged(f"it has {size} bytes")
        is_made = self.check_owner(connection)
        for table in _READ_WHOLE if is_made else ():
            (state,) = connection.execute(f"PRAGMA quick_check({table})").fetchone()
            if state != "ok":
                raise self.damaged(state.replace("\n", " "))
        connection.execute("PRAGMA journal_mode = WAL")
        if not is_made:
            mark = f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {SCHEMA_VERSION};"
            connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} {mark} COMMIT;")

    def check_owner(self, connection: sqlite3.Connection) -> bool:
        """Whether there is anything in the file. Raises LogUnusable where it is not ours; reads only."""
        (owner,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if owner != APPLICATION_ID and (owner or version or tables):
            raise LogUnusable(f"{self.path} is a database of another program: use another file")
        if version > SCHEMA_VERSION:
            raise LogUnusable(
                f"{self.path} was written by a newer version of this program (schema {version}, "
                f"known is {SCHEMA_VERSION}): upgrade, or use another file"
            )
        return bool(tables)
