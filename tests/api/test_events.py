from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from service import trial
from service.api import events as api_events
from tests.api.conftest import ATTRIBUTES, OwnSource
from tests.api.harness import TIMEOUT_S, Running, eventually, running


def send(
    client: httpx.Client, source: str, body: bytes, *, wait: bool = True, **headers: str
) -> httpx.Response:
    return client.post(
        "/v1/events", params={"source": source, "wait": str(wait).lower()}, content=body, headers=headers
    )


def test_one_event_is_answered_with_what_it_caused(client: httpx.Client, source: OwnSource) -> None:
    source.register("q", "x > 0", select=["x"])
    body = send(client, source.name, b'{"stream_id": "s", "ts": 5, "x": 1}').json()
    (position,) = body["positions"]
    assert (position["topic"], position["partition"]) == (f"events.{source.name}", 0)
    assert body["refused"] == 0
    match, border = body["outputs"]
    assert (match["topic"], match["key"], match["value"]["queries"]) == ("matches", "s", [source.id("q")])
    assert (border["topic"], border["value"]["enter"]) == ("borders", [source.id("q")])
    for output in body["outputs"]:
        assert output["value"]["origin"] == {**position, "row": 0}


def test_without_wait_the_answer_is_202_and_the_event_is_processed(
    client: httpx.Client, source: OwnSource
) -> None:
    sent = send(client, source.name, b'{"stream_id": "s", "x": 1}', wait=False)
    assert sent.status_code == 202
    assert sent.json().keys() == {"positions"}
    path = "/v1/streams/s"
    eventually(
        lambda: client.get(path, params={"source": source.name}).status_code == 200, "the stream is known"
    )


def test_an_array_is_one_message_and_each_event_is_judged_alone(
    client: httpx.Client, source: OwnSource
) -> None:
    source.register("q")
    body = source.send(
        {"stream_id": "a", "x": 1}, {"stream_id": "a", "x": "bad"}, {"x": 1}, {"stream_id": "b", "x": 2}
    )
    assert len(body["positions"]) == 1
    assert body["refused"] == 2
    told = [(output["topic"], output["value"]["origin"]["row"]) for output in body["outputs"]]
    assert told == [
        ("matches", 0),
        ("borders", 0),
        ("dead_letter", 1),
        ("dead_letter", 2),
        ("matches", 3),
        ("borders", 3),
    ]


@pytest.mark.parametrize("content_type", ["application/x-ndjson", "application/json"])
def test_ndjson_is_one_message_a_line(client: httpx.Client, source: OwnSource, content_type: str) -> None:
    lines = b'{"stream_id": "a", "x": 1}\r\n\n{broken\n[{"stream_id": "b"}, {"stream_id": "c"}]'
    body = send(client, source.name, lines, **{"Content-Type": content_type}).json()
    assert len(body["positions"]) == 3
    assert body["refused"] == 1
    (letter,) = body["outputs"]
    assert (letter["value"]["reason"], letter["value"]["value"]) == ("malformed", "{broken")


@pytest.mark.parametrize(
    "body", [b"", b" ", b"nope", b'{"stream_id": "s"', b"{}{}", b"a\nb\n", b"\xff\xfe", b"[" * 100_000]
)
def test_a_body_that_is_no_json_is_refused(client: httpx.Client, source: OwnSource, body: bytes) -> None:
    refused = send(client, source.name, body)
    assert (refused.status_code, refused.json()["reason"]) == (422, "malformed")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"5", "malformed"),
        (b'"text"', "malformed"),
        (b"null", "malformed"),
        (b"{}", "no_stream_id"),
        (b'{"stream_id": ""}', "no_stream_id"),
        (b'{"stream_id": 7}', "no_stream_id"),
        (b'{"stream_id": "s", "ts": "now"}', "bad_ts"),
        (b'{"stream_id": "s", "x": 1e999}', "not_finite"),
        (b'{"stream_id": "s", "x": 9007199254740993}', "inexact"),
        (b'{"stream_id": "s", "kind": 5}', "not_a_category"),
        (b'{"stream_id": "s\xff", "x": 5}', "malformed"),
    ],
)
def test_a_bad_event_goes_to_the_dead_letters_with_its_bytes(
    client: httpx.Client, source: OwnSource, body: bytes, reason: str
) -> None:
    answer = send(client, source.name, body)
    assert answer.status_code == 200
    assert answer.json()["refused"] == 1
    (letter,) = answer.json()["outputs"]
    assert (letter["topic"], letter["value"]["reason"]) == ("dead_letter", reason)
    assert ("value" in letter["value"]) != ("value_b64" in letter["value"])
    if "value" in letter["value"]:
        assert letter["value"]["value"].encode() == body


