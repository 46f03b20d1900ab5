"""JSON to columns: the messages of one event partition become one ``Batch`` and a list of refusals.

Idea: three readers, one rule. A kernel takes the plain messages of a poll all together (``flat``). What it
leaves (arrays, nested fields, texts in any script) is read by a typed decoder made for the source: one pass
from JSON bytes to a struct of exactly the declared fields. Whatever that does not take without a doubt (a
wrong type, an integer that float64 may have rounded, a text that is too long) is judged by the careful
reader, which knows every reason class. The careful reader decides; the others only say "surely fine".

Invariants: every event gives one row or one refusal, in log order. Pure. The rules themselves are those of
every format (``rows``).
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec import UnsetType

from service.elements import count_elements, is_array
from service.engine.categories import Dictionary
from service.engine.effects import Batch, Refused
from service.flat import STREAM_ID, Flat, FlatReader
from service.log.port import Record
from service.model import Reason, Source
from service.rows import LARGEST_TS, LONGEST_TEXT, Bad, Decoded, Fields, Registered, Rows, Rules, at_path

__all__ = ["LARGEST_TS", "LONGEST_TEXT", "Decoded", "Decoder"]


class _Originals(Mapping[tuple[int, int], bytes | None]):
    """The bytes of an event as they came, cut out of its message only when somebody asks."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = records
        self._values: dict[int, bytes | None] = {}
        self._arrays: dict[int, list[bytes]] = {}

    def __getitem__(self, place: tuple[int, int]) -> bytes | None:
        offset, item = place
        if not self._values:
            self._values = {record.offset: record.value for record in self._records}
        value = self._values[offset]
        if value is None or not is_array(value):
            return value
        if offset not in self._arrays:
            try:
                self._arrays[offset] = _items(value)
            except Bad:  # no array after all: it was refused as a whole
                self._arrays[offset] = [value]
        return self._arrays[offset][item]

    def __iter__(self) -> Any:
        raise NotImplementedError("originals are looked up, not listed")

    def __len__(self) -> int:
        return len(self._records)


MOST_EVENTS = 10_000
"""Of one message: what all of them match goes into one commit."""
MOST_ROWS = 50_000
"""Events that are read at a time, with those that are refused, and with them the rest of a message: a poll
may hold thousands of messages of thousands of events."""


class Decoder:
    """Reads the messages of one source; made anew when the source changes."""

    def __init__(
        self,
        source: Source,
        dictionaries: Mapping[str, Dictionary],
        *,
        max_bytes: int,
        max_events: int = MOST_EVENTS,
    ) -> None:
        """``max_events``: of one message."""
        self._rules = Rules(source, dictionaries, none_is_null=False)
        self._max_bytes = max_bytes
        self._max_events = max_events
        self._event, self._read = self._fast_reader()
        self._flat = self._flat_reader()
        self._fast = msgspec.json.Decoder(self._event | list[self._event]).decode  # type: ignore[name-defined]

    def lacking(self, records: Sequence[Record]) -> set[int]:
        """Nothing: JSON says itself what it is."""
        return set()

    def learn(self, schemas: Mapping[int, Registered | None]) -> None:
        """Nothing to learn."""

    def _flat_reader(self) -> FlatReader | None:
        """None where a field lies in an object, or two at one place, or events have ids, which may be of two
        types."""
        paths = self._rules.paths
        if self._rules.has_ids or any(len(path) > 1 for path in paths) or len(set(paths)) < len(paths):
            return None
        return FlatReader([name for (name,) in paths], self._rules.numbers, self._max_bytes)

    def _fast_reader(self) -> tuple[Any, Any]:
        rules = self._rules
        number: Any = float | None if rules.takes_nulls else float
        text: Any = str | None | UnsetType if rules.takes_nulls else str
        types = [str, int | None, *(number if is_number else text for is_number in rules.numbers)]
        types += [str | int | None] * rules.has_ids
        defaults = ["", None, *rules.absent]
        tree: dict[str, Any] = {}
        for path, leaf in zip(rules.paths, zip(types, defaults, strict=True), strict=True):
            node = tree
            for part in path[:-1]:
                node = node.setdefault(part, {})
            node[path[-1]] = leaf
        getters: dict[tuple[str, ...], str] = {}
        event = _struct(tree, (), "", getters)
        return event, operator.attrgetter(*(getters[path] for path in rules.paths))

    def decode(self, records: Sequence[Record]) -> Decoded:
        """The messages of a poll, as many of the first as have ``MOST_ROWS`` events. O(bytes)."""
        if self._flat is None or not records:
            return self._others(records, range(len(records)))
        flat = self._flat.read([record.value or b"" for record in records])
        others = np.flatnonzero(~flat.fine).tolist()
        decoded = self._others(records, others)
        if len(others) == len(records):
            return decoded
        if decoded.read < len(records):
            return self.decode(records[: decoded.read])  # what lies behind has been looked at in vain
        taken = self._taken(records, flat)
        events = decoded.events + len(taken.stream_ids)
        nulls = np.concatenate([np.zeros(len(taken.stream_ids), np.int64), decoded.nulls])
        if not len(decoded.batch.stream_ids):
            return decoded._replace(batch=taken, events=events, nulls=nulls)
        batch = _together(taken, decoded.batch)
        order = np.lexsort((batch.items, batch.offsets))
        return decoded._replace(batch=batch.take(order), events=events, nulls=nulls[order])

    def _taken(self, records: Sequence[Record], flat: Flat) -> Batch:
        """What the kernel has taken."""
        fine = flat.fine
        offsets, log_ts, _, _ = zip(*records, strict=True)
        none = np.zeros(int(fine.sum()), dtype=np.int32)
        return Batch(
            offsets=np.array(offsets, dtype=np.int64)[fine],
            items=none,
            log_ts=np.array(log_ts, dtype=np.int64)[fine],
            stream_ids=flat.texts(STREAM_ID),  # type: ignore[arg-type]
            removal=none.astype(np.bool_),
            ts=flat.ts[fine],
            timed=flat.timed[fine],
            values=self._rules.coded(flat.values[fine], lambda place: flat.texts(2 + place)),
        )

    def _others(self, records: Sequence[Record], messages: Iterable[int]) -> Decoded:
        """These of the messages, each read on its own."""
        rows = Rows([], [], [])
        refused: list[Refused] = []
        fast, read, most = self._fast, self._read, self._max_bytes
        end = len(records)
        for message in messages:
            if len(rows.fields) + len(refused) >= MOST_ROWS:
                end = message
                break
            offset, _, key, value = records[message]
            try:
                if value is None:
                    rows.add(message, 0, self._rules.removal(key))
                    continue
                if len(value) > most:
                    raise Bad(Reason.TOO_LARGE, f"{len(value)} bytes; at most {most} are taken")
                if not value.isascii():
                    value.decode()  # the fast reader does not look at what it passes over
                self._check_count(value)
                decoded = fast(value)
                events = decoded if isinstance(decoded, list) else (decoded,)
                for item, one in enumerate(events):
                    rows.add(message, item, read(one))
            except Bad as bad:
                refused.append(bad.at(offset, 0))
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                self._judge(message, records[message], rows, refused)
        decoded = self._rules.settle(records, rows, refused, _Originals(records), self._careful)
        return decoded._replace(read=end)

    def _judge(self, message: int, record: Record, rows: Rows, refused: list[Refused]) -> None:
        """Reads a message that the fast reader did not take, event by event."""
        value = record.value or b""
        try:
            items = _items(value) if is_array(value) else [value]
        except Bad as bad:
            refused.append(bad.at(record.offset, 0))
            return
        for item, raw in enumerate(items):
            try:
                rows.add(message, item, self._careful(raw))
            except Bad as bad:
                refused.append(bad.at(record.offset, item))

    def _check_count(self, value: bytes) -> None:
        """Raises Bad before anything is made of more events than a message may have."""
        most = self._max_events
        if len(value) > most and is_array(value) and (count := count_elements(value)) > most:
            detail = f"{count} events; max_message_events allows {most}: send several messages"
            raise Bad(Reason.LIMIT, detail)

    # ---- the careful reader

    def _careful(self, raw: bytes) -> Fields:
        """One event, or the reason why not. A key twice: the last one counts."""
        event = _load(raw)
        if not isinstance(event, dict):
            raise Bad(Reason.MALFORMED, "an event is a JSON object")
        return self._rules.judge([at_path(event, path) for path in self._rules.paths])


