"""What the kernel takes of flat events, and what it leaves; that it judges as the others do is in
``test_bytes``."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from service.flat import Flat, FlatReader

READER = FlatReader(["id", "t", "x", "kind"], [True, False], max_bytes=1000)


def read(*values: bytes) -> Flat:
    return READER.read(values)


def number(text: str) -> float | None:
    """What the kernel takes a number for; None: it leaves it."""
    flat = read(f'{{"id":"a","x":{text}}}'.encode())
    return float(flat.values[0, 0]) if flat.fine[0] else None


def bits(value: float) -> bytes:
    return struct.pack("d", value)


@given(st.integers(0, 2**54), st.integers(0, 25), st.booleans())
@example(2**53 - 1, 22, False)
@example(11103811894515947, 2, False)
@example(2**53, 0, False)
@example(0, 1, True)
def test_a_number_is_the_nearest_float_or_it_is_left_if_it_is_large(
    mantissa: int, places: int, negative: bool
) -> None:
    digits = str(mantissa).rjust(places + 1, "0")
    text = ("-" if negative else "") + (digits[:-places] + "." + digits[-places:] if places else digits)
    taken = number(text)
    assert (taken is None) == (abs(float(text)) >= 2**53)
    if taken is not None:
        assert bits(taken) == bits(float(text) + 0.0)


@given(st.floats(allow_nan=False, allow_infinity=False))
@example(-0.0)
@example(5e-324)
def test_a_float_is_what_it_was(value: float) -> None:
    taken = number(json.dumps(value))
    assert (taken is None) == (abs(value) >= 2**53)
    assert taken is None or bits(taken) == bits(value + 0.0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-",
        "+1",
        "01",
        "-01",
        "1.",
        ".5",
        "1e",
        "1e+",
        "1.5E",
        "1e16",
        "1e400",
        "0x1",
        "NaN",
        "--1",
        "1 2",
        "9" * 400,
        "1_0",
        str(2**53),
    ],
)
def test_what_is_no_plain_number_is_left(text: str) -> None:
    assert number(text) is None


EVENT = st.fixed_dictionaries(
    {"id": st.text("ab~ ", min_size=1, max_size=3)},
    optional={
        "t": st.integers(-(2**53) + 1, 2**53 - 1),
        "x": st.integers(-99, 99) | st.sampled_from([0.5, -0.25, 1e-7 * 2**20]),
        "kind": st.text("xyz", max_size=3),
        "i": st.just("more"),
        "idd": st.just(5),
    },
)


@given(st.lists(EVENT, max_size=6), st.sampled_from([None, 1]), st.randoms(use_true_random=False))
def test_plain_events_are_taken_whatever_order_and_blanks_they_have(
    events: list[dict[str, Any]], indent: int | None, rng: Any
) -> None:
    values = []
    for event in events:
        fields = list(event.items())
        rng.shuffle(fields)
        values.append(f" {json.dumps(dict(fields), indent=indent)}\r\n\t".encode())
    flat = read(*values)
    assert flat.fine.all()
    assert flat.texts(0) == [event["id"] for event in events]
    assert flat.texts(3) == [event.get("kind") for event in events]
    assert flat.timed.tolist() == ["t" in event for event in events]
    assert flat.ts.tolist() == [event.get("t", 0) for event in events]
    assert flat.values[:, 0].tolist() == [event.get("x", -math.inf) for event in events]
    assert np.isneginf(flat.values[:, 1]).all()


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b" ",
        b"{}",
        b"{",
        b'{"id":"a"',
        b'{"id":"a",}',
        b'{"id":"a"}}',
        b'{"id":"a"} x',
        b'{"id":"a","x":1 "kind":"b"}',
        b'{"id":"a","x":null}',
        b'{"id":"a","more":{}}',
        b'{"id":"a","more":true}',
        b'{"id":"a\\n"}',
        b'{"id":"a\n"}',
        '{"id":"ä"}'.encode(),
        b'{"id":"a","\xff":1}',
        b'[{"id":"a"}]',
        b'{"id":""}',
        b'{"id":5}',
        b'{"id":"a","t":"5"}',
        b'{"id":"a","t":5.5}',
        b'{"id":"a","t":5.0}',
        b'{"id":"a","kind":5}',
        b'{"id":"a","x":"5"}',
        b'{"x":5}',
        b'{"id":"%b"}' % (b"a" * 257),
        b'{"id":"a","more":"%b"}' % (b"a" * 1000),
    ],
)
def test_what_is_unusual_is_left_and_its_neighbours_are_not(value: bytes) -> None:
    flat = read(b'{"id":"b","x":1}', value, b'{"id":"c","x":2}')
    assert flat.fine.tolist() == [True, False, True]
    assert flat.texts(0) == ["b", "c"]
    assert flat.values[flat.fine, 0].tolist() == [1, 2]


def test_of_a_key_twice_the_last_counts() -> None:
    flat = read(b'{"id":"a","x":1,"id":"b","x":2,"x":3}')
    assert flat.fine.all()
    assert (flat.texts(0), flat.values[0, 0]) == (["b"], 3)
