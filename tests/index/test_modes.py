"""The suite of the indexes without the JIT, and with every array access checked, each in a process of its
own, as kernels are compiled when they are imported. ``make soak`` plays the contract in both ways."""

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
    "test_border_lists.py",
    "test_crossings.py",
    "test_fresh.py",
)


#: Of many boxes, too many for plain Python, and full of unsigned indexes. Of the others numpy checks every
#: access, without the JIT.
LARGE = ("test_kd.py", "test_windows.py", "test_bitmaps.py", "test_default.py", "test_fresh.py")


@pytest.mark.parametrize(("variable", "files"), [("NUMBA_DISABLE_JIT", FILES), ("NUMBA_BOUNDSCHECK", LARGE)])
def test_suite_with(variable: str, files: tuple[str, ...]) -> None:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-n", "0"]
        + [f"tests/index/{name}" for name in files],
        cwd=ROOT,
        env=inherited | {variable: "1", "RANGEWATCH_INDEX_SUITE": "small"},
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
