"""Aggregates told by the engine are those of a recount after every step (``recount``)."""

from __future__ import annotations

from tests.cases.engine_driver import EngineDriver
from tests.engine.recount import TASKS, History, Play, play
from tests.engine.search import GAMES, search


def test_every_cause_is_told_as_a_recount_would() -> None:
    search("aggregates", range(GAMES["aggregates"].histories))


def test_waits_that_end_and_streams_that_expire_in_one_tick_are_told_in_their_order() -> None:
    play = Play({"stream_ttl": 10}, restarts=False)
    play.do("put", {"id": "p", "where": "x > 0", "for": 4, "aggregates": {"every": 1, "of": ["x"]}})
    arrivals = [("a", 0, 3), ("b", 8, 5)]
    play.do("events", [{"stream_id": id, "after": after, "x": x} for id, after, x in arrivals])
    play.do("pass", 32)
    told = [(record.ts, record.content.members) for record in play.fast.told[TASKS[0]]]
    assert told == [(4, 1), (10, 0), (12, 1), (18, 0)]


def test_a_wait_that_a_late_event_ends_is_counted() -> None:
    """Its stream had been silent for too long: the late event moves nobody, but the wait was over by then."""
    query = {"id": "p", "where": "x >= 2", "aggregates": {"every": 1, "of": ["x"]}, "cooldown": 7}
    entered = [
        {"stream_id": "d", "after": 3, "x": 2},
        {"stream_id": "d", "after": 5},
        {"stream_id": "d", "after": 4, "x": 3},
        {"stream_id": "b", "after": 3},
    ]
    for after in ([{"stream_id": "d", "after": 5}], [{"stream_id": "d", "after": 1, "removed": True}], []):
        late = {"stream_id": "d", "after": 0, "late": 5}
        operations = [("put", query), ("events", entered), ("events", [late, *after])]
        played = play(History({"stale_after": 2}, restarts=False, operations=operations))
        told = [(one.content.members, one.content.of["x"].sum) for one in played.fast.told[TASKS[1]]]
        assert told[:3] == [(1, 2.0), (0, 0.0), (1, 3.0)]


def test_a_restart_after_a_query_with_aggregates_is_gone() -> None:
    driver = EngineDriver()
    driver.source("s", {"attributes": {"x": "number"}})
    query = {"id": "q", "source": "s", "where": "x > 0", "aggregates": {"every": "1s", "of": ["x"]}}
    driver.command("put", {"query": query})
    driver.send("s", b"m", b'{"stream_id": "m", "ts": 1, "x": 5}')
    driver.flush()
    driver.command("delete", {"id": "q"})
    driver.restart()
    stream = driver.engine.stream("s", "m")
    assert stream is not None
    assert (stream.inside, stream.last) == ([], {"x": 5})
