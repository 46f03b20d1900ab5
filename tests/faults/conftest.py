"""Faults are tried on the session's broker, or on one of their own where it is the broker that fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from service.log.kafka_library import KAFKA_PYTHON
from tests.broker import broker  # noqa: F401 (a fixture)
from tests.faults.alone import Alone, LosingFile, LosingTopics


@pytest.fixture(params=["sqlite", pytest.param("kafka", marks=pytest.mark.kafka)])
def alone(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Alone]:
    if request.param == "sqlite":
        one = Alone(LosingFile(tmp_path / "log.db"))
    else:
        one = Alone(LosingTopics(request.getfixturevalue("broker").address, client=KAFKA_PYTHON))
    yield one
    one.close()
