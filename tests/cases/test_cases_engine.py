"""Every conformance case, the engine driven directly, in three ways of delivery."""

from __future__ import annotations

import pytest

from tests.cases.driver import Mode, play
from tests.cases.engine_driver import EngineDriver
from tests.cases.table import ALL, CASES, LATER, WAITING, Case


@pytest.mark.parametrize("mode", ["one", "batch", "restart"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_case(case: Case, mode: Mode) -> None:
    play(case, EngineDriver(), mode, "s")


def test_only_later_features_wait(record_property: pytest.RecordProperty) -> None:
    assert len(CASES) + len(WAITING) == len(ALL)
    assert all(set(features) <= set(LATER) and features for features in WAITING.values())
    record_property("cases_waiting", len(WAITING))
    print(f"{len(CASES)} of {len(ALL)} cases run; {len(WAITING)} wait for later features:")
    for id, features in sorted(WAITING.items()):
        print(f"  {id}: {', '.join(features)}")
