"""How many elements an array has, known without making one of them."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from service.elements import count_elements, is_array

VALUES = st.recursive(
    st.none() | st.integers() | st.text(alphabet='a"\\\\,[]{} \u00e4', max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@given(st.lists(VALUES, max_size=8), st.sampled_from([None, 1]), st.booleans())
def test_the_count_is_that_of_a_reader(values: list[object], indent: int | None, ascii: bool) -> None:
    text = json.dumps(values, indent=indent, ensure_ascii=ascii).encode()
    assert is_array(text)
    assert count_elements(b" \n" + text) == len(values)


@given(st.lists(VALUES, max_size=8), st.integers(0, 60), st.binary(max_size=3))
def test_a_mistake_hides_none_of_what_stands_before_it(values: list[object], at: int, mistake: bytes) -> None:
    """A reader that goes on until the mistake makes no more elements than are counted."""
    text = json.dumps(values).encode()
    before = [json.dumps(values[:n])[:-1] for n in range(len(values) + 1)]
    whole = sum(len(one) < at for one in before[1:])
    assert count_elements(text[:at] + b"," + mistake + text[at:]) >= whole
