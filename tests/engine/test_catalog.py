"""What several workers make of one command log: keys and compaction, and entries judged against another
catalog than the one they apply to."""

from __future__ import annotations

import json
from typing import Any

import pytest

from service.decode import Decoder
from service.engine.collections import Failures, Member, Plan, planned
from service.engine.commands import (
    Command,
    DeleteQuery,
    Entry,
    ExpireQuery,
    Prepared,
    PutQuery,
    PutSource,
)
from service.engine.effects import Task
from service.engine.engine import Engine
from service.log.port import Record
from service.model import Reason, Refusal
from service.wire import Encoder


def test_compaction_leaves_every_version_of_a_source_before_its_queries() -> None:
    engine = Engine()
    log: list[tuple[str, dict[str, object]]] = []
    where = {"id": "q", "source": "s", "where": "x > 0"}
    for command in (
        PutSource("s", {"attributes": {"x": "number"}}),
        PutQuery(None, where),
        PutSource("s", {"attributes": {"x": "number", "y": "number"}}),
        PutQuery(None, {**where, "where": "x > 1"}),
        PutSource("s", {"attributes": {"x": "number", "y": "number", "z": "number"}}),
    ):
        entry = engine.draft(0).prepare(command).entry
        assert entry is not None
        engine.command([(len(log), entry.body)], 0)
        log.append((entry.key, entry.body))

    newest = {key: offset for offset, (key, _) in enumerate(log)}
    compacted = [(offset, body) for offset, (key, body) in enumerate(log) if newest[key] == offset]
    assert [offset for offset, _ in compacted] == [0, 2, 3, 4]
    again = Engine()
    again.command(compacted, 0)
    assert not again.catalog.quarantined
    assert again.catalog.queries == engine.catalog.queries
    assert again.catalog.sources == engine.catalog.sources


def worker(log: list[Any]) -> Engine:
    """One of several that read a log, with a stream inside whatever has to do with it."""
    engine = Engine()
    engine.command(list(enumerate(log)), 0)
    engine.assign(TASK, [])
    queries = engine.queries_of(TASK)
    message = Record(0, 1, b"m", b'{"stream_id": "m", "ts": 1, "x": 5, "z": 3, "k": "a"}')
    engine.apply(TASK, Decoder(queries.source, queries.dictionaries, max_bytes=1000).decode([message]).batch)
    engine.state_records(TASK)
    return engine


def borders(engine: Engine, log: list[Any], judged: dict[int, Prepared]) -> list[Any]:
    """Applies what a log has beyond its first entry; who left and entered which query, as it is written."""
    found = []
    caused = engine.command(list(enumerate(log))[1:], 0, judged)
    while engine.owes:
        caused += engine.pay()
    encoder = Encoder(engine.queries_of(TASK), max_ids=9, max_bytes=1000)
    for effects in caused:
        for output in encoder.commands(effects, engine.tables[TASK]):
            record = json.loads(output.value)
            found.append((record["enter"], record["leave"], record.get("reason")))
    return found


TASK = Task("events.s", 0)
BROAD = PutSource("s", {"attributes": {"x": "number", "z": "number", "k": "category"}})
BROAD_ENTRY = {"op": "source", "name": "s", "source": BROAD.body}
NARROW = PutSource("s", {"attributes": {"x": "number", "k": "category"}})
RETYPED = PutSource("s", {"attributes": {"x": "number", "z": "category", "k": "category"}})
POLYGON = {"polygon": {"type": "Polygon", "coordinates": [[[0, 0], [9, 0], [9, 9], [0, 0]]]}}


