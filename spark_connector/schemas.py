"""The typed rows of the topics ``matches``, ``borders`` and ``aggregates``.

A record's fields keep their names and units: ``ts`` is ms since 1970, ``origin`` holds either the event's
topic, partition, offset and row, or the offset of the command, or the timer that was due. Three columns are
added: ``log``, the record's own place in its topic (a stream's records are all in one partition, so
``log.offset`` orders them); ``day``, the UTC day on which the log took the record; and, in the stored tables
only, ``reject``.

``attrs`` is two maps in a struct, ``numbers`` (float64, as in the service) and ``texts`` (categories): one
map of texts could not tell the number 5 from the text "5", and one of numbers cannot hold a category. A
column is ``attrs.numbers.sog``, null where the record has none.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    VariantType,
)

from service.log import topics

SCHEMA_VERSION = 1

_TEXT, _LONG, _INT, _IDS = StringType(), LongType(), IntegerType(), ArrayType(StringType(), False)


def _struct(**fields: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields.items()])


ATTRS = _struct(
    numbers=MapType(StringType(), DoubleType(), False), texts=MapType(StringType(), StringType(), False)
)
ORIGIN = _struct(topic=_TEXT, partition=_INT, offset=_LONG, row=_INT, command=_LONG, timer=_TEXT)
LOG = _struct(topic=_TEXT, partition=_INT, offset=_LONG, ts=_LONG)

MATCH = _struct(
    v=_INT,
    tenant=_TEXT,
    source=_TEXT,
    stream_id=_TEXT,
    ts=_LONG,
    queries=_IDS,
    late=BooleanType(),
    chunk=_INT,
    chunks=_INT,
    attrs=ATTRS,
    origin=ORIGIN,
    log=LOG,
    day=DateType(),
)
BORDER = _struct(
    v=_INT,
    tenant=_TEXT,
    source=_TEXT,
    stream_id=_TEXT,
    seq=_LONG,
    ts=_LONG,
    reason=_TEXT,
    leave=_IDS,
    enter=_IDS,
    cross=_IDS,
    attrs=ATTRS,
    origin=ORIGIN,
    log=LOG,
    day=DateType(),
)
NUMBERS = _struct(n=_LONG, sum=DoubleType(), min=DoubleType(), max=DoubleType(), avg=DoubleType())
AGGREGATE = _struct(
    v=_INT,
    tenant=_TEXT,
    source=_TEXT,
    query=_TEXT,
    partition=_INT,
    ts=_LONG,
    count=_LONG,
    of=MapType(StringType(), NUMBERS),
    log=LOG,
    day=DateType(),
)
"""``of`` is by attribute. The record stands for one partition of the source; ``log`` is its own place."""

REJECT = _struct(reason=_TEXT, key=BinaryType(), value=BinaryType())
"""Why a message is not a row, and the message as it came."""

REJECTS = _struct(reason=_TEXT, key=BinaryType(), value=BinaryType(), log=LOG, day=DateType())


@dataclass(frozen=True, slots=True)
class RecordType:
    """One topic's kind of record, as the service publishes it: its name, its row, and the fields that a
    record need not have. Of those, ``late`` is false when it is absent, and the rest null.
    """

    topic: str
    row: StructType
    optional: frozenset[str] = frozenset()

    @property
    def wire(self) -> StructType:
        """The fields of the JSON object, as they are parsed: ``attrs`` not yet told apart."""
        raw = MapType(StringType(), VariantType())
        fields = [field for field in self.row.fields if field.name not in ("log", "day")]
        return StructType([StructField(f.name, raw if f.name == "attrs" else f.dataType) for f in fields])

    @property
    def required(self) -> list[str]:
        return [name for name in self.wire.names if name not in self.optional]

    @property
    def stored(self) -> StructType:
        """The row as it lies in the Parquet files; ``source`` and ``day`` are the folders."""
        return StructType([*self.row.fields, StructField("reject", REJECT)])


MATCHES = RecordType(topics.MATCHES, MATCH, optional=frozenset(("late", "chunk", "chunks")))
BORDERS = RecordType(topics.BORDERS, BORDER)
AGGREGATES = RecordType(topics.AGGREGATES, AGGREGATE)
