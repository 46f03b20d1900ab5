"""API keys: who may ask for what, as a file of hashes.

Idea: a key is an id, which finds its line, and 256 random bits, which nobody guesses. So one SHA-256 is all
that the file need keep. A slow, salted hash defends what people choose (passwords); here it would defend
nothing and let strangers spend our processor. The digests are compared in constant time.

The file is TOML, one table a key, and is read anew as soon as it has changed: keys come and go without a
restart. A name may have several keys, so that a new one is in use before the old one ends::

    [[keys]]
    id = "5d0f0c1b9a7e"
    name = "port-dashboard"      # who it is: stands in the history, has the rate
    role = "read"                # read, write, admin: each may do what those before it may
    tenant = "default"
    created = 2026-11-28T11:30:00Z
    expires = 2027-02-26T11:30:00Z        # may be left out
    hash = "sha256:..."

Invariants: the text of a key exists in the answer of ``new_key`` only. A file that cannot be read or
understood, or that everybody may write, never becomes the keys: the last good ones stay, the log says so, and
it is tried again. Nor does one that says nothing of keys while the service runs: it may be half written.
That there are none is said by ``keys = []``.

Not for: what a role may do; that is in ``api.access``.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import logging
import os
import re
import secrets
import shutil
import stat
import time
import tomllib
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from service.tenants import DEFAULT_TENANT, PATTERN
from service.watch import Watch

MARK = "rw"
"""Keys begin with it, so that a scanner of repositories can find one that has been committed."""

_ID_BYTES = 6
_SECRET_BYTES = 32
_KEY = re.compile(rf"{MARK}_([0-9a-f]{{{2 * _ID_BYTES}}})_[0-9a-f]{{{2 * _SECRET_BYTES}}}", re.ASCII)
_TABLE = "[[keys]]"
_NO_KEYS = re.compile(r"(?m)^keys\s*=\s*\[\s*\][^\S\n]*$\n?")
_NOBODYS = b"\x00" * hashlib.sha256().digest_size

_logger = logging.getLogger("rangewatch")


class KeysError(Exception):
    """The file of keys is wrong; the text names the place and never quotes a hash."""


class KeyRefused(Exception):
    """What was shown is no key, or none any more; the text says which, and does not quote it."""


class Role(StrEnum):
    """What one may do, in ascending order: each role may do what those before it may."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"

    def covers(self, needed: Role) -> bool:
        order = list(Role)
        return order.index(self) >= order.index(needed)


class Principal(NamedTuple):
    """Who asks. ``key`` is the id of the key that was shown; None where none is asked for."""

    name: str | None
    role: Role
    tenant: str
    key: str | None


NOBODY = Principal(None, Role.READ, DEFAULT_TENANT, None)
"""Who has not been asked who it is: the least that there is."""


class Key(BaseModel):
    """One line of the file: all but the key itself."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str = Field(pattern=rf"^[0-9a-f]{{{2 * _ID_BYTES}}}$")
    name: str = Field(pattern=r"^[A-Za-z0-9._@:-]{1,100}$")
    role: Role
    tenant: str = Field(DEFAULT_TENANT, pattern=PATTERN)
    created: AwareDatetime
    expires: AwareDatetime | None = None
    hash: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$", repr=False)]

    @property
    def digest(self) -> bytes:
        return bytes.fromhex(self.hash.removeprefix("sha256:"))

    def has_expired(self, now: datetime) -> bool:
        return self.expires is not None and self.expires <= now


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def new_key(
    name: str, role: Role, *, now: datetime, tenant: str = DEFAULT_TENANT, expires: datetime | None = None
) -> tuple[str, Key]:
    """A key's text, to be shown once, and what the file keeps of it. Raises KeysError on a bad name."""
    id = secrets.token_hex(_ID_BYTES)
    text = f"{MARK}_{id}_{secrets.token_hex(_SECRET_BYTES)}"
    entry = {"id": id, "name": name, "role": role, "tenant": tenant, "expires": expires}
    created, hash = now.replace(microsecond=0), f"sha256:{_digest(text).hex()}"
    try:
        return text, Key.model_validate({**entry, "created": created, "hash": hash})
    except ValidationError as error:
        raise KeysError(_mistake(error)) from None


def read_keys(document: str) -> dict[str, Key]:
    """The keys of a file's text by id. Raises KeysError."""
    try:
        tables = tomllib.loads(document)
    except (ValueError, RecursionError) as error:  # numbers too long, lists too deep
        raise KeysError(f"is not TOML: {error}") from None
    entries = tables.pop("keys", [])
    if tables:
        raise KeysError(f"unknown {next(iter(tables))!r}; there is nothing but {_TABLE}")
    if not isinstance(entries, list):
        raise KeysError(f"keys is no list of tables; write {_TABLE} above each")
    keys: dict[str, Key] = {}
    for number, entry in enumerate(entries, 1):
        try:
            key = Key.model_validate(entry)
        except ValidationError as error:
            raise KeysError(f"key {number}: {_mistake(error)}") from None
        if key.id in keys:
            raise KeysError(f"key {number}: the id {key.id} stands twice")
        keys[key.id] = key
    return keys