@pytest.mark.parametrize("change", [NARROW, RETYPED], ids=["dropped", "retyped"])
@pytest.mark.parametrize(
    "query",
    [
        {"where": "z > 1"},
        {"where": {"any": [{"in": {**POLYGON, "lon": "x", "lat": "z"}}]}},
        {"where": "x > 1", "keep": "x > 0 or z > 0"},
        {"where": "x > 1", "select": ["z", "k"]},
        {"where": "x > 1", "aggregates": {"every": "1s", "of": ["z"]}},
    ],
    ids=["box", "shape", "keep", "select", "aggregates"],
)
@pytest.mark.parametrize("source_first", [True, False])
def test_workers_that_judged_against_different_catalogs_come_to_the_same(
    source_first: bool, query: dict[str, Any], change: PutSource
) -> None:
    begin = Engine().draft(0).prepare(BROAD).entry
    assert begin is not None
    first, second, third = (worker([begin.body]) for _ in range(3))
    put = PutQuery("q", {"source": "s", **query})
    commands: list[Command] = [change, put] if source_first else [put, change]
    prepared = [one.draft(0).prepare(made) for one, made in zip((first, second), commands, strict=True)]
    log = [begin.body, *(one.entry.body for one in prepared if one.entry)]

    seen = [
        borders(first, log, {1: prepared[0]}),
        borders(second, log, {2: prepared[1]}),
        borders(third, log, {}),
    ]
    assert seen[0] == seen[1] == seen[2]
    holds = source_first and change is RETYPED and "select" in query  # what is told may be of either type
    entered, left = (["q"], [], "registered"), ([], ["q"], "quarantined")
    assert seen[0] == ([entered] if holds else [] if source_first else [entered, left])
    later = Engine()
    later.command(list(enumerate(log)), 0)
    for one in (first, second, third, later):
        assert list(one.catalog.queries) == (["q"] if holds else [])
        assert list(one.catalog.quarantined) == ([] if holds else ["q"])
        assert one.catalog.sources == third.catalog.sources
    for one in (first, second, third):
        stream = one.stream("s", "m")
        assert stream is not None
        assert stream.inside == (["q"] if holds else [])


def test_an_attribute_that_is_new_breaks_nothing_that_was_judged_before() -> None:
    begin = Engine().draft(0).prepare(NARROW).entry
    assert begin is not None
    first, second = worker([begin.body]), worker([begin.body])
    judged = second.draft(0).prepare(PutQuery("q", {"source": "s", "where": "x > 1"}))
    wider = first.draft(0).prepare(BROAD).entry
    assert judged.entry is not None and wider is not None
    log = [begin.body, wider.body, judged.entry.body]
    assert borders(second, log, {2: judged}) == borders(first, log, {}) == [(["q"], [], "registered")]
    assert second.catalog.queries == first.catalog.queries


def member(id: str, collection: str | None = "c", **fields: Any) -> PutQuery:
    tags = {} if collection is None else {"collection": collection}
    return PutQuery(id, {"source": "s", "where": "x > 0", "tags": tags, **fields})


def compacted(log: list[Entry]) -> list[tuple[int, Any]]:
    """What is left of a log: the newest entry of each key."""
    newest = {key: offset for offset, (key, _) in enumerate(log)}
    return [(offset, body) for offset, (key, body) in enumerate(log) if newest[key] == offset]


def write(engine: Engine, log: list[Entry], *commands: Command) -> None:
    for command in commands:
        entry = engine.draft(0).prepare(command).entry
        assert entry is not None
        log.append(entry)
        engine.command([(len(log) - 1, entry.body)], 0)


def test_a_query_stays_behind_its_source_whatever_compaction_takes() -> None:
    engine = Engine()
    log: list[Entry] = []
    write(engine, log, PutSource("s", {"attributes": {"x": "number"}}), BROAD)
    write(engine, log, PutQuery("q", {"source": "s", "where": "z > 0"}))
    for name in ("y", "w"):
        attributes = {**engine.catalog.sources["s"].attributes, name: "number"}
        write(engine, log, PutSource("s", {"attributes": dict.fromkeys(attributes, "number")}))
    write(engine, log, PutQuery("q", {"source": "s", "where": "z > 1"}))
    again = Engine()
    again.command(compacted(log), 0)
    assert again.catalog.queries == engine.catalog.queries
    assert again.catalog.queries.keys() == {"q"}
    assert len(compacted(log)) == len(log) - 1, "every version of the source stays"


def _refused(engine: Engine, *members: Member) -> list[tuple[str, Reason]]:
    found = planned(
        "c", "s", "csv", members, engine.catalog.snapshot("c"), now_ms=5, limits=engine.catalog.limits
    )
    return [(one.place, one.refusal.reason) for one in found.told] if isinstance(found, Failures) else []


