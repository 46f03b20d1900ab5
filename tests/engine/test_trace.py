"""The ring of newest events: what it tells of a stream, whatever became of the stream and its row."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.engine.engine import EngineLimits
from service.engine.inquiry import Event, Told, told_of
from service.engine.trace import Verdict
from service.language import parse_where
from service.model import MISSING, Late, Missing
from tests.cases.driver import Mode
from tests.cases.engine_driver import EngineDriver
from tests.engine.worlds import region

CAPACITY = 6
ATTRIBUTES = {"x": "number", "y": "number", "k": "category"}
STREAMS = "abc"


class Slow:
    """What must be told, in the plainest Python: every event of the partition in a list."""

    def __init__(self, policies: dict[str, str]) -> None:
        self.missing = Missing(policies.get("missing", "absent"))
        self.late = Late(policies.get("late", "no_border"))
        self.events: list[tuple[str, int, Verdict | None, dict[str, Any], set[str]]] = []
        self.carried: dict[str, dict[str, Any]] = {}
        self.ts: dict[str, int] = {}

    def event(self, offset: int, stream_id: str, ts: int | None, values: dict[str, Any]) -> None:
        late = ts is not None and ts < self.ts.get(stream_id, ts)
        verdict = Verdict.MOVED
        if late and self.late is not Late.PROCESS:
            verdict = Verdict.LATE if self.late is Late.NO_BORDER else Verdict.REJECTED
        seen = values
        if not late:
            if ts is not None:
                self.ts[stream_id] = ts
            if self.missing is Missing.CARRY:
                self.carried[stream_id] = seen = {**self.carried.get(stream_id, {}), **values}
        self.events.append((stream_id, offset, verdict, seen, set(seen) - set(values)))

    def remove(self, offset: int, stream_id: str) -> None:
        self.events.append((stream_id, offset, None, {}, set()))
        self.carried.pop(stream_id, None)
        self.ts.pop(stream_id, None)

    def told(self, stream_id: str) -> list[tuple[int, Verdict, dict[str, Any], set[str]]]:
        found = []
        for one, offset, verdict, values, carried in reversed(self.events[-CAPACITY:]):
            if one == stream_id:
                if verdict is None:
                    break
                found.append((offset, verdict, values, carried))
        return found


def told(driver: EngineDriver, stream_id: str, limit: int = 100) -> Told | None:
    place = driver.engine.place_of("s", stream_id)
    return None if place is None else told_of(driver.engine.sets["s"], region("x > 1"), place, limit)


STEP = st.one_of(
    st.tuples(
        st.sampled_from(STREAMS),
        st.fixed_dictionaries(
            {},
            optional={
                "ts": st.integers(0, 4),
                "x": st.integers(0, 3),
                "y": st.integers(0, 3),
                "k": st.sampled_from(["tug", "yacht"]),
            },
        ),
    ),
    st.tuples(st.sampled_from(STREAMS), st.none()),
)
POLICIES = st.fixed_dictionaries(
    {}, optional={"missing": st.just("carry"), "late": st.sampled_from(["no_border", "process", "reject"])}
)


@settings(max_examples=200, deadline=None)
@given(POLICIES, st.lists(STEP, max_size=25), st.sampled_from(["one", "batch"]))
def test_every_event_of_the_present_life_is_told(
    policies: dict[str, str], steps: list[tuple[str, dict[str, Any] | None]], mode: Mode
) -> None:
    driver, slow = EngineDriver(EngineLimits(trace=CAPACITY)), Slow(policies)
    driver.source("s", {"attributes": ATTRIBUTES, **policies})
    for stream_id, values in steps:
        event = None if values is None else json.dumps({"stream_id": stream_id, **values}).encode()
        _, offset = driver.send("s", stream_id.encode(), event)
        if values is None:
            slow.remove(offset, stream_id)
        else:
            present = {name: value for name, value in values.items() if name != "ts"}
            slow.event(offset, stream_id, values.get("ts"), present)
        if mode == "one":
            driver.flush()
    driver.flush()
    for stream_id in STREAMS:
        found = told(driver, stream_id)
        if found is None:
            assert driver.engine.stream("s", stream_id) is None
            continue
        assert [
            (event.offset, event.verdict, values, set(event.carried))
            for event, values in zip(found.events, found.case.values, strict=True)
        ] == slow.told(stream_id)
        holds = [explanation.holds for explanation in found.case.explanations()]
        assert holds == [values.get("x", 0) > 1 for _, _, values, _ in slow.told(stream_id)]
        assert found.overwritten == (len(steps) > CAPACITY)
        assert found.from_offset == max(0, len(steps) - CAPACITY)


def started(**policies: str) -> EngineDriver:
    driver = EngineDriver(EngineLimits(trace=CAPACITY))
    driver.source("s", {"attributes": ATTRIBUTES, **policies})
    return driver


def send(driver: EngineDriver, stream_id: str, *events: dict[str, Any]) -> None:
    driver.send("s", None, json.dumps([{"stream_id": stream_id, **event} for event in events]).encode())
    driver.flush()


def events_of(driver: EngineDriver, stream_id: str, limit: int = 100) -> list[Event]:
    found = told(driver, stream_id, limit)
    assert found is not None
    return found.events


def test_the_rows_of_a_message_are_told_apart_and_a_limit_takes_the_newest() -> None:
    driver = started()
    send(driver, "a", {"ts": 7, "x": 1}, {"x": 2}, {"ts": 3, "x": 3})
    assert [(e.offset, e.item, e.ts, e.verdict) for e in events_of(driver, "a")] == [
        (0, 2, 3, Verdict.LATE),
        (0, 1, None, Verdict.MOVED),
        (0, 0, 7, Verdict.MOVED),
    ]
    assert [e.item for e in events_of(driver, "a", limit=2)] == [2, 1]


def test_a_message_of_which_the_first_events_are_gone_is_not_promised() -> None:
    driver = started()
    send(driver, "a", *({"x": x} for x in range(4)))
    send(driver, "b", *({"x": x} for x in range(4)))
    found = told(driver, "a")
    assert found is not None
    assert [event.item for event in found.events] == [3, 2]
    assert (found.from_offset, found.overwritten) == (1, True)


def test_a_row_that_is_given_to_another_stream_tells_nothing_of_the_first() -> None:
    driver = started()
    send(driver, "a", {"x": 1})
    driver.send("s", b"a", None)
    driver.flush()
    assert told(driver, "a") is None
    send(driver, "b", {"x": 2})
    place = driver.engine.place_of("s", "b")
    assert place is not None and place.row == 0, "the row of the first"
    assert [event.offset for event in events_of(driver, "b")] == [2]


def test_a_stream_that_is_given_up_without_a_tombstone_leaves_nothing_to_the_next_in_its_row() -> None:
    driver = started()
    send(driver, "a", {"x": 1})
    (table,) = driver.engine.tables.values()
    table.give_up([table.row_of["a"]])
    send(driver, "b", {"x": 2})
    assert table.row_of == {"b": 0}, "the row of the first"
    assert [event.offset for event in events_of(driver, "b")] == [1]


def test_the_command_log_at_the_time_is_known() -> None:
    driver = started()
    for where in ("x > 0", "x > 1"):
        send(driver, "a", {"x": 5})
        _, _, offset = driver.command("put", {"query": {"id": "q", "source": "s", "where": where}})
        assert offset is not None
    send(driver, "a", {"x": 5})
    assert [event.commands for event in events_of(driver, "a")] == [3, 2, 1]
    assert driver.engine.catalog.queries["q"].version == 2


def test_what_a_disabled_query_names_is_not_learnt_by_asking_about_it() -> None:
    driver = started()
    send(driver, "a", {"k": "tug"})
    queries = driver.engine.sets["s"]
    place = driver.engine.place_of("s", "a")
    assert place is not None
    wanted = parse_where("k in ('yacht', 'tug')", queries.source, limit=10)
    assert [one.holds for one in told_of(queries, wanted, place, 9).case.explanations()] == [True]
    assert queries.dictionaries["k"].texts == ["tug"]


def test_the_point_of_a_stream_stays_what_it_was_while_the_stream_moves() -> None:
    driver = started()
    send(driver, "a", {"x": 1})
    place = driver.engine.place_of("s", "a")
    assert place is not None
    point = place.point
    send(driver, "a", {"x": 2})
    assert point[0, 0] == 1
    assert place.point[0, 0] == 2


def test_a_restart_begins_anew_and_says_from_where() -> None:
    driver = started()
    send(driver, "a", {"x": 1})
    driver.restart()
    found = told(driver, "a")
    assert found is not None
    assert (found.events, found.from_offset, found.overwritten) == ([], None, False)
    send(driver, "a", {"x": 2})
    found = told(driver, "a")
    assert found is not None
    assert [event.offset for event in found.events] == [1]
    assert (found.from_offset, found.overwritten) == (1, False)


def test_a_partition_that_is_let_go_and_taken_up_again_keeps_its_trace() -> None:
    driver = started()
    send(driver, "a", {"x": 1})
    (task,) = driver.engine.tables
    held = driver.engine.release(task)
    assert held is not None
    driver.engine.resume(task, held)
    assert [event.offset for event in events_of(driver, "a")] == [0]


def test_attributes_that_come_go_and_move_are_told_as_they_are_now() -> None:
    driver = started()
    send(driver, "a", {"x": 1, "y": 2, "k": "tug"})
    driver.source("s", {"attributes": {"x": "number", "k": "category", "z": "number"}})
    found = told(driver, "a")
    assert found is not None
    assert found.case.values == [{"x": 1.0, "k": "tug"}]
    assert found.case.points.tolist()[0][-1] == MISSING
    assert found.events[0].carried == []


def test_no_capacity_remembers_nothing_and_breaks_nothing() -> None:
    driver = EngineDriver(EngineLimits(trace=0))
    driver.source("s", {"attributes": ATTRIBUTES})
    send(driver, "a", {"x": 1}, {"x": 2})
    found = told(driver, "a")
    assert found is not None
    assert (found.events, found.from_offset, found.overwritten) == ([], None, True)


@pytest.mark.parametrize("events", [1, 20_000])
def test_memory_is_fixed_by_the_capacity(events: int) -> None:
    driver = EngineDriver(EngineLimits(trace=1_000))
    driver.source("s", {"attributes": {"x": "number"}})
    send(driver, "a", *({"x": x} for x in range(events)))
    (table,) = driver.engine.tables.values()
    assert table.trace.nbytes == 1_000 * (8 + 1 + 4 + 8 + 4 + 8 + 1 + 8 + 1)
    assert events_of(driver, "a", limit=1)[0].item == events - 1
