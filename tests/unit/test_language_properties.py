"""Properties of conditions: nothing but a region or a refusal; membership as a child would judge it; the way
back from every region."""

from __future__ import annotations

import itertools
import json
import math
import sys
from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from service.language import (
    Limits,
    load_json,
    parse_query,
    parse_source,
    parse_where,
    print_region,
    query_body,
    region_json,
    source_body,
)
from service.model import LOWEST, AttributeType, Interval, Reason, Refusal, Region, Source, Texts

GRID = Source(
    "grid", {"x": AttributeType.NUMBER, "y": AttributeType.NUMBER, "k": AttributeType.CATEGORY}, "t"
)
NUMBERS, LETTERS = range(9), "abc"

#: A busy machine is no failure.
unhurried = settings(deadline=None)

Tree = tuple[Any, ...]
Values = Mapping[str, float | str]

# ---- membership on a grid: trees of ("x", op, value), ("not", t), ("and", t, t, ...), ("or", t, t, ...)

number = st.tuples(
    st.sampled_from("xy"), st.sampled_from([">", ">=", "<", "<=", "==", "!="]), st.sampled_from(NUMBERS)
)
numbers = st.tuples(
    st.sampled_from("xy"),
    st.sampled_from(["in", "not in"]),
    st.lists(st.sampled_from(NUMBERS), min_size=1, max_size=3),
)
chain = st.tuples(
    st.sampled_from(NUMBERS), st.sampled_from("xy"), st.sampled_from(["<", "<="]), st.sampled_from(NUMBERS)
).map(lambda c: ("chain", c[1], c[0], c[2], c[3]))
letter = st.tuples(st.just("k"), st.sampled_from(["==", "!="]), st.sampled_from(LETTERS))
letters = st.tuples(
    st.just("k"),
    st.sampled_from(["in", "not in"]),
    st.lists(st.sampled_from(LETTERS), min_size=1, max_size=3),
)
leaf = st.one_of(number, numbers, chain, letter, letters)
trees = st.recursive(
    leaf,
    lambda inner: st.one_of(
        st.tuples(st.just("not"), inner),
        st.tuples(st.sampled_from(["and", "or"]), inner, inner),
        st.tuples(st.sampled_from(["and", "or"]), inner, inner, inner),
    ),
    max_leaves=8,
)

COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "in": lambda a, b: a in b,
    "not in": lambda a, b: a not in b,
}


def text_of(tree: Tree) -> str:
    match tree:
        case ("not", part):
            return f"not ({text_of(part)})"
        case ("and" | "or", *parts):
            return f" {tree[0]} ".join(f"({text_of(part)})" for part in parts)
        case ("chain", name, lo, sign, hi):
            return f"{lo} {sign} {name} {sign} {hi}"
        case (name, op, list(values)):
            return f"{name} {op} [{', '.join(map(repr, values))}]"
        case (name, op, value):
            return f"{name} {op} {value!r}"
    raise AssertionError(tree)


def holds(tree: Tree, values: Values, wanted: bool = True) -> bool:
    """Whether the tree (or, for ``wanted`` False, its negation) is true of the values. Independent of how the
    language does it: no boxes, no opposites of operators."""
    match tree:
        case ("not", part):
            return holds(part, values, not wanted)
        case ("and" | "or", *parts):
            found = [holds(part, values, wanted) for part in parts]
            return all(found) if (tree[0] == "and") == wanted else any(found)
        case ("chain", name, lo, sign, hi):
            return (
                name in values
                and (COMPARE[sign](lo, values[name]) and COMPARE[sign](values[name], hi)) == wanted
            )
        case (name, op, bound):
            return name in values and COMPARE[op](values[name], bound) == wanted
    raise AssertionError(tree)


def points() -> list[Values]:
    """Every combination of grid values, of values between them, and of missing ones."""
    steps = [None, -1, *itertools.chain.from_iterable((n, n + 0.5) for n in NUMBERS)]
    found: list[Values] = []
    for x, y, k in itertools.product(steps, steps, [None, *LETTERS, "other"]):
        whole: dict[str, Any] = {"x": x, "y": y, "k": k}
        found.append({name: value for name, value in whole.items() if value is not None})
    return found


POINTS = points()


def inside(region: Region) -> list[bool]:
    return [values in region for values in POINTS]


@unhurried
@given(trees)
def test_a_text_is_true_where_its_tree_is(tree: Tree) -> None:
    truth = [holds(tree, values) for values in POINTS]
    try:
        region = parse_where(text_of(tree), GRID, limit=10_000)
    except Refusal as refusal:
        # Only a disjunct that is empty may be refused; a tree that is one disjunct is then false everywhere.
        assert refusal.reason is Reason.EMPTY_RANGE
        if not any(kind in text_of(tree) for kind in (" or ", "not (")):
            assert not any(truth)
        return
    assert inside(region) == truth
    assert_comes_back(region, GRID)


