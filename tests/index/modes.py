"""Runs tests of the indexes, the small suite, under a variable that changes how kernels run: in a process of
their own, as kernels are compiled when they are imported."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def suite_passes(variable: str, chosen: Sequence[str]) -> None:
    """``chosen``: files of this directory, and options of pytest."""
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
