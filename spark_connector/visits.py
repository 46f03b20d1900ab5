"""Visits: each enter of a stream into a query, with the leave that ended it.

A visit ends with the query's next leave in the stream, whatever caused it, or with a ``reset`` of the stream,
which empties its membership without naming anyone. It is open when neither has come. Where an enter is
followed by another enter, the end of the first is not known: ``leave_ts`` is null and it is not open; that is
what a query looks like whose ``on`` lacks ``leave``, or a log that has lost records (``balance`` tells).
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_connector.fold import RESET, STREAM, records, steps


def visits(borders: DataFrame) -> DataFrame:
    """One row an enter, from a table of borders (all of it: history that is cut off looks like loss).

    Columns: ``tenant``, ``source``, ``stream_id``, ``query``; ``enter_ts``, ``leave_ts``, ``duration_ms``
    (ms; below zero only where a source processes late events); ``open``; ``enter_reason``, ``leave_reason``;
    ``log``, the place of the enter's record, by which it can be joined to the table of borders for the rest.
    """
    ended_by_leave = ~F.col("after.entered")
    ended_by_reset = F.col("after").isNull() & F.col("next_begin").isNotNull()
    end = F.when(ended_by_leave, F.struct("after.ts", "after.reason")).when(
        ended_by_reset, F.struct("next_begin.ts", "next_begin.reason")
    )
    return (
        steps(records(borders, begins=RESET))
        .where("entered")
        .withColumn("end", end)
        .select(
            *STREAM,
            "query",
            F.col("ts").alias("enter_ts"),
            F.col("end.ts").alias("leave_ts"),
            (F.col("end.ts") - F.col("ts")).alias("duration_ms"),
            (F.col("after").isNull() & F.col("next_begin").isNull()).alias("open"),
            F.col("reason").alias("enter_reason"),
            F.col("end.reason").alias("leave_reason"),
            "log",
        )
    )