bounds = st.one_of(
    st.tuples(
        st.sampled_from("xy"),
        st.dictionaries(
            st.sampled_from(["gt", "gte", "lt", "lte", "eq", "ne"]),
            st.sampled_from(NUMBERS),
            min_size=1,
            max_size=3,
        ),
    ),
    st.tuples(
        st.sampled_from("xy"),
        st.dictionaries(
            st.sampled_from(["in", "not_in"]),
            st.lists(st.sampled_from(NUMBERS), min_size=1, max_size=3),
            min_size=1,
        ),
    ),
    st.tuples(
        st.just("k"), st.dictionaries(st.sampled_from(["eq", "ne"]), st.sampled_from(LETTERS), min_size=1)
    ),
    st.tuples(
        st.just("k"),
        st.dictionaries(
            st.sampled_from(["in", "not_in"]),
            st.lists(st.sampled_from(LETTERS), min_size=1, max_size=3),
            min_size=1,
        ),
    ),
)
disjuncts = st.lists(st.lists(bounds, max_size=3).map(dict), min_size=1, max_size=4)
SIGNS = {
    "gt": ">",
    "gte": ">=",
    "lt": "<",
    "lte": "<=",
    "eq": "==",
    "ne": "!=",
    "in": "in",
    "not_in": "not in",
}


def tree_of(disjunct: dict[str, dict[str, Any]]) -> Tree:
    return ("and", *((name, SIGNS[op], bound) for name, ops in disjunct.items() for op, bound in ops.items()))


@unhurried
@given(disjuncts)
def test_json_is_true_where_its_tree_is_and_equals_its_text(written: list[dict[str, Any]]) -> None:
    whole = [tree_of(disjunct) for disjunct in written]
    truths = [[holds(tree, values) for values in POINTS] for tree in whole]
    text = " or ".join(f"({text_of(tree)})" if len(tree) > 1 else "True" for tree in whole)
    outcomes: list[Region | Reason] = []
    for form in ({"any": written}, text):
        try:
            outcomes.append(parse_where(form, GRID, limit=10_000))
        except Refusal as refusal:
            outcomes.append(refusal.reason)
    assert outcomes[0] == outcomes[1]
    region = outcomes[0]
    # The points are dense enough: a disjunct that can be true is true of one of them.
    assert isinstance(region, Region) == all(any(truth) for truth in truths)
    if isinstance(region, Region):
        assert inside(region) == [any(column) for column in zip(*truths, strict=True)]
        assert_comes_back(region, GRID)
    else:
        assert region is Reason.EMPTY_RANGE


# ---- the way back

EXTREMES = [LOWEST, -5e-324, 0.0, 5e-324, 2.0**53, 2.0**53 + 2, 0.1, 1e22, 1e300, sys.float_info.max]
floats = st.one_of(st.sampled_from(EXTREMES), st.floats(allow_nan=False, allow_infinity=False)).map(
    lambda n: n + 0.0
)


@st.composite
def intervals(draw: st.DrawFn) -> Interval:
    lo = draw(floats)
    if draw(st.booleans()):
        hi = lo
        for _ in range(draw(st.integers(1, 3))):
            hi = math.nextafter(hi, math.inf) + 0.0
    else:
        hi = draw(st.one_of(floats, st.just(math.inf)))
    return Interval(min(lo, hi), max(lo, hi)) if lo != hi else Interval(lo, math.inf)


texts: st.SearchStrategy[Interval | Texts] = st.builds(
    Texts, st.frozensets(st.text(max_size=4), min_size=1, max_size=3), st.booleans()
)
numeric: st.SearchStrategy[Interval | Texts] = intervals()
conjuncts: st.SearchStrategy[dict[str, Interval | Texts]] = st.fixed_dictionaries(
    {}, optional={"x": numeric, "y": numeric, "k": texts}
)
regions = st.lists(conjuncts, min_size=1, max_size=4).map(lambda found: Region(tuple(found)))


def assert_comes_back(region: Region, source: Source) -> None:
    assert parse_where(print_region(region), source, limit=10_000) == region
    assert parse_where(load_json(json.dumps(region_json(region)).encode()), source, limit=10_000) == region


@unhurried
@given(regions)
def test_every_region_comes_back_from_its_text_and_from_its_json(region: Region) -> None:
    assert_comes_back(region, GRID)


# ---- nothing but an answer or a refusal

