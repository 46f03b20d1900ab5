"""What is owed: paid once, in order of each stream, whatever the portions, restarts and detours.

The slow twin is a list of (command, row, enters) from which entries are taken one by one.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service import wire
from service.engine.commands import DeleteQuery, PatchQuery, PutQuery, PutSource
from service.engine.effects import Change
from service.engine.engine import EngineLimits
from service.engine.owed import Entries, Owed
from tests.cases.engine_driver import EngineDriver

ROWS = 6
Entry = tuple[int, int, bool]

DEBT = st.lists(st.dictionaries(st.integers(0, ROWS - 1), st.booleans()), min_size=1, max_size=3)
STEP = st.one_of(
    st.tuples(st.just("add"), DEBT),
    st.tuples(st.just("add"), DEBT),
    st.tuples(st.just("portion"), st.integers(0, 4)),
    st.tuples(st.just("of"), st.lists(st.integers(-1, ROWS - 1), max_size=3)),
    st.tuples(st.just("restart"), st.none()),
)


def _change(command: int) -> Change:
    return Change(command, "updated", 10 * command, f"q{command}", (f"a{command}",))


class Debtor:
    """``Owed`` with its column and what a log would keep of both, beside the list."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.owed = Owed(most_bytes=most_bytes)
        self.told = np.zeros(ROWS, dtype=np.int64)
        self.log: dict[bytes, bytes] = {}
        self.slow: list[Entry] = []
        self.command = 0
        self._written = self.told.copy()

    def add(self, changes: list[dict[int, bool]]) -> None:
        first = self.command
        entries = [
            (place, row, enters)
            for place, of_rows in enumerate(changes)
            for row, enters in sorted(of_rows.items())
        ]
        places, rows, enters = (np.array([entry[i] for entry in entries], np.int32) for i in range(3))
        told = [_change(first + place) for place in range(len(changes))]
        self.owed.add(Entries(told, places, rows, enters.astype(np.bool_)))
        self.slow += [(first + place, row, enters) for place, row, enters in entries]
        self.command += len(changes)

    def portion(self, most: int) -> None:
        expected, self.slow = self.slow[:most], self.slow[most:]
        self._paid(self.owed.portion(self.told, most), expected)

    def of(self, rows: list[int]) -> None:
        expected = [entry for entry in self.slow if entry[1] in rows]
        self.slow = [entry for entry in self.slow if entry[1] not in rows]
        self._paid(self.owed.of(np.array(rows, np.int32), self.told), expected)

    def _paid(self, entries: Entries, expected: list[Entry]) -> None:
        assert entries.changes == [_change(change.command) for change in entries.changes]
        commands, rows, enters = entries.commands.tolist(), entries.rows.tolist(), entries.enters.tolist()
        assert list(zip(commands, rows, enters, strict=True)) == expected
        self._written[rows] = self.told[rows]  # the others have not changed, so nobody writes them

    def restart(self, _: None) -> None:
        for key, value in self.owed.save():
            if value is None:
                del self.log[key]
            else:
                assert len(value) <= self.most_bytes
                self.log[key] = value
        assert bool(self.log) == bool(self.slow)
        assert list(self.owed.save()) == []
        self.owed, self.told = Owed(most_bytes=self.most_bytes), self._written.copy()
        self.owed.load(reversed(self.log.items()), self.told)


@settings(deadline=None, max_examples=300)
@given(st.lists(STEP, max_size=30), st.sampled_from([150, 1 << 20]))
def test_entries_are_paid_once_and_in_order(steps: list[tuple[str, Any]], most_bytes: int) -> None:
    debtor = Debtor(most_bytes)
    for operation, argument in [*steps, ("restart", None), ("portion", 1 << 20), ("restart", None)]:
        getattr(debtor, operation)(argument)
        assert debtor.owed.records == len(debtor.slow)
        assert bool(debtor.owed) == bool(debtor.slow)
        if debtor.slow:
            assert debtor.owed.oldest <= debtor.slow[0][0]
    assert not debtor.log


