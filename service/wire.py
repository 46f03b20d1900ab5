"""Effects to bytes: the records of the output topics, and entries of the command log.

One record is one JSON object; its schema is in ``service/schemas``. Records are built as text from parts that
are JSON already (ids need no escaping by their alphabet), because this is the hot path of every event that
matches. Bytes to columns is ``decode``.

Pure.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from service.engine.catalog import Entry
from service.engine.effects import BorderRecords, CommandEffects, EventEffects, Refused, Task
from service.engine.engine import values
from service.engine.queryset import QuerySet
from service.engine.streams import StreamTable
from service.index.protocol import Points
from service.log.port import Message, Output
from service.log.topics import BORDERS, DEAD_LETTER, MATCHES
from service.model import DEFAULT_TENANT

_to_json = msgspec.json.Encoder().encode

#: How much of an event that is too large goes into its dead letter.
TRUNCATED_BYTES = 65_536


class Written(NamedTuple):
    """One output and the (message offset, place in the message) that it is due to; (-1, -1) for commands."""

    offset: int
    item: int
    output: Output


def json_text(value: Any) -> str:
    return _to_json(value).decode()


class Encoder:
    """Writes the records of one source."""

    def __init__(self, queries: QuerySet, *, max_ids: int, max_bytes: int) -> None:
        """``max_ids``: the most ids in a match record; ``max_bytes``: the largest event that is taken."""
        self._queries = queries
        self._max_ids = max_ids
        self._max_bytes = max_bytes
        source = json_text(queries.source.name)
        self._head = f'{{"v":1,"tenant":"{DEFAULT_TENANT}","source":{source},"stream_id":'
        self._source = queries.source.name

    def events(
        self, effects: EventEffects, originals: Mapping[tuple[int, int], bytes | None]
    ) -> list[Written]:
        """The records of one batch in log order; of one event: dead letter, matches, borders.

        ``originals`` has the bytes of refused events by (offset, place in the message)."""
        batch = effects.batch
        task_json = f'"origin":{{"topic":{json_text(effects.task.topic)},"partition":{effects.task.partition}'
        origins = [
            f'{task_json},"offset":{offset},"row":{item}}}}}'
            for offset, item in zip(batch.offsets.tolist(), batch.items.tolist(), strict=True)
        ]
        written = list(self._dead_letters(effects.task, effects.refused, originals))
        written += self._matches(effects, origins)
        written += self._event_borders(effects, origins)
        written.sort(key=lambda record: (record.offset, record.item))
        return written

    def _dead_letters(
        self, task: Task, refused: Sequence[Refused], originals: Mapping[tuple[int, int], bytes | None]
    ) -> Iterator[Written]:
        for one in refused:
            letter: dict[str, Any] = {
                "v": 1,
                "source": self._source,
                "stream_id": one.stream_id,
                "reason": one.reason,
                "detail": one.detail,
            }
            original = originals[one.offset, one.item]
            if original is not None:
                letter |= _original(original, self._max_bytes)
            letter["origin"] = {
                "topic": task.topic,
                "partition": task.partition,
                "offset": one.offset,
                "row": one.item,
            }
            key = None if one.stream_id is None else one.stream_id.encode()
            yield Written(one.offset, one.item, Output(DEAD_LETTER, key, _to_json(letter)))

    def _matches(self, effects: EventEffects, origins: Sequence[str]) -> Iterator[Written]:
        rows, slots = effects.matches
        if not len(rows):
            return
        batch = effects.batch
        names, projections = self._queries.names, self._queries.projections
        starts = np.flatnonzero(np.concatenate([[True], rows[1:] != rows[:-1]]))
        hit_rows = rows[starts].tolist()
        ends = [*starts[1:].tolist(), len(rows)]
        slot_list = slots.tolist()
        ts = np.where(batch.timed, batch.ts, batch.log_ts)[rows[starts]].tolist()
        late = effects.late[rows[starts]].tolist()
        offsets, items = batch.offsets[rows[starts]].tolist(), batch.items[rows[starts]].tolist()
        ids = batch.stream_ids
        begin = 0
        for place, end in enumerate(ends):
            row = hit_rows[place]
            stream_id = ids[row]
            hit = slot_list[begin:end]
            begin = end
            grouped: dict[tuple[str, ...], list[str]] = {}
            for slot in hit:
                grouped.setdefault(projections[slot], []).append(names[slot])
            head = f'{self._head}{json_text(stream_id)},"ts":{ts[place]},"queries":["'
            mark = ',"late":true' if late[place] else ""
            for projection in sorted(grouped):
                attrs = self._attrs(projection, effects.points[row]) if projection else "{}"
                tail = f'"]{mark},"attrs":{attrs},{origins[row]}'
                for chunk, text in self._chunks(sorted(grouped[projection])):
                    value = f"{head}{text}{tail[:2]}{chunk}{tail[2:]}"
                    output = Output(MATCHES, stream_id.encode(), value.encode())
                    yield Written(offsets[place], items[place], output)

    def _chunks(self, ids: list[str]) -> Iterator[tuple[str, str]]:
        """Parts of at most ``max_ids`` ids, each with the fields that tell it from its siblings."""
        most = self._max_ids
        if len(ids) <= most:
            yield "", '","'.join(ids)
            return
        chunks = -(-len(ids) // most)
        for chunk in range(chunks):
            part = ids[chunk * most : (chunk + 1) * most]
            yield f',"chunk":{chunk + 1},"chunks":{chunks}', '","'.join(part)

    def _event_borders(self, effects: EventEffects, origins: Sequence[str]) -> Iterator[Written]:
        batch, records = effects.batch, effects.borders
        causes = records.causes.tolist()
        reasons = ["stream_removed" if batch.removal[row] else "event" for row in causes]
        points = effects.points[records.causes]
        ids = [batch.stream_ids[row] for row in causes]
        tails = [origins[row] for row in causes]
        outputs = self._borders(records, ids, reasons, points, tails)
        for row, output in zip(causes, outputs, strict=True):
            yield Written(int(batch.offsets[row]), int(batch.items[row]), output)

    def commands(self, effects: CommandEffects, table: StreamTable) -> list[Written]:
        """The border records that a group of commands caused in one partition."""
        records = effects.borders
        causes = [effects.causes[place] for place in records.causes.tolist()]
        outputs = self._borders(
            records,
            [table.names[row] for row in records.streams.tolist()],
            [cause.reason for cause in causes],
            table.point[records.streams],
            [f'"origin":{{"command":{cause.command}}}}}' for cause in causes],
        )
        return [Written(-1, -1, output) for output in outputs]

    def _borders(
        self,
        records: BorderRecords,
        stream_ids: Sequence[str],
        reasons: Sequence[str],
        points: Points,
        tails: Sequence[str],
    ) -> Iterator[Output]:
        names, projections = self._queries.names, self._queries.projections
        starts = records.starts.tolist()
        slots, entered = records.slots.tolist(), records.entered.tolist()
        for i, (seq, ts) in enumerate(zip(records.seq.tolist(), records.ts.tolist(), strict=True)):
            told = range(starts[i], starts[i + 1])
            leave = sorted(names[slots[p]] for p in told if not entered[p])
            enter = sorted(names[slots[p]] for p in told if entered[p])
            selected = sorted({name for p in told for name in projections[slots[p]]})
            attrs = self._attrs(selected, points[i]) if selected else "{}"
            stream_id = stream_ids[i]
            value = (
                f'{self._head}{json_text(stream_id)},"seq":{seq},"ts":{ts},"reason":"{reasons[i]}",'
                f'"leave":{_id_list(leave)},"enter":{_id_list(enter)},"cross":[],"attrs":{attrs},{tails[i]}'
            )
            yield Output(BORDERS, stream_id.encode(), value.encode())

    def _attrs(self, selected: Iterable[str], point: Points) -> str:
        present = values(self._queries, point)
        return json_text({name: present[name] for name in selected if name in present})


def _id_list(ids: list[str]) -> str:
    return '["' + '","'.join(ids) + '"]' if ids else "[]"


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


def command_message(entry: Entry, *, at_ms: int) -> Message:
    """An entry as it goes into the command log; ``at`` is when, for the history."""
    body = json.dumps({**entry.body, "at": at_ms}, ensure_ascii=False, separators=(",", ":"))
    return Message(entry.key.encode(), body.encode())


def command_body(value: bytes | None) -> Any:
    """The entry that a record of the command log holds; None for one that is no JSON."""
    try:
        return None if value is None else json.loads(value)
    except (ValueError, RecursionError):
        return None
