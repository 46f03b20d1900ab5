"""The state log of one partition: a table of streams as pages and deltas under fixed keys.

Idea: a write-ahead ring and checkpoints, inside a keyed, compacted log. Each commit writes the rows it
touched as *deltas* ``d0 .. d{RING-1}``, round and round, numbered by ``n``. Before a delta is overwritten,
every *page* (``BLOCK`` rows, key ``p{page}``) that it touched has been written whole, in the same transaction
or before. So the log holds at most RING deltas and one record a page, whatever the history was; a commit
costs what it touched, and restoring is: all pages, then the newer deltas in order of ``n``.

A page is never removed, only emptied: a missing page would let old deltas speak again.

Pure: records in, records out. Blocks are msgpack; numbers are raw little-endian columns, categories texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
import numpy as np

from service.engine.categories import Dictionary
from service.engine.queryset import QuerySet
from service.engine.streams import PartitionTime, StreamTable
from service.index.protocol import Points, Rows
from service.model import Missing

BLOCK = 256
RING = 1024
VERSION = 1


class Block(msgspec.Struct, array_like=True):
    """Some rows of a table. ``ids[i]`` None: the row is free."""

    v: int
    n: int
    largest_ts: int | None
    seen_at_ms: int
    rows: bytes
    ids: list[str | None]
    last_ts: bytes
    seq: bytes
    point: dict[str, bytes | list[str | None]]
    carried: dict[str, bytes | list[str | None]] | None
    ignored: dict[int, list[str]]


_decode = msgspec.msgpack.Decoder(Block).decode
_encode = msgspec.msgpack.Encoder().encode


class StateLog:
    """What of a table is in the log and what is not yet; see the module."""

    def __init__(self, *, block: int = BLOCK, ring: int = RING) -> None:
        self.block = block
        self.ring = ring
        self.n = 0
        #: page -> number of the oldest delta that the page as written does not hold; oldest first
        self._unsaved: dict[int, int] = {}

    def save(self, table: StreamTable, queries: QuerySet) -> Iterator[tuple[bytes, bytes]]:
        """The records of one commit: deltas of the rows touched since the last call, and the pages due."""
        dirty = table.take_dirty()
        deltas = -(-len(dirty) // self.block)
        if deltas > self.ring // 4:
            self.n += 1
            for page in np.unique(dirty // self.block).tolist():
                self._unsaved.pop(page, None)
                yield self._page(table, queries, page)
            return
        for start in range(0, len(dirty), self.block):
            rows = dirty[start : start + self.block]
            self.n += 1
            yield b"d%d" % (self.n % self.ring), _block(self.n, table, queries, rows)
            for page in np.unique(rows // self.block).tolist():
                self._unsaved.setdefault(page, self.n)
        allowed = 1 + 2 * deltas * len(self._unsaved) // self.ring
        for page, since in list(self._unsaved.items()):
            overdue = since <= self.n - self.ring
            if not overdue and (since > self.n - self.ring // 2 or allowed <= 0):
                break
            allowed -= 1
            del self._unsaved[page]
            yield self._page(table, queries, page)

    def _page(self, table: StreamTable, queries: QuerySet, page: int) -> tuple[bytes, bytes]:
        first = page * self.block
        rows = np.arange(first, min(first + self.block, len(table.names)), dtype=np.int32)
        return b"p%d" % page, _block(self.n, table, queries, rows)

    def load(self, records: Iterable[tuple[bytes, bytes]], queries: QuerySet) -> StreamTable:
        """The table that the records hold. Raises ValueError on a record of a newer version."""
        pages: dict[int, Block] = {}
        deltas: list[Block] = []
        for key, value in records:
            block = _decode(value)
            if block.v > VERSION:
                raise ValueError(f"state record {key!r} has version {block.v}; this service knows {VERSION}")
            if key[:1] == b"p":
                pages[int(key[1:])] = block
            else:
                deltas.append(block)
        deltas.sort(key=lambda block: block.n)
        table = StreamTable(len(queries.attributes))
        for block in pages.values():
            _place(table, queries, block, np.frombuffer(block.rows, dtype=np.int32) >= 0)
        for block in deltas:
            page_of = np.frombuffer(block.rows, dtype=np.int32) // self.block
            fresh = np.array([page not in pages or pages[page].n < block.n for page in page_of.tolist()])
            _place(table, queries, block, fresh)
            for page in np.unique(page_of[fresh]).tolist():
                self._unsaved.setdefault(page, block.n)
        newest = max([*pages.values(), *deltas], key=lambda block: block.n, default=None)
        if newest is not None:
            self.n = newest.n
            table.time = PartitionTime(newest.largest_ts, newest.seen_at_ms)
        table.finish_restore()
        return table


def _block(n: int, table: StreamTable, queries: QuerySet, rows: Rows) -> bytes:
    known = table.known[rows]
    carries = queries.source.missing is Missing.CARRY
    return _encode(
        Block(
            v=VERSION,
            n=n,
            largest_ts=table.time.largest_ts,
            seen_at_ms=table.time.seen_at_ms,
            rows=rows.tobytes(),
            ids=[table.names[r] if k else None for r, k in zip(rows.tolist(), known.tolist(), strict=True)],
            last_ts=table.last_ts[rows].tobytes(),
            seq=table.seq[rows].tobytes(),
            point=_columns(table.point[rows], queries),
            carried=_columns(table.carried[rows], queries) if carries else None,
            ignored={
                row: queries.ids(np.array(sorted(table.ignored[row]), dtype=np.int32))
                for row in rows.tolist()
                if row in table.ignored
            },
        )
    )


def _columns(values: Points, queries: QuerySet) -> dict[str, bytes | list[str | None]]:
    columns: dict[str, bytes | list[str | None]] = {}
    for place, name in enumerate(queries.attributes):
        column = values[:, place]
        dictionary = queries.dictionaries.get(name)
        columns[name] = column.tobytes() if dictionary is None else _texts(dictionary, column.tolist())
    return columns


def _texts(dictionary: Dictionary, codes: list[float]) -> list[str | None]:
    return [None if code != code else dictionary.text(code) for code in codes]


def _fill(into: Points, rows: Rows, chosen: Any, saved: Mapping[str, Any], queries: QuerySet) -> None:
    for place, name in enumerate(queries.attributes):
        column = saved.get(name)
        if column is None:
            continue
        dictionary = queries.dictionaries.get(name)
        values = np.frombuffer(column, dtype=np.float64) if dictionary is None else dictionary.column(column)
        into[rows, place] = values[chosen]


def _place(table: StreamTable, queries: QuerySet, block: Block, chosen: Any) -> None:
    """Writes the chosen rows of a block over the table. Rows are independent: a stream that has moved from
    one row to another may lie in both until all blocks are in, so ids are looked up only after that."""
    rows = np.frombuffer(block.rows, dtype=np.int32)
    if not chosen.any():
        return
    table.extend_to(int(rows.max()) + 1)
    ids = [block.ids[i] for i in np.flatnonzero(chosen).tolist()]
    rows = rows[chosen]
    for row, id in zip(rows.tolist(), ids, strict=True):
        table.names[row] = id or ""
        table.known[row] = id is not None
        table.ignored.pop(row, None)
        slots = {queries.slot_of[query] for query in block.ignored.get(row, ()) if query in queries.slot_of}
        if slots:
            table.ignored[row] = slots
    table.last_ts[rows] = np.frombuffer(block.last_ts, dtype=np.int64)[chosen]
    table.seq[rows] = np.frombuffer(block.seq, dtype=np.int64)[chosen]
    _fill(table.point, rows, chosen, block.point, queries)
    if block.carried is not None:
        _fill(table.carried, rows, chosen, block.carried, queries)