def test_a_change_of_a_million_streams_is_a_small_record() -> None:
    owed, told = Owed(), np.zeros(1_000_000, np.int64)
    rows = np.flatnonzero(np.random.default_rng(0).random(len(told)) < 0.5).astype(np.int32)
    entries = Entries([_change(1)], np.zeros_like(rows), rows, np.ones(len(rows), np.bool_))
    owed.add(entries)
    records = [(key, value) for key, value in owed.save() if value is not None]
    assert sum(len(value) for _, value in records) < len(rows), "less than a byte each"
    again = Owed()
    again.load(records, told)
    paid = again.portion(told, len(rows))
    assert [column.tolist() for column in paid[1:]] == [column.tolist() for column in entries[1:]]


def test_records_of_a_newer_version_are_refused() -> None:
    owed = Owed()
    owed.add(Entries([_change(1)], np.zeros(1, np.int32), np.zeros(1, np.int32), np.ones(1, np.bool_)))
    ((key, value),) = owed.save()
    assert value is not None
    newer = msgspec.msgpack.encode([2, *msgspec.msgpack.decode(value)[1:]])
    with pytest.raises(ValueError, match="has version 2"):
        Owed().load([(key, newer)], np.zeros(1, np.int64))


# ---- in the engine


class Told:
    """A driver whose streams a to f are inside ``q``, which has told one record of ``portion``."""

    def __init__(self, portion: int = 1) -> None:
        self.driver = EngineDriver(EngineLimits(portion=portion))
        self.source({"x": "number", "y": "number"})
        for place, name in enumerate("abcdef"):
            self.event(name, x=place, y=7)
        self.put("q", "x >= 0", select=["y"])

    def source(self, attributes: dict[str, str], **policies: Any) -> None:
        self.driver.source("s", {"attributes": attributes, **policies})

    def put(self, id: str, where: str, **more: Any) -> None:
        body = {"id": id, "source": "s", "where": where, "on": ["enter", "leave"], **more}
        assert self.driver.command("put", {"query": body})[0] == 200

    def event(self, name: str, **values: float) -> None:
        self.driver.send("s", name.encode(), json.dumps({"stream_id": name, **values}).encode())
        self.driver.flush()

    def all(self) -> dict[str, list[tuple[int, str, list[str], list[str], dict[str, float]]]]:
        """By stream, what has been told when nothing is owed any more."""
        while self.driver.engine.owes:
            self.driver.tell()
        return self.so_far()

    def so_far(self) -> dict[str, list[tuple[int, str, list[str], list[str], dict[str, float]]]]:
        found: dict[str, list[tuple[int, str, list[str], list[str], dict[str, float]]]] = {}
        for topic, key, value in self.driver.records():
            if topic == "borders":
                record = json.loads(value)
                what = (record[name] for name in ("seq", "reason", "leave", "enter", "attrs"))
                found.setdefault((key or b"").decode(), []).append(tuple(what))  # type: ignore[arg-type]
        return found

    @property
    def owed(self) -> int:
        (table,) = self.driver.engine.tables.values()
        return table.owed.records

    def state(self) -> set[bytes]:
        (records,) = self.driver._state.values()
        return {key for key in records if key.startswith(b"o")}


def test_a_portion_at_a_time_is_told_and_membership_holds_at_once() -> None:
    told = Told(portion=2)
    assert sorted(told.driver.engine.members("q")) == list("abcdef")
    assert (sorted(told.so_far()), told.owed) == (["a", "b"], 4)
    told.driver.tell()
    assert (sorted(told.so_far()), told.owed) == (["a", "b", "c", "d"], 2)
    view = told.driver.engine.stream("s", "f")
    assert view is not None and (view.inside, view.seq) == (["q"], 0)
    assert told.all()["f"] == [(1, "registered", [], ["q"], {"y": 7.0})]


def test_a_query_that_is_gone_is_told_of_as_it_was_even_after_a_restart() -> None:
    told = Told()
    told.driver.command("delete", {"id": "q"})
    told.put("other", "x < 0", select=["x"])
    told.put("q", "x >= 5", select=["x"])
    told.driver.restart(compacted=True)
    assert told.owed == 6 + 6 + 1 - 4
    first = [(1, "registered", [], ["q"], {"y": 7.0}), (2, "deleted", ["q"], [], {"y": 7.0})]
    found = told.all()
    assert {name: found[name] for name in "abcde"} == dict.fromkeys("abcde", first)
    assert found["f"] == [*first, (3, "registered", [], ["q"], {"x": 5.0})]


