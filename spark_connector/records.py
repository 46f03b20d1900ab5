"""Kafka messages to typed rows; nothing is dropped on the way.

Idea: every message becomes exactly one row. What is a record of its type has ``reject`` null; what is not
keeps its bytes and a reason in ``reject``, and every field of the record is null. The reasons:

- ``empty``: no value (a tombstone, zero bytes);
- ``version``: a record of a schema version that this code does not know;
- ``malformed``: not UTF-8, not one JSON object and nothing after it, or a field of the wrong type;
- ``incomplete``: a field that every record has is missing.

Text fields take any JSON scalar as its text. Fields that are not known are ignored: the service may add some
within a schema version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_connector.schemas import LOG, REJECT, SCHEMA_VERSION, RecordType

_MS_A_DAY = 86_400_000
_NO_ATTRS = "array<struct<name: string, value: variant, type: string>>"

#: Records taken from a topic in one batch at most, so that catching up has bounded batches.
MAX_BATCH_RECORDS = 1_000_000


def messages(
    spark: SparkSession, bootstrap: str, topic: str, client: Mapping[str, str] | None = None
) -> DataFrame:
    """The stream of a topic's committed messages, from the first that the log still has. ``client`` are
    settings of the Kafka client under its own names (security, mostly).

    Starting the query fails when messages that were not read yet are gone from the log: a table that lacks
    records must not look complete.
    """
    return (
        spark.readStream.format("kafka")
        .options(**{f"kafka.{name}": value for name, value in (client or {}).items()})
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.isolation.level", "read_committed")
        .option("kafka.request.timeout.ms", "5000")
        .option("kafka.default.api.timeout.ms", "10000")
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("failOnDataLoss", "true")
        .option("maxOffsetsPerTrigger", MAX_BATCH_RECORDS)
        .load()
    )


def decode(kafka: DataFrame, kind: RecordType) -> DataFrame:
    """Rows of ``kind.stored`` from the columns of Spark's Kafka source, one a message."""
    log_ts = F.unix_millis("timestamp")
    parsed = kafka.select(
        "key",
        "value",
        F.struct("topic", "partition", "offset", log_ts.alias("ts")).cast(LOG).alias("log"),
        F.date_from_unix_date(F.floor(log_ts / _MS_A_DAY).cast("int")).alias("day"),
        F.from_json(
            # In an object of our own, what follows the record is a syntax error; alone it would be ignored.
            F.concat(F.lit('{"record":'), F.col("value").cast("string"), F.lit("}")),
            f"record {kind.wire.simpleString()}, broken string",
            {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "broken", "allowSingleQuotes": "false"},
        ).alias("json"),
    )
    attrs = _told_apart("json.record.attrs") if "attrs" in kind.wire.names else F.lit(None).cast(_NO_ATTRS)
    judged = parsed.withColumn("attrs", attrs).withColumn("reason", _reject_reason(kind))
    reject = F.struct("reason", "key", "value").cast(REJECT)
    kept = judged.select(
        F.when(F.col("reason").isNull(), F.col("json.record")).alias("record"),
        "attrs",
        "log",
        "day",
        F.when(F.col("reason").isNotNull(), reject).alias("reject"),
    )
    return kept.select(*(_field(name) for name in kind.wire.names), "log", "day", "reject")


def _reject_reason(kind: RecordType) -> Column:
    """Null for a good record; the first reason that applies otherwise."""

    def has(test: Column) -> Column:
        return F.coalesce(test, F.lit(False))

    record = F.col("json.record")
    missing = [record[name].isNull() for name in kind.required]
    # A source is a folder of the table, and a folder cannot have an empty name.
    missing.append(record["source"] == "")
    lists = [name for name in ("queries", "leave", "enter", "cross") if name in kind.wire.names]
    holes = [F.exists(record[name], lambda id: id.isNull()) for name in lists]
    odd_attr = F.exists("attrs", lambda attr: ~(_is_number(attr) | _is_text(attr)))
    malformed = [F.col("json.broken").isNotNull(), ~F.is_valid_utf8(F.col("value").cast("string"))]
    return (
        F.when(F.coalesce(F.length("value"), F.lit(0)) == 0, "empty")
        .when(has(record["v"] != SCHEMA_VERSION), "version")
        .when(_any(has(test) for test in [*malformed, *holes, odd_attr]), "malformed")
        .when(_any(has(test) for test in missing), "incomplete")
    )


def _any(tests: Iterable[Column]) -> Column:
    return reduce(or_, tests)


def _field(name: str) -> Column:
    value = F.col("record")[name]
    if name == "late":
        value = F.when(F.col("record").isNotNull(), F.coalesce(value, F.lit(False)))
    elif name == "attrs":
        numbers, texts = _of_type(_is_number, "double"), _of_type(_is_text, "string")
        value = F.when(F.col("record").isNotNull(), F.struct(numbers.alias("numbers"), texts.alias("texts")))
    return value.alias(name)


def _told_apart(attrs: str) -> Column:
    """The attributes as structs of ``name``, ``value`` (a variant) and ``type`` (Spark's name of it)."""
    return F.transform(
        F.map_entries(attrs),
        lambda entry: F.struct(
            entry["key"].alias("name"),
            entry["value"].alias("value"),
            F.schema_of_variant(entry["value"]).alias("type"),
        ),
    )


def _is_text(attr: Column) -> Column:
    return attr["type"] == "STRING"


def _is_number(attr: Column) -> Column:
    return attr["type"].isin("BIGINT", "DOUBLE") | attr["type"].startswith("DECIMAL")


def _of_type(is_type: Callable[[Column], Column], name: str) -> Column:
    return F.map_from_entries(
        F.transform(
            F.filter("attrs", is_type),
            lambda attr: F.struct(attr["name"], F.variant_get(attr["value"], "$", name)),
        )
    )
