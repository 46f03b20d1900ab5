"""What producers, retention and clocks do to the input, on both logs."""

from __future__ import annotations

from typing import Any

import pytest

from service.log.port import Commit, LogUnusable
from tests.faults.alone import SOURCE, ZERO, Alone, query


def event(stream_id: str, x: float, **more: Any) -> dict[str, Any]:
    return {"stream_id": stream_id, "x": x, **more}


def lose_three(alone: Alone) -> None:
    """Five events come while nobody is there, and the first three of them are gone by the time."""
    alone.begin()
    alone.ask(SOURCE, query("q", "x > 0"))
    alone.process(event("a", 1), event("b", 1))
    alone.send(*(event("a", x) for x in (-1, 1, -1)), event("b", -1), event("a", -1))
    alone.site.trim(alone.log, ZERO, 5)


def test_events_that_are_gone_stop_the_service_with_a_word(alone: Alone) -> None:
    lose_three(alone)
    for _ in range(2):
        with pytest.raises(LogUnusable, match=r"events\.s/0 begins at 5: 3 messages from 2 on .*lost_input"):
            alone.begin()
    assert alone.told() == [("a", 1, "event", [], ["q"]), ("b", 1, "event", [], ["q"])]


def test_events_that_are_gone_are_passed_over_where_the_setting_says_so(alone: Alone) -> None:
    lose_three(alone)
    alone.begin(lost_input="go_on")
    assert alone.told()[2:] == [("b", 2, "event", ["q"], []), ("a", 2, "event", ["q"], [])]
    assert b"rangewatch_events_lost_total 3.0" in alone.worker._metrics.text()
    alone.begin()
    alone.process(event("a", 3))
    assert alone.folded() == {"a": {"q"}, "b": set()}


def test_a_topic_that_ends_before_the_position_is_another_one(alone: Alone) -> None:
    alone.begin()
    alone.ask(SOURCE, query("q", "x > 0"))
    alone.process(event("a", 1), event("b", 1))
    partition, position = ZERO, alone.log.position(ZERO)
    assert position is not None
    alone.log.commit(Commit([], {}, {partition: position._replace(event=7)}))
    for _ in range(2):
        with pytest.raises(LogUnusable, match=r"events\.s/0 ends at 2, and events up to 7 .*another"):
            alone.begin()


def test_a_clock_that_steps_back_undoes_nothing(alone: Alone) -> None:
    began = alone.now
    alone.begin()
    alone.ask(SOURCE, query("now", "x > 0"), query("waits", "x > 0", **{"for": "10s"}))
    alone.process(event("a", 1), event("b", 1))
    alone.now += 6_000
    alone.process(event("a", 2))
    alone.now -= 3_600_000
    alone.process(event("a", -1), event("a", 3))
    alone.ask(query("later", "x > 0"))
    alone.begin()
    alone.process(event("c", 1))
    alone.now = began + 9_000
    alone.settle()
    assert not any("waits" in record["enter"] for record in alone.borders())
    alone.now = began + 10_000
    alone.settle()
    entered = [(r["stream_id"], r["ts"]) for r in alone.borders() if "waits" in r["enter"]]
    assert entered == [("b", began + 10_000)], "the wait of a began anew"
    alone.now = began + 20_000
    alone.settle()
    entered = [(r["stream_id"], r["ts"]) for r in alone.borders() if "waits" in r["enter"]]
    assert sorted(entered) == [(id, began + ms) for id, ms in (("a", 16_000), ("b", 10_000), ("c", 16_000))]
    assert set(map(frozenset, alone.folded().values())) == {frozenset(("now", "waits", "later"))}


def test_what_a_producer_sends_twice_leaves_the_borders_as_they_were(alone: Alone) -> None:
    """At least once: the newest events of a stream come again, in order."""
    alone.begin()
    alone.ask(SOURCE, query("q", "x > 0"))
    sent = [event("a", x, ts=ts) for ts, x in enumerate((1, -1, 2, -2, 3))]
    alone.process(*sent)
    once = alone.borders()
    alone.process(*sent[2:])
    alone.process(sent[4], sent[4])
    assert alone.borders() == once
    matches = [value or b"" for _, value in alone.site.outputs("matches")]
    assert len(matches) == 3 + 2 + 2, "each is matched as often as it comes"
    assert [b'"late":true' in value for value in matches].count(True) == 1