def test_an_unknown_source_is_named(client: httpx.Client) -> None:
    for path in ("/v1/events", "/v1/match"):
        refused = client.post(path, params={"source": "nowhere"}, json={"stream_id": "s"})
        assert (refused.status_code, refused.json()["reason"]) == (422, "unknown_source")
        missing = client.post(path, json={"stream_id": "s"})
        assert (missing.status_code, missing.json()["reason"]) == (422, "missing_field")


def test_arrays_beyond_a_message_are_split_and_single_events_are_not(tmp_path: Path) -> None:
    with running(tmp_path, max_message_bytes=300) as service:
        service.client.put("/v1/sources/s", json={"attributes": {"x": "number"}})
        service.client.post("/v1/queries", json={"id": "q", "source": "s", "where": "x >= 0"})
        events = [{"stream_id": "v", "ts": i, "x": i} for i in range(40)]
        body = send(service.client, "s", json.dumps(events).encode()).json()
        assert len(body["positions"]) > 1
        matched = [o["value"]["ts"] for o in body["outputs"] if o["topic"] == "matches"]
        assert matched == list(range(40))
        long = json.dumps([{"stream_id": "v"}, {"stream_id": "w", "note": "x" * 300}]).encode()
        refused = send(service.client, "s", long)
        assert (refused.status_code, refused.json()["reason"]) == (413, "too_large")
        assert service.client.get("/v1/streams/w", params={"source": "s"}).status_code == 404


def test_more_events_than_a_request_may_have_are_refused(tmp_path: Path) -> None:
    with running(tmp_path, max_request_events=3) as service:
        service.client.put("/v1/sources/s", json={"attributes": {"x": "number"}})
        event = b'{"stream_id": "v", "x": 1}'
        for body in (b"[" + b",".join([event] * 4) + b"]", b"\n".join([event] * 4)):
            for path in ("/v1/events", "/v1/match"):
                refused = service.client.post(path, params={"source": "s"}, content=body)
                assert (refused.status_code, refused.json()["reason"]) == (422, "limit")
                assert "4" in refused.json()["detail"] and "max_request_events" in refused.json()["detail"]
        taken = send(service.client, "s", b"\n".join([event] * 3) + b"\n").json()
        assert [one["offset"] for one in taken["positions"]] == [0, 1, 2], "nothing was sent before"


def test_so_many_messages_that_an_answer_could_not_say_where_they_lie_are_refused(tmp_path: Path) -> None:
    with running(tmp_path, max_answer_bytes=1_000) as service:
        service.client.put("/v1/sources/s", json={"attributes": {"x": "number"}})
        event = b'{"stream_id": "v"}\n'
        for wait in (True, False):
            refused = send(service.client, "s", event * 50, wait=wait)
            assert (refused.status_code, refused.json()["reason"]) == (422, "limit")
            assert "max_answer_bytes" in refused.json()["detail"]
        fit = int(refused.json()["detail"].split(": send ")[1].split()[0])
        answer = send(service.client, "s", event * fit, wait=False)
        assert answer.status_code == 202 and len(answer.content) <= 1_000
        assert [one["offset"] for one in answer.json()["positions"]] == list(range(fit))
        assert send(service.client, "s", event * (fit + 1)).status_code == 422
        array = b"[" + b",".join([event] * 50) + b"]"
        assert send(service.client, "s", array, wait=False).status_code == 202


