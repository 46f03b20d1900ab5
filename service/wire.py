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
from functools import lru_cache, partial
from itertools import pairwise, repeat
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
from service.model import DEFAULT_TENANT

_to_json = msgspec.json.Encoder().encode
_output = partial(tuple.__new__, Output)

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


class Encoder:
    """Writes the records of one source."""

    def __init__(self, queries: QuerySet, *, max_ids: int, max_bytes: int) -> None:
        """``max_ids``: the most ids in a match record; ``max_bytes``: the largest event that is taken."""
        self._queries = queries
        self._max_ids = max_ids
        self._max_bytes = max_bytes
        self._source = queries.source.name
        self._head = f'{{"v":1,"tenant":"{DEFAULT_TENANT}","source":{json_text(self._source)},"stream_id":'

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
        """The row of the batch that each match record is due to, and the records."""
        rows = effects.matches.rows
        if not len(rows):
            return rows, []
        batch = effects.batch
        starts = np.flatnonzero(np.concatenate([[True], rows[1:] != rows[:-1]]))
        due, lists, chunks, attrs = self._lists(effects, starts)
        ids = [batch.stream_ids[row] for row in due.tolist()]
        texts = _filled(
            f'{_plain(self._head)}%b,"ts":%d,"queries":["%b"]%b%b,"attrs":%b,{_plain(origin)}%d,"row":%d}}}}',
            map(_quoted, ids),
            np.where(batch.timed, batch.ts, batch.log_ts)[due].tolist(),
            map(str.encode, lists),
            chunks,
            [b',"late":true' if late else b"" for late in effects.late[due].tolist()],
            attrs,
            batch.offsets[due].tolist(),
            batch.items[due].tolist(),
        )
        return due, _outputs(MATCHES, ids, texts)

    def _lists(
        self, effects: EventEffects, starts: NDArray[np.intp]
    ) -> tuple[Rows, Iterable[str], Iterable[bytes], Iterable[bytes]]:
        """By match record: the row of the batch, the ids that it tells of, what tells it from others of the
        same event, and attributes. ``starts``: where the matches of each event begin."""
        rows, slots = effects.matches
        names = self._queries.ids(slots)
        begins = starts.tolist()
        ends = [*begins[1:], len(rows)]
        selects = bool(self._queries.selects[slots].any())
        if not selects and np.diff(starts, append=len(rows)).max() <= self._max_ids:
            return rows[starts], list(map(_joined, repeat(names), begins, ends)), repeat(b""), repeat(b"{}")
        due: list[int] = []
        made: list[tuple[str, bytes, bytes]] = []
        for row, begin, end in zip(rows[starts].tolist(), begins, ends, strict=True):
            grouped = self._by_projection(slots[begin:end], names[begin:end]) if selects else None
            for projection, named in grouped or (((), names[begin:end]),):
                attrs = self._attrs(projection, effects.points[row]) if projection else b"{}"
                for chunk, text in self._chunks(named):
                    due.append(row)
                    made.append((text, chunk.encode(), attrs))
        lists, chunks, attributes = zip(*made, strict=True)
        return np.array(due, dtype=np.int32), lists, chunks, attributes

    def _by_projection(self, slots: Slots, names: list[str]) -> list[tuple[tuple[str, ...], list[str]]]:
        """Ids by what their queries select: those that select the same share a record."""
        projections = self._queries.projections
        grouped: dict[tuple[str, ...], list[str]] = {}
        for slot, name in zip(slots.tolist(), names, strict=True):
            grouped.setdefault(projections[slot], []).append(name)
        return sorted(grouped.items())

    def _chunks(self, ids: list[str]) -> Iterable[tuple[str, str]]:
        """Parts of at most ``max_ids`` ids, sorted, each with the fields that tell it from its siblings."""
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
            f'{_plain(origin)}%d,"row":%d}}}}',
            batch.offsets[rows].tolist(),
            batch.items[rows].tolist(),
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
            "%b",
            [_origin(cause).encode() for cause in causes],
        )

    def _paid(self, paid: Paid, table: StreamTable) -> list[Output]:
        """Many records that differ in stream, number and attributes only: the rest is written once."""
        kinds = (2 * paid.places + paid.sides).tolist()
        around = {kind: _around(paid.changes[kind // 2], kind % 2) for kind in set(kinds)}
        head = self._head.encode()
        outputs = []
        for i, (row, seq, kind) in enumerate(
            zip(paid.streams.tolist(), paid.seq.tolist(), kinds, strict=True)
        ):
            select, before, after = around[kind]
            attrs = _selected_of(paid, i, select) if select else b"{}"
            name = table.names[row]
            value = b'%b%b,"seq":%d%b%b%b' % (head, _to_json(name), seq, before, attrs, after)
            outputs.append(Output(BORDERS, name.encode(), value))
        return outputs

    def aggregates(self, task: Task, records: Iterable[AggregateRecord]) -> list[Output]:
        """What is told of queries as a whole in one partition. A key for each query and partition, so that
        the last record of a key says how things stand."""
        outputs = []
        for query, ts, content in records:
            of = {name: numbers._asdict() for name, numbers in content.of.items()}
            value = (
                f'{{"v":1,"tenant":"{DEFAULT_TENANT}","source":{json_text(self._source)},"query":"{query}",'
                f'"partition":{task.partition},"ts":{ts},"count":{content.members},"of":{json_text(of)}}}'
            )
            outputs.append(Output(AGGREGATES, f"{query}/{task.partition}".encode(), value.encode()))
        return outputs

    def _borders(
        self,
        records: BorderRecords,
        stream_ids: Sequence[str],
        reasons: Sequence[str],
        points: Points,
        tail: str,
        *origins: Iterable[Any],
    ) -> list[Output]:
        """``tail`` is what records end with, filled by the columns of ``origins``."""
        names, slots = self._queries.ids(records.slots), records.slots
        starts = records.starts.tolist()
        enters = _first_of(ENTER, records)
        crosses = _first_of(CROSS, records)
        attrs: Iterable[bytes] = repeat(b"{}")
        if self._queries.selects[slots].any():
            attrs = [
                self._attrs(self._selected(slots[begin:end]), points[i])
                for i, (begin, end) in enumerate(pairwise(starts))
            ]
        texts = _filled(
            f'{_plain(self._head)}%b,"seq":%d,"ts":%d,"reason":"%b","leave":%b,"enter":%b,"cross":%b,"attrs":%b,{tail}',
            map(_quoted, stream_ids),
            records.seq.tolist(),
            records.ts.tolist(),
            map(str.encode, reasons),
            _id_lists(names, starts, enters),
            _id_lists(names, enters, crosses),
            _id_lists(names, crosses, starts[1:]),
            attrs,
            *origins,
        )
        return _outputs(BORDERS, stream_ids, texts)

    def _selected(self, slots: Slots) -> list[str]:
        """What any of these queries selects, sorted."""
        projections = self._queries.projections
        return sorted({name for slot in slots.tolist() for name in projections[slot]})

    def _attrs(self, selected: Iterable[str], point: Points) -> bytes:
        present = values(self._queries, point)
        return _to_json({name: present[name] for name in selected if name in present})


def _around(change: Change, side: int) -> tuple[tuple[str, ...], bytes, bytes]:
    """What the records of one change have in common: what is selected; the text between number and
    attributes, and that after these."""
    mine = f'["{change.query}"]'
    leave, enter = ("[]", mine) if side == ENTER else (mine, "[]")
    before = (
        f',"ts":{change.ts},"reason":"{change.reason}","leave":{leave},"enter":{enter},"cross":[],"attrs":'
    )
    after = f",{_origin(Cause(change.command, change.reason))}"
    return tuple(sorted(set(change.select))), before.encode(), after.encode()


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


def _joined(ids: list[str], begin: int, end: int) -> str:
    """A stretch of ids, sorted."""
    return ids[begin] if end - begin == 1 else '","'.join(sorted(ids[begin:end]))


def _id_lists(ids: list[str], begins: Sequence[int], ends: Sequence[int]) -> list[bytes]:
    """Stretches of ids as JSON."""
    return [
        b'["%b"]' % _joined(ids, begin, end).encode() if begin < end else b"[]"
        for begin, end in zip(begins, ends, strict=False)
    ]


def _plain(text: str) -> str:
    """A text that stays as it is in a template."""
    return text.replace("%", "%%")


def _filled(template: str, *columns: Iterable[Any]) -> Iterable[bytes]:
    """A text for each row of the columns. What runs for each record is C, here and in ``_outputs``; with
    bytes it takes half the time that it takes with text."""
    return map(template.encode().__mod__, zip(*columns, strict=False))


def _outputs(topic: str, stream_ids: Iterable[str], values: Iterable[bytes]) -> list[Output]:
    return list(map(_output, zip(repeat(topic), map(str.encode, stream_ids), values, strict=False)))


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
    try:
        return None if value is None else json.loads(value)
    except (ValueError, RecursionError):
        return None
