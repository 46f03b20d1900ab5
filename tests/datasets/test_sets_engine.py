"""The data sets through the engine: totals, border lists and digests, with cuts and restarts in between."""

from __future__ import annotations

import pytest

from tests.cases.engine_driver import EngineDriver
from tests.datasets.sets import SETS, Play, compare, policies


@pytest.mark.parametrize(("name", "late"), [(name, late) for name in SETS for late in policies(name)])
def test_set(name: str, late: str) -> None:
    driver, play = EngineDriver(), Play(name, late)
    play.run(driver, name, flush_every=997, restart_every=10_007)
    compare(name, late, play.answers(driver.records()))