def test_what_is_owed_comes_before_an_event_with_the_value_of_then() -> None:
    told = Told()
    told.event("f", x=-1, y=8)
    assert told.so_far()["f"] == [
        (1, "registered", [], ["q"], {"y": 7.0}),
        (2, "event", ["q"], [], {"y": 8.0}),
    ]
    assert sorted(told.so_far()) == ["a", "f"]


def test_a_removed_stream_is_paid_and_its_row_owes_nothing() -> None:
    told = Told()
    told.driver.send("s", b"b", None)
    told.driver.flush()
    told.driver.restart()
    told.event("new", x=3, y=1)
    (table,) = told.driver.engine.tables.values()
    assert "b" not in table.row_of and table.row_of["new"] == 1, "the row is used again"
    found = told.all()
    assert [record[:2] for record in found["b"]] == [(1, "registered"), (2, "stream_removed")]
    assert [record[:2] for record in found["new"]] == [(1, "event")]


def test_what_is_owed_comes_before_a_wait_that_ends() -> None:
    told = Told()
    told.put("slow", "x >= 0", **{"for": 5})
    told.driver.clock(5)
    told.driver.flush()
    found = told.so_far()
    assert sorted(found) == list("abcdef")
    for records in found.values():
        assert [record[:2] for record in records] == [(1, "registered"), (2, "dwell")]
    assert told.owed == 0


def test_what_is_owed_comes_before_a_stream_that_expires() -> None:
    told = Told()
    told.source({"x": "number", "y": "number"}, stream_ttl=5)
    told.driver.clock(5)
    told.driver.flush()
    found = told.so_far()
    assert sorted(found) == list("abcdef")
    for records in found.values():
        assert [record[:2] for record in records] == [(1, "registered"), (2, "stream_removed")]
    assert told.owed == 0


def test_a_source_that_changes_its_attributes_has_all_paid_before() -> None:
    told = Told()
    told.driver.command("delete", {"id": "q"})
    told.source({"x": "number"})
    assert told.owed == 0
    assert told.so_far()["f"][1] == (2, "deleted", ["q"], [], {"y": 7.0})


def test_one_batch_of_commands_is_told_as_each_of_them_was() -> None:
    """What a query selects, and what attributes there are, changes within the batch."""
    told = Told(portion=100)
    engine = told.driver.engine
    bodies = [
        PutQuery("r", {"id": "r", "source": "s", "where": "x >= 5", "select": ["y"]}),
        PatchQuery("r", {"where": "x < 5", "select": ["x"]}),
        PutSource("s", {"attributes": {"z": "number", "x": "number", "y": "number"}}),
        DeleteQuery("r"),
    ]
    draft, first = engine.draft(0), len(told.driver._entries)
    entries = [draft.prepare(body).entry for body in bodies]
    for entry in entries:
        assert entry is not None
        told.driver._entries.append(wire.command_body(wire.command_message(entry, at_ms=0).value))
    told.driver._apply(list(enumerate(told.driver._entries))[first:])
    found = told.all()
    assert found["f"][1:] == [
        (2, "registered", [], ["r"], {"y": 7.0}),
        (3, "updated", ["r"], [], {"x": 5.0}),
    ]
    assert found["a"][1:] == [(2, "updated", [], ["r"], {"x": 0.0}), (3, "deleted", ["r"], [], {"x": 0.0})]


def test_debts_are_few_records_that_go_when_they_are_paid() -> None:
    told = Told()
    for round_ in range(4):
        told.put("q", "x >= 0" if round_ % 2 else "x < 0", select=["y"])
    assert told.state() == {b"o0", b"o1", b"o2", b"o3", b"o4"}
    told.all()
    assert not told.state()
    told.put("r", "x >= 0")
    assert told.state() == {b"o0"}
    told.driver.restart()
    assert [record[2:4] for record in told.all()["f"]] == [
        ([], ["q"]),
        (["q"], []),
        ([], ["q"]),
        (["q"], []),
        ([], ["q"]),
        ([], ["r"]),
    ]


def test_a_partition_that_is_let_go_and_taken_up_again_goes_on_where_it_was() -> None:
    for resumed in (True, False):
        told = Told(portion=4)
        told.driver.reassign(resumed=resumed)
        assert told.owed == 2
        assert {name: len(records) for name, records in told.all().items()} == dict.fromkeys("abcdef", 1)
