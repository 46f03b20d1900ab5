"""The suite of the indexes without the JIT, and with every array access checked, each in its own process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = (
    "test_kernel.py",
    "test_parts.py",
    "test_brute.py",
    "test_cei_encoding.py",
    "test_cei_grid.py",
    "test_vci_encoding.py",
    "test_vci_kernels.py",
    "test_vci_structures.py",
    "test_vcr.py",
    "test_vcr_encoding.py",
    "test_spatial_join.py",
    "test_bmq.py",
    "test_bmq_monitor.py",
    "test_baselines_intervals.py",
    "test_baselines_boxes.py",
    "test_baselines_borders.py",
    "test_contract.py",
    "test_border_lists.py",
    "test_crossings.py",
    "test_fresh.py",
)


#: Of many boxes, too many for plain Python, and full of unsigned indexes: what they are about is there too in
#: the contract suite. Of the others numpy checks every access, without the JIT.
LARGE = ("test_kd.py", "test_windows.py", "test_bitmaps.py", "test_default.py", "test_fresh.py")


#: Threads that take turns in plain Python tell nothing of kernels that run beside each other.
WITHOUT_JIT = (*FILES, "-k", "not answers_are_of_one_state")


@pytest.mark.parametrize(
    ("variable", "chosen"), [("NUMBA_DISABLE_JIT", WITHOUT_JIT), ("NUMBA_BOUNDSCHECK", LARGE)]
)
def test_suite_with(variable: str, chosen: tuple[str, ...]) -> None:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment = inherited | {variable: "1", "RANGEWATCH_INDEX_SUITE": "small"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-n", "0"]
    run = subprocess.run(
        [*command, *(f"tests/index/{name}" if name.endswith(".py") else name for name in chosen)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
