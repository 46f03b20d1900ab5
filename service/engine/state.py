"""The state log of one partition: a table of streams as pages and deltas under fixed keys.

Idea: a write-ahead ring and checkpoints, inside a keyed, compacted log. Each commit writes the rows it
touched as *deltas* ``d0 .. d{RING-1}``, round and round, numbered by ``n``. Before a delta is overwritten,
every *page* (``BLOCK`` rows, key ``p{page}``) that it touched has been written whole, in the same transaction
or before. So the log holds at most RING deltas and one record a page, whatever the history was; a commit
costs what it touched.

A page is never removed, only emptied: a missing page would let old deltas speak again. Every block says what
its rows were at number ``n``, so loading is writing them in order of ``n``, whatever was split how. Ids of
events alone are many a row and hardly change: a delta has those that have come, a page all (``recent``).

Pure: records in, records out. Blocks are msgpack; numbers are raw little-endian columns, categories texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import asdict

from service.engine.categories import Dictionary
from service.engine.delta import IGNORED
from service.engine.distinct import distinct
from service.engine.kernels import NO_TIME
from service.engine.memory import Entry
from service.engine.queryset import QuerySet
from service.engine.recent import Windows
from service.engine.streams import PartitionTime, StreamTable
from service.engine.versions import check_version, read_strictly
from service.index.protocol import Points, Rows
from service.model import MISSING, Missing

BLOCK = 256
RING = 1024
#: Wider blocks are written in parts; one row is never wider than any log allows.
MOST_BYTES = 512 * 1024
VERSION = 5
_WITHOUT_IDS = 4
_OF_ONE_TENANT = 3
"""What a block without ``held``, and without ``others``, says that it is: the service before could read it
too."""


class Block(msgspec.Struct, array_like=True):
    """Some rows of a table. ``ids[i]`` None: the row is free."""

    v: int
    n: int
    ahead: int | None
    """Of the partition's time (``streams``); in version 1 the largest ``ts``."""
    reached: int
    """In version 1 the wall time at which that was seen."""
    rows: bytes
    ids: list[str | None]
    last_ts: bytes
    seq: bytes
    point: dict[str, bytes | list[str | None]]
    carried: dict[str, bytes | list[str | None]] | None
    ignored: dict[int, list[str]]
    """By row, the queries that ignored it: version 1; later ones have ``memory``."""
    seen: bytes = b""
    memory: dict[int, dict[str, Entry]] = {}
    told: bytes = b""
    """Only while something is owed (``owed``), since version 3."""
    others: dict[int, dict[str, int]] = {}
    """By row, the numbers of its last records as other tenants than the default one count, since version
    4."""


class BlockOfIds(Block):
    """A block of rows of which some remember ids of events, since version 5. ``held int64[n]``: how many each
    remembers. ``fresh``: of each the newest of them, at least those that no block before had, as its digests
    one behind the other."""

    held: bytes = b""
    fresh: list[bytes] = []


class Heard(msgspec.Struct, array_like=True):
    """What a partition has seen of the command log, under ``HEARD``: written with the first commit of it and
    whenever it has seen more. ``lost``: state of the partition was gone once, so that a stream which seems
    new may have had memberships before."""

    offset: int
    fingerprint: int
    lost: bool = False

    @property
    def at(self) -> tuple[int, int]:
        """Offset and fingerprint."""
        return self.offset, self.fingerprint


HEARD = b"q"

_decode_heard = msgspec.msgpack.Decoder(Heard).decode
_decode = msgspec.msgpack.Decoder(BlockOfIds).decode
_encode = msgspec.msgpack.Encoder().encode


@read_strictly()
def heard(records: Iterable[tuple[bytes, bytes | None]]) -> Heard | None:
    """What the state of a partition says that it has seen; None where it was written before that was said."""
    return next((_decode_heard(value) for key, value in records if key == HEARD and value), None)


def heard_record(now: Heard) -> tuple[bytes, bytes]:
    return HEARD, _encode(now)


