"""The border log as single steps in order: what ``visits`` and ``balance`` are both made of.

Idea: a stream's records lie in one partition of the topic, so their offsets order them. A record is taken
apart into steps, its leaves before its enters, and a stream's steps are cut into *spans* where its membership
starts from nothing again. Within a span a query's steps alternate, so one ``lead`` finds the leave of an
enter. (A topic that was given more partitions moves some streams; order then ends at the move.)

Plain windows: no state, no order of the input assumed. O(n log n) in the records of a stream.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

STREAM = ("tenant", "source", "stream_id")
IN_ORDER = ("log.partition", "log.offset")

RESET = "reason = 'reset'"
"""SQL: the record says that the history of its stream is gone and that its membership is empty."""


def records(borders: DataFrame, begins: str) -> DataFrame:
    """Border records with their span: ``span``, and ``next_begin``, the first record of the next one.

    ``begins`` is SQL, true of a record that begins a span. ``next_begin`` is a struct of ``log``, ``seq``,
    ``ts`` and ``reason``, null in the last span.
    """
    stream = Window.partitionBy(*STREAM)
    forward = stream.orderBy(*IN_ORDER)
    backward = stream.orderBy(*(F.col(name).desc() for name in IN_ORDER))
    begin = F.when(F.expr(begins), F.struct("log", "seq", "ts", "reason"))
    # Looking ahead is looking back in a descending window: a frame that grows, not one rebuilt for each row.
    later = backward.rowsBetween(Window.unboundedPreceding, -1)
    return borders.withColumn("span", F.sum(F.expr(begins).cast("int")).over(forward)).withColumn(
        "next_begin", F.last(begin, ignorenulls=True).over(later)
    )


def steps(spanned: DataFrame) -> DataFrame:
    """The records of ``records``, one row a query that left or entered.

    Adds ``query``, ``entered`` (false: left), ``place`` (order within the record), and ``before`` and
    ``after``: the query's neighbouring steps in the span (structs of ``entered``, ``ts``, ``reason``,
    ``log``), null at its ends.
    """

    def step(ids: str, entered: bool) -> Column:
        return F.transform(ids, lambda id: F.struct(id.alias("query"), F.lit(entered).alias("entered")))

    apart = F.posexplode(F.concat(step("leave", False), step("enter", True))).alias("place", "step")
    single = spanned.select(*STREAM, "log", "seq", "ts", "reason", "span", "next_begin", apart).select(
        "*", "step.*"
    )
    own = Window.partitionBy(*STREAM, "query", "span").orderBy(*IN_ORDER, "place")
    shown = F.struct("entered", "ts", "reason", "log")
    return (
        single.drop("step")
        .withColumn("before", F.lag(shown).over(own))
        .withColumn("after", F.lead(shown).over(own))
    )
