"""What the streams of one partition have not been told yet: border records that commands cause, in portions.

Idea: a command changes membership at its position, at once, for all streams. Only the records that say so
are put off where they are many: what a group of changes has to tell is a *debt*, and debts are paid so many
records at a time, in order, one portion a commit, with events in between. Whatever else is about to be told
of a stream, or to give it another value, pays first what is owed to that stream. So the records of each
stream are the same, to the byte, whatever the portions were.

A debt says itself all that its records say of the query (id, ``select``, reason, time), so it does not matter
to it what has become of the query since. Only the number (``seq``) and the value of the stream are those at
payment; neither has changed in between, since that would have paid.

Invariants: debts, and the entries of each, are in order of commands, and of one command by rising row; no
stream has two entries of one command. ``told[row]`` of the stream table is the offset before which all
commands have been told to that stream, as far as any debt names it: an entry of command c is owed while
``told[row] <= c``. So what is owed follows from the debts as they were made and from ``told``; a debt that
outlives its commit is written once, and ``told`` with the rows, which have new numbers anyway.

Not for: who is a member (``delta``), when to pay (``engine``).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from service.engine.distinct import distinct
from service.engine.effects import Change
from service.engine.rules import Flags
from service.engine.versions import check_version, read_strictly
from service.index.protocol import Rows

KEY = b"o"
"""State records of this module are ``KEY`` and a number; numbers are used again."""
MOST_BYTES = 512 * 1024
"""Longer debts are written in parts, each a debt of its own when it is read."""
_VERSION = 1

_Numbers = NDArray[np.int64]


class _Written(msgspec.Struct, array_like=True, frozen=True):
    """Entries of a debt: ``counts int32``, how many each change has; ``rows``, the differences of rows as
    int32, and ``enters``, bits; both deflated."""

    v: int
    changes: list[tuple[int, str, int, str, list[str]]]
    counts: bytes
    rows: bytes
    enters: bytes


_decode = msgspec.msgpack.Decoder(_Written).decode
_encode = msgspec.msgpack.Encoder().encode


class Entries(NamedTuple):
    """m entries: which of ``changes``, which stream (rows of the table, ``int32[m]``), and whether it enters
    or leaves."""

    changes: Sequence[Change]
    places: Rows
    rows: Rows
    enters: Flags

    @property
    def commands(self) -> _Numbers:
        """By entry, the offset of its command."""
        return np.array([change.command for change in self.changes], dtype=np.int64)[self.places]

    def take(self, chosen: _Numbers | slice) -> Entries:
        return Entries(self.changes, self.places[chosen], self.rows[chosen], self.enters[chosen])


class _Debt:
    """The entries of a group of changes; see the module. ``left``: how many are still owed."""

    __slots__ = ("_by_row", "entries", "keys", "left", "next")

    def __init__(self, entries: Entries, keys: Iterable[bytes] = ()) -> None:
        self.entries = entries
        self.keys = list(keys)
        self.left = len(entries.rows)
        #: no entry before this is owed
        self.next = 0
        self._by_row: tuple[_Numbers, Rows] | None = None

    @property
    def begin(self) -> tuple[int, int]:
        """Command and row of the first entry: debts are in this order."""
        first = self.entries.take(slice(0, 1))
        return int(first.commands[0]), int(first.rows[0])

    def of(self, rows: Rows) -> _Numbers:
        """The places of the entries of some rows, each row once, ascending. O(rows log n + found); the first
        time O(n log n)."""
        if self._by_row is None:
            order = np.argsort(self.entries.rows, kind="stable")
            self._by_row = order, self.entries.rows[order]
        order, ascending = self._by_row
        begin, end = (np.searchsorted(ascending, rows, side) for side in ("left", "right"))
        counts = end - begin
        found = np.repeat(begin - np.cumsum(counts) + counts, counts) + np.arange(int(counts.sum()))
        return np.sort(order[found])


class Owed:
    """The debts of one partition. ``told int64[capacity]`` is the column of its table."""

    def __init__(self, *, most_bytes: int = MOST_BYTES) -> None:
        self.most_bytes = most_bytes
        self._debts: list[_Debt] = []
        #: all commands before this have been told to rows of which ``told`` is as large
        self._newest = 0
        self._paid_keys: list[bytes] = []

    def __bool__(self) -> bool:
        return bool(self._debts)

    @property
    def records(self) -> int:
        """How many records are owed. O(debts)."""
        return sum(debt.left for debt in self._debts)

    @property
    def oldest(self) -> int:
        """The offset of the oldest command of which something is owed. There is a debt."""
        return self._debts[0].begin[0]

    @property
    def queries(self) -> set[str]:
        """The queries of whose changes something is owed. O(changes)."""
        return {change.query for debt in self._debts for change in debt.entries.changes}

    def add(self, entries: Entries) -> None:
        """Takes on what a group of changes has to tell. Its commands are newer than all before."""
        if len(entries.rows):
            self._append(_Debt(entries))

    def _append(self, debt: _Debt) -> None:
        self._debts.append(debt)
        self._newest = max(self._newest, 1 + max(change.command for change in debt.entries.changes))

    def forget(self) -> None:
        """Nothing is owed any more."""
        self._paid_keys += [key for debt in self._debts for key in debt.keys]
        self._debts.clear()

    # ---- paying

    def portion(self, told: _Numbers, most: int) -> Entries:
        """Takes the next entries, at most ``most``, and marks their rows. O(taken + passed over)."""
        taken: list[Entries] = []
        for debt in self._debts:
            while most > 0 and debt.left:
                begin, debt.next = debt.next, min(debt.next + most, len(debt.entries.rows))
                taken.append(_still_owed(debt, debt.entries.take(slice(begin, debt.next)), told))
                most -= len(taken[-1].rows)
            if most <= 0:
                break
        return self._settled(taken, told)

    def of(self, rows: Rows, told: _Numbers) -> Entries:
        """Takes all entries of some rows (-1: of none) and marks the rows. O(rows x debts x log n + found),
        without those that were asked for since the newest debt."""
        taken: list[Entries] = []
        rows = rows[rows >= 0]
        rows = distinct(rows[told[rows] < self._newest])
        if len(rows):
            taken = [_still_owed(debt, debt.entries.take(debt.of(rows)), told) for debt in self._debts]
        entries = self._settled(taken, told)
        told[rows] = self._newest
        return entries

    def _settled(self, taken: Sequence[Entries], told: _Numbers) -> Entries:
        """All as one; marks their rows and strikes off the debts that are paid."""
        self._paid_keys += [key for debt in self._debts if not debt.left for key in debt.keys]
        self._debts = [debt for debt in self._debts if debt.left]
        entries = _joined(taken)
        np.maximum.at(told, entries.rows, entries.commands + 1)
        return entries

    # ---- the state log

    def save(self) -> Iterator[tuple[bytes, bytes | None]]:
        """The records of one commit: debts taken on since the last call and not paid, and None for those
        paid."""
        for key in self._paid_keys:
            yield key, None
        self._paid_keys.clear()
        fresh = [debt for debt in self._debts if not debt.keys]
        if not fresh:
            return
        used = {key for debt in self._debts for key in debt.keys}
        keys = (key for number in count() if (key := KEY + b"%d" % number) not in used)
        for debt in fresh:
            for value in _parts(debt.entries.take(slice(debt.next, None)), self.most_bytes):
                debt.keys.append(next(keys))
                yield debt.keys[-1], value

    def load(self, records: Iterable[tuple[bytes, bytes]], told: _Numbers) -> None:
        """Takes on what was saved; ``told`` has been restored. Raises ValueError on a record of a newer
        version."""
        debts = [_Debt(_read(key, value), [key]) for key, value in records]
        for debt in sorted(debts, key=lambda debt: debt.begin):
            debt.left = int(np.count_nonzero(told[debt.entries.rows] <= debt.entries.commands))
            self._append(debt)


def _still_owed(debt: _Debt, entries: Entries, told: _Numbers) -> Entries:
    """Takes those of some entries of a debt that are owed."""
    entries = entries.take(np.flatnonzero(told[entries.rows] <= entries.commands))
    debt.left -= len(entries.rows)
    return entries


def _joined(parts: Sequence[Entries]) -> Entries:
    if len(parts) == 1:
        return parts[0]
    changes: list[Change] = []
    places = []
    for part in parts:
        places.append(part.places + np.int32(len(changes)))
        changes += part.changes
    none = np.empty(0, np.int32)
    return Entries(
        changes,
        np.concatenate([none, *places]),
        np.concatenate([none, *(part.rows for part in parts)]),
        np.concatenate([none.astype(np.bool_), *(part.enters for part in parts)]),
    )


def _parts(entries: Entries, most_bytes: int) -> Iterator[bytes]:
    """Some entries as one record, or in halves where they are more than a record may be."""
    n = len(entries.rows)
    first, last = int(entries.places[0]), int(entries.places[-1]) + 1
    counts = np.bincount(entries.places - first, minlength=last - first)
    rows = np.diff(entries.rows, prepend=np.int32(0))
    value = _encode(
        _Written(
            v=_VERSION,
            changes=[(*change[:4], list(change.select)) for change in entries.changes[first:last]],
            counts=counts.astype(np.int32).tobytes(),
            rows=zlib.compress(rows.tobytes(), 1),
            enters=zlib.compress(np.packbits(entries.enters).tobytes(), 1),
        )
    )
    if len(value) > most_bytes and n > 1:
        yield from _parts(entries.take(slice(0, n // 2)), most_bytes)
        yield from _parts(entries.take(slice(n // 2, n)), most_bytes)
        return
    yield value


@read_strictly()
def _read(key: bytes, value: bytes) -> Entries:
    written = _decode(value)
    check_version(key, written.v, _VERSION)
    counts = np.frombuffer(written.counts, dtype=np.int32)
    steps = np.frombuffer(zlib.decompress(written.rows), dtype=np.int32)
    bits = np.frombuffer(zlib.decompress(written.enters), dtype=np.uint8)
    return Entries(
        [Change(*change[:4], select=tuple(change[4])) for change in written.changes],
        np.repeat(np.arange(len(counts), dtype=np.int32), counts),
        np.cumsum(steps, dtype=np.int32),
        np.unpackbits(bits, count=len(steps)).astype(np.bool_),
    )
