"""The benchmark still runs, and its peers still agree."""

from __future__ import annotations

import pytest

from tests.bench.bench_index import SMOKE, Workload, run


@pytest.mark.parametrize("load", SMOKE)
def test_smoke(load: Workload, capsys: pytest.CaptureFixture[str]) -> None:
    run(load, rounds=1)
    assert "brute" in capsys.readouterr().out
