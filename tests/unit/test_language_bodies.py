"""Bodies of queries and sources: defaults, every refusal with its field, and the way back to JSON."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from service.language import (
    MAX_DURATION_MS,
    Limits,
    load_json,
    parse_duration,
    parse_query,
    parse_source,
    patch_body,
    query_body,
    source_body,
)
from service.log import topics
from service.model import (
    AttributeType,
    Dedup,
    Initial,
    Kind,
    Late,
    Missing,
    Nulls,
    Query,
    Reason,
    Refusal,
    Source,
)

NOW_MS = 1_700_000_000_000
AIS = parse_source("ais", {"attributes": {"sog": "number", "lat": "number", "kind": "category"}})
SOURCES = {"ais": AIS}
LEAST = {"id": "q", "source": "ais", "where": "sog > 10"}


def query(body: Any, *, id: str | None = None, limits: Limits | None = None) -> Query:
    return parse_query(body, SOURCES, id=id, now_ms=NOW_MS, limits=limits or Limits())


def refused(call: Any, *arguments: Any, **options: Any) -> tuple[Reason, str]:
    with pytest.raises(Refusal) as caught:
        call(*arguments, **options)
    assert caught.value.detail
    return caught.value.reason, caught.value.field


# ---- bytes


def test_json_keeps_integers_and_floats_apart() -> None:
    value = load_json(
        b'{"a": [9007199254740993, 9007199254740993.0, -0.0, 1e3, "\\ud83d\\ude00", null, true]}'
    )
    assert repr(value) == repr({"a": [2**53 + 1, 9007199254740992.0, -0.0, 1000.0, "\U0001f600", None, True]})


@pytest.mark.parametrize(
    ("raw", "reason", "field"),
    [
        (b"", Reason.SYNTAX, ""),
        (b"{", Reason.SYNTAX, ""),
        (b"{'a': 1}", Reason.SYNTAX, ""),
        (b"1 2", Reason.SYNTAX, ""),
        (b'"a\x00b"', Reason.SYNTAX, ""),
        (b"\xef\xbb\xbf{}", Reason.SYNTAX, ""),
        (b'"\xff"', Reason.SYNTAX, ""),
        (b'"\xed\xa0\x80"', Reason.SYNTAX, ""),
        (b'"\\ud800"', Reason.SYNTAX, ""),
        (b'{"a": {"\\udc00x": 1}}', Reason.SYNTAX, ""),
        (b'{"id": 1, "a": 2, "id": 1}', Reason.SYNTAX, "id"),
        (b'{"a": [{"b": {"gte": 0, "gte": 0}}]}', Reason.SYNTAX, "gte"),
        (b'{"a": 1, "\\u0061": 1}', Reason.SYNTAX, "a"),
        (b"[" * 100_000 + b"]" * 100_000, Reason.SYNTAX, ""),
        (b'{"a":' * 100_000, Reason.SYNTAX, ""),
        (b"NaN", Reason.NOT_FINITE, ""),
        (b"[-Infinity]", Reason.NOT_FINITE, "[0]"),
        (b'{"a": 1e999}', Reason.NOT_FINITE, "a"),
        (b'{"a": [1, {"b": [NaN]}, NaN], "c": NaN}', Reason.NOT_FINITE, "a[1].b[0]"),
        (b'{"a": 1, "b": ' + b"1" * 5000 + b"}", Reason.INEXACT, "b"),
        (b'{"a": NaN', Reason.NOT_FINITE, ""),
        (b'{"a": NaN, "a": 1}', Reason.NOT_FINITE, ""),
        (b"[NaN, " + b"[" * 100_000, Reason.NOT_FINITE, ""),
        (b"[" * 100 + b"NaN" + b"]" * 100, Reason.NOT_FINITE, "[0]" * 100),
        (b"[" * 500 + b"NaN" + b"]" * 500, Reason.NOT_FINITE, ""),
        (b"-1e999", Reason.NOT_FINITE, ""),
        (b"1" * 5000, Reason.INEXACT, ""),
    ],
)
def test_json_is_refused(raw: bytes, reason: Reason, field: str) -> None:
    assert refused(load_json, raw) == (reason, field)


# ---- queries


def test_a_query_of_the_required_fields_has_the_defaults_of_the_contract() -> None:
    found = query(LEAST)
    assert (found.id, found.source, found.where) == ("q", "ais", "sog > 10")
    assert query_body(found) == {
        "id": "q",
        "source": "ais",
        "where": "sog > 10",
        "on": ["match", "enter", "leave"],
        "initial": "emit",
        "keep": None,
        "for": None,
        "cooldown": None,
        "once": False,
        "select": [],
        "aggregates": None,
        "tags": {},
        "enabled": True,
        "expires_at": None,
    }


def test_a_query_of_all_fields_comes_back_equal_from_its_body() -> None:
    body = {
        "id": "A.z_0~:-",
        "source": "ais",
        "where": {"any": [{"sog": {"gt": 10}, "kind": {"in": ["tug"]}}]},
        "on": ["leave", "match", "leave"],
        "initial": "ignore",
        "keep": "sog > 8 and kind != 'cargo'",
        "for": "30s",
        "cooldown": "5m",
        "once": True,
        "select": ["sog", "kind", "sog"],
        "aggregates": {"every": "2s", "of": ["sog"]},
        "tags": {"team": "port", "": ""},
        "enabled": False,
        "expires_at": "2200-01-01T00:00:00Z",
    }
    found = query(body)
    assert (found.dwell, found.cooldown, found.once) == (30_000, 300_000, True)
    assert found.expires_at == 7_258_118_400_000
    assert found.on == {Kind.MATCH, Kind.LEAVE}
    assert (found.initial, found.select, found.enabled) == (Initial.IGNORE, ("sog", "kind"), False)
    written = query_body(found)
    assert list(written) == list(body)
    assert written["on"] == ["match", "leave"]
    assert (written["keep"], written["for"], written["cooldown"]) == (body["keep"], 30_000, 300_000)
    assert query(load_json(json.dumps(written).encode())) == found


def test_the_path_gives_the_id() -> None:
    without = {"source": "ais", "where": "sog > 10"}
    assert query(without, id="q") == query(LEAST) == query(LEAST, id="q")
    assert refused(query, LEAST, id="p") == (Reason.BAD_ID, "id")
    assert refused(query, without, id="a/b") == (Reason.BAD_ID, "id")
    assert refused(query, without) == (Reason.MISSING_FIELD, "id")


@pytest.mark.parametrize(
    "id", ["", "a b", "häfen", "a/b", "a" * 201, ".", "..", "a\n", 7, None, True, ["a"], {}]
)
def test_ids_that_are_refused(id: Any) -> None:
    assert refused(query, {**LEAST, "id": id}) == (Reason.BAD_ID, "id")


@pytest.mark.parametrize("id", ["b" * 200, "...", "~", ":"])
def test_ids_that_are_taken(id: str) -> None:
    assert query({**LEAST, "id": id}).id == id


@pytest.mark.parametrize("body", [None, 5, "sog > 5", [], True])
def test_a_body_that_is_no_object(body: Any) -> None:
    assert refused(query, body) == (Reason.SYNTAX, "")
    assert refused(query, body, id="q") == (Reason.SYNTAX, "")
    assert refused(patch_body, LEAST, body) == (Reason.SYNTAX, "")
    assert refused(parse_source, "s", body) == (Reason.SYNTAX, "")


@pytest.mark.parametrize(
    ("change", "reason", "field"),
    [
        ({"colour": "red"}, Reason.UNKNOWN_FIELD, "colour"),
        ({"source": "planes"}, Reason.UNKNOWN_SOURCE, "source"),
        ({"source": 5}, Reason.BAD_VALUE, "source"),
        ({"source": []}, Reason.BAD_VALUE, "source"),
        ({"where": None}, Reason.SYNTAX, "where"),
        ({"where": "speed > 5"}, Reason.UNKNOWN_ATTRIBUTE, "where"),
        ({"where": {"any": [{"sog": {"gt": "5"}}]}}, Reason.NOT_A_NUMBER, "where.any[0].sog.gt"),
        ({"on": []}, Reason.BAD_VALUE, "on"),
        ({"on": None}, Reason.BAD_VALUE, "on"),
        ({"on": "match"}, Reason.BAD_VALUE, "on"),
        ({"on": ["match", "exit"]}, Reason.BAD_VALUE, "on[1]"),
        ({"on": [["match"]]}, Reason.BAD_VALUE, "on[0]"),
        ({"initial": "later"}, Reason.BAD_VALUE, "initial"),
        ({"initial": None}, Reason.BAD_VALUE, "initial"),
        ({"enabled": 1}, Reason.BAD_VALUE, "enabled"),
        ({"enabled": None}, Reason.BAD_VALUE, "enabled"),
        ({"tags": ["a"]}, Reason.BAD_VALUE, "tags"),
        ({"tags": {"team": 5}}, Reason.BAD_VALUE, "tags.team"),
        ({"tags": {str(i): "" for i in range(101)}}, Reason.LIMIT, "tags"),
        ({"select": "sog"}, Reason.BAD_VALUE, "select"),
        ({"select": ["sog", 5]}, Reason.BAD_VALUE, "select[1]"),
        ({"select": ["sog", "speed"]}, Reason.UNKNOWN_ATTRIBUTE, "select[1]"),
        ({"select": ["sog"] * 101}, Reason.LIMIT, "select"),
        ({"keep": "sog > 10 and lat > 5"}, Reason.KEEP_SMALLER, "keep"),
        ({"keep": "speed > 5"}, Reason.UNKNOWN_ATTRIBUTE, "keep"),
        ({"keep": {"any": [{"sog": {"gt": "5"}}]}}, Reason.NOT_A_NUMBER, "keep.any[0].sog.gt"),
        ({"keep": 5}, Reason.SYNTAX, "keep"),
        ({"for": "soon"}, Reason.BAD_VALUE, "for"),
        ({"for": 0}, Reason.BAD_VALUE, "for"),
        ({"cooldown": "soon"}, Reason.BAD_VALUE, "cooldown"),
        ({"cooldown": -1}, Reason.BAD_VALUE, "cooldown"),
        ({"once": 1}, Reason.BAD_VALUE, "once"),
        ({"once": None}, Reason.BAD_VALUE, "once"),
        ({"expires_at": NOW_MS}, Reason.PAST, "expires_at"),
        ({"expires_at": -(10**300)}, Reason.PAST, "expires_at"),
        ({"expires_at": "2001-01-01T00:00:00Z"}, Reason.PAST, "expires_at"),
        ({"expires_at": "0001-01-01T00:00:00+14:00"}, Reason.PAST, "expires_at"),
        ({"expires_at": "2001-01-01T00:00:00"}, Reason.BAD_VALUE, "expires_at"),
        ({"expires_at": "tomorrow"}, Reason.BAD_VALUE, "expires_at"),
        ({"expires_at": 1e15}, Reason.BAD_VALUE, "expires_at"),
        ({"expires_at": True}, Reason.BAD_VALUE, "expires_at"),
        ({"expires_at": {}}, Reason.BAD_VALUE, "expires_at"),
    ],
)
def test_a_query_is_refused_with_its_reason_and_field(change: Any, reason: Reason, field: str) -> None:
    assert refused(query, {**LEAST, **change}) == (reason, field)


@pytest.mark.parametrize(
    ("field", "good", "like"),
    [
        ("enabled", True, 1),
        ("enabled", False, 0.0),
        ("once", True, 1.0),
        ("for", 1, True),
        ("cooldown", 1, 1.0),
    ],
)
def test_what_equals_a_setting_that_is_known_need_not_be_one(field: str, good: Any, like: Any) -> None:
    query({**LEAST, field: good})
    assert refused(query, {**LEAST, field: like}) == (Reason.BAD_VALUE, field)


@pytest.mark.parametrize("field", ["id", "source", "where"])
def test_a_required_field_is_missing(field: str) -> None:
    body = {name: value for name, value in LEAST.items() if name != field}
    assert refused(query, body) == (Reason.MISSING_FIELD, field)


@pytest.mark.parametrize(
    ("where", "keep"),
    [
        ("sog > 10", "sog > 10"),
        ("sog > 10", "sog >= 10"),
        ("sog > 10", {"any": [{}]}),
        ("10 <= sog < 20", "5 <= sog < 20"),
        ("10 <= sog < 20", "10 <= sog <= 20"),
        ("10 < sog < 20 and lat > 0", "sog > 9"),
        ("10 < sog < 20 and lat > 0", "lat > 0 and sog > 10"),
        ("sog == 1 or sog == 2", "1 <= sog <= 2"),
        ("sog == 1 or lat == 2", "lat > 1 or sog < 2"),
        ("sog < 5 or sog >= 5", "sog < 5 or sog >= 5"),
        ("kind == 'tug'", "kind in ('tug', 'cargo')"),
        ("kind == 'tug'", "kind != 'cargo'"),
        ("kind in ('tug', 'cargo')", "kind != 'yacht'"),
        ("kind in ('tug', 'cargo')", "kind == 'tug' or kind == 'cargo'"),
        ("kind not in ('tug', 'cargo')", "kind != 'tug'"),
        ("kind != 'tug'", "kind != 'tug'"),
    ],
)
def test_a_keep_that_holds_every_box_of_where(where: Any, keep: Any) -> None:
    found = query({**LEAST, "where": where, "keep": keep})
    assert found.keep_region is not None
    assert query(query_body(found)) == found


@pytest.mark.parametrize(
    ("where", "keep"),
    [
        ("sog >= 10", "sog > 10"),
        ("sog <= 10", "sog < 10"),
        ("10 <= sog < 20", "10 <= sog < 19"),
        ("10 <= sog < 20", "11 <= sog < 20"),
        ("sog > 10", "lat > 0"),
        ("sog > 10", "sog > 5 and lat > 0"),
        ("sog > 10 or lat > 0", "sog > 5"),
        # Box by box: what two boxes hold together holds neither of them.
        ("0 <= sog < 10", "0 <= sog < 5 or 5 <= sog < 10"),
        ("lat > 0", "lat > 0 and sog < 5 or lat > 0 and sog >= 5"),
        ("kind in ('tug', 'cargo')", "kind == 'tug'"),
        ("kind in ('tug', 'cargo')", "kind != 'cargo'"),
        ("kind != 'tug'", "kind in ('cargo', 'yacht')"),
        ("kind != 'tug'", "kind not in ('tug', 'cargo')"),
        ("sog > 10", "kind != 'tug'"),
    ],
)
def test_a_keep_that_is_smaller_somewhere(where: Any, keep: Any) -> None:
    assert refused(query, {**LEAST, "where": where, "keep": keep}) == (Reason.KEEP_SMALLER, "keep")


def test_null_takes_a_control_away() -> None:
    body = {**LEAST, "keep": None, "for": None, "cooldown": None, "expires_at": None}
    assert query(body) == query(LEAST)
    assert not query(LEAST).stores


@pytest.mark.parametrize(
    "control", [{"keep": "sog > 9"}, {"for": 1}, {"cooldown": "1ms"}, {"once": True}], ids=str
)
def test_each_control_makes_membership_something_to_remember(control: Any) -> None:
    assert query({**LEAST, **control}).stores


def test_any_kind_may_be_asked_for_alone() -> None:
    for kind in Kind:
        assert query({**LEAST, "on": [kind.value]}).on == {kind}


def test_expiry_is_judged_by_the_time_it_was_asked_for() -> None:
    body = {**LEAST, "expires_at": NOW_MS + 1}
    assert query(body).expires_at == NOW_MS + 1
    before = parse_query({**body, "expires_at": 0}, SOURCES, id=None, now_ms=None, limits=Limits())
    assert before.expires_at == 0
    far = {**body, "expires_at": 253_402_300_800_000}
    assert refused(query, far) == (Reason.BAD_VALUE, "expires_at")


def test_every_limit_of_a_query_is_a_setting() -> None:
    limits = Limits(disjuncts=2, select=1, tags=1, text=30)
    body = {**LEAST, "where": "sog > 10 or sog < 1", "select": ["sog"], "tags": {"a": "b"}}
    assert query(body, limits=limits)
    assert refused(query, {**body, "where": "sog in (1, 2, 3)"}, limits=limits) == (Reason.LIMIT, "where")
    assert refused(query, {**body, "where": "sog > 10" + " " * 23}, limits=limits) == (Reason.LIMIT, "where")
    assert refused(query, {**body, "select": ["sog", "lat"]}, limits=limits) == (Reason.LIMIT, "select")
    assert refused(query, {**body, "tags": {"a": "b", "c": "d"}}, limits=limits) == (Reason.LIMIT, "tags")


# ---- patches


def test_a_patch_replaces_the_fields_that_it_names_whole() -> None:
    current = query_body(query({**LEAST, "tags": {"a": "b", "c": "d"}, "select": ["sog"]}))
    changes = {"tags": {"e": "f"}, "enabled": False, "id": "q", "source": "ais", "keep": None}
    changed = query(patch_body(current, changes), id="q")
    assert changed == msgspec.structs.replace(query(current), tags={"e": "f"}, enabled=False)
    assert current["tags"] == {"a": "b", "c": "d"}


@pytest.mark.parametrize(
    ("changes", "reason", "field"),
    [
        ({"id": "r"}, Reason.BAD_ID, "id"),
        ({"source": "planes"}, Reason.BAD_VALUE, "source"),
        ({"source": None}, Reason.BAD_VALUE, "source"),
        ({"colour": "red"}, Reason.UNKNOWN_FIELD, "colour"),
        ({"enabled": None}, Reason.BAD_VALUE, "enabled"),
        ({"where": {"any": [{"z": {"gt": 1}}]}}, Reason.UNKNOWN_ATTRIBUTE, "where.any[0].z.gt"),
        ({"expires_at": 1}, Reason.PAST, "expires_at"),
    ],
)
def test_a_patch_is_refused_with_its_reason_and_field(changes: Any, reason: Reason, field: str) -> None:
    current = query_body(query(LEAST))
    assert refused(lambda: query(patch_body(current, changes), id="q")) == (reason, field)


# ---- durations


@pytest.mark.parametrize(
    ("value", "duration_ms"),
    [
        (1, 1),
        (300_000, 300_000),
        ("250ms", 250),
        ("30s", 30_000),
        ("5m", 300_000),
        ("2h", 7_200_000),
        ("1d", 86_400_000),
        ("36500d", MAX_DURATION_MS),
    ],
)
def test_durations(value: Any, duration_ms: int) -> None:
    assert parse_duration(value, "for") == duration_ms


@pytest.mark.parametrize(
    "value",
    [
        *(0, -1, True, 1.5, 1000.0, None, [], {}, MAX_DURATION_MS + 1),
        *("", "5", "0s", "5 m", "5M", "-5m", "1.5h", "1h30m", "٣s", "36501d", "9" * 5000 + "ms"),
    ],
)
def test_durations_that_are_refused(value: Any) -> None:
    assert refused(parse_duration, value, "for") == (Reason.BAD_VALUE, "for")


# ---- sources


def test_a_source_of_attributes_alone_has_the_defaults_of_the_contract() -> None:
    assert source_body(AIS) == {
        "attributes": {"sog": "number", "lat": "number", "kind": "category"},
        "topic": "events.ais",
        "key": "stream_id",
        "ts": "ts",
        "paths": {},
        "missing": "absent",
        "nulls": "reject",
        "late": "no_border",
        "stream_ttl": None,
        "stale_after": None,
    }
    assert list(AIS.attributes.items())[2] == ("kind", AttributeType.CATEGORY)


def test_a_source_of_all_fields_comes_back_equal_from_its_body() -> None:
    body = {
        "attributes": {"höhe": "number", "match": "category", "ts": "number"},
        "topic": "plant.readings",
        "key": "meta.id",
        "ts": "meta.at",
        "paths": {"höhe": "pos.z"},
        "missing": "carry",
        "nulls": "absent",
        "late": "process",
        "stream_ttl": 60_000,
        "stale_after": 240_000,
        "dedup": {"by": "meta.event", "last": 7},
    }
    source = parse_source("plant", body)
    assert source == Source(
        name="plant",
        attributes={
            "höhe": AttributeType.NUMBER,
            "match": AttributeType.CATEGORY,
            "ts": AttributeType.NUMBER,
        },
        topic="plant.readings",
        key="meta.id",
        ts="meta.at",
        paths={"höhe": "pos.z"},
        missing=Missing.CARRY,
        nulls=Nulls.ABSENT,
        late=Late.PROCESS,
        stream_ttl=60_000,
        stale_after=240_000,
        dedup=Dedup("meta.event", 7),
    )
    assert source_body(source) == body
    assert parse_source("plant", {**body, "stream_ttl": "60s", "stale_after": "4m"}) == source
    assert parse_source("plant", source_body(source)) == source
    assert parse_source("plant", {**body, "dedup": {"by": "id"}}).dedup == Dedup("id", 100)
    assert parse_source("plant", {**body, "dedup": None}).dedup is None


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "a~b", "ä", "a" * 101, "a\n", 5, None])
def test_source_names_that_are_refused(name: Any) -> None:
    assert refused(parse_source, name, {"attributes": {"x": "number"}}) == (Reason.BAD_ID, "name")


def test_source_names_that_are_taken() -> None:
    for name in ("A.z_0-", "a" * 100):
        source = parse_source(name, {"attributes": {"x": "number"}})
        assert (source.name, source.topic) == (name, f"events.{name}")


WRONG_LASTS = (0, -1, 10_001, 1.5, 5.0, "5", None, True)
NUMBERS = dict.fromkeys((f"a{i}" for i in range(201)), "number")


@pytest.mark.parametrize(
    ("change", "reason", "field"),
    [
        ({"color": 1}, Reason.UNKNOWN_FIELD, "color"),
        ({"name": "s"}, Reason.UNKNOWN_FIELD, "name"),
        ({"attributes": {}}, Reason.BAD_VALUE, "attributes"),
        ({"attributes": ["x"]}, Reason.BAD_VALUE, "attributes"),
        ({"attributes": None}, Reason.BAD_VALUE, "attributes"),
        ({"attributes": NUMBERS}, Reason.LIMIT, "attributes"),
        ({"attributes": {"x": "text"}}, Reason.BAD_VALUE, "attributes.x"),
        ({"attributes": {"x": None}}, Reason.BAD_VALUE, "attributes.x"),
        ({"attributes": {"x y": "number"}}, Reason.BAD_VALUE, "attributes.x y"),
        ({"attributes": {"": "number"}}, Reason.BAD_VALUE, "attributes."),
        ({"attributes": {"in": "number"}}, Reason.BAD_VALUE, "attributes.in"),
        ({"attributes": {"True": "number"}}, Reason.BAD_VALUE, "attributes.True"),
        ({"attributes": {"ho\u0308he": "number"}}, Reason.BAD_VALUE, "attributes.ho\u0308he"),
        ({"attributes": {"a" * 65: "number"}}, Reason.BAD_VALUE, "attributes." + "a" * 65),
        ({"attributes": {"ts": "number"}}, Reason.BAD_VALUE, "attributes.ts"),
        ({"attributes": {"stream_id": "category"}}, Reason.BAD_VALUE, "attributes.stream_id"),
        ({"topic": ""}, Reason.BAD_VALUE, "topic"),
        ({"topic": 5}, Reason.BAD_VALUE, "topic"),
        ({"topic": ".."}, Reason.BAD_VALUE, "topic"),
        ({"topic": "a/b"}, Reason.BAD_VALUE, "topic"),
        ({"topic": "a" * 250}, Reason.BAD_VALUE, "topic"),
        ({"topic": topics.BORDERS}, Reason.BAD_VALUE, "topic"),
        ({"topic": topics.COMMANDS}, Reason.BAD_VALUE, "topic"),
        ({"topic": topics.STATE}, Reason.BAD_VALUE, "topic"),
        ({"topic": "__consumer_offsets"}, Reason.BAD_VALUE, "topic"),
        ({"key": ""}, Reason.BAD_VALUE, "key"),
        ({"key": None}, Reason.BAD_VALUE, "key"),
        ({"key": "a..b"}, Reason.BAD_VALUE, "key"),
        ({"ts": "a."}, Reason.BAD_VALUE, "ts"),
        ({"ts": "a" * 201}, Reason.BAD_VALUE, "ts"),
        ({"ts": "stream_id"}, Reason.BAD_VALUE, "ts"),
        ({"key": "meta", "ts": "meta.at"}, Reason.BAD_VALUE, "ts"),
        ({"key": "meta.id", "ts": "meta"}, Reason.BAD_VALUE, "ts"),
        ({"paths": []}, Reason.BAD_VALUE, "paths"),
        ({"paths": {"y": "y"}}, Reason.UNKNOWN_ATTRIBUTE, "paths.y"),
        ({"paths": {"x": 5}}, Reason.BAD_VALUE, "paths.x"),
        ({"paths": {"x": "ts"}}, Reason.BAD_VALUE, "attributes.x"),
        ({"missing": "drop"}, Reason.BAD_VALUE, "missing"),
        ({"missing": None}, Reason.BAD_VALUE, "missing"),
        ({"nulls": "carry"}, Reason.BAD_VALUE, "nulls"),
        ({"late": True}, Reason.BAD_VALUE, "late"),
        ({"stream_ttl": "soon"}, Reason.BAD_VALUE, "stream_ttl"),
        ({"stream_ttl": 0}, Reason.BAD_VALUE, "stream_ttl"),
        ({"stale_after": 1.5}, Reason.BAD_VALUE, "stale_after"),
        ({"dedup": True}, Reason.BAD_VALUE, "dedup"),
        ({"dedup": "event_id"}, Reason.BAD_VALUE, "dedup"),
        ({"dedup": {}}, Reason.MISSING_FIELD, "dedup.by"),
        ({"dedup": {"last": 5}}, Reason.MISSING_FIELD, "dedup.by"),
        ({"dedup": {"by": "id", "ids": 5}}, Reason.UNKNOWN_FIELD, "dedup.ids"),
        ({"dedup": {"by": None}}, Reason.BAD_VALUE, "dedup.by"),
        ({"dedup": {"by": "a..b"}}, Reason.BAD_VALUE, "dedup.by"),
        *(({"dedup": {"by": "id", "last": last}}, Reason.BAD_VALUE, "dedup.last") for last in WRONG_LASTS),
        ({"dedup": {"by": "ts"}}, Reason.BAD_VALUE, "dedup.by"),
        ({"dedup": {"by": "stream_id.event"}}, Reason.BAD_VALUE, "dedup.by"),
        ({"dedup": {"by": "x"}}, Reason.BAD_VALUE, "attributes.x"),
        ({"dedup": {"by": "x.id"}}, Reason.BAD_VALUE, "attributes.x"),
    ],
)
def test_a_source_is_refused_with_its_reason_and_field(change: Any, reason: Reason, field: str) -> None:
    body = {"attributes": {"x": "number"}, **change}
    assert refused(parse_source, "s", body) == (reason, field)


def test_a_source_needs_attributes_and_may_have_two_hundred() -> None:
    assert refused(parse_source, "s", {}) == (Reason.MISSING_FIELD, "attributes")
    most = dict.fromkeys(list(NUMBERS)[:200], "number")
    assert len(parse_source("s", {"attributes": most}).attributes) == 200
