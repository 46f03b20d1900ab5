"""Tables from a real broker: what was committed, each record once, whatever happens to the job."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_connector import tables
from spark_connector.schemas import BORDERS, MATCHES, RecordType
from spark_connector.visits import visits
from tests.spark.logs import VISIT_COLUMNS, border, folded_visits, match, random_log
from tests.spark.topics import Topics

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def ingest(spark: SparkSession, topics: Topics, out: Path, *kinds: RecordType) -> None:
    """Brings the tables up to date, as one run of a scheduled job does."""
    started = [tables.start(spark, topics.bootstrap, str(out), kind, prefix=topics.prefix) for kind in kinds]
    for query in started:
        query.awaitTermination()


def seqs(spark: SparkSession, out: Path) -> dict[str, list[int]]:
    """The ``seq`` of every row of the table of borders, by stream, in the order of the offsets."""
    found: dict[str, list[int]] = {}
    for row in tables.read(spark, str(out), BORDERS).orderBy("log.offset").collect():
        found.setdefault(row.stream_id, []).append(row.seq)
    return found


def test_committed_records_once_over_several_runs(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    assert tables.read(spark, str(tmp_path), BORDERS).count() == 0
    assert tables.rejects(spark, str(tmp_path)).count() == 0
    with topics.transaction():
        topics.send("borders", border("a", 1, 1_000, enter=["q"]), border("b", 1, 1_000, enter=["q"]))
        topics.send("matches", match("a", 1_000, ["q", "r"], late=True))
        topics.send_bytes("borders", b"{torn", key=b"a")
    with topics.transaction(abort=True):
        topics.send("borders", border("a", 2, 2_000, leave=["q"]))
        topics.send("matches", match("a", 2_000, ["q"]))
    ingest(spark, topics, tmp_path, BORDERS, MATCHES)
    assert seqs(spark, tmp_path) == {"a": [1], "b": [1]}

    with topics.transaction():
        topics.send("borders", border("a", 2, 3_000, leave=["q"], source="buoys and more/7"))
        topics.send_bytes("matches", None, key=b"a")
    ingest(spark, topics, tmp_path, BORDERS, MATCHES)
    ingest(spark, topics, tmp_path, BORDERS, MATCHES)
    assert seqs(spark, tmp_path) == {"a": [1, 2], "b": [1]}

    borders = {(row.stream_id, row.seq): row for row in tables.read(spark, str(tmp_path), BORDERS).collect()}
    assert borders["a", 2].source == "buoys and more/7"
    assert borders["a", 1].log.topic == f"{topics.prefix}borders"
    [row] = tables.read(spark, str(tmp_path), MATCHES).collect()
    assert (row.stream_id, row.queries, row.late, row.source) == ("a", ["q", "r"], True, "ais")
    kept = tables.rejects(spark, str(tmp_path)).orderBy("log.topic").collect()
    assert [(row.log.topic, row.reason, row.value) for row in kept] == [
        (f"{topics.prefix}borders", "malformed", bytearray(b"{torn")),
        (f"{topics.prefix}matches", "empty", None),
    ]


def test_an_open_transaction_is_waited_for_in_a_later_run(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    slow = topics.writer()
    slow.begin_transaction()
    topics.send("borders", border("a", 1, 1, enter=["q"]), by=slow)
    slow.flush()
    ingest(spark, topics, tmp_path, BORDERS)
    assert seqs(spark, tmp_path) == {}
    slow.commit_transaction()
    ingest(spark, topics, tmp_path, BORDERS)
    assert seqs(spark, tmp_path) == {"a": [1]}


def test_a_batch_that_was_interrupted_runs_again_without_a_trace(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """Death before the sink's commit, and between it and the checkpoint's: what each leaves is laid out as it
    would be found, then the job runs on from there."""
    sink, checkpoint = (
        tmp_path / "borders" / "_spark_metadata",
        tmp_path / "checkpoints" / "borders" / "commits",
    )

    def forget(folder: Path, batch: int) -> None:
        (folder / f"{batch}").unlink()
        (folder / f".{batch}.crc").unlink(missing_ok=True)

    with topics.transaction():
        topics.send("borders", border("a", 1, 1, enter=["q"]))
    ingest(spark, topics, tmp_path, BORDERS)
    with topics.transaction():
        topics.send("borders", border("a", 2, 2, leave=["q"]))
    ingest(spark, topics, tmp_path, BORDERS)
    files = set((tmp_path / "borders").rglob("*.parquet"))

    forget(sink, 1)
    forget(checkpoint, 1)
    ingest(spark, topics, tmp_path, BORDERS)
    assert len(set((tmp_path / "borders").rglob("*.parquet")) - files) == 1, "the batch did not run again"
    assert seqs(spark, tmp_path) == {"a": [1, 2]}

    forget(checkpoint, 1)
    with topics.transaction():
        topics.send("borders", border("a", 3, 3, enter=["q"]))
    ingest(spark, topics, tmp_path, BORDERS)
    assert seqs(spark, tmp_path) == {"a": [1, 2, 3]}


def test_a_running_job_follows_the_topic(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    query = tables.start(spark, topics.bootstrap, str(tmp_path), BORDERS, prefix=topics.prefix, every_s=0.2)
    try:
        for seq in (1, 2, 3):
            with topics.transaction():
                topics.send("borders", border("a", seq, seq, cross=["q"]))
            deadline = time.monotonic() + 60
            while seqs(spark, tmp_path) != {"a": list(range(1, seq + 1))}:
                assert time.monotonic() < deadline, f"record {seq} has not come"
    finally:
        query.stop()


def test_every_message_is_in_a_table_once_and_the_visits_are_those_of_the_log(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    records = [record for seed in range(5) for record in random_log(seed)]
    for begin in range(0, len(records), 40):
        with topics.transaction(abort=True):
            topics.send("borders", *records[begin : begin + 7])
        with topics.transaction():
            topics.send("borders", *records[begin : begin + 40])
            topics.send_bytes("borders", b"torn")
        if begin % 80 == 0:
            ingest(spark, topics, tmp_path, BORDERS)
    ingest(spark, topics, tmp_path, BORDERS)

    borders = tables.read(spark, str(tmp_path), BORDERS)
    assert borders.count() == len(records)
    kept = {(row.source, row.stream_id, row.seq, row.ts) for row in borders.collect()}
    assert kept == {(r["source"], r["stream_id"], r["seq"], r["ts"]) for r in records}
    assert tables.rejects(spark, str(tmp_path)).count() == -(-len(records) // 40)
    found = sorted((tuple(row) for row in visits(borders).select(*VISIT_COLUMNS).collect()), key=repr)
    assert found == folded_visits(records)
