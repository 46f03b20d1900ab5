"""How the suite is dealt out to workers: a file stays together, so do all that share a Spark session, and the
longest groups begin first."""

from __future__ import annotations

import os

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

# Brokers and Spark sessions of tests live for minutes: Java's second compiler would take more time than it
# saves, and without it a broker starts in half the time.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")

LONGEST = (
    "cases/test_cases_kafka.py",
    "spark/",
    "faults/test_kills.py",
    "datasets/test_sets_http.py",
    "log/test_kafka.py",
    "runtime/test_crashes.py",
    "faults/test_outage.py",
    "index/test_modes.py",
    "cases/test_cases_sqlite.py",
    "log/",
    "index/",
)


class Dealing(LoadFileScheduling):
    """By file, and all of Spark's files as one."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return "tests/spark" if file.startswith("tests/spark/") else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Dealing:
    return Dealing(config, log)


def _turn(item: pytest.Item) -> int:
    path = item.nodeid.removeprefix("tests/")
    return next((turn for turn, start in enumerate(LONGEST) if path.startswith(start)), len(LONGEST))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_turn)  # stable: order within a file stays
