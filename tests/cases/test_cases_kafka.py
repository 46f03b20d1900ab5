"""Every conformance case over HTTP on a real broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from deploy.kafka.broker import Broker
from tests.cases.driver import Mode, play
from tests.cases.kafka_driver import KafkaDriver
from tests.cases.table import CASES, Case

pytestmark = pytest.mark.kafka


#: Every source is a topic more that the group deals out anew: after so many cases a fresh group is quicker.
CASES_A_GROUP = 20


class Drivers:
    """One driver a way of delivery, replaced from time to time."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._drivers: dict[Mode, KafkaDriver] = {}
        self._used: Counter[Mode] = Counter()

    def get(self, mode: Mode) -> KafkaDriver:
        if self._used[mode] % CASES_A_GROUP == 0:
            self.close(mode)
            self._drivers[mode] = KafkaDriver(self._broker, mode)
        self._used[mode] += 1
        return self._drivers[mode]

    def close(self, *modes: Mode) -> None:
        for mode in modes or list(self._drivers):
            driver = self._drivers.pop(mode, None)
            if driver is not None:
                driver.close()


@pytest.fixture(scope="module")
def drivers(broker: Broker) -> Iterator[Drivers]:
    drivers = Drivers(broker)
    yield drivers
    drivers.close()


#: What differs from the embedded log, where every case is played one message at a time too.
OWN = {"crash", "rebalance", "offsets", "transactions"}
#: Every case with all events between two commands in one poll; some also one message at a time, but not the
#: long random ones.
WAYS: list[tuple[Case, Mode]] = [
    *((case, "batch") for case in CASES),
    *((case, "one") for case in CASES if not OWN.isdisjoint(case.needs) and "SOAK" not in case.id),
]


@pytest.mark.parametrize(("case", "mode"), WAYS, ids=lambda value: getattr(value, "id", value))
def test_case(case: Case, mode: Mode, drivers: Drivers) -> None:
    driver = drivers.get(mode)
    try:
        play(case, driver, mode, f"{case.id}.{mode}")
    finally:
        driver.clear()
