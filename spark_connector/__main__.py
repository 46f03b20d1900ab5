"""``python -m spark_connector``: bring the tables up to date, then print the visits of each query.

stdout has the tables, stderr the progress. Exit codes: 0 done; 1 the topics could not be read or the tables
not written (what was finished is kept, the next run goes on from there); 2 wrong arguments; 3 the tables are
up to date, but the topics have messages that are no records, or a border log that does not balance; 130
interrupted while reporting.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_connector import tables
from spark_connector.balance import NO_BEGINNING, violations
from spark_connector.jars import JarsError
from spark_connector.properties import PropertiesError, client_properties
from spark_connector.report import visit_report
from spark_connector.schemas import BORDERS
from spark_connector.session import SessionError, local_session
from spark_connector.visits import visits

FAILED, WRONG, INTERRUPTED = 1, 3, 130
_POLL_S = 1
_KNOWN = {
    "UnknownTopicOrPartitionException": (
        "{bootstrap} has no topics of that name; the service makes them when it first starts"
    ),
    "TimeoutException": "no Kafka broker answers at {bootstrap}",
    "No resolvable bootstrap urls": "no Kafka broker answers at {bootstrap}: unknown host",
}


def parser() -> argparse.ArgumentParser:
    """The arguments, for the command line and for those who check what is written about it."""
    made = argparse.ArgumentParser(
        prog="python -m spark_connector",
        description="Rangewatch's topics as Parquet tables, and their visits.",
    )
    made.add_argument("--bootstrap", required=True, metavar="HOST:PORT", help="Kafka's bootstrap servers")
    made.add_argument("--out", required=True, metavar="DIR", help="folder of the tables and their checkpoint")
    made.add_argument(
        "--client-properties",
        type=Path,
        metavar="FILE",
        help="settings of the Kafka client, name=value a line, as Kafka's own tools take them",
    )
    made.add_argument("--prefix", default="", help="the service's topic prefix")
    made.add_argument(
        "--continuous",
        type=_seconds,
        metavar="SECONDS",
        help="go on until interrupted, a batch every so often; without it: what is there now",
    )
    made.add_argument("--source", help="report on this source only (the tables get all)")
    made.add_argument(
        "--jars",
        type=Path,
        default=Path(".kafka/spark-jars"),
        metavar="DIR",
        help="where the Kafka jars are kept",
    )
    return made


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0.1 <= seconds <= 86_400:
        raise argparse.ArgumentTypeError("must be between 0.1 and 86400 seconds")
    return seconds


def main(arguments: Sequence[str] | None = None) -> int:
    given = parser().parse_args(arguments)
    try:
        client = client_properties(given.client_properties) if given.client_properties else {}
        spark = local_session(given.jars)
    except (SessionError, JarsError, PropertiesError) as problem:
        _say(str(problem))
        return FAILED
    try:
        with _stop_requests() as stop:
            ingest(
                spark,
                given.bootstrap,
                given.out,
                prefix=given.prefix,
                every_s=given.continuous,
                stop=stop,
                client=client,
            )
        return report(spark, given.out, given.source)
    except PySparkException as problem:
        _say(f"failed: {explained(problem, given.bootstrap)}")
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        spark.stop()


@contextmanager
def _stop_requests() -> Iterator[Event]:
    """An event that an interrupt or a termination sets. A handler that raised could do so amid a call to the
    JVM and would take the connection to it along."""
    stop = Event()
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda *_: stop.set()) for number in signals]
    try:
        yield stop
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)


def ingest(
    spark: SparkSession,
    bootstrap: str,
    out: str,
    *,
    prefix: str,
    every_s: float | None,
    stop: Event,
    client: Mapping[str, str] | None = None,
) -> None:
    """Runs the queries of both tables until they end or ``stop`` is set, and tells of every batch.

    Raises PySparkException when one of them fails; the other is stopped then.
    """
    running: list[StreamingQuery] = []
    told: set[tuple[str | None, int]] = set()
    with ExitStack() as ends:
        for kind in tables.TABLES:
            query = tables.start(spark, bootstrap, out, kind, prefix=prefix, every_s=every_s, client=client)
            ends.callback(query.stop)
            running.append(query)
        while any(query.isActive for query in running) and not stop.is_set():
            for query in running:
                query.awaitTermination(_POLL_S)
                _tell(query, told)
        if stop.is_set():
            _say("stopping")
    for query in running:
        _tell(query, told)
        if (failure := query.exception()) is not None:
            raise failure


def _tell(query: StreamingQuery, told: set[tuple[str | None, int]]) -> None:
    for progress in query.recentProgress:
        batch = (query.name, progress.batchId)
        if progress.numInputRows and batch not in told:
            told.add(batch)
            _say(f"{query.name}: batch {progress.batchId}, {progress.numInputRows:,} records")


def report(spark: SparkSession, out: str, source: str | None) -> int:
    """Prints the visits, then on stderr what is wrong with the topics; the exit code."""
    borders = tables.read(spark, out, BORDERS)
    if source is not None:
        borders = borders.where(borders["source"] == source)
    print(visit_report(visits(borders)), flush=True)
    rejected = _counts(tables.rejects(spark, out), "reason")
    faults = _counts(violations(borders), "fault")
    cut_off = faults.pop(NO_BEGINNING, 0)
    if rejected:
        _say(f"messages that are no records, kept aside: {_listed(rejected)}")
    if cut_off:
        _say(f"streams whose first records were gone from the log already: {cut_off:,}")
    _say(f"the border log does not balance: {_listed(faults)}" if faults else "the border log balances")
    return WRONG if rejected or faults else 0


def _counts(rows: DataFrame, column: str) -> dict[str, int]:
    return {row[0]: row[1] for row in rows.groupBy(column).count().collect()}


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items()))


def explained(problem: PySparkException, bootstrap: str) -> str:
    """One line: what happened, in words where it is known, and in Spark's first line otherwise."""
    text = str(problem)
    for sign, words in _KNOWN.items():
        if sign in text:
            return words.format(bootstrap=bootstrap)
    return text.partition("terminated with exception: ")[2].partition("\n")[0] or text.partition("\n")[0]


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
