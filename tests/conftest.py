"""How the suite is dealt out to workers: a file stays together, so do all that share a Spark session, and the
longest groups begin first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
LONGEST = ("cases/test_cases_kafka.py", "spark", "cases/test_cases_sqlite.py", "log", "index")


def _group(item: pytest.Item) -> str:
    path = item.path.relative_to(HERE)
    return path.parts[0] if path.parts[0] == "spark" else path.as_posix()


def _turn(item: pytest.Item) -> int:
    path = item.path.relative_to(HERE).as_posix()
    return next((turn for turn, start in enumerate(LONGEST) if path.startswith(start)), len(LONGEST))


@pytest.hookimpl(wrapper=True)  # around all others: xdist reads the groups in a hook that is tried first
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    items.sort(key=_turn)  # stable: order within a file stays
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))
    yield
