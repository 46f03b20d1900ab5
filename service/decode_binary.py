"""Messages in Avro or Protobuf to columns: one event a message, with or without the frame of a registry.

The frame (Confluent's, which Apicurio and Karapace write as well): a zero byte, the id of the schema as four
bytes, big end first; for Protobuf then where the type stands in its file: how many numbers, and the numbers,
as zigzag varints, or one zero byte for the first type.

An Avro schema that an id names comes from outside: the decoder says which it lacks, and is told them before
it decodes. A Protobuf message needs none: its fields have numbers, and its type the source says.

Invariants: every message gives one row or one refusal, in log order, whatever its bytes are. Pure.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from service.avro_schema import read_schema
from service.decode_avro import AvroForm, zigzag
from service.decode_protobuf import ProtobufForm
from service.engine.categories import Dictionary
from service.engine.effects import Refused
from service.formats import avro_root, description, paths_of
from service.literals import shown
from service.log.port import Record
from service.model import Avro, Protobuf, Reason, Refusal, Source
from service.rows import Bad, Decoded, Fields, Registered, Rows, Rules

#: Schemas that are remembered; past it all are forgotten and asked for anew.
MAX_FORMS = 10_000
_HEAD = 5
#: Of a message type: so deep within others, and so far down, is none.
_MOST_INDEXES = 32


class Form(Protocol):
    """How messages of one schema are read."""

    def read(self, bodies: Sequence[bytes]) -> list[Fields | None]:
        """The fields of each; None where they are not surely of the declared types."""

    def values(self, body: bytes) -> list[Any]:
        """What one has at the declared paths, for the rules. Raises Bad."""


class Originals(Mapping[tuple[int, int], bytes | None]):
    """The messages by (offset, 0); they are put in order only when somebody asks for one."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = records
        self._values: dict[int, bytes | None] | None = None

    def __getitem__(self, place: tuple[int, int]) -> bytes | None:
        if self._values is None:
            self._values = {record.offset: record.value for record in self._records}
        return self._values[place[0]]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return ((record.offset, 0) for record in self._records)

    def __len__(self) -> int:
        return len(self._records)