def test_an_id_that_stands_twice_in_a_file_is_refused_even_if_one_of_them_has_expired() -> None:
    engine = Engine()
    write(engine, [], BROAD)
    fresh, stale = ({"where": "x > 0", **more} for more in ({}, {"expires_at": 1}))
    for first, second in ((fresh, stale), (stale, fresh), (fresh, fresh)):
        assert _refused(engine, Member("1", "a", first), Member("2", "a", second)) == [("2", Reason.EXISTS)]
    assert _refused(engine, Member("1", "a", fresh), Member("2", "b", stale)) == []


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        ({"where": {"any": [{"x": {"gt": 0.0}}]}, "keep": "x > -1.0"}, False),
        ({"on": ["leave", "match", "enter"], "for": "1s", "aggregates": {"every": "1s", "of": ["z"]}}, False),
        ({"where": "x >= 0"}, True),
        ({"keep": "x > -2"}, True),
        ({"keep": None}, True),
        ({"on": ["enter", "leave"]}, True),
        ({"initial": "ignore"}, True),
        ({"for": None}, True),
        ({"cooldown": 5}, True),
        ({"once": True}, True),
        ({"select": ["z", "x"]}, True),
        ({"aggregates": {"every": "2s", "of": ["z"]}}, True),
        ({"tags": {"a": "c"}}, True),
        ({"enabled": False}, True),
        ({"expires_at": 99}, True),
    ],
)
def test_a_member_is_replaced_where_anything_but_the_spelling_differs(
    change: dict[str, Any], differs: bool
) -> None:
    engine = Engine()
    body = {
        "where": "x > 0",
        "keep": "x > -1",
        "for": 1_000,
        "select": ["x", "z"],
        "aggregates": {"every": 1_000, "of": ["z"]},
        "tags": {"a": "b"},
    }
    write(engine, [], BROAD, PutQuery("c:a", {"source": "s", **body, "tags": {"a": "b", "collection": "c"}}))
    members, limits = [Member("1", "a", {**body, **change})], engine.catalog.limits
    plan = planned("c", "s", "csv", members, engine.catalog.snapshot("c"), now_ms=5, limits=limits)
    assert isinstance(plan, Plan)
    assert plan.done["replaced" if differs else "unchanged"] == 1


def test_a_quarantined_query_of_somebody_else_is_not_taken_over() -> None:
    engine = Engine()
    log: list[Entry] = []
    write(engine, log, BROAD)
    for tags in ({}, {"collection": "c"}):
        body = {"id": "c:a", "source": "s", "where": "nowhere > 0", "tags": tags}
        entry = Entry("query:c:a", {"v": 1, "op": "query", "id": "c:a", "query": body})
        log.append(entry)
        engine.command([(len(log) - 1, entry.body)], 0)
        found = _refused(engine, Member("1", "a", {"where": "x > 0"}))
        assert found == ([] if tags else [("1", Reason.EXISTS)])


@pytest.mark.parametrize("broken", [False, True], ids=["registered", "quarantined"])
def test_a_query_outlives_the_late_expiry_of_its_predecessor(broken: bool) -> None:
    engine = Engine()
    log: list[Entry] = []
    body = {"source": "s", "where": "x > 0", "tags": {"collection": "c"}}
    write(engine, log, BROAD, PutQuery("c:a", {**body, "expires_at": 9}))
    late = engine.draft(0).prepare(ExpireQuery("c:a", 9)).entry
    assert late is not None
    write(engine, log, PutQuery("c:a", body))
    if broken:
        broken_entry = Entry(
            "query:c:a", {**log[-1].body, "query": {**log[-1].body["query"], "where": "w > 0"}}
        )
        log[-1] = broken_entry
        engine.command([(len(log) - 1, broken_entry.body)], 0)
    catalog = engine.catalog
    before = (
        catalog.fingerprint,
        dict(catalog.queries),
        dict(catalog.quarantined),
        dict(catalog.collections.members),
    )
    assert engine.command([(len(log), late.body)], 0) == []
    assert catalog.queries.keys() == (set() if broken else {"c:a"})
    after = catalog.fingerprint, catalog.queries, catalog.quarantined, catalog.collections.members
    assert after == before


BY_ITS_SOURCE = {"op": "source", "name": "s", "source": {"attributes": {"x": "number"}}}
BY_ITSELF = {"op": "query", "id": "q", "query": {"source": "s", "where": "nowhere > 0"}}


