"""Duplicates, and queries that nothing has fired, through everything that becomes of a slot."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from service.engine.overview import Unfired, duplicates, enabled, unfired
from service.language import region_json
from service.tenants import DEFAULT_TENANT
from tests.cases.engine_driver import EngineDriver
from tests.engine.worlds import HALVES, is_readable, region, wheres

BODY = {"attributes": {"x": "number", "y": "number", "k": "category"}}


def started() -> EngineDriver:
    driver = EngineDriver()
    driver.source("s", BODY)
    return driver


def put(driver: EngineDriver, id: str, where: Any, **fields: Any) -> None:
    status, reason, _ = driver.command("put", {"query": {"id": id, "source": "s", "where": where, **fields}})
    assert status == 200, reason


def send(driver: EngineDriver, stream_id: str, **values: Any) -> None:
    driver.send("s", None, json.dumps({"stream_id": stream_id, **values}).encode())
    driver.flush()


def idle(driver: EngineDriver) -> Unfired:
    found = unfired(driver.engine.sets["s"], DEFAULT_TENANT)
    return Unfired(sorted(found.unmatched), sorted(found.uncrossed))


def groups(driver: EngineDriver) -> list[list[str]]:
    return [group.ids for group in duplicates(enabled(driver.engine.sets["s"], DEFAULT_TENANT))]


def test_one_meaning_in_many_words_is_a_duplicate() -> None:
    driver = started()
    put(driver, "b", "x > 1 and k in ('tug', 'yacht')")
    put(driver, "a", "k in ('yacht', 'tug') and not x <= 1", on=["match"])
    put(driver, "c", {"any": [{"k": {"in": ["tug", "yacht"]}, "x": {"gt": 1}}]})
    put(driver, "near", "x >= 1 and k in ('tug', 'yacht')")
    put(driver, "off", "x > 1 and k in ('tug', 'yacht')", enabled=False)
    put(driver, "t", "True")
    put(driver, "s", "x > 1 or x <= 1 or True")
    assert groups(driver) == [["a", "b", "c"]]
    put(driver, "s", "True")
    assert groups(driver) == [["a", "b", "c"], ["s", "t"]]
    driver.command("delete", {"id": "t"})
    put(driver, "b", "x > 2")
    assert groups(driver) == [["a", "c"]]


@settings(max_examples=150, deadline=None)
@given(st.lists(wheres(HALVES, most=2).filter(is_readable), max_size=8))
def test_duplicates_are_the_equal_regions(wanted: list[Any]) -> None:
    driver = started()
    for place, where in enumerate(wanted):
        put(driver, f"q{place}", where if place % 2 else region_json(region(where)))
    regions = {f"q{place}": region(where) for place, where in enumerate(wanted)}
    alike = {tuple(sorted(b for b in regions if regions[b] == regions[a])) for a in regions}
    assert groups(driver) == sorted(list(group) for group in alike if len(group) > 1)


def test_a_query_counts_from_its_registration() -> None:
    driver = started()
    send(driver, "a", x=5)
    put(driver, "q", "x > 0")
    assert idle(driver) == Unfired(["q"], [])
    send(driver, "a", x=-5)
    assert idle(driver) == Unfired(["q"], [])
    send(driver, "a", x=5)
    assert idle(driver) == Unfired([], [])


def test_a_late_event_matches_too() -> None:
    driver = started()
    put(driver, "q", "x > 0")
    send(driver, "a", ts=5, x=-5)
    send(driver, "a", ts=4, x=5)
    assert idle(driver) == Unfired([], [])


def test_another_region_or_another_life_counts_anew_and_nothing_else_does() -> None:
    driver = started()
    put(driver, "q", "x > 0")
    send(driver, "a", x=5)
    put(driver, "q", "x > 0", tags={"a": "b"}, select=["x"], initial="ignore")
    assert idle(driver) == Unfired([], [])
    put(driver, "q", "x > 1")
    assert idle(driver) == Unfired(["q"], [])
    send(driver, "a", x=5)
    put(driver, "q", "x > 1", enabled=False)
    assert idle(driver) == Unfired([], [])
    put(driver, "q", "x > 1")
    assert idle(driver) == Unfired(["q"], [])


def test_a_slot_that_another_query_takes_over_counts_anew() -> None:
    driver = started()
    put(driver, "old", "x > 0")
    send(driver, "a", x=5)
    slot = driver.engine.sets["s"].slot_of["old"]
    driver.command("delete", {"id": "old"})
    put(driver, "between", "x > 100")  # a slot is free from the next command on
    put(driver, "new", "x > 0", enabled=False)
    assert slot in {driver.engine.sets["s"].slot_of[id] for id in ("between", "new")}
    put(driver, "new", "x > 0")
    assert idle(driver) == Unfired(["between", "new"], [])


def test_a_query_without_matches_counts_its_borders() -> None:
    driver = started()
    put(driver, "quiet", "x > 0", on=["enter", "leave"])
    put(driver, "idle", "x > 100", on=["leave"])
    assert idle(driver) == Unfired([], ["idle", "quiet"])
    send(driver, "a", x=5)
    assert idle(driver) == Unfired([], ["idle"])
    put(driver, "quiet", "x > 0")
    assert idle(driver) == Unfired(["quiet"], ["idle"])


def test_more_queries_than_there_was_room_for_at_first() -> None:
    driver = started()
    for place in range(40):
        put(driver, f"q{place:02}", f"x > {place}")
    send(driver, "a", x=35)
    assert idle(driver).unmatched == [f"q{place}" for place in range(35, 40)]
