"""The jars of Spark's Kafka source: which ones, and how they get onto this machine.

Idea: PySpark brings all of Spark but its Kafka source. The one coordinate below names it, in PySpark's own
version; Ivy, which is inside Spark, resolves it once into a folder of the caller's choice. From then on the
jars are plain files: a session starts without a network and without Ivy's chatter.

Run ``python -m spark_connector.jars DIR`` to fetch them ahead of time (an image, a machine without network).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from pyspark.version import __version__ as SPARK_VERSION

KAFKA_SOURCE = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{SPARK_VERSION}"

#: What the coordinate depends on and PySpark already has.
PRESENT = (
    "at.yawk.lz4:lz4-java",
    "org.apache.hadoop:hadoop-client-api",
    "org.apache.hadoop:hadoop-client-runtime",
    "org.scala-lang.modules:scala-parallel-collections_2.13",
    "org.slf4j:slf4j-api",
    "org.xerial.snappy:snappy-java",
    "com.google.code.findbugs:jsr305",
)

#: Starts a session for its side effect, the resolution, and prints the files that came of it.
_RESOLVE = """
import sys
from pyspark.sql import SparkSession
coordinate, excluded, ivy = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.jars.packages", coordinate)
    .config("spark.jars.excludes", excluded)
    .config("spark.jars.ivy", ivy)
    .getOrCreate()
)
print(spark.conf.get("spark.jars"))
spark.stop()
"""


class JarsError(Exception):
    """The jars are not here and could not be fetched; the text ends with what Ivy or Java said."""


def kafka_jars(folder: Path) -> list[Path]:
    """The jars of the Kafka source, below ``folder``; fetched first (4 files, some seconds) if not there.

    Raises JarsError without Java, or on the first call without a network.
    """
    listing = folder.absolute() / f"kafka-source-{SPARK_VERSION}.txt"
    if listing.exists():
        jars = [folder.absolute() / name for name in listing.read_text().splitlines()]
        if all(jar.exists() for jar in jars):
            return jars
    jars = _resolve(folder.absolute())
    partial = listing.with_suffix(".partial")
    partial.write_text("".join(f"{jar.relative_to(folder.absolute())}\n" for jar in jars))
    partial.replace(listing)
    return jars


def _resolve(folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    call = [sys.executable, "-c", _RESOLVE, KAFKA_SOURCE, ",".join(PRESENT), str(folder)]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise JarsError(f"could not fetch {KAFKA_SOURCE}:\n{done.stderr[-2000:]}")
    uris = done.stdout.splitlines()[-1].split(",")
    return [Path(url2pathname(urlsplit(uri).path)) for uri in uris]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m spark_connector.jars DIR")
    try:
        print(*kafka_jars(Path(sys.argv[1])), sep="\n")
    except JarsError as problem:
        sys.exit(str(problem))
