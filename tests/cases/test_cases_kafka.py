"""Every conformance case over HTTP on a real broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deploy.kafka.broker import Broker
from tests.cases.driver import Mode, play
from tests.cases.kafka_driver import KafkaDriver
from tests.cases.table import CASES, Case

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def drivers(broker: Broker) -> Iterator[dict[Mode, KafkaDriver]]:
    drivers: dict[Mode, KafkaDriver] = {mode: KafkaDriver(broker, mode) for mode in ("batch", "one")}
    yield drivers
    for driver in drivers.values():
        driver.close()


#: Every case with all events between two commands in one poll; those about restarts, crashes, moves and
#: transactions also one message at a time.
WAYS: list[tuple[Case, Mode]] = [
    *((case, "batch") for case in CASES),
    *((case, "one") for case in CASES if case.needs),
]


@pytest.mark.parametrize(("case", "mode"), WAYS, ids=lambda value: getattr(value, "id", value))
def test_case(case: Case, mode: Mode, drivers: dict[Mode, KafkaDriver]) -> None:
    driver = drivers[mode]
    try:
        play(case, driver, mode, f"{case.id}.{mode}")
    finally:
        driver.clear()
