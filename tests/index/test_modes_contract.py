"""Every index keeps the contract with every array access checked.

In a file of its own so that it runs beside ``test_modes``: checked kernels are not cached, and it compiles
those of all indexes.
"""

from __future__ import annotations

from tests.index.modes import suite_passes


def test_contract_with_checked_bounds() -> None:
    suite_passes("NUMBA_BOUNDSCHECK", ["test_contract.py"])
