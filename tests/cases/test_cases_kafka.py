"""Every conformance case over HTTP on a real broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from deploy.kafka.broker import Broker
from service.log.kafka_library import CONFLUENT_KAFKA, KAFKA_PYTHON
from tests.cases.driver import Mode, play
from tests.cases.kafka_driver import KafkaDriver
from tests.cases.table import CASES, Case

pytestmark = pytest.mark.kafka


Way = tuple[Mode, str]

#: Every source is a topic more that the group deals out anew: after so many cases a fresh group is quicker.
CASES_A_GROUP = 20


class Drivers:
    """One driver a way of delivery, replaced from time to time."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._drivers: dict[Way, KafkaDriver] = {}
        self._used: Counter[Way] = Counter()

    def get(self, way: Way) -> KafkaDriver:
        if self._used[way] % CASES_A_GROUP == 0:
            self.close(way)
            self._drivers[way] = KafkaDriver(self._broker, *way)
        self._used[way] += 1
        return self._drivers[way]

    def close(self, *ways: Way) -> None:
        for way in ways or list(self._drivers):
            driver = self._drivers.pop(way, None)
            if driver is not None:
                driver.close()


@pytest.fixture(scope="module")
def drivers(broker: Broker) -> Iterator[Drivers]:
    drivers = Drivers(broker)
    yield drivers
    drivers.close()


#: Every case with all events between two commands in one poll; those about restarts, crashes, moves and
#: transactions also one message at a time and, but for the longest, over the second library.
WAYS: list[tuple[Case, Mode, str]] = [
    *((case, "batch", KAFKA_PYTHON) for case in CASES),
    *((case, "one", KAFKA_PYTHON) for case in CASES if case.needs),
    *((case, "batch", CONFLUENT_KAFKA) for case in CASES if case.needs and "SOAK" not in case.id),
]


@pytest.mark.parametrize(("case", "mode", "client"), WAYS, ids=lambda value: getattr(value, "id", value))
def test_case(case: Case, mode: Mode, client: str, drivers: Drivers) -> None:
    driver = drivers.get((mode, client))
    try:
        play(case, driver, mode, f"{case.id}.{mode}")
    finally:
        driver.clear()
