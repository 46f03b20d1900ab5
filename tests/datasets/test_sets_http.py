"""Data sets with commands between the events, over HTTP on both logs, with restarts in between."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.kafka.broker import Broker
from tests.cases.kafka_driver import KafkaDriver
from tests.cases.sqlite_driver import SqliteDriver
from tests.datasets.sets import Play, compare


@pytest.mark.parametrize("name", ["weather_commands", "ais_commands", "stocks", "nab"])
def test_set_on_sqlite(name: str, tmp_path: Path) -> None:
    driver, play = SqliteDriver(tmp_path / "log.db", "batch"), Play(name, "no_border")
    try:
        play.run(driver, name, flush_every=2_003, restart_every=20_011)
        compare(name, "no_border", play.answers(driver.records()))
    finally:
        driver.close()


@pytest.mark.kafka
@pytest.mark.parametrize("name", ["weather_commands", "stocks"])
def test_set_on_kafka(name: str, broker: Broker) -> None:
    driver, play = KafkaDriver(broker, "batch"), Play(name, "no_border")
    try:
        play.run(driver, name, flush_every=2_003, restart_every=9_011)
        compare(name, "no_border", play.answers(driver.records()))
    finally:
        driver.close()
