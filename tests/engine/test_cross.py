"""Jumps over regions, exact in any number of attributes: the engine against rational arithmetic."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from service.language import Limits, parse_query, parse_source
from tests.cases.engine_driver import EngineDriver
from tests.engine.reference import jumps_over

NUMBERS = ["x", "y", "z"]
KINDS = ["tug", "cargo", "yacht"]

#: Corners, thirds that no float holds, and the floats beside them.
COORDINATE = st.sampled_from(
    [
        0.0,
        1.0,
        2.0,
        3.0,
        1 / 3,
        4 / 3,
        math.nextafter(1.0, 2.0),
        math.nextafter(2.0, 0.0),
        5e-324,
        -1e308,
        1e308,
    ]
)
BOUND = (
    st.tuples(COORDINATE, COORDINATE)
    .map(sorted)
    .flatmap(
        lambda ends: st.sampled_from(
            [
                {"gte": ends[0], "lte": ends[1]},
                {"gte": ends[0], "lt": math.nextafter(ends[1], math.inf)},
                {"gte": ends[0]},
                {"lte": ends[1]},
            ]
        )
    )
)
CATEGORY = st.one_of(
    st.sampled_from(KINDS).map(lambda kind: {"eq": kind}),
    st.sampled_from(KINDS).map(lambda kind: {"ne": kind}),
    st.just({"in": ["tug", "yacht"]}),
)


def _regions(names: list[str]) -> st.SearchStrategy[Any]:
    bounds = {name: CATEGORY if name == "k" else BOUND for name in names}
    conjuncts = st.lists(st.fixed_dictionaries({}, optional=bounds), min_size=1, max_size=3)
    return conjuncts.map(lambda conjuncts: {"any": conjuncts})


def _points(names: list[str]) -> st.SearchStrategy[dict[str, Any]]:
    values = {name: st.sampled_from(KINDS) if name == "k" else COORDINATE for name in names}
    present = st.fixed_dictionaries(values)
    return st.one_of(present, present, present, st.fixed_dictionaries({}, optional=values))


@st.composite
def _cases(draw: st.DrawFn) -> tuple[list[str], list[Any], list[dict[str, Any]]]:
    names = NUMBERS[: draw(st.integers(1, 3))] + ["k"] * draw(st.integers(0, 1))
    regions = draw(st.lists(_regions(names), min_size=1, max_size=6))
    return names, regions, draw(st.lists(_points(names), min_size=2, max_size=6))


@settings(deadline=None)
@given(_cases())
def test_who_is_jumped_over(case: tuple[list[str], list[Any], list[dict[str, Any]]]) -> None:
    names, regions, points = case
    body = {"attributes": {name: "category" if name == "k" else "number" for name in names}}
    sources = {"s": parse_source("s", body)}
    driver = EngineDriver()
    driver.source("s", body)
    queries = []
    for number, where in enumerate(regions):
        query = {"id": f"q{number}", "source": "s", "where": where, "on": ["cross"]}
        assert driver.command("put", {"query": query})[0] == 200
        queries.append(parse_query(query, sources, id=None, now_ms=0, limits=Limits()))
    for point in points:
        driver.send("s", b"a", json.dumps({"stream_id": "a", **point}).encode())
    driver.flush()
    records = [json.loads(value) for topic, _, value in driver.records() if topic == "borders"]
    found = {record["origin"]["offset"]: record["cross"] for record in records}
    for offset, (begin, end) in enumerate(pairwise(points), start=1):
        expected = [query.id for query in queries if jumps_over(query.region, begin, end)]
        assert found.get(offset, []) == expected
