"""Every conformance case over HTTP on the embedded log, in three ways of delivery."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cases.driver import Mode, play
from tests.cases.sqlite_driver import SqliteDriver
from tests.cases.table import CASES, Case


@pytest.fixture(scope="module")
def driver(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> SqliteDriver:
    driver = SqliteDriver(tmp_path_factory.mktemp("log") / "log.db", request.param)
    request.addfinalizer(driver.close)
    return driver


#: A case of more steps is a random walk, which the engine's own driver goes one message at a time too.
SHORT = 100
WAYS: list[tuple[Mode, Case]] = [
    *(("one", case) for case in CASES if len(case.steps) <= SHORT),
    *(("batch", case) for case in CASES),
]


@pytest.mark.parametrize(
    ("driver", "case"), WAYS, indirect=["driver"], ids=lambda value: getattr(value, "id", value)
)
def test_case(case: Case, driver: SqliteDriver) -> None:
    prefix = f"{case.id}.{driver.mode}"
    try:
        play(case, driver, driver.mode, prefix)
    finally:
        driver.clear()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_case_with_restarts(case: Case, tmp_path: Path) -> None:
    driver = SqliteDriver(tmp_path / "log.db", "restart")
    try:
        play(case, driver, "restart", "s", most_restarts=20)
    finally:
        driver.close()
