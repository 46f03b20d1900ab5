"""Bytes to rows: typed, nothing lost, and everything that is no record kept aside with its reason."""

from __future__ import annotations

import json
import math
import random
import struct
from collections.abc import Sequence
from datetime import UTC, date, datetime
from importlib.resources import files

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from spark_connector.records import decode
from spark_connector.schemas import (
    AGGREGATE,
    AGGREGATES,
    BORDER,
    BORDERS,
    MATCH,
    MATCHES,
    ORIGIN,
    RecordType,
)
from tests.spark.logs import border, match

pytestmark = pytest.mark.spark

TAKEN = datetime(2026, 3, 1, 23, 59, 59, 999000, tzinfo=UTC)

KAFKA = (
    "key binary, value binary, topic string, partition int, offset bigint, "
    "timestamp timestamp, timestampType int"
)


def as_kafka(spark: SparkSession, values: Sequence[bytes | None], topic: str = "borders") -> DataFrame:
    rows = [(b"k", value, topic, 1, offset, TAKEN, 0) for offset, value in enumerate(values)]
    return spark.createDataFrame(rows, KAFKA)


def rows_of(spark: SparkSession, values: Sequence[bytes | None], kind: RecordType) -> list[Row]:
    return sorted(decode(as_kafka(spark, values), kind).collect(), key=lambda row: row.log.offset)


def test_a_border_record_keeps_every_field(spark: SparkSession) -> None:
    record = border(
        "v-17",
        3,
        1_641_168_000_000,
        leave=["a", "b"],
        enter=["c"],
        cross=["d"],
        attrs={"sog": 12.1, "deck": "5", "n": 5},
    )
    [row] = rows_of(spark, [json.dumps(record).encode()], BORDERS)
    plain = row.asDict(recursive=True)
    assert plain.pop("reject") is None
    assert plain == record | {
        "attrs": {"numbers": {"sog": 12.1, "n": 5.0}, "texts": {"deck": "5"}},
        "origin": record["origin"] | {"command": None, "timer": None},
        "log": {"topic": "borders", "partition": 1, "offset": 0, "ts": 1_772_409_599_999},
        "day": date(2026, 3, 1),
    }


def test_a_match_record_keeps_every_field(spark: SparkSession) -> None:
    whole = match("v", 5, ["a", "b"])
    part = match("w", 6, ["c"], late=True, chunk=2, chunks=3, origin={"command": 9})
    first, second = rows_of(spark, [json.dumps(record).encode() for record in (whole, part)], MATCHES)
    assert (first.queries, first.late, first.chunk, first.chunks) == (["a", "b"], False, None, None)
    assert (second.queries, second.late, second.chunk, second.chunks) == (["c"], True, 2, 3)
    assert second.origin.asDict() == dict.fromkeys(("topic", "partition", "offset", "row", "timer"), None) | {
        "command": 9
    }


def test_a_record_of_aggregates_keeps_every_field(spark: SparkSession) -> None:
    schema = json.loads(files("service").joinpath("schemas", "aggregates.json").read_bytes())
    whole = schema["examples"][0]
    none = {"n": 0, "sum": 0.0, "min": None, "max": None, "avg": None}
    empty = whole | {"count": 0, "of": {"sog": none}}
    bad = whole | {"of": {"sog": {"n": "two"}}}
    first, second, third, fourth = rows_of(
        spark, [json.dumps(one).encode() for one in (whole, empty, bad, {"v": 1})], AGGREGATES
    )
    for row, record in ((first, whole), (second, empty)):
        plain = row.asDict(recursive=True)
        assert plain.pop("reject") is None
        assert {name: plain[name] for name in record} == record
        assert set(plain) == {*record, "log", "day"} == {*schema["properties"], "log", "day"}
    assert (third.reject.reason, fourth.reject.reason) == ("malformed", "incomplete")


def test_the_declared_types_are_the_types_of_the_rows(spark: SparkSession) -> None:
    for kind, row in ((MATCHES, MATCH), (BORDERS, BORDER), (AGGREGATES, AGGREGATE)):
        decoded = decode(as_kafka(spark, []), kind).schema
        assert {f.name: f.dataType.simpleString() for f in decoded.fields} == {
            f.name: f.dataType.simpleString() for f in kind.stored.fields
        }
        assert row.names == kind.stored.names[:-1]


