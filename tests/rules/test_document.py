"""YAML as rule tests read it: the core schema of 1.2, times, digits as they are, mistakes with their line."""

from __future__ import annotations

import json
from typing import Any

import pytest

from service.rules.document import Node, RuleFileError, read_document


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", "on"),
        ("yes", "yes"),
        ("No", "No"),
        ("true", True),
        ("FALSE", False),
        ("null", None),
        ("~", None),
        ("'null'", "null"),
        ("17", 17),
        ('"17"', "17"),
        ("+5", 5),
        ("-.5", -0.5),
        ("1e5", 100000.0),
        ("007", 7),
        ("0x1F", 31),
        ("0o17", 15),
        ("12:30", "12:30"),
        ("1_000", "1_000"),
        ("1970-01-02", 86_400_000),
        ("1970-01-01T00:00:01Z", 1000),
        ("1970-01-01 00:00:01.250", 1250),
        ("1970-01-01T01:00:00+01:00", 0),
        ("'1970-01-02'", "1970-01-02"),
        ("[a, {b: 1}]", ["a", {"b": 1}]),
        ("{on: 1, 2: x}", {"on": 1, "2": "x"}),
    ],
)
def test_values(text: str, value: Any) -> None:
    node = read_document(text)
    assert node.plain() == value
    assert type(node.plain()) is type(value)
    assert json.loads(node.json_text()) == value


@pytest.mark.parametrize("text", ["9007199254740993", "9007199254740993.0", "1e999", "-0.0", "1E+2", "0.10"])
def test_numbers_keep_their_digits(text: str) -> None:
    assert read_document(text).json_text() == text


@pytest.mark.parametrize(
    ("text", "line", "field", "detail"),
    [
        ("", 1, "", "empty"),
        ("# nothing\n", 1, "", "empty"),
        ("a: 1\nb:\n  c: 1\n  c: 2\n", 4, "b.c", "twice"),
        ("a: 1\n---\nb: 2\n", 2, "", "second document"),
        ("a:\n  - !!str 5\n", 2, "a[0]", "tags"),
        ("c:\n  <<: {b: 1}\n", 2, "c.<<", "merge"),
        ("a: *x\n", 1, "a", "anchors and aliases"),
        ("b: 1\na: &x [1]\n", 2, "a", "anchors and aliases"),
        ('a: "\\ud800"\n', 1, "a", "surrogate"),
        ('a: {"\\ud800": 1}\n', 1, "a", "surrogate"),
        ("a: 0x" + "f" * 5000, 1, "a", "too long"),
        ("a:\n- b\n- .nan\n", 3, "a[1]", "no JSON number"),
        ("a: -.inf\n", 1, "a", "no JSON number"),
        ("a: +1e999\n", 1, "a", "as JSON does"),
        ("a: " + "9" * 5000, 1, "a", "too long"),
        ("a: 2024-13-01\n", 1, "a", "no time"),
        ("? [a]\n: 1\n", 1, "", "must be a text"),
        ("a: [1, 2\nb: 3\n", 2, "", "no YAML"),
        ("a: \x07\n", 1, "", "no YAML"),
        ("[" * 100 + "]" * 100, 1, "[0]" * 61, "nested too deep"),
    ],
)
def test_mistakes(text: str, line: int, field: str, detail: str) -> None:
    with pytest.raises(RuleFileError, match=detail) as caught:
        read_document(text)
    assert (caught.value.line, caught.value.field) == (line, field)


def test_a_field_stands_at_its_name() -> None:
    assert read_document("a:\n\n  - 1\n").mapping()["a"].line == 1


def test_a_path_leads_as_far_as_it_can() -> None:
    node = read_document("where:\n  any:\n    - lat: 1\n    - lat:\n        gte: x\n")
    assert node.reach("where.any[1].lat.gte").line == 5
    assert node.reach("where.any[1].lon").line == 4
    assert node.reach("where.any[7]").line == 2
    assert node.reach("tags").line == 1
    assert node.reach("").line == 1


def test_a_misspelt_field_is_refused_with_what_was_meant() -> None:
    node = read_document("naem: x\nsteps: []\n")
    with pytest.raises(RuleFileError, match=r"line 1: naem: .*did you mean name\?"):
        node.fields(("name", "steps"))
    with pytest.raises(RuleFileError, match="there are a, b"):
        read_document("zzz: 1").fields(("a", "b"))


@pytest.mark.parametrize(
    ("ask", "detail"),
    [
        (Node.mapping, "must be a mapping of fields, not 1"),
        (Node.items, "must be a list, not 1"),
        (Node.text, "must be a text, not 1"),
        (Node.texts, "must be a list, not 1"),
    ],
)
def test_a_value_of_another_kind_is_refused(ask: Any, detail: str) -> None:
    with pytest.raises(RuleFileError, match=detail):
        ask(read_document("1"))
