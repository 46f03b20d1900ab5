"""What is remembered of pairs: found by row and by slot, gone without a trace; and its heap stays small."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from service.engine.delta import IGNORED, MEMBER, NONE, WAITING, Memory
from service.engine.memory import _MANY_ENDS, Entry, PairMemory
from service.engine.rules import NEVER, Rules
from service.language import Limits, parse_query, parse_source

SOURCES = {"s": parse_source("s", {"attributes": {"x": "number"}})}
ENTRY = st.sampled_from(
    [(NONE, 0, 0), (IGNORED, 0, 0), (MEMBER, 0, 0), (NONE, 0, NEVER), (NONE, 0, 7), (IGNORED, 0, 9)]
    + [(WAITING, since, 0) for since in range(4)]
)
STEP = st.one_of(
    st.tuples(st.just("put"), st.integers(0, 3), st.integers(0, 3), ENTRY),
    st.tuples(st.just("put"), st.integers(0, 3), st.integers(0, 3), ENTRY),
    st.tuples(st.just("forget"), st.integers(0, 3), st.none(), st.none()),
    st.tuples(st.just("restore"), st.integers(0, 3), st.integers(0, 3), ENTRY),
    st.tuples(st.just("end"), st.integers(1, 10), st.none(), st.none()),
)


def _rules(dwell: int) -> Rules:
    rules = Rules()
    body = {"id": "q", "source": "s", "where": "x > 0", "for": dwell, "cooldown": 1}
    for slot in range(4):
        query = parse_query(body, SOURCES, id=None, now_ms=0, limits=Limits())
        rules.put(np.array([slot], dtype=np.int32), [query])
    return rules


def _put(memory: PairMemory, rules: Rules, row: int, slot: int, entry: Entry) -> bool:
    rows, slots = np.array([row], np.int32), np.array([slot], np.int32)
    state, since, free_at = entry
    after = Memory(np.array([state], np.uint8), np.array([since]), np.array([free_at]))
    return len(memory.put(rows, slots, memory.get(rows, slots), after, rules.of(slots))) > 0


def _due(entry: Entry, dwell: int) -> int:
    state, since, free_at = entry
    return max(since + dwell, free_at) if state == WAITING else free_at or NEVER


@settings(deadline=None)
@given(st.lists(STEP, max_size=30))
def test_it_is_a_dict_of_pairs(steps: list[tuple[str, int, int, Entry]]) -> None:
    dwell = 5
    memory, rules = PairMemory(), _rules(dwell)
    model: dict[tuple[int, int], Entry] = {}
    now = 0
    for step, row, slot, entry in steps:
        match step:
            case "put":
                assert _put(memory, rules, row, slot, entry) == (
                    model.get((row, slot), (NONE, 0, 0)) != entry
                )
                model[row, slot] = entry
            case "forget" | "restore":
                model = {pair: known for pair, known in model.items() if pair[0] != row}
                if step == "forget":
                    memory.forget(row)
                else:
                    memory.restore(row, {slot: entry})
                    memory.retime(rules)
                    model[row, slot] = entry
            case "end":
                now += row
                ended = list(memory.ended(now, rules))
                assert [end.due for end in ended] == sorted(end.due for end in ended)
                live = {
                    (end.row, end.slot)
                    for end in ended
                    if _due(model.get(end[1:], (0, 0, 0)), dwell) == end.due
                }
                assert live == {pair for pair, known in model.items() if _due(known, dwell) <= now}
                for pair in live:
                    state, _, _ = model[pair]
                    model[pair] = (MEMBER if state == WAITING else state, 0, 0)
                    memory.set(*pair, model[pair])
        model = {pair: known for pair, known in model.items() if known != (NONE, 0, 0)}
        assert len(memory) == len({row for row, _ in model})
        for one in range(4):
            assert memory.of_row(one) == {slot: known for (row, slot), known in model.items() if row == one}
            assert set(memory.rows_of(one)) == {row for row, slot in model if slot == one}
        assert memory.next_end <= min((_due(known, dwell) for known in model.values()), default=NEVER)


def test_ends_of_waits_broken_off_do_not_pile_up() -> None:
    memory, rules = PairMemory(), _rules(1_000_000)
    for turn in range(20 * _MANY_ENDS):
        _put(memory, rules, 0, 0, (WAITING, turn, 0))
        _put(memory, rules, 0, 0, (NONE, 0, 0))
        list(memory.ended(turn, rules))
        assert len(memory._ends) <= _MANY_ENDS + 2
    _put(memory, rules, 0, 0, (WAITING, 5, 0))
    assert [end.due for end in memory.ended(1_000_005, rules)][-1] == 1_000_005


def test_nothing_is_left_of_a_stream_whose_row_is_given_again() -> None:
    memory, rules = PairMemory(), _rules(5)
    _put(memory, rules, 2, 1, (WAITING, 0, 0))
    memory.forget(2)
    assert (len(memory), memory.of_row(2), list(memory.rows_of(1))) == (0, {}, [])
    _put(memory, rules, 2, 1, (WAITING, 3, 0))
    ends = list(memory.ended(8, rules))  # the first is of the former life, and no longer what the pair says
    assert [(end.due, end.row, end.slot) for end in ends] == [(5, 2, 1), (8, 2, 1)]
    assert memory.of_row(2) == {1: (WAITING, 3, 0)}