def test_numbers_come_back_bit_by_bit(spark: SparkSession) -> None:
    rng = random.Random(11)
    drawn = [struct.unpack("<d", rng.randbytes(8))[0] for _ in range(2000)]
    edges = [
        0.0,
        5e-324,
        2.2250738585072014e-308,
        1.7976931348623157e308,
        9007199254740993.0,
        0.1,
        1e22,
        1e23,
    ]
    decimals = [round(rng.uniform(-1e6, 1e6), rng.randrange(12)) for _ in range(2000)]
    numbers = [x for x in (*drawn, *edges, *decimals, *(-x for x in edges[1:])) if math.isfinite(x)]
    record = border("s", 1, 1, enter=["q"], attrs={f"n{place}": x for place, x in enumerate(numbers)})
    [row] = rows_of(spark, [json.dumps(record).encode()], BORDERS)
    assert [row.attrs.numbers[f"n{place}"] for place in range(len(numbers))] == numbers


GOOD = json.dumps(border("s", 1, 1, enter=["q"]))

REFUSED = [
    ("empty", None),
    ("empty", b""),
    ("version", GOOD.replace('"v": 1', '"v": 2').encode()),
    ("version", GOOD.replace('"v": 1', '"v": 2').replace('["q"]', '{"q": 1}').encode()),
    ("malformed", b"nope"),
    ("malformed", b"   "),
    ("malformed", GOOD[:-1].encode()),
    ("malformed", GOOD.encode() + b" and more"),
    ("malformed", GOOD.encode() + GOOD.encode()),
    ("malformed", GOOD.encode() + b"," + GOOD.encode()),
    ("malformed", f"[{GOOD}]".encode()),
    ("malformed", GOOD.replace('"', "'").encode()),
    ("malformed", GOOD.replace('"seq": 1', '"seq": "1"').encode()),
    ("malformed", GOOD.replace('"seq": 1', '"seq": 1.5').encode()),
    ("malformed", GOOD.replace('"ts": 1', '"ts": 9223372036854775808').encode()),
    ("malformed", GOOD.replace('["q"]', '"q"').encode()),
    ("malformed", GOOD.replace('["q"]', '["q", null]').encode()),
    ("malformed", GOOD.replace('"attrs": {}', '"attrs": {"x": [1]}').encode()),
    ("malformed", GOOD.replace('"attrs": {}', '"attrs": {"x": true}').encode()),
    ("malformed", GOOD.replace('"attrs": {}', '"attrs": {"x": null}').encode()),
    ("malformed", GOOD.replace('"attrs": {}', '"attrs": 7').encode()),
    ("malformed", GOOD.replace('"s"', '"\xff"').encode("latin-1")),
    ("incomplete", b"null"),
    ("incomplete", b"{}"),
    ("incomplete", GOOD.replace('"source": "ais"', '"source": ""').encode()),
    *(("incomplete", GOOD.replace(f'"{name}"', '"other"').encode()) for name in BORDERS.required),
]


def test_what_is_no_record_is_kept_with_its_reason(spark: SparkSession) -> None:
    values = [value for _, value in REFUSED]
    rows = rows_of(spark, [*values, GOOD.encode()], BORDERS)
    assert [(row.reject.reason, row.reject.value) for row in rows[:-1]] == [
        (reason, None if value is None else bytearray(value)) for reason, value in REFUSED
    ]
    for row in rows[:-1]:
        kept = row.asDict()
        assert kept.pop("log") and kept.pop("day") and bytes(kept.pop("reject").key) == b"k"
        assert set(kept.values()) == {None}
    assert rows[-1].reject is None


def test_fields_that_are_not_known_are_ignored(spark: SparkSession) -> None:
    [row] = rows_of(spark, [json.dumps(border("s", 1, 1, new={"x": [1]})).encode()], BORDERS)
    assert (row.reject, row.seq) == (None, 1)


@pytest.mark.parametrize("kind", [MATCHES, BORDERS], ids=lambda kind: kind.topic)
def test_the_fields_are_those_of_the_published_schema(kind: RecordType) -> None:
    published = json.loads((files("service") / "schemas" / f"{kind.topic}.json").read_text())
    assert kind.wire.names == list(published["properties"])
    assert sorted(kind.required) == sorted(published["required"])
    causes = set(published["$defs"]) - {"id"}
    origin = {name for cause in causes for name in published["$defs"][cause]["properties"]}
    assert origin <= set(ORIGIN.names)
