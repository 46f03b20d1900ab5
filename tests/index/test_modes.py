"""The suite of the indexes without the JIT, and with every array access checked, each in its own process.
``test_modes_contract`` has the contract with checked accesses."""

from __future__ import annotations

import pytest

from tests.index.modes import suite_passes

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
    suite_passes(variable, chosen)
