"""The adapters on the real thing: a file, and a broker by either client library."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from service.log.kafka_library import CONFLUENT_KAFKA, KAFKA_PYTHON
from service.log.port import Log
from tests.broker import broker  # noqa: F401 (a fixture)
from tests.log.sites import KafkaSite, Site, SqliteSite


@pytest.fixture(
    params=[
        "sqlite",
        *(pytest.param(name, marks=pytest.mark.kafka) for name in (KAFKA_PYTHON, CONFLUENT_KAFKA)),
    ]
)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    if request.param == "sqlite":
        return SqliteSite(tmp_path / "log.db")
    return KafkaSite(request.getfixturevalue("broker").address, client=request.param)


@pytest.fixture
def make(site: Site) -> Iterator[Callable[[], Log]]:
    """Makes logs on the site; all of them are closed at the end."""
    made: list[Log] = []

    def one() -> Log:
        made.append(site.log())
        return made[-1]

    yield one
    for log in made:
        log.close()


@pytest.fixture
def log(make: Callable[[], Log]) -> Log:
    """A log that is not opened yet."""
    return make()