WORDS = [
    *("x", "y", "k", "z", "and", "or", "not", "in", "is", "if", "else", "for", "lambda", "await", "None"),
    *("True", "False", "<", "<=", ">", ">=", "==", "!=", "=", "(", ")", "[", "]", "{", "}", ",", "-", "+"),
    *(
        "*",
        ":",
        ".",
        "'a'",
        '"b"',
        "'",
        "f'{x}'",
        "b'a'",
        "'\\d'",
        "'\\ud800'",
        "\\",
        "\n",
        "\r",
        "\x0c",
        "#",
    ),
    *(
        "0",
        "1",
        "05",
        "2.5",
        "1e999",
        "9007199254740993",
        "1_0",
        "1_",
        "0x1",
        "5j",
        "1or",
        "1.",
        ".5",
        "ﬁ",
        "é",
    ),
]
words = st.lists(st.sampled_from(WORDS), max_size=12)
texts_of_words = st.tuples(words, st.sampled_from(["", " "])).map(lambda pair: pair[1].join(pair[0]))
surrogates = st.text(st.characters(), max_size=30)
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([2**53 + 1, -(10**308), 10**400]),
    st.floats(),
    st.text(st.characters(), max_size=5),
    st.sampled_from(
        ["x", "a", "x > 5", "q", "grid", "emit", "30s", "match", "number", "2030-01-01T00:00:00Z"]
    ),
)
KEYS = [
    *("any", "x", "y", "k", "z", "gt", "gte", "lt", "lte", "eq", "ne", "in", "not_in"),
    *("id", "source", "where", "on", "initial", "keep", "for", "select", "tags", "enabled", "expires_at"),
    *("attributes", "topic", "key", "ts", "paths", "missing", "nulls", "late", "stream_ttl", "stale_after"),
    *("dedup", "by", "last"),
]
json_values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.one_of(st.sampled_from(KEYS), st.text(st.characters(), max_size=3)), inner, max_size=4
        ),
    ),
    max_leaves=12,
)


@unhurried
@given(st.one_of(texts_of_words, surrogates))
def test_any_text_gives_a_region_or_a_refusal(text: str) -> None:
    try:
        region = parse_where(text, GRID, limit=50)
    except Refusal as refusal:
        assert refusal.field == "where"
        return
    assert_comes_back(region, GRID)


@unhurried
@given(json_values.filter(lambda value: not isinstance(value, str)))
def test_any_json_gives_a_region_or_a_refusal(value: Any) -> None:
    for where in (value, {"any": value}, {"any": [value]}, {"any": [{"x": value, "k": value}]}):
        try:
            region = parse_where(where, GRID, limit=50)
        except Refusal as refusal:
            assert refusal.field.startswith("where")
            continue
        assert_comes_back(region, GRID)


@unhurried
@given(json_values, st.one_of(st.none(), st.text(max_size=3)), st.sampled_from([None, 0, 2**60]))
def test_any_body_gives_a_query_or_a_refusal(value: Any, id: str | None, now_ms: int | None) -> None:
    body = {"id": "q", "source": "grid", "where": "x > 5"}
    for candidate in (value, *({**body, key: value} for key in KEYS)):
        try:
            query = parse_query(candidate, {"grid": GRID}, id=id, now_ms=now_ms, limits=Limits())
        except Refusal:
            continue
        again = parse_query(query_body(query), {"grid": GRID}, id=None, now_ms=now_ms, limits=Limits())
        assert again == query


@unhurried
@given(json_values, json_values)
def test_any_body_gives_a_source_or_a_refusal(name: Any, value: Any) -> None:
    body = {"attributes": {"x": "number"}}
    for candidate in (value, {"attributes": value}, *({**body, key: value} for key in KEYS)):
        for given_name in (name, "grid"):
            try:
                source = parse_source(given_name, candidate)
            except Refusal:
                continue
            assert parse_source(source.name, source_body(source)) == source


JSON_TEXTS = st.lists(
    st.sampled_from(
        [*'{}[]:,"', '"a"', '"\\u00e9"', '"\\ud800"', "1", "-0.0", "1e999", "NaN", "null", " ", "9" * 400]
    ),
    max_size=12,
).map("".join)


@unhurried
@given(st.one_of(st.binary(max_size=20), JSON_TEXTS.map(str.encode)))
def test_any_bytes_give_json_or_a_refusal(raw: bytes) -> None:
    try:
        value = load_json(raw)
    except Refusal:
        return
    assert json.dumps(value, ensure_ascii=False).encode()


@unhurried
@given(json_values)
def test_json_written_by_others_is_read_unchanged_or_refused(value: Any) -> None:
    try:
        assert load_json(json.dumps(value).encode()) == value
    except Refusal as refusal:
        assert refusal.reason in (Reason.SYNTAX, Reason.NOT_FINITE, Reason.INEXACT)
