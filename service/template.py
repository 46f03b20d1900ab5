"""Many records at once: columns to JSON texts, by a template.

Idea: the records of one kind differ in a few places only. A template says what stands there, in turn: a text
that all have, a text of a few that each picks, a number, or a list of ids. A kernel writes all records into
one buffer, which is then cut; so nothing that is made for a record alone is made by the interpreter but its
bytes.

Texts are JSON already. Pure. Not for: what a record says (``wire``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from service.engine.idtexts import IdTexts
from service.index.kernel import kernel, reads, writes
from service.index.protocol import Slots

Ints = NDArray[np.int64]
Place = np.uint64
Places = NDArray[Place]
Bytes = NDArray[np.uint8]

TEXT, NUMBER, IDS = range(3)

#: What is written at a time: so much stays in the cache of the processor until it is cut.
_BLOCK_BYTES = 1 << 17


class Picked(NamedTuple):
    """A text for each of n records: ``texts[picks[i]]``; ``picks`` are n whole numbers."""

    texts: Sequence[bytes]
    picks: NDArray[np.integer[Any]]


class Listed(NamedTuple):
    """A JSON list for each record: the ids of ``slots[begins[i]:ends[i]]``, which are in order."""

    begins: Ints
    ends: Ints


Part = bytes | Picked | Listed | NDArray[np.integer[Any]]
"""What stands at a place of a template; an array ``int64[n]``: these numbers."""


def filled(
    count: int, parts: Iterable[Part], ids: IdTexts, slots: Slots, *, block_bytes: int = _BLOCK_BYTES
) -> list[bytes]:
    """``count`` records of the parts, one after the other, written so much at a time. O(bytes)."""
    program: list[tuple[int, int]] = []
    texts: list[bytes] = []
    picks: list[NDArray[np.integer[Any]]] = []
    numbers: list[NDArray[np.integer[Any]]] = []
    bounds: list[Ints] = []
    everywhere = np.zeros(count, dtype=np.int32)
    for part in parts:
        if isinstance(part, Listed):
            program.append((IDS, len(bounds)))
            bounds += part
        elif isinstance(part, np.ndarray):
            program.append((NUMBER, len(numbers)))
            numbers.append(part)
        else:
            own, picked = part if isinstance(part, Picked) else ([part], everywhere)
            program.append((TEXT, len(picks)))
            picks.append(np.add(picked, len(texts), dtype=np.int32, casting="same_kind"))
            texts += own
    given = (
        np.array(program, dtype=np.int32),
        _rows(picks, count, np.int32),
        _rows(numbers, count, np.int64),
        _rows(bounds, count, np.int64),
        slots,
        ids.text,
        ids.starts,
        ids.lengths,
        np.frombuffer(b"".join(texts), dtype=np.uint8),
        np.cumsum([0, *map(len, texts)], dtype=np.uint64),
    )
    out = np.empty(min(block_bytes, 512 * count), dtype=np.uint8)
    ends = np.empty(count, dtype=np.int64)
    records: list[bytes] = []
    while len(records) < count:
        first = len(records)
        after = fill(*given, first, out, ends)
        if after == first:  # one that is larger than the whole block
            out = np.empty(2 * len(out), dtype=np.uint8)
            continue
        written = ends[first:after].tolist()
        block = out[: written[-1]].tobytes()
        records += [block[begin:end] for begin, end in pairwise([0, *written])]
    return records


def _rows(columns: Sequence[NDArray[np.integer[Any]]], count: int, dtype: type) -> NDArray[np.integer[Any]]:
    return np.array(columns, dtype=dtype) if columns else np.empty((0, count), dtype=dtype)


# Places in texts are unsigned: a signed index is looked at for being negative, at every byte.


@kernel(
    types.boolean(
        reads(types.uint8, 1),
        types.uint64,
        types.uint64,
        types.uint64,
        types.uint64,
    )
)
def before(text: Bytes, a: Place, a_length: Place, b: Place, b_length: Place) -> bool:
    """Whether the text at ``a`` comes before the one at ``b``."""
    for i in range(min(a_length, b_length)):
        if text[a + i] != text[b + i]:
            return bool(text[a + i] < text[b + i])
    return bool(a_length < b_length)


@kernel(
    types.void(
        reads(types.uint8, 1),
        reads(types.uint64, 1),
        reads(types.uint64, 1),
        reads(types.int64, 1),
        writes(types.int32, 1),
    )
)
def order_ids(text: Bytes, starts: Places, lengths: Places, bounds: Ints, slots: Slots) -> None:
    """Puts each stretch ``slots[bounds[i]:bounds[i + 1]]`` in the order of its ids, by a Shell sort: most
    have a few. O(n ** 1.5) compared for each at the most."""
    for i in range(len(bounds) - 1):
        begin, end = bounds[i], bounds[i + 1]
        gap = (end - begin) // 2
        while gap > 0:
            for j in range(begin + gap, end):
                slot = slots[j]
                k = j
                while k - gap >= begin:
                    other = slots[k - gap]
                    if not before(text, starts[slot], lengths[slot], starts[other], lengths[other]):
                        break
                    slots[k] = other
                    k -= gap
                slots[k] = slot
            gap //= 2


@kernel(types.uint64(writes(types.uint8, 1), types.uint64, reads(types.uint8, 1), types.uint64, types.uint64))
def put(out: Bytes, at: Place, text: Bytes, begin: Place, length: Place) -> Place:
    """Copies ``length`` bytes of a text if there is room; returns where the next one goes."""
    if at + length <= np.uint64(len(out)):
        for i in range(length):
            out[at + i] = text[begin + i]
    return at + length


@kernel(types.uint64(writes(types.uint8, 1), types.uint64, types.uint8))
def put_byte(out: Bytes, at: Place, byte: np.uint8) -> Place:
    """The same of one byte."""
    if at < np.uint64(len(out)):
        out[at] = byte
    return at + np.uint64(1)


@kernel(types.uint64(writes(types.uint8, 1), types.uint64, types.int64))
def put_number(out: Bytes, at: Place, number: int) -> Place:
    """The same of a whole number above the least int64, as decimal digits."""
    if number < 0:
        at = put_byte(out, at, np.uint8(ord("-")))
    rest = np.uint64(abs(number))
    ten = power = np.uint64(10)
    length = np.uint64(1)
    while rest >= power:
        power *= ten
        length += np.uint64(1)
    if at + length <= np.uint64(len(out)):
        for i in range(length):
            out[at + length - np.uint64(1) - i] = ord("0") + rest % ten
            rest //= ten
    return at + length


@kernel(
    types.int64(
        reads(types.int32, 2),
        reads(types.int32, 2),
        reads(types.int64, 2),
        reads(types.int64, 2),
        reads(types.int32, 1),
        reads(types.uint8, 1),
        reads(types.uint64, 1),
        reads(types.uint64, 1),
        reads(types.uint8, 1),
        reads(types.uint64, 1),
        types.int64,
        writes(types.uint8, 1),
        writes(types.int64, 1),
    )
)
def fill(
    program: Slots,
    picks: Slots,
    numbers: Ints,
    bounds: Ints,
    slots: Slots,
    ids: Bytes,
    id_starts: Places,
    id_lengths: Places,
    texts: Bytes,
    text_starts: Places,
    first: int,
    out: Bytes,
    ends: Ints,
) -> int:
    """Writes records from ``first`` on while they have room. O(bytes).

    ``program int32[parts, 2]``: kind and column of each part. ``picks int32[c, n]``: texts, of which text t
    is ``text_starts[t]:text_starts[t + 1]``. ``numbers int64[c, n]``. ``bounds int64[2 c, n]``: where lists
    begin and end in ``slots``; the id of a slot is ``id_lengths`` bytes of ``ids`` from ``id_starts`` on.
    Out: the bytes, and ``ends int64[n]``, where each record ends in them. Returns the first record that is
    not written."""
    opening, closing, comma = np.uint8(91), np.uint8(93), np.uint8(44)
    at = np.uint64(0)
    for i in range(first, len(ends)):
        for part in range(len(program)):
            kind, column = program[part, 0], program[part, 1]
            if kind == TEXT:
                pick = picks[column, i]
                begin = text_starts[pick]
                at = put(out, at, texts, begin, text_starts[pick + 1] - begin)
            elif kind == NUMBER:
                at = put_number(out, at, numbers[column, i])
            else:
                at = put_byte(out, at, opening)
                begin_list, end_list = bounds[column, i], bounds[column + 1, i]
                for k in range(begin_list, end_list):
                    if k > begin_list:
                        at = put_byte(out, at, comma)
                    at = put(out, at, ids, id_starts[slots[k]], id_lengths[slots[k]])
                at = put_byte(out, at, closing)
        if at > np.uint64(len(out)):
            return i
        ends[i] = at
    return len(ends)
