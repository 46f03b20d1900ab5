"""Events as Protobuf messages of one type.

A field that is not set is missing where the type can tell (``optional``, proto2, within a message that is not
set, a wrapper); else it has the value 0, "" or the first symbol, as it would for any reader. Protobuf has no
nulls.

Not for: framing and rules (``decode_binary``). Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from google.protobuf.message import DecodeError

from service.literals import shown
from service.model import Reason
from service.protobuf_schema import Description, Leaf
from service.rows import NOTHING, Bad, Fields


class _Unsure(Exception):
    """A value that is not what its field promises; the careful reader is to judge it."""


class ProtobufForm:
    """See the module. ``absent`` is as ``Rules`` has it."""

    def __init__(self, description: Description, absent: Sequence[Any]) -> None:
        self._parse = description.read
        self._getters = [_getter(leaf) for leaf in description.leaves]
        # Most leaves are one attribute away; what else there is to do is done after, place by place.
        paths = [".".join(leaf.steps) if leaf else "DESCRIPTOR" for leaf in description.leaves]
        self._read = attrgetter(*paths)
        self._fixes = [
            (place, fix)
            for place, (leaf, missing) in enumerate(zip(description.leaves, ["", None, *absent], strict=True))
            if (fix := _fix(leaf, missing)) is not None
        ]

    def read(self, bodies: Sequence[bytes]) -> list[Fields | None]:
        """The fields of each message; None where they are not surely of the declared types."""
        parse, read, fixes = self._parse, self._read, self._fixes
        found: list[Fields | None] = []
        for body in bodies:
            try:
                message = parse(body)
            except DecodeError:
                found.append(None)
                continue
            if not fixes:
                found.append(read(message))
                continue
            fields = list(read(message))
            try:
                for place, fix in fixes:
                    fields[place] = fix(message, fields[place])
            except _Unsure:
                found.append(None)
            else:
                found.append(tuple(fields))
        return found

    def values(self, body: bytes) -> list[Any]:
        """What one message has at the paths. Raises Bad."""
        try:
            message = self._parse(body)
        except DecodeError as error:
            raise Bad(Reason.MALFORMED, f"not Protobuf of the type: {shown(str(error))}") from None
        return [get(message) for get in self._getters]


Getter = Callable[[Any], Any]
Fix = Callable[[Any, Any], Any]


def _getter(leaf: Leaf | None) -> Getter:
    """From a message to what the rules judge."""
    if leaf is None:
        return lambda message: NOTHING
    steps = tuple(zip(leaf.steps, leaf.asked, strict=True))
    symbols, is_time = leaf.symbols, leaf.is_time

    def get(message: Any) -> Any:
        value = message
        for step, asked in steps:
            if asked and not type(value).HasField(value, step):  # there may be a field of that name
                return NOTHING
            value = getattr(value, step)
        if is_time:
            return value.seconds * 1000 + value.nanos // 1_000_000
        return value if symbols is None else symbols.get(value, value)

    return get


def _fix(leaf: Leaf | None, missing: Any) -> Fix | None:
    """From a message and what it has at the leaf to what the row gets; None: it gets just that."""
    if leaf is None:
        return lambda message, value: missing
    get = _getter(leaf)
    is_text = leaf.is_unchecked or leaf.symbols is not None

    def fix(message: Any, value: Any) -> Any:
        value = get(message)
        if value is NOTHING:
            return missing
        if is_text and type(value) is not str:
            raise _Unsure
        return value

    if is_text or leaf.is_time:
        return fix
    if any(leaf.asked):
        # What is not 0 and not "" has been set.
        return lambda message, value: value or fix(message, value)
    return None