def _mistake(error: ValidationError) -> str:
    first = error.errors(include_input=False, include_context=False, include_url=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'the table'}: {first['msg']}"


def with_key(document: str, key: Key) -> str:
    """The text with one more key at its end."""
    fields = {
        **key.model_dump(include={"id", "name"}),
        "role": str(key.role),
        "tenant": key.tenant,
        "created": key.created,
        "expires": key.expires,
        "hash": key.hash,
    }
    lines = [f"{name} = {_toml(value)}" for name, value in fields.items() if value is not None]
    document = _NO_KEYS.sub("", document)
    before = document.rstrip() + "\n\n" if document.strip() else ""
    return "\n".join([f"{before}{_TABLE}", *lines, ""])


def _toml(value: str | datetime) -> str:
    # The patterns of names leave nothing to escape.
    return (
        f'"{value}"' if isinstance(value, str) else value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    )


def without_key(document: str, id: str) -> str:
    """The text without one key; the rest of it, comments too, stays as it is. Without the last one it says
    that there are none. Raises KeysError."""
    expected = read_keys(document)
    if expected.pop(id, None) is None:
        raise KeysError(f"there is no key {id}")
    head, *tables = re.split(rf"(?m)^(?={re.escape(_TABLE)})", document)
    kept = head + "".join(table for table in tables if id not in _ids(table))
    if read_keys(kept) != expected:
        raise KeysError(f"is not laid out as it is written here; take the table of {id} out by hand")
    return kept if expected else f"{kept.rstrip()}\n\nkeys = []\n".lstrip()


def _ids(table: str) -> set[str]:
    with contextlib.suppress(KeysError):
        return set(read_keys(table))
    return set()


def edit(path: Path, change: Callable[[str], str]) -> None:
    """Replaces the file by what ``change`` makes of its text, at once and with nobody in between.

    The file keeps its owner, group and mode: the service reads it under a user of its own. One that was not
    there is made for whoever makes it, alone. Raises KeysError, OSError; then all is as it was.
    """
    target = path.resolve()
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        there = target.exists()
        document = change(target.read_text() if there else "")
        fresh = target.with_name(f".{target.name}.new")
        try:
            with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
                out.write(document)
                out.flush()
                os.fsync(out.fileno())
            if there:
                _keep_owner(target, fresh)
                shutil.copymode(target, fresh)
            fresh.replace(target)
        finally:
            fresh.unlink(missing_ok=True)
        os.fsync(folder)
    finally:
        os.close(folder)


def _keep_owner(old: Path, fresh: Path) -> None:
    """Raises KeysError where this user may not give files to the old one's owner and group."""
    owner = old.stat()
    try:
        os.chown(fresh, owner.st_uid, owner.st_gid)
    except PermissionError:
        raise KeysError(
            f"belongs to the user {owner.st_uid} and the group {owner.st_gid} and would not any more: do this"
            " as that user, or as root; nothing has changed"
        ) from None


class KeyRing:
    """The keys of a file, as it is now. Used by one thread."""

    def __init__(self, path: Path, clock_s: Callable[[], float] = time.monotonic) -> None:
        """Reads the file. Raises KeysError."""
        self._path = path
        self._watch = Watch(path, clock_s=clock_s)
        self._keys = self._read()

    def _read(self, *, running: bool = False) -> dict[str, Key]:
        try:
            if self._path.stat().st_mode & stat.S_IWOTH:
                raise KeysError("everybody may write it; chmod o-w")
            document = self._path.read_text()
            keys = read_keys(document)
            if running and not keys and not _NO_KEYS.search(document):
                raise KeysError(
                    "it has no keys, as while somebody writes it; if none is what is meant: keys = []"
                )
            return keys
        except KeysError as error:
            raise KeysError(f"{self._path}: {error}") from None
        except OSError as error:
            raise KeysError(f"cannot read {self._path}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise KeysError(f"{self._path} is not UTF-8") from None

    def refresh(self) -> None:
        """Reads the file if it has changed, until that goes well: one stat where it has not."""
        if not self._watch.is_due():
            return
        try:
            keys = self._read(running=True)
        except KeysError as error:
            if self._watch.is_news(str(error)):
                _logger.error("the keys stay as they were: %s", error)
        else:
            self._keys = keys
            self._watch.has_been_read()
            _logger.info("%s has changed: %d keys", self._path, len(self._keys))

    def principal(self, text: str, now: datetime) -> Principal:
        """Who shows this key. Raises KeyRefused."""
        self.refresh()
        parts = _KEY.fullmatch(text)
        key = self._keys.get(parts[1]) if parts else None
        is_right = hmac.compare_digest(key.digest if key else _NOBODYS, _digest(text))
        if key is None or not is_right:
            raise KeyRefused("this key is not known: it was revoked, or it is none")
        if key.has_expired(now):
            raise KeyRefused(f"the key {key.id} of {key.name} has expired")
        return Principal(key.name, key.role, key.tenant, key.id)
