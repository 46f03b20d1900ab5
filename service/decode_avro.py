"""Events in Avro's binary encoding, by one schema.

Idea: the library is called once for many messages. Their bytes are put together to one array of records, each
an event and a mark of eight bytes; if every mark is where it should be, every event ended where its message
ends. Otherwise the messages are read one by one. The mark is a hash of all that is read together: whoever
writes a message cannot know it, and so cannot pretend that a message ends elsewhere.

The schema is a clean one (``avro_schema``): no logical types, so that times and decimals come as they are
written and are converted here, where they are read; and by what that module refuses, reading is bounded.

Not for: which schema, and which rules (``decode_binary``). Pure.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from hashlib import blake2b
from operator import itemgetter
from typing import Any

from fastavro import parse_schema, schemaless_reader

from service.avro_schema import PER_MS, Cleaner, Leaf, Node, is_id, is_number, is_text, is_time, leaf_at
from service.literals import shown
from service.model import Reason
from service.protobuf_schema import Path, Wanted
from service.rows import NOTHING, Bad, Fields, at_path
from service.slices import slices

#: Messages that are read together, and their bytes if there are several: a byte can become an object.
TOGETHER = 256
TOGETHER_BYTES = 1 << 18
_MARK_BYTES = 8
#: What Python shows of an object, its place in memory.
_OF_THIS_RUN = re.compile(r"<[^<>]* at 0x[0-9a-fA-F]+>")


class AvroForm:
    """See the module. ``absent`` is as ``Rules`` has it."""

    def __init__(self, root: Node, paths: Sequence[Path], absent: Sequence[Any]) -> None:
        self._one = parse_schema(Cleaner().schema(root))
        self._many = parse_schema(_array(root))
        self._paths = [path.steps for path in paths]
        leaves = [leaf_at(root, path.steps) for path in paths]
        converters = [_converter(leaf, path.wanted) for leaf, path in zip(leaves, paths, strict=True)]
        self._converters = converters
        self._is_sure = all(_is_sure(leaf, path.wanted) for leaf, path in zip(leaves, paths, strict=True))
        self._row = _row(self._paths, leaves, converters, [None, None, *absent])

    def read(self, bodies: Sequence[bytes]) -> list[Fields | None]:
        """The fields of each message; None where they are not surely of the declared types."""
        if not self._is_sure:
            return [None] * len(bodies)
        found: list[Fields | None] = []
        for some in slices(bodies, TOGETHER_BYTES, TOGETHER):
            found += self._together(some) or [self._alone(body) for body in some]
        return found

    def values(self, body: bytes) -> list[Any]:
        """What one message has at the paths. Raises Bad."""
        event = self._event(body)
        found = (at_path(event, path) for path in self._paths)
        return [
            value if convert is None or value is None or value is NOTHING else convert(value)
            for value, convert in zip(found, self._converters, strict=True)
        ]

    def _together(self, bodies: Sequence[bytes]) -> list[Fields | None] | None:
        mark = blake2b(b"".join(bodies), digest_size=_MARK_BYTES).digest()
        array = b"".join((zigzag(len(bodies)), mark.join((*bodies, b"")), b"\0"))
        stream = io.BytesIO(array)
        try:
            framed: Any = schemaless_reader(stream, self._many, None)
        except Exception:  # it says in many ways that bytes are not what the schema says
            return None
        if stream.tell() != len(array) or [one["mark"] for one in framed] != [mark] * len(bodies):
            return None
        return [_with_id(self._row(one["event"])) for one in framed]

    def _alone(self, body: bytes) -> Fields | None:
        try:
            return _with_id(self._row(self._event(body)))
        except Bad:
            return None

    def _event(self, body: bytes) -> Any:
        stream = io.BytesIO(body)
        try:
            event = schemaless_reader(stream, self._one, None)
        except Exception as error:  # see _together
            said = _OF_THIS_RUN.sub("it", str(error))  # a dead letter is the same whoever writes it
            detail = f"not Avro of the schema: {shown(said) or 'it ends too early'}"
            raise Bad(Reason.MALFORMED, detail) from None
        if stream.tell() != len(body):
            detail = f"not Avro of the schema: the event ends after {stream.tell()} of {len(body)} bytes"
            raise Bad(Reason.MALFORMED, detail)
        return event


def _array(root: Node) -> Any:
    names = Cleaner()
    mark = {"type": "fixed", "name": names.name(), "size": _MARK_BYTES}
    fields = [{"name": "event", "type": names.schema(root)}, {"name": "mark", "type": mark}]
    return {"type": "array", "items": {"type": "record", "name": names.name(), "fields": fields}}


def zigzag(number: int) -> bytes:
    """A number of 0 or more as Avro writes it, and the frame of Protobuf."""
    left = number << 1
    found = bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    found.append(left)
    return bytes(found)


def _with_id(fields: Fields) -> Fields | None:
    return fields if type(fields[0]) is str else None


def _is_sure(leaf: Leaf, wanted: Wanted) -> bool:
    if leaf.node is None:
        return wanted is not Wanted.KEY
    serves = {Wanted.NUMBER: is_number, Wanted.TIME: is_time, Wanted.ID: is_id}.get(wanted, is_text)
    return leaf.sure and serves(leaf.node)


Converter = Callable[[Any], Any]


def _converter(leaf: Leaf, wanted: Wanted) -> Converter | None:
    """From what the library gives to what the rules judge; None: it is that already."""
    node = leaf.node
    if node is None or not leaf.sure:
        return None
    if wanted is Wanted.NUMBER and node.logical == "decimal" and is_number(node):
        return _decimal(node.scale)
    if wanted is Wanted.TIME and node.logical and not is_time(node):
        return str  # a date, a time of day, a time of no zone: the rules want a number
    per_ms = PER_MS.get(node.logical, 1)
    if wanted is Wanted.TIME and is_time(node) and per_ms > 1:
        return lambda time: time // per_ms
    return None


def _decimal(scale: int) -> Converter:
    """The nearest float; an integer stays one, since the rules ask more of it."""
    divisor = 10**scale

    def number(digits: bytes) -> int | float:
        unscaled = int.from_bytes(digits, "big", signed=True)
        try:
            nearest = unscaled / divisor
        except OverflowError:
            return float("inf")
        return nearest if scale else unscaled

    return number


def _row(
    paths: Sequence[tuple[str, ...]],
    leaves: Sequence[Leaf],
    converters: Sequence[Converter | None],
    absent: Sequence[Any],
) -> Callable[[Any], Fields]:
    """Reads the fields of an event: in one go, where they are all in its record and come as they are."""
    whole = all(
        len(path) == 1 and leaf.node is not None and convert is None
        for path, leaf, convert in zip(paths, leaves, converters, strict=True)
    )
    if whole:
        return itemgetter(*(path[0] for path in paths))
    getters = [
        _getter(path, leaf, convert, missing)
        for path, leaf, convert, missing in zip(paths, leaves, converters, absent, strict=True)
    ]
    return lambda event: tuple([get(event) for get in getters])


def _getter(path: tuple[str, ...], leaf: Leaf, convert: Converter | None, missing: Any) -> Converter:
    if leaf.node is None:
        return lambda event: missing
    if len(path) == 1 and convert is None:
        return itemgetter(path[0])

    def get(event: Any) -> Any:
        value = at_path(event, path)
        if value is NOTHING:
            return missing
        return value if value is None or convert is None else convert(value)

    return get
