"""The field ``aggregates`` of a query's body."""

from __future__ import annotations

from typing import Any

import pytest

from service.language import Limits, parse_query, parse_source, patch_body, query_body
from service.model import Aggregates, Query, Reason, Refusal

SOURCES = {
    "s": parse_source("s", {"attributes": {"x": "number", "y": "number", "kind": "category"}}),
}
LEAST = {"id": "q", "source": "s", "where": "x > 0"}


def query(aggregates: Any, limits: Limits | None = None) -> Query:
    body = {**LEAST, "aggregates": aggregates}
    return parse_query(body, SOURCES, id=None, now_ms=0, limits=limits or Limits())


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (None, None),
        ({}, Aggregates(1_000, ())),
        ({"every": "5m"}, Aggregates(300_000, ())),
        ({"every": 250, "of": ["y", "x", "y"]}, Aggregates(250, ("y", "x"))),
    ],
)
def test_what_is_asked_for_and_read_back(given: Any, meant: Aggregates | None) -> None:
    found = query(given)
    assert found.aggregates == meant
    assert query(query_body(found)["aggregates"]) == found


def test_a_query_asks_for_none() -> None:
    assert parse_query(LEAST, SOURCES, id=None, now_ms=0, limits=Limits()).aggregates is None


@pytest.mark.parametrize(
    ("given", "reason", "field"),
    [
        ("1s", Reason.BAD_VALUE, "aggregates"),
        ([], Reason.BAD_VALUE, "aggregates"),
        ({"each": "1s"}, Reason.UNKNOWN_FIELD, "aggregates.each"),
        ({"every": 0}, Reason.BAD_VALUE, "aggregates.every"),
        ({"every": None}, Reason.BAD_VALUE, "aggregates.every"),
        ({"every": "soon"}, Reason.BAD_VALUE, "aggregates.every"),
        ({"of": "x"}, Reason.BAD_VALUE, "aggregates.of"),
        ({"of": [1]}, Reason.BAD_VALUE, "aggregates.of[0]"),
        ({"of": ["x", "speed"]}, Reason.UNKNOWN_ATTRIBUTE, "aggregates.of[1]"),
        ({"of": ["x", "kind"]}, Reason.NOT_A_NUMBER, "aggregates.of[1]"),
        ({"of": ["x"] * 21}, Reason.LIMIT, "aggregates.of"),
    ],
)
def test_what_is_refused(given: Any, reason: Reason, field: str) -> None:
    with pytest.raises(Refusal) as refusal:
        query(given)
    assert (refusal.value.reason, refusal.value.field) == (reason, field)


def test_the_limit_is_a_setting() -> None:
    assert query({"of": ["x", "y"]}, Limits(aggregates=2)).aggregates == Aggregates(1_000, ("x", "y"))
    with pytest.raises(Refusal) as refusal:
        query({"of": ["x", "y"]}, Limits(aggregates=1))
    assert refusal.value.reason is Reason.LIMIT


def test_a_patch_replaces_the_field_whole() -> None:
    current = query_body(query({"every": "2s", "of": ["x"]}))
    assert patch_body(current, {"aggregates": {"of": ["y"]}})["aggregates"] == {"of": ["y"]}
    assert patch_body(current, {"enabled": False})["aggregates"] == {"every": 2_000, "of": ["x"]}
