"""Bytes to columns: the messages of one event partition become one ``Batch`` and a list of refusals.

Idea: two readers, one rule. The fast reader is a typed decoder made for the source: one pass from JSON
bytes to a struct of exactly the declared fields. Whatever it does not take without a doubt (a wrong type,
an integer that float64 may have rounded, a text that is too long) is judged by the careful reader, which
knows every reason class. The careful reader decides; the fast one only says "surely fine".

Invariants: every event gives one row or one refusal, in log order. Missing is -inf, -0.0 is 0.0, a
category is its code. Pure.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType
from numpy.typing import NDArray

from service.engine.categories import Dictionary
from service.engine.effects import Batch, Refused
from service.log.port import Record
from service.model import MISSING, AttributeType, Nulls, Reason, Source

#: From here on neighbouring integers share a float64: an integer literal may have been rounded.
INEXACT_FROM = 2.0**53
#: Times beyond are refused: JSON readers could not hold them exactly either.
LARGEST_TS = 2**53
#: Longest stream id and longest category, in characters.
LONGEST_TEXT = 256

Fields = tuple[Any, ...]
"""One event: stream id, ts or None, then each attribute; MISSING or None where it is absent."""


class Decoded(NamedTuple):
    """``events`` is how many events the messages held: accepted ones, tombstones not counted, and whatever
    was refused; ``nulls`` how many values of accepted ones were null. ``originals`` has the bytes of every
    row that may have to be written as a dead letter, by (offset, place in the message)."""

    batch: Batch
    refused: list[Refused]
    originals: Mapping[tuple[int, int], bytes | None]
    events: int
    nulls: int


class _Bad(Exception):
    def __init__(self, reason: Reason, detail: str, stream_id: str | None = None) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
        self.stream_id = stream_id


class _Originals(Mapping[tuple[int, int], bytes | None]):
    """The bytes of an event as they came, cut out of its message only when somebody asks."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._values = {record.offset: record.value for record in records}
        self._arrays: dict[int, list[bytes]] = {}

    def __getitem__(self, place: tuple[int, int]) -> bytes | None:
        offset, item = place
        value = self._values[offset]
        if value is None or not _is_array(value):
            return value
        if offset not in self._arrays:
            try:
                self._arrays[offset] = _items(value)
            except _Bad:  # no array after all: it was refused as a whole
                self._arrays[offset] = [value]
        return self._arrays[offset][item]

    def __iter__(self) -> Any:
        raise NotImplementedError("originals are looked up, not listed")

    def __len__(self) -> int:
        return len(self._values)


class _Rows(NamedTuple):
    """Accepted rows of a poll: which message, which place in it, which fields."""

    messages: list[int]
    items: list[int]
    fields: list[Fields]

    def add(self, message: int, item: int, fields: Fields) -> None:
        self.messages.append(message)
        self.items.append(item)
        self.fields.append(fields)


