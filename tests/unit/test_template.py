"""Records of a template against the same joined by hand, and the ids that they list."""

from __future__ import annotations

import json

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from service import template
from service.engine.idtexts import IdTexts
from service.template import Listed, Picked, filled, order_ids

ALPHABET = "AZaz09._~:-"
ID = st.text(ALPHABET, min_size=1, max_size=4) | st.text(ALPHABET, min_size=190, max_size=200)
NUMBER = st.integers(-(2**63) + 1, 2**63 - 1) | st.integers(-11, 11)
TEXT = st.binary(max_size=20)


def texts_of(ids: list[str]) -> IdTexts:
    texts = IdTexts(1)
    for slot, id in enumerate(ids):
        while slot >= len(texts.starts):
            texts.grow()
        texts.put([slot], [id])
    return texts


def said(texts: IdTexts, slot: int) -> str:
    start = int(texts.starts[slot])
    told: str = json.loads(texts.text[start : start + int(texts.lengths[slot])].tobytes())
    return told


@given(st.lists(st.dictionaries(st.integers(0, 5), ID), max_size=10))
def test_a_slot_has_the_id_that_it_was_given_last(given: list[dict[int, str]]) -> None:
    texts = texts_of([""] * 6)
    held: dict[int, str] = {}
    for some in given:
        texts.put(list(some), list(some.values()))
        held.update(some)
        assert {one: said(texts, one) for one in held} == held


def test_slots_that_come_and_go_take_no_more_room() -> None:
    texts = texts_of(["a" * 200] * 16)
    room = len(texts.text)
    for turn in range(1000):
        texts.put([turn % 16], ["b" * (1 + turn % 200)])
    assert len(texts.text) == room


@given(st.lists(st.lists(ID, max_size=40), min_size=1, max_size=4))
def test_each_stretch_is_put_in_order(stretches: list[list[str]]) -> None:
    ids = [id for stretch in stretches for id in stretch]
    texts = texts_of(ids)
    bounds = np.cumsum([0, *map(len, stretches)])
    slots = np.arange(len(ids), dtype=np.int32)
    order_ids(texts.text, texts.starts, texts.lengths, bounds, slots)
    for stretch, begin, end in zip(stretches, bounds, bounds[1:], strict=False):
        assert sorted(slots[begin:end].tolist()) == list(range(begin, end))
        assert [ids[slot] for slot in slots[begin:end].tolist()] == sorted(stretch)


@settings(deadline=None)
@given(st.data(), st.integers(1, 8), st.sampled_from([1, 64, 1 << 17]))
def test_records_are_their_parts_one_after_the_other(data: st.DataObject, count: int, block: int) -> None:
    """However little of them is written at a time."""
    ids = data.draw(st.lists(ID, min_size=1, max_size=6))
    slots = np.array(
        data.draw(st.lists(st.integers(0, len(ids) - 1), min_size=1, max_size=12)), dtype=np.int32
    )
    parts: list[template.Part] = []
    columns: list[list[bytes]] = []
    for kind in data.draw(
        st.lists(st.sampled_from(["all", "picked", "number", "ids"]), min_size=1, max_size=8)
    ):
        if kind == "all":
            text = data.draw(TEXT)
            parts.append(text)
            columns.append([text] * count)
        elif kind == "picked":
            some = data.draw(st.lists(TEXT, min_size=1, max_size=3))
            picks = data.draw(st.lists(st.integers(0, len(some) - 1), min_size=count, max_size=count))
            parts.append(Picked(some, np.array(picks)))
            columns.append([some[pick] for pick in picks])
        elif kind == "number":
            numbers = data.draw(st.lists(NUMBER, min_size=count, max_size=count))
            parts.append(np.array(numbers, dtype=np.int64))
            columns.append([b"%d" % number for number in numbers])
        else:
            cut = st.integers(0, len(slots))
            pairs = [sorted(data.draw(st.tuples(cut, cut))) for _ in range(count)]
            begins, ends = np.array(pairs, dtype=np.int64).T
            parts.append(Listed(begins, ends))
            columns.append(
                [
                    json.dumps([ids[slot] for slot in slots[a:b].tolist()], separators=(",", ":")).encode()
                    for a, b in pairs
                ]
            )
    written = filled(count, parts, texts_of(ids), slots, block_bytes=block)
    assert written == [b"".join(column[i] for column in columns) for i in range(count)]
