"""Flat JSON events by a kernel: whole polls of messages that hold nothing unusual.

Idea: nearly every event is one object of plain texts and numbers with a few digits. A kernel goes over the
bytes of all messages once and takes such events into columns; nothing is made for an event by the interpreter
but the text that is its stream id. It says of each message whether it is surely fine, and what is not is read
by somebody else (``decode``): whatever has an escape, a character beyond ASCII, a value that is neither text
nor number, or a number that float64 may not hold.

Exact: whole numbers below 2**53 and powers of ten up to the 22nd are float64s, so the quotient of two of them
is rounded once, as the number that was written is (Clinger, How to read floating point numbers accurately).
Of a number with more digits the kernel says only where it stands.

Pure. Not for: saying why an event is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from service.index.kernel import kernel, reads, writes
from service.rows import LONGEST_TEXT

Place = np.uint64
Places = NDArray[Place]
Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

STREAM_ID, TS = 0, 1
TEXT, TIME, NUMBER = range(3)
INEXACT_FROM = 2**53
#: Digits that an int64 holds for sure.
MOST_DIGITS = 18

#: Powers of ten that a float64 holds.
_POWERS = np.array([float(10**k) for k in range(23)])


class Flat(NamedTuple):
    """What was found in n messages. ``fine bool[n]``: those of which the rest holds. ``ts int64[n]`` where
    ``timed bool[n]``; ``values float64[n, d]``, -inf where nothing is or the attribute is a text; ``places
    uint64[n, 2 + d, 2]``, by field: where a text, or a number with many digits, begins and ends in ``text``,
    0 where none is."""

    fine: Flags
    ts: Ints
    timed: Flags
    values: Floats
    places: Places
    text: str

    def texts(self, field: int) -> list[str | None]:
        """The texts of a field in the messages that are fine."""
        return self.at_places(field, self.fine)

    def at_places(self, field: int, messages: NDArray[Any]) -> list[str | None]:
        """What stands at the places of a field in these messages, given by number or as ``bool[n]``."""
        begins, ends = self.places[messages, field].T.tolist()
        text = self.text
        return [text[begin:end] if begin else None for begin, end in zip(begins, ends, strict=True)]


class FlatReader:
    """Reads events with these fields: the stream id, the time, and attributes, of which ``numbers`` says
    which are numbers and not texts. ``max_bytes``: the largest message that it takes."""

    def __init__(self, fields: Sequence[str], numbers: Sequence[bool], max_bytes: int) -> None:
        self._limits = np.array([max_bytes, LONGEST_TEXT], dtype=np.uint64)
        encoded = [field.encode() for field in fields]
        self._names = np.frombuffer(b"".join(encoded), dtype=np.uint8)
        self._name_starts = np.cumsum([0, *map(len, encoded)], dtype=np.uint64)
        self._kinds = np.array([TEXT, TIME, *(NUMBER if one else TEXT for one in numbers)], dtype=np.uint8)

    def read(self, values: Sequence[bytes]) -> Flat:
        """What these messages hold. O(bytes)."""
        n, fields = len(values), len(self._kinds)
        joined = b"".join(values)
        found = Flat(
            np.empty(n, dtype=np.bool_),
            np.empty(n, dtype=np.int64),
            np.empty(n, dtype=np.bool_),
            np.empty((n, fields - 2)),
            np.empty((n, fields, 2), dtype=np.uint64),
            joined.decode("latin-1"),  # a character a byte; what is fine is ASCII
        )
        starts = np.zeros(n + 1, dtype=np.uint64)
        starts[1:] = np.cumsum(np.fromiter(map(len, values), dtype=np.int64, count=n))
        text = np.frombuffer(joined, dtype=np.uint8)
        scan(text, starts, self._names, self._name_starts, self._kinds, self._limits, _POWERS, *found[:5])
        for field in np.flatnonzero(self._kinds == NUMBER).tolist():
            rows = np.flatnonzero(found.fine & (found.places[:, field, 0] > 0))
            long = map(float, found.at_places(field, rows))  # type: ignore[arg-type]
            numbers = np.fromiter(long, dtype=np.float64, count=len(rows)) + 0.0
            found.values[rows, field - 2] = numbers
            found.fine[rows] = np.abs(numbers) < INEXACT_FROM
        return found


@kernel(types.uint64(reads(types.uint8, 1), types.uint64, types.uint64))
def after_blank(text: Bytes, at: Place, end: Place) -> Place:
    """Where the next thing begins."""
    while at < end and (text[at] == 32 or text[at] == 10 or text[at] == 13 or text[at] == 9):
        at += np.uint64(1)
    return at


@kernel(types.uint64(reads(types.uint8, 1), types.uint64, types.uint64))
def text_end(text: Bytes, at: Place, end: Place) -> Place:
    """Where the quotation mark is that ends a text; ``end`` if what stands here is no plain text."""
    while at < end:
        byte = text[at]
        if byte == 34:
            return at
        if byte < 32 or byte == 92 or byte > 127:
            return end
        at += np.uint64(1)
    return end


@kernel(
    types.uint64(
        reads(types.uint8, 1),
        types.uint64,
        types.uint64,
        reads(types.float64, 1),
        writes(types.int64, 1),
        writes(types.float64, 1),
    )
)
def read_number(text: Bytes, at: Place, end: Place, powers: Floats, whole: Ints, number: Floats) -> Place:
    """Where a number ends; ``end`` if it is none. If ``whole[2]``, it is in ``number[0]``, else it has too
    many digits, or an exponent; if ``whole[1]``, it is in ``whole[0]`` too."""
    one = np.uint64(1)
    negative = text[at] == 45
    if negative:
        at += one
    first = at
    digits = 0
    mantissa = np.int64(0)
    while at < end and 48 <= text[at] <= 57:
        if digits < MOST_DIGITS:
            mantissa = mantissa * 10 + np.int64(text[at] - 48)
        digits += 1
        at += one
    if digits == 0 or (digits > 1 and text[first] == 48):
        return end
    decimals = 0
    whole[1] = True
    if at < end and text[at] == 46:
        whole[1] = False
        at += one
        while at < end and 48 <= text[at] <= 57:
            if digits < MOST_DIGITS:
                mantissa = mantissa * 10 + np.int64(text[at] - 48)
            digits += 1
            decimals += 1
            at += one
        if decimals == 0:
            return end
    whole[2] = digits <= MOST_DIGITS and mantissa < INEXACT_FROM
    if at < end and (text[at] == 101 or text[at] == 69):
        whole[2] = False
        at += one
        if at < end and (text[at] == 43 or text[at] == 45):
            at += one
        first = at
        while at < end and 48 <= text[at] <= 57:
            at += one
        if at == first:
            return end
    if whole[2]:
        value = np.float64(mantissa) / powers[decimals]
        number[0] = -value + 0.0 if negative else value
        whole[0] = -mantissa if negative else mantissa
    return at


@kernel(
    types.int64(
        reads(types.uint8, 1),
        types.uint64,
        types.uint64,
        reads(types.uint8, 1),
        reads(types.uint64, 1),
        types.int64,
    )
)
def field_of(text: Bytes, begin: Place, length: Place, names: Bytes, name_starts: Places, guess: int) -> int:
    """Which field a name is, -1 if none; ``guess`` is looked at first, since events have their fields in one
    order. O(fields)."""
    fields = len(name_starts) - 1
    for step in range(fields):
        field = (guess + step) % fields
        name = name_starts[field]
        if name_starts[field + 1] - name == length:
            k = np.uint64(0)
            while k < length and names[name + k] == text[begin + k]:
                k += np.uint64(1)
            if k == length:
                return field
    return -1


@kernel(
    types.void(
        reads(types.uint8, 1),
        reads(types.uint64, 1),
        reads(types.uint8, 1),
        reads(types.uint64, 1),
        reads(types.uint8, 1),
        reads(types.uint64, 1),
        reads(types.float64, 1),
        writes(types.boolean, 1),
        writes(types.int64, 1),
        writes(types.boolean, 1),
        writes(types.float64, 2),
        writes(types.uint64, 3),
    )
)
def scan(
    text: Bytes,
    starts: Places,
    names: Bytes,
    name_starts: Places,
    kinds: Bytes,
    limits: Places,
    powers: Floats,
    fine: Flags,
    ts: Ints,
    timed: Flags,
    values: Floats,
    places: Places,
) -> None:
    """Reads n messages. O(bytes + n fields).

    Message i is ``text[starts[i]:starts[i + 1]]``, field f is called ``names[name_starts[f]:name_starts[f +
    1]]`` and is of ``kinds[f]``. ``limits``: the most bytes of a message, and of a text. Out: as ``Flat`` has
    them."""
    one = np.uint64(1)
    whole = np.zeros(3, dtype=np.int64)
    number = np.zeros(1)
    fields = len(kinds)
    for i in range(len(fine)):
        end = starts[i + 1]
        fine[i] = False
        timed[i] = False
        ts[i] = 0
        for field in range(fields):
            places[i, field, 0] = 0
            places[i, field, 1] = 0
        for j in range(fields - 2):
            values[i, j] = -np.inf
        at = after_blank(text, starts[i], end)
        if at >= end or text[at] != 123 or end - starts[i] > limits[0]:
            continue
        guess = 0
        while True:  # at an opening bracket, or a comma
            at = after_blank(text, at + one, end)
            if at >= end or text[at] != 34:
                break
            begin = at + one
            at = text_end(text, begin, end)
            if at >= end:
                break
            field = field_of(text, begin, at - begin, names, name_starts, guess)
            if field >= 0:
                guess = field + 1
            at = after_blank(text, at + one, end)
            if at >= end or text[at] != 58:
                break
            at = after_blank(text, at + one, end)
            if at >= end:
                break
            if text[at] == 34:
                begin = at + one
                at = text_end(text, begin, end)
                if at >= end or (field >= 0 and kinds[field] != TEXT):
                    break
                if field >= 0:
                    places[i, field, 0] = begin
                    places[i, field, 1] = at
                    if at - begin > limits[1]:
                        break
                at += one
            else:
                begin = at
                at = read_number(text, at, end, powers, whole, number)
                if at >= end:
                    break
                if field >= 0:
                    if kinds[field] == NUMBER and whole[2]:
                        values[i, field - 2] = number[0]
                        places[i, field, 0] = 0
                    elif kinds[field] == NUMBER:
                        places[i, field, 0] = begin
                        places[i, field, 1] = at
                    elif kinds[field] == TIME and whole[1] and whole[2]:
                        ts[i] = whole[0]
                        timed[i] = True
                    else:
                        break
            at = after_blank(text, at, end)
            if at >= end:
                break
            if text[at] == 44:
                continue
            if text[at] == 125:
                at = after_blank(text, at + one, end)
                fine[i] = at == end and places[i, STREAM_ID, 1] > places[i, STREAM_ID, 0]
            break
