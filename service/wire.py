"""Effects to bytes: the records of the output topics, and entries of the command log.

One record is one JSON object; its schema is in ``service/schemas``. The records of a batch are made
together, from columns by a ``template``, of parts that are JSON already (ids need no escaping by their
alphabet): this is the hot path of every event that matches. Bytes to columns is ``decode``.

Pure.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import count, pairwise, repeat
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
from service.template import Listed, Part, Picked, filled, order_ids
from service.tenants import DEFAULT_TENANT, split

Ints = NDArray[np.int64]

_output = partial(tuple.__new__, Output)
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
def _quoted(stream_id: str) -> bytes:
    return _to_json(stream_id)


class _Owner(msgspec.Struct):
    tenant: str | None = None


_owner = msgspec.json.Decoder(_Owner).decode


def owner(value: bytes | None) -> str | None:
    """The tenant that a record of an output topic belongs to; None of a dead letter, and of what nobody here
    has written. O(bytes)."""
    try:
        return None if value is None else _owner(value).tenant
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


class _Names(NamedTuple):
    """The ids of the streams of n records: ``texts`` as they are, ``picks int32[n]`` which of them. Most
    streams have several records in a batch."""

    texts: Sequence[str]
    picks: NDArray[np.int32]

    @classmethod
    def of(cls, stream_ids: Sequence[str]) -> _Names:
        place = dict(zip(dict.fromkeys(stream_ids), count(), strict=False))
        picks = np.fromiter(map(place.__getitem__, stream_ids), dtype=np.int32, count=len(stream_ids))
        return cls(list(place), picks)

    def take(self, rows: Rows) -> _Names:
        return _Names(self.texts, self.picks[rows])

    @property
    def quoted(self) -> Picked:
        """As JSON."""
        return Picked(list(map(_quoted, self.texts)), self.picks)

    @property
    def keys(self) -> Iterable[bytes]:
        """As keys of records."""
        return map(list(map(str.encode, self.texts)).__getitem__, self.picks.tolist())


class Encoder:
    """Writes the records of one source. A record belongs to one tenant."""

    def __init__(self, queries: QuerySet, *, max_ids: int, max_bytes: int) -> None:
        """``max_ids``: the most ids in a match record; ``max_bytes``: the largest event that is taken."""
        self._queries = queries
        self._max_ids = max_ids
        self._max_bytes = max_bytes
        self._source = queries.source.name
        self._heads = {DEFAULT_TENANT: _head(DEFAULT_TENANT, self._source)}

    def _head_of(self, tenant: str) -> bytes:
        """What the records of a tenant begin with, up to the stream id."""
        return self._heads.get(tenant) or self._heads.setdefault(tenant, _head(tenant, self._source))

    def events(self, effects: EventEffects, originals: Mapping[tuple[int, int], bytes | None]) -> Written:
        """The records of one batch in log order; of one event: dead letter, matches, borders.

        ``originals`` has the bytes of refused events by (offset, place in the message)."""
        batch, task = effects.batch, effects.task
        before = f'"origin":{{"topic":{json_text(task.topic)},"partition":{task.partition},"offset":'
        names = _Names.of(batch.stream_ids)
        letters = [self._dead_letter(task, one, originals[one.offset, one.item]) for one in effects.refused]
        match_rows, matches = self._matches(effects, names, before)
        border_rows = effects.borders.causes
        borders = self._event_borders(effects, names, before)
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

    def _matches(self, effects: EventEffects, names: _Names, origin: str) -> tuple[Rows, list[Output]]:
        """The row of the batch that each match record is due to, and the records; of one row by tenant, then
        by what is selected."""
        rows, slots = effects.matches
        if not len(rows):
            return rows, []
        queries, batch = self._queries, effects.batch
        alike, kinds = self._alike(slots)
        if len(kinds) > 1:
            order = np.lexsort((alike, rows))
            rows, slots, alike = rows[order], slots[order], alike[order]
        else:
            slots = slots.copy()
        groups = np.flatnonzero(np.diff(rows, prepend=-1) | np.diff(alike, prepend=0))
        bounds = np.append(groups, len(rows))
        self._order(slots, bounds)
        of, begins, ends, chunks = _chunks(bounds, self._max_ids)
        due, kind = rows[groups][of], alike[groups][of]
        names = names.take(due)
        tenants, projections = zip(*kinds, strict=True)
        values = filled(
            len(due),
            [
                Picked([self._head_of(tenant) for tenant in tenants], kind),
                names.quoted,
                b',"ts":',
                np.where(batch.timed, batch.ts, batch.log_ts)[due],
                b',"queries":',
                Listed(begins, ends),
                chunks,
                Picked([b"", b',"late":true'], effects.late[due].view(np.uint8)),
                b',"attrs":',
                self._attrs([projections[one] for one in kind.tolist()], effects.points[due]),
                f",{origin}".encode(),
                batch.offsets[due],
                b',"row":',
                batch.items[due],
                b"}}",
            ],
            queries.id_texts,
            slots,
        )
        return due, _outputs(MATCHES, names, values)

    def _alike(self, slots: Slots) -> tuple[NDArray[np.intp], list[tuple[str, tuple[str, ...]]]]:
        """Which hits of one event share a record: those with one number. By number, the tenant and what is
        selected; numbers rise as the records of one event shall follow each other."""
        queries = self._queries
        tenants, projections = queries.tenants, queries.projections
        if not tenants.are_several and not queries.selects[slots].any():
            return np.zeros(len(slots), dtype=np.intp), [(DEFAULT_TENANT, ())]
        selected = [projections[slot] for slot in slots.tolist()]
        place = {one: number for number, one in enumerate(sorted(set(selected)))}
        keys = tenants.ranks_of(slots) * len(place) + np.array([place[one] for one in selected])
        _, firsts, alike = np.unique(keys, return_index=True, return_inverse=True)
        names, at = tenants.names, tenants.at
        return alike, [(names[at[slot]], projections[slot]) for slot in slots[firsts].tolist()]

    def _order(self, slots: Slots, bounds: Ints) -> None:
        """Puts the slots of each stretch in the order of their ids."""
        texts = self._queries.id_texts
        order_ids(texts.text, texts.starts, texts.lengths, bounds, slots)

    def _event_borders(self, effects: EventEffects, names: _Names, origin: str) -> list[Output]:
        batch, records = effects.batch, effects.borders
        rows = records.causes
        empty = records.starts[1:] == records.starts[:-1]
        return self._borders(
            records,
            names.take(rows),
            Picked([b"event", b"stream_removed", b"reset"], np.where(empty, 2, batch.removal[rows])),
            effects.points[rows],
            [f",{origin}".encode(), batch.offsets[rows], b',"row":', batch.items[rows], b"}}"],
        )

    def commands(self, effects: CommandEffects | Paid, table: StreamTable) -> list[Output]:
        """The border records that commands, or time, caused in one partition."""
        if isinstance(effects, Paid):
            return self._paid(effects, table)
        records = effects.borders
        return self._borders(
            records,
            _Names.of([table.names[row] for row in records.streams.tolist()]),
            Picked([cause.reason.encode() for cause in effects.causes], records.causes),
            effects.points,
            [Picked([f",{_origin(cause)}".encode() for cause in effects.causes], records.causes)],
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
        names: _Names,
        reasons: Picked,
        points: Points,
        origin: Sequence[Part],
    ) -> list[Output]:
        if not len(records.seq):
            return []
        starts, slots = records.starts, records.slots.copy()
        enters, crosses = _first_of(ENTER, records), _first_of(CROSS, records)
        begins, ends = starts[:-1], starts[1:]
        self._order(slots, np.append(np.column_stack([begins, enters, crosses]).ravel(), starts[-1]))
        values = filled(
            len(records.seq),
            [
                self._heads_of(records),
                names.quoted,
                b',"seq":',
                records.seq,
                b',"ts":',
                records.ts,
                b',"reason":"',
                reasons,
                b'","leave":',
                Listed(begins, enters),
                b',"enter":',
                Listed(enters, crosses),
                b',"cross":',
                Listed(crosses, ends),
                b',"attrs":',
                self._attrs(self._selected(slots, starts), points),
                *origin,
            ],
            self._queries.id_texts,
            slots,
        )
        return _outputs(BORDERS, names, values)

    def _heads_of(self, records: BorderRecords) -> Part:
        """What each record begins with."""
        if records.tenants is None:
            return self._head_of(DEFAULT_TENANT)
        numbers, picks = np.unique(records.tenants, return_inverse=True)
        names = self._queries.tenants.names
        return Picked([self._head_of(names[number]) for number in numbers.tolist()], picks)

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
        return self._head_of(tenant), select, before.encode(), after.encode()

    def _selected(self, slots: Slots, starts: Ints) -> list[Sequence[str]]:
        """What any query of each stretch of slots selects, sorted; empty if none selects anything."""
        if not self._queries.selects[slots].any():
            return []
        projections = self._queries.projections
        return [
            sorted({name for slot in slots[begin:end].tolist() for name in projections[slot]})
            for begin, end in pairwise(starts.tolist())
        ]

    def _attrs(self, selected: Sequence[Sequence[str]], points: Points) -> Part:
        """The attributes of each record; ``selected`` is empty if none has any."""
        if not any(selected):
            return b"{}"
        texts, picks = [b"{}"], []
        for names, point in zip(selected, points, strict=True):
            picks.append(len(texts) if names else 0)
            if names:
                found = values(self._queries, point)
                texts.append(_to_json({name: found[name] for name in names if name in found}))
        return Picked(texts, np.array(picks))


def head_of(tenant: str) -> bytes:
    """What all records of a tenant begin with, and those of no other."""
    return _tenant_head(tenant).encode()


def _tenant_head(tenant: str) -> str:
    return f'{{"v":1,"tenant":"{tenant}",'


def _head(tenant: str, source: str) -> bytes:
    return f'{_tenant_head(tenant)}"source":{json_text(source)},"stream_id":'.encode()


def _selected_of(paid: Paid, i: int, select: Iterable[str]) -> bytes:
    found = present(paid.attributes, paid.dictionaries, paid.points[i])
    return _to_json({name: found[name] for name in select if name in found})


def _first_of(side: int, records: BorderRecords) -> Ints:
    """Where the pairs of a side, or of one after it, begin in each record."""
    before = np.concatenate([[0], np.cumsum(records.sides < side)])
    starts = records.starts
    first: Ints = starts[:-1] + before[starts[1:]] - before[starts[:-1]]
    return first


def _chunks(bounds: Ints, most: int) -> tuple[Ints, Ints, Ints, Part]:
    """Stretches in parts of at most ``most``: which stretch each part is of, where it begins and ends, and
    the fields that tell it from its siblings."""
    sizes = np.diff(bounds)
    counts = -(-sizes // most)
    of = np.repeat(np.arange(len(counts)), counts)
    place = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts)
    begins = bounds[of] + place * most
    ends = np.minimum(begins + most, bounds[of + 1])
    if len(of) == len(counts):
        return of, begins, ends, b""
    parted = counts[of] > 1
    texts = [
        b',"chunk":%d,"chunks":%d' % (part + 1, parts)
        for part, parts in zip(place[parted].tolist(), counts[of][parted].tolist(), strict=True)
    ]
    return of, begins, ends, Picked([b"", *texts], np.where(parted, np.cumsum(parted), 0))


def _origin(cause: Cause) -> str:
    if cause.command is None:
        return f'"origin":{{"timer":"{cause.reason}"}}}}'
    return f'"origin":{{"command":{cause.command}}}}}'


def _outputs(topic: str, names: _Names, values: Sequence[bytes]) -> list[Output]:
    return list(map(_output, zip(repeat(topic), names.keys, values, strict=False)))


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