class Decoder:
    """Reads the messages of one source; made anew when the source changes."""

    def __init__(self, source: Source, dictionaries: Mapping[str, Dictionary], *, max_bytes: int) -> None:
        self._dictionaries = dictionaries
        self._max_bytes = max_bytes
        self._names = list(source.attributes)
        self._numbers = [kind is AttributeType.NUMBER for kind in source.attributes.values()]
        self._all_numbers = all(self._numbers)
        self._nulls = source.nulls is Nulls.ABSENT
        paths = [source.key, source.ts, *(source.paths.get(name, name) for name in self._names)]
        self._paths = [tuple(path.split(".")) for path in paths]
        # A null is None. Where it may stand, a text that is not there has to be something else.
        no_text = UNSET if self._nulls else None
        self._absent = [MISSING if number else no_text for number in self._numbers]
        self._event, self._read = self._fast_reader()
        self._fast = msgspec.json.Decoder(self._event | list[self._event]).decode  # type: ignore[name-defined]

    def _fast_reader(self) -> tuple[Any, Any]:
        number: Any = float | None if self._nulls else float
        text: Any = str | None | UnsetType if self._nulls else str
        types = [str, int | None, *(number if is_number else text for is_number in self._numbers)]
        defaults = ["", None, *self._absent]
        tree: dict[str, Any] = {}
        for path, leaf in zip(self._paths, zip(types, defaults, strict=True), strict=True):
            node = tree
            for part in path[:-1]:
                node = node.setdefault(part, {})
            node[path[-1]] = leaf
        getters: dict[tuple[str, ...], str] = {}
        event = _struct(tree, (), "", getters)
        return event, operator.attrgetter(*(getters[path] for path in self._paths))

    def decode(self, records: Sequence[Record]) -> Decoded:
        """All messages of a poll. O(bytes)."""
        rows = _Rows([], [], [])
        refused: list[Refused] = []
        fast, event, read, most = self._fast, self._event, self._read, self._max_bytes
        add_message, add_item, add_fields = rows.messages.append, rows.items.append, rows.fields.append
        for message, (offset, _, key, value) in enumerate(records):
            try:
                if value is None:
                    rows.add(message, 0, (self._tombstone(key), None, *self._absent))
                    continue
                if len(value) > most:
                    raise _Bad(Reason.TOO_LARGE, f"{len(value)} bytes; at most {most} are taken")
                if not value.isascii():
                    value.decode()  # the fast reader does not look at what it passes over
                decoded = fast(value)
                if type(decoded) is event:
                    add_message(message)
                    add_item(0)
                    add_fields(read(decoded))
                else:
                    for item, one in enumerate(decoded):
                        rows.add(message, item, read(one))
            except _Bad as bad:
                refused.append(Refused(offset, 0, bad.stream_id, bad.reason, bad.detail))
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                self._judge(message, records[message], rows, refused)
        originals = _Originals(records)
        batch, nulls = self._columns(rows, records)
        keep = self._without_doubts(batch, rows, refused, originals)
        if keep is not None:
            batch, nulls = batch.take(keep), nulls[keep]
        refused.sort()
        events = len(batch.stream_ids) - int(batch.removal.sum()) + len(refused)
        return Decoded(batch, refused, originals, events, int(nulls.sum()))

    @staticmethod
    def _tombstone(key: bytes | None) -> str:
        try:
            stream_id = (key or b"").decode()
        except UnicodeDecodeError:
            raise _Bad(Reason.NO_STREAM_ID, "the key of a tombstone is the stream id, as UTF-8") from None
        if not stream_id:
            raise _Bad(
                Reason.NO_STREAM_ID, "a record without a value removes the stream in its key; it has none"
            )
        return stream_id

    def _judge(self, message: int, record: Record, rows: _Rows, refused: list[Refused]) -> None:
        """Reads a message that the fast reader did not take, event by event."""
        value = record.value or b""
        try:
            items = _items(value) if _is_array(value) else [value]
        except _Bad as bad:
            refused.append(Refused(record.offset, 0, None, bad.reason, bad.detail))
            return
        for item, raw in enumerate(items):
            try:
                rows.add(message, item, self._careful(raw))
            except _Bad as bad:
                refused.append(Refused(record.offset, item, bad.stream_id, bad.reason, bad.detail))

    def _without_doubts(
        self, batch: Batch, rows: _Rows, refused: list[Refused], originals: _Originals
    ) -> NDArray[np.int64] | None:
        """Judges again what the fast reader may have got wrong; the rows to keep, or None for all."""
        doubtful = {i for i, id in enumerate(batch.stream_ids) if not 0 < len(id) <= LONGEST_TEXT}
        if not self._all_numbers:
            for place, is_number in enumerate(self._numbers):
                if not is_number:
                    texts = (fields[2 + place] for fields in rows.fields)
                    doubtful.update(i for i, text in enumerate(texts) if text and len(text) > LONGEST_TEXT)
        large = (np.abs(batch.values) >= INEXACT_FROM) & np.isfinite(batch.values)
        doubtful.update(np.flatnonzero(large.any(axis=1)).tolist())
        doubtful.update(np.flatnonzero(np.abs(batch.ts) > LARGEST_TS).tolist())
        bad: list[int] = []
        for i in sorted(doubtful):
            offset, item = int(batch.offsets[i]), rows.items[i]
            try:
                if batch.removal[i]:
                    raise _Bad(Reason.LIMIT, f"the stream id has more than {LONGEST_TEXT} characters")
                self._careful(originals[offset, item] or b"")
            except _Bad as reason:
                refused.append(Refused(offset, item, reason.stream_id, reason.reason, reason.detail))
                bad.append(i)
        return np.setdiff1d(np.arange(len(rows.fields)), bad) if bad else None

    def _columns(self, rows: _Rows, records: Sequence[Record]) -> tuple[Batch, NDArray[np.int64]]:
        """The rows as a batch, and how many nulls each has."""
        n = len(rows.fields)
        nulls = np.zeros(n, dtype=np.int64)
        messages = np.array(rows.messages, dtype=np.int64)
        values = np.empty((n, len(self._names)))
        columns: list[Sequence[Any]] = list(zip(*rows.fields, strict=True)) or [()] * (2 + len(self._names))
        for place, (name, is_number) in enumerate(zip(self._names, self._numbers, strict=True)):
            column = columns[2 + place]
            if self._nulls:
                nulls += np.array([value is None for value in column], dtype=np.bool_)
            if is_number:
                values[:, place] = column
            else:
                column = [None if text is UNSET else text for text in column] if self._nulls else column
                values[:, place] = self._dictionaries[name].column(column)
        values += 0.0  # -0.0 becomes 0.0
        if self._nulls:
            values[np.isnan(values)] = MISSING  # what a null number became
        timed = np.array([ts is not None for ts in columns[1]], dtype=np.bool_)
        batch = Batch(
            offsets=np.array([record.offset for record in records], dtype=np.int64)[messages],
            items=np.array(rows.items, dtype=np.int32),
            log_ts=np.array([record.ts for record in records], dtype=np.int64)[messages],
            stream_ids=columns[0],
            removal=np.array([record.value is None for record in records], dtype=np.bool_)[messages],
            ts=_whole(columns[1], timed),
            timed=timed,
            values=values,
        )
        return batch, nulls

    # ---- the careful reader

    def _careful(self, raw: bytes) -> Fields:
        """One event, or the reason why not. A key twice: the last one counts."""
        event = _load(raw)
        if not isinstance(event, dict):
            raise _Bad(Reason.MALFORMED, "an event is a JSON object")
        key_path, ts_path, *paths = self._paths
        stream_id = _at(event, key_path)
        if not isinstance(stream_id, str) or not stream_id:
            raise _Bad(Reason.NO_STREAM_ID, f"{'.'.join(key_path)!r} must be a text that is not empty")
        if len(stream_id) > LONGEST_TEXT:
            raise _Bad(Reason.LIMIT, f"the stream id has more than {LONGEST_TEXT} characters")
        ts = _at(event, ts_path)
        if ts is not None and (isinstance(ts, bool) or not isinstance(ts, int) or abs(ts) > LARGEST_TS):
            detail = f"{'.'.join(ts_path)!r} must be whole milliseconds since 1970, at most 2**53"
            raise _Bad(Reason.BAD_TS, detail, stream_id)
        values: list[Any] = []
        for path, is_number, absent in zip(paths, self._numbers, self._absent, strict=True):
            value = _at(event, path, _NOTHING)
            name = ".".join(path)
            if value is _NOTHING:
                values.append(absent)
            elif value is None and self._nulls:
                values.append(None)
            elif is_number:
                values.append(_number(name, value, stream_id))
            else:
                values.append(_text(name, value, stream_id))
        return (stream_id, ts, *values)