def test_a_dry_run_names_the_queries_and_leaves_no_trace(client: httpx.Client, source: OwnSource) -> None:
    source.register("a", "x > 0")
    source.register("b", "kind != 'tug'")
    source.register("off", "x > 0", enabled=False)
    events: list[dict[str, Any]] = [
        {"stream_id": "s", "x": 1, "kind": "never seen"},
        {"stream_id": "s", "x": -1},
        {"stream_id": "s", "x": 1, "kind": "tug"},
    ]
    expected = [[source.id("a"), source.id("b")], [], [source.id("a")]]
    for _ in range(2):
        found = client.post("/v1/match", params={"source": source.name}, json=events)
        assert found.json() == {"matches": expected}
    lines = b"\n".join(json.dumps(event).encode() for event in events)
    assert client.post("/v1/match", params={"source": source.name}, content=lines).json() == {
        "matches": expected
    }
    assert client.get("/v1/streams/s", params={"source": source.name}).status_code == 404
    bad = client.post(
        "/v1/match", params={"source": source.name}, json=[*events, {"stream_id": "s", "x": "1"}]
    )
    assert (bad.status_code, bad.json()["field"], bad.json()["reason"]) == (422, "events[3]", "not_a_number")


def test_nested_keys_are_found(client: httpx.Client) -> None:
    body = {"attributes": {"x": "number"}, "key": "vehicle.id", "ts": "at", "paths": {"x": "position.x"}}
    client.put("/v1/sources/nested", json=body).raise_for_status()
    event = {"vehicle": {"id": "v1"}, "at": 5, "position": {"x": 3}}
    assert send(client, "nested", json.dumps(event).encode()).json()["refused"] == 0
    seen = client.get("/v1/streams/v1", params={"source": "nested"}).json()
    assert (seen["last"], seen["ts"]) == ({"x": 3.0}, 5)


def test_a_stream_is_shown_and_removed(client: httpx.Client, source: OwnSource) -> None:
    source.register("q")
    source.send({"stream_id": "ä/b c", "ts": 7, "x": 1.5, "kind": "tug"})
    path = "/v1/streams/%C3%A4%2Fb%20c"
    assert client.get(path, params={"source": source.name}).json() == {
        "source": source.name,
        "stream_id": "ä/b c",
        "last": {"x": 1.5, "kind": "tug"},
        "ts": 7,
        "seq": 1,
        "inside": [source.id("q")],
        "topic": f"events.{source.name}",
        "partition": 0,
    }
    assert client.delete(path, params={"source": source.name}).status_code == 204
    assert client.delete(path, params={"source": source.name}).status_code == 404
    assert client.get(path, params={"source": source.name}).status_code == 404
    refused = client.get(path, params={"source": "nowhere"})
    assert (refused.status_code, refused.json()["reason"]) == (422, "unknown_source")


def test_a_source_without_queries_takes_events(client: httpx.Client) -> None:
    client.put("/v1/sources/lonely", json={"attributes": ATTRIBUTES}).raise_for_status()
    assert send(client, "lonely", b'{"stream_id": "s", "x": 1}').json()["outputs"] == []


@pytest.mark.parametrize(
    ("events_at_a_time", "ids_at_a_time", "hits_at_once"), [(1, 1, 1), (4, 5, 8), (9, 2, 99)]
)
def test_a_dry_run_is_the_same_in_whatever_pieces(
    source: OwnSource,
    monkeypatch: pytest.MonkeyPatch,
    events_at_a_time: int,
    ids_at_a_time: int,
    hits_at_once: int,
) -> None:
    monkeypatch.setattr(api_events, "_EVENTS_AT_A_TIME", events_at_a_time)
    monkeypatch.setattr(api_events, "_IDS_AT_A_TIME", ids_at_a_time)
    monkeypatch.setattr(trial, "_HITS_AT_ONCE", hits_at_once)
    for bound in range(4):
        source.register(f"over{bound}", f"x > {bound}")
    rows = [{"stream_id": "s", "x": i % 6} for i in range(20)]
    expected = [[source.id(f"over{bound}") for bound in range(4) if i % 6 > bound] for i in range(20)]

    def match(content: bytes) -> httpx.Response:
        return source.client.post("/v1/match", params={"source": source.name}, content=content)

    single = b"\n".join(json.dumps(row).encode() for row in rows[:7])
    array = json.dumps(rows[7:14]).encode()
    lines = b"\n".join([single, b"[]", array, json.dumps(rows[14:]).encode()])
    for body in (json.dumps(rows).encode(), lines):
        assert match(body).json() == {"matches": expected}
    assert match(b"[]").json() == {"matches": []}
    for bad in (b'{"stream_id": "s", "x": "1"}', b"[[%b]]" % json.dumps(rows[0]).encode(), b"nothing"):
        problem = match(b"\n".join([single, array, bad, single]))
        assert (problem.status_code, problem.json()["field"]) == (422, "events[14]"), problem.text


