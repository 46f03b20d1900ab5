"""The histories that the suite plays are worth something: they find each fault that is planted."""

from __future__ import annotations

import pytest

from tests.engine.faults import FAULTS
from tests.engine.planting import Fault, finders, finds, plant


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.what)
def test_the_histories_of_the_suite_find(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        plant(fault, patch)
        finder = next(finders(fault), None)
    assert finder is not None
    assert not finds(*finder), "nor does the engine as it is agree with its oracle"
