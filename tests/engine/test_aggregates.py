"""Aggregates told by the engine are those of a recount after every step (``recount``)."""

from __future__ import annotations

from tests.cases.engine_driver import EngineDriver
from tests.engine.recount import TASKS, Play
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