def test_a_question_to_the_owner_thread_ends_where_enough_is_found(
    source: OwnSource, service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    for bound in range(4):
        source.register(f"q{bound}", "x > 0")
    monkeypatch.setattr(trial, "_HITS_AT_ONCE", 1)
    message = json.dumps([{"stream_id": "s", "x": 1}] * 10).encode()
    told = []
    for begin in (0, 3, 8):
        asked = service.runtime.ask(
            lambda engine, begin=begin: trial.try_some(
                engine, source.name, [message], max_bytes=10_000, begin=begin, most_ids=9
            )
        )
        events, whole = asked.result(TIMEOUT_S)
        told.append((len(events), whole))
    assert told == [(3, False), (3, False), (2, True)]


def test_a_dry_run_whose_answer_is_too_long_is_refused_and_told_what_would_do(tmp_path: Path) -> None:
    with running(tmp_path, max_answer_bytes=2_000) as service:
        source = OwnSource(service.client)
        source.register("q" * 50, "x > 0")
        length = len(json.dumps([source.id("q" * 50)]))

        def match(count: int) -> httpx.Response:
            rows = [{"stream_id": "s", "x": 1}] * count
            return service.client.post("/v1/match", params={"source": source.name}, json=rows)

        fit = 2_000 // (length + 1)
        assert match(fit).json()["matches"] == [[source.id("q" * 50)]] * fit
        problem = match(fit + 1)
        assert (problem.status_code, problem.json()["reason"]) == (422, "limit")
        assert "max_answer_bytes" in problem.json()["detail"]


def test_who_waits_for_events_that_cause_more_than_an_answer_is_told_that_they_are_processed(
    tmp_path: Path,
) -> None:
    with running(tmp_path, max_answer_bytes=2_000) as service:
        source = OwnSource(service.client)
        source.register("q")

        def send(*xs: object) -> httpx.Response:
            rows = [{"stream_id": f"s{i}", "x": x} for i, x in enumerate(xs)]
            asking = {"source": source.name, "wait": "true"}
            return service.client.post("/v1/events", params=asking, json=rows)

        answer = send(-1, -1, 5)
        assert (answer.status_code, len(answer.json()["outputs"])) == (200, 2)
        answer = send(*[6] * 20)
        assert (answer.status_code, answer.json().keys()) == (202, {"positions"})
        members = service.client.get(f"/v1/queries/{source.id('q')}/streams").json()["streams"]
        assert len(members) == 20, "all of it is done"
        refused = send(*["no number"] * 20)
        assert (refused.status_code, refused.json().keys()) == (202, {"positions"})
        removed = service.client.delete("/v1/streams/s1", params={"source": source.name})
        assert removed.status_code == 204, "who waits for that needs none of it"


def test_a_large_dry_run_is_answered_in_slices_as_one(source: OwnSource) -> None:
    source.register("high", "x > 5")
    events = [{"stream_id": "a", "x": i % 10, "note": "n" * 100} for i in range(20_000)]
    answer = source.client.post("/v1/match", params={"source": source.name}, json=events).json()
    assert answer["matches"] == [[source.id("high")] if i % 10 > 5 else [] for i in range(20_000)]
    events[19_000]["x"] = "bad"
    problem = source.client.post("/v1/match", params={"source": source.name}, json=events)
    assert (problem.status_code, problem.json()["field"]) == (422, "events[19000]")


def test_a_stream_without_a_name_is_not_there(source: OwnSource) -> None:
    answer = source.client.delete("/v1/streams/", params={"source": source.name})
    assert (answer.status_code, answer.json()["reason"]) == (404, "unknown_id")
    assert source.send({"stream_id": "a", "x": 1})["refused"] == 0
