"""Effects to bytes: the records of the output topics, and entries of the command log.

One record is one JSON object; its schema is in ``service/schemas``. Records are built as text from parts that
are JSON already (ids need no escaping by their alphabet), because this is the hot path of every event that
matches. Bytes to columns is ``decode``.

Pure.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import repeat
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from service.engine.aggregates import AggregateRecord
from service.engine.commands import Entry
from service.engine.effects import (
    CROSS,
    ENTER,
    BorderRecords,
    Cause,
    Change,
    CommandEffects,
    EventEffects,
    Paid,
    Refused,
    Task,
)
from service.engine.engine import present, values
from service.engine.queryset import QuerySet
from service.engine.streams import StreamTable
from service.index.protocol import Points, Rows, Slots
from service.log.port import Message, Output
from service.log.topics import AGGREGATES, BORDERS, DEAD_LETTER, MATCHES
from service.tenants import DEFAULT_TENANT, split

_to_json = msgspec.json.Encoder().encode
_from_json = msgspec.json.Decoder().decode

#: How much of an event that is too large goes into its dead letter.
TRUNCATED_BYTES = 65_536


class Written(NamedTuple):
    """Records in the order in which they are written, and the offset of the message that each is due to."""

    outputs: list[Output]
    offsets: NDArray[np.int64]


def json_text(value: Any) -> str:
    return _to_json(value).decode()


@lru_cache(maxsize=1 << 16)
def _quoted(stream_id: str) -> str:
    return json_text(stream_id)


class _Owner(msgspec.Struct):
    tenant: str | None = None


_owner = msgspec.json.Decoder(_Owner).decode


def owner(value: bytes | None) -> str | None:
    """The tenant that a record of an output topic belongs to; None of a dead letter. O(bytes)."""
    return None if value is None else _owner(value).tenant


class Encoder:
    """Writes the records of one source. A record belongs to one tenant."""

    def __init__(self, queries: QuerySet, *, max_ids: int, max_bytes: int) -> None:
        """``max_ids``: the most ids in a match record; ``max_bytes``: the largest event that is taken."""
        self._queries = queries
        self._max_ids = max_ids
        self._max_bytes = max_bytes
        self._source = queries.source.name
        self._heads = {DEFAULT_TENANT: _head(DEFAULT_TENANT, self._source)}

    def _head_of(self, tenant: str) -> str:
        """What the records of a tenant begin with, up to the stream id."""
        return self._heads.get(tenant) or self._heads.setdefault(tenant, _head(tenant, self._source))

    def events(self, effects: EventEffects, originals: Mapping[tuple[int, int], bytes | None]) -> Written:
        """The records of one batch in log order; of one event: dead letter, matches, borders.

        ``originals`` has the bytes of refused events by (offset, place in the message)."""
        batch, task = effects.batch, effects.task
        before = f'"origin":{{"topic":{json_text(task.topic)},"partition":{task.partition},"offset":'
        letters = [self._dead_letter(task, one, originals[one.offset, one.item]) for one in effects.refused]
        match_rows, matches = self._matches(effects, before)
        border_rows = effects.borders.causes
        borders = self._event_borders(effects, before)
        rows = np.concatenate([match_rows, border_rows])
        offsets, items = batch.offsets[rows], batch.items[rows]
        if letters:
            places = np.array([(one.offset, one.item) for one in effects.refused], dtype=np.int64)
            offsets = np.concatenate([places[:, 0], offsets])
            items = np.concatenate([places[:, 1], items])
        order = np.lexsort((items, offsets))  # stable: letters, matches, borders of one event stay so
        outputs = [*letters, *matches, *borders]
        return Written([outputs[place] for place in order.tolist()], offsets[order])

    def _dead_letter(self, task: Task, one: Refused, original: bytes | None) -> Output:
        letter: dict[str, Any] = {
            "v": 1,
            "source": self._source,
            "stream_id": one.stream_id,
            "reason": one.reason,
            "detail": one.detail,
        }
        if original is not None:
            letter |= _original(original, self._max_bytes)
        place = {"topic": task.topic, "partition": task.partition, "offset": one.offset, "row": one.item}
        letter["origin"] = place
        return Output(DEAD_LETTER, one.stream_id.encode() if one.stream_id else None, _to_json(letter))

    def _matches(self, effects: EventEffects, origin: str) -> tuple[Rows, list[Output]]:
        """The row of the batch that each match record is due to, and the records; of one row by tenant."""
        rows, slots = effects.matches
        if not len(rows):
            return rows, []
        queries = self._queries
        if not queries.tenants.are_several:
            return self._matches_of(DEFAULT_TENANT, rows, slots, effects, origin)
        tenants = queries.tenants.at[slots]
        order = np.argsort(queries.tenants.ranks[tenants], kind="stable")
        begins = np.flatnonzero(np.diff(tenants[order], prepend=-1))
        parts = [
            self._matches_of(queries.tenants.names[tenants[own[0]]], rows[own], slots[own], effects, origin)
            for own in np.split(order, begins[1:])
        ]
        due = np.concatenate([rows for rows, _ in parts])
        outputs = [output for _, some in parts for output in some]
        by_row = np.argsort(due, kind="stable")
        return due[by_row], [outputs[place] for place in by_row.tolist()]

    def _matches_of(
        self, tenant: str, rows: Rows, slots: Slots, effects: EventEffects, origin: str
    ) -> tuple[Rows, list[Output]]:
        """The same of the hits of one tenant; there are some."""
        batch = effects.batch
        starts = np.flatnonzero(np.concatenate([[True], rows[1:] != rows[:-1]]))
        hit_rows = rows[starts]
        selects = bool(self._queries.selects[slots].any())
        due: list[int] = []
        outputs: list[Output] = []
        names, head, ids, begin = self._queries.ids(slots), self._head_of(tenant), batch.stream_ids, 0
        for row, end, ts, late, offset, item in zip(
            hit_rows.tolist(),
            [*starts[1:].tolist(), len(rows)],
            np.where(batch.timed, batch.ts, batch.log_ts)[hit_rows].tolist(),
            effects.late[hit_rows].tolist(),
            batch.offsets[hit_rows].tolist(),
            batch.items[hit_rows].tolist(),
            strict=True,
        ):
            stream_id = ids[row]
            first = f'{head}{_quoted(stream_id)},"ts":{ts},"queries":["'
            last = f'{origin}{offset},"row":{item}}}}}'
            mark = ',"late":true' if late else ""
            grouped = self._by_projection(slots[begin:end], names[begin:end]) if selects else None
            for projection, named in grouped or (((), names[begin:end]),):
                attrs = self._attrs(projection, effects.points[row]) if projection else "{}"
                for chunk, text in self._chunks(named):
                    value = f'{first}{text}"]{chunk}{mark},"attrs":{attrs},{last}'
                    due.append(row)
                    outputs.append(Output(MATCHES, stream_id.encode(), value.encode()))
            begin = end
        return np.array(due, dtype=np.int32), outputs

    def _by_projection(self, slots: Slots, names: list[str]) -> list[tuple[tuple[str, ...], list[str]]]:
        """Ids by what their queries select: those that select the same share a record."""
        projections = self._queries.projections
        grouped: dict[tuple[str, ...], list[str]] = {}
        for slot, name in zip(slots.tolist(), names, strict=True):
            grouped.setdefault(projections[slot], []).append(name)
        return sorted(grouped.items())

    def _chunks(self, ids: list[str]) -> Iterable[tuple[str, str]]:
        """Parts of at most ``max_ids`` ids, sorted, each with the fields that tell it from its siblings."""
        if len(ids) == 1:
            return (("", ids[0]),)
        ids.sort()
        most = self._max_ids
        if len(ids) <= most:
            return (("", '","'.join(ids)),)
        chunks = -(-len(ids) // most)
        return [
            (f',"chunk":{chunk + 1},"chunks":{chunks}', '","'.join(ids[chunk * most : (chunk + 1) * most]))
            for chunk in range(chunks)
        ]

    def _event_borders(self, effects: EventEffects, origin: str) -> list[Output]:
        batch, records = effects.batch, effects.borders
        rows = records.causes
        ids = batch.stream_ids
        empty = records.starts[1:] == records.starts[:-1]
        return self._borders(
            records,
            [ids[row] for row in rows.tolist()],
            [
                "reset" if reset else "stream_removed" if removal else "event"
                for reset, removal in zip(empty.tolist(), batch.removal[rows].tolist(), strict=True)
            ],
            effects.points[rows],
            [
                f'{origin}{offset},"row":{item}}}}}'
                for offset, item in zip(batch.offsets[rows].tolist(), batch.items[rows].tolist(), strict=True)
            ],
        )

    def commands(self, effects: CommandEffects | Paid, table: StreamTable) -> list[Output]:
        """The border records that commands, or time, caused in one partition."""
        if isinstance(effects, Paid):
            return self._paid(effects, table)
        records = effects.borders
        causes = [effects.causes[place] for place in records.causes.tolist()]
        return self._borders(
            records,
            [table.names[row] for row in records.streams.tolist()],
            [cause.reason for cause in causes],
            effects.points,
            [_origin(cause) for cause in causes],
        )

    def _paid(self, paid: Paid, table: StreamTable) -> list[Output]:
        """Many records that differ in stream, number and attributes only: the rest is written once."""
        kinds = (2 * paid.places + paid.sides).tolist()
        around = {kind: self._around(paid.changes[kind // 2], kind % 2) for kind in set(kinds)}
        outputs = []
        for i, (row, seq, kind) in enumerate(
            zip(paid.streams.tolist(), paid.seq.tolist(), kinds, strict=True)
        ):
            head, select, before, after = around[kind]
            attrs = _selected_of(paid, i, select) if select else b"{}"
            name = table.names[row]
            value = b'%b%b,"seq":%d%b%b%b' % (head, _to_json(name), seq, before, attrs, after)
            outputs.append(Output(BORDERS, name.encode(), value))
        return outputs

    def aggregates(self, task: Task, records: Iterable[AggregateRecord]) -> list[Output]:
        """What is told of queries as a whole in one partition. A key for each query and partition, so that
        the last record of a key says how things stand."""
        outputs = []
        for key, ts, content in records:
            tenant, query = split(key)
            of = {name: numbers._asdict() for name, numbers in content.of.items()}
            value = (
                f'{_tenant_head(tenant)}"source":{json_text(self._source)},"query":"{query}",'
                f'"partition":{task.partition},"ts":{ts},"count":{content.members},"of":{json_text(of)}}}'
            )
            outputs.append(Output(AGGREGATES, f"{key}/{task.partition}".encode(), value.encode()))
        return outputs

    def _borders(
        self,
        records: BorderRecords,
        stream_ids: Sequence[str],
        reasons: Sequence[str],
        points: Points,
        tails: Sequence[str],
    ) -> list[Output]:
        names, slots = self._queries.ids(records.slots), records.slots
        selects = bool(self._queries.selects[slots].any())
        starts = records.starts.tolist()
        enters = _first_of(ENTER, records)
        crosses = _first_of(CROSS, records)
        outputs = []
        for i, (head, seq, ts, stream_id, reason, begin, enter, cross, end, tail) in enumerate(
            zip(
                self._heads_of(records),
                records.seq.tolist(),
                records.ts.tolist(),
                stream_ids,
                reasons,
                starts,
                enters,
                crosses,
                starts[1:],
                tails,
                strict=False,
            )
        ):
            attrs = self._attrs(self._selected(slots[begin:end]), points[i]) if selects else "{}"
            value = (
                f'{head}{_quoted(stream_id)},"seq":{seq},"ts":{ts},"reason":"{reason}",'
                f'"leave":{_id_list(names[begin:enter])},"enter":{_id_list(names[enter:cross])},'
                f'"cross":{_id_list(names[cross:end])},"attrs":{attrs},{tail}'
            )
            outputs.append(Output(BORDERS, stream_id.encode(), value.encode()))
        return outputs

    def _heads_of(self, records: BorderRecords) -> Iterable[str]:
        """What each record begins with."""
        if records.tenants is None:
            return repeat(self._head_of(DEFAULT_TENANT), len(records.seq))
        tenants = self._queries.tenants.names
        return [self._head_of(tenants[number]) for number in records.tenants.tolist()]

    def _around(self, change: Change, side: int) -> tuple[bytes, tuple[str, ...], bytes, bytes]:
        """What the records of one change have in common: the text before the stream id; what is selected; the
        text between number and attributes, and that after these."""
        tenant, id = split(change.query)
        mine = f'["{id}"]'
        leave, enter = ("[]", mine) if side == ENTER else (mine, "[]")
        said = f'"ts":{change.ts},"reason":"{change.reason}"'
        before = f',{said},"leave":{leave},"enter":{enter},"cross":[],"attrs":'
        after = f",{_origin(Cause(change.command, change.reason))}"
        select = tuple(sorted(set(change.select)))
        return self._head_of(tenant).encode(), select, before.encode(), after.encode()

    def _selected(self, slots: Slots) -> list[str]:
        """What any of these queries selects, sorted."""
        projections = self._queries.projections
        return sorted({name for slot in slots.tolist() for name in projections[slot]})

    def _attrs(self, selected: Iterable[str], point: Points) -> str:
        present = values(self._queries, point)
        return json_text({name: present[name] for name in selected if name in present})


def head_of(tenant: str) -> bytes:
    """What all records of a tenant begin with, and those of no other."""
    return _tenant_head(tenant).encode()


def _tenant_head(tenant: str) -> str:
    return f'{{"v":1,"tenant":"{tenant}",'


def _head(tenant: str, source: str) -> str:
    return f'{_tenant_head(tenant)}"source":{json_text(source)},"stream_id":'


def _selected_of(paid: Paid, i: int, select: Iterable[str]) -> bytes:
    found = present(paid.attributes, paid.dictionaries, paid.points[i])
    return _to_json({name: found[name] for name in select if name in found})


def _first_of(side: int, records: BorderRecords) -> list[int]:
    """Where the pairs of a side, or of one after it, begin in each record."""
    before = np.concatenate([[0], np.cumsum(records.sides < side)])
    starts = records.starts
    first: list[int] = (starts[:-1] + before[starts[1:]] - before[starts[:-1]]).tolist()
    return first


def _origin(cause: Cause) -> str:
    if cause.command is None:
        return f'"origin":{{"timer":"{cause.reason}"}}}}'
    return f'"origin":{{"command":{cause.command}}}}}'


def _id_list(ids: list[str]) -> str:
    if not ids:
        return "[]"
    if len(ids) > 1:
        ids.sort()
    return '["' + '","'.join(ids) + '"]'


def _original(value: bytes, max_bytes: int) -> dict[str, Any]:
    """The bytes of a refused event as they go into its dead letter; the start of one that is too large."""
    if len(value) > max_bytes:
        return {"value_b64": base64.b64encode(value[:TRUNCATED_BYTES]).decode(), "truncated": True}
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = None
    if text is not None and len(_to_json(text)) <= 4 * len(value) // 3 + 64:
        return {"value": text}
    return {"value_b64": base64.b64encode(value).decode()}


def command_message(entry: Entry, *, at_ms: int, by: str | None = None) -> Message:
    """An entry as it goes into the command log; ``at`` and ``by`` are when and who, for the history."""
    who = {} if by is None else {"by": by}
    return Message(entry.key.encode(), _to_json({**entry.body, "at": at_ms, **who}))


def command_body(value: bytes | None) -> Any:
    """The entry that a record of the command log holds; None for one that is no JSON."""
    if value is None:
        return None
    try:
        return _from_json(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:  # it takes more: what this program has written once, and will not write again, is read on
        return json.loads(value)
    except (ValueError, RecursionError):
        return None
