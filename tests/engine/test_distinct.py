"""Distinct numbers are those of numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.distinct import distinct


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@given(numbers=st.lists(st.integers(-3, 3) | st.integers(-(2**31), 2**31 - 1)))
def test_ascending_and_each_once(dtype: type, numbers: list[int]) -> None:
    array = np.array(numbers, dtype=dtype)
    found = distinct(array)
    assert found.dtype == dtype
    assert found.tolist() == sorted(set(numbers))
    assert array.tolist() == numbers