_NOTHING = object()


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


def _whole(times: Sequence[int | None], timed: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The times as int64, 0 for none. One that int64 cannot hold becomes one that is refused for its size."""
    try:
        if timed.all():
            return np.array(times, dtype=np.int64)
        return np.array([ts or 0 for ts in times], dtype=np.int64)
    except OverflowError:
        return np.array([max(-LARGEST_TS - 1, min(LARGEST_TS + 1, ts or 0)) for ts in times], dtype=np.int64)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON value")


def _is_array(value: bytes) -> bool:
    return value.lstrip(b" \t\r\n")[:1] == b"["


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
        raise _Bad(Reason.MALFORMED, f"not JSON: {error}") from None
    return items


def _after_blank(text: str, at: int) -> int:
    found = _blank(text, at)
    return found.end() if found else at


def _load(raw: bytes) -> Any:
    if not raw:
        raise _Bad(Reason.MALFORMED, "zero bytes; a record without a value (null) removes a stream")
    try:
        value = json.loads(raw.decode(), parse_constant=_no_constant)
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise _Bad(Reason.MALFORMED, f"not JSON: {error}") from None
    return value


def _at(event: Any, path: tuple[str, ...], otherwise: Any = None) -> Any:
    for part in path:
        if not isinstance(event, dict) or part not in event:
            return otherwise
        event = event[part]
    return event


def _number(name: str, value: Any, stream_id: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _Bad(
            Reason.NOT_A_NUMBER, f"{name!r} must be a number; leave it out if it is unknown", stream_id
        )
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise _Bad(Reason.NOT_FINITE, f"{name!r} is beyond the range of float64", stream_id)
    if isinstance(value, int) and int(number) != value:
        raise _Bad(Reason.INEXACT, f"{name!r}: float64 cannot hold the integer {value}", stream_id)
    return number + 0.0


def _text(name: str, value: Any, stream_id: str) -> str:
    if not isinstance(value, str):
        raise _Bad(
            Reason.NOT_A_CATEGORY, f"{name!r} must be a text; leave it out if it is unknown", stream_id
        )
    if len(value) > LONGEST_TEXT:
        raise _Bad(Reason.LIMIT, f"{name!r} has more than {LONGEST_TEXT} characters", stream_id)
    return value
