"""The balance law, checked from the border log alone.

Within a stream, ``seq`` starts at 1 and grows by one a record, so a record that was lost or written twice
shows; ``seq`` 1 anew is a new life, which needs an empty membership before it (the stream was removed) or the
reason ``reset``. Within a life, the enters and leaves of a query alternate and begin with an enter.

Two things no reader of the log can see: a loss at its very end, and whether a query asks for both kinds of
border. A query that never leaves, or never enters, anywhere in the log is taken to ask for one kind and is
not held to alternation; ``seq`` covers its records all the same.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark_connector.fold import IN_ORDER, RESET, STREAM, records, steps

NO_BEGINNING = "no_beginning"


def violations(borders: DataFrame) -> DataFrame:
    """The places where a table of borders breaks the law; no rows: it balances.

    Columns: ``tenant``, ``source``, ``stream_id``, ``query`` (null for faults of ``seq``), ``seq``, ``log``
    (of the record at fault) and ``fault``:

    - ``no_beginning``: the stream's first record here is not its first; older ones were gone from the log;
    - ``gap``: records before this one are missing;
    - ``backwards``: this record was there already, or the first of a new life is missing;
    - ``held``: the stream starts anew here, but the query was still inside;
    - ``entered_twice``, ``left_outside``: the query was inside, or was not.
    """
    spanned = records(borders, begins=f"{RESET} or seq = 1")
    return _faults_of_seq(spanned).unionByName(_faults_of_queries(spanned))


def _faults_of_seq(spanned: DataFrame) -> DataFrame:
    before = F.lag("seq").over(Window.partitionBy(*STREAM).orderBy(*IN_ORDER))
    seq, reset = F.col("seq"), F.expr(RESET)
    fault = (
        F.when((seq == 1) | (seq == before + 1) & ~reset, None)
        .when(before.isNull() & ~reset, NO_BEGINNING)
        .when((seq > before) | reset, "gap")
        .otherwise("backwards")
    )
    faults = spanned.withColumn("fault", fault).where("fault is not null")
    return faults.select(*STREAM, F.lit(None).cast("string").alias("query"), "seq", "log", "fault")


def _faults_of_queries(spanned: DataFrame) -> DataFrame:
    all_steps = steps(spanned)
    query = ("tenant", "source", "query")
    two_sided = all_steps.groupBy(*query).agg(
        F.bool_or("entered").alias("enters"), F.every("entered").alias("only")
    )
    checked = all_steps.join(two_sided.where("enters and not only").select(*query), [*query], "left_semi")
    entered, inside = F.col("entered"), F.coalesce(F.col("before.entered"), F.lit(False))
    held = entered & F.col("after").isNull() & (F.col("next_begin.reason") != "reset")
    return checked.select(
        *STREAM,
        "query",
        F.explode(
            F.array_compact(
                F.array(
                    _at("seq", "log", "entered_twice", entered & inside),
                    _at("seq", "log", "left_outside", ~entered & ~inside),
                    _at("next_begin.seq", "next_begin.log", "held", held),
                )
            )
        ).alias("found"),
    ).select(*STREAM, "query", "found.*")


def _at(seq: str, log: str, fault: str, when: Column) -> Column:
    found = F.struct(F.col(seq).alias("seq"), F.col(log).alias("log"), F.lit(fault).alias("fault"))
    return F.when(when, found)
