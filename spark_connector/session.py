"""A Spark session that is quiet and has the Kafka source.

For the command line and tests. A job that has a session of its own (a cluster, a notebook) needs only the
jars: ``--packages`` with ``jars.KAFKA_SOURCE``; nothing else in this package depends on how the session was
made.
"""

from __future__ import annotations

import os
from pathlib import Path

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from spark_connector.jars import kafka_jars

_LOGGING = Path(__file__).with_name("log4j2.properties")


class SessionError(Exception):
    """Spark did not start; the text says what it needs."""


def local_session(jars: Path) -> SparkSession:
    """A session on all cores of this machine, with the jars that ``jars.kafka_jars`` keeps below ``jars``.

    Raises SessionError without Java, JarsError when the jars are missing and cannot be fetched.
    """
    cores = os.cpu_count() or 1
    builder = (
        SparkSession.builder.appName("rangewatch")
        .master(f"local[{cores}]")
        # Spark's own 200 is for a cluster: on one machine most of the time would go into empty tasks.
        .config("spark.sql.shuffle.partitions", str(2 * cores))
        .config("spark.jars", ",".join(str(jar) for jar in kafka_jars(jars)))
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
    )
    try:
        return builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise SessionError(f"Spark did not start: it needs Java 17 or newer ({error})") from error