def _together(one: Batch, other: Batch) -> Batch:
    """Two batches, without ids of events, one behind the other."""
    pairs: Any = zip(one._replace(stream_ids=())[:-1], other._replace(stream_ids=())[:-1], strict=True)
    columns: list[Any] = [np.concatenate(pair) for pair in pairs]
    return Batch(*columns)._replace(stream_ids=[*one.stream_ids, *other.stream_ids])


def _struct(
    tree: Mapping[str, Any], at: tuple[str, ...], prefix: str, getters: dict[tuple[str, ...], str]
) -> Any:
    """A struct type for a tree of declared fields; notes how to reach each leaf."""
    fields, rename = [], {}
    for number, (key, node) in enumerate(tree.items()):
        name = f"f{number}"
        rename[name] = key
        if isinstance(node, tuple):
            getters[*at, key] = prefix + name
            fields.append((name, node[0], node[1]))
        else:
            inner = _struct(node, (*at, key), f"{prefix}{name}.", getters)
            fields.append((name, inner, msgspec.field(default_factory=inner)))
    return msgspec.defstruct("Event", fields, rename=rename, gc=False)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON value")


_raw_items = msgspec.json.Decoder(list[msgspec.Raw]).decode


def _items(value: bytes) -> list[bytes]:
    """The items of a JSON array as they came."""
    try:
        return [bytes(item) for item in _raw_items(value)]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _items_one_by_one(value)


_scan_value = json.JSONDecoder(parse_constant=_no_constant).raw_decode
_blank = re.compile(r"[ \t\r\n]*").match


def _items_one_by_one(value: bytes) -> list[bytes]:
    """The items of an array that has one which is no good JSON, but can be told from its neighbours."""
    items: list[bytes] = []
    try:
        text = value.decode()
        at = _after_blank(text, text.index("[") + 1)
        sign = text[at]
        while sign != "]":
            _, end = _scan_value(text, at)
            items.append(text[at:end].encode())
            at = _after_blank(text, end)
            sign = text[at]
            if sign == ",":
                at = _after_blank(text, at + 1)
            elif sign != "]":
                raise ValueError(f"no comma at {at}")
        if _after_blank(text, at + 1) != len(text):
            raise ValueError(f"more than an array, at {at + 1}")
    except (ValueError, IndexError, RecursionError) as error:
        raise Bad(Reason.MALFORMED, f"not JSON: {error}") from None
    return items


def _after_blank(text: str, at: int) -> int:
    found = _blank(text, at)
    return found.end() if found else at


def _load(raw: bytes) -> Any:
    if not raw:
        raise Bad(Reason.MALFORMED, "zero bytes; a record without a value (null) removes a stream")
    try:
        value = json.loads(raw.decode(), parse_constant=_no_constant)
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise Bad(Reason.MALFORMED, f"not JSON: {error}") from None
    return value
