"""What the engine holds is proportional to the living: queries, streams and texts that come and go leave
nothing behind. Counted, not weighed: every object that the engine reaches, by kind."""

from __future__ import annotations

import gc
import json
import types
from collections import Counter
from typing import Any

import numpy as np

from service.engine.categories import Dictionary
from service.engine.commands import DeleteQuery
from service.engine.effects import Task
from service.engine.engine import Engine, EngineLimits
from tests.cases.engine_driver import EngineDriver

ROUNDS = 44
WARM = 22
"""Rounds after which everything has been there once, and been cleared up once."""
QUERIES = 64
STREAMS = 100
_NO_DATA = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.CodeType)


def held(engine: Engine) -> Counter[str]:
    """How many objects of each type, how many elements in containers, and bytes of arrays."""
    found: Counter[str] = Counter()
    seen: set[int] = set()
    todo: list[Any] = [engine]
    while todo:
        one = todo.pop()
        if id(one) in seen or isinstance(one, _NO_DATA):
            continue
        seen.add(id(one))
        kind = type(one).__name__
        found[kind] += 1
        if isinstance(one, np.ndarray):
            found["bytes of arrays"] += one.nbytes
        elif isinstance(one, list | dict | set):
            found[f"in a {kind}"] += len(one)
        todo += gc.get_referents(one)
    return found


def query(n: int) -> dict[str, Any]:
    """Every kind of query; all of them have a text of their own, and a time far ahead."""
    box = f"{n % 10} <= x < {n % 10 + 3} and kind != 'k{n}'"
    kinds: list[dict[str, Any]] = [
        {"where": box, "on": ["enter", "leave"]},
        {"where": box, "keep": f"{n % 10 - 1} <= x and kind != 'k{n}'"},
        {"where": box, "for": 5},
        {"where": f"({box}) or kind in ('k{n}', 'tug')", "cooldown": 3},
        {"where": box, "initial": "ignore", "tags": {"n": str(n)}},
        {"where": box, "aggregates": {"every": 1, "of": ["x"]}},
        {"where": "(x, y) in polygon([(0, 0), (3, 1), (1, 3)])"},
        {"where": box, "on": ["enter", "leave", "cross"], "once": True},
    ]
    return {"id": f"q{n}", "source": "s", "expires_at": 1_800_000_000_000 + n, **kinds[n % len(kinds)]}


def play(driver: EngineDriver, round_: int) -> None:
    """The queries of this round come and those of the last go, as do the streams."""
    first = round_ * QUERIES
    driver.bulk([query(n) for n in range(first, first + QUERIES)])
    batch = [
        {
            "stream_id": f"v{round_}-{i}",
            "ts": 10 * round_ + i % 3,
            "x": i % 14,
            "y": 1,
            "kind": f"t{round_}-{i}",
        }
        for i in range(STREAMS)
    ]
    driver.send("s", None, json.dumps(batch).encode())
    driver.clock(10 * round_)
    driver.flush()
    gone = [DeleteQuery(f"q{n}") for n in range(max(first - QUERIES, 0), first)]
    assert all(status == 200 for status, _, _ in driver.commands(gone))
    driver.engine.tidy()


def test_what_comes_and_goes_leaves_nothing_behind() -> None:
    driver = EngineDriver(EngineLimits(trace=64))
    attributes = {"x": "number", "y": "number", "kind": "category"}
    driver.source("s", {"attributes": attributes, "missing": "carry", "stream_ttl": 15})
    warm: Counter[str] = Counter()
    then: Counter[str] = Counter()
    for round_ in range(ROUNDS):
        play(driver, round_)
        if round_ >= WARM // 2:
            most = warm if round_ < WARM else then
            most |= held(driver.engine)  # of each kind the larger count
    grown = {kind: (warm[kind], count) for kind, count in then.items() if count > 1.15 * warm[kind]}
    assert not grown, "by kind: at the most until all had been there once, and later"


def test_texts_are_forgotten_with_those_that_had_them() -> None:
    """And what remains means what it did: streams of which the text is known, and queries that name one."""
    driver = EngineDriver()
    driver.source("s", {"attributes": {"x": "number", "kind": "category"}, "missing": "carry"})
    driver.bulk(
        [
            {"id": "tug", "source": "s", "where": "kind == 'tug'"},
            {"id": "not", "source": "s", "where": "kind not in ('tug', 'k9')", "keep": "kind != 'tug'"},
        ]
    )
    for name, kind in (("a", "tug"), ("b", "k9"), ("c", "k77")):
        driver.send("s", None, json.dumps({"stream_id": name, "kind": kind}).encode())
    driver.send("s", None, b'{"stream_id": "c", "x": 1}')
    driver.flush()
    before = [driver.engine.stream("s", name) for name in "abc"]
    many = [{"stream_id": "m", "kind": f"k{n}"} for n in range(25_000)]
    driver.send("s", None, json.dumps(many).encode())
    driver.send("s", b"m", None)
    driver.flush()
    dictionary = driver.engine.sets["s"].dictionaries["kind"]
    assert len(dictionary) > 25_000
    driver.engine.tidy()
    assert len(dictionary) < 5_000, "those of the trace, of streams and of queries"
    assert [driver.engine.stream("s", name) for name in "abc"] == before
    fresh = [{"stream_id": f"f{n}", "kind": f"fresh {n}"} for n in range(100)]
    driver.send("s", None, json.dumps(fresh).encode())
    driver.flush()
    assert len(dictionary.texts) < 25_010, "they take the codes that are free"
    assert driver.engine.stream("s", "f7").last == {"kind": "fresh 7"}  # type: ignore[union-attr]
    assert driver.engine.stream("s", "f7").inside == ["not"]  # type: ignore[union-attr]
    (task,) = driver.engine.tables
    assert isinstance(task, Task)
    assert driver.engine.members("tug") == ["a"]
    assert sorted(driver.engine.members("not")) == ["c", *sorted(f"f{n}" for n in range(100))]


def test_a_code_is_of_one_text_at_a_time() -> None:
    dictionary = Dictionary()
    codes = [dictionary.code(text) for text in "abcd"]
    dictionary.keep({codes[0], codes[2]}, 1)
    assert (len(dictionary), dictionary.text(codes[2])) == (2, "c")
    again = [dictionary.code(text) for text in ("e", "b", "f")]
    assert sorted(again) == [codes[1], codes[3], 4.0]
    assert [dictionary.text(code) for code in again] == ["e", "b", "f"]
    assert dictionary.code("a") == codes[0]
