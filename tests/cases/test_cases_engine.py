"""Every conformance case, the engine driven directly, in three ways of delivery."""

from __future__ import annotations

import pytest

from tests.cases.driver import Mode, play
from tests.cases.engine_driver import EngineDriver
from tests.cases.table import CASES, Case


@pytest.mark.parametrize("mode", ["one", "batch", "restart"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_case(case: Case, mode: Mode) -> None:
    play(case, EngineDriver(), mode, "s", most_restarts=100)
