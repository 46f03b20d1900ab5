"""What every decoder has in common: the rules for one event, and from rows of fields to a ``Batch``.

Idea: a decoder knows a format and hands over, for each event, what it found at the declared paths. What may
stand there, and why an event is refused, is decided here and only here, so that the same event has the same
fate in every format.

Invariants: missing is -inf, -0.0 is 0.0, a category is its code. Pure. Not for: bytes (``decode`` for JSON,
``decode_binary`` for the others).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from service.engine.categories import Dictionary
from service.engine.effects import Batch, Refused
from service.index.protocol import Points
from service.log.port import Record
from service.model import MISSING, AttributeType, Nulls, Reason, Source

#: From here on neighbouring integers share a float64: an integer literal may have been rounded.
INEXACT_FROM = 2.0**53
#: Times beyond are refused: JSON readers could not hold them exactly either.
LARGEST_TS = 2**53
#: Longest stream id and longest category, in characters.
LONGEST_TEXT = 256
#: Longest id of an event, in characters.
LONGEST_EVENT_ID = 200

NOTHING = object()
"""What is at a path where nothing is."""

Fields = tuple[Any, ...]
"""One event: stream id, ts or None, each attribute, and, if the source has ``dedup``, its id or None. None is
a null, ``Rules.absent`` has what stands where nothing is."""


class Decoded(NamedTuple):
    """``events`` is how many events the messages held: accepted ones, tombstones not counted, and whatever
    was refused; ``nulls``, ``int64[n]``, how many values of each row were null. ``originals`` has the bytes
    of every row that may have to be written as a dead letter, by (offset, place in the message). ``read``:
    how many of the messages it is of, the first ones."""

    batch: Batch
    refused: list[Refused]
    originals: Mapping[tuple[int, int], bytes | None]
    events: int
    nulls: NDArray[np.int64]
    read: int


class Registered(NamedTuple):
    """A schema as a registry has it. ``references``: it needs others."""

    text: str
    kind: str = "AVRO"
    references: bool = False


class AnyDecoder(Protocol):
    """Reads the messages of one source; made anew when the source changes."""

    def lacking(self, records: Sequence[Record]) -> set[int]:
        """The ids of schemas that these messages were written with and that it has not been told."""

    def learn(self, schemas: Mapping[int, Registered | None]) -> None:
        """Tells it schemas by their ids; None: there is none under that id, and its messages are refused."""

    def decode(self, records: Sequence[Record]) -> Decoded:
        """The messages of a poll, which lack nothing; the first ones, where they hold very many events.
        O(bytes)."""


class Bad(Exception):
    """An event that is refused."""

    def __init__(self, reason: Reason, detail: str, stream_id: str | None = None) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
        self.stream_id = stream_id

    def at(self, offset: int, item: int) -> Refused:
        return Refused(offset, item, self.stream_id, self.reason, self.detail)


class Rows(NamedTuple):
    """Accepted rows of a poll: which message, which place in it, which fields."""

    messages: list[int]
    items: list[int]
    fields: list[Fields]

    def add(self, message: int, item: int, fields: Fields) -> None:
        self.messages.append(message)
        self.items.append(item)
        self.fields.append(fields)


class Rules:
    """The rules of one source. ``paths`` are those of the stream id, the time, each attribute and, if the
    source has ``dedup``, the id of an event; ``numbers`` says which attributes are numbers. ``absent``: what
    stands for each attribute, and for the id, where nothing is."""

    def __init__(self, source: Source, dictionaries: Mapping[str, Dictionary], *, none_is_null: bool) -> None:
        """``none_is_null``: rows may have nulls (None), also where nulls are refused, and floats that are not
        finite."""
        self._dictionaries = dictionaries
        self.names = list(source.attributes)
        self.numbers = [kind is AttributeType.NUMBER for kind in source.attributes.values()]
        self.takes_nulls = source.nulls is Nulls.ABSENT
        self.has_ids = source.dedup is not None
        paths = [source.key, source.ts, *(source.paths.get(name, name) for name in self.names)]
        paths += [] if source.dedup is None else [source.dedup.by]
        self.paths = [tuple(path.split(".")) for path in paths]
        # A null is None. Where it may stand, a text that is not there has to be something else.
        self._none_is_null = none_is_null
        self._unset = self.takes_nulls or none_is_null
        no_text = UNSET if self._unset else None
        self.absent = [MISSING if number else no_text for number in self.numbers] + [None] * self.has_ids

    def removal(self, key: bytes | None) -> Fields:
        """The fields of a tombstone."""
        try:
            stream_id = (key or b"").decode()
        except UnicodeDecodeError:
            detail = "the key of a tombstone is the stream id, as UTF-8"
            raise Bad(Reason.NO_STREAM_ID, detail) from None
        if not stream_id:
            raise Bad(
                Reason.NO_STREAM_ID, "a record without a value removes the stream in its key; it has none"
            )
        return (stream_id, None, *self.absent)

    def judge(self, found: Sequence[Any]) -> Fields:
        """The fields of an event with this at its paths, NOTHING where nothing is. Raises Bad."""
        key_path, ts_path, *paths = self.paths
        stream_id, ts, *given = found
        event_id = given.pop() if self.has_ids else None
        if not isinstance(stream_id, str) or not stream_id:
            raise Bad(Reason.NO_STREAM_ID, f"{'.'.join(key_path)!r} must be a text that is not empty")
        if len(stream_id) > LONGEST_TEXT:
            raise Bad(Reason.LIMIT, f"the stream id has more than {LONGEST_TEXT} characters")
        if ts is NOTHING:
            ts = None
        if ts is not None and (isinstance(ts, bool) or not isinstance(ts, int) or abs(ts) > LARGEST_TS):
            detail = f"{'.'.join(ts_path)!r} must be whole milliseconds since 1970, at most 2**53"
            raise Bad(Reason.BAD_TS, detail, stream_id)
        if event_id is NOTHING:
            event_id = None
        if event_id is not None and not _is_event_id(event_id):
            detail = f"must be a text of 1 to {LONGEST_EVENT_ID} characters or a whole number"
            raise Bad(Reason.BAD_EVENT_ID, f"{'.'.join(paths[-1])!r} {detail}", stream_id)
        values: list[Any] = []
        for path, value, is_number, absent in zip(paths, given, self.numbers, self.absent, strict=False):
            if value is NOTHING:
                values.append(absent)
            elif value is None and self.takes_nulls:
                values.append(None)
            elif is_number:
                values.append(_number(".".join(path), value, stream_id))
            else:
                values.append(_text(".".join(path), value, stream_id))
        return (stream_id, ts, *values, *[event_id] * self.has_ids)

    def columns(self, rows: Rows, records: Sequence[Record]) -> tuple[Batch, NDArray[np.int64]]:
        """The rows as a batch, and how many nulls each has."""
        n = len(rows.fields)
        nulls = np.zeros(n, dtype=np.int64)
        own = [records[message] for message in rows.messages]
        values = np.full((n, len(self.names)), MISSING)
        columns: list[Sequence[Any]] = list(zip(*rows.fields, strict=True)) or [()] * len(self.paths)
        for place, is_number in enumerate(self.numbers):
            column = columns[2 + place]
            if self.takes_nulls:
                nulls += np.array([value is None for value in column], dtype=np.bool_)
            if is_number:
                values[:, place] = column
        values = self.coded(values, lambda place: columns[2 + place])
        values += 0.0  # -0.0 becomes 0.0
        if self.takes_nulls:
            values[np.isnan(values)] = MISSING  # what a null number became
        timed = np.array([ts is not None for ts in columns[1]], dtype=np.bool_)
        batch = Batch(
            offsets=np.array([record.offset for record in own], dtype=np.int64),
            items=np.array(rows.items, dtype=np.int32),
            log_ts=np.array([record.ts for record in own], dtype=np.int64),
            stream_ids=columns[0],
            removal=np.array([record.value is None for record in own], dtype=np.bool_),
            ts=_whole(columns[1], timed),
            timed=timed,
            values=values,
            # A number and its digits as a text are one id.
            event_ids=[None if id is None else str(id) for id in columns[-1]] if self.has_ids else None,
        )
        return batch, nulls

    def coded(self, values: Points, texts: Callable[[int], Sequence[Any]]) -> Points:
        """The values of events ``float64[n, d]``, with the codes of categories; ``texts`` has those of an
        attribute, None or UNSET where none is."""
        for place, name in enumerate(self.names):
            if not self.numbers[place]:
                found = [None if text is UNSET else text for text in texts(place)]
                values[:, place] = self._dictionaries[name].column(found)
        return values

    def doubtful(self, batch: Batch, rows: Rows) -> set[int]:
        """Rows that are not surely fine though their fields have the declared types: texts that are too long,
        integers that float64 may have rounded, times that are too large, ids of no length or too much."""
        doubtful = {i for i, id in enumerate(batch.stream_ids) if not 0 < len(id) <= LONGEST_TEXT}
        for place, is_number in enumerate(self.numbers):
            if not is_number:
                texts = (fields[2 + place] for fields in rows.fields)
                doubtful.update(i for i, text in enumerate(texts) if text and len(text) > LONGEST_TEXT)
        large = (np.abs(batch.values) >= INEXACT_FROM) & np.isfinite(batch.values)
        doubtful.update(np.flatnonzero(large.any(axis=1)).tolist())
        # Not by abs: the smallest int64 has none.
        doubtful.update(np.flatnonzero((batch.ts > LARGEST_TS) | (batch.ts < -LARGEST_TS)).tolist())
        ids = batch.event_ids or ()
        doubtful.update(
            i for i, id in enumerate(ids) if id is not None and not 0 < len(id) <= LONGEST_EVENT_ID
        )
        if self._none_is_null:
            doubtful.update(self._odd(batch, rows))
        return doubtful

    def _odd(self, batch: Batch, rows: Rows) -> Iterator[int]:
        """Rows with values that JSON's fast reader never lets through: floats that are not finite, and nulls
        where they are refused."""
        for place, is_number in enumerate(self.numbers):
            if is_number:
                for i in np.flatnonzero(~np.isfinite(batch.values[:, place])).tolist():
                    value = rows.fields[i][2 + place]
                    if value is not MISSING and not (value is None and self.takes_nulls):
                        yield i
            elif not self.takes_nulls:
                yield from (i for i, fields in enumerate(rows.fields) if fields[2 + place] is None)

    def settle(
        self,
        records: Sequence[Record],
        rows: Rows,
        refused: list[Refused],
        originals: Mapping[tuple[int, int], bytes | None],
        judge_again: Callable[[bytes], Fields],
    ) -> Decoded:
        """The rows as columns, without those that prove bad when ``judge_again`` reads them with care."""
        batch, nulls = self.columns(rows, records)
        bad: list[int] = []
        for i in sorted(self.doubtful(batch, rows)):
            offset, item = int(batch.offsets[i]), rows.items[i]
            try:
                if batch.removal[i]:
                    raise Bad(Reason.LIMIT, f"the stream id has more than {LONGEST_TEXT} characters")
                judge_again(originals[offset, item] or b"")
            except Bad as reason:
                refused.append(reason.at(offset, item))
                bad.append(i)
        if bad:
            keep = np.setdiff1d(np.arange(len(rows.fields)), bad)
            batch, nulls = batch.take(keep), nulls[keep]
        refused.sort()
        events = len(batch.stream_ids) - int(batch.removal.sum()) + len(refused)
        return Decoded(batch, refused, originals, events, nulls, len(records))


def at_path(event: Any, path: tuple[str, ...]) -> Any:
    """What an event of nested dicts has at a path; NOTHING where it has nothing."""
    for part in path:
        if not isinstance(event, dict) or part not in event:
            return NOTHING
        event = event[part]
    return event


def _whole(times: Sequence[int | None], timed: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The times as int64, 0 for none. One that int64 cannot hold becomes one that is refused for its size."""
    try:
        if timed.all():
            return np.array(times, dtype=np.int64)
        return np.array([ts or 0 for ts in times], dtype=np.int64)
    except OverflowError:
        return np.array([max(-LARGEST_TS - 1, min(LARGEST_TS + 1, ts or 0)) for ts in times], dtype=np.int64)


def _is_event_id(value: Any) -> bool:
    is_one = isinstance(value, str | int) and not isinstance(value, bool)
    return is_one and 0 < len(str(value)) <= LONGEST_EVENT_ID


def _number(name: str, value: Any, stream_id: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Bad(Reason.NOT_A_NUMBER, f"{name!r} must be a number; leave it out if it is unknown", stream_id)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise Bad(Reason.NOT_FINITE, f"{name!r} is beyond the range of float64", stream_id)
    if isinstance(value, int) and int(number) != value:
        raise Bad(Reason.INEXACT, f"{name!r}: float64 cannot hold the integer {value}", stream_id)
    return number + 0.0


def _text(name: str, value: Any, stream_id: str) -> str:
    if not isinstance(value, str):
        raise Bad(Reason.NOT_A_CATEGORY, f"{name!r} must be a text; leave it out if it is unknown", stream_id)
    if len(value) > LONGEST_TEXT:
        raise Bad(Reason.LIMIT, f"{name!r} has more than {LONGEST_TEXT} characters", stream_id)
    return value