@pytest.mark.parametrize("expires_at", [9, "1970-01-01T00:00:00.009Z"])
@pytest.mark.parametrize("broken", [BY_ITS_SOURCE, BY_ITSELF], ids=["its source", "itself"])
def test_a_quarantined_query_expires_once(broken: dict[str, Any], expires_at: int | str) -> None:
    body = {"source": "s", "where": "z > 0", "expires_at": expires_at}
    put = {"op": "query", "id": "q", "query": body}
    second = (
        broken
        if "query" not in broken
        else {**broken, "query": {**broken["query"], "expires_at": expires_at}}
    )
    log = [BROAD_ENTRY, put, second]
    first, later = worker(log), Engine()
    later.command(list(enumerate(log)), 0)
    for engine in (first, later):
        assert list(engine.catalog.quarantined) == ["q"]
        assert engine.catalog.expired(8) == []
        assert engine.catalog.expired(9) == engine.catalog.expired(9) == [ExpireQuery("q", 9)]
        with pytest.raises(Refusal, match="no query"):
            engine.draft(9).prepare(ExpireQuery("q", 8))
    expired = first.draft(9).prepare(ExpireQuery("q", 9)).entry
    assert expired is not None
    for engine in (first, later):
        for _ in range(2):  # two workers may have written it
            assert engine.command([(engine.catalog.offset, expired.body)], 9) == []
        assert not engine.catalog.quarantined and engine.catalog.expired(99) == []
        with pytest.raises(Refusal, match="no query"):
            engine.draft(9).prepare(ExpireQuery("q", 9))
        again = PutQuery("q", {"source": "s", "where": "x > 0"}, create_only=True)
        assert engine.draft(9).prepare(again).done == "created"
    assert first.catalog.fingerprint == later.catalog.fingerprint


@pytest.mark.parametrize("expires_at", [None, "tomorrow", 9.5, [9], 10**20])
def test_a_quarantined_query_that_says_no_time_stays(expires_at: Any) -> None:
    engine = worker([BROAD_ENTRY, {**BY_ITSELF, "query": {"source": "s", "expires_at": expires_at}}])
    assert engine.catalog.expired(2**62) == [] and list(engine.catalog.quarantined) == ["q"]


def test_times_of_quarantined_queries_outlive_those_of_many_that_are_gone() -> None:
    engine = worker([BROAD_ENTRY, {**BY_ITSELF, "query": {"source": "s", "expires_at": 9}}])
    put = {"op": "query", "id": "r", "query": {"source": "s", "where": "x > 0", "expires_at": 7}}
    for number in range(2_000):
        engine.command([(2 * number + 2, put), (2 * number + 3, {"op": "delete", "id": "r"})], 0)
    assert engine.catalog.expired(9) == [ExpireQuery("q", 9)]


@pytest.mark.parametrize(
    ("commands", "version"),
    [
        ([member("c:a"), DeleteQuery("c:a")], 3),
        ([member("c:a"), PutQuery("c:a", {"source": "s", "where": "x > 1"})], 3),
        ([member("c:a", expires_at=9), ExpireQuery("c:a", 9)], 3),
        ([member("c:a"), DeleteQuery("c:a"), member("c:a", None)], 4),
        ([member("c:a"), member("c:a", None), member("c:a", None, where="x > 1")], 4),
        ([member("c:a"), member("c:a", None), DeleteQuery("c:a")], 4),
        ([member("c:a", None), DeleteQuery("c:a")], 3),
        ([member("c:a", "d"), DeleteQuery("c:a")], 3),
        ([member("d:a"), DeleteQuery("d:a")], 1),
    ],
    ids=[
        *("deleted", "taken out", "expired", "there again", "out, and changed", "out, and deleted"),
        *("never in", "of another name", "in another"),
    ],
)
def test_the_version_of_a_collection_does_not_go_back_by_compaction(
    commands: list[Command], version: int
) -> None:
    engine = Engine()
    log: list[Entry] = []
    for command in (BROAD, member("c:b"), *commands):
        entry = engine.draft(0).prepare(command).entry
        assert entry is not None
        engine.command([(len(log), entry.body)], 0)
        log.append(entry)
    assert engine.catalog.collections.versions["c"] == version
    again = Engine()
    again.command(compacted(log), 0)
    assert again.catalog.queries == engine.catalog.queries
    assert again.catalog.collections.versions["c"] == version


def test_who_asks_before_the_next_entry_shares_a_copy_that_never_changes() -> None:
    engine = Engine()

    def put(offset: int, key: str) -> None:
        query = {"source": "s", "where": "x > 0"}
        engine.catalog.apply(offset, {"op": "query", "id": key, "query": query})

    engine.catalog.apply(0, {"op": "source", "name": "s", "source": {"attributes": {"x": "number"}}})
    put(1, "a")
    put(2, "t/b")
    before = engine.catalog.contents()
    assert engine.catalog.contents() is before
    assert before.of("t") is before.of("t")
    engine.catalog.apply(3, {"op": "delete", "id": "a"})
    put(4, "t/c")
    after = engine.catalog.contents()
    assert (list(before.of("default").queries), list(before.of("t").queries)) == (["a"], ["b"])
    assert (list(after.of("default").queries), list(after.of("t").queries)) == ([], ["b", "c"])
