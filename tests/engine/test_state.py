"""The state log: whatever a table went through, its records restore it, and there are few of them."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.engine.state import HEARD, VERSION, StateLog
from service.engine.versions import UnreadableState
from tests.cases.engine_driver import EngineDriver

BLOCK, RING = 4, 8
SMALL = partial(StateLog, block=BLOCK, ring=RING)
TYPES = ["number", "category", None]

QUERIES: dict[str, dict[str, Any]] = {
    "low": {},
    "shy": {"initial": "ignore"},
    "slow": {"for": 3},
    "sticky": {"keep": "x <= 3", "cooldown": 2},
    "single": {"once": True},
}

STREAM = st.integers(0, 20).map("s{}".format)
VALUE = st.integers(0, 5)
EVENT = st.tuples(st.just("event"), STREAM, VALUE)
OPERATION = st.one_of(
    EVENT,
    EVENT,
    EVENT,
    st.tuples(st.just("remove"), STREAM, st.none()),
    st.tuples(st.just("commit"), st.none(), st.none()),
    st.tuples(st.just("pass"), st.none(), st.integers(1, 3)),
    st.tuples(st.just("disable"), st.none(), st.booleans()),
    st.tuples(st.just("retype"), st.none(), st.sampled_from(TYPES)),
    st.tuples(st.just("carry"), st.none(), st.booleans()),
    st.tuples(st.just("dedup"), st.none(), st.sampled_from([None, 1, 3, 5])),
)


class World:
    """A source whose second attribute comes, goes and changes its type."""

    def __init__(self, make_state_log: Any) -> None:
        self.driver = EngineDriver(make_state_log=make_state_log)
        self.second: str | None = "number"
        self.carries = False
        self.last: int | None = None
        self.now = self.events = 0
        self._source()
        for id, controls in QUERIES.items():
            query = {"id": id, "source": "s", "where": "x <= 2", **controls}
            assert self.driver.command("put", {"query": query})[0] == 200

    def _source(self) -> None:
        attributes = {"x": "number"} | ({"y": self.second} if self.second else {})
        policy: dict[str, Any] = {"missing": "carry"} if self.carries else {}
        policy |= {"dedup": {"by": "id", "last": self.last}} if self.last else {}
        self.driver.source("s", {"attributes": attributes, **policy})

    def do(self, operation: str, stream_id: str | None, argument: Any) -> None:
        match operation:
            case "event":
                event = {"stream_id": stream_id, "ts": self.now + argument, "x": argument, "id": self.events}
                self.events += argument > 0  # or the next one is a copy
                if self.second and argument != 3:
                    event["y"] = argument if self.second == "number" else f"text {argument}"
                self.driver.send("s", None, json.dumps(event).encode())
            case "remove":
                self.driver.send("s", str(stream_id).encode(), None)
            case "commit":
                self.driver.flush()
            case "pass":
                self.driver.flush()
                self.now += argument
                self.driver.clock(self.now)
            case "disable":
                self.driver.flush()
                self.driver.command("patch", {"id": "shy", "set": {"enabled": argument}})
            case "retype":
                self.driver.flush()
                self.second = argument
                self._source()
            case "carry":
                self.driver.flush()
                self.carries = argument
                self._source()
            case "dedup":
                self.driver.flush()
                self.last = argument
                self._source()

    def seen(self) -> dict[str, Any]:
        """Everything that is remembered of every stream."""
        found: dict[str, Any] = {}
        for table in self.driver.engine.tables.values():
            queries = self.driver.engine.sets["s"]
            for name, row in table.row_of.items():
                view = self.driver.engine.stream("s", name)
                carried = table.carried[row].tolist() if self.carries else None
                texts = queries.dictionaries.get("y")
                if carried and texts is not None:
                    carried[1] = texts.text(carried[1])
                memory = {queries.names[slot]: entry for slot, entry in table.memory.of_row(row).items()}
                ids = table.recent.newest(np.array([row], dtype=np.int32), whole=True)
                found[name] = (row, view, carried, memory, int(table.seen[row]), ids)
            found["time"] = (table.time.ahead, table.time.reached)
        return found


@settings(max_examples=150, deadline=None)
@given(st.lists(OPERATION, max_size=80), st.sampled_from([400, 1 << 20]))
def test_records_restore_the_table(operations: list[tuple[str, Any, Any]], most_bytes: int) -> None:
    world = World(partial(SMALL, most_bytes=most_bytes))
    for operation in operations:
        world.do(*operation)
    world.driver.flush()
    before = world.seen()
    world.driver.restart()
    assert world.seen() == before
    for stream_id in ("s0", "s1", "new"):
        world.do("event", stream_id, 1)
    world.driver.flush()
    before = world.seen()
    world.driver.restart()
    assert world.seen() == before


def test_the_log_stays_small_however_long_the_history() -> None:
    world = World(SMALL)
    for round_ in range(400):
        world.do("event", f"s{round_ % 21}", round_ % 6)
        world.do("commit", None, None)
    (records,) = world.driver._state.values()
    assert len(records) <= RING + -(-21 // BLOCK) + 1, "deltas, pages, and what has been heard"
    before = world.seen()
    world.driver.restart()
    assert world.seen() == before


def _with_ids(last: int) -> EngineDriver:
    driver = EngineDriver(make_state_log=SMALL)
    driver.source("s", {"attributes": {"x": "number"}, "dedup": {"by": "id", "last": last}})
    return driver


def _send(driver: EngineDriver, *ids: int, stream_id: str = "a") -> list[Any]:
    """Sends events with these ids and returns those that are refused."""
    before = len(driver.records())
    for id in ids:
        driver.send("s", None, json.dumps({"stream_id": stream_id, "x": 1, "id": id}).encode())
    driver.flush()
    letters = [json.loads(value) for _, _, value in driver.records()[before:]]
    return [json.loads(letter["value"])["id"] for letter in letters]


def test_a_commit_has_the_ids_that_have_come_since_and_a_page_has_all() -> None:
    driver = _with_ids(last=50)
    for id in range(200):
        assert _send(driver, id) == []
    (records,) = driver._state.values()
    deltas = [len(value) for key, value in records.items() if key[:1] == b"d"]
    pages = [len(value) for key, value in records.items() if key[:1] == b"p"]
    assert len(deltas) == RING
    assert max(deltas) < 250
    assert min(pages) > 16 * 50
    driver.restart()
    assert _send(driver, 150, 199, 149, 200) == [150, 199], "200 and 149 are none of the last 50"


def test_as_many_ids_as_a_source_may_ask_for_outlive_a_restart() -> None:
    driver = _with_ids(last=10_000)
    assert _send(driver, *range(10_001)) == []
    driver.restart()
    assert _send(driver, 1, 10_000, 0, 1) == [1, 10_000], "0 was none of the last, and took the place of 1"


def test_ids_that_are_missing_in_the_state_are_told() -> None:
    driver = _with_ids(last=5)
    for id in range(3):
        assert _send(driver, id) == []
    (records,) = driver._state.values()
    del records[b"d2"]
    with pytest.raises(UnreadableState, match="cannot be read"):
        driver.restart()


def test_a_source_without_ids_writes_what_the_version_before_wrote() -> None:
    driver = _with_ids(last=5)
    driver.send("s", None, b'{"stream_id": "a", "x": 1, "id": 7}')
    driver.flush()
    driver.source("s", {"attributes": {"x": "number"}})
    driver.send("s", None, b'{"stream_id": "a", "x": 2, "id": 7}')
    driver.flush()
    (records,) = driver._state.values()
    blocks = sorted(msgspec.msgpack.decode(value) for key, value in records.items() if key != HEARD)
    assert {block[0]: len(block) for block in blocks} == {3: 15, VERSION: 17}


def test_time_that_moved_without_a_stream_is_restored() -> None:
    driver = EngineDriver()
    driver.source("s", {"attributes": {"x": "number"}, "late": "reject"})
    for ts in (10, 1_000, 5):
        driver.send("s", None, json.dumps({"stream_id": "a", "ts": ts, "x": 1}).encode())
        driver.flush()
    driver.clock(7)
    driver.send("s", b"nobody", None)
    driver.flush()
    (time,) = (table.time for table in driver.engine.tables.values())
    driver.restart()
    (again,) = (table.time for table in driver.engine.tables.values())
    assert (again.ahead, again.reached) == (time.ahead, time.reached) == (1_000, 1_007)


def test_records_of_version_1_are_read() -> None:
    """They had the largest ``ts`` and when it was seen, who was ignored, and no memory but that."""
    driver = EngineDriver()
    driver.source("s", {"attributes": {"x": "number", "k": "category"}})
    for id in ("emits", "ignores"):
        query = {"id": id, "source": "s", "where": "x > 0", "initial": id.removesuffix("s")}
        assert driver.command("put", {"query": query})[0] == 200
    engine, (task,) = driver.engine, driver.engine.tables
    rows, ts, seq = np.array([1, 0], np.int32), np.array([50, 40], np.int64), np.array([3, 0], np.int64)
    block = [
        *(1, 7, 50, 20, rows.tobytes(), ["a", "b"], ts.tobytes(), seq.tobytes()),
        {"x": np.array([5.0, -1.0]).tobytes(), "k": ["tug", None]},
        None,
        {1: ["ignores", "gone"]},
    ]
    engine.assign(task, [(b"p0", msgspec.msgpack.encode(block))])
    table = engine.tables[task]
    assert (table.time.ahead, table.time.reached) == (30, 50)
    assert table.seen[rows].tolist() == [50, 50]
    a, b = engine.stream("s", "a"), engine.stream("s", "b")
    assert a is not None and b is not None
    assert (a.last, a.ts, a.seq, a.inside) == ({"x": 5.0, "k": "tug"}, 50, 3, ["emits"])
    assert (b.last, b.ts, b.seq, b.inside) == ({"x": -1.0}, 40, 0, [])
    assert engine.members("ignores") == []


def test_records_of_a_newer_version_are_refused() -> None:
    driver = EngineDriver()
    driver.source("s", {"attributes": {"x": "number"}})
    driver.send("s", None, b'{"stream_id": "a", "x": 1}')
    driver.flush()
    (task,) = driver.engine.tables
    ((key, value),) = ((key, value) for key, value in driver._state[task].items() if key != HEARD)
    newer = msgspec.msgpack.encode([VERSION + 1, *msgspec.msgpack.decode(value)[1:]])
    with pytest.raises(ValueError, match="has version"):
        driver.engine.assign(task, [(key, newer)])


def test_wide_rows_are_written_in_parts() -> None:
    driver = EngineDriver(make_state_log=partial(StateLog, most_bytes=20_000))
    attributes = {f"k{i}": "category" for i in range(40)}
    driver.source("s", {"attributes": attributes})
    for stream in range(300):
        event = {"stream_id": f"s{stream}", **{name: f"{name} {stream} " + "t" * 200 for name in attributes}}
        driver.send("s", None, json.dumps(event).encode())
    driver.flush()
    (records,) = driver._state.values()
    assert max(map(len, records.values())) <= 20_000
    before = driver.engine.stream("s", "s299")
    driver.restart()
    assert driver.engine.stream("s", "s299") == before