class StateLog:
    """What of a table is in the log and what is not yet; see the module."""

    def __init__(self, *, block: int = BLOCK, ring: int = RING, most_bytes: int = MOST_BYTES) -> None:
        self.block = block
        self.ring = ring
        self.most_bytes = most_bytes
        self.n = 0
        #: of the partition (``ahead``, ``reached``), as written last
        self._time: tuple[int | None, int] = (None, NO_TIME)
        #: page -> number of the oldest delta that the page as written does not hold; oldest first
        self._unsaved: dict[int, int] = {}

    def save(self, table: StreamTable, queries: QuerySet) -> Iterator[tuple[bytes, bytes]]:
        """The records of one commit: deltas of the rows touched since the last call, and the pages due."""
        dirty = table.take_dirty()
        time = (table.time.ahead, table.time.reached)
        if not len(dirty) and time == self._time:
            return
        self._time = time
        deltas = -(-len(dirty) // self.block)
        if deltas > self.ring // 4:
            self.n += 1
            for page in distinct(dirty // self.block).tolist():
                self._unsaved.pop(page, None)
                yield from self._page(table, queries, page)
            table.recent.saved(dirty)
            return
        for start in range(0, max(len(dirty), 1), self.block):  # a block without rows says what time it is
            yield from self._deltas(table, queries, dirty[start : start + self.block])
        allowed = 1 + 2 * deltas * len(self._unsaved) // self.ring
        for page, since in list(self._unsaved.items()):
            overdue = since <= self.n - self.ring
            if not overdue and (since > self.n - self.ring // 2 or allowed <= 0):
                break
            allowed -= 1
            del self._unsaved[page]
            yield from self._page(table, queries, page)
        table.recent.saved(dirty)

    def _deltas(self, table: StreamTable, queries: QuerySet, rows: Rows) -> Iterator[tuple[bytes, bytes]]:
        """One delta, or several where the rows are too wide for one record."""
        value = _block(self.n + 1, table, queries, rows, whole=False)
        if len(value) > self.most_bytes and len(rows) > 1:
            half = len(rows) // 2
            yield from self._deltas(table, queries, rows[:half])
            yield from self._deltas(table, queries, rows[half:])
            return
        self.n += 1
        for page in distinct(rows // self.block).tolist():
            self._unsaved.setdefault(page, self.n)
        yield b"d%d" % (self.n % self.ring), value

    def _page(self, table: StreamTable, queries: QuerySet, page: int) -> Iterator[tuple[bytes, bytes]]:
        first = page * self.block
        last = min(first + self.block, len(table.names))
        yield from self._parts(table, queries, page, first, last)

    def _parts(
        self, table: StreamTable, queries: QuerySet, page: int, first: int, last: int
    ) -> Iterator[tuple[bytes, bytes]]:
        """A page as one record, or its halves, each under a key of its own rows."""
        value = _block(self.n, table, queries, np.arange(first, last, dtype=np.int32), whole=True)
        if len(value) > self.most_bytes and last - first > 1:
            middle = (first + last) // 2
            yield from self._parts(table, queries, page, first, middle)
            yield from self._parts(table, queries, page, middle, last)
            return
        whole = first == page * self.block
        yield b"p%d" % page if whole else b"p%d.%d" % (page, first), value

    def load(self, records: Iterable[tuple[bytes, bytes]], queries: QuerySet) -> StreamTable:
        """The table that the records hold. Raises UnreadableState."""
        with read_strictly():
            table = self._read(records, queries)
        table.memory.retime(queries.rules)
        return table

    def _read(self, records: Iterable[tuple[bytes, bytes]], queries: QuerySet) -> StreamTable:
        blocks: list[tuple[int, int, BlockOfIds]] = []
        saved: dict[int, int] = {}
        for key, value in records:
            block = _decode(value)
            check_version(key, block.v, VERSION)
            if key[:1] == b"p":
                page = int(key[1:].partition(b".")[0])
                saved[page] = max(block.n, saved.get(page, 0))
                blocks.append((block.n, 1, block))
            else:
                blocks.append((block.n, 0, block))
        blocks.sort(key=lambda one: one[:2])  # a page holds the delta of its number, so it comes after it
        table, recent = StreamTable(len(queries.attributes)), Windows()
        for n, is_page, block in blocks:
            rows = np.frombuffer(block.rows, dtype=np.int32)
            _place(table, queries, block, rows)
            recent.place(rows, block.held, block.fresh)
            for page in [] if is_page else distinct(rows // self.block).tolist():
                if n > saved.get(page, 0):
                    self._unsaved.setdefault(page, n)
        if blocks:
            newest = blocks[-1][2]
            self.n = newest.n
            table.time = _time(newest)
            self._time = (table.time.ahead, table.time.reached)
        table.finish_restore()
        if queries.source.dedup is not None:
            table.recent.restore(queries.source.dedup.last, recent)
        return table


def _time(block: Block) -> PartitionTime:
    if block.v > 1:
        return PartitionTime(block.ahead, block.reached)
    largest_ts, seen_at_ms = block.ahead, block.reached
    return PartitionTime() if largest_ts is None else PartitionTime(largest_ts - seen_at_ms, largest_ts)


def _block(n: int, table: StreamTable, queries: QuerySet, rows: Rows, *, whole: bool) -> bytes:
    """``whole``: with all ids that rows remember, and not those only that no block has had."""
    known = table.known[rows]
    others = {row: table.others[row] for row in rows.tolist() if row in table.others} if table.others else {}
    carries = queries.source.missing is Missing.CARRY
    block = Block(
        v=_WITHOUT_IDS if others else _OF_ONE_TENANT,
        n=n,
        ahead=table.time.ahead,
        reached=table.time.reached,
        rows=rows.tobytes(),
        ids=[table.names[r] if k else None for r, k in zip(rows.tolist(), known.tolist(), strict=True)],
        last_ts=table.last_ts[rows].tobytes(),
        seq=table.seq[rows].tobytes(),
        point=_columns(table.point[rows], queries),
        carried=_columns(table.carried[rows], queries) if carries else None,
        ignored={},
        seen=table.seen[rows].tobytes(),
        memory={
            row: {queries.names[slot]: entry for slot, entry in sorted(entries.items())}
            for row in (rows.tolist() if len(table.memory) else ())
            if (entries := table.memory.of_row(row))
        },
        told=table.told[rows].tobytes() if table.owed else b"",
        others=others,
    )
    if not table.recent.last:
        return _encode(block)
    held = table.recent.held(rows)
    if not held.any():
        return _encode(block)
    own = {**asdict(block), "v": VERSION}
    return _encode(BlockOfIds(**own, held=held.tobytes(), fresh=table.recent.newest(rows, whole=whole)))


def _columns(values: Points, queries: QuerySet) -> dict[str, bytes | list[str | None]]:
    columns: dict[str, bytes | list[str | None]] = {}
    for place, name in enumerate(queries.attributes):
        column = values[:, place]
        dictionary = queries.dictionaries.get(name)
        columns[name] = column.tobytes() if dictionary is None else _texts(dictionary, column.tolist())
    return columns


def _texts(dictionary: Dictionary, codes: list[float]) -> list[str | None]:
    return [None if code != code else dictionary.text(code) for code in codes]


def _fill(into: Points, rows: Rows, saved: Mapping[str, Any], queries: QuerySet) -> None:
    """Writes saved columns over rows. An attribute that was not there then, or was of another type, is
    missing."""
    for place, name in enumerate(queries.attributes):
        column = saved.get(name)
        dictionary = queries.dictionaries.get(name)
        if column is None or isinstance(column, bytes) != (dictionary is None):
            into[rows, place] = MISSING
        elif dictionary is None:
            into[rows, place] = np.frombuffer(column, dtype=np.float64)
        else:
            into[rows, place] = dictionary.column(column)


def _place(table: StreamTable, queries: QuerySet, block: Block, rows: Rows) -> None:
    """Writes a block over the table. Rows are independent: a stream that has moved from one row to another
    may lie in both until all blocks are in, so ids are looked up only after that."""
    if not len(rows):
        return
    table.extend_to(int(rows.max()) + 1)
    names = table.names
    for row, id in zip(rows.tolist(), block.ids, strict=True):
        names[row] = id or ""
    table.known[rows] = [id is not None for id in block.ids]
    memory = {row: dict.fromkeys(ids, (IGNORED, 0, 0)) for row, ids in block.ignored.items()} | block.memory
    for row in rows.tolist():
        table.memory.forget(row)
        table.others.pop(row, None)
    for row, entries in memory.items():
        known = {queries.slot_of[id]: entry for id, entry in entries.items() if id in queries.slot_of}
        table.memory.restore(row, known)
        queries.rules.remember(known)
    for row, numbers in block.others.items():
        table.others[row] = numbers
        for tenant in numbers:
            queries.tenants.number(tenant)
    if block.seen:
        table.seen[rows] = np.frombuffer(block.seen, dtype=np.int64)
    else:
        table.seen[rows] = _time(block).at(block.reached)
    table.last_ts[rows] = np.frombuffer(block.last_ts, dtype=np.int64)
    table.seq[rows] = np.frombuffer(block.seq, dtype=np.int64)
    table.told[rows] = np.frombuffer(block.told, dtype=np.int64) if block.told else 0
    _fill(table.point, rows, block.point, queries)
    _fill(table.carried, rows, block.carried or {}, queries)
