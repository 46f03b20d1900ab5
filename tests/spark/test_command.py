"""``python -m spark_connector``: what it prints where, and how it ends. One run is a process of its own; the
others call the same functions with the session that is there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_connector import tables
from spark_connector.__main__ import explained, ingest, report
from spark_connector.schemas import BORDERS
from tests.spark.conftest import JARS
from tests.spark.logs import border
from tests.spark.topics import Topics

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

TIMEOUT_S = 120
NO_BROKER = "127.0.0.1:1"


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "spark_connector", "--jars", str(JARS), *arguments]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, timeout=TIMEOUT_S, env=os.environ | environment
    )


@pytest.fixture(scope="module", autouse=True)
def in_vain(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StreamingQuery]:
    """A query that looks for a broker where none is; it takes its time to find out, so it begins first."""
    query = tables.start(spark, NO_BROKER, str(tmp_path_factory.mktemp("in-vain")), BORDERS)
    yield query
    query.stop()


def test_a_whole_run_until_interrupted(topics: Topics, tmp_path: Path) -> None:
    with topics.transaction():
        topics.send("borders", border("v1", 1, 1_000, enter=["fast"]), border("v1", 3, 4_000, leave=["fast"]))
        topics.send("borders", border("v2", 7, 1_000, enter=["fast"]))
        topics.send_bytes("borders", b"torn")
    arguments = ("--bootstrap", topics.bootstrap, "--prefix", topics.prefix, "--out", str(tmp_path))
    job = subprocess.Popen(
        command(*arguments, "--continuous", "0.5"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert job.stderr is not None
    try:
        while "borders: batch 0" not in (line := job.stderr.readline()):
            assert line, "the job has ended"
        with topics.transaction():
            topics.send("borders", border("v1", 4, 9_000, enter=["fast"]))
        while "borders: batch 1, 1 records" not in (line := job.stderr.readline()):
            assert line, "the job has ended"
        job.send_signal(signal.SIGINT)
        stdout, stderr = job.communicate(timeout=TIMEOUT_S)
    finally:
        job.kill()
        job.wait()
    assert job.returncode == 3, stderr
    assert stdout.splitlines()[1] == "ais/fast  3       2         3s     3s       1970-01-01 00:00:09"
    assert stderr.splitlines() == [
        "stopping",
        "messages that are no records, kept aside: 1 malformed",
        "streams whose first records were gone from the log already: 1",
        "the border log does not balance: 1 gap",
    ]


def test_what_is_printed(
    spark: SparkSession, topics: Topics, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with topics.transaction():
        topics.send(
            "borders",
            border("v1", 1, 1_000, enter=["fast"]),
            border("v1", 2, 4_000, leave=["fast"], enter=["slow"]),
            border("b1", 1, 4_000, enter=["calm"], source="buoys"),
        )
    ingest(spark, topics.bootstrap, str(tmp_path), prefix=topics.prefix, every_s=None, stop=Event())
    assert report(spark, str(tmp_path), source="ais") == 0
    printed = capsys.readouterr()
    assert printed.out == (
        "query     visits  open now  total  longest  last entered\n"
        "ais/fast  1       0         3s     3s       1970-01-01 00:00:01\n"
        "ais/slow  1       1                         1970-01-01 00:00:04\n"
        "\n"
        "last visits  stream  entered              left                 for  why it ended\n"
        "ais/slow     v1      1970-01-01 00:00:04  still in\n"
        "ais/fast     v1      1970-01-01 00:00:01  1970-01-01 00:00:04  3s   event\n"
    )
    assert printed.err.splitlines() == [
        f"{topics.prefix}borders: batch 0, 3 records",
        "the border log balances",
    ]


def test_topics_that_are_not_there_are_named(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    with pytest.raises(PySparkException) as failure:
        ingest(spark, topics.bootstrap, str(tmp_path), prefix="nowhere.", every_s=None, stop=Event())
    assert explained(failure.value, topics.bootstrap) == (
        f"{topics.bootstrap} has no topics of that name; the service makes them when it first starts"
    )
    assert {query.name for query in spark.streams.active} <= {"borders"}, "only the one that waits in vain"


def test_without_java_it_says_so(tmp_path: Path) -> None:
    none = run("--bootstrap", "x:1", "--out", str(tmp_path), PATH="/nowhere", JAVA_HOME="/nowhere")
    assert (none.returncode, none.stdout) == (1, "")
    assert "it needs Java 17 or newer" in none.stderr


@pytest.mark.parametrize("continuous", ["0", "nan", "soon"])
def test_wrong_arguments_exit_with_2(tmp_path: Path, continuous: str) -> None:
    wrong = run("--bootstrap", "x:1", "--out", str(tmp_path), "--continuous", continuous)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "--continuous" in wrong.stderr


def test_a_broker_that_is_away_is_named(in_vain: StreamingQuery) -> None:
    with pytest.raises(StreamingQueryException) as failure:
        in_vain.awaitTermination(TIMEOUT_S)
    assert explained(failure.value, NO_BROKER) == f"no Kafka broker answers at {NO_BROKER}"
