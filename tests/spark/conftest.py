"""One Spark session for all tests of this folder, and topics of their own for those that need a broker."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from deploy.kafka.broker import Broker
from spark_connector.session import local_session
from tests.broker import broker  # noqa: F401 (a fixture)
from tests.spark.topics import Topics

JARS = Path(__file__).resolve().parents[2] / ".kafka" / "spark-jars"

#: The tests are many small jobs: compiling them well takes longer than running them.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

_number = itertools.count()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_SUBMIT_OPTS", JAVA_OPTIONS)
        session = local_session(JARS)
        yield session
        session.stop()


@pytest.fixture
def topics(broker: Broker) -> Iterator[Topics]:  # noqa: F811
    """The output topics under a prefix that no other test uses, with a transactional producer."""
    made = Topics(broker.address, prefix=f"spark-{os.getpid()}-{next(_number)}.")
    yield made
    made.close()
