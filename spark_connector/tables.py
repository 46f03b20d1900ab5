"""The tables ``matches`` and ``borders``: Parquet files below one folder, each record in them once.

Idea: one streaming query a topic, from Kafka to Spark's file sink. The checkpoint says which offsets belong
to which batch before a batch runs; the sink's own log, ``_spark_metadata`` beside the files, names the files
of each batch that is done. A batch that was interrupted runs again over the same offsets, and of its files
only those of the finished attempt are named: every record exactly once, whenever the job is killed.

So read the tables through ``read`` and ``rejects``, or through Spark, which follows ``_spark_metadata``. A
reader that lists the folder sees the files of interrupted attempts too.

Layout: ``OUT/<table>/source=<source>/day=<UTC day on which the log took the record>/*.parquet``, and
``OUT/checkpoints/<table>``; the two belong together, and a checkpoint belongs to one topic of one cluster.
The day is the log's, not the event's: a replay of ten years writes to one folder, not to 3,650, and ``ts``
has its minimum and maximum in every file. Messages that are no records lie in the folder of no source.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_connector.records import decode, messages
from spark_connector.schemas import BORDERS, MATCHES, RecordType

TABLES = (MATCHES, BORDERS)


def start(
    spark: SparkSession,
    bootstrap: str,
    out: str,
    kind: RecordType,
    *,
    prefix: str = "",
    every_s: float | None = None,
    client: Mapping[str, str] | None = None,
) -> StreamingQuery:
    """Starts to bring the table up to date from the topic ``prefix + kind.topic``.

    ``every_s`` None: takes what is committed now and stops by itself. Otherwise a batch every so many
    seconds until the query is stopped. Any folder that Spark can write to will do as ``out``. The query bears
    the topic's name. ``client``: see ``records.messages``.
    """
    topic = prefix + kind.topic
    writer = (
        decode(messages(spark, bootstrap, topic, client), kind)
        .writeStream.queryName(topic)
        .format("parquet")
        .partitionBy("source", "day")
        .option("path", f"{out}/{kind.topic}")
        .option("checkpointLocation", f"{out}/checkpoints/{kind.topic}")
    )
    if every_s is None:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{round(every_s * 1000)} milliseconds")
    return writer.start()


def read(spark: SparkSession, out: str, kind: RecordType) -> DataFrame:
    """The table's records, columns as in ``kind.row``; none before the first batch has been written."""
    return _stored(spark, out, kind).where("source is not null").select(kind.row.names)


def rejects(spark: SparkSession, out: str) -> DataFrame:
    """The messages of all topics that are no records (``schemas.REJECTS``); see ``records``."""
    kept = (
        _stored(spark, out, kind).where("source is null").select("reject.*", "log", "day") for kind in TABLES
    )
    return reduce(DataFrame.unionAll, kept)


def _stored(spark: SparkSession, out: str, kind: RecordType) -> DataFrame:
    try:
        return spark.read.schema(kind.stored).parquet(f"{out}/{kind.topic}")
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        return spark.createDataFrame([], kind.stored)