class BinaryDecoder:
    """Reads the messages of one source; made anew when the source changes."""

    def __init__(self, source: Source, dictionaries: Mapping[str, Dictionary], *, max_bytes: int) -> None:
        self._rules = Rules(source, dictionaries, none_is_null=True)
        self._paths = paths_of(source)
        self._max_bytes = max_bytes
        #: by schema id; 0 for the one of messages without
        self._forms: dict[int, Form | Bad] = {}
        #: there is none under these ids; of the stale ones some message has been refused for that
        self._unknown: set[int] = set()
        self._stale: set[int] = set()
        self._index: tuple[int, ...] = ()
        self._usual = b""  # the index as it is written
        #: from a message to the id of its form and the bytes of the event; None: it is the event
        self._opened: Callable[[bytes], tuple[int, bytes]] | None = None
        self._asks = False
        if isinstance(source.format, Protobuf):
            described = description(source)
            self._forms[0] = ProtobufForm(described, self._rules.absent)
            self._index = described.index
            self._usual = _indexes(described.index)
            if source.format.registry:
                self._opened = self._indexed
        elif isinstance(source.format, Avro) and source.format.schema is not None:
            self._forms[0] = AvroForm(avro_root(source.format), self._paths, self._rules.absent)
        else:
            self._opened, self._asks = _framed, True

    # ---- schemas

    def lacking(self, records: Sequence[Record]) -> set[int]:
        """The ids in these messages that it has not been told of. That there is none is kept until a message
        has been refused for it, however long the others take, and asked for anew then."""
        if not self._asks:
            return set()
        for id in self._stale:
            self._forms.pop(id, None)
        self._unknown -= self._stale
        self._stale.clear()
        heads = {
            value[1:_HEAD]
            for _, _, _, value in records
            if value is not None and _HEAD <= len(value) <= self._max_bytes and value[0] == 0
        }
        ids = {int.from_bytes(head, "big") for head in heads}
        if len(self._forms) > MAX_FORMS:
            self._forms = {id: form for id, form in self._forms.items() if id in ids}
        return ids - self._forms.keys()

    def learn(self, schemas: Mapping[int, Registered | None]) -> None:
        for id, schema in schemas.items():
            if schema is None:
                self._unknown.add(id)
                self._forms[id] = Bad(Reason.UNKNOWN_SCHEMA, f"the schema registry has no schema {id}")
            else:
                self._forms[id] = self._form(id, schema)

    def _form(self, id: int, schema: Registered) -> Form | Bad:
        if schema.kind != "AVRO":
            return _unfit(id, f"is of the type {shown(schema.kind)}, and the source reads Avro")
        if schema.references:
            return _unfit(id, "refers to other schemas; one that is whole is needed")
        try:
            return AvroForm(read_schema(json.loads(schema.text)), self._paths, self._rules.absent)
        except Refusal as refusal:
            return _unfit(id, f"{refusal.field} {refusal.detail}".strip())
        except (ValueError, RecursionError) as error:
            return _unfit(id, f"is not JSON: {shown(str(error))}")

    # ---- messages

    def decode(self, records: Sequence[Record]) -> Decoded:
        """All messages of a poll, whose schemas it has been told. O(bytes)."""
        fields: list[Fields | None] = [None] * len(records)
        refused: list[Refused] = []
        by_form: dict[int, tuple[list[int], list[bytes]]] = defaultdict(lambda: ([], []))
        opened, most = self._opened, self._max_bytes
        for message, (offset, _, key, value) in enumerate(records):
            try:
                if value is None:
                    fields[message] = self._rules.removal(key)
                    continue
                if len(value) > most:
                    raise Bad(Reason.TOO_LARGE, f"{len(value)} bytes; at most {most} are taken")
                id, body = opened(value) if opened else (0, value)
            except Bad as bad:
                refused.append(bad.at(offset, 0))
                continue
            messages, bodies = by_form[id]
            messages.append(message)
            bodies.append(body)
        for id, (messages, bodies) in by_form.items():
            self._read(self._forms[id], messages, bodies, records, fields, refused)
        accepted = [message for message, one in enumerate(fields) if one is not None]
        rows = Rows(accepted, [0] * len(accepted), [one for one in fields if one is not None])
        self._stale |= self._unknown & by_form.keys()
        return self._rules.settle(records, rows, refused, Originals(records), self._careful)

    def key(self, value: bytes) -> bytes | None:
        """The stream id of a message that lacks nothing, as a key; None where it has none."""
        try:
            id, body = self._opened(value) if self._opened else (0, value)
            stream_id = _form(self._forms[id]).values(body)[0]
        except Bad:
            return None
        return stream_id.encode() if isinstance(stream_id, str) and stream_id else None

    def _read(
        self,
        form: Form | Bad,
        messages: Sequence[int],
        bodies: Sequence[bytes],
        records: Sequence[Record],
        fields: list[Fields | None],
        refused: list[Refused],
    ) -> None:
        """Puts the fields of messages of one form to their places, or refuses them."""
        if isinstance(form, Bad):
            refused += [form.at(records[message].offset, 0) for message in messages]
            return
        for message, body, one in zip(messages, bodies, form.read(bodies), strict=True):
            if one is not None:
                fields[message] = one
                continue
            try:
                fields[message] = self._rules.judge(form.values(body))
            except Bad as bad:
                refused.append(bad.at(records[message].offset, 0))

    def _careful(self, value: bytes) -> Fields:
        id, body = self._opened(value) if self._opened else (0, value)
        return self._rules.judge(_form(self._forms[id]).values(body))

    # ---- frames

    def _indexed(self, value: bytes) -> tuple[int, bytes]:
        """A frame of Protobuf. The id is passed over: the source says what the type is."""
        if value.startswith(self._usual, _HEAD) and value[0] == 0:
            return 0, value[_HEAD + len(self._usual) :]
        _, framed = _framed(value)
        count, at = _varint(framed, 0)
        indexes = []
        if not 0 <= count <= _MOST_INDEXES:
            raise Bad(Reason.MALFORMED, f"{count} message indexes are in front of it")
        for _ in range(count):
            index, at = _varint(framed, at)
            indexes.append(index)
        if (tuple(indexes) or (0,)) != self._index:
            detail = f"is message type {indexes or [0]} of its file; the source reads {list(self._index)}"
            raise Bad(Reason.MALFORMED, detail)
        return 0, framed[at:]


def _form(form: Form | Bad) -> Form:
    if isinstance(form, Bad):
        raise form
    return form


def _unfit(id: int, detail: str) -> Bad:
    return Bad(Reason.BAD_SCHEMA, f"schema {id} {detail}")


def _framed(value: bytes) -> tuple[int, bytes]:
    if len(value) < _HEAD or value[0] != 0:
        detail = (
            "does not begin with a zero byte and the four bytes of a schema id, as registries frame messages"
        )
        raise Bad(Reason.MALFORMED, detail)
    return int.from_bytes(value[1:_HEAD], "big"), value[_HEAD:]


def _indexes(index: tuple[int, ...]) -> bytes:
    """As producers write it."""
    return b"\0" if index == (0,) else b"".join(map(zigzag, (len(index), *index)))


def _varint(value: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint of at most five bytes, and where it ends."""
    number = 0
    for place, byte in enumerate(value[at : at + 5]):
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at + place + 1
    raise Bad(Reason.MALFORMED, "its message indexes do not end")
