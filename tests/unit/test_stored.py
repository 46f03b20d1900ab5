"""The short way of reading stored queries: what it gives is what the whole way gives, whatever the bytes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service import language, stored, wire
from service.engine.catalog import Catalog
from service.engine.commands import Entry, put_entry
from service.language import MAX_INSTANT_MS, Limits, parse_query, parse_source, query_body, source_body
from service.stored import StoredQueries

ATTRIBUTES = {"x": "number", "y": "number", "k": "category"}
SOURCES = {name: parse_source(name, {"attributes": ATTRIBUTES}) for name in ("s", "t")}


def source_message(name: str, attributes: dict[str, str]) -> bytes:
    body = source_body(parse_source(name, {"attributes": attributes}))
    return message(Entry(f"source:{name}:", {"v": 1, "op": "source", "name": name, "source": body}))


def message(entry: Entry, by: str | None = "ann") -> bytes:
    written = wire.command_message(entry, at_ms=1_700_000_000_000, by=by).value
    assert written is not None
    return written


def written(body: dict[str, Any], tenant: str = "default") -> bytes:
    """The entry of a query as the service writes it."""
    query = parse_query(body, SOURCES, id=None, now_ms=None, limits=Limits(), tenant=tenant)
    return message(put_entry(query.id, query_body(query)))


def catalog_of(values: Iterable[bytes], *, short: bool) -> Catalog:
    catalog = Catalog(
        limits=Limits(), max_queries=1_000, max_queries_tenant=1_000, max_disjuncts_tenant=1_000
    )
    queries = StoredQueries(catalog.sources)
    for offset, value in enumerate(values):
        query = queries.read(value) if short else None
        catalog.apply(offset, query or wire.command_body(value))
    return catalog


def told(catalog: Catalog) -> Any:
    """All that a catalog holds of queries."""
    quarantined = {
        id: (one.body, str(one.refusal), one.version, one.expires_at)
        for id, one in catalog.quarantined.items()
    }
    held = [catalog.queries, list(catalog.queries), quarantined, dict(catalog.queries_of)]
    return [*held, catalog.fingerprint, catalog.expired(1 << 60), catalog.collections.members]


def check(values: list[bytes]) -> None:
    assert told(catalog_of(values, short=True)) == told(catalog_of(values, short=False))


ids = st.sampled_from(["q", "r", "c:1", "c:2", "a~b", "...", "x" * 200])
numbers = st.sampled_from([0, 1, 2.5, -3, 1e300, 12345.678])
conditions = st.sampled_from(
    [
        *("x > 1", "2 <= x < 3.5", "x < 1 or y > 2", "k == 'a'", "k in ('a', 'b') and x >= 0", "x != 4"),
        *('k == "it\'s"', "k == 'ä'", "k == 'a\\\\b'", "not (x > 1)"),
        *({"any": [{"x": {"gte": 1, "lt": 2}}]}, {"any": [{"k": {"in": ["a", "]},"]}}, {"y": {"gt": -1.5}}]}),
        {"any": [{"k": {"eq": ']},"on":["enter"],"initial":"emit"'}, "x": {"lte": 7}}]},
    ]
)
tags = st.sampled_from(
    [
        *({}, {"team": "a"}, {"collection": "c"}, {"collection": "d", "n": "1"}, {"a": "}", "b": "{"}),
        *({"ä": "ö"}, {'"': "\\"}, {str(n): "" for n in range(100)}, {"enabled": "false"}),
    ]
)


@st.composite
def bodies(draw: st.DrawFn) -> dict[str, Any]:
    body: dict[str, Any] = {"id": draw(ids), "source": draw(st.sampled_from("st")), "where": draw(conditions)}
    choices: dict[str, st.SearchStrategy[Any]] = {
        "on": st.sampled_from([["match"], ["enter", "leave"], ["leave", "match", "enter"]]),
        "initial": st.sampled_from(["emit", "ignore"]),
        "keep": st.sampled_from([None, "x > -1e9 or x <= 0 or y > 0 or k != 'no' or k == 'no'"]),
        "for": st.sampled_from([None, 5, "2s"]),
        "cooldown": st.sampled_from([None, 7]),
        "once": st.booleans(),
        "select": st.sampled_from([[], ["x"], ["y", "k"]]),
        "aggregates": st.sampled_from([None, {"every": 1000, "of": ["x", "y"]}, {}]),
        "tags": tags,
        "enabled": st.booleans(),
        "expires_at": st.sampled_from([None, 1, 1_900_000_000_000, -5, MAX_INSTANT_MS]),
    }
    for name in draw(st.sets(st.sampled_from(list(choices)), max_size=4)):
        body[name] = draw(choices[name])
    return body


def accepted(body: dict[str, Any], tenant: str = "default") -> list[bytes]:
    try:
        return [written(body, tenant)]
    except language.Refusal:
        return []


tenants = st.sampled_from(["default", "acme", "a.b-c"])
entries = st.builds(accepted, bodies(), tenants)
changes = st.sampled_from(
    [
        *({"x": "number", "y": "number"}, {"x": "number", "k": "category", "y": "number"}),
        *({"x": "category", "y": "number", "k": "number"}, {**ATTRIBUTES, "z": "number"}),
    ]
)
source_entries = st.builds(lambda name, kinds: [source_message(name, kinds)], st.sampled_from("st"), changes)
FIRST = [source_message("s", ATTRIBUTES), source_message("t", ATTRIBUTES)]


@given(st.lists(st.one_of(entries, entries, entries, source_entries), max_size=12))
def test_a_log_is_read_as_the_whole_way_reads_it(log: list[list[bytes]]) -> None:
    check([*FIRST, *(value for values in log for value in values)])


PLAIN = {"id": "q", "source": "s", "where": "1 <= x < 2"}
KINDS: dict[str, dict[str, Any]] = {
    "text": PLAIN,
    "json": {**PLAIN, "where": {"any": [{"x": {"gte": 1, "lt": 2}, "k": {"eq": "a"}}]}},
    "texts": {**PLAIN, "where": "k == 'a' and x > 1"},
    "keep": {**PLAIN, "keep": "0 <= x < 3"},
    "tags": {**PLAIN, "tags": {"n": "1"}},
    "expires": {**PLAIN, "expires_at": 1_900_000_000_000},
    "settings": {**PLAIN, "on": ["enter"], "select": ["x"], "aggregates": {"of": ["x"]}, "for": 5},
}


@pytest.mark.parametrize("tenant", ["default", "acme"])
@pytest.mark.parametrize("kind", list(KINDS))
def test_what_the_service_writes_is_read_the_whole_way_once(
    kind: str, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Any] = []

    def counted(*args: Any, **more: Any) -> Any:
        read.append(args)
        return parse_query(*args, **more)

    monkeypatch.setattr(stored, "parse_query", counted)
    queries = StoredQueries(SOURCES)
    for n in range(20):
        body = json.loads(json.dumps({**KINDS[kind], "id": f"q{n}"}).replace("1", str(1 + n % 2)))
        body["where"] = KINDS[kind]["where"]
        value = written(body, tenant)
        expected = wire.command_body(value)
        whole = parse_query(expected["query"], SOURCES, id=None, now_ms=None, limits=Limits(), tenant=tenant)
        assert queries.read(value) == whole
    assert len(read) == 1


# ---- by hand

PIECES = [
    *(b'"', b"{", b"}", b"[", b"]", b",", b":", b"\\", b" ", b"null", b"true", b"0", b"-1", b"1e5", b"\xff"),
    *(b'"keep":"x > 0"', b'"where":"x > 5"', b'"id":"q"', b'"id":"other"', b'"source":"t"', b'"tags":{}'),
    *(b'"enabled":false', b'"on":["leave"]', b'"expires_at":1', b'"collection":"c"', b'"v":2', b"default/"),
    *(b'"for":3', b'"select":["nix"]', b'"on":["cross"]', b'"on":[]', b'"initial":"never"', b'"k":', b"},"),
    *(b"acme/", b"999999999999999"),
]


@st.composite
def mutants(draw: st.DrawFn) -> list[bytes]:
    value = written(draw(st.sampled_from(list(KINDS.values()))))
    values = [value]
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(value)))
        end = min(len(value), start + draw(st.sampled_from([0, 0, 1, 2, 5, 12])))
        value = value[:start] + draw(st.sampled_from(PIECES)) + value[end:]
        values.append(value)
    return values


@given(st.lists(mutants(), min_size=1, max_size=3))
def test_entries_by_hand_are_read_as_the_whole_way_reads_them(made: list[list[bytes]]) -> None:
    check([*FIRST, *(value for values in made for value in values)])


def changed(old: str, new: str) -> bytes:
    value = written({**PLAIN, "tags": {"n": "1"}})
    assert old.encode() in value
    return value.replace(old.encode(), new.encode())


@pytest.mark.parametrize(
    "value",
    [
        *(
            changed('"id":"q"', f'"id":"{id}"')
            for id in (".", "..", "default/q", "acme/q", "a/b/q", "", "q/")
        ),
        changed('"op":"query","id":"q"', '"op":"query","id":"p"'),
        changed('"op":"query","id":"q"', '"op":"query","id":"default/q"'),
        *(
            changed('"source":"s"', f'"source":{name}')
            for name in ('"u"', '"t"', "7", '"s","source":"t"')
        ),
        *(changed("1 <= x < 2", where) for where in ("2 <= x < 2", "nix > 1", "x > 1e999", "x > '1'", "")),
        *(
            changed('"tags":{"n":"1"}', f'"tags":{tags}')
            for tags in ('{"n":1}', "{n}", '{"n":"1",}', "{,}", "[]", "null", '{"n":"\\ud800"}')
        ),
        changed('"tags":{"n":"1"}', '"tags":{' + ",".join(f'"{n}":""' for n in range(101)) + "}"),
        changed('"tags":{"n":"1"}', '"tags":{"n":"1","n":"2"}'),
        *(changed('"expires_at":null', f'"expires_at":{n}') for n in ("0", "007", str(MAX_INSTANT_MS + 1))),
        *(changed('"for":null', f'"for":{n}') for n in ("0", "1", "01", "999999999999999", '"5s"')),
        *(
            changed('"on":["match","enter","leave"]', f'"on":{kinds}')
            for kinds in ("[]", '["nix"]', "[1]", '["enter",]')
        ),
        *(
            changed('"keep":null', f'"keep":{keep}')
            for keep in ('"x > 1.5"', '"x > 0"', '""', '"nix > 0"', "{}")
        ),
        *(
            changed('"enabled":true', said)
            for said in ('"enabled":false', '"enabled":1', '"enabled":true,"x":1')
        ),
        *(changed("[]", names) for names in ('["nix"]', '["x","x"]', "[1]")),
        changed('"at":1700000000000', '"at":01700000000000'),
        changed('"by":"ann"', '"by":"ann","op":"delete"'),
        changed('"by":"ann"', '"by":"ann","collection":"c"'),
    ],
)  # fmt: skip
def test_what_is_unusual_is_judged_as_ever(value: bytes) -> None:
    """Behind a plain one, and before: neither is a wrong example for the other."""
    plain = written({**PLAIN, "id": "other", "tags": {"n": "2"}})
    check([*FIRST, plain, value, plain])
    check([*FIRST, value, plain, value])


def test_what_was_read_against_another_version_of_the_source_is_no_example() -> None:
    body = {**PLAIN, "select": ["y"]}
    values = [written({**body, "id": f"q{n}"}) for n in range(3)]
    less = source_message("s", {"x": "number"})
    check([*FIRST, values[0], less, values[1], FIRST[0], values[2]])
    assert list(catalog_of([*FIRST, values[0], less, values[1]], short=True).quarantined) == ["q0", "q1"]
