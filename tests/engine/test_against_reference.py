"""The engine equals the oracle for every cause in every order, however batches are cut and whenever it is
started anew. ``make soak`` goes on where this ends."""

from __future__ import annotations

import json
from typing import Any

import pytest

from service.engine.engine import EngineLimits
from tests.cases.driver import Mode
from tests.cases.engine_driver import EngineDriver
from tests.engine.kept import KEPT
from tests.engine.search import GAMES, cut, search


@pytest.mark.parametrize("mode", ["batch", "restart"])
@pytest.mark.parametrize("number", range(len(KEPT)))
def test_kept_histories(number: int, mode: Mode) -> None:
    cut(KEPT[number]._replace(mode=mode))


@pytest.mark.parametrize(
    "game", ["line", "plane", "cuts", "jumps", "portions", "tenants", "collections", "copies"]
)
def test_random_histories(game: str) -> None:
    search(game, range(GAMES[game].histories))


def _records(driver: EngineDriver, topic: str) -> list[dict[str, Any]]:
    return [json.loads(value) for name, _, value in driver.records() if name == topic]


def test_a_full_record_is_split_by_id_whatever_the_slots() -> None:
    driver = EngineDriver(EngineLimits(ids=2))
    driver.source("s", {"attributes": {"x": "number"}})
    for id in ("e", "b", "d", "a", "c"):
        driver.command("put", {"query": {"id": id, "source": "s", "where": {"any": [{"x": {"gte": 0}}]}}})
    driver.command("put", {"query": {"id": "n", "source": "s", "where": {"any": [{"x": {"lt": 0}}]}}})
    for x in (1, -1, 1):
        driver.send("s", b"a", json.dumps({"stream_id": "a", "x": x}).encode())
    driver.flush()
    assert [(r["seq"], r["leave"], r["enter"]) for r in _records(driver, "borders")] == [
        (1, [], ["a", "b"]),
        (2, [], ["c", "d"]),
        (3, [], ["e"]),
        (4, ["a", "b"], []),
        (5, ["c", "d"], []),
        (6, ["e"], ["n"]),
        (7, ["n"], ["a"]),
        (8, [], ["b", "c"]),
        (9, [], ["d", "e"]),
    ]
    matches = _records(driver, "matches")
    assert [(m["queries"], m.get("chunk"), m.get("chunks")) for m in matches] == [
        (["a", "b"], 1, 3),
        (["c", "d"], 2, 3),
        (["e"], 3, 3),
        (["n"], None, None),
        (["a", "b"], 1, 3),
        (["c", "d"], 2, 3),
        (["e"], 3, 3),
    ]


def test_streams_past_the_limit_are_refused_wherever_the_batch_is_cut() -> None:
    outputs = []
    for mode in ("one", "batch"):
        driver = EngineDriver(EngineLimits(streams=2))
        driver.source("s", {"attributes": {"x": "number"}})
        for key, value in [("a", 1), ("b", 1), ("c", 1), ("a", None), ("c", 2), ("a", 3), ("b", 2)]:
            event = None if value is None else json.dumps({"stream_id": key, "x": value}).encode()
            driver.send("s", key.encode(), event)
            if mode == "one":
                driver.flush()
        driver.flush()
        outputs.append(driver.records())
        refused = _records(driver, "dead_letter")
        assert [(r["reason"], r["stream_id"], r["origin"]["offset"]) for r in refused] == [
            ("limit", "c", 2),
            ("limit", "a", 5),
        ]
    assert outputs[0] == outputs[1]
